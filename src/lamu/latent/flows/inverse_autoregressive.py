"""Inverse autoregressive flows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.latent.autoregressive.masked import init_layers, layer_masks, masked_outputs
from lamu.latent.flows.conditioned import conditioned, init_conditioned
from lamu.latent.flows.interface import Flow
from lamu.networks.multilayer import require_widths
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey

__all__ = ["InverseAutoregressive"]


@record
@sized
class InverseAutoregressive(Flow):
    r"""A flow whose every coordinate is gated by a masked network of those before it.

    \[ g(z)_d = \sigma_d z_d + (1 - \sigma_d)\, m_d, \qquad \sigma_d = \mathrm{sigmoid}(s_d), \qquad
       (m_d, s_d) = f_d(z_{<d}, h), \qquad \log |\det| = \sum_d \log \sigma_d \]

    The order of the coordinates is turned round before, so that a stack of such flows mixes them. The inverse takes D
    passes.

    Attributes:
        widths: the widths of the masked network's hidden layers.

    Raises:
        ValueError: for no hidden layer, or a width that is not a positive integer.

    Source: Kingma, Salimans, Jozefowicz, Chen, Sutskever & Welling (2016), algorithm 1 and equations 11 and 12.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import InverseAutoregressive
        >>> flow = InverseAutoregressive((8,))
        >>> params = flow.init(jax.random.key(0), 3, 0, float)
        >>> image, log_det = flow.forward(params, jnp.ones(3), jnp.zeros(0))
        >>> bool(jnp.allclose(flow.inverse(params, image, jnp.zeros(0)), 1.0, atol=1e-5))
        True
    """

    widths: tuple[int, ...] = static(default=(64,))

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        if not self.widths:
            raise ValueError("InverseAutoregressive(()) has no hidden layer; give at least one width, for instance 64")
        require_widths(self.widths)

    def init(self, key: RandomKey, size: int, context: int, dtype: Any) -> Params:
        """Returns a masked network whose gates are open: σ = sigmoid(2)."""
        weights, of_context = jax.random.split(key)
        layers = init_layers(weights, (size, *self.widths, 2 * size), "tanh", dtype)
        last = layers[len(self.widths)]
        gates = jnp.tile(jnp.array([0.0, 2.0], dtype), size)
        layers[len(self.widths)] = {"kernel": 0.1 * last["kernel"], "bias": gates}
        return {"layers": layers, "context": init_conditioned(of_context, context, self.widths[0], dtype)}

    def forward(self, params: Params, z: Array, context: Array) -> tuple[Array, Array]:
        """Returns g(z) and the sum of the logarithms of the gates."""
        z = jnp.flip(z)
        mean, gate = self._conditionals(params, z, context)
        share = jax.nn.sigmoid(gate)
        return share * z + (1 - share) * mean, jnp.sum(jax.nn.log_sigmoid(gate))

    def inverse(self, params: Params, image: Array, context: Array) -> Array:
        """Returns z, one coordinate after the other."""

        def one(d: Any, z: Array) -> Array:
            mean, gate = self._conditionals(params, z, context)
            share = jax.nn.sigmoid(gate)
            return z.at[d].set((image[d] - (1 - share[d]) * mean[d]) / share[d])

        return jnp.flip(jax.lax.fori_loop(0, image.size, one, jnp.zeros_like(image)))

    def _conditionals(self, params: Params, z: Array, context: Array) -> tuple[Array, Array]:
        """Returns m and s."""
        masks = layer_masks(z.size, self.widths, 2)
        shift = conditioned(params["context"], context)
        outputs = masked_outputs(params["layers"], masks, z[None, :], "tanh", shift[None, :]).reshape(-1, 2)
        return outputs[:, 0], outputs[:, 1]
