r"""Relaxed draws of weights ±1, with a floor under the slopes, without which few draws outweigh all the others."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.record import record, static
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Concrete"]


@record
class Concrete:
    r"""Averages over S relaxed draws, as `lamu.expectations.Relaxed`, with slopes kept from zero.

    With \(\delta = \tfrac12 \log\frac{u}{1 - u}\), u uniform on (0, 1),

    \[ \theta = \tanh\big((\lambda + \delta)/\tau\big), \qquad
       \nabla_\mu E_q[\bar\ell] \approx s \odot \nabla_\theta\bar\ell(\theta), \qquad
       s = \frac{1 - \theta^2 + \epsilon}{\tau\,(1 - \tanh^2\lambda + \epsilon)} \]

    At ε = 0 this is the gradient of the expected loss of relaxed weights, biased for τ > 0, and of a variance that
    grows as \(\cosh^2\lambda\): rare draws throw over weights that are nearly certain. The floor bounds s by
    \((1 + \epsilon)/(\tau\epsilon)\) and is a bias more; towards τ = 0 it is all that is left, a straight-through
    gradient at draws of ±1.

    Attributes:
        temperature: τ of the relaxation.
        floor: ε; the authors' program has 1e-10.
        draws: S.

    Raises:
        ValueError: for a temperature that is not positive, a negative floor, or fewer than one draw.

    Source: Meng, Bachmann & Khan (2020), section 3, and the floor in their program; Maddison, Mnih & Teh (2017).

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.algorithms.discrete.concrete import Concrete
        >>> from lamu.families import Binary
        >>> theta, pull = Concrete(temperature=0.5).point(jax.random.key(0), Binary(jnp.array([0.3])))
        >>> bool(jnp.abs(theta[0]) < 1.0), pull(jnp.ones(1)).shape
        (True, (1,))
    """

    temperature: Number = 1.0
    floor: Number = 0.0
    draws: int = static(default=1)

    def __post_init__(self) -> None:
        if isinstance(self.temperature, int | float) and not self.temperature > 0:
            raise ValueError(f"the temperature {self.temperature!r} relaxes nothing; give a positive number")
        if isinstance(self.floor, int | float) and self.floor < 0:
            raise ValueError(f"the floor {self.floor!r} would turn gradients around; give a small number, or 0")
        if not isinstance(self.draws, int) or self.draws < 1:
            raise ValueError(f"{self.draws!r} draws cannot be averaged; ask for at least one")

    @property
    def departure(self) -> str:
        """What it adds to the rule: the relaxation is the expectation's own name."""
        return "" if isinstance(self.floor, int | float) and self.floor == 0 else "slopes floored"

    def point(self, key: RandomKey, belief: Any) -> tuple[Params, Any]:
        """Returns a relaxed draw, and the function from the gradient there to the gradient in μ.

        Args:
            key: for the draw.
            belief: a `Binary`.
        """
        natural = belief.natural().values

        def inside(key: RandomKey, leaf: Array) -> Array:
            noise = jax.random.logistic(key, leaf.shape, leaf.dtype) / 2
            return (leaf + noise) / tree.cast(self.temperature, leaf)

        relaxed = jax.tree.map(inside, tree.keys_like(key, natural), natural)

        def pull(gradient: Params) -> Params:
            return jax.tree.map(lambda g, a, leaf: g * self._slope(a, leaf), gradient, relaxed, natural)

        return jax.tree.map(jnp.tanh, relaxed), pull

    def _slope(self, inside: Array, natural: Array) -> Array:
        floor, temperature = tree.cast(self.floor, natural), tree.cast(self.temperature, natural)
        if isinstance(floor, int | float) and floor == 0:
            return jnp.exp(_log_slope(inside) - _log_slope(natural)) / temperature  # where both may round to zero
        return (jnp.exp(_log_slope(inside)) + floor) / (temperature * (jnp.exp(_log_slope(natural)) + floor))


def _log_slope(a: Array) -> Array:
    """Returns log(1 − tanh² a), without the difference, which has no digits left for large a."""
    size = jnp.abs(a)
    return 2 * (jnp.log(jnp.asarray(2.0, a.dtype)) - size - jnp.log1p(jnp.exp(-2 * size)))
