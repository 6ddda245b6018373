"""What passes between stages: which rows, weights, offsets, temperatures, priors and seeds an inner fit is given.

The inner fit is a recorder, so that nothing is trained. Rows are known by the first number of their inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import composition, evidence_choice, folds, one_layer, simulation, validation_choice
from lamu.cli import learning
from lamu.data import Arrays, Encoding
from lamu.families import Point
from lamu.folds import epochs_of, folds_of
from lamu.likelihoods import Gaussian
from lamu.networks import Linear
from lamu.posterior import Posterior
from lamu.priors import LearnedNormal, Normal
from lamu.running.compiled_steps import keys_of
from lamu.running.conclusion import Diverged, Fit
from lamu.running.history import validation_nll, validation_pairs
from lamu.scores import Estimate

RANDOM = np.random.default_rng(0)
N = 23
NUMBER = np.arange(float(N))
X = np.column_stack([NUMBER, RANDOM.normal(size=N)])
Y = 0.1 * NUMBER + RANDOM.normal(size=N)
WEIGHT = 0.5 + NUMBER / N  # from 0.5 to 1.5
OFFSET = np.sin(NUMBER)
DATA = {"x": X, "y": Y, "weight": WEIGHT, "offset": OFFSET}
MODEL = lamu.Model(Linear(), Gaussian(1.5), Normal(1.0))
LEARNED = lamu.Model(Linear(), Gaussian(1.5), LearnedNormal(0.5))
IVON, LAPLACE = lamu.algorithms.ivon(), lamu.algorithms.laplace()
HANDED = {"batch_size": 5, "epochs": 3, "max_memory": "1GB", "likelihood_power": 0.7, "mesh": None, "progress": False}


@cache
def closed_form() -> Posterior:
    return lamu.fit(MODEL, DATA, lamu.algorithms.conjugate()).posterior


@dataclass(frozen=True)
class Call:
    """What a fit was given."""

    model: Any
    data: Any
    algorithm: Any
    options: dict[str, Any]

    @property
    def numbers(self) -> list[int]:
        return numbers_of(self.data)


class Recorder:
    """Stands for `lamu.fit`: keeps what it was given, and answers what a function of it says."""

    def __init__(self, answer: Callable[[Call], Fit]) -> None:
        self.answer = answer
        self.calls: list[Call] = []

    def __call__(self, model: Any, data: Any, algorithm: Any, **options: Any) -> Fit:
        self.calls.append(Call(model, data, algorithm, options))
        return self.answer(self.calls[-1])


def made(posterior: Posterior, *nll: float, model: Any = None) -> Fit:
    posterior = posterior if model is None else replace(posterior, model=model)
    return Fit(posterior, {"loss": np.zeros(1), "validation_nll": np.array(nll)}, None)


def numbers_of(rows: Any) -> list[int]:
    """Which rows they are, after a look at what goes with each."""
    rows = rows if isinstance(rows, Arrays) else MODEL.rows(rows)
    numbers = np.asarray(rows.x)[:, 0].astype(int)
    for name, whole in DATA.items():
        np.testing.assert_array_equal(np.asarray(getattr(rows, name)), whole[numbers], err_msg=name)
    return numbers.tolist()


def require_parted(learned: list[int], judging: list[int]) -> None:
    assert sorted(learned + judging) == list(range(N))


def weighted_nll(posterior: Posterior, rows: list[int], samples: int = 32) -> float:
    """By hand: the rows' density with their offset, weighed by their weights."""
    pred = posterior.predict(X[rows], samples=samples, offset=OFFSET[rows])
    return -float(np.average(np.asarray(pred.log_prob(Y[rows])), weights=WEIGHT[rows]))


# -------------------------------------------------------------------------------------------------------- every choice

CALLERS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "folds": (folds, lambda **options: lamu.fit_folds(LEARNED, DATA, IVON, folds=4, **options)),
    "prior scale": (validation_choice, lambda **options: lamu.fit_prior_scale(LEARNED, DATA, IVON, **options)),
    "temperature": (
        validation_choice,
        lambda temperature, **options: lamu.fit_temperature(MODEL, DATA, IVON, temperatures=(1.0, 0.3), **options),
    ),
    "evidence": (
        evidence_choice,
        lambda checkpoint, **options: lamu.fit_evidence(
            lambda scale: replace(MODEL, prior=Normal(scale)), DATA, IVON, choices={"scale": [1.0, 2.0]}, **options
        ),
    ),
    "priors": (
        validation_choice,
        lambda checkpoint, **options: lamu.prior_sensitivity(
            MODEL, DATA, {"a": Normal(1.0), "b": Normal(0.1)}, algorithm=IVON, **options
        ),
    ),
    "resamples": (
        composition,
        lambda checkpoint, **options: lamu.composition.bootstrap(MODEL, DATA, IVON, resamples=3, **options),
    ),
}


