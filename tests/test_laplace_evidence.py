"""The Laplace evidence as a function of the prior, the noise and the temperature, and what is tuned by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from lamu.algorithms import (
    Evidence,
    OneScale,
    ScalePerLayer,
    evidence,
    tuned,
)
from lamu.algorithms.post_hoc.evidence import scales_by_evidence
from lamu.data import Batch
from lamu.families import Point
from lamu.likelihoods import Gaussian, MultivariateGaussian
from lamu.model import Model
from lamu.networks import Linear
from lamu.operators import (
    Dense,
    DenseBlocks,
    Diagonal,
    KroneckerFactored,
)
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.priors import Normal
from tests.laplace_case import (
    DESIGN,
    HIDDEN,
    KEY,
    REGRESSION,
    TARGET,
    N,
    X,
    linear_mode,
)


@pytest.mark.parametrize("structure", [Dense, KroneckerFactored()], ids=str)
def test_the_evidence_of_a_linear_regression_is_the_closed_form(structure: Any) -> None:
    for delta in (1.5, 0.3):
        covariance = 0.25 * np.eye(N) + DESIGN @ DESIGN.T / delta
        exact = multivariate_normal(np.zeros(N), covariance).logpdf(TARGET)
        log_evidence = evidence(linear_mode(delta), (X, TARGET), structure)
        np.testing.assert_allclose(log_evidence(delta), exact, rtol=0, atol=1e-8)
        np.testing.assert_allclose(log_evidence({"layers": {0: jnp.asarray(delta)}}), exact, rtol=0, atol=1e-8)


@pytest.mark.parametrize("structure", [Dense, Diagonal, DenseBlocks, KroneckerFactored()], ids=str)
def test_eigenvalues_that_are_kept_give_the_determinant_anew(structure: Any) -> None:
    """One precision, one a leaf, one a weight, and the posterior's own number; and the slope in each argument."""
    mode = HIDDEN.look(structure)
    log_evidence = Evidence.of(mode, HIDDEN.objective)
    delta = 1 / 0.49
    own = mode.posterior(HIDDEN.objective, jax.random.key(0)).evidence
    leaves = jax.tree.map(lambda _: jnp.asarray(delta), HIDDEN.params["network"])
    weights = jax.tree.map(lambda leaf: jnp.full(leaf.shape, delta), HIDDEN.params["network"])
    for asked in (None, delta, leaves, weights):
        np.testing.assert_allclose(log_evidence(asked), own, rtol=1e-10)
    colder = replace(HIDDEN.objective, temperature=0.5)
    expected = mode.posterior(colder, jax.random.key(0)).evidence
    np.testing.assert_allclose(log_evidence(delta, temperature=0.5), expected, rtol=1e-10)
    slope = jax.grad(lambda point: log_evidence(jnp.exp(point[0]), temperature=point[1]))(jnp.array([0.3, 0.8]))
    step = 1e-5
    for index in range(2):
        ends = [np.array([0.3, 0.8]) + sign * step * np.eye(2)[index] for sign in (1, -1)]
        up, down = (float(log_evidence(np.exp(end[0]), temperature=end[1])) for end in ends)
        np.testing.assert_allclose(slope[index], (up - down) / (2 * step), rtol=1e-5)


def test_the_evidence_knows_a_noise_that_is_learned() -> None:
    model = Model(Linear(), Gaussian(), Normal(0.8))
    params = {**linear_mode(1.0).mean, "likelihood": {"log_scale": jnp.log(jnp.array([0.4]))}}
    point = Posterior(model, Point(params), {}, Sampled(), KEY)
    log_evidence = evidence(point, (X, TARGET))
    wider = {**params, "likelihood": {"log_scale": jnp.log(jnp.array([0.6]))}}
    expected = evidence(replace(point, belief=Point(wider)), (X, TARGET))(2.0, noise=1.0)
    np.testing.assert_allclose(log_evidence(2.0, noise=1.5), expected, rtol=1e-9)
    assert jnp.isfinite(jax.grad(lambda c: log_evidence(2.0, noise=c))(1.2))


def test_a_wider_noise_of_correlated_outputs_is_the_fit_made_anew() -> None:
    """One factor for all deviations: the misfit is in the metric of the whole covariance."""
    likelihood, targets = MultivariateGaussian(), jnp.stack([TARGET, 0.5 * TARGET + X[:, 0]], axis=1)
    model = Model(Linear(), likelihood, Normal(0.8))
    params, _ = model.init(KEY, Batch.of(X, targets))
    params["likelihood"] = {
        "log_scale": jnp.log(jnp.array([0.4, 0.7])),
        "mixing": jnp.full_like(params["likelihood"]["mixing"], 0.9),
    }
    point = Posterior(model, Point(params), {}, Sampled(), KEY)
    wider = {**params, "likelihood": likelihood.scale_noise(params["likelihood"], 1.5)}
    expected = evidence(replace(point, belief=Point(wider)), (X, targets))(2.0, noise=1.0)
    np.testing.assert_allclose(evidence(point, (X, targets))(2.0, noise=1.5), expected, rtol=1e-9)


def test_arguments_of_the_evidence_are_checked() -> None:
    log_evidence = evidence(linear_mode(1.0), (X, TARGET))
    with pytest.raises(ValueError, match=r"precision=-1\.0 is not positive"):
        log_evidence(-1.0)
    with pytest.raises(TypeError, match="is not learned"):
        log_evidence(1.0, noise=2.0)
    with pytest.raises(ValueError, match="not a prefix of the weights"):
        log_evidence({"layers": {3: jnp.asarray(1.0)}})


def test_widths_are_tuned_to_where_the_evidence_is_greatest() -> None:
    """A mode of two layers of different size: each width becomes its own, and no neighbour is better."""
    log_evidence = Evidence.of(HIDDEN.look(KroneckerFactored()), HIDDEN.objective)
    prior, noise = scales_by_evidence(log_evidence, ScalePerLayer())
    assert noise is None
    best = jax.tree.map(lambda s: jnp.asarray(s**-2), prior.scale)
    value = float(log_evidence(best))
    for layer in (0, 1):
        for factor in (0.8, 1.25):
            other = {"layers": {**best["layers"], layer: best["layers"][layer] * factor}}
            assert float(log_evidence(other)) < value
    one, _ = scales_by_evidence(log_evidence, OneScale())
    assert float(log_evidence(float(one.scale) ** -2)) <= value + 1e-9


def test_tuning_is_told_where_a_width_runs_away() -> None:
    """A mode at zero: the evidence asks for a prior that is narrower without end."""
    zero = jax.tree.map(jnp.zeros_like, linear_mode(1.0).mean)
    point = Posterior(REGRESSION, Point(zero), {}, Sampled(), KEY)
    with pytest.warns(UserWarning, match=r"layers/0 \(narrowest\)"):
        posterior = tuned(point, (X, TARGET))
    scale: Any = posterior.model.prior
    np.testing.assert_allclose(scale.scale["layers"][0], 1e-3, rtol=1e-6)
