"""Conjugate Bayes: the rule with rate one, on a model where it is exact."""

from __future__ import annotations

from typing import Any

from lamu.algorithms.closed_form import exponential, linear_gaussian
from lamu.data.batch import Batch
from lamu.families import Point, Product
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives import ClosedForm
from lamu.predictives.conjugate import ConjugateRule
from lamu.protocol import Choices, Info, Traits
from lamu.record import record
from lamu.typing import RandomKey

__all__ = ["Conjugate", "ConjugateState", "conjugate"]


@record
class ConjugateState:
    """The belief after the rows seen so far.

    Attributes:
        belief: q, exact for those rows.
        evidence: the log of the tempered joint's integral so far, in nats.
        network_state: the network's state.

    Examples:
        >>> from lamu.algorithms.closed_form.conjugate import ConjugateState
        >>> ConjugateState(belief=None, evidence=0.0, network_state={}).evidence
        0.0
    """

    belief: Any
    evidence: Any
    network_state: Any


@record
class Conjugate:
    """The algorithm that `conjugate` makes.

    Examples:
        >>> import lamu
        >>> lamu.algorithms.conjugate().traits.batching
        'once'
    """

    @property
    def traits(self) -> Traits:
        """Every row exactly once, on a linear-Gaussian model."""
        return Traits(batching="once", needs=("linear-Gaussian", "Gaussian prior"), network_state=False)

    @property
    def choices(self) -> Choices:
        """The row of the table."""
        return Choices("any conjugate family; Gaussian, dense precision", "Exact", "none needed")

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> ConjugateState:
        """Returns the prior as a belief, tempered as the objective says."""
        params, network_state = objective.model.init(key, batch)
        if exponential.is_exponential(objective):
            return ConjugateState(*exponential.first(objective, batch), network_state)
        return ConjugateState(*linear_gaussian.first(objective, params), network_state)

    def step(
        self, key: RandomKey, state: ConjugateState, batch: Batch, objective: Objective
    ) -> tuple[ConjugateState, Info]:
        """Returns the belief after the batch's rows: the old belief is the prior, and the batch all the data."""
        if exponential.is_exponential(objective):
            belief, evidence, loss = exponential.following(state.belief, state.evidence, batch, objective)
        else:
            belief, evidence, loss = linear_gaussian.following(
                key, state.belief, state.evidence, state.network_state, batch, objective
            )
        return ConjugateState(belief, evidence, state.network_state), Info(loss=loss)

    def posterior(
        self, key: RandomKey, state: ConjugateState, objective: Objective, data: Any, trace: Any
    ) -> Posterior:
        """Returns the exact posterior, with its evidence."""
        belief = Product({"network": state.belief, "likelihood": Point({})})
        rule = ConjugateRule() if exponential.is_exponential(objective) else ClosedForm()
        return Posterior(objective.model, belief, state.network_state, rule, key, evidence=state.evidence)


def conjugate() -> Conjugate:
    r"""Exact Bayes in one pass over the data: Bayesian linear regression, and every model of `Model.conjugate`.

    \[ \lambda \leftarrow \lambda - \rho\,\big(\nabla_\mu E_q[\ell] + \lambda\big), \quad \rho = 1, \qquad
       \ell = -\tfrac1T \sum_i w_i \log p(y_i \mid \theta) - \log q(\theta) \]

    for every batch of rows, from the prior on: the posterior of the rows before is the prior of the next. Where the log
    likelihood is linear in the family's statistics this is \(\lambda + \sum_i w_i t(y_i)/T\). For linear regression it
    reads, in mean and precision,

    \[ S \leftarrow S + \tfrac1T \sum_i J_i^\top \Lambda_i J_i, \qquad
       m \leftarrow m - S^{-1} \tfrac1T \sum_i \nabla\ell_i(m) \]

    Any order and any batches give the same posterior. One gradient in μ a batch; for regression one Jacobian and one
    factorisation.

    Departures from the rule: none.

    Returns:
        The algorithm. Its posterior is of the prior's family (the dense Gaussian for regression), with the exact
        evidence.

    Raises:
        TypeError: (when it runs) for a network that is not linear in its weights, a likelihood that is not Gaussian or
            whose noise is learned, or a prior that is not Gaussian, unless the model is one of `Model.conjugate`.

    Source: Khan & Rue (2021), section 5.1; Bishop (2006), sections 2.1 to 2.3 and equations 3.50 to 3.54.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.7)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> round(float(posterior.predict(x).interval(0.9)[0][0]))
        116
    """
    return Conjugate()
