"""How a stochastic-gradient sampler keeps its momentum: not at all, against friction, or against a thermostat's."""

# A momentum p has the law \(\mathcal N(0, T/N)\) a coordinate where the chain has settled, whatever the step size and
# the preconditioner are: both are in the impulse and in the step, so that schedules of either leave it alone.

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu import tree
from lamu.record import record
from lamu.typing import Number, Params

__all__ = ["Friction", "Overdamped", "Thermostat"]


@record
class Overdamped:
    """No momentum: it is drawn anew at every step, which is friction one."""

    friction = 1.0
    geometry = "overdamped Langevin paths"

    def init(self, like: Params) -> Any:
        """Returns nothing."""
        return {}

    def move(self, memory: Any, impulse: Params, step_size: Any, variance: Any) -> tuple[Any, Params]:
        """Returns the impulse as the momentum."""
        return memory, impulse


@record
class Friction:
    r"""A momentum that loses a share α a step: \(p \leftarrow (1 - \alpha)\, p + \text{impulse}\)."""

    friction: Number = 0.1  # α in (0, 1]; one is `Overdamped`, and 1 − α is an optimiser's momentum

    geometry = "underdamped Langevin paths"

    def __post_init__(self) -> None:
        _require_friction(self.friction)

    def init(self, like: Params) -> Any:
        """Returns a momentum of zero."""
        return {"p": tree.zeros_like(like)}

    def move(self, memory: Any, impulse: Params, step_size: Any, variance: Any) -> tuple[Any, Params]:
        """Returns the momentum after the impulse."""
        p = tree.add(impulse, memory["p"], 1.0 - self.friction)
        return {"p": p}, p


@record
class Thermostat:
    """A friction ζ of its own, which rises while the momentum is too hot: unknown noise is taken up by it."""

    # \[ p \leftarrow (1 - \zeta)\, p + \text{impulse}, \qquad
    #    \zeta \leftarrow \zeta + \frac{\epsilon}{Q} \Big(\big(1 - \tfrac\zeta2\big) \frac{N}{T}\,
    #    \frac{\lVert p \rVert^2}{d} - 1\Big) \]
    #
    # It takes up noise that is the same in every direction, and that of batches on the average over directions. The
    # factor is of steps that are not short: where \(\theta \leftarrow \theta + \sqrt\epsilon\, p\) settles on a
    # quadratic of curvature h, \(h\,E[\theta^2] = (1 - \zeta/2)\,E[p^2]\), and it is the parameters' temperature that
    # is to be held.

    friction: Number = 0.1  # α, at which ζ starts, and whose noise is added
    # Q, in rows: the larger, the slower. \(Q = N/T\) is the published one, which is slow for large N; the law of the
    # parameters does not depend on it. None for \(10\, \epsilon / \alpha^2\), with which ζ varies by a third of α or
    # less, whatever the units of the loss are, and then ζ is no larger than one.
    inertia: Number | None = 1.0

    geometry = "underdamped Langevin paths with a thermostat"

    def __post_init__(self) -> None:
        _require_friction(self.friction)
        if isinstance(self.inertia, int | float) and not self.inertia > 0:
            raise ValueError(f"inertia={self.inertia!r} is none; give a positive number")

    def init(self, like: Params) -> Any:
        """Returns a momentum of zero, and the friction it begins with."""
        return {"p": tree.zeros_like(like), "zeta": jnp.full((), self.friction, jnp.result_type(float))}

    def move(self, memory: Any, impulse: Params, step_size: Any, variance: Any) -> tuple[Any, Params]:
        """Returns the momentum after the impulse, and its friction after a look at its temperature."""
        zeta = memory["zeta"]
        p = tree.add(impulse, memory["p"], 1.0 - zeta)
        each = tree.dot(p, p).astype(zeta.dtype) / tree.dimension(p)
        # At temperature zero there is none to hold.
        hot = jnp.where(variance > 0, (1.0 - zeta / 2) * each / jnp.where(variance > 0, variance, 1.0) - 1.0, 0.0)
        if self.inertia is None:
            # Beyond one a momentum would turn round, and where batches are very hot the rise would not end.
            return {"p": p, "zeta": jnp.minimum(zeta + self.friction**2 / 10.0 * hot, 1.0)}, p
        return {"p": p, "zeta": zeta + step_size / self.inertia * hot}, p


def _require_friction(friction: Any) -> None:
    if isinstance(friction, int | float) and not 0 < friction <= 1:
        raise ValueError(
            f"friction={friction!r}: without friction the noise of batches heats a chain without bound; give a number "
            "above 0 and up to 1"
        )
