"""The loop: a thin layer over `init`, `step` and `posterior`, with validation, checkpoints and progress."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory
from lamu.batch_statistics import BatchStatistics, require_choice
from lamu.convergence import LARGEST_R_HAT, Unconverged
from lamu.data.arrays import Arrays, FewRows
from lamu.data.mapped import require_room
from lamu.dtype_policy import all_digits
from lamu.families import Draws, Point, Product
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.protocol import Algorithm, require_algorithm, runnable
from lamu.running.checkpoints import Checkpoints, Resumption, described, rows_described
from lamu.running.compiled_steps import draw_of, handle, keys_of, start, start_to_keep, whole_seed
from lamu.running.conclusion import Conclusion, require_trained, say_probabilities, say_seen_rows
from lamu.running.forecast import check_memory, measured
from lamu.running.history import History
from lamu.running.progress import Interruption, Progress
from lamu.running.result import Diverged, Fit
from lamu.running.schedule import Block, Length, array_blocks, passes_over, stream_blocks
from lamu.running.sharding import Devices
from lamu.running.validation import Best, posterior_nll, set_aside, training_rows, validation_nll
from lamu.target import Target, require_target
from lamu.typing import Data, Number, State

__all__ = ["fit"]

_EXAMPLE_ROWS = 4096
_FEW_ROWS = 20  # below which a normal 90 % interval with a noise at a point covers less than .88 (Student t)
_OTHER_SHAPE = (
    "sample it with lamu.mcmc.nuts(), give variables that depend on each other one belief (a MultivariateNormal), or "
    "write the model in variables whose posterior is closer to a Gaussian (of groups about a mean theta = mu + tau * z "
    "with z ~ Normal(0, 1))"
)


def fit(
    model: Target,
    data: Data,
    algorithm: Algorithm,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int = 64,
    seed: int = 0,
    validation: Any = None,
    stop: int | Callable[[Mapping[str, Any]], bool] | None = None,
    callbacks: Sequence[Callable[[int, Mapping[str, float]], Any]] = (),
    temperature: Number = 1.0,
    likelihood_power: Number = 1.0,
    data_size: Number | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoints | None = None,
    resume: bool = False,
    progress: bool | None = None,
    max_memory: Any = None,
    statistics: BatchStatistics | None = None,
    mesh: jax.sharding.Mesh | None = None,
) -> Fit:
    r"""Fits a model to data by an algorithm.

    Arrays are put on the device once, shuffled anew at every epoch by the seed, and read in blocks of steps that are
    one compiled scan (on a CPU a network that holds convolutions runs step by step, which is faster there); the last
    batch of an epoch is padded and masked. Other re-iterables of batches run step by step, in their own order. A batch
    size of N or more is the whole data, unshuffled.

    Args:
        model: what is learned: a `lamu.Model` (network, likelihood, prior), a `lamu.LogDensity`, or another target.
        data: `(x, y)`, a mapping with `x`, `y` and, optionally, `weight`, `offset`, `mask`, or a re-iterable of
            batches. A weight of two is the row written twice; weights whose sum is far from the number of rows are
            used as they are, with a warning (`lamu.data.UnscaledWeights`).
        algorithm: one of `lamu.algorithms` or `lamu.mcmc`, or one's own.
        epochs: passes over the data; 0 for the posterior of weights that arrive trained. Where neither epochs nor
            steps are given and the length is not the algorithm's own, as many as it takes: rounds of steps, each twice
            as long as the one before, until `Fit.convergence` is within its limits, and at most about 32,768 steps or
            64 epochs, whichever are more. A stream is then passed over 50 times.
        steps: the number of steps, in the place of epochs.
        batch_size: rows a step.
        seed: of everything that is random; the same seed gives the same bits on the same machine.
        validation: rows to validate on: a share of the data, which is set aside by the seed, or data of their own. The
            negative log predictive density there is taken at the end of every epoch (at most every 64 steps), and the
            posterior is that of the best state. Algorithms that choose a prior's scale choose it there. Of a sampler it
            is taken once, of all draws, and chooses nothing. For a network that arrives trained give rows that it has
            not learned from.
        stop: the number of epochs without a better validation after which to stop, or a function of the history that
            says whether to stop.
        callbacks: called after every block of steps with the steps done and the last loss, residual and validation.
        temperature: T; the target is \(\exp(-\ell/T)\).
        likelihood_power: the power of the likelihood alone.
        data_size: N, where it is not the number of rows given; required for re-iterables.
        checkpoint: a folder to write checkpoints to, at most every 30 seconds, at an interruption, and at the end; or
            `lamu.Checkpoints`, to say how many and how often. A sampler's draws are written there as they come, and
            stay on disk, mapped into memory, where they are many.
        resume: go on from the last checkpoint, if there is one: the end is the same, bit for bit, as without the
            interruption.
        progress: whether to show progress; where None, if standard error is a terminal.
        max_memory: how much may be held at once beside the data, as `lamu.memory.parse` takes it, for
            instance "2GB"; half of what is free where None. Work after the steps (curvature, predictions) is cut into
            chunks that fit.
        statistics: what becomes of a network's batch statistics in the posterior, of `lamu.batch_statistics`; where
            None they stay as the run left them, and a network that arrives trained is asked about.
        mesh: the devices to step on, for instance `jax.make_mesh((4,), ("runs",))`. Along the axis "runs" lie a
            sampler's chains or an ensemble's members, as many on each device; along "data" the rows of every batch. The
            data are on every device, the posterior is made on the default one. The run is the same but for rounding,
            which a sampler's warm-up magnifies into other draws of the same law.

    Returns:
        The posterior, the history and the last state. An interrupt from the keyboard returns what there is.

    Raises:
        ValueError: for data that the model cannot take, options that contradict each other, a checkpoint of another
            run, no epochs for a network that is not trained or that leaves open what becomes of its statistics, or
            what cannot be done within `max_memory` or over `mesh`.
        TypeError: for what is no model, no algorithm or no mesh, data that cannot be read, or a seed that is no whole
            number.
        Diverged: if the loss is no longer finite; its `fit` keeps the last good state.

    An error of the work after the steps (a curvature, a posterior) has an attribute `fit` too, with the point that the
    steps found, wherever there is one.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("digits")
        >>> model = lamu.Model(lamu.networks.MLP((32,)), lamu.likelihoods.Categorical(10))
        >>> fit = lamu.fit(model, (x, y), lamu.algorithms.adam(1e-2), epochs=5)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.9
        True
    """
    with all_digits():
        require_target(model)
        require_algorithm(algorithm)
        seed = whole_seed(seed)
        model = model.named(data)
        with memory.within(max_memory):
            from_file = _room_for(data, validation)
            rows = training_rows(model, data)
        if batch_size < 1:
            raise ValueError(f"batch_size={batch_size!r} makes no batch; ask for at least one row")
        if stop is not None and validation is None:
            raise ValueError(f"stop={stop!r} needs something to judge by; give validation=0.1, or rows to validate on")
        if resume and checkpoint is None:
            raise ValueError("resume=True needs the folder to go on from; give checkpoint=folder")
        samples = algorithm.traits.length is not None
        if stop is not None and samples:
            raise ValueError(
                f"stop={stop!r} waits for a best state, and a sampler has draws and no such state; leave it out"
            )
        rows, held = set_aside(rows, validation, model, seed)
        length = Length.of(algorithm.traits, rows, batch_size, epochs, steps)
        if data_size is None:
            if not isinstance(rows, Arrays):
                raise ValueError(
                    "data that comes in batches has no known size; give data_size=N, the number of its rows"
                )
            data_size = rows.count
        require_trained(model, epochs)
        # What a longer run may have another of (its length, and the rates that fall over it) is no part of what it is.
        identity = None if checkpoint is None else described(algorithm)
        algorithm = length.given_to(algorithm)
        objective = Objective(model, float(data_size), temperature, likelihood_power)
        init_key, step_key, order_key, final_key = keys_of(seed)
        # Dispersions start from what they are in the data, so the example may be larger than a batch.
        example = rows.example(min(rows.count, _EXAMPLE_ROWS) if isinstance(rows, Arrays) else 1)
        few = min(model.rows_for_warnings, rows.count) if isinstance(rows, Arrays) else 0
        remarked = rows.example(few) if few else None
        say_probabilities(model, example)
        if length.is_pretrained and statistics is None:
            require_choice(algorithm, objective, example)
        judged = held is not None and not samples  # state by state
        with memory.within(max_memory):
            forecast = check_memory(
                algorithm, objective, rows, example, batch_size, judged, checkpoint is not None, from_file
            )

        # On a mesh the steps have everything there; what comes after them has it where it was.
        devices = Devices.of(mesh, algorithm)
        laid = devices.everywhere(rows) if isinstance(rows, Arrays) else devices.dealt(rows)
        held_by, ours, judge, shown = devices.everywhere(
            (handle(algorithm), objective, held if judged else None, example)
        )
        spread, keys = devices.spread(held_by), devices.everywhere((step_key, order_key))
        state = (start_to_keep if length.is_pretrained else start)(spread, init_key, ours, shown)
        best = Best(stop)
        saved = Resumption.of(
            checkpoint,
            {
                "seed": seed,
                "batch_size": batch_size,
                "data_size": float(data_size),
                "temperature": float(temperature),
                "likelihood_power": float(likelihood_power),
                "validation": None if held is None else rows_described(held),
                "data": rows_described(rows),
                "algorithm": f"{type(algorithm).__name__} {algorithm.choices}",
                "settings": identity,
                **{field.name: described(getattr(model, field.name)) for field in fields(model)},
            }
            if checkpoint is not None
            else {},
        )
        like = None if algorithm.traits.length is None else draw_of(held_by, state, objective, example)
        history = History(algorithm.traits, like, None if saved.folder is None else saved.folder / "draws")
        if resume:
            state = devices.lay(saved.restore(state, history, best, algorithm, objective, example))
        elif saved.exists:
            raise ValueError(
                f"there are checkpoints in {str(saved.folder)!r} already, which would be overwritten; go on from them "
                "with resume=True, or choose another folder"
            )
        history.reserve()

        if length.is_pretrained:
            say_seen_rows(validation)
            blocks = iter(())
        elif isinstance(laid, Arrays):
            assert length.total is not None  # arrays know their length
            unit = None if length.rounds is None else length.rounds.first
            blocks = array_blocks(
                spread, algorithm.traits, ours, laid, batch_size, length.total, history.steps, *keys, unit=unit
            )
        else:
            passes = passes_over(algorithm.traits, epochs, steps)
            blocks = stream_blocks(spread, algorithm.traits, ours, laid, passes, steps, history.steps, keys[0])
        conclusion = Conclusion(
            algorithm,
            objective,
            rows,
            held if judged else None,
            batch_size,
            final_key,
            statistics,
            max_memory,
            not length.is_pretrained,
        )

        def validate(state: State, block: Block) -> None:
            if judge is not None and block.ends_an_epoch:
                history.validated(validation_nll(held_by, final_key, state, ours, judge))
                best.see(state, history.last["validation_nll"], block.passes)
                best.stopped = best.enough(block.passes, history.columns)

        def end_of_round(state: State) -> Posterior | None:
            """Returns the posterior, where a round has ended after which no other is needed."""
            if length.rounds is None or not length.rounds.ends_at(history.steps):
                return None
            return conclusion.if_enough(devices.together(state), history, length.rounds)

        good = state
        settled = end_of_round(state)
        blocks = measured(forecast, blocks, state, max_memory) if settled is None else iter(())
        with Progress(length.total, progress) as bar, Interruption() as interruption:
            for block in _until(blocks, best):
                interruption.heed()
                # The block is given the state away; what can be returned after a failure is a copy.
                good = _copied(state)
                try:
                    state, info = block.run(state)
                    history.add(info)
                except KeyboardInterrupt:
                    state = good
                    raise
                if not history.finite:
                    break
                validate(state, block)
                saved.keep(state, history, best)
                for callback in callbacks:
                    callback(history.steps, history.last)
                bar.update(history.steps, history.last["loss"])
                settled = end_of_round(state)
                if settled is not None:
                    break
        interrupted = interruption.came

        def finish(state: State) -> Fit:
            chosen = state if best.state is None else best.state
            if settled is not None and best.state is None:
                return Fit(settled, history.columns, state, interrupted, remarked)
            posterior = conclusion.posterior(devices.together(chosen), history, interrupted)
            if held is not None and not judged:
                history.validated(posterior_nll(posterior, held))
            return Fit(posterior, history.columns, state, interrupted, remarked)

        if not history.finite:
            raise _diverged(history, runnable(algorithm).explain_divergence(state), lambda: finish(good))
        saved.keep(state, history, best, now=True)
        if interrupted and history.trace is None and algorithm.traits.length is not None:
            raise KeyboardInterrupt  # a sampler in its warm-up has no draw to return
        found = finish(state)
        unscaled = "" if found.convergence is None or found.convergence.converged else model.unscaled_inputs(example)
        _warn_unconverged(found, best.state is not None and not best.chosen_last, unscaled)
        _warn_few_rows(found, rows)
        return found


def _room_for(data: Data, validation: Any) -> int:
    """Returns the bytes that data in files will take in memory, and refuses those that the limit has no room for."""
    named = dict(zip(("x", "y"), data, strict=False)) if isinstance(data, tuple | list) else data
    if not isinstance(named, Mapping):
        return 0
    parts = {name: part for name, part in named.items() if isinstance(part, np.ndarray)}
    require_room(parts, copies=2 if isinstance(validation, float | int) else 1)
    return require_room(parts)


def _diverged(history: History, reason: str | None, finish: Callable[[], Fit]) -> Diverged:
    """Returns the error of a run whose loss is no number."""
    advice = "lower the learning rate, standardise the data (model.standardised(x, y)), or narrow the prior"
    try:
        last = finish() if history.trace is None else None
    except ValueError:  # a precision that had left its domain before the loss did is no belief
        last = None
    return Diverged(f"the loss is {history.last['loss']} at step {history.first_bad + 1}; {reason or advice}", last)


def _warn_few_rows(found: Fit, rows: Any) -> None:
    """Warns of intervals that are too narrow because few rows have told the noise, which is learned as a point."""
    belief, model = found.posterior.belief, found.posterior.model
    if not (isinstance(belief, Product) and isinstance(rows, Arrays) and model.has_outputs) or model.has_classes:
        return
    weights, noise = belief.factors.get("network"), belief.factors.get("likelihood")
    count = float(jnp.sum(rows.weight))
    if isinstance(weights, Point) or not isinstance(noise, Point) or not jax.tree.leaves(noise) or count >= _FEW_ROWS:
        return
    warnings.warn(
        f"{count:.4g} rows tell little of the noise, which is learned as a point, so that intervals are too narrow; "
        "take lamu.regression(x, y) or laplace() of a linear network, which integrate over it, or give the noise "
        "(Gaussian(scale))",
        FewRows,
        stacklevel=3,
    )


def _warn_unconverged(found: Fit, chosen_earlier: bool, unscaled: str = "") -> None:
    """Warns of a posterior that is not the fixed point of the rule."""
    measured = found.convergence
    if measured is None or measured.converged or found.interrupted:
        return
    if isinstance(found.posterior.belief, Draws) and (measured.r_hat or 0.0) > LARGEST_R_HAT:
        return  # `UnreliableChains` has said so
    if chosen_earlier:
        remedy = "validation chose a state before the end; leave validation out for the end itself"
    else:
        longer = "train longer (without epochs and steps, fit takes as many as it needs)"
        general = f"{longer}, with a rate that falls to zero, for instance Annealed(1e-2)"
        remedy = measured.remedy or unscaled or general
    said = "the posterior has not converged"
    if measured.at_fixed_point:
        said, remedy = "the belief has converged and is not the posterior", _OTHER_SHAPE
    elif not measured.has_shape:
        remedy = f"{remedy}; where that does not help, a Gaussian is the wrong shape: {_OTHER_SHAPE}"
    warnings.warn(f"{said}: {measured.complaint}; {remedy}", Unconverged, stacklevel=3)


@jax.jit
def _copied(state: State) -> Any:
    """Returns a copy of the state by one dispatch: leaf by leaf, it takes longer than many a block of steps."""
    return jax.tree.map(jnp.copy, state)


def _until(blocks: Iterator[Block], best: Best) -> Iterator[Block]:
    """Yields blocks until the validation says that it is enough."""
    while not best.stopped:
        block = next(blocks, None)
        if block is None:
            return
        yield block
