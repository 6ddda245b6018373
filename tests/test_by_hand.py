"""Numbers that no law of their kind sees, each beside its formula written out, so that a wrong factor has a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lamu
from lamu import tree
from lamu.data import Batch
from lamu.expectations import Relaxed
from lamu.families import Categorical, Gaussian, InverseGamma, Point, Product
from lamu.mcmc import SequentialTest
from lamu.mcmc.subsampling import _Tally
from lamu.objective import Objective
from lamu.operators import BlockDiagonal, Dense
from lamu.posterior import Posterior
from lamu.predictives import GaussianPredictive, Linearised, MixturePredictive, Weighted
from lamu.scores.fidelities import wasserstein_of_rows

rng = np.random.default_rng(6)
X = rng.normal(size=(20, 2))
Y = X @ np.array([1.0, -2.0]) + 0.4 * rng.normal(size=20)


def test_a_dispersion_moves_along_its_gradient_over_its_information() -> None:
    """The information of a row about the logarithm of a normal deviation is two."""
    rate = 0.1
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian())
    objective, batch = Objective(model, 20.0), Batch.of(X, Y)
    algorithm = lamu.algorithms.ogn(rate, b1=0.0)
    state = algorithm.init(jax.random.key(0), objective, batch)
    new, _ = algorithm.step(jax.random.key(1), state, batch, objective)
    at = lambda rest: objective.mean_loss({"network": state.mean, "likelihood": rest}, batch, {})[0]
    slope = jax.grad(at)(state.rest)["log_scale"]
    assert np.abs(slope).min() > 0.01
    np.testing.assert_allclose(new.rest["log_scale"], state.rest["log_scale"] - rate * slope / 2, rtol=1e-8)


def test_the_variance_of_a_mixture_weighs_its_members() -> None:
    """E[σ²] + E[m²] − E[m]², of predictions by unequal draws and of posteriors by unequal weights."""
    w, m, s = np.array([0.1, 0.2, 0.7]), np.array([[3.0], [-1.0], [0.5]]), np.array([0.3, 2.0, 1.1])
    mean = w @ m
    variance = w @ (s[:, None] ** 2 + m**2) - mean**2
    epistemic = w @ m**2 - mean**2
    likelihood = lamu.likelihoods.Gaussian()
    drawn = MixturePredictive(likelihood, {"log_scale": jnp.log(s)[:, None]}, jnp.asarray(m)[:, :, None], jnp.log(w))
    parts = [
        GaussianPredictive(jnp.asarray(a), jnp.full((1, 1, 1), b**2), jnp.full(1, b**2))
        for a, b in zip(m, s, strict=True)
    ]
    for found in (drawn, Weighted(tuple(parts), jnp.log(w))):
        np.testing.assert_allclose(np.ravel(found.mean), mean, rtol=1e-10)
        np.testing.assert_allclose(np.ravel(found.variance), variance, rtol=1e-10)
        np.testing.assert_allclose(np.ravel(found.epistemic), epistemic, rtol=1e-10)


def test_the_distance_of_a_fidelity_is_in_the_references_deviations() -> None:
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.4))
    params, _ = model.init(jax.random.key(0), Batch.of(X, Y))

    def about(precision: float, shift: float) -> Posterior:
        weights = jax.tree.map(lambda leaf: leaf + shift, params["network"])
        size = tree.dimension(weights)
        belief = Product({"network": Gaussian(weights, Dense(precision * jnp.eye(size))), "likelihood": Point({})})
        return Posterior(model, belief, {}, Linearised(), jax.random.key(1))

    wide, narrow = about(0.5, 0.3), about(50.0, 0.0)
    for judged, reference in ((wide, narrow), (narrow, wide)):
        mine, theirs = judged.predict(X), reference.predict(X)
        scaled = wasserstein_of_rows(mine, theirs) / np.ravel(theirs.std)
        np.testing.assert_allclose(lamu.scores.fidelity(judged, reference, X).wasserstein.value, scaled.mean())


def test_validation_weighs_its_rows() -> None:
    """A weight of three is three rows, one of a quarter a quarter, and one of zero none."""
    weight = np.array([3.0, 0.25, 0.0, 1.0, 0.5])
    held = {"x": X[:5], "y": Y[:5], "weight": weight}
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.4))
    fit = lamu.fit(model, (X[5:], Y[5:]), lamu.algorithms.adam(0.1), epochs=1, validation=held)
    log_prob = np.asarray(fit.posterior.predict(X[:5]).log_prob(Y[:5]))
    expected = -(weight @ log_prob) / weight.sum()
    assert abs(expected + log_prob[weight > 0].mean()) > 1e-2
    np.testing.assert_allclose(fit.history["validation_nll"][-1], expected, rtol=1e-8)


def test_the_mean_of_an_inverse_gamma_is_scipys() -> None:
    for a, b in ((1.5, 0.7), (3.0, 2.0), (20.0, 0.1)):
        np.testing.assert_allclose(InverseGamma(a, b).mean, stats.invgamma(a, scale=b).mean(), rtol=1e-10)
    assert np.isinf(InverseGamma(0.9, 2.0).mean)


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
def test_a_relaxed_choice_pulls_by_the_chain_rule(tau: float) -> None:
    r"""\(\nabla_\mu = F^{-1} (\partial w / \partial \lambda)^\top \nabla_w \ell\), F the Fisher information."""
    logits = jnp.array([0.3, -0.8, 1.1, 0.0])
    slope = np.array([0.7, -1.3, 0.2, 2.1])
    for seed in range(5):
        w, pull = Relaxed(temperature=tau).point(jax.random.key(seed), Categorical(logits))
        found = np.ravel(jax.tree.leaves(pull(jnp.asarray(slope)))[0])
        w, pi = np.asarray(w), np.asarray(jax.nn.softmax(logits))
        np.testing.assert_allclose(w.sum(), 1.0, rtol=1e-12)
        # w is the softmax of (λ + noise) / τ, whose derivative depends on w alone; λ are the first three logits.
        jacobian = ((np.diag(w) - np.outer(w, w)) / tau)[:, :3]
        fisher = (np.diag(pi) - np.outer(pi, pi))[:3, :3]
        np.testing.assert_allclose(found, np.linalg.solve(fisher, jacobian.T @ slope), rtol=1e-8)


def test_blocks_of_unequal_sizes_meet_a_matrix_where_they_stand() -> None:
    def positive(size: int) -> Any:
        root = rng.normal(size=(size, size))
        return jnp.asarray(root @ root.T + size * np.eye(size))

    like = {"a": jnp.zeros(2), "b": jnp.zeros(4), "c": jnp.zeros(3)}
    S = BlockDiagonal({name: Dense(positive(leaf.size)) for name, leaf in like.items()})
    other = positive(9)
    matrix = np.asarray(S.dense(like))
    np.testing.assert_allclose(S.trace_solve(Dense(other), like), np.trace(np.linalg.solve(matrix, other)), rtol=1e-10)
    factored = S.factored()
    np.testing.assert_allclose(factored.trace_solve(Dense(other), like), np.trace(np.linalg.solve(matrix, other)))
    # The root R of every block stands where its block does: R Rᵀ = S⁻¹.
    unravel = tree.ravel(like)[1]
    columns = jax.vmap(lambda e: tree.ravel(S.inverse_root(unravel(e)))[0])(jnp.eye(9))
    np.testing.assert_allclose(columns.T @ columns, np.linalg.inv(matrix), rtol=1e-8, atol=1e-12)


def test_the_sequential_test_is_students_with_a_finite_population() -> None:
    r"""It decides just where \(1 - F_{n-1}(|t|) < \epsilon / K\), for the mean of n of N, in K early looks."""
    for n, N, blocks, looks, log_prior, u in (
        (10, 100, 1, 9, 0.3, 0.4),
        (30, 40, 3, 3, -0.7, 0.9),
        (5, 15, 1, 2, 0.0, 0.05),
    ):
        differences = 0.06 + 0.05 * rng.normal(size=n)
        level = (np.log(u) - log_prior) / N
        error = differences.std(ddof=1) / np.sqrt(n) * np.sqrt(1 - (n - 1) / (N - 1))
        doubt = looks * stats.t.sf(abs(differences.mean() - level) / error, n - 1)
        zero = jnp.zeros(())
        sums = jnp.sum(differences), jnp.sum(differences**2)
        now = _Tally(jnp.asarray(blocks), jnp.asarray(float(n)), *sums, zero, zero, jnp.array(False), jnp.array(False))
        for factor, sure in ((1.001, True), (0.999, False)):
            assert doubt < 0.49
            test = SequentialTest(factor * doubt)
            seen = test.look(
                jax.random.key(0), now, zero, jnp.asarray(log_prior), jnp.asarray(float(N)), jnp.asarray(u)
            )
            assert bool(seen.decided) == sure, (n, N, factor)
            assert bool(seen.accepted) == (differences.mean() > level)


def test_all_looks_of_a_sequential_test_err_by_its_error_together() -> None:
    """Against what all rows say, of 4,000 decisions that are as close as Metropolis's."""
    differences = jnp.asarray(np.random.default_rng(2).normal(size=(4000, 200)))
    one, zero, no = jnp.ones(()), jnp.zeros(()), jnp.array(False)

    def decide(row: jax.Array) -> jax.Array:
        begun = _Tally(jnp.zeros((), int), zero, zero, zero, zero, zero, no, no)

        def look(now: _Tally, block: jax.Array) -> tuple[_Tally, None]:
            seen = replace(
                now,
                block=now.block + 1,
                rows=now.rows + 20.0,
                total=now.total + jnp.sum(block),
                squares=now.squares + jnp.sum(block**2),
            )
            after = SequentialTest(0.05).look(jax.random.key(0), seen, zero, zero, jnp.asarray(200.0), one)
            return jax.tree.map(lambda old, new: jnp.where(now.decided, old, new), now, after), None

        return jax.lax.scan(look, begun, row.reshape(10, 20))[0].accepted

    wrong = np.mean(np.asarray(jax.jit(jax.vmap(decide))(differences)) != np.asarray(differences.mean(axis=1) > 0))
    assert 0.005 < wrong < 0.05 + 4 * (0.05 / 4000) ** 0.5
