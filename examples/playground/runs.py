"""A run of the playground: `init` and `step` of an algorithm as it is, and what the page draws of every step."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from examples.playground.offers import Offer
from examples.playground.targets import PlayTarget

from lamu import tree
from lamu.families import Draws, Gaussian, Mixture, Point, Product
from lamu.mcmc.chains import Chains, LogTarget, TransitionInfo
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.protocol import runnable

__all__ = ["Run", "belief_moments"]

_KEPT = 64  # steps of a sampler that predictions are of
_SAMPLES = 24  # lines, or draws of a prediction
_GRID = 40


def belief_moments(belief: Any) -> tuple[jax.Array, jax.Array]:
    """Returns the means `[K, D]` and the covariances `[K, D, D]` of a belief's K Gaussians; zeros for a point."""
    if isinstance(belief, Point):
        mean = tree.ravel(belief.mean["network"])[0]
        return mean[None], jnp.zeros((1, mean.size, mean.size), mean.dtype)
    network = belief.factors["network"] if isinstance(belief, Product) else belief
    if isinstance(network, Mixture):
        return jax.vmap(_gaussian_moments)(network.components)
    if isinstance(network, Gaussian):
        return jax.tree.map(lambda leaf: leaf[None], _gaussian_moments(network))
    raise TypeError(f"a {type(network).__name__} has no ellipse to draw; offer an algorithm with Gaussians or points")


def _gaussian_moments(belief: Gaussian) -> tuple[jax.Array, jax.Array]:
    mean, unravel = tree.ravel(belief.mean)
    solve = lambda column: tree.ravel(belief.precision.solve(unravel(column)))[0]
    return mean, jax.vmap(solve)(jnp.eye(mean.size, dtype=mean.dtype))


def _rows_of_a_step(key: Any, batch: Any, rows: int | None) -> Any:
    if rows is None:
        return batch
    chosen = jax.random.choice(key, batch.mask.shape[0], (rows,), replace=False)
    return jax.tree.map(lambda leaf: leaf[chosen], batch)


# Algorithm and objective are arguments: another step size or temperature is the same program.
@partial(jax.jit, static_argnames=("rows", "planar"))
def _step(algorithm: Any, key: Any, state: Any, batch: Any, objective: Objective, rows: int | None, planar: bool):
    """Returns the next state, the draw or None, and what is seen of the step."""
    step_key, rows_key, preview_key = jax.random.split(key, 3)
    state, info = algorithm.step(step_key, state, _rows_of_a_step(rows_key, batch, rows), objective)
    seen = {"loss": info.loss}
    draw = info.draw
    if isinstance(draw, TransitionInfo):
        seen["acceptance"] = draw.statistics["acceptance"]
        draw = draw.position
    if planar and draw is not None:
        seen["points"] = jax.vmap(lambda position: tree.ravel(position["network"])[0])(draw)
    elif planar:
        seen["points"], seen["covariances"] = belief_moments(algorithm.preview(preview_key, state, objective).belief)
    return state, draw, seen


@jax.jit
def _retempered(sampler: Chains, state: Any, batch: Any, objective: Objective) -> Any:
    """Returns the chains where they are: what they remember is the log density at another temperature."""
    one = jax.tree.map(lambda leaf: leaf[0], state.chains.position)
    target = LogTarget.of(objective, batch, state.network_state, one, sampler.chains)
    begin = lambda position: sampler.kernel.begin(position, target)
    return replace(state, chains=jax.vmap(begin)(state.chains.position))


