"""Step sizes and preconditioners of stochastic-gradient samplers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import number, require, require_whole_field
from lamu.objective import Objective
from lamu.rate import Constant, Rate, Scheduled, rate
from lamu.rate import decay as checked_decay
from lamu.record import record, static
from lamu.typing import Array, Number, Params, RandomKey, State

__all__ = [
    "AnyStepSize",
    "CurvatureStepSize",
    "Cyclical",
    "FrozenAfterWarmup",
    "NoPreconditioner",
    "Polynomial",
    "Preconditioner",
    "RootMeanSquare",
    "StepSize",
    "step_size",
]


# With a constant G, the dynamics on \(G^{1/2}\) have the same stationary distribution as without it. With a G that
# depends on the position, an exact sampler needs the term \(\Gamma_i = \sum_j \partial G_{ij} / \partial\theta_j\),
# which is omitted here as in most implementations. `FrozenAfterWarmup` makes it zero: G adapts before draws are kept,
# and is constant afterwards.


@record
class NoPreconditioner:
    """No preconditioner: G is the identity."""

    departure = ""

    def init(self, like: Params) -> State:
        """Returns nothing."""
        return {}

    def learn(self, memory: State, gradient: Params, adapting: bool | Array) -> State:
        """Returns nothing."""
        return memory

    def root(self, memory: State) -> None:
        """Returns None, the identity."""
        return None


@record
class RootMeanSquare:
    r"""RMSprop's preconditioner: the inverse root of the average of squared minibatch gradients.

    \[ V \leftarrow \beta V + (1 - \beta)\, \hat g^2, \qquad G = \Big(\lambda + \sqrt{V / (1 - \beta^t)}\Big)^{-1} \]

    The average is corrected for its start at zero, since otherwise the first steps would be \(1/\lambda\) long. G
    follows the chain slowly, and Γ is omitted: a bias that vanishes only as β tends to one.
    `FrozenAfterWarmup(RootMeanSquare())` has no such bias.

    Attributes:
        decay: β.
        damping: λ, in the units of a gradient of the mean loss; it bounds G by \(1/\lambda\).

    Raises:
        ValueError: for a decay outside [0, 1), or a damping that is not positive.

    Source: Li, Chen, Carlson & Carin (2016), equations 4 and 5 and algorithm 1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.mcmc.step_sizes import RootMeanSquare
        >>> scale = RootMeanSquare(decay=0.9, damping=1.0)
        >>> memory = scale.learn(scale.init(jnp.zeros(2)), jnp.array([3.0, 0.0]), True)
        >>> [round(x, 6) for x in scale.root(memory).tolist()]
        [0.5, 1.0]
    """

    decay: Number = 0.99
    damping: Number = 1e-3

    departure = "the preconditioner follows the chain"

    def __post_init__(self) -> None:
        if (constant := number(self.decay)) is not None:
            checked_decay(constant, "decay")
        require(self.damping > 0, f"damping={self.damping!r} leaves steps without a bound; give a positive number")

    def init(self, like: Params) -> State:
        """Returns zeros."""
        return {"square": tree.zeros_like(like), "count": jnp.zeros((), jnp.int32)}

    def learn(self, memory: State, gradient: Params, adapting: bool | Array) -> State:
        """Returns the average updated by another squared gradient."""

        def averaged(old: Array, new: Array) -> Array:
            keep = tree.cast(self.decay, new)
            return keep * old + (1 - keep) * new * new

        return {"square": jax.tree.map(averaged, memory["square"], gradient), "count": memory["count"] + 1}

    def root(self, memory: State) -> Params:
        r"""Returns the diagonal of \(G^{1/2}\)."""
        dtype = jnp.result_type(float)
        count = jnp.maximum(memory["count"], 1).astype(dtype)
        correction = 1 - jnp.asarray(self.decay, dtype) ** count

        def scale(v: Array) -> Array:
            return jax.lax.rsqrt(tree.cast(self.damping, v) + jnp.sqrt(v / correction.astype(v.dtype)))

        return jax.tree.map(scale, memory["square"])


@record
class FrozenAfterWarmup:
    """A preconditioner that adapts during warm-up and exploration, and is constant while draws are kept.

    A constant preconditioner leaves the stationary distribution unchanged.

    Attributes:
        base: the preconditioner.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.mcmc.step_sizes import FrozenAfterWarmup, RootMeanSquare
        >>> frozen = FrozenAfterWarmup(RootMeanSquare())
        >>> int(frozen.learn(frozen.init(jnp.zeros(2)), jnp.ones(2), adapting=jnp.asarray(False))["count"])
        0
    """

    base: RootMeanSquare = RootMeanSquare()

    departure = ""

    def init(self, like: Params) -> State:
        """Returns the initial state of the base."""
        return self.base.init(like)

    def learn(self, memory: State, gradient: Params, adapting: bool | Array) -> State:
        """Returns the state of the base, which changes only while `adapting`."""
        new = self.base.learn(memory, gradient, adapting)
        return jax.tree.map(lambda a, b: jnp.where(adapting, a, b), new, memory)

    def root(self, memory: State) -> Params | None:
        """Returns the root of the base."""
        return self.base.root(memory)


# A sampler without rejection has a bias of the order of its step, and amplifies the noise of batches: steps either stay
# small, or fall so slowly that the chain keeps exploring while both errors vanish, \(\sum_t \epsilon_t = \infty\),
# \(\sum_t \epsilon_t^2 < \infty\), or are cyclical: a large one finds another mode, and the following small ones sample
# it. A step size of a stochastic-gradient sampler is a number, one of these, or any function of the step.


@record
class Polynomial:
    r"""A step size that falls as a power of time, for which the sums above hold where \(1/2 < \gamma \le 1\).

    \[ \epsilon_t = \epsilon_0\, (1 + t / b)^{-\gamma} \]

    which is \(a (b + t)^{-\gamma}\) with \(a = \epsilon_0 b^\gamma\).

    Attributes:
        start: \(\epsilon_0\), a row.
        offset: b, the number of steps after which it has fallen to \(2^{-\gamma}\) of its start.
        power: \(\gamma\).

    Raises:
        ValueError: for a power outside (1/2, 1], for which one of the sums does not hold.

    Source: Welling & Teh (2011), equations 2 and 4.

    Examples:
        >>> from lamu.mcmc import Polynomial
        >>> [round(float(Polynomial(0.1, offset=10.0, power=1.0)(t)), 4) for t in (0, 10, 90)]
        [0.1, 0.05, 0.01]
    """

    start: Number
    offset: Number = 1000.0
    power: Number = 0.55

    def __post_init__(self) -> None:
        _positive(self.start, "start")
        _positive(self.offset, "offset")
        require(
            (self.power > 0.5) & (self.power <= 1),
            f"power={self.power!r}: the steps must sum to infinity and their squares must not; give a number above "
            "1/2 and up to 1",
        )

    def __call__(self, step: Number) -> Array:
        """Returns the step size at this step, the first being 0."""
        t = jnp.asarray(step, jnp.result_type(float))
        return self.start * (1.0 + t / self.offset) ** (-self.power)


@record
class Cyclical:
    r"""A cyclical step size: M cycles of L steps, in each of which it falls along half a cosine.

    \[ \epsilon_t = \frac{\epsilon_0}{2} \Big(1 + \cos \frac{\pi\,(t \bmod L)}{L}\Big) \]

    The first share of a cycle is exploration, without kept draws; the draws of the rest are kept. Both have the noise
    of the target, so that long steps carry a chain to other modes about in proportion to their mass. Exploration may
    have another temperature: a hot chain finds more modes, but those of large basins too often; at temperature zero it
    descends (Zhang et al.), and the weights of modes depend on the starts of cycles. A cycle visits at most one mode:
    the estimated mass w of a mode has an error of about \(\sqrt{w (1 - w) / n}\), with n between the number of chains
    and that of all cycles.

    Every cycle has the same number of draws, so that the sampler sets \(L = (\text{draws}/M)\,\text{thinning} / (1 -
    \text{exploration})\), rounded up. A warm-up before the first cycle explores with the step size \(\epsilon_0\).

    Attributes:
        peak: \(\epsilon_0\), a row, at the start of every cycle.
        cycles: M; it must divide the number of draws.
        exploration: the share of a cycle that explores, in [0, 1).
        exploration_temperature: the temperature of exploration, as a multiple of the target's.
        period: L, set by the sampler.
        lead: the steps of the warm-up, set by the sampler.

    Raises:
        ValueError: for a peak that is not positive, no cycle, a share outside [0, 1), or a negative temperature.

    Source: Zhang, Li, Zhang, Chen & Wilson (2020), equation 1 and algorithm 1.

    Examples:
        >>> from lamu.mcmc import Cyclical
        >>> steps = Cyclical(0.1, exploration=0.5, period=4)
        >>> [round(float(steps(t)), 3) for t in range(5)], [bool(steps.exploring(t)) for t in range(5)]
        ([0.1, 0.085, 0.05, 0.015, 0.1], [True, True, False, False, True])
    """

    peak: Number
    cycles: int = static(default=4)
    exploration: float = static(default=0.8)
    exploration_temperature: Number = 1.0
    period: int | None = static(default=None)
    lead: int = static(default=0)

    def __post_init__(self) -> None:
        _positive(self.peak, "peak")
        require_whole_field(self, "cycles")
        if not 0 <= self.exploration < 1:
            raise ValueError(f"exploration={self.exploration!r} is not a share of a cycle; give a number in [0, 1)")
        require(
            self.exploration_temperature >= 0,
            f"exploration_temperature={self.exploration_temperature!r} is not a temperature; give zero to "
            "descend, or a positive number",
        )

    def over(self, draws: int, thinning: int, warmup: int) -> Cyclical:
        """Returns the schedule for a number of draws.

        Args:
            draws: the number of kept draws.
            thinning: the number of steps a draw.
            warmup: the number of first steps.

        Raises:
            ValueError: where the cycles do not divide the draws.
        """
        if draws % self.cycles:
            raise ValueError(
                f"{draws} draws are not the same number in each of {self.cycles} cycles; ask for a multiple"
            )
        sampling = draws // self.cycles * thinning
        return replace(self, period=math.ceil(sampling / (1.0 - self.exploration) - 1e-9), lead=warmup)

    @property
    def explored(self) -> int:
        """The number of exploration steps of a cycle."""
        return math.ceil(self.exploration * self._length - 1e-9)

    def __call__(self, step: Number) -> Array:
        """Returns the step size at this step, the first being 0."""
        within = self._within(step).astype(jnp.result_type(float))
        return self.peak * 0.5 * (1.0 + jnp.cos(jnp.pi * within / self._length))

    def exploring(self, step: Number) -> Array:
        """Whether this step explores."""
        return self._within(step) < self.explored

    def _within(self, step: Number) -> Array:
        return jnp.maximum(jnp.asarray(step) - self.lead, 0) % self._length

    @property
    def _length(self) -> int:
        if self.period is None:
            raise ValueError("a cyclical step size has no length yet; pass it to a sampler, or give period=")
        return self.period


Preconditioner = NoPreconditioner | RootMeanSquare | FrozenAfterWarmup
StepSize = Rate | Polynomial | Cyclical


def step_size(value: AnyStepSize) -> StepSize:
    """Returns a number or a schedule as a step size."""
    if isinstance(value, Polynomial | Cyclical | Constant | Scheduled):
        return value
    return rate(value, "step_size")


def _positive(value: Number, name: str) -> None:
    require(value > 0, f"{name}={value!r} is not a step size of a sampler's schedule; give a positive number")


# On a quadratic mean loss with curvature h, a step of size ε makes the variance too large by a share of \(\epsilon h /
# (2(2 - \alpha))\), α being the friction, and the noise of the batches adds to that. For a well-specified model the
# gradient of one row has the variance h, so that a batch of B has \(h/B\); an epoch's batches are shuffled, so that
# their noise sums to zero over the \(n = N/B\) steps of it, and what remains is about \(\tfrac16 (\epsilon h\, n /
# \alpha)^2 / T\). Both errors are largest in the direction of the largest curvature \(h_{\max}\), and both are kept
# small there by
#
# \[ \frac1\epsilon = h_{\max} \Big( \frac{1}{c\,(2 - \alpha)} + \frac{N/B - 1}{c' \alpha \sqrt T} \Big). \]
#
# The mixing time of a chain is that of the smallest curvature, \(\alpha / (\epsilon h_{\min})\) steps: the accuracy of
# a run of a given length depends on the condition number \(h_{\max}/h_{\min}\) and the number of batches.


# The rates of the average were not measured one by one: `tests/test_curvature_steps.py` tests their joint effect.
_REST = 32  # largest number of steps in which the chain waits for a first estimate
_PLAIN = 20.0  # number of steps before averaging starts
_FORGETS = 0.05  # the smallest rate of the average
_FALLING = 10.0  # a too large estimate is forgotten in this fraction of the warm-up
_FALLS = (0.5, 0.9)  # the shares of the warm-up between which the step size falls to its final value


@record
class CurvatureStepSize:
    r"""A step size that follows the largest curvature, learned in the warm-up by power iteration on its batches.

    With H the Hessian of a batch's mean loss at the position of the chain, and G the preconditioner, each step of the
    warm-up takes one product

    \[ u \leftarrow (1 - \rho_t)\, u + \rho_t\, G^{1/2} H G^{1/2} \frac{u}{\lVert u \rVert}, \qquad
       h_{\max} \approx \lVert u \rVert, \]

    whose average over batches approximates the product with the Hessian of all the data. The chain rests for the first
    quarter of the warm-up, at most 32 steps, until there is an estimate. Until half of the warm-up it then takes the
    steps of a noiseless gradient, to find the posterior; they fall geometrically to the ε of the module's equation,
    which is fixed, with the estimate, while draws are kept. The estimate rises at once and falls over a tenth of the
    warm-up, so that a curvature that varies along the chain is represented by its larger values.

    A batch with fewer rows than others (an epoch's last) takes a proportionally shorter step: otherwise the gradient of
    its few rows would have the weight of a full batch, and heat the chain. For a loss without curvature, such as the
    logarithm of a Laplace density, nothing can be learned and the chain rests.

    Attributes:
        bias: c, about twice the relative error of a variance without the noise of batches.
        noise: c', which bounds the relative error due to that noise by about \(c'^2/6\).

    Raises:
        ValueError: for a number that is not positive.

    Source: Welling & Teh (2011) for both errors; LeCun, Simard & Pearlmutter (1993) for power iteration on batches.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.mcmc.step_sizes import CurvatureStepSize
        >>> memory = {"product": {"w": jnp.zeros(2)}, "largest": jnp.array(4.0), "rows": jnp.array(50.0)}
        >>> whole, half = (CurvatureStepSize().last(memory, rows, 1.0, 1.0) for rows in (50.0, 100.0))
        >>> round(float(whole), 4), round(float(half), 4)
        (0.025, 0.0208)
    """

    bias: Number = 0.1
    noise: Number = 0.5

    def __post_init__(self) -> None:
        for name in ("bias", "noise"):
            value = getattr(self, name)
            require((value > 0) & (value < math.inf), f"{name}={value!r} must be positive")

    def init(self, key: RandomKey, position: Params) -> State:
        """Returns a random unit direction, and infinite curvature, for which a chain rests, as estimate."""
        direction = tree.normal(key, position)
        length = _norm(direction)
        return {
            "product": tree.scale(direction, 1.0 / length),
            "largest": jnp.full_like(length, jnp.inf),
            "rows": jnp.zeros_like(length),
        }

    def learn(
        self,
        memory: State,
        product: Callable[[Params], Params],
        rows: Array,
        root: Params | None,
        count: Number,
        warmup: int,
    ) -> State:
        """Returns the state after another product with the Hessian of a batch.

        Args:
            memory: the current state.
            product: the Hessian of the batch's mean loss times a vector.
            rows: the number of rows in the batch.
            root: the diagonal of the root of the preconditioner; None for the identity.
            count: the number of the step.
            warmup: the number of steps of the warm-up.
        """
        scaled = lambda v: v if root is None else jax.tree.map(jnp.multiply, v, root)
        old, length = memory["product"], _norm(memory["product"])
        direction = tree.scale(old, 1.0 / jnp.maximum(length, jnp.finfo(length.dtype).tiny))
        image = scaled(product(scaled(direction)))
        t = jnp.asarray(count, length.dtype)
        rate = jnp.maximum(1.0 / (1.0 + t / _PLAIN), _FORGETS)
        new = tree.add(tree.scale(old, 1.0 - rate), image, rate)
        size = _norm(new)
        # Where a batch has no curvature, or one that is NaN, the last estimate is kept.
        usable = jnp.isfinite(size) & (_norm(image) > 0)
        before, slow = memory["largest"], min(_FALLING / warmup, 1.0)
        largest = jnp.where(jnp.isfinite(before), jnp.maximum(size, (1.0 - slow) * before + slow * size), size)
        return {
            "product": jax.tree.map(lambda a, b: jnp.where(usable, a, b), new, old),
            "largest": jnp.where(usable & (t + 1 >= min(_REST, math.ceil(warmup / 4))), largest, before),
            "rows": jnp.maximum(memory["rows"], rows.astype(length.dtype)),
        }

    def size(
        self, memory: State, objective: Objective, friction: Number, rows: Array, count: Number, warmup: int
    ) -> Array:
        """Returns ε at this step.

        Args:
            memory: the state.
            objective: the loss, for N and T.
            friction: α.
            rows: the number of rows in the batch.
            count: the number of the step.
            warmup: the number of steps of the warm-up.
        """
        # The power of the likelihood is in the curvature; its effect on the noise of batches is that of a temperature.
        temperature = objective.temperature / objective.likelihood_power
        last = self.last(memory, objective.data_size, temperature, friction)
        first = self.bias * (2.0 - friction) / memory["largest"]
        begin, end = (share * warmup for share in _FALLS)
        done = jnp.clip((jnp.asarray(count, last.dtype) - begin) / max(end - begin, 1.0), 0.0, 1.0)
        share = jnp.minimum(rows.astype(last.dtype) / jnp.maximum(memory["rows"], 1.0), 1.0)
        now = share * first * (last / jnp.where(first > 0, first, 1.0)) ** done
        return now.astype(jnp.result_type(float))

    def last(self, memory: State, data_size: Number, temperature: Number, friction: Number) -> Array:
        r"""Returns the final ε, for the kept draws.

        Args:
            memory: the state.
            data_size: N.
            temperature: T, divided by the power of the likelihood; zero is treated as one.
            friction: α.
        """
        largest = memory["largest"]
        T = jnp.asarray(temperature, largest.dtype)
        T = jnp.where(T > 0, T, 1.0)
        batches = jnp.asarray(data_size, largest.dtype) / jnp.maximum(memory["rows"], 1.0)
        noise = jnp.maximum(batches - 1.0, 0.0) / (self.noise * friction * jnp.sqrt(T))
        return 1.0 / (largest * (1.0 / (self.bias * (2.0 - friction)) + noise))


AnyStepSize = StepSize | CurvatureStepSize | Number | Callable[..., Array] | None


def _norm(vector: Params) -> Array:
    return jnp.sqrt(tree.dot(vector, vector))
