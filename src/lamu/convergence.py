r"""Convergence diagnostics: the distance of a belief from the fixed point of the rule.

A belief at the fixed point satisfies \(\lambda^* = -\nabla_\mu E_q[\ell]\) (Khan & Rue 2021, equation 5). For a
Gaussian these are two equations, and the distance from each is measured over all rows:

\[ E_q[\nabla\ell] = 0: \quad \sqrt{E_q[\nabla\ell]^\top S^{-1} E_q[\nabla\ell]}, \qquad
   S = E_q[\nabla^2\ell]: \quad |\log S_{jj} - \log E_q[\nabla^2\ell]_{jj}| \]

A point has the first equation alone. Chains are judged by their split R-hat and effective sample size.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from lamu.record import measured, record, static

__all__ = [
    "FARTHEST_MEAN",
    "FARTHEST_SHAPE",
    "FEWEST_WEIGHTS",
    "LARGEST_ERROR",
    "LARGEST_R_HAT",
    "LARGEST_SHAPE",
    "NARROWEST",
    "Convergence",
    "Overfit",
    "RowLogProb",
    "Unconverged",
    "Underfit",
    "UnreliableWeights",
    "WorseThanMean",
    "averaged_weights",
    "is_sound",
    "pareto_shape",
    "sound_average",
]

FARTHEST_MEAN = 0.25  # of a posterior standard deviation, root mean square over coordinates
_FARTHEST_OUTPUTS = 0.5  # an interval of 90 % about a centre that is so far away covers 86.6 %
_PRECISION, _PRECISION_90 = 0.2, 0.5  # 0.2 in log S is ten per cent of a standard deviation
LARGEST_R_HAT, _ESS = 1.1, 50.0
LARGEST_SHAPE, LARGEST_ERROR = 0.7, 0.5  # nats; above it weights do not show the error of their mean
_FEWEST_IN_TAIL = 20
FEWEST_WEIGHTS = 5 * _FEWEST_IN_TAIL  # for an estimate of the shape: the tail is at most a fifth of the weights
FARTHEST_SHAPE = 0.25  # nats of KL(q ‖ p): that of a standard deviation of 0.55 instead of one
NARROWEST = 0.87  # of a deviation; of scales of eight groups linear response has .87 where .80 is right


class Overfit(UserWarning):
    """Warns of noise, or classes, learned from rows that the network can pass through, with figures and a remedy."""


class Unconverged(UserWarning):
    """Warns of a belief that is not at the fixed point of the rule, or not the posterior, with figures and a remedy."""


class Underfit(UserWarning):
    """Warns of a network that predicts its training rows hardly better than a constant, with figures and a remedy."""


class WorseThanMean(UserWarning):
    """Warns of a belief that predicts held-out rows worse than the point at its mean, with figures and a remedy."""


@record
class Convergence:
    r"""Distances of a belief from the fixed point of the rule. Attributes that do not apply to a belief are None.

    Attributes:
        residual: \(\sqrt{g^\top S^{-1} g}\) with g the expected gradient of ℓ/T over all rows. Half its square is the
            decrease of the loss, in nats, that a Newton step would still bring. For a point S is the precision that
            Laplace's method would give it, for up to 512 weights of a model that is linear in them, or of a density
            (the square of their number times the rows at most 2e9). Of more weights and of other networks it is the
            diagonal, which says too little where columns are correlated. NaN if only rounding errors are left.
        squared_error: the standard error of the squared residual, where it was estimated from draws; two of them are
            subtracted before the residual is judged.
        dimension: the number of coordinates of the residual.
        precision_error: the median over coordinates of \(|\log (S / E_q[\nabla^2\ell])|\); 0.2 is ten per cent of a
            standard deviation.
        precision_error_90: its 90 % quantile.
        r_hat: the largest split R-hat of the chains.
        ess: the smallest effective sample size of the quantities whose R-hat was taken.
        shift: for pretrained weights that are kept: the distance of the outputs at the rows from those at the mode, in
            their posterior standard deviations, root mean square. It replaces the residual, since the rows may carry no
            information about most coordinates.
        divergence: a lower bound of KL(q ‖ p) in nats, by importance weights of draws from the belief, where a Gaussian
            approximates variables that are not conjugate.
        pareto_k: k of the generalised Pareto distribution of the largest of these weights; above 0.7 they do not
            correct the belief.
        share: the smallest deviation as a share of that by these weights, two standard errors added; of independent
            beliefs by exact messages as a share of that by linear response (Giordano, Broderick & Jordan, 2018), or, if
            that is no small one, of a graph with up to 64 rows by the weights.
        misshapen: the variables whose moments the weights change most, or whose share is small, beyond the limit.
        settled: whether the algorithm has stopped by itself, so that further steps change nothing.
        remedy: the advice where it is not converged, as the end of a sentence; empty for the general advice.

    Examples:
        >>> from lamu.convergence import Convergence
        >>> Convergence(residual=0.01, dimension=4).converged
        True
        >>> print(Convergence(residual=3.0, dimension=4).complaint)
        the mean is 1.50 posterior standard deviations from the fixed point (root mean square; 0.25 is the limit)
    """

    residual: float | None = measured(default=None)
    squared_error: float = measured(default=0.0)
    dimension: int = static(default=1)
    precision_error: float | None = measured(default=None)
    precision_error_90: float | None = measured(default=None)
    r_hat: float | None = measured(default=None)
    ess: float | None = measured(default=None)
    shift: float | None = measured(default=None)
    divergence: float | None = measured(default=None, added=True)
    pareto_k: float | None = measured(default=None, added=True)
    share: float | None = measured(default=None, added=True)
    misshapen: str = static(default="", added=True)
    settled: bool = static(default=False, added=True)
    remedy: str = static(default="")

    def __repr__(self) -> str:
        """One line: whether it is converged, the figures that apply, and what is beyond its limit."""
        words = [f"converged={self.converged}"]
        words += [f"{name}={value:.4g}" for name, value in self.describe().items() if name != "converged"]
        return f"Convergence({', '.join([*words, *self.complaints])})"

    @property
    def offset(self) -> float | None:
        """The residual per coordinate (root mean square): the distance of the mean in posterior standard deviations."""
        return None if self.residual is None else float(self.residual) / math.sqrt(max(self.dimension, 1))

    @property
    def _certain_offset(self) -> float | None:
        """The offset less two standard errors."""
        if self.residual is None:
            return None
        squared = float(self.residual) ** 2
        excess = squared - 2 * float(self.squared_error)
        return excess if math.isnan(excess) else math.sqrt(max(excess, 0.0) / max(self.dimension, 1))

    @property
    def converged(self) -> bool:
        """Whether all distances are within their limits."""
        return not self.complaints

    @property
    def complaints(self) -> tuple[str, ...]:
        """The distances beyond their limits, each with its figure."""
        reasons = []
        if self.shift is not None:
            if _exceeded(self.shift, _FARTHEST_OUTPUTS):
                reasons.append(
                    f"the outputs at the rows are {self.shift:.2f} posterior standard deviations from those at the "
                    f"mode (root mean square; {_FARTHEST_OUTPUTS} is the limit)"
                )
        elif self.residual is not None and math.isnan(self.residual):
            reasons.append("rounding errors hide how far the mean is from the fixed point")
        elif _exceeded(self._certain_offset, FARTHEST_MEAN):
            reasons.append(
                f"the mean is {self.offset:.2f} posterior standard deviations from the fixed point (root mean square; "
                f"{FARTHEST_MEAN} is the limit)"
            )
        if _exceeded(self.precision_error, _PRECISION):
            reasons.append(
                f"precisions are off by a median factor of {math.exp(min(self.precision_error or 0.0, 700.0)):.2f} "
                f"({math.exp(_PRECISION):.2f} is the limit)"
            )
        elif _exceeded(self.precision_error_90, _PRECISION_90):
            reasons.append(
                f"a tenth of the precisions is off by a factor of "
                f"{math.exp(min(self.precision_error_90 or 0.0, 700.0)):.2f} or more ({math.exp(_PRECISION_90):.2f} is "
                "the limit)"
            )
        if _exceeded(self.r_hat, LARGEST_R_HAT):
            reasons.append(f"the chains did not mix (R-hat {self.r_hat:.2f}; {LARGEST_R_HAT} is the limit)")
        if self.ess is not None and not self.ess >= _ESS:
            reasons.append(f"the chains hold {self.ess:.0f} effective draws ({_ESS:.0f} is the limit)")
        where = f", most of all in {self.misshapen}" if self.misshapen else ""
        if _exceeded(self.divergence, FARTHEST_SHAPE):
            who = "the belief is not the posterior" if reasons else "a Gaussian is the wrong shape for this posterior"
            k = (
                ""
                if self.pareto_k is None
                else f", with a Pareto k of {self.pareto_k:.2f} ({LARGEST_SHAPE} is the limit)"
            )
            reasons.append(
                f"{who}{where}: by the importance weights of its own draws KL(q || p) is at least "
                f"{self.divergence:.2f} nats ({FARTHEST_SHAPE} is the limit){k}"
            )
        elif self.is_narrow:
            way = "linear response" if self.pareto_k is None else "the importance weights of its own draws"
            reasons.append(
                f"the belief is too narrow{where}: a standard deviation is {self.share:.2f} of that by {way} "
                f"({NARROWEST} is the limit)"
            )
        return tuple(reasons)

    @property
    def has_shape(self) -> bool:
        """Whether the belief's family can be close to the posterior, as far as measured."""
        return not (_exceeded(self.divergence, FARTHEST_SHAPE) or self.is_narrow)

    @property
    def is_narrow(self) -> bool:
        """Whether a standard deviation is too small, as far as measured."""
        return self.share is not None and self.share < NARROWEST

    @property
    def at_fixed_point(self) -> bool:
        """Whether a longer run would not help: only the distance due to the belief's family may exceed its limit."""
        return len(self.complaints) == (not self.has_shape)

    @property
    def complaint(self) -> str:
        """All complaints in one line, without the remedy; empty where there is none."""
        return "; ".join(self.complaints)

    def describe(self) -> dict[str, float | int | bool]:
        """Returns the figures that apply, by name, and whether it is converged, as values for JSON."""
        named = {
            "residual": self.residual,
            "offset": self.offset,
            "shift": self.shift,
            "precision_error": self.precision_error,
            "precision_error_90": self.precision_error_90,
            "r_hat": self.r_hat,
            "ess": self.ess,
            "divergence": self.divergence,
            "pareto_k": self.pareto_k,
            "share": self.share,
        }
        known = {name: float(v) for name, v in named.items() if v is not None and not math.isnan(v)}
        return {"converged": self.converged, **known}


