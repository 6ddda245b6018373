"""Variational message passing through likelihoods that are not conjugate: the rule at a rate, by quadrature."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.algorithms.closed_form.restarts import checked
from lamu.algorithms.closed_form.vmp import Vmp
from lamu.data.batch import Batch
from lamu.families import Gaussian, MultivariateNormal
from lamu.natural_rule import ConjugateLoss
from lamu.objective import Objective
from lamu.objective.dispersions import dispersion_step
from lamu.protocol import Choices
from lamu.record import record

__all__ = ["Ncvmp", "ncvmp"]


@record
class Ncvmp(Vmp):
    """The algorithm that `ncvmp` makes."""

    # `tolerance`: the change of the bound at which it stops, in nats a row.
    #
    # `restarts`: how many starts.

    learning_rate: float = 0.5

    exact = False

    @property
    def choices(self) -> Choices:
        return Choices("product of conjugate families", "Quadrature", "none needed", "straight, ρ a factor")

    def _moved(self, kind: Any, old: Any, natural: Any) -> Any:
        # Returns the belief after the step at the rate, bent where the straight one has no positive precision.
        before = old.to_natural()
        away = tree.add(natural, kind(*jax.tree.leaves(before)), -1.0)
        straight = tree.add(kind(*jax.tree.leaves(before)), away, self.learning_rate).belief()
        if not isinstance(old, Gaussian | MultivariateNormal):
            return straight
        direction = jax.tree.unflatten(jax.tree.structure(before), jax.tree.leaves(away))
        bent, inside = old.retract(direction, self.learning_rate), jnp.isfinite(straight.log_partition())
        return jax.tree.map(lambda one, other: jnp.where(inside, one, other), straight, bent)

    def _dispersions(self, objective: Objective, statistics: Any, batch: Batch, dispersions: Any) -> Any:
        # Returns the dispersions after a step of Fisher scoring at the rate.
        if not dispersions:
            return dispersions
        loss = ConjugateLoss(objective, batch, {}, {})
        gradient = jax.grad(lambda own: loss.at(statistics, dispersions=own))(dispersions)
        return dispersion_step(objective, dispersions, gradient, self.learning_rate)


def ncvmp(learning_rate: float = 0.5, tolerance: float = 1e-8, restarts: int = 1) -> Ncvmp:
    r"""Non-conjugate variational message passing on a graph with likelihoods of its own.

    \[ \lambda_k \leftarrow (1 - \rho)\, \lambda_k + \rho\, \nabla_{\mu_k} E_q[\log p] / T \]

    for one variable after the other, as `vmp`, and then for the dispersions that likelihoods learn, at a point, by a
    step of Fisher scoring at the same rate. A likelihood of a sum or a product of variables,
    `Poisson()(x @ w)`, has its expectation by Gauss–Hermite quadrature entry by entry (`lamu.graphs.Quadrature`), so
    that E log p stays a function of μ; through exact factors the messages are those of `vmp`. The bound may fall in a
    sweep where ρ is large. Precisions stay positive where the log likelihood is concave. Elsewhere, as for a Student t,
    a step that would leave the positive ones is bent back inside by the second-order retraction of Lin, Schmidt &
    Khan (2020), which agrees with it to O(ρ²).

    Cost of a sweep: one gradient over all rows for each group of variables, and twenty densities a row for each
    likelihood.

    Departures from the rule: the retraction, where the straight step has no positive precision.

    Args:
        learning_rate: ρ in (0, 1].
        tolerance: the change of the bound in a sweep at which a run has settled, in nats a row.
        restarts: how many random starts run side by side; the posterior is the one with the best bound.

    Returns:
        The algorithm. Its posterior is a product of the variables' beliefs; `evidence` is the bound.

    Raises:
        TypeError: (when it runs) for a model that is no `lamu.Graph`, or networks in it.
        ValueError: for a rate outside (0, 1], a negative tolerance, or no restart.

    Source: Knowles & Minka (2011), algorithm 1 and section 4; Khan & Rue (2021), section 5.4.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.families import MultivariateNormal
        >>> def counts(m):
        ...     w = m.sample("w", MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
        ...     with m.rows():
        ...         m.sample("y", lamu.likelihoods.Poisson()(m.data("x") @ w))
        >>> data = {"x": jnp.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), "y": jnp.array([1, 2, 8])}
        >>> posterior = lamu.fit(lamu.Graph(counts), data, lamu.algorithms.ncvmp()).posterior
        >>> round(float(posterior.mean["network"]["w"][1]), 1)
        1.0
    """
    if not 0.0 < learning_rate <= 1.0:
        raise ValueError(f"learning_rate={learning_rate!r} is no rate of the rule; give a number above 0, at most 1")
    checked(tolerance, restarts)
    return Ncvmp(tolerance, restarts, float(learning_rate))
