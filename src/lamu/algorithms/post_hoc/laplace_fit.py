"""Laplace's approximation at a mode: one pass over the data for the curvature, then the evidence and the Gaussian."""

# \[ S = \tfrac1T \Big( p \sum_i w_i J_i^\top \Lambda_i J_i - \nabla^2 \log p(m) \Big), \qquad
#    \log Z \approx -\ell(m)/T + \tfrac{D}{2}\log 2\pi - \tfrac12\log\det S \]
#
# The pass sums curvature, loss and misfit over batches of rows (`row_sums`), also while a network trains. From the
# sums (`RowSums.finish`) the evidence follows for any prior precisions, noise and temperature, without another pass.

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp

from lamu import memory, tree
from lamu.algorithms.post_hoc.ggn_blocks import batch_curvature, by_products, bytes_per_row, evaluated
from lamu.base.compile_once import compiled_once, subkey
from lamu.data.batch import Batch, with_offset
from lamu.families import Gaussian, Point, Product
from lamu.model import Model
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import Curvature, GaussNewton
from lamu.operators import (
    AnyStructure,
    Dense,
    Diagonal,
    KroneckerFactored,
    LowRankStructure,
    MatrixFree,
    OutputEigen,
    Scalar,
)
from lamu.operators.interface import Operator
from lamu.posterior import Posterior
from lamu.predictives import Linearised, TangentDraws
from lamu.priors import gaussian_belief
from lamu.record import record
from lamu.typing import Array, Belief, Data, Numeric, OperatorTree, Params, PyTree, RandomKey, Rows, State

__all__ = [
    "LaplaceFit",
    "RowSums",
    "bytes_held",
    "check_memory",
    "fit_laplace",
    "fit_with_gradient",
    "prior_precision",
    "row_sums",
    "rows_per_pass",
]

_MOST_ROWS = 1024
_COPIES = 3  # of a precision, for its memory: the curvature, the precision, and its factor
_MOST_DISPERSIONS = 64  # whose Hessian is computed, each an evaluation of the density
_MOST_PARTS = 8  # batches' sums that the last program adds up, which saves a separate program