@pytest.mark.parametrize("name", CALLERS)
def test_every_run_has_rows_with_weights_and_offsets_and_all_that_was_asked(
    name: str, monkeypatch: Any, tmp_path: Path
) -> None:
    """Rows that judge are none that were learned from; each run has a folder of its own."""
    module, run = CALLERS[name]
    inner = Recorder(lambda call: made(closed_form(), 1.0, model=call.model))
    monkeypatch.setattr(module, "fit", inner)
    monkeypatch.setattr(evidence_choice, "evidence", lambda posterior, data: numbers_of(data) and Estimate(-1.0, 0.1))
    run(seed=11, temperature=0.3, checkpoint=tmp_path, **HANDED)
    assert len(inner.calls) > 1
    for call in inner.calls:
        assert call.algorithm is IVON
        assert call.model.likelihood == MODEL.likelihood
        for option, value in HANDED.items():
            assert call.options[option] == value
        assert call.options["temperature"] in ((0.3, 1.0) if name == "temperature" else (0.3,))
        assert call.options["seed"] - 11 in (range(4) if name == "folds" else (0,))
        judging = call.options.get("validation")
        if judging is not None:
            require_parted(call.numbers, numbers_of(judging))
        assert len(call.numbers) <= N
    places = [str(call.options["checkpoint"]) for call in inner.calls if "checkpoint" in call.options]
    assert len(set(places)) == len(places)
    assert all(place.startswith(str(tmp_path)) for place in places)


# ------------------------------------------------------------------------------------------------------------- folds


def test_every_member_of_folds_is_given_its_rows_and_a_seed_of_its_own(monkeypatch: Any, tmp_path: Path) -> None:
    inner = Recorder(lambda call: made(closed_form(), 9.0, 2.0 + len(call.numbers) / 100, 3.0, model=call.model))
    monkeypatch.setattr(folds, "fit", inner)
    found = lamu.fit_folds(MODEL, DATA, IVON, folds=4, seed=11, checkpoint=tmp_path)
    parts = folds_of(Y, 4, seed=11, stratify=False)
    assert [call.options["seed"] for call in inner.calls] == [11, 12, 13, 14]
    for k, call in enumerate(inner.calls):
        judging = numbers_of(call.options["validation"])
        assert judging == parts[k].tolist() == found.held[k].tolist()
        require_parted(call.numbers, judging)
        assert call.model.prior == Normal(1.0)
        np.testing.assert_allclose(found.nll[k], 2.0 + len(call.numbers) / 100)  # the best of its run
    places = {str(call.options["checkpoint"]) for call in inner.calls}
    assert places == {str(tmp_path / f"fold-{k}") for k in range(4)}
    assert len(found.fits) == len(found.posterior.belief.members) == 4
    assert found.scales == {}


