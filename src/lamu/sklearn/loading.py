"""Loading of saved estimators."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from lamu import store
from lamu.posterior import require_whole
from lamu.record import declared, decode
from lamu.sklearn.graph_estimator import FactorAnalysis, GaussianMixture, TopicModel
from lamu.sklearn.supervised import BayesianClassifier, BayesianRegressor

__all__ = ["load"]

_KINDS: tuple[type, ...] = (BayesianClassifier, BayesianRegressor, FactorAnalysis, GaussianMixture, TopicModel)
_ESTIMATORS = {kind.__name__: kind for kind in _KINDS}


def load(path: str | os.PathLike[str], *, trust: Iterable[str] = ()) -> Any:
    """Reads an estimator that `save` wrote.

    A classifier or regressor has default constructor parameters, except `samples`: only the fitted state is saved.
    Estimators of graphs keep theirs; a random generator becomes None.

    Args:
        path: the folder.
        trust: names of modules that may be imported, as for `lamu.load`.

    Returns:
        The estimator. Its predictions equal those of the saved one bit for bit.

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
    content, arrays = store.read(path, lambda content: _declared(path, content))
    with store.reading(path):
        kind: Any = _ESTIMATORS[content["estimator"]]
        parameters, names = content["parameters"], kind._get_param_names()
        if unknown := set(parameters) - set(names):
            raise ValueError(f"a {kind.__name__} has no parameter {unknown.pop()!r}")
        estimator: Any = kind(**parameters)
        with jax.enable_x64(True):  # otherwise 64-bit arrays would be rounded to 32 bits
            learned = decode(content["learned"], arrays)
        if learned["dtype_"] not in ("float32", "float64"):
            raise ValueError(f"dtype_ is {learned['dtype_']!r}")
        with jax.enable_x64(learned["dtype_"] == "float64"):
            estimator.posterior_ = decode(content["posterior"], arrays, trust=trust)
            require_whole(estimator.posterior_)
        for name, value in learned.items():
            if not name.endswith("_") or name.startswith("_"):
                raise ValueError(f"{name!r} is not a learned attribute of an estimator")
            value = np.asarray(value, object) if isinstance(value, list) else value
            setattr(estimator, name, np.asarray(value) if isinstance(value, jax.Array) else value)
        estimator.dtype_ = np.dtype(learned["dtype_"])
    return estimator


def _declared(path: Any, content: Any) -> Any:
    kind = content.get("estimator") if isinstance(content, dict) else None
    if not isinstance(kind, str) or kind not in _ESTIMATORS:
        raise store.StoreError(f"{str(path)!r} holds no estimator; lamu.load reads a posterior")
    if set(content) != {"estimator", "parameters", "learned", "posterior"}:
        raise ValueError(f"it holds {', '.join(map(str, content))}")
    if not isinstance(content["parameters"], dict) or any(
        isinstance(value, dict | list) for value in content["parameters"].values()
    ):
        raise ValueError("its parameters are not numbers and words")
    return declared({"list": [content["learned"], content["posterior"]]})
