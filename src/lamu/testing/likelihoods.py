r"""Laws of a likelihood: density, moments, draws, distribution function and information are consistent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from lamu.likelihoods import Likelihood
from lamu.supports import Classes, Rankings, value_of
from lamu.testing.laws import ERRORS, Inapplicable, check, close, within_errors
from lamu.typing import Array, Params

__all__ = ["LIKELIHOOD_LAWS", "LikelihoodCase", "check_likelihood"]

_DRAWS = 4000
_AVERAGED = ERRORS / math.sqrt(1024)  # the tolerance of methods that average over draws, in standard deviations
_TIGHT = 2e-3


@dataclass(frozen=True)
class LikelihoodCase:
    """A likelihood at some outputs, with a grid of targets to integrate its density.

    Attributes:
        likelihood: the likelihood.
        f: outputs `[batch, outputs]`.
        params: its dispersions.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Bernoulli
        >>> from lamu.testing import LikelihoodCase
        >>> LikelihoodCase(Bernoulli(), jnp.zeros((1, 1)), {}).nodes[0].tolist()
        [[0], [1]]
    """

    likelihood: Likelihood
    f: Array
    params: Params

    @classmethod
    def of(cls, likelihood: Likelihood, f: object = None, params: Params | None = None) -> LikelihoodCase:
        """Returns a likelihood at given outputs (three rows around zero by default) and dispersions (`init`'s)."""
        support = likelihood.support
        y = support.zeros(3) if support.has_classes or support.discrete else jnp.asarray([0.2, 0.5, 0.7])
        outputs = likelihood.outputs(y)
        if f is None:
            f = jnp.asarray(np.random.default_rng(0).normal(scale=0.5, size=(3, outputs)))
        f = jnp.asarray(f, jnp.result_type(float))
        params = likelihood.init(y) if params is None else params
        return cls(likelihood, f, params)

    @cached_property
    def nodes(self) -> tuple[Array, Array]:
        """Targets that cover the support and their weights, `[nodes, batch]`: one, or a quadrature's weights."""
        support, rows = self.likelihood.support, self.f.shape[0]
        if support.has_classes:
            count = support.number if isinstance(support, Classes) else 2
            y = np.broadcast_to(np.arange(count)[:, None], (count, rows))
            return jnp.asarray(y), jnp.ones(y.shape, self.f.dtype)
        draws = np.asarray(self.draws, float)
        if draws.ndim != 2 or isinstance(support, Rankings):
            raise Inapplicable("draws several values a row, and laws integrate over one; check its parts one by one")
        low, high = draws.min(axis=0), draws.max(axis=0)
        room = 3 * (high - low) + 1e-3
        if support.discrete:
            count = int(min((high + room).max(), support.upper)) + 1
            y = np.broadcast_to(np.arange(count, dtype=float)[:, None], (count, rows))
            return jnp.asarray(y, self.f.dtype), jnp.ones(y.shape, self.f.dtype)
        if support.circular:
            y = np.broadcast_to(np.linspace(-np.pi, np.pi, 2001)[:-1, None], (2000, rows))
            return jnp.asarray(y, self.f.dtype), jnp.full(y.shape, 2 * np.pi / 2000, self.f.dtype)
        # A grid that is fine within the range of the draws and extends to three times that range.
        z = np.sinh(np.linspace(-9.0, 9.0, 20001))[:, None]
        centre, spread = np.median(draws, axis=0), np.quantile(draws, 0.75, axis=0) - np.quantile(draws, 0.25, axis=0)
        y = centre + z * np.maximum(spread, 1e-6) / 50
        y = y[((y > low - room) & (y < high + room)).any(axis=1)]
        inside = np.clip(y, support.lower + 1e-7 * (support.lower > -math.inf), support.upper - 1e-7)
        return jnp.asarray(inside, self.f.dtype), jnp.asarray(np.gradient(inside, axis=0), self.f.dtype)

    @cached_property
    def draws(self) -> Array:
        """Draws of the targets, `[draws, batch]`."""
        keys = jax.random.split(jax.random.key(1), _DRAWS)
        return jax.jit(jax.vmap(lambda key: self.likelihood.sample(key, self.params, self.f)))(keys)

    @cached_property
    def log_densities(self) -> Array:
        """The log density of every node, `[nodes, batch]`."""
        return jax.jit(jax.vmap(lambda y: self.likelihood.log_prob(self.params, self.f, y)))(self.nodes[0])

    @cached_property
    def masses(self) -> Array:
        """The probability of every node, `[nodes, batch]`, which sums to one."""
        return jnp.exp(self.log_densities) * self.nodes[1]

    def average(self, values: Array) -> Array:
        """Returns the expectation of values `[nodes, batch, ...]`."""
        shape = (*self.masses.shape, *[1] * (values.ndim - 2))
        return jnp.sum(self.masses.reshape(shape) * values, axis=0)

    def tolerance(self, *methods: str) -> float:
        """Returns the tolerance of methods: inherited ones are averages over 1,024 draws."""
        mine = type(self.likelihood)
        own = mine.distribution is not Likelihood.distribution
        inherited = any(getattr(mine, name) is getattr(Likelihood, name) for name in methods)
        exact = own and not {"information", "entropy", "cdf"} & set(methods)  # NumPyro lacks some formulas for these
        return _AVERAGED if inherited and not exact else _TIGHT


def shapes_and_precisions_hold(case: LikelihoodCase) -> None:
    """Every method keeps the shapes and the dtype of f, and gives the same values when compiled."""
    likelihood, params = case.likelihood, case.params
    y = value_of(case.draws[0])
    for dtype in (jnp.float32, case.f.dtype):
        f = case.f.astype(dtype)
        cast = jax.tree.map(lambda leaf, dtype=dtype: leaf.astype(dtype), params)
        value = likelihood.log_prob(cast, f, y)
        assert value.shape == f.shape[:1], f"log_prob has the shape {value.shape}, not {f.shape[:1]}"
        assert value.dtype == dtype, f"log_prob of {dtype} is {value.dtype}"
        close(jax.jit(likelihood.log_prob)(cast, f, y), value, 1e-4, "log_prob, compiled,", 1e-5)
        mean, variance, information = (
            jax.jit(method)(cast, f) for method in (likelihood.mean, likelihood.variance, likelihood.information)
        )
        assert mean.dtype == variance.dtype == dtype, f"mean and variance of {dtype} are {mean.dtype}, {variance.dtype}"
        assert mean.shape == variance.shape, f"mean has the shape {mean.shape} and variance {variance.shape}"
        due = likelihood.support.shape(mean.shape)
        assert np.shape(y) == due, f"sample has the shape {np.shape(y)} where the mean says {due}"
        due = (f.shape[0], f.shape[1], f.shape[1])
        assert information.shape == due, f"information has the shape {information.shape}, not {due}"


def a_row_depends_on_itself_alone(case: LikelihoodCase) -> None:
    """The log density of a row does not depend on other rows."""
    y = value_of(case.draws[0])
    together = case.likelihood.log_prob(case.params, case.f, y)
    alone = [case.likelihood.log_prob(case.params, case.f[i : i + 1], y[i : i + 1])[0] for i in range(len(case.f))]
    close(jnp.stack(alone), together, 1e-4, "log_prob of a row alone", 1e-5)


def density_sums_to_one(case: LikelihoodCase) -> None:
    """The density integrates to one over the support, for every row."""
    close(jnp.sum(case.masses, axis=0), np.ones(len(case.f)), 5e-3, "the sum of the density")


def mean_and_variance_are_moments(case: LikelihoodCase) -> None:
    """`mean` and `variance` are those of the density."""
    if case.likelihood.support.circular:
        return
    mean_of_likelihood = jax.jit(case.likelihood.mean)(case.params, case.f)
    indicators = jax.vmap(lambda y: case.likelihood.support.indicators(y, mean_of_likelihood))(case.nodes[0])
    mean = case.average(indicators)
    variance = case.average((indicators - mean[None]) ** 2)
    tolerance, spread = case.tolerance("mean"), np.sqrt(np.asarray(variance)) + 1e-6
    close(mean_of_likelihood / spread, np.asarray(mean) / spread, tolerance, "mean", tolerance)
    tolerance = 4 * case.tolerance("variance")
    close(jax.jit(case.likelihood.variance)(case.params, case.f), variance, tolerance, "variance", 1e-6)


def draws_have_the_moments(case: LikelihoodCase) -> None:
    """Draws are in the support, depend on key and row, and have the density's mean and variance."""
    likelihood, draws = case.likelihood, case.draws
    likelihood.support.check(np.asarray(draws).reshape(-1, *draws.shape[2:]), "draws that are in the support: it")
    mean_of_likelihood = jax.jit(likelihood.mean)(case.params, case.f)
    values = jax.vmap(lambda y: likelihood.support.indicators(y, mean_of_likelihood))(draws)
    if not likelihood.support.circular:
        indicators = jax.vmap(lambda y: likelihood.support.indicators(y, mean_of_likelihood))(case.nodes[0])
        mean = case.average(indicators)
        within_errors(values, mean, "the mean of draws", 1e-3)
        second = case.average((indicators - mean[None]) ** 2)
        within_errors((values - mean[None]) ** 2, second, "the variance of draws", 5e-3 * float(jnp.max(second)))
    flat = np.asarray(values, float).reshape(_DRAWS, len(case.f), -1)[..., 0]
    if len(case.f) > 1 and (flat.std(axis=0) > 0).all():
        correlation = np.corrcoef(flat.T) - np.eye(flat.shape[1])
        assert np.abs(correlation).max() < ERRORS / np.sqrt(_DRAWS), "rows are drawn with the same noise"


def cdf_is_the_sum_of_the_density(case: LikelihoodCase) -> None:
    """P(Y ≤ y) is the integral of the density up to y."""
    support = case.likelihood.support
    if support.has_classes or not support.ordered:
        return
    y, masses = case.nodes[0], np.asarray(case.masses, float)
    # In a quadrature half of a node's mass is below the node.
    summed = np.cumsum(masses, axis=0) - (0.0 if support.discrete else masses / 2)
    some = np.linspace(0, len(y) - 1, 41).astype(int)
    # One program, as of the other methods: op by op, five checks used up the memory maps that a process may have.
    cdf = jax.jit(lambda nodes: jax.lax.map(lambda y: case.likelihood.cdf(case.params, case.f, y), nodes))(y[some])
    tolerance = max(case.tolerance("cdf"), 5e-3)
    close(cdf, summed[some], 0.0, "cdf", tolerance)


def entropy_is_the_expected_surprise(case: LikelihoodCase) -> None:
    """`entropy` is E[−log p]."""
    logs = jnp.where(case.masses > 0, case.log_densities, 0.0)
    expected = -case.average(logs)
    spread = np.sqrt(np.asarray(case.average((logs + expected[None]) ** 2)))
    tolerance = case.tolerance("entropy")
    close(
        jax.jit(case.likelihood.entropy)(case.params, case.f) / (1 + spread),
        expected / (1 + spread),
        5e-3,
        "entropy",
        tolerance,
    )


def information_is_the_variance_of_the_score(case: LikelihoodCase) -> None:
    """The score has the mean zero and the second moment `information`, which tests sign and scale of derivatives."""
    log_prob = lambda f, y: case.likelihood.log_prob(case.params, f[None], y[None])[0]
    score = jax.jit(jax.vmap(jax.vmap(jax.grad(log_prob)), (None, 0)))(case.f, case.nodes[0])
    score = jnp.where(case.masses[..., None] > 0, score, 0.0)
    expected = case.average(score[..., :, None] * score[..., None, :])
    size = np.sqrt(np.asarray(jnp.einsum("bkk->b", expected)))[:, None] + 1e-6
    close(case.average(score) / size, np.zeros(case.f.shape), 0.0, "the mean of the score", 1e-2)
    # The square of the score has a relative standard deviation of about 1.4, and more for heavy tails.
    tolerance = 3 * case.tolerance("information")
    scale = (size**2)[:, None]
    close(
        jax.jit(case.likelihood.information)(case.params, case.f) / scale,
        expected / scale,
        tolerance,
        "information",
        tolerance,
    )


def log_density_is_concave_where_claimed(case: LikelihoodCase) -> None:
    """With `log_concave`, no second derivative of log p in f is positive, at the outputs and two to either side."""
    likelihood = case.likelihood
    if not likelihood.log_concave:
        return
    log_prob = lambda f, y: likelihood.log_prob(case.params, f[None], y[None])[0]
    hessian = jax.jit(jax.vmap(jax.vmap(jax.hessian(log_prob)), (None, 0)))
    y = case.nodes[0][np.linspace(0, len(case.nodes[0]) - 1, 41).astype(int)]
    for shift in (-2.0, 0.0, 2.0):
        second = np.asarray(hessian(case.f + shift, y), float)
        second = second[np.isfinite(second).all(axis=(2, 3))]
        largest = np.linalg.eigvalsh(second).max(axis=1, initial=-math.inf)
        size = 1.0 + np.abs(second).max(axis=(1, 2), initial=0.0)
        assert np.all(largest <= _TIGHT * size), (
            f"log_concave is claimed, and the second derivative of log_prob in f is {largest.max():.3g} at outputs "
            f"{shift:+g} from those of the case"
        )


def dispersions_have_a_prior_and_a_slope(case: LikelihoodCase) -> None:
    """Dispersions are floating-point leaves with a finite log prior, gradient and information."""
    likelihood, params = case.likelihood, case.params
    assert jnp.shape(likelihood.log_prior(params)) == (), "log_prior is not a scalar"
    information = likelihood.dispersion_information(params)
    assert jax.tree.map(jnp.shape, information) == jax.tree.map(jnp.shape, params), "dispersion_information differs"
    loss = lambda params: jnp.sum(likelihood.log_prob(params, case.f, value_of(case.draws[0])))
    for path, leaf in jax.tree.leaves_with_path(jax.grad(loss)(params)):
        assert np.isfinite(leaf).all(), f"the gradient in {jax.tree_util.keystr(path)} is not finite"


def far_outputs_stay_finite(case: LikelihoodCase) -> None:
    """At outputs of ±30 in float32 the density of a typical target has a finite gradient."""
    y = value_of(case.draws[0])
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), case.params)
    for far in (30.0, -30.0):
        f = jnp.full(case.f.shape, far, jnp.float32).at[:, 1:].set(0.0)
        slope = jax.grad(lambda f: jnp.sum(case.likelihood.log_prob(params, f, y)))(f)
        assert np.isfinite(slope).all(), f"the gradient at f = {far} is not finite"


