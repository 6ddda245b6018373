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

from lamu import tree
from lamu.conjugate_target import ConjugateTarget
from lamu.constraints import Constraints, Image
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.spelling import nearest
from lamu.dtype_policy import lenient
from lamu.families import Draws, Product
from lamu.graphs.expressions import Environment
from lamu.graphs.graph_prior import GraphPrior, supports
from lamu.graphs.groups import independent_groups
from lamu.graphs.joint import Row, dtype_of, in_dtype, log_joint
from lamu.graphs.local import Coordinate, Exact, Local
from lamu.graphs.program import Site, written
from lamu.graphs.queries import completed, expected_statistics, local_beliefs, row_log_prob
from lamu.graphs.reading import read
from lamu.graphs.start import first_beliefs
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["Graph", "graph_of"]

G = TypeVar("G", bound="Graph")


@record
class Graph(ConjugateTarget):
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
            object.__setattr__(self, "constraints", Constraints(supports(self.shared)))
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
        sites = in_dtype(self.in_rows, dtype)

        def one(data: Mapping[str, Any]) -> tuple[Array, dict[str, Any]]:
            row = Row.of(sites, self.columns, data, temperature, dtype)
            return self.elimination(row).eliminated(row, at)

        return jax.vmap(one)(data)

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
        """The shared variables in groups that no factor brings together, in the order of the program."""
        return independent_groups(self.sites)

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

    def first_belief(self, key: RandomKey, batch: Batch, temperature: Any) -> Product:
        """Returns beliefs after one update from random latents."""
        return Product(jax.jit(self.first_beliefs)(key, batch, jnp.asarray(temperature, batch.weight.dtype)))

    def natural_prior(self, belief: Any, temperature: Any) -> Any:
        """Returns zeros: the priors are factors of the graph."""
        return tree.zeros_like(belief.to_natural())

    def statistics(self, mu: Any) -> dict[str, Any]:
        """Returns μ by name, in records."""
        return {site.name: site.kind(*jax.tree.leaves(mu[site.name])) for site in self.shared}

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

    def read(self, data: Any) -> Arrays:
        """Returns the data, arrays by name, as rows.

        Args:
            data: a mapping of arrays `[N, ...]` by the names of variables and inputs; NaN is a missing entry. Documents
                come as a pair `(ids, counts)`. `weight` and `mask` may stand beside them.

        Raises:
            TypeError: for data of another kind.
            ValueError: for a name that the program does not have, an input that is lacking, a value outside the support
                of its factor, or NaN where none may be.
        """
        return read(data, self.in_rows, self.columns)

    def rows(self, data: Any) -> Arrays:
        """Returns data as rows in memory."""
        return self.read(data)

    def inputs(self, x: Any) -> Any:
        """Returns rows of which NaN is asked for, checked."""
        return self.read(x)

    # What a posterior is asked.

    @property
    def completes(self) -> bool:
        """Yes: a prediction fills in NaN."""
        return True

    def completed(self, belief: Any, rows: Arrays, samples: int, key: RandomKey) -> tuple[Any, Any]:
        """Returns means and variances of rows given what they hold, by name."""
        return completed(self, expected_statistics(self, belief, samples, key), rows)

    def local_beliefs(self, belief: Any, rows: Arrays, samples: int, key: RandomKey) -> dict[str, Any]:
        """Returns the beliefs about the latents of rows, by name, with a leading axis of rows."""
        return local_beliefs(self, belief, rows, samples, key)

    def row_log_prob(self, belief: Any, rows: Arrays, samples: int, key: RandomKey) -> Array:
        """Returns the log density of every row, averaged over draws; a bound where latents meet."""
        return row_log_prob(self, belief, rows, samples, key)


def graph_of(target: Any) -> Graph:
    """Returns a target as the graph that it is.

    Args:
        target: what is learned.

    Raises:
        TypeError: if it is none.

    Examples:
        >>> import lamu
        >>> from lamu.graphs.graph import graph_of
        >>> graph_of(lamu.LogDensity(lambda theta: -(theta**2), 1.0))
        Traceback (most recent call last):
            ...
        TypeError: exact messages between variables need a lamu.Graph, and not a density; use ivon() or nuts()
    """
    if isinstance(target, Graph):
        return target
    raise TypeError(f"exact messages between variables need a lamu.Graph, and not {target.name}; use ivon() or nuts()")


def _about_theta(belief: Any) -> bool:
    """Whether a belief is one of the variables themselves, as algorithms in λ make it."""
    network = belief.factors.get("network") if isinstance(belief, Product) else None
    return isinstance(network, Product)
