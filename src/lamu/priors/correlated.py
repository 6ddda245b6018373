r"""Normal priors with correlations inside each leaf: matrix-normal kernels and smooth convolution filters."""

from __future__ import annotations

import math
from abc import abstractmethod

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import tree
from lamu.base.arguments import require_positive
from lamu.families import Gaussian
from lamu.operators import BlockDiagonal, Kronecker, Operator, Scalar
from lamu.priors.interface import IndependentLeaves
from lamu.record import record
from lamu.typing import Array, Number, Params, RandomKey, Rows

__all__ = ["CorrelatedNormal", "FilterGroups", "MatrixNormal"]


class CorrelatedNormal(IndependentLeaves):
    r"""Base class of zero-mean normal priors with a covariance inside each leaf, and none between leaves.

    It enters a Gaussian belief exactly, as `Belief` does, through the operators of its leaves.
    """

    @abstractmethod
    def log_density(self, leaf: Array) -> Array:
        """Returns the log density of a leaf, a scalar in nats."""

    @abstractmethod
    def correlate(self, noise: Array) -> Array:
        """Returns a draw of a leaf from standard normal numbers of its shape."""

    @abstractmethod
    def precision(self, leaf: Array) -> Operator:
        """Returns the inverse covariance of a leaf."""

    def log_prob(self, params: Params) -> Array:
        leaves = [self.log_density(leaf) for leaf in jax.tree.leaves(params)]
        return jnp.sum(jnp.stack(leaves)) if leaves else jnp.asarray(0.0)

    def gaussian(self, params: Params) -> Gaussian:
        return Gaussian(tree.zeros_like(params), BlockDiagonal(jax.tree.map(self.precision, params)))

    def sample(self, key: RandomKey, params: Params) -> Params:
        return jax.tree.map(self.correlate, tree.normal(key, params))


@record
class MatrixNormal(CorrelatedNormal):
    r"""A matrix-normal prior of kernels, \(W \sim \mathrm{MN}(0, s^2 U, V)\), with correlated inputs and outputs.

    \[ \log p(W) = -\frac{1}{2 s^2} \mathrm{tr}\big(V^{-1} W^\top U^{-1} W\big) - \frac{o}{2} \log\det U
       - \frac{i}{2} \log\det V - \frac{i o}{2} \log 2 \pi s^2 \]

    for i inputs and o outputs. With it neighbouring inputs, such as times or wavelengths, have similar weights. Use it
    for one layer, in `ByPath`; leaves of fewer than two axes are normal with scale s.

    Attributes:
        rows: U, the covariance over inputs `[i, i]`; None for the identity.
        columns: V, the covariance over outputs `[o, o]`; None for the identity.
        scale: s.

    Raises:
        ValueError: for a matrix that is not square, symmetric and positive definite, or a scale that is not positive;
            and, at the first parameters, for a kernel of another shape.

    Source: Louizos & Welling (2016), section 2.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import MatrixNormal
        >>> prior = MatrixNormal(rows=jnp.array([[1.0, 0.9], [0.9, 1.0]]))
        >>> smooth, rough = jnp.ones((2, 1)), jnp.array([[1.0], [-1.0]])
        >>> bool(prior.log_prob({"kernel": smooth}) > prior.log_prob({"kernel": rough}))
        True
    """

    rows: Array | np.ndarray | None = None
    columns: Array | np.ndarray | None = None
    scale: Number = 1.0

    def __post_init__(self) -> None:
        require_positive("scale", self.scale, "give a positive number")
        for name, matrix in (("rows", self.rows), ("columns", self.columns)):
            if matrix is not None and not isinstance(matrix, Tracer):
                _require_covariance(name, matrix)

    def check(self, params: Params) -> None:
        """Raises a ValueError for a kernel whose inputs or outputs do not match the matrices."""
        for path, leaf in zip(tree.paths(params), jax.tree.leaves(params), strict=True):
            if leaf.ndim < 2:
                continue
            shape = math.prod(leaf.shape[:-1]), leaf.shape[-1]
            for name, matrix, size in zip(("rows", "columns"), (self.rows, self.columns), shape, strict=True):
                if matrix is not None and jnp.shape(matrix)[0] != size:
                    raise ValueError(
                        f"{name} has the shape {jnp.shape(matrix)}, and the leaf {path!r} has {size}; give this prior "
                        "to one layer, for instance ByPath({'layers/0/kernel': MatrixNormal(U), '*': Normal(1.0)})"
                    )

    def log_density(self, leaf: Array) -> Array:
        s = jnp.asarray(self.scale, leaf.dtype)
        constant = -leaf.size * (jnp.log(s) + math.log(2 * math.pi) / 2)
        if leaf.ndim < 2:
            return constant - jnp.sum(leaf**2) / (2 * s**2)
        U, V = self._roots(leaf)
        z = jax.scipy.linalg.solve_triangular(U, leaf.reshape(U.shape[0], V.shape[0]) / s, lower=True)
        z = jax.scipy.linalg.solve_triangular(V, z.T, lower=True)
        logs = V.shape[0] * _log_diagonal(U) + U.shape[0] * _log_diagonal(V)
        return constant - jnp.sum(z * z) / 2 - logs

    def correlate(self, noise: Array) -> Array:
        r"""Returns \(s\, U^{1/2} E\, V^{1/2\top}\)."""
        s = jnp.asarray(self.scale, noise.dtype)
        if noise.ndim < 2:
            return s * noise
        U, V = self._roots(noise)
        return (s * U @ noise.reshape(U.shape[0], V.shape[0]) @ V.T).reshape(noise.shape)

    def precision(self, leaf: Array) -> Operator:
        r"""Returns \(s^{-2} U^{-1} \otimes V^{-1}\)."""
        s = jnp.asarray(self.scale, leaf.dtype)
        if leaf.ndim < 2:
            return Scalar(s**-2)
        U, V = (_inverse(root) for root in self._roots(leaf))
        return Kronecker(U / s**2, V)

    def _roots(self, leaf: Array) -> tuple[Array, Array]:
        """Returns the Cholesky factors of U and V."""
        sizes = math.prod(leaf.shape[:-1]), leaf.shape[-1]
        matrices = zip((self.rows, self.columns), sizes, strict=True)
        covariances = [jnp.eye(n, dtype=leaf.dtype) if m is None else jnp.asarray(m, leaf.dtype) for m, n in matrices]
        return jnp.linalg.cholesky(covariances[0]), jnp.linalg.cholesky(covariances[1])


