"""The score function: losses at draws, and no gradient of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.expectations import pathwise
from lamu.expectations.interface import ValueAndGradient
from lamu.expectations.pathwise import inverse_fisher, require_draws, require_exponential
from lamu.expectations.samplers import IndependentSamples, Sampler
from lamu.families import Gaussian, NaturalParameters
from lamu.record import record, static
from lamu.typing import Array, Belief, Number, Numeric, Params, PyTree, RandomKey, Statistics

__all__ = ["ConstantBaseline", "Control", "LeaveOneOut", "MovingAverageBaseline", "Regression", "ScoreFunction"]


# With \(s_i = T(\theta_i) - \mu\) the score and \(\psi_i = F^{-1} s_i\) the natural one, every estimate here is a
# weighted sum \(\sum_i c_i\, \psi_i\): a control turns the S losses into the S weights \(c_i\). Scores are zero on
# average, so that taking a number off the losses changes no mean, as long as it does not depend on the draw that it is
# taken off.


@record
class Control:
    """Base class of what is taken off the losses; by itself nothing.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.expectations import Control
        >>> Control().weights(jnp.array([1.0, 3.0]), lambda: None).tolist()
        [0.5, 1.5]
    """

    def require(self, count: int) -> None:
        """Raises a ValueError where so many draws are too few; any number is enough, unless overridden."""

    def baseline(self, losses: Array) -> Array:
        """Returns what is taken off each loss; nothing, unless overridden."""
        return jnp.zeros_like(losses)

    def weights(self, losses: Array, kernel: Callable[[], Array]) -> Array:
        r"""Returns the weights \(c_i\) of the natural scores: the losses over the baseline, unless overridden.

        Args:
            losses: \(\ell(\theta_i)\), `[S]`.
            kernel: returns \(s_i^\top F^{-1} s_j\), `[S, S]`; a function, since only some controls need it.
        """
        return (losses - self.baseline(losses)) / losses.size


@record
class ConstantBaseline(Control):
    r"""One number for all draws, \(c_i = (\ell_i - b)/S\); zero is the plain score function.

    Attributes:
        value: b.

    Source: Williams (1992).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.expectations import ConstantBaseline
        >>> ConstantBaseline(1.0).weights(jnp.array([1.0, 3.0]), lambda: None).tolist()
        [0.0, 1.0]
    """

    value: Number = 0.0

    def baseline(self, losses: Array) -> Array:
        return jnp.asarray(self.value, losses.dtype)


@record
class LeaveOneOut(Control):
    r"""For each draw the average loss of the others, \(c_i = \big(\ell_i - \tfrac{1}{S-1}\sum_{j\ne i}\ell_j\big)/S\).

    Unbiased and without a state; it needs two draws or more.

    Source: Kool, van Hoof & Welling (2019).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.expectations import LeaveOneOut
        >>> LeaveOneOut().weights(jnp.array([1.0, 3.0]), lambda: None).tolist()
        [-1.0, 1.0]
    """

    def require(self, count: int) -> None:
        """Refuses a single draw, which leaves nothing when it is left out."""
        require_others(count, "LeaveOneOut()")

    def baseline(self, losses: Array) -> Array:
        return others(losses)


@record
class MovingAverageBaseline(Control):
    r"""A moving average of earlier values, \(b \leftarrow \beta b + (1-\beta)\,\bar\ell\), corrected at the start.

    The state is in the record: `updated` returns the control of the next estimate. Unbiased, because b knows only
    earlier draws, and good from one draw a step.

    Attributes:
        decay: β.
        total: the average before the correction.
        weight: the share of it that is known, \(1 - \beta^t\) after t updates.

    Raises:
        ValueError: for a decay outside [0, 1).

    Source: Williams (1992); Ranganath, Gerrish & Blei (2014).

    Examples:
        >>> from lamu.expectations import MovingAverageBaseline
        >>> float(MovingAverageBaseline(decay=0.5).updated(4.0).average)
        4.0
    """

    decay: Number = 0.9
    total: Numeric = 0.0
    weight: Numeric = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.decay, float | int) and not 0.0 <= self.decay < 1.0:
            raise ValueError(f"the decay {self.decay!r} of a moving average is outside [0, 1); take 0.9, for instance")

    @property
    def average(self) -> Array:
        """b, zero before the first update."""
        known = jnp.asarray(self.weight) > 0.0
        total, weight = jnp.asarray(self.total), jnp.asarray(self.weight)
        return jnp.where(known, total / jnp.where(known, weight, jnp.ones_like(weight)), jnp.zeros_like(total))

    def updated(self, value: Numeric) -> MovingAverageBaseline:
        """Returns the control for the next estimate, from the value of this one."""
        value = jnp.asarray(value)
        mix = lambda old, new: jnp.asarray(self.decay, value.dtype) * (jnp.asarray(old, value.dtype) - new) + new
        return MovingAverageBaseline(self.decay, mix(self.total, value), mix(self.weight, jnp.ones_like(value)))

    def baseline(self, losses: Array) -> Array:
        return self.average.astype(losses.dtype)


@record
class Regression(Control):
    r"""A learned baseline, linear in the score: \(b = c + w^\top s(\theta)\), fitted without the draw that it serves.

    The linear part has a mean that is known, \(E[w^\top s\, \psi] = w\), which is added back:

    \[ \nabla_\mu \approx \frac1S \sum_i \big[ (\ell_i - c_{-i} - w_{-i}^\top s_i)\, \psi_i + w_{-i} \big] \]

    w is the ridge regression of the other draws' losses on their scores, with the Fisher matrix in the penalty, as if r
    draws had found no slope. The best w is \(\nabla_\mu E_q[\ell]\) itself, so that a loss linear in T(θ) loses its
    variance as S grows. All fits come from one kernel matrix \(K_{ij} = s_i^\top F^{-1} s_j\) of the draws, inverted
    once, whatever the dimension:

    \[ w_{-i} = \sum_j \Big( \alpha_j - G_{ji} \frac{\alpha_i}{G_{ii}} \Big) \psi_j, \qquad
       \alpha = G\,(\ell - c_{-i}), \quad G = (K + r I)^{-1} \]

    Attributes:
        ridge: r, in draws.

    Raises:
        ValueError: for a ridge that is not positive.

    Source: Salimans & Knowles (2013), for the regression; the fits without a draw make it unbiased.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.expectations import Regression
        >>> Regression().weights(jnp.array([1.0, 3.0]), lambda: jnp.zeros((2, 2))).tolist()  # no scores: the constant
        [-1.0, 1.0]
    """

    ridge: Number = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.ridge, float | int) and not self.ridge > 0.0:
            raise ValueError(f"the ridge {self.ridge!r} of a regression is not positive; take 1.0, for instance")

    def require(self, count: int) -> None:
        """Refuses a single draw, which leaves nothing to fit when it is left out."""
        require_others(count, "Regression()")

    def weights(self, losses: Array, kernel: Callable[[], Array]) -> Array:
        """Returns each residual, and the share of each score in the others' slopes, divided by S."""
        K = kernel()
        eye = jnp.eye(losses.size, dtype=losses.dtype)
        G = jnp.linalg.inv(K + jnp.asarray(self.ridge, losses.dtype) * eye)
        centred = losses[None, :] - others(losses)[:, None]  # row i: as the fit without draw i sees the losses
        alpha = centred @ G
        alpha = alpha - G * (jnp.diagonal(alpha) / jnp.diagonal(G))[:, None]
        alpha = alpha * (1.0 - eye)  # zero in exact arithmetic
        residuals = jnp.diagonal(centred) - jnp.sum(alpha * K, axis=1)
        return (residuals + jnp.sum(alpha, axis=0)) / losses.size


