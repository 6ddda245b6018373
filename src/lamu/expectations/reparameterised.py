"""Reparameterised draws: one gradient of the loss at each, of any belief whose draws move smoothly with λ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.expectations import bonnet_price
from lamu.expectations.estimate import ValueAndGradient
from lamu.expectations.fisher import inverse_fisher, require_exponential
from lamu.expectations.samplers import IndependentSamples, Sampler
from lamu.families import Beta, Dirichlet, Exponential, Gamma, Gaussian, InverseGamma, NaturalParameters
from lamu.record import record, static
from lamu.typing import RandomKey

__all__ = ["Reparameterised"]

# The families whose draws are differentiable in their parameters.
_SMOOTH = (Beta, Dirichlet, Exponential, Gamma, InverseGamma)


@record
class Reparameterised:
    r"""Averages over S draws of gradients that went through the draw: S gradients, unbiased.

    For a Gaussian, Bonnet's theorem for the first and Price's identity for the second parameter:
    \(\nabla\ell(\theta)\) and \(S(\theta - m)\nabla\ell(\theta)^\top\) at the draws. That matrix is indefinite where
    draws are few, also for a convex loss: move it by `lamu.geometry.Retraction`, or take Hessians (`MonteCarlo`). For a
    Gamma, Beta, Dirichlet or another belief with continuous draws, implicit reparameterisation and then the small
    Fisher blocks:

    \[ \nabla_\lambda E_q[\ell] = E_q\Big[ \frac{\partial\theta}{\partial\lambda}^{\!\top} \nabla\ell(\theta) \Big],
       \quad \frac{\partial\theta}{\partial\lambda} = - \frac{\partial_\lambda Q(\theta)}{q(\theta)}, \qquad
       \nabla_\mu = F^{-1} \nabla_\lambda \]

    with Q the distribution function: JAX differentiates its Gamma draws so, and the others are made of them. The
    implicit derivative of a Gamma draw costs far more than the draw, so that an expectation known in μ (`Analytic`) is
    to be preferred where there is one.

    Attributes:
        samples: S.
        sampler: how the draws of a Gaussian are spread; other beliefs' draws are independent.

    Raises:
        TypeError: for a belief whose draws jump, such as a Bernoulli.
        ValueError: for fewer than one draw, or a number that the sampler cannot make.

    Source: Figurnov, Mohamed & Mnih (2018); Lin, Khan & Schmidt (2019) for Price's identity.

    Examples:
        >>> import jax
        >>> from lamu.expectations import Reparameterised
        >>> from lamu.families import Gamma
        >>> found = Reparameterised(1024).gradient(jax.random.key(0), Gamma(3.0, 2.0), lambda theta: theta)
        >>> abs(float(found.gradient.values[1]) - 1.0) < 0.2  # of E θ, the second expectation parameter
        True
    """

    samples: int = static(default=1)
    sampler: Sampler = IndependentSamples()

    departure = ""

    def __post_init__(self) -> None:
        require_draws(self.samples)
        self.sampler.require(self.samples)

    def gradient(self, key: RandomKey, belief: Any, loss: Callable[[Any], Any]) -> ValueAndGradient:
        """Returns averages over the draws."""
        slope = jax.value_and_grad(loss)
        if isinstance(belief, Gaussian):
            factored = Gaussian(belief.mean, belief.precision.factored())

            def at_draw(index: Any) -> Any:
                theta = self.sampler.draw(key, factored, index, self.samples)
                value, gradient = slope(theta)
                away = belief.precision.matvec(tree.add(theta, belief.mean, -1.0))
                return value, gradient, type(belief.precision).from_outer(away, gradient)  # pyright: ignore[reportAttributeAccessIssue]

            return bonnet_price.in_expectation(belief, *average(at_draw, self.samples))
        require_exponential(belief, "Reparameterised()")
        if not isinstance(belief, _SMOOTH):
            raise TypeError(
                f"Reparameterised() needs draws that move smoothly with λ, which those of a {type(belief).__name__} do "
                "not; use ScoreFunction(), or Relaxed() for binary and categorical beliefs"
            )
        natural = belief.natural()

        def at_implicit(index: Any) -> Any:
            def draw(values: Any) -> Any:
                moved = natural.of.from_natural(values, natural.given)
                return self.sampler.draw(key, moved, index, self.samples)

            theta, pull = jax.vjp(draw, natural.values)
            value, gradient = slope(theta)
            return value, pull(gradient)[0]

        value, in_natural = average(at_implicit, self.samples)
        return ValueAndGradient(value, NaturalParameters(inverse_fisher(belief)(in_natural), natural.given, natural.of))


def require_draws(samples: Any) -> None:
    """Refuses an average over nothing."""
    if not isinstance(samples, int) or samples < 1:
        raise ValueError(f"{samples!r} draws cannot be averaged; ask for at least one")


def average(at_draw: Callable[[Any], Any], samples: int) -> Any:
    """Returns the average of a function of the draw's index, one draw after the other."""
    if samples == 1:
        return at_draw(0)
    return tree.average(jax.lax.map(at_draw, jnp.arange(samples)))