@record
class FilterGroups(CorrelatedNormal):
    r"""A normal prior of spatially smooth convolution filters, which are independent of each other.

    \[ \mathrm{cov}(w_p, w_q) = s^2 \exp(-\lVert p - q \rVert / \ell) \]

    for positions p and q of one filter, which is the part of a kernel `[height, width, in, out]` for one input and one
    output channel. Leaves without spatial axes are normal with scale s.

    Attributes:
        scale: s, the standard deviation of a weight.
        length: ℓ, in pixels.

    Raises:
        ValueError: for a scale or a length that is not positive and finite.

    Source: Fortuin et al. (2022), section 4.2.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import FilterGroups
        >>> smooth = jnp.ones((3, 3, 1, 1))
        >>> rough = smooth.at[1, 1].set(-1.0)
        >>> prior = FilterGroups(scale=1.0, length=2.0)
        >>> bool(prior.log_prob({"kernel": smooth}) > prior.log_prob({"kernel": rough}))
        True
    """

    scale: Number = 1.0
    length: Number = 1.0

    def __post_init__(self) -> None:
        require_positive("scale", self.scale, "give a positive number")
        require_positive("length", self.length, "give a positive number of pixels")

    def log_density(self, leaf: Array) -> Array:
        root, filters = self._root(leaf), _filters(leaf)
        z = jax.scipy.linalg.solve_triangular(root, filters, lower=True)
        return -jnp.sum(z * z) / 2 - filters.shape[1] * _log_diagonal(root) - leaf.size * math.log(2 * math.pi) / 2

    def correlate(self, noise: Array) -> Array:
        return (self._root(noise) @ _filters(noise)).reshape(noise.shape)

    def precision(self, leaf: Array) -> Operator:
        """Returns the inverse covariance over positions, for every pair of channels."""
        inverse = _inverse(self._root(leaf))
        if leaf.ndim < 3:
            return Scalar(inverse[0, 0])
        channels, outputs = leaf.shape[-2:]
        inputs = jnp.kron(inverse, jnp.eye(channels, dtype=leaf.dtype))
        return Kronecker(inputs, jnp.eye(outputs, dtype=leaf.dtype))

    def _root(self, leaf: Array) -> Array:
        """Returns the Cholesky factor of the covariance over the positions of a filter."""
        space = np.indices(leaf.shape[:-2] if leaf.ndim > 2 else (1,)).reshape(max(leaf.ndim - 2, 1), -1).T
        distance = np.linalg.norm(space[:, None] - space[None], axis=-1).astype(leaf.dtype)
        s, length = (jnp.asarray(value, leaf.dtype) for value in (self.scale, self.length))
        return s * jnp.linalg.cholesky(jnp.exp(-distance / length))


def _filters(leaf: Array) -> Array:
    """Returns the filters of a leaf as columns; the weights of a leaf without spatial axes."""
    return leaf.reshape(math.prod(leaf.shape[:-2]) if leaf.ndim > 2 else 1, -1)


def _inverse(root: Array) -> Array:
    return jax.scipy.linalg.cho_solve((root, True), jnp.eye(root.shape[0], dtype=root.dtype))


def _log_diagonal(root: Array) -> Array:
    return jnp.sum(jnp.log(jnp.diagonal(root)))


def _require_covariance(name: str, matrix: Rows) -> None:
    values = np.asarray(matrix, np.float64)
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise ValueError(f"{name} has the shape {values.shape}; a covariance is a square matrix")
    if not np.allclose(values, values.T) or np.linalg.eigvalsh(values)[0] <= 0:
        raise ValueError(f"{name} is not symmetric and positive definite; add a little to its diagonal")
