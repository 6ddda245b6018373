"""Averages of predictives: of draws, of an ensemble's members, or of models, which may be of different types."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import logsumexp, xlogy

from lamu.base.bisection import Ends, search
from lamu.base.compile_once import once_a_shape, row_keys
from lamu.convergence import sound_average
from lamu.families import Ensemble
from lamu.likelihoods import Likelihood
from lamu.predictives.interface import Predictive, Prepared, quantile_in_support
from lamu.predictives.lazy import PredictiveRule, draw_in_chunks
from lamu.predictives.padding import compiled_answers
from lamu.record import record, static
from lamu.supports import Support, value_of
from lamu.target import Target
from lamu.typing import Array, Belief, Number, Params, RandomKey, Rows, State, Targets

__all__ = ["AveragedPredictive", "MixturePredictive", "Pooling", "Weighted", "logsumexp_of_others"]


_EXACT_UP_TO = 128  # equal shares, whose sum in float32 is one to rounding
_DRAWS = 4096  # for quantiles without formulas: within .4 % of a 90 % interval's probabilities, a convention
_AT_ONCE = 64  # draws: loops of a rejection sampler end sooner for few, and stay in a processor's cache

Question = Callable[[Any, Any], Array]  # of a component, and of targets as it takes them


class AveragedPredictive(Predictive):
    r"""Base class of averages \(p(y) = \sum_k w_k\, p_k(y)\), by the laws of total expectation and variance."""

    # A subclass evaluates its components (`each`) and, unless they are along the first axis with the weights
    # `log_weights`, averages their results. It defines sampling and leaving out draws itself.

    log_weights: Array

    def each(self, question: Question, y: Targets = None) -> Array:
        """Returns a member of every component."""
        raise NotImplementedError

    def average(self, values: Array) -> Array:
        """Returns the weighted average over the components."""
        weights = jnp.exp(jnp.asarray(self.log_weights, values.dtype))
        if len(weights) <= _EXACT_UP_TO:
            return jnp.tensordot(weights, values, axes=1)
        # About the first one: in float32 a sum of 60,000 equal shares is 1.0005, and a mean as far off.
        first = jnp.where(jnp.isfinite(values[0]), values[0], 0)
        return first + jnp.tensordot(weights, values - first[None], axes=1)

    def log_average(self, values: Array) -> Array:
        """Returns the logarithm of the weighted average of exponentials."""
        log_weights = jnp.asarray(self.log_weights, values.dtype)
        return logsumexp(values + log_weights.reshape(-1, *[1] * (values.ndim - 1)), axis=0)

    def repeated(self, averages: Array) -> Array:
        """Returns averages in a shape that broadcasts with the components' values."""
        return averages[None]

    def outermost(self, values: Array) -> Ends:
        """Returns the smallest and the largest of the components' values."""
        return jnp.min(values, axis=0), jnp.max(values, axis=0)

    @property
    def mean(self) -> Array:
        return self.average(self.each(lambda part, _: part.mean))

    @property
    def variance(self) -> Array:
        """Var[y]: the average variance plus the variance of the means; for classes p (1 − p)."""
        if self.support.has_classes:
            mean = self.mean
            return mean * (1 - mean)
        return self.average(self.each(lambda part, _: part.variance)) + self._disagreement

    @property
    def aleatoric(self) -> Array:
        """The average of the components' aleatoric uncertainty."""
        return self.average(self.each(lambda part, _: part.aleatoric))

    @property
    def epistemic(self) -> Array:
        """The components' epistemic uncertainty plus their disagreement; for classes mutual information."""
        if not self.support.has_classes:
            return self.average(self.each(lambda part, _: part.epistemic)) + self._disagreement
        probabilities = self.probabilities
        entropy = -jnp.sum(xlogy(probabilities, probabilities), axis=-1)
        # Mutual information is never negative; a difference of equal entropies may be, by round-off.
        return jnp.maximum(entropy - self.aleatoric, 0.0)

    def log_prob(self, y: Targets) -> Array:
        return self.log_average(self.each(lambda part, y: part.log_prob(y), y))

    def cdf(self, y: Targets) -> Array:
        return self.average(self.each(lambda part, y: part.cdf(y), y))

    def quantile(self, probability: Number) -> Array:
        """Returns the quantile of each target, by bisection between the components' smallest and largest."""
        room = 0.5 if self.support.discrete else 0.0  # a margin around the first and the last number
        least, most = self.outermost(self.each(lambda part, _: part.quantile(probability)))
        search_between = _compiled_between if self._compilable else _between
        return search_between(self, probability, (least - room, most + room))

    def _narrowed(self, ends: Ends, level: Number) -> Ends:
        return _narrowed(self, ends, level) if self._compilable else super()._narrowed(ends, level)

    @property
    def _compilable(self) -> bool:
        """Whether it can be evaluated by a program: it is in memory, without foreign objects."""
        numbers = lambda leaf: hasattr(leaf, "dtype") or isinstance(leaf, int | float)
        return not self.deferred and all(map(numbers, jax.tree.leaves(self)))

    @property
    def _disagreement(self) -> Array:
        means = self.each(lambda part, _: part.mean)
        return self.average((means - self.repeated(self.average(means))) ** 2)


