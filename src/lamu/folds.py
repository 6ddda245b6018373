r"""Cross-validation ensembles: each member is fitted to all rows but one fold, which decides when it stops.

\[ q(\theta) = \frac1K \sum_{k=1}^K q_k(\theta), \qquad q_k \text{ from the rows outside fold } k \]

Validation costs rows, and on a small table the held-out rows are too few to judge by. Here K − 1 members are fitted to
each row and the remaining one is validated on it: the mean out-of-fold negative log density is an estimate of the
members' error from all N rows. It also chooses the prior's scale where that is to be learned.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import numpy as np

from lamu import memory, tree
from lamu.algorithms.ensembles.deep_ensemble import pooled
from lamu.algorithms.optimisers import adam
from lamu.base.choose import all_of, choose
from lamu.base.compile_once import compiled_once
from lamu.convergence import Underfit, WorseThanMean
from lamu.data.arrays import Arrays
from lamu.data.copies import copies_together
from lamu.data.splits import folds_of, num_groups, require_folds
from lamu.likelihoods import Likelihood
from lamu.loop import fit
from lamu.model import Model
from lamu.networks import Standardised
from lamu.posterior import Posterior
from lamu.priors import LearnedNormal
from lamu.protocol import Algorithm
from lamu.rate import Annealed
from lamu.running.checkpoints import of_part
from lamu.running.conclusion import Fit
from lamu.running.progress import SeveralRuns
from lamu.running.training_fit import constant_of
from lamu.supports import value_of
from lamu.target import require_target, training_rows
from lamu.typing import Array, Data, Options, Params

__all__ = [
    "FoldedFit",
    "centred",
    "default_length",
    "epochs_of",
    "fit_folds",
    "folds_for",
    "folds_of",
    "in_units",
    "num_fits",
    "unit_about",
]

# Defaults for the training of members. None of these was tuned.
_WIDTHS = (1.0, 2.0, 0.5)  # factors of the prior's own scale that are tried
_ENOUGH_ROWS = 1000  # rows from which one fold alone judges the scales; with fewer rows all folds judge
_FOLDS = 5
_FEW = 8  # rows on which a bias is recognised
_RATE = 0.01  # Adam's initial rate, which falls to zero
_BATCH, _STEPS, _FEWEST_EPOCHS, _MOST_EPOCHS = 64, 3000, 30, 500  # epochs for about so many steps


@dataclass(frozen=True)
class FoldedFit:
    """Result of `fit_folds`.

    Attributes:
        posterior: the ensemble.
        fits: the fit of each member.
        nll: each fold's negative log predictive density under the member not fitted to it, in nats a row.
        scales: the prior scales tried, with the mean of `nll` under each, folds weighted by the weights of their rows;
            empty where the scale is given.
        held: the row numbers of each fold.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("iris")
        >>> model = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Categorical(3)).standardised(x, y)
        >>> found = lamu.fit_folds(model, (x, y), lamu.algorithms.adam(1e-2), folds=2, epochs=20)
        >>> len(found.fits), found.nll.shape
        (2, (2,))
    """

    posterior: Posterior
    fits: tuple[Fit, ...]
    nll: np.ndarray
    scales: dict[float, float]
    held: tuple[np.ndarray, ...] = ()


def fit_folds(
    model: Model,
    data: Data,
    algorithm: Algorithm | None = None,
    *,
    folds: int | None = None,
    seed: int = 0,
    checkpoint: object = None,
    **options: Any,
) -> FoldedFit:
    r"""Fits an algorithm once for each fold of the data and pools the members into an ensemble.

    With the prior `LearnedNormal` the scales s, 2s and s/2 are compared by their out-of-fold density (on one fold
    alone, where that has a thousand rows or more), and the best one is taken. Where the target is not standardised
    (counts, positive numbers, classes), a bias that adds to the network's outputs starts at the best constant.

    Args:
        model: network, likelihood and prior. Scaling (`standardised`) is the model's, hence common to all members.
        data: `(x, y)`, or a mapping with `x`, `y` and, optionally, `weight`, `offset`, `mask` and `groups`; with
            groups, such as the patient of each row, all rows of a group are in one fold. With `time` instead, the time
            of each row, each fold is a block of successive times.
        algorithm: the algorithm of each member. By default that of `lamu fit`: Adam with a rate that falls from 0.01,
            and, unless `epochs` or `steps` are given, for about three thousand steps and at most 500 epochs, stopped
            after a fifth of the epochs without a better validation.
        folds: K; None for five, and fewer where there are not two rows, or not one group, for each.
        seed: of the folds; the seed of member k is this plus k.
        checkpoint: a folder, or `lamu.Checkpoints`, in which each member has its own folder of checkpoints; with
            `resume=True` finished members are not run again, and the result is the same.
        **options: further options of `lamu.fit`, for instance `epochs`, `batch_size` and `stop`.

    Returns:
        The ensemble's posterior, the members' fits, and the scores of the folds.

    Raises:
        ValueError: for fewer than two folds, more folds than rows or groups, or an option that does not apply to folds.
        KeyboardInterrupt: if a member is stopped from the keyboard; no further member is started.

    Source: Krogh & Vedelsby (1995), cross-validation ensembles; Lakshminarayanan, Pritzel & Blundell (2017).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.MLP((16,)), lamu.likelihoods.Gaussian()).standardised(x, y)
        >>> found = lamu.fit_folds(model, (x, y), epochs=40, stop=10)
        >>> lamu.scores.nll(found.posterior.predict(x), y) < 5.6
        True
    """
    if "validation" in options:
        validation = options["validation"]
        raise ValueError(f"validation={validation!r} is determined by the folds here; leave it out, or use fit")
    require_target(model)
    model = model.named(data)
    with memory.within(options.get("max_memory")):
        rows = training_rows(model, data)
    if not isinstance(rows, Arrays):
        raise TypeError("folds are cut from rows in memory; give (x, y)")
    rows = copies_together(rows)
    if folds is None:
        folds = folds_for(rows.count, rows.groups)
    require_folds(folds, rows.count, rows.groups)
    if algorithm is None:
        algorithm = adam(Annealed(_RATE))
        if options.get("epochs") is None and options.get("steps") is None:
            options = {**default_length(rows.count, folds), **options}
    parts = folds_of(np.asarray(value_of(rows.y)), folds, seed, stratify=model.has_classes, groups=rows.groups)
    start, begun = model.start, model if options.get("epochs") == 0 else _at_constant(model, rows)

    def member(model: Model, k: int, under: str = "") -> Fit:
        fold = parts[k]
        learned = np.setdiff1d(np.arange(rows.count), fold)
        place = of_part(checkpoint, f"{under}fold-{k}")
        options_of_k = {**options, "seed": (seed + k) % 2**32, "validation": rows.take(fold), "checkpoint": place}
        with warnings.catch_warnings():
            for category in (Underfit, WorseThanMean):
                warnings.simplefilter("ignore", category)  # it is the pool that predicts
            member_fit = fit(model, rows.take(learned), algorithm, **options_of_k)
        if member_fit.interrupted:  # stopping a member stops the ensemble: a part of it would be another result
            raise KeyboardInterrupt
        posterior = member_fit.posterior
        return replace(member_fit, posterior=replace(posterior, model=replace(posterior.model, start=start)))

    runs = num_fits(rows.count, folds, isinstance(model.prior, LearnedNormal))
    with SeveralRuns(runs, options.get("progress"), "folds", at_most=options.get("stop") is not None):
        chosen, scales = _chosen(begun, parts, member, np.asarray(rows.weight, float))
        fits = chosen or [member(begun, k) for k in range(folds)]
    posterior = pooled([each.posterior for each in fits], fits[0].posterior.key)
    return FoldedFit(posterior, tuple(fits), np.array([_nll(each) for each in fits]), scales, tuple(parts))


def folds_for(rows: int, groups: object = None) -> int:
    """Returns the default of K: five, and fewer where there are not two rows, or not one group, for each.

    Args:
        rows: the number of rows of all folds.
        groups: the group of each row; None if rows are independent.

    Examples:
        >>> from lamu.folds import folds_for
        >>> folds_for(100), folds_for(6)
        (5, 3)
    """
    return max(2, min(_FOLDS, rows // 2 if groups is None else num_groups(groups, rows)))


def num_fits(rows: int, folds: int, learned: bool) -> int:
    """Returns the number of fits that `fit_folds` makes.

    Args:
        rows: the number of rows of all folds.
        folds: K.
        learned: whether the scale of the prior is chosen.

    Examples:
        >>> from lamu.folds import num_fits
        >>> num_fits(100, 5, learned=True), num_fits(100, 5, learned=False), num_fits(10_000, 5, learned=True)
        (15, 5, 7)
    """
    if not learned:
        return folds
    judging = _num_comparing_folds(-(-rows // folds), folds)
    return len(_WIDTHS) * judging + folds - judging


def default_length(rows: int, folds: int) -> Options:
    """Returns the default length of the members' runs, as options of `lamu.fit`.

    Args:
        rows: the number of rows of all folds.
        folds: K.

    Examples:
        >>> from lamu.folds import default_length
        >>> default_length(1000, folds=5)
        {'batch_size': 64, 'epochs': 231, 'stop': 46}
    """
    epochs = epochs_of(rows * (1 - 1 / folds))
    return {"batch_size": _BATCH, "epochs": epochs, "stop": max(10, epochs // 5)}


def epochs_of(rows: int | float) -> int:
    """Returns the number of epochs for three thousand steps, between thirty and five hundred.

    Args:
        rows: the number of training rows.

    Examples:
        >>> from lamu.folds import epochs_of
        >>> epochs_of(900)
        200
    """
    return min(max(math.ceil(_STEPS / math.ceil(rows / _BATCH)), _FEWEST_EPOCHS), _MOST_EPOCHS)


def _chosen(
    model: Model, parts: Sequence[np.ndarray], member: Any, weight: np.ndarray
) -> tuple[list[Fit], dict[float, float]]:
    """Returns the members under the best scale of the prior; the members as they are where it is not learned."""
    prior = model.prior
    if not isinstance(prior, LearnedNormal):
        return [], {}
    folds = _num_comparing_folds(len(parts[0]), len(parts))
    counts = [weight[part].sum() for part in parts[:folds]]
    fits: dict[float, list[Fit]] = {}

    def of_folds(scale: float, numbers: range) -> list[Fit]:
        return [member(replace(model, prior=prior.at(scale)), k, f"scale-{scale:g}-") for k in numbers]

    def nll(scale: float) -> float:
        fits[scale] = of_folds(scale, range(folds))
        return float(np.average([_nll(each) for each in fits[scale]], weights=counts))

    choice = choose(nll, all_of, [float(prior.start) * factor for factor in _WIDTHS]).finite("scale")
    return [*fits[choice.best], *of_folds(choice.best, range(folds, len(parts)))], choice.losses


def _num_comparing_folds(rows_of_fold: int, folds: int) -> int:
    """Returns the number of folds that compare the scales: one with enough rows, or all."""
    return 1 if rows_of_fold >= _ENOUGH_ROWS else folds


def _nll(member: Fit) -> float:
    return float(np.min(member.history["validation_nll"], initial=math.inf))


# Adam's steps are at most as long as its rate, so that an output bias that starts at zero would need two thousand steps
# to a log mean of seven. A target that is standardised has the constant zero already.


def _at_constant(model: Model, rows: Arrays) -> Model:
    """Returns the model whose runs start at the best constant outputs, where a bias adds to the outputs."""
    if model.trained or model.support.affine:
        return model
    few, all_rows = rows.example(min(rows.count, _FEW)), rows.example(rows.count)
    params, state = compiled_once()(lambda seed, batch: model.init(jax.random.key(seed), batch))(np.uint32(0), few)
    outputs = compiled_once()(lambda params: model.outputs(params, state, few.x)[0])
    before, level, unit = np.asarray(outputs(params)), 0.0, 1.0
    if isinstance(model.network, Standardised):
        level, unit = model.network.constants
    shift = np.arange(1.0, before.shape[-1] + 1)

    def moved(which: str) -> Params:
        add = lambda path, leaf: leaf + shift.reshape(leaf.shape).astype(leaf.dtype) if path == which else leaf
        return {**params, "network": tree.map_with_path(add, params["network"])}

    is_bias = lambda path, leaf: (
        leaf.shape in ((), shift.shape)
        and leaf.size == shift.size
        and np.allclose(np.asarray(outputs(moved(path)) - before) / unit, shift, atol=1e-3)
    )
    biases = [path for path, leaf in tree.by_path(params["network"]).items() if is_bias(path, leaf)]
    if not biases:
        return model
    intercept, dispersions = constant_of(model.likelihood, replace(all_rows, x=None))
    intercept = (intercept - level) / unit
    # Stopped early, a linear model is then between the constant and its optimum, and not near random slopes.
    fresh = np.zeros_like if model.network.linear else lambda leaf: None
    first = lambda path, leaf: intercept.reshape(leaf.shape) if path == biases[-1] else fresh(leaf)
    network = tree.map_with_path(first, params["network"])
    return model.starting_at({"network": network, "likelihood": dispersions}, jax.tree.map(lambda _: None, state))


def centred(model: Model, data: Data) -> Model:
    """Returns a standardised model whose outputs are deviations from the best constant ones.

    A prior about zero is then one about that constant, and one of scale one allows for steps of about one in the log of
    the mean under every link of a positive mean (`Likelihood.output_units`). A model whose target is standardised is so
    already, and is returned as it is.

    Args:
        model: a model of `Model.standardised`.
        data: its training rows.

    Examples:
        >>> import lamu, numpy as np
        >>> from lamu.folds import centred
        >>> x, y = np.arange(4.0)[:, None], np.array([999, 1000, 1001, 1000])
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Poisson()).standardised(x, y)
        >>> centred(model, (x, y)).network.level.round(1).tolist()
        [6.9]
    """
    if model.support.affine:
        return model
    rows, network = model.rows(data), cast("Standardised", model.network)
    intercept, _ = constant_of(model.likelihood, replace(rows.example(rows.count), x=None))
    return replace(model, network=replace(network, level=intercept, unit=unit_about(model.likelihood, intercept)))


def unit_about(likelihood: Likelihood, level: np.ndarray) -> np.ndarray | None:
    """Returns the units of outputs about a level, None where all are one."""
    unit = np.asarray(_units(likelihood, level))
    return None if (unit == 1).all() else unit


@compiled_once()
def _units(likelihood: Likelihood, level: Array) -> Array:
    return likelihood.output_units(level)


def in_units(model: Model, data: Data) -> Model:
    """Returns the model of `centred` under a link whose outputs have a unit, and any other model as it is.

    Args:
        model: a model of `Model.standardised`.
        data: its training rows.

    Examples:
        >>> import lamu, numpy as np
        >>> from lamu.folds import in_units
        >>> x, y = np.arange(4.0)[:, None], np.array([399, 400, 401, 400])
        >>> roots = lamu.likelihoods.Poisson(lamu.likelihoods.links.SquareRoot())
        >>> model = lamu.Model(lamu.networks.Linear(), roots).standardised(x, y)
        >>> network = in_units(model, (x, y)).network
        >>> network.level.round().tolist(), network.unit.round().tolist()
        ([20.0], [10.0])
    """
    if model.support.affine:
        return model
    zeros = np.zeros(model.likelihood.outputs(model.rows(data).y))
    return model if unit_about(model.likelihood, zeros) is None else centred(model, data)
