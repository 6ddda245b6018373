"""Kronecker factors beside the matrices that they stand for, and the two algorithms that are built on them."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import tree
from lamu.algorithms.optimisers import kfac
from lamu.algorithms.variational.online_newton import noisy_kfac
from lamu.data import Batch
from lamu.families import Gaussian
from lamu.geometry import Factorwise, Shifted
from lamu.likelihoods import Categorical
from lamu.networks import MLP, BatchNorm, ConvNet, Linear
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import GaussNewton, SampledGaussNewton, SquaredGradients
from lamu.objective.curvature.reader import LinearisedNetwork, linearise
from lamu.objective.curvature.reader.layers import Layer, factors, halved, layers, layers_by_name
from lamu.operators import (
    Dense,
    Diagonal,
    Kronecker,
    KroneckerBlocks,
    KroneckerFactored,
    KroneckerLeading,
    Scalar,
    StaleFactors,
    leading,
)
from lamu.operators.kronecker import Expand, Reduce
from lamu.operators.low_rank import leading_eigenpairs
from lamu.priors import Normal

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 2))
EXPANDED = Expand()
CLOSE: Any = {"rtol": 1e-9, "atol": 1e-12}


def of_a_loss(loss, theta, x, weights, sharing: Expand | Reduce = EXPANDED):
    """The factors of the empirical Fisher matrix of single losses."""

    def of_squares(theta, x):
        read = linearise(loss, theta, x)
        cotangents = [halved(c, weights)[None] for c in read.pull(weights.astype(read.outputs.dtype))[1]]
        roots = halved(weights.astype(read.outputs.dtype), weights)[None]
        return factors(read, theta, roots, cotangents, weights, layers_by_name(read, theta), sharing)

    return jax.jit(of_squares)(theta, x).blocks


def of_outputs(f, theta, x, weights, sharing: Expand | Reduce = EXPANDED):
    """The factors of Σ r JᵀJ, and the matrices of the blocks by the explicit Jacobian."""

    def both(theta, x):
        read = linearise(f, theta, x)
        assert isinstance(read, LinearisedNetwork)
        outputs = read.outputs[0]
        roots = jnp.eye(outputs.size).reshape(outputs.size, 1, *outputs.shape)
        roots = roots * jnp.sqrt(weights).reshape(1, -1, *[1] * outputs.ndim)
        found = factors(
            read, theta, roots, jax.vmap(lambda v: read.pull(v)[1])(roots), weights, layers(read, theta), sharing
        )
        jacobian = jax.vmap(jax.jacobian(f), (None, 0))(theta, x)
        flat = jax.tree.map(lambda leaf, of: leaf.reshape(len(weights), -1, of.size), jacobian, theta)
        return found, jax.tree.map(lambda leaf: jnp.einsum("b,bki,bkj->ij", weights, leaf, leaf), flat)

    return jax.jit(both)(theta, x)


def case(rows: int = 5, likelihood=None, network=None, y=None) -> tuple[BatchLoss, dict]:
    """Weighted rows, and padded ones that hold NaN."""
    model = lamu.Model(network or MLP((3,), "tanh"), likelihood or Categorical(3))
    batch = Batch.of(X[:rows], jnp.array([0, 2, 1, 1, 0], jnp.int32)[:rows] if y is None else y)
    batch = replace(batch, weight=jnp.array([1.0, 2.0, 0.5, 1.0, 3.0])[:rows])
    params, state = model.init(jax.random.key(0), batch)
    batch = batch.padded(8)
    batch = replace(batch, x=jnp.where(batch.mask[:, None] == 0, jnp.nan, batch.x))
    objective = Objective(model, 50, likelihood_power=0.7)
    return BatchLoss(objective, batch, state, NetworkParameters(), params["likelihood"], conjugate=True), params[
        "network"
    ]


def evaluate(curvature, loss: BatchLoss, theta: dict, structure: Any = None):
    structure = KroneckerFactored() if structure is None else structure
    run = lambda theta, key: curvature.evaluate(loss, theta, Gaussian(theta, Scalar(1.0)), structure, key)
    return jax.jit(run)(theta, jax.random.key(3))


def gauss_newton(loss: BatchLoss, theta: dict, layer: int) -> np.ndarray:
    """The exact block of a layer."""
    real = Batch(*(leaf[:5] if leaf is not None else None for leaf in (loss.batch.x, loss.batch.y)), *[jnp.ones(5)] * 2)
    real = replace(real, weight=loss.batch.weight[:5], mask=loss.batch.mask[:5])
    rows = int(real.count)
    real = jax.tree.map(lambda leaf: leaf[:rows], real)
    matrix = GaussNewton().matrix(replace(loss, batch=real), theta, Dense).matrix
    sizes = [tree.dimension(theta["layers"][i]) for i in sorted(theta["layers"])]
    start = sum(sizes[:layer])
    return matrix[start : start + sizes[layer], start : start + sizes[layer]]


def test_one_row_is_exact() -> None:
    loss, theta = case(rows=1)
    found = evaluate(GaussNewton(), loss, theta).curvature
    assert isinstance(found, KroneckerBlocks)
    for layer in (0, 1):
        block = found.blocks["layers"][layer].dense(theta["layers"][layer])
        np.testing.assert_allclose(block, gauss_newton(loss, theta, layer), **CLOSE)
    gradient = evaluate(SquaredGradients(), loss, theta)
    for layer in (0, 1):
        g = tree.ravel(gradient.gradient["layers"][layer])[0] / 0.7**0.5
        block = gradient.curvature.blocks["layers"][layer].dense(theta["layers"][layer])
        np.testing.assert_allclose(block, jnp.outer(g, g), **CLOSE)


def test_a_linear_layer_with_normal_noise_is_exact() -> None:
    y = jnp.asarray(RNG.normal(size=(5, 2)))
    loss, theta = case(likelihood=lamu.likelihoods.Gaussian(0.5), network=Linear(), y=y)
    found = evaluate(GaussNewton(), loss, theta).curvature.blocks["layers"][0].dense(theta["layers"][0])
    np.testing.assert_allclose(found, gauss_newton(loss, theta, 0), **CLOSE)


def test_a_deep_linear_network_is_exact() -> None:
    """Every block: the cotangents are the same in every row."""
    theta = [jnp.asarray(RNG.normal(size=s)) for s in ((2, 3), (3, 4), (4, 2))]
    f = lambda theta, x: x @ theta[0] @ theta[1] @ theta[2]
    weights = jnp.array([0.3, 0.1, 0.2, 0.4, 1.0])
    found, exact = of_outputs(f, theta, jnp.asarray(X), weights)
    for block, matrix, leaf in zip(found.blocks, exact, theta, strict=True):
        np.testing.assert_allclose(block.dense(leaf), matrix, **CLOSE)


def test_factors_are_means_of_the_rows_own() -> None:
    """A and B from single rows' gradients in what comes out of each layer."""
    loss, theta = case()
    r = np.asarray(loss.objective.row_factor(loss.batch))[:5]
    layers = theta["layers"]

    def log_prob(extra, x, y):
        hidden = jnp.tanh(x @ layers[0]["kernel"] + layers[0]["bias"] + extra[0])
        f = hidden @ layers[1]["kernel"] + layers[1]["bias"] + extra[1]
        return jax.nn.log_softmax(f)[y], hidden

    zeros = (jnp.zeros(3), jnp.zeros(3))
    d, hidden = jax.vmap(jax.grad(log_prob, has_aux=True), (None, 0, 0))(zeros, jnp.asarray(X), loss.batch.y[:5])
    found = evaluate(SquaredGradients(), loss, theta).curvature.blocks["layers"]
    for layer, inputs in enumerate((X, np.asarray(hidden))):
        a = np.concatenate([np.ones((5, 1)), inputs], axis=1)
        np.testing.assert_allclose(found[layer].input_factor, np.einsum("b,bi,bj->ij", r / r.sum(), a, a), **CLOSE)
        np.testing.assert_allclose(found[layer].output_factor, np.einsum("b,bi,bj->ij", r, d[layer], d[layer]), **CLOSE)


