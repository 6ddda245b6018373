"""Parallel chains with any transition kernel: starts, warm-up and kept draws, shared by all samplers."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import mcmc, tree
from lamu.base.arguments import require, whole_number
from lamu.base.compile_once import compiled_lightly, is_traced, lenient, subkey
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.density import Density
from lamu.families import Draws
from lamu.mcmc.diagnostics import UnreliableChains, complaints
from lamu.objective import Objective
from lamu.objective.objective import num_chunks
from lamu.posterior import Posterior
from lamu.protocol import Choices, Info, Recipe, Runnable, Traits, recipes_of
from lamu.record import record, static
from lamu.typing import Array, Data, Number, Params, RandomKey, Rows, State

__all__ = [
    "Adaptation",
    "Chain",
    "Chains",
    "ChainsState",
    "Kernel",
    "LogTarget",
    "TransitionInfo",
    "chains_of",
    "dispersed_starts",
    "far_away",
    "metropolis",
    "posterior_from_draws",
    "registry",
    "require_blackjax",
    "require_lengths",
    "rounding",
    "rounding_complaints",
    "started",
]


@record
class LogTarget:
    r"""The function \(-\ell(\theta)/T\) of the parameters, in nats, and in JAX's default float."""

    # For a density with constraints it is \(\log p(g(u))/T + \log |\partial g/\partial u|\): the Jacobian is not
    # tempered.

    objective: Objective  # the loss
    batch: Batch  # all the data
    network_state: State  # the network's state, which draws do not change
    parts: int = static(default=1)  # the number of chunks in which the rows are summed

    @classmethod
    def of(cls, objective: Objective, batch: Batch, network_state: State, params: Params, runs: int) -> LogTarget:
        """Returns the target, with rows summed in chunks where one gradient of all rows would take too much memory."""
        parts = num_chunks(objective.model, batch, network_state, params, runs, looped=True)
        return cls(objective, batch, network_state, parts)

    def __call__(self, params: Params) -> Array:
        """Returns the log of the target."""
        model, likely = self.objective.model, self.objective.likelihood_power * self.objective.concentration
        if isinstance(model, Density):
            # There are no rows to sum over, and for a small density the sum would take a tenth of the time.
            value = model.log_target(params, likely)
            return value.astype(jnp.result_type(float))
        value = self.objective.log_target(params, self.batch, self.network_state, self.parts)
        value = value.astype(jnp.result_type(float))
        return value + self.objective.untempered_volume(params).astype(value.dtype) if model.transforms else value

    def rows(self, params: Params, chosen: Array) -> Array:
        r"""Returns the terms of rows in the log of the target, \(m_i w_i\, p \log p(y_i \mid \theta) / T\)."""
        some = jax.tree.map(lambda leaf: leaf[chosen], self.batch)
        model = self.objective.model.tempered(self.objective.row_temperature)
        values, _ = model.log_likelihood(params, self.network_state, some)
        factor = (some.mask * some.weight).astype(values.dtype)
        # A padded row counts zero, even where it is infinite.
        counted = jnp.where(factor > 0, values, jnp.zeros_like(values)) * factor
        return counted.astype(jnp.result_type(float)) * self._per_row

    def log_prior(self, params: Params) -> Array:
        r"""Returns the prior's term in the log of the target, \(\log p(\theta) / T\), with a density's Jacobian."""
        prior = -self.objective.concentration * self.objective.negative_log_prior(params)
        prior = prior.astype(jnp.result_type(float))
        if not self.objective.model.transforms:
            return prior
        return prior + self.objective.untempered_volume(params).astype(prior.dtype)

    @property
    def _per_row(self) -> Array:
        """Returns the factor of a row where the given N differs from the number of rows."""
        count = jnp.maximum(self.batch.count, 1).astype(jnp.result_type(float))
        power = self.objective.likelihood_power / self.objective.temperature
        return self.objective.data_size / count * power


@record
class Chain:
    """The state of a chain."""

    position: Params  # the parameters, in JAX's default float
    log_density: Array  # the log of the target there, in nats, up to a constant
    gradient: State = None  # its gradient there, in the kernel's own shape; None for kernels without gradients

    @classmethod
    def at(cls, position: Params, target: LogTarget) -> Chain:
        """Returns a chain at a position, with its gradient as one vector."""
        vector, unravel = tree.ravel(position)
        value, gradient = jax.value_and_grad(lambda v: target(unravel(v)))(vector)
        return cls(position, value, gradient)


