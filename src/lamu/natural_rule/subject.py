"""The parameters that beliefs cover, with their priors and losses, for the rule in natural parameters."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from lamu import tree
from lamu.conjugate_target import conjugate_target
from lamu.data.batch import Batch
from lamu.families.exponential import values_of
from lamu.objective import Objective
from lamu.predictives import PredictiveRule, Sampled
from lamu.predictives.gaussian import ConjugateRule
from lamu.record import record
from lamu.typing import Array, Belief, Numeric, Params, RandomKey, State, Statistics

__all__ = ["ConjugateLoss", "ConjugateParameters", "Streamed", "Subject"]


class Subject:
    """Base class of the parameters that a belief covers: its start, its prior, and the loss."""

    family: str | Any  # the belief in words, for tables
    # Whether the belief has a fixed point over all rows, for convergence checks, and an evidence bound; only without
    # remaining parameters.
    settles: ClassVar[bool] = False
    # The predictive rule of the posterior; by default samples.
    predictive: PredictiveRule = Sampled()

    def start(self, key: RandomKey, objective: Objective, batch: Batch) -> tuple[Belief, Params, State]:
        """Returns the initial belief, the remaining parameters (a point), and the network's state."""
        # The belief is of an exponential family, or a product of such families.
        raise NotImplementedError

    def prior(self, objective: Objective, belief: Belief) -> Statistics:
        """Returns λ₀/T, the natural parameters of the tempered prior, a tree like `belief.to_natural()`."""
        raise NotImplementedError

    def loss(self, objective: Objective, batch: Batch, network_state: State, rest: Params) -> Any:
        """Returns the mean negative log likelihood on a batch, in nats a row, with the prior of the rest."""
        # An object with `value(theta, rest, key)`, `rest` and `network_state`, as `lamu.objective.BatchLoss`; a
        # function of μ instead of θ for the expectation `lamu.expectations.Analytic`.
        raise NotImplementedError

    def expected_log_prior(self, objective: Objective, belief: Belief) -> Numeric:
        r"""Returns \(E_q[\log p(\theta)]\) in nats for a prior that enters λ exactly; zero if it is in the loss."""
        del objective, belief
        return 0.0

    def residual(self, belief: Belief, direction: Statistics) -> Numeric:
        r"""Returns the natural norm of the step, \(\sqrt{d^\top F d}\) in nats: the distance to a fixed point."""
        return jnp.sqrt(jnp.maximum(tree.dot(direction, belief.fisher_product(direction)), 0.0))


@record
class ConjugateLoss:
    r"""\(E_q[\bar\ell]\) of a target with exact messages on a batch, as a function of μ."""

    # \[ \bar\ell = -\frac TB \sum_{i \in B} \max_{q(z_i)}
    #    \Big( \tfrac1T E_q[\log p(x_i, z_i \mid \theta)] + H(q(z_i)) \Big) - \frac1N E_q[\log p(\theta)] \]
    #
    # without the last term if the prior enters the belief exactly. By the envelope theorem its gradient is that of
    # \(E_q[\log p]\) at these q(z): \(-\kappa\nabla_\mu\bar\ell\) is λ of the optimal belief about a variable given the
    # others. The temperature divides log p and not the entropy of z.

    objective: Objective  # the objective
    batch: Batch  # the rows
    network_state: State  # the target's state, empty
    rest: Params  # the remaining parameters: dispersions that likelihoods of a graph learn

    def value(self, mu: Statistics, rest: Params, key: RandomKey | None) -> tuple[Array, State]:
        """Returns the expected mean loss in nats a row, and the target's state."""
        statistics = conjugate_target(self.objective.model).statistics(values_of(mu))
        return self.at(statistics, key, rest.get("likelihood")), self.network_state

    def at(self, statistics: Statistics, key: RandomKey | None = None, dispersions: Params | None = None) -> Array:
        """Returns the mean loss at T(θ) or μ."""
        objective = self.objective
        T = objective.row_temperature
        target = conjugate_target(objective.model.tempered(T))
        log_prior = objective.model.dispersion_log_prior(dispersions) if dispersions else 0.0
        statistics = {**statistics, "likelihood": dispersions} if dispersions else statistics
        rows = self.batch.total(target.row_bounds(statistics, self.batch, T, key))
        shared = conjugate_target(objective.model.tempered(objective.temperature)).shared_log_joint(statistics)
        count = jnp.maximum(self.batch.count, 1).astype(rows.dtype)
        return -objective.temperature * rows / count - ((shared + log_prior) / objective.data_size).astype(rows.dtype)


@record
class ConjugateParameters(Subject):
    """The shared variables of a target with exact messages: θ of a `lamu.ConjugateModel`, the variables of a graph."""

    family = "any conjugate family"
    settles = True
    # The closed form; graphs always impute missing entries of rows.
    predictive = ConjugateRule()

    def start(self, key: RandomKey, objective: Objective, batch: Batch) -> tuple[Belief, Params, State]:
        # Returns the target's initial belief, and the dispersions that are learned as a point.
        target = conjugate_target(objective.model)
        belief = target.first_belief(key, batch, objective.temperature)
        return belief, {"network": {}, "likelihood": target.first_dispersions(batch)}, {}

    def prior(self, objective: Objective, belief: Belief) -> Statistics:
        # Returns λ₀/T; zeros where the prior is in the loss.
        return conjugate_target(objective.model).natural_prior(belief, objective.temperature)

    def loss(self, objective: Objective, batch: Batch, network_state: State, rest: Params) -> ConjugateLoss:
        # Returns the expected mean loss on a batch, a function of μ.
        return ConjugateLoss(objective, batch, network_state, rest)

    def expected_log_prior(self, objective: Objective, belief: Belief) -> Numeric:
        # Returns the expected log density of the prior in nats, zero where it is in the loss.
        return conjugate_target(objective.model).expected_log_prior(belief)


@record
class Streamed(ConjugateParameters):
    """`ConjugateParameters` for streaming: the posterior after a batch is the prior of the next."""

    settles = False

    def prior(self, objective: Objective, belief: Belief) -> Statistics:
        # Returns the natural parameters of the belief.
        return belief.to_natural()

    def residual(self, belief: Belief, direction: Statistics) -> float:
        # Returns zero: a step of one is the posterior.
        return 0.0
