"""The rule in natural parameters, for any exponential family or product of such families."""

# \[ \lambda \leftarrow (1 - \rho)\,\lambda + \rho\,\big( \lambda_0 / T - \kappa\, \nabla_\mu E_q[\bar\ell] \big) \]
#
# with \(\bar\ell\) the mean negative log likelihood, \(\kappa = N/T\), and λ₀ the natural parameters of the prior,
# which is conjugate and enters exactly (`docs/scale.md`). An algorithm is a choice for each symbol:
#
# | algorithm | q, of what | E_q | the arrow | ρ | posterior |
# |---|---|---|---|---|---|
# | conjugate Bayes | the prior's family, θ of a conjugate model | known in μ | straight | 1, λ₀ the last posterior | q
# |
# | SVI | the same, or the shared variables of a graph | known in μ | straight | falls | q |
# | straight-through | Bernoulli on ±1, a network's kernels | delta at zero temperature | no forgetting | free | sign λ
# |
# | BayesBiNN | the same | by flips; relaxed in the paper | straight | free | q |
# | the rule, exactly | the same | enumerated, or by score functions | straight | free | q |
#
# Weights outside of the belief (biases, a normaliser's scales) and dispersions are point estimates that are updated
# with it.

from typing import TYPE_CHECKING

from lamu.base.lazy_imports import lazy_names

if TYPE_CHECKING:
    from lamu.natural_rule.algorithm import FallingRate, NaturalRule, NaturalState, evidence_bound, natural_gradient
    from lamu.natural_rule.network_weights import (
        Flips,
        GaussianStart,
        LatentStart,
        NetworkWeights,
        ParameterSubset,
        Points,
        SignStart,
        Start,
        SubsetLoss,
        ZeroTemperature,
    )
    from lamu.natural_rule.subject import ConjugateLoss, ConjugateParameters, Streamed, Subject
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

__all__ = [
    "ConjugateLoss",
    "ConjugateParameters",
    "FallingRate",
    "Flips",
    "GaussianStart",
    "LatentStart",
    "NaturalRule",
    "NaturalState",
    "NetworkWeights",
    "ParameterSubset",
    "Points",
    "SignStart",
    "Start",
    "Streamed",
    "Subject",
    "SubsetLoss",
    "ZeroTemperature",
    "evidence_bound",
    "natural_gradient",
]
