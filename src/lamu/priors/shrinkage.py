r"""Priors that shrink what is not needed: a scale for every input, the horseshoe, and the regularised horseshoe."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.priors.hierarchy import Hierarchy
from lamu.priors.interface import Prior
from lamu.priors.normal import Normal
from lamu.priors.scale_groups import Scale
from lamu.priors.scale_laws import HalfCauchyScale, InverseGammaVariance, ScaleLaw
from lamu.record import record, static
from lamu.typing import Array, Number

__all__ = ["ARD", "Horseshoe", "RegularisedHorseshoe"]


@record
class ARD(Hierarchy):
    r"""Automatic relevance determination: an unknown scale for the weights of every input, \(w_{jk} = \tau_j z_{jk}\).

    Attributes:
        by: which weights share a scale: "input", "unit", "layer" or "weight".
        law: the distribution of τ.
        leaves: the path pattern of the leaves that have scales; `"layers/0/kernel"` for a network's inputs alone.
        weights: the prior of z, of all leaves.

    Raises:
        ValueError, TypeError: as `Hierarchical` and `Scale`.

    Source: MacKay (1994); Neal (1996), section 4.3.

    Examples:
        >>> import lamu
        >>> prior = lamu.priors.ARD(by="input")
        >>> network = prior.around(lamu.networks.MLP((8,)))
    """

    by: str = static(default="input")
    law: ScaleLaw | Any = HalfCauchyScale(1.0)
    leaves: str = static(default="*kernel")
    weights: Any = Normal(1.0)

    def __post_init__(self) -> None:
        Scale(self.law, self.by, self.leaves)

    @property
    def standardised(self) -> Prior:
        return self.weights

    @property
    def levels(self) -> tuple[Scale, ...]:
        return (Scale(self.law, self.by, self.leaves),)


@record
class Horseshoe(Hierarchy):
    r"""The horseshoe: \(w_i = \tau \lambda_i z_i\), \(\tau \sim C^+(0, s)\), \(\lambda_i \sim C^+(0, 1)\), normal z.

    One scale τ shrinks all weights; a heavy tail of its own lets each escape. With \(p_0\) of D weights at work,
    \(s = \frac{p_0}{D - p_0} \sigma / \sqrt N\) is a guess of the global scale.

    Attributes:
        scale: s, the median of the global scale.
        by: which weights share a λ: "weight", "input" or "unit".
        leaves: the path pattern of the leaves that it is about.
        weights: the prior of z, of all leaves.

    Raises:
        ValueError: for a scale that is not positive and finite; and as `Hierarchical` and `Scale`.

    Source: Carvalho, Polson & Scott (2010); Piironen & Vehtari (2017), section 3.3, for s.

    Examples:
        >>> import lamu
        >>> prior = lamu.priors.Horseshoe(scale=0.1)
        >>> [level.by for level in prior.levels]
        ['all', 'weight']
    """

    scale: Number = 1.0
    by: str = static(default="weight")
    leaves: str = static(default="*kernel")
    weights: Any = Normal(1.0)

    def __post_init__(self) -> None:
        _ = self.levels

    @property
    def standardised(self) -> Prior:
        return self.weights

    @property
    def levels(self) -> tuple[Scale, ...]:
        """The global scale, and the local ones."""
        return (
            Scale(HalfCauchyScale(self.scale), "all", self.leaves),
            Scale(HalfCauchyScale(1.0), self.by, self.leaves),
        )


@record
class RegularisedHorseshoe(Hierarchy):
    r"""The horseshoe with a slab: the largest weights are normal of scale c instead of without bound.

    \[ w_i = z_i \frac{c\, \tau \lambda_i}{\sqrt{c^2 + \tau^2 \lambda_i^2}}, \qquad
       c^2 \sim \mathrm{InverseGamma}\big(\tfrac{\nu}{2}, \tfrac{\nu}{2} s_c^2\big) \]

    Attributes:
        scale: s, the median of the global scale τ.
        slab: \(s_c\), the scale of the slab.
        df: ν, the degrees of freedom of the slab, which is Student-t.
        by: which weights share a λ: "weight", "input" or "unit".
        leaves: the path pattern of the leaves that it is about.
        weights: the prior of z, of all leaves.

    Raises:
        ValueError: for a number that is not positive and finite; and as `Hierarchical` and `Scale`.

    Source: Piironen & Vehtari (2017), equations 2.8 to 2.10.

    Examples:
        >>> import lamu
        >>> [level.by for level in lamu.priors.RegularisedHorseshoe(scale=0.1, slab=2.0).levels]
        ['all', 'weight', 'all']
    """

    scale: Number = 1.0
    slab: Number = 1.0
    df: Number = 4.0
    by: str = static(default="weight")
    leaves: str = static(default="*kernel")
    weights: Any = Normal(1.0)

    def __post_init__(self) -> None:
        _ = self.levels

    @property
    def standardised(self) -> Prior:
        return self.weights

    @property
    def levels(self) -> tuple[Scale, ...]:
        """The global scale, the local ones, and the slab's."""
        return (
            Scale(HalfCauchyScale(self.scale), "all", self.leaves),
            Scale(HalfCauchyScale(1.0), self.by, self.leaves),
            Scale(InverseGammaVariance(self.df / 2, self.df / 2 * self.slab**2), "all", self.leaves),
        )

    @property
    def multiplies(self) -> bool:
        """False: the slab bounds the product of the others."""
        return False

    def log_factor(self, logs: list[Array]) -> Array:
        r"""Returns \(-\frac12 \log\big((\tau\lambda_i)^{-2} + c^{-2}\big)\)."""
        *shrinking, slab = logs
        return -jnp.logaddexp(-2 * super().log_factor(shrinking), -2 * slab) / 2
