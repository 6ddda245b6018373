"""What the estimators share: their parameters, how they learn, and what of them is saved."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from lamu.data.encoding import Encoding
from lamu.data.row_weights import UnscaledWeights, warn_of_scale
from lamu.data.spelling import nearest
from lamu.folds import fit_folds
from lamu.likelihoods import Likelihood
from lamu.likelihoods.table import LIKELIHOODS
from lamu.loop import fit
from lamu.model import Model
from lamu.networks import MLP
from lamu.posterior import Posterior
from lamu.predictives import InputMixture, Predictive
from lamu.priors import LearnedNormal
from lamu.sklearn.missing_values import learn_encoding, new_rows, training_rows
from lamu.sklearn.pickled import Pickled
from lamu.sklearn.repeated_rows import distinct
from lamu.sklearn.saved import Saved
from lamu.sklearn.text_codes import refuse_codes
from lamu.tabular import fit_table

__all__ = ["BayesianEstimator"]

_PRECISIONS = (np.float64, np.float32)


class BayesianEstimator(Pickled, Saved, BaseEstimator):
    """The base of the estimators: parameters, fit and prediction."""

    # Learning and prediction have the precision of X, as scikit-learn's own networks have: 64 bits, or 32 where X is an
    # array of `float32`.
    #
    # `posterior_`: the `lamu.Posterior`, with all that it can be asked. Where training rows lack numbers, its inputs
    # are complete rows, and behind them a column for each of X's columns that lacks some: ones where it does.
    #
    # `encoding_`: what missing numbers become, `lamu.data.Encoding.describe()`.
    #
    # `n_features_in_`: the number of columns.
    #
    # `feature_names_in_`: the names of the columns, where X was a frame.

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
        # Anything is taken here and looked at by `fit`: scikit-learn's searches set and reset parameters freely.
        self.likelihood = likelihood
        self.network = network
        self.prior = prior
        self.algorithm = algorithm
        self.epochs = epochs
        self.batch_size = batch_size
        self.samples = samples
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Learns from the rows of a table.

        Args:
            X: inputs `[rows, columns]`: an array, or a frame of pandas or polars. NaN is a missing number, drawn given
                the rest of its row as by `lamu fit --impute`, here and in rows to predict. Columns of categories are
                encoded before, for instance by scikit-learn's `OneHotEncoder` in a pipeline.
            y: targets `[rows]`.
            sample_weight: what each row counts, `[rows]`; a weight of two is the same as the row written twice. Weights
                are therefore not normalised: their sum is the number of rows that the posterior has seen, and weights
                that sum to one leave it near the prior. A sum far from the number of rows is used as it is, with a
                warning (`lamu.data.UnscaledWeights`).

        Returns:
            The estimator.

        Raises:
            ValueError: for inputs that cannot be used: infinity, a column without a value, another number of rows
                than y has, weights that are negative or all zero, targets outside the likelihood's support.
        """
        refuse_codes(X)
        X, y = validate_data(self, X, y, dtype=_PRECISIONS, ensure_min_samples=2, ensure_all_finite="allow-nan")
        weight = _check_sample_weight(
            sample_weight, X, dtype=X.dtype, ensure_non_negative=True, allow_all_zero_weights=False
        )
        warn_of_scale(weight, "sample_weight")
        target, likelihood = self._target(y)
        X, target, weight = distinct(X, target, weight)
        if len(X) < 2:
            raise ValueError(f"there is {len(X)} distinct row (n_samples={len(X)}); give at least two")
        names = getattr(self, "feature_names_in_", [f"x{column}" for column in range(X.shape[1])])
        encoding = learn_encoding(X, target, len(getattr(self, "classes_", ())), list(names), weight)
        X = training_rows(encoding, X, target)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with jax.enable_x64(X.dtype == np.float64), warnings.catch_warnings():
            warnings.simplefilter("ignore", UnscaledWeights)  # said above, of the rows as they came
            self.posterior_ = self._posterior(likelihood, X, target, weight, seed)
        self.dtype_, self.encoding_ = X.dtype, encoding.describe()
        return self

    def __sklearn_tags__(self) -> Any:
        """Returns scikit-learn's tags: inputs may have missing numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def _saved_parameters(self) -> dict[str, Any]:
        return {"samples": self.samples}

    def _chosen(self, task: str, default: str, classes: int = 0) -> Likelihood:
        """Returns the likelihood that was asked for, by name or as an object, or the default one."""
        asked = default if self.likelihood is None else self.likelihood
        if not isinstance(asked, str):
            return asked
        names = {name: make for name, (kind, make) in LIKELIHOODS.items() if kind == task}
        if asked not in names:
            raise ValueError(f"there is no likelihood {asked!r} for such a target; {nearest(asked, names)}")
        return names[asked](classes)

    @abstractmethod
    def _target(self, y: Any) -> tuple[np.ndarray, Likelihood]:
        """Returns the targets as numbers `[rows]`, and their likelihood."""

    def _posterior(self, likelihood: Likelihood, x: Any, y: Any, weight: Any, seed: int) -> Posterior:
        if all(choice is None for choice in (self.network, self.prior, self.algorithm, self.epochs)):
            return fit_table(x, y, likelihood, weight=weight, seed=seed).posterior
        network = MLP((64, 64)) if self.network is None else self.network
        prior = LearnedNormal(0.5) if self.prior is None else self.prior
        model = Model(network, likelihood, prior).standardised(x, y, weight)
        data = {"x": x, "y": y, "weight": weight}
        options: dict[str, Any] = {"seed": seed, "batch_size": self.batch_size}
        if self.epochs is not None:
            options["epochs"] = self.epochs
        if self.algorithm is None:
            return fit_folds(model, data, **options).posterior
        return fit(model, data, self.algorithm, **options).posterior

    def _predict(self, X: Any, ask: Callable[[Predictive], Any]) -> Any:
        """Returns the answer to a question about the prediction at X, as NumPy arrays."""
        check_is_fitted(self)
        refuse_codes(X)
        X = validate_data(self, X, dtype=_PRECISIONS, reset=False, ensure_all_finite="allow-nan")
        rows = new_rows(Encoding.of(self.encoding_), np.asarray(X, self.dtype_))
        with jax.enable_x64(self.dtype_ == np.float64):
            pred = InputMixture.of(lambda x, _: self.posterior_.predict(x, samples=self.samples), rows)
            return jax.tree.map(np.asarray, ask(pred))
