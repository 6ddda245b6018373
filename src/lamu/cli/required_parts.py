"""The network, prior or likelihood that an algorithm needs on the command line, where the default ones will not do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lamu.data import Encoding
from lamu.likelihoods import Gaussian
from lamu.model import Model
from lamu.networks import Linear
from lamu.networks.dropout import Dropout
from lamu.priors import ARD

__all__ = ["required_parts"]

_OF_GRAPHS = ("em", "vmp", "ncvmp", "svi", "cvi")
_RATE = 0.1  # the share of units that are dropped, Gal & Ghahramani's smallest


def required_parts(algorithm: str, model: Model, encoding: Encoding, x: Any, y: Any) -> tuple[Model, str]:
    """Returns the model with the parts that an algorithm needs, and a sentence about them, empty where none is."""
    if algorithm in _OF_GRAPHS:
        raise ValueError(
            f"{algorithm} learns graphs and conjugate models of Python's, lamu.Graph for instance, and a table gets a "
            "network; give another algorithm, for instance --algorithm ivon"
        )
    if algorithm in ("dropout", "mc_dropout"):
        network: Any = model.network
        if any(encoding.cardinalities):
            network = replace(network, base=replace(network.base, dropout=Dropout(_RATE)))
        else:
            network = replace(network, dropout=Dropout(_RATE))
        return replace(model, network=network), f"{algorithm}: a network that drops {100 * _RATE:g} % of its units"
    if algorithm == "conjugate_scales":
        return replace(model, prior=ARD()), "conjugate_scales: the prior ARD(), a scale for the weights of every input"
    if algorithm == "conjugate":
        return _linear(model, encoding, x, y)
    if algorithm == "pbp" and encoding.task != "regression":
        raise ValueError(
            f"pbp propagates moments to a target with Gaussian noise, and the task of {encoding.target!r} is "
            f"{encoding.task}; give another algorithm, for instance --algorithm ivon"
        )
    if algorithm == "extended_kalman" and model.likelihood == Gaussian():
        scale = _noise(np.asarray(x, float), np.asarray(y, float))
        told = f"extended_kalman: known noise, {scale:.2g} of the target's deviation, that of least squares"
        return replace(model, likelihood=Gaussian(scale)), told
    return model, ""


def _linear(model: Model, encoding: Encoding, x: Any, y: Any) -> tuple[Model, str]:
    """Returns Bayesian linear regression with the noise of least squares, in units of the target's deviation."""
    if encoding.task != "regression":
        raise ValueError(
            f"conjugate is exact for a regression with Gaussian noise, and the task of {encoding.target!r} is "
            f"{encoding.task}; give another algorithm, for instance --algorithm laplace"
        )
    if model.likelihood != Gaussian():
        name = type(model.likelihood).__name__
        raise ValueError(
            f"conjugate is exact for Gaussian noise, and the likelihood is {name}; give --likelihood gaussian"
        )
    words = [name for name, levels in zip(encoding.columns, encoding.cardinalities, strict=False) if levels]
    if words:
        raise ValueError(
            f"conjugate reads numbers, and the column {words[0]!r} is of categories; leave it out, or give another "
            "algorithm, for instance --algorithm laplace"
        )
    scale = _noise(np.asarray(x, float), np.asarray(y, float))
    told = f"conjugate: a linear model with known noise, {scale:.2g} of the target's deviation, that of least squares"
    return replace(model, network=Linear(), likelihood=Gaussian(scale)), told


def _noise(x: np.ndarray, y: np.ndarray) -> float:
    """Returns the residual deviation of least squares, of the target's; one where there are too few rows."""
    design = np.column_stack([np.ones(len(y)), x])
    coefficients, _, rank, _ = np.linalg.lstsq(design, y, rcond=None)
    free, spread = len(y) - int(rank), float(y.std())
    if free < 1 or spread == 0.0:
        return 1.0
    found = float(np.sqrt(np.sum((y - design @ coefficients) ** 2) / free) / spread)
    return max(found, 1e-3)  # a target that is exactly linear has no noise, and a density that is not finite
