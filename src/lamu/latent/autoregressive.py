"""Autoregressive networks, whose likelihood is the exact density of a row."""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.base.arguments import sized, whole_number
from lamu.base.compile_once import floating
from lamu.likelihoods import PerPosition
from lamu.model import Model
from lamu.networks.interface import Network, outputs
from lamu.networks.multilayer import ACTIVATIONS, dense_layer, initial_weights, require_activation
from lamu.record import record, static
from lamu.typing import Array, DTypeLike, Params, RandomKey, State

__all__ = ["MADE", "NADE", "ancestral"]


def ancestral(model: Model, params: Params, key: RandomKey, n: int) -> Array:
    r"""Returns samples of a model with an autoregressive network, `[n, *positions]`.

    \[ y_d \sim p(y_d \mid f_d(y_{<d})), \qquad d = 1, \dots, D \]

    by D passes of the network.

    Args:
        model: a model with the data as inputs and targets, a network `MADE` or `NADE` and a likelihood
            `PerPosition`.
        params: its parameters, for instance a posterior's mean or one of its samples.
        key: a random key.
        n: number of samples.

    Raises:
        TypeError: if the likelihood is not a `PerPosition`.
        ValueError: for fewer than one sample.

    Source: Germain, Gregor, Murray & Larochelle (2015), section 2.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> y = (jnp.arange(40).reshape(20, 2) % 3 == 0).astype(float)
        >>> likelihood = lamu.likelihoods.PerPosition(lamu.likelihoods.Bernoulli(), (2,))
        >>> model = lamu.Model(lamu.latent.MADE((8,)), likelihood)
        >>> posterior = lamu.fit(model, (y, y), lamu.algorithms.adam(0.01), epochs=5).posterior
        >>> lamu.latent.ancestral(model, posterior.mean, jax.random.key(0), 3).shape
        (3, 2)
    """
    if not isinstance(model.likelihood, PerPosition):
        raise TypeError(
            f"the likelihood is {model.likelihood.name}; an autoregressive model has one at every position, for "
            "instance PerPosition(Bernoulli(), (784,))"
        )
    n = whole_number("n", n)
    positions = model.likelihood.positions
    count = math.prod(positions)
    weights = model.complete(params["network"])
    dtype = jnp.result_type(jax.tree.leaves(weights)[0])

    def sample_position(y: Array, position_and_key: tuple[Array, RandomKey]) -> tuple[Array, None]:
        d, of_position = position_and_key
        f, _ = outputs(model.network, weights, {}, y, None, False, None)
        draws: Any = model.likelihood.sample(of_position, params["likelihood"], f).reshape(n, count)
        return jnp.where(jnp.arange(count)[None, :] == d, draws.astype(dtype), y), None

    first = jnp.zeros((n, count), dtype)
    y, _ = jax.lax.scan(sample_position, first, (jnp.arange(count), jax.random.split(key, count)))
    return y.reshape(n, *positions)


def layer_masks(inputs: int, widths: tuple[int, ...], per_input: int) -> list[np.ndarray]:
    """Returns the masks of all layers, `[in, out]` each; their product connects output d only to inputs before d."""
    # Input d has the degree d = 1, …, D, and hidden units the degrees 1, …, D − 1 in turn. A hidden unit is connected
    # to units below of at most its degree, and an output of degree d to those of less than d. The K
    # numbers of an output are adjacent.
    #
    # Source: Germain, Gregor, Murray & Larochelle (2015), equations 12 and 13.
    degrees = [np.arange(1, inputs + 1)]
    degrees += [np.arange(width) % max(inputs - 1, 1) + 1 for width in widths]
    masks = [below[:, None] <= above[None, :] for below, above in itertools.pairwise(degrees)]
    outputs = np.repeat(degrees[0], per_input)
    return [*masks, degrees[-1][:, None] < outputs[None, :]]


def init_layers(key: RandomKey, sizes: tuple[int, ...], activation: str, dtype: DTypeLike) -> Params:
    """Returns kernels and biases of dense layers by number, as in `lamu.networks.MLP`."""
    draw = initial_weights(activation)
    return {
        number: dense_layer(draw, jax.random.fold_in(key, number), below, above, dtype)
        for number, (below, above) in enumerate(itertools.pairwise(sizes))
    }


def masked_outputs(
    layers: Params, masks: list[np.ndarray], x: Array, activation: str, context: Array | None = None
) -> Array:
    """Returns the outputs of masked layers, `[batch, D * K]`."""
    hidden, last = x, len(masks) - 1
    for number, mask in enumerate(masks):
        layer = layers[number]
        kernel = layer["kernel"] * jnp.asarray(mask, layer["kernel"].dtype)
        hidden = jnp.matmul(hidden, kernel) + layer["bias"][None, :]
        if number == 0 and context is not None:
            hidden = hidden + context
        if number < last:
            hidden = ACTIVATIONS[activation](hidden)
    return hidden


