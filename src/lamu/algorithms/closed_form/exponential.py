"""Conjugate Bayes in an exponential family: the rule with ρ = 1, and the evidence."""

# The expectation of the loss is linear in μ, its gradient is \(-\sum_i w_i t(y_i) / T\), and a step of rate one gives
# \(\lambda_0 + \sum_i w_i t(y_i) / T\), the posterior.

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.conjugacy import ConjugateModel
from lamu.data.batch import Batch
from lamu.expectations import Analytic
from lamu.natural_rule import NaturalRule, NaturalState, Streamed
from lamu.objective import Objective
from lamu.priors.belief import tempered
from lamu.rate import Constant
from lamu.typing import Array, RandomKey

__all__ = ["first", "following", "is_exponential", "weighed"]

_RULE = NaturalRule(Streamed(), Analytic(), Constant(1.0))
_NOTHING = {"network": {}, "likelihood": {}}


def first(objective: Objective, dtype: Any) -> tuple[Any, Array]:
    """Returns the prior to the power 1/T as a belief, and the log of its integral in nats."""
    prior: Any = objective.model.prior
    belief = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), prior.belief)
    cold = tempered(belief, 1 / objective.temperature)
    evidence = cold.log_partition() - belief.log_partition() / objective.temperature
    # The base measure counts 1/T times in p^{1/T}.
    return cold, evidence + (1 / objective.temperature - 1) * belief.expected_log_base_measure()


def following(key: RandomKey, old: Any, evidence: Any, batch: Batch, objective: Objective) -> tuple[Any, Any, Any]:
    """Returns belief, evidence and mean loss after the batch's rows; the old belief is the prior."""
    alone = replace(objective, data_size=jnp.maximum(batch.count, 1))
    state, info = _RULE.step(key, NaturalState(0, old, {}, _NOTHING, {}), batch, alone)
    nothing = tree.zeros_like(old.to_natural())
    factor = objective.likelihood_power / objective.temperature
    observation: Any = objective.model.observation
    base = factor * batch.total(observation.log_likelihood(nothing, batch.y))
    return state.belief, evidence + base + state.belief.log_partition() - old.log_partition(), info.loss


def weighed(belief: Any, prior: Any, share: Any) -> Any:
    r"""Returns the belief whose rows count c times, \(\lambda_0 + c\,(\lambda - \lambda_0)\)."""
    before = prior.to_natural()
    return belief.with_natural(tree.add(before, tree.add(belief.to_natural(), before, -1.0), share))


def is_exponential(objective: Objective) -> bool:
    """Returns whether the model is an observation with a belief of its own family as the prior."""
    return isinstance(objective.model, ConjugateModel)
