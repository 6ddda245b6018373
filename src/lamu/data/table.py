"""Tables: named columns and a target, from a CSV, Parquet or .npz file or a bundled set.

Reading is strict. What cannot be decided without a guess (a missing value, a word among numbers, a date) is an error
of one sentence that quotes the value and says what to do; decisions (whether whole numbers are classes, how missing
values are filled if asked for) are listed in `notes`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lamu.data.arrays import scale_told
from lamu.data.columns import expanded, found_dates, identifiers, repeated_identifiers, words
from lamu.data.copies import are_cells
from lamu.data.encoding import TASKS, Encoding
from lamu.data.imputation import Completions
from lamu.data.inputs import (
    Features,
    Selection,
    completions,
    features_to_predict,
    known_positions,
    learn,
    training_features,
    transform,
)
from lamu.data.precision import origin_and_unit
from lamu.data.reading import read_again, read_cells
from lamu.data.sources import Source, open_source
from lamu.data.targets import decide, read_beside, targets
from lamu.data.wording import DataError, counted, listed, nearest, plural
from lamu.typing import Data, Inputs, Targets

__all__ = ["TASKS", "Table", "match", "match_columns", "read", "read_columns", "with_beside"]

FEWEST_ROWS = 5


@dataclass(frozen=True)
class Table:
    """Features and targets as numbers, with their encoding.

    Attributes:
        x: inputs, float64 `[rows, len(encoding.names)]`: numbers, and the positions of words among the levels of
            the training rows, counted from 1; 0 for other words. In a training row a missing number is one draw, given
            the target; in other rows it is the median given the rest, and predictions use `completions`
            instead.
        y: targets `[rows]`: int32 for classes and binary targets, float64 for regression, in the encoding's units;
            None for a table to predict without targets.
        encoding: the names of the columns, the task, the labels, and the statistics of the training rows.
        notes: one sentence for each thing that was decided, filled or left out.
        features: the features before encoding.
        said: the notes that do not depend on the choice of training rows.
        beside: auxiliary columns of the target, such as trials, float64 `[rows]` by name.
        numbers: row numbers in the file: all, or for a training table those with a weight.

    Examples:
        >>> from lamu.data import table
        >>> table.read("diabetes").encoding.task
        'regression'
    """

    x: np.ndarray
    y: np.ndarray | None
    encoding: Encoding
    notes: tuple[str, ...]
    features: Features
    said: tuple[str, ...]
    beside: Mapping[str, Any] = field(default_factory=dict)
    numbers: np.ndarray = field(default_factory=lambda: np.zeros(0, int))

    @property
    def targets(self) -> Targets:
        """The targets as `lamu.fit` takes them: y, or by name with the auxiliary columns that are part of them."""
        parts = {name: self.beside[name] for name, _ in self.encoding.of_target if name in self.beside}
        return {"value": self.y, **parts} if parts and self.y is not None else self.y

    @property
    def data(self) -> dict[str, Data]:
        """The rows as `lamu.fit` takes them: x and y, and optionally weight, groups and offset."""
        rows: dict[str, Data] = {"x": self.x, "y": self.targets}
        rows |= {name: self.beside[name] for name in ("weight", "groups") if name in self.beside}
        if "exposure" in self.beside:
            rows["offset"] = np.log(self.beside["exposure"])
        return rows

    def beside_of(self, rows: Selection) -> dict[str, Any]:
        """Returns the auxiliary columns of some rows, by name."""
        return {name: column[rows] for name, column in self.beside.items()}

    def refit(self, rows: Selection) -> Table:
        """Returns the same rows with levels, medians and indicators learned from the training rows only.

        `read` learns them from all rows, since the split is unknown: without this step, the test
        rows would influence the filled values and the known words.

        Args:
            rows: the indices of the training rows.

        Raises:
            DataError: for a column without a value in any training row.

        Examples:
            >>> from lamu.data import split, table
            >>> full = table.read("iris", impute=True)
            >>> train, _ = split(full.y, stratify=True)
            >>> fitted = full.refit(train)
            >>> fitted.x.shape, fitted.encoding.fills != full.encoding.fills
            ((150, 4), True)
        """
        old = self.encoding
        raw = np.asarray(old.decode(self.y) if old.task == "regression" else self.y)
        values, moved = self.features.values.copy() if old.dates else self.features.values, []
        for date in old.dates:
            age = self.features.columns.index(date.columns[0])
            present = values[rows, age]
            first = float(np.floor(np.min(present, where=~np.isnan(present), initial=np.inf)))
            shift = first if np.isfinite(first) else 0.0
            values[:, age] -= shift
            moved.append(replace(date, origin=date.origin + shift))
        features, dates = replace(self.features, values=values), tuple(moved)
        comparable = _per_trial(raw, self.beside)
        encoding = _learn_encoding(
            replace(old, dates=dates), features, rows, old.imputes, comparable, self.beside.get("weight")
        )
        y = encoding.encode(raw) if old.task == "regression" else raw
        return _table(features, y, encoding, self.said, self.beside, rows, comparable, self.numbers)

    @property
    def counts_cases(self) -> bool:
        """Whether the weights are the numbers of cases in the cells of a table of frequencies.

        They are whole numbers, and half of the rows or more have the features of a row with another target.

        Examples:
            >>> from lamu.data import table
            >>> table.read("iris").counts_cases
            False
        """
        weight = self.beside.get("weight")
        if weight is None or self.y is None or weight.max(initial=0) <= 1 or (weight != np.rint(weight)).any():
            return False
        return are_cells(self.features.values, self.y)

    def parted(self, weight: np.ndarray) -> tuple[Table, np.ndarray, np.ndarray]:
        """Splits the weight of every row into two.

        Args:
            weight: the part of each row's weight that goes to the second part, `[rows]`. A row is in the parts in which
                it has weight.

        Returns:
            The table of both parts, and the indices of the rows of each.

        Examples:
            >>> import numpy as np
            >>> import pandas as pd
            >>> from lamu.data import table
            >>> frame = pd.DataFrame({"a": [0, 0, 1, 1, 2, 2], "y": ["no", "yes"] * 3, "n": [4, 2, 2, 8, 1, 1]})
            >>> full = table.read(frame, target="y", beside={"weight": "n"})
            >>> both, first, second = full.parted(np.array([1, 2, 0, 3, 0, 0]))
            >>> both.beside["weight"][first].tolist(), both.beside["weight"][second].tolist()
            ([3.0, 2.0, 5.0, 1.0, 1.0], [1.0, 2.0, 3.0])
        """
        left = self.beside["weight"] - weight
        first, second = np.flatnonzero(left > 0), np.flatnonzero(weight > 0)
        rows = np.concatenate([first, second])
        parts = replace(
            self,
            x=self.x[rows],
            y=None if self.y is None else self.y[rows],
            features=replace(self.features, values=self.features.values[rows]),
            beside={**self.beside_of(rows), "weight": np.concatenate([left[first], weight[second]])},
            numbers=self.numbers[rows],
        )
        return parts, np.arange(len(first)), np.arange(len(first), len(rows))

    def with_medians(self) -> Table:
        """Returns the table with all missing numbers replaced by medians, for models that do not average over draws.

        Examples:
            >>> from lamu.data import table
            >>> iris = table.read("iris", impute=True)
            >>> iris.with_medians().encoding.joint is None
            True
        """
        if self.encoding.joint is None:
            return self
        encoding = replace(self.encoding, joint=None)
        return _table(self.features, self.y, encoding, self.said, self.beside, numbers=self.numbers)

    def fingerprint(self) -> str:
        """Returns a SHA-256 of inputs and targets, which identifies the table.

        Examples:
            >>> from lamu.data import table
            >>> table.read("iris").fingerprint() == table.read("wine").fingerprint()
            False
        """
        # With medians for missing numbers, because a table to fit and one to predict have different draws.
        # Without rows of weight zero, which a training table leaves out.
        # A row in two parts counts once.
        has_weight = self.beside.get("weight", np.ones(len(self.x))) > 0
        rows = np.unique(np.where(has_weight, self.numbers, -1), return_index=True)[1][(~has_weight).any() * 1 :]
        digest = hashlib.sha256(np.ascontiguousarray(self.with_medians().x[rows]).tobytes())
        digest.update(b"" if self.y is None else np.ascontiguousarray(self.y[rows]).tobytes())
        return digest.hexdigest()

    @property
    def complete(self) -> bool:
        """Whether no row has a missing value, or a word that is not in the training rows."""
        words = [column for column, levels in enumerate(self.encoding.levels) if levels]
        return not (np.isnan(self.features.values).any() or (self.x[:, words] == 0).any())

    def completions(self, rows: Selection) -> Completions:
        """Returns the inputs of rows to predict, once for each draw of missing values and new words.

        A prediction is the mixture over them, `lamu.predictives.InputMixture.of`, and its intervals are wider the
        more is missing. The draws do not use the rows' targets, unlike `x`, where training rows are completed given
        theirs.

        Args:
            rows: the indices of the rows, or a slice.

        Examples:
            >>> from lamu.data import table
            >>> table.read("iris", impute=True).completions(slice(0, 5)).complete
            True
        """
        return completions(replace(self.features, values=self.features.values[rows]), self.encoding)


def with_beside(x: Inputs, beside: Mapping[str, Any], row: Selection) -> Inputs:
    """Returns inputs with the trials and offsets of some rows."""
    extra = {"trials": beside["trials"][row]} if "trials" in beside else {}
    extra |= {"offset": np.log(beside["exposure"][row])} if "exposure" in beside else {}
    return {"x": x, **extra} if extra else x


def read(
    data: Data,
    target: str | None = None,
    task: str | None = None,
    impute: bool = False,
    beside: Mapping[str, str] | None = None,
    separator: str | None = None,
    dates: bool = False,
    missing: Collection[str | float] | None = None,
    categories: Collection[str] = (),
) -> Table:
    """Reads a training table: its features, its target, and the task, which follows from the target's type.

    Numbers stay numbers, also in common notations (`$2,675`, `12 %`, `(1,200)`, `1.5M`, `3 kg`, `1.234,56`). Codes
    with leading zeros (`02139`), text, truth values and pandas categories become positions among their sorted levels.
    A target of text, truth values or whole numbers with two values makes the task binary, 3 to 20 values of text or
    whole numbers make it classes, unless a whole number occurs in one row only; everything else is regression.

    Args:
        data: a .csv or .tsv file with a header (also .gz), a .parquet, .arrow or .feather file, an .npz file with `X`
            and `y`, a name of `lamu.data.names()`, or a frame of pandas or polars.
        target: the target's column; may be left out for an .npz file (`y`) and a bundled set (`target`).
        task: "regression", "binary" or "classes", to override the decision.
        impute: whether to fill missing features: by draws given the rest of their row. Values that training rows
            lack get a further column that marks them; of more than 20 words, missing ones are a level of their own. A
            missing target is never filled.
        beside: the auxiliary columns of the target, by name: "trials" of a count of successes, "censored",
            1 if the target is above the value, "exposure" of a count, "weight", the weight of each row, of which
            rows of 0 are left out, "groups", numbers or words, of which splits keep all rows together, or "time",
            numbers or dates, of which splits hold out the latest rows (the table has it as "groups"). They are not
            features, and all but weights, groups and times make the task a regression.
        separator: the field separator of a CSV file; inferred from its first line where None.
        dates: whether columns of dates become numbers: the days since the first training row, and sine and cosine of
            the phases of the year, of the week and, if there are times, of the day.
        missing: texts and numbers that mark missing values, such as `[-999]`, in all columns, besides error cells
            (`#DIV/0!`) and marks (`?`, `-`). With an empty list these are values too. Where None, a common marker
            (−999, 99, 9999) that at least three rows have, and that is three times the range of all others away
            from them, is a missing value, which a note reports.
        categories: the columns whose values are categories although they look like numbers, such as the number of a
            shop or of a patient.

    Returns:
        The table; `Table.refit` learns its encoding from the training rows only.

    Raises:
        DataError: for a file that is missing, empty, unreadable or of an unknown type, an unknown target, dates,
            identifiers, a word among numbers, missing or infinite values, a constant target, too few rows, or a task
            that does not fit.

    Examples:
        >>> from lamu.data import table
        >>> iris = table.read("iris")
        >>> iris.x.shape, iris.encoding.task, iris.encoding.labels
        ((150, 4), 'classes', (0, 1, 2))
    """
    if task is not None and task not in TASKS:
        raise DataError(f"there is no task {task!r}; {nearest(task, TASKS)}")
    source = open_source(data, categories, separator)
    if target is None:
        target = source.target
    if target is None:
        raise DataError(f"{source.name} does not say which column is the target; name one of {listed(source.names)}")
    if target not in source.frame:
        raise DataError(f"{source.name} has no column {target!r} to be the target; {nearest(target, source.names)}")
    _require_rows(source)
    beside = beside or {}
    if {"groups", "time"} <= set(beside):
        raise DataError(
            f"{beside['groups']!r} groups the rows and {beside['time']!r} is their time; give groups to predict new "
            "groups, or time to predict later rows of the same ones"
        )
    if numeric := [name for name in beside if name not in ("weight", "groups", "time")]:
        if task not in (None, "regression"):
            raise DataError(f"a target with {numeric[0]} is a number, and the task is {task}; leave --task out")
        task = "regression"
    columns = tuple(name for name in source.names if name not in (target, *beside.values()))
    if not columns and not (dates and "time" in beside):
        raise DataError(f"{source.name} has no column but the target {target!r}; add at least one to learn from")
    for name in categories:
        if name not in columns:
            raise DataError(f"{source.name} has no feature {name!r} to be of categories; {nearest(name, columns)}")
    as_words = (
        *((target,) if task in ("binary", "classes") else ()),
        *(beside[name] for name in beside if name in ("groups", "time")),
    )
    source, features, read_as_is, left_out = _training_parts(
        source, (target, *beside.values()), missing, as_words, dates, tuple(categories), beside.get("time")
    )
    columns, rows = features.columns, np.arange(len(source.frame))
    if "weight" in beside:
        rows = np.flatnonzero(read_beside(source, target, "weight", beside["weight"], None))
    if len(rows) < len(source.frame):
        left_out = (*left_out, f"{len(source.frame) - len(rows):,} rows of weight 0 are left out")
        source = replace(source, frame=source.frame.iloc[rows].reset_index(drop=True))
        features = replace(features, values=features.values[rows])
        _require_rows(source)
    _refuse_missing(source, () if impute else columns, target, "drop those rows or columns, or fill them with --impute")
    chosen, labels, notes = decide(source, target, task)
    raw = targets(source, Encoding(target, chosen, labels, columns))
    auxiliary = {name: read_beside(source, target, name, column, raw) for name, column in beside.items()}
    if "time" in auxiliary:
        auxiliary["groups"] = auxiliary.pop("time")  # groups in an order
    elif read_as_is.dates and "groups" not in auxiliary:
        date = read_as_is.dates[0].name
        left_out = (
            *left_out,
            f"{date!r} is of dates, and rows are held out at random; to predict later rows, --time {date} holds out "
            "the latest",
        )
    read_as = replace(
        read_as_is, target=target, task=chosen, labels=labels, columns=(), levels=(), beside=tuple(beside.items())
    )
    comparable = _per_trial(raw, auxiliary)
    encoding = _learn_encoding(read_as, features, slice(None), impute, comparable, auxiliary.get("weight"))
    y = encoding.encode(raw) if chosen == "regression" else raw
    scale_note = scale_told(auxiliary["weight"], f"the column {beside['weight']!r}") if "weight" in auxiliary else None
    notes = (*notes, *features.notes, *repeated_identifiers(source, columns))
    said = (*source.notes, *left_out, *notes, *([] if scale_note is None else [scale_note]))
    del source  # a large table is freed before it is copied
    return _table(features, y, encoding, said, auxiliary, slice(None), comparable, rows)


def read_columns(
    data: Data, separator: str | None = None, dates: bool = False, missing: Collection[str | float] | None = None
) -> tuple[Features, Encoding, tuple[str, ...]]:
    """Reads a table whose columns are all modelled: its values, their encoding, and a note on each decision.

    Args:
        data: as for `read`; the target of a bundled set, or of an .npz file, is left out.
        separator: as for `read`.
        dates: as for `read`.
        missing: as for `read`.

    Returns:
        The columns, NaN for missing values; an encoding without a target, for `match_columns`; and the notes.

    Raises:
        DataError: as `read`, except that values may be missing.

    Examples:
        >>> from lamu.data import table
        >>> features, encoding, notes = table.read_columns("iris")
        >>> features.values.shape, notes
        ((150, 4), ("the column 'target' is the target of the bundled set 'iris', left out",))
    """
    source = open_source(data, separator=separator)
    others = () if source.target is None else (source.target,)
    aside = tuple(f"the column {name!r} is the target of {source.name}, left out" for name in others)
    if not set(source.names) - set(others):
        raise DataError(f"{source.name} has no column; add at least one to learn from")
    _require_rows(source)
    source, features, how, left_out = _training_parts(source, others, missing, (), dates)
    return features, how, (*source.notes, *aside, *left_out, *features.notes)


def match_columns(data: Data, encoding: Encoding, separator: str | None = None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Reads a further table with the columns of `read_columns`, in their order.

    Args:
        data: as for `read`.
        encoding: the encoding from `read_columns`.
        separator: as for `read`.

    Returns:
        Numbers, and positions of words among the levels from 0 on, float64 `[rows, columns]`; NaN for values that are
        missing, or words that the first table did not have. And the notes.

    Raises:
        DataError: as `match`, except that values may be missing.

    Examples:
        >>> from lamu.data import table
        >>> _, encoding, _ = table.read_columns("iris")
        >>> table.match_columns("iris", encoding)[0].shape
        (150, 4)
    """
    source, extra = _open_again(data, encoding, separator, ())
    features = features_to_predict(source, encoding.columns, encoding.levels)
    values, unknown = known_positions(features, encoding.levels)
    return values, (*source.notes, *extra, *unknown)


