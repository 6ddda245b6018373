"""Predictions agree with themselves, whatever they are made of: moments, quantiles, draws, density and distribution.

One law over every kind of a calibrated or combined prediction, of unequal weights; and predictions that lie, which it
must catch.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lamu.calibration import Temperature, Widened, temperature_scaling
from lamu.likelihoods import (
    Beta,
    Binomial,
    Gamma,
    Gaussian,
    NegativeBinomial,
    Poisson,
    Scaled,
    StudentT,
    Tobit,
    VonMises,
    Weibull,
    ZeroInflated,
)
from lamu.predictives import GaussianPredictive, MixturePredictive, Weighted

LOG_WEIGHTS = jnp.log(jnp.array([0.7, 0.3]))
# Outputs of two components and two rows.
ONE = jnp.array([[[0.3], [1.2]], [[0.9], [-0.4]]])
TWO = jnp.stack([ONE[..., 0], jnp.array([[-1.0, 0.2], [0.0, -0.5]])], axis=-1)
BASES: dict[str, Any] = {
    "gaussian": Gaussian(0.5),
    "standardised": Scaled(StudentT(6.0, 0.4), 2.0, 3.0),
    "weibull": Weibull(2.0),
    "poisson": Poisson(),
    "zero-inflated": ZeroInflated(Poisson()),
}


def mixture(name: str) -> MixturePredictive:
    return MixturePredictive(BASES[name], {}, TWO if name == "zero-inflated" else ONE, LOG_WEIGHTS)


def law(pred: Any, draws: int = 4000) -> None:
    """Raises an AssertionError unless all that a prediction says is of one distribution in its support.

    Moments and the distribution function are those of the density by a sum over 6,000 points between quantiles of
    1e-6; draws have their moments within five standard errors, quantiles and intervals the probability they claim.
    """
    mean, std, support = np.asarray(pred.mean, float), np.asarray(pred.std, float), pred.support
    if support.discrete:
        highest = support.upper if np.isfinite(support.upper) else (mean + 60 * std).max()
        grid = np.tile(np.arange(0, int(highest) + 1.0)[:, None], (1, len(mean)))
        width = np.ones_like(grid)
    else:
        low, high = mean - 40 * std, mean + 40 * std
        z = np.linspace(-1, 1, 6001)[:, None] ** 3  # dense about the mean
        grid = np.where(z < 0, mean + (mean - low) * z, mean + (high - mean) * z)
        grid = np.clip(grid, support.lower + 1e-12, support.upper - 1e-12)
        width = np.gradient(grid, axis=0)
    density = np.exp(np.asarray(jax.lax.map(pred.log_prob, jnp.asarray(grid)), float))
    mass = density * width
    np.testing.assert_allclose(mass.sum(axis=0), 1.0, rtol=2e-3, err_msg="normalisation")
    first = (mass * grid).sum(axis=0)
    np.testing.assert_allclose(first, mean, atol=3e-3 * std.max(), err_msg="mean")
    spread = np.sqrt((mass * (grid - first) ** 2).sum(axis=0))
    np.testing.assert_allclose(spread, std, rtol=1e-2, err_msg="standard deviation")
    np.testing.assert_allclose(pred.aleatoric + pred.epistemic, pred.variance, rtol=1e-5, err_msg="both kinds")
    for p in (0.1, 0.5, 0.9):
        q = np.asarray(pred.quantile(p), float)
        reached = np.asarray(pred.cdf(jnp.asarray(q)), float)
        sums = np.where(grid <= q, mass, 0.0).sum(axis=0)
        np.testing.assert_allclose(reached, sums, atol=5e-3, err_msg="distribution function")
        if support.discrete:
            assert (q == np.round(q)).all()
            assert (reached >= p - 1e-4).all()
            assert (np.asarray(pred.cdf(jnp.asarray(q - 1)), float) < p + 1e-4).all()
        else:
            np.testing.assert_allclose(reached, p, atol=1e-3, err_msg="quantile")
    lower, upper = (np.asarray(end, float) for end in pred.interval(0.8))
    held = np.where((grid >= lower - 1e-9) & (grid <= upper + 1e-9), mass, 0.0).sum(axis=0)
    assert (held >= 0.8 - 1e-2).all(), "interval"
    assert support.discrete or (held <= 0.8 + 1e-2).all(), "interval"
    sample = np.asarray(pred.sample(jax.random.key(3), draws), float)
    assert np.asarray(support.contains(sample)).all(), "support"
    np.testing.assert_array_less(np.abs(sample.mean(axis=0) - mean), 5 * std / draws**0.5, err_msg="mean of draws")
    np.testing.assert_allclose(sample.std(axis=0), std, rtol=0.1, err_msg="deviation of draws")


@pytest.mark.parametrize("name", ["gaussian", "standardised"])
@pytest.mark.parametrize("factor", [0.6, 1.8])
def test_a_temperature_keeps_the_mean_and_multiplies_the_spread(name: str, factor: float) -> None:
    before = mixture(name)
    after = Temperature(factor, before.support)(before)
    law(after)
    np.testing.assert_allclose(after.mean, before.mean, rtol=1e-6)
    np.testing.assert_allclose(after.std, factor * before.std, rtol=1e-6)
    widths = [np.subtract(*pred.interval(0.8)) for pred in (after, before)]
    np.testing.assert_allclose(widths[0], factor * widths[1], rtol=1e-3)


REFUSED = {
    "poisson": Poisson(),
    "negative binomial": NegativeBinomial(3.0),
    "binomial": Binomial(12),
    "gamma": Gamma(5.0),
    "weibull": Weibull(2.0),
    "beta": Beta(6.0),
    "angles": VonMises(2.0),
    "limited": Tobit(lower=0.0, scale=1.0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_stretch_takes_out_of_its_support_is_refused(name: str) -> None:
    """Counts under predictions whose best stretch was by .19, with a density that is no number; and their kind."""
    likelihood = REFUSED[name]
    pred = MixturePredictive.equal(likelihood, {}, jnp.zeros((1, 2, 1)))
    said = "would leave their support; use conformal"
    with pytest.raises(ValueError, match=f"targets that are {likelihood.support.values} {said}"):
        temperature_scaling(pred, np.array([0.5, 0.5]) if name == "beta" else np.array([1.0, 1.0]))
    for refused in (lambda: Temperature(1.7, pred.support)(pred), lambda: Widened(pred, 1.7)):
        with pytest.raises(ValueError, match=said):
            refused()


def normal(centre: float, scale: float, noise: float) -> GaussianPredictive:
    return GaussianPredictive(jnp.array([centre, centre + 1]), jnp.full((2, 1, 1), scale**2), jnp.full(2, noise**2))


COMBINED: dict[str, Any] = {
    "mixture of normals": lambda: mixture("gaussian"),
    "mixture of counts": lambda: mixture("zero-inflated"),
    "mixture of times": lambda: mixture("weibull"),
    "gaussian": lambda: normal(0.5, 0.8, 0.6),
    "weighted": lambda: Weighted((normal(0.0, 1.0, 0.5), normal(3.0, 0.4, 0.3)), LOG_WEIGHTS),
    "weighted counts": lambda: Weighted((mixture("poisson"), mixture("zero-inflated")), LOG_WEIGHTS),
    "weighted, widened": lambda: Widened(Weighted((normal(0.0, 1.0, 0.5), normal(3.0, 0.4, 0.3)), LOG_WEIGHTS), 1.5),
    "weighted of weighted": lambda: Weighted(
        (Weighted((normal(0.0, 1.0, 0.5), normal(3.0, 0.4, 0.3)), LOG_WEIGHTS), normal(-1.0, 0.5, 0.5)),
        jnp.log(jnp.array([0.2, 0.8])),
    ),
}


@pytest.mark.parametrize("name", COMBINED)
def test_a_prediction_agrees_with_itself(name: str) -> None:
    law(COMBINED[name]())


LIES: dict[str, dict[str, Any]] = {
    "mean moved": {"mean": property(lambda self: self.base.mean + 0.1 * self.base.std)},
    "standard deviation for variance": {"variance": property(lambda self: self.base.std)},
    "density not normalised": {"log_prob": lambda self, y: Widened.log_prob(self, y) + 0.05},
    "another distribution function": {"cdf": lambda self, y: self.base.cdf(y)},
    "quantile of the other side": {"quantile": lambda self, p: Widened.quantile(self, 1 - p)},
    "interval of what is left": {"interval": lambda self, level: Widened.interval(self, 1 - level)},
    "draws of the base": {"sample": lambda self, key, n, first=0: self.base.sample(key, n, first)},
    "narrower draws": {
        "sample": lambda self, key, n, first=0: Widened(self.base, 1 / self.factor).sample(key, n, first)
    },
    "one kind of uncertainty twice": {"aleatoric": property(lambda self: self.variance)},
}


@pytest.mark.parametrize("lie", LIES)
def test_the_law_catches(lie: str) -> None:
    pred: Any = object.__new__(type("Lying", (Widened,), LIES[lie]))
    for name, value in {"base": mixture("gaussian"), "factor": 1.8}.items():
        object.__setattr__(pred, name, value)
    with pytest.raises(AssertionError):
        law(pred)
