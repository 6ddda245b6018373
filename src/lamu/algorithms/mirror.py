"""Mirror descent: gradient steps in the coordinates of a mirror map."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import tree
from lamu.data.batch import Batch
from lamu.families import Point
from lamu.objective import AllParameters, BatchLoss, Objective
from lamu.posterior import Posterior
from lamu.protocol import Choices, Info, Runnable, recipe
from lamu.rate import Annealed, Rate, RateLike, rate
from lamu.record import record
from lamu.typing import Array, Data, Number, Numeric, Params, RandomKey, State, Trace

__all__ = ["Entropy", "Hypentropy", "MirrorDescent", "MirrorState", "Simplex", "mirror_descent"]


@record
class Hypentropy:
    r"""The hyperbolic entropy, for real parameters: \(\nabla\psi(\theta) = \mathrm{arcsinh}(\theta/\beta)\).

    Parameters well above β move by factors, as in exponentiated gradient with two signs; those well below by
    differences, as in gradient descent with the rate \(\rho\beta\).

    Attributes:
        beta: β, positive.

    Source: Ghai, Hazan & Singer (2020).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.algorithms import Hypentropy
        >>> mirror = Hypentropy(0.5)
        >>> round(float(mirror.to_primal(mirror.to_dual(jnp.array(-2.0)))), 4)
        -2.0
    """

    beta: Number = 1.0

    def check(self, theta: Array) -> None:
        """Raises a ValueError if β is not positive; every real parameter is valid."""
        if not self.beta > 0:
            raise ValueError(f"beta={self.beta!r} is not a scale of the parameters; give a positive number")

    def to_dual(self, theta: Array) -> Array:
        """Returns arcsinh(θ/β)."""
        return jnp.arcsinh(theta / self.beta)

    def to_primal(self, dual: Array) -> Array:
        """Returns β sinh of the dual coordinates."""
        return self.beta * jnp.sinh(dual)


@record
class Entropy:
    r"""The negative entropy, for positive parameters: \(\nabla\psi(\theta) = \log\theta\), unnormalised.

    A step multiplies every parameter: \(\theta \leftarrow \theta\, e^{-\rho g}\), exponentiated gradient.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.algorithms import Entropy
        >>> Entropy().to_primal(Entropy().to_dual(jnp.array(2.0)) - jnp.log(2.0)).item()
        1.0
    """

    def check(self, theta: Array) -> None:
        """Raises a ValueError unless all are positive."""
        _require_positive(theta, "Entropy()")

    def to_dual(self, theta: Array) -> Array:
        """Returns log θ."""
        return jnp.log(theta)

    def to_primal(self, dual: Array) -> Array:
        """Returns the exponential."""
        return jnp.exp(dual)


@record
class Simplex:
    r"""The negative entropy on probabilities: \(\theta \propto \theta\, e^{-\rho g}\), normalised.

    The last axis of every array is a distribution. With a loss that is linear in θ this is Hedge
    (`lamu.rule.hedge_step`), and θ are the expectation parameters of a Categorical belief.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.algorithms import Simplex
        >>> Simplex().to_primal(jnp.zeros(4)).tolist()
        [0.25, 0.25, 0.25, 0.25]
    """

    def check(self, theta: Array) -> None:
        """Raises a ValueError unless all are positive and sum to one."""
        _require_positive(theta, "Simplex()")
        sums = np.sum(np.asarray(theta), axis=-1)
        if not np.allclose(sums, 1.0, atol=1e-4):
            raise ValueError(f"probabilities sum to {np.ravel(sums)[0]:.6g} at the start; divide them by their sum")

    def to_dual(self, theta: Array) -> Array:
        """Returns log θ."""
        return jnp.log(theta)

    def to_primal(self, dual: Array) -> Array:
        """Returns the probabilities."""
        return jax.nn.softmax(dual, axis=-1)


def _require_positive(theta: Array, mirror_map: str) -> None:
    if not (np.asarray(theta) > 0).all():
        least = np.asarray(theta).min()
        raise ValueError(f"{mirror_map} is for positive parameters, and one starts at {least:.6g}; use Hypentropy()")


@record
class MirrorState:
    """Steps taken, parameters, and the network's state."""

    count: Numeric
    params: Params
    network_state: State


