"""Variational inference with a mixture of Gaussians, by natural gradients of the joint."""

from __future__ import annotations

from typing import Any

from lamu.algorithms.mixtures.mixture_rule import MixtureRule
from lamu.expectations import MonteCarlo
from lamu.objective.curvature import Hessian
from lamu.rate import Annealed, rate

__all__ = ["mixture_vi"]


def mixture_vi(
    learning_rate: Any = Annealed(0.1),
    components: int = 5,
    samples: int = 4,
    weights_rate: Any = Annealed(0.1),
    init_precision: float = 1.0,
    spread: float = 1.0,
) -> MixtureRule:
    r"""Non-conjugate variational inference with a mixture of Gaussians: the rule for a conditional exponential family.

    \[ S_k \leftarrow S_k + \rho\, E_{q_k}[\nabla^2 (\ell + \log q)], \qquad
       m_k \leftarrow m_k - \rho\, S_k^{-1} E_{q_k}[\nabla (\ell + \log q)] \]
    \[ \log (\pi_k / \pi_K) \leftarrow \log (\pi_k / \pi_K)
       - \rho_\pi \big( E_{q_k}[\ell + \log q] - E_{q_K}[\ell + \log q] \big) \]

    with q the whole mixture. For S draws a component, K S gradients and Hessians (one Hessian-vector product a
    parameter each) and K factorisations of cubic cost a step: for small problems.

    Departures from the rule: the retraction; a rate of their own for the weights.

    Args:
        learning_rate: ρ, a number, a schedule of steps, or `Annealed`.
        components: K.
        samples: S.
        weights_rate: ρ_π.
        init_precision: the precision of every component at the start, a row.
        spread: the standard deviation of the components' starts around the initial parameters.

    Returns:
        The algorithm. Its posterior is the mixture; its loss the negative evidence bound, a row.

    Raises:
        ValueError: for a rate, precision or spread that is not positive, fewer than one component or draw, or, where
            the state is made, a network with a state.

    Source: Lin, Khan & Schmidt (2019), "Fast and simple natural-gradient variational inference with mixture of
        exponential-family approximations", section 4.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.algorithms.mixtures.mixture_vi import mixture_vi
        >>> from lamu.density import LogDensity, nothing
        >>> wells = LogDensity(lambda x: -jnp.sum((x**2 - 1.0) ** 2), jnp.zeros(1))
        >>> posterior = lamu.fit(wells, nothing(), mixture_vi(components=2), steps=200).posterior
        >>> posterior.belief.factors["network"].count
        2
    """
    return MixtureRule(
        expectation=MonteCarlo(samples),
        curvature=Hessian(),
        learning_rate=rate(learning_rate),
        weights_rate=rate(weights_rate, "weights_rate"),
        components=components,
        init_precision=init_precision,
        spread=spread,
    )
