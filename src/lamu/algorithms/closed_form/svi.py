"""Stochastic variational inference: the rule on minibatches of a conjugate model, with a rate that falls."""

from __future__ import annotations

from typing import Any

from lamu.expectations import Analytic
from lamu.geometry import Guarded
from lamu.natural_rule import ConjugateParameters, FallingRate, NaturalRule
from lamu.rate import PolynomialDecay, rate

__all__ = ["svi"]


def svi(learning_rate: Any = None, kappa: float | None = None, delay: float = 1.0) -> NaturalRule:
    r"""Stochastic variational inference on a conjugate model, or on a graph.

    \[ \lambda \leftarrow (1 - \rho_t)\,\lambda
       + \rho_t \Big( \lambda_0 + \frac{N}{B} \sum_{i \in B} w_i t(y_i) \Big) \]

    (at T = 1): the rule, its expectation exact for a minibatch that stands for all N rows. With \(\rho_t = 1/(1 + t)\),
    the default for a `lamu.ConjugateModel` and for variables that do not meet, λ is the average of what the batches
    say, and after every epoch of equal batches the posterior itself. Elsewhere the default is \(\rho_t = 4/(t + 7)\),
    which forgets the steps in which the parts of the belief were far from each other
    (`lamu.natural_rule.FallingRate`).

    On a `lamu.Graph` it is the same step for the shared variables, \(\lambda \leftarrow (1 - \rho_t) \lambda + \rho_t
    \nabla_\mu E_q[\log p]\), with the latents of the batch's rows at their best, ρ = 1. One gradient in μ a step.

    A mixture starts from the best of sixteen starts, after forty sweeps of coordinate ascent over at most 2,000 rows
    of the first batch: once ρ has fallen, a component that began between two groups of rows would stay there.

    Likelihoods of computed outputs have their expectation by quadrature. Dispersions that they learn follow at a point,
    by Fisher scoring at the same ρ. Through a likelihood whose log density is not concave, such as a Student t, a step
    that would end beyond the positive precisions is bent back inside by the second-order retraction of Lin, Schmidt &
    Khan (2020), which agrees with it to O(ρ²).

    Departures from the rule: none but the minibatch, and the retraction where the straight step has no positive
    precision.

    Args:
        learning_rate: ρ, a number, a schedule of steps, or `Annealed`; at most one, so that λ stays in the domain.
            \((\tau + t)^{-\kappa}\) where None.
        kappa: κ, above one half and at most one: how fast old batches are forgotten. With one on a graph of several
            variables the start is forgotten too slowly. Where None, the rate depends on the target, as above.
        delay: τ, at least one: the larger, the less the first steps count.

    Returns:
        The algorithm. `evidence` of its posterior is the bound over all rows, where these are in memory.

    Raises:
        TypeError: (when it runs) for a model that is neither a `lamu.ConjugateModel`, a `lamu.Graph` nor a
            `lamu.from_numpyro` program whose sites are all conjugate.
        ValueError: for κ or τ outside their ranges.

    Source: Hoffman, Blei, Wang & Paisley (2013), equation 26; Khan & Rue (2021), section 5.3.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.closed_form.svi import svi
        >>> model = lamu.ConjugateModel(lamu.observations.Bernoulli(), lamu.families.Beta(1.0, 1.0))
        >>> posterior = lamu.fit(model, {"y": [1, 1, 0, 1]}, svi(), epochs=2, batch_size=2).posterior
        >>> round(float(posterior.mean["network"]), 4)
        0.6667
    """
    if kappa is not None and not 0.5 < kappa <= 1.0:
        raise ValueError(f"kappa={kappa!r} does not let the rate fall as it must; give a number above 0.5, at most 1")
    if not delay >= 1.0:
        raise ValueError(f"delay={delay!r} makes a first step beyond the whole; give at least 1")
    if learning_rate is not None:
        chosen = rate(learning_rate)
    else:
        chosen = FallingRate(float(delay)) if kappa is None else PolynomialDecay(float(kappa), float(delay))
    return NaturalRule(ConjugateParameters(), Analytic(), chosen, Guarded())
