"""Base classes of the estimators, with parameters, fit, prediction, pickling and saving."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from lamu import store
from lamu.algorithms.post_hoc.laplace import laplace
from lamu.data.arrays import UnfamiliarRows, UnscaledWeights, readable, refuse_other_order, refuse_unread, warn_of_scale
from lamu.data.copies import are_cells, repeats
from lamu.data.encoding import Encoding
from lamu.data.imputation import Completions
from lamu.data.inputs import Features, completions, learn, one_hot, outside_training, transform
from lamu.data.splits import Groups, groups_of
from lamu.data.wording import nearest
from lamu.data.written_numbers import is_code, is_number
from lamu.folds import centred, fit_folds
from lamu.likelihoods import Likelihood
from lamu.likelihoods.table import LIKELIHOODS, OTHER_NAMES
from lamu.loop import fit
from lamu.model import Model
from lamu.networks import MLP
from lamu.posterior import Posterior
from lamu.predictives import InputMixture, Predictive
from lamu.priors import LearnedNormal, Normal
from lamu.protocol import require_part
from lamu.record import decode, encode, modules_of
from lamu.tabular import fit_table
from lamu.typing import Inputs, Options, Targets

__all__ = [
    "BayesianEstimator",
    "PosteriorEstimator",
    "RandomState",
    "distinct",
    "learn_encoding",
    "new_rows",
    "refuse_words",
    "training_rows",
]


def learn_encoding(
    x: np.ndarray, y: np.ndarray, classes: int, columns: Sequence[str], weight: np.ndarray | None = None
) -> Encoding:
    """Returns the imputation of missing numbers, learned from training rows, also for complete columns."""
    features = _features(x, columns, one_hot(list(x.T)))
    learned = learn(features, np.arange(len(x)), impute=True, y=y, classes=classes, weight=weight)
    # No units: the precision is that of the rows.
    return Encoding("y", "classes" if classes else "regression", (), **{**learned, "units": ()})


def training_rows(encoding: Encoding, x: np.ndarray, y: np.ndarray, columns: Sequence[str]) -> np.ndarray:
    """Returns complete training rows, with a missing indicator for each incomplete column."""
    blocks = _blocks(encoding, columns)
    codes = transform(_features(x, columns, blocks), encoding, np.arange(len(x)), y)[0]
    return _in_columns(codes, x, blocks).astype(x.dtype)


def new_rows(encoding: Encoding, x: np.ndarray, columns: Sequence[str]) -> Completions:
    """Returns rows for prediction; an incomplete row is repeated for each draw of its missing numbers."""
    blocks = _blocks(encoding, columns)
    features = _features(x, columns, blocks)
    for note in outside_training(features, encoding):
        warnings.warn(note, UnfamiliarRows, stacklevel=4)
    completed = completions(features, encoding)
    return replace(completed, x=_in_columns(completed.x, x[completed.row], blocks).astype(x.dtype))


def _blocks(encoding: Encoding, columns: Sequence[str]) -> list[list[int]]:
    place = {name: index for index, name in enumerate(columns)}
    return [[place[name] for name in levels] for levels in encoding.levels if levels]


def _features(x: np.ndarray, columns: Sequence[str], blocks: Sequence[Sequence[int]]) -> Features:
    """Returns numbers, and behind them for each block the position of the one; the last for a row that has none."""
    numbers = np.setdiff1d(np.arange(len(columns)), [column for block in blocks for column in block])
    values, names = [x[:, numbers]], [str(columns[index]) for index in numbers]
    levels: list[tuple[str, ...]] = [()] * len(numbers)
    for block in blocks:
        part = x[:, block]
        code = np.where(part.any(axis=1), part.argmax(axis=1), len(block))
        values.append(np.where(np.isnan(part).any(axis=1), np.nan, code)[:, None])
        names.append(" | ".join(columns[index] for index in block))
        levels.append((*(columns[index] for index in block), ""))
    return Features(tuple(names), np.concatenate(values, axis=1).astype(np.float64), tuple(levels))


def _in_columns(codes: np.ndarray, x: np.ndarray, blocks: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns completed rows in the columns of x, indicators behind."""
    if not blocks:
        return codes
    numbers = np.setdiff1d(np.arange(x.shape[1]), np.concatenate(blocks))
    completed = x.copy()
    completed[:, numbers] = codes[:, : len(numbers)]
    for place, block in enumerate(blocks, len(numbers)):
        given = x[:, block]
        lacks = np.isnan(given).any(axis=1) | ~given.any(axis=1)
        drawn = np.equal.outer(codes[:, place], np.arange(1, len(block) + 1))
        completed[:, block] = np.where(np.reshape(lacks, (-1, 1)), drawn, given)
    return np.concatenate([completed, codes[:, len(numbers) + len(blocks) :]], axis=1)


