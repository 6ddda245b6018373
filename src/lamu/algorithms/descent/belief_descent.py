"""Descent on the parameters of a belief: the algorithm that `bayes_by_backprop` makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.algorithms.descent.estimators import Estimator, Global
from lamu.algorithms.optax_step import Optimizer, optax_step, optimiser_or
from lamu.data.batch import Batch
from lamu.divergences import Divergence, ReverseKL
from lamu.families import Gaussian, Point, Product
from lamu.families.location_scale import BaseDistribution, LocationScale, StandardNormal
from lamu.objective import BatchLoss, NetworkParameters, NonGaussian, Objective
from lamu.operators import Diagonal, Scalar
from lamu.posterior import Posterior
from lamu.priors.interface import restricted
from lamu.protocol import Choices, Info, Runnable, Traits, recipe
from lamu.rate import Annealed, Rate, RateLike, rate
from lamu.record import record, static
from lamu.typing import Array, Belief, Data, Number, Numeric, Params, PyTree, RandomKey, State, Trace

__all__ = [
    "BeliefDescent",
    "DescentState",
    "ExpTransform",
    "PositiveTransform",
    "SoftplusTransform",
    "bayes_by_backprop",
]


@runtime_checkable
class PositiveTransform(Protocol):
    """An increasing function from all numbers onto the positive ones."""

    def __call__(self, raw: Array) -> Array:
        """Returns s."""
        ...

    def inverse(self, scale: Array) -> Array:
        """Returns ρ."""
        ...


@record
class SoftplusTransform:
    r"""\(s = \log(1 + e^\rho)\), exponential for small scales and linear for large ones."""

    def __call__(self, raw: Array) -> Array:
        """Returns log(1 + exp ρ)."""
        return jax.nn.softplus(raw)

    def inverse(self, scale: Array) -> Array:
        """Returns log(exp s − 1), without overflow."""
        return scale + jnp.log(-jnp.expm1(-scale))


@record
class ExpTransform:
    r"""\(s = e^\rho\), so that a step of ρ is a factor of s."""

    def __call__(self, raw: Array) -> Array:
        """Returns exp ρ."""
        return jnp.exp(raw)

    def inverse(self, scale: Array) -> Array:
        """Returns log s."""
        return jnp.log(scale)


@record
class DescentState:
    """What the next step needs."""

    count: Numeric  # steps taken
    params: dict[str, Params]  # what descends: "mean" m, "raw" ρ, and "rest", the dispersions
    optimizer: State  # the optax state
    network_state: State


@record
class BeliefDescent(Runnable):
    r"""Gradient descent on \(\frac1\kappa\, D(q_{m, \rho}, p)\) in m, ρ and the dispersions, by any optax optimiser."""

    optimizer: Optimizer = static()  # an optax gradient transformation
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
        return Traits(samples=self.samples)

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
        self, key: RandomKey, params: dict[str, Params], batch: Batch, objective: Objective, network_state: State
    ) -> tuple[Array, Array, dict[str, Params], State]:
        r"""Returns \(D / \kappa\) in nats a row, the loss to show, the gradient, and the network's new state."""

        def loss_at(rest: Params) -> BatchLoss:
            return BatchLoss(objective, batch, network_state, NetworkParameters(), rest, conjugate=True)

        if isinstance(self.divergence, ReverseKL):
            return self._bound(key, params, objective, loss_at)
        return self._weighed(key, params, objective, loss_at)

    def posterior(
        self, key: RandomKey, state: DescentState, objective: Objective, data: Data, trace: Trace
    ) -> Posterior:
        # Returns q about the weights, beside the dispersions' point.
        belief = self.belief(state.params)
        known: Belief = belief.gaussian() or belief
        whole = Product({"network": known, "likelihood": Point(state.params["rest"])})
        return Posterior.of(objective, whole, state.network_state, key)

    def _bound(
        self, key: RandomKey, params: Params, objective: Objective, loss_at: Callable[[Params], BatchLoss]
    ) -> PyTree:
        """The evidence bound: the divergence from Gaussian leaves is known, and what is known is not drawn."""
        whole = objective.model.free_prior
        known = whole.gaussian(params["mean"])
        # The divergence from a full matrix would factor it at every step: its log density is drawn.
        exact = known is not None and isinstance(known.precision, Diagonal | Scalar)
        exact = exact and isinstance(self.base_distribution, StandardNormal)
        remainder = NonGaussian.of(whole, params["mean"]) if exact else whole

        def divergence(params: Params) -> Array:
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

        def drawn(params: Params, key: RandomKey) -> tuple[Array, State]:
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

    def _weighed(
        self, key: RandomKey, params: Params, objective: Objective, loss_at: Callable[[Params], BatchLoss]
    ) -> PyTree:
        """Any divergence by the weights of its draws."""

        def drawn(params: Params, key: RandomKey) -> tuple[Array, State]:
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

    def _each(self, at_draw: Callable[[RandomKey], PyTree], key: RandomKey) -> PyTree:
        """One draw after the other, so that memory grows with what is kept of them alone."""
        if self.samples == 1:
            return jax.tree.map(lambda leaf: leaf[None], at_draw(key))
        return tree.each(lambda i: at_draw(jax.random.fold_in(key, i)), self.samples)

    def _gaussian(self, params: Params) -> Gaussian:
        known = self.belief(params).gaussian()
        assert known is not None
        return known


