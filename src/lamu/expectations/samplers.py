"""Samplers of a Monte Carlo average: independent, antithetic and quasi-Monte Carlo draws, each with the law q."""

from __future__ import annotations

from functools import cache
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.families import Gaussian
from lamu.record import record
from lamu.typing import Array, Belief, DTypeLike, Numeric, Params, RandomKey

__all__ = ["Antithetic", "IndependentSamples", "LatinHypercube", "QuasiMonteCarlo", "Sampler"]


# A draw depends only on the key, its index and the count, so that draws are evaluated in
# sequence and memory does not grow with S. Every single draw has the law q, which keeps any average unbiased; draws of
# one average may depend on each other, which reduces the variance.


@runtime_checkable
class Sampler(Protocol):
    """Scheme for the draws of one average."""

    def require(self, count: int) -> None:
        """Raises a ValueError if the sampler does not support this number of draws."""
        ...

    def draw(self, key: RandomKey, belief: Belief, index: Numeric, count: int) -> Params:
        """Returns one of the draws of an average.

        Args:
            key: of the average, the same for all its draws; it may also be used elsewhere.
            belief: q. A precision that is used more than once should be factored.
            index: which of the draws, a number or a traced integer, from 0 to `count` − 1.
            count: the number of draws of the average.
        """
        ...


@record
class IndependentSamples:
    r"""Independent draws of any belief: the variance of an average is that of one draw, divided by S.

    Examples:
        >>> from lamu.expectations import IndependentSamples
        >>> IndependentSamples()
        IndependentSamples()
    """

    def require(self, count: int) -> None:
        """Accepts any number of draws."""

    def draw(self, key: RandomKey, belief: Belief, index: Numeric, count: int) -> Params:
        """Returns a draw with its own key."""
        return belief.sample(own_key(key, index, count))


