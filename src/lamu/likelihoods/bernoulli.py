r"""Two classes, one logit: \(p(y = 1 \mid f) = \sigma(f)\)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid

from lamu.likelihoods.interface import Likelihood
from lamu.record import record
from lamu.supports import TwoClasses
from lamu.typing import Array, Params, RandomKey

__all__ = ["Bernoulli", "log_sigmoid"]


@jax.custom_jvp
def log_sigmoid(f: Array) -> Array:
    r"""Returns \(\log \sigma(f) = \min(f, 0) - \log(1 + e^{-|f|})\).

    Value and slope, \(\sigma(-f)\), share one exponential, which on a linear predictor is most of the work: with
    `jax.nn.log_sigmoid`, whose derivative takes two more, a gradient of a logistic regression takes 1.4 times as long.

    Args:
        f: logits, of any shape.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods.bernoulli import log_sigmoid
        >>> log_sigmoid(jnp.array([0.0, -1e4, 1e4])).round(4).tolist()
        [-0.6931..., -10000.0, 0.0]
    """
    return jnp.minimum(f, 0.0) - jnp.log1p(jnp.exp(-jnp.abs(f)))


@jax.custom_jvp
def _sigmoid_of_minus(f: Array) -> Array:
    shared = jnp.exp(-jnp.abs(f))
    return jnp.where(f > 0, shared, 1.0) / (1.0 + shared)


@log_sigmoid.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return log_sigmoid(*primals), _sigmoid_of_minus(*primals) * tangents[0]


@_sigmoid_of_minus.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # By hand, as that of |f| is zero at f = 0, where many networks start.
    (f,) = primals
    return _sigmoid_of_minus(f), -_sigmoid_of_minus(f) * _sigmoid_of_minus(-f) * tangents[0]


@record
class Bernoulli(Likelihood):
    r"""A binary target with one logit: \(p(y \mid f) = \sigma(f)^y \sigma(-f)^{1-y}\), \(\sigma(f) = 1/(1 + e^{-f})\).

    The outputs are `[batch, 1]`, the targets `[batch]`, zero or one in any dtype (Booleans too). Log-concave, with
    nothing to learn beside f.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Bernoulli
        >>> Bernoulli().mean({}, jnp.array([[0.0], [1e4], [-1e4]])).tolist()
        [0.5, 1.0, 0.0]
    """

    support = TwoClasses()
    log_concave = True

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the targets are zeros and ones, `[batch]`."""
        y = np.asarray(y)
        if y.ndim != 1:
            raise ValueError(f"the targets have shape {y.shape}; Bernoulli takes zeros and ones of shape [batch]")
        self.support.check(y, "Bernoulli")

    def outputs(self, y: Any) -> int:
        """Returns one: a single logit."""
        return 1

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\log \sigma((2y - 1) f)\) in nats, `[batch]`.

        NumPyro's density is not used here: its derivative at f = 0, where many networks start, is the one-sided one.
        """
        sign = 2.0 * jnp.reshape(y, f.shape[:1]).astype(f.dtype) - 1.0
        return log_sigmoid(sign * f[:, 0])

    def information(self, params: Params, f: Array) -> Array:
        r"""Returns \(\sigma(f) \sigma(-f)\), `[batch, 1, 1]`."""
        return self.variance(params, f)[:, None, None]

    def mean(self, params: Params, f: Array) -> Array:
        """Returns the probability of one, `[batch]`."""
        return sigmoid(f[:, 0])

    def variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(\sigma(f) \sigma(-f)\), `[batch]`, which does not cancel where p(1 − p) would."""
        return sigmoid(f[:, 0]) * sigmoid(-f[:, 0])

    def entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(-\sigma(f) \log \sigma(f) - \sigma(-f) \log \sigma(-f)\) in nats, `[batch]`."""
        logit = f[:, 0]
        return -sigmoid(logit) * log_sigmoid(logit) - sigmoid(-logit) * log_sigmoid(-logit)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one draw a row, integers `[batch]`."""
        return jax.random.bernoulli(key, sigmoid(f[:, 0])).astype(jnp.result_type(int))
