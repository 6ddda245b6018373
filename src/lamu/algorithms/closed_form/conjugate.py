"""Exact Bayesian inference: the rule with rate one, on models where it is exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lamu import tree
from lamu.algorithms.closed_form import extended_kalman
from lamu.conjugacy import ConjugateModel
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.expectations import Analytic
from lamu.families import Point, Product
from lamu.natural_rule import NaturalRule, NaturalState, Streamed
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives import ClosedForm
from lamu.predictives.gaussian import ConjugateRule
from lamu.priors.belief import tempered
from lamu.protocol import Choices, Info, Runnable, Traits, recipe
from lamu.rate import Constant
from lamu.record import record
from lamu.typing import Array, Belief, Data, DTypeLike, Numeric, RandomKey, State, Trace

__all__ = ["ConjugateBayes", "ConjugateState", "conjugate", "first", "is_exponential", "update", "with_row_share"]


# The expectation of the loss is linear in μ, its gradient is \(-\sum_i w_i t(y_i) / T\), and a step of rate one gives
# \(\lambda_0 + \sum_i w_i t(y_i) / T\), the posterior.


_RULE = NaturalRule(Streamed(), Analytic(), Constant(1.0))
_NOTHING = {"network": {}, "likelihood": {}}


def first(objective: Objective, dtype: DTypeLike) -> tuple[Belief, Array]:
    """Returns the prior to the power 1/T as a belief, and the log of its integral in nats."""
    prior: Any = objective.model.prior
    belief = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), prior.belief)
    cold = tempered(belief, 1 / objective.temperature)
    evidence = cold.log_partition() - belief.log_partition() / objective.temperature
    # The base measure counts 1/T times in p^{1/T}.
    return cold, evidence + (1 / objective.temperature - 1) * belief.expected_log_base_measure()


def update(
    key: RandomKey, old: Belief, evidence: Numeric, batch: Batch, objective: Objective
) -> tuple[Belief, Numeric, Numeric]:
    """Returns belief, evidence and mean loss after the batch's rows; the old belief is the prior."""
    batch_objective = replace(objective, data_size=jnp.maximum(batch.count, 1))
    state, info = _RULE.step(key, NaturalState(0, old, {}, _NOTHING, {}), batch, batch_objective)
    nothing = tree.zeros_like(old.to_natural())
    factor = objective.likelihood_power / objective.temperature
    observation: Any = objective.model.observation
    base = factor * batch.total(observation.log_likelihood(nothing, batch.y))
    return state.belief, evidence + base + state.belief.log_partition() - old.log_partition(), info.loss


def with_row_share(belief: Belief, prior: Belief, share: Numeric) -> Belief:
    r"""Returns the belief with the rows counted c times, \(\lambda_0 + c\,(\lambda - \lambda_0)\)."""
    before = prior.to_natural()
    return belief.with_natural(tree.add(before, tree.add(belief.to_natural(), before, -1.0), share))


def is_exponential(objective: Objective) -> bool:
    """Returns whether the model is an observation with a prior of its conjugate family."""
    return isinstance(objective.model, ConjugateModel)


@record
class ConjugateState:
    """The belief after the rows seen so far."""

    belief: Belief  # q, exact for those rows
    evidence: Numeric  # the log of the tempered joint's integral so far, in nats
    network_state: State
    rows: Numeric  # number of rows seen


