r"""Choices by validation: the scale of the prior, and the temperature, that predict rows set aside best.

A belief of mean field is the better for its ELBO the more weights it prunes, so that its ELBO prefers the widest prior
under which the data are hardly used; and the joint density of weights and scale has no maximum. Rows that were not
learned from know better: scales are doubled or halved as long as the predictive density of rows set aside rises, and
the algorithm then learns from all rows under the best one.

A converged belief of a network may predict worse than a colder one, \(q \propto \exp(-\ell/T)\) with T < 1: the prior
on weights may be too wide, the mean field too narrow a family, the data cleaner than the likelihood says (Wenzel et al.
2020; Aitchison 2021). An unfinished run is colder too, by an amount that nobody chose. Here T is chosen on training
rows that are set aside, and the posterior carries it. It is the warmest that these rows do not speak against: the
highest temperature whose mean loss is within two standard errors of the least, by paired rows (the rule of Breiman et
al. 1984, section 3.4.3, for the size of a tree), or so near to it that one row, lost by a nat more, would decide.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import numpy as np

from lamu import memory
from lamu.choose import Ask, choose, doublings, until_worse
from lamu.convergence import Unconverged, WorseThanMean
from lamu.data.arrays import Arrays, FewRows
from lamu.families import Point
from lamu.loop import fit
from lamu.model import Model
from lamu.posterior import Posterior
from lamu.priors import LearnedNormal, Prior
from lamu.protocol import Algorithm, require_algorithm
from lamu.running.checkpoints import of_part
from lamu.running.progress import SeveralRuns
from lamu.running.result import Diverged, Fit
from lamu.running.schedule import Rounds
from lamu.running.validation import paired, row_losses, set_aside_in_turn, training_rows
from lamu.target import require_target
from lamu.typing import Data, Options

__all__ = [
    "MOST_SCALES",
    "TEMPERATURES",
    "PriorScaleFit",
    "TemperatureFit",
    "fit_prior_scale",
    "fit_temperature",
    "most_fits",
]

# Numbers that decide results. Conventions, not tuned:
_FARTHEST = 3  # doublings or halvings of the first guess
MOST_SCALES = 2 + _FARTHEST  # that are tried
TEMPERATURES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)  # that are tried, of classes
_ROUNDS = 3  # first rounds' steps of a run that only compares, where no length is given
_LAST = 5  # validations, which are averaged: a single one of a stochastic state is noisy
_SAMPLES = 64  # of a prediction that judges a temperature
_TENTH, _FIFTH = 0.1, 0.2  # of the rows, which judge a scale and a temperature

# Chosen with `ivon` on development splits 0 to 3 of iris, wine and breast_cancer, 120 to 455 rows (NLL less Adam's; one
# standard error is .005 to .015):
# - 24 rows of iris chose temperatures of which the NLL was -.058, five times 24 rows -.072. The others did not differ.
# - With one standard error in `paired` -.072, -.002, +.004, with two -.071, -.003, +.000, and warmer temperatures.
# - That a single row's nat is no reason to be colder changed these by .002 at most. It is meant for tails: where no row
#   that judges is lost, colder is better by a little for all of them, and one lost row of the test undoes it.
# - The scale of the prior chosen too -.039, +.000, +.065: few rows prefer wide priors that one other row refutes.
_FEWEST = 128  # rows that judge at least, where there are as many
_MANY = 1000  # rows that judge, from which on they choose the scale of the prior with the temperature


Parts: TypeAlias = list[tuple[Arrays, Arrays]]
"""Rows to learn from with those that judge."""

Candidate: TypeAlias = tuple[float, float | None]
"""A temperature, and a scale of the prior where one is to be chosen."""


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
        return _is_alone(self.algorithm)

    def read(self, share: float, fewest: int = 0) -> tuple[_Runs, Parts]:
        """Returns the same runs of rows that are read, and pairs of rows that runs compare on and rows that judge."""
        model = self.model.named(self.data)
        with memory.within(self.options.get("max_memory")):
            rows = training_rows(model, self.data, stacklevel=6)
        return replace(self, model=model, data=rows), set_aside_in_turn(
            rows, self.validation, model, self.seed, share, fewest
        )

    def compared(self, under: Model, learned: Arrays, place: str, **options: object) -> Fit:
        """Returns a run that compares."""
        if (rounds := self._rounds(learned)) is not None:
            options["steps"] = _ROUNDS * rounds.first
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Unconverged)  # runs that compare are short; the last one is asked
            warnings.simplefilter("ignore", FewRows)  # as above
            warnings.simplefilter("ignore", WorseThanMean)
            found = replace(self, data=learned).run(under, place, **options)
        if found.interrupted:
            raise KeyboardInterrupt
        return found

    def shown(self, fits: int, what: str) -> SeveralRuns:
        """Returns the bar of so many runs at most that compare, and of the last one on the rows that were read."""
        rounds = self._rounds(self.data)
        last = 1.0 if rounds is None else rounds.limit / (_ROUNDS * rounds.first)
        return SeveralRuns(fits + 1, self.options.get("progress"), what, last=last, at_most=True)

    def _rounds(self, rows: Arrays) -> Rounds | None:
        """Returns the rounds of a run over rows, where no length is given."""
        if self.options.get("epochs") is not None or self.options.get("steps") is not None:
            return None
        return Rounds.of(self.algorithm.traits, rows.count, self.options.get("batch_size", 64))

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
    validation: object = None,
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
        validation: a share of the rows, or rows of their own; a tenth where None.
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
    return _at_best_scale(_Runs(model, data, algorithm, validation, seed, checkpoint, options))


def _at_best_scale(runs: _Runs) -> PriorScaleFit:
    """Returns the fit under the best scale of the prior, where it is to be learned and not the algorithm's affair."""
    prior, validation = runs.model.prior, _TENTH if runs.validation is None else runs.validation
    if not isinstance(prior, LearnedNormal) or runs.alone:
        final = runs.run(runs.model)
        return PriorScaleFit(final.posterior, final, {})
    if runs.algorithm.traits.chooses_prior_scale:
        final = runs.run(runs.model, validation=validation)
        return PriorScaleFit(final.posterior, final, {})
    runs, [(learned, held)] = replace(runs, validation=validation).read(_TENTH)
    under = lambda scale: replace(runs.model, prior=prior.at(scale))

    def nll(scale: float) -> float:
        found = runs.compared(under(scale), learned, f"scale-{scale:g}", validation=held)
        return float(np.mean(found.history["validation_nll"][-_LAST:]))

    with runs.shown(MOST_SCALES, "prior scales") as bar:
        choice = choose(nll, doublings, float(prior.start), _FARTHEST, failure=Diverged).finite("scale")
        bar.begin_last()
        final = runs.run(under(choice.best))
    return PriorScaleFit(final.posterior, final, choice.losses)


