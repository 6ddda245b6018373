"""What the estimators that are faces of graphs share: standardised rows, and coordinate ascent on their bound."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.validation import check_is_fitted, validate_data

from lamu.algorithms import vmp
from lamu.graphs import Graph
from lamu.loop import fit
from lamu.sklearn.pickled import Pickled
from lamu.sklearn.saved import Saved
from lamu.sklearn.text_codes import refuse_codes

__all__ = ["GraphEstimator", "StandardisedEstimator"]

_PRECISIONS = (np.float64, np.float32)


class GraphEstimator(Pickled, Saved, BaseEstimator):
    """The base of the faces of graphs: what they are fitted by, and in which precision."""

    # `posterior_`: the `lamu.Posterior` of the graph, with all that it can be asked.
    #
    # `lower_bound_`: the bound of the log evidence of the rows as the graph sees them, in nats.
    #
    # `n_iter_`: the sweeps.
    #
    # `n_features_in_`: the number of columns.
    #
    # `feature_names_in_`: the names of the columns, where X was a frame.

    n_init: Any
    max_iter: Any
    random_state: Any

    def _learn(self, graph: Graph, data: dict[str, Any], dtype: Any) -> None:
        """Fits the graph, made in this precision, to data, arrays by name."""
        check_scalar(self.n_init, "n_init", Integral, min_val=1)
        if self.max_iter is not None:
            check_scalar(self.max_iter, "max_iter", Integral, min_val=1)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with jax.enable_x64(dtype == np.float64):
            fitted = fit(graph, data, vmp(restarts=self.n_init), seed=seed, steps=self.max_iter, progress=False)
            self.posterior_ = fitted.posterior
            self.lower_bound_ = float(np.asarray(fitted.posterior.evidence))
        self.n_iter_ = len(fitted.history["loss"])
        self.dtype_ = dtype

    @property
    def _saved_parameters(self) -> dict[str, Any]:
        # All of them; a generator of random numbers is none that a file holds.
        plain = bool | int | float | str | None
        of_numpy = lambda value: value.item() if isinstance(value, np.generic) else value
        named = {name: of_numpy(value) for name, value in self.get_params(deep=False).items()}
        return {name: value for name, value in named.items() if isinstance(value, plain)}

    def _shared(self, name: str) -> Any:
        """Returns the posterior mean of a variable that all rows share, as NumPy arrays."""
        with jax.enable_x64(self.dtype_ == np.float64):
            return jax.tree.map(np.asarray, self.posterior_.mean["network"][name])

    def _asked(self, question: Callable[[Any], Any]) -> Any:
        """Returns the answer to a question about the posterior, as NumPy arrays."""
        with jax.enable_x64(self.dtype_ == np.float64):
            return jax.tree.map(np.asarray, question(self.posterior_))


class StandardisedEstimator(GraphEstimator):
    """The base of the faces whose rows are numbers, which the graph sees centred and of unit scale."""

    # `mean_`: the mean of each column, `[columns]`.
    #
    # `scale_`: the standard deviation of each column, `[columns]`; one where a column is constant.

    @property
    def _missing(self) -> bool:
        """Whether NaN is a missing entry."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        """Returns scikit-learn's tags, with what is done with NaN."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._missing
        return tags

    def score(self, X: Any, y: Any = None) -> float:
        """Returns the mean log density of the rows in nats.

        Args:
            X: rows `[rows, columns]`.
            y: ignored.
        """
        del y
        return float(np.mean(self.score_samples(X)))

    def score_samples(self, X: Any) -> np.ndarray:
        r"""Returns \(\log E_q[p(x \mid \theta)]\) of every row in nats, `[rows]`; of what is known of it, with NaN.

        Args:
            X: rows `[rows, columns]`.
        """
        rows = self._checked(X)
        density = self._asked(lambda posterior: posterior.log_prob({"y": self._standardised(rows)}, samples=64))
        return density - np.where(np.isnan(rows), 0.0, np.log(self.scale_)).sum(axis=1)

    def _first(self, X: Any) -> np.ndarray:
        """Returns the rows to learn from, standardised, and keeps how."""
        refuse_codes(X)
        X = validate_data(self, X, dtype=_PRECISIONS, ensure_min_samples=2, ensure_all_finite=self._finite)
        empty = np.isnan(X).all(axis=0)
        if empty.any():
            raise ValueError(f"column {int(empty.argmax())} has no value in any row; leave it out")
        self.mean_, scale = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
        self.scale_ = np.where(scale > 1e-12 * (1 + np.abs(self.mean_)), scale, 1).astype(X.dtype)
        return self._standardised(X)

    def _checked(self, X: Any) -> np.ndarray:
        """Returns the rows of a question, in the precision of the estimator."""
        check_is_fitted(self)
        refuse_codes(X)
        X = validate_data(self, X, dtype=_PRECISIONS, reset=False, ensure_all_finite=self._finite)
        return np.asarray(X, self.dtype_)

    def _standardised(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean_) / self.scale_

    @property
    def _finite(self) -> Any:
        return "allow-nan" if self._missing else True
