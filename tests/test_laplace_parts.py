"""Laplace's method as a recipe of parts: every structure, choice of weights and curvature beside explicit matrices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import memory, tree
from lamu.algorithms import (
    AllWeights,
    ByMask,
    HeadWeights,
    LargestVariance,
    Matching,
    laplace,
    last_layer,
)
from lamu.algorithms.post_hoc.laplace_fit import fit_laplace
from lamu.algorithms.post_hoc.laplace_posterior import require_positive
from lamu.likelihoods import Categorical, Gaussian, HeteroscedasticGaussian, Scaled
from lamu.model import Model
from lamu.networks import MLP, BatchNorm, Linear
from lamu.objective.curvature import Damped, GaussNewton, Hessian, SampledGaussNewton, SquaredGradients
from lamu.operators import (
    Dense,
    DenseBlocks,
    Diagonal,
    Kronecker,
    KroneckerFactored,
    LowRankStructure,
    OutputBlocks,
    OutputCholesky,
    OutputEigen,
    Scalar,
)
from lamu.predictives import Linearised, LinearisedMarginal
from lamu.priors import LayerwiseNormal, Normal
from tests.laplace_case import (
    CLASSES,
    CLOSE,
    HIDDEN,
    NEW,
    POWER,
    SIZE,
    TEMPERATURE,
    WEIGHT,
    Case,
    N,
    X,
    dense,
    rng,
)


def blocks_of(matrix: np.ndarray, *sizes: int) -> np.ndarray:
    kept, start = np.zeros_like(matrix), 0
    for size in sizes:
        kept[start : start + size, start : start + size] = matrix[start : start + size, start : start + size]
        start += size
    return kept


# What each structure keeps of the whole matrix, in the order of the leaves: biases of 4 and 3, kernels of 12 and 12.
KEEPS = {
    Dense: lambda S: S,
    Diagonal: lambda S: np.diag(np.diag(S)),
    DenseBlocks: lambda S: blocks_of(S, 4, 12, 3, 12),
}


@pytest.mark.parametrize("structure", KEEPS, ids=lambda each: each.__name__)
def test_structures_keep_what_they_say_of_the_explicit_matrix(structure: Any) -> None:
    """Rows that weigh differently, tempered, a power, and N of which the rows are a part: each enters once."""
    expected = KEEPS[structure](HIDDEN.precision())
    np.testing.assert_allclose(dense(HIDDEN.posterior(structure)), expected, **CLOSE)


def faults() -> dict[str, Any]:
    """Likely faults, each as what the posterior would then be."""
    o = HIDDEN.objective
    twice = replace(o, model=replace(o.model, prior=Normal(0.7 / np.sqrt(2))))
    return {
        "N of the rows, not of the data": replace(o, data_size=float(N)),
        "inverted temperature": replace(o, temperature=1 / TEMPERATURE),
        "no temperature": replace(o, temperature=1.0),
        "power squared": replace(o, likelihood_power=POWER**2),
        "prior twice": twice,
        "standard deviation for variance": replace(o, model=replace(o.model, prior=Normal(np.sqrt(0.7)))),
    }


@pytest.mark.parametrize("fault", faults())
def test_broken_twins_are_rejected(fault: str) -> None:
    """The comparison above would see each of them, for the diagonal as for the Kronecker factors."""
    broken = fit_laplace(Diagonal, HIDDEN.point, faults()[fault], HIDDEN.rows)
    posterior = broken.posterior(faults()[fault], jax.random.key(0))
    assert not np.allclose(np.diag(dense(posterior)), np.diag(HIDDEN.precision()), rtol=1e-3)


def test_kronecker_factors_are_exact_for_one_linear_layer() -> None:
    """Two outputs of one noise each: the information is the same in every row."""
    y = np.random.default_rng(1).normal(size=(N, 2))
    case = Case(Model(Linear(), Scaled(Gaussian(0.4), np.zeros(2), np.array([1.0, 2.0])), Normal(0.7)), y)
    np.testing.assert_allclose(dense(case.posterior(KroneckerFactored())), case.precision(), **CLOSE)


def test_kronecker_factors_are_exact_for_the_blocks_of_a_deep_linear_network(monkeypatch: pytest.MonkeyPatch) -> None:
    from lamu.networks.multilayer import ACTIVATIONS

    monkeypatch.setitem(ACTIVATIONS, "tanh", lambda x: x)
    y = np.random.default_rng(1).normal(size=(N, 2))
    case = Case(Model(MLP((3,), "tanh"), Gaussian(0.4), Normal(0.7)), y)
    np.testing.assert_allclose(dense(case.posterior(KroneckerFactored())), blocks_of(case.precision(), 12, 8), **CLOSE)


STRUCTURES = (Dense, Diagonal, DenseBlocks, KroneckerFactored(), LowRankStructure(100))


@pytest.mark.parametrize(
    "structure",
    [
        pytest.param(each, marks=pytest.mark.stress) if isinstance(each, LowRankStructure) else each
        for each in STRUCTURES
    ],
    ids=str,
)
def test_the_tangents_covariance_is_that_of_the_dense_matrix(structure: Any) -> None:
    posterior: Any = HIDDEN.posterior(structure)
    J = HIDDEN.jacobian(NEW)
    expected = np.einsum("nkd,de,nle->nkl", J, np.linalg.inv(dense(posterior)), J)
    parts = (posterior.model, posterior.belief, posterior.network_state, 8, jax.random.key(1))
    joint = Linearised().outputs(*parts).normal(NEW, None)[1]
    np.testing.assert_allclose(joint, expected, **CLOSE)
    marginal = LinearisedMarginal().outputs(*parts).normal(NEW, None)[1]
    np.testing.assert_allclose(marginal, np.einsum("nkk->nk", expected), **CLOSE)
    if isinstance(structure, LowRankStructure):
        np.testing.assert_allclose(dense(posterior), HIDDEN.precision(), **CLOSE)


HEAD = HeadWeights().select(HIDDEN.model, HIDDEN.point)


def head_case() -> Any:
    case: Any = object.__new__(Case)
    case.model, case.point = HEAD
    case.params, case.state, case.rows = case.point.mean, {}, HIDDEN.rows
    case.objective = replace(HIDDEN.objective, model=case.model)
    case.vector, case.unravel = tree.ravel(case.params["network"])
    return case


def per_output(S: np.ndarray) -> np.ndarray:
    return S * np.kron(np.ones((5, 5)), np.eye(3))


@pytest.mark.parametrize("structure", [Dense, Diagonal, OutputBlocks, OutputEigen, KroneckerFactored()], ids=str)
def test_a_last_layer_by_its_features_is_that_by_its_jacobian(structure: Any) -> None:
    case = head_case()
    posterior: Any = case.posterior(structure)
    S = case.precision()
    kept = {Dense: S, Diagonal: np.diag(np.diag(S)), OutputBlocks: per_output(S)}.get(structure)
    found = dense(posterior)
    if kept is not None:
        np.testing.assert_allclose(found, kept, **CLOSE)
    elif structure is OutputEigen:
        np.testing.assert_allclose(found, per_output(found), atol=1e-12)
        assert np.isclose(np.trace(found), np.trace(S), rtol=0.2)
    J = case.jacobian(NEW)
    expected = np.einsum("nkd,de,nle->nkl", J, np.linalg.inv(found), J)
    parts = (posterior.model, posterior.belief, posterior.network_state, 8, jax.random.key(1))
    spread = Linearised().outputs(*parts).normal(NEW, None)[1]
    apart = structure in (OutputBlocks, OutputEigen, Diagonal)
    assert spread.shape == ((4, 3) if apart else (4, 3, 3))  # no matrix of outputs that is a diagonal anyway
    np.testing.assert_allclose(spread, np.einsum("nkk->nk", expected) if apart else expected, **CLOSE)
    assert np.isfinite(posterior.predict(np.asarray(NEW)).log_prob(CLASSES[:4])).all()


def test_one_operator_an_output_is_its_matrix() -> None:
    generator = np.random.default_rng(2)
    like = {"bias": jnp.zeros(2), "kernel": jnp.zeros((3, 2))}
    v = jax.tree.map(lambda leaf: jnp.asarray(generator.normal(size=leaf.shape)), like)
    root = generator.normal(size=(2, 4, 4))
    blocks = OutputBlocks(jnp.asarray(root @ root.transpose(0, 2, 1) + 2 * np.eye(4)))
    eigen = OutputEigen.of(blocks.matrices[0], jnp.array([1.0, 3.0])).add(Scalar(0.5))
    assert isinstance(blocks.factored(), OutputCholesky)
    for S in (blocks, blocks.factored(), eigen, blocks.scale(2.0), blocks.add(Diagonal(jax.tree.map(jnp.abs, v)))):
        matrix, flat = np.asarray(S.dense(like)), np.asarray(tree.ravel(v)[0])
        inverse = np.linalg.inv(matrix)
        np.testing.assert_allclose(tree.ravel(S.matvec(v))[0], matrix @ flat, rtol=1e-9)
        np.testing.assert_allclose(tree.ravel(S.solve(v))[0], inverse @ flat, rtol=1e-9)
        np.testing.assert_allclose(S.logdet(like), np.linalg.slogdet(matrix)[1], rtol=1e-10)
        np.testing.assert_allclose(tree.ravel(S.diagonal(like))[0], np.diag(matrix), rtol=1e-10)
        np.testing.assert_allclose(tree.ravel(S.variance(like))[0], np.diag(inverse), rtol=1e-9)
        unravel = tree.ravel(like)[1]
        R = np.stack([tree.ravel(S.inverse_root(unravel(e)))[0] for e in jnp.eye(8)], axis=1)
        np.testing.assert_allclose(R @ R.T, inverse, rtol=1e-8, atol=1e-10)
        other = Diagonal(jax.tree.map(jnp.exp, v))
        np.testing.assert_allclose(S.trace_solve(other, like), np.sum(np.diag(inverse) * np.exp(flat)), rtol=1e-9)
        assert bool(S.is_positive(like))
    with pytest.raises(TypeError, match="couples outputs"):
        blocks.add(Kronecker(jnp.eye(4), jnp.eye(2)))


def test_information_without_a_matrix_a_row() -> None:
    f = jnp.asarray(np.random.default_rng(3).normal(size=(6, 4)))
    weights = jnp.linspace(0.5, 2.0, 6)
    wide: Any = Scaled(HeteroscedasticGaussian(), np.zeros(2), np.array([1.0, 3.0]))
    for likelihood in (Categorical(4), wide):
        whole = likelihood.information({}, f)
        root = likelihood.information_root({}, f)
        np.testing.assert_allclose(jnp.einsum("nkr,nlr->nkl", root, root), whole, atol=1e-12)
        np.testing.assert_allclose(likelihood.information_diagonal({}, f), jnp.einsum("nkk->nk", whole), atol=1e-12)
        found = likelihood.information_sum({}, f, weights)
        np.testing.assert_allclose(found, jnp.einsum("nkl,n->kl", whole, weights), atol=1e-12)


def test_labels_drawn_and_given_stand_for_the_information() -> None:
    case, f = head_case(), jax.vmap(head_case().outputs, (None, 0))(head_case().vector, jnp.asarray(X))
    J, d = case.jacobian(X), np.eye(3)[CLASSES] - np.asarray(jax.nn.softmax(f, axis=1))
    prior = np.eye(15) / 0.49
    rows = np.einsum("nkd,nk->nd", J, d)
    empirical = (SIZE / N * POWER * np.einsum("nd,ne,n->de", rows, rows, WEIGHT) + prior) / TEMPERATURE
    np.testing.assert_allclose(dense(case.posterior(Dense, SquaredGradients())), empirical, **CLOSE)
    np.testing.assert_allclose(
        np.diag(dense(case.posterior(Diagonal, SquaredGradients()))), np.diag(empirical), **CLOSE
    )
    drawn = case.look(Dense, SampledGaussNewton(4000), jax.random.key(5)).curvature.matrix
    exact = case.look(Dense).curvature.matrix
    # The standard error of the largest entry is below 0.02 of it.
    np.testing.assert_allclose(drawn, exact, atol=0.1 * float(jnp.max(exact)))


def test_the_hessian_where_it_is_positive_and_in_words_where_not() -> None:
    case = Case(Model(MLP((2,), "tanh"), Gaussian(0.5), Normal(0.7)), rng.normal(size=N))

    def loss(vector: Any) -> Any:
        f = jax.vmap(case.outputs, (None, 0))(vector, case.rows.x)
        return -POWER * jnp.sum(case.model.likelihood.log_prob({}, f, case.rows.y) * WEIGHT) / N

    exact = np.asarray(jax.jit(jax.hessian(loss))(case.vector))
    np.testing.assert_allclose(case.look(Dense, Hessian()).curvature.matrix, exact, **CLOSE)
    damped = case.look(Dense, Damped(Hessian(), 0.3)).curvature.matrix
    np.testing.assert_allclose(damped, exact + 0.3 * np.eye(len(exact)), **CLOSE)
    lowest = np.linalg.eigvalsh(exact).min() + 1 / 0.49 / SIZE
    assert lowest < -0.1, "the case should be indefinite"
    with pytest.raises(ValueError, match=r"smallest eigenvalue is -.*GaussNewton\(\).*Damped\(Hessian\(\)"):
        require_positive(case.look(Dense, Hessian()), case.objective)
    require_positive(case.look(Dense, Damped(Hessian(), -2 * lowest)), case.objective)


def test_hessians_are_of_log_concave_likelihoods() -> None:
    model, seen = Model(Linear(), HeteroscedasticGaussian()), []
    with pytest.raises(ValueError, match="not log-concave"):
        lamu.fit(
            model, (X, X[:, 0]), laplace(curvature=Hessian()), steps=1, callbacks=[lambda *told: seen.append(told)]
        )
    assert not seen, "the error came after the steps"


def test_a_density_without_outputs_is_refused_before_the_steps() -> None:
    density, seen = lamu.LogDensity(lambda theta: -jnp.sum(theta**2), jnp.zeros(2)), []
    with pytest.raises(TypeError, match=r"take what works on any density, for instance laplace\(curvature=Hessian"):
        lamu.fit(density, None, laplace(), steps=1, callbacks=[lambda *told: seen.append(told)])
    assert not seen, "the error came after the steps"


def test_parts_that_are_none_are_refused_in_words() -> None:
    with pytest.raises(TypeError, match=r"structure='kron' is not a structure.*KroneckerFactored\(\)"):
        laplace(structure="kron")
    with pytest.raises(TypeError, match="is not a structure"):
        last_layer(structure=Kronecker)
    with pytest.raises(TypeError, match=r"weights='all' chooses no weights; give for instance HeadWeights\(\)"):
        laplace(weights="all")
    assert laplace(weights=AllWeights()) == laplace()
    with pytest.raises(TypeError, match="is not a curvature"):
        laplace(curvature=GaussNewton)
    with pytest.raises(TypeError, match="one matrix an output of a last layer"):
        HIDDEN.look(OutputBlocks)
    with pytest.raises(TypeError, match="has no Kronecker factors"):
        HIDDEN.look(KroneckerFactored(), Hessian())
    with memory.within("1kB"), pytest.raises(ValueError, match=r"dense precision of 31 weights.*take structure="):
        HIDDEN.look(Dense)


def test_a_masks_faults_are_told() -> None:
    model, point = HIDDEN.model, HIDDEN.point
    whole = jax.tree.map(lambda leaf: np.ones(leaf.shape, bool), HIDDEN.params["network"])
    with pytest.raises(ValueError, match=r"another structure.*lacks 'layers/0/bias'"):
        ByMask({"layers": {1: whole["layers"][1]}}).select(model, point)
    with pytest.raises(TypeError, match="is of float64, not of Booleans"):
        ByMask(jax.tree.map(lambda leaf: leaf * 1.0, whole)).select(model, point)
    wrong = {"layers": {**whole["layers"], 0: {**whole["layers"][0], "bias": np.ones(3, bool)}}}
    with pytest.raises(ValueError, match=r"has the shape \(3,\) and the weights \(4,\)"):
        ByMask(wrong).select(model, point)
    with pytest.raises(ValueError, match="chooses no weight"):
        ByMask(jax.tree.map(lambda leaf: ~leaf, whole)).select(model, point)
    with pytest.raises(ValueError, match="of 31 weights"):
        LargestVariance(32).select(model, point, HIDDEN.objective, HIDDEN.rows)
    with pytest.raises(ValueError, match="matches no leaf"):
        Matching("layers/7/*").select(model, point)


def test_a_sub_network_is_the_sub_matrix(tmp_path: Any) -> None:
    """The three of largest variance, one leaf whole and part of another; saved, loaded, and predicting the same."""
    S = HIDDEN.precision()
    chosen = np.argsort(np.diag(S), kind="stable")[:3]
    model, point = LargestVariance(3).select(HIDDEN.model, HIDDEN.point, HIDDEN.objective, HIDDEN.rows)
    np.testing.assert_allclose(tree.ravel(point.mean["network"])[0], HIDDEN.vector[np.sort(chosen)])
    mask = np.zeros(31, bool)
    mask[[0, 1, 2, 3, 7, 20]] = True  # the first bias whole
    of = jax.tree.map(lambda leaf: np.asarray(leaf) > 0.5, HIDDEN.unravel(jnp.asarray(mask, float)))
    model, point = ByMask(of).select(HIDDEN.model, HIDDEN.point)
    objective = replace(HIDDEN.objective, model=model)
    posterior: Any = fit_laplace(Dense, point, objective, HIDDEN.rows).posterior(objective, jax.random.key(0))
    sub = np.flatnonzero(mask)
    np.testing.assert_allclose(dense(posterior), S[np.ix_(sub, sub)], **CLOSE)
    J = HIDDEN.jacobian(NEW)[:, :, sub]
    expected = np.einsum("nkd,de,nle->nkl", J, np.linalg.inv(S[np.ix_(sub, sub)]), J)
    parts = (posterior.model, posterior.belief, posterior.network_state, 8, jax.random.key(1))
    mean, spread = Linearised().outputs(*parts).normal(NEW, None)
    np.testing.assert_allclose(spread, expected, **CLOSE)
    np.testing.assert_allclose(mean, HIDDEN.model.outputs(HIDDEN.params, {}, NEW)[0], rtol=1e-10)
    again = lamu.load(posterior.save(tmp_path / "part"))
    np.testing.assert_array_equal(again.predict(np.asarray(NEW)).mean, posterior.predict(np.asarray(NEW)).mean)


def test_a_prior_of_single_widths_is_cut_with_the_weights() -> None:
    widths = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.7), HIDDEN.params["network"])
    model = replace(HIDDEN.model, prior=LayerwiseNormal(widths))
    of = jax.tree.map(lambda leaf: np.arange(leaf.size).reshape(leaf.shape) == 1, HIDDEN.params["network"])
    held, point = ByMask(of).select(model, replace(HIDDEN.point, model=model))
    weights = point.mean["network"]
    precision = held.prior.gaussian(weights).precision.values
    np.testing.assert_allclose(tree.ravel(precision)[0], np.full(4, 1 / 0.49))


def test_batch_statistics_are_held_in_evaluation_mode() -> None:
    """Kronecker factors and a diagonal of a network with a state, which training mode would refuse."""
    model = Model(MLP((4,), "tanh", normalise=BatchNorm()), Categorical(3), Normal(0.7))
    case = Case(model, CLASSES)
    np.testing.assert_allclose(
        np.diag(dense(case.posterior(Diagonal))), np.diag(case.precision()), rtol=1e-6, atol=1e-9
    )
    assert np.isfinite(case.posterior(KroneckerFactored()).evidence)
