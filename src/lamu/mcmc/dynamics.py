"""The dynamics of stochastic-gradient samplers; recipes choose its parts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import tree
from lamu.base.arguments import require
from lamu.data.batch import Batch
from lamu.density import Density
from lamu.families import Draws, Point
from lamu.mcmc.chains import dispersed_starts, posterior_from_draws, require_lengths, started
from lamu.mcmc.diagnostics import UnreliableChains, in_one_place
from lamu.mcmc.gradients import GradientEstimate, Minibatch, NoNoise, mean_loss, noise_of
from lamu.mcmc.step_sizes import (
    AnyStepSize,
    CurvatureStepSize,
    Cyclical,
    FrozenAfterWarmup,
    NoPreconditioner,
    Preconditioner,
    StepSize,
)
from lamu.mcmc.step_sizes import step_size as checked
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.protocol import Choices, Info, Runnable, Traits
from lamu.record import record, static
from lamu.typing import Array, Data, Number, Params, RandomKey, State

__all__ = ["Dynamics", "DynamicsState", "Friction", "Overdamped", "Thermostat", "dynamics"]


# At stationarity a momentum p has the distribution \(\mathcal N(0, T/N)\) a coordinate for any step size and
# preconditioner: both enter the impulse and the step, so that schedules of either do not change it.


@record
class Overdamped:
    """No momentum: it is resampled at every step, as with friction one."""

    friction = 1.0
    geometry = "overdamped Langevin paths"

    def init(self, like: Params) -> State:
        """Returns nothing."""
        return {}

    def move(self, memory: State, impulse: Params, step_size: Number, variance: Number) -> tuple[State, Params]:
        """Returns the impulse as the momentum."""
        return memory, impulse


@record
class Friction:
    r"""A momentum that loses a share α a step: \(p \leftarrow (1 - \alpha)\, p + \text{impulse}\)."""

    friction: Number = 0.1  # α in (0, 1]; one is `Overdamped`, and 1 − α is an optimiser's momentum

    geometry = "underdamped Langevin paths"

    def __post_init__(self) -> None:
        _require_friction(self.friction)

    def init(self, like: Params) -> State:
        """Returns a momentum of zero."""
        return {"p": tree.zeros_like(like)}

    def move(self, memory: State, impulse: Params, step_size: Number, variance: Number) -> tuple[State, Params]:
        """Returns the momentum after the impulse."""
        p = tree.add(impulse, memory["p"], 1.0 - self.friction)
        return {"p": p}, p


@record
class Thermostat:
    """A Nosé–Hoover thermostat: a friction ζ that rises while the momentum is too hot, which absorbs unknown noise."""

    # \[ p \leftarrow (1 - \zeta)\, p + \text{impulse}, \qquad
    #    \zeta \leftarrow \zeta + \frac{\epsilon}{Q} \Big(\big(1 - \tfrac\zeta2\big) \frac{N}{T}\,
    #    \frac{\lVert p \rVert^2}{d} - 1\Big) \]
    #
    # It absorbs isotropic noise, and that of batches on the average over directions. The factor corrects for steps of
    # finite size: where \(\theta \leftarrow \theta + \sqrt\epsilon\, p\) is stationary on a quadratic of curvature h,
    # \(h\,E[\theta^2] = (1 - \zeta/2)\,E[p^2]\), and the parameters' temperature is the one to control.

    friction: Number = 0.1  # α, the initial ζ, whose noise is added
    # Q, in rows: the larger, the slower. \(Q = N/T\) is the published one, which is slow for large N; the distribution
    # of the parameters does not depend on it. None for \(10\, \epsilon / \alpha^2\), with which ζ varies by at most a
    # third of α for any units of the loss, and ζ is then bounded by one.
    inertia: Number | None = 1.0

    geometry = "underdamped Langevin paths with a thermostat"

    def __post_init__(self) -> None:
        _require_friction(self.friction)
        if self.inertia is not None:
            require(self.inertia > 0, f"inertia={self.inertia!r} must be positive")

    def init(self, like: Params) -> State:
        """Returns a momentum of zero, and the initial friction."""
        return {"p": tree.zeros_like(like), "zeta": jnp.full((), self.friction, jnp.result_type(float))}

    def move(self, memory: State, impulse: Params, step_size: Number, variance: Number) -> tuple[State, Params]:
        """Returns the momentum after the impulse, and the friction updated by its temperature."""
        zeta = memory["zeta"]
        p = tree.add(impulse, memory["p"], 1.0 - zeta)
        each = tree.dot(p, p).astype(zeta.dtype) / tree.dimension(p)
        # At temperature zero there is nothing to control.
        hot = jnp.where(variance > 0, (1.0 - zeta / 2) * each / jnp.where(variance > 0, variance, 1.0) - 1.0, 0.0)
        if self.inertia is None:
            # Beyond one a momentum would change its sign, and with very noisy batches the rise would not end.
            return {"p": p, "zeta": jnp.minimum(zeta + self.friction**2 / 10.0 * hot, 1.0)}, p
        return {"p": p, "zeta": zeta + step_size / self.inertia * hot}, p


def _require_friction(friction: Any) -> None:
    require(
        (friction > 0) & (friction <= 1),
        f"friction={friction!r}: without friction the noise of batches heats a chain without bound; give a number "
        "above 0 and up to 1",
    )


# Langevin dynamics with friction on \(\pi \propto \exp(-\ell/T) = \exp(-\kappa\,\bar\ell)\), \(\kappa = N/T\), in the
# units of `docs/scale.md`: the step size ε multiplies the gradient of the mean loss, as a learning rate does. With
# \(\tau = T/N = 1/\kappa\), a preconditioner G, and \(\xi\) standard normal noise, one step is
#
# \[ p \leftarrow (1 - \alpha)\, p - \sqrt{\epsilon}\, G^{1/2} \hat g(\theta) +
#        \sqrt{2 \alpha \tau - \epsilon\, G \hat V}\;\xi, \qquad
#    \theta \leftarrow \theta + \sqrt{\epsilon}\, G^{1/2} p \]
#
# | choice | values |
# |---|---|
# | momentum | `Overdamped` (α = 1: SGLD), `Friction` (SGHMC), `Thermostat` (SGNHT) |
# | preconditioner G | `NoPreconditioner`, `RootMeanSquare`, `FrozenAfterWarmup` of one |
# | step size ε | from the curvature (`CurvatureStepSize`), a number, `Polynomial`, `Cyclical`, any function of the step
# |
# | gradient | `Minibatch`, `ControlVariates` |
# | noise \(\hat V\) of the gradient | `NoNoise`, `KnownNoise`, `RowNoise` |
# | temperature T | the objective's |
#
# With α = 1 this is \(\theta \leftarrow \theta - \epsilon\, G \hat g + \sqrt{2 \epsilon \tau G}\,\xi\). In terms of \(v
# = \sqrt\epsilon\, p\) and a constant ε it is Chen, Fox & Guestrin (2014), equation 15, with their \(\eta =
# \epsilon\tau\) (their gradient is a sum over the data) and \(\hat\beta = \epsilon \hat V / (2\tau)\); scaled by
# \(\sqrt\epsilon\) the momentum keeps its law when ε or G change (Wenzel et al. 2020, section 3). At T = 0 it is
# gradient descent with momentum 1 − α. On a quadratic loss with curvature h a row the variance is \(\frac{\tau}{h}
# \big(1 - \frac{\epsilon h}{2 (2 - \alpha)}\big)^{-1}\): the bias falls as ε.


@record
class DynamicsState:
    """The chains; every leaf except the count and the network's state has a leading axis of chains."""

    count: Array  # number of steps
    position: Params
    momentum: State  # the momentum's state
    scale: State  # the preconditioner's state
    reference: State  # the gradient estimator's state
    network_state: State  # the network's initial state, the same for all
    curvature: State = None  # the estimate of the largest curvature, where the step size depends on it


