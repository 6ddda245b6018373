"""Topics of documents in scikit-learn's manner, from a table of word counts."""

from __future__ import annotations

from functools import cache
from numbers import Integral
from typing import Any

import jax
import numpy as np
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted, check_non_negative, validate_data

from lamu.graphs import Graph, models
from lamu.sklearn.graph_estimator import GraphEstimator
from lamu.sklearn.text_codes import refuse_codes

__all__ = ["TopicModel"]

_PRECISIONS = (np.float64, np.float32)


@cache  # one graph of a kind, so that it is compiled once
def _graph(topics: int, vocabulary: int, share: float, word: float, dtype: np.dtype) -> Graph:
    with jax.enable_x64(dtype == np.float64):
        return models.Topics(topics, vocabulary, share, word)


class TopicModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, GraphEstimator):
    r"""Latent Dirichlet allocation by variational message passing.

    \[ \theta_i \sim \mathrm{Dir}(a), \quad \beta_k \sim \mathrm{Dir}(b), \quad w_{ij} \sim \sum_k \theta_{ik}\beta_k \]

    Rows are documents and columns words, as `sklearn.feature_extraction.text.CountVectorizer` returns them, sparse or
    dense. Counts need not be whole: a weight of each word is taken as well.

    Args:
        n_components: how many topics.
        doc_topic_prior: a.
        topic_word_prior: b.
        n_init: how many random starts; the one with the best bound is kept.
        max_iter: sweeps; None for as many as it takes until the bound has ceased to rise.
        random_state: the seed.

    Attributes:
        components_: the parameters of the topics' Dirichlet beliefs, `[topics, words]`; a row over its sum is the mean
            of a topic.

    Source: Blei, Ng & Jordan (2003); names as in `sklearn.decomposition.LatentDirichletAllocation`.

    Examples:
        >>> import numpy as np
        >>> from lamu.sklearn import TopicModel
        >>> counts = np.array([[4, 3, 0, 0], [5, 2, 0, 1], [0, 0, 6, 3], [0, 1, 2, 4]])
        >>> share = TopicModel(2, random_state=0).fit_transform(counts)
        >>> bool(share.argmax(axis=1)[0] != share.argmax(axis=1)[3])
        True
    """

    def __init__(
        self,
        n_components: Any = 10,
        *,
        doc_topic_prior: Any = 0.1,
        topic_word_prior: Any = 0.05,
        n_init: Any = 1,
        max_iter: Any = 200,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.n_init = n_init
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> TopicModel:
        """Learns topics from documents.

        Args:
            X: counts `[documents, words]`.
            y: ignored.

        Raises:
            ValueError: for a negative count, or one that is not finite.
        """
        del y
        rows = self._counts(X, reset=True)
        priors = float(self.doc_topic_prior), float(self.topic_word_prior)
        check_scalar(self.n_components, "n_components", Integral, min_val=1)
        graph = _graph(self.n_components, rows.shape[1], *priors, rows.dtype)
        self._learn(graph, {"words": _words(rows)}, rows.dtype)
        belief: Any = self.posterior_.belief
        self.components_ = np.asarray(belief.factors["network"].factors["topic"].concentration)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Returns the mean of each document's shares of the topics, `[documents, topics]`.

        Args:
            X: counts `[documents, words]`.
        """
        words = self._asked_words(X)
        return self._asked(lambda posterior: posterior.local({"words": words})["share"].mean)

    def score(self, X: Any, y: Any = None) -> float:
        """Returns the sum of the documents' log predictive probabilities in nats, each a bound over its shares.

        Args:
            X: counts `[documents, words]`.
            y: ignored.
        """
        del y
        words = self._asked_words(X)
        return float(self._asked(lambda posterior: posterior.log_prob({"words": words}, samples=16)).sum())

    def perplexity(self, X: Any) -> float:
        r"""Returns \(\exp(-\text{score} / \text{words})\); lower is better.

        Args:
            X: counts `[documents, words]`.
        """
        check_is_fitted(self)
        return float(np.exp(-self.score(X) / max(self._counts(X, reset=False).sum(), 1.0)))

    def __sklearn_tags__(self) -> Any:
        """Returns scikit-learn's tags: counts are not negative, and may be sparse."""
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _asked_words(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        check_is_fitted(self)
        return _words(self._counts(X, reset=False).astype(self.dtype_))

    def _counts(self, X: Any, reset: bool) -> Any:
        """Returns the counts as a sparse matrix of rows."""
        refuse_codes(X)
        X = validate_data(self, X, dtype=_PRECISIONS, accept_sparse="csr", reset=reset)
        check_non_negative(X, f"{type(self).__name__}, whose columns are counts of words")
        return sparse.csr_matrix(X)


def _words(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns the words of each document and how often they occur, padded by counts of zero."""
    rows = rows.copy()
    rows.eliminate_zeros()
    lengths = np.diff(rows.indptr)
    ids = np.zeros((rows.shape[0], max(int(lengths.max()), 1)), np.int32)
    counts = np.zeros(ids.shape, rows.dtype)
    held = np.arange(ids.shape[1]) < lengths[:, None]
    ids[held], counts[held] = rows.indices, rows.data
    return ids, counts
