r"""How far a belief is from the fixed point of the rule, as a value.

A belief that the rule no longer moves satisfies \(\lambda^* = -\nabla_\mu E_q[\ell]\) (Khan & Rue 2021, equation 5).
For a Gaussian these are two equations, and the distances from both are measured over all rows:

\[ E_q[\nabla\ell] = 0: \quad \sqrt{E_q[\nabla\ell]^\top S^{-1} E_q[\nabla\ell]}, \qquad
   S = E_q[\nabla^2\ell]: \quad |\log S_{jj} - \log E_q[\nabla^2\ell]_{jj}| \]

A point has the first one alone. Draws are judged by the split R-hat and the effective sample size of their chains.
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
    "Convergence",
    "RowLogProb",
    "Unconverged",
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
LARGEST_SHAPE, LARGEST_ERROR = 0.7, 0.5  # nats; of weights whose mean has an error that they show
_FEWEST_IN_TAIL = 20
FEWEST_WEIGHTS = 5 * _FEWEST_IN_TAIL  # that show a shape: the tail is at most a fifth of all
FARTHEST_SHAPE = 0.25  # nats of KL(q ‖ p): what a standard deviation of 0.55 in the place of one has


class Unconverged(UserWarning):
    """A belief that is not the fixed point of the rule, or not the posterior: what is off, by how much, what to do."""


class WorseThanMean(UserWarning):
    """A belief that predicts the rows set aside worse than the point at its mean: by how much, what to do."""


@record
class Convergence:
    r"""How far a belief is from the fixed point of the rule. What does not apply to a belief is None.

    Attributes:
        residual: \(\sqrt{g^\top S^{-1} g}\) with g the expected gradient of ℓ/T over all rows; for a point S is the
            diagonal of the precision that Laplace's method would give it. Half its square is the loss, in nats, that a
            Newton step would still gain.
        squared_error: the standard error of the squared residual, where it was estimated from draws; of the residual
            counts what two of them do not explain.
        dimension: the number of coordinates that the residual is a norm over.
        precision_error: the median over coordinates of \(|\log (S / E_q[\nabla^2\ell])|\); 0.2 is ten per cent of a
            standard deviation.
        precision_error_90: its 90 % quantile.
        r_hat: the largest split R-hat of the chains.
        ess: the smallest effective sample size of what the R-hat is of.
        shift: of weights that arrived trained and stay: how far the outputs at the rows are from those at the mode, in
            their posterior standard deviations, root mean square. It stands for the residual, since the rows may say
            nothing about most coordinates.
        divergence: the least that KL(q ‖ p) can be in nats, by importance weights of draws from the belief, where a
            Gaussian stands for variables that are not conjugate.
        pareto_k: k of the generalised Pareto distribution of the largest of these weights; above 0.7 they do not
            correct the belief.
        misshapen: the variables whose moments the weights change most, where the divergence is beyond its limit.
        settled: whether the algorithm has stopped by itself, so that further steps change nothing.
        remedy: what to do where it is not converged, as the end of a sentence; empty for the general advice.

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
    misshapen: str = static(default="", added=True)
    settled: bool = static(default=False, added=True)
    remedy: str = static(default="")

    @property
    def offset(self) -> float | None:
        """The residual per coordinate (root mean square): the distance of the mean in posterior standard deviations."""
        return None if self.residual is None else float(self.residual) / math.sqrt(max(self.dimension, 1))

    @property
    def _certain_offset(self) -> float | None:
        """The offset less what two standard errors explain."""
        if self.residual is None:
            return None
        squared = float(self.residual) ** 2
        left = squared - 2 * float(self.squared_error)
        return left if math.isnan(left) else math.sqrt(max(left, 0.0) / max(self.dimension, 1))

    @property
    def converged(self) -> bool:
        """Whether no distance is beyond its limit."""
        return not self.complaints

    @property
    def complaints(self) -> tuple[str, ...]:
        """What is beyond its limit, each with its figure."""
        found = []
        if self.shift is not None:
            if _beyond(self.shift, _FARTHEST_OUTPUTS):
                found.append(
                    f"the outputs at the rows are {self.shift:.2f} posterior standard deviations from those at the "
                    f"mode (root mean square; {_FARTHEST_OUTPUTS} is the limit)"
                )
        elif _beyond(self._certain_offset, FARTHEST_MEAN):
            found.append(
                f"the mean is {self.offset:.2f} posterior standard deviations from the fixed point (root mean square; "
                f"{FARTHEST_MEAN} is the limit)"
            )
        if _beyond(self.precision_error, _PRECISION):
            found.append(
                f"precisions are off by a median factor of {math.exp(min(self.precision_error or 0.0, 700.0)):.2f} "
                f"({math.exp(_PRECISION):.2f} is the limit)"
            )
        elif _beyond(self.precision_error_90, _PRECISION_90):
            found.append(
                f"a tenth of the precisions is off by a factor of "
                f"{math.exp(min(self.precision_error_90 or 0.0, 700.0)):.2f} or more ({math.exp(_PRECISION_90):.2f} is "
                "the limit)"
            )
        if _beyond(self.r_hat, LARGEST_R_HAT):
            found.append(f"the chains did not mix (R-hat {self.r_hat:.2f}; {LARGEST_R_HAT} is the limit)")
        if self.ess is not None and not self.ess >= _ESS:
            found.append(f"the chains hold {self.ess:.0f} effective draws ({_ESS:.0f} is the limit)")
        if not self.has_shape:
            who = "the belief is not the posterior" if found else "a Gaussian is the wrong shape for this posterior"
            where = f", most of all in {self.misshapen}" if self.misshapen else ""
            k = (
                ""
                if self.pareto_k is None
                else f", with a Pareto k of {self.pareto_k:.2f} ({LARGEST_SHAPE} is the limit)"
            )
            found.append(
                f"{who}{where}: by the importance weights of its own draws KL(q || p) is at least "
                f"{self.divergence:.2f} nats ({FARTHEST_SHAPE} is the limit){k}"
            )
        return tuple(found)

    @property
    def has_shape(self) -> bool:
        """Whether the belief's family can be close to the posterior, as far as that was measured."""
        return not _beyond(self.divergence, FARTHEST_SHAPE)

    @property
    def at_fixed_point(self) -> bool:
        """Whether a longer run is of no use: no distance is beyond its limit but that of the belief's family."""
        return len(self.complaints) == (not self.has_shape)

    @property
    def complaint(self) -> str:
        """All complaints in one line, without the remedy; empty where there is none."""
        return "; ".join(self.complaints)

    def describe(self) -> dict[str, float | int | bool]:
        """Returns the figures that apply by name, and the verdict, as JSON holds them."""
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
        }
        return {"converged": self.converged, **{name: float(v) for name, v in named.items() if v is not None}}


