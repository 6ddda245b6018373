"""Stochastic variational inference: the rule on minibatches of a conjugate model, with a rate that falls."""

from __future__ import annotations

from typing import Any

from lamu.expectations import Analytic
from lamu.natural_rule import ConjugateParameters, NaturalRule
from lamu.rate import rate

__all__ = ["svi"]


def svi(learning_rate: Any = lambda step: 1.0 / (1.0 + step)) -> NaturalRule:
    r"""Stochastic variational inference on a conjugate model.

    \[ \lambda \leftarrow (1 - \rho_t)\,\lambda
       + \rho_t \Big( \lambda_0 + \frac{N}{B} \sum_{i \in B} w_i t(y_i) \Big) \]

    (at T = 1): the rule, its expectation exact for a minibatch that stands for all N rows. With \(\rho_t = 1/(1 + t)\),
    the default, λ is the average of what the batches say, and after every epoch of equal batches the posterior itself.
    One gradient in μ a step.

    Departures from the rule: none but the minibatch.

    Args:
        learning_rate: ρ, a number, a schedule of steps, or `Annealed`; at most one, so that λ stays in the domain.

    Returns:
        The algorithm.

    Raises:
        TypeError: (when it runs) for a model that is no `lamu.ConjugateModel`.

    Source: Hoffman, Blei, Wang & Paisley (2013), equation 26; Khan & Rue (2021), section 5.3.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.closed_form.svi import svi
        >>> model = lamu.ConjugateModel(lamu.observations.Bernoulli(), lamu.families.Beta(1.0, 1.0))
        >>> posterior = lamu.fit(model, {"y": [1, 1, 0, 1]}, svi(), epochs=2, batch_size=2).posterior
        >>> round(float(posterior.mean["network"]), 4)
        0.6667
    """
    return NaturalRule(ConjugateParameters(), Analytic(), rate(learning_rate))
