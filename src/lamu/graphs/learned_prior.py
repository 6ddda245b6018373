"""A prior of a latent with weights of its own, which are learned beside the networks."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import field, replace
from typing import Any, ClassVar, TypeVar

import jax.numpy as jnp

from lamu.graphs.expressions import Environment, Expression
from lamu.graphs.factor import Factor
from lamu.graphs.network import NetworkSite
from lamu.graphs.statistics import Numbers
from lamu.networks.interface import Network
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey

__all__ = ["LearnedPrior", "PriorWeights"]

P = TypeVar("P", bound="LearnedPrior")


@record
@sized
class LearnedPrior(Factor):
    """A density of a vector z of D numbers, which is affine in nothing: its latent leaves a row by draws.

    Its weights stand at `params["network"]["z.prior"]` for a variable z, with the prior of the graph's networks. One of
    one's own is a record with `first`, `log_prob` and `draw`.

    Attributes:
        latents: D.
        weights: what the program makes of the weights.
        name: of the variable; filled in by the program.
    """

    latents: int = static()
    weights: Any = field(default=None, kw_only=True)
    name: str = static(default="", kw_only=True)

    kind = Numbers
    affine: ClassVar[bool] = False
    conjugate: ClassVar[bool] = False
    misses: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.latents, int) or self.latents < 1:
            raise ValueError(f"latents={self.latents!r} is no number of latents; give a whole number from 1")

    @abstractmethod
    def first(self, key: RandomKey, dtype: Any) -> Params:
        """Returns first weights.

        Args:
            key: a random key.
            dtype: of the weights.
        """

    @abstractmethod
    def log_prob(self, weights: Params, z: Array, at: Environment) -> Array:
        """Returns log p(z) in nats, a scalar.

        Args:
            weights: the weights.
            z: `[D]`.
            at: the statistics of what all rows share.
        """

    @abstractmethod
    def draw(self, key: RandomKey, weights: Params, at: Environment) -> Array:
        """Returns a draw of z, `[D]`.

        Args:
            key: a random key.
            weights: the weights.
            at: the statistics of what all rows share.
        """

    def named(self: P, name: str, weights: NetworkSite) -> P:
        """Returns the prior of a variable, with its weights.

        Args:
            name: the variable.
            weights: where they stand.
        """
        return replace(self, name=name, weights=weights(jnp.zeros(self.latents)))

    def require(self, local: Any) -> None:
        """Raises a TypeError for a local of the latent with which the prior is no density; none by default.

        Args:
            local: a `lamu.graphs.Local`, or None.
        """
        del local

    @property
    def arguments(self) -> dict[str, Expression]:
        return {} if self.weights is None else {"weights": self.weights}

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.latents,)

    def log_density(self, x: Any, at: Environment, observed: Any = None) -> Array:
        """Returns log p(z) at a value of z."""
        return self.log_prob(at.statistics[self.weights.of.name], x.first, at)

    def sample(self, key: RandomKey, at: Environment) -> Array:
        """Returns a draw of z.

        Args:
            key: a random key.
            at: the statistics of what all rows share.
        """
        return self.draw(key, at.statistics[self.weights.of.name], at)


@record
class PriorWeights(Network):
    """The weights of a prior among those of networks; a function of nothing."""

    prior: Any

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        # Returns the first weights.
        return self.prior.first(key, x.dtype), {}

    def apply(
        self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        # Raises a TypeError: there is no output.
        raise TypeError("the weights of a prior are no network to be called; sample from the prior")
