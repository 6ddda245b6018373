"""BayesBiNN: the rule for binary weights."""

from __future__ import annotations

from typing import Any

from lamu.natural_rule import Flips, NaturalRule, NetworkWeights, SignStart
from lamu.rate import Annealed, decay, rate
from lamu.update_rules import MovingAverage, NoMomentum

__all__ = ["bayesbinn"]


def bayesbinn(
    learning_rate: Any = Annealed(0.01),
    expectation: Any = None,
    init_half_logit: float = 3.0,
    rest_rate: Any = Annealed(0.1),
    momentum: float = 0.0,
    leaves: tuple[str, ...] = ("*kernel",),
) -> NaturalRule:
    r"""BayesBiNN: a Bernoulli belief about every binary weight, by the rule.

    With \(\theta \sim q\) and \(\bar\ell\) the mean negative log likelihood of a minibatch,

    \[ \lambda_i \leftarrow (1-\rho)\,\lambda_i - \rho\,\Big(\tfrac{\kappa}{2}
       \big(\bar\ell(\theta_{-i}, +1) - \bar\ell(\theta_{-i}, -1)\big) - \lambda_0/T\Big) \]

    λ₀ is the prior's, zero where it prefers no sign. The differences are `lamu.natural_rule.Flips`: D losses and a
    gradient a step up to 256 binary weights; beyond, one gradient and one product with the Hessian, which is the
    difference to second order in the one weight.
    A network has many more weights than data would settle: at T = 1 the belief is wide, and `fit(temperature=0.01)`
    predicts better.

    The paper takes relaxed draws, \(\theta_r = \tanh((\lambda + \delta)/\tau)\) with
    \(\delta = \tfrac12\log\frac{\epsilon}{1-\epsilon}\) and ε uniform, and one gradient there in the place of the
    difference, \(s \odot \hat g(\theta_r)\) with \(s = \frac{1 - \theta_r^2 + \epsilon_s}{\tau\,(1 - \tanh^2\lambda +
    \epsilon_s)}\): that is `expectation=lamu.expectations.Relaxed(0.5, floor=0.1)`. It costs one gradient and is biased
    for τ > 0: a belief about six signs had a mean of .29 where the best has .73.

    Departures from the rule: the gradient is a minibatch's; beyond 256 binary weights the second order; momentum with
    bias correction, where asked.

    Args:
        learning_rate: ρ, the share of the old belief that a step forgets.
        expectation: how the gradient in μ is taken; `lamu.natural_rule.Flips()` where none is given,
            `lamu.expectations.Relaxed(0.5, floor=0.1)` for the paper's, whose floor bounds the slopes of weights that
            are nearly certain (the authors' program has 1e-10).
        init_half_logit: |λ| at the start, with the signs of the network's initial weights.
        rest_rate: the rate of the weights that are not binary, and of dispersions.
        momentum: β in [0, 1), the decay of averaged gradients; zero for none.
        leaves: path patterns of the binary weights.

    Returns:
        The algorithm. Its posterior is the Bernoulli belief beside a point for the other weights: predictions average
        over sampled binary networks. `posterior.with_rule(PlugInMode())` predicts by the most probable one.

    Raises:
        ValueError: for a rate that is not positive, a momentum outside [0, 1), or a pattern that matches no leaf.

    Source: Meng, Bachmann & Khan (2020), section 3 and table 1; Titsias & Lázaro-Gredilla (2015) for the differences.

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
        expectation=Flips() if expectation is None else expectation,
        learning_rate=rate(learning_rate),
        rest_rate=rate(rest_rate, "rest_rate"),
        momentum=MovingAverage(decay(momentum, "momentum")) if momentum else NoMomentum(),
    )
