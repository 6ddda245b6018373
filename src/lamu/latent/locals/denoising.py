"""A code of a row that is corrupted while the encoder learns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row
from lamu.graphs.local import Eliminated, Rest
from lamu.latent.locals.delta import Delta
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Corruption", "Denoising", "GaussianNoise", "Masking"]


class Corruption(ABC):
    """What a denoising autoencoder does to a row before it reads it."""

    @abstractmethod
    def apply(self, key: RandomKey, value: Array) -> Array:
        """Returns the corrupted values.

        Args:
            key: a random key.
            value: of one variable of a row.
        """


@record
class Masking(Corruption):
    r"""Each entry is zero with probability ν, and stays as it is otherwise.

    Attributes:
        share: ν.

    Raises:
        ValueError: for a share outside [0, 1).

    Source: Vincent, Larochelle, Bengio & Manzagol (2008), section 2.3.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import Masking
        >>> sorted(set(Masking(0.5).apply(jax.random.key(0), jnp.full(100, 3.0)).tolist()))
        [0.0, 3.0]
    """

    share: Number = 0.25

    def __post_init__(self) -> None:
        if not 0.0 <= self.share < 1.0:
            raise ValueError(f"share={self.share!r} is no share of entries to hide; give a number in [0, 1)")

    def apply(self, key: RandomKey, value: Array) -> Array:
        """Returns the values, some of them zero."""
        return jnp.where(jax.random.bernoulli(key, self.share, value.shape), jnp.zeros_like(value), value)


@record
class GaussianNoise(Corruption):
    r"""A draw of \(N(0, s^2)\) is added to each entry.

    Attributes:
        scale: s, in the unit of the data.

    Raises:
        ValueError: for a scale that is not positive.

    Source: Vincent, Larochelle, Lajoie, Bengio & Manzagol (2010), section 3.3.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import GaussianNoise
        >>> bool(abs(jnp.std(GaussianNoise(2.0).apply(jax.random.key(0), jnp.zeros(1000))) - 2.0) < 0.3)
        True
    """

    scale: Number = 0.3

    def __post_init__(self) -> None:
        if not self.scale > 0.0:
            raise ValueError(f"scale={self.scale!r} corrupts nothing; give a positive number, or take Delta(network)")

    def apply(self, key: RandomKey, value: Array) -> Array:
        """Returns the values with noise."""
        return value + jnp.asarray(self.scale, value.dtype) * jax.random.normal(key, value.shape, value.dtype)


@record
class Denoising(Delta):
    r"""A latent \(z = f(\tilde y)\) that a network computes of a corrupted row \(\tilde y \sim C(\tilde y \mid y)\).

    A row counts \(\log p(y \mid z) + \log p(z)\), y being the clean row. The rows are corrupted in training alone, anew
    at every step; codes, and what is evaluated, are of rows as they are. As with `Delta` there is no density of a row.

    Attributes:
        network: the encoder f.
        corruption: C, `Masking(share)`, `GaussianNoise(scale)`, or one of your own, which inherits from `Corruption`.

    Raises:
        TypeError: for something that is no corruption.

    Source: Vincent, Larochelle, Bengio & Manzagol (2008).

    Examples:
        >>> from lamu.latent import Denoising, Masking
        >>> from lamu.networks import MLP
        >>> Denoising(MLP((16,)), Masking(0.3)).counts
        True
    """

    corruption: Corruption | Any = Masking()

    random: ClassVar[bool] = True
    counts = True  # a step there is in training alone

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.corruption, Corruption):
            raise TypeError(f"the corruption is {self.corruption!r}; give for instance latent.Masking(0.25)")

    def eliminated(self, name: str, own: Params, row: Row, at: Environment, key: Any, rest: Rest) -> Eliminated:
        """Returns the log joint density at the code of the corrupted row, in training, and λ around the code."""
        of_noise, of_rest = jax.random.split(key)
        if at.step is None:
            return super().eliminated(name, own, row, at, of_rest, rest)
        code = self.code(name, own, self._corrupted(of_noise, row), at)
        return self.at_code(code, name, row, at, of_rest, rest)

    def _corrupted(self, key: RandomKey, row: Row) -> Row:
        """Returns the row as the encoder sees it."""
        data = {
            name: self.corruption.apply(jax.random.fold_in(key, number), jnp.asarray(value, jnp.result_type(float)))
            for number, (name, value) in enumerate(row.data.items())
        }
        return replace(row, data=data)
