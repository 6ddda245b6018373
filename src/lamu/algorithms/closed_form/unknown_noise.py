"""The posterior of linear regression with unknown noise, in closed form but for a quadrature, in 64 bits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from lamu import tree
from lamu.algorithms.closed_form.noise_quadrature import Directions, NoiseIntegrated, integrate_noise
from lamu.families.linear_normal_gamma import LinearNormalGamma
from lamu.likelihoods import Gaussian
from lamu.model import Model
from lamu.posterior import Posterior
from lamu.predictives.student import StudentRule
from lamu.priors import Normal, independent_normal
from lamu.typing import Params, RandomKey

__all__ = ["linear_posterior"]

_INTERCEPT = 1e3  # standard deviations of the target: flat
_WIDEST, _LEAST = 10.0, 0.03  # scales of a slope, and of all slopes together
_SAME = 1e-3  # of one: a standardised column's deviation but for rounding
_ROUNDING = 1e-10  # of the largest singular value, below which a direction is not there


def linear_posterior(model: Model, x: np.ndarray, y: np.ndarray, key: RandomKey, *, learn_scale: bool) -> Posterior:
    """Returns the posterior of a standardised `Linear()` with `Gaussian()`, one Normal–Gamma belief an output."""
    # Noise and, where asked, the one scale of the slopes' prior are integrated over (`integrate_noise`). All is done by
    # NumPy on the rows as they came: nothing is compiled. Where a target does not vary, as in one row, its noise is
    # that of one pseudo-row whose square is one unit.
    #
    # `learn_scale`: whether to integrate over the scale of the slopes, uniformly in its logarithm from 0.03 / √D to 10
    # (standard deviations of the target, a standard deviation of the column), beside a flat intercept, and over the
    # noise uniformly in its logarithm. Otherwise the prior is the model's, and the noise's the likelihood's.
    network: Any = model.network
    likelihood: Any = model.likelihood
    columns = np.asarray(x, np.float64) - np.asarray(network.shift, np.float64)
    columns = columns / np.asarray(network.scale, np.float64)
    targets = (np.asarray(y, np.float64) - likelihood.shift) / likelihood.scale
    targets = targets.reshape(len(columns), -1)
    dtype, outputs = jax.dtypes.canonicalize_dtype(float), targets.shape[1]
    # By hand, since initialisers divide by the number of columns, of which there may be none.
    like = {"layers": {0: {"bias": np.zeros(outputs, dtype), "kernel": np.zeros((columns.shape[1], outputs), dtype)}}}
    if learn_scale:
        mean = np.zeros((columns.shape[1] + 1, outputs))
        deviation = np.concatenate([[_INTERCEPT], _comparable(columns, np.asarray(network.scale, np.float64))])[
            :, None
        ] * np.ones(outputs)
    else:
        mean, deviation = _prior_of(model, like, outputs)
    each = (_output(model, columns, targets[:, k], mean[:, k], deviation[:, k], learn_scale) for k in range(outputs))
    weights, roots, found = zip(*each, strict=True)
    belief = LinearNormalGamma(
        tree.ravel(like)[1](jax.device_put(np.stack(weights, axis=1).ravel().astype(dtype))),
        jax.device_put(np.stack(roots).astype(dtype)),
        jax.device_put(np.array([each.shape for each in found], dtype)),
        jax.device_put(np.array([each.rate for each in found], dtype)),
    )
    if learn_scale:
        scale = math.exp(float(np.mean([math.log(each.scale) for each in found])))
        model = replace(model, prior=Normal({"*bias": _INTERCEPT, "*": scale}))
    evidence = np.sum([each.evidence for each in found]) - len(columns) * (
        outputs * math.log(2 * math.pi) / 2 + float(np.sum(np.log(likelihood.scale * np.ones(outputs))))
    )
    return Posterior(model, belief, {}, StudentRule(), key, evidence=np.asarray(evidence, dtype))


def _output(
    model: Model, columns: np.ndarray, y: np.ndarray, mean: np.ndarray, deviation: np.ndarray, learn_scale: bool
) -> tuple[np.ndarray, np.ndarray, NoiseIntegrated]:
    """Returns the weights, intercept first, the root of their precision in units of the noise, and what it is from."""
    count, width = len(columns), columns.shape[1]
    residual = y - mean[0] - columns @ mean[1:]
    singular, basis, along = _directions(columns * deviation[1:], residual)
    pseudo = 0.0 if np.ptp(y) > 0 else 1.0
    one = np.ones(len(singular) + 1)
    rows = Directions(
        curvature=np.concatenate([[count + pseudo], singular**2]),
        cross=np.concatenate([[residual.sum()], along]),
        squares=float(residual @ residual) + pseudo,
        weight=count + pseudo,
        prior_mean=0 * one,
        prior_variance=np.concatenate([[deviation[0] ** 2], one[1:]]),
        scaled=np.arange(len(one)) > 0,
    )
    scales = (_LEAST / math.sqrt(width), _WIDEST) if learn_scale and width else None
    found = integrate_noise(rows, None if learn_scale else _noise_prior(model), scales)
    weights = mean + np.concatenate([[found.mean[0]], deviation[1:] * (basis @ found.mean[1:])])
    to_unit = np.block([[np.ones((1, 1)), np.zeros((1, width))], [np.zeros((len(singular), 1)), basis.T]])
    outside = np.eye(width + 1) - to_unit.T @ to_unit
    precision = to_unit.T @ np.linalg.inv(found.covariance) @ to_unit + outside / found.null_variance
    units = np.concatenate([[1.0], deviation[1:]])
    return weights, np.linalg.cholesky((precision + precision.T) / 2) / units[:, None], found


def _directions(design: np.ndarray, residual: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the singular values of a design that are not zero, its right singular vectors, and u's share of both."""
    if len(design) > 4 * design.shape[1]:  # a decomposition of a square of the columns costs less
        squares, basis = np.linalg.eigh(design.T @ design)
        singular = np.sqrt(np.maximum(squares, 0.0))
    else:
        _, singular, transposed = np.linalg.svd(design, full_matrices=False)
        basis = transposed.T
    there = singular > (_ROUNDING**0.5 if len(design) > 4 * design.shape[1] else _ROUNDING) * singular.max(initial=0.0)
    singular, basis = singular[there], basis[:, there]
    return singular, basis, basis.T @ (design.T @ residual)


