"""Warnings of networks that have learned hardly anything from their training rows, or the noise in them too."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lamu.base.compile_once import compiled_lightly, compiled_once
from lamu.convergence import Overfit, Underfit
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch, with_offset
from lamu.data.stream import Stream
from lamu.families import Ensemble, Point, Product
from lamu.families.products import is_certain
from lamu.likelihoods import Likelihood
from lamu.model import Model
from lamu.networks.wrapper import Standardised
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.predictives.sampled import OwnStatistics
from lamu.priors import FanIn, Normal, Prior
from lamu.running.conclusion import Fit
from lamu.running.history import row_losses
from lamu.supports import value_of
from lamu.tree import dimension, ravel
from lamu.typing import Array, Belief, Params, State, Targets

__all__ = ["constant_of", "warn_pretrained_fit", "warn_training_fit"]


_FEWEST, _MOST = 20, 1024  # training rows that can decide, and that do
_SHORT = 50  # steps, of fewer than which `Unconverged` tells to take more
_HARDLY = 0.05  # of a constant's deviance, below which hardly anything was learned
_NEARLY = 0.95  # of the variance, above which a noise learned from the same rows is a small rest of it
_NUMBERS = 2**26  # of the inputs, and of the Jacobian of all rows, 256 MiB
_APART = 0.5
_FOLLOWS = 0.5  # the least correlation of outputs and targets in another unit
_OPEN = 30.0  # deviation of a prior; of 60 separable rows `laplace` has .05 nats at 10, .18 at 100 and .47 at 1,000
_FAR = 20.0  # of targets that no one standardised, in units of outputs of order one
_WIDE = 0.7  # of a constant's loss that a belief must explain where its mean explains nearly all of it
# Of the variance that a likelihood of counts leaves. With 400 counts of means about four and 1,313 weights the squared
# residuals of points and last layers are .07 to .29 of it, and those of `ivon`, .4 to 1.6 nats better, .75 to 1.3.
_FEW = 0.4
# Of the same, at the mean of a Gaussian, whose predictions differ from those of its mean: on these counts it was .05
# and .06 by `laplace` (2.85 and 3.58 nats for other rows; .32 and .35 with a `LearnedNormal`, 2.13 and 2.27), .2 by
# `ogn` (2.59), .42 by `kfac` (2.17), .77 and more by `vogn` and `ivon` (2.02 to 2.11).
_FEW_OF_MEAN = 0.2
# Of a row's degree of freedom. With 533 rows and 1,313 weights beliefs about a mode, whose noise is a point, take .8 to
# 1.9 (`kfac` has 20 nats for other rows, 3 for its own), `ivon` and `vogn` .15 to .19.
_MANY = 0.5
# Of a constant's loss. On 24 sets whose classes a network separates and tells of other rows (digits, iris, spirals, a
# hyperplane in as many dimensions as rows) it was .04 to 1.2, on twelve with noise in their classes 3.4 and more.
_TIMES = 3.0


def warn_training_fit(fit: Fit, rows: Arrays | Stream, example: Batch, objective: Objective, validated: bool) -> None:
    """Warns of a network that predicts its training rows no better than a constant, or too well for its noise."""
    # With 300 rows of y = x_0 + N(0, 1), 4,609 weights and the defaults, the negative log density of other rows is 1.42
    # at best. `ivon` has 1.90 (a constant 1.78), `adam` 513, `deep_ensemble` 55, `last_layer` 2,842; `adam` and
    # `deep_ensemble` with validation=0.2 have 1.53 and 1.51.
    model, losses = fit.posterior.model, fit.history.get("loss", np.empty(0))
    if not isinstance(model, Model) or not len(losses):
        return
    known = (
        rows
        if isinstance(rows, Arrays)
        else Arrays(example.x, example.y, example.weight * example.mask, example.offset)
    )
    if np.ndim(known.y) != 1:
        return
    # By NumPy, since most fits end here and need no program for it.
    some = _at_most(known)
    weight = np.asarray(some.weight, float)
    belief, size = fit.posterior.belief, int(objective.data_size)
    may_underfit = len(losses) >= _SHORT and not model.identified
    of_point = is_certain(belief) or model.frozen is not None  # frozen by what took a trained network further
    may_overfit = not validated and _weights(belief, model) >= size
    # As of `ogn`, whose losses are those of its mean; where they are those of draws, the belief itself has learned.
    linearised = model.has_classes and not (of_point or isinstance(fit.posterior.rule, Sampled))
    linearised = linearised and (not model.identified or _is_wide(model.prior))
    if np.sum(weight > 0) < _FEWEST or not (may_underfit or may_overfit or linearised):
        return
    constant = _constant_loss(some, model)
    if constant is None:
        return
    explained = lambda loss: (
        1 - (loss / constant if model.has_classes else np.exp(np.minimum(2 * (loss - constant), 9)))
    )
    # The losses of the last steps, which are those of single draws, tell at no cost that most networks have learned.
    last = np.mean(losses[-max(1, len(losses) // 10) :])
    may_underfit = may_underfit and explained(last - _prior_part(belief, objective)) < _HARDLY
    whole = known is rows and known.count <= _MOST and np.size(known.x) <= _NUMBERS
    if (
        may_overfit
        and of_point
        and model.has_classes
        and whole
        and _neighbours_differ(np.asarray(known.x), np.asarray(known.y))
    ):
        _warn_learned_one_by_one(fit.posterior, model, known, constant, float(objective.likelihood_power))
    if model.has_classes:
        may_overfit = False
    elif of_point:
        may_overfit = may_overfit and (_learns_noise(belief) or _is_of_counts(model))
    else:  # about a mode, as that of `kfac`
        of_numbers = model.support.affine and _learns_noise(belief) and explained(last) > _NEARLY
        may_overfit = may_overfit and isinstance(belief, Product) and (of_numbers or _is_of_counts(model))
    if linearised and model.identified:  # the mode is found after the steps
        point = replace(fit.posterior, belief=Point(belief.mean), rule=Sampled())
        last = float(np.average(row_losses(point, some), weights=weight))
    may_be_wide = linearised and explained(last) > _NEARLY
    if not (may_underfit or may_overfit or may_be_wide):
        return
    loss = float(np.average(row_losses(fit.posterior, some), weights=weight))
    share = explained(loss)
    if may_underfit and share < _HARDLY:
        colder = "let lamu.fit_temperature(model, data, algorithm) choose its temperature, or take deep_ensemble(...)"
        noisy = f"{size:,} rows do not outweigh the noise of the weights"
        sampled = model.support.affine and isinstance(fit.posterior.rule, Sampled)
        table = f"take {'laplace(), or ' if sampled else ''}lamu.fit_table of the same rows"
        other = f"{noisy}: {colder if model.has_classes else table}"
        if is_certain(belief):  # units of which a first step was too long have no gradient ever after
            other = "the steps were too few, or so long that units died: take more steps, or a smaller learning rate"
        other = model.unscaled_inputs(example) or _unscaled_targets(model, known.y) or other
        warnings.warn(
            f"the belief predicts its training rows {'hardly' if loss < constant else 'no'} better than a constant, "
            f"with {loss:.3g} nats a row instead of {constant:.3g}; either the inputs tell little about the target, or "
            f"{other}",
            Underfit,
            stacklevel=3,
        )
    elif may_be_wide and share < _WIDE:
        reason = (
            "either these rows were learned one by one, or the belief is too wide, since the curvature vanishes where "
            "probabilities are zero and one; take laplace(), which averages the curvature over the belief, or ivon()"
        )
        if model.identified:
            reason = (
                "a line separates the classes, so that the prior alone holds the weights, and it is too wide for a "
                "Gaussian about the mode; give a narrower one, Normal(1.0) with inputs of order one, or take ivon()"
            )
        warnings.warn(
            f"the belief predicts its training rows with {loss:.3g} nats a row, and the network at its mean had "
            f"{last:.3g} (a constant {constant:.3g}): {reason}",
            Underfit,
            stacklevel=3,
        )
    if (
        may_overfit
        and share > _NEARLY
        and _learns_noise(belief)
        and (of_point or _leverage(fit.posterior, some) > _MANY)
    ):
        warnings.warn(
            f"{share:.3%} {'of the variance' if model.support.affine else '(Cox and Snell R²)'} of the training rows, "
            f"{size:,}, is explained by a network of more weights, "
            "and the noise is learned as a point from the rest; unless the target is nearly free of noise, intervals "
            "are too narrow: give validation=0.1, whose best state is kept, or take "
            f"{'laplace()' if model.support.affine else 'ivon()'}",
            Overfit,
            stacklevel=3,
        )
    elif (
        may_overfit
        and _is_of_counts(model)
        and (left := _left_of_noise(fit.posterior, some)) < (_FEW if of_point else _FEW_OF_MEAN)
    ):
        remedy = "give validation=0.1, whose best state is kept, or take ivon()"
        if not of_point:
            remedy = "take ivon(), or laplace() with the prior lamu.priors.LearnedNormal()"
        warnings.warn(
            f"the counts of the training rows, {size:,}, are learned one by one by a network of more weights: the mean "
            f"square of their residuals is {left:.2g} of the variance of {model.likelihood.name}; unless they are "
            f"nearly free of noise, other rows are predicted badly, as by too narrow intervals: {remedy}",
            Overfit,
            stacklevel=3,
        )


def _unscaled_targets(model: Model, y: Targets) -> str:
    """Returns the clause about targets that are far from order one and were not standardised; else empty."""
    if not model.support.affine or isinstance(model.network, Standardised):
        return ""
    values = np.asarray(value_of(y), float)
    if np.abs(np.mean(values)) <= _FAR and 1 / _FAR <= np.std(values) <= _FAR:
        return ""
    range_ = f"from {values.min():.3g} to {values.max():.3g}"
    return (
        f"the targets are not scaled ({range_}), and the prior of the weights is for outputs of order one; take "
        "model.standardised(x, y)"
    )


def warn_pretrained_fit(fit: Fit, rows: Arrays | Stream) -> None:
    """Warns of a network that arrived trained and predicts its training rows worse than a constant."""
    posterior, model = fit.posterior, fit.posterior.model
    mean = getattr(posterior.belief, "mean", None)  # a belief with several modes has none
    if not isinstance(model, Model) or not isinstance(rows, Arrays) or np.ndim(rows.y) != 1 or mean is None:
        return
    some = _at_most(rows)
    y, weight = np.asarray(model.support.numbers(some.y), float), np.asarray(some.weight, float)
    constant = _constant_loss(some, model)
    if np.sum(weight > 0) < _FEWEST or constant is None:
        return
    # Most networks end here, at one forward pass. Under a Gaussian no noise makes the loss of a mean that is worse than
    # a constant less than the constant's.
    if float(_loss_at(mean, model, posterior.network_state, some.full())) <= constant:
        return
    rule = posterior.rule if isinstance(posterior.rule, OwnStatistics) else Sampled()
    pred = replace(posterior, belief=Point(mean), rule=rule).predict(some.x, offset=some.offset)
    loss = -float(np.average(np.asarray(pred.log_prob(some.y), float), weights=weight))
    outcome = f"{loss:.3g} nats a row where a constant has {constant:.3g}"
    remedy = "give inputs as in its training: the same preprocessing, scaling and order of columns"
    if model.support.affine and model.likelihood.outputs(some.y) == 1:  # a known noise need not be that of a constant
        f = np.asarray(pred.mean, float)
        (var_f, cov), (_, var_y) = np.cov(f, y, aweights=weight, bias=True)
        error = float(np.average((y - f) ** 2, weights=weight))
        if not error > var_y:
            return
        outcome = f"a mean squared error of {error:.3g} where the targets have a variance of {var_y:.3g}"
        slope = cov / var_f if var_f > 0 else 1.0
        if not 0.5 < slope < 2.0 and cov > _FOLLOWS * math.sqrt(var_f * var_y):
            level = np.average(y, weights=weight) - slope * np.average(f, weights=weight)
            remedy = (
                f"its targets seem to have been scaled, since the target is about {level:.4g} + {slope:.4g} times its "
                "output: give the likelihood lamu.likelihoods.Scaled(base, shift=mean, scale=deviation) with the mean "
                "and deviation of its training"
            )
    elif not loss > constant:
        return
    elif model.support.affine:
        remedy = (
            f"give outputs as {model.likelihood.name} reads them: of HeteroscedasticGaussian the second is no log "
            "variance v, and log(expm1(exp(v / 2))) - 0.5413 is right for it"
        )
    elif model.has_classes:
        remedy = f"{remedy}, and of the classes"
    warnings.warn(
        f"the trained network predicts its training rows worse than a constant, with {outcome}; {remedy}",
        Underfit,
        stacklevel=3,
    )


def _at_most(rows: Arrays) -> Arrays:
    """Returns rows evenly over all of them: most tables are whole, for which there is nothing to compile."""
    return rows if rows.count <= _MOST else rows.take(np.linspace(0, rows.count - 1, _MOST).astype(int))


@compiled_lightly()
def _loss_at(params: Params, model: Model, state: State, batch: Batch) -> Array:
    """Returns the mean negative log density of a batch at some parameters, in nats a row."""
    losses = -model.log_likelihood(params, state, batch)[0]
    return batch.total(losses) / batch.total(jnp.ones_like(losses))


def _weights(belief: Belief, model: Model) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves((_shapes(belief).get("network"), model.frozen)))


def _learns_noise(belief: Belief) -> bool:
    """Whether a dispersion is learned as a point."""
    if isinstance(belief, Product) and not is_certain(belief.factors["likelihood"]):
        return False
    return bool(jax.tree.leaves(_shapes(belief).get("likelihood")))


def _shapes(belief: Belief) -> Params:
    return jax.eval_shape(lambda belief: belief.sample(jax.random.key(0)), belief)


def _is_of_counts(model: Model) -> bool:
    return model.support.discrete and not model.has_classes


@np.errstate(all="ignore")  # a mean that has overflown, or a variance of zero, is no finding
def _leverage(posterior: Posterior, rows: Arrays) -> float:
    """Returns the mean variance of the rows' outputs, in units of the noise: the degrees of freedom that they cost."""
    pred = posterior.predict(rows.x, offset=rows.offset)
    return float(np.average(np.asarray(pred.epistemic) / np.asarray(pred.aleatoric), weights=np.asarray(rows.weight)))


