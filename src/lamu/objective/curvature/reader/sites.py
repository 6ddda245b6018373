"""Where each parameter meets the data."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import jax
import jax.numpy as jnp

from lamu.objective.curvature.reader.program import MOVES, Program, Step, differentiable
from lamu.record import record, static
from lamu.typing import Array

__all__ = ["Site", "sites"]

CLOSED = ("scan", "while", "cond", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_jvp_call", "custom_lin")
CLOSED = (*CLOSED, "pallas_call", "linear_solve", "custom_linear_solve", "pure_callback", "shard_map")


@record
class Site:
    r"""The one equation \(y = u(v(w), a)\) where a leaf w meets data a, through a view \(v = s \circ p\).

    p only moves elements or changes them one by one, so that squares pass through it; s, from the first broadcast on,
    is a part of the use.

    Attributes:
        leaf: the leaf's index.
        step: the number of the equation.
        position: which of the equation's inputs is the view.
        single: the steps of p.
        spread: the steps of s.
        base: the place between the two.
        given: the places of all else that the use reads.
    """

    leaf: int = static()
    step: int = static()
    position: int = static()
    single: tuple[int, ...] = static()
    spread: tuple[int, ...] = static()
    base: int = static()
    given: tuple[int, ...] = static()

    def through(self, program: Program, leaf: Array, held: dict[int, Any]) -> Array:
        """Returns p of a leaf."""
        values = {**held, program.leaves[self.leaf]: leaf}
        for number in self.single:
            program.steps[number].advance(values)
        return values[self.base]

    def use(self, program: Program, base: Array, given: dict[int, Any]) -> Array:
        """Returns the equation's output, from p's value and all else that it reads."""
        values = {**given, self.base: base}
        for number in self.spread:
            program.steps[number].advance(values)
        return program.steps[self.step].run(values)[0]

    def slope(self, program: Program, leaf: Array, held: dict[int, Any]) -> Array | None:
        """Returns p′, element by element, in the shape of p's value; None where p only moves elements."""
        if all(_is_move(program.steps[number]) for number in self.single):
            return None
        through = lambda leaf: self.through(program, leaf, held)
        return jax.jvp(through, (leaf,), (jnp.ones_like(leaf),))[1]

    def back(self, program: Program, square: Array, slope: Array | None, leaf: Array, held: dict[int, Any]) -> Array:
        """Returns sums of squares with respect to the leaf, from those with respect to p's value."""
        value, pull = jax.vjp(lambda leaf: self.through(program, leaf, held), leaf)
        square = square if slope is None else square * slope
        return pull(square.astype(value.dtype))[0]


def sites(program: Program) -> tuple[list[Site], dict[int, str]]:
    """Returns the sites of all leaves whose elements have one each, and why the other leaves have none."""
    uses: dict[int, list[Site]] = defaultdict(list)
    reasons: dict[int, str] = {}
    for number, step in enumerate(program.steps):
        seen = [(i, place) for i, place in enumerate(step.reads) if place in program.views]
        outs = [place for place in step.writes if place is not None]
        # No gradient flows into integers, or out of `stop_gradient`.
        flows = any(differentiable(program.avals[place]) for place in outs) and step.name != "stop_gradient"
        if not seen or not flows or outs[0] in program.views:
            continue
        for position, place in seen:
            leaf = program.views[place][0]
            uses[leaf].append(_site(program, number, position, place))
            if len(seen) > 1:
                reasons.setdefault(leaf, f"meets another parameter, or itself, in `{step.name}`")
            elif step.name in CLOSED or len(step.writes) > 1:
                reasons.setdefault(leaf, f"enters a `{step.name}`")
            elif not step.dependent:
                reasons.setdefault(leaf, f"enters a `{step.name}` without data")
    if program.output in program.views:
        reasons.setdefault(program.views[program.output][0], "is the loss itself")
    for leaf, found in uses.items():
        # The square of a sum has cross terms, unless no element is in two of its terms.
        if len(found) > 1 and not _apart(program.steps, found):
            reasons.setdefault(leaf, f"is used {len(found)} times")
    return [site for leaf, found in sorted(uses.items()) if leaf not in reasons for site in found], reasons


def _site(program: Program, number: int, position: int, place: int) -> Site:
    leaf, chain = program.views[place]
    sizes = [program.avals[p].size for p in (program.leaves[leaf], *(_out(program.steps[n]) for n in chain))]
    grown = (i for i, n in enumerate(chain) if sizes[i + 1] != sizes[i] and program.steps[n].name != "slice")
    cut = next(grown, len(chain))
    single, spread = chain[:cut], chain[cut:]
    base = _out(program.steps[single[-1]]) if single else program.leaves[leaf]
    made = {base, *(_out(program.steps[n]) for n in spread)}
    reads = [r for n in (*spread, number) for r in program.steps[n].reads if r is not None and r not in made]
    return Site(leaf, number, position, single, spread, base, tuple(dict.fromkeys(reads)))


def _out(step: Step) -> int:
    (place,) = step.writes
    assert place is not None
    return place


def _apart(steps: list[Step], found: list[Site]) -> bool:
    """Whether the views of a leaf start with slices that share no element."""
    first = [steps[site.single[0]] for site in found if site.single]
    if len(first) < len(found) or any(step.name != "slice" for step in first):
        return False
    boxes = [
        tuple(zip(*(step.equation.params[f"{end}_indices"] for end in ("start", "limit")), strict=True))
        for step in first
    ]
    meet = lambda one, other: all(a < d and c < b for (a, b), (c, d) in zip(one, other, strict=True))
    return not any(meet(one, other) for one, other in itertools.combinations(boxes, 2))


def _is_move(step: Step) -> bool:
    return step.name in MOVES
