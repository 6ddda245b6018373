"""Stacking for tables: small models and networks over folds, mixed by their densities of held-out rows."""

# \[ q(\theta) = \sum_c w_c \frac1K \sum_{k=1}^K \delta(\theta - \theta_{ck}), \qquad
#    w = \arg\max_{w \in \Delta} \sum_i \log \sum_c w_c\, p(y_i \mid x_i, \theta_{c k(i)}) \]
#
# \(\theta_{ck}\) is candidate c trained without fold k, and k(i) the fold of row i, so that the weights are chosen by
# densities of held-out rows. With few rows linear and additive models get most of the weight, with many rows networks.

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from lamu import memory, tree
from lamu.base.compile_once import compiled_once
from lamu.composition import stacking_weights
from lamu.data.arrays import Arrays, warn_of_scale
from lamu.data.batch import Batch
from lamu.data.copies import cases
from lamu.data.inputs import one_hot
from lamu.data.splits import require_folds
from lamu.data.stream import column_names
from lamu.families import Ensemble, Point
from lamu.folds import folds_for, folds_of, unit_about
from lamu.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian, Likelihood, Scaled
from lamu.likelihoods.table import LIKELIHOODS
from lamu.model import Model, offset_per_output, one_a_row
from lamu.networks import Columns, KernelFeatures, Standardised, TableNetwork
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.running.checkpoints import Checkpoints, described, of_part, rows_described
from lamu.running.conclusion import warn_constant
from lamu.running.progress import Progress
from lamu.running.training_fit import constant_of
from lamu.supports import value_of
from lamu.tabular.candidates import Candidate, candidates_for, candidates_to_continue, sharpened
from lamu.tabular.training import (
    TRACING,
    FoldRows,
    Members,
    Path,
    Stretches,
    row_order,
    rows_padded,
    stretches_kept,
    train,
    trainings,
)
from lamu.tabular.truncated import Truncated, logit_factor, noise_factor, untruncated_weight
from lamu.typing import Array, Inputs, Params, Targets

__all__ = ["StackedFit", "describe_fits", "fit_table"]

# Settings of the mixture. On development splits these were compared: averages along a stretch (held-out nll of
# concrete 3.11 to 2.87), early stopping in a mixture with the linear candidate (concrete 2.711 to 2.583, wine_red .874
# to .805; weights other than .3 were not tried), and truncation by its posterior probability. The network, its rate,
# its batches, the lengths and the pull were chosen together with the candidates and not tuned one by one.
_WIDTHS, _ACTIVATION = (64, 64), "silu"  # of the networks
_STRETCHES, _BATCH, _RATE = 15, 128, 0.01  # possible stopping points of a member; rows a step; Adam's peak rate
_STEPS, _ROWS_A_STEP = (990, 1500, 2250, 3000), 1.5  # few lengths, so that tables share compiled programs
_KERNEL_ROWS = 20_000  # with more rows networks predict better than a kernel on few landmarks
_ENCODED = 2**26  # numbers (256 MB in single precision): the largest table that is encoded once before training
_NEGLIGIBLE = 0.01  # candidates with smaller weights are dropped
_JUDGES = 20_000  # held-out rows of all folds together for early stopping, the weights and the last factor
_PASSES = 2  # the least number of passes over the rows of a fold
_LARGE = 2**17  # rows from which on batches are twice as large
_COMPANY = 0.3  # the weight of the linear candidate when another one's stretch is chosen
_UNTRUNCATED = 0.49  # from here on the rows have no information about targets below zero
_FEW = 4  # rows; with fewer the noise is hardly determined
_PULL = 1.0  # the strength of the regularisation towards equal weights, in rows