def test_sampled_factors_are_the_exact_ones_on_average() -> None:
    """B within five standard errors of 4,000 draws of labels, 9 numbers: a false alarm with probability 5e-6."""
    loss, theta = case()
    exact = evaluate(GaussNewton(), loss, theta).curvature.blocks["layers"][0]
    run = lambda key: SampledGaussNewton().evaluate(loss, theta, Gaussian(theta, Scalar(1.0)), KroneckerFactored(), key)
    draws = jax.jit(jax.vmap(lambda key: run(key).curvature.blocks["layers"][0]))(
        jax.random.split(jax.random.key(0), 4000)
    )
    np.testing.assert_allclose(draws.input_factor[0], exact.input_factor, **CLOSE)
    error = draws.output_factor.std(0) / 4000**0.5
    assert np.all(np.abs(draws.output_factor.mean(0) - exact.output_factor) < 5 * error)


@pytest.mark.parametrize("curvature", [SquaredGradients(), SampledGaussNewton(), GaussNewton()])
def test_value_and_gradients_are_the_loss_own(curvature) -> None:
    """The gradient in a learned dispersion too."""
    y = jnp.asarray(RNG.normal(size=5))
    loss, theta = case(likelihood=lamu.likelihoods.Gaussian(), y=y)
    found = evaluate(curvature, loss, theta)
    clean = replace(loss, batch=replace(loss.batch, x=jnp.nan_to_num(loss.batch.x)))
    expected = clean.gradient(theta, None)
    np.testing.assert_allclose(found.value, expected.value, **CLOSE)
    for ours, theirs in ((found.gradient, expected.coordinates), (found.rest, expected.rest)):
        np.testing.assert_allclose(tree.ravel(ours)[0], tree.ravel(theirs)[0], **CLOSE)


