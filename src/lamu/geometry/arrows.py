r"""Geometries of the rule: updates of a precision S towards its target H, or of λ towards \(-\nabla_\mu E_q[\ell]\)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import require, require_whole_field
from lamu.base.bisection import bisected
from lamu.families import Gaussian, MultivariateNormal, Product
from lamu.operators import LowRank, LowRankEigen, Scalar
from lamu.operators.interface import retracted
from lamu.operators.kronecker import StaleFactors
from lamu.record import record, static
from lamu.typing import Array, Belief, Number, Numeric, OperatorTree, Params, Statistics

__all__ = [
    "Accumulation",
    "Bounded",
    "Compressed",
    "Factorwise",
    "FamilyGeometry",
    "Geometry",
    "Guarded",
    "Retraction",
    "Shifted",
    "Shortened",
    "Straight",
    "largest_share",
]


# Along the straight line of the rule, along a retraction that stays positive, or without forgetting. With
# \(\lambda_2 = -\tfrac12 S\) and \(\nabla_{\mu_2} E_q[\ell] = \tfrac12 H\) both updates are one step.


@runtime_checkable
class Geometry(Protocol):
    """The geometry of a step of the rule.

    Attributes:
        departure: how the geometry differs from the rule, in a word or two; empty for the rule itself.
        stays_positive: whether the precision always stays positive definite.
    """

    departure: str
    stays_positive: bool

    def move(self, precision: OperatorTree, target: OperatorTree, rate: Numeric) -> OperatorTree:
        """Returns the precision after one step of the given rate towards the target.

        Args:
            precision: S, or natural parameters λ: a tree that is linear in its leaves.
            target: H, of the same structure; it need not be positive.
            rate: ρ.
        """
        ...


@runtime_checkable
class FamilyGeometry(Geometry, Protocol):
    """A geometry that also applies to beliefs of any exponential family."""

    def step(self, belief: Belief, target: Statistics, rate: Numeric) -> Belief:
        """Returns the belief after one step of the given rate towards other natural parameters.

        Args:
            belief: q, of an exponential family or a product of such families.
            target: λ′, a tree like `belief.to_natural()`.
            rate: ρ.
        """
        ...


@record
class Straight:
    r"""The rule itself, a straight step in λ: \(S \leftarrow S + \rho\,(H - S)\).

    If H is indefinite and ρ large, the result may not be positive definite; that of `Retraction` always is.

    Source: Khan & Rue (2021), equation 3.

    Examples:
        >>> from lamu.geometry import Straight
        >>> from lamu.operators import Scalar
        >>> Straight().move(Scalar(2.0), Scalar(4.0), 0.5)
        Scalar(value=3.0)
    """

    departure = ""
    stays_positive = False

    def move(self, precision: OperatorTree, target: OperatorTree, rate: Numeric) -> OperatorTree:
        """Returns (1 − ρ) S + ρ H."""
        return jax.tree.map(lambda s, h: s + tree.cast(rate, s) * (h - s), precision, target)

    def step(self, belief: Belief, target: Statistics, rate: Numeric) -> Belief:
        """Returns the belief of (1 − ρ) λ + ρ λ′."""
        return belief.with_natural(self.move(belief.to_natural(), target, rate))


@record
class Retraction:
    r"""The improved rule: a second-order retraction that keeps S positive for any H and ρ.

    \[ S \leftarrow S + \rho\,\Delta + \tfrac12 \rho^2 \Delta S^{-1} \Delta, \qquad \Delta = H - S \]

    which is \(\tfrac12 S + \tfrac12 (S + \rho\Delta) S^{-1} (S + \rho\Delta)\), and agrees with the straight step to
    O(ρ²).

    Source: Lin, Schmidt & Khan (2020), equation 12.

    Examples:
        >>> from lamu.geometry import Retraction
        >>> from lamu.operators import Scalar
        >>> Retraction().move(Scalar(1.0), Scalar(-9.0), 0.5).value > 0
        True
    """

    departure = "retraction"
    stays_positive = True

    def move(self, precision: OperatorTree, target: OperatorTree, rate: Numeric) -> OperatorTree:
        """Returns the retracted precision."""
        return retracted(precision, jax.tree.map(lambda s, h: h - s, precision, target), rate)

    def step(self, belief: Belief, target: Statistics, rate: Numeric) -> Belief:
        """Returns the belief after the family's own retraction along λ′ − λ."""
        return belief.retract(tree.add(target, belief.to_natural(), -1.0), rate)


