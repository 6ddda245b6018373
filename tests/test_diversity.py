"""Members of an ensemble that differ by more than their seeds; ensembles over devices; mixtures of any Gaussians."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lamu
from lamu.algorithms import (
    Anchors,
    Bootstrap,
    EvidenceWeights,
    Seeds,
    deep_ensemble,
    laplace,
    mc_dropout,
    mixture,
    sgd,
)
from lamu.algorithms.ensembles.deep_ensemble import Diversity
from lamu.data import Arrays, Batch
from lamu.families import Mixture
from lamu.networks import Linear
from lamu.networks.normalisation import Dropout
from lamu.objective import Objective
from lamu.operators import Dense, Diagonal
from lamu.posterior import Posterior
from lamu.priors import Normal
from lamu.record import record, static

rng = np.random.default_rng(6)
N, NOISE, SCALE = 20, 0.5, 0.8
X = rng.normal(size=(N, 2))
Y = X @ np.array([1.0, -2.0]) + 0.4 + NOISE * rng.normal(size=N)
DESIGN = np.column_stack([np.ones(N), X])
MODEL = lamu.Model(Linear(), lamu.likelihoods.Gaussian(NOISE), Normal(SCALE))
OBJECTIVE = Objective(MODEL, float(N))


def flat(params) -> np.ndarray:
    return np.asarray(lamu.tree.ravel(params)[0])


def solved(weights=None, anchor=None) -> np.ndarray:
    """Weighted ridge regression about an anchor, in closed form."""
    weights = np.ones(N) if weights is None else np.asarray(weights)
    precision = DESIGN.T * weights @ DESIGN / NOISE**2 + np.eye(3) / SCALE**2
    pull = DESIGN.T @ (weights * Y) / NOISE**2 + (0.0 if anchor is None else anchor / SCALE**2)
    return np.linalg.solve(precision, pull)


def modes(diversity, members: int = 3) -> list[np.ndarray]:
    """Where the members end, on all rows a step."""
    fit = lamu.fit(MODEL, (X, Y), deep_ensemble(sgd(0.1), members, diversity), steps=600, batch_size=N)
    assert fit.posterior.model.prior == MODEL.prior, "the model is everybody's"
    return [flat(member.mean["network"]) for member in fit.posterior.belief.members]


def test_bootstrapped_members_are_weighted_regressions() -> None:
    """Each at the closed form of its own counts, which differ; the fingerprint does not see order or padding."""
    diversity, batch = Bootstrap(seed=3), Batch.of(X, Y)
    counts = [np.asarray(diversity.batch(k, batch).weight) for k in range(3)]
    for found, weights in zip(modes(diversity), counts, strict=True):
        np.testing.assert_allclose(found, solved(weights), atol=1e-7)
    assert not np.array_equal(counts[0], counts[1])
    assert not np.array_equal(counts[0], Bootstrap(seed=4).batch(0, batch).weight)
    order = rng.permutation(N)
    again = diversity.batch(jnp.asarray(0), Batch.of(X[order], Y[order]).padded(N + 3)).weight
    np.testing.assert_array_equal(again[:N], counts[0][order])


def test_counts_of_a_resample_are_poisson_and_independent_of_each_other() -> None:
    """20,000 rows, integers among them, two members: a chi-squared test of each and of the pairs (fixed data)."""
    x = np.arange(20_000) % 200
    batch = Batch.of(jnp.asarray(np.stack([x, np.arange(20_000) // 200], axis=1)), jnp.asarray(x % 2 == 0))
    counts = np.stack([np.asarray(Bootstrap().batch(k, batch).weight) for k in range(2)]).astype(int)
    expected = stats.poisson.pmf(np.arange(4), 1.0)
    expected = np.append(expected, 1 - expected.sum())
    table = np.zeros((5, 5))
    np.add.at(table, tuple(np.minimum(counts, 4)), 1)
    assert stats.chisquare(table.sum(axis=1), 20_000 * expected).pvalue > 1e-3
    assert stats.chisquare(table.ravel(), 20_000 * np.outer(expected, expected).ravel()).pvalue > 1e-3
    follows = np.corrcoef(counts[0][1:], counts[0][:-1])[0, 1]
    assert abs(follows) < 4 / 20_000**0.5


def test_anchored_members_are_regressions_about_draws_from_the_prior() -> None:
    diversity, batch = Anchors(seed=2), Batch.of(X, Y)
    anchors = [flat(diversity.objective(k, OBJECTIVE, batch).model.prior.belief.mean) for k in range(3)]
    for found, anchor in zip(modes(diversity), anchors, strict=True):
        np.testing.assert_allclose(found, solved(anchor=anchor), atol=1e-7)
    centre = lambda k: lamu.tree.ravel(Anchors().objective(k, OBJECTIVE, batch).model.prior.belief.mean)[0]
    one = jax.jit(jax.vmap(centre))(jnp.arange(300))
    # 900 normals: the deviation of their deviation is 1/√1800, a false alarm once in 15,000 seeds.
    assert abs(one.std() / SCALE - 1) < 4 / 1800**0.5
    assert abs(one.mean()) < 4 * SCALE / 30


def test_seeds_alone_end_at_one_mode_and_say_nothing() -> None:
    for found in modes(Seeds()):
        np.testing.assert_allclose(found, solved(), atol=1e-7)
    assert deep_ensemble().choices.departures[-1] == "members apart"
    assert deep_ensemble(diversity=Bootstrap()).choices.departures[-1] == Bootstrap().departure
    assert all(isinstance(each, Diversity) for each in (Seeds(), Bootstrap(), Anchors()))


@pytest.mark.stress
def test_a_pass_over_the_data_sees_the_members_rows() -> None:
    """Laplace of bootstrapped members: each precision is that of its own counts, in memory and in a stream."""
    algorithm, batch = deep_ensemble(laplace(sgd(0.1), structure=Dense), 2, Bootstrap()), Batch.of(X, Y)
    state = algorithm.init(jax.random.key(0), OBJECTIVE, batch)
    for data in (Arrays.of((X, Y)), lamu.data.Stream([(X[:12], Y[:12]), (X[12:], Y[12:])])):
        belief = algorithm.posterior(jax.random.key(1), state, OBJECTIVE, data, None).belief
        for k, member in enumerate(belief.members):
            counts = np.asarray(Bootstrap().batch(k, batch).weight)
            expected = DESIGN.T * counts @ DESIGN / NOISE**2 + np.eye(3) / SCALE**2
            gaussian = member.factors["network"]
            np.testing.assert_allclose(gaussian.precision.dense(gaussian.mean), expected, rtol=1e-9)


@pytest.mark.parametrize("structure", [pytest.param(Dense, marks=pytest.mark.stress), Diagonal])
def test_a_mixture_of_laplaces_is_weighed_by_their_evidence(structure) -> None:
    """Two runs that stopped in different places: the density is the weighted sum of their Gaussians."""
    algorithm, data = mixture(laplace(sgd(0.1), structure=structure), 2, EvidenceWeights()), Arrays.of((X, Y))
    state = algorithm.init(jax.random.key(0), OBJECTIVE, Batch.of(X, Y))
    posterior = algorithm.posterior(jax.random.key(1), state, OBJECTIVE, data, None)
    belief = posterior.belief.factors["network"]
    assert isinstance(belief, Mixture)
    runs = [jax.tree.map(lambda leaf, k=k: leaf[k], state) for k in range(2)]
    alone = [algorithm.base.posterior(jax.random.key(2), run, OBJECTIVE, data, None) for run in runs]
    evidence = np.array([float(posterior.evidence) for posterior in alone])
    np.testing.assert_allclose(belief.weights, np.exp(evidence - np.logaddexp(*evidence)), rtol=1e-9, atol=1e-300)
    theta = alone[0].mean["network"]
    each = [float(posterior.belief.factors["network"].log_prob(theta)) for posterior in alone]
    expected = np.logaddexp(*(np.asarray(jax.nn.log_softmax(jnp.asarray(evidence))) + each))
    assert float(belief.log_prob(theta)) == pytest.approx(expected, rel=1e-9)
    assert np.all(np.isfinite(posterior.predict(X, samples=4).mean))


@record
class Own:
    """A user's network with noise of its own between two layers."""

    dropout: Dropout = Dropout(0.3)
    linear: bool = static(default=False)
    head: str = static(default="last/*")

    def init(self, key, x, outputs):
        first, last = jax.random.split(key)
        draw = lambda key, *shape: jax.random.normal(key, shape, x.dtype) / shape[0] ** 0.5
        return {"first": {"w": draw(first, x.shape[1], 8)}, "last": {"w": draw(last, 8, outputs)}}, {}

    def apply(self, params, state, x, key, train):
        return self.dropout.apply(jnp.tanh(x @ params["first"]["w"]), key) @ params["last"]["w"], state


