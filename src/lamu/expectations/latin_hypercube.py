"""Latin hypercube draws: in every coordinate, one draw in each of S slices of equal probability."""

# Draw i falls in slice \(\pi_j(i)\) of coordinate j, for a random permutation \(\pi_j\). Keeping a permutation a
# coordinate would take S numbers a coordinate; instead \(\pi_j(i) = a_j i + b_j\) in the field of S elements, with
# random \(a_j \ne 0\) and \(b_j\). A pair of draws then has in each coordinate exactly the law that it has under a
# uniformly random permutation (any two different slices, alike likely), and the variance of an average depends on pairs
# alone.

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.expectations.quasi_monte_carlo import require_power_of_two
from lamu.expectations.samplers import from_noise, normal_quantile, require_gaussian
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["LatinHypercube"]

# An irreducible polynomial of each degree over the field of two elements, its leading term included.
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

    Unbiased. What the integrand adds up from single coordinates of the standard normal is integrated nearly without
    error (\(S^{-3}\) in variance where smooth); the rest as by independent draws. The variance is never more than
    \(S/(S-1)\) times theirs, whatever the integrand and the dimension.

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
        """Refuses a number of draws for which there is no field of that many elements here."""
        require_power_of_two(count, "LatinHypercube()")
        if count.bit_length() - 1 > len(_POLYNOMIALS):
            raise ValueError(f"LatinHypercube() draws at most {1 << len(_POLYNOMIALS)}, not {count}; average several")

    def draw(self, key: RandomKey, belief: Any, index: Any, count: int) -> Params:
        """Returns a draw whose coordinates lie in the slices that the permutations give the index."""
        require_gaussian(belief, "LatinHypercube()")
        vector = tree.ravel(belief.mean)[0]
        slice_key, place_key = jax.random.split(jax.random.clone(key))
        cell = _slices(slice_key, index, count, vector.size)
        place = jax.random.uniform(jax.random.fold_in(place_key, index), vector.shape, vector.dtype)
        return from_noise(belief, normal_quantile((cell.astype(vector.dtype) + place) * (2.0 / count) - 1.0))


def _slices(key: RandomKey, index: Any, count: int, size: int) -> Array:
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
