"""The straight-through estimator, as a row of the rule."""

from __future__ import annotations

from typing import Any

from lamu.geometry import Accumulation
from lamu.natural_rule import LatentStart, NaturalRule, NetworkWeights, ZeroTemperature
from lamu.rate import Annealed, decay, rate
from lamu.update_rules import HeavyBall, NoMomentum

__all__ = ["straight_through"]


def straight_through(
    learning_rate: Any = Annealed(1.0),
    rest_rate: Any = Annealed(0.1),
    momentum: float = 0.0,
    leaves: tuple[str, ...] = ("*kernel",),
) -> NaturalRule:
    r"""The straight-through estimator: a network of binary weights, trained through latent real ones.

    \[ \Lambda \leftarrow \Lambda - \rho\, \nabla\bar\ell(\theta)\big|_{\theta = \mathrm{sign}\,\Lambda} \]

    The latent weights Λ = λ/κ are natural parameters a row, of a Bernoulli belief on ±1 at zero temperature: its mean
    tanh κΛ is then the sign. They start as the network's initial weights. Weights that are not binary follow their
    gradient. One gradient a step.

    Departures from the rule: the expectation is taken at the sign; entropy and decay are dropped; momentum where asked.

    Args:
        learning_rate: ρ, a number, a schedule of steps, or `Annealed`.
        rest_rate: the rate of the weights that are not binary, and of dispersions.
        momentum: β in [0, 1) of heavy-ball momentum; zero for none.
        leaves: path patterns of the binary weights.

    Returns:
        The algorithm. Its posterior is a point: the signs, and the other weights.

    Raises:
        ValueError: for a rate that is not positive, a momentum outside [0, 1), or a pattern that matches no leaf.

    Source: Bengio, Léonard & Courville (2013); Courbariaux, Bengio & David (2015); as the rule, Meng, Bachmann & Khan
        (2020), table 1.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.discrete.straight_through import straight_through
        >>> x, y = lamu.data.load("digits")
        >>> network = lamu.networks.MLP((64,), normalise=lamu.networks.BatchNorm())
        >>> model = lamu.Model(network, lamu.likelihoods.Categorical(10)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), straight_through(), epochs=10).posterior
        >>> lamu.scores.accuracy(posterior.predict(x), y) > 0.9
        True
    """
    return NaturalRule(
        subject=NetworkWeights(LatentStart(), tuple(leaves)),
        expectation=ZeroTemperature(),
        geometry=Accumulation(),
        learning_rate=rate(learning_rate),
        rest_rate=rate(rest_rate, "rest_rate"),
        momentum=HeavyBall(decay(momentum, "momentum")) if momentum else NoMomentum(),
    )
