r"""The bound of the log evidence of a belief in λ, \(\mathcal L = E_q[\log p(\theta, D)]/T + H(q)\)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.data.arrays import Arrays
from lamu.expectations import Analytic
from lamu.natural_rule.subject import Subject
from lamu.objective import Objective
from lamu.typing import Array, RandomKey

__all__ = ["evidence_bound"]

_DRAWS = 256
_ROWS = 4096  # at once


def evidence_bound(
    subject: Subject, expectation: Any, key: RandomKey, belief: Any, rest: Any, objective: Objective, rows: Arrays
) -> Array:
    """Returns the bound of the log evidence over all rows in nats: exact in μ, else an average over draws."""
    batches = rows.batches(min(rows.count, _ROWS))
    if isinstance(expectation, Analytic):
        losses = sum(_expected(subject, belief, rest, objective, batch) * batch.count for batch in batches)
        entropy = belief.entropy()
    else:
        # At the same draws: log p and log q vary together, and by far more than their difference.
        theta = belief.draws(key, _DRAWS)
        losses = sum(_at_draws(subject, theta, rest, objective, batch) * batch.count for batch in batches)
        entropy = -_log_density(belief, theta)
    prior = subject.expected_log_prior(objective, belief) / objective.temperature
    return prior + jnp.mean(entropy - objective.concentration * losses / rows.count)


@jax.jit
def _expected(subject: Any, belief: Any, rest: Any, objective: Objective, batch: Any) -> Array:
    return subject.loss(objective, batch, {}, rest).value(belief.expectation(), rest, None)[0]


@jax.jit
def _at_draws(subject: Any, theta: Any, rest: Any, objective: Objective, batch: Any) -> Array:
    loss = subject.loss(objective, batch, {}, rest)
    return jax.lax.map(lambda draw: loss.value(draw, rest, None)[0], theta)


@jax.jit
def _log_density(belief: Any, theta: Any) -> Array:
    return jax.lax.map(belief.log_prob, theta)