def _between(pred: AveragedPredictive, probability: Number, ends: Ends) -> Array:
    is_below, discrete = lambda y: pred.cdf(y) < probability, pred.support.discrete
    bound = search(is_below, ends, compiled=pred._compilable, whole=discrete)
    return quantile_in_support(bound, probability, pred.support, pred.cdf)


_compiled_between = jax.jit(_between)


@jax.jit
def _narrowed(pred: AveragedPredictive, ends: Ends, level: Number) -> Ends:
    return Predictive._narrowed(pred, ends, level)


@partial(jax.jit, static_argnums=1)
def compiled(pred: AveragedPredictive, name: str, *arguments: object) -> Array:
    """Evaluates a method of an average in one compiled program instead of a dozen small operations."""
    member = vars(AveragedPredictive)[name]
    return member.__get__(pred)(*arguments) if callable(member) else member.__get__(pred)


@compiled_answers(f=1)
@record
class MixturePredictive(AveragedPredictive):
    r"""\(p(y^*) = \sum_s w_s\, p(y^* \mid f_s)\), over draws of the outputs, quadrature nodes, or one point.

    Attributes:
        likelihood: p(y | f).
        dispersion: the likelihood's parameters, one set a component: leaves `[S, ...]`.
        f: the outputs `[S, N, K]`.
        log_weights: log w, `[S]`, normalised.
        drawn: whether the components are independent draws of equal weight, with a Monte Carlo error; nodes and points
            are not.
        by_row: whether the components are of each row alone, as quadrature nodes are; draws of θ are common to all.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Categorical
        >>> from lamu.predictives import MixturePredictive
        >>> pred = MixturePredictive.equal(Categorical(2), {}, jnp.zeros((3, 1, 2)))
        >>> pred.mean.tolist()
        [[0.5, 0.5]]
    """

    likelihood: Likelihood
    dispersion: Params
    f: Array
    log_weights: Array
    drawn: bool = static(default=False)
    by_row: bool = static(default=False)

    @classmethod
    def equal(cls, likelihood: Likelihood, dispersion: Params, f: Array, drawn: bool = False) -> MixturePredictive:
        """Returns the mixture with equal weights."""
        return cls(likelihood, dispersion, f, jnp.full(f.shape[:1], -math.log(f.shape[0]), f.dtype), drawn)

    @property
    def support(self) -> Support:
        return self.likelihood.support

    def warn(self) -> None:
        least = self.likelihood.least_output()
        if math.isinf(least) or isinstance(self.f, Tracer):
            return
        outside: np.ndarray = np.any(np.asarray(self.f) <= least, axis=(0, 2))
        if outside.any():
            warnings.warn(
                f"{outside.sum()} of {len(outside)} rows have outputs that are not above zero, where "
                f"{self.likelihood.name} has no mean and a million stands for it: their means and variances mean "
                "nothing, and quantiles only where few draws are such; take the log link for such rows",
                UserWarning,
                stacklevel=4,
            )

    def each(self, question: Question, y: Targets = None) -> Array:
        """Returns a member of the likelihood at every draw, along the first axis."""
        of_component = lambda params, f: question(_Component(self.likelihood, params, f), y)
        return jax.vmap(of_component)(self.dispersion, self.f)

    @property
    def averaged_over_draws(self) -> set[str]:
        """Which of mean, variance and cdf have no formula in the likelihood, and come from draws of the mixture."""
        if self.support.has_classes or not self.support.ordered:
            return set()
        return _averaged_over_draws(self.likelihood, self.dispersion, self.f)

    @property
    def mean(self) -> Array:
        return _with_draws(self).mean if "mean" in self.averaged_over_draws else compiled(self, "mean")

    @property
    def variance(self) -> Array:
        """Var[y], by the law of total variance, or of draws."""
        return _with_draws(self).variance if "variance" in self.averaged_over_draws else compiled(self, "variance")

    @property
    def aleatoric(self) -> Array:
        """Expected entropy in nats (classes), or expected variance (regression)."""
        return compiled(self, "aleatoric")

    @property
    def epistemic(self) -> Array:
        """Mutual information of target and parameters in nats (classes), or the variance of the mean (regression)."""
        return compiled(self, "epistemic")

    def log_prob(self, y: Targets) -> Array:
        return sound_average(self.averaged(y), lambda: self.by_draw(y), self.log_weights, value_of(y))

    def averaged(self, y: Targets) -> Array:
        """Returns the same in a compiled function: NaN where a draw has no density."""
        return compiled(self, "log_prob", jax.tree.map(jnp.asarray, y))

    def by_draw(self, y: Targets) -> Array:
        """Returns the log density of each target given each draw, `[S, N]` in nats."""
        return _densities(self, jax.tree.map(jnp.asarray, y))

    def cdf(self, y: Targets) -> Array:
        """Returns P(Y ≤ y), the average of the components' distribution functions; without formulas of 4,096 draws."""
        y = jax.tree.map(jnp.asarray, y)
        return _with_draws(self).cdf(y) if "cdf" in self.averaged_over_draws else compiled(self, "cdf", y)

    def quantile(self, probability: Number) -> Array:
        """Returns the quantile of each target by bisection, without quantiles of the components."""
        return Predictive.quantile(self, probability)

    def left_out(self, y: Targets) -> tuple[Array, ...]:
        """Returns the log of the averaged density without each draw, `[S, N]` in a tuple; empty without draws."""
        if not self.drawn:
            return ()
        densities = self.by_draw(y)
        densities = jnp.where(jnp.isnan(densities), -jnp.inf, densities)  # zero, as in `log_prob`
        others = logsumexp_of_others(densities)
        # Without the only draw the density is undefined, not zero.
        lost = jnp.nan if len(densities) == 1 else jnp.log(len(densities) - 1)
        return (others - jnp.asarray(lost, others.dtype),)

    def sample(self, key: RandomKey, n: int, first: Number = 0) -> Array:
        """Returns n draws: a component, the same for all rows unless it is `by_row`, then targets from it."""
        component_key, target_key = jax.random.split(key)
        components = jax.random.categorical(component_key, self.log_weights, shape=(n,))

        def of_row(key: RandomKey, f: Array, s: Array) -> Array:
            if self.by_row:
                component_key, key = jax.random.split(key)
                s = jax.random.categorical(component_key, self.log_weights)
            dispersion = jax.tree.map(lambda leaf: leaf[s], self.dispersion)
            return self.likelihood.sample(key, dispersion, f[s][None])[0]

        def draw(key: RandomKey, s: Array) -> Array:
            return jax.vmap(of_row, (0, 1, None))(row_keys(key, self.f.shape[1], first), self.f, s)

        return draw_in_chunks(draw, jax.random.split(target_key, n), components)

    def _quantile(self, probability: Number) -> Array:
        drawn = "cdf" in self.averaged_over_draws
        return _with_draws(self)._quantile(probability) if drawn else _quantile(self, probability)

    def _central(self, lower: Any, upper: Any, level: Number) -> Any:
        drawn = "cdf" in self.averaged_over_draws
        return (_with_draws(self) if drawn else super())._central(lower, upper, level)


