"""Empirical Bayes for the scale of a `LearnedNormal` prior: by the evidence, or by validation rows."""

# The mode moves with the scale, so it is found again under every candidate scale.
#
# *By the evidence* (regression, and whenever there are no validation rows), at T = 1 at any temperature of the belief:
# the scale of greatest evidence at the current mode, then MacKay's fixed point, in turn with the mode,
#
# \[ \delta \leftarrow \frac{\gamma}{\lVert m \rVert^2}, \qquad
#    \gamma = D - \operatorname{tr} S^{-1} \delta, \qquad m \leftarrow \arg\min_\theta \ell_\delta(\theta) \]
#
# until the scale moves by less than three per cent.
#
# *By validation rows* (classes): the mode of a network that separates its rows saturates, its Gauss–Newton matrix
# nearly vanishes, and the evidence prefers a belief that is far too wide. The scale then moves by factors of
# \(\sqrt{10}\), at the end by the root of that, while the Gaussian at the new scale's mode predicts those rows better.
#
# *Around pretrained weights* the mode is fixed. The scale is that of the best prediction of the validation rows,
# which must be new to the network, or else of the greatest bound of `likelihood_bound`, which is
# the evidence for a quadratic loss. For classes those rows choose a temperature T of the logits, too: a network that
# separates its own rows has outputs that are too large, and a nearly vanishing curvature there, for any scale.
# A narrow prior at that T predicts as well as a wider one, so that the scale is the widest whose log density,
#
# \[ \max_T \sum_i \log p(y_i \mid s, T), \]
#
# is within half a nat of the greatest: the end of the profile likelihood's interval of one standard error.

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.algorithms.post_hoc.laplace_fit import LaplaceFit
from lamu.algorithms.post_hoc.mode import Polished, last_within, well_determined
from lamu.algorithms.post_hoc.scale_search import (
    LOG_TEMPERATURES,
    ScaleSearch,
    batches_that_fit,
    counted_weight,
    likelihood_bound,
    scale_search,
    spread_rows,
    tempered_total,
)
from lamu.base.choose import choose, refine_grid, simplex, walk_downhill
from lamu.model import Model
from lamu.objective import Objective
from lamu.operators import MatrixFree
from lamu.predictives import PredictiveRule, Probit
from lamu.predictives.lazy import Deferred
from lamu.priors import LearnedNormal
from lamu.typing import Array, PyTree, RandomKey, Targets

__all__ = ["empirical_bayes"]

# Numbers that decide results. Conventions that were not tuned, unless a line says otherwise.
_NARROWEST, _WIDEST = 1e-3, 1e3  # the range of the prior's scale; a choice at its end warns
_ENDS = math.log(_NARROWEST), math.log(_WIDEST)
_DRAWS, _ROWS, _TARGETS = 32, 4096, 32_768  # samples, and the most rows and targets that judge a scale
_ROUNDS, _STILL = 6, 0.03  # alternations of scale and mode, which end when log scale moves by less
_SHORT = 1  # rounds of `polish` between two of them
_STRIDE = math.log(10) / 2  # of the walk in log scale, if validation rows choose and the mode moves with it
# Around pretrained weights: the widest scale within half a nat, one standard error of the log likelihood, with a
# temperature: on development rows a scale alone left Equinox's MLP a calibration error of .023, both .011, and the
# log loss fell from .289 to .260.
_INTERVAL = 0.5
_GRID = {"points": 7, "until": 0.05}  # of log scales, if the mode is fixed: the first grid, and its last stride
_STEP = 0.4  # of log scale, up to which a wider one is tried
_NOISES, _SIMPLEX = (-3.0, 10.0), {"xatol": 0.02, "fatol": 1e-4, "maxiter": 80}  # of the log noise factor; its search
_NATS_LOST, _FAR = 10.0, math.log(10)  # a warning reports evidence and validation rows that disagree by so much

# Takes a mode, an objective and, before the last call, a number of rounds.
Finder = Callable[..., Polished]


