"""Random-walk Metropolis–Hastings and Langevin samplers on all the data."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.mcmc.chains import Chain, Chains, Kernel, LogTarget, chains_of, metropolis
from lamu.protocol import recipe
from lamu.record import record, static
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Langevin", "RandomWalk", "mala", "random_walk", "ula"]


@record
class RandomWalk(Kernel):
    """The kernel of `random_walk`."""

    geometry = "random walk"

    def move(
        self, key: RandomKey, chain: Chain, target: LogTarget, step_size: Array, inverse_mass: Array, warming: Number
    ) -> tuple[Chain, dict[str, Array]]:
        noise_key, accept_key = jax.random.split(key)
        vector, unravel = tree.ravel(chain.position)
        noise = jnp.sqrt(inverse_mass) * jax.random.normal(noise_key, vector.shape, vector.dtype)
        proposal = self.begin(unravel(vector + step_size * noise), target)
        chain, probability = metropolis(accept_key, proposal.log_density - chain.log_density, proposal, chain)
        return chain, {"acceptance": probability}


@recipe("Metropolis et al. 1953, Hastings 1970", lambda: Chains(RandomWalk()).choices)
def random_walk(
    chains: int = 4,
    warmup: int = 1000,
    draws: int = 1000,
    target_acceptance: float = 0.3,
    step_size: Number | None = None,
    start: Params = None,
    thinning: int = 10,
) -> Chains:
    r"""Random-walk Metropolis–Hastings on all the data, without gradients and without bias.

    Draws from \(\pi(\theta) \propto \exp(-\ell(\theta)/T)\) by accepting or rejecting proposals:

    \[ \theta' = \theta + \eta M^{-1/2} z, \quad z \sim N(0, I), \qquad
       \text{accept with probability } \min(1, \pi(\theta')/\pi(\theta)) \]

    The warm-up learns η by dual averaging and a diagonal M⁻¹ (the variances) in Stan's windows, separately for every
    chain. It takes one loss over all the data a transition and chain, and no gradient. An independent draw of D
    parameters takes at least some five D transitions, so by default one draw in ten is kept: use it for few parameters,
    and for densities without a gradient.

    Departures from the rule: it is not an instance of the rule; it samples the distribution that the rule approximates.

    Args:
        chains: the number of parallel chains.
        warmup: the number of transitions for adaptation, which are dropped.
        draws: the number of kept draws of each chain.
        target_acceptance: the acceptance to which the step size is adapted; 0.234 is best in many dimensions, 0.44 in
            one.
        step_size: a fixed η, with M = 1; None to learn both in the warm-up.
        start: a posterior, from whose draws the chains start, or parameters `{"network", "likelihood"}` where all of
            them start; None for the model's initial parameters.
        thinning: the number of transitions a kept draw; other draws are never stored.

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
    return chains_of(RandomWalk(), chains, warmup, draws, target_acceptance, step_size, start, thinning)


@record
class Langevin(Kernel):
    """The kernel of `mala` and `ula`."""

    # Whether proposals are tested; if not, each is taken, and the acceptance is that of a test.
    adjusted: bool = static(default=True)

    @property
    def geometry(self) -> str:
        """A description of the moves."""
        return "Langevin steps" if self.adjusted else "Langevin steps, unadjusted"

    def begin(self, position: Params, target: LogTarget) -> Chain:
        return Chain.at(position, target)

    def move(
        self, key: RandomKey, chain: Chain, target: LogTarget, step_size: Array, inverse_mass: Array, warming: Number
    ) -> tuple[Chain, dict[str, Array]]:
        noise_key, accept_key = jax.random.split(key)
        vector, unravel = tree.ravel(chain.position)
        noise = jax.random.normal(noise_key, vector.shape, vector.dtype)
        drift = lambda chain: 0.5 * step_size**2 * inverse_mass * chain.gradient
        there = vector + drift(chain) + step_size * jnp.sqrt(inverse_mass) * noise
        proposal = self.begin(unravel(there), target)

        def log_proposal(new: Array, old: Array, chain: Chain) -> Array:
            return -0.5 * jnp.sum((new - old - drift(chain)) ** 2 / inverse_mass) / step_size**2

        log_ratio = (
            proposal.log_density
            - chain.log_density
            + log_proposal(vector, there, proposal)
            - log_proposal(there, vector, chain)
        )
        tested, probability = metropolis(accept_key, log_ratio, proposal, chain)
        if not self.adjusted:  # except in the warm-up, where initial step sizes are too large without a test
            tested = jax.tree.map(lambda a, b: jnp.where(warming, a, b), tested, proposal)
        return tested, {"acceptance": probability}


@recipe("Roberts & Tweedie 1996", lambda: Chains(Langevin()).choices)
def mala(
    chains: int = 4,
    warmup: int = 1000,
    draws: int = 1000,
    target_acceptance: float = 0.6,
    step_size: Number | None = None,
    start: Params = None,
) -> Chains:
    r"""The Metropolis-adjusted Langevin algorithm (MALA) on all the data.

    Draws from \(\pi(\theta) \propto \exp(-\ell(\theta)/T)\) by accepting or rejecting proposals:

    \[ \theta' = \theta + \tfrac{\eta^2}{2} M^{-1} \nabla\log\pi(\theta) + \eta M^{-1/2} z, \qquad
       \text{accept with probability } \min\Bigl(1, \frac{\pi(\theta')\,q(\theta|\theta')}
       {\pi(\theta)\,q(\theta'|\theta)}\Bigr) \]

    η is that of a leapfrog step: the transition is that of `hmc` with one step (others write ε = η²/2). The warm-up
    learns η by dual averaging and a diagonal M⁻¹ (the variances) in Stan's windows, separately for every chain. It
    takes one gradient of all the data a transition and chain; the rejection rate falls as η³.

    Departures from the rule: it is not an instance of the rule; it samples the distribution that the rule approximates.

    Args:
        chains: the number of parallel chains.
        warmup: the number of transitions for adaptation, which are dropped.
        draws: the number of kept transitions of each chain.
        target_acceptance: the acceptance to which the step size is adapted; 0.574 is best in many dimensions.
        step_size: a fixed η, with M = 1; None to learn both in the warm-up.
        start: a posterior, from whose draws the chains start, or parameters `{"network", "likelihood"}` where all of
            them start; None for the model's initial parameters.

    Returns:
        The sampler.

    Raises:
        ValueError: for fewer than one chain or draw, a negative warm-up, a rate outside (0, 1), or a step that is not
            positive.
        ModuleNotFoundError: where the step size is learned without the extra: `pip install "lamu[mcmc]"`.

    Source: Besag (1994); Roberts & Tweedie (1996); the rate: Roberts & Rosenthal (1998).

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> density = lamu.LogDensity(lambda theta: -0.5 * theta**2, 0.0)
        >>> fit = lamu.fit(density, None, lamu.mcmc.mala(chains=2, warmup=0, draws=50, step_size=1.0))
        >>> fit.posterior.samples["network"].shape
        (2, 50)
    """
    return chains_of(Langevin(), chains, warmup, draws, target_acceptance, step_size, start)


@recipe("Parisi 1981, Roberts & Tweedie 1996", lambda: Chains(Langevin(adjusted=False)).choices)
def ula(
    chains: int = 4,
    warmup: int = 1000,
    draws: int = 1000,
    target_acceptance: float = 0.99,
    step_size: Number | None = None,
    start: Params = None,
) -> Chains:
    r"""The unadjusted Langevin algorithm (ULA) on all the data: MALA without its test, and so with a bias.

    \[ \theta \leftarrow \theta + \tfrac{\eta^2}{2} M^{-1} \nabla\log\pi(\theta) + \eta M^{-1/2} z, \qquad
       z \sim N(0, I) \]

    It draws only approximately from \(\pi(\theta) \propto \exp(-\ell(\theta)/T)\): for a Gaussian of variance σ² its
    variance is \(\sigma^2 / (1 - \eta^2 / (4 M \sigma^2))\), too large by a share of about \(\eta^2/4\) for unit σ² M,
    and for η > 2 it diverges. The warm-up finds the η at which a test would accept the given share. It takes one
    gradient of all the data a transition and chain.

    Departures from the rule: it is not an instance of the rule; stochastic-gradient Langevin dynamics are its version
    for minibatches.

    Args:
        chains: the number of parallel chains.
        warmup: the number of transitions for adaptation, which are dropped.
        draws: the number of kept transitions of each chain.
        target_acceptance: the share that a test would accept, to which the step size is adapted: nearer to one has less
            bias and is slower.
        step_size: a fixed η, with M = 1; None to learn both in the warm-up.
        start: a posterior, from whose draws the chains start, or parameters `{"network", "likelihood"}` where all of
            them start; None for the model's initial parameters.

    Returns:
        The sampler.

    Raises:
        ValueError: for fewer than one chain or draw, a negative warm-up, a rate outside (0, 1), or a step that is not
            positive.
        ModuleNotFoundError: where the step size is learned without the extra: `pip install "lamu[mcmc]"`.

    Source: Parisi (1981); Roberts & Tweedie (1996); the bias: Vempala & Wibisono (2019).

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> density = lamu.LogDensity(lambda theta: -0.5 * theta**2, 0.0)
        >>> fit = lamu.fit(density, None, lamu.mcmc.ula(chains=2, warmup=0, draws=50, step_size=0.5))
        >>> fit.posterior.samples["network"].shape
        (2, 50)
    """
    return chains_of(Langevin(adjusted=False), chains, warmup, draws, target_acceptance, step_size, start)