@dataclass(frozen=True)
class StackedFit:
    """Result of `fit_table`.

    Attributes:
        posterior: the mixture.
        weights: the weight of each candidate by its name; they sum to one.
        nll: each candidate's negative log density of held-out rows, in nats a row; for one that stopped after its first
            fold, on that fold.
        stacked_nll: that of the mixture, at weights that were chosen by the same rows, before the factor of the noise
            or of the logits.
        folds: the number of folds.
        steps: the number of steps of every member.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("iris")
        >>> found = lamu.fit_table(x, y, lamu.likelihoods.Categorical(3), folds=2, steps=30)
        >>> round(sum(found.weights.values()), 6), len(found.nll)
        (1.0, 7)
    """

    posterior: Posterior
    weights: dict[str, float]
    nll: dict[str, float]
    stacked_nll: float
    folds: int
    steps: int

    def __repr__(self) -> str:
        """One line: the candidates by weight, and the mixture's nll."""
        largest = sorted(self.weights.items(), key=lambda item: -item[1])
        mixed = "; ".join(f"{weight:.2f} {name}" for name, weight in largest if weight >= 0.005)
        scored = f"stacked_nll {self.stacked_nll:.4g} nats a row"
        return f"StackedFit({mixed}; {scored}, {self.folds} folds, {self.steps:,} steps)"


