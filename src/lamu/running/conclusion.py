"""The end of a run: its result, or the error of a diverged one, the convergence, and warnings."""

from __future__ import annotations

import contextlib
import logging
import warnings
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory
from lamu.base.arguments import number
from lamu.base.compile_once import compiled_once, subkey
from lamu.batch_statistics import BatchStatistics
from lamu.conjugate_target import MessageTarget
from lamu.convergence import LARGEST_R_HAT, Convergence, Unconverged, WorseThanMean
from lamu.data.arrays import Arrays, FewRows
from lamu.data.batch import Batch
from lamu.data.stream import Stream
from lamu.data.wording import getattr_or_substitute
from lamu.families import Draws, Ensemble, Gaussian, Point, Product
from lamu.families.products import factor_of, is_certain
from lamu.likelihoods import HeteroscedasticGaussian, Scaled
from lamu.model import Model
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.predictives.sampled import OwnStatistics
from lamu.priors import Hierarchy, LearnedNormal
from lamu.priors.hierarchy import holds_scales
from lamu.protocol import Algorithm, runnable
from lamu.record import restored
from lamu.running.history import History, mean_and_margin, row_losses
from lamu.running.schedule import Rounds
from lamu.target import ConstrainedTarget, Target
from lamu.typing import Array, Params, RandomKey, State

__all__ = [
    "Conclusion",
    "Diverged",
    "Fit",
    "require_trained",
    "warn_constant",
    "warn_few_rows",
    "warn_first_guess",
    "warn_one_start",
    "warn_probabilities",
    "warn_rare_events",
    "warn_scales_apart",
    "warn_seen_rows",
    "warn_unconverged",
    "warn_worse_than_mean",
]


_ELSEWHERE = {
    "predict": "fit.posterior.predict(x)",
    "predict_proba": "fit.posterior.predict(x).probabilities",
    "sample": "fit.posterior.sample(key, n)",
    "save": "fit.posterior.save(path)",
    "score": "lamu.scores.nll(fit.posterior.predict(x), y), or another of lamu.scores",
}


class Diverged(RuntimeError):
    """Raised when the loss becomes NaN or infinite.

    Attributes:
        fit: the result before the failed block of steps; None for a sampler, or where that was not a valid belief.
    """

    def __init__(self, message: str, fit: Fit | None) -> None:
        super().__init__(message)
        self.fit = fit


@dataclass(frozen=True)
class Fit:
    """Result of `fit`.

    Attributes:
        posterior: the posterior; with validation, that of the best state.
        history: "loss" (nats a row, an estimate on each step's batch) and "residual", one entry a step; with
            validation, "validation_step" and "validation_nll" (nats a row), one entry a validation, one for a sampler.
        state: the algorithm's last state; on the mesh, where there was one.
        interrupted: whether the run was stopped from the keyboard before its end.
        rows: the first rows, as many as the model's warnings need; None for none.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.7)).standardised(x, y)
        >>> sorted(lamu.fit(model, (x, y), lamu.algorithms.conjugate()).history)
        ['loss', 'residual']
    """

    posterior: Posterior
    history: dict[str, np.ndarray]
    state: State
    interrupted: bool = False
    rows: Any = None

    __setstate__ = restored  # of pickle

    def __repr__(self) -> str:
        """One line with the model, the length, the convergence and the `warnings` of the fit."""
        posterior = self.posterior
        steps, convergence = len(self.history["loss"]), posterior.convergence
        words = [f"{type(posterior.belief).__name__} about {posterior.model.name}", f"{steps:,} steps"]
        if steps:
            words.append(f"loss {float(self.history['loss'][-1]):.4g}")
        if posterior.temperature != 1.0:
            words.append(f"temperature {float(posterior.temperature):g}")
        if convergence is not None:
            words.append("converged" if convergence.converged else "not converged")
        words += self.warnings
        return f"Fit({', '.join([*words, *(['interrupted'] if self.interrupted else [])])})"

    def __getattr__(self, name: str) -> Any:
        """Raises an AttributeError that names Lamu's counterpart of other libraries' methods."""
        return getattr_or_substitute(self, name, _ELSEWHERE)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The model's warnings about the posterior, such as empty mixture components or idle latent units."""
        return self.posterior.model.warnings(self.posterior.belief, self.posterior.temperature, self.rows)

    @property
    def convergence(self) -> Convergence | None:
        """The distance of the posterior from the fixed point of the rule; None where it was not measured."""
        return self.posterior.convergence