@record
class MirrorDescent(Runnable):
    """Algorithm of `mirror_descent`."""

    learning_rate: Rate
    mirror_map: Any = Hypentropy()

    @property
    def choices(self) -> Choices:
        name = type(self.mirror_map).__name__
        return Choices("point", "Delta", "none", f"mirror map {name}", departures=("entropy dropped",))

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> MirrorState:
        # Returns the initial parameters, which must lie in the mirror map's domain.
        params, network_state = objective.model.init(key, batch)
        for leaf in jax.tree.leaves(params["network"]):
            if not isinstance(leaf, Tracer):
                self.mirror_map.check(leaf)
        return MirrorState(jnp.zeros((), jnp.int32), params, network_state)

    def step(self, key: RandomKey, state: MirrorState, batch: Batch, objective: Objective) -> tuple[MirrorState, Info]:
        # Returns the state after one step in the dual coordinates; dispersions take a gradient step.
        loss = BatchLoss(objective, batch, state.network_state, AllParameters(), {})
        evaluated, rho = loss.gradient(state.params, key), self.learning_rate(state.count)

        def move(theta: Array, gradient: Array) -> Array:
            dual = self.mirror_map.to_dual(theta) - tree.cast(rho, theta) * gradient
            return self.mirror_map.to_primal(dual).astype(theta.dtype)

        params = tree.add(state.params, evaluated.coordinates, -rho)
        params = {**params, "network": jax.tree.map(move, state.params["network"], evaluated.coordinates["network"])}
        norm = jnp.sqrt(tree.dot(evaluated.coordinates, evaluated.coordinates))
        return MirrorState(state.count + 1, params, evaluated.network_state), Info(evaluated.value, norm)

    def posterior(
        self, key: RandomKey, state: MirrorState, objective: Objective, data: Data, trace: Trace
    ) -> Posterior:
        return Posterior.of(objective, Point(state.params), state.network_state, key)


@recipe("Nemirovski & Yudin 1983; Khan & Rue 2021, section 5.4")
def mirror_descent(learning_rate: RateLike = Annealed(0.1), mirror_map: Any = None) -> MirrorDescent:
    r"""Mirror descent: a gradient step in the coordinates of a mirror map \(\nabla\psi\), mapped back.

    \[ \nabla\psi(\theta') = \nabla\psi(\theta) - \rho\, \nabla\bar\ell(\theta) \iff
       \theta' = \arg\min_\vartheta\; \langle \nabla\bar\ell(\theta), \vartheta \rangle
       + \tfrac1\rho D_\psi(\vartheta \,\|\, \theta) \]

    The rule is mirror descent in μ, with the map of its family, \(\lambda = \nabla A^*(\mu)\); this recipe takes the
    same step for a point, with any map: `Hypentropy` for real weights, `Entropy` for positive ones
    (exponentiated gradient), `Simplex` for probabilities (Hedge, where the loss is linear). Dispersions take gradient
    steps. One gradient a step.

    Departures from the rule: the entropy is dropped, so that the belief is a point; the delta method; the gradient is a
    minibatch's.

    Args:
        learning_rate: ρ, of the mean loss a row.
        mirror_map: an object with `to_dual(theta)`, `to_primal(dual)` and `check(theta)`; `Hypentropy()` where None.

    Returns:
        The algorithm. Its posterior is the point θ.

    Raises:
        ValueError: for a rate that is not positive, or parameters that start outside the map's domain.

    Source: Nemirovski & Yudin (1983); Beck & Teboulle (2003); Raskutti & Mukherjee (2015) and Khan & Rue (2021) for the
    rule; Kivinen & Warmuth (1997) for exponentiated gradient.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> losses = jnp.array([0.3, 0.1, 0.6])
        >>> experts = lamu.LogDensity(lambda w: -jnp.sum(w * losses), jnp.full(3, 1 / 3))
        >>> hedge = lamu.algorithms.mirror_descent(1.0, lamu.algorithms.Simplex())
        >>> w = lamu.fit(experts, None, hedge, steps=50).posterior.mean["network"]
        >>> bool(jnp.allclose(w, jnp.exp(-50 * losses) / jnp.sum(jnp.exp(-50 * losses)), atol=1e-5))
        True
    """
    return MirrorDescent(rate(learning_rate), Hypentropy() if mirror_map is None else mirror_map)
