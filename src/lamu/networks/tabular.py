"""A network for tables: the sum of a linear, an additive, a kernel and a multilayer part, and its input encoding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.base.arguments import sized
from lamu.base.compile_once import compiled_once, floating
from lamu.networks.interface import Network
from lamu.networks.kernel_features import KernelFeatures
from lamu.networks.multilayer import ACTIVATIONS, require_activation
from lamu.record import measured, record, static
from lamu.typing import Array, Inputs, Params, RandomKey, State

__all__ = ["Columns", "EncodedColumns", "TableNetwork"]


# Chosen with the candidates of `fit_table` on split 0 of the development tables; more pieces, with wider priors, took
# the nll of spambase from .149 to .138, vehicle from .346 to .334, wine_red from .870 to .872 and concrete from 2.84 to
# 2.83. The limits of heavy tails were not measured separately.
_HEAVY = 5.0  # standardised values beyond it make a column heavy-tailed
_LIMIT = 3.0  # bound of the robust scaling of such a column
_CONSTANT = 1.0  # that of a column with one value, of which only a change is known
_MOST_PIECES = 512  # of all columns together, except that each has the fewest
_FEWEST, _MOST = 4, 16  # pieces a column
_WIDE = 256  # number of columns beyond which there are no pieces: they would be most of the network's inputs


@record
class Columns:
    r"""Two encodings of the columns x, both fixed before training: smooth ones z, and pieces p.

    \[ z = \frac{u}{\sqrt{1 + (u/c)^2}}, \quad u = \frac{x - a}{b}, \qquad
       p_t = 2 \operatorname{clip}\Big(\frac{x - q_t}{q_{t+1} - q_t}, 0, 1\Big) - m_t \]

    a and b are mean and standard deviation; for a column with heavy tails they are the median and the interquartile
    range / 1.349, which is the standard deviation of a normal column (where it is zero, the median distance of the rows
    that are not at the median), and only there c is finite. Of a column with one value a is that value, b a thousandth
    of it (of one, for zero) and c one, so that z tells whether another one differs. The \(q_t\) are quantiles of the
    training rows, \(m_t\) the mean. Where nearly all quantiles of a column equal one value, such as zero, the \(q_t\)
    are that value, its neighbours, so that there is a step at the value, and quantiles of the other rows. Categories
    become one-hot vectors among the smooth encodings; an unknown one is all zeros.

    Attributes:
        levels: one integer a column: 0 for a number, K for codes 1 to K of categories.
        shift: a of each number.
        scale: b of each number.
        limit: c of each number, infinity where the scaling is linear.
        owner: the column of x of each piece.
        one_hot: the groups of columns of which every training row has exactly one; none unless `fit_table` finds them.
        lower: \(q_t\) of each piece.
        width: \(q_{t+1} - q_t\) of each piece.
        centre: \(m_t\) of each piece.

    Source: Gorishniy, Rubachev & Babenko (2022), for the pieces, where the outermost pieces continue beyond the
    training rows; Holzmüller, Grinsztajn & Steinwart (2024), for the robust scaling with c = 3, there for every column
    and by the interquartile range itself.

    Examples:
        >>> import numpy as np, jax.numpy as jnp
        >>> from lamu.networks import Columns
        >>> x = np.column_stack([np.arange(8.0), [1, 2, 1, 2, 1, 2, 1, 2]])
        >>> columns = Columns.of(x, levels=(0, 2), pieces=2)
        >>> smooth, pieces = columns.read(jnp.asarray(x[:2], jnp.float32))
        >>> smooth.shape, pieces.shape
        ((2, 3), (2, 2))
    """

    shift: Array | np.ndarray
    scale: Array | np.ndarray
    limit: Array | np.ndarray = measured()
    lower: Array | np.ndarray
    width: Array | np.ndarray
    centre: Array | np.ndarray
    levels: tuple[int, ...] = static()
    owner: tuple[int, ...] = static()
    one_hot: tuple[tuple[int, ...], ...] = static(default=())

    @classmethod
    def of(
        cls,
        x: Inputs,
        levels: tuple[int, ...] | None = None,
        pieces: int | None = None,
        weight: np.ndarray | None = None,
    ) -> Columns:
        """Returns the encoding learned from training rows.

        Args:
            x: training inputs, `[N, D]`.
            levels: one integer a column, 0 for a number; None where all are numbers.
            pieces: the largest number of pieces of a numeric column; None for 4 to 16, falling with the number of
                columns, and for none with more than 256 columns.
            weight: the weight of each row, `[N]`, positive; ones where None. A weight of two equals the row twice.

        Raises:
            ValueError: for inputs that are not a matrix, or levels or codes that do not fit them.
        """
        x = np.asarray(x)
        if x.ndim != 2:
            raise ValueError(f"x has the shape {x.shape}; give one row of columns for each example")
        counts: tuple[int, ...] = (0,) * x.shape[1] if levels is None else tuple(int(count) for count in levels)
        if len(counts) != x.shape[1]:
            raise ValueError(f"levels={counts} are of {len(counts)} columns and x has {x.shape[1]}; give one a column")
        for column, count in enumerate(counts):
            others = x[:, column][~np.isin(x[:, column], np.arange(count + 1))] if count else x[:0]
            if len(others):
                raise ValueError(
                    f"column {column} of x has the code {others[0]:g}, and levels={counts} are codes 1 to {count} "
                    "there, 0 for an unknown category; count the categories from 1"
                )
        numbers = [column for column, count in enumerate(counts) if not count]
        if pieces is None:
            fewer = int(np.clip(_MOST_PIECES // max(len(numbers), 1), _FEWEST, _MOST))
            pieces = fewer if len(numbers) <= _WIDE else 0
        # One column at a time in 64 bits: all pieces of a large table at once would be many times its size.
        scaling, cuts, centres = [], [], []
        for column in numbers:
            values = np.asarray(x[:, column], np.float64)
            scaling.append(_scaling(values, weight))
            lower, width = _cuts(values, pieces, weight)
            cuts.append((column, lower, width))
            read = [np.clip((values - a) / b, 0.0, 1.0) for a, b in zip(lower, width, strict=True)]
            centres += [2 * np.average(piece, weights=weight) for piece in read]
        shift, scale, limit = np.array(scaling, np.float64).reshape(-1, 3).T
        owner = [column for column, lower, _ in cuts for _ in lower]
        lower, width = (np.concatenate([cut[part] for cut in cuts]) if cuts else np.zeros(0) for part in (1, 2))
        dtype = jax.dtypes.canonicalize_dtype(np.float64)
        arrays = (part.astype(dtype) for part in (shift, scale, limit, lower, width, np.array(centres, np.float64)))
        return cls(*arrays, levels=counts, owner=tuple(owner))

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numeric columns."""
        return tuple(column for column, count in enumerate(self.levels) if not count)

    @property
    def constant(self) -> np.ndarray:
        """Whether each smooth encoding has one value in all training rows: zero, or one of a category alone."""
        alone = [np.full(count, count == 1) for count in self.levels if count]
        return np.concatenate([np.asarray(self.limit) == _CONSTANT, *alone])

    @property
    def smooth_width(self) -> int:
        """The number of smooth encodings: one a number, and one a category."""
        return len(self.numbers) + sum(self.levels)

    @property
    def piece_count(self) -> int:
        """The number of pieces."""
        return len(self.owner)

    @property
    def numbers_with_pieces(self) -> int:
        """The number of columns with pieces."""
        return len(set(self.owner))

    def encode(self, x: Array) -> tuple[EncodedColumns, Array]:
        """Returns both encodings concatenated, `[batch, smooth_width + piece_count]`, and the columns that read them.

        A training run uses every row many times, and a gather of encoded rows costs less than encoding them again.

        Args:
            x: inputs `[batch, D]`.

        Examples:
            >>> import jax.numpy as jnp
            >>> from lamu.networks import Columns
            >>> x = jnp.arange(8.0)[:, None]
            >>> columns = Columns.of(x, pieces=2)
            >>> encoded, readings = columns.encode(x)
            >>> readings.shape, bool((encoded.read(readings)[1] == columns.read(x)[1]).all())
            ((8, 3), True)
        """
        readings = jnp.concatenate(self.read(x), axis=1)
        return EncodedColumns(self.smooth_width, self.piece_count, self.numbers_with_pieces), readings

    def read(self, x: Array) -> tuple[Array, Array]:
        """Returns the smooth encodings `[batch, smooth_width]` and the pieces `[batch, piece_count]`.

        Args:
            x: inputs `[batch, D]`.

        Raises:
            ValueError: for another number of columns.
        """
        if x.shape[1:] != (len(self.levels),):
            raise ValueError(f"inputs have the shape {x.shape[1:]} a row, the network was made for {len(self.levels)}")
        fixed = [
            jax.lax.stop_gradient(jnp.asarray(part, x.dtype))[None]
            for part in (self.shift, self.scale, self.limit, self.lower, self.width, self.centre)
        ]
        shift, scale, limit, lower, width, centre = fixed
        u = (x[:, np.array(self.numbers, int)] - shift) / scale
        parts = [u / jnp.sqrt(1.0 + (u / limit) ** 2)]
        for column, count in enumerate(self.levels):
            if count:
                parts.append((x[:, column, None] == jnp.arange(1, count + 1, dtype=x.dtype)[None]).astype(x.dtype))
        pieces = 2.0 * jnp.clip((x[:, np.array(self.owner, int)] - lower) / width, 0.0, 1.0) - centre
        return jnp.concatenate(parts, axis=1), pieces


