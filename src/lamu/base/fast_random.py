"""Counter-based standard normal noise, for variational steps that draw one number a weight."""

# A threefry draw of as many normals as a network has weights costs about as much as the gradient itself. Here threefry
# mixes the key once, into two words \((k_0, k_1)\), and number i comes from two rounds of a 32-bit mixer with one word
# before each, and a feed-forward, so that words may repeat as random words do:
#
# \[ x_i = \mathrm{mix}_1(i + k_0), \qquad b_i = \mathrm{mix}_2(x_i \oplus k_1) \oplus x_i, \qquad
#    z_i = \sqrt2\, \mathrm{erf}^{-1}(u_i) \]
#
# with u_i in (−1, 1) from the high bits of b_i. Its resolution is that of `jax.random.normal` in the same dtype, and
# like that it is not cryptographic. Keys are JAX's own, of any implementation. The mixers are rounds of xor-shift and
# multiply with the constants of Wellons's search for the smallest bias (2018, "Prospecting for hash functions").
#
# In float32 the quantile is Giles's approximation (2012, "Approximating the erfinv function", table 5), with a
# logarithm of seven terms: its argument is always a normal number in (0, 1]. The relative error is below 3e-7
# everywhere; XLA's own quantile is slower, with an error of 6e-6.
#
# XLA for CPUs recomputes cheap operations at every use, and counts the quantile as cheap: a bias's noise was recomputed
# at every row and position to which the bias is broadcast, which made a variational step of a ConvNet 1.8 times as
# long. Fusion does not cross a branch, so on CPUs the hash is computed inside one branch and the quantile inside
# another: one loop of both takes 1.5 times as long as two.

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lamu.typing import Array, DTypeLike, RandomKey

__all__ = ["bits", "normal", "normals"]

_FIRST = (16, 0x21F0AAAD, 15, 0xD35A2D97, 15)
_SECOND = (16, 0x7FEB352D, 15, 0x846CA68B, 16)
_LOW = 0x9E3779B9

# The minimax polynomial for log(1 + f), 0 <= f < 1: absolute error below 2e-7, which suffices for the quantile.
_LOGARITHM = (
    1.922036858559295e-07, 0.9999731183052063, -0.4993799924850464, 0.327787846326828, -0.22475565969944,
    0.133146271109581, -0.054108500480651855, 0.010484088212251663,
)  # fmt: skip
_CENTRE = (
    1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06, -3.5233877e-06,
    3.43273939e-07, 2.81022636e-08,
)  # fmt: skip
_TAIL = (
    2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844, 0.00134934322,
    0.000100950558, -0.000200214257,
)  # fmt: skip


def bits(key: RandomKey, size: int) -> Array:
    """Returns `size` random words, `uint32[size]`; word i depends on the key and on i alone."""
    # `size`: the number of words, below 2³², where the counter would wrap around.
    return _hashed(_words(key, size), jax.lax.iota(jnp.uint32, size))


def normal(key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike | None = None) -> Array:
    """Returns independent standard normal numbers."""
    dtype = jnp.result_type(float) if dtype is None else jnp.dtype(dtype)
    return _drawn(_words_of(key, dtype == jnp.float64, math.prod(shape)), shape, dtype)


def normals(key: RandomKey, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[DTypeLike]) -> list[Array]:
    """Returns `normal` for each key of `jax.random.split`, with their words mixed in one vectorised call."""
    keys, size = jax.random.split(key, len(shapes)), max(map(math.prod, shapes))
    precise = any(dtype == jnp.float64 for dtype in dtypes)
    of = partial(_words_of, precise=precise, size=size)
    # On a CPU threefry is a loop of small operations, which cost a step of a small network one loop a leaf. For keys of
    # other implementations a batch has other words than each key alone.
    together = jax.random.key_impl(key) == "threefry2x32"
    words = jax.vmap(of)(keys) if together else jnp.stack([of(keys[i]) for i in range(len(shapes))])
    return [_drawn(words[i], shape, dtype) for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))]