@record
class Guarded:
    r"""The straight step in λ; the retraction if a Gaussian's precision would not be positive.

    Messages through likelihoods whose log density is not concave, such as a Student t, can cause this.

    Source: Khan & Rue (2021), equation 3; Lin, Schmidt & Khan (2020), equation 12, for the retraction.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.geometry import Guarded
        >>> from lamu.operators import Diagonal
        >>> q = Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))
        >>> to = lambda S: (jnp.zeros(1), Diagonal(jnp.array([-S / 2])))
        >>> [Guarded().step(q, to(S), 0.5).precision.values.tolist() for S in (3.0, -9.0)]
        [[2.0], [8.5]]
    """

    departure = ""
    stays_positive = True

    def move(self, precision: OperatorTree, target: OperatorTree, rate: Numeric) -> OperatorTree:
        """Returns the straight step (1 − ρ) S + ρ H: only a belief has a domain to check."""
        return Straight().move(precision, target, rate)

    def step(self, belief: Belief, target: Statistics, rate: Numeric) -> Belief:
        """Returns the belief of (1 − ρ) λ + ρ λ′, or that of the retraction if this is invalid."""
        if isinstance(belief, Product):
            parts = belief.factors.items()
            return Product({name: self.step(part, target[name], rate) for name, part in parts})
        if not isinstance(belief, Gaussian | MultivariateNormal):
            return Straight().step(belief, target, rate)
        straight = self.move(belief.to_natural(), target, rate)
        inside = _is_precision(belief, straight[1])
        bent = lambda: Retraction().step(belief, target, rate).to_natural()
        return belief.with_natural(jax.lax.cond(inside, lambda: straight, bent))


def _is_precision(belief: Belief, second: OperatorTree) -> Array:
    """Whether −2 λ₂ is positive for every member."""
    if isinstance(belief, Gaussian):
        return second.scale(-2.0).is_positive(belief.mean)
    roots = [jnp.linalg.cholesky(-2.0 * leaf) for leaf in jax.tree.leaves(second)]
    return jnp.all(jnp.asarray([jnp.all(jnp.isfinite(root)) for root in roots]))


@record
class Accumulation:
    r"""The rule without forgetting: \(S \leftarrow S + \rho\,H\).

    The entropy's term is omitted, so that nothing pulls S back and old curvature is never forgotten. With squared
    gradients for H this is Adagrad's update.

    Source: Khan & Rue (2021), equation 3 without the entropy; Duchi, Hazan & Singer (2011).

    Examples:
        >>> from lamu.geometry import Accumulation
        >>> from lamu.operators import Scalar
        >>> Accumulation().move(Scalar(2.0), Scalar(4.0), 1.0)
        Scalar(value=6.0)
    """

    departure = "no forgetting"
    stays_positive = False

    def move(self, precision: OperatorTree, target: OperatorTree, rate: Numeric) -> OperatorTree:
        """Returns S + ρ H."""
        return jax.tree.map(lambda s, h: s + tree.cast(rate, s) * h, precision, target)

    def step(self, belief: Belief, target: Statistics, rate: Numeric) -> Belief:
        """Returns the belief of λ + ρ λ′."""
        return belief.with_natural(self.move(belief.to_natural(), target, rate))


