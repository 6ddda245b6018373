r"""The rule for a mixture of Gaussians, \(q(\theta) = \sum_k \pi_k N(\theta \mid m_k, S_k^{-1})\)."""

# In the joint of θ and its component z the belief is a (minimal conditional) exponential family, and the natural
# gradient of \(E_q[\ell] - H(q)\) about component k needs \(\ell + \log q\) under that component alone (Lin, Khan &
# Schmidt 2019, section 4):
#
# \[ S_k \leftarrow S_k + \rho\, E_{q_k}[\nabla^2 (\ell + \log q)], \qquad
#    m_k \leftarrow m_k - \rho\, S_k^{-1} E_{q_k}[\nabla (\ell + \log q)] \]
# \[ \log \pi_k \leftarrow \log \pi_k - \rho_\pi\, E_{q_k}[\ell + \log q] + \text{const} \]
#
# with the new \(S_k\). For one component \(\nabla^2 \log q = -S\), and this is the rule for a Gaussian. The components
# see each other through log q: where they overlap, the responsibilities in its gradient push them apart. So the code is
# the rule for each component, on a loss to which \(\log q / \kappa\) was added.

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.expectations import Expectation
from lamu.families import Gaussian, Mixture, Point, Product
from lamu.geometry import Geometry, Retraction, Straight
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import Curvature
from lamu.objective.dispersions import dispersion_step
from lamu.operators import Dense
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.protocol import Choices, Info, Runnable, Traits
from lamu.rate import Rate
from lamu.record import record, static
from lamu.rule import gaussian_arrow
from lamu.typing import Array, Number, Params, RandomKey
from lamu.update_rules import Inverse

__all__ = ["MixtureRule", "MixtureState", "WithEntropy"]


@record
class WithEntropy(BatchLoss):
    r"""The mean loss and the belief's own log density, \(\bar\ell(\theta) + \log q(\theta) / \kappa\)."""

    belief: Any = None  # q, held

    def value(self, coordinates: Params, rest: Params, key: RandomKey | None) -> tuple[Array, Any]:
        value, state = super().value(coordinates, rest, key)
        return value + (self.belief.log_prob(coordinates) / self.objective.concentration).astype(value.dtype), state


@record
class MixtureState:
    """What the next step needs."""

    count: Any  # steps taken
    logits: Any  # log π, up to a constant, `[K]`
    mean: Params  # the means, stacked
    precision: Any  # P = S/κ of every component, the precision a row, stacked
    rest: Params  # dispersions: a point
    network_state: Any