@dataclass(frozen=True)
class TemperatureFit:
    """What `fit_temperature` returns.

    Attributes:
        posterior: the posterior from all rows, at the temperature chosen, which it carries.
        fit: the run that made it.
        temperatures: the temperatures that were tried, each with the negative log predictive density of the rows set
            aside, in nats a row; empty where there was none to choose.
        scales: the scales of the prior that were tried at the temperature chosen, or without one, in the same way;
            empty where the scale was known or the algorithm's own affair, or the rows were too few to choose it too.

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
    scales: dict[float, float] = field(default_factory=dict)


def fit_temperature(
    model: Model,
    data: Data,
    algorithm: Algorithm,
    *,
    temperatures: Sequence[float] | None = None,
    validation: object = None,
    seed: int = 0,
    checkpoint: object = None,
    **options: object,
) -> TemperatureFit:
    """Fits an algorithm at the first of several temperatures that rows set aside do not speak against.

    Temperatures are tried from the first one on, as long as the rows set aside are predicted better. Of those tried the
    first is taken whose mean loss is within two standard errors of the least, by paired rows, or above it by less than
    one nat in all, and the algorithm learns from all rows there.

    The scale of a `LearnedNormal` prior is chosen with the temperature where at least 1,000 rows judge: scales are
    doubled or halved at the first temperature, and again where another one is better. Fewer rows would take a wide
    prior for a good one, so that they choose the temperature under the prior's first guess; `fit_prior_scale` chooses
    the scale at one temperature. An algorithm that chooses the scale itself (Laplace's method) does so by the rows that
    judge where they are 1,000, else by the evidence, at every temperature. Where there is no temperature to choose,
    since the belief is a point, the algorithm a sampler, the model a regression, or one temperature given, this is
    `fit_prior_scale`.

    Args:
        model: network, likelihood and prior.
        data: `(x, y)`, or a mapping with `x`, `y` and, optionally, `weight`, `offset`, `mask`.
        algorithm: what is run.
        temperatures: what is tried, the preferred one first. Where none are given 1, 0.3, 0.1, 0.03, 0.01, 0.003 and
            0.001, which is nearly a point, for classes, and 1 alone for a regression: its noise is learned from the
            rows that the network has seen, and shrinks with the temperature, which a few rows set aside do not tell.
        validation: a share of the rows, or rows of their own. Where None a fifth of the rows judges, and of fewer than
            640 rows further fifths judge too, in runs of their own, until 128 rows do.
        seed: of what is set aside and of every run.
        checkpoint: a folder, or `lamu.Checkpoints`, in which each run has a folder of checkpoints of its own; with
            `resume=True` runs that are done are not run again, and the end is the same.
        **options: further options of `lamu.fit`, for instance `epochs` and `batch_size`. Where neither `epochs` nor
            `steps` is given, the runs that compare take some thousands of steps, and the last one as many as it needs.

    Returns:
        The posterior, its run, and the temperatures and scales that were tried.

    Raises:
        ValueError: for an option that makes no sense for several runs, or no temperatures.

    Source: Wenzel et al. (2020), section 2; Breiman et al. (1984), section 3.4.3, for the standard errors.

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
    if temperatures is None:
        temperatures = TEMPERATURES if model.has_classes else TEMPERATURES[:1]
    if not temperatures:
        raise ValueError(f"temperatures={temperatures!r} leaves no choice; give for instance (1.0, 0.1)")
    first, *others = map(float, temperatures)
    return _at_temperature(runs, first) if runs.alone or not others else _at_best_temperature(runs, (first, *others))


def _at_temperature(runs: _Runs, temperature: float) -> TemperatureFit:
    found = _at_best_scale(replace(runs, options={**runs.options, "temperature": temperature}))
    return TemperatureFit(found.posterior, found.fit, {}, found.scales)


def _at_best_temperature(runs: _Runs, temperatures: tuple[float, ...]) -> TemperatureFit:
    """Returns the fit at the first temperature that rows set aside do not speak against."""
    read, parts = runs.read(_FIFTH, _FEWEST)
    scale = _Judges.first_scale(read, parts)
    fits = len(parts) * (len(temperatures) + (0 if scale is None else 2 * MOST_SCALES - 1))
    with read.shown(fits, "temperatures") as bar:
        judges = _Judges.of(read, parts, temperatures[0], scale)
        if judges is None:
            bar.begin_last()
            return _at_temperature(runs, temperatures[0])
        losses = choose(judges.loss, _both, temperatures, scale, failure=Diverged).finite("temperature").losses
        best = judges.preferred(temperatures, losses)
        bar.begin_last()
        final = read.run(judges.model_of(best), temperature=best[0])
    least = {T: min(losses[each] for each in losses if each[0] == T) for T, _ in losses}
    scales = {s: loss for (T, s), loss in losses.items() if best[0] == T and s is not None}
    return TemperatureFit(final.posterior, final, least, scales)


def _both(ask: Ask, temperatures: Sequence[float], scale: float | None) -> None:
    """Asks for scales at the first temperature, temperatures under the best one, and scales again at the best."""

    def best_scale(temperature: float, start: float) -> float:
        return choose(lambda each: ask((temperature, each)), doublings, start, _FARTHEST).best

    chosen = None if scale is None else best_scale(temperatures[0], scale)
    best = choose(lambda each: ask((each, chosen)), until_worse, temperatures).best
    if chosen is not None and best != temperatures[0]:
        best_scale(best, chosen)


def most_fits(model: Model, algorithm: Algorithm, rows: int, temperature: float | None = None) -> tuple[int, int]:
    """Returns how many fits choose a temperature, and a scale of the prior, at most, where neither is given."""
    alone = _is_alone(algorithm)
    learned = isinstance(model.prior, LearnedNormal) and not alone and not algorithm.traits.chooses_prior_scale
    if alone or temperature is not None or not model.has_classes:
        return 0, MOST_SCALES if learned else 0
    fifth = math.ceil(_FIFTH * rows)
    fifths = min(round(1 / _FIFTH), math.ceil(_FEWEST / fifth))
    scales = 2 * MOST_SCALES - 1 if learned and fifths * fifth >= _MANY else 0
    return len(TEMPERATURES) * fifths, scales * fifths


@dataclass(frozen=True)
class _Judges:
    """The rows that judge temperatures, and what they have said."""

    runs: _Runs
    parts: Parts
    first: tuple[Candidate, Posterior]  # the preferred temperature and scale, with their posterior of the first part
    rows: dict[Candidate, np.ndarray] = field(default_factory=dict)  # the losses of the rows
    priors: dict[Candidate, Prior] = field(default_factory=dict)  # of the posteriors

    @staticmethod
    def first_scale(runs: _Runs, parts: Parts) -> float | None:
        """Returns the first guess of the prior's scale, where it is chosen with the temperature."""
        prior = runs.model.prior
        chosen = not runs.algorithm.traits.chooses_prior_scale and _are_many(parts)
        return float(prior.start) if chosen and isinstance(prior, LearnedNormal) else None

    @classmethod
    def of(cls, runs: _Runs, parts: Parts, temperature: float, scale: float | None) -> _Judges | None:
        """Returns the judges after a first run; none where its belief is a point: a mode is that of any temperature."""
        posterior = cls._run(runs, parts, (temperature, scale), 0)
        if isinstance(posterior.belief, Point):
            return None
        return cls(runs, parts, ((temperature, scale), posterior))

    @staticmethod
    def _run(runs: _Runs, parts: Parts, candidate: Candidate, k: int) -> Posterior:
        (temperature, scale), (learned, held) = candidate, parts[k]
        aside = runs.algorithm.traits.chooses_prior_scale and _are_many(parts)
        options: Options = {"validation": held} if aside else {}
        place = f"temperature-{temperature:g}" + ("" if scale is None else f"-scale-{scale:g}")
        place += f"-fold-{k}" if len(parts) > 1 else ""
        return runs.compared(_under(runs.model, scale), learned, place, temperature=temperature, **options).posterior

    def loss(self, candidate: Candidate) -> float:
        """Returns the mean loss of the rows, weighted."""
        losses = []
        for k, (_, held) in enumerate(self.parts):
            known = k == 0 and candidate == self.first[0]
            posterior = self.first[1] if known else self._run(self.runs, self.parts, candidate, k)
            losses.append(row_losses(posterior, held, _SAMPLES))
            self.priors[candidate] = posterior.model.prior
        self.rows[candidate] = np.concatenate(losses)
        return float(np.average(self.rows[candidate], weights=self.weight))

    @property
    def weight(self) -> np.ndarray:
        """The weights of the rows that judge."""
        return np.concatenate([np.asarray(held.weight, float) for _, held in self.parts])

    def preferred(self, temperatures: Sequence[float], losses: Mapping[Candidate, float]) -> Candidate:
        """Returns the first temperature's best candidate that no paired difference speaks against."""
        best = min(losses, key=lambda each: losses[each])
        for temperature in temperatures:
            tried = [each for each in losses if each[0] == temperature]
            candidate = min(tried, key=lambda each: losses[each], default=best)
            if candidate == best or (math.isfinite(losses[candidate]) and self._as_good(candidate, best)):
                return candidate
        return best

    def _as_good(self, candidate: Candidate, best: Candidate) -> bool:
        mean, nothing = paired(self.rows[candidate] - self.rows[best], self.weight)
        return mean <= nothing

    def model_of(self, candidate: Candidate) -> Model:
        """Returns the model under the prior that the rows chose, by the search or by the algorithm; else the model."""
        if self.runs.algorithm.traits.chooses_prior_scale and _are_many(self.parts):
            return replace(self.runs.model, prior=self.priors[candidate])
        return _under(self.runs.model, candidate[1])


def _are_many(parts: Parts) -> bool:
    """Whether the rows that judge are enough to choose the scale of a prior with the temperature."""
    return sum(held.count for _, held in parts) >= _MANY


def _is_alone(algorithm: Algorithm) -> bool:
    return algorithm.traits.length is not None or algorithm.traits.batching == "once"


def _under(model: Model, scale: float | None) -> Model:
    return model if scale is None else replace(model, prior=cast(LearnedNormal, model.prior).at(scale))


def _require(model: object, algorithm: object, options: dict[str, object], *refused: str) -> None:
    for name in refused:
        if name in options:
            raise ValueError(f"{name}={options[name]!r} is about one run, not several; leave it out, or use fit")
    require_target(model)
    require_algorithm(algorithm)