@record
@sized
class MADE(Network):
    r"""A masked autoregressive network: output d is a function of \(x_1, \dots, x_{d-1}\) only.

    With the data as inputs and targets, a model's likelihood is the exact density of a row,

    \[ \log p(y) = \sum_d \log p(y_d \mid f_d(y_{<d})) \]

    The outputs are `[batch, D * K]`, with the K numbers of an input adjacent, as `likelihoods.PerPosition` reads them.
    The order is that of the inputs. Parameters are at `layers/i/kernel` and `layers/i/bias`.

    Attributes:
        widths: the widths of the hidden layers.
        activation: "relu", "tanh", "gelu", "silu" or "erf".

    Raises:
        ValueError: for no hidden layer, a width that is not a positive integer, an unknown activation, or a number of
            outputs that is not a multiple of the number of inputs.

    Source: Germain, Gregor, Murray & Larochelle (2015).

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import MADE
        >>> made = MADE((8,))
        >>> params, state = made.init(jax.random.key(0), jnp.zeros((1, 3)), outputs=3)
        >>> f = lambda x: made.apply(params, state, x[None], None, False)[0][0]
        >>> (jax.jacobian(f)(jnp.ones(3)) != 0).astype(int)[0].tolist()  # the first output sees nothing
        [0, 0, 0]
    """

    widths: tuple[int, ...] = static(default=(500,))
    activation: str = static(default="relu")

    @property
    def head(self) -> str:
        """The path pattern of the last layer."""
        return f"layers/{len(self.widths)}/*"

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        if not self.widths:
            raise ValueError("MADE(()) has no hidden layer to mask; give at least one width, for instance (500,)")
        require_activation(self.activation)

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns initial parameters for inputs like `x`, and the empty state."""
        inputs = math.prod(x.shape[1:])
        require_multiple(outputs, inputs, "MADE")
        return {"layers": init_layers(key, (inputs, *self.widths, outputs), self.activation, floating(x))}, {}

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the outputs `[batch, D * K]`, and the state unchanged."""
        layers = params["layers"]
        inputs, outputs = layers[0]["kernel"].shape[0], layers[len(self.widths)]["bias"].shape[0]
        masks = layer_masks(inputs, self.widths, outputs // inputs)
        flat = x.reshape(x.shape[0], -1).astype(layers[0]["kernel"].dtype)
        return masked_outputs(layers, masks, flat, self.activation), state


def require_multiple(outputs: int, inputs: int, name: str) -> None:
    """Raises a ValueError unless every input has the same number of outputs."""
    if outputs % inputs:
        raise ValueError(
            f"{name} has {inputs} inputs and the likelihood asks for {outputs} outputs, which is not a multiple; give "
            f"the data as inputs and as targets, with likelihoods.PerPosition(Bernoulli(), ({inputs},)) for instance"
        )


@record
@sized
class NADE(Network):
    r"""The neural autoregressive distribution estimator.

    \[ h_d = \sigma\big(c + \textstyle\sum_{e<d} W_{e} x_e\big), \qquad f_d = b_d + V_d h_d \]

    Each conditional has its own hidden units, whose sums before the activation grow by one input at a time: a row
    costs O(D H). With the data as inputs and targets a model's likelihood is the exact density of a row, as with
    `MADE`. Parameters are at `input` W `[D, H]`, `hidden` c `[H]`, `output` V `[D, H, K]` and `bias` b `[D, K]`.

    Attributes:
        width: H, the number of hidden units.

    Raises:
        ValueError: for a width that is not a positive integer, or a number of outputs that is not a multiple of the
            number of inputs.

    Source: Larochelle & Murray (2011), equations 3 and 4.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import NADE
        >>> nade = NADE(8)
        >>> params, state = nade.init(jax.random.key(0), jnp.zeros((1, 3)), outputs=3)
        >>> f = lambda x: nade.apply(params, state, x[None], None, False)[0][0]
        >>> (jax.jacobian(f)(jnp.ones(3)) != 0).astype(int).tolist()
        [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    """

    width: int = static(default=500)

    head = "output"

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns initial parameters for inputs like `x`, and the empty state."""
        inputs, dtype = math.prod(x.shape[1:]), floating(x)
        require_multiple(outputs, inputs, "NADE")
        into, out = jax.random.split(key)
        draw = jax.nn.initializers.glorot_normal()
        output = draw(out, (self.width, outputs), dtype).reshape(self.width, inputs, -1)
        params = {
            "input": draw(into, (inputs, self.width), dtype),
            "hidden": jnp.zeros(self.width, dtype),
            "output": jnp.swapaxes(output, 0, 1),
            "bias": jnp.zeros((inputs, outputs // inputs), dtype),
        }
        return params, {}

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the outputs `[batch, D * K]`, and the state unchanged."""
        flat = x.reshape(x.shape[0], -1).astype(params["hidden"].dtype)

        def next_output(total: Array, of_input: Any) -> tuple[Array, Array]:
            value, weights, output, bias = of_input
            f = jnp.matmul(jax.nn.sigmoid(total), output) + bias[None, :]
            return total + value[:, None] * weights[None, :], f

        first = jnp.broadcast_to(params["hidden"][None, :], (flat.shape[0], self.width))
        _, outputs = jax.lax.scan(next_output, first, (flat.T, params["input"], params["output"], params["bias"]))
        return jnp.swapaxes(outputs, 0, 1).reshape(flat.shape[0], -1), state
