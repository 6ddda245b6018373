"""Multimodal optimisation: a mixture of Gaussians whose components keep out of each other's way."""

from __future__ import annotations

from typing import Any

from lamu.algorithms.mixtures.mixture_rule import MixtureRule
from lamu.expectations import Delta
from lamu.objective.curvature import Hessian
from lamu.rate import rate

__all__ = ["multimodal"]


def multimodal(
    learning_rate: Any = 0.1, components: int = 10, init_precision: float = 10.0, spread: float = 1.0
) -> MixtureRule:
    r"""Multimodal optimisation: several modes at once, by a mixture of Gaussians and the delta method.

    With \(r_j(\theta) = \pi_j N(\theta \mid m_j, S_j^{-1}) / q(\theta)\) the responsibilities,

    \[ S_k \leftarrow S_k + \rho\, \big(\nabla^2 \ell + \nabla^2 \log q\big)(m_k), \qquad
       m_k \leftarrow m_k - \rho\, S_k^{-1} \Big( \nabla\ell(m_k) - \sum_j r_j(m_k)\, S_j (m_k - m_j) \Big) \]

    A component that is alone ends at a mode, with the Hessian there as its precision; components that overlap repel
    each other, so that more modes are found than by as many runs. K gradients, K Hessians (one Hessian-vector product a
    parameter each) and K factorisations of cubic cost a step: for small problems.

    Departures from the rule: expectations, and with them the responsibilities, are taken at the means; the weights are
    held equal; the retraction, without which the Hessian between modes would make precisions negative.

    Args:
        learning_rate: ρ, a number or a schedule of steps.
        components: K.
        init_precision: the precision of every component at the start, a row.
        spread: the standard deviation of the components' starts around the initial parameters.

    Returns:
        The algorithm. Its posterior is the mixture; `posterior.belief.factors["network"].components.mean` has the
        modes.

    Raises:
        ValueError: for a rate, precision or spread that is not positive, fewer than one component, or, where the state
            is made, a network with a state.

    Source: Khan & Rue (2021), section 3 (multimodal optimization); Lin, Khan & Schmidt (2019), section 3.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.algorithms.mixtures.multimodal import multimodal
        >>> from lamu.density import LogDensity, nothing
        >>> wells = LogDensity(lambda x: -jnp.sum((x**2 - 1.0) ** 2), jnp.zeros(1))
        >>> fit = lamu.fit(wells, nothing(), multimodal(components=4), steps=200)
        >>> means = fit.posterior.belief.factors["network"].components.mean
        >>> sorted({round(float(mean)) for mean in means.ravel()})
        [-1, 1]
    """
    return MixtureRule(
        expectation=Delta(),
        curvature=Hessian(),
        learning_rate=rate(learning_rate),
        components=components,
        init_precision=init_precision,
        spread=spread,
    )
