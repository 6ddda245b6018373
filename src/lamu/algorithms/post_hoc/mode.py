"""Polishes the mode by L-BFGS over all rows in coordinates whitened by Laplace's precision, and the noise there."""

# An optimiser on minibatches ends near the mode, not at it, and Laplace's Gaussian and its evidence are about
# the mode. With \(S = R^{-\top} R^{-1}\) the precision that Laplace's method would have here, and g the gradient of
# \(\ell/T\) over all rows, prior included,
#
# \[ \theta = m + R z, \qquad \nabla_z (\ell/T) = R^\top g, \qquad r = \lVert R^\top g \rVert = \sqrt{g^\top S^{-1} g}
# \]
#
# so that the Hessian in z is about the identity, and the norm of the gradient in z is the residual r, in nats: half its
# square is the gain of a Newton step. S is recomputed after some iterations.

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.algorithms.post_hoc.ggn_blocks import evaluated
from lamu.algorithms.post_hoc.laplace_fit import LaplaceFit, prior_precision, rows_per_pass
from lamu.base.compile_once import compiled_once
from lamu.convergence import Convergence
from lamu.data.batch import Batch, with_offset
from lamu.model import Model
from lamu.objective import Objective
from lamu.operators import Diagonal
from lamu.posterior import Posterior
from lamu.priors import LearnedNormal
from lamu.target import Target
from lamu.typing import Array, Data, Numeric, OperatorTree, Params, RandomKey, State

__all__ = [
    "LARGEST_RESIDUAL",
    "MOST_ROUNDS",
    "Polished",
    "dispersions_around",
    "effective_parameters",
    "is_pretrained",
    "last_within",
    "log_gradient_norm",
    "noise_factor",
    "polish",
    "residual_at",
    "residual_of",
    "well_determined",
]


# Numbers that decide results; conventions, not tuned.
_LOG_WIDEST, _TOLERANCE = math.log(100.0), 2e-3  # of the logarithm of the noise factor: its range, and its error


# Weights that follow the rows closely leave residuals that are smaller than the noise. With M observations, squared
# residuals R and γ well-determined weights the evidence is greatest, in the noise, at \(\sigma^2 = R / (M - \gamma)\)
# (MacKay 1992, equation 2.25), where γ depends on σ. A joint mode of weights and noise lacks γ.


def well_determined(metric: OperatorTree, objective: Objective, mean: Params) -> Array:
    r"""Returns \(\gamma = D - \operatorname{tr} S^{-1} \Delta / T\), with Δ the prior's precision."""
    prior, size = prior_precision(objective, mean).scale(1 / objective.temperature), tree.dimension(mean)
    if prior.is_diagonal or size <= _MOST_COLUMNS:
        return size - metric.trace_solve(prior, mean)

    def form(key: RandomKey) -> Array:
        probe = metric.inverse_root(tree.normal(key, mean))
        return tree.dot(probe, prior.matvec(probe))

    return size - tree.average_over(form, jax.random.key(0), _PROBES)


# A trace takes a solve for every column of a prior that is not diagonal; of more columns it is estimated by probes.
_MOST_COLUMNS, _PROBES = 1024, 64


def effective_parameters(mode: LaplaceFit, objective: Objective) -> float | None:
    """Returns γ at the noise at which the evidence is stationary; None if rounding or M leave no positive noise."""
    determined = float(_determined(mode.scale_noise(objective, noise_factor(mode, objective)), objective))
    return determined if determined < float(mode.observed) * mode.misfit.size else None  # NaN is none


def noise_factor(mode: LaplaceFit, objective: Objective) -> float:
    """Returns the factor c ≥ 1 of every noise deviation at which the evidence is stationary."""
    # It is one if the noise is already too large, and if the precision is singular to rounding.
    rises = lambda log_factor: float(_slope(mode, objective, log_factor)) > 0.0  # NaN does not
    return math.exp(last_within(rises, 0.0, _LOG_WIDEST, _TOLERANCE)) if rises(0.0) else 1.0


def last_within(holds: Callable[[float], bool], inside: float, outside: float, until: float) -> float:
    """Returns, to a tolerance, the last point from `inside` towards `outside` at which a predicate holds."""
    while outside - inside > until:
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside


def dispersions_around(point: Posterior, objective: Objective, data: Data) -> Params | None:
    """Returns the dispersions of greatest density at fixed weights; None if none are learned."""
    params, state, first, model = point.mean, point.network_state, point.mean["likelihood"], objective.model
    if not jax.tree.leaves(first):
        return None
    from scipy.optimize import minimize  # here: few posteriors need it

    start, rows = tree.ravel(first), rows_per_pass(Diagonal, evaluated(objective, state), params, data, _ROWS)
    batches = [(batch, _outputs_of(model, params, state, batch)) for batch in data.batches(rows)]
    row_count = math.fsum(float(batch.count) for batch, _ in batches)
    scale = float(objective.data_size) * float(objective.likelihood_power) / row_count

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        values_array = jnp.asarray(values, start[0].dtype)
        parts = [_dispersion_loss(values_array, model, first, batch, f) for batch, f in batches]
        prior = _dispersion_prior(values_array, model, first)
        value, slope = (
            scale * sum(np.asarray(part[k], float) for part in parts) + np.asarray(prior[k], float) for k in (0, 1)
        )
        return float(value), np.asarray(slope, float)

    best = minimize(loss, np.asarray(start[0], float), jac=True, method="L-BFGS-B").x
    return start[1](jnp.asarray(best, start[0].dtype))


@jax.jit
def _outputs_of(model: Model, params: Params, network_state: State, batch: Batch) -> Array:
    return with_offset(model.outputs(params, network_state, batch.x)[0], batch.offset)


@jax.jit
@jax.value_and_grad
def _dispersion_loss(values: Array, model: Model, like: Params, batch: Batch, f: Array) -> Array:
    return -batch.total(model.likelihood.log_prob(tree.ravel(like)[1](values), f, batch.y))


@jax.jit
@jax.value_and_grad
def _dispersion_prior(values: Array, model: Model, like: Params) -> Array:
    return -model.dispersion_log_prior(tree.ravel(like)[1](values))


@jax.jit
def _slope(mode: LaplaceFit, objective: Objective, log_factor: Array | float) -> Array:
    """Returns the derivative of the evidence in log c."""
    wide = mode.scale_noise(objective, jnp.exp(log_factor))
    log_prior = lambda log_factor: objective.model.dispersion_log_prior(
        mode.scale_noise(objective, jnp.exp(log_factor)).params["likelihood"]
    )
    noise_slope = 2.0 * jnp.sum(wide.misfit) - wide.observed * wide.misfit.size + jax.grad(log_prior)(log_factor)
    return noise_slope / objective.temperature + _determined(wide, objective)


@jax.jit
def _determined(mode: LaplaceFit, objective: Objective) -> Array:
    mean = mode.params["network"]
    return well_determined(mode.precision(objective).preconditioner(mean), objective, mean)


# Numbers that decide results: when a mode counts as found, and when the search for it ends. The residual follows from
# its cost; the others are conventions that were not tuned.
LARGEST_RESIDUAL = 0.05  # at a mode; a Newton step would then gain 0.001 nats
_AIM = 0.01  # the residual at which a round ends: S changes during a round
MOST_ROUNDS, _ITERATIONS, _EVALUATIONS = 10, 100, 400  # rounds, iterations of each, and gradients of all of them
_STALLED = 0.1  # of a Newton step's predicted gain: a round that gains less is the last one
_MEMORY = 20  # corrections that L-BFGS keeps
_SHORTER = 0.8  # a plain step is kept if it shortens the gradient by so much
_FAR = 1e12  # added to the loss where it is not finite, so that the line search turns back
_LONGEST_NOISE_STEP = 0.5  # of a log dispersion
_STEP, _GAIN = 0.01, 0.05  # a step of this share of the weights' norm may gain at most this many nats per row
_ROWS = 8192  # rows at a time, for memory


@dataclass(frozen=True)
class Polished:
    """A mode with its residual."""

    mode: LaplaceFit  # the fit there
    residual: float  # r, in nats, including dispersions that moved
    dimension: int  # number of coordinates of its norm
    stalled: bool = False  # whether L-BFGS ended where the loss falls far less than its gradient predicts, as at kinks
    # Distance of the outputs from those at the mode, in posterior standard deviations; None if the weights were free
    # to move.
    shift: float | None = None
    # Of ℓ/T in the weights there, including the prior; None if they were not free to move.
    gradient: Params | None = None

    @property
    def found(self) -> bool:
        """Whether the residual is small enough for a mode."""
        return self.residual <= LARGEST_RESIDUAL  # NaN is none

    def convergence(self, remedy: str = "") -> Convergence:
        """Returns the residual as a `Convergence`; the precision is the curvature by construction."""
        return Convergence(
            residual=self.residual,
            dimension=self.dimension,
            precision_error=0.0,
            precision_error_90=0.0,
            shift=self.shift,
            remedy=remedy,
        )