def fit_table(
    x: Inputs,
    y: Targets,
    likelihood: Likelihood,
    *,
    weight: object = None,
    offset: object = None,
    groups: object = None,
    time: object = None,
    levels: Sequence[int] | None = None,
    folds: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoints | None = None,
    resume: bool = False,
) -> StackedFit:
    r"""Fits candidate models for a table over folds, and mixes them by their densities of held-out rows.

    The candidates are a generalised linear model, a generalised additive model of piecewise-linear functions, a
    Gaussian process on the features of a kernel under priors of two scales (20,000 rows at most), a network of two
    layers of 64 plus the linear path, and such networks that also get the piecewise-linear encoding, plus the additive
    path, under priors of two scales. The likelihood `Gaussian()` becomes `HeteroscedasticGaussian()`: linear and
    additive candidates are fitted with constant and with row-dependent noise, the others with the latter.
    Members take `steps` gradients of 128 rows (of 256, from 131,072 rows on), all smaller ones in one compiled program.
    Networks with the piecewise-linear encoding train on the first fold before the others; one that clearly does not
    improve the mixture's predictions of that fold's rows stops there. If a fold has more than 20,000 / K rows, its
    members are evaluated on a random sample of that size. Memory is then a copy of the rows and the row numbers of
    every step. Finally one factor, from held-out rows, scales a Gaussian's noise or multiplies the logits of classes.
    If all targets are positive, the noise is truncated at zero with the probability that held-out rows give to it.
    The weight of a column with one value in all rows has a prior and no data: of the members of the folds it is a
    quantile of N(0, 1) each, so that another value widens predictions by about one standardised target.

    Args:
        x: training inputs, numbers and codes of categories, `[N, D]`: an array, or a frame of pandas or polars, whose
            columns predictions then find by name.
        y: training targets, `[N]`.
        likelihood: p(y | f), in the units of y; a likelihood of all real numbers is scaled by the targets.
        weight: the weight of each row, `[N]`; ones where None. A weight of two is the likelihood's second power, and a
            row with weight zero is omitted. A row is in one fold with its weight, unless it is a cell of a table of
            frequencies (half or more of the rows have the features of a row with another target): there integer weights
            count cases, which may be in different folds (if there are more than 100,000, fewer with larger weights).
            Repeated rows of `x` and `y` are in one fold too if they are more than a fifth of the rows.
            Weights whose sum is far from the number of
            rows are used unchanged, with a warning (`lamu.data.UnscaledWeights`).
        offset: the log of each row's exposure, `[N]`, for a likelihood with a log link, such as `Poisson()`: every
            candidate models the log rate. Predictions take new offsets, `posterior.predict(x, offset=...)`, and have an
            exposure of one without.
        groups: the group of each row, `[N]`, numbers or words, where the rows of one (a patient, a shop, a day) are
            alike: all of them are in one fold, so that the mixture is chosen, and its noise measured, by rows of other
            groups. None if rows are independent: then candidates that recognise a group's rows are preferred, and
            intervals are too narrow for a new group.
        time: the time of each row, `[N]`, numbers or dates, where later rows are to be predicted: each fold is then a
            block of successive times, so that the mixture is chosen, and its noise measured, by rows that are no
            neighbours of training rows. It is no input: make its age a column of `x` for a trend. None if rows have no
            order: then rows are predicted from those before and after, and intervals are too narrow for later rows
            where the level or the effects drift. Not with `groups`.
        levels: one integer a column, 0 for a number and K for codes 1 to K; None where all are numbers.
        folds: K; None for five, and fewer where there are not two rows, or not one group, for each.
        steps: the number of steps of every member, a multiple of fifteen; None for two steps for three rows, rounded
            up to 990, 1,500, 2,250 or 3,000, and more where two passes over the rows of a fold need more.
        seed: the seed of folds, initial parameters and orders.
        progress: whether to show progress; if None, where standard error is a terminal.
        checkpoint: a folder for checkpoints, which are written at most every 30 seconds and at an interruption; or
            `lamu.Checkpoints`; or None.
        resume: whether to continue from the last checkpoint, if there is one: the result is the same as without the
            interruption.

    Returns:
        The posterior, the candidates' weights and their held-out scores.

    Raises:
        ValueError: for fewer than two folds or more folds than rows, groups or times, both `groups` and `time`, fewer
            than fifteen steps, data outside of the likelihood's support, an offset for a likelihood without a log link,
            more rows than fit in `lamu.memory.limit()`, a checkpoint of another fit, or an existing checkpoint without
            `resume`.

    Warns:
        UserWarning: for a `Gaussian()` with two or three rows, or with targets that do not vary.

    Source: Yao, Vehtari, Simpson & Gelman (2018), for the weights; Guo, Pleiss, Sun & Weinberger (2017), for one
    temperature; Williams & Seeger (2001), for the kernel; Gorishniy, Rubachev & Babenko (2022), for the
    encoding; Krogh & Vedelsby (1995), for ensembles over folds.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> found = lamu.fit_table(x, y, lamu.likelihoods.Gaussian(), folds=2, steps=150)
        >>> lamu.scores.nll(found.posterior.predict(x), y) < 5.6
        True
    """
    if not isinstance(likelihood, Likelihood):
        named = isinstance(likelihood, str) and likelihood in LIKELIHOODS
        call = repr(LIKELIHOODS[likelihood][1](3)) if named and likelihood != "gaussian" else "Gaussian()"
        way = f"write lamu.likelihoods.{call}" if named else f"give one of lamu.likelihoods, for instance {call}"
        raise TypeError(f"the likelihood is {likelihood!r}; {way}")
    names = column_names(x)
    rows = Arrays.of({"x": x, "y": y, "weight": weight, "offset": offset, "groups": groups, "time": time})
    rows = replace(rows, y=one_a_row(likelihood, rows.y))
    if rows.offset is not None:
        width = likelihood.outputs(rows.y)
        if likelihood.output_scales(width)[0] != "log means":
            raise ValueError(
                f"the offset of {likelihood.name} is not the log of an exposure, as its f is not a log mean; give a "
                "likelihood with a log link, for instance Poisson(), or take lamu.regression(x, y, offset=offset)"
            )
        rows = replace(rows, offset=offset_per_output(likelihood, rows.offset, width))
    warn_of_scale(rows.weight)
    rows = cases(rows)
    likelihood.check_training(np.asarray(rows.y))
    count = rows.count
    if count < 2:
        raise ValueError(
            "a table of 1 row has none left to judge by; give at least two, or take lamu.regression(x, y), whose "
            "intervals need no held-out row"
        )
    if count < _FEW and _varies(likelihood):
        warnings.warn(
            f"{count} rows hardly determine their noise, and the intervals of this table may be far too wide or "
            "too narrow; give more rows, or take lamu.regression(x, y), which integrates over the noise",
            UserWarning,
            stacklevel=2,
        )
    if _varies(likelihood):
        warn_constant(np.asarray(rows.y), "the intervals of this table have no width; take lamu.regression(x, y)")
    folds = folds_for(count, rows.groups) if folds is None else folds
    require_folds(folds, count, rows.groups)
    if steps is None:
        steps = _steps_for(count, folds)
    if steps < _STRETCHES:
        raise ValueError(f"steps={steps!r} are too few to stop at the best of {_STRETCHES} places; give more")
    steps -= steps % _STRETCHES
    if resume and checkpoint is None:
        raise ValueError("resume=True needs the folder to go on from; give checkpoint=folder")
    settings = {"likelihood": described(likelihood), "levels": levels, "folds": folds, "steps": steps, "seed": seed}
    run = {} if checkpoint is None else {"rows": rows_described(rows), **{k: str(v) for k, v in settings.items()}}
    likelihood, means = _scaled(likelihood, np.asarray(rows.y), np.asarray(rows.weight, float))
    weighed = np.asarray(rows.weight, float)
    columns = Columns.of(
        np.asarray(rows.x), None if levels is None else tuple(levels), weight=None if (weighed == 1).all() else weighed
    )
    if levels is None:  # else the columns of categories are known
        columns = replace(columns, one_hot=tuple(map(tuple, one_hot(list(np.asarray(rows.x).T)))))
    _require_room(rows, folds, steps)
    table = _Table.of(rows, likelihood, means, folds, steps, seed)
    full = table.batch
    numbers = count * (columns.smooth_width + columns.piece_count)
    ahead = numbers <= _ENCODED and numbers * full.mask.dtype.itemsize <= memory.limit() // 2
    network = TableNetwork(columns, _WIDTHS, _ACTIVATION)
    hidden, hidden_training, smooth = network, full, None
    plain, plain_training = network, full
    if ahead:
        hidden, readings = network.encode(full.x)
        hidden_training = replace(full, x=readings)
        # Products with the piecewise-linear encoding would be most of the operations, even with weights fixed at zero.
        plain = replace(hidden, columns=replace(hidden.columns, piece_count=0))
        plain_training = replace(full, x=np.asarray(readings)[:, : columns.smooth_width])
        if count <= _KERNEL_ROWS:
            smooth = plain_training.x[:count]
    small, large = candidates_for(varying=means is not None, kernels=smooth is not None)
    without, costly = ([each for each in large if each.pieces is pieces] for pieces in (False, True))
    fits = {"small": len(small) * folds, "networks": len(without) * folds}
    fits |= {_part(each, k): 1 for each in costly for k in range(folds)}
    kept = {part: stretches_kept(of_part(checkpoint, part), run, resume) for part in fits}
    kinds = f"{len(small) * folds} smaller models and {len(large) * folds} networks"
    with Progress(steps, progress, kinds) as bar, trainings(_learn, kept, fits, steps, bar) as threads:
        pieces = {each: table.plan(hidden, hidden_training, [each]) for each in costly}
        opening = threads.start({_part(each, 0): plan.member(0) for each, plan in pieces.items()})
        networks = threads.start({"networks": table.plan(plain, plain_training, without)} if without else {})
        kernel = None if smooth is None else _kernel(smooth, rows, likelihood)
        flat, training = replace(network, widths=(), kernel=kernel), hidden_training
        with TRACING:
            if ahead:
                flat, readings = flat.encode(full.x)
                training = replace(full, x=readings)
            plan = table.plan(flat, training, small)
        others = threads.start({"small": plan})
        paths = dict(zip(small, others.result()[0].split(len(small)), strict=True))
        paths |= dict(
            zip(without, [part for path in networks.result() for part in path.split(len(without))], strict=True)
        )
        opened = dict(zip(costly, opening.result(), strict=True))
        first = replace(table, judges=table.judges[:1])
        judged = first.found({**{each: path.split(folds)[0] for each, path in paths.items()}, **opened})
        of_costly = range(len(paths), len(judged))
        of_judges = None if rows.groups is None else np.asarray(rows.groups)[first.judges[0]]
        continued = candidates_to_continue(_stacked(judged), of_costly, first.counts, _PULL, of_judges)
        going = [judged[each].candidate for each in continued]
        threads.leave_out(_part(each, k) for each in costly if each not in going for k in range(1, folds))
        rest = {
            each: [threads.start({_part(each, k): pieces[each].member(k)}) for k in range(1, folds)] for each in going
        }
        for each, futures in rest.items():
            paths[each] = Path.joined([opened[each], *(future.result()[0] for future in futures)])
    candidates = table.found({each: paths[each] for each in (*small, *large) if each in paths})
    stopped = [each for each in judged if each.candidate not in paths]
    densities = _stacked(candidates)
    weights = stacking_weights(densities, _PULL, table.counts)
    kept = weights >= _NEGLIGIBLE
    weights = np.where(kept, weights, 0.0) / weights[kept].sum()
    mean = lambda densities: float(np.average(densities, weights=table.counts))
    nll = -mean(np.logaddexp.reduce(densities[:, kept] + np.log(weights[kept]), axis=1))
    best = candidates[int(np.argmax(weights))]
    if any(each.candidate.kernel for each in np.array(candidates, object)[weights > 0]):
        network = replace(network, kernel=kernel)
    model = replace(table.model(network, full.x), prior=best.candidate.prior(network), columns=names)
    members = _members(model, candidates, weights, full)
    if columns.constant.any():
        members = _drawn_from_prior(members, columns, folds, means, seed)
    read = replace(flat, widths=_WIDTHS) if network.kernel is not None else hidden
    batch = training if network.kernel is not None else hidden_training
    evaluated_rows = table.y, table.fold, weights[weights > 0], table.counts
    if means is not None and isinstance(likelihood, Scaled):
        outputs = table.outputs(read, members, batch)
        model = replace(model, likelihood=_with_noise(likelihood, outputs, evaluated_rows))
    elif isinstance(likelihood, Categorical) or likelihood == Bernoulli():
        outputs = table.outputs(read, members, batch)
        members = sharpened(members, logit_factor(outputs.astype(float), *evaluated_rows))
    log_weights = np.repeat(np.log(weights[weights > 0] / folds), folds).astype(full.mask.dtype)
    belief = jax.device_put(Ensemble(Point(members), log_weights))
    posterior = Posterior(model, belief, {}, Sampled(), jax.random.key(seed))
    return StackedFit(
        posterior,
        {each.candidate.name: weight for each, weight in zip(candidates, weights.tolist(), strict=True)}
        | {each.candidate.name: 0.0 for each in stopped},
        {each.candidate.name: -mean(each.log_density) for each in candidates}
        | {each.candidate.name: -float(np.average(each.log_density, weights=first.counts)) for each in stopped},
        nll,
        folds,
        steps,
    )


