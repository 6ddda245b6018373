r"""Compares likelihoods by the log density of held-out rows, each as a generalised linear model.

The density of a continuous target and the mass of a discrete one cannot be compared. Where a candidate is discrete, a
continuous one is judged by its probability of the unit interval around the target,

\[ \log P(y - \tfrac12 < Y \le y + \tfrac12 \mid f) \]

so that all figures are logarithms of probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.data.batch import Batch, with_offset
from lamu.folds import folds_of
from lamu.model import Model
from lamu.one_layer import linear_model
from lamu.typing import Array, Data, Inputs, Params, Targets

__all__ = ["compare_likelihoods", "log_probability"]


def compare_likelihoods(
    x: Inputs,
    y: Targets,
    candidates: Sequence[Any],
    folds: int = 3,
    seed: int = 0,
    weight: object = None,
    offset: object = None,
) -> dict[str, np.ndarray]:
    """Returns the held-out log density of every row, `[N]` in nats, by the name of the candidate likelihood.

    Each is the model of `lamu.regression` at its mode, weights and dispersions together, fitted to the rows of the
    other folds. Compare paired differences: the mean of `found[a] - found[b]` and its standard error.

    Args:
        x: columns of numbers, `[N, D]`.
        y: targets, `[N]`, or arrays by name.
        candidates: names, as for `lamu fit --likelihood`, or likelihoods, all of this target.
        folds: the number of parts that the rows are split into.
        seed: of the folds.
        weight: the weight of each row in the fits, `[N]`; ones where None. The returned log densities are not weighted.
        offset: a known part of the linear predictor, as in the data of `lamu.fit`.

    Raises:
        ValueError: for an unknown name, targets outside a candidate's support, or fewer than two folds.

    Examples:
        >>> import lamu, numpy as np
        >>> random = np.random.default_rng(0)
        >>> x = random.normal(size=(300, 1))
        >>> y = random.negative_binomial(1, 1 / (1 + np.exp(1 + x[:, 0])))
        >>> found = lamu.compare_likelihoods(x, y, ["poisson", "negative_binomial", "gaussian"])
        >>> max(found, key=lambda name: found[name].mean())
        'negative_binomial'
    """
    if not 2 <= folds <= len(x):
        raise ValueError(f"folds={folds!r} cannot be made of {len(x)} rows; give a number from 2 to the rows")
    models = {_name(each): linear_model(x, y, each, weight=weight) for each in candidates}
    any_discrete = any(model.likelihood.support.discrete for model in models.values())
    parts = folds_of(np.arange(len(x)), folds, seed, stratify=False)
    rows = {"x": x, "y": y, "weight": weight, "offset": offset}
    data = {name: values for name, values in rows.items() if values is not None}
    return {name: _held_out(model, data, parts, any_discrete) for name, model in models.items()}


def log_probability(likelihood: Any, params: Params, f: Array, y: Targets, whole: bool) -> Array:
    """Returns the log density of each row, `[batch]` in nats; for whole numbers the log probability of a unit interval.

    Args:
        likelihood: p(y | f).
        params: its dispersions.
        f: the outputs, `[batch, outputs]`.
        y: the targets.
        whole: whether the targets are whole numbers.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihood_choice import log_probability
        >>> from lamu.likelihoods import Gaussian
        >>> log_probability(Gaussian(1.0), {}, jnp.zeros((1, 1)), jnp.zeros(1), whole=True).round(4).tolist()
        [-0.959...]
    """
    if whole and not likelihood.support.discrete:
        y = jnp.asarray(y).astype(f.dtype)
        return likelihood.log_interval(params, f, y - 0.5, y + 0.5)
    return likelihood.log_prob(params, f, y)


def _held_out(model: Model, data: Data, parts: Sequence[np.ndarray], whole: bool) -> np.ndarray:
    """Returns the log density of every row under the mode fitted to the other folds."""
    from scipy.optimize import minimize

    rows: Any = model.read(data)
    batch: Batch = rows.full()
    params, state = model.init(jax.random.key(0), batch)
    start, unravel = tree.ravel({**params, "network": tree.zeros_like(params["network"])})

    @jax.jit
    @jax.value_and_grad
    def loss(flat: Array, weights: Array) -> Array:
        params = unravel(flat)
        log_likelihood = model.log_likelihood(params, state, batch)[0]
        return -(jnp.sum(weights * log_likelihood) + model.log_prior(params)) / jnp.sum(weights)

    def at(flat: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = loss(jnp.asarray(flat, start.dtype), jnp.asarray(weights, start.dtype))
        return float(value), np.asarray(slope, float)

    @jax.jit
    def densities(flat: Array) -> Array:
        params = unravel(flat)
        f = with_offset(model.outputs(params, state, batch.x)[0], batch.offset)
        return log_probability(model.likelihood, params["likelihood"], f, batch.y, whole)

    log_densities = np.zeros(rows.count)
    for fold in parts:
        weights = np.array(batch.weight, float)
        weights[fold] = 0.0
        mode: Any = minimize(at, np.asarray(start, float), args=(weights,), jac=True, method="L-BFGS-B")
        log_densities[fold] = np.asarray(densities(jnp.asarray(mode.x, start.dtype)), float)[fold]
    return log_densities


def _name(candidate: Any) -> str:
    return candidate if isinstance(candidate, str) else candidate.name
