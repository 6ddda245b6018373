"""Directions of single gradients beside the matrix of them, and what is made of them: low-rank beliefs, SLANG."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.anchors import australian, model_of, negative_elbo

import lamu
from lamu import tree
from lamu.algorithms import vogn, von
from lamu.algorithms.variational.online_newton import slang
from lamu.data import Batch
from lamu.expectations import Delta, MonteCarlo
from lamu.families import Gaussian
from lamu.geometry import Compressed, Retraction, Straight
from lamu.likelihoods import Gaussian as Noise
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import LowRankGradients, SquaredGradients
from lamu.objective.curvature.reader.gradient_matrix import gradient_matrix, leading_eigenvectors
from lamu.operators import Dense, DenseBlocks, Diagonal, LowRank, LowRankEigen, LowRankStructure, Scalar
from lamu.rate import Annealed
from lamu.rule import Rule
from tests import test_curvature_reader as networks
from tests.test_logistic_anchors import FOLDER

RNG = np.random.default_rng(1)
WEIGHTS = jnp.array([0.5, 1.0, 0.0, 2.0, 0.25])  # one is padding
BATCH = len(WEIGHTS)


def normal(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=shape))


def conv_net(p: Any, x: jax.Array) -> jax.Array:
    y = jnp.tanh(convolved(x[None], p["first"], 2, 1) + p["bias"][None, None, None])
    y = jnp.tanh(convolved(y, p["grouped"], 1, 2))
    return networks.tail(y.reshape(-1) @ p["out"])


def convolved(x: jax.Array, kernel: jax.Array, stride: int, groups: int) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
    )


def shared(p: Any, x: jax.Array) -> jax.Array:
    """Weights shared over positions, one of them through an elementwise change; heads as a batch of products."""
    hidden = jnp.tanh(x @ jnp.exp(p["log"]) + p["bias"][None])
    heads = jnp.einsum("td,dhk->thk", hidden, p["heads"])
    return networks.tail(heads) + networks.tail(jnp.einsum("thk,hk->th", heads, p["each"]))


def once(p: Any, x: jax.Array) -> jax.Array:
    """One position, through an elementwise change, and a leaf in two slices."""
    return networks.tail(jnp.tanh(x @ (p["v"] ** 2)) @ p["both"][:3] + x @ p["both"][3:])


CASES = {
    "dense": (networks.mlp, networks.MLP, normal(BATCH, 3)),
    "once": (once, {"v": normal(3, 3), "both": normal(6, 2)}, normal(BATCH, 3)),
    "positions": (
        shared,
        {"log": normal(3, 4), "bias": normal(4), "heads": normal(4, 2, 3), "each": normal(2, 3)},
        normal(BATCH, 6, 3),
    ),
    "convolutions": (
        conv_net,
        {"first": normal(3, 2, 2, 4), "bias": normal(4), "grouped": normal(2, 2, 2, 2), "out": normal(24, 3)},
        normal(BATCH, 5, 4, 2),
    ),
    "embedding": (
        networks.embedding,
        {"table": normal(6, 3), "out": normal(3, 2)},
        jnp.asarray(RNG.integers(0, 6, (BATCH, 4))),
    ),
    "tied": (
        networks.tied,
        {"table": normal(6, 3), "scale": normal(3)},
        jnp.asarray(RNG.integers(0, 6, (BATCH, 4))),
    ),
}


def rows_of(loss: Any, params: Any, x: jax.Array, weights: jax.Array = WEIGHTS) -> np.ndarray:
    """G, held."""
    rows = jax.vmap(jax.grad(loss), (None, 0))(params, x)
    flat = jax.vmap(lambda row: tree.ravel(row)[0])(rows)
    return np.sqrt(np.asarray(weights))[:, None] * np.where(np.asarray(weights)[:, None] > 0, flat, 0.0)


def columns(vectors: Any) -> np.ndarray:
    return np.asarray(jax.vmap(lambda v: tree.ravel(v)[0])(vectors))


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_directions_are_those_of_the_rows(name: str, caplog: pytest.LogCaptureFixture) -> None:
    loss, params, x = CASES[name]
    G = rows_of(loss, params, x)
    c = normal(BATCH, 2)

    @jax.jit
    def answers(params: Any, x: jax.Array) -> Any:
        met = gradient_matrix(loss, params, x, WEIGHTS)
        return met.gram(), met.combine(c), met.squares(), met.gradient, met.leading(2)

    with caplog.at_level(logging.WARNING, "lamu"):
        gram, combined, squares, gradient, leading = answers(params, x)
    assert ("cannot be read" in caplog.text) == (name == "tied")
    close = {"rtol": 1e-9, "atol": 1e-11}
    np.testing.assert_allclose(gram, G @ G.T, **close)
    np.testing.assert_allclose(columns(combined), c.T @ G, **close)
    np.testing.assert_allclose(tree.ravel(squares)[0], np.sum(G**2, axis=0), **close)
    np.testing.assert_allclose(tree.ravel(gradient)[0], np.sqrt(WEIGHTS) @ G, **close)
    values, vectors_ = np.linalg.eigh(G.T @ G)
    best = (vectors_[:, -2:] * values[-2:]) @ vectors_[:, -2:].T
    W = columns(leading)
    np.testing.assert_allclose(W.T @ W, best, rtol=1e-7, atol=1e-9 * values[-1])


def test_leading_eigenvectors_of_a_large_matrix_lose_little() -> None:
    """Of a slowly falling spectrum: orthonormal, and within a thousandth of what the best space holds."""
    basis = np.linalg.qr(RNG.normal(size=(90, 90)))[0]
    values = 1.0 / np.arange(1.0, 91.0)
    matrix = (basis * values) @ basis.T
    found = np.asarray(leading_eigenvectors(jnp.asarray(matrix), 5))
    np.testing.assert_allclose(found.T @ found, np.eye(5), atol=1e-12)
    held = np.diagonal(found.T @ matrix @ found)
    assert np.all(np.diff(held) < 0)
    assert values[:5].sum() * 0.999 < held.sum() <= values[:5].sum() * (1 + 1e-12)


X = RNG.normal(size=(12, 3))
LABELS = (X @ np.array([1.0, -2.0, 0.5]) + RNG.normal(size=12) > 0).astype(int)
logistic = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())
COORDINATES = 4
KEY = jax.random.key(0)


@pytest.mark.parametrize(
    "learned", [pytest.param(False, id="logistic", marks=pytest.mark.stress), pytest.param(True, id="learned noise")]
)
def test_curvature_is_the_leading_part_with_an_exact_diagonal(learned: bool) -> None:
    """Beside all outer products; value and gradients beside those of the loss. Padding is NaN."""
    model = replace(logistic, likelihood=Noise()) if learned else logistic
    batch = Batch.of(X, X[:, 0] if learned else LABELS)
    batch = replace(batch, weight=jnp.linspace(0.5, 2.0, 12))
    params, state = model.init(KEY, batch)
    theta, rest = NetworkParameters().split(params)
    loss = BatchLoss(
        Objective(model, 50, likelihood_power=0.7), batch, state, NetworkParameters(), rest, conjugate=True
    )
    belief = Gaussian(theta, Scalar(1.0))
    whole = np.asarray(SquaredGradients().evaluate(loss, theta, belief, Dense, None).curvature.matrix)
    at = loss.gradient(theta, None)

    padded = batch.padded(15)
    padded = replace(padded, x=padded.x.at[12:].set(jnp.nan))
    found = LowRankGradients(2).evaluate(replace(loss, batch=padded), theta, belief, LowRankStructure(2), None)
    values, vectors = np.linalg.eigh(whole)
    best = (vectors[:, -2:] * values[-2:]) @ vectors[:, -2:].T
    expected = best + np.diag(np.diagonal(whole - best))
    np.testing.assert_allclose(found.curvature.dense(theta), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.value, at.value, rtol=1e-12)
    for one, other in ((found.gradient, at.coordinates), (found.rest, at.rest)):
        np.testing.assert_allclose(tree.ravel(one)[0], tree.ravel(other)[0], rtol=1e-9, atol=1e-12)


def walked(rule: Rule, steps: int) -> list[Any]:
    """The states after each of some steps on halves of the data."""
    states = [rule.init(KEY, Objective(logistic, 12), Batch.of(X, LABELS))]
    step = jax.jit(stepped)
    for t in range(steps):
        states.append(step(rule, states[-1], t % 2))
    return states


def at_the_mean(**options: Any) -> Rule:
    """SLANG without draws, which depend on the root of the covariance that a structure has."""
    return replace(slang(0.3, b2=0.7, hess_init=0.3, curvature_update_period=1, **options), expectation=Delta())


def test_full_rank_is_the_dense_rule() -> None:
    dense = replace(at_the_mean(), structure=Dense, curvature=SquaredGradients(), geometry=Straight())
    for ours, theirs in zip(walked(at_the_mean(rank=COORDINATES), 4), walked(dense, 4), strict=True):
        like = theirs.mean
        np.testing.assert_allclose(tree.ravel(ours.mean)[0], tree.ravel(like)[0], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(ours.precision.dense(like), theirs.precision.matrix, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("rank", "cut"), [(1, 1), (2, 3)])
def test_diagonal_is_that_of_vogn(rank: int, cut: int) -> None:
    """Along the path of SLANG's mean, whatever the ranks; and the columns are not zero."""
    plain = replace(vogn(0.3, b2=0.7, hess_init=0.3), expectation=Delta())
    states = walked(at_the_mean(rank=rank, directions=cut), 3)
    theirs = walked(plain, 0)[0]
    for t, ours in enumerate(states[1:]):
        theirs = stepped(plain, replace(theirs, mean=states[t].mean), t)
        found = ours.precision.diagonal(ours.mean)
        np.testing.assert_allclose(tree.ravel(found)[0], tree.ravel(theirs.precision.values)[0], rtol=1e-10)
    assert isinstance(states[-1].precision, LowRankEigen)
    assert float(jnp.min(states[-1].precision.eigenvalues)) > 1e-3