class Run:
    """An algorithm on a target, step by step."""

    def __init__(
        self,
        target: PlayTarget,
        offer: Offer,
        step_size: float,
        temperature: float,
        rows: int | None = None,
        seed: int = 0,
    ) -> None:
        self.target, self.offer = target, offer
        self.batch = target.rows.full()
        algorithm, objective = self._parts(step_size, temperature)
        self.rows = rows if target.model.has_rows and algorithm.traits.batching == "mini" else None
        self.key = jax.random.key(seed)
        self.state = jax.jit(algorithm.init)(jax.random.fold_in(self.key, 0), objective, self.batch)
        self.settings = (step_size, temperature)
        self.steps = 0
        self.draws: deque[Any] = deque(maxlen=_KEPT)
        self.acceptance = np.zeros(2)  # sum, and number of transitions

    def advance(self, steps: int, step_size: float, temperature: float) -> dict[str, Any]:
        """Returns what is seen of some more steps; numbers that are not finite are None."""
        # The belief's Gaussians; "covariances" `[steps, K, 2, 2]`; "acceptance", the mean since the last change of a
        algorithm, objective = self._parts(step_size, temperature)
        if (step_size, temperature) != self.settings:
            if temperature != self.settings[1] and isinstance(algorithm, Chains):
                self.state = _retempered(algorithm, self.state, self.batch, objective)
            self.settings, self.acceptance = (step_size, temperature), np.zeros(2)
        planar = self.target.window is not None
        each = []
        for _ in range(steps):
            self.steps += 1
            key = jax.random.fold_in(self.key, self.steps)
            self.state, draw, seen = _step(algorithm, key, self.state, self.batch, objective, self.rows, planar)
            each.append(seen)
            if draw is not None:
                self.draws.append(draw)
        host = jax.device_get(each)
        found: dict[str, Any] = {name: np.stack([seen[name] for seen in host]) for name in host[0]}
        if "acceptance" in found:
            self.acceptance += (found["acceptance"].sum(), found["acceptance"].size)
            found["acceptance"] = self.acceptance[0] / self.acceptance[1]
        found["steps"] = self.steps
        if not np.isfinite(found["loss"]).all():
            sentence = runnable(algorithm).explain_divergence(jax.device_get(self.state)) or "lower the step size"
            found["fault"] = f"The loss is not finite: {sentence}."
        elif self.target.inputs is not None:
            found |= self._prediction(algorithm, objective)
        return _plain(found)

    def _parts(self, step_size: float, temperature: float) -> tuple[Any, Objective]:
        model = self.target.model
        return self.offer.make(step_size), Objective(model, float(self.target.rows.count), temperature)

    def _posterior(self, algorithm: Any, objective: Objective) -> Posterior:
        key = jax.random.fold_in(self.key, 0)
        if not self.draws:
            return algorithm.preview(key, self.state, objective)
        # As many at every time, so that one program predicts with them.
        chosen = np.linspace(0, len(self.draws) - 1, _KEPT // 4).astype(int)
        samples = jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=1), *[self.draws[i] for i in chosen])
        return Posterior(objective.model, Draws(samples), {}, Sampled(), key, temperature=objective.temperature)

    def _prediction(self, algorithm: Any, objective: Objective) -> dict[str, Any]:
        """Returns lines of draws where the inputs are numbers, and probabilities on a grid where they are a plane."""
        posterior = self._posterior(algorithm, objective)
        left, right, low, high = self.target.inputs or (0.0, 0.0, 0.0, 0.0)
        if self.batch.x.shape[1] == 1:
            params = posterior.sample(jax.random.fold_in(self.key, self.steps), _SAMPLES)
            ends = jnp.array([[left], [right]])
            outputs = jax.vmap(lambda one: objective.model.outputs(one, {}, ends)[0])(params)
            return {"lines": np.asarray(outputs).reshape(_SAMPLES, 2)}
        x, y = np.meshgrid(np.linspace(left, right, _GRID), np.linspace(low, high, _GRID))
        pred = posterior.predict(np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float32), samples=_SAMPLES)
        return {"map": np.round(np.asarray(pred.mean), 3).reshape(_GRID, _GRID)}


def _plain(value: Any) -> Any:
    """Returns arrays as lists, and None for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