def empirical_bayes(
    mode: LaplaceFit,
    objective: Objective,
    key: RandomKey,
    held_out: Any,
    find: Finder,
    rule: PredictiveRule | None = None,
    around: Any = None,
    *,
    tempered: bool = False,
) -> tuple[Polished, Objective, PredictiveRule | None]:
    """Returns the mode under a prior of known scale, the objective with that prior, and the rule."""
    prior: Any = objective.model.prior  # a `LearnedNormal`
    fixed = around is not None
    by_rows = held_out is not None and (fixed or not objective.model.quadratic)
    temperature = objective.temperature
    if not by_rows:  # the temperature concerns the belief, not the prior: the scale is that at temperature one
        objective = replace(objective, temperature=1.0)
    judge = _Judge(mode, objective, key, held_out if by_rows else None, rule, around)
    if fixed and by_rows and tempered:
        log_scale, log_temperature = judge.widest_around(mode)
        logging.getLogger("lamu").info("The logits' temperature is %.3g.", math.exp(log_temperature))
        rule = replace(cast("Probit", rule), temperature=math.exp(log_temperature))
        polished, under = judge.at(mode, log_scale)
        result, rivals = _Tried(log_scale, 0.0, find(polished, under), under), []
    elif fixed:
        log_scale, factor = judge.best_around(mode, prior)
        polished, under = judge.at(mode, log_scale, factor)
        result, rivals = _Tried(log_scale, 0.0, find(polished, under), under), []
    elif by_rows:
        result, rivals = _search_by_rows(judge, mode, prior, find)
    else:
        result, rivals = _alternate(judge, mode, prior, find), []
    _report(result, rivals, judge if by_rows else None)
    polished, under = result.found, replace(result.objective, temperature=temperature)
    # A residual is in units of the belief's own deviations.
    return (polished if temperature == result.objective.temperature else find(polished.mode, under)), under, rule


@dataclass(frozen=True)
class _Tried:
    """A candidate scale: its logarithm, its loss, the mode under it, and its objective."""

    log_scale: float
    loss: float
    found: Polished
    objective: Objective


class _Judge:
    """Criterion of scales: the evidence or its bound, or the predictive density of the validation rows."""

    def __init__(
        self,
        mode: LaplaceFit,
        objective: Objective,
        key: RandomKey,
        held_out: Any,
        rule: PredictiveRule | None,
        around: Any,
    ) -> None:
        self._objective, self._key, self._held_out, self._rule = objective, key, held_out, rule
        by_evidence = objective.model.quadratic or isinstance(mode.curvature, MatrixFree)  # which has no variances
        self._around = None if by_evidence or around is None or held_out is not None else spread_rows(around)
        self._noisy = bool(objective.model.quadratic and jax.tree.leaves(mode.params["likelihood"]))

    def at(self, mode: LaplaceFit, log_scale: float, log_factor: float = 0.0) -> tuple[LaplaceFit, Objective]:
        """Returns mode and objective under a scale, with the noise multiplied by a factor."""
        prior: Any = self._objective.model.prior
        model = replace(self._objective.model, prior=prior.at(math.exp(log_scale)))
        other = replace(self._objective, model=model)
        return (mode.scale_noise(other, math.exp(log_factor)) if self._noisy and log_factor else mode), other

    def evidence(self, mode: LaplaceFit, objective: Objective) -> float:
        """Returns the evidence in nats; −∞ if the precision is singular to rounding, and the evidence a NaN."""
        try:
            value = float(mode.posterior(objective, self._key).evidence)
        except ValueError:
            return -math.inf
        return value if math.isfinite(value) else -math.inf

    def loss(self, mode: LaplaceFit, objective: Objective) -> float:
        """Returns the loss to minimise; a belief without a finite evidence is not a candidate."""
        evidence = self.evidence(mode, objective)
        if not math.isfinite(evidence):
            return math.inf
        if self._held_out is not None:
            batch = self._held_out.example(min(self._held_out.count, _most_rows(objective)))
            posterior = mode.posterior(objective, self._key)
            posterior = posterior if self._rule is None else posterior.with_rule(self._rule)
            pred = posterior.predict(batch.x, samples=_DRAWS, key=jax.random.clone(self._key), offset=batch.offset)
            # Asked for every scale: as one program where it can be one, which chunks and one's own predictives are not.
            single_program = not isinstance(pred, Deferred) and not jax.tree_util.all_leaves([pred])
            density = _log_prob(pred, batch.y) if single_program else pred.log_prob(batch.y)
            return float(-batch.total(density) / jnp.sum(batch.weight * batch.mask))
        if self._around is not None:
            return -likelihood_bound(mode, objective, self._around, self._key)
        return -evidence

    def search(self, mode: LaplaceFit, *, tempered: bool = False) -> ScaleSearch | None:
        """Returns the loss compiled for a fixed mode, if possible."""
        return scale_search(
            mode,
            (self.at(mode, 0.0)[1], self.at(mode, 1.0)[1]),
            self._key,
            self._held_out,
            self._rule,
            self._around,
            noisy=self._noisy,
            tempered=tempered,
            samples=_DRAWS,
            rows=_most_rows(self.at(mode, 0.0)[1]),
        )

    def best_around(self, mode: LaplaceFit, prior: LearnedNormal) -> tuple[float, float]:
        """Returns the logarithms of the best scale and noise factor at a fixed mode."""
        search = self.search(mode)

        def loss(point: tuple[float, float]) -> float:
            if search is None:
                return self.loss(*self.at(mode, *point))
            evidence, value = search(self.at(mode, point[0])[1], math.exp(point[1]))
            return value if math.isfinite(evidence) else math.inf

        if not self._noisy:
            of_scale: Callable[[float], float] = lambda log_scale: loss((log_scale, 0.0))
            return choose(of_scale, refine_grid, *_ENDS, **_GRID).best, 0.0
        first, bounds = (math.log(float(prior.start)), 0.0), (_ENDS, _NOISES)
        return choose(loss, simplex, first, (-1.0, 0.5), bounds, **_SIMPLEX).best

    def widest_around(self, mode: LaplaceFit) -> tuple[float, float]:
        """Returns the logarithms of a scale and a temperature at a fixed mode: the widest within the slack."""
        search = self.search(mode, tempered=True)
        weight, batches = None if search is None else search.weight, []
        if weight is None:
            under_one = self.at(mode, 0.0)[1]
            batches = batches_that_fit(
                mode, under_one, self._held_out, min(self._held_out.count, _most_rows(under_one)), True
            )
            weight = math.fsum(map(counted_weight, batches))

        def losses(log_scale: float) -> np.ndarray:
            under = self.at(mode, log_scale)[1]
            if search is not None:
                evidence, values = search(under, 1.0)
            else:
                evidence, belief = self.evidence(mode, under), mode.posterior(under, self._key).belief
                key_again, parts = jax.random.clone(self._key), (under.model, belief, mode.network_state)
                ready = cast("PredictiveRule", self._rule).prepare(*parts, _DRAWS, key_again)
                values = -sum(np.asarray(_tempered_total(ready, batch), float) for batch in batches) / weight
            return np.asarray(values) if math.isfinite(evidence) else np.full(len(LOG_TEMPERATURES), math.inf)

        return _widest(losses, _INTERVAL / weight)


