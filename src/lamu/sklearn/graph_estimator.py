"""Estimators of graphs: factor analysis, Gaussian mixtures and topics, by variational message passing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from numbers import Integral
from typing import Any

import jax
import numpy as np
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state, check_scalar
from sklearn.utils.validation import check_is_fitted, check_non_negative

from lamu.algorithms import vmp
from lamu.base.arguments import whole_number
from lamu.graphs import Graph, models
from lamu.loop import fit
from lamu.sklearn.estimator import PosteriorEstimator, RandomState
from lamu.typing import Inputs, Number, Targets

__all__ = ["FactorAnalysis", "GaussianMixture", "GraphEstimator", "StandardisedEstimator", "TopicModel"]


@cache  # one graph object of each kind, so that it is compiled once
def _graph(make: Callable[..., Graph], dtype: np.dtype, *arguments: object) -> Graph:
    with jax.enable_x64(dtype == np.float64):
        return make(*arguments)


class GraphEstimator(PosteriorEstimator):
    """Base class of estimators of graphs, which are fitted by variational message passing."""

    # `lower_bound_`: the lower bound of the log evidence of the (standardised) rows, in nats.
    #
    # `n_iter_`: the number of sweeps.

    n_init: int
    max_iter: int | None

    def _learn(self, data: dict[str, object], dtype: np.dtype, make: Callable[..., Graph], *arguments: object) -> None:
        """Fits the graph made by a function of arguments, the first its number of parts, to named arrays."""
        check_scalar(arguments[0], "n_components", Integral, min_val=1)
        check_scalar(self.n_init, "n_init", Integral, min_val=1)
        if self.max_iter is not None:
            check_scalar(self.max_iter, "max_iter", Integral, min_val=1)
        graph, algorithm = _graph(make, dtype, *arguments), vmp(restarts=self.n_init)
        with jax.enable_x64(dtype == np.float64):
            fitted = fit(graph, data, algorithm, seed=self._drawn_seed(), steps=self.max_iter, progress=False)
            self.posterior_ = fitted.posterior
            self.lower_bound_ = float(np.asarray(fitted.posterior.evidence))
        self.n_iter_ = len(fitted.history["loss"])
        self.dtype_ = dtype

    def _shared(self, name: str) -> Any:
        """Returns the posterior mean of a shared variable, as NumPy arrays."""
        return self._asked(lambda posterior: posterior.mean["network"][name])


class _Components(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Mixin of estimators whose `transform` returns one number for each component."""

    components_: np.ndarray

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


class StandardisedEstimator(GraphEstimator):
    """Base class of estimators of numeric rows, which are standardised for the graph."""

    # `mean_`: the mean of each column, `[columns]`.
    #
    # `scale_`: the standard deviation of each column, `[columns]`; one where a column is constant.

    def score(self, X: Inputs, y: Targets = None) -> float:
        """Returns the mean log density of the rows in nats.

        Args:
            X: rows `[rows, columns]`.
            y: ignored.
        """
        del y
        return float(np.mean(self.score_samples(X)))

    def score_samples(self, X: Inputs) -> np.ndarray:
        r"""Returns \(\log E_q[p(x \mid \theta)]\) of every row in nats, `[rows]`; of its observed entries, with NaN.

        Args:
            X: rows `[rows, columns]`.
        """
        rows = self._checked(X)
        density = self._asked(lambda posterior: posterior.log_prob({"y": self._standardised(rows)}, samples=64))
        return density - np.where(np.isnan(rows), 0.0, np.log(self.scale_)).sum(axis=1)

    def _first(self, X: Inputs) -> np.ndarray:
        """Returns standardised training rows, and stores the scaling."""
        X = self._validated(X, reset=True, ensure_min_samples=2)
        empty = np.isnan(X).all(axis=0)
        if empty.any():
            raise ValueError(f"column {int(empty.argmax())} has no value in any row; leave it out")
        # In 64 bits: NumPy sums columns row by row, so that a mean of 1e5 in 32 bits is off by units.
        mean, scale = np.nanmean(X, axis=0, dtype=float), np.nanstd(X, axis=0, dtype=float)
        self.mean_ = mean.astype(X.dtype)
        self.scale_ = np.where(scale > 1e-12 * np.nanmax(np.abs(X), axis=0), scale, 1).astype(X.dtype)
        return self._standardised(X)

    def _checked(self, X: Inputs) -> np.ndarray:
        """Returns checked rows in the precision of the estimator."""
        return np.asarray(self._validated(X), self.dtype_)

    def _standardised(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean_) / self.scale_


