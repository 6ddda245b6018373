r"""Asymmetric numeral systems: a stack of bits to which symbols of any probabilities are pushed, and popped again."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

__all__ = ["Stack", "cumulative"]

_LEAST, _WORD = 1 << 31, 32  # the head is in [2³¹, 2⁶³), and grows and shrinks by words of 32 bits


class Stack:
    r"""A last-in, first-out stack of symbols: range asymmetric numeral systems.

    A symbol that owns the numbers \([c, c + f)\) of \(2^r\) is pushed by

    \[ s \leftarrow 2^r \lfloor s / f \rfloor + c + (s \bmod f) \]

    and costs \(\log_2 (2^r / f)\) bits, up to 2⁻³¹ of it. Popping is the inverse: it reads the symbol off
    \(s \bmod 2^r\), which for a random state is a draw from the symbols' distribution.

    Attributes:
        words: the bits below the head, whole numbers below 2³², the last on top.
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
        """How much information is on the stack."""
        return _WORD * len(self.words) + math.log2(self.head)

    def push(self, start: int, frequency: int, precision: int) -> None:
        """Pushes a symbol.

        Args:
            start: the first number that the symbol owns.
            frequency: how many it owns, at least one.
            precision: r; all symbols together own 2ʳ numbers.

        Raises:
            ValueError: for a symbol that owns nothing, which cannot be coded.
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
            ValueError: where the stack is empty.
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
    """Returns the first number of each symbol and the end, `[..., symbols + 1]`; every symbol owns at least one."""
    symbols = probabilities.shape[-1]
    if symbols >= 1 << precision:
        raise ValueError(f"{symbols} symbols need more than {precision} bits; raise the precision")
    sums = np.cumsum(np.asarray(probabilities, np.float64), axis=-1)
    sums = np.concatenate([np.zeros_like(sums[..., :1]), np.minimum(sums / sums[..., -1:], 1.0)], axis=-1)
    return np.floor(sums * ((1 << precision) - symbols)).astype(np.int64) + np.arange(symbols + 1)
