"""Events that are so or not, with log odds that are numbers: the logistic likelihood by its quadratic bound."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.graphs.bernoulli import refuse_other_than_events
from lamu.graphs.expressions import Environment, Expression, lifted
from lamu.graphs.factor import Factor, argument, summed
from lamu.graphs.statistics import Bits, Numbers, Statistics
from lamu.record import record
from lamu.typing import Array

__all__ = ["BernoulliLogits", "BernoulliLogitsFactor"]


def BernoulliLogits(logits: Any) -> BernoulliLogitsFactor:
    r"""Returns the factor of zeros and ones with log odds f, observed or latent in a row.

    \[ \log p(x \mid f) = \big(x - \tfrac12\big) f - \log\big(2\cosh\tfrac f2\big) \;\ge\;
       \big(x - \tfrac12\big) E f - \log\big(2\cosh\tfrac{\xi}{2}\big), \qquad \xi = \sqrt{E f^2} \]

    The right side is the best of the bounds that are quadratic in f. It is exact for a known f, and convex in
    \(E f^2\), so that its gradient is the message of a bound below it: no sweep lowers it.

    Args:
        logits: f: numbers, `W @ z`, sums of them, a member picked by a category.

    Raises:
        TypeError: for an argument without a closed form.

    Source: Jaakkola & Jordan (2000), equations 7 to 11; Tipping (1999).

    Examples:
        >>> from lamu import graphs
        >>> graphs.BernoulliLogits(0.5).shape
        ()
    """
    made = lifted(logits)
    if made.kinds() and not {Numbers, Statistics} & set(made.kinds()):
        made = argument(logits, Numbers, "the logits of BernoulliLogits")
    return BernoulliLogitsFactor(made)


@record
class BernoulliLogitsFactor(Factor):
    """Zeros and ones with log odds. Use `BernoulliLogits`."""

    logits: Any  # f

    kind = Bits
    affine = False

    @property
    def arguments(self) -> dict[str, Expression]:
        # The log odds.
        return {"logits": self.logits}

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self.logits.shape

    def log_density(self, x: Any, at: Environment, observed: Any = None) -> Array:
        # Returns the log probability at a known f, or its bound.
        mean, square = self._moments(at)
        value = jnp.asarray(x.value, mean.dtype)
        return summed((value - 0.5) * mean - _log_two_cosh(square), observed)

    def predicted(self, at: Environment) -> tuple[Array, Array]:
        # Returns p and p(1 − p), with f's variance by MacKay's \(p \approx \sigma(m / \sqrt{1 + \pi s^2/8})\).
        mean, square = self._moments(at)
        p = jax.nn.sigmoid(mean / jnp.sqrt(1.0 + jnp.pi * jnp.maximum(square - mean**2, 0.0) / 8.0))
        return p, p * (1.0 - p)

    def check(self, name: str, value: np.ndarray, observed: np.ndarray) -> None:
        # Raises a ValueError for anything but zeros and ones.
        refuse_other_than_events(name, value, observed)

    def _moments(self, at: Environment) -> tuple[Array, Array]:
        """Returns E f and E f², an entry each."""
        mean = self.logits.first(at)
        return mean, jax.grad(lambda weight: self.logits.quadratic(weight, at))(jnp.zeros_like(mean))


def _log_two_cosh(square: Array) -> Array:
    r"""Returns \(\log(2\cosh(\xi/2))\) of ξ², by its series where ξ is so small that its root has no gradient."""
    small = square < 1e-4
    root = jnp.sqrt(jnp.where(small, 1.0, square))
    far = root / 2.0 + jnp.log1p(jnp.exp(-root))
    return jnp.where(small, jnp.log(2.0) + square / 8.0 - square**2 / 192.0, far)
