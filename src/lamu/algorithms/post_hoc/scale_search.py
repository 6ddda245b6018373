"""The objective of a prior's scale at a fixed mode, evaluated cheaply for many scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory, tree
from lamu.algorithms.post_hoc.laplace_fit import LaplaceFit, prior_precision
from lamu.base.compile_once import compiled_once
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.families import Gaussian
from lamu.model import Model
from lamu.objective import Objective
from lamu.objective.curvature.reader.flat_jaxpr import FlatJaxpr
from lamu.operators import BlockDiagonal, Dense, MatrixFree
from lamu.operators.dense import DenseEigen
from lamu.operators.interface import is_operator
from lamu.predictives import LaplaceBridge, Linearised, LinearisedMarginal, PredictiveRule, Probit
from lamu.predictives.linearised import OutputsRule, standard_normals
from lamu.predictives.tangent import bytes_per_row
from lamu.priors import LayerwiseNormal
from lamu.priors.normal import layerwise
from lamu.record import record
from lamu.typing import Array, Data, Number, OperatorTree, Params, PyTree, RandomKey

__all__ = [
    "LOG_TEMPERATURES",
    "Hoisted",
    "OneScale",
    "PriorScales",
    "ScalePerLayer",
    "ScalePerWeight",
    "ScaleSearch",
    "batches_that_fit",
    "counted_weight",
    "likelihood_bound",
    "prior_of",
    "scale_search",
    "spread_rows",
    "tempered_total",
]


@runtime_checkable
class PriorScales(Protocol):
    """Protocol of a choice of which weights share a scale."""

    def start(self, precision: Params) -> Params:
        """Returns the logarithms of the initial precisions, a tree that is a prefix of the weights."""
        ...


@record
class OneScale:
    r"""One precision δ for all weights.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.algorithms import OneScale
        >>> float(OneScale().start({"w": jnp.ones(2)}))
        0.0
    """

    def start(self, precision: Params) -> Params:
        """Returns the mean logarithm of all precisions."""
        return _mean_log(precision)


@record
class ScalePerLayer:
    r"""One precision \(\delta_l\) a layer, shared by kernel and bias: automatic relevance of layers.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.algorithms import ScalePerLayer
        >>> ScalePerLayer().start({"layers": {0: {"bias": jnp.ones(1), "kernel": jnp.ones((2, 1))}}})["layers"][0].shape
        ()
    """

    def start(self, precision: Params) -> Params:
        """Returns the mean logarithm of each layer's precisions."""
        return layerwise(_mean_log, precision)


@record
class ScalePerWeight:
    r"""One precision \(\delta_i\) a weight: automatic relevance determination.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.algorithms import ScalePerWeight
        >>> ScalePerWeight().start({"w": jnp.ones(2)})["w"].tolist()
        [0.0, 0.0]
    """

    def start(self, precision: Params) -> Params:
        """Returns the logarithms of the precisions."""
        return jax.tree.map(jnp.log, precision)


def prior_of(log_precision: Params, loc: Number) -> LayerwiseNormal:
    """Returns the prior with these precisions."""
    return LayerwiseNormal(jax.tree.map(lambda leaf: jnp.exp(-leaf / 2), log_precision), loc)


def _mean_log(precision: Params) -> Array:
    return jnp.mean(jnp.log(tree.ravel(precision)[0]))


