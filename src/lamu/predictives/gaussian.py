r"""Predictives in closed form: normal, Student's t, and those of conjugate models."""

# The last are \(p(y^* \mid D) = h(y^*)\, e^{A(\lambda + t(y^*)) - A(\lambda)}\).

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaln

from lamu import tree
from lamu.base.bisection import Ends, bisect, doubled
from lamu.base.compile_once import is_traced, row_keys
from lamu.conjugacy import ConjugateModel
from lamu.data.batch import with_offset
from lamu.families import Product
from lamu.families.matrix_normal import LinearNormalGamma
from lamu.likelihoods import Likelihood
from lamu.networks.interface import NetworkWrapper
from lamu.observations import student_cdf
from lamu.predictives.interface import Predictive, Prepared, quantile_in_support
from lamu.predictives.lazy import PredictiveRule, draw_in_chunks, in_memory_chunks, room_for
from lamu.predictives.padding import RowWise, compiled_answers
from lamu.predictives.sampled import Sampled
from lamu.record import record, static
from lamu.supports import Real, Support
from lamu.target import Target
from lamu.typing import Array, Belief, Number, Params, PyTree, RandomKey, Rows, State, Targets

__all__ = [
    "ConjugatePredictive",
    "ConjugateRule",
    "GaussianPredictive",
    "StudentPredictive",
    "StudentRule",
    "head_features",
    "head_size",
    "output_units",
    "require_head",
]


@compiled_answers(centre=0, covariance=0, noise=0)
@record
class GaussianPredictive(Predictive):
    r"""\(y^* \sim N(\mathrm{centre}, \mathrm{covariance})\), the noise included.

    Attributes:
        centre: E[y], `[N]` for one output, `[N, K]` for several.
        covariance: Cov[y] between the outputs of a row, `[N, K, K]`; for independent outputs their variances, in the
            shape of `centre`.
        noise: the noise part of the variances, in the shape of `centre`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives import GaussianPredictive
        >>> pred = GaussianPredictive(jnp.zeros(1), 4.0 * jnp.ones((1, 1, 1)), jnp.ones(1))
        >>> float(pred.std[0]), float(pred.epistemic[0])
        (2.0, 3.0)
    """

    centre: Array
    covariance: Array
    noise: Array

    @classmethod
    def independent(
        cls, likelihood: Likelihood, dispersion: Params, mean: Array, variance: Array
    ) -> GaussianPredictive:
        """Returns the predictive of a quadratic likelihood for independent normal outputs.

        Args:
            likelihood: p(y | f), whose mean is affine in f, output by output.
            dispersion: its parameters.
            mean: `[N, K]`.
            variance: `[N, K]`.
        """
        centre, slope = jax.jvp(lambda f: likelihood.mean(dispersion, f), (mean,), (jnp.ones_like(mean),))
        noise = likelihood.variance(dispersion, mean)
        return cls(centre, slope**2 * variance.reshape(centre.shape) + noise, noise)

    @property
    def support(self) -> Support:
        return Real()

    @property
    def mean(self) -> Array:
        return self.centre

    @property
    def variance(self) -> Array:
        if self._is_independent:
            return self.covariance
        return jnp.diagonal(self.covariance, axis1=-2, axis2=-1).reshape(self.centre.shape)

    @property
    def aleatoric(self) -> Array:
        return self.noise

    @property
    def epistemic(self) -> Array:
        """The variance of the mean under the belief."""
        return self.variance - self.noise

    def log_prob(self, y: Targets) -> Array:
        """Returns the joint log density of a row's outputs in nats, shape `[N]`."""
        if self._is_independent:
            residual = (jnp.asarray(y).astype(self.centre.dtype).reshape(self.centre.shape) - self.centre) ** 2
            each = -(residual / self.covariance + jnp.log(self.covariance) + math.log(2 * math.pi)) / 2
            return jnp.sum(each.reshape(each.shape[0], -1), axis=1)
        rows, outputs = self.covariance.shape[:2]
        residual = (jnp.asarray(y).astype(self.centre.dtype) - self.centre).reshape(rows, outputs)
        root = jnp.linalg.cholesky(self.covariance)
        white = jax.vmap(lambda r, a: solve_triangular(r, a, lower=True))(root, residual)
        determinant = jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)
        return -jnp.sum(white**2, axis=-1) / 2 - determinant - outputs / 2 * math.log(2 * math.pi)

    def cdf(self, y: Targets) -> Array:
        return jax.scipy.stats.norm.cdf(y, self.centre, self.std)

    def sample(self, key: RandomKey, n: int, first: Number = 0) -> Array:
        """Returns n draws, correlated between a row's outputs and independent between rows."""
        rows, shape = (
            self.centre.shape[0],
            self.centre.shape[1:] if self._is_independent else self.covariance.shape[1:2],
        )
        normal = lambda key: jax.random.normal(key, shape, self.centre.dtype)
        root = self.std if self._is_independent else jnp.linalg.cholesky(self.covariance)

        def draw(key: RandomKey) -> Array:
            z = jax.vmap(normal)(row_keys(key, rows, first))
            residual = root * z if self._is_independent else jnp.einsum("nkl,nl->nk", root, z)
            return self.centre + residual.reshape(self.centre.shape)

        return draw_in_chunks(draw, jax.random.split(key, n))

    @property
    def _is_independent(self) -> bool:
        return self.covariance.ndim == self.centre.ndim


