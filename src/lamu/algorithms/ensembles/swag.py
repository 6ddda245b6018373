"""SWAG: the Gaussian with the moments of an optimiser's iterates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lamu.algorithms.ensembles.iterates import Collected, Covariance, EverySteps, LastPart, LowRankDeviations
from lamu.batch_statistics import BatchStatistics, Recomputed
from lamu.data.batch import Batch
from lamu.families import Gaussian, Point, Product
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.protocol import Algorithm, Choices, Info, Traits, Wrapper, require_part, runnable
from lamu.record import record
from lamu.typing import RandomKey

__all__ = ["Swag", "SwagState", "swag"]


@record
class SwagState:
    """The optimiser's state, and what was collected of its iterates."""

    inner: Any  # the optimiser's state
    count: Any  # steps taken
    seen: Any  # the iterates collected, of all parameters


@record
class Swag(Wrapper):
    """The algorithm that `swag` makes."""

    base: Algorithm  # the optimiser
    covariance: Covariance  # what covariance the iterates have
    collect: LastPart | EverySteps  # which iterates are collected
    statistics: BatchStatistics  # what becomes of a network's batch statistics in the posterior

    @property
    def traits(self) -> Traits:
        return replace(self.base.traits, looks_again=True)

    @property
    def choices(self) -> Choices:
        # The optimiser's row, with another family.
        choices = self.base.choices
        departures = (*choices.departures, "moments of the iterates for a covariance", "dispersions a point")
        return replace(choices, family=f"Gaussian, {self.covariance.words}", departures=departures)

    def inner(self, state: SwagState) -> Any:
        return state.inner

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> SwagState:
        # Returns the optimiser's first state, with nothing collected.
        self.collect.check()
        state = self.base.init(key, objective, batch)
        seen = Collected.none(self._point(key, state, objective).mean, self.covariance.rank)
        return SwagState(inner=state, count=jnp.zeros((), jnp.int32), seen=seen)

    def step(self, key: RandomKey, state: SwagState, batch: Batch, objective: Objective) -> tuple[SwagState, Info]:
        # Returns the state after the optimiser's step, whose iterate is collected where it is its turn.
        inner, info = self.base.step(key, state.inner, batch, objective)
        theta = self._point(key, inner, objective).mean
        seen = state.seen.without(self.collect.starts_again(state.count))
        seen = seen.with_iterate(theta, self.collect.collects(state.count))
        return SwagState(inner=inner, count=state.count + 1, seen=seen), info

    def preview(self, key: RandomKey, state: SwagState, objective: Objective) -> Posterior:
        # Returns what the state predicts before any pass over the data; with nothing collected, the last iterate.
        point, seen = self._point(key, state.inner, objective), state.seen
        mean = jax.tree.map(lambda new, now: jnp.where(seen.count > 0, new, now), seen.mean, point.mean)
        belief = self._belief(replace(seen, mean=mean))
        return Posterior(
            objective.model, belief, point.network_state, Sampled(), key, temperature=objective.temperature
        )

    def posterior(self, key: RandomKey, state: SwagState, objective: Objective, data: Any, trace: Any) -> Posterior:
        # Returns the Gaussian of the iterates, with statistics as they were chosen.
        count = state.seen.count
        if not isinstance(count, Tracer) and count < 2:
            raise ValueError(
                f"swag collected {int(count)} iterates, and a covariance needs two; run longer, or begin earlier, for "
                "instance swag(collect=LastPart(0.75))"
            )
        return self.statistics.of(self.preview(key, state, objective), data)

    def _point(self, key: RandomKey, state: Any, objective: Objective) -> Posterior:
        """The optimiser's own posterior, whose mean is the iterate."""
        return runnable(self.base).preview(jax.random.clone(key), state, objective)

    def _belief(self, seen: Collected) -> Product:
        ours = seen.about("network")
        gaussian = Gaussian(ours.mean, self.covariance.precision(ours))
        return Product({"network": gaussian, "likelihood": Point(seen.mean["likelihood"])})


def swag(
    base: Algorithm | None = None,
    covariance: Covariance = LowRankDeviations(),  # noqa: B008  (a record never changes)
    collect: LastPart | EverySteps = LastPart(),  # noqa: B008  (the same)
    statistics: BatchStatistics = Recomputed(),  # noqa: B008  (the same)
) -> Swag:
    r"""SWAG: the Gaussian with mean and covariance of the iterates of an optimiser that keeps moving.

    \[ q(\theta) = N\Big( \bar\theta,\; \tfrac12 \Sigma_{\mathrm{diag}}
       + \tfrac{1}{2 (K - 1)} \hat D \hat D^\top \Big), \qquad
       \Sigma_{\mathrm{diag}} = \mathrm{diag}(\overline{\theta^2} - \bar\theta^2) \]

    with averages over the collected iterates and the columns \(\theta_i - \bar\theta_i\) of \(\hat D\) of the last K,
    each from the mean that was then. The optimiser's gradient a step; collecting costs a few passes over the weights
    and holds K + 2 copies of them; the posterior takes 50 passes over 1,024 rows, forward alone, where the network has
    batch statistics. A draw, an entropy or a density takes \(O(D K^2)\) once and \(O(D K)\) then. Multi-SWAG is
    `deep_ensemble(base=swag())`, and `mixture(base=swag())` makes one density of it.

    The covariance is that of the optimiser about its valley, which the rate, the batch size and the momentum set: give
    an optimiser that does not come to rest, at a constant rate. Neither N nor the temperature scales it. Where the
    noise of a regression is learned, gradients grow as it falls: give SGD a lower rate there, or the noise a scale.

    Departures from the rule: the optimiser's; its covariance stands in the place of the rule's, which no part of the
    loss fixes; learned dispersions are a point, their average.

    Args:
        base: the optimiser; `sgd(0.005, momentum=0.9)` where none is given.
        covariance: `LowRankDeviations(rank)`, as above, or `DiagonalDeviations()`, \(\Sigma_{\mathrm{diag}}\) alone and
            whole.
        collect: `LastPart(share, iterates)` of the run, or `EverySteps(period, first)`.
        statistics: of `lamu.batch_statistics`: `Recomputed()`, which computes batch statistics afresh at the mean of
            the weights, `RecomputedPerDraw()`, which does so for every draw, as the paper does, or `Frozen()`, which
            leaves them as the run did.

    Returns:
        The algorithm. Its posterior is the Gaussian, beside the average of the learned dispersions; predictions average
        over draws.

    Raises:
        TypeError: for a `base` that is no algorithm, or one whose steps have a length of their own.
        ValueError: where the state is made, for a last part of a run of unknown length; where the posterior is made,
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
        from lamu.algorithms.optimisers.sgd import sgd

        base = sgd(0.005, momentum=0.9)
    if require_part(base, "base").traits.length is not None:
        raise TypeError(f"{type(base).__name__} is a sampler, whose draws are its posterior; give an optimiser")
    return Swag(base=base, covariance=covariance, collect=collect, statistics=statistics)