@record
class EncodedColumns:
    """Columns encoded by `Columns.encode`, with smooth encodings and pieces concatenated.

    Attributes:
        smooth_width: the number of smooth encodings.
        piece_count: the number of pieces.
        numbers_with_pieces: the number of columns with pieces.
        feature_count: the number of kernel features after them.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import EncodedColumns
        >>> smooth, pieces = EncodedColumns(smooth_width=1, piece_count=2, numbers_with_pieces=1).read(jnp.ones((4, 3)))
        >>> smooth.shape, pieces.shape
        ((4, 1), (4, 2))
    """

    smooth_width: int = static()
    piece_count: int = static()
    numbers_with_pieces: int = static()
    feature_count: int = static(default=0)

    def read(self, x: Array) -> tuple[Array, Array]:
        """Returns the smooth encodings `[batch, smooth_width]` and the pieces `[batch, piece_count]`.

        Args:
            x: both concatenated, followed by the kernel features.
        """
        behind = self.smooth_width + self.piece_count
        return x[:, : self.smooth_width], x[:, self.smooth_width : behind]


def _scaling(values: np.ndarray, weight: np.ndarray | None) -> tuple[float, float, float]:
    """Returns shift, scale and limit of a column."""
    if values.min() == values.max():
        # No scale is known: a change of a thousandth is half of the way to the limit.
        return values[0], 1e-3 * (abs(values[0]) or 1.0), _CONSTANT
    mean = np.average(values, weights=weight)
    deviation = np.sqrt(np.average((values - mean) ** 2, weights=weight))
    if set(np.unique(values)) <= {0.0, 1.0}:
        return mean, max(deviation, 0.25), np.inf  # scaled by a tiny deviation, the rare value would be an outlier
    if np.abs(values - mean).max() <= _HEAVY * deviation:
        return mean, deviation, np.inf
    low, median, high = _quantiles(values, weight, [0.25, 0.5, 0.75])
    spread = (high - low) / 1.349
    if not spread > 0:  # more than half of the rows have one value: take the distances of the others
        others = values != median
        spread = _quantiles(np.abs(values[others] - median), None if weight is None else weight[others], [0.5])[0]
    return median, spread, _LIMIT


