"""Probabilistic backpropagation: assumed-density filtering with moment propagation through the layers."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import require
from lamu.data.batch import Batch, with_offset
from lamu.families import Gamma, Gaussian, Point, Product
from lamu.families.matrix_normal import NoiseScale
from lamu.likelihoods import Scaled
from lamu.model import supervised
from lamu.objective import Objective
from lamu.operators import Diagonal
from lamu.posterior import Posterior
from lamu.predictives.moment_propagation import Propagated, moments, require_rectifiers, rows_of
from lamu.priors import independent_normal
from lamu.protocol import Choices, Info, Runnable, recipe
from lamu.record import record
from lamu.typing import Array, Belief, Data, DTypeLike, Numeric, Params, PyTree, RandomKey, Trace

__all__ = ["MomentState", "PriorFactors", "ProbabilisticBackpropagation", "moment_matched", "pbp", "require_variance"]


def moment_matched(
    shape: Numeric, rate: Numeric, variance: Numeric, square: Numeric, unit: Numeric = 1.0
) -> tuple[Array, Array]:
    r"""Returns the Gamma that matches the mean and variance of \(\gamma\) after a normal number e of precision γ."""
    # With \(Z(a) = N(e \mid 0,\; v + u\, b / (a - 1))\), the Student's distribution of e replaced by a normal one of
    # its variance, and \(Z_1 = Z(a + 1)\), \(Z_2 = Z(a + 2)\),
    #
    # \[ a' = \Big(\frac{Z_2 Z}{Z_1^2} \frac{a + 1}{a} - 1\Big)^{-1}, \qquad
    #    b' = \Big(\frac{Z_2}{Z_1} \frac{a + 1}{b} - \frac{Z_1}{Z} \frac ab\Big)^{-1} \]
    #
    # where the ratios are taken before the densities: both are near one, and b' would otherwise lose all its digits in
    # float32 after some thousand rows.
    #
    # Source: Hernández-Lobato & Adams (2015), equations 9 and 10.
    a, b = shape, rate
    v0, v1, v2 = (variance + unit * b / (a + shift) for shift in (-1.0, 0.0, 1.0))
    more, less = unit * b / (a * (a - 1.0)), unit * b / (a * (a + 1.0))
    # log Z − log Z₁ and log Z₂ − log Z₁
    first = -(jnp.log1p(more / v1) - square * more / (v0 * v1)) / 2.0
    second = -(jnp.log1p(-less / v1) + square * less / (v1 * v2)) / 2.0
    new_shape = a / (1.0 + (a + 1.0) * jnp.expm1(first + second))
    new_rate = b / (1.0 + (a + 1.0) * jnp.expm1(second) - a * jnp.expm1(-first))
    return new_shape, new_rate


def require_variance(belief: Belief, name: str) -> None:
    """Raises a ValueError if the variance has no mean under the belief, a TypeError if the belief is not a Gamma."""
    if not isinstance(belief, Gamma):
        raise TypeError(f"{name}={belief!r} is not a belief about a precision; give for instance Gamma(6.0, 6.0)")
    shape: Params = belief.shape
    require(shape > 1.0, f"{name} has the shape {shape}, so the variance has no mean; give one above 1")


# The weight j has the prior \(N(w_j \mid m_{0j},\; u_j / \lambda)\), one precision λ for all with a Gamma belief. The
# belief about \(w_j\) contains an approximation of that factor, \(N\)-shaped with natural parameters \((r_j, p_j)\),
# times the Gamma-shaped message \((\alpha_j, \beta_j)\) to λ. Refining a factor removes it, and inserts the one
# that matches the moments of belief times prior.


_WIDEST = 1e6  # prior variances: a factor is not refined where the belief without it is wider (a convention)


@record
class PriorFactors:
    """Approximate factors of the prior, and the belief about its precision."""

    centre: Params  # \(m_0\), a tree of the weights
    unit: Params  # \(u_j\), the prior's variance where λ is one
    precision_mean: Params  # \(r_j\), precision times mean (from \(m_0\))
    precision: Params  # \(p_j\)
    shape: Params  # \(\alpha_j\), a weight's contribution to the shape of the belief about λ
    rate: Params  # \(\beta_j\), its contribution to the rate
    belief: Gamma  # the Gamma of λ

    @classmethod
    def first(cls, centre: Params, unit: Params, belief: Gamma) -> PriorFactors:
        """Returns the factors before any data, with the expected variance under the belief about λ."""
        zeros = [tree.zeros_like(centre) for _ in range(3)]
        expected = (belief.shape - 1.0) / belief.rate
        return cls(centre, unit, zeros[0], jax.tree.map(lambda u: expected / u, unit), zeros[1], zeros[2], belief)

    @property
    def variance(self) -> Params:
        """The variances of the factors."""
        return jax.tree.map(jnp.reciprocal, self.precision)

    def refined(self, mean: Params, variance: Params) -> tuple[Params, Params, PriorFactors]:
        """Returns the belief's means and variances, and the factors, after one pass over them."""
        # Weights in sequence, because each changes the belief about λ for the next one. A weight without
        # information from the data is left unchanged.
        vector = lambda part: tree.ravel(part)[0]
        unravel = tree.ravel(mean)[1]
        parts = (mean, variance, self.centre, self.unit, self.precision_mean, self.precision, self.shape, self.rate)
        now = tuple(map(vector, parts))
        start = (self.belief.shape, self.belief.rate)
        (shape, rate), scanned = jax.lax.scan(_refined_weight, start, now)
        m, v, precision_mean, precision, more_a, more_b = map(unravel, scanned)
        after = PriorFactors(self.centre, self.unit, precision_mean, precision, more_a, more_b, Gamma(shape, rate))
        return m, v, after


