"""Affine coupling flows."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.latent.flows.interface import Flow
from lamu.networks import MLP
from lamu.networks.interface import outputs as outputs_of
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey

__all__ = ["Coupling"]


@record
@sized
class Coupling(Flow):
    r"""A flow that shifts and scales one half of the coordinates by a network of the other half.

    \[ g(z)_A = z_A, \qquad g(z)_B = z_B \odot e^{s(z_A, h)} + t(z_A, h), \qquad \log |\det| = \sum_j s_j \]

    with s within (−2, 2) by a hyperbolic tangent. The order of the coordinates is turned round before, so that a stack
    of such flows moves all of them. Both directions take one pass.

    Attributes:
        widths: the widths of the network's hidden layers.

    Raises:
        ValueError: for a width that is not a positive integer; for a vector of one number, which has no halves.

    Source: Dinh, Sohl-Dickstein & Bengio (2017), equations 4, 5 and 7.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import Coupling
        >>> flow = Coupling((8,))
        >>> params = flow.init(jax.random.key(0), 3, 0, float)
        >>> image, log_det = flow.forward(params, jnp.ones(3), jnp.zeros(0))
        >>> bool(jnp.allclose(flow.inverse(params, image, jnp.zeros(0)), 1.0, atol=1e-5))
        True
    """

    widths: tuple[int, ...] = static(default=(64,))

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", MLP(self.widths).widths)

    def init(self, key: RandomKey, size: int, context: int, dtype: Any) -> Params:
        """Returns a network whose last kernel is small."""
        if size < 2:
            raise ValueError(f"a coupling of {size} coordinate has no halves; use Planar() or InverseAutoregressive()")
        kept = size // 2
        network = MLP(self.widths, "tanh")
        params, _ = network.init(key, jnp.zeros((1, kept + context), dtype), 2 * (size - kept))
        last = params["layers"][len(self.widths)]
        params["layers"][len(self.widths)] = {"kernel": 0.1 * last["kernel"], "bias": last["bias"]}
        return params

    def forward(self, params: Params, z: Array, context: Array) -> tuple[Array, Array]:
        """Returns g(z) and the sum of the log scales."""
        kept, moved = jnp.split(jnp.flip(z), [z.size // 2])
        log_scale, shift = self._affine(params, kept, context)
        return jnp.concatenate([kept, moved * jnp.exp(log_scale) + shift]), jnp.sum(log_scale)

    def inverse(self, params: Params, image: Array, context: Array) -> Array:
        kept, moved = jnp.split(image, [image.size // 2])
        log_scale, shift = self._affine(params, kept, context)
        return jnp.flip(jnp.concatenate([kept, (moved - shift) * jnp.exp(-log_scale)]))

    def _affine(self, params: Params, kept: Array, context: Array) -> tuple[Array, Array]:
        """Returns s and t."""
        inputs = jnp.concatenate([kept, context.astype(kept.dtype)])
        outputs, _ = outputs_of(MLP(self.widths, "tanh"), params, {}, inputs[None, :], None, False, None)
        raw, shift = jnp.split(outputs[0], 2)
        return 2 * jnp.tanh(raw / 2), shift