def strided(kernel, images, spec: str):
    numbers = ("NCHW", spec, "NCHW")
    settings = {"rhs_dilation": (1, 2), "dimension_numbers": numbers}
    return jax.lax.conv_general_dilated(images, kernel, (2, 1), ((1, 1), (0, 2)), **settings)


@pytest.mark.parametrize("spec", ["OIHW", "HWIO"])
@pytest.mark.parametrize("sharing", [Expand(), Reduce()])
def test_convolutions_by_their_patches(spec: str, sharing: Expand | Reduce) -> None:
    """Strided, padded and dilated: patches come from the convolution's own derivative in its kernel."""
    shape = {"O": 3, "I": 2, "H": 2, "W": 2}
    kernel, images = jnp.asarray(RNG.normal(size=[shape[c] for c in spec])), jnp.asarray(RNG.normal(size=(4, 2, 5, 6)))
    loss = lambda kernel, x: jnp.sum(jnp.sin(strided(kernel, x[None], spec)))
    weights = jnp.array([0.1, 0.4, 0.2, 0.3])
    block = of_a_loss(loss, kernel, images, weights, sharing)
    # ∂y[o, p] / ∂kernel for the first output channel is the patch at p.
    patch = jax.vmap(lambda x: jax.jacobian(lambda k: strided(k, x[None], spec)[0, 0])(kernel))(images)
    patch = jnp.take(patch, 0, axis=3 + spec.index("O")).reshape(4, -1, 8)
    d = jax.vmap(lambda x: jnp.cos(strided(kernel, x[None], spec)[0]))(images).reshape(4, 3, -1).swapaxes(1, 2)
    if isinstance(sharing, Reduce):
        patch, d = patch.mean(1, keepdims=True), d.sum(1, keepdims=True)
    a = jnp.einsum("b,bpi,bpj->ij", weights, patch, patch) / patch.shape[1]
    b = jnp.einsum("b,bpi,bpj->ij", weights, d, d)
    first, second = (b, a) if spec == "OIHW" else (a, b)
    np.testing.assert_allclose(block.input_factor, first, **CLOSE)
    np.testing.assert_allclose(block.output_factor, second, **CLOSE)


def test_the_convolutional_network_has_a_block_a_layer() -> None:
    images = jnp.asarray(RNG.normal(size=(3, 4, 4, 1)))
    network = ConvNet((2,), widths=(3,), activation="tanh")
    theta, state = network.init(jax.random.key(0), images, 2)
    loss = lambda theta, x: jnp.sum(jnp.sin(network.apply(theta, state, x[None], None, True)[0]))
    found = of_a_loss(loss, theta, images, jnp.ones(3))
    assert found["convolutions"][0].input_factor.shape == (10, 10)
    structure = KroneckerFactored().from_diagonal(theta).fresh
    assert jax.tree.map(jnp.shape, structure.blocks) == jax.tree.map(jnp.shape, found)
    assert layers(linearise(loss, theta, images), theta)[0] == Layer(kernel=1, bias=0, site=1, outputs_first=False)


