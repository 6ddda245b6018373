r"""Descent on the parameters of a belief: the algorithm that `bayes_by_backprop` makes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.algorithms.descent.estimators import Estimator
from lamu.algorithms.descent.positive_transforms import PositiveTransform
from lamu.algorithms.optax_step import optax_step
from lamu.data.batch import Batch
from lamu.divergences import Divergence, ReverseKL
from lamu.families import Gaussian, Point, Product
from lamu.families.base_distributions import BaseDistribution, StandardNormal
from lamu.families.location_scale import LocationScale
from lamu.objective import BatchLoss, NetworkParameters, NonGaussian, Objective
from lamu.operators import Diagonal, Scalar
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.priors.parts import restricted
from lamu.protocol import Choices, Info, Runnable, Traits
from lamu.rate import Rate
from lamu.record import record, static
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["BeliefDescent", "DescentState"]


@record
class DescentState:
    """What the next step needs."""

    count: Any  # steps taken
    params: dict[str, Params]  # what descends: "mean" m, "raw" ρ, and "rest", the dispersions
    optimizer: Any  # the optax state
    network_state: Any


@record
class BeliefDescent(Runnable):
    r"""Gradient descent on \(\frac1\kappa\, D(q_{m, \rho}, p)\) in m, ρ and the dispersions, by any optax optimiser."""

    optimizer: Any = static()  # an optax gradient transformation
    estimator: Estimator  # how the rows are drawn
    divergence: Divergence  # D
    base_distribution: BaseDistribution  # the law of z in \(\theta = m + s(\rho) z\)
    scale_transform: PositiveTransform  # s(ρ)
    factor: Rate  # what every update is multiplied with
    init_scale: Number  # s at the start
    samples: int = static(default=1)  # how many draws a step

    @property
    def traits(self) -> Traits:
        # Minibatches, as long as the caller says.
        return Traits()

    @property
    def choices(self) -> Choices:
        normal = isinstance(self.base_distribution, StandardNormal)
        departures = (
            "gradient in the parameters, not natural",
            "whatever the optimiser adds",
            self.divergence.departure,
        )
        return Choices(
            family="Gaussian, diagonal precision"
            if normal
            else f"location-scale, {type(self.base_distribution).__name__}",
            expectation=type(self.estimator).__name__,
            curvature="none",
            geometry="euclidean in (m, ρ)",
            departures=tuple(name for name in departures if name),
        )

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> DescentState:
        # Returns the state at the network's initial weights, every scale at its start.
        params, network_state = objective.model.init(key, batch)
        mean, rest = NetworkParameters().split(params)
        raw = jax.tree.map(lambda leaf: self.scale_transform.inverse(jnp.full_like(leaf, self.init_scale)), mean)
        moving = {"mean": mean, "raw": raw, "rest": rest}
        return DescentState(jnp.zeros((), jnp.int32), moving, self.optimizer.init(moving), network_state)

    def belief(self, params: dict[str, Params]) -> LocationScale:
        """Returns q from what descends."""
        return LocationScale(params["mean"], jax.tree.map(self.scale_transform, params["raw"]), self.base_distribution)

    def step(
        self, key: RandomKey, state: DescentState, batch: Batch, objective: Objective
    ) -> tuple[DescentState, Info]:
        # Returns the state after one update.
        estimate = lambda params: self.estimate(key, params, batch, objective, state.network_state)
        value, loss, gradient, network_state = estimate(state.params)
        # Line searches evaluate what descends themselves, under the same draws.
        again = lambda params: self.estimate(jax.random.clone(key), params, batch, objective, state.network_state)[0]
        params, optimizer = optax_step(
            self.optimizer, gradient, state.optimizer, state.params, value, again, self.factor(state.count)
        )
        scaled = jax.tree.map(lambda s, g: s * g, self.belief(state.params).scale, gradient["mean"])
        residual = objective.concentration * jnp.sqrt(tree.dot(scaled, scaled))
        return DescentState(state.count + 1, params, optimizer, network_state), Info(loss, residual)

    def estimate(
        self, key: RandomKey, params: dict[str, Params], batch: Batch, objective: Objective, network_state: Any
    ) -> tuple[Array, Array, dict[str, Params], Any]:
        r"""Returns \(D / \kappa\) in nats a row, the loss to show, the gradient, and the network's new state."""

        def loss_at(rest: Params) -> BatchLoss:
            return BatchLoss(objective, batch, network_state, NetworkParameters(), rest, conjugate=True)

        if isinstance(self.divergence, ReverseKL):
            return self._bound(key, params, objective, loss_at)
        return self._weighed(key, params, objective, loss_at)

    def posterior(self, key: RandomKey, state: DescentState, objective: Objective, data: Any, trace: Any) -> Posterior:
        # Returns q about the weights, beside the dispersions' point.
        belief = self.belief(state.params)
        known: Any = belief.gaussian() or belief
        whole = Product({"network": known, "likelihood": Point(state.params["rest"])})
        return Posterior(objective.model, whole, state.network_state, Sampled(), key, temperature=objective.temperature)

    def _bound(self, key: RandomKey, params: Any, objective: Objective, loss_at: Any) -> Any:
        """The evidence bound: the divergence from Gaussian leaves is known, and what is known is not drawn."""
        whole = objective.model.free_prior
        known = whole.gaussian(params["mean"])
        # The divergence from a full matrix would factor it at every step: its log density is drawn.
        exact = known is not None and isinstance(known.precision, Diagonal | Scalar)
        exact = exact and isinstance(self.base_distribution, StandardNormal)
        remainder = NonGaussian.of(whole, params["mean"]) if exact else whole

        def divergence(params: Any) -> Array:
            if not exact:
                return -self.belief(params).entropy() / objective.concentration
            assert known is not None
            tempered = Gaussian(known.mean, known.precision.scale(1.0 / objective.temperature))
            belief = self._gaussian(params)
            if remainder is None:
                return belief.kl(tempered) / objective.concentration
            others = jax.tree.map(lambda m, x: x if m is None else None, known.mean, belief.mean, is_leaf=_is_none)
            ours, left = restricted(belief, known.mean), restricted(belief, others)
            assert ours is not None
            assert left is not None
            return (ours.kl(tempered) - left.entropy()) / objective.concentration

        def drawn(params: Any, key: RandomKey) -> tuple[Array, Any]:
            belief = self.belief(params)
            value, state = self.estimator.value(key, belief, loss_at(params["rest"]))
            if remainder is not None:
                # The draw of the estimator Global(), which draws with the first half of its key.
                theta = belief.sample(jax.random.split(jax.random.clone(key))[0])
                surprise = -remainder.log_prob(theta) / objective.data_size
                value = value + surprise.astype(value.dtype)
            return value, state

        at_draw = lambda key: jax.value_and_grad(drawn, has_aux=True)(params, key)
        (value, network_state), gradient = tree.average(self._each(at_draw, key))
        exactly, of_exactly = jax.value_and_grad(divergence)(params)
        return value + exactly.astype(value.dtype), value, tree.add(gradient, of_exactly), network_state

    def _weighed(self, key: RandomKey, params: Any, objective: Objective, loss_at: Any) -> Any:
        """Any divergence by the weights of its draws."""

        def drawn(params: Any, key: RandomKey) -> tuple[Array, Any]:
            draw_key, layer_key = jax.random.split(key)
            belief = self.belief(params)
            theta = belief.sample(draw_key)
            if not self.divergence.through_draws:
                theta = jax.lax.stop_gradient(theta)
            loss, state = loss_at(params["rest"]).value(theta, params["rest"], layer_key)
            surprise = -objective.model.free_prior.log_prob(theta) / objective.data_size
            log_target = -objective.concentration * (loss + surprise.astype(loss.dtype))
            log_belief = belief.log_prob(theta)
            return self.divergence.surrogate(log_target, log_belief), (log_target - log_belief, loss, state)

        at_draw = lambda key: jax.value_and_grad(drawn, has_aux=True)(params, key)
        (_, (log_weights, _, states)), gradients = self._each(at_draw, key)
        shares = self.divergence.shares(log_weights) / objective.concentration
        gradient = jax.tree.map(lambda leaf: jnp.tensordot(shares.astype(leaf.dtype), leaf, axes=1), gradients)
        value = self.divergence.value(log_weights) / objective.concentration
        return value, value, gradient, tree.average(states)

    def _each(self, at_draw: Any, key: RandomKey) -> Any:
        """One draw after the other, so that memory grows with what is kept of them alone."""
        if self.samples == 1:
            return jax.tree.map(lambda leaf: leaf[None], at_draw(key))
        return jax.lax.map(lambda i: at_draw(jax.random.fold_in(key, i)), jnp.arange(self.samples))

    def _gaussian(self, params: Any) -> Gaussian:
        known = self.belief(params).gaussian()
        assert known is not None
        return known


def _is_none(leaf: Any) -> bool:
    return leaf is None
