r"""Independent weights, most of them close to zero and a few far from it: a mixture of two normals of one centre."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lamu.priors.independent import Independent
from lamu.record import record
from lamu.typing import Array, Number, RandomKey

__all__ = ["ScaleMixture", "SpikeAndSlab"]

_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


@record
class SpikeAndSlab(Independent):
    r"""Weights from a wide normal, the slab, or from a narrow one, the spike, each weight on its own.

    \[ p(\theta) = \prod_i \big( \pi\, N(\theta_i \mid m, s_i^2) + (1 - \pi)\, N(\theta_i \mid m, (\epsilon s_i)^2)
       \big) \]

    What the data say nothing about is pulled to m harder than by a normal prior, and large weights are pulled less. The
    spike is narrow and no point mass, so that the density has a gradient; draws have no exact zeros. It is no Gaussian,
    and enters every algorithm through the loss.

    Attributes:
        scale: s, the standard deviation of the slab; a number, a `FanIn`, or a mapping by path pattern.
        loc: m.
        patterns: filled in from a mapping.
        share: π, the share of the slab.
        spike: ε, the standard deviation of the spike as a share of the slab's.

    Raises:
        ValueError: for a share or a spike outside (0, 1); and as every prior of independent weights.

    Source: George & McCulloch (1993), section 2.1, the mixture of two normals; Blundell et al. (2015), equation 7.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import SpikeAndSlab
        >>> prior = SpikeAndSlab({"*bias": 10.0, "*": 1.0}, share=0.5, spike=0.1)
        >>> round(float(prior.log_prob({"kernel": jnp.zeros(1)})), 3)
        0.786
    """

    share: Number = 0.5
    spike: Number = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, part in (("share", "of the slab"), ("spike", "of the slab's standard deviation")):
            value = getattr(self, name)
            if not isinstance(value, Tracer) and not 0.0 < value < 1.0:
                raise ValueError(f"{name}={value!r} is no share {part}; give a number between 0 and 1")

    def log_density(self, z: Array) -> Array:
        """Returns the log density of the mixture of N(0, 1) and N(0, ε²)."""
        share, spike = jnp.asarray(self.share, z.dtype), jnp.asarray(self.spike, z.dtype)
        slab = jnp.log(share) - z * z / 2
        narrow = jnp.log1p(-share) - jnp.log(spike) - (z / spike) ** 2 / 2
        return jnp.logaddexp(slab, narrow) - _HALF_LOG_2_PI

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: Any) -> Array:
        which, noise = jax.random.split(key)
        in_slab = jax.random.bernoulli(which, self.share, shape)
        scale = jnp.where(in_slab, jnp.ones((), dtype), jnp.asarray(self.spike, dtype))
        return scale * jax.random.normal(noise, shape, dtype)


def ScaleMixture(weight: Number = 0.5, wide: Number = 1.0, narrow: Number = 0.05) -> SpikeAndSlab:
    r"""The spike and slab by its two standard deviations, as Bayes by Backprop has it.

    \[ p(\theta) = \prod_j \big( \pi\, N(\theta_j \mid 0, \sigma_1^2) + (1 - \pi)\, N(\theta_j \mid 0, \sigma_2^2) \big)
    \]

    Args:
        weight: π, the share of the wide component.
        wide: σ₁, its standard deviation.
        narrow: σ₂, that of the spike.

    Raises:
        ValueError: for a share outside (0, 1), a standard deviation that is not positive and finite, or a narrow one
            that is not below the wide one.

    Source: Blundell et al. (2015), equation 7.

    Examples:
        >>> from lamu.priors import ScaleMixture
        >>> ScaleMixture(weight=0.5, wide=2.0, narrow=0.5)
        SpikeAndSlab(scale=2.0, loc=0.0, patterns=None, share=0.5, spike=0.25)
    """
    if not any(isinstance(value, Tracer) for value in (weight, wide, narrow)):
        if not 0.0 < weight < 1.0:
            raise ValueError(f"weight={weight!r} leaves one component alone; give a share between 0 and 1")
        if not 0.0 < narrow < wide < math.inf:
            raise ValueError(
                f"narrow={narrow!r} and wide={wide!r} are no standard deviations of a spike and of what is around it; "
                "give 0 < narrow < wide"
            )
    return SpikeAndSlab(wide, share=weight, spike=narrow / wide)