def polish(
    look: Callable[[Params], LaplaceFit],
    mode: LaplaceFit,
    objective: Objective,
    data: Data,
    rounds: int = MOST_ROUNDS,
    determined: float | None = None,
    *,
    held: bool = False,
) -> Polished:
    """Returns the mode that L-BFGS finds over all rows, with its residual; `held`: for given dispersions."""
    # At most ten rounds of a hundred iterations and 400 gradients in all; a round that gains less than a tenth of a
    # Newton step's predicted gain is the last one (relu networks stop at kinks, where no gradient vanishes).
    #
    # Learned dispersions are part of the mode, and move with the weights. The noise of a Gaussian regression moves
    # between rounds instead, by a step of Fisher scoring, to where \(E_q[\nabla_\phi \ell] = 0\) under the linearised
    # Gaussian: with M observations, squared residuals R and γ well-determined weights \(\sigma^2 = R / (M - \gamma)\)
    # (MacKay 1992), where the evidence is greatest. The joint mode of weights and noise would estimate neither:
    # a network that can follow all rows leaves no noise. If γ is more than half of M, a step of Fisher scoring is a
    # poor guess: a noise that is too small for the evidence is raised to where it is stationary for the current
    # weights, and any other one is kept.
    loss = _RowsLoss(evaluated(objective, mode.network_state), mode, data)
    numbers = 0 if held else tree.dimension(mode.params["likelihood"])
    fixed = jax.tree.map(jnp.zeros_like, mode.params["likelihood"])
    gradients_left, last, best = _EVALUATIONS, False, None
    for number in range(rounds + 1):
        metric = _metric(mode, objective)
        value, gradient = loss(mode.params)
        noise_step, noise = fixed, 0.0
        if not held:
            noise_step, noise = _noise_step(mode, objective, metric, gradient["likelihood"], determined)
        slope = _whitened(metric, gradient["network"])
        squared = float(slope @ slope)
        residual = math.sqrt(squared + noise)
        current = Polished(mode, residual, slope.size + numbers, stalled=last, gradient=gradient["network"])
        if not math.isfinite(current.residual):
            return current if best is None else best
        best = current
        if current.found or last or number == rounds or gradients_left <= 0:
            break
        scales = fixed if held else _scales(mode, objective)
        params, gradients_used, gain = _lbfgs(
            loss, mode.params, metric, scales, value, min(gradients_left, _ITERATIONS)
        )
        gradients_left -= gradients_used
        # The next round follows the noise's move, and, once, a new S.
        last = gain < _STALLED * squared / 2 and noise <= LARGEST_RESIDUAL**2 and squared > LARGEST_RESIDUAL**2
        mode = look({**params, "likelihood": jax.tree.map(jnp.add, params["likelihood"], noise_step)})
    assert best is not None
    return best


def residual_at(mode: LaplaceFit, objective: Objective, data: Data, prior_is_open: bool = False) -> Polished:
    """Returns the unchanged mode with its residual: one gradient over all rows."""
    # `prior_is_open`: whether the prior's scale was chosen for these weights: then its gradient is not a distance from
    # the mode, and the shift leaves it out.
    gradient = _RowsLoss(evaluated(objective, mode.network_state), mode, data)(mode.params)[1]
    own = tree.add(gradient["network"], _prior_slope(mode, objective), -1.0) if prior_is_open else gradient["network"]
    residual, shift = _distances(_metric(mode, objective), mode, objective, gradient["network"], own)
    return Polished(mode, float(residual), tree.dimension(mode.params["network"]), shift=float(shift))


def residual_of(mode: LaplaceFit, objective: Objective, gradient: Params, prior_is_open: bool = False) -> Polished:
    """Returns `residual_at` for a given gradient."""
    distances, sound = _by_precision(mode, objective, gradient, prior_is_open)
    if not bool(sound):
        distances = _by_diagonal(mode, objective, gradient, prior_is_open)
    residual, shift = map(float, distances)
    return Polished(mode, residual, tree.dimension(mode.params["network"]), shift=shift)


