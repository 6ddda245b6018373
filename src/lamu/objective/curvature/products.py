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
    r"""Returns \(v \mapsto \nabla^2\bar\ell(\theta)\, v\): one backward pass, differentiated along v."""
    # What the loss holds is in it, its prior where it has one. The passes are linearised once: each product costs about
    # two gradients.
    #
    # Source: Pearlmutter (1994).
    loss = without_padding(loss)
    return jax.linearize(lambda point: loss.gradient(point, key).coordinates, theta)[1]


def gauss_newton_product(loss: BatchLoss, theta: Params) -> Callable[[Params], Params]:
    r"""Returns \(v \mapsto \sum_i r_i J_i^\top \Lambda_i J_i v\): passes forwards and backwards, no Jacobian."""
    # With \(\Lambda_i\) the Fisher information of row i about f, and \(r_i\) what the row counts in the mean. A prior
    # that is a part of the loss adds its own diagonal curvature, as in `GaussNewton`, and the network is in evaluation
    # mode.
    #
    # Source: Schraudolph (2002).
    loss = without_padding(loss)
    f, forwards = jax.linearize(loss.outputs, theta)
    backwards = jax.linear_transpose(forwards, theta)
    information, prior = loss.information(theta, f), loss.prior_curvature(theta)

    def product(v: Params) -> Params:
        (likelihood,) = backwards(jnp.einsum("bkl,bl->bk", information, forwards(v)))
        return likelihood if prior is None else tree.add(likelihood, jax.tree.map(jnp.multiply, prior, v))

    return product


def hutchinson_diagonal(product: Callable[[Params], Params], like: Params, key: RandomKey, probes: int = 1) -> Params:
    r"""Returns an unbiased estimate of a matrix's diagonal, \(\frac1S \sum_s z_s \odot H z_s\), z of random signs."""
    # Its variance in one entry is the sum of squares of the row's other entries, over S: a diagonal matrix comes out
    # exactly from one probe.
    #
    # Source: Bekas, Kokiopoulou & Saad (2007).
    if probes < 1:
        raise ValueError(f"probes={probes!r} estimates nothing; give 1 or more")
    vector, unravel = tree.ravel(like)

    def add(total: Params, key: RandomKey) -> tuple[Params, None]:
        z = unravel(jax.random.rademacher(key, vector.shape, vector.dtype))
        return tree.add(total, jax.tree.map(jnp.multiply, z, product(z))), None

    share: Number = 1.0 / probes
    total, _ = jax.lax.scan(add, tree.zeros_like(like), jax.random.split(key, probes))
    return tree.scale(total, share)
