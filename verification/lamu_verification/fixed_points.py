"""Gaussian fixed points of the rule for a linear predictor, in NumPy: the limits of variational algorithms."""

# For rows \(f_i = x_i^\top \theta\) and a prior \(N(0, \delta^{-1} I)\) the fixed point of the rule is
#
# \[ \sum_i E_q[\ell_i'(f_i)]\, x_i + \delta m = 0, \qquad S = \sum_i E_q[\ell_i''(f_i)]\, x_i x_i^\top + \delta I, \]
#
# with only the diagonal of S for mean field. Under q each \(f_i\) is normal in one dimension, so that both
# expectations are sums over Gauss–Hermite nodes. This module does not use the library.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = [
    "FixedPoint",
    "bernoulli",
    "gaussian",
    "gaussian_fixed_point",
    "hessian",
    "mode",
    "product_of_signs",
    "squared_gradient",
]

# Slope and curvature of one row's negative log likelihood in f, at nodes f `[N, Q]` and targets `[N, 1]`.
Loss = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
# The substitute for a row's curvature, from its slope and its curvature.
StandIn = Callable[[np.ndarray, np.ndarray], np.ndarray]

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(48)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True)
class FixedPoint:
    """A Gaussian that is a fixed point of the rule."""

    mean: np.ndarray  # m `[D]`
    covariance: np.ndarray  # S⁻¹ `[D, D]`, diagonal for mean field
    bound: float  # the evidence bound in nats, a lower bound of the log evidence

    @property
    def sd(self) -> np.ndarray:
        """The standard deviations `[D]`."""
        return np.sqrt(np.diagonal(self.covariance))


def gaussian(scale: float) -> Loss:
    """Returns value, slope and curvature of a normal row with known noise."""

    def loss(f: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        residual = (f - y) / scale
        return residual**2 / 2 + np.log(scale) + np.log(2 * np.pi) / 2, residual / scale, np.full_like(f, scale**-2)

    return loss


def bernoulli(f: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns value, slope and curvature of a row of logistic regression with targets zero and one."""
    p = 1 / (1 + np.exp(-f))
    return np.logaddexp(0.0, f) - y * f, p - y, p * (1 - p)


def hessian(slope: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """Returns the curvature of the rows: the rule itself."""
    return curvature


def squared_gradient(slope: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """Returns the squared slopes (empirical Fisher), which replace the curvature in `vogn`, `ogn` and `slang`."""
    return slope**2


def expected(
    loss: Loss, design: np.ndarray, y: np.ndarray, mean: np.ndarray, covariance: np.ndarray, stand_in: StandIn = hessian
) -> list[np.ndarray]:
    """Returns expected value, slope, curvature and its substitute, by row `[N]`, under N(mean, covariance)."""
    spread = np.sqrt(np.einsum("ij,jk,ik->i", design, covariance, design))
    f = (design @ mean)[:, None] + spread[:, None] * _NODES
    value, slope, curvature = loss(f, np.asarray(y, np.float64)[:, None])
    return [part @ _WEIGHTS for part in (value, slope, curvature, stand_in(slope, curvature))]


def bound(
    loss: Loss, design: np.ndarray, y: np.ndarray, precision: float, mean: np.ndarray, covariance: np.ndarray
) -> float:
    """Returns the evidence bound of N(mean, covariance) in nats, under the prior N(0, 1/precision)."""
    value = expected(loss, design, y, mean, covariance)[0].sum()
    size, (_, logdet) = len(mean), np.linalg.slogdet(covariance)
    quadratic = precision * (np.trace(covariance) + mean @ mean)
    return float(-value - (quadratic - size - size * np.log(precision) - logdet) / 2)


def mode(
    loss: Loss, design: np.ndarray, y: np.ndarray, precision: float, stand_in: StandIn = hessian
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the most probable parameters `[D]` and the precision `[D, D]` there, by damped Newton steps."""
    theta, targets = np.zeros(design.shape[1]), np.asarray(y, np.float64)
    for _ in range(200):
        _, slope, curvature = loss(design @ theta, targets)
        theta = theta - 0.7 * np.linalg.solve(
            (design * curvature[:, None]).T @ design + precision * np.eye(len(theta)),
            design.T @ slope + precision * theta,
        )
    _, slope, curvature = loss(design @ theta, targets)
    return theta, (design * stand_in(slope, curvature)[:, None]).T @ design + precision * np.eye(len(theta))


def gaussian_fixed_point(
    loss: Loss,
    design: np.ndarray,
    y: np.ndarray,
    precision: float,
    full: bool = False,
    stand_in: StandIn = hessian,
    tolerance: float = 1e-10,
) -> FixedPoint:
    """Returns the Gaussian fixed point of the rule, by damped Newton steps of the mean and substitution for S."""
    size = design.shape[1]
    mean, covariance, change = np.zeros(size), np.eye(size) / precision, np.inf
    for _ in range(2000):
        _, slope, *curvatures = expected(loss, design, y, mean, covariance, stand_in)
        # The step of the mean uses the full Hessian; the choice of matrix does not change the fixed point.
        newton, gram = ((design * each[:, None]).T @ design + precision * np.eye(size) for each in curvatures)
        step = 0.7 * np.linalg.solve(newton, design.T @ slope + precision * mean)
        new = np.linalg.inv(gram) if full else np.diag(1 / np.diagonal(gram))
        new = 0.5 * covariance + 0.5 * new
        sd = np.sqrt(np.diagonal(new))
        change = max(np.max(np.abs(step) / sd), np.max(np.abs(new - covariance) / np.outer(sd, sd)))
        mean, covariance = mean - step, new
        if change < tolerance:
            return FixedPoint(mean, covariance, bound(loss, design, y, precision, mean, covariance))
    raise RuntimeError(f"the fixed point still moves by {change:.1e} standard deviations after 2,000 steps")


def product_of_signs(corners: np.ndarray, energy: np.ndarray, sweeps: int = 500) -> np.ndarray:
    r"""Returns the means of independent signs closest to \(\exp(-\text{energy})\), by coordinate ascent."""
    mean = np.zeros(corners.shape[1])
    for _ in range(sweeps):
        for j, signs in enumerate(corners.T):
            others = np.prod((1 + np.delete(corners * mean, j, axis=1)) / 2, axis=1)
            mean[j] = np.tanh(others @ (-signs * energy) / 2)
    return mean
