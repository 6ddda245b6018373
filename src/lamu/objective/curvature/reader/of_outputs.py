r"""The squares \(\sum_{ik} (J_i^\top u_{ik})^2\) of a network's outputs along directions, from one forward pass."""

# Where an example meets a leaf once, its gradient is an outer product \(a_i d_{ik}^\top\), and the directions' squares
# are summed before they meet the inputs: \(\sum_k (a_i d_{ik}^\top)^2 = a_i^2 \big(\sum_k d_{ik}^2\big)^\top\).

from __future__ import annotations

import jax
import jax.numpy as jnp

from lamu.objective.curvature.reader.linearised import Linearised
from lamu.objective.curvature.reader.per_example_squares import ByRows, Rule, contribution, meets_once
from lamu.typing import Array

__all__ = ["squares_of_outputs"]


def squares_of_outputs(read: Linearised, directions: Array) -> list[Array]:
    r"""Returns \(\sum_{ik} (J_i^\top u_{ik})^2\), one array for each leaf."""
    ones = jnp.ones(directions.shape[1], directions.dtype)
    once = [
        meets_once(read.program, site, read.held[site.base], shape.shape[1:])
        for site, shape in zip(read.sites, jax.eval_shape(read.pull, directions[0])[1], strict=True)
    ]

    def rule(number: int, cotangent: Array) -> Rule:
        site = read.sites[number]
        return contribution(read.program, site, read.held[site.base], read.held, read.inputs[number], cotangent)

    def of_site(number: int, cotangent: Array) -> Array:
        return rule(number, cotangent)(ones)[0]

    def along(direction: Array) -> list[Array]:
        cotangents = read.pull(direction)[1]
        return [d * d if once[number] else of_site(number, d) for number, d in enumerate(cotangents)]

    def add(total: list[Array], direction: Array) -> tuple[list[Array], None]:
        return jax.tree.map(jnp.add, total, along(direction)), None

    def of_all(number: int, cotangents: Array) -> Array:
        if once[number]:
            return jnp.sum(cotangents * cotangents, axis=0)
        found = rule(number, cotangents[0])
        if isinstance(found, ByRows):
            return found.over(cotangents)
        parts = [of_site(number, cotangent) for cotangent in cotangents]
        return jnp.sum(jnp.stack(parts), axis=0)

    if all(once):
        # One after the other: a processor takes longer for a sum over the slowest axis of all at once.
        zero = jax.tree.map(lambda of: jnp.zeros(of.shape, of.dtype), jax.eval_shape(along, directions[0]))
        sums = jax.lax.scan(add, zero, directions)[0]
    else:
        # All at once, and outside of any loop, where a processor is slow to convolve; windows are cut once.
        sums = [of_all(number, found) for number, found in enumerate(jax.vmap(lambda u: read.pull(u)[1])(directions))]
    squares = [jnp.zeros_like(leaf) for leaf in read.leaves]
    for number, (site, total) in enumerate(zip(read.sites, sums, strict=True)):
        square = of_site(number, jnp.sqrt(total)) if once[number] else total
        leaf = read.leaves[site.leaf]
        slope = site.slope(read.program, leaf, read.held)
        squares[site.leaf] = squares[site.leaf] + site.back(read.program, square, slope, leaf, read.held)
    return squares
