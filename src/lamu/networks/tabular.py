"""A network made for tables: a linear path, additive piecewise-linear functions, kernel features, and a perceptron."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu.networks.activations import ACTIVATIONS, require_activation
from lamu.networks.columns import Columns, EncodedColumns
from lamu.networks.interface import Network
from lamu.networks.kernel_features import KernelFeatures
from lamu.networks.multilayer import floating, require_widths
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey

__all__ = ["TableNetwork"]

_ROWS_AT_ONCE = 1024  # whose similarities to all landmarks are in memory


@record
@sized
class TableNetwork(Network):
    r"""The sum of a linear path, an additive path, kernel features and a perceptron on the columns of a table.

    \[ f(x) = b + W z(x) + A\, p(x) + K\, \phi(z(x)) + V\, h_L, \qquad h_1 = a(U z(x) + P\, p(x) + c_1), \quad
       h_{l+1} = a(W_l h_l + c_{l+1}) \]

    with z the columns scaled and the categories as vectors of zeros with a one, and p the piecewise-linear encoding of
    the numbers (`lamu.networks.Columns`), and \(\phi\) the features of a kernel (`lamu.networks.KernelFeatures`), where
    there is one. A linear model, a generalised additive model, a Gaussian process and a network are this function with
    some of its weights at zero, so that they train in one compiled program and mix in one posterior.

    Parameters stand at `linear/kernel`, `linear/bias`, `additive/kernel`, `features/kernel`, `hidden/smooth`,
    `hidden/pieces`, `hidden/bias`, `layers/i/kernel`, `layers/i/bias` and `head/kernel`. The outputs' kernels start at
    zero, so that every run starts from the same constant function; hidden kernels start as He normals.

    Attributes:
        columns: how columns are read; `Columns.of(x)` learns it from training rows.
        widths: the widths of the hidden layers; none for the additive model alone.
        activation: "relu", "tanh", "gelu", "silu" or "erf".
        kernel: the features of a kernel on the smooth readings; None for none.

    Raises:
        ValueError: for a width that is not a positive integer, or an unknown activation.

    Source: Gorishniy, Rubachev & Babenko (2022) for the encoding; Cheng et al. (2016) for the linear path.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> network = lamu.networks.TableNetwork(lamu.networks.Columns.of(x, pieces=4), widths=(8,))
        >>> params, state = network.init(jax.random.key(0), jnp.asarray(x), outputs=1)
        >>> params["linear"]["kernel"].shape, params["additive"]["kernel"].shape, params["head"]["kernel"].shape
        ((10, 1), (36, 1), (8, 1))
        >>> network.apply(params, state, jnp.asarray(x), None, False)[0].shape
        (442, 1)
    """

    columns: Columns | EncodedColumns
    widths: tuple[int, ...] = static(default=(64, 64))
    activation: str = static(default="relu")
    kernel: KernelFeatures | None = None

    linear = False
    head = "head/*"
    codes = ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        require_widths(self.widths)
        require_activation(self.activation)

    @property
    def feature_count(self) -> int:
        """How many features of a kernel there are."""
        if self.kernel is not None:
            return self.kernel.count
        return self.columns.feature_count if isinstance(self.columns, EncodedColumns) else 0

    def encode(self, x: Array) -> tuple[TableNetwork, Array]:
        """Returns the network of rows that are read ahead, with the same parameters, and those readings.

        Args:
            x: inputs `[batch, D]`.

        Examples:
            >>> import jax, jax.numpy as jnp
            >>> from lamu.networks import Columns, TableNetwork
            >>> x = jnp.arange(8.0)[:, None]
            >>> network = TableNetwork(Columns.of(x, pieces=2), widths=(4,))
            >>> params, state = network.init(jax.random.key(0), x, outputs=1)
            >>> ahead, readings = network.encode(x)
            >>> ahead.apply(params, state, readings, None, False)[0].shape
            (8, 1)
        """
        if isinstance(self.columns, EncodedColumns):
            return self, x
        columns = self.columns
        sizes = columns.smooth_width, columns.piece_count, columns.numbers_with_pieces
        encoded = EncodedColumns(*sizes, feature_count=self.feature_count)
        return replace(self, columns=encoded, kernel=None), _readings(columns, self.kernel, x)

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns fresh parameters for inputs like `x`, and the empty state."""
        dtype = floating(x)
        smooth, pieces = self.columns.smooth_width, self.columns.piece_count
        params: Params = {
            "linear": {"kernel": jnp.zeros((smooth, outputs), dtype), "bias": jnp.zeros(outputs, dtype)},
            "additive": {"kernel": jnp.zeros((pieces, outputs), dtype)},
        }
        if self.feature_count:
            params["features"] = {"kernel": jnp.zeros((self.feature_count, outputs), dtype)}
        if not self.widths:
            return params, {}
        he = lambda index, shape, inputs: (
            jax.random.normal(jax.random.fold_in(key, index), shape, dtype) * (2.0 / inputs) ** 0.5
        )
        first, count = self.widths[0], smooth + self.columns.numbers_with_pieces
        params["hidden"] = {
            "smooth": he(0, (smooth, first), count),
            "pieces": he(1, (pieces, first), 2 * count),
            "bias": jnp.zeros(first, dtype),
        }
        params["layers"] = {
            index: {"kernel": he(2 + index, (above, below), above), "bias": jnp.zeros(below, dtype)}
            for index, (above, below) in enumerate(zip(self.widths[:-1], self.widths[1:], strict=True))
        }
        params["head"] = {"kernel": jnp.zeros((self.widths[-1], outputs), dtype)}
        return params, {}

    def apply(
        self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        """Returns f(x) of shape `[batch, outputs]`, and the state unchanged."""
        dtype = params["linear"]["kernel"].dtype
        smooth, pieces = self.columns.read(x.astype(dtype))
        f = smooth @ params["linear"]["kernel"] + pieces @ params["additive"]["kernel"]
        if self.feature_count:
            f = f + self._features(x.astype(dtype), smooth) @ params["features"]["kernel"]
        if self.widths:
            f = f + self._hidden(params, smooth, pieces) @ params["head"]["kernel"]
        return f + params["linear"]["bias"][None], state

    def _features(self, x: Array, smooth: Array) -> Array:
        if self.kernel is not None:
            return self.kernel.read(smooth)
        return x[:, self.columns.smooth_width + self.columns.piece_count :]

    def _hidden(self, params: Params, smooth: Array, pieces: Array) -> Array:
        activation, hidden = ACTIVATIONS[self.activation], params["hidden"]
        h = activation(smooth @ hidden["smooth"] + pieces @ hidden["pieces"] + hidden["bias"][None])
        for index in range(len(self.widths) - 1):
            layer = params["layers"][index]
            h = activation(h @ layer["kernel"] + layer["bias"][None])
        return h


@jax.jit
def _readings(columns: Columns, kernel: KernelFeatures | None, x: Array) -> Array:
    """Returns both readings of the columns and the features of the kernel, side by side."""
    smooth, pieces = columns.read(x)
    if kernel is None:
        return jnp.concatenate([smooth, pieces], axis=1)
    features = jax.lax.map(lambda row: kernel.read(row[None])[0], smooth, batch_size=_ROWS_AT_ONCE)
    return jnp.concatenate([smooth, pieces, features], axis=1)
