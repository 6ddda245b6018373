"""Beliefs about matrices with row and column precisions, and about linear layers with their noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.special import digamma, gammaln

from lamu import tree
from lamu.families.exponential import (
    Domain,
    ExponentialFamily,
    Finite,
    PositiveDefinite,
    sample_leaves,
    symmetric,
    total,
)
from lamu.families.interface import IndependentDraws
from lamu.families.normal_wishart import logdet, transpose
from lamu.families.probabilities import Gamma
from lamu.operators.kronecker import as_matrix
from lamu.record import record
from lamu.typing import Array, Params, RandomKey, Statistics

__all__ = ["LinearNormalGamma", "MatrixNormal", "NoiseScale"]


@record
class MatrixNormal(ExponentialFamily):
    r"""A matrix X, r by c, of precision \(U \otimes V\), that is \(\operatorname{cov}(X) = U^{-1} \otimes V^{-1}\).

    \[ \log q = \tfrac c2\log\det U + \tfrac r2\log\det V - \tfrac{rc}2\log 2\pi
       - \tfrac12\operatorname{tr}\big(U (X - M) V (X - M)^\top\big) \]

    Over M, U and V together it is curved: products of U and V do not form a linear space. Given V it is a minimal
    exponential family in (M, U), to which its λ and μ refer:

    \[ T = (X,\; X V X^\top), \qquad \lambda = (U M V,\; -\tfrac12 U), \qquad \mu = (M,\; M V M^\top + c\,U^{-1}) \]

    To update V, transpose: `belief.transposed` is the belief about Xᵀ, given U.

    Attributes:
        mean: M `[..., r, c]`.
        row_precision: U `[..., r, r]`, symmetric positive definite.
        column_precision: V `[..., c, c]`, symmetric positive definite.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import MatrixNormal
        >>> belief = MatrixNormal(jnp.zeros((2, 3)), jnp.eye(2), jnp.eye(3))
        >>> round(float(belief.entropy()), 4)  # six standard normal numbers
        8.5136
    """

    mean: Params
    row_precision: Params
    column_precision: Params

    kind = "curved"
    domains: ClassVar[Mapping[str, Domain]] = {
        "mean": Finite(event=2),
        "row_precision": PositiveDefinite(),
        "column_precision": PositiveDefinite(),
    }
    events: ClassVar[tuple[int, ...]] = (2, 2)

    @property
    def given(self) -> Params:
        """V, the known argument of λ and μ."""
        return self.column_precision

    @property
    def transposed(self) -> MatrixNormal:
        """The belief about the transposed matrix."""
        return MatrixNormal(jax.tree.map(transpose, self.mean), self.column_precision, self.row_precision)

    def to_natural(self) -> Statistics:
        """Returns (U M V, −U/2)."""
        first = jax.tree.map(lambda M, U, V: U @ M @ V, self.mean, self.row_precision, self.column_precision)
        return first, jax.tree.map(lambda U: -U / 2.0, self.row_precision)

    @classmethod
    def from_natural(cls, values: Statistics, given: Params) -> MatrixNormal:
        """Returns the belief with these parameters, given V."""
        mean = jax.tree.map(lambda first, second, V: _mean(first, -2.0 * second, V), *values, given)
        return cls(mean, jax.tree.map(lambda second: -2.0 * second, values[1]), given)

    @classmethod
    def from_expectation(cls, values: Statistics, given: Params) -> MatrixNormal:
        """Returns the belief with these expectations, given V."""

        def row_precision(M: Array, second: Array, V: Array) -> Array:
            return M.shape[-1] * jnp.linalg.inv(symmetric(second - M @ V @ transpose(M)))

        return cls(values[0], jax.tree.map(row_precision, *values, given), given)

    @classmethod
    def partition(cls, values: Statistics, given: Params) -> Array:
        r"""Returns ½ tr(U M V Mᵀ) − c/2 log det U − r/2 log det V + rc/2 log 2π."""

        def leaf(first: Array, second: Array, V: Array) -> Array:
            U, (r, c) = -2.0 * symmetric(second), first.shape[-2:]
            quadratic = jnp.sum(first * _mean(first, U, V), axis=(-2, -1))
            return (quadratic - c * logdet(U) - r * logdet(V) + r * c * jnp.log(2.0 * jnp.pi)) / 2.0

        return total(leaf, *values, given)

    def statistics(self, theta: Params) -> Statistics:
        """Returns (X, X V Xᵀ)."""
        return theta, jax.tree.map(lambda X, V: X @ V @ transpose(X), theta, self.column_precision)

    def kl(self, other: MatrixNormal) -> Array:
        r"""Returns \(KL(q \,\|\, p)\) in nats; both precisions of p may differ from q's."""

        def leaf(M: Array, U: Array, V: Array, M2: Array, U2: Array, V2: Array) -> Array:
            difference, (r, c) = M - M2, M.shape[-2:]
            traces = jnp.trace(jnp.linalg.solve(U, U2), axis1=-2, axis2=-1) * jnp.trace(
                jnp.linalg.solve(V, V2), axis1=-2, axis2=-1
            )
            quadratic = jnp.sum(difference * (U2 @ difference @ V2), axis=(-2, -1))
            determinants = c * (logdet(U) - logdet(U2)) + r * (logdet(V) - logdet(V2))
            return (traces + quadratic - r * c + determinants) / 2.0

        ours = (self.mean, self.row_precision, self.column_precision)
        return total(leaf, *ours, other.mean, other.row_precision, other.column_precision)

    def sample(self, key: RandomKey) -> Params:

        def draw(k: RandomKey, M: Array, U: Array, V: Array) -> Array:
            left, right = jnp.linalg.cholesky(U), jnp.linalg.cholesky(V)
            noise = jax.random.normal(k, M.shape, M.dtype)
            scaled = jnp.linalg.solve(transpose(left), noise)
            return M + transpose(jnp.linalg.solve(transpose(right), transpose(scaled)))

        return sample_leaves(key, draw, self.mean, self.row_precision, self.column_precision)


