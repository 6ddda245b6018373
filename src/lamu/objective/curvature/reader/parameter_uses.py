"""The uses of each parameter: the equations in which it is combined with data."""

from __future__ import annotations

import itertools
import math
import string
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr

from lamu.base.compile_once import widened
from lamu.objective.curvature.reader.flat_jaxpr import MOVES, FlatJaxpr, Step, Values, differentiable
from lamu.record import record, static
from lamu.typing import Array, PyTree

__all__ = ["Loop", "ParameterUse", "is_lookup", "lookups", "merged", "of_rows", "product_axes", "sites", "windows"]


Settings: TypeAlias = dict[str, PyTree]  # of an equation


def windows(images: Array, kernel: tuple[int, ...], outputs: tuple[int, ...], settings: Settings) -> Array:
    """Returns the input windows of a convolution (im2col), by copies without products."""
    # Padding may be negative, and dilated inputs have zeros between them.
    around = [
        (low, high, gap - 1) for (low, high), gap in zip(settings["padding"], settings["lhs_dilation"], strict=True)
    ]
    padded = jax.lax.pad(images, jnp.zeros((), images.dtype), [(0, 0, 0), (0, 0, 0), *around])
    strides, gaps = settings["window_strides"], settings["rhs_dilation"]
    parts = []
    for offset in itertools.product(*map(range, kernel)):
        start = [o * gap for o, gap in zip(offset, gaps, strict=True)]
        end = [s + (size - 1) * stride + 1 for s, size, stride in zip(start, outputs, strides, strict=True)]
        part = jax.lax.slice(padded, (0, 0, *start), (*images.shape[:2], *end), (1, 1, *strides))
        parts.append(part.reshape(*images.shape[:2], -1))
    return jnp.stack(parts, axis=2)


def product_axes(step: Step) -> tuple[list[str], str, str, list[str]]:
    """Returns a letter for every axis of both operands of a product, and the batched, contracted and free axes."""
    letters = iter(string.ascii_lowercase)
    contracted, batched = step.equation.params["dimension_numbers"]
    names: list[list[str]] = [[""] * len(atom.aval.shape) for atom in step.equation.invars]
    shared = ["".join(next(letters) for _ in axes[0]) for axes in (batched, contracted)]
    for axes, word in zip((batched, contracted), shared, strict=True):
        for side in (0, 1):
            for axis, letter in zip(axes[side], word, strict=True):
                names[side][axis] = letter
    sides = ["".join([letter or next(letters) for letter in side]) for side in names]
    free = ["".join(letter for letter in side if letter not in "".join(shared)) for side in sides]
    return sides, shared[0], shared[1], free


def of_rows(rows: dict[int, Array], fixed: Values, place: int, batch: int) -> Array:
    """Returns the values at a place for every example, broadcast where they are the same for all."""
    return rows[place] if place in rows else jnp.broadcast_to(fixed[place], (batch, *fixed[place].shape))


def lookups(step: Step, rows: dict[int, Array], table: Array, cotangent: Array) -> tuple[Array, Array]:
    """Returns which rows of a table each example reads, `[batch, positions]`, and the cotangents of every reading."""
    # An index outside of the table is clipped or, in the mode that reads nothing there, set to the table's length.
    which, count = rows[step.reads[1]].reshape(cotangent.shape[0], -1), table.shape[0]
    if step.equation.params["mode"] == jax.lax.GatherScatterMode.CLIP:
        which = jnp.clip(which, 0, count - 1)
    else:
        which = jnp.where((which < 0) | (which >= count), jnp.full_like(which, count), which)
    return which, cotangent.reshape(*which.shape, *table.shape[1:]).astype(table.dtype)


def is_lookup(settings: Settings, table: tuple[int, ...], output: tuple[int, ...]) -> bool:
    """Whether an equation `gather` reads whole rows of a table, `[..., *row]` from `[rows, *row]`."""
    numbers = settings["dimension_numbers"]
    plain = (numbers.collapsed_slice_dims, numbers.start_index_map, numbers.operand_batching_dims) == ((0,), (0,), ())
    width = len(table) - 1
    trailing = tuple(numbers.offset_dims) == tuple(range(len(output) - width, len(output)))
    return plain and trailing and tuple(settings["slice_sizes"]) == (1, *table[1:])


def merged(indices: Array, cotangents: Array) -> Array:
    """Returns the total cotangent of each table row at its first reading, and zeros at later ones."""
    count = math.prod(indices.shape)
    same = indices[:, None] == indices[None, :]
    again = jnp.any(same & jnp.tril(jnp.ones((count, count), bool), -1), axis=1)
    return jnp.tensordot((same & ~again[:, None]).astype(cotangents.dtype), cotangents, 1)


