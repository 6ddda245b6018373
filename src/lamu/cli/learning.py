"""The defaults of the command line, and its two ways to learn: a table's candidates, and runs of an algorithm."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from lamu.base import choose as search
from lamu.cli.recipes import is_outside, likelihood_of, required_parts
from lamu.cli.request import Request
from lamu.data import Encoding
from lamu.data.splits import Groups
from lamu.data.wording import nearest, quoted
from lamu.evidence_choice import compare_likelihoods
from lamu.folds import centred, default_length, fit_folds, folds_for, num_fits
from lamu.likelihoods import Likelihood, RightCensored
from lamu.likelihoods.table import LIKELIHOODS, OTHER_NAMES
from lamu.model import Model
from lamu.networks import MLP, Network
from lamu.posterior import Posterior
from lamu.priors import LearnedNormal, Normal
from lamu.protocol import Algorithm
from lamu.rate import Annealed
from lamu.scores import nll
from lamu.scores.calibration import estimate
from lamu.supports import Counts
from lamu.tabular import fit_table
from lamu.tabular.stacked_fit import describe_fits
from lamu.tabular.truncated import Truncated
from lamu.typing import Inputs, Options, Targets
from lamu.validation_choice import fit_prior_scale, fit_temperature, most_fits

__all__ = [
    "DEFAULT",
    "LIKELIHOODS",
    "Candidates",
    "Learned",
    "LikelihoodChoice",
    "Runs",
    "budget",
    "candidates",
    "choose",
    "default_algorithm",
    "default_folds",
    "default_settings",
    "learner_for",
    "likelihood_for",
    "model_for",
    "plan",
    "told_beside",
]


# Chosen once, on the sets that `benchmarks/untuned.py` names, and frozen: an ensemble over five folds of networks of
# two layers of 64, trained by Adam with an annealed rate, each stopped by its own fold, under a prior whose scale the
# folds choose. A named algorithm runs alone, until it has converged. Validation rows choose
# the temperature (`lamu.fit_temperature`) and the scale of the prior among doublings and halvings
# (`lamu.fit_prior_scale`); then the algorithm is run on all training rows.


DEFAULT = "default"  # the name in `lamu compare` of the method of `lamu fit` without a named algorithm

_DEFAULTS = {"regression": "gaussian", "binary": "logit", "classes": "categorical"}
_BATCH = 64
_VALIDATION = 0.1


def default_algorithm() -> str:
    """Returns the name of the algorithm that each fold runs if `lamu fit` is given none."""
    return "adam"


def default_settings() -> Options:
    """Returns the settings of the default algorithm."""
    return {"learning_rate": Annealed(0.01)}


def default_folds(rows: int, algorithm: str | None, groups: Groups | None = None) -> int:
    """Returns the number of folds of the ensemble; zero, hence one run, for a named algorithm."""
    return 0 if algorithm is not None else folds_for(rows, groups)


def budget(algorithm: Algorithm, rows: int, folds: int = 0) -> Options:
    """Returns the maximal length of a fit and its stopping rule, as options of `lamu.fit`."""
    # Members of folds take three thousand steps, in at least thirty and at most five hundred epochs, and stop after a
    # fifth of them without a better validation. Any other run lasts until convergence (`lamu.fit` without epochs).
    # Algorithms with a length of their own keep it.
    if algorithm.traits.length is not None or algorithm.traits.batching == "once":
        return {"batch_size": _BATCH}
    if not folds:
        return {"batch_size": _BATCH, "validation": _VALIDATION}
    return default_length(rows, folds)


def model_for(
    encoding: Encoding,
    x: Inputs,
    y: Targets,
    likelihood: str | None = None,
    algorithm: str | None = None,
    prior_scale: float | None = None,
    weight: np.ndarray | None = None,
) -> tuple[Model, str]:
    """Returns the model for a table, not yet centred, and a sentence on the parts that the algorithm needs."""
    prior = LearnedNormal(0.5) if prior_scale is None else Normal(prior_scale)
    model = Model(_network(encoding), likelihood_for(encoding, likelihood), prior)
    model, note = required_parts(algorithm or "", model, encoding, x, y, weight)
    return model.standardised(x, y, weight), note


def _network(encoding: Encoding) -> Network:
    base = MLP((64, 64))
    if not any(encoding.cardinalities):
        return base
    from lamu.networks import Embedded

    return Embedded(base, encoding.cardinalities)


def likelihood_for(encoding: Encoding, name: str | None = None) -> Likelihood:
    """Returns the likelihood of a table's target."""
    likelihood = _named(encoding, name)
    origin, unit = encoding.origin_and_unit(encoding.target)
    if (origin, unit) != (0.0, 1.0) and not likelihood.support.affine:
        raise ValueError(
            f"the target {encoding.target!r} runs from {origin:.9g} to {origin + unit:.9g}, of which float32 keeps too "
            f"few digits, and {likelihood.name} takes it neither shifted nor scaled; leave --likelihood {name} out, or "
            "change the units of the target"
        )
    brought = dict(encoding.beside)
    if "censored" in brought:
        return RightCensored(likelihood)
    if "trials" in brought and not likelihood.takes_trials:
        raise ValueError(
            f"--likelihood {name} takes no trials, and --trials is {brought['trials']}; leave one of them out"
        )
    if "exposure" in brought and not (
        isinstance(likelihood.support, Counts) and likelihood.output_scales(1)[0] == "log means"
    ):
        raise ValueError(
            f"--likelihood {name} has no rate that an exposure multiplies, and --exposure is {brought['exposure']}; "
            "give poisson, negative_binomial or zero_inflated_poisson, or leave --exposure out"
        )
    return likelihood


