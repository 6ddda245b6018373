"""scikit-learn's models on a table as one would reach for them: defaults, with a density where they predict numbers."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

__all__ = ["PEERS", "TREES", "peer_scores"]

PEERS = ("linear", "mlp", "boosting", "forest")
TREES = ("boosting", "forest")
FOLDS = 5
DISPERSIONS = np.concatenate([[0.0], np.geomspace(1e-3, 30.0, 120)])


def peer_scores(name: str, x: pd.DataFrame, y: np.ndarray, train: Any, test: Any, kind: str) -> tuple[Any, float]:
    """Returns the log density of every test row in nats, and the seconds that it took.

    A regression is Gaussian about the prediction, with the spread of the residuals of five folds; counts are negative
    binomial about it, with the dispersion that is most probable for the predictions of five folds. The probabilities
    of a class are those of the model; a forest's, which may be zero, are those of one further tree that knows nothing.

    Args:
        name: one of `PEERS`.
        x: the features.
        y: the targets.
        train: the training rows.
        test: the test rows.
        kind: "regression", "counts" or "classes".
    """
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a default did not converge is a part of the default
        found = {"classes": _classes, "regression": _regression, "counts": _counts}[kind](name, x, y, train, test)
    return found, time.perf_counter() - start


def _classes(name: str, x: pd.DataFrame, y: np.ndarray, train: Any, test: Any) -> np.ndarray:
    model = _pipeline(name, x, "classes").fit(x.iloc[train], y[train])
    p = model.predict_proba(x.iloc[test])
    labels = list(model.classes_)
    if name == "forest":
        trees = model[-1].n_estimators
        p = (trees * p + 1 / len(labels)) / (trees + 1)
    floor = 1e-6
    return np.array(
        [
            np.log(max(row[labels.index(label)], floor)) if label in labels else np.log(floor)
            for row, label in zip(p, y[test], strict=True)
        ]
    )


def _regression(name: str, x: pd.DataFrame, y: np.ndarray, train: Any, test: Any) -> np.ndarray:
    model = _pipeline(name, x, "regression")
    spread = np.sqrt(np.mean((y[train] - _out_of_fold(model, x.iloc[train], y[train])) ** 2))
    mean = model.fit(x.iloc[train], y[train]).predict(x.iloc[test])
    return stats.norm.logpdf(y[test], mean, spread)


def _counts(name: str, x: pd.DataFrame, y: np.ndarray, train: Any, test: Any) -> np.ndarray:
    model = _pipeline(name, x, "counts")
    smallest = 0.1 * max(y[train].mean(), 0.1)
    held = np.maximum(_out_of_fold(model, x.iloc[train], y[train]), smallest)
    mean = np.maximum(model.fit(x.iloc[train], y[train]).predict(x.iloc[test]), smallest)
    best = max(DISPERSIONS, key=lambda each: _negative_binomial(y[train], held, each).sum())
    return _negative_binomial(y[test], mean, best)


def _negative_binomial(y: np.ndarray, mean: np.ndarray, dispersion: float) -> np.ndarray:
    if dispersion == 0.0:
        return stats.poisson.logpmf(y, mean)
    size = 1 / dispersion
    return stats.nbinom.logpmf(y, size, size / (size + mean))


def _out_of_fold(model: Any, x: pd.DataFrame, y: np.ndarray) -> np.ndarray:
    from sklearn.model_selection import KFold, cross_val_predict

    return cross_val_predict(model, x, y, cv=KFold(FOLDS, shuffle=True, random_state=0))


def _pipeline(name: str, x: pd.DataFrame, kind: str) -> Any:
    """Words as columns of zeros and ones, missing numbers by the median, numbers standardised."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    words = [column for column in x if x[column].dtype.kind not in "iuf"]
    numbers = [column for column in x if column not in words]
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), words),
    )
    return make_pipeline(columns, _models(kind)[name])


def _models(kind: str) -> dict[str, Any]:
    from sklearn import ensemble, linear_model, neural_network

    if kind == "classes":
        return {
            "linear": linear_model.LogisticRegression(),
            "mlp": neural_network.MLPClassifier(random_state=0),
            "boosting": ensemble.HistGradientBoostingClassifier(random_state=0),
            "forest": ensemble.RandomForestClassifier(random_state=0),
        }
    counts = kind == "counts"
    return {
        "linear": linear_model.PoissonRegressor() if counts else linear_model.BayesianRidge(),
        "mlp": neural_network.MLPRegressor(random_state=0),
        "boosting": ensemble.HistGradientBoostingRegressor(
            random_state=0, loss="poisson" if counts else "squared_error"
        ),
        "forest": ensemble.RandomForestRegressor(random_state=0),
    }
