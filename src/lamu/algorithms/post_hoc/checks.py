"""Checks of a mode and its posterior: memory, positive precision, and the residual that an evidence needs."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory, tree
from lamu.algorithms.post_hoc.laplace_fit import LaplaceFit
from lamu.algorithms.post_hoc.mode_polish import LARGEST_RESIDUAL, Polished
from lamu.algorithms.post_hoc.subnetwork import WeightsChoice
from lamu.compile_once import compiled_once
from lamu.convergence import Unconverged
from lamu.families import Product
from lamu.model import Model
from lamu.objective import Objective
from lamu.operators import AnyStructure, Dense, Diagonal, KroneckerFactored, LowRankStructure, OutputEigen
from lamu.posterior import Posterior
from lamu.priors import LearnedNormal
from lamu.target import Target
from lamu.typing import Belief, Data, DTypeLike, Params, RandomKey

__all__ = ["bytes_held", "check_memory", "is_pretrained", "log_gradient_norm", "posterior_at_mode", "require_positive"]

# Numbers that decide results; conventions, not tuned.
_COPIES = 3  # of a precision, for its memory: the curvature, the precision, and its factor
_STEP, _GAIN = 0.01, 0.05  # a step of this share of the weights' norm may gain at most this many nats per row
_JITTERS = 6  # powers of ten of the rounding error added to a singular precision


def check_memory(
    structure_of: Callable[[Params], AnyStructure], choice: WeightsChoice, model: Target, weights: Params
) -> None:
    """Logs the memory that the precision needs, and raises a ValueError if it cannot fit."""
    # The error's message names a choice that would fit in `lamu.memory.limit()`.
    patterns = choice.patterns_of(model)
    if patterns is None:
        return
    chosen = _matching(weights, patterns)
    count = tree.dimension(chosen)
    structure = structure_of(chosen)
    size = bytes_held(structure, chosen)
    name = getattr(structure, "__name__", str(structure))
    logging.getLogger("lamu").info(
        "The precision of %s weights, %s, takes about %s; %s may be used.",
        f"{count:,}", name, memory.shown(size), memory.shown(memory.limit()),
    )  # fmt: skip
    if size > memory.limit():
        memory.demand(size, f"the precision of {count:,} weights, {name},", _nearest(model, weights, chosen))


def bytes_held(structure: AnyStructure, weights: Params) -> int:
    """Returns about how many bytes a precision takes with its factor, while it is computed."""
    return _COPIES * structure.numbers_held(weights) * jnp.dtype(jnp.result_type(float)).itemsize


def _nearest(model: Target, weights: Params, chosen: Params) -> str:
    head = _matching(weights, (model.network.head if isinstance(model, Model) else "*",))
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


def _matching(weights: Params, patterns: tuple[str, ...]) -> Params:
    def kept(name: str, leaf: Params) -> Params:
        return leaf if any(tree.matches(name, pattern) for pattern in patterns) else None

    return tree.map_with_path(kept, weights)


def is_pretrained(model: Target, point: Posterior, data: Data) -> bool:
    """Returns whether the network is pretrained and no step has moved its weights, which are then kept."""
    if not model.trained:
        return False
    init = compiled_once()(lambda seed, example: model.init(jax.random.key(seed), example)[0]["network"])
    example, now = data.example(1), point.mean["network"]
    fresh, other = (init(np.uint32(seed), example) for seed in (0, 1))
    if jax.tree.structure(fresh) != jax.tree.structure(now):
        return False
    leaves = zip(*map(jax.tree.leaves, (fresh, other, now)), strict=True)
    deterministic = [
        (a, c) for a, b, c in leaves if np.array_equal(a, b)
    ]  # others are random: the factors of an adapter
    return bool(deterministic) and all(np.array_equal(a, c) for a, c in deterministic)


def log_gradient_norm(mode: LaplaceFit, objective: Objective, gradient: Params) -> None:
    """Warns if pretrained weights are not a minimum of the loss, as Laplace's method assumes."""
    # The criterion is the decrease of the loss by one step of a hundredth of the weights' norm down the gradient,
    # \(0.01\, |\theta|\, |\nabla \bar\ell|\), in nats per row, for the weights of the belief. A prior of unknown
    # scale (`LearnedNormal`) does not count.
    slope = gradient if isinstance(objective.model.prior, LearnedNormal) else _with_prior(mode, objective, gradient)
    gain = _STEP * _length(mode.params["network"]) * _length(slope) / float(objective.data_size)
    if not gain <= _GAIN:
        logging.getLogger("lamu").warning(
            "The weights are far from a minimum: a step of 1 %% of their length down the slope promises %.2g nats a "
            "row; train longer, or under the prior that the posterior is to have.",
            gain,
        )


