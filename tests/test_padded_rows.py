"""Predictions of padded rows: few programs for any number of rows, and no row that sees another one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.base import compile_once
from lamu.families import Gaussian, Point, Product
from lamu.graphs import reading
from lamu.operators import Diagonal
from lamu.predictives import GaussianPredictive, Linearised, MixturePredictive, Probit, Sampled, padding

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
TARGETS = {"regression": RNG.normal(size=40), "classes": np.arange(40) % 3}

_compiled: list[Any] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, duration_secs, **_: _compiled.append(event) if event.endswith("backend_compile_duration") else None
)


@contextmanager
def counted() -> Iterator[list[int]]:
    """Yields a list that has the number of compiled programs at the end."""
    before, found = len(_compiled), []
    yield found
    found.append(len(_compiled) - before)


def posterior_of(likelihood: Any, rule: Any, kind: str = "normal", seed: int = 1, **network: Any) -> lamu.Posterior:
    model = lamu.Model(lamu.networks.MLP((5,), "tanh", **network), likelihood)
    outputs = 3 if likelihood.support.has_classes else 1
    weights, state = model.network.init(jax.random.key(seed), jnp.asarray(X), outputs)
    precision = Diagonal(jax.tree.map(lambda leaf: jnp.full_like(leaf, 9.0), weights))
    belief: Any = Point(weights) if kind == "point" else Gaussian(weights, precision)
    noise = {} if likelihood.support.has_classes else {"log_scale": jnp.full(1, -0.5)}
    return lamu.Posterior(
        model, Product({"network": belief, "likelihood": Point(noise)}), state, rule, jax.random.key(3)
    )


NOISE, CLASSES = lamu.likelihoods.Gaussian(), lamu.likelihoods.Categorical(3)
CASES: dict[str, Any] = {
    "point": lambda **_: posterior_of(CLASSES, Sampled(), "point", **_),
    "draws": lambda **_: posterior_of(CLASSES, Sampled(), **_),
    "draws of a regression": lambda **_: posterior_of(NOISE, Sampled(), **_),
    "tangent": lambda **_: posterior_of(NOISE, Linearised(), **_),
    "tangent of classes": lambda **_: posterior_of(CLASSES, Linearised(), **_),
    "closed form of classes": lambda **_: posterior_of(CLASSES, Probit(), **_),
}


def answers(pred: Any, y: Any) -> dict[str, Any]:
    found = {name: getattr(pred, name) for name in ("mean", "variance", "std", "aleatoric", "epistemic", "total")}
    found |= {"log_prob": pred.log_prob(y), "left_out": pred.left_out(y)}
    if pred.task == "classes":
        return found | {"set": pred.prediction_set(0.8), "probabilities": pred.probabilities}
    return found | {"cdf": pred.cdf(y), "interval": pred.interval(0.8), "quantile": pred.quantile(0.3)}


def direct(posterior: lamu.Posterior, x: Any) -> Any:
    """The predictive of the rows as they are."""
    parts = posterior.model, posterior.belief, posterior.network_state, 32, jax.random.clone(posterior.key)
    return posterior.rule.prepare(*parts).at(jnp.asarray(x), None)


def require_equal(ours: Any, theirs: Any, **tolerance: float) -> None:
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, **dict[str, Any](tolerance))


def test_the_ladder_has_few_sizes_and_little_room() -> None:
    sizes = {compile_once.ladder(count) for count in range(1, 1001)}
    assert len(sizes) == 28
    for count in range(1, 5000):
        size = compile_once.ladder(count)
        assert count <= size <= (1.5 if count <= 64 else 1.25) * count
        assert compile_once.ladder(size) == size
    for count in (1, 5, 4096, 4097, 20_000, 1_000_003):
        for most in (1, 7, 302, 4096):
            size = compile_once.block(count, most)
            assert size <= most
            assert compile_once.ladder(size) == size, "a block is of the ladder too"
            assert -(-count // size) * size <= 1.5 * count


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_padded_rows_are_answered_as_they_are(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one block, in several, and with NaN in the rows that fill a block, which no other row may see."""
    posterior = CASES[case]()
    y = TARGETS[direct(posterior, X[:1]).task][:21]
    expected = answers(direct(posterior, X[:21]), y)
    require_equal(answers(posterior.predict(X[:21]), y), expected, rtol=1e-9, atol=1e-12)
    monkeypatch.setattr(padding, "MOST", 8)
    require_equal(answers(CASES[case]().predict(X[:21]), y), expected, rtol=1e-9, atol=1e-12)
    monkeypatch.undo()

    def with_nan(leaf: np.ndarray, missing: int) -> np.ndarray:
        filling = np.full((missing, *leaf.shape[1:]), np.nan) if leaf.dtype.kind == "f" else leaf[:missing] * 0 - 1
        return np.concatenate([leaf, filling.astype(leaf.dtype)])

    one = answers(CASES[case]().predict(X[:21]), y)
    monkeypatch.setattr(compile_once, "filled", with_nan)
    require_equal(answers(CASES[case]().predict(X[:21]), y), one, rtol=0, atol=0)


