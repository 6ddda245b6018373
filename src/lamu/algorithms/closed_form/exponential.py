r"""The rule on a conjugate model in an exponential family: the gradient of an expectation that is linear in μ.

\[ E_q[\ell](\mu) = -\tfrac1T \sum_i w_i \big( \langle t(y_i), \mu \rangle + \log h(y_i) \big)
   - \langle \lambda_0, \mu \rangle, \qquad
   \lambda \leftarrow \lambda - \rho\,\big( \nabla_\mu E_q[\ell] + \lambda \big) \]

The gradient is taken by automatic differentiation. With ρ = 1 it gives \(\lambda_0 + \sum_i w_i t(y_i) / T\), the
posterior.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.conjugacy import ConjugateModel
from lamu.data.batch import Batch
from lamu.objective import Objective
from lamu.rule import natural_step
from lamu.typing import Array, Number

__all__ = ["first", "following", "is_exponential", "move", "weighed"]


def first(objective: Objective, dtype: Any) -> tuple[Any, Array]:
    r"""Returns the prior to the power 1/T as a belief, and the log of its integral in nats.

    Args:
        objective: the loss.
        dtype: of the belief.
    """
    prior: Any = objective.model.prior
    belief = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), prior.belief)
    natural = belief.natural()
    cold = replace(natural, values=tree.scale(natural.values, 1 / objective.temperature))
    evidence = cold.log_partition() - natural.log_partition() / objective.temperature
    # The base measure counts 1/T times in p^{1/T}.
    return cold.family(), evidence + (1 / objective.temperature - 1) * belief.expected_log_base_measure()


def following(old: Any, evidence: Any, batch: Batch, objective: Objective) -> tuple[Any, Any, Any]:
    """Returns belief, evidence and mean loss after the batch's rows; the old belief is the prior.

    Args:
        old: the belief before.
        evidence: the log evidence before, in nats.
        batch: the rows.
        objective: the loss.
    """
    natural = old.natural()
    new, loss = move(old, natural.values, batch, objective, rate=1.0, rows=batch.count)
    nothing = tree.zeros_like(natural.values)
    factor = objective.likelihood_power / objective.temperature
    observation: Any = objective.model.observation
    base = factor * batch.total(observation.log_likelihood(nothing, batch.y))
    return new, evidence + base + new.log_partition() - natural.log_partition(), loss


def move(
    belief: Any, prior: Any, batch: Batch, objective: Objective, rate: Number | Array, rows: Any
) -> tuple[Any, Array]:
    r"""Returns the belief after one step of the rule, and the loss \(-E_q[\log p(y \mid \theta)]\) in nats a row.

    Args:
        belief: q.
        prior: \(\lambda_0\), natural parameters.
        batch: the rows that the step sees.
        objective: the loss, for temperature and power.
        rate: ρ.
        rows: how many rows the batch stands for: its own, or N.
    """
    observation: Any = objective.model.observation
    count = jnp.maximum(batch.count, 1)
    each = objective.likelihood_power * rows / count

    def expected_loss(mu: Any) -> tuple[Array, Array]:
        """E_q[ℓ] as a function of μ."""
        data = -each * batch.total(observation.log_likelihood(mu, batch.y))
        return data / objective.temperature - tree.dot(prior, mu), data

    gradient, data = jax.grad(expected_loss, has_aux=True)(belief.expectation().values)
    return natural_step(belief.natural(), gradient, rate).family(), data / jnp.maximum(rows, 1)


def weighed(belief: Any, prior: Any, share: Any) -> Any:
    r"""Returns the belief whose rows count c times, \(\lambda_0 + c\,(\lambda - \lambda_0)\).

    Args:
        belief: q after the rows.
        prior: the belief before them.
        share: c.
    """
    before = prior.to_natural()
    return belief.with_natural(tree.add(before, tree.add(belief.to_natural(), before, -1.0), share))


def is_exponential(objective: Objective) -> bool:
    """Returns whether the model is an observation with a belief of its own family as the prior."""
    return isinstance(objective.model, ConjugateModel)
