"""Stochastic variational inference: the rule on minibatches of a conjugate model, with a rate that falls."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.algorithms.closed_form import exponential
from lamu.data.batch import Batch
from lamu.families import Point, Product
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives.conjugate import ConjugateRule
from lamu.protocol import Choices, Info, Runnable, Traits
from lamu.rate import Rate, rate
from lamu.record import record
from lamu.typing import RandomKey

__all__ = ["Stochastic", "StochasticState", "svi"]


@record
class StochasticState:
    """What the next step needs.

    Attributes:
        count: steps taken.
        belief: q.
        network_state: the network's state.

    Examples:
        >>> from lamu.algorithms.closed_form.svi import StochasticState
        >>> StochasticState(count=0, belief=None, network_state={}).count
        0
    """

    count: Any
    belief: Any
    network_state: Any


@record
class Stochastic(Runnable):
    """The algorithm that `svi` makes.

    Attributes:
        learning_rate: ρ.

    Examples:
        >>> from lamu.algorithms.closed_form.svi import svi
        >>> svi().choices.expectation
        'Exact'
    """

    learning_rate: Rate

    @property
    def traits(self) -> Traits:
        """Minibatches of a conjugate model."""
        return Traits()

    @property
    def choices(self) -> Choices:
        """The row of the table."""
        return Choices("any conjugate family", "Exact", "none needed", departures=("minibatch",))

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> StochasticState:
        """Returns the prior as a belief, tempered as the objective says."""
        if not exponential.is_exponential(objective):
            raise TypeError(
                f"svi() needs a lamu.ConjugateModel, and not {objective.model.name}; use ivon() or conjugate()"
            )
        _, network_state = objective.model.init(key, batch)
        return StochasticState(
            jnp.zeros((), jnp.int32), exponential.first(objective, batch.weight.dtype)[0], network_state
        )

    def step(
        self, key: RandomKey, state: StochasticState, batch: Batch, objective: Objective
    ) -> tuple[StochasticState, Info]:
        """Returns the state after one step of the rule on a batch that stands for all rows."""
        prior = exponential.first(objective, batch.weight.dtype)[0].to_natural()
        step = self.learning_rate(state.count)
        belief, loss = exponential.move(state.belief, prior, batch, objective, step, objective.data_size)
        return StochasticState(state.count + 1, belief, state.network_state), Info(loss=loss)

    def posterior(
        self, key: RandomKey, state: StochasticState, objective: Objective, data: Any, trace: Any
    ) -> Posterior:
        """Returns the belief as a posterior."""
        belief = Product({"network": state.belief, "likelihood": Point({})})
        return Posterior(
            objective.model, belief, state.network_state, ConjugateRule(), key, temperature=objective.temperature
        )


def svi(learning_rate: Any = lambda step: 1.0 / (1.0 + step)) -> Stochastic:
    r"""Stochastic variational inference on a conjugate model.

    \[ \lambda \leftarrow (1 - \rho_t)\,\lambda
       + \rho_t \Big( \lambda_0 + \frac{N}{B} \sum_{i \in B} w_i t(y_i) \Big) \]

    (at T = 1): the rule, its expectation exact for a minibatch that stands for all N rows. With \(\rho_t = 1/(1 + t)\),
    the default, λ is the average of what the batches say, and after every epoch of equal batches the posterior itself.
    One gradient in μ a step.

    Departures from the rule: none but the minibatch.

    Args:
        learning_rate: ρ, a number, a schedule of steps, or `Annealed`; at most one, so that λ stays in the domain.

    Returns:
        The algorithm.

    Raises:
        TypeError: (when it runs) for a model that is no `lamu.ConjugateModel`.

    Source: Hoffman, Blei, Wang & Paisley (2013), equation 26; Khan & Rue (2021), section 5.3.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.closed_form.svi import svi
        >>> model = lamu.ConjugateModel(lamu.observations.Bernoulli(), lamu.families.Beta(1.0, 1.0))
        >>> posterior = lamu.fit(model, {"y": [1, 1, 0, 1]}, svi(), epochs=2, batch_size=2).posterior
        >>> round(float(posterior.mean["network"]), 4)
        0.6667
    """
    return Stochastic(rate(learning_rate))