def _kernel(smooth: np.ndarray, rows: Arrays, likelihood: Likelihood) -> KernelFeatures:
    """Returns kernel features of the smooth encoding, with a length-scale chosen by the targets."""
    y = np.asarray(value_of(rows.y), float).reshape(rows.count, -1)
    if rows.offset is not None:  # rates
        y = y * np.exp(-np.asarray(rows.offset, float).reshape(rows.count, -1)[:, :1])
    targets = (y == np.unique(y)[None]).astype(float) if likelihood.support.has_classes else y
    return KernelFeatures.of(smooth, targets)


def describe_fits(likelihood: Likelihood, count: int, folds: int) -> str:
    """Returns a sentence on the default number and length of the fits of `fit_table`."""
    groups = candidates_for(varying=_varies(likelihood), kernels=count <= _KERNEL_ROWS)
    small, large = map(len, groups)
    steps = _steps_for(count, folds)
    fits, steps = (small + large) * folds, steps - steps % _STRETCHES
    kinds = f"{small} linear, additive and kernel models and {large} networks"
    return f"{fits} fits at most of {steps:,} steps each: {kinds}, over {folds} folds"


def _varies(likelihood: Likelihood) -> bool:
    """Whether candidates have noise that may depend on the row."""
    return isinstance(likelihood, HeteroscedasticGaussian) or (
        isinstance(likelihood, Gaussian) and likelihood == Gaussian()
    )