def _refined_weight(
    belief: tuple[Array, Array], weight: tuple[Array, ...]
) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
    a, b = belief
    m, v, m0, u, precision_mean, precision, shape, rate = weight
    difference = m - m0
    # The belief without this factor.
    cavity = 1.0 / v - precision
    cavity_v = 1.0 / cavity
    offset = (difference / v - precision_mean) * cavity_v
    c, d = a - shape, b - rate
    total = cavity_v + u * d / (c - 1.0)
    slope = -offset / total
    new_away = offset + cavity_v * slope
    # v − v² (g² − 2 ∂ log Z / ∂v), for this Z a ratio of variances.
    new_v = cavity_v * (total - cavity_v) / total
    new_a, new_b = moment_matched(c, d, cavity_v, offset**2, u)
    good = (cavity > 0) & (cavity_v < _WIDEST * u) & (c > 1.0) & (d > 0) & (new_v > 0) & (new_a > 1.0) & (new_b > 0)
    good &= jnp.isfinite(new_away) & jnp.isfinite(new_a) & jnp.isfinite(new_b)
    keep = lambda new, old: jnp.where(good, new, old)
    refined = (
        keep(m0 + new_away, m),
        keep(new_v, v),
        keep(new_away / new_v - offset * cavity, precision_mean),
        keep(1.0 / new_v - cavity, precision),
        keep(new_a - c, shape),
        keep(new_b - d, rate),
    )
    return (keep(new_a, a), keep(new_b, b)), refined


_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


@record
class MomentState:
    """Belief about all weights and both precisions."""

    mean: Params  # the weights' means
    variance: Params  # their variances
    noise: PyTree  # the Gamma of the noise's precision, one number an output, for standardised targets
    factors: PriorFactors  # the prior's part of the belief
    seen: Array  # the rows seen in this pass
    counted: Array  # the sum of their weights
    last: RowFactors  # the factors of the rows in the pass before, or zeros in the first pass


