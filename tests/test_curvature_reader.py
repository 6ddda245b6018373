"""The reader of where parameters meet data, beside the gradients of single examples themselves."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest

from lamu.objective.curvature.reader import flat_jaxpr, squares_and_gradient
from lamu.objective.curvature.reader.per_example_squares import Slabs

RNG = np.random.default_rng(0)
WEIGHTS = jnp.array([0.5, 1.0, 0.0, 2.0, 0.25])  # one is padding
BATCH = len(WEIGHTS)


def normal(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape))


def tail(y: jax.Array) -> jax.Array:
    """A loss with cotangents unlike each other."""
    return jnp.sum(jnp.sin(y.reshape(-1) * (1.0 + jnp.arange(y.size, dtype=y.dtype) / y.size)))


def mlp(p: Any, x: jax.Array) -> jax.Array:
    hidden = jax.nn.relu(x @ p["a"]["kernel"] + p["a"]["bias"])
    return tail(jax.nn.tanh(hidden @ p["b"]["kernel"] + p["b"]["bias"]))


MLP = {
    "a": {"kernel": normal(3, 4), "bias": normal(4)},
    "b": {"kernel": normal(4, 2), "bias": normal(2)},
}


def rows_with_bias(p: Any, x: jax.Array) -> jax.Array:
    return tail(x @ p["kernel"] + p["bias"][None])


def embedding(p: Any, tokens: jax.Array) -> jax.Array:
    return tail(jnp.tanh(jnp.take(p["table"], tokens, axis=0)) @ p["out"])


def convolution(stride: int = 1, padding: Any = "SAME", left: int = 1, right: int = 1, groups: int = 1) -> Any:
    def loss(p: Any, x: jax.Array) -> jax.Array:
        y = jax.lax.conv_general_dilated(
            x[None],
            p["kernel"],
            (stride, 1),
            padding,
            lhs_dilation=(left, 1),
            rhs_dilation=(1, right),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )
        return tail(jnp.tanh(y + p["bias"][None, None, None]))

    return loss


def channels_first(p: Any, x: jax.Array) -> jax.Array:
    return tail(jax.lax.conv(x, p["kernel"], (1, 1), "VALID"))


def turned_kernel(p: Any, x: jax.Array) -> jax.Array:
    """A transposed convolution: the kernel is reversed and its axes are swapped before it meets the data."""
    kernel = jnp.swapaxes(jnp.flip(p, (0, 1)), 2, 3)
    y = jax.lax.conv_general_dilated(
        x[None], kernel, (1, 1), ((1, 1), (1, 0)), lhs_dilation=(2, 2), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return tail(y)


def tied(p: Any, tokens: jax.Array) -> jax.Array:
    hidden = jnp.tanh(jnp.take(p["table"], tokens, axis=0)) * p["scale"][None]
    return tail(hidden @ p["table"].T)


def in_a_scan(p: Any, x: jax.Array) -> jax.Array:
    last, _ = jax.lax.scan(lambda h, x: (jnp.tanh(h @ p["again"] + x), None), jnp.zeros(3, x.dtype), x)
    return tail(last @ p["out"])


def lstm(p: Any, x: jax.Array) -> jax.Array:
    def cell(carry: Any, x: jax.Array) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(x @ p["in"] + h @ p["again"] + p["bias"], 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    zero = jnp.zeros(2, x.dtype)
    (h, _), _ = jax.lax.scan(cell, (zero, zero), x)
    return tail(h @ p["out"])


def repeated(p: Any, x: jax.Array) -> jax.Array:
    """Dense layers by a scan over their stacked parameters."""

    def layer(h: jax.Array, p: Any) -> Any:
        bias = p["bias"] if h.ndim == 1 else p["bias"][None]
        return jnp.tanh(h @ p["kernel"] + bias), None

    return tail(jax.lax.scan(layer, x, p)[0])


def counted(p: Any, x: jax.Array) -> jax.Array:
    """A loop with a counter, which is a `scan` too where its length is known."""
    return tail(jax.lax.fori_loop(0, 3, lambda i, h: jnp.tanh(h @ p["again"] + x * i), x))


def views_of_a_scan(p: Any, x: jax.Array) -> jax.Array:
    """Moved, sliced, spread and changed before the loop and in it; run backwards, with outputs and a constant."""
    scale = jnp.exp(p["log_scale"])
    shift = jnp.array([0.1, -0.2])

    def cell(h: jax.Array, at: Any) -> Any:
        x, token = at
        new = jax.jit(jnp.dot)(p["kernel"].T[:, :4], x) + h * scale * jnp.tanh(p["inner"]) + p["bias"].reshape(-1)
        return jnp.tanh(new + token + shift), new

    tokens = jnp.broadcast_to(p["token"], (3, 2))
    last, all_of_them = jax.lax.scan(cell, jnp.zeros(2, x.dtype), (x, tokens), reverse=True, unroll=3)
    return tail(last) + tail(all_of_them[1])


def unreadable_scan(p: Any, x: jax.Array) -> jax.Array:
    def cell(h: jax.Array, x: jax.Array) -> Any:
        h = jnp.tanh(h @ p["twice"] + x @ p["twice"])
        return jax.lax.scan(lambda h, _: (h * p["nested"], None), h, None, length=2)[0], None

    return tail(jax.lax.scan(cell, p["start"], x)[0] * p["out"])


def in_a_cond(p: Any, x: jax.Array) -> jax.Array:
    return tail(jax.lax.cond(x[0] > 0, lambda a: a * x, lambda a: a + x, p["a"]) @ p["b"])


def frozen_normaliser(p: Any, x: jax.Array) -> jax.Array:
    mean, variance = jnp.array([0.1, -0.2, 0.3, 0.0]), jnp.array([1.0, 2.0, 0.5, 1.5])
    scale = (1.0 + p["scale"]) * jax.lax.rsqrt(variance + 1e-5)
    return tail(jnp.tanh((x @ p["kernel"] - mean[None]) * scale[None] + p["bias"][None]))


def transformer(p: Any, x: jax.Array) -> jax.Array:
    def normalised(h: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
        h = (h - h.mean(-1, keepdims=True)) * jax.lax.rsqrt(h.var(-1, keepdims=True) + 1e-6)
        return h * scale + bias

    x = x + p["positions"]
    h = normalised(x, p["scale"][None], p["bias"][None])
    q, k, v = (jnp.einsum("td,dhk->thk", h, p[name]) for name in "qkv")
    weights = jax.nn.softmax(jnp.einsum("shk,thk->hst", q, k), axis=-1)
    x = x + jnp.einsum("hst,thk,hkd->sd", weights, v, p["o"])
    dense = jax.checkpoint(lambda h, w, b: jax.nn.gelu(h @ w + b[None]))
    return tail(dense(x, p["up"], p["up_bias"]) @ p["down"])


def tricks(p: Any, x: jax.Array) -> jax.Array:
    y = jnp.reshape(jnp.transpose(p["a"]), (3, 4)).T[::-1] @ x[0]  # moved back and forth
    y = y * jnp.exp(p["log_scale"])  # a parameter seen through a function, itself spread over four
    y = y + jnp.tile(p["pair"], 2) - jnp.broadcast_to(p["one"], (2, 2)).reshape(-1)
    y = jnp.maximum(y, p["floor"]) / (p["square"] ** 2)  # uses that are not linear
    y = jnp.einsum("bi,bij->bj", y.reshape(2, 2), p["batched"])
    return tail(jnp.concatenate([p["token"][None], y]))


def stopped(p: jax.Array, x: jax.Array) -> jax.Array:
    """One use counts; the others carry no gradient."""
    return tail(jnp.where(p > 0, x, -x) * p + jax.lax.stop_gradient(p))


def pieces(p: jax.Array, x: jax.Array) -> jax.Array:
    """All parameters as one vector, as `ravel_pytree` gives them."""
    kernel, bias, scale = jnp.split(p, [6, 8])
    return tail(jnp.tanh(x @ kernel.reshape(3, 2) + bias) * jnp.exp(scale))


def overlapping(p: jax.Array, x: jax.Array) -> jax.Array:
    return tail(x[:2] * p[:2] + x[1:] * p[1:])


def outside(p: Any, tokens: jax.Array) -> jax.Array:
    """Rows outside the table: read as the last one, or as nothing."""
    clipped = jnp.take(p["clipped"], tokens * 2, axis=0, mode="clip")
    return tail(clipped + jnp.take(jnp.exp(p["filled"]), tokens * 2, axis=0, mode="fill", fill_value=0))


@jax.custom_jvp
def straight(w: jax.Array) -> jax.Array:
    return jnp.sign(w)


straight.defjvp(lambda primals, tangents: (jnp.sign(primals[0]), tangents[0]))

TOKENS = jnp.asarray(RNG.integers(0, 6, size=(BATCH, 4)))  # some twice in one row
IMAGES = normal(BATCH, 5, 4, 4)
SEQUENCE = normal(BATCH, 3, 4)
BLOCK = {name: normal(4, 2, 2) for name in "qkv"} | {
    "o": normal(2, 2, 4), "up": normal(4, 5), "up_bias": normal(5), "down": normal(5, 2),
    "scale": normal(4), "bias": normal(4), "positions": normal(3, 4),
}  # fmt: skip
LAYERS = {"kernel": normal(4, 3, 3), "bias": normal(4, 3)}
VIEWS = {
    "kernel": normal(5, 2), "log_scale": normal(2), "inner": normal(2), "bias": normal(2, 1), "token": normal(2),
}  # fmt: skip
TRICKS = {
    "a": normal(3, 4), "log_scale": normal(), "pair": normal(2), "one": normal(1), "floor": normal(4),
    "square": 2.0 + normal(4), "batched": normal(2, 2, 3), "token": normal(3),
}  # fmt: skip

# name: loss, parameters, examples, how many leaves are not read
CASES: dict[str, tuple[Any, Any, Any, int]] = {
    "mlp": (mlp, MLP, normal(BATCH, 3), 0),
    "positions": (rows_with_bias, {"kernel": normal(4, 2), "bias": normal(2)}, SEQUENCE, 0),
    "scale": (lambda p, x: tail(jnp.tanh(x * p)), normal(3), normal(BATCH, 3), 0),
    "embedding": (embedding, {"table": normal(6, 3), "out": normal(3, 2)}, TOKENS, 0),
    "outside the table": (outside, {"clipped": normal(6, 3), "filled": normal(6, 3)}, TOKENS, 0),
    "pieces": (pieces, normal(10), normal(BATCH, 3), 0),
    "overlapping pieces": (overlapping, normal(3), normal(BATCH, 3), 1),
    "whole and piece": (
        lambda p, x: tail(x * p + jnp.pad(x[:2] * p[:2], (0, 1))), normal(3), normal(BATCH, 3), 1,
    ),
    "convolution": (convolution(), {"kernel": normal(3, 2, 4, 3), "bias": normal(3)}, IMAGES, 0),
    "strided": (convolution(2, ((2, 0), (1, 1))), {"kernel": normal(2, 3, 4, 3), "bias": normal(3)}, IMAGES, 0),
    "dilated": (
        convolution(1, ((1, -1), (2, 1)), 2, 2), {"kernel": normal(3, 2, 4, 2), "bias": normal(2)}, IMAGES, 0,
    ),
    "grouped": (convolution(groups=2), {"kernel": normal(3, 3, 2, 4), "bias": normal(4)}, IMAGES, 0),
    "depthwise": (convolution(2, "VALID", groups=4), {"kernel": normal(2, 2, 1, 8), "bias": normal(8)}, IMAGES, 0),
    "channels first, images in an example": (
        channels_first, {"kernel": normal(3, 2, 2, 2)}, normal(BATCH, 3, 2, 4, 4), 0,
    ),
    "transposed convolution": (turned_kernel, normal(2, 2, 3, 4), IMAGES, 0),
    "tied": (tied, {"table": normal(6, 3), "scale": normal(3)}, TOKENS, 1),
    "scan": (in_a_scan, {"again": normal(3, 3), "out": normal(3, 2)}, normal(BATCH, 4, 3), 0),
    "lstm": (lstm, {"in": normal(4, 8), "again": normal(2, 8), "bias": normal(8), "out": normal(2, 2)}, SEQUENCE, 0),
    "repeated layers": (repeated, LAYERS, normal(BATCH, 3), 0),
    "repeated layers over positions": (repeated, LAYERS, normal(BATCH, 2, 3), 0),
    "views of a scan": (views_of_a_scan, VIEWS, SEQUENCE, 0),
    "counted loop": (counted, {"again": normal(3, 3)}, normal(BATCH, 3), 0),
    "a scan that is not read": (
        unreadable_scan, {"start": normal(3), "twice": normal(3, 3), "nested": normal(3), "out": normal(3)},
        normal(BATCH, 4, 3), 3,
    ),
    "cond": (in_a_cond, {"a": normal(3), "b": normal(3, 2)}, normal(BATCH, 3), 1),
    "frozen normaliser": (
        frozen_normaliser, {"kernel": normal(4, 4), "scale": normal(4), "bias": normal(4)}, SEQUENCE, 0,
    ),
    "transformer": (transformer, BLOCK, SEQUENCE, 0),
    "tricks": (tricks, TRICKS, normal(BATCH, 2, 3), 0),
    "stopped": (stopped, normal(3), normal(BATCH, 3), 0),
    "own derivative": (lambda p, x: tail(x * straight(p)), normal(3), normal(BATCH, 3), 1),
    "a penalty inside": (lambda p, x: tail(x @ p) + jnp.sum(p**2), normal(3, 2), normal(BATCH, 3), 1),
    "two parameters meet": (
        lambda p, x: tail(x @ (p["u"] @ p["v"])), {"u": normal(3, 1), "v": normal(1, 2)}, normal(BATCH, 3), 2,
    ),
    "unused": (lambda p, x: tail(x * p["a"]), {"a": normal(3), "b": normal(2)}, normal(BATCH, 3), 0),
}  # fmt: skip


def explicit(loss: Any, params: Any, examples: Any) -> tuple[jax.Array, Any, Any]:
    values, rows = jax.vmap(jax.value_and_grad(loss), (None, 0))(params, examples)
    total = lambda leaf: jnp.tensordot(WEIGHTS, leaf, 1)
    squares = jax.tree.map(lambda leaf: total(leaf**2), rows)
    return total(values), jax.tree.map(total, rows), squares


def near(found: Any, expected: Any, tolerance: float = 1e-10) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * float(jnp.max(jnp.abs(b)) + 1e-30))


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_every_leaf_is_exact(name: str, caplog: pytest.LogCaptureFixture) -> None:
    loss, params, examples, fallen = CASES[name]
    flat_jaxpr.warned.cache_clear()
    with caplog.at_level(logging.INFO, "lamu"):
        found = jax.jit(squares_and_gradient, static_argnums=0)(loss, params, examples, WEIGHTS)
    near(found, jax.jit(explicit, static_argnums=0)(loss, params, examples))
    assert len(caplog.records) == (fallen > 0)
    if fallen:
        told = caplog.records[0].getMessage()
        assert len(re.split("[;,]", re.sub(r"\(.*?\)", "", told.split(": ")[1]))) == fallen
        assert f"{BATCH} backward passes" in told


def sizes(jaxpr: Any) -> set[int]:
    """The sizes of all arrays that a jaxpr computes, those of inner jaxprs among them."""
    found = {atom.aval.size for equation in jaxpr.eqns for atom in equation.outvars}
    return found.union(*(sizes(inner) for e in jaxpr.eqns for inner in jax.extend.core.jaxprs_in_params(e.params)))


def test_single_gradients_are_not_held() -> None:
    """Nothing of the size [batch, weights] is computed, where the definition does."""
    params = {"a": {"kernel": normal(3, 40), "bias": normal(40)}, "b": {"kernel": normal(40, 30), "bias": normal(30)}}
    x = CASES["mlp"][2]
    ours = jax.make_jaxpr(lambda p: squares_and_gradient(mlp, p, x, WEIGHTS))(params).jaxpr
    definition = jax.make_jaxpr(lambda p: explicit(mlp, p, x))(params).jaxpr
    assert max(sizes(definition)) == BATCH * 40 * 30
    assert max(sizes(ours)) == 40 * 30
    # Weight sharing holds a chunk at most, here one of all five.
    positions, kernel = normal(BATCH, 3, 300), {"kernel": normal(300, 200), "bias": normal(200)}
    shared = jax.make_jaxpr(lambda p: squares_and_gradient(rows_with_bias, p, positions, WEIGHTS))(kernel).jaxpr
    assert max(sizes(shared)) < 2 * 300 * 200


def test_one_trace_and_one_compilation() -> None:
    traces = []

    def counted(p: Any, x: jax.Array) -> jax.Array:
        traces.append(None)
        return mlp(p, x)

    loss, params, x, _ = CASES["mlp"]
    step = jax.jit(lambda p, x: squares_and_gradient(counted, p, x, WEIGHTS))
    for scale in (1.0, 2.0):
        found = step(jax.tree.map(lambda leaf, scale=scale: leaf * scale, params), x)
        near(found, explicit(loss, jax.tree.map(lambda leaf, scale=scale: leaf * scale, params), x))
    assert len(traces) == 1
    assert step.lower(params, x).compile().memory_analysis() is not None


@pytest.mark.parametrize("name", ["mlp", "tied", "grouped"])
def test_float32(name: str) -> None:
    single = lambda tree: jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree
    )
    loss, params, examples, _ = CASES[name]
    found = jax.jit(squares_and_gradient, static_argnums=0)(loss, *map(single, (params, examples, WEIGHTS)))
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype(jnp.float32)}
    near(found, jax.jit(explicit, static_argnums=0)(loss, params, examples), 2e-4)


def test_inside_other_transformations() -> None:
    """Under vmap over parameters, in a scan, and with a loss that closes over traced values."""
    x = normal(BATCH, 3)

    @jax.jit
    def runs(kernels: jax.Array, shift: jax.Array) -> Any:
        loss = lambda w, x: tail((x + shift) @ w)
        at = lambda w: squares_and_gradient(loss, w, x, WEIGHTS)[2]
        return jax.vmap(at)(kernels), jax.lax.map(at, kernels)

    kernels, shift = normal(2, 3, 2), jnp.float64(0.3)
    expected = jnp.stack([explicit(lambda w, x: tail((x + shift) @ w), w, x)[2] for w in kernels])
    for found in runs(kernels, shift):
        near(found, expected)


def test_what_cannot_be_is_refused() -> None:
    def printing(w: jax.Array, x: jax.Array) -> jax.Array:
        jax.debug.print("{}", x[0])
        return tail(w * x)

    with pytest.raises(ValueError, match="side effects"):
        squares_and_gradient(printing, jnp.ones(3), normal(BATCH, 3), WEIGHTS)
    with pytest.raises(ValueError, match=r"shape \(3,\); it must be a scalar"):
        squares_and_gradient(lambda w, x: w * x, jnp.ones(3), normal(BATCH, 3), WEIGHTS)
    with pytest.raises(ValueError, match=r"have shape \(4, 3\) and the weights \(5,\); give every array"):
        squares_and_gradient(mlp, MLP, normal(4, 3), WEIGHTS)


def test_a_slab_has_the_squares_and_inner_products_of_its_rows() -> None:
    """Of a layer with positions, in slabs of one input: the gradient of a row is a sum over positions."""
    rng = np.random.default_rng(7)
    a, d = rng.normal(size=(2, 3, 4, 5)), rng.normal(size=(2, 3, 6, 5))
    rows = np.einsum("gbip,gbop->bgio", a, d)
    pieces = jnp.asarray(a.transpose(2, 0, 1, 3))[:, :, :, None]
    slabs = replace(Slabs.of(jnp.asarray(a), jnp.asarray(d)), held=1, pieces=pieces)
    np.testing.assert_allclose(slabs.squares(), (rows**2).sum(axis=0), rtol=1e-9)
    np.testing.assert_allclose(slabs.gram(None), np.einsum("bgio,cgio->bc", rows, rows), rtol=1e-9)
