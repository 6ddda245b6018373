"""The Lie-group rule: the belief is a group acting on noise, and steps stay in the group."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import require_whole_field
from lamu.data.batch import Batch
from lamu.families import Point, Product
from lamu.geometry import ClippedAffine, Group
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.objective import dispersion_step
from lamu.posterior import Posterior
from lamu.protocol import Choices, Info, Runnable, Traits, recipe
from lamu.rate import Annealed, Rate, RateLike, decay, rate
from lamu.record import record, static
from lamu.typing import Data, Numeric, Params, PyTree, RandomKey, State, Trace
from lamu.update_rules import NoMomentum, PlainAverage

__all__ = ["LieGroup", "LieGroupState", "lie_group"]


@record
class LieGroupState:
    """State carried between steps."""

    count: Numeric  # steps taken
    element: State  # g
    momentum: State  # the state of the momentum
    rest: Params  # the dispersions, a point
    network_state: State


@record
class LieGroup(Runnable):
    """Algorithm of `lie_group`."""

    group: Group  # the group, with the noise it acts on
    learning_rate: Rate
    momentum: Any = NoMomentum()  # how gradients in the algebra are averaged
    samples: int = static(default=1)  # number of samples a step

    def __post_init__(self) -> None:
        require_whole_field(self, "samples", problem="cannot be averaged")

    @property
    def traits(self) -> Traits:
        # Minibatches, for as long as the caller says, on real parameters.
        return Traits(samples=self.samples)

    @property
    def choices(self) -> Choices:
        name = type(self.group).__name__
        words = "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()
        departures = (self.momentum.departure, self.group.departure)
        return Choices(
            family=f"{words} group on noise",
            expectation="MonteCarlo",
            curvature="none",
            geometry=f"Lie group, {words}",
            departures=tuple(word for word in departures if word),
        )

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> LieGroupState:
        # Returns the state at the network's initial weights.
        params, network_state = objective.model.init(key, batch)
        weights, rest = NetworkParameters().split(params)
        element = self.group.start(weights, objective.concentration)
        return LieGroupState(
            count=jnp.zeros((), jnp.int32),
            element=element,
            momentum=self.momentum.init(element),
            rest=rest,
            network_state=network_state,
        )

    def step(
        self, key: RandomKey, state: LieGroupState, batch: Batch, objective: Objective
    ) -> tuple[LieGroupState, Info]:
        # Returns the state after one step on a batch.
        loss = BatchLoss(objective, batch, state.network_state, NetworkParameters(), state.rest)

        def at_draw(key: RandomKey) -> PyTree:
            noise_key, layer_key = jax.random.split(key)
            noise = self.group.noise(noise_key, state.element)
            evaluated = loss.gradient(self.group.act(state.element, noise), layer_key)
            gradient = self.group.pull(state.element, noise, evaluated.coordinates, objective.concentration)
            return evaluated.value, gradient, evaluated.rest, evaluated.network_state

        value, gradient, rest_gradient, network_state = tree.average_over(at_draw, key, self.samples)
        rate, count = self.learning_rate(state.count), state.count + 1
        momentum, direction = self.momentum.follow(state.momentum, gradient, count)
        return (
            LieGroupState(
                count=count,
                element=self.group.move(state.element, direction, rate),
                momentum=momentum,
                rest=dispersion_step(objective, state.rest, rest_gradient, rate),
                network_state=network_state,
            ),
            Info(loss=value, residual=jnp.sqrt(tree.dot(direction, direction))),
        )

    def posterior(
        self, key: RandomKey, state: LieGroupState, objective: Objective, data: Data, trace: Trace
    ) -> Posterior:
        # Returns the belief of the element, with the dispersions as a point.
        belief = Product({"network": self.group.belief(state.element), "likelihood": Point(state.rest)})
        return Posterior.of(objective, belief, state.network_state, key)


@recipe("Kıral, Möllenhoff & Khan 2023")
def lie_group(
    group: Any = None,
    learning_rate: RateLike = Annealed(0.1, warmup=0.1),
    momentum: float = 0.9,
    samples: int = 1,
) -> LieGroup:
    r"""The Lie-group Bayesian learning rule.

    \[ \theta = g \cdot \epsilon, \qquad g \leftarrow g \exp(-\rho X), \qquad
       X = \nabla_{X'} \big( E[\bar\ell(g \exp(X') \cdot \epsilon)] - H / \kappa \big) \big|_{X' = 0} \]

    with ε noise from a fixed base distribution, and g an element of a group: `Additive` (SGD at samples),
    `Multiplicative` (weights keep their signs), `ExcitatoryInhibitory` (two of them a weight), `Affine` (a diagonal
    Gaussian), `ClippedAffine` or `FullAffine` (a dense one), all in `lamu.geometry`. A step cannot leave the group, so
    scales never become negative. The loss includes the prior. One gradient and one normal number a parameter, sample
    and step.

    Departures from the rule: the belief need not be an exponential family, and the path is the group's (equal to the
    rule to first order for `Affine` with share 1); momentum; a smaller rate for the scale; clipped steps.

    Args:
        group: the group, with its base distribution; `ClippedAffine(share=0.05)` where None.
        learning_rate: ρ, a number, a schedule of steps, or `Annealed`; in the units of the group.
        momentum: decay in [0, 1) of the averaged gradient in the algebra; zero for none.
        samples: number of samples a step.

    Returns:
        The algorithm. Its posterior is the group's belief; learned dispersions are a point.

    Raises:
        ValueError: for a rate that is not positive, a momentum outside [0, 1), or fewer than one sample.
        TypeError: if `group` is not a group.

    Source: Kıral, Möllenhoff & Khan (2023), the additive, multiplicative and affine rows.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.variational.lie_group import lie_group
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), lie_group(), epochs=100)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.95
        True
    """
    group = ClippedAffine(share=0.05) if group is None else group
    if not isinstance(group, Group):
        raise TypeError(f"group={group!r} is not a group; give for instance lamu.geometry.Affine()")
    return LieGroup(
        group=group,
        learning_rate=rate(learning_rate),
        momentum=PlainAverage(decay(momentum, "momentum")) if momentum else NoMomentum(),
        samples=samples,
    )
