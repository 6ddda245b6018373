"""The rule in λ as an algorithm, made of its choices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.departures import NoMomentum
from lamu.families import PartialBelief, Point, Product
from lamu.natural_rule.parts import Decay, Latent, NoDecay, Signs
from lamu.natural_rule.points import natural_gradient, signs
from lamu.natural_rule.selected import Selected, SelectedLoss
from lamu.objective import Objective
from lamu.objective.dispersions import dispersion_step
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.protocol import Choices, Info, Runnable, Traits
from lamu.rate import Rate
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["NaturalRule", "NaturalState"]


@record
class NaturalState:
    r"""What the next step of the rule needs.

    Attributes:
        count: steps taken.
        natural: Λ = λ/κ, the natural parameters a row.
        momentum: the memory of the momentum.
        rest: parameters that the belief is not about: a point.
        network_state: the network's state.

    Examples:
        >>> from lamu.natural_rule import NaturalState
        >>> NaturalState(count=0, natural={}, momentum={}, rest={}, network_state={}).count
        0
    """

    count: Any
    natural: Params
    momentum: Params
    rest: Params
    network_state: Any


@record
class NaturalRule(Runnable):
    r"""The rule in Λ = λ/κ, as an algorithm; a recipe is a choice of its parts.

    \[ \Lambda \leftarrow \Lambda
       - \rho\,\big( \mathrm{momentum}(\nabla_\mu E_q[\bar\ell]) + \Lambda - \lambda_0/N \big) \]

    The prior gives λ₀: zero where it has no preference between the values of a weight, δ m₀ for weights ±1 under a
    Gaussian prior with mean m₀ and precision δ, or the natural parameters of a belief of the same family
    (`Model.with_prior`). Weights that are not selected, and dispersions, follow their gradient (over its Fisher
    information, for dispersions) at a rate of their own.

    Attributes:
        family: the class of q, an exponential family with one natural parameter a weight and values ±1.
        expectation: how ∇_μ E_q is taken.
        decay: the entropy's part, `Decay()`, or `NoDecay()`.
        start: where Λ starts, `Signs(size)` or `Latent()`.
        learning_rate: ρ.
        rest_rate: the rate of the rest.
        momentum: what is followed in the place of the gradient.
        leaves: path patterns of the weights that the belief is about.

    Examples:
        >>> from lamu.algorithms.discrete.bayesbinn import bayesbinn
        >>> bayesbinn().choices.departures
        ('slopes floored',)
    """

    family: Any = static()
    expectation: Any
    decay: Decay | NoDecay
    start: Signs | Latent
    learning_rate: Rate
    rest_rate: Rate
    momentum: Any = NoMomentum()
    leaves: tuple[str, ...] = static(default=("*kernel",))

    @property
    def space(self) -> Selected:
        """Which weights the belief is about."""
        return Selected(self.leaves)

    @property
    def traits(self) -> Traits:
        """Minibatches, as long as the caller says, on weights ±1."""
        return Traits()

    @property
    def choices(self) -> Choices:
        """The row of the table."""
        parts = (self.expectation, self.decay, self.momentum)
        return Choices(
            family="Bernoulli on ±1",
            expectation=type(self.expectation).__name__,
            curvature="none",
            departures=tuple(part.departure for part in parts if part.departure),
        )

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> NaturalState:
        """Returns the state at the start, with the signs of the network's initial weights."""
        params, network_state = objective.model.init(key, batch)
        tree.require_matches(self.leaves, params["network"])
        weights, rest = self.space.split(params)
        natural = self.start.values(weights, objective.concentration)
        return NaturalState(
            count=jnp.zeros((), jnp.int32),
            natural=natural,
            momentum=self.momentum.init(natural),
            rest=rest,
            network_state=network_state,
        )

    def belief(self, state: NaturalState, objective: Objective) -> Any:
        """Returns q, with its natural parameters on the scale of the data, λ = κ Λ."""
        return self.family.from_natural(tree.scale(state.natural, objective.concentration), ())

    def step(
        self, key: RandomKey, state: NaturalState, batch: Batch, objective: Objective
    ) -> tuple[NaturalState, Info]:
        """Returns the state after one step of the rule on a batch."""
        loss = SelectedLoss(objective, batch, state.network_state, self.space, state.rest)
        belief = self.belief(state, objective)
        at = natural_gradient(self.expectation, key, belief, loss)
        rate, count = self.learning_rate(state.count), state.count + 1

        momentum, followed = self.momentum.follow(state.momentum, at.gradient, count)
        pull = self.decay.pull(state.natural, self._prior(objective, state.natural))
        natural = tree.add(state.natural, tree.add(followed, pull), -rate)
        return (
            NaturalState(
                count=count,
                natural=natural,
                momentum=momentum,
                rest=self._move_rest(objective, state.rest, at.rest, self.rest_rate(state.count)),
                network_state=at.network_state,
            ),
            Info(loss=at.value, residual=self._residual(belief, tree.add(at.gradient, pull), objective)),
        )

    def posterior(self, key: RandomKey, state: NaturalState, objective: Objective, data: Any, trace: Any) -> Posterior:
        """Returns q beside its point; where nothing was forgotten, the point of the signs."""
        if self.decay.faithful:
            belief = self.belief(state, objective)
            if jax.tree.leaves(state.rest["network"]):
                belief = PartialBelief(belief, state.rest["network"])
            whole: Any = Product({"network": belief, "likelihood": Point(state.rest["likelihood"])})
        else:
            whole = Point(self.space.join(signs(state.natural), state.rest))
        return Posterior(objective.model, whole, state.network_state, Sampled(), key, temperature=objective.temperature)

    def _prior(self, objective: Objective, like: Params) -> Params:
        """Returns λ₀/N."""
        prior: Any = objective.model.prior
        known: Any = getattr(prior, "belief", None)
        if isinstance(known, self.family):
            natural = jax.tree.map(lambda value, leaf: value.astype(leaf.dtype), known.natural().values, like)
            return tree.scale(natural, 1.0 / objective.data_size)
        gaussian = prior.gaussian(like)
        if gaussian is None:
            return tree.zeros_like(like)
        # log p(+1) − log p(−1) = 2 δ m₀, and λ is half the log odds.
        return jax.tree.map(
            lambda leaf, mean, precision: jnp.broadcast_to(mean * precision / objective.data_size, leaf.shape).astype(
                leaf.dtype
            ),
            like,
            *gaussian,
        )

    def _residual(self, belief: Any, gradient: Params, objective: Objective) -> Array:
        """Returns the natural norm of the step's direction, in nats; at zero temperature, the gradient's own."""
        direction = tree.scale(gradient, objective.concentration)
        if not self.decay.faithful:
            return jnp.sqrt(tree.dot(gradient, direction))
        return jnp.sqrt(jnp.maximum(tree.dot(direction, belief.fisher_product(direction)), 0.0))

    def _move_rest(self, objective: Objective, rest: Params, gradient: Params, rate: Any) -> Params:
        weights = tree.add(rest["network"], gradient["network"], -rate)
        moved = dispersion_step(objective, rest["likelihood"], gradient["likelihood"], rate)
        return {"network": weights, "likelihood": moved}
