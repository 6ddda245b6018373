"""Chains side by side, moved by any kernel: starts, warm-up, and the draws that are kept, once for all samplers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.mcmc.collect import posterior_from_draws
from lamu.mcmc.init import started
from lamu.mcmc.kernel import TransitionInfo
from lamu.mcmc.log_target import LogTarget
from lamu.mcmc.rounding import rounding_complaints
from lamu.mcmc.warm_up import Adaptation, schedule
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.protocol import Choices, Info, Runnable, Traits
from lamu.record import record, static
from lamu.typing import RandomKey

__all__ = ["Chains", "ChainsState", "require_blackjax", "require_lengths"]


@record
class ChainsState:
    """The chains, and what the warm-up has learned; every leaf has a leading axis of chains but the count."""

    count: Any  # transitions made
    chains: Any  # where every chain is
    adaptation: Any  # what every chain has learned; None where the step size is held
    network_state: Any  # the network's state, the same for all


@record
class Chains(Runnable):
    """The sampler that `random_walk`, `mala`, `ula`, `hmc`, `nuts` and `minibatch_mh` make."""

    kernel: Any  # how a chain moves
    chains: int = static(default=4)  # the number of chains
    warmup: int = static(default=1000)  # transitions that are dropped, and adapt where the step size is not held
    draws: int = static(default=1000)  # draws that are kept, for each chain
    target_acceptance: float = static(default=0.8)  # what the step size is adapted to
    step_size: Any = None  # a step size that is held, with unit masses; None for one that the warm-up learns
    start: Any = None  # a posterior from whose draws the chains start, or parameters; None for the model's own start
    thinning: int = static(default=1)  # transitions a kept draw

    @property
    def traits(self) -> Traits:
        # All the data at every step; its own length; the chains as runs.
        return Traits(
            batching="full",
            length=self.warmup + self.draws * self.thinning,
            warmup=self.warmup,
            thinning=self.thinning,
            runs=self.chains,
            shared=("count", "network_state"),
        )

    @property
    def choices(self) -> Choices:
        # What is sampled, and how: no row of the rule.
        return Choices("draws", "none: it samples", "none", geometry=self.kernel.geometry)

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> ChainsState:
        # Returns every chain at a start of its own.
        params, network_state = objective.model.init(key, batch)
        target = LogTarget.of(objective, batch, network_state, params, self._gradients)
        # Warm-ups keep their books in JAX's default float, so the chains must run in it, whatever the data are in.
        dtype = jnp.result_type(float)

        def begin(key: RandomKey) -> Any:
            position, _ = started(key, self.start, objective, batch)
            return self.kernel.begin(jax.tree.map(lambda leaf: leaf.astype(dtype), position), target)

        chains = jax.vmap(begin)(jax.random.split(jax.random.fold_in(key, 1), self.chains))
        adaptation = None
        if self.step_size is None:
            one = Adaptation.begin(tree.dimension(params), self.target_acceptance)
            adaptation = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.chains, *jnp.shape(leaf))), one)
        return ChainsState(jnp.zeros((), jnp.int32), chains, adaptation, network_state)

    def step(self, key: RandomKey, state: ChainsState, batch: Batch, objective: Objective) -> tuple[ChainsState, Info]:
        # Returns every chain after one transition; the draw is the chains' new positions, with their statistics.
        one = jax.tree.map(lambda leaf: leaf[0], state.chains.position)
        target = LogTarget.of(objective, batch, state.network_state, one, self._gradients)
        keys = jax.random.split(key, self.chains)
        if state.adaptation is None:
            chains, adaptation, statistics = jax.vmap(lambda k, c: self._held(k, c, target))(keys, state.chains)
        else:
            plan = schedule(self.warmup)
            now = plan[jnp.minimum(state.count, plan.shape[0] - 1)]
            move = lambda k, c, a: self._adapted(k, c, a, target, state.count < self.warmup, now)
            chains, adaptation, statistics = jax.vmap(move)(keys, state.chains, state.adaptation)
        loss = -jnp.mean(chains.log_density) / objective.concentration
        drawn = TransitionInfo(chains.position, {"log_density": chains.log_density, **statistics})
        return ChainsState(state.count + 1, chains, adaptation, state.network_state), Info(loss=loss, draw=drawn)

    def posterior(self, key: RandomKey, state: ChainsState, objective: Objective, data: Any, trace: Any) -> Posterior:
        # Returns the draws as a belief, leaves `[chains, draws, ...]`.
        last = state.chains.position if trace is None else jax.tree.map(lambda leaf: leaf[-1], trace).position
        known = rounding_complaints(
            jax.random.fold_in(jax.random.clone(key), 5), objective, state.network_state, last, data
        )
        return posterior_from_draws(key, objective, state.network_state, trace, known)

    def complaint(self, state: ChainsState) -> str:
        # Returns what it means that the loss is not finite.
        bad = [i for i, value in enumerate(state.chains.log_density) if not bool(jnp.isfinite(value))]
        where = f"the log density is not finite where chains {bad} are" if bad else "the log density left the numbers"
        return f"{where}; start the chains where it is (the density's init, the model's start, or start=)"

    @property
    def _gradients(self) -> int:
        """How many are taken side by side."""
        return self.chains * self.kernel.replicas

    def _held(self, key: RandomKey, chain: Any, target: LogTarget) -> tuple[Any, None, dict[str, Any]]:
        size = jnp.asarray(self.step_size, jnp.result_type(float))
        ones = jnp.ones(tree.dimension(chain.position), jnp.result_type(float))
        chain, statistics = self.kernel.move(key, chain, target, size, ones, False)
        return chain, None, statistics

    def _adapted(
        self, key: RandomKey, chain: Any, adaptation: Adaptation, target: LogTarget, warming: Any, now: Any
    ) -> tuple[Any, Adaptation, dict[str, Any]]:
        size, inverse_mass = adaptation.size(warming), adaptation.mass.inverse_mass_matrix
        chain, statistics = self.kernel.move(key, chain, target, size, inverse_mass, warming)
        learn = lambda known: known.after(
            now[0], now[1], self.target_acceptance, statistics["acceptance"], chain.position
        )
        # A branch, which is the same for all chains: what the draws' own stage would not use is not computed there.
        return chain, jax.lax.cond(warming, learn, lambda known: known, adaptation), statistics


def require_lengths(
    chains: int,
    warmup: int,
    draws: int,
    target_acceptance: float | None = None,
    step_size: Any = None,
    thinning: int = 1,
) -> None:
    """Raises where a sampler's arguments are not possible, or need an extra that is not there."""
    lengths = (("chains", chains, 1), ("warmup", warmup, 0), ("draws", draws, 1), ("thinning", thinning, 1))
    for name, value, least in lengths:
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{name}={value!r} is not possible; give a whole number of at least {least}")
    if target_acceptance is not None and not 0 < target_acceptance < 1:
        raise ValueError(f"target_acceptance={target_acceptance!r} is no rate; give a number between 0 and 1")
    if isinstance(step_size, int | float) and not step_size > 0:
        raise ValueError(f"step_size={step_size!r} moves nowhere; give a positive number, or None to learn it")
    if step_size is None:
        require_blackjax("the warm-up", ", or give step_size")


def require_blackjax(part: str, instead: str = "") -> None:
    """Raises where BlackJAX is not installed, with what to run."""
    from importlib.util import find_spec

    if find_spec("blackjax") is None:
        raise ModuleNotFoundError(
            f'{part} needs BlackJAX, which is not installed; run pip install "lamu[mcmc]"{instead}'
        )