class Hoisted:
    """A function `(numbers, held)` as two compiled programs: one for fixed values `held`, one for the numbers."""

    # The first runs once, and returns every value that the second reads. The second runs for every evaluation.

    def __init__(self, function: Callable[..., tuple[PyTree, ...]], numbers: Sequence[PyTree], fixed: PyTree) -> None:
        leaves, structure = jax.tree.flatten(fixed)

        def flat(leaves: list[PyTree], numbers: list[PyTree]) -> list[PyTree]:
            return list(function(numbers, structure.unflatten(leaves)))

        program = self._program = _Opened(flat, leaves, numbers)
        needed = {place for place in program.outputs if isinstance(place, int)}
        steps = []
        for step in reversed(program.steps):  # unused values are not computed
            if any(place in needed for place in step.writes):
                steps.append(step)
                needed.update(place for place in step.reads if place is not None)
        steps.reverse()
        moving = [step for step in steps if step.dependent]
        first = [step for step in steps if not step.dependent]
        read = {place for step in moving for place in step.reads if place is not None}
        read |= {place for place in program.outputs if isinstance(place, int)}
        kept = self._kept = sorted(place for place in read if not program.depends(place))

        def prepare(leaves: list[PyTree]) -> list[PyTree]:
            values = {**program.constants, **dict(zip(program.leaves, leaves, strict=True))}
            for step in first:
                step.advance(values)
            return [values[place] for place in kept]

        def ask(prepared: list[PyTree], numbers: list[PyTree]) -> list[PyTree]:
            values = dict(zip(kept, prepared, strict=True)) | dict(zip(program.examples, numbers, strict=True))
            for step in moving:
                step.advance(values)
            return program.results(values)

        self._prepare, self._ask = compiled_once()(prepare), compiled_once()(ask)

    @property
    def bytes_kept(self) -> int:
        """Number of bytes that `prepared` returns."""
        return memory.bytes_of([self._program.avals[place] for place in self._kept])

    def prepared(self, fixed: PyTree) -> list[PyTree]:
        """Returns the values that depend only on `held`."""
        return self._prepare(jax.tree.leaves(fixed))

    def __call__(self, prepared: list[PyTree], numbers: Sequence[PyTree]) -> list[PyTree]:
        """Returns the function's results."""
        return self._ask(prepared, list(numbers))


class _Opened(FlatJaxpr):
    """The equations of a function, with calls inlined that depend on the numbers."""

    def _opens(self, reads: Sequence[object]) -> bool:
        return any(isinstance(place, int) and self.depends(place) for place in reads)


# The curvature is decomposed once: with \(N H = U \Lambda U^\top\) and a prior of one scale s,
#
# \[ S = \tfrac1T \, U (\Lambda + s^{-2} I)\, U^\top \]
#
# for every s. The network, its Jacobians in the basis U and the samples do not depend on s either, and are computed
# once (`Hoisted`). An evaluation then costs one product of these with \(D\) numbers.


LOG_TEMPERATURES = np.linspace(-1.5, 2.5, 33)  # the temperatures at which a loss is evaluated, if one is chosen

_RULES = (Linearised, LinearisedMarginal, Probit, LaplaceBridge)


@dataclass(frozen=True)
class ScaleSearch:
    """Evidence and loss of a mode as functions of its prior's scale and a factor of its noise."""

    of: Hoisted  # the compiled function of the numbers that a scale changes
    prepared: list[PyTree]  # values shared by all evaluations, one for each batch of rows
    moving: list[int]  # indices of the objective's leaves that a scale changes
    weight: float | None  # the validation rows' total weight; None if the loss is not theirs

    def __call__(self, objective: Objective, factor: float) -> tuple[float, PyTree]:
        """Returns the evidence, and the loss: rows' negative log density, or minus bound or evidence."""
        # If a temperature is chosen, the negative log density is an array, one for each of `LOG_TEMPERATURES`.
        leaves = jax.tree.leaves(objective)
        numbers = [factor, *(leaves[place] for place in self.moving)]
        values = [
            [np.asarray(value, float) for value in self.of(batch_values, numbers)] for batch_values in self.prepared
        ]
        evidence = float(values[0][0])
        if self.weight is None:
            return evidence, -float(values[0][1])
        loss = -sum(batch_values[1] for batch_values in values) / self.weight
        return evidence, loss if np.ndim(loss) else float(loss)


