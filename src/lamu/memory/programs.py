"""The memory of arrays and programs: bytes from shapes, and the compiler's own count for a compiled program."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Var, jaxprs_in_params

__all__ = ["bytes_of", "held_by", "largest_array", "numbers_written"]


def bytes_of(structure: Any) -> int:
    """Returns the bytes of a tree of arrays, or of their shapes; other leaves count nothing.

    Args:
        structure: a pytree of arrays, random keys or `jax.ShapeDtypeStruct`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.memory import bytes_of
        >>> bytes_of({"w": jnp.zeros((3, 2), jnp.float32), "name": 1})
        24
    """
    leaves = [leaf for leaf in jax.tree.leaves(structure) if hasattr(leaf, "shape") and hasattr(leaf, "dtype")]
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def held_by(function: Any, *arguments: Any) -> int:
    """Returns the bytes that a jitted function holds beside its arguments: temporaries, and results that are new.

    The compiler says it. A later call with the same arguments runs the same compiled program: JAX keeps it.

    Args:
        function: what `jax.jit` returned.
        *arguments: arrays, or their shapes.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.memory import held_by
        >>> x = jax.ShapeDtypeStruct((100, 100), jnp.float32)
        >>> held_by(jax.jit(lambda x: x @ x), x) >= 40_000
        True
    """
    found = function.lower(*arguments).compile().memory_analysis()
    if found is None:  # not every backend says it
        return 0
    return found.temp_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes


def largest_array(function: Callable[..., Any], *arguments: Any) -> int:
    """Returns the bytes of the largest array that a function makes on its way; nothing is compiled.

    Args:
        function: any function that JAX can trace.
        *arguments: arrays, or their shapes.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.memory import largest_array
        >>> x = jax.ShapeDtypeStruct((100, 10), jnp.float32)
        >>> largest_array(lambda x: jnp.sum(x @ x.T), x)
        40000
    """
    return _largest(jax.make_jaxpr(function)(*arguments).jaxpr)


def _largest(jaxpr: Any) -> int:
    made = [bytes_of(variable.aval) for equation in jaxpr.eqns for variable in equation.outvars]
    inside = [_largest(inner) for equation in jaxpr.eqns for inner in jaxprs_in_params(equation.params)]
    return max([*made, *inside], default=0)


def numbers_written(program: Any, inputs: int) -> int:
    """Returns how many numbers the equations of a program write that depend on its last inputs.

    A transposed weight is written once for all rows, however many there are: it is no part of what a row takes.

    Args:
        program: a jaxpr, for instance `jax.jit(f).trace(...).jaxpr.jaxpr`.
        inputs: how many of its inputs, from the last one back.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.memory import numbers_written
        >>> program = jax.make_jaxpr(lambda w, x: x @ w.T)(jnp.zeros((5, 3)), jnp.zeros((1, 3))).jaxpr
        >>> numbers_written(program, 1), numbers_written(program, 2)
        (5, 20)
    """
    dependent = set(program.invars[len(program.invars) - inputs :])
    total = 0
    for equation in program.eqns:
        if any(isinstance(place, Var) and place in dependent for place in equation.invars):
            dependent.update(equation.outvars)
            total += sum(math.prod(place.aval.shape) for place in equation.outvars)
    return total
