"""Parallel tempering: replicas of a chain at higher temperatures, which hand it what they find."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp

from lamu.mcmc.chains import Chain, Chains, Kernel, LogTarget, chains_of
from lamu.mcmc.hamiltonian import Hamiltonian
from lamu.mcmc.subsampling import Subsampled
from lamu.protocol import recipe
from lamu.record import record, static
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Replicas", "parallel_tempering"]


@record
class Replicas(Kernel):
    """The kernel of `parallel_tempering`: any other, once a temperature, and exchanges between neighbours."""

    # A chain is its coldest replica; in the place of a gradient it carries all of them, leaves `[temperatures, ...]`.

    kernel: Kernel  # how a replica moves
    temperatures: tuple[float, ...] = static()  # as multiples of the run's own, the first of them one

    @property
    def geometry(self) -> str:
        """How it moves, in words."""
        return f"{self.kernel.geometry}, at {len(self.temperatures)} temperatures"

    @property
    def replicas(self) -> int:
        # K, how many of them a chain has, side by side.
        return len(self.temperatures)

    def begin(self, position: Params, target: LogTarget) -> Chain:
        # Returns a chain whose replicas are all in one place.
        here = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(self.temperatures), *jnp.shape(leaf))), position)
        return self._coldest(self._begun(here, target))

    def move(
        self, key: RandomKey, chain: Chain, target: LogTarget, step_size: Array, inverse_mass: Array, warming: Number
    ) -> tuple[Chain, dict[str, Array]]:
        # Returns the chain after every replica has moved and neighbours were exchanged.
        move_key, exchange_key = jax.random.split(key)

        def one(key: RandomKey, replica: Chain, temperature: Array) -> tuple[Chain, dict[str, Array]]:
            # Variances grow with the temperature, and with masses that follow them one step size suits all.
            wider = inverse_mass * temperature.astype(inverse_mass.dtype)
            return self.kernel.move(key, replica, _heated(target, temperature), step_size, wider, warming)

        keys = jax.random.split(move_key, len(self.temperatures))
        replicas, statistics = jax.vmap(one)(keys, chain.gradient, self._temperatures)
        replicas, exchanged = self.exchange(exchange_key, replicas, target)
        own = {name: values[0] for name, values in statistics.items()}
        return self._coldest(replicas), {**own, "exchange": exchanged}

    def exchange(self, key: RandomKey, replicas: Chain, target: LogTarget) -> tuple[Chain, Array]:
        """Returns the replicas after neighbours were offered each other's places, and the mean chance of that."""
        # Every second pair of neighbours, the even or the odd ones, by a coin:
        #
        # \[ \text{accept with probability } \min\Big(1,
        #    \frac{\pi_i(\theta_j)\,\pi_j(\theta_i)}{\pi_i(\theta_i)\,\pi_j(\theta_j)}\Big) \]
        count = len(self.temperatures)
        coin_key, level_key = jax.random.split(key)
        first = jax.random.bernoulli(coin_key).astype(jnp.int32) if count > 2 else jnp.zeros((), jnp.int32)
        own = jnp.arange(count, dtype=jnp.int32)
        partner = jnp.where((own - first) % 2 == 0, own + 1, own - 1)
        partner = jnp.where((partner < 0) | (partner >= count), own, partner)
        paired = partner != own
        offered = self._begun(jax.tree.map(lambda leaf: leaf[partner], replicas.position), target)
        gain = offered.log_density - replicas.log_density
        ratio = gain + gain[partner]
        chance = jnp.where(paired & ~jnp.isnan(ratio), jnp.exp(jnp.minimum(ratio, 0.0)), 0.0)
        levels = jax.random.uniform(level_key, (count,), ratio.dtype)
        accepted = levels[jnp.minimum(own, partner)] < chance  # one number for both of a pair

        def chosen(new: Array, old: Array) -> Array:
            return jnp.where(accepted.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        return jax.tree.map(chosen, offered, replicas), jnp.sum(chance) / jnp.sum(paired.astype(chance.dtype))

    @property
    def _temperatures(self) -> Array:
        return jnp.asarray(self.temperatures, jnp.result_type(float))

    def _begun(self, positions: Params, target: LogTarget) -> Chain:
        begin = lambda position, temperature: self.kernel.begin(position, _heated(target, temperature))
        return jax.vmap(begin)(positions, self._temperatures)

    def _coldest(self, replicas: Chain) -> Chain:
        position = jax.tree.map(lambda leaf: leaf[0], replicas.position)
        return Chain(position, replicas.log_density[0], replicas)


def _heated(target: LogTarget, temperature: Array) -> LogTarget:
    objective = target.objective
    return replace(target, objective=replace(objective, temperature=objective.temperature * temperature))


@recipe("Swendsen & Wang 1986, Geyer 1991", lambda: Chains(Replicas(Hamiltonian(), (1.0, 2.0, 4.0, 8.0))).choices)
def parallel_tempering(
    chains: int = 4,
    warmup: int = 1000,
    draws: int = 1000,
    temperatures: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0),
    kernel: Kernel | None = None,
    target_acceptance: float = 0.8,
    step_size: Number | None = None,
    start: Params = None,
) -> Chains:
    r"""Parallel tempering on all the data, for targets of several modes far apart.

    Draws from \(\pi(\theta) \propto \exp(-\ell(\theta)/T)\). A chain is K replicas, of which number k samples
    \(\pi_k \propto \exp(-\ell/(T_k T))\), \(1 = T_1 < \dots < T_K\): the hot ones cross where the cold one cannot, and
    after every transition neighbours are offered each other's places (`Replicas.exchange`). The coldest replica's draws
    are kept. Likelihood and prior are heated alike; a density's Jacobian is not.

    Good ladders let a fifth to a half of the offers through, which `posterior.belief.statistics["exchange"]` says; in D
    dimensions that takes some \(\sqrt{D}\, \log T_K\) temperatures. The warm-up learns η and M from the coldest
    replica; hotter ones take \(M / T_k\). K transitions of the kernel and K gradients of all the data a transition and
    chain, side by side.

    Departures from the rule: it is no row of the rule; it makes the answer that the rule's rows approximate.

    Args:
        chains: how many chains, run side by side.
        warmup: how many transitions adapt and are dropped.
        draws: how many transitions are kept, for each chain.
        temperatures: T_1 to T_K, as multiples of the run's own; the first is one, and they rise.
        kernel: how a replica moves, for instance `lamu.mcmc.nuts().kernel`; Hamiltonian Monte Carlo where None.
        target_acceptance: the acceptance that the step size aims at.
        step_size: η, held, with M = 1; None where the warm-up learns both.
        start: a posterior from whose draws the chains start, or parameters `{"network", "likelihood"}` where all of
            them start; None for the model's own start.

    Returns:
        The sampler.

    Raises:
        ValueError: for fewer than one chain or draw, a negative warm-up, a rate outside (0, 1), a step that is not
            positive, or temperatures that do not rise from one.
        TypeError: for a kernel that looks at some rows only, which knows no density to exchange by.
        ModuleNotFoundError: where the step size is learned without the extra: `pip install "lamu[mcmc]"`.

    Source: Swendsen & Wang (1986); Geyer (1991), "Markov chain Monte Carlo maximum likelihood".

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> two = lamu.LogDensity(lambda u: jnp.logaddexp(-0.5 * (u - 6) ** 2, jnp.log(3.0) - 0.5 * (u + 6) ** 2), 6.0)
        >>> sampler = lamu.mcmc.parallel_tempering(temperatures=(1.0, 3.0, 9.0, 27.0), warmup=320, draws=512)
        >>> draws = lamu.fit(two, None, sampler).posterior.samples["network"]
        >>> abs(float((draws < 0).mean()) - 0.75) < 0.15
        True
    """
    ladder = tuple(float(temperature) for temperature in temperatures)
    rising = all(low < high for low, high in pairwise(ladder))
    if len(ladder) < 2 or ladder[0] != 1.0 or not rising:
        raise ValueError(f"temperatures={temperatures!r} is no ladder; give at least two that rise from 1")
    if isinstance(kernel, Subsampled):
        raise TypeError(f"kernel={kernel!r} looks at some rows only; replicas are exchanged by their whole densities")
    moves = Hamiltonian() if kernel is None else kernel
    return chains_of(Replicas(moves, ladder), chains, warmup, draws, target_acceptance, step_size, start)
