"""Priors that are Gaussian in some leaves: exact there, by the gradient of the log density elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.expectations import Delta
from lamu.families import Binary
from lamu.objective import BatchLoss, NetworkParameters, NonGaussian, Objective
from lamu.operators import Dense, Diagonal
from lamu.priors import (
    Belief,
    ByPath,
    Discrete,
    GeneralisedNormal,
    Laplace,
    MatrixNormal,
    Normal,
    Prior,
    SpikeAndSlab,
    gaussian_belief,
)
from lamu.record import record
from lamu.testing import check_prior
from tests.for_each import for_each

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 3))
Y = X @ np.array([1.0, -0.5, 0.0]) + 0.7 + 0.3 * rng.normal(size=40)
MIXED = ByPath({"*bias": GeneralisedNormal(1.0, power=4.0), "*": Normal(0.3)})


@record
class ThroughTheLoss(Prior):
    """Any prior, as one of which nothing but the density is known."""

    of: Any

    def log_prob(self, params: Any) -> Any:
        return self.of.log_prob(params)


@record
class Centred(Prior):
    """A kernel whose scale is the exponential of the bias: Gaussian given the bias."""

    def log_prob(self, params: Any) -> Any:
        (layer,) = params["layers"].values()
        kernel, log_scale = layer["kernel"], layer["bias"]
        away = kernel * jnp.exp(-log_scale)[None]
        return -jnp.sum(away * away) / 2 - kernel.size * jnp.sum(log_scale) - jnp.sum(log_scale**2) / 2

    def gaussian(self, params: Any) -> Any:
        (layer,) = params["layers"].values()
        kernel = layer["kernel"]
        tree = lambda leaf: {"layers": {0: {"bias": None, "kernel": leaf}}}
        precision = jnp.broadcast_to(jnp.exp(-2 * layer["bias"])[None], kernel.shape)
        return lamu.families.Gaussian(tree(jnp.zeros_like(kernel)), Diagonal(tree(precision)))


def model(prior: Any, network: Any = None) -> Any:
    return lamu.Model(network or lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.3), prior)


def weights(of: Any) -> Any:
    return of.init(jax.random.key(0), lamu.data.Batch.of(jnp.asarray(X), jnp.asarray(Y)))[0]["network"]


@pytest.mark.stress
def test_a_prior_answers_for_the_leaves_that_are_gaussian() -> None:
    params = weights(model(MIXED))
    known = MIXED.gaussian(params)
    assert known.mean["layers"][0]["bias"] is None
    np.testing.assert_allclose(known.precision.values["layers"][0]["kernel"], 0.3**-2)
    assert gaussian_belief(MIXED, params) is None
    assert NonGaussian.of(Normal(), params) is None
    blocks = ByPath({"*bias": Laplace(1.0), "*": MatrixNormal(rows=2.0 * np.eye(3))})
    precision = NetworkParameters().conjugate_prior(Objective(model(blocks), 40), params)[1]
    away = jax.tree.map(jnp.ones_like, params)
    np.testing.assert_allclose(precision.matvec(away)["layers"][0]["kernel"], 0.5 / 40)
    np.testing.assert_array_equal(precision.matvec(away)["layers"][0]["bias"], 0.0)
    for prior in (MIXED, blocks):
        check_prior(prior, params)


@pytest.mark.parametrize("structure", [Diagonal, Dense])
def test_exact_leaves_and_density_make_the_same_fit(structure: Any) -> None:
    """By the delta method with a Hessian both are the same step: the exact part is the density's own gradient."""
    algorithm = lamu.algorithms.von(learning_rate=0.3, structure=structure, expectation=Delta())
    fit = lambda prior: lamu.fit(model(prior), (X, Y), algorithm, steps=200, batch_size=40, temperature=0.5).posterior
    mixed, density = fit(MIXED), fit(ThroughTheLoss(MIXED))
    for a, b in zip(jax.tree.leaves(mixed.belief), jax.tree.leaves(density.belief), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    gaussian = ByPath({"*bias": Normal(1.0), "*": Normal(0.3)})
    exact = lamu.fit(model(gaussian), (X, Y), lamu.algorithms.conjugate()).posterior
    cold = lamu.fit(model(gaussian), (X, Y), algorithm, steps=200, batch_size=40).posterior
    for a, b in zip(jax.tree.leaves(cold.mean["network"]), jax.tree.leaves(exact.mean["network"]), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("algorithm", [lamu.algorithms.ivon, lamu.algorithms.bayes_by_backprop])
def test_sampling_algorithms_end_where_the_density_does(algorithm: Any) -> None:
    """One seed; means differ by the noise of the exact part alone, below a fifth of a posterior deviation."""
    fit = lambda prior: lamu.fit(model(prior), (X, Y), algorithm(), epochs=400, batch_size=40).posterior
    mixed, density = fit(MIXED), fit(ThroughTheLoss(MIXED))
    spread = 0.3 / np.sqrt(40)
    for a, b in zip(jax.tree.leaves(mixed.mean["network"]), jax.tree.leaves(density.mean["network"]), strict=True):
        np.testing.assert_allclose(a, b, atol=0.2 * spread)


def test_the_remainder_counts_what_other_leaves_do_to_the_gaussian_ones() -> None:
    """In a centred hierarchy the scale's gradient has the weights' density in it; the weights' own pull is exact."""
    params = weights(model(Centred()))
    theta = jax.tree.map(lambda leaf: leaf + 0.4, params)
    slope, own = jax.grad(Centred().log_prob)(theta), jax.grad(NonGaussian(Centred()).log_prob)(theta)
    np.testing.assert_allclose(own["layers"][0]["bias"], slope["layers"][0]["bias"], rtol=1e-12)
    np.testing.assert_array_equal(own["layers"][0]["kernel"], 0.0)
    objective = Objective(model(Centred()), 40)
    batch = lamu.data.Batch.of(jnp.asarray(X), jnp.asarray(Y))
    mean, delta = NetworkParameters().conjugate_prior(objective, theta)
    loss = BatchLoss.beside((mean, delta), objective, batch, {}, NetworkParameters(), {}, theta)
    whole = BatchLoss(objective, batch, {}, NetworkParameters(), {})
    found = lamu.tree.add(loss.gradient(theta, None).coordinates, delta.matvec(lamu.tree.add(theta, mean, -1.0)))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(whole.gradient(theta, None).coordinates), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_frozen_leaves_enter_the_density_of_a_hierarchical_prior() -> None:
    """The scale's gradient given frozen weights is that of the complete tree; without them it would be −log scale."""
    free = model(Centred())
    params = {"network": jax.tree.map(lambda leaf: leaf + 2.0, weights(free)), "likelihood": {}}
    frozen = free.freeze(params, "*kernel")
    scale = {"network": jax.tree.map(lambda leaf: leaf, params["network"]), "likelihood": {}}
    scale["network"]["layers"][0]["kernel"] = None
    slope = jax.grad(frozen.log_prior)(scale)["network"]["layers"][0]["bias"]
    np.testing.assert_allclose(slope, jax.grad(free.log_prior)(params)["network"]["layers"][0]["bias"], rtol=1e-12)
    # And the other way round: frozen scales, free weights, whose prior is then a known Gaussian.
    held = free.freeze(params, "*bias")
    kernel = {"network": {"layers": {0: {**params["network"]["layers"][0], "bias": None}}}, "likelihood": {}}
    known = gaussian_belief(held.free_prior, kernel["network"])
    expected = jnp.exp(-2 * params["network"]["layers"][0]["bias"])
    np.testing.assert_allclose(known.precision.values["layers"][0]["kernel"].ravel(), jnp.repeat(expected, 3))
    posterior = lamu.fit(held, (X, Y), lamu.algorithms.conjugate()).posterior
    again = lamu.fit(
        replace(held, prior=Normal(float(expected[0] ** -0.5))), (X, Y), lamu.algorithms.conjugate()
    ).posterior
    for a, b in zip(jax.tree.leaves(posterior.mean), jax.tree.leaves(again.mean), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_independent_priors_are_asked_about_free_leaves_alone() -> None:
    """So that the evidence of a head does not count the density of frozen features."""
    free = model(MIXED)
    params = {"network": weights(free), "likelihood": {}}
    frozen = free.freeze(params, "*bias")
    kernel = {"layers": {0: {"bias": None, "kernel": params["network"]["layers"][0]["kernel"]}}}
    expected = Normal(0.3).log_prob(kernel)
    np.testing.assert_allclose(frozen.log_prior({"network": kernel, "likelihood": {}}), expected, rtol=1e-12)


def test_a_prior_of_signs_is_what_a_belief_of_signs_takes_in() -> None:
    """Without data the belief about the kernel is the prior; the same numbers as by `Belief(Binary(...))`."""
    prior = ByPath({"*kernel": Discrete(0.8), "*": Normal(1.0)})
    half_logit = np.log(0.8 / 0.2) / 2
    kernel = weights(model(prior))["layers"][0]["kernel"]
    known = Belief(Binary({"layers": {0: {"bias": None, "kernel": jnp.full_like(kernel, half_logit)}}}), Normal(1.0))
    run = lambda prior: lamu.fit(
        model(prior),
        {"x": X, "y": Y, "weight": np.full(40, 1e-9)},
        lamu.algorithms.bayesbinn(),
        steps=300,
        batch_size=40,
    )
    with pytest.warns(lamu.data.UnscaledWeights, match="sums to 4e-08 over 40 rows"):
        found, same = (run(each).posterior.belief.factors["network"] for each in (prior, known))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(same), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    with pytest.raises(ValueError, match=r"probability of \+1 1\.0 is not between 0 and 1; .* for '\*kernel'"):
        Discrete({"*kernel": 1.0})
    assert float(Discrete(0.5).log_prob({"w": jnp.array([0.3])})) == -np.inf


@pytest.mark.stress
@for_each(
    "algorithm, prior",
    [
        (lamu.algorithms.ivon(), Discrete(0.5)),
        (lamu.algorithms.laplace(), ByPath({"*kernel": Discrete(0.5), "*": Normal(1.0)})),
        (lamu.mcmc.nuts(chains=2, warmup=4, draws=4), Discrete(0.5)),
        (lamu.algorithms.bayesbinn(), Discrete(0.5)),  # its biases are real
    ],
)
def test_real_weights_under_a_prior_of_signs_are_one_sentence(algorithm: Any, prior: Any) -> None:
    length = {} if algorithm.traits.length is not None else {"steps": 2}
    with pytest.raises(lamu.Diverged, match=r"weights -1 and \+1, .* take bayesbinn\(\).*ByPath\("):
        lamu.fit(model(prior), (X, Y), algorithm, **length)


def test_spike_and_slab_is_told_what_is_wrong() -> None:
    for options, message in (({"share": 1.0}, "the share 1.0"), ({"spike": 0.0}, "the spike 0.0")):
        with pytest.raises(ValueError, match=message):
            SpikeAndSlab(1.0, **options)


def test_laplace_under_spikes_is_refused_or_told() -> None:
    mlp = lamu.Model(lamu.networks.MLP((2,)), lamu.likelihoods.Gaussian(1.0), SpikeAndSlab())
    with pytest.raises(ValueError, match=r"take lamu.algorithms.ivon\(\)"):
        lamu.fit(mlp, (X, X[:, 0]), lamu.algorithms.laplace(), steps=2)
    # By quadrature: the deviations of Laplace's method and of the mixture, each weight given N(c, 1/h) by the rows.
    c, h, w = np.array([0.03, 0.4, 3.0, 0.01]), 120.0, np.linspace(-2.0, 8.0, 400_001)
    prior = SpikeAndSlab(2.0, share=0.5, spike=0.025)
    log_density = lambda w: np.asarray(prior.log_density(jnp.asarray(w / 2.0)))
    density = np.exp(log_density(w) - h * (w - c[:, None]) ** 2 / 2)
    density /= density.sum(axis=1, keepdims=True)
    exact = np.sqrt(density @ w**2 - (density @ w) ** 2)
    mode = w[density.argmax(axis=1)]
    curvature = -jax.vmap(jax.grad(jax.grad(lambda w: prior.log_density(w / 2.0))))(jnp.asarray(mode))
    shares = prior.shares_of_deviation({"w": jnp.asarray(mode)}, {"w": h + curvature})["w"]
    np.testing.assert_allclose(shares, 1 / np.sqrt(h + curvature) / exact, rtol=1e-2)
    x = np.random.default_rng(0).normal(size=(120, 2))
    y = 2 * x[:, 0] + 0.2 * x[:, 1] + np.random.default_rng(1).normal(size=120)
    line = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Gaussian(1.0), SpikeAndSlab())
    with pytest.warns(lamu.Unconverged, match=r"one of the spike or one of the slab.*take lamu.mcmc.nuts\(\)"):
        lamu.fit(line, (x, y), lamu.algorithms.laplace())