def _mean(first: Array, U: Array, V: Array) -> Array:
    """Returns M = U⁻¹ (U M V) V⁻¹."""
    return transpose(jnp.linalg.solve(V, transpose(jnp.linalg.solve(U, first))))


@record
class NoiseScale(IndependentDraws):
    r"""A belief about the log of a noise deviation whose precision is Gamma: \(\log\sigma = -\tfrac12 \log\gamma\)."""

    # Its mean has \(\sigma^2 = E[1/\gamma] = b / (a - 1)\), since that is the noise of a prediction, or is the mode at
    # which it was computed.

    precision: Gamma  # the Gamma of γ, one number an output
    mode: Params | None = None  # log σ of the mode from Laplace's method; None if there is none

    kind = "transformed"

    @property
    def mean(self) -> Params:
        r"""\(\tfrac12 \log b / (a - 1)\), or the mode, under the likelihood's name for it."""
        if self.mode is not None:
            return {"log_scale": self.mode}
        shape: Params = self.precision.shape
        return {"log_scale": jnp.log(self.precision.rate / (shape - 1.0)) / 2.0}

    def sample(self, key: RandomKey) -> Params:
        """Returns one sample."""
        drawn: Params = self.precision.sample(key)
        return {"log_scale": -jnp.log(drawn) / 2.0}

    def log_prob(self, theta: Params) -> Array:
        """Returns the log density of log σ in nats, including the change of variables."""
        precision = jnp.exp(-2.0 * theta["log_scale"])
        return self.precision.log_prob(precision) + jnp.sum(math.log(2.0) + jnp.log(precision))

    def entropy(self) -> Array:
        """Returns the entropy of log σ in nats."""
        shape: Params = self.precision.shape
        expected = digamma(shape) - jnp.log(self.precision.rate)
        return self.precision.entropy() - jnp.sum(math.log(2.0) + expected)


