"""The columns of a table as variables of a row: numbers, positive numbers, counts, zeros and ones, categories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from lamu.data.encoding import Encoding
from lamu.data.inputs import Features
from lamu.data.table import match_columns, read_columns
from lamu.data.wording import DataError, listed
from lamu.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, NegativeBinomial
from lamu.record import record, static
from lamu.typing import Data, RandomKey, Rows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["KINDS", "Columns", "kind_of", "oversample_labelled"]

KINDS = ("number", "positive", "count", "bit", "category")
_NAMES = {"number": "numbers", "positive": "numbers", "count": "counts", "bit": "bits"}  # the variables' names by kind
_RESERVED = ("numbers", "counts", "bits", "z", "decode", "local", "likelihood", "weight", "mask")
# As in `lamu fit`'s choice of a likelihood: large counts that are not skewed are nearly Gaussian. Positive numbers
# with a skewness above one, and a smaller one of their logarithms, use these.
_LARGE, _SKEWED, _LONG_TAILED = 5, 0.5, 1.0


def kind_of(values: np.ndarray, levels: tuple[str, ...]) -> str:
    """Returns which of `KINDS` a column is."""
    present = values[~np.isnan(values)]
    if levels:
        return "category"
    if np.isin(present, (0.0, 1.0)).all():
        return "bit"
    if (present >= 0).all() and (present == np.floor(present)).all():
        return "count" if present.min() < _LARGE or _skewness(present) >= _SKEWED else "number"
    skewness = _skewness(present)
    if present.min() > 0 and skewness > _LONG_TAILED and abs(_skewness(np.log(present))) < skewness:
        return "positive"
    return "number"


def _skewness(values: np.ndarray) -> float:
    scale = values.std()
    return float(np.mean(((values - values.mean()) / scale) ** 3)) if scale > 0 else 0.0


@record
class Columns:
    r"""The columns of a table of mixed kinds, each with a suitable likelihood.

    | kind | values | likelihood |
    |---|---|---|
    | `"number"` | any numbers, standardised | `Gaussian()`, a noise for each |
    | `"positive"` | positive numbers with a long tail, their logarithms standardised | the same, a log-normal |
    | `"count"` | whole numbers from zero | `NegativeBinomial()`, about the column's mean |
    | `"bit"` | zeros and ones | `Bernoulli()` |
    | `"category"` | words | `Categorical(K)`, about the frequencies |

    `models.TableVAE(columns, latents)` is a variational autoencoder of such rows. An empty cell is a missing entry: it
    does not enter the likelihood, and the encoder reads which cells are empty. New categories are treated the same way.

    Attributes:
        encoding: the encoding of the cells.
        kinds: the kind of each column.
        centres: the subtracted values: the mean of numbers, the mean of the logarithms of positive ones; for counts the
            mean itself.
        scales: the divisors of numbers; one for other kinds.
        frequencies: the frequencies of each category's levels; empty for other kinds.

    Raises:
        ValueError: for an unknown kind, or numbers of entries other than that of the columns.

    Source: Nazábal, Olmos, Ghahramani & Valera (2020), "Handling incomplete heterogeneous data using VAEs", section 3.

    Examples:
        >>> import jax, lamu, pandas as pd
        >>> from lamu import latent
        >>> ages, visits = [31.5, 40.2, None, 58.9, 44.0, 37.1], [0, 2, 1, None, 3, 0]
        >>> frame = pd.DataFrame({"age": ages, "visits": visits, "ward": ["a", "b", "a", None, "b", "a"]})
        >>> columns = latent.Columns.of(frame)
        >>> columns.kinds
        ('number', 'count', 'category')
        >>> graph = latent.models.TableVAE(columns, 2)
        >>> posterior = lamu.fit(graph, columns.rows(frame), lamu.algorithms.adam(0.01), steps=20).posterior
        >>> columns.imputed(posterior, frame, jax.random.key(0), draws=10).shape
        (6, 8)
    """

    encoding: Encoding = static()
    kinds: tuple[str, ...] = static()
    centres: tuple[float, ...] = static()
    scales: tuple[float, ...] = static()
    frequencies: tuple[tuple[float, ...], ...] = static()

    def __post_init__(self) -> None:
        for name, values in (("kinds", self.kinds), ("centres", self.centres), ("scales", self.scales)):
            if len(values) != len(self.encoding.columns):
                raise ValueError(f"{name} has {len(values)} for {len(self.encoding.columns)} columns; give one each")
        for kind in self.kinds:
            if kind not in KINDS:
                raise ValueError(f"there is no kind {kind!r}; give one of {listed(KINDS)}")

    @classmethod
    def of(cls, data: Data, kinds: Mapping[str, str] | None = None) -> Columns:
        """Returns the columns of a table, with kinds inferred from the values.

        Args:
            data: a frame of pandas or polars, or a file, as `lamu.data.Table` is read from.
            kinds: kinds of some columns by name, to override the inferred ones.

        Raises:
            DataError: for a table that cannot be read, or a column with one value or none.
        """
        features, encoding, _ = read_columns(data)
        return cls.learned(features, encoding, kinds)

    @classmethod
    def learned(cls, features: Features, encoding: Encoding, kinds: Mapping[str, str] | None = None) -> Columns:
        """Returns the columns of rows that were read.

        Args:
            features: the features from `lamu.data.table.read_columns`.
            encoding: their encoding.
            kinds: as for `of`.
        """
        kinds_by_name = dict(kinds or {})
        unknown = [name for name in kinds_by_name if name not in features.columns]
        if unknown:
            raise DataError(f"there is no column {unknown[0]!r}; the columns are {listed(features.columns)}")
        kinds_found, centres, scales, frequencies = [], [], [], []
        for name, column, levels in zip(features.columns, features.values.T, features.levels, strict=True):
            present = column[~np.isnan(column)]
            constant = not len(present) or (present == present[0]).all()
            if constant and not (len(present) and kinds_by_name.get(name) == "count"):  # a rare word is a count
                what = "one value" if len(present) else "no value"
                raise DataError(f"the column {name!r} has {what} in the rows to learn from; leave it out")
            kind = kinds_by_name.get(name) or kind_of(column, levels)
            _require_kind(name, kind, present, levels)
            present = np.log(present) if kind == "positive" else present
            number = kind in ("number", "positive")
            kinds_found.append(kind)
            centre = float(present.mean()) if number or kind == "count" else 0.0
            centres.append(max(centre, 1.0 / len(present)) if kind == "count" else centre)
            scales.append(float(present.std()) if number else 1.0)
            counts = np.bincount(present.astype(int), minlength=len(levels)) + 1.0 if levels else np.zeros(0)
            frequencies.append(tuple((counts / counts.sum()).tolist()) if levels else ())
        return cls(encoding, tuple(kinds_found), tuple(centres), tuple(scales), tuple(frequencies))

    @property
    def variables(self) -> dict[str, tuple[int, ...]]:
        """The variables of a row by name, each with the positions of its columns."""
        groups: dict[str, tuple[int, ...]] = {}
        for position, (column, kind) in enumerate(zip(self.encoding.columns, self.kinds, strict=True)):
            name = _NAMES.get(kind, column)
            while kind == "category" and (name in _RESERVED or name in groups):
                name += "_"
            groups[name] = (*groups.get(name, ()), position)
        return groups

    def likelihood(self, name: str) -> tuple[Likelihood, np.ndarray]:
        """Returns the likelihood of a variable's entries, and an offset for the outputs of the decoder.

        Args:
            name: one of `variables`.
        """
        positions = self.variables[name]
        kind = self.kinds[positions[0]]
        if kind == "category":
            frequencies = self.frequencies[positions[0]]
            return Categorical(len(frequencies)), np.log(frequencies)
        if kind == "count":
            return NegativeBinomial(), np.log([self.centres[position] for position in positions])
        return (Bernoulli() if kind == "bit" else Gaussian()), np.zeros(len(positions))

    def rows(self, data: Data) -> dict[str, np.ndarray]:
        """Returns the rows of a table as a graph takes them, arrays by the names of `variables`.

        Args:
            data: a table with these columns by name.
        """
        return self.rows_of(match_columns(data, self.encoding)[0])

    def rows_of(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Returns `rows` for values that were read, `[rows, columns]`.

        Args:
            values: NaN where missing.

        Raises:
            DataError: for a value outside the column's support, such as a negative count.
        """
        for name, kind, column in zip(self.encoding.columns, self.kinds, values.T, strict=True):
            _require_kind(name, kind, column[~np.isnan(column)], ())
        dtype = jax.dtypes.canonicalize_dtype(np.float64)
        parts = {}
        for name, positions in self.variables.items():
            part = values[:, list(positions)]
            if self.kinds[positions[0]] in ("number", "positive"):
                part = (self._logs(part, positions) - self._of(self.centres, positions)) / self._of(
                    self.scales, positions
                )
            parts[name] = (part[:, 0] if self.kinds[positions[0]] == "category" else part).astype(dtype)
        return parts

    def values(self, rows: Mapping[str, Rows]) -> np.ndarray:
        """Returns values in the units of the table, `[..., rows, columns]`, from the arrays of `variables`.

        Args:
            rows: arrays by name, with any leading axes; for a category its position among the levels.
        """
        columns: dict[int, np.ndarray] = {}
        for name, positions in self.variables.items():
            part = np.asarray(rows[name], float)
            part = part[..., None] if self.kinds[positions[0]] == "category" else part
            for index, position in enumerate(positions):
                column = part[..., index]
                if self.kinds[position] in ("number", "positive"):
                    column = self.centres[position] + self.scales[position] * column
                columns[position] = np.exp(column) if self.kinds[position] == "positive" else column
        return np.stack([columns[position] for position in range(len(columns))], axis=-1)

    def log_unit(self, values: np.ndarray) -> np.ndarray:
        r"""Returns the difference of \(\log p\) of each row's variables from that of its values, `[rows]` in nats.

        Args:
            values: `[rows, columns]`, NaN where missing.
        """
        unit = np.where(np.isnan(values), 0.0, np.log(self.scales))
        positive = np.array([kind == "positive" for kind in self.kinds])
        logs = np.log(np.where(positive & ~np.isnan(values), values, 1.0))
        return np.sum(unit + logs, axis=1)

    def log_prob(self, posterior: Any, data: Data, samples: int = 100) -> np.ndarray:
        r"""Returns \(\log p\) of each row of a table in its own units, `[rows]` in nats.

        Args:
            posterior: posterior of a graph of these variables, such as `models.TableVAE`.
            data: a table with these columns.
            samples: as for `Posterior.log_prob`.
        """
        values, _ = match_columns(data, self.encoding)
        return np.asarray(posterior.log_prob(self.rows_of(values), samples), float) - self.log_unit(values)

    def drawn(self, posterior: Any, values: np.ndarray, key: RandomKey, draws: int = 100) -> np.ndarray:
        """Returns samples of rows with missing entries filled in, `[draws, rows, columns]` in the table's units.

        Args:
            posterior: posterior of a graph of these variables.
            values: `[rows, columns]`, NaN where missing.
            key: a random key.
            draws: number of samples.
        """
        holes = np.isnan(values)
        if not holes.any():
            return np.broadcast_to(values, (draws, *values.shape))
        rows = self.rows_of(values)
        samples = posterior.predict(rows, samples=draws).sample(key, draws)
        samples = samples if isinstance(samples, Mapping) else {next(iter(rows)): samples}
        return np.where(holes, self.values(samples), values)

    def imputed(self, posterior: Any, data: Data, key: RandomKey, draws: int = 100) -> pd.DataFrame:
        """Returns a table with missing entries filled in, and 90 % intervals for columns that had some.

        Numbers are filled by their means, counts by their medians, categories by the most probable one, followed by its
        probability.

        Args:
            posterior: posterior of a graph of these variables, such as `models.TableVAE`.
            data: a table with these columns.
            key: a random key.
            draws: number of samples for the means, the medians and the intervals.
        """
        values, _ = match_columns(data, self.encoding)
        return self.filled(values, self.drawn(posterior, values, key, draws))

    def filled(self, values: np.ndarray, drawn: np.ndarray) -> pd.DataFrame:
        """Returns `imputed` for given samples.

        Args:
            values: `[rows, columns]`, NaN where missing.
            drawn: `[draws, rows, columns]`.
        """
        import pandas as pd

        table: dict[str, Any] = {}
        for position, (name, kind) in enumerate(zip(self.encoding.columns, self.kinds, strict=True)):
            column, draws, levels = values[:, position], drawn[:, :, position], self.encoding.levels[position]
            if kind in ("category", "bit"):
                number = max(len(levels), 2)
                shares = np.stack([(draws == level).mean(axis=0) for level in range(number)], axis=1)
                best = np.where(np.isnan(column), shares.argmax(axis=1), column).astype(int)
                table[name] = np.asarray(levels, object)[best] if levels else best
                if np.isnan(column).any():
                    table[f"{name} probability"] = np.where(np.isnan(column), shares.max(axis=1), 1.0)
                continue
            median = lambda draws: np.quantile(draws, 0.5, axis=0, method="inverted_cdf")
            of_draws = median(draws) if kind == "count" else draws.mean(axis=0)
            table[name] = np.where(np.isnan(column), of_draws, column)  # whose mean is rounded
            if np.isnan(column).any():
                how = "inverted_cdf" if kind == "count" else "linear"
                lower, upper = np.quantile(draws, (0.05, 0.95), axis=0, method=how)
                table[f"{name} lower"], table[f"{name} upper"] = lower, upper
        return pd.DataFrame(table)

    def _of(self, values: tuple[float, ...], positions: tuple[int, ...]) -> np.ndarray:
        return np.array([values[position] for position in positions])

    def _logs(self, part: np.ndarray, positions: tuple[int, ...]) -> np.ndarray:
        positive = np.array([self.kinds[position] == "positive" for position in positions])
        return np.where(positive, np.log(np.where(positive, part, 1.0)), part)


