"""The rule in λ as an algorithm, made of its choices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.families import PartialBelief, Point, Product
from lamu.geometry import Accumulation, FamilyGeometry, Retraction, Straight
from lamu.natural_rule.bound import evidence_bound
from lamu.natural_rule.conjugate_parameters import ConjugateParameters
from lamu.natural_rule.falling_rate import FallingRate, rate_for
from lamu.natural_rule.gradient import natural_gradient
from lamu.natural_rule.subject import Subject
from lamu.objective import Objective
from lamu.objective.dispersions import dispersion_step
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.protocol import Choices, Info, Runnable, Traits
from lamu.rate import Rate
from lamu.record import record
from lamu.typing import Params, RandomKey
from lamu.update_rules import NoMomentum

__all__ = ["NaturalRule", "NaturalState"]


@record
class NaturalState:
    """What the next step of the rule needs."""

    count: Any  # steps taken
    belief: Any  # q
    momentum: Params  # the memory of the momentum
    rest: Params  # parameters that the belief is not about: a point
    network_state: Any


@record
class NaturalRule(Runnable):
    """The rule in λ for an exponential family, or a product of such families; a recipe is a choice of its parts."""

    # \[ \lambda \leftarrow \mathrm{move}_\rho\big(\lambda,\;
    #    \lambda_0/T - \kappa\, \mathrm{momentum}(\nabla_\mu E_q[\bar\ell]) \big) \]
    #
    # where `Straight` moves to \((1 - \rho)\lambda + \rho\lambda'\). With `Accumulation` nothing is forgotten, no prior
    # is taken, and the posterior is a point, the mode of q. Parameters that the belief is not about follow their
    # gradient at a rate of their own, dispersions over their Fisher information.

    subject: Subject  # what the belief is about, `NetworkWeights`, `ConjugateParameters` or one's own
    expectation: Any  # how ∇_μ E_q is taken: `Points`, `Flips`, or any `lamu.expectations.GradientEstimator`
    learning_rate: Rate | FallingRate  # ρ, or `FallingRate()`, which chooses it for the target
    # How λ moves: `Straight()`, `Retraction()`, which cannot leave the domain, or `Accumulation()`.
    geometry: FamilyGeometry = Straight()
    rest_rate: Rate | None = None  # the rate of the rest; ρ where it is None
    momentum: Any = NoMomentum()  # what is followed in the place of the gradient

    @property
    def keeps_uncertainty(self) -> bool:
        """Whether the entropy is a part of the rule; else the posterior is a point."""
        return not isinstance(self.geometry, Accumulation)

    @property
    def traits(self) -> Traits:
        # Minibatches, as long as the caller says.
        return Traits(messages=isinstance(self.subject, ConjugateParameters))

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
        # Returns the state at the first belief.
        belief, rest, network_state = self.subject.start(key, objective, batch)
        # Of a dtype of their own: a weak one (of Gamma(2.0, 1.0)) would compile the second step anew.
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
        at = natural_gradient(self.expectation, key, state.belief, loss)
        rate, count = rate_for(self.learning_rate, objective.model)(state.count), state.count + 1
        rest_rate = rate if self.rest_rate is None else self.rest_rate(state.count)

        momentum, followed = self.momentum.follow(state.momentum, at.gradient, count)
        target = self._target(objective, state.belief, followed)
        return (
            NaturalState(
                count=count,
                belief=self.geometry.step(state.belief, target, rate),
                momentum=momentum,
                rest=_moved(objective, state.rest, at.rest, rest_rate),
                network_state=at.network_state,
            ),
            Info(loss=at.value, residual=self._residual(objective, state.belief, at.gradient)),
        )

    def posterior(self, key: RandomKey, state: NaturalState, objective: Objective, data: Any, trace: Any) -> Posterior:
        # Returns q beside its point, with a bound of the evidence where rows are at hand and it is known.
        #
        # Where nothing was forgotten it is the point of the mode.
        belief, others, dispersions = state.belief, state.rest["network"], state.rest["likelihood"]
        rule = self.subject.predictive if self.keeps_uncertainty else Sampled()
        if self.keeps_uncertainty:
            network = PartialBelief(belief, others) if jax.tree.leaves(others) else belief
            whole: Any = Product({"network": network, "likelihood": Point(dispersions)})
        else:
            whole = Point({"network": tree.merged(belief.mode, others), "likelihood": dispersions})
        evidence = None
        if self.subject.settles and isinstance(data, Arrays):
            bound_key = jax.random.fold_in(jax.random.clone(key), 3)
            evidence = evidence_bound(self.subject, self.expectation, bound_key, belief, state.rest, objective, data)
        temperature = objective.temperature
        return Posterior(objective.model, whole, state.network_state, rule, key, evidence, temperature=temperature)

    def direction(
        self, key: RandomKey, belief: Any, batch: Batch, objective: Objective, dispersions: Params | None = None
    ) -> Any:
        """Returns λ less what a step of rate one makes of it, zero at the fixed point; of a subject that settles."""
        loss = self.subject.loss(objective, batch, {}, {"network": {}, "likelihood": dispersions or {}})
        gradient = natural_gradient(self.expectation, key, belief, loss).gradient
        return tree.add(belief.to_natural(), self._target(objective, belief, gradient), -1.0)

    def complaint(self, state: NaturalState) -> str | None:
        # Returns where λ left its domain, in one sentence with the remedy; None where it did not.
        try:
            state.belief.with_natural(state.belief.to_natural())
        except ValueError as error:
            name, taken = type(self.geometry).__name__, int(state.count)
            left = f"the belief left its domain by step {taken} ({error})"
            if isinstance(self.subject, ConjugateParameters):
                return f"{left}; use a smaller learning_rate, or float64 where the rows are far from zero"
            if isinstance(self.geometry, Retraction):  # which cannot leave it: a number was too large, or not known
                return (
                    f"{left}: its log density, gradient or curvature there is beyond {_dtype_of(state.belief)}; centre "
                    "and scale the data so that variables are of order one, use float64, or lower the learning_rate"
                )
            return (
                f"{left}, where {name}() followed {type(self.expectation).__name__}(); use the geometry Retraction(), "
                "which cannot leave it, an expectation with Hessians (MonteCarlo) for a convex loss, or a lower rate"
            )
        return None

    def _target(self, objective: Objective, belief: Any, gradient: Any) -> Any:
        """Returns where one step of rate one ends."""
        data = tree.scale(gradient, -objective.concentration)
        return tree.add(self.subject.prior(objective, belief), data) if self.keeps_uncertainty else data

    def _residual(self, objective: Objective, belief: Any, gradient: Any) -> Any:
        """Returns the natural norm of the step's direction, in nats; where nothing is forgotten, the gradient's own."""
        if not self.keeps_uncertainty:
            return jnp.sqrt(objective.concentration * tree.dot(gradient, gradient))
        direction = tree.add(belief.to_natural(), self._target(objective, belief, gradient), -1.0)
        return self.subject.residual(belief, direction)


def _dtype_of(belief: Any) -> str:
    return jnp.result_type(*jax.tree.leaves(belief)).name


def _moved(objective: Objective, rest: Params, gradient: Params, rate: Any) -> Params:
    dispersions = dispersion_step(objective, rest["likelihood"], gradient["likelihood"], rate)
    return {"network": tree.add(rest["network"], gradient["network"], -rate), "likelihood": dispersions}