@once_a_shape  # since every mean and quantile asks
def _averaged_over_draws(likelihood: Likelihood, dispersion: Params, f: Array) -> set[str]:
    return likelihood._averaged(jax.tree.map(lambda leaf: leaf[0], dispersion), f[0])


@record
class _WithDraws(MixturePredictive):
    """A mixture by equally likely draws, sorted, `[draws, N, ...]`: one table for all steps of a search."""

    draws: Any = None

    @property
    def mean(self) -> Array:
        return jnp.mean(self.draws, axis=0)

    @property
    def variance(self) -> Array:
        return jnp.var(self.draws, axis=0)

    def cdf(self, y: Targets) -> Array:
        y = jnp.expand_dims(jnp.asarray(y, self.draws.dtype), -self.draws.ndim)
        draws = jnp.reshape(self.draws, (1,) * (y.ndim - self.draws.ndim) + self.draws.shape)
        return jnp.mean(draws <= y, axis=-self.draws.ndim, dtype=self.draws.dtype)

    def _quantile(self, probability: Number) -> Array:
        return self.draws[jnp.ceil(len(self.draws) * probability).astype(int) - 1]

    def _central(self, lower: Any, upper: Any, level: Number) -> Any:
        return Predictive._central(self, lower, upper, level)


def _with_draws(pred: MixturePredictive) -> MixturePredictive:
    return _WithDraws(pred.likelihood, pred.dispersion, pred.f, pred.log_weights, draws=_sorted_draws(pred))