@record
class RowFactors:
    """The product of all rows' approximate factors after a pass, in natural parameters."""

    precision: Params  # the precisions of the weights
    precision_mean: Params  # precision times mean, the mean measured from the prior's centre
    noise: PyTree  # the rows' contribution to the noise's belief; None where the noise is fixed
    weight: Numeric  # the sum of the rows' weights; zero before the first pass is over


@record
class ProbabilisticBackpropagation(Runnable):
    """Algorithm of `pbp`."""

    prior: Gamma  # the belief about the precision of the weights before any data
    noise: Gamma  # the belief about the precision of the noise before any data

    @property
    def choices(self) -> Choices:
        return Choices(
            family="Gaussian, diagonal precision, with Gamma precisions of noise and prior",
            expectation="propagated moments",
            curvature="of log Z in the mean",
            departures=("moments matched, row by row", "one mean factor for all rows", "units taken for normal"),
        )

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> MomentState:
        # Returns the belief before any data, about random means.
        model = supervised(objective.model)
        require_rectifiers(model)
        weights = model.init(key, batch)[0]["network"]
        prior_moments = independent_normal(model.free_prior, weights)
        if prior_moments is None:
            raise TypeError(
                f"the prior {type(model.prior).__name__} is not one of independent normal weights, which are those "
                "that pbp finds the precision of; give priors.Normal()"
            )
        centre, precision = prior_moments
        sizes = {index: layer["kernel"].shape[0] + 1.0 for index, layer in weights["layers"].items()}
        fans = {"layers": {index: dict.fromkeys(layer, sizes[index]) for index, layer in weights["layers"].items()}}
        unit = jax.tree.map(lambda delta, fan: 1.0 / (delta * fan), precision, fans)
        factors = PriorFactors.first(centre, unit, _as_arrays(self.prior, weights, ()))
        mean = weights
        if model.start is None:
            # As the paper's: the spread of the prior's draws, over the root of the fan-in once more.
            draw = tree.normal(jax.random.fold_in(key, 1), weights)
            mean = jax.tree.map(lambda m, u, fan, z: m + jnp.sqrt(u / fan) * z, centre, unit, fans, draw)
        outputs = model.likelihood.outputs(batch.y)
        zero = jnp.zeros((), jnp.result_type(*jax.tree.leaves(weights)))
        noise = _as_arrays(self.noise, weights, (outputs,)) if _learns_noise(model) else None
        nothing = tree.zeros_like(weights)
        last = RowFactors(nothing, nothing, jax.tree.map(jnp.zeros_like, noise), zero)
        return MomentState(mean, factors.variance, noise, factors, zero, zero, last)

    def step(self, key: RandomKey, state: MomentState, batch: Batch, objective: Objective) -> tuple[MomentState, Info]:
        # Returns the belief after every row of the batch, and after the prior's factors where an epoch is over.
        model, like = supervised(objective.model), state.mean
        dtype = state.seen.dtype
        targets, constant = _standardised(model.likelihood, batch.y, dtype)
        offsets = with_offset(jnp.zeros_like(targets), batch.offset)
        # How many times a row counts; zero for padding.
        counts = (batch.mask * batch.weight * objective.likelihood_power / objective.temperature).astype(dtype)
        fixed = None if state.noise is not None else _noise(model.likelihood, targets)

        def absorb(belief: tuple[PyTree, ...], row: tuple[Array, ...]) -> tuple[tuple[PyTree, ...], Array]:
            return _after_row(belief, fixed, state.factors.centre, state.last, *row)

        start = (state.mean, state.variance, state.noise)
        (mean, variance, noise), log_z = jax.lax.scan(
            absorb, start, (rows_of(model, like, batch.x), targets - offsets, counts)
        )
        moved = jax.tree.map(lambda new, old, v: jnp.sum((new - old) ** 2 / v), mean, *start[:2])
        residual = jnp.sqrt(sum(jax.tree.leaves(moved), jnp.zeros((), dtype)))

        real = (batch.mask > 0).astype(dtype)
        seen = state.seen + jnp.sum(real)
        ended = seen >= jnp.asarray(objective.data_size, dtype) - 0.5
        counted = state.counted + jnp.sum(counts)

        def finish() -> tuple[Params, Params, PyTree, RowFactors, Array]:
            last = _row_factors(state.factors, mean, variance, noise, self.noise, counted)
            return *state.factors.refined(mean, variance), last, jnp.zeros_like(counted)

        mean, variance, factors, last, counted = jax.lax.cond(
            ended, finish, lambda: (mean, variance, state.factors, state.last, counted)
        )
        seen = jnp.where(ended, seen - jnp.asarray(objective.data_size, dtype), seen)
        loss = constant - jnp.sum(jnp.where(real > 0, log_z, jnp.zeros_like(log_z))) / jnp.maximum(jnp.sum(real), 1.0)
        after = MomentState(mean, variance, noise, factors, seen, counted, last)
        return after, Info(loss=loss, residual=residual)

    def posterior(
        self, key: RandomKey, state: MomentState, objective: Objective, data: Data, trace: Trace
    ) -> Posterior:
        # Returns independent Gaussians of the weights, and the Gamma of the noise's precision.
        gaussian = Gaussian(state.mean, Diagonal(jax.tree.map(jnp.reciprocal, state.variance)))
        noise: Belief = Point({}) if state.noise is None else NoiseScale(state.noise)
        belief = Product({"network": gaussian, "likelihood": noise})
        return Posterior(objective.model, belief, {}, Propagated(), key, temperature=objective.temperature)


