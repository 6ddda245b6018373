"""A belief about a linear layer and about the noise of its outputs together."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.special import digamma, gammaln

from lamu import tree
from lamu.operators.kronecker import as_matrix
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["LinearNormalGamma"]


@record
class LinearNormalGamma:
    r"""Each output of a linear layer with its noise, \(p(w_k, \tau_k)\)."""

    # \[ \tau_k \sim \mathrm{Gamma}(a_k, b_k), \qquad w_k \mid \tau_k \sim N\big(m_k, (\tau_k \Lambda_k)^{-1}\big) \]
    #
    # Conjugate to \(y_k = w_k^\top \phi(x) + \varepsilon_k\) with \(\varepsilon_k \sim N(0, 1/\tau_k)\). θ is a
    # model's: the weights under "network", and under "likelihood" the logarithms of the deviations, \(-\tfrac12 \log
    # \tau_k\), as `lamu.likelihoods.Gaussian()` has them.
    #
    # Source: Bishop (2006), exercise 3.12; Gelman et al. (2013), section 14.2.

    location: Params  # m, the layer's weights, leaves with the outputs for their last axis
    # The lower triangular root of Λ, `[outputs, in, in]`, in units of the noise; the bias is the first of the inputs.
    # Of a root single precision holds what it would lose of Λ.
    root: Array
    shape: Array  # a, `[outputs]`, positive
    rate: Array  # b, `[outputs]`, positive

    kind = "curved"

    @classmethod
    def of(cls, location: Params, precision: Array, shape: Array, rate: Array) -> LinearNormalGamma:
        """Returns the belief of a precision Λ, `[outputs, in, in]`."""
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

    @property
    def noise_variance(self) -> Array:
        r"""\(E[1/\tau] = b/(a - 1)\), `[outputs]`; infinite where a is not above one."""
        return jnp.where(self.shape > 1, self.rate / jnp.where(self.shape > 1, self.shape - 1, 1), jnp.inf)

    def sample(self, key: RandomKey) -> Params:
        """Returns one draw of θ: precisions of the noise, and weights given those."""
        noise_key, weights_key = jax.random.split(key)
        tau = jax.random.gamma(noise_key, self.shape, dtype=self.shape.dtype) / self.rate
        mean, unravel = self._matrix(self.location)
        noise = self._matrix(tree.normal(weights_key, self.location))[0]
        away = jax.vmap(lambda r, z: solve_triangular(r, z, lower=True, trans="T"))(self.root, noise.T)
        weights = unravel(mean + (away / jnp.sqrt(tau)[:, None]).T)
        return {"network": weights, "likelihood": {"log_scale": -jnp.log(tau) / 2}}

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns `count` independent draws along a leading axis; draw i depends on the key and i alone."""
        return jax.lax.map(lambda i: self.sample(jax.random.fold_in(key, i)), jnp.arange(count))

    def log_prob(self, theta: Params) -> Array:
        """Returns the log density of θ (of the logarithms of the deviations, not of τ) in nats."""
        log_tau = -2 * theta["likelihood"]["log_scale"]
        away = self._matrix(theta["network"])[0] - self._matrix(self.location)[0]
        energy = self.rate + jnp.sum(jnp.einsum("kij,ik->kj", self.root, away) ** 2, axis=1) / 2
        size = self.root.shape[1]
        each = (self.shape + size / 2) * log_tau - jnp.exp(log_tau) * energy + math.log(2)
        return jnp.sum(each) - self.log_normaliser() - self.root.shape[0] * size / 2 * math.log(2 * math.pi)

    def log_normaliser(self) -> Array:
        r"""Returns \(\sum_k \log\Gamma(a_k) - a_k \log b_k - \tfrac12 \log\det\Lambda_k\); the powers of 2π apart."""
        determinants = 2 * jnp.sum(jnp.log(jnp.diagonal(self.root, axis1=1, axis2=2)), axis=1)
        return jnp.sum(gammaln(self.shape) - self.shape * jnp.log(self.rate) - determinants / 2)

    def spread(self, phi: Array) -> Array:
        r"""Returns \(\phi^\top \Lambda_k^{-1} \phi\), the outputs' variances in units of noise, `[rows, outputs]`."""
        white = jax.vmap(lambda r: solve_triangular(r, phi.T, lower=True))(self.root)
        return jnp.sum(white**2, axis=1).T

    def after(self, gram: Array, cross: Array, squares: Array, weight: Array, around: Params) -> LinearNormalGamma:
        r"""Returns the belief after rows, \(\lambda + \sum_i w_i t(x_i, y_i)\) in coordinates that lose no digits."""
        # With \(v = m - u\) for weights u near the answer and residuals \(r_i = y_i - u^\top \phi_i\),
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

    def _matrix(self, weights: Params) -> tuple[Array, Any]:
        outputs, width = self.root.shape[:2]
        return as_matrix(weights, (width, outputs))
