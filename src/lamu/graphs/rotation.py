"""Parameter expansion of factor models: the best rotation of the latent space, in closed form."""

# \[ z \to R z, \qquad W \to W R^{-1}, \qquad \alpha \to \text{its best belief for the new } W \]
#
# leave the likelihood of \(Wz\) unchanged, and change the rest of the bound by a function of R alone. With \(S_z =
# \sum_i E[z_i z_i^\top]\), \(S_W = \sum_d E[w_d w_d^\top]\), n rows and D loadings it is, at T = 1,
#
# \[ f(R) = -\tfrac12 \mathrm{tr}\,R S_z R^\top + (n - D) \log|R| - \sum_k c\, \log\big(b + \tfrac12 M_{kk}\big), \qquad
#    M = R^{-\top} S_W R^{-1}, \quad c = a + \tfrac D2 \]
#
# for loadings with a precision \(\alpha_k \sim \mathrm{Gamma}(a, b)\) per column, and with \(-\tfrac12 \mathrm{tr}\,M\)
# instead of the sum for loadings of unit precision. In the basis in which \(S_z/n\) is the identity and M
# diagonal, \(R = \mathrm{diag}(\sqrt u)\,Q^\top (S_z/n)^{-1/2}\), each \(u_k\) is the root of a quadratic.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.linalg import solve_triangular

from lamu.data.batch import Batch
from lamu.families import Gamma, MultivariateNormal
from lamu.graphs.expressions import KnownValue, Variable
from lamu.graphs.expressions.products import Sum, Times
from lamu.graphs.factor import Known
from lamu.graphs.normal_factors import MultivariateNormalFactor, NormalFactor
from lamu.graphs.program import GraphSite
from lamu.record import record, static
from lamu.typing import Array

__all__ = ["Rotation"]


