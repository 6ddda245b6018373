r"""Chooses the scale of the prior and the temperature by the predictive density of held-out rows.

The ELBO of a mean-field belief rises with the number of pruned weights, so that it prefers wide priors under which the
data are hardly used; and the joint density of weights and scale has no maximum. So the scale is chosen by validation:
it is doubled or halved as long as the predictive density of held-out rows rises, and the algorithm is then run on all
rows under the best scale.

A converged belief of a network may predict worse than a colder one, \(q \propto \exp(-\ell/T)\) with T < 1: the prior
on weights may be too wide, the mean field too narrow a family, the data cleaner than the likelihood says (Wenzel et al.
2020; Aitchison 2021). An unfinished run is colder too, by an uncontrolled amount. Here T is chosen by held-out training
rows, and stored in the posterior. It is the highest temperature whose mean loss is within two standard errors of the
least, by paired rows (the rule of Breiman et al. 1984, section 3.4.3, for the size of a tree), or so near to it that a
loss of one more nat on a single row would decide.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import numpy as np

from lamu import memory
from lamu.algorithms.variational.conjugate_scales import conjugate_scales
from lamu.algorithms.variational.online_newton import ivon
from lamu.base.choose import Ask, choose, doublings, until_worse
from lamu.convergence import Overfit, Unconverged, Underfit, WorseThanMean
from lamu.data.arrays import Arrays, FewRows
from lamu.families import Point
from lamu.loop import fit
from lamu.model import Model
from lamu.posterior import Posterior
from lamu.priors import Hierarchy, LearnedNormal, Prior
from lamu.protocol import Algorithm, require_algorithm
from lamu.running.checkpoints import of_part
from lamu.running.conclusion import Diverged, Fit
from lamu.running.history import mean_and_margin, row_losses, validation_pairs
from lamu.running.progress import SeveralRuns
from lamu.running.schedule import Rounds
from lamu.target import require_target, training_rows
from lamu.typing import Data, Inputs, Options

__all__ = [
    "MOST_SCALES",
    "TEMPERATURES",
    "PriorScaleFit",
    "PriorSensitivity",
    "TemperatureFit",
    "fit_prior_scale",
    "fit_temperature",
    "most_fits",
    "prior_sensitivity",
]

# Numbers that decide results. Conventions, not tuned:
_FARTHEST = 3  # doublings or halvings of the first guess
MOST_SCALES = 2 + _FARTHEST  # number of scales tried
TEMPERATURES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)  # temperatures tried for classes
_ROUNDS = 3  # length of a comparison run in first rounds' steps, where no length is given
_LAST = 5  # last validations that are averaged: a single one of a stochastic state is noisy
_SAMPLES = 64  # draws of a prediction that judges a temperature
_TENTH, _FIFTH = 0.1, 0.2  # shares of the rows that judge a scale and a temperature

# Chosen with `ivon` on development splits 0 to 3 of iris, wine and breast_cancer, 120 to 455 rows (NLL less Adam's; one
# standard error is .005 to .015):
# - Temperatures chosen by 24 rows of iris had an NLL of -.058, by five times 24 rows -.072. Other sets did not differ.
# - With one standard error of `mean_and_margin` -.072, -.002, +.004, with two -.071, -.003, +.000, and warmer
#   temperatures.
# - Requiring more than one row's nat for a colder temperature changed these by .002 at most. It protects the tails:
#   where no judging row is mispredicted, colder is slightly better for all, and one mispredicted test row outweighs it.
# - Choosing the prior's scale too -.039, +.000, +.065: few rows prefer wide priors that one other row refutes.
_FEWEST = 128  # smallest number of judging rows, where there are as many
_MANY = 1000  # number of judging rows from which they choose the prior's scale together with the temperature


Parts: TypeAlias = list[tuple[Arrays, Arrays]]
"""Rows to learn from with those that judge."""

Candidate: TypeAlias = tuple[float, float | None]
"""A temperature, and a scale of the prior where one is to be chosen."""


@dataclass(frozen=True)
class _Runs:
    """Comparison runs of one algorithm on the training part of the rows, and a last run on all rows."""

    model: Model
    data: Data
    algorithm: Algorithm
    validation: Any
    seed: int
    checkpoint: Any
    options: Options

    @property
    def alone(self) -> bool:
        """Whether the length of runs is fixed, so that there are no comparison runs."""
        return _is_alone(self.algorithm)

    def read(self, share: float, fewest: int = 0) -> tuple[_Runs, Parts]:
        """Returns the runs with their rows read, and pairs of training rows and judging rows."""
        model = self.model.named(self.data)
        with memory.within(self.options.get("max_memory")):
            rows = training_rows(model, self.data, stacklevel=6)
        return replace(self, model=model, data=rows), validation_pairs(
            rows, self.validation, model, self.seed, share, fewest
        )

    def compared(self, under: Model, learned: Arrays, place: str, **options: object) -> Fit:
        """Returns a comparison run."""
        if (rounds := self._rounds(learned)) is not None:
            options["steps"] = _ROUNDS * rounds.first
        with warnings.catch_warnings():
            for category in (Unconverged, FewRows, Overfit, Underfit, WorseThanMean):
                warnings.simplefilter("ignore", category)  # comparison runs are short; the last run may warn
            result = replace(self, data=learned).run(under, place, **options)
        if result.interrupted:
            raise KeyboardInterrupt
        return result

    def shown(self, fits: int, what: str) -> SeveralRuns:
        """Returns the progress bar of at most `fits` comparison runs and the last run on all rows."""
        rounds = self._rounds(self.data)
        last = 1.0 if rounds is None else rounds.limit / (_ROUNDS * rounds.first)
        return SeveralRuns(fits + 1, self.options.get("progress"), what, last=last, at_most=True)

    def _rounds(self, rows: Arrays) -> Rounds | None:
        """Returns the rounds of a run over rows, where no length is given."""
        if self.options.get("epochs") is not None or self.options.get("steps") is not None:
            return None
        return Rounds.of(self.algorithm.traits, rows.count, self.options.get("batch_size", 64))

    def run(self, under: Model, place: str = "last", **options: object) -> Fit:
        """Returns a run with its own folder of checkpoints."""
        folder = of_part(self.checkpoint, place)
        return fit(under, self.data, self.algorithm, seed=self.seed, checkpoint=folder, **{**self.options, **options})


@dataclass(frozen=True)
class PriorScaleFit:
    """Result of `fit_prior_scale`.

    Attributes:
        posterior: the posterior from all rows, under the best scale.
        fit: the run that made it.
        scales: the scales tried, each with the negative log predictive density of the held-out rows, in nats a row, at
            the end of its run; empty where the scale was given or chosen by the algorithm.

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
    """Fits an algorithm under the prior scale that predicts held-out rows best.

    It takes three to eight runs on the training part of the rows, and one on all rows. Where the prior is not a
    `LearnedNormal`, or the algorithm determines its length, sees every row once, or chooses the scale itself (Laplace's
    method), it is a single `lamu.fit`, which is given `validation` where it can use it.

    Args:
        model: network, likelihood and prior.
        data: `(x, y)`, or a mapping with `x`, `y` and, optionally, `weight`, `offset`, `mask` and `groups`; with
            groups, such as the patient of each row, all rows of a group are held out or none; with `time`, the latest.
        algorithm: the algorithm.
        validation: a share of the rows, or separate rows; a tenth where None.
        seed: of the held-out rows and of every run.
        checkpoint: a folder, or `lamu.Checkpoints`, in which each run has its own folder of checkpoints; with
            `resume=True` finished runs are not repeated, and the result is the same.
        **options: further options of `lamu.fit`, for instance `epochs` and `batch_size`.

    Returns:
        The posterior, its run, and the scales tried.

    Raises:
        ValueError: for an option that does not apply to several runs.
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
    """Returns the fit under the best scale of the prior, or a single fit where the scale is not chosen here."""
    prior, validation = runs.model.prior, _TENTH if runs.validation is None else runs.validation
    if not isinstance(prior, LearnedNormal) or runs.alone:
        final = runs.run(_at_first_guess(runs))
        return PriorScaleFit(final.posterior, final, {})
    if runs.algorithm.traits.chooses_prior_scale:
        final = runs.run(runs.model, validation=validation)
        return PriorScaleFit(final.posterior, final, {})
    runs, [(learned, judging)] = replace(runs, validation=validation).read(_TENTH)
    under = lambda scale: replace(runs.model, prior=prior.at(scale))

    def nll(scale: float) -> float:
        result = runs.compared(under(scale), learned, f"scale-{scale:g}", validation=judging)
        return float(np.mean(result.history["validation_nll"][-_LAST:]))

    with runs.shown(MOST_SCALES, "prior scales") as bar:
        choice = choose(nll, doublings, float(prior.start), _FARTHEST, failure=Diverged).finite("scale")
        bar.begin_last()
        final = runs.run(under(choice.best))
    return PriorScaleFit(final.posterior, final, choice.losses)


@dataclass(frozen=True)
class TemperatureFit:
    """Result of `fit_temperature`.

    Attributes:
        posterior: the posterior from all rows, at the chosen temperature, its attribute `temperature`.
        fit: the run that made it.
        temperatures: the temperatures tried, each with the negative log predictive density of the held-out rows, in
            nats a row; empty where there was none to choose.
        scales: the prior scales tried at the chosen temperature, or without one, in the same way; empty where the scale
            was given or chosen by the algorithm, or the rows were too few to choose it.

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

    @property
    def temperature(self) -> float:
        """The chosen temperature, that of the posterior."""
        return float(self.posterior.temperature)


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
    """Fits an algorithm at a temperature chosen by held-out rows.

    Temperatures are tried in their order, as long as the held-out rows are predicted better. The choice is the first
    whose mean loss is within two standard errors of the least, by paired rows, or whose total loss is within one nat of
    it; the algorithm is then run on all rows.

    The scale of a `LearnedNormal` prior is chosen with the temperature where at least 1,000 rows judge: scales are
    doubled or halved at the first temperature, and again where another one is better. Fewer rows would prefer too wide
    priors, so they choose the temperature under the prior's first guess; `fit_prior_scale` chooses the scale at one
    temperature. An algorithm that chooses the scale itself (Laplace's method) does so by the rows that judge where they
    are 1,000, else by the evidence, at every temperature. Where there is no temperature to choose, since the belief is
    a point, the algorithm a sampler, the model a regression, or one temperature given, this is `fit_prior_scale`.

    Args:
        model: network, likelihood and prior.
        data: `(x, y)`, or a mapping with `x`, `y` and, optionally, `weight`, `offset`, `mask` and `groups`; with
            groups, such as the patient of each row, all rows of a group are held out or none; with `time`, the latest.
        algorithm: the algorithm.
        temperatures: the temperatures to try, the preferred one first. By default 1, 0.3, 0.1, 0.03, 0.01, 0.003 and
            0.001, which is nearly a point, for classes, and 1 alone for a regression: its noise is learned from the
            training rows, and shrinks with the temperature, which few held-out rows do not show.
        validation: a share of the rows, or separate rows. Where None a fifth of the rows judges, and of fewer than 640
            rows further fifths judge too, in runs of their own, until 128 rows do.
        seed: of the held-out rows and of every run.
        checkpoint: a folder, or `lamu.Checkpoints`, in which each run has its own folder of checkpoints; with
            `resume=True` finished runs are not repeated, and the result is the same.
        **options: further options of `lamu.fit`, for instance `epochs` and `batch_size`. Where neither `epochs` nor
            `steps` is given, comparison runs take some thousands of steps, and the last run continues to convergence.

    Returns:
        The posterior, its run, and the temperatures and scales tried.

    Raises:
        ValueError: for an option that does not apply to several runs, or no temperatures.

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
    chosen = _at_best_scale(replace(runs, options={**runs.options, "temperature": temperature}))
    return TemperatureFit(chosen.posterior, chosen.fit, {}, chosen.scales)


def _at_best_temperature(runs: _Runs, temperatures: tuple[float, ...]) -> TemperatureFit:
    """Returns the fit at the temperature chosen by the held-out rows."""
    read, parts = runs.read(_FIFTH, _FEWEST)
    scale = _Judges.first_scale(read, parts)
    read = read if scale is not None else replace(read, model=_at_first_guess(read))
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
    """Evaluates scales at the first temperature, temperatures under the best scale, and scales at the best of these."""

    def best_scale(temperature: float, start: float) -> float:
        return choose(lambda each: ask((temperature, each)), doublings, start, _FARTHEST).best

    chosen = None if scale is None else best_scale(temperatures[0], scale)
    best = choose(lambda each: ask((each, chosen)), until_worse, temperatures).best
    if chosen is not None and best != temperatures[0]:
        best_scale(best, chosen)


def most_fits(model: Model, algorithm: Algorithm, rows: int, temperature: float | None = None) -> tuple[int, int]:
    """Returns the largest numbers of fits that choose a temperature and a prior scale, where neither is given."""
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
    """The held-out rows that judge temperatures, and their losses so far."""

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
        """Returns the judges after a first run; None where its belief is a point, which has no temperature."""
        posterior = cls._run(runs, parts, (temperature, scale), 0)
        if isinstance(posterior.belief, Point):
            return None
        return cls(runs, parts, ((temperature, scale), posterior))

    @staticmethod
    def _run(runs: _Runs, parts: Parts, candidate: Candidate, k: int) -> Posterior:
        (temperature, scale), (learned, judging) = candidate, parts[k]
        aside = runs.algorithm.traits.chooses_prior_scale and _are_many(parts)
        options: Options = {"validation": judging} if aside else {}
        place = f"temperature-{temperature:g}" + ("" if scale is None else f"-scale-{scale:g}")
        place += f"-fold-{k}" if len(parts) > 1 else ""
        return runs.compared(_under(runs.model, scale), learned, place, temperature=temperature, **options).posterior

    def loss(self, candidate: Candidate) -> float:
        """Returns the mean loss of the rows, weighted."""
        losses = []
        for k, (_, judging) in enumerate(self.parts):
            is_first = k == 0 and candidate == self.first[0]
            posterior = self.first[1] if is_first else self._run(self.runs, self.parts, candidate, k)
            losses.append(row_losses(posterior, judging, _SAMPLES))
            self.priors[candidate] = posterior.model.prior
        self.rows[candidate] = np.concatenate(losses)
        return float(np.average(self.rows[candidate], weights=self.weight))

    @property
    def weight(self) -> np.ndarray:
        """The weights of the rows that judge."""
        return np.concatenate([np.asarray(judging.weight, float) for _, judging in self.parts])

    def preferred(self, temperatures: Sequence[float], losses: Mapping[Candidate, float]) -> Candidate:
        """Returns the best candidate of the first temperature that paired differences do not reject."""
        best = min(losses, key=lambda each: losses[each])
        for temperature in temperatures:
            tried = [each for each in losses if each[0] == temperature]
            candidate = min(tried, key=lambda each: losses[each], default=best)
            if candidate == best or (math.isfinite(losses[candidate]) and self._as_good(candidate, best)):
                return candidate
        return best

    def _as_good(self, candidate: Candidate, best: Candidate) -> bool:
        groups = [judging.groups for _, judging in self.parts]
        groups = None if groups[0] is None else np.concatenate(groups)
        mean, nothing = mean_and_margin(self.rows[candidate] - self.rows[best], self.weight, groups)
        return mean <= nothing

    def model_of(self, candidate: Candidate) -> Model:
        """Returns the model under the prior chosen by the search or the algorithm; else the model unchanged."""
        if self.runs.algorithm.traits.chooses_prior_scale and _are_many(self.parts):
            return replace(self.runs.model, prior=self.priors[candidate])
        return _under(self.runs.model, candidate[1])


def _are_many(parts: Parts) -> bool:
    """Whether the judging rows are enough to choose the prior's scale together with the temperature."""
    return sum(judging.count for _, judging in parts) >= _MANY


