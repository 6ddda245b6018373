"""Small choices of the rule in λ: whether old belief is forgotten, and where λ starts."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.record import record
from lamu.typing import Number, Params

__all__ = ["Decay", "Latent", "NoDecay", "Signs"]


@record
class Decay:
    """The entropy's part of the rule: old belief is forgotten at the rate ρ, towards the prior.

    Examples:
        >>> from lamu.natural_rule import Decay
        >>> Decay().pull({"w": 3.0}, {"w": 1.0})
        {'w': 2.0}
    """

    departure = ""
    faithful = True

    def pull(self, natural: Params, prior: Params) -> Params:
        """Returns Λ − λ₀/N."""
        return tree.add(natural, prior, -1.0)


@record
class NoDecay:
    """Neither entropy nor prior: nothing is forgotten, and the belief ends as a point.

    Examples:
        >>> from lamu.natural_rule import NoDecay
        >>> NoDecay().departure
        'entropy and decay dropped'
    """

    departure = "entropy and decay dropped"
    faithful = False

    def pull(self, natural: Params, prior: Params) -> Params:
        """Returns zeros."""
        return tree.zeros_like(natural)


@record
class Signs:
    """Every |λ| alike at the start, with the signs of the network's initial weights.

    Attributes:
        size: |λ|.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.natural_rule import Signs
        >>> Signs(10.0).values({"w": jnp.array([0.3, -0.1])}, 2.0)["w"].tolist()  # a row: λ/κ
        [5.0, -5.0]
    """

    size: Number

    def values(self, weights: Params, concentration: Number) -> Params:
        """Returns Λ = λ/κ at the start."""
        size = self.size / concentration
        return jax.tree.map(lambda w: jnp.where(w >= 0, tree.cast(size, w), -tree.cast(size, w)), weights)


@record
class Latent:
    """The network's initial weights as Λ: the latent weights of a binary network.

    Examples:
        >>> from lamu.natural_rule import Latent
        >>> Latent().values({"w": 0.3}, 100.0)
        {'w': 0.3}
    """

    def values(self, weights: Params, concentration: Number) -> Params:
        """Returns the weights."""
        return weights