def _is_none(leaf: object) -> bool:
    return leaf is None


@recipe("Blundell et al. 2015, section 3.2")
def bayes_by_backprop(
    optimizer: Optimizer | None = None,
    estimator: Any = None,
    divergence: Any = None,
    samples: int = 1,
    base_distribution: Any = None,
    scale_transform: Any = None,
    init_scale: float = 0.02,
    factor: RateLike = Annealed(1.0),
) -> BeliefDescent:
    r"""Bayes by backprop: a mean-field belief, moved along the plain gradient in its own parameters.

    With \(\theta = m + s(\rho)\, z\), z of a fixed law, at temperature T and \(\kappa = N / T\):

    \[ F(m, \rho) = E_z\big[\bar\ell_D(m + s z)\big] + \tfrac1\kappa\, KL\big(q_{m,\rho} \,\|\, p^{1/T}\big), \qquad
       (m, \rho) \leftarrow (m, \rho) + f_t\, \mathrm{update}(\nabla F) \]

    where \(\bar\ell_D\) is the mean negative log likelihood. The divergence of a normal belief from a Gaussian prior is
    exact; any other is estimated from the draws. Dispersions descend beside, by the same optimiser. One gradient and
    one draw a parameter, draw and step; with `LocalReparameterisation()` and `Flipout()` two forward products a layer.

    Departures from the rule: the gradient in the parameters (m, ρ), and not the natural one; whatever the optimiser
    adds; a divergence other than the evidence bound's, where asked.

    Args:
        optimizer: an optax gradient transformation; `optax.adam(0.01)` where none is given.
        estimator: how rows are drawn, of `lamu.algorithms.descent`: `Global()` where none is given,
            `LocalReparameterisation()` or `Flipout()`.
        divergence: of `lamu.divergences`: `ReverseKL()`, the evidence bound, where none is given, `Renyi(alpha)` or
            `InclusiveKL()`, both with several draws.
        samples: how many draws a step.
        base_distribution: the law of z, of `lamu.families.location_scale`: `StandardNormal()` where none is given,
            `StandardLogistic()`, `StandardLaplace()`, `Radial()`, or `Quantile(function)` of any inverse
            distribution function.
        scale_transform: s(ρ), of `lamu.algorithms.descent`: `SoftplusTransform()` where None, or `ExpTransform()`.
        init_scale: s at the start, in the units of the weights.
        factor: \(f_t\), what every update is multiplied with: a number, a schedule of steps, or `Annealed`.

    Returns:
        The algorithm. Its posterior is the diagonal Gaussian about the weights (of another base distribution, a
        location–scale belief); learned dispersions are a point. `history["loss"]` is the expected negative log
        likelihood a row (for other divergences, their estimate a row).

    Raises:
        TypeError: for something that is no optimiser, estimator, divergence, base distribution or positive
            function, or a base distribution that the estimator cannot sample from.
        ValueError: for an initial scale or a factor that is not positive, or fewer draws than the divergence needs.

    Source: Blundell et al. (2015), section 3.2; Kingma, Salimans & Welling (2015); Wen et al. (2018).

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.descent.belief_descent import bayes_by_backprop
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), bayes_by_backprop(), epochs=20)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.95
        True
    """
    optimizer = optimiser_or(optimizer, "adam", 0.01)
    estimator = _part("estimator", estimator, Global(), Estimator, "Flipout()")
    divergence = _part("divergence", divergence, ReverseKL(), Divergence, "Renyi(0.5)")
    base_distribution = _part(
        "base_distribution", base_distribution, StandardNormal(), BaseDistribution, "StandardLogistic()"
    )
    scale_transform = _part(
        "scale_transform", scale_transform, SoftplusTransform(), PositiveTransform, "ExpTransform()"
    )
    estimator.require(base_distribution)
    if not isinstance(init_scale, int | float) or not init_scale > 0:
        raise ValueError(f"init_scale={init_scale!r} is no scale of a belief; give a positive number")
    name = type(divergence).__name__
    if not isinstance(samples, int) or samples < divergence.least:
        raise ValueError(f"samples={samples!r} cannot estimate {name}(); ask for at least {divergence.least}")
    if not isinstance(divergence, ReverseKL) and not estimator.joint:
        raise ValueError(
            f"{name}() weighs draws of all weights, and {type(estimator).__name__}() gives every row its own; use the "
            "estimator Global()"
        )
    return BeliefDescent(
        optimizer=optimizer,
        estimator=estimator,
        divergence=divergence,
        base_distribution=base_distribution,
        scale_transform=scale_transform,
        factor=rate(factor, "factor"),
        init_scale=float(init_scale),
        samples=samples,
    )


def _part(name: str, value: Any, default: Any, protocol: Any, example: str) -> Any:
    value = default if value is None else value
    # A class has the methods too.
    if isinstance(value, type) or not isinstance(value, protocol):
        raise TypeError(f"{name}={value!r} is no {name}; give for instance {example}")
    return value