def test_mc_dropout_predicts_by_a_users_own_network(tmp_path) -> None:
    """With its noise, one a draw for all rows; repeated, and saved and loaded, the same."""
    model = lamu.Model(Own(), lamu.likelihoods.Gaussian()).standardised(X, Y)
    posterior = lamu.fit(model, (X, Y), mc_dropout(), epochs=2).posterior
    first, again = (posterior.predict(X, samples=16) for _ in range(2))
    assert np.all(np.asarray(first.epistemic) > 0)
    np.testing.assert_array_equal(first.mean, again.mean)
    loaded = lamu.load(posterior.save(tmp_path / "posterior"))
    assert isinstance(loaded, Posterior)
    np.testing.assert_array_equal(loaded.predict(X, samples=16).mean, first.mean)
    plain = replace(posterior, rule=lamu.predictives.Sampled()).predict(X)
    assert np.max(np.abs(plain.mean - first.mean)) > 1e-3


def test_mistakes_say_what_to_do() -> None:
    with pytest.raises(TypeError, match="is not a diversity; give Seeds"):
        deep_ensemble(sgd(), 2, Bootstrap)
    mixed = replace(OBJECTIVE, model=replace(MODEL, prior=lamu.priors.ScaleMixture()))
    with pytest.raises(TypeError, match="none of independent weights"):
        Anchors().objective(0, mixed, Batch.of(X, Y))


SHARDED = """
import jax, numpy as np, lamu
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from lamu.data import Batch
from lamu.objective import Objective
x = np.linspace(-1, 1, 24).reshape(12, 2)
model = lamu.Model(lamu.networks.MLP((5,)), lamu.likelihoods.Gaussian(0.5))
objective, batch = Objective(model, 12.0), Batch.of(x, x[:, 0] ** 2)
algorithm = lamu.algorithms.deep_ensemble(lamu.algorithms.adam(0.1), 4, lamu.algorithms.Bootstrap())
state = algorithm.init(jax.random.key(0), objective, batch)
members = NamedSharding(Mesh(jax.devices(), ("members",)), P("members"))
spread, step = jax.device_put(state, members), jax.jit(algorithm.step)
for t in range(3):
    state, _ = step(jax.random.key(t), state, batch, objective)
    spread, _ = step(jax.random.key(t), spread, batch, objective)
for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(spread)):
    assert len(other.sharding.device_set) == 2 and not other.is_fully_replicated, other.sharding
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
"""


@pytest.mark.stress
def test_members_stay_on_their_devices() -> None:
    """Two devices that XLA makes of one host: the state stays apart, and the members are the same."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", SHARDED], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
