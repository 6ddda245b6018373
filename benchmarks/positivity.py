"""Ten thousand steps at rates where the plain rule fails: the retraction keeps every precision positive.

A diagonal Gaussian over a small network, its curvature by Price's identity from one draw and 32 rows: an estimate that
is noisy and often negative. The two runs differ in the geometry alone.

    python -m benchmarks.positivity
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from lamu import tree
from lamu.geometry import Geometry, Retraction, Straight
from lamu.objective import Objective

STEPS = 10_000


@dataclass(frozen=True)
class Outcome:
    """What became of a run: its smallest precision a row, and when one first was not positive (None: never)."""

    geometry: str
    precision_rate: float
    smallest: float
    left_at: int | None

    def __str__(self) -> str:
        end = "positive at every step" if self.left_at is None else f"left the cone at step {self.left_at}"
        return f"{self.geometry:12} 1 - b2 = {self.precision_rate:<6} smallest {self.smallest:10.3e}   {end}"


def main() -> None:
    for b2 in (0.5, 0.9, 0.99):
        for geometry in (Straight(), Retraction()):
            print(positivity(geometry, b2))


def positivity(geometry: Geometry, b2: float, steps: int = STEPS) -> Outcome:
    """Runs the steps, with a look at the precision after each."""
    x, y = lamu.data.load("breast_cancer")
    model = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Bernoulli()).standardised(x, y)
    rule = replace(lamu.algorithms.ivon(0.05, b2=b2), geometry=geometry)
    objective, rows = Objective(model, len(x)), np.random.default_rng(0).permutation(len(x))[:544].reshape(17, 32)
    batches = [lamu.data.Batch.of(jnp.asarray(x[part], jnp.float32), jnp.asarray(y[part])) for part in rows]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)

    @jax.jit
    def run(state: Any) -> Any:
        def body(state: Any, t: jax.Array) -> Any:
            batch = jax.tree.map(lambda leaf: leaf[t % 17], stacked)
            state, _ = rule.step(jax.random.fold_in(jax.random.key(1), t), state, batch, objective)
            return state, jnp.min(tree.ravel(state.precision.values)[0])

        return jax.lax.scan(body, state, jnp.arange(steps))[1]

    smallest = np.asarray(run(rule.init(jax.random.key(0), objective, batches[0])))
    outside = np.flatnonzero(~(smallest > 0))  # a NaN is outside
    left = None if not len(outside) else int(outside[0]) + 1
    shown = np.nanmin(smallest if left is None else smallest[:left])
    return Outcome(type(geometry).__name__.lower(), round(1 - b2, 6), float(shown), left)


if __name__ == "__main__":
    main()