def _drawn(words: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    wide = dtype if dtype == jnp.float64 else jnp.dtype(jnp.float32)
    return _in_branch(words if dtype == jnp.float64 else words[:2], tuple(shape), wide).astype(dtype)


def _words_of(key: RandomKey, precise: bool, size: int) -> Array:
    """Returns the two words that a draw derives from its key, or four for 64-bit numbers."""
    words = _words(key, size)
    if not precise:
        return words
    # Words under a second key are the lower half of the mantissa.
    return jnp.concatenate([words, _words(jax.random.fold_in(jax.random.clone(key), _LOW), 0)])


def _words(key: RandomKey, size: int) -> Array:
    if size >= 2**32:
        raise ValueError(f"{size} words are more than one key can number; split the key for every 2³² of them")
    return jax.random.bits(key, (2,), jnp.uint32)


@partial(jax.jit, static_argnums=(1, 2))
def _in_branch(words: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Draws inside of branches on CPUs, where XLA would otherwise fuse the draw into every use of it."""
    uniforms = partial(_uniforms, shape=shape, dtype=dtype)

    def branches(words: Array) -> Array:
        # A square is 0 or 1 modulo 4, so this bit is never set; but the compiler does not know that.
        never = (words[0] * words[0]) & jnp.uint32(2)
        apart = lambda draw, of: jax.lax.cond(never == 0, draw, lambda _: jnp.zeros(shape, dtype), of)
        return apart(_quantiles, apart(uniforms, words))

    return jax.lax.platform_dependent(words, cpu=branches, default=lambda words: _quantiles(uniforms(words)))


def _uniforms(words: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Returns numbers inside (−1, 1) from the hashed counter."""
    counter = jax.lax.iota(jnp.uint32, math.prod(shape))
    high = _hashed(words[:2], counter).view(jnp.int32)
    if dtype == jnp.float64:
        low = _hashed(words[2:], counter)
        uniform = high.astype(jnp.float64) * 2.0**-31 + ((low >> 11).astype(jnp.float64) + 0.5) * 2.0**-52
    else:
        # The 24 high bits of the signed word, centred in their interval: symmetric, and never an end.
        uniform = ((high >> 8).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-23)
    return uniform.reshape(shape)


def _quantiles(uniform: Array) -> Array:
    """Returns the normal quantiles of numbers inside (−1, 1)."""
    inverse = jax.lax.erf_inv if uniform.dtype == jnp.float64 else _inverse_error_function
    return inverse(uniform) * jnp.asarray(math.sqrt(2.0), uniform.dtype)


def _hashed(words: Array, counter: Array) -> Array:
    mixed = _mix(counter + words[0], _FIRST)
    return _mix(mixed ^ words[1], _SECOND) ^ mixed


def _mix(x: Array, constants: tuple[int, int, int, int, int]) -> Array:
    a, m, b, n, c = constants
    x = (x ^ (x >> a)) * jnp.uint32(m)
    x = (x ^ (x >> b)) * jnp.uint32(n)
    return x ^ (x >> c)


def _inverse_error_function(x: Array) -> Array:
    """Returns erf⁻¹ of float32 numbers inside (−1, 1)."""
    w = -_logarithm((1 - x) * (1 + x))
    central = w < 5
    distance = jnp.where(central, w - 2.5, jnp.sqrt(w) - 3)
    terms = [jnp.where(central, jnp.float32(a), jnp.float32(b)) for a, b in zip(_CENTRE, _TAIL, strict=True)]
    return _polynomial(terms, distance) * x


def _logarithm(y: Array) -> Array:
    """Returns the logarithm of normal float32 numbers above zero, from their exponent and mantissa."""
    word = jax.lax.bitcast_convert_type(y, jnp.int32)
    exponent = ((word >> 23) - 127).astype(jnp.float32)
    mantissa = jax.lax.bitcast_convert_type((word & 0x7FFFFF) | 0x3F800000, jnp.float32)
    terms = [jnp.float32(term) for term in _LOGARITHM]
    return _polynomial(terms, mantissa - 1) + exponent * jnp.float32(math.log(2.0))


def _polynomial(terms: list[Any], x: Array) -> Array:
    """Evaluates a polynomial by Horner's rule, given the constant term first."""
    value = terms[-1]
    for term in terms[-2::-1]:
        value = value * x + term
    return value