@jax.jit
def _sorted_draws(pred: MixturePredictive) -> Array:
    """Returns draws of each row of the mixture, as many of each component as its weight says."""
    ends = jnp.cumsum(jnp.exp(pred.log_weights))
    component = jnp.searchsorted(ends / ends[-1], jnp.asarray((np.arange(_DRAWS) + 0.5) / _DRAWS, ends.dtype))

    def draw(keyed: tuple[RandomKey, Array]) -> Array:
        key, number = keyed
        dispersion = jax.tree.map(lambda leaf: leaf[number], pred.dispersion)
        # Row by row with the same key, since the result of a row must not depend on the number of rows.
        return jax.vmap(lambda f: pred.likelihood.sample(key, dispersion, f[None])[0])(pred.f[number])

    draws = jax.lax.map(draw, (jax.random.split(jax.random.key(0), _DRAWS), component), batch_size=_AT_ONCE)
    return jnp.sort(draws.astype(pred.f.dtype), axis=0)


@jax.jit
def _quantile(pred: MixturePredictive, probability: Number) -> Array:
    return Predictive._quantile(pred, probability)


@jax.jit
def _densities(pred: MixturePredictive, y: Targets) -> Array:
    return pred.each(lambda part, y: part.log_prob(y), y)


@dataclass(frozen=True)
class _Component:
    """A likelihood at one draw, with the interface of a prediction."""

    likelihood: Likelihood
    params: Params
    f: Array

    @property
    def mean(self) -> Array:
        return self.likelihood.mean(self.params, self.f)

    @property
    def variance(self) -> Array:
        return self.likelihood.variance(self.params, self.f)

    @property
    def aleatoric(self) -> Array:
        return self.likelihood.entropy(self.params, self.f) if self.likelihood.support.has_classes else self.variance

    @property
    def epistemic(self) -> Array:
        return jnp.zeros_like(self.mean)

    def log_prob(self, y: Targets) -> Array:
        return self.likelihood.log_prob(self.params, self.f, y)

    def cdf(self, y: Targets) -> Array:
        return self.likelihood.cdf(self.params, self.f, y)


def logsumexp_of_others(values: Array) -> Array:
    """Returns the log of the sum of the exponentials of all the others, for each of `[S, ...]`."""
    # Sums from both ends, because the difference from the total cancels where one term dominates.

    def running(total: Array, value: Array) -> tuple[Array, Array]:
        return jnp.logaddexp(total, value), total

    nothing = jnp.full_like(values[0], -jnp.inf)
    before = jax.lax.scan(running, nothing, values)[1]
    after = jax.lax.scan(running, nothing, values, reverse=True)[1]
    return jnp.logaddexp(before, after)


