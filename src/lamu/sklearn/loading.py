"""From the folder that an estimator wrote to the estimator."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np

from lamu import store
from lamu.record import decode
from lamu.sklearn.classifier import BayesianClassifier
from lamu.sklearn.factor_analysis import FactorAnalysis
from lamu.sklearn.gaussian_mixture import GaussianMixture
from lamu.sklearn.regressor import BayesianRegressor
from lamu.sklearn.topic_model import TopicModel

__all__ = ["load"]

_KINDS: tuple[type, ...] = (BayesianClassifier, BayesianRegressor, FactorAnalysis, GaussianMixture, TopicModel)
_ESTIMATORS = {each.__name__: each for each in _KINDS}


def load(path: str | os.PathLike[str]) -> Any:
    """Reads an estimator that `save` wrote.

    Of a classifier or regressor the parameters of the constructor are those of a new one, `samples` excepted: what was
    learned is what is kept. Faces of graphs keep theirs; a generator of random numbers becomes None.

    Args:
        path: the folder.

    Returns:
        The estimator. It predicts the same bits as the one that was saved.

    Raises:
        lamu.store.StoreError: if the folder is missing, altered, or not a saved estimator.

    Examples:
        >>> import pathlib, tempfile, lamu
        >>> from lamu.sklearn import BayesianRegressor, load
        >>> x, y = lamu.data.load("diabetes")
        >>> regressor = BayesianRegressor(algorithm=lamu.algorithms.laplace(), network=lamu.networks.Linear())
        >>> folder = regressor.fit(x, y).save(pathlib.Path(tempfile.mkdtemp()) / "regressor")
        >>> bool((load(folder).predict(x) == regressor.predict(x)).all())
        True
    """
    content, arrays = store.read(path)
    if not isinstance(content, dict) or content.get("estimator") not in _ESTIMATORS:
        raise store.StoreError(f"{str(path)!r} holds no estimator; lamu.load reads a posterior")
    estimator: Any = _ESTIMATORS[content["estimator"]](**content["parameters"])
    with jax.enable_x64(True):  # else what has 64 bits would be rounded to 32
        learned = decode(content["learned"], arrays)
    with jax.enable_x64(learned["dtype_"] == "float64"):
        estimator.posterior_ = decode(content["posterior"], arrays)
    for name, value in learned.items():
        value = np.asarray(value, object) if isinstance(value, list) else value
        setattr(estimator, name, np.asarray(value) if isinstance(value, jax.Array) else value)
    estimator.dtype_ = np.dtype(learned["dtype_"])
    return estimator
