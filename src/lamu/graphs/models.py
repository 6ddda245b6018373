"""Ready models, each a page of the language: functions that return a `lamu.Graph`.

Read one, copy it, and change what differs: a model consists of its program only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from lamu.base.arguments import sized
from lamu.families import Beta, Dirichlet, Gamma, NormalGamma, NormalWishart, Wishart
from lamu.families import MultivariateNormal as Vector
from lamu.graphs.centred import CentredGraph, CentredRowsGraph, UnitScaleGraph
from lamu.graphs.circuit import Circuit, levels
from lamu.graphs.elimination import Coordinate
from lamu.graphs.expressions import StickBreaking
from lamu.graphs.factor import Factor
from lamu.graphs.graph import Graph
from lamu.graphs.normal_factors import MultivariateNormal, Normal
from lamu.graphs.positive_factors import Bernoulli, BernoulliLogits, Categorical
from lamu.graphs.positive_factors import Dirichlet as RowDirichlet
from lamu.graphs.positive_factors import Gamma as GammaFactor
from lamu.graphs.program import Program
from lamu.graphs.rotation import Rotation
from lamu.graphs.series_factors import GaussianChain, Markov
from lamu.graphs.words import Words

__all__ = [
    "BernoulliMixture",
    "ExponentialPCA",
    "FactorAnalysis",
    "GaussianMixture",
    "HiddenMarkov",
    "HierarchicalRegression",
    "LatentClass",
    "LinearRegression",
    "MatrixFactorisation",
    "NaiveBayes",
    "StateSpace",
    "SumProduct",
    "Topics",
]


@sized
def SumProduct(components: int, dimension: int) -> Graph:
    r"""Returns a small sum-product circuit of zeros and ones, K components in every region.

    \[ w \sim \mathrm{Dir}(1), \quad p_{dk} \sim \mathrm{Beta}(1, 1), \quad y \sim \mathrm{Circuit}(p, w) \]

    Neighbouring columns are joined first: order columns so that related ones are adjacent.

    Data: `{"y": [N, dimension]}`, zeros and ones; NaN entries are marginalised exactly.

    Args:
        components: K.
        dimension: number of columns, at least two.

    Source: Poon & Domingos (2011); Peharz, Gens, Pernkopf & Domingos (2017).

    Examples:
        >>> from lamu.graphs import models
        >>> [site.name for site in models.SumProduct(2, 4).sites]
        ['weight0', 'weight1', 'chance', 'y']
    """

    def program(m: Program) -> None:
        weights = [
            m.sample(f"weight{level}", Dirichlet(jnp.ones(K)), plate=(pairs, sums))
            for level, (pairs, sums, K) in enumerate(levels(dimension, components))
        ]
        chance = m.sample("chance", Beta(1.0, 1.0), plate=(dimension, components))
        with m.rows():
            m.sample("y", Circuit(chance, *weights))

    return Graph(program)


@sized
def FactorAnalysis(factors: int, dimension: int, isotropic: bool = False) -> Graph:
    r"""Returns factor analysis of centred rows, \(z \sim N(0, I)\), \(y \mid z \sim N(Wz, \mathrm{diag}(1/\tau))\).

    Each column of W has its own precision (ARD), so that superfluous factors vanish. With one τ for all entries it is
    probabilistic PCA. It starts from principal directions of the rows scaled by their noise, and `vmp` rotates the
    factors after every sweep (`lamu.graphs.Rotation`).

    Data: `{"y": [N, dimension]}`, NaN where missing. Standardise the columns: others cause a warning.

    Args:
        factors: the largest number of factors.
        dimension: number of columns.
        isotropic: whether all entries share one noise.

    Source: Bishop (1999), "Variational principal components"; Ilin & Raiko (2010).

    Examples:
        >>> from lamu.graphs import models
        >>> models.FactorAnalysis(2, 5).blocks
        (('relevance', 'noise'), ('W',))
    """

    def program(m: Program) -> None:
        relevance = m.sample("relevance", Gamma(1e-3, 1e-3), plate=factors)
        # With both axes explicit, an equal number of factors and columns is not mistaken for a plate.
        W = m.sample("W", Normal(jnp.zeros((dimension, factors)), precision=relevance), plate=dimension)
        noise = m.sample("noise", Gamma(1e-3, 1e-3), plate=() if isotropic else dimension)
        with m.rows():
            z = m.sample("z", MultivariateNormal(jnp.zeros(factors), jnp.eye(factors)))
            m.sample("y", Normal(W @ z, precision=noise))

    return CentredRowsGraph(program, expansion=Rotation("W", "z"))


@sized
def ExponentialPCA(factors: int, dimension: int) -> Graph:
    r"""Returns principal components of binary data, \(y_d \sim \mathrm{Bernoulli}(\sigma(w_d^\top z + b_d))\).

    Each column of W has its own precision (ARD), so that superfluous components vanish.

    Data: `{"y": [N, dimension]}`, zeros and ones, NaN where missing.

    Args:
        factors: the largest number of components.
        dimension: number of columns.

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
    r"""Returns the factorisation of a matrix with some known entries, \(y_{ij} \sim N(u_i^\top v_j, 1/\tau)\).

    Data: `{"row": [N], "column": [N], "y": [N]}`, one row of data for each known entry. Standardise y: others
    cause a warning.

    Args:
        rows: number of rows of the matrix.
        columns: number of columns of the matrix.
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

    return CentredRowsGraph(program)


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

    Data: `{"y": [N, dimension]}`, NaN where missing. Rows that are far from standardised cause a warning.

    Args:
        components: the largest number of components; a small concentration lets superfluous ones vanish.
        dimension: number of columns.
        concentration: that of the Dirichlet prior of the weights, for each component; with sticks the process's α.
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
        shares_of_z, likelihood = shares(m), row(m)
        with m.rows():
            z = m.sample("z", Categorical(shares_of_z))
            m.sample("y", likelihood(z))

    return UnitScaleGraph(program)


@sized
def BernoulliMixture(components: int, dimension: int, concentration: float = 1.0) -> Graph:
    r"""Returns a mixture of independent binary variables, \(y_d \mid z \sim \mathrm{Bernoulli}(p_{zd})\).

    Data: `{"y": [N, dimension]}`, zeros and ones, NaN where missing.

    Args:
        components: number of components.
        dimension: number of columns.
        concentration: that of the Dirichlet prior of the weights, for each component.

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
        components: number of components.
        levels: number of categories of each column.
        concentration: that of the Dirichlet prior of the weights, for each component.

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

    Data: `{"x": [N, dimension], "c": [N]}`; NaN classes or entries are missing, and rows without a class are used
    too. `posterior.local({"x": rows})["c"]` classifies.

    Args:
        classes: number of classes.
        dimension: number of columns.

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

    return UnitScaleGraph(program)


