"""Tables: named numeric columns and a target, from a CSV file, an .npz file or a bundled set.

Reading is strict. What a table would have to guess at (a missing value, a word among numbers) is an error of one
sentence that quotes the value and says what to do; what it does decide (whether whole numbers are classes) stands in
`notes`.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lamu.data import bundled
from lamu.data.spelling import nearest
from lamu.record import record, static

__all__ = ["TASKS", "DataError", "Table", "TargetEncoding", "match", "read"]

TASKS = ("regression", "binary", "classes")
FEWEST_ROWS = 5
MOST_CLASSES = 20  # more distinct values than this are taken for numbers, or for identifiers where they are text


class DataError(ValueError):
    """A table that cannot be used as it is: one sentence that quotes the value and says what to do."""


@record
class TargetEncoding:
    """What a fitted table's numbers mean: enough to read another table the same way and to name its predictions.

    Attributes:
        target: the name of the target column.
        task: "regression", "binary" or "classes".
        labels: the original value of each class, in the order of the indices; empty for regression. For a binary target
            the probability is that of the second label.
        columns: the names of the features, in the order of the columns of x.

    Examples:
        >>> from lamu.data import TargetEncoding
        >>> encoding = TargetEncoding("species", "binary", ("cat", "dog"), ("weight", "height"))
        >>> encoding.encode(["dog", "cat"]).tolist(), encoding.decode([1, 1]).tolist()
        ([1, 0], ['dog', 'dog'])
    """

    target: str = static()
    task: str = static()
    labels: tuple[Any, ...] = static()
    columns: tuple[str, ...] = static()

    def encode(self, values: Any) -> np.ndarray:
        """Returns original target values as y: indices of classes, int32, or numbers for regression.

        Args:
            values: original values `[rows]`.

        Raises:
            DataError: for a value that is none of the labels.
        """
        if self.task == "regression":
            return np.asarray(values, float)
        index = {label: position for position, label in enumerate(self.labels)}
        plain = np.asarray(values).tolist()
        unknown = next((value for value in plain if value not in index), None)
        if unknown is not None:
            raise DataError(
                f"the target {self.target!r} has the value {unknown!r}, which is none of the classes "
                f"{_listed(self.labels)}; correct it or remove the column"
            )
        return np.asarray([index[value] for value in plain], np.int32)

    def decode(self, y: Any) -> np.ndarray:
        """Returns the original target values of y (`encode` undone), `[rows]`."""
        if self.task == "regression":
            return np.asarray(y)
        return np.asarray(self.labels)[np.asarray(y)]


@dataclass(frozen=True)
class Table:
    """Features and targets as numbers, with what they mean.

    Attributes:
        x: features, float64 `[rows, columns]`.
        y: targets `[rows]`: int32 for classes and binary targets, float64 for regression; None where a table that is
            to be predicted has none.
        encoding: the names of the columns, the task, the labels.
        notes: one sentence for each thing that was decided or left out, for a person to see.

    Examples:
        >>> from lamu.data import table
        >>> table.read("diabetes").encoding.task
        'regression'
    """

    x: np.ndarray
    y: np.ndarray | None
    encoding: TargetEncoding
    notes: tuple[str, ...] = ()


def read(data: str | os.PathLike[str], target: str | None = None, task: str | None = None) -> Table:
    """Reads a table to learn from: its numeric columns, its target, and the task that the target's type decides.

    Text, truth values or whole numbers of two kinds make the task binary, 3 to 20 kinds of text or whole numbers make
    it classes, and everything else is regression.

    Args:
        data: a CSV file with a header, an .npz file with `X` and `y`, or a name of `lamu.data.names()`.
        target: the target's column; may be left out for an .npz file (`y`) and a bundled set (`target`).
        task: "regression", "binary" or "classes", to override the decision.

    Returns:
        The table.

    Raises:
        DataError: for a file that is missing, empty, unreadable or of an unknown type, an unknown target, columns that
            are not numeric, missing or infinite values, a constant target, too few rows, or a task that does not suit.

    Examples:
        >>> from lamu.data import table
        >>> iris = table.read("iris")
        >>> iris.x.shape, iris.encoding.task, iris.encoding.labels
        ((150, 4), 'classes', (0, 1, 2))
    """
    if task is not None and task not in TASKS:
        raise DataError(f"there is no task {task!r}; {nearest(task, TASKS)}")
    source = _open(data)
    if target is None:
        target = source.target
    if target is None:
        raise DataError(f"{source.name} does not say which column is the target; name one of {_listed(source.names)}")
    if target not in source.frame:
        raise DataError(f"{source.name} has no column {target!r} to be the target; {nearest(target, source.names)}")
    rows = len(source.frame)
    if rows < FEWEST_ROWS:
        raise DataError(f"{source.name} has {rows} rows of data, too few to learn from; give at least {FEWEST_ROWS}")
    columns = tuple(name for name in source.names if name != target)
    if not columns:
        raise DataError(f"{source.name} has no column but the target {target!r}; add at least one numeric column")
    _no_missing(source, [*columns, target])
    x = _features(source, columns)
    encoding, notes = _decide(source, target, task, columns)
    if encoding.task == "regression":
        y = _numeric(source, target)
        if np.ptp(y) == 0.0:
            raise DataError(
                f"the target {target!r} is {y[0]:g} in every row, which leaves nothing to learn; choose another"
            )
    else:
        y = encoding.encode(source.frame[target])
    return Table(x, y, encoding, (*source.notes, *notes))


def match(data: str | os.PathLike[str], encoding: TargetEncoding) -> Table:
    """Reads a table to predict: the same features by name, in the same order, and the target where it is there.

    Args:
        data: as for `read`.
        encoding: the encoding of the table that was learnt from.

    Returns:
        The table; its `y` is None without a target column, or where that column is empty. Further columns are left out,
        and a note names them.

    Raises:
        DataError: for a missing feature column, and for everything that `read` refuses in features and targets.

    Examples:
        >>> from lamu.data import table
        >>> fitted = table.read("iris").encoding
        >>> table.match("iris", fitted).y.shape
        (150,)
    """
    labels_are_text = any(isinstance(label, str) for label in encoding.labels)
    source = _open(data, text=(encoding.target,) if labels_are_text else ())
    lacking = [name for name in encoding.columns if name not in source.frame]
    if lacking:
        raise DataError(
            f"{source.name} lacks the {_plural('column', lacking)} {_listed(lacking)} that the model was fitted on; "
            f"its columns are {_listed(source.names)}"
        )
    if len(source.frame) == 0:
        raise DataError(f"{source.name} has a header and no rows; add the rows to predict")
    target = encoding.target if encoding.target in source.frame else None
    if target is not None and bool(source.frame[target].isna().all()):
        target = None
    extra = [name for name in source.names if name not in encoding.columns and name != encoding.target]
    notes = [f"ignored the extra {_plural('column', extra)} {_listed(extra)}"] if extra else []
    _no_missing(source, [*encoding.columns, *([target] if target else [])])
    x = _features(source, encoding.columns)
    y = None
    if target is not None:
        y = _numeric(source, target) if encoding.task == "regression" else encoding.encode(source.frame[target])
    return Table(x, y, encoding, (*source.notes, *notes))


@dataclass(frozen=True)
class _Source:
    name: str  # how messages call it
    frame: Any  # a pandas DataFrame
    target: str | None  # the target's column, where the kind of source fixes it
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return list(self.frame.columns)


def _open(data: str | os.PathLike[str], text: Sequence[str] = ()) -> _Source:
    import pandas as pd

    if str(data) in bundled.names():
        x, y = bundled.load(str(data))
        frame = pd.DataFrame(x, columns=list(bundled.columns(str(data))))
        frame["target"] = y
        return _Source(f"the bundled set {str(data)!r}", frame, "target")
    path = Path(data)
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a folder; give a .csv or .npz file, or the name of a bundled set")
    if not path.exists():
        if path.suffix or len(path.parts) > 1:
            raise DataError(f"there is no file {str(path)!r}; check the path")
        raise DataError(f"there is no file and no bundled set {str(path)!r}; {nearest(str(path), bundled.names())}")
    if path.suffix.lower() not in (".csv", ".npz"):
        raise DataError(f"{str(path)!r} has the unknown type {path.suffix!r}; give a .csv or .npz file")
    try:
        if path.stat().st_size == 0:
            raise DataError(f"{str(path)!r} is empty; give a file with a header and rows")
        return _open_csv(path, text) if path.suffix.lower() == ".csv" else _open_npz(path)
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read ({error.strerror or error}); check its permissions") from error


def _open_csv(path: Path, text: Sequence[str]) -> _Source:
    import pandas as pd

    name = repr(str(path))
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            separator = max(",;\t", key=first.count)
            header = next(csv.reader([first], delimiter=separator, skipinitialspace=True), [])
        header = [column.strip() for column in header]
        if not any(header):
            raise DataError(f"{name} has an empty first line; put the names of the columns there")
        if all(_is_number(column) for column in header):
            raise DataError(f"{name} has no header but begins with {first.strip()[:60]!r}; add a line of column names")
        twice = sorted({column for column in header if column and header.count(column) > 1})
        if twice:
            raise DataError(f"{name} has more than one column {twice[0]!r}; give every column its own name")
        frame = pd.read_csv(
            path,
            sep=separator,
            encoding="utf-8-sig",
            skipinitialspace=True,
            dtype=dict.fromkeys((header.index(column) for column in text if column in header), str),
            low_memory=False,
        )
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not text in UTF-8 (byte {error.start}); save it as UTF-8") from error
    except (pd.errors.ParserError, csv.Error) as error:
        raise DataError(
            f"{name} is no regular table ({' '.join(str(error).split())}); give all rows the same fields"
        ) from error
    if not isinstance(frame.index, pd.RangeIndex) or len(frame.columns) != len(header):
        raise DataError(f"{name} has rows of more fields than its header's {len(header)}; give all rows the same")
    frame.columns = header
    nameless = header.count("")
    if nameless:
        notes = (f"left out {nameless} {'columns' if nameless > 1 else 'column'} without a name",)
        return _Source(name, frame.loc[:, [bool(column) for column in header]], None, notes)
    return _Source(name, frame, None)


def _open_npz(path: Path) -> _Source:
    import zipfile

    import pandas as pd

    name = repr(str(path))
    try:
        with np.load(path, allow_pickle=False) as archive:
            keys = list(archive.files) if isinstance(archive, np.lib.npyio.NpzFile) else []
            arrays = {key: archive[key] for key in keys if key in ("X", "x", "Y", "y")}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{name} is no .npz file of plain arrays ({error}); write it with numpy.savez") from error
    x = arrays.get("X", arrays.get("x"))
    y = arrays.get("y", arrays.get("Y"))
    if x is None:
        raise DataError(f"{name} has the arrays {_listed(keys)} and no 'X'; name the features X and the target y")
    if x.ndim == 1:
        x = x[:, None]
    if x.ndim != 2:
        raise DataError(f"X in {name} has the shape {x.shape}; a table needs [rows, columns]")
    frame = pd.DataFrame(x, columns=[f"x{index}" for index in range(x.shape[1])])
    if y is not None:
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if y.shape != x.shape[:1]:
            raise DataError(f"X and y in {name} have the shapes {x.shape} and {y.shape}; give one target a row")
        frame["y"] = y
    others = [key for key in keys if key not in ("X", "x", "Y", "y")]
    notes = (f"ignored the {_plural('array', others)} {_listed(others)}",) if others else ()
    return _Source(name, frame, None if y is None else "y", notes)


def _no_missing(source: _Source, columns: Sequence[str]) -> None:
    counts = source.frame[list(columns)].isna().sum()
    missing = {column: int(count) for column, count in counts.items() if count}
    if missing:
        listed = ", ".join(f"{column!r} ({count})" for column, count in list(missing.items())[:10])
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        raise DataError(
            f"{source.name} has missing values in the {_plural('column', missing)} {listed}{more}; "
            "fill them or drop their rows"
        )


def _features(source: _Source, columns: Sequence[str]) -> np.ndarray:
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    frame = source.frame[list(columns)]
    other = [name for name in columns if not is_numeric_dtype(frame[name]) or is_complex_dtype(frame[name])]
    if other:
        first = frame[other[0]]
        value = next((value for value in first.tolist() if not _is_number(value)), first.iloc[0])
        raise DataError(
            f"{source.name} has the non-numeric {_plural('column', other)} {_listed(other)}, first the "
            f"value {value!r}; drop such columns or encode them as numbers"
        )
    x = frame.to_numpy(np.float64)
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        row, column = bad[0].tolist()
        raise DataError(
            f"{source.name} has {len(bad)} infinite {_plural('value', bad)}, first in row {row} of the column "
            f"{columns[column]!r}; replace them or drop their rows"
        )
    return x


def _numeric(source: _Source, column: str) -> np.ndarray:
    from pandas.api.types import is_numeric_dtype

    values = source.frame[column]
    if not is_numeric_dtype(values):
        text = next((value for value in values.tolist() if not _is_number(value)), values.iloc[0])
        raise DataError(
            f"the target {column!r} has the value {text!r} and regression needs numbers; correct it or take classes"
        )
    y = values.to_numpy(np.float64)
    bad = np.flatnonzero(~np.isfinite(y))
    if len(bad):
        raise DataError(
            f"the target {column!r} is infinite in {len(bad)} {_plural('row', bad)}, first row {bad[0]}; "
            "replace it or drop them"
        )
    return y


def _decide(
    source: _Source, target: str, task: str | None, columns: tuple[str, ...]
) -> tuple[TargetEncoding, tuple[str, ...]]:
    """Returns the encoding of a target, by its type or as asked, and a note where the type leaves a doubt."""
    from pandas.api.types import is_bool_dtype, is_float_dtype, is_integer_dtype

    values = source.frame[target]
    kinds = values.unique().tolist()
    count = len(kinds)
    number = is_float_dtype(values) or (is_integer_dtype(values) and not is_bool_dtype(values))
    whole = number and all(float(value).is_integer() for value in kinds)
    if count == 1:
        raise DataError(
            f"the target {target!r} is {kinds[0]!r} in every row, which leaves nothing to learn; choose another"
        )
    chosen, notes = task, ()
    if task is None:
        if is_float_dtype(values) or (number and count > MOST_CLASSES):
            chosen = "regression"
        elif count > MOST_CLASSES:
            raise DataError(
                f"the target {target!r} has {count} different texts, such as {kinds[0]!r}, which look like "
                "identifiers; choose another column, or say that the task is classes"
            )
        else:
            chosen = "binary" if count == 2 else "classes"
        if whole and count <= MOST_CLASSES and not (count == 2 and chosen == "binary"):
            other = {"regression": "binary" if count == 2 else "classes", "classes": "regression"}[chosen]
            notes = (f"the target {target!r} has {count} whole values, taken as {chosen}; --task {other} overrides",)
    if chosen == "regression":
        return TargetEncoding(target, chosen, (), columns), notes
    if chosen == "binary" and count != 2:
        raise DataError(
            f"the target {target!r} has {count} distinct values and a binary task has two; take another task"
        )
    if number and not whole:
        value = next(value for value in kinds if not float(value).is_integer())
        raise DataError(f"the target {target!r} has the value {value!r}, which is no class; take regression")
    return TargetEncoding(target, chosen or "classes", tuple(_ordered(kinds)), columns), notes


def _ordered(kinds: list[Any]) -> list[Any]:
    """Returns labels in their own order; where text stands among other values, in the order of their text."""
    try:
        return sorted(int(kind) if isinstance(kind, float) else kind for kind in kinds)
    except TypeError:
        return sorted(kinds, key=str)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _plural(noun: str, items: Any) -> str:
    return noun if len(items) == 1 else f"{noun}s"


def _listed(items: Sequence[Any], most: int = 10) -> str:
    shown = ", ".join(repr(item) for item in items[:most])
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"
