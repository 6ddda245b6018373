"""The options that `lamu fit`, `lamu predict` and `lamu compare` share, as one record, and those of a file."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_type_hints

import typer

if TYPE_CHECKING:
    import numpy as np

    from lamu.cli.learning import LikelihoodChoice
    from lamu.data import Encoding
    from lamu.data.table import Table
    from lamu.protocol import Algorithm

__all__ = [
    "FLAG",
    "OF_IMAGES",
    "OF_ROWS",
    "Options",
    "Request",
    "learning_rows",
    "read_options",
    "refuse_untrusted",
    "takes_request",
]

# Heavy modules are imported where they are used, so that `--help` is fast, and a table is read and reported before
# algorithms are imported.


Options: TypeAlias = dict[str, Any]  # of a function, by name
FLAG = ""  # in the help: a flag takes no value, and Typer would print <bool>
OF_IMAGES = ("data", "epochs", "batch_size", "seed", "test_size", "samples", "max_memory")  # options for images
OF_ROWS = (*OF_IMAGES, "separator", "dates", "missing")  # options of tables without a target


def _option(metavar: str, help: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=help)


@dataclass(frozen=True)
class Request:
    """The options that commands share; the table or the training rows determine those that are None."""

    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="A .csv, .tsv, .parquet, .arrow or .npz file (X and y), or the name of a bundled set."
        ),
    ]
    target: Annotated[str | None, _option("COLUMN", "The column to predict.")] = None
    task: Annotated[
        str | None,
        _option("TASK", "Kind of target: regression, binary or classes. Read off its values if left out."),
    ] = None
    epochs: Annotated[int | None, _option("N", "Passes over the training rows.")] = None
    batch_size: Annotated[int | None, _option("N", "Rows of each gradient step.")] = None
    seed: Annotated[int, _option("N", "Seed of the split into training and test rows, and of the algorithm.")] = 0
    test_size: Annotated[float, _option("F", "Share of the rows that are held out for the scores.")] = 0.2
    samples: Annotated[int | None, _option("N", "Posterior draws of a prediction, where it needs draws.")] = None
    impute: Annotated[
        bool, _option(FLAG, "Draw missing values given the rest of their row, and mark where they were.", "--impute")
    ] = False
    folds: Annotated[
        int | None, _option("K", "Ensemble over K folds; 0 for one run. Five unless an algorithm is named.")
    ] = None
    max_memory: Annotated[
        str | None, _option("SIZE", "Memory to use at most, for instance 2GB; half of what is free if left out.")
    ] = None
    temperature: Annotated[
        float | None,
        _option("T", "Temperature of the posterior; 1 is Bayes' rule. Chosen on rows set aside if left out."),
    ] = None
    prior_scale: Annotated[
        float | None,
        _option("S", "Standard deviation of the prior of weights. Chosen on rows set aside if left out."),
    ] = None
    likelihood: Annotated[
        str | None,
        _option(
            "NAME",
            "Distribution of the target: gaussian, poisson, ..., or PACKAGE.MODULE:NAME. "
            "Held-out rows choose if left out.",
        ),
    ] = None
    trials: Annotated[
        str | None, _option("COLUMN", "Number of trials of each row, where the target counts successes.")
    ] = None
    censored: Annotated[
        str | None, _option("COLUMN", "1 where the target is only known to be above its value, else 0.")
    ] = None
    weight: Annotated[str | None, _option("COLUMN", "What each row counts: 2 is the row twice, 0 leaves it out.")] = (
        None
    )
    exposure: Annotated[
        str | None,
        _option("COLUMN", "Exposure of each row of a count, such as hours; the mean is a rate times it."),
    ] = None
    groups: Annotated[
        str | None,
        _option("COLUMN", "Group of each row, such as a patient: held out whole, and no input."),
    ] = None
    time: Annotated[
        str | None,
        _option("COLUMN", "Time of each row, a date or a number: the latest rows are held out. No input."),
    ] = None
    categories: Annotated[
        str | None,
        _option("COLUMNS", "Columns of categories that look like numbers, for instance shop,patient."),
    ] = None
    separator: Annotated[
        str | None, _option("CHAR", "Separator of a CSV file's fields, or tab. Read off its first line if left out.")
    ] = None
    dates: Annotated[bool, _option(FLAG, "Turn dates into ages, and phases of year, week and day.", "--dates")] = False
    missing: Annotated[
        str | None,
        _option(
            "VALUES",
            "What stands for a missing value, for instance -999,unknown; or none. Read off the table if left out.",
        ),
    ] = None

    def given(self) -> Options:
        """Returns the options that differ from their defaults, by name."""
        return {
            option.name: value for option in fields(self) if (value := getattr(self, option.name)) != option.default
        }

    def check(self) -> None:
        """Raises a ValueError of one sentence for an invalid number."""
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
        for name, value, remark in (
            ("temperature", self.temperature, ", 1 for Bayes' rule itself"),
            ("prior-scale", self.prior_scale, ""),
        ):
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ValueError(f"--{name} is {value:g}; give a positive number{remark}")
        if self.likelihood is not None:
            _require_likelihood(self.likelihood)
        if self.max_memory is not None:
            from lamu.memory import parse

            parse(self.max_memory)
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"--seed is {self.seed}; give a whole number from 0 to {2**32 - 1}")
        kinds = [
            f"--{name} {column}"
            for name, column in (("trials", self.trials), ("censored", self.censored), ("exposure", self.exposure))
            if column is not None
        ]
        if len(kinds) > 1:
            raise ValueError(f"{kinds[0]} and {kinds[1]} are two kinds of target; give one of them")

    def read(self) -> Table:
        """Returns the table."""
        from lamu.data.table import read

        names = ("trials", "censored", "weight", "exposure", "groups", "time")
        columns = {name: getattr(self, name) for name in names}
        beside = {name: column for name, column in columns.items() if column is not None}
        categories = () if self.categories is None else [name.strip() for name in self.categories.split(",")]
        return read(
            self.data,
            self.target,
            self.task,
            self.impute,
            beside,
            self.separator,
            self.dates,
            self.missing_values(),
            categories,
        )

    def missing_values(self) -> list[str] | None:
        """Returns the markers of missing values, as `lamu.data.table.read` takes them."""
        marks = None if self.missing is None else [mark.strip() for mark in self.missing.split(",")]
        return [] if marks == ["none"] else marks

    def loop(self, algorithm: Algorithm, rows: int, folds: int = 0) -> Options:
        """Returns the options of the loop: those given, and defaults for the others."""
        requested = {"epochs": self.epochs, "batch_size": self.batch_size}
        given = {name: value for name, value in requested.items() if value is not None}
        from lamu.cli.learning import budget

        options = budget(algorithm, rows, folds) | given
        if "epochs" in given:  # an explicit length is final
            options.pop("stop", None)
        return options

    def likelihood_for(self, encoding: Encoding, data: dict[str, Any], seed: int) -> LikelihoodChoice:
        """Returns the requested likelihood, or the one that the training rows choose."""
        from lamu.cli.learning import LikelihoodChoice, choose, told_beside

        if self.likelihood is not None:
            return LikelihoodChoice(self.likelihood, "", {})
        return told_beside(encoding, data["y"]) if encoding.of_target else choose(encoding, data, seed)

    def prediction(self) -> Options:
        """Returns the options of a prediction."""
        return {} if self.samples is None else {"samples": self.samples}


def takes_request(
    only: Collection[str] | None = None, without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns a decorator that replaces a command's argument `request` by the options of a `Request`."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(Request, include_extras=True)
        shared = [
            inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if option.default is MISSING else option.default,
                annotation=hints[option.name],
            )
            for option in fields(Request)
            if (only is None or option.name in only) and option.name not in without
        ]
        signature = inspect.signature(command, eval_str=True)
        parameters = []
        for name, parameter in signature.parameters.items():
            parameters += shared if name == "request" else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]

        @wraps(command)
        def run(**options: Any) -> None:
            fields = {parameter.name: options.pop(parameter.name) for parameter in shared}
            return command(request=Request(**fields), **options)

        vars(run)["__signature__"] = signature.replace(parameters=parameters)
        return run

    return decorated


def _require_likelihood(name: str) -> None:
    from lamu.cli.recipes import is_outside, likelihood_of
    from lamu.data.wording import nearest
    from lamu.likelihoods.table import LIKELIHOODS, OTHER_NAMES

    if is_outside(name):
        likelihood_of(name)
    elif name not in LIKELIHOODS:
        raise ValueError(f"there is no likelihood {name!r}; {nearest(name, LIKELIHOODS, OTHER_NAMES)}")


def learning_rows(table: Table, request: Request, seed: int) -> tuple[Table, np.ndarray, np.ndarray]:
    """Returns the table as its training rows encode it, and the numbers of the training and of the test rows."""
    import numpy as np

    from lamu.data import split
    from lamu.data.copies import repeats
    from lamu.data.splits import RowTimes

    classes = table.encoding.task != "regression"
    # By their own names, which messages about classes quote; sorted, as their numbers are.
    targets = table.encoding.decode(table.y) if classes else table.y
    groups = table.beside.get("groups")
    if isinstance(groups, RowTimes):  # of several splits each has the rows before the test rows of the one before
        later = seed - request.seed
        block = groups.blocks(_shares_in_time(request.test_size, later))
        train, test = np.flatnonzero(block == 0), np.flatnonzero(block == 1)
        note = _time_told(table.encoding, len(test), len(block))
        return replace(table, said=(*table.said, note)).refit(train), train, test
    if groups is not None or not table.counts_cases:
        train, test = split(targets, request.test_size, seed, stratify=classes, groups=groups)
        note = () if groups is None else (_groups_told(dict(table.encoding.beside)["groups"], groups, test),)
        return replace(table, said=(*table.said, *note)).refit(train), train, test
    # Of a table of frequencies cases are held out: without all cases of one target, a cell looks like the others.
    weight = table.beside["weight"]
    times = repeats(weight, np.ones(len(weight)))
    cases = np.repeat(np.arange(len(weight)), times)
    _, held_out = split(np.asarray(targets)[cases], request.test_size, seed, stratify=classes)
    parts, train, test = table.parted(weight * np.bincount(cases[held_out], minlength=len(weight)) / times)
    name = dict(table.encoding.beside)["weight"]
    note = f"{name!r} counts the cases of cells, of which {request.test_size:.3g} are held out, from each row some"
    return replace(parts, said=(*table.said, note)).refit(train), train, test


def _shares_in_time(test_size: float, later: int) -> list[float]:
    """Returns the shares of the training rows, of the test rows, and of as many blocks of later rows."""
    left = 1.0 - test_size * (later + 1)
    if left <= 0.0 or not test_size > 0.0:
        raise ValueError(
            f"--test-size {test_size:g} leaves no earlier row to learn from in split {later + 1}; give a smaller "
            "one, or fewer --splits"
        )
    return [left, *[test_size] * (later + 1)]


def _time_told(encoding: Encoding, held_out: int, rows: int) -> str:
    """Returns a sentence on the time of a table."""
    column = dict(encoding.beside)["time"]
    dated = any(date.name == column for date in encoding.dates)
    as_input = "an input by its age and phases" if dated else "no input"
    return (
        f"{column!r} is the time of the rows and {as_input}: the latest {held_out:,} of {rows:,} rows are held out, "
        "and folds are blocks of successive rows"
    )


def _groups_told(column: str, groups: np.ndarray, test: np.ndarray) -> str:
    """Returns a sentence on the groups of a table."""
    count, held_out = len(set(groups.tolist())), len(set(groups[test].tolist()))
    return (
        f"{column!r} groups the rows and is no input: {held_out:,} of {count:,} groups are held out with all of their "
        "rows, folds are of whole groups too, and standard errors are over groups"
    )


def read_options(context: Any, path: Path | None) -> Path | None:
    """Sets the options of a file as the defaults of a command; the callback of an eager option."""
    if path is None or context.resilient_parsing:
        return path
    import tomllib

    from lamu.data.wording import quoted

    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = str(error.strerror).lower()
        raise ValueError(f"--config {quoted(str(path))} cannot be read ({reason}); check the path") from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"--config {str(path)!r} is not UTF-8 text; write it as TOML, for instance seed = 1"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"--config {str(path)!r} is not TOML ({error}); write lines such as seed = 1") from error
    context.default_map = {**(context.default_map or {}), **_by_parameter(context, path, entries)}
    return path


def refuse_untrusted(context: Any, trust: list[str] | None) -> list[str] | None:
    """Rejects modules that a configuration file names and that would be imported; the callback of `--trust`."""
    for name in ("algorithm", "algorithms", "likelihood", "reference", "network"):
        source = context.get_parameter_source(name)  # None if it is not yet processed
        if source is not None and source.name == "COMMANDLINE":
            continue
        for word in str((context.default_map or {}).get(name, "")).split(","):
            module, colon, _ = word.strip().partition(":")
            if colon and not any(f"{module}.".startswith(f"{trusted}.") for trusted in trust or ()):
                raise ValueError(
                    f"--config names {word.strip()!r}, and a module that a file names is imported only where the "
                    f"command line trusts it; if you trust its code, give --trust {module}"
                )
    return trust


def _by_parameter(context: Any, path: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Returns the values by the names of the command's parameters, which may differ from the names of its options."""
    parameters = {}
    for parameter in context.command.params:
        names = [parameter.name, *parameter.opts]
        parameters |= {str(name).lstrip("-").replace("-", "_"): parameter for name in names}
    allowed = sorted(
        {max(parameter.opts, key=len).lstrip("-") for parameter in context.command.params} - {"config", "help", "trust"}
    )
    values = {}
    for name, value in given.items():
        parameter = parameters.get(name.replace("-", "_"))
        if parameter is not None and parameter.name == "trust":
            raise ValueError(f"--config {str(path)!r} has 'trust', which a file may not say; give --trust itself")
        if parameter is None or parameter.name == "config":
            from lamu.data.wording import nearest

            raise ValueError(
                f"--config {str(path)!r} has {name!r}, which is not an option of `lamu {context.info_name}`; "
                f"{nearest(name, allowed)}"
            )
        values[str(parameter.name)] = _value(name, value, parameter.multiple)
    return values


def _value(name: str, value: object, multiple: bool) -> Any:
    """Returns a value as the command line would give it: settings as `key=value`, lists with commas."""
    if multiple:
        if isinstance(value, dict):
            return [f"{key}={item}" for key, item in _flat(value)]
        return [str(item) for item in value] if isinstance(value, list) else [str(value)]
    if isinstance(value, dict):
        raise ValueError(f"--config has a table [{name}], and --{name} takes one value; write {name} = ...")
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _flat(table: dict[str, object], before: str = "") -> list[tuple[str, Any]]:
    """Returns the entries of a table and of its nested tables, with names joined by points."""
    entries: list[tuple[str, Any]] = []
    for key, value in table.items():
        entries += _flat(value, f"{before}{key}.") if isinstance(value, dict) else [(f"{before}{key}", value)]
    return entries
