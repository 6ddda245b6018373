r"""How the rule moves: a precision S towards its target H, or λ towards \(-\nabla_\mu E_q[\ell]\)."""

# Along the straight line of the rule, bent to stay positive, or without forgetting. With \(\lambda_2 = -\tfrac12 S\)
# and \(\nabla_{\mu_2} E_q[\ell] = \tfrac12 H\) the two are one step.

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.families import Gaussian, MultivariateNormal, Product
from lamu.operators.retraction import retracted
from lamu.record import record

__all__ = ["Accumulation", "FamilyGeometry", "Geometry", "Guarded", "Retraction", "Straight"]


@runtime_checkable
class Geometry(Protocol):
    """The arrow of the rule.

    Attributes:
        departure: what the arrow changes about the rule, in a word or two; empty for the rule itself.
        stays_positive: whether a precision can never leave the cone of positive matrices.
    """

    departure: str
    stays_positive: bool

    def move(self, precision: Any, target: Any, rate: Any) -> Any:
        """Returns the precision after one step of the given rate towards the target.

        Args:
            precision: S, or natural parameters λ: a tree that is linear in its leaves.
            target: H, of the same structure; it need not be positive.
            rate: ρ.
        """
        ...


@runtime_checkable
class FamilyGeometry(Geometry, Protocol):
    """An arrow for beliefs of any exponential family too."""

    def step(self, belief: Any, target: Any, rate: Any) -> Any:
        """Returns the belief after one step of the given rate towards other natural parameters.

        Args:
            belief: q, of an exponential family or a product of such families.
            target: λ′, a tree like `belief.to_natural()`.
            rate: ρ.
        """
        ...


@record
class Straight:
    r"""The rule itself, straight in λ: \(S \leftarrow S + \rho\,(H - S)\).

    Where H is indefinite and ρ large, the result may leave the cone of precisions; `Retraction` cannot.

    Source: Khan & Rue (2021), equation 3.

    Examples:
        >>> from lamu.geometry import Straight
        >>> from lamu.operators import Scalar
        >>> Straight().move(Scalar(2.0), Scalar(4.0), 0.5)
        Scalar(value=3.0)
    """

    departure = ""
    stays_positive = False

    def move(self, precision: Any, target: Any, rate: Any) -> Any:
        """Returns (1 − ρ) S + ρ H."""
        return jax.tree.map(lambda s, h: s + tree.cast(rate, s) * (h - s), precision, target)

    def step(self, belief: Any, target: Any, rate: Any) -> Any:
        """Returns the belief of (1 − ρ) λ + ρ λ′."""
        return belief.with_natural(self.move(belief.to_natural(), target, rate))


@record
class Retraction:
    r"""The improved rule: a second-order retraction that keeps S positive whatever H and ρ are.

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

    def move(self, precision: Any, target: Any, rate: Any) -> Any:
        """Returns the retracted precision."""
        return retracted(precision, jax.tree.map(lambda s, h: h - s, precision, target), rate)

    def step(self, belief: Any, target: Any, rate: Any) -> Any:
        """Returns the belief after the family's own retraction along λ′ − λ."""
        return belief.retract(tree.add(target, belief.to_natural(), -1.0), rate)


@record
class Guarded:
    r"""The rule itself, straight in λ; of a Gaussian that would end beyond the positive precisions the retraction.

    Messages through likelihoods whose log density is not concave, such as a Student t, can point there.

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

    def move(self, precision: Any, target: Any, rate: Any) -> Any:
        """Returns (1 − ρ) S + ρ H, straight: of a belief alone is it known where its domain ends."""
        return Straight().move(precision, target, rate)

    def step(self, belief: Any, target: Any, rate: Any) -> Any:
        """Returns the belief of (1 − ρ) λ + ρ λ′, or that of the retraction where it is none."""
        if isinstance(belief, Product):
            parts = belief.factors.items()
            return Product({name: self.step(part, target[name], rate) for name, part in parts})
        if not isinstance(belief, Gaussian | MultivariateNormal):
            return Straight().step(belief, target, rate)
        straight = self.move(belief.to_natural(), target, rate)
        inside = _is_precision(belief, straight[1])
        bent = lambda: Retraction().step(belief, target, rate).to_natural()
        return belief.with_natural(jax.lax.cond(inside, lambda: straight, bent))


def _is_precision(belief: Any, second: Any) -> Any:
    """Whether −2 λ₂ is positive, of every member."""
    if isinstance(belief, Gaussian):
        return second.scale(-2.0).is_positive(belief.mean)
    roots = [jnp.linalg.cholesky(-2.0 * leaf) for leaf in jax.tree.leaves(second)]
    return jnp.all(jnp.asarray([jnp.all(jnp.isfinite(root)) for root in roots]))


@record
class Accumulation:
    r"""The rule without forgetting: \(S \leftarrow S + \rho\,H\).

    The entropy's term is left out, so nothing pulls S back and old curvature counts for ever. With squared gradients
    for H this is what Adagrad does.

    Source: Khan & Rue (2021), equation 3 without the entropy; Duchi, Hazan & Singer (2011).

    Examples:
        >>> from lamu.geometry import Accumulation
        >>> from lamu.operators import Scalar
        >>> Accumulation().move(Scalar(2.0), Scalar(4.0), 1.0)
        Scalar(value=6.0)
    """

    departure = "no forgetting"
    stays_positive = False

    def move(self, precision: Any, target: Any, rate: Any) -> Any:
        """Returns S + ρ H."""
        return jax.tree.map(lambda s, h: s + tree.cast(rate, s) * h, precision, target)

    def step(self, belief: Any, target: Any, rate: Any) -> Any:
        """Returns the belief of λ + ρ λ′."""
        return belief.with_natural(self.move(belief.to_natural(), target, rate))