@dataclass(frozen=True)
class _Found:
    """A candidate after training."""

    candidate: Candidate
    params: Params  # its members' parameters at the best stretch, leaves `[folds, ...]`
    log_density: np.ndarray  # of the held-out rows, fold after fold, under the member trained without them


@dataclass(frozen=True)
class _Plan:
    """The inputs of a training: all candidates of one architecture."""

    model: Model  # network and likelihood
    members: Members  # every candidate over all folds
    rows: FoldRows  # the training rows and the held-out rows of each fold
    batch: Batch  # all rows

    def member(self, number: int) -> _Plan:
        """Returns the plan of one member, if there is one a fold."""
        of = lambda tree: jax.tree.map(lambda leaf: leaf[number : number + 1], tree)
        return replace(self, members=of(self.members), rows=of(self.rows))


def _learn(plan: _Plan, count: Callable[[int], None], kept: Stretches) -> Path:
    return train(plan.model, plan.members, plan.rows, plan.batch, _STRETCHES, _RATE, count, kept)


def _part(candidate: Candidate, fold: int) -> str:
    """Returns the name of a member's checkpoints."""
    return f"{candidate.name.replace(', ', '-').replace(' ', '-')}-{fold}"


def _stacked(candidates: Sequence[_Found]) -> np.ndarray:
    return np.stack([each.log_density for each in candidates], axis=1)