@record
class StudentRule(PredictiveRule):
    r"""The exact rule of a `LinearNormalGamma` belief about a head.

    \[ y_k \mid x, D \sim t_{2 a_k}\Big( m_k^\top \phi(x),\; \frac{b_k}{a_k} (1 + q_k) \Big), \qquad
       q_k = \phi(x)^\top \Lambda_k^{-1} \phi(x) \]

    Raises:
        TypeError: for any other belief.

    Examples:
        >>> from lamu.predictives.gaussian import StudentRule
        >>> StudentRule()
        StudentRule()
    """

    def prepare(self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        """Returns model and belief, without draws."""
        if not isinstance(belief, LinearNormalGamma):
            raise TypeError(
                f"Student's t is of a belief of neural_linear(), and this is a {type(belief).__name__}; use Sampled()"
            )
        return _Head(model, belief, network_state)

    def joint(self) -> PredictiveRule:
        return Sampled()


@record
class _Head(RowWise):
    model: Target
    belief: LinearNormalGamma
    network_state: State

    @property
    def support(self) -> Support:
        return Real()

    def room(self, x: PyTree, offset: PyTree, rows: int) -> int:
        return room_for(_outputs, (self.model, self.belief, self.network_state), (x,))

    def at(self, x: Rows, offset: Rows | None) -> Predictive:
        parts = (self.model, self.belief, self.network_state)
        f, spread = in_memory_chunks(_outputs, parts, (x,))
        f = with_offset(f, None if offset is None else jnp.asarray(offset))
        likelihood, plain = self.model.likelihood, {"log_scale": jnp.zeros_like(self.belief.rate)}
        centre, unit = likelihood.mean(plain, f), jnp.sqrt(likelihood.variance(plain, f))
        each = lambda a: jnp.broadcast_to(a[None], f.shape).reshape(centre.shape)
        share = 1 / (1 + spread.reshape(centre.shape))
        width = unit * jnp.sqrt(each(self.belief.rate / self.belief.shape) / share)
        return StudentPredictive(centre, width, each(2 * self.belief.shape), share)


@jax.jit
def _outputs(model: Target, belief: LinearNormalGamma, network_state: State, x: Array) -> tuple[Array, Array]:
    f, phi = head_features(model, belief.location, network_state, x)
    return f, belief.quadratic_form(phi)


@compiled_answers(centre=0, width=0, freedom=0, share=0)
@record
class StudentPredictive(Predictive):
    r"""\(y^* = \mathrm{centre} + \mathrm{width} \cdot t\) with Student-t distributed t and independent outputs.

    Attributes:
        centre: the median, and the mean where it exists, `[N]` for one output, `[N, K]` for several.
        width: the scale, in the shape of `centre`.
        freedom: the degrees of freedom, in that shape.
        share: the noise share of the variance, in that shape.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives.gaussian import StudentPredictive
        >>> pred = StudentPredictive(jnp.zeros(1), jnp.ones(1), jnp.full(1, 4.0), jnp.full(1, 0.75))
        >>> float(pred.variance[0]), float(pred.epistemic[0])
        (2.0, 0.5)
    """

    centre: Array
    width: Array
    freedom: Array
    share: Array

    @property
    def support(self) -> Support:
        return Real()

    @property
    def mean(self) -> Array:
        return self.centre

    @property
    def variance(self) -> Array:
        """Var[y]; infinite for two degrees of freedom or fewer."""
        above = self.freedom > 2
        return jnp.where(above, self.width**2 * self.freedom / jnp.where(above, self.freedom - 2, 1), jnp.inf)

    @property
    def aleatoric(self) -> Array:
        return self.share * self.variance

    @property
    def epistemic(self) -> Array:
        """The variance of the layer's output."""
        return (1 - self.share) * self.variance

    def log_prob(self, y: Targets) -> Array:
        """Returns the sum over outputs of the log densities in nats, `[N]`."""
        z, v = self._standardised(y), self.freedom
        constant = gammaln((v + 1) / 2) - gammaln(v / 2) - jnp.log(v * math.pi) / 2 - jnp.log(self.width)
        each = constant - (v + 1) / 2 * jnp.log1p(z**2 / v)
        return jnp.sum(each.reshape(each.shape[0], -1), axis=1)

    def cdf(self, y: Targets) -> Array:
        return student_cdf(self._standardised(y), self.freedom)

    def _quantile(self, probability: Number) -> Array:
        # By doubling and bisection, since the variance may not exist.
        tail = jnp.minimum(probability, 1 - probability)
        z = _lower_quantile(self.freedom, jnp.asarray(tail, self.freedom.dtype))
        return self.centre + self.width * jnp.where(probability < 0.5, z, -z)

    def sample(self, key: RandomKey, n: int, first: Number = 0) -> Array:
        """Returns n draws, independent between rows."""
        rows, dtype = self.centre.shape[0], self.centre.dtype

        def one(key: RandomKey, freedom: Array) -> Array:
            normal, gamma = jax.random.split(key)
            chi = 2 * jax.random.gamma(gamma, freedom / 2, dtype=dtype)
            return jax.random.normal(normal, freedom.shape, dtype) * jnp.sqrt(freedom / chi)

        draw = lambda key: self.centre + self.width * jax.vmap(one)(row_keys(key, rows, first), self.freedom)
        return draw_in_chunks(draw, jax.random.split(key, n))

    def _standardised(self, y: Targets) -> Array:
        return (jnp.asarray(y).astype(self.centre.dtype) - self.centre) / self.width


@jax.jit
def _lower_quantile(freedom: Array, tail: Array) -> Array:
    """Returns quantiles of Student's t below its median, in one program, since single loops would be recompiled."""
    end = doubled(lambda end: student_cdf(end, freedom) > tail, -jnp.ones_like(freedom), steps=40)
    return bisect(lambda z: student_cdf(z, freedom) < tail, (end, jnp.zeros_like(end)), steps=80)


def head_features(model: Target, head: Params, network_state: State, x: Array) -> tuple[Array, Array]:
    """Returns outputs and the features of output 0 in some rows, differentiable in frozen weights that are traced."""
    # \(\phi(x) = \partial f_1 / \partial W_{\cdot 1}\): a backward pass through the last layer alone.

    def outputs(head: Params, row: Array) -> tuple[Array, Array]:
        f = model.outputs({"network": head, "likelihood": {}}, network_state, row[None])[0][0]
        return f[0], f

    slopes, f = jax.vmap(jax.grad(outputs, has_aux=True), in_axes=(None, 0))(head, x)
    columns = [jnp.reshape(leaf[..., 0], (x.shape[0], -1)) for leaf in jax.tree.leaves(slopes)]
    return f, jnp.concatenate(columns, axis=1)


def head_size(head: Params) -> tuple[int, int]:
    """Returns the numbers of inputs, including the bias's, and of outputs of a layer."""
    outputs = jax.tree.leaves(head)[0].shape[-1]
    return tree.dimension(head) // outputs, outputs


def require_head(model: Target, head: Params, network_state: State, x: Array, outputs: int, name: str) -> None:
    """Raises a TypeError unless the last axis of every leaf is that of the outputs."""
    network = model.network
    while isinstance(network, NetworkWrapper):
        network = network.base
    turned = getattr(network, "outputs_first", False)
    for path, leaf in zip(tree.paths(head), jax.tree.leaves(head), strict=True):
        if turned or leaf.ndim < 1 or leaf.shape[-1] != outputs:
            raise _not_last(name, f"the leaf {path!r} of the head has the shape {leaf.shape} for {outputs} outputs")
    if is_traced() or isinstance(x, Tracer):
        return
    # A square kernel has the right shape in both orders: only the first column affects the first output.
    first = lambda head: jnp.sum(model.outputs({"network": head, "likelihood": {}}, network_state, x)[0][:, 0])
    for path, slope in tree.by_path(jax.grad(first)(head)).items():
        if bool(jnp.any(slope[..., 1:] != 0)):
            raise _not_last(name, f"output 0 depends on more of the head's leaf {path!r} than its first column")


def output_units(model: Target, head: Params, network_state: State, x: Array) -> Array:
    """Returns the features of every output over those of output 0, `[outputs]`: `unit` of `Standardised`, or ones."""
    # The same change of every column of the head moves the outputs in proportion to their features.
    column = lambda leaf: jnp.cos(jnp.arange(leaf[..., :1].size, dtype=leaf.dtype)).reshape(leaf[..., :1].shape)
    change = jax.tree.map(lambda leaf: jnp.broadcast_to(column(leaf), leaf.shape), head)
    outputs = lambda head: model.outputs({"network": head, "likelihood": {}}, network_state, x[:8])[0]
    moved = jnp.sum(jax.jvp(outputs, (head,), (change,))[1] ** 2, axis=0)
    return jnp.where(moved[0] > 0, jnp.sqrt(moved / jnp.where(moved[0] > 0, moved[0], 1)), 1)  # zero: no unit is active


def _not_last(name: str, what: str) -> TypeError:
    return TypeError(
        f"{name} needs a last layer of kernel and bias with the outputs last, [features, outputs], and {what} (PyTorch "
        "and Equinox have the outputs first); use last_layer(), or lamu.networks.Trained with a head laid out so"
    )


@record
class ConjugateRule(PredictiveRule):
    """The exact rule of a `lamu.ConjugateModel`.

    Raises:
        TypeError: for any other model.

    Examples:
        >>> from lamu.predictives.gaussian import ConjugateRule
        >>> ConjugateRule()
        ConjugateRule()
    """

    def prepare(self, model: object, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        """Returns observation and belief, without draws."""
        if not isinstance(model, ConjugateModel) or not isinstance(belief, Product):
            raise TypeError("this closed form is of a lamu.ConjugateModel; use Sampled() or Linearised()")
        return _Known(model.observation, belief.factors["network"])


@record
class _Known:
    """An observation and a belief about its parameters."""

    observation: Any
    belief: Belief

    @property
    def support(self) -> Support:
        return self.observation.support

    def at(self, x: Rows, offset: Rows | None) -> Predictive:
        if offset is not None:
            raise ValueError("a model without inputs has no linear predictor that an offset could be added to")
        return ConjugatePredictive(self.observation, self.belief, x.shape[0])


@record
class ConjugatePredictive(Predictive):
    r"""The exact distribution of new targets of a conjugate model, the same for every row.

    Given the data the rows are exchangeable, not independent: `log_prob` is the marginal of each row, `sample` draws
    rows with a common θ.

    Attributes:
        observation: \(p(y \mid \theta)\).
        belief: q(θ).
        rows: the number of rows.

    Examples:
        >>> from lamu.families import Beta
        >>> from lamu.observations import Bernoulli
        >>> from lamu.predictives.gaussian import ConjugatePredictive
        >>> ConjugatePredictive(Bernoulli(), Beta(3.0, 1.0), rows=2).mean.tolist()
        [0.75, 0.75]
    """

    observation: Any
    belief: Belief
    rows: int = static()

    @property
    def support(self) -> Support:
        return self.observation.support

    @property
    def mean(self) -> Array:
        return self._repeated(self.observation.moments(self.belief)[0])

    @property
    def variance(self) -> Array:
        """Var[y]; infinite where it does not exist."""
        if self.support.has_classes:
            return self.mean * (1 - self.mean)
        _, aleatoric, epistemic = self.observation.moments(self.belief)
        return self._repeated(aleatoric + epistemic)

    @property
    def aleatoric(self) -> Array:
        return self._repeated(self.observation.moments(self.belief)[1])

    @property
    def epistemic(self) -> Array:
        """Mutual information of target and θ in nats (classes), or variance of the mean."""
        return self._repeated(self.observation.moments(self.belief)[2])

    def log_prob(self, y: Targets) -> Array:
        """Returns the log density of each target in nats, `[N]`, from two log-partitions."""
        return self.observation.log_prob_under(self.belief, jnp.asarray(y))

    def cdf(self, y: Targets) -> Array:
        return self.observation.cdf_under(self.belief, jnp.asarray(y, self.mean.dtype))

    def _quantile(self, probability: Number) -> Array:
        # By doubling and bisection, since the variance may not exist.
        return _quantile(self, probability)

    def _narrowed(self, ends: Ends, level: Number) -> Ends:
        return _narrowed(self, ends, level)

    def sample(self, key: RandomKey, n: int, first: object = 0) -> Array:
        """Returns n draws of all rows: θ, the same for all rows, then targets."""

        def draw(key: RandomKey) -> Array:
            theta_key, key = jax.random.split(key)
            f = tree.ravel(self.belief.sample(theta_key))[0][None]
            return jax.vmap(lambda key: self.observation.sample(key, {}, f)[0])(row_keys(key, self.rows, first))

        return draw_in_chunks(draw, jax.random.split(key, n))

    def _repeated(self, value: Array) -> Array:
        return jnp.broadcast_to(value, (self.rows, *jnp.shape(value)))


@jax.jit
def _quantile(pred: ConjugatePredictive, probability: Array) -> Array:
    ones = jnp.ones_like(pred.mean)
    lower = doubled(lambda end: pred.cdf(end) > probability, -ones, steps=60)
    upper = doubled(lambda end: pred.cdf(end) < probability, ones, steps=60)
    quantile = bisect(lambda y: pred.cdf(y) < probability, (lower, upper), steps=120)
    return quantile_in_support(quantile, probability, pred.support, pred.cdf)


@jax.jit
def _narrowed(pred: ConjugatePredictive, ends: Ends, level: Number) -> Ends:
    return Predictive._narrowed(pred, ends, level)
