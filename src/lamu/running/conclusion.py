"""The end of a run: the posterior, its distance from the fixed point, and the test of convergence."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass, replace
from typing import Any

import jax

from lamu import memory
from lamu.batch_statistics import BatchStatistics
from lamu.data.arrays import Arrays
from lamu.data.stream import Stream
from lamu.families import Product
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.protocol import Algorithm, runnable
from lamu.running.fixed_point import convergence_of
from lamu.running.history import History
from lamu.running.result import Fit
from lamu.running.rounds import Rounds
from lamu.typing import RandomKey

__all__ = ["Conclusion"]


@dataclass(frozen=True)
class Conclusion:
    """The end of a run: everything that turns its last state into a posterior."""

    algorithm: Algorithm  # what was run
    objective: Objective  # the loss
    rows: Arrays | Stream  # the rows learned from
    held: Arrays | None  # the rows set aside, or None
    batch_size: int  # rows a step
    key: RandomKey  # the posterior's own key; what is measured takes one derived from it
    statistics: BatchStatistics | None = None  # what becomes of a network's batch statistics, or None
    max_memory: Any = None  # how much may be held at once
    # Whether the distance from the fixed point is measured; weights that arrive trained have none.
    measures: bool = True

    def posterior(self, state: Any, history: History, interrupted: bool = False) -> Posterior:
        """Returns the posterior of a state, with how far it is from its fixed point."""
        seen = self.rows
        if self.held is not None and isinstance(seen, Arrays):
            seen = replace(seen, held_out=self.held)
        try:
            with memory.within(self.max_memory):
                posterior = self.algorithm.posterior(
                    jax.random.clone(self.key), state, self.objective, seen, history.trace
                )
                if posterior.convergence is None and self.measures and not interrupted:
                    posterior = replace(posterior, convergence=self._measured(posterior, history.steps))
                if self.measures and not interrupted:
                    posterior = replace(posterior, convergence=self._shape(posterior, history.steps))
                if posterior.temperature == 1.0:  # an algorithm of one's own need not say it
                    posterior = replace(posterior, temperature=self.objective.temperature)
                posterior = self.objective.model.constrained(posterior)  # a density with constraints
                return posterior if self.statistics is None else self.statistics.of(posterior, seen)
        except Exception as error:
            if self.algorithm.traits.looks_again:  # hours of steps are not lost because what comes after them failed
                with contextlib.suppress(Exception):  # what failed first is what is told
                    point = runnable(self.algorithm).preview(jax.random.clone(self.key), state, self.objective)
                    error.fit = Fit(self.objective.model.constrained(point), history.columns, state, interrupted)  # pyright: ignore[reportAttributeAccessIssue]
                    error.add_note(
                        "The steps before this are not lost: the error's attribute `fit` holds their result."
                    )
            raise

    def _measured(self, posterior: Posterior, steps: int) -> Any:
        key = jax.random.fold_in(jax.random.clone(self.key), 2)
        work = self._work(steps)
        return convergence_of(posterior, self.algorithm, self.objective, self.rows, key, work, self.batch_size)

    def _shape(self, posterior: Posterior, steps: int) -> Any:
        belief = posterior.belief
        if not (isinstance(belief, Product) and isinstance(belief.factors.get("network"), Product)):
            return posterior.convergence
        from lamu.running.belief_shape import shape_of  # here: a fit of a network does not wait for graphs

        key = jax.random.fold_in(jax.random.clone(self.key), 4)
        return shape_of(posterior, self.objective, self.rows, key, self._work(steps))

    def _work(self, steps: int) -> float:
        """Returns how many gradients of a row so many steps took."""
        per_step = self.batch_size
        if isinstance(self.rows, Arrays):
            whole = self.algorithm.traits.batching == "full"
            per_step = self.rows.count if whole else min(self.batch_size, self.rows.count)
        return float(steps * per_step)

    def if_enough(self, state: Any, history: History, rounds: Rounds) -> Posterior | None:
        """Returns the posterior at the end of a round after which no other is needed or left; else None."""
        # What an earlier round's posterior warns of is not said: the run goes on because of it.
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            posterior = self.posterior(state, history)
        if history.steps < rounds.limit and not rounds.enough(history.steps, posterior.convergence):
            return None
        for each in said:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        return posterior