@pytest.mark.parametrize("sharing", [Expand(), Reduce()])
def test_shared_weights_are_exact_where_the_theory_says(sharing: Expand | Reduce) -> None:
    """A linear layer on sequences: expand where positions are rows of the loss, reduce where they are averaged."""
    sequences, weights = jnp.asarray(RNG.normal(size=(4, 3, 2))), jnp.array([0.1, 0.4, 0.2, 0.3])
    whole = lambda theta, x: x @ theta
    f = whole if isinstance(sharing, Expand) else lambda theta, x: jnp.mean(whole(theta, x), axis=0)
    theta = jnp.asarray(RNG.normal(size=(2, 2)))
    found, exact = of_outputs(f, theta, sequences, weights, sharing)
    np.testing.assert_allclose(found.dense(theta), exact, **CLOSE)


def test_other_leaves_have_their_squares(caplog) -> None:
    """A scale, a bias apart, weights that are used twice: the mean squares of single rows' gradients."""
    theta = {
        name: jnp.asarray(RNG.normal(size=s)) for name, s in (("W", (2, 2)), ("b", (2,)), ("s", (2,)), ("V", (3, 2)))
    }
    loss = lambda t, x: jnp.sum(jnp.sin(t["V"] @ jnp.tanh(jnp.tanh(x @ t["W"]) @ t["W"] * t["s"] + t["b"])))
    weights = jnp.array([0.1, 0.4, 0.2, 0.3, 0.0])
    with caplog.at_level(logging.WARNING, "lamu"):
        found = of_a_loss(loss, theta, jnp.asarray(X), weights)
    assert "cannot be read: W (" in caplog.text
    assert isinstance(found["V"], Kronecker)
    rows = jax.vmap(jax.grad(loss), (None, 0))(theta, jnp.asarray(X))
    for name in ("W", "b", "s"):
        expected = jnp.tensordot(weights, rows[name] ** 2, 1)
        np.testing.assert_allclose(found[name].values, expected, **CLOSE)


def test_what_cannot_be_factored_is_refused() -> None:
    loss, theta = case()
    with pytest.raises(TypeError, match="without a state"):
        evaluate(SquaredGradients(), replace(loss, network_state={"mean": np.zeros(3)}), theta)
    with pytest.raises(TypeError, match="need a Gaussian prior"):
        evaluate(SquaredGradients(), replace(loss, conjugate=False), theta)
    with pytest.raises(ValueError, match="needs a key"):
        SampledGaussNewton().evaluate(loss, theta, Gaussian(theta, Scalar(1.0)), KroneckerFactored(), None)
    with pytest.raises(ValueError, match="matches no leaf"):
        evaluate(SquaredGradients(), loss, theta, KroneckerFactored("embedding/*"))
    model = lamu.Model(MLP((3,), normalise=BatchNorm()), Categorical(3))
    with pytest.raises(TypeError, match="batch statistics"):
        lamu.fit(model, (X, np.array([0, 2, 1, 1, 0])), noisy_kfac(), steps=1)
    for mistake in (lambda: Factorwise(0), lambda: Shifted(-1.0), lambda: kfac(b1=1.0), lambda: noisy_kfac(samples=0)):
        with pytest.raises(ValueError, match=r"give|ask"):
            mistake()


@lamu.record.record
class Tied:
    """Two layers with one matrix."""

    linear = False
    head = "*"

    def init(self, key, x, outputs):
        return {"W": jnp.eye(2), "last": {"kernel": jnp.ones((2, outputs)), "bias": jnp.zeros(outputs)}}, {}

    def apply(self, params, state, x, key, train):
        hidden = jnp.tanh(jnp.tanh(x @ params["W"]) @ params["W"])
        return hidden @ params["last"]["kernel"] + params["last"]["bias"][None], state


def test_weights_that_are_no_kernel_are_named_with_the_way_out() -> None:
    loss, theta = case(network=Tied())
    with pytest.raises(TypeError, match=r"'W'.*is used 2 times.*diagonal=\('W\*',\)"):
        evaluate(SquaredGradients(), loss, theta)
    found = evaluate(SquaredGradients(), loss, theta, KroneckerFactored("W*")).curvature.blocks
    assert isinstance(found["W"], Diagonal)
    assert found["last"].input_factor.shape == (3, 3)


