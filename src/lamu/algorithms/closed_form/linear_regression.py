"""Bayesian linear regression with unknown noise: integrates over the noise and the prior's scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from lamu import tree
from lamu.families.matrix_normal import LinearNormalGamma
from lamu.likelihoods import Gaussian
from lamu.model import Model
from lamu.posterior import Posterior
from lamu.predictives.gaussian import StudentRule
from lamu.priors import Normal, independent_normal
from lamu.typing import Params, RandomKey

__all__ = ["Directions", "NoiseIntegrated", "integrate_noise", "linear_posterior"]


# Given σ and s, the posterior of the weights is Gaussian and the probability of the targets has a closed form,
#
# \[ y \mid w, \sigma \sim N(\Phi w, \sigma^2), \quad w \mid s \sim N(w_0, s^2 V_0), \qquad
#    p(\sigma, s \mid y) \propto p(y \mid \sigma, s)\, p(\sigma)\, p(s) \]
#
# which a grid over both logarithms integrates to rounding error. No estimate of the noise enters, which would be too
# small wherever the weights follow few rows closely. The mixture over the grid is then projected to one Normal–Gamma
# belief, whose prediction is Student's t. With \(v(\sigma, s) = \sigma^2 / (1 - \gamma/N)\), the variance of a
# left-out row (γ effective weights), v is nearly independent of the rest of the mixture, and
#
# | quantity of the belief | value |
# |---|---|
# | half its degrees of freedom a | \(\psi'(a) = \mathrm{Var} \log v\), as for a Gamma variable |
# | \(\bar v = b/a\) of v | \(\log b - \psi(a) = E \log v\) |
# | noise | \(\bar v\, E[\sigma^2 / v]\) |
# | covariance of the weights | \(\bar v\, E[(\mathrm{Cov}(w) + (m - \bar m)(m - \bar m)^\top) / v]\) |
#
# If the prior is wide and rows outnumber columns, it is the classical t interval of N − D degrees of freedom. With two
# or three rows these are so few that t has no variance: a is then 1.05, with b such that 90 % intervals do not change.


# Numbers that decide results. With these, 90 % intervals covered .83 to .98, typically .90, from 2 to 50 rows and 0 to
# 1,000 columns; at the mode of the noise they covered .38 at five rows of three columns. They were not varied apart.
_NOISE = math.log(1e-4), math.log(1e3)  # the range of the noise, in the targets' unit
_NODES, _SCALES = 61, 25  # numbers of grid nodes: noises, and scales of the prior
_PASSES = 6  # the most refinements of the grid
_TAIL = 30.0  # nats below the maximum at which a grid ends
_NARROWER = 0.7  # a grid is narrow enough if it is not narrower than this share of the previous one
_LEAST_SHAPE, _END = 1.05, 0.95  # the least a, and the quantile that is kept if a is raised to it
_INTERCEPT = 1e3  # the prior of the intercept, in standard deviations of the target: flat
_WIDEST, _LEAST = 10.0, 0.03  # the range of the prior's scale: of one slope, and of all slopes together
_SAME = 1e-3  # tolerance for a standardised column's deviation to be one
_FLATTEST = 1e-10  # share of the largest curvature below which rows are uninformative
_ROUNDING = 1e-10  # share of the largest singular value below which a direction is dropped


@dataclass(frozen=True)
class Directions:
    r"""A regression on orthogonal directions of the weights: \(w = w_0 + \sum_i v_i e_i\) apart from the null space."""

    curvature: np.ndarray  # \(\sum_n w_n (\phi_n^\top e_i)^2\), `[I]`
    cross: np.ndarray  # \(\sum_n w_n r_n \phi_n^\top e_i\) with residuals r at a point, `[I]`
    squares: float  # \(\sum_n w_n r_n^2\)
    weight: float  # \(\sum_n w_n\)
    prior_mean: np.ndarray  # of v, measured from that point, `[I]`
    prior_variance: np.ndarray  # of v, at s = 1, `[I]`
    scaled: np.ndarray  # whether the unknown scale s multiplies the prior's deviation, `[I]`


@dataclass(frozen=True)
class NoiseIntegrated:
    """Normal–Gamma belief nearest to the mixture over noise and scale."""

    mean: np.ndarray  # \(\bar m\) of v, `[I]`
    covariance: np.ndarray  # of v, in units of the noise, `[I, I]`
    null_variance: float  # of a direction without data, in units of noise, for a prior of variance one
    shape: float
    rate: float  # b, of the noise
    evidence: float  # \(\log p(y)\) without constants
    scale: float  # the geometric mean of s


def integrate_noise(
    rows: Directions,
    log_prior: Callable[[np.ndarray], np.ndarray] | None = None,
    scales: tuple[float, float] | None = None,
) -> NoiseIntegrated:
    """Returns the belief about weights and noise, integrated over the noise and optionally the prior's scale."""
    low, high = _NOISE
    bottom, top = (0.0, 0.0) if scales is None else (math.log(scales[0]), math.log(scales[1]))
    log_width = 0.0 if scales is None else math.log(top - bottom)
    refinements_left = _PASSES
    while True:
        refinements_left -= 1
        noise = np.linspace(low, high, _NODES)
        scale = np.zeros(1) if scales is None else np.linspace(bottom, top, _SCALES)
        parts = _at_nodes(rows, np.exp(2 * noise)[:, None, None], np.exp(2 * scale)[None, :, None])
        height = parts.log_density - log_width
        height = height + (-math.log(_NOISE[1] - _NOISE[0]) if log_prior is None else log_prior(noise)[:, None])
        close = height > height.max() - _TAIL
        before = high - low + top - bottom
        (low, high), (bottom, top) = _grid_around(noise, close.any(axis=1)), _grid_around(scale, close.any(axis=0))
        if high - low + top - bottom > _NARROWER * before or refinements_left == 0:
            return _summed(rows, parts, height, noise, scale)


