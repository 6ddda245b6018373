"""Networks that have applied the inverse link already: refused before anything is computed, by what they end in."""

from __future__ import annotations

import warnings
from typing import Any

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn
from torch.nn import functional

import lamu
from lamu.data.batch import Batch
from lamu.likelihoods import (
    Bernoulli,
    Beta,
    Categorical,
    Gamma,
    Gaussian,
    HeteroscedasticGaussian,
    NegativeBinomial,
    Poisson,
    RightCensored,
    Weibull,
    ZeroInflated,
)
from lamu.likelihoods.links import Probit, SquareRoot
from lamu.networks import NNX, Equinox, Linen, Torch, Trained
from lamu.networks.output_range import output_range
from lamu.running.conclusion import warn_probabilities
from tests.for_each import for_each

X = np.linspace(-1, 1, 12).reshape(4, 3).astype(np.float32)
BITS, CLASSES, COUNTS, SHARES = np.array([0, 1, 1, 0]), np.array([0, 1, 2, 0]), np.arange(4), np.full(4, 0.5)


class Own(nn.Module):
    """A module whose forward ends in a function."""

    def __init__(self, last: Any, outputs: int = 1) -> None:
        super().__init__()
        self.fc, self.last = nn.Linear(3, outputs), last

    def forward(self, x: Any) -> Any:
        return self.last(self.fc(x))


def ends(*last: Any, outputs: int = 1) -> Any:
    return nn.Sequential(nn.Linear(3, outputs), *last)


def init(network: Any, likelihood: Any, y: Any) -> Any:
    return lamu.Model(network, likelihood).init(jax.random.key(0), Batch.of(jnp.asarray(X), jnp.asarray(y)))


REFUSED = {
    "Sigmoid": (
        ends(nn.Sigmoid()),
        Bernoulli(),
        BITS,
        "its submodule '1', Sigmoid,.*0 and 1.*Bernoulli.*log odds.*module",
    ),
    "Sigmoid flat": (ends(nn.Sigmoid(), nn.Flatten(0)), Bernoulli(), BITS, "its submodule '1', Sigmoid"),
    "Softmax": (ends(nn.Softmax(-1), outputs=3), Categorical(3), CLASSES, "'1', Softmax,.*Categorical.*logits"),
    "softmax": (Own(lambda h: functional.softmax(h, 1), 3), Categorical(3), CLASSES, r"softmax \(in Own.forward\)"),
    "sigmoid": (Own(torch.sigmoid), Bernoulli(), BITS, r"sigmoid \(in Own.forward\).*log odds, what stands before it"),
    "1 - sigmoid": (Own(lambda h: 1 - torch.sigmoid(h).squeeze(-1)), Bernoulli(), BITS, "sigmoid"),
    "clamped": (Own(lambda h: torch.sigmoid(h).clamp(1e-6, 1 - 1e-6)), Bernoulli(), BITS, "sigmoid"),
    "Sigmoid of classes": (ends(nn.Sigmoid(), outputs=3), Categorical(3), CLASSES, r"logits.*log\(p\) of"),
    "LogSigmoid": (ends(nn.LogSigmoid()), Bernoulli(), BITS, r"LogSigmoid,.*at or below 0.*log\(p / \(1 - p\)\)"),
    "Hardsigmoid": (ends(nn.Hardsigmoid()), Bernoulli(), BITS, "Hardsigmoid"),
    "Tanh": (ends(nn.Tanh()), Bernoulli(), BITS, "Tanh,.*between -1 and 1"),
    "Tanh, probit": (ends(nn.Tanh()), Bernoulli(Probit()), BITS, "Tanh,.*scores"),
    "Softplus": (ends(nn.Softplus()), Poisson(), COUNTS, r"Softplus,.*at or above 0.*Poisson.*log means.*log\(m\)"),
    "exp": (Own(torch.exp), Poisson(), COUNTS, r"exp \(in Own.forward\).*leave that last operation out"),
    "ReLU": (ends(nn.ReLU()), Gamma(), 1.0 + COUNTS, "ReLU,.*Gamma.*log means"),
    "ReLU, censored": (ends(nn.ReLU()), RightCensored(Weibull()), 1.0 + COUNTS, "ReLU,.*log means"),
    "GELU": (ends(nn.GELU()), Poisson(), COUNTS, "GELU,.*at or above -0.1[67].*Poisson.*log means"),
    "GELU by tanh": (ends(nn.GELU("tanh")), Poisson(), COUNTS, "GELU,.*at or above -0.1[67]"),
    "gelu": (Own(functional.gelu), Gamma(), 1.0 + COUNTS, r"in Own.forward.*at or above -0.17.*log means"),
    "SiLU": (ends(nn.SiLU()), NegativeBinomial(), COUNTS, "SiLU,.*at or above -0.27"),
    "Mish": (ends(nn.Mish()), Poisson(), COUNTS, "Mish,.*at or above -0.3"),
    "ELU": (ends(nn.ELU()), NegativeBinomial(), COUNTS, "ELU,.*at or above -1"),
    "Sigmoid of shares": (ends(nn.Sigmoid()), Beta(), SHARES, "Beta.*log odds"),
    "of two": (
        Own(lambda h: torch.stack([h[:, 0], torch.sigmoid(h[:, 1])], 1), 2),
        ZeroInflated(Poisson()),
        COUNTS,
        "sigmoid.*log odds",
    ),
    "deviation": (
        Own(lambda h: torch.cat([h[:, :1], functional.softplus(h[:, 1:])], 1), 2),
        HeteroscedasticGaussian(),
        SHARES,
        "softplus.*log deviations",
    ),
}