@compiled_once()
def _with_prior(mode: LaplaceFit, objective: Objective, gradient: Params) -> Params:
    log_prior = lambda mean: objective.model.log_prior({**mode.params, "network": mean})
    return tree.add(gradient, jax.grad(log_prior)(mode.params["network"]), -1.0)


def _length(vector: Params) -> float:
    return math.sqrt(sum(float(np.sum(np.square(np.asarray(leaf, float)))) for leaf in jax.tree.leaves(vector)))


def posterior_at_mode(polished: Polished, objective: Objective, key: RandomKey, kept: bool = False) -> Posterior:
    """Returns the posterior at a mode with its convergence; without an evidence and with a warning if it is no mode."""
    posterior = polished.mode.integrated(objective, key)
    at_kink = polished.stalled and objective.model.identified  # of the likelihood, or at the digits of the loss
    remedy = _remedy(kept, polished.stalled, at_kink)
    if not polished.found:
        remedy = (
            f"no evidence: the residual at the mode is {polished.residual:.2g} nats, where an evidence needs "
            f"{LARGEST_RESIDUAL}; {remedy}"
        )
    convergence = polished.convergence(remedy)
    posterior = replace(posterior, convergence=convergence, temperature=objective.temperature)
    if np.isnan(posterior.evidence):
        dtype = jnp.asarray(posterior.evidence).dtype
        warnings.warn(
            f"no evidence: the precision at the mode is singular to the rounding of {dtype} under the prior "
            f"{objective.model.prior!r}, and its diagonal was raised by as much as rounding; narrow the prior, take "
            "lamu.priors.LearnedNormal(1.0), or compute in 64 bits (jax_enable_x64)",
            Unconverged,
            stacklevel=4,
        )
        return replace(_regular(posterior, dtype), evidence=None)
    if not polished.found:
        if convergence.converged:  # of what has not, `fit` warns, with the same remedy
            if kept or at_kink:  # predictions need no mode, and pretrained weights are seldom at one
                logging.getLogger("lamu").warning("The posterior has %s.", remedy)
            else:
                warnings.warn(remedy, Unconverged, stacklevel=4)
        return replace(posterior, evidence=None)
    return posterior


def require_positive(fit: LaplaceFit, objective: Objective) -> None:
    """Raises unless curvature and prior are positive together."""
    # The ValueError names the most negative eigenvalue, and a remedy.
    per_row = fit.precision(objective).scale(1 / objective.concentration)
    values = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(per_row.spectrum())])
    lowest, largest = float(jnp.min(values)), float(jnp.max(values))
    if lowest > 0:
        return
    raise ValueError(
        f"the curvature at the mode is indefinite: its smallest eigenvalue is {lowest:.3g} a row, the prior included, "
        f"the largest {largest:.3g}, so that the posterior has no maximum here; train longer, take "
        f"curvature=GaussNewton(), or add a damping above {-lowest:.3g}, Damped(Hessian(), "
        f"{max(-2 * lowest, 1e-3):.1g})"
    )


def _remedy(kept: bool, stalled: bool, at_kink: bool) -> str:
    if kept:
        return (
            "the weights arrived trained and were left as they came: train them longer, under the prior that the "
            "posterior is to have, or let a run go on from them for some epochs"
        )
    if at_kink:
        return (
            "the loss falls no further although its gradient does not vanish, as at the kinks of a Quantile likelihood "
            "or at the last digits of the loss; compare models by their held-out rows"
        )
    if stalled:
        return (
            "the loss falls no further although its gradient does not vanish, as at the kinks of relu, and more epochs "
            "change nothing: take an activation without kinks, such as MLP((64, 64), 'tanh') or 'gelu', or a narrower "
            "prior"
        )
    return "train for more epochs, narrow the prior, or take activations without kinks (tanh, gelu)"


def _regular(posterior: Posterior, dtype: DTypeLike) -> Posterior:
    """Returns the posterior with a precision that can be factored: a multiple of rounding added to its diagonal."""
    belief: Belief = posterior.belief
    gaussian = belief.factors["network"]
    precision = gaussian.precision
    if isinstance(precision, Dense):
        matrix = (precision.matrix + precision.matrix.T) / 2
        unit = float(jnp.finfo(dtype).eps) * float(jnp.max(jnp.diagonal(matrix)))
        for power in range(_JITTERS):
            raised = Dense(matrix + 10.0**power * unit * jnp.eye(len(matrix), dtype=matrix.dtype))
            if bool(raised.is_positive(gaussian.mean)):
                factors = {**belief.factors, "network": replace(gaussian, precision=raised)}
                return replace(posterior, belief=Product(factors))
    raise ValueError(
        f"the precision at the mode is singular to the rounding of {dtype} under the prior {posterior.model.prior!r}; "
        "narrow the prior, take lamu.priors.LearnedNormal(1.0), or compute in 64 bits (jax_enable_x64)"
    )
