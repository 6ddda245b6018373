"""Exact messages for the scales of a hierarchical prior, combined with a Gaussian belief about the weights."""

# \[ q(w, \tau) = q(w) \prod_{l,g} q(\tau_{l,g}^{-2}), \qquad
#    w_i \mid \tau \sim N\big(0,\; s_i^2 \prod_l \tau_{l,g_l(i)}^2\big) \]
#
# | on paper | in code |
# |---|---|
# | \(q(\tau_{l,g}^{-2}) = \mathrm{Gamma}(a_{l,g}, b_{l,g})\) | `ScalesState.precisions[l]`, a `Gamma` of trees |
# | \(E[\tau_{l,g}^{-2}]\) | its `mean` |

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lamu import tree
from lamu.algorithms.variational.online_newton import ivon
from lamu.data.batch import Batch
from lamu.families import Gamma, Gaussian
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.priors import Hierarchy, LayerwiseNormal, Normal, Prior
from lamu.protocol import Algorithm, Choices, Info, Wrapper, recipe, require_part, runnable
from lamu.record import record
from lamu.target import weights_belief
from lamu.typing import Array, Belief, Data, Numeric, Params, RandomKey, State, Trace

__all__ = ["ConjugateScales", "ScalesState", "conjugate_scales", "scale_messages"]


@record
class ScalesState:
    """State carried between steps."""

    inner: State  # the state of the weights' algorithm
    # The belief about the precisions 1/τ² of each level, a `Gamma` whose shape and rate are dictionaries by group.
    precisions: tuple[Gamma, ...]
    prior: LayerwiseNormal  # the normal prior of the weights, with their mean precisions


@record
class ConjugateScales(Wrapper):
    """Algorithm of `conjugate_scales`."""

    base: Algorithm  # the algorithm that learns the weights

    @property
    def choices(self) -> Choices:
        choices = self.base.choices
        return replace(choices, family=f"{choices.family}, times Gamma of every scale")

    def inner(self, state: ScalesState) -> State:
        # Returns the state of the weights' algorithm.
        return state.inner

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> ScalesState:
        # Returns the first state, under the prior with typical scales.
        prior = _conjugate(objective.model.prior)
        model = _under(objective, prior.standardised).model
        weights = model.complete(model.init(key, batch)[0]["network"])
        prior.check_weights(weights)
        precisions = tuple(
            Gamma(level.constant(0.5, weights), level.constant(0.5 * level.law.typical**2, weights))
            for level in prior.levels
        )
        normal = _mean_prior(prior, precisions, weights)
        inner = self.base.init(jax.random.clone(key), _under(objective, normal), batch)
        return ScalesState(inner, precisions, normal)

    def step(self, key: RandomKey, state: ScalesState, batch: Batch, objective: Objective) -> tuple[ScalesState, Info]:
        # Returns the state after a step of the weights, and of the messages to the scales.
        prior, under = _conjugate(objective.model.prior), _under(objective, state.prior)
        inner, info = self.base.step(key, state.inner, batch, under)
        belief = self._belief(jax.random.clone(key), inner, under)
        squares = jax.tree.map(lambda m, v: m * m + v, belief.mean, belief.precision.variance(belief.mean))
        if objective.model.frozen is not None:  # frozen weights inform their scale too
            squares = tree.merged(squares, jax.tree.map(jnp.square, objective.model.frozen))
        precisions = scale_messages(prior, state.precisions, squares, objective.temperature)
        return ScalesState(inner, precisions, _mean_prior(prior, precisions, state.prior.scale)), info

    def check_memory(self, objective: Objective, shapes: Callable[[], Params]) -> None:
        # Raises what the weights' algorithm raises, and a TypeError for a prior whose scales are not conjugate.
        prior = _conjugate(objective.model.prior)
        runnable(self.base).check_memory(_under(objective, prior.standardised), shapes)

    def preview(self, key: RandomKey, state: ScalesState, objective: Objective) -> Posterior:
        # Returns the state's current posterior, under the current normal prior.
        return runnable(self.base).preview(key, state.inner, _under(objective, state.prior))

    def posterior(
        self, key: RandomKey, state: ScalesState, objective: Objective, data: Data, trace: Trace
    ) -> Posterior:
        # Returns the belief about the weights; its model has the normal prior with the mean precisions.
        return self.base.posterior(key, state.inner, _under(objective, state.prior), data, trace)

    def _belief(self, key: RandomKey, inner: State, objective: Objective) -> Gaussian:
        belief = weights_belief(runnable(self.base).preview(key, inner, objective))
        if not isinstance(belief, Gaussian):
            raise TypeError(
                f"the messages to the scales need variances of the weights, and a {type(belief).__name__} has none; "
                "give an algorithm of a Gaussian belief, for instance conjugate_scales(ivon())"
            )
        return belief