@record
class ConjugateBayes(Runnable):
    """Algorithm of `conjugate`."""

    @property
    def traits(self) -> Traits:
        # Every row exactly once, on a linear-Gaussian model.
        return Traits(batching="once")

    @property
    def choices(self) -> Choices:
        return Choices("any conjugate family; Gaussian, dense precision", "Exact", "none needed")

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> ConjugateState:
        # Returns the prior as a belief, at the objective's temperature.
        params, network_state = objective.model.init(key, batch)
        rows = jnp.zeros_like(batch.count)
        if is_exponential(objective):
            return ConjugateState(*first(objective, batch.weight.dtype), network_state, rows)
        return ConjugateState(*extended_kalman.first(objective, params), network_state, rows)

    def step(
        self, key: RandomKey, state: ConjugateState, batch: Batch, objective: Objective
    ) -> tuple[ConjugateState, Info]:
        # Returns the belief after the batch's rows, with the old belief as the prior and the batch as all the data.
        if is_exponential(objective):
            belief, evidence, loss = update(key, state.belief, state.evidence, batch, objective)
        else:
            belief, evidence, loss = extended_kalman.update(
                key, state.belief, state.evidence, state.network_state, batch, objective
            )
        return ConjugateState(belief, evidence, state.network_state, state.rows + batch.count), Info(loss=loss)

    def posterior(
        self, key: RandomKey, state: ConjugateState, objective: Objective, data: Data, trace: Trace
    ) -> Posterior:
        # Returns the exact posterior with its evidence; the rows are scaled to N if their number differs.
        scaled, evidence = self._scaled_to_data(state, objective, data)
        belief = Product({"network": scaled, "likelihood": Point({})})
        rule = ConjugateRule() if is_exponential(objective) else ClosedForm()
        return Posterior.of(objective, belief, state.network_state, key, rule, evidence)

    def _scaled_to_data(self, state: ConjugateState, objective: Objective, data: Data) -> tuple[Belief, Numeric]:
        r"""Returns belief and evidence with the rows scaled to N, \(\lambda_0 + \tfrac Nn (\lambda - \lambda_0)\)."""
        # The log likelihood to the power N/n needs no second pass: by Bayes' theorem it is the difference of belief and
        # evidence from the prior's, at any θ.
        share = objective.data_size / (data.count if isinstance(data, Arrays) else jnp.maximum(state.rows, 1))
        if not isinstance(share, Tracer) and float(share) == 1.0:
            return state.belief, state.evidence
        if is_exponential(objective):
            prior, start = first(objective, jnp.result_type(*jax.tree.leaves(state.belief)))
            scaled = with_row_share(state.belief, prior, share)
        else:
            prior, start = extended_kalman.first(objective, {"network": state.belief.mean, "likelihood": {}})
            scaled = extended_kalman.with_row_share(state.belief, prior, share)
        point = scaled.mean
        log_joint = lambda belief, evidence: belief.log_prob(point) + evidence
        log_joint_before = log_joint(prior, start)
        return scaled, log_joint_before + share * (
            log_joint(state.belief, state.evidence) - log_joint_before
        ) - scaled.log_prob(point)


@recipe("Khan & Rue 2021, section 5.1")
def conjugate() -> ConjugateBayes:
    r"""Exact Bayes in one pass over the data: Bayesian linear regression, and every `lamu.ConjugateModel`.

    \[ \lambda \leftarrow \lambda - \rho\,\big(\nabla_\mu E_q[\ell] + \lambda\big), \quad \rho = 1, \qquad
       \ell = -\tfrac1T \sum_i w_i \log p(y_i \mid \theta) - \log q(\theta) \]

    for every batch of rows, starting from the prior: the posterior of the rows so far is the prior of the next. If the
    log likelihood is linear in the family's statistics this is \(\lambda + \sum_i w_i t(y_i)/T\). For linear regression
    it reads, in mean and precision,

    \[ S \leftarrow S + \tfrac1T \sum_i J_i^\top \Lambda_i J_i, \qquad
       m \leftarrow m - S^{-1} \tfrac1T \sum_i \nabla\ell_i(m) \]

    Any order and any batches give the same posterior. With a `data_size` N other than the number of rows n, the sums
    are multiplied by N/n. One gradient in μ a batch; for regression one Jacobian and one
    factorisation.

    Departures from the rule: none.

    Returns:
        The algorithm. Its posterior is of the prior's family (the dense Gaussian for regression), with the exact
        evidence.

    Raises:
        TypeError: (when it runs) for a network that is not linear in its weights, a likelihood that is not Gaussian or
            whose noise is learned, or a prior that is not Gaussian, unless the model is a `lamu.ConjugateModel`.

    Source: Khan & Rue (2021), section 5.1; Bishop (2006), sections 2.1 to 2.3 and equations 3.50 to 3.54.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.7)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> round(float(posterior.predict(x).interval(0.9)[0][0]))
        116
    """
    return ConjugateBayes()
