"""Whether a belief that is at its fixed point is also the posterior: the importance weights of its own draws."""

# \[ w_s = \frac{p(\theta_s, D)^{1/T}}{q(\theta_s)}, \quad \theta_s \sim q, \qquad
#    \widehat{\mathrm{KL}}(q \,\|\, p) = \log \frac1S \sum_s w_s - \frac1S \sum_s \log w_s \]
#
# The first sum is too small where the weights have a large Pareto k, so that the divergence is at least this. It is
# taken where a Gaussian stands for variables that are not conjugate: `cvi`, and `svi` and `ncvmp` with likelihoods of a
# graph. The best Gaussian of a posterior with another shape has converged, and its moments are wrong nevertheless.
#
# Independent beliefs by exact messages, \(\lambda = \nabla F(\mu)\), move when log p is tilted by \(t\, T_j\), and
# \(d\mu/dt\) is the covariance that their fixed point implies, with what variables tell of each other:
#
# \[ \hat\Sigma = (I - V H)^{-1} V, \qquad V = \nabla^2 A(\lambda), \quad H = \nabla^2 F(\mu) \]
#
# Of a scale of few groups it is still too small, by a fifth to a half, and V by more. Of few rows it leaves out what is
# of second order: an unknown noise widens a mean of five rows by 1.4, and their response is zero. Where it
# finds nothing there the weights of draws are asked too. Source: Giordano, Broderick &
# Jordan (2018), "Covariances, robustness, and variational Bayes", theorem 1. F is taken at the
# optimal latents of rows, so that H has their response too; but for latents that meet, whose coordinate ascent has no
# gradient (`graphs.Coordinate`): their share is too large. Of a latent class model whose belief has .88 to .17 of the
# exact deviations the response says .88 to .20.

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lamu import tree
from lamu.base.compile_once import compiled_lightly, compiled_once
from lamu.conjugate_target import MessageTarget
from lamu.convergence import LARGEST_SHAPE, NARROWEST, Convergence, pareto_shape
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.families import Gaussian, Point, Product
from lamu.families.products import factor_of
from lamu.graphs import Graph
from lamu.graphs.elimination import has_exact_sum
from lamu.graphs.expressions.products import multiplied
from lamu.graphs.joint import Row
from lamu.natural_rule import ConjugateLoss
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.target import ConstrainedTarget
from lamu.typing import Array, Belief, Numeric, Params, RandomKey

__all__ = ["shape_of"]

# None of these was tuned but for the limit itself, `lamu.convergence.FARTHEST_SHAPE`.
_DRAWS, _MORE = 256, 8192  # at first, and where those leave it open or look wrong
_OPEN = 0.1  # nats
_MOST_ROWS = 1e8  # whose densities are taken, at most
_ROWS = 4096  # at once
_FARTHEST_BELOW = 5.0  # nats that one draw counts
_AMONG_THE_WORST = 0.5  # of the largest discrepancy of a variable
_CLEAR = 0.95  # of a deviation, two standard errors added
_MOST_STATISTICS = 1024  # whose Hessian is taken
_FEW = 64  # rows; the response is of first order in what they leave open
_CHEAP = 1e5  # rows times statistics, of which compilation takes longer
_OF_CATEGORIES = 10  # times the cost of a row without
_WIDER = (0.3, 0.05)  # of the natural parameters: the belief's own draws miss the tails of a wider posterior


def shape_of(
    posterior: Posterior, objective: Objective, rows: object, key: RandomKey, work: float = 0.0
) -> Convergence | None:
    """Returns what is known of a posterior's convergence, with its divergence from the exact posterior if it is due."""
    convergence = posterior.convergence
    if convergence is None or not isinstance(rows, Arrays):
        return convergence
    if not _approximate(posterior, rows):
        judged = _by_linear_response(posterior, objective, rows, work) if convergence.at_fixed_point else convergence
        is_open = judged is not None and judged.share is not None and judged.has_shape
        if not (is_open and rows.count <= _FEW and _knows_values(posterior, rows)):
            return judged
        return _by_weights(judged, _measured(posterior, objective, rows, key, 2 * _MORE, _WIDER))
    gaussian = isinstance(factor_of(posterior.belief, "network"), Gaussian)
    more = int(np.clip(work, _DRAWS, _MORE)) if gaussian else _MORE  # a density may be as slow as it likes
    if rows.count * _DRAWS > max(_MOST_ROWS, work):
        return convergence
    measured = _measured(posterior, objective, rows, jax.random.fold_in(key, 0), _DRAWS)
    # A first look at few draws may see one large weight, or none; more of them settle it.
    unclear = not (float(measured["divergence"]) < _OPEN and measured["share"] > _CLEAR)
    if unclear and rows.count * more <= max(_MOST_ROWS, work):
        measured = _measured(posterior, objective, rows, jax.random.fold_in(key, 1), more)
    share = measured["share"] if measured["pareto_k"] <= LARGEST_SHAPE else None
    judged = replace(convergence, divergence=measured["divergence"], pareto_k=measured["pareto_k"], share=share)
    return judged if judged.has_shape else replace(judged, misshapen=measured["worst"])