@dataclass(frozen=True)
class _Table:
    """The rows of a table, with the training rows and the held-out rows of each fold."""

    batch: Batch  # all rows, padded
    likelihood: Likelihood  # in the units of standardised targets
    means: int | None  # the number of outputs that are means, if not all
    rows: FoldRows
    judges: list[np.ndarray]  # the numbers of the held-out rows of each fold
    seeds: np.ndarray  # for the initial parameters of each fold

    @classmethod
    def of(cls, rows: Arrays, likelihood: Likelihood, means: int | None, folds: int, steps: int, seed: int) -> _Table:
        batch, size = rows.example(rows_padded(rows.count)), _batch_of(rows.count)
        y = np.asarray(value_of(rows.y))
        parts = folds_of(y, folds, seed, stratify=likelihood.support.has_classes, groups=rows.groups)
        judges = [rows_to_evaluate(part, folds, seed + k) for k, part in enumerate(parts)]
        learned = [np.setdiff1d(np.arange(rows.count), part) for part in parts]
        order = np.stack([row_order(part, steps, size, seed + k) for k, part in enumerate(learned)])
        held_rows = np.stack([np.resize(part, rows_padded(max(map(len, judges)))) for part in judges])
        of_folds = FoldRows(order, held_rows.astype(np.int32), np.array([*map(len, learned)], batch.mask.dtype))
        seeds = np.array([(seed + k) % 2**32 for k in range(folds)], np.uint32)
        return cls(batch, likelihood, means, of_folds, judges, seeds)

    @cached_property
    def counts(self) -> np.ndarray:
        """The weights of the held-out rows, fold after fold."""
        return np.asarray(self.batch.weight, float)[np.concatenate(self.judges)]

    @cached_property
    def y(self) -> np.ndarray:
        """The targets of the held-out rows."""
        return np.asarray(self.batch.y)[np.concatenate(self.judges)]

    @cached_property
    def fold(self) -> np.ndarray:
        """The fold of every held-out row."""
        return np.repeat(np.arange(len(self.judges)), [*map(len, self.judges)])

    @cached_property
    def constant(self) -> tuple[np.ndarray, Params]:
        """The best outputs and dispersions of a model without inputs."""
        return constant_of(self.likelihood, self.batch)

    def model(self, network: TableNetwork, x: Any) -> Model:
        """Returns the model of an architecture, about the constant where its outputs have a unit."""
        level, _ = self.constant
        unit = unit_about(self.likelihood, level)
        if unit is None:
            return Model(network, self.likelihood)
        shift = np.zeros(x.shape[1:], level.dtype)
        return Model(Standardised(network, shift, np.ones_like(shift), level, unit), self.likelihood)

    def plan(self, network: TableNetwork, batch: Batch, candidates: Sequence[Candidate]) -> _Plan:
        """Returns the candidates of one architecture over all folds, as NumPy arrays, which need no compilation."""
        model, folds, dtype = self.model(network, batch.x), len(self.seeds), batch.mask.dtype
        level, dispersions = self.constant
        constant = (level if model.network is network else np.zeros_like(level)), dispersions
        starts = _started(jax.tree.map(np.asarray, _starts(model, self.seeds, batch)), constant)
        like = jax.tree.map(lambda leaf: leaf[0], starts["network"])
        members = [
            Members(
                starts,
                _for_each(folds, candidate.gates(network, like, self.means)),
                _for_each(folds, jax.tree.map(lambda scale: np.asarray(scale, dtype), candidate.prior(network))),
            )
            for candidate in candidates
        ]
        return _Plan(model, jax.tree.map(lambda *leaves: np.concatenate(leaves), *members), self.rows, batch)

    def found(self, paths: Mapping[Candidate, Path]) -> list[_Found]:
        """Returns the candidates at their stopping points, the linear one first, which the others are mixed with."""
        ended: list[_Found] = []
        for candidate, path in paths.items():
            ended.append(self.stopped(candidate, path, ended[0].log_density if candidate.hidden and ended else None))
        return ended

    def stopped(self, candidate: Candidate, path: Path, company: np.ndarray | None) -> _Found:
        """Returns a candidate at the stretch after which its members predict held-out rows best."""
        # The candidate will be part of a mixture, in which a bad prediction of a row costs little. It is therefore
        # evaluated in a mixture with `company`, which has a weight of 0.3.
        of_folds = [path.log_density[k, :, : len(judges)] for k, judges in enumerate(self.judges)]
        log_density = judged = np.concatenate(of_folds, axis=1)
        if company is not None:
            judged = np.logaddexp(np.log1p(-_COMPANY) + log_density, np.log(_COMPANY) + company)
        mean = np.average(judged, axis=1, weights=self.counts)
        best = int(np.argmax(np.nan_to_num(mean, nan=-np.inf, neginf=-np.inf)))
        return _Found(candidate, jax.tree.map(lambda leaf: leaf[:, best], path.params), log_density[best])

    def outputs(self, network: TableNetwork, members: Params, batch: Batch) -> np.ndarray:
        """Returns the outputs of every member at all held-out rows, `[candidates, folds, rows, outputs]`."""
        # Rows are arguments, since XLA would fold constants.
        model, x = self.model(network, batch.x), np.asarray(batch.x)[np.concatenate(self.judges)]
        each = lambda members, x: jax.lax.map(lambda params: model.outputs(params, {}, x)[0], members)
        values = np.asarray(compiled_once(over_rows=True)(each)(members, x))
        return values.reshape(-1, len(self.judges), *values.shape[1:])


