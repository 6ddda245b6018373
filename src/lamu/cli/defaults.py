"""The defaults of the command line: algorithm, model, and length of a fit."""

from __future__ import annotations

import numpy as np

from lamu.cli.recipes import is_outside, likelihood_of, required_parts
from lamu.data import Encoding
from lamu.data.wording import nearest
from lamu.folds import centred, default_length, folds_for
from lamu.likelihoods import Likelihood, RightCensored
from lamu.likelihoods.table import LIKELIHOODS, OTHER_NAMES
from lamu.model import Model
from lamu.networks import MLP, Network
from lamu.priors import LearnedNormal, Normal
from lamu.protocol import Algorithm
from lamu.rate import Annealed
from lamu.supports import Counts
from lamu.typing import Inputs, Options, Targets

__all__ = [
    "DEFAULT",
    "LIKELIHOODS",
    "budget",
    "default_algorithm",
    "default_folds",
    "default_settings",
    "likelihood_for",
    "model_for",
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


def default_folds(rows: int, algorithm: str | None) -> int:
    """Returns the number of folds of the ensemble; zero, hence one run, for a named algorithm."""
    return 0 if algorithm is not None else folds_for(rows)


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
    offset: np.ndarray | None = None,
) -> tuple[Model, str]:
    """Returns the model for a table, and a sentence about the parts that the algorithm needs, mostly empty."""
    prior = LearnedNormal(0.5) if prior_scale is None else Normal(prior_scale)
    model = Model(_network(encoding), likelihood_for(encoding, likelihood), prior)
    model, note = required_parts(algorithm or "", model, encoding, x, y, weight)
    rows = {"x": x, "y": y, "weight": weight, "offset": offset}
    data = {name: values for name, values in rows.items() if values is not None}
    return centred(model.standardised(x, y, weight), data), note


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
    return make(len(encoding.labels))


# Algorithms and likelihoods are imported where they are used, so that a table is read and reported before them.