_FEWEST, _MOST = 20, 256  # numbers of rows for distinguishing probabilities from log odds
_NATS = 3.0  # by which probabilities must fit better, over all rows together


def require_trained(model: Target, epochs: object) -> None:
    """Raises a ValueError for a run of no steps from random weights."""
    if epochs == 0 and not model.trained:
        raise ValueError(
            f"epochs=0 would make a posterior of the random weights of {model.name}; give trained "
            "ones with model.starting_at(params), or a network that brings its own (lamu.networks.Trained), or train "
            "for some epochs"
        )


def warn_seen_rows(model: Target, algorithm: Algorithm, validation: object) -> None:
    """Warns where a pretrained network is validated on its training rows, or its prior's scale is chosen by them."""
    # Chosen by the bound, for other rows the last layers of thirteen networks on six sets had from .18 nats more than
    # the network (digits, .36 for .23 from another seed, .17 with rows to validate) to .93 less (vehicle, overfitted);
    # what they lost on the rows of training did not tell which.
    classes = isinstance(model, Model) and model.has_classes and isinstance(model.prior, LearnedNormal)
    if validation is None and classes and algorithm.traits.chooses_prior_scale:
        logging.getLogger("lamu").warning(
            "The scale of the prior is chosen by the rows that the network has learned from, and its predictions may "
            "become worse; give rows that it has not seen, validation=(x, y), which choose it better."
        )
    if number(validation) is not None:
        logging.getLogger("lamu").warning(
            "validation=%r sets aside rows of the data, which a network that arrives trained has learned from: on its "
            "own rows it is right too often to choose a prior's scale by; give rows that it has not seen, "
            "validation=(x, y), or leave validation out.",
            validation,
        )


def warn_one_start(model: Target, algorithm: Algorithm) -> None:
    """Warns where the members of an ensemble all start at the same pretrained weights."""
    if model.has_outputs and model.trained and algorithm.traits.runs > 1 and algorithm.traits.length is None:
        warnings.warn(
            f"the {algorithm.traits.runs} members all start at the trained weights of {model.name}, so that they agree "
            "where the rows say nothing, and everywhere with epochs=0; give a network with new weights for every "
            "member, for instance lamu.networks.Torch(Net) of the class, or a Gaussian about these: laplace(), "
            "last_layer()",
            UserWarning,
            stacklevel=3,
        )


def warn_first_guess(model: Target, algorithm: Algorithm) -> None:
    """Warns where the scale of a `LearnedNormal` prior is not learned."""
    if isinstance(model, Model) and isinstance(model.prior, LearnedNormal) and not algorithm.traits.chooses_prior_scale:
        logging.getLogger("lamu").warning(
            "The prior LearnedNormal keeps its first guess, a scale of %.3g: one run of this algorithm does not choose "
            "it. lamu.fit_prior_scale(model, data, algorithm) and lamu.fit_folds do, laplace() and last_layer() too; a "
            "sampler draws the scales of Hierarchical() and ARD().",
            float(model.prior.start),
        )