# Random numbers are drawn once, and full optimisation would make compilation four times as long.
@compiled_once()
def _starts(model: Model, seeds: Array, batch: Batch) -> Params:
    """Returns the initial parameters of every fold, leaves `[folds, ...]`."""
    return jax.vmap(lambda seed: model.init(jax.random.key(seed), batch)[0])(seeds)


def _for_each(folds: int, tree: object) -> Any:
    return jax.tree.map(lambda leaf: np.broadcast_to(leaf, (folds, *leaf.shape)), tree)


def _require_room(rows: Arrays, folds: int, steps: int) -> None:
    """Raises a ValueError if the padded copy of the rows and the order of all steps exceed the limit of memory."""
    copied = sum(leaf.nbytes for leaf in jax.tree.leaves((rows, rows.weight)))
    ordered = 4 * folds * steps * _batch_of(rows.count)
    memory.demand(copied + ordered, f"the fit of {rows.count:,} rows", "take fewer rows, or allow more memory")


def _steps_for(count: int, folds: int) -> int:
    """Returns the default number of steps: two for three rows, and at least two passes over the rows of a fold."""
    passes = _PASSES * count * (folds - 1) / folds / _batch_of(count)
    steps = next((steps for steps in _STEPS if steps * _ROWS_A_STEP >= count), _STEPS[-1])
    return max(steps, int(passes))


