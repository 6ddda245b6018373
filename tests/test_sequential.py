"""Yesterday's posterior is today's prior: streams, shards and deletions, exact where the model is conjugate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import tree
from lamu.algorithms import adam, conjugate, deep_ensemble, ivon, laplace
from lamu.data import Batch
from lamu.families import Beta, Gamma, Gaussian, NormalGamma, Point
from lamu.model import Model
from lamu.objective import BatchLoss, Objective, Weights
from lamu.observations import Bernoulli, Normal, Poisson
from lamu.operators import Dense, Diagonal, Scalar
from lamu.priors import Belief, gaussian_belief
from lamu.priors import Normal as NormalPrior
from lamu.sequential import merge, remove

rng = np.random.default_rng(2)
X = rng.normal(size=(24, 3)) @ np.array([[1.0, 0.5, 0.0], [0.0, 0.7, 0.2], [0.0, 0.0, 1.0]])
Y = X @ np.array([1.0, -2.0, 0.5]) + 0.4 * rng.normal(size=24)
CLASSES = (Y > 0).astype(int)
LINEAR = Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.4), NormalPrior(1.3))
LOGISTIC = Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli(), NormalPrior(1.3))
COUNTS = Model.conjugate(Normal(), NormalGamma(0.3, 0.8, 1.7, 1.2))


def regression(model: Model, rows: Any, **options: Any) -> Any:
    return lamu.fit(model, (X[rows], Y[rows]), conjugate(), batch_size=8, **options).posterior


def numbers(model: Model, rows: Any, **options: Any) -> Any:
    return lamu.fit(model, {"y": Y[rows]}, conjugate(), batch_size=8, **options).posterior


WAYS = {"linear regression": (LINEAR, regression), "normal numbers": (COUNTS, numbers)}


def assert_equal(one: Any, other: Any, tolerance: float = 1e-10) -> None:
    assert jax.tree.structure(one.belief) == jax.tree.structure(other.belief)
    for a, b in zip(jax.tree.leaves(one.belief), jax.tree.leaves(other.belief), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(one.evidence, other.evidence, rtol=1e-9)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_streams_in_any_order_give_the_batch_posterior(way: str, temperature: float) -> None:
    """At a temperature too, where the old belief counts to the power T; the evidences add up at T = 1."""
    model, fit = WAYS[way]
    whole = fit(model, np.arange(24), temperature=temperature)
    for parts in (np.split(np.arange(24), 3), np.split(rng.permutation(24), 3)):
        now, evidence = model, 0.0
        for part in parts:
            posterior = fit(now, part, temperature=temperature)
            now, evidence = posterior.model.with_prior(posterior, temperature), evidence + posterior.evidence
        assert_equal(replace(posterior, evidence=whole.evidence), whole)
        if temperature == 1.0:
            np.testing.assert_allclose(evidence, whole.evidence, rtol=1e-10)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_shards_merged_equal_all_data_and_deletion_equals_refitting(way: str, temperature: float) -> None:
    model, fit = WAYS[way]
    parts = np.split(np.arange(24), 3)
    shards = [fit(model, part, temperature=temperature) for part in parts]
    whole = fit(model, np.arange(24), temperature=temperature)
    assert_equal(merge(shards, temperature=temperature), whole)
    data = {"y": Y[parts[1]]} if way == "normal numbers" else (X[parts[1]], Y[parts[1]])
    left = remove(whole, data, temperature=temperature)
    assert_equal(left, fit(model, np.concatenate([parts[0], parts[2]]), temperature=temperature))


def test_a_merge_takes_each_shards_own_prior_away() -> None:
    """Shards of a divided prior, and one prior for the whole."""
    third = Belief(Gaussian(np_zeros(), Scalar(1 / 3 / 1.3**2)))
    shards = [regression(replace(LINEAR, prior=third), part) for part in np.split(np.arange(24), 3)]
    assert_equal(merge(shards, prior=LINEAR.prior), regression(LINEAR, np.arange(24)))
    mixed = [shards[0], regression(LINEAR, np.arange(8))]
    with pytest.raises(ValueError, match="different priors"):
        merge(mixed)


def np_zeros() -> Any:
    params, _ = LINEAR.init(jax.random.key(0), Batch.of(X, Y))
    return tree.zeros_like(params["network"])


def test_a_dense_belief_is_a_prior_and_a_diagonal_one_the_same_as_its_weights() -> None:
    """Its density is the Gaussian's own; `gaussian` speaks only where weights are independent."""
    zeros = np_zeros()
    root = np.tril(rng.normal(size=(4, 4))) + 2 * np.eye(4)
    mean = tree.ravel(zeros)[1](jnp.arange(4.0))
    dense = Belief(Gaussian(mean, Dense(jnp.asarray(root @ root.T))))
    theta = jax.tree.map(lambda leaf: leaf + 0.3, zeros)
    np.testing.assert_allclose(dense.log_prob(theta), dense.belief.log_prob(theta), rtol=1e-12)
    assert dense.gaussian(zeros) is None
    assert gaussian_belief(dense, zeros).precision.matrix.shape == (4, 4)
    diagonal = Belief(Gaussian(mean, Diagonal(jax.tree.map(lambda leaf: jnp.full_like(leaf, 4.0), mean))))
    np.testing.assert_allclose(diagonal.log_prob(zeros), NormalPrior(0.5).log_prob(mean), rtol=1e-12)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), theta)
    assert dense.log_prob(single).dtype == jnp.float32
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(diagonal.gaussian(single)))


