"""Classification in scikit-learn's manner, with calibrated probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from lamu.likelihoods import Likelihood
from lamu.sklearn.estimator import BayesianEstimator

__all__ = ["BayesianClassifier"]

_OF_CLASSES = ("categorical", "ordinal")  # which may be asked for on two classes too


class BayesianClassifier(ClassifierMixin, BayesianEstimator):
    r"""Classification with probabilities that know what the data leave open.

    \[ p(y^* = k \mid x^*, D) = \int p(y^* = k \mid f(\theta, x^*))\, q(\theta)\, d\theta \]

    Where neither `network`, `prior`, `algorithm` nor `epochs` is given, linear, additive, kernel and network candidates
    are fitted over folds and mixed (`lamu.fit_table`), as `lamu fit` does. Columns are standardised within.

    Args:
        likelihood: \(p(y \mid f)\) over the classes in sorted order, one of `lamu.likelihoods`, or a name as for
            `lamu fit --likelihood`: "ordinal" for ordered classes; None for "logit" on two classes, else "categorical".
        network: f, one of `lamu.networks` (`Linear()` for a generalised linear model) or one's own; None for two
            hidden layers of 64 units.
        prior: \(p(\theta)\); None for a Normal whose scale is learned.
        algorithm: one of `lamu.algorithms` or `lamu.mcmc`; None for an ensemble over folds (`lamu.fit_folds`).
        epochs: passes over the rows; None for as many as it takes.
        batch_size: rows of a step, where one of these four is given; the mixture has its own.
        samples: how many draws of the posterior a prediction is made of, where it needs draws.
        random_state: the seed, as everywhere in scikit-learn; an integer makes results repeatable.

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

    def predict(self, X: Any) -> np.ndarray:
        """Returns the most probable class of each row, `[rows]`."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_probable]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Returns the probability of each class, `[rows, classes]`, in the order of `classes_`."""
        mean = self._predict(X, lambda pred: pred.mean)
        return np.stack([1 - mean, mean], axis=1) if mean.ndim == 1 else mean

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Returns the logarithm of the probability of each class, `[rows, classes]`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def _target(self, y: Any) -> tuple[np.ndarray, Likelihood]:
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        count = len(self.classes_)
        if count < 2:
            raise ValueError(
                f"all rows are of the class {str(self.classes_[0])!r}; a classifier needs two classes or more"
            )
        binary = count == 2 and self.likelihood not in _OF_CLASSES
        task, default = ("binary", "logit") if binary else ("classes", "categorical")
        return codes, self._chosen(task, default, count)
