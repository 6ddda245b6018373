"""Programs that run once are compiled quickly, and are parts of others where those are compiled."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lamu.base import compile_once
from lamu.base.compile_once import CompiledOnce, compiled_once


@compiled_once(static_argnums=1)
def raised(x: Any, power: int) -> Any:
    return x**power


def test_it_is_a_compiled_function() -> None:
    assert raised.__name__ == "raised"
    np.testing.assert_array_equal(raised(jnp.arange(3.0), 2), [0.0, 1.0, 4.0])
    assert raised.eval_shape(jnp.zeros(3), 2).shape == (3,)


@pytest.mark.parametrize(
    "around",
    [
        pytest.param(lambda f: jax.jit(f)(jnp.ones(2)), id="jit"),
        pytest.param(lambda f: jax.vmap(f)(jnp.ones(2)), id="vmap"),
        pytest.param(lambda f: jax.grad(lambda x: f(x).sum())(jnp.ones(2)), id="grad"),
        pytest.param(lambda f: jax.eval_shape(f, jnp.ones(2)), id="eval_shape"),
    ],
)
@pytest.mark.parametrize("constant", [False, True])
def test_it_is_a_part_of_what_is_traced(around: Any, constant: bool) -> None:
    """Also where its own arguments are numbers that the other function has kept."""
    kept = jnp.asarray(2.0)
    assert around(lambda x: raised(kept, 2) * x if constant else raised(x, 2) * kept).shape == (2,)


def test_an_option_that_xla_does_not_know_is_left_out() -> None:
    own = CompiledOnce(lambda x: x + 1, {"xla_of_another_year": True, **compile_once._QUICK}, ())
    assert float(own(jnp.asarray(1.0))) == 2.0


def test_what_xla_flags_say_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    options = []
    monkeypatch.setattr(compile_once, "_accepted_options", lambda known: options.append(dict(known)) or {})
    for flags in ("", "--xla_backend_optimization_level=2"):
        monkeypatch.setenv("XLA_FLAGS", flags)
        CompiledOnce(lambda x: x + 1, compile_once._LIGHTLY, ())(jnp.asarray(1.0))
    fusions = {"xla_cpu_use_fusion_emitters": False}
    assert options == [{**fusions, "xla_backend_optimization_level": 1}, fusions]
