"""SWAG: the Gaussian with the moments of an optimiser's iterates."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import jax
import jax.numpy as jnp

from lamu.base.arguments import require, require_whole_field
from lamu.batch_statistics import BatchStatistics, Recomputed
from lamu.data.batch import Batch
from lamu.families import Gaussian, Point, Product
from lamu.objective import Objective
from lamu.operators import Diagonal, LowRank, LowRankCovariance
from lamu.posterior import Posterior
from lamu.protocol import Algorithm, Choices, Info, Traits, Wrapper, recipe, require_part, runnable
from lamu.rate import Annealed, WarmRestarts
from lamu.record import record, static
from lamu.typing import Array, Data, Number, Numeric, Params, RandomKey, State, Trace

__all__ = [
    "Collected",
    "Covariance",
    "DiagonalDeviations",
    "EverySteps",
    "LastPart",
    "LowRankDeviations",
    "Swag",
    "SwagState",
    "swag",
]


# With \(\theta_1, \theta_2, \dots\) the collected iterates and \(\bar\theta_n\) the mean of the first n,
#
# \[ \bar\theta_n = \bar\theta_{n-1} + (\theta_n - \bar\theta_{n-1})/n, \qquad
#    Q_n = Q_{n-1} + (\theta_n - \bar\theta_{n-1}) \odot (\theta_n - \bar\theta_n), \qquad
#    \delta_n = \theta_n - \bar\theta_n \]
#
# (Welford), so that \(Q_n/n = \overline{\theta^2} - \bar\theta^2\) without the difference of two large numbers.


# The least variance: a weight that never moved has none, and hence no density. As in the authors' code.
_LEAST = 1e-30


@record
class LastPart:
    r"""Evenly spaced iterates from the last part of a run, including the last one.

    `lamu.fit` sets the length of its run; in a custom loop, `lamu.rate.over` does. In a run without a length
    it is the last part of a period of the rates, and every period collects its own iterates.

    Attributes:
        share: share of the run, in (0, 1].
        iterates: number of iterates; all of them if the part is shorter.
        clock: carries the length of the run, and need not be set.

    Raises:
        ValueError: for a share or a number that leaves nothing to collect, and, in `init`, for a run
            of unknown length.

    Examples:
        >>> from lamu.algorithms.ensembles.swag import LastPart
        >>> from lamu.rate import over
        >>> part = over(100, LastPart(share=0.5, iterates=5))
        >>> [t for t in range(100) if bool(part.collects(t))]
        [59, 69, 79, 89, 99]
    """

    share: Number = 0.5
    iterates: int = static(default=40)
    clock: Annealed | WarmRestarts = Annealed(1.0)

    def __post_init__(self) -> None:
        possible = (self.share > 0) & (self.share <= 1)
        require(possible, f"share={self.share!r} is not a part of a run; give a number in (0, 1]")
        require_whole_field(self, "iterates", 2, "have no covariance")

    def check(self) -> None:
        """Raises a ValueError if the length of the run is unknown."""
        if isinstance(self.clock, Annealed) and self.clock.steps is None:
            raise ValueError(
                "the part of a run that is collected (LastPart) needs a run, whose length is not known here; give "
                "epochs or steps, at least one, or EverySteps(50, first=1000)"
            )

    def collects(self, step: Numeric) -> Array:
        """Returns whether the iterate after step `step` (the first is 0) is collected."""
        length, since = self._place(step)
        part = jnp.maximum(jnp.floor(jnp.asarray(self.share, length.dtype) * length), 1.0)
        period = jnp.maximum(jnp.floor(part / self.iterates), 1.0)
        steps_left = length - 1.0 - since
        return (steps_left < jnp.minimum(part, period * self.iterates)) & (jnp.mod(steps_left, period) == 0.0)

    def starts_again(self, step: Numeric) -> Array:
        """Returns whether earlier iterates are discarded before this step."""
        return self._place(step)[1] == 0.0

    def _place(self, step: Numeric) -> tuple[Array, Array]:
        """Returns the length of the run, or of the period, and the number of its steps before this one."""
        self.check()
        if isinstance(self.clock, WarmRestarts):
            return self.clock.period(step)
        t = jnp.asarray(step, jnp.result_type(float))
        return jnp.asarray(self.clock.steps, t.dtype), t


@record
class EverySteps:
    """One iterate every `period` steps, whatever the length of the run.

    Attributes:
        period: number of steps between two iterates.
        first: number of the step after which the first is collected; steps count from 0.

    Raises:
        ValueError: for a period below one, or a first step below zero.

    Examples:
        >>> from lamu.algorithms.ensembles.swag import EverySteps
        >>> every = EverySteps(10, first=5)
        >>> [t for t in range(30) if bool(every.collects(t))]
        [5, 15, 25]
    """

    period: int = static(default=1)
    first: int = static(default=0)

    def __post_init__(self) -> None:
        require_whole_field(self, "period")
        require_whole_field(self, "first", 0, "is not the number of a step")

    def check(self) -> None:
        """Does nothing: the length of the run is not needed."""

    def collects(self, step: Numeric) -> Array:
        """Returns whether the iterate after step `step` (the first is 0) is collected."""
        after = jnp.asarray(step) - self.first
        return (after >= 0) & (after % self.period == 0)

    def starts_again(self, step: Numeric) -> bool:
        """Returns False: iterates are never discarded."""
        del step
        return False


@record
class Collected:
    """Moments and last deviations of the collected iterates."""

    count: Numeric  # n, their number
    mean: Params  # \(\bar\theta_n\)
    squares: Params  # \(Q_n\), the sum of squared deviations
    # The last K of the \(\delta_i\), leaves `[K, ...]`, the oldest overwritten; zero if there are fewer.
    deviations: Params

    @classmethod
    def none(cls, like: Params, rank: int) -> Collected:
        """Returns an empty collection."""
        # New buffers, since a run donates its state.
        zeros = lambda *axes: jax.tree.map(lambda leaf: jnp.zeros((*axes, *leaf.shape), leaf.dtype), like)
        return cls(jnp.zeros((), jnp.int32), zeros(), zeros(), zeros(rank))

    def with_iterate(self, theta: Params, collects: Array | bool) -> Collected:
        """Returns the collection with one more iterate, if collected; the cost is a few passes over θ for any K."""
        count = self.count + jnp.asarray(collects).astype(jnp.int32)
        rank = jax.tree.leaves(self.deviations)[0].shape[0]
        slot = self.count % max(rank, 1)

        def where_collected(new: Array, old: Array) -> Array:
            return jnp.where(collects, new, old)

        def new_mean(mean: Array, x: Array) -> Array:
            return where_collected(mean + (x - mean) / jnp.maximum(count, 1).astype(x.dtype), mean)

        def with_column(columns: Array, x: Array, now: Array) -> Array:
            return columns.at[slot].set(where_collected(x - now, columns[slot])) if rank else columns

        mean = jax.tree.map(new_mean, self.mean, theta)
        squares = jax.tree.map(
            lambda q, x, old, now: where_collected(q + (x - old) * (x - now), q), self.squares, theta, self.mean, mean
        )
        return Collected(count, mean, squares, jax.tree.map(with_column, self.deviations, theta, mean))

    def without(self, forgets: Array | bool) -> Collected:
        """Returns an empty collection if `forgets`; columns are overwritten later."""
        empty = lambda part: jax.tree.map(lambda leaf: jnp.where(forgets, jnp.zeros_like(leaf), leaf), part)
        return Collected(empty(self.count), empty(self.mean), empty(self.squares), empty(self.deviations))

    def about(self, part: str) -> Collected:
        """Returns the collection of one part of the parameters."""
        return Collected(self.count, self.mean[part], self.squares[part], self.deviations[part])

    @property
    def variance(self) -> Params:
        r"""The variance of the iterates, \(Q_n / n\), at least 10⁻³⁰."""
        count = jnp.maximum(self.count, 1)
        return jax.tree.map(lambda q: jnp.maximum(q / count.astype(q.dtype), _LEAST), self.squares)


@record
class DiagonalDeviations:
    r"""Diagonal covariance: \(\Sigma = \mathrm{diag}(\overline{\theta^2} - \bar\theta^2)\) (SWAG-Diagonal).

    Examples:
        >>> from lamu.algorithms.ensembles.swag import DiagonalDeviations
        >>> DiagonalDeviations().rank
        0
    """

    rank = 0
    words = "diagonal covariance of the iterates"

    def precision(self, seen: Collected) -> Diagonal:
        """Returns the reciprocal variances."""
        return Diagonal(jax.tree.map(jnp.reciprocal, seen.variance))


@record
class LowRankDeviations:
    r"""Half the diagonal plus half the covariance of the last K deviations from the running mean.

    \[ \Sigma = \tfrac12 \Big( \mathrm{diag}(\overline{\theta^2} - \bar\theta^2)
       + \tfrac{1}{K - 1} \sum_{i > n - K} \delta_i \delta_i^\top \Big) \]

    With n < K iterates the sum has n terms and the denominator is n − 1.

    Attributes:
        rank: K, at least two.

    Raises:
        ValueError: for a rank below two.

    Examples:
        >>> from lamu.algorithms.ensembles.swag import LowRankDeviations
        >>> LowRankDeviations(10).words
        'low-rank (10) plus diagonal covariance of the iterates'
    """

    rank: int = static(default=20)

    def __post_init__(self) -> None:
        require_whole_field(self, "rank", 2, "deviations have no covariance")

    @property
    def words(self) -> str:
        """Name of the family in the table of algorithms."""
        return f"low-rank ({self.rank}) plus diagonal covariance of the iterates"

    def precision(self, seen: Collected) -> LowRankCovariance:
        """Returns the inverse of the covariance, factored."""
        below = jnp.maximum(jnp.minimum(seen.count, self.rank) - 1, 1)
        root = jax.tree.map(lambda u: u * jax.lax.rsqrt(2 * below.astype(u.dtype)), seen.deviations)
        return LowRankCovariance(LowRank(root, jax.tree.map(lambda v: v / 2, seen.variance))).factored()


Covariance: TypeAlias = DiagonalDeviations | LowRankDeviations
"""Structure of the iterates' covariance, as a precision for a Gaussian belief."""


