r"""Bits back: rows with latents coded at the evidence lower bound."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from lamu.latent.coding.of_posterior import functions_of
from lamu.latent.coding.rans import Stack, cumulative
from lamu.record import given, record, static

__all__ = ["BitsBack"]

_PRECISION = 24  # bits of a symbol's interval


@record
class BitsBack:
    r"""A lossless code of rows of symbols, by a model with latents \(z \sim N(0, I)\).

    To code a row, z is popped from the stack as a draw of q(z | y), y is pushed under p(y | z), and z under p(z). The
    bits that z took are had back, so that the expected length of a row is the negative evidence lower bound,

    \[ E_q[\log q(z \mid y) - \log p(z) - \log p(y \mid z)] \]

    Latents are rounded to bins of equal prior mass. The two functions must return the same bits for the same
    argument in coding and decoding: call them row by row, compiled once.

    Attributes:
        belief: a row `[positions]` to mean and standard deviation of q(z | y), `[latents]` each.
        probabilities: latents `[latents]` to the probabilities of the symbols, `[positions, symbols]`.
        latents: how many latents a row has.
        bin_bits: the logarithm to base 2 of the number of bins of a latent.

    Raises:
        ValueError: for fewer than one bit, or more than 16, of a bin.

    Source: Townsend, Bird & Barber (2019), section 2.3 and table 1.

    Examples:
        >>> import numpy as np
        >>> from lamu.latent import BitsBack, Stack
        >>> code = BitsBack(
        ...     belief=lambda y: (np.full(1, y.mean()), np.full(1, 0.5)),
        ...     probabilities=lambda z: np.tile([0.6 - 0.1 * np.tanh(z[0]), 0.4 + 0.1 * np.tanh(z[0])], (3, 1)),
        ...     latents=1,
        ... )
        >>> rows = np.array([[0, 1, 0], [1, 1, 0]])
        >>> stack = Stack(words=list(range(1, 9)))
        >>> code.encode(stack, rows)
        >>> code.decode(stack, 2).tolist(), stack.words
        ([[0, 1, 0], [1, 1, 0]], [1, 2, 3, 4, 5, 6, 7, 8])

        Of a posterior (`BitsBack.of`):

        >>> import jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> fit = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20)
        >>> code, stack = BitsBack.of(fit.posterior), Stack(words=list(range(1, 99)))
        >>> code.encode(stack, np.eye(5, dtype=int))
        >>> bool((code.decode(stack, 5) == np.eye(5)).all())
        True
    """

    belief: Callable[[np.ndarray], tuple[Any, Any]] = given()
    probabilities: Callable[[np.ndarray], Any] = given()
    latents: int = static()
    bin_bits: int = static(default=12)

    def __post_init__(self) -> None:
        if not 1 <= self.bin_bits <= 16:
            raise ValueError(f"bin_bits={self.bin_bits!r} is not between 1 and 16; 12 loses little")

    @classmethod
    def of(cls, posterior: Any, bin_bits: int = 12) -> BitsBack:
        """Returns the code of the rows of a graph with one encoder, θ at the belief's mean.

        Args:
            posterior: of a `lamu.Graph` with one latent, of a standard normal prior and an `Amortised` local with a
                `MeanField()` belief, and one variable of a `Bernoulli()` or `Categorical(K)` likelihood.
            bin_bits: as the attribute.

        Raises:
            TypeError: for another model.
        """
        return cls(*functions_of(posterior), bin_bits=bin_bits)

    def encode(self, stack: Stack, rows: np.ndarray) -> None:
        """Pushes rows, the last on top.

        Args:
            stack: it holds words already, from which the first latents are popped: random ones, or an earlier message.
            rows: symbols from zero, whole numbers `[N, positions]`.

        Raises:
            ValueError: for a symbol that the model does not have, or a stack with too few words.
        """
        for row in rows:
            edges = self._edges(row)
            bins = [_pop(stack, of_latent) for of_latent in edges]
            for symbol, table in zip(row, self._tables(bins), strict=True):
                if not 0 <= symbol < len(table) - 1:
                    raise ValueError(f"the symbol {symbol} is none of the model's {len(table) - 1}; give whole numbers")
                _push(stack, table, int(symbol))
            for number in bins:
                stack.push(number, 1, self.bin_bits)

    def decode(self, stack: Stack, n: int) -> np.ndarray:
        """Pops the n rows on top, in the order in which they were pushed, `[n, positions]`.

        Args:
            stack: a message; what was on it before the rows is left.
            n: how many rows.
        """
        rows: list[np.ndarray] = []
        for _ in range(n):
            bins = [stack.pop(self.bin_bits, lambda number: (number, 1))[0] for _ in range(self.latents)][::-1]
            row = np.array([_pop(stack, table) for table in self._tables(bins)[::-1]][::-1])
            for number, of_latent in list(zip(bins, self._edges(row), strict=True))[::-1]:
                _push(stack, of_latent, number)
            rows.append(row)
        return np.stack(rows[::-1])

    def _edges(self, row: np.ndarray) -> np.ndarray:
        """Returns the cumulative table of q over the bins of every latent, `[latents, bins + 1]`."""
        mean, scale = (np.asarray(part, np.float64)[:, None] for part in self.belief(row))
        ends = _bin_ends(self.bin_bits)[None, :]
        return cumulative(np.diff(ndtr((ends - mean) / scale), axis=-1), _PRECISION)

    def _tables(self, bins: list[int]) -> np.ndarray:
        """Returns the cumulative table of the symbols at every position, the latents at the middles of their bins."""
        z = ndtri((np.asarray(bins) + 0.5) / (1 << self.bin_bits))
        return cumulative(np.asarray(self.probabilities(z)), _PRECISION)


@functools.cache
def _bin_ends(bits: int) -> np.ndarray:
    """Returns the ends of bins of equal mass under N(0, 1), `[bins + 1]`."""
    return ndtri(np.arange((1 << bits) + 1) / (1 << bits))


def _push(stack: Stack, table: np.ndarray, symbol: int) -> None:
    stack.push(int(table[symbol]), int(table[symbol + 1] - table[symbol]), _PRECISION)


def _pop(stack: Stack, table: np.ndarray) -> int:
    """Returns the symbol on top."""

    def interval(number: int) -> tuple[int, int]:
        symbol = int(np.searchsorted(table, number, side="right")) - 1
        return int(table[symbol]), int(table[symbol + 1] - table[symbol])

    return int(np.searchsorted(table, stack.pop(_PRECISION, interval)[0], side="right")) - 1
