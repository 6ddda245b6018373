"""What was asked of `lamu fit` and `lamu compare`, with the defaults of what was not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lamu.cli.recipes import is_outside, likelihood_of, required_parts
from lamu.data import Encoding, split
from lamu.data.table import Table, read
from lamu.data.wording import nearest
from lamu.folds import folds_for, length_of_members
from lamu.likelihoods import Likelihood, RightCensored
from lamu.likelihoods.table import LIKELIHOODS
from lamu.memory import parse as parse_size
from lamu.model import Model
from lamu.networks import MLP, Network
from lamu.priors import LearnedNormal
from lamu.protocol import Algorithm
from lamu.rate import Annealed

if TYPE_CHECKING:
    from lamu.cli.learning import Chosen

__all__ = [
    "DEFAULT",
    "LIKELIHOODS",
    "Request",
    "budget",
    "default_algorithm",
    "default_folds",
    "default_settings",
    "learning_rows",
    "likelihood_for",
    "model_for",
]


# Chosen once, on the sets that `benchmarks/untuned.py` names, and frozen: an ensemble over five folds of networks of
# two layers of 64, found by Adam with an annealed rate, each stopped by its own fold, under a prior whose scale the
# folds choose. An algorithm that is named runs alone, until it has converged. Training rows that are set aside choose
# the temperature (`lamu.fit_temperature`) and the scale of the prior among doublings and halvings
# (`lamu.fit_prior_scale`); then it learns from all of them.


DEFAULT = "default"  # how `lamu compare` calls what `lamu fit` runs where no algorithm is named

_DEFAULTS = {"regression": "gaussian", "binary": "logit", "classes": "categorical"}
_BATCH = 64
_VALIDATION = 0.1


def default_algorithm() -> str:
    """Returns the name of the algorithm that each fold runs where `lamu fit` is not told one."""
    return "adam"


def default_settings() -> dict[str, Any]:
    """Returns the settings of that algorithm."""
    return {"learning_rate": Annealed(0.01)}


def default_folds(rows: int, algorithm: str | None) -> int:
    """Returns how many folds the ensemble is over; none, hence one run, for an algorithm that somebody named."""
    return 0 if algorithm is not None else folds_for(rows)


def budget(algorithm: Algorithm, rows: int, folds: int = 0) -> dict[str, Any]:
    """Returns how long an algorithm learns at most, and what stops it, as options of `lamu.fit`."""
    # Members of folds take three thousand steps, in thirty epochs at least and five hundred at most, and stop after a
    # fifth of them without a better validation. Any other run is as long as it takes (`lamu.fit` without epochs).
    # Algorithms with a length of their own keep it.
    if algorithm.traits.length is not None or algorithm.traits.batching == "once":
        return {"batch_size": _BATCH}
    if not folds:
        return {"batch_size": _BATCH, "validation": _VALIDATION}
    return length_of_members(rows, folds)


def model_for(
    encoding: Encoding, x: Any, y: Any, likelihood: str | None = None, algorithm: str | None = None
) -> tuple[Model, str]:
    """Returns the model for a table, and a sentence about the parts of it that the algorithm needs, empty for most."""
    model = Model(_network(encoding), likelihood_for(encoding, likelihood), LearnedNormal(0.5))
    model, told = required_parts(algorithm or "", model, encoding, x, y)
    return model.standardised(x, y), told


def _network(encoding: Encoding) -> Network:
    base = MLP((64, 64))
    if not any(encoding.cardinalities):
        return base
    from lamu.networks import Embedded

    return Embedded(base, encoding.cardinalities)


def likelihood_for(encoding: Encoding, name: str | None = None) -> Likelihood:
    """Returns the likelihood of a table's target."""
    found = _named(encoding, name)
    brought = dict(encoding.beside)
    if "censored" in brought:
        return RightCensored(found)
    if "trials" in brought and not found.takes_trials:
        raise ValueError(
            f"--likelihood {name} takes no trials, and --trials is {brought['trials']}; leave one of them out"
        )
    return found


def _named(encoding: Encoding, name: str | None) -> Likelihood:
    """The likelihood of that name, or the task's own."""
    if name is not None and is_outside(name):
        found = likelihood_of(name)
        if found.task != encoding.task:
            raise ValueError(
                f"--likelihood {name} is for the task {found.task}, and that of {encoding.target!r} is "
                f"{encoding.task}; give --task {found.task} where the targets are so"
            )
        return found
    if name is not None and name not in LIKELIHOODS:
        raise ValueError(f"there is no likelihood {name!r}; {nearest(name, LIKELIHOODS)}")
    task, make = LIKELIHOODS[name or _DEFAULTS[encoding.task]]
    if task != encoding.task:
        of = {"regression": "a regression", "binary": "two classes", "classes": "classes"}[task]
        raise ValueError(
            f"--likelihood {name} is of {of}, and the task of {encoding.target!r} is {encoding.task}; leave it "
            f"out, or give --task {task}"
        )
    return make(len(encoding.labels))


# Algorithms and likelihoods are imported where they are used, so that a table is read, and said, before them.


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
    # One of `lamu.cli.request.LIKELIHOODS`, of the task, or `package.module:name`; None for the one that training rows
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
        options = budget(algorithm, rows, folds) | given
        if "epochs" in given:  # who says how long means it
            options.pop("stop", None)
        return options

    def likelihood_for(self, encoding: Encoding, x: Any, y: Any, seed: int) -> Chosen:
        """Returns the likelihood that was asked for, or the one that training rows choose."""
        from lamu.cli.learning import Chosen, choose, told_beside

        if self.likelihood is not None:
            return Chosen(self.likelihood, "", {})
        return told_beside(encoding, y) if encoding.beside else choose(encoding, x, y, seed)

    def temperature_for(
        self, model: Any, data: Any, learner: Any, seed: int, loop: dict[str, Any]
    ) -> tuple[float, dict[float, float]]:
        """Returns the temperature, and those that were tried with the loss of the rows set aside."""
        from lamu.temperatures import choose_temperature

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
