"""What members, blocks and pictures are given: keys of their own, the weights of rows and draws, and T."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.algorithms.ensembles.deep_ensemble import Bootstrap
from lamu.algorithms.ensembles.mixture import EvidenceWeights
from lamu.composition import Composition
from lamu.data import Encoding
from lamu.expectations import Analytic
from lamu.families import Point
from lamu.likelihoods import Bernoulli, Categorical, Gaussian
from lamu.natural_rule import ConjugateParameters
from lamu.natural_rule import algorithm as bound
from lamu.networks import Linear
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives import GaussianPredictive, MixturePredictive, Pooling, Sampled
from lamu.priors import Normal
from lamu.protocol import Choices, Info, Traits
from lamu.record import record
from lamu.report import effects as report

RANDOM = np.random.default_rng(0)
N = 13
NUMBER = np.arange(float(N))
X, Y = np.column_stack([NUMBER, RANDOM.normal(size=N)]), RANDOM.normal(size=N)
WEIGHT, OFFSET = 0.5 + NUMBER / N, np.sin(NUMBER)
DATA = {"x": X, "y": Y, "weight": WEIGHT, "offset": OFFSET}
MODEL = lamu.Model(Linear(), Gaussian(1.5), Normal(1.0))
ROWS = MODEL.read(DATA)
OBJECTIVE = Objective(MODEL, 50.0, 0.3, 0.7)


ENDS: list[Any] = []


@record
class Spy:
    """An algorithm that does nothing and notes what it is given."""

    traits = Traits()
    choices = Choices("point", "Delta", "none")

    def noted(self, key: Any, objective: Any, batch: Any) -> dict[str, Any]:
        told = {
            name: jnp.asarray(getattr(objective, name)) for name in ("data_size", "temperature", "likelihood_power")
        }
        rows = {name: getattr(batch, name) for name in ("x", "y", "weight", "mask", "offset")}
        return {"key": jax.random.key_data(key), **told, **rows}

    def init(self, key: Any, objective: Any, batch: Any) -> Any:
        return {"first": self.noted(key, objective, batch), "params": objective.model.init(key, batch)[0]}

    def step(self, key: Any, state: Any, batch: Any, objective: Any) -> Any:
        state = {**state, "last": self.noted(key, objective, batch)}
        return state, Info(loss=jnp.sum(batch.weight), residual=batch.weight[0])

    def posterior(self, key: Any, state: Any, objective: Any, data: Any, trace: Any) -> Any:
        ENDS.append((jax.random.key_data(key), objective, data))
        return Posterior(objective.model, Point(state["params"]), {}, Sampled(), key)


def apart(keys: Any) -> bool:
    keys = np.asarray(keys)
    return len(np.unique(keys, axis=0)) == len(keys)


@pytest.mark.parametrize("vectorised", [True, False])
def test_members_are_given_keys_and_batches_of_their_own(vectorised: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(lamu.Model, "scan_friendly", lambda *_: vectorised)
    ensemble = lamu.algorithms.deep_ensemble(Spy(), members=3)
    state = ensemble.init(jax.random.key(0), OBJECTIVE, ROWS.full())
    first = state["first"]
    assert apart(first["key"])
    kernel = np.asarray(state["params"]["network"]["layers"][0]["kernel"])
    assert apart(kernel.reshape(3, -1))
    order = np.stack([RANDOM.permutation(N)[:5] for _ in range(3)])
    batches = jax.tree.map(lambda leaf: jnp.asarray(leaf)[order], ROWS.full())
    state, info = ensemble.step(jax.random.key(1), state, batches, OBJECTIVE)
    last = state["last"]
    assert apart(last["key"])
    assert apart(np.concatenate([first["key"], last["key"]]))
    for name, whole in DATA.items():
        np.testing.assert_array_equal(last[name], whole[order])
    for seen in (first, last):
        for name in ("data_size", "temperature", "likelihood_power"):
            np.testing.assert_array_equal(seen[name], np.full(3, getattr(OBJECTIVE, name)))
    np.testing.assert_allclose(float(info.loss), WEIGHT[order].sum(axis=1).mean())
    np.testing.assert_allclose(float(info.residual), WEIGHT[order][:, 0].max())
    state, _ = ensemble.step(jax.random.key(1), state, ROWS.full(), OBJECTIVE)  # all see the same rows
    np.testing.assert_array_equal(state["last"]["weight"], np.tile(WEIGHT, (3, 1)))


@pytest.mark.parametrize("kind", ["ensemble", "bootstrap"])
def test_posteriors_of_members_have_their_own_key_state_and_all_rows(kind: str) -> None:
    ENDS.clear()
    diversity = Bootstrap(3) if kind == "bootstrap" else lamu.algorithms.ensembles.deep_ensemble.Seeds()
    ensemble = lamu.algorithms.deep_ensemble(Spy(), members=3, diversity=diversity)
    state = ensemble.init(jax.random.key(0), OBJECTIVE, ROWS.full())
    found = ensemble.posterior(jax.random.key(2), state, OBJECTIVE, ROWS, None)
    assert apart([key for key, _, _ in ENDS])
    for k, (_, objective, rows) in enumerate(ENDS):
        assert (objective.temperature, objective.data_size, objective.likelihood_power) == (0.3, 50.0, 0.7)
        expected = np.asarray(diversity.batch(k, ROWS.full()).weight)
        np.testing.assert_array_equal(rows.weight, expected)
        np.testing.assert_array_equal(rows.offset, OFFSET)
        assert (kind == "ensemble") == np.array_equal(expected, WEIGHT)
        if kind == "bootstrap":  # a whole number of copies, each with the row's weight
            copies = expected / WEIGHT
            np.testing.assert_allclose(copies, np.round(copies), atol=1e-12)
            np.testing.assert_array_equal(np.asarray(state["first"]["weight"])[k], expected)
    kernel = np.asarray(found.belief.stacked.mean["network"]["layers"][0]["kernel"])
    np.testing.assert_array_equal(kernel, state["params"]["network"]["layers"][0]["kernel"])


def test_members_of_a_prediction_are_drawn_apart() -> None:
    posterior = lamu.fit(MODEL, DATA, lamu.algorithms.conjugate()).posterior.with_rule(Sampled())
    twice = lamu.families.Ensemble(jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), posterior.belief))
    pooled: Any = Pooling(Sampled()).predict(MODEL, twice, {}, jnp.asarray(X), 4, jax.random.key(0))
    logs = jnp.log(jnp.array([0.5, 0.5]))
    both: Any = Composition((posterior, posterior), logs).predict(X, samples=4, key=jax.random.key(1))
    for pred in (pooled, both):
        first, second = (np.asarray(part.f) for part in pred.parts)
        assert apart(np.concatenate([first, second])[..., 0])


# ----------------------------------------------------------------------------------------------------------- evidence


def exact_evidence(temperature: float = 1.0) -> float:
    """By hand: each row's density to the power w, of which the constants stay."""
    design, precision = np.column_stack([X, np.ones(N)]), WEIGHT / 1.5**2
    covariance = design @ design.T + np.diag(1 / precision)
    r = Y - OFFSET
    log_normal = -0.5 * (r @ np.linalg.solve(covariance, r) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    constants = np.sum(-0.5 * WEIGHT * np.log(2 * np.pi * 1.5**2) + 0.5 * np.log(2 * np.pi / precision))
    return float(log_normal + constants) / temperature


@pytest.mark.parametrize("size", [4096, 5])
def test_components_are_weighed_by_a_bound_that_counts_weights_and_offsets(size: int) -> None:
    """Of the exact belief it is the evidence, whatever the draws, in one batch or in padded ones."""
    posterior = replace(lamu.fit(MODEL, DATA, lamu.algorithms.conjugate()).posterior, evidence=None)
    rows: Any = SimpleNamespace(batches=lambda _: ROWS.batches(size))
    found = EvidenceWeights(2).logits(jax.random.key(0), [posterior, posterior], Objective(MODEL, float(N)), rows)
    np.testing.assert_allclose(found, exact_evidence(), rtol=1e-6)
    known = [replace(posterior, evidence=jnp.asarray(value)) for value in (1.0, 3.0)]
    np.testing.assert_array_equal(EvidenceWeights(2).logits(jax.random.key(0), known, OBJECTIVE, rows), [1.0, 3.0])


@pytest.mark.parametrize("size", [4096, 5])
def test_the_bound_of_a_conjugate_belief_counts_weights(size: int, monkeypatch: Any) -> None:
    from scipy.special import betaln

    monkeypatch.setattr(bound, "_ROWS", size)
    model = lamu.ConjugateModel(lamu.observations.Bernoulli(), lamu.families.Beta(1.0, 2.0))
    y = np.arange(N) % 3 > 0
    weight = 3.0 * WEIGHT
    rows = model.read({"y": y.astype(int), "weight": weight})
    a, b = 1.0 + weight[y].sum(), 2.0 + weight[~y].sum()
    nothing = {"network": {}, "likelihood": {}}
    given = Analytic(), jax.random.key(0), lamu.families.Beta(a, b), nothing, Objective(model, float(N)), rows
    found = bound.evidence_bound(ConjugateParameters(), *given)
    exact = betaln(a, b) - betaln(1.0, 2.0)
    np.testing.assert_allclose(float(found), exact, rtol=1e-6)


@record
class Tosses(ConjugateParameters):
    """What a belief about a share is about, by the density of each row."""

    def loss(self, objective: Any, batch: Any, network_state: Any, rest: Any) -> Any:
        def value(share: Any, rest: Any, key: Any) -> Any:
            rows = jnp.where(batch.y > 0, jnp.log(share), jnp.log1p(-share))
            return -objective.likelihood_power * batch.total(rows) / batch.count, network_state

        return SimpleNamespace(value=value)

    def expected_log_prior(self, objective: Any, belief: Any) -> float:
        return 0.0


@pytest.mark.parametrize("size", [4096, 5])
def test_the_bound_at_draws_counts_weights_and_rows_once(size: int, monkeypatch: Any) -> None:
    """Under a flat prior log p(y, θ) − log q(θ) of the exact belief is the evidence at every draw, hot or not."""
    from scipy.special import betaln

    monkeypatch.setattr(bound, "_ROWS", size)
    model = lamu.ConjugateModel(lamu.observations.Bernoulli(), lamu.families.Beta(1.0, 1.0))
    y = np.arange(N) % 3 > 0
    rows = model.read({"y": y.astype(int), "weight": 3.0 * WEIGHT})
    for temperature, power in ((1.0, 1.0), (2.0, 0.5)):
        a, b = (1.0 + power / temperature * 3.0 * WEIGHT[part].sum() for part in (y, ~y))
        belief = lamu.families.Beta(*map(jnp.asarray, (a, b)))
        objective = Objective(model, float(N), temperature, power)
        found = bound.evidence_bound(Tosses(), None, jax.random.key(0), belief, {}, objective, rows)
        np.testing.assert_allclose(float(found), betaln(a, b), rtol=1e-6)


# -------------------------------------------------------------------------------------------------------------- bands

SLOPES, SHARES = np.array([1.0, 2.0, 5.0]), np.array([0.7, 0.2, 0.1])


def told(likelihood: Any, asked: list[Any] | None = None) -> Any:
    """A posterior whose draws have slopes in the first column and unequal weights."""

    def predict(x: Any, **options: Any) -> MixturePredictive:
        if asked is not None:
            asked.append((np.asarray(x), options))
        f = jnp.asarray(SLOPES)[:, None, None] * jnp.asarray(x)[None, :, :1]
        f = jnp.concatenate([f, 0.0 * f, -f], axis=-1) if isinstance(likelihood, Categorical) else f
        return MixturePredictive(likelihood, {}, f, jnp.log(jnp.asarray(SHARES)))

    return SimpleNamespace(predict=predict)


def test_the_band_of_an_effect_weighs_the_draws() -> None:
    encoding = Encoding("y", "regression", (), ("a", "b"), units=(("y", 100.0, 10.0),))
    asked: list[Any] = []
    first, second = report.effects(told(Gaussian(1.0), asked), X, encoding, seed=0, samples=7)
    mean = SLOPES @ SHARES
    variance = SHARES @ (SLOPES - mean) ** 2
    np.testing.assert_allclose(first.mean[:, 0], 100.0 + 10.0 * mean * first.values, rtol=1e-6)
    np.testing.assert_allclose(first.deviation[:, 0], 10.0 * np.sqrt(variance) * np.abs(first.values), rtol=1e-6)
    # The second feature changes nothing: the mean of the other rows, and its spread.
    np.testing.assert_allclose(second.mean[:, 0], 100.0 + 10.0 * mean * NUMBER.mean(), rtol=1e-6)
    np.testing.assert_allclose(second.deviation[:, 0], 10.0 * np.sqrt(variance) * NUMBER.mean(), rtol=1e-6)
    ((x, options),) = asked
    assert options == {"samples": 7}
    blocks = x.reshape(-1, N, 2)
    for block in blocks[len(first.values) :]:
        assert sorted(block[:, 0]) == NUMBER.tolist()  # each row once, with its own first column
    grid = np.unique(blocks[len(first.values) :, :, 1], axis=1)
    assert grid.shape[1] == 1


@pytest.mark.parametrize(("likelihood", "labels"), [(Bernoulli(), ("no", "yes")), (Categorical(3), ("u", "v", "w"))])
def test_the_band_of_classes_weighs_the_draws(likelihood: Any, labels: tuple[str, ...]) -> None:
    encoding = Encoding("y", "binary" if len(labels) == 2 else "classes", labels, ("a", "b"))
    found = {each.name: each for each in report.effects(told(likelihood), X, encoding, seed=0)}["a"]
    f = SLOPES[:, None] * found.values
    p = 1 / (1 + np.exp(-f))[..., None] if len(labels) == 2 else np.exp(np.stack([f, 0 * f, -f], axis=-1))
    p = p / p.sum(axis=-1, keepdims=True) if len(labels) > 2 else p
    mean = np.tensordot(SHARES, p, axes=1)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.deviation**2, np.tensordot(SHARES, (p - mean) ** 2, axes=1), rtol=1e-4, atol=1e-9)


