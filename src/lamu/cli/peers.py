"""scikit-learn's models on the rows of `lamu compare`, so that nobody needs to trust a page."""

from __future__ import annotations

import time
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np

from lamu.cli.predictions import estimates, score_rows
from lamu.cli.target_choice import candidates
from lamu.data import Encoding
from lamu.likelihoods import Bernoulli, Categorical, Gaussian, NegativeBinomial
from lamu.memory import most_held
from lamu.predictives.mixture import Mixture

__all__ = ["PEERS", "peer", "peer_contest"]

PEERS = ("linear", "boosting", "forest")
_FOLDS = 5
_LEAST = 0.1  # of the mean count: what a model that predicts less, or less than nothing, is raised to
_CONCENTRATIONS = np.geomspace(0.03, 1e4, 120)


def peer_contest(request: Any, name: str, splits: int, rows_of: Any) -> dict[str, Any]:
    """Returns what `lamu.cli.worker.contest` returns, of one of scikit-learn's models.

    Args:
        request: a `lamu.cli.training.Request`.
        name: one of `PEERS`.
        splits: how many splits.
        rows_of: `lamu.cli.training.learning_rows`.
    """
    whole, found = request.read(), []
    for seed in range(request.seed, request.seed + splits):
        table, train, test = rows_of(whole, request, seed)
        start = time.perf_counter()
        pred = peer(name, table.encoding, table.x[train], table.y[train], table.x[test])
        seconds = time.perf_counter() - start
        rows = score_rows(pred, table.y[test], table.encoding)
        scores = estimates(rows)
        found.append(
            {
                "scores": {score: each.value for score, each in scores.items()},
                "standard_errors": {score: each.error for score, each in scores.items()},
                "nll": rows["nll"],
                "steps": 0,
                "seconds": seconds,
                "prior_scales_tried": {},
                "temperature": 1.0,
                "evidence": None,
            }
        )
    return {"splits": found, "streams": 1, "epochs": None, "memory": most_held()}


def peer(name: str, encoding: Encoding, x: Any, y: Any, x_new: Any) -> Mixture:
    r"""Returns the prediction of one of scikit-learn's models, with a density where it predicts a number.

    A number is Gaussian about the prediction with the spread of the residuals of five folds; a count is negative
    binomial about it, with the concentration that makes the held-out rows of five folds most probable. Probabilities
    are the model's, those of a forest with one tree more that knows nothing, since a forest's may be zero.

    Args:
        name: "linear", "boosting" or "forest".
        encoding: what the columns and the target are.
        x: the training inputs.
        y: the training targets.
        x_new: the rows to predict.

    Examples:
        >>> import numpy as np
        >>> from lamu.cli.peers import peer
        >>> from lamu.data import Encoding
        >>> x = np.arange(40.0)[:, None]
        >>> encoding = Encoding("y", "regression", (), ("x",), ((),))
        >>> peer("linear", encoding, x, 2.0 * x[:, 0] + np.tile([-1.0, 1.0], 20), x[:1]).mean.shape
        (1,)
    """
    x, y, x_new = np.asarray(x, float), np.asarray(y), np.asarray(x_new, float)
    counts = encoding.task == "regression" and candidates(encoding, x, y)[0] == "counts"
    model = _pipeline(name, "counts" if counts else encoding.task, encoding.cardinalities)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a default did not converge is a part of the default
        if encoding.task != "regression":
            return _classes(name, model.fit(x, y), len(encoding.labels), x_new)
        held = _held_out(model, x, y)
        mean = model.fit(x, y).predict(x_new)
    if not counts:
        spread = float(np.sqrt(np.mean((y - held) ** 2)))
        return Mixture.equal(Gaussian(scale=spread), {}, jnp.asarray(mean, float)[None, :, None])
    least = _LEAST * max(float(y.mean()), _LEAST)
    held, mean = np.maximum(held, least), np.maximum(mean, least)
    return Mixture.equal(
        NegativeBinomial(_concentration(y, held)), {}, jnp.log(jnp.asarray(mean, float))[None, :, None]
    )


def _classes(name: str, model: Any, number: int, x_new: np.ndarray) -> Mixture:
    p = np.zeros((len(x_new), number))
    p[:, np.asarray(model.classes_, int)] = model.predict_proba(x_new)
    if name == "forest":
        trees = model[-1].n_estimators
        p = (trees * p + 1 / number) / (trees + 1)
    p = np.clip(p, 1e-6, 1.0)
    if number == 2:
        return Mixture.equal(Bernoulli(), {}, jnp.asarray(np.log(p[:, 1:]) - np.log(p[:, :1]), float)[None])
    return Mixture.equal(Categorical(number), {}, jnp.asarray(np.log(p), float)[None])


def _concentration(y: np.ndarray, mean: np.ndarray) -> float:
    from scipy.stats import nbinom

    return float(max(_CONCENTRATIONS, key=lambda each: nbinom.logpmf(y, each, each / (each + mean)).sum()))


def _held_out(model: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    from sklearn.model_selection import KFold, cross_val_predict

    folds = KFold(min(_FOLDS, len(y)), shuffle=True, random_state=0)
    return np.asarray(cross_val_predict(model, x, y, cv=folds))


def _pipeline(name: str, kind: str, levels: tuple[int, ...]) -> Any:
    """Numbers standardised, codes of categories as columns of zeros and ones, and a model with its defaults."""
    from sklearn import ensemble, linear_model
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    codes = [column for column, count in enumerate(levels) if count]
    scaling: Any = StandardScaler()
    categories = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer((categories, codes), remainder=scaling)
    loss = "poisson" if kind == "counts" else "squared_error"
    linear = linear_model.PoissonRegressor() if kind == "counts" else linear_model.BayesianRidge()
    classes = {
        "linear": linear_model.LogisticRegression(),
        "boosting": ensemble.HistGradientBoostingClassifier(random_state=0),
        "forest": ensemble.RandomForestClassifier(random_state=0),
    }
    numbers = {
        "linear": linear,
        "boosting": ensemble.HistGradientBoostingRegressor(random_state=0, loss=loss),
        "forest": ensemble.RandomForestRegressor(random_state=0),
    }
    return make_pipeline(columns, (numbers if kind in ("regression", "counts") else classes)[name])
