"""The rule in natural parameters as an algorithm."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.conjugacy import ConjugateModel
from lamu.conjugate_target import MessageTarget
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.expectations import Analytic
from lamu.families import PartialBelief, Point, Product
from lamu.families.exponential import values_of
from lamu.geometry import Accumulation, FamilyGeometry, Retraction, Straight
from lamu.natural_rule.network_weights import Flips, Points
from lamu.natural_rule.subject import ConjugateParameters, Subject
from lamu.objective import Objective
from lamu.objective.curvature import Evaluation
from lamu.objective.objective import dispersion_step
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.protocol import Choices, Info, Runnable, Traits
from lamu.rate import PolynomialAverage, PolynomialDecay, Rate
from lamu.record import record
from lamu.typing import Array, Belief, Data, Number, Numeric, Params, RandomKey, State, Statistics, Trace
from lamu.update_rules import NoMomentum

__all__ = ["FallingRate", "NaturalRule", "NaturalState", "evidence_bound", "natural_gradient", "rate_for"]


# The constants of the rate for parts that depend on each other (`FallingRate` has the experiment), and those of the
# evidence bound, its samples and chunks, which are conventions.
_POWER = 4.0  # the average is over the last quarter of the run
_BATCHES = 2.0  # more batches for the weight of the start: a first step of one would leave the range of a quadrature
_DRAWS, _ROWS = 256, 4096


@record
class FallingRate:
    r"""The rate \(1/(\tau + t)\) for one conjugate belief, \(4/(t + 6 + \tau)\) for parts that depend on each other."""

    # A single conjugate belief is the average over batches with equal weights. The parts of a graph depend on each
    # other's last beliefs, so that early updates, computed while the others were far off, must be forgotten. Under
    # \(1/t\) the weight of the start falls only as \(t^{-a}\), with \(a < 1\) the slowest contraction of coordinate
    # ascent. Here it falls as \(t^{-4a}\). On a Poisson regression of 1,500 rows in two parts (intercept,
    # and slopes) the mean was 4.2 posterior standard deviations off after 23,040 steps of \(1/t\), and is 0.05 off
    # after 1,536.

    delay: Number = 1.0  # τ, the weight of the start, in batches

    def of(self, model: Any) -> Rate:
        """Returns the rate for a target."""
        if isinstance(model, ConjugateModel) or (isinstance(model, MessageTarget) and model.rows_add_up):
            return PolynomialDecay(1.0, self.delay)
        return PolynomialAverage(_POWER, _BATCHES + self.delay)


def rate_for(learning_rate: Rate | FallingRate, model: Any) -> Rate:
    """Returns the algorithm's rate, or the one chosen for the target if it is a `FallingRate`."""
    return learning_rate.of(model) if isinstance(learning_rate, FallingRate) else learning_rate


def natural_gradient(expectation: Any, key: RandomKey, belief: Belief, loss: Any) -> Evaluation:
    r"""Returns \(E_q[\bar\ell]\), its gradient in μ and in the rest, and the network's state; no curvature."""
    if isinstance(expectation, Flips):
        return expectation.evaluate(key, belief, loss)
    if not isinstance(expectation, Points):
        return _estimated(expectation, key, belief, loss)

    def at_draw(key: RandomKey) -> Evaluation:
        draw_key, layer_key = jax.random.split(key)
        theta, pull = expectation.point(draw_key, belief)
        point = loss.gradient(theta, layer_key)
        return Evaluation(point.value, values_of(pull(point.coordinates)), point.rest, None, point.network_state)

    return tree.average_over(at_draw, key, expectation.samples)


def _estimated(estimator: Any, key: RandomKey, belief: Belief, loss: Any) -> Evaluation:
    draw_key, layer_key = jax.random.split(key)

    def value(rest: Params) -> tuple[Array, Statistics]:
        estimate = estimator.gradient(draw_key, belief, lambda theta: loss.value(theta, rest, layer_key)[0])
        return estimate.value, estimate.gradient

    # The gradient in the rest is that of the estimated value.
    (loss_value, gradient), rest = jax.value_and_grad(value, has_aux=True)(loss.rest)
    return Evaluation(loss_value, values_of(gradient), rest, None, loss.network_state)


