"""A subset of a network's weights as the subject of a belief, and the initial beliefs about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import require_whole_field
from lamu.data.batch import Batch
from lamu.density import FlatPrior
from lamu.families import Binary, Gaussian
from lamu.natural_rule.subject import Subject
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import Evaluation
from lamu.operators import Dense
from lamu.priors import gaussian_belief, independent_normal
from lamu.priors.belief import in_structure
from lamu.record import record, static
from lamu.typing import Array, Belief, Number, Numeric, Params, RandomKey, State, Statistics

__all__ = [
    "Flips",
    "GaussianStart",
    "LatentStart",
    "NetworkWeights",
    "ParameterSubset",
    "Points",
    "SignStart",
    "Start",
    "SubsetLoss",
    "ZeroTemperature",
]


@record
class ParameterSubset(NetworkParameters):
    """The network's weights whose path matches a pattern; other weights and dispersions are the rest."""

    patterns: tuple[str, ...] = static(default=("*",))  # path patterns below `network`

    def split(self, params: Params) -> tuple[Params, Params]:
        # Returns the selected weights and the rest, with None for leaves of the other.

        def chosen(path: str) -> bool:
            return any(tree.matches(path, pattern) for pattern in self.patterns)

        weights = params["network"]
        ours = tree.map_with_path(lambda path, leaf: leaf if chosen(path) else None, weights)
        others = tree.map_with_path(lambda path, leaf: None if chosen(path) else leaf, weights)
        return ours, {"network": others, "likelihood": params["likelihood"]}

    def join(self, coordinates: Params, rest: Params) -> Params:
        return {"network": tree.merged(coordinates, rest["network"]), "likelihood": rest["likelihood"]}


@record
class SubsetLoss(BatchLoss):
    """The mean negative log likelihood in the selected weights, plus the negative log prior of the rest."""

    def value(self, coordinates: Params, rest: Params, key: RandomKey | None) -> tuple[Array, State]:
        params = self.space.join(coordinates, rest)
        value, state = self.objective.negative_log_likelihood(params, self.batch, self.network_state, key, train=True)
        model = self.objective.model
        log_prior = model.dispersion_log_prior(params["likelihood"])
        if jax.tree.leaves(rest["network"]):
            # The prior of the selected weights is constant on their support, or enters the belief exactly.
            log_prior = log_prior + model.free_prior.log_prob(rest["network"])
        return value - (log_prior / self.objective.data_size).astype(value.dtype), state


_AT_ONCE = 32  # flipped copies of the weights


@runtime_checkable
class Points(Protocol):
    r"""Base class of expectations by points, each with a map from \(\nabla_\theta\) to \(\nabla_\mu\)."""

    # `lamu.expectations.Relaxed` is one, `ZeroTemperature` another.
    #
    # `samples`: the number of points.

    @property
    def samples(self) -> int:
        """The number of points."""
        ...

    def point(self, key: RandomKey, belief: Belief) -> tuple[Params, Callable[[Params], Statistics]]:
        r"""Returns a point θ, and the function from \(\nabla\bar\ell(\theta)\) to the gradient in μ."""
        ...


@record
class ZeroTemperature:
    """The delta method in the limit of zero temperature: the gradient at the signs, used as the gradient in μ."""

    # \[ \mu = \tanh\lambda \to \mathrm{sign}\,\lambda, \qquad
    #    \nabla_\mu E_q[\bar\ell] \approx \nabla_\theta \bar\ell(\theta)\big|_{\theta = \mathrm{sign}\,\lambda} \]
    #
    # One gradient.
    #
    # Source: Meng, Bachmann & Khan (2020), section 3 and table 1.

    samples: int = static(default=1)

    departure = "delta at zero temperature"

    def point(self, key: RandomKey, belief: Belief) -> tuple[Params, Callable[[Params], Statistics]]:
        """Returns the signs, and the identity."""
        return belief.mode, lambda gradient: gradient


