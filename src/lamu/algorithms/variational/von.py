"""VON: the rule for a Gaussian, with nothing added."""

from __future__ import annotations

from typing import Any

from lamu.algorithms.optimisers.line_search import Searched
from lamu.expectations import Exact, Expectation, MonteCarlo, Quadrature
from lamu.geometry import Geometry, Straight
from lamu.objective.curvature import Hessian
from lamu.operators import Diagonal
from lamu.rate import Annealed, rate
from lamu.rule import Rule

__all__ = ["von"]


def von(
    learning_rate: Any = Annealed(0.1),
    structure: Any = Diagonal,
    expectation: Expectation | None = None,
    hess_init: float = 1.0,
    geometry: Geometry | None = None,
) -> Rule:
    r"""Variational online Newton: the rule for a Gaussian over any structure, word for word.

    \[ S \leftarrow S + \rho\,\big(E_q[\nabla^2\ell] - S\big), \qquad m \leftarrow m - \rho\, S^{-1} E_q[\nabla\ell] \]

    One gradient and one Hessian a draw and step; the Hessian costs a Hessian-vector product a coordinate, so this is
    for small models. With `Exact()` on a linear-Gaussian model, ρ = 1 is Bayes' rule in one step; with `Quadrature()`
    the deterministic path for generalised linear models.

    Departures from the rule: none; the retraction, where asked; a line search with `Exact()` and `Quadrature()`, which
    shortens steps that would not decrease \(E_q[\ell]/T - H(q)\) (with correlated columns and a diagonal precision
    whole steps may cycle for ever), and then needs all the data as one batch.

    Args:
        learning_rate: ρ in (0, 1], a number, a schedule of steps, or `Annealed`, the default: with draws, a rate that
            stays leaves the mean jittering.
        structure: the operator class of the precision: `lamu.operators.Scalar`, `Diagonal` or `Dense`.
        expectation: how E_q is taken; one Monte Carlo draw where none is given.
        hess_init: the curvature a row at the start.
        geometry: how S moves: straight, which is the rule itself, where none is given; `lamu.geometry.Retraction()`,
            which is a departure, where a Hessian may be indefinite.

    Returns:
        The algorithm. Its posterior is the Gaussian.

    Raises:
        ValueError: for a rate that is not positive.

    Source: Khan et al. (2018), section 3; Khan & Rue (2021), equations 10 to 12.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=55.0)).standardised(x, y)
        >>> newton = lamu.algorithms.von(1.0, lamu.operators.Dense, lamu.expectations.Exact())
        >>> fit = lamu.fit(model, (x, y), newton, steps=2, batch_size=442)
        >>> bool(fit.history["residual"][-1] < 1e-2)
        True
    """
    expectation = MonteCarlo(1) if expectation is None else expectation
    # What has no draws can be asked whether a step went downhill.
    kind = Searched if isinstance(expectation, Exact | Quadrature) else Rule
    return kind(
        structure=structure,
        expectation=expectation,
        curvature=Hessian(),
        geometry=Straight() if geometry is None else geometry,
        learning_rate=rate(learning_rate),
        hess_init=hess_init,
    )