def stepped(rule: Rule, state: Any, t: int) -> Any:
    halves = Batch(*(jnp.asarray(a).reshape(2, 6, *a.shape[1:])[t % 2] for a in (X, LABELS, np.ones(12), np.ones(12))))
    return rule.step(jax.random.fold_in(KEY, t), state, halves, Objective(logistic, 12))[0]


def low_rank(columns: int, seed: int) -> LowRank:
    generator = np.random.default_rng(seed)
    like = {"a": jnp.zeros((2, 2)), "b": jnp.zeros(3)}
    root = jax.tree.map(lambda leaf: jnp.asarray(generator.normal(size=(columns, *leaf.shape))), like)
    return LowRank(root, jax.tree.map(lambda leaf: jnp.asarray(generator.uniform(0.5, 2.0, leaf.shape)), like))


@pytest.mark.parametrize(("factored", "columns"), [(False, 4), (True, 4), (True, 30)])
def test_compressed_step_is_the_straight_step_projected(factored: bool, columns: int) -> None:
    """Thirty columns, as eight draws have them, are more than a loop is written out for."""
    S, H, rate = low_rank(2, 0), low_rank(columns, 1), 0.3
    S = S.factored() if factored else S
    like = S.values
    straight = (1 - rate) * S.dense(like) + rate * H.dense(like)
    moved = Compressed().move(S, H, rate)
    assert type(moved) is type(S)
    columns_ = straight - np.diag(tree.ravel(S.values)[0] * (1 - rate) + tree.ravel(H.values)[0] * rate)
    values, vectors = np.linalg.eigh(columns_)
    best = (vectors[:, -2:] * values[-2:]) @ vectors[:, -2:].T
    np.testing.assert_allclose(moved.dense(like), best + np.diag(np.diagonal(straight - best)), rtol=1e-9, atol=1e-12)
    assert bool(moved.is_positive(like))
    np.testing.assert_allclose(Compressed().move(S, H, 0.0).dense(like), S.dense(like), rtol=1e-9, atol=1e-12)


