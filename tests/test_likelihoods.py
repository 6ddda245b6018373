"""Likelihoods beside the laws: the arguments and targets they refuse, first parameters, scaling and saving."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from lamu.likelihoods import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Gamma,
    GammaDispersion,
    Gaussian,
    IntervalCensored,
    LeftCensored,
    Likelihood,
    Multinomial,
    MultivariateGaussian,
    NegativeBinomial,
    Ordinal,
    PlackettLuce,
    Poisson,
    Quantile,
    RightCensored,
    Scaled,
    StudentT,
    Tobit,
    VonMises,
    Weibull,
    ZeroInflated,
    links,
)
from lamu.likelihoods.links import log_sigmoid
from lamu.record import decode, encode
from tests.for_each import for_each


@pytest.mark.parametrize(
    "likelihood",
    [
        Gaussian(),
        Gaussian(0.5),
        Gaussian(scale_prior=GammaDispersion(2.0, 1.0)),
        Bernoulli(),
        Bernoulli(links.Probit()),
        Categorical(3),
        Scaled(Gaussian(), 1.0, 2.0),
        Beta(),
        Binomial(3),
        Gamma(2.0, links.Reciprocal()),
        IntervalCensored(Gaussian()),
        Multinomial(3),
        MultivariateGaussian(),
        NegativeBinomial(),
        Ordinal(3, links.Probit(), cuts=(0.0, 1.0)),
        PlackettLuce(4),
        Poisson(links.SquareRoot()),
        Quantile(0.9),
        StudentT(),
        Tobit(),
        VonMises(),
        Weibull(),
        ZeroInflated(NegativeBinomial()),
    ],
)
def test_likelihood_is_one_and_survives_disk_and_jit(likelihood) -> None:
    assert isinstance(likelihood, Likelihood)
    arrays: dict[str, np.ndarray] = {}
    assert decode(encode(likelihood, arrays), arrays) == likelihood
    traced = jax.jit(lambda whole: whole)(likelihood)
    assert jax.tree.structure(traced) == jax.tree.structure(likelihood)


@for_each("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_scale_must_be_positive_and_finite(scale: float) -> None:
    with pytest.raises(ValueError, match=f"the scale {scale}"):
        Gaussian(scale)
    with pytest.raises(ValueError, match=f"the scale {scale}"):
        Scaled(Gaussian(), 0.0, scale)


def test_scale_may_be_traced() -> None:
    f, y = jnp.zeros((1, 1)), jnp.ones(1)
    slope = jax.grad(lambda scale: Gaussian(scale).log_prob({}, f, y)[0])(2.0)
    assert np.isclose(slope, 1.0 / 8.0 - 0.5)
    slope = jax.grad(lambda scale: Scaled(Gaussian(1.0), 0.0, scale).log_prob({}, f, y)[0])(2.0)
    assert np.isclose(slope, 1.0 / 8.0 - 0.5)


@for_each(
    "likelihood, y, message",
    [
        (Gaussian(), ["red", "blue"], r"'red'.*not a number.*encoded"),
        (Gaussian(), np.zeros((4, 1)), r"\(4, 1\).*y\[:, 0\]"),
        (Gaussian(), np.zeros((4, 1, 2)), r"\(4, 1, 2\)"),
        (Gaussian(), [0.0, np.nan, np.inf], r"the target in row 1 is nan, and Gaussian takes finite numbers"),
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
        (
            Categorical(3),
            np.full((2, 3), 1 / 3),
            r"as if probabilities.*\"x\": np.repeat\(x, 3, 0\).*\"weight\": y.ravel",
        ),
        (Categorical(3), np.array([0, -100]), r"row 1 is -100.*leave out rows without a class, which -100"),
        (Categorical(3), np.zeros((4, 2)), r"\(4, 2\)"),
        (Poisson(), [3, 0, -1], r"the target in row 2 is -1, and Poisson takes whole numbers from 0"),
        (Poisson(), [3, 0.5], r"the target in row 1 is 0.5, and Poisson takes whole numbers from 0"),
        (NegativeBinomial(), [3, np.inf], r"the target in row 1 is inf"),
        (Poisson(), np.zeros((4, 1)), r"\(4, 1\).*y\[:, 0\]"),
        (Gamma(), [1.0, 0.0], r"the target in row 1 is 0.0, and Gamma takes numbers above 0"),
        (Weibull(), [-1.0], r"row 0 is -1.0, and Weibull takes numbers above 0"),
        (Beta(), [0.5, 1.0], r"the target in row 1 is 1.0, and Beta takes numbers strictly between 0 and 1"),
        (Bernoulli(links.Tanh()), [1, -1, 0], r"the target in row 2 is 0, and Bernoulli takes -1 and 1"),
        (Binomial(3), [0, 4], r"the target in row 1 is 4, and Binomial takes whole numbers from 0 to 3"),
        (
            Binomial(),
            {"value": np.array([1, 5]), "trials": np.array([1, 4])},
            r"row 1 has 5 successes in 4 trials; give at least as many",
        ),
        (Binomial(), {"value": np.array([1]), "trials": np.array([1.5])}, r"row 0 is 1.5, and the trials of Binomial"),
        (Multinomial(3, 4), [[1, 2, 1], [1, 1, 1]], r"the counts of row 1 sum to 3, and there are 4 trials"),
        (Multinomial(3), np.zeros((4, 2)), r"\(4, 2\).*\[batch, 3\]"),
        (Ordinal(3), [0, 1, 3], r"the target in row 2 is 3, and Ordinal\(3\) takes whole numbers from 0 to 2"),
        (
            RightCensored(Gaussian()),
            {"value": np.array([1.0, 2.0]), "censored": np.array([0, 2])},
            r"the indicator 'censored' of row 1 is 2; give 1 where a row is censored, else 0",
        ),
        (
            RightCensored(Gaussian()),
            {"value": np.array([1.0]), "event": np.array([0])},
            r"bring \['event', 'value'\], and RightCensored\(Gaussian\) takes 'value' and 'censored'",
        ),
        (
            IntervalCensored(Gaussian()),
            {"value": np.array([0.0, 1.0]), "upper": np.array([1.0, 0.0])},
            r"row 1 is between 1.0 and 0.0; give the smaller one first",
        ),
        (
            Binomial(),
            {"successes": np.array([1]), "trials": np.array([2])},  # it was KeyError: 'value'
            r"bring \['successes', 'trials'\], and Binomial takes 'value' and 'trials'; rename them",
        ),
        (Tobit(), [0.0, -1.0], r"the target in row 1 is -1.0, and Tobit takes numbers from 0"),
        (PlackettLuce(3), [[0, 1, 2], [0, 0, 1]], r"row 1 is 0, and PlackettLuce takes orders of the numbers 0 to 2"),
        (MultivariateGaussian(np.eye(2)), np.zeros((4, 3)), r"3 outputs, and the covariance 2"),
        (Scaled(Gaussian(), 0.0, 1.0), [0.0, np.nan], r"row 1 is nan"),
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


@for_each(
    "make, message",
    [
        (lambda: Ordinal(3, cuts=(1.0, 0.0)), "cut-points 1.0 and 0.0 are out of order; sort them"),
        (lambda: Ordinal(3, cuts=(1.0,)), "1 cut-points for 3 classes; give 2"),
        (lambda: Ordinal.of([0, 1, 3]), "no row has the category 2.*np.unique"),
        (lambda: Ordinal.of([1, 2, 3]), "no row has the category 0"),
        (lambda: Ordinal(1), "Ordinal\\(1\\)"),
        (lambda: Binomial(0), "0 trials cannot be"),
        (lambda: StudentT(2.0), "with 2.0 degrees of freedom the variance is infinite"),
        (lambda: StudentT(scale=-1.0), "the scale -1.0 is not positive"),
        (lambda: Gamma(0.0), "the shape 0.0 is not positive"),
        (lambda: Quantile(1.0), "the level 1.0 is not between 0 and 1"),
        (lambda: Tobit(1.0, 0.0), "limits 1.0 and 0.0 are out of order"),
        (lambda: ZeroInflated(Gaussian()), "takes a likelihood of counts, and Gaussian takes finite numbers"),
        (lambda: ZeroInflated(Binomial()), r"Binomial\(\) takes the trials of each row; give Binomial\(10\)"),
        (lambda: ZeroInflated(Multinomial(3, 3)), "one output and one count a row, which Multinomial is not"),
        (lambda: ZeroInflated(ZeroInflated(Poisson())), "one output and one count a row"),
        (
            lambda: RightCensored(Categorical(3)),
            "RightCensored takes .*Categorical takes whole .*, of which none is beyond",
        ),
        (lambda: LeftCensored(VonMises()), "LeftCensored takes .*VonMises takes angles"),
        (lambda: IntervalCensored(Bernoulli()), "IntervalCensored takes .*Bernoulli takes 0 and 1"),
        (lambda: MultivariateGaussian(np.array([[1.0, 2.0], [2.0, 1.0]])), "not symmetric and positive definite"),
        (lambda: PlackettLuce(1), "too few items"),
        (lambda: Multinomial(1), "too few categories"),
    ],
)
def test_arguments_that_cannot_be_are_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("link", "means"),
    [
        (links.Identity(), [-3.0, 0.0, 5.0]),
        (links.Log(), [1e-6, 1.0, 1e6]),
        (links.Reciprocal(), [1e-3, 1.0, 1e3]),
        (links.SquareRoot(), [1e-3, 1.0, 1e6]),
        (links.Tanh(), [-0.99, 0.0, 0.99]),
        *[
            (link, [1e-6, 0.3, 0.5, 0.999])
            for link in (links.Logit(), links.Probit(), links.LogLog(), links.ComplementaryLogLog())
        ],
    ],
)
def test_links_return(link, means: list[float]) -> None:
    means = jnp.asarray(means)
    f = link.forward(means)
    np.testing.assert_allclose(link.inverse(f), means, rtol=1e-12)
    np.testing.assert_allclose(link.forward(link.inverse(f)), f, rtol=1e-12, atol=1e-12)
    if isinstance(link, links.PositiveLink):
        np.testing.assert_allclose(link.log_mean(f), jnp.log(means), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(link.reciprocal(f), 1 / means, rtol=1e-12)
        slope = jax.vmap(jax.grad(link.log_mean))(f)
        np.testing.assert_allclose(link.log_slope(f), slope, rtol=1e-12)
    if isinstance(link, links.ProbabilityLink):
        p = link.probability(f)
        np.testing.assert_allclose(link.of_probability(p), f, rtol=1e-12, atol=1e-12)
        for one, value in ((True, p), (False, 1 - p)):
            np.testing.assert_allclose(link.log_prob(f, jnp.full(f.shape, one)), jnp.log(value), rtol=1e-9)
        np.testing.assert_allclose(jnp.exp(link.log_density(f)), jax.vmap(jax.grad(link.probability))(f), rtol=1e-9)
        np.testing.assert_allclose(
            link.log_interval(f, f + 0.5), jnp.log(link.probability(f + 0.5) - link.probability(f)), rtol=1e-9
        )


@pytest.mark.sampled
@pytest.mark.parametrize(
    "likelihood",
    [
        Poisson(),
        Poisson(links.SquareRoot()),
        NegativeBinomial(2.0),
        Binomial(1_000_000),
        ZeroInflated(Poisson()),
        ZeroInflated(NegativeBinomial(2.0)),
    ],
)
def test_counts_from_zero_to_a_million_are_finite(likelihood) -> None:
    y = jnp.tile(jnp.array([0, 1_000_000]), 4)
    for dtype in (jnp.float32, jnp.float64):
        f = jnp.repeat(jnp.array([0.0, 1e4, -1e4, 13.8], dtype), 2)
        outputs = jnp.tile(f[:, None], (1, likelihood.outputs(jnp.zeros(2))))
        slope = jax.grad(lambda outputs: jnp.sum(likelihood.log_prob({}, outputs, y)))(outputs)
        for found in (likelihood.log_prob({}, outputs, y), slope, likelihood.information({}, outputs)):
            assert jnp.isfinite(found).all(), dtype


@pytest.mark.parametrize("size", [1e4, 1e6, 1e8])
def test_large_concentrations_keep_the_digits_of_float32(size: float) -> None:
    """Terms of the order of the concentration, or of its logarithms, cancelled: nats a row were lost."""
    f, y = jnp.full((4, 1), 1.0, jnp.float32), np.array([0.0, 1.0, 3.0, 40.0])
    found = NegativeBinomial(size).log_prob({}, f, jnp.asarray(y, jnp.float32))
    np.testing.assert_allclose(found, stats.nbinom.logpmf(y, size, size / (size + np.e)), atol=1e-3)
    found = StudentT(df=size, scale=1.0).log_prob({}, f, jnp.asarray(y, jnp.float32))
    np.testing.assert_allclose(found, stats.t.logpdf(y - 1.0, size), rtol=1e-3)
    single = np.asarray(np.e * (1.0 + np.array([-2.0, 0.0, 0.5, 3.0]) / np.sqrt(size)), np.float32)
    found = Gamma(size).log_prob({}, f, jnp.asarray(single))
    slack = 1e-4 + 4e-7 * np.sqrt(size)  # the rounding of log y, or of y, times the slope
    np.testing.assert_allclose(found, stats.gamma.logpdf(single.astype(float), size, scale=np.e / size), atol=slack)
    mean = np.e / (1.0 + np.e)
    single = np.asarray(mean * (1.0 + np.array([-2.0, 0.0, 0.5, 3.0]) / np.sqrt(size)), np.float32)
    expected = stats.beta.logpdf(single.astype(float), mean * size, (1.0 - mean) * size)
    np.testing.assert_allclose(Beta(size).log_prob({}, f, jnp.asarray(single)), expected, atol=4 * slack)
    for likelihood, entropy in (
        (Gamma(size), 1.0 + 0.5 * np.log(2 * np.pi * np.e / size)),  # normal ones, up to 1/size
        (StudentT(df=size, scale=1.0), 0.5 * np.log(2 * np.pi * np.e)),
        (Beta(size), 0.5 * np.log(2 * np.pi * np.e * mean * (1.0 - mean) / size)),
    ):
        np.testing.assert_allclose(likelihood.entropy({}, f), entropy, atol=1.0 / size + 1e-5)


def test_counts_of_a_million_keep_their_digits_in_float32() -> None:
    y, f = np.array([999_000.0, 1_000_000.0]), np.log(1e6)
    single = jnp.full((2, 1), f, jnp.float32)
    at = np.asarray(single[:, 0], float)
    np.testing.assert_allclose(
        Poisson().log_prob({}, single, jnp.asarray(y)), stats.poisson.logpmf(y, np.exp(at)), atol=0.01
    )
    np.testing.assert_allclose(
        NegativeBinomial(2.0).log_prob({}, single, jnp.asarray(y)),
        stats.nbinom.logpmf(y, 2.0, 2.0 / (2.0 + np.exp(at))),
        atol=1e-3,
    )


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_censored_rows_are_the_tails_and_intervals(dtype) -> None:
    """Beside SciPy, to 40 deviations on either side, in densities and slopes."""
    far = np.array([-40.0, -3.0, 0.0, 3.0, 40.0])
    f, value = jnp.zeros((5, 1), dtype), jnp.asarray(far)
    rtol = 1e-5 if dtype == jnp.float32 else 1e-10
    for likelihood, expected in (
        (RightCensored(Gaussian(1.0)), stats.norm.logsf(far)),
        (LeftCensored(Gaussian(1.0)), stats.norm.logcdf(far)),
    ):
        y = {"value": value, "censored": jnp.ones(5, int)}
        likelihood.check(jax.tree.map(np.asarray, y))
        assert likelihood.outputs(y) == 1
        np.testing.assert_allclose(likelihood.log_prob({}, f, y), expected, rtol=rtol, atol=1e-30)
        exact = {**y, "censored": jnp.zeros(5, int)}
        np.testing.assert_allclose(likelihood.log_prob({}, f, exact), stats.norm.logpdf(far), rtol=rtol)
        np.testing.assert_allclose(likelihood.log_prob({}, f, value), stats.norm.logpdf(far), rtol=rtol)
        slope = jax.grad(lambda f, likelihood=likelihood, y=y: jnp.sum(likelihood.log_prob({}, f, y)))(f)
        assert jnp.isfinite(slope).all()
    upper = {"value": value, "upper": value + jnp.array([1.0, 0.0, 1.0, 0.0, 1.0])}
    likelihood = IntervalCensored(Gaussian(1.0))
    found = likelihood.log_prob({}, f, upper)
    within = stats.norm.logcdf(-39.0) + np.log1p(-np.exp(stats.norm.logcdf(-40.0) - stats.norm.logcdf(-39.0)))
    outer = stats.norm.logsf(40.0) + np.log1p(-np.exp(stats.norm.logsf(41.0) - stats.norm.logsf(40.0)))
    middle = np.log(stats.norm.cdf(1.0) - 0.5)
    exact = stats.norm.logpdf(3.0)
    np.testing.assert_allclose(found, [within, exact, middle, exact, outer], rtol=rtol)
    assert jnp.isfinite(jax.grad(lambda f: jnp.sum(likelihood.log_prob({}, f, upper)))(f)).all()


def test_tobit_is_finite_at_forty_deviations() -> None:
    for dtype in (jnp.float32, jnp.float64):
        f = jnp.array([[40.0], [-40.0], [1e4], [-1e4]], dtype)
        value, slope = jax.value_and_grad(lambda f: jnp.sum(Tobit(scale=1.0).log_prob({}, f, jnp.zeros(4))))(f)
        assert jnp.isfinite(value)
        assert jnp.isfinite(slope).all()


def test_weibull_survival_is_scipys() -> None:
    y = {"value": jnp.array([0.5, 2.0, 30.0]), "censored": jnp.array([1, 0, 1])}
    reference = stats.weibull_min(1.4, scale=np.exp(0.3))
    found = RightCensored(Weibull(1.4)).log_prob({}, jnp.full((3, 1), 0.3), y)
    np.testing.assert_allclose(found, [reference.logsf(0.5), reference.logpdf(2.0), reference.logsf(30.0)], rtol=1e-10)
    left = LeftCensored(Gamma(2.0)).log_prob({}, jnp.full((3, 1), 0.3), {**y, "censored": jnp.ones(3)})
    gamma = stats.gamma(2.0, scale=np.exp(0.3) / 2)
    np.testing.assert_allclose(left, gamma.logcdf([0.5, 2.0, 30.0]), rtol=1e-9, atol=1e-12)


def test_trials_of_each_row() -> None:
    value, trials, f = np.array([1, 0, 7]), np.array([3, 2, 7]), np.array([0.3, -1.0, 2.0])
    found = Binomial().log_prob(
        {}, jnp.asarray(f)[:, None], {"value": jnp.asarray(value), "trials": jnp.asarray(trials)}
    )
    np.testing.assert_allclose(found, stats.binom.logpmf(value, trials, special.expit(f)), rtol=1e-10)
    Binomial().check({"value": value, "trials": trials})
    assert Binomial().outputs({"value": value, "trials": trials}) == 1
    assert Binomial().init({"value": value, "trials": trials}) == {}
    with pytest.raises(ValueError, match=r"the rows bring trials, and Binomial\(3\) has its own"):
        Binomial(3).check({"value": value, "trials": trials})


@pytest.mark.parametrize(
    ("likelihood", "true", "y"),
    [
        (StudentT(5.0), 0.5, lambda r: 0.5 * r.standard_t(5, 20_000)),
        (NegativeBinomial(), 2.0, lambda r: r.negative_binomial(2.0, 2.0 / 6.0, 20_000)),
        (Gamma(), 3.0, lambda r: r.gamma(3.0, 1.0, 20_000)),
        (Beta(), 5.0, lambda r: r.beta(2.0, 3.0, 20_000)),
        (Weibull(), 1.7, lambda r: r.weibull(1.7, 20_000)),
        (VonMises(), 4.0, lambda r: r.vonmises(1.0, 4.0, 20_000)),
        (Quantile(0.3), 1.0, lambda r: r.exponential(1 / 0.3, 20_000) - r.exponential(1 / 0.7, 20_000)),
        (Tobit(-np.inf), 1.5, lambda r: 1.5 * r.normal(size=20_000)),
    ],
)
def test_first_dispersions_are_those_of_the_targets(likelihood, true: float, y) -> None:
    params = likelihood.init(jnp.asarray(y(np.random.default_rng(0))))
    np.testing.assert_allclose(np.exp(next(iter(params.values()))), [true], rtol=0.1)


def test_several_targets_are_independent() -> None:
    f, y = jnp.array([[0.1, -0.5], [1.0, 0.3]]), jnp.array([[1, 0], [4, 2]])
    expected = sum(Poisson().log_prob({}, f[:, k : k + 1], y[:, k]) for k in range(2))
    np.testing.assert_allclose(Poisson().log_prob({}, f, y), expected)
    assert Poisson().outputs(y) == 2
    assert Poisson().information({}, f).shape == (2, 2, 2)
    assert NegativeBinomial().init(y)["log_concentration"].shape == (2,)


@for_each(
    "make, message",
    [
        (lambda: Bernoulli(links.Log()), r"link=Log\(\); give Logit\(\), .* or Tanh\(\)"),
        (lambda: Poisson(links.Probit()), r"Poisson cannot have link=Probit\(\); give Log\(\) or SquareRoot\(\)"),
        (lambda: Poisson(links.Reciprocal()), "Poisson cannot have link=Reciprocal"),  # is not log-concave
        (lambda: Poisson(links.Log), r"give Log\(\) or SquareRoot\(\)"),
        (lambda: NegativeBinomial(link=links.Logit()), r"give Log\(\) or SquareRoot\(\)"),
        (lambda: Gamma(link=links.Identity()), r"Gamma cannot have link=Identity\(\); give Log\(\) or Reciprocal\(\)"),
        (lambda: Gamma(link=links.SquareRoot()), "Gamma cannot have link=SquareRoot"),  # is not log-concave
        (lambda: Beta(link=links.Log()), r"Beta cannot have .*give Logit\(\), Probit\(\), LogLog\(\) or Compl"),
        (lambda: Binomial(3, links.Log()), r"Binomial cannot have .*give Logit\(\)"),
        (lambda: Binomial(3, links.Tanh()), r"Binomial cannot have link=Tanh\(\)"),
        (lambda: Ordinal(3, links.Log()), r"Ordinal cannot have link=Log\(\); give Logit\(\)"),
    ],
)
def test_links_of_another_kind_are_refused(make, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()


def test_draws_of_a_learned_covariance_have_its_prior() -> None:
    """Log deviations N(0, 3²) and mixings N(0, 1), all independent: moments of 4,000 draws within five errors."""
    likelihood = MultivariateGaussian()
    params = likelihood.init(jnp.asarray(np.random.default_rng(0).normal(size=(5, 3))))
    draws = jax.vmap(lambda key: likelihood.sample_prior(key, params))(jax.random.split(jax.random.key(0), 4000))
    flat = np.concatenate([draws["log_scale"], draws["mixing"]], axis=1)
    scale = np.repeat([3.0, 1.0], 3)
    assert np.all(np.abs(flat.mean(axis=0)) < 5 * scale / 4000**0.5)
    np.testing.assert_allclose(flat.std(axis=0), scale, rtol=5 / 8000**0.5)
    assert np.all(np.abs(np.corrcoef(flat.T) - np.eye(6)) < 5 / 4000**0.5)
    given = MultivariateGaussian(np.eye(2))
    assert given.sample_prior(jax.random.key(0), {}) == {}


def test_a_probability_link_of_ones_own_is_taken() -> None:
    class Own(links.Logit):
        pass

    assert isinstance(Binomial(3, Own()).link, Own)


def test_counts_of_any_size_have_a_distribution_function_that_ends() -> None:
    """Without the cube root the series of the largest mean runs for ever; in float32 too."""
    for mean in (0.5, 9e4, 2e5, 1e7):
        y = np.floor(mean + np.array([-2.0, 0.0, 1.5]) * np.sqrt(mean)).clip(0)
        found = Poisson().cdf({}, jnp.log(jnp.full((3, 1), mean)), jnp.asarray(y))
        np.testing.assert_allclose(found, stats.poisson.cdf(y, mean), atol=1e-5)
    for dtype in (jnp.float32, jnp.float64):
        f = jnp.array([[25.0], [40.0], [60.0]], dtype)
        np.testing.assert_allclose(Poisson().cdf({}, f, Poisson().mean({}, f)), 0.5, atol=1e-3)


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e25])
def test_a_noise_whose_square_single_precision_cannot_hold_has_a_density(scale: float) -> None:
    log_scale = jnp.log(jnp.full(1, scale, jnp.float32))
    y = np.array([-1.5, 0.0, 4.0]) * scale
    found = Gaussian().log_prob({"log_scale": log_scale}, jnp.zeros((3, 1), jnp.float32), jnp.asarray(y, jnp.float32))
    np.testing.assert_allclose(found, stats.norm.logpdf(y, scale=scale), rtol=1e-5)
