"""A belief about the latent sites of a program: conjugate families beside a Gaussian of real coordinates."""

from __future__ import annotations

from typing import Any

import jax

from lamu.families import Product
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["SiteBeliefs"]


@record
class SiteBeliefs:
    r"""\(q(\theta) = \prod_k q_k(\theta_k)\; q(\theta_r)\), with one belief about all sites of real coordinates.

    Attributes:
        parts: `conjugate`, a product by site, and `normal`, a belief about the sites together; either may be absent.

    Examples:
        >>> from lamu.families import Gamma, Product
        >>> from lamu.programs import SiteBeliefs
        >>> belief = SiteBeliefs(Product({"conjugate": Product({"tau": Gamma(2.0, 1.0)})}))
        >>> float(belief.mean["tau"])
        2.0
    """

    parts: Product

    kind = "product"

    @property
    def mean(self) -> Params:
        """E_q[θ] by site."""
        return _merged(self.parts.mean)

    def sample(self, key: RandomKey) -> Params:
        """Returns one draw of θ by site."""
        return _merged(self.parts.sample(key))

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns independent draws along a leading axis; draw i depends on the key and i alone."""
        return jax.lax.map(lambda i: self.sample(jax.random.fold_in(key, i)), jax.numpy.arange(count))

    def log_prob(self, theta: Params) -> Array:
        """Returns log q(θ) in nats."""
        parts: dict[str, Any] = {name: part.mean for name, part in self.parts.factors.items()}
        return self.parts.log_prob({name: {site: theta[site] for site in part} for name, part in parts.items()})


def _merged(parts: Any) -> Params:
    return {site: value for part in parts.values() for site, value in part.items()}
