"""An encoder as the local of a latent."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lamu.families import Gaussian
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, shape_of
from lamu.graphs.local import Eliminated, Local, Rest
from lamu.graphs.proposals import Independent, Proposal, Reshaped
from lamu.graphs.statistics import Numbers, Vectors
from lamu.latent.bounds import ELBO, Bound, Importance, WarmUp
from lamu.latent.locals.encoder import encoded, first_encoder
from lamu.latent.locals.families import BeliefFamily, MeanField
from lamu.latent.locals.row_of_graph import RowOfGraph, natural
from lamu.networks.adapted import adapted
from lamu.operators import Diagonal
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["Amortised", "proposal_of"]

_DRAWS = 64  # of a belief whose moments are estimated


@record
class Amortised(Local):
    r"""A latent with a belief \(q(z \mid y)\) that a network makes of the row, its encoder.

    \[ \log p(y) \ge E_q[\log p(y, z) - \log q(z \mid y)] \]

    or any other of the bounds. The network reads all that the row holds, and the latents in `given`, which other
    locals draw before. Missing entries count as zero; counts c are read as
    \(\log(1 + c)\). Its weights stand at
    `params["network"]["local"][name]` and have no prior; train them with an optimiser,
    `blocks({"local/*": adam(1e-3), ...})`, or everything with `adam`.

    Attributes:
        network: the encoder; its output width comes from the latent and the family.
        family: of the belief, `MeanField()` or `Flows(...)`.
        given: latents that the encoder reads beside the data.
        bound: one of `lamu.latent.bounds`; a `WarmUp` goes by the training steps.

    Raises:
        TypeError: for something that is no bound or family; when it is used on a category (`Enumerated`).

    Source: Kingma & Welling (2014); Rezende, Mohamed & Wierstra (2014).

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu import graphs
        >>> from lamu.latent import Amortised
        >>> from lamu.networks import MLP
        >>> def vae(m):
        ...     decode = m.network("decode", MLP((8,)), outputs=5)
        ...     with m.rows():
        ...         z = m.sample("z", graphs.Normal(jnp.zeros(2), 1.0))
        ...         m.sample("y", lamu.likelihoods.Bernoulli()(decode(z)))
        >>> graph = lamu.Graph(vae, local={"z": Amortised(MLP((8,)))})
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> posterior.local({"y": jnp.eye(5)})["z"].mean.shape
        (5, 2)
    """

    network: Any
    family: BeliefFamily | Any = MeanField()
    given: tuple[str, ...] = static(default=())
    bound: Bound | Any = ELBO()

    random: ClassVar[bool] = True
    tells_by_units: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", adapted(self.network))
        object.__setattr__(self, "given", tuple(self.given))
        if not isinstance(self.bound, Bound):
            raise TypeError(f"the bound is {self.bound!r}; give one of lamu.latent, for instance ELBO()")
        if not isinstance(self.family, BeliefFamily):
            raise TypeError(f"the family is {self.family!r}; give MeanField() or Flows(...)")

    def init(self, key: RandomKey, name: str, row: Row, at: Environment) -> Params:
        """Returns fresh weights of the encoder, and what the family has beside them."""
        site = next(site for site in row.latent if site.name == name)
        if site.kind not in (Numbers, Vectors):
            raise TypeError(
                f"the latent {name!r} is {site.kind.words}, and an encoder's Gaussian needs numbers; use "
                "Enumerated(network) for a category"
            )
        size = math.prod(shape_of(site))
        of_network, of_family = jax.random.split(key)
        weights = first_encoder(self.network, of_network, name, self.given, row, self.family.outputs(size))
        return {"network": weights, "family": self.family.init(of_family, size, dtype_of(at, row.known))}

    @property
    def counts(self) -> bool:
        """Whether the bound warms up."""
        return isinstance(self.bound, WarmUp)

    def weighed(self) -> Amortised:
        """Returns the local with the bound of one draw, the log of an importance weight."""
        return replace(self, bound=Importance(1))

    def belief(self, name: str, own: Params, row: Row, at: Environment) -> Any:
        """Returns q(z | y) about the vector of the latent's entries.

        Args:
            name: the latent.
            own: the local's parameters.
            row: the row.
            at: the statistics of what all rows share.
        """
        return self.family.belief(own["family"], encoded(self.network, own["network"], name, self.given, row, at))

    def proposal(self, name: str, own: Params, row: Row, at: Environment, key: Any, rest: Rest) -> Proposal:
        """Returns the encoder's belief, with the flows of its family."""
        return proposal_of(self.belief(name, own, row, at), name, row)

    def unit_divergences(self, name: str, own: Params, row: Row, at: Environment, key: Any, rest: Rest) -> Array | None:
        """Returns the divergence of every unit; None under flows, a learned prior, or one of latents that are open."""
        return RowOfGraph(name, row, at, rest).unit_divergences(self.belief(name, own, row, at))

    def eliminated(self, name: str, own: Params, row: Row, at: Environment, key: Any, rest: Rest) -> Eliminated:
        """Returns the bound by draws of the encoder's belief, and λ of all latents: of others at one draw of this."""
        return self.at_belief(self.belief(name, own, row, at), name, own, row, at, key, rest)

    def at_belief(
        self, belief: Any, name: str, own: Params, row: Row, at: Environment, key: Any, rest: Rest
    ) -> Eliminated:
        """Returns what `eliminated` does, at a belief that may be another one than the encoder's.

        Args:
            belief: about the vector of the latent's entries.
            name: the latent.
            own: the local's parameters.
            row: the row.
            at: the statistics of what all rows share.
            key: a random key of the row.
            rest: what takes the other latents out.
        """
        joint = RowOfGraph(name, row, at, rest)
        weight = 1.0 if at.step is None else self.bound.weight(at.step).astype(dtype_of(own))
        if at.values_only:
            return self.bound.of_row(key, joint, belief, weight), {}
        of_bound, of_draw, of_rest, of_moments = jax.random.split(key, 4)
        bound = self.bound.of_row(of_bound, joint, belief, weight)
        drawn = row.given(name, jnp.reshape(belief.sample(of_draw), joint.site.shape or ()))
        own_natural = natural(joint.site, *_moments(belief, of_moments))
        return bound, {**rest(drawn, at, of_rest)[1], name: own_natural}


def proposal_of(belief: Any, name: str, row: Row) -> Proposal:
    """Returns a belief about the vector of a latent's entries as one about the latent."""
    site = next(site for site in row.latent if site.name == name)
    return Independent({name: Reshaped(belief, shape_of(site))})


def _moments(belief: Any, key: RandomKey) -> tuple[Array, Array]:
    """Returns mean and precision of every entry: known of a mean-field Gaussian, of another belief by draws."""
    if isinstance(belief, Gaussian) and isinstance(belief.precision, Diagonal):
        return belief.mean, belief.precision.values
    draws = jax.vmap(belief.sample)(jax.random.split(key, _DRAWS))
    return jnp.mean(draws, axis=0), 1 / jnp.var(draws, axis=0, ddof=1)