def _require_rows(source: Source) -> None:
    rows = len(source.frame)
    if rows < FEWEST_ROWS:
        size = f"{source.name} has {rows} {plural('row', rows)} of data"
        raise DataError(f"{size}, too few to learn from; give at least {FEWEST_ROWS}")


def _training_parts(
    source: Source,
    others: tuple[str, ...],
    missing: Collection[str | float] | None,
    as_words: tuple[str, ...],
    dates: bool,
    categories: tuple[str, ...] = (),
    time: str | None = None,
) -> tuple[Source, Features, Encoding, tuple[str, ...]]:
    """Returns a table, its features, their encoding, and a note on each column that was left out."""
    # `others`: columns that are not features, of which those after the first are counts; `time`: the one of these whose
    # age and phases are features where it is of dates.
    declared = None if missing is None else tuple(map(str, missing))
    of = lambda source: tuple(name for name in source.names if name not in others)
    source, readings = read_cells(source, declared, (*as_words, *categories), others[1:])
    named = {name: words(source[name]).series(source[name]).astype("category") for name in categories}
    source = replace(source, frame=source.frame.assign(**named))
    dated = found_dates(source, [*of(source), *([] if time is None else [time])]) if dates else ()
    source = expanded(source, dated, others)
    columns = of(source)
    left_out = identifiers(source, columns)
    columns = (
        tuple(name for name in columns if name not in left_out) or columns
    )  # if all name rows, an error comes later
    features = training_features(source, columns)
    read_as = Encoding("", "regression", (), columns, features.levels, dates=dated, readings=readings, missing=declared)
    return source, features, read_as, tuple(left_out.values())


