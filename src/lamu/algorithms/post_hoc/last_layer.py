"""The last layer: Laplace's method for the head of a network, the rest held at the mode."""

from __future__ import annotations

from lamu.algorithms.post_hoc.laplace import Laplace, mode_finder
from lamu.algorithms.post_hoc.selection import HeadWeights
from lamu.operators import Dense
from lamu.protocol import Algorithm

__all__ = ["last_layer"]


def last_layer(of: Algorithm | None = None) -> Laplace:
    r"""Laplace's method for the last layer alone, exact Bayes for a linear model on learned features.

    With \(\phi(x)\) the features at the mode and W the head's weights, \(f(x) = W \phi(x)\) is linear in W, so that the
    Gauss–Newton matrix is the Hessian (for canonical likelihoods) and the linearised prediction is exact in f:

    \[ S = \tfrac1T \Big( \sum_i J_i^\top \Lambda_i J_i + \delta I \Big), \qquad J_i = I \otimes \phi(x_i)^\top \]

    After the steps that find the mode, one pass over the data with one Jacobian of the head a row, and the head's
    dimension cubed once.

    Departures from the rule: the features are a point, and the belief is computed once, where the optimiser stopped.

    Args:
        of: the algorithm that finds the mode, with a point posterior; `adam(Annealed(1e-2))` where none is given.

    Returns:
        The algorithm. Its posterior's model has every weight frozen but the head's.

    Raises:
        TypeError: for an `of` that is no algorithm.

    Source: Snoek et al. (2015); Kristiadi, Hein & Hennig (2020).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.MLP((16,)), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.last_layer(), epochs=10).posterior
        >>> lamu.tree.paths(posterior.mean["network"])
        ['layers/1/bias', 'layers/1/kernel']
    """
    return Laplace(of=mode_finder(of), weights=HeadWeights(), structure=Dense)
