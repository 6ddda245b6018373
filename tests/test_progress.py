"""The bar of several runs: how far all of them are, and how long they go on."""

from __future__ import annotations

import numpy as np
import pytest

import lamu
from lamu.running.progress import Progress, SeveralRuns

X, Y = lamu.data.load("iris")
MODEL = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Categorical(3)).standardised(X, Y)


class Clock:
    """Stands for the time, which each block of steps takes a second of."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def block(self, done: int, last: object) -> None:
        self.now += 1


CLOCK = Clock()
EQUAL = {"epochs": 23, "batch_size": 50, "callbacks": [CLOCK.block]}  # a prime number of epochs, each a block


@pytest.fixture
def seen(monkeypatch) -> list[tuple[float, float | None, float]]:
    """What the outermost bar tells: its fraction, the seconds that it says are left, and the time."""
    told = []
    monkeypatch.setattr("lamu.running.progress.monotonic", CLOCK)
    monkeypatch.setattr(Progress, "_draw", lambda bar, loss: told.append((bar.fraction, bar.left, CLOCK.now)))
    return told


def folds() -> None:
    lamu.fit_folds(MODEL, (X, Y), lamu.algorithms.adam(1e-2), folds=3, **EQUAL)


def folds_and_scales() -> None:
    model = lamu.Model(lamu.networks.MLP((4,)), lamu.likelihoods.Categorical(3), lamu.priors.LearnedNormal(1.0))
    lamu.fit_folds(model.standardised(X, Y), (X, Y), lamu.algorithms.adam(1e-2), folds=2, epochs=23, stop=1)


def temperatures() -> None:
    lamu.fit_temperature(MODEL, (X, Y), lamu.algorithms.ivon(), temperatures=(1.0, 0.1), **EQUAL)


def prior_scales() -> None:
    model = lamu.Model(MODEL.network, MODEL.likelihood, lamu.priors.LearnedNormal(1.0))
    lamu.fit_prior_scale(model, (X, Y), lamu.algorithms.adam(1e-2), steps=67)


def evidences() -> None:
    build = lambda scale: lamu.Model(MODEL.network, MODEL.likelihood, lamu.priors.Normal(scale))
    choices = {"scale": [0.3, 1.0, 3.0, 10.0]}
    lamu.fit_evidence(build, (X, Y), lamu.algorithms.ivon(), choices=choices, **EQUAL)


def climbed_evidence() -> None:
    build = lambda scale: lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0), lamu.priors.Normal(scale))
    lamu.fit_evidence(build, (X[:, 1:], X[:, 0]), lamu.algorithms.conjugate(), numbers={"scale": 1.0})


def priors() -> None:
    kinds = {f"{scale}": lamu.priors.Normal(scale) for scale in (1.0, 0.1, 0.01)}
    lamu.prior_sensitivity(MODEL, (X, Y), kinds, algorithm=lamu.algorithms.adam(1e-2), epochs=23, batch_size=50)


OF_EQUAL_STEPS, OTHERS = [folds, temperatures, evidences], [folds_and_scales, prior_scales, climbed_evidence, priors]


@pytest.mark.sampled
@pytest.mark.parametrize("choose", [*OF_EQUAL_STEPS, *OTHERS], ids=lambda choose: choose.__name__)
def test_the_fraction_of_several_runs_rises_to_one(choose, seen) -> None:
    choose()
    fractions = np.array([fraction for fraction, _, _ in seen])
    assert len(fractions) > 4
    assert (np.diff(fractions) >= 0).all()
    assert 0 < fractions[0] < 0.5
    assert fractions[-1] == 1
    if choose in OF_EQUAL_STEPS:  # after a third of the work the time left is right within a factor of two
        _, left, at = next(each for each in seen if each[0] > 1 / 3)
        assert left is not None
        assert 0.5 < left / (seen[-1][2] - at) < 2.0


def test_runs_that_are_passed_over_say_nothing_of_the_time(monkeypatch) -> None:
    clock = iter([0.0, 1.0, 2.0])
    monkeypatch.setattr("lamu.running.progress.monotonic", lambda: next(clock))
    with SeveralRuns(9, False, "runs", last=2.0, at_most=True) as bar:
        bar.part(0.0)
        bar.part(1.0)
        bar.part_ended()
        assert (bar.fraction, bar.left) == (0.1, 9.0)
        bar.begin_last()
        bar.part(0.5)
        assert (bar.fraction, bar.left) == (0.9, 1.0)
    assert bar.fraction == 1.0


def test_a_process_goes_on_with_the_bar_of_the_one_before(monkeypatch) -> None:
    monkeypatch.setattr("lamu.running.progress.monotonic", lambda: 100.0)
    with SeveralRuns(2, False, "runs", done=2, of=6, seconds=8.0) as bar:
        assert (bar.fraction, bar.left) == (1 / 3, 16.0)
        with SeveralRuns(4, None, "folds") as inside, Progress(10, None) as run:
            run.update(5)
            assert inside.done == 0.5
            assert bar.done == 2.125
        assert bar.done == 3.0
    assert bar.fraction == 4 / 6