def strange_targets_are_refused(case: LikelihoodCase) -> None:
    """NaN in the targets raises a ValueError that names the row."""
    y = np.array(value_of(case.draws[0]), float)
    y[-1] = np.nan
    try:
        case.likelihood.check(y)
    except ValueError:
        return
    raise AssertionError(f"check() takes NaN in row {len(y) - 1}")


LIKELIHOOD_LAWS = (
    shapes_and_precisions_hold,
    a_row_depends_on_itself_alone,
    density_sums_to_one,
    mean_and_variance_are_moments,
    draws_have_the_moments,
    cdf_is_the_sum_of_the_density,
    entropy_is_the_expected_surprise,
    information_is_the_variance_of_the_score,
    log_density_is_concave_where_claimed,
    dispersions_have_a_prior_and_a_slope,
    far_outputs_stay_finite,
    strange_targets_are_refused,
)

# At dispersions other than those of `init`, at which a wrong sign of a logit, for instance, makes no difference.
_AT_OTHER_DISPERSIONS = (
    density_sums_to_one,
    mean_and_variance_are_moments,
    draws_have_the_moments,
    cdf_is_the_sum_of_the_density,
    information_is_the_variance_of_the_score,
)
_ASIDE = 0.5


def check_likelihood(likelihood: Likelihood, f: object = None, params: Params | None = None) -> None:
    """Runs every law of likelihoods.

    The density is integrated over the support, so that a row's target must be one value.

    Args:
        likelihood: the likelihood, its dispersions fixed or learned.
        f: outputs `[batch, outputs]`; three rows around zero where None.
        params: dispersions; where None those of `init` for three targets of the support, and for density, moments,
            draws, distribution function and information those plus a half, too.

    Raises:
        AssertionError: names every broken law, with its values.
        ValueError: for a likelihood of several values a row.

    Examples:
        >>> import lamu
        >>> from lamu.testing import check_likelihood
        >>> check_likelihood(lamu.likelihoods.Bernoulli())
    """
    case = LikelihoodCase.of(likelihood, f, params)
    check(likelihood.name, case, LIKELIHOOD_LAWS)
    if params is None and jax.tree.leaves(case.params):
        other = jax.tree.map(lambda leaf: leaf + _ASIDE, case.params)
        name = f"{likelihood.name} at the dispersions of init plus {_ASIDE}"
        check(name, LikelihoodCase.of(likelihood, f, other), _AT_OTHER_DISPERSIONS)
