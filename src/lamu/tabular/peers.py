"""scikit-learn's models with default settings, as predictive distributions for comparisons."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from lamu.data.splits import Groups, folds_of, num_groups
from lamu.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, NegativeBinomial
from lamu.predictives import MixturePredictive
from lamu.typing import Inputs, Targets

__all__ = ["PEERS", "peer", "quiet"]

PEERS = ("linear", "boosting", "forest", "constant")
_FOLDS = 5
_MANY_ROWS = 20_000  # from here on errors are estimated on one fifth of the rows, of 20,000 at most
_MOST_HELD = 20_000
_LEAST = 0.1  # relative to the mean count: the lower bound of predicted counts, which may be negative
_MOST_BINS, _SOME = 255, 1000  # scikit-learn's bins of a column; rows in which most columns with many values are found
_LEAST_PROBABILITY = 1e-6  # of classes that are not in the training rows
_CONCENTRATIONS = np.geomspace(0.03, 1e4, 120)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppresses scikit-learn's warnings: defaults are compared even where they do not converge."""
    # Warning filters are global, so that only the thread that starts the others may use this.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"sklearn|scipy")
        yield


def peer(
    name: str,
    kind: str,
    x: Inputs,
    y: Targets,
    x_new: object,
    levels: Sequence[int],
    classes: int = 0,
    weight: np.ndarray | None = None,
    exposure: tuple[np.ndarray, np.ndarray] | None = None,
    groups: Groups | None = None,
) -> MixturePredictive:
    """Returns the predictive distribution of one of scikit-learn's models."""
    # For numbers it is a Gaussian around the prediction with the standard deviation of held-out residuals over five
    # folds (from 20,000 rows on, over a held-out fifth in one further fit). For counts it is a negative binomial around
    # the prediction with the maximum-likelihood concentration for the same rows. Probabilities are the model's; a
    # forest's, which may be zero, are averaged with one more tree of uniform probabilities. For counts with an exposure
    # a model learns the rate with rows weighted by their exposure, as in Poisson's likelihood.
    from threadpoolctl import threadpool_limits  # a dependency of scikit-learn

    x, y, x_new = np.asarray(x, float), np.asarray(y), np.asarray(x_new, float)
    counts = np.ones(len(y)) if weight is None else np.asarray(weight, float)
    seen, new = (np.ones(len(y)), np.ones(len(x_new))) if exposure is None else exposure
    model = _pipeline(name, kind, levels, _bins(x) if name == "boosting" else _MOST_BINS)
    # BLAS threads beside a fit wait for each other: with 40,000 rows they take four times the processor time.
    with threadpool_limits(1, "openmp"):
        if kind in ("binary", "classes"):
            return _probabilities(name, _fitted(model, x, y, counts), max(classes, 2), x_new)
        judged, predicted = _held_out(model, x, y / seen, counts * seen, groups)
        mean = _fitted(model, x, y / seen, counts * seen).predict(x_new)
    targets, weighed = y[judged], counts[judged]
    if kind == "regression":
        spread = float(np.sqrt(np.average((targets - predicted) ** 2, weights=weighed)))
        return _one(Gaussian(scale=spread or 1e-9 * (1.0 + float(np.abs(y).max()))), mean[:, None])
    least = _LEAST * max(float(np.average(y, weights=counts)), _LEAST)
    predicted, mean = np.maximum(predicted * seen[judged], least), np.maximum(mean * new, least)
    return _one(NegativeBinomial(_concentration(targets, predicted, weighed)), np.log(mean)[:, None])