@record
class Bounded:
    r"""Another geometry, with its rate reduced until the belief changes by at most ε nats.

    \[ \rho' = \max\Big\{ t\rho : t \in [0, 1],\; \tfrac12 \big( \mathrm{tr}(S S_t^{-1}) - D + \log\det S_t - \log\det
       S \big) \le \epsilon \Big\}, \qquad S_t = \mathrm{move}_{t\rho}(S, H) \]

    which is \(KL(q_t \,\|\, q)\) of Gaussians with the same mean, whatever the scale of S. If the bound is inactive the
    base step is taken unchanged, to the bit. Since the boundary of the cone is infinitely far, no step leaves it.
    An active bound is met by bisection, with one determinant and trace for each bit of the dtype.

    A `Scalar` has no number of coordinates: there ε is for one of them. `Shortened` bounds the contribution of
    the mean's move.

    Attributes:
        base: the other geometry.
        epsilon: ε, in nats.

    Raises:
        ValueError: for a bound that is not positive.

    Source: Schulman et al. (2015) for the constraint; Lin, Schmidt & Khan (2020) for the problem that it solves.

    Examples:
        >>> from lamu.geometry.arrows import Bounded
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
        """The base's departure, and the bound."""
        return f"{self.base.departure}, bounded divergence" if self.base.departure else "bounded divergence"

    def move(self, precision: OperatorTree, target: OperatorTree, rate: Numeric) -> OperatorTree:
        """Returns the precision after the largest share of the base's step within the bound."""
        like = precision.some_vector()
        before = precision.logdet(like)

        def divergence(share: Array) -> Array:
            new = self.base.move(precision, target, share * rate).factored()
            excess = new.trace_solve(precision, like) - tree.dimension(like) + new.logdet(like) - before
            return jnp.where(new.is_positive(like), excess / 2, jnp.nan)

        share = largest_share(divergence, self.epsilon)
        # For the full step the rate is used as it is, not multiplied by one in another dtype.
        partial = self.base.move(precision, target, share * rate)
        full = self.base.move(precision, target, rate)
        return jax.tree.map(lambda a, b: jnp.where(share >= 1, b, a), partial, full)


@record
class Shortened:
    r"""A metric whose direction is shortened if the mean's move would change the belief by too much.

    \[ d \leftarrow \min\Big(1, \sqrt{2 \epsilon / d^\top P d}\Big)\, d \]

    so that \(\tfrac12 d^\top P d \le \epsilon\): at rate ρ and concentration κ the mean's move adds
    \(\kappa \rho^2 \tfrac12 d^\top P d \le \kappa \rho^2 \epsilon\) to \(KL(q_{\text{new}} \,\|\, q_{\text{old}})\),
    where the new precision stands in for the old one. Unlike a clipped direction, it points the same way.

    Attributes:
        base: the metric.
        epsilon: ε, in nats per row.

    Raises:
        ValueError: for a bound that is not positive.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.update_rules import Inverse
        >>> from lamu.geometry.arrows import Shortened
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
        """The base's departure, and the shortening."""
        return f"{self.base.departure}, shortened steps" if self.base.departure else "shortened steps"

    def direction(self, precision: OperatorTree, gradient: Params, count: Numeric, rate: Numeric) -> Params:
        """Returns the base's direction, shortened to the bound."""
        direction = self.base.direction(precision, gradient, count, rate)
        length = tree.dot(direction, precision.matvec(direction)) / 2
        far = length > tree.cast(self.epsilon, length)
        share = jnp.sqrt(tree.cast(self.epsilon, length) / jnp.where(far, length, jnp.ones_like(length)))
        return tree.scale(direction, jnp.where(far, share, jnp.ones_like(share)))


def largest_share(divergence: Callable[[Array], Array], epsilon: Number) -> Array:
    """Returns the largest t in [0, 1] at which a divergence that increases from zero is at most ε, by bisection."""
    full = divergence(jnp.ones(()))
    bound = jnp.asarray(epsilon, full.dtype)

    def search() -> Array:
        # In floating point the ends meet after as many halvings as the mantissa has bits.
        steps = jnp.finfo(full.dtype).nmant + 4
        return bisected(lambda t: divergence(t) <= bound, (jnp.zeros_like(full), jnp.ones_like(full)), steps)[0]

    return jax.lax.cond(full <= bound, lambda: jnp.ones_like(full), search)


def _require_positive(epsilon: Number) -> None:
    require(epsilon > 0, f"a bound of {epsilon!r} nats would stop every step; give a positive one")


