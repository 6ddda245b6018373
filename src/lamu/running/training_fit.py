"""Warnings of networks that have learned hardly anything from their training rows, or the noise in them too."""

from __future__ import annotations

import warnings

import jax
import numpy as np

from lamu.convergence import Overfit, Underfit
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.stream import Stream
from lamu.model import Model
from lamu.predictives.sampled import is_certain
from lamu.running.conclusion import Fit
from lamu.running.validation import row_losses

__all__ = ["warn_training_fit"]

_FEWEST, _MOST = 20, 1024  # training rows that can decide, and that do
_SHORT = 50  # steps, of fewer than which `Unconverged` tells to take more
_HARDLY = 0.05  # of a constant's deviance, below which hardly anything was learned
_NEARLY = 0.95  # of the variance, above which a noise learned from the same rows is a small rest of it


def warn_training_fit(fit: Fit, rows: Arrays | Stream, example: Batch, size: int, validated: bool) -> None:
    """Warns of a network that predicts its training rows no better than a constant, or too well for its noise."""
    # With 300 rows of y = x_0 + N(0, 1), 4,609 weights and the defaults, the negative log density of other rows is 1.42
    # at best. `ivon` has 1.90 (a constant 1.78), `adam` 513, `deep_ensemble` 55, `last_layer` 2,842; `adam` and
    # `deep_ensemble` with validation=0.2 have 1.53 and 1.51.
    model, losses = fit.posterior.model, fit.history.get("loss", np.empty(0))
    if not isinstance(model, Model) or not len(losses):
        return
    known = (
        rows
        if isinstance(rows, Arrays)
        else Arrays(example.x, example.y, example.weight * example.mask, example.offset)
    )
    if known.offset is not None or np.ndim(known.y) != 1:
        return
    # By NumPy, since most fits end here and need no program for it.
    chosen = np.linspace(0, known.count - 1, min(known.count, _MOST)).astype(int)
    weight = np.asarray(known.weight, float)[chosen]
    if np.sum(weight > 0) < _FEWEST:
        return
    constant = _constant_loss(np.asarray(known.y)[chosen], weight, model)
    if constant is None:
        return
    explained = lambda loss: 1 - loss / constant if model.has_classes else 1 - np.exp(2 * (loss - constant))
    # The losses of the last steps, which are those of single draws, tell at no cost that most networks have learned.
    may_underfit = len(losses) >= _SHORT and not is_certain(fit.posterior.belief) and not model.identified
    may_underfit = may_underfit and explained(np.mean(losses[-max(1, len(losses) // 10) :])) < _HARDLY
    may_overfit = not (validated or model.has_classes) and _noise_is_of_a_point(fit, size)
    if not (may_underfit or may_overfit):
        return
    loss = float(np.average(row_losses(fit.posterior, known.take(chosen)), weights=weight))
    share = explained(loss)
    if may_underfit and share < _HARDLY:
        colder = "let lamu.fit_temperature(model, data, algorithm) choose its temperature, or take deep_ensemble(...)"
        warnings.warn(
            f"the belief predicts its training rows {'hardly' if loss < constant else 'no'} better than a constant, "
            f"with {loss:.3g} nats a row instead of {constant:.3g}; either the inputs tell little about the target, or "
            f"{size:,} rows do not outweigh the noise of the weights: "
            f"{colder if model.has_classes else 'take laplace(), or lamu.fit_table of the same rows'}",
            Underfit,
            stacklevel=3,
        )
    if may_overfit and share > _NEARLY:
        warnings.warn(
            f"{share:.3%} of the variance of the training rows, {size:,}, is explained by a network of more weights, "
            "and the noise is learned as a point from the rest; unless the target is nearly free of noise, intervals "
            "are too narrow: give validation=0.1, whose best state is kept, or take laplace()",
            Overfit,
            stacklevel=3,
        )


def _noise_is_of_a_point(fit: Fit, size: int) -> bool:
    """Whether the noise was learned around one set of weights, or several, that are more than the rows."""
    belief, frozen = fit.posterior.belief, fit.posterior.model.frozen  # frozen by what took a trained network further
    if not is_certain(belief) and frozen is None:
        return False
    params = jax.eval_shape(lambda belief: belief.draws(jax.random.key(0), 1), belief)
    weights = sum(leaf.size for leaf in jax.tree.leaves((params["network"], frozen)))
    return bool(jax.tree.leaves(params["likelihood"])) and weights >= size


def _constant_loss(y: np.ndarray, weight: np.ndarray, model: Model) -> float | None:
    """Returns the mean negative log density of the shares of classes, or of a normal law of numbers; else None."""
    if model.has_classes:
        share = np.bincount(model.support.numbers(y).astype(int), weight) / weight.sum()
        return float(-np.sum(share * np.log(np.where(share > 0, share, 1.0)))) or None
    if not model.support.affine:
        return None
    variance = np.average((y - np.average(y, weights=weight)) ** 2, weights=weight)
    return float(0.5 * np.log(2 * np.pi * np.e * variance)) if variance > 0 else None