def _summed(
    rows: Directions, parts: _Parts, height: np.ndarray, noise: np.ndarray, scale: np.ndarray
) -> NoiseIntegrated:
    height = height + np.log(_trapezoid(noise))[:, None] + np.log(_trapezoid(scale))[None]
    most = height.max()
    evidence = float(most + np.log(np.exp(height - most).sum()))
    p = np.exp(height - evidence)
    return _projected(rows, parts, p, np.exp(2 * noise)[:, None], scale, evidence)


@dataclass(frozen=True)
class _Parts:
    """Values at the nodes of the grid, `[noises, scales]` and `[noises, scales, I]`."""

    log_density: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    left_out: np.ndarray


def _at_nodes(rows: Directions, noise: np.ndarray, scale: np.ndarray) -> _Parts:
    prior = np.where(rows.scaled, scale, 1.0) * rows.prior_variance
    precision = rows.curvature / noise + 1 / prior
    mean = (rows.cross / noise + rows.prior_mean / prior) / precision
    lost = rows.squares + ((rows.curvature * mean - 2 * rows.cross) * mean).sum(axis=-1)
    energy = lost / noise[..., 0] + ((mean - rows.prior_mean) ** 2 / prior).sum(axis=-1)
    log_density = -(energy + rows.weight * np.log(noise[..., 0]) + np.log(precision * prior).sum(axis=-1)) / 2
    # N − γ without their cancellation if rows are fewer than weights and the noise is small.
    learned = rows.curvature > _FLATTEST * rows.curvature.max(initial=0.0)
    remaining = max(rows.weight - learned.sum(), 0.0) + np.where(learned, 1 / (prior * precision), 0.0).sum(axis=-1)
    return _Parts(log_density, mean, 1 / precision, noise[..., 0] * rows.weight / remaining)


def _projected(
    rows: Directions, parts: _Parts, p: np.ndarray, noise: np.ndarray, scale: np.ndarray, evidence: float
) -> NoiseIntegrated:
    from scipy.special import digamma, stdtrit

    log_v = np.log(parts.left_out)
    centre = float((p * log_v).sum())
    shape = _shape_of(float((p * (log_v - centre) ** 2).sum()))
    # b / a of v, so that an average in units of v gives any share.
    share = p * np.exp(centre + float(digamma(shape)) - math.log(shape)) / parts.left_out
    variance = float((share * noise).sum())
    mean = (p[..., None] * parts.mean).sum(axis=(0, 1))
    centred = (parts.mean - mean).reshape(-1, len(mean))
    covariance = (centred * share.reshape(-1, 1)).T @ centred
    covariance[np.diag_indices(len(mean))] += (share[..., None] * parts.variance).sum(axis=(0, 1))
    null = float((share * np.exp(2 * scale)[None]).sum())
    covariance, null = covariance / variance, null / variance
    if shape < _LEAST_SHAPE:
        variance *= float(stdtrit(2 * shape, _END) / stdtrit(2 * _LEAST_SHAPE, _END)) ** 2
        shape = _LEAST_SHAPE
    return NoiseIntegrated(
        mean,
        covariance,
        null,
        shape,
        shape * variance,
        evidence,
        math.exp(float((p.sum(axis=0) * scale).sum())),
    )