@record
class LaplaceFit:
    """Curvature, loss and misfit at a mode; they give Gaussian and evidence for any prior, noise and temperature."""

    # \[ \log Z(\delta, c, T) = \frac{\log p(D \mid m, c) + \log p(m \mid \delta)}{T} + \frac D2 \log 2\pi
    #    - \frac12 \log\det \frac{\bar c^{-2} H + \Delta}{T} \]
    #
    # with c a factor of the noise deviation of each output, and \(\bar c^{-2}\) the mean of \(c_k^{-2}\), which is
    # exact for one factor. If eigenvalues of H are stored (`decomposed`), a scalar precision needs no
    # factorisation.

    params: Params  # the most probable parameters m
    network_state: State  # the network's state there
    # The curvature per row, in the precision's structure, without the prior; Kronecker factors are
    # decomposed.
    curvature: OperatorTree
    likelihood: Numeric  # \(-p \sum_i w_i \log p(y_i \mid x_i, m)\) in nats, for N rows
    # The part due to the residuals, \(p \sum_i w_i r_{ik}^2 / 2\sigma_k^2\), `[outputs]`; zeros if the
    # likelihood is not quadratic.
    misfit: Rows
    observed: Numeric  # number of observations of each output, \(p \sum_i w_i\)
    # \(-p \sum_i w_i \nabla^2 \log p(y_i \mid x_i, m)\) in the dispersions, `[D, D]`; None where it is not computed.
    dispersion_curvature: Array | None = None
    spectrum: PyTree = None  # eigenvalues of the curvature; None if they are not stored

    def precision(self, objective: Objective) -> OperatorTree:
        """Returns the precision of the weights, in the curvature's structure."""
        return self._hessian(objective).scale(1 / objective.temperature)

    def integrated(self, objective: Objective, key: RandomKey) -> Posterior:
        """Returns the posterior, its evidence with learned dispersions integrated over (`dispersion_volume`)."""
        posterior = self.posterior(objective, key)
        if not jax.tree.leaves(self.params["likelihood"]):
            return posterior
        volume, observed = _dispersion_volume(replace(self, curvature=None, spectrum=None), objective)
        if not observed:
            logging.getLogger("lamu").warning(
                "The curvature of the log density in the dispersions %s is not positive at the mode, so that the "
                "evidence takes their `dispersion_information` instead; train for more epochs.",
                tree.paths(self.params["likelihood"]),
            )
        return replace(posterior, evidence=posterior.evidence + volume.astype(posterior.evidence.dtype))

    def posterior(self, objective: Objective, key: RandomKey) -> Posterior:
        """Returns the posterior, Gaussian about the weights, with its evidence at the dispersions of the mode."""
        gaussian, evidence = _gaussian(objective, replace(self, spectrum=None))
        belief = Product({"network": gaussian, "likelihood": Point(self.params["likelihood"])})
        rule = TangentDraws() if isinstance(self.curvature, MatrixFree) else Linearised()
        return Posterior(
            objective.model, belief, self.network_state, rule, key, evidence=evidence, temperature=objective.temperature
        )

    def log_evidence(
        self,
        objective: Objective,
        precision: PyTree = None,
        noise: Numeric | None = None,
        temperature: Numeric | None = None,
    ) -> Array:
        """Returns the log evidence in nats, differentiable in every argument."""
        # Learned dispersions are fixed: `dispersion_volume` is the term for integrating over them.
        fit = self if noise is None else self.scale_noise(objective, noise)
        mean, T = fit.params["network"], objective.temperature if temperature is None else temperature
        if precision is None:
            return fit._normaliser(T, objective.model.log_prior(fit.params), fit._hessian(objective).logdet(mean))
        gaussian_prior: Belief = gaussian_belief(objective.model.free_prior, mean)
        offset = tree.add(mean, gaussian_prior.mean, -1.0)
        quadratic = tree.dot(offset, jax.tree.map(jnp.multiply, tree.broadcast(precision, mean), offset))
        log_prior = (_sum_of_logs(precision, mean) - quadratic - tree.dimension(mean) * math.log(2 * math.pi)) / 2
        dispersions = objective.model.dispersion_log_prior(fit.params["likelihood"]).astype(log_prior.dtype)
        rows = objective.data_size
        spectrum = jax.tree.map(lambda values: values * tree.cast(rows, values), fit.spectrum)
        logdet = fit.curvature.scale(rows).logdet_plus(precision, mean, spectrum)
        return fit._normaliser(T, log_prior + dispersions, logdet)

    def dispersion_volume(self, objective: Objective, temperature: Numeric | None = None) -> Array:
        r"""Returns the log evidence's term for integrating over learned dispersions \(\phi\), in nats."""
        return self._dispersion_volume(objective, temperature)[0]

    def _dispersion_volume(self, objective: Objective, temperature: Numeric | None = None) -> tuple[Array, Array]:
        """Returns the term, and whether it is by the observed curvature."""
        # Laplace's method in them, \(\tfrac12 \log\det 2\pi H^{-1}\) with H the curvature of the negative log joint
        # density over T. Where that of the rows is not known, or H is not positive, it is diagonal: four times the
        # misfit for the logarithm of a Gaussian's noise, the Fisher information for others. Zero if nothing is learned.
        dispersions = self.params["likelihood"]
        values, unravel = tree.ravel(dispersions)
        if not values.size:
            return jnp.zeros(()), jnp.asarray(True)
        T = objective.temperature if temperature is None else temperature
        log_prior = lambda values: objective.model.dispersion_log_prior(unravel(values))
        prior_curvature = -jax.hessian(log_prior)(values)
        if objective.model.quadratic and values.size == self.misfit.size:
            information = 4 * self.misfit
        else:
            information = self.observed * tree.ravel(objective.model.dispersion_information(dispersions))[0]
        volume = jnp.sum(jnp.log(2 * math.pi * T / (information + jnp.diagonal(prior_curvature)))) / 2
        if self.dispersion_curvature is None:
            return volume, jnp.asarray(True)
        factor = jnp.linalg.cholesky(self.dispersion_curvature + prior_curvature)
        observed = jnp.sum(jnp.log(2 * math.pi * T) / 2 - jnp.log(jnp.diagonal(factor)))
        return jnp.where(jnp.isfinite(observed), observed, volume), jnp.isfinite(observed)

    def scale_noise(self, objective: Objective, factor: Numeric) -> LaplaceFit:
        """Returns the fit with every noise deviation of a quadratic likelihood multiplied by a factor."""
        # With R the misfit and M the number of observations, the likelihood becomes \(R / c^2 + M \log c\), constants
        # aside, and the curvature is divided by c².
        likelihood: Any = objective.model.likelihood
        params = {**self.params, "likelihood": likelihood.scale_noise(self.params["likelihood"], factor)}
        factors = jnp.broadcast_to(jnp.asarray(factor, self.misfit.dtype), self.misfit.shape)
        misfit, shrunk = self.misfit / factors**2, jnp.mean(1 / factors**2)
        value = self.likelihood + jnp.sum(misfit - self.misfit) + self.observed * jnp.sum(jnp.log(factors))
        spectrum = jax.tree.map(lambda values: values * tree.cast(shrunk, values), self.spectrum)
        curvature, in_dispersions = self.curvature.scale(shrunk), self.dispersion_curvature
        if in_dispersions is not None:
            each = factors if len(in_dispersions) == factors.size else shrunk**-0.5
            in_dispersions = in_dispersions / jnp.outer(each, each)
        return replace(
            self,
            params=params,
            curvature=curvature,
            likelihood=value,
            misfit=misfit,
            dispersion_curvature=in_dispersions,
            spectrum=spectrum,
        )

    def decomposed(self) -> LaplaceFit:
        """Returns the fit with the curvature's eigenvalues stored."""
        return replace(self, spectrum=_spectrum(self.curvature))

    def _hessian(self, objective: Objective) -> OperatorTree:
        """Returns the curvature of N rows plus the prior's."""
        mean = self.params["network"]
        return self.curvature.scale(objective.data_size).add_prior(prior_precision(objective, mean), mean)

    def _normaliser(self, temperature: Numeric, log_prior: Array, logdet: Array) -> Array:
        mean = self.params["network"]
        volume = tree.dimension(mean) * jnp.log(2 * math.pi * jnp.asarray(temperature, logdet.dtype)) - logdet
        return volume / 2 - (self.likelihood - log_prior) / temperature


