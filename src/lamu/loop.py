"""The training loop over `init`, `step` and `posterior`, with validation, checkpoints and progress."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory
from lamu.base.arguments import whole
from lamu.base.compile_once import all_digits, require_untraced
from lamu.batch_statistics import BatchStatistics, require_choice
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.precision import bytes_in_memory
from lamu.data.stream import Stream
from lamu.model import Model
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.priors import Belief, ByPath, Discrete, Prior
from lamu.protocol import Algorithm, Traits, require_algorithm, runnable
from lamu.running.checkpoints import Checkpoints
from lamu.running.compiled_steps import Keys, OneDevice, draw_of, handle, keys_of, start, start_quickly, whole_seed
from lamu.running.conclusion import (
    Conclusion,
    Diverged,
    Fit,
    require_trained,
    warn_few_rows,
    warn_first_guess,
    warn_one_start,
    warn_probabilities,
    warn_rare_events,
    warn_scales_apart,
    warn_seen_rows,
    warn_unconverged,
    warn_worse_than_mean,
)
from lamu.running.history import (
    Best,
    History,
    posterior_nll,
    split_validation,
    validation_nll,
)
from lamu.running.progress import Interruption, Progress
from lamu.running.resume import Resumption
from lamu.running.schedule import Block, Forecast, Length, Steps, check_memory, memory_checked
from lamu.running.training_fit import warn_pretrained_fit, warn_training_fit
from lamu.supports import value_of
from lamu.target import Target, require_target, training_rows
from lamu.typing import Data, Number, State

__all__ = ["fit"]

Callback: TypeAlias = Callable[[int, Mapping[str, float]], Any]
"""What is called after every block, with the steps done and the last entries of the history."""

_EXAMPLE_ROWS = 4096


def fit(
    model: Target,
    data: Data,
    algorithm: Algorithm,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int = 64,
    seed: int = 0,
    validation: object = None,
    stop: int | Callable[[Mapping[str, Any]], bool] | None = None,
    callbacks: Sequence[Callable[[int, Mapping[str, float]], object]] = (),
    temperature: Number = 1.0,
    likelihood_power: Number = 1.0,
    data_size: Number | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoints | None = None,
    resume: bool = False,
    progress: bool | None = None,
    max_memory: object = None,
    statistics: BatchStatistics | None = None,
    mesh: jax.sharding.Mesh | None = None,
    microbatch_size: int | None = None,
) -> Fit:
    r"""Fits a model to data by an algorithm.

    Arrays are put on the device once, reshuffled at every epoch by the seed, and read in blocks of steps that are one
    compiled scan (on a CPU a network with convolutions runs step by step, which is faster there); the last batch of an
    epoch is padded and masked. Other re-iterables of batches run step by step, in their own order. A batch size of N or
    more is the whole data, unshuffled.

    Args:
        model: the target: a `lamu.Model` (network, likelihood, prior), a `lamu.LogDensity`, or another target.
        data: `(x, y)`, a mapping with `x`, `y` and, optionally, `weight`, `offset`, `mask` and `groups` (such as
            the patient of each row: validation rows are then whole groups) or `time` (numbers or dates: they are then
            the latest), or a re-iterable of batches, which is read once more, to count them, where it has no `len` and
            rates fall over the run. A weight of two equals the row written twice, except in the statistics of batch
            normalisation, which ignores weights; weights whose sum is far from the number of rows are used as they are,
            with a warning (`lamu.data.UnscaledWeights`).
        algorithm: one of `lamu.algorithms` or `lamu.mcmc`, or one's own.
        epochs: passes over the data; 0 for the posterior of pretrained weights. Where neither epochs nor steps are
            given and the algorithm has no length of its own, the run goes on until it converges: in rounds of steps,
            each twice as long as the one before, until `Fit.convergence` is within its limits, and at most about 32,768
            steps or 64 epochs, whichever is more. A stream is then passed over 50 times.
        steps: the number of steps, instead of epochs.
        batch_size: rows a step; by messages (`svi`) the largest number, since all batches of an epoch have the same.
        seed: of all randomness; the same seed gives the same bits on the same machine.
        validation: rows to validate on: a share of the data, which is held out by the seed, or separate data. Their
            negative log predictive density is computed at the end of every epoch (at most every 64 steps), and the
            posterior is that of the best state; a warning (`lamu.WorseThanMean`) is given for one that predicts them
            worse than the point at its mean. Without it a network that passes through its rows is named by
            `lamu.Overfit`. Algorithms that choose a prior's scale choose it by these rows. For a
            sampler the score is computed once, of all draws, and chooses nothing. For a pretrained network give rows
            that it was not trained on.
        stop: the number of epochs without a better validation after which to stop, or a function of the history that
            returns whether to stop.
        callbacks: called after every block of steps with the steps done and the last loss, residual and validation.
        temperature: T; the target is \(\exp(-\ell/T)\). At T = 1 networks of images predict worse under `ivon` and
            `vogn` than under a tuned Adam (`docs/images.md`), small tables in part (`docs/which_algorithm.md`);
            `lamu.fit_temperature` chooses T from training rows.
        likelihood_power: the power of the likelihood alone.
        data_size: N, where it is not the number of rows given; required for re-iterables.
        checkpoint: a folder to write checkpoints to, at most every 30 seconds, at an interruption, and at the end; or
            `lamu.Checkpoints`, for their number and frequency. The draws of a sampler are written there during the run,
            and stay on disk, mapped into memory, where they are many.
        resume: whether to continue from the last checkpoint, if there is one; the result is the same, bit for bit, as
            without the interruption. A run of fewer steps than the checkpoint is refused, a longer one continues.
        progress: whether to show progress; where None, if standard error is a terminal.
        max_memory: the memory that may be used beyond the data, as `lamu.memory.parse` takes it, for instance "2GB";
            half of the free memory where None. Work after the steps (curvature, predictions) is split into chunks that
            fit.
        statistics: the treatment of a network's batch statistics in the posterior, from `lamu.batch_statistics`; where
            None they stay as the run left them, and a pretrained network with such statistics needs a choice.
        mesh: the devices to step on, for instance `jax.make_mesh((4,), ("runs",))`. Along the axis "runs" lie a
            sampler's chains or an ensemble's members, equally many on each device; along "data" the rows of every
            batch; along "samples" the draws that a step averages; along "model" the state itself, each array along its
            longest axis that the devices divide, or as the network says (`lamu.networks.Partitioned`).
            `algorithm.traits.axes` are the axes that the algorithm allows. The data are on every device, the posterior
            is computed on the default one. The run is the same up to rounding, which a sampler's warm-up magnifies into
            other draws of the same distribution.
        microbatch_size: the number of rows of a batch in one pass through the network, for batches that do not fit in
            memory: gradients and curvatures are accumulated over microbatches, and the step is that of the whole batch
            up to rounding. Draws of the weights are shared by the batch; dropout, labels that a curvature draws and
            batch statistics are those of a microbatch. Not for low-rank directions, which need all rows at once.

    Returns:
        The posterior, the history and the last state. After a keyboard interrupt these are those reached so far.

    Raises:
        ValueError: for data that the model cannot take, options that contradict each other, a checkpoint of another
            run, no epochs for a network that is not trained or that needs a choice of `statistics`, or work that does
            not fit within `max_memory` or over `mesh`.
        TypeError: for a wrong type of model, algorithm or mesh, data that cannot be read, or a seed that is not a whole
            number.
        Diverged: if the loss is not finite; its `fit` keeps the last good state.

    An error after the steps (in a curvature or a posterior) has an attribute `fit` too, with the point that the steps
    reached, where there is one.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("digits")
        >>> model = lamu.Model(lamu.networks.MLP((32,)), lamu.likelihoods.Categorical(10))
        >>> fit = lamu.fit(model, (x, y), lamu.algorithms.adam(1e-2), epochs=5)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.9
        True
    """
    require_untraced("lamu.fit")
    _require_several(callbacks)
    batch_size = _whole("batch_size", batch_size)
    epochs, steps = (
        None if value is None else _whole(name, value) for name, value in (("epochs", epochs), ("steps", steps))
    )
    require_target(model)
    require_algorithm(algorithm)
    devices = OneDevice() if mesh is None else _devices_of(mesh, algorithm)
    with all_digits(), devices.guarded():
        seed, traits = whole_seed(seed), algorithm.traits
        with memory.within(max_memory):
            model, from_file = model.named(data), bytes_in_memory(data, validation)
            rows = devices.rows(training_rows(model, data))
        _require_sense(traits, batch_size, validation, stop, checkpoint, resume)
        if devices.spans_processes:
            _require_shared(traits, rows)
        rows, validation_rows = split_validation(rows, validation, model, seed)
        validation_rows = validation_rows if validation_rows is None else devices.rows(validation_rows)
        if traits.messages and isinstance(rows, Arrays):
            # λ averages the batches, in which a last one of few rows would count as much as the others.
            batch_size = math.ceil(rows.count / math.ceil(rows.count / batch_size))
        length = Length.of(algorithm, rows, batch_size, epochs, steps)
        if devices.spans_processes:  # whose streams may differ in their batches, and share one rate
            length = replace(length, total=int(devices.agree(length.total or 0)) or None)
        require_trained(model, epochs)
        warn_first_guess(model, algorithm)
        if microbatch_size is not None and not isinstance(model, Model):
            raise ValueError(
                f"microbatch_size={microbatch_size!r} cuts a network's rows, and {model.name} has no network"
            )
        objective = Objective(model, _size_of(rows, data_size), temperature, likelihood_power, microbatch_size)
        _tell_of_temperature(model, objective)
        best, keys = Best(stop), keys_of(seed)
        # A longer run may differ in its length, and in the rates that fall over it: these do not identify a run.
        saved = None
        if checkpoint is not None:
            saved = Resumption.of(checkpoint, algorithm, objective, rows, validation_rows, seed, batch_size, devices)
        algorithm = length.given_to(algorithm)
        # Dispersions are initialised from the example, so it may be larger than a batch.
        example = devices.example(rows.example(min(rows.count, _EXAMPLE_ROWS) if isinstance(rows, Arrays) else 1))
        devices = devices.for_network(model, example)
        warn_probabilities(model, example)
        if length.is_pretrained and statistics is None:
            require_choice(algorithm, objective, example)
        warn_one_start(model, algorithm)
        judge = validation_rows if traits.length is None else None  # by state; a sampler's draws are judged once
        with memory.within(max_memory):
            forecast = check_memory(
                algorithm, objective, rows, example, batch_size, judge is not None, saved is not None, from_file
            )
        conclusion = Conclusion(
            algorithm, objective, rows, judge, batch_size, keys.final, statistics, max_memory, not length.is_pretrained
        )
        devices.agree(0.0)  # all are ready
        run = Run.start(conclusion, length, devices, example, keys, best, saved, resume)
        if length.is_pretrained:
            warn_seen_rows(model, algorithm, validation)
        else:
            run.take_steps(forecast, callbacks, progress)
        result = run.finish(validation_rows)
        warn_unconverged(result, example, chosen_earlier=best.state is not None and not best.chosen_last)
        warn_few_rows(result, rows)
        warn_scales_apart(result)
        if traits.linearises and not length.is_pretrained:
            warn_rare_events(model, rows)
        if not (length.is_pretrained or devices.spans_processes):  # whose rows lie on several
            warn_training_fit(result, rows, example, objective, validation_rows is not None)
        elif not devices.spans_processes:
            warn_pretrained_fit(result, rows)
        warn_worse_than_mean(result, validation_rows)
        return result


@dataclass
class Run:
    """The steps of a run of `fit`."""

    conclusion: Conclusion  # turns its last state into a posterior: algorithm, objective, rows
    length: Length
    devices: OneDevice
    steps: Steps
    handle: Any  # the algorithm's
    judge: Arrays | None  # rows for validating states, on the devices
    state: State
    history: History
    best: Best
    saved: Resumption | None = None
    settled: Posterior | None = None  # of the last round, where it is final
    interrupted: bool = False

    @classmethod
    def start(
        cls,
        conclusion: Conclusion,
        length: Length,
        devices: OneDevice,
        example: Batch,
        keys: Keys,
        best: Best,
        saved: Resumption | None,
        resume: bool,
    ) -> Run:
        """Returns a run with its first state, or with that of its last checkpoint."""
        algorithm, rows, traits = conclusion.algorithm, conclusion.rows, conclusion.algorithm.traits
        placed_rows = devices.replicate(rows) if isinstance(rows, Arrays) else devices.place_stream(rows)
        replicated_handle, objective, judge, placed_example = devices.replicate(
            (handle(algorithm), conclusion.objective, conclusion.held, example)
        )
        first_key, step_key, order_key = devices.replicate((keys.init, keys.step, keys.order))
        base = replicated_handle
        if devices.spans_processes:  # validation is of the whole state, in every process
            base, judge = handle(algorithm), conclusion.held
        steps = Steps(
            devices.distribute(replicated_handle),
            traits,
            objective,
            placed_rows,
            conclusion.batch_size,
            step_key,
            order_key,
        )
        given = steps.algorithm, first_key, objective, placed_example
        quickly = length.is_pretrained or steps.are_few_messages(start.eval_shape(*given))
        state = (start_quickly if quickly else start)(*given)
        draw = None
        if traits.length is not None or saved is not None:
            draw = draw_of(base, state, conclusion.objective, example)
        history = History(traits, draw, None if saved is None else saved.folder / "draws", devices.writes)
        if saved is not None:
            most = None if length.passes is not None else length.total  # passes may differ in their batches
            state = devices.shard(saved.restore(state, history, best, draw, resume, most))
        history.reserve()
        return cls(conclusion, length, devices, steps, base, judge, state, history, best, saved)

    def take_steps(self, forecast: Forecast, callbacks: Sequence[Callback], progress: bool | None) -> None:
        """Takes the steps until the last one, an early stop by validation, or an interrupt."""
        self.settled = self._end_of_round()
        good = self.state
        blocks = () if self.settled else self.steps.blocks(self.length, self.history.steps)
        blocks = memory_checked(forecast, iter(blocks), self.state, self.conclusion.max_memory)
        progress = progress if self.devices.writes else False
        with Progress(self.length.total, progress, at_most=self.may_end_early) as bar, Interruption() as interruption:
            while not self.best.stopped and self.settled is None and (block := next(blocks, None)) is not None:
                interruption.raise_pending()
                self.devices.agree(0.0)
                # The state is donated to the block, so the state to return after a failure is a copy.
                good = _copied(self.state)
                try:
                    self.state, info = block.run(self.state)
                    self.history.add(info)
                except KeyboardInterrupt:
                    self.state = good
                    raise
                if not self.history.finite:
                    break
                self._validate(block)
                if self.saved is not None:
                    self.saved.keep(self.state, self.history, self.best)
                for callback in callbacks:
                    callback(self.history.steps, self.history.last)
                bar.update(self.history.steps, self.history.last["loss"])
                self.settled = self._end_of_round()
        self.interrupted = interruption.came
        if self.interrupted and self.devices.spans_processes:
            raise KeyboardInterrupt  # without a result, as the other processes are between steps
        if not self.history.finite:
            raise self._diverged(good)

    @property
    def may_end_early(self) -> bool:
        """Whether the run may end before its last step."""
        return self.length.rounds is not None or self.best.may_stop

    def _validate(self, block: Block) -> None:
        if self.judge is None or not block.ends_an_epoch:
            return
        key, objective, state = self.conclusion.key, self.steps.objective, self.state
        if self.devices.spans_processes:
            objective, state = self.conclusion.objective, self.devices.gather(state)
        nll = validation_nll(self.handle, key, state, objective, self.judge)
        self.history.validated(float(self.devices.agree(nll)))
        self.best.update(self.state, self.history.last["validation_nll"], block.passes)
        self.best.stopped = self.best.enough(block.passes, self.history.columns)

    def _end_of_round(self) -> Posterior | None:
        """Returns the posterior at the end of the last round, else None."""
        rounds = self.length.rounds
        if rounds is None or not rounds.ends_at(self.history.steps):
            return None
        state = self.devices.gather(self.state)
        settled = self.conclusion.if_enough(state, self.history, rounds)
        if self.devices.agree(settled is not None) == (settled is not None):
            return settled
        return self.conclusion.posterior(state, self.history) if settled is None else None

    def finish(self, held_out: Arrays | None) -> Fit:
        """Returns the result; draws are validated here by the held-out rows."""
        if self.saved is not None:
            self.saved.keep(self.state, self.history, self.best, now=True)
        is_sampler = self.conclusion.algorithm.traits.length is not None
        if self.interrupted and is_sampler and self.history.trace is None:
            raise KeyboardInterrupt  # a sampler in its warm-up has no draw to return
        result = self._result(self.state)
        if is_sampler and held_out is not None:
            self.history.validated(posterior_nll(result.posterior, held_out))
            result = replace(result, history=self.history.columns)
        return result

    def _result(self, state: State) -> Fit:
        posterior = self.settled
        if posterior is None or self.best.state is not None:
            chosen = state if self.best.state is None else self.best.state
            posterior = self.conclusion.posterior(self.devices.gather(chosen), self.history, self.interrupted)
        rows, few = self.conclusion.rows, self.conclusion.objective.model.rows_for_warnings
        first_rows = rows.example(min(few, rows.count)) if few and isinstance(rows, Arrays) else None
        return Fit(posterior, self.history.columns, state, self.interrupted, first_rows)

    def _diverged(self, before: State) -> Diverged:
        """Returns the error of a run whose loss is not finite."""
        reason = runnable(self.conclusion.algorithm).explain_divergence(self.state)
        advice = "lower the learning rate, standardise the data (model.standardised(x, y)), or narrow the prior"
        if self.history.first_bad == 0 and _has_signs(self.conclusion.objective.model.prior):
            reason = (
                "the prior Discrete is one of weights -1 and +1, and weights that have it are real; take bayesbinn() "
                "or straight_through(), and give biases a prior of their own: ByPath({'*kernel': Discrete(0.5), '*': "
                "Normal(1.0)})"
            )
        elif self._has_no_noise():
            reason = reason or (
                "the learned noise has fallen to zero, as where targets do not vary, or have none; leave such columns "
                "out, or give the noise, for instance lamu.likelihoods.Gaussian(0.01)"
            )
        try:
            last = self._result(before) if self.history.trace is None else None
        except ValueError:  # the precision had left its domain before the loss did
            last = None
        loss, step = self.history.last["loss"], self.history.first_bad + 1
        return Diverged(f"the loss is {loss} at step {step}; {reason or advice}", last)

    def _has_no_noise(self) -> bool:
        """Whether real targets of a learned noise do not vary, or were explained to a thousandth of their variation."""
        rows, model = self.conclusion.rows, self.conclusion.objective.model
        losses = self.history.columns.get("loss", np.empty(0))
        if not (isinstance(rows, Arrays) and isinstance(model, Model) and model.support.affine):
            return False
        y = np.asarray(value_of(rows.y), float).reshape(rows.count, -1)
        deviation = np.std(y, axis=0)
        varies = deviation > np.finfo(np.float32).eps * np.max(np.abs(y), axis=0)
        explained = np.min(losses, where=np.isfinite(losses), initial=np.inf) < np.sum(np.log(deviation[varies] / 1e3))
        return bool(model.likelihood.init(rows.y)) and (explained or not varies.all())


def _has_signs(prior: Prior) -> bool:
    """Whether a prior, or a part of it, is one of binary weights."""
    return isinstance(prior, Discrete) or (isinstance(prior, ByPath) and any(map(_has_signs, prior.priors)))


def _whole(name: str, value: object) -> int:
    number = whole(value)
    if number is None:
        raise TypeError(f"{name}={value!r} is not a whole number; give one from 1, for instance 64")
    return number


def _require_several(callbacks: object) -> None:
    if not isinstance(callbacks, Iterable):
        raise TypeError(f"callbacks={callbacks!r} is not a sequence of functions; give callbacks=[...]")


def _require_sense(
    traits: Traits, batch_size: int, validation: object, stop: object, checkpoint: object, resume: bool
) -> None:
    """Raises a ValueError for options that contradict each other."""
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size!r} must be at least one row")
    if stop is not None and validation is None:
        raise ValueError(f"stop={stop!r} needs something to judge by; give validation=0.1, or rows to validate on")
    if resume and checkpoint is None:
        raise ValueError("resume=True needs the folder to go on from; give checkpoint=folder")
    if stop is not None and traits.length is not None:
        raise ValueError(
            f"stop={stop!r} waits for a best state, and a sampler has draws and no such state; leave it out"
        )


def _require_shared(traits: Traits, rows: Arrays | Stream) -> None:
    """Raises a ValueError for data or algorithms that processes cannot share."""
    if traits.needs_data_pass and not isinstance(rows, Arrays):
        raise ValueError(
            "this algorithm makes a pass over all data at the end, and each of several processes reads batches of its "
            "own; give arrays, of which each process may have a share"
        )


def _size_of(rows: Arrays | Stream, data_size: Number | None) -> Number:
    """Returns N."""
    if data_size is not None:
        return float(data_size)
    if not isinstance(rows, Arrays):
        raise ValueError("data that comes in batches has no known size; give data_size=N, the number of its rows")
    return float(rows.count)


def _tell_of_temperature(model: Target, objective: Objective) -> None:
    """Logs that the prior is a posterior at another temperature than this run."""
    before, now = model.prior.temperature if isinstance(model.prior, Belief) else None, objective.temperature
    if before is not None and float(before) != float(now):
        logging.getLogger("lamu").warning(
            "The prior is a posterior at the temperature %g, and this run is at %g; give temperature=%g to go on as it "
            "was fitted.",
            float(before),
            float(now),
            float(before),
        )


def _devices_of(mesh: object, algorithm: Algorithm) -> OneDevice:
    from lamu.running.sharding import Devices  # imported here, as most runs have no mesh

    return Devices.of(mesh, algorithm)


@jax.jit
def _copied(state: State) -> State:
    """Returns a copy of the state in one dispatch, since leaf by leaf takes longer than a short block of steps."""
    return jax.tree.map(jnp.copy, state)
