"""Mixtures of Gaussians as beliefs: variational inference and multimodal optimisation."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import require, require_whole_field
from lamu.data.batch import Batch
from lamu.expectations import Delta, Expectation, MonteCarlo
from lamu.families import Gaussian, Mixture, Point, Product
from lamu.geometry import Geometry, Retraction, Straight
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import Curvature, Hessian
from lamu.objective.objective import dispersion_step
from lamu.operators import Dense
from lamu.posterior import Posterior
from lamu.protocol import Choices, Info, Runnable, Traits, recipe
from lamu.rate import Annealed, Rate, RateLike, rate
from lamu.record import record, static
from lamu.rule import gaussian_arrow
from lamu.typing import Array, Belief, Data, Number, Numeric, OperatorTree, Params, RandomKey, State, Trace
from lamu.update_rules import Inverse

__all__ = ["MixtureRule", "MixtureState", "WithEntropy", "mixture_vi", "multimodal"]


# In the joint of θ and its component z the belief is a (minimal conditional) exponential family, and the natural
# gradient of \(E_q[\ell] - H(q)\) about component k needs \(\ell + \log q\) under that component alone (Lin, Khan &
# Schmidt 2019, section 4):
#
# \[ S_k \leftarrow S_k + \rho\, E_{q_k}[\nabla^2 (\ell + \log q)], \qquad
#    m_k \leftarrow m_k - \rho\, S_k^{-1} E_{q_k}[\nabla (\ell + \log q)] \]
# \[ \log \pi_k \leftarrow \log \pi_k - \rho_\pi\, E_{q_k}[\ell + \log q] + \text{const} \]
#
# with the new \(S_k\). For one component \(\nabla^2 \log q = -S\), and this is the rule for a Gaussian. The components
# interact through log q: where they overlap, the responsibilities in its gradient push them apart. The code is
# therefore the rule for each component, on the loss plus \(\log q / \kappa\).


@record
class WithEntropy(BatchLoss):
    r"""The mean loss plus the belief's log density, \(\bar\ell(\theta) + \log q(\theta) / \kappa\)."""

    belief: Belief = None  # q, fixed

    def value(self, coordinates: Params, rest: Params, key: RandomKey | None) -> tuple[Array, State]:
        value, state = super().value(coordinates, rest, key)
        return value + (self.belief.log_prob(coordinates) / self.objective.concentration).astype(value.dtype), state


@record
class MixtureState:
    """State of a mixture between steps."""

    count: Numeric  # steps taken
    logits: Array  # log π, up to a constant, `[K]`
    mean: Params  # the means, stacked
    precision: OperatorTree  # P = S/κ of every component, the precision a row, stacked
    rest: Params  # dispersions: a point
    network_state: State


