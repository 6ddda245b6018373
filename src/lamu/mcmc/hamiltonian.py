"""Hamiltonian Monte Carlo: leapfrog paths of random length, and a test of the energy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import require, whole_number
from lamu.base.compile_once import lenient
from lamu.mcmc.chains import Chain, Chains, Kernel, LogTarget, chains_of, metropolis, require_blackjax
from lamu.protocol import recipe
from lamu.record import record, static
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Hamiltonian", "NoUTurn", "Phase", "hmc", "leapfrog", "nuts"]


_DIVERGENT = 1000.0  # nats, Stan's and BlackJAX's


@record
class Phase:
    """A point of a path."""

    position: Array  # θ, `[parameters]`
    momentum: Array  # p, `[parameters]`
    log_density: Array  # the log of the target at θ, in nats
    gradient: Array

    def energy(self, inverse_mass: Array) -> Array:
        r"""Returns \(-\log\pi(\theta) + \tfrac12 p^\top M^{-1} p\) in nats, a scalar."""
        return -self.log_density + 0.5 * jnp.sum(inverse_mass * self.momentum**2)


def leapfrog(
    log_density: Callable[[Array], Array], start: Phase, step_size: Number, inverse_mass: Array, steps: Number
) -> Phase:
    """Returns the end of a path of leapfrog steps; one gradient a step."""
    # \[ p \leftarrow p + \tfrac\eta2 \nabla\log\pi(\theta), \qquad \theta \leftarrow \theta + \eta M^{-1} p, \qquad
    #    p \leftarrow p + \tfrac\eta2 \nabla\log\pi(\theta) \]
    #
    # It preserves volumes, is its own inverse with the momentum negated, and has an energy error of O(η²) over a path.

    def one(_: Array, phase: Phase) -> Phase:
        half = phase.momentum + 0.5 * step_size * phase.gradient
        position = phase.position + step_size * inverse_mass * half
        value, gradient = jax.value_and_grad(log_density)(position)
        return Phase(position, half + 0.5 * step_size * gradient, value, gradient)

    return jax.lax.fori_loop(0, steps, one, start)


@record
class Hamiltonian(Kernel):
    """The kernel of `hmc`."""

    path_length: Number = math.pi  # the longest path, in standard deviations of the target as given by the masses
    most: int = static(default=256)  # the largest number of leapfrog steps of a path

    geometry = "Hamiltonian paths of random length"

    def begin(self, position: Params, target: LogTarget) -> Chain:
        return Chain.at(position, target)

    def move(
        self, key: RandomKey, chain: Chain, target: LogTarget, step_size: Array, inverse_mass: Array, warming: Number
    ) -> tuple[Chain, dict[str, Array]]:
        # A separate key for the length, besides those of the momentum and the test.
        longest = jax.random.uniform(jax.random.fold_in(jax.random.clone(key), 2), dtype=step_size.dtype)
        momentum_key, accept_key = jax.random.split(key)
        vector, unravel = tree.ravel(chain.position)
        momentum = jax.random.normal(momentum_key, vector.shape, vector.dtype) / jnp.sqrt(inverse_mass)
        steps = jnp.clip(jnp.ceil(longest * self.path_length / step_size), 1, self.most).astype(jnp.int32)
        start = Phase(vector, momentum, chain.log_density, chain.gradient)
        end = leapfrog(lambda v: target(unravel(v)), start, step_size, inverse_mass, steps)
        error = end.energy(inverse_mass) - start.energy(inverse_mass)
        error = jnp.where(jnp.isfinite(error), error, jnp.inf)
        proposal = Chain(unravel(end.position), end.log_density, end.gradient)
        chain, probability = metropolis(accept_key, -error, proposal, chain)
        return chain, {
            "acceptance": probability,
            "energy": start.energy(inverse_mass),
            "energy_error": error,
            "divergent": error > _DIVERGENT,
            "gradients": steps,
        }


@recipe("Duane et al. 1987, Neal 2011", lambda: Chains(Hamiltonian()).choices)
def hmc(
    chains: int = 4,
    warmup: int = 1000,
    draws: int = 1000,
    path_length: Number = math.pi,
    target_acceptance: float = 0.8,
    step_size: Number | None = None,
    most: int = 256,
    start: Params = None,
) -> Chains:
    r"""Hamiltonian Monte Carlo on all the data, with paths of random length.

    Draws from \(\pi(\theta) \propto \exp(-\ell(\theta)/T)\) over all free parameters. A transition draws a momentum
    \(p \sim N(0, M)\) and a length \(\tau \sim U(0, \tau_{\max})\), follows \(\lceil\tau/\eta\rceil\) leapfrog steps of

    \[ H(\theta, p) = -\log\pi(\theta) + \tfrac12 p^\top M^{-1} p, \]

    and accepts the end with probability \(\min(1, e^{-\Delta H})\). The warm-up learns η by dual averaging and a
    diagonal M⁻¹ (the variances) in Stan's windows, separately for every chain; the random length avoids resonance of a
    direction with the path. It takes on average π/(2η) gradients of all the data a transition and chain. The energy
    error ΔH of every transition is in `posterior.belief.statistics["energy_error"]`, in nats.

    Departures from the rule: it is not an instance of the rule; it samples the distribution that the rule approximates.

    Args:
        chains: the number of parallel chains.
        warmup: the number of transitions for adaptation, which are dropped.
        draws: the number of kept transitions of each chain.
        path_length: τ_max, in standard deviations of the target (once the masses are learned); π is half a turn of a
            Gaussian. With paths of a single step it is MALA.
        target_acceptance: the acceptance to which the step size is adapted; nearer to one where paths diverge.
        step_size: a fixed η, with M = 1; None to learn both in the warm-up.
        most: the largest number of leapfrog steps of a path.
        start: a posterior, from whose draws the chains start, or parameters `{"network", "likelihood"}` where all of
            them start; None for the model's initial parameters.

    Returns:
        The sampler.

    Raises:
        ValueError: for fewer than one chain, draw or step, a negative warm-up, a rate outside (0, 1), or a length or
            step that is not positive.
        ModuleNotFoundError: where the step size is learned without the extra: `pip install "lamu[mcmc]"`.

    Source: Duane et al. (1987); Neal (2011), with the random length of section 5.4.3.2 there.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), lamu.mcmc.hmc(chains=2, warmup=50, draws=50))
        >>> fit.posterior.belief.statistics["energy_error"].shape
        (2, 50)
    """
    require(path_length > 0, f"path_length={path_length!r} must be positive, for instance 3.14")
    most = whole_number("most", most)
    return chains_of(Hamiltonian(path_length, most), chains, warmup, draws, target_acceptance, step_size, start)


@record
class NoUTurn(Kernel):
    """The kernel of `nuts`."""

    geometry = "Hamiltonian paths"

    def begin(self, position: Params, target: LogTarget) -> Chain:
        # Returns a chain with its gradient, a tree like the position.
        return Chain(position, *jax.value_and_grad(target)(position))

    def move(
        self, key: RandomKey, chain: Chain, target: LogTarget, step_size: Array, inverse_mass: Array, warming: Number
    ) -> tuple[Chain, dict[str, Array]]:
        from blackjax.mcmc import nuts as kernel
        from blackjax.mcmc.hmc import HMCState

        transition: Any = kernel.build_kernel()
        # As one vector: the kernel works leaf by leaf, and for a small target its operations cost more than the
        # gradient.
        vector, unravel = tree.ravel(chain.position)
        parts: Any = vector, chain.log_density, tree.ravel(chain.gradient)[0]
        of_vector = lambda vector: target(unravel(vector))
        with lenient():
            # As raw bits: the kernel selects between keys, which JAX's check for reused keys counts as a use.
            state, info = transition(jax.random.key_data(key), HMCState(*parts), of_vector, step_size, inverse_mass)
        return Chain(unravel(state.position), state.logdensity, unravel(state.logdensity_grad)), {
            "acceptance": info.acceptance_rate,
            "energy": info.energy,
            "divergent": info.is_divergent,
            "gradients": info.num_integration_steps,
        }


@recipe("Hoffman & Gelman 2014; BlackJAX's kernel", lambda: Chains(NoUTurn()).choices)
def nuts(
    chains: int = 4, warmup: int = 1000, draws: int = 1000, target_acceptance: float = 0.8, start: Params = None
) -> Chains:
    r"""The no-U-turn sampler on all the data, for reference answers.

    Draws from \(\exp(-\ell(\theta)/T)\) over all free parameters, dispersions included. Each transition doubles a
    leapfrog path until it turns back and picks one of its states (Betancourt's multinomial variant); the warm-up adapts
    the step size by dual averaging and a diagonal mass matrix in Stan's windows, separately for every chain. It takes
    up to 1,023 gradients of all the data a transition and chain. The network must have no state that training changes.

    Departures from the rule: it is not an instance of the rule; it samples the distribution that the rule approximates.

    Args:
        chains: the number of parallel chains.
        warmup: the number of transitions for adaptation, which are dropped.
        draws: the number of kept transitions of each chain.
        target_acceptance: the acceptance rate to which the step size is adapted.
        start: a posterior, from whose draws the chains start, or parameters `{"network", "likelihood"}` where all of
            them start; None for the model's initial parameters.

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
    return chains_of(NoUTurn(), chains, warmup, draws, target_acceptance, None, start)
