"""Runs laws and reports all broken ones together; the laws of a family of beliefs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.families.exponential import ExponentialFamily
from lamu.families.interface import IndependentDraws
from lamu.typing import Belief

__all__ = ["FAMILY_LAWS", "Inapplicable", "check", "check_family", "close", "within_errors"]


ERRORS = 5.0  # standard errors of an average over draws; one number fails by chance once in two million


class Inapplicable(Exception):
    """Raised by a law that cannot be asked of a subject."""


def check(what: str, subject: object, laws: Iterable[Callable[[Any], None]]) -> None:
    """Runs every law on the subject."""
    broken = []
    for law in laws:
        try:
            law(subject)
        except Inapplicable as error:
            raise ValueError(f"{what} {error}") from error
        except Exception as error:  # any other error breaks the law
            told = " ".join(str(error).split())
            broken.append(f"{law.__name__}: {type(error).__name__}: {told}")
    if broken:
        laws_broken = f"{len(broken)} law{'s' * (len(broken) > 1)}"
        raise AssertionError(f"{what} breaks {laws_broken}:\n  " + "\n  ".join(broken))


def close(actual: object, expected: object, rtol: float, what: str, atol: float = 0.0) -> None:
    """Raises an AssertionError unless two arrays agree."""
    actual, expected = np.asarray(actual, float), np.asarray(expected, float)
    assert actual.shape == expected.shape, f"{what} has the shape {actual.shape} where {expected.shape} is due"
    bad = ~np.isclose(actual, expected, rtol=rtol, atol=atol)
    if bad.any():
        raise AssertionError(f"{what} is {actual[bad].ravel()[0]:.6g} where {expected[bad].ravel()[0]:.6g} is due")


def within_errors(draws: object, expected: object, what: str, slack: float = 0.0) -> None:
    """Raises an AssertionError unless the mean of independent draws is as expected, within five standard errors."""
    draws = np.asarray(draws, float)
    mean, error = draws.mean(axis=0), draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    expected = np.broadcast_to(np.asarray(expected, float), mean.shape)
    bad = ~(np.abs(mean - expected) <= ERRORS * error + slack)
    if bad.any():
        where = np.flatnonzero(bad.ravel())[0]
        raise AssertionError(
            f"{what} is {mean.ravel()[where]:.4g} over {len(draws)} draws, with a standard error of "
            f"{error.ravel()[where]:.2g}, where {expected.ravel()[where]:.4g} is due"
        )


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


def draws_have_the_variance(belief: Belief) -> None:
    """The squared distances of draws from `mean` average to `marginal_variance`, if the family has a formula for it."""
    method = getattr(type(belief), "marginal_variance", IndependentDraws.marginal_variance)
    formulas = getattr(belief, "formulas", None)
    if method is IndependentDraws.marginal_variance or (formulas is not None and formulas.variance is None):
        return
    squares = jax.tree.map(lambda drawn, mean: (drawn - mean[None]) ** 2, _draws(belief), belief.mean)
    for square, variance in zip(jax.tree.leaves(squares), jax.tree.leaves(belief.marginal_variance()), strict=True):
        within_errors(square, variance, "the variance of draws", 1e-4)


def _is_discrete_or_sums_to_one(draws: np.ndarray) -> bool:
    integers = np.array_equal(draws, np.round(draws))
    return integers or (draws.ndim > 1 and draws.shape[-1] > 1 and np.allclose(draws.sum(axis=-1), 1.0, atol=1e-4))


def _real_coordinates(belief: Belief, draws: Any) -> tuple[jax.Array, Any] | None:
    """Returns draws in real coordinates u, `[draws, numbers]`, and log q of one u; None for other supports."""
    # The logarithm of positive numbers, and the logit of numbers between zero and one.
    if any(_is_discrete_or_sums_to_one(np.asarray(leaf)) for leaf in jax.tree.leaves(draws)):
        return None
    unravel = tree.ravel(belief.sample(jax.random.key(0)))[1]
    theta = jax.vmap(lambda draw: tree.ravel(draw)[0])(draws)
    positive, below_one = jnp.all(theta > 0, axis=0), jnp.all((theta > 0) & (theta < 1), axis=0)

    def real(theta: Any) -> Any:
        safe = jnp.where(positive, theta, 1.0)
        return jnp.where(below_one, jnp.log(safe) - jnp.log1p(-jnp.where(below_one, theta, 0.5)), jnp.log(safe))

    def log_density(u: Any) -> Any:
        number = jnp.where(below_one, jax.nn.sigmoid(u), jnp.where(positive, jnp.exp(jnp.where(positive, u, 0.0)), u))
        volume = jnp.where(below_one, jax.nn.log_sigmoid(u) + jax.nn.log_sigmoid(-u), jnp.where(positive, u, 0.0))
        return belief.log_prob(unravel(number)) + jnp.sum(volume)

    return jax.vmap(lambda theta: jnp.where(positive, real(theta), theta))(theta), log_density


def draws_are_of_the_density(belief: Belief) -> None:
    r"""Stein's identities, \(E[\nabla \log q] = 0\) and \(E[u \nabla \log q] = -1\), over draws."""
    # For vectors that sum to one only the means of draws and of their statistics are tested.
    coordinates = _real_coordinates(belief, _draws(belief))
    if coordinates is None:
        return
    u, log_density = coordinates
    slope = jax.jit(jax.vmap(jax.grad(log_density)))(u)
    within_errors(slope, 0.0, "the mean of the gradient of log q")
    within_errors(u * slope, -1.0, "the mean of the coordinate times the gradient of log q")