@record
class TransitionInfo:
    """The result of a transition: the new positions, and statistics of the transition."""

    position: Params  # the parameters, leaves `[chains, ...]`
    # Numbers by name, `[chains]`: "log_density" in nats; "acceptance", a probability; and, where paths are followed,
    # "energy" and "energy_error" in nats, "divergent" and "gradients".
    statistics: dict[str, Array]


class Kernel:
    """Base class of transition kernels, which leave the target (nearly) invariant."""

    geometry: str | Any  # a description of its moves

    @property
    def replicas(self) -> int:
        """The number of points of a chain; one by default."""
        return 1

    def begin(self, position: Params, target: LogTarget) -> Chain:
        """Returns a chain at a position; by default without a gradient."""
        return Chain(position, target(position))

    def move(
        self, key: RandomKey, chain: Chain, target: LogTarget, step_size: Array, inverse_mass: Array, warming: Number
    ) -> tuple[Chain, dict[str, Array]]:
        """Returns the chain after one transition, and its statistics, with "acceptance" among them."""
        raise NotImplementedError


def metropolis(key: RandomKey, log_ratio: Array, new: State, old: State) -> tuple[State, Array]:
    r"""Returns the new state with probability \(\min(1, r)\), else the old one, and that probability."""
    probability = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
    accepted = jax.random.bernoulli(key, probability)
    return jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, old), probability


# \[ \sqrt{\tfrac{1}{2K} \sum_k \big(f(\theta + \delta_k) - f(\theta)\big)^2} \]
#
# with f the log of the target in nats and δ one or two units in the last place of every coordinate. Numbers so close
# have the same log density up to rounding. For targets near a million in single precision they differ by nats, because
# the sum over rows cancels or because the spacing of floating numbers is too coarse.


# NUTS in float32 on 1,000 targets near a million gave a deviation of 3 to 15 where .03 is exact; the limit was not
# varied.
_NEIGHBOURS, _CHAINS = 8, 4  # points near the last one of a chain, and number of chains; not tuned
_FAR = 1e5  # distance from the starts of chains, which are usually between -1 and 1
_LARGEST = 0.3  # nats: an acceptance is off by a factor of 1.35


def rounding_complaints(
    key: RandomKey, objective: Objective, network_state: State, last: Params, data: Data
) -> list[str]:
    """Returns the reasons not to trust draws in single precision, with the remedy; empty where there are none."""
    dtype = jnp.result_type(float)
    if jnp.finfo(dtype).bits > 32 or not isinstance(data, Arrays):
        return []
    some = jax.tree.map(lambda leaf: np.asarray(leaf)[:_CHAINS].astype(dtype), last)
    single = jax.tree.map(lambda leaf: leaf[0], some)
    target = LogTarget.of(objective, data.full(), network_state, single, 1)
    largest = float(np.max(rounding(key, target, some)))
    if not largest > _LARGEST:
        return []
    return [
        f"numbers that {jnp.dtype(dtype).name} holds side by side differ by {largest:.2g} nats in their log density "
        f"where the chains are ({_LARGEST} is the limit), so that rounding decides what is accepted: the targets, the "
        "inputs or the variables are too large or too far from zero for single precision; centre and scale them "
        '(y - y.mean()), or call jax.config.update("jax_enable_x64", True) first'
    ]


def rounding(key: RandomKey, target: LogTarget, positions: Params) -> np.ndarray:
    """Returns the rounding of the log of a target at some positions, in nats, one number each."""
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())  # drawn here: no program of its own

    def around(value: np.ndarray) -> np.ndarray:
        shape = (len(value), _NEIGHBOURS, *value.shape[1:])
        steps = random.choice(np.array([-2, -1, 1, 2], value.dtype), shape) * (0.5 * jnp.finfo(value.dtype).eps)
        here = value[:, None]
        return np.concatenate([here, here + steps.astype(value.dtype) * np.abs(here)], axis=1)

    values = np.asarray(_log_densities(target, jax.tree.map(around, positions)))
    return np.sqrt(np.mean((values[:, 1:] - values[:, :1]) ** 2, axis=1) / 2)


@compiled_lightly()
def _log_densities(target: LogTarget, positions: Params) -> Array:
    """Returns the log of a target at positions with two leading axes."""
    return jax.lax.map(lambda chain: jax.lax.map(target, chain), positions)


def far_away(samples: Params) -> list[str]:
    """Returns the advice to centre targets, where draws are far from the starts of chains."""
    for path, leaf in zip(tree.paths(samples), jax.tree.leaves(samples), strict=True):
        place = float(np.max(np.abs(np.median(np.asarray(leaf[:, -1], np.float64), axis=0)), initial=0.0))
        if place > _FAR:
            name = path.removeprefix("network/")
            return [
                f"the draws of {name} are near {place:.2g}, far from where chains start; centre and scale the targets "
                "and the inputs (y - y.mean()), or give start="
            ]
    return []


