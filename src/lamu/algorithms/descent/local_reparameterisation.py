"""How what comes out of one site is drawn, in the place of its weights: the rows' draws are independent."""

# With \(w = m + s z\) and data a, a site that is linear in w has \(y = u(m, a) + u(s z, a)\). What is added to the
# first term has the law that weights drawn anew for the row would give it:
#
# * a product whose output uses every weight once is normal, with variance \(u(s^2, a^2)\);
# * one draw of the weights for all rows, its signs changed for each row in and out of the site, is a draw anew in law;
# * an elementwise use has so few weights that they are drawn for each row.

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from lamu import fast_random
from lamu.objective.curvature.reader.embeddings import is_lookup
from lamu.objective.curvature.reader.flat_jaxpr import ELEMENTWISE, Program
from lamu.objective.curvature.reader.parameter_uses import Site
from lamu.typing import Array, RandomKey

__all__ = ["Plan", "anew", "flipped", "local"]


@dataclass(frozen=True)
class Plan:
    """How a site's output is drawn."""

    site: Site
    noise: Callable[[RandomKey, int], Any]  # the rows' noise, from a key and the number of rows: arrays `[batch, ...]`
    # One row's output, from the program's values, the bases of m, s and s z, and the row's noise.
    output: Callable[..., Array]


def anew(program: Program, site: Site, gaussian: bool) -> Plan | None:
    """Returns the plan that draws weights for each row, where the use is elementwise; else None."""
    if program.steps[site.step].name not in ELEMENTWISE:
        return None
    shape, dtype = program.avals[site.base].shape, program.avals[site.base].dtype

    def numbers(key: RandomKey, rows: int) -> Array:
        return fast_random.normal(key, (rows, *shape), dtype) if gaussian else _signs(key, (rows, *shape), dtype)

    def output(values: dict[int, Any], bases: tuple[Array, Array, Array], z: Array) -> Array:
        centre, scale, away = bases
        return site.use(program, centre + (scale * z if gaussian else away * z), _given(site, values))

    return Plan(site, numbers, output)


def local(program: Program, site: Site) -> Plan | None:
    """Returns the plan that draws the output itself; None where a weight is used at several places or in no product."""
    axes = _axes(program, site)
    if axes is None or axes[2] > 1:
        return None
    step = program.steps[site.step]
    out, other = _aval_out(program, site), _other(program, site)

    def numbers(key: RandomKey, rows: int) -> Array:
        return fast_random.normal(key, (rows, *out.shape), out.dtype)

    def output(values: dict[int, Any], bases: tuple[Array, Array, Array], z: Array) -> Array:
        centre, scale, _ = bases
        given = _given(site, values)
        squares = given if step.name == "gather" else {**given, other: jnp.square(given[other])}
        variance = site.use(program, jnp.square(scale), squares)
        # Where all inputs are zero there is no noise, and the root has no slope.
        seen = variance > 0
        root = jnp.where(seen, jnp.sqrt(jnp.where(seen, variance, jnp.ones_like(variance))), jnp.zeros_like(variance))
        return site.use(program, centre, given) + root * z

    return Plan(site, numbers, output)


def flipped(program: Program, site: Site) -> Plan | None:
    """Returns the plan that changes signs of one draw of the weights; None for what is no product."""
    axes = _axes(program, site)
    if axes is None:
        return None
    ins, outs, _ = axes
    step = program.steps[site.step]
    out, other = _aval_out(program, site), _other(program, site)
    of_out = tuple(size if axis in outs else 1 for axis, size in enumerate(out.shape))
    given_aval = program.avals[other]
    of_in = tuple(size if axis in ins else 1 for axis, size in enumerate(given_aval.shape))

    def numbers(key: RandomKey, rows: int) -> tuple[Array, Array]:
        # One hash for both: signs of the inputs, then of the outputs.
        first, second = math.prod(of_in), math.prod(of_out)
        signs = _signs(key, (rows, first + second), out.dtype)
        return signs[:, :first].reshape(rows, *of_in), signs[:, first:].reshape(rows, *of_out)

    def output(values: dict[int, Any], bases: tuple[Array, Array, Array], signs: tuple[Array, Array]) -> Array:
        centre, _, away = bases
        given = _given(site, values)
        turned = given if not ins else {**given, other: given[other] * _over(signs[0], given[other])}
        moved = site.use(program, away, turned)
        return site.use(program, centre, given) + moved * _over(signs[1], moved)

    return None if step.name == "gather" and ins else Plan(site, numbers, output)


def _axes(program: Program, site: Site) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """Returns which axes of the data and of the output tell weights apart, and at how many places each is used."""
    if site.spread or site.loop is not None:
        return None
    step, out = program.steps[site.step], _aval_out(program, site)
    settings = step.equation.params
    if step.name == "dot_general":
        place = _other(program, site)
        if place is None:
            return None
        contracted, batched = settings["dimension_numbers"]
        side = 1 - site.position
        ins = (*contracted[side], *batched[side])
        shape = program.avals[place].shape
        free = [axis for axis in range(len(shape)) if axis not in ins]
        mine = len(program.avals[site.base].shape) - len(contracted[0]) - len(batched[0])
        start = len(batched[0]) + (len(free) if site.position == 1 else 0)
        return ins, tuple(range(start, start + mine)), math.prod(shape[axis] for axis in free)
    if step.name == "conv_general_dilated":
        if site.position != 1 or settings["batch_group_count"] != 1 or _other(program, site) is None:
            return None
        lhs, _, result = settings["dimension_numbers"]
        places = math.prod(out.shape) // out.shape[result[1]]
        return (lhs[1],), (result[1],), places
    table = program.avals[site.base].shape
    if step.name == "gather" and site.position == 0 and is_lookup(settings, table, out.shape):
        trailing = tuple(range(len(out.shape) - len(table) + 1, len(out.shape)))
        return (), trailing, math.prod(out.shape) // math.prod(table[1:])
    return None


def _other(program: Program, site: Site) -> Any:
    """The place of the data that the weights meet."""
    return program.steps[site.step].reads[1 - site.position]


def _aval_out(program: Program, site: Site) -> Any:
    (place,) = program.steps[site.step].writes
    assert place is not None
    return program.avals[place]


def _given(site: Site, values: dict[int, Any]) -> dict[int, Any]:
    return {place: values[place] for place in site.given}


def _over(signs: Array, like: Array) -> Array:
    return jnp.broadcast_to(signs, like.shape).astype(like.dtype)


def _signs(key: RandomKey, shape: tuple[int, ...], dtype: Any) -> Array:
    words = fast_random.bits(key, math.prod(shape))
    return jnp.where(words >> 31 == 0, jnp.ones((), dtype), -jnp.ones((), dtype)).reshape(shape)
