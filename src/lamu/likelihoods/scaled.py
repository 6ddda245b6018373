r"""Likelihoods of standardised targets in their original units: \(y = a + b z\), \(z \sim p(z \mid f)\)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu.base.arguments import require_positive
from lamu.likelihoods.interface import Likelihood, LikelihoodWrapper
from lamu.record import record
from lamu.typing import Array, DTypeLike, Params, PyTree, RandomKey, Targets

__all__ = ["Scaled"]


def _at_standardised(name: str) -> Callable[..., PyTree]:
    """Returns a method that forwards to the base, with standardised targets."""

    def method(self: Scaled, params: Params, f: Array, y: Array) -> PyTree:
        return getattr(self.base, name)(params, f, self._standardised(y, f.dtype))

    method.__doc__ = getattr(Likelihood, name).__doc__
    return method


@record
class Scaled(LikelihoodWrapper):
    r"""A shifted and scaled target, \(y_k = a_k + b_k z_k\) with z from `base`; results are in the units of y.

    The density includes the Jacobian, \(\log p(y \mid f) = \log p_z((y - a)/b \mid f) - \sum_k \log b_k\). The outputs
    f and the dispersion parameters stay in the units of z, of order one, for which their priors are intended.

    Attributes:
        base: the likelihood of z, for regression.
        shift: a, a number or `[outputs]`, often the mean of the targets.
        scale: b, a number or `[outputs]`, positive, often the standard deviation of the targets.

    Raises:
        ValueError: if the base is not for regression, a scale is not positive and finite, or a shift not finite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Gaussian, Scaled
        >>> likelihood = Scaled(Gaussian(scale=1.0), shift=100.0, scale=20.0)
        >>> likelihood.mean({}, jnp.array([[0.0], [0.5]])).tolist()
        [100.0, 110.0]
    """

    base: Likelihood
    shift: Any
    scale: Any

    def __post_init__(self) -> None:
        if not self.base.support.affine:
            raise ValueError(
                f"Scaled takes a likelihood of all real numbers, and {self.base.name} takes {self.base.support.values};"
                " use it as it is"
            )
        require_positive("scale", self.scale, "give 1 where targets do not vary")
        if not isinstance(self.shift, Tracer) and not np.all(np.isfinite(self.shift)):
            raise ValueError(f"the shift {self.shift} is not finite; compute it from finite targets")

    def check(self, y: Targets) -> None:
        """Raises a ValueError unless the base accepts the targets, and shift and scale have their number of outputs."""
        self.base.check(y)
        for name, value in (("shift", self.shift), ("scale", self.scale)):
            if jnp.ndim(value) == 1 and jnp.size(value) not in (1, _count(y)):
                raise ValueError(
                    f"the {name} has {jnp.size(value)} values, but the targets have {_count(y)} outputs; give one"
                    " value, or one for each output"
                )

    def init(self, y: Targets) -> Params:
        """Returns the base's initial parameters for the standardised targets."""
        y = jnp.asarray(y)
        y = y if jnp.issubdtype(y.dtype, jnp.floating) else y.astype(jnp.result_type(float))
        return self.base.init(self._standardised(y, y.dtype))

    def counted(self, params: Params, f: Array, y: Targets, weights: Array) -> Array:
        return self.base.counted(params, f, self._standardised(y, f.dtype), weights)

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\log p_z((y - a)/b \mid f) - \sum_k \log b_k\) in nats, `[batch]`."""
        z = self._standardised(y, f.dtype)
        return self.base.log_prob(params, f, z) - self._log_jacobian(z)

    def mean(self, params: Params, f: Array) -> Array:
        r"""Returns \(a + b E[z]\)."""
        return self._restored(self.base.mean(params, f))

    def variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(b^2 \operatorname{Var}[z]\)."""
        variance = self.base.variance(params, f)
        return variance * _units(self.scale, _count(variance), f.dtype) ** 2

    def entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(H[z] + \sum_k \log b_k\) in nats, `[batch]`."""
        return self.base.entropy(params, f) + self._log_jacobian(self.base.mean(params, f))

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        r"""Returns one draw \(a + b z\) a row."""
        return self._restored(self.base.sample(key, params, f))

    cdf, log_tails = _at_standardised("cdf"), _at_standardised("log_tails")
    log_cdf, log_survival = _at_standardised("log_cdf"), _at_standardised("log_survival")

    def log_interval(self, params: Params, f: Array, lower: Array, upper: Array) -> Array:
        """Returns the base's log probability between the standardised ends."""
        return self.base.log_interval(params, f, *(self._standardised(end, f.dtype) for end in (lower, upper)))

    distribution = Likelihood.distribution  # the base's is for standardised targets

    def marginal(self, params: Params, mean: Array, covariance: Array) -> tuple[Array, Array] | None:
        r"""Returns \((a + b m, \; B C B)\), \(B = \operatorname{diag}(b)\), for the base's marginal \((m, C)\).

        Args:
            params: the dispersion parameters.
            mean: the mean of f, `[batch, outputs]`.
            covariance: the covariance of f, `[batch, outputs, outputs]`.

        Returns:
            The mean and the covariance of the targets, in the same shapes.
        """
        marginal = self.base.marginal(params, mean, covariance)
        if marginal is None:
            return None
        m, C = marginal
        a, b = _entries(self.shift, m.shape[-1], m.dtype), _entries(self.scale, m.shape[-1], m.dtype)
        return a[None] + b[None] * m, b[None, :, None] * C * b[None, None, :]

    def _standardised(self, y: Array, dtype: DTypeLike) -> Array:
        outputs = _count(y)
        # The difference is taken in the precision of y, since targets far from zero lose digits in float32.
        given = jnp.result_type(y)
        wider = jnp.issubdtype(given, jnp.floating) and jnp.finfo(given).bits > jnp.finfo(dtype).bits
        precise = given if wider else dtype
        z = (jnp.asarray(y, precise) - _units(self.shift, outputs, precise)) / _units(self.scale, outputs, precise)
        return z.astype(dtype)

    def _restored(self, z: Array) -> Array:
        outputs = _count(z)
        return _units(self.shift, outputs, z.dtype) + _units(self.scale, outputs, z.dtype) * z

    def _log_jacobian(self, z: Array) -> Array:
        return jnp.sum(jnp.log(_entries(self.scale, _count(z), z.dtype)))


def _count(y: Targets) -> int:
    """Returns the number of values of a row of targets, which may differ from the width of f."""
    return 1 if jnp.ndim(y) == 1 else jnp.shape(y)[-1]


def _entries(value: PyTree, outputs: int, dtype: DTypeLike) -> Array:
    """Returns a number, or one for each output, as `[outputs]`."""
    return jnp.broadcast_to(jnp.asarray(value, dtype), (outputs,))


def _units(value: PyTree, outputs: int, dtype: DTypeLike) -> Array:
    """Returns the same to broadcast with targets: a scalar for `[batch]`, `[1, outputs]` for `[batch, outputs]`."""
    entries = _entries(value, outputs, dtype)
    return entries[0] if outputs == 1 else entries[None]
