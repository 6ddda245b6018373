"""What passes between the stages of a table's fit, its baselines and the command line: rows, weights, seeds, choices.

Training is a recorder that returns made-up densities, so that every later figure can be computed by hand.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator

import lamu
from lamu.cli import learning, main, training, worker
from lamu.cli.learning import Candidates, Learned, Runs, learner_for
from lamu.cli.request import Request, learning_rows
from lamu.composition import stacking_weights
from lamu.data import Encoding
from lamu.folds import folds_of
from lamu.likelihoods import Bernoulli, Gaussian, HeteroscedasticGaussian, Poisson
from lamu.networks import Linear
from lamu.priors import LearnedNormal, Normal
from lamu.tabular import peers, stacked_fit
from lamu.tabular.candidates import candidates_for
from lamu.tabular.training import Path as TrainedPath
from lamu.tabular.training import row_order
from lamu.tabular.truncated import Truncated

RANDOM = np.random.default_rng(0)
N, FOLDS, STRETCHES = 24, 3, 15
NUMBER = np.arange(float(N))
X = np.column_stack([NUMBER, RANDOM.normal(size=N)])
COUNTS = RANDOM.poisson(2.0, N)
WEIGHT = 0.4 + 1.2 * NUMBER / N


class Training:
    """Stands for `train`: keeps what it was given; densities are random numbers of candidate, fold, stretch and row.

    The bias of the linear path says whose weights they are: a hundred for each member and one for each stretch.
    """

    def __init__(self) -> None:
        self.calls: dict[str, Any] = {}  # by the group and its number
        self.parts: list[np.ndarray] = []  # the rows of each fold
        random = np.random.default_rng(1)
        self.densities = {name: random.normal(-2.0, 0.7, (9, FOLDS, STRETCHES, N)) for name in ("small", "large")}
        self.densities["small"][2] -= 8.0  # a candidate that will have no weight

    def folds(self, *of: Any) -> list[np.ndarray]:
        self.parts = folds_of(*of[:3], **({"stratify": of[3]} if len(of) > 3 else {}))
        return self.parts

    def __call__(self, model: Any, members: Any, rows: Any, batch: Any, *rest: Any) -> TrainedPath:
        name = "large" if "hidden" in members.params["network"] else "small"
        count = len(members.params["network"]["linear"]["bias"])
        folds = [next(k for k, part in enumerate(self.parts) if held[0] in part) for held in np.asarray(rows.held)]
        group = candidates_for(varying=False, kernels=True)[name == "large"]
        first = next(c for c, each in enumerate(group) if _is_prior_of(each, model.network, members.prior))
        who = [(first + m // len(folds), folds[m % len(folds)]) for m in range(count)]
        self.calls[f"{name} {who[0]}"] = (model, members, rows, batch, who)
        table = self.densities[name]
        found = np.stack([table[c, k][:, np.asarray(rows.held)[m % len(folds)]] for m, (c, k) in enumerate(who)])
        along = lambda leaf: np.broadcast_to(np.asarray(leaf)[:, None], (len(leaf), STRETCHES, *leaf.shape[1:]))
        params = jax.tree.map(along, members.params)
        bias = params["network"]["linear"]["bias"]
        numbers = np.array([c * FOLDS + k for c, k in who])
        tag = 100.0 * numbers[:, None] + np.arange(STRETCHES) + (1000.0 if name == "large" else 0.0)
        params["network"]["linear"]["bias"] = np.broadcast_to(tag[..., None], bias.shape).astype(bias.dtype)
        return TrainedPath(params, found)


def _is_prior_of(candidate: Any, network: Any, prior: Any, member: int = 0) -> bool:
    pairs = zip(jax.tree.leaves(prior), jax.tree.leaves(candidate.prior(network)), strict=True)
    return all(np.allclose(given[member], expected) for given, expected in pairs)


@pytest.fixture
def trained(monkeypatch: Any) -> Training:
    found = Training()
    monkeypatch.setattr(stacked_fit, "train", found)
    monkeypatch.setattr(stacked_fit, "folds_of", lambda *of, stratify, groups: found.folds(*of, stratify))
    return found


def judges_of(y: np.ndarray, seed: int, stratify: bool, most: int = N) -> list[np.ndarray]:
    parts = folds_of(y, FOLDS, seed, stratify)
    draw = lambda k, part: np.sort(np.random.default_rng(seed + k).choice(part, most, replace=False))
    return [part if len(part) <= most else draw(k, part) for k, part in enumerate(parts)]


@pytest.mark.parametrize("few", [False, True], ids=["all judge", "some judge"])
def test_members_learn_from_the_other_folds_and_their_own_judges_them(
    few: bool, trained: Training, monkeypatch: Any
) -> None:
    if few:
        monkeypatch.setattr(stacked_fit, "_JUDGES", 6 * FOLDS)
    found = lamu.fit_table(X, COUNTS, Poisson(), weight=WEIGHT, folds=FOLDS, steps=30, seed=5)
    parts = folds_of(COUNTS, FOLDS, 5, stratify=False)
    judges = judges_of(COUNTS, 5, False, 6 if few else N)
    assert [len(each) for each in judges] == [6 if few else 8] * FOLDS
    groups = dict(zip(("small", "large"), candidates_for(varying=False, kernels=True), strict=True))
    starts: dict[int, np.ndarray] = {}
    for call, (model, members, rows, batch, who) in trained.calls.items():
        name, folds = call.split()[0], [k for _, k in who[: len(rows.order)]]
        for at, k in enumerate(folds):
            assert set(rows.order[at].ravel().tolist()) == set(range(N)) - set(parts[k].tolist())
            expected = row_order(np.setdiff1d(np.arange(N), parts[k]), 30, 6, 5 + k)
            np.testing.assert_array_equal(rows.order[at], expected)
            assert sorted(set(rows.held[at].tolist())) == judges[k].tolist()
            assert rows.held[at][: len(judges[k])].tolist() == judges[k].tolist()
        assert rows.data_size.tolist() == [16.0] * len(folds)
        np.testing.assert_array_equal(np.asarray(batch.y)[:N], COUNTS)
        np.testing.assert_allclose(np.asarray(batch.weight)[:N], WEIGHT)
        for m, (c, k) in enumerate(who):
            assert _is_prior_of(groups[name][c], model.network, members.prior, m)
            if name == "large":  # a fold's start is that of every candidate
                kernel = np.asarray(members.params["network"]["hidden"]["smooth"][m])
                np.testing.assert_array_equal(starts.setdefault(k, kernel), kernel)
    assert len({start.tobytes() for start in starts.values()}) == FOLDS
    members = [each for call, (*_, who) in trained.calls.items() if call.startswith("large") for each in who]
    assert sorted(members) == [(c, k) for c in range(3) for k in range(FOLDS)]
    _require_mixture(found, trained, groups, judges)


def _require_mixture(found: Any, trained: Training, groups: Any, judges: list[np.ndarray]) -> None:
    """By hand: each candidate at its best stretch by the weighted densities of its judges, then the weights."""
    counts = WEIGHT[np.concatenate(judges)]
    densities, tags = {}, {}
    for name, group in groups.items():
        for c, candidate in enumerate(group):
            table = trained.densities[name][c]
            along = np.concatenate([table[k][:, judges[k]] for k in range(FOLDS)], axis=1)
            judged = along
            if name == "large":  # judged as a part of a mixture, beside the linear candidate
                judged = np.logaddexp(np.log(0.7) + along, np.log(0.3) + densities["linear"])
            best = int(np.argmax((judged * counts).sum(axis=1)))
            densities[candidate.name] = along[best]
            tags[candidate.name] = [100.0 * (c * FOLDS + k) + best + 1000.0 * (name == "large") for k in range(FOLDS)]
    stacked = np.stack(list(densities.values()), axis=1)
    weights = stacking_weights(stacked, 1.0, counts)
    weights = np.where(weights < 0.01, 0.0, weights)
    weights /= weights.sum()
    assert found.weights == pytest.approx(dict(zip(densities, weights, strict=True)))
    assert found.nll == pytest.approx({name: -np.average(each, weights=counts) for name, each in densities.items()})
    mixed = np.log(np.exp(stacked) @ weights)
    assert found.stacked_nll == pytest.approx(-np.average(mixed, weights=counts))
    kept = [name for name, weight in zip(densities, weights, strict=True) if weight > 0]
    assert 1 < len(kept) < len(densities)
    bias = np.asarray(found.posterior.belief.stacked.mean["network"]["linear"]["bias"])[:, 0]
    np.testing.assert_array_equal(bias, np.concatenate([tags[name] for name in kept]))
    expected = np.repeat(np.log(weights[weights > 0] / FOLDS), FOLDS)
    np.testing.assert_allclose(found.posterior.belief.log_weights, expected, rtol=1e-6)


def test_the_seed_is_of_folds_orders_starts_and_predictions(trained: Training) -> None:
    found, seen = {}, {}
    for seed in (5, 6):
        found[seed] = lamu.fit_table(X, COUNTS, Poisson(), folds=FOLDS, steps=30, seed=seed)
        seen[seed] = {name: call[1:3] for name, call in trained.calls.items()}
    for name in ("small", "large"):
        (members, rows), (others, other_rows) = (seen[seed][f"{name} (0, 0)"] for seed in (5, 6))
        assert not np.array_equal(rows.order, other_rows.order)
        assert not np.array_equal(rows.held, other_rows.held)
        pairs = zip(jax.tree.leaves(members.params["network"]), jax.tree.leaves(others.params["network"]), strict=True)
        assert any(not np.array_equal(a, b) for a, b in pairs) == (name == "large")  # others start at zero
    keys = [jax.random.key_data(each.posterior.key).tolist() for each in found.values()]
    assert keys[0] != keys[1]


def test_the_factor_of_the_logits_is_of_the_rows_that_judge(trained: Training, monkeypatch: Any) -> None:
    asked: list[Any] = []

    def factor(*given: Any) -> float:
        asked.append(given)
        return 2.5

    monkeypatch.setattr(stacked_fit, "logit_factor", factor)
    y = (NUMBER % 3 == 0).astype(int)
    found = lamu.fit_table(X, y, Bernoulli(), weight=WEIGHT, folds=FOLDS, steps=30, seed=2)
    judges = judges_of(y, 2, True)
    ((outputs, targets, fold, weights, counts),) = asked
    rows = np.concatenate(judges)
    np.testing.assert_array_equal(targets, y[rows])
    np.testing.assert_allclose(counts, WEIGHT[rows])
    np.testing.assert_array_equal(fold, np.repeat(np.arange(FOLDS), [len(each) for each in judges]))
    kept = np.array([weight for weight in found.weights.values() if weight > 0])
    np.testing.assert_allclose(weights, kept)
    assert outputs.shape == (len(kept), FOLDS, N, 1)
    # The outputs differ by what the bias is tagged with, which the factor multiplies.
    bias = np.asarray(found.posterior.belief.stacked.mean["network"]["linear"]["bias"]).reshape(len(kept), FOLDS)
    tags = bias / 2.5
    assert np.abs(np.mod(tags, 100.0) - np.round(np.mod(tags, 100.0))).max() < 1e-4
    assert (np.abs(outputs.mean(axis=(2, 3)) - tags) < 20).all()


def test_the_factor_of_the_noise_is_of_the_rows_that_judge(trained: Training, monkeypatch: Any) -> None:
    asked: dict[str, Any] = {}
    recorder = lambda name, value: lambda *given: asked.__setitem__(name, given) or value
    monkeypatch.setattr(stacked_fit, "noise_factor", recorder("noise", 1.7))
    monkeypatch.setattr(stacked_fit, "untruncated_weight", recorder("truncated", 0.2))
    y = 1.0 + NUMBER
    found = lamu.fit_table(X, y, Gaussian(), weight=WEIGHT, folds=FOLDS, steps=30, seed=2)
    judges = judges_of(y, 2, False)
    rows = np.concatenate(judges)
    mean, deviation, *rest = asked["noise"]
    targets, fold, weights, counts = rest
    np.testing.assert_allclose(targets[:, 0], y[rows])
    np.testing.assert_allclose(counts, WEIGHT[rows])
    np.testing.assert_array_equal(fold, np.repeat(np.arange(FOLDS), 8))
    np.testing.assert_allclose(weights, [weight for weight in found.weights.values() if weight > 0])
    again, wider, *others = asked["truncated"]
    np.testing.assert_array_equal(again, mean)
    np.testing.assert_allclose(wider, 1.7 * deviation)
    for one, other in zip(rest, others, strict=True):
        np.testing.assert_array_equal(one, other)
    likelihood = found.posterior.model.likelihood
    assert isinstance(likelihood, Truncated)
    assert likelihood.untruncated == 0.2
    assert likelihood.base.base == HeteroscedasticGaussian(1.7)
    np.testing.assert_allclose(float(likelihood.base.shift), np.average(y, weights=WEIGHT), rtol=1e-6)


def test_a_row_without_weight_teaches_and_judges_nothing(trained: Training) -> None:
    weight = np.where(NUMBER < 6, 0.0, 1.0)
    lamu.fit_table(X, COUNTS, Poisson(), weight=weight, folds=FOLDS, steps=30)
    for _, _, rows, batch, _ in trained.calls.values():
        assert float(batch.count) == N - 6
        np.testing.assert_array_equal(np.asarray(batch.y)[: N - 6], COUNTS[6:])
        assert rows.order.max() < N - 6


# ------------------------------------------------------------------------------------------------------------- peers


class Memory(BaseEstimator):
    """Predicts the rows that it has learned exactly, and ten too much elsewhere."""

    learned: list[list[int]]

    def fit(self, x: Any, y: Any) -> Memory:
        self.known_ = dict(zip(x[:, 0].tolist(), y.tolist(), strict=True))
        LEARNED_ROWS.append(sorted(int(each) for each in x[:, 0]))
        return self

    def predict(self, x: Any) -> np.ndarray:
        return np.array([self.known_.get(number, 10.0 + TRUTH[int(number)]) for number in x[:, 0].tolist()])


LEARNED_ROWS: list[list[int]] = []
TRUTH = 3.0 + RANDOM.uniform(size=40)


@pytest.mark.parametrize("many", [False, True], ids=["folds", "one split"])
def test_a_baseline_is_as_wide_as_its_errors_at_rows_that_it_has_not_seen(many: bool, monkeypatch: Any) -> None:
    if many:
        monkeypatch.setattr(peers, "_MANY_ROWS", 20)
        monkeypatch.setattr(peers, "_MOST_HELD", 5)
    LEARNED_ROWS.clear()
    monkeypatch.setattr(peers, "_pipeline", lambda *_: Memory())
    numbers = np.arange(40.0)[:, None]
    pred = peers.peer("boosting", "regression", numbers[:30], TRUTH[:30], numbers[30:], (0,))
    np.testing.assert_allclose(pred.std, 10.0, rtol=1e-6)
    np.testing.assert_allclose(pred.mean, TRUTH[30:] + 10.0, rtol=1e-6)
    assert LEARNED_ROWS[-1] == list(range(30))  # what predicts has all of them
    for learned in LEARNED_ROWS[:-1]:
        assert len(learned) == (25 if many else 24)
    assert len(LEARNED_ROWS) == (2 if many else 6)
    counts = np.round(TRUTH * 20)
    told = peers.peer("boosting", "counts", numbers[:30], counts[:30], numbers[30:], (0,))
    poisson = np.asarray(told.mean)
    assert (np.asarray(told.variance) > 1.5 * poisson).all()  # errors of fifty are more than a Poisson's


# ------------------------------------------------------------------------------------------------------ command line

UNITS = Encoding("y", "regression", (), ("a", "b"))
BATCH = {"x": X, "y": NUMBER.copy()}
MODEL = lamu.Model(Linear(), Gaussian(0.5), LearnedNormal(0.5))
IVON = lamu.algorithms.ivon()


@cache
def learned_once() -> lamu.Fit:
    return lamu.fit(lamu.Model(Linear(), Gaussian(0.5), Normal(1.0)), BATCH, lamu.algorithms.conjugate())


class Recorder:
    """Stands for a function: keeps what it was given and returns an answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, *given: Any, **options: Any) -> Any:
        self.calls.append((given, options))
        return self.answer