@record
class RowSums:
    """Sums over rows at a mode, or at moving weights."""

    curvature: OperatorTree  # sums of `batch_curvature`; None if not computed
    likelihood: Numeric  # as in `LaplaceFit`, for these rows
    misfit: Array  # likewise
    observed: Numeric  # likewise
    rows: Numeric  # number of rows
    dispersion_curvature: Array | None = None  # likewise
    gradient: Params | None = None  # that of the likelihood in the weights; None if not computed

    def add(self, other: RowSums) -> RowSums:
        """Returns the sums over the rows of both."""
        return jax.tree.map(jnp.add, self, other)

    def finish(self, objective: Objective, params: Params, network_state: State) -> LaplaceFit:
        """Returns the fit for the objective's N rows, which may differ from the number of rows."""
        for_all = lambda value: value / self.rows * objective.data_size
        curvature = None if self.curvature is None else self.curvature.finish(self.rows)
        sums = jax.tree.map(for_all, (self.likelihood, self.misfit, self.observed, self.dispersion_curvature))
        return LaplaceFit(params, network_state, curvature, *sums)


def fit_laplace(
    structure: AnyStructure,
    point: Posterior,
    objective: Objective,
    data: Data,
    curvature: Curvature | None = None,
    key: RandomKey | None = None,
    of_batch: Callable[..., RowSums] | None = None,
) -> LaplaceFit:
    """Returns the fit at a posterior's mean, by one pass over the data."""
    return _fitted(of_batch or row_sums, structure, point, objective, data, curvature, key)[0]


