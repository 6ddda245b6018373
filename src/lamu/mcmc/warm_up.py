"""The warm-up of a chain: step sizes by dual averaging and a diagonal mass matrix in Stan's windows, by BlackJAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.dtype_policy import lenient
from lamu.record import record
from lamu.typing import Array, Params

__all__ = ["Adaptation"]


@record
class Adaptation:
    """What one chain has learned of its step size and its mass matrix."""

    step_size: Any  # blackJAX's state of dual averaging
    mass: Any  # blackJAX's state of the variances

    @classmethod
    def begin(cls, dimension: int, target: float) -> Adaptation:
        """Returns a step size of one and unit variances."""
        with lenient():
            made = _averaging(target)[0](1.0), _variances()[0](dimension)
        return cls(*jax.tree.map(_typed, made))

    def size(self, warming: Any) -> Array:
        """Returns the step size: that of the moment in the warm-up, and the average over it thereafter."""
        return jnp.exp(jnp.where(warming, self.step_size.log_step_size, self.step_size.log_step_size_avg))

    def after(self, stage: Array, window_ends: Array, target: float, acceptance: Array, position: Params) -> Adaptation:
        """Returns what is known after one more transition of the warm-up."""
        step_init, step_update, step_final = _averaging(target)
        _, mass_update, mass_final = _variances()
        with lenient():
            adapted = step_update(self.step_size, acceptance)
            gathered = _where(stage == 1, mass_update(self.mass, position), self.mass)
            restarted = step_init(step_final(adapted))
            return Adaptation(
                _where(window_ends == 1, restarted, adapted), _where(window_ends == 1, mass_final(gathered), gathered)
            )


def schedule(warmup: int) -> Array:
    """Returns stage and end of window of every transition of the warm-up, `[warmup, 2]`."""
    from blackjax.adaptation.staged_adaptation import build_schedule

    with lenient():
        return jnp.asarray(build_schedule(warmup) if warmup else [[0, 0]], jnp.int32)


def _averaging(target: float) -> Any:
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return dual_averaging_adaptation(target)


def _variances() -> Any:
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation

    return mass_matrix_adaptation(is_diagonal_matrix=True)


def _where(condition: Any, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b).astype(jnp.result_type(b)), new, old)


def _typed(leaf: Any) -> Array:
    # Both branches of the adaptation must have the state's dtypes from the first step on, or a scan would refuse it;
    # and counts of fewer bits would make roots of fewer bits.
    leaf = jnp.asarray(leaf)
    return leaf.astype(jnp.result_type(float if jnp.issubdtype(leaf.dtype, jnp.floating) else int))