def _named(encoding: Encoding, name: str | None) -> Likelihood:
    """Returns the likelihood of that name, or the task's default."""
    if name is not None and is_outside(name):
        likelihood = likelihood_of(name)
        if likelihood.task != encoding.task:
            raise ValueError(
                f"--likelihood {name} is for the task {likelihood.task}, and that of {encoding.target!r} is "
                f"{encoding.task}; give --task {likelihood.task} where the targets are so"
            )
        return likelihood
    if name is not None and name not in LIKELIHOODS:
        raise ValueError(f"there is no likelihood {name!r}; {nearest(name, LIKELIHOODS, OTHER_NAMES)}")
    task, make = LIKELIHOODS[name or ("negative_binomial" if encoding.exposure else _DEFAULTS[encoding.task])]
    if task != encoding.task:
        of = {"regression": "a regression", "binary": "two classes", "classes": "classes"}[task]
        raise ValueError(
            f"--likelihood {name} is of {of}, and the task of {encoding.target!r} is {encoding.task}; leave it "
            f"out, or give --task {task}"
        )
    if name == "ordinal" and encoding.has_words and not _are_numbered(encoding.labels):
        first = " < ".join(quoted(label) for label in encoding.labels[:3])
        raise ValueError(
            f"--likelihood ordinal takes classes in their order, and those of {encoding.target!r} are words, which "
            f"would be in that of the alphabet, {first}; number them in the file, for instance 1 low, 2 middle, 3 high"
        )
    return make(len(encoding.labels))


def _are_numbered(labels: Sequence[object]) -> bool:
    """Whether labels begin with whole numbers that rise in their order."""
    heads = [re.match(r"\d+", str(label)) for label in labels]
    numbers = [int(head.group()) for head in heads if head]
    return len(numbers) == len(labels) and all(low < high for low, high in itertools.pairwise(numbers))


# Algorithms and likelihoods are imported where they are used, so that a table is read and reported before them.


_GIVEN = {
    "temperatures": "--temperature",
    "scales of the prior": "--prior-scale",
}  # the option that replaces each search


def plan(
    model: Model, algorithm: Algorithm, rows: int, folds: int, temperature: float | None, epochs: int | None
) -> str:
    """Returns a sentence: the number of fits, their purpose, and the maximal length of each."""
    learned, traits = isinstance(model.prior, LearnedNormal), algorithm.traits
    length = f", each of {epochs} epochs at most" if epochs is not None and traits.length is None else ""
    if folds:
        count = num_fits(rows, folds, learned)
        hint = f"; {_GIVEN['scales of the prior']} gives it" if learned else ""
        return f"{count} fits ({folds} folds{', 3 scales of the prior' if learned else ''}){length}{hint}"
    temperatures, scales = most_fits(model, algorithm, rows, temperature)
    chosen = [name for name, number in zip(_GIVEN, (temperatures, scales), strict=True) if number]
    if not chosen:
        return f"one fit{length.replace(', each', '')}"
    last = length or ", the last one until it has converged"
    hint = f"{' and '.join(_GIVEN[name] for name in chosen)} {'gives it' if len(chosen) == 1 else 'give them'}"
    return f"up to {temperatures + scales + 1} fits ({' and '.join(chosen)}){last}; {hint}"