def match(data: Data, encoding: Encoding, separator: str | None = None) -> Table:
    """Reads a table to predict: the same features by name, in the same order, and the target if it exists.

    Words that are not in the training rows get the code 0, and a note counts them; `Table.completions` draws them.

    Args:
        data: as for `read`.
        encoding: the encoding of the training table.
        separator: as for `read`.

    Returns:
        The table; its `y` is None without a target column, or if that column is empty. Further columns are left out,
        and a note names them.

    Raises:
        DataError: for a missing feature column or missing values if training filled none, a word in a column of
            numbers, and infinite values.

    Examples:
        >>> from lamu.data import table
        >>> fitted = table.read("iris").encoding
        >>> table.match("iris", fitted).y.shape
        (150,)
    """
    expected_names = (encoding.target, *(column for _, column in encoding.beside))
    source, notes = _open_again(data, encoding, separator, expected_names)
    target = encoding.target if encoding.target in source.frame else None
    if target is not None and bool(source[target].isna().all()):
        target = None
    if encoding.exposure is not None and encoding.exposure not in source.frame:
        target = None
    auxiliary_columns = [
        (name, column)
        for name, column in encoding.beside
        if name in _PREDICTED_WITH or (name != "time" and target is not None)
    ]
    missing_columns = [(name, column) for name, column in auxiliary_columns if column not in source.frame]
    notes += tuple(
        f"{source.name} lacks the column {column!r}, which was fitted as {name}: {_WITHOUT[name]}"
        for name, column in missing_columns
        if name in _WITHOUT
    )
    brings = [column for name, column in auxiliary_columns if (name, column) not in missing_columns]
    if missing_columns := [(name, column) for name, column in missing_columns if name not in _WITHOUT]:
        (name, column), *_ = missing_columns
        trials = "successes are predicted in the trials of each row"
        use = trials if name == "trials" else "the target is scored with it"
        raise DataError(
            f"{source.name} lacks the column {column!r}, which was fitted as {name}: {use}; add it"
            f"{'' if name == 'trials' else f', or leave {encoding.target!r} out'}"
        )
    features = features_to_predict(source, encoding.columns, encoding.levels)
    _refuse_missing(
        source,
        () if encoding.imputes else encoding.columns,
        target,
        "fill them or drop their rows, or fit with --impute",
    )
    y = None if target is None else targets(source, encoding)
    auxiliary = {
        name: read_beside(source, encoding.target, name, column, y)
        for name, column in encoding.beside
        if column in brings
    }
    y = encoding.encode(y) if y is not None and encoding.task == "regression" else y
    return _table(features, y, encoding, (*source.notes, *notes), auxiliary)


