"""Step sizes of stochastic-gradient samplers, over the steps of a run."""

# A sampler that never rejects has a bias of the order of its step, and noise of the batches that a step amplifies:
# steps either stay small, or fall so slowly that the chain goes on for ever while both vanish, \(\sum_t \epsilon_t =
# \infty\), \(\sum_t \epsilon_t^2 < \infty\), or come and go in cycles: a large one finds another mode, the small ones
# that follow describe it. Wherever a stochastic-gradient sampler takes a step size, it takes a number, one of these, or
# any function of the step.

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from lamu.rate import Constant, Rate, Scheduled, rate
from lamu.record import record, static
from lamu.typing import Array, Number

__all__ = ["Cyclical", "Polynomial", "StepSize", "step_size"]


@record
class Polynomial:
    r"""A step size that falls as a power of time, for which the sums above hold where \(1/2 < \gamma \le 1\).

    \[ \epsilon_t = \epsilon_0\, (1 + t / b)^{-\gamma} \]

    which is \(a (b + t)^{-\gamma}\) with \(a = \epsilon_0 b^\gamma\).

    Attributes:
        start: \(\epsilon_0\), a row.
        offset: b, the number of steps after which it has fallen to \(2^{-\gamma}\) of its start.
        power: \(\gamma\).

    Raises:
        ValueError: for a power outside (1/2, 1], for which one of the sums does not hold.

    Source: Welling & Teh (2011), equations 2 and 4.

    Examples:
        >>> from lamu.mcmc import Polynomial
        >>> [round(float(Polynomial(0.1, offset=10.0, power=1.0)(t)), 4) for t in (0, 10, 90)]
        [0.1, 0.05, 0.01]
    """

    start: Number
    offset: Number = 1000.0
    power: Number = 0.55

    def __post_init__(self) -> None:
        _positive(self.start, "start")
        _positive(self.offset, "offset")
        if isinstance(self.power, int | float) and not 0.5 < self.power <= 1:
            raise ValueError(
                f"power={self.power!r}: the steps must sum to infinity and their squares must not; give a number above "
                "1/2 and up to 1"
            )

    def __call__(self, step: Any) -> Array:
        """Returns the step size at this step, the first being 0."""
        t = jnp.asarray(step, jnp.result_type(float))
        return self.start * (1.0 + t / self.offset) ** (-self.power)


@record
class Cyclical:
    r"""A step size that falls along half a cosine and starts again: M cycles of L steps.

    \[ \epsilon_t = \frac{\epsilon_0}{2} \Big(1 + \cos \frac{\pi\,(t \bmod L)}{L}\Big) \]

    The first share of a cycle is exploration: no draw is kept, and the noise is that of another temperature (zero: the
    chain descends, and what moves it to other modes is the length of its steps). The rest samples, with the noise of
    the target, and its draws are kept. Every cycle gives the same number of draws, so that
    \(L = (\text{draws}/M)\,\text{thinning} / (1 - \text{exploration})\), rounded up: the sampler works it out. A
    warm-up comes before the first cycle, explores, and is all at \(\epsilon_0\).

    Attributes:
        peak: \(\epsilon_0\), a row, at the start of every cycle.
        cycles: M; it must divide the number of draws.
        exploration: the share of a cycle that explores, in [0, 1).
        exploration_temperature: the temperature of exploration, as a multiple of the target's.
        period: L, which the sampler fills in.
        lead: the steps of the warm-up, which the sampler fills in.

    Raises:
        ValueError: for a peak that is not positive, no cycle, a share outside [0, 1), or a negative temperature.

    Source: Zhang, Li, Zhang, Chen & Wilson (2020), equation 1 and algorithm 1.

    Examples:
        >>> from lamu.mcmc import Cyclical
        >>> steps = Cyclical(0.1, exploration=0.5, period=4)
        >>> [round(float(steps(t)), 3) for t in range(5)], [bool(steps.exploring(t)) for t in range(5)]
        ([0.1, 0.085, 0.05, 0.015, 0.1], [True, True, False, False, True])
    """

    peak: Number
    cycles: int = static(default=4)
    exploration: float = static(default=0.8)
    exploration_temperature: Number = 0.0
    period: int | None = static(default=None)
    lead: int = static(default=0)

    def __post_init__(self) -> None:
        _positive(self.peak, "peak")
        if not isinstance(self.cycles, int) or self.cycles < 1:
            raise ValueError(f"cycles={self.cycles!r} is no number of cycles; give a whole number of at least 1")
        if not 0 <= self.exploration < 1:
            raise ValueError(f"exploration={self.exploration!r} is no share of a cycle; give a number in [0, 1)")
        if isinstance(self.exploration_temperature, int | float) and self.exploration_temperature < 0:
            raise ValueError(
                f"exploration_temperature={self.exploration_temperature!r} is no temperature; give zero to descend, or "
                "a positive number"
            )

    def over(self, draws: int, thinning: int, warmup: int) -> Cyclical:
        """Returns the schedule that leaves so many draws.

        Args:
            draws: how many draws are kept in all.
            thinning: how many steps each takes.
            warmup: how many steps come first.

        Raises:
            ValueError: where the cycles do not divide the draws.
        """
        if draws % self.cycles:
            raise ValueError(
                f"{draws} draws are not the same number in each of {self.cycles} cycles; ask for a multiple"
            )
        sampling = draws // self.cycles * thinning
        return replace(self, period=math.ceil(sampling / (1.0 - self.exploration) - 1e-9), lead=warmup)

    @property
    def explored(self) -> int:
        """How many steps of a cycle explore."""
        return math.ceil(self.exploration * self._length - 1e-9)

    def __call__(self, step: Any) -> Array:
        """Returns the step size at this step, the first being 0."""
        within = self._within(step).astype(jnp.result_type(float))
        return self.peak * 0.5 * (1.0 + jnp.cos(jnp.pi * within / self._length))

    def exploring(self, step: Any) -> Array:
        """Whether this step explores."""
        return self._within(step) < self.explored

    def _within(self, step: Any) -> Array:
        return jnp.maximum(jnp.asarray(step) - self.lead, 0) % self._length

    @property
    def _length(self) -> int:
        if self.period is None:
            raise ValueError("a cyclical step size has no length yet; pass it to a sampler, or give period=")
        return self.period


StepSize = Rate | Polynomial | Cyclical


def step_size(value: Any) -> StepSize:
    """Returns a number or a schedule as a step size."""
    if isinstance(value, Polynomial | Cyclical | Constant | Scheduled):
        return value
    return rate(value, "step_size")


def _positive(value: Any, name: str) -> None:
    if isinstance(value, int | float) and not value > 0:
        raise ValueError(f"{name}={value!r} is no step size of a sampler's schedule; give a positive number")
