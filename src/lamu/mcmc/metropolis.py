"""Random-walk Metropolis–Hastings: a normal step around where the chain is, and a test."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.mcmc.chains import Chains, require_lengths
from lamu.mcmc.kernel import Chain, Kernel, metropolis
from lamu.mcmc.log_target import LogTarget
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["RandomWalk", "random_walk"]


@record
class RandomWalk(Kernel):
    """The kernel of `random_walk`."""

    geometry = "random walk"

    def begin(self, position: Params, target: LogTarget) -> Chain:
        # Returns a chain without a gradient.
        return Chain(position, target(position))

    def move(
        self, key: RandomKey, chain: Chain, target: LogTarget, step_size: Array, inverse_mass: Array, warming: Any
    ) -> tuple[Chain, dict[str, Any]]:
        noise_key, accept_key = jax.random.split(key)
        vector, unravel = tree.ravel(chain.position)
        noise = jnp.sqrt(inverse_mass) * jax.random.normal(noise_key, vector.shape, vector.dtype)
        proposal = self.begin(unravel(vector + step_size * noise), target)
        chain, probability = metropolis(accept_key, proposal.log_density - chain.log_density, proposal, chain)
        return chain, {"acceptance": probability}


def random_walk(
    chains: int = 4,
    warmup: int = 1000,
    draws: int = 1000,
    target_acceptance: float = 0.3,
    step_size: Any = None,
    start: Any = None,
    thinning: int = 10,
) -> Chains:
    r"""Random-walk Metropolis–Hastings on all the data: no gradient, and no bias.

    Draws from \(\pi(\theta) \propto \exp(-\ell(\theta)/T)\), by proposals that are accepted or not:

    \[ \theta' = \theta + \eta M^{-1/2} z, \quad z \sim N(0, I), \qquad
       \text{accept with probability } \min(1, \pi(\theta')/\pi(\theta)) \]

    The warm-up learns η by dual averaging and a diagonal M⁻¹ (the variances) in Stan's windows, for every chain by
    itself. One loss over all the data a transition and chain, and no gradient; an independent draw of D parameters
    takes at least some five D transitions, which is why one in ten is kept: this is for few parameters, and for
    densities without a gradient.

    Departures from the rule: it is no row of the rule; it makes the answer that the rule's rows approximate.

    Args:
        chains: how many chains, run side by side.
        warmup: how many transitions adapt and are dropped.
        draws: how many draws are kept, for each chain.
        target_acceptance: the acceptance that the step size aims at; 0.234 is best in many dimensions, 0.44 in one.
        step_size: η, held, with M = 1; None where the warm-up learns both.
        start: a posterior from whose draws the chains start, or parameters `{"network", "likelihood"}` where all of
            them start; None for the model's own start.
        thinning: how many transitions a kept draw takes; the others are never held.

    Returns:
        The sampler.

    Raises:
        ValueError: for fewer than one chain or draw, a negative warm-up, a rate outside (0, 1), or a step that is not
            positive.
        ModuleNotFoundError: where the step size is learned without the extra: `pip install "lamu[mcmc]"`.

    Source: Metropolis et al. (1953), Hastings (1970); the rate: Roberts, Gelman & Gilks (1997).

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> density = lamu.LogDensity(lambda theta: -jnp.abs(theta), 0.0)
        >>> sampler = lamu.mcmc.random_walk(chains=2, warmup=0, draws=50, step_size=2.0)
        >>> fit = lamu.fit(density, None, sampler)
        >>> fit.posterior.samples["network"].shape
        (2, 50)
    """
    require_lengths(chains, warmup, draws, target_acceptance, step_size, thinning)
    return Chains(RandomWalk(), chains, warmup, draws, float(target_acceptance), step_size, start, thinning)