_PREDICTED_WITH = ("trials", "exposure")  # the others are for scores
_WITHOUT = {
    "exposure": "the predictions are rates, counts at an exposure of 1, and are not scored",
    "weight": "each row counts once in the scores",
    "groups": "the standard errors of the scores are those of independent rows",
}


def _open_again(
    data: Data, encoding: Encoding, separator: str | None, others: tuple[str, ...]
) -> tuple[Source, tuple[str, ...]]:
    """Returns a table to predict, read like the training table, and a note on further columns."""
    source = open_source(data, _text_columns(encoding), separator)
    source = _read_again(source, encoding)
    lacking = [date.name for date in encoding.dates if date.name not in source.frame]
    source = source if lacking else expanded(source, encoding.dates)
    date_columns = {name for date in encoding.dates for name in date.columns}
    lacking += [name for name in encoding.columns if name not in source.frame and name not in date_columns]
    lacks, notes = f"{source.name} lacks the {plural('column', lacking)} {listed(lacking)}", ()
    if lacking and encoding.imputes and set(lacking) < set(encoding.columns):
        notes = (f"{lacks}, whose values are taken as missing in every row",)
        source = replace(source, frame=source.frame.assign(**dict.fromkeys(lacking, np.nan)))
    elif lacking:
        raise DataError(
            f"{lacks} that the model was fitted on; "
            f"its columns are {listed(source.names)}; add {'it' if len(lacking) == 1 else 'them'}, with empty cells "
            "where values are unknown"
        )
    if len(source.frame) == 0:
        raise DataError(f"{source.name} has a header and no rows; add the rows to predict")
    extra = [name for name in source.names if name not in (*encoding.columns, *others)]
    return source, (*notes, *((f"ignored the extra {plural('column', extra)} {listed(extra)}",) if extra else ()))


