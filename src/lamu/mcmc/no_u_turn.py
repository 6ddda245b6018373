"""NUTS: Hamiltonian Monte Carlo that chooses its own path length, with BlackJAX's kernel and Stan's warm-up."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.data.batch import Batch
from lamu.families import Draws
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.promotion import lenient
from lamu.protocol import Choices, Info, Traits
from lamu.record import record, static
from lamu.typing import RandomKey

__all__ = ["Nuts", "NutsState", "nuts"]


@record
class NutsState:
    """The chains, and what the warm-up has learned; every leaf has a leading axis of chains but the count.

    Attributes:
        count: transitions made.
        chains: BlackJAX's state of every chain.
        step_size: BlackJAX's dual-averaging state.
        mass: BlackJAX's mass-matrix state.
        network_state: the network's state, the same for all.

    Examples:
        >>> from lamu.mcmc.no_u_turn import NutsState
        >>> NutsState(count=0, chains=None, step_size=None, mass=None, network_state={}).count
        0
    """

    count: Any
    chains: Any
    step_size: Any
    mass: Any
    network_state: Any


@record
class Nuts:
    """The sampler that `nuts` makes.

    Attributes:
        chains: the number of chains.
        warmup: transitions that adapt and are dropped.
        draws: transitions that are kept, for each chain.
        target_acceptance: what the step size is adapted to.

    Examples:
        >>> import lamu
        >>> lamu.mcmc.nuts(warmup=100, draws=200).traits.length
        300
    """

    chains: int = static(default=4)
    warmup: int = static(default=1000)
    draws: int = static(default=1000)
    target_acceptance: float = static(default=0.8)

    @property
    def traits(self) -> Traits:
        """All the data at every step; its own length."""
        return Traits(batching="full", length=self.warmup + self.draws, warmup=self.warmup)

    @property
    def choices(self) -> Choices:
        """What is sampled, and how: no row of the rule."""
        return Choices("draws", "none: it samples", "none", geometry="Hamiltonian paths")

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> NutsState:
        """Returns every chain at its own initial parameters."""
        from blackjax.mcmc import nuts as kernel

        params, network_state = objective.model.init(key, batch)
        density = _density(objective, batch, network_state)
        # The kernel keeps its books in JAX's default float, so the chains must run in it, whatever the data are in.
        dtype = jnp.result_type(float)

        def start(key: RandomKey) -> Any:
            position, _ = objective.model.init(key, batch)
            return kernel.init(jax.tree.map(lambda leaf: leaf.astype(dtype), position), density)

        with lenient():
            chains = jax.vmap(start)(jax.random.split(jax.random.fold_in(key, 1), self.chains))
            step_init, mass_init = self._step_size()[0], _mass()[0]
            size = sum(jnp.size(leaf) for leaf in jax.tree.leaves(params))
            repeat = lambda leaf: jnp.broadcast_to(leaf, (self.chains, *jnp.shape(leaf)))
            step_size = jax.tree.map(repeat, step_init(1.0))
            mass = jax.tree.map(repeat, mass_init(size))
        step_size, mass = jax.tree.map(lambda leaf: _floating(leaf, dtype), (step_size, mass))
        return NutsState(jnp.zeros((), jnp.int32), chains, step_size, mass, network_state)

    def step(self, key: RandomKey, state: NutsState, batch: Batch, objective: Objective) -> tuple[NutsState, Info]:
        """Returns every chain after one transition; the draw is the chains' new positions."""
        from blackjax.adaptation.staged_adaptation import build_schedule
        from blackjax.mcmc import nuts as kernel

        transition: Any = kernel.build_kernel()
        density = _density(objective, batch, state.network_state)
        _, step_update, step_final = self._step_size()
        step_init = self._step_size()[0]
        _, mass_update, mass_final = _mass()
        with lenient():
            schedule = jnp.asarray(build_schedule(self.warmup) if self.warmup else [[0, 0]], jnp.int32)
        warming = state.count < self.warmup
        stage, window_ends = schedule[jnp.minimum(state.count, schedule.shape[0] - 1)]

        def move(key: RandomKey, chain: Any, step_size: Any, mass: Any) -> tuple[Any, Any, Any, Any]:
            size = jnp.exp(jnp.where(warming, step_size.log_step_size, step_size.log_step_size_avg))
            # As bare bits: the kernel selects between keys, which JAX's check for reused keys takes for a use.
            chain, info = transition(jax.random.key_data(key), chain, density, size, mass.inverse_mass_matrix)
            adapted = step_update(step_size, info.acceptance_rate)
            gathered = _where(stage == 1, mass_update(mass, chain.position), mass)
            finished = mass_final(gathered)
            restarted = step_init(step_final(adapted))
            adapted = _where(window_ends == 1, restarted, adapted)
            gathered = _where(window_ends == 1, finished, gathered)
            return chain, _where(warming, adapted, step_size), _where(warming, gathered, mass), info

        with lenient():
            keys = jax.random.split(key, self.chains)
            chains, step_size, mass, _ = jax.vmap(move)(keys, state.chains, state.step_size, state.mass)
        loss = -jnp.mean(chains.logdensity) / objective.concentration
        new = NutsState(state.count + 1, chains, step_size, mass, state.network_state)
        return new, Info(loss=loss, draw=chains.position)

    def posterior(self, key: RandomKey, state: NutsState, objective: Objective, data: Any, trace: Any) -> Posterior:
        """Returns the draws as a belief, leaves `[chains, draws, ...]`."""
        if trace is None:
            raise ValueError("a sampler's posterior is its draws, and none were collected; pass them as trace")
        samples = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), trace)
        return Posterior(objective.model, Draws(samples), state.network_state, Sampled(), key)

    def _step_size(self) -> Any:
        from blackjax.adaptation.step_size import dual_averaging_adaptation

        return dual_averaging_adaptation(self.target_acceptance)


def nuts(chains: int = 4, warmup: int = 1000, draws: int = 1000, target_acceptance: float = 0.8) -> Nuts:
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
    for name, value, least in (("chains", chains, 1), ("warmup", warmup, 0), ("draws", draws, 1)):
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{name}={value!r} is not possible; give a whole number of at least {least}")
    if not 0 < target_acceptance < 1:
        raise ValueError(f"target_acceptance={target_acceptance!r} is no rate; give a number between 0 and 1")
    from importlib.util import find_spec

    if find_spec("blackjax") is None:
        raise ModuleNotFoundError('nuts() needs BlackJAX, which is not installed; run pip install "lamu[mcmc]"')
    return Nuts(chains=chains, warmup=warmup, draws=draws, target_acceptance=float(target_acceptance))


def _mass() -> Any:
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation

    return mass_matrix_adaptation(is_diagonal_matrix=True)


def _density(objective: Objective, batch: Batch, network_state: Any) -> Any:
    return lambda params: objective.log_target(params, batch, network_state).astype(jnp.result_type(float))


def _where(condition: Any, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b).astype(jnp.result_type(b)), new, old)


def _floating(leaf: Any, dtype: Any) -> Any:
    # Both branches of the adaptation must have the state's dtypes from the first step on, or a scan would refuse it.
    return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf.astype(jnp.int32)