def warn_probabilities(model: Target, rows: Batch) -> None:
    """Warns where the outputs of a pretrained network look like probabilities, but are used as logits."""
    # An activation at the end of the network is an error (`lamu.networks.output_range`); this detects one that its
    # traced program does not show. It warns only if the outputs as probabilities fit the targets better.
    if not isinstance(model, Model) or not model.network.trained or rows.offset is not None:
        return
    count = min(_MOST, len(rows.weight))
    wanted = model.likelihood.outputs(rows.y)
    scales = set(model.likelihood.output_scales(wanted))
    if count < _FEWEST or scales not in ({"logits"}, {"log odds"}) or jnp.ndim(rows.y) != 1:
        return
    some = _first(rows, count)
    params, outputs = _outputs(model, some)
    f = np.asarray(outputs, float)
    probabilities = np.concatenate([1 - f, f], axis=1) if scales == {"log odds"} else f
    if f.min() < 0 or f.max() > 1 or not np.allclose(probabilities.sum(axis=1), 1, atol=1e-3):
        return
    of_target = np.clip(probabilities[np.arange(count), np.asarray(some.y).astype(int)], 1e-12, None)
    as_logits = np.asarray(model.likelihood.log_prob(params["likelihood"], jnp.asarray(f, some.x.dtype), some.y), float)
    if np.sum(np.log(of_target) - as_logits) <= _NATS:
        return
    what = "log odds" if scales == {"log odds"} else "logits"
    warnings.warn(
        f"all outputs of the network {model.network.name} on {count} rows lie between 0 and 1"
        f"{'' if what == 'log odds' else ', those of a row sum to one'}, and as probabilities they fit the targets "
        f"better ({np.log(of_target).mean():.3g} nats a row, {as_logits.mean():.3g} as {what}), but "
        f"{model.likelihood.name} takes them as {what}; give the network without its last sigmoid or softmax",
        UserWarning,
        stacklevel=3,
    )


@compiled_once(static_argnums=1)
def _first(rows: Batch, count: int) -> Batch:
    return jax.tree.map(lambda leaf: leaf[:count], rows)


@jax.jit
def _outputs(model: Model, rows: Batch) -> tuple[Params, Array]:
    """Returns the parameters of a pretrained network, and its outputs at rows."""
    params, state = model.init(jax.random.key(0), rows)
    return params, model.outputs(params, state, rows.x)[0]


@dataclass(frozen=True)
class Conclusion:
    """Turns the last state of a run into a posterior."""

    algorithm: Algorithm  # the algorithm
    objective: Objective  # the loss
    rows: Arrays | Stream  # the training rows
    held: Arrays | None  # the validation rows, or None
    batch_size: int  # rows a step
    key: RandomKey  # the posterior's key, from which that of measurements is derived
    statistics: BatchStatistics | None = None  # the treatment of a network's batch statistics, or None
    max_memory: Any = None  # the memory limit
    # Whether the distance from the fixed point is measured; pretrained weights have none.
    measures: bool = True

    def posterior(self, state: State, history: History, interrupted: bool = False) -> Posterior:
        """Returns the posterior of a state, with its convergence."""
        rows = self.rows
        if self.held is not None and isinstance(rows, Arrays):
            rows = replace(rows, held_out=self.held)
        try:
            with memory.within(self.max_memory):
                posterior = self.algorithm.posterior(
                    jax.random.clone(self.key), state, self.objective, rows, history.trace
                )
                if posterior.convergence is None and self.measures and not interrupted:
                    posterior = replace(posterior, convergence=self._measured(posterior, history.steps))
                if self.measures and not interrupted:
                    posterior = replace(posterior, convergence=self._shape(posterior, history.steps))
                if posterior.temperature == 1.0:  # a custom algorithm need not set it
                    posterior = replace(posterior, temperature=self.objective.posterior_temperature)
                posterior = replace(posterior, data_size=self._data_size())
                posterior = self.objective.model.constrained(posterior)  # a density with constraints
                return posterior if self.statistics is None else self.statistics.of(posterior, rows)
        except Exception as error:
            if self.algorithm.traits.needs_data_pass:  # the result of the steps is not lost by a later failure
                with contextlib.suppress(Exception):  # the first error is raised
                    point = runnable(self.algorithm).preview(jax.random.clone(self.key), state, self.objective)
                    error.fit = Fit(self.objective.model.constrained(point), history.columns, state, interrupted)  # pyright: ignore[reportAttributeAccessIssue]
                    error.add_note(
                        "The steps before this are not lost: the error's attribute `fit` holds their result."
                    )
            raise

    def _data_size(self) -> float:
        """Returns the number of rows, by their weights and the power of the likelihood."""
        weights: Any = self.rows.weight if isinstance(self.rows, Arrays) else np.ones(1)
        # By NumPy, without a program, but where other processes hold some of them.
        weight = float((np.asarray(weights) if getattr(weights, "is_fully_addressable", True) else weights).mean())
        return float(self.objective.data_size) * float(self.objective.likelihood_power) * weight

    def _measured(self, posterior: Posterior, steps: int) -> Convergence | None:
        from lamu.running.fixed_point import convergence_of  # imported here, as the steps do not need it

        key = subkey(jax.random.clone(self.key), 2)
        work = self._work(steps)
        return convergence_of(posterior, self.algorithm, self.objective, self.rows, key, work, self.batch_size)

    def _shape(self, posterior: Posterior, steps: int) -> Convergence | None:
        belief = posterior.belief
        density = isinstance(factor_of(belief, "network"), Gaussian) and isinstance(posterior.model, ConstrainedTarget)
        if not (density or isinstance(factor_of(belief, "network"), Product)):
            return posterior.convergence
        from lamu.running.belief_shape import shape_of  # imported here, as networks do not need graphs

        key = subkey(jax.random.clone(self.key), 4)
        return shape_of(posterior, self.objective, self.rows, key, self._work(steps))

    def _work(self, steps: int) -> float:
        """Returns the number of row gradients of a number of steps."""
        per_step = self.batch_size
        if isinstance(self.rows, Arrays):
            is_full = self.algorithm.traits.batching == "full"
            per_step = self.rows.count if is_full else min(self.batch_size, self.rows.count)
        return float(steps * per_step)

    def if_enough(self, state: State, history: History, rounds: Rounds) -> Posterior | None:
        """Returns the posterior at the end of the last round; else None."""
        # Warnings about the posterior of an earlier round are suppressed: the run continues because of them.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            posterior = self.posterior(state, history)
        if history.steps < rounds.limit and not rounds.enough(history.steps, posterior.convergence):
            return None
        for each in caught:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        return posterior


