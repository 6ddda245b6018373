"""What a reader knows: a constant, a linear model and gradient boosting of scikit-learn, as predictive distributions.

They learn from the training rows of the model that is reported, and predict its test rows. A regression gets normal
noise of one width, the root mean square of its errors on training rows that were held out in turn.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from lamu.data import Encoding
from lamu.likelihood_choice import log_probability
from lamu.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from lamu.predictives import Mixture, Predictive

__all__ = ["Baseline", "baselines"]

_FOLDS = 3
_FEW_ROWS = 20_000
_LEAST = 1e-6  # of a probability: a class that the training rows lack is not impossible
_MOST_LEVELS = 255  # of a categorical column of scikit-learn's boosting


@dataclass(frozen=True)
class Baseline:
    """A prediction of the test rows by something well known.

    Attributes:
        name: what it is.
        pred: its predictive distribution.
        log_prob: of each test target in nats, `[N]`; of whole numbers the log probability of the unit around it, where
            the model that is reported predicts whole numbers.

    Examples:
        >>> import numpy as np
        >>> from lamu.data import Encoding
        >>> from lamu.report import baselines
        >>> x, y = np.arange(40.0)[:, None], np.arange(40.0)
        >>> found = baselines(x, y, x, y, Encoding("y", "regression", (), ("a",)), whole=False)
        >>> [each.name for each in found]
        ['gradient boosting', 'linear model', 'constant']
        >>> bool(found[1].log_prob.mean() > found[2].log_prob.mean())
        True
    """

    name: str
    pred: Predictive
    log_prob: np.ndarray


def baselines(x: Any, y: Any, x_test: Any, y_test: Any, encoding: Encoding, whole: bool) -> tuple[Baseline, ...]:
    """Fits scikit-learn's models with their default settings, and predicts the test rows.

    Args:
        x: the training inputs, `[rows, columns]`; words are codes, 0 for the unknown.
        y: the training targets, `[rows]`.
        x_test: the test inputs.
        y_test: the test targets.
        encoding: what the columns and the target are.
        whole: whether log probabilities of whole numbers are asked for.

    Returns:
        Gradient boosting, a linear (or logistic) model and a constant.
    """
    from threadpoolctl import threadpool_limits  # which scikit-learn needs, too

    x, y, x_test, y_test = (np.asarray(each) for each in (x, y, x_test, y_test))
    predict = _regression if encoding.task == "regression" else _classes
    found = []
    # Threads that wait for each other cost more than they save on a small table, much more where cores are shared.
    threads = 1 if len(x) < _FEW_ROWS else None
    with threadpool_limits(threads, "openmp"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence; the scores tell
        for name, estimator in _estimators(encoding).items():
            likelihood, f = predict(estimator, x, y, x_test, max(len(encoding.labels), 2))
            log_prob = log_probability(likelihood, {}, f, jnp.asarray(y_test), whole and encoding.task == "regression")
            found.append(Baseline(name, Mixture.equal(likelihood, {}, f[None]), np.asarray(log_prob, float)))
    return tuple(found)


def _estimators(encoding: Encoding) -> dict[str, Any]:
    from sklearn.compose import ColumnTransformer
    from sklearn.dummy import DummyClassifier, DummyRegressor
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    levels = np.asarray(encoding.cardinalities)
    few, words = np.flatnonzero((levels > 0) & (levels < _MOST_LEVELS)), np.flatnonzero(levels > 0)
    numbers: Any = StandardScaler()
    columns = ColumnTransformer([("words", OneHotEncoder(handle_unknown="ignore"), words)], remainder=numbers)
    regression = encoding.task == "regression"
    boosting: Any = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
    return {
        "gradient boosting": boosting(categorical_features=few if len(few) else None, random_state=0),
        "linear model": make_pipeline(columns, LinearRegression() if regression else LogisticRegression(max_iter=1000)),
        "constant": DummyRegressor() if regression else DummyClassifier(),
    }


def _regression(estimator: Any, x: Any, y: Any, x_test: Any, labels: int) -> tuple[Likelihood, Any]:
    from sklearn.model_selection import KFold, cross_val_predict

    folds = KFold(min(_FOLDS, len(y)), shuffle=True, random_state=0)
    errors = y - np.asarray(cross_val_predict(estimator, x, y, cv=folds))
    scale = float(np.sqrt(np.mean(errors**2))) or 1e-9 * (1.0 + float(np.abs(y).max()))
    return Gaussian(scale), jnp.asarray(estimator.fit(x, y).predict(x_test))[:, None]


def _classes(estimator: Any, x: Any, y: Any, x_test: Any, labels: int) -> tuple[Likelihood, Any]:
    found = estimator.fit(x, y).predict_proba(x_test)
    p = np.full((len(x_test), labels), _LEAST)
    p[:, estimator.classes_.astype(int)] = np.maximum(found, _LEAST)
    log_p = np.log(p / p.sum(axis=1, keepdims=True))
    if labels == 2:
        return Bernoulli(), jnp.asarray(log_p[:, 1:] - log_p[:, :1])
    return Categorical(labels), jnp.asarray(log_p)
