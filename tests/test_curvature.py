"""Curvature without Jacobians and single gradients, beside the explicit exact object on small networks."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest

from lamu import likelihoods, networks, tree
from lamu.data import Batch
from lamu.families import Gaussian
from lamu.model import Model
from lamu.objective import AllParameters, BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import (
    GaussNewton,
    SampledGaussNewton,
    gauss_newton_product,
    hessian_product,
)
from lamu.objective.curvature.interface import dispersion_prior, require_rows, row_losses, without_padding
from lamu.operators import Dense, Diagonal, Scalar
from lamu.record import record

RNG = np.random.default_rng(3)
X = jnp.asarray(RNG.normal(size=(5, 2)))
IMAGES = jnp.asarray(RNG.normal(size=(5, 4, 4)))


def case(network: Any, likelihood: Any, x: Any = X, space: Any = None) -> tuple[BatchLoss, Any]:
    """A loss with weights, an offset, padding that holds NaN, and a point away from zero."""
    y = jnp.array([0, 2, 1, 1, 0], jnp.int32) if likelihood.task == "classes" else X[:, 0]
    y = jnp.array([0, 1, 1, 0, 1]) if likelihood.task == "binary" else y
    batch = Batch.of(x, y, offset=jnp.linspace(-0.5, 0.5, 5))
    batch = replace(batch, weight=jnp.array([1.0, 2.0, 0.5, 1.0, 3.0])).padded(7)
    model = Model(network, likelihood)
    params, state = model.init(jax.random.key(0), batch)
    bumps = iter(jax.random.split(jax.random.key(1), 99))
    params = jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(next(bumps), leaf.shape), params)
    batch = replace(batch, x=batch.x.at[5:].set(jnp.nan))
    theta, rest = (space or NetworkParameters()).split(params)
    loss = BatchLoss(
        Objective(model, 50, likelihood_power=0.7), batch, state, space or NetworkParameters(), rest, space is None
    )
    return loss, theta


@record
class Filter(networks.MLP):
    """The compiler's own convolution before a network, which a CPU does not run well inside a loop."""

    def init(self, key: Any, x: Any, outputs: int) -> Any:
        params, state = super().init(key, x.reshape(len(x), -1), outputs)
        return {**params, "filter": jnp.ones((1, 1, 2, 2), x.dtype)}, state

    def apply(self, params: Any, state: Any, x: Any, key: Any, train: bool, mask: Any = None) -> Any:
        x = jax.lax.conv(x[:, None], params["filter"], (1, 1), "SAME")
        return super().apply(params, state, jnp.tanh(x).reshape(len(x), -1), key, train)


MLP = networks.MLP((3,), "tanh")
CASES = {
    "classes": partial(case, MLP, likelihoods.Categorical(3)),
    "regression": partial(case, MLP, likelihoods.Gaussian()),
    "everything": partial(case, MLP, likelihoods.Gaussian(), space=AllParameters()),
    "images": partial(case, networks.ConvNet((2,), (3,), 3, "tanh"), likelihoods.Bernoulli(), IMAGES),
    "convolution": partial(case, Filter((3,)), likelihoods.Categorical(3), IMAGES),
    "batch statistics": partial(case, networks.MLP((3,), normalise=networks.BatchNorm()), likelihoods.Categorical(3)),
}
DIAGONALS = jax.jit(lambda loss, theta: GaussNewton().matrix(loss, theta, Diagonal).values)


def clean(loss: BatchLoss) -> BatchLoss:
    """The same rows without padding."""
    return replace(loss, batch=jax.tree.map(lambda leaf: leaf[:5], loss.batch))


MATRICES = jax.jit(lambda loss, theta: GaussNewton().matrix(clean(loss), theta, Dense))


def near(found: Any, expected: Any, tolerance: float = 1e-10) -> None:
    a, b = (np.asarray(tree.ravel(part)[0]) for part in (found, expected))
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.max(np.abs(b)))


def sizes(jaxpr: Any) -> set[int]:
    found = {atom.aval.size for equation in jaxpr.eqns for atom in equation.outvars}
    return found.union(*(sizes(inner) for e in jaxpr.eqns for inner in jax.extend.core.jaxprs_in_params(e.params)))


@pytest.mark.parametrize("name", CASES)
def test_the_diagonal_is_that_of_the_matrix(name: str, caplog: pytest.LogCaptureFixture) -> None:
    loss, theta = CASES[name]()
    with caplog.at_level(logging.INFO, "lamu"):
        found = DIAGONALS(loss, theta)
    near(found, MATRICES(loss, theta).diagonal(theta))
    assert not caplog.records  # every leaf was read