def test_the_command_line_hands_a_table_all_that_it_knows(monkeypatch: Any) -> None:
    answer = lamu.StackedFit(
        learned_once().posterior, {"linear": 0.7, "network": 0.3}, {"linear": 1.0, "network": 2.0}, 0.9, 4, 30
    )
    recorder = Recorder(answer)
    monkeypatch.setattr(learning, "fit_table", recorder)
    encoding = Encoding("y", "regression", (), ("a", "b"), levels=((), ("u", "v")))
    way = Candidates(Request("t.csv", folds=4), encoding, "student_t", 4, N)
    data = {**BATCH, "weight": np.arange(N), "offset": np.ones(N), "groups": np.arange(N)}
    learned = way.learn(data, 17, {"progress": False, "resume": True, "checkpoint": "place"})
    (((x, y, likelihood), options),) = recorder.calls
    assert (x is BATCH["x"], y is BATCH["y"]) == (True, True)
    assert likelihood == lamu.likelihoods.StudentT()
    assert all(options.pop(name) is data[name] for name in ("weight", "offset", "groups"))
    expected = {"levels": encoding.cardinalities, "folds": 4, "seed": 17}
    assert options == expected | {"progress": False, "resume": True, "checkpoint": "place"}
    assert encoding.cardinalities[1] == 2
    assert learned.posterior is learned_once().posterior
    assert (learned.candidates, learned.steps) == (answer.weights, 30)
    assert learned.candidates_nll == answer.nll
    filled = replace(way, encoding=replace(encoding, indicators=("a",))).learn(data, 17, {"progress": False})
    assert (
        filled.told == f"{learned.told}; their missing values are drawn given their targets, those of test rows are not"
    )
    assert "0.70 linear (1.000), 0.30 network (2.000)" in str(learned.told)
    assert "0.900 together" in str(learned.told)


