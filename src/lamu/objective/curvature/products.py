r"""Products of the curvature with a vector, without the matrix: \(v \mapsto \nabla^2\bar\ell\, v\) and its likes."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.rows import without_padding
from lamu.typing import Number, Params, RandomKey

__all__ = ["gauss_newton_product", "hessian_product", "hutchinson_diagonal"]


def hessian_product(loss: BatchLoss, theta: Params, key: RandomKey | None = None) -> Callable[[Params], Params]:
    r"""Returns \(v \mapsto \nabla^2\bar\ell(\theta)\, v\): one backward pass, differentiated along v.

    What the loss holds is in it, its prior where it has one. The passes are linearised once: each product costs about
    two gradients.

    Args:
        loss: the mean loss on a batch.
        theta: the point.
        key: for random layers, the same at every product.

    Source: Pearlmutter (1994).

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> from lamu.objective import BatchLoss, Objective, NetworkParameters
        >>> from lamu.objective.curvature import hessian_product
        >>> model = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Gaussian(scale=0.5))
        >>> batch = lamu.data.Batch.of(jnp.eye(2), jnp.zeros(2))
        >>> params, state = model.init(jax.random.key(0), batch)
        >>> loss = BatchLoss(Objective(model, 2), batch, state, NetworkParameters(), {}, conjugate=True)
        >>> product = hessian_product(loss, params["network"])
        >>> product(jax.tree.map(jnp.ones_like, params["network"]))["layers"][0]["kernel"].ravel().tolist()
        [2.0, 2.0]
    """
    loss = without_padding(loss)
    return jax.linearize(lambda point: loss.gradient(point, key).coordinates, theta)[1]


def gauss_newton_product(loss: BatchLoss, theta: Params) -> Callable[[Params], Params]:
    r"""Returns \(v \mapsto \sum_i r_i J_i^\top \Lambda_i J_i v\): a pass forwards and one backwards, and no Jacobian.

    With \(\Lambda_i\) the Fisher information of row i about f, and \(r_i\) what the row counts in the mean. A prior
    that is a part of the loss adds its own diagonal curvature, as in `GaussNewton`, and the network is in evaluation
    mode.

    Args:
        loss: the mean loss on a batch.
        theta: the point.

    Source: Schraudolph (2002).

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> from lamu.objective import BatchLoss, Objective, NetworkParameters
        >>> from lamu.objective.curvature import gauss_newton_product
        >>> model = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Gaussian(scale=0.5))
        >>> batch = lamu.data.Batch.of(jnp.eye(2), jnp.zeros(2))
        >>> params, state = model.init(jax.random.key(0), batch)
        >>> loss = BatchLoss(Objective(model, 2), batch, state, NetworkParameters(), {}, conjugate=True)
        >>> product = gauss_newton_product(loss, params["network"])
        >>> product(jax.tree.map(jnp.ones_like, params["network"]))["layers"][0]["kernel"].ravel().tolist()
        [2.0, 2.0]
    """
    loss = without_padding(loss)
    f, forwards = jax.linearize(loss.outputs, theta)
    backwards = jax.linear_transpose(forwards, theta)
    information, prior = loss.information(theta, f), loss.prior_curvature(theta)

    def product(v: Params) -> Params:
        (likelihood,) = backwards(jnp.einsum("bkl,bl->bk", information, forwards(v)))
        return likelihood if prior is None else tree.add(likelihood, jax.tree.map(jnp.multiply, prior, v))

    return product


def hutchinson_diagonal(product: Callable[[Params], Params], like: Params, key: RandomKey, probes: int = 1) -> Params:
    r"""Returns an unbiased estimate of a matrix's diagonal, \(\frac1S \sum_s z_s \odot H z_s\), z of random signs.

    Its variance in one entry is the sum of squares of the row's other entries, over S: a diagonal matrix comes out
    exactly from one probe.

    Args:
        product: v ↦ H v.
        like: a vector of the space, for shapes and dtypes.
        key: for the signs.
        probes: S, the number of products.

    Raises:
        ValueError: for fewer than one probe.

    Source: Bekas, Kokiopoulou & Saad (2007).

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.objective.curvature import hutchinson_diagonal
        >>> hutchinson_diagonal(lambda v: jnp.array([2.0, 3.0]) * v, jnp.zeros(2), jax.random.key(0)).tolist()
        [2.0, 3.0]
    """
    if probes < 1:
        raise ValueError(f"probes={probes!r} estimates nothing; give 1 or more")
    vector, unravel = tree.ravel(like)

    def add(total: Params, key: RandomKey) -> tuple[Params, None]:
        z = unravel(jax.random.rademacher(key, vector.shape, vector.dtype))
        return tree.add(total, jax.tree.map(jnp.multiply, z, product(z))), None

    share: Number = 1.0 / probes
    total, _ = jax.lax.scan(add, tree.zeros_like(like), jax.random.split(key, probes))
    return tree.scale(total, share)