@record
class SwagState:
    """The optimiser's state, and the collected iterates."""

    inner: State  # the optimiser's state
    count: Numeric  # steps taken
    seen: Collected  # the collected iterates of all parameters


@record
class Swag(Wrapper):
    """Algorithm of `swag`."""

    base: Algorithm  # the optimiser
    covariance: Covariance  # structure of the iterates' covariance
    collect: LastPart | EverySteps  # which iterates are collected
    statistics: BatchStatistics  # how the posterior treats a network's batch statistics

    @property
    def traits(self) -> Traits:
        remedy = (
            "swag's covariance is the spread of the optimiser's iterates, which a longer run does not change and a "
            "higher constant rate widens, for instance swag(sgd(0.2, momentum=0.9)); ivon() and laplace() have that of "
            "the posterior"
        )
        return replace(self.base.traits, needs_data_pass=True, spread_remedy=remedy)

    @property
    def choices(self) -> Choices:
        # The optimiser's row, with another family.
        choices = self.base.choices
        departures = (*choices.departures, "moments of the iterates for a covariance", "dispersions a point")
        return replace(choices, family=f"Gaussian, {self.covariance.words}", departures=departures)

    def inner(self, state: SwagState) -> State:
        return state.inner

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> SwagState:
        # Returns the optimiser's first state, with no iterates collected.
        self.collect.check()
        state = self.base.init(key, objective, batch)
        seen = Collected.none(self._point(key, state, objective).mean, self.covariance.rank)
        return SwagState(inner=state, count=jnp.zeros((), jnp.int32), seen=seen)

    def step(self, key: RandomKey, state: SwagState, batch: Batch, objective: Objective) -> tuple[SwagState, Info]:
        # Returns the state after the optimiser's step, whose iterate is collected if due.
        inner, info = self.base.step(key, state.inner, batch, objective)
        theta = self._point(key, inner, objective).mean
        seen = state.seen.without(self.collect.starts_again(state.count))
        seen = seen.with_iterate(theta, self.collect.collects(state.count))
        return SwagState(inner=inner, count=state.count + 1, seen=seen), info

    def preview(self, key: RandomKey, state: SwagState, objective: Objective) -> Posterior:
        # Returns the posterior before any pass over the data; with nothing collected, the last iterate.
        point, seen = self._point(key, state.inner, objective), state.seen
        mean = jax.tree.map(lambda new, now: jnp.where(seen.count > 0, new, now), seen.mean, point.mean)
        belief = self._belief(replace(seen, mean=mean))
        return Posterior.of(objective, belief, point.network_state, key)

    def posterior(self, key: RandomKey, state: SwagState, objective: Objective, data: Data, trace: Trace) -> Posterior:
        # Returns the Gaussian of the iterates, with batch statistics as chosen.
        count = state.seen.count
        require(
            count >= 2,
            f"swag collected {count} iterates, and a covariance needs two; run longer, or begin earlier, for instance "
            "swag(collect=LastPart(0.75))",
        )
        return self.statistics.of(self.preview(key, state, objective), data)

    def _point(self, key: RandomKey, state: State, objective: Objective) -> Posterior:
        """Returns the optimiser's own posterior, whose mean is the iterate."""
        return runnable(self.base).preview(jax.random.clone(key), state, objective)

    def _belief(self, seen: Collected) -> Product:
        network = seen.about("network")
        gaussian = Gaussian(network.mean, self.covariance.precision(network))
        return Product({"network": gaussian, "likelihood": Point(seen.mean["likelihood"])})


