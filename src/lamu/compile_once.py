"""Programs that run a few times at most: compiled with little optimisation, which costs more than it would save."""

# A posterior of a network that arrives trained is a handful of programs, each run once. XLA spends seconds on them,
# most of them on optimising loops whose run takes milliseconds; products, convolutions and decompositions are library
# calls, and no slower for it.

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.core import eval_context
from jax.extend.core import get_opaque_trace_state

__all__ = ["CompiledOnce", "compiled_once"]

_QUICK = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 0}
_OVER_ROWS = {"xla_cpu_use_fusion_emitters": False}  # loops over many rows are worth optimising


class CompiledOnce:
    """A function that is compiled quickly, to run a few times; all else is as of `jax.jit`."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any], static_argnums: Any) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options, self._static_argnums = function, options, static_argnums

    def __call__(self, *arguments: Any) -> Any:
        """Returns what the function returns; inside another compiled function it is a part of that."""
        return self._function(*arguments) if _is_traced() else self._compiled(*arguments)

    def __getattr__(self, name: str) -> Any:
        """Has what a jitted function has: `trace`, `lower`, `eval_shape`."""
        return getattr(self._compiled, name)

    @functools.cached_property
    def _compiled(self) -> Any:
        options = _known(tuple(self._options.items()))
        return jax.jit(self._function, static_argnums=self._static_argnums, compiler_options=options or None)


def compiled_once(over_rows: bool = False, static_argnums: Any = ()) -> Callable[[Callable[..., Any]], CompiledOnce]:
    """Returns a decorator as `jax.jit` is one, for a function that runs a few times at most."""
    # `over_rows`: whether it runs over rows of the data, so that its loops are optimised as ever.
    return lambda function: CompiledOnce(function, _OVER_ROWS if over_rows else _QUICK, static_argnums)


def _is_traced() -> bool:
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