def _exceeded(value: float | None, limit: float) -> bool:
    return value is not None and not value <= limit  # NaN is beyond every limit


def pareto_shape(weights: np.ndarray) -> float:
    """Returns k of the generalised Pareto distribution of the largest weights, by the estimator of Zhang & Stephens."""
    # Source: Zhang & Stephens (2009); Vehtari, Simpson, Gelman, Yao & Gabry (2024), section 3 and appendix C.
    count = len(weights)
    tail = int(min(0.2 * count, 3 * math.sqrt(count)))
    if tail < _FEWEST_IN_TAIL:
        return math.nan  # too few weights for a shape; only the error is known
    ordered = np.sort(weights)
    excess = ordered[-tail:] - ordered[-tail - 1]
    if not excess[-1] > 1e-10 * ordered[-1]:
        return -math.inf
    excess = np.maximum(excess, 1e-300)
    points = 30 + int(math.sqrt(tail))
    quarter = excess[int(tail / 4 + 0.5) - 1]
    b = 1 - np.sqrt(points / (np.arange(1, points + 1) - 0.5))
    b = b / (3 * quarter) + 1 / excess[-1]
    with np.errstate(all="ignore"):
        k = np.log1p(-b[:, None] * excess).mean(axis=1)
        profile = tail * (np.log(-b / k) - k - 1)
    profile = np.where(np.isfinite(profile), profile, -np.inf)
    chance = np.exp(profile - profile.max())
    slope = float(np.sum(b * chance) / np.sum(chance))
    shape = float(np.log1p(-slope * excess).mean())
    return (tail * shape + 10 * 0.5) / (tail + 10)  # a weak prior, as in Vehtari et al. (2024)


