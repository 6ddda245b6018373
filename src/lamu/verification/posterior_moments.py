"""The exact posterior of a small model with a linear predictor, by importance sampling in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lamu.verification.fixed_points import Loss, mode

__all__ = ["Moments", "posterior_moments"]

_DRAWS, _FREEDOM = 200_000, 8.0


@dataclass(frozen=True)
class Moments:
    """Mean, covariance and evidence of a posterior."""

    mean: np.ndarray  # `[D]`
    covariance: np.ndarray  # `[D, D]`
    log_evidence: float  # log marginal likelihood in nats
    ess: float  # the effective number of draws behind them; a mean is known to 1/√ess of a posterior standard deviation

    @property
    def sd(self) -> np.ndarray:
        """The standard deviations `[D]`."""
        return np.sqrt(np.diagonal(self.covariance))


def posterior_moments(loss: Loss, design: np.ndarray, y: np.ndarray, precision: float) -> Moments:
    r"""Returns the moments under \(N(0, \delta^{-1} I)\): draws of a Student's t at the mode, weighted."""
    from scipy.special import gammaln

    size, targets = design.shape[1], np.asarray(y, np.float64)
    center, gram = mode(loss, design, targets, precision)
    generator = np.random.default_rng(0)
    normal = np.linalg.solve(np.linalg.cholesky(gram).T, generator.normal(size=(size, _DRAWS))).T
    draws = center + normal / np.sqrt(generator.chisquare(_FREEDOM, _DRAWS) / _FREEDOM)[:, None]
    log_joint = np.concatenate(
        [-loss(part @ design.T, targets[None])[0].sum(axis=1) for part in np.array_split(draws, 50)]
    )
    log_joint += size / 2 * np.log(precision / (2 * np.pi)) - precision / 2 * (draws**2).sum(axis=1)
    away = draws - center
    log_proposal = gammaln((_FREEDOM + size) / 2) - gammaln(_FREEDOM / 2) + np.linalg.slogdet(gram)[1] / 2
    log_proposal = log_proposal - size / 2 * np.log(_FREEDOM * np.pi)
    log_proposal = log_proposal - (_FREEDOM + size) / 2 * np.log1p(np.sum((away @ gram) * away, axis=1) / _FREEDOM)
    log_weights = log_joint - log_proposal
    top = log_weights.max()
    weights = np.exp(log_weights - top)
    evidence = float(top + np.log(weights.mean()))
    weights /= weights.sum()
    mean = weights @ draws
    away = draws - mean
    return Moments(mean, (away * weights[:, None]).T @ away, evidence, float(1 / (weights**2).sum()))