def others(losses: Array) -> Array:
    """Returns for each draw the average loss of the others."""
    return (jnp.sum(losses) - losses) / (losses.size - 1)


def require_others(count: int, name: str) -> None:
    """Refuses a single draw."""
    if count < 2:
        raise ValueError(f"{name} leaves the draw out that it serves, and needs two draws or more, not {count}")


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

    def gradient(self, key: RandomKey, belief: Belief, loss: Callable[[Params], Array]) -> ValueAndGradient:
        """Returns the average loss, and the sum of natural scores weighed by what the control leaves."""
        at_draw, finished = _gaussian_scores(belief) if isinstance(belief, Gaussian) else _scores(belief)
        factored = Gaussian(belief.mean, belief.precision.factored()) if isinstance(belief, Gaussian) else belief

        def one(index: Numeric) -> tuple[Array, PyTree, PyTree]:
            theta = self.sampler.draw(key, factored, index, self.samples)
            return jnp.asarray(loss(theta)), *at_draw(theta)

        losses, scores, natural_scores = tree.each(one, self.samples)

        def kernel() -> Array:
            flat = jax.vmap(lambda score: tree.ravel(score)[0])
            return (flat(scores) @ flat(natural_scores).T).astype(losses.dtype)

        weights = self.control.weights(losses, kernel)
        weigh = lambda leaf: jnp.tensordot(weights.astype(leaf.dtype), leaf, axes=1)
        return ValueAndGradient(jnp.mean(losses), finished(jax.tree.map(weigh, natural_scores)))


def _scores(belief: Belief) -> tuple[Callable[[Params], PyTree], Callable[[PyTree], Statistics]]:
    r"""Returns what makes a draw's score \(T(\theta) - \mu\) and natural score, and what a sum of the latter is."""
    require_exponential(belief, "ScoreFunction()")
    natural, mu, solve = belief.natural(), belief.expectation().values, inverse_fisher(belief)

    def at_draw(theta: Params) -> tuple[PyTree, PyTree]:
        score = tree.add(belief.statistics(theta), mu, -1.0)
        return score, solve(score)

    return at_draw, lambda values: NaturalParameters(values, natural.given, natural.of)


def _gaussian_scores(belief: Gaussian) -> tuple[Callable[[Params], PyTree], Callable[[PyTree], Statistics]]:
    """Returns the same for a Gaussian, with scores around its mean, where nothing cancels."""
    structure: Any = type(belief.precision)
    spread = structure.second_moment(belief.precision, belief.mean)

    def at_draw(theta: Params) -> tuple[PyTree, PyTree]:
        away = tree.add(theta, belief.mean, -1.0)
        pull = belief.precision.matvec(away)
        bend = jax.tree.map(jnp.subtract, structure.from_outer(pull, pull), belief.precision)
        return (away, jax.tree.map(jnp.subtract, structure.statistic(away), spread)), (pull, bend.scale(0.5))

    def finished(sums: PyTree) -> Statistics:
        pull, half = sums
        return pathwise.in_expectation(belief, None, pull, half.scale(2.0)).gradient

    return at_draw, finished
