"""Quasi-Monte Carlo draws: a Sobol sequence, scrambled by the key."""

# A Sobol point of index i in coordinate j is the exclusive or of the direction numbers \(V_{jb}\) over the bits b of i.
# The scramble multiplies the bits of every coordinate by a random lower triangular matrix with ones on its diagonal,
# and adds a random shift, all in the field of two elements:
#
# \[ u_j = 2^{-32} \Big( \bigoplus_b i_b\, L_j V_{jb} \oplus s_j \Big) \]
#
# The shift alone makes every point uniform on the cube, hence the average unbiased; the matrix keeps a bad pair of
# coordinates from being bad for every key.

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.expectations.samplers import from_noise, normal_quantile, require_gaussian
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["QuasiMonteCarlo"]

_BITS = 32
_LARGEST = 21_201  # coordinates with tabulated direction numbers


@record
class QuasiMonteCarlo:
    r"""Scrambled Sobol points through the normal quantile, for a Gaussian belief in up to 21,201 dimensions.

    Unbiased for every integrand. For a smooth one in few dimensions the error falls nearly as \(S^{-1}\) or faster, and
    not as \(S^{-1/2}\). In hundreds of dimensions what is gained is the part of the integrand that depends on one
    coordinate at a time; `LatinHypercube()` promises that part in any dimension, and never to be much worse than
    independent draws.

    Raises:
        ValueError: for a number of draws that is no power of two, or more dimensions than there are tables for.
        TypeError: for a belief other than a Gaussian.

    Source: Sobol (1967); direction numbers by Joe & Kuo (2008), as in SciPy; scramble by Matoušek (1998).

    Examples:
        >>> from lamu.expectations import MonteCarlo, QuasiMonteCarlo
        >>> MonteCarlo(samples=8, sampler=QuasiMonteCarlo()).sampler
        QuasiMonteCarlo()
    """

    def require(self, count: int) -> None:
        """Refuses a number of draws other than a power of two, at which the points are balanced."""
        require_power_of_two(count, "QuasiMonteCarlo()")

    def draw(self, key: RandomKey, belief: Any, index: Any, count: int) -> Params:
        """Returns the draw of one scrambled Sobol point."""
        require_gaussian(belief, "QuasiMonteCarlo()")
        size = tree.dimension(belief.mean)
        if size > _LARGEST:
            raise ValueError(
                f"QuasiMonteCarlo() has tables for {_LARGEST} dimensions, and this belief has {size}; "
                "use LatinHypercube()"
            )
        dtype = tree.ravel(belief.mean)[0].dtype
        return from_noise(belief, normal_quantile(_point(key, index, count, size, dtype)))


def require_power_of_two(count: int, name: str) -> None:
    """Refuses a number of draws at which a net in base two has no balance."""
    if count & (count - 1):
        lower = 1 << (count.bit_length() - 1)
        raise ValueError(f"{name} needs a power of two of draws, not {count}; ask for {lower} or {2 * lower}")


def _point(key: RandomKey, index: Any, count: int, size: int, dtype: Any) -> Array:
    """Returns 2 u − 1 for the scrambled point, `[size]`."""
    # Every draw makes the same scramble of the same key again, which costs less than keeping the points of all draws.
    matrix_key, shift_key = jax.random.split(jax.random.clone(key))
    bits = jax.random.bits(shift_key, (size,), jnp.uint32)
    depth = count.bit_length() - 1
    if depth:
        # Column c of a lower triangular matrix: nothing above bit c (bit 0 is the most significant), one at it.
        ones = 1 << np.arange(_BITS - 1, _BITS - 1 - depth, -1, dtype=np.uint64)
        random = jax.random.bits(matrix_key, (depth, size), jnp.uint32)
        columns = (random & jnp.asarray(ones - 1, jnp.uint32)[:, None]) | jnp.asarray(ones, jnp.uint32)[:, None]
        directions = jnp.asarray(_directions(depth, size))
        index = jnp.asarray(index, jnp.uint32)
        point = jnp.zeros(size, jnp.uint32)
        for bit in range(depth):
            point = point ^ (directions[bit] * ((index >> bit) & 1))
        for c in range(depth):
            bits = bits ^ (columns[c] * ((point >> (_BITS - 1 - c)) & 1))
    # Signed, so that both tails are resolved alike.
    signed = jax.lax.bitcast_convert_type(bits ^ jnp.uint32(1 << (_BITS - 1)), jnp.int32)
    return (signed.astype(dtype) + 0.5) / 2.0 ** (_BITS - 1)


@cache
def _directions(depth: int, size: int) -> np.ndarray:
    """Returns the direction numbers V, `[depth, size]`, which are the points of SciPy's sequence at 2^(b+1) − 1."""
    from scipy.stats import qmc

    points = qmc.Sobol(size, scramble=False, bits=_BITS).random(1 << depth)
    # SciPy walks in Gray code, in which the one code with bit b alone stands at index 2^(b+1) − 1.
    chosen = points[(1 << np.arange(1, depth + 1)) - 1]
    return (chosen * 2.0**_BITS).astype(np.uint32)
