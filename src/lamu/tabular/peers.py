"""scikit-learn's models with their default settings, as predictive distributions that ours are compared with."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from lamu.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, NegativeBinomial
from lamu.predictives import MixturePredictive
from lamu.typing import Inputs, Targets

__all__ = ["PEERS", "peer", "quiet"]

PEERS = ("linear", "boosting", "forest", "constant")
_FOLDS = 5
_MANY_ROWS = 20_000  # from here on one fifth of the rows, of 20,000 at most, says how far predictions are off
_MOST_HELD = 20_000
_LEAST = 0.1  # of the mean count: what a model that predicts less, or less than nothing, is raised to
_MOST_BINS, _SOME = 255, 1000  # scikit-learn's bins of a column; rows that tell most columns of many values
_LEAST_PROBABILITY = 1e-6  # a class that the training rows lack is not impossible
_CONCENTRATIONS = np.geomspace(0.03, 1e4, 120)


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps scikit-learn's warnings to itself: that a default did not converge is a part of the default."""
    # Filters are those of the process, so that this is for the thread that starts the others.
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
) -> MixturePredictive:
    """Returns the prediction of one of scikit-learn's models, with a density where it predicts a number."""
    # A number is Gaussian about the prediction with the spread of the residuals of five folds (from 20,000 rows on, of
    # a fifth of the rows that one further fit has not seen); a count is negative binomial about it, with the
    # concentration that makes the same rows most probable. Probabilities are the model's, those of a forest with one
    # tree more that knows nothing, since a forest's may be zero. Of counts with an exposure a model learns the rate, in
    # which a row counts by its exposure, as it does in Poisson's likelihood.
    from threadpoolctl import threadpool_limits  # which scikit-learn needs, too

    x, y, x_new = np.asarray(x, float), np.asarray(y), np.asarray(x_new, float)
    counts = np.ones(len(y)) if weight is None else np.asarray(weight, float)
    seen, new = (np.ones(len(y)), np.ones(len(x_new))) if exposure is None else exposure
    model = _pipeline(name, kind, levels, _bins(x) if name == "boosting" else _MOST_BINS)
    # Threads that wait for each other, beside a fit, cost more than they save: of 40,000 rows four times the processor.
    with threadpool_limits(1, "openmp"):
        if kind in ("binary", "classes"):
            return _probabilities(name, _fitted(model, x, y, counts), max(classes, 2), x_new)
        judged, held = _held_out(model, x, y / seen, counts * seen)
        mean = _fitted(model, x, y / seen, counts * seen).predict(x_new)
    known, weighed = y[judged], counts[judged]
    if kind == "regression":
        spread = float(np.sqrt(np.average((known - held) ** 2, weights=weighed)))
        return _one(Gaussian(scale=spread or 1e-9 * (1.0 + float(np.abs(y).max()))), mean[:, None])
    least = _LEAST * max(float(np.average(y, weights=counts)), _LEAST)
    held, mean = np.maximum(held * seen[judged], least), np.maximum(mean * new, least)
    return _one(NegativeBinomial(_concentration(known, held, weighed)), np.log(mean)[:, None])


def _fitted(model: Any, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Any:
    """Fits a pipeline to weighted rows; columns are scaled without weights."""
    return model.fit(x, y, **({} if (weight == 1).all() else {f"{model.steps[-1][0]}__sample_weight": weight}))


def _one(likelihood: Likelihood, f: np.ndarray) -> MixturePredictive:
    """Returns the predictive of one point, made without programs, which would wait for others' compilation."""
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
    if number == 2:
        return _one(Bernoulli(), log_p[:, 1:] - log_p[:, :1])
    return _one(Categorical(number), log_p)


def _concentration(y: np.ndarray, mean: np.ndarray, weight: np.ndarray) -> float:
    from scipy.stats import nbinom

    return float(max(_CONCENTRATIONS, key=lambda each: weight @ nbinom.logpmf(y, each, each / (each + mean))))


def _held_out(model: Any, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and their predictions by fits that have not seen them: of five folds, or of one where rows are many."""
    from sklearn.model_selection import KFold, train_test_split

    rows = np.arange(len(y))
    parts: Any = KFold(min(_FOLDS, len(y)), shuffle=True, random_state=0).split(rows)
    if len(y) >= _MANY_ROWS:
        size = min(len(y) // _FOLDS, _MOST_HELD)
        parts = [train_test_split(rows, test_size=size, random_state=0)]
    found = [(held, _fitted(model, x[seen], y[seen], weight[seen]).predict(x[held])) for seen, held in parts]
    judged, predictions = (np.concatenate(part) for part in zip(*found, strict=True))
    return judged, predictions


def _bins(x: np.ndarray) -> int:
    """Returns the number of bins for boosting that gives the same trees: the distinct values of a column, 2 to 255."""
    # Histograms of 255 bins of which most are empty take half of its time.
    for rows in (x[:_SOME], x):
        most = max((len(np.unique(column)) for column in rows.T), default=0)
        if most >= _MOST_BINS:
            break
    return min(max(most, 2), _MOST_BINS)


def _pipeline(name: str, kind: str, levels: Sequence[int], bins: int) -> Any:
    """Numbers standardised, codes of categories as columns of zeros and ones, and a model with its defaults."""
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
