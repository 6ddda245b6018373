"""Factor analysis in scikit-learn's manner, of rows of which some entries may be missing."""

from __future__ import annotations

from functools import cache
from numbers import Integral
from typing import Any

import jax
import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from lamu.graphs import Graph, models
from lamu.sklearn.graph_estimator import StandardisedEstimator

__all__ = ["FactorAnalysis"]


@cache  # one graph of a kind, so that it is compiled once
def _graph(factors: int, dimension: int, dtype: np.dtype) -> Graph:
    with jax.enable_x64(dtype == np.float64):
        return models.FactorAnalysis(factors, dimension)


class FactorAnalysis(ClassNamePrefixFeaturesOutMixin, TransformerMixin, StandardisedEstimator):
    r"""Factor analysis by variational message passing; factors that the rows do not need vanish.

    \[ z \sim N(0, I), \qquad x \mid z \sim N(\mu + W z, \Psi), \qquad \Psi \text{ diagonal} \]

    The columns of W have a precision each, which is learned. NaN is a missing entry, in `fit` and everywhere. Columns
    are standardised within, and every attribute and density is in their own units.

    Args:
        n_components: how many factors at most; None for as many as there are columns.
        n_init: how many random starts; the one with the best bound is kept.
        max_iter: sweeps; None for as many as it takes until the bound has ceased to rise.
        random_state: the seed.

    Attributes:
        components_: E[W]ᵀ, `[factors, columns]`.
        noise_variance_: the inverse of E[1/Ψ], `[columns]`.

    Source: Bishop (1999), "Variational principal components"; names as in `sklearn.decomposition.FactorAnalysis`.

    Examples:
        >>> import lamu, numpy as np
        >>> from lamu.sklearn import FactorAnalysis
        >>> x = np.asarray(lamu.data.load("iris")[0], float)
        >>> x[::5, 1] = np.nan
        >>> FactorAnalysis(2, max_iter=200, random_state=0).fit_transform(x).shape
        (150, 2)
    """

    def __init__(
        self, n_components: Any = None, *, n_init: Any = 1, max_iter: Any = 1000, random_state: Any = None
    ) -> None:
        self.n_components = n_components
        self.n_init = n_init
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> FactorAnalysis:
        """Learns from rows.

        Args:
            X: rows `[rows, columns]`; NaN is a missing entry.
            y: ignored.

        Raises:
            ValueError: for infinite numbers, or a column without a value.
        """
        del y
        rows = self._first(X)
        factors = rows.shape[1] if self.n_components is None else self.n_components
        check_scalar(factors, "n_components", Integral, min_val=1)
        self._learn(_graph(factors, rows.shape[1], rows.dtype), {"y": rows}, rows.dtype)
        self.components_ = (self.scale_[:, None] * self._shared("W")).T
        self.noise_variance_ = self.scale_**2 / self._shared("noise")
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Returns the mean of q(z) of every row, `[rows, factors]`.

        Args:
            X: rows `[rows, columns]`; NaN is a missing entry.
        """
        rows = self._standardised(self._checked(X))
        return self._asked(lambda posterior: posterior.local({"y": rows})["z"].mean)

    def get_covariance(self) -> np.ndarray:
        r"""Returns \(W W^\top + \Psi\) at `components_` and `noise_variance_`, `[columns, columns]`."""
        check_is_fitted(self)
        return self.components_.T @ self.components_ + np.diag(self.noise_variance_)

    def get_precision(self) -> np.ndarray:
        """Returns the inverse of the covariance, `[columns, columns]`."""
        return np.linalg.inv(self.get_covariance())

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    @property
    def _missing(self) -> bool:
        return True
