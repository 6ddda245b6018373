r"""Factors of documents: each word has its own topic, which is summed out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.graphs.expressions import Environment, Expression
from lamu.graphs.factor import Factor, argument, require_inside
from lamu.graphs.statistics import Observed, Probabilities
from lamu.record import record
from lamu.supports import Counts, PositiveReal
from lamu.typing import Array, Inputs

__all__ = ["Words", "WordsFactor"]


def Words(share: Any, topic: Any) -> WordsFactor:
    r"""Returns the factor of a document's words, a mixture of the topics' distributions over the vocabulary.

    \[ \sum_v c_v\, \log \sum_k \exp\big(E\log\theta_k + E\log\beta_{kv}\big) \]

    which is \(\sum_v c_v \log \sum_k \theta_k \beta_{kv}\) at known shares and topics, and the best bound over the
    topic of every word otherwise. A row of data is a pair of arrays, distinct words and their counts, `(ids,
    counts)`, padded by counts of zero; a count may be any weight from zero.

    Args:
        share: θ `[K]`, the shares of the topics in the document.
        topic: β `[K, V]`, variables with a `Dirichlet` belief.

    Raises:
        TypeError: for an argument without a closed form.

    Source: Blei, Ng & Jordan (2003), equations 6 and 7; Hoffman, Blei, Wang & Paisley (2013), section 3.1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu import graphs
        >>> graphs.Words(jnp.full(2, 0.5), jnp.full((2, 5), 0.2)).affine
        False
    """
    return WordsFactor(
        argument(share, Probabilities, "the share of Words"),
        argument(topic, Probabilities, "the topic of Words"),
    )


class OfWords(Factor):
    """A factor of the words of a document, of any length."""

    kind = Observed
    affine = False
    misses = False
    is_of_words = True

    @property
    def shape(self) -> None:
        # The data determine it.
        return None


@record
class WordsFactor(OfWords):
    """Factor of a document's words. Use `Words`."""

    share: Expression
    topic: Expression

    exchangeable = True
    first_concentration = 100.0

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        # Returns the log probability of the words, or its bound.
        return self.prepared(environment).log_density(x, environment)

    def prepared(self, environment: Environment) -> WordsInVocabulary:
        # Returns the factor with the probability of every word in every topic, one exponential for all documents.
        log = self.topic.of_kind(Probabilities, environment).log.T / environment.temperature
        top = jax.lax.stop_gradient(jnp.max(log, axis=-1))
        return WordsInVocabulary(self.share, jnp.exp(log - top[:, None]), top)

    def predicted(self, environment: Environment) -> tuple[Array, Array]:
        # Returns the probabilities of one more word of the document, and their variances.
        share, topic = (jnp.exp(part.of_kind(Probabilities, environment).log) for part in (self.share, self.topic))
        p = share @ topic
        p = p / jnp.sum(p)
        return p, p * (1.0 - p)

    def check(self, name: str, value: np.ndarray, observed: np.ndarray) -> None:
        # Raises a ValueError for words outside the vocabulary, and for counts below zero.
        size = None if self.topic.shape is None else self.topic.shape[-1] - 1
        require_inside(Counts(size) if name.endswith(".ids") else PositiveReal(zero=True), name, value, observed)


@record
class WordsInVocabulary(OfWords):
    """The words of a document at known topics, as a table over the vocabulary."""

    share: Expression
    probability: Array  # of every word in every topic relative to its largest, `[V, K]`
    top: Array  # the logarithms of the largest, `[V]`

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        # Returns the log probability of the words, or its bound.
        ids, counts = x.value
        return _log_probability(
            counts, self.share, environment, lambda share: self.probability[ids] @ share, self.top[ids]
        )

    def evaluated(self, x: Inputs, environment: Environment) -> WordsInTopics:
        # Returns the factor with the table rows of the document's words.
        ids = x.value[0]
        return WordsInTopics(self.share, self.probability[ids].T, self.top[ids])


@record
class WordsInTopics(OfWords):
    """The words of one document as a function of its shares: two products in a step of an iteration."""

    share: Expression
    probability: Array  # of every word in every topic relative to its largest, `[K, words]`
    top: Array  # the logarithms of the largest, `[words]`

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        # Returns the log probability of the words, or its bound.
        return _log_probability(x.value[1], self.share, environment, lambda share: share @ self.probability, self.top)


def _log_probability(
    counts: Array, share: Any, environment: Environment, mixed: Callable[[Array], Array], top: Array
) -> Array:
    """Returns the log probability of words; `mixed` maps shares to probabilities relative to their largest."""
    log = share.of_kind(Probabilities, environment).log / environment.temperature
    largest = jax.lax.stop_gradient(jnp.max(log))
    probability = mixed(jnp.exp(log - largest))
    words = jnp.log(jnp.maximum(probability, jnp.finfo(probability.dtype).tiny)) + largest + top
    return environment.temperature * jnp.sum(counts.astype(words.dtype) * words)