@record
class Flips:
    """The gradient in μ from half the difference of the losses at flipped weights; unbiased up to `most` weights."""

    # The expected loss is linear in each \(\mu_i = E[\theta_i]\); its slope is an expectation over the other weights,
    #
    # \[ \nabla_{\mu_i} E_q[\bar\ell] = \tfrac12\, E_q\big[ \bar\ell(\theta_{-i}, +1) - \bar\ell(\theta_{-i}, -1)
    #    \big] \]
    #
    # for which a sample of all weights and its D flips give an unbiased estimate. More weights than `most` would need
    # as many losses; for them the difference is expanded to second order in the flipped weight,
    #
    # \[ \tfrac12\big(\bar\ell(\theta_{-i}, +1) - \bar\ell(\theta_{-i}, -1)\big) \approx
    #    \partial_i \bar\ell(\theta) - \theta_i\, v_i (\nabla^2 \bar\ell\, v)_i, \qquad v_j = \pm 1 \text{ at random,}
    #    \]
    #
    # which leaves the third derivative in a single weight, small where many weights share an output. One gradient and D
    # losses a draw, or one gradient and one product with the Hessian.
    #
    # Source: Titsias & Lázaro-Gredilla (2015), local expectation gradients.

    samples: int = static(default=1)  # the number of samples
    most: int = static(default=256)  # the largest number of weights that are flipped one by one

    @property
    def departure(self) -> str:
        """The departure from the rule, for more weights than are flipped one by one."""
        return f"differences to second order beyond {self.most} weights"

    def __post_init__(self) -> None:
        require_whole_field(self, "samples", problem="cannot be averaged")

    def evaluate(self, key: RandomKey, belief: Belief, loss: BatchLoss) -> Evaluation:
        """Returns the mean loss, its gradient in μ and in the rest, and the network's state."""
        if not isinstance(belief, Binary):
            raise TypeError(f"Flips() is for Binary beliefs, not {type(belief).__name__}; use ScoreFunction()")

        def at_draw(key: RandomKey) -> Evaluation:
            draw_key, layer_key, sign_key = jax.random.split(key, 3)
            theta = belief.sample(draw_key)
            point = loss.gradient(theta, layer_key)
            if tree.dimension(theta) <= self.most:
                slopes = _differences(loss, theta, point.value, layer_key)
            else:
                slopes = _to_second_order(loss, theta, point.coordinates, layer_key, sign_key)
            return Evaluation(point.value, slopes, point.rest, None, point.network_state)

        return tree.average_over(at_draw, key, self.samples)


def _differences(loss: BatchLoss, theta: Params, value: Array, key: RandomKey) -> Params:
    vector, unravel = tree.ravel(theta)

    def flipped(index: Array) -> Array:
        other = unravel(vector.at[index].multiply(-1.0))
        return loss.value(other, loss.rest, jax.random.clone(key))[0]

    values = jax.lax.map(flipped, jnp.arange(vector.shape[0]), batch_size=_AT_ONCE)
    return unravel(0.5 * vector * (value - values).astype(vector.dtype))


def _to_second_order(loss: BatchLoss, theta: Params, slope: Params, key: RandomKey, sign_key: RandomKey) -> Params:
    keys = tree.keys_like(sign_key, theta)
    signs = jax.tree.map(lambda leaf, sign_key: jax.random.rademacher(sign_key, leaf.shape, leaf.dtype), theta, keys)
    product = jax.jvp(lambda params: loss.gradient(params, jax.random.clone(key)).coordinates, (theta,), (signs,))[1]
    return jax.tree.map(lambda g, s, v, h: g - s * v * h, slope, theta, signs, product)


class Start:
    """The initial belief about weights."""

    family: str | Any  # the belief in words, for tables

    def belief(self, weights: Params, concentration: Numeric) -> Belief:
        """Returns the belief, of any exponential family whose θ is a tree like the weights."""
        raise NotImplementedError


@record
class SignStart(Start):
    """Binary weights with every |λ| alike, and the signs of the network's initial weights."""

    size: Number

    family = "Bernoulli on ±1"

    def belief(self, weights: Params, concentration: Numeric) -> Binary:
        # Returns the belief with λ = ±|λ|.
        return Binary(jax.tree.map(lambda w: jnp.where(w >= 0, 1, -1) * jnp.full_like(w, self.size), weights))