_MOST_ROWS = 2000
_FEWEST_ROWS = 30
_SKEWED, _HEAVY = 0.5, 2.0  # skewness and excess kurtosis above which residuals are not Gaussian
_TREES, _HALF = 60, 0.5  # enough trees that every row is out of bag for some; share of least squares' residual variance
_LARGE = 5  # counts from here on that are not skewed are nearly Gaussian
_ORDERED = 4  # number of classes from which integer labels may have a relevant order
_KNOWN = 10  # number of rows from which the mean of a class is known


@dataclass(frozen=True)
class LikelihoodChoice:
    """A likelihood by name, with the reason of its choice."""

    # One of `lamu.likelihoods.table.LIKELIHOODS`; None for the task's default, if nothing else was compared.
    name: str | None
    why: str  # one sentence; empty if nothing else was compared
    tried: dict[str, float]  # the mean held-out log density of each candidate, in nats per row


def candidates(
    encoding: Encoding, x: Inputs, y: Targets, weight: np.ndarray | None = None
) -> tuple[str, tuple[str, ...]]:
    """Returns the kind of the target, and the few likelihoods that suit it, the task's default first."""
    # Cheap tests come first. A target whose least-squares residuals are as symmetric and as light-tailed
    # as normal ones keeps its Gaussian; so do numbers of which a forest leaves less than half of the
    # variance that least squares leaves, since their skew and tails are mostly due to the linear fit; and
    # integer classes whose fitted means, by least squares on the numbers, do not rise with them are unordered.
    x, y = np.asarray(x, float), np.asarray(y, float)
    counts = np.ones(len(y)) if weight is None else np.asarray(weight, float)
    if encoding.exposure is not None:  # a likelihood for any dispersion, unless held-out rows decide otherwise
        return "counts", ("negative_binomial", "poisson", *["zero_inflated_poisson"] * bool((y == 0).any()))
    if encoding.task == "classes":
        labels = encoding.labels
        integers = all(isinstance(label, int) for label in labels) and len(labels) >= _ORDERED
        ordered = integers and _is_ordered(x, y, counts)
        return ("whole-numbered classes", ("categorical", "ordinal")) if ordered else ("classes", ("categorical",))
    if encoding.task == "binary" or len(y) < _FEWEST_ROWS:
        return "two classes", ()
    skew, excess = _shape(x, y, counts)
    if np.all(np.isfinite(y) & (y >= 0) & (y == np.floor(y))):
        few = ("gaussian", "poisson", "negative_binomial")
        if y.min() >= _LARGE and skew < _SKEWED:
            return "large counts", ("gaussian",)
        return "counts", (*few, "zero_inflated_poisson") if (y == 0).any() else few
    kind, few = "numbers", ("gaussian",)
    if y.min() > 0 and y.max() < 1:
        kind, few = "shares", ("gaussian", "beta")
    elif y.min() > 0 and skew > _SKEWED:
        kind, few = "positive numbers", ("gaussian", "gamma", "weibull")
    elif excess > _HEAVY:
        kind, few = "numbers with heavy tails", ("gaussian", "student_t")
    return ("numbers", ("gaussian",)) if len(few) > 1 and _is_nonlinear(x, y, counts) else (kind, few)


def choose(encoding: Encoding, data: Mapping[str, Any], seed: int) -> LikelihoodChoice:
    """Returns the likelihood whose generalised linear model gives held-out rows the highest log density."""
    # The task's default is replaced only by one that is better by at least one paired standard error. Only training
    # rows are used, at most 2,000.
    x, y, weight = data["x"], data["y"], data.get("weight")
    kind, names = candidates(encoding, x, y, weight)
    if len(names) < 2:
        return LikelihoodChoice(None, "", {})
    order = np.random.default_rng(seed).permutation(len(y))[:_MOST_ROWS]
    inputs = _columns(np.asarray(x, float)[order], encoding)
    given = {name: jax.tree.map(np.asarray, data[name]) for name in ("weight", "offset", "groups") if name in data}
    beside = {name: values[order] for name, values in given.items()}
    folds = min(3, folds_for(len(order), beside.get("groups")))
    densities = compare_likelihoods(inputs, np.asarray(y)[order], names, folds=folds, seed=seed, **beside)
    means = {name: float(np.average(values, weights=beside.get("weight"))) for name, values in densities.items()}
    default = names[0]
    # Of two equal ones the simpler, which comes first.
    best = search.choose({name: -mean for name, mean in means.items()}.__getitem__, search.all_of, means).best
    gain = estimate(nll, densities[best] - densities[default], beside.get("weight"), beside.get("groups"))
    name = best if gain.value >= gain.error else default
    others = ", ".join(f"{other} {-mean:.3f}" for other, mean in means.items() if other != name)
    why = (
        f"likelihood {name}: {encoding.target!r} is of {kind}, and rows held out from linear models have nll "
        f"{-means[name]:.3f} ({others}); --likelihood overrides"
    )
    return LikelihoodChoice(name, why, means)


