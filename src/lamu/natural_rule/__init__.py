r"""The rule in λ itself, for a belief that has no better coordinates: one natural parameter a weight.

\[ \lambda \leftarrow (1 - \rho)\,\lambda - \rho\,\big( \kappa\, \nabla_\mu E_q[\bar\ell] - \lambda_0 / T \big) \]

with \(\bar\ell\) the mean negative log likelihood, \(\kappa = N/T\), and λ₀ the natural parameters of the prior, which
is conjugate and enters exactly (`docs/scale.md`). As a Gaussian's precision is kept a row, S = κ P, so is λ:

\[ \lambda = \kappa \Lambda, \qquad
   \Lambda \leftarrow \Lambda - \rho\,\big( \nabla_\mu E_q[\bar\ell] + \Lambda - \lambda_0 / N \big) \]

κ is left in one place, the belief under which E_q is taken. An algorithm is a choice for each symbol:

| algorithm | q | E_q | Λ − λ₀/N | posterior |
|---|---|---|---|---|
| straight-through | Bernoulli on ±1 | delta at zero temperature, θ = sign λ | dropped | the point sign λ |
| BayesBiNN | Bernoulli on ±1 | relaxed | kept | q |
| the rule, exactly | Bernoulli on ±1 | enumerated, or by score functions | kept | q |

Weights that are no part of the belief (biases, a normaliser's scales) and dispersions are a point that moves beside it.
"""

from lamu.natural_rule.algorithm import NaturalRule, NaturalState
from lamu.natural_rule.parts import Decay, Latent, NoDecay, Signs
from lamu.natural_rule.points import Points, ZeroTemperature, natural_gradient, signs
from lamu.natural_rule.selected import Selected, SelectedLoss

__all__ = [
    "Decay",
    "Latent",
    "NaturalRule",
    "NaturalState",
    "NoDecay",
    "Points",
    "Selected",
    "SelectedLoss",
    "Signs",
    "ZeroTemperature",
    "natural_gradient",
    "signs",
]