@record
class MixtureRule(Runnable):
    """The rule for a mixture of Gaussians with dense precisions; recipes choose its parts."""

    expectation: Expectation  # how the expectation under a component is taken
    curvature: Curvature  # the approximation of the Hessian of ℓ + log q
    learning_rate: Rate
    weights_rate: Rate | None = None  # ρ_π; None for fixed equal weights
    geometry: Geometry = Retraction()  # how precisions move
    components: int = static(default=5)  # K
    init_precision: Number = 1.0  # the precision a row of every component at the start
    spread: Number = 1.0  # the standard deviation of the components' means around the initial weights

    def __post_init__(self) -> None:
        require_whole_field(self, "components")
        for name in ("init_precision", "spread"):
            value = getattr(self, name)
            require(value > 0, f"{name}={value!r} must be positive: equal components remain equal")

    @property
    def traits(self) -> Traits:
        # Minibatches, for as long as the caller says, on real parameters of a network without a state.
        return Traits(samples=getattr(self.expectation, "samples", None))

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
        initial = Dense.from_diagonal(jax.tree.map(lambda leaf: jnp.full_like(leaf, self.init_precision), centre))
        return MixtureState(
            count=jnp.zeros((), jnp.int32),
            logits=jnp.zeros(self.components, initial.matrix.dtype),
            mean=mean,
            precision=jax.tree.map(lambda leaf: jnp.repeat(leaf[None], self.components, axis=0), initial),
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
        # Returns the state after one step on a batch, which updates all components at once under the old q.
        belief = self.belief(state, objective)
        roots = jax.vmap(lambda precision: precision.factored())(belief.components.precision)
        factored = Mixture(state.logits, Gaussian(state.mean, roots))
        loss = WithEntropy(objective, batch, state.network_state, NetworkParameters(), state.rest, belief=factored)
        rate = self.learning_rate(state.count)

        def component(key: RandomKey, q: Gaussian, precision: Dense) -> Params:
            evaluated = self.expectation.evaluate(key, q, loss, self.curvature, Dense)
            target = jax.tree.map(jnp.add, precision, evaluated.curvature)
            mean, precision, direction = gaussian_arrow(
                q.mean, precision, evaluated.gradient, target, rate, geometry=self.geometry, metric=Inverse()
            )
            decrement = jnp.maximum(tree.dot(evaluated.gradient, direction), 0.0)
            return mean, precision, evaluated.value, evaluated.rest, decrement

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

    def posterior(
        self, key: RandomKey, state: MixtureState, objective: Objective, data: Data, trace: Trace
    ) -> Posterior:
        # Returns the mixture, with the dispersions as a point.
        belief: Belief = Product({"network": self.belief(state, objective), "likelihood": Point(state.rest)})
        return Posterior.of(objective, belief, state.network_state, key)


@recipe("Lin, Khan & Schmidt 2019")
def mixture_vi(
    learning_rate: RateLike = Annealed(0.1),
    components: int = 5,
    samples: int = 4,
    weights_rate: RateLike = Annealed(0.1),
    init_precision: float = 1.0,
    spread: float = 1.0,
) -> MixtureRule:
    r"""Non-conjugate variational inference with a mixture of Gaussians: the rule for a conditional exponential family.

    \[ S_k \leftarrow S_k + \rho\, E_{q_k}[\nabla^2 (\ell + \log q)], \qquad
       m_k \leftarrow m_k - \rho\, S_k^{-1} E_{q_k}[\nabla (\ell + \log q)] \]
    \[ \log (\pi_k / \pi_K) \leftarrow \log (\pi_k / \pi_K)
       - \rho_\pi \big( E_{q_k}[\ell + \log q] - E_{q_K}[\ell + \log q] \big) \]

    with q the whole mixture. For S draws a component, K S gradients and Hessians (one Hessian-vector product a
    parameter each) and K factorisations of cubic cost a step: for small problems.

    Departures from the rule: the retraction; a separate rate for the weights.

    Args:
        learning_rate: ρ, a number, a schedule of steps, or `Annealed`.
        components: K.
        samples: S.
        weights_rate: ρ_π.
        init_precision: the precision of every component at the start, a row.
        spread: the standard deviation of the components' starts around the initial parameters.

    Returns:
        The algorithm. Its posterior is the mixture; its loss is the negative evidence lower bound per row.

    Raises:
        ValueError: for a rate, precision or spread that is not positive, fewer than one component or sample, or, in
            `init`, a network with a state.

    Source: Lin, Khan & Schmidt (2019), "Fast and simple natural-gradient variational inference with mixture of
        exponential-family approximations", section 4.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.algorithms.mixtures import mixture_vi
        >>> from lamu.density import LogDensity, nothing
        >>> wells = LogDensity(lambda x: -jnp.sum((x**2 - 1.0) ** 2), jnp.zeros(1))
        >>> posterior = lamu.fit(wells, nothing(), mixture_vi(components=2), steps=200).posterior
        >>> posterior.belief.factors["network"].count
        2
    """
    return MixtureRule(
        expectation=MonteCarlo(samples),
        curvature=Hessian(),
        learning_rate=rate(learning_rate),
        weights_rate=rate(weights_rate, "weights_rate"),
        components=components,
        init_precision=init_precision,
        spread=spread,
    )


@recipe("Khan & Rue 2021, section 3; Lin et al. 2019")
def multimodal(
    learning_rate: RateLike = 0.1, components: int = 10, init_precision: float = 10.0, spread: float = 1.0
) -> MixtureRule:
    r"""Multimodal optimisation: finds several modes with a mixture of Gaussians and the delta method.

    With \(r_j(\theta) = \pi_j N(\theta \mid m_j, S_j^{-1}) / q(\theta)\) the responsibilities,

    \[ S_k \leftarrow S_k + \rho\, \big(\nabla^2 \ell + \nabla^2 \log q\big)(m_k), \qquad
       m_k \leftarrow m_k - \rho\, S_k^{-1} \Big( \nabla\ell(m_k) - \sum_j r_j(m_k)\, S_j (m_k - m_j) \Big) \]

    An isolated component ends at a mode, with the Hessian there as its precision; overlapping components repel
    each other, so that they find more modes than as many independent runs. K gradients, K Hessians (one Hessian-vector
    product a parameter each) and K factorisations of cubic cost a step: for small problems.

    Departures from the rule: expectations, and with them the responsibilities, are taken at the means; the weights are
    fixed and equal; the retraction, without which the Hessian between modes would make precisions negative.

    Args:
        learning_rate: ρ, a number or a schedule of steps.
        components: K.
        init_precision: the precision of every component at the start, a row.
        spread: the standard deviation of the components' starts around the initial parameters.

    Returns:
        The algorithm. Its posterior is the mixture; `posterior.belief.factors["network"].components.mean` has the
        modes.

    Raises:
        ValueError: for a rate, precision or spread that is not positive, fewer than one component, or, in `init`,
            a network with a state.

    Source: Khan & Rue (2021), section 3 (multimodal optimization); Lin, Khan & Schmidt (2019), section 3.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.algorithms.mixtures import multimodal
        >>> from lamu.density import LogDensity, nothing
        >>> wells = LogDensity(lambda x: -jnp.sum((x**2 - 1.0) ** 2), jnp.zeros(1))
        >>> fit = lamu.fit(wells, nothing(), multimodal(components=4), steps=200)
        >>> means = fit.posterior.belief.factors["network"].components.mean
        >>> sorted({round(float(mean)) for mean in means.ravel()})
        [-1, 1]
    """
    return MixtureRule(
        expectation=Delta(),
        curvature=Hessian(),
        learning_rate=rate(learning_rate),
        components=components,
        init_precision=init_precision,
        spread=spread,
    )
