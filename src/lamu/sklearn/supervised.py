"""Scikit-learn estimators for classification and regression, and loading of saved estimators."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from numbers import Integral
from typing import Any

import jax
import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.multiclass import check_classification_targets

from lamu import store
from lamu.data.written_numbers import is_number
from lamu.likelihoods import Likelihood, Ordinal
from lamu.likelihoods.classes import alphabetical
from lamu.posterior import require_whole
from lamu.record import declared, decode
from lamu.sklearn.estimator import BayesianEstimator, RandomState
from lamu.sklearn.graph_estimator import FactorAnalysis, GaussianMixture, TopicModel
from lamu.typing import Inputs, Targets

__all__ = ["BayesianClassifier", "BayesianRegressor", "load"]


_OF_CLASSES = ("categorical", "ordinal")  # which may be asked for on two classes too


class BayesianClassifier(ClassifierMixin, BayesianEstimator):
    r"""Bayesian classification.

    \[ p(y^* = k \mid x^*, D) = \int p(y^* = k \mid f(\theta, x^*))\, q(\theta)\, d\theta \]

    Where neither `network`, `prior`, `algorithm` nor `epochs` is given, linear, additive, kernel and network candidates
    are fitted over folds and mixed (`lamu.fit_table`), as `lamu fit` does. Columns are standardised internally.

    Args:
        likelihood: \(p(y \mid f)\) over the classes in sorted order, one of `lamu.likelihoods`, or a name as for
            `lamu fit --likelihood`: "ordinal" for ordered classes; None for "logit" on two classes, else "categorical".
        network: f, one of `lamu.networks` (`Linear()` for a generalised linear model) or a custom one; None for two
            hidden layers of 64 units.
        prior: \(p(\theta)\); None for a Normal whose scale is learned, about the best constant prediction.
        algorithm: one of `lamu.algorithms` or `lamu.mcmc`; None for `laplace()` of a network that is linear in its
            weights, and for an ensemble over folds (`lamu.fit_folds`) of any other.
        epochs: passes over the rows; None until convergence, and at most 500 of an ensemble over folds.
        batch_size: rows a step, where one of these four is given; the mixture sets its own.
        samples: the number of posterior draws of a prediction, where it needs draws.
        random_state: the seed, as in scikit-learn; an integer makes results repeatable.

    Attributes:
        classes_: the labels of the classes, sorted.

    Examples:
        >>> import lamu
        >>> from lamu.sklearn import BayesianClassifier
        >>> x, y = lamu.data.load("iris")
        >>> classifier = BayesianClassifier(algorithm=lamu.algorithms.laplace(), network=lamu.networks.Linear())
        >>> classifier.fit(x, y).predict_proba(x).shape, classifier.score(x, y) > 0.9
        ((150, 3), True)
    """

    def predict(self, X: Inputs) -> np.ndarray:
        """Returns the most probable class of each row, `[rows]`."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_probable]

    def predict_proba(self, X: Inputs) -> np.ndarray:
        """Returns the probability of each class, `[rows, classes]`, in the order of `classes_`."""
        mean = self._predict(X, lambda pred: pred.mean)
        return np.stack([1 - mean, mean], axis=1) if mean.ndim == 1 else mean

    def predict_log_proba(self, X: Inputs) -> np.ndarray:
        """Returns the logarithm of the probability of each class, `[rows, classes]`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def _target(self, y: Targets) -> tuple[np.ndarray, Likelihood]:
        kinds = sorted({type(label).__name__ for label in np.asarray(y).ravel().tolist()})
        if "str" in kinds and len(kinds) > 1:
            raise ValueError(
                f"y holds classes of the types {' and '.join(kinds)}; give one type, for instance y.astype(str)"
            )
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        stripped = [str(label).strip() for label in self.classes_]
        twice = [
            repr(str(label)) for label, text in zip(self.classes_, stripped, strict=True) if stripped.count(text) > 1
        ]
        if twice:
            warnings.warn(f"the classes {' and '.join(twice)} differ in spaces alone; strip them", stacklevel=4)
        count = len(self.classes_)
        if count < 2:
            raise ValueError(
                f"all rows are of the class {str(self.classes_[0])!r}; a classifier needs two classes or more"
            )
        binary = count == 2 and self.likelihood not in _OF_CLASSES
        task, default = ("binary", "logit") if binary else ("classes", "categorical")
        likelihood = self._chosen(task, default, count)
        numbered = all(str(label)[:1].isdigit() for label in self.classes_)  # as "1 low"
        if count > 2 and "str" in kinds and not numbered and isinstance(likelihood, Ordinal):
            warnings.warn(alphabetical(self.classes_.tolist()), stacklevel=4)
        return codes, likelihood


class BayesianRegressor(RegressorMixin, BayesianEstimator):
    r"""Bayesian regression, with a predictive distribution for each row.

    \[ p(y^* \mid x^*, D) = \int p(y^* \mid f(\theta, x^*))\, q(\theta)\, d\theta \]

    Where neither `network`, `prior`, `algorithm` nor `epochs` is given, linear, additive, kernel and network candidates
    are fitted over folds and mixed (`lamu.fit_table`), as `lamu fit` does, which chooses the likelihood too. Columns
    and target are standardised internally; predictions are in the units of y.

    Args:
        likelihood: \(p(y \mid f)\), one of `lamu.likelihoods`, or a name as for `lamu fit --likelihood`: "poisson" for
            counts, "student_t" for heavy tails; None for a Gaussian with a learned noise.
        network: f, one of `lamu.networks` (`Linear()` for a generalised linear model) or a custom one; None for two
            hidden layers of 64 units.
        prior: \(p(\theta)\); None for a Normal whose scale is learned, about the best constant prediction.
        algorithm: one of `lamu.algorithms` or `lamu.mcmc`; None for `laplace()` of a network that is linear in its
            weights, and for an ensemble over folds (`lamu.fit_folds`) of any other.
        epochs: passes over the rows; None until convergence, and at most 500 of an ensemble over folds.
        batch_size: rows a step, where one of these four is given; the mixture sets its own.
        samples: the number of posterior draws of a prediction, where it needs draws.
        random_state: the seed, as in scikit-learn; an integer makes results repeatable.

    Examples:
        >>> import lamu
        >>> from lamu.sklearn import BayesianRegressor
        >>> x, y = lamu.data.load("diabetes")
        >>> regressor = BayesianRegressor(algorithm=lamu.algorithms.laplace(), network=lamu.networks.Linear())
        >>> mean, std = regressor.fit(x, y).predict(x, return_std=True)
        >>> mean.shape, bool((std > 0).all()), round(regressor.score(x, y), 1)
        ((442,), True, 0.5)
    """

    def predict(self, X: Inputs, return_std: bool = False) -> Any:
        """Returns the mean of the predictive distribution, and optionally its standard deviation.

        Args:
            X: inputs `[rows, columns]`.
            return_std: whether to return the standard deviation too, including noise.

        Returns:
            Means `[rows]` in the units of y, or a pair of means and standard deviations.
        """
        return self._predict(X, lambda pred: (pred.mean, pred.std) if return_std else pred.mean)

    def predict_interval(self, X: Inputs, level: float = 0.9) -> np.ndarray:
        """Returns the central predictive interval of a given probability.

        Args:
            X: inputs `[rows, columns]`.
            level: the probability, between 0 and 1.

        Returns:
            Lower and upper ends, `[rows, 2]`, in the units of y.
        """
        return np.stack(self._predict(X, lambda pred: pred.interval(level)), axis=-1)

    def sample_y(self, X: Inputs, n_samples: int = 1, random_state: RandomState = 0) -> np.ndarray:
        """Returns draws of the target from the predictive distribution.

        Args:
            X: inputs `[rows, columns]`.
            n_samples: the number of draws.
            random_state: the seed of the draws.

        Returns:
            Targets `[rows, n_samples]`, as `sklearn.gaussian_process.GaussianProcessRegressor.sample_y` returns them.
        """
        check_scalar(n_samples, "n_samples", Integral, min_val=1)
        key = jax.random.key(int(check_random_state(random_state).randint(2**31 - 1)))
        return np.moveaxis(self._predict(X, lambda pred: pred.sample(key, n_samples)), 0, -1)

    def _target(self, y: Targets) -> tuple[np.ndarray, Likelihood]:
        y = np.asarray(y)
        if y.dtype.kind in "mM":
            raise ValueError(
                f"y holds dates or durations, as {y[0]}, which would be counted in nanoseconds; give numbers, for "
                "instance of days, (y - y.min()) / np.timedelta64(1, 'D')"
            )
        word = next((text for text in y.ravel() if isinstance(text, str) and not is_number(text.strip())), None)
        if word is not None:
            raise ValueError(
                f"y holds the word {str(word)!r}, which is not a number; take BayesianClassifier for classes, or give "
                "numbers"
            )
        return y.astype(float), self._chosen("regression", "gaussian")


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
