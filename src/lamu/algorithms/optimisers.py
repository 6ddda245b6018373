"""Optimisers: instances of the rule whose posterior is a point, or a Gaussian at the mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import whole_number
from lamu.base.compile_once import lenient
from lamu.data.batch import Batch
from lamu.expectations import Delta
from lamu.expectations.worst_case import WorstCase
from lamu.families import Point
from lamu.geometry import Accumulation
from lamu.geometry.arrows import Factorwise, Shifted
from lamu.objective import AllParameters, BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import GaussNewton, Hessian, NoCurvature, SampledGaussNewton, SquaredGradient
from lamu.operators import Dense, Diagonal, Scalar
from lamu.operators.kronecker import KroneckerFactored
from lamu.posterior import Posterior
from lamu.protocol import Choices, Info, Runnable, Traits, recipe
from lamu.rate import Annealed, RateLike, decay, rate
from lamu.record import record, static
from lamu.rule import Rule, RuleState
from lamu.typing import Array, Data, Number, Numeric, Params, RandomKey, State, Trace
from lamu.update_rules import BiasCorrected, Clipped, HeavyBall, InverseSquareRoot, MovingAverage, NoMomentum, RootOfSum

__all__ = [
    "InvariantMap",
    "MadePositive",
    "MapEstimate",
    "MapState",
    "Optimizer",
    "Searched",
    "adagrad",
    "adam",
    "default_optimiser",
    "gradient_descent",
    "invariant_map",
    "kfac",
    "log_volume",
    "map_estimate",
    "newton",
    "optax_step",
    "optimiser_or",
    "rmsprop",
    "sam",
    "sgd",
]

# `optimiser_or` refuses other types in its own sentence: type checkers see the type, and at run time it is Any.
if TYPE_CHECKING:
    from optax import GradientTransformation as Optimizer
else:
    Optimizer = Any


@recipe("Khan & Rue 2021, section 1.3.1")
def gradient_descent(learning_rate: RateLike = 0.1) -> Rule:
    r"""Gradient descent on the mean loss.

    \[ m \leftarrow m - \rho\, \nabla\bar\ell(m) \]

    The rule for a Gaussian with the covariance fixed at \(1/\kappa\): its entropy is constant, so the entropy term
    drops, and the delta method puts the gradient at the mean. One gradient a step.

    Departures from the rule: none.

    Args:
        learning_rate: ρ a row (as in optax on the mean loss), a number or a schedule of steps.

    Returns:
        The algorithm. Its posterior is the point m.

    Raises:
        ValueError: for a rate that is not positive.

    Source: Khan & Rue (2021), section 1.3.1, equation 4.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=55.0)).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), lamu.algorithms.gradient_descent(0.1), epochs=2, batch_size=442)
        >>> bool(fit.history["loss"][-1] < fit.history["loss"][0])
        True
    """
    return Rule(structure=Scalar, expectation=Delta(), curvature=NoCurvature(), learning_rate=rate(learning_rate))


@recipe("Khan & Rue 2021, section 4.1")
def sgd(learning_rate: RateLike = 0.1, momentum: float = 0.0) -> Rule:
    r"""Stochastic gradient descent with heavy-ball momentum.

    \[ v \leftarrow \hat g(m) + \beta v, \qquad m \leftarrow m - \rho\, v \]

    with \(\hat g\) the gradient of the mean loss on a minibatch. One gradient a step.

    Departures from the rule: the gradient is a minibatch's; momentum, if set.

    Args:
        learning_rate: ρ a row, a number or a schedule of steps.
        momentum: β in [0, 1); zero for none.

    Returns:
        The algorithm. Its posterior is the point m.

    Raises:
        ValueError: for a rate that is not positive, or a momentum outside [0, 1).

    Source: Khan & Rue (2021), section 4.1.

    Examples:
        >>> import lamu
        >>> lamu.algorithms.sgd(0.1, momentum=0.9).choices.departures
        ('momentum',)
    """
    return Rule(
        structure=Scalar,
        expectation=Delta(),
        curvature=NoCurvature(),
        learning_rate=rate(learning_rate),
        momentum=HeavyBall(decay(momentum, "momentum")) if momentum else NoMomentum(),
    )


@recipe("Foret et al. 2021, algorithm 1")
def sam(learning_rate: RateLike = 0.1, radius: float = 0.05, momentum: float = 0.0) -> Rule:
    r"""Sharpness-aware minimisation.

    \[ \theta = m + r\, \hat g(m) / \lVert \hat g(m) \rVert, \qquad
       v \leftarrow \hat g(\theta) + (\delta / N)\, m + \beta v, \qquad m \leftarrow m - \rho\, v \]

    with \(\hat g\) the gradient of the mean negative log likelihood on a minibatch, and the prior (here Gaussian)
    outside the worst case. The rule with a fixed covariance, the expectation replaced by the largest loss in a ball.
    Two gradients a step.

    Departures from the rule: normalised ascent; momentum, if set.

    Args:
        learning_rate: ρ a row, a number or a schedule of steps; `Annealed(0.1, warmup=0.1)` for rectified units, which
            may die in the first steps, since the ascent is as long where the loss is steep.
        radius: r, the distance of the ascent in the units of a weight.
        momentum: β in [0, 1); zero for none.

    Returns:
        The algorithm. Its posterior is the point m.

    Raises:
        ValueError: for a rate that is not positive, a negative radius, or a momentum outside [0, 1).

    Source: Foret et al. (2021), algorithm 1; Möllenhoff & Khan (2023) for its place in the rule.

    Examples:
        >>> from lamu.algorithms.optimisers import sam
        >>> sam(0.1, radius=0.1, momentum=0.9).choices.departures
        ('normalised ascent', 'momentum')
    """
    return Rule(
        structure=Scalar,
        expectation=WorstCase(float(radius)),
        curvature=NoCurvature(),
        learning_rate=rate(learning_rate),
        momentum=HeavyBall(decay(momentum, "momentum")) if momentum else NoMomentum(),
    )


@recipe("Duchi, Hazan & Singer 2011")
def adagrad(learning_rate: RateLike = 0.1, hess_init: float = 0.1, eps: float = 1e-7) -> Rule:
    r"""Adagrad as an instance of the rule: the entropy, which makes the rule forget, is dropped.

    \[ s \leftarrow s + \hat g^2, \qquad m \leftarrow m - \rho\, \frac{\hat g}{\sqrt{s + \epsilon}} \]

    with \(\hat g\) the gradient of the mean loss on a minibatch, the prior included. One gradient a step.

    Departures from the rule: the squared minibatch gradient stands for the Hessian; the square root; no forgetting; two
    rates, that of s being 1. The square root is not a precision, so that the posterior is the point m.

    Args:
        learning_rate: ρ, a number or a schedule of steps.
        hess_init: s at the start.
        eps: ε, under the root.

    Returns:
        The algorithm.

    Raises:
        ValueError: for a rate that is not positive.

    Source: Duchi, Hazan & Singer (2011), with a diagonal.

    Examples:
        >>> from lamu.algorithms.optimisers import adagrad
        >>> adagrad().choices.departures
        ('square root', 'two rates', 'no forgetting')
    """
    return Rule(
        structure=Diagonal,
        expectation=Delta(),
        curvature=SquaredGradient(),
        geometry=Accumulation(),
        learning_rate=rate(learning_rate),
        precision_rate=rate(1.0),
        metric=RootOfSum(float(eps)),
        hess_init=float(hess_init),
    )


@recipe("Tieleman & Hinton 2012; Khan & Rue 2021, section 4.2")
def rmsprop(learning_rate: RateLike = 1e-3, b2: float = 0.9, eps: float = 1e-8, hess_init: float = 0.0) -> Rule:
    r"""RMSprop as an instance of the rule.

    \[ s \leftarrow s + (1-\beta_2)(\hat g^2 - s), \qquad m \leftarrow m - \rho\, \frac{\hat g}{\sqrt{s + \epsilon}} \]

    with \(\hat g\) the gradient of the mean loss on a minibatch, the prior included. One gradient a step.

    Departures from the rule: the squared minibatch gradient stands for the Hessian; the square root; two rates. The
    root is not a precision, so that the posterior is the point m.

    Args:
        learning_rate: ρ, a number or a schedule of steps.
        b2: β₂, the decay of the averaged squares.
        eps: ε, under the root.
        hess_init: s at the start.

    Returns:
        The algorithm.

    Raises:
        ValueError: for a rate that is not positive, or a decay outside [0, 1).

    Source: Tieleman & Hinton (2012); Khan & Rue (2021), section 4.2.

    Examples:
        >>> from lamu.algorithms.optimisers import rmsprop
        >>> rmsprop().choices.departures
        ('square root', 'two rates')
    """
    return Rule(
        structure=Diagonal,
        expectation=Delta(),
        curvature=SquaredGradient(),
        learning_rate=rate(learning_rate),
        precision_rate=rate(1.0 - decay(b2, "b2"), "1 - b2"),
        metric=RootOfSum(float(eps)),
        hess_init=float(hess_init),
    )


@recipe("Kingma & Ba 2015; Khan & Rue 2021, section 4.2")
def adam(learning_rate: RateLike = 1e-3, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Rule:
    r"""Adam as an instance of the rule.

    \[ s \leftarrow s + (1-\beta_2)(\hat g^2 - s), \quad v \leftarrow \beta_1 v + (1-\beta_1)\hat g, \quad
       m \leftarrow m - \rho\, \frac{v / (1-\beta_1^t)}{\sqrt{s / (1-\beta_2^t)} + \epsilon} \]

    with \(\hat g\) the gradient of the mean loss on a minibatch, the prior included. One gradient a step.

    Departures from the rule: the squared minibatch gradient stands for the Hessian; the square root; momentum; bias
    correction; two rates. The root is not a precision, so that the posterior is the point m.

    Args:
        learning_rate: ρ, a number or a schedule of steps.
        b1: β₁, the decay of the averaged gradient.
        b2: β₂, the decay of the averaged squares.
        eps: ε.

    Returns:
        The algorithm.

    Raises:
        ValueError: for a rate that is not positive, or a decay outside [0, 1).

    Source: Kingma & Ba (2015); Khan & Rue (2021), section 4.2.

    Examples:
        >>> import lamu
        >>> lamu.algorithms.adam().choices.family
        'Gaussian, diagonal precision'
    """
    return Rule(
        structure=Diagonal,
        expectation=Delta(),
        curvature=SquaredGradient(),
        learning_rate=rate(learning_rate),
        precision_rate=rate(1.0 - decay(b2, "b2"), "1 - b2"),
        momentum=MovingAverage(decay(b1, "b1")),
        metric=BiasCorrected(InverseSquareRoot(float(eps))),
        hess_init=0.0,
    )


# The rule's step goes from \(\lambda\) to \(\lambda'\). Where the objective \(F(\lambda) = E_q[\bar\ell] -
# H(q)/\kappa\) would not decrease enough there, the step is halved,
#
# \[ \lambda_t = \lambda + t\,(\lambda' - \lambda), \qquad t = 1, \tfrac12, \tfrac14, \dots \quad\text{until}\quad
#    F(\lambda_t) \le F(\lambda) - 10^{-4}\, t\, \rho\, \bar g^\top P^{-1} \bar g \]
#
# (Armijo 1966). The chord goes downhill wherever the new precision is positive, so that a t is found unless the step is
# one of rounding. Near a minimum the whole step is taken, which is the rule itself.


# The most halvings of a step; the share of the predicted decrease (Armijo's, as in textbooks); and how many units of
# rounding of the loss are ignored.
_HALVINGS, _ARMIJO, _ROUNDING = 30, 1e-4, 16


@record
class MadePositive:
    r"""Metric S + γI where it is positive definite, else \(|S + \gamma I|\): absolute eigenvalues."""

    # Newton's step for an indefinite Hessian goes towards saddle points; with absolute eigenvalues it goes downhill. S
    # itself is untouched, and near a minimum the metric is the rule's own.
    #
    # Source: Gill, Murray & Wright (1981), section 4.4.2; Dauphin et al. (2014).

    damping: float = static(default=0.0)  # γ, in the units of a precision a row

    is_precision = True

    @property
    def departure(self) -> str:
        """The departure from the rule, for the table."""
        return "absolute eigenvalues where indefinite" + (", damping" if self.damping else "")

    def direction(self, precision: Any, gradient: Params, count: Numeric, rate: Numeric) -> Params:
        """Returns (S + γI)⁻¹ g, or |S + γI|⁻¹ g."""
        if self.damping:
            shift = jax.tree.map(lambda g: jnp.full_like(g, self.damping), gradient)
            precision = jax.tree.map(jnp.add, precision, type(precision).from_diagonal(shift))
        matrix = precision.dense(gradient)
        flat, unravel = tree.ravel(gradient)

        def absolute() -> Array:
            values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
            size = jnp.abs(values)
            floor = matrix.shape[0] * jnp.finfo(matrix.dtype).eps * jnp.max(size)
            return vectors @ ((vectors.T @ flat) / jnp.maximum(size, floor))

        plain = lambda: tree.ravel(precision.solve(gradient))[0]
        return unravel(jax.lax.cond(precision.is_positive(gradient), plain, absolute))


@record
class Searched(Rule):
    """The rule with a line search, for a deterministic expectation."""

    batching: str = static(default="mini")  # "full" where every step needs all the data, else "mini"

    @property
    def traits(self) -> Traits:
        # The rule's, with this batching.
        return replace(super().traits, batching=self.batching)

    @property
    def choices(self) -> Choices:
        choices = super().choices
        return replace(choices, departures=(*choices.departures, "line search"))

    def step(self, key: RandomKey, state: RuleState, batch: Batch, objective: Objective) -> tuple[RuleState, Info]:
        # Returns the state after one step of the rule, shortened until it decreases the objective.
        loss_key = jax.random.clone(key)
        new, info = super().step(key, state, batch, objective)
        rate = self.learning_rate(state.count)
        before = self._free_energy(loss_key, state, batch, objective)
        slope = rate * jnp.square(info.residual) / objective.concentration
        slack = _ROUNDING * jnp.finfo(before.dtype).eps * jnp.abs(before)

        def shortened(t: Array) -> RuleState:
            blend = lambda old, to: jax.tree.map(lambda a, b: a + t.astype(a.dtype) * (b - a), old, to)
            precision = new.precision if self._at_the_mean else blend(state.precision, new.precision)
            rest = blend(state.rest, new.rest)
            return replace(new, mean=blend(state.mean, new.mean), rest=rest, precision=precision)

        def fails(t: Array) -> Array:
            after = self._free_energy(jax.random.clone(loss_key), shortened(t), batch, objective)
            return ~(after <= before - (_ARMIJO * t * slope).astype(before.dtype) + slack)  # NaN fails

        def halve(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            t, tries, _ = carry
            t = t / 2
            return t, tries + 1, fails(t)

        full_step = jnp.ones((), before.dtype)
        start = (full_step, jnp.zeros((), jnp.int32), fails(full_step))
        t, _, failed = jax.lax.while_loop(lambda carry: carry[2] & (carry[1] < _HALVINGS), halve, start)
        stay = lambda old, to: jax.tree.map(lambda a, b: jnp.where(failed, a, b), old, to)
        taken = shortened(t)
        return replace(taken, mean=stay(state.mean, taken.mean), rest=stay(state.rest, taken.rest)), info

    def explain_divergence(self, state: RuleState) -> str | None:
        # Returns a sentence about a precision that is not positive definite, with the remedy.
        if super().explain_divergence(state) is None:
            return None
        return (
            "the Hessian where the run ended is indefinite, so that it is not a minimum (of relu: one at a kink); "
            "take more steps, or newton(curvature=GaussNewton()) or laplace(), whose matrix is positive everywhere"
        )

    @property
    def _at_the_mean(self) -> bool:
        """Whether the objective is the loss at the mean, which does not depend on the precision."""
        return isinstance(self.expectation, Delta)

    def _free_energy(self, key: RandomKey, state: RuleState, batch: Batch, objective: Objective) -> Array:
        """Returns E_q[ℓ]/N − H(q)/κ without constants; for the delta method ℓ(m)/N."""
        prior = self.space.conjugate_prior(objective, state.mean)
        loss = BatchLoss.beside(prior, objective, batch, state.network_state, self.space, state.rest, state.mean)
        belief = self.belief(state, objective)
        if self._at_the_mean:
            value = loss.value(state.mean, state.rest, key)[0]
        else:
            value = self.expectation.evaluate(key, belief, loss, self.curvature, self.structure).value
            value = value + belief.precision.logdet(state.mean) / (2 * objective.concentration)
        if prior is None:
            return value
        mean, delta = prior
        change = tree.add(state.mean, mean, -1.0)
        squares = tree.dot(change, delta.matvec(change))
        if not self._at_the_mean:
            squares = squares + belief.precision.factored().trace_solve(delta, state.mean)
        return value + squares / 2


@recipe("Khan & Rue 2021, section 1.3.2")
def newton(
    learning_rate: RateLike = 1.0, damping: float = 0.0, curvature: Hessian | GaussNewton | None = None
) -> Searched:
    r"""Newton's method as an instance of the rule.

    \[ S \leftarrow (1 - \rho)\, S + \rho\, \nabla^2\ell(m), \qquad m \leftarrow m - \rho\, S^{-1} \nabla\ell(m) \]

    which at ρ = 1 is \(m \leftarrow m - \nabla^2\ell(m)^{-1} \nabla\ell(m)\): the rule that forgets everything at every
    step. At a mode the belief is Laplace's. One gradient, a Hessian-vector product a coordinate, one Cholesky factor
    and two losses a step, over all rows: for small models.

    A step that would not decrease the loss is halved until it does, so that it converges from any start where the loss
    is convex (a generalised linear model), and descends where it is not (a network). Near a minimum steps are whole.

    A smooth network of some hundred weights converges in 20 to 60 steps, where BFGS takes 120 to 360. One of relu units
    has its minimum at kinks, where the Hessian is that of one side and mostly indefinite: take the Gauss–Newton matrix,
    which also leaves Laplace's usual posterior.

    Departures from the rule: the line search, which only shortens steps; absolute eigenvalues in the direction only,
    where the Hessian is indefinite; damping, if set.

    Args:
        learning_rate: ρ in (0, 1], a number or a schedule of steps.
        damping: γ a row, as in \((S/\kappa + \gamma I)^{-1}\); zero for none. It shortens steps, and moves no fixed
            point.
        curvature: `Hessian()`, or `GaussNewton()` for the method of Gauss and Newton (with damping that of Levenberg
            and Marquardt); the Hessian where None.

    Returns:
        The algorithm. Its posterior is the Gaussian with that curvature as its precision; learned dispersions are a
        point.

    Raises:
        ValueError: for a rate that is not positive, or a negative damping.

    Source: Khan & Rue (2021), section 1.3.2, with the delta method; Levenberg (1944) for the damping.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.optimisers import newton
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), newton(), steps=12)
        >>> bool(fit.history["residual"][-1] < 1e-3)
        True
    """
    if damping < 0:
        raise ValueError(f"damping={damping!r} would lengthen steps; give a number that is not negative")
    return Searched(
        structure=Dense,
        expectation=Delta(),
        curvature=Hessian() if curvature is None else curvature,
        learning_rate=rate(learning_rate),
        metric=MadePositive(float(damping)),
        batching="full",
    )


@recipe("Martens & Grosse 2015; Zhang et al. 2018, section 3.3")
def kfac(
    learning_rate: RateLike = Annealed(0.3),
    b1: float = 0.9,
    b2: float = 0.999,
    hess_init: float = 0.5,
    damping: float = 1e-3,
    max_step: float | None = 0.05,
    inverse_update_period: int = 20,
    rank: int | None = 32,
    factor_update_period: int = 10,
    diagonal: Any = (),
) -> Rule:
    r"""Natural gradient with Kronecker factors: noisy K-FAC with gradients at the mean, without sampling.

    With \(a_i\) a layer's inputs and \(d_i\) the cotangents of its outputs at m, labels sampled from the model, and
    \(P = A \otimes B + \delta/N\):

    \[ A \leftarrow A + (1-\beta_2)\Big(\tfrac1M \sum_i a_i a_i^\top - A\Big), \qquad
       B \leftarrow B + (1-\beta_2)\Big(\tfrac1M \sum_i d_i d_i^\top - B\Big) \]
    \[ v \leftarrow \beta_1 v + (1-\beta_1) \hat g, \qquad
       m \leftarrow m - \alpha\, \mathrm{clip}_r\, (P + \gamma)^{-1}
       \big(v/(1-\beta_1^t) + (\delta/N)(m - m_0)\big) \]

    Without damping, clipping and a prior, its path does not depend on the linear coordinates in which a layer's inputs
    or outputs are written; Adam's does. One gradient and a second backward pass without it a step; one product for each
    factor, four small ones for the direction; eigendecompositions of A and B every so many steps.

    Departures from the rule: the factors are averaged separately, and updated at intervals; directions use older
    factors, wide layers their leading eigenvectors; momentum with bias correction; two rates; damping; clipped
    steps.

    Args:
        learning_rate: α, a number, a schedule of steps, or `Annealed`.
        b1: β₁, the decay of the averaged gradient.
        b2: β₂, the decay of the averaged factors.
        hess_init: h₀, the curvature a row at the start.
        damping: γ, the damping of the steps.
        max_step: the largest coordinate of a step at rate one; None for steps that are not clipped.
        inverse_update_period: number of updates of the factors between their eigendecompositions.
        rank: number of eigenvectors of each factor that are kept; the others get the mean of their eigenvalues. Layers
            that are not wider keep all. None keeps all of them.
        diagonal: path patterns of leaves that get a diagonal instead of factors.
        factor_update_period: number of steps between updates of the factors; an update equals that of so many steps.

    Returns:
        The algorithm. As OGN's, its posterior is the Gaussian at m with the learned precision, which at a
        mode is Laplace's with Kronecker factors; learned dispersions are a point.

    Raises:
        ValueError: for a rate or a radius that is not positive, a decay outside [0, 1), a negative damping, or a
            pattern that matches no leaf (when it runs).
        TypeError: (when it runs) for a network with a state, a prior that is not Gaussian, or weights of two axes that
            are not a kernel.

    Source: Martens & Grosse (2015); Zhang et al. (2018), section 3.3.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.optimisers import kfac
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), kfac(), epochs=20)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.95
        True
    """
    metric = Shifted(damping)
    return Rule(
        structure=KroneckerFactored(diagonal, rank),
        expectation=Delta(),
        curvature=SampledGaussNewton(),
        geometry=Factorwise(whole_number("inverse_update_period", inverse_update_period)),
        learning_rate=rate(learning_rate),
        precision_rate=rate(1.0 - decay(b2, "b2"), "1 - b2"),
        momentum=MovingAverage(decay(b1, "b1")),
        metric=metric if max_step is None else Clipped(metric, max_step),
        hess_init=hess_init,
        curvature_update_period=whole_number("factor_update_period", factor_update_period),
    )


@record
class MapState:
    """Parameters, the optimiser's state and the network's."""

    params: Params  # all free parameters
    optimizer: State  # the optax state
    network_state: State


@record
class MapEstimate(Runnable):
    """Algorithm of `map_estimate`."""

    optimizer: Optimizer = static()  # an optax gradient transformation

    criterion: ClassVar[type[BatchLoss]] = BatchLoss  # the loss it minimises

    @property
    def choices(self) -> Choices:
        return Choices("Gaussian, fixed covariance", "Delta", "none", departures=("whatever the optimiser adds",))

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> MapState:
        # Returns the network's initial parameters and the optimiser's first state.
        params, network_state = objective.model.init(key, batch)
        return MapState(params, self.optimizer.init(params), network_state)

    def step(self, key: RandomKey, state: MapState, batch: Batch, objective: Objective) -> tuple[MapState, Info]:
        # Returns the state after one update.
        loss = self.criterion(objective, batch, state.network_state, AllParameters(), {})
        gradients = loss.gradient(state.params, key)
        gradient, project = _subgradient_at_kinks(objective, state.params, gradients.coordinates)
        loss_at = lambda params: loss.value(project(params), {}, key)[0]
        params, optimizer = optax_step(
            self.optimizer, gradient, state.optimizer, state.params, gradients.value, loss_at
        )
        norm = jnp.sqrt(tree.dot(gradient, gradient))
        return MapState(project(params), optimizer, gradients.network_state), Info(gradients.value, norm)

    def posterior(self, key: RandomKey, state: MapState, objective: Objective, data: Data, trace: Trace) -> Posterior:
        return Posterior.of(objective, Point(state.params), state.network_state, key)


def _subgradient_at_kinks(
    objective: Objective, params: Params, gradient: Params
) -> tuple[Params, Callable[[Params], Params]]:
    r"""Returns the shortest subgradient, and a function that stops a step at the kinks of the prior."""
    # With the kink at m and slopes ±a on its sides (per row), \(f\) the smooth part of the loss:
    #
    # \[ g_i = \nabla_i f + a\, \mathrm{sign}(\theta_i - m), \qquad
    #    g_i = \mathrm{sign}(\nabla_i f)\, \max(|\nabla_i f| - a, 0) \;\text{ at } \theta_i = m \]
    #
    # and a coordinate stays on its side of m, or leaves m towards the side to which −g_i points; otherwise it
    # becomes m. For gradient descent this is the proximal step (soft thresholding), except that a step to the other
    # side ends at m and goes on with the next. It assumes nothing about the optimiser, whose directions may have any
    # metric and any momentum: for L-BFGS it is the orthant-wise method.
    #
    # Source: Andrew & Gao (2007), "Scalable training of L1-regularized log-linear models"; Beck & Teboulle (2009).
    shortened = objective.shortest_subgradient(params, gradient)
    kinks = objective.model.free_prior.kinks(params["network"])
    if kinks is None:
        return gradient, lambda new: new

    def keep_side(new: Array, theta: Array, g: Array, m: Array, a: Array) -> Array:
        side = jnp.where(theta == m, -jnp.sign(g), jnp.sign(theta - m))
        return jnp.where((jnp.sign(new - m) == side) | (a == 0), new, m)

    def project(new: Params) -> Params:
        own = jax.tree.map(keep_side, new["network"], params["network"], shortened["network"], *kinks)
        return {**new, "network": own}

    return shortened, project


@recipe("any optax optimiser")
def map_estimate(optimizer: Optimizer | None = None) -> MapEstimate:
    r"""The most probable parameters, \(\arg\min_\theta \bar\ell(\theta)\), by an optax optimiser.

    \[ \theta \leftarrow \theta + \mathrm{update}\big(\nabla\bar\ell(\theta)\big) \]

    on minibatches, with the prior in the loss. One gradient a step, plus the optimiser's own cost (L-BFGS with a line
    search evaluates the loss several times; give it the whole data as one batch).

    Where the prior has a kink at m (`lamu.priors.Laplace`), weights are exactly m at the mode, and the algorithm
    reaches them: it gives the optimiser the shortest subgradient, and a weight that would cross m in a step stops at m.
    For gradient descent that is soft thresholding, for L-BFGS the orthant-wise method; other optimisers behave
    similarly. With a linear model and a Gaussian likelihood the mode is the Lasso's.

    Departures from the rule: those of the optimiser from gradient descent.

    Args:
        optimizer: an optax gradient transformation; `optax.adam(1e-3)` where None. Its constant rate comes near the
            mode and not to it: a default run ends where the rest is less than a quarter of a posterior standard
            deviation (root mean square), for models of up to 512 weights that are linear in them also along correlated
            columns. Of the ridge regression of `diabetes` that is .34 nats above the mode after 12,544 steps, where
            100 steps of `optax.lbfgs()` on all rows as one batch are within 1e-9.

    Returns:
        The algorithm. Its posterior is the point θ.

    Raises:
        TypeError: if `optimizer` is not a gradient transformation.

    Source: Khan & Rue (2021), section 1.3.1, for the gradient; Andrew & Gao (2007) for kinks; optax cites the paper of
    each optimiser.

    Examples:
        >>> import lamu, optax
        >>> x, y = lamu.data.load("diabetes")
        >>> prior = lamu.priors.Laplace(0.01)
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.7), prior).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), lamu.algorithms.map_estimate(optax.lbfgs()), steps=20, batch_size=442)
        >>> bool(fit.history["residual"][-1] < 1e-3)
        True
        >>> int((fit.posterior.mean["network"]["layers"][0]["kernel"] == 0).sum())  # of ten weights
        6
    """
    optimizer = optimiser_or(optimizer, "adam", 1e-3)
    return MapEstimate(optimizer=optimizer)


@record
class WithVolume(BatchLoss):
    """The mean loss plus half the log-determinant of the Fisher information, per row."""

    def value(self, coordinates: Params, rest: Params, key: RandomKey | None) -> tuple[Array, State]:
        value, state = super().value(coordinates, rest, key)
        volume = log_volume(self.objective, self.batch, self.network_state, coordinates) / (
            2 * self.objective.data_size
        )
        return value + volume.astype(value.dtype), state


@record
class InvariantMap(MapEstimate):
    """Algorithm of `invariant_map`."""

    criterion = WithVolume

    @property
    def traits(self) -> Traits:
        # Full batches: the information is that of all rows.
        return Traits(batching="full")

    @property
    def choices(self) -> Choices:
        choices = super().choices
        return replace(choices, departures=("half the log-determinant of the Fisher information", *choices.departures))

    def explain_divergence(self, state: MapState) -> str:
        # Returns the cause of a criterion that is not finite, and the remedy.
        return (
            "the Fisher information of the data has no finite log-determinant there: some direction of the parameters "
            "changes no prediction (more weights than the data tell apart, or dead units); use map_estimate(), or a "
            "smaller network"
        )


def log_volume(objective: Objective, batch: Batch, network_state: State, params: Params) -> Array:
    r"""Returns \(\log\det F(\theta)\) of all parameters, F the Fisher information of the data."""
    # The information of the weights is the generalised Gauss–Newton matrix \(\sum_i J_i^\top \Lambda_i J_i\);
    # that of the dispersions, which are orthogonal to the weights, is N times the information of one row.
    weights, rest = NetworkParameters().split(params)
    loss = BatchLoss(objective, batch, network_state, NetworkParameters(), rest, conjugate=True)
    matrix = GaussNewton().matrix(loss, weights, Dense).matrix * objective.data_size
    # Positive by construction; if rounding makes it indefinite, the Cholesky factor is NaN.
    log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(matrix))))
    if jax.tree.leaves(rest):
        information = objective.model.dispersion_information(rest)
        for leaf in jax.tree.leaves(information):
            log_det = log_det + jnp.sum(jnp.log(leaf * objective.data_size)).astype(log_det.dtype)
    return log_det


@recipe("Druilhet & Marin 2007")
def invariant_map(optimizer: Optimizer | None = None) -> InvariantMap:
    r"""The posterior mode under a density that does not depend on the parameterisation.

    \[ \hat\theta = \arg\max_\theta\; \log p(\theta \mid D) - \tfrac12 \log\det F(\theta) \]

    with F the Fisher information of the data. In other parameters φ the posterior's density gains the factor
    \(|\det \partial\theta / \partial\varphi|\), and so does \(\sqrt{\det F}\). Their ratio, the density with respect to
    Jeffreys' measure, has its maximum at the same distribution of the data; the density alone does not.

    A step differentiates the determinant through the Jacobian of all rows: \(N K D\) numbers of memory and
    \(D^3\) operations, for small models with identifiable parameters.

    Departures from the rule: the volume of the Fisher information, and those of the optimiser from gradient descent.

    Args:
        optimizer: an optax gradient transformation; `optax.lbfgs()` where None.

    Returns:
        The algorithm. Its posterior is the point θ. Every step sees all the data.

    Raises:
        TypeError: if `optimizer` is not a gradient transformation.

    Source: Druilhet & Marin (2007); Khan & Rue (2021) for the plain mode.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.optimisers import invariant_map
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x[:, :4], y)
        >>> fit = lamu.fit(model, (x[:, :4], y), invariant_map(), steps=15)
        >>> lamu.scores.accuracy(fit.posterior.predict(x[:, :4]), y) > 0.85
        True
    """
    optimizer = optimiser_or(optimizer, "lbfgs")
    return InvariantMap(optimizer=optimizer)


@cache
def default_optimiser(name: str, *settings: float) -> Optimizer:
    """Returns an optax optimiser, the same object for the same arguments."""
    # An optimiser is a pair of functions, and to JAX a new pair is a new program: a recipe
    # that made a new one at every call would compile every run again.
    import optax

    return getattr(optax, name)(*settings)


def optimiser_or(optimizer: Optimizer | None, name: str, *settings: float) -> Optimizer:
    """Returns an optax optimiser unchanged, or the default where it is None."""
    if optimizer is None:
        return default_optimiser(name, *settings)
    import optax

    if not isinstance(optimizer, optax.GradientTransformation):
        example = ", ".join(f"{value:g}" for value in settings)
        raise TypeError(f"{optimizer!r} is not an optax optimiser; give for instance optax.{name}({example})")
    return optimizer


def optax_step(
    optimizer: Optimizer,
    gradient: Params,
    memory: State,
    params: Params,
    value: Array | None,
    value_fn: Callable[[Params], Array],
    factor: Number | Array = 1.0,
) -> tuple[Params, State]:
    """Returns parameters and optimiser state after one update."""
    import optax

    extra = {}
    if isinstance(optimizer, optax.GradientTransformationExtraArgs):
        extra = {"value": value, "grad": gradient, "value_fn": value_fn}
    with lenient():
        updates, memory = optimizer.update(gradient, memory, params, **extra)
        updates = updates if isinstance(factor, float) and factor == 1.0 else tree.scale(updates, factor)
        return optax.apply_updates(params, updates), memory
