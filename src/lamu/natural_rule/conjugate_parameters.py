"""The parameters of a conjugate model as what a belief is about."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.conjugacy import ConjugateModel
from lamu.data.batch import Batch
from lamu.families.exponential import values_of
from lamu.natural_rule.subject import Subject
from lamu.objective import Objective
from lamu.predictives import PredictiveRule
from lamu.predictives.conjugate import ConjugateRule
from lamu.priors.belief import tempered
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["ConjugateLoss", "ConjugateParameters", "Streamed"]


@record
class ConjugateLoss:
    r"""\(E_q[\bar\ell]\) of a conjugate model on a batch, a linear function of μ.

    Attributes:
        objective: what fixes the scale.
        batch: the rows.
        network_state: the model's state, empty.
        rest: the rest of the parameters, none.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.natural_rule import ConjugateLoss
        >>> model = lamu.ConjugateModel(lamu.observations.Bernoulli(), lamu.families.Beta(1.0, 1.0))
        >>> batch = lamu.data.Batch.of(jnp.zeros((4, 0)), jnp.array([1.0, 1.0, 1.0, 0.0]))
        >>> loss = ConjugateLoss(lamu.objective.Objective(model, 4), batch, {}, {})
        >>> round(float(loss.value(lamu.families.Beta(1.0, 1.0).expectation(), {}, None)[0]), 6)
        1.0
    """

    objective: Objective
    batch: Batch
    network_state: Any
    rest: Params

    def value(self, mu: Any, rest: Params, key: RandomKey | None) -> tuple[Array, Any]:
        """Returns the expected mean loss in nats a row, and the model's state."""
        observation: Any = self.objective.model.observation
        total = self.batch.total(observation.log_likelihood(values_of(mu), self.batch.y))
        count = jnp.maximum(self.batch.count, 1).astype(total.dtype)
        return -self.objective.likelihood_power * total / count, self.network_state


@record
class ConjugateParameters(Subject):
    """θ of a `lamu.ConjugateModel`, with a belief of the prior's family.

    Raises:
        TypeError: (where the state is made) for another model.

    Examples:
        >>> from lamu.natural_rule import ConjugateParameters
        >>> ConjugateParameters().family
        'any conjugate family'
    """

    family = "any conjugate family"

    @property
    def predictive(self) -> PredictiveRule:
        """The closed form."""
        return ConjugateRule()

    def start(self, key: RandomKey, objective: Objective, batch: Batch) -> tuple[Any, Params, Any]:
        """Returns the prior as a belief, tempered as the objective says."""
        if not isinstance(objective.model, ConjugateModel):
            raise TypeError(
                f"a conjugate belief needs a lamu.ConjugateModel, and not {objective.model.name}; use ivon() or "
                "conjugate()"
            )
        prior: Any = objective.model.prior
        belief = jax.tree.map(lambda leaf: jnp.asarray(leaf, batch.weight.dtype), prior.belief)
        return (
            tempered(belief, 1 / objective.temperature),
            {"network": {}, "likelihood": {}},
            objective.model.init(key, batch)[1],
        )

    def prior(self, objective: Objective, belief: Any) -> Any:
        """Returns λ₀/T."""
        prior: Any = objective.model.prior
        values = jax.tree.map(
            lambda value, leaf: value.astype(leaf.dtype), prior.belief.to_natural(), belief.to_natural()
        )
        return tree.scale(values, 1 / objective.temperature)

    def loss(self, objective: Objective, batch: Batch, network_state: Any, rest: Params) -> ConjugateLoss:
        """Returns the expected mean loss on a batch, a function of μ."""
        return ConjugateLoss(objective, batch, network_state, rest)

    def residual(self, belief: Any, direction: Any) -> float:
        """Returns zero: a gradient that is exact leaves nothing to be known of a belief that a step of one settles."""
        return 0.0


@record
class Streamed(ConjugateParameters):
    """The same, one batch after the other: the posterior of the rows before is the prior of the next.

    Examples:
        >>> from lamu.families import Beta
        >>> from lamu.natural_rule.conjugate_parameters import Streamed
        >>> [float(value) for value in Streamed().prior(None, Beta(2.0, 3.0))]
        [1.0, 2.0]
    """

    def prior(self, objective: Any, belief: Any) -> Any:
        """Returns the natural parameters of the belief."""
        return belief.to_natural()