CLOSED = ("scan", "while", "cond", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_jvp_call", "custom_lin")
CLOSED = (*CLOSED, "pallas_call", "linear_solve", "custom_linear_solve", "pure_callback", "shard_map")


@record
class ParameterUse:
    r"""The equation \(y = u(v(w), a)\) that combines a leaf w with data a, through a view \(v = s \circ p\)."""

    # p only moves elements or changes them one by one, so that squares pass through it. s starts at the first broadcast
    # and is a part of the use.

    leaf: int = static()  # the leaf's index
    step: int = static()  # the number of the equation
    position: int = static()  # which of the equation's inputs is the view
    single: tuple[int, ...] = static()  # the steps of p
    spread: tuple[int, ...] = static()  # the steps of s
    base: int = static()  # the place between the two
    given: tuple[int, ...] = static()  # the places of the other inputs; in a loop, places of its body
    loop: Any = static(default=None)  # the `Loop`, where the equation is a loop; else None

    def through(self, program: FlatJaxpr, leaf: Array, fixed: Values) -> Array:
        """Returns p of a leaf."""
        values = {**fixed, program.leaves[self.leaf]: leaf}
        moves = self._only_moves(program)
        for number in self.single:
            step = program.steps[number]
            if moves and _rounds(step):  # squares and directions are not rounded to the pass's precision
                values[_out(step)] = values[step.reads[0]]  # pyright: ignore[reportArgumentType]
            else:
                step.advance(values)
        return values[self.base]

    def use(self, program: FlatJaxpr, base: Array, given: Values) -> Array:
        """Returns the equation's output, from p's value and the other inputs."""
        values = {**given, self.base: base}
        for number in self.spread:
            program.steps[number].advance(values)
        return program.steps[self.step].run(values)[0]

    def kind(self, program: FlatJaxpr, rows: dict[int, Array], output: tuple[int, ...]) -> str:
        """Returns the rule for per-example gradients: "product", "convolution", "lookup"; "" where none applies."""
        step, position = program.steps[self.step], self.position
        if self.spread:
            return ""
        if step.name == "dot_general":
            return "product"
        if step.name == "conv_general_dilated" and position == 1:
            return "convolution" if step.equation.params["batch_group_count"] == 1 else ""
        table = step.name == "gather" and position == 0 and step.reads[1] in rows
        return "lookup" if table and is_lookup(step.equation.params, program.avals[self.base].shape, output) else ""

    def gradient(self, program: FlatJaxpr, base: Array, fixed: Values, rows: dict[int, Array]) -> Callable[..., Array]:
        """Returns the function from the site's inputs of one row, and a cotangent, to the gradient in p's value."""
        given = {place: fixed[place] for place in self.given if place not in rows}

        def of_row(row: tuple[dict[int, Array], Array]) -> Array:
            inputs, cotangent = row
            out, pull = jax.vjp(lambda base: self.use(program, base, {**given, **inputs}), base)
            return pull(cotangent.astype(out.dtype))[0]

        return of_row

    def slope(self, program: FlatJaxpr, leaf: Array, fixed: Values) -> Array | None:
        """Returns p′, element by element, in the shape of p's value; None where p only moves elements."""
        if self._only_moves(program):
            return None
        through = lambda leaf: self.through(program, leaf, fixed)
        return widened(jax.jvp(through, (leaf,), (jnp.ones_like(leaf),))[1], leaf.dtype)

    def _only_moves(self, program: FlatJaxpr) -> bool:
        return all(program.steps[number].name in MOVES for number in self.single)

    def pull(self, program: FlatJaxpr, gradient: Array, leaf: Array, fixed: Values) -> Array:
        """Returns a gradient with respect to the leaf, from that with respect to p's value."""
        value, pull = jax.vjp(lambda leaf: self.through(program, leaf, fixed), leaf)
        return pull(gradient.astype(value.dtype))[0]


@record
class Loop:
    """A loop of a known length (`scan`) that a site's leaf enters, and the site in its body."""

    body: Any = static()  # the body's equations; its parameters are the views that enter the loop
    inner: ParameterUse = static()  # the use in the body
    entering: tuple[int, ...] = static()  # which inputs of the loop are the body's parameters
    entry: int = static()  # the place of the view that enters
    stacked: bool = static()  # whether an iteration sees one slice of it, rather than all of it


def sites(program: FlatJaxpr, loops: bool = False) -> tuple[list[ParameterUse], dict[int, str]]:
    """Returns the sites of all leaves whose elements are used once, and the reasons why other leaves have none."""
    uses: dict[int, list[list[ParameterUse]]] = defaultdict(list)  # for each leaf and each equation that it enters
    reasons: dict[int, str] = {}
    for number, step in enumerate(program.steps):
        seen = [(i, place) for i, place in enumerate(step.reads) if place in program.views]
        outs = [place for place in step.writes if place is not None]
        # No gradient flows into integers, or out of `stop_gradient`.
        flows = any(differentiable(program.avals[place]) for place in outs) and step.name != "stop_gradient"
        if not seen or not flows or outs[0] in program.views:
            continue
        opened = loops and step.name == "scan" and step.dependent
        inside = _in_loop(program, number, [i for i, _ in seen]) if opened else {}
        for position, place in seen:
            leaf = program.views[place][0]
            if isinstance(inside.get(position), list):
                uses[leaf].append(inside[position])
                continue
            uses[leaf].append([_site(program, number, position, place)])
            if position in inside:
                reasons.setdefault(leaf, f"{inside[position]} in a `scan`")
            elif step.name in CLOSED or len(step.writes) > 1:
                reasons.setdefault(leaf, f"enters a `{step.name}`")
            elif len(seen) > 1:
                reasons.setdefault(leaf, f"meets another parameter, or itself, in `{step.name}`")
            elif not step.dependent:
                reasons.setdefault(leaf, f"enters a `{step.name}` without data")
    for output in program.outputs:
        if isinstance(output, int) and output in program.views:
            reasons.setdefault(program.views[output][0], "is a result itself")
    for leaf, own in uses.items():
        # The square of a sum has no cross terms only if no element is in two of its terms.
        own[:] = [there for there in own if there]
        if len(own) > 1 and not _apart(program.steps, [there[0] for there in own]):
            reasons.setdefault(leaf, f"is used {len(own)} times")
    read = [site for leaf, own in sorted(uses.items()) if leaf not in reasons for there in own for site in there]
    return read, reasons


def _in_loop(program: FlatJaxpr, number: int, seats: list[int]) -> Values:
    """Returns for each view that a `scan` reads its sites in the body, or the reason why it has none."""
    step = program.steps[number]
    settings = step.equation.params
    constants, first = settings["num_consts"], settings["num_consts"] + settings["num_carry"]
    outcome: Values = {seat: "is carried" for seat in seats if constants <= seat < first}
    entering = [seat for seat in seats if seat not in outcome]
    body = FlatJaxpr(*_body(settings["jaxpr"], entering))
    inner, reasons = sites(body)
    for index, seat in enumerate(entering):
        place = step.reads[seat]
        outer = _site(program, number, seat, place)
        loop = lambda site, place=place, seat=seat: Loop(body, site, tuple(entering), place, seat >= first)
        there = [replace(outer, given=site.given, loop=loop(site)) for site in inner if site.leaf == index]
        outcome[seat] = reasons.get(index, there)
    return outcome


def _body(closed: Any, entering: list[int]) -> tuple[Any, list[Any], list[Any]]:
    """Returns a loop's body as a function of the entering views and of the other inputs, and the shapes of both."""
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in closed.in_avals]
    others = [i for i in range(len(shapes)) if i not in entering]

    def run(views: list[Array], rest: list[Array]) -> list[Array]:
        values = dict(zip((*entering, *others), (*views, *rest), strict=True))
        return eval_jaxpr(closed.jaxpr, closed.consts, *(values[i] for i in range(len(shapes))))

    return run, [shapes[i] for i in entering], [shapes[i] for i in others]