def _beyond(value: float | None, limit: float) -> bool:
    return value is not None and not value <= limit  # NaN is beyond every limit


def pareto_shape(weights: np.ndarray) -> float:
    """Returns k of the generalised Pareto distribution of the largest weights, by the estimator of Zhang & Stephens."""
    # Source: Zhang & Stephens (2009); Vehtari, Simpson, Gelman, Yao & Gabry (2024), section 3 and appendix C.
    count = len(weights)
    tail = int(min(0.2 * count, 3 * math.sqrt(count)))
    if tail < _FEWEST_IN_TAIL:
        return math.nan  # too few for a shape; the error is all there is
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
    """The log density of every row, and how far importance sampling leaves it open.

    Attributes:
        value: nats, `[N]`.
        error: the standard error of each in nats, `[N]`, by the spread of its weights; zero where nothing is drawn, and
            infinite where the weights do not tell.
        shape: k of the generalised Pareto distribution of the largest weights, `[N]`: above 0.7 their mean has no error
            that samples of this size show. NaN where nothing is drawn, and of fewer than 100 samples.

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
        """Of which rows the weights do not tell the density."""
        return (self.error > LARGEST_ERROR) | (self.shape > LARGEST_SHAPE) | ~np.isfinite(self.value)


class UnreliableWeights(UserWarning):
    """Rows whose weights leave their log density open, or draws without a density: how many, and what to do."""


def is_sound(log_densities: Any) -> bool:
    """Whether no log density is NaN or ∞; true of what is traced, whose numbers nobody knows."""
    if isinstance(log_densities, Tracer):
        return True
    found = np.asarray(log_densities)
    return not bool(np.any(np.isnan(found) | np.isposinf(found)))


def sound_average(average: Any, by_draw: Callable[[], Any], log_weights: Any = None) -> Any:
    """Returns the log of an average of densities; where a draw made it no number, with that draw's density as zero.

    Args:
        average: what a program found, `[N]`.
        by_draw: returns the log densities that it averaged, `[S, N]`; asked only where the average is no number.
        log_weights: of the draws, `[S]`, normalised; equal where None.
    """
    # A program cannot warn, so that its answer is looked at here; a second average is rare, and not a program.
    if is_sound(average):
        return average
    log_densities = counted_out(np.asarray(by_draw()))
    each = -math.log(len(log_densities)) if log_weights is None else np.asarray(log_weights)[:, None]
    with np.errstate(invalid="ignore"):  # NaN where no draw has a density
        found = np.logaddexp.reduce(log_densities + each, axis=0)
    return jax.device_put(found.astype(log_densities.dtype))


def counted_out(log_densities: np.ndarray) -> np.ndarray:
    """Returns log densities `[S, N]` with −∞ where one is NaN or ∞, which a warning counts; NaN where all are."""
    # As zero they leave the average of importance weights a lower bound, which the average of the others is not.
    unsound = np.isnan(log_densities) | (log_densities == np.inf)
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