@compiled_once(static_argnums=3)
def _by_precision(
    mode: LaplaceFit, objective: Objective, gradient: Params, open_prior: bool
) -> tuple[OperatorTree, Array]:
    """Returns the distances by S, and whether S is positive."""
    mean = mode.params["network"]
    metric = mode.precision(objective).preconditioner(mean)
    return _distances(metric, mode, objective, *_slopes(mode, objective, gradient, open_prior)), metric.is_positive(
        mean
    )


@compiled_once(static_argnums=3)
def _by_diagonal(mode: LaplaceFit, objective: Objective, gradient: Params, open_prior: bool) -> tuple[Array, Array]:
    return _distances(_diagonal(mode, objective), mode, objective, *_slopes(mode, objective, gradient, open_prior))


def _slopes(mode: LaplaceFit, objective: Objective, gradient: Params, open_prior: bool) -> tuple[Params, Params]:
    """Returns the gradient of ℓ/T in the weights, from that of the likelihood, and its part for the shift."""
    without_prior = tree.scale(gradient, 1 / objective.temperature)
    with_prior = tree.add(without_prior, _prior_slope(mode, objective))
    return with_prior, without_prior if open_prior else with_prior


def _prior_slope(mode: LaplaceFit, objective: Objective) -> Params:
    log_prior = lambda mean: -objective.model.log_prior({**mode.params, "network": mean}) / objective.temperature
    return jax.grad(log_prior)(mode.params["network"])


@jax.jit
def _distances(
    metric: OperatorTree, mode: LaplaceFit, objective: Objective, slope: Params, own: Params
) -> tuple[Array, Array]:
    r"""Returns \(\sqrt{g^\top S^{-1} g}\), and the distance of the outputs at the rows from those at the mode."""
    # A Newton step \(\delta = S^{-1} g\) moves the outputs of row i by \(J_i \delta\), and their posterior variance is
    # \(J_i S^{-1} J_i^\top\). Averaged over rows, each weighted by its information, the first squared over the second
    # is \(\delta^\top H \delta / \gamma\), with \(H = S - \Delta\) and γ the number of well-determined weights.
    mean = mode.params["network"]
    residual = jnp.sqrt(jnp.sum(_whitened(metric, slope) ** 2))
    pulled = _whitened(metric, own)
    step = metric.inverse_root(tree.ravel(mean)[1](pulled.astype(tree.ravel(mean)[0].dtype)))
    prior = prior_precision(objective, mean).scale(1 / objective.temperature)
    by_rows = jnp.sum(pulled**2) - tree.dot(step, prior.matvec(step))
    determined = jnp.maximum(well_determined(metric, objective, mean), 1.0)
    return residual, jnp.sqrt(jnp.maximum(by_rows, 0.0) / determined)


class _RowsLoss:
    """ℓ/T over all rows with its gradient; the value is summed in double precision."""

    def __init__(self, objective: Objective, mode: LaplaceFit, data: Data) -> None:
        self._objective, self._data = objective, data
        self._rows = rows_per_pass(Diagonal, objective, mode.params, data, _ROWS)

    def __call__(self, params: Params) -> tuple[float, Params]:
        value, gradient, seen = 0.0, None, 0.0
        for batch in self._data.batches(self._rows):
            part, slope, count = _of_batch(self._objective, params, batch)
            value, seen = value + float(part), seen + float(count)
            gradient = slope if gradient is None else jax.tree.map(jnp.add, gradient, slope)
        # The sums are over the actual rows; the objective's N may differ.
        share = float(self._objective.data_size) / seen
        prior, full_gradient = _with_prior(self._objective, params, gradient, share)
        return (share * value + float(prior)) / float(self._objective.temperature), full_gradient


@jax.jit
def _of_batch(objective: Objective, params: Params, batch: Batch) -> tuple[Array, Params, Array]:
    def value(params: Params) -> Array:
        return -objective.likelihood_power * batch.total(objective.model.log_likelihood(params, {}, batch)[0])

    return *jax.value_and_grad(value)(params), batch.count


@jax.jit
def _with_prior(objective: Objective, params: Params, gradient: Params, share: Numeric) -> tuple[Array, Params]:
    value, prior = jax.value_and_grad(lambda params: -objective.model.log_prior(params))(params)
    full_gradient = tree.add(tree.scale(gradient, share), prior)
    return value, tree.scale(full_gradient, 1 / objective.temperature)


def _metric(mode: LaplaceFit, objective: Objective) -> OperatorTree:
    """Returns Laplace's precision here, factored; its diagonal if it has no factor."""
    metric, sound = _precision(mode, objective)
    return metric if bool(sound) else _diagonal(mode, objective)