def _is_alone(algorithm: Algorithm) -> bool:
    return algorithm.traits.length is not None or algorithm.traits.batching == "once"


def _at_first_guess(runs: _Runs) -> Model:
    """Returns the model under the first guess of its prior's scale, where nothing else chooses it."""
    prior = runs.model.prior
    if not isinstance(prior, LearnedNormal) or runs.algorithm.traits.chooses_prior_scale:
        return runs.model
    return replace(runs.model, prior=prior.at(prior.start))


def _under(model: Model, scale: float | None) -> Model:
    return model if scale is None else replace(model, prior=cast(LearnedNormal, model.prior).at(scale))


def _require(model: object, algorithm: object, options: dict[str, object], *refused: str) -> None:
    for name in refused:
        if name in options:
            raise ValueError(f"{name}={options[name]!r} is about one run, not several; leave it out, or use fit")
    require_target(model)
    require_algorithm(algorithm)


@dataclass(frozen=True)
class PriorSensitivity:
    """Result of `prior_sensitivity`.

    Attributes:
        fits: the run under each prior, by name; the first is the reference.
        distances: for each other prior, the distance of each row's prediction from the reference's, `[N]`. For numbers
            the difference of means in predictive standard deviations of the reference, the largest over outputs; for
            classes the total variation distance, between 0 and 1.

    Examples:
        >>> import numpy as np
        >>> from lamu.validation_choice import PriorSensitivity
        >>> PriorSensitivity({}, {"wide": np.array([0.1, 0.6])}).moved(0.5)
        {'wide': [1]}
    """

    fits: dict[str, Fit]
    distances: dict[str, np.ndarray]

    def moved(self, distance: float) -> dict[str, list[int]]:
        """Returns, for each prior, the rows beyond a distance, the farthest first.

        Args:
            distance: in the unit of `distances`.
        """
        order = {name: np.argsort(-each, kind="stable") for name, each in self.distances.items()}
        return {name: [int(i) for i in order[name] if each[i] > distance] for name, each in self.distances.items()}