@record
class Dynamics(Runnable):
    """The sampler that `sgld`, `psgld`, `sghmc` and `sgnht` make."""

    step_size: StepSize | CurvatureStepSize  # ε, a row
    momentum: Overdamped | Friction | Thermostat = Overdamped()  # the momentum
    preconditioner: Preconditioner = NoPreconditioner()  # G
    gradient: GradientEstimate = Minibatch()  # the gradient estimator
    noise: Any = NoNoise()  # the estimate of its variance
    start: Params = None  # a posterior, or parameters, from which chains start; None for the model's initial ones
    chains: int = static(default=4)  # the number of chains
    warmup: int = static(default=1000)  # steps that are dropped
    draws: int = static(default=200)  # kept draws of each chain
    thinning: int = static(default=10)  # steps a kept draw
    # Whether all chains use the same batches; else each has its own order of the data.
    shared_batches: bool = static(default=False)

    @property
    def traits(self) -> Traits:
        # Minibatches, one order of the data a chain; its own length, in cycles where the step size has some.
        cycle = explored = 0
        length = self.draws * self.thinning
        if isinstance(self.step_size, Cyclical) and self.step_size.period is not None:
            cycle, explored = self.step_size.period, self.step_size.explored
            length = self.step_size.cycles * cycle
        return Traits(
            length=self.warmup + length,
            warmup=self.warmup,
            thinning=self.thinning,
            cycle=cycle,
            exploration=explored,
            streams=1 if self.shared_batches else self.chains,
            runs=self.chains,
            shared=("count", "network_state"),
        )

    @property
    def choices(self) -> Choices:
        # Not an instance of the rule.
        left_out = ("minibatch", "no acceptance test", self.preconditioner.departure)
        scale = "none" if isinstance(self.preconditioner, NoPreconditioner) else "squared minibatch gradient"
        return Choices(
            "draws",
            "none: it samples",
            scale,
            geometry=self.momentum.geometry,
            departures=tuple(word for word in left_out if word),
        )

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> DynamicsState:
        # Returns every chain at its own start, without momentum.
        single = jax.tree.map(lambda leaf: leaf[0], batch) if batch.mask.ndim == 2 else batch
        keys, state_key = jax.random.split(key, self.chains), jax.random.fold_in(jax.random.clone(key), self.chains)
        position = jax.vmap(lambda key: started(key, self.start, objective, single)[0])(keys)
        if self._moves_apart(objective):
            density: Any = objective.model
            position = dispersed_starts(jax.random.fold_in(jax.random.clone(key), self.chains + 2), position, density)
        curvature = {}
        if isinstance(self.step_size, CurvatureStepSize):
            direction_keys = jax.random.split(jax.random.fold_in(jax.random.clone(key), self.chains + 1), self.chains)
            curvature = jax.vmap(self.step_size.init)(direction_keys, position)
        return DynamicsState(
            count=jnp.zeros((), jnp.int32),
            position=position,
            momentum=jax.vmap(self.momentum.init)(position),
            scale=jax.vmap(self.preconditioner.init)(position),
            reference=jax.vmap(self.gradient.init)(position),
            network_state=started(state_key, self.start, objective, single)[1],
            curvature=curvature,
        )

    def step(
        self, key: RandomKey, state: DynamicsState, batch: Batch, objective: Objective
    ) -> tuple[DynamicsState, Info]:
        # Returns every chain after one step; the draw is their positions.
        #
        # A batch may have a leading axis of chains, as the loop makes it; without one, all chains use the same rows.
        keys, own_batches = jax.random.split(key, self.chains), batch.mask.ndim == 2
        model, single = objective.model, jax.tree.map(lambda leaf: leaf[0], batch) if own_batches else batch

        def move(key: RandomKey, chain: State, rows: Batch) -> tuple[State, Array]:
            return self._moved(key, chain, rows, objective, state.count, state.network_state)

        chain = (state.position, state.momentum, state.scale, state.reference, state.curvature)
        if self.chains > 1 and model.scan_friendly(single):
            chain, loss = jax.vmap(move, in_axes=(0, 0, 0 if own_batches else None))(keys, chain, batch)
        else:
            pick = lambda many, k: jax.tree.map(lambda leaf: leaf[k], many)
            moved = [
                move(keys[k], pick(chain, k), pick(batch, k) if own_batches else batch) for k in range(self.chains)
            ]
            chain, loss = jax.tree.map(lambda *leaves: jnp.stack(leaves), *moved)
        position, momentum, scale, reference, curvature = chain
        new = DynamicsState(state.count + 1, position, momentum, scale, reference, state.network_state, curvature)
        return new, Info(loss=jnp.mean(loss), draw=position)

    def posterior(
        self, key: RandomKey, state: DynamicsState, objective: Objective, data: Data, trace: State
    ) -> Posterior:
        # Returns the draws as a belief, leaves `[chains, draws, ...]`; draws on disk stay there.
        ended = not isinstance(state.count, Tracer) and int(state.count) >= self.warmup
        learns = isinstance(self.step_size, CurvatureStepSize)
        if ended and learns and not np.isfinite(np.asarray(state.curvature["largest"])).all():
            # Four calls up is the caller of `fit`, whose line the warning names.
            warnings.warn(
                "do not trust these draws: the loss has no curvature where chains start, so that no step size was "
                "learned and they stand still; give step_size=",
                UnreliableChains,
                stacklevel=4,
            )
        reasons = self._in_modes(objective, trace) if ended and isinstance(self.step_size, Cyclical) else []
        if reasons:
            warnings.warn("do not trust these draws: " + reasons[0], UnreliableChains, stacklevel=4)
        if any(isinstance(leaf, np.memmap) for leaf in jax.tree.leaves(trace)):
            samples = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), trace)
            return Posterior.of(objective, Draws(samples), state.network_state, key)
        return posterior_from_draws(key, objective, state.network_state, trace, warns=not reasons)

    def _in_modes(self, objective: Objective, trace: State) -> list[str]:
        """Returns a warning about the weights of modes, where no cycle of a chain has left its first mode."""
        assert isinstance(self.step_size, Cyclical)
        cycles, chains = self.step_size.cycles, range(self.chains)
        samples = jax.tree.map(lambda leaf: np.asarray(leaf).swapaxes(0, 1), trace)
        of_chain = lambda k: jax.tree.map(lambda leaf: leaf[k : k + 1], samples)
        more = "Cyclical a larger peak, or (to find modes, not to weigh them) an exploration_temperature of 10 or more"
        if in_one_place(samples, cycles):
            if not self._shares_start(objective):
                return []
            return [
                f"all {cycles} cycles of all chains ended in one place, and all chains started at one point, so that "
                "these draws do not show whether there are other modes, nor can R-hat; give the chains starts of their "
                f"own (start= a posterior), {more}"
            ]
        if self.chains > 1 and objective.model.identified and all(in_one_place(of_chain(k), cycles) for k in chains):
            return [
                f"each of the {self.chains} chains stayed in a mode of its own in all its {cycles} cycles, so that the "
                "modes have the weights of the starts, and others may not have been visited; give more chains, "
                f"{more}"
            ]
        return []

    def _moves_apart(self, objective: Objective) -> bool:
        """Whether chains that look for modes would all start at the initial point of a density."""
        model = objective.model
        cyclical = isinstance(self.step_size, Cyclical) and self.start is None and self.chains > 1
        return cyclical and isinstance(model, Density) and model.draw is None and model.start is None

    def _shares_start(self, objective: Objective) -> bool:
        """Whether all chains start at one point: given parameters, or those of a density."""
        if self._moves_apart(objective):
            return False
        if self.start is None:
            return isinstance(objective.model, Density) and objective.model.draw is None
        return not hasattr(self.start, "belief") or isinstance(self.start.belief, Point)

    def explain_divergence(self, state: DynamicsState) -> str:
        # Returns the remedy for a loss that is not finite.
        return (
            "the step size is too large for the curvature (it must stay below 2 over it, a row); lower it, start the "
            "chains at a mode (start=), or standardise the data (model.standardised(x, y))"
        )

    def _moved(
        self, key: RandomKey, chain: State, batch: Batch, objective: Objective, count: Array, network_state: State
    ) -> tuple[State, Array]:
        """Returns one chain after a step of the module's equation, and its loss before."""
        position, momentum, scale, reference, curvature = chain
        adapting = count < self.warmup
        estimate = self.gradient(reference, position, batch, objective, network_state)
        variance = self.noise(position, batch, objective, network_state)
        explores = adapting | self.step_size.exploring(count) if isinstance(self.step_size, Cyclical) else adapting
        scale = self.preconditioner.learn(scale, estimate.gradient, explores)
        root = self.preconditioner.root(scale)
        if isinstance(self.step_size, CurvatureStepSize):
            gradient, now = jax.grad(mean_loss(objective, batch, network_state)), (count, self.warmup)
            curvature = _curvature(self.step_size, curvature, gradient, position, batch.count, root, now)
            step_size = self.step_size.size(curvature, objective, self.momentum.friction, batch.count, *now)
        else:
            step_size = jnp.asarray(self.step_size(count), jnp.result_type(float))
        factor = (
            jnp.where(explores, self.step_size.exploration_temperature, 1.0)
            if isinstance(self.step_size, Cyclical)
            else 1.0
        )
        tau = jnp.asarray(factor * objective.temperature / objective.data_size, step_size.dtype)
        stride = tree.scale(jax.tree.map(jnp.ones_like, position), jnp.sqrt(step_size))
        if root is not None:
            stride = jax.tree.map(jnp.multiply, stride, root)
        added = 2.0 * self.momentum.friction * tau
        if variance is None:
            spread = jax.tree.map(lambda s: jnp.sqrt(added).astype(s.dtype), stride)
        else:
            spread = jax.tree.map(
                lambda s, v: jnp.sqrt(jnp.maximum(added.astype(s.dtype) - s * s * v, 0.0)), stride, variance
            )
        noise = tree.normal(key, position)
        impulse = jax.tree.map(lambda s, g, b, z: b * z - s * g, stride, estimate.gradient, spread, noise)
        new_momentum, p = self.momentum.move(momentum, impulse, step_size, tau)
        new = jax.tree.map(lambda x, s, p: x + s * p, position, stride, p)
        if (moves := estimate.moves) is not None:  # in a pass over the data the chain does not move
            stay = lambda a, b: jnp.where(moves, a, b)
            new, new_momentum = (jax.tree.map(stay, *pair) for pair in ((new, position), (new_momentum, momentum)))
        return (new, new_momentum, scale, estimate.memory, curvature), estimate.value


