"""What a posterior of a graph knows of rows: their latents, their density, and what is missing in them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.data.arrays import Arrays
from lamu.dtype_policy import lenient
from lamu.families import Point, Product
from lamu.graphs import Graph
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, in_dtype, value_of
from lamu.graphs.statistics import Categories
from lamu.predictives.interface import Predictive, Prepared
from lamu.predictives.rule import PredictiveRule
from lamu.record import record
from lamu.supports import Support
from lamu.typing import Array, RandomKey

__all__ = ["Completed", "GraphRule", "local_beliefs", "row_log_prob"]

_ASK = "ask for mean, variance and std, or for posterior.local(rows)"


@record
class Completed(Predictive):
    r"""Rows with their missing entries filled in.

    Attributes:
        means: by name what is observed, and \(E[x \mid \text{row}]\) where NaN was; the array alone where there is one.
            Of a category the probabilities.
        variances: likewise Var[x | row], zero where observed.

    Examples:
        >>> from lamu.predictives.graph import Completed
        >>> float(Completed(means=1.0, variances=4.0).std)
        2.0
    """

    means: Any
    variances: Any

    @property
    def mean(self) -> Any:
        """The rows, with expectations where NaN was."""
        return self.means

    @property
    def variance(self) -> Any:
        """The variances, zero where observed."""
        return self.variances

    @property
    def std(self) -> Any:
        """The standard deviations."""
        return jax.tree.map(jnp.sqrt, self.variance)

    @property
    def support(self) -> Support:
        """Raises a TypeError: the variables of a row have supports of their own."""
        raise TypeError(f"rows of a graph have no one support; {_ASK}")

    @property
    def aleatoric(self) -> Array:
        """Raises a TypeError: the parts of the uncertainty are not told apart."""
        raise TypeError(f"the uncertainty of what is missing comes in one part, `variance`; {_ASK}")

    @property
    def epistemic(self) -> Array:
        """Raises a TypeError: the parts of the uncertainty are not told apart."""
        raise TypeError(f"the uncertainty of what is missing comes in one part, `variance`; {_ASK}")

    def log_prob(self, y: Any) -> Array:
        """Raises a TypeError: the posterior knows the density of rows."""
        raise TypeError(f"the density of rows is posterior.log_prob(rows); {_ASK}")

    def cdf(self, y: Any) -> Array:
        """Raises a TypeError: a row has several variables."""
        raise TypeError(f"rows of a graph have no distribution function; {_ASK}")

    def sample(self, key: RandomKey, n: int, first: Any = 0) -> Array:
        """Raises a TypeError: moments alone are known."""
        raise TypeError(f"what is missing is known by its moments alone; {_ASK}")


@record
class GraphRule(PredictiveRule):
    """The rule of a `lamu.Graph`: missing entries are predicted from the rest of their row.

    The shared variables enter by their expected statistics, so that nothing is drawn for a belief with closed forms.

    Examples:
        >>> from lamu.predictives.graph import GraphRule
        >>> GraphRule()
        GraphRule()
    """

    def prepare(self, model: Any, belief: Any, network_state: Any, samples: int, key: RandomKey) -> Prepared:
        """Raises a TypeError: a graph predicts what is missing in rows, by `predict`."""
        raise TypeError("a graph predicts what is missing in rows; ask posterior.predict(rows) with NaN for it")

    def predict(
        self, model: Any, belief: Any, network_state: Any, x: Any, samples: int, key: RandomKey, offset: Any = None
    ) -> Any:
        """Returns the rows with what was missing in them.

        Args:
            model: the graph.
            belief: about the shared variables.
            network_state: empty.
            x: the rows, as `Graph.inputs` returns them.
            samples: draws of a belief without closed forms.
            key: for those.
            offset: none.

        Raises:
            ValueError: for an offset.
        """
        if offset is not None:
            raise ValueError("a graph has no linear predictor that an offset could be added to")
        return _completed(model, expected_statistics(model, belief, samples, key), x)


def local_beliefs(model: Graph, belief: Any, rows: Arrays, samples: int, key: RandomKey) -> dict[str, Any]:
    """Returns the beliefs about the latents of rows, by name, with a leading axis of rows.

    Args:
        model: the graph.
        belief: about the shared variables.
        rows: the rows.
        samples: draws of a belief without closed forms.
        key: for those.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> from lamu import graphs
        >>> from lamu.predictives.graph import local_beliefs
        >>> def levels(m):
        ...     with m.rows():
        ...         x = m.sample("x", graphs.Normal(0.0, precision=1.0))
        ...         m.sample("y", graphs.Normal(x, precision=3.0))
        >>> graph = lamu.Graph(levels)
        >>> nothing = lamu.families.Product({"network": lamu.families.Product({})})
        >>> found = local_beliefs(graph, nothing, graph.read({"y": jnp.array([4.0])}), 1, jax.random.key(0))
        >>> found["x"].mean.tolist()
        [3.0]
    """
    natural = _latents(model, expected_statistics(model, belief, samples, key), rows.y)
    return {name: part.belief() for name, part in natural.items()}


def row_log_prob(model: Graph, belief: Any, rows: Arrays, samples: int, key: RandomKey) -> Array:
    r"""Returns \(\log \tfrac1S \sum_s p(\text{row} \mid \theta_s)\) of every row in nats, `[N]`.

    Where latents of a row meet, each density is its best bound.

    Args:
        model: the graph.
        belief: about the shared variables.
        rows: the rows.
        samples: S.
        key: for the draws.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> from lamu import graphs
        >>> from lamu.predictives.graph import row_log_prob
        >>> def fixed(m):
        ...     with m.rows():
        ...         m.sample("y", graphs.Normal(0.0, precision=1.0))
        >>> graph = lamu.Graph(fixed)
        >>> nothing = lamu.families.Point({"network": {}, "likelihood": {}})
        >>> round(float(row_log_prob(graph, nothing, graph.read({"y": jnp.zeros(1)}), 1, jax.random.key(0))[0]), 4)
        -0.9189
    """
    theta = _draws(model, belief, samples, key)
    count = max((leaf.shape[0] for leaf in jax.tree.leaves(theta)), default=1)
    at = lambda i: jax.tree.map(lambda leaf: leaf[i], theta)
    one = jax.jit(lambda i: model.row_bounds(model.values(at(i)), rows.full()))
    return jax.nn.logsumexp(jax.lax.map(one, jnp.arange(count)), axis=0) - jnp.log(float(count))


def expected_statistics(model: Graph, belief: Any, samples: int, key: RandomKey) -> dict[str, Any]:
    """Returns E_q[T] of the shared variables by name: known, or averaged over draws.

    Args:
        model: the graph.
        belief: about the shared variables.
        samples: draws, where they are needed.
        key: for those.

    Examples:
        >>> from lamu.predictives.graph import expected_statistics
        >>> expected_statistics.__name__
        'expected_statistics'
    """
    network = belief.factors["network"] if isinstance(belief, Product) else None
    if isinstance(network, Product):
        return model.moments(network.factors)
    if isinstance(belief, Point):
        return model.values(belief.mean["network"])
    values = jax.vmap(model.values)(_draws(model, belief, samples, key))
    return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), values)


def _draws(model: Graph, belief: Any, samples: int, key: RandomKey) -> Any:
    return belief.draws(key, samples)["network"]


@jax.jit
def _latents(model: Graph, statistics: Any, y: Any) -> dict[str, Any]:
    return model.row_latents(statistics, y)


@jax.jit
def _completed(model: Graph, statistics: Any, rows: Arrays) -> Completed:
    """Returns the rows, their missing entries at mean and variance given the others."""
    at, dtype = Environment(statistics), dtype_of(statistics)
    sites = in_dtype(model.in_rows, dtype)

    def one(data: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        row = Row.of(sites, model.columns, data, 1.0, dtype)
        natural = model.elimination(row).eliminated(row, at)[1]
        beliefs = {name: part.belief() for name, part in natural.items()}
        moments: dict[str, Any] = {site.name: site.kind.under(beliefs[site.name]) for site in row.latent}
        means, variances = {}, {}
        for site in sites:
            value, observed = value_of(data, site.name)
            if value is None or isinstance(value, tuple):
                continue
            if observed is None:
                means[site.name], variances[site.name] = value, jnp.zeros(jnp.shape(value), dtype)
            elif site.name in beliefs:
                p = moments[site.name].probabilities
                means[site.name], variances[site.name] = p, p * (1.0 - p)
            else:
                mean, variance = _mixed(site, row, at, moments)
                means[site.name] = jnp.where(observed, value.astype(mean.dtype), mean)
                variances[site.name] = jnp.where(observed, jnp.zeros_like(variance), variance)
        return means, variances

    with lenient():
        means, variances = jax.vmap(one)(rows.y)
    alone = len(means) == 1
    return Completed(*(next(iter(part.values())) if alone else part for part in (means, variances)))


def _mixed(site: Any, row: Row, at: Environment, moments: dict[str, Any]) -> tuple[Array, Array]:
    """Returns mean and variance of a site, averaged over the category that it depends on, where it does."""
    shape = site.shape if site.kind is not Categories else None
    spread = lambda part: part if shape is None else jnp.broadcast_to(part, shape)
    category = next((n for n, m in moments.items() if isinstance(m, Categories) and n in site.factor.names), None)
    if category is None:
        mean, variance = site.factor.predicted(row.environment(at, moments))
        return spread(mean), spread(variance)
    p = moments[category].probabilities

    def given(one_hot: Array) -> tuple[Array, Array]:
        mean, variance = site.factor.predicted(row.environment(at, {**moments, category: Categories(one_hot)}))
        return spread(mean), spread(variance)

    means, variances = jax.vmap(given)(jnp.eye(p.shape[-1], dtype=p.dtype))
    mean = jnp.tensordot(p, means, 1)
    return mean, jnp.tensordot(p, variances + means**2, 1) - mean**2