def test_the_band_of_a_closed_form_is_the_mean_of_the_deviations() -> None:
    spread = lambda x: (0.3 * jnp.asarray(x)[:, 0]) ** 2
    predict = lambda x: GaussianPredictive(
        2.0 * jnp.asarray(x)[:, 0], (1.0 + spread(x))[:, None, None], jnp.ones(len(x))
    )
    encoding = Encoding("y", "regression", (), ("a", "b"))
    found = {each.name: each for each in report.effects(SimpleNamespace(predict=predict), X, encoding, seed=0)}
    np.testing.assert_allclose(found["a"].deviation[:, 0], 0.3 * found["a"].values, atol=1e-6)
    np.testing.assert_allclose(found["b"].deviation[:, 0], 0.3 * NUMBER.mean(), rtol=1e-6)


def test_rows_of_an_effect_are_some_of_all(monkeypatch: Any) -> None:
    monkeypatch.setattr(report, "_ROWS", 5)
    encoding = Encoding("y", "regression", (), ("a", "b"))
    chosen = []
    for seed in (0, 1):
        asked: list[Any] = []
        report.effects(told(Gaussian(1.0), asked), X, encoding, seed=seed)
        blocks = asked[0][0].reshape(-1, 5, 2)
        assert len({tuple(sorted(block[:, 0])) for block in blocks[12:]}) == 1
        chosen.append(sorted(blocks[-1][:, 0]))
        assert len(set(chosen[-1])) == 5
    assert chosen[0] != chosen[1]