@record
class Compressed:
    r"""The straight step, projected: the nearest \(U U^\top\) of the old rank, with the diagonal of S unchanged.

    \[ S' = (1 - \rho) S + \rho H, \qquad S \leftarrow U U^\top + D, \qquad \mathrm{diag}\, S = \mathrm{diag}\, S' \]

    where U has the leading eigenvectors of the columns of S′, \([\sqrt{1-\rho}\, U, \sqrt{\rho}\, W]\), times the roots
    of their eigenvalues. D takes the diagonal of the other columns, so that it stays positive for ρ ≤ 1.

    Source: Mishkin et al. (2018), algorithm 1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.geometry.arrows import Compressed
        >>> from lamu.operators import LowRank
        >>> S = LowRank(jnp.array([[1.0, 0.0]]), jnp.ones(2))
        >>> H = LowRank(jnp.array([[0.0, 2.0]]), jnp.ones(2))
        >>> moved = Compressed().move(S, H, 0.5)
        >>> (moved.root**2).round(2).tolist(), moved.values.round(2).tolist()
        ([[0.0, 2.0]], [1.5, 1.0])
    """

    departure = "projection back to the rank"
    stays_positive = True

    def move(self, precision: OperatorTree, target: OperatorTree, rate: Numeric) -> OperatorTree:
        """Returns (1 − ρ) S + ρ H, compressed to the rank of S, and factored if S is."""
        moved = LowRank(precision.root, precision.values).toward(target, rate)
        return moved.factored() if isinstance(precision, LowRankEigen) else moved


@record
class Factorwise:
    r"""A separate straight step for each Kronecker factor, with decompositions at intervals.

    \[ A \leftarrow A + \rho\,(A' - A), \qquad B \leftarrow B + \rho\,(B' - B), \qquad
       \delta \leftarrow \delta + \rho\,(\delta' - \delta) \]

    The rule would move \(A \otimes B + \delta I\) itself, out of the structure; this step projects back onto it.
    Positive factors stay positive. Directions and draws use factors that are at most `every` steps
    old, because their eigendecomposition is cubic in a layer's width.

    Attributes:
        every: the number of steps between decompositions of the factors.

    Raises:
        ValueError: unless `every` is a positive integer.

    Source: Martens & Grosse (2015), section 5; Zhang et al. (2018), algorithm 2.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.geometry.arrows import Factorwise
        >>> from lamu.operators import Kronecker
        >>> from lamu.operators.kronecker import StaleFactors
        >>> S, H = StaleFactors.of(Kronecker(jnp.eye(1), jnp.eye(1))), Kronecker(3.0 * jnp.eye(1), jnp.eye(1))
        >>> float(Factorwise().move(S, H, 0.5).fresh.input_factor[0, 0])
        2.0
    """

    every: int = static(default=100)

    departure = "factors averaged apart"
    stays_positive = True

    def __post_init__(self) -> None:
        require_whole_field(self, "every")

    def move(self, precision: StaleFactors, target: OperatorTree, rate: Numeric) -> StaleFactors:
        """Returns the precision with each factor moved by the given rate towards the target's."""
        fresh = jax.tree.map(lambda s, h: s + tree.cast(rate, s) * (h - s), precision.fresh, target)
        return precision.moved(fresh, self.every)


@record
class Shifted:
    r"""The rule's metric, damped: \((S + \gamma I)^{-1} g\), for operators that can add a multiple of I exactly.

    S itself is unchanged.

    Attributes:
        damping: γ, in the units of a precision per row.

    Raises:
        ValueError: for a negative damping.

    Source: Levenberg (1944); Zhang et al. (2018), section 3.3 (external damping).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.geometry.arrows import Shifted
        >>> from lamu.operators import Kronecker
        >>> one = jnp.ones((1, 1))
        >>> float(Shifted(1.0).direction(Kronecker(one, 3.0 * one), 2.0 * one, 1, 0.1)[0, 0])
        0.5
    """

    damping: Number

    departure = "damping"
    is_precision = True

    def __post_init__(self) -> None:
        require(self.damping >= 0, f"damping={self.damping!r} would lengthen steps; give a number that is not negative")

    def direction(self, precision: OperatorTree, gradient: Params, count: Numeric, rate: Numeric) -> Params:
        """Returns (S + γ I)⁻¹ g."""
        return precision.add(Scalar(self.damping)).solve(gradient)
