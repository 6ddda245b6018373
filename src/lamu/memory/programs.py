"""What a program will hold in memory, read off its trace: nothing is compiled and nothing runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

__all__ = ["peak"]

# What a compiler computes where it is used, and never writes down: element by element, or the same in another shape.
_ONE_BY_ONE = (
    "abs add add_any and bitcast_convert_type broadcast_in_dim clamp convert_element_type copy div eq erf erf_inv erfc "
    "exp exp2 expand_dims expm1 floor ge gt integer_pow iota is_finite le log log1p logistic lt max min mul ne neg not "
    "or pow random_unwrap random_wrap rem reshape rev round rsqrt select_n shift_left shift_right_arithmetic "
    "shift_right_logical sign slice sqrt square squeeze stop_gradient sub tanh transpose xor"
)
_FUSED = frozenset(_ONE_BY_ONE.split())
_SAME = frozenset(("expand_dims", "reshape", "squeeze"))
# Programs inside of a program that are run in its place.
_CALLS = frozenset(
    ("closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "jit", "pjit", "checkpoint", "remat2")
)
_ALIASED = frozenset(("cond", "while"))  # their results take the place of what was computed inside


@dataclass(frozen=True, eq=False)
class _Value:
    """What one operation makes; a program that is called twice makes two of them."""

    size: int


@dataclass(frozen=True)
class _Operation:
    """An operation: its name, the values that it reads and makes, and the bytes that its inner programs hold."""

    name: str
    read: tuple[_Value, ...]
    made: tuple[_Value, ...]
    inside: int


def peak(program: Any) -> int:
    """Returns about how many bytes a traced program holds at once beside its arguments, its results included.

    Every value lives from the operation that makes it to the last that reads it. Chains of operations on single
    elements count as one, as compilers make of them.

    Args:
        program: what JAX has traced, for instance `jax.make_jaxpr(f)(x)`.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.memory import peak
        >>> x = jax.ShapeDtypeStruct((100, 100), jnp.float32)
        >>> peak(jax.make_jaxpr(lambda x: jnp.sum((x @ x) @ x))(x))
        80000
    """
    jaxpr = getattr(program, "jaxpr", program)
    known: dict[Any, _Value] = {}
    operations: list[_Operation] = []
    _append(jaxpr, known, operations)
    last: dict[_Value, int] = {}
    readers: dict[_Value, set[str]] = {}
    for number, operation in enumerate(operations):
        for value in operation.read:
            last[value] = number
            readers.setdefault(value, set()).add(operation.name)
    for variable in jaxpr.outvars:
        if not _is_literal(variable) and variable in known:
            last[known[variable]] = len(operations)
            readers.setdefault(known[variable], set()).add("")
    held: dict[_Value, int] = {}
    now = most = 0
    for number, operation in enumerate(operations):
        for value in operation.made:
            if value in last:
                held[value] = 0 if _is_fused(operation.name, readers[value]) else value.size
        new = sum(held.get(value, 0) for value in operation.made)
        aliased = operation.name in _ALIASED
        most = max(most, now + (max(operation.inside, new) if aliased else operation.inside + new))
        ended = {value for value in (*operation.read, *operation.made) if last.get(value, number) <= number}
        now += new - sum(held.pop(value, 0) for value in ended)
    return most


def _append(jaxpr: Any, known: dict[Any, _Value], operations: list[_Operation]) -> None:
    """Appends the operations of a program, those of the programs that it calls in their places.

    Args:
        jaxpr: the program.
        known: the values of its variables; what is given from outside has none.
        operations: receives the operations.
    """
    for equation in jaxpr.eqns:
        inner = [found for parameter in equation.params.values() for found in _programs(parameter)]
        if equation.primitive.name in _CALLS and inner:
            called: dict[Any, _Value] = {}
            given = equation.invars[len(equation.invars) - len(inner[0].invars) :]
            for parameter, variable in zip(inner[0].invars, given, strict=True):
                if not _is_literal(variable) and variable in known:
                    called[parameter] = known[variable]
            _append(inner[0], called, operations)
            for variable, result in zip(equation.outvars, inner[0].outvars, strict=True):
                if not _is_literal(result) and result in called:
                    known[variable] = called[result]
            continue
        read = tuple(known[each] for each in equation.invars if not _is_literal(each) and each in known)
        made = tuple(_Value(_bytes(variable.aval)) for variable in equation.outvars)
        known.update(zip(equation.outvars, made, strict=True))
        operations.append(_Operation(equation.primitive.name, read, made, max(map(peak, inner), default=0)))


def _is_fused(name: str, readers: set[str]) -> bool:
    """Whether a value is never written down: made element by element, for others that are, or for sums."""
    return name in _SAME or (name in _FUSED and all(each in _FUSED or each.startswith("reduce") for each in readers))


def _is_literal(variable: Any) -> bool:
    return hasattr(variable, "val")


def _programs(parameter: Any) -> list[Any]:
    """Returns the programs that a parameter of an operation holds."""
    found = []
    for each in parameter if isinstance(parameter, tuple | list) else (parameter,):
        program = getattr(each, "jaxpr", each)
        if hasattr(program, "eqns"):
            found.append(program)
    return found


def _bytes(shaped: Any) -> int:
    # A random key's dtype does not tell its size.
    return math.prod(getattr(shaped, "shape", ())) * int(getattr(getattr(shaped, "dtype", None), "itemsize", 8))
