"""Laplace's method by products alone, and its parts together: Lanczos, matrix-free, convolutions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lamu
from lamu import tree
from lamu.algorithms import (
    laplace,
    map_estimate,
)
from lamu.algorithms.post_hoc.laplace_fit import fit_laplace
from lamu.data import Arrays
from lamu.families import Point
from lamu.likelihoods import Bernoulli, Categorical
from lamu.model import Model
from lamu.networks import ConvNet, Linear
from lamu.objective import Objective
from lamu.operators import (
    Diagonal,
    KroneckerFactored,
    MatrixFree,
    MatrixFreeStructure,
)
from lamu.operators.matrix_free import eigenpairs, lanczos
from lamu.posterior import Posterior
from lamu.predictives import Linearised, LinearisedMarginal, Sampled
from lamu.priors import Normal
from tests.laplace_case import (
    CLASSES,
    CLOSE,
    DESIGN,
    HIDDEN,
    KEY,
    NEW,
    TARGET,
    N,
    X,
    dense,
)


@pytest.mark.stress
def test_a_recipe_of_parts_fits() -> None:
    """The parts in one run, from the optimiser to a prediction, whose numbers are those of the mode."""
    y = (TARGET > 0).astype(np.int32)
    model = Model(Linear(), Bernoulli(), Normal(1.0))
    algorithm = laplace(map_estimate(optax.lbfgs()), structure=KroneckerFactored())
    posterior: Any = lamu.fit(model, (X, y), algorithm, steps=30, batch_size=N).posterior
    assert algorithm.choices.family == "Gaussian, Kronecker precision"
    p = jax.nn.sigmoid(posterior.model.outputs(posterior.mean, {}, jnp.asarray(X))[0][:, 0])
    mean_input = DESIGN.T @ DESIGN / N
    np.testing.assert_allclose(dense(posterior), mean_input * float(jnp.sum(p * (1 - p))) + np.eye(4), rtol=1e-6)


def test_lanczos_finds_multiple_eigenvalues() -> None:
    """Where its space is exhausted it goes on with another vector."""
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    values = np.array([5.0, 5.0, 2.0, 2.0, 0.0, 0.0])
    S = jnp.asarray(basis * values @ basis.T)
    found, vectors = eigenpairs(lambda v: S @ v, jnp.zeros(6), 4, 6, jax.random.key(0))
    np.testing.assert_allclose(found, [5.0, 5.0, 2.0, 2.0], atol=1e-10)
    np.testing.assert_allclose(S @ vectors.T, vectors.T * found[None], atol=1e-9)
    with pytest.raises(ValueError, match="no more than those"):
        lanczos(lambda v: v, jnp.ones(2), 3, jax.random.key(0))


@pytest.mark.stress
def test_matrix_free_is_the_dense_matrix() -> None:
    """Solves and draws to the tolerance; determinants by as many steps as coordinates, within the probes' error."""
    structure = MatrixFreeStructure(tolerance=1e-12, probes=64)
    posterior: Any = HIDDEN.posterior(structure)
    S, q = HIDDEN.precision(), posterior.belief.factors["network"]
    assert isinstance(q.precision, MatrixFree)
    np.testing.assert_allclose(dense(posterior), S, **CLOSE)
    v = jax.tree.map(jnp.ones_like, q.mean)
    np.testing.assert_allclose(tree.ravel(q.precision.solve(v))[0], np.linalg.solve(S, np.ones(31)), rtol=1e-8)
    exact = np.linalg.slogdet(S)[1]
    assert abs(float(q.precision.logdet(q.mean)) - exact) < 0.05 * abs(exact)
    unravel = tree.ravel(q.mean)[1]
    R = np.stack([tree.ravel(q.precision.inverse_root(unravel(e)))[0] for e in jnp.eye(31)], axis=1)
    np.testing.assert_allclose(R @ R.T, np.linalg.inv(S), atol=1e-8)
    # 4,000 draws: a variance is known to 2.2 %; five times that, 31 times, once in 56,000 runs.
    away = jax.vmap(lambda key: tree.ravel(q.precision.sample(key, q.mean))[0])(jax.random.split(KEY, 4000))
    np.testing.assert_allclose(jnp.var(away, axis=0), np.diag(np.linalg.inv(S)), rtol=0.12)
    assert np.isfinite(posterior.predict(np.asarray(NEW)).log_prob(CLASSES[:4])).all()


@pytest.mark.stress
@pytest.mark.parametrize("structure", [KroneckerFactored(), Diagonal], ids=str)
def test_a_kernel_used_at_many_positions(structure: Any) -> None:
    """A convolution's part of the covariance, row by row, is that of its Jacobian."""
    images, y = np.random.default_rng(0).normal(size=(5, 6, 6, 1)), np.arange(5) % 2
    model, rows = Model(ConvNet((2,), widths=(3,)), Categorical(2), Normal(0.7)), Arrays.of((images, y))
    params, state = model.init(jax.random.key(0), rows.full())
    point, objective = Posterior(model, Point(params), state, Sampled(), KEY), Objective(model, 5)
    posterior: Any = fit_laplace(structure, point, objective, rows).posterior(objective, jax.random.key(0))
    vector, unravel = tree.ravel(params["network"])
    outputs = lambda v, x: model.outputs({"network": unravel(v), "likelihood": {}}, state, x[None])[0][0]
    J = jax.vmap(jax.jacrev(outputs), (None, 0))(vector, jnp.asarray(images))
    expected = np.einsum("nkd,de,nle->nkl", J, np.linalg.inv(dense(posterior)), J)
    parts = (model, posterior.belief, state, 8, jax.random.key(1))
    np.testing.assert_allclose(Linearised().outputs(*parts).normal(jnp.asarray(images), None)[1], expected, **CLOSE)
    marginal = LinearisedMarginal().outputs(*parts).normal(jnp.asarray(images), None)[1]
    np.testing.assert_allclose(marginal, np.einsum("nkk->nk", expected), **CLOSE)
