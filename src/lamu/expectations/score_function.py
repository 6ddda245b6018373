"""The score function: losses at draws, and no gradient of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.expectations import bonnet_price
from lamu.expectations.controls import ConstantBaseline, Control
from lamu.expectations.estimate import ValueAndGradient
from lamu.expectations.fisher import inverse_fisher, require_exponential
from lamu.expectations.reparameterised import require_draws
from lamu.expectations.samplers import IndependentSamples, Sampler
from lamu.families import Gaussian, NaturalParameters
from lamu.record import record, static
from lamu.typing import Array, RandomKey

__all__ = ["ScoreFunction"]


@record
class ScoreFunction:
    r"""\(\nabla_\mu E_q[\ell] = E_q\big[ (\ell(\theta) - b)\, F^{-1} (T(\theta) - \mu) \big]\), unbiased for any loss.

    It asks for S values of the loss and no gradient, so that ℓ may jump and θ may be discrete. Its variance grows with
    the number of parameters, which is what control variates are against. For a Gaussian the natural score is, with \(a
    = \theta - m\), Bonnet's and Price's pair of \(S a\) and \(S a a^\top S - S\), in the structure of S. The S natural
    scores are kept at once: S times the memory of λ.

    Attributes:
        samples: S.
        control: what is subtracted from the losses: `ConstantBaseline`, `LeaveOneOut`, `MovingAverageBaseline` or
            `Regression`.
        sampler: how the draws of a Gaussian are spread; `LeaveOneOut` and `Regression` are unbiased for independent
            draws alone.

    Raises:
        TypeError: for a belief that is no exponential family.
        ValueError: for fewer draws than the control needs, or draws that depend on each other where it must not be.

    Source: Williams (1992); Ranganath, Gerrish & Blei (2014).

    Examples:
        >>> import jax
        >>> from lamu.expectations import LeaveOneOut, ScoreFunction
        >>> from lamu.families import Poisson
        >>> found = ScoreFunction(512, LeaveOneOut()).gradient(jax.random.key(0), Poisson(0.5), lambda n: 2.0 * n)
        >>> abs(float(found.gradient.values) - 2.0) < 0.5  # of 2 E n
        True
    """

    samples: int = static(default=16)
    control: Control = ConstantBaseline()
    sampler: Sampler = IndependentSamples()

    departure = ""

    def __post_init__(self) -> None:
        require_draws(self.samples)
        self.control.require(self.samples)
        self.sampler.require(self.samples)
        fitted = not hasattr(self.control, "average") and not isinstance(self.control, ConstantBaseline)
        if fitted and not isinstance(self.sampler, IndependentSamples):
            raise ValueError(
                f"{type(self.control).__name__}() takes off what other draws say, which is unbiased for independent "
                f"draws and not for those of {type(self.sampler).__name__}(); take ConstantBaseline() or "
                "MovingAverageBaseline()"
            )

    def gradient(self, key: RandomKey, belief: Any, loss: Callable[[Any], Any]) -> ValueAndGradient:
        """Returns the average loss, and the sum of natural scores weighed by what the control leaves."""
        at_draw, finished = _gaussian_scores(belief) if isinstance(belief, Gaussian) else _scores(belief)
        factored = Gaussian(belief.mean, belief.precision.factored()) if isinstance(belief, Gaussian) else belief

        def one(index: Any) -> tuple[Any, Any, Any]:
            theta = self.sampler.draw(key, factored, index, self.samples)
            return jnp.asarray(loss(theta)), *at_draw(theta)

        losses, scores, natural_scores = jax.lax.map(one, jnp.arange(self.samples))

        def kernel() -> Array:
            flat = jax.vmap(lambda score: tree.ravel(score)[0])
            return (flat(scores) @ flat(natural_scores).T).astype(losses.dtype)

        weights = self.control.weights(losses, kernel)
        weigh = lambda leaf: jnp.tensordot(weights.astype(leaf.dtype), leaf, axes=1)
        return ValueAndGradient(jnp.mean(losses), finished(jax.tree.map(weigh, natural_scores)))


def _scores(belief: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    r"""Returns what makes a draw's score \(T(\theta) - \mu\) and natural score, and what a sum of the latter is."""
    require_exponential(belief, "ScoreFunction()")
    natural, mu, solve = belief.natural(), belief.expectation().values, inverse_fisher(belief)

    def at_draw(theta: Any) -> tuple[Any, Any]:
        score = tree.add(belief.statistics(theta), mu, -1.0)
        return score, solve(score)

    return at_draw, lambda values: NaturalParameters(values, natural.given, natural.of)


def _gaussian_scores(belief: Gaussian) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Returns the same for a Gaussian, with scores around its mean, where nothing cancels."""
    structure: Any = type(belief.precision)
    spread = structure.second_moment(belief.precision, belief.mean)

    def at_draw(theta: Any) -> tuple[Any, Any]:
        away = tree.add(theta, belief.mean, -1.0)
        pull = belief.precision.matvec(away)
        bend = jax.tree.map(jnp.subtract, structure.from_outer(pull, pull), belief.precision)
        return (away, jax.tree.map(jnp.subtract, structure.statistic(away), spread)), (pull, bend.scale(0.5))

    def finished(sums: Any) -> Any:
        pull, half = sums
        return bonnet_price.in_expectation(belief, None, pull, half.scale(2.0)).gradient

    return at_draw, finished