@jax.jit
def _precision(mode: LaplaceFit, objective: Objective) -> tuple[OperatorTree, Array]:
    mean = mode.params["network"]
    metric = mode.precision(objective).preconditioner(mean)
    return metric, metric.is_positive(mean)


@jax.jit
def _diagonal(mode: LaplaceFit, objective: Objective) -> Diagonal:
    mean = mode.params["network"]
    prior_diagonal = prior_precision(objective, mean).scale(1 / objective.temperature).diagonal(mean)
    diagonal = mode.precision(objective).diagonal(mean)
    return Diagonal(jax.tree.map(lambda d, p: jnp.where(d > p, d, jnp.abs(p)), diagonal, prior_diagonal))


@jax.jit
def _whitened(metric: OperatorTree, gradient: Params) -> Array:
    """Returns Rᵀ g as a vector."""
    return tree.ravel(jax.vjp(metric.inverse_root, tree.zeros_like(gradient))[1](gradient)[0])[0]


@jax.jit
def _unwhitened(metric: OperatorTree, centre: Params, z: Array) -> Params:
    """Returns m + R z."""
    unravel = tree.ravel(centre)[1]
    return tree.add(centre, metric.inverse_root(unravel(z)))


def _scales(mode: LaplaceFit, objective: Objective) -> Params:
    """Returns the deviations of the dispersions that move with the weights; zeros for fixed ones."""
    dispersion, rows = mode.params["likelihood"], mode.observed
    if objective.model.quadratic:
        return jax.tree.map(jnp.zeros_like, dispersion)
    information = objective.dispersion_information(dispersion)
    return jax.tree.map(lambda i: 1.0 / jnp.sqrt(i * rows / objective.temperature), information)