def test_a_prior_enters_a_layer_by_its_mean_precision() -> None:
    like = {"bias": jnp.full(2, 4.0), "kernel": jnp.ones((1, 2))}
    blocks = KroneckerBlocks({"l": Kronecker(jnp.eye(2), jnp.eye(2), 0.5), "s": Diagonal(jnp.ones(2))})
    found = blocks.add(Diagonal({"l": like, "s": jnp.array([1.0, 3.0])})).blocks
    assert float(found["l"].shift) == 3.0
    assert found["s"].values.tolist() == [2.0, 4.0]


def test_factors_move_apart_and_are_decomposed_when_it_is_time() -> None:
    start = KroneckerFactored().from_diagonal({"kernel": jnp.full((1, 1), 0.5)})
    target = KroneckerBlocks({"kernel": Kronecker(jnp.full((1, 1), 2.0), jnp.full((1, 1), 3.0), jnp.asarray(0.1))})
    move = jax.jit(lambda s: Factorwise(every=6).move(s, target, 0.5))
    state, used = start, []
    for step in range(1, 13):
        state = move(state)
        part = 1 - 0.5**step
        block = state.fresh.blocks["kernel"]
        np.testing.assert_allclose(block.input_factor, 2.0 * part)
        np.testing.assert_allclose(block.output_factor, 3.0 * part)
        np.testing.assert_allclose(block.shift, 0.1 + 0.4 * 0.5**step)
        used.append(bool(jnp.allclose(state.dense({"kernel": jnp.ones((1, 1))}), 6.0 * part**2 + block.shift)))
    assert [step for step, now in enumerate(used, 1) if now] == [1, 2, 4, 6, 12]
    like, late = {"kernel": jnp.ones((1, 1))}, move(state)
    assert not jnp.allclose(late.dense(like), late.fresh.dense(like))
    np.testing.assert_allclose(late.renewed().dense(like), late.fresh.dense(like))
    assert isinstance(state, StaleFactors)


def test_leading_eigenvectors_are_those_of_the_factors() -> None:
    """A spectrum that falls, in a random basis: the leading ones to 1e-6, and the trace exactly."""
    basis = jnp.linalg.qr(jnp.asarray(RNG.normal(size=(12, 12))))[0]
    wide = jnp.matmul(basis * 0.1 ** jnp.arange(12.0)[None], basis.T)
    whole = Kronecker(wide, jnp.diag(jnp.array([1.0, 2.0])), jnp.asarray(0.3))
    found, like = jax.jit(lambda op: leading(op, 4))(whole), jnp.zeros((12, 2))
    assert isinstance(found, KroneckerLeading)
    np.testing.assert_allclose(found.dense(like), whole.dense(like), atol=3e-4)
    np.testing.assert_allclose(found.eigenvalues[:, 0], 0.1 ** np.arange(3.0, -1.0, -1.0) + 0.3, rtol=1e-6)
    np.testing.assert_allclose(found.diagonal(like).sum(), whole.diagonal(like).sum(), rtol=1e-10)
    narrow: Any = KroneckerFactored(rank=1).from_diagonal({"kernel": jnp.ones((2, 2))}).used
    assert narrow.blocks["kernel"].eigenvalues.shape == (1, 1)


