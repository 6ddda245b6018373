"""The score function estimator, from losses at draws without their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import require, require_whole_field
from lamu.expectations import pathwise
from lamu.expectations.interface import ValueAndGradient
from lamu.expectations.pathwise import inverse_fisher, require_exponential
from lamu.expectations.samplers import IndependentSamples, Sampler
from lamu.families import Gaussian, NaturalParameters
from lamu.record import record, static
from lamu.typing import Array, Belief, Number, Numeric, Params, PyTree, RandomKey, Statistics

__all__ = ["ConstantBaseline", "Control", "LeaveOneOut", "MovingAverageBaseline", "Regression", "ScoreFunction"]


# With \(s_i = T(\theta_i) - \mu\) the score and \(\psi_i = F^{-1} s_i\) the natural one, every estimate here is a
# weighted sum \(\sum_i c_i\, \psi_i\): a control turns the S losses into the S weights \(c_i\). Scores have mean
# zero, so that subtracting a baseline from a loss does not change the expectation, if the baseline is independent of
# the draw.


@record
class Control:
    """Base class of control variates; the base subtracts nothing.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.expectations import Control
        >>> Control().weights(jnp.array([1.0, 3.0]), lambda: None).tolist()
        [0.5, 1.5]
    """

    def require(self, count: int) -> None:
        """Raises a ValueError for too few draws; by default any number is enough."""

    def baseline(self, losses: Array) -> Array:
        """Returns the baseline of each loss; zero by default."""
        return jnp.zeros_like(losses)

    def weights(self, losses: Array, kernel: Callable[[], Array]) -> Array:
        r"""Returns the weights \(c_i\) of the natural scores; by default the losses minus the baseline.

        Args:
            losses: \(\ell(\theta_i)\), `[S]`.
            kernel: returns \(s_i^\top F^{-1} s_j\), `[S, S]`; a function, since only some controls need it.
        """
        return (losses - self.baseline(losses)) / losses.size


@record
class ConstantBaseline(Control):
    r"""A constant baseline, \(c_i = (\ell_i - b)/S\); zero is the plain score function.

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

    Unbiased and stateless; it needs at least two draws.

    Source: Kool, van Hoof & Welling (2019).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.expectations import LeaveOneOut
        >>> LeaveOneOut().weights(jnp.array([1.0, 3.0]), lambda: None).tolist()
        [-1.0, 1.0]
    """

    def require(self, count: int) -> None:
        """Raises a ValueError for a single draw."""
        require_others(count, "LeaveOneOut()")

    def baseline(self, losses: Array) -> Array:
        return others(losses)


@record
class MovingAverageBaseline(Control):
    r"""A moving average of earlier values, \(b \leftarrow \beta b + (1-\beta)\,\bar\ell\), with bias correction.

    The record contains the state: `updated` returns the control of the next estimate. Unbiased, because b depends only
    on earlier draws, and effective from one draw per step.

    Attributes:
        decay: β.
        total: the average before the correction.
        weight: the sum of the average's weights, \(1 - \beta^t\) after t updates.

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
        possible = (self.decay >= 0) & (self.decay < 1)
        require(possible, f"the decay {self.decay!r} of a moving average is outside [0, 1); take 0.9, for instance")

    @property
    def average(self) -> Array:
        """b, zero before the first update."""
        updated = jnp.asarray(self.weight) > 0.0
        total, weight = jnp.asarray(self.total), jnp.asarray(self.weight)
        return jnp.where(updated, total / jnp.where(updated, weight, jnp.ones_like(weight)), jnp.zeros_like(total))

    def updated(self, value: Numeric) -> MovingAverageBaseline:
        """Returns the control for the next estimate, updated by the value of this one."""
        value = jnp.asarray(value)
        mix = lambda old, new: jnp.asarray(self.decay, value.dtype) * (jnp.asarray(old, value.dtype) - new) + new
        return MovingAverageBaseline(self.decay, mix(self.total, value), mix(self.weight, jnp.ones_like(value)))

    def baseline(self, losses: Array) -> Array:
        return self.average.astype(losses.dtype)


