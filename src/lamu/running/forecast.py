"""What a run will take in memory, told before anything of it is computed, and what fits where it does not.

Shapes tell it: of the state (`init`), of a batch, of a draw. What a step holds beside the state is read off its trace
(`lamu.memory.peak`) and doubled, since compilers keep up to as much again. On a CPU the compiled steps of 21 recipes on
a perceptron of 20,000 weights took 0.2 to 1.3 times that. A trace costs what the first part of a compilation costs, so
it is taken where the answer may matter: where somebody has set a limit, or the state and the data are not far below it.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

import jax

from lamu import memory
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.stream import Stream
from lamu.objective import Objective
from lamu.protocol import Algorithm, runnable
from lamu.running.keeping import count
from lamu.running.nearest import nearest
from lamu.running.pieces import draw_of, handle, one_step, start

__all__ = ["Forecast", "Run", "foresee"]

_AS_MUCH_AGAIN = 2
_FAR_BELOW = 1000  # a step of dense mixtures or of long trajectories takes some hundred times its state
_DRAWS_A_BLOCK, _STEPS_A_BLOCK = 64, 1024


@dataclass(frozen=True)
class Run:
    """What is to be run, as far as it decides what it takes.

    Attributes:
        algorithm: the algorithm.
        objective: the loss.
        rows: the data, on the device already.
        example: rows for shapes, as `init` sees them.
        batch_size: rows a step, of data that the loop cuts.
        steps: how many there will be; None where the data say, zero for weights that arrive trained.
        keeps_best: whether the best state is kept beside the last one.
        on_disk: whether draws are written to a folder.

    Examples:
        >>> import lamu
        >>> from lamu.running.forecast import Run
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=55.0))
        >>> rows = lamu.data.Arrays.of((x, y))
        >>> run = Run(lamu.algorithms.ivon(), lamu.objective.Objective(model, 442), rows, rows.example(4))
        >>> run.forecast().state > 3 * 11 * 4  # mean, precision and momentum of eleven weights
        True
    """

    algorithm: Algorithm
    objective: Objective
    rows: Arrays | Stream
    example: Batch
    batch_size: int = 64
    steps: int | None = None
    keeps_best: bool = False
    on_disk: bool = False

    def forecast(self) -> Forecast:
        """Returns what it takes, a step's trace included."""
        state = self._state()
        return Forecast(self._copies() * size(state), self._step(state), self._draws(state), size(self.rows))

    def glance(self) -> Forecast:
        """Returns what it takes without a step's share, which needs a trace."""
        state = self._state()
        return Forecast(self._copies() * size(state), None, self._draws(state), size(self.rows))

    @property
    def batch(self) -> Batch:
        """The shapes of what one step sees."""
        traits = self.algorithm.traits
        if not isinstance(self.rows, Arrays):
            return self.example
        whole = traits.batching == "full" or self.batch_size >= self.rows.count
        lead = (traits.streams,) if traits.streams > 1 and not whole else ()
        rows = self.rows.count if whole else self.batch_size
        shape = lambda leaf: jax.ShapeDtypeStruct((*lead, rows, *leaf.shape[1:]), leaf.dtype)
        return jax.tree.map(shape, self.example)

    def _state(self) -> Any:
        return jax.eval_shape(start, handle(self.algorithm), _key(), self.objective, self.example)

    def _copies(self) -> int:
        # The loop keeps a copy while it gives the state away.
        return 3 if self.keeps_best else 2

    def _step(self, state: Any) -> int:
        if self.steps == 0:
            return 0
        traced = one_step.trace(handle(self.algorithm), state, self.objective, self.batch, _key())
        return _AS_MUCH_AGAIN * memory.peak(traced.jaxpr)

    def _draws(self, state: Any) -> int:
        traits = self.algorithm.traits
        if traits.length is None:
            return 0
        one = size(draw_of(handle(self.algorithm), state, self.objective, self.example))
        total = count(traits, traits.length)
        per_epoch = 1
        if isinstance(self.rows, Arrays) and traits.batching != "full":
            per_epoch = math.ceil(self.rows.count / self.batch_size)
        block = math.ceil(max(_DRAWS_A_BLOCK, min(per_epoch, _STEPS_A_BLOCK)) / traits.thinning)
        # Those of a block are on the device at once. All of them are put together at the end, from the parts.
        return one * (min(block, total) + (0 if self.on_disk else 2 * total))


@dataclass(frozen=True)
class Forecast:
    """What a run takes, in bytes.

    Attributes:
        state: the state and its copies.
        step: what a step holds beside them; None where nobody has looked.
        draws: a sampler's draws.
        data: the rows, which are there already and not counted.

    Examples:
        >>> from lamu.running.forecast import Forecast
        >>> Forecast(state=2_000_000, step=1_000_000, draws=0, data=500).total
        3000000
    """

    state: int
    step: int | None
    draws: int
    data: int

    @property
    def total(self) -> int:
        """What is taken beside the data."""
        return self.state + (self.step or 0) + self.draws

    def __str__(self) -> str:
        """The parts, as people write them."""
        step = [] if self.step is None else [f"a step {memory.shown(self.step)}"]
        draws = [f"draws {memory.shown(self.draws)}"] if self.draws else []
        return ", ".join([f"the state and its copies {memory.shown(self.state)}", *step, *draws])


def foresee(run: Run) -> Forecast:
    """Says what a run will take, and refuses one that cannot fit.

    What comes after the steps the algorithm foresees itself, and is asked first.

    Args:
        run: what is to be run.

    Raises:
        ValueError: where it takes more than `lamu.memory.limit()`, in one sentence with its parts and the nearest
            choice that fits.

    Examples:
        >>> import lamu
        >>> from lamu import memory
        >>> from lamu.running.forecast import Run, foresee
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=55.0))
        >>> rows = lamu.data.Arrays.of((x, y))
        >>> run = Run(lamu.algorithms.ivon(), lamu.objective.Objective(model, 442), rows, rows.example(4))
        >>> with memory.within("1MB"):
        ...     foresee(run).total < 1_000_000
        True
    """
    shapes = jax.eval_shape(run.objective.model.init, _key(), run.example)[0]
    runnable(run.algorithm).foresee(run.objective, shapes)
    limit = memory.limit()
    found = run.glance()
    if memory.given() or found.total + found.data > limit // _FAR_BELOW:
        found = run.forecast()
    logging.getLogger("lamu").info(
        "The run takes about %s: %s. The data take %s beside. %s may be used.",
        memory.shown(found.total), found, memory.shown(found.data), memory.shown(limit),
    )  # fmt: skip
    if found.total > limit:
        memory.demand(found.total, f"this run ({found})", nearest(run, found, limit))
    return found


def _key() -> Any:
    """The shape of a random key."""
    return jax.eval_shape(lambda: jax.random.key(0))


def size(shaped: Any) -> int:
    """Returns the bytes of a tree of arrays, or of their shapes; of what is no array nothing.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.running.forecast import size
        >>> size({"w": jnp.zeros((3, 2), jnp.float32), "name": 1})
        24
    """
    leaves = [leaf for leaf in jax.tree.leaves(shaped) if hasattr(leaf, "shape") and hasattr(leaf, "dtype")]
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
