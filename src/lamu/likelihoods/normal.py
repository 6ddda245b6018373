"""Normal likelihoods with given, learned or predicted scale, and with correlated targets."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import ndtr

from lamu.base.arguments import require_positive
from lamu.families.special import log_normal_cdf, log_normal_interval
from lamu.likelihoods.bases import DispersionPrior, IndependentTargets, LearnedScale, LogNormalDispersion, target_of
from lamu.likelihoods.interface import Likelihood
from lamu.record import record
from lamu.supports import Real
from lamu.typing import Array, Number, Params, RandomKey, Targets

__all__ = ["Gaussian", "HeteroscedasticGaussian", "MultivariateGaussian"]


_ENTROPY = 0.5 * math.log(2 * math.pi * math.e)  # of a standard normal, in nats


class NormalNoise(IndependentTargets):
    """Base class of likelihoods with independent normal targets, whose means and scales a subclass defines."""

    support = Real()

    def moments(self, params: Params, f: Array) -> tuple[Array, Array]:
        """Returns the means `[batch, targets]`, and the standard deviations, which broadcast to them."""
        raise NotImplementedError

    def target_log_prob(self, params: Params, f: Array, y: Array) -> Array:
        mean, scale = self.moments(params, f)  # the square of the scale may overflow in single precision
        return jax.scipy.stats.norm.logpdf((y - mean) / scale) - jnp.log(scale)

    def target_mean(self, params: Params, f: Array) -> Array:
        return self.moments(params, f)[0]

    def target_variance(self, params: Params, f: Array) -> Array:
        mean, scale = self.moments(params, f)
        return jnp.broadcast_to(scale**2, mean.shape)

    def target_entropy(self, params: Params, f: Array) -> Array:
        mean, scale = self.moments(params, f)
        return jnp.broadcast_to(_ENTROPY + jnp.log(scale), mean.shape)

    def target_sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        mean, scale = self.moments(params, f)
        return mean + scale * jax.random.normal(key, mean.shape, f.dtype)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one draw a row in the target's shape, differentiable in f and the deviations."""
        return target_of(self.target_sample(key, params, f))

    def target_cdf(self, params: Params, f: Array, y: Array) -> Array:
        return ndtr(self._deviations(params, f, y))

    def target_log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        z = self._deviations(params, f, y)
        return log_normal_cdf(z), log_normal_cdf(-z)

    def log_interval(self, params: Params, f: Array, lower: Array, upper: Array) -> Array:
        """Returns the log probability of an interval, output by output, in the target's shape."""
        ends = (self._deviations(params, f, self._columns(end, f)) for end in (lower, upper))
        return target_of(log_normal_interval(*ends))

    def _deviations(self, params: Params, f: Array, y: Array) -> Array:
        mean, scale = self.moments(params, f)
        return (y - mean) / scale


@record
class Gaussian(NormalNoise, LearnedScale):
    r"""Normal noise with one scale for each output: \(p(y \mid f) = \prod_k N(y_k \mid f_k, \sigma_k^2)\).

    The targets are `[batch]` where there is one output, `[batch, outputs]` where there are several. Quadratic in f,
    hence log-concave.

    Without a scale the noise is learned: the parameters are `{"log_scale": ...}`, the \(\log \sigma_k\) of shape
    `[outputs]`, with the default prior \(\log \sigma_k \sim N(0, 3^2)\). It is weak for targets of order one: two
    standard deviations span σ from 1/400 to 400 (standardise targets, or use `Scaled`).

    Attributes:
        scale: the noise standard deviation σ of every output, in the target's units; None where it is learned.
        scale_prior: the prior of a learned σ.

    Raises:
        ValueError: if the scale is not positive and finite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Gaussian
        >>> log_prob = Gaussian(scale=1.0).log_prob({}, jnp.zeros((2, 1)), jnp.array([0.0, 1.0]))
        >>> [f"{value:.3f}" for value in log_prob]
        ['-0.919', '-1.419']
        >>> Gaussian().init(jnp.array([-1.0, 1.0]))["log_scale"].tolist()
        [0.0]
    """

    scale: Number | None = None
    scale_prior: DispersionPrior = LogNormalDispersion()

    log_concave = True
    quadratic = True

    def dispersion_information(self, params: Params) -> Params:
        r"""Returns \(E[-\partial^2 \log p / \partial (\log \sigma_k)^2] = 2\) for each output, of one row."""
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, 2.0), params)

    def moments(self, params: Params, f: Array) -> tuple[Array, Array]:
        return f, self.dispersion_row(params, f)  # one logarithm an output, not a row

    def target_information(self, params: Params, f: Array) -> Array:
        r"""Returns \(1/\sigma_k^2\)."""
        return 1.0 / self.dispersion(params, f) ** 2

    def marginal(self, params: Params, mean: Array, covariance: Array) -> tuple[Array, Array]:
        r"""Returns the exact \(\int p(y \mid f) N(f \mid m, C) df = N(m, C + \operatorname{diag}(\sigma_k^2))\).

        Returns:
            The mean and the covariance of the targets, in the same shapes.
        """
        return mean, covariance + jax.vmap(jnp.diag)(self.dispersion(params, mean) ** 2)


