"""The linearised rule: the network is replaced by its tangent at the mean, so that outputs are Gaussian."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import tree
from lamu.base.compile_once import compiled_once
from lamu.data.batch import with_offset
from lamu.families import Gamma, Gaussian
from lamu.families.matrix_normal import NoiseScale
from lamu.families.points import DispersionMixture
from lamu.families.products import factor_of
from lamu.likelihoods import Likelihood
from lamu.memory import budget
from lamu.operators import Diagonal
from lamu.predictives.gaussian import GaussianPredictive, StudentPredictive
from lamu.predictives.interface import Predictive, Prepared
from lamu.predictives.lazy import PredictiveRule, in_chunks
from lamu.predictives.mixture import MixturePredictive
from lamu.predictives.padding import RowWise
from lamu.predictives.sampled import DrawnOutputs, require_room
from lamu.predictives.tangent import bytes_per_row, is_layered, may_be_head, tangent
from lamu.record import record, static
from lamu.supports import Support
from lamu.target import Target
from lamu.typing import Array, Belief, DTypeLike, Number, Params, PyTree, RandomKey, Rows, State

__all__ = [
    "ClosedForm",
    "Linearised",
    "LinearisedMarginal",
    "OfTangents",
    "OutputsRule",
    "TangentDraws",
    "TangentOutputs",
]


_NODES = 32  # of the Gauss–Hermite rule; not measured
# The same given each of seven dispersions: intervals of eight rows ended within .7 % of their width of those by 64.
_NODES_EACH = 16
_MOST_ROWS = 1024  # activations of the network are not in `bytes_per_row` where a precision is dense


class OutputsRule(PredictiveRule):
    """Base class of rules with normal outputs, which `Probit` and others build on."""

    marginal = False  # whether variances alone are computed

    def prepare(self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        """Returns the mean and the factored precision, or draws of the weights where these are faster."""
        if not self.marginal and _draws_weights(model, belief):
            return TangentDraws().prepare(model, belief, network_state, samples, key)
        return self.prepare_covariances(model, belief, network_state, samples, key)

    def joint(self) -> PredictiveRule:
        return TangentDraws()

    def prepare_covariances(
        self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey
    ) -> Prepared:
        """Returns the mean and the factored precision, also where draws would be faster."""
        if isinstance(belief, DispersionMixture):
            each = jax.vmap(lambda member: self.outputs(model, member, network_state, samples, key))
            return _TangentsGivenDispersions(each(belief.stacked), belief.log_weights)
        return _Tangent(self.outputs(model, belief, network_state, samples, key))

    def outputs(
        self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey
    ) -> TangentOutputs:
        """Returns the prepared normal distribution of the outputs, as `prepare` does for targets."""
        weights, dispersion = weights_and_dispersion(belief)
        of = model, _ready(weights), dispersion, network_state, key, samples
        return TangentOutputs(*of, marginal=self.marginal, noise=_noise(belief))


@record
class Linearised(OutputsRule):
    r"""\(f(\theta, x) \approx f(m, x) + J(x)(\theta - m)\), so that \(f(x^*) \sim N(f(m, x^*), J \Sigma J^\top)\).

    The outputs of a row are jointly normal. The target's distribution is then a closed form for Gaussian likelihoods, a
    Gauss–Hermite rule of 32 nodes for one output, and an average over draws of the outputs otherwise. A draw uses the
    same standard normal for every row, so that the prediction for an input does not depend on other rows. The
    covariance is computed by the precision's structure (`lamu.predictives.tangent`), without a matrix where outputs are
    independent. For several classes under a last layer, or a precision that is one matrix for the whole network,
    weights are drawn instead of outputs, as in `TangentDraws`: the same distribution of each row, without its
    covariance.

    Source: Khan et al. (2019); Immer, Korzepa & Bauer (2021), equation 8 (the "GLM predictive").

    Examples:
        >>> from lamu.predictives import Linearised
        >>> Linearised()
        Linearised()
    """


@record
class LinearisedMarginal(OutputsRule):
    r"""The linearised rule with independent outputs of a row, of variances \((J\Sigma J^\top)_{kk}\).

    Variances alone are computed: with K outputs K numbers a row instead of K². For one output, and for means and
    variances of a regression, it equals `Linearised`.

    Source: Immer, Korzepa & Bauer (2021); Daxberger et al. (2021), section 2, for the diagonal of the outputs.

    Examples:
        >>> from lamu.predictives import LinearisedMarginal
        >>> LinearisedMarginal()
        LinearisedMarginal()
    """

    marginal = True


@record
class ClosedForm(PredictiveRule):
    """The exact rule of a linear-Gaussian model, for which the linearised rule is exact.

    Raises:
        TypeError: for any other model.

    Examples:
        >>> from lamu.predictives import ClosedForm
        >>> ClosedForm()
        ClosedForm()
    """

    def prepare(self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        """Returns the mean and the factored precision."""
        if not (model.identified and model.quadratic):
            raise TypeError(
                "a closed form needs a linear network and a Gaussian likelihood; use Linearised() or Sampled()"
            )
        return Linearised().prepare(model, belief, network_state, samples, key)

    def joint(self) -> PredictiveRule:
        return TangentDraws()


@record
class TangentOutputs:
    """The outputs of the network's tangent at the mean, with the belief about its weights."""

    model: Target  # network, likelihood and prior
    weights: Gaussian  # the belief about the weights, its precision factored
    dispersion: Params  # the likelihood's parameters
    network_state: State
    key: RandomKey  # for draws of the outputs
    samples: int = static()  # how many
    marginal: bool = static(default=False)  # whether only variances are made
    # The belief about the precision of the noise, one number an output; None for a point.
    noise: Gamma | None = None

    def room(self, x: PyTree) -> int:
        """Returns the number of rows at once that fit in memory; inside of a compiled function all rows."""
        if isinstance(x, Tracer):
            return x.shape[0]
        size = bytes_per_row(self.model, self.weights, self.dispersion, self.network_state, x, self.marginal)
        return int(np.clip(budget() // max(size, 1), 1, _MOST_ROWS))

    def normal(self, x: Rows, offset: Rows | None) -> tuple[Array, Array]:
        """Returns mean `[N, K]` and covariance `[N, K, K]`, or variances `[N, K]` for independent outputs."""
        parts = (self.model, self.weights, self.dispersion, self.network_state)
        mean, spread = in_chunks(lambda rows: _tangent(*parts, rows, self.marginal), x, rows=self.room(x))
        return with_offset(mean, None if offset is None else jnp.asarray(offset)), spread


@record
class OfTangents(RowWise):
    """Base class of prepared beliefs with normal outputs."""

    of: TangentOutputs

    @property
    def support(self) -> Support:
        """The likelihood's support."""
        return self.of.model.likelihood.support

    def room(self, x: PyTree, offset: PyTree, rows: int) -> int:
        return self.of.room(x)


@record
class _Tangent(OfTangents):
    """Normal outputs combined with the likelihood."""

    def at(self, x: Rows, offset: Rows | None) -> Predictive:
        of = self.of
        mean, spread = of.normal(x, offset)
        if of.noise is not None:
            return _student(of.model.likelihood, of.noise, mean, spread)
        return _averaged(of.model.likelihood, of.dispersion, of.key, of.samples, mean, spread)


@record
class _TangentsGivenDispersions(OfTangents):
    """Normal outputs given each of some dispersions, stacked, with the likelihood put upon them."""

    log_weights: Array  # of the dispersions

    def at(self, x: Rows, offset: Rows | None) -> Predictive:
        def points(of: TangentOutputs) -> tuple[Array, Array, Params]:
            f, log_weights = _points(of.model.likelihood, of.key, of.samples, *of.normal(x, offset), _NODES_EACH)
            return f, log_weights, _repeated(of.dispersion, len(f))

        f, log_weights, dispersion = jax.vmap(points)(self.of)
        every = lambda leaf: leaf.reshape(-1, *leaf.shape[2:])
        log_weights = every(log_weights + self.log_weights.astype(f.dtype)[:, None])
        likelihood = jax.tree.map(lambda leaf: leaf[0], self.of.model.likelihood)
        return MixturePredictive(likelihood, jax.tree.map(every, dispersion), every(f), log_weights, by_row=True)

    def room(self, x: PyTree, offset: PyTree, rows: int) -> int:
        of_one = jax.tree.map(lambda leaf: leaf[0], self.of)
        return max(of_one.room(x) // len(self.log_weights), 1)


def _draws_weights(model: Target, belief: Belief) -> bool:
    """Whether draws of the weights cost less than the covariance of a row's outputs, for classes alone."""
    likelihood = model.likelihood
    if not likelihood.support.has_classes or likelihood.outputs(np.zeros(1, int)) == 1:
        return False
    weights, _ = weights_and_dispersion(belief)
    precision, mean = weights.precision, weights.mean
    if precision.per_output or isinstance(precision, Diagonal):  # variances alone
        return False
    return may_be_head(mean) or not is_layered(precision, mean)


@jax.jit
def _student(likelihood: Likelihood, precision: Gamma, mean: Array, spread: Array) -> Any:
    """Returns the predictive of a quadratic likelihood over normal outputs, the noise's precision Gamma(a, b)."""
    # Student's t of 2a degrees of freedom, the square of its scale b / a and the variance of the outputs.
    shape = jnp.asarray(precision.shape)
    dispersion = {"log_scale": jnp.log(precision.rate / shape) / 2}
    variances = jnp.diagonal(spread, axis1=1, axis2=2) if spread.ndim == 3 else spread
    normal = GaussianPredictive.independent(likelihood, dispersion, mean, variances)
    each = jnp.broadcast_to(2 * shape.reshape(1, -1), mean.shape).reshape(normal.centre.shape)
    share = normal.noise / normal.variance
    return StudentPredictive(normal.centre, normal.std, each, share)


@partial(jax.jit, static_argnums=3)
def _averaged(
    likelihood: Likelihood, dispersion: Params, key: RandomKey, samples: int, mean: Array, spread: Array
) -> Any:
    """Returns the predictive of a likelihood over normal outputs."""
    width = mean.shape[1]
    if spread.ndim == 2 and width == 1:
        spread = spread[:, :, None]
    if likelihood.quadratic and spread.ndim == 2:
        return GaussianPredictive.independent(likelihood, dispersion, mean, spread)
    closed = likelihood.marginal(dispersion, mean, spread) if spread.ndim == 3 else None
    if closed is not None:
        centre, total = closed
        noise = likelihood.variance(dispersion, mean)
        return GaussianPredictive(centre.reshape(noise.shape), total, noise)
    f, log_weights = _points(likelihood, key, samples, mean, spread)
    return MixturePredictive(likelihood, _repeated(dispersion, len(f)), f, log_weights, width > 1, by_row=True)


def _points(
    likelihood: Likelihood, key: RandomKey, samples: int, mean: Array, spread: Array, nodes_of_one: int = _NODES
) -> tuple[Array, Array]:
    """Returns outputs that stand for normal ones, `[S, N, K]`, and the logarithms of their weights."""
    width = mean.shape[1]
    if width == 1:
        nodes, node_weights = np.polynomial.hermite_e.hermegauss(nodes_of_one)
        noise = jnp.asarray(nodes, mean.dtype)[:, None]
        log_weights = jnp.asarray(np.log(node_weights / node_weights.sum()), mean.dtype)
    else:
        noise = standard_normals(key, samples, width, mean.dtype)
        log_weights = jnp.full(samples, -np.log(samples), mean.dtype)
    if spread.ndim == 2:
        deviation = jnp.sqrt(spread)[None] * noise[:, None, :]
    else:
        deviation = jnp.einsum("nkl,sl->snk", _root(spread), noise)
    return likelihood.displaced(mean[None], deviation), log_weights


def _repeated(dispersion: Params, times: int) -> Params:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[None], (times, *leaf.shape)), dispersion)


def standard_normals(key: RandomKey, samples: int, width: int, dtype: DTypeLike) -> Array:
    """Returns standard normal draws `[samples, width]`, the same for every chunk; draw i depends on i alone."""
    key = jax.random.clone(key)
    draw = lambda i: jax.random.normal(jax.random.fold_in(key, i), (width,), dtype)
    return jax.vmap(draw)(jnp.arange(samples))


@partial(jax.jit, static_argnums=5)
def _tangent(
    model: Target, weights: Gaussian, dispersion: Params, network_state: State, x: Array, marginal: bool
) -> tuple[Array, Array]:
    return tangent(model, weights, dispersion, network_state, x, marginal)


@compiled_once()
def _ready(weights: Gaussian) -> Gaussian:
    precision = weights.precision
    return Gaussian(weights.mean, precision.for_features() if may_be_head(weights.mean) else precision.factored())


def _root(covariance: Array) -> Array:
    """Returns lower triangular roots L of covariances `[N, K, K]`, such that L Lᵀ is each to rounding."""
    # An eigendecomposition takes sixteen times as long, and its root jumps where two eigenvalues cross.
    root = jnp.tril(jax.lax.linalg.cholesky(covariance, symmetrize_input=False))
    exists = jnp.all(jnp.diagonal(root, axis1=1, axis2=2) > 0, axis=1)  # where it does not, it is NaN
    singular = lambda: jnp.where(exists[:, None, None], root, _singular_root(covariance))
    return jax.lax.cond(jnp.all(exists), lambda: root, singular)


def _singular_root(covariance: Array) -> Array:
    """Returns roots of possibly singular covariances: pivots below rounding are raised to it."""
    outputs = covariance.shape[-1]
    matrix, numbers = jnp.moveaxis(covariance, 0, -1), jnp.arange(outputs)[:, None]  # rows last: several at a time
    limits = jnp.finfo(covariance.dtype)
    least = jnp.maximum(outputs * limits.eps * jnp.max(jnp.diagonal(matrix), axis=-1), limits.tiny)

    def eliminated(k: Array, left: Array) -> Array:
        diagonal = jnp.maximum(jnp.diagonal(left).T, 0)
        pivot = jnp.maximum(diagonal[k], least)
        column = left[:, k] * jax.lax.rsqrt(pivot)[None]
        # Never more than its variance allows, which only rounding asks for.
        column = jnp.clip(column, -jnp.sqrt(diagonal), jnp.sqrt(diagonal))
        column = jnp.where(numbers == k, jnp.sqrt(pivot)[None], jnp.where(numbers > k, column, 0))
        below = jnp.where(numbers > k, column, 0)
        return (left - below[:, None] * below[None]).at[:, k].set(column)

    return jnp.moveaxis(jax.lax.fori_loop(0, outputs, eliminated, matrix), -1, 0)


def _noise(belief: Belief) -> Gamma | None:
    """Returns the belief about the precision of the noise; None for a point."""
    noise = belief.factors["likelihood"]
    return noise.precision if isinstance(noise, NoiseScale) else None


def weights_and_dispersion(belief: Belief) -> tuple[Gaussian, Params]:
    """Returns the Gaussian about the weights, and the dispersions; a TypeError for any other belief."""
    weights = factor_of(belief, "network")
    if not isinstance(weights, Gaussian):
        raise TypeError("the linearised rule needs a Gaussian belief about the network's weights; use Sampled()")
    return weights, belief.factors["likelihood"].mean


@record
class TangentDraws(PredictiveRule):
    r"""The average of the likelihood over draws of the tangent, \(f(m, x) + J(x)(\theta_s - m)\), \(\theta_s \sim q\).

    It takes one product with the Jacobian a draw and row, and no solve after the draws; it works for every Gaussian
    belief, and is the rule of a matrix-free one. A belief about the noise is drawn too, and deviations of the outputs
    are in units of it, so that each row has the distribution of `Linearised`.

    Attributes:
        temperature: T, by which the outputs are divided, as by `Probit`.

    Source: Antorán et al. (2023), "Sampling-based inference for large linear models".

    Examples:
        >>> from lamu.predictives import TangentDraws
        >>> TangentDraws()
        TangentDraws(temperature=1.0)
    """

    temperature: Number = 1.0

    def prepare(self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        if isinstance(belief, DispersionMixture):
            drawn, mean = belief.draws(key, samples), belief.mean
            count = jax.tree.leaves(drawn)[0].shape[0]
            parts = mean["network"], (drawn["network"], jnp.ones((count, 1))), mean["likelihood"]
            return DrawnOutputs(model, (*parts, network_state, self.temperature), drawn["likelihood"], _outputs)
        weights, dispersion = weights_and_dispersion(belief)
        noise, noise_key = _noise(belief), key
        if noise is not None:
            key, noise_key = jax.random.split(key)
        require_room(weights, key, samples)
        draws = _draws(weights, key, samples)
        count = jax.tree.leaves(draws)[0].shape[0]
        repeated, units = _repeated(dispersion, count), jnp.ones((count, 1))
        if noise is not None:
            repeated = belief.factors["likelihood"].draws(noise_key, count)
            units = jnp.exp(repeated["log_scale"]).reshape(count, -1) * jnp.sqrt(noise.shape / noise.rate).reshape(
                1, -1
            )
        parts = weights.mean, (draws, units), dispersion, network_state, self.temperature
        return DrawnOutputs(model, parts, repeated, _outputs)


@partial(jax.jit, static_argnums=2)
def _draws(weights: Gaussian, key: RandomKey, samples: int) -> Params:
    return weights.draws(key, samples)


@jax.jit
def _outputs(
    model: Target,
    mean: Params,
    draws: tuple[Params, Array],
    dispersion: Params,
    network_state: State,
    temperature: Number,
    x: Array,
    offset: Array | None,
) -> Array:
    outputs = lambda theta: model.outputs({"network": theta, "likelihood": dispersion}, network_state, x)[0]
    f, forwards = jax.linearize(outputs, mean)

    def of_draw(drawn: tuple[Params, Array]) -> Array:
        theta, unit = drawn
        return with_offset(f + unit[None].astype(f.dtype) * forwards(tree.add(theta, mean, -1.0)), offset) / temperature

    # For one layer all draws are one product; for more each draw fills the cores and the memory of a pass.
    return jax.vmap(of_draw)(draws) if may_be_head(mean) else jnp.asarray(jax.lax.map(of_draw, draws))