@sized
def LinearRegression(inputs: int) -> Graph:
    r"""Returns linear regression with automatic relevance determination, \(w_p \sim N(0, 1/\alpha_p)\).

    Data: `{"x": [N, inputs], "y": [N]}`, standardised; a y that is NaN is predicted.

    Args:
        inputs: number of inputs.

    Source: Bishop (2006), section 10.3; MacKay (1994).

    Examples:
        >>> from lamu.graphs import models
        >>> models.LinearRegression(3).blocks
        (('relevance', 'noise'), ('w',))
    """

    def program(m: Program) -> None:
        relevance = m.sample("relevance", Gamma(1e-2, 1e-2), plate=inputs)
        w = m.sample("w", Normal(jnp.zeros(inputs), precision=relevance))
        noise = m.sample("noise", Gamma(1e-2, 1e-2))
        with m.rows():
            m.sample("y", Normal(m.data("x") @ w, precision=noise))

    return UnitScaleGraph(program)


@sized
def HierarchicalRegression(groups: int, inputs: int) -> Graph:
    r"""Returns a regression whose coefficients vary by group about common ones.

    \[ b_g \sim N(w, \mathrm{diag}(s)^{-1}), \qquad y \sim N(x^\top b_g, 1/\tau) \]

    Data: `{"x": [N, inputs], "group": [N], "y": [N]}`; groups are whole numbers from 0. Give x a column of ones for an
    intercept, and y a unit near its deviation. The variables are `w`, `spread` (s), `coefficients` (b) and `noise` (τ).

    `vmp` assumes w and b independent; a fit warns where their deviations are too small, and `nuts()` has none.

    Args:
        groups: number of groups.
        inputs: number of inputs.

    Source: Gelman & Hill (2007), chapter 13.

    Examples:
        >>> from lamu.graphs import models
        >>> models.HierarchicalRegression(4, 2).sites[2].shape
        (4, 2)
    """

    def program(m: Program) -> None:
        w = m.sample("w", Normal(jnp.zeros(inputs), precision=1e-2))
        spread = m.sample("spread", Gamma(1.0, 0.1), plate=inputs)
        # Centred at w and not at zero: with deviations from w the error of w would be that of one group of all rows, a
        # twentieth of the right one for 8 groups of 50.
        b = m.sample("coefficients", Normal(w, precision=spread), plate=groups)
        noise = m.sample("noise", Gamma(1.0, 0.1))
        with m.rows():
            m.sample("y", Normal(m.data("x") @ b[m.data("group")], precision=noise))

    return UnitScaleGraph(program)


