"""Parallel tempering: replicas of a chain at higher temperatures, with exchanges."""

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
    """The kernel of `parallel_tempering`: another kernel at each temperature, and exchanges between neighbours."""

    # A chain is its coldest replica; its `gradient` contains all replicas, leaves `[temperatures, ...]`.

    kernel: Kernel  # the kernel of a replica
    temperatures: tuple[float, ...] = static()  # multiples of the run's temperature, the first of them one

    @property
    def geometry(self) -> str:
        """A description of the moves."""
        return f"{self.kernel.geometry}, at {len(self.temperatures)} temperatures"

    @property
    def replicas(self) -> int:
        # K, the number of replicas of a chain.
        return len(self.temperatures)

    def begin(self, position: Params, target: LogTarget) -> Chain:
        # Returns a chain whose replicas are all at one position.
        here = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(self.temperatures), *jnp.shape(leaf))), position)
        return self._coldest(self._begun(here, target))

    def move(
        self, key: RandomKey, chain: Chain, target: LogTarget, step_size: Array, inverse_mass: Array, warming: Number
    ) -> tuple[Chain, dict[str, Array]]:
        # Returns the chain after a move of every replica and exchanges of neighbours.
        move_key, exchange_key = jax.random.split(key)

        def one(key: RandomKey, replica: Chain, temperature: Array) -> tuple[Chain, dict[str, Array]]:
            # Variances are proportional to the temperature; with masses scaled by it one step size suits all.
            wider = inverse_mass * temperature.astype(inverse_mass.dtype)
            return self.kernel.move(key, replica, _heated(target, temperature), step_size, wider, warming)

        keys = jax.random.split(move_key, len(self.temperatures))
        replicas, statistics = jax.vmap(one)(keys, chain.gradient, self._temperatures)
        replicas, exchanged = self.exchange(exchange_key, replicas, target)
        coldest = {name: values[0] for name, values in statistics.items()}
        return self._coldest(replicas), {**coldest, "exchange": exchanged}

    def exchange(self, key: RandomKey, replicas: Chain, target: LogTarget) -> tuple[Chain, Array]:
        """Returns the replicas after proposed exchanges of neighbours, and the mean probability of acceptance."""
        # Every second pair of neighbours, the even or the odd ones at random:
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
    r"""Parallel tempering on all the data, for targets with several distant modes.

    Draws from \(\pi(\theta) \propto \exp(-\ell(\theta)/T)\). A chain has K replicas, of which replica k samples \(\pi_k
    \propto \exp(-\ell/(T_k T))\), \(1 = T_1 < \dots < T_K\): hot replicas cross barriers that the cold one cannot, and
    after every transition exchanges of neighbours are proposed (`Replicas.exchange`). The coldest replica's draws are
    kept. Likelihood and prior are tempered alike; a density's Jacobian is not.

    Good ladders accept a fifth to a half of the exchanges (`posterior.belief.statistics["exchange"]`), which needs
    about \(\sqrt{D}\, \log T_K\) temperatures in D dimensions. The warm-up learns η and M from the coldest replica;
    hotter ones use \(M / T_k\). It takes K parallel transitions of the kernel, each with its gradients of all the data,
    a transition and chain.

    Departures from the rule: it is not an instance of the rule; it samples the distribution that the rule approximates.

    Args:
        chains: the number of parallel chains.
        warmup: the number of transitions for adaptation, which are dropped.
        draws: the number of kept transitions of each chain.
        temperatures: T_1 to T_K, as multiples of the run's temperature; increasing, and the first is one.
        kernel: the kernel of a replica, for instance `lamu.mcmc.nuts().kernel`; Hamiltonian Monte Carlo where None.
        target_acceptance: the acceptance to which the step size is adapted.
        step_size: a fixed η, with M = 1; None to learn both in the warm-up.
        start: a posterior, from whose draws the chains start, or parameters `{"network", "likelihood"}` where all of
            them start; None for the model's initial parameters.

    Returns:
        The sampler.

    Raises:
        ValueError: for fewer than one chain or draw, a negative warm-up, a rate outside (0, 1), a step that is not
            positive, or temperatures that do not rise from one.
        TypeError: for a kernel on subsets of rows, which has no density for exchanges.
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
        raise ValueError(f"temperatures={temperatures!r} is not a ladder; give at least two that rise from 1")
    if isinstance(kernel, Subsampled):
        raise TypeError(f"kernel={kernel!r} looks at some rows only; replicas are exchanged by their whole densities")
    moves = Hamiltonian() if kernel is None else kernel
    return chains_of(Replicas(moves, ladder), chains, warmup, draws, target_acceptance, step_size, start)