def _lbfgs(
    loss: _RowsLoss, params: Params, metric: OperatorTree, scales: Params, value: float, evaluations: int
) -> tuple[Params, int, float]:
    """Returns the parameters after some iterations of L-BFGS, the number of gradients, and the nats gained."""
    from scipy.optimize import minimize

    used, norm = 0, math.inf
    first = tree.ravel(params["network"])[0]
    weights, dtype = first.size, first.dtype
    flat_scales, unravel = tree.ravel(scales)

    def placed(z: np.ndarray) -> Params:
        network = _unwhitened(metric, params["network"], jnp.asarray(z[:weights], dtype))
        change = unravel(jnp.asarray(z[weights:], flat_scales.dtype) * flat_scales)
        return {**params, "network": network, "likelihood": jax.tree.map(jnp.add, params["likelihood"], change)}

    def value_and_gradient(z: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal used, norm
        used += 1
        new, gradient = loss(placed(z))
        others = tree.ravel(gradient["likelihood"])[0] * flat_scales
        pulled = np.concatenate([np.asarray(_whitened(metric, gradient["network"]), float), np.asarray(others, float)])
        norm = float(np.linalg.norm(pulled))
        if math.isfinite(new) and math.isfinite(norm):
            return new, pulled
        return abs(value) + _FAR, np.zeros_like(pulled)  # not finite: the line search turns back

    def stop_at_aim(intermediate_result: object) -> None:
        if norm < _AIM:
            raise StopIteration

    options = {"maxiter": evaluations, "maxfun": evaluations, "maxcor": _MEMORY, "ftol": 0.0, "gtol": 0.0}
    start = np.zeros(weights + flat_scales.size)
    result: Any = minimize(
        value_and_gradient, start, jac=True, method="L-BFGS-B", callback=stop_at_aim, options=options
    )
    z, (best_value, pulled) = result.x, value_and_gradient(result.x)
    # Near the mode the loss cannot distinguish points in single precision, but the gradient can.
    while used < evaluations and np.linalg.norm(pulled) > _AIM:
        other, slope_there = value_and_gradient(z - pulled)
        if not (norm < _SHORTER * np.linalg.norm(pulled) and other <= best_value + LARGEST_RESIDUAL):
            break
        z, best_value, pulled = z - pulled, other, slope_there
    if not best_value <= value + LARGEST_RESIDUAL:  # no worse than before, up to rounding
        z, best_value = start, value
    return placed(z), used, value - best_value


def _noise_step(
    mode: LaplaceFit, objective: Objective, metric: OperatorTree, gradient: Params, determined: float | None
) -> tuple[Params, float]:
    """Returns the step of the dispersions, zero if they do not move, and its squared length in nats."""
    model, dispersion = objective.model, mode.params["likelihood"]
    stays = jax.tree.map(jnp.zeros_like, dispersion)
    if not jax.tree.leaves(dispersion):
        return dispersion, 0.0
    step, squared, reliable = _fisher_scoring(mode, objective, metric, gradient, determined)
    if not model.quadratic:  # they moved with the weights
        return stays, float(squared)
    if bool(reliable):
        return step, float(squared)
    factor = noise_factor(mode, objective)
    if factor == 1.0:
        return stays, 0.0
    raised = mode.scale_noise(objective, factor).params["likelihood"]
    return jax.tree.map(jnp.subtract, raised, dispersion), float(squared)


@jax.jit
def _fisher_scoring(
    mode: LaplaceFit, objective: Objective, metric: OperatorTree, gradient: Params, given_determined: Numeric | None
) -> tuple[Params, Array, Array]:
    """Returns a step of Fisher scoring, κ ḡ²/I, and whether to take it."""
    # It is taken if γ is given, or if half of the observations are left for the noise.
    model, dispersion = objective.model, mode.params["likelihood"]
    mean = mode.params["network"]
    numbers, observed = tree.dimension(dispersion), mode.observed * mode.misfit.size
    determined, rows = jnp.zeros(()), mode.observed
    if model.quadratic:
        of_precision = well_determined(metric, objective, mean)
        determined = of_precision if given_determined is None else jnp.asarray(given_determined, of_precision.dtype)
        rows = observed / numbers
    information = tree.scale(objective.dispersion_information(dispersion), rows / objective.temperature)
    noise_gradient = jax.tree.map(lambda g: g - (determined / numbers).astype(g.dtype), gradient)
    step = jax.tree.map(
        lambda g, i: -jnp.clip(g / i, -_LONGEST_NOISE_STEP, _LONGEST_NOISE_STEP), noise_gradient, information
    )
    squared = tree.dot(noise_gradient, jax.tree.map(jnp.divide, noise_gradient, information))
    return step, squared, (determined <= observed / 2) | (given_determined is not None)


def is_pretrained(model: Target, point: Posterior, data: Data) -> bool:
    """Returns whether the network is pretrained and no step has moved its weights, which are then kept."""
    if not model.trained:
        return False
    init = compiled_once()(lambda seed, example: model.init(jax.random.key(seed), example)[0]["network"])
    example, now = data.example(1), point.mean["network"]
    fresh, other = (init(np.uint32(seed), example) for seed in (0, 1))
    if jax.tree.structure(fresh) != jax.tree.structure(now):
        return False
    leaves = zip(*map(jax.tree.leaves, (fresh, other, now)), strict=True)
    deterministic = [
        (a, c) for a, b, c in leaves if np.array_equal(a, b)
    ]  # others are random: the factors of an adapter
    return bool(deterministic) and all(np.array_equal(a, c) for a, c in deterministic)


def log_gradient_norm(mode: LaplaceFit, objective: Objective, gradient: Params) -> None:
    """Warns if pretrained weights are not a minimum of the loss, as Laplace's method assumes."""
    # The criterion is the decrease of the loss by one step of a hundredth of the weights' norm down the gradient,
    # \(0.01\, |\theta|\, |\nabla \bar\ell|\), in nats per row, for the weights of the belief. A prior of unknown
    # scale (`LearnedNormal`) does not count.
    slope = (
        gradient if isinstance(objective.model.prior, LearnedNormal) else _slope_with_prior(mode, objective, gradient)
    )
    gain = _STEP * _length(mode.params["network"]) * _length(slope) / float(objective.data_size)
    if not gain <= _GAIN:
        logging.getLogger("lamu").warning(
            "The weights are far from a minimum: a step of 1 %% of their length down the slope promises %.2g nats a "
            "row; train longer, or under the prior that the posterior is to have.",
            gain,
        )


@compiled_once()
def _slope_with_prior(mode: LaplaceFit, objective: Objective, gradient: Params) -> Params:
    log_prior = lambda mean: objective.model.log_prior({**mode.params, "network": mean})
    return tree.add(gradient, jax.grad(log_prior)(mode.params["network"]), -1.0)


def _length(vector: Params) -> float:
    return math.sqrt(sum(float(np.sum(np.square(np.asarray(leaf, float)))) for leaf in jax.tree.leaves(vector)))