def _grid_around(nodes: np.ndarray, close: np.ndarray) -> tuple[float, float]:
    """Returns the ends of the grid of nodes close to the maximum, with one more node on either side."""
    inside = np.flatnonzero(close)
    return float(nodes[max(inside[0] - 1, 0)]), float(nodes[min(inside[-1] + 1, len(nodes) - 1)])


def _trapezoid(nodes: np.ndarray) -> np.ndarray:
    """Returns the weights of the trapezoidal rule; one for one node."""
    if len(nodes) == 1:
        return np.ones(1)
    weights = np.full(len(nodes), nodes[1] - nodes[0])
    weights[[0, -1]] /= 2
    return weights


def _shape_of(variance: float) -> float:
    r"""Returns a with \(\psi'(a)\) the variance, by Newton's method in log a."""
    from scipy.special import polygamma

    shape = 1 / variance if variance < 1 else variance**-0.5
    for _ in range(50):
        value = float(polygamma(1, shape))
        slope = shape * float(polygamma(2, shape))
        shape *= math.exp(max(-1.0, min(1.0, (variance - value) / slope)))
    return shape


def linear_posterior(
    model: Model,
    x: np.ndarray,
    y: np.ndarray,
    key: RandomKey,
    *,
    weight: object = None,
    offset: object = None,
    learn_scale: bool,
) -> Posterior:
    """Returns the posterior of a standardised `Linear()` with `Gaussian()`, one Normal–Gamma belief an output."""
    # Integrates over the noise and optionally the one scale of the slopes' prior (`integrate_noise`). Everything is
    # NumPy on the raw rows: nothing is compiled. If a target does not vary, as with one row, its noise is
    # that of one pseudo-row whose square is one unit.
    #
    # `learn_scale`: whether to integrate over the scale of the slopes, uniformly in its logarithm from 0.03 / √D to 10
    # (standard deviations of the target, a standard deviation of the column), with a flat intercept, and over the
    # noise uniformly in its logarithm. Otherwise the priors are those of the model and its likelihood.
    network: Any = model.network
    likelihood: Any = model.likelihood
    columns = np.asarray(x, np.float64) - np.asarray(network.shift, np.float64)
    columns = columns / np.asarray(network.scale, np.float64)
    targets = (np.asarray(y, np.float64) - likelihood.shift) / likelihood.scale
    targets = targets.reshape(len(columns), -1)
    if offset is not None:
        targets = targets - np.asarray(offset, np.float64).reshape(len(columns), -1)
    counts = np.ones(len(columns)) if weight is None else np.asarray(weight, np.float64)
    columns, targets, counts = columns[counts > 0], targets[counts > 0], counts[counts > 0]
    dtype, outputs = jax.dtypes.canonicalize_dtype(float), targets.shape[1]
    # Without initialisers, which divide by the number of columns: there may be none.
    like = {"layers": {0: {"bias": np.zeros(outputs, dtype), "kernel": np.zeros((columns.shape[1], outputs), dtype)}}}
    if learn_scale:
        mean = np.zeros((columns.shape[1] + 1, outputs))
        deviation = np.concatenate([[_INTERCEPT], _comparable(columns, np.asarray(network.scale, np.float64), counts)])[
            :, None
        ] * np.ones(outputs)
    else:
        mean, deviation = _prior_of(model, like, outputs)
    regressions = (
        _output(model, columns, targets[:, k], counts, mean[:, k], deviation[:, k], learn_scale) for k in range(outputs)
    )
    weights, roots, beliefs = zip(*regressions, strict=True)
    belief = LinearNormalGamma(
        tree.ravel(like)[1](jax.device_put(np.stack(weights, axis=1).ravel().astype(dtype))),
        jax.device_put(np.stack(roots).astype(dtype)),
        jax.device_put(np.array([regressions.shape for regressions in beliefs], dtype)),
        jax.device_put(np.array([regressions.rate for regressions in beliefs], dtype)),
    )
    if learn_scale:
        scale = math.exp(float(np.mean([math.log(regressions.scale) for regressions in beliefs])))
        model = replace(model, prior=Normal({"*bias": _INTERCEPT, "*": scale}))
    evidence = np.sum([regressions.evidence for regressions in beliefs]) - counts.sum() * (
        outputs * math.log(2 * math.pi) / 2 + float(np.sum(np.log(likelihood.scale * np.ones(outputs))))
    )
    return Posterior(model, belief, {}, StudentRule(), key, evidence=np.asarray(evidence, dtype))


