"""Textbook models with complete priors."""

from __future__ import annotations

from collections.abc import Iterable

from lamu.likelihoods import GammaDispersion, Gaussian
from lamu.model import Model
from lamu.networks import MLP
from lamu.priors import Normal

__all__ = ["textbook_regression"]


def textbook_regression(widths: Iterable[int] = (10, 10), activation: str = "tanh", variance: float = 5.0) -> Model:
    r"""Returns the textbook Bayesian neural network for regression, with every prior stated.

    \[ w \sim N(0, 5), \qquad \sigma_0 \sim \mathrm{Gamma}(\tfrac12, 1), \qquad
       y \sim N\big(f(x; W_1, W_2, W_3), \sigma_0^2\big) \]

    The second argument of N is a variance. Biases have the prior of the weights. Inputs and targets should be of order
    one: `textbook_regression().standardised(x, y)` scales them.

    Args:
        widths: of the hidden layers; two widths give three weight matrices.
        activation: "relu", "tanh", "gelu", "silu" or "erf".
        variance: the prior variance of a weight.

    Raises:
        ValueError: for a variance that is not positive, or widths or an activation that `MLP` does not accept.

    Examples:
        >>> from lamu.presets import textbook_regression
        >>> model = textbook_regression()
        >>> round(model.prior.scale, 4), model.likelihood.scale_prior.shape, model.network.widths
        (2.2361, 0.5, (10, 10))
    """
    if not 0.0 < variance < float("inf"):
        raise ValueError(f"a variance of {variance!r} is not positive and finite; give that of a weight, a priori")
    noise = Gaussian(scale_prior=GammaDispersion(shape=0.5, rate=1.0))
    return Model(MLP(tuple(widths), activation), noise, Normal(variance**0.5))
