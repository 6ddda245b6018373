"""Squares of single rows' gradients, beside their definition row by row; the reference of VOGN covers the rest."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lamu import tree
from lamu.data import Batch
from lamu.families import Gaussian
from lamu.likelihoods import Categorical
from lamu.likelihoods import Gaussian as Gauss
from lamu.model import Model
from lamu.networks import MLP, BatchNorm
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import SquaredGradients
from lamu.operators import Dense, Diagonal, Scalar

X = np.random.default_rng(0).normal(size=(5, 2))
Y = jnp.array([0, 2, 1, 1, 0], jnp.int32)


def case() -> tuple[BatchLoss, dict]:
    model = Model(MLP((3,), "tanh"), Categorical(3))
    batch = Batch.of(X, Y)
    batch = replace(batch, weight=jnp.array([1.0, 2.0, 0.5, 1.0, 3.0])).padded(8)
    params, state = model.init(jax.random.key(0), batch)
    objective = Objective(model, 50, likelihood_power=0.7)
    return BatchLoss(objective, batch, state, NetworkParameters(), {}, conjugate=True), params["network"]


@pytest.mark.parametrize("structure", [Diagonal, Dense])
def test_squares_are_the_rows_own(structure) -> None:
    loss, theta = case()
    model, total = loss.objective.model, 0.0
    for i in range(5):
        log_prob = lambda theta, i=i: model.likelihood.log_prob(
            {}, model.network.apply(theta, {}, jnp.asarray(X[i : i + 1]), None, False)[0], Y[i : i + 1]
        )[0]
        gradient = np.asarray(tree.ravel(jax.grad(log_prob)(theta))[0])
        total = total + 0.7 * loss.batch.weight[i] / 5 * np.outer(gradient, gradient)
    found = SquaredGradients().evaluate(loss, theta, Gaussian(theta, Scalar(1.0)), structure, None)
    expected = total if structure is Dense else np.diag(np.diagonal(total))
    np.testing.assert_allclose(found.curvature.dense(theta), expected, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(tree.ravel(found.gradient)[0], tree.ravel(loss.gradient(theta, None).coordinates)[0])


def test_a_network_with_a_state_is_refused() -> None:
    loss, theta = case()
    loss = replace(loss, network_state={"mean": np.zeros(3)})
    with pytest.raises(TypeError, match="without a state"):
        SquaredGradients().evaluate(loss, theta, Gaussian(theta, Scalar(1.0)), Diagonal, None)


def test_a_prior_in_the_loss_is_refused() -> None:
    loss, theta = case()
    loss = replace(loss, conjugate=False)
    with pytest.raises(TypeError, match="need a Gaussian prior"):
        SquaredGradients().evaluate(loss, theta, Gaussian(theta, Scalar(1.0)), Diagonal, None)


def deep(tree_of_arrays) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree_of_arrays)]


def test_one_pass_gives_what_the_loss_gives() -> None:
    """Value and gradients, those of the dispersions with their own prior, beside `BatchLoss.gradient`."""
    model = Model(MLP((3,), "tanh"), Gauss())
    batch = replace(Batch.of(X, jnp.asarray(X[:, 0])), weight=jnp.array([1.0, 2.0, 0.5, 1.0, 3.0])).padded(8)
    params, state = model.init(jax.random.key(0), batch)
    rest = jax.tree.map(lambda leaf: leaf + 0.3, params["likelihood"])
    objective = Objective(model, 50, likelihood_power=0.7)
    loss = BatchLoss(objective, batch, state, NetworkParameters(), rest, conjugate=True)
    theta = params["network"]
    expected = loss.gradient(theta, None)
    found = SquaredGradients().evaluate(loss, theta, Gaussian(theta, Scalar(1.0)), Diagonal, None)
    assert deep(rest)
    for ours, theirs in (
        (found.value, expected.value), (found.gradient, expected.coordinates), (found.rest, expected.rest)
    ):  # fmt: skip
        for a, b in zip(deep(ours), deep(theirs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("structure", [Diagonal, Dense])
def test_padding_may_hold_anything(structure) -> None:
    loss, theta = case()
    spoilt = replace(loss.batch, x=loss.batch.x.at[5:].set(jnp.nan), y=loss.batch.y.at[5:].set(-7))
    evaluate = lambda batch: SquaredGradients().evaluate(
        replace(loss, batch=batch), theta, Gaussian(theta, Scalar(1.0)), structure, None
    )
    for ours, clean in zip(deep(evaluate(spoilt)), deep(evaluate(loss.batch)), strict=True):
        np.testing.assert_allclose(ours, clean, rtol=1e-12, atol=1e-15)
    if structure is Diagonal:
        nobody = evaluate(replace(spoilt, mask=jnp.zeros_like(spoilt.mask)))
        assert all((leaf == 0).all() for leaf in deep((nobody.gradient, nobody.curvature)))


class Noisy(MLP):
    """A random layer that cannot do without a key."""

    def apply(self, params, state, x, key, train, mask=None):
        kept = jax.random.bernoulli(key, 0.5, x.shape)  # pyright: ignore[reportArgumentType]
        return super().apply(params, state, x * kept.astype(x.dtype), None, train)


def test_bad_input_is_told_with_the_way_out() -> None:
    loss, theta = case()
    belief = Gaussian(theta, Scalar(1.0))
    noisy = replace(loss, objective=replace(loss.objective, model=replace(loss.objective.model, network=Noisy((3,)))))
    with pytest.raises(ValueError, match=r"random layers and no key was given for them; pass key=jax.random.key\(0\)"):
        SquaredGradients().evaluate(noisy, theta, belief, Diagonal, None)
    assert jnp.isfinite(SquaredGradients().evaluate(noisy, theta, belief, Diagonal, jax.random.key(0)).value)
    short = replace(loss, batch=replace(loss.batch, y=loss.batch.y[:4]))
    with pytest.raises(ValueError, match=r"different numbers of rows \(x 8, y 4, mask 8, weight 8\)"):
        SquaredGradients().evaluate(short, theta, belief, Diagonal, None)
    batch = loss.batch
    mixing = Model(MLP((3,), normalise=BatchNorm()), Categorical(3))
    params, state = mixing.init(jax.random.key(0), batch)
    mixed = replace(loss, objective=replace(loss.objective, model=mixing), network_state=state)
    with pytest.raises(TypeError, match=r"rows mix in training, a row has no gradient of its own; use ivon\(\)"):
        SquaredGradients().evaluate(mixed, params["network"], belief, Diagonal, None)
