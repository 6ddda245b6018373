"""Linear decoders: factor analysis and principal components with an encoder."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.families import Gamma
from lamu.graphs.graph import Graph
from lamu.graphs.normal import Normal
from lamu.graphs.program import Program
from lamu.latent.locals import Amortised
from lamu.likelihoods import Bernoulli, Likelihood
from lamu.networks import Linear
from lamu.sizes import sized

__all__ = ["ExponentialPCA", "FactorAnalysis"]

_LINEAR, _BITS = Linear(), Bernoulli()


@sized
def FactorAnalysis(factors: int, dimension: int, isotropic: bool = False, encoder: Any = _LINEAR) -> Graph:
    r"""Returns factor analysis with an encoder, \(z \sim N(0, I)\), \(y \mid z \sim N(W z + b, \mathrm{diag}(\psi))\).

    `lamu.graphs.models.FactorAnalysis` is the same model with exact beliefs: take that one where rows fit in memory.
    This one is a point W, b, ψ, trained on minibatches by any optimiser. Its belief is independent by coordinates, and
    the posterior is so where \(W^\top \psi^{-1} W\) is diagonal. The density does not see a rotation of W, and the
    bound prefers the one that is: at its optimum it is the exact log density.

    Data: `{"y": [N, dimension]}`, NaN where missing.

    Args:
        factors: numbers of z.
        dimension: numbers of a row.
        isotropic: whether all entries have one noise, as in probabilistic principal components.
        encoder: the network of q(z | y); linear is enough where no entry is missing.

    Source: Tipping & Bishop (1999); Lucas, Tucker, Grosse & Norouzi (2019) for the optimum of the bound.

    Examples:
        >>> import lamu
        >>> lamu.latent.models.FactorAnalysis(2, 5, isotropic=True).blocks
        (('noise',),)
    """

    def program(m: Program) -> None:
        decode = m.network("decode", Linear(), outputs=dimension)
        noise = m.sample("noise", Gamma(1e-3, 1e-3), plate=() if isotropic else dimension)
        with m.rows():
            z = m.sample("z", Normal(jnp.zeros(factors), 1.0))
            m.sample("y", Normal(decode(z), precision=noise))

    return Graph(program, local={"z": Amortised(encoder)})


@sized
def ExponentialPCA(factors: int, dimension: int, likelihood: Likelihood = _BITS, encoder: Any = _LINEAR) -> Graph:
    r"""Returns principal components of any likelihood, \(z \sim N(0, I)\), \(y_d \sim p(y_d \mid w_d^\top z + b_d)\).

    `lamu.graphs.models.ExponentialPCA` is that of zeros and ones with a quadratic bound and relevances of the columns.

    Data: `{"y": [N, dimension]}`, NaN where missing.

    Args:
        factors: numbers of z.
        dimension: numbers of a row.
        likelihood: of an entry, for instance `Bernoulli()` or `Poisson()`.
        encoder: the network of q(z | y).

    Source: Collins, Dasgupta & Schapire (2002).

    Examples:
        >>> import lamu
        >>> sorted(lamu.latent.models.ExponentialPCA(2, 5).local)
        ['z']
    """

    def program(m: Program) -> None:
        decode = m.network("decode", Linear(), outputs=dimension)
        with m.rows():
            z = m.sample("z", Normal(jnp.zeros(factors), 1.0))
            m.sample("y", likelihood(decode(z)))

    return Graph(program, local={"z": Amortised(encoder)})
