"""Message passing on graphs: EM, VMP, NCVMP, SVI and CVI, with restarts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import tree
from lamu.algorithms.closed_form.extrapolation import CALM, Sweeps, extrapolated
from lamu.base.arguments import require_whole_field, whole_number
from lamu.base.compile_once import compiled_lightly, compiled_once
from lamu.conjugate_target import message_target
from lamu.convergence import Convergence
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.expectations import Analytic
from lamu.families import Gaussian, MultivariateNormal, Point, Product
from lamu.geometry import Guarded, Retraction
from lamu.natural_rule import ConjugateLoss, ConjugateParameters, FallingRate, NaturalRule
from lamu.objective import Objective
from lamu.objective.objective import dispersion_step
from lamu.posterior import Posterior
from lamu.predictives.graph import GraphRule
from lamu.protocol import Choices, Info, Runnable, Traits, recipe
from lamu.rate import PolynomialDecay, RateLike, rate
from lamu.record import record, static
from lamu.typing import Array, Belief, Data, Numeric, Params, PyTree, RandomKey, Statistics, Trace

__all__ = [
    "Em",
    "EmState",
    "Ncvmp",
    "Vmp",
    "VmpState",
    "bound",
    "cvi",
    "em",
    "messages",
    "ncvmp",
    "step_unconverged",
    "svi",
    "vmp",
]


def bound(
    objective: Objective, beliefs: Mapping[str, Belief], batch: Batch, dispersions: Params | None = None
) -> Array:
    """Returns the evidence lower bound in nats."""
    graph: Any = objective.model
    loss = ConjugateLoss(objective, batch, {}, {}).at(graph.moments(beliefs), dispersions=dispersions)
    return sum((belief.entropy() for belief in beliefs.values()), -objective.concentration * loss)


def messages(
    objective: Objective,
    statistics: Mapping[str, Statistics],
    names: tuple[str, ...],
    batch: Batch,
    dispersions: Params | None = None,
) -> tuple[Array, dict[str, Statistics]]:
    r"""Returns \(E_q[\log p]/T\) with optimal latents, and its gradient λ for some variables."""
    loss = ConjugateLoss(objective, batch, {}, {})
    own = {name: statistics[name] for name in names}
    value, slopes = jax.value_and_grad(lambda own: loss.at({**statistics, **own}, dispersions=dispersions))(own)
    kappa = objective.concentration
    return -kappa * value, tree.scale(slopes, -jnp.asarray(kappa, value.dtype))


S = TypeVar("S")


def step_unconverged(state: S, step: Callable[[S], S]) -> S:
    """Returns the states after a step of every restart that has not converged; the others do not change."""
    batched: Any = state
    if batched.settled.shape[0] == 1:  # a condition instead of a selection, so that a converged run costs nothing
        single: Any = jax.tree.map(lambda leaf: leaf[0], state)
        stepped = jax.lax.cond(single.settled, lambda s: s, step, single)
        return jax.tree.map(lambda leaf: leaf[None], stepped)
    keep = lambda old, new: jnp.where(batched.settled.reshape(-1, *[1] * (new.ndim - 1)), old, new)
    return jax.tree.map(keep, state, jax.vmap(step)(state))


@record
class CoordinateAscent(Runnable):
    """Base of coordinate ascents over all rows, with parallel restarts."""

    tolerance: float  # the rise of the bound, or of the log density, at which it stops, in nats per row
    restarts: int = static(default=1)  # number of restarts

    def __post_init__(self) -> None:
        if not self.tolerance >= 0:
            raise ValueError(f"tolerance={self.tolerance!r} is negative; give the rise of the bound to stop at, or 0")
        require_whole_field(self, "restarts")

    @property
    def traits(self) -> Traits:
        return Traits(batching="full")

    def explain_divergence(self, state: Any) -> str | None:
        # A sweep has no rate, and no step is too long.
        dtype = next(leaf.dtype for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)).name
        wider = "" if dtype == "float64" else ', or call jax.config.update("jax_enable_x64", True) first'
        return (
            f"a sweep has no learning rate: {dtype} lost a difference of large numbers, or the density is unbounded; "
            "centre and scale the data, leave out columns that others determine, such as one of two equal, or give "
            "states that the data do not tell apart, such as the terms of a sum of random walks, a first_precision "
            f"near that of their steps{wider}"
        )

    def smallest_rise(self, value: Array, batch: Batch) -> Array:
        """Returns the rise below which a run has converged, at least the rounding error of so large a sum."""
        return self.tolerance * batch.count.astype(value.dtype) + _rounding(value)


def _rounding(value: Any) -> Any:
    """Returns the rounding error of a sum of this size."""
    return 4 * jnp.finfo(value.dtype).eps * abs(value)


@record
class VmpState(Sweeps):
    """Beliefs of every restart, along a leading axis, and the progress of their bounds."""

    beliefs: dict[str, Belief]  # about the shared variables, by name
    bound: Array  # before the last sweep, in nats
    rows: PyTree = None  # summary rows that replace all rows, if the graph has them; else None
    dispersions: Params = None  # learned dispersions of likelihoods, a point; None if there are none
    least: Any = None  # the smallest residual so far, less a hundredth
    idle: Any = None  # the number of sweeps since


@record
class Vmp(CoordinateAscent):
    """Algorithm of `vmp`."""

    exact: ClassVar[bool] = True  # whether every message must be exact

    @property
    def choices(self) -> Choices:
        return Choices("product of conjugate families", "Exact", "none needed", "straight, ρ = 1 a factor")

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> VmpState:
        # Returns beliefs after one update from random latents, for every restart; for mixtures the best of several.
        graph = message_target(objective.model)
        graph.require_messages(f"{type(self).__name__.lower()}()", self.exact)
        beliefs = graph.starts(key, batch, objective.temperature, self.restarts)
        dtype = jnp.result_type(*jax.tree.leaves(beliefs)) if jax.tree.leaves(beliefs) else batch.weight.dtype
        lowest = jnp.full(self.restarts, -jnp.inf, dtype)
        first = graph.first_dispersions(batch)
        copies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.restarts, *jnp.shape(leaf))), first)
        return VmpState(
            **vars(Sweeps.start(beliefs, lowest)),
            beliefs=beliefs,
            bound=lowest,
            rows=graph.fewer_rows(batch),
            dispersions=copies,
            least=-lowest,
            idle=jnp.zeros(self.restarts, jnp.int32),
        )

    def step(self, key: RandomKey, state: VmpState, batch: Batch, objective: Objective) -> tuple[VmpState, Info]:
        # Returns the state after one sweep over the groups of variables; converged restarts do not change.
        summary = state.rows
        rows = batch if summary is None else summary
        state = replace(state, rows=None)
        new = step_unconverged(state, lambda restart: self._sweep(restart, rows, objective))
        best = jnp.argmax(new.bound)
        return replace(new, rows=summary), Info(-new.bound[best] / objective.data_size, new.residual[best])

    def _sweep(self, state: VmpState, batch: Batch, objective: Objective) -> VmpState:
        graph: Any = objective.model
        beliefs, value, dispersions = state.beliefs, state.bound, state.dispersions
        statistics, squared = graph.moments(beliefs), jnp.zeros_like(state.residual)
        kinds = graph.kinds
        for number, names in enumerate(graph.blocks):
            energy, natural = messages(objective, statistics, names, batch, dispersions)
            if number == 0:  # before any variable moves
                value = sum((belief.entropy() for belief in beliefs.values()), energy).astype(value.dtype)
            for name in names:
                new = self._moved(kinds[name], beliefs[name], natural[name])
                moments = kinds[name].under(new)
                squared = squared + _step(beliefs[name], new, statistics[name], moments).astype(squared.dtype)
                beliefs = {**beliefs, name: new}
                statistics = {**statistics, name: moments}
        if graph.expansion is not None:
            scale = (objective.temperature, objective.likelihood_power, objective.data_size)
            beliefs = graph.expansion.expanded(graph, beliefs, batch, *scale)
        if not graph.blocks:
            value = bound(objective, beliefs, batch, dispersions).astype(value.dtype)
        dispersions = self._dispersions(objective, statistics, batch, dispersions)
        # In single precision the bound is constant to rounding long before the beliefs are, so that their steps count
        # too: until the beliefs are near the fixed point, or their steps stop shrinking at rounding. One step that is
        # no shorter is no sign of that: of Gamma-Poisson factors it ended ascents many nats below.
        residual = jnp.sqrt(squared)
        before = state.ascent.before(state.residual, residual)
        noise = state.ascent.noise_after(state.bound - value) if self.exact else state.ascent.noise
        rise = jnp.maximum(self.smallest_rise(value, batch), noise)
        near = _distance(residual, before, noise) <= _NEAR * tree.dimension(beliefs) ** 0.5
        still = jnp.abs(value - state.bound) <= rise
        shrinks = residual <= state.least
        least, idle = jnp.where(shrinks, 0.99 * residual, state.least), jnp.where(shrinks, 0, state.idle + 1)
        extrapolates = self.exact and graph.expansion is None
        ascent = state.ascent.swept(state.beliefs, still & near, noise)
        settled = (ascent.calm >= (CALM if extrapolates else 1)) | (still & (idle >= _IDLE))
        swept = VmpState(residual, before, settled, ascent, beliefs, value, None, dispersions, least, idle)
        if not extrapolates:
            return swept
        real = lambda beliefs: {name: belief.real() for name, belief in beliefs.items()}
        back = lambda moved: {name: belief.with_real(moved[name]) for name, belief in swept.beliefs.items()}
        higher = value >= state.bound - jnp.maximum(_rounding(value), noise)
        sane = state.ascent.is_sane(value - state.bound, _LOST * _rounding(state.bound))
        return extrapolated("beliefs", state, swept, higher, sane, real, back)

    def _dispersions(self, objective: Objective, statistics: Statistics, batch: Batch, dispersions: Params) -> Params:
        """Returns the dispersions after a step; none if every message is exact."""
        del objective, statistics, batch
        return dispersions

    def _moved(self, kind: Any, old: Belief, natural: Statistics) -> Belief:
        """Returns the belief after a step towards a message: the message itself, if every one is exact."""
        del kind, old
        return natural.belief()

    def posterior(self, key: RandomKey, state: VmpState, objective: Objective, data: Data, trace: Trace) -> Posterior:
        # Returns the beliefs of the best restart, with the evidence lower bound.
        chosen = _best("beliefs", replace(state, rows=None), state.bound)
        evidence = chosen.bound
        # A converged run has its bound to the tolerance, and needs no compilation for it.
        converged = not isinstance(chosen.settled, Tracer) and bool(chosen.settled)
        if isinstance(data, Arrays) and not converged:
            evidence = _bound(objective, chosen.beliefs, data.full(), chosen.dispersions)
        return Posterior(
            objective.model,
            Product(
                {
                    "network": message_target(objective.model).product(chosen.beliefs),
                    "likelihood": Point(chosen.dispersions or {}),
                }
            ),
            {},
            GraphRule(),
            key,
            evidence=evidence,
            convergence=_convergence(chosen),
            temperature=objective.temperature,
        )


@compiled_once(static_argnums=0)
def _best(field: str, state: S, values: Array) -> S:
    """Returns the restart with the greatest value, without a trial that no sweep has judged."""
    chosen: Any = jax.tree.map(lambda leaf: leaf[jnp.argmax(values)], state)
    known = lambda trial, last: jnp.where(chosen.ascent.is_trial, last, trial)
    return replace(chosen, **{field: jax.tree.map(known, getattr(chosen, field), chosen.ascent.earlier)})


_bound = compiled_lightly()(bound)


def _step(old: Belief, new: Belief, mu_old: Statistics, mu_new: Statistics) -> Array:
    r"""Returns \(\langle\lambda' - \lambda, \mu' - \mu\rangle\) in nats, \(d^\top F d\) of a small step d of λ."""
    step = tree.add(new.to_natural(), old.to_natural(), -1.0)
    moved = jax.tree.map(jnp.subtract, jax.tree.leaves(mu_new), jax.tree.leaves(mu_old))
    return jnp.maximum(sum(jnp.sum(a * m) for a, m in zip(jax.tree.leaves(step), moved, strict=True)), 0.0)


_IDLE = 200  # sweeps in which no step is shorter
_NEAR = 0.1  # of a posterior standard deviation, root mean square; not tuned
_ABSURD = 3.0  # deviations, root mean square; not tuned
_LOST = 4  # rounding errors of one sum, beyond which the error of the bound is that of a recursion


@compiled_once()
def _distance(residual: Numeric, before: Numeric, noise: Numeric = 0.0) -> Array:
    """Returns the distance of the last step and all further ones, and of what an error of the bound hides."""
    # By the ratio of two steps, a geometric series. At a natural distance d the bound is \(d^2 / 2\) nats lower.
    ratio = jnp.where(before > 0, residual / jnp.where(before > 0, before, 1.0), 0.0)
    return jnp.sqrt((residual / (1.0 - jnp.minimum(ratio, 0.999))) ** 2 + 2.0 * noise)


def _convergence(state: VmpState) -> Convergence | None:
    """Returns the distance of the beliefs from the fixed point."""
    if isinstance(state.residual, Tracer) or not np.isfinite(state.before):
        return None
    settled = bool(state.settled)
    residual, before, noise = (np.asarray(part) for part in (state.residual, state.before, state.ascent.noise))
    # Steps that are rounding errors have no ratio: then the bound alone says how far the fixed point may be.
    lost = settled and noise > _LOST * _rounding(np.asarray(state.bound))
    distance = float(_distance(residual, np.maximum(before, 2.0 * residual) if lost else before, noise))
    is_rounded = settled or np.sqrt(2.0 * noise) > distance / 2
    size = max(tree.dimension(state.beliefs), 1)
    return Convergence(
        residual=_resolved(distance, size, is_rounded),
        dimension=size,
        settled=settled,
        remedy=_rounded(state.bound) if is_rounded else "take more sweeps, with steps=",
    )


def _resolved(distance: Any, size: int, is_rounded: Any) -> float:
    """Returns the distance of variables of a size; NaN if it is large, and rounding errors have made it."""
    # Of 108 quarters in single precision the last steps were errors with the ratio of a distance of 1,807.
    return math.nan if is_rounded and distance > _ABSURD * math.sqrt(size) else float(distance)


def _rounded(value: Array) -> str:
    """Returns the remedy where rounding has ended an ascent."""
    double = value.dtype.name == "float64"
    wider = "centre and scale the data" if double else 'jax.config.update("jax_enable_x64", True) goes on'
    return f"rounding has ended the ascent, so that further sweeps change nothing; {wider}"


@recipe("Winn & Bishop 2005; Khan & Rue 2021, section 5.2")
def vmp(tolerance: float = 1e-8, restarts: int = 1) -> Vmp:
    r"""Variational message passing on a graph or a NumPyro program: coordinate ascent of the bound by exact messages.

    \[ \lambda_k \leftarrow \nabla_{\mu_k} E_q[\log p] / T, \qquad
       \mathcal L = E_q[\log p]/T + H(q) \]

    for one shared variable at a time (variables without a common factor together), with the latents
    of the rows optimal before each. It is the rule with ρ = 1 for each variable, and the bound never falls. A
    sweep is one gradient over all rows for each group of variables, without samples. Once the bound has stopped rising,
    further steps change nothing and cost nothing.

    After six sweeps every third starts from an extrapolation of the two before, which is undone if its bound is lower
    (`SQUAREM`); factor models with a `lamu.graphs.Rotation` have none.

    Departures from the rule: the extrapolation, which changes where sweeps start and not where they end.

    Args:
        tolerance: the rise of the bound in a sweep at which a run has converged, in nats per row.
        restarts: number of random restarts in parallel; the posterior is the one with the best bound. If rows have
            latent categories or states, or topics, each restart begins with the best of eight short ones.

    Returns:
        The algorithm. Its posterior is a product of the variables' beliefs; `evidence` is the bound.

    Raises:
        TypeError: (when it runs) for a model that is neither a `lamu.Graph` nor of `lamu.from_numpyro`, or one
            with a likelihood or a site that is not conjugate.
        ValueError: for a negative tolerance, or no restart.

    Source: Winn & Bishop (2005), sections 2 and 3; Khan & Rue (2021), section 5.2; Varadhan & Roland (2008), sections
    3 and 5, for the extrapolation.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu import graphs
        >>> from lamu.families import Gamma
        >>> def level(m):
        ...     noise = m.sample("noise", Gamma(1.0, 1.0))
        ...     mean = m.sample("mean", graphs.Normal(0.0, precision=0.01))
        ...     with m.rows():
        ...         m.sample("y", graphs.Normal(mean, precision=noise))
        >>> posterior = lamu.fit(lamu.Graph(level), {"y": jnp.array([2.0, 3.0, 4.0])}, lamu.algorithms.vmp()).posterior
        >>> round(float(posterior.mean["network"]["mean"]), 1)
        3.0
    """
    return Vmp(tolerance, restarts)


_LARGEST = 1.0  # step of a dispersion, mostly the log of a scale


@record
class Ncvmp(Vmp):
    """Algorithm of `ncvmp`."""

    learning_rate: float = 0.5

    exact = False

    @property
    def choices(self) -> Choices:
        return Choices("product of conjugate families", "Quadrature", "none needed", "straight, ρ a factor")

    def _moved(self, kind: Any, old: Belief, natural: Statistics) -> Belief:
        # Returns the belief after the step at the rate, retracted if the straight step has no positive precision.
        before = old.to_natural()
        step = tree.add(natural, kind(*jax.tree.leaves(before)), -1.0)
        straight = tree.add(kind(*jax.tree.leaves(before)), step, self.learning_rate).belief()
        if not isinstance(old, Gaussian | MultivariateNormal):
            return straight
        direction = jax.tree.unflatten(jax.tree.structure(before), jax.tree.leaves(step))
        bent, inside = old.retract(direction, self.learning_rate), jnp.isfinite(straight.log_partition())
        return jax.tree.map(lambda inner, outer: jnp.where(inside, inner, outer), straight, bent)

    def _dispersions(self, objective: Objective, statistics: Statistics, batch: Batch, dispersions: Params) -> Params:
        # Returns the dispersions after a step of Fisher scoring at the rate.
        if not dispersions:
            return dispersions
        loss = ConjugateLoss(objective, batch, {}, {})
        gradient = jax.grad(lambda own: loss.at(statistics, dispersions=own))(dispersions)
        after = dispersion_step(objective, dispersions, gradient, self.learning_rate)
        # The step upwards grows with the square of a residual over the noise, and may end where the data say nothing.
        return jax.tree.map(lambda old, new: jnp.clip(new, old - _LARGEST, old + _LARGEST), dispersions, after)


@recipe("Knowles & Minka 2011, algorithm 1; Khan & Rue 2021, section 5.4")
def ncvmp(learning_rate: float = 0.5, tolerance: float = 1e-8, restarts: int = 1) -> Ncvmp:
    r"""Non-conjugate variational message passing on a graph with non-conjugate likelihoods.

    \[ \lambda_k \leftarrow (1 - \rho)\, \lambda_k + \rho\, \nabla_{\mu_k} E_q[\log p] / T \]

    for one variable at a time, as `vmp`, and then for the dispersions that likelihoods learn, a point, by a
    step of Fisher scoring at the same rate. A likelihood of a sum or a product of variables,
    `Poisson()(x @ w)`, has its expectation by Gauss–Hermite quadrature entry by entry (`lamu.graphs.Quadrature`), so
    that E log p is a function of μ; through exact factors the messages are those of `vmp`. The bound may fall in a
    sweep if ρ is large. Precisions stay positive if the log likelihood is concave. Otherwise, as for a Student t,
    a step that would leave the domain is replaced by the second-order retraction of Lin, Schmidt &
    Khan (2020), which agrees with it to O(ρ²).

    Cost of a sweep: one gradient over all rows for each group of variables, and twenty densities a row for each
    likelihood.

    Departures from the rule: the retraction, if the straight step has no positive precision.

    Args:
        learning_rate: ρ in (0, 1].
        tolerance: the change of the bound in a sweep at which a run has converged, in nats per row.
        restarts: number of random restarts in parallel; the posterior is the one with the best bound.

    Returns:
        The algorithm. Its posterior is a product of the variables' beliefs; `evidence` is the bound.

    Raises:
        TypeError: (when it runs) for a model that is not a `lamu.Graph`, or networks in it.
        ValueError: for a rate outside (0, 1], a negative tolerance, or no restart.

    Source: Knowles & Minka (2011), algorithm 1 and section 4; Khan & Rue (2021), section 5.4.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.families import MultivariateNormal
        >>> def counts(m):
        ...     w = m.sample("w", MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
        ...     with m.rows():
        ...         m.sample("y", lamu.likelihoods.Poisson()(m.data("x") @ w))
        >>> data = {"x": jnp.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), "y": jnp.array([1, 2, 8])}
        >>> posterior = lamu.fit(lamu.Graph(counts), data, lamu.algorithms.ncvmp()).posterior
        >>> round(float(posterior.mean["network"]["w"][1]), 1)
        1.0
    """
    if not 0.0 < learning_rate <= 1.0:
        raise ValueError(f"learning_rate={learning_rate!r} is not a rate of the rule; give a number above 0, at most 1")
    return Ncvmp(tolerance, restarts, float(learning_rate))


@record
class EmState(Sweeps):
    """The point of every restart, along a leading axis, and the progress of its log density."""

    theta: dict[str, Params]  # the shared variables by name
    log_density: Array  # of data and point before the last step, over T, in nats

    @property
    def left(self) -> Array:
        """The rise of all further steps, in nats."""
        # Steps of EM shrink slowly if latents are uncertain. Rises below rounding have no meaningful ratio.
        none = self.settled | ~jnp.isfinite(self.before)
        return jnp.where(none, self.residual, _distance(self.residual, self.before))


@record
class Em(CoordinateAscent):
    """Algorithm of `em`."""

    @property
    def choices(self) -> Choices:
        return Choices("point, times exact conditionals", "Exact", "none needed", "straight, ρ = 1")

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> EmState:
        # Returns the mode after one update from random latents, for every restart; for mixtures the best of several.
        graph = message_target(objective.model)
        graph.require_messages("em()")
        beliefs = graph.starts(key, batch, objective.temperature, self.restarts)
        theta = jax.vmap(lambda restart: {name: belief.mean for name, belief in restart.items()})(beliefs)
        lowest = jnp.full(self.restarts, -jnp.inf, batch.weight.dtype)
        return EmState(**vars(Sweeps.start(theta, lowest)), theta=theta, log_density=lowest)

    def step(self, key: RandomKey, state: EmState, batch: Batch, objective: Objective) -> tuple[EmState, Info]:
        # Returns the state after one expectation and one maximisation; converged restarts do not change.
        new = step_unconverged(state, lambda restart: self._improved(restart, batch, objective))
        best = jnp.argmax(new.log_density)
        residual = jnp.sqrt(2 * jnp.maximum(new.left[best], 0.0))
        return new, Info(-new.log_density[best] / objective.concentration, residual)

    def _improved(self, state: EmState, batch: Batch, objective: Objective) -> EmState:
        graph: Any = objective.model
        theta, value = state.theta, state.log_density
        for number, names in enumerate(graph.blocks):
            energy, natural = messages(objective, graph.values(theta), names, batch)
            value = energy.astype(value.dtype) if number == 0 else value
            modes = {name: natural[name].mode() for name in names}
            theta = {
                **theta,
                **jax.tree.map(lambda new, old: new.astype(old.dtype), modes, {n: theta[n] for n in names}),
            }
        rise = value - state.log_density
        # The rise to a trial is not that of a step.
        residual = jnp.where(state.ascent.is_trial, state.residual, rise)
        before, noise = state.ascent.before(state.residual, residual, 2), state.ascent.noise_after(-rise)
        ascent = state.ascent.swept(state.theta, rise <= self.smallest_rise(value, batch), noise)
        swept = EmState(residual, before, ascent.calm >= CALM, ascent, theta, value)
        back = lambda moved: graph.constraints.constrain(moved)[0]
        sane = state.ascent.is_sane(rise, _LOST * _rounding(state.log_density))
        return extrapolated("theta", state, swept, rise >= -noise, sane, graph.constraints.unconstrain, back)

    def posterior(self, key: RandomKey, state: EmState, objective: Objective, data: Data, trace: Trace) -> Posterior:
        # Returns the point θ of the best restart.
        state = _best("theta", state, state.log_density)
        measured = None
        if not isinstance(state.left, Tracer) and bool(jnp.isfinite(state.left)):
            # The loss that a Newton step would still gain is half the square of a residual.
            left = jnp.maximum(state.left, 0.0)
            size = max(tree.dimension(state.theta), 1)
            noise = state.ascent.noise
            is_rounded = bool(noise > left)
            remedy = _rounded(left) if is_rounded else "take more steps, with steps="
            residual = _resolved(jnp.sqrt(2 * (left + noise)), size, is_rounded)
            measured = Convergence(residual=residual, dimension=size, remedy=remedy)
        return Posterior(
            message_target(objective.model).of_theta().fitted_to(objective.data_size),
            Point({"network": state.theta, "likelihood": {}}),
            {},
            GraphRule(),
            key,
            convergence=measured,
            temperature=objective.temperature,
        )


@recipe("Dempster, Laird & Rubin 1977; Neal & Hinton 1998")
def em(tolerance: float = 1e-8, restarts: int = 1) -> Em:
    r"""Expectation maximisation on a graph: a point θ for its shared variables, exact conditionals of the latents.

    \[ q(z_i) = p(z_i \mid x_i, \theta)^{1/T}, \qquad
       \theta_k \leftarrow \arg\max_{\theta_k} \langle \nabla_{T(\theta_k)} E_q[\log p],\, T(\theta_k) \rangle \]

    for one variable at a time (variables without a common factor together): every maximisation is the mode of a
    conjugate belief. The log density of data and point never falls. A temperature above one smooths the latents
    (deterministic annealing). A step is one gradient over all rows for each group of variables, without samples.

    Steps are extrapolated as those of `vmp`, in the real coordinates of θ.

    Departures from the rule: the shared variables are a point, the limit of a belief without variance, the step to it
    is an argmax, and the extrapolation.

    Args:
        tolerance: the rise of the log density in a step at which a run has converged, in nats per row.
        restarts: number of random restarts in parallel; the posterior is the one with the best log density.

    Returns:
        The algorithm. Its posterior is the point θ, a maximum of the posterior density; of the likelihood if priors
        are flat. The fit reports which components of a mixture hold less than one row.

    Raises:
        TypeError: (when it runs) for a model that is neither a `lamu.Graph` nor of `lamu.from_numpyro`, or one
            with a likelihood or a site that is not conjugate.
        ValueError: for a negative tolerance, or no restart.

    Source: Dempster, Laird & Rubin (1977); Neal & Hinton (1998), section 2; Khan & Rue (2021), section 3; Varadhan &
    Roland (2008), sections 3 and 5, for the extrapolation.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu import graphs
        >>> from lamu.families import Gamma
        >>> def counts(m):
        ...     rate = m.sample("rate", Gamma(1.0, 1e-6))
        ...     with m.rows():
        ...         m.sample("y", graphs.Poisson(rate))
        >>> posterior = lamu.fit(lamu.Graph(counts), {"y": jnp.array([2, 3, 4])}, lamu.algorithms.em()).posterior
        >>> round(float(posterior.mean["network"]["rate"]), 4)
        3.0
    """
    return Em(tolerance, restarts)


@recipe("Hoffman et al. 2013, equation 26")
def svi(learning_rate: RateLike | None = None, kappa: float | None = None, delay: float = 1.0) -> NaturalRule:
    r"""Stochastic variational inference on a conjugate model, or on a graph.

    \[ \lambda \leftarrow (1 - \rho_t)\,\lambda
       + \rho_t \Big( \lambda_0 + \frac{N}{B} \sum_{i \in B} w_i t(y_i) \Big) \]

    (at T = 1): the rule, with an exact expectation for a minibatch that represents all N rows. With \(\rho_t =
    1/(1 + t)\), the default for a `lamu.ConjugateModel` and for variables without common factors, λ is the average of
    the batches' messages, and after every epoch of equal batches the posterior itself; `lamu.fit` divides arrays into
    equal batches of at most `batch_size` rows. Otherwise the default is \(\rho_t = 4/(t + 7)\), which forgets the first
    steps, when the parts of the belief were far from each other (`lamu.natural_rule.FallingRate`).

    On a `lamu.Graph` it is the same step for the shared variables, \(\lambda \leftarrow (1 - \rho_t) \lambda + \rho_t
    \nabla_\mu E_q[\log p]\), with optimal latents of the batch's rows, ρ = 1. One gradient in μ a step.

    A mixture begins with the best of sixteen starts, after forty sweeps of coordinate ascent over at most 2,000 rows
    of the first batch: once ρ has fallen, a component that started between two groups of rows would stay there.

    Likelihoods of computed outputs have their expectation by quadrature. Dispersions that they learn are a point,
    updated by Fisher scoring at the same ρ. If the log density is not concave, such as a Student t's, a step
    that would leave the positive precisions is replaced by the second-order retraction of Lin, Schmidt &
    Khan (2020), which agrees with it to O(ρ²).

    Departures from the rule: the minibatch, and the retraction if the straight step has no positive
    precision.

    Args:
        learning_rate: ρ, a number, a schedule of steps, or `Annealed`; at most one, so that λ stays in the domain.
            \((\tau + t)^{-\kappa}\) where None.
        kappa: κ, above one half and at most one: how fast old batches are forgotten. With one, a graph of several
            variables forgets its start too slowly. Where None, the rate depends on the target, as above.
        delay: τ, at least one: the larger, the less the first steps count.

    Returns:
        The algorithm. The `evidence` of its posterior is the bound over all rows, if these are in memory.

    Raises:
        TypeError: (when it runs) for a model that is neither a `lamu.ConjugateModel`, a `lamu.Graph` nor a
            `lamu.from_numpyro` program whose sites are all conjugate.
        ValueError: for κ or τ outside their ranges.

    Source: Hoffman, Blei, Wang & Paisley (2013), equation 26; Khan & Rue (2021), section 5.3.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.closed_form.message_passing import svi
        >>> model = lamu.ConjugateModel(lamu.observations.Bernoulli(), lamu.families.Beta(1.0, 1.0))
        >>> posterior = lamu.fit(model, {"y": [1, 1, 0, 1]}, svi(), epochs=2, batch_size=2).posterior
        >>> round(float(posterior.mean["network"]), 4)
        0.6667
    """
    if kappa is not None and not 0.5 < kappa <= 1.0:
        raise ValueError(f"kappa={kappa!r} breaks the Robbins–Monro conditions; give a number above 0.5, at most 1")
    if not delay >= 1.0:
        raise ValueError(f"delay={delay!r} gives a first rate above one; give at least 1")
    if learning_rate is not None:
        chosen = rate(learning_rate)
    else:
        chosen = FallingRate(float(delay)) if kappa is None else PolynomialDecay(float(kappa), float(delay))
    return NaturalRule(ConjugateParameters(), Analytic(), chosen, Guarded())


@recipe("Khan & Lin 2017, algorithm 1; Khan & Rue 2021, section 5.4")
def cvi(learning_rate: RateLike | None = None, pairs: int = 8) -> NaturalRule:
    r"""Conjugate-computation variational inference on a NumPyro program.

    \[ \lambda \leftarrow (1 - \rho)\, \lambda + \rho\, \nabla_\mu E_q[\log p(\theta, D)] / T \]

    For a site that is conjugate in all its factors the gradient is the exact message given the others, averaged over
    samples of those. All other sites share one Gaussian of their real coordinates with a full covariance, whose
    gradient is that of Bonnet and Price, \(E_q[\nabla \log p]\) and \(E_q[\nabla^2 \log p]\), with Hessians at samples.

    If the posterior in these coordinates is not Gaussian (a scale of groups, a truncation), the belief is too narrow;
    `fit.convergence.divergence` measures it, and beyond its limit a warning (`lamu.Unconverged`) names the variables.

    Departures from the rule: the retraction, which keeps precisions positive; it is the rule to O(ρ²).

    A step takes 2 · `pairs` Hessians over the real coordinates, D gradients each, and four gradients for each conjugate
    site and pair. The belief's matrix takes \(D^2\) numbers.

    Args:
        learning_rate: ρ, a number, a schedule of steps, or `Annealed`; where None 0.3 for a hundred
            steps, which forget the start, and then 3/(t − 90), which averages the noise of samples and batches.
        pairs: antithetic pairs of samples a step.

    Returns:
        The algorithm. The `evidence` of its posterior is the bound, over 256 samples.

    Raises:
        TypeError: (when it runs) for a model that is not of `lamu.from_numpyro`.
        ValueError: for fewer than one pair.

    Source: Khan & Lin (2017), "Conjugate-computation variational inference", algorithm 1; Khan & Rue (2021), section
    5.4; Lin, Schmidt & Khan (2020) for the retraction.

    Examples:
        >>> import jax.numpy as jnp, lamu, numpyro, numpyro.distributions as dist
        >>> def program(y):
        ...     p = numpyro.sample("p", dist.Beta(1.0, 1.0))
        ...     with numpyro.plate("rows", len(y)):
        ...         numpyro.sample("y", dist.Bernoulli(p), obs=y)
        >>> target = lamu.from_numpyro(program, {"y": jnp.array([1.0, 1.0, 0.0, 1.0])}, rows="rows")
        >>> posterior = lamu.fit(target, None, lamu.algorithms.cvi(), steps=100).posterior
        >>> round(float(posterior.mean["network"]["p"]), 3)
        0.667
    """
    pairs = whole_number("pairs", pairs, problem="cannot be averaged")
    from lamu.natural_rule.program_parameters import (
        ProgramMessages,  # NumPyro is imported where a program is used
        ProgramParameters,
    )

    chosen = PolynomialDecay(delay=10.0, scale=3.0, hold=100.0) if learning_rate is None else learning_rate
    return NaturalRule(ProgramParameters(), ProgramMessages(pairs), rate(chosen), Retraction())
