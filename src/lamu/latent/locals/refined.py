"""Steps of the Bayesian learning rule on a row's own belief, from where an encoder starts it."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lamu.families import Gaussian
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row
from lamu.graphs.local import Eliminated, Local, Rest
from lamu.graphs.proposals import Proposal
from lamu.latent.locals.amortised import Amortised, proposal_of
from lamu.latent.locals.families import MeanField
from lamu.latent.locals.row_of_graph import RowOfGraph
from lamu.operators import Diagonal
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, Params, RandomKey

__all__ = ["Refined"]


@record
@sized
class Refined(Local):
    r"""An encoder's belief after natural-gradient steps on the row's own bound.

    \[ \lambda \leftarrow (1 - \rho)\, \lambda + \rho\, \nabla_\mu E_{q_\lambda}[\log p(y, z)], \qquad
       \lambda_0 = \lambda_\mathrm{encoder}(y) \]

    with expectations over the same few draws in every step, pairs ±ε of unit second moments, and the retraction that
    keeps precisions positive; exact where \(\log p\) is a sum of quadratic functions of the entries of z. Gradients of
    the bound pass through the steps to the encoder. A step takes one gradient of the decoder a draw. As the local of a
    graph that an encoder has trained it tells how far the encoder is from the best belief of its family
    (`lamu.scores.amortisation_gap`).

    Attributes:
        local: the encoder, an `Amortised` with a mean-field belief.
        steps: how many steps.
        rate: ρ.
        pairs: how many pairs of draws.

    Raises:
        TypeError: for a local that is no `Amortised`, or has flows.
        ValueError: for fewer than one step or pair, or a rate outside (0, 1].

    Source: Khan & Rue (2021), equation 3; Lin, Schmidt & Khan (2020); Kim, Wiseman, Miller, Sontag & Rush (2018).

    Examples:
        >>> from lamu.latent import Amortised, Refined
        >>> from lamu.networks import MLP
        >>> Refined(Amortised(MLP((16,))), steps=5).rate
        0.3
    """

    local: Amortised | Any
    steps: int = static()
    rate: float = 0.3
    pairs: int = static(default=4)

    random: ClassVar[bool] = True
    tells_by_units: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.local, Amortised) or not isinstance(self.local.family, MeanField):
            raise TypeError(f"steps are taken on a mean-field belief, and the local is {self.local!r}; give Amortised")
        for name, number in (("steps", self.steps), ("pairs", self.pairs)):
            if number < 1:
                raise ValueError(f"{name}={number!r} refines nothing; give at least one, or the encoder alone")
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate={self.rate!r} is outside (0, 1]; give for instance 0.3")

    @property
    def given(self) -> tuple[str, ...]:
        """The latents that the encoder reads."""
        return self.local.given

    @property
    def counts(self) -> bool:
        """Whether the encoder's bound warms up."""
        return self.local.counts

    def init(self, key: RandomKey, name: str, row: Row, at: Environment) -> Params:
        return self.local.init(key, name, row, at)

    def weighed(self) -> Refined:
        """Returns the local with the bound of one draw of the refined belief."""
        return Refined(self.local.weighed(), self.steps, self.rate, self.pairs)

    def proposal(self, name: str, own: Params, row: Row, at: Environment, key: Any, rest: Rest) -> Proposal:
        return proposal_of(self.belief(name, own, row, at, key, rest), name, row)

    def unit_divergences(self, name: str, own: Params, row: Row, at: Environment, key: Any, rest: Rest) -> Array | None:
        """Returns the divergence of every unit of the refined belief; None where the encoder has none."""
        return RowOfGraph(name, row, at, rest).unit_divergences(self.belief(name, own, row, at, key, rest))

    def eliminated(self, name: str, own: Params, row: Row, at: Environment, key: Any, rest: Rest) -> Eliminated:
        """Returns the bound at the refined belief, and λ of all latents."""
        of_belief, of_bound = jax.random.split(key)
        refined = self.belief(name, own, row, at, of_belief, rest)
        return self.local.at_belief(refined, name, own, row, at, of_bound, rest)

    def belief(self, name: str, own: Params, row: Row, at: Environment, key: Any, rest: Rest) -> Gaussian:
        """Returns the refined belief about the vector of the latent's entries; arguments as of `eliminated`."""
        of_noise, of_rest = jax.random.split(key)
        joint, belief = RowOfGraph(name, row, at, rest), self.local.belief(name, own, row, at)
        noise = jax.random.normal(of_noise, (self.pairs, belief.mean.size), belief.mean.dtype)
        noise = noise / jnp.sqrt(jnp.mean(noise**2, axis=0, keepdims=True))
        noise = jnp.concatenate([noise, -noise])
        keys = jax.random.split(of_rest, len(noise))

        def expected(mean: Array, variance: Array) -> Array:
            def log_joint(noise: Array, key: RandomKey) -> Array:
                z = mean + jnp.sqrt(variance) * noise
                return joint.log_likelihood(z, jax.random.clone(key)) + joint.log_prior(z)

            return jnp.mean(jax.vmap(log_joint)(noise, keys))

        def step(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            mean, precision = state
            of_mean, of_variance = jax.grad(expected, argnums=(0, 1))(mean, 1 / precision)
            rate = jnp.asarray(self.rate, mean.dtype)
            away = -2 * of_variance - precision
            precision = precision + rate * away + (rate * away) ** 2 / (2 * precision)
            return (mean + rate * of_mean / precision, precision), None

        (mean, precision), _ = jax.lax.scan(step, (belief.mean, belief.precision.values), None, length=self.steps)
        return Gaussian(mean, Diagonal(precision))