def test_a_gaussian_prior_enters_rules_exactly_and_runs_start_at_its_mean() -> None:
    first = lamu.fit(LOGISTIC, (X[:12], CLASSES[:12]), ivon(0.1), steps=30).posterior
    model = LOGISTIC.with_prior(first)
    belief = first.belief.factors["network"]
    objective = Objective(model, 12.0)
    state = ivon(0.1).init(jax.random.key(0), objective, Batch.of(X[12:], CLASSES[12:]))
    np.testing.assert_array_equal(tree.ravel(state.mean)[0], tree.ravel(belief.mean)[0])
    mean, delta = Weights().conjugate_prior(objective, state.mean)
    np.testing.assert_allclose(tree.ravel(delta)[0] * 12, tree.ravel(belief.precision.values)[0], rtol=1e-12)
    np.testing.assert_array_equal(tree.ravel(mean)[0], tree.ravel(belief.mean)[0])
    # A second run must not have been given the first one's arrays away.
    for _ in range(2):
        second = lamu.fit(model, (X[12:], CLASSES[12:]), ivon(0.1), steps=30).posterior
    assert np.all(np.isfinite(tree.ravel(second.mean["network"])[0]))


def test_learned_dispersions_and_frozen_weights_carry_over() -> None:
    learned = Model(lamu.networks.MLP((3,), "tanh"), lamu.likelihoods.Gaussian())
    params, _ = learned.init(jax.random.key(0), Batch.of(X, Y))
    frozen = learned.freeze(params, "layers/0/*")
    posterior = lamu.fit(frozen, (X, Y), ivon(0.1), steps=20).posterior
    again, _ = posterior.model.with_prior(posterior).init(jax.random.key(5), Batch.of(X, Y))
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(posterior.mean), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="frozen"):
        learned.with_prior(posterior)


def test_what_is_no_prior_is_refused_in_one_sentence(tmp_path: Any) -> None:
    logistic = lamu.fit(LOGISTIC, (X, CLASSES), ivon(0.1), steps=2).posterior
    point = lamu.fit(LOGISTIC, (X, CLASSES), adam(0.1), steps=2).posterior
    several = lamu.fit(LOGISTIC, (X, CLASSES), deep_ensemble(ivon(0.1), members=2), steps=2).posterior
    scaled = LOGISTIC.standardised(X, CLASSES)
    shifted = replace(scaled, network=replace(scaled.network, shift=scaled.network.shift + 1))
    of_scaled = lamu.fit(scaled, (X, CLASSES), ivon(0.1), steps=2).posterior
    for error, words, refused in (
        (TypeError, "certain of every weight", lambda: LOGISTIC.with_prior(point)),
        (TypeError, "several modes", lambda: LOGISTIC.with_prior(several)),
        (ValueError, "about the likelihood", lambda: LINEAR.with_prior(logistic)),
        (ValueError, "about the network", lambda: LOGISTIC.with_prior(of_scaled)),
        (ValueError, "other constants", lambda: shifted.with_prior(of_scaled)),
        (TypeError, "certain", lambda: Belief(Point({"w": jnp.zeros(1)}))),
        (TypeError, "conjugate to Beta", lambda: Model.conjugate(Bernoulli(), Gamma(1.0, 1.0))),
        (TypeError, "nothing to standardise", lambda: COUNTS.standardised(X, Y)),
        (ValueError, "targets alone", lambda: lamu.fit(LOGISTIC, {"y": CLASSES}, adam(0.1), steps=1)),
        (ValueError, "of shape", lambda: lamu.fit(LOGISTIC.with_prior(logistic), (X[:, :2], CLASSES), ivon(), steps=1)),
        (ValueError, "at least one", lambda: merge([])),
        (TypeError, "cannot be added", lambda: merge([several])),
        (ValueError, "about the likelihood", lambda: merge([logistic, regression(LINEAR, np.arange(8))])),
    ):
        with pytest.raises(error, match=words) as caught:
            refused()
        assert "\n" not in str(caught.value)
    assert LOGISTIC.standardised(X, CLASSES).with_prior(of_scaled).network.base == LOGISTIC.network
    saved = lamu.load(LOGISTIC.with_prior(logistic) and logistic.save(tmp_path / "posterior"))
    assert isinstance(LOGISTIC.with_prior(saved).prior, Belief)


