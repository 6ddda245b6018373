"""Expectations of a belief about discrete weights: averages over points, each with a way back to μ."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from lamu.record import record, static
from lamu.typing import Params, RandomKey

__all__ = ["Points", "ZeroTemperature"]


@runtime_checkable
class Points(Protocol):
    r"""An expectation that is an average over points, each with a way back from \(\nabla_\theta\) to \(\nabla_\mu\).

    `lamu.expectations.Relaxed` is one, `ZeroTemperature` another.

    Attributes:
        samples: how many points are averaged.
    """

    @property
    def samples(self) -> int:
        """How many points are averaged."""
        ...

    def point(self, key: RandomKey, belief: Any) -> tuple[Params, Any]:
        r"""Returns a point θ, and the function from \(\nabla\bar\ell(\theta)\) to the gradient in μ.

        Args:
            key: for a draw.
            belief: q, an exponential family.
        """
        ...


@record
class ZeroTemperature:
    r"""The delta method in the limit of zero temperature: the gradient at the signs, taken for the gradient in μ.

    \[ \mu = \tanh\lambda \to \mathrm{sign}\,\lambda, \qquad
       \nabla_\mu E_q[\bar\ell] \approx \nabla_\theta \bar\ell(\theta)\big|_{\theta = \mathrm{sign}\,\lambda} \]

    One gradient.

    Source: Meng, Bachmann & Khan (2020), section 3 and table 1.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Binary
        >>> from lamu.natural_rule import ZeroTemperature
        >>> ZeroTemperature().point(jax.random.key(0), Binary(jnp.array([0.3, -2.0])))[0].tolist()
        [1.0, -1.0]
    """

    samples: int = static(default=1)

    departure = "delta at zero temperature"

    def point(self, key: RandomKey, belief: Any) -> tuple[Params, Any]:
        """Returns the signs, and nothing to do."""
        return belief.mode, lambda gradient: gradient