@np.errstate(all="ignore")
def _left_of_noise(posterior: Posterior, rows: Arrays) -> float:
    """Returns the mean squared residual of the rows at the mean of a Gaussian, in units of their variance there."""
    if isinstance(posterior.belief, Product):
        posterior = replace(posterior, belief=Point(posterior.belief.mean), rule=Sampled())
    pred = posterior.predict(rows.x, offset=rows.offset)
    squares = (np.asarray(rows.y, float) - np.asarray(pred.mean, float)) ** 2
    return float(np.average(squares / np.asarray(pred.aleatoric, float), weights=np.asarray(rows.weight, float)))


def _prior_part(belief: Belief, objective: Objective) -> float:
    """Returns the prior's part of a loss in nats a row: it is in that of points, and else enters the belief exactly."""
    if not is_certain(belief):
        return 0.0
    members = belief.members if isinstance(belief, Ensemble) else [belief]
    return float(np.mean([_negative_log_prior(objective, member.mean) for member in members]))


def _is_wide(prior: Prior) -> bool:
    """Whether a normal prior is so wide that separable classes are left to it."""
    if not isinstance(prior, Normal):
        return False
    scales: Any = prior.scale if isinstance(prior.scale, tuple) else (prior.scale,)
    return all(not isinstance(scale, FanIn) and np.min(scale) >= _OPEN for scale in scales)