_NARROWEST = 1e-6  # of standardised targets; below it squares underflow in float32
_ONE = 0.5413248546129181  # softplus of it is one


@record
class HeteroscedasticGaussian(NormalNoise):
    r"""Normal noise with a scale that depends on the inputs: \(p(y \mid f) = \prod_k N(y_k \mid f_k, \sigma_k^2)\).

    \[ \sigma_k = \tau \, (10^{-6} + \log(1 + e^{f_{K+k} + c})), \qquad c = \log(e - 1) \]

    The network has two outputs a target: first the K means, then one number for each standard deviation, which is one
    at zero, grows linearly above and falls exponentially below. With an exponential throughout, one long step could
    widen the noise so far that gradients vanish. The targets are `[batch]` where there is one, `[batch, K]` where there
    are several. There are no dispersions: only the prior on the weights keeps the scales from fitting single rows. Not
    concave in f jointly. A network trained to return a log variance v, as for PyTorch's `GaussianNLLLoss`, must return
    \(\log(e^{\exp(v / 2)} - 1) - c\) instead.

    Attributes:
        factor: τ, a factor of every standard deviation; `lamu.fit_table` sets it by held-out rows.

    Raises:
        ValueError: for a factor that is not positive and finite.

    Source: Nix & Weigend (1994); Lakshminarayanan, Pritzel & Blundell (2017), equation 1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import HeteroscedasticGaussian
        >>> variance = HeteroscedasticGaussian().variance({}, jnp.array([[1.0, 0.0], [1.0, 100.0]]))
        >>> [round(float(value), 2) for value in variance**0.5]
        [1.0, 100.54]
    """

    factor: Any = 1.0

    def __post_init__(self) -> None:
        require_positive("factor", self.factor, "give 1 for those of f")

    def targets_shape(self, f: Array) -> tuple[int, ...]:
        return f.shape[0], f.shape[1] // 2

    def outputs(self, y: Targets) -> int:
        """Returns two for every value of a row."""
        return 2 * super().outputs(y)

    def output_scales(self, width: int) -> tuple[str, ...]:
        return ("means",) * (width // 2) + ("log deviations",) * (width - width // 2)

    def moments(self, params: Params, f: Array) -> tuple[Array, Array]:
        mean, wide = jnp.split(f, 2, axis=-1)
        return mean, jnp.asarray(self.factor, f.dtype) * (_NARROWEST + jax.nn.softplus(wide + _ONE))

    def target_information(self, params: Params, f: Array) -> Array:
        r"""Returns \((1, 2 \sigma_k'^2) / \sigma_k^2\), for the means and for the outputs of the scales."""
        scale = self.moments(params, f)[1]
        slope = jnp.asarray(self.factor, f.dtype) * jax.nn.sigmoid(jnp.split(f, 2, axis=-1)[1] + _ONE)
        return jnp.concatenate([scale**-2, 2 * (slope / scale) ** 2], axis=-1)


_LOG_TWO_PI = math.log(2 * math.pi)


@record
class MultivariateGaussian(NormalNoise):
    r"""Normal noise correlated between targets: \(p(y \mid f) = N(y \mid f, \Sigma)\). Quadratic in f.

    The targets are `[batch, outputs]`. A learned covariance is \(\Sigma = D U U^\top D\): D the diagonal of
    \(e^{\text{log\_scale}}\), U lower triangular with ones on its diagonal and `params["mixing"]` below, row by row.
    Their priors are \(N(0, 3^2)\) and \(N(0, 1)\), so learning starts from independent noise.

    Attributes:
        covariance: Σ, `[outputs, outputs]`; None where it is learned.

    Raises:
        ValueError: if the covariance is not symmetric and positive definite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import MultivariateGaussian
        >>> likelihood = MultivariateGaussian(jnp.array([[1.0, 0.5], [0.5, 1.0]]))
        >>> likelihood.log_prob({}, jnp.zeros((1, 2)), jnp.zeros((1, 2))).round(3).tolist()
        [-1.694...]
    """

    covariance: Any = None

    log_concave = True
    quadratic = True

    def __post_init__(self) -> None:
        if self.covariance is None or isinstance(self.covariance, Tracer):
            return
        matrix = np.asarray(self.covariance, float)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"the covariance has shape {matrix.shape}; give [outputs, outputs]")
        symmetric = np.allclose(matrix, matrix.T, rtol=1e-6)
        if not (np.isfinite(matrix).all() and symmetric and np.linalg.eigvalsh(matrix).min() > 0):
            raise ValueError(
                f"the covariance {matrix.tolist()} is not symmetric and positive definite; give the covariance of the "
                "noise, or leave it out to learn it"
            )

    def check(self, y: Targets) -> None:
        """Raises a ValueError unless the targets are finite numbers, `[batch, outputs]`, two outputs or more."""
        if np.ndim(y) != 2:
            raise ValueError(f"the targets have shape {np.shape(y)}; MultivariateGaussian takes [batch, outputs]")
        super().check(y)
        if self.covariance is not None and np.shape(y)[1] != np.shape(self.covariance)[0]:
            raise ValueError(
                f"the targets have {np.shape(y)[1]} outputs, and the covariance {np.shape(self.covariance)[0]}; give "
                "as many"
            )

    def init(self, y: Targets) -> Params:
        """Returns the log standard deviations of the targets, without correlation."""
        if self.covariance is not None:
            return {}
        log_scale = Gaussian().init(y)["log_scale"]
        K = log_scale.size
        return {"log_scale": log_scale, "mixing": jnp.zeros(K * (K - 1) // 2, log_scale.dtype)}

    def log_prior(self, params: Params) -> Array:
        """Returns the log density of the parameters in nats; zero where the covariance is given."""
        if self.covariance is not None:
            return jnp.asarray(0.0)
        mixing = jnp.sum(jax.scipy.stats.norm.logpdf(params["mixing"]))
        return jnp.sum(jax.scipy.stats.norm.logpdf(params["log_scale"], 0.0, 3.0)) + mixing

    def sample_prior(self, key: RandomKey, params: Params) -> Params:
        """Returns normal draws of the parameters; empty where the covariance is given."""
        if self.covariance is not None:
            return params
        keys = dict(zip(("log_scale", "mixing"), jax.random.split(key), strict=True))
        draws = {name: jax.random.normal(k, params[name].shape, params[name].dtype) for name, k in keys.items()}
        return {**draws, "log_scale": 3.0 * draws["log_scale"]}

    def scale_noise(self, params: Params, factor: Number) -> Params | None:
        """Returns the parameters with every scale multiplied by a factor; None where the covariance is given."""
        if self.covariance is not None:
            return None
        leaf = params["log_scale"]
        return {**params, "log_scale": leaf + jnp.log(jnp.asarray(factor, leaf.dtype))}

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the log density in nats, `[batch]`."""
        L = self._root(params, f)
        z = solve_triangular(L, (jnp.reshape(y, f.shape).astype(f.dtype) - f).T, lower=True)
        return -0.5 * jnp.sum(z**2, axis=0) - 0.5 * f.shape[1] * _LOG_TWO_PI - jnp.sum(jnp.log(jnp.diag(L)))

    def information(self, params: Params, f: Array) -> Array:
        r"""Returns \(\Sigma^{-1}\), `[batch, outputs, outputs]`."""
        root = self.information_root(params, f)
        return root @ root.swapaxes(1, 2)

    information_diagonal = Likelihood.information_diagonal

    def information_root(self, params: Params, f: Array) -> Array:
        r"""Returns \(L^{-\top}\), `[batch, outputs, outputs]`."""
        inverse = solve_triangular(self._root(params, f), jnp.eye(f.shape[1], dtype=f.dtype), lower=True)
        return jnp.broadcast_to(inverse.T[None], (*f.shape, f.shape[1]))

    def moments(self, params: Params, f: Array) -> tuple[Array, Array]:
        """Returns f and the roots of the diagonal of Σ, the marginal standard deviations."""
        return f, jnp.broadcast_to(jnp.sqrt(jnp.sum(self._root(params, f) ** 2, axis=1))[None], f.shape)

    def entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(\tfrac12 \log |2 \pi e \Sigma|\) in nats, `[batch]`."""
        logdet = jnp.sum(jnp.log(jnp.diag(self._root(params, f))))
        return jnp.broadcast_to(logdet + 0.5 * f.shape[1] * (1.0 + _LOG_TWO_PI), f.shape[:1])

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one draw a row, `[batch, outputs]`."""
        return f + jax.random.normal(key, f.shape, f.dtype) @ self._root(params, f).T

    def marginal(self, params: Params, mean: Array, covariance: Array) -> tuple[Array, Array]:
        r"""Returns \((m, C + \Sigma)\).

        Returns:
            The mean and the covariance of the targets, in the same shapes.
        """
        L = self._root(params, mean)
        return mean, covariance + (L @ L.T)[None]

    def _root(self, params: Params, f: Array) -> Array:
        """Returns L, `[outputs, outputs]`, in the dtype of f."""
        if self.covariance is not None:
            return jnp.linalg.cholesky(jnp.asarray(self.covariance, f.dtype))
        K = f.shape[1]
        unit = jnp.eye(K, dtype=f.dtype).at[np.tril_indices(K, -1)].set(params["mixing"].astype(f.dtype))
        return jnp.exp(params["log_scale"]).astype(f.dtype)[:, None] * unit
