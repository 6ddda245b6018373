"""One backward pass of a batch, read where its parameters meet the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lamu.objective.curvature.reader.flat_jaxpr import Program
from lamu.objective.curvature.reader.loops import perturbed
from lamu.objective.curvature.reader.parameter_uses import Site, sites
from lamu.typing import Array, Params

__all__ = ["Meeting", "backward"]


@dataclass(frozen=True)
class Meeting:
    r"""What one backward pass of \(\sum_i r_i \ell_i(\theta)\) leaves at the places where parameters meet data."""

    # Site k took `inputs[k]` in, and the weighted loss has the gradient `cotangents[k]` in what came out of it: row i's
    # own gradient in the leaf is the pull-back of `cotangents[k][i] / r_i` through the site's equation.

    value: Array  # \(\sum_i r_i \ell_i\)
    gradient: list[Array]  # \(\sum_i r_i g_i\), one array for each leaf
    program: Program  # the equations of one example's loss
    sites: list[Site]  # where a leaf meets data
    held: dict[int, Any]  # the values of all places that no example has a part in
    # For each site, what it reads of the data, by place, `[batch, ...]`; in a loop `[batch, time, ...]`.
    inputs: list[dict[int, Array]]
    cotangents: list[Array]  # for each site, `[batch, ...]`, the weights included; in a loop `[batch, time, ...]`
    unread: dict[int, str]  # the leaves that meet data in no readable way, with the reason
    leaves: list[Array]  # the parameters' leaves
    rows: list[Array]  # the examples' leaves
    one: Callable[[list[Array], list[Array]], Array]  # the loss of one example, of the two lists of leaves


def backward(
    loss: Callable[[Params, Any], Array],
    params: Params,
    examples: Any,
    weights: Array,
    read: Any = True,
    loops: bool = False,
) -> Meeting:
    """Traces the loss of one example, and takes one backward pass of the weighted sum over the batch."""
    leaves, structure = jax.tree.flatten(params)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    rows, of_one = jax.tree.flatten(examples)
    rows = [jnp.asarray(row) for row in rows]
    _require_rows(examples, weights)

    def one(leaves: list[Array], row: list[Array]) -> Array:
        value = loss(structure.unflatten(leaves), of_one.unflatten(row))
        if jnp.shape(value) != ():
            raise ValueError(f"the loss of one example has shape {jnp.shape(value)}; it must be a scalar")
        return value

    shape = lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype)
    followed = jax.tree.leaves(jax.tree.broadcast(read, params))
    of_row = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in rows]
    program = Program(one, [shape(x) for x in leaves], of_row, followed)
    found, unread = sites(program, loops)
    outs = [_out(program, site) for site in found]
    extra = [jnp.zeros((weights.shape[0], *out.shape), out.dtype) for out in outs]

    def total(leaves: list[Array], extra: list[Array]) -> tuple[Array, tuple[list[Any], dict[int, Any]]]:
        held = program.before(leaves)
        values, given = jax.vmap(lambda row, extra: _forward(program, found, held, row, extra))(rows, extra)
        return jnp.sum(values * weights.astype(values.dtype)), (given, held)

    (value, (given, held)), (gradient, cotangents) = jax.value_and_grad(total, argnums=(0, 1), has_aux=True)(
        leaves, extra
    )
    return Meeting(value, gradient, program, found, held, given, cotangents, unread, leaves, rows, one)


def _forward(
    program: Program, found: list[Site], held: dict[int, Any], row: list[Array], extra: list[Array]
) -> tuple[Array, list[dict[int, Array]]]:
    """Runs one example; returns its loss, and what each site reads of it."""
    values = {**held, **dict(zip(program.examples, row, strict=True))}
    reads = perturbed(program, found, values, extra)
    (value,) = program.results(values)
    return value, reads


def _out(program: Program, site: Site) -> Any:
    """Returns shape and dtype of what comes out of a site, in a loop of all its iterations."""
    if site.loop is not None:
        one, length = _out(site.loop.body, site.loop.inner), program.steps[site.step].equation.params["length"]
        return jax.ShapeDtypeStruct((length, *one.shape), one.dtype)
    (place,) = program.steps[site.step].writes
    assert place is not None
    return program.avals[place]


def _require_rows(examples: Any, weights: Array) -> None:
    """Raises a ValueError unless every array of the examples has one row for each weight."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(examples)[0]:
        if jnp.shape(leaf)[:1] != weights.shape:
            raise ValueError(
                f"the examples{jax.tree_util.keystr(path)} have shape {jnp.shape(leaf)} and the weights "
                f"{weights.shape}; give every array of the examples the batch as its leading axis, one row a weight"
            )