_RARE = 5  # events, of which fewer are rare where they are less than a tenth of the rows
_FEW_ROWS = 20  # below it a normal 90 % interval with a point estimate of the noise covers less than .88 (Student t)
_NO_NOISE = 0.01  # of the targets' deviation, below which few rows have lost all noise to the fit
_OTHER_SHAPE = (
    "sample it with lamu.mcmc.nuts(), give variables that depend on each other one belief (a MultivariateNormal), or "
    "write the model in variables whose posterior is closer to a Gaussian (of groups about a mean theta = mu + tau * z "
    "with z ~ Normal(0, 1))"
)

_OF_DENSITIES = (
    "sample it with lamu.mcmc.nuts(), take a belief with correlations, lamu.algorithms.von(structure="
    "lamu.operators.Dense), or write the density in variables that are closer to independent normal ones"
)

_OF_CATEGORIES = (
    "sample it with lamu.mcmc.nuts(), give variables that depend on each other one belief (a NormalGamma), or take "
    "fewer categories where rows hardly tell them apart"
)


def warn_few_rows(fit: Fit, rows: Arrays | Stream) -> None:
    """Warns of too narrow intervals, because the noise is a point estimate that the rows hardly determine."""
    belief, model = fit.posterior.belief, fit.posterior.model
    belief = belief.stacked if isinstance(belief, Ensemble) else belief
    if not (isinstance(belief, Point | Product) and isinstance(rows, Arrays) and isinstance(model, Model)):
        return
    if model.has_classes or np.ndim(rows.y) not in (1, 2):
        return
    noise = belief if isinstance(belief, Point) else belief.factors.get("likelihood")
    dispersions = noise.mean.get("likelihood", noise.mean) if isinstance(noise, Point) else {}
    y, weight = np.asarray(rows.y, float), np.asarray(rows.weight, float)
    y, count = y[weight > 0], float(np.sum(weight))
    wrapped = model.likelihood
    base = wrapped.base if isinstance(wrapped, Scaled) else wrapped
    if (jax.tree.leaves(dispersions) or isinstance(base, HeteroscedasticGaussian)) and not model.support.discrete:
        remedy = "give the noise (Gaussian(scale))" if model.support.affine else "give more rows"
        warn_constant(y, f"intervals have hardly any width, or an arbitrary one; {remedy}", FewRows)
    if model.earlier_dispersions is not None:  # the rows before these determine the noise too
        return
    if not jax.tree.leaves(dispersions) or count >= _FEW_ROWS or (y == y[:1]).all():
        return
    # A point says nothing of what it knows, except where it passes through all rows.
    if isinstance(belief, Point) or isinstance(belief.factors.get("network"), Point):
        scale = dispersions.get("log_scale", np.zeros(1)) if model.support.affine else np.zeros(1)
        unit = np.asarray(wrapped.scale, float) if isinstance(wrapped, Scaled) else 1.0
        if not (np.exp(np.asarray(scale, float)) * unit < _NO_NOISE * y.std(axis=0)).any():
            return
    remedy = (
        "take lamu.regression(x, y) or laplace() of a linear network, which integrate over it, or give the noise "
        "(Gaussian(scale))"
        if model.quadratic
        else "take the algorithm lamu.mcmc.nuts(), whose draws integrate over it"
    )
    warnings.warn(
        f"{count:.4g} rows hardly determine the noise, which is learned as a point, so that intervals are too narrow; "
        f"{remedy}",
        FewRows,
        stacklevel=3,
    )