def refuse_words(X: Inputs) -> None:
    """Raises a ValueError for columns of words, dates or codes, and a TypeError for those of lists."""
    if hasattr(X, "items"):  # of pandas, whatever its names are
        # Nullable columns of numbers, which hold <NA> as an array, are read by scikit-learn.
        kind = lambda column: getattr(getattr(column, "dtype", None), "kind", "O")
        words = [(name, column) for name, column in X.items() if kind(column) not in "biuf"]
        columns = [(f"the column {name!r}", np.asarray(column)) for name, column in words]
    elif hasattr(X, "iter_columns"):
        columns = [(f"the column {column.name!r}", np.asarray(column)) for column in X.iter_columns()]
    else:
        array = X if isinstance(X, np.ndarray) else np.asarray(X, object) if isinstance(X, list) else np.zeros(0)
        if array.ndim != 2 or array.dtype.kind not in "OU":
            return
        columns = [(f"column {index} of X", column) for index, column in enumerate(array.T)]
    for what, column in columns:
        if column.dtype.kind in "mM":
            raise ValueError(f"{what} holds dates, which are not numbers; give days since the first, for instance")
        if column.dtype.kind == "c":
            raise ValueError(f"{what} holds complex numbers; give real ones, for instance both of its parts")
        if column.dtype.kind not in "OU":
            continue
        if lists := [value for value in column.ravel() if isinstance(value, list | tuple | dict | set | np.ndarray)]:
            raise TypeError(  # in the words that `check_estimator` expects
                f"{what} holds {type(lists[0]).__name__}s such as {lists[0]}, where each argument must be a string or "
                "a number; give a column for each number"
            )
        if dates := [value for value in column.ravel() if hasattr(value, "year")]:
            raise ValueError(f"{what} holds dates such as {dates[0]}, which are not numbers; give days since the first")
        if any(str(value) == "<NA>" for value in column.ravel()):
            raise ValueError(f"{what} holds <NA> among objects; write X.convert_dtypes()")
        texts = tuple(sorted({value.strip() for value in column.ravel() if isinstance(value, str)}))
        if is_code(texts):
            code = next(text for text in texts if text[0] == "0" and len(text) > 1)
            raise ValueError(
                f"{what} holds codes such as {code!r}, which would be read as the number {int(code)}; encode it as "
                "categories, for instance by scikit-learn's OneHotEncoder in a pipeline, or where it is a number write "
                "X.astype(float)"
            )
        word = next((text for text in texts if not is_number(text)), None)
        if word is not None:
            raise ValueError(
                f"{what} holds the word {word!r}, which is not a number; encode it as categories, for instance by "
                "scikit-learn's OneHotEncoder in a pipeline"
            )


def _refuse_lacking(y: Targets) -> None:
    from pandas import isna  # of None and pd.NA too, on which scikit-learn fails

    labels = np.asarray(y, object)
    rows = np.flatnonzero(isna(labels) & (labels.ndim == 1))
    if len(rows):
        missing = f"{len(rows)} missing value{'s' * (len(rows) > 1)}, the first {labels[rows[0]]} in row {rows[0]}"
        raise ValueError(f"Input y contains NaN: {missing}; leave such rows out")


# \[ \sum_{i=1}^N w_i \log p(y_i \mid x_i, \theta)
#    = \sum_{j \in \text{distinct}} \Big( \sum_{i \equiv j} w_i \Big) \log p(y_j \mid x_j, \theta) \]
#
# The likelihood is the same function of θ, so a posterior must not depend on the form of the data. Stochastic training
# would: therefore the estimators use one canonical form, in which a weight of two equals a row written twice, a weight
# of zero equals no row, and the order of the rows does not matter. Folds split that form, with copies written out where
# they are cases (`lamu.data.copies`).


