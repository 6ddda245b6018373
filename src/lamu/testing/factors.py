r"""Laws of a factor of a graph: mass, statistics of its arguments, missing entries and predictions are consistent."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.graphs.expressions import Environment, Variable
from lamu.graphs.factor import Factor
from lamu.graphs.statistics import kind_of
from lamu.supports import Classes
from lamu.testing.laws import check, close, within_errors
from lamu.typing import Belief

__all__ = ["FACTOR_LAWS", "check_factor"]

_VALUES, _DRAWS, _COUNTS = 3, 4000, 2000


@dataclass(frozen=True)
class _Case:
    """A factor with beliefs about its arguments."""

    factor: Factor
    beliefs: dict[str, Belief]

    def at(self, *indices: int) -> Environment:
        """Returns the statistics of the arguments at values, the last index for the arguments that follow."""
        statistics = {}
        for position, (name, belief) in enumerate(self.beliefs.items()):
            index = indices[min(position, len(indices) - 1)]
            statistics[name] = kind_of(belief).of(belief.sample(jax.random.fold_in(jax.random.key(1), index)))
        return Environment(statistics)

    def log_density(self, y: Any, environment: Environment, observed: Any = None) -> Any:
        return self.factor.log_density(self.factor.statistics(y), environment, observed)

    def masses(self, environment: Environment) -> tuple[np.ndarray, np.ndarray]:
        """Returns values that cover the support, and their probabilities: a sum, or a quadrature."""
        y, weight = self._nodes()
        log = jax.jit(jax.vmap(lambda y: self.log_density(y, environment)))(jnp.asarray(y))
        return y, np.exp(np.asarray(log, float)) * weight

    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        support = self.factor.support
        if support is not None and (support.has_classes or support.discrete):
            count = support.number if isinstance(support, Classes) else 2 if support.has_classes else _COUNTS
            return np.arange(count, dtype=float), np.ones(count)
        u = np.linspace(-12.0, 12.0, 20001)
        if support is not None and support.upper == 1.0:
            y = 1 / (1 + np.exp(-u))
        else:
            y = np.sinh(u) if support is None or support.lower != 0.0 else np.exp(u)
        return y, np.gradient(y)


def density_sums_to_one(case: _Case) -> None:
    """The density integrates to one over the support, at values of the arguments."""
    for index in range(_VALUES):
        close(np.sum(case.masses(case.at(index))[1]), np.ones(()), 5e-3, "the sum of the density")


def density_is_affine_in_each_argument(case: _Case) -> None:
    """At the average of two T of an argument the log density is the average of the two."""
    if not case.factor.affine:
        return
    y, mass = case.masses(case.at(0))
    below = np.cumsum(mass) / np.sum(mass)
    some = jnp.asarray([y[np.argmax(below >= level)] for level in (0.1, 0.5, 0.9)])
    log_density = jax.jit(jax.vmap(case.log_density, (0, None)))
    for (position, name), index in itertools.product(enumerate(case.beliefs), range(1, _VALUES)):
        one, other = case.at(0), case.at(*[0] * position, index, 0)
        average = jax.tree.map(lambda a, b: (a + b) / 2, one.statistics[name], other.statistics[name])
        due = (log_density(some, one) + log_density(some, other)) / 2
        actual = log_density(some, one.having({name: average}))
        close(actual, due, 2e-4, f"the log density at an average of T of {name}", 2e-4)


def missing_entries_count_nothing(case: _Case) -> None:
    """A missing entry has the log density zero."""
    if not case.factor.misses:
        return
    y, mass = case.masses(case.at(0))
    likely = jnp.asarray(y[np.argmax(mass)])
    close(case.log_density(likely, case.at(0), jnp.asarray(False)), 0.0, 0.0, "the log density of a missing entry")
    due = case.log_density(likely, case.at(0))
    close(case.log_density(likely, case.at(0), jnp.asarray(True)), due, 1e-4, "the log density of an observed entry")


def predictions_are_of_the_density(case: _Case) -> None:
    """`predicted` has the mean and the variance of the density, and `filled` its mean, if the factor has them."""
    environment = case.at(0)
    y, mass = case.masses(environment)
    mean = np.sum(y * mass)
    if type(case.factor).predicted is not Factor.predicted:
        moments = case.factor.predicted(environment)
        close(jnp.asarray(moments[0]), mean, 1e-2, "the mean of `predicted`", 1e-3)
        close(jnp.asarray(moments[1]), np.sum((y - mean) ** 2 * mass), 2e-2, "the variance of `predicted`", 1e-3)
    if case.factor.fills:
        value = jnp.asarray(y[np.argmax(mass)])
        fill = lambda key, observed: case.factor.filled(key, value, environment, jnp.asarray(observed))
        drawn = jax.jit(jax.vmap(lambda key: fill(key, False)))(jax.random.split(jax.random.key(2), _DRAWS))
        within_errors(drawn, mean, "the mean of missing entries that `filled` draws", 1e-3)
        close(fill(jax.random.key(2), True), value, 1e-5, "an observed entry after `filled`")


FACTOR_LAWS = (
    density_sums_to_one,
    density_is_affine_in_each_argument,
    missing_entries_count_nothing,
    predictions_are_of_the_density,
)


def check_factor(factor: Callable[..., Factor], *arguments: Belief) -> None:
    r"""Runs every law of the factors of a graph, for a factor of one number.

    \(\log p(x \mid a_1, \ldots)\) must have mass one, be affine in T of each argument, leave missing entries out, and
    agree with `predicted` and `filled`. A mistake that all of them share, such as p in the place of 1 − p, is not seen.

    Args:
        factor: the function that returns the factor, as in `m.sample("y", factor(*variables))`.
        *arguments: a belief of `lamu.families` about each argument, of order one: values are drawn from it.

    Raises:
        AssertionError: names every broken law, with its values.
        ValueError: for a factor of several numbers.

    Examples:
        >>> from lamu import graphs
        >>> from lamu.families import Gamma
        >>> from lamu.testing import check_factor
        >>> check_factor(graphs.Poisson, Gamma(3.0, 2.0))
    """
    beliefs = {f"argument{i}": belief for i, belief in enumerate(arguments, 1)}
    sizes = [jnp.shape(jax.tree.leaves(belief.sample(jax.random.key(0)))[0]) for belief in arguments]
    variables = [
        Variable(name, kind_of(belief).__name__, size)
        for (name, belief), size in zip(beliefs.items(), sizes, strict=True)
    ]
    built = factor(*variables)
    if built.shape != ():
        raise ValueError(
            f"a factor of the shape {built.shape} is not checked; give a belief about one number for each argument"
        )
    check(type(built).__name__.removesuffix("Factor"), _Case(built, beliefs), FACTOR_LAWS)
