r"""Choices by validation: the scale of the prior, and the temperature, that predict rows set aside best.

A belief of mean field is the better for its ELBO the more weights it prunes, so that its ELBO prefers the widest prior
under which the data are hardly used; and the joint density of weights and scale has no maximum. Rows that were not
learned from know better: scales are doubled or halved as long as the predictive density of rows set aside rises, and
the algorithm then learns from all rows under the best one.

A converged belief of a network may predict worse than a colder one, \(q \propto \exp(-\ell/T)\) with T < 1: the prior
on weights may be too wide, the mean field too narrow a family, the data cleaner than the likelihood says (Wenzel et al.
2020; Aitchison 2021). An unfinished run is colder too, by an amount that nobody chose. Here T is chosen on training
rows that are set aside, and the posterior carries it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lamu import memory
from lamu.choose import choose, doublings, until_worse
from lamu.convergence import Unconverged
from lamu.data.arrays import Arrays, FewRows
from lamu.families import Point
from lamu.loop import fit
from lamu.model import Model
from lamu.posterior import Posterior
from lamu.priors import LearnedNormal, Prior
from lamu.protocol import Algorithm, require_algorithm
from lamu.running.checkpoints import of_part
from lamu.running.result import Diverged, Fit
from lamu.running.schedule import Rounds
from lamu.running.validation import posterior_nll, set_aside, training_rows
from lamu.target import require_target
from lamu.typing import Data, Options

__all__ = [
    "MOST_SCALES",
    "TEMPERATURES",
    "PriorScaleFit",
    "TemperatureFit",
    "choose_temperature",
    "fit_prior_scale",
    "fit_temperature",
]

# Numbers that decide results; conventions, not tuned.
_FARTHEST = 3  # doublings or halvings of the first guess
MOST_SCALES = 2 + _FARTHEST  # that are tried
TEMPERATURES = (1.0, 0.3, 0.1, 0.03, 0.01)  # that are tried, of classes
_ROUNDS = 3  # first rounds' steps of a run that only compares, where no length is given
_LAST = 5  # validations, which are averaged: a single one of a stochastic state is noisy
_SAMPLES = 64  # of a prediction that judges a temperature


@dataclass(frozen=True)
class _Runs:
    """Runs of one algorithm, which compare on what validation leaves, and the last one, on all rows."""

    model: Model
    data: Data
    algorithm: Algorithm
    validation: Any
    seed: int
    checkpoint: Any
    options: Options

    @property
    def alone(self) -> bool:
        """Whether no run may be shorter than the last one, so that none compares."""
        return self.algorithm.traits.length is not None or self.algorithm.traits.batching == "once"

    def read(self) -> tuple[_Runs, Arrays, Arrays]:
        """Returns the same runs of rows that are read, the rows that runs compare on, and those that judge."""
        model = self.model.named(self.data)
        with memory.within(self.options.get("max_memory")):
            rows = training_rows(model, self.data, stacklevel=5)
        learned, held = set_aside(rows, self.validation, model, self.seed)
        assert isinstance(learned, Arrays)  # a stream has no share to set aside
        assert held is not None  # a share or rows were given
        return replace(self, model=model, data=rows), learned, held

    def compared(self, under: Model, learned: Arrays, place: str, **options: object) -> Fit:
        """Returns a run that compares."""
        if self.options.get("epochs") is None and self.options.get("steps") is None:
            first = Rounds.of(self.algorithm.traits, learned.count, self.options.get("batch_size", 64)).first
            options["steps"] = _ROUNDS * first
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Unconverged)  # runs that compare are short; the last one is asked
            warnings.simplefilter("ignore", FewRows)  # as above
            found = replace(self, data=learned).run(under, place, **options)
        if found.interrupted:
            raise KeyboardInterrupt
        return found

    def run(self, under: Model, place: str = "last", **options: object) -> Fit:
        """Returns a run, with a folder of checkpoints of its own."""
        kept = of_part(self.checkpoint, place)
        return fit(under, self.data, self.algorithm, seed=self.seed, checkpoint=kept, **{**self.options, **options})


@dataclass(frozen=True)
class PriorScaleFit:
    """What `fit_prior_scale` returns.

    Attributes:
        posterior: the posterior from all rows, under the best scale.
        fit: the run that made it.
        scales: the scales that were tried, each with the negative log predictive density of the rows set aside, in nats
            a row, at the end of its run; empty where the scale was known or the algorithm's own affair.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("iris")
        >>> model = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Categorical(3)).standardised(x, y)
        >>> lamu.fit_prior_scale(model, (x, y), lamu.algorithms.ivon(), epochs=5).scales
        {}
    """

    posterior: Posterior
    fit: Fit
    scales: dict[float, float]


def fit_prior_scale(
    model: Model,
    data: Data,
    algorithm: Algorithm,
    *,
    validation: object = 0.1,
    seed: int = 0,
    checkpoint: object = None,
    **options: object,
) -> PriorScaleFit:
    """Fits an algorithm under the scale of the prior that predicts rows set aside best.

    It takes three runs or more on what validation leaves, up to eight, and one on all rows. Where the prior is no
    `LearnedNormal`, or the algorithm has a length of its own, sees every row once, or chooses the scale itself
    (Laplace's method), it is a single `lamu.fit`, to which `validation` goes where it can be used.

    Args:
        model: network, likelihood and prior.
        data: `(x, y)`, or a mapping with `x`, `y` and, optionally, `weight`, `offset`, `mask`.
        algorithm: what is run.
        validation: a share of the rows, or rows of their own.
        seed: of what is set aside and of every run.
        checkpoint: a folder, or `lamu.Checkpoints`, in which each run has a folder of checkpoints of its own; with
            `resume=True` runs that are done are not run again, and the end is the same.
        **options: further options of `lamu.fit`, for instance `epochs` and `batch_size`.

    Returns:
        The posterior, its run, and the scales that were tried.

    Raises:
        ValueError: for an option that makes no sense for several runs.
        Diverged: if the runs of all scales diverge.
        KeyboardInterrupt: if a run is stopped from the keyboard before the last one.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("iris")
        >>> prior = lamu.priors.LearnedNormal(0.5)
        >>> model = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Categorical(3), prior).standardised(x, y)
        >>> found = lamu.fit_prior_scale(model, (x, y), lamu.algorithms.ivon(), epochs=30)
        >>> min(found.scales, key=found.scales.get) == found.posterior.model.prior.scale
        True
    """
    _require(model, algorithm, options, "stop")
    runs = _Runs(model, data, algorithm, validation, seed, checkpoint, options)
    prior = model.prior
    if not isinstance(prior, LearnedNormal) or runs.alone:
        final = runs.run(model)
        return PriorScaleFit(final.posterior, final, {})
    if algorithm.traits.chooses_prior_scale:
        final = runs.run(model, validation=validation)
        return PriorScaleFit(final.posterior, final, {})
    runs, learned, held = runs.read()
    under = lambda scale: replace(runs.model, prior=prior.at(scale))

    def nll(scale: float) -> float:
        found = runs.compared(under(scale), learned, f"scale-{scale:g}", validation=held)
        return float(np.mean(found.history["validation_nll"][-_LAST:]))

    choice = choose(nll, doublings, float(prior.start), _FARTHEST, failure=Diverged).finite("scale")
    final = runs.run(under(choice.best))
    return PriorScaleFit(final.posterior, final, choice.losses)


@dataclass(frozen=True)
class TemperatureFit:
    """What `fit_temperature` returns.

    Attributes:
        posterior: the posterior from all rows, at the temperature chosen, which it carries.
        fit: the run that made it.
        temperatures: the temperatures that were tried, each with the negative log predictive density of the rows set
            aside, in nats a row; empty for an algorithm whose belief is a point.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("iris")
        >>> model = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Categorical(3)).standardised(x, y)
        >>> lamu.fit_temperature(model, (x, y), lamu.algorithms.adam(1e-2), epochs=5).temperatures
        {}
    """

    posterior: Posterior
    fit: Fit
    temperatures: dict[float, float]


def fit_temperature(
    model: Model,
    data: Data,
    algorithm: Algorithm,
    *,
    temperatures: Sequence[float] | None = None,
    validation: object = 0.2,
    seed: int = 0,
    checkpoint: object = None,
    **options: object,
) -> TemperatureFit:
    """Fits an algorithm at the temperature that predicts rows set aside best.

    Temperatures are tried from the first one on, as long as the rows set aside are predicted better, and the algorithm
    learns from all rows at the best. Of an algorithm that chooses
    the scale of a `LearnedNormal` prior itself (Laplace's method) the same rows choose it, at every temperature, and
    all rows are learned from under the best one's.

    Args:
        model: network, likelihood and prior.
        data: `(x, y)`, or a mapping with `x`, `y` and, optionally, `weight`, `offset`, `mask`.
        algorithm: what is run.
        temperatures: what is tried, the preferred one first. Where none are given 1, 0.3, 0.1, 0.03 and 0.01 for
            classes, and 1 alone for a regression: its noise is learned from the rows that the network has seen, and
            shrinks with the temperature, which a few rows set aside do not tell.
        validation: a share of the rows, or rows of their own.
        seed: of what is set aside and of every run.
        checkpoint: a folder, or `lamu.Checkpoints`, in which each run has a folder of checkpoints of its own; with
            `resume=True` runs that are done are not run again, and the end is the same.
        **options: further options of `lamu.fit`, for instance `epochs` and `batch_size`. Where neither `epochs` nor
            `steps` is given, the runs that compare take some thousands of steps, and the last one as many as it needs.

    Returns:
        The posterior, its run, and the temperatures that were tried.

    Raises:
        ValueError: for an option that makes no sense for several runs, or no temperatures.

    Source: Wenzel et al. (2020), section 2.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("iris")
        >>> model = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Categorical(3)).standardised(x, y)
        >>> found = lamu.fit_temperature(model, (x, y), lamu.algorithms.ivon(), temperatures=(1.0, 0.1), epochs=30)
        >>> found.posterior.temperature in found.temperatures
        True
    """
    _require(model, algorithm, options, "stop", "temperature")
    runs = _Runs(model, data, algorithm, validation, seed, checkpoint, options)
    runs, chosen, tried = _at_best_temperature(runs, temperatures)
    final = runs.run(runs.model, temperature=chosen)
    return TemperatureFit(final.posterior, final, tried)


def choose_temperature(
    model: Model,
    data: Data,
    algorithm: Algorithm,
    *,
    temperatures: Sequence[float] | None = None,
    validation: object = 0.2,
    seed: int = 0,
    checkpoint: object = None,
    **options: object,
) -> tuple[float, dict[float, float]]:
    """Returns the temperature that `fit_temperature` takes, and those that were tried with their figures.

    The arguments are those of `fit_temperature`.

    Examples:
        >>> import lamu
        >>> from lamu.validation_choice import choose_temperature
        >>> x, y = lamu.data.load("iris")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Categorical(3)).standardised(x, y)
        >>> choose_temperature(model, (x, y), lamu.algorithms.adam(1e-2), epochs=5)
        (1.0, {})
    """
    _require(model, algorithm, options)
    runs = _Runs(model, data, algorithm, validation, seed, checkpoint, options)
    return _at_best_temperature(runs, temperatures)[1:]


def _at_best_temperature(runs: _Runs, temperatures: Sequence[float] | None) -> tuple[_Runs, float, dict[float, float]]:
    """Returns the runs, the prior known where the rows chose it, the best temperature, and all with their figures."""
    if temperatures is None:
        temperatures = TEMPERATURES if runs.model.has_classes else TEMPERATURES[:1]
    if not temperatures:
        raise ValueError(f"temperatures={temperatures!r} leaves no choice; give for instance (1.0, 0.1)")
    first, *others = map(float, temperatures)
    if not others or runs.alone:
        return runs, first, {}
    runs, learned, held = runs.read()
    aside = {"validation": held} if runs.algorithm.traits.chooses_prior_scale else {}
    priors: dict[float, Prior] = {}

    def posterior(temperature: float) -> Posterior:
        place = f"temperature-{temperature:g}"
        found = runs.compared(runs.model, learned, place, temperature=temperature, **aside).posterior
        priors[temperature] = found.model.prior
        return found

    if isinstance((preferred := posterior(first)).belief, Point):
        return runs, first, {}  # the mode is the same at any temperature

    def nll(temperature: float) -> float:
        found = preferred if temperature == first else posterior(temperature)
        return posterior_nll(found, held, samples=_SAMPLES)

    choice = choose(nll, until_worse, (first, *others), failure=Diverged).finite("temperature")
    model = replace(runs.model, prior=priors[choice.best]) if aside else runs.model
    return replace(runs, model=model), choice.best, choice.losses


def _require(model: object, algorithm: object, options: dict[str, object], *refused: str) -> None:
    for name in refused:
        if name in options:
            raise ValueError(f"{name}={options[name]!r} is about one run, not several; leave it out, or use fit")
    require_target(model)
    require_algorithm(algorithm)
