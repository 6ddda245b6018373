r"""Families of an encoder's belief \(q(z \mid y)\): how its outputs become one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import jax
import jax.numpy as jnp

from lamu.families import Gaussian
from lamu.latent.flows import Flow, Flowed
from lamu.latent.log_scale import soft_clipped
from lamu.operators import Diagonal
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["BeliefFamily", "Flows", "MeanField"]


class BeliefFamily(ABC):
    """How the outputs of an encoder are a belief about a vector z of D numbers."""

    @abstractmethod
    def outputs(self, size: int) -> int:
        """Returns how many outputs the encoder has.

        Args:
            size: D.
        """

    @abstractmethod
    def init(self, key: RandomKey, size: int, dtype: Any) -> Params:
        """Returns first parameters that all rows share beside the encoder's; empty where there are none.

        Args:
            key: a random key.
            size: D.
            dtype: of the parameters.
        """

    @abstractmethod
    def belief(self, params: Params, outputs: Array) -> Any:
        """Returns q(z | y).

        Args:
            params: of `init`.
            outputs: the encoder's, one vector.
        """


@record
class MeanField(BeliefFamily):
    r"""\(q(z \mid y) = N(m(y), \mathrm{diag}(s(y)^2))\), the encoder's outputs being m and log s.

    Beyond \(\pm 15\) log s grows like the logarithm of its output, so that \(s^2\) and \(s^{-2}\) are finite.

    Source: Kingma & Welling (2014), equation 9.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.latent import MeanField
        >>> MeanField().belief({}, jnp.array([3.0, 0.0])).mean.tolist()
        [3.0]
    """

    def outputs(self, size: int) -> int:
        """Returns 2 D."""
        return 2 * size

    def init(self, key: RandomKey, size: int, dtype: Any) -> Params:
        return {}

    def belief(self, params: Params, outputs: Array) -> Gaussian:
        mean, log_scale = jnp.split(outputs, 2)
        return Gaussian(mean, Diagonal(jnp.exp(-2 * soft_clipped(log_scale))))


@record
class Flows(BeliefFamily):
    """A mean-field Gaussian moved by flows, which read a context of the encoder's.

    Attributes:
        flows: the flows, the first to be applied first.
        context: how many further outputs of the encoder the flows read.

    Raises:
        ValueError: for no flow, or a negative context.

    Source: Rezende & Mohamed (2015), figure 2; Kingma, Salimans, Jozefowicz, Chen, Sutskever & Welling (2016).

    Examples:
        >>> from lamu.latent import Flows, Planar
        >>> Flows((Planar(), Planar()), context=16).outputs(2)
        20
    """

    flows: tuple[Flow, ...]
    context: int = static(default=16)

    def __post_init__(self) -> None:
        if not self.flows:
            raise ValueError("Flows(()) moves nothing; give at least one flow, or use MeanField()")
        if self.context < 0:
            raise ValueError(f"context={self.context!r} is negative; give how many outputs the flows read, from 0")

    def outputs(self, size: int) -> int:
        """Returns 2 D and the context's."""
        return 2 * size + self.context

    def init(self, key: RandomKey, size: int, dtype: Any) -> Params:
        """Returns first parameters of every flow by its number."""
        return {
            number: flow.init(jax.random.fold_in(key, number), size, self.context, dtype)
            for number, flow in enumerate(self.flows)
        }

    def belief(self, params: Params, outputs: Array) -> Flowed:
        """Returns the flowed belief."""
        size = (outputs.size - self.context) // 2
        base = MeanField().belief({}, outputs[: 2 * size])
        return Flowed(base, self.flows, tuple(params[n] for n in range(len(self.flows))), outputs[2 * size :])