@record
class MixtureRule(Runnable):
    """The rule for a mixture of Gaussians with dense precisions, as an algorithm; a recipe is a choice of its parts."""

    expectation: Expectation  # how the expectation under a component is taken
    curvature: Curvature  # what stands for the Hessian of ℓ + log q
    learning_rate: Rate
    weights_rate: Rate | None = None  # ρ_π; None where the weights are held equal
    geometry: Geometry = Retraction()  # how precisions move
    components: int = static(default=5)  # K
    init_precision: Number = 1.0  # the precision a row of every component at the start
    spread: Number = 1.0  # the deviation of the components' means from the initial weights at the start

    def __post_init__(self) -> None:
        if not isinstance(self.components, int) or self.components < 1:
            raise ValueError(f"components={self.components!r} makes no mixture; give a whole number of at least 1")
        for name in ("init_precision", "spread"):
            value = getattr(self, name)
            if isinstance(value, int | float) and not value > 0:
                raise ValueError(f"{name}={value!r} must be positive: components that are alike never part")

    @property
    def traits(self) -> Traits:
        # Minibatches, as long as the caller says, on real parameters of a network without a state.
        return Traits()

    @property
    def choices(self) -> Choices:
        departures = ["responsibilities at the means"] if type(self.expectation).__name__ == "Delta" else []
        departures += ["weights held"] if self.weights_rate is None else []
        departures += [] if isinstance(self.geometry, Straight) else ["retraction"]
        return Choices(
            family=f"mixture of {self.components} Gaussians, dense precision",
            expectation=type(self.expectation).__name__,
            curvature=type(self.curvature).__name__,
            geometry=type(self.geometry).__name__.lower(),
            departures=tuple(departures),
        )

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> MixtureState:
        # Returns components of equal weight around the network's initial weights.
        params_key, spread_key = jax.random.split(key)
        params, network_state = objective.model.init(params_key, batch)
        if jax.tree.leaves(network_state):
            raise ValueError(
                "a mixture over one network has no place for the batch statistics of several; give a network without "
                "a state, or run deep_ensemble"
            )
        centre, rest = NetworkParameters().split(params)
        keys = jax.vmap(lambda k: jax.random.fold_in(spread_key, k))(jnp.arange(self.components))
        mean = jax.vmap(lambda k: tree.add(centre, tree.normal(k, centre), self.spread))(keys)
        one = Dense.from_diagonal(jax.tree.map(lambda leaf: jnp.full_like(leaf, self.init_precision), centre))
        return MixtureState(
            count=jnp.zeros((), jnp.int32),
            logits=jnp.zeros(self.components, one.matrix.dtype),
            mean=mean,
            precision=jax.tree.map(lambda leaf: jnp.repeat(leaf[None], self.components, axis=0), one),
            rest=rest,
            network_state=network_state,
        )

    def belief(self, state: MixtureState, objective: Objective) -> Mixture:
        """Returns q, with its precisions on the scale of the data, S = κ P."""
        scaled = jax.vmap(lambda precision: precision.scale(objective.concentration))(state.precision)
        return Mixture(state.logits, Gaussian(state.mean, scaled))

    def step(
        self, key: RandomKey, state: MixtureState, batch: Batch, objective: Objective
    ) -> tuple[MixtureState, Info]:
        # Returns the state after one step of the rule on a batch, all components at once, under the old q.
        belief = self.belief(state, objective)
        roots = jax.vmap(lambda precision: precision.factored())(belief.components.precision)
        factored = Mixture(state.logits, Gaussian(state.mean, roots))
        loss = WithEntropy(objective, batch, state.network_state, NetworkParameters(), state.rest, belief=factored)
        rate = self.learning_rate(state.count)

        def component(key: RandomKey, q: Gaussian, precision: Dense) -> Any:
            at = self.expectation.evaluate(key, q, loss, self.curvature, Dense)
            target = jax.tree.map(jnp.add, precision, at.curvature)
            mean, precision, direction = gaussian_arrow(
                q.mean, precision, at.gradient, target, rate, geometry=self.geometry, metric=Inverse()
            )
            decrement = jnp.maximum(tree.dot(at.gradient, direction), 0.0)
            return mean, precision, at.value, at.rest, decrement

        keys = jax.vmap(lambda k: jax.random.fold_in(key, k))(jnp.arange(self.components))
        mean, precision, values, rests, decrements = jax.vmap(component)(keys, belief.components, state.precision)

        average = lambda leaf: jnp.tensordot(belief.weights.astype(leaf.dtype), leaf, axes=1)
        logits = state.logits
        if self.weights_rate is not None:
            worse = objective.concentration * (values - average(values))
            logits = jax.nn.log_softmax(logits - tree.cast(self.weights_rate(state.count), worse) * worse)
        return (
            MixtureState(
                count=state.count + 1,
                logits=logits,
                mean=mean,
                precision=precision,
                rest=dispersion_step(objective, state.rest, jax.tree.map(average, rests), rate),
                network_state=state.network_state,
            ),
            Info(loss=average(values), residual=jnp.sqrt(objective.concentration * average(decrements))),
        )

    def posterior(self, key: RandomKey, state: MixtureState, objective: Objective, data: Any, trace: Any) -> Posterior:
        # Returns the mixture beside its point dispersions.
        belief: Any = Product({"network": self.belief(state, objective), "likelihood": Point(state.rest)})
        return Posterior(
            objective.model, belief, state.network_state, Sampled(), key, temperature=objective.temperature
        )