def scale_search(
    mode: LaplaceFit,
    objectives: tuple[Objective, Objective],
    key: RandomKey,
    held_out: Arrays | None = None,
    rule: PredictiveRule | None = None,
    around: Batch | None = None,
    *,
    noisy: bool,
    tempered: bool,
    samples: int,
    rows: int,
) -> ScaleSearch | None:
    """Returns evidence and loss at a mode as a function of the prior's scale; None if they cannot be compiled so."""
    objective, other = objectives
    if isinstance(mode.curvature, MatrixFree):
        return None
    mode = replace(mode, curvature=_in_eigenbasis(mode.curvature), spectrum=None)
    batches: list[PyTree] = [around]
    if held_out is not None:
        if not isinstance(objective.model, Model) or not isinstance(rule or Linearised(), _RULES):
            return None  # a custom rule may not compile
        outputs = rule.base if isinstance(rule, Probit | LaplaceBridge) else rule
        marginal = isinstance(outputs, LinearisedMarginal)
        batches = batches_that_fit(mode, objective, held_out, min(held_out.count, rows), marginal)
    leaves, structure = jax.tree.flatten(objective)
    pairs = zip(leaves, jax.tree.leaves(other), strict=True)
    moving = [number for number, (a, b) in enumerate(pairs) if a is not b]

    def evidence_and_loss(numbers: list[PyTree], fixed: PyTree) -> tuple[PyTree, PyTree]:
        mode, leaves, rule, key, batch = fixed
        moving_leaves = dict(zip(moving, numbers[1:], strict=True))
        under = jax.tree.unflatten(structure, [moving_leaves.get(place, leaf) for place, leaf in enumerate(leaves)])
        mode = mode.scale_noise(under, numbers[0]) if noisy else mode
        posterior = mode.posterior(under, key)
        if held_out is not None:
            chosen, again = rule or posterior.rule, jax.random.clone(key)
            # Samples of the weights use the eigenbasis here, and a Cholesky factor in the posterior.
            prepare = chosen.prepare_covariances if isinstance(chosen, OutputsRule) else chosen.prepare
            ready = prepare(under.model, posterior.belief, mode.network_state, samples, again)
            if tempered:
                return posterior.evidence, tempered_total(ready, batch)
            return posterior.evidence, batch.total(ready.at(batch.x, batch.offset).log_prob(batch.y))
        return posterior.evidence, posterior.evidence if batch is None else bound(mode, under, batch, key)

    fixed_by_batch = [(mode, leaves, rule, key, batch) for batch in batches]
    search = Hoisted(evidence_and_loss, [1.0, *(leaves[place] for place in moving)], fixed_by_batch[0])
    if search.bytes_kept * len(fixed_by_batch) > memory.limit() // 4:
        return None
    weight = None if held_out is None else math.fsum(map(counted_weight, batches))
    return ScaleSearch(search, [search.prepared(held_values) for held_values in fixed_by_batch], moving, weight)


def tempered_total(ready: PyTree, batch: Batch) -> Array:
    """Returns the log density of a batch at each of `LOG_TEMPERATURES`; the outputs are computed once."""
    predictive_at = lambda log_temperature: replace(ready, temperature=jnp.exp(log_temperature)).at(
        batch.x, batch.offset
    )
    total_at = lambda log_temperature: batch.total(predictive_at(log_temperature).log_prob(batch.y))
    return jax.vmap(total_at)(jnp.asarray(LOG_TEMPERATURES, batch.mask.dtype))


def counted_weight(batch: Batch) -> float:
    """Returns the sum of the weights of a batch's real rows, without padding."""
    return float(np.sum(np.asarray(batch.weight) * np.asarray(batch.mask)))


