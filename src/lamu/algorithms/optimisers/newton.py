"""Newton's method: a dense Gaussian at its mean, all of the new information at once."""

from __future__ import annotations

from typing import Any

from lamu.algorithms.optimisers.line_search import MadePositive, Searched
from lamu.expectations import Delta
from lamu.objective.curvature import Hessian
from lamu.operators import Dense
from lamu.rate import rate
from lamu.update_rules import DampedInverse

__all__ = ["newton"]


def newton(learning_rate: Any = 1.0, damping: float = 0.0) -> Searched:
    r"""Newton's method, as a row of the rule.

    \[ S \leftarrow (1 - \rho)\, S + \rho\, \nabla^2\ell(m), \qquad m \leftarrow m - \rho\, S^{-1} \nabla\ell(m) \]

    which at ρ = 1 is \(m \leftarrow m - \nabla^2\ell(m)^{-1} \nabla\ell(m)\): the rule that forgets everything at every
    step. At a mode the belief is Laplace's. One gradient, a Hessian-vector product a coordinate, one Cholesky factor
    and two losses a step, over all rows: for small models.

    A step that would not decrease the loss is halved until it does, so that it converges from any start where the loss
    is convex (a generalised linear model), and descends where it is not (a network). Near a minimum steps are whole.

    Departures from the rule: the line search, which only shortens steps; absolute eigenvalues in the direction, and in
    nothing else, where the Hessian is indefinite; damping, where asked, in their place.

    Args:
        learning_rate: ρ in (0, 1], a number or a schedule of steps.
        damping: γ a row, as in \((S/\kappa + \gamma I)^{-1}\); zero for none. It shortens steps, and moves no fixed
            point.

    Returns:
        The algorithm. Its posterior is the Gaussian with the Hessian for its precision; learned dispersions are a
        point.

    Raises:
        ValueError: for a rate that is not positive, or a negative damping.

    Source: Khan & Rue (2021), section 1.3.2, with the delta method; Levenberg (1944) for the damping.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.optimisers.newton import newton
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), newton(), steps=12)
        >>> bool(fit.history["residual"][-1] < 1e-3)
        True
    """
    if damping < 0:
        raise ValueError(f"damping={damping!r} would lengthen steps; give a number that is not negative")
    return Searched(
        structure=Dense,
        expectation=Delta(),
        curvature=Hessian(),
        learning_rate=rate(learning_rate),
        metric=DampedInverse(float(damping)) if damping else MadePositive(),
        batching="full",
    )
