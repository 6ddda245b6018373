r"""What stands in the middle of \(\sum_i r_i J_i^\top \Lambda_i J_i\), for curvatures that are such a sum.

The Fisher information itself (`GaussNewton`), outer products of gradients with drawn targets (`SampledGaussNewton`), or
of the data's own gradients (`SquaredGradients`). Whoever knows \(J_i\), or has a way round it, needs no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lamu.data.batch import Batch, with_offset
from lamu.likelihoods import Likelihood
from lamu.objective.curvature.gauss_newton import GaussNewton
from lamu.objective.curvature.kronecker_factors import EmpiricalKronecker, ExactKronecker, SampledKronecker
from lamu.objective.curvature.sampled_gauss_newton import SampledGaussNewton
from lamu.objective.curvature.squared_gradients import SquaredGradients
from lamu.typing import Array, Params, RandomKey

__all__ = ["Middle", "middle"]

_EXACT = (GaussNewton, ExactKronecker)
_DRAWN = (SampledGaussNewton, SampledKronecker)
_GIVEN = (SquaredGradients, EmpiricalKronecker)


@dataclass(frozen=True)
class Middle:
    r"""\(r_i \Lambda_i\) of a batch, in whatever form is asked for.

    Attributes:
        likelihood: p(y | f).
        dispersion: its parameters.
        f: the outputs `[batch, outputs]`.
        weights: r, `[batch]`.
        slopes: d with \(\Lambda_i = \sum_s d_{is} d_{is}^\top\), `[batch, outputs, draws]`; None for the information.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Bernoulli
        >>> from lamu.objective.curvature.middle import Middle
        >>> Middle(Bernoulli(), {}, jnp.zeros((1, 1)), jnp.full(1, 8.0)).sum().tolist()
        [[2.0]]
    """

    likelihood: Likelihood
    dispersion: Params
    f: Array
    weights: Array
    slopes: Array | None = None

    def root(self) -> Array:
        """Returns R with R Rᵀ = r Λ for every row, `[batch, outputs, rank]`."""
        root = self.likelihood.information_root(self.dispersion, self.f) if self.slopes is None else self.slopes
        return root * jnp.sqrt(self.weights).astype(root.dtype)[:, None, None]

    def matrix(self) -> Array:
        """Returns r Λ for every row, `[batch, outputs, outputs]`."""
        weights = self.weights.astype(self.f.dtype)[:, None, None]
        if self.slopes is None:
            return self.likelihood.information(self.dispersion, self.f) * weights
        return jnp.einsum("bks,bls->bkl", self.slopes, self.slopes) * weights

    def diagonal(self) -> Array:
        """Returns the diagonal of r Λ for every row, `[batch, outputs]`."""
        weights = self.weights.astype(self.f.dtype)[:, None]
        if self.slopes is None:
            return self.likelihood.information_diagonal(self.dispersion, self.f) * weights
        return jnp.sum(self.slopes**2, axis=2) * weights

    def sum(self) -> Array:
        """Returns the sum of r Λ over the rows, `[outputs, outputs]`."""
        if self.slopes is None:
            return self.likelihood.information_sum(self.dispersion, self.f, self.weights)
        root = jnp.moveaxis(self.root(), 1, 0).reshape(self.f.shape[1], -1)
        return jnp.matmul(root, root.T, precision=jax.lax.Precision.HIGHEST)


def middle(
    curvature: Any, likelihood: Likelihood, dispersion: Params, f: Array, batch: Batch, weights: Array, key: RandomKey
) -> Middle | None:
    """Returns the middle of a choice of curvature, or None for one that is no such sum (the Hessian).

    Args:
        curvature: a choice of curvature.
        likelihood: p(y | f).
        dispersion: its parameters.
        f: the network's outputs `[batch, outputs]`, without the batch's offset.
        batch: the rows, without padding.
        weights: what each row counts, `[batch]`.
        key: for labels that are drawn.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.data import Batch
        >>> from lamu.likelihoods import Bernoulli
        >>> from lamu.objective.curvature import GaussNewton
        >>> from lamu.objective.curvature.middle import middle
        >>> batch, one = Batch.of(jnp.zeros((1, 1)), jnp.zeros(1)), jnp.ones(1)
        >>> middle(GaussNewton(), Bernoulli(), {}, jnp.zeros((1, 1)), batch, one, jax.random.key(0)).diagonal().tolist()
        [[0.25]]
    """
    f = with_offset(f, batch.offset)
    if isinstance(curvature, _EXACT):
        return Middle(likelihood, dispersion, f, weights)
    if isinstance(curvature, _GIVEN):
        return Middle(likelihood, dispersion, f, weights, _slope(likelihood, dispersion, f, batch.y)[:, :, None])
    if isinstance(curvature, _DRAWN):
        draws = curvature.draws if isinstance(curvature, SampledGaussNewton) else 1

        def of_draw(key: RandomKey) -> Array:
            return _slope(likelihood, dispersion, f, likelihood.sample(key, dispersion, f))

        slopes = jax.vmap(of_draw, out_axes=2)(jax.random.split(key, draws))
        return Middle(likelihood, dispersion, f, weights, slopes / math.sqrt(draws))
    return None


def _slope(likelihood: Likelihood, dispersion: Params, f: Array, y: Array) -> Array:
    """The gradient of every row's log likelihood in its outputs, `[batch, outputs]`."""
    return jax.grad(lambda f: jnp.sum(likelihood.log_prob(dispersion, f, y)))(f)