SPECTRA = {
    "geometric": 0.9 ** np.arange(60.0),
    "power": (1 + np.arange(60.0)) ** -1.5,
    "few directions": np.r_[np.linspace(2.0, 1.0, 5), np.full(55, 1e-4)],
    "fewer rows than columns": np.r_[0.9 ** np.arange(9.0), np.zeros(51)],
}


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_eigenvectors_that_are_followed_stay_those_of_a_factor_that_moves(name: str, dtype: Any) -> None:
    """A factor turns and is averaged, as a factor of K-FAC is: after every move the pairs kept are those of eigh.

    Eigenvalues to 1e-3 of the largest one, the matrix that they make to 2e-2 of it, beside what eigh keeps of the same
    rank: the last pair kept mixes with the first one left out, which has nine tenths of its eigenvalue. Directions of
    eigenvalues above half of the largest to 1e-4.
    """
    rank, width = 10, 60
    rng = np.random.default_rng(1)
    turn = rng.normal(size=(width, width))
    turn = jax.scipy.linalg.expm(jnp.asarray(0.01 * (turn - turn.T)))
    basis = np.linalg.qr(rng.normal(size=(width, width)))[0]
    find = jax.jit(leading_eigenpairs, static_argnums=1)
    factor, near = np.zeros((width, width)), None
    for move in range(12):
        factor += (1.0 if move == 0 else 0.2) * ((basis * SPECTRA[name]) @ basis.T - factor)
        basis = np.asarray(turn) @ basis
        values, near = find(jnp.asarray(factor, dtype), rank, near)
        exact, vectors = np.linalg.eigh(np.asarray(jnp.asarray(factor, dtype), float))
        exact, vectors = exact[-rank:], vectors[:, -rank:]
        np.testing.assert_allclose(near.T @ near, np.eye(rank), atol=3e-6)
    largest = exact[-1]
    np.testing.assert_allclose(values, exact, atol=1e-3 * largest)
    near = np.asarray(near)
    made, best = (near * np.asarray(values)) @ near.T, (vectors * exact) @ vectors.T
    assert np.linalg.norm(made - best, 2) < 2e-2 * largest
    clear = exact > 0.5 * largest
    np.testing.assert_allclose(np.linalg.norm(near.T @ vectors[:, clear], axis=0), 1.0, atol=1e-4)


def test_factors_of_zeros_keep_independent_directions() -> None:
    """From which the next search finds what has come."""
    values, basis = leading_eigenpairs(jnp.zeros((60, 60)), 10)
    assert values.tolist() == [0.0] * 10
    np.testing.assert_allclose(basis.T @ basis, np.eye(10), atol=1e-12)
    spectrum = 0.5 ** np.arange(60.0)
    found, _ = leading_eigenpairs(jnp.diag(jnp.asarray(spectrum)), 10, basis)
    np.testing.assert_allclose(found[::-1], spectrum[:10], rtol=1e-4)


