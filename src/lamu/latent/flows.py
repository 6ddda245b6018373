"""Normalising flows: invertible maps of latents with known determinants."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.base.arguments import sized
from lamu.base.bisection import bisect
from lamu.latent.autoregressive import init_layers, layer_masks, masked_outputs
from lamu.networks import MLP
from lamu.networks.interface import outputs as outputs_of
from lamu.record import record, static
from lamu.typing import Array, DTypeLike, Params, RandomKey

__all__ = ["Coupling", "Flow", "Flowed", "InverseAutoregressive", "Planar", "Radial"]


class Flow:
    r"""An invertible map of a vector, \(z' = g(z; h)\), optionally with a context h, for instance from an encoder.

    \[ \log q(z') = \log q(z) - \log \Big| \det \frac{\partial g}{\partial z} \Big| \]

    Vectors are `[D]`, the context `[C]`, with C = 0 for none. The parameters are a plain dictionary. The base class is
    the identity.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.latent import Flow
        >>> class Shift(Flow):
        ...     def init(self, key, size, context, dtype):
        ...         return {"by": jnp.zeros(size, dtype)}
        ...
        ...     def forward(self, params, z, context):
        ...         return z + params["by"], jnp.zeros((), z.dtype)
        ...
        ...     def inverse(self, params, image, context):
        ...         return image - params["by"]
        >>> Shift().inverse({"by": jnp.ones(2)}, jnp.ones(2), jnp.zeros(0)).tolist()
        [0.0, 0.0]
    """

    def init(self, key: RandomKey, size: int, context: int, dtype: DTypeLike) -> Params:
        """Returns initial parameters, at which the map is near the identity.

        Args:
            key: a random key.
            size: D.
            context: C.
            dtype: dtype of the parameters.
        """
        return {}

    def forward(self, params: Params, z: Array, context: Array) -> tuple[Array, Array]:
        r"""Returns g(z) and \(\log |\det \partial g / \partial z|\) in nats.

        Args:
            params: the parameters.
            z: `[D]`.
            context: h, `[C]`.
        """
        return z, jnp.zeros((), z.dtype)

    def inverse(self, params: Params, image: Array, context: Array) -> Array:
        """Returns the z with g(z) equal to the image.

        Args:
            params: the parameters.
            image: `[D]`.
            context: h, `[C]`.
        """
        return image


def init_flows(flows: tuple[Flow, ...], key: RandomKey, size: int, context: int, dtype: DTypeLike) -> dict[int, Params]:
    """Returns initial parameters of every flow by its number."""
    return {n: flow.init(jax.random.fold_in(key, n), size, context, dtype) for n, flow in enumerate(flows)}


@record
@sized
class Coupling(Flow):
    r"""Affine coupling: shifts and scales one half of the coordinates by a network of the other half.

    \[ g(z)_A = z_A, \qquad g(z)_B = z_B \odot e^{s(z_A, h)} + t(z_A, h), \qquad \log |\det| = \sum_j s_j \]

    with s within (−2, 2) by a hyperbolic tangent. The order of the coordinates is reversed first, so that a stack
    of such flows changes all of them. Both directions take one pass.

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
        object.__setattr__(self, "widths", tuple(self.widths))

    def init(self, key: RandomKey, size: int, context: int, dtype: DTypeLike) -> Params:
        """Returns a network with a small last kernel."""
        if size < 2:
            raise ValueError(f"a coupling of {size} coordinate has no halves; use Planar() or InverseAutoregressive()")
        conditioning = size // 2
        network = MLP(self.widths, "tanh")
        params, _ = network.init(key, jnp.zeros((1, conditioning + context), dtype), 2 * (size - conditioning))
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


@record
class Flowed:
    r"""The distribution of \(z_K = g_K \circ \dots \circ g_1(z_0)\) with \(z_0\) from a known belief.

    \[ \log q(z_K) = \log q_0(z_0) - \sum_k \log \Big| \det \frac{\partial g_k}{\partial z_{k-1}} \Big| \]

    `draw` computes a sample with its density. `log_prob` of any other point inverts the flows.

    Attributes:
        base: q₀, a belief about a vector, `[D]`.
        flows: the flows, the first to be applied first.
        params: the parameters of each.
        context: h, `[C]`.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.latent import Flowed, Planar
        >>> from lamu.operators import Scalar
        >>> params = Planar().init(jax.random.key(0), 2, 0, float)
        >>> belief = Flowed(Gaussian(jnp.zeros(2), Scalar(1.0)), (Planar(),), (params,), jnp.zeros(0))
        >>> z, log_q = belief.draw(jax.random.key(1))
        >>> bool(jnp.allclose(belief.log_prob(z), log_q, atol=1e-4))
        True
    """

    base: Any
    flows: tuple[Flow, ...]
    params: tuple[Params, ...]
    context: Array

    kind = "flow"

    def draw(self, key: RandomKey) -> tuple[Array, Array]:
        """Returns a sample and its log density in nats."""
        z = self.base.sample(key)
        log_q = self.base.log_prob(z)
        for flow, params in zip(self.flows, self.params, strict=True):
            z, log_det = flow.forward(params, z, self.context)
            log_q = log_q - log_det
        return z, log_q

    def sample(self, key: RandomKey) -> Array:
        """Returns a sample, differentiable in all parameters."""
        return self.draw(key)[0]

    def log_prob(self, theta: Array) -> Array:
        """Returns log q in nats of any point."""
        z, total = theta, jnp.zeros((), theta.dtype)
        for flow, params in zip(reversed(self.flows), reversed(self.params), strict=True):
            z = flow.inverse(params, z, self.context)
            total = total + flow.forward(params, z, self.context)[1]
        return self.base.log_prob(z) - total


def init_conditioned(key: RandomKey, context: int, numbers: int, dtype: DTypeLike) -> Params:
    """Returns a kernel, initially zero, and a bias of small random numbers."""
    bias = 0.1 * jax.random.normal(key, (numbers,), dtype)
    return {"kernel": jnp.zeros((context, numbers), dtype), "bias": bias}


def conditioned(params: Params, context: Array) -> Array:
    """Returns the parameters' values at a context."""
    return jnp.matmul(context.astype(params["kernel"].dtype), params["kernel"]) + params["bias"]


@record
@sized
class InverseAutoregressive(Flow):
    r"""Inverse autoregressive flow: every coordinate is gated by a masked network of the previous ones.

    \[ g(z)_d = \sigma_d z_d + (1 - \sigma_d)\, m_d, \qquad \sigma_d = \mathrm{sigmoid}(s_d), \qquad
       (m_d, s_d) = f_d(z_{<d}, h), \qquad \log |\det| = \sum_d \log \sigma_d \]

    The order of the coordinates is reversed first, so that a stack of such flows mixes them. The inverse takes D
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

    def init(self, key: RandomKey, size: int, context: int, dtype: DTypeLike) -> Params:
        """Returns a masked network with open gates: σ = sigmoid(2)."""
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

        def invert_coordinate(d: Any, z: Array) -> Array:
            mean, gate = self._conditionals(params, z, context)
            share = jax.nn.sigmoid(gate)
            return z.at[d].set((image[d] - (1 - share[d]) * mean[d]) / share[d])

        return jnp.flip(jax.lax.fori_loop(0, image.size, invert_coordinate, jnp.zeros_like(image)))

    def _conditionals(self, params: Params, z: Array, context: Array) -> tuple[Array, Array]:
        """Returns m and s."""
        masks = layer_masks(z.size, self.widths, 2)
        shift = conditioned(params["context"], context)
        outputs = masked_outputs(params["layers"], masks, z[None, :], "tanh", shift[None, :]).reshape(-1, 2)
        return outputs[:, 0], outputs[:, 1]


@record
class Planar(Flow):
    r"""Planar flow: bends space along one direction.

    \[ g(z) = z + \hat u \tanh(w^\top z + b), \qquad
       \log |\det| = \log\big| 1 + (1 - \tanh^2(w^\top z + b))\, w^\top \hat u \big|, \qquad
       \hat u = u + \big(m(w^\top u) - w^\top u\big) \frac{w}{\lVert w \rVert^2} \]

    with \(m(x) = \log(1 + e^x) - 1\), so that \(w^\top \hat u > -1\) and the map is invertible. The numbers w, u and b
    are affine in the context. The inverse is a bisection in one number.

    Source: Rezende & Mohamed (2015), equations 10 to 12 and appendix A.1.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import Planar
        >>> flow = Planar()
        >>> params = flow.init(jax.random.key(0), 3, 0, float)
        >>> image, log_det = flow.forward(params, jnp.ones(3), jnp.zeros(0))
        >>> bool(jnp.allclose(flow.inverse(params, image, jnp.zeros(0)), 1.0, atol=1e-5))
        True
    """

    def init(self, key: RandomKey, size: int, context: int, dtype: DTypeLike) -> Params:
        """Returns small random numbers."""
        return init_conditioned(key, context, 2 * size + 1, dtype)

    def forward(self, params: Params, z: Array, context: Array) -> tuple[Array, Array]:
        w, u, b = _planar_numbers(params, context)
        bend = jnp.tanh(jnp.dot(w, z) + b)
        return z + u * bend, jnp.log1p((1 - bend**2) * jnp.dot(w, u))

    def inverse(self, params: Params, image: Array, context: Array) -> Array:
        """Returns z, from the one number a = wᵀz, of which wᵀg(z) = a + wᵀû tanh(a + b) is increasing."""
        w, u, b = _planar_numbers(params, context)
        target, slope = jnp.dot(w, image), jnp.dot(w, u)
        ends = (target - jnp.abs(slope) - 1e-3, target + jnp.abs(slope) + 1e-3)
        root = jax.lax.stop_gradient(bisect(lambda a: a + slope * jnp.tanh(a + b) < target, ends, steps=64))
        # A Newton step from the root, which does not move it and gives it the gradient of an implicit function.
        bend = jnp.tanh(root + b)
        a = root - (root + slope * bend - target) / jax.lax.stop_gradient(1 + slope * (1 - bend**2))
        return image - u * jnp.tanh(a + b)


def _planar_numbers(params: Params, context: Array) -> tuple[Array, Array, Array]:
    """Returns w, û and b."""
    numbers = conditioned(params, context)
    size = numbers.size // 2
    w, u, b = numbers[:size], numbers[size : 2 * size], numbers[-1]
    product = jnp.dot(w, u)
    return w, u + (jax.nn.softplus(product) - 1 - product) * w / jnp.dot(w, w), b


@record
class Radial(Flow):
    r"""Radial flow: contracts or expands space around one point.

    \[ g(z) = z + \beta h\, (z - z_0), \qquad h = \frac{1}{\alpha + r}, \qquad r = \lVert z - z_0 \rVert \]
    \[ \log |\det| = (D - 1) \log(1 + \beta h) + \log\big(1 + \beta h - \beta h^2 r\big) \]

    with \(\alpha = e^{a}\) and \(\beta = -\alpha + \log(1 + e^{b})\), so that β > −α and the map is invertible. The
    numbers z₀, a and b are affine in the context. The inverse is the root of a quadratic in r.

    Source: Rezende & Mohamed (2015), equation 14 and appendix A.2.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import Radial
        >>> flow = Radial()
        >>> params = flow.init(jax.random.key(0), 3, 0, float)
        >>> image, log_det = flow.forward(params, jnp.ones(3), jnp.zeros(0))
        >>> bool(jnp.allclose(flow.inverse(params, image, jnp.zeros(0)), 1.0, atol=1e-5))
        True
    """

    def init(self, key: RandomKey, size: int, context: int, dtype: DTypeLike) -> Params:
        """Returns small random numbers."""
        return init_conditioned(key, context, size + 2, dtype)

    def forward(self, params: Params, z: Array, context: Array) -> tuple[Array, Array]:
        centre, alpha, beta = _radial_numbers(params, context)
        offset = z - centre
        r = _length(offset)
        h = 1 / (alpha + r)
        log_det = (z.size - 1) * jnp.log1p(beta * h) + jnp.log1p(beta * h - beta * h**2 * r)
        return z + beta * h * offset, log_det

    def inverse(self, params: Params, image: Array, context: Array) -> Array:
        r"""Returns z on the ray of the image: \(r' = r + \beta r / (\alpha + r)\) is solved for r."""
        centre, alpha, beta = _radial_numbers(params, context)
        offset = image - centre
        length = _length(offset)
        half = (alpha + beta - length) / 2
        r = jnp.sqrt(half**2 + alpha * length) - half
        return centre + offset / (1 + beta / (alpha + r))


def _length(offset: Array) -> Array:
    """Returns the Euclidean length, with the gradient zero at zero."""
    square = jnp.sum(offset**2)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def _radial_numbers(params: Params, context: Array) -> tuple[Array, Array, Array]:
    """Returns z₀, α and β."""
    numbers = conditioned(params, context)
    alpha = jnp.exp(numbers[-2])
    return numbers[:-2], alpha, jax.nn.softplus(numbers[-1]) - alpha
