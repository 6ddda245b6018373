"""Networks of sequences beside Flax's cells and attention; what reaches their last layer; codes as vectors."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.base.compile_once import lenient
from lamu.networks import (
    GRU,
    LSTM,
    EveryStep,
    LastStep,
    Linear,
    MeanOfSteps,
    OneHot,
    Readout,
    Tokens,
    Transformer,
)
from tests.for_each import for_each

rng = np.random.default_rng(0)
X = jnp.asarray(rng.normal(size=(3, 5, 2)))


def key() -> Any:
    return jax.random.key(0)


def shaken(params: Any) -> Any:
    """Parameters of which none is zero or one."""
    return jax.tree.map(lambda leaf: leaf + 0.1 * jnp.asarray(rng.normal(size=leaf.shape)), params)


def flaxs(cell: Any, params: Any, inputs: str, again: str, both: tuple[str, ...] = ()) -> Any:
    """Our joint kernels as Flax's own, gate by gate."""
    gates = len(inputs)
    split = lambda leaf: jnp.split(leaf, gates, axis=-1)
    theirs = {}
    for name, kernel, bias in zip(
        inputs, split(params["input"]["kernel"]), split(params["input"]["bias"]), strict=True
    ):
        theirs[f"{cell}{name}"] = {"kernel": kernel, **({} if both else {"bias": bias})}
        if both:
            theirs[f"h{name}"] = {"bias": bias}
    for name, kernel in zip(again, split(params["recurrent"]["kernel"]), strict=True):
        theirs.setdefault(f"h{name}", {})["kernel"] = kernel
    return theirs


def along(cell: Any, params: Any, x: Any) -> Any:
    """Flax's cell at every step."""
    with lenient():
        carry, outputs = cell.initialize_carry(key(), x[:, 0].shape), []
        for step in range(x.shape[1]):
            carry, output = cell.apply({"params": params}, carry, x[:, step])
            outputs.append(output)
    return jnp.stack(outputs, axis=1)


def test_an_lstm_is_flaxs() -> None:
    network = LSTM((4,), EveryStep())
    params, state = network.init(key(), X, 5 * 3)
    np.testing.assert_array_equal(params["cells"][0]["input"]["bias"], np.repeat([0.0, 1.0, 0.0, 0.0], 4))
    params = shaken(params)
    theirs = flaxs("i", params["cells"][0], "ifgo", "ifgo", both=("bias",))
    hidden = along(nn.OptimizedLSTMCell(4, param_dtype=jnp.float64), theirs, X)
    expected = hidden @ params["layers"][0]["kernel"] + params["layers"][0]["bias"][None, None]
    np.testing.assert_allclose(network.apply(params, state, X, None, False)[0], expected.reshape(3, -1), rtol=1e-9)