def fit_with_gradient(
    structure: AnyStructure,
    point: Posterior,
    objective: Objective,
    data: Data,
    curvature: Curvature | None = None,
    key: RandomKey | None = None,
) -> tuple[LaplaceFit, Params]:
    """Returns the fit and the gradient of the negative log likelihood of N rows in the weights, by one pass."""
    return _fitted(_row_sums_with_gradient, structure, point, objective, data, curvature, key)


def _fitted(
    of_batch: Callable[..., RowSums],
    structure: AnyStructure,
    point: Posterior,
    objective: Objective,
    data: Data,
    curvature: Curvature | None,
    key: RandomKey | None,
) -> tuple[LaplaceFit, Params]:
    params, state = point.mean, point.network_state
    curvature = GaussNewton() if curvature is None else curvature
    key = jax.random.key(0) if key is None else key
    _require_room(structure, params["network"])
    in_eval_mode = evaluated(objective, state)
    batches = data.batches(rows_per_pass(structure, in_eval_mode, params, data, _MOST_ROWS))
    batches, added_up = (batches, structure) if structure.by_rows else (list(batches), None)
    parts: list[RowSums] = []
    for number, batch in enumerate(batches):
        parts.append(of_batch(added_up, curvature, in_eval_mode, params, batch, subkey(key, number)))
        if len(parts) == _MOST_PARTS or memory.bytes_of(parts) > memory.budget():
            parts = [reduce(_added, parts)]
    fit, gradient = _finished(parts, objective, params, state)
    if not structure.by_rows:
        fit = replace(fit, curvature=by_products(structure, curvature, in_eval_mode, params, batches, key))
    return fit, gradient


@compiled_once()
def _added(first: RowSums, second: RowSums) -> RowSums:
    return first.add(second)


@compiled_once(over_rows=True, static_argnums=0)
def row_sums(
    structure: AnyStructure | None,
    curvature: Curvature,
    objective: Objective,
    params: Params,
    batch: Batch,
    key: RandomKey,
) -> RowSums:
    """Returns the sums over the rows of a batch, from one forward pass."""
    return _sums_and_gradient(structure, curvature, objective, params, batch, key)[0]


@compiled_once(over_rows=True, static_argnums=0)
def _row_sums_with_gradient(
    structure: AnyStructure | None,
    curvature: Curvature,
    objective: Objective,
    params: Params,
    batch: Batch,
    key: RandomKey,
) -> RowSums:
    sums, gradient = _sums_and_gradient(structure, curvature, objective, params, batch, key)
    return replace(sums, gradient=gradient())


