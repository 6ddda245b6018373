"""Lossless compression with latent-variable models."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit, ndtr, ndtri, softmax

from lamu.graphs.expressions import Environment
from lamu.graphs.graph import Graph
from lamu.graphs.joint import Row, dtype_of, in_dtype, own_natural, shape_of
from lamu.graphs.queries import expected_statistics
from lamu.graphs.statistics import Numbers
from lamu.latent.locals import Amortised, MeanField
from lamu.latent.row_proposals import graph_of
from lamu.likelihoods import Bernoulli, Categorical
from lamu.record import given, record, static
from lamu.typing import Array, DTypeLike, Statistics

__all__ = ["BitsBack", "Stack"]


def functions_of(posterior: Any) -> tuple[Callable[[np.ndarray], Any], Callable[[np.ndarray], Any], int]:
    """Returns functions for moments of q(z | y) and for symbols' probabilities, and the number of latents."""
    graph = graph_of(posterior)
    statistics = expected_statistics(graph, posterior.belief, 32, jax.random.clone(posterior.key))
    dtype = dtype_of(statistics)
    sites, environment = in_dtype(graph.at_values().in_rows, dtype), Environment(dict(statistics))
    latents = [site for site in sites if site.factor.exact]
    symbols = [site for site in sites if site.factor.is_likelihood]
    encoder = (graph.local or {}).get(latents[0].name) if len(latents) == 1 else None
    if len(symbols) != 1 or not isinstance(encoder, Amortised) or not isinstance(encoder.family, MeanField):
        raise TypeError(
            "a bits-back code is of rows with one latent, an Amortised local with a MeanField() belief, and one "
            f"variable of a likelihood; this graph has the latents {', '.join(site.name for site in latents) or 'none'}"
        )
    (z,), (y,) = latents, symbols
    if not isinstance(y.factor.likelihood, Bernoulli | Categorical):
        raise TypeError(
            f"{y.name!r} has the likelihood {y.factor.likelihood.name}, and a code is of symbols; use Bernoulli() or "
            "Categorical(K)"
        )
    if not _standard(z, environment, dtype):
        raise TypeError(f"the prior of {z.name!r} is not a standard normal, whose bins the code cuts; use Normal(0, 1)")

    def probabilities(value: np.ndarray) -> np.ndarray:
        f = np.asarray(_outputs(graph, dict(statistics), np.asarray(value, dtype), z.name, y.name), float)
        is_binary = isinstance(y.factor.likelihood, Bernoulli)
        return expit(np.concatenate([-f, f], axis=-1)) if is_binary else softmax(f, axis=-1)

    encoded = lambda row: _encoded(graph, dict(statistics), np.asarray(row, dtype), z.name, y.name)
    return encoded, probabilities, math.prod(shape_of(z))


@partial(jax.jit, static_argnames=("latent", "symbol"))
def _encoded(graph: Graph, statistics: Statistics, row: Array, latent: str, symbol: str) -> tuple[Array, Array]:
    """Returns mean and deviation of q(z | y) of a row."""
    encoder: Any = graph.local[latent]
    dtype, environment = dtype_of(statistics), Environment(statistics)
    of_row = Row.of(in_dtype(graph.at_values().in_rows, dtype), (), {symbol: row}, 1.0, dtype)
    belief = encoder.belief(latent, statistics["local"][latent], of_row, environment)
    return belief.mean, jax.lax.rsqrt(belief.precision.values)


@partial(jax.jit, static_argnames=("latent", "symbol"))
def _outputs(graph: Graph, statistics: Statistics, value: Array, latent: str, symbol: str) -> Array:
    """Returns the outputs of the symbols' likelihood at latents."""
    sites: Any = {site.name: site for site in in_dtype(graph.at_values().in_rows, dtype_of(statistics))}
    z = sites[latent]
    values = z.kind.of(jnp.reshape(value, shape_of(z)))
    return sites[symbol].factor.entries(Environment({**statistics, latent: values}))[0]


def _standard(site: Any, environment: Environment, dtype: DTypeLike) -> bool:
    """Returns whether a latent's prior is N(0, I): λ = (0, −1/2)."""
    if site.kind is not Numbers or not site.factor.conjugate or site.factor.names & set(environment.statistics):
        return False
    natural: Any = own_natural(site, Environment({}), dtype)
    return bool(np.allclose(natural.first, 0.0) and np.allclose(natural.second, -0.5))


_LEAST, _WORD = 1 << 31, 32  # the head is in [2³¹, 2⁶³), and grows and shrinks by words of 32 bits