def test_batch_statistics_are_fixed_at_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    posterior = CASES["point"](normalise=lamu.networks.BatchNorm())
    assert jax.tree.leaves(posterior.network_state)
    found = posterior.predict(X[:5]).mean
    monkeypatch.setattr(compile_once, "filled", lambda leaf, missing: np.concatenate([leaf, leaf[:missing] * np.nan]))
    np.testing.assert_array_equal(CASES["point"](normalise=lamu.networks.BatchNorm()).predict(X[:5]).mean, found)
    np.testing.assert_allclose(direct(posterior, X[:5]).mean, found, rtol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_no_number_of_rows_compiles_what_is_compiled(case: str) -> None:
    """Nor does a second posterior of the same shapes, which has other numbers."""
    posterior = CASES[case]()
    y = TARGETS[posterior.predict(X[:17]).task]
    answers(posterior.predict(X[:17]), y[:17])
    again = CASES[case](seed=2)
    with counted() as programs:
        for count in range(17, 25):
            answers(posterior.predict(X[:count]), y[:count])
        again.predict(X[:24])
        answers(replace(posterior).predict(X[:19]), y[:19])
        if posterior.predict(X[:18]).task == "regression":
            posterior.predict(X[:18]).interval(0.7)
    assert programs == [0]


@pytest.mark.parametrize("case", CASES)
def test_predictions_with_keys_share_programs_and_sizes(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A size is found by a trace, which takes longer than the prediction."""
    posterior = CASES[case]()
    y = TARGETS[posterior.predict(X[:1]).task]
    keys = [jax.random.key(seed) for seed in range(8)]
    answers(posterior.predict(X[:24], key=jax.random.key(20)), y[:24])
    monkeypatch.setattr(padding, "_found_size", None)  # not called
    with counted() as programs:
        for count, key in enumerate(keys, start=17):
            answers(posterior.predict(X[:count], key=key), y[:count])
    assert programs == [0]


def test_one_call_predicts_and_averages() -> None:
    posterior = CASES["tangent of classes"]()
    rows = np.tile(X, (10, 1))[:100]  # more than elsewhere in this file: nothing is compiled for as many
    prepared = posterior._prepared(128)
    assert prepared is not None
    with counted() as programs:
        posterior.predict(rows).mean.block_until_ready()
    assert programs == [1]


def test_a_prediction_is_of_its_class_and_has_its_arrays() -> None:
    pred: Any = CASES["draws"]().predict(X[:5], samples=7)
    whole = MixturePredictive(pred.likelihood, pred.dispersion, pred.f, pred.log_weights, pred.drawn)
    assert type(pred) is MixturePredictive
    assert pred.f.shape == (7, 5, 3)
    assert [leaf.shape for leaf in jax.tree.leaves(pred)] == [leaf.shape for leaf in jax.tree.leaves(whole)]
    y = TARGETS["classes"][:5]
    for same in (whole, replace(pred), copy.deepcopy(pred), pickle.loads(pickle.dumps(pred))):
        require_equal(answers(same, y), answers(pred, y), rtol=1e-12)
    np.testing.assert_array_equal(pred.sample(jax.random.key(0), 4), whole.sample(jax.random.key(0), 4))
    np.testing.assert_allclose(jax.jit(lambda pred: pred.mean)(pred), pred.mean, rtol=1e-12)
    inside = CASES["draws"]().predict(X[:5], samples=7)
    np.testing.assert_allclose(jax.jit(lambda y: inside.log_prob(y))(jnp.asarray(y)), pred.log_prob(y), rtol=1e-12)
    assert inside.f.shape == (7, 5, 3), "arrays that are read first inside a trace are arrays"
    with pytest.raises(AttributeError, match="centre"):
        getattr(pred, "centre")  # noqa: B009  (a checker knows it, too)


def test_targets_of_other_shapes_are_broadcast_or_refused_as_ever() -> None:
    pred: Any = CASES["tangent"]().predict(X[:5])
    assert isinstance(pred, GaussianPredictive)
    np.testing.assert_allclose(pred.cdf(0.0), pred.cdf(np.zeros(5)), rtol=1e-12)
    with jax.numpy_rank_promotion("allow"):
        assert pred.cdf(jnp.zeros((4, 5))).shape == (4, 5)
    with pytest.raises((TypeError, ValueError)):
        pred.log_prob(np.zeros(4))


def test_draws_are_those_of_the_key() -> None:
    """With the posterior's own key or another one, however many rows there are, and again."""
    posterior, own = CASES["draws"](), CASES["draws"]().key
    whole = posterior.predict(X).f
    np.testing.assert_allclose(posterior.predict(X, key=jax.random.clone(own)).f, whole, rtol=1e-12)
    np.testing.assert_allclose(posterior.predict(X[3:8]).f, whole[:, 3:8], rtol=1e-12)
    np.testing.assert_allclose(posterior.predict(X, samples=5).f, whole[:5], rtol=1e-12)
    np.testing.assert_allclose(posterior.predict(X).f, whole, rtol=0)
    other = posterior.predict(X, key=jax.random.key(8)).f
    assert float(jnp.abs(other - whole).max()) > 0.01


def test_what_a_posterior_prepared_is_no_part_of_its_copies() -> None:
    posterior = CASES["draws"]()
    mean = posterior.predict(X).mean
    assert vars(posterior)["_kept"]
    for other in (copy.copy(posterior), copy.deepcopy(posterior), pickle.loads(pickle.dumps(posterior))):
        np.testing.assert_array_equal(other.predict(X).mean, mean)
    moved = replace(posterior, belief=CASES["draws"](seed=2).belief)
    assert float(jnp.abs(moved.predict(X).mean - mean).max()) > 1e-3
    assert float(jnp.abs(posterior.with_rule(Linearised()).predict(X).mean - mean).max()) > 1e-6
    with lamu.memory.within("1kB"), pytest.raises(ValueError, match="a prediction from 32 draws"):
        posterior.predict(X)


# Questions of a graph's rows: a mixture has closed forms, and its missing entries a predictive of draws.

ROWS = np.concatenate([RNG.normal(size=(20, 2)) - 3.0, RNG.normal(size=(20, 2)) + 3.0])


@pytest.fixture(scope="module")
def mixture() -> lamu.Posterior:
    graph = lamu.graphs.models.GaussianMixture(2, 2)
    return lamu.fit(graph, {"y": ROWS}, lamu.algorithms.vmp(), steps=8).posterior


def asked(posterior: lamu.Posterior, count: int) -> dict[str, Any]:
    """Answers about the first rows, the second column missing; those by draws with the row as their last axis."""
    rows = ROWS[:count].copy()
    rows[:, 1] = np.nan
    pred: Any = posterior.predict({"y": rows})
    found: dict[str, Any] = {"local": posterior.local({"y": rows})["z"].logits, "mean": pred.mean}
    found |= {"log_prob": posterior.log_prob({"y": rows}), "interval": pred.interval(0.8), "cdf": pred.cdf(rows + 1.0)}
    found |= {"of missing": pred.log_prob(ROWS[:count]), "drawn": np.asarray(pred.sample(jax.random.key(0), 3))[0]}
    new: Any = posterior.predict(count)
    return found | {"new": np.asarray(new.sample(jax.random.key(0), 3))[0], "new mean": new.mean}


@pytest.mark.stress
def test_rows_of_a_graph_are_answered_as_among_more(mixture: lamu.Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stands in the rows that fill a block, in one block and in several."""
    whole = asked(mixture, 21)
    require_equal(asked(mixture, 17), jax.tree.map(lambda leaf: leaf[:17], whole), rtol=1e-9, atol=1e-12)
    monkeypatch.setattr(reading, "_MOST", 8)
    require_equal(asked(mixture, 21), whole, rtol=1e-9, atol=1e-12)
    monkeypatch.setattr(
        compile_once, "filled", lambda leaf, missing: np.concatenate([leaf, leaf[:missing] + leaf[-1:]])
    )
    require_equal(asked(mixture, 21), whole, rtol=1e-9, atol=1e-12)


def test_no_number_of_rows_compiles_what_a_graph_has_compiled(mixture: lamu.Posterior) -> None:
    asked(mixture, 17)
    with counted() as programs:
        for count in (18, 20):
            asked(mixture, count)
    assert programs == [0]


@pytest.mark.stress
def test_no_number_of_rows_compiles_what_a_latent_model_has_compiled() -> None:
    """New rows, holes and reconstructions: functions of rows, and not of the call."""
    y = (RNG.random((20, 4)) < 0.5) * 1.0
    posterior = lamu.fit(lamu.latent.models.VAE(2, 4), {"y": y}, lamu.algorithms.adam(0.01), steps=2).posterior

    def found(count: int) -> dict[str, Any]:
        key, holes = jax.random.key(0), y[:count].copy()
        holes[:, 1] = np.nan
        imputed = lamu.latent.impute(posterior, {"y": holes}, key, draws=3, warmup=2)["y"]
        means = lamu.latent.reconstruct(posterior, {"y": y[:count]}, jax.random.key(1))["y"]
        new = lamu.latent.generate(posterior, count, jax.random.key(2))["z"]
        return {"imputed": np.asarray(imputed).swapaxes(0, 1), "means": means, "new": new}

    whole = found(20)
    with counted() as programs:
        some = found(17)
    assert programs == [0]
    require_equal(some, jax.tree.map(lambda leaf: leaf[:17], whole), rtol=1e-6)
