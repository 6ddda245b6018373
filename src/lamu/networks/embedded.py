"""Networks with categorical inputs: tokens, one-hot codes and embeddings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lamu.base.arguments import sized, whole
from lamu.base.compile_once import floating
from lamu.networks.interface import outputs
from lamu.networks.wrapper import NetworkWrapper
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey, State

__all__ = ["Embedded", "OneHot", "Tokens"]


@record
class Tokens(NetworkWrapper):
    r"""The network \(x \mapsto f(\theta, \lfloor x \rceil)\), which passes integers to its base.

    Data are floating elsewhere; here they are cast to 32-bit integers, exactly up to \(2^{24}\) in single precision.
    `Model.standardised` does not change them.

    Attributes:
        base: a network that takes integers `[batch, ...]`.

    Examples:
        >>> import flax.linen as nn, jax.numpy as jnp, lamu
        >>> bag = nn.Sequential([nn.Embed(100, 8), lambda words: words.mean(axis=1), nn.Dense(2)])
        >>> model = lamu.Model(lamu.networks.Tokens(lamu.networks.Linen(bag)), lamu.likelihoods.Categorical(2))
        >>> x, y = jnp.arange(60).reshape(20, 3), jnp.arange(20) % 2
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.ivon(), epochs=2).posterior
        >>> posterior.predict(x).mean.shape
        (20, 2)
    """

    codes = ...

    def inputs(self, x: Array) -> Array:
        return jnp.round(x).astype(jnp.int32)


@record
@sized
class OneHot(NetworkWrapper):
    r"""The network \(x \mapsto f(e_x)\), which passes one-hot vectors of codes 0 to K − 1 to its base.

    Codes `[batch, ...]` become `[batch, ..., K]`, so that the first dense layer of a network of sequences is a table of
    embeddings, one row a code. Other values become a vector of zeros. Codes may be floating numbers or integers, also
    from `Tokens`; `Model.standardised` does not change them.

    Attributes:
        base: f.
        size: K, the number of codes.

    Raises:
        ValueError: for a size that is not an integer of at least 2.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import LSTM, OneHot
        >>> network, words = OneHot(LSTM((8,)), size=50), jnp.array([[3.0, 49.0, 7.0]])
        >>> params, state = network.init(jax.random.key(0), words, outputs=2)
        >>> params["cells"][0]["input"]["kernel"].shape, network.apply(params, state, words, None, False)[0].shape
        ((50, 32), (1, 2))
    """

    size: int = static()

    codes = ...

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size < 2:
            raise ValueError(f"a size of {self.size!r} codes makes no vectors; give an integer from 2")

    def inputs(self, x: Array) -> Array:
        places = jnp.arange(self.size, dtype=x.dtype).reshape(*[1] * x.ndim, -1)
        return (x[..., None] == places).astype(floating(x))


_WIDEST = 16  # largest width of an embedding; not measured


@record
class Embedded(NetworkWrapper):
    r"""The network \(x \mapsto f(\text{numbers},\, E_{c_1},\, E'_{c_2}, \dots)\) with learned embeddings of categories.

    A column of codes has the values 1 to K for the categories of the training data, and 0 for unknown categories. Other
    values (out of range, not whole, NaN) count as 0. Codes are floating numbers, like the numeric columns, and
    `Model.standardised` does not change them.

    Parameters are at `embeddings/<column>/table`, `[K + 1, width]`, and `base/...`; the width is half of K + 2, at most
    16. Rows 1 to K are initialised as normals with variance 1 / width, so that a category has the size of one
    standardised number.

    **The unknown category.** Row 0 starts at zero, the mean of a centred prior. It has no training rows, so a point
    estimate leaves it there, and predicts as for an average category. A belief keeps the prior's scale there, and so
    expresses the uncertainty: `laplace` at once, `ivon` and `vogn` as their running curvature forgets its start. A
    separate prior for the tables, `Normal({"embeddings/*": 0.5, "*": 1.0})`, describes how much categories differ.

    Attributes:
        base: f, on the numeric columns followed by the embeddings, in the order of the columns.
        levels: one integer a column of x: 0 for a number, K for codes of K categories.

    Raises:
        ValueError: for levels that are not whole numbers of at least 0, or without a column of codes, and for inputs
            with another number of columns.

    Source: Guo & Berkhahn (2016).

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import MLP, Embedded
        >>> network = Embedded(MLP((8,)), levels=(0, 3))
        >>> x = jnp.array([[0.5, 1.0], [-0.5, 3.0], [0.1, 0.0]])  # a number, and one of three categories
        >>> params, state = network.init(jax.random.key(0), x, outputs=1)
        >>> params["embeddings"][1]["table"].shape, params["base"]["layers"][0]["kernel"].shape
        ((4, 2), (3, 8))
        >>> network.apply(params, state, x, None, False)[0].shape
        (3, 1)
    """

    levels: tuple[int, ...] = static()
    # False: tables are multiplied by the weights of the base.
    linear = False

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = tuple(map(whole, self.levels))
        for given, count in zip(self.levels, counts, strict=True):
            if count is None or count < 0:
                raise ValueError(f"levels={self.levels} holds {given!r}; give 0 for a number, or how many categories")
        object.__setattr__(self, "levels", counts)
        if not self.codes:
            raise ValueError(f"levels={self.levels} holds no column of categories; use the base network alone")

    @property
    def codes(self) -> tuple[int, ...]:
        """The indices of the columns of codes."""
        return tuple(column for column, count in enumerate(self.levels) if count)

    @property
    def head(self) -> str:
        return f"base/{self.base.head}"

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        base_key, tables_key = jax.random.split(key)
        dtype, tables = floating(x), {}
        for column, each in zip(self.codes, jax.random.split(tables_key, len(self.codes)), strict=True):
            count = self.levels[column]
            width = min(_WIDEST, (count + 2) // 2)
            table = jax.random.normal(each, (count, width), dtype) * width**-0.5
            tables[column] = {"table": jnp.concatenate([jnp.zeros((1, width), dtype), table])}
        base, state = self.base.init(base_key, self._read(tables, x), outputs)
        return {"base": base, "embeddings": tables}, state

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the base's outputs at numbers and embeddings, and its new state."""
        return outputs(self.base, params["base"], state, self._read(params["embeddings"], x), key, train, mask)

    def _read(self, tables: Params, x: Array) -> Array:
        if x.shape[1:] != (len(self.levels),):
            raise ValueError(f"inputs have the shape {x.shape[1:]} a row, the network has levels={self.levels}")
        dtype = tables[self.codes[0]]["table"].dtype
        numbers = np.array([column for column, count in enumerate(self.levels) if not count], int)
        return jnp.concatenate(
            [x[:, numbers].astype(dtype), *(_rows(tables[column]["table"], x[:, column]) for column in self.codes)],
            axis=1,
        )


def _rows(table: Array, codes: Array) -> Array:
    """Returns the rows of the table by a product with one-hot vectors, whose gradient needs no scatter."""
    one_hot = codes[:, None] == jnp.arange(1, table.shape[0], dtype=codes.dtype)[None]
    unknown = ~jnp.any(one_hot, axis=1, keepdims=True)
    return jnp.concatenate([unknown, one_hot], axis=1).astype(table.dtype) @ table