def prior_sensitivity(
    model: Model,
    data: Data,
    priors: Mapping[str, Prior],
    x: Inputs = None,
    algorithm: Algorithm | None = None,
    seed: int = 0,
    offset: Any = None,
    **options: Any,
) -> PriorSensitivity:
    r"""Fits a model under several priors and measures the change of each prediction.

    \[ d_i = \max_k \frac{|E_1[y_{ik}] - E_0[y_{ik}]|}{\mathrm{sd}_0(y_{ik})}, \qquad
       d_i = \tfrac12 \sum_k |p_1(k \mid x_i) - p_0(k \mid x_i)| \]

    for numbers and for classes. It costs one fit a prior, all with one seed. Where rows change by an amount that
    matters, the data do not determine those predictions, and the prior needs a justification.

    Args:
        model: network and likelihood; its own prior is not used.
        data: `(x, y)`, or a mapping with `x`, `y` and, optionally, `weight` and `offset`, as `lamu.fit` takes it.
        priors: priors by name, the reference first.
        x: inputs at which predictions are compared; those of the data, with their offsets, if None.
        algorithm: the algorithm; where None `ivon()`, and `conjugate_scales(ivon())` under a prior with its own scales,
            such as `ARD` or `Horseshoe`.
        seed: of every run.
        offset: a known part of the linear predictor at `x`, as for `Posterior.predict`; that of the data where `x` is
            None.
        **options: further options of `lamu.fit`, for instance `epochs`.

    Returns:
        The fits, and the distances row by row.

    Raises:
        ValueError: for fewer than two priors, or unknown inputs.
        TypeError: for a prior whose scales are not conjugate, without an algorithm that supports it.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.7)).standardised(x, y)
        >>> priors = {"standard": lamu.priors.Normal(1.0), "narrow": lamu.priors.Normal(0.01)}
        >>> found = lamu.prior_sensitivity(model, (x, y), priors, algorithm=lamu.algorithms.conjugate())
        >>> found.distances["narrow"].shape, len(found.moved(0.5)["narrow"]) > 0
        ((442,), True)
    """
    if len(priors) < 2:
        raise ValueError(f"priors={priors!r} leave nothing to compare; give two or more by name, the reference first")
    if x is None:
        if offset is not None:
            raise ValueError("an offset is given and x is not; give both, or neither for the rows of the data")
        if isinstance(data, Mapping) and "x" in data:
            x, offset = data["x"], data.get("offset")
        elif isinstance(data, tuple):
            x = data[0]
        else:
            raise ValueError("x=None means the inputs of the data, and these are neither (x, y) nor a mapping; give x")
    with SeveralRuns(len(priors), options.get("progress"), "priors"):
        fits = {
            name: fit(replace(model, prior=prior), data, algorithm or _default(prior), seed=seed, **options)
            for name, prior in priors.items()
        }
    predictions = [each.posterior.predict(x, offset=offset) for each in fits.values()]
    classes = model.support.has_classes
    distances = {
        name: _distance(predictions[0], prediction, classes)
        for name, prediction in list(zip(fits, predictions, strict=True))[1:]
    }
    return PriorSensitivity(fits, distances)


def _default(prior: Prior) -> Algorithm:
    """Returns the default algorithm for a prior: a hierarchical one needs an algorithm that learns its scales."""
    return conjugate_scales(ivon()) if isinstance(prior, Hierarchy) else ivon()


def _distance(reference: Any, other: Any, classes: bool) -> np.ndarray:
    difference = np.abs(np.asarray(other.mean, float) - np.asarray(reference.mean, float))
    if classes:
        return difference.sum(axis=1) / 2 if difference.ndim == 2 else difference
    standardised = difference / np.asarray(reference.std, float)
    return standardised.reshape(len(standardised), -1).max(axis=1)
