"""Yesterday's posterior is today's prior: streams, shards and deletions, exact where the model is conjugate."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import tree
from lamu.algorithms import adam, conjugate, deep_ensemble, extended_kalman, ivon, kalman_update, laplace
from lamu.algorithms.post_hoc import mode
from lamu.combine import merge, remove
from lamu.data import Batch
from lamu.families import Beta, Gamma, Gaussian, NormalGamma, Point
from lamu.families.points import DispersionMixture
from lamu.model import Model
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.observations import Bernoulli, Normal, Poisson
from lamu.operators import Dense, Diagonal, Scalar
from lamu.priors import Belief, gaussian_belief, independent_normal
from lamu.priors import Normal as NormalPrior
from lamu.record import decode, encode

rng = np.random.default_rng(2)
X = rng.normal(size=(24, 3)) @ np.array([[1.0, 0.5, 0.0], [0.0, 0.7, 0.2], [0.0, 0.0, 1.0]])
Y = X @ np.array([1.0, -2.0, 0.5]) + 0.4 * rng.normal(size=24)
CLASSES = (Y > 0).astype(int)
LINEAR = Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.4), NormalPrior(1.3))
LOGISTIC = Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli(), NormalPrior(1.3))
COUNTS = lamu.ConjugateModel(Normal(), NormalGamma(0.3, 0.8, 1.7, 1.2))


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
            now, evidence = posterior.model.with_prior(posterior), evidence + posterior.evidence
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
    assert_equal(merge(shards), whole)
    data = {"y": Y[parts[1]]} if way == "normal numbers" else (X[parts[1]], Y[parts[1]])
    left = remove(whole, data)
    assert_equal(left, fit(model, np.concatenate([parts[0], parts[2]]), temperature=temperature))


def test_a_temperature_is_carried_read_and_may_be_overruled(tmp_path: Any) -> None:
    """From a fit through merges, removals, files and ensembles; a file that lacks it is refused."""
    half, third = (regression(LINEAR, np.arange(12), temperature=t) for t in (0.5, 0.3))
    rest = regression(LINEAR, np.arange(12, 24), temperature=0.5)
    whole = regression(LINEAR, np.arange(24), temperature=0.5)
    merged = merge([half, rest])
    assert merged.temperature == remove(merged, (X[:12], Y[:12])).temperature == 0.5
    assert_equal(remove(merged, (X[:12], Y[:12])), rest)
    with pytest.raises(ValueError, match=r"made at the temperatures 0.5 and 0.3"):
        merge([half, third])
    assert lamu.load(whole.save(tmp_path / "posterior")).temperature == 0.5
    arrays: dict[str, Any] = {}
    content = encode(whole, arrays, "posterior")
    del content["fields"]["temperature"]
    with pytest.raises(ValueError, match="lacks its field 'temperature'"):
        decode(content, arrays)
    old = replace(whole, temperature=1.0)
    said = remove(old, (X[:12], Y[:12]), temperature=0.5)
    assert_equal(said, rest)
    assert said.temperature == 0.5
    precision = LINEAR.with_prior(old, 0.5).prior.belief.precision.matrix
    np.testing.assert_allclose(precision, whole.belief.factors["network"].precision.matrix * 0.5, rtol=1e-12)
    several = deep_ensemble(ivon(0.1), members=2)
    assert lamu.fit(LOGISTIC, (X, CLASSES), several, steps=2, temperature=0.5).posterior.temperature == 0.5
    with pytest.raises(ValueError, match=r"temperature 0.5.*no log marginal likelihood"):
        lamu.composition.average([whole, old])


def test_a_run_at_another_temperature_than_that_of_its_prior_is_told(caplog: Any) -> None:
    half = regression(LINEAR, np.arange(12), temperature=0.5)
    for temperature, told in ((0.5, False), (1.0, True)):
        caplog.clear()
        with caplog.at_level("WARNING", "lamu"):
            regression(LINEAR.with_prior(half), np.arange(12, 24), temperature=temperature)
        assert ("give temperature=0.5 to go on" in caplog.text) is told
    fit = lamu.fit(LINEAR, (X, Y), conjugate())
    with pytest.raises(TypeError, match=r"this is a Fit; of a Fit give fit.posterior"):
        LINEAR.with_prior(fit)


def test_an_algorithm_of_ones_own_need_not_say_its_temperature() -> None:
    from lamu.protocol import Algorithm

    class Silent:
        """Conjugate Bayes that tells nobody its temperature."""

        def __init__(self, of: Algorithm) -> None:
            self.of, self.traits, self.choices = of, of.traits, of.choices
            self.init, self.step = of.init, of.step

        def posterior(self, *arguments: Any) -> Any:
            return replace(self.of.posterior(*arguments), temperature=1.0)

    found = lamu.fit(LINEAR, (X, Y), Silent(conjugate()), batch_size=8, temperature=0.5).posterior
    assert found.temperature == 0.5


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
    assert independent_normal(dense, zeros) is None
    assert gaussian_belief(dense, zeros).precision.matrix.shape == (4, 4)
    diagonal = Belief(Gaussian(mean, Diagonal(jax.tree.map(lambda leaf: jnp.full_like(leaf, 4.0), mean))))
    np.testing.assert_allclose(diagonal.log_prob(zeros), NormalPrior(0.5).log_prob(mean), rtol=1e-12)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), theta)
    assert dense.log_prob(single).dtype == jnp.float32
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(diagonal.gaussian(single)))


@pytest.mark.stress
def test_a_gaussian_prior_enters_rules_exactly_and_runs_start_at_its_mean() -> None:
    first = lamu.fit(LOGISTIC, (X[:12], CLASSES[:12]), ivon(0.1), steps=30).posterior
    model = LOGISTIC.with_prior(first)
    belief = first.belief.factors["network"]
    objective = Objective(model, 12.0)
    state = ivon(0.1).init(jax.random.key(0), objective, Batch.of(X[12:], CLASSES[12:]))
    np.testing.assert_array_equal(tree.ravel(state.mean)[0], tree.ravel(belief.mean)[0])
    mean, delta = NetworkParameters().conjugate_prior(objective, state.mean)
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


@pytest.mark.parametrize("algorithm", [laplace(), ivon()])
def test_the_noise_of_earlier_rows_is_known(algorithm: Any, tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0]) + 2.0 * rng.normal(size=80)).astype(np.float32)
    model = Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian()).standardised(x, y)
    at_once, first, second = (
        lamu.fit(model, rows, algorithm, seed=0).posterior for rows in ((x, y), (x[:77], y[:77]), (x[77:], y[77:]))
    )
    first.save(tmp_path / "first")
    first = lamu.load(tmp_path / "first")
    assert (first.data_size, second.data_size) == (77, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", lamu.data.FewRows)
        both = lamu.fit(first.model.with_prior(first), (x[77:], y[77:]), algorithm).posterior
    noise = lambda posterior: float(np.asarray(posterior.mean["likelihood"]["log_scale"])[0])
    assert abs(noise(both) - noise(at_once)) < 0.02 < abs(noise(second) - noise(at_once))
    if both.evidence is not None:
        np.testing.assert_allclose(first.evidence + both.evidence, at_once.evidence, atol=0.05)
    # The noise of a merge is that of the rows, of which one shard has hardly any.
    merged = lamu.merge([first, second])
    np.testing.assert_allclose(noise(merged), (77 * noise(first) + 3 * noise(second)) / 80, rtol=1e-5)
    assert merged.data_size == 80
    assert lamu.remove(merged, (x[:7], y[:7])).data_size == 73
    # What two fits knew of the noise is known to the third.
    third = both.model.with_prior(both)
    np.testing.assert_allclose(tree.ravel(third.prior.dispersions.precision.values)[0], 160, rtol=0.1)


@pytest.mark.parametrize("probes", [False, True])
def test_a_prior_that_is_not_diagonal_counts_its_weights(probes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # The number of well-determined weights was that of the prior's diagonal: noise .176 for .202, and a run of no
    # epochs that had not learned the new rows was 0 deviations from the mode, for 3.5.
    if probes:
        monkeypatch.setattr(mode, "_MOST_COLUMNS", 0)
    rng, features = np.random.default_rng(0), 8 + probes  # which share no program
    mixed = rng.normal(size=(120, features)) @ (np.eye(features) + 2.0) / 8
    x, algorithm = mixed.astype(np.float32), laplace(structure=Dense)
    y = (x @ rng.normal(size=features) + 0.2 * rng.normal(size=120)).astype(np.float32)

    def updated(y: Any, likelihood: Any, epochs: int) -> Any:
        model = Model(lamu.networks.Linear(), likelihood)
        first = lamu.fit(model, (x[:60], y[:60]), algorithm, epochs=5).posterior
        return lamu.fit(first.model.with_prior(first), (x[60:], y[60:]), algorithm, epochs=epochs).posterior

    noise = lambda posterior: float(np.sqrt(posterior.predict(x[:1]).aleatoric[0]))
    at_once = lamu.fit(Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian()), (x, y), algorithm, epochs=5)
    assert abs(noise(updated(y, lamu.likelihoods.Gaussian(), 5)) / noise(at_once.posterior) - 1) < 0.05
    y[60:] += 0.3
    kept, learned = (updated(y, lamu.likelihoods.Gaussian(0.2), epochs) for epochs in (0, 5))
    one, other = kept.predict(x[60:]), learned.predict(x[60:])
    distance = np.sqrt(np.sum((one.mean - other.mean) ** 2) / np.sum(one.epistemic))
    np.testing.assert_allclose(kept.convergence.shift, distance, rtol=0.2 if probes else 0.01)


def test_dispersions_that_were_integrated_over_are_a_prior() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 1))
    y = rng.gamma(2.0, np.exp(0.5 * x[:, 0]) / 2.0)
    model = Model(lamu.networks.Linear(), lamu.likelihoods.Gamma())
    at_once, first = (lamu.fit(model, rows, laplace()).posterior for rows in ((x, y), (x[:84], y[:84])))
    assert isinstance(first.belief, DispersionMixture)
    # By draws of the mixture.
    weights, dispersions = first.belief.matched()
    draws = jax.vmap(first.belief.sample)(jax.random.split(jax.random.key(0), 20_000))
    flat = np.stack([leaf.reshape(20_000) for leaf in jax.tree.leaves(draws["network"])])
    np.testing.assert_allclose(np.linalg.inv(weights.precision.matrix), np.cov(flat), rtol=0.05, atol=1e-4)
    np.testing.assert_allclose(np.std(draws["likelihood"]["log_shape"]), dispersions.std["log_shape"][0], rtol=0.03)
    both = lamu.fit(model.with_prior(first), (x[84:], y[84:]), laplace()).posterior
    for one, other in zip(jax.tree.leaves(both.mean), jax.tree.leaves(at_once.mean), strict=True):
        np.testing.assert_allclose(one, other, atol=0.03)
    for one, other in zip(jax.tree.leaves(both.std), jax.tree.leaves(at_once.std), strict=True):
        np.testing.assert_allclose(one, other, rtol=0.1)


def test_later_rows_need_not_have_every_class() -> None:
    ordinal = Model(lamu.networks.Linear(), lamu.likelihoods.Ordinal(3))
    y = np.digitize(Y, [-1.0, 1.0])
    first = lamu.fit(ordinal, (X, y), ivon(), steps=20).posterior
    seen = y > 0
    with pytest.raises(ValueError, match="no row has the category 0"):
        lamu.fit(ordinal, (X[seen], y[seen]), ivon(), steps=20)
    later = lamu.fit(ordinal.with_prior(first), (X[seen], y[seen]), ivon(), steps=20).posterior
    assert np.all(np.isfinite(tree.ravel(later.mean)[0]))


def test_a_belief_about_weights_and_noise_together_takes_rows_in_closed_form() -> None:
    posterior = lamu.regression(X, Y)
    for refused in (lambda: posterior.model.with_prior(posterior), lambda: lamu.merge([posterior, posterior])):
        with pytest.raises(TypeError, match=r"lamu.absorb\(posterior, data\)"):
            refused()


@pytest.mark.stress
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
        (TypeError, "conjugate to Beta", lambda: lamu.ConjugateModel(Bernoulli(), Gamma(1.0, 1.0))),
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
    counts = lamu.ConjugateModel(Poisson(), Gamma(1.0, 1.0))
    three = lamu.fit(counts, {"y": [2, 4, 3]}, conjugate()).posterior
    with pytest.raises(ValueError, match=r"what is left without these 5 rows is not a belief .*Gamma.*shape"):
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
    model = lamu.ConjugateModel(Bernoulli(), Beta(1.0, 1.0))
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
    loss = BatchLoss(objective, Batch.of(X[:4], CLASSES[:4]), {}, NetworkParameters(), {})
    with pytest.raises(TypeError, match="a Dense precision has no diagonal curvature"):
        loss.prior_curvature(mean)


@pytest.mark.stress
def test_networks_from_different_starts_are_no_sum() -> None:
    """Measured on digits, two halves, MLP(64, 64): from their own starts the merged accuracy is .86, from one .98."""
    hidden = Model(lamu.networks.MLP((3,), "tanh"), lamu.likelihoods.Bernoulli())
    halves = [(X[:12], CLASSES[:12]), (X[12:], CLASSES[12:])]

    def shards(model: Model, seeds: Any, algorithm: Any) -> Any:
        runs = zip(halves, seeds, strict=True)
        return [lamu.fit(model, half, algorithm, steps=3, seed=seed).posterior for half, seed in runs]

    with pytest.raises(
        ValueError, match=r"posteriors 0 and 1 began at different weights of MLP.*starting_at"
    ) as caught:
        merge(shards(hidden, (0, 1), ivon(0.1)))
    assert "\n" not in str(caught.value)
    params, _ = hidden.init(jax.random.key(4), Batch.of(*halves[0]))
    elsewhere, _ = hidden.init(jax.random.key(5), Batch.of(*halves[0]))
    at, other = hidden.starting_at(params), hidden.starting_at(elsewhere)
    one, two, three = shards(at, (0, 1), ivon(0.1)), shards(hidden, (7, 7), ivon(0.1)), shards(other, (0, 1), ivon(0.1))
    for posteriors in (one, two):
        assert np.all(np.isfinite(tree.ravel(merge(posteriors).mean["network"])[0]))
    for mixed in ([one[0], three[1]], [one[0], two[1]]):
        with pytest.raises(ValueError, match="began at different weights"):
            merge(mixed)
    # One mode: a linear network, and a head above the same frozen features.
    merge(shards(LOGISTIC, (0, 1), ivon(0.1)))
    merge(shards(hidden.freeze(params, "layers/0/*"), (0, 1), ivon(0.1)))
    with pytest.raises(ValueError, match="began at different weights"):
        merge(shards(hidden.freeze(params, "layers/1/*"), (0, 1), ivon(0.1)))


def test_a_network_that_arrives_trained_starts_where_it_is() -> None:
    params = {"w": jnp.ones((3, 2)), "v": jnp.ones((2, 1))}
    network = lamu.networks.Trained(lambda theta, x: jnp.tanh(x @ theta["w"]) @ theta["v"], params)
    model = Model(network, lamu.likelihoods.Bernoulli())
    runs = ((X[:12], CLASSES[:12], 0), (X[12:], CLASSES[12:], 1))
    merge([lamu.fit(model, (x, y), ivon(0.1), steps=2, seed=seed).posterior for x, y, seed in runs])


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_dense_prior_enters_the_rule_exactly(temperature: float) -> None:
    """Von's own posterior is its next prior: on a linear model in two parts what conjugate() has of all rows."""
    from lamu.algorithms import von
    from lamu.expectations import Exact, Quadrature

    options: dict[str, Any] = {"steps": 2, "batch_size": 12, "temperature": temperature}
    algorithm = von(1.0, Dense, Exact())
    first = lamu.fit(LINEAR, (X[:12], Y[:12]), algorithm, **options).posterior
    both = lamu.fit(LINEAR.with_prior(first), (X[12:], Y[12:]), algorithm, **options).posterior
    expected = regression(LINEAR, np.arange(24), temperature=temperature).belief.factors["network"]
    found = both.belief.factors["network"]
    np.testing.assert_allclose(found.precision.matrix, expected.precision.matrix, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(tree.ravel(found.mean)[0], tree.ravel(expected.mean)[0], rtol=1e-9, atol=1e-9)
    # Logistic, as in the issue: at the fixed point S = E[∇²ℓ] + S₀ and E[∇ℓ] = 0, both over T.
    algorithm = von(0.5, Dense, Quadrature())
    options["steps"] = 60
    first = lamu.fit(LOGISTIC, (X[:12], CLASSES[:12]), algorithm, **options).posterior
    prior = first.belief.factors["network"]
    q = lamu.fit(LOGISTIC.with_prior(first), (X[12:], CLASSES[12:]), algorithm, **options).posterior
    q = q.belief.factors["network"]
    design = np.hstack([np.ones((12, 1)), X[12:]])  # the bias comes first in the order of leaves
    z, w = np.polynomial.hermite_e.hermegauss(60)
    mean, covariance = np.asarray(tree.ravel(q.mean)[0]), np.linalg.inv(q.precision.matrix)
    f = (design @ mean)[:, None] + np.sqrt(np.einsum("ij,jk,ik->i", design, covariance, design))[:, None] * z
    p, w = 1 / (1 + np.exp(-f)), w / w.sum()
    hessian = design.T @ (((p * (1 - p)) @ w)[:, None] * design) / temperature
    slope = design.T @ (p @ w - CLASSES[12:]) / temperature
    np.testing.assert_allclose(q.precision.matrix, hessian + prior.precision.matrix, rtol=1e-5, atol=1e-5)
    pull = prior.precision.matrix @ (mean - np.asarray(tree.ravel(prior.mean)[0]))
    np.testing.assert_allclose(slope + pull, np.zeros(4), atol=1e-5)


@pytest.mark.stress
def test_a_dense_prior_enters_mean_field_with_its_diagonal_and_its_whole_pull() -> None:
    """The closest independent Gaussian to N(m, S⁻¹) has the mean m and the precisions S_jj: of all rows, in parts."""
    from lamu.algorithms import noisy_kfac, slang, vogn, von
    from lamu.expectations import Exact

    model = LINEAR.with_prior(regression(LINEAR, np.arange(12)))
    expected = regression(LINEAR, np.arange(24)).belief.factors["network"]
    part, options = (X[12:], Y[12:]), {"batch_size": 12}
    found = lamu.fit(model, part, von(0.3, Diagonal, Exact()), steps=200, **options).posterior.belief.factors["network"]
    np.testing.assert_allclose(tree.ravel(found.mean)[0], tree.ravel(expected.mean)[0], rtol=1e-6)
    np.testing.assert_allclose(tree.ravel(found.precision.values)[0], np.diagonal(expected.precision.matrix), rtol=1e-8)
    for algorithm in (ivon(0.02), vogn(0.02)):
        found = lamu.fit(model, part, algorithm, steps=400, **options).posterior.belief.factors["network"]
        away = np.asarray(tree.ravel(found.mean)[0] - tree.ravel(expected.mean)[0])
        assert np.all(np.abs(away) < 1.5 / np.sqrt(np.diagonal(expected.precision.matrix))), type(algorithm)
    for algorithm in (slang(0.1), noisy_kfac(0.1)):
        with pytest.raises(TypeError, match=r"cannot take in a prior of Dense precision; use von") as caught:
            lamu.fit(model, part, algorithm, steps=2, **options)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("batch_size", "temperature"), [(1, 1.0), (5, 0.5)])
