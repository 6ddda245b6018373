"""A flat list of a function's equations, which can be inspected and run one by one."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import jax
import jax.extend.core as core
import jax.numpy as jnp
from jax.core import eval_jaxpr

from lamu import tree
from lamu.record import record, static
from lamu.typing import Array, Params, PyTree

__all__ = ["MOVES", "FlatJaxpr", "Step", "Values", "differentiable", "warn_of_rows", "warned"]


Values: TypeAlias = dict[int, PyTree]  # the value at each place: arrays, traced or not
Place: TypeAlias = int | core.Literal  # of a value, or the value itself

LOG = logging.getLogger("lamu")


def warn_of_rows(quantity: str, rows: int, params: Params, reasons: Mapping[int, str]) -> None:
    """Warns that a quantity takes one backward pass a row for parameters whose use is not supported."""
    # The warning names the first three parameters for each reason, and is given once when a program is traced again.
    paths = tree.paths(params)
    by_reason: dict[str, list[str]] = {}
    for leaf, reason in reasons.items():
        by_reason.setdefault(reason, []).append(paths[leaf] or "the parameter")
    told = [f"{_first_three(names)} ({reason})" for reason, names in by_reason.items()]
    if told:
        warned(
            f"{quantity} by {rows} backward passes, one for each example, for parameters that cannot be read: "
            + "; ".join(told)
        )


def _first_three(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")


@lru_cache(maxsize=256)
def warned(message: str) -> None:
    """Gives each warning once."""
    LOG.warning(message)


# Calls (`jit`, `closed_call`, `remat`) that receive a view of a parameter are inlined, so that the use is found. All
# others stay one equation, also functions with a custom derivative, whose rule would be lost by inlining.


CALLS = ("jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint", "remat")
MOVES = (
    "reshape", "transpose", "convert_element_type", "squeeze", "expand_dims", "rev", "broadcast_in_dim", "copy",
    "copy_p", "name", "tile", "slice",
)  # fmt: skip
ELEMENTWISE = (
    "neg", "add", "sub", "mul", "div", "exp", "exp2", "log", "log1p", "expm1", "tanh", "logistic", "sqrt", "rsqrt",
    "square", "integer_pow", "abs", "sin", "cos", "erf", "max", "min",
)  # fmt: skip


@record
class Step:
    """One equation, with the places of the values that it reads and writes."""

    equation: Any = static()
    reads: tuple[Any, ...] = static()  # the place of every input; None for a literal
    writes: tuple[Any, ...] = static()  # the place of every output; None for an unused one
    dependent: bool = static()  # whether it depends on the example

    @property
    def name(self) -> str:
        """The name of the primitive."""
        return self.equation.primitive.name

    def run(self, values: Values) -> list[PyTree]:
        """Returns the outputs, given the value of each place; None for unused outputs."""
        arguments = {
            atom: values[place]
            for atom, place in zip(self.equation.invars, self.reads, strict=True)
            if place is not None
        }
        results = [atom for atom, place in zip(self.equation.outvars, self.writes, strict=True) if place is not None]
        info = core.DebugInfo(self.name, self.name, None, None)
        jaxpr = core.Jaxpr((), list(arguments), results, [self.equation], self.equation.effects, info)
        return eval_jaxpr(jaxpr, (), *arguments.values())

    def advance(self, values: Values) -> None:
        """Runs and writes the outputs to their places."""
        for place, value in zip((w for w in self.writes if w is not None), self.run(values), strict=True):
            values[place] = value


class FlatJaxpr:
    """The flat list of a function's equations, with the places of views of its parameters."""

    # A view is a parameter leaf or a slice of one, possibly moved or changed element by element, that does not depend
    # on the example.
    #
    # `steps`: the equations in order.
    #
    # `leaves`: the places of the parameters' leaves.
    #
    # `examples`: the places of the example's leaves.
    #
    # `outputs`: the places of the results, or literals.
    #
    # `constants`: the values at the places of constants.
    #
    # `views`: for every place that holds a view, its leaf and the steps that lead to it.
    #
    # `avals`: shape and dtype of every place.

    def __init__(
        self,
        function: Callable[..., PyTree],
        params: Sequence[PyTree],
        example: Sequence[PyTree],
        read: Sequence[bool] | None = None,
    ) -> None:
        """Traces `function(params, example)`, two lists of arrays, once; `read` selects the parameters to follow."""
        closed = jax.make_jaxpr(function)(list(params), list(example))
        if closed.effects:
            raise ValueError(
                f"the loss has side effects ({', '.join(map(str, closed.effects))}), which cannot be run row by row; "
                "take prints and callbacks out of it"
            )
        self.steps: list[Step] = []
        self.constants: Values = {}
        self.views: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.avals: list[Any] = []
        self._dependent: set[int] = set()
        self._bound: set[int] = set()  # places that depend on a parameter
        places = [self._place(atom.aval) for atom in closed.jaxpr.invars]
        self.leaves, self.examples = places[: len(params)], places[len(params) :]
        for index, place in enumerate(self.leaves):
            if read is None or read[index]:
                self.views[place] = (index, ())
                self._bound.add(place)
        self._dependent.update(self.examples)
        self.outputs = self._inline(closed.jaxpr, closed.consts, places)

    def depends(self, place: int | None) -> bool:
        """Whether the value at a place depends on the example."""
        return place in self._dependent

    def before(self, leaves: Sequence[Array]) -> Values:
        """Returns the values of all places that do not depend on the example."""
        values = {**self.constants, **dict(zip(self.leaves, leaves, strict=True))}
        for step in self.steps:
            if not step.dependent:
                step.advance(values)
        return values

    def results(self, values: Values) -> list[PyTree]:
        """Returns the function's results after all steps."""
        return [_constant(out) if isinstance(out, core.Literal) else values[out] for out in self.outputs]

    def _place(self, aval: Any) -> int:
        self.avals.append(aval)
        return len(self.avals) - 1

    def _inline(self, jaxpr: Any, consts: Sequence[Any], places: Sequence[Place]) -> list[Place]:
        """Appends a jaxpr's equations, its inputs at the given places; returns the places of its outputs."""
        where: dict[core.Var, Place] = dict(zip(jaxpr.invars, places, strict=True))
        for atom, value in zip(jaxpr.constvars, consts, strict=True):
            place = self._place(atom.aval)
            where[atom], self.constants[place] = place, value
        read = lambda atom: atom if isinstance(atom, core.Literal) else where[atom]
        for equation in jaxpr.eqns:
            reads = [read(atom) for atom in equation.invars]
            inner = _opened(equation)
            # A literal input of a call has no place inside the call.
            if inner is not None and self._opens(reads):
                inside = [self._held(place) if isinstance(place, core.Literal) else place for place in reads]
                outs = self._inline(*inner, inside)
                where.update(zip(equation.outvars, outs, strict=True))
            else:
                # A literal output of an inlined call stays a literal.
                where.update(self._step(equation, reads))
        return [read(atom) for atom in jaxpr.outvars]

    def _opens(self, reads: Sequence[Place]) -> bool:
        """Whether a call that reads these places is inlined."""
        return any(self._is(place) for place in reads)

    def _step(self, equation: Any, reads: list[Place]) -> dict[core.Var, int]:
        inputs = [
            None
            if isinstance(atom, core.Literal)
            else (self._held(place) if isinstance(place, core.Literal) else place)
            for atom, place in zip(equation.invars, reads, strict=True)
        ]
        dependent = any(place in self._dependent for place in inputs)
        writes = [None if isinstance(atom, core.DropVar) else self._place(atom.aval) for atom in equation.outvars]
        if dependent:
            self._dependent.update(place for place in writes if place is not None)
        if any(place in self._bound for place in inputs):
            self._bound.update(place for place in writes if place is not None)
        step = Step(equation, tuple(inputs), tuple(writes), dependent)
        self._follow(step, len(self.steps))
        self.steps.append(step)
        return {atom: place for atom, place in zip(equation.outvars, writes, strict=True) if place is not None}

    def _held(self, literal: Any) -> int:
        place = self._place(literal.aval)
        self.constants[place] = _constant(literal)
        return place

    def _is(self, place: Place | None) -> bool:
        return isinstance(place, int) and place in self.views

    def _follow(self, step: Step, number: int) -> None:
        """Marks the output as a view, where the step only moves or changes the elements of one."""
        seen = [place for place in step.reads if self._is(place)]
        if len(seen) != 1 or step.dependent or step.writes[0] is None:
            return
        leaf, chain = self.views[seen[0]]
        out, before = self.avals[step.writes[0]], self.avals[seen[0]]
        # The other operand must be free of parameters: w · exp(s) with two of them is a view of neither.
        others = [place for place in step.reads if place is not None and place != seen[0]]
        alone = not any(place in self._bound for place in others)
        changed = step.name in ELEMENTWISE and alone and out.shape == before.shape
        if (step.name in MOVES or changed) and differentiable(out):
            self.views[step.writes[0]] = (leaf, (*chain, number))


def _constant(literal: Any) -> Array:
    return jnp.asarray(literal.val, literal.aval.dtype)


def differentiable(aval: Any) -> bool:
    """Whether a gradient flows through something of that dtype."""
    return jnp.issubdtype(aval.dtype, jnp.inexact)


def _opened(equation: Any) -> tuple[Any, Sequence[Any]] | None:
    """Returns the jaxpr and the constants of a call; None for other equations."""
    if equation.primitive.name == "split":
        return _slices(equation)
    if equation.primitive.name not in CALLS:
        return None
    inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    return (inner.jaxpr, inner.consts) if isinstance(inner, core.ClosedJaxpr) else (inner, ())


def _slices(equation: Any) -> tuple[Any, Sequence[Any]]:
    """Returns a split as slices, one view each."""
    axis, sizes = equation.params["axis"], equation.params["sizes"]
    ends = list(itertools.accumulate(sizes))
    cut = lambda x: [jax.lax.slice_in_dim(x, end - size, end, axis=axis) for end, size in zip(ends, sizes, strict=True)]
    aval = equation.invars[0].aval
    closed = jax.make_jaxpr(cut)(jax.ShapeDtypeStruct(aval.shape, aval.dtype))
    return closed.jaxpr, closed.consts
