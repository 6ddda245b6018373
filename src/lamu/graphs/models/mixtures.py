"""Mixtures: every row belongs to one of K groups."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.families import Beta, Dirichlet, NormalGamma, NormalWishart
from lamu.graphs.bernoulli import Bernoulli
from lamu.graphs.categorical import Categorical
from lamu.graphs.graph import Graph
from lamu.graphs.multivariate_normal import MultivariateNormal
from lamu.graphs.normal import Normal
from lamu.graphs.program import Program

__all__ = ["BernoulliMixture", "GaussianMixture", "LatentClass", "NaiveBayes"]


def GaussianMixture(components: int, dimension: int, concentration: float = 1e-3, covariance: str = "full") -> Graph:
    r"""Returns a mixture of Gaussians for standardised rows.

    \[ z \sim \mathrm{Cat}(\pi), \qquad y \mid z \sim N(m_z, S_z) \]

    Data: `{"y": [N, dimension]}`; with diagonal covariances NaN is a missing entry.

    Args:
        components: how many at most; a small concentration lets those die that the data do not need.
        dimension: numbers of a row.
        concentration: of the Dirichlet prior of the weights, for each component.
        covariance: "full" or "diagonal".

    Raises:
        ValueError: for another covariance.

    Source: Bishop (2006), section 10.2.

    Examples:
        >>> from lamu.graphs import models
        >>> [site.name for site in models.GaussianMixture(3, 2).sites]
        ['weight', 'part', 'z', 'y']
    """
    if covariance not in ("full", "diagonal"):
        raise ValueError(f'covariance={covariance!r} is not known; give "full" or "diagonal"')
    location = jnp.zeros(dimension)
    full = NormalWishart(location, 1.0, float(dimension), jnp.eye(dimension))
    prior: Any = full if covariance == "full" else NormalGamma(location, 1.0, 1.0, 0.5)

    def program(m: Program) -> None:
        weight = m.sample("weight", Dirichlet(jnp.full(components, concentration)))
        part = m.sample("part", prior, plate=components)
        with m.rows():
            z = m.sample("z", Categorical(weight))
            m.sample("y", MultivariateNormal(part[z]) if covariance == "full" else Normal(part[z]))

    return Graph(program)


def BernoulliMixture(components: int, dimension: int, concentration: float = 1.0) -> Graph:
    r"""Returns a mixture of independent zeros and ones, \(y_d \mid z \sim \mathrm{Bernoulli}(p_{zd})\).

    Data: `{"y": [N, dimension]}`, zeros and ones, NaN where missing.

    Args:
        components: how many.
        dimension: numbers of a row.
        concentration: of the Dirichlet prior of the weights, for each component.

    Source: Bishop (2006), section 9.3.3.

    Examples:
        >>> from lamu.graphs import models
        >>> models.BernoulliMixture(3, 8).sites[1].shape
        (3, 8)
    """

    def program(m: Program) -> None:
        weight = m.sample("weight", Dirichlet(jnp.full(components, concentration)))
        chance = m.sample("chance", Beta(1.0, 1.0), plate=(components, dimension))
        with m.rows():
            z = m.sample("z", Categorical(weight))
            m.sample("y", Bernoulli(chance[z]))

    return Graph(program)


def LatentClass(components: int, levels: tuple[int, ...], concentration: float = 1.0) -> Graph:
    r"""Returns a mixture of independent categories, \(y_d \mid z \sim \mathrm{Cat}(p_{zd})\), one variable a column.

    Data: `{"y0": [N], "y1": [N], ...}`, whole numbers from 0, NaN where missing.

    Args:
        components: how many.
        levels: how many categories each column has.
        concentration: of the Dirichlet prior of the weights, for each component.

    Source: Lazarsfeld & Henry (1968).

    Examples:
        >>> from lamu.graphs import models
        >>> [site.name for site in models.LatentClass(2, (3, 4)).in_rows]
        ['z', 'y0', 'y1']
    """

    def program(m: Program) -> None:
        weight = m.sample("weight", Dirichlet(jnp.full(components, concentration)))
        tables = [m.sample(f"table{d}", Dirichlet(jnp.ones(count)), plate=components) for d, count in enumerate(levels)]
        with m.rows():
            z = m.sample("z", Categorical(weight))
            for d, table in enumerate(tables):
                m.sample(f"y{d}", Categorical(table[z]))

    return Graph(program)


def NaiveBayes(classes: int, dimension: int) -> Graph:
    r"""Returns Gaussian naive Bayes, \(c \sim \mathrm{Cat}(\pi)\), \(x_d \mid c \sim N(m_{cd}, 1/\tau_{cd})\).

    Data: `{"x": [N, dimension], "c": [N]}`; a class or an entry that is NaN is missing, and rows without a class teach
    too. `posterior.local({"x": rows})["c"]` classifies.

    Args:
        classes: how many.
        dimension: numbers of a row.

    Source: Hastie, Tibshirani & Friedman (2009), section 6.6.3.

    Examples:
        >>> from lamu.graphs import models
        >>> models.NaiveBayes(3, 4).sites[1].shape
        (3, 4)
    """

    def program(m: Program) -> None:
        weight = m.sample("weight", Dirichlet(jnp.ones(classes)))
        part = m.sample("part", NormalGamma(jnp.zeros(dimension), 0.1, 1.0, 0.5), plate=classes)
        with m.rows():
            c = m.sample("c", Categorical(weight))
            m.sample("x", Normal(part[c]))

    return Graph(program)
