"""Enumeration of a small discrete support."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.expectations.estimate import ValueAndGradient
from lamu.families import Bernoulli, Binary, Categorical, NaturalParameters
from lamu.record import record, static
from lamu.typing import RandomKey

__all__ = ["Enumeration"]


@record
class Enumeration:
    r"""\(E_q[\ell] = \sum_\theta q(\theta)\, \ell(\theta)\) over every θ of a Bernoulli, Binary or Categorical: exact.

    The probability of a corner is multilinear in μ, and so is the expected loss: its derivative is a difference of two
    expectations, \(E[\ell \mid \theta_i = 1] - E[\ell \mid \theta_i = 0]\) for a coin. The cost is \(2^D\) losses, or
    the product of the numbers of categories.

    Attributes:
        most: the largest support that is enumerated.

    Raises:
        TypeError: for another belief.
        ValueError: for a larger support.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.expectations import Enumeration
        >>> from lamu.families import Bernoulli
        >>> q = Bernoulli(jnp.zeros(2))
        >>> found = Enumeration().gradient(jax.random.key(0), q, lambda theta: 4.0 * jnp.prod(theta))
        >>> float(found.value), found.gradient.values.tolist()
        (1.0, [2.0, 2.0])
    """

    most: int = static(default=65_536)

    departure = ""

    def gradient(self, key: RandomKey, belief: Any, loss: Callable[[Any], Any]) -> ValueAndGradient:
        """Returns the expected loss and its gradient in μ; the key is not used."""
        if not isinstance(belief, Bernoulli | Binary | Categorical):
            raise TypeError(
                f"Enumeration() is for Bernoulli, Binary and Categorical beliefs, not {type(belief).__name__}; use "
                "ScoreFunction()"
            )
        natural = belief.natural()
        mean, unravel = tree.ravel(belief.mean)
        corners = jnp.asarray(_corners(belief, self.most), mean.dtype)
        losses = jax.lax.map(lambda corner: jnp.asarray(loss(unravel(corner))), corners)

        def expected(values: Any) -> Any:
            # Through the whole vectors of probabilities, each of them linear in μ.
            return jnp.sum(_probabilities(belief, values, corners).astype(losses.dtype) * losses)

        value, gradient = jax.value_and_grad(expected)(belief.expectation().values)
        return ValueAndGradient(value, NaturalParameters(gradient, natural.given, natural.of))


def _corners(belief: Any, most: int) -> np.ndarray:
    """Returns every θ as a raveled row."""
    leaves = jax.tree.leaves(belief.mean)
    if isinstance(belief, Categorical):
        widths = [leaf.shape[-1] for leaf in leaves for _ in range(leaf.size // leaf.shape[-1])]
        choices = [list(np.eye(width)) for width in widths]
    else:
        low = -1.0 if isinstance(belief, Binary) else 0.0
        choices = [[np.array([low]), np.array([1.0])] for leaf in leaves for _ in range(leaf.size)]
    size = np.prod([float(len(choice)) for choice in choices])
    if size > most:
        raise ValueError(f"a support of {size:.6g} points is too large to enumerate; use ScoreFunction() or Relaxed()")
    return np.stack([np.concatenate(corner) for corner in product(*choices)])


def _probabilities(belief: Any, values: Any, corners: Any) -> Any:
    """Returns the probability of every corner, as a function of μ."""
    if isinstance(belief, Categorical):
        whole = lambda mu: jnp.concatenate([mu, 1.0 - jnp.sum(mu, axis=-1, keepdims=True)], axis=-1)
        chosen = tree.ravel(jax.tree.map(whole, values))[0]
        # One factor a member: the entry that is one. The others are one to the power of zero.
        return jnp.prod(jnp.where(corners > 0.5, chosen[None, :], jnp.ones_like(corners)), axis=1)
    mu = tree.ravel(values)[0]
    one = (1.0 + mu) / 2.0 if isinstance(belief, Binary) else mu
    return jnp.prod(jnp.where(corners > 0.5, one[None, :], 1.0 - one[None, :]), axis=1)
