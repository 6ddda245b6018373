"""A latent that is a function of the row."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax.numpy as jnp

from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, shape_of
from lamu.graphs.local import Eliminated, Local, Rest
from lamu.latent.locals.encoder import encoded, first_encoder
from lamu.latent.locals.row_of_graph import natural
from lamu.networks.adapted import adapted
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Delta"]


@record
class Delta(Local):
    r"""A latent \(z = f(y)\) that a network computes of the row: an autoencoder's code.

    A row counts \(\log p(y \mid z) + \log p(z)\) at that z, the log joint density. It is neither the row's density nor
    a bound of it: a point has no entropy.

    Attributes:
        network: the encoder f.

    Source: Rumelhart, Hinton & Williams (1986); Vincent, Larochelle, Bengio & Manzagol (2008) for the picture.

    Examples:
        >>> from lamu.latent import Delta
        >>> from lamu.networks import MLP
        >>> Delta(MLP((16,))).random
        False
    """

    network: Any

    has_density: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", adapted(self.network))

    def init(self, key: RandomKey, name: str, row: Row, at: Environment) -> Params:
        """Returns fresh weights of the encoder."""
        site = next(site for site in row.latent if site.name == name)
        return first_encoder(self.network, key, name, (), row, math.prod(shape_of(site)))

    def weighed(self) -> Delta:
        """Raises a TypeError: a code has no density."""
        raise TypeError("a Delta local has no density of a row, because a point has no entropy; use Amortised(network)")

    def eliminated(self, name: str, own: Params, row: Row, at: Environment, key: Any, rest: Rest) -> Eliminated:
        """Returns the log joint density at the code, and λ of a narrow belief around it."""
        return self.at_code(self.code(name, own, row, at), name, row, at, key, rest)

    def code(self, name: str, own: Params, row: Row, at: Environment) -> Array:
        """Returns f(y), a vector.

        Args:
            name: the latent.
            own: the local's parameters.
            row: the row that the encoder reads.
            at: the statistics of what all rows share.
        """
        return encoded(self.network, own, name, (), row, at)

    def at_code(self, code: Array, name: str, row: Row, at: Environment, key: Any, rest: Rest) -> Eliminated:
        """Returns what `eliminated` does, at a code.

        Args:
            code: a vector.
            name: the latent.
            row: the row.
            at: the statistics of what all rows share.
            key: a random key of the row, or None.
            rest: what takes the other latents out.
        """
        site = next(site for site in row.latent if site.name == name)
        code = jnp.reshape(code, shape_of(site))
        bound, others = rest(row.given(name, code), at, key)
        narrow = jnp.full((code.size,), 1 / jnp.finfo(code.dtype).eps, code.dtype)
        return bound, {**others, name: natural(site, code.reshape(-1), narrow)}