@sized
def HiddenMarkov(states: int, steps: int) -> Graph:
    r"""Returns a hidden Markov model with Gaussian emissions, \(y_t \mid z_t \sim N(m_{z_t}, 1/\tau_{z_t})\).

    Data: `{"y": [N, steps]}`, one series a row, NaN where missing or past its end. The priors are for numbers of unit
    scale: standardise all series together. Series that are far from it cause a warning.

    Args:
        states: number of states.
        steps: the length of the longest series.

    Source: Rabiner (1989); Beal (2003), chapter 3.

    Examples:
        >>> from lamu.graphs import models
        >>> [site.name for site in models.HiddenMarkov(2, 10).in_rows]
        ['z', 'y']
    """

    def program(m: Program) -> None:
        start = m.sample("start", Dirichlet(jnp.ones(states)))
        step = m.sample("step", Dirichlet(jnp.ones(states)), plate=states)
        part = m.sample("part", NormalGamma(0.0, 0.1, 1.0, 0.5), plate=states)
        with m.rows():
            z = m.sample("z", Markov(steps, start, step))
            m.sample("y", Normal(part[z]))

    return UnitScaleGraph(program)


@sized
def StateSpace(steps: int) -> Graph:
    r"""Returns the local level model, \(x_{t+1} \sim N(x_t, 1/q)\), \(y_t \sim N(x_t, 1/r)\).

    \[ u \sim \mathrm{Gamma}(10^{-3}, 10^{-9}), \qquad q, r \mid u \sim \mathrm{Gamma}(\tfrac12, u), \qquad
       x_1 \sim N(0, 10^{12}) \]

    u is learned, so that series may be in any unit.

    Data: `{"y": [N, steps]}`, one series a row, NaN where missing or past its end. Each series may have its own level,
    up to a few millions: rows are centred internally, exactly.

    Args:
        steps: the length of the longest series.

    `vmp` warns that its beliefs about q and r are too narrow: on two simulated series of 100 steps q had a third of its
    exact standard deviation. Forecasts depend on it little.

    Source: Durbin & Koopman (2012), chapter 2.

    Examples:
        >>> from lamu.graphs import models
        >>> [site.name for site in models.StateSpace(10).sites]
        ['unit', 'step', 'noise', 'x', 'y']
    """

    def program(m: Program) -> None:
        unit = m.sample("unit", Gamma(1e-3, 1e-9))
        step, noise = (m.sample(name, GammaFactor(0.5, unit)) for name in ("step", "noise"))
        with m.rows():
            start = {"first_mean": -m.data("origin"), "first_precision": 1e-12}
            x = m.sample("x", GaussianChain(steps, jnp.eye(1), precision=step, **start))
            m.sample("y", Normal(x @ jnp.ones(1), precision=noise))

    return CentredGraph(program)


@sized
def Topics(topics: int, vocabulary: int, share: float = 0.1, word: float = 0.05, sweeps: int = 20) -> Graph:
    r"""Returns latent Dirichlet allocation, in which every word of a document has its own topic.

    \[ \theta_i \sim \mathrm{Dir}(a), \quad \beta_k \sim \mathrm{Dir}(b), \quad w_{ij} \sim \sum_k \theta_{ik}\beta_k \]

    Data: `{"words": (ids, counts)}`, each `[N, longest]`: the distinct words of a document and their counts, padded by
    counts of zero.

    Args:
        topics: K.
        vocabulary: number of distinct words.
        share: a.
        word: b.
        sweeps: the updates of a document's shares in a step.

    Source: Blei, Ng & Jordan (2003); Hoffman, Blei, Wang & Paisley (2013).

    Examples:
        >>> from lamu.graphs import models
        >>> models.Topics(3, 100).sites[0].shape
        (3, 100)
    """

    def program(m: Program) -> None:
        topic = m.sample("topic", Dirichlet(jnp.full(vocabulary, word)), plate=topics)
        with m.rows():
            own = m.sample("share", RowDirichlet(jnp.full(topics, share)))
            m.sample("words", Words(own, topic))

    return Graph(program, local={"share": Coordinate(sweeps)})