_CENTRES, _BANDWIDTH, _MOST_NUMBERS, _MOST_VALUES = 500, 0.5, 3, 100


def density_has_mass_one(belief: Belief) -> None:
    r"""\(\int q = 1\), by importance weights under normal kernels around draws; of integers by the frequencies."""
    # Beliefs about more than three numbers are not tested, and vectors that sum to one.
    draws = _draws(belief)
    coordinates = _real_coordinates(belief, draws)
    if coordinates is None:
        _frequencies_are_probabilities(belief, draws)
        return
    u, log_density = coordinates
    if u.shape[1] > _MOST_NUMBERS:
        return
    root = _BANDWIDTH * jnp.linalg.cholesky(jnp.atleast_2d(jnp.cov(u, rowvar=False)))
    centres, noise = u[:_CENTRES], jax.random.normal(jax.random.key(2), u.shape, u.dtype)
    proposals = jnp.resize(centres, u.shape) + noise @ root.T
    constant = jnp.log(len(centres)) + jnp.sum(jnp.log(jnp.diagonal(root))) + u.shape[1] * jnp.log(2 * jnp.pi) / 2

    def weight(u: Any) -> Any:
        away = jax.scipy.linalg.solve_triangular(root, (u[None] - centres).T, lower=True)
        return jnp.exp(log_density(u) + constant - jax.nn.logsumexp(-jnp.sum(away**2, axis=0) / 2))

    within_errors(jax.jit(jax.vmap(weight))(proposals), 1.0, "the integral of the density", 0.02)


def _frequencies_are_probabilities(belief: Belief, draws: Any) -> None:
    """Values of integer draws are as frequent as `log_prob` says, if they are few."""
    rows = np.asarray(jax.vmap(lambda draw: tree.ravel(draw)[0])(draws))
    _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    if len(first) > _MOST_VALUES:
        return
    for value, index in enumerate(first):
        probability = np.exp(belief.log_prob(jax.tree.map(lambda leaf, i=index: leaf[i], draws)))
        within_errors(which.ravel() == value, probability, f"the frequency of the value {rows[index]}", 1e-3)


def statistics_have_the_expectation(belief: Belief) -> None:
    r"""The average of T(θ) over draws is \(\mu = \nabla A(\lambda)\), for an exponential family."""
    if not isinstance(belief, ExponentialFamily):
        return
    drawn = jax.jit(jax.vmap(belief.statistics))(_draws(belief))
    for each, due in zip(jax.tree.leaves(drawn), jax.tree.leaves(belief.expectation().values), strict=True):
        within_errors(each, due, "the mean of a sufficient statistic of draws", 1e-4)


def parameters_convert_back(belief: Belief) -> None:
    """λ → textbook → λ and μ → textbook → λ return the same λ, for an exponential family."""
    if not isinstance(belief, ExponentialFamily):
        return
    natural, mu = belief.natural(), belief.expectation()
    for words, parameters in {"λ → textbook parameters": natural, "μ → textbook parameters": mu}.items():
        try:
            back = parameters.family().to_natural()
        except NotImplementedError:  # no inverse of μ
            continue
        for after, due in zip(jax.tree.leaves(back), jax.tree.leaves(natural.values), strict=True):
            close(after, due, 1e-2, f"λ after {words} → λ", 1e-3)


def entropy_is_the_expected_surprise(belief: Belief) -> None:
    """`entropy`, if the family has one, is the mean of −log q over draws."""
    if not hasattr(belief, "entropy"):
        return
    surprise = jax.jit(jax.vmap(lambda theta: -belief.log_prob(theta)))(_draws(belief))
    within_errors(surprise, belief.entropy(), "the mean of −log q", 1e-4)


def it_is_a_pytree(belief: Belief) -> None:
    """A belief goes through a compiled function unchanged."""
    back = jax.jit(lambda belief: belief)(belief)
    for leaf, due in zip(jax.tree.leaves(back), jax.tree.leaves(belief), strict=True):
        close(leaf, due, 0.0, "a parameter after jit")


FAMILY_LAWS = (
    it_is_a_pytree,
    draws_have_the_mean,
    draws_have_the_variance,
    draws_are_of_the_density,
    density_has_mass_one,
    entropy_is_the_expected_surprise,
    statistics_have_the_expectation,
    parameters_convert_back,
)


def check_family(belief: Belief) -> None:
    """Runs every law of families on one belief.

    Args:
        belief: a member of the family, with `sample(key)`, `log_prob(theta)` and `mean`, of finite variance.

    Raises:
        AssertionError: names every broken law, with its values.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.operators import Diagonal
        >>> from lamu.testing import check_family
        >>> check_family(Gaussian(jnp.array([1.0, -2.0]), Diagonal(jnp.array([4.0, 0.5]))))
    """
    check(type(belief).__name__, belief, FAMILY_LAWS)