def test_extended_kalman_filter_of_a_linear_model_is_the_posterior(batch_size: int, temperature: float) -> None:
    """Row by row and batch by batch, with a data set that counts twice, and weights of rows."""
    weight = np.linspace(0.5, 2.0, 24)
    data, options = (X, Y, weight), {"temperature": temperature, "data_size": 48.0}
    rows = {"x": data[0], "y": data[1], "weight": data[2]}
    found = lamu.fit(LINEAR, rows, extended_kalman(), batch_size=batch_size, **options).posterior
    exact = lamu.fit(LINEAR, rows, conjugate(), batch_size=24, **options).posterior
    for a, b in zip(jax.tree.leaves(found.belief), jax.tree.leaves(exact.belief), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


def test_extended_kalman_filter_takes_up_where_it_ended() -> None:
    """Two halves one after the other are one run, of a logistic regression too."""
    first = lamu.fit(LOGISTIC, (X[:12], CLASSES[:12]), extended_kalman(), batch_size=3).posterior
    second = lamu.fit(LOGISTIC.with_prior(first), (X[12:], CLASSES[12:]), extended_kalman(), batch_size=3).posterior
    whole = lamu.fit(LOGISTIC, (X, CLASSES), extended_kalman(), batch_size=3).posterior
    for a, b in zip(jax.tree.leaves(second.belief), jax.tree.leaves(whole.belief), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


@pytest.mark.stress
def test_extended_kalman_filter_forgets_what_drifts() -> None:
    """With a drift the last rows count more: here they have the opposite sign."""
    y = np.concatenate([Y[:12], -Y[12:]])
    steady, drifting = (
        lamu.fit(LINEAR, (X, y), extended_kalman(drift), batch_size=1).posterior.mean["network"] for drift in (0.0, 0.5)
    )
    goal = lamu.fit(LINEAR, (X[12:], y[12:]), conjugate()).posterior.mean["network"]
    away = lambda mean: float(jnp.linalg.norm(tree.ravel(tree.add(mean, goal, -1.0))[0]))
    assert away(drifting) < 0.2 * away(steady)


def test_kalman_update_is_the_inverse_of_the_sum() -> None:
    root = np.random.default_rng(3).normal(size=(4, 6))
    P = np.cov(np.random.default_rng(4).normal(size=(6, 40)))
    expected = np.linalg.inv(np.linalg.inv(P) + root.T @ root)
    np.testing.assert_allclose(kalman_update(jnp.asarray(P), jnp.asarray(root)), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("model", "drift", "error", "words"),
    [
        (LINEAR, -1.0, ValueError, "drift=-1.0 is not a variance"),
        (Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian()), 0.0, TypeError, "needs a known noise"),
        (replace(LINEAR, prior=lamu.priors.Laplace(1.0)), 0.0, TypeError, "needs a Gaussian prior, not Laplace"),
        (lamu.LogDensity(lambda theta: -(theta**2), jnp.zeros(())), 0.0, TypeError, "filters a network's weights"),
    ],
)
def test_extended_kalman_filter_refuses(model: Any, drift: float, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        lamu.fit(model, (X, Y) if isinstance(model, Model) else None, extended_kalman(drift))
