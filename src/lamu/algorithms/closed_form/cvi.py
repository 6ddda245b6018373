"""Conjugate-computation variational inference: exact messages to conjugate sites, gradients in μ for all others."""

from __future__ import annotations

from typing import Any

from lamu.geometry import Retraction
from lamu.natural_rule import NaturalRule
from lamu.rate import PolynomialDecay, rate

__all__ = ["cvi"]


def cvi(learning_rate: Any = None, pairs: int = 8) -> NaturalRule:
    r"""Conjugate-computation variational inference on a NumPyro program.

    \[ \lambda \leftarrow (1 - \rho)\, \lambda + \rho\, \nabla_\mu E_q[\log p(\theta, D)] / T \]

    For a site that is conjugate in all its factors the gradient is the exact message for given others, averaged over
    draws of those. All other sites share one Gaussian of their real coordinates with a full covariance, whose gradient
    is that of Bonnet and Price, \(E_q[\nabla \log p]\) and \(E_q[\nabla^2 \log p]\), with Hessians at draws.

    Where the posterior in these coordinates is no Gaussian (a scale of groups, a truncation), the belief is too narrow;
    `fit.convergence.divergence` tells, and beyond its limit a warning (`lamu.Unconverged`) names the variables.

    Departures from the rule: the retraction, which keeps precisions positive; it is the rule to O(ρ²).

    A step takes 2 · `pairs` Hessians over the real coordinates, D gradients each, and four gradients for each conjugate
    site and pair. The belief's matrix takes \(D^2\) numbers.

    Args:
        learning_rate: ρ, a number, a schedule of steps, or `Annealed`; where None 0.3 for a hundred
            steps, which forget the start, and then 3/(t − 90), which averages the noise of draws and batches.
        pairs: antithetic pairs of draws a step.

    Returns:
        The algorithm. `evidence` of its posterior is the bound, over 256 draws.

    Raises:
        TypeError: (when it runs) for a model that is not of `lamu.from_numpyro`.
        ValueError: for fewer than one pair.

    Source: Khan & Lin (2017), "Conjugate-computation variational inference", algorithm 1; Khan & Rue (2021), section
    5.4; Lin, Schmidt & Khan (2020) for the retraction.

    Examples:
        >>> import jax.numpy as jnp, lamu, numpyro, numpyro.distributions as dist
        >>> def program(y):
        ...     p = numpyro.sample("p", dist.Beta(1.0, 1.0))
        ...     with numpyro.plate("rows", len(y)):
        ...         numpyro.sample("y", dist.Bernoulli(p), obs=y)
        >>> target = lamu.from_numpyro(program, {"y": jnp.array([1.0, 1.0, 0.0, 1.0])}, rows="rows")
        >>> posterior = lamu.fit(target, None, lamu.algorithms.cvi(), steps=100).posterior
        >>> round(float(posterior.mean["network"]["p"]), 3)
        0.667
    """
    if pairs < 1:
        raise ValueError(f"pairs={pairs!r} cannot be averaged; ask for at least one")
    from lamu.natural_rule.program_messages import ProgramMessages  # NumPyro is imported where a program is used
    from lamu.natural_rule.program_parameters import ProgramParameters

    chosen = PolynomialDecay(delay=10.0, scale=3.0, hold=100.0) if learning_rate is None else learning_rate
    return NaturalRule(ProgramParameters(), ProgramMessages(pairs), rate(chosen), Retraction())