@record
class RowLogProb:
    """The log density of every row, with the error of importance sampling.

    Attributes:
        value: nats, `[N]`.
        error: the standard error of each in nats, `[N]`, from the spread of its weights; zero where nothing is drawn,
            and infinite where the weights are unreliable.
        shape: k of the generalised Pareto distribution of the largest weights, `[N]`: above 0.7 samples of this size do
            not show the error of their mean. NaN where nothing is drawn, and for fewer than 100 samples.

    Examples:
        >>> import numpy as np
        >>> from lamu.scores import RowLogProb
        >>> RowLogProb(np.array([-1.0]), np.array([0.1])).error.tolist()
        [0.1]
    """

    value: np.ndarray
    error: np.ndarray
    shape: Any = None

    @property
    def unreliable(self) -> np.ndarray:
        """Whether the weights of each row are unreliable, `[N]`."""
        return (self.error > LARGEST_ERROR) | (self.shape > LARGEST_SHAPE) | ~np.isfinite(self.value)


class UnreliableWeights(UserWarning):
    """Warns of rows whose log density is unreliable, or of draws without a density, with their number and a remedy."""


def is_sound(log_densities: Any) -> bool:
    """Whether no log density is NaN or ∞; true for traced values, which are unknown."""
    if isinstance(log_densities, Tracer):
        return True
    values = np.asarray(log_densities)
    return not bool(np.any(np.isnan(values) | np.isposinf(values)))


