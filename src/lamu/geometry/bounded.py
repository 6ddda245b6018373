r"""Steps that are short in what the belief becomes: \(KL(q_{\text{new}} \,\|\, q_{\text{old}}) \le \epsilon\)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lamu import tree
from lamu.geometry.arrows import Geometry, Straight
from lamu.record import record
from lamu.typing import Array, Number, Params

__all__ = ["Bounded", "Shortened", "largest_share"]


@record
class Bounded:
    r"""Another arrow, at the largest share of its rate for which the belief changes by at most ε nats.

    \[ \rho' = \max\Big\{ t\rho : t \in [0, 1],\; \tfrac12 \big( \mathrm{tr}(S S_t^{-1}) - D + \log\det S_t - \log\det
       S \big) \le \epsilon \Big\}, \qquad S_t = \mathrm{move}_{t\rho}(S, H) \]

    which is \(KL(q_t \,\|\, q)\) of Gaussians about one mean, whatever the scale of S. Where the bound is loose the
    other arrow is followed to the bit. Since a belief on the boundary of the cone is infinitely far, no step leaves it.
    The share is found by bisection where the bound is tight, with one determinant and trace for each bit of the dtype.

    A `Scalar` does not know how many coordinates it stands for: there ε is for one of them. `Shortened` bounds what the
    mean's move adds.

    Attributes:
        base: the other arrow.
        epsilon: ε, in nats.

    Raises:
        ValueError: for a bound that is not positive.

    Source: Schulman et al. (2015) for the constraint; Lin, Schmidt & Khan (2020) for the problem that it solves.

    Examples:
        >>> from lamu.geometry.bounded import Bounded
        >>> from lamu.operators import Scalar
        >>> float(Bounded(epsilon=10.0).move(Scalar(2.0), Scalar(4.0), 0.5).value)
        3.0
        >>> 0.0 < float(Bounded(epsilon=0.1).move(Scalar(1.0), Scalar(-9.0), 0.5).value) < 1.0
        True
    """

    base: Geometry = Straight()
    epsilon: Number = 0.1

    stays_positive = True

    def __post_init__(self) -> None:
        _require_positive(self.epsilon)

    @property
    def departure(self) -> str:
        """The base's departure, and this one."""
        return f"{self.base.departure}, bounded divergence" if self.base.departure else "bounded divergence"

    def move(self, precision: Any, target: Any, rate: Any) -> Any:
        """Returns the precision after the largest share of the base's step that the bound allows."""
        like = precision.some_vector()
        before = precision.logdet(like)

        def divergence(share: Any) -> Array:
            new = self.base.move(precision, target, share * rate).factored()
            excess = new.trace_solve(precision, like) - tree.dimension(like) + new.logdet(like) - before
            return jnp.where(new.is_positive(like), excess / 2, jnp.nan)

        share = largest_share(divergence, self.epsilon)
        # At the whole step the rate is the rate itself, and not its product with one in another dtype.
        moved = self.base.move(precision, target, share * rate)
        whole = self.base.move(precision, target, rate)
        return jax.tree.map(lambda a, b: jnp.where(share >= 1, b, a), moved, whole)


@record
class Shortened:
    r"""A metric whose direction is shortened where the mean's move would change the belief by too much.

    \[ d \leftarrow \min\Big(1, \sqrt{2 \epsilon / d^\top P d}\Big)\, d \]

    so that \(\tfrac12 d^\top P d \le \epsilon\): at rate ρ and concentration κ the mean's move adds
    \(\kappa \rho^2 \tfrac12 d^\top P d \le \kappa \rho^2 \epsilon\) to \(KL(q_{\text{new}} \,\|\, q_{\text{old}})\),
    with the new precision in the place of the old. Unlike a clipped direction it keeps its direction.

    Attributes:
        base: the metric.
        epsilon: ε, in nats a row.

    Raises:
        ValueError: for a bound that is not positive.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.update_rules import Inverse
        >>> from lamu.geometry.bounded import Shortened
        >>> from lamu.operators import Scalar
        >>> d = Shortened(Inverse(), 0.125).direction(Scalar(4.0), {"w": jnp.asarray(8.0)}, 1, 0.1)["w"]
        >>> float(d), float(4.0 * d**2 / 2)
        (0.25, 0.125)
    """

    base: Any
    epsilon: Number = 0.1

    def __post_init__(self) -> None:
        _require_positive(self.epsilon)

    @property
    def is_precision(self) -> bool:
        """Whether the base metric treats the scale as a precision."""
        return self.base.is_precision

    @property
    def departure(self) -> str:
        """The base's departure, and this one."""
        return f"{self.base.departure}, shortened steps" if self.base.departure else "shortened steps"

    def direction(self, precision: Any, gradient: Params, count: Any, rate: Any) -> Params:
        """Returns the base's direction, or as much of it as the bound allows."""
        direction = self.base.direction(precision, gradient, count, rate)
        length = tree.dot(direction, precision.matvec(direction)) / 2
        far = length > tree.cast(self.epsilon, length)
        share = jnp.sqrt(tree.cast(self.epsilon, length) / jnp.where(far, length, jnp.ones_like(length)))
        return tree.scale(direction, jnp.where(far, share, jnp.ones_like(share)))


def largest_share(divergence: Callable[[Any], Array], epsilon: Number) -> Array:
    """Returns the largest t in [0, 1] at which a divergence that grows from zero is at most ε, by bisection."""
    whole = divergence(jnp.ones(()))
    bound = jnp.asarray(epsilon, whole.dtype)

    def halved(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        within = divergence(middle) <= bound
        return jnp.where(within, middle, low), jnp.where(within, high, middle)

    def search() -> Array:
        # In floating numbers the ends meet after as many halvings as the mantissa has bits.
        steps = jnp.finfo(whole.dtype).nmant + 4
        return jax.lax.fori_loop(0, steps, halved, (jnp.zeros_like(whole), jnp.ones_like(whole)))[0]

    return jax.lax.cond(whole <= bound, lambda: jnp.ones_like(whole), search)


def _require_positive(epsilon: Any) -> None:
    if not isinstance(epsilon, Tracer) and not epsilon > 0:
        raise ValueError(f"a bound of {epsilon!r} nats would stop every step; give a positive one")
