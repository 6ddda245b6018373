"""Activations that are computed again: the same gradients, and less kept for the backward pass."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import memory
from lamu.data import Batch
from lamu.networks import LSTM, MLP, BatchNorm, Dropout, Rematerialised, Transformer
from lamu.objective import Objective
from tests.for_each import for_each

X = jax.random.normal(jax.random.key(1), (30, 3))
STEPS = jax.random.normal(jax.random.key(2), (30, 4, 3))
Y = jnp.sin(X[:, 0])
DEEP = MLP((16,) * 9, activation="tanh")


def model_of(network: object) -> lamu.Model:
    return lamu.Model(network, lamu.likelihoods.Gaussian(scale=0.5))


def loss_of(network: object, x: jax.Array) -> tuple[object, object]:
    model, batch = model_of(network), Batch.of(x, Y)
    params, state = model.init(jax.random.key(0), batch)
    objective = Objective(model, 30)
    return lambda p: objective.negative_log_likelihood(p, batch, state, jax.random.key(3), train=True), params


@pytest.mark.stress
@for_each("segments", [None, 1, 3, 40])
def test_gradients_and_states_are_the_same(segments: object) -> None:
    for network, x in (
        (DEEP, X),
        (MLP((8, 8), normalise=BatchNorm(), dropout=Dropout(0.3)), X),
        (Transformer(depth=2, width=8, heads=2), STEPS),
        (LSTM((5,)), STEPS),
    ):
        found = []
        for each in (network, Rematerialised(network, segments)):
            loss, params = loss_of(each, x)
            found.append(jax.jit(jax.value_and_grad(loss, has_aux=True))(params))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), *found)


@for_each("network, x", [(DEEP, X), (Transformer(depth=4, width=8, heads=2), STEPS)])
def test_less_is_kept(network: object, x: jax.Array) -> None:
    """What the forward pass leaves for the backward one, beside parameters, is less than half."""

    def kept(each: object) -> int:
        loss, params = loss_of(each, x)
        residuals = jax.eval_shape(lambda p: jax.vjp(lambda p: loss(p)[0], p)[1], params)
        return memory.bytes_of(residuals) - memory.bytes_of(params)

    assert kept(Rematerialised(network)) < 0.5 * kept(network), (kept(Rematerialised(network)), kept(network))


@pytest.mark.stress
@for_each(
    "algorithm",
    [
        lamu.algorithms.vogn(),
        lamu.algorithms.noisy_kfac(),
        lamu.algorithms.last_layer(),
    ],
)
def test_every_reader_of_gradients_takes_it(algorithm: object) -> None:
    ends = [
        lamu.fit(model_of(each), (X, Y), algorithm, epochs=2, batch_size=15).posterior.predict(X).mean
        for each in (MLP((4, 4)), Rematerialised(MLP((4, 4)), 2))
    ]
    np.testing.assert_allclose(*ends, rtol=1e-6, atol=1e-8)


@pytest.mark.stress
def test_a_posterior_is_saved_with_it(tmp_path: object) -> None:
    posterior = lamu.fit(model_of(Rematerialised(DEEP, 3)), (X, Y), lamu.algorithms.adam(), epochs=1).posterior
    posterior.save(tmp_path / "saved")
    again = lamu.load(tmp_path / "saved")
    assert again.model.network.segments == 3
    np.testing.assert_array_equal(again.predict(X).mean, posterior.predict(X).mean)


@for_each("segments", [0, True, 1.5])
def test_segments_are_a_number(segments: object) -> None:
    with pytest.raises(ValueError, match="None takes the square root; give a whole number of at least 1"):
        Rematerialised(DEEP, segments)
