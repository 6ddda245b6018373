"""Mixtures: every row belongs to one of K groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from lamu.families import Beta, Dirichlet, NormalGamma, NormalWishart, Wishart
from lamu.families import MultivariateNormal as Vector
from lamu.graphs.bernoulli import Bernoulli
from lamu.graphs.categorical import Categorical
from lamu.graphs.expressions import StickBreaking
from lamu.graphs.factor import Factor
from lamu.graphs.graph import Graph
from lamu.graphs.multivariate_normal import MultivariateNormal
from lamu.graphs.normal import Normal
from lamu.graphs.program import Program
from lamu.sizes import sized

__all__ = ["BernoulliMixture", "GaussianMixture", "LatentClass", "NaiveBayes"]


@sized
def GaussianMixture(
    components: int,
    dimension: int,
    concentration: float = 1e-3,
    covariance: str = "full",
    weights: str = "dirichlet",
) -> Graph:
    r"""Returns a mixture of Gaussians for standardised rows.

    \[ z \sim \mathrm{Cat}(\pi), \qquad y \mid z \sim N(m_z, S_z) \]

    Data: `{"y": [N, dimension]}`; with diagonal covariances NaN is a missing entry.

    Args:
        components: how many at most; a small concentration lets those die that the data do not need.
        dimension: numbers of a row.
        concentration: of the Dirichlet prior of the weights, for each component; with sticks that of the process, α.
        covariance: "full" or "diagonal", one for each component, or "tied", one for all.
        weights: "dirichlet", or "sticks" for a truncated Dirichlet process, which prefers the first components.

    Raises:
        ValueError: for another covariance, or other weights.

    Source: Bishop (2006), section 10.2; Blei & Jordan (2006).

    Examples:
        >>> from lamu.graphs import models
        >>> [site.name for site in models.GaussianMixture(3, 2).sites]
        ['weight', 'part', 'z', 'y']
        >>> [site.name for site in models.GaussianMixture(3, 2, 1.0, "tied", "sticks").sites]
        ['break', 'mean', 'precision', 'z', 'y']
    """
    if covariance not in ("full", "diagonal", "tied"):
        raise ValueError(f'covariance={covariance!r} is not known; give "full", "diagonal" or "tied"')
    if weights not in ("dirichlet", "sticks"):
        raise ValueError(f'weights={weights!r} are not known; give "dirichlet" or "sticks"')
    centre, unit = jnp.zeros(dimension), jnp.eye(dimension)

    def shares(m: Program) -> Any:
        if weights == "sticks":
            return StickBreaking(m.sample("break", Beta(1.0, concentration), plate=components - 1))
        return m.sample("weight", Dirichlet(jnp.full(components, concentration)))

    def row(m: Program) -> Callable[[Any], Factor]:
        if covariance == "tied":
            mean = m.sample("mean", Vector(centre, unit), plate=components)
            precision = m.sample("precision", Wishart(float(dimension), unit))
            return lambda z: MultivariateNormal(mean[z], precision)
        if covariance == "diagonal":
            part = m.sample("part", NormalGamma(centre, 1.0, 1.0, 0.5), plate=components)
            return lambda z: Normal(part[z])
        part = m.sample("part", NormalWishart(centre, 1.0, float(dimension), unit), plate=components)
        return lambda z: MultivariateNormal(part[z])

    def program(m: Program) -> None:
        share, given = shares(m), row(m)
        with m.rows():
            z = m.sample("z", Categorical(share))
            m.sample("y", given(z))

    return Graph(program)


@sized
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


@sized
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


@sized
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
