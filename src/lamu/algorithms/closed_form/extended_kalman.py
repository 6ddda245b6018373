"""Kalman filtering of weights: Bayes' rule for one batch at a time, linearised at the mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lamu import memory, tree
from lamu.base.arguments import require
from lamu.base.compile_once import full_products
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.expectations import Exact
from lamu.families import Gaussian, Point, Product
from lamu.model import Model
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import GaussNewton
from lamu.operators import Dense
from lamu.posterior import Posterior
from lamu.predictives import Linearised
from lamu.priors import gaussian_belief
from lamu.protocol import Choices, Info, Runnable, Traits, recipe
from lamu.record import record
from lamu.rule import gaussian_step
from lamu.typing import Array, Data, Number, Numeric, Params, RandomKey, State, Trace

__all__ = [
    "ExtendedKalman",
    "ExtendedKalmanState",
    "extended_kalman",
    "first",
    "kalman_update",
    "update",
    "with_row_share",
]


@record
class ExtendedKalmanState:
    """The belief after the rows seen so far."""

    mean: Params  # m, the weights
    covariance: Array  # P `[D, D]`, in the coordinates of `lamu.tree.ravel`
    start: Params  # m before any row
    network_state: State  # the network's state, which does not change
    rows: Numeric  # number of rows seen


@record
class ExtendedKalman(Runnable):
    """Algorithm of `extended_kalman`."""

    drift: Number = 0.0  # the variance added to every weight per row

    def __post_init__(self) -> None:
        possible = (self.drift >= 0) & (self.drift < math.inf)
        require(possible, f"drift={self.drift!r} is not a variance; give zero, or a small positive number a row")

    @property
    def traits(self) -> Traits:
        # Every row exactly once.
        return Traits(batching="once")

    @property
    def choices(self) -> Choices:
        departures = ("Gauss-Newton for the Hessian", "one pass over the rows", "shortened steps")
        return Choices("Gaussian, dense precision", "Delta", "GaussNewton", departures=departures)

    def check_memory(self, objective: Objective, shapes: Callable[[], Params]) -> None:
        # Raises a ValueError if the covariance does not fit in memory, a TypeError if the model has none.
        super().check_memory(objective, shapes)
        params = shapes()
        _require_known_noise(objective, params)
        weights = tree.dimension(params["network"])
        bytes_held = 4 * weights**2 * jnp.result_type(*jax.tree.leaves(params["network"])).itemsize
        if bytes_held > memory.limit():
            raise ValueError(
                f"the covariance of {weights:,} weights takes {bytes_held / 1e9:,.1f} GB with its updates, and there "
                f"are {memory.limit() / 1e9:,.1f}; choose a smaller network, freeze all but a few layers, or use ivon()"
            )

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> ExtendedKalmanState:
        # Returns the prior's covariance around the prior's mean, or, with hidden units, around the initial weights.
        params, network_state = objective.model.init(key, batch)
        prior = _prior(objective, params)
        start = prior.mean if objective.model.network.linear else params["network"]
        return ExtendedKalmanState(
            mean=start,
            covariance=jnp.linalg.inv(prior.precision.dense(prior.mean)),
            start=start,
            network_state=network_state,
            rows=jnp.zeros_like(batch.count),
        )

    def step(
        self, key: RandomKey, state: ExtendedKalmanState, batch: Batch, objective: Objective
    ) -> tuple[ExtendedKalmanState, Info]:
        # Returns the belief after the batch's rows, linearised at the mean before them.
        batch_objective = replace(objective, data_size=jnp.maximum(batch.count, 1))
        loss = BatchLoss(batch_objective, batch, state.network_state, NetworkParameters(), {}, conjugate=True)
        total = batch.count / objective.temperature
        nll = lambda theta: batch_objective.negative_log_likelihood(
            {"network": theta, "likelihood": {}}, batch, state.network_state
        )[0]
        value, gradient = jax.value_and_grad(nll)(state.mean)
        vector, unravel = tree.ravel(tree.scale(gradient, total))
        rows = batch.count.astype(vector.dtype)
        predicted = state.covariance + tree.cast(self.drift, vector) * rows * jnp.eye(len(vector), dtype=vector.dtype)
        root = _root(loss, state.mean, total)
        covariance = kalman_update(predicted, root)
        direction = -covariance @ vector
        slope, whitened_direction = vector @ direction, root @ direction
        # dᵀ P⁻¹ d, with the precision before the rows.
        curvature = jnp.maximum(-slope - whitened_direction @ whitened_direction, 0.0)
        move = unravel(direction)
        energy = lambda t: total * (nll(tree.add(state.mean, move, t)) - value) + curvature * t**2 / 2
        new_state = ExtendedKalmanState(
            mean=tree.add(state.mean, move, _share(energy, slope)),
            covariance=covariance,
            start=state.start,
            network_state=state.network_state,
            rows=state.rows + batch.count,
        )
        return new_state, Info(loss=value)

    def posterior(
        self, key: RandomKey, state: ExtendedKalmanState, objective: Objective, data: Data, trace: Trace
    ) -> Posterior:
        # Returns the Gaussian; the rows are scaled to N if their number differs.
        belief = Gaussian(state.mean, Dense(jnp.linalg.inv(state.covariance)))
        share = objective.data_size / (data.count if isinstance(data, Arrays) else jnp.maximum(state.rows, 1))
        if isinstance(share, Tracer) or float(share) != 1.0:
            prior = _prior(objective, {"network": state.start, "likelihood": {}})
            belief = with_row_share(belief, Gaussian(state.start, prior.precision), share)
        joint = Product({"network": belief, "likelihood": Point({})})
        return Posterior.of(objective, joint, state.network_state, key, Linearised())


@full_products
def kalman_update(covariance: Array, root: Array) -> Array:
    r"""Returns the covariance after an observation, in Joseph's form, which stays symmetric and positive.

    \[ K = P H^\top (I + H P H^\top)^{-1}, \qquad P' = (I - K H)\, P\, (I - K H)^\top + K K^\top \]

    which is \((P^{-1} + H^\top H)^{-1}\). M observations cost \(O(D^2 M + M^3)\), and no factorisation of P.

    Args:
        covariance: P `[D, D]`.
        root: H `[M, D]`, the Jacobian of the observations in units of their noise.

    Source: Bucy & Joseph (1968); Särkkä & Svensson (2023), "Bayesian filtering and smoothing", section 6.3.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.algorithms.closed_form.extended_kalman import kalman_update
        >>> kalman_update(jnp.eye(2), jnp.array([[1.0, 0.0]])).tolist()  # the first coordinate is seen, noise one
        [[0.5, 0.0], [0.0, 1.0]]
    """
    cross = covariance @ root.T
    innovation = jnp.eye(len(root), dtype=root.dtype) + root @ cross
    gain = jnp.linalg.solve(innovation, cross.T).T
    reduced = covariance - gain @ cross.T
    joseph = reduced - (reduced @ root.T) @ gain.T + gain @ gain.T
    return (joseph + joseph.T) / 2


@recipe("Singhal & Wu 1989; Ollivier 2018")
def extended_kalman(drift: Number = 0.0) -> ExtendedKalman:
    r"""The extended Kalman filter of a network's weights: one pass, each batch's posterior the prior of the next.

    \[ P_{t+1}^{-1} = (P_t + \sigma^2 I)^{-1} + \tfrac1T \sum_i J_i^\top \Lambda_i J_i, \qquad
       m_{t+1} = m_t + P_{t+1} \tfrac1T \sum_i \nabla \log p(y_i \mid x_i, m_t) \]

    over the rows of a batch, with the Jacobian J and the likelihood's Fisher information Λ at the old mean. It is the
    rule at rate one with the previous belief as the prior, and Kalman's filter if the network is linear and the
    likelihood Gaussian: then it is the exact posterior, in any order and any batches (`conjugate`). Otherwise it
    linearises once a batch, the order of the rows matters, and the mean's step is halved until the rows' negative log
    likelihood plus \(\tfrac12 (m_{t+1} - m_t)^\top P_t^{-1} (m_{t+1} - m_t)\) falls: where the classes' probabilities
    are near one, a full step would leave every linear region. A run starts
    around the prior's mean if the network is linear in its weights, else around its initial weights, with
    the prior's covariance. Prediction is linearised.

    One Jacobian a batch of B rows with K outputs, \(O(D^2 B K)\) operations, and \(4 D^2\) numbers. To filter later
    rows: `lamu.fit(model.with_prior(posterior), rows, extended_kalman())`.

    Departures from the rule: the Gauss–Newton matrix for the Hessian; one pass over the rows, each batch at
    rate one; shortened steps.

    Args:
        drift: σ², the variance added to every weight per row, for rows whose distribution changes with time. With zero
            all rows have equal weight.

    Returns:
        The algorithm. Its posterior is a dense Gaussian.

    Raises:
        ValueError: for a negative drift, or (when it runs) a covariance that does not fit in memory.
        TypeError: (when it runs) for a likelihood with a dispersion to learn, or a prior that is not Gaussian.

    Source: Singhal & Wu (1989), "Training multilayer perceptrons with the extended Kalman algorithm"; Ollivier (2018),
        "Online natural gradient as a Kalman filter", for likelihoods of exponential families; Skoglund, Hendeby &
        Axehill (2015) for the shortened step.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.extended_kalman(), batch_size=8).posterior
        >>> bool(lamu.scores.accuracy(posterior.predict(x), y) > 0.95)
        True
    """
    return ExtendedKalman(drift)


def _share(energy: Callable[[Array], Array], slope: Array) -> Array:
    """Returns the first of 1, 1/2, 1/4, … at which the energy has fallen (Armijo's condition), zero after twenty."""
    tolerance = 100.0 * jnp.finfo(slope.dtype).eps
    falls = lambda t: energy(t) <= 1e-4 * t * slope + tolerance * (1.0 + jnp.abs(slope))
    full_step = jnp.ones_like(slope)
    halvings = lambda step: (step > 1e-6) & ~falls(step)
    share = jax.lax.while_loop(halvings, lambda step: step / 2.0, full_step)
    return jnp.where(share > 1e-6, share, jnp.zeros_like(share))


def _root(loss: BatchLoss, mean: Params, total: Numeric) -> Array:
    r"""Returns H `[B R, D]` with \(H^\top H = \tfrac1T \sum_i J_i^\top \Lambda_i J_i\)."""
    jacobian = jax.vmap(jax.vmap(lambda row: tree.ravel(row)[0]))(loss.jacobian(mean))
    likelihood = loss.objective.model.likelihood
    f = loss.outputs(mean)
    counts = likelihood.counted({}, f, loss.batch.y, loss.objective.row_factor(loss.batch)) * total
    root = likelihood.information_root({}, f) * jnp.sqrt(counts).astype(jacobian.dtype)[:, None, None]
    whitened = jnp.einsum("bkr,bkd->brd", root, jacobian)
    return whitened.reshape(-1, whitened.shape[-1])


def _prior(objective: Objective, params: Params) -> Gaussian:
    """Returns the Gaussian prior to the power 1/T, with a dense precision."""
    _require_known_noise(objective, params)
    prior = gaussian_belief(objective.model.free_prior, params["network"])
    if prior is None:
        name = type(objective.model.prior).__name__
        raise TypeError(f"extended_kalman() needs a Gaussian prior, not {name}; use ivon(), laplace() or nuts()")
    return Gaussian(prior.mean, Dense(prior.precision.dense(prior.mean)).scale(1 / objective.temperature))


def _require_known_noise(objective: Objective, params: Params) -> None:
    if not isinstance(objective.model, Model):
        raise TypeError(f"extended_kalman() filters a network's weights, not {objective.model.name}; use conjugate()")
    if jax.tree.leaves(params["likelihood"]):
        name = type(objective.model.likelihood).__name__
        raise TypeError(
            f"extended_kalman() needs a known noise, and {name} learns one; give for instance Gaussian(scale=0.5), or "
            "use ivon() or laplace()"
        )


def first(objective: Objective, params: Params) -> tuple[Gaussian, Array]:
    """Returns the prior as a belief at the objective's temperature, and the log of its integral in nats."""
    _require_conjugate(objective, params)
    gaussian = gaussian_belief(objective.model.free_prior, params["network"])
    if gaussian is None:
        name = type(objective.model.prior).__name__
        raise TypeError(f"conjugate() needs a Gaussian prior, not {name}; use nuts(), laplace() or von()")
    precision = Dense(gaussian.precision.dense(gaussian.mean)).scale(1 / objective.temperature)
    prior = Gaussian(gaussian.mean, precision)
    # The prior to the power 1/T is not a normalised density: the evidence starts at its integral.
    peak = objective.model.log_prior({"network": gaussian.mean, "likelihood": {}}) / objective.temperature
    return prior, peak + _log_volume(prior)


def update(
    key: RandomKey, old: Gaussian, evidence: Numeric, network_state: State, batch: Batch, objective: Objective
) -> tuple[Gaussian, Numeric, Numeric]:
    """Returns belief, evidence and mean loss after the batch's rows; the old belief is the prior."""
    batch_objective = replace(objective, data_size=jnp.maximum(batch.count, 1))
    loss = BatchLoss(batch_objective, batch, network_state, NetworkParameters(), {}, conjugate=True)
    evaluated = Exact().evaluate(key, old, loss, GaussNewton(), Dense)
    # An empty batch (all padding) carries no information.
    total = batch.count / objective.temperature
    target = jax.tree.map(jnp.add, evaluated.curvature.scale(total), old.precision)
    new = gaussian_step(old, tree.scale(evaluated.gradient, total), target, rate=1.0)
    step = tree.add(new.mean, old.mean, -1.0)
    energy = total * loss.value(new.mean, {}, None)[0] + tree.dot(step, old.precision.matvec(step)) / 2
    return new, evidence - energy + _log_volume(new) - _log_volume(old), evaluated.value


def with_row_share(belief: Gaussian, prior: Gaussian, share: Numeric) -> Gaussian:
    """Returns the belief with the rows counted `share` times, by a step of the rule from the prior."""
    curvature = tree.add(belief.precision, prior.precision, -1.0)
    gradient = belief.precision.matvec(tree.add(belief.mean, prior.mean, -1.0))  # of the log likelihood, at m0
    target = tree.add(prior.precision, curvature, share)
    return gaussian_step(prior, tree.scale(gradient, -share), target, rate=1.0)


def _log_volume(belief: Gaussian) -> Array:
    dimension = tree.dimension(belief.mean)
    return (dimension * math.log(2 * math.pi) - belief.precision.logdet(belief.mean)) / 2


def _require_conjugate(objective: Objective, params: Params) -> None:
    model = objective.model
    if not model.network.linear:
        name = model.network.name
        raise TypeError(
            f"conjugate() needs a network that is linear in its weights, not {name}; use laplace() or ivon()"
        )
    if not model.likelihood.quadratic:
        name = type(model.likelihood).__name__
        raise TypeError(f"conjugate() needs a Gaussian likelihood, not {name}; use laplace(), von() or nuts()")
    if jax.tree.leaves(params["likelihood"]):
        raise TypeError(
            "conjugate() needs a known noise, Gaussian(scale=...); with a learned one use laplace() or nuts()"
        )
