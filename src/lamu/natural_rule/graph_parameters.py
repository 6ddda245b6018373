"""The shared variables of a graph as what a belief is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.families import Product
from lamu.families.exponential import values_of
from lamu.graphs import Graph
from lamu.natural_rule.conjugate_parameters import ConjugateParameters
from lamu.natural_rule.subject import Subject
from lamu.objective import Objective
from lamu.predictives import PredictiveRule
from lamu.predictives.conjugate import ConjugateRule
from lamu.predictives.graph import GraphRule
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["AnyConjugate", "GraphLoss", "GraphParameters"]


@record
class GraphLoss:
    r"""\(E_q[\bar\ell]\) of a graph on a batch, as a function of μ, with the latents of its rows at their best.

    \[ \bar\ell = -\frac TB \sum_{i \in B} \max_{q(z_i)}
       \Big( \tfrac1T E_q[\log p(x_i, z_i \mid \theta)] + H(q(z_i)) \Big) - \frac1N E_q[\log p(\theta)] \]

    By the envelope theorem its gradient is that of \(E_q[\log p]\) at these q(z): \(-\kappa\nabla_\mu\bar\ell\) is λ of
    the best belief about a variable for given others. The temperature divides log p and not the entropy of z.

    Attributes:
        objective: what fixes the scale.
        batch: the rows.
        network_state: empty.
        rest: the rest of the parameters, none.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu import graphs
        >>> from lamu.natural_rule import GraphLoss
        >>> def coin(m):
        ...     p = m.sample("p", lamu.families.Beta(1.0, 1.0))
        ...     with m.rows():
        ...         m.sample("y", graphs.Bernoulli(p))
        >>> graph = lamu.Graph(coin)
        >>> batch = graph.read({"y": jnp.array([1.0, 0.0])}).full()
        >>> loss = GraphLoss(lamu.objective.Objective(graph, 2), batch, {}, {})
        >>> round(float(loss.value({"p": lamu.families.Beta(1.0, 1.0).expectation()}, {}, None)[0]), 6)
        1.0
    """

    objective: Objective
    batch: Batch
    network_state: Any
    rest: Params

    def value(self, mu: Mapping[str, Any], rest: Params, key: RandomKey | None) -> tuple[Array, Any]:
        """Returns the expected mean loss in nats a row, and the state."""
        graph: Any = self.objective.model
        values = values_of(dict(mu))
        statistics = {site.name: site.kind(*jax.tree.leaves(values[site.name])) for site in graph.shared}
        return self.at(statistics), self.network_state

    def at(self, statistics: Mapping[str, Any]) -> Array:
        """Returns the mean loss at statistics of the shared variables by name: at T(θ) or at μ.

        Args:
            statistics: by name.
        """
        graph: Any = self.objective.model
        T, power = self.objective.temperature, self.objective.likelihood_power
        rows = self.batch.total(graph.row_bounds(statistics, self.batch, T / power))
        shared = graph.shared_log_joint(statistics)
        count = jnp.maximum(self.batch.count, 1).astype(rows.dtype)
        return -T * rows / count - (shared / self.objective.data_size).astype(rows.dtype)


@record
class GraphParameters(Subject):
    """The shared variables of a `lamu.Graph`, each with a belief of its own.

    Raises:
        TypeError: (where the state is made) for another model.

    Examples:
        >>> from lamu.natural_rule import GraphParameters
        >>> GraphParameters().family
        'product of conjugate families'
    """

    family = "product of conjugate families"

    @property
    def predictive(self) -> PredictiveRule:
        """That of graphs."""
        return GraphRule()

    def start(self, key: RandomKey, objective: Objective, batch: Batch) -> tuple[Any, Params, Any]:
        """Returns beliefs after one update from random latents."""
        graph = required(objective.model)
        beliefs = jax.jit(graph.first_beliefs)(key, batch, jnp.asarray(objective.temperature, batch.weight.dtype))
        return Product(beliefs), {"network": {}, "likelihood": {}}, {}

    def prior(self, objective: Objective, belief: Any) -> Any:
        """Returns zero: the priors are factors of the graph, and in the loss."""
        return tree.zeros_like(belief.to_natural())

    def loss(self, objective: Objective, batch: Batch, network_state: Any, rest: Params) -> GraphLoss:
        """Returns the expected mean loss on a batch, a function of μ."""
        return GraphLoss(objective, batch, network_state, rest)

    def residual(self, belief: Any, direction: Any) -> Array:
        r"""Returns the natural norm of the step, \(\sqrt{d^\top F d}\) in nats."""
        return jnp.sqrt(jnp.maximum(tree.dot(direction, belief.fisher_product(direction)), 0.0))


@record
class AnyConjugate(Subject):
    """What is conjugate in a target: the parameters of a `lamu.ConjugateModel`, or the shared variables of a graph.

    Raises:
        TypeError: (where the state is made) for another model.

    Examples:
        >>> from lamu.natural_rule import AnyConjugate
        >>> AnyConjugate().family
        'any conjugate family'
    """

    family = "any conjugate family"

    @property
    def predictive(self) -> PredictiveRule:
        """That of a conjugate model; a posterior of a graph has its own."""
        return ConjugateRule()

    def start(self, key: RandomKey, objective: Objective, batch: Batch) -> tuple[Any, Params, Any]:
        """Returns the first belief, and nothing beside it."""
        return _subject(objective.model).start(key, objective, batch)

    def prior(self, objective: Objective, belief: Any) -> Any:
        """Returns λ₀/T, which is zero where the prior is in the loss."""
        return _subject(objective.model).prior(objective, belief)

    def loss(self, objective: Objective, batch: Batch, network_state: Any, rest: Params) -> Any:
        """Returns the expected mean loss on a batch, a function of μ."""
        return _subject(objective.model).loss(objective, batch, network_state, rest)

    def residual(self, belief: Any, direction: Any) -> Any:
        """Returns the natural norm of the step."""
        return (GraphParameters() if isinstance(belief, Product) else ConjugateParameters()).residual(belief, direction)


def required(model: Any) -> Graph:
    """Returns the model, if it is a graph.

    Args:
        model: any target.

    Raises:
        TypeError: if it is none.

    Examples:
        >>> from lamu.natural_rule.graph_parameters import required
        >>> required(None)
        Traceback (most recent call last):
            ...
        TypeError: exact messages need a lamu.Graph, and not NoneType; use ivon() or nuts()
    """
    if not isinstance(model, Graph):
        raise TypeError(f"exact messages need a lamu.Graph, and not {type(model).__name__}; use ivon() or nuts()")
    return model


def _subject(model: Any) -> Any:
    return GraphParameters() if isinstance(model, Graph) else ConjugateParameters()
