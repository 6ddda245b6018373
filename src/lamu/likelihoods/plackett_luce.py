r"""Rankings: the first is chosen by its score among all, the next among those left, and so on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.likelihoods.interface import Likelihood
from lamu.record import record, static
from lamu.supports import Rankings
from lamu.typing import Array, Params, RandomKey

__all__ = ["PlackettLuce"]

_ENUMERATED = 6  # items up to which all rankings, 720, are gone through


@record
class PlackettLuce(Likelihood):
    r"""Rankings of several items by a score each: \(p(y \mid f) = \prod_i e^{f_{y_i}} / \sum_{j \ge i} e^{f_{y_j}}\).

    The targets are `[batch, items]`, each row the items 0 to items − 1, best first. Log-concave; a constant added to
    every score changes nothing. Moments, entropy and Fisher information are sums over all rankings for up to six items,
    averages over draws for more. The mean and variance are of the entries of y, item numbers; what is predicted of a
    ranking is in its draws and its density.

    Attributes:
        items: how many there are, two or more.

    Raises:
        ValueError: if there are fewer than two items.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import PlackettLuce
        >>> log_prob = PlackettLuce(3).log_prob({}, jnp.zeros((1, 3)), jnp.array([[2, 0, 1]]))
        >>> f"{jnp.exp(log_prob[0]):.4f}"
        '0.1667'
    """

    items: int = static()

    log_concave = True

    def __post_init__(self) -> None:
        if self.items < 2:
            raise ValueError(f"PlackettLuce({self.items}) has too few items; give 2 or more")

    @property
    def support(self) -> Rankings:
        """The orders of the items."""
        return Rankings(self.items)

    def check(self, y: Any) -> None:
        """Raises a ValueError unless each row is an order of the items, `[batch, items]`."""
        if np.ndim(y) != 2 or np.shape(y)[1] != self.items:
            raise ValueError(
                f"the targets have shape {np.shape(y)}; PlackettLuce({self.items}) takes [batch, {self.items}]"
            )
        self.support.check(y, self.name)

    def output_scales(self, width: int) -> tuple[str, ...]:
        return ("logits",) * width

    def outputs(self, y: Any) -> int:
        """Returns the number of items."""
        return self.items

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the log probability of the ranking in nats, `[batch]`."""
        scores = jnp.take_along_axis(f, jnp.reshape(y, f.shape).astype(jnp.int32), axis=1)
        left = jax.lax.cumlogsumexp(scores, axis=1, reverse=True)
        return jnp.sum(scores - left, axis=1)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one ranking a row, `[batch, items]`: the order of the scores with Gumbel noise."""
        return jnp.argsort(-(f + jax.random.gumbel(key, f.shape, f.dtype)), axis=1)

    def mean(self, params: Params, f: Array) -> Array:
        """Returns the mean item number at each place, `[batch, items]`."""
        return self._average(params, f, lambda f, y: y.astype(f.dtype))

    def _average(self, params: Params, f: Array, function: Callable[[Array, Array], Array]) -> Array:
        if self.items > _ENUMERATED:
            return super()._average(params, f, function)

        def add(total: Array, order: Array) -> tuple[Array, None]:
            y = jnp.broadcast_to(order[None], f.shape)
            values = function(f, y)
            mass = jnp.exp(self.log_prob(params, f, y)).reshape(-1, *[1] * (values.ndim - 1))
            return total + mass * values, None

        orders = jnp.asarray(list(itertools.permutations(range(self.items))), jnp.int32)
        shape = jax.eval_shape(lambda order: function(f, jnp.broadcast_to(order[None], f.shape)), orders[0])
        return jax.lax.scan(add, jnp.zeros(shape.shape, shape.dtype), orders)[0]
