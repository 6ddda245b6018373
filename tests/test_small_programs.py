"""What `conftest.py` lets NumPy run in the place of a compiled program has the program's bits, dtype and weak type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests import small_programs

RNG = np.random.default_rng(0)
EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e15, -1e-15, 3.0, 0.1, -7.5])
X, Y = np.stack([RNG.permutation(EDGES) for _ in range(7)]), RNG.normal(size=(7, 12)) * 10.0 ** RNG.integers(-9, 9, 12)
I, J = RNG.integers(-(2**62), 2**62, size=(2, 7, 12))
B = X > 0
ONE = [lambda x: x * x, jnp.negative, jnp.sqrt, jnp.isfinite, jnp.floor, jnp.ceil, lambda x: jnp.max(x, axis=1)]
TWO = [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, jnp.equal, jnp.less, jnp.greater_equal, lax.ne]
MOVED = [
    jnp.ravel,
    jnp.transpose,
    jnp.zeros_like,
    lambda x: x[2],
    lambda x: x[-1, 3:5],
    lambda x: x[::2],
    lambda x: x[:, None],
    lambda x: jnp.stack([x, x], axis=1),
    lambda x: jnp.concatenate([x, x[:2]]),
    lambda x: jnp.pad(x, 1),
    lambda x: jnp.split(x, 3, axis=1)[1],
    lambda x: jnp.broadcast_to(x, (2, *x.shape)),
    lambda x: jnp.flip(x, 0),
    lambda x: jnp.min(x, axis=(0, 1)),
    lambda x: x.astype(bool),
    lambda x: lax.dynamic_slice(x, (5, -3), (2, 4)),
    lambda x: list(x)[4],
]
CASES = [
    *((f, (x,)) for f in (*ONE, jnp.abs) for x in (X, np.float32(X), Y)),
    *((f, pair) for f in (*TWO, jnp.divide) for pair in ((X, Y), (Y, X), (np.float32(X), np.float32(Y)), (X, 3.0))),
    *((f, (I, J)) for f in TWO),
    *((f, (x,)) for f in MOVED for x in (X, I, B)),
    *((f, (B, B.T.reshape(B.shape))) for f in (jnp.logical_and, jnp.bitwise_or, jnp.logical_xor, lax.eq)),
    *((f, (B,)) for f in (jnp.logical_not, jnp.all, jnp.any)),
    *((lambda x, d=d: x.astype(d), (x,)) for x, d in ((X, "float32"), (np.float32(Y), "float64"), (I, "float32"))),
    (jnp.where, (B, X, Y)),
    (lambda: jnp.arange(7.0), ()),
    (lambda: jnp.eye(3), ()),
    (lambda: jnp.full((2, 3), 0.5), ()),
]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list:
    """The programs that were compiled, or loaded, while a test ran."""
    from jax._src import compiler

    names, load = [], compiler.compile_or_get_cached
    monkeypatch.setattr(compiler, "compile_or_get_cached", lambda *a, **k: (names.append(str(a[1])), load(*a, **k))[1])
    return names


def same(one: jax.Array, other: jax.Array) -> None:
    assert (one.dtype, one.weak_type, one.shape) == (other.dtype, other.weak_type, other.shape)
    assert (one.committed, one.sharding) == (other.committed, other.sharding)
    np.testing.assert_array_equal(one, other)
    if one.dtype.kind == "f":
        known = ~np.isnan(one)
        np.testing.assert_array_equal(np.signbit(one)[known], np.signbit(other)[known])


@pytest.mark.parametrize("first", range(0, len(CASES), 20))
def test_numpy_gives_what_the_program_gives(first: int, compiled: list) -> None:
    for function, arguments in CASES[first : first + 20]:
        arrays = [jnp.asarray(x) for x in arguments]
        compiled.clear()
        found = function(*arrays)
        assert not compiled
        same(found, jax.jit(lambda *a, f=function: f(*a)).lower(*arrays).compile()(*arrays))


def refused(function: Callable, *arguments: Any) -> Callable:
    return lambda: jax.jit(function)(*arguments)


@pytest.mark.parametrize(
    "run",
    [
        refused(lambda x: x * x + x, X),  # which may be rounded once
        refused(lambda x: x / 3.0, X),  # is multiplied with a third
        refused(lambda x: x + x, np.full(3, 1e-310)),  # is zero to XLA
        refused(lambda x: jnp.exp(x), X),
        refused(lambda x: jnp.sum(x), X),
        refused(lambda x: x + 1, np.zeros(small_programs.MOST_NUMBERS + 1)),
        refused(lambda x: x.astype(int), X),
        lambda: jax.jit(lambda x: x + 1, donate_argnums=0)(jnp.asarray(X)),
        refused(lambda x: x + 1, jax.device_put(X, jax.devices()[0])),
        refused(lambda key: key, jax.random.key(0)),
    ],
)
def test_what_numpy_may_give_otherwise_is_compiled(run: Callable, compiled: list) -> None:
    run()
    assert compiled


def test_what_runs_often_is_compiled(compiled: list) -> None:
    x = jnp.asarray(X[:5])
    for _ in range(small_programs.FEW_CALLS):
        x + x
    assert not compiled
    for _ in range(3):
        x + x
    assert len(compiled) == 1


def test_a_result_can_be_given_away_and_owns_its_numbers() -> None:
    x = jnp.asarray(X)
    turned = x.T
    kept = np.array(turned)
    jax.jit(lambda x: x * 0, donate_argnums=0)(x)
    np.testing.assert_array_equal(turned, kept)
    given = jax.jit(lambda x: x + 1, donate_argnums=0)(turned)
    assert turned.is_deleted()
    np.testing.assert_array_equal(given, kept + 1)
