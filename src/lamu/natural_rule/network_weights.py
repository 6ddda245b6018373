r"""A subset of a network's weights as the subject of a belief, and the initial beliefs about it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.density import FlatPrior
from lamu.families import Binary, Gaussian
from lamu.natural_rule.parameter_subset import ParameterSubset, SubsetLoss
from lamu.natural_rule.subject import Subject
from lamu.objective import Objective
from lamu.operators import Dense
from lamu.predictives import PredictiveRule, Sampled
from lamu.priors import gaussian_belief, independent_normal
from lamu.priors.belief import in_structure
from lamu.record import record, static
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["GaussianStart", "LatentStart", "NetworkWeights", "SignStart", "Start"]


@runtime_checkable
class Start(Protocol):
    """The initial belief about weights."""

    family: str | Any  # the belief in words, for tables

    def belief(self, weights: Params, concentration: Any) -> Any:
        """Returns the belief, of any exponential family whose θ is a tree like the weights."""
        ...


@record
class SignStart(Start):
    """Binary weights with every |λ| alike, and the signs of the network's initial weights."""

    size: Number

    family = "Bernoulli on ±1"

    def belief(self, weights: Params, concentration: Any) -> Binary:
        # Returns the belief with λ = ±|λ|.
        return Binary(jax.tree.map(lambda w: jnp.where(w >= 0, 1, -1) * jnp.full_like(w, self.size), weights))


@record
class LatentStart(Start):
    r"""Binary weights with \(\lambda = \kappa w\): initial weights are the latent ones of a binary network."""

    family = "Bernoulli on ±1"

    def belief(self, weights: Params, concentration: Any) -> Binary:
        # Returns the belief with λ = κ w.
        return Binary(tree.scale(weights, concentration))


@record
class GaussianStart(Start):
    """A Gaussian around the initial weights, of one precision S₀ for all and any structure."""

    precision: Number = 1.0  # S₀, of every weight
    structure: Any = static(default=Dense)  # the operator class of the precision

    @property
    def family(self) -> str:
        """The structure in words."""
        return f"Gaussian, {self.structure.__name__.lower()} precision"

    def belief(self, weights: Params, concentration: Any) -> Gaussian:
        diagonal = jax.tree.map(lambda leaf: jnp.full_like(leaf, self.precision), weights)
        return Gaussian(weights, self.structure.from_diagonal(diagonal))


@record
class NetworkWeights(Subject):
    """The weights of a network whose paths match a pattern; all others, and dispersions, are the rest."""

    # The parameters of a `lamu.LogDensity` are such weights too. The prior gives λ₀: the natural parameters of a belief
    # of the same family (`Model.with_prior`); of a Gaussian one for a Gaussian belief, none for a density; for weights
    # ±1 also \(\delta m_0\) under a Gaussian prior with mean m₀ and precision δ, zero where it has no preference.

    begin: Start  # the initial belief, `SignStart(size)`, `LatentStart()`, `GaussianStart(precision)`, or your own
    leaves: tuple[str, ...] = static(default=("*",))  # path patterns of the weights

    @property
    def family(self) -> str:
        """The belief in words."""
        return self.begin.family

    @property
    def space(self) -> ParameterSubset:
        """Which weights the belief is about."""
        return ParameterSubset(self.leaves)

    @property
    def predictive(self) -> PredictiveRule:
        # Samples of the weights.
        return Sampled()

    def start(self, key: RandomKey, objective: Objective, batch: Batch) -> tuple[Any, Params, Any]:
        # Returns the belief at the network's initial weights, the rest, and the network's state.
        params, network_state = objective.model.init(key, batch)
        tree.require_matches(self.leaves, params["network"])
        weights, rest = self.space.split(params)
        return self.begin.belief(weights, objective.concentration), rest, network_state

    def prior(self, objective: Objective, belief: Any) -> Any:
        prior: Any = objective.model.free_prior
        if isinstance(belief, Gaussian):
            return _gaussian_prior(prior, belief, 1.0 / objective.temperature)
        known: Any = prior.exponential(belief.to_natural())
        gaussian = independent_normal(prior, belief.mean) if isinstance(belief, Binary) else None
        if type(known) is type(belief):
            values = known.to_natural()
        elif gaussian is not None:
            # log p(+1) − log p(−1) = 2 δ m₀, and λ is half the log odds.
            values = jax.tree.map(jnp.multiply, *gaussian)
        elif isinstance(belief, Binary):
            return tree.zeros_like(belief.to_natural())
        else:
            name = type(belief).__name__
            raise TypeError(f"the prior {type(prior).__name__} is no {name}; give Belief({name}(...))")
        like = belief.to_natural()
        values = jax.tree.map(lambda value, leaf: jnp.broadcast_to(value, leaf.shape).astype(leaf.dtype), values, like)
        return tree.scale(values, 1.0 / objective.temperature)

    def loss(self, objective: Objective, batch: Batch, network_state: Any, rest: Params) -> SubsetLoss:
        # Returns the mean loss on a batch in the selected weights.
        return SubsetLoss(objective, batch, network_state, self.space, rest)

    def residual(self, belief: Any, direction: Any) -> Array:
        # Returns the natural norm of the step's direction, in nats.
        return jnp.sqrt(jnp.maximum(tree.dot(direction, belief.fisher_product(direction)), 0.0))


def _gaussian_prior(prior: Any, belief: Gaussian, share: Any) -> Any:
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