def distinct(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray, groups: Groups | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Groups | None]:
    """Returns the sorted distinct rows of positive weight, their total weights, numbers of copies, and groups."""
    group, kept = np.zeros(len(y), np.int32) if groups is None else np.asarray(groups), weight > 0
    x, y, weight, group = x[kept], y[kept], weight[kept], group[kept]
    value = np.where(np.isnan(x), np.inf, x)
    order = np.lexsort((group, y, *value.T[::-1]))
    x, y, weight, value, group = x[order], y[order], weight[order], value[order], group[order]
    first = np.ones(len(y), bool)
    first[1:] = (value[1:] != value[:-1]).any(axis=1) | (y[1:] != y[:-1]) | (group[1:] != group[:-1])
    starts = np.flatnonzero(first)
    copies, of_groups = (
        np.diff(starts, append=len(y)),
        None if groups is None else groups[np.flatnonzero(kept)[order][first]],
    )
    return x[first], y[first], np.add.reduceat(weight, starts), copies, of_groups


RandomState: TypeAlias = int | np.random.RandomState | None
_PRECISIONS = (np.float64, np.float32)
_PLAIN = bool | int | float | str | None  # types of constructor parameters that are saved


class PosteriorEstimator(BaseEstimator):
    """Base class of the estimators: a posterior in the precision of the rows, with pickling and `save`."""

    # `posterior_`: the `lamu.Posterior`.
    #
    # `dtype_`: the precision of the training rows.
    #
    # `n_features_in_`: the number of columns.
    #
    # `feature_names_in_`: the names of the columns, where X was a frame.

    posterior_: Posterior
    dtype_: np.dtype
    n_features_in_: int
    random_state: RandomState
    _allows_nan = True

    def __getstate__(self) -> Options:
        """Returns the state for pickle."""
        state: Any = super().__getstate__()
        if "posterior_" in state:
            arrays: dict[str, np.ndarray] = {}
            state = {**state, "posterior_": (encode(state["posterior_"], arrays, "posterior"), arrays)}
        return state

    def __setstate__(self, state: Options) -> None:
        """Restores the state of pickle."""
        if "posterior_" in state:
            with jax.enable_x64(state["dtype_"] == np.float64):  # else JAX rounds what it is given to 32 bits
                data, arrays = state["posterior_"]
                # A pickle file is trusted already, since pickle itself imports modules.
                state = {**state, "posterior_": decode(data, arrays, trust=modules_of(data))}
        super().__setstate__(state)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the fitted estimator as a folder of JSON and plain arrays, without pickle.

        Args:
            path: the folder to create.

        Returns:
            Its path. `lamu.sklearn.load` reads it.

        Raises:
            FileExistsError: if `path` exists.
            sklearn.exceptions.NotFittedError: before `fit`.
        """
        check_is_fitted(self)
        arrays: dict[str, np.ndarray] = {}
        names = sorted(name for name in vars(self) if name.endswith("_") and not name.startswith("_"))
        learned = {name: _plain(getattr(self, name)) for name in names if name != "posterior_"}
        content = {
            "estimator": type(self).__name__,
            "parameters": self._saved_parameters,
            "learned": encode(learned, arrays, "learned"),
            "posterior": encode(self.posterior_, arrays, "posterior"),
        }
        return store.write(path, content, arrays)

    def __sklearn_tags__(self) -> Tags:
        """Returns scikit-learn's tags, including the support of NaN."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._allows_nan
        return tags

    @property
    def _saved_parameters(self) -> dict[str, _PLAIN]:
        """Returns the constructor parameters to save; a random generator is saved as None."""
        of_numpy = lambda value: value.item() if isinstance(value, np.generic) else value
        parameters = {name: of_numpy(value) for name, value in self.get_params(deep=False).items()}
        return {name: value for name, value in parameters.items() if isinstance(value, _PLAIN)}

    def _drawn_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _validated(self, X: Inputs, *y: Targets, reset: bool = False, **options: Any) -> Any:
        """Checks rows, and targets if given, and returns them as numbers."""
        if not reset:
            check_is_fitted(self)
        X = readable(X)
        for name, values in zip("Xy", (X, *y), strict=False):  # in place of scikit-learn, which reads masked ones
            if np.ma.isMaskedArray(values):
                refuse_unread(name, values)
        refuse_words(X)
        shape = getattr(X, "shape", ())  # not by NumPy, which reads what is none of its arrays
        if shape[1:] == (0,):
            raise ValueError(f"X has 0 feature(s) (shape={shape}) while a minimum of 1 is required; give a column")
        finite = "allow-nan" if self._allows_nan else True
        return validate_data(self, X, *y, dtype=_PRECISIONS, reset=reset, ensure_all_finite=finite, **options)

    def _asked(self, question: Callable[[Posterior], Any]) -> Any:
        """Returns a function of the posterior, as NumPy arrays."""
        with jax.enable_x64(self.dtype_ == np.float64):
            return jax.tree.map(np.asarray, question(self.posterior_))