def _comparable(columns: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Returns the prior deviations of slopes, relative: one where the columns' own deviations are known."""
    # Standardised by few rows, a column may seem of any width. Where the deviations of columns differ no more than
    # sampling makes them, \(\mathrm{Var} \log s_j^2 = \psi'((N - 1)/2)\), they are brought to their common one (Smyth
    # 2004), and else as far as that goes. Columns of zeros and ones, and constant ones, keep their own unit.
    from scipy.special import polygamma

    relative, count = np.ones(columns.shape[1]), len(columns)
    varies = np.abs(columns.std(axis=0) - 1) < _SAME
    if count < 2 or varies.sum() < 2:
        return relative
    logs = np.log(scale[varies])
    spread = 4 * logs.var(ddof=1)
    share = min(1.0, float(polygamma(1, (count - 1) / 2)) / spread) if spread > 0 else 1.0
    relative[varies] = np.exp(share * (logs - logs.mean()))
    return relative


def _noise_prior(model: Model) -> Any:
    likelihood: Any = model.likelihood
    base = likelihood.base
    assert isinstance(base, Gaussian)
    return lambda log_noise: np.asarray(base.scale_prior.log_prob(jax.device_put(log_noise)), float)


def _prior_of(model: Model, like: Params, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns means and deviations of the weights, `[1 + D, outputs]`."""
    known = independent_normal(model.free_prior, like)
    if known is None:
        name = type(model.prior).__name__
        raise TypeError(f"the exact posterior needs independent normal weights, not {name}; give Normal(scale)")
    mean, precision = (np.asarray(tree.ravel(part)[0], float).reshape(-1, outputs) for part in known)
    return mean, precision**-0.5