@record
class Antithetic:
    r"""Pairs on both sides of the mean, \(m + \epsilon\) and \(m - \epsilon\), for a Gaussian belief.

    The odd part of an integrand in \(\epsilon\) cancels within a pair: the average of a linear integrand is exact, and
    the variance of a monotone one falls. The even part, such as \(\epsilon^2\), is the same for both: its variance
    doubles: half of the draws are then wasted. Gradients of a loss are mostly odd, values and Hessians mostly even.

    Raises:
        ValueError: for an odd number of draws.
        TypeError: for a belief other than a Gaussian.

    Source: Hammersley & Morton (1956).

    Examples:
        >>> from lamu.expectations import Antithetic, MonteCarlo
        >>> MonteCarlo(samples=2, sampler=Antithetic()).samples
        2
    """

    def require(self, count: int) -> None:
        """Raises a ValueError for an odd number of draws."""
        if count % 2:
            raise ValueError(f"Antithetic() draws come in pairs, and {count} is odd; ask for {count + 1} draws")

    def draw(self, key: RandomKey, belief: Belief, index: Numeric, count: int) -> Params:
        """Returns the mean plus the pair's offset if the index is even, minus it if odd."""
        require_gaussian(belief, "Antithetic()")
        offset = belief.precision.sample(own_key(key, index // 2, count), belief.mean)
        leaf = jnp.result_type(*jax.tree.leaves(offset)) if jax.tree.leaves(offset) else jnp.result_type(float)
        return tree.add(belief.mean, offset, jnp.asarray(1 - 2 * (index % 2), leaf))


def own_key(key: RandomKey, index: Numeric, count: int) -> RandomKey:
    """Returns the key of a draw's noise; `layer_key` returns the other one, for a network's random layers."""
    return jax.random.split(_folded(key, index, count))[0]


def layer_key(key: RandomKey, index: Numeric, count: int) -> RandomKey:
    """Returns the key of a draw for a network's random layers."""
    return jax.random.split(_folded(key, index, count))[1]


def _folded(key: RandomKey, index: Numeric, count: int) -> RandomKey:
    # Cloned, because the noise and the layers each split the draw's key and use different halves of it.
    return jax.random.clone(key if count == 1 else jax.random.fold_in(key, index))


def require_gaussian(belief: Belief, name: str) -> None:
    """Raises a TypeError for a belief that is not Gaussian."""
    if not isinstance(belief, Gaussian):
        raise TypeError(f"{name} draws around the mean of a Gaussian, not of a {type(belief).__name__}; leave it out")


def from_noise(belief: Gaussian, noise: Array) -> Params:
    """Returns m + R z for a standard normal z, a vector in the coordinates of `lamu.tree.ravel`."""
    unravel = tree.ravel(belief.mean)[1]
    return tree.add(belief.mean, belief.precision.inverse_root(unravel(noise)))


def normal_quantile(centred: Array) -> Array:
    """Returns the standard normal quantile of (1 + centred)/2, finite even if rounding made `centred` ±1."""
    edge = 1.0 - float(jnp.finfo(centred.dtype).epsneg)
    return 2.0**0.5 * jax.lax.erf_inv(jnp.clip(centred, -edge, edge))


# A Sobol point of index i in coordinate j is the exclusive or of the direction numbers \(V_{jb}\) over the bits b of i.
# The scramble multiplies the bits of every coordinate by a random lower triangular matrix with ones on its diagonal,
# and adds a random shift, all in the field of two elements:
#
# \[ u_j = 2^{-32} \Big( \bigoplus_b i_b\, L_j V_{jb} \oplus s_j \Big) \]
#
# The shift alone makes every point uniform on the cube, hence the average unbiased; the matrix keeps an unfavourable
# pair of coordinates from being so for every key.


_BITS = 32
_LARGEST = 21_201  # dimensions with tabulated direction numbers


@record
class QuasiMonteCarlo:
    r"""Scrambled Sobol points through the normal quantile, for a Gaussian belief in up to 21,201 dimensions.

    Unbiased for every integrand. For a smooth one in few dimensions the error falls nearly as \(S^{-1}\) or faster,
    instead of \(S^{-1/2}\). In hundreds of dimensions the gain is limited to the part of the integrand that depends on
    one coordinate at a time; `LatinHypercube()` guarantees that part in any dimension, and is never much worse than
    independent draws.

    Raises:
        ValueError: for a number of draws that is no power of two, or more dimensions than the tables have.
        TypeError: for a belief other than a Gaussian.

    Source: Sobol (1967); direction numbers by Joe & Kuo (2008), as in SciPy; scramble by Matoušek (1998).

    Examples:
        >>> from lamu.expectations import MonteCarlo, QuasiMonteCarlo
        >>> MonteCarlo(samples=8, sampler=QuasiMonteCarlo()).sampler
        QuasiMonteCarlo()
    """

    def require(self, count: int) -> None:
        """Raises a ValueError unless the number of draws is a power of two, at which the points are balanced."""
        require_power_of_two(count, "QuasiMonteCarlo()")

    def draw(self, key: RandomKey, belief: Belief, index: Numeric, count: int) -> Params:
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
    """Raises a ValueError for a number of draws at which a net in base two is unbalanced."""
    if count & (count - 1):
        lower = 1 << (count.bit_length() - 1)
        raise ValueError(f"{name} needs a power of two of draws, not {count}; ask for {lower} or {2 * lower}")


def _point(key: RandomKey, index: Numeric, count: int, size: int, dtype: DTypeLike) -> Array:
    """Returns 2 u − 1 for the scrambled point, `[size]`."""
    # Every draw repeats the same scramble from the same key, which costs less than storing the points of all draws.
    matrix_key, shift_key = jax.random.split(jax.random.clone(key))
    bits = jax.random.bits(shift_key, (size,), jnp.uint32)
    depth = count.bit_length() - 1
    if depth:
        # Column c of a lower triangular matrix: zero above bit c (bit 0 is the most significant), one at it.
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
    # Signed, so that both tails are resolved equally.
    signed = jax.lax.bitcast_convert_type(bits ^ jnp.uint32(1 << (_BITS - 1)), jnp.int32)
    return (signed.astype(dtype) + 0.5) / 2.0 ** (_BITS - 1)


@cache
def _directions(depth: int, size: int) -> np.ndarray:
    """Returns the direction numbers V, `[depth, size]`, which are the points of SciPy's sequence at 2^(b+1) − 1."""
    from scipy.stats import qmc

    points = qmc.Sobol(size, scramble=False, bits=_BITS).random(1 << depth)
    # SciPy walks in Gray code, where the code with only bit b set has index 2^(b+1) − 1.
    chosen = points[(1 << np.arange(1, depth + 1)) - 1]
    return (chosen * 2.0**_BITS).astype(np.uint32)


# Draw i falls in slice \(\pi_j(i)\) of coordinate j, for a random permutation \(\pi_j\). A stored permutation per
# coordinate would take S numbers per coordinate; instead \(\pi_j(i) = a_j i + b_j\) in the field of S elements, with
# random \(a_j \ne 0\) and \(b_j\). A pair of draws then has in each coordinate exactly the law that it has under a
# uniformly random permutation (any two different slices, equally likely), and the variance of an average depends only
# on pairs.


# An irreducible polynomial of each degree over the field of two elements, including its leading term.
_POLYNOMIALS = (
    0x3,
    0x7,
    0xB,
    0x13,
    0x25,
    0x43,
    0x83,
    0x11B,
    0x211,
    0x409,
    0x805,
    0x1053,
    0x201B,
    0x4443,
    0x8003,
    0x1100B,
)


@record
class LatinHypercube:
    r"""Stratified draws in every coordinate of a Gaussian belief, in any dimension.

    Unbiased. The additive part of the integrand in the coordinates of the standard normal is integrated nearly without
    error (\(S^{-3}\) in variance if smooth); the rest as by independent draws. The variance is at most
    \(S/(S-1)\) times theirs, for any integrand and dimension.

    Raises:
        ValueError: for a number of draws that is no power of two, or above 65,536.
        TypeError: for a belief other than a Gaussian.

    Source: McKay, Beckman & Conover (1979); Owen (1997), for the bound.

    Examples:
        >>> from lamu.expectations import LatinHypercube, MonteCarlo
        >>> MonteCarlo(samples=4, sampler=LatinHypercube()).samples
        4
    """

    def require(self, count: int) -> None:
        """Raises a ValueError for a number of draws without a tabulated field of that many elements."""
        require_power_of_two(count, "LatinHypercube()")
        if count.bit_length() - 1 > len(_POLYNOMIALS):
            raise ValueError(f"LatinHypercube() draws at most {1 << len(_POLYNOMIALS)}, not {count}; average several")

    def draw(self, key: RandomKey, belief: Belief, index: Numeric, count: int) -> Params:
        """Returns a draw whose coordinates lie in the slices that the permutations give the index."""
        require_gaussian(belief, "LatinHypercube()")
        vector = tree.ravel(belief.mean)[0]
        slice_key, place_key = jax.random.split(jax.random.clone(key))
        cell = _slices(slice_key, index, count, vector.size)
        place = jax.random.uniform(jax.random.fold_in(place_key, index), vector.shape, vector.dtype)
        return from_noise(belief, normal_quantile((cell.astype(vector.dtype) + place) * (2.0 / count) - 1.0))


def _slices(key: RandomKey, index: Numeric, count: int, size: int) -> Array:
    """Returns a_j i + b_j in the field of `count` elements, `[size]`."""
    factor_key, shift_key = jax.random.split(key)
    depth = count.bit_length() - 1
    result = jax.random.randint(shift_key, (size,), 0, count, jnp.uint32)
    if depth == 0:
        return result
    index = jnp.asarray(index, jnp.uint32)
    power = jax.random.randint(factor_key, (size,), 1, count, jnp.uint32)  # a x^b, from b = 0
    for bit in range(depth):
        result = result ^ (power * ((index >> bit) & 1))
        power = power << 1
        power = power ^ ((power >> depth) * jnp.uint32(_POLYNOMIALS[depth - 1]))
    return result