def warn_constant(y: np.ndarray, consequence: str, category: type[Warning] = UserWarning) -> None:
    """Warns of constant targets, from which no noise can be learned."""
    constant = (y == y[:1]).reshape(len(y), -1).all(axis=0)
    if constant.any():
        values = y.reshape(len(y), -1)[0][constant]
        targets = "the only target is" if len(y) == 1 else f"all {len(y)} targets are"
        warnings.warn(
            f"{targets} {values[0]:g}, which does not determine their noise: {consequence}", category, stacklevel=3
        )


def warn_rare_events(model: Target, rows: Arrays | Stream) -> None:
    """Warns of classes or counts so rare that Laplace's approximation makes them too likely."""
    # On 120 rows of three columns with 0, 1, 2, 5 and 20 events the mean probability of `regression` was .078, .043,
    # .037, .060 and .174, by NUTS .002, .016, .019, .044 and .164; the mean count without an event in the millions.
    support = model.support
    if support is None or not (support.has_classes or support.discrete):
        return
    if not isinstance(rows, Arrays) or np.ndim(rows.y) != 1:  # maps of classes, and rows with trials
        return
    y, weight = np.asarray(rows.y), np.asarray(rows.weight, float)
    counts = np.bincount(y.astype(int), weight, minlength=2) if support.has_classes else (weight @ y)[None]
    events, count = float(counts.min()), float(weight.sum())
    if events >= min(_RARE, 0.1 * count):
        return
    rare = f"class {counts.argmin()} has {events:.4g}" if support.has_classes else f"the counts sum to {events:.4g}"
    warnings.warn(
        f"{rare} in {count:.6g} rows, and Laplace's approximation makes such rare events several times too likely; "
        "take algorithm=lamu.mcmc.nuts(), or lamu.fit_table",
        FewRows,
        stacklevel=3,
    )


