"""Expectation maximisation: the shared variables of a graph at a point, its latents by exact conditionals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lamu import tree
from lamu.algorithms.closed_form.graph_bound import messages
from lamu.algorithms.closed_form.restarts import checked, in_each
from lamu.conjugate_target import message_target
from lamu.convergence import Convergence
from lamu.data.batch import Batch
from lamu.families import Point
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives.graph import GraphRule
from lamu.protocol import Choices, Info, Runnable, Traits
from lamu.record import record, static
from lamu.typing import RandomKey

__all__ = ["Em", "EmState", "em"]


@record
class EmState:
    """The point of every restart, along a leading axis, and where its log density stands."""

    theta: Any  # the shared variables by name
    log_density: Any  # of data and point before the last step, over T, in nats
    rise: Any  # of the last step, in nats
    settled: Any  # whether it has ceased to rise


@record
class Em(Runnable):
    """The algorithm that `em` makes."""

    tolerance: float  # the rise of the log density at which it stops, in nats a row
    restarts: int = static(default=1)  # how many starts

    @property
    def traits(self) -> Traits:
        return Traits(batching="full")

    @property
    def choices(self) -> Choices:
        return Choices("point, times exact conditionals", "Exact", "none needed", "straight, ρ = 1")

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> EmState:
        # Returns the mode after one update from random latents, for every restart.
        graph = message_target(objective.model)
        graph.require_messages("em()")
        temperature = jnp.asarray(objective.temperature, batch.weight.dtype)
        start = lambda key: {name: belief.mean for name, belief in graph.first_beliefs(key, batch, temperature).items()}
        theta = jax.jit(jax.vmap(start))(jax.random.split(key, self.restarts))
        none = jnp.full(self.restarts, -jnp.inf, batch.weight.dtype)
        return EmState(theta, none, -none, jnp.zeros(self.restarts, bool))

    def step(self, key: RandomKey, state: EmState, batch: Batch, objective: Objective) -> tuple[EmState, Info]:
        # Returns the state after one expectation and one maximisation; of restarts that have settled the same.
        new = in_each(state, lambda one: self._improved(one, batch, objective))
        best = jnp.argmax(new.log_density)
        residual = jnp.sqrt(2 * jnp.maximum(new.rise[best], 0.0))
        return new, Info(-new.log_density[best] / objective.concentration, residual)

    def _improved(self, state: EmState, batch: Batch, objective: Objective) -> EmState:
        graph: Any = objective.model
        theta, value = state.theta, state.log_density
        for number, names in enumerate(graph.blocks):
            energy, natural = messages(objective, graph.values(theta), names, batch)
            value = energy.astype(value.dtype) if number == 0 else value
            modes = {name: natural[name].mode() for name in names}
            theta = {
                **theta,
                **jax.tree.map(lambda new, old: new.astype(old.dtype), modes, {n: theta[n] for n in names}),
            }
        rise = value - state.log_density
        least = self.tolerance * batch.count.astype(value.dtype) + 4 * jnp.finfo(value.dtype).eps * jnp.abs(value)
        return EmState(theta, value, rise, rise <= least)

    def posterior(self, key: RandomKey, state: EmState, objective: Objective, data: Any, trace: Any) -> Posterior:
        # Returns the point θ of the best restart.
        best = jnp.argmax(state.log_density)
        state = jax.tree.map(lambda leaf: leaf[best], state)
        measured = None
        if not isinstance(state.rise, Tracer) and bool(jnp.isfinite(state.rise)):
            # The loss that a Newton step would still gain is half the square of a residual.
            residual = float(jnp.sqrt(2 * jnp.maximum(state.rise, 0.0)))
            size = max(tree.dimension(state.theta), 1)
            measured = Convergence(residual=residual, dimension=size, remedy="take more steps, with steps=")
        return Posterior(
            message_target(objective.model).of_theta().fitted_to(objective.data_size),
            Point({"network": state.theta, "likelihood": {}}),
            {},
            GraphRule(),
            key,
            convergence=measured,
            temperature=objective.temperature,
        )


def em(tolerance: float = 1e-8, restarts: int = 1) -> Em:
    r"""Expectation maximisation on a graph: its shared variables at a point θ, the latents of the rows exactly.

    \[ q(z_i) = p(z_i \mid x_i, \theta)^{1/T}, \qquad
       \theta_k \leftarrow \arg\max_{\theta_k} \langle \nabla_{T(\theta_k)} E_q[\log p],\, T(\theta_k) \rangle \]

    for one variable after the other, those that no factor brings together at once: every maximisation is the mode of a
    conjugate belief. The log density of data and point never falls. A temperature above one smooths the latents
    (deterministic annealing). A step is one gradient over all rows for each group of variables, without samples.

    Departures from the rule: the shared variables are a point, the limit of a belief without width, and the step to it
    an argmax.

    Args:
        tolerance: the rise of the log density in a step at which a run has settled, in nats a row.
        restarts: how many random starts run side by side; the posterior is the one with the best log density.

    Returns:
        The algorithm. Its posterior is the point θ, a maximum of the posterior density; of the likelihood where priors
        are flat. The fit says which components of a mixture hold less than one row.

    Raises:
        TypeError: (when it runs) for a model that is neither a `lamu.Graph` nor of `lamu.from_numpyro`, or one
            with a likelihood or a site that is not conjugate.
        ValueError: for a negative tolerance, or no restart.

    Source: Dempster, Laird & Rubin (1977); Neal & Hinton (1998), section 2; Khan & Rue (2021), section 3.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu import graphs
        >>> from lamu.families import Gamma
        >>> def counts(m):
        ...     rate = m.sample("rate", Gamma(1.0, 1e-6))
        ...     with m.rows():
        ...         m.sample("y", graphs.Poisson(rate))
        >>> posterior = lamu.fit(lamu.Graph(counts), {"y": jnp.array([2, 3, 4])}, lamu.algorithms.em()).posterior
        >>> round(float(posterior.mean["network"]["rate"]), 4)
        3.0
    """
    checked(tolerance, restarts)
    return Em(tolerance, restarts)