@record
class Rotation:
    r"""Rotates the latent space of a factor model after every sweep of `vmp`, so that few sweeps suffice.

    The rows' latent has the prior \(N(0, I)\) and enters only in `W @ z` with the loadings; the loadings have the prior
    \(N(0, I/\delta)\), or a precision per column with its own `Gamma` prior. A rotation that would not raise the
    bound is skipped, so that the bound never falls.

    Attributes:
        loadings: the name of W, a plate of vectors.
        latent: the name of z.

    Source: Luttinen & Ilin (2010), "Transformations in variational Bayesian factor analysis to speed up learning",
    section 4; Liu, Rubin & Wu (1998) for parameter expansion.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu import graphs
        >>> from lamu.families import MultivariateNormal
        >>> def factors(m):
        ...     W = m.sample("W", MultivariateNormal(jnp.zeros(2), jnp.eye(2)), plate=5)
        ...     with m.rows():
        ...         z = m.sample("z", graphs.MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
        ...         m.sample("y", graphs.Normal(W @ z, precision=1.0))
        >>> lamu.Graph(factors, expansion=graphs.Rotation("W", "z")).expansion.loadings
        'W'
    """

    loadings: str = static()
    latent: str = static()

    def require(self, sites: tuple[GraphSite, ...]) -> None:
        """Raises a ValueError unless the program has this form.

        Args:
            sites: sites of the program.
        """
        by_name = {site.name: site for site in sites}
        for name in (self.loadings, self.latent):
            if name not in by_name:
                raise ValueError(f"Rotation names {name!r}, which the program lacks; it has {', '.join(by_name)}")
        z, W = by_name[self.latent].factor, by_name[self.loadings].factor
        if not (isinstance(z, MultivariateNormalFactor) and _is(z.mean, 0.0) and _is_identity(z.precision)):
            raise ValueError(f"the prior of {self.latent!r} is not N(0, I); give MultivariateNormal(zeros, eye)")
        relevance = _relevance(W)
        if relevance is None and _unit(W) is None:
            raise ValueError(
                f"the prior of {self.loadings!r} is neither N(0, I/δ) nor Normal(zeros, precision=α) with one "
                "precision a column; leave the rotation out"
            )
        if relevance is not None and not isinstance(by_name[relevance].factor, Known):
            raise ValueError(f"the precision {relevance!r} of {self.loadings!r} has no Gamma prior of its own")
        for site in sites:
            met = {self.loadings, self.latent, relevance} & site.factor.names
            if site.name == self.loadings or not met:
                continue
            if relevance in met or not all(self._only_in_product(part) for part in site.factor.arguments.values()):
                raise ValueError(
                    f"{site.name!r} depends on {', '.join(sorted(met))} otherwise than by {self.loadings} @ "
                    f"{self.latent}, so that a rotation would change it; leave the rotation out"
                )

    def _only_in_product(self, expression: Any) -> bool:
        if isinstance(expression, Sum):
            return self._only_in_product(expression.left) and self._only_in_product(expression.right)
        if isinstance(expression, Times):
            sides = (expression.left, expression.right)
            if [side.name for side in sides if isinstance(side, Variable)] == [self.loadings, self.latent]:
                return True
        return not {self.loadings, self.latent} & expression.names

    def expanded(
        self, graph: Any, beliefs: Mapping[str, Any], batch: Batch, temperature: Any, power: Any, data_size: Any
    ) -> dict[str, Any]:
        """Returns the beliefs after the best rotation, with the rows' latents optimal before it.

        Args:
            graph: the graph.
            beliefs: about the shared variables, by name.
            batch: all rows.
            temperature: T.
            power: power of the likelihood.
            data_size: N, for which the rows count.
        """
        by_name = {site.name: site for site in graph.sites}
        statistics, W = graph.moments(beliefs), beliefs[self.loadings]
        z = by_name[self.latent].kind.under(
            graph.row_latents(statistics, batch.y, temperature / power)[self.latent].belief()
        )
        weight = jnp.asarray(batch.mask * batch.weight, z.outer.dtype)
        n = jnp.sum(weight)
        S_z = jnp.tensordot(weight, z.outer, 1) / n
        outer = statistics[self.loadings].outer
        K = outer.shape[-1]
        S_W, D = jnp.sum(outer.reshape(-1, K, K), axis=0), outer.size // (K * K)
        share = jnp.asarray(data_size / batch.count, S_z.dtype)  # weight of each row
        prior = _prior(by_name, self.loadings, D, temperature)

        L = jnp.linalg.cholesky(S_z)
        size, Q = jnp.linalg.eigh(L.T @ S_W @ L)
        size = jnp.maximum(size, 0.0)
        pull, volume = share * n * power / temperature, share * n - D
        u = prior.best(size, pull, volume)
        # R and its transposed inverse.
        R = jnp.sqrt(u)[:, None] * solve_triangular(L, Q, lower=True, trans="T").T
        inverse = (L @ Q).T / jnp.sqrt(u)[:, None]

        log_det = jnp.sum(jnp.log(u)) / 2.0 - jnp.sum(jnp.log(jnp.diagonal(L)))
        turned = -pull / 2.0 * jnp.sum(u) + volume * log_det + prior.log_density(size / u)
        unrotated = -pull / 2.0 * jnp.trace(S_z) + prior.log_density(jnp.diagonal(S_W))
        better = turned > unrotated  # False for NaN
        R, inverse = (jnp.where(better, part, jnp.eye(K, dtype=part.dtype)) for part in (R, inverse))
        new = MultivariateNormal(W.mean @ inverse.T, R @ W.precision @ R.T)
        squares = jnp.where(better, size / u, jnp.diagonal(S_W))
        return {**beliefs, self.loadings: new, **prior.beliefs(squares)}