_APART = 2.0  # range of the starts of chains around zero, as in NumPyro and Stan


def started(key: RandomKey, start: Params, objective: Objective, batch: Batch) -> tuple[Params, State]:
    """Returns the start of one chain, as unconstrained coordinates, and the network's state."""
    init_key, draw_key = jax.random.split(key)
    fresh, network_state = objective.model.init(init_key, batch)
    if start is None:
        return fresh, network_state
    chosen, state = (start.belief.sample(draw_key), start.network_state) if hasattr(start, "belief") else (start, {})
    chosen = objective.model.unconstrained(chosen)
    if tree.paths(chosen) != tree.paths(fresh) or [jnp.shape(leaf) for leaf in jax.tree.leaves(chosen)] != [
        jnp.shape(leaf) for leaf in jax.tree.leaves(fresh)
    ]:
        raise ValueError(
            f"start has the leaves {_shapes(chosen)} and the model {_shapes(fresh)}; give a posterior of this model"
        )
    position = jax.tree.map(lambda old, new: jnp.array(new, old.dtype, copy=True), fresh, chosen)
    return position, state if jax.tree.leaves(state) else network_state


def dispersed_starts(key: RandomKey, positions: Params, density: Density) -> Params:
    """Returns dispersed starts of chains that look for modes: all but the first move away from their common point."""
    # Each real coordinate u moves by a uniform number within \(\pm 2 \max(1, |u|)\); a chain stays where the log
    # density or its gradient would not be finite.

    def moved(key: RandomKey, position: Params) -> Params:
        keys = tree.keys_like(key, position)
        far = lambda leaf, key: (
            leaf + _APART * jnp.maximum(jnp.abs(leaf), 1) * jax.random.uniform(key, leaf.shape, leaf.dtype, -1.0, 1.0)
        )
        new = jax.tree.map(far, position, keys)
        value, slope = jax.value_and_grad(lambda position: density.log_target(position, 1.0))(new)
        finite = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in [value, *jax.tree.leaves(slope)]]).all()
        return jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, position)

    chains = jax.tree.leaves(positions)[0].shape[0]
    others = jax.vmap(moved)(jax.random.split(key, chains), positions)
    return jax.tree.map(lambda old, new: jnp.concatenate([old[:1], new[1:]]), positions, others)


def _shapes(params: Params) -> str:
    leaves = zip(tree.paths(params), jax.tree.leaves(params), strict=True)
    return ", ".join(f"{path} {jnp.shape(leaf)}" for path, leaf in leaves)


def posterior_from_draws(
    key: RandomKey,
    objective: Objective,
    network_state: State,
    trace: State,
    known: list[str] | None = None,
    warns: bool = True,
) -> Posterior:
    """Returns collected draws as a belief, leaves `[chains, draws, ...]`."""
    # Draws of a density with constraints are returned constrained.
    if trace is None:
        raise ValueError("a sampler's posterior is its draws, and none were collected; pass them as trace")
    chains_first = jax.tree.map(_swapped, trace)
    if isinstance(chains_first, TransitionInfo):
        belief = Draws(chains_first.position, chains_first.statistics)
    else:
        belief = Draws(chains_first)
    reasons = (known or complaints(belief, objective.model)) if warns else []
    if reasons:
        reasons += [] if known else far_away(belief.samples)
        # Five calls up is the caller of `fit`, whose line the warning names.
        warnings.warn("do not trust these draws: " + "; ".join(reasons), UnreliableChains, stacklevel=5)
    return objective.model.constrained(Posterior.of(objective, belief, network_state, key))


def _swapped(leaf: object) -> Any:
    """Returns draws with the chains first: a view of files; a NumPy copy of an array, which needs no compilation."""
    if isinstance(leaf, np.ndarray):
        return leaf.swapaxes(0, 1)
    return leaf.swapaxes(0, 1) if isinstance(leaf, Tracer) else jax.device_put(np.asarray(leaf).swapaxes(0, 1))


def _newest(leaf: Rows) -> Rows:
    """Returns the last of some draws: a view, which needs no compilation."""
    return leaf[-1] if is_traced() else np.asarray(leaf)[-1]


