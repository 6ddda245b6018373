"""Gradient descent on the parameters of a belief: the algorithm of `bayes_by_backprop`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.algorithms.descent.estimators import Estimator, Global
from lamu.algorithms.optimisers import Optimizer, optax_step, optimiser_or
from lamu.base.arguments import number, whole_number
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
    """Protocol of an increasing function from the real numbers onto the positive ones."""

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
    r"""\(s = e^\rho\): an additive step of ρ is a multiplicative step of s."""

    def __call__(self, raw: Array) -> Array:
        """Returns exp ρ."""
        return jnp.exp(raw)

    def inverse(self, scale: Array) -> Array:
        """Returns log s."""
        return jnp.log(scale)


@record
class DescentState:
    """State carried between steps."""

    count: Numeric  # steps taken
    params: dict[str, Params]  # trained: "mean" m, "raw" ρ, and "rest", the dispersions
    optimizer: State  # the optax state
    network_state: State


@record
class BeliefDescent(Runnable):
    r"""Gradient descent on \(\frac1\kappa\, D(q_{m, \rho}, p)\) in m, ρ and the dispersions, by any optax optimiser."""

    optimizer: Optimizer = static()  # an optax gradient transformation
    estimator: Estimator  # how weights are sampled for the rows
    divergence: Divergence  # D
    base_distribution: BaseDistribution  # the law of z in \(\theta = m + s(\rho) z\)
    scale_transform: PositiveTransform  # s(ρ)
    factor: Rate  # factor of every update
    init_scale: Number  # s at the start
    samples: int = static(default=1)  # number of samples a step

    @property
    def traits(self) -> Traits:
        # Minibatches, for as long as the caller says.
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
        # Returns the state at the network's initial weights, with every scale at its initial value.
        params, network_state = objective.model.init(key, batch)
        mean, rest = NetworkParameters().split(params)
        raw = jax.tree.map(lambda leaf: self.scale_transform.inverse(jnp.full_like(leaf, self.init_scale)), mean)
        moving = {"mean": mean, "raw": raw, "rest": rest}
        return DescentState(jnp.zeros((), jnp.int32), moving, self.optimizer.init(moving), network_state)

    def belief(self, params: dict[str, Params]) -> LocationScale:
        """Returns q of the trained parameters."""
        return LocationScale(params["mean"], jax.tree.map(self.scale_transform, params["raw"]), self.base_distribution)

    def step(
        self, key: RandomKey, state: DescentState, batch: Batch, objective: Objective
    ) -> tuple[DescentState, Info]:
        # Returns the state after one update.
        estimate = lambda params: self.estimate(key, params, batch, objective, state.network_state)
        value, loss, gradient, network_state = estimate(state.params)
        # Line searches evaluate the objective themselves, with the same samples.
        value_at = lambda params: self.estimate(jax.random.clone(key), params, batch, objective, state.network_state)[0]
        params, optimizer = optax_step(
            self.optimizer, gradient, state.optimizer, state.params, value, value_at, self.factor(state.count)
        )
        scaled = jax.tree.map(lambda s, g: s * g, self.belief(state.params).scale, gradient["mean"])
        residual = objective.concentration * jnp.sqrt(tree.dot(scaled, scaled))
        return DescentState(state.count + 1, params, optimizer, network_state), Info(loss, residual)

    def estimate(
        self, key: RandomKey, params: dict[str, Params], batch: Batch, objective: Objective, network_state: State
    ) -> tuple[Array, Array, dict[str, Params], State]:
        r"""Returns \(D / \kappa\) in nats per row, the loss to report, the gradient, and the network's new state."""

        def loss_at(rest: Params) -> BatchLoss:
            return BatchLoss(objective, batch, network_state, NetworkParameters(), rest, conjugate=True)

        if isinstance(self.divergence, ReverseKL):
            return self._bound(key, params, objective, loss_at)
        return self._weighted(key, params, objective, loss_at)

    def posterior(
        self, key: RandomKey, state: DescentState, objective: Objective, data: Data, trace: Trace
    ) -> Posterior:
        # Returns q about the weights, with the dispersions as a point.
        belief = self.belief(state.params)
        network_belief: Belief = belief.gaussian() or belief
        product = Product({"network": network_belief, "likelihood": Point(state.params["rest"])})
        return Posterior.of(objective, product, state.network_state, key)

    def _bound(
        self, key: RandomKey, params: Params, objective: Objective, loss_at: Callable[[Params], BatchLoss]
    ) -> PyTree:
        """The evidence lower bound: exact for Gaussian leaves of the prior, sampled for the others."""
        prior = objective.model.free_prior
        gaussian_prior = prior.gaussian(params["mean"])
        # The exact divergence from a full matrix would factor it at every step: its log density is sampled.
        exact = gaussian_prior is not None and isinstance(gaussian_prior.precision, Diagonal | Scalar)
        exact = exact and isinstance(self.base_distribution, StandardNormal)
        remainder = NonGaussian.of(prior, params["mean"]) if exact else prior

        def divergence(params: Params) -> Array:
            if not exact:
                return -self.belief(params).entropy() / objective.concentration
            assert gaussian_prior is not None
            tempered = Gaussian(gaussian_prior.mean, gaussian_prior.precision.scale(1.0 / objective.temperature))
            belief = self._gaussian(params)
            if remainder is None:
                return belief.kl(tempered) / objective.concentration
            others = jax.tree.map(
                lambda m, x: x if m is None else None, gaussian_prior.mean, belief.mean, is_leaf=_is_none
            )
            normal, other = restricted(belief, gaussian_prior.mean), restricted(belief, others)
            assert normal is not None
            assert other is not None
            return (normal.kl(tempered) - other.entropy()) / objective.concentration

        def sampled(params: Params, key: RandomKey) -> tuple[Array, State]:
            belief = self.belief(params)
            value, state = self.estimator.value(key, belief, loss_at(params["rest"]))
            if remainder is not None:
                # The sample of the estimator Global(), which uses the first half of its key.
                theta = belief.sample(jax.random.split(jax.random.clone(key))[0])
                prior_loss = -remainder.log_prob(theta) / objective.data_size
                value = value + prior_loss.astype(value.dtype)
            return value, state

        at_draw = lambda key: jax.value_and_grad(sampled, has_aux=True)(params, key)
        (value, network_state), gradient = tree.average(self._sequentially(at_draw, key))
        exact_value, exact_gradient = jax.value_and_grad(divergence)(params)
        return (
            value + exact_value.astype(value.dtype),
            value,
            tree.add(gradient, exact_gradient),
            network_state,
        )

    def _weighted(
        self, key: RandomKey, params: Params, objective: Objective, loss_at: Callable[[Params], BatchLoss]
    ) -> PyTree:
        """Estimates any divergence by importance weights of its samples."""

        def surrogate(params: Params, key: RandomKey) -> tuple[Array, State]:
            draw_key, layer_key = jax.random.split(key)
            belief = self.belief(params)
            theta = belief.sample(draw_key)
            if not self.divergence.through_draws:
                theta = jax.lax.stop_gradient(theta)
            loss, state = loss_at(params["rest"]).value(theta, params["rest"], layer_key)
            prior_loss = -objective.model.free_prior.log_prob(theta) / objective.data_size
            log_target = -objective.concentration * (loss + prior_loss.astype(loss.dtype))
            log_belief = belief.log_prob(theta)
            return self.divergence.surrogate(log_target, log_belief), (log_target - log_belief, loss, state)

        at_draw = lambda key: jax.value_and_grad(surrogate, has_aux=True)(params, key)
        (_, (log_weights, _, states)), gradients = self._sequentially(at_draw, key)
        shares = self.divergence.shares(log_weights) / objective.concentration
        gradient = jax.tree.map(lambda leaf: jnp.tensordot(shares.astype(leaf.dtype), leaf, axes=1), gradients)
        value = self.divergence.value(log_weights) / objective.concentration
        return value, value, gradient, tree.average(states)

    def _sequentially(self, at_draw: Callable[[RandomKey], PyTree], key: RandomKey) -> PyTree:
        """Evaluates samples one after the other, so that memory grows only with the results that are kept."""
        if self.samples == 1:
            return jax.tree.map(lambda leaf: leaf[None], at_draw(key))
        return tree.each(lambda i: at_draw(jax.random.fold_in(key, i)), self.samples)

    def _gaussian(self, params: Params) -> Gaussian:
        gaussian = self.belief(params).gaussian()
        assert gaussian is not None
        return gaussian


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
    r"""Bayes by backprop: a mean-field belief, trained by the Euclidean gradient in its own parameters.

    With \(\theta = m + s(\rho)\, z\), z of a fixed distribution, at temperature T and \(\kappa = N / T\):

    \[ F(m, \rho) = E_z\big[\bar\ell_D(m + s z)\big] + \tfrac1\kappa\, KL\big(q_{m,\rho} \,\|\, p^{1/T}\big), \qquad
       (m, \rho) \leftarrow (m, \rho) + f_t\, \mathrm{update}(\nabla F) \]

    where \(\bar\ell_D\) is the mean negative log likelihood. The divergence of a normal belief from a Gaussian prior is
    exact; any other is estimated from samples. The same optimiser trains the dispersions. One gradient and
    one normal number a parameter, sample and step; `LocalReparameterisation()` and `Flipout()` take two products.

    Departures from the rule: the gradient in the parameters (m, ρ) is not the natural one; those of the optimiser;
    a divergence other than the evidence lower bound's, if set.

    Args:
        optimizer: an optax gradient transformation; `optax.adam(0.01)` where None.
        estimator: how weights are sampled, of `lamu.algorithms.descent`: `Global()` where None,
            `LocalReparameterisation()` or `Flipout()`.
        divergence: of `lamu.divergences`: `ReverseKL()`, the evidence lower bound, where None, `Renyi(alpha)` or
            `InclusiveKL()`, both with several samples.
        samples: number of samples a step.
        base_distribution: distribution of z, of `lamu.families.location_scale`: `StandardNormal()` where None,
            `StandardLogistic()`, `StandardLaplace()`, `Radial()`, or `Quantile(function)` of any inverse
            distribution function.
        scale_transform: s(ρ), of `lamu.algorithms.descent`: `SoftplusTransform()` where None, or `ExpTransform()`.
        init_scale: s at the start, in the units of the weights.
        factor: \(f_t\), the factor of every update: a number, a schedule of steps, or `Annealed`.

    Returns:
        The algorithm. Its posterior is the diagonal Gaussian about the weights (of another base distribution, a
        location–scale belief); learned dispersions are a point. `history["loss"]` is the expected negative log
        likelihood a row (for other divergences, their estimate a row).

    Raises:
        TypeError: if an argument is not an optimiser, estimator, divergence, base distribution or positive
            function, or a base distribution that the estimator cannot sample from.
        ValueError: for an initial scale or a factor that is not positive, or fewer samples than the divergence needs.

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
    if not (number(init_scale) or 0.0) > 0:
        raise ValueError(f"init_scale={init_scale!r} is not a scale of a belief; give a positive number")
    name = type(divergence).__name__
    samples = whole_number("samples", samples, divergence.least, f"cannot estimate {name}()")
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
    # isinstance with a protocol also accepts a class, which has the methods too.
    if isinstance(value, type) or not isinstance(value, protocol):
        raise TypeError(f"{name}={value!r} is not a valid {name}; give for instance {example}")
    return value