def warn_unconverged(fit: Fit, example: Batch | None, chosen_earlier: bool) -> None:
    """Warns of a posterior that is not at the fixed point of the rule."""
    measured = fit.posterior.convergence
    if measured is None or measured.converged or fit.interrupted:
        return
    belief, model = fit.posterior.belief, fit.posterior.model
    if isinstance(belief, Draws) and (measured.r_hat or 0.0) > LARGEST_R_HAT:
        from lamu.mcmc.diagnostics import complaints  # imported here, as only samplers need it

        if complaints(belief, model):
            return  # `UnreliableChains` was already given
    if chosen_earlier:
        remedy = "validation chose a state before the end; leave validation out for the end itself"
    else:
        longer = "train longer (without epochs and steps, fit takes as many as it needs)"
        general = f"{longer}, with a rate that falls to zero, for instance Annealed(1e-2)"
        if model.identified and is_certain(belief):  # a mode that can be reached exactly
            way = "lamu.algorithms.map_estimate(optax.lbfgs()) with steps=100 and all rows in a batch"
            general = f"{longer}, or find the mode by {way}"
        unscaled = "" if example is None else fit.posterior.model.unscaled_inputs(example)
        remedy = measured.remedy or unscaled or general
    problem = "the posterior has not converged"
    if measured.at_fixed_point:
        problem, remedy = "the belief has converged and is not the posterior", _OTHER_SHAPE
        if example is not None and isinstance(model, MessageTarget) and model.has_categories(example):
            remedy = _OF_CATEGORIES
        elif isinstance(factor_of(belief, "network"), Gaussian):
            remedy = _OF_DENSITIES
    elif not measured.has_shape:
        remedy = f"{remedy}; where that does not help, a Gaussian is the wrong shape: {_OTHER_SHAPE}"
    warnings.warn(f"{problem}: {measured.complaint}; {remedy}", Unconverged, stacklevel=3)


def warn_scales_apart(fit: Fit) -> None:
    """Warns of independent beliefs about weights and the scales that they are multiplied by."""
    if not isinstance(fit.posterior.model.prior, Hierarchy):
        return
    belief = factor_of(fit.posterior.belief, "network")
    if not (isinstance(belief, Gaussian) and belief.precision.is_diagonal):
        return
    if not holds_scales(belief.mean):  # as of `conjugate_scales`
        return
    # Of sixty rows of five columns, three of which are noise, `ivon` has 1.3 times the deviation of NUTS and takes a
    # tenth from an effect; `conjugate_scales` has .93 to 1.05 of it.
    warnings.warn(
        "the belief takes weights and their scales as independent, although rows know their products alone, so that "
        "deviations are wrong by a third or more and a relevant column may be lost; take the network itself with "
        "lamu.algorithms.conjugate_scales(lamu.algorithms.ivon()), or lamu.mcmc.nuts() around it",
        Unconverged,
        stacklevel=3,
    )


_WORTH = 0.01  # nats a row that are worth a warning: the noise of 32 draws is some thousandths


def warn_worse_than_mean(fit: Fit, held_out: Arrays | None) -> None:
    """Warns of a belief that predicts the held-out rows worse than the point at its mean."""
    posterior = fit.posterior
    if held_out is None or not isinstance(posterior.model, Model) or is_certain(posterior.belief):
        return
    mean, weight = getattr(posterior.belief, "mean", None), np.asarray(held_out.weight, float)
    if mean is None or np.sum(weight > 0) < _FEW_ROWS:  # a belief with several modes has no mean
        return
    rule = posterior.rule if isinstance(posterior.rule, OwnStatistics) else Sampled()
    of_mean = row_losses(replace(posterior, belief=Point(mean), rule=rule), held_out)
    of_belief = row_losses(posterior, held_out)
    more, nothing = mean_and_margin(of_belief - of_mean, weight, held_out.groups)
    if not more > max(nothing, _WORTH):
        return
    if posterior.convergence is not None and not posterior.convergence.converged:
        remedy = "it has not converged: train longer first"
    elif posterior.model.has_classes:
        remedy = "let lamu.fit_temperature(model, data, algorithm) choose its temperature, or take deep_ensemble(...)"
    else:
        remedy = "let lamu.fit_prior_scale choose the scale of a LearnedNormal prior, or take deep_ensemble(...)"
    warnings.warn(
        f"the belief predicts the {held_out.count:,} rows set aside worse than the point at its mean, by {more:.3g} "
        f"nats a row ({np.average(of_belief, weights=weight):.3g} instead of {np.average(of_mean, weights=weight):.3g}"
        f", where up to {nothing:.2g} may be chance); {remedy}",
        WorseThanMean,
        stacklevel=3,
    )
