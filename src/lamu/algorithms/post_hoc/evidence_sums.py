r"""The Laplace evidence as a function of the prior's precisions and the noise, from sums over rows.

\[ \log Z(\delta, c) \approx \frac1T \Big( -L(c) + \log p(m \mid \delta) \Big) + \tfrac{D}{2}\log 2\pi
   - \tfrac12 \log\det \tfrac1T \big( \bar c^{-2} H + \operatorname{diag}(\delta) \big) \]

with \(L(c) = L + \sum_k \big(R_k (c_k^{-2} - 1) + M \log c_k\big)\) for a Gaussian noise of which every deviation is
\(c_k\) times what it was: \(R_k\) is half the sum of squared residuals over the noise, M the rows, and \(\bar c^{-2}\)
the mean of \(c_k^{-2}\), exact where there is one output.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from lamu import tree
from lamu.data.batch import Batch
from lamu.families import Gaussian
from lamu.objective import BatchLoss, Objective, Weights
from lamu.operators import BlockDiagonal, Dense, Diagonal, Kronecker, KroneckerBlocks, KroneckerEigen, Scalar
from lamu.operators.interface import is_operator
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Sums", "log_evidence", "measured", "with_prior"]


@record
class Sums:
    r"""What rows add up to, each batch's means times its real rows.

    Attributes:
        curvature: the sum of the Gauss–Newton matrices, an operator; of Kronecker factors each factor's own sum.
        likelihood: \(-p \sum_i w_i \log p(y_i \mid x_i, m)\) in nats.
        misfit: \(p \sum_i w_i r_{ik}^2 / 2\sigma_k^2\), `[outputs]`; zeros where the likelihood is not quadratic.
        observed: \(p \sum_i w_i\).
        rows: the real rows.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.algorithms.post_hoc.evidence_sums import Sums
        >>> Sums(None, 6.0, jnp.ones(1), 3.0, rows=3.0).mean().likelihood
        2.0
    """

    curvature: Any
    likelihood: Any
    misfit: Any
    observed: Any
    rows: Any

    def add(self, other: Sums) -> Sums:
        """Returns the sums over the rows of both."""
        return jax.tree.map(jnp.add, self, other)

    def mean(self) -> Sums:
        """Returns what a row is on average."""
        return jax.tree.map(lambda leaf: leaf / tree.cast(self.rows, leaf), self)


def measured(
    structure: Any,
    curvature: Any,
    objective: Objective,
    params: Params,
    network_state: Any,
    batch: Batch,
    key: RandomKey,
) -> Sums:
    """Returns what the rows of a batch add up to.

    Args:
        structure: the structure of the curvature.
        curvature: the choice of curvature.
        objective: the loss.
        params: all free parameters.
        network_state: the network's state.
        batch: the rows.
        key: for curvatures that draw.
    """
    weights, likelihood = params["network"], objective.model.likelihood
    loss = BatchLoss(objective, batch, network_state, Weights(), params["likelihood"], conjugate=True)
    found = curvature.evaluate(loss, weights, Gaussian(weights, Scalar(1.0)), structure, key).curvature
    f = loss.outputs(weights)
    log_prob = lambda f: likelihood.log_prob(params["likelihood"], f, batch.y)
    factor = objective.likelihood_power
    misfit = jnp.zeros(f.shape[1], f.dtype)
    if likelihood.quadratic:
        slope = jax.grad(lambda f: jnp.sum(log_prob(f)))(f)
        information = jnp.diagonal(likelihood.information(params["likelihood"], f), axis1=1, axis2=2)
        misfit = factor * batch.total(slope**2 / information) / 2
    total = jax.tree.map(lambda leaf: leaf * batch.count.astype(leaf.dtype), found)
    observed = jnp.asarray(factor * jnp.sum(batch.mask * batch.weight), f.dtype)
    return Sums(total, -factor * batch.total(log_prob(f)), misfit, observed, batch.count.astype(f.dtype))


def log_evidence(objective: Objective, mean: Sums, weights: Params, prior: Any, log_factor: Array) -> Array:
    r"""Returns \(\log Z\) in nats for N rows, without the constants of a dispersion's own prior.

    Differentiable in the scales of the prior and in the noise.

    Args:
        objective: the loss, for N, temperature and power; its own prior is not looked at.
        mean: what a row is on average; a curvature of Kronecker factors may be factored before.
        weights: the mode m.
        prior: a Gaussian prior with independent weights.
        log_factor: \(\log c\), `[outputs]`; an empty array where the noise is what it is.
    """
    rows, temperature = objective.data_size, objective.temperature
    likelihood, curvature = mean.likelihood, mean.curvature.scale(rows)
    if log_factor.size:
        shrunk = jnp.exp(-2 * log_factor)
        likelihood = likelihood + jnp.sum(mean.misfit * (shrunk - 1)) + mean.observed * jnp.sum(log_factor)
        curvature = curvature.scale(jnp.mean(shrunk))
    energy = (rows * likelihood - prior.log_prob(weights)) / temperature
    precision = with_prior(curvature, prior.gaussian(weights)[1])
    size = tree.dimension(weights)
    determinant = _logdet(precision.matrix) if isinstance(precision, Dense) else precision.logdet(weights)
    volume = size * (math.log(2 * math.pi) + jnp.log(temperature)) - determinant
    return volume / 2 - energy


def with_prior(curvature: Any, precision: Params) -> Any:
    """Returns the curvature plus the prior's precisions; Kronecker factors keep the mean of those of their block.

    Args:
        curvature: an operator; `KroneckerBlocks`, or those factored.
        precision: the prior's precisions, a tree like the weights.
    """
    if isinstance(curvature, BlockDiagonal):
        kept = KroneckerBlocks if isinstance(curvature, KroneckerBlocks) else BlockDiagonal
        return kept(jax.tree.map(_added, curvature.blocks, precision, is_leaf=is_operator))
    return jax.tree.map(jnp.add, curvature, type(curvature).from_diagonal(precision))


@jax.custom_jvp
def _logdet(matrix: Array) -> Array:
    return _logdet_and_root(matrix)[0]


@_logdet.defjvp
def _logdet_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    # The derivative is the inverse; that of a Cholesky factor would cost three times as much.
    value, root = _logdet_and_root(primals[0])
    inverse = cho_solve((root, True), jnp.eye(root.shape[0], dtype=root.dtype))
    return value, jnp.sum(inverse * tangents[0])


def _logdet_and_root(matrix: Array) -> tuple[Array, Array]:
    root = jnp.linalg.cholesky((matrix + matrix.T) / 2)
    return 2 * jnp.sum(jnp.log(jnp.diagonal(root))), root


def _added(block: Any, part: Params) -> Any:
    if isinstance(block, Kronecker | KroneckerEigen):
        return block.add(Scalar(jnp.mean(tree.ravel(part)[0])))
    return Diagonal(tree.add(block.values, part))