@jax.jit
def _negative_log_prior(objective: Objective, params: Params) -> Array:
    return objective.negative_log_prior(params)


def _neighbours_differ(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether the nearest rows have other classes, and not so much less often than any rows, as classes with noise."""
    # By NumPy, since most classes end here and need no program for it: iris .13, digits .04, two moons 0 to .2.
    flat = x.reshape(len(x), -1).astype(float)
    scale = np.std(flat, axis=0)
    flat = (flat - np.mean(flat, axis=0)) / np.where(scale > 0, scale, 1.0)
    distance = np.sum(flat**2, axis=1) - 2 * flat @ flat.T  # less the square of the row itself
    np.fill_diagonal(distance, np.inf)
    return bool(np.mean(y[np.argmin(distance, axis=1)] != y) > _APART * np.mean(y[:, None] != y))


def _warn_learned_one_by_one(posterior: Posterior, model: Model, rows: Arrays, constant: float, power: float) -> None:
    """Warns of a network that knows each row's class from this row, and not from the others."""
    losses = _losses_left_out(posterior, model, rows, power)
    if losses is None:
        return
    seen, left_out = (float(np.average(each, weights=np.asarray(rows.weight, float))) for each in losses)
    if seen < constant and left_out > _TIMES * constant:
        warnings.warn(
            f"the classes of the training rows, {rows.count}, are learned one by one by a network of more weights: "
            f"a row has {seen:.2g} nats, {left_out:.2g} if it is left out (to first order in its influence), and "
            f"{constant:.2g} by the shares of the classes; probabilities of other rows are too sure: give "
            "validation=0.1, whose best state is kept, or take ivon()",
            Overfit,
            stacklevel=4,
        )


def _losses_left_out(
    posterior: Posterior, model: Model, rows: Arrays, power: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the loss of each row, and that without it in training; None for a prior or a size that forbids it."""
    # Approximate leave-one-out (Rad & Maleki, 2020) of the log odds h of a row's own class, in which its loss has the
    # slope p - 1 and the curvature p (1 - p): h - V (1 - p) / (1 - p (1 - p) V), V the variance of h by Laplace. It is
    # exact to first order for weights at their mode, and too large otherwise.
    belief, batch = posterior.belief, rows.full()
    states = [posterior.network_state]
    if several := isinstance(belief, Ensemble):
        states = [jax.tree.map(lambda leaf, k=k: leaf[k], states[0]) for k in range(belief.count)]
    weight, densities = np.asarray(rows.weight, float) * power, []
    for member, state in zip(belief.members if several else [belief], states, strict=True):
        params = {**member.mean, "network": model.complete(member.mean["network"])}
        prior = model.prior.gaussian(params["network"])
        large = rows.count * dimension(params["network"]) > _NUMBERS
        if prior is None or large or (several and model.frozen is not None):  # each member's are its own
            return None
        scale = jax.tree.map(jnp.sqrt, prior.precision.variance(params["network"]))
        odds, kernel = (
            np.asarray(part, float) for part in _log_odds(replace(model, frozen=None), params, state, scale, batch)
        )
        p = np.exp(-np.logaddexp(0, -odds))
        root = np.sqrt(weight * p * (1 - p))
        inner = np.eye(len(p)) + root[:, None] * kernel * root
        variance = np.diag(kernel) - np.sum((kernel * root) * np.linalg.solve(inner, root[:, None] * kernel).T, axis=1)
        left = np.maximum(1 - root**2 * variance, 1e-6)
        densities.append((p, np.exp(-np.logaddexp(0, variance * weight * (1 - p) / left - odds))))
    seen, left_out = -np.log(np.maximum(np.mean(densities, axis=0), 1e-300))
    return seen, left_out


@jax.jit
def _log_odds(model: Model, params: Params, state: State, scale: Params, batch: Batch) -> tuple[Array, Array]:
    """Returns the log odds of every row's own class, and their covariance under the prior, linear in the weights."""

    def of_row(row: Batch) -> tuple[Array, Array]:
        def log_odds(unit: Params) -> Array:
            network = jax.tree.map(lambda weight, unit, scale: weight + unit * scale, params["network"], unit, scale)
            alone = jax.tree.map(lambda leaf: leaf[None], row)
            loss = jnp.maximum(-model.log_likelihood({**params, "network": network}, state, alone)[0][0], 1e-6)
            return -loss - jnp.log(-jnp.expm1(-loss))

        odds, slope = jax.value_and_grad(log_odds)(jax.tree.map(jnp.zeros_like, scale))
        return odds, ravel(slope)[0]

    odds, jacobian = jax.lax.map(of_row, batch, batch_size=64)
    return odds, jacobian @ jacobian.T


def _constant_loss(rows: Arrays, model: Model) -> float | None:
    """Returns the mean negative log density of the best prediction that all rows share; None where there is none."""
    y, weight = np.asarray(rows.y), np.asarray(rows.weight, float)
    if not (model.has_classes or model.support.affine):
        outputs, dispersions = constant_of(model.likelihood, replace(rows.full(), x=None))
        f = with_offset(jnp.broadcast_to(outputs, (rows.count, outputs.size)), rows.offset)
        loss = -np.asarray(model.likelihood.log_prob(dispersions, f, rows.y), float)
        return float(np.average(loss, weights=weight))
    if rows.offset is not None:
        return None
    if model.has_classes:
        share = np.bincount(model.support.numbers(y).astype(int), weight) / weight.sum()
        return float(-np.sum(share * np.log(np.where(share > 0, share, 1.0)))) or None
    variance = np.average((y - np.average(y, weights=weight)) ** 2, weights=weight)
    return float(0.5 * np.log(2 * np.pi * np.e * variance)) if variance > 0 else None


def constant_of(likelihood: Likelihood, batch: Batch) -> tuple[np.ndarray, Params]:
    """Returns the maximum-likelihood outputs, equal for all rows, and dispersions."""
    # \[ \max_{z, \phi} \; \sum_i \log p(y_i \mid f, \phi) + \log p(\phi) - \tfrac12 (z / 10)^2, \qquad f = f_0 + u z \]
    from scipy.optimize import minimize

    zeros = np.zeros(likelihood.outputs(batch.y), batch.mask.dtype)
    start, unit = _place(likelihood, batch, zeros)
    like = zeros, jax.tree.map(np.asarray, likelihood.init(batch.y))
    leaves, structure = jax.tree.flatten(like)
    first = np.concatenate([leaf.ravel() for leaf in leaves])

    def at(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = _loss(flat.astype(first.dtype), like, (start, unit), likelihood, batch)
        return float(value), np.asarray(slope, float)

    optimum: Any = minimize(at, first.astype(float), jac=True, method="L-BFGS-B", options={"maxiter": 50})
    flat = optimum.x if np.isfinite(optimum.x).all() else first
    parts = np.split(flat.astype(first.dtype), np.cumsum([leaf.size for leaf in leaves])[:-1])
    found = structure.unflatten([part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])
    return np.asarray(start) + np.asarray(unit) * found[0], found[1]


@compiled_once()
def _place(likelihood: Likelihood, batch: Batch, zeros: Array) -> tuple[Array, Array]:
    """Returns the outputs from which the constant ones are searched, and their units."""
    values = jnp.asarray(value_of(batch.y)).astype(zeros.dtype)
    start = likelihood.output_start(batch.total(values) / batch.total(jnp.ones_like(values)), zeros)
    return start, likelihood.output_units(start)


@compiled_lightly()
@jax.value_and_grad
def _loss(
    flat: Array, like: tuple[Array, Params], place: tuple[Array, Array], likelihood: Likelihood, batch: Batch
) -> Array:
    steps, dispersions = ravel_pytree(like)[1](flat)
    intercept = place[0] + place[1] * steps
    f = with_offset(jnp.broadcast_to(intercept[None], (batch.mask.shape[0], intercept.shape[0])), batch.offset)
    total = batch.total(likelihood.log_prob(dispersions, f, batch.y)) + likelihood.log_prior(dispersions)
    return (jnp.sum((steps / 10) ** 2) / 2 - total) / batch.count