def test_average_of_stacked_operators_is_their_mean() -> None:
    """Leaf by leaf it would not be: (U + W)(U + W)ᵀ has cross terms. Monte Carlo with two draws takes it."""
    pair = low_rank(2, 3), low_rank(2, 4)
    mean = jax.tree.map(lambda *leaves: jnp.stack(leaves), *pair).averaged()
    like = pair[0].values
    np.testing.assert_allclose(mean.dense(like), (pair[0].dense(like) + pair[1].dense(like)) / 2, rtol=1e-12)

    objective, batch = Objective(logistic, 12), Batch.of(X, LABELS)
    rule = slang(rank=2, samples=2, curvature_update_period=1)
    state = rule.init(KEY, objective, batch)
    belief, loss = (
        rule.belief(state, objective),
        BatchLoss(objective, batch, {}, NetworkParameters(), {}, conjugate=True),
    )
    both = MonteCarlo(2).evaluate(KEY, belief, loss, rule.curvature, rule.structure)
    squares = MonteCarlo(2).evaluate(KEY, belief, loss, SquaredGradients(), Diagonal)
    like = state.mean
    found, expected = both.curvature.diagonal(like), squares.curvature.values
    np.testing.assert_allclose(tree.ravel(found)[0], tree.ravel(expected)[0], rtol=1e-9)
    np.testing.assert_allclose(tree.ravel(both.gradient)[0], tree.ravel(squares.gradient)[0], rtol=1e-9)


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(slang(0.1, rank=3, samples=2, curvature_update_period=1), id="low rank", marks=pytest.mark.stress),
        pytest.param(von(0.1, DenseBlocks, geometry=Retraction()), id="a matrix a leaf"),
    ],
)
def test_posterior_predicts_and_is_saved(algorithm: Any, tmp_path: Path) -> None:
    model = lamu.Model(lamu.networks.MLP((3,), "tanh"), lamu.likelihoods.Bernoulli())
    fit = lamu.fit(model, (X, LABELS), algorithm, steps=30, batch_size=12)
    precision = fit.posterior.belief.factors["network"].precision
    assert isinstance(getattr(precision, "operator", precision), LowRankEigen | DenseBlocks)
    predicted = fit.posterior.predict(X, samples=20)
    assert lamu.scores.nll(predicted, LABELS) < np.log(2)
    again = lamu.load(fit.posterior.save(tmp_path / "saved"))
    np.testing.assert_array_equal(again.predict(X, samples=20).probabilities, predicted.probabilities)
    covariance = np.linalg.inv(precision.dense(fit.posterior.mean["network"]))
    assert np.abs(covariance - np.diag(np.diagonal(covariance))).max() > 1e-4


