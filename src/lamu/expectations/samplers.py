"""Samplers of a Monte Carlo average: independent, antithetic and quasi-Monte Carlo draws, each with the law q."""

# A draw depends on the key, on its index and on the count, and on nothing else, so that draws are made one after the
# other and memory does not grow with S. Every draw has the law q by itself, which keeps any average unbiased; draws of
# one average may depend on each other, which is the whole point.

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.families import Gaussian
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Antithetic", "IndependentSamples", "Sampler"]


@runtime_checkable
class Sampler(Protocol):
    """How the draws of one average are spread."""

    def require(self, count: int) -> None:
        """Raises a ValueError where the sampler cannot make an average of so many draws."""
        ...

    def draw(self, key: RandomKey, belief: Any, index: Any, count: int) -> Params:
        """Returns one of the draws of an average.

        Args:
            key: of the average, the same for all its draws; it may be used for something else too.
            belief: q. A precision that is used more than once should come factored.
            index: which of the draws, a number or a traced integer, from 0 to `count` − 1.
            count: how many draws are averaged.
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

    def draw(self, key: RandomKey, belief: Any, index: Any, count: int) -> Params:
        """Returns a draw with a key of its own."""
        return belief.sample(own_key(key, index, count))


@record
class Antithetic:
    r"""Pairs on both sides of the mean, \(m + \epsilon\) and \(m - \epsilon\), for a Gaussian belief.

    What is odd in \(\epsilon\) cancels within a pair: the average of a linear integrand is exact, and a monotone one's
    variance falls. What is even, \(\epsilon^2\) for one, is the same at both, so that its variance doubles: half of the
    draws are then for nothing. Gradients of a loss are mostly odd, values and Hessians mostly even.

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
        """Refuses an odd number of draws, one of which would have no partner."""
        if count % 2:
            raise ValueError(f"Antithetic() draws come in pairs, and {count} is odd; ask for {count + 1} draws")

    def draw(self, key: RandomKey, belief: Any, index: Any, count: int) -> Params:
        """Returns the mean and the pair's distance from it, added where the index is even."""
        require_gaussian(belief, "Antithetic()")
        away = belief.precision.sample(own_key(key, index // 2, count), belief.mean)
        leaf = jnp.result_type(*jax.tree.leaves(away)) if jax.tree.leaves(away) else jnp.result_type(float)
        return tree.add(belief.mean, away, jnp.asarray(1 - 2 * (index % 2), leaf))


def own_key(key: RandomKey, index: Any, count: int) -> RandomKey:
    """Returns the key of a draw's noise; `layer_key` returns its partner, for a network's random layers."""
    return jax.random.split(_folded(key, index, count))[0]


def layer_key(key: RandomKey, index: Any, count: int) -> RandomKey:
    """Returns the key that a draw leaves to a network's random layers."""
    return jax.random.split(_folded(key, index, count))[1]


def _folded(key: RandomKey, index: Any, count: int) -> RandomKey:
    # Cloned, because the noise and the layers each split the draw's key and take different halves of it.
    return jax.random.clone(key if count == 1 else jax.random.fold_in(key, index))


def require_gaussian(belief: Any, name: str) -> None:
    """Refuses a belief that has no mean with a Gaussian around it."""
    if not isinstance(belief, Gaussian):
        raise TypeError(f"{name} draws around the mean of a Gaussian, not of a {type(belief).__name__}; leave it out")


def from_noise(belief: Gaussian, noise: Array) -> Params:
    """Returns m + R z for a standard normal z, a vector in the coordinates of `lamu.tree.ravel`."""
    unravel = tree.ravel(belief.mean)[1]
    return tree.add(belief.mean, belief.precision.inverse_root(unravel(noise)))


def normal_quantile(centred: Array) -> Array:
    """Returns the standard normal quantile of (1 + centred)/2, finite also where rounding made `centred` ±1."""
    edge = 1.0 - float(jnp.finfo(centred.dtype).epsneg)
    return 2.0**0.5 * jax.lax.erf_inv(jnp.clip(centred, -edge, edge))