@pytest.mark.parametrize("asked", [None, 0.3])
def test_runs_over_folds_are_at_the_temperature_that_was_asked(asked: float | None, monkeypatch: Any) -> None:
    once = learned_once()
    answer = SimpleNamespace(posterior=once.posterior, fits=(once, once), scales={0.5: 1.0})
    recorder = Recorder(answer)
    monkeypatch.setattr(learning, "fit_folds", recorder)
    loop = {"batch_size": 9, "epochs": 4, "stop": 2}
    runs = Runs(Request("t.csv", temperature=asked), MODEL, IVON, "ivon", N, 3, loop)
    learned = runs.learn(BATCH, 23, {"checkpoint": "place", "epochs": 5})
    ((given, options),) = recorder.calls
    assert given[0] is MODEL
    assert given[2] is IVON
    assert given[1] is BATCH
    expected = {"folds": 3, "seed": 23, "temperature": asked or 1.0, "batch_size": 9, "epochs": 5, "stop": 2}
    assert options == expected | {"checkpoint": "place"}
    assert learned.temperature == (asked or 1.0)
    assert (learned.scales, learned.posterior) == ({0.5: 1.0}, learned_once().posterior)
    assert len(learned.histories) == 2


@pytest.mark.parametrize("asked", [None, 0.3])
def test_a_single_run_is_at_the_temperature_that_rows_chose(asked: float | None, monkeypatch: Any) -> None:
    tried = {1.0: 2.0, 0.03: 1.5}
    chosen = 0.03 if asked is None else asked
    posterior = replace(learned_once().posterior, temperature=chosen)
    answer = SimpleNamespace(posterior=posterior, fit=learned_once(), scales={0.5: 1.0, 1.0: 0.8}, temperatures=tried)
    choose, recorder = Recorder(answer), Recorder(answer)
    monkeypatch.setattr(learning, "fit_temperature", choose)
    monkeypatch.setattr(learning, "fit_prior_scale", recorder)
    loop = {"batch_size": 9, "validation": 0.1}
    runs = Runs(Request("t.csv", temperature=asked), MODEL, IVON, "ivon", N, 0, loop)
    learned = runs.learn(BATCH, 23, {"checkpoint": "place", "max_memory": "1GB"})
    assert (len(choose.calls), len(recorder.calls)) == ((1, 0) if asked is None else (0, 1))
    (((model, data, algorithm), options),) = choose.calls + recorder.calls
    assert (model is MODEL, algorithm is IVON) == (True, True)
    assert data is BATCH
    handed = {"batch_size": 9, "checkpoint": "place", "max_memory": "1GB", "seed": 23}
    assert options == handed | ({} if asked is None else {"temperature": asked})
    assert learned.temperature == chosen
    assert learned.temperatures == ({1.0: 2.0, 0.03: 1.5} if asked is None else {})
    assert learned.scales == answer.scales


