"""What is done once: programs that are compiled quickly, the keys that they derive, and answers of a shape."""

# A posterior of a network that arrives trained is a handful of programs, each run once. XLA spends seconds on them,
# most of them on optimising loops whose run takes milliseconds; products, convolutions and decompositions are library
# calls, and no slower for it.

from __future__ import annotations

import functools
import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.core import eval_context
from jax.extend.core import get_opaque_trace_state

from lamu.compiled_programs import keep_compiled
from lamu.typing import Array, RandomKey

__all__ = ["CompiledOnce", "compiled_lightly", "compiled_once", "is_traced", "once_a_shape", "row_keys", "subkey"]

Answer = TypeVar("Answer")

keep_compiled()  # here, since all that compiles programs of its own imports this file before it does

_QUICK = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 0}
_OVER_ROWS = {"xla_cpu_use_fusion_emitters": False}  # loops over many rows are worth optimising
# Random numbers and gradients compile in a third of the time and run as fast; sums of products round otherwise.
_LIGHTLY = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}


class CompiledOnce:
    """A function that is compiled quickly, to run a few times; all else is as of `jax.jit`."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], static: Any, donated: Any = ()) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options, self._static, self._donated = function, options, static, donated

    def __call__(self, *arguments: Any) -> Any:
        """Returns what the function returns; inside another compiled function it is a part of that."""
        return self._function(*arguments) if is_traced() else self._compiled(*arguments)

    def __getattr__(self, name: str) -> Any:
        """Has what a jitted function has: `trace`, `lower`, `eval_shape`."""
        return getattr(self._compiled, name)

    @functools.cached_property
    def _compiled(self) -> Any:
        asked = os.environ.get("XLA_FLAGS", "")  # what is said there holds for every program
        options = _known(tuple(option for option in self._options.items() if option[0] not in asked))
        numbers = {"static_argnums": self._static, "donate_argnums": self._donated}
        return jax.jit(self._function, compiler_options=options or None, **numbers)


def compiled_once(over_rows: bool = False, static_argnums: Any = ()) -> Callable[[Callable[..., Any]], CompiledOnce]:
    """Returns a decorator as `jax.jit` is one, for a function that runs a few times at most."""
    # `over_rows`: whether it runs over rows of the data, so that its loops are optimised as ever.
    return lambda function: CompiledOnce(function, _OVER_ROWS if over_rows else _QUICK, static_argnums)


def compiled_lightly(static_argnums: Any = (), donate_argnums: Any = ()) -> Callable[..., CompiledOnce]:
    """Returns a decorator as `jax.jit` is one, for what runs a few times, is large, and may round otherwise."""
    return lambda function: CompiledOnce(function, _LIGHTLY, static_argnums, donate_argnums)


def is_traced() -> bool:
    """Whether this is called while a function is traced, where XLA's options have no place."""
    return get_opaque_trace_state() != _outside()


@functools.cache
def _outside() -> Any:
    with eval_context():
        return get_opaque_trace_state()


@functools.cache
def _known(options: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Returns the options that this version of XLA has: all of them, as a rule, for one small program."""
    if _are_known(options):
        return dict(options)
    return dict(option for option in options if _are_known((option,)))


def _are_known(options: tuple[tuple[str, Any], ...]) -> bool:
    try:
        jax.jit(lambda x: x, compiler_options=dict(options)).lower(0.0).compile()
    except Exception:  # XLA's own, of which a type is not documented
        return False
    return True


@compiled_once()
def subkey(key: RandomKey, number: Any) -> RandomKey:
    """Returns `jax.random.fold_in(key, number)`, in a third of the time where nothing else compiles it."""
    return jax.random.fold_in(key, number)


def row_keys(key: RandomKey, rows: int, first: Any = 0) -> Array:
    """Returns a key for each of some rows, which depends on the key and the row's number alone."""
    numbers = jnp.asarray(first, jnp.int32) + jnp.arange(rows, dtype=jnp.int32)
    return jax.vmap(lambda row: jax.random.fold_in(key, row))(numbers)


# How much a row takes is asked at every call, and never changes.
_MOST = 128  # answers of one function that are kept, the latest asked for


def once_a_shape(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """Returns the function with a memory: arguments of known structure, shapes and dtypes are not computed again."""
    # Arrays count by shape and dtype, everything else by value. JAX's default float is a part of the question.
    #
    # `function`: of pytrees; what it returns must not depend on the arrays' numbers.
    known: OrderedDict[Any, Answer] = OrderedDict()

    @functools.wraps(function)
    def remembered(*arguments: Any, **named: Any) -> Answer:
        leaves, structure = jax.tree.flatten((arguments, named))
        question = (structure, tuple(map(_told, leaves)), jnp.result_type(float))
        try:
            hash(question)
        except TypeError:  # somebody's own object, which cannot be told from another
            return function(*arguments, **named)
        if question not in known:
            known[question] = function(*arguments, **named)
            if len(known) > _MOST:
                known.popitem(last=False)
        known.move_to_end(question)
        return known[question]

    return remembered


def _told(leaf: Any) -> Any:
    return (leaf.shape, leaf.dtype) if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else leaf
