"""Topics: latent Dirichlet allocation."""

from __future__ import annotations

import jax.numpy as jnp

from lamu.families import Dirichlet as Probabilities
from lamu.graphs.dirichlet import Dirichlet
from lamu.graphs.graph import Graph
from lamu.graphs.local import Coordinate
from lamu.graphs.program import Program
from lamu.graphs.words import Words
from lamu.sizes import sized

__all__ = ["Topics"]


@sized
def Topics(topics: int, vocabulary: int, share: float = 0.1, word: float = 0.05, sweeps: int = 20) -> Graph:
    r"""Returns latent Dirichlet allocation, every word of a document of a topic of its own.

    \[ \theta_i \sim \mathrm{Dir}(a), \quad \beta_k \sim \mathrm{Dir}(b), \quad w_{ij} \sim \sum_k \theta_{ik}\beta_k \]

    Data: `{"words": (ids, counts)}`, each `[N, longest]`: the words that occur in a document, and how often, padded by
    counts of zero.

    Args:
        topics: K.
        vocabulary: how many words there are.
        share: a.
        word: b.
        sweeps: the updates of a document's shares in a step.

    Source: Blei, Ng & Jordan (2003); Hoffman, Blei, Wang & Paisley (2013).

    Examples:
        >>> from lamu.graphs import models
        >>> models.Topics(3, 100).sites[0].shape
        (3, 100)
    """

    def program(m: Program) -> None:
        topic = m.sample("topic", Probabilities(jnp.full(vocabulary, word)), plate=topics)
        with m.rows():
            own = m.sample("share", Dirichlet(jnp.full(topics, share)))
            m.sample("words", Words(own, topic))

    return Graph(program, local={"share": Coordinate(sweeps)})