def _learn_encoding(
    read_as: Encoding, features: Features, rows: Selection, impute: bool, y: np.ndarray, weight: np.ndarray | None
) -> Encoding:
    """Returns the encoding learned from some rows; y are indices of classes, or the numbers of the file."""
    learned = learn(features, rows, impute, y, len(read_as.labels), weight)
    # Successes, limits and counts are numbers of the likelihood, even if float32 cannot hold them.
    numeric = read_as.task == "regression" and not read_as.of_target and read_as.exposure is None
    scale = origin_and_unit(y[rows]) if numeric else None
    units = (*learned.pop("units"), *([] if scale is None else [(read_as.target, *scale)]))
    return replace(read_as, **learned, units=units)


def _per_trial(y: np.ndarray, beside: Mapping[str, Any]) -> np.ndarray:
    """Returns the targets by which rows are compared: successes a trial, counts an exposure, others unchanged."""
    if not {"trials", "exposure"} & set(beside):
        return y
    return y / np.maximum(beside["trials"], 1.0) if "trials" in beside else y / beside["exposure"]


def _table(
    features: Features,
    y: np.ndarray | None,
    encoding: Encoding,
    said: Sequence[str],
    beside: Mapping[str, Any],
    learned: Selection | None = None,
    raw: np.ndarray | None = None,
    numbers: np.ndarray | None = None,
) -> Table:
    x, fill_notes = transform(features, encoding, learned, raw)
    unit_notes = [
        f"the column {name!r} is counted from {origin:.17g} in units of {unit:.3g}, as float32 keeps 7 digits"
        for name, origin, unit in encoding.units
    ]
    numbers = np.arange(len(x)) if numbers is None else numbers
    return Table(x, y, encoding, (*said, *fill_notes, *unit_notes), features, tuple(said), beside, numbers)


