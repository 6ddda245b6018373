"""A category that a classifier weighs, summed out."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lamu.families import Categorical
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, shape_of
from lamu.graphs.local import Eliminated, Local, Rest
from lamu.graphs.proposals import Independent, Proposal
from lamu.graphs.statistics import Categories
from lamu.latent.locals.encoder import encoded, first_encoder
from lamu.networks.adapted import adapted
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["Enumerated", "SummedOut"]


@record
class Enumerated(Local):
    r"""A category with a belief \(q(c \mid y)\) that a network makes of the row, and the exact sum over its values.

    \[ \log p(y) \ge \sum_c q(c \mid y) \big( \mathcal L(y, c) - \log q(c \mid y) \big) \]

    with \(\mathcal L(y, c)\) the bound of what is left at c. In a row that has its label, q is that label: the row's
    bound is \(\mathcal L(y, c)\), to which \(\alpha \log q(c \mid y)\) of the network is added so that it learns from
    labels. That term is negative, so that the sum is a bound still.

    Attributes:
        network: the classifier.
        weight: α, of a labelled row.
        given: latents that the network reads beside the data.

    Raises:
        ValueError: for a negative α.
        TypeError: when it is used on a latent that is no category.

    Source: Kingma, Rezende, Mohamed & Welling (2014), equations 6 to 9.

    Examples:
        >>> from lamu.latent import Enumerated
        >>> from lamu.networks import MLP
        >>> Enumerated(MLP((500,)), weight=0.1).weight
        0.1
    """

    network: Any
    weight: float = static(default=0.1)
    given: tuple[str, ...] = static(default=())

    random: ClassVar[bool] = True
    taught: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", adapted(self.network))
        object.__setattr__(self, "given", tuple(self.given))
        if not self.weight >= 0:
            raise ValueError(
                f"weight={self.weight!r} is negative; give what log q(c | y) of a labelled row counts, from 0"
            )

    def init(self, key: RandomKey, name: str, row: Row, at: Environment) -> Params:
        """Returns fresh weights of the classifier."""
        site = next(site for site in row.latent if site.name == name)
        if site.kind is not Categories or len(shape_of(site)) != 1:
            raise TypeError(
                f"the latent {name!r} is {site.kind.words}, which cannot be enumerated; use Amortised(network)"
            )
        return first_encoder(self.network, key, name, self.given, row, shape_of(site)[-1])

    def weighed(self) -> SummedOut:
        """Returns the exact sum, without a classifier."""
        return SummedOut()

    def proposal(self, name: str, own: Params, row: Row, at: Environment, key: Any, rest: Rest) -> Proposal:
        """Returns the classifier's belief, or the label where the row has one."""
        logits, tie = self._logits(name, own, row, at)
        return Independent({name: Categorical(jax.nn.log_softmax(logits + tie))})

    def _logits(self, name: str, own: Params, row: Row, at: Environment) -> tuple[Array, Array]:
        """Returns log q(c | y) of the network, and what the row's label adds to it."""
        logits = jax.nn.log_softmax(encoded(self.network, own, name, self.given, row, at))
        label = (
            row.evidence[name].probabilities.astype(logits.dtype) if name in row.evidence else jnp.zeros_like(logits)
        )
        return logits, label

    def eliminated(self, name: str, own: Params, row: Row, at: Environment, key: Any, rest: Rest) -> Eliminated:
        """Returns the weighted sum of the bounds at every value, and λ of all latents: of others at the likeliest."""
        logits, tie = self._logits(name, own, row, at)
        log_q = jax.nn.log_softmax(logits + tie)
        values = jnp.eye(log_q.size, dtype=log_q.dtype)
        keys = jax.random.split(key, log_q.size)
        if name in row.labelled:  # all rows have their labels: one pass of the rest of the row, not one a value
            label = jnp.argmax(tie)
            bound, others = rest(row.given(name, values[label]), at, keys[label])
            return bound + self.weight * logits[label], {**others, name: Categories(log_q)}
        bounds, others = jax.vmap(lambda value, k: rest(row.given(name, value), at, k))(values, keys)
        q = jnp.exp(log_q)
        # Values that the label excludes have q = 0 and a bound of minus infinity.
        terms = jnp.where(q > 0, q * (jnp.where(q > 0, bounds - log_q, 0.0)), 0.0)
        labelled = jnp.any(tie < 0)
        learned = jnp.where(labelled, jnp.sum(jnp.where(tie < 0, 0.0, logits)), 0.0)
        likeliest = jax.tree.map(lambda leaf: leaf[jnp.argmax(log_q)], others)
        return jnp.sum(terms) + self.weight * learned, {**likeliest, name: Categories(log_q)}


@record
class SummedOut(Local):
    r"""A category that is summed out at draws of the other latents, \(\log \sum_c e^{\mathcal L(y, c)}\).

    where L(y, c) is the log density, or the bound, of what is left at c: one pass of the rest of the row a value.

    Examples:
        >>> from lamu.latent import SummedOut
        >>> SummedOut().random
        True
    """

    random: ClassVar[bool] = True

    def eliminated(self, name: str, own: Params, row: Row, at: Environment, key: Any, rest: Rest) -> Eliminated:
        """Returns the log of the sum, and λ of all latents: of others at the likeliest value."""
        site = next(site for site in row.latent if site.name == name)
        values = jnp.eye(shape_of(site)[-1], dtype=dtype_of(at, row.known))
        keys = jax.random.split(key, len(values))
        bounds, others = jax.vmap(lambda value, k: rest(row.given(name, value), at, k))(values, keys)
        likeliest = jax.tree.map(lambda leaf: leaf[jnp.argmax(bounds)], others)
        return jax.nn.logsumexp(bounds), {**likeliest, name: Categories(jax.nn.log_softmax(bounds))}
