"""Variational last layers without sampling: features trained on a closed-form bound, and a Gaussian about the head."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

from lamu import tree
from lamu.algorithms.optimisers import Optimizer, optax_step, optimiser_or
from lamu.base.arguments import require
from lamu.data.batch import Batch, with_offset
from lamu.families import Gaussian, Point, Product
from lamu.model import Model, supervised
from lamu.objective import Objective
from lamu.operators import Diagonal, OutputBlocks
from lamu.posterior import Posterior
from lamu.predictives import Linearised
from lamu.predictives.gaussian import head_features, head_size, output_units, require_head
from lamu.priors import independent_normal
from lamu.protocol import Choices, Info, Runnable, recipe
from lamu.rate import Annealed, Rate, RateLike, rate
from lamu.record import record, static
from lamu.typing import Array, Data, Number, Numeric, Params, RandomKey, State, Trace

__all__ = ["DenseHead", "DiagonalHead", "HeadState", "VariationalHead", "expected_log_likelihood", "variational_head"]


@record
class DenseHead:
    r"""A full covariance matrix for each output: L is lower triangular, with the logarithm of its diagonal stored.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.algorithms import DenseHead
        >>> raw = DenseHead().init({"kernel": jnp.zeros((2, 1))}, 0.5)
        >>> DenseHead().quadratic_form(raw, jnp.array([[2.0, 0.0]])).round(6).tolist()
        [[1.0]]
    """

    def init(self, head: Params, scale: Numeric) -> Array:
        """Returns coordinates with the logarithm of the scale in the diagonals, `[outputs, in, in]`."""
        width, outputs = head_size(head)
        dtype = jax.tree.leaves(head)[0].dtype
        eye = jnp.eye(width, dtype=dtype) * jnp.log(jnp.asarray(scale, dtype))
        return jnp.broadcast_to(eye[None], (outputs, width, width))

    def quadratic_form(self, raw: Array, phi: Array) -> Array:
        """Returns the squared lengths of Lᵀφ."""
        return jnp.sum(jnp.einsum("kij,ni->nkj", _root(raw), phi) ** 2, axis=-1)

    def variance(self, raw: Array) -> Array:
        """Returns the squared lengths of the rows of L."""
        return jnp.sum(_root(raw) ** 2, axis=-1)

    def entropy(self, raw: Array) -> Array:
        """Returns the sum of the logarithms of the diagonals plus the constant."""
        return _entropy(jnp.diagonal(raw, axis1=1, axis2=2))

    def precision(self, raw: Array, head: Params) -> OutputBlocks:
        """Returns one matrix for each output."""
        eye = jnp.eye(raw.shape[-1], dtype=raw.dtype)
        return OutputBlocks(jax.vmap(lambda root: cho_solve((root, True), eye))(_root(raw)))


@record
class DiagonalHead:
    r"""Independent weights; the coordinates are the logarithms of their standard deviations.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.algorithms import DiagonalHead
        >>> raw = DiagonalHead().init({"kernel": jnp.zeros((2, 1))}, 0.5)
        >>> DiagonalHead().precision(raw, {"kernel": jnp.zeros((2, 1))}).values["kernel"].round(6).ravel().tolist()
        [4.0, 4.0]
    """

    def init(self, head: Params, scale: Numeric) -> Array:
        """Returns the logarithm of the scale, `[outputs, in]`."""
        width, outputs = head_size(head)
        dtype = jax.tree.leaves(head)[0].dtype
        return jnp.full((outputs, width), jnp.log(jnp.asarray(scale, dtype)), dtype)

    def quadratic_form(self, raw: Array, phi: Array) -> Array:
        """Returns the weighted sums of squared features."""
        return phi**2 @ jnp.exp(2 * raw).T

    def variance(self, raw: Array) -> Array:
        """Returns the squares of the deviations."""
        return jnp.exp(2 * raw)

    def entropy(self, raw: Array) -> Array:
        """Returns the sum of the logarithms plus the constant."""
        return _entropy(raw)

    def precision(self, raw: Array, head: Params) -> Diagonal:
        """Returns one precision for each weight."""
        return Diagonal(tree.ravel(head)[1](jnp.ravel(jnp.exp(-2 * raw).T)))


def _root(raw: Array) -> Array:
    diagonal = jnp.exp(jnp.diagonal(raw, axis1=1, axis2=2))
    return jnp.tril(raw, -1) + jax.vmap(jnp.diag)(diagonal)


def _entropy(logs: Array) -> Array:
    return jnp.sum(logs) + logs.size / 2 * (1 + math.log(2 * math.pi))


_ROWS = 1024  # rows at a time in the pass at the end


@record
class HeadState:
    """State carried between steps."""

    count: Numeric  # steps taken
    # "features" (the weights below the head), "mean" and "raw" (the belief about the head) and "likelihood".
    params: Params
    optimizer: State  # the optax state


@record
class VariationalHead(Runnable):
    """Algorithm of `variational_head`."""

    optimizer: Optimizer = static()  # an optax gradient transformation
    covariance: DenseHead | DiagonalHead = DenseHead()  # structure of the belief about the head
    init_scale: Number = 0.1  # the initial standard deviation of the head's weights
    factor: Rate = Annealed(1.0)  # factor of every update

    @property
    def choices(self) -> Choices:
        kind = "a matrix an output" if isinstance(self.covariance, DenseHead) else "diagonal covariance"
        departures = ("descent on the bound", "features a point", "a bound for classes", "dispersions a point")
        return Choices(f"Gaussian, {kind}, last layer", "closed form", "none", departures=departures)

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> HeadState:
        # Returns the network's weights, and a narrow belief around the head's initial weights.
        model = supervised(objective.model)
        _require_task(model)
        params, network_state = model.init(key, batch)
        if jax.tree.leaves(network_state):
            raise TypeError(
                "variational_head() needs a network without a state (batch statistics): its bound is a sum over rows; "
                "use last_layer(), or a network without BatchNorm"
            )
        head, features = _split(model, params["network"])
        if independent_normal(model.free_prior, head) is None:
            name = type(model.prior).__name__
            raise TypeError(f"variational_head() needs an independent normal head, not {name}; give Normal(scale)")
        outputs = model.likelihood.outputs(batch.y)
        require_head(_frozen_but_head(model, features), head, network_state, batch.x, outputs, "variational_head()")
        raw = self.covariance.init(head, self.init_scale)
        moved = {"features": features, "mean": head, "raw": raw, "likelihood": params["likelihood"]}
        return HeadState(jnp.zeros((), jnp.int32), moved, self.optimizer.init(moved))

    def step(self, key: RandomKey, state: HeadState, batch: Batch, objective: Objective) -> tuple[HeadState, Info]:
        # Returns the state after one descent step on the bound.

        def loss(params: Params) -> Array:
            count = jnp.maximum(batch.count, 1)
            data = self._data(params, objective, batch)
            return -data / count.astype(data.dtype) + self._row_free_terms(params, objective) / objective.data_size

        value, gradient = jax.value_and_grad(loss)(state.params)
        params, optimizer = optax_step(
            self.optimizer, gradient, state.optimizer, state.params, value, loss, self.factor(state.count)
        )
        norm = jnp.sqrt(tree.dot(gradient, gradient))
        return HeadState(state.count + 1, params, optimizer), Info(value, norm)

    def posterior(self, key: RandomKey, state: HeadState, objective: Objective, data: Data, trace: Trace) -> Posterior:
        # Returns the Gaussian about the head above frozen features; with data, its evidence is the bound.
        params = state.params
        model = _frozen_but_head(supervised(objective.model), params["features"])
        gaussian = Gaussian(params["mean"], self.covariance.precision(params["raw"], params["mean"]))
        belief = Product({"network": gaussian, "likelihood": Point(params["likelihood"])})
        posterior = Posterior(model, belief, {}, Linearised(), key, temperature=objective.temperature)
        if data is None:
            return posterior
        total = seen = jnp.zeros((), params["raw"].dtype)
        for batch in data.batches(min(getattr(data, "count", _ROWS), _ROWS)):
            total, seen = total + _summed(self, params, objective, batch), seen + batch.count.astype(seen.dtype)
        total = total * jnp.asarray(objective.data_size / seen, total.dtype)  # as a sum over N rows
        features = model.free_prior.log_prob(params["features"])
        bound = total - self._row_free_terms(params, objective) - features.astype(total.dtype)
        return replace(posterior, evidence=bound / objective.temperature)

    def _data(self, params: Params, objective: Objective, batch: Batch) -> Array:
        r"""Returns the batch's sum \(p \sum_i w_i E_q[\log p(y_i \mid f_i)]\), or a lower bound of it."""
        batch = batch.filled()
        model = _frozen_but_head(supervised(objective.model), params["features"])
        f, phi = head_features(model, params["mean"], {}, batch.x)
        units = output_units(model, params["mean"], {}, batch.x)  # constants, whatever the features
        spread = self.covariance.quadratic_form(params["raw"], phi) * jax.lax.stop_gradient(units)[None] ** 2
        row_values = expected_log_likelihood(model, params["likelihood"], with_offset(f, batch.offset), spread, batch.y)
        return objective.likelihood_power * batch.total(row_values)

    def _row_free_terms(self, params: Params, objective: Objective) -> Array:
        r"""Returns the terms that are not sums over rows: \(-E_q[\log p(\theta)] - T H(q)\), in nats."""
        model, head = supervised(objective.model), params["mean"]
        weights = _join(params["features"], head)
        width, outputs = head_size(head)
        delta = independent_normal(model.free_prior, head)[1]  # pyright: ignore[reportOptionalSubscript]
        rows = tree.ravel(delta)[0].reshape(width, outputs).T
        trace = jnp.sum(rows * self.covariance.variance(params["raw"])) / 2
        log_prior = model.log_prior({"network": weights, "likelihood": params["likelihood"]}).astype(trace.dtype)
        return trace - log_prior - objective.temperature * self.covariance.entropy(params["raw"])


