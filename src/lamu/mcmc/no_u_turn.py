"""NUTS: Hamiltonian Monte Carlo that chooses its own path length, with BlackJAX's kernel and Stan's warm-up."""

from __future__ import annotations

from typing import Any

import jax

from lamu.dtype_policy import lenient
from lamu.mcmc.chains import Chains, require_blackjax, require_lengths
from lamu.mcmc.kernel import Chain, Kernel
from lamu.mcmc.log_target import LogTarget
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["NoUTurn", "nuts"]


@record
class NoUTurn(Kernel):
    """The kernel of `nuts`."""

    geometry = "Hamiltonian paths"

    def begin(self, position: Params, target: LogTarget) -> Chain:
        # Returns a chain with its gradient, a tree like the position.
        return Chain(position, *jax.value_and_grad(target)(position))

    def move(
        self, key: RandomKey, chain: Chain, target: LogTarget, step_size: Array, inverse_mass: Array, warming: Any
    ) -> tuple[Chain, dict[str, Any]]:
        from blackjax.mcmc import nuts as kernel
        from blackjax.mcmc.hmc import HMCState

        transition: Any = kernel.build_kernel()
        state: Any = HMCState(chain.position, chain.log_density, chain.gradient)
        with lenient():
            # As bare bits: the kernel selects between keys, which JAX's check for reused keys takes for a use.
            state, info = transition(jax.random.key_data(key), state, target, step_size, inverse_mass)
        return Chain(state.position, state.logdensity, state.logdensity_grad), {
            "acceptance": info.acceptance_rate,
            "energy": info.energy,
            "divergent": info.is_divergent,
            "gradients": info.num_integration_steps,
        }


def nuts(
    chains: int = 4, warmup: int = 1000, draws: int = 1000, target_acceptance: float = 0.8, start: Any = None
) -> Chains:
    r"""The no-U-turn sampler on all the data, for reference answers.

    Draws from \(\exp(-\ell(\theta)/T)\) over all free parameters, dispersions included. Each transition doubles a
    leapfrog path until it turns back and picks one of its states (Betancourt's multinomial variant); the warm-up adapts
    the step size by dual averaging and a diagonal mass matrix in Stan's windows, for every chain by itself. Up to 1,023
    gradients of the whole data a transition and chain. The network must have no state that training changes.

    Departures from the rule: it is no row of the rule; it makes the answer that the rule's rows approximate.

    Args:
        chains: how many chains, run side by side.
        warmup: how many transitions adapt and are dropped.
        draws: how many transitions are kept, for each chain.
        target_acceptance: the acceptance rate that the step size aims at.
        start: a posterior from whose draws the chains start, or parameters `{"network", "likelihood"}` where all of
            them start; None for the model's own start.

    Returns:
        The sampler.

    Raises:
        ValueError: for fewer than one chain or draw, a negative warm-up, or a rate outside (0, 1).
        ModuleNotFoundError: without the extra: `pip install "lamu[mcmc]"`.

    Source: Hoffman & Gelman (2014); Betancourt (2018); the kernel is BlackJAX's.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), lamu.mcmc.nuts(chains=2, warmup=50, draws=50))
        >>> fit.posterior.samples["likelihood"]["log_scale"].shape
        (2, 50, 1)
    """
    require_blackjax("nuts")  # with or without a warm-up: the kernel is its
    require_lengths(chains, warmup, draws, target_acceptance)
    return Chains(NoUTurn(), chains, warmup, draws, float(target_acceptance), None, start)
