"""Uses of parameters inside of loops of known length (`scan`)."""

# The terms added at a site are one more input sequence of the loop, and the site's inputs one more output sequence. A
# leaf that every iteration reads in full (a recurrent network's) is handled like weights shared over positions, with
# time as the positions. Of a leaf that is a sequence (the kernels of repeated layers) each iteration reads one slice.

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from lamu.objective.curvature.reader.flat_jaxpr import FlatJaxpr, Values
from lamu.objective.curvature.reader.parameter_uses import ParameterUse
from lamu.objective.curvature.reader.per_example_squares import ByRows, Rule, chunk_of, contribution
from lamu.typing import Array, PyTree

__all__ = ["loop_contribution", "perturbed"]


def perturbed(
    program: FlatJaxpr, uses: Sequence[ParameterUse], values: Values, extra: Sequence[Array]
) -> list[dict[int, Array]]:
    """Runs the steps that depend on an example, with a term added to the output of each use."""
    sites_at_step: dict[int, list[int]] = {}
    for index, site in enumerate(uses):
        sites_at_step.setdefault(site.step, []).append(index)
    reads: list[dict[int, Array]] = [{} for _ in uses]
    for number, step in enumerate(program.steps):
        here = sites_at_step.get(number, [])
        if not step.dependent:
            continue
        if here and uses[here[0]].loop is not None:
            seen = _loop(program, [uses[i] for i in here], values, [extra[i] for i in here])
            for index, read in zip(here, seen, strict=True):
                reads[index] = read
            continue
        step.advance(values)
        for index in here:
            (out,) = step.writes
            values[out] = values[out] + extra[index]
    for site, read in zip(uses, reads, strict=True):
        if site.loop is None:
            read.update({place: values[place] for place in site.given if program.depends(place)})
    return reads


def _loop(program: FlatJaxpr, uses: list[ParameterUse], values: Values, extra: list[Array]) -> list[dict[int, Array]]:
    """Runs a `scan` with terms `[time, ...]` added in its body; returns the inputs of the sites, `[time, ...]`."""
    step, body, inner = program.steps[uses[0].step], uses[0].loop.body, [site.loop.inner for site in uses]
    settings = step.equation.params
    # Inputs that are literals have no place.
    inputs = [
        jnp.asarray(atom.val, atom.aval.dtype) if place is None else values[place]
        for atom, place in zip(step.equation.invars, step.reads, strict=True)
    ]
    count, carries = settings["num_consts"], settings["num_carry"]
    entering = uses[0].loop.entering

    def iteration(carry: list[Array], slices: tuple[list[Array], list[Array]]) -> tuple[list[Array], PyTree]:
        sequence, terms = slices
        arguments = [*inputs[:count], *carry, *sequence]
        rest = [argument for seat, argument in enumerate(arguments) if seat not in entering]
        inside = body.before([arguments[seat] for seat in entering])
        inside.update(zip(body.examples, rest, strict=True))
        perturbed(body, inner, inside, terms)
        seen = [{place: inside[place] for place in site.given} for site in inner]
        out = body.results(inside)
        return out[:carries], (out[carries:], seen)

    start, sequences = inputs[count : count + carries], inputs[count + carries :]
    options = {name: settings[name] for name in ("length", "reverse", "unroll")}
    carry, (out, seen) = jax.lax.scan(iteration, start, (sequences, extra), **options)
    for place, value in zip(step.writes, [*carry, *out], strict=True):
        if place is not None:
            values[place] = value
    return seen


def loop_contribution(
    program: FlatJaxpr, site: ParameterUse, base: Array, fixed: Values, rows: dict[int, Array], cotangent: Array
) -> Rule:
    """Chooses the rule for a site in a loop; the arguments are those of `contribution`, with an axis of time."""
    loop = site.loop
    body, inner = loop.body, loop.inner
    unmoved = not (site.spread or inner.single or inner.spread)
    if loop.stacked and unmoved and body.steps[inner.step].name == "dot_general":
        return _repeated(body, inner, base, rows, cotangent)

    base = base.astype(program.avals[site.base].dtype)

    def enters(base: Array) -> Array:
        values = {**fixed, site.base: base}
        for number in site.spread:
            program.steps[number].advance(values)
        return values[loop.entry]

    def used(view: Array, given: dict[int, Array]) -> Array:
        values = {**given, body.leaves[inner.leaf]: view}
        for number in (*inner.single, *inner.spread):
            body.steps[number].advance(values)
        return body.steps[inner.step].run(values)[0]

    def gradients(row: tuple[dict[int, Array], Array]) -> Array:
        given, cotangent = row
        # Time is an axis of positions: the pull-back sums over it.
        at_once = jax.vmap(used, in_axes=(0 if loop.stacked else None, 0), axis_size=cotangent.shape[0])
        out, pull = jax.vjp(lambda base: at_once(enters(base), given), base)
        return pull(cotangent.astype(out.dtype))[0]

    return ByRows(jax.vmap(gradients), (rows, cotangent), chunk_of(base.size))


def _repeated(body: FlatJaxpr, inner: ParameterUse, base: Array, rows: dict[int, Array], cotangent: Array) -> Rule:
    """Returns the rule of a product, for each layer of a sequence."""
    time_first = lambda leaf: jnp.moveaxis(leaf, 1, 0)
    rows, cotangent = jax.tree.map(time_first, rows), time_first(cotangent)
    layer: Callable[..., Rule] = lambda base, given, cotangent: contribution(body, inner, base, {}, given, cotangent)
    return lambda inverse: jax.vmap(lambda *at: layer(*at)(inverse))(base, rows, cotangent)