@recipe("Hernández-Lobato & Adams 2015, section 3; Li et al. 2015, algorithm 1")
def pbp(prior: Gamma | None = None, noise: Gamma | None = None) -> ProbabilisticBackpropagation:
    r"""Probabilistic backpropagation: a Gaussian belief about each weight, updated one row at a time.

    Means m(x) and variances v(x) of the outputs go forward through the layers in closed form; the row's log evidence
    \(\log Z = \log N\big(y \mid m(x),\, v(x) + E\sigma^2\big)\) is differentiated backward, and

    \[ m_j \leftarrow m_j + v_j\, \frac{\partial \log Z}{\partial m_j}, \qquad
       v_j \leftarrow v_j - v_j^2 \Big( \Big(\frac{\partial \log Z}{\partial m_j}\Big)^2
       - 2\, \frac{\partial \log Z}{\partial v_j} \Big) \]

    are the moments of the belief times the row's likelihood, exactly so if the outputs are normal. The precision γ
    of the noise has a Gamma belief, updated by moment matching too, and so has the precision λ of the prior \(N(w_j
    \mid m_0, 1/(\lambda\, \delta\, n))\), with \(m_0\) and δ those of the model's prior and n the fan-in plus one (the
    paper's network divides a layer's sums by √n): its factors are refined by expectation propagation after every N
    rows. From the second pass on, each row first removes from the belief its share, 1/N, of what all rows contributed
    in the pass before (stochastic expectation propagation), so that every row counts once however many passes are
    made; the paper's passes count the rows again each time, and its belief becomes narrower with every one. A row costs
    one gradient, on twice as many numbers as weights, and rows of a batch are processed in sequence, so that the batch
    size changes only the order. Nothing is random after the start, and there is no rate. Forty passes are usual.
    Targets should be standardised (`model.standardised`), because the belief about the noise assumes it.

    Departures from the rule: the divergence is the reverse one, KL(posterior ‖ q), matched in its moments row by row;
    to first order in v that is the rule with ρ = 1 and \(-\log E_q[p(y \mid \theta)]\) instead of \(E_q[-\log p(y
    \mid \theta)]\), its Hessian in m by the heat equation, \(2\, \partial_v = \partial_m^2 + (\partial_m)^2\). A row
    removes the mean factor of all rows instead of its own; units' sums are taken for normal, several outputs for
    independent. A weight of a row, the likelihood's power and 1/T multiply the row's change of the natural
    parameters; T does not divide the prior, whose precision is learned.

    Args:
        prior: the belief about λ before any data; `Gamma(6.0, 6.0)`, as the paper's, where None.
        noise: the belief about γ before any data; `Gamma(1.15, 0.15)` where None: it expects the paper's
            variance of one, and has the same weight against rows that count once as the paper's `Gamma(6.0, 6.0)`
            against rows that count forty times. Not used if the likelihood's noise is fixed.

    Returns:
        The algorithm. Its posterior predicts by the propagated moments, a normal distribution for each row.

    Raises:
        TypeError: if a belief is not a Gamma, or, in `init`, for a network with activations other than
            rectifiers, a likelihood that is not Gaussian, or a prior without independent normal weights.
        ValueError: for a shape of 1 or less, or frozen weights.

    Source: Hernández-Lobato & Adams (2015), sections 3.1 to 3.3, and the authors' code for the start; Li,
    Hernández-Lobato & Turner (2015), algorithm 1, for the passes after the first.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.MLP((20,)), lamu.likelihoods.Gaussian()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.pbp(), epochs=10).posterior
        >>> 50 < lamu.scores.rmse(posterior.predict(x), y) < 60
        True
    """
    prior = Gamma(6.0, 6.0) if prior is None else prior
    noise = Gamma(1.15, 0.15) if noise is None else noise
    require_variance(prior, "prior")
    require_variance(noise, "noise")
    return ProbabilisticBackpropagation(prior=prior, noise=noise)