@record
class Adaptation:
    """The adaptation of one chain's step size and mass matrix."""

    step_size: Any  # BlackJAX's state of dual averaging
    mass: Any  # BlackJAX's state of the variances

    @classmethod
    def begin(cls, dimension: int, target: float) -> Adaptation:
        """Returns a step size of one and unit variances."""
        with lenient():
            states = _averaging(target)[0](1.0), _variances()[0](dimension)
        return cls(*jax.tree.map(_typed, states))

    def size(self, warming: Number) -> Array:
        """Returns the step size: the current one in the warm-up, and its average afterwards."""
        return jnp.exp(jnp.where(warming, self.step_size.log_step_size, self.step_size.log_step_size_avg))

    def after(self, stage: Array, window_ends: Array, target: float, acceptance: Array, position: Params) -> Adaptation:
        """Returns the adaptation after one more transition of the warm-up."""
        step_init, step_update, step_final = _averaging(target)
        _, mass_update, mass_final = _variances()
        with lenient():
            adapted = step_update(self.step_size, acceptance)
            gathered = _where(stage == 1, mass_update(self.mass, position), self.mass)
            restarted = step_init(step_final(adapted))
            return Adaptation(
                _where(window_ends == 1, restarted, adapted), _where(window_ends == 1, mass_final(gathered), gathered)
            )


def schedule(warmup: int) -> Array:
    """Returns stage and end of window of every transition of the warm-up, `[warmup, 2]`."""
    from blackjax.adaptation.staged_adaptation import build_schedule

    with lenient():
        return jnp.asarray(build_schedule(warmup) if warmup else [[0, 0]], jnp.int32)


def _averaging(target: float) -> Any:
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return dual_averaging_adaptation(target)


def _variances() -> Any:
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation

    return mass_matrix_adaptation(is_diagonal_matrix=True)


def _where(condition: Array, new: State, old: State) -> State:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b).astype(jnp.result_type(b)), new, old)


def _typed(leaf: object) -> Array:
    # Both branches of the adaptation must have the state's dtypes from the first step on, or a scan would refuse it;
    # and counts of fewer bits would make roots of fewer bits.
    leaf = jnp.asarray(leaf)
    return leaf.astype(jnp.result_type(float if jnp.issubdtype(leaf.dtype, jnp.floating) else int))


@record
class ChainsState:
    """The chains and their adaptation; every leaf except the count has a leading axis of chains."""

    count: Array  # number of transitions
    chains: Chain  # the position of every chain
    adaptation: Adaptation | None  # the adaptation of every chain; None for a fixed step size
    network_state: State  # the network's state, the same for all