def _fitted(model: Any, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Any:
    """Fits a pipeline to weighted rows; columns are scaled without weights."""
    return model.fit(x, y, **({} if (weight == 1).all() else {f"{model.steps[-1][0]}__sample_weight": weight}))


def _one(likelihood: Likelihood, f: np.ndarray) -> MixturePredictive:
    """Returns the predictive of one point in NumPy, since a program would wait for other compilations."""
    dtype = jax.dtypes.canonicalize_dtype(float)
    return MixturePredictive(likelihood, {}, *jax.device_put((np.asarray(f, dtype)[None], np.zeros(1, dtype))))


def _probabilities(name: str, model: Any, number: int, x_new: np.ndarray) -> MixturePredictive:
    p = np.zeros((len(x_new), number))
    p[:, np.asarray(model.classes_, int)] = model.predict_proba(x_new)
    if name == "forest":
        trees = model[-1].n_estimators
        p = (trees * p + 1 / number) / (trees + 1)
    p = np.maximum(p, _LEAST_PROBABILITY)
    log_p = np.log(p / p.sum(axis=1, keepdims=True))
    return _one(Bernoulli(), log_p[:, 1:] - log_p[:, :1]) if number == 2 else _one(Categorical(number), log_p)


def _concentration(y: np.ndarray, mean: np.ndarray, weight: np.ndarray) -> float:
    from scipy.stats import nbinom

    return float(max(_CONCENTRATIONS, key=lambda each: weight @ nbinom.logpmf(y, each, each / (each + mean))))


def _held_out(
    model: Any, x: np.ndarray, y: np.ndarray, weight: np.ndarray, groups: Groups | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows with their held-out predictions: over five folds, or over one for many rows."""
    from sklearn.model_selection import KFold, train_test_split

    rows = np.arange(len(y))
    parts: Any = KFold(min(_FOLDS, len(y)), shuffle=True, random_state=0).split(rows)
    if len(y) >= _MANY_ROWS:
        size = min(len(y) // _FOLDS, _MOST_HELD)
        parts = [train_test_split(rows, test_size=size, random_state=0)]
    if groups is not None:
        of_groups = folds_of(y, min(_FOLDS, num_groups(groups, len(y))), seed=0, stratify=False, groups=groups)
        parts = [(np.setdiff1d(rows, held), held) for held in of_groups[: 1 if len(y) >= _MANY_ROWS else None]]
    by_fold = [(held, _fitted(model, x[seen], y[seen], weight[seen]).predict(x[held])) for seen, held in parts]
    judged, predictions = (np.concatenate(part) for part in zip(*by_fold, strict=True))
    return judged, predictions


def _bins(x: np.ndarray) -> int:
    """Returns the smallest number of bins for boosting with the same trees: the most distinct values of a column."""
    # Mostly empty histograms of 255 bins take half of the time of boosting.
    for rows in (x[:_SOME], x):
        most = max((len(np.unique(column)) for column in rows.T), default=0)
        if most >= _MOST_BINS:
            break
    return min(max(most, 2), _MOST_BINS)


def _pipeline(name: str, kind: str, levels: Sequence[int], bins: int) -> Any:
    """Returns a pipeline: standardised numbers, one-hot categories, and a model with default settings."""
    from sklearn import dummy, ensemble, linear_model, neural_network
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    codes = [column for column, count in enumerate(levels) if count]
    scaling: Any = StandardScaler()
    categories = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer((categories, codes), remainder=scaling)
    loss = "poisson" if kind == "counts" else "squared_error"
    classes = {
        "linear": linear_model.LogisticRegression(),
        "mlp": neural_network.MLPClassifier(random_state=0),
        "boosting": ensemble.HistGradientBoostingClassifier(random_state=0, max_bins=bins),
        "forest": ensemble.RandomForestClassifier(random_state=0),
        "constant": dummy.DummyClassifier(),
    }
    numbers = {
        "linear": linear_model.PoissonRegressor() if kind == "counts" else linear_model.BayesianRidge(),
        "mlp": neural_network.MLPRegressor(random_state=0),
        "boosting": ensemble.HistGradientBoostingRegressor(random_state=0, loss=loss, max_bins=bins),
        "forest": ensemble.RandomForestRegressor(random_state=0),
        "constant": dummy.DummyRegressor(),
    }
    return make_pipeline(columns, (numbers if kind in ("regression", "counts") else classes)[name])