@recipe("MacKay 1994; Louizos, Ullrich & Welling 2017")
def conjugate_scales(base: Algorithm | None = None) -> ConjugateScales:
    r"""A Gaussian belief about the weights of any network, and gamma beliefs about the scales of their prior.

    Each step updates the weights under the normal prior with the mean precisions, then sends every scale its exact
    message, for n weights of the scale with precisions \(\delta_i\) of their standardised prior,

    \[ q(\tau_{l,g}^{-2}) = \mathrm{Gamma}\Big(a + \tfrac n2,\; b + \tfrac12 \sum_{i \in g} E[w_i^2]\, \delta_i
       \prod_{k \ne l} E[\tau_{k,g_k(i)}^{-2}]\Big), \qquad
       w_i \sim N\Big(0,\; \big(\delta_i \prod_l E[\tau_{l,g_l(i)}^{-2}]\big)^{-1}\Big) \]

    which is the rule at ρ = 1 for the scales; at temperature T the natural parameters, without those of the entropy,
    are divided by T, those of a half-Cauchy's auxiliary variable too. The scales of irrelevant inputs go to zero,
    which a mean field in the non-centred parameterisation does not achieve.

    The prior is `Hierarchical`, `ARD` or `Horseshoe` of half-Cauchy or inverse-gamma scales and normal weights without
    a mean, passed unchanged: `Model(network, likelihood, prior)`, not around the network. The posterior's model has the
    normal prior with the mean precisions; the beliefs about the scales are in the run's `state.precisions`.

    Departures from the rule: those of the weights' algorithm.

    Cost of a step: that of the weights' algorithm, and a few passes over the weights; no gradient.

    Args:
        base: algorithm for the weights, with a Gaussian belief; `ivon()` where None.

    Returns:
        An algorithm.

    Raises:
        TypeError: for a prior whose scales are not conjugate, or an algorithm without a Gaussian belief.

    Source: MacKay (1994); Wand et al. (2011) for the half-Cauchy; Louizos, Ullrich & Welling (2017) for networks.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.MLP((4,)), lamu.likelihoods.Gaussian(), lamu.priors.ARD())
        >>> run = lamu.fit(model.standardised(x, y), (x, y), lamu.algorithms.conjugate_scales(), epochs=2)
        >>> run.state.precisions[0].mean["layers/0/kernel"].shape
        (10, 1)
    """
    return ConjugateScales(require_part(ivon() if base is None else base, "base"))


def scale_messages(
    prior: Hierarchy, precisions: tuple[Gamma, ...], squares: Params, temperature: Numeric = 1.0
) -> tuple[Gamma, ...]:
    """Returns the beliefs about the precisions of all levels after one message to each, in their order."""
    delta = _standardised(prior, squares)
    beliefs = list(precisions)
    for index, level in enumerate(prior.levels):
        others = [
            (other, belief.mean)
            for k, (other, belief) in enumerate(zip(prior.levels, beliefs, strict=True))
            if k != index
        ]
        weighted = tree.map_with_path(
            lambda path, square, d, others=others: square * d * _product(others, path), squares, delta
        )
        counts, sums = level.sums(jax.tree.map(jnp.ones_like, squares)), level.sums(weighted)
        shape, rate = {}, {}
        for group, mean in beliefs[index].mean.items():
            a, b = level.law.precision_prior(mean, temperature)
            shape[group] = (a - 1 + counts[group] / 2) / temperature + 1
            rate[group] = (b + sums[group] / 2) / temperature
        beliefs[index] = Gamma(shape, rate)
    return tuple(beliefs)


def _mean_prior(prior: Hierarchy, precisions: tuple[Gamma, ...], weights: Params) -> LayerwiseNormal:
    """Returns the normal prior with the mean precisions."""
    levels = [(level, belief.mean) for level, belief in zip(prior.levels, precisions, strict=True)]
    scale = lambda path, d: jax.lax.rsqrt(d * _product(levels, path))
    scales = tree.map_with_path(scale, _standardised(prior, weights))
    # The location has the scales' dtype: a Python number would be a leaf of the state in another dtype.
    return LayerwiseNormal(scales, jnp.zeros((), jax.tree.leaves(scales)[0].dtype))


def _standardised(prior: Hierarchy, weights: Params) -> Params:
    """Returns the precisions of the standardised weights."""
    gaussian: Belief = prior.standardised.gaussian(weights)
    return gaussian.precision.diagonal(weights)


def _product(levels: list[Params], path: str) -> Array | float:
    """Returns the product of the mean precisions of a leaf's scales, in a shape that broadcasts to it."""
    return math.prod((level.of(means, path) for level, means in levels if level.covers(path)), start=1.0)


def _under(objective: Objective, prior: Prior) -> Objective:
    return replace(objective, model=replace(objective.model, prior=prior))


def _conjugate(prior: Prior) -> Hierarchy:
    """Returns the prior, after a check that its scales are conjugate to normal weights."""
    if not isinstance(prior, Hierarchy) or not prior.multiplies:
        raise TypeError(
            f"conjugate_scales() learns the scales of ARD(), Horseshoe() or Hierarchical(), and {type(prior).__name__} "
            "has no conjugate ones; give one of them as the model's prior"
        )
    weights = prior.standardised
    if not isinstance(weights, Normal) or (not isinstance(weights.loc, Tracer) and weights.loc != 0):
        raise TypeError(f"the weights' prior {weights!r} is not normal of mean 0; give Normal(1.0)")
    return prior
