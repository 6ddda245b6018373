"""A network on a batch, linearised once: its outputs, and a pull-back that stops where its parameters meet the data."""

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

__all__ = ["Linearised", "linearise"]


@dataclass(frozen=True)
class Linearised:
    r"""What one forward pass of \(f(\theta, x_i)\) leaves, for as many backward passes as are asked for."""

    outputs: Array  # \(f(\theta, x_i)\), `[batch, ...]`
    # From cotangents of the outputs, `[batch, ...]`, to the gradient, one array for each leaf, and the cotangents of
    # what came out of each site, `[batch, ...]`. What is not used of the two costs nothing in compiled code.
    pull: Callable[[Array], tuple[list[Array], list[Array]]]
    program: Program  # the equations of one example
    sites: list[Site]  # where a leaf meets data
    held: dict[int, Any]  # the values of all places that no example has a part in
    inputs: list[dict[int, Array]]  # for each site, what it reads of the data, by place, `[batch, ...]`
    unread: dict[int, str]  # the leaves that meet data in no readable way, with the reason
    leaves: list[Array]  # the parameters' leaves
    rows: list[Array]  # the examples' leaves
    one: Callable[[list[Array], list[Array]], Array]  # the function of one example, of the two lists of leaves


def linearise(function: Callable[[Params, Any], Array], params: Params, examples: Any) -> Linearised:
    """Traces a function of one example, runs it on the batch, and keeps what its backward passes need."""
    leaves, structure = jax.tree.flatten(params)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    rows, layout = jax.tree.flatten(examples)
    rows = [jnp.asarray(row) for row in rows]
    one = lambda leaves, row: function(structure.unflatten(leaves), layout.unflatten(row))
    shape = lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype)
    program = Program(one, [shape(x) for x in leaves], [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in rows])
    found, unread = sites(program)
    avals = [program.avals[_out(program, site)] for site in found]
    extra = [jnp.zeros((rows[0].shape[0], *aval.shape), aval.dtype) for aval in avals]

    def run(leaves: list[Array], extra: list[Array]) -> tuple[Array, tuple[list[Any], dict[int, Any]]]:
        held = program.before(leaves)

        def of_one(row: list[Array], extra: list[Array]) -> tuple[Array, list[dict[int, Array]]]:
            values = {**held, **dict(zip(program.examples, row, strict=True))}
            reads = perturbed(program, found, values, extra)
            (result,) = program.results(values)
            return result, reads

        outputs, given = jax.vmap(of_one)(rows, extra)
        return outputs, (given, held)

    outputs, pull, (given, held) = jax.vjp(run, leaves, extra, has_aux=True)
    return Linearised(outputs, pull, program, found, held, given, unread, leaves, rows, one)


def _out(program: Program, site: Site) -> int:
    (place,) = program.steps[site.step].writes
    assert place is not None
    return place