def _read_again(source: Source, encoding: Encoding) -> Source:
    """Returns a table to predict with its cells read like those of training."""
    levels_by_name: dict[str, tuple[str, ...]] = dict(zip(encoding.columns, encoding.levels, strict=True))
    levels_by_name |= {column: () for name, column in encoding.beside if name not in ("groups", "time")}
    if not any(isinstance(label, bool) for label in encoding.labels):
        levels_by_name[encoding.target] = tuple(label for label in encoding.labels if isinstance(label, str))
    levels_by_name = {name: levels for name, levels in levels_by_name.items() if name in source.frame}
    return read_again(source, levels_by_name, encoding.readings, encoding.missing)


def _text_columns(encoding: Encoding) -> tuple[str, ...]:
    """Returns the columns that are read as text even if all their cells look like numbers."""
    # These are columns of words, and of numbers with a decimal comma, in which 1.234 is more than a thousand.
    words = [name for name, levels in zip(encoding.columns, encoding.levels, strict=True) if levels]
    labels = [encoding.target] if encoding.has_words else []
    commas = [reading.name for reading in encoding.readings if reading.decimal == ","]
    return (*words, *labels, *commas)


def _refuse_missing(source: Source, columns: Sequence[str], target: str | None, advice: str) -> None:
    """Raises a DataError for missing values."""
    # `target`: the target, which is never filled; None if there is none.
    checked = [*columns, *([target] if target else [])]
    counts = source.frame[checked].isna().sum()
    missing = [(str(column), _remark(source, str(column), int(count))) for column, count in counts.items() if count]
    if missing:
        way = advice
        if missing[-1][0] == target:
            drop_rows = "drop those rows, since a target is never filled"
            way = drop_rows if len(missing) == 1 else f"{advice}; a target is never filled: drop the rows without it"
        raise DataError(
            f"{source.name} has missing values in the {plural('column', missing)} {counted(missing)}; {way}"
        )


def _remark(source: Source, column: str, count: int) -> str:
    """Returns the number of missing values, and their marks if they are not empty."""
    return f"{count}" + (f", among them {source.marked[column]}" if column in source.marked else "")
