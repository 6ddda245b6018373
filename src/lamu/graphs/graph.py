r"""A graph: variables in plates and rows with conjugate factors, as a target.

\[ \log p(\theta, D) = \sum_g \log p(\theta_g \mid \theta) + \sum_i \log \int p(x_i, z_i \mid \theta)\, dz_i \]

θ are the variables that all rows share, by name at `params["network"]`; the latents z of a row leave before the row is
a loss (`lamu.graphs.Local`). Algorithms in λ work with \(E_q\) of the same function (`row_bounds`, `shared_log_joint`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from lamu.constraints import Constraints, Image
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.incomplete import Incomplete
from lamu.data.spelling import nearest
from lamu.data.stream import Stream
from lamu.dtype_policy import lenient
from lamu.families import Draws, Product
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, in_dtype, log_joint, prepared
from lamu.graphs.lengths import over_rows
from lamu.graphs.local import Coordinate, Exact, Local
from lamu.graphs.program import Site, written
from lamu.graphs.start import first_beliefs
from lamu.graphs.words import WordsFactor
from lamu.priors import Prior
from lamu.record import record, static
from lamu.target import Target
from lamu.typing import Array, Params, RandomKey

__all__ = ["Graph", "GraphPrior"]

G = TypeVar("G", bound="Graph")


@record
class Graph(Target):
    r"""Variables with conjugate factors, written as a program.

    The program is a function of `m` (`lamu.graphs.Program`), which is run once. Variables that all rows share have a
    belief of `lamu.families` for their prior, or a factor of `lamu.graphs` with other variables as its arguments;
    inside `with m.rows():` every row has its own. What the data name is observed, the rest is latent. NaN is a missing
    entry, where a factor can miss one.

    Attributes:
        sites: the program; kept as its sites.
        local: how the latents of a row leave that meet in a factor: a mapping with a `lamu.graphs.Coordinate` by the
            name of the latent, or None for `Coordinate()`.
        columns: the names of the inputs, as the program asks for them.
        constraints: how the parameters come of the real numbers that samplers see.
        frozen: coordinates held at given values, or None.
        start: parameters that every run starts from, or None.

    Raises:
        TypeError: for a pair of variable and factor that has no closed form.
        ValueError: for a name that is taken twice, plates that do not fit, or a program without rows.

    Source: Winn & Bishop (2005); Hoffman, Blei, Wang & Paisley (2013), section 2; Khan & Rue (2021), section 5.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu import graphs
        >>> from lamu.families import Dirichlet, NormalWishart
        >>> def mixture(m):
        ...     weight = m.sample("weight", Dirichlet(jnp.ones(2)))
        ...     part = m.sample("part", NormalWishart(jnp.zeros(1), 1.0, 2.0, jnp.eye(1)), plate=2)
        ...     with m.rows():
        ...         z = m.sample("z", graphs.Categorical(weight))
        ...         m.sample("y", graphs.MultivariateNormal(part[z]))
        >>> y = jnp.array([[-2.1], [-1.9], [-2.0], [2.0], [2.2], [1.8]])
        >>> posterior = lamu.fit(lamu.Graph(mixture), {"y": y}, lamu.algorithms.vmp()).posterior
        >>> posterior.local({"y": y})["z"].mean.argmax(-1).tolist() in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
        True
    """

    sites: Any
    local: Any = None
    columns: tuple[str, ...] = static(default=())
    constraints: Constraints | None = None
    frozen: Params | None = None
    start: Any = None

    def __post_init__(self) -> None:
        if callable(self.sites):
            sites, inputs = written(self.sites)
            object.__setattr__(self, "sites", sites)
            object.__setattr__(self, "columns", inputs)
        if self.constraints is None:
            object.__setattr__(self, "constraints", Constraints(_supports(self.shared)))
        for name in self.local or {}:
            latents = [site.name for site in self.in_rows]
            if name not in latents:
                raise ValueError(f"local names {name!r}, which no row has; {nearest(name, latents)}")

    @property
    def name(self) -> str:
        """A graph."""
        return "a graph"

    @property
    def shared(self) -> tuple[Site, ...]:
        """The sites of what all rows share."""
        return tuple(site for site in self.sites if not site.in_rows)

    @property
    def in_rows(self) -> tuple[Site, ...]:
        """The sites of a row."""
        return tuple(site for site in self.sites if site.in_rows)

    @property
    def transforms(self) -> bool:
        """Whether some variable is constrained."""
        return bool(self.constraints and self.constraints.table)

    @property
    def identified(self) -> bool:
        """No: the members of a plate may change places."""
        return False

    @property
    def prior(self) -> GraphPrior:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The density of what all rows share, in the coordinates that samplers see."""
        return GraphPrior(self.shared, self.constraints or Constraints())

    # F at statistics: what algorithms in λ differentiate.

    def row_bounds(self, statistics: Mapping[str, Any], batch: Batch, temperature: Any = 1.0) -> Array:
        r"""Returns the log density of every row with its latents gone, in nats, `[batch]`.

        At T(θ) it is \(\log p(x_i \mid \theta)\), or its bound where latents meet; at μ the best bound of the belief,
        \(\max_{q(z)} E_q[\log p(x_i, z \mid \theta)]/T + H(q(z))\).

        Args:
            statistics: T or μ of every shared variable, by name.
            batch: the rows.
            temperature: T.
        """
        return self._eliminated(statistics, batch.y, temperature)[0]

    def row_latents(
        self, statistics: Mapping[str, Any], data: Mapping[str, Any], temperature: Any = 1.0
    ) -> dict[str, Any]:
        """Returns the natural parameters of every row's latents by name, with a leading axis of rows.

        Args:
            statistics: T or μ of every shared variable, by name.
            data: arrays by name, `[rows, ...]`.
            temperature: T.
        """
        return self._eliminated(statistics, data, temperature)[1]

    def _eliminated(self, statistics: Mapping[str, Any], data: Any, temperature: Any) -> tuple[Array, dict[str, Any]]:
        at, dtype = Environment(dict(statistics), temperature=temperature), dtype_of(statistics)
        sites = prepared(in_dtype(self.in_rows, dtype), at)

        def of(data: Mapping[str, Any]) -> tuple[Row, Local]:
            row = Row.of(sites, self.columns, data, temperature, dtype)
            return row, self.elimination(row)

        def settled(data: Mapping[str, Any]) -> dict[str, Any]:
            row, local = of(data)
            return local.settled(row, at)

        def eliminated(data: Mapping[str, Any], settled: dict[str, Any]) -> tuple[Array, dict[str, Any]]:
            row, local = of(data)
            return local.eliminated(row, at, settled)

        return jax.vmap(eliminated)(data, over_rows(settled, data))

    def elimination(self, row: Row) -> Local:
        """Returns how the latents of a row leave.

        Args:
            row: the row.
        """
        if not row.coupled:
            return Exact()
        return next(iter((self.local or {}).values()), Coordinate())

    def shared_log_joint(self, statistics: Mapping[str, Any]) -> Array:
        """Returns the log density of what all rows share in nats, a scalar: at T(θ) the log prior.

        Args:
            statistics: T or μ of every shared variable, by name.
        """
        return log_joint(in_dtype(self.shared, dtype_of(statistics)), Environment(dict(statistics)))

    @property
    def blocks(self) -> tuple[tuple[str, ...], ...]:
        """The shared variables in groups that no factor brings together, in the order of the program.

        Given the latents of the rows, the variables of a group are independent: one step updates all of them.
        """
        beside: dict[str, set[str]] = {site.name: set() for site in self.shared}
        for site in self.sites:
            meeting = set(beside) & {site.name, *site.factor.names}
            for name in meeting:
                beside[name] |= meeting - {name}
        groups: list[list[str]] = []
        for name in beside:
            group = next((g for g in groups if not beside[name] & set(g)), None)
            if group is None:
                groups.append([name])
            else:
                group.append(name)
        return tuple(tuple(group) for group in groups)

    def moments(self, beliefs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns μ of beliefs about the shared variables, by name.

        Args:
            beliefs: a belief by name.
        """
        return {site.name: site.kind.under(beliefs[site.name]) for site in self.shared}

    def values(self, theta: Mapping[str, Any]) -> dict[str, Any]:
        """Returns T(θ) of values of the shared variables, by name.

        Args:
            theta: a value by name.
        """
        with lenient():
            return {site.name: site.kind.of(theta[site.name]) for site in self.shared}

    def first_beliefs(self, key: RandomKey, batch: Batch, temperature: Any = 1.0) -> dict[str, Any]:
        """Returns beliefs about the shared variables to start from, by name: after one update from random latents.

        Args:
            key: a random key.
            batch: some rows.
            temperature: T.
        """
        shared, in_rows = in_dtype((self.shared, self.in_rows), batch.weight.dtype)
        return first_beliefs(key, shared, in_rows, self.columns, self.blocks, batch, temperature)

    # A target.

    def init(self, key: RandomKey, batch: Batch) -> tuple[Params, Any]:
        """Returns the shared variables at the mean of the first beliefs, as real numbers, and the empty state."""
        beliefs = self.first_beliefs(key, batch)
        theta = {
            name: jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), belief.mean) for name, belief in beliefs.items()
        }
        return self.started(self.unconstrained({"network": theta, "likelihood": {}}), {})

    def theta(self, params: Params) -> Params:
        """Returns the shared variables by name, of coordinates.

        Args:
            params: the free coordinates.
        """
        return (self.constraints or Constraints()).constrain(self.complete(params["network"]))[0]

    def log_likelihood(
        self, params: Params, state: Any, batch: Batch, key: RandomKey | None = None, train: bool = False
    ) -> tuple[Array, Any]:
        r"""Returns \(\log p(x_i \mid \theta)\) of every row with its latents summed out, `[batch]` in nats.

        Raises:
            TypeError: where latents of a row meet, so that only a bound is known.
        """
        row = Row.of(self.in_rows, self.columns, jax.tree.map(lambda leaf: leaf[0], batch.y), 1.0, float)
        if row.coupled and row.latent:
            names = ", ".join(site.name for site in row.latent)
            raise TypeError(
                f"the latents {names} of a row meet, and their sum has no closed form at a point; use vmp(), svi() or "
                "em(), or observe one of them"
            )
        return self.row_bounds(self.values(self.theta(params)), batch), state

    def log_volume(self, params: Params) -> Array:
        """Returns the log of the determinant of the Jacobian of θ in the coordinates, in nats."""
        return (self.constraints or Constraints()).constrain(self.complete(params["network"]))[1]

    def unconstrained(self, params: Params) -> Params:
        """Returns θ as the real numbers that samplers see."""
        return {**params, "network": (self.constraints or Constraints()).unconstrain(params["network"])}

    def constrained(self, posterior: Any) -> Any:
        """Returns a posterior about real coordinates as one about θ; one about θ comes back as it is."""
        belief, constraints = posterior.belief, posterior.model.constraints
        if not constraints.table or _about_theta(belief):
            return posterior
        if isinstance(belief, Draws):
            network = jax.jit(lambda u: constraints.constrain(u)[0])(belief.samples["network"])
            mapped: Any = replace(belief, samples={**belief.samples, "network": network})
        elif isinstance(belief, Product):
            mapped = Product({**belief.factors, "network": Image(belief.factors["network"], constraints)})
        else:
            mapped = Image(belief, constraints, part="network")
        return replace(posterior, model=posterior.model.of_theta(), belief=mapped)

    def of_theta(self) -> Graph:
        """Returns the graph whose coordinates are θ itself, for a posterior about θ."""
        return replace(self, constraints=Constraints(), start=None)

    def read(self, data: Any) -> Any:
        """Returns the data, arrays by name, as rows.

        Args:
            data: a mapping of arrays `[N, ...]` by the names of variables and inputs; NaN is a missing entry. Documents
                come as a pair `(ids, counts)`. `weight` and `mask` may stand beside them. A `lamu.data.Stream` of
                batches, each `graph.read(part).full()`, comes back as it is: rows that do not fit in memory.

        Raises:
            TypeError: for data of another kind.
            ValueError: for a name that the program does not have, an input that is lacking, a value outside the support
                of its factor, or NaN where none may be.
        """
        if isinstance(data, Arrays | Stream):
            return data
        if not isinstance(data, Mapping):
            raise TypeError(
                f"data is a {type(data).__name__}; pass arrays by the names of the program's variables, for instance "
                f"{{{self.in_rows[-1].name!r}: ...}}"
            )
        flat = _flat(data, self.in_rows)
        known = [*self.columns, *(f for site in self.in_rows for f in _fields(site))]
        names = [name for name in known if name in flat]
        _refuse_unknown(flat, known)
        if not set(names) - set(self.columns):
            raise ValueError(f"the data observe no variable of a row; give some of {', '.join(known)}")
        lacking = [name for name in self.columns if name not in flat]
        if lacking:
            raise ValueError(f"the data lack the input {lacking[0]!r}, which the program asks for; add it")
        rows = Arrays.named(flat, names, missing=True)
        y = {name: self._checked(name, part) for name, part in rows.y.items()}
        return replace(rows, y=y)

    def rows(self, data: Any) -> Arrays:
        """Returns data as rows in memory."""
        return self.read(data)

    def inputs(self, x: Any) -> Any:
        """Returns rows of which NaN is asked for, checked."""
        return self.read(x)

    def _checked(self, name: str, part: Incomplete) -> Any:
        """Returns an array whose entries are all there as it is, after a check of its values."""
        value, observed = np.asarray(part.value), np.asarray(part.observed)
        site = next((site for site in self.in_rows if name in _fields(site)), None)
        if site is None:
            if not observed.all():
                raise ValueError(f"the input {name!r} is NaN in a row, and an input is not modelled; fill it in")
            return part.value
        site.factor.check(name, value, observed)
        if not observed.any():
            raise ValueError(f"{name} is NaN in every row; leave it out, and it is latent")
        own = site.shape
        rest = value.shape[1:]
        events = own[: len(own) - 1] if own is not None and site.kind.__name__ == "Categories" else own
        if events is not None and rest != events and not isinstance(site.factor, WordsFactor):
            raise ValueError(
                f"{name} has the shape {value.shape}, and the program makes {events} of a row; give [N, ...]"
            )
        if observed.all():
            return part.value
        if not site.factor.misses:
            row = int(np.argwhere(~observed)[0][0])
            raise ValueError(
                f"{name} is NaN in row {row}, and {type(site.factor).__name__.removesuffix('Factor')} misses no single "
                "entries; write independent ones with graphs.Normal, or drop the row"
            )
        return part


@record
class GraphPrior(Prior):
    """The density of what all rows share, of real coordinates.

    Attributes:
        sites: the shared sites.
        constraints: how the variables come of the coordinates.

    Examples:
        >>> from lamu.constraints import Constraints
        >>> from lamu.families import Gamma
        >>> from lamu.graphs.graph import GraphPrior
        >>> from lamu.graphs.prior import Known
        >>> from lamu.graphs.program import Site
        >>> prior = GraphPrior((Site("rate", Known(Gamma(1.0, 1.0)), (), False),), Constraints())
        >>> float(prior.log_prob({"rate": 2.0}))
        -2.0
    """

    sites: Any
    constraints: Constraints

    def log_prob(self, params: Params) -> Array:
        """Returns log p(θ) with the Jacobian, in nats."""
        theta, volume = self.constraints.constrain(params)
        with lenient():
            statistics = {site.name: site.kind.of(theta[site.name]) for site in self.sites}
        value = log_joint(in_dtype(self.sites, dtype_of(statistics)), Environment(statistics))
        return value + volume.astype(value.dtype)

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Returns a draw, variable after variable, as coordinates."""
        drawn: dict[str, Any] = {}
        at = Environment({})
        for number, site in enumerate(self.sites):
            zero = site.kind.zeros(site.shape, dtype_of(params))
            slope = jax.grad(
                lambda x, site=site, at=at: log_joint((site,), Environment({**at.statistics, site.name: x}))
            )
            drawn[site.name] = slope(zero).belief().sample(jax.random.fold_in(key, number))
            with lenient():
                at = Environment({**at.statistics, site.name: site.kind.of(drawn[site.name])})
        return self.constraints.unconstrain(drawn)


def _supports(sites: tuple[Site, ...]) -> tuple[tuple[str, Any], ...]:
    """Returns the constraints of the variables by path."""
    table: dict[str, Any] = {}
    for site in sites:
        for below, constraint in site.kind.constraint.items():
            table[f"{site.name}/{below}" if below else site.name] = constraint
    return tuple(table.items())


def _about_theta(belief: Any) -> bool:
    """Whether a belief is one of the variables themselves, as algorithms in λ make it."""
    network = belief.factors.get("network") if isinstance(belief, Product) else None
    return isinstance(network, Product)


def _fields(site: Site) -> tuple[str, ...]:
    """The names of the arrays that observe a site."""
    if isinstance(site.factor, WordsFactor):
        return f"{site.name}.ids", f"{site.name}.counts"
    return (site.name,)


def _flat(data: Mapping[str, Any], sites: tuple[Site, ...]) -> dict[str, Any]:
    """Returns documents as two arrays of one name each."""
    flat = dict(data)
    for site in sites:
        if isinstance(site.factor, WordsFactor) and site.name in flat:
            pair = flat.pop(site.name)
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise TypeError(f"{site.name} is a {type(pair).__name__}; give a pair of arrays, (ids, counts)")
            flat |= dict(zip(_fields(site), pair, strict=True))
    return flat


def _refuse_unknown(flat: Mapping[str, Any], known: list[str]) -> None:
    """Raises a ValueError for a name that the program does not have."""
    for name in flat:
        if name not in (*known, "weight", "mask"):
            raise ValueError(f"data has the unknown key {name!r}; {nearest(str(name), (*known, 'weight', 'mask'))}")