def _row_factors(
    factors: PyTree, mean: Params, variance: Params, noise: PyTree, noise_prior: Gamma, weight: Array
) -> RowFactors:
    """Returns the belief divided by the prior's factors."""
    precision = jax.tree.map(lambda v, p: 1.0 / v - p, variance, factors.precision)
    precision_mean = jax.tree.map(
        lambda m, v, m0, r: (m - m0) / v - r, mean, variance, factors.centre, factors.precision_mean
    )
    added = None
    if noise is not None:
        before = _as_arrays(noise_prior, mean, jnp.shape(noise.shape))
        added = Gamma(noise.shape - before.shape, noise.rate - before.rate)
    return RowFactors(precision, precision_mean, added, weight)


def _without_share(belief: tuple[PyTree, ...], centre: Params, last: RowFactors, counts: Array) -> tuple[PyTree, ...]:
    """Returns the belief without a row's share of the last pass; the belief itself in the first pass."""
    mean, variance, noise = belief
    share = jnp.where(last.weight > 0, counts / jnp.where(last.weight > 0, last.weight, 1.0), 0.0)

    def remove_share(m: Array, v: Array, m0: Array, p: Array, r: Array) -> tuple[Array, Array]:
        precision = 1.0 / v - share * p
        good = precision > 0
        new_v = 1.0 / jnp.where(good, precision, 1.0)
        new_m = m0 + new_v * ((m - m0) / v - share * r)
        # In the first pass nothing changes, bit for bit.
        good &= share > 0
        return jnp.where(good, new_m, m), jnp.where(good, new_v, v)

    pairs = jax.tree.map(remove_share, mean, variance, centre, last.precision, last.precision_mean)
    mean, variance = jax.tree.transpose(jax.tree.structure(mean), jax.tree.structure((0, 0)), pairs)
    if noise is not None:
        noise = Gamma(noise.shape - share * last.noise.shape, noise.rate - share * last.noise.rate)
    return mean, variance, noise