TAKEN = {
    "logits": (ends(nn.ReLU(), nn.Linear(2, 3), outputs=2), Categorical(3), CLASSES),
    "LogSoftmax": (ends(nn.LogSoftmax(-1), outputs=3), Categorical(3), CLASSES),
    "log of Softplus": (Own(lambda h: torch.log(functional.softplus(h))), Poisson(), COUNTS),
    "capped": (Own(lambda h: 30 * torch.tanh(h / 30)), Bernoulli(), BITS),
    "clipped": (Own(lambda h: h.clamp(-10, 10)), Poisson(), COUNTS),
    "Sigmoid, Gaussian": (ends(nn.Sigmoid()), Gaussian(1.0), SHARES),
    "Softplus, square root": (ends(nn.Softplus()), Poisson(SquareRoot()), COUNTS),
    "GELU, Gaussian": (ends(nn.GELU()), Gaussian(1.0), SHARES),
    "x tanh x, of both signs": (Own(lambda h: h * (1.0 - torch.tanh(h))), Poisson(), COUNTS),
    "scaled by a weight": (ends(nn.Tanh(), nn.Linear(1, 1)), Bernoulli(), BITS),
}


@for_each("name", REFUSED)
def test_a_module_that_applies_the_inverse_link_is_refused(name):
    module, likelihood, y, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        init(Torch(module), likelihood, y)


@pytest.mark.parametrize("name", TAKEN)
def test_a_module_whose_outputs_may_be_on_the_scale_is_taken(name):
    module, likelihood, y = TAKEN[name]
    init(Torch(module), likelihood, y)


def test_it_is_refused_before_anything_is_computed(monkeypatch):
    monkeypatch.setattr("lamu.loop.start_quickly", None)  # it does not come to that
    model = lamu.Model(Torch(ends(nn.Sigmoid()), head="0/*"), Bernoulli(), lamu.priors.LearnedNormal())
    with pytest.raises(ValueError, match="ends in its submodule '1', Sigmoid"):
        lamu.fit(model, (X, BITS), lamu.algorithms.last_layer(), epochs=0)