def test_a_gru_is_flaxs_and_layers_stack() -> None:
    """The second layer reads the first one's outputs, and the last step alone is read out."""
    network = GRU((4, 3))
    params, state = network.init(key(), X, 2)
    params, hidden = shaken(params), X
    for index, width in enumerate((4, 3)):
        theirs = flaxs("i", params["cells"][index], "rzn", "rzn")
        theirs["hn"]["bias"] = params["cells"][index]["recurrent"]["bias"]
        hidden = along(nn.GRUCell(width, param_dtype=jnp.float64), theirs, hidden)
    expected = hidden[:, -1] @ params["layers"][0]["kernel"] + params["layers"][0]["bias"][None]
    np.testing.assert_allclose(network.apply(params, state, X, None, False)[0], expected, rtol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
def test_a_transformer_is_flaxs_attention_and_norms(causal: bool) -> None:
    network = Transformer(depth=1, width=8, heads=2, hidden=6, causal=causal)
    params, state = network.init(key(), X, 3)
    params = shaken(params)
    block = params["blocks"][0]
    norm = lambda at, h: nn.LayerNorm(epsilon=1e-6, use_fast_variance=False).apply({"params": at}, h)
    dense = lambda at, h: h @ at["kernel"] + at["bias"][None, None]
    attention = nn.MultiHeadDotProductAttention(2, use_bias=False, param_dtype=jnp.float64)
    mask = nn.make_causal_mask(X[..., 0]) if causal else None
    kernels = {name: block["attention"][name]["kernel"] for name in ("query", "key", "value", "out")}
    theirs = {name: {"kernel": kernel.reshape(8, 2, 4)} for name, kernel in kernels.items()}
    theirs["out"] = {"kernel": kernels["out"].reshape(2, 4, 8)}
    with lenient():
        hidden = dense(params["embedding"], X) + params["positions"]["table"][None]
        hidden = hidden + attention.apply({"params": theirs}, norm(block["norms"][0], hidden), mask=mask)
        inner = jax.nn.gelu(dense(block["dense"][0], norm(block["norms"][1], hidden)))
        hidden = norm(params["norm"], hidden + dense(block["dense"][1], inner))
        expected = dense(params["layers"][0], hidden).mean(axis=1)
    np.testing.assert_allclose(network.apply(params, state, X, None, False)[0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    "network", [LSTM((4,), EveryStep()), Transformer(1, 4, 2, 4, causal=True, readout=EveryStep())]
)
def test_a_step_sees_no_later_one(network: Any) -> None:
    params, state = network.init(key(), X, 5)
    f = lambda x: network.apply(params, state, x, None, False)[0]
    changed = np.asarray(f(X.at[:, 3].add(1.0)) != f(X)).any(axis=0)
    assert changed.tolist() == [False, False, False, True, True]


def test_without_the_mask_a_step_sees_all() -> None:
    network = Transformer(1, 4, 2, 4, readout=EveryStep())
    params, state = network.init(key(), X, 5)
    f = lambda x: network.apply(params, state, x, None, False)[0]
    assert np.asarray(f(X.at[:, 4].add(1.0)) != f(X)).all()


def test_readouts_are_steps() -> None:
    assert isinstance(LastStep(), Readout)
    np.testing.assert_array_equal(LastStep().read(X), X[:, 4])
    np.testing.assert_allclose(MeanOfSteps().read(X), X.mean(axis=1))
    assert (LastStep().at_each(10, 5), EveryStep().at_each(10, 5)) == (10, 2)


def test_codes_are_rows_of_the_first_kernel() -> None:
    """Tokens or floats, standardised or not; what is no code has no vector."""
    codes = jnp.array([[0.0, 2.0], [1.0, 1.0]])
    network = OneHot(Linear(bias=False), 3)
    params, state = network.init(key(), codes, 1)
    kernel = params["layers"][0]["kernel"].reshape(2, 3)
    expected = jnp.array([[kernel[0, 0] + kernel[1, 2]], [kernel[0, 1] + kernel[1, 1]]])
    f = lambda network, x: network.apply(params, state, x, None, False)[0]
    np.testing.assert_allclose(f(network, codes), expected, rtol=1e-12)
    np.testing.assert_allclose(f(Tokens(network), codes + 0.2), expected, rtol=1e-12)
    np.testing.assert_array_equal(f(network, jnp.array([[3.0, -1.0]])), 0.0)
    model = lamu.Model(network, lamu.likelihoods.Gaussian(1.0)).standardised(codes, np.array([0.0, 1.0]))
    np.testing.assert_array_equal(model.network.shift, 0.0)


@for_each(
    "make, error, words",
    [
        (lambda: LSTM(()), ValueError, "holds no layer"),
        (lambda: GRU((0,)), ValueError, r"widths=\(0,\); give whole numbers from 1"),
        (lambda: LSTM(readout=LastStep), TypeError, "is not a readout; give LastStep"),
        (lambda: LSTM(readout=EveryStep()).init(key(), X, 7), ValueError, "7 outputs cannot be dealt to 5 steps"),
        (lambda: GRU().init(key(), X[0, 0], 1), ValueError, r"\(2,\) are not sequences"),
        (
            lambda: GRU((4,)).apply(GRU((4,)).init(key(), X, 1)[0], {}, X[..., 0], None, False),
            ValueError,
            "have 1 feat",
        ),
        (lambda: Transformer(width=6, heads=4), ValueError, "6 features cannot be dealt to 4 heads"),
        (
            lambda: Transformer().apply(Transformer().init(key(), X, 1)[0], {}, X[:, 1:], None, False),
            ValueError,
            "4 steps",
        ),
        (lambda: OneHot(Linear(), 1), ValueError, "a size of 1"),
    ],
)
def test_mistakes_are_said_in_a_sentence(make: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        make()
