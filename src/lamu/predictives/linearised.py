"""The linearised rule: the network replaced by its tangent at the mean, which makes the outputs Gaussian."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.data.batch import with_offset
from lamu.families import Gaussian, Product
from lamu.model import Model
from lamu.predictives.gaussian import GaussianPredictive
from lamu.predictives.interface import Predictive, Prepared
from lamu.predictives.mixture import Mixture
from lamu.predictives.rows import in_chunks
from lamu.predictives.rule import PredictiveRule
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey, Rows

__all__ = ["ClosedForm", "Linearised"]

_JACOBIAN_BYTES = 256 * 2**20
_NODES = 32


@record
class Linearised(PredictiveRule):
    r"""\(f(\theta, x) \approx f(m, x) + J(x)(\theta - m)\), so that \(f(x^*) \sim N(f(m, x^*), J \Sigma J^\top)\).

    The target's distribution is then a closed form for Gaussian likelihoods, a Gauss–Hermite rule of 32 nodes where
    there is one output, and an average over draws of the outputs otherwise. A draw uses the same standard normal for
    every row, so that the prediction for an input does not depend on which rows stand beside it.

    Source: Khan et al. (2019); Immer, Korzepa & Bauer (2021), equation 8 (the "GLM predictive").

    Examples:
        >>> from lamu.predictives import Linearised
        >>> Linearised()
        Linearised()
    """

    def prepare(self, model: Model, belief: Any, network_state: Any, samples: int, key: RandomKey) -> Prepared:
        """Returns the mean and the factored precision."""
        weights, dispersion = _parts(belief)
        weights = Gaussian(weights.mean, weights.precision.factored())
        return _Tangent(model, weights, dispersion, network_state, key, samples)


@record
class ClosedForm(PredictiveRule):
    """The exact rule of a linear-Gaussian model: the linearised rule, where nothing needs to be linearised.

    Raises:
        TypeError: for any other model.

    Examples:
        >>> from lamu.predictives import ClosedForm
        >>> ClosedForm()
        ClosedForm()
    """

    def prepare(self, model: Model, belief: Any, network_state: Any, samples: int, key: RandomKey) -> Prepared:
        """Returns the mean and the factored precision."""
        if not (model.network.linear and model.likelihood.quadratic):
            raise TypeError(
                "a closed form needs a linear network and a Gaussian likelihood; use Linearised() or Sampled()"
            )
        return Linearised().prepare(model, belief, network_state, samples, key)


@record
class _Tangent:
    """The network's tangent at the mean, with the belief about its weights."""

    model: Model
    weights: Gaussian
    dispersion: Params
    network_state: Any
    key: RandomKey
    samples: int = static()

    @property
    def task(self) -> str:
        return self.model.likelihood.task

    def at(self, x: Rows, offset: Rows | None) -> Predictive:
        likelihood, dispersion = self.model.likelihood, self.dispersion
        mean, covariance = self._outputs(x)
        mean = with_offset(mean, None if offset is None else jnp.asarray(offset))
        closed = likelihood.marginal(dispersion, mean, covariance)
        if closed is not None:
            centre, total = closed
            noise = likelihood.variance(dispersion, mean)
            return GaussianPredictive(centre.reshape(noise.shape), total, noise)
        width = mean.shape[1]
        if width == 1:
            nodes, node_weights = np.polynomial.hermite_e.hermegauss(_NODES)
            noise = jnp.asarray(nodes, mean.dtype)[:, None]
            log_weights = jnp.asarray(np.log(node_weights / node_weights.sum()), mean.dtype)
        else:
            key = jax.random.clone(self.key)  # the same draws for every chunk
            noise = jax.vmap(lambda i: jax.random.normal(jax.random.fold_in(key, i), (width,), mean.dtype))(
                jnp.arange(self.samples)
            )
            log_weights = jnp.full(self.samples, -np.log(self.samples), mean.dtype)
        f = mean[None] + jnp.einsum("nkl,sl->snk", _root(covariance), noise)
        repeated = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[None], (f.shape[0], *leaf.shape)), dispersion)
        return Mixture(likelihood, repeated, f, log_weights, drawn=width > 1)

    def _outputs(self, x: Rows) -> tuple[Array, Array]:
        """The mean and the covariance of f, as many rows at a time as their Jacobians have room for."""
        params = {"network": self.weights.mean, "likelihood": self.dispersion}
        width = jax.eval_shape(lambda x: self.model.outputs(params, self.network_state, x)[0], x[:1]).shape[1]
        row_bytes = width * tree.dimension(self.weights.mean) * jnp.dtype(jnp.result_type(float)).itemsize
        rows = int(np.clip(_JACOBIAN_BYTES // max(row_bytes, 1), 1, 4096))
        tangent = lambda rows: _tangent(self.model, self.weights, self.dispersion, self.network_state, rows)
        return in_chunks(tangent, x, rows=rows)


@jax.jit
def _tangent(model: Model, weights: Gaussian, dispersion: Params, network_state: Any, x: Array) -> tuple[Array, Array]:
    def outputs(theta: Params, row: Array) -> Array:
        return model.outputs({"network": theta, "likelihood": dispersion}, network_state, row[None])[0][0]

    def at(row: Array) -> tuple[Array, Array]:
        jacobian = jax.jacrev(outputs)(weights.mean, row)
        spread = jax.vmap(weights.precision.solve)(jacobian)
        covariance = jax.vmap(lambda a: jax.vmap(lambda b: tree.dot(a, b))(spread))(jacobian)
        return outputs(weights.mean, row), (covariance + covariance.T) / 2

    return jax.vmap(at)(x)


def _root(covariance: Array) -> Array:
    # Softmax makes one direction of a covariance redundant, so it may be singular to round-off: a symmetric square root
    # by eigenvalues stands where a Cholesky factor would fail.
    values, vectors = jnp.linalg.eigh(covariance)
    return vectors * jnp.sqrt(jnp.maximum(values, 0))[..., None, :]


def _parts(belief: Any) -> tuple[Gaussian, Params]:
    weights = belief.factors.get("network") if isinstance(belief, Product) else None
    if not isinstance(weights, Gaussian):
        raise TypeError("the linearised rule needs a Gaussian belief about the network's weights; use Sampled()")
    return weights, belief.factors["likelihood"].mean
