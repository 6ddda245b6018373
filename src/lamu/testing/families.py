r"""Laws of a family of beliefs: its density, draws and mean go with each other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.testing.laws import check, close, within_errors
from lamu.typing import Belief

__all__ = ["FAMILY_LAWS", "check_family"]

_DRAWS = 4000


def _draws(belief: Belief) -> Any:
    keys = jax.random.split(jax.random.key(1), _DRAWS)
    return jax.jit(jax.vmap(belief.sample))(keys)


def draws_have_the_mean(belief: Belief) -> None:
    """The average of draws is `mean`, and draws have its structure."""
    draws = _draws(belief)
    mean = belief.mean
    assert jax.tree.structure(mean) == jax.tree.structure(draws), "sample and mean have different structures"
    for drawn, expected in zip(jax.tree.leaves(draws), jax.tree.leaves(mean), strict=True):
        within_errors(drawn, expected, "the mean of draws", 1e-4)


def draws_are_of_the_density(belief: Belief) -> None:
    r"""Stein's identities, \(E[\nabla \log q] = 0\) and \(E[\theta \nabla \log q] = -1\), over draws."""
    # For beliefs over all real numbers; one of others is asked for `draws_have_the_mean` alone.
    first = tree.ravel(belief.sample(jax.random.key(0)))[0]
    far = tree.ravel(belief.mean)[1](first + 100.0 * jnp.sign(first))
    if not np.isfinite(belief.log_prob(far)):
        return

    def scores(key: object) -> tuple[Any, Any]:
        theta, unravel = tree.ravel(belief.sample(key))
        slope = jax.grad(lambda vector: belief.log_prob(unravel(vector)))(theta)
        return slope, theta * slope

    slope, product = jax.jit(jax.vmap(scores))(jax.random.split(jax.random.key(2), _DRAWS))
    within_errors(slope, 0.0, "the mean of the gradient of log q")
    within_errors(product, -1.0, "the mean of the coordinate times the gradient of log q")


def entropy_is_the_expected_surprise(belief: Belief) -> None:
    """`entropy`, where the family has one, is the mean of −log q over draws."""
    if not hasattr(belief, "entropy"):
        return
    surprise = jax.jit(jax.vmap(lambda theta: -belief.log_prob(theta)))(_draws(belief))
    within_errors(surprise, belief.entropy(), "the mean of −log q", 1e-4)


def it_is_a_pytree(belief: Belief) -> None:
    """A belief goes through a compiled function unchanged."""
    back = jax.jit(lambda belief: belief)(belief)
    for found, due in zip(jax.tree.leaves(back), jax.tree.leaves(belief), strict=True):
        close(found, due, 0.0, "a parameter after jit")


FAMILY_LAWS = (it_is_a_pytree, draws_have_the_mean, draws_are_of_the_density, entropy_is_the_expected_surprise)


def check_family(belief: Belief) -> None:
    """Runs every law of families on one belief.

    Args:
        belief: a member of the family, with `sample(key)`, `log_prob(theta)` and `mean`, of finite variance.

    Raises:
        AssertionError: which names every broken law, and says what it found.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.operators import Diagonal
        >>> from lamu.testing import check_family
        >>> check_family(Gaussian(jnp.array([1.0, -2.0]), Diagonal(jnp.array([4.0, 0.5]))))
    """
    check(type(belief).__name__, belief, FAMILY_LAWS)