def told_beside(encoding: Encoding, y: Targets) -> LikelihoodChoice:
    """Returns the likelihood of a target with an extra column: number of trials, or censoring."""
    ((name, column),) = encoding.of_target
    if name == "trials":
        return LikelihoodChoice(
            "binomial", f"likelihood binomial: {encoding.target!r} counts successes in {column!r} trials", {}
        )
    positive = bool(np.min(np.asarray(y["value"])) > 0)
    chosen, kind = ("weibull", "positive") if positive else ("gaussian", "not positive everywhere")
    why = f"likelihood {chosen}, censored by {column!r}: {encoding.target!r} is {kind}; --likelihood overrides"
    return LikelihoodChoice(chosen, why, {})


def _is_ordered(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> bool:
    """Whether the mean that least squares fits to a class rises with its number."""
    fitted = _fitted(x, y, weight)
    of = [y == label for label in np.unique(y)]
    means = [np.average(fitted[rows], weights=weight[rows]) for rows in of if weight[rows].sum() >= _KNOWN]
    return bool(np.all(np.diff(means) > 0))


def _fitted(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    design, root = np.column_stack([np.ones(len(y)), x]), np.sqrt(weight)
    return design @ np.linalg.lstsq(root[:, None] * design, root * y, rcond=None)[0]


def _shape(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Skewness and excess kurtosis of the residuals of least squares."""
    residual = y - _fitted(x, y, weight)
    deviation = np.sqrt(_variance(residual, weight))
    if deviation <= 1e-9 * (1.0 + np.abs(y).max()):
        return 0.0, 0.0
    z = residual / deviation
    return float(np.average(z**3, weights=weight)), float(np.average(z**4, weights=weight) - 3.0)


def _variance(values: np.ndarray, weight: np.ndarray) -> float:
    return float(np.average((values - np.average(values, weights=weight)) ** 2, weights=weight))


def _is_nonlinear(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> bool:
    """Whether a forest explains out-of-bag rows far better than a linear fit."""
    from sklearn.ensemble import RandomForestRegressor

    rows = np.random.default_rng(0).permutation(len(y))[:_MOST_ROWS]
    x, y, weight = x[rows], y[rows], weight[rows]
    forest = RandomForestRegressor(_TREES, min_samples_leaf=3, oob_score=True, random_state=0).fit(x, y, weight)
    unseen = _variance(y - np.asarray(forest.oob_prediction_), weight)
    return bool(unseen < _HALF * _variance(y - _fitted(x, y, weight), weight))


def _columns(x: np.ndarray, encoding: Encoding) -> np.ndarray:
    """Returns the inputs of a linear model: numbers, and indicator columns for each level but the first."""
    parts = []
    for column, levels in zip(x.T, encoding.cardinalities, strict=True):
        parts.append(column[:, None] if not levels else (column[:, None] == np.arange(2, levels + 1)).astype(x.dtype))
    return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class Learned:
    """The posterior of the training rows, with the choices of its fit."""

    posterior: Posterior
    histories: tuple[Mapping[str, np.ndarray], ...] = ()  # of each run that is part of it
    steps: int = 0  # of all runs together, or of each member
    temperature: float = 1.0
    temperatures: Mapping[float, float] = field(default_factory=dict)  # the held-out nll of each candidate
    # The held-out nll of each candidate scale of the prior.
    scales: Mapping[float, float] = field(default_factory=dict)
    candidates: Mapping[str, float] = field(default_factory=dict)  # the weight of each candidate in a mixture
    candidates_nll: Mapping[str, float] = field(default_factory=dict)  # the held-out nll of each
    told: str | None = None  # a line to print about it, or None


@dataclass(frozen=True)
class Candidates:
    """The candidates of `lamu.fit_table`, mixed."""

    request: Request
    encoding: Encoding
    likelihood: str | None  # its name; None for the task's default
    folds: int  # number of folds
    rows: int  # number of training rows

    name: str = "fit_table"
    loop: Options = field(default_factory=dict)

    @property
    def plan(self) -> str:
        """Returns the sentence that is printed before the fit."""
        return describe_fits(likelihood_for(self.encoding, self.likelihood), self.rows, self.folds)

    @property
    def method_name(self) -> str:
        """Returns the name of the method, printed after the fit."""
        return "candidates over folds"

    def learn(self, data: Mapping[str, Any], seed: int, options: Options) -> Learned:
        """Returns the mixture."""
        stacked = fit_table(
            data["x"],
            data["y"],
            likelihood_for(self.encoding, self.likelihood),
            weight=data.get("weight"),
            offset=data.get("offset"),
            groups=data.get("groups"),
            levels=self.encoding.cardinalities,
            folds=self.request.folds,
            seed=seed,
            **options,
        )
        held_out = {name: nll + self.encoding.log_unit for name, nll in stacked.nll.items()}
        members = sorted(((weight, name) for name, weight in stacked.weights.items() if weight > 0), reverse=True)
        parts = ", ".join(f"{weight:.2f} {name} ({held_out[name]:.3f})" for weight, name in members)
        together = f"{stacked.stacked_nll + self.encoding.log_unit:.3f} together"
        likelihood = stacked.posterior.model.likelihood
        share = likelihood.untruncated if isinstance(likelihood, Truncated) else 1.0
        # With half of all values missing .35 where test rows have 1.06.
        drawn = "; their missing values are drawn given their targets, those of test rows are not"
        filled = drawn if self.encoding.indicators else ""
        above = f"; noise truncated at zero with probability {1 - share:.2f}" if share < 1.0 else ""
        return Learned(
            posterior=stacked.posterior,
            steps=stacked.steps,
            candidates=stacked.weights,
            candidates_nll=held_out,
            told=f"mixture of {parts}: weight, candidate and held-out nll; {together}{filled}{above}",
        )


@dataclass(frozen=True)
class Runs:
    """Runs of one algorithm: an ensemble over folds, each member stopped by its own fold, or a single run."""

    # Validation rows choose the temperature and the scale of the prior of a single run.

    request: Request
    model: Model
    algorithm: Algorithm
    name: str  # the algorithm's
    rows: int  # number of training rows
    folds: int  # how many folds; 0 for a single run
    loop: Options  # options of the loop

    @property
    def plan(self) -> str:
        """Returns the sentence that is printed before the fit."""
        return plan(
            self.model, self.algorithm, self.rows, self.folds, self.request.temperature, self.loop.get("epochs")
        )

    @property
    def method_name(self) -> str:
        """Returns the name of the method, printed after the fit."""
        return f"{self.name} over {self.folds} folds" if self.folds else self.name

    def learn(self, data: Mapping[str, Any], seed: int, options: Mapping[str, object]) -> Learned:
        """Returns the ensemble, or the result of the single run."""
        loop, model = {**self.loop, **options}, centred(self.model, data)
        if self.folds:
            temperature, tried = self.request.temperature or 1.0, {}
            result = fit_folds(
                model, data, self.algorithm, folds=self.folds, seed=seed, temperature=temperature, **loop
            )
            return _of_runs(result, result.fits, temperature, tried)
        loop.pop("validation", None)  # each of the two chooses its validation rows itself
        if (temperature := self.request.temperature) is not None:
            scale_fit = fit_prior_scale(model, data, self.algorithm, seed=seed, temperature=temperature, **loop)
            return _of_runs(scale_fit, (scale_fit.fit,), temperature, {})
        tempered = fit_temperature(model, data, self.algorithm, seed=seed, **loop)
        return _of_runs(tempered, (tempered.fit,), float(tempered.posterior.temperature), tempered.temperatures)


def learner_for(runs: Runs, encoding: Encoding, likelihood: str | None, default: bool) -> Candidates | Runs:
    """Returns the way of learning for a request."""
    # The candidates are fitted if the request has no option that they do not support: no algorithm, setting, length,
    # batch or temperature, and no trials or censored rows.
    request = runs.request
    said = (request.epochs, request.batch_size, request.temperature, request.prior_scale)
    if default and all(option is None for option in said) and request.folds != 0 and not encoding.of_target:
        return Candidates(request, encoding, likelihood, request.folds or runs.folds, runs.rows)
    return runs


def _of_runs(result: Any, fits: tuple[Any, ...], temperature: float, tried: Mapping[float, float]) -> Learned:
    # The loop returns an interrupted run; a folder with an incomplete fit would mislead.
    if any(run.interrupted for run in fits):
        raise KeyboardInterrupt
    return Learned(
        posterior=result.posterior,
        histories=tuple(run.history for run in fits),
        steps=sum(len(run.history["loss"]) for run in fits),
        temperature=temperature,
        temperatures=tried,
        scales=result.scales,
    )