def _alternate(judge: _Judge, mode: LaplaceFit, prior: LearnedNormal, find: Finder) -> _Tried:
    """Returns the scale by the evidence, in turn with the mode."""
    log_scale, factor = judge.best_around(mode, prior)
    mode, under = judge.at(mode, log_scale, factor)
    polished = find(mode, under, _SHORT)
    for _ in range(_ROUNDS):
        other = float(np.clip(float(_mackay(polished.mode, under)), *_ENDS))
        if not math.isfinite(other) or abs(other - log_scale) < _STILL:
            break
        mode, under_other = judge.at(polished.mode, other)
        candidate = find(mode, under_other, _SHORT)
        if not math.isfinite(judge.evidence(candidate.mode, under_other)):
            break
        log_scale, polished, under = other, candidate, under_other
    polished = polished if polished.found else find(polished.mode, under)
    return _Tried(log_scale, -judge.evidence(polished.mode, under), polished, under)


@jax.jit
def _mackay(mode: LaplaceFit, objective: Objective) -> Array:
    r"""Returns the logarithm of the scale at which the evidence is stationary, for fixed γ."""
    mean = mode.params["network"]
    precision = mode.precision(objective).factored()
    determined = well_determined(precision, objective, mean)
    return jnp.log(tree.dot(mean, mean) / jnp.maximum(determined, 1e-3)) / 2


def _search_by_rows(judge: _Judge, mode: LaplaceFit, prior: LearnedNormal, find: Finder) -> tuple[_Tried, list[_Tried]]:
    """Returns the scale by validation rows, with the mode of each; and all candidates."""
    tried: dict[float, _Tried] = {}
    near = mode  # the mode under the best scale so far

    def loss(log_scale: float) -> float:
        nonlocal near
        start, under = judge.at(near, log_scale)
        polished = find(start, under)
        tried[log_scale] = _Tried(log_scale, judge.loss(polished.mode, under), polished, under)
        if tried[log_scale].loss <= min(each.loss for each in tried.values()):
            near = polished.mode
        return tried[log_scale].loss

    choice = choose(loss, walk_downhill, math.log(float(prior.start)), _STRIDE, _ENDS)
    return tried[choice.best], list(tried.values())


