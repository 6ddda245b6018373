"""The last layer: Laplace's method for the head of a network, the rest held at the mode."""

from __future__ import annotations

from typing import Any

from lamu.algorithms.post_hoc.averaged_curvature import AveragedGaussNewton
from lamu.algorithms.post_hoc.laplace import Laplace, mode_finder, require_structure
from lamu.algorithms.post_hoc.selection import HeadWeights
from lamu.operators import OutputEigen
from lamu.predictives import PredictiveRule
from lamu.protocol import Algorithm

__all__ = ["last_layer"]

_LARGEST_DENSE = 20_000


def last_layer(
    optimizer: Algorithm | None = None, structure: Any = None, curvature: Any = None, rule: PredictiveRule | None = None
) -> Laplace:
    r"""Laplace's method for the last layer alone, exact Bayes for a linear model on learned features.

    With \(\phi(x)\) the features at the mode and W the head's weights, \(f(x) = W \phi(x)\) is linear in W, so that the
    Gauss–Newton matrix is the Hessian (for canonical likelihoods) and the linearised prediction is exact in f:

    \[ S = \tfrac1T \Big( \sum_i \phi_i \phi_i^\top \otimes \Lambda_i + \delta I \Big), \qquad
       J_i = \phi(x_i)^\top \otimes I \]

    After the steps that find the mode, one pass over the data for the features, and no Jacobian. With F features, the
    bias's one among them, K outputs and N rows:

    | structure | operations | numbers held |
    |---|---|---|
    | `Dense` | \(N F^2 K^2\), and \((F K)^3 / 3\) for the factor | \(F^2 K^2\) |
    | `KroneckerFactored()`, Kronecker | \(N (F^2 + K^2)\), and \(F^3 + K^3\) | \(F^2 + K^2 + F K\) |
    | `OutputBlocks`, a matrix an output | \(N F^2 K\), and \(K F^3 / 3\) | \(F^2 K\) |
    | `OutputEigen`, \(\sum \phi\phi^\top \otimes \mathrm{diag} \sum \Lambda\) | \(N (F^2 + F K)\) | \(F^2 + F K\) |
    | `Diagonal` | \(N F K\) | \(F K\) |

    The last three know of no correlation between outputs, and predict without a matrix of outputs for any input: ten
    thousand classes are theirs, with the rule `Probit()`.

    Where the likelihood has a target at every position of a row (`PerPosition`: pixels, steps), a head that is used at
    each of them, dense or a convolution, is read position by position, and N counts positions: maps of any size need no
    Jacobian. So are predictions by the rule of maps, `LinearisedMarginal()` (of classes `Probit()`, where the network
    arrived trained), which takes the outputs of a row for independent; `Linearised()` draws whole maps, from the rows'
    Jacobians.

    The head is brought to its mode first, and the posterior has no evidence where that fails, as in `laplace`. The
    noise that a regression learns leaves room for the features, too, which have been fitted to the same rows: it counts
    the well-determined weights of the whole network, once, by the curvature that `laplace` would take.

    Departures from the rule: the features are a point, and the belief is computed at the mode alone.

    Args:
        optimizer: the algorithm that finds the mode, with a point posterior; `adam(Annealed(1e-2))` where None.
        structure: one of the table's; where none is given dense up to 20,000 weights, `OutputEigen` above. Of a network
            that arrives trained (`epochs=0`) dense up to 1,024 weights, then Kronecker factors.
        curvature: what stands for the Hessian, as in `laplace`; the Gauss–Newton matrix where none is given, of classes
            averaged over the belief around a mode that is found here.
        rule: how the posterior predicts, as in `laplace`.

    Returns:
        The algorithm. Its posterior's model has every weight frozen but the head's.

    Raises:
        TypeError: for an `optimizer` that is no algorithm, or a structure that is none.

    Source: Snoek et al. (2015); Kristiadi, Hein & Hennig (2020).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.MLP((16,)), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.last_layer(), epochs=10).posterior
        >>> lamu.tree.paths(posterior.mean["network"])
        ['layers/1/bias', 'layers/1/kernel']
    """
    require_structure(structure)
    return Laplace(
        base=mode_finder(optimizer),
        weights=HeadWeights(),
        structure=structure,
        curvature=AveragedGaussNewton() if curvature is None else curvature,
        largest_dense=_LARGEST_DENSE,
        beyond=OutputEigen,
        rule=rule,
    )
