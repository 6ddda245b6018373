"""Predictives of NumPyro programs at new arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp, xlogy
from numpyro.distributions import constraints

from lamu import supports
from lamu.base.compile_once import lenient
from lamu.convergence import sound_average
from lamu.families.interface import finite_draws
from lamu.predictives.interface import Predictive, Prepared
from lamu.predictives.lazy import PredictiveRule
from lamu.predictives.sampled import require_room
from lamu.programs.conjugacy import plain
from lamu.programs.density import LogJoint
from lamu.programs.simulation import ProgramQuery, log_densities, shared_categories, simulated
from lamu.record import record, static
from lamu.supports import Support
from lamu.typing import Array, Belief, Inputs, Number, RandomKey, Rows, State, Targets

__all__ = ["DrawnSite", "ProgramPredictive", "ProgramRule"]

_DRAWS = 4096  # total draws of a site whose quantiles have no closed form
_SUPPORTS: tuple[tuple[Any, Support], ...] = (
    (constraints.boolean, supports.TwoClasses()),
    (constraints.nonnegative, supports.PositiveReal(zero=True)),
    (constraints.positive, supports.PositiveReal()),
    (constraints.unit_interval, supports.Interval(0.0, 1.0)),
    (constraints.circular, supports.Circle()),
)


@record
class DrawnSite(Predictive):
    r"""One site of a program, \(p(y) = \frac1S \sum_s p(y \mid \theta_s)\), with the distribution of each draw."""

    # Other sites that the site's distribution depends on (an earlier site, a category) are drawn with θ.

    name: str = static()
    values: Any  # a draw of the site at each draw of θ, `[S, ...]`
    law: Any  # NumPyro's distribution of each draw, leaves `[S, ...]`; None for a deterministic site
    source: Any  # the `ProgramPredictive`
    key: Any  # of further draws

    @property
    def support(self) -> Support:
        if self.law is None:
            return supports.Real()
        if self._has_classes:
            return supports.Classes(self._probabilities.shape[-1])
        fallback, own = supports.Counts() if self._whole else supports.Real(), plain(self.law.support)
        return next((support for constraint, support in _SUPPORTS if constraint is own), fallback)

    @property
    def mean(self) -> Array:
        return jnp.mean(self._means, axis=0)

    @property
    def variance(self) -> Array:
        if self._has_classes:
            p = self.mean
            return p * (1.0 - p)
        return self.aleatoric_variance + jnp.var(self._means, axis=0)

    @property
    def aleatoric_variance(self) -> Array:
        """The average over draws of the distribution's variance."""
        return jnp.mean(self._variances, axis=0)

    @property
    def aleatoric(self) -> Array:
        if not self.support.has_classes:
            return self.aleatoric_variance
        return jnp.mean(_entropy(self._means, self._has_classes), axis=0)

    @property
    def epistemic(self) -> Array:
        if not self.support.has_classes:
            return jnp.var(self._means, axis=0)
        return jnp.maximum(_entropy(self.mean, self._has_classes) - self.aleatoric, 0.0)

    def log_prob(self, y: Targets) -> Array:
        # Returns the log density of each row; for a site without rows the joint one, `[1]`.
        if self.law is None:
            raise TypeError(f"the site {self.name!r} is deterministic and has no density; ask its draws")
        return self.source.log_prob({self.name: y})

    def cdf(self, y: Targets) -> Array:
        if self._has_cdf:
            return jnp.mean(self._of_laws(lambda law: law.cdf(jnp.asarray(y))), axis=0)
        with lenient():
            return jnp.mean(self._pooled <= jnp.asarray(y)[None], axis=0, dtype=jnp.result_type(float))

    def quantile(self, probability: Number) -> Array:
        # By bisection where every draw has a distribution function, else from draws.
        if self.support.ordered and self._has_cdf and bool(jnp.all(jnp.isfinite(self.mean + self.variance))):
            return super().quantile(probability)
        if not self.support.ordered:
            return super().quantile(probability)  # raises the error
        return jnp.quantile(self._pooled, probability, axis=0, method="nearest" if self._whole else "linear")

    def sample(self, key: RandomKey, n: int, first: object = 0) -> Array:
        return self.source.draws_of(key, n)[self.name][0]

    @property
    def _whole(self) -> bool:
        return not jnp.issubdtype(self.values.dtype, jnp.floating)

    @property
    def _has_classes(self) -> bool:
        return self.law is not None and hasattr(self.law, "probs") and _is_categorical(self.law)

    @cached_property
    def _probabilities(self) -> Array:
        return self._of_laws(lambda law: law.probs)

    @cached_property
    def _means(self) -> Array:
        """The mean of each draw's distribution; for classes their probabilities."""
        if self.law is None:
            return jnp.asarray(self.values, jnp.result_type(float, self.values.dtype))
        if self._has_classes:
            return jnp.broadcast_to(self._probabilities, (*self.values.shape, self._probabilities.shape[-1]))
        return self._moment(lambda law: law.mean, lambda draws: jnp.mean(draws, axis=0))

    @cached_property
    def _variances(self) -> Array:
        if self.law is None:
            return jnp.zeros_like(self._means)
        return self._moment(lambda law: law.variance, lambda draws: jnp.var(draws, axis=0))

    def _moment(self, exact: Callable[[Any], Any], of_draws: Callable[[Array], Array]) -> Array:
        try:
            moment = self._of_laws(exact)
        except (NotImplementedError, AttributeError):  # NumPyro's errors without a closed form
            moment = of_draws(jnp.asarray(self._each, jnp.result_type(float)))
        dtype = jnp.result_type(float) if self._whole else self.values.dtype
        return jnp.broadcast_to(moment, self.values.shape).astype(dtype)

    @cached_property
    def _has_cdf(self) -> bool:
        if self.law is None or self._has_classes:
            return False
        try:
            jax.eval_shape(lambda: self._of_laws(lambda law: law.cdf(jnp.zeros(self.values.shape[1:]))))
        # No closed form; or a distribution over vectors, whose `cdf` takes no numbers of its shape.
        except (NotImplementedError, AttributeError, TypeError, ValueError):
            return False
        return True

    @cached_property
    def _each(self) -> Array:
        """Draws from the distribution of each draw of θ, `[draws, S, ...]`."""
        count = max(1, _DRAWS // len(self.values))
        keys = jax.random.split(jax.random.clone(self.key), len(self.values))
        with lenient():
            draws = jax.vmap(lambda law, key: law.sample(key, (count,)))(self.law, keys)
        return jnp.moveaxis(draws, 1, 0)

    @cached_property
    def _pooled(self) -> Array:
        """Draws of the site, along a leading axis."""
        if self.law is None or self.law.event_shape:
            return self.values
        return self._each.reshape(-1, *self.values.shape[1:])

    def _of_laws(self, function: Callable[[Any], Any]) -> Array:
        with lenient():
            return jax.vmap(function)(self.law)


def _is_categorical(law: Any) -> bool:
    inner = law
    while hasattr(inner, "base_dist"):
        inner = inner.base_dist
    return hasattr(inner, "probs") and inner.is_discrete and not inner.event_shape and _lists(inner)


def _lists(law: Any) -> bool:
    """Whether a distribution is over categories, not counts."""
    return type(law).__name__ in ("CategoricalProbs", "CategoricalLogits", "OrderedLogistic")


def _entropy(p: Array, classes: bool) -> Array:
    p = p if classes else jnp.stack([p, 1.0 - p], axis=-1)
    return -jnp.sum(xlogy(p, p), axis=-1)


@record
class ProgramPredictive(Predictive):
    """The sites of a program at new arguments, by draws of θ.

    Its members are about the observed sites that are not given: an array for one site, mappings by name for several.
    Where there are none they are about the deterministic sites.

    Attributes:
        joint: the program.
        query: its arguments, and the sites to draw.
        theta: draws of the latent sites, along a leading axis.
        key: for the draws given θ.

    Examples:
        >>> import jax.numpy as jnp, lamu, numpyro, numpyro.distributions as dist
        >>> def program(X, y):
        ...     w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        ...     line = numpyro.deterministic("line", X * w)
        ...     with numpyro.plate("rows", len(y)):
        ...         numpyro.sample("y", dist.Normal(line, 1.0), obs=y)
        >>> target = lamu.from_numpyro(program, {"X": jnp.array([1.0, 2.0]), "y": jnp.array([1.0, 2.0])}, rows="rows")
        >>> posterior = lamu.fit(target, None, lamu.algorithms.vmp()).posterior
        >>> pred = posterior.predict({"X": jnp.array([0.0, 1.0, 2.0])}, samples=100)
        >>> pred.mean.shape, pred.sites["line"].std.shape, pred.draws["y"].shape
        ((3,), (3,), (100, 3))
    """

    joint: LogJoint
    query: ProgramQuery
    theta: Any
    key: Any

    @cached_property
    def sites(self) -> dict[str, DrawnSite]:
        """All drawn or derived sites by name: observed sites, new latents, deterministic sites."""
        simulated_sites = simulated(self.joint, self.query, self.theta, self._keys(self._count))
        keys = jax.random.split(jax.random.fold_in(jax.random.clone(self.key), 1), len(simulated_sites))
        return {
            name: DrawnSite(name, value, law, self, key)
            for (name, (value, law)), key in zip(simulated_sites.items(), keys, strict=True)
        }

    @property
    def draws(self) -> dict[str, Array]:
        """A draw of each site at each draw of θ by name, as `numpyro.infer.Predictive` returns them."""
        return {name: site.values for name, site in self.sites.items()}

    def draws_of(self, key: RandomKey, n: int) -> dict[str, Any]:
        """Returns n draws of every site, each with its distribution, by name."""
        of_theta, of_sites = jax.random.split(key)
        places = jax.random.randint(of_theta, (n,), 0, self._count)
        theta = jax.tree.map(lambda leaf: leaf[places], self.theta)
        return simulated(self.joint, self.query, theta, jax.random.split(of_sites, n))

    @property
    def _count(self) -> int:
        return len(jax.tree.leaves(self.theta)[0])

    def _keys(self, count: int) -> Any:
        # As in NumPyro, which does not split the key for one draw.
        key = jax.random.clone(self.key)
        return jax.random.split(key, count) if count > 1 else key[None]

    @property
    def _asked(self) -> dict[str, DrawnSite]:
        names = self.query.asked or self.query.derived
        if not names:
            raise ValueError("the program has neither sites that it observes nor deterministic ones; ask the posterior")
        return {name: self.sites[name] for name in names}

    def _answer(self, question: Callable[[DrawnSite], Any]) -> Any:
        answers = {name: question(site) for name, site in self._asked.items()}
        return answers if len(answers) > 1 else next(iter(answers.values()))

    @property
    def support(self) -> Support:
        if len(self._asked) > 1:
            raise TypeError(f"the sites {', '.join(self._asked)} have no one support; ask sites[name]")
        return next(iter(self._asked.values())).support

    @property
    def mean(self) -> Any:
        return self._answer(lambda site: site.mean)

    @property
    def variance(self) -> Any:
        return self._answer(lambda site: site.variance)

    @property
    def std(self) -> Any:
        return jax.tree.map(jnp.sqrt, self.variance)

    @property
    def aleatoric(self) -> Any:
        return self._answer(lambda site: site.aleatoric)

    @property
    def epistemic(self) -> Any:
        return self._answer(lambda site: site.epistemic)

    def log_prob(self, y: Targets) -> Array:
        r"""Returns the log density of the observed sites in nats, `[N]`, for several sites the joint one.

        Args:
            y: values; for several sites a mapping by name. Sites without rows in common are one density, `[1]`.
        """
        values = y if isinstance(y, dict) else {next(iter(self._asked)): y}
        values = {name: jnp.asarray(value) for name, value in values.items()}
        terms = list(log_densities(self.joint, self.query, self.theta, self._keys(self._count), values).values())
        if len({term.shape for term in terms}) > 1:
            terms = [jnp.sum(term, axis=1, keepdims=True) for term in terms]
        total = jnp.sum(jnp.stack(terms), axis=0)
        average = logsumexp(total, axis=0) - jnp.log(jnp.asarray(float(self._count), total.dtype))
        return sound_average(average, lambda: total)

    def cdf(self, y: Targets) -> Any:
        if len(self._asked) > 1:
            return {name: site.cdf(y[name]) for name, site in self._asked.items()}
        return next(iter(self._asked.values())).cdf(y)

    def quantile(self, probability: Number) -> Any:
        return self._answer(lambda site: site.quantile(probability))

    def interval(self, level: Number = 0.9) -> Any:
        if len(self._asked) == 1:
            return next(iter(self._asked.values())).interval(level)
        ends = {name: site.interval(level) for name, site in self._asked.items() if site.support.ordered}
        return {name: low for name, (low, _) in ends.items()}, {name: high for name, (_, high) in ends.items()}

    def sample(self, key: RandomKey, n: int, first: object = 0) -> Any:
        draws = self.draws_of(key, n)
        return self._answer(lambda site: draws[site.name][0])


@record
class ProgramRule(PredictiveRule):
    """The rule of NumPyro programs: draws their sites at new arguments, given draws of the belief."""

    def prepare(self, model: Any, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        # Raises a TypeError: a program predicts at arguments, by `predict`.
        raise TypeError("a NumPyro program predicts at its arguments; ask posterior.predict({'X': ...})")

    def predict(
        self,
        model: Any,
        belief: Belief,
        network_state: State,
        x: Inputs,
        samples: int,
        key: RandomKey,
        offset: Rows | None = None,
    ) -> ProgramPredictive:
        if offset is not None:
            raise ValueError("a NumPyro program has no linear predictor to add an offset to; make it an argument")
        require_room(belief, key, samples)
        of_theta, own = jax.random.split(key)
        drawn = finite_draws(belief.draws(of_theta, samples))["network"]
        theta = jax.vmap(lambda leaf: model.constraints.constrain(model.complete(leaf))[0])(drawn)
        if model.shares_categories:
            theta |= shared_categories(model, theta, jax.random.fold_in(own, 2))
        return ProgramPredictive(model.joint, x, theta, own)
