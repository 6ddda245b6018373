"""Batch statistics on their way through every algorithm, into the posterior, to disk and into its predictions."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.algorithms import adam, deep_ensemble, ivon, laplace, last_layer, sgd, vogn
from lamu.data import Arrays, Batch
from lamu.networks import MLP, BatchNorm, ConvNet
from lamu.objective import Objective

X = np.random.default_rng(0).normal(2.0, 3.0, size=(10, 4, 4))
Y = np.arange(10) % 3
NETWORKS = {
    "MLP": MLP((4,), normalise=BatchNorm()),
    "ConvNet": ConvNet((2,), widths=(3,), normalise=BatchNorm()),
}
ALGORITHMS = {
    "adam": adam(0.05),
    "sgd": sgd(0.05, momentum=0.5),
    "ivon": ivon(0.1),
    "laplace": laplace(adam(0.05)),
    "last_layer": last_layer(adam(0.05)),
    "deep_ensemble": deep_ensemble(adam(0.05), members=2),
}
SHORT = {("adam", "MLP"), ("deep_ensemble", "MLP"), ("laplace", "MLP"), ("ivon", "ConvNet")}  # the others say it again
CASES = [
    pytest.param(name, network, marks=[pytest.mark.stress] if (name, network) not in SHORT else [])
    for network in NETWORKS
    for name in ALGORITHMS
]


@cache
def posterior(name: str, network: str) -> Any:
    """After five steps on batches of four rows, of which the last of an epoch is half padding."""
    model = lamu.Model(NETWORKS[network], lamu.likelihoods.Categorical(3)).standardised(X, Y)
    return lamu.fit(model, (X, Y), ALGORITHMS[name], steps=5, batch_size=4).posterior


def flat(tree: Any) -> np.ndarray:
    return np.asarray(lamu.tree.ravel(tree)[0])


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "network"), CASES)
def test_statistics_arrive_and_are_what_predicts(name, network, tmp_path) -> None:
    """They moved; a prediction of a row is that of the row alone, which its batch would not give; they are saved."""
    found = posterior(name, network)
    first = {"norms": {0: BatchNorm().init(2 if network == "ConvNet" else 4, X.dtype)[1]}}
    if name == "deep_ensemble":
        first = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), first)
    assert jax.tree.structure(found.network_state) == jax.tree.structure(first)
    assert np.all(np.abs(flat(found.network_state) - flat(first)) > 1e-6)
    together, alone = (found.predict(x, samples=4).mean for x in (X, X[3:4]))
    np.testing.assert_allclose(together[3], alone[0], rtol=1e-9)
    again = lamu.load(found.save(tmp_path / "posterior"))
    jax.tree.map(np.testing.assert_array_equal, found.network_state, again.network_state)
    np.testing.assert_array_equal(again.predict(X, samples=4).mean, together)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_point_predicts_with_its_running_statistics(network) -> None:
    found = posterior("adam", network)
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    f, _ = NETWORKS[network].apply(found.mean["network"], found.network_state, jnp.asarray(z), None, False)
    np.testing.assert_allclose(found.predict(X).mean, jax.nn.softmax(f), rtol=1e-8)


@pytest.mark.parametrize("name", ["laplace", "last_layer"])
def test_a_pass_after_the_mode_keeps_its_statistics(name) -> None:
    one, other = (posterior(of, "MLP").network_state for of in ("adam", name))
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("network", NETWORKS)
def test_each_member_predicts_with_statistics_of_its_own(network) -> None:
    found = posterior("deep_ensemble", network)
    members = [jax.tree.map(lambda leaf: leaf[k], found.network_state) for k in range(2)]  # noqa: B023  (at once)
    assert not np.any(np.isclose(flat(members[0]), flat(members[1])))
    z = jnp.asarray((X - X.mean(axis=0)) / X.std(axis=0))
    weights = [member.mean["network"] for member in found.belief.members]
    own, exchanged = (
        np.mean([jax.nn.softmax(NETWORKS[network].apply(w, s, z, None, False)[0]) for w, s in pairs], axis=0)
        for pairs in (zip(weights, members, strict=True), zip(weights, members[::-1], strict=True))
    )
    np.testing.assert_allclose(found.predict(X).mean, own, rtol=1e-8)
    assert not np.allclose(found.predict(X).mean, exchanged, rtol=1e-3)


@pytest.mark.parametrize("name", ["adam", "ivon", "deep_ensemble"])
def test_a_step_averages_the_statistics_of_its_batch(name) -> None:
    """The first layer's, whose weights at the step are the initial ones, or a draw about them."""
    model = lamu.Model(NETWORKS["MLP"], lamu.likelihoods.Categorical(3), lamu.priors.Normal(1e-3))
    batch, objective = Batch.of(X, jnp.asarray(Y)), Objective(model, 1e9)  # so many rows that the draw is the mean
    algorithm, x = ALGORITHMS[name], X.reshape(10, -1)
    state = jax.jit(algorithm.init)(jax.random.key(0), objective, batch)
    before = algorithm.posterior(jax.random.key(1), state, objective, Arrays.of((X, Y)), None).belief
    new, _ = jax.jit(algorithm.step)(jax.random.key(2), state, batch.padded(12), objective)
    members = before.members if name == "deep_ensemble" else [before]
    for k, member in enumerate(members):
        found = new.network_state["norms"][0]
        found = jax.tree.map(lambda leaf: leaf[k], found) if name == "deep_ensemble" else found  # noqa: B023  (at once)
        hidden = x @ np.asarray(member.mean["network"]["layers"][0]["kernel"])
        np.testing.assert_allclose(found["mean"], 0.1 * hidden.mean(axis=0), rtol=1e-2, atol=1e-3)
        np.testing.assert_allclose(found["var"], 0.9 + 0.1 * hidden.var(axis=0), rtol=1e-2)


def test_several_draws_average_their_statistics() -> None:
    model = lamu.Model(NETWORKS["MLP"], lamu.likelihoods.Categorical(3))
    batch, objective, two = Batch.of(X, jnp.asarray(Y)), Objective(model, 10.0), ivon(0.1, samples=2)
    state = jax.eval_shape(two.init, jax.random.key(0), objective, batch)
    new, _ = jax.eval_shape(two.step, jax.random.key(1), state, batch, objective)
    assert jax.tree.structure(new) == jax.tree.structure(state)
    shapes = [[leaf.shape for leaf in jax.tree.leaves(s.network_state)] for s in (state, new)]
    assert shapes == [[(4,), (4,)]] * 2


@pytest.mark.parametrize("network", NETWORKS)
def test_squares_of_single_rows_refuse_a_state(network) -> None:
    model = lamu.Model(NETWORKS[network], lamu.likelihoods.Categorical(3))
    with pytest.raises(TypeError, match="need a network without a state"):
        lamu.fit(model, (X, Y), vogn(), steps=1)