def _output(
    model: Model,
    columns: np.ndarray,
    y: np.ndarray,
    counts: np.ndarray,
    mean: np.ndarray,
    deviation: np.ndarray,
    learn_scale: bool,
) -> tuple[np.ndarray, np.ndarray, NoiseIntegrated]:
    """Returns the weights, intercept first, the root of their precision in units of the noise, and the belief."""
    count, width, root = counts.sum(), columns.shape[1], np.sqrt(counts)
    residual = root * (y - mean[0] - columns @ mean[1:])
    singular, basis, along = _directions(root[:, None] * columns * deviation[1:], residual)
    pseudo = 0.0 if np.ptp(y) > 0 else 1.0
    ones = np.ones(len(singular) + 1)
    rows = Directions(
        curvature=np.concatenate([[count + pseudo], singular**2]),
        cross=np.concatenate([[root @ residual], along]),
        squares=float(residual @ residual) + pseudo,
        weight=count + pseudo,
        prior_mean=0 * ones,
        prior_variance=np.concatenate([[deviation[0] ** 2], ones[1:]]),
        scaled=np.arange(len(ones)) > 0,
    )
    scales = (_LEAST / math.sqrt(width), _WIDEST) if learn_scale and width else None
    belief = integrate_noise(rows, None if learn_scale else _noise_prior(model), scales)
    weights = mean + np.concatenate([[belief.mean[0]], deviation[1:] * (basis @ belief.mean[1:])])
    to_unit = np.block([[np.ones((1, 1)), np.zeros((1, width))], [np.zeros((len(singular), 1)), basis.T]])
    outside = np.eye(width + 1) - to_unit.T @ to_unit
    precision = to_unit.T @ np.linalg.inv(belief.covariance) @ to_unit + outside / belief.null_variance
    units = np.concatenate([[1.0], deviation[1:]])
    return weights, np.linalg.cholesky((precision + precision.T) / 2) / units[:, None], belief


def _directions(design: np.ndarray, residual: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the non-zero singular values of a design, its right singular vectors, and u's product with both."""
    if len(design) > 4 * design.shape[1]:  # decomposing the Gram matrix costs less
        squares, basis = np.linalg.eigh(design.T @ design)
        singular = np.sqrt(np.maximum(squares, 0.0))
    else:
        _, singular, transposed = np.linalg.svd(design, full_matrices=False)
        basis = transposed.T
    nonzero = singular > (_ROUNDING**0.5 if len(design) > 4 * design.shape[1] else _ROUNDING) * singular.max(
        initial=0.0
    )
    singular, basis = singular[nonzero], basis[:, nonzero]
    return singular, basis, basis.T @ (design.T @ residual)


def _comparable(columns: np.ndarray, scale: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns the relative prior deviations of slopes: one where the columns' own deviations are known."""
    # Standardised by few rows, a column may appear to have any scale. If the deviations of columns differ no more than
    # sampling explains, \(\mathrm{Var} \log s_j^2 = \psi'((N - 1)/2)\), they are shrunk to their common one (Smyth
    # 2004), otherwise by that share. Columns of zeros and ones, and constant ones, keep their own unit.
    from scipy.special import polygamma

    relative, count = np.ones(columns.shape[1]), counts.sum()
    mean = counts @ columns / max(count, 1.0)
    varies = np.abs(np.sqrt(counts @ (columns - mean) ** 2 / max(count, 1.0)) - 1) < _SAME
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
    moments = independent_normal(model.free_prior, like)
    if moments is None:
        name = type(model.prior).__name__
        raise TypeError(f"the exact posterior needs independent normal weights, not {name}; give Normal(scale)")
    mean, precision = (np.asarray(tree.ravel(part)[0], float).reshape(-1, outputs) for part in moments)
    return mean, precision**-0.5
