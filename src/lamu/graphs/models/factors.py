"""Factor models: every row is a product of few numbers with loadings that all rows share."""

from __future__ import annotations

import jax.numpy as jnp

from lamu.families import Gamma
from lamu.families import MultivariateNormal as Vector
from lamu.graphs.bernoulli_logits import BernoulliLogits
from lamu.graphs.graph import Graph
from lamu.graphs.multivariate_normal import MultivariateNormal
from lamu.graphs.normal import Normal
from lamu.graphs.program import Program
from lamu.graphs.rotation import Rotation
from lamu.sizes import sized

__all__ = ["ExponentialPCA", "FactorAnalysis", "MatrixFactorisation"]


@sized
def FactorAnalysis(factors: int, dimension: int, isotropic: bool = False) -> Graph:
    r"""Returns factor analysis of centred rows, \(z \sim N(0, I)\), \(y \mid z \sim N(Wz, \mathrm{diag}(1/\tau))\).

    The columns of W have a precision each (ARD), so that superfluous factors vanish. With one τ for all entries it is
    probabilistic PCA. `vmp` rotates the factors after every sweep (`lamu.graphs.Rotation`).

    Data: `{"y": [N, dimension]}`, NaN where missing.

    Args:
        factors: how many at most.
        dimension: numbers of a row.
        isotropic: whether all entries share one noise.

    Source: Bishop (1999), "Variational principal components"; Ilin & Raiko (2010).

    Examples:
        >>> from lamu.graphs import models
        >>> models.FactorAnalysis(2, 5).blocks
        (('relevance', 'noise'), ('W',))
    """

    def program(m: Program) -> None:
        relevance = m.sample("relevance", Gamma(1e-3, 1e-3), plate=factors)
        # With both axes written out, as many factors as numbers are no plate by mistake.
        W = m.sample("W", Normal(jnp.zeros((dimension, factors)), precision=relevance), plate=dimension)
        noise = m.sample("noise", Gamma(1e-3, 1e-3), plate=() if isotropic else dimension)
        with m.rows():
            z = m.sample("z", MultivariateNormal(jnp.zeros(factors), jnp.eye(factors)))
            m.sample("y", Normal(W @ z, precision=noise))

    return Graph(program, expansion=Rotation("W", "z"))


@sized
def ExponentialPCA(factors: int, dimension: int) -> Graph:
    r"""Returns principal components of zeros and ones, \(y_d \sim \mathrm{Bernoulli}(\sigma(w_d^\top z + b_d))\).

    The columns of W have a precision each (ARD), so that superfluous components vanish.

    Data: `{"y": [N, dimension]}`, zeros and ones, NaN where missing.

    Args:
        factors: how many at most.
        dimension: numbers of a row.

    Source: Collins, Dasgupta & Schapire (2002); Tipping (1999), "Probabilistic visualisation of binary data".

    Examples:
        >>> from lamu.graphs import models
        >>> models.ExponentialPCA(2, 5).blocks
        (('relevance', 'offset'), ('W',))
    """

    def program(m: Program) -> None:
        relevance = m.sample("relevance", Gamma(1.0, 1.0), plate=factors)
        offset = m.sample("offset", Normal(jnp.zeros(dimension), precision=0.1))
        W = m.sample("W", Normal(jnp.zeros((dimension, factors)), precision=relevance), plate=dimension)
        with m.rows():
            z = m.sample("z", MultivariateNormal(jnp.zeros(factors), jnp.eye(factors)))
            m.sample("y", BernoulliLogits(W @ z + offset))

    return Graph(program, expansion=Rotation("W", "z"))


@sized
def MatrixFactorisation(rows: int, columns: int, factors: int) -> Graph:
    r"""Returns the factorisation of a matrix of which some entries are known, \(y_{ij} \sim N(u_i^\top v_j, 1/\tau)\).

    Data: `{"row": [N], "column": [N], "y": [N]}`, one row of data for each known entry.

    Args:
        rows: of the matrix.
        columns: of the matrix.
        factors: the rank.

    Source: Lim & Teh (2007), "Variational Bayesian approach to movie rating prediction".

    Examples:
        >>> from lamu.graphs import models
        >>> models.MatrixFactorisation(10, 8, 2).columns
        ('row', 'column')
    """

    def program(m: Program) -> None:
        noise = m.sample("noise", Gamma(1.0, 1.0))
        unit = Vector(jnp.zeros(factors), jnp.eye(factors))
        u, v = m.sample("u", unit, plate=rows), m.sample("v", unit, plate=columns)
        with m.rows():
            m.sample("y", Normal(u[m.data("row")] @ v[m.data("column")], precision=noise))

    return Graph(program)
