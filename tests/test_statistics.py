"""What becomes of batch statistics in a posterior of weights that arrived trained."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.batch_statistics import BatchStatistics, Frozen, Recomputed, RecomputedPerDraw, require_choice
from lamu.networks import MLP, BatchNorm
from lamu.predictives.sampled import _draws

rng = np.random.default_rng(0)
X = rng.normal(2.0, 3.0, size=(60, 4))
Y = (X[:, 0] > 2).astype(int) + (X[:, 1] > 2)
NETWORK = MLP((5,), normalise=BatchNorm())


@cache
def trained() -> Any:
    model = lamu.Model(NETWORK, lamu.likelihoods.Categorical(3))
    return lamu.fit(model, (X, Y), lamu.algorithms.adam(0.05), epochs=10, batch_size=20).posterior


def after(choice: Any, state: Any = None) -> Any:
    model = trained().model.starting_at(trained().mean, trained().network_state if state is None else state)
    return lamu.fit(model, (X, Y), lamu.algorithms.laplace(), epochs=0, statistics=choice).posterior


def trained_again() -> Any:
    return trained().model.starting_at(trained().mean, trained().network_state)


def test_a_linearised_prediction_keeps_the_statistics_of_the_trained_weights_without_a_question() -> None:
    """It needs the network at the mean alone, whose statistics are its own."""
    for ours, theirs in zip(*map(jax.tree.leaves, (after(None).network_state, trained().network_state)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_question_names_the_three_answers() -> None:
    with pytest.raises(ValueError, match=r"Frozen\(\), Recomputed\(\) \(at the mean\), or RecomputedPerDraw\(\)"):
        lamu.fit(trained_again(), (X, Y), lamu.algorithms.laplace(rule=lamu.predictives.Sampled()), epochs=0)
    model = trained().model
    asked = lamu.objective.Objective(model, 60.0), lamu.data.Batch.of(X, Y)
    with pytest.raises(ValueError, match="weights drawn from the belief have never made"):
        require_choice(lamu.algorithms.ivon(), *asked)
    require_choice(lamu.algorithms.adam(), *asked)
    with pytest.raises(ValueError, match="a mixture is one density"):
        require_choice(lamu.algorithms.mixture(), *asked)


@pytest.mark.parametrize("name", ["vogn", "ivon", "deep_ensemble"])
def test_the_question_comes_before_any_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No first state, no gradient, no pass over the data: for algorithms that take one, and for those that do not."""
    algorithm, worked = getattr(lamu.algorithms, name)(), []
    model = trained().model.starting_at(trained().mean, trained().network_state)
    for place in ("lamu.loop.start", "lamu.data.arrays.Arrays.batches"):
        monkeypatch.setattr(place, lambda *_, place=place: worked.append(place))
    with pytest.raises(ValueError, match="choose statistics="):
        lamu.fit(model, (X, Y), algorithm, epochs=0)
    assert worked == []


def test_a_point_leaves_no_question() -> None:
    model = trained().model.starting_at(trained().mean, trained().network_state)
    fit = lamu.fit(model, (X, Y), lamu.algorithms.adam(), epochs=0)
    np.testing.assert_array_equal(fit.posterior.predict(X).mean, trained().predict(X).mean)


def test_frozen_keeps_the_state() -> None:
    assert all(isinstance(choice, BatchStatistics) for choice in (Frozen(), Recomputed(), RecomputedPerDraw()))
    kept = jax.tree.map(jnp.array_equal, after(Frozen()).network_state, trained().network_state)
    assert all(jax.tree.leaves(kept))


def test_recomputed_is_the_state_of_the_mean() -> None:
    """Of a state that was lost, by the moments of the first layer's outputs, which NumPy takes."""
    lost = NETWORK.init(jax.random.key(0), jnp.asarray(X), 3)[1]
    found = after(Recomputed(), lost)
    layer = found.mean["network"]["layers"][0]
    features = X @ np.asarray(layer["kernel"]) + np.asarray(layer.get("bias", 0.0))
    left = 0.9**50
    np.testing.assert_allclose(found.network_state["norms"][0]["mean"], (1 - left) * features.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(
        found.network_state["norms"][0]["var"], left + (1 - left) * features.var(axis=0), rtol=1e-9
    )


def test_rows_are_taken_from_all_over_the_data() -> None:
    """Of 3,000 sorted rows: those of the first thousand alone would have another mean."""
    x = np.sort(rng.normal(size=3000))[:, None]
    some = RecomputedPerDraw().of(after(Frozen()), lamu.data.Arrays.of((x, np.zeros(3000)))).rule.x
    assert some.shape == (1024, 1)
    assert abs(float(some.mean()) - x.mean()) < 0.01


def test_of_a_stream_the_first_rows_are_taken() -> None:
    """Its padding is no row; a stream shorter than that gives all that it has."""
    x = rng.normal(size=(3000, 4))
    batches = [lamu.data.Batch.of(jnp.asarray(x[start : start + 300]), jnp.zeros(300)) for start in range(0, 3000, 300)]
    stream = lamu.data.Stream([batch.padded(320) for batch in batches])
    np.testing.assert_array_equal(RecomputedPerDraw().of(after(Frozen()), stream).rule.x, x[:1024])
    few = lamu.data.Stream(batches[:2])
    np.testing.assert_array_equal(RecomputedPerDraw().of(after(Frozen()), few).rule.x, x[:600])
    posterior = after(Frozen())
    assert Recomputed().of(posterior, None) is posterior


@pytest.mark.stress
def test_every_draw_has_its_own_state(tmp_path: Path) -> None:
    """A draw's outputs are those of the network in training mode on the same rows, where averages have settled."""
    posterior = after(RecomputedPerDraw())
    pred = posterior.predict(X, samples=3)
    # By the same program: another may round otherwise, and turn the eigenvectors that draws are made of.
    draws = _draws(posterior.belief, jax.random.clone(posterior.key), 3)
    for k in range(3):
        theta = jax.tree.map(lambda leaf, k=k: leaf[k], draws)
        f = posterior.model.outputs(theta, posterior.network_state, jnp.asarray(X), None, True, None)[0]
        np.testing.assert_allclose(pred.f[k], f, atol=0.05 * float(jnp.abs(f).max()))
    frozen = after(Frozen()).with_rule(lamu.predictives.Sampled()).predict(X, samples=3)
    assert float(jnp.abs(frozen.f - pred.f).max()) > 0.05
    again = lamu.load(posterior.save(tmp_path / "posterior"))
    np.testing.assert_array_equal(again.predict(X, samples=3).mean, pred.mean)


def test_a_network_without_a_state_is_left_alone() -> None:
    line = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Categorical(3))
    posterior = lamu.fit(line, (X, Y), lamu.algorithms.ivon(), epochs=1, statistics=RecomputedPerDraw()).posterior
    assert isinstance(posterior.rule, lamu.predictives.Sampled)