@pytest.mark.parametrize("make", [lambda n: slang(rank=n), LowRankStructure, LowRankGradients])
@pytest.mark.parametrize("rank", [0, -1])
def test_rank_below_one_is_refused(make: Any, rank: Any) -> None:
    with pytest.raises(ValueError, match=f"rank={rank!r}"):
        make(rank)


def test_row_of_the_table() -> None:
    choices = slang().choices
    assert choices.family == "Gaussian, low-rank (5) plus diagonal precision"
    assert choices.curvature == "LowRankGradients"
    assert "projection back to the rank" in choices.departures


@pytest.mark.stress
@pytest.mark.skipif(not (FOLDER / "tabular").is_dir(), reason="LAMU_DATA names no folder of data sets")
def test_bound_grows_with_the_rank() -> None:
    """Australian: mean field 208.3, a full covariance 196.3. At 1, 5 and 10: 199.5, 198.8 and 198.3 were measured."""
    x, y, delta = australian()
    model, scores = model_of(delta), []
    for rank in (1, 5, 10):
        algorithm = slang(Annealed(0.1), rank=rank, b2=0.99, hess_init=0.25, max_step=None, curvature_update_period=1)
        run = lamu.fit(model, (x, y), algorithm, steps=3_000, batch_size=len(x))
        scores.append(negative_elbo(model, x, y, run.posterior.belief.factors["network"]))
    print(f"negative bound in nats at ranks 1, 5, 10: {', '.join(f'{score:.2f}' for score in scores)}")
    assert 208.33 - 5 > scores[0] > scores[1] + 0.2 > scores[2] + 0.4 > 196.33