def _sums_and_gradient(
    structure: AnyStructure | None,
    curvature: Curvature,
    objective: Objective,
    params: Params,
    batch: Batch,
    key: RandomKey,
) -> tuple[RowSums, Callable[[], Params]]:
    mean, rows, power = params["network"], batch.count, objective.likelihood_power
    curvature_sum: RowSums | None = None
    if not isinstance(objective.model, Model):
        if structure is not None:
            loss = BatchLoss(objective, batch, {}, NetworkParameters(), params["likelihood"], conjugate=True)
            belief = Gaussian(mean, Scalar(1.0))  # no curvature at a point depends on it
            evaluation = curvature.evaluate(loss, mean, belief, structure, key)
            curvature_sum = evaluation.curvature.scale(rows.astype(jnp.result_type(float)))

        def loss_at(mean: Params) -> Array:
            return -power * batch.total(objective.model.log_likelihood({**params, "network": mean}, {}, batch)[0])

        def loss_of_dispersions(dispersions: Params) -> Array:
            given = {**params, "likelihood": dispersions}
            return -power * batch.total(objective.model.log_likelihood(given, {}, batch)[0])

        value = loss_at(mean)
        zero, of_dispersions = jnp.zeros_like(value), _hessian_in(loss_of_dispersions, params["likelihood"])
        sums = RowSums(curvature_sum, value, zero[None], zero, rows.astype(value.dtype), of_dispersions)
        return sums, lambda: jax.grad(loss_at)(mean)
    if structure is None:
        network = lambda mean: objective.model.outputs({**params, "network": mean}, {}, batch.x)[0]
        f, pull = network(mean), lambda slope: jax.vjp(network, mean)[1](slope)[0]
    else:
        curvature_sum, f, pull = batch_curvature(structure, curvature, objective, params, batch, key)
    likelihood, dispersion, f = objective.model.likelihood, params["likelihood"], with_offset(f, batch.offset)
    log_prob = lambda f: likelihood.log_prob(dispersion, f, batch.y)
    loss_of = lambda f: -power * batch.total(log_prob(f))
    value = loss_of(f)
    misfit = jnp.zeros(f.shape[1], f.dtype)
    if likelihood.quadratic:
        slope = jax.grad(lambda f: jnp.sum(log_prob(f)))(f)
        misfit = power * batch.total(_squared_distance(likelihood, dispersion, f, slope)) / 2
    observed = (power * jnp.sum(batch.mask * batch.weight)).astype(value.dtype)
    of_dispersions = _hessian_in(lambda given: -power * batch.total(likelihood.log_prob(given, f, batch.y)), dispersion)
    sums = RowSums(curvature_sum, value, misfit, observed, rows.astype(value.dtype), of_dispersions)
    return sums, lambda: pull(jax.grad(loss_of)(f).astype(f.dtype))


def _hessian_in(loss: Callable[[Params], Array], dispersions: Params) -> Array | None:
    """Returns the Hessian in the dispersions; None for none, for many, and for a density without second derivatives."""
    values, unravel = tree.ravel(dispersions)
    if 0 < values.size <= _MOST_DISPERSIONS:
        try:
            return jax.hessian(lambda values: loss(unravel(values)))(values)
        except NotImplementedError as error:  # of a special function without a second derivative
            logging.getLogger("lamu").warning(
                "The evidence takes `dispersion_information` of the dispersions %s, whose density has no second "
                "derivatives: %s",
                tree.paths(dispersions),
                str(error).partition("\n")[0],
            )
    return None


def _squared_distance(likelihood: Any, dispersion: Params, f: Array, slope: Array) -> Array:
    r"""Returns each output's part of \(r^\top \Lambda r\), with residuals \(r = \Lambda^{-1} \nabla_f \log p\)."""
    if f.shape[1] == 1:
        return slope**2 / likelihood.information_diagonal(dispersion, f)
    information = likelihood.information(dispersion, f)  # not diagonal for correlated outputs
    return slope * jnp.linalg.solve(information, slope[:, :, None])[:, :, 0]


def prior_precision(objective: Objective, mean: Params) -> Operator:
    """Returns −∇² log p(m): exact if the prior is Gaussian, else for independent weights."""
    gaussian = gaussian_belief(objective.model.free_prior, mean)
    if gaussian is not None:
        return gaussian.precision
    ones = jax.tree.map(jnp.ones_like, mean)
    diagonal = jax.jvp(jax.grad(objective.model.free_prior.log_prob), (mean,), (ones,))[1]
    return Diagonal(tree.scale(diagonal, -1.0))


@compiled_once()
def _gaussian(objective: Objective, fit: LaplaceFit) -> tuple[Gaussian, Array]:
    """Returns the Gaussian and the evidence."""
    return Gaussian(fit.params["network"], fit.precision(objective)), fit.log_evidence(objective)


@compiled_once()
def _dispersion_volume(fit: LaplaceFit, objective: Objective) -> tuple[Array, Array]:
    return fit._dispersion_volume(objective)