def _plain(value: Any) -> Any:
    """Returns a fitted attribute in a form that can be saved: lists of strings instead of object arrays."""
    if isinstance(value, np.dtype):
        return value.name
    return value.tolist() if isinstance(value, np.ndarray) and value.dtype == object else value


class BayesianEstimator(PosteriorEstimator):
    """Base class of classifier and regressor: parameters, fit and prediction."""

    # Training and prediction have the precision of X, as in scikit-learn's own networks: 64 bits, or 32 where X is an
    # array of `float32`.
    #
    # `posterior_`: where training rows are incomplete, its inputs are completed rows, followed by a missing indicator
    # for each incomplete column of X.
    #
    # `encoding_`: the imputation of missing numbers, `lamu.data.Encoding.describe()`.

    def __init__(
        self,
        likelihood: Any = None,
        *,
        network: Any = None,
        prior: Any = None,
        algorithm: Any = None,
        epochs: Any = None,
        batch_size: Any = 64,
        samples: Any = 32,
        random_state: Any = None,
    ) -> None:
        # Parameters are checked in `fit`: scikit-learn's searches set and reset them freely.
        self.likelihood = likelihood
        self.network = network
        self.prior = prior
        self.algorithm = algorithm
        self.epochs = epochs
        self.batch_size = batch_size
        self.samples = samples
        self.random_state = random_state

    def fit(
        self,
        X: Inputs,
        y: Targets,
        sample_weight: Inputs | None = None,
        groups: object = None,
        time: object = None,
    ) -> Any:
        """Fits the estimator to the rows of a table.

        Args:
            X: inputs `[rows, columns]`: an array, or a frame of pandas or polars. NaN is a missing number, which is
                drawn given the rest of its row as by `lamu fit --impute`, here and in rows to predict. Encode
                categorical columns before, for instance by scikit-learn's `OneHotEncoder` in a pipeline.
            y: targets `[rows]`.
            sample_weight: the weight of each row, `[rows]`; a weight of two equals the row written twice. Weights are
                therefore not normalised: their sum is the number of rows of the posterior, and weights that sum to one
                leave it near the prior. A sum far from the number of rows is used as it is, with a warning
                (`lamu.data.UnscaledWeights`).
            groups: the group of each row, `[rows]`, numbers or words, where the rows of one (a patient, a shop) are
                alike: all of them are in one fold, as for `lamu.fit_table`. None if rows are independent.
            time: the time of each row, `[rows]`, numbers or dates, where later rows are to be predicted: folds are
                blocks of successive rows, of which the latest judges, as for `lamu.fit_table`. It is no input. Not
                with `groups`.

        Returns:
            The estimator.

        Raises:
            ValueError: for inputs that cannot be used: infinity, a column without a value, another number of rows
                than y has, weights that are negative or all zero, targets outside the likelihood's support.
        """
        y, sample_weight = readable(y), readable(sample_weight)
        _refuse_lacking(y)
        refuse_other_order({"X": X, "y": y, "sample_weight": sample_weight, "groups": groups, "time": time})
        X, y = self._validated(X, y, reset=True, ensure_min_samples=2)
        weight = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        if not weight.any():  # not checked by the lowest supported version of scikit-learn
            raise ValueError("sample_weight is zero in every row; give at least one row a weight above zero")
        warn_of_scale(weight, "sample_weight")
        target, likelihood = self._target(y)
        X, target, weight, given, of_rows = distinct(X, target, weight, groups_of(groups, time, len(X)))
        if len(X) < 2:
            raise ValueError(f"there is {len(X)} distinct row (n_samples={len(X)}); give at least two")
        encoding = learn_encoding(X, target, len(getattr(self, "classes_", ())), self._columns, weight)
        X = training_rows(encoding, X, target, self._columns)
        if self.algorithm is None:  # it is one over folds
            times = repeats(weight, given)
            if are_cells(X, target):
                apart = (weight / times).astype(weight.dtype)
                X, target, weight = (np.repeat(part, times, axis=0) for part in (X, target, apart))
                of_rows = None if of_rows is None else of_rows[np.repeat(np.arange(len(times)), times)]
        seed = self._drawn_seed()
        with jax.enable_x64(X.dtype == np.float64), warnings.catch_warnings():
            warnings.simplefilter("ignore", UnscaledWeights)  # said above, of the rows as they came
            self.posterior_ = self._posterior(likelihood, X, target, weight, of_rows, seed)
        self.dtype_, self.encoding_ = X.dtype, encoding.describe()
        return self

    @property
    def _saved_parameters(self) -> dict[str, _PLAIN]:
        return {"samples": self.samples}

    def _chosen(self, task: str, default: str, classes: int = 0) -> Likelihood:
        """Returns the likelihood given by name or as an object, or the default one."""
        asked = default if self.likelihood is None else self.likelihood
        if not isinstance(asked, str):
            return asked
        names = {name: make for name, (kind, make) in LIKELIHOODS.items() if kind == task}
        if asked not in names:
            raise ValueError(
                f"there is no likelihood {asked!r} for such a target; {nearest(asked, names, OTHER_NAMES)}"
            )
        return names[asked](classes)

    @property
    def _columns(self) -> list[str]:
        return list(getattr(self, "feature_names_in_", [f"x{column}" for column in range(self.n_features_in_)]))

    @abstractmethod
    def _target(self, y: Targets) -> tuple[np.ndarray, Likelihood]:
        """Returns the targets as numbers `[rows]`, and their likelihood."""

    def _posterior(
        self,
        likelihood: Likelihood,
        x: Inputs,
        y: Targets,
        weight: np.ndarray,
        groups: Groups | None,
        seed: int,
    ) -> Posterior:
        if all(choice is None for choice in (self.network, self.prior, self.algorithm, self.epochs)):
            return fit_table(x, y, likelihood, weight=weight, groups=groups, seed=seed).posterior
        network = MLP((64, 64)) if self.network is None else self.network
        chosen = self.algorithm is None or require_part(self.algorithm, "algorithm").traits.chooses_prior_scale
        default = LearnedNormal(0.5) if chosen else Normal(0.5)
        prior = default if self.prior is None else self.prior
        model = Model(network, likelihood, prior).standardised(x, y, weight)
        data = {"x": x, "y": y, "weight": weight, "groups": groups}
        if self.prior is None:
            model = centred(model, data)
        options: Options = {"seed": seed, "batch_size": self.batch_size}
        if self.epochs is not None:
            options["epochs"] = self.epochs
        # Points of folds say too little of a linear model: their noise is that of rows they were fitted to.
        if self.algorithm is None and not model.network.linear:
            return fit_folds(model, data, **options).posterior
        return fit(model, data, laplace() if self.algorithm is None else self.algorithm, **options).posterior

    def _predict(self, X: Inputs, ask: Callable[[Predictive], Any]) -> Any:
        """Returns a function of the prediction at X, as NumPy arrays."""
        rows = self._validated(X)
        completed = new_rows(Encoding.of(self.encoding_), np.asarray(rows, self.dtype_), self._columns)
        mixed = lambda posterior: InputMixture.of(lambda x, _: posterior.predict(x, samples=self.samples), completed)
        return self._asked(lambda posterior: ask(mixed(posterior)))
