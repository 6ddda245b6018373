"""Monte Carlo: averages over draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.expectations import bonnet_price
from lamu.expectations.estimate import ValueAndGradient
from lamu.expectations.interface import Expectation
from lamu.expectations.reparameterised import average, require_draws
from lamu.expectations.samplers import IndependentSamples, Sampler, layer_key, require_gaussian
from lamu.families import Gaussian, MultivariateNormal
from lamu.objective import BatchLoss
from lamu.objective.curvature import Curvature, Evaluation
from lamu.record import record, static
from lamu.typing import RandomKey

__all__ = ["MonteCarlo"]


@record
class MonteCarlo(Expectation):
    r"""Averages over S draws, \(E_q[h(\theta)] \approx \frac1S \sum_s h(\theta_s)\): S gradients, unbiased.

    The draws are reparameterised, \(\theta = m + S^{-1/2} \epsilon\), and taken one after the other, so that memory
    does not grow with S. A network's state is averaged over the draws.

    Without a network, `gradient` is the same for any function of a Gaussian θ, with its Hessian at the draws, so that
    no step of the rule leaves the cone of precisions where the loss is convex, however few the draws. It takes plates
    of vectors too (`lamu.families.MultivariateNormal`, independent draws). `Reparameterised` is its counterpart without
    Hessians and for other beliefs.

    Attributes:
        samples: S.
        sampler: how the draws are spread: independent, antithetic, quasi-Monte Carlo or a Latin hypercube.

    Raises:
        ValueError: for fewer than one draw, or a number that the sampler cannot make.

    Examples:
        >>> from lamu.expectations import Antithetic, MonteCarlo
        >>> MonteCarlo(samples=2, sampler=Antithetic()).samples
        2
    """

    samples: int = static(default=1)
    sampler: Sampler = IndependentSamples()

    def __post_init__(self) -> None:
        require_draws(self.samples)
        self.sampler.require(self.samples)

    def evaluate(
        self, key: RandomKey, belief: Gaussian, loss: BatchLoss, curvature: Curvature, structure: Any
    ) -> Evaluation:
        """Returns averages over the draws."""
        factored = Gaussian(belief.mean, belief.precision.factored())

        def at_draw(index: Any) -> Evaluation:
            theta = self.sampler.draw(key, factored, index, self.samples)
            return curvature.evaluate(loss, theta, belief, structure, layer_key(key, index, self.samples))

        if self.samples == 1:
            return at_draw(0)
        evaluations = jax.lax.map(at_draw, jnp.arange(self.samples))
        others, stacked = tree.average(replace(evaluations, curvature=None)), evaluations.curvature
        return others if stacked is None else replace(others, curvature=stacked.averaged())

    def gradient(self, key: RandomKey, belief: Any, loss: Callable[[Any], Any]) -> ValueAndGradient:
        """Returns averages over the draws, by Bonnet's theorem and Price's with Hessians."""
        if not isinstance(belief, MultivariateNormal):
            require_gaussian(belief, "MonteCarlo()")
        factored = bonnet_price.factored(belief)
        at_draw = lambda i: bonnet_price.at_point(belief, loss, self.sampler.draw(key, factored, i, self.samples))
        return bonnet_price.in_expectation(belief, *average(at_draw, self.samples))