def sound_average(average: Any, by_draw: Callable[[], Any], log_weights: Any = None, y: Any = 0.0) -> Any:
    """Returns the log of an average of densities, with zero for draws whose density is NaN or ∞.

    Args:
        average: the result of a compiled program, `[N]`.
        by_draw: returns the averaged log densities, `[S, N]`; called only where the average is NaN or ∞.
        log_weights: of the draws, `[S]`, normalised; equal where None.
        y: the values of the targets: NaN has no density under any draw, which is no fault of the draws.
    """
    # A compiled program cannot warn, so its result is checked here; the second average is rare, and not compiled.
    if is_sound(average):
        return average
    unknown = np.isnan(np.asarray(y, float))
    unknown = unknown.reshape(*unknown.shape[:1], -1).any(axis=-1)
    log_densities = counted_out(np.asarray(by_draw()), unknown)
    each = -math.log(len(log_densities)) if log_weights is None else np.asarray(log_weights)[:, None]
    with np.errstate(invalid="ignore"):  # NaN where no draw has a density
        averages = np.logaddexp.reduce(log_densities + each, axis=0)
    return jax.device_put(averages.astype(log_densities.dtype))


def counted_out(log_densities: np.ndarray, unknown: Any = False) -> np.ndarray:
    """Replaces NaN and ∞ in log densities `[S, N]` by −∞, with a warning; NaN where all are or `unknown`."""
    # With zero densities the average of importance weights stays a lower bound; that of the others alone is not one.
    unsound = (np.isnan(log_densities) | (log_densities == np.inf)) & ~np.asarray(unknown)
    if not unsound.any():
        return log_densities
    draws, rows = unsound.any(axis=1), unsound.any(axis=0)
    lost = unsound.all(axis=0)
    hidden = f", and {lost.sum()} have no other and stay NaN" if lost.any() else ""
    warnings.warn(
        f"{draws.sum()} of {len(draws)} draws have a density that is NaN or infinite at {rows.sum()} of {len(rows)} "
        f"rows{hidden}: they count as a density of zero, so that these rows' log p is more likely too low; look for "
        "draws that are not finite in posterior.sample(key, n), or compute in float64 "
        '(jax.config.update("jax_enable_x64", True) before the fit)',
        UnreliableWeights,
        stacklevel=4,
    )
    return np.where(lost, np.nan, np.where(unsound, -np.inf, log_densities))


def averaged_weights(log_weights: np.ndarray) -> RowLogProb:
    """Returns the log of the mean weight of every row of `[S, N]`, its error, and the shape of the largest weights."""
    log_weights = counted_out(log_weights)
    most = log_weights.max(axis=0)
    weights = np.exp(log_weights - most)
    count, mean = len(weights), weights.mean(axis=0)
    if count == 1:
        return RowLogProb(most, np.zeros(len(mean)), np.full(len(mean), np.nan))
    error = weights.std(axis=0, ddof=1) / mean / math.sqrt(count)
    return RowLogProb(most + np.log(mean), error, np.array([pareto_shape(each) for each in weights.T]))
