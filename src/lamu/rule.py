r"""The Bayesian learning rule, and algorithms as instances of it.

\[ \lambda \leftarrow \lambda - \rho\, \nabla_\mu \big( E_q[\ell(\theta)] - H(q) \big) \]

(Khan & Rue 2021, equation 22). Where the base measure is constant \(\nabla_\mu H = -\lambda\), and the rule moves λ
straight towards \(-\nabla_\mu E_q[\ell]\). For a Gaussian, with Bonnet's and Price's theorems, it reads exactly

\[ S \leftarrow S + \rho\,\big(E_q[\nabla^2 \ell] - S\big), \qquad m \leftarrow m - \rho\, S^{-1} E_q[\nabla\ell] \]

with the *new* S and both expectations under the *old* q. An algorithm makes a choice for each symbol:

| algorithm | q: structure of S | E_q | ∇² | the arrow | departures |
|---|---|---|---|---|---|
| gradient descent | fixed | delta | none | straight | none |
| VON | diagonal or dense | Monte Carlo | Hessian | straight | none |
| IVON | diagonal | Monte Carlo | Price's identity | retraction | momentum, two rates |
| SAM | fixed | worst case | none | straight | normalised ascent |

`natural_step` is the rule for any exponential family, in λ. `gaussian_step` is the same step in the coordinates (m, S)
that are numerically best. `Rule` makes an algorithm of the choices. All quantities are on the mean scale of
`docs/scale.md`: \(\bar\ell = \ell/N\), S = κ P with \(\kappa = N/T\), so that rates, damping and clipping do not depend
on N.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu import predictives, tree
from lamu.base.arguments import require, require_whole_field
from lamu.data.batch import Batch
from lamu.expectations import Delta, Expectation
from lamu.families import Categorical, Gaussian, Point, Product
from lamu.families.exponential import values_of, with_values
from lamu.geometry import Accumulation, Geometry, Straight
from lamu.objective import AllParameters, BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import ClippedGradient, Curvature, Evaluation, NoCurvature, fisher_diagonal
from lamu.objective.objective import dispersion_step
from lamu.operators import AnyStructure, Dense, Diagonal, Scalar
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.protocol import Choices, Info, Runnable, Traits
from lamu.rate import Rate
from lamu.record import record, static
from lamu.typing import Array, Belief, Data, Number, Numeric, OperatorTree, Params, RandomKey, State, Statistics, Trace
from lamu.update_rules import Inverse, NoMomentum

__all__ = ["Rule", "RuleState", "gaussian_arrow", "gaussian_step", "hedge_step", "natural_step"]

# For the initial precision; conventions, which the rule forgets at its own rate.
_ROWS = 64  # of the example, whose curvature is the initial precision
_LEAST = 1e-4  # its lower bound, as rows of zeros carry no information


def natural_step(natural: Statistics, gradient: Statistics, rate: Numeric) -> Statistics:
    r"""Returns \(\lambda - \rho\,(\nabla_\mu E_q[\ell] + \lambda)\), the rule for a family with constant base measure.

    Args:
        natural: λ: natural parameters, those of a product by name, or a tree of values.
        gradient: \(\nabla_\mu E_q[\ell]\), with the same leaves: natural parameters, or expectation parameters, as
            `jax.grad` of a loss written in μ gives them.
        rate: ρ.

    Examples:
        >>> from lamu.rule import natural_step
        >>> natural_step({"first": 1.0}, {"first": -3.0}, 0.5)  # half-way from the old belief to the new information
        {'first': 2.0}
    """
    # Of the values alone: static parameters of a family do not change.
    return with_values(natural, Straight().move(values_of(natural), tree.scale(values_of(gradient), -1.0), rate))


def hedge_step(belief: Categorical, losses: Array, rate: Numeric) -> Categorical:
    r"""Returns the weights of experts after one round of Hedge, which is the rule for a Categorical belief.

    The expected loss \(\langle \mu, \ell \rangle\) of an expert drawn from the belief is linear in μ, so its gradient
    is ℓ, and the step without the entropy adds to λ:

    \[ \lambda \leftarrow \lambda - \rho\, \nabla_\mu \langle \mu, \ell \rangle \iff
       w_i \leftarrow \frac{w_i\, e^{-\rho \ell_i}}{\sum_j w_j\, e^{-\rho \ell_j}} \]

    With \(\ell_i = -\log p_i(y)\) and ρ = 1 it is Bayes' rule. After T rounds of arbitrary losses in [0, 1] the sum of
    expected losses exceeds the best expert's by at most \(\log n / \rho + \rho T / 8\), which is \(\sqrt{T \log n /
    2}\) for \(\rho = \sqrt{8 \log n / T}\).

    Departures from the rule: the entropy is dropped, so that nothing is forgotten.

    Args:
        belief: the experts' weights.
        losses: the loss of each expert in this round, `[n]`.
        rate: ρ.

    Raises:
        ValueError: for losses of another shape than the weights.

    Source: Freund & Schapire (1997); Cesa-Bianchi & Lugosi (2006), theorem 2.2.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Categorical
        >>> from lamu.rule import hedge_step
        >>> after = hedge_step(Categorical(jnp.zeros(2)), jnp.array([0.0, 1.0]), jnp.log(3.0))
        >>> [round(float(weight), 4) for weight in after.mean]
        [0.75, 0.25]
    """
    losses = jnp.asarray(losses, jnp.result_type(belief.logits))
    if losses.shape != jnp.shape(belief.logits):
        raise ValueError(
            f"losses of the shape {losses.shape} do not fit weights of {jnp.shape(belief.logits)}; give one an expert"
        )
    gradient = losses[..., :-1] - losses[..., -1:]  # of ⟨μ, ℓ⟩ in the minimal μ, which leaves the last expert out
    return Accumulation().step(belief, -gradient, rate)


def gaussian_step(
    belief: Gaussian, gradient: Params, hessian: OperatorTree, rate: Numeric, geometry: Geometry | None = None
) -> Gaussian:
    r"""Returns the Gaussian after one step of the rule.

    Args:
        belief: q, with mean m and precision S.
        gradient: \(E_q[\nabla\ell]\), a sum over the data.
        hessian: \(E_q[\nabla^2\ell]\), an operator of the structure of S, a sum over the data.
        rate: ρ.
        geometry: the path of S; by default straight, which is the rule itself.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.families import Gaussian
        >>> from lamu.operators import Diagonal, Scalar, Structure
        >>> from lamu.rule import gaussian_step
        >>> q = gaussian_step(Gaussian(jnp.zeros(1), Scalar(1.0)), jnp.full(1, -2.0), Scalar(4.0), rate=1.0)
        >>> float(q.mean[0]), q.precision.value  # Newton's step; the new precision is the Hessian
        (0.5, 4.0)
    """
    mean, precision, _ = gaussian_arrow(
        belief.mean, belief.precision, gradient, hessian, rate, geometry=geometry or Straight(), metric=Inverse()
    )
    return Gaussian(mean, precision)


def gaussian_arrow(
    mean: Params,
    precision: OperatorTree,
    gradient: Params,
    target: OperatorTree,
    rate: Numeric,
    *,
    geometry: Geometry,
    metric: Any,
    precision_rate: Numeric | None = None,
    count: Numeric = 1,
) -> tuple[Params, OperatorTree, Params]:
    r"""Returns mean and precision after one step of the rule, and the direction d of the mean.

    \[ P \leftarrow \mathrm{move}_{\rho_P}(P, H), \qquad d = \mathrm{metric}(P, g), \qquad m \leftarrow m - \rho_m d \]

    Args:
        mean: m.
        precision: P, on any scale.
        gradient: g, on that scale.
        target: H; None where P does not change.
        rate: \(\rho_m\).
        geometry: the path of P.
        metric: makes a direction of the new P and g.
        precision_rate: \(\rho_P\); `rate` where None.
        count: the number of the step, from one, for metrics that depend on it.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.update_rules import Inverse
        >>> from lamu.geometry import Straight
        >>> from lamu.operators import Scalar
        >>> from lamu.rule import gaussian_arrow
        >>> at = (jnp.zeros(1), Scalar(1.0), jnp.full(1, -2.0), Scalar(4.0))
        >>> mean, precision, direction = gaussian_arrow(*at, 1.0, geometry=Straight(), metric=Inverse())
        >>> float(mean[0]), precision.value, float(direction[0])
        (0.5, 4.0, -0.5)
    """
    precision_rate = rate if precision_rate is None else precision_rate
    if target is not None:
        precision = geometry.move(precision, target, precision_rate)
    direction = metric.direction(precision, gradient, count, precision_rate)
    return tree.add(mean, direction, -rate), precision, direction


@record
class RuleState:
    r"""State of the rule between steps.

    Attributes:
        count: steps taken.
        mean: m.
        precision: P = S/κ, the precision a row; for a metric with a square root the average of squares.
        momentum: the state of the momentum.
        rest: the parameters outside of the belief (dispersions), a point.
        network_state: the network's state.
        first_invalid_step: the step at which the precision first became indefinite, 0 where it has not; None where it
            cannot.

    Examples:
        >>> from lamu.rule import RuleState
        >>> RuleState(count=0, mean={}, precision=None, momentum={}, rest={}, network_state={}).count
        0
    """

    count: Numeric
    mean: Params
    precision: OperatorTree
    momentum: Params
    rest: Params
    network_state: State
    first_invalid_step: Numeric | None = None


@record
class Rule(Runnable):
    r"""The rule for a Gaussian belief, as an algorithm; recipes choose its parts.

    One step, on the mean scale, with \(\delta/N\) the prior's precision a row where the prior is Gaussian:

    \[ P \leftarrow \mathrm{move}_{\rho_P}\big(P,\; E_q[\nabla^2\bar\ell] + \delta/N\big), \qquad
       m \leftarrow m - \rho_m\, \mathrm{metric}\big(P,\; \mathrm{momentum}(E_q[\nabla\bar\ell]) + (\delta/N)(m -
       m_0)\big) \]

    A belief with a fixed covariance, or with a square-root scale, does not describe uncertainty: its posterior is the
    point m, it covers all parameters, and the prior is a part of its loss. Any other belief covers the network's
    weights; the Gaussian leaves of the prior enter it exactly and the others through the loss. Dispersions are updated
    as a point, along their gradient divided by their Fisher information (the rule with that covariance fixed).

    Attributes:
        structure: the operator class of the precision.
        expectation: the estimator of E_q.
        curvature: the approximation of ∇².
        geometry: the path of P.
        learning_rate: \(\rho_m\).
        precision_rate: \(\rho_P\); the learning rate where None, as in the rule.
        momentum: replaces the gradient by an average of gradients.
        metric: makes a direction of P and a gradient.
        hess_init: the initial curvature a row, h₀ (P starts at h₀ + δ/N); where None, the mean over each leaf of the
            Fisher information of the example batch at the network's initial weights.
        curvature_update_period: the steps k between updates of the curvature and of P, at the rate of k steps,
            \(1 - (1 - \rho_P)^k\); the steps between cost a gradient.

    Examples:
        >>> import lamu
        >>> lamu.algorithms.von().choices.departures
        ()
    """

    structure: Any = static()
    expectation: Expectation
    curvature: Curvature
    learning_rate: Rate
    geometry: Geometry = Straight()
    precision_rate: Rate | None = None
    momentum: Any = NoMomentum()
    metric: Any = Inverse()
    hess_init: Number | None = 1.0
    curvature_update_period: int = static(default=1)

    def __post_init__(self) -> None:
        require_whole_field(self, "curvature_update_period")
        if not hasattr(self.structure, "from_diagonal"):
            raise TypeError(f"structure={self.structure!r} is no structure of a precision; give for instance Diagonal")
        start = 0.0 if self.hess_init is None else self.hess_init
        require(start >= 0, f"hess_init={start!r} is no curvature of a row to start at; give a positive number")

    @property
    def keeps_uncertainty(self) -> bool:
        """Whether the precision is learned and is one; else the posterior is a point."""
        return self.metric.is_precision and not _is_none(self.curvature)

    @property
    def can_become_indefinite(self) -> bool:
        """Whether a step could make the precision indefinite, which the state then records."""
        return self.keeps_uncertainty and not self.geometry.stays_positive

    @property
    def space(self) -> AllParameters | NetworkParameters:
        """The parameters that the belief covers."""
        return NetworkParameters() if self.keeps_uncertainty else AllParameters()

    @property
    def traits(self) -> Traits:
        """Minibatches, a length set by the caller, real parameters."""
        return Traits(samples=getattr(self.expectation, "samples", None))

    @property
    def choices(self) -> Choices:
        fixed = _is_none(self.curvature)
        departures = [part.departure for part in (self.expectation, self.momentum, self.metric)]
        if self.precision_rate is not None:
            departures.append("two rates")
        if self.curvature_update_period > 1:
            departures.append(f"curvature every {self.curvature_update_period} steps")
        departures += [part.departure for part in (self.geometry, self.curvature)]
        return Choices(
            family="Gaussian, fixed covariance" if fixed else f"Gaussian, {_name_of(self.structure)} precision",
            expectation=type(self.expectation).__name__,
            curvature="none" if fixed else self.curvature.name,
            geometry=type(self.geometry).__name__.lower(),
            departures=tuple(name for name in departures if name),
        )

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> RuleState:
        """Returns the initial state: the network's initial weights and the initial precision."""
        params, network_state = objective.model.init(key, batch)
        mean, rest = self.space.split(params)
        prior = self.space.conjugate_prior(objective, mean)
        loss = BatchLoss.beside(prior, objective, _first_rows(batch), network_state, self.space, rest, mean)
        diagonal = self._first_curvature(jax.random.fold_in(jax.random.clone(key), 1), loss, mean)
        if prior is not None:
            diagonal = tree.add(diagonal, prior[1].diagonal(mean))
        return RuleState(
            count=jnp.zeros((), jnp.int32),
            mean=mean,
            precision=self.structure.from_diagonal(diagonal),
            momentum=self.momentum.init(mean),
            rest=rest,
            network_state=network_state,
            first_invalid_step=jnp.zeros((), jnp.int32) if self.can_become_indefinite else None,
        )

    def belief(self, state: RuleState, objective: Objective) -> Gaussian:
        """Returns q, with its precision on the scale of the data, S = κ P; with a metric that has a root, S = κ."""
        precision = state.precision if self.metric.is_precision else Scalar(1.0)
        return Gaussian(state.mean, precision.scale(objective.concentration))

    def step(self, key: RandomKey, state: RuleState, batch: Batch, objective: Objective) -> tuple[RuleState, Info]:
        """Returns the state after one step of the rule on a batch."""
        prior = self.space.conjugate_prior(objective, state.mean)
        loss = BatchLoss.beside(prior, objective, batch, state.network_state, self.space, state.rest, state.mean)
        rate, count = self.learning_rate(state.count), state.count + 1
        precision_rate = rate if self.precision_rate is None else self.precision_rate(state.count)
        estimate, moved, target = self._measured(key, state, loss, objective, prior, precision_rate)
        prior_gradient = None
        if prior is not None:
            center, delta = prior
            prior_gradient = delta.matvec(tree.add(state.mean, center, -1.0))
        momentum, gradient = self._follow(state.momentum, estimate.gradient, prior_gradient, count)
        mean, precision, direction = gaussian_arrow(
            state.mean,
            moved,
            gradient,
            target,
            rate,
            geometry=self.geometry,
            metric=self.metric,
            precision_rate=precision_rate,
            count=count,
        )
        decrement = objective.concentration * jnp.maximum(tree.dot(gradient, direction), 0.0)
        return (
            RuleState(
                count=count,
                mean=mean,
                precision=precision,
                momentum=momentum,
                rest=dispersion_step(objective, state.rest, estimate.rest, rate),
                network_state=estimate.network_state,
                first_invalid_step=self._watch(state.first_invalid_step, precision, state.mean, count),
            ),
            Info(loss=estimate.value, residual=jnp.sqrt(decrement)),
        )

    def posterior(self, key: RandomKey, state: RuleState, objective: Objective, data: Data, trace: Trace) -> Posterior:
        """Returns a Gaussian with point dispersions; a point where the algorithm keeps no uncertainty.

        A Gaussian whose curvature was taken at its mean predicts with the network linearised there.

        Raises:
            ValueError: where the precision has left the cone of positive matrices, with the step and the remedy.
        """
        if self.keeps_uncertainty:
            belief: Belief = Product({"network": self._whole(state, objective), "likelihood": Point(state.rest)})
        else:
            belief = Point(self.space.join(state.mean, state.rest))
        at_mean = self.keeps_uncertainty and isinstance(self.expectation, Delta)
        rule = predictives.Linearised() if at_mean else Sampled()
        return Posterior.of(objective, belief, state.network_state, key, rule)

    def explain_divergence(self, state: RuleState) -> str | None:
        """Returns the problem with the precision, in one sentence with the remedy; None where there is none."""
        step = 0 if state.first_invalid_step is None else int(state.first_invalid_step)
        if not step:
            return getattr(self.expectation, "divergence_remedy", None)
        name = type(self.geometry).__name__
        return (
            f"the precision left the cone of positive matrices at step {step}, where {name}() followed an indefinite "
            "curvature; use the geometry Retraction(), which cannot leave it, for instance von(geometry=Retraction()), "
            "or lower the learning rate"
        )

    def _first_curvature(self, key: RandomKey, loss: BatchLoss, mean: Params) -> Params:
        """Returns h₀, one number a leaf."""
        hess_init = self.hess_init
        if hess_init is None and not loss.objective.model.has_rows:
            hess_init = 1.0  # a density has no rows with a Fisher information
        if hess_init is not None:
            return jax.tree.map(lambda leaf: jnp.full_like(leaf, hess_init), mean)
        information = fisher_diagonal(key, loss, mean)
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.maximum(jnp.mean(leaf), _LEAST)), information)

    def _whole(self, state: RuleState, objective: Objective) -> Gaussian:
        try:
            # Cached factors may be older than the precision.
            return self.belief(replace(state, precision=state.precision.renewed()), objective)
        except ValueError as error:  # families check their domain where values are not traced
            raise ValueError(self.explain_divergence(state) or str(error)) from error

    def _measured(
        self,
        key: RandomKey,
        state: RuleState,
        loss: BatchLoss,
        objective: Objective,
        prior: OperatorTree,
        rate: Numeric,
    ) -> tuple[Evaluation, OperatorTree, OperatorTree]:
        """Returns the value and gradient of this step, the precision P and its target, None where P is updated here."""
        # With a period of k steps P makes k steps at once, at the rate \(1 - (1 - \rho_P)^k\), inside of the branch
        # that computes the curvature: returning the curvature from the branch at every step would cost a pass over it.
        belief = self.belief(state, objective)

        def measured(key: RandomKey, curvature: Curvature) -> tuple[Evaluation, OperatorTree]:
            estimate = self.expectation.evaluate(key, belief, loss, curvature, self.structure)
            if estimate.curvature is None:
                return estimate, None
            target = estimate.curvature if prior is None else _plus(estimate.curvature, prior[1], state.mean)
            return replace(estimate, curvature=None), target

        if self.curvature_update_period == 1:
            estimate, target = measured(key, self.curvature)
            return estimate, state.precision, target

        def moved() -> tuple[Evaluation, OperatorTree]:
            estimate, target = measured(key, self.curvature)
            return estimate, self.geometry.move(state.precision, target, 1 - (1 - rate) ** self.curvature_update_period)

        def kept() -> tuple[Evaluation, OperatorTree]:
            none: Curvature = NoCurvature()
            if isinstance(self.curvature, ClippedGradient):
                none = replace(self.curvature, base=none)
            estimate, _ = measured(jax.random.clone(key), none)  # one of the two branches is run
            return estimate, state.precision

        return *jax.lax.cond(state.count % self.curvature_update_period == 0, moved, kept), None

    def _follow(
        self, memory: Params, gradient: Params, prior_gradient: Params | None, count: Numeric
    ) -> tuple[Params, Params]:
        """Returns the momentum's state and the gradient to follow, with the prior's exact gradient added."""
        # The prior's gradient needs no averaging. But a momentum whose weights do not sum to one would reweight the
        # data relative to the prior, and move the fixed point, unless the prior's gradient passes through it too.
        if prior_gradient is None:
            return self.momentum.follow(memory, gradient, count)
        if not self.momentum.normalised:
            return self.momentum.follow(memory, tree.add(gradient, prior_gradient), count)
        memory, followed = self.momentum.follow(memory, gradient, count)
        return memory, tree.add(followed, prior_gradient)

    def _watch(self, first_invalid_step: Any, precision: OperatorTree, like: Params, count: Numeric) -> Array | None:
        if not self.can_become_indefinite:
            return None
        return jnp.where((first_invalid_step == 0) & ~precision.is_positive(like), count, first_invalid_step)


def _first_rows(batch: Batch) -> Batch:
    """Returns the first rows of the example, enough for a mean over each leaf."""
    return jax.tree.map(lambda leaf: leaf[:_ROWS], batch)


def _plus(curvature: OperatorTree, prior: OperatorTree, like: Params) -> OperatorTree:
    """Returns the curvature plus the prior's precision; structures not linear in their leaves add it themselves."""
    # A full matrix takes any prior precision, a diagonal its diagonal, which is the fixed point of a mean field. Other
    # structures take independent priors alone.
    if not isinstance(prior, Diagonal) and not isinstance(curvature, Dense | Diagonal | Scalar):
        raise TypeError(
            f"a belief of {type(curvature).__name__} precision cannot take in a prior of {type(prior).__name__} "
            "precision; use von(structure=Dense) or laplace(), or ivon(), of which the prior's diagonal is a part"
        )
    return curvature.add_prior(prior, like)


def _is_none(curvature: Curvature) -> bool:
    return isinstance(curvature.base if isinstance(curvature, ClippedGradient) else curvature, NoCurvature)


def _name_of(structure: AnyStructure) -> str:
    return structure.__name__.lower() if isinstance(structure, type) else str(structure)
