"""Bayes by backprop: gradient descent on the parameters of a belief."""

from __future__ import annotations

from typing import Any

from lamu.algorithms.descent.belief_descent import BeliefDescent
from lamu.algorithms.descent.estimators import Estimator, Global
from lamu.algorithms.descent.positive_transforms import PositiveTransform, SoftplusTransform
from lamu.algorithms.optax_defaults import optimiser_or
from lamu.divergences import Divergence, ReverseKL
from lamu.families.base_distributions import BaseDistribution, StandardNormal
from lamu.rate import Annealed, rate

__all__ = ["bayes_by_backprop"]


def bayes_by_backprop(
    optimizer: Any = None,
    estimator: Any = None,
    divergence: Any = None,
    samples: int = 1,
    base_distribution: Any = None,
    scale_transform: Any = None,
    init_scale: float = 0.02,
    factor: Any = Annealed(1.0),
) -> BeliefDescent:
    r"""Bayes by backprop: a mean-field belief, moved along the plain gradient in its own parameters.

    With \(\theta = m + s(\rho)\, z\), z of a fixed law, at temperature T and \(\kappa = N / T\):

    \[ F(m, \rho) = E_z\big[\bar\ell_D(m + s z)\big] + \tfrac1\kappa\, KL\big(q_{m,\rho} \,\|\, p^{1/T}\big), \qquad
       (m, \rho) \leftarrow (m, \rho) + f_t\, \mathrm{update}(\nabla F) \]

    where \(\bar\ell_D\) is the mean negative log likelihood. The divergence of a normal belief from a Gaussian prior is
    exact; any other is estimated from the draws. Dispersions descend beside, by the same optimiser. One gradient and
    one draw a parameter, draw and step; with `LocalReparameterisation()` and `Flipout()` two forward products a layer.

    Departures from the rule: the gradient in the parameters (m, ρ), and not the natural one; whatever the optimiser
    adds; a divergence other than the evidence bound's, where asked.

    Args:
        optimizer: an optax gradient transformation; `optax.adam(0.01)` where none is given.
        estimator: how rows are drawn, of `lamu.algorithms.descent`: `Global()` where none is given,
            `LocalReparameterisation()` or `Flipout()`.
        divergence: of `lamu.divergences`: `ReverseKL()`, the evidence bound, where none is given, `Renyi(alpha)` or
            `InclusiveKL()`, both with several draws.
        samples: how many draws a step.
        base_distribution: the law of z, of `lamu.families.base_distributions`: `StandardNormal()` where none is given,
            `StandardLogistic()`, `StandardLaplace()`, `Radial()`, or `Quantile(function)` of any inverse
            distribution function.
        scale_transform: s(ρ), of `lamu.algorithms.descent`: `SoftplusTransform()` where None, or `ExpTransform()`.
        init_scale: s at the start, in the units of the weights.
        factor: \(f_t\), what every update is multiplied with: a number, a schedule of steps, or `Annealed`.

    Returns:
        The algorithm. Its posterior is the diagonal Gaussian about the weights (of another base distribution, a
        location–scale belief); learned dispersions are a point. `history["loss"]` is the expected negative log
        likelihood a row (for other divergences, their estimate a row).

    Raises:
        TypeError: for something that is no optimiser, estimator, divergence, base distribution or positive
            function, or a base distribution that the estimator cannot sample from.
        ValueError: for an initial scale or a factor that is not positive, or fewer draws than the divergence needs.

    Source: Blundell et al. (2015), section 3.2; Kingma, Salimans & Welling (2015); Wen et al. (2018).

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.variational.bayes_by_backprop import bayes_by_backprop
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> fit = lamu.fit(model, (x, y), bayes_by_backprop(), epochs=20)
        >>> lamu.scores.accuracy(fit.posterior.predict(x), y) > 0.95
        True
    """
    optimizer = optimiser_or(optimizer, "adam", 0.01)
    estimator = _part("estimator", estimator, Global(), Estimator, "Flipout()")
    divergence = _part("divergence", divergence, ReverseKL(), Divergence, "Renyi(0.5)")
    base_distribution = _part(
        "base_distribution", base_distribution, StandardNormal(), BaseDistribution, "StandardLogistic()"
    )
    scale_transform = _part(
        "scale_transform", scale_transform, SoftplusTransform(), PositiveTransform, "ExpTransform()"
    )
    estimator.require(base_distribution)
    if not isinstance(init_scale, int | float) or not init_scale > 0:
        raise ValueError(f"init_scale={init_scale!r} is no scale of a belief; give a positive number")
    name = type(divergence).__name__
    if not isinstance(samples, int) or samples < divergence.least:
        raise ValueError(f"samples={samples!r} cannot estimate {name}(); ask for at least {divergence.least}")
    if not isinstance(divergence, ReverseKL) and not estimator.joint:
        raise ValueError(
            f"{name}() weighs draws of all weights, and {type(estimator).__name__}() gives every row its own; use the "
            "estimator Global()"
        )
    return BeliefDescent(
        optimizer=optimizer,
        estimator=estimator,
        divergence=divergence,
        base_distribution=base_distribution,
        scale_transform=scale_transform,
        factor=rate(factor, "factor"),
        init_scale=float(init_scale),
        samples=samples,
    )


def _part(name: str, value: Any, default: Any, protocol: Any, example: str) -> Any:
    value = default if value is None else value
    # A class has the methods too.
    if isinstance(value, type) or not isinstance(value, protocol):
        raise TypeError(f"{name}={value!r} is no {name}; give for instance {example}")
    return value
