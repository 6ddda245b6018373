"""Likelihoods beside the laws: the arguments and targets they refuse, first parameters, scaling and saving."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from lamu.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, Scaled
from lamu.likelihoods.bernoulli import log_sigmoid
from lamu.record import decode, encode


@pytest.mark.parametrize(
    "likelihood", [Gaussian(), Gaussian(0.5), Bernoulli(), Categorical(3), Scaled(Gaussian(), 1.0, 2.0)]
)
def test_likelihood_is_one_and_survives_disk_and_jit(likelihood) -> None:
    assert isinstance(likelihood, Likelihood)
    arrays: dict[str, np.ndarray] = {}
    assert decode(encode(likelihood, arrays), arrays) == likelihood
    traced = jax.jit(lambda whole: whole)(likelihood)
    assert jax.tree.structure(traced) == jax.tree.structure(likelihood)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_scale_must_be_positive_and_finite(scale: float) -> None:
    with pytest.raises(ValueError, match=f"noise scale {scale}"):
        Gaussian(scale)
    with pytest.raises(ValueError, match=f"the scale {scale}"):
        Scaled(Gaussian(), 0.0, scale)


def test_scale_may_be_traced() -> None:
    f, y = jnp.zeros((1, 1)), jnp.ones(1)
    slope = jax.grad(lambda scale: Gaussian(scale).log_prob({}, f, y)[0])(2.0)
    assert np.isclose(slope, 1.0 / 8.0 - 0.5)
    slope = jax.grad(lambda scale: Scaled(Gaussian(1.0), 0.0, scale).log_prob({}, f, y)[0])(2.0)
    assert np.isclose(slope, 1.0 / 8.0 - 0.5)


@pytest.mark.parametrize(
    ("likelihood", "y", "message"),
    [
        (Gaussian(), ["red", "blue"], r"'red'.*not a number.*encoded"),
        (Gaussian(), np.zeros((4, 1)), r"\(4, 1\).*y\[:, 0\]"),
        (Gaussian(), np.zeros((4, 1, 2)), r"\(4, 1, 2\)"),
        (Gaussian(), [0.0, np.nan, np.inf], r"2 of the targets.*nan, in row 1"),
        (Bernoulli(), [0, 1, 2], r"the target in row 2 is 2, and Bernoulli takes 0 and 1; encode"),
        (Bernoulli(), [-1, 1], r"the target in row 0 is -1"),
        (Bernoulli(), [0.0, 0.5], r"the target in row 1 is 0.5"),
        (Bernoulli(), ["no", "yes"], r"the target \['no'\] is not a number, and Bernoulli takes 0 and 1"),
        (Bernoulli(), np.zeros((4, 1)), r"\(4, 1\)"),
        (
            Categorical(3),
            [0, 3, 7],
            r"the target in row 1 is 3, and Categorical\(3\) takes .* 0 to 2; encode",
        ),
        (Categorical(3), [0, -1], r"the target in row 1 is -1"),
        (Categorical(3), [0.0, 1.5], r"the target in row 1 is 1.5"),
        (Categorical(3), ["cat", "dog"], r"the target \['cat'\] is not.*np.unique"),
        (Categorical(3), np.array(["cat", 2], object), r"the target \['cat'\] is not"),
        (Categorical(3), np.eye(3), r"one-hot.*argmax"),
        (Categorical(3), np.zeros((4, 2)), r"\(4, 2\)"),
        (Scaled(Gaussian(), 0.0, 1.0), [0.0, np.nan], r"not finite"),
        (Scaled(Gaussian(), np.zeros(3), 1.0), np.zeros((4, 2)), r"shift has 3 values.*2 outputs"),
        (Scaled(Gaussian(), 0.0, np.ones(2)), np.zeros(4), r"scale has 2 values.*1 outputs"),
    ],
)
def test_targets_that_cannot_be_are_refused(likelihood, y, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        likelihood.check(y)


@pytest.mark.parametrize(
    ("likelihood", "y", "outputs"),
    [
        (Gaussian(), [1, 2, 3], 1),
        (Gaussian(), np.zeros((4, 2), np.float32), 2),
        (Bernoulli(), [True, False], 1),
        (Bernoulli(), [0.0, 1.0], 1),
        (Bernoulli(), jnp.array([0, 1]), 1),
        (Categorical(3), [0, 1, 1], 3),
        (Categorical(3), [0.0, 2.0], 3),
        (Categorical(2), jnp.array([0, 1], jnp.uint8), 2),
        (Scaled(Gaussian(), np.zeros(2), np.ones(2)), np.zeros((4, 2)), 2),
    ],
)
def test_targets_that_can_be_are_taken(likelihood, y, outputs: int) -> None:
    likelihood.check(y)
    y = jnp.asarray(y)
    assert likelihood.outputs(y) == outputs
    f = jnp.zeros((len(y), outputs))
    assert likelihood.log_prob(likelihood.init(y), f, y).shape == (len(y),)


def test_categorical_needs_two_classes() -> None:
    with pytest.raises(ValueError, match=r"Categorical\(1\)"):
        Categorical(1)


def test_targets_of_another_size_never_broadcast() -> None:
    with pytest.raises(TypeError):
        Gaussian(1.0).log_prob({}, jnp.zeros((4, 3)), jnp.zeros(4))
    with pytest.raises(TypeError):
        Categorical(3).log_prob({}, jnp.zeros((4, 3)), jnp.zeros(1, int))


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(2)])
def test_classes_have_no_cdf_no_marginal_and_nothing_to_learn(likelihood) -> None:
    f = jnp.zeros((1, likelihood.outputs(None)))
    with pytest.raises(TypeError, match="regression"):
        likelihood.cdf({}, f, jnp.zeros(1))
    assert likelihood.marginal({}, f, jnp.zeros((1, *f.shape[1:], *f.shape[1:]))) is None
    assert likelihood.init(None) == likelihood.dispersion_information({}) == {}
    assert likelihood.log_prior({}) == 0.0


def test_constant_logits_carry_no_information() -> None:
    """Float32, one class nearly certain: rows still sum to zero, and the small entries keep their digits."""
    f = jnp.array([[30.0, 0.0, -5.0]], jnp.float32)
    information = Categorical(3).information({}, f)[0]
    np.testing.assert_allclose(jnp.sum(information, axis=1), 0.0, atol=1e-20)
    np.testing.assert_allclose(information[0, 0], np.exp(-30.0) + np.exp(-35.0), rtol=1e-5)


def test_two_classes_are_a_coin() -> None:
    f, y = jnp.array([[0.3], [-2.0]]), jnp.array([1, 0])
    pair = jnp.concatenate([jnp.zeros_like(f), f], axis=1)
    np.testing.assert_allclose(Categorical(2).log_prob({}, pair, y), Bernoulli().log_prob({}, f, y))
    np.testing.assert_allclose(Categorical(2).entropy({}, pair), Bernoulli().entropy({}, f))
    np.testing.assert_allclose(Categorical(2).information({}, pair)[:, 1:, 1:], Bernoulli().information({}, f))


def test_large_common_logit_costs_no_digits() -> None:
    f = jnp.array([[1.0, 2.0]], jnp.float32)
    far, near = (Categorical(2).log_prob({}, f + shift, jnp.array([0]))[0] for shift in (8192.0, 0.0))
    np.testing.assert_allclose(far, near, rtol=1e-6)
    np.testing.assert_allclose(Categorical(2).entropy({}, f + 8192.0), Categorical(2).entropy({}, f), rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_noise_starts_at_the_spread_of_the_targets(dtype) -> None:
    y = jnp.array([[1.0, 10.0], [3.0, 50.0]], dtype)
    found = Gaussian().init(y)["log_scale"]
    assert found.dtype == dtype
    np.testing.assert_allclose(found, np.log([1.0, 20.0]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("y", [[0.1 + 0.2, 0.3], [5.0], [1e8, 1e8]])
def test_targets_that_do_not_vary_start_at_noise_one(y) -> None:
    np.testing.assert_allclose(Gaussian().init(jnp.array(y))["log_scale"], [0.0], atol=1e-7)


def test_given_noise_is_not_learned() -> None:
    y = jnp.arange(3.0)
    assert Gaussian(0.5).init(y) == Gaussian(0.5).dispersion_information({}) == {}
    assert Gaussian(0.5).log_prior({}) == 0.0


def test_scaled_starts_from_standardised_targets() -> None:
    y = jnp.array([90.0, 110.0, 100.0, 100.0])
    expected = Gaussian().init((y - 100.0) / 20.0)["log_scale"]
    np.testing.assert_allclose(Scaled(Gaussian(), 100.0, 20.0).init(y)["log_scale"], expected)


def test_scaled_by_integers_takes_integers() -> None:
    y = jnp.array([90, 110, 100])
    likelihood = Scaled(Gaussian(), 100, 20)
    assert jnp.all(jnp.isfinite(likelihood.log_prob(likelihood.init(y), jnp.zeros((3, 1)), y)))


def test_scaled_keeps_the_digits_of_targets_far_from_zero() -> None:
    likelihood = Scaled(Gaussian(1.0), shift=1e8, scale=1.0)
    y, f = jnp.array([1e8 + 0.5]), jnp.zeros((1, 1), jnp.float32)
    np.testing.assert_allclose(
        likelihood.log_prob({}, f, y), Gaussian(1.0).log_prob({}, f, jnp.array([0.5])), rtol=1e-6
    )


def test_scaled_is_for_regression() -> None:
    with pytest.raises(ValueError, match="Categorical takes whole numbers from 0 to 2"):
        Scaled(Categorical(3), 0.0, 1.0)
    with pytest.raises(ValueError, match="shift nan"):
        Scaled(Gaussian(), float("nan"), 1.0)


def test_float32_runs_without_x64() -> None:
    with jax.enable_x64(False):
        f, y = jnp.zeros((2, 1)), jnp.array([0.0, 1.0])
        for likelihood in (Gaussian(), Gaussian(0.5), Scaled(Gaussian(), np.float64(0.1), 2.0), Bernoulli()):
            params = likelihood.init(y)
            assert likelihood.log_prob(params, f, y).dtype == jnp.float32
            assert likelihood.log_prior(params).dtype == jnp.float32


def test_the_logistic_derivatives_are_the_functions_themselves() -> None:
    """Three derivatives beside SciPy's, at zero and far out too, forward and backward; and one exponential for two."""
    f = jnp.array([0.0, 1e-9, -0.7, 3.0, -3.0, 60.0, -200.0, 1e5, -1e5])
    z = np.asarray(f)
    down, product = special.expit(-z), special.expit(z) * special.expit(-z)
    expected = [special.log_expit(z), down, -product, product * np.tanh(z / 2)]
    backward = forward = log_sigmoid
    for values in expected:
        for derivative in (backward, forward):
            np.testing.assert_allclose(jax.vmap(derivative)(f), values, rtol=1e-13, atol=1e-15)
        backward, forward = jax.grad(backward), jax.jacfwd(forward)
    program = jax.jit(jax.value_and_grad(lambda f: jnp.sum(log_sigmoid(f)))).lower(f).compile()
    assert program.as_text().count("exponential(") == 1