def _after_row(
    belief: tuple[PyTree, ...],
    noise_variance: PyTree,
    centre: Params,
    last: RowFactors,
    x: Array,
    target: Array,
    counts: Array,
) -> tuple[tuple[PyTree, ...], Array]:
    """Returns the belief after a row, and the row's log evidence before it, in nats and standardised units."""
    old_mean, old_variance, old_noise = belief
    mean, variance, noise = _without_share(belief, centre, last, counts)
    expected = noise_variance if noise is None else noise.rate / (noise.shape - 1.0)

    def log_evidence(mean: Params, variance: Params) -> tuple[Array, tuple[Array, Array]]:
        centre, spread = moments(mean, variance, x)
        total = spread + expected
        log_densities = -((target - centre) ** 2) / (2.0 * total) - jnp.log(total) / 2.0 - _HALF_LOG_2_PI
        return jnp.sum(log_densities), (centre, spread)

    gradient = jax.value_and_grad(log_evidence, argnums=(0, 1), has_aux=True)
    (log_z, (centre, spread)), (g_mean, g_variance) = gradient(mean, variance)

    def moved(m: Array, v: Array, g: Array, h: Array, old_m: Array, old_v: Array) -> tuple[Array, Array]:
        matched = v - v**2 * (g**2 - 2.0 * h)
        new_v = 1.0 / (1.0 / v + counts * (1.0 / matched - 1.0 / v))
        new_m = m + counts * new_v / matched * v * g
        good = (matched > jnp.finfo(v.dtype).tiny) & (new_v > jnp.finfo(v.dtype).tiny) & jnp.isfinite(new_m)
        good &= jnp.isfinite(new_v) & (counts > 0)
        return jnp.where(good, new_m, old_m), jnp.where(good, new_v, old_v)

    pairs = jax.tree.map(moved, mean, variance, g_mean, g_variance, old_mean, old_variance)
    new_mean, new_variance = jax.tree.transpose(jax.tree.structure(mean), jax.tree.structure((0, 0)), pairs)
    if noise is None:
        return (new_mean, new_variance, None), log_z
    shape, rate = moment_matched(noise.shape, noise.rate, spread, (target - centre) ** 2)
    shape, rate = (old + counts * (new - old) for new, old in ((shape, noise.shape), (rate, noise.rate)))
    good = (shape > 1.0) & (rate > 0.0) & jnp.isfinite(shape) & jnp.isfinite(rate) & (counts > 0)
    renewed_noise = Gamma(jnp.where(good, shape, old_noise.shape), jnp.where(good, rate, old_noise.rate))
    return (new_mean, new_variance, renewed_noise), log_z


def _as_arrays(belief: Gamma, like: Params, shape: tuple[int, ...]) -> Gamma:
    dtype = jnp.result_type(*jax.tree.leaves(like))
    return Gamma(*(jnp.broadcast_to(jnp.asarray(part, dtype), shape) for part in (belief.shape, belief.rate)))


def _learns_noise(model: Any) -> bool:
    return _base(model.likelihood).scale is None


def _noise(likelihood: Any, targets: Array) -> Array:
    """Returns the fixed noise variance, in the units of standardised targets."""
    return jnp.asarray(_base(likelihood).scale, targets.dtype) ** 2


def _base(likelihood: Any) -> Any:
    return likelihood.base if isinstance(likelihood, Scaled) else likelihood


def _standardised(likelihood: Any, y: Array, dtype: DTypeLike) -> tuple[Array, Array]:
    """Returns the targets in the network's units, `[batch, outputs]`, and the log Jacobian of the change of units."""
    columns = y[:, None] if y.ndim == 1 else y
    if not isinstance(likelihood, Scaled):
        return columns.astype(dtype), jnp.zeros((), dtype)
    wide = jnp.result_type(columns) if jnp.issubdtype(columns.dtype, jnp.floating) else dtype
    shift, scale = (
        jnp.broadcast_to(jnp.asarray(part, wide), columns.shape[1:]) for part in (likelihood.shift, likelihood.scale)
    )
    z = (columns.astype(wide) - shift[None]) / scale[None]
    return z.astype(dtype), jnp.sum(jnp.log(scale)).astype(dtype)
