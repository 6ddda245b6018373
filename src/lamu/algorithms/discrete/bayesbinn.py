"""BayesBiNN: the rule for binary weights."""

from __future__ import annotations

from typing import Any

from lamu.expectations import Relaxed
from lamu.natural_rule import NaturalRule, NetworkWeights, SignStart
from lamu.rate import Annealed, decay, rate
from lamu.update_rules import MovingAverage, NoMomentum

__all__ = ["bayesbinn"]


def bayesbinn(
    learning_rate: Any = Annealed(0.01),
    temperature: float = 0.5,
    floor: float = 0.1,
    samples: int = 1,
    init_half_logit: float = 3.0,
    rest_rate: Any = Annealed(0.1),
    momentum: float = 0.0,
    leaves: tuple[str, ...] = ("*kernel",),
) -> NaturalRule:
    r"""BayesBiNN: a Bernoulli belief about every binary weight, by the rule with relaxed draws.

    With \(\theta_r = \tanh((\lambda + \delta)/\tau)\), \(\delta = \tfrac12\log\frac{\epsilon}{1-\epsilon}\), ε uniform,
    and \(\hat g\) the minibatch gradient of the mean negative log likelihood at the relaxed weights,

    \[ s = \frac{1 - \theta_r^2 + \epsilon_s}{\tau\,(1 - \tanh^2\lambda + \epsilon_s)}, \qquad
       \lambda \leftarrow (1-\rho)\,\lambda - \rho\,\big(\kappa\, s \odot \hat g - \lambda_0/T\big) \]

    λ₀ is the prior's, zero where it prefers no sign. One gradient a draw and step.
    A network has many more weights than data would settle: at T = 1 the belief is wide, and `fit(temperature=0.01)`
    predicts better.

    Departures from the rule: the expectation is of relaxed weights, biased for τ > 0; the floor of the slopes; the
    gradient is a minibatch's; momentum with bias correction, where asked.

    Args:
        learning_rate: ρ, the share of the old belief that a step forgets.
        temperature: τ of the relaxation, not of the target.
        floor: \(\epsilon_s\), without which rare draws of weights that are nearly certain outweigh all others; the
            authors' program has 1e-10.
        samples: how many relaxed draws a step.
        init_half_logit: |λ| at the start, with the signs of the network's initial weights.
        rest_rate: the rate of the weights that are not binary, and of dispersions.
        momentum: β in [0, 1), the decay of averaged gradients; zero for none.
        leaves: path patterns of the binary weights.

    Returns:
        The algorithm. Its posterior is the Bernoulli belief beside a point for the other weights: predictions average
        over sampled binary networks. `posterior.with_rule(PlugInMode())` predicts by the most probable one.

    Raises:
        ValueError: for a rate or τ that is not positive, a negative floor, a momentum outside [0, 1), fewer than one
            draw, or a pattern that matches no leaf.

    Source: Meng, Bachmann & Khan (2020), section 3 and table 1.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.discrete.bayesbinn import bayesbinn
        >>> x, y = lamu.data.load("digits")
        >>> network = lamu.networks.MLP((64,), normalise=lamu.networks.BatchNorm())
        >>> model = lamu.Model(network, lamu.likelihoods.Categorical(10)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), bayesbinn(), epochs=10).posterior
        >>> lamu.scores.accuracy(posterior.predict(x), y) > 0.9
        True
    """
    return NaturalRule(
        subject=NetworkWeights(SignStart(init_half_logit), tuple(leaves)),
        expectation=Relaxed(temperature, samples, floor),
        learning_rate=rate(learning_rate),
        rest_rate=rate(rest_rate, "rest_rate"),
        momentum=MovingAverage(decay(momentum, "momentum")) if momentum else NoMomentum(),
    )