@jax.jit
def _summed(algorithm: VariationalHead, params: Params, objective: Objective, batch: Batch) -> Array:
    return algorithm._data(params, objective, batch)


def expected_log_likelihood(model: Model, dispersion: Params, mean: Array, variance: Array, y: Array) -> Array:
    r"""Returns \(E[\log p(y \mid f)]\) for independent outputs \(f_k \sim N(m_k, v_k)\), or a lower bound."""
    # Exact for a Gaussian likelihood, \(\log p(y \mid m) - \tfrac12 \sum_k \Lambda_{kk} v_k\). For classes, by Jensen's
    # inequality for the normaliser alone, \(m_y - \log \sum_k e^{m_k + v_k / 2}\); for one logit likewise with a second
    # class whose logit is zero.
    #
    # Source: Harrison, Willes & Snoek (2024), theorems 1 and 2.
    likelihood = model.likelihood
    if likelihood.quadratic:
        information = jnp.diagonal(likelihood.information(dispersion, mean), axis1=1, axis2=2)
        return likelihood.log_prob(dispersion, mean, y) - jnp.sum(information * variance, axis=1) / 2
    raised = likelihood.log_prob(dispersion, mean + variance / 2, y)
    if mean.shape[1] == 1:
        return raised - jnp.reshape(y, mean.shape[:1]).astype(mean.dtype) * variance[:, 0] / 2
    own = jax.nn.one_hot(jnp.reshape(y, mean.shape[:1]).astype(jnp.int32), mean.shape[1], dtype=mean.dtype)
    return raised - jnp.sum(own * variance, axis=1) / 2