def test_seeds_of_folds_wrap_and_their_own_defaults_stand_back(monkeypatch: Any) -> None:
    inner = Recorder(lambda call: made(closed_form(), 1.0))
    monkeypatch.setattr(folds, "fit", inner)
    lamu.fit_folds(MODEL, DATA, folds=3, seed=2**32 - 2)
    assert [call.options["seed"] for call in inner.calls] == [2**32 - 2, 2**32 - 1, 0]
    epochs = epochs_of(N * 2 / 3)
    for call in inner.calls:
        assert call.algorithm == lamu.algorithms.adam(lamu.rate.Annealed(0.01))
        given = {name: call.options[name] for name in ("batch_size", "epochs", "stop")}
        assert given == {"batch_size": 64, "epochs": epochs, "stop": epochs // 5}
    for asked in ({"epochs": 2}, {"steps": 3}, {"batch_size": 7}):
        lamu.fit_folds(MODEL, DATA, folds=2, **asked)
        given = inner.calls[-1].options
        assert all(given[name] == value for name, value in asked.items())
        assert ("stop" in given) == ("batch_size" in asked)
    lamu.fit_folds(MODEL, DATA, IVON, folds=2)
    assert set(inner.calls[-1].options) == {"seed", "validation", "checkpoint"}


def test_folds_of_classes_have_a_share_of_each(monkeypatch: Any) -> None:
    inner = Recorder(lambda call: made(closed_form(), 1.0))
    monkeypatch.setattr(folds, "fit", inner)
    y = (NUMBER >= 15).astype(int)
    lamu.fit_folds(lamu.Model(Linear(), lamu.likelihoods.Bernoulli()), (X, y), IVON, folds=4)
    assert {int(np.sum(call.options["validation"].y)) for call in inner.calls} == {2}


@pytest.mark.parametrize("enough", [1000, 5])
def test_the_scale_that_folds_choose_is_that_of_every_member(enough: int, monkeypatch: Any, tmp_path: Path) -> None:
    """By the folds' nll, each weighed by the weights of its rows; by the first fold alone where it has enough rows."""
    monkeypatch.setattr(folds, "_ENOUGH_ROWS", enough)
    parts = folds_of(Y, 4, seed=3, stratify=False)
    counts = np.array([WEIGHT[part].sum() for part in parts])
    heavy, light = int(np.argmax(counts)), int(np.argmin(counts))
    table = {scale: np.full(4, 1.0) for scale in (0.5, 1.0, 0.25)}
    # 0.25 is better by what the heavy fold says, 0.5 by the plain mean; the first fold alone says 0.25 too.
    table[0.25][heavy], table[0.25][light] = 0.9, 1.0 + 0.1 * np.sqrt(counts[heavy] / counts[light])
    assert table[0.25].mean() > 1.0 > np.average(table[0.25], weights=counts)
    if enough == 5:
        table[0.25] = np.array([0.9, 5.0, 5.0, 5.0])
    number_of = {tuple(part): k for k, part in enumerate(parts)}
    fold = lambda call: number_of[tuple(numbers_of(call.options["validation"]))]
    inner = Recorder(lambda call: made(closed_form(), table[call.model.prior.scale][fold(call)], model=call.model))
    monkeypatch.setattr(folds, "fit", inner)
    found = lamu.fit_folds(LEARNED, DATA, IVON, folds=4, seed=3, checkpoint=tmp_path)
    judging = 4 if enough == 1000 else 1
    asked = [(scale, k) for scale in (0.5, 1.0, 0.25) for k in range(judging)]
    asked += [(0.25, k) for k in range(judging, 4)]
    assert [(call.model.prior.scale, fold(call)) for call in inner.calls] == asked
    for call in inner.calls:
        assert call.options["seed"] == 3 + fold(call)
    assert [each.posterior.model.prior for each in found.fits] == [Normal(0.25)] * 4
    assert found.posterior.model.prior == Normal(0.25)
    np.testing.assert_array_equal(found.nll, table[0.25])
    expected = {s: np.average(table[s][:judging], weights=counts[:judging]) for s in table}
    assert found.scales == pytest.approx(expected)


# ------------------------------------------------------------------------------------------------------- temperature

NOISE = {
    1.0: 4.0,
    0.3: 1.2,
    0.1: 0.8,
    0.03: 0.2,
    0.01: 0.8,
}  # the noise of the posterior that each temperature stands for


def at_temperature(call: Call) -> Fit:
    likelihood = Gaussian(NOISE[call.options["temperature"]])
    return made(closed_form(), 1.0, model=replace(call.model, likelihood=likelihood))


@pytest.mark.parametrize("chosen_aside", [False, True])
def test_the_temperature_is_judged_by_rows_that_were_not_learned_from(
    chosen_aside: bool, monkeypatch: Any, tmp_path: Path
) -> None:
    inner = Recorder(at_temperature)
    monkeypatch.setattr(validation_choice, "fit", inner)
    judging = list(range(2, N, 3))
    rows = {name: values[judging] for name, values in DATA.items()}
    validation = rows if chosen_aside else 0.3
    data = DATA if not chosen_aside else {name: np.delete(v, judging, axis=0) for name, v in DATA.items()}
    options = {"temperatures": tuple(NOISE), "validation": validation, "checkpoint": tmp_path, "steps": 2}
    found = lamu.fit_temperature(MODEL, data, IVON, **options)
    *compared, last = inner.calls
    learned = compared[0].numbers
    judging = sorted(set(range(N)) - set(learned))
    assert len(judging) == 7
    expected = {}
    for temperature, noise in NOISE.items():
        posterior = replace(closed_form(), model=replace(MODEL, likelihood=Gaussian(noise)))
        expected[temperature] = weighted_nll(posterior, judging, samples=64)
        if expected[temperature] > min(expected.values()):
            break
    assert list(expected) == [1.0, 0.3, 0.1, 0.03]  # the last is worse, and no other is tried
    assert found.temperatures == pytest.approx(expected, rel=1e-6)
    assert [call.options["temperature"] for call in compared] == list(expected)
    best = preferred_by_hand(list(expected), judging)
    assert best == 0.3  # 0.1 has the smaller mean, and 1 is worse by more than two standard errors
    for call in compared:
        assert call.numbers == learned
        assert "validation" not in call.options
        assert call.options["checkpoint"].name == f"temperature-{call.options['temperature']:g}"
    assert last.options["temperature"] == best
    assert last.numbers == (list(range(N)) if not chosen_aside else learned)
    assert last.model is MODEL
    assert "validation" not in last.options
    assert last.options["checkpoint"].name == "last"
    assert found.posterior is found.fit.posterior
    assert found.posterior.model.likelihood == Gaussian(NOISE[best])
    assert found.scales == {}


def preferred_by_hand(temperatures: list[float], judging: list[int]) -> float:
    """The first temperature that is within two standard errors, or one nat of all rows, of the best."""
    rows = {}
    for temperature in temperatures:
        posterior = replace(closed_form(), model=replace(MODEL, likelihood=Gaussian(NOISE[temperature])))
        pred = posterior.predict(X[judging], samples=64, offset=OFFSET[judging])
        rows[temperature] = -np.asarray(pred.log_prob(Y[judging]), float)
    w = WEIGHT[judging] / WEIGHT[judging].sum()
    best = min(temperatures, key=lambda each: np.sum(w * rows[each]))
    for temperature in temperatures:
        more = rows[temperature] - rows[best]
        mean = np.sum(w * more)
        if mean <= max(2 * np.sqrt(np.sum(w**2 * (more - mean) ** 2)), np.sum(w**2)):
            return temperature
    raise AssertionError


def test_of_few_rows_each_fifth_judges_in_turn(monkeypatch: Any, tmp_path: Path) -> None:
    inner = Recorder(at_temperature)
    monkeypatch.setattr(validation_choice, "fit", inner)
    found = lamu.fit_temperature(MODEL, DATA, IVON, temperatures=tuple(NOISE), steps=2, checkpoint=tmp_path)
    *compared, last = inner.calls
    judging = [sorted(set(range(N)) - set(call.numbers)) for call in compared]
    in_turn = [row for rows in judging[:5] for row in rows]
    assert sorted(in_turn) == list(range(N))  # each row judges once
    assert judging == judging[:5] * (len(compared) // 5)
    expected = {}
    for temperature in found.temperatures:
        posterior = replace(closed_form(), model=replace(MODEL, likelihood=Gaussian(NOISE[temperature])))
        expected[temperature] = weighted_nll(posterior, list(range(N)), samples=64)
    assert found.temperatures == pytest.approx(expected, rel=1e-6)
    assert last.options["temperature"] == preferred_by_hand(list(expected), in_turn)
    assert last.numbers == list(range(N))
    places = [call.options["checkpoint"].name for call in compared]
    assert places[:6] == [*(f"temperature-1-fold-{k}" for k in range(5)), "temperature-0.3-fold-0"]
    assert len(set(places)) == len(places)


def test_as_many_rows_judge_as_are_needed() -> None:
    rows = Arrays.of((np.arange(1000.0)[:, None], np.zeros(1000)))
    for fewest, parts in ((1, 1), (200, 1), (201, 2), (900, 5), (5000, 5)):
        pairs = validation_pairs(rows, None, MODEL, 0, 0.2, fewest)
        assert [held.count for _, held in pairs] == [200] * parts
    with pytest.raises(ValueError, match="1 row is too few to fit and to validate"):
        validation_pairs(rows.take(np.arange(1)), None, MODEL, 0, 0.2, 128)


def test_many_rows_choose_the_scale_with_the_temperature(monkeypatch: Any) -> None:
    """Scales at the first temperature, temperatures at the best scale, and scales again at the best temperature."""
    noise = {  # of the posterior that stands for each pair
        (1.0, 0.5): 9.0, (1.0, 1.0): 7.0, (1.0, 0.25): 11.0, (1.0, 2.0): 7.5,
        (0.3, 1.0): 3.0, (0.1, 1.0): 4.0, (0.3, 2.0): 1.2, (0.3, 0.5): 6.0, (0.3, 4.0): 8.0,
    }  # fmt: skip

    def answer(call: Call) -> Fit:
        likelihood = Gaussian(noise[call.options["temperature"], call.model.prior.scale])
        return made(closed_form(), model=replace(call.model, likelihood=likelihood))

    inner = Recorder(answer)
    monkeypatch.setattr(validation_choice, "fit", inner)
    monkeypatch.setattr(validation_choice, "_MANY", 4)
    found = lamu.fit_temperature(LEARNED, DATA, IVON, temperatures=(1.0, 0.3, 0.1), validation=0.3, steps=2)
    *compared, last = inner.calls
    assert [(call.options["temperature"], call.model.prior.scale) for call in compared] == list(noise)
    assert (last.options["temperature"], last.model.prior) == (0.3, Normal(2.0))
    assert list(found.temperatures) == [1.0, 0.3, 0.1]
    assert list(found.scales) == [1.0, 2.0, 0.5, 4.0]
    assert min(found.scales, key=lambda each: found.scales[each]) == 2.0
    classes = replace(LEARNED, likelihood=lamu.likelihoods.Bernoulli())
    assert len(compared) <= sum(validation_choice.most_fits(classes, IVON, 6000))


def test_the_prior_that_rows_chose_with_the_temperature_is_that_of_the_last_run(monkeypatch: Any) -> None:
    def answer(call: Call) -> Fit:
        found, temperature = at_temperature(call), call.options["temperature"]
        under = replace(found.posterior.model, prior=Normal(2.0 + temperature))
        return replace(found, posterior=replace(found.posterior, model=under))

    inner = Recorder(answer)
    monkeypatch.setattr(validation_choice, "fit", inner)
    monkeypatch.setattr(validation_choice, "_MANY", 4)
    found = lamu.fit_temperature(LEARNED, DATA, LAPLACE, temperatures=tuple(NOISE), validation=0.3, steps=4)
    *compared, last = inner.calls
    for call in compared:
        assert call.model.prior == LearnedNormal(0.5)
        require_parted(call.numbers, numbers_of(call.options["validation"]))
        assert numbers_of(call.options["validation"]) == numbers_of(compared[0].options["validation"])
    best = last.options["temperature"]
    assert best in found.temperatures
    assert best != 1.0
    assert last.model.prior == Normal(2.0 + best)
    assert last.numbers == list(range(N))

    inner = Recorder(answer)  # few rows choose the temperature alone, and the algorithm its prior by the evidence
    monkeypatch.setattr(validation_choice, "fit", inner)
    monkeypatch.setattr(validation_choice, "_MANY", 1000)
    lamu.fit_temperature(LEARNED, DATA, LAPLACE, temperatures=(1.0, 0.3), steps=4)
    assert all("validation" not in call.options for call in inner.calls)
    assert inner.calls[-1].model.prior == LearnedNormal(0.5)


def test_a_temperature_alone_is_that_of_the_only_run(monkeypatch: Any) -> None:
    inner = Recorder(lambda call: made(closed_form()))
    monkeypatch.setattr(validation_choice, "fit", inner)
    assert lamu.fit_temperature(MODEL, DATA, IVON, temperatures=(0.25,), seed=2).temperatures == {}
    (call,) = inner.calls
    assert (call.options["temperature"], call.options["seed"], call.numbers) == (0.25, 2, list(range(N)))
    lamu.fit_temperature(MODEL, DATA, IVON)  # of a regression none is tried but 1
    assert inner.calls[-1].options["temperature"] == 1.0
    n = len(inner.calls)
    point = replace(closed_form(), belief=Point(closed_form().belief.mean))
    inner.answer = lambda call: made(point)
    found = lamu.fit_temperature(MODEL, DATA, IVON, temperatures=(0.5, 0.1), steps=2)
    assert found.temperatures == {}
    assert [call.options["temperature"] for call in inner.calls[n:]] == [0.5, 0.5]


def test_runs_that_compare_temperatures_are_short_and_the_last_one_as_long_as_it_takes(monkeypatch: Any) -> None:
    inner = Recorder(at_temperature)
    monkeypatch.setattr(validation_choice, "fit", inner)
    lamu.fit_temperature(MODEL, DATA, IVON, temperatures=tuple(NOISE))
    *compared, last = inner.calls
    assert len({call.options["steps"] for call in compared}) == 1
    assert compared[0].options["steps"] % 3 == 0
    assert "steps" not in last.options


# ------------------------------------------------------------------------------------------------------- prior scale


def test_the_scale_is_judged_by_rows_that_were_not_learned_from(monkeypatch: Any, tmp_path: Path) -> None:
    ends = {0.5: 2.0, 1.0: 3.0, 0.25: 1.5, 0.125: 1.4, 0.0625: 1.45}

    def answer(call: Call) -> Fit:
        end = ends[call.model.prior.scale]
        # The last five are averaged; those before, and the smallest, do not count.
        return made(closed_form(), -9.0, -9.0, end - 0.2, end + 0.2, end, end - 0.1, end + 0.1, model=call.model)

    inner = Recorder(answer)
    monkeypatch.setattr(validation_choice, "fit", inner)
    found = lamu.fit_prior_scale(LEARNED, DATA, IVON, validation=0.3, checkpoint=tmp_path, steps=3)
    *compared, last = inner.calls
    assert found.scales == pytest.approx(ends)
    assert [call.model.prior for call in compared] == [Normal(scale) for scale in ends]
    judging = numbers_of(compared[0].options["validation"])
    assert len(judging) == 7
    for call in compared:
        assert numbers_of(call.options["validation"]) == judging
        require_parted(call.numbers, judging)
        assert call.options["checkpoint"].name == f"scale-{call.model.prior.scale:g}"
    assert last.model.prior == Normal(0.125)
    assert last.numbers == list(range(N))
    assert "validation" not in last.options
    assert last.options["checkpoint"].name == "last"
    assert found.posterior is found.fit.posterior
    assert found.posterior.model.prior == Normal(0.125)


def test_rows_that_choose_the_scale_may_be_given(monkeypatch: Any) -> None:
    inner = Recorder(lambda call: made(closed_form(), call.model.prior.scale, model=call.model))
    monkeypatch.setattr(validation_choice, "fit", inner)
    judging = {name: values[:6] for name, values in DATA.items()}
    rest = {name: values[6:] for name, values in DATA.items()}
    found = lamu.fit_prior_scale(LEARNED, rest, IVON, validation=judging)
    assert found.posterior.model.prior == Normal(0.0625)
    *compared, last = inner.calls
    for call in compared:
        assert numbers_of(call.options["validation"]) == list(range(6))
        assert call.numbers == last.numbers == list(range(6, N))
        assert call.options["steps"] % 3 == 0  # they compare, and are short
    assert "steps" not in last.options


@pytest.mark.parametrize(
    ("model", "algorithm", "told"),
    [(MODEL, IVON, False), (LEARNED, LAPLACE, True), (LEARNED, lamu.mcmc.nuts(), False)],
    ids=["known", "laplace", "sampler"],
)
def test_where_no_scale_is_compared_one_fit_has_all_rows(
    model: Any, algorithm: Any, told: bool, monkeypatch: Any
) -> None:
    inner = Recorder(lambda call: made(closed_form()))
    monkeypatch.setattr(validation_choice, "fit", inner)
    found = lamu.fit_prior_scale(model, DATA, algorithm, validation=0.25, seed=4, temperature=0.5)
    (call,) = inner.calls
    guess = model if told or model is MODEL else replace(model, prior=Normal(LEARNED.prior.start))
    assert (call.model, call.algorithm, call.numbers) == (guess, algorithm, list(range(N)))
    assert (call.options["seed"], call.options["temperature"]) == (4, 0.5)
    assert call.options.get("validation") == (0.25 if told else None)
    assert found.scales == {}


# --------------------------------------------------------------------------------------- what a run itself validates


def test_rows_set_aside_are_judged_with_their_weights_and_offsets() -> None:
    """A fit of no step at the conjugate posterior: the validation is the weighted mean by hand."""
    objective = lamu.objective.Objective(MODEL, float(N))
    algorithm = lamu.algorithms.adam(0.01)
    held = MODEL.rows({name: values[3:11] for name, values in DATA.items()})
    state = algorithm.init(jax.random.key(0), objective, held.full())
    point = algorithm.preview(jax.random.key(0), state, objective)
    handle = lamu.running.compiled_steps.handle(algorithm)
    found = validation_nll(handle, jax.random.key(1), state, objective, held)
    np.testing.assert_allclose(found, weighted_nll(point, list(range(3, 11))), rtol=1e-6)
    without = validation_nll(handle, jax.random.key(1), state, objective, replace(held, offset=None))
    assert abs(found - without) > 1e-3


# ----------------------------------------------------------------------------------------- bootstrap, evidence, priors


def test_resamples_are_rows_with_their_weights_and_offsets(monkeypatch: Any) -> None:
    inner = Recorder(lambda call: made(closed_form(), model=call.model))
    monkeypatch.setattr(composition, "fit", inner)
    lamu.composition.bootstrap(MODEL, DATA, IVON, resamples=3, seed=6)
    drawn = [call.numbers for call in inner.calls]
    assert all(len(numbers) == N for numbers in drawn)
    assert len({tuple(numbers) for numbers in drawn}) == 3
    assert all(len(set(numbers)) < N for numbers in drawn)  # with replacement
    lamu.composition.bootstrap(MODEL, DATA, IVON, resamples=3, seed=7)
    assert inner.calls[-1].numbers != drawn[-1]


def test_the_evidence_of_every_model_is_of_the_data_that_were_fitted(monkeypatch: Any) -> None:
    def answer(call: Call) -> Fit:
        if call.model.prior.scale == 4.0:
            raise Diverged("the loss is inf at step 1", None)
        return made(closed_form(), model=call.model)

    inner, asked = Recorder(answer), []

    def evidence(posterior: Posterior, data: Any) -> Estimate:
        asked.append(data)
        return Estimate(-abs(float(posterior.model.prior.scale) - 2.0), 0.1)

    monkeypatch.setattr(evidence_choice, "fit", inner)
    monkeypatch.setattr(evidence_choice, "evidence", evidence)
    build = lambda scale: lamu.Model(Linear(), Gaussian(1.5), Normal(scale))
    scales = [1.0, 4.0, 2.5, 0.5]
    found = lamu.fit_evidence(build, DATA, IVON, choices={"scale": scales})
    assert [call.model.prior.scale for call in inner.calls] == scales
    assert all(data is DATA for data in asked)
    assert found.chosen == {"scale": 2.5}
    assert found.posterior.model.prior == Normal(2.5)
    assert [value.value for _, value in found.tried] == [-1.0, -np.inf, -0.5, -1.5]
    assert [psi["scale"] for psi, _ in found.tried] == scales
    assert found.evidence.value == -0.5


def test_priors_are_compared_by_fits_that_differ_in_them_alone(monkeypatch: Any) -> None:
    inner = Recorder(lambda call: made(closed_form(), model=call.model))
    monkeypatch.setattr(validation_choice, "fit", inner)
    priors = {"a": Normal(1.0), "b": Normal(0.1), "c": lamu.priors.Laplace(1.0)}
    found = lamu.prior_sensitivity(MODEL, DATA, priors, x=X[:3], algorithm=IVON)
    assert [call.model.prior for call in inner.calls] == list(priors.values())
    assert list(found.fits) == ["a", "b", "c"]
    assert list(found.distances) == ["b", "c"]


def test_predictions_under_several_priors_have_the_offsets_of_their_rows(monkeypatch: Any) -> None:
    """Those of the data where no x is given, whole rows of a mapping; else those that come with x."""
    asked: list[Any] = []
    pred = SimpleNamespace(mean=np.zeros(3), std=np.ones(3))
    predict = lambda self, x, offset=None: asked.append((x, offset)) or pred
    monkeypatch.setattr(validation_choice, "fit", Recorder(lambda call: made(closed_form(), model=call.model)))
    monkeypatch.setattr(type(closed_form()), "predict", predict)
    rows, offset, other = {"x": X, "y": Y, "offset": np.arange(len(X)) / 7}, np.arange(len(X)) / 7, np.arange(3.0)
    two = {"one": Normal(1.0), "two": Normal(2.0)}
    lamu.prior_sensitivity(MODEL, rows, two, algorithm=IVON)
    lamu.prior_sensitivity(MODEL, rows, two, x=X[:3], offset=other, algorithm=IVON)
    for x, given in asked[:2]:
        np.testing.assert_array_equal(x, X)
        np.testing.assert_array_equal(given, offset)
    for x, given in asked[2:]:
        np.testing.assert_array_equal(x, X[:3])
        np.testing.assert_array_equal(given, other)
    assert len(asked) == 4


def test_regression_hands_on_prior_likelihood_algorithm_and_seed(monkeypatch: Any) -> None:
    inner = Recorder(lambda call: made(closed_form()))
    monkeypatch.setattr(one_layer, "fit", inner)
    nuts = lamu.mcmc.nuts()
    lamu.regression(X, Y, Gaussian(0.3), prior=Normal(0.7), algorithm=nuts, seed=13)
    (call,) = inner.calls
    assert call.algorithm is nuts
    assert call.options["seed"] == 13
    assert call.model.prior == Normal(0.7)
    assert call.model.likelihood.base == Gaussian(0.3)
    np.testing.assert_allclose(float(call.model.likelihood.shift), Y.mean())
    np.testing.assert_allclose(float(call.model.likelihood.scale), Y.std())
    np.testing.assert_allclose(call.model.network.scale, X.std(axis=0))
    np.testing.assert_array_equal(call.data["x"], X)
    np.testing.assert_array_equal(call.data["y"], Y)
    assert set(call.data) == {"x", "y"}
    lamu.regression(X, Y, Gaussian(0.3), weight=np.full(N, 2.0), offset=np.full(N, 0.5))
    np.testing.assert_array_equal(inner.calls[-1].data["weight"], np.full(N, 2.0))
    np.testing.assert_array_equal(inner.calls[-1].data["offset"], np.full(N, 0.5))
    lamu.regression(X, (Y > 1).astype(int), "logit", seed=14)
    call = inner.calls[-1]
    assert call.options["seed"] == 14
    assert call.options["batch_size"] == N  # the whole data, at every step
    assert call.model.prior == Normal({"*bias": 10.0, "*": 2.5})


def test_simulations_have_targets_and_seeds_of_their_own(monkeypatch: Any) -> None:
    prior = lamu.fit(MODEL, {"x": X, "y": Y, "weight": np.full(N, 1.0)}, lamu.algorithms.conjugate()).posterior
    inner = Recorder(lambda call: made(prior))
    monkeypatch.setattr(simulation, "fit", inner)
    algorithm = lamu.algorithms.conjugate()
    found = lamu.simulation_based_calibration(MODEL, algorithm, X, runs=10, samples=9, seed=3, steps=4)
    assert [call.options["seed"] for call in inner.calls] == [3 + run for run in range(10)]
    targets = np.stack([call.data[1] for call in inner.calls])
    assert len(np.unique(targets, axis=0)) == 10
    residual = targets - targets.mean(axis=0)
    assert np.abs(np.corrcoef(residual)[np.triu_indices(10, 1)]).max() < 0.999
    for call in inner.calls:
        np.testing.assert_array_equal(call.data[0], X)
        assert (call.model, call.algorithm) == (MODEL, algorithm)
        assert call.options["steps"] == 4
    assert found.ranks.shape == (10, 4)
    # What the keys of the first run's steps would simulate is no run's targets.
    for run in range(10):
        prior_key, target_key, _ = jax.random.split(jax.random.fold_in(keys_of(3).step, run), 3)
        params, state = MODEL.init(jax.random.key(0), lamu.data.Batch.of(jnp.asarray(X), jnp.zeros(N)))
        theta = {"network": MODEL.prior.sample(prior_key, params["network"]), "likelihood": {}}
        shared = MODEL.likelihood.sample(target_key, {}, MODEL.outputs(theta, state, jnp.asarray(X))[0])
        assert not np.allclose(targets[run], shared)
    again = lamu.simulation_based_calibration(MODEL, algorithm, X, runs=10, samples=9, seed=4, steps=4)
    assert not np.array_equal(again.ranks, found.ranks)
    np.testing.assert_array_equal(inner.calls[10].data[0], X)
    assert not np.array_equal(inner.calls[10].data[1], targets[0])


def test_the_likelihood_is_chosen_by_rows_with_their_own_targets(monkeypatch: Any) -> None:
    asked: list[Any] = []

    def compared(x: Any, y: Any, names: Any, **options: Any) -> dict[str, np.ndarray]:
        asked.append((x, y, names, options))
        return {name: np.arange(len(y)) * 0.01 + (name == "negative_binomial") for name in names}

    monkeypatch.setattr(learning, "compare_likelihoods", compared)
    monkeypatch.setattr(learning, "_MOST_ROWS", 50)
    number = np.arange(80.0)
    counts = np.random.default_rng(0).poisson(2.0, 80) + 0.0
    data = {"x": number[:, None], "y": counts, "weight": number + 1.0, "groups": number % 2}
    found = learning.choose(Encoding("y", "regression", (), ("a",)), data, seed=21)
    ((x, y, names, options),) = asked
    numbers = x[:, 0].astype(int)
    np.testing.assert_array_equal(options.pop("weight"), numbers + 1.0)
    np.testing.assert_array_equal(options.pop("groups"), numbers % 2)
    assert options == {"folds": 2, "seed": 21}
    assert len(np.unique(numbers)) == 50
    np.testing.assert_array_equal(y, counts[numbers])
    assert found.name == "negative_binomial"
    mean = np.average(np.arange(50) * 0.01, weights=numbers + 1.0)
    assert found.tried == pytest.approx({name: mean + (name == "negative_binomial") for name in names})


def test_stacking_weighs_rows_and_gives_them_their_offset() -> None:
    """Weights and offsets by hand: a weight of two is the row written twice."""
    members = [replace(closed_form(), model=replace(MODEL, likelihood=Gaussian(scale))) for scale in (0.4, 3.0)]
    counts = np.where(np.abs(Y - np.asarray(closed_form().predict(X, offset=OFFSET).mean)) > 1.0, 3, 1)
    every = np.repeat(np.arange(N), counts)
    found = lamu.composition.stack(members, X, Y, weight=counts, offset=OFFSET)
    repeated = lamu.composition.stack(members, X[every], Y[every], offset=OFFSET[every])
    np.testing.assert_allclose(found.weights, repeated.weights, rtol=1e-4)
    for other in (
        lamu.composition.stack(members, X, Y, offset=OFFSET),
        lamu.composition.stack(members, X, Y, weight=counts),
    ):
        assert np.abs(found.weights - other.weights).max() > 1e-2
    with pytest.raises(ValueError, match="does not fit; give 23 weights"):
        lamu.composition.stack(members, X, Y, weight=-counts)


def test_temperature_scaling_weighs_rows() -> None:
    """A weight of two is the row written twice."""
    counts = 1 + (np.arange(N) % 3 == 0) + (np.arange(N) % 5 == 0)
    every = np.repeat(np.arange(N), counts)
    classes = lamu.Model(Linear(), lamu.likelihoods.Bernoulli(), Normal(1.0))
    for posterior, y in (
        (closed_form(), Y),
        (lamu.fit(classes, (X, NUMBER % 2), lamu.algorithms.adam(0.1), epochs=3).posterior, (NUMBER % 3 == 0) * 1),
    ):
        scaled = lambda rows, weight, posterior=posterior, y=y: float(
            lamu.calibration.temperature_scaling(posterior.predict(X[rows]), y[rows], weight).value
        )
        rows = np.arange(N)
        np.testing.assert_allclose(scaled(rows, counts), scaled(every, None), rtol=1e-4)
        assert abs(scaled(rows, counts) / scaled(rows, None) - 1) > 1e-3
    with pytest.raises(ValueError, match="does not fit; give 23 weights"):
        scaled(rows, -counts)


def test_likelihoods_are_compared_with_weights_and_offsets_of_rows() -> None:
    random = np.random.default_rng(2)
    x = random.normal(size=(60, 1))
    offset, far = 2.0 * np.sin(np.arange(60.0)), np.arange(60) % 7 == 0
    score = lambda name, y, **given: lamu.compare_likelihoods(x, y, [name], **given)[name][~far].mean()
    outliers = x[:, 0] + 0.3 * random.normal(size=60) + 50.0 * far
    assert score("gaussian", outliers, weight=1.0 - far) > score("gaussian", outliers) + 1.0
    counts = random.poisson(np.exp(x[:, 0] + offset))
    assert score("poisson", counts, offset=offset) > score("poisson", counts) + 0.5


def test_evidence_at_draws_counts_weights_and_offsets() -> None:
    """Of an exact posterior the bound is the evidence at every draw, weights and offsets in it."""
    posterior = closed_form()
    found = lamu.scores.elbo(posterior, DATA, samples=4)
    design = np.column_stack([X, np.ones(N)])
    # A weight is a power of the density: a normal of precision w / σ², and what that leaves of its constant.
    precision = WEIGHT / 1.5**2
    covariance = design @ design.T + np.diag(1 / precision)
    r = Y - OFFSET
    log_normal = -0.5 * (r @ np.linalg.solve(covariance, r) + np.linalg.slogdet(2 * np.pi * covariance)[1])
    constants = np.sum(-0.5 * WEIGHT * np.log(2 * np.pi * 1.5**2) + 0.5 * np.log(2 * np.pi / precision))
    np.testing.assert_allclose(found.value, log_normal + constants, rtol=1e-6)
    np.testing.assert_allclose(float(posterior.evidence), log_normal + constants, rtol=1e-6)
    assert found.error < 1e-6
    assert jnp.isfinite(found.value)
