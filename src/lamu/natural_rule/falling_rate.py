"""The rate of stochastic variational inference where none is given: it depends on how many parts the belief has."""

from __future__ import annotations

from typing import Any

from lamu.conjugacy import ConjugateModel
from lamu.conjugate_target import MessageTarget
from lamu.rate import PolynomialAverage, PolynomialDecay, Rate
from lamu.record import record
from lamu.typing import Number

__all__ = ["FallingRate", "rate_for"]

_POWER = 4.0  # the memory is the last quarter of the run; see FallingRate
_BATCHES = 2.0  # further batches that the start counts for: a first step of one would leave a quadrature's reach


@record
class FallingRate:
    r"""\(\rho_t = 1/(\tau + t)\) for one conjugate belief, \(4/(t + 6 + \tau)\) for parts that see each other."""

    # A conjugate belief whose parts do not meet is the average of what the batches say, each counting alike. The parts
    # of a graph see each other's last beliefs: what a batch said while the others were far off must be forgotten, and
    # under \(1/t\) the share of the start falls only as \(t^{-a}\), with \(a < 1\) the slowest contraction of
    # coordinate ascent. Here it falls as \(t^{-4a}\). On a Poisson regression of 1,500 rows in two parts (intercept,
    # and slopes) the mean was 4.2 posterior standard deviations off after 23,040 steps of \(1/t\), and is 0.05 off
    # after 1,536.

    delay: Number = 1.0  # τ, how many batches the start counts for

    def of(self, model: Any) -> Rate:
        """Returns the rate for a target."""
        if isinstance(model, ConjugateModel) or (isinstance(model, MessageTarget) and model.rows_add_up):
            return PolynomialDecay(1.0, self.delay)
        return PolynomialAverage(_POWER, _BATCHES + self.delay)


def rate_for(learning_rate: Rate | FallingRate, model: Any) -> Rate:
    """Returns the rate of an algorithm on a target: its own, or the one that suits the target."""
    return learning_rate.of(model) if isinstance(learning_rate, FallingRate) else learning_rate