@record
class LinearNormalGamma(IndependentDraws):
    r"""Joint beliefs about the weights and the noise of each output of a linear layer, \(p(w_k, \tau_k)\)."""

    # \[ \tau_k \sim \mathrm{Gamma}(a_k, b_k), \qquad w_k \mid \tau_k \sim N\big(m_k, (\tau_k \Lambda_k)^{-1}\big) \]
    #
    # Conjugate to \(y_k = w_k^\top \phi(x) + \varepsilon_k\) with \(\varepsilon_k \sim N(0, 1/\tau_k)\). θ is a
    # model's: the weights under "network", and under "likelihood" the logarithms of the deviations, \(-\tfrac12 \log
    # \tau_k\), as in `lamu.likelihoods.Gaussian()`.
    #
    # Source: Bishop (2006), exercise 3.12; Gelman et al. (2013), section 14.2.

    location: Params  # m, the layer's weights, leaves with the outputs for their last axis
    # The lower triangular root of Λ, `[outputs, in, in]`, in units of the noise; the bias is the first of the inputs.
    # In single precision, the root keeps digits that Λ would lose.
    root: Array
    shape: Array  # a, `[outputs]`, positive
    rate: Array  # b, `[outputs]`, positive

    kind = "curved"

    @classmethod
    def of(cls, location: Params, precision: Array, shape: Array, rate: Array) -> LinearNormalGamma:
        """Returns the belief with a precision Λ, `[outputs, in, in]`."""
        root = jnp.linalg.cholesky((precision + jnp.swapaxes(precision, 1, 2)) / 2)
        return cls(location, root, shape, rate)

    @property
    def precision(self) -> Array:
        """Λ, `[outputs, in, in]`."""
        return self.root @ jnp.swapaxes(self.root, 1, 2)

    @property
    def mean(self) -> Params:
        r"""The means, m and \(E[-\tfrac12 \log\tau] = (\log b - \psi(a)) / 2\)."""
        return {"network": self.location, "likelihood": {"log_scale": (jnp.log(self.rate) - digamma(self.shape)) / 2}}

    def sample(self, key: RandomKey) -> Params:
        """Returns one sample of θ: precisions of the noise, and weights given those."""
        noise_key, weights_key = jax.random.split(key)
        tau = jax.random.gamma(noise_key, self.shape, dtype=self.shape.dtype) / self.rate
        mean, unravel = self._matrix(self.location)
        noise = self._matrix(tree.normal(weights_key, self.location))[0]
        offset = jax.vmap(lambda r, z: solve_triangular(r, z, lower=True, trans="T"))(self.root, noise.T)
        weights = unravel(mean + (offset / jnp.sqrt(tau)[:, None]).T)
        return {"network": weights, "likelihood": {"log_scale": -jnp.log(tau) / 2}}

    def log_prob(self, theta: Params) -> Array:
        """Returns the log density of θ (of the logarithms of the deviations, not of τ) in nats."""
        log_tau = -2 * theta["likelihood"]["log_scale"]
        offset = self._matrix(theta["network"])[0] - self._matrix(self.location)[0]
        energy = self.rate + jnp.sum(jnp.einsum("kij,ik->kj", self.root, offset) ** 2, axis=1) / 2
        size = self.root.shape[1]
        each = (self.shape + size / 2) * log_tau - jnp.exp(log_tau) * energy + math.log(2)
        return jnp.sum(each) - self.log_normaliser() - self.root.shape[0] * size / 2 * math.log(2 * math.pi)

    def log_normaliser(self) -> Array:
        r"""Returns \(\sum_k \log\Gamma(a_k) - a_k \log b_k - \tfrac12 \log\det\Lambda_k\), without the powers of 2π."""
        determinants = 2 * jnp.sum(jnp.log(jnp.diagonal(self.root, axis1=1, axis2=2)), axis=1)
        return jnp.sum(gammaln(self.shape) - self.shape * jnp.log(self.rate) - determinants / 2)

    def quadratic_form(self, phi: Array) -> Array:
        r"""Returns \(\phi^\top \Lambda_k^{-1} \phi\), the outputs' variances in units of noise, `[rows, outputs]`."""
        white = jax.vmap(lambda r: solve_triangular(r, phi.T, lower=True))(self.root)
        return jnp.sum(white**2, axis=1).T

    def after(self, gram: Array, cross: Array, squares: Array, weight: Array, around: Params) -> LinearNormalGamma:
        r"""Returns the belief after rows, \(\lambda + \sum_i w_i t(x_i, y_i)\), in coordinates that keep all digits."""
        # With \(v = m - u\) for weights u near the solution and residuals \(r_i = y_i - u^\top \phi_i\),
        #
        # \[ \Lambda \leftarrow \Lambda + \sum_i w_i \phi_i \phi_i^\top, \quad
        #    \Lambda v \leftarrow \Lambda v + \sum_i w_i r_i \phi_i, \quad a \leftarrow a + \tfrac12 \sum_i w_i, \quad
        #    b \leftarrow b + \tfrac12 \Big( \sum_i w_i (r_i - v^\top \phi_i)^2
        #    + (v - v_0)^\top \Lambda_0 (v - v_0) \Big) \]
        centre, unravel = self._matrix(around)
        before = (self._matrix(self.location)[0] - centre).T

        def output(precision: Array, v0: Array, c: Array, s: Array) -> tuple[Array, Array, Array]:
            new = precision + gram
            root = jnp.linalg.cholesky((new + new.T) / 2)
            v = cho_solve((root, True), precision @ v0 + c)
            away = v - v0
            return root, v, s - 2 * v @ c + v @ gram @ v + away @ precision @ away

        root, v, lost = jax.vmap(output)(self.precision, before, cross.T, squares)
        return LinearNormalGamma(unravel(centre + v.T), root, self.shape + weight / 2, self.rate + lost / 2)

    def _matrix(self, weights: Params) -> tuple[Array, Callable[[Array], Params]]:
        outputs, width = self.root.shape[:2]
        return as_matrix(weights, (width, outputs))
