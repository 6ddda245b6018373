"""What a column holds: numbers, or words that are levels, or what a person must first turn into one of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamu.data import dates
from lamu.data.precision import crowded_from
from lamu.data.wording import DataError, at, quoted
from lamu.data.written_numbers import is_code, written

__all__ = ["Words", "kind", "numbers", "refuse_word", "words"]

_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "empty")
_TEXT = ("string", "mixed-integer", "mixed")
_LEVELS = ("boolean", "categorical")
NEARLY_ALL = 0.9


def kind(values: Any) -> str:
    """Returns what a column of a frame holds: "numbers", "text", "levels", "dates" or the name of something else."""
    # Text may turn out to be numbers or dates; truth values and pandas categories are levels, whatever they look like.
    from pandas.api.types import infer_dtype

    found = infer_dtype(values, skipna=True)
    if found == "categorical" and kind(values.cat.categories.to_series()) == "dates":
        return "dates"
    if found == "mixed" and not all(isinstance(value, str | bool | int | float) for value in values.dropna()):
        return "mixed objects"
    for name, kinds in (("numbers", _NUMBERS), ("text", _TEXT), ("levels", _LEVELS), ("dates", dates.TYPES)):
        if found in kinds:
            return name
    return found


def numbers(values: Any) -> np.ndarray:
    """Returns a column of numbers as float64, NaN where a value is missing."""
    if getattr(values.dtype, "kind", "") in "iu":
        origin = crowded_from(values.dropna().to_numpy())
        if origin is not None:
            raise DataError(
                f"the column {values.name!r} has whole numbers from {origin} on that differ by less than float64 "
                f"holds; subtract {origin} from them first"
            )
    try:
        return values.to_numpy(np.float64, na_value=np.nan)
    except OverflowError as error:
        raise DataError(f"the column {values.name!r} has a number beyond 1e308; correct it or drop the column") from (
            error
        )


@dataclass(frozen=True)
class Words:
    """A column of words: its levels, and where each stands."""

    levels: tuple[str, ...]  # the different words, sorted
    codes: np.ndarray  # the position of each row's word in `levels`, `[rows]`; -1 where it is missing

    @property
    def counts(self) -> np.ndarray:
        """How often each level stands in the column."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels))

    @property
    def numbers(self) -> np.ndarray:
        """Each level as a number, which may be infinite; NaN where it is none, and for codes with leading zeros."""
        import pandas as pd

        if self.coded:
            return np.full(len(self.levels), np.nan)
        levels: Any = pd.Series(self.levels, dtype=object)
        return np.asarray(pd.to_numeric(levels, errors="coerce"), float)

    @property
    def texts(self) -> list[str | None]:
        """The words, row by row; None where one is missing."""
        return np.asarray([*self.levels, None], object)[self.codes].tolist()

    @property
    def parsed(self) -> np.ndarray:
        """The words as numbers, row by row, NaN where one is missing or is none."""
        return np.append(self.numbers, np.nan)[self.codes]

    @property
    def coded(self) -> bool:
        """Whether the words are codes of digits, such as 02139, rather than numbers."""
        return is_code(self.levels)

    @property
    def readable(self) -> np.ndarray:
        """Whether each level is a number as people write them, such as $1,200 or 12 %."""
        return np.asarray([written(level) is not None for level in self.levels], bool) & (not self.coded)

    def without(self, levels: Collection[str]) -> Words:
        """Returns the column with some of its levels missing."""
        kept = [index for index, level in enumerate(self.levels) if level not in levels]
        places = np.full(len(self.levels) + 1, -1)
        places[kept] = np.arange(len(kept))
        return Words(tuple(self.levels[index] for index in kept), places[self.codes])

    def spread(self, numbers: np.ndarray) -> Any:
        """Returns numbers of the levels row by row, as a pandas Series, NaN where a word is missing."""
        import pandas as pd

        return pd.Series(np.append(np.asarray(numbers, float), np.nan)[self.codes])

    def series(self, values: Any) -> Any:
        """Returns the words as a pandas Series."""
        import pandas as pd

        return pd.Series(self.texts, index=values.index, name=values.name, dtype=object)

    def dated(self) -> bool:
        """Returns whether nearly all of the words are dates or times."""
        return dates.look_like_dates(self.levels, self.counts.tolist())

    def stray(self) -> tuple[str, int] | None:
        """Returns the first word, and its row, of a column that is nearly all numbers; None for another column."""
        # What a person reads as a number and a program does not (1,5 or 12 % or $5) is a number here.
        number = self.readable
        return self.first(number) if self._share(number) >= NEARLY_ALL and not number.all() else None

    def first(self, number: np.ndarray) -> tuple[str, int]:
        """Returns the first word that is no number, and its row."""
        row = int(np.flatnonzero((self.codes >= 0) & ~number[self.codes])[0])
        return self.levels[self.codes[row]], row

    def _share(self, chosen: np.ndarray) -> float:
        return float(self.counts[chosen].sum()) / max(1, int(self.counts.sum()))


def words(values: Any) -> Words:
    """Returns a column as words: truth values are "True" and "False", whole numbers have no point."""
    import pandas as pd

    codes, uniques = pd.factorize(values)
    texts = [_text(value) for value in uniques.tolist()]
    levels = sorted(set(texts))
    position = {level: index for index, level in enumerate(levels)}
    places = np.asarray([*(position[text] for text in texts), -1], np.int64)  # the last is where missing values are
    return Words(tuple(levels), places[codes])


def refuse_word(source: str, column: str, word: str, row: int) -> DataError:
    """Returns the error about a word that stands among numbers."""
    return DataError(
        f"{source} has {quoted(word)} {at(row)} of the column {column!r}, which is of numbers; correct it, or leave "
        "the field empty if it is missing"
    )


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
