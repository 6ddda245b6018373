"""What comes after the steps: errors and warnings of a later stage."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lamu
from lamu.convergence import Convergence
from lamu.posterior import Posterior
from lamu.protocol import Wrapper
from lamu.record import record, static
from lamu.running.schedule import Rounds

X, Y = np.linspace(-1, 1, 48, dtype=np.float32)[:, None], np.linspace(0, 1, 48, dtype=np.float32)
MODEL = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5))
MADE: list[int] = []


@record
class Later(Wrapper):
    """An algorithm with a later stage that does as it is told."""

    fails: bool = static(default=False)
    enough_after: int = static(default=1)

    @property
    def traits(self) -> Any:
        return replace(self.base.traits, needs_data_pass=True)

    def preview(self, key: Any, state: Any, objective: Any) -> Posterior:
        """Fails where the later stage does."""
        if self.fails:
            raise RuntimeError("the preview fails as well")
        return self.base.posterior(key, state, objective, None, None)

    def posterior(self, key: Any, state: Any, objective: Any, data: Any, trace: Any) -> Posterior:
        """Warns of each posterior by its number, or fails."""
        if self.fails:
            raise ArithmeticError("the later stage fails")
        MADE.append(len(MADE))
        warnings.warn(f"posterior number {len(MADE)}", UserWarning, stacklevel=2)
        found = self.base.posterior(key, state, objective, data, trace)
        residual = 0.0 if len(MADE) >= self.enough_after else 100.0
        return replace(found, convergence=Convergence(residual=residual, dimension=1))


def later(**choices: Any) -> Later:
    """Returns adam with a later stage."""
    MADE.clear()
    return Later(lamu.algorithms.adam(), **choices)


def test_the_first_error_is_told_where_the_preview_fails_as_well():
    with pytest.raises(ArithmeticError, match="the later stage fails"):
        lamu.fit(MODEL, (X, Y), later(fails=True), epochs=1)


def test_warnings_of_rounds_that_are_gone_on_from_are_not_said():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        lamu.fit(MODEL, (X, Y), later(enough_after=3), batch_size=16)
    assert [str(each.message) for each in said if "posterior number" in str(each.message)] == ["posterior number 3"]


def test_a_run_at_its_limit_makes_its_last_posterior_once(monkeypatch):
    monkeypatch.setattr("lamu.running.schedule._FIRST", 16)
    monkeypatch.setattr("lamu.running.schedule._MOST", 48)
    monkeypatch.setattr("lamu.running.schedule._MOST_EPOCHS", 1)
    algorithm = later(enough_after=100)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit = lamu.fit(MODEL, (X, Y), algorithm, batch_size=16)
    rounds = Rounds.of(algorithm.traits, 48, 16)
    assert (len(fit.history["loss"]), len(MADE)) == (rounds.limit, rounds.count)
    assert sum(issubclass(each.category, lamu.Unconverged) for each in said) == 1