def _curvature(rule: CurvatureStepSize, memory: State, gradient: Any, at: Any, rows: Any, root: Any, now: Any) -> Any:
    """Returns the estimate of the curvature, updated by a batch in the warm-up alone."""
    count, warmup = now

    def learn(memory: State) -> Any:
        product = lambda vector: jax.jvp(gradient, (at,), (vector,))[1]
        return rule.learn(memory, product, rows, root, count, warmup)

    # A branch, which is the same for all chains, so that the product is not computed after the warm-up.
    return jax.lax.cond(count < warmup, learn, lambda memory: memory, memory)


def dynamics(
    step_size: AnyStepSize,
    momentum: Overdamped | Friction | Thermostat,
    gradient: GradientEstimate | None,
    start: Params,
    lengths: tuple[int, ...],
    shared_batches: bool,
    preconditioner: Preconditioner | None = None,
    noise_estimate: Number | Callable[..., Params] | None = None,
) -> Dynamics:
    """Returns the sampler with the given parts; `lengths` are chains, warm-up, draws and thinning."""
    if step_size is None:
        step_size = CurvatureStepSize()
    elif not isinstance(step_size, CurvatureStepSize):
        step_size = checked(step_size)
    lengths = require_lengths(*lengths)
    _, warmup, draws, thinning = lengths
    if isinstance(step_size, CurvatureStepSize) and not warmup:
        raise ValueError("warmup=0 leaves no step in which the step size is learned; give a warm-up, or step_size=")
    explores = isinstance(step_size, Cyclical) and step_size.exploration > 0
    if isinstance(preconditioner, FrozenAfterWarmup) and not (warmup or explores):
        raise ValueError(
            "warmup=0 and no exploration leave FrozenAfterWarmup no step to adapt in; give a warm-up, or "
            "RootMeanSquare()"
        )
    if isinstance(step_size, Cyclical):
        step_size = step_size.over(draws, thinning, warmup)
    gradient = Minibatch() if gradient is None else gradient
    preconditioner = NoPreconditioner() if preconditioner is None else preconditioner
    parts = momentum, preconditioner, gradient, noise_of(noise_estimate), start
    return Dynamics(step_size, *parts, *lengths, shared_batches=shared_batches)