def _report(chosen: _Tried, tried: list[_Tried], judge: _Judge | None) -> None:
    """Logs the choice; warns at an end of its range, and if the evidence contradicts the validation rows."""
    scale = math.exp(chosen.log_scale)
    logging.getLogger("lamu").info("The prior's scale is %.3g.", scale)
    for end in (_NARROWEST, _WIDEST):
        if abs(chosen.log_scale - math.log(end)) < 0.1:
            warnings.warn(
                f"the prior's scale {scale:.3g} is the end of its range ({_NARROWEST:g} to {_WIDEST:g}), where nothing "
                "was found to hold it; give the scale, Normal(scale), or check that the data say something",
                stacklevel=4,
            )
    if judge is None or not tried:
        return
    evidence = {candidate.log_scale: judge.evidence(candidate.found.mode, candidate.objective) for candidate in tried}
    by_evidence = max(evidence, key=lambda candidate: evidence[candidate])
    lost = evidence[by_evidence] - evidence[chosen.log_scale]
    if lost > _NATS_LOST and abs(by_evidence - chosen.log_scale) > _FAR:
        warnings.warn(
            f"the rows set aside chose the prior's scale {scale:.3g}, and the evidence {math.exp(by_evidence):.3g}, by "
            f"{lost:.0f} nats: the two disagree, so that neither model describes the data; compare both, "
            "Normal(scale), or a temperature",
            stacklevel=4,
        )


def _most_rows(objective: Objective) -> int:
    """Returns the largest number of validation rows that are evaluated; fewer for maps, which have many targets."""
    positions = objective.model.likelihood.n_positions if isinstance(objective.model, Model) else 1
    return max(1, min(_ROWS, _TARGETS // positions))


_tempered_total = jax.jit(tempered_total)


@jax.jit
def _log_prob(pred: PyTree, y: Targets) -> Array:
    return pred.log_prob(y)


def _widest(losses: Callable[[float], np.ndarray], slack: float) -> tuple[float, float]:
    """Returns the logarithms of the widest scale whose loss is within a slack of the least, and of its temperature."""
    # Trained weights are overconfident, seldom the other way: a temperature below one needs rows that distinguish it
    # from one, and the loss at a wider scale is compared with the best of those.
    losses, floor = cache(losses), -math.inf
    vertex_at = lambda log_scale: _vertex(LOG_TEMPERATURES, losses(log_scale), floor)

    def best() -> tuple[float, float, float]:
        log_scale = choose(lambda log_scale: vertex_at(log_scale)[0], refine_grid, *_ENDS, **_GRID).best
        return log_scale, *vertex_at(log_scale)

    widest, least, log_temperature = best()
    limit = least + slack
    if log_temperature < 0.0:
        floor = 0.0
        at_one, loss, _ = best()
        widest, floor = (at_one, 0.0) if loss <= limit else (widest, log_temperature)
    else:
        floor = 0.0
    within_slack = lambda log_scale: vertex_at(log_scale)[0] <= limit
    next_wider = widest
    while next_wider < _ENDS[1] and within_slack(next_wider):
        widest, next_wider = next_wider, min(next_wider + _STEP, _ENDS[1])
    widest = (
        next_wider if within_slack(next_wider) else last_within(within_slack, widest, next_wider, until=_GRID["until"])
    )
    return widest, vertex_at(widest)[1]


def _vertex(places: np.ndarray, values: np.ndarray, floor: float) -> tuple[float, float]:
    """Returns the least value at or above a floor and its place, by a parabola through three equal steps."""
    if not np.isfinite(values).all():
        return math.inf, 0.0
    step = float(places[1] - places[0])
    best = int(np.argmin(np.where(places >= floor - step / 2, values, np.inf)))
    middle = min(max(best, 1), len(places) - 2)
    before, value, after = (float(values[middle + offset]) for offset in (-1, 0, 1))
    slope, curvature = (after - before) / 2, before - 2 * value + after
    shift = -slope / curvature if curvature > 0 else float(best - middle)
    shift = min(max(shift, -1.0, (floor - float(places[middle])) / step), 1.0)
    return value + slope * shift + curvature * shift**2 / 2, float(places[middle]) + step * shift
