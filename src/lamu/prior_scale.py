r"""The scale of the prior by validation, for algorithms that cannot tell it by themselves.

A belief of mean field is the better for its ELBO the more weights it prunes, so that its ELBO prefers the widest prior
under which the data are hardly used; and the joint density of weights and scale has no maximum. Rows that were not
learned from know better: scales are doubled or halved as long as the predictive density of rows set aside rises, and
the algorithm then learns from all rows under the best one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lamu import memory
from lamu.convergence import Unconverged
from lamu.data.arrays import Arrays, FewRows
from lamu.loop import fit
from lamu.model import Model
from lamu.posterior import Posterior
from lamu.priors import LearnedNormal
from lamu.protocol import Algorithm, require_algorithm
from lamu.running.checkpoints import of_part
from lamu.running.result import Diverged, Fit
from lamu.running.schedule import Rounds
from lamu.running.validation import set_aside, training_rows
from lamu.target import require_target
from lamu.typing import Data

__all__ = ["MOST_SCALES", "PriorScaleFit", "fit_prior_scale"]

_FARTHEST = 3  # doublings or halvings of the first guess
MOST_SCALES = 2 + _FARTHEST  # that `descended` tries
_ROUNDS = 3  # first rounds' steps of a run that only compares, where no length is given
_LAST = 5  # validations, which are averaged: a single one of a stochastic state is noisy


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
    validation: Any = 0.1,
    seed: int = 0,
    checkpoint: Any = None,
    **options: Any,
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
    if "stop" in options:
        raise ValueError(f"stop={options['stop']!r} is about one run, not several; leave it out, or use fit")
    require_target(model)
    require_algorithm(algorithm)
    last = options | {"checkpoint": of_part(checkpoint, "last")}
    prior, traits = model.prior, algorithm.traits
    if not isinstance(prior, LearnedNormal) or traits.length is not None or traits.batching == "once":
        return _single(fit(model, data, algorithm, seed=seed, **last))
    if traits.chooses_prior_scale:
        return _single(fit(model, data, algorithm, seed=seed, validation=validation, **last))
    model = model.named(data)
    with memory.within(options.get("max_memory")):
        rows = training_rows(model, data)
    learned, held = set_aside(rows, validation, model, seed)
    assert isinstance(learned, Arrays)  # a stream has no share to set aside
    failures: list[Diverged] = []
    comparing = options
    if options.get("epochs") is None and options.get("steps") is None:
        comparing = {
            **options,
            "steps": _ROUNDS * Rounds.of(traits, learned.count, options.get("batch_size", 64)).first,
        }

    def nll(scale: float) -> float:
        under = replace(model, prior=prior.at(scale))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Unconverged)  # runs that compare are short; the last one is asked
                warnings.simplefilter("ignore", FewRows)  # as above
                place = of_part(checkpoint, f"scale-{scale:g}")
                found = fit(under, learned, algorithm, seed=seed, validation=held, checkpoint=place, **comparing)
        except Diverged as failure:
            failures.append(failure)
            return math.inf
        if found.interrupted:
            raise KeyboardInterrupt
        end = float(np.mean(found.history["validation_nll"][-_LAST:]))
        return end if math.isfinite(end) else math.inf

    scales = descended(nll, float(prior.start))
    best = min(scales, key=lambda scale: scales[scale])
    if math.isinf(scales[best]) and failures:
        raise failures[0]
    final = fit(replace(model, prior=prior.at(best)), rows, algorithm, seed=seed, **last)
    return PriorScaleFit(final.posterior, final, scales)


def descended(loss: Callable[[float], float], start: float) -> dict[float, float]:
    """Returns the points tried on the way down from a start by doubling or by halving, each with its loss."""
    tried = {point: loss(point) for point in (start, 2 * start, start / 2)}
    factor = 2.0 if tried[2 * start] < tried[start / 2] else 0.5
    point = start * factor
    for _ in range(_FARTHEST - 1):
        if tried[point] != min(tried.values()):
            break
        point = point * factor
        tried[point] = loss(point)
    return tried


def _single(found: Fit) -> PriorScaleFit:
    return PriorScaleFit(found.posterior, found, {})