def _site(program: FlatJaxpr, number: int, position: int, place: int) -> ParameterUse:
    leaf, chain = program.views[place]
    sizes = [program.avals[p].size for p in (program.leaves[leaf], *(_out(program.steps[n]) for n in chain))]
    grown = (i for i, n in enumerate(chain) if sizes[i + 1] != sizes[i] and program.steps[n].name != "slice")
    cut = next(grown, len(chain))
    single, spread = chain[:cut], chain[cut:]
    base = _out(program.steps[single[-1]]) if single else program.leaves[leaf]
    computed = {base, *(_out(program.steps[n]) for n in spread)}
    reads = [r for n in (*spread, number) for r in program.steps[n].reads if r is not None and r not in computed]
    return ParameterUse(leaf, number, position, single, spread, base, tuple(dict.fromkeys(reads)))


def _out(step: Step) -> int:
    (place,) = step.writes
    assert place is not None
    return place


def _apart(steps: list[Step], uses: list[ParameterUse]) -> bool:
    """Whether the views of a leaf start with slices that share no element."""
    first = [steps[site.single[0]] for site in uses if site.single]
    if len(first) < len(uses) or any(step.name != "slice" for step in first):
        return False
    boxes = [
        tuple(zip(*(step.equation.params[f"{end}_indices"] for end in ("start", "limit")), strict=True))
        for step in first
    ]
    meet = lambda box, other: all(a < d and c < b for (a, b), (c, d) in zip(box, other, strict=True))
    return not any(meet(box, other) for box, other in itertools.combinations(boxes, 2))


def _rounds(step: Step) -> bool:
    """Whether an equation casts floating-point numbers to fewer bits."""
    if step.name != "convert_element_type":
        return False
    before, after = step.equation.invars[0].aval, step.equation.outvars[0].aval
    return differentiable(after) and after.dtype.itemsize < before.dtype.itemsize