def batches_that_fit(
    mode: LaplaceFit, objective: Objective, held_out: Arrays, count: int, marginal: bool
) -> list[Batch]:
    """Returns the first rows, in batches of one shape that fit in memory."""
    # By shapes only: a precision computed outside jit compiles a program for each operation.
    weights = jax.eval_shape(lambda mode: Gaussian(mode.params["network"], mode.precision(objective)), mode)
    parts = (objective.model, weights, mode.params["likelihood"], mode.network_state, held_out.x)
    taken = bytes_per_row(*parts, marginal)
    most = max(1, memory.budget() // max(taken, 1))
    if count <= most:
        return [held_out.example(count)]
    size = -(-count // -(-count // most))
    if count < held_out.count:  # the batches must end at a row count of the request
        size = next(divisor for divisor in range(size, 0, -1) if count % divisor == 0)
    return list(islice(held_out.batches(size), -(-count // size)))


@compiled_once()
def _in_eigenbasis(curvature: OperatorTree) -> OperatorTree:
    """Returns the curvature with every matrix decomposed."""
    if isinstance(curvature, Dense):
        return DenseEigen.of(curvature)
    if isinstance(curvature, BlockDiagonal):
        blocks = jax.tree.map(_in_eigenbasis, curvature.blocks, is_leaf=is_operator)
        return BlockDiagonal(blocks)
    return curvature


# Laplace's evidence approximates the loss by a parabola. A network that separates its rows has almost no curvature at
# its weights, and a loss that rises steeply a little further away, so that its evidence is greatest for a belief far
# too wide. The bound averages the loss over the belief:
#
# \[ \log Z \ge E_q[\log p(D \mid \theta)] - \mathrm{KL}(q \,\|\, p)
#    = \log Z_{\text{Laplace}} + \tfrac{\gamma}{2} - \big( \log p(D \mid m) - E_q[\log p(D \mid \theta)] \big), \qquad
#    \gamma = D - \operatorname{tr} S^{-1} \Delta \]
#
# with Δ the precision of the prior. For a quadratic loss it is the evidence itself.


# Numbers that decide results; conventions, not tuned.
_BOUND_ROWS, _BOUND_SAMPLES, _NODES = 512, 32, 32  # of the average over the belief: rows, samples, nodes for one output


def likelihood_bound(mode: LaplaceFit, objective: Objective, batch: Batch, key: RandomKey) -> float:
    """Returns the bound at T = 1 in nats, with the outputs linearised and assumed independent of each other."""
    return float(bound(mode, objective, batch, key))


def bound(mode: LaplaceFit, objective: Objective, batch: Batch, key: RandomKey) -> Array:
    """Returns `likelihood_bound` as an array, also inside compiled functions."""
    posterior = mode.posterior(objective, key)
    outputs = LinearisedMarginal().outputs(objective.model, posterior.belief, mode.network_state, _BOUND_SAMPLES, key)
    mean, variance = outputs.normal(batch.x, batch.offset)
    if mean.shape[1] == 1:
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        noise, weights = jnp.asarray(nodes, mean.dtype)[:, None], jnp.asarray(weights / weights.sum(), mean.dtype)
    else:
        noise = standard_normals(key, _BOUND_SAMPLES, mean.shape[1], mean.dtype)
        weights = jnp.full(_BOUND_SAMPLES, 1 / _BOUND_SAMPLES, mean.dtype)
    lost = _lost(objective, mode, batch, mean, variance.reshape(mean.shape), noise, weights)
    return posterior.evidence + _determined_by_bound(mode, objective) / 2 - lost


def spread_rows(data: Data) -> Batch:
    """Returns some of the rows as a batch: 512 spread evenly over arrays, or the first batch of a stream."""
    if not isinstance(data, Arrays):
        return data.example(1)
    return data.take(np.linspace(0, data.count - 1, min(data.count, _BOUND_ROWS)).round().astype(int)).full()


@jax.jit
def _lost(
    objective: Objective, mode: LaplaceFit, batch: Batch, mean: Array, variance: Array, noise: Array, weights: Array
) -> Array:
    """Returns log p(D | m) − E_q[log p(D | θ)], for all rows."""
    dispersion = mode.params["likelihood"]
    log_prob = lambda f: objective.model.likelihood.log_prob(dispersion, f, batch.y)
    expected = jnp.tensordot(weights, jax.lax.map(lambda z: log_prob(mean + jnp.sqrt(variance) * z[None]), noise), 1)
    share = batch.total(log_prob(mean) - expected) / jnp.sum(batch.mask)
    return objective.likelihood_power * objective.data_size * share


@jax.jit
def _determined_by_bound(mode: LaplaceFit, objective: Objective) -> Array:
    """Returns γ, the number of well-determined weights."""
    mean = mode.params["network"]
    prior_diagonal = prior_precision(objective, mean).diagonal(mean)
    return tree.dimension(mean) - tree.dot(mode.precision(objective).factored().variance(mean), prior_diagonal)
