"""A function that is asked for many numbers: what does not depend on them is computed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from lamu import memory
from lamu.compile_once import compiled_once
from lamu.objective.curvature.reader.flat_jaxpr import Program

__all__ = ["Hoisted"]


class Hoisted:
    """A function `(numbers, held)` for values of `held` that stay, in two compiled programs."""

    # The first one runs once, and leaves every value that the second one reads. The second one runs for every question.

    def __init__(self, function: Callable[..., tuple[Any, ...]], numbers: Sequence[Any], held: Any) -> None:
        leaves, structure = jax.tree.flatten(held)

        def flat(leaves: list[Any], numbers: list[Any]) -> list[Any]:
            return list(function(numbers, structure.unflatten(leaves)))

        program = self._program = _Opened(flat, leaves, numbers)
        needed = {place for place in program.outputs if isinstance(place, int)}
        steps = []
        for step in reversed(program.steps):  # what nobody reads is not computed
            if any(place in needed for place in step.writes):
                steps.append(step)
                needed.update(place for place in step.reads if place is not None)
        steps.reverse()
        moving = [step for step in steps if step.dependent]
        first = [step for step in steps if not step.dependent]
        read = {place for step in moving for place in step.reads if place is not None}
        read |= {place for place in program.outputs if isinstance(place, int)}
        kept = self._kept = sorted(place for place in read if not program.depends(place))

        def prepare(leaves: list[Any]) -> list[Any]:
            values = {**program.constants, **dict(zip(program.leaves, leaves, strict=True))}
            for step in first:
                step.advance(values)
            return [values[place] for place in kept]

        def ask(prepared: list[Any], numbers: list[Any]) -> list[Any]:
            values = dict(zip(kept, prepared, strict=True)) | dict(zip(program.examples, numbers, strict=True))
            for step in moving:
                step.advance(values)
            return program.results(values)

        self._prepare, self._ask = compiled_once()(prepare), compiled_once()(ask)

    @property
    def bytes_kept(self) -> int:
        """How many bytes `prepared` returns."""
        return memory.bytes_of([self._program.avals[place] for place in self._kept])

    def prepared(self, held: Any) -> list[Any]:
        """Returns what `held` leaves for every question."""
        return self._prepare(jax.tree.leaves(held))

    def __call__(self, prepared: list[Any], numbers: Sequence[Any]) -> list[Any]:
        """Returns the function's results."""
        return self._ask(prepared, list(numbers))


class _Opened(Program):
    """The equations of a function, every call opened that depends on the numbers."""

    def _opens(self, reads: Sequence[Any]) -> bool:
        return any(isinstance(place, int) and self.depends(place) for place in reads)
