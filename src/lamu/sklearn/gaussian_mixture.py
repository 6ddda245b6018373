"""A mixture of Gaussians in scikit-learn's manner, with a belief about its weights, means and covariances."""

from __future__ import annotations

from functools import cache
from numbers import Integral
from typing import Any

import jax
import numpy as np
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.validation import check_is_fitted

from lamu.graphs import Graph, models
from lamu.sklearn.graph_estimator import StandardisedEstimator

__all__ = ["GaussianMixture"]

# scikit-learn's words for a covariance, in the graph's.
_COVARIANCES = {"full": "full", "diag": "diagonal", "tied": "tied"}


@cache  # one graph of a kind, so that it is compiled once
def _graph(components: int, dimension: int, concentration: float, covariance: str, dtype: np.dtype) -> Graph:
    with jax.enable_x64(dtype == np.float64):
        return models.GaussianMixture(components, dimension, concentration, covariance)


class GaussianMixture(StandardisedEstimator):
    r"""A mixture of Gaussians by variational message passing.

    \[ z \sim \mathrm{Cat}(\pi), \qquad x \mid z \sim N(m_z, \Sigma_z), \qquad
       q(\pi)\, q(m, \Sigma)\, \textstyle\prod_i q(z_i) \approx p(\pi, m, \Sigma, z \mid x) \]

    On rows of unit scale the priors are Dirichlet(a) for the weights, and normal–Wishart of mean 0, count 1, as many
    degrees of freedom as columns, and the unit matrix, for each component. Columns are standardised within, and every
    attribute and density is in their own units.

    Args:
        n_components: how many at most; a small `weight_concentration_prior` lets those die that the rows do not need.
        covariance_type: "full" or "diag", one for each component, or "tied", one for all. With "diag" NaN is a missing
            entry.
        weight_concentration_prior: a, for each component.
        n_init: how many random starts; the one with the best bound is kept.
        max_iter: sweeps; None for as many as it takes until the bound has ceased to rise.
        random_state: the seed.

    Attributes:
        weights_: E[π], `[components]`.
        means_: E[m], `[components, columns]`.
        covariances_: the inverse of E[Σ⁻¹]: `[components, columns, columns]`, with "diag" `[components, columns]`, with
            "tied" `[columns, columns]`.

    Source: Bishop (2006), section 10.2; as `sklearn.mixture.BayesianGaussianMixture` with these priors.

    Examples:
        >>> import lamu
        >>> from lamu.sklearn import GaussianMixture
        >>> x, _ = lamu.data.load("iris")
        >>> mixture = GaussianMixture(3, random_state=0).fit(x)
        >>> mixture.means_.shape, mixture.predict_proba(x).shape
        ((3, 4), (150, 3))
    """

    def __init__(
        self,
        n_components: Any = 1,
        *,
        covariance_type: Any = "full",
        weight_concentration_prior: Any = 1e-3,
        n_init: Any = 1,
        max_iter: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.weight_concentration_prior = weight_concentration_prior
        self.n_init = n_init
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> GaussianMixture:
        """Learns from rows.

        Args:
            X: rows `[rows, columns]`.
            y: ignored.

        Raises:
            ValueError: for rows that cannot be used, or another covariance.
        """
        del y
        if self.covariance_type not in _COVARIANCES:
            raise ValueError(f'covariance_type={self.covariance_type!r} is not known; give "full", "diag" or "tied"')
        rows = self._first(X)
        kind = _COVARIANCES[self.covariance_type]
        check_scalar(self.n_components, "n_components", Integral, min_val=1)
        graph = _graph(self.n_components, rows.shape[1], float(self.weight_concentration_prior), kind, rows.dtype)
        self._learn(graph, {"y": rows}, rows.dtype)
        self.weights_ = self._shared("weight")
        tied = self.covariance_type == "tied"
        mean, precision = (self._shared("mean"), self._shared("precision")) if tied else self._shared("part").values()
        self.means_ = self.mean_ + self.scale_ * mean
        if self.covariance_type == "diag":
            self.covariances_ = self.scale_**2 / precision
        else:
            self.covariances_ = np.linalg.inv(precision) * np.outer(self.scale_, self.scale_)
        return self

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """Learns from rows, and returns the component of each, `[rows]`."""
        return self.fit(X, y).predict(X)

    def predict(self, X: Any) -> np.ndarray:
        """Returns the most probable component of each row, `[rows]`."""
        return self.predict_proba(X).argmax(axis=1)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Returns the probability of each component, q(z), `[rows, components]`."""
        rows = self._standardised(self._checked(X))
        return self._asked(lambda posterior: jax.nn.softmax(posterior.local({"y": rows})["z"].logits, axis=1))

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Returns rows of the mixture with `weights_`, `means_` and `covariances_`, and the component of each.

        Args:
            n_samples: how many.

        Returns:
            Rows `[n_samples, columns]`, and their components `[n_samples]`, in the order of the components.
        """
        check_is_fitted(self)
        if not isinstance(n_samples, int) or n_samples < 1:
            raise ValueError(f"n_samples={n_samples!r} makes no row; give a whole number of at least 1")
        random = check_random_state(self.random_state)
        weights = np.asarray(self.weights_, float)
        component = np.sort(random.choice(len(weights), n_samples, p=weights / weights.sum()))
        shape = (len(weights), len(self.mean_), len(self.mean_))
        diagonal = self.covariance_type == "diag"
        full = self.covariances_[:, :, None] * np.eye(shape[1]) if diagonal else self.covariances_
        root = np.linalg.cholesky(np.broadcast_to(full, shape))
        noise = random.normal(size=(n_samples, shape[1]))
        return self.means_[component] + np.einsum("nij,nj->ni", root[component], noise), component

    def __sklearn_tags__(self) -> Any:
        # Returns scikit-learn's tags: an estimator of a density.
        tags = super().__sklearn_tags__()
        tags.estimator_type = "density_estimator"
        return tags

    @property
    def _missing(self) -> bool:
        return self.covariance_type == "diag"