class Stack:
    r"""A last-in, first-out stack of symbols, coded by range asymmetric numeral systems.

    A symbol that owns the numbers \([c, c + f)\) of \(2^r\) is pushed by

    \[ s \leftarrow 2^r \lfloor s / f \rfloor + c + (s \bmod f) \]

    and costs \(\log_2 (2^r / f)\) bits, up to a relative error of 2⁻³¹. Popping is the inverse: it reads the symbol
    from \(s \bmod 2^r\), which for a random state is a sample from the symbols' distribution.

    Attributes:
        words: the bits below the head, integers below 2³², the last on top.
        head: the top of the stack, a number in [2³¹, 2⁶³).

    Source: Duda (2009); Townsend, Bird & Barber (2019), section 2.2.

    Examples:
        >>> from lamu.latent import Stack
        >>> stack = Stack([7, 8, 9])
        >>> stack.push(start=1, frequency=3, precision=2)  # a symbol of probability 3/4
        >>> stack.pop(precision=2, interval=lambda number: (1, 3) if number >= 1 else (0, 1))
        (1, 3)
        >>> stack.words
        [7, 8, 9]
    """

    def __init__(self, words: list[int], head: int = _LEAST) -> None:
        self.words, self.head = list(words), head

    @property
    def bits(self) -> float:
        """The amount of information on the stack, in bits."""
        return _WORD * len(self.words) + math.log2(self.head)

    def push(self, start: int, frequency: int, precision: int) -> None:
        """Pushes a symbol.

        Args:
            start: the first number that the symbol owns.
            frequency: the number of its numbers, at least one.
            precision: r; all symbols together own 2ʳ numbers.

        Raises:
            ValueError: for a symbol of frequency zero, which cannot be coded.
        """
        if frequency < 1:
            raise ValueError(
                f"a symbol of frequency {frequency} cannot be coded; give every symbol at least one number"
            )
        if self.head >= (frequency << (63 - precision)):
            self.words.append(self.head & 0xFFFFFFFF)
            self.head >>= _WORD
        quotient, remainder = divmod(self.head, frequency)
        self.head = (quotient << precision) + start + remainder

    def pop(self, precision: int, interval: Callable[[int], tuple[int, int]]) -> tuple[int, int]:
        """Pops a symbol, and returns its start and frequency.

        Args:
            precision: r.
            interval: the start and frequency of the symbol that owns a number.

        Raises:
            ValueError: if the stack is empty.
        """
        number = self.head & ((1 << precision) - 1)
        start, frequency = interval(number)
        self.head = frequency * (self.head >> precision) + number - start
        if self.head < _LEAST:
            if not self.words:
                raise ValueError("the stack is empty; start it with more random words")
            self.head = (self.head << _WORD) | self.words.pop()
        return start, frequency


def cumulative(probabilities: np.ndarray, precision: int) -> np.ndarray:
    """Returns the first number of each symbol and the end, `[..., symbols + 1]`; every symbol gets at least one."""
    symbols = probabilities.shape[-1]
    if symbols >= 1 << precision:
        raise ValueError(f"{symbols} symbols need more than {precision} bits; raise the precision")
    sums = np.cumsum(np.asarray(probabilities, np.float64), axis=-1)
    sums = np.concatenate([np.zeros_like(sums[..., :1]), np.minimum(sums / sums[..., -1:], 1.0)], axis=-1)
    return np.floor(sums * ((1 << precision) - symbols)).astype(np.int64) + np.arange(symbols + 1)


_PRECISION = 24  # bits of a symbol's interval


@record
class BitsBack:
    r"""A lossless code of rows of symbols, by a model with latents \(z \sim N(0, I)\).

    To code a row, z is popped from the stack as a sample of q(z | y), y is pushed under p(y | z), and z under p(z). The
    bits that z used are recovered, so that the expected length of a row is the negative evidence lower bound,

    \[ E_q[\log q(z \mid y) - \log p(z) - \log p(y \mid z)] \]

    Latents are rounded to bins of equal prior mass. The two functions must return the same bits for the same
    argument in coding and decoding: call them row by row, compiled once.

    Attributes:
        belief: maps a row `[positions]` to mean and standard deviation of q(z | y), `[latents]` each.
        probabilities: maps latents `[latents]` to the probabilities of the symbols, `[positions, symbols]`.
        latents: number of latents of a row.
        bin_bits: the base-2 logarithm of the number of bins of a latent.

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

        From a posterior (`BitsBack.of`):

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
        """Returns the code of the rows of a graph with one encoder, with θ at the belief's mean.

        Args:
            posterior: of a `lamu.Graph` with one latent, of a standard normal prior and an `Amortised` local with a
                `MeanField()` belief, and one variable of a `Bernoulli()` or `Categorical(K)` likelihood.
            bin_bits: as for the attribute.

        Raises:
            TypeError: for another model.
        """
        return cls(*functions_of(posterior), bin_bits=bin_bits)

    def encode(self, stack: Stack, rows: np.ndarray) -> None:
        """Pushes rows, with the last on top.

        Args:
            stack: a stack with words, from which the first latents are popped: random ones, or an earlier message.
            rows: symbols from zero, integers `[N, positions]`.

        Raises:
            ValueError: for a symbol that is not in the model, or a stack with too few words.
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
            stack: a message; its content below the rows remains.
            n: number of rows.
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
        """Returns the symbols' cumulative table at every position, with the latents at the middles of their bins."""
        z = ndtri((np.asarray(bins) + 0.5) / (1 << self.bin_bits))
        return cumulative(np.asarray(self.probabilities(z)), _PRECISION)


@functools.cache
def _bin_ends(bits: int) -> np.ndarray:
    """Returns the ends of bins of equal mass under N(0, 1), `[bins + 1]`."""
    return ndtri(np.arange((1 << bits) + 1) / (1 << bits))


def _push(stack: Stack, table: np.ndarray, symbol: int) -> None:
    stack.push(int(table[symbol]), int(table[symbol + 1] - table[symbol]), _PRECISION)


def _pop(stack: Stack, table: np.ndarray) -> int:
    """Pops and returns the symbol on top."""

    def interval(number: int) -> tuple[int, int]:
        symbol = int(np.searchsorted(table, number, side="right")) - 1
        return int(table[symbol]), int(table[symbol + 1] - table[symbol])

    return int(np.searchsorted(table, stack.pop(_PRECISION, interval)[0], side="right")) - 1
