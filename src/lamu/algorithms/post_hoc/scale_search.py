"""The objective of a prior's scale at a fixed mode, evaluated cheaply for many scales."""

# The curvature is decomposed once: with \(N H = U \Lambda U^\top\) and a prior of one scale s,
#
# \[ S = \tfrac1T \, U (\Lambda + s^{-2} I)\, U^\top \]
#
# for every s. The network, its Jacobians in the basis U and the draws do not depend on s either, and are computed once
# (`Hoisted`). A question then costs one product of these with \(D\) numbers.

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory
from lamu.algorithms.post_hoc.hoisting import Hoisted
from lamu.algorithms.post_hoc.laplace_fit import LaplaceFit
from lamu.algorithms.post_hoc.likelihood_bound import bound
from lamu.compile_once import compiled_once
from lamu.data.batch import Batch
from lamu.families import Gaussian
from lamu.model import Model
from lamu.objective import Objective
from lamu.operators import BlockDiagonal, Dense, MatrixFree
from lamu.operators.dense_eigen import DenseEigen
from lamu.operators.interface import is_operator
from lamu.predictives import LaplaceBridge, Linearised, LinearisedMarginal, PredictiveRule, Probit
from lamu.predictives.tangent import bytes_of_a_row
from lamu.typing import Array, RandomKey

__all__ = ["LOG_TEMPERATURES", "ScaleSearch", "counted_weight", "in_room", "scale_search", "tempered_total"]

LOG_TEMPERATURES = np.linspace(-1.5, 2.5, 33)  # of the temperatures that a loss is asked at, where one is chosen

_RULES = (Linearised, LinearisedMarginal, Probit, LaplaceBridge)


@dataclass(frozen=True)
class ScaleSearch:
    """Evidence and loss of a mode under a scale of its prior, and a factor of its noise."""

    of: Hoisted  # the function of the numbers that a scale changes, compiled
    prepared: list[Any]  # what every question has in common, one for each batch of rows
    moving: list[int]  # the numbers of the objective's leaves that a scale changes
    weight: float | None  # the rows that were set aside, by their weights; None where the loss is not theirs

    def __call__(self, objective: Objective, factor: float) -> tuple[float, Any]:
        """Returns the evidence, and what is to be small: rows' negative log density, or minus bound or evidence."""
        # Where a temperature is chosen, the negative log density is an array, one for each of `LOG_TEMPERATURES`.
        leaves = jax.tree.leaves(objective)
        numbers = [factor, *(leaves[place] for place in self.moving)]
        found = [[np.asarray(value, float) for value in self.of(each, numbers)] for each in self.prepared]
        evidence = float(found[0][0])
        if self.weight is None:
            return evidence, -float(found[0][1])
        loss = -sum(each[1] for each in found) / self.weight
        return evidence, loss if np.ndim(loss) else float(loss)


def scale_search(
    mode: LaplaceFit,
    objectives: tuple[Objective, Objective],
    key: RandomKey,
    held_out: Any = None,
    rule: PredictiveRule | None = None,
    around: Batch | None = None,
    *,
    noisy: bool,
    tempered: bool,
    samples: int,
    rows: int,
) -> ScaleSearch | None:
    """Returns a mode's evidence and loss as a function of its prior's scale; None where there is no such short way."""
    objective, other = objectives
    if isinstance(mode.curvature, MatrixFree):
        return None
    mode = replace(mode, curvature=_in_eigenbasis(mode.curvature), spectrum=None)
    batches: list[Any] = [around]
    if held_out is not None:
        if not isinstance(objective.model, Model) or not isinstance(rule or Linearised(), _RULES):
            return None  # one's own rule need not be compiled
        outputs = rule.base if isinstance(rule, Probit | LaplaceBridge) else rule
        marginal = isinstance(outputs, LinearisedMarginal)
        batches = in_room(mode, objective, held_out, min(held_out.count, rows), marginal)
    leaves, structure = jax.tree.flatten(objective)
    pairs = zip(leaves, jax.tree.leaves(other), strict=True)
    moving = [number for number, (a, b) in enumerate(pairs) if a is not b]

    def asked(numbers: list[Any], held: Any) -> tuple[Any, Any]:
        mode, leaves, rule, key, batch = held
        moved = dict(zip(moving, numbers[1:], strict=True))
        under = jax.tree.unflatten(structure, [moved.get(place, leaf) for place, leaf in enumerate(leaves)])
        mode = mode.widened(under, numbers[0]) if noisy else mode
        posterior = mode.posterior(under, key)
        if held_out is not None:
            chosen, again = rule or posterior.rule, jax.random.clone(key)
            ready = chosen.prepare(under.model, posterior.belief, mode.network_state, samples, again)
            if tempered:
                return posterior.evidence, tempered_total(ready, batch)
            return posterior.evidence, batch.total(ready.at(batch.x, batch.offset).log_prob(batch.y))
        return posterior.evidence, posterior.evidence if batch is None else bound(mode, under, batch, key)

    held = [(mode, leaves, rule, key, batch) for batch in batches]
    search = Hoisted(asked, [1.0, *(leaves[place] for place in moving)], held[0])
    if search.bytes_kept * len(held) > memory.limit() // 4:
        return None
    weight = None if held_out is None else math.fsum(map(counted_weight, batches))
    return ScaleSearch(search, [search.prepared(each) for each in held], moving, weight)


def tempered_total(ready: Any, batch: Batch) -> Array:
    """Returns the log density of a batch at each of `LOG_TEMPERATURES`; the outputs are computed once."""
    at = lambda log_temperature: replace(ready, temperature=jnp.exp(log_temperature)).at(batch.x, batch.offset)
    return jax.vmap(lambda each: batch.total(at(each).log_prob(batch.y)))(jnp.asarray(LOG_TEMPERATURES))


def counted_weight(batch: Batch) -> float:
    """Returns the sum of the weights of a batch's real rows; padding has none."""
    return float(np.sum(np.asarray(batch.weight) * np.asarray(batch.mask)))


def in_room(mode: LaplaceFit, objective: Objective, held_out: Any, count: int, marginal: bool) -> list[Batch]:
    """Returns the first rows, in batches of one shape for which there is room."""
    # By shapes alone: a precision that is made operation by operation is a program for each of them.
    weights = jax.eval_shape(lambda mode: Gaussian(mode.params["network"], mode.precision(objective)), mode)
    parts = (objective.model, weights, mode.params["likelihood"], mode.network_state, held_out.x)
    taken = bytes_of_a_row(*parts, marginal)
    most = max(1, memory.budget() // max(taken, 1))
    if count <= most:
        return [held_out.example(count)]
    size = -(-count // -(-count // most))
    if count < held_out.count:  # of more rows than are asked for the batches must end where these do
        size = next(each for each in range(size, 0, -1) if count % each == 0)
    return list(islice(held_out.batches(size), -(-count // size)))


@compiled_once()
def _in_eigenbasis(curvature: Any) -> Any:
    """The curvature with every matrix decomposed."""
    if isinstance(curvature, Dense):
        return DenseEigen.of(curvature)
    if isinstance(curvature, BlockDiagonal):
        blocks = jax.tree.map(_in_eigenbasis, curvature.blocks, is_leaf=is_operator)
        return BlockDiagonal(blocks)
    return curvature