@recipe("Maddox et al. 2019, equation 1 and algorithm 1")
def swag(
    base: Algorithm | None = None,
    covariance: Covariance = LowRankDeviations(),  # noqa: B008  (a record never changes)
    collect: LastPart | EverySteps = LastPart(),  # noqa: B008  (the same)
    statistics: BatchStatistics = Recomputed(),  # noqa: B008  (the same)
) -> Swag:
    r"""SWAG: the Gaussian with the mean and covariance of an optimiser's iterates.

    \[ q(\theta) = N\Big( \bar\theta,\; \tfrac12 \Sigma_{\mathrm{diag}}
       + \tfrac{1}{2 (K - 1)} \hat D \hat D^\top \Big), \qquad
       \Sigma_{\mathrm{diag}} = \mathrm{diag}(\overline{\theta^2} - \bar\theta^2) \]

    with averages over the collected iterates and the columns \(\theta_i - \bar\theta_i\) of \(\hat D\) of the last K,
    each from the running mean. A step costs the optimiser's gradient; collecting costs a few passes over the weights
    and stores K + 2 copies of them; the posterior takes 50 forward passes over 1,024 rows if the network has
    batch statistics. A sample, an entropy or a density takes \(O(D K^2)\) once and \(O(D K)\) afterwards. Multi-SWAG is
    `deep_ensemble(base=swag())`, and `mixture(base=swag())` combines it into one density.

    The covariance is that of the optimiser in its valley, which depends on the rate, the batch size and the momentum:
    use an optimiser that does not converge, at a constant rate. Neither N nor the temperature scales it. If the
    noise of a regression is learned, gradients grow as it falls: give SGD a lower rate, or fix the noise scale.

    Departures from the rule: the optimiser's; its covariance replaces the rule's, and no part of the
    loss determines it; learned dispersions are a point, their average.

    Args:
        base: the optimiser; `sgd(0.005, momentum=0.9)` where None.
        covariance: `LowRankDeviations(rank)`, as above, or `DiagonalDeviations()`, which is \(\Sigma_{\mathrm{diag}}\)
            without the factor of one half.
        collect: `LastPart(share, iterates)` of the run, or `EverySteps(period, first)`.
        statistics: of `lamu.batch_statistics`: `Recomputed()`, which recomputes batch statistics at the mean of
            the weights, `RecomputedPerDraw()`, which does so for every sample, as the paper does, or `Frozen()`, which
            keeps those of the run.

    Returns:
        The algorithm. Its posterior is the Gaussian, with the average of the learned dispersions; predictions average
        over samples.

    Raises:
        TypeError: if `base` is not an algorithm, or its steps have a length of their own.
        ValueError: in `init`, for the last part of a run of unknown length; in `posterior`,
            for fewer than two iterates.

    Source: Maddox, Garipov, Izmailov, Vetrov & Wilson (2019), equation 1 and algorithm 1; Wilson & Izmailov (2020) for
    several.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.MLP((16,)), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.swag(), epochs=20).posterior
        >>> lamu.scores.nll(posterior.predict(x), y) < 0.2
        True
    """
    if base is None:
        from lamu.algorithms.optimisers import sgd

        base = sgd(0.005, momentum=0.9)
    if require_part(base, "base").traits.length is not None:
        raise TypeError(f"{type(base).__name__} is a sampler, whose draws are its posterior; give an optimiser")
    return Swag(base=base, covariance=covariance, collect=collect, statistics=statistics)