class FactorAnalysis(_Components, StandardisedEstimator):
    r"""Factor analysis by variational message passing; unnecessary factors vanish.

    \[ z \sim N(0, I), \qquad x \mid z \sim N(\mu + W z, \Psi), \qquad \Psi \text{ diagonal} \]

    The columns of W have learned precisions. NaN is a missing entry, in `fit` and all other methods. Columns are
    standardised internally; attributes and densities are in the original units.

    Args:
        n_components: the largest number of factors; None for the number of columns.
        n_init: the number of starts; the one with the best bound is kept. The first is from principal directions of
            rows scaled by their noise, and rarely needs others.
        max_iter: the number of sweeps; None until the bound no longer rises.
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
        self,
        n_components: int | None = None,
        *,
        n_init: int = 1,
        max_iter: int | None = 1000,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.n_init = n_init
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Inputs, y: Targets = None) -> FactorAnalysis:
        """Fits the model to rows.

        Args:
            X: rows `[rows, columns]`; NaN is a missing entry.
            y: ignored.

        Raises:
            ValueError: for infinite numbers, or a column without a value.
        """
        del y
        # In 64 bits: columns that factors determine, as equal ones, have hardly any noise, less than float32 resolves.
        rows = self._first(X).astype(float)
        factors = rows.shape[1] if self.n_components is None else self.n_components
        self._learn({"y": rows}, rows.dtype, models.FactorAnalysis, factors, rows.shape[1])
        self.components_ = (self.scale_[:, None] * self._shared("W")).T
        self.noise_variance_ = self.scale_**2 / self._shared("noise")
        return self

    def transform(self, X: Inputs) -> np.ndarray:
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


# scikit-learn's names of covariances, in the graph's.
_COVARIANCES = {"full": "full", "diag": "diagonal", "tied": "tied"}


class GaussianMixture(StandardisedEstimator):
    r"""A mixture of Gaussians by variational message passing.

    \[ z \sim \mathrm{Cat}(\pi), \qquad x \mid z \sim N(m_z, \Sigma_z), \qquad
       q(\pi)\, q(m, \Sigma)\, \textstyle\prod_i q(z_i) \approx p(\pi, m, \Sigma, z \mid x) \]

    On standardised rows the priors are Dirichlet(a) for the weights, and normal–Wishart with mean 0, count 1, as many
    degrees of freedom as columns, and the unit matrix, for each component. NaN is a missing entry, in `fit` and all
    other methods, and integrated out; a row may miss all entries. Columns are standardised internally; attributes and
    densities are in the original units.

    Args:
        n_components: the largest number of components; with a small `weight_concentration_prior` unnecessary ones
            vanish.
        covariance_type: "full" or "diag", one for each component, or "tied", one for all.
        weight_concentration_prior: a, for each component.
        n_init: the number of random starts; the one with the best bound is kept.
        max_iter: the number of sweeps; None until the bound no longer rises.
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

    _allows_nan = True

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "full",
        weight_concentration_prior: Number = 1e-3,
        n_init: int = 1,
        max_iter: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.weight_concentration_prior = weight_concentration_prior
        self.n_init = n_init
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Inputs, y: Targets = None) -> GaussianMixture:
        """Fits the model to rows.

        Args:
            X: rows `[rows, columns]`; NaN is a missing entry.
            y: ignored.

        Raises:
            ValueError: for rows that cannot be used, or another covariance.
        """
        del y
        if self.covariance_type not in _COVARIANCES:
            raise ValueError(f'covariance_type={self.covariance_type!r} is not known; give "full", "diag" or "tied"')
        rows = self._first(X)
        options = float(self.weight_concentration_prior), _COVARIANCES[self.covariance_type]
        self._learn({"y": rows}, rows.dtype, models.GaussianMixture, self.n_components, rows.shape[1], *options)
        self.weights_ = self._shared("weight")
        tied = self.covariance_type == "tied"
        mean, precision = (self._shared("mean"), self._shared("precision")) if tied else self._shared("part").values()
        self.means_ = self.mean_ + self.scale_ * mean
        if self.covariance_type == "diag":
            self.covariances_ = self.scale_**2 / precision
        else:
            self.covariances_ = np.linalg.inv(precision) * np.outer(self.scale_, self.scale_)
        return self

    def fit_predict(self, X: Inputs, y: Targets = None) -> np.ndarray:
        """Fits the model to rows, and returns the component of each, `[rows]`."""
        return self.fit(X, y).predict(X)

    def predict(self, X: Inputs) -> np.ndarray:
        """Returns the most probable component of each row, `[rows]`."""
        return self.predict_proba(X).argmax(axis=1)

    def predict_proba(self, X: Inputs) -> np.ndarray:
        """Returns the probability of each component, q(z), `[rows, components]`."""
        rows = self._standardised(self._checked(X))
        return self._asked(lambda posterior: jax.nn.softmax(posterior.local({"y": rows})["z"].logits, axis=1))

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Returns draws from the mixture with `weights_`, `means_` and `covariances_`, and the component of each.

        Args:
            n_samples: the number of draws.

        Returns:
            Rows `[n_samples, columns]`, and their components `[n_samples]`, in the order of the components.
        """
        check_is_fitted(self)
        n_samples = whole_number("n_samples", n_samples, problem="makes no row")
        random = check_random_state(self.random_state)
        weights = np.asarray(self.weights_, float)
        component = np.sort(random.choice(len(weights), n_samples, p=weights / weights.sum()))
        shape = (len(weights), len(self.mean_), len(self.mean_))
        diagonal = self.covariance_type == "diag"
        full = self.covariances_[:, :, None] * np.eye(shape[1]) if diagonal else self.covariances_
        root = np.linalg.cholesky(np.broadcast_to(full, shape))
        noise = random.normal(size=(n_samples, shape[1]))
        return self.means_[component] + np.einsum("nij,nj->ni", root[component], noise), component

    def __sklearn_tags__(self) -> Tags:
        # Returns scikit-learn's tags: an estimator of a density.
        tags = super().__sklearn_tags__()
        tags.estimator_type = "density_estimator"
        return tags


class TopicModel(_Components, GraphEstimator):
    r"""Latent Dirichlet allocation by variational message passing.

    \[ \theta_i \sim \mathrm{Dir}(a), \quad \beta_k \sim \mathrm{Dir}(b), \quad w_{ij} \sim \sum_k \theta_{ik}\beta_k \]

    Rows are documents and columns words, as `sklearn.feature_extraction.text.CountVectorizer` returns them, sparse or
    dense. Counts need not be whole: weights of words are allowed.

    Args:
        n_components: the number of topics.
        doc_topic_prior: a.
        topic_word_prior: b.
        n_init: the number of random starts; the one with the best bound is kept.
        max_iter: the number of sweeps; None until the bound no longer rises.
        random_state: the seed.

    Attributes:
        components_: the parameters of the topics' Dirichlet beliefs, `[topics, words]`; a row divided by its sum is the
            mean of a topic.

    Source: Blei, Ng & Jordan (2003); names as in `sklearn.decomposition.LatentDirichletAllocation`.

    Examples:
        >>> import numpy as np
        >>> from lamu.sklearn import TopicModel
        >>> counts = np.array([[4, 3, 0, 0], [5, 2, 0, 1], [0, 0, 6, 3], [0, 1, 2, 4]])
        >>> share = TopicModel(2, random_state=0).fit_transform(counts)
        >>> bool(share.argmax(axis=1)[0] != share.argmax(axis=1)[3])
        True
    """

    _allows_nan = False

    def __init__(
        self,
        n_components: int = 10,
        *,
        doc_topic_prior: Number = 0.1,
        topic_word_prior: Number = 0.05,
        n_init: int = 1,
        max_iter: int | None = 200,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.n_init = n_init
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Inputs, y: Targets = None) -> TopicModel:
        """Fits topics to documents.

        Args:
            X: counts `[documents, words]`.
            y: ignored.

        Raises:
            ValueError: for a negative count, or one that is not finite.
        """
        del y
        rows = self._counts(X, reset=True)
        priors = float(self.doc_topic_prior), float(self.topic_word_prior)
        size = self.n_components, rows.shape[1]
        self._learn({"words": _words(rows)}, rows.dtype, models.Topics, *size, *priors)
        belief: Any = self.posterior_.belief
        self.components_ = np.asarray(belief.factors["network"].factors["topic"].concentration)
        return self

    def transform(self, X: Inputs) -> np.ndarray:
        """Returns the mean of each document's shares of the topics, `[documents, topics]`.

        Args:
            X: counts `[documents, words]`.
        """
        words = self._asked_words(X)
        return self._asked(lambda posterior: posterior.local({"words": words})["share"].mean)

    def score(self, X: Inputs, y: Targets = None) -> float:
        """Returns the sum of the documents' log predictive probabilities in nats, each a bound over its shares.

        Args:
            X: counts `[documents, words]`.
            y: ignored.
        """
        del y
        words = self._asked_words(X)
        return float(self._asked(lambda posterior: posterior.log_prob({"words": words}, samples=16)).sum())

    def perplexity(self, X: Inputs) -> float:
        r"""Returns \(\exp(-\text{score} / \text{words})\); lower is better.

        Args:
            X: counts `[documents, words]`.
        """
        check_is_fitted(self)
        return float(np.exp(-self.score(X) / max(self._counts(X, reset=False).sum(), 1.0)))

    def __sklearn_tags__(self) -> Tags:
        """Returns scikit-learn's tags: counts are not negative, and may be sparse."""
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        return tags

    def _asked_words(self, X: Inputs) -> tuple[np.ndarray, np.ndarray]:
        check_is_fitted(self)
        return _words(self._counts(X, reset=False).astype(self.dtype_))

    def _counts(self, X: Inputs, reset: bool) -> Any:
        """Returns the counts as a sparse matrix of rows."""
        X = self._validated(X, reset=reset, accept_sparse="csr")
        check_non_negative(X, f"{type(self).__name__}, whose columns are counts of words")
        return sparse.csr_matrix(X)


def _words(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns the words of each document and their counts, padded by counts of zero."""
    rows = rows.copy()
    rows.eliminate_zeros()
    lengths = np.diff(rows.indptr)
    ids = np.zeros((rows.shape[0], max(int(lengths.max()), 1)), np.int32)
    counts = np.zeros(ids.shape, rows.dtype)
    filled = np.arange(ids.shape[1]) < lengths[:, None]
    ids[filled], counts[filled] = rows.indices, rows.data
    return ids, counts