@record
class Chains(Runnable):
    """The sampler that `random_walk`, `mala`, `ula`, `hmc`, `nuts` and `minibatch_mh` make."""

    kernel: Kernel  # the transition kernel
    chains: int = static(default=4)  # the number of chains
    warmup: int = static(default=1000)  # transitions that are dropped, and adapt unless the step size is fixed
    draws: int = static(default=1000)  # kept draws of each chain
    target_acceptance: float = static(default=0.8)  # the acceptance to which the step size is adapted
    step_size: Number | None = None  # a fixed step size, with unit masses; None to learn it in the warm-up
    start: Params = (
        None  # a posterior from whose draws the chains start, or parameters; None for the model's initial ones
    )
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
        # Not an instance of the rule.
        return Choices("draws", "none: it samples", "none", geometry=self.kernel.geometry)

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> ChainsState:
        # Returns every chain at its own start.
        params, network_state = objective.model.init(key, batch)
        target = LogTarget.of(objective, batch, network_state, params, self._gradients)
        # Warm-ups work in JAX's default float, so the chains must run in it, for any dtype of the data.
        dtype = jnp.result_type(float)

        def begin(key: RandomKey) -> Chain:
            position, _ = started(key, self.start, objective, batch)
            return self.kernel.begin(jax.tree.map(lambda leaf: leaf.astype(dtype), position), target)

        chains = jax.vmap(begin)(jax.random.split(jax.random.fold_in(key, 1), self.chains))
        adaptation = None
        if self.step_size is None:
            single = Adaptation.begin(tree.dimension(params), self.target_acceptance)
            adaptation = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.chains, *jnp.shape(leaf))), single)
        return ChainsState(jnp.zeros((), jnp.int32), chains, adaptation, network_state)

    def step(self, key: RandomKey, state: ChainsState, batch: Batch, objective: Objective) -> tuple[ChainsState, Info]:
        # Returns every chain after one transition; the draw is the chains' new positions, with their statistics.
        single = jax.tree.map(lambda leaf: leaf[0], state.chains.position)
        target = LogTarget.of(objective, batch, state.network_state, single, self._gradients)
        keys = jax.random.split(key, self.chains)
        if state.adaptation is None:
            chains, adaptation, statistics = jax.vmap(lambda k, c: self._held(k, c, target))(keys, state.chains)
        else:
            plan = schedule(self.warmup)
            now = plan[jnp.minimum(state.count, plan.shape[0] - 1)]
            move = lambda k, c, a: self._adapted(k, c, a, target, state.count < self.warmup, now)
            chains, adaptation, statistics = jax.vmap(move)(keys, state.chains, state.adaptation)
        loss = -jnp.mean(chains.log_density) / objective.concentration
        info = TransitionInfo(chains.position, {"log_density": chains.log_density, **statistics})
        return ChainsState(state.count + 1, chains, adaptation, state.network_state), Info(loss=loss, draw=info)

    def posterior(
        self, key: RandomKey, state: ChainsState, objective: Objective, data: Data, trace: State
    ) -> Posterior:
        # Returns the draws as a belief, leaves `[chains, draws, ...]`.
        last = state.chains.position if trace is None else jax.tree.map(_newest, trace.position)
        reasons = rounding_complaints(subkey(jax.random.clone(key), 5), objective, state.network_state, last, data)
        return posterior_from_draws(key, objective, state.network_state, trace, reasons)

    def explain_divergence(self, state: ChainsState) -> str:
        # Returns the reason of a loss that is not finite.
        bad = [i for i, value in enumerate(state.chains.log_density) if not bool(jnp.isfinite(value))]
        where = f"the log density is not finite where chains {bad} are" if bad else "the log density left the numbers"
        return f"{where}; start the chains where it is (the density's init, the model's start, or start=)"

    @property
    def _gradients(self) -> int:
        """Returns the number of gradients computed in parallel."""
        return self.chains * self.kernel.replicas

    def _held(self, key: RandomKey, chain: Chain, target: LogTarget) -> tuple[Chain, None, dict[str, Array]]:
        size = jnp.asarray(self.step_size, jnp.result_type(float))
        ones = jnp.ones(tree.dimension(chain.position), jnp.result_type(float))
        chain, statistics = self.kernel.move(key, chain, target, size, ones, False)
        return chain, None, statistics

    def _adapted(
        self, key: RandomKey, chain: Chain, adaptation: Adaptation, target: LogTarget, warming: Number, now: Array
    ) -> tuple[Chain, Adaptation, dict[str, Array]]:
        size, inverse_mass = adaptation.size(warming), adaptation.mass.inverse_mass_matrix
        chain, statistics = self.kernel.move(key, chain, target, size, inverse_mass, warming)
        learn = lambda known: known.after(
            now[0], now[1], self.target_acceptance, statistics["acceptance"], chain.position
        )
        # A branch, which is the same for all chains, so that the adaptation is not computed after the warm-up.
        return chain, jax.lax.cond(warming, learn, lambda known: known, adaptation), statistics


def require_lengths(chains: int, warmup: int, draws: int, thinning: int) -> tuple[int, ...]:
    """Returns the lengths of a run as ints; raises a ValueError for invalid ones."""
    lengths = (("chains", chains, 1), ("warmup", warmup, 0), ("draws", draws, 1), ("thinning", thinning, 1))
    return tuple(whole_number(*each) for each in lengths)


def chains_of(
    kernel: Kernel,
    chains: int,
    warmup: int,
    draws: int,
    target_acceptance: float,
    step_size: Number | None,
    start: Params,
    thinning: int = 1,
) -> Chains:
    """Returns the sampler of a kernel, after checking its arguments."""
    chains, warmup, draws, thinning = require_lengths(chains, warmup, draws, thinning)
    if not 0 < target_acceptance < 1:
        raise ValueError(f"target_acceptance={target_acceptance!r} is not a rate; give a number between 0 and 1")
    if step_size is None:
        require_blackjax("the warm-up", ", or give step_size")
    else:
        require(step_size > 0, f"step_size={step_size!r} must be positive, or None to learn it")
    return Chains(kernel, chains, warmup, draws, float(target_acceptance), step_size, start, thinning)


def require_blackjax(part: str, instead: str = "") -> None:
    """Raises a ModuleNotFoundError with the command to run, where BlackJAX is not installed."""
    from importlib.util import find_spec

    if find_spec("blackjax") is None:
        raise ModuleNotFoundError(
            f'{part} needs BlackJAX, which is not installed; run pip install "lamu[mcmc]"{instead}'
        )


def registry() -> dict[str, Recipe]:
    """Returns every sampler by its public name.

    Examples:
        >>> import lamu
        >>> "nuts" in lamu.mcmc.registry()
        True
    """
    return recipes_of(mcmc)
