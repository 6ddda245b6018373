"""Sufficient statistics T of a variable: of a value, in expectation, or as natural parameters."""

# A factor of a graph is affine in the statistics of each of its arguments, so that one function F of statistics is the
# exact log joint at \(T(\theta)\), the expected log joint at \(\mu = E_q[T(\theta)]\), and its gradient the natural
# parameters of a message. All three have the same shape, and are held by the same record, one class for each kind of
# variable.
#
# | class | variable | T | belief |
# |---|---|---|---|
# | `Numbers` | numbers | \((x, x^2)\) | `Gaussian` with a diagonal |
# | `Vectors` | vectors | \((x, xx^\top)\) | `MultivariateNormal` |
# | `Positive` | rates, precisions | \((\log x, x)\) | `Gamma` |
# | `Reciprocal` | variances | \((\log x, 1/x)\) | `InverseGamma` |
# | `Precisions` | precision matrices | \((\log\det\Lambda, \Lambda)\) | `Wishart` |
# | `Located` | a mean and a precision | \((\log\tau, \tau, \tau x, \tau x^2)\) | `NormalGamma` |
# | `LocatedVectors` | a vector, a matrix | \((\log\det\Lambda, \Lambda, \Lambda x, x^\top\Lambda x)\) | `NormalWishart`
# |
# | `Simplex` | probabilities that sum to one | \(\log\pi\) | `Dirichlet` |
# | `Chance` | one probability | \((\log p, \log(1-p))\) | `Beta` |
# | `Categories` | one of K | one-hot | `Categorical` |
# | `Bits` | zeros and ones | \(x\) | `Bernoulli` |
# | `Series` | a series of vectors | \((x_t, x_t x_t^\top, x_t x_{t+1}^\top)\) | `GaussianChain` |
# | `States` | a series of categories | one-hot, and pairs | `MarkovChain` |
# | `ParallelSeries`, `ParallelStates` | the same two | the same | recursions by associative scans |
# | `Counts` | counts, observed | \(x\) | none |

from __future__ import annotations

from typing import Any

from lamu.families import (
    Beta,
    Dirichlet,
    Gamma,
    Gaussian,
    InverseGamma,
    MultivariateNormal,
    NormalGamma,
    NormalWishart,
    Wishart,
)
from lamu.graphs.statistics.interface import KINDS, Statistics
from lamu.graphs.statistics.located import Located, LocatedVectors
from lamu.graphs.statistics.numbers import Numbers, Vectors
from lamu.graphs.statistics.positive import Positive, Precisions, Reciprocal
from lamu.graphs.statistics.probabilities import Bits, Categories, Chance, Counts, Simplex
from lamu.graphs.statistics.series import ParallelSeries, ParallelStates, Series, States
from lamu.operators import Diagonal

__all__ = [
    "KINDS",
    "Bits",
    "Categories",
    "Chance",
    "Counts",
    "Located",
    "LocatedVectors",
    "Numbers",
    "ParallelSeries",
    "ParallelStates",
    "Positive",
    "Precisions",
    "Reciprocal",
    "Series",
    "Simplex",
    "States",
    "Statistics",
    "Vectors",
    "kind_of",
]

_OF_FAMILY: dict[type, type[Statistics]] = {
    MultivariateNormal: Vectors,
    Gamma: Positive,
    InverseGamma: Reciprocal,
    Wishart: Precisions,
    NormalGamma: Located,
    NormalWishart: LocatedVectors,
    Dirichlet: Simplex,
    Beta: Chance,
}


def kind_of(belief: Any) -> type[Statistics]:
    """Returns the statistics of a belief's variables."""
    if isinstance(belief, Gaussian) and isinstance(belief.precision, Diagonal):
        return Numbers
    kind = _OF_FAMILY.get(type(belief))
    if kind is None:
        known = ", ".join(family.__name__ for family in _OF_FAMILY)
        raise TypeError(
            f"a {type(belief).__name__} is no prior of a graph's variable; give one of {known}, or a factor such as "
            "graphs.Normal(0.0, precision=1.0)"
        )
    return kind