@record
class Regression(Control):
    r"""A learned baseline, linear in the score: \(b = c + w^\top s(\theta)\), fitted without the draw that it serves.

    The linear part has a known mean, \(E[w^\top s\, \psi] = w\), which is added back:

    \[ \nabla_\mu \approx \frac1S \sum_i \big[ (\ell_i - c_{-i} - w_{-i}^\top s_i)\, \psi_i + w_{-i} \big] \]

    w is the ridge regression of the other draws' losses on their scores, with the Fisher matrix in the penalty, as if r
    draws had zero slope. The best w is \(\nabla_\mu E_q[\ell]\) itself, so that the variance of a loss linear in T(θ)
    vanishes as S grows. All fits use one kernel matrix \(K_{ij} = s_i^\top F^{-1} s_j\) of the draws, inverted
    once, for any dimension:

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
        require(self.ridge > 0.0, f"the ridge {self.ridge!r} of a regression is not positive; take 1.0, for instance")

    def require(self, count: int) -> None:
        """Raises a ValueError for a single draw."""
        require_others(count, "Regression()")

    def weights(self, losses: Array, kernel: Callable[[], Array]) -> Array:
        """Returns each residual, and the share of each score in the others' slopes, divided by S."""
        K = kernel()
        eye = jnp.eye(losses.size, dtype=losses.dtype)
        G = jnp.linalg.inv(K + jnp.asarray(self.ridge, losses.dtype) * eye)
        centred = losses[None, :] - others(losses)[:, None]  # row i: the losses centred by the fit without draw i
        alpha = centred @ G
        alpha = alpha - G * (jnp.diagonal(alpha) / jnp.diagonal(G))[:, None]
        alpha = alpha * (1.0 - eye)  # zero in exact arithmetic
        residuals = jnp.diagonal(centred) - jnp.sum(alpha * K, axis=1)
        return (residuals + jnp.sum(alpha, axis=0)) / losses.size


def others(losses: Array) -> Array:
    """Returns for each draw the average loss of the others."""
    return (jnp.sum(losses) - losses) / (losses.size - 1)


def require_others(count: int, name: str) -> None:
    """Raises a ValueError for a single draw."""
    if count < 2:
        raise ValueError(f"{name} leaves out one draw and needs two or more, not {count}")


@record
class ScoreFunction:
    r"""\(\nabla_\mu E_q[\ell] = E_q\big[ (\ell(\theta) - b)\, F^{-1} (T(\theta) - \mu) \big]\), unbiased for any loss.

    It needs S values of the loss and no gradient, so that ℓ may be discontinuous and θ discrete. Its variance grows
    with the number of parameters, which control variates reduce. For a Gaussian the natural score is, with \(a
    = \theta - m\), Bonnet's and Price's pair of \(S a\) and \(S a a^\top S - S\), in the structure of S. The S natural
    scores are stored together: S times the memory of λ.

    Attributes:
        samples: S.
        control: what is subtracted from the losses: `ConstantBaseline`, `LeaveOneOut`, `MovingAverageBaseline` or
            `Regression`.
        sampler: the scheme for draws of a Gaussian; `LeaveOneOut` and `Regression` are unbiased only for independent
            draws.

    Raises:
        TypeError: for a belief that is no exponential family.
        ValueError: for fewer draws than the control needs, or dependent draws with a control that forbids them.

    Source: Williams (1992); Ranganath, Gerrish & Blei (2014).

    Examples:
        >>> import jax
        >>> from lamu.expectations import LeaveOneOut, ScoreFunction
        >>> from lamu.families import Poisson
        >>> estimate = ScoreFunction(512, LeaveOneOut()).gradient(jax.random.key(0), Poisson(0.5), lambda n: 2.0 * n)
        >>> abs(float(estimate.gradient.values) - 2.0) < 0.5  # of 2 E n
        True
    """

    samples: int = static(default=16)
    control: Control = ConstantBaseline()
    sampler: Sampler = IndependentSamples()

    departure = ""

    def __post_init__(self) -> None:
        require_whole_field(self, "samples", problem="cannot be averaged")
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
        """Returns the average loss, and the sum of natural scores with the control's weights."""
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
    r"""Returns functions for a draw's score \(T(\theta) - \mu\) and natural score, and for a sum of the latter."""
    require_exponential(belief, "ScoreFunction()")
    natural, mu, solve = belief.natural(), belief.expectation().values, inverse_fisher(belief)

    def at_draw(theta: Params) -> tuple[PyTree, PyTree]:
        score = tree.add(belief.statistics(theta), mu, -1.0)
        return score, solve(score)

    return at_draw, lambda values: NaturalParameters(values, natural.given, natural.of)


def _gaussian_scores(belief: Gaussian) -> tuple[Callable[[Params], PyTree], Callable[[PyTree], Statistics]]:
    """Returns the same for a Gaussian, with scores around its mean, which avoids cancellation."""
    structure: Any = type(belief.precision)
    spread = structure.second_moment(belief.precision, belief.mean)

    def at_draw(theta: Params) -> tuple[PyTree, PyTree]:
        offset = tree.add(theta, belief.mean, -1.0)
        linear = belief.precision.matvec(offset)
        quadratic = jax.tree.map(jnp.subtract, structure.from_outer(linear, linear), belief.precision)
        return (offset, jax.tree.map(jnp.subtract, structure.statistic(offset), spread)), (linear, quadratic.scale(0.5))

    def finished(sums: PyTree) -> Statistics:
        linear, half = sums
        return pathwise.in_expectation(belief, None, linear, half.scale(2.0)).gradient

    return at_draw, finished