class OfLinen(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        return linen.softmax(linen.Dense(3)(x))


class OfNNX(nnx.Module):
    def __init__(self, rngs: Any) -> None:
        self.layer = nnx.Linear(3, 3, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return nnx.softmax(self.layer(x))


OTHERS = {
    "Linen": lambda: Linen(OfLinen()),
    "NNX": lambda: NNX(lambda rngs: OfNNX(rngs)),
    "NNX, trained": lambda: NNX.of(OfNNX(nnx.Rngs(0))),
    "Equinox": lambda: Equinox(
        lambda key: eqx.nn.Sequential([eqx.nn.Linear(3, 3, key=key), eqx.nn.Lambda(jax.nn.softmax)])
    ),
    "Trained": lambda: Trained(lambda w, x: jax.nn.softmax(x @ w["a"]), {"a": jnp.ones((3, 3), "float32")}),
    "by hand": lambda: Trained(
        lambda w, x: jnp.exp(x @ w["a"]) / jnp.exp(x @ w["a"]).sum(-1, keepdims=True),
        {"a": jnp.ones((3, 3), "float32")},
    ),
    "two steps": lambda: Trained(
        lambda w, x: jnp.exp(jax.nn.log_softmax(x @ w["a"])), {"a": jnp.ones((3, 3), "float32")}
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_so_is_one_of_another_library(name):
    with pytest.raises(ValueError, match=r"ends in (softmax|exp).*between 0 and 1.*Categorical takes them as logits"):
        init(OTHERS[name](), Categorical(3), CLASSES)


def test_so_is_the_decoder_of_a_graph():
    decoder = Trained(lambda w, z: jax.nn.sigmoid(z @ w["a"]), {"a": jnp.ones((2, 5), "float32")})
    graph = lamu.latent.models.VAE(2, 5, decoder=decoder)
    with pytest.raises(ValueError, match=r"the network 'decode' ends in sigmoid.*Bernoulli takes them as log odds"):
        graph.init(jax.random.key(0), graph.rows({"y": jnp.eye(5)}).full())


N = jax.nn
RANGES = {
    "hard_sigmoid": (N.hard_sigmoid, 0, 1),
    "relu6": (N.relu6, 0, 6),
    "softplus": (N.softplus, 0, np.inf),
    "log_softmax": (N.log_softmax, -np.inf, 0),
    "square": (lambda h: h * h, 0, np.inf),
    "sigmoid by hand": (lambda h: 1 / (1 + jnp.exp(-h)), 0, 1),
    "half of tanh": (lambda h: (1 + jnp.tanh(h / 2)) / 2, 0, 1),
    "hard_tanh": (N.hard_tanh, -1, 1),
    "soft_sign": (N.soft_sign, -1, 1),
    "affine": (lambda h: 3 - 2 * N.sigmoid(h), 1, 3),
}


@pytest.mark.parametrize("name", RANGES)
def test_the_range_is_that_of_the_activation(name):
    activation, lowest, highest = RANGES[name]
    found, _ = output_range(lambda w, x: activation(x @ w), jnp.ones((3, 2)), jnp.ones((2, 3)))
    assert found is not None
    np.testing.assert_allclose(found.lowest, lowest)
    np.testing.assert_allclose(found.highest, highest)
    values = activation(50 * jax.random.normal(jax.random.key(0), (200, 2)))
    assert np.all(np.asarray(values) >= found.lowest)
    assert np.all(np.asarray(values) <= found.highest)


@pytest.mark.parametrize("activation", [N.leaky_relu, lambda h: h, lambda h: h * N.sigmoid(h[:, :1])])
def test_outputs_of_any_value_have_no_range(activation):
    assert output_range(lambda w, x: activation(x @ w), jnp.ones((3, 2)), jnp.ones((2, 3)))[0] is None


def test_probabilities_that_the_program_does_not_show_are_warned_of():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 1)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int)

    def hidden(w: Any, x: Any) -> Any:  # PyTorch or SciPy called back, for instance
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        of_numpy = lambda f: (1 / (1 + np.exp(-np.asarray(f)))).astype(np.float32)
        return jax.pure_callback(of_numpy, shape, x * w["a"][None], vmap_method="sequential")

    rows = Batch.of(jnp.asarray(x), jnp.asarray(y))
    with pytest.warns(UserWarning, match="lie between 0 and 1, and as probabilities.*Bernoulli takes them as log odds"):
        warn_probabilities(lamu.Model(Trained(hidden, {"a": jnp.full(1, 9.0, "float32")}), Bernoulli()), rows)
    with warnings.catch_warnings():  # log odds of a network that knows little lie there too, and fit as log odds
        warnings.simplefilter("error")
        few = Trained(lambda w, x: w["a"][None] + 0.01 * x, {"a": jnp.full(1, 0.6, "float32")})
        often = Batch.of(jnp.asarray(x), (jnp.arange(60) % 20 < 13).astype(int))
        warn_probabilities(lamu.Model(few, Bernoulli()), often)
