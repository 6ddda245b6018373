"""The architectures under algorithms that ask for more than a gradient, in both precisions."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.likelihoods import Categorical, PerPosition
from lamu.networks import (
    GRU,
    LSTM,
    Augmented,
    EveryStep,
    InputNoise,
    OneHot,
    Transformer,
    UNet,
    WideResNet,
    holds_convolutions,
)

rng = np.random.default_rng(0)
WORDS = rng.integers(0, 4, (6, 3)).astype(float)
IMAGES = rng.normal(size=(6, 4, 4))
LABELS = np.arange(6) % 3
CASES = {
    "WideResNet": (WideResNet(10, 1), Categorical(3), IMAGES, LABELS),
    "LSTM": (OneHot(LSTM((3,), EveryStep()), 4), PerPosition(Categorical(4), (3,)), WORDS, WORDS[:, ::-1].astype(int)),
    "GRU": (GRU((3,)), Categorical(3), IMAGES, LABELS),
    "Transformer": (OneHot(Transformer(1, 4, 2, 4), 4), Categorical(3), WORDS, LABELS),
    "UNet": (UNet((2, 3)), PerPosition(Categorical(2), (4, 4)), IMAGES, (IMAGES > 0).astype(int)),
}
ALGORITHMS = {
    "ivon": lamu.algorithms.ivon(),
    "laplace": lamu.algorithms.laplace(),
    "vogn": lamu.algorithms.vogn(),
    "kfac": lamu.algorithms.kfac(),
    "last_layer": lamu.algorithms.last_layer(),
    "sgld": lamu.mcmc.sgld(chains=1, warmup=1, draws=2, thinning=1),
}
WITHOUT_FACTORS = {"LSTM": ("cells/*/recurrent*",), "Transformer": ("positions/*",)}  # leaves that have no factors
QUICK = {("laplace", "LSTM"), ("ivon", "UNet")}


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        pytest.param(*pair, marks=[] if pair in QUICK else [pytest.mark.stress])
        for pair in itertools.product(ALGORITHMS, CASES)
        if pair != ("kfac", "GRU")  # whose kernels are those of an LSTM
    ],
)
def test_an_algorithm_takes_a_network(algorithm: str, name: str) -> None:
    network, likelihood, x, y = CASES[name]
    x, method = x.astype(np.float32), ALGORITHMS[algorithm]
    if algorithm == "kfac":
        method = lamu.algorithms.kfac(diagonal=WITHOUT_FACTORS.get(name, ()))
    length = {} if algorithm == "sgld" else {"steps": 2}
    fit = lamu.fit(lamu.Model(network, likelihood), (x, y), method, batch_size=6, **length)
    mean = fit.posterior.predict(x[:2], samples=2).mean
    assert mean.dtype == np.float32
    assert mean.shape == (2, *y.shape[1:], likelihood.support.number)
    np.testing.assert_allclose(np.sum(mean, axis=-1), 1.0, rtol=1e-5)


def test_kronecker_factors_refuse_a_recurrent_kernel_by_name() -> None:
    network, likelihood, x, y = CASES["LSTM"]
    with pytest.raises(TypeError, match=r"the weights 'cells/0/recurrent.*' have no Kronecker factors"):
        lamu.fit(lamu.Model(network, likelihood), (x, y), lamu.algorithms.kfac(), steps=1)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_parameters_and_gradients_have_the_precision_of_the_inputs(name: str, dtype: Any) -> None:
    network, likelihood, x, y = CASES[name]
    count = likelihood.outputs(y)
    assert not holds_convolutions(network, x, count)
    inputs, targets = jnp.asarray(x, dtype), jnp.asarray(y)

    def gradients(key: Any) -> Any:
        params, state = network.init(key, inputs, count)
        loss = lambda params: (
            -jnp.sum(likelihood.log_prob({}, network.apply(params, state, inputs, None, False)[0], targets))
        )
        return params, jax.grad(loss)(params)

    shapes = jax.eval_shape(gradients, jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype(dtype)}


def turned(key: Any, x: Any) -> Any:
    return jnp.where(jax.random.bernoulli(key, 0.5, (len(x), 1, 1)), x[:, :, ::-1], x)


@pytest.mark.stress
def test_changed_inputs_go_through_training_and_a_file(tmp_path) -> None:
    network = InputNoise(Augmented(GRU((3,)), turned), 0.1)
    model = lamu.Model(network, Categorical(3))
    posterior = lamu.fit(model, (IMAGES, LABELS), lamu.algorithms.ivon(), steps=2, batch_size=4).posterior
    posterior.save(tmp_path / "posterior")
    again = lamu.load(tmp_path / "posterior", network=network)
    np.testing.assert_array_equal(again.predict(IMAGES).mean, posterior.predict(IMAGES).mean)