def _require_task(model: Model) -> None:
    likelihood = model.likelihood
    if not (likelihood.quadratic or likelihood.logits):
        raise TypeError(
            f"variational_head() has a bound for Gaussian, Bernoulli and Categorical with logits, not for "
            f"{likelihood.name}; use last_layer() or ivon()"
        )


def _split(model: Model, weights: Params) -> tuple[Params, Params]:
    """Returns the head's weights and all others, each with None for the other's leaves."""
    inside = lambda path: tree.matches(path, model.network.head)
    head = tree.map_with_path(lambda path, leaf: leaf if inside(path) else None, weights)
    return head, tree.map_with_path(lambda path, leaf: None if inside(path) else leaf, weights)


def _join(features: Params, head: Params) -> Params:
    return jax.tree.map(lambda a, b: b if a is None else a, features, head, is_leaf=lambda node: node is None)


def _frozen_but_head(model: Model, features: Params) -> Model:
    """Returns the model with every weight frozen but the head's."""
    if not jax.tree.leaves(features):
        return model
    frozen = features if model.frozen is None else _join(features, model.frozen)
    return replace(model, frozen=frozen)


@recipe("Harrison, Willes & Snoek 2024")
def variational_head(
    optimizer: Optimizer | None = None,
    covariance: Any = None,
    init_scale: Number = 0.1,
    factor: RateLike = Annealed(1.0),
) -> VariationalHead:
    r"""Variational Bayesian last layers: a Gaussian about the head, with features trained on a bound without sampling.

    With \(\phi_\theta(x)\) the features and \(q(W) = \prod_k N(w_k \mid m_k, S_k)\), descent by an optax optimiser on

    \[ \bar{\mathcal L} = -\frac1N \sum_i w_i\, E_q\big[\log p(y_i \mid W^\top \phi_\theta(x_i))\big]
       + \frac1N \Big( E_q[-\log p(W)] - T\, H(q) - \log p(\theta) \Big) \]

    in θ, m, S and the dispersions together. The expectation has a closed form if the likelihood is Gaussian, and a
    lower bound in closed form for classes, \(E_q[\log p(y \mid f)] \ge m_y^\top\phi - \log \sum_k \exp(m_k^\top\phi +
    \tfrac12 \phi^\top S_k \phi)\). With frozen features and known Gaussian noise its optimum is exact Bayesian
    regression. One gradient a step, and \(F^2\) operations an output and row for a head of F inputs.

    The posterior is the Gaussian above frozen features, and predicts in closed form (Gaussian likelihood), by
    quadrature (one logit) or by samples of the logits; `lamu.predictives` has other rules. Its `evidence` is the bound,
    without the features' prior.

    Departures from the rule: descent on the belief's parameters instead of natural gradients; features and
    dispersions are a point; for classes the objective is a lower bound of the ELBO.

    Args:
        optimizer: an optax gradient transformation; `optax.adam(0.01)` where None.
        covariance: `DenseHead()`, the default, or `DiagonalHead()`.
        init_scale: the initial standard deviation of the head's weights.
        factor: factor of every update: a number, a schedule of steps, or `Annealed`, which falls to zero
            over the run; at a constant rate, means and deviations jitter.

    Returns:
        The algorithm. Its posterior's model has every weight frozen but the head's.

    Raises:
        TypeError: if an argument is not an optimiser or covariance, and, when it runs, for a network with a state, a
            head that is not a dense layer, another likelihood, or a prior that is not normal.
        ValueError: for an initial deviation that is not positive.

    Source: Harrison, Willes & Snoek (2024), "Variational Bayesian last layers", sections 3.1 and 3.2.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.MLP((16,)), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.variational_head(), epochs=20).posterior
        >>> lamu.scores.nll(posterior.predict(x), y) < 0.12
        True
    """
    optimizer = optimiser_or(optimizer, "adam", 0.01)
    covariance = DenseHead() if covariance is None else covariance
    if isinstance(covariance, type):
        raise TypeError(f"covariance={covariance!r} is a class; give an object, for instance DenseHead()")
    require(init_scale > 0, f"init_scale={init_scale!r} is not a deviation of a belief; give a positive number")
    return VariationalHead(
        optimizer,
        covariance,
        init_scale if not isinstance(init_scale, int) else float(init_scale),
        rate(factor, "factor"),
    )