def _require_kind(name: str, kind: str, present: np.ndarray, levels: tuple[str, ...]) -> None:
    """Raises a DataError for a column with values outside a kind's support."""
    if levels and kind != "category":
        raise DataError(f"the column {name!r} holds words such as {levels[0]!r}, which are not a {kind}; leave it out")
    is_integer = present == np.floor(present)
    wrong = {
        "positive": present <= 0,
        "count": ~((present >= 0) & is_integer),
        "bit": ~np.isin(present, (0.0, 1.0)),
    }.get(kind, np.zeros(len(present), bool))
    if wrong.any():
        rule = {"positive": "positive", "count": "a whole number from 0", "bit": "0 or 1"}[kind]
        raise DataError(f"the column {name!r} has {present[wrong][0]:g}, and every value of it is {rule}")


def oversample_labelled(rows: Mapping[str, Any], category: str = "c", share: float = 0.25) -> dict[str, np.ndarray]:
    r"""Returns rows with labelled ones repeated, and weights that keep every sum over rows.

    A labelled row occurs k times with the weight 1/k, or its own over k, where k brings the copies nearest to the
    share. Of 60,000 rows with a hundred labels, a batch of 128 contains one label in five batches; after oversampling
    it contains 32, and the gradient of the same loss has less noise.

    Args:
        rows: data, arrays `[N, ...]` by name, including the category, NaN where a row has no label; optionally with
            `weight`.
        category: name of the category.
        share: share of the copies among all rows, above 0 and below 1.

    Returns:
        Arrays `[N + (k - 1) N_l, ...]` by name, with `weight`: first the rows without a label, then the copies. If the
        labelled share is already as large, k is one.

    Raises:
        ValueError: for a name that is not in the data, a share that is not between 0 and 1, or no label at all.

    Examples:
        >>> import numpy as np
        >>> from lamu.latent import oversample_labelled
        >>> data = oversample_labelled({"y": np.arange(4.0), "c": np.array([1.0, np.nan, np.nan, np.nan])}, share=0.4)
        >>> data["y"], data["weight"]
        (array([1., 2., 3., 0., 0.]), array([1. , 1. , 1. , 0.5, 0.5], dtype=float32))
    """
    if not 0 < share < 1:
        raise ValueError(f"share={share!r} is not a share of a batch; give one between 0 and 1, for instance 0.25")
    if category not in rows:
        raise ValueError(f"the rows have no category {category!r}; give one of {', '.join(map(repr, rows))}")
    is_labelled = ~np.isnan(np.asarray(rows[category], float))
    labelled, others = np.flatnonzero(is_labelled), np.flatnonzero(~is_labelled)
    if not len(labelled):
        raise ValueError(f"no row has a label in {category!r}; give some, NaN where a row has none")
    copies = max(1, round(share / (1 - share) * len(others) / len(labelled)))
    order = np.concatenate([others, np.repeat(labelled, copies)])
    weight = np.asarray(rows.get("weight", np.ones(len(is_labelled)))) / np.where(is_labelled, copies, 1)
    return jax.tree.map(lambda part: np.asarray(part)[order], {**rows, "weight": weight.astype(np.float32)})
