"""Chains whose recursions are associative scans: log₂ T rounds in the place of T steps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.families.exponential import symmetric
from lamu.families.gaussian_chain import GaussianChain, product, transpose
from lamu.families.markov_chain import MarkovChain
from lamu.record import record
from lamu.typing import Array

__all__ = ["ParallelGaussianChain", "ParallelMarkovChain"]


@record
class ParallelGaussianChain(GaussianChain):
    r"""A `GaussianChain` whose recursions are associative scans: log₂ T rounds instead of T steps.

    The element of a stretch of times \(i, \ldots, k\) is what is left of its terms when those between are integrated
    out, a quadratic in \((x_i, x_k)\); two neighbours combine by integrating over the vector that they share. It does
    several times the work of the sequential recursion, and is for accelerators.

    Source: Särkkä & García-Fernández (2021), "Temporal parallelization of Bayesian smoothers".

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import GaussianChain, ParallelGaussianChain
        >>> arguments = (jnp.zeros((9, 1)), 0.5 * jnp.ones((8, 1, 1)), jnp.ones((9, 1, 1)))
        >>> ours, theirs = (cls(*arguments).log_partition() for cls in (ParallelGaussianChain, GaussianChain))
        >>> abs(float(ours - theirs)) < 1e-4
        True
    """

    @staticmethod
    def eliminate(linear: Array, diagonal: Array, coupling: Array) -> tuple[Array, Array]:
        """Returns the linear terms and precisions of every vector given the one before, by an associative scan.

        Args:
            linear: h `[..., T, d]`.
            diagonal: the blocks of P on the diagonal `[..., T, d, d]`.
            coupling: the blocks of −P beside it `[..., T − 1, d, d]`.
        """
        none = jnp.zeros_like(diagonal)
        C = none.at[..., :-1, :, :].set(coupling)
        stretches = (linear, jnp.zeros_like(linear), diagonal, C, none)
        g, _, Q, _, _ = jax.lax.associative_scan(_joined, stretches, reverse=True, axis=linear.ndim - 2)
        return g, symmetric(Q)

    @staticmethod
    def unroll(start: Array, transition: Array) -> Array:
        """Returns the path, by an associative scan over affine maps.

        Args:
            start: u `[..., T, d]`.
            transition: A `[..., T − 1, d, d]`.
        """
        first = jnp.zeros_like(transition, shape=(*start.shape, start.shape[-1]))
        maps = first.at[..., 1:, :, :].set(transition)
        after = lambda early, late: (late[0] @ early[0], product(late[0], early[1]) + late[1])
        return jax.lax.associative_scan(after, (maps, start), axis=start.ndim - 2)[1]


@record
class ParallelMarkovChain(MarkovChain):
    r"""A `MarkovChain` whose recursions are associative scans: log₂ T rounds instead of T steps.

    Products of K × K matrices in the place of products with vectors, K times the work, for accelerators.

    Source: Hassan, Särkkä & García-Fernández (2021), "Temporal parallelization of inference in hidden Markov models".

    Examples:
        >>> from lamu.families import MarkovChain, ParallelMarkovChain
        >>> arguments = (9, [0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]])
        >>> ours, theirs = (cls.homogeneous(*arguments).log_partition() for cls in (ParallelMarkovChain, MarkovChain))
        >>> abs(float(ours - theirs)) < 1e-4
        True
    """

    @staticmethod
    def eliminate(single: Array, pair: Array) -> tuple[Array, Array]:
        """Returns the log weights of the first category, and the log probabilities of the transitions.

        Args:
            single: λ of every time `[..., T, K]`, with zeros for the last category.
            pair: λ of every pair `[..., T − 1, K, K]`, likewise.
        """
        if pair.shape[-3] == 0:
            return single[..., 0, :], pair
        join = lambda late, early: jax.nn.logsumexp(early[..., :, :, None] + late[..., None, :, :], axis=-2)
        steps = pair + single[..., 1:, None, :]
        beta = jax.nn.logsumexp(jax.lax.associative_scan(join, steps, reverse=True, axis=pair.ndim - 3), axis=-1)
        after = single[..., 1:, :].at[..., :-1, :].add(beta[..., 1:, :])
        return single[..., 0, :] + beta[..., 0, :], pair + after[..., None, :] - beta[..., :, None]

    @staticmethod
    def unroll(first: Array, transition: Array) -> Array:
        """Returns the probabilities of all times `[..., T, K]`.

        Args:
            first: the probabilities of the first category `[..., K]`.
            transition: those of the next given the one before `[..., T − 1, K, K]`.
        """
        if transition.shape[-3] == 0:
            return first[..., None, :]
        products = jax.lax.associative_scan(jnp.matmul, transition, axis=transition.ndim - 3)
        later = (first[..., None, None, :] @ products)[..., 0, :]
        return jnp.concatenate([first[..., None, :], later], axis=-2)

    @staticmethod
    def follow(start: Array, maps: Array) -> Array:
        """Returns the numbers of the categories `[..., T]` that maps lead to, one after the other.

        Args:
            start: the number of the first category `[...]`.
            maps: the next category for each one before `[..., T − 1, K]`.
        """
        if maps.shape[-2] == 0:
            return start[..., None]
        composed = jax.lax.associative_scan(
            lambda early, late: jnp.take_along_axis(late, early, axis=-1), maps, axis=maps.ndim - 2
        )
        index = jnp.broadcast_to(start[..., None, None], (*maps.shape[:-1], 1))
        later = jnp.take_along_axis(composed, index, axis=-1)[..., 0]
        return jnp.concatenate([start[..., None], later], axis=-1)


def _joined(late: Any, early: Any) -> Any:
    """Returns the stretch of two neighbours, the vector that they share integrated out."""
    (h_first, h_middle, P_first, C_first, P_middle), (g_middle, g_last, Q_middle, C_last, P_last) = early, late
    middle = jnp.concatenate([transpose(C_first), C_last, (h_middle + g_middle)[..., None]], axis=-1)
    solved, d = jnp.linalg.solve(P_middle + Q_middle, middle), h_first.shape[-1]
    to_first, to_last, at = solved[..., :d], solved[..., d : 2 * d], solved[..., -1]
    return (
        h_first + product(C_first, at),
        g_last + product(transpose(C_last), at),
        P_first - C_first @ to_first,
        C_first @ to_last,
        P_last - transpose(C_last) @ to_last,
    )