def test_subtractions_that_leave_nothing_name_the_data_or_the_leaf() -> None:
    counts = Model.conjugate(Poisson(), Gamma(1.0, 1.0))
    three = lamu.fit(counts, {"y": [2, 4, 3]}, conjugate()).posterior
    with pytest.raises(ValueError, match=r"what is left without these 5 rows is no belief .*Gamma.*shape"):
        remove(three, {"y": [9, 9, 9, 9, 9]})
    with pytest.raises(ValueError, match="least eigenvalue would be -"):
        remove(regression(LINEAR, np.arange(4)), (10 * X, Y))
    diagonal = lamu.fit(LOGISTIC, (X, CLASSES), laplace(adam(0.1), structure=Diagonal), steps=20).posterior
    with pytest.raises(ValueError, match="leaf 'layers/0/"):
        remove(diagonal, (100 * X, CLASSES))
    shard = regression(LINEAR, np.arange(2))
    doubtful = replace(shard, model=replace(LINEAR, prior=NormalPrior(0.01)))
    with pytest.raises(ValueError, match="sum of these posteriors without their priors"):
        merge([doubtful], prior=LINEAR.prior)


def test_removal_from_a_network_follows_the_refit() -> None:
    """Laplace on logistic regression: one step leaves a small part of the way from the old mean to the refit's."""
    import optax

    from lamu.algorithms import map_estimate

    algorithm, kept = laplace(map_estimate(optax.lbfgs()), structure=Dense), np.arange(4, 24)
    whole = lamu.fit(LOGISTIC, (X, CLASSES), algorithm, steps=40, batch_size=24).posterior
    refit = lamu.fit(LOGISTIC, (X[kept], CLASSES[kept]), algorithm, steps=40, batch_size=24).posterior
    left = remove(whole, (X[:4], CLASSES[:4]))
    assert left.evidence is None
    means = [tree.ravel(posterior.mean["network"])[0] for posterior in (whole, left, refit)]
    assert np.linalg.norm(means[1] - means[2]) < 0.3 * np.linalg.norm(means[0] - means[2])


def test_a_dense_prior_enters_laplace_exactly() -> None:
    """A belief of correlated weights, continued by another algorithm: conjugate's posterior of all rows."""
    import optax

    from lamu.algorithms import map_estimate

    model = LINEAR.with_prior(regression(LINEAR, np.arange(12)))
    expected = regression(LINEAR, np.arange(24)).belief.factors["network"]
    for structure, precision in ((Dense, lambda S: S), (Diagonal, np.diagonal)):
        algorithm = laplace(map_estimate(optax.lbfgs()), structure=structure)
        found = lamu.fit(model, (X[12:], Y[12:]), algorithm, steps=40, batch_size=12).posterior.belief.factors[
            "network"
        ]
        np.testing.assert_allclose(tree.ravel(found.mean)[0], tree.ravel(expected.mean)[0], rtol=1e-6)
        entries = tree.ravel(found.precision)[0].reshape(precision(expected.precision.matrix).shape)
        np.testing.assert_allclose(entries, precision(expected.precision.matrix), rtol=1e-10)


def test_a_run_starts_where_it_is_told() -> None:
    params, _ = LOGISTIC.init(jax.random.key(3), Batch.of(X, CLASSES))
    model = LOGISTIC.starting_at(params)
    found = lamu.fit(model, (X, CLASSES), adam(1e-12), steps=1).posterior.mean
    np.testing.assert_allclose(tree.ravel(found)[0], tree.ravel(params)[0], atol=1e-10)


def test_beliefs_about_coins_stream_by_hand() -> None:
    model = Model.conjugate(Bernoulli(), Beta(1.0, 1.0))
    for flips in ([1, 1, 0], [0, 1]):
        model = model.with_prior(lamu.fit(model, {"y": flips}, conjugate()).posterior)
    assert (float(model.prior.belief.alpha), float(model.prior.belief.beta)) == (4.0, 3.0)


def test_a_belief_about_some_weights_leaves_the_others_their_prior() -> None:
    """Binary kernels beside real biases."""
    from lamu.families import Binary

    half = {"bias": None, "kernel": jnp.array([0.3, -1.0])}
    prior = Belief(Binary(half), NormalPrior(2.0))
    theta = {"bias": jnp.array([0.7]), "kernel": jnp.array([1.0, -1.0])}
    biases = NormalPrior(2.0).log_prob({"bias": theta["bias"], "kernel": None})
    expected = Binary(half["kernel"]).log_prob(theta["kernel"]) + biases
    np.testing.assert_allclose(prior.log_prob(theta), expected, rtol=1e-12)
    np.testing.assert_allclose(prior.log_prob({"bias": theta["bias"], "kernel": None}), biases, rtol=1e-12)
    drawn = prior.sample(jax.random.key(0), theta)
    assert set(np.abs(drawn["kernel"])) == {1.0}
    assert drawn["bias"].shape == (1,)


def test_a_dense_prior_is_no_diagonal_curvature() -> None:
    """One product with ones would give the sums of its rows: refused, and not silently wrong."""
    mean = {"w": jnp.zeros(2)}
    prior = Belief(Gaussian(mean, Dense(jnp.array([[2.0, 1.0], [1.0, 3.0]]))))
    objective = Objective(replace(LOGISTIC, prior=prior), 4.0)
    loss = BatchLoss(objective, Batch.of(X[:4], CLASSES[:4]), {}, Weights(), {})
    with pytest.raises(TypeError, match="a Dense precision has no diagonal curvature"):
        loss.prior_curvature(mean)
