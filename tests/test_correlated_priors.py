"""Normal priors with a covariance inside a leaf, beside SciPy's densities, and priors by path."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lamu
from lamu import families, tree
from lamu.likelihoods import Gaussian
from lamu.networks import MLP, ConvNet, Linear
from lamu.operators import Dense
from lamu.priors import (
    Belief,
    ByPath,
    CorrelatedNormal,
    FanIn,
    FilterGroups,
    Gates,
    Laplace,
    MatrixNormal,
    Normal,
    Prior,
    gaussian_belief,
    independent_normal,
)
from lamu.record import decode, encode
from lamu.testing import check_prior
from tests.for_each import for_each

rng = np.random.default_rng(0)


def covariance(size: int) -> np.ndarray:
    root = rng.normal(size=(size, size))
    return root @ root.T + size * np.eye(size)


U, V = covariance(3), covariance(2)
KERNEL, FILTERS, BIAS = (jnp.asarray(rng.normal(size=shape)) for shape in ((3, 2), (2, 3, 2, 2), (2,)))
S, LENGTH = 0.7, 1.5


def over_space() -> np.ndarray:
    """The covariance of a filter of 2 × 3 pixels, number by number."""
    places = [(i, j) for i in range(2) for j in range(3)]
    return np.array([[S**2 * np.exp(-np.hypot(a[0] - b[0], a[1] - b[1]) / LENGTH) for b in places] for a in places])


MATRIX = MatrixNormal(jnp.asarray(U), jnp.asarray(V), S)
FILTER = FilterGroups(S, LENGTH)
CASES: dict[str, tuple[CorrelatedNormal, Any, np.ndarray]] = {
    "MatrixNormal": (MATRIX, KERNEL, S**2 * np.kron(U, V)),
    "of inputs alone": (MatrixNormal(rows=jnp.asarray(U)), KERNEL, np.kron(U, np.eye(2))),
    "MatrixNormal of a bias": (MATRIX, BIAS, S**2 * np.eye(2)),
    "FilterGroups": (FILTER, FILTERS, np.kron(over_space(), np.eye(4))),
    "FilterGroups of a bias": (FILTER, BIAS, S**2 * np.eye(2)),
    "FilterGroups of a dense kernel": (FILTER, KERNEL, S**2 * np.eye(6)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_leaf_is_the_normal_of_its_covariance(name: str) -> None:
    """Density by SciPy; the operator is the covariance's inverse; draws have it.

    20,000 draws of at most 24 numbers: every entry of the covariance within six standard errors, a false alarm with
    probability below 1e-5 in all cases together; the key is fixed.
    """
    prior, leaf, expected = CASES[name]
    size = leaf.size
    params = {"leaf": leaf}
    density = stats.multivariate_normal(np.zeros(size), expected).logpdf(np.ravel(leaf))
    np.testing.assert_allclose(prior.log_prob(params), density, rtol=1e-10)
    belief = gaussian_belief(prior, params)
    assert belief is not None
    assert independent_normal(prior, params) is None
    np.testing.assert_allclose(belief.precision.dense(params), np.linalg.inv(expected), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(belief.log_prob(params), density, rtol=1e-8)
    draws = jax.vmap(lambda key: prior.sample(key, params)["leaf"])(jax.random.split(jax.random.key(2), 20_000))
    found = np.cov(np.reshape(draws, (20_000, size)).T)
    error = np.sqrt((expected**2 + np.outer(np.diagonal(expected), np.diagonal(expected))) / 20_000)
    assert np.all(np.abs(found - expected) < 6 * error)


@pytest.mark.parametrize("prior", [FILTER, ByPath({"*bias": Normal(2.0), "*": Laplace(0.5)})], ids=["filters", "path"])
def test_they_obey_the_laws_and_survive_disk_and_float32(prior: Prior) -> None:
    params = {"bias": BIAS, "kernel": FILTERS}
    check_prior(prior, params)
    arrays: dict[str, np.ndarray] = {}
    assert decode(encode(prior, arrays), arrays) == prior
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
    assert prior.log_prob(single).dtype == jnp.float32
    assert prior.sample(jax.random.key(0), single)["kernel"].dtype == jnp.float32


@pytest.mark.stress
def test_gates_have_means_and_scales_of_their_own() -> None:
    """Three blocks of columns, in order; and the laws of priors."""
    prior = Gates((0.5, 1.0, 2.0), locs=(0.0, 1.0, -1.0))
    params = {"bias": jnp.asarray(rng.normal(size=6)), "kernel": jnp.asarray(rng.normal(size=(2, 6)))}
    law = stats.norm(np.repeat([0.0, 1.0, -1.0], 2), np.repeat([0.5, 1.0, 2.0], 2))
    expected = sum(law.logpdf(np.asarray(leaf)).sum() for leaf in params.values())
    np.testing.assert_allclose(prior.log_prob(params), expected, rtol=1e-12)
    check_prior(prior, params)
    assert gaussian_belief(ByPath({"*": prior}), params) is not None
    with pytest.raises(ValueError, match=r"'kernel' of shape \(2, 5\) cannot be cut into 3 gates along its last axis"):
        prior.check({"kernel": jnp.ones((2, 5))})
    with pytest.raises(ValueError, match=r"the scale 0\.0 is not positive and finite; give .* for each gate"):
        Gates((0.0, 1.0))
    with pytest.raises(ValueError, match="are not as many as the scales"):
        Gates((1.0, 1.0), locs=(0.0,))


@pytest.mark.stress
def test_conjugate_laplace_and_ivon_take_the_covariance() -> None:
    """Linear regression: closed form in NumPy; Laplace's is the same, IVON's diagonal is the mean field of it."""
    x, noise = rng.normal(size=(40, 3)), 0.5
    y = x @ np.array([1.0, 0.8, -0.5]) + noise * rng.normal(size=40)
    prior = ByPath({"*kernel": MatrixNormal(rows=jnp.asarray(U / 3)), "*": Normal(1.0)})
    model = lamu.Model(Linear(bias=False), Gaussian(noise), ByPath({"*": MatrixNormal(rows=jnp.asarray(U / 3))}))
    precision = x.T @ x / noise**2 + np.linalg.inv(U / 3)
    mean = np.linalg.solve(precision, x.T @ y / noise**2)
    kernel = lambda posterior: np.asarray(posterior.mean["network"]["layers"][0]["kernel"])[:, 0]
    for algorithm, options in (
        (lamu.algorithms.conjugate(), {}),
        (lamu.algorithms.laplace(lamu.algorithms.newton(1.0)), {"steps": 3, "batch_size": 40}),
    ):
        posterior = lamu.fit(model, (x, y), algorithm, **options).posterior
        np.testing.assert_allclose(kernel(posterior), mean, rtol=1e-6)
        found = posterior.belief.factors["network"].precision.dense(posterior.mean["network"])
        np.testing.assert_allclose(found, precision, rtol=1e-6)
    diagonal = lamu.algorithms.von(0.5, lamu.operators.Diagonal, lamu.expectations.Exact())
    belief = lamu.fit(model, (x, y), diagonal, steps=200, batch_size=40).posterior.belief.factors["network"]
    np.testing.assert_allclose(belief.precision.values["layers"][0]["kernel"][:, 0], np.diagonal(precision), rtol=1e-6)
    np.testing.assert_allclose(belief.mean["layers"][0]["kernel"][:, 0], mean, rtol=1e-6)
    with_bias = lamu.Model(Linear(), Gaussian(noise), prior)
    assert lamu.fit(with_bias, (x, y), lamu.algorithms.conjugate()).posterior.evidence is not None


def test_a_full_covariance_of_one_kernel_beside_other_priors_enters_exactly() -> None:
    """Linear regression under a belief of the kernel, of any covariance, and a normal bias: closed form in NumPy."""
    x, noise = rng.normal(size=(40, 3)), 0.5
    y = 1.0 + x @ np.array([1.0, 0.8, -0.5]) + noise * rng.normal(size=40)
    known, before = np.linalg.inv(U), rng.normal(size=3)
    mean = {"layers": {0: {"bias": None, "kernel": jnp.asarray(before[:, None])}}}
    prior = ByPath({"*kernel": Belief(families.Gaussian(mean, Dense(jnp.asarray(known)))), "*": Normal(2.0)})
    belief = lamu.fit(
        lamu.Model(Linear(), Gaussian(noise), prior), (x, y), lamu.algorithms.conjugate()
    ).posterior.belief
    wide = np.column_stack([np.ones(40), x])  # the bias comes first
    own = np.zeros((4, 4))
    own[0, 0], own[1:, 1:] = 1 / 4, known
    precision = own + wide.T @ wide / noise**2
    expected = np.linalg.solve(precision, own @ np.append(0.0, before) + wide.T @ y / noise**2)
    found = belief.factors["network"]
    np.testing.assert_allclose(tree.ravel(found.mean)[0], expected, rtol=1e-6)
    np.testing.assert_allclose(found.precision.dense(found.mean), precision, rtol=1e-6, atol=1e-9)


@pytest.mark.stress
def test_one_matrix_over_the_leaves_of_a_layer_enters_laplaces_precision() -> None:
    """A belief of kernel and bias together, beside another layer: with the covariances between the two."""
    x = rng.normal(size=(40, 2))
    y = np.tanh(x[:, 0]) + 0.3 * rng.normal(size=40)
    first = covariance(6) / 3  # of two biases, then of a kernel of two by two
    mean = {"layers": {0: {"bias": jnp.zeros(2), "kernel": jnp.zeros((2, 2))}, 1: {"bias": None, "kernel": None}}}
    matrix = jnp.asarray(np.linalg.inv(first))
    prior = ByPath({"layers/0/*": Belief(families.Gaussian(mean, Dense(matrix))), "*": Normal(1.0)})
    model = lamu.Model(MLP((2,), "tanh"), Gaussian(0.3), prior)
    posterior = lamu.fit(model, (x, y), lamu.algorithms.laplace(), steps=400, batch_size=40).posterior
    weights, unravel = tree.ravel(posterior.mean["network"])
    f = lambda w: model.network.apply(unravel(w), {}, jnp.asarray(x), None, False)[0][:, 0]
    J = np.asarray(jax.jacobian(f)(weights))
    own = np.eye(9)
    own[:6, :6] = matrix
    found = posterior.belief.factors["network"].precision.dense(posterior.mean["network"])
    np.testing.assert_allclose(found, J.T @ J / 0.3**2 + own, rtol=1e-4, atol=1e-3)


def test_fan_in_and_the_ntk_form_give_functions_of_one_distribution() -> None:
    r"""Standard normal weights in layers divided by \(\sqrt{\text{inputs}}\) against `FanIn`: Kolmogorov at level 1e-4.

    Two-sample tests of 2,000 functions each at two inputs, and of the product of both values.
    """
    x = jnp.asarray([[0.5, -1.0, 2.0], [-1.5, 0.3, 0.4]])
    network = MLP((16,), "tanh")
    params, state = network.init(jax.random.key(0), x, outputs=1)
    biases = {"*bias": 0.5}

    def standard(key: Any) -> Any:
        return network.apply(Normal({**biases, "*": FanIn(1.4)}).sample(key, params), state, x, None, False)[0][:, 0]

    def ntk(key: Any) -> Any:
        weights = Normal({**biases, "*": 1.0}).sample(key, params)
        divide = lambda path, w: 1.4 * w / w.shape[0] ** 0.5 if "kernel" in path else w
        return network.apply(tree.map_with_path(divide, weights), state, x, None, False)[0][:, 0]

    one, two = (
        np.asarray(jax.lax.map(function, jax.random.split(jax.random.key(seed), 2000)))
        for seed, function in ((1, standard), (2, ntk))
    )
    for a, b in ((one[:, 0], two[:, 0]), (one[:, 1], two[:, 1]), (one.prod(axis=1), two.prod(axis=1))):
        assert stats.ks_2samp(a, b).pvalue > 1e-4


@pytest.mark.stress
def test_a_convolutional_network_is_fitted_under_smooth_filters() -> None:
    images = rng.normal(size=(12, 6, 6, 1)).astype(np.float32)
    prior = ByPath({"convolutions/*": FilterGroups(0.5, 2.0), "*": Normal(1.0)})
    model = lamu.Model(ConvNet((2,), widths=(3,)), lamu.likelihoods.Categorical(2), prior)
    posterior = lamu.fit(model, (images, np.arange(12) % 2), lamu.algorithms.ivon(), steps=3).posterior
    assert posterior.predict(images).mean.shape == (12, 2)


def test_a_part_sees_its_own_leaves_and_frozen_ones_are_left_out() -> None:
    params = {"a": {"bias": BIAS, "kernel": KERNEL}, "b": {"kernel": 2 * KERNEL}}
    prior = ByPath({"a/*": Normal({"*bias": 3.0, "*": 0.5}), "*": Laplace(0.2)})
    prior.check(params)
    expected = Normal({"*bias": 3.0, "*": 0.5}).log_prob(params["a"]) + Laplace(0.2).log_prob(params["b"])
    np.testing.assert_allclose(prior.log_prob(params), expected, rtol=1e-12)
    frozen = {"a": {"bias": None, "kernel": KERNEL}, "b": {"kernel": None}}
    np.testing.assert_allclose(prior.log_prob(frozen), Normal(0.5).log_prob(KERNEL), rtol=1e-12)
    assert gaussian_belief(prior, params) is None


LAYERS = {"head": {"kernel": jnp.ones(2)}, "layers": {"bias": jnp.ones(1), "kernel": jnp.ones(3)}}


def test_a_pattern_inside_another_one_comes_first() -> None:
    """Three patterns, each with all leaves of the one before: they are no two priors of one leaf."""
    prior = ByPath({"layers/kernel": Normal(0.1), "layers/*": Normal(2.0), "*": Normal(1.0)})
    prior.check(LAYERS)
    known = gaussian_belief(prior, LAYERS)
    assert known is not None
    np.testing.assert_allclose(known.precision.values["layers"]["kernel"], 100.0)
    np.testing.assert_allclose(known.precision.values["layers"]["bias"], 0.25)


@for_each(
    "made, message",
    [
        (lambda: MatrixNormal(rows=jnp.ones((2, 3))), r"rows has the shape \(2, 3\); a covariance is a square"),
        (lambda: MatrixNormal(columns=-jnp.eye(2)), "columns is not symmetric and positive definite"),
        (lambda: MatrixNormal(scale=0.0), "the scale 0.0 is not positive"),
        (lambda: FilterGroups(length=-1.0), "the length -1.0 is not positive"),
        (lambda: MATRIX.check({"w": jnp.ones((4, 2))}), r"rows has the shape \(3, 3\), and the leaf 'w' has 4"),
        (lambda: ByPath({}), "have no patterns; give a mapping"),
        (
            lambda: ByPath({"*": Normal(), "b": Normal()}).check({"b": BIAS}),
            "pattern 'b' has the prior of a pattern be",
        ),
        (lambda: ByPath({"z": Normal(), "*": Normal()}).check({"b": BIAS}), "pattern 'z' matches no leaf"),
        (lambda: ByPath({"a": Normal()}).check({"a": BIAS, "b": BIAS}), "no pattern matches the leaf 'b'"),
        (
            lambda: ByPath({"*kernel": Normal(), "layers/*": Laplace(), "*": Normal()}).check(LAYERS),
            "the leaf 'layers/kernel' has two priors, of the patterns '.kernel' and 'layers/.'; give it a pattern",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence(made: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made()
    with pytest.raises(TypeError, match=r"'\*' has 1.0, which is not a prior"):
        ByPath({"*": 1.0})
