"""The graph target: variables in plates and rows with conjugate factors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu.constraints import Constraints
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.precision import unscaled
from lamu.data.wording import aligned, nearest
from lamu.families import Product
from lamu.families.products import factor_of
from lamu.graphs.elimination import MOST_COMBINATIONS, has_exact_sum, require_summed
from lamu.graphs.factor import Known
from lamu.graphs.graph_prior import GraphPrior, enters_openly, fixed, statistics_under, supports
from lamu.graphs.joint import Row
from lamu.graphs.messages import GraphMessages
from lamu.graphs.network import NetworkSite, applications
from lamu.graphs.potential import Potential
from lamu.graphs.program import GraphSite, LearnedPrior, written
from lamu.graphs.queries import (
    IDLE_BELOW,
    completed,
    completed_by_draws,
    expected_statistics,
    idle_units,
    local_beliefs,
    needs_draws,
    new_rows,
    predictive_statistics,
    prior_draws,
    row_log_prob,
    with_absent_missing,
)
from lamu.graphs.reading import read, require_observed, require_shapes
from lamu.graphs.start import empty_components, first_parameters, likelihoods_of
from lamu.graphs.statistics import Categories, States
from lamu.priors import Normal
from lamu.record import record, static
from lamu.supports import Counts
from lamu.typing import Array, Belief, Data, Inputs, Params, RandomKey, State

__all__ = ["Graph", "table"]


def table(graph: Any, observed: Iterable[str] | None) -> str:
    """Returns a table of the variables: family, factors, whether conjugate, and method."""
    rows = graph.in_rows
    needed = frozenset().union(*(site.factor.names for site in rows))
    seen = {site.name for site in rows if site.name not in needed} if observed is None else set(observed)
    row = Row(rows, dict.fromkeys(site.name for site in rows if site.name in seen), {}, {}, {})
    lines = [("variable", "of", "family", "factors", "verdict", "method")]
    for site in graph.sites:
        factors = [other for other in graph.sites if other is site or site.name in other.factor.names]
        names = ", ".join(other.name for other in factors)
        if site.name in row.known:
            lines.append((site.name, "a row", _family(site), names, "", "observed"))
            continue
        open_to = [other.name for other in factors if site.name in enters_openly(other)]
        by_quadrature = [other.name for other in factors if other is not site and not other.factor.exact]
        verdict = (
            f"not in {', '.join(dict.fromkeys([*open_to, *by_quadrature]))}" if open_to + by_quadrature else "conjugate"
        )
        method = _of_row(site, row, graph.local or {}) if site.in_rows else _of_all(open_to, by_quadrature)
        lines.append((site.name, "a row" if site.in_rows else "all rows", _family(site), names, verdict, method))
    for network in graph.networks:
        factors = [s.name for s in graph.sites if any(call.of.name == network.name for call in applications(s.factor))]
        kind = type(network.network).__name__
        lines.append((network.name, "all rows", kind, ", ".join(factors), f"not in {', '.join(factors)}", "gradients"))
    return aligned(lines)


def _family(site: GraphSite) -> str:
    factor: Any = site.factor
    if isinstance(factor, Known):
        return type(factor.belief).__name__
    if factor.is_likelihood:
        return factor.likelihood.name
    return type(factor).__name__.removesuffix("Factor").removeprefix("Located")


def _of_all(open_to: list[str], by_quadrature: list[str]) -> str:
    if open_to:
        return "gradients"
    return "message by quadrature" if by_quadrature else "exact message"


def _of_row(site: GraphSite, row: Row, local: dict[str, Any]) -> str:
    if site.name in local:
        return type(local[site.name]).__name__
    if not has_exact_sum({}, row):
        return "closed form, in turns"
    return "summed out" if issubclass(site.kind, Categories | States) else "closed form"


# \[ \log p(\theta, D) = \sum_g \log p(\theta_g \mid \theta) + \sum_i \log \int p(x_i, z_i \mid \theta)\, dz_i \]
#
# θ are the variables that all rows share, by name at `params["network"]`; a row's latents z are eliminated before its
# loss is evaluated (`lamu.graphs.Local`). Algorithms in λ work with \(E_q\) of the same function (`row_bounds`,
# `shared_log_joint`).


_REMARKED = 1000  # rows in which a fit counts idle units


@record
class Graph(GraphMessages):
    r"""Variables with conjugate factors, written as a program.

    The program is a function of `m` (`lamu.graphs.Program`), which is run once. Variables that all rows share have a
    belief of `lamu.families` as their prior, or a factor of `lamu.graphs` with other variables as its arguments;
    inside `with m.rows():` every row has its own. Variables named in the data are observed, the others are latent. NaN
    is a missing entry, if a factor can miss one, and −1 a missing label among whole numbers.

    Networks (`m.network`) have their weights next to the variables at `params["network"]`, by name, and the parameters
    of locals are at `params["network"]["local"]`. With networks, gradients train all of it, or `blocks` of it.

    Attributes:
        sites: the program; stored as its sites.
        local: how latents of a row without a closed form, or that meet in a factor, are eliminated: a mapping with a
            `lamu.graphs.Local` by the name of the latent, each of which leaves the rest to the next; None for
            `Coordinate()`, coordinate ascent.
        prior: prior of the networks' weights, below their names (`lamu.priors.ByPath({"decode/*": ...})`); stored as
            the density of all shared variables.
        expansion: `graphs.Rotation` for factor models, which `vmp` applies after every sweep; None for none.
        columns: the names of the inputs, in the program's order.
        networks: the networks of the program.
        constraints: the map from samplers' real numbers to the parameters.
        frozen: coordinates fixed at given values, or None.
        start: parameters that every run starts from, or None.
        given: statistics under a belief, by name, of fixed variables; `blocks` sets them.
        temperature: T, for the bound of rows with sampled latents; None for one. A fit sets it.
        fitted_rows: the number of rows to which a point was fitted; None otherwise. `em` sets it.

    Raises:
        TypeError: for a pair of variable and factor without a closed form.
        ValueError: for a name that is used twice, plates that do not fit, or a program without rows.

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

    predicts_missing = True

    sites: Any
    local: Any = None
    prior: Any = Normal(1.0)
    expansion: Any = None
    columns: tuple[str, ...] = static(default=())
    networks: tuple[NetworkSite, ...] = ()
    constraints: Any = None  # a `Constraints`
    frozen: Params | None = None
    start: Any = None
    given: Any = None
    temperature: Any = None
    fitted_rows: Any = None

    def __post_init__(self) -> None:
        if callable(self.sites):
            program = written(self.sites)
            object.__setattr__(self, "sites", program.sites)
            object.__setattr__(self, "columns", program.inputs)
            object.__setattr__(self, "networks", program.networks)
            if self.expansion is not None:
                self.expansion.require(program.sites)
        elif not isinstance(self.sites, tuple) or not all(isinstance(site, GraphSite) for site in self.sites):
            raise TypeError(
                f"the program is {self.sites!r}, which is not a function; give one that takes a model m and "
                "declares its variables with m.sample"
            )
        if self.constraints is None:
            object.__setattr__(self, "constraints", Constraints(supports(self.shared)))
        weights = self.prior.weights if isinstance(self.prior, GraphPrior) else self.prior
        names = tuple(network.name for network in self.networks)
        graph_prior = GraphPrior(
            self.shared, self.constraints or Constraints(), weights, names, self.frozen, self.given
        )
        object.__setattr__(self, "prior", graph_prior)
        supervised = {name for name, local in (self.local or {}).items() if local.supervised}
        sites: Any = self.sites
        object.__setattr__(self, "sites", tuple(replace(site, supervised=site.name in supervised) for site in sites))
        for name in self.local or {}:
            latents = [site.name for site in self.in_rows]
            if name not in latents:
                raise ValueError(f"local names {name!r}, which no row has; {nearest(name, latents)}")
        for site in self.in_rows:
            if isinstance(site.factor, LearnedPrior):
                site.factor.require((self.local or {}).get(site.name))

    @property
    def name(self) -> str:
        return "a graph"

    @property
    def identified(self) -> bool:
        """Whether no factor joins two variables, and rows have no latents with exchangeable categories."""
        inner = {site.name for site in self.in_rows} & frozenset().union(*(s.factor.names for s in self.in_rows))
        alike = any(site.factor.exchangeable for site in self.in_rows)
        return len(self.blocks) <= 1 and not (inner or alike or self.networks)

    def init(self, key: RandomKey, batch: Batch) -> tuple[Params, Any]:
        """Returns the shared variables at the mean of the first beliefs, as real numbers, and the state.

        Networks and locals have their own initial parameters, and dispersions those of their likelihoods. The state is
        empty, or the number of training steps if a local counts them.

        Raises:
            TypeError: if there is nothing to learn.
        """
        self.require_shared()
        params = first_parameters(self, key, batch)
        self.prior.check(params["network"])
        counts = any(local.counts for local in (self.local or {}).values())
        return self.started(params, {"step": jnp.zeros((), jnp.int32)} if counts else {})

    def prior_predictive(self, key: RandomKey, n: int, x: Any) -> dict[str, Any]:
        r"""Returns draws of all variables from their joint prior, one variable after the other.

        \[ \theta \sim p(\theta), \qquad z_i \sim p(z \mid \theta, x_i), \qquad y_i \sim p(y \mid z_i, \theta, x_i) \]

        Each draw has its own shared variables, weights of networks (from the graph's prior) and dispersions. Values of
        variables in x are not used.

        Args:
            key: a random key.
            n: the number of draws.
            x: the inputs of rows by name, `[N, ...]`; a number N of rows if they have no inputs.

        Returns:
            The draws by name, `[n, ...]` of variables that all rows share and `[n, N, ...]` of those of rows;
            categories are whole numbers.

        Raises:
            ValueError: for n below 1, inputs that are lacking, an improper prior, or draws that are not finite.
            TypeError: for documents, whose length is not a part of the model.
            NotImplementedError: for dispersions without a prior, or a prior of networks that cannot be simulated from.

        Examples:
            >>> import jax, jax.numpy as jnp, lamu
            >>> from lamu import graphs
            >>> from lamu.families import Gamma
            >>> def counts(m):
            ...     rate = m.sample("rate", Gamma(2.0, 1.0))
            ...     with m.rows():
            ...         m.sample("y", graphs.Poisson(rate * m.data("exposure")))
            >>> exposure = jnp.array([1.0, 2.0, 4.0])
            >>> draws = lamu.Graph(counts).prior_predictive(jax.random.key(0), 10, {"exposure": exposure})
            >>> draws["rate"].shape, draws["y"].shape
            ((10,), (10, 3))
        """
        return prior_draws(self, key, n, x)

    def tempered(self, temperature: Any) -> Graph:
        """Returns the graph with a temperature for sampled latents; itself if rows have closed forms, or at one."""
        is_one = isinstance(temperature, int | float) and temperature == 1.0
        return self if is_one or not self.draws_latents else replace(self, temperature=temperature)

    def conditioned(self, frozen: Params, dispersions: Params, beliefs: tuple[Any, ...] = ()) -> Graph:
        """Returns the graph with fixed coordinates, by their statistics under a belief where those are exact."""
        sites = tuple(fixed(site, dispersions) for site in self.sites)
        return replace(self, sites=sites, frozen=frozen, given=statistics_under(self.sites, beliefs))

    def dispersion_log_prior(self, dispersions: Params) -> Array:
        """Returns the sum of the log densities of the likelihoods' dispersions."""
        own = likelihoods_of(self.in_rows)
        return sum((own[name].log_prior(part) for name, part in dispersions.items()), jnp.zeros(()))

    def dispersion_information(self, dispersions: Params) -> Params:
        own = likelihoods_of(self.in_rows)
        return {name: own[name].dispersion_information(part) for name, part in dispersions.items()}

    def theta(self, params: Params) -> Params:
        """Returns the shared variables by name, from coordinates.

        Args:
            params: the free coordinates.
        """
        return self.constraints.constrain(self.complete(params["network"]))[0]

    def values_of(self, params: Params) -> dict[str, Any]:
        """Returns T(θ) by name with the other learned parameters: weights, those of locals, dispersions.

        Args:
            params: the free parameters, variables in their own space.
        """
        return {**self.values(self.complete(params["network"])), "likelihood": params["likelihood"]}

    def log_likelihood(
        self, params: Params, state: State, batch: Batch, key: RandomKey | None = None, train: bool = False
    ) -> tuple[Array, Any]:
        r"""Returns \(\log p(x_i \mid \theta)\) of every row, marginalised over its latents, `[batch]` in nats.

        If locals sample latents it is an estimate of their bound, by the key: at a temperature T times
        \(E_q[\log p(x_i, z)]/T + H(q)\), which an objective divides by T. In training it counts the step if a local
        warms up.

        Raises:
            TypeError: if latents of a row meet, so that only a bound is known.
        """
        first = jax.tree.map(lambda leaf: leaf[0], batch.y)
        require_summed(self.local or {}, Row.of(self.in_rows, self.columns, first, 1.0, float))
        step = state["step"] if train and state else None
        statistics = {**self.values(self.theta(params)), "likelihood": params["likelihood"]}
        T = 1.0 if self.temperature is None else self.temperature
        values = self.at_values().row_bounds(statistics, batch, T, key=key, step=step)
        values = values if self.temperature is None else values * jnp.asarray(T, values.dtype)
        return values, state if step is None else {"step": step + 1}

    def constrained(self, posterior: Any) -> Any:
        """Returns a posterior about real coordinates as one about θ; one about θ is returned unchanged."""
        belief = posterior.belief
        if isinstance(factor_of(belief, "network"), Product):
            return posterior  # from algorithms in λ
        return super().constrained(posterior)

    def under_prior(self, prior: Any) -> Graph:
        """Returns the graph with another prior of its variables.

        Args:
            prior: `lamu.priors.Belief` of a product by name, or the prior of a graph.
        """
        if isinstance(prior, GraphPrior):
            return self if prior is self.prior else replace(self, sites=(*prior.sites, *self.in_rows))
        beliefs = prior.belief.factors
        sites = (replace(s, factor=Known(beliefs[s.name])) if s.name in beliefs else s for s in self.sites)
        return replace(self, sites=tuple(sites))

    def fitted_to(self, rows: Any) -> Graph:
        return replace(self, fitted_rows=rows)

    def read(self, data: Data) -> Any:
        """Returns the data, arrays by name, as rows.

        Args:
            data: a mapping of arrays `[N, ...]` by the names of variables and inputs; NaN is a missing entry. Documents
                come as a pair `(ids, counts)`. `weight` and `mask` may be added. A `lamu.data.Stream` of
                batches, each `graph.read(part).full()`, comes back as it is: rows that do not fit in memory.

        Raises:
            TypeError: for data of another kind.
            ValueError: for a name that the program does not have, an input that is lacking, a value outside the support
                of its factor, NaN where none may be, or, where locals draw latents, a row of which nothing is observed.
        """
        return self._read(data, True)

    def _read(self, data: Data, learned: bool) -> Any:
        rows = read(data, self.in_rows, self.columns, learned)
        if isinstance(rows, Arrays) and self.draws_latents and (learned or not self.columns):
            require_observed(rows, self.in_rows)
        if isinstance(rows, Arrays):
            require_shapes(rows, self.shared, self.in_rows)
        return rows

    def rows(self, data: Data) -> Any:
        """Returns rows to query, of which only the inputs need be observed."""
        return self._read(data, False)

    def inputs(self, x: Inputs) -> Any:
        """Returns rows whose NaN entries are queried, checked; a number of new rows is returned as it is."""
        if isinstance(x, int) and not isinstance(x, bool):
            if x < 1:
                raise ValueError(f"{x!r} new rows cannot be predicted; ask for at least one")
            return x
        return self.rows(x)

    # Queries of a posterior.

    def completed(self, belief: Belief, rows: Any, samples: int, key: RandomKey) -> Any:
        """Returns means and variances of missing entries in rows; None if they have no closed forms."""
        if isinstance(rows, int) or needs_draws(self, belief):
            return None
        statistics = predictive_statistics(self, belief, samples, key)
        return completed(self, statistics, with_absent_missing(self, statistics, rows), key)

    def completed_by_draws(self, belief: Belief, rows: Any, samples: int, key: RandomKey) -> Any:
        """Returns every variable of rows by samples, also of new rows."""
        if isinstance(rows, int):
            return new_rows(self, belief, rows, samples, key)
        statistics = expected_statistics(self, belief, 1, jax.random.clone(key))  # for shapes
        return completed_by_draws(self, belief, with_absent_missing(self, statistics, rows), samples, key)

    def local_beliefs(self, belief: Belief, rows: Arrays, samples: int, key: RandomKey) -> dict[str, Any]:
        """Returns the beliefs about the latents of rows, by name, with a leading axis of rows."""
        return local_beliefs(self, belief, rows, samples, key)

    def table(self, observed: Any = None) -> str:
        """Returns a table of the variables: family, factors, whether conjugate, and method.

        A variable is conjugate if all its factors are affine in its statistics; then its message is exact. Otherwise
        `ncvmp` and `svi` use quadrature, or only gradients train it.

        Args:
            observed: the names of the data, or the data; where None, the variables of a row that no other depends on.

        Examples:
            >>> from lamu.graphs import models
            >>> print(models.LatentClass(3, (2,)).table())
            variable  of        family       factors     verdict    method
            weight    all rows  Dirichlet    weight, z   conjugate  exact message
            table0    all rows  Dirichlet    table0, y0  conjugate  exact message
            z         a row     Categorical  z, y0       conjugate  summed out
            y0        a row     Categorical  y0                     observed
        """
        return table(self, observed)

    @property
    def rows_for_warnings(self) -> int:
        """A thousand, if an encoder has the divergences of each unit of a latent; one, if categories may meet."""
        categories = [site for site in self.in_rows if issubclass(site.kind, Categories | States)]
        return (
            _REMARKED if any(local.per_unit_kl for local in (self.local or {}).values()) else int(len(categories) > 1)
        )

    def warnings(self, belief: Belief, temperature: Any = 1.0, rows: Batch | None = None) -> tuple[str, ...]:
        r"""Returns which components of a mixture hold less than one row, and how many units of a latent are idle.

        Also which categories of a row meet and have too many combinations for an exact sum, so that coordinate ascent
        finds a local optimum of them. A unit is idle that carries less than 0.01 nats a row, \(E_y\, KL(q(z_j \mid y)
        \,\|\, p(z_j))\).
        """
        empty = empty_components(self.sites, belief, temperature, self.fitted_rows)
        idle = idle_units(self, belief, rows) if rows is not None else {}
        in_turns = self._in_turns(rows) if rows is not None else ()
        return (
            *(
                (
                    f"the categories {', '.join(in_turns)} of a row at a local optimum of turns: they have more than "
                    f"{MOST_COMBINATIONS} combinations",
                )
                if in_turns
                else ()
            ),
            *(
                f"{len(which)} of the components of {name} empty ({', '.join(map(str, which))})"
                for name, which in empty.items()
            ),
            *(
                f"{count} of the {size} units of {name} idle (below {IDLE_BELOW:g} nats a row)"
                for name, (count, size) in idle.items()
            ),
        )

    def _in_turns(self, rows: Batch) -> list[str]:
        """Returns the categories of a row that coordinate ascent eliminates, if there are several."""
        row = Row.of(self.in_rows, self.columns, jax.tree.map(lambda leaf: leaf[0], rows.y), 1.0, float)
        names = [site.name for site in row.latent if issubclass(site.kind, Categories | States)]
        return names if len(names) > 1 and not self.draws_latents and not has_exact_sum({}, row) else []

    def unscaled_inputs(self, rows: Batch) -> str:
        """Returns a clause about columns far above one that an encoder reads; it reads counts as log(1 + count)."""
        if not self.draws_latents:
            return ""
        counts = {
            site.name
            for site in self.in_rows
            if isinstance(site.factor, Potential) and isinstance(site.factor.likelihood.support, Counts)
        }
        columns = rows.y if isinstance(rows.y, dict) else {}
        raw = {name: column for name, column in columns.items() if name not in counts}
        return unscaled(raw, "divide the columns by their standard deviations")

    def row_log_prob(self, belief: Belief, batch: Batch, samples: int, key: RandomKey) -> Array:
        """Returns the log density of every row, averaged over samples; a bound if latents meet."""
        return row_log_prob(self, belief, batch, samples, key)