@record
class Weighted(AveragedPredictive):
    r"""\(p(y^*) = \sum_k w_k\, p_k(y^*)\), over predictions of the same rows, of any kinds and of one support.

    Attributes:
        parts: the predictions.
        log_weights: log w, `[parts]`, normalised.

    Raises:
        ValueError: for parts of different tasks, shapes or supports, or another number of weights than parts.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives import GaussianPredictive, Weighted
        >>> one, two = (GaussianPredictive(jnp.full(1, c), jnp.ones((1, 1, 1)), jnp.ones(1)) for c in (0.0, 4.0))
        >>> float(Weighted((one, two), jnp.log(jnp.array([0.75, 0.25]))).mean[0])
        1.0
    """

    parts: tuple[Any, ...]
    log_weights: Any

    def __post_init__(self) -> None:
        kinds = {(part.support.task, tuple(part.mean.shape)) for part in self.parts}
        if len(kinds) != 1:
            raise ValueError(
                f"the parts are {sorted(kinds)}, task and shape; only predictions of one task and the same rows mix"
            )
        first = self.parts[0].support
        for part in self.parts:  # of classes the values tell, which may have an order or not
            same = part.support.values == first.values if first.has_classes else part.support == first
            if not same:
                raise ValueError(
                    f"one part predicts {first.values}, and another {part.support.values}, whose densities do not "
                    "average; mix models whose likelihoods have one support"
                )
        if jnp.shape(self.log_weights) != (len(self.parts),):
            raise ValueError(
                f"{len(self.parts)} parts have weights of shape {jnp.shape(self.log_weights)}; give one each"
            )

    @classmethod
    def equal(cls, parts: tuple[Any, ...]) -> Weighted:
        """Returns the average with equal weights."""
        return cls(parts, jnp.full(len(parts), -math.log(len(parts)), parts[0].mean.dtype))

    @property
    def support(self) -> Support:
        return self.parts[0].support

    def each(self, question: Callable[[Any, Any], Array], y: Targets = None) -> Array:
        """Returns a member of every part, along a new first axis."""
        return jnp.stack([question(part, y) for part in self.parts])

    def left_out(self, y: Targets) -> tuple[Array, ...]:
        """Returns the log of the averaged density without each of a part's draws, one group a part with draws."""
        groups = [part.left_out(y) for part in self.parts]
        if not any(groups):
            return ()
        densities = self.each(lambda part, y: part.log_prob(y), y)
        weights = jnp.asarray(self.log_weights, densities.dtype)
        others = logsumexp_of_others(densities + weights[:, None])
        return tuple(
            jnp.logaddexp(jnp.broadcast_to(rest[None], group.shape), group + weight)
            for rest, weight, part in zip(others, weights, groups, strict=True)
            for group in part
        )

    def quantile(self, probability: Number) -> Array:
        if self.chunk_size:
            return jnp.concatenate([piece.quantile(probability) for _, piece in self.chunks()])
        return super().quantile(probability)

    def sample(self, key: RandomKey, n: int, first: Number = 0) -> Array:
        part_key, draw_key = jax.random.split(key)
        chosen = jax.random.categorical(part_key, jnp.asarray(self.log_weights), shape=(n,))
        keys = jax.random.split(draw_key, len(self.parts))
        # One part after the other, so that the memory is that of the result.
        mixed: Any = None
        for number, (part, k) in enumerate(zip(self.parts, keys, strict=True)):
            drawn = part.sample(k, n, first)
            if mixed is None:
                mixed = drawn
                continue
            dtype = jnp.promote_types(mixed.dtype, drawn.dtype)
            mine = (chosen == number).reshape(n, *[1] * (drawn.ndim - 1))
            mixed = jnp.where(mine, drawn.astype(dtype), mixed.astype(dtype))
        return mixed

    @property
    def deferred(self) -> bool:
        """Whether a part is computed in chunks of rows."""
        return any(part.deferred for part in self.parts)

    @property
    def chunk_size(self) -> int:
        """The number of rows of each chunk, where all parts have the same chunks."""
        sizes = {part.chunk_size for part in self.parts}
        return sizes.pop() if len(sizes) == 1 else 0

    def chunks(self) -> Iterator[tuple[slice, Predictive]]:
        """Yields the prediction in chunks of rows, where all parts have the same chunks; else of all rows."""
        if not self.chunk_size:
            yield slice(0, self.mean.shape[0]), self
            return
        for pieces in zip(*[part.chunks() for part in self.parts], strict=True):
            yield pieces[0][0], Weighted(tuple(piece for _, piece in pieces), self.log_weights)


@record
class Pooling(PredictiveRule):
    """The rule of an ensemble: averages the members' predictions, each with its own network state.

    The average is by the ensemble's weights.

    Attributes:
        base: the members' rule.
        frozen: frozen weights of every member, stacked; None where they share the model's.

    Examples:
        >>> from lamu.predictives import Pooling, Sampled
        >>> Pooling(Sampled()).base
        Sampled()
    """

    base: PredictiveRule
    frozen: Any = None

    def prepare(self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        """Returns every member's preparation; `samples` is divided among them."""
        if not isinstance(belief, Ensemble):
            raise TypeError(f"Pooling() averages an ensemble, not a {type(belief).__name__}; use its own rule")
        each = max(1, samples // belief.count)
        parts = []
        for k, member in enumerate(belief.members):
            own = model if self.frozen is None else replace(model, frozen=_member(self.frozen, k))
            state = _member(network_state, k)
            parts.append(self.base.prepare(own, member, state, each, jax.random.fold_in(key, k)))
        return _Members(tuple(parts), belief.log_weights)

    def joint(self) -> PredictiveRule:
        return replace(self, base=self.base.joint())


@record
class _Members:
    """The members' preparations."""

    parts: tuple[Any, ...]
    log_weights: Any  # None for equal weights

    @property
    def support(self) -> Support:
        return self.parts[0].support

    def at(self, x: Rows, offset: Rows | None) -> Weighted:
        parts = tuple(part.at(x, offset) for part in self.parts)
        return Weighted.equal(parts) if self.log_weights is None else Weighted(parts, self.log_weights)


def _member(stacked: State, index: int) -> State:
    return jax.tree.map(lambda leaf: leaf[index], stacked)