def _by_weights(judged: Any, measured: dict[str, Any]) -> Convergence:
    # Returns the convergence with the share by importance weights if it is the smaller. It may have a k above the limit
    # of a divergence: weights that miss a part of a tail make the share larger, and with it its standard error.
    if not (measured["share"] < judged.share and measured["pareto_k"] <= 1.0):
        return judged
    judged = replace(judged, share=measured["share"], pareto_k=measured["pareto_k"])
    return judged if judged.has_shape else replace(judged, misshapen=measured["worst"])


def _approximate(posterior: Posterior, rows: Arrays) -> bool:
    # Whether a Gaussian stands for a density, or for variables that are not conjugate, and the log joint at values is
    # known.
    belief = factor_of(posterior.belief, "network")
    if isinstance(belief, Gaussian):
        return isinstance(posterior.model, ConstrainedTarget) and not isinstance(posterior.model, Graph)
    if not isinstance(belief, Product):
        return False
    if not isinstance(posterior.model, Graph):
        return "normal" in belief.factors  # as `cvi` names it
    return not all(site.factor.exact for site in posterior.model.in_rows) and _knows_values(posterior, rows)


def _knows_values(posterior: Posterior, rows: Arrays) -> bool:
    # Whether the model is a graph whose log joint at values is known.
    graph = posterior.model
    if not isinstance(graph, Graph) or graph.networks or graph.frozen or graph.local:
        return False
    first = jax.tree.map(lambda leaf: leaf[0], rows.example(1).y)
    return has_exact_sum({}, Row.of(graph.in_rows, graph.columns, first, 1.0, float))


