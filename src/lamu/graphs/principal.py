"""Principal directions of rows, at which beliefs about factor models start."""

# After one update from random factors the loadings are small and similar, and a precision per column (ARD) then shrinks
# columns to zero that the data need: later sweeps do not recover them. Of 20 random starts on iris, wine and three
# simulated factors the best lost one, by 13 to 20 nats. From the directions of Jöreskog (1967), section 4,
#
# \[ \psi_d = \Big(1 - \frac{K}{2D}\Big) \Big/ (R^{-1})_{dd}, \qquad
#    \psi^{-1/2} R\, \psi^{-1/2} = U S U^\top, \qquad z_i = S^{-1/2} U^\top \psi^{-1/2} x_i, \]
#
# none was lost; with ψ = 1, principal components, 326 nats on the cells of breast cancer.

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.data.batch import Batch
from lamu.graphs.exemplars import points
from lamu.graphs.expressions import Sum, Times, Variable
from lamu.graphs.program import GraphSite
from lamu.typing import Array, Numeric, RandomKey

__all__ = ["scores"]

_MOST_COLUMNS = 1024  # whose correlations are decomposed in a second; more columns start at random
_RIDGE = 1e-3  # added to correlations: in single precision their inverse has three digits left
_LEAST_NOISE = 5e-3  # ψ of a column that others determine, as bounded in R's factanal
_SPREAD = 1.0  # of log ψ in further starts; on breast cancer one of six found a bound 8 nats above the first's


def scores(key: RandomKey, in_rows: tuple[GraphSite, ...], batch: Batch, number: Numeric) -> tuple[str, Array] | None:
    """Returns the name of a vector that loadings multiply, and its initial values `[rows, K]`; None for other rows."""
    # The first start, number 0, is the same for every key.
    latents = {site.name: site for site in in_rows if site.name not in batch.y and site.shape and len(site.shape) == 1}
    sites_of = {name: [site for site in in_rows if _loaded(site, name)] for name in latents}
    sites_of = {name: sites for name, sites in sites_of.items() if sites}
    if len(sites_of) != 1:  # several would all have the same directions
        return None
    ((name, sites),) = sites_of.items()
    points_and_weight = points(sites, batch, 1)
    if points_and_weight is None or points_and_weight[0].shape[1] > _MOST_COLUMNS:
        return None
    x, weight = points_and_weight
    K, D, shape = latents[name].shape[0], x.shape[1], (x.shape[0], latents[name].shape[0])  # pyright: ignore[reportOptionalSubscript]
    R = (x * weight[:, None]).T @ x / jnp.maximum(jnp.sum(weight), 1.0)
    psi_key, rest_key = jax.random.split(key)
    psi = max(1.0 - K / (2 * D), 0.25) / jnp.diagonal(jnp.linalg.inv(R + _RIDGE * jnp.eye(D, dtype=x.dtype)))
    psi = psi * jnp.exp(jnp.where(number > 0, _SPREAD, 0.0) * jax.random.normal(psi_key, (D,), x.dtype))
    root = jnp.sqrt(jnp.clip(psi, _LEAST_NOISE, 1.0))
    size, U = jnp.linalg.eigh(R / root[:, None] / root)
    size, U = jnp.maximum(size[::-1][:K], _RIDGE), U[:, ::-1][:, :K]
    z = (x / root) @ U / jnp.sqrt(size)
    return name, jnp.concatenate([z, jax.random.normal(rest_key, shape, x.dtype)[:, z.shape[1] :]], axis=1)


def _loaded(site: GraphSite, latent: str) -> bool:
    """Returns whether a vector enters a factor with exact messages only in a product with loadings."""
    return site.factor.exact and any(_in_product(part, latent) for part in site.factor.arguments.values())


def _in_product(expression: Any, latent: str) -> bool:
    if isinstance(expression, Sum):
        return _in_product(expression.left, latent) or _in_product(expression.right, latent)
    if not isinstance(expression, Times):
        return False
    loadings, vector = expression.left, expression.right
    return isinstance(loadings, Variable) and isinstance(vector, Variable) and vector.name == latent
