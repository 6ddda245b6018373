"""Prior sensitivity: compares predictions, row by row, of fits under several priors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lamu.algorithms.variational.conjugate_scales import conjugate_scales
from lamu.algorithms.variational.online_newton import ivon
from lamu.loop import fit
from lamu.model import Model
from lamu.priors import Hierarchy, Prior
from lamu.protocol import Algorithm
from lamu.running.progress import SeveralRuns
from lamu.running.result import Fit
from lamu.typing import Data, Inputs

__all__ = ["PriorSensitivity", "prior_sensitivity"]


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
        >>> from lamu.prior_comparison import PriorSensitivity
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