def evidence_bound(
    subject: Subject, expectation: Any, key: RandomKey, belief: Belief, rest: Params, objective: Objective, rows: Arrays
) -> Array:
    """Returns the evidence lower bound over all rows in nats: exact in μ, else by samples."""
    batches = rows.batches(min(rows.count, _ROWS))
    if isinstance(expectation, Analytic):
        losses = sum(_expected(subject, belief, rest, objective, batch) * batch.count for batch in batches)
        entropy = belief.entropy()
    else:
        # Common samples: log p and log q are highly correlated, so that their difference varies far less than each.
        theta = belief.draws(key, _DRAWS)
        losses = sum(_at_draws(subject, theta, rest, objective, batch) * batch.count for batch in batches)
        entropy = -_log_density(belief, theta)
    prior = subject.expected_log_prior(objective, belief) / objective.temperature
    return prior + jnp.mean(entropy - objective.concentration * losses / rows.count)


@jax.jit
def _expected(subject: Subject, belief: Belief, rest: Params, objective: Objective, batch: Batch) -> Array:
    return subject.loss(objective, batch, {}, rest).value(belief.expectation(), rest, None)[0]


@jax.jit
def _at_draws(subject: Subject, theta: Params, rest: Params, objective: Objective, batch: Batch) -> Array:
    loss = subject.loss(objective, batch, {}, rest)
    return jax.lax.map(lambda draw: loss.value(draw, rest, None)[0], theta)


@jax.jit
def _log_density(belief: Belief, theta: Params) -> Array:
    return jax.lax.map(belief.log_prob, theta)


@record
class NaturalState:
    """State of the rule between steps."""

    count: Numeric  # steps taken
    belief: Belief  # q
    momentum: Params  # the state of the momentum
    rest: Params  # parameters outside of the belief: a point
    network_state: State