@compiled_once()
def _finished(
    parts: list[RowSums], objective: Objective, params: Params, network_state: State
) -> tuple[LaplaceFit, Params]:
    """Returns the fit, and the gradient of N rows; None if it was not computed."""
    sums = reduce(RowSums.add, parts)
    gradient = None if sums.gradient is None else tree.scale(sums.gradient, objective.data_size / sums.rows)
    return replace(sums, gradient=None).finish(objective, params, network_state), gradient


@compiled_once()
def _spectrum(curvature: OperatorTree) -> PyTree:
    """Returns the eigenvalues, with those below rounding set to zero."""

    def rounded(values: Array) -> Array:
        if not values.ndim:
            return values
        error = values.shape[-1] * jnp.finfo(values.dtype).eps * jnp.max(jnp.abs(values), axis=-1, keepdims=True)
        return jnp.where(jnp.abs(values) < error, jnp.zeros_like(values), values)

    return jax.tree.map(rounded, curvature.spectrum())


def _sum_of_logs(precision: OperatorTree, mean: Params) -> Array:
    """Returns the sum over weights of log δ, with one logarithm for each number."""
    dtype = jnp.result_type(*jax.tree.leaves(mean))

    def part(p: Array, below: Params) -> Array:
        value = jnp.asarray(p, dtype)
        return jnp.sum(jnp.log(value)) * (tree.dimension(below) / value.size)

    return sum(jax.tree.leaves(jax.tree.map(part, precision, mean)), jnp.zeros((), dtype))


def _require_room(structure: AnyStructure, weights: Params) -> None:
    """Raises a ValueError if the operator does not fit in memory with its factor."""
    name = getattr(structure, "__name__", str(structure)).lower()
    what = f"a {name} precision of {tree.dimension(weights):,} weights, with its factor,"
    memory.demand(bytes_held(structure, weights), what, "take structure=KroneckerFactored(), or Diagonal")


def rows_per_pass(structure: AnyStructure, objective: Objective, params: Params, data: Data, most: int) -> int:
    """Returns how many rows, at most `most`, fit in a pass of the curvature, in batches of about equal size."""
    row = bytes_per_row(structure, objective, params, data.example(1).x)
    most = max(1, min(memory.budget() // max(row, 1), most))
    count = getattr(data, "count", None)
    return most if not isinstance(count, int) else -(-count // -(-count // most))


def check_memory(structure: AnyStructure, chosen: Params, head: Params) -> None:
    """Logs the memory that the precision of the chosen weights needs, and raises a ValueError if it cannot fit."""
    # The error's message names a choice that would fit in `lamu.memory.limit()`.
    count, size = tree.dimension(chosen), bytes_held(structure, chosen)
    name = getattr(structure, "__name__", str(structure))
    logging.getLogger("lamu").info(
        "The precision of %s weights, %s, takes about %s; %s may be used.",
        f"{count:,}", name, memory.shown(size), memory.shown(memory.limit()),
    )  # fmt: skip
    if size > memory.limit():
        memory.demand(size, f"the precision of {count:,} weights, {name},", _nearest(chosen, head))


def bytes_held(structure: AnyStructure, weights: Params) -> int:
    """Returns about how many bytes a precision takes with its factor, while it is computed."""
    return _COPIES * structure.numbers_held(weights) * jnp.dtype(jnp.result_type(float)).itemsize


def _nearest(chosen: Params, head: Params) -> str:
    candidates = (
        ("structure=KroneckerFactored()", KroneckerFactored(), chosen),
        ("structure=LowRankStructure(20)", LowRankStructure(20), chosen),
        ("weights=HeadWeights()", Dense, head),
        ("weights=HeadWeights() with structure=OutputEigen", OutputEigen, head),
        ("structure=Diagonal", Diagonal, chosen),
    )
    for option, structure, weights_of in candidates:
        size = bytes_held(structure, weights_of)
        if size <= memory.limit():
            return f"give {option}, which takes {memory.shown(size)}"
    return f"nothing smaller fits; give max_memory={memory.at_least(bytes_held(Diagonal, chosen))!r} or more"
