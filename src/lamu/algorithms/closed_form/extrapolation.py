"""Squared extrapolation of the sweeps of an ascent (SQUAREM)."""

# Of two sweeps with steps r and r + v of the textbook parameters, logarithms of positive ones, and
# \(\alpha = |r|/|v|\), a trial at \(x_0 + 2 \alpha r + \alpha^2 v\). If its bound is lower, or it leaves the domain,
# the ascent goes on from the values after both sweeps. Another sweep that leaves the domain, or whose bound can only be
# a rounding error, ends the ascent at the last values whose bound is known.
#
# Source: Varadhan & Roland (2008), "Simple and globally convergent methods for accelerating the convergence of any EM
# algorithm", sections 3 and 5.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.record import record
from lamu.typing import Array, PyTree

__all__ = ["CALM", "Ascent", "Sweeps", "extrapolated"]

_FIRST, _SECOND, _TRIAL = 0, 1, 2  # sweeps; numbers below are of plain sweeps
_PLAIN = 6  # sweeps before the first extrapolation; not tuned
_PLAIN_AGAIN = 2  # sweeps after a rejected one
CALM = 3  # sweeps near the fixed point that end an ascent: more than the two between trials
_LONGER, _LONGEST = 4.0, 1024.0  # factor of the longest step, up after a trial that was kept, and down after another
_FORGOTTEN = 0.9  # of the slowest rate, after each trial
_QUIETER = 0.98  # of the rounding error, after each sweep
_ABSURD = 100.0  # rounding errors of the bound, at once: in single precision that of 108 quarters rose by 447,757 nats


@record
class Ascent:
    """What an ascent has learned of its sweeps."""

    earlier: PyTree  # values before the last sweep; of a trial those that replace it if it is rejected
    phase: Array  # which sweep of an extrapolation is next
    longest: Array  # step of an extrapolation, in steps of a sweep
    slowest: Array  # step of recent ones, without that limit
    calm: Array  # number of sweeps near the fixed point, without those from trials
    noise: Array  # rounding error of the bound in nats: its largest fall in recent sweeps, which cannot lower it

    @property
    def is_trial(self) -> Array:
        """Whether the next sweep is from a trial."""
        return self.phase == _TRIAL

    def swept(self, earlier: PyTree, is_end: Array, noise: Array) -> Ascent:
        """Returns the ascent after a sweep from `earlier`, which may be the last."""
        # On both sides of a trial: near a saddle the steps after one shrink at first.
        calm = jnp.where(self.is_trial, self.calm, jnp.where(is_end, self.calm + 1, 0))
        return replace(self, earlier=earlier, calm=calm, noise=noise)

    def noise_after(self, fell: Array) -> Array:
        """Returns the rounding error of what a sweep cannot lower."""
        # Those of a filter are far larger than those of one sum: they have the size of what it falls nevertheless.
        return jnp.maximum(_QUIETER * self.noise, jnp.where(self.is_trial, 0.0, fell)).astype(self.noise.dtype)

    def is_sane(self, rise: Array, rounding: Array) -> Array:
        """Whether the rise to a bound, or its fall, is no error of a bound with errors beyond those of one sum."""
        return (self.noise <= rounding) | (jnp.abs(rise) <= _ABSURD * self.noise)

    def before(self, last: Array, residual: Array, power: int = 1) -> Array:
        """Returns the last residual, or that of the slowest errors: residuals shrink by this power of theirs."""
        # After a trial fast errors are large beside the slow ones, and steps shrink faster than they will.
        slow = (1.0 - 1.0 / jnp.where(self.slowest > 1.0, self.slowest, 2.0)) ** power
        return jnp.where(self.slowest > 1.0, jnp.minimum(last, residual / slow), last)


@record
class Sweeps:
    """The progress of an ascent; its values are a field of the subclass."""

    residual: Array  # the size of the last sweep, in nats
    before: Array  # that of the sweep before
    settled: Array  # whether the bound has stopped rising
    ascent: Ascent  # of the values

    @classmethod
    def start(cls, values: PyTree, lowest: Array) -> Sweeps:
        """Returns that of values before the first sweep, with a bound of -∞ each."""
        whole, ones = jnp.zeros(lowest.shape, jnp.int32), jnp.ones_like(lowest)
        ascent = Ascent(values, whole - _PLAIN, _LONGER * ones, ones, whole, 0.0 * ones)
        return cls(-lowest, -lowest, jnp.zeros(lowest.shape, bool), ascent)


S = TypeVar("S", bound=Sweeps)


def extrapolated(
    field: str,
    state: S,
    swept: S,
    higher: Array,
    sane: Array,
    real: Callable[[PyTree], PyTree],
    back: Callable[[PyTree], PyTree],
) -> S:
    """Returns the state after a sweep, with a trial beyond two of them, or that before a rejected trial."""
    # The sweep of `field` led from `state` to `swept`; `higher` says whether it began no lower than the one before,
    # `sane` whether no rounding error made it, and `real` and `back` convert the field to coordinates and from them.
    past = state.ascent
    last, now = getattr(state, field), getattr(swept, field)
    x0, x1, x2 = real(past.earlier), real(last), real(now)
    r = tree.add(x1, x0, -1.0)
    v = tree.add(tree.add(x2, x1, -1.0), r, -1.0)
    bend = tree.dot(v, v)
    free = jnp.where(bend > 0, jnp.sqrt(tree.dot(r, r) / jnp.where(bend > 0, bend, 1.0)), 1.0)  # one for NaN
    free = jnp.clip(free, 1.0, _LONGEST).astype(past.longest.dtype)
    alpha = jnp.minimum(free, past.longest)
    beyond = (past.phase == _SECOND) & (alpha > 1.0) & ~swept.settled
    trial = back(tree.add(tree.add(x0, r, 2.0 * alpha), v, alpha**2))
    judged = past.is_trial
    # Of precisions that have lost their digits a bound may be anything: then the sweep from there leaves the domain.
    is_valid = sane & ~jnp.any(jnp.array([jnp.any(jnp.isnan(leaf)) for leaf in jax.tree.leaves(x2)]))
    # The step of the sweep from a trial and the one before it are not of one ascent, and have no ratio.
    ratio = state.before / jnp.where(state.residual > 0, state.residual, 1.0)
    ascent = replace(
        swept.ascent,
        earlier=jax.tree.map(lambda new, old: jnp.where(beyond, new, old), now, last),
        phase=jnp.where(beyond, _TRIAL, jnp.where(past.phase < _SECOND, past.phase + 1, _FIRST)),
        longest=jnp.where(judged, jnp.minimum(_LONGER * past.longest, _LONGEST), past.longest),
        slowest=jnp.where(past.phase == _SECOND, jnp.maximum(free, _FORGOTTEN * past.slowest), past.slowest),
    )
    on = replace(
        swept,
        before=jnp.where(judged, swept.residual * ratio, swept.before),
        settled=swept.settled & ~judged,
        ascent=ascent,
        **{field: jax.tree.map(lambda new, old: jnp.where(beyond, new, old), trial, now)},
    )
    again = replace(
        past, phase=jnp.full_like(past.phase, -_PLAIN_AGAIN), longest=jnp.maximum(past.longest / _LONGER, _LONGER)
    )
    ended = ~judged & ~is_valid & jnp.isfinite(state.before)
    undone = replace(state, ascent=again, settled=ended, **{field: past.earlier})
    fails = ended | (judged & ~(higher & is_valid))
    return jax.tree.map(lambda old, new: jnp.where(fails, old, new).astype(old.dtype), undone, on)