def _measured(
    posterior: Posterior, objective: Objective, rows: Arrays, key: RandomKey, count: int, wider: tuple[float, ...] = ()
) -> dict[str, Any]:
    # Returns the divergence in nats, k, and the variables whose moments the weights change most, by the belief's draws;
    # for the moments alone by draws of its mixture with wider ones.
    belief: Any = posterior.belief
    network, dispersions = belief.factors["network"], belief.factors["likelihood"]
    point = dispersions.mean if isinstance(dispersions, Point) else {}
    sources = [network, *(_scaled(network, scale) for scale in wider)]
    keys = [jax.random.fold_in(key, place) for place in range(len(sources))] if wider else [key]
    drawn = [source.draws(own, count // len(sources)) for source, own in zip(sources, keys, strict=True)]
    theta = jax.tree.map(lambda *parts: np.concatenate(parts), *drawn) if wider else drawn[0]
    target = objective
    if isinstance(posterior.model, Graph):
        target = Objective(
            posterior.model.at_values(), objective.data_size, objective.temperature, objective.likelihood_power
        )
    densities = np.stack([np.asarray(_log_densities(source, theta), float) for source in sources])
    log_mixture = np.logaddexp.reduce(densities - math.log(len(sources)))
    log_weights, own = -log_mixture, np.exp(densities[0] - log_mixture)
    for batch in [rows.full()] if rows.count <= _ROWS else rows.batches(_ROWS):  # the former compiles nothing
        share = float(objective.concentration) * float(batch.count) / rows.count
        losses = _density_losses if isinstance(network, Gaussian) else _losses
        log_weights = log_weights - share * np.asarray(losses(target, batch, theta, point), float)
    finite = np.isfinite(log_weights)
    if not finite.any():
        return {"divergence": np.inf, "pareto_k": np.nan, "share": np.nan, "worst": ""}
    largest = log_weights[finite].max()
    weights = np.exp(np.where(finite, log_weights, -np.inf) - largest)
    # A few draws where the posterior has no mass at all are a few draws: without a limit they would be all of the mean.
    below = np.minimum(np.log(weights.mean()) + largest - np.where(finite, log_weights, -np.inf), _FARTHEST_BELOW)
    worst, narrowest = _worst(theta, weights, own)
    return {
        "divergence": float(below.mean()),
        "pareto_k": pareto_shape(weights),
        "share": narrowest,
        "worst": worst,
    }


def _worst(theta: Params, weights: np.ndarray, own: np.ndarray) -> tuple[str, float]:
    # Returns the names of the variables whose moments change most, and the smallest share of a deviation.
    share, own = weights / weights.sum(), own / own.sum()
    changes: dict[str, float] = {}
    narrowest = 1.0
    for path, leaf in zip(tree.paths(theta), jax.tree.leaves(theta), strict=True):
        values = np.asarray(leaf, float).reshape(len(share), -1)
        mean, shifted = own @ values, share @ values
        # The deviation of a constant, such as the probability of a single category, is rounding in both.
        least = np.finfo(float).tiny + 1e-12 * np.abs(mean)
        sd, squares = np.maximum(np.sqrt(own @ (values - mean) ** 2), least), (values - shifted) ** 2
        spread = np.maximum(np.sqrt(share @ squares), least) + 1e-3 * sd
        # The standard error of a log deviation, by the delta method.
        error = np.sqrt(share**2 @ (squares / spread**2 - 1.0) ** 2) / 2.0
        narrowest = min(narrowest, float(np.min(np.exp(2.0 * error) * sd / spread)))
        change = np.max(np.abs(np.log(spread / sd)) + np.abs(shifted - mean) / sd)
        name = path.removeprefix("normal/").removeprefix("conjugate/").split("/")[0] or "theta"
        changes[name] = max(float(change), changes.get(name, 0.0))
    largest = max(changes.values())
    worst = ", ".join(repr(name) for name, change in changes.items() if change >= _AMONG_THE_WORST * largest)
    return worst, narrowest


def _by_linear_response(posterior: Posterior, objective: Objective, rows: Arrays, work: float) -> Convergence | None:
    # Returns the convergence with the smallest share of a deviation, if variables that meet have exact messages.
    model, convergence = posterior.model, posterior.convergence
    belief: Any = posterior.belief
    if convergence is None or not isinstance(model, MessageTarget) or not _have_deviations(model, rows):
        return convergence
    rotated = _rotated(model, rows)
    if rotated >= set(model.kinds):
        return convergence
    beliefs = factor_of(belief, "network")
    if isinstance(beliefs, Product) and not isinstance(model, Graph):
        beliefs = beliefs.factors.get("conjugate")  # of a program's sites
    if not isinstance(beliefs, Product) or set(model.kinds) != set(beliefs.factors):
        return convergence
    own = jax.eval_shape(model.moments, beliefs.factors)
    size = tree.dimension(own)
    cost = rows.count * size * (_OF_CATEGORIES * model.longest_series if model.has_categories(rows.example(1)) else 1)
    if size > _MOST_STATISTICS or cost > max(_MOST_ROWS, work):
        return convergence
    responses = _responses_quickly if cost <= _CHEAP else _responses_lightly
    H, V = (np.asarray(part, float) for part in responses(objective, beliefs.factors, rows.full()))
    free = np.flatnonzero(np.diag(V) > 0)  # all but the probability of a single category
    H, V, deviations = H[np.ix_(free, free)], V[np.ix_(free, free)], np.sqrt(np.diag(V)[free])
    # In units of the deviations: statistics of one variable may differ by many orders of magnitude.
    scaled = np.eye(len(free)) - V @ H * deviations / deviations[:, None]
    try:
        response = np.diag(np.linalg.solve(scaled, V / deviations / deviations[:, None]))
    except np.linalg.LinAlgError:
        return convergence
    every = np.ones(size)
    with np.errstate(invalid="ignore", divide="ignore"):
        every[free] = response**-0.5
    shares = np.split(every, np.cumsum([tree.dimension(own[name]) for name in sorted(own)])[:-1])
    narrowest = {name: float(part.min()) for name, part in zip(sorted(own), shares, strict=True) if name not in rotated}
    if not np.all(np.isfinite(list(narrowest.values()))):  # no maximum, or lost to rounding
        return convergence
    share = min(1.0, *narrowest.values())
    judged = replace(convergence, share=share)
    named = ", ".join(repr(name) for name, part in narrowest.items() if part < NARROWEST)
    return judged if judged.has_shape else replace(judged, misshapen=named)


def _have_deviations(model: MessageTarget, rows: Arrays) -> bool:
    # Whether the belief leaves out what variables or latents tell of each other, and the posterior has no symmetry that
    # widens it. Of categories, which may be renamed, it is about one order, and so is the response.
    example = rows.example(1)
    sites = model.in_rows if isinstance(model, Graph) else ()
    latent = model.has_categories(example) or any(site.name not in example.y for site in sites)
    if not model.kinds or (len(model.blocks) < 2 and not latent) or model.frozen or model.has_alike_members(example):
        return False
    return model.expansion is None and not (isinstance(model, Graph) and (model.networks or model.local))


def _rotated(model: MessageTarget, rows: Arrays) -> frozenset[str]:
    # The sides of products W @ z, whose rotations are free, so that they have no deviation. Not of one entry each, as a
    # sign is no direction, nor if a side is observed, or what it tells of others is. Other variables have the same
    # response whether a rotation is free or not.
    if not isinstance(model, Graph):
        return frozenset()
    seen = [site for site in model.in_rows if site.name in rows.example(1).y and not multiplied(site)]
    pinned = frozenset().union({site.name for site in seen}, *(site.factor.names for site in seen))
    return multiplied(model.sites, pinned, entries=2)


def _responses(objective: Objective, beliefs: dict[str, Belief], batch: Batch) -> tuple[Array, Array]:
    # Returns the Hessian of the expected log joint in the means of statistics, and the covariance of these.
    target: Any = objective.model
    mu, restored = ravel_pytree(target.moments(beliefs))
    loss = ConjugateLoss(objective, batch, {}, {})

    def natural(mu: Array) -> Array:
        gradient = jax.grad(lambda mu: loss.at(restored(mu)))(mu)
        return -jnp.asarray(objective.concentration, mu.dtype) * gradient

    def mean(natural: Array) -> Array:
        moments = {name: target.kinds[name].under(part.belief()) for name, part in restored(natural).items()}
        return ravel_pytree(moments)[0]

    # One row after the other, in the memory of one. Triangular solves of many rows at once can wait for each other
    # without end, on two cores.
    def jacobian(function: Any, at: Array) -> tuple[Array, Array]:
        value, pull = jax.vjp(function, at)
        return value, jax.lax.map(lambda basis: pull(basis)[0], jnp.eye(mu.size, dtype=mu.dtype))

    slopes, H = jacobian(natural, mu)
    return H, jacobian(mean, slopes)[1]


_responses_quickly, _responses_lightly = compiled_once()(_responses), compiled_lightly()(_responses)


@jax.jit
def _scaled(belief: Belief, scale: Numeric) -> Belief:
    return belief.with_natural(tree.scale(belief.to_natural(), scale))


@jax.jit
def _losses(objective: Objective, batch: Batch, theta: Params, dispersions: Params) -> Array:
    # Returns the mean loss on a batch at every draw.
    if isinstance(objective.model, Graph):
        graph, loss = objective.model, ConjugateLoss(objective, batch, {}, {})
        return jax.lax.map(lambda draw: loss.at(graph.values(draw), dispersions=dispersions), theta)
    from lamu.natural_rule.program_parameters import ProgramLoss  # NumPyro is imported where a program is used

    loss = ProgramLoss(objective, batch, {}, {})
    return jax.lax.map(lambda draw: loss.value(draw, {}, None)[0], theta)


@jax.jit
def _density_losses(objective: Objective, batch: Batch, theta: Params, dispersions: Params) -> Array:
    # Returns the mean loss at every draw of the real coordinates of a density.
    loss = lambda draw: objective.mean_loss({"network": draw, "likelihood": dispersions}, batch, {})[0]
    return jax.lax.map(loss, theta)


@jax.jit
def _log_densities(belief: Belief, theta: Params) -> Array:
    return jnp.asarray(jax.lax.map(belief.log_prob, theta))