def test_no_jacobian_is_held() -> None:
    loss, theta = case(networks.MLP((40,)), likelihoods.Categorical(3))
    kernel = 40 * 3  # of the last layer; its Jacobian is the largest, 7 rows and 3 outputs of them
    of = lambda structure: sizes(jax.make_jaxpr(lambda t: GaussNewton().matrix(loss, t, structure))(theta).jaxpr)
    assert max(of(Diagonal)) < 7 * kernel < 7 * 3 * kernel <= max(of(Dense))


def test_drawn_labels_are_unbiased() -> None:
    """Each entry within five standard errors of the mean of 2,000 draws: 21 entries, a false alarm at 1e-5."""
    loss, theta = CASES["classes"]()
    belief = Gaussian(theta, Scalar(1.0))

    @jax.jit
    def at(keys: jax.Array) -> Any:
        one = lambda key: SampledGaussNewton().evaluate(loss, theta, belief, Diagonal, key)
        found = jax.lax.map(lambda key: (one(key).curvature.values, one(jax.random.clone(key)).gradient), keys)
        return found[0], jax.tree.map(lambda leaf: leaf[0], found[1])

    draws, gradient = at(jax.random.split(jax.random.key(0), 2000))
    near(gradient, clean(loss).gradient(theta, None).coordinates)
    flat = np.asarray(jax.vmap(lambda draw: tree.ravel(draw)[0])(draws))
    exact = np.asarray(tree.ravel(DIAGONALS(loss, theta))[0])
    assert np.all(np.abs(flat.mean(0) - exact) < 5 * flat.std(0) / np.sqrt(len(flat)) + 1e-15)
    assert np.all(flat >= 0)


@jax.jit
def drawn(loss: BatchLoss, theta: Any, key: jax.Array) -> Any:
    """The diagonal of two draws, the same of the matrix, the mean of the draws one by one, and the loss's gradient."""
    matrix = lambda draws, structure, key: SampledGaussNewton(draws).matrix(loss, theta, structure, key)
    whole = matrix(2, Dense, jax.random.clone(key)).diagonal(theta)
    one, other = (matrix(1, Diagonal, each).values for each in jax.random.split(jax.random.clone(key)))
    return matrix(2, Diagonal, key).values, whole, tree.scale(tree.add(one, other), 0.5)


def test_structures_and_draws_of_drawn_labels_agree() -> None:
    loss, theta = CASES["everything"]()  # its prior is in the loss, and adds its curvature
    narrow, whole, mean = drawn(loss, theta, jax.random.key(3))
    near(narrow, whole)
    near(narrow, mean)
    share = loss.prior_curvature(theta)
    assert all(jnp.all(a >= b) for a, b in zip(jax.tree.leaves(narrow), jax.tree.leaves(share), strict=True))
    choice = SampledGaussNewton(samples=2)
    with pytest.raises(ValueError, match="needs a key"):
        choice.evaluate(loss, theta, Gaussian(theta, Scalar(1.0)), Diagonal, None)
    with pytest.raises(ValueError, match="samples=0"):
        SampledGaussNewton(samples=0)


@pytest.mark.parametrize("name", ["classes", "everything"])
def test_products_are_those_of_the_matrix(name: str) -> None:
    loss, theta = CASES[name]()
    vector, unravel = tree.ravel(theta)
    v = unravel(jnp.asarray(RNG.normal(size=vector.size)))
    matrix = MATRICES(loss, theta)
    near(jax.jit(lambda theta, v: gauss_newton_product(loss, theta)(v))(theta, v), matrix.matvec(v))
    value = lambda flat: clean(loss).value(unravel(flat), loss.rest, None)[0]
    expected = jax.jit(jax.hessian(value))(vector) @ tree.ravel(v)[0]
    near(jax.jit(lambda theta, v: hessian_product(loss, theta)(v))(theta, v), expected)
    held = sizes(jax.make_jaxpr(lambda theta, v: gauss_newton_product(loss, theta)(v))(theta, v).jaxpr)
    assert max(held) < 7 * vector.size  # no Jacobian


def test_rows_sum_to_the_loss() -> None:
    loss, theta = CASES["regression"]()
    row, rows, weights = row_losses(loss, None)
    values = jax.vmap(lambda one: row((theta, loss.rest), one))(rows)
    prior = dispersion_prior(loss, theta)[0]
    near(jnp.dot(values, weights) + prior, clean(loss).gradient(theta, None).value)
    assert jnp.isfinite(without_padding(loss).batch.x).all()
    require_rows(loss)
