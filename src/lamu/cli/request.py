"""What was asked of `lamu fit` and `lamu compare`, with the defaults of what was not."""

# Algorithms and likelihoods are imported where they are used, so that a table is read, and said, before them.

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lamu.data import Encoding, split
from lamu.data.table import Table, read
from lamu.data.wording import nearest
from lamu.memory import parse as parse_size
from lamu.typing import Data, Inputs, Targets

if TYPE_CHECKING:
    from lamu.cli.learning import Chosen

__all__ = ["Request", "learning_rows"]


@dataclass(frozen=True)
class Request:
    """What was asked of `lamu fit` and `lamu compare`."""

    data: str  # a file, or the name of a bundled set
    target: str | None = None  # the target's column; None where the data fix it
    task: str | None = None  # "regression", "binary" or "classes"; None where the target's type decides
    epochs: int | None = None  # passes over the training rows; None for the default
    batch_size: int | None = None  # rows of a step; None for the default
    seed: int = 0  # of the split and of the algorithm
    test_size: float = 0.2  # the share of the rows kept for the scores
    samples: int | None = None  # draws of a prediction, where it needs draws; None for the default
    impute: bool = False  # whether missing values are filled
    folds: int | None = None  # how many folds an ensemble is made over, zero for one run; None for the default
    max_memory: str | None = None  # how much may be held at once, for instance "2GB"; None for half of what is free
    temperature: float | None = None  # T of the posterior; None for the one that training rows set aside choose
    # One of `lamu.cli.defaults.LIKELIHOODS`, of the task, or `package.module:name`; None for the one that training rows
    # choose.
    likelihood: str | None = None
    trials: str | None = None  # the column of the trials, where the target counts successes; None where it does not
    # The column that is 1 where the target is only known to be above its value; None where all are known.
    censored: str | None = None
    separator: str | None = None  # what stands between the fields of a CSV file; None where its first line decides
    dates: bool = False  # whether columns of dates become numbers
    # Texts and numbers that stand for missing values, with commas between them, or "none"; None where the table
    # decides.
    missing: str | None = None

    def check(self) -> None:
        """Raises a ValueError of one sentence for a number that cannot be meant."""
        for name, value, least in (
            ("epochs", self.epochs, 0),
            ("batch-size", self.batch_size, 1),
            ("samples", self.samples, 1),
            ("folds", self.folds, 0),
        ):
            if value is not None and value < least:
                raise ValueError(
                    f"--{name} is {value}; give a whole number that is not {'below 1' if least else 'negative'}"
                )
        if self.folds == 1:
            raise ValueError("--folds is 1, which leaves no row to learn from; give 0 for one run, or 2 and more")
        if self.temperature is not None and not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise ValueError(f"--temperature is {self.temperature:g}; give a positive number, 1 for Bayes' rule itself")
        if self.likelihood is not None:
            _require_likelihood(self.likelihood)
        if self.max_memory is not None:
            parse_size(self.max_memory)
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"--seed is {self.seed}; give a whole number from 0 to {2**32 - 1}")
        if self.trials is not None and self.censored is not None:
            raise ValueError(
                f"--trials {self.trials} and --censored {self.censored} are two kinds of target; give one of them"
            )

    def read(self) -> Table:
        """Returns the table."""
        columns = {"trials": self.trials, "censored": self.censored}
        beside = {name: column for name, column in columns.items() if column is not None}
        marks = None if self.missing is None else [mark.strip() for mark in self.missing.split(",")]
        declared = [] if marks == ["none"] else marks
        return read(self.data, self.target, self.task, self.impute, beside, self.separator, self.dates, declared)

    def loop(self, algorithm: Any, rows: int, folds: int = 0) -> dict[str, Any]:
        """Returns the options of the loop: what was asked, and the defaults where nothing was."""
        asked = {"epochs": self.epochs, "batch_size": self.batch_size}
        given = {name: value for name, value in asked.items() if value is not None}
        from lamu.cli.defaults import budget

        options = budget(algorithm, rows, folds) | given
        if "epochs" in given:  # who says how long means it
            options.pop("stop", None)
        return options

    def likelihood_for(self, encoding: Encoding, x: Inputs, y: Targets, seed: int) -> Chosen:
        """Returns the likelihood that was asked for, or the one that training rows choose."""
        from lamu.cli.learning import Chosen, choose, told_beside

        if self.likelihood is not None:
            return Chosen(self.likelihood, "", {})
        return told_beside(encoding, y) if encoding.beside else choose(encoding, x, y, seed)

    def temperature_for(
        self, model: Any, data: Data, learner: Any, seed: int, loop: dict[str, Any]
    ) -> tuple[float, dict[float, float]]:
        """Returns the temperature, and those that were tried with the loss of the rows set aside."""
        from lamu.validation_choice import choose_temperature

        if self.temperature is not None:
            return self.temperature, {}
        options = {name: value for name, value in loop.items() if name != "validation"}
        return choose_temperature(model, data, learner, seed=seed, **options)

    def prediction(self) -> dict[str, Any]:
        """Returns the options of a prediction."""
        return {} if self.samples is None else {"samples": self.samples}


def _require_likelihood(name: str) -> None:
    from lamu.cli.recipes import is_outside, likelihood_of
    from lamu.likelihoods.table import LIKELIHOODS

    if is_outside(name):
        likelihood_of(name)
    elif name not in LIKELIHOODS:
        raise ValueError(f"there is no likelihood {name!r}; {nearest(name, LIKELIHOODS)}")


def learning_rows(table: Table, request: Request, seed: int) -> tuple[Table, Any, Any]:
    """Returns the table as its training rows encode it, and the numbers of the training and of the test rows."""
    classes = table.encoding.task != "regression"
    # By their own names, which a message about a class quotes; sorted, as their numbers are.
    targets = table.encoding.decode(table.y) if classes else table.y
    train, test = split(targets, request.test_size, seed, stratify=classes)
    return table.refit(train), train, test