def test_noisy_kfac_ends_where_it_ends_with_whole_decompositions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same draws and batches, the eigenvectors followed or taken anew by eigh: one posterior.

    A convex loss, whose paths meet again; inputs of a spectrum that falls, of which a third is kept.
    """
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 40)) * 0.8 ** np.arange(40.0)
    y = (x[:, :3] @ rng.normal(size=(3, 3)) + 0.3 * rng.normal(size=(300, 3))).argmax(axis=1)
    objective = Objective(lamu.Model(Linear(), Categorical(3), Normal(1.0)), 300)
    algorithm = noisy_kfac(rank=12, factor_update_period=2, inverse_update_period=4)

    def ended() -> Gaussian:
        parts = jnp.asarray(x.reshape(3, 100, 40)), jnp.asarray(y.reshape(3, 100))
        at = lambda t: Batch.of(*(part[t % 3] for part in parts))
        step = lambda state, t: (
            algorithm.step(jax.random.fold_in(jax.random.key(1), t), state, at(t), objective)[0],
            0,
        )
        state = algorithm.init(jax.random.key(0), objective, Batch.of(x[:100], y[:100]))
        state = jax.jit(lambda state: jax.lax.scan(step, state, jnp.arange(300))[0])(state)
        return algorithm.posterior(jax.random.key(2), state, objective, None, None).belief.factors["network"]

    def by_eigh(matrix: Any, rank: int, near: Any = None) -> Any:
        values, vectors = jnp.linalg.eigh(matrix)
        return jnp.maximum(values[-rank:], 0), vectors[:, -rank:]

    followed = ended()
    monkeypatch.setattr("lamu.operators.kronecker.leading_eigenpairs", by_eigh)
    exact = ended()
    means = [tree.ravel(q.mean)[0] for q in (followed, exact)]
    variances = [tree.ravel(q.precision.variance(q.mean))[0] for q in (followed, exact)]
    np.testing.assert_allclose((means[0] - means[1]) / jnp.sqrt(variances[1]), 0.0, atol=1e-3)
    np.testing.assert_allclose(variances[0], variances[1], rtol=1e-3)


def steps(algorithm, network, x, y, start, count: int = 6, key: int = 1):
    """The probabilities after each of some steps on all rows."""
    model = lamu.Model(network, Categorical(3), Normal(1e12)).starting_at({"network": start, "likelihood": {}})
    batch, objective = Batch.of(x, y), Objective(model, len(x))
    state, found = algorithm.init(jax.random.key(0), objective, batch), []
    step = jax.jit(lambda key, state: algorithm.step(key, state, batch, objective)[0])
    for index in range(count):
        state = step(jax.random.fold_in(jax.random.key(key), index), state)
        params = {"network": state.mean} if "network" not in state.mean else state.mean
        found.append(jax.nn.softmax(network.apply(params["network"], {}, x, None, False)[0]))
    return np.stack(found)


def test_the_path_does_not_depend_on_the_coordinates_of_a_layer() -> None:
    """Inputs written in other coordinates, x Aᵀ, which the first kernel absorbs: the same function at every step.

    To round-off for K-FAC without damping, clipping and prior; Adam goes elsewhere.
    """
    x, y = jnp.asarray(RNG.normal(size=(40, 2))), jnp.asarray(RNG.integers(0, 3, 40), jnp.int32)
    network, change = MLP((3,), "tanh"), jnp.array([[2.0, 0.5], [-1.0, 0.3]])
    start, _ = network.init(jax.random.key(2), x, 3)
    kernel = jnp.linalg.solve(change.T, start["layers"][0]["kernel"])
    other = {"layers": {**start["layers"], 0: {**start["layers"][0], "kernel": kernel}}}
    natural = kfac(
        0.1, b2=0.5, hess_init=1e-14, damping=0.0, max_step=None, inverse_update_period=1, factor_update_period=1
    )
    natural = replace(natural, curvature=GaussNewton())
    paths = [steps(natural, network, z, y, theta) for z, theta in ((x, start), (x @ change.T, other))]
    assert np.abs(paths[0][-1] - paths[0][0]).max() > 0.02
    np.testing.assert_allclose(paths[0], paths[1], atol=1e-6)
    adam = [steps(lamu.algorithms.adam(0.1), network, z, y, t) for z, t in ((x, start), (x @ change.T, other))]
    assert np.abs(adam[0][-1] - adam[1][-1]).max() > 0.02


def test_a_fit_is_saved_and_predicts_the_same(tmp_path) -> None:
    x, y = RNG.normal(size=(24, 2)), RNG.integers(0, 3, 24)
    model = lamu.Model(MLP((3,), "tanh"), Categorical(3))
    algorithm = noisy_kfac()
    fit = lamu.fit(model, (x, y), algorithm, epochs=2, batch_size=8)
    posterior: Any = fit.posterior
    like, precision = fit.state.mean, posterior.belief.factors["network"].precision
    newest = 24.0 * fit.state.precision.fresh.dense(like)
    np.testing.assert_allclose(precision.dense(like), newest, rtol=1e-8, atol=1e-8)
    again = lamu.load(posterior.save(tmp_path / str(len(list(tmp_path.iterdir())))))
    assert (again.predict(x).mean == posterior.predict(x).mean).all()
    draws = again.sample(jax.random.key(0), 2)
    assert draws["network"]["layers"][0]["kernel"].shape == (2, 2, 3)
    assert "Kronecker" in algorithm.choices.family or "kronecker" in algorithm.choices.family


@pytest.mark.stress
@pytest.mark.parametrize("algorithm", [noisy_kfac(), kfac()])
def test_digits_with_shipped_defaults(algorithm) -> None:
    """The mean accuracy of five seeds.

    Of ten seeds of `noisy_kfac` the mean was 0.9661 and the standard deviation 0.0041: other rounding fails by chance
    about once in two thousand runs.
    """
    x, y = (np.asarray(part) for part in lamu.data.load("digits"))
    x = x.reshape(len(x), -1)
    train, test = lamu.data.split(y, 0.2, 0, stratify=True)
    model = lamu.Model(MLP((64, 64)), Categorical(10)).standardised(x[train], y[train])
    found = []
    for seed in range(5):
        fit = lamu.fit(model, (x[train], y[train]), algorithm, epochs=50, batch_size=64, seed=seed)
        found.append(lamu.scores.accuracy(fit.posterior.predict(x[test], samples=64), y[test]))
    assert np.mean(found) >= 0.96