def test_a_table_is_for_what_says_nothing_that_it_does_not_know() -> None:
    runs = lambda **asked: Runs(Request("t.csv", **asked), MODEL, IVON, "ivon", N, 5, {})
    way = learner_for(runs(folds=4, seed=3), UNITS, "poisson", default=True)
    assert isinstance(way, Candidates)
    assert (way.folds, way.rows, way.likelihood, way.encoding) == (4, N, "poisson", UNITS)
    for asked in ({"epochs": 3}, {"batch_size": 3}, {"temperature": 0.5}, {"folds": 0}):
        assert isinstance(learner_for(runs(**asked), UNITS, None, default=True), Runs)
    assert isinstance(learner_for(runs(), UNITS, None, default=False), Runs)
    beside = Encoding("y", "regression", (), ("a", "b"), beside=(("trials", "n"),))
    assert isinstance(learner_for(runs(), beside, None, default=True), Runs)


class Way:
    """Stands for how a request learns: an exact fit of the rows that it is given, with choices that are made up."""

    name, method_name, plan, folds = "made up", "made up", "a fit", 0

    def __init__(self) -> None:
        self.given: list[Any] = []
        self.loop = {"epochs": 2, "batch_size": 7, "validation": None, "stop": None}

    def __call__(self, runs: Runs, encoding: Any, likelihood: Any, default: bool) -> Way:
        self.given.append(SimpleNamespace(runs=runs, encoding=encoding, likelihood=likelihood, default=default))
        return self

    def learn(self, data: Any, seed: int, options: Any) -> Learned:
        given = self.given[-1]
        given.x, given.y, given.seed, given.options = np.asarray(data["x"]), np.asarray(data["y"]), seed, dict(options)
        model = lamu.Model(Linear(), Gaussian(0.6), Normal(1.0)).standardised(given.x, given.y)
        given.posterior = lamu.fit(model, (given.x, given.y), lamu.algorithms.conjugate()).posterior
        return Learned(
            given.posterior,
            steps=77,
            temperature=0.03,
            temperatures={1.0: 2.0, 0.03: 1.5},
            scales={0.5: 3.0, 0.25: 2.5},
            candidates={"linear": 1.0},
            candidates_nll={"linear": 1.25},
        )


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    random = np.random.default_rng(3)
    table = pd.DataFrame({"a": np.arange(60) + 0.25, "b": random.normal(size=60)})
    table["y"] = 0.05 * table["a"] + random.normal(size=60)
    table.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def rows_by(path: Path, seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    request = Request(str(path), "y", seed=seed)
    return learning_rows(request.read(), request, seed)


def test_fit_learns_from_its_training_rows_and_writes_what_was_chosen(csv: Path, monkeypatch: Any) -> None:
    way, out = Way(), csv.parent / "out"
    monkeypatch.setattr(training, "learner_for", way)
    words = ["fit", csv, "--target", "y", "--out", out, "--algorithm", "ivon", "--likelihood", "gaussian"]
    assert main([*map(str, words), "--no-report", "--seed", "9", "--temperature", "0.4", "--batch-size", "7"]) == 0
    table, train, test = rows_by(csv, 9)
    (given,) = way.given
    np.testing.assert_allclose(given.x, np.asarray(table.x)[train], rtol=1e-6)
    np.testing.assert_allclose(given.y, np.asarray(table.y)[train], rtol=1e-6)
    assert not set(given.x[:, 0].tolist()) & set(np.asarray(table.x, given.x.dtype)[test, 0].tolist())
    assert given.seed == 9
    assert (given.options["resume"], given.default, given.likelihood) == (False, False, "gaussian")
    runs = given.runs
    assert (runs.rows, runs.folds, runs.name) == (len(train), 0, "ivon")
    assert runs.loop["batch_size"] == 7
    assert runs.request.temperature == 0.4
    pair = zip(runs.model.network.shift, given.x.mean(axis=0), strict=True)
    assert all(abs(float(one) - other) < 1e-4 for one, other in pair)  # learned from the training rows alone
    config, metrics = (json.loads((out / name).read_text()) for name in ("config.json", "metrics.json"))
    assert config["temperature"] == metrics["temperature"] == 0.03
    assert config["temperatures_tried"] == {"1": 2.0, "0.03": 1.5}
    assert config["prior_scales_tried"] == {"0.5": 3.0, "0.25": 2.5}
    assert (config["candidates"], config["candidates_nll"]) == ({"linear": 1.0}, {"linear": 1.25})
    assert (config["steps"], config["seed"]) == (77, 9)
    assert metrics["rows"] == {"train": len(train), "test": len(test)}
    written = pd.read_csv(out / "predictions.csv")
    pred = given.posterior.predict(np.asarray(table.x)[test])
    np.testing.assert_allclose(written["mean"], np.asarray(pred.mean), rtol=1e-5)
    nll = -np.asarray(pred.log_prob(np.asarray(table.y)[test]))
    assert metrics["scores"]["nll"] == pytest.approx(nll.mean(), rel=1e-5)
    np.testing.assert_allclose(lamu.load(out / "posterior").predict(np.asarray(table.x)[test]).mean, pred.mean)


@pytest.mark.parametrize("kept", [False, True])
def test_a_contest_learns_from_the_rows_of_each_split(kept: bool, csv: Path, monkeypatch: Any) -> None:
    way, keep = Way(), csv.parent / "kept"
    monkeypatch.setattr(worker, "learner_for", way)
    known, asked = worker.evidence, []
    monkeypatch.setattr(worker, "evidence", lambda posterior, data: asked.append(data) or known(posterior, data))
    request = Request(str(csv), "y", seed=4, likelihood="gaussian", epochs=3)
    found = worker.fit_and_score(request, "ivon", (), 2, str(keep) if kept else None)
    assert [given.seed for given in way.given] == [4, 5]
    for s, (given, split, data) in enumerate(zip(way.given, found["splits"], asked, strict=True)):
        np.testing.assert_array_equal(data["x"], given.x)
        np.testing.assert_array_equal(data["y"], given.y)
        table, train, test = rows_by(csv, 4 + s)
        np.testing.assert_allclose(given.x, np.asarray(table.x)[train], rtol=1e-6)
        np.testing.assert_allclose(given.y, np.asarray(table.y)[train], rtol=1e-6)
        pred = given.posterior.predict(np.asarray(table.x)[test])
        np.testing.assert_allclose(split["nll"], -np.asarray(pred.log_prob(np.asarray(table.y)[test])), rtol=1e-5)
        assert split["evidence"] == pytest.approx(float(given.posterior.evidence), rel=1e-6)
        assert (split["temperature"], split["steps"]) == (0.03, 77)
        assert split["prior_scales_tried"] == {0.5: 3.0, 0.25: 2.5}
        prior = given.runs.model.prior
        assert prior == (LearnedNormal(0.5).at(0.5) if kept else LearnedNormal(0.5))
        assert (given.runs.loop["epochs"], given.runs.rows, given.runs.folds) == (3, len(train), 0)
        np.testing.assert_allclose(given.runs.model.network.shift, given.x.mean(axis=0), rtol=1e-4)
    if kept:
        assert sorted(each.name for each in keep.iterdir()) == ["4", "5"]
        assert float(lamu.load(keep / "5").evidence) == float(way.given[1].posterior.evidence)