@record
class _Unit:
    """Loadings of one known precision δ, over T."""

    precision: Any

    def best(self, size: Array, pull: Any, volume: Any) -> Array:
        return _root(pull, -volume, -self.precision * size)

    def log_density(self, squares: Array) -> Array:
        return -self.precision / 2.0 * jnp.sum(squares)

    def beliefs(self, squares: Array) -> dict[str, Any]:
        return {}


@record
class _ByColumn:
    """Loadings with a precision per column, which has a Gamma prior and its optimal belief."""

    name: str = static()
    shape: Any
    rate: Any
    temperature: Any

    def best(self, size: Array, pull: Any, volume: Any) -> Array:
        first, second = 2.0 * pull * self.rate, pull * size - 2.0 * volume * self.rate
        return _root(first, second, -(volume + 2.0 * self.shape) * size)

    def log_density(self, squares: Array) -> Array:
        return -jnp.sum(self.shape * jnp.log(self.rate + squares / 2.0))

    def beliefs(self, squares: Array) -> dict[str, Any]:
        rate = (self.rate + squares / 2.0) / self.temperature
        return {self.name: Gamma(jnp.broadcast_to(self.shape, rate.shape), rate)}


def _root(a: Array, b: Array, c: Array) -> Array:
    """Returns the positive root of a u² + b u + c for a ≥ 0 ≥ c, without cancellation."""
    root = jnp.sqrt(b * b - 4.0 * a * c)
    tiny = jnp.finfo(root.dtype).tiny
    root_of_quadratic = jnp.where(
        b > 0, -2.0 * c / jnp.maximum(b + root, tiny), (root - b) / jnp.maximum(2.0 * a, tiny)
    )
    return jnp.maximum(root_of_quadratic, jnp.finfo(root.dtype).eps ** 2)


def _prior(sites: Mapping[str, GraphSite], loadings: str, D: int, T: Any) -> Any:
    factor = sites[loadings].factor
    name = _relevance(factor)
    if name is None:
        return _Unit(_unit(factor) / T)
    factor_of_prior = sites[name].factor
    prior = factor_of_prior.belief if isinstance(factor_of_prior, Known) else None
    wide = jnp.result_type(float)  # a graph made under float64 may be fitted in float32
    a, b = (jax.lax.convert_element_type(leaf, wide) for leaf in (prior.shape, prior.rate))  # pyright: ignore[reportOptionalMemberAccess]
    return _ByColumn(name, (a - 1.0 + D / 2.0) / T + 1.0, b, T)


def _relevance(factor: Any) -> str | None:
    """Returns the name of the variable that is the columns' precision, or None."""
    if isinstance(factor, NormalFactor) and isinstance(factor.precision, Variable) and _is(factor.mean, 0.0):
        return factor.precision.name if len(factor.precision.shape or ()) == 1 else None
    return None


def _unit(factor: Any) -> Any:
    """Returns δ of the prior N(0, I/δ), or None for another prior or an unknown one."""
    if isinstance(factor, NormalFactor) and isinstance(factor.precision, KnownValue) and _is(factor.mean, 0.0):
        return factor.precision.value if jnp.ndim(factor.precision.value) == 0 else None
    belief = factor.belief if isinstance(factor, Known) else None
    if not isinstance(belief, MultivariateNormal) or not _all(belief.mean, 0.0):
        return None
    matrix: Any = belief.precision
    delta = matrix[(0,) * matrix.ndim]
    return delta if isinstance(delta, Tracer) or _all(matrix, np.asarray(delta) * np.eye(matrix.shape[-1])) else None


def _is(expression: Any, value: float) -> bool:
    return isinstance(expression, KnownValue) and _all(expression.value, value)


def _is_identity(expression: Any) -> bool:
    return isinstance(expression, KnownValue) and _all(expression.value, np.eye(expression.shape[-1]))


def _all(array: Any, value: Any) -> bool:
    """Returns whether an array equals a value everywhere, as far as it is known."""
    return isinstance(array, Tracer) or bool(np.all(np.asarray(array) == np.asarray(value)))
