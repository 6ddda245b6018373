"""The plane of a target's two parameters as a picture: filled contours of the log density at a temperature."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from examples.playground.targets import PlayTarget

from lamu import tree
from lamu.objective import Objective

__all__ = ["contours"]

_GRID = 161
# Below the top, in nats: where a standard normal of two numbers is at half a deviation, at one, at two, ...
_DEPTHS = (0.125, 0.5, 2.0, 4.5, 8.0)


def contours(target: PlayTarget, temperature: float) -> list[list[list[list[float]]]]:
    r"""Returns the regions in which \(\log p(\theta) / T\) is within some nats of its top, the widest first."""
    from matplotlib.figure import Figure

    x, y, values = _grid(target)
    values = (values - values.max()) / temperature
    axes = Figure().subplots()
    regions = []
    for depth in reversed(_DEPTHS):
        filled: Any = axes.contourf(x, y, values, levels=(-depth, 1.0))
        lines = filled.get_paths()[0].to_polygons()
        regions.append(np.round(line, 3).tolist() for line in lines)
    return [list(region) for region in regions]


@cache
def _grid(target: PlayTarget) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the two axes of the window and the log density at temperature one, `[grid, grid]`."""
    left, right, low, high = target.window or (0.0, 1.0, 0.0, 1.0)
    x, y = np.linspace(left, right, _GRID), np.linspace(low, high, _GRID)
    batch = target.rows.full()
    objective = Objective(target.model, float(target.rows.count))
    params, state = target.model.init(jax.random.key(0), batch)
    _, unravel = tree.ravel(params["network"])

    @jax.jit
    @jax.vmap
    def log_density(point: jax.Array) -> jax.Array:
        return objective.log_target({**params, "network": unravel(point)}, batch, state)

    points = np.stack([each.ravel() for each in np.meshgrid(x, y)], axis=1)
    return x, y, np.asarray(log_density(jnp.asarray(points, jnp.result_type(float)))).reshape(_GRID, _GRID)