@record
class LatentStart(Start):
    r"""Binary weights with \(\lambda = \kappa w\): the initial weights are the latent weights of a binary network."""

    family = "Bernoulli on ±1"

    def belief(self, weights: Params, concentration: Numeric) -> Binary:
        # Returns the belief with λ = κ w.
        return Binary(tree.scale(weights, concentration))


@record
class GaussianStart(Start):
    """A Gaussian around the initial weights, with the same precision S₀ for all and any structure."""

    precision: Number = 1.0  # S₀, the precision of every weight
    structure: Any = static(default=Dense)  # the operator class of the precision

    @property
    def family(self) -> str:
        """The structure in words."""
        return f"Gaussian, {self.structure.__name__.lower()} precision"

    def belief(self, weights: Params, concentration: Numeric) -> Gaussian:
        diagonal = jax.tree.map(lambda leaf: jnp.full_like(leaf, self.precision), weights)
        return Gaussian(weights, self.structure.from_diagonal(diagonal))


@record
class NetworkWeights(Subject):
    """The weights of a network whose paths match a pattern; other weights and dispersions are the rest."""

    # The parameters of a `lamu.LogDensity` are supported too. The prior gives λ₀: the natural parameters of a belief of
    # the same family (`Model.with_prior`), or of a Gaussian prior for a Gaussian belief. For a density there is none.
    # For weights ±1 it may also be a Gaussian prior with mean m₀ and precision δ, which gives \(\delta m_0\).

    begin: Start  # the initial belief, `SignStart(size)`, `LatentStart()`, `GaussianStart(precision)`, or your own
    leaves: tuple[str, ...] = static(default=("*",))  # path patterns of the weights

    @property
    def family(self) -> str:
        """A description of the belief."""
        return self.begin.family

    @property
    def space(self) -> ParameterSubset:
        """The weights of the belief."""
        return ParameterSubset(self.leaves)

    def start(self, key: RandomKey, objective: Objective, batch: Batch) -> tuple[Belief, Params, State]:
        # Returns the belief at the network's initial weights, the rest, and the network's state.
        params, network_state = objective.model.init(key, batch)
        tree.require_matches(self.leaves, params["network"])
        weights, rest = self.space.split(params)
        return self.begin.belief(weights, objective.concentration), rest, network_state

    def prior(self, objective: Objective, belief: Belief) -> Statistics:
        prior: Any = objective.model.free_prior
        if isinstance(belief, Gaussian):
            return _gaussian_prior(prior, belief, 1.0 / objective.temperature)
        conjugate: Belief = prior.exponential(belief.to_natural())
        gaussian = independent_normal(prior, belief.mean) if isinstance(belief, Binary) else None
        if type(conjugate) is type(belief):
            values = conjugate.to_natural()
        elif gaussian is not None:
            # log p(+1) − log p(−1) = 2 δ m₀, and λ is half the log odds.
            values = jax.tree.map(jnp.multiply, *gaussian)
        elif isinstance(belief, Binary):
            return tree.zeros_like(belief.to_natural())
        else:
            name = type(belief).__name__
            raise TypeError(f"the prior {type(prior).__name__} is not a {name}; give Belief({name}(...))")
        like = belief.to_natural()
        values = jax.tree.map(lambda value, leaf: jnp.broadcast_to(value, leaf.shape).astype(leaf.dtype), values, like)
        return tree.scale(values, 1.0 / objective.temperature)

    def loss(self, objective: Objective, batch: Batch, network_state: State, rest: Params) -> SubsetLoss:
        # Returns the mean loss on a batch in the selected weights.
        return SubsetLoss(objective, batch, network_state, self.space, rest)


def _gaussian_prior(prior: Any, belief: Gaussian, share: Numeric) -> Statistics:
    """Returns the natural parameters of a Gaussian prior to a power, in the structure of the belief."""
    if isinstance(prior, FlatPrior):
        return tree.zeros_like(belief.to_natural())
    gaussian = gaussian_belief(prior, belief.mean)
    if gaussian is None:
        raise TypeError(
            f"the prior {type(prior).__name__} is not Gaussian, and the belief is; use a lamu.LogDensity of likelihood "
            "and prior together, or ivon()"
        )
    return Gaussian(gaussian.mean, in_structure(type(belief.precision), gaussian).scale(share)).to_natural()