def _batch_of(count: int) -> int:
    return 2 * _BATCH if count >= _LARGE else min(_BATCH, max(count // 4, 1))


def rows_to_evaluate(part: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Returns the rows on which a fold's members are evaluated: all of the fold, or a random sample of many."""
    most = max(_JUDGES // folds, 1)
    return part if len(part) <= most else np.sort(np.random.default_rng(seed).choice(part, most, replace=False))


def _started(params: Params, constant: tuple[Any, Params]) -> Params:
    """Returns initial parameters with intercept and dispersions of the constant model."""
    (intercept, dispersions), linear = constant, params["network"]["linear"]
    linear = {**linear, "bias": np.broadcast_to(intercept, linear["bias"].shape)}
    likelihood = _for_each(len(linear["bias"]), dispersions)
    return {"network": {**params["network"], "linear": linear}, "likelihood": likelihood}


def _members(model: Model, candidates: Sequence[_Found], weights: np.ndarray, batch: Batch) -> Params:
    """Returns the members of all candidates with a weight, leaves `[members, ...]`, with zeros for omitted parts."""
    like = jax.eval_shape(lambda: model.init(jax.random.key(0), batch)[0])
    kept = [each.params for each, weight in zip(candidates, weights, strict=True) if weight > 0]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *[_completed(each, like) for each in kept])


def _drawn_from_prior(members: Params, columns: Columns, folds: int, means: int | None, seed: int) -> Params:
    """Returns members whose weights of constant encodings are quantiles of their prior N(0, 1), one a fold."""
    # Their posterior is that prior, about which a mode at zero says nothing. The sum over folds is zero, and so is the
    # effect on rows like those of training: that of a category alone is taken from the intercept.
    from scipy.special import ndtri

    quantiles = ndtri((np.arange(folds) + 0.5) / folds)
    linear = {name: np.array(leaf) for name, leaf in members["network"]["linear"].items()}
    constant, (count, _, outputs) = np.flatnonzero(columns.constant), linear["kernel"].shape
    outputs = outputs if means is None else means
    drawn = np.empty((count // folds, folds, len(constant), outputs))
    drawn[:] = (quantiles / quantiles.std())[:, None, None]
    drawn = np.random.default_rng(seed).permuted(drawn, axis=1).reshape(count, *drawn.shape[2:])
    linear["kernel"][:, constant, :outputs] += drawn
    linear["bias"][:, :outputs] -= drawn[:, constant >= len(columns.numbers)].sum(axis=1)
    return {**members, "network": {**members["network"], "linear": linear}}


def _with_noise(likelihood: Scaled, outputs: np.ndarray, evaluated_rows: tuple[np.ndarray, ...]) -> Likelihood:
    """Returns the likelihood with the noise scale of the mixture, truncated at zero for positive targets."""
    each = jax.jit(jax.vmap(jax.vmap(lambda f: (likelihood.mean({}, f), likelihood.variance({}, f) ** 0.5))))
    mean, deviation = (np.asarray(part, float).reshape(*outputs.shape[:3], -1) for part in each(outputs))
    y, *rest = evaluated_rows
    y = np.asarray(y, float).reshape(len(y), -1)
    factor = noise_factor(mean, deviation, y, *rest)
    wide = replace(likelihood, base=HeteroscedasticGaussian(factor))
    untruncated = untruncated_weight(mean, factor * deviation, y, *rest)
    return Truncated(wide, untruncated) if untruncated < _UNTRUNCATED else wide


def _completed(params: Params, like: Params) -> Params:
    own, folds = tree.by_path(params["network"]), len(params["network"]["linear"]["bias"])

    def leaf(path: str, full_leaf: Any) -> Any:
        own_leaf = own.get(path)
        return (
            own_leaf
            if own_leaf is not None and own_leaf.shape[1:] == full_leaf.shape
            else np.zeros((folds, *full_leaf.shape), full_leaf.dtype)
        )

    return {**params, "network": tree.map_with_path(leaf, like["network"])}


def _scaled(likelihood: Likelihood, y: np.ndarray, counts: np.ndarray) -> tuple[Likelihood, int | None]:
    """Returns the likelihood for standardised targets, and the number of outputs that are means, if not all."""
    # A Gaussian with learned noise is the heteroscedastic one with a second output that does not depend on the row.
    means = Gaussian().outputs(y) if _varies(likelihood) else None
    if isinstance(likelihood, Gaussian) and means is not None:
        likelihood = HeteroscedasticGaussian()
    if not likelihood.support.affine:
        return likelihood, means
    y = y.astype(np.result_type(y, np.float32))
    average = lambda values: np.average(values, axis=0, weights=counts.astype(y.dtype))
    mean = average(y)
    deviation = np.sqrt(average((y - mean) ** 2))
    return Scaled(likelihood, mean, np.where(deviation > 0, deviation, 1.0)), means