def _cuts(values: np.ndarray, pieces: int, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns lower ends and widths of the pieces of a column; none for one of two values, where a line suffices."""
    distinct = np.unique(values)
    if len(distinct) < 3 or not pieces:
        return np.zeros(0), np.zeros(0)
    ends = distinct if len(distinct) <= pieces + 1 else _ends(values, pieces, weight)
    return (ends[:-1], np.diff(ends)) if len(ends) > 2 else (np.zeros(0), np.zeros(0))


def _ends(values: np.ndarray, pieces: int, weight: np.ndarray | None) -> np.ndarray:
    """Returns quantiles; where most rows have one value, its neighbours and quantiles of the others."""
    quantiles = np.unique(_quantiles(values, weight, np.linspace(0, 1, pieces + 1)))
    if len(quantiles) > min(_FEWEST, pieces):
        return quantiles
    distinct, which = np.unique(values, return_inverse=True)
    often = int(np.argmax(np.bincount(which, weights=weight)))
    around, others = distinct[max(often - 1, 0) : often + 2], values != distinct[often]
    rest = np.linspace(0, 1, max(pieces + 2 - len(around), 2))
    return np.unique([*around, *_quantiles(values[others], None if weight is None else weight[others], rest)])


def _quantiles(values: np.ndarray, weight: np.ndarray | None, levels: Any) -> np.ndarray:
    """Returns quantiles of values repeated by their weights, which are scaled up to a sum of at least the rows."""
    if weight is None:
        return np.quantile(values, levels)
    order = np.argsort(values, kind="stable")
    above = np.cumsum(weight[order] * max(1.0, len(values) / weight.sum()))
    place = np.asarray(levels) * (above[-1] - 1)
    # Interpolates between the values before and after a place; the minimum is for a sum that rounds below the last.
    value_at = lambda place: values[order[np.minimum(np.searchsorted(above, place, side="right"), len(values) - 1)]]
    first, share = value_at(np.floor(place)), place - np.floor(place)
    return first + share * (value_at(np.floor(place) + 1) - first)


_ROWS_AT_ONCE = 1024  # chunk of rows whose similarities to all landmarks are in memory; without effect on results


@record
@sized
class TableNetwork(Network):
    r"""The sum of a linear path, an additive path, kernel features and a perceptron on the columns of a table.

    \[ f(x) = b + W z(x) + A\, p(x) + K\, \phi(z(x)) + V\, h_L, \qquad h_1 = a(U z(x) + P\, p(x) + c_1), \quad
       h_{l+1} = a(W_l h_l + c_{l+1}) \]

    with z the scaled columns and one-hot categories, p the piecewise-linear encoding of the numbers
    (`lamu.networks.Columns`), and \(\phi\) the features of a kernel (`lamu.networks.KernelFeatures`), where there is
    one. A linear model, a generalised additive model, a Gaussian process and a network are this function with some
    weights at zero, so that they train in one compiled program and mix in one posterior.

    Parameters are at `linear/kernel`, `linear/bias`, `additive/kernel`, `features/kernel`, `hidden/smooth`,
    `hidden/pieces`, `hidden/bias`, `layers/i/kernel`, `layers/i/bias` and `head/kernel`. Output kernels start at zero,
    so that every run starts from the same constant function; hidden kernels start as He normals.

    Attributes:
        columns: the encoding of the columns; `Columns.of(x)` learns it from training rows.
        widths: the widths of the hidden layers; none for the additive model alone.
        activation: "relu", "tanh", "gelu", "silu" or "erf".
        kernel: the features of a kernel on the smooth encodings; None for none.

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

    head = "head/*"
    codes = ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", tuple(self.widths))
        require_activation(self.activation)

    @property
    def feature_count(self) -> int:
        """The number of kernel features."""
        if self.kernel is not None:
            return self.kernel.count
        return self.columns.feature_count if isinstance(self.columns, EncodedColumns) else 0

    def encode(self, x: Array) -> tuple[TableNetwork, Array]:
        """Returns a network of encoded rows, with the same parameters, and the encoded rows.

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

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns initial parameters for inputs like `x`, and the empty state."""
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
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
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


@compiled_once(over_rows=True)
def _readings(columns: Columns, kernel: KernelFeatures | None, x: Array) -> Array:
    """Returns both encodings of the columns and the kernel features, concatenated."""
    smooth, pieces = columns.read(x)
    if kernel is None:
        return jnp.concatenate([smooth, pieces], axis=1)
    features = jax.lax.map(lambda row: kernel.read(row[None])[0], smooth, batch_size=_ROWS_AT_ONCE)
    return jnp.concatenate([smooth, pieces, features], axis=1)
