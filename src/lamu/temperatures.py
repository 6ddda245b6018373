r"""The temperature by validation: how cold a posterior has to be to predict best, as an explicit choice.

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
from lamu.convergence import Unconverged
from lamu.data.arrays import Arrays, FewRows
from lamu.families import Point
from lamu.loop import fit
from lamu.model import Model
from lamu.posterior import Posterior
from lamu.protocol import Algorithm, require_algorithm
from lamu.running.checkpoints import of_part
from lamu.running.result import Fit
from lamu.running.schedule import Rounds
from lamu.running.validation import set_aside
from lamu.target import require_target
from lamu.typing import Data

__all__ = ["TEMPERATURES", "TemperatureFit", "choose_temperature", "fit_temperature"]

TEMPERATURES = (1.0, 0.3, 0.1, 0.03, 0.01)  # that are tried, of classes
_SAMPLES = 64
_ROUNDS = 3  # first rounds' steps of a run that only compares


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
    validation: Any = 0.2,
    seed: int = 0,
    checkpoint: Any = None,
    **options: Any,
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
    for name in ("stop", "temperature"):
        if name in options:
            raise ValueError(f"{name}={options[name]!r} is about one run, not several; leave it out, or use fit")
    under, chosen, tried = _compared(model, data, algorithm, temperatures, validation, seed, checkpoint, options)
    last = options | {"checkpoint": of_part(checkpoint, "last")}
    final = fit(under, data, algorithm, seed=seed, temperature=chosen, **last)
    return TemperatureFit(final.posterior, final, tried)


def choose_temperature(
    model: Model,
    data: Data,
    algorithm: Algorithm,
    *,
    temperatures: Sequence[float] | None = None,
    validation: Any = 0.2,
    seed: int = 0,
    checkpoint: Any = None,
    **options: Any,
) -> tuple[float, dict[float, float]]:
    """Returns the temperature that `fit_temperature` takes, and those that were tried with their figures.

    The arguments are those of `fit_temperature`.

    Examples:
        >>> import lamu
        >>> from lamu.temperatures import choose_temperature
        >>> x, y = lamu.data.load("iris")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Categorical(3)).standardised(x, y)
        >>> choose_temperature(model, (x, y), lamu.algorithms.adam(1e-2), epochs=5)
        (1.0, {})
    """
    return _compared(model, data, algorithm, temperatures, validation, seed, checkpoint, options)[1:]


def _compared(
    model: Model,
    data: Data,
    algorithm: Algorithm,
    temperatures: Sequence[float] | None,
    validation: Any,
    seed: int,
    checkpoint: Any,
    options: dict[str, Any],
) -> tuple[Model, float, dict[float, float]]:
    """Returns the model, its prior known where the rows chose it, the best temperature, and all with their figures."""
    require_target(model)
    require_algorithm(algorithm)
    if temperatures is None:
        temperatures = TEMPERATURES if model.has_classes else TEMPERATURES[:1]
    if not temperatures:
        raise ValueError(f"temperatures={temperatures!r} leaves no choice; give for instance (1.0, 0.1)")
    if len(temperatures) == 1 or algorithm.traits.length is not None or algorithm.traits.batching == "once":
        return model, float(temperatures[0]), {}
    model = model.named(data)
    with memory.within(options.get("max_memory")):
        rows = model.read(data)
    learned, held = set_aside(rows, validation, model, seed)
    assert isinstance(learned, Arrays)  # a stream has no share to set aside
    assert held is not None  # a share or rows were given
    if options.get("epochs") is None and options.get("steps") is None:
        first = Rounds.of(algorithm.traits, learned.count, options.get("batch_size", 64)).first
        options = {**options, "steps": _ROUNDS * first}
    losses: dict[float, np.ndarray] = {}
    priors: dict[float, Any] = {}
    # What each row counts, one on average, so that the mean of the losses is in nats a row.
    counts = np.asarray(held.weight, float) / np.mean(np.asarray(held.weight, float))
    aside = {"validation": held} if algorithm.traits.chooses_prior_scale else {}
    for temperature in map(float, temperatures):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Unconverged)  # runs that compare are short; the last one is asked
            warnings.simplefilter("ignore", FewRows)  # as above
            there = {**options, **aside, "checkpoint": of_part(checkpoint, f"temperature-{temperature:g}")}
            found = fit(model, learned, algorithm, seed=seed, temperature=temperature, **there)
        if found.interrupted:
            raise KeyboardInterrupt
        if isinstance(found.posterior.belief, Point):
            return model, float(temperatures[0]), {}  # the mode is the same at any temperature
        pred = found.posterior.predict(held.x, samples=_SAMPLES, offset=held.offset)
        loss = -np.asarray(pred.log_prob(held.y), float) * counts
        losses[temperature] = np.where(np.isfinite(loss), loss, np.inf)
        priors[temperature] = found.posterior.model.prior
        if losses[temperature].mean() > min(each.mean() for each in losses.values()):
            break
    means = {temperature: float(loss.mean()) for temperature, loss in losses.items()}
    best = min(means, key=lambda temperature: means[temperature])
    return (replace(model, prior=priors[best]) if aside else model), best, means