@record
class NaturalRule(Runnable):
    """The rule in λ for an exponential family, or a product of such families; recipes choose its parts."""

    # \[ \lambda \leftarrow \mathrm{move}_\rho\big(\lambda,\;
    #    \lambda_0/T - \kappa\, \mathrm{momentum}(\nabla_\mu E_q[\bar\ell]) \big) \]
    #
    # where `Straight` moves to \((1 - \rho)\lambda + \rho\lambda'\). With `Accumulation` there is no forgetting and no
    # prior, and the posterior is a point, the mode of q. Parameters outside of the belief take gradient steps at a
    # separate rate, dispersions divided by their Fisher information.

    subject: Subject  # the parameters of the belief, `NetworkWeights`, `ConjugateParameters` or a custom one
    expectation: Any  # the estimator of ∇_μ E_q: `Points`, `Flips`, or any `lamu.expectations.GradientEstimator`
    learning_rate: Rate | FallingRate  # ρ, or `FallingRate()`, which chooses it for the target
    # The update of λ: `Straight()`, `Retraction()`, which stays in the domain, or `Accumulation()`.
    geometry: FamilyGeometry = Straight()
    rest_rate: Rate | None = None  # the rate of the rest; ρ where it is None
    momentum: Any = NoMomentum()  # the momentum of the gradient

    @property
    def keeps_uncertainty(self) -> bool:
        """Whether the entropy is a part of the rule; else the posterior is a point."""
        return not isinstance(self.geometry, Accumulation)

    @property
    def traits(self) -> Traits:
        # Minibatches; the caller chooses the length.
        return Traits(
            messages=isinstance(self.subject, ConjugateParameters), samples=getattr(self.expectation, "samples", None)
        )

    @property
    def choices(self) -> Choices:
        parts = (self.expectation, self.geometry, self.momentum)
        latents = ", latents of rows at ρ = 1" if type(self.subject) is ConjugateParameters else ""
        return Choices(
            family=self.subject.family,
            expectation=type(self.expectation).__name__,
            curvature="none",
            geometry=type(self.geometry).__name__.lower() + latents,
            departures=tuple(part.departure for part in parts if part.departure),
        )

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> NaturalState:
        # Returns the state at the initial belief.
        belief, rest, network_state = self.subject.start(key, objective, batch)
        # Strong dtypes: a weak one (from Gamma(2.0, 1.0)) would recompile the second step.
        belief = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), belief)
        return NaturalState(
            count=jnp.zeros((), jnp.int32),
            belief=belief,
            momentum=self.momentum.init(belief.to_natural()),
            rest=rest,
            network_state=network_state,
        )

    def step(
        self, key: RandomKey, state: NaturalState, batch: Batch, objective: Objective
    ) -> tuple[NaturalState, Info]:
        # Returns the state after one step of the rule on a batch.
        loss = self.subject.loss(objective, batch, state.network_state, state.rest)
        evaluation = natural_gradient(self.expectation, key, state.belief, loss)
        rate, count = rate_for(self.learning_rate, objective.model)(state.count), state.count + 1
        rest_rate = rate if self.rest_rate is None else self.rest_rate(state.count)

        momentum, followed = self.momentum.follow(state.momentum, evaluation.gradient, count)
        target = self._target(objective, state.belief, followed)
        return (
            NaturalState(
                count=count,
                belief=self.geometry.step(state.belief, target, rate),
                momentum=momentum,
                rest=_moved(objective, state.rest, evaluation.rest, rest_rate),
                network_state=evaluation.network_state,
            ),
            Info(loss=evaluation.value, residual=self._residual(objective, state.belief, evaluation.gradient)),
        )

    def posterior(
        self, key: RandomKey, state: NaturalState, objective: Objective, data: Data, trace: Trace
    ) -> Posterior:
        # Returns q with its point estimate, and the evidence bound where rows are given and it can be computed.
        #
        # Under `Accumulation` it is the mode.
        belief, others, dispersions = state.belief, state.rest["network"], state.rest["likelihood"]
        rule = self.subject.predictive if self.keeps_uncertainty else Sampled()
        if self.keeps_uncertainty:
            network = PartialBelief(belief, others) if jax.tree.leaves(others) else belief
            joint: Belief = Product({"network": network, "likelihood": Point(dispersions)})
        else:
            joint = Point({"network": tree.merged(belief.mode, others), "likelihood": dispersions})
        evidence = None
        if self.subject.settles and isinstance(data, Arrays):
            bound_key = jax.random.fold_in(jax.random.clone(key), 3)
            evidence = evidence_bound(self.subject, self.expectation, bound_key, belief, state.rest, objective, data)
        temperature = objective.temperature
        return Posterior(objective.model, joint, state.network_state, rule, key, evidence, temperature=temperature)

    def direction(
        self, key: RandomKey, belief: Belief, batch: Batch, objective: Objective, dispersions: Params | None = None
    ) -> Statistics:
        """Returns λ minus its value after a step of rate one, which is zero at the fixed point."""
        loss = self.subject.loss(objective, batch, {}, {"network": {}, "likelihood": dispersions or {}})
        gradient = natural_gradient(self.expectation, key, belief, loss).gradient
        return tree.add(belief.to_natural(), self._target(objective, belief, gradient), -1.0)

    def explain_divergence(self, state: NaturalState) -> str | None:
        # Returns a message if λ left its domain, with the fix; else None.
        try:
            state.belief.with_natural(state.belief.to_natural())
        except ValueError as error:
            name, taken = type(self.geometry).__name__, int(state.count)
            left = f"the belief left its domain by step {taken} ({error})"
            if isinstance(self.subject, ConjugateParameters):
                return f"{left}; use a smaller learning_rate, or float64 where the rows are far from zero"
            if isinstance(self.geometry, Retraction):  # it stays in the domain: an overflow or a NaN
                return (
                    f"{left}: its log density, gradient or curvature there is beyond {_dtype_of(state.belief)}; centre "
                    "and scale the data so that variables are of order one, use float64, or lower the learning_rate"
                )
            return (
                f"{left}, where {name}() followed {type(self.expectation).__name__}(); use the geometry Retraction(), "
                "which cannot leave it, an expectation with Hessians (MonteCarlo) for a convex loss, or a lower rate"
            )
        return None

    def _target(self, objective: Objective, belief: Belief, gradient: Statistics) -> Statistics:
        """Returns λ after one step of rate one."""
        data = tree.scale(gradient, -objective.concentration)
        return tree.add(self.subject.prior(objective, belief), data) if self.keeps_uncertainty else data

    def _residual(self, objective: Objective, belief: Belief, gradient: Statistics) -> Numeric:
        """Returns the natural norm of the step's direction in nats; under `Accumulation` that of the gradient."""
        if not self.keeps_uncertainty:
            return jnp.sqrt(objective.concentration * tree.dot(gradient, gradient))
        direction = tree.add(belief.to_natural(), self._target(objective, belief, gradient), -1.0)
        return self.subject.residual(belief, direction)


def _dtype_of(belief: Belief) -> str:
    return jnp.result_type(*jax.tree.leaves(belief)).name


def _moved(objective: Objective, rest: Params, gradient: Params, rate: Numeric) -> Params:
    dispersions = dispersion_step(objective, rest["likelihood"], gradient["likelihood"], rate)
    return {"network": tree.add(rest["network"], gradient["network"], -rate), "likelihood": dispersions}
