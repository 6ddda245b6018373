"""Families at their borders: what is refused, in which words, and what tracers are spared; products and mixtures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from lamu.families import (
    Bernoulli,
    Beta,
    Categorical,
    Dirichlet,
    ExpectationMixture,
    ExpectationParameters,
    Exponential,
    ExponentialFamily,
    Gamma,
    Gaussian,
    MatrixNormal,
    Mixture,
    MultivariateNormal,
    NaturalMixture,
    NaturalParameters,
    NormalWishart,
    Point,
    Poisson,
    Product,
    VonMises,
    Wishart,
)
from lamu.families.exponential import Positive
from lamu.geometry import Retraction
from lamu.operators import Dense, Diagonal, Scalar
from lamu.record import decode, encode, record, static
from lamu.rule import gaussian_step, natural_step
from lamu.testing import check_family
from tests.for_each import for_each

INDEFINITE = jnp.array([[1.0, 2.0], [2.0, 1.0]])
LOPSIDED = jnp.array([[1.0, 0.5], [0.1, 1.0]])


@for_each(
    "make, words",
    [
        (lambda: Beta(-0.5, 1.0), "Beta: alpha -0.5 is not positive"),
        (lambda: Gamma(1.0, {"layer": {"w": np.array([1.0, 0.0])}}), r"rate of layer/w has 0 at \[1\], which"),
        (lambda: Exponential(float("inf")), "Exponential: rate inf is not positive and finite"),
        (lambda: Bernoulli(float("nan")), "Bernoulli: logit nan is not finite"),
        (lambda: Dirichlet([[1.0, 2.0], [3.0, -4.0]]), r"concentration has -4 at \[1, 1\]"),
        (lambda: Wishart(0.9, jnp.eye(2)), "degrees 0.9 is not above 1"),
        (lambda: Wishart(3.0, INDEFINITE), "scale_inverse is not positive definite: its least eigenvalue is -1"),
        (lambda: Wishart(3.0, LOPSIDED), r"scale_inverse is not symmetric: 0.5 at \[0, 1\], 0.1 at \[1, 0\]"),
        (lambda: Wishart(3.0, jnp.ones((2, 3))), r"scale_inverse is of shape \(2, 3\), and no square matrix"),
        (lambda: NormalWishart(jnp.zeros(2), 0.0, 3.0, jnp.eye(2)), "count 0 is not positive"),
        (lambda: MatrixNormal(jnp.zeros((2, 2)), INDEFINITE, jnp.eye(2)), "row_precision is not positive definite"),
        (lambda: MultivariateNormal(jnp.zeros((3, 2)), jnp.eye(3)), r"mean is \(2,\) and the last two .* \(3, 3\)"),
        (lambda: MultivariateNormal(jnp.zeros(2), INDEFINITE), "precision is not positive definite"),
        (lambda: Gaussian(jnp.zeros(2), Diagonal(jnp.array([1.0, -2.0]))), r"precision has -2 at \[1\]"),
        (lambda: Gaussian({"w": jnp.zeros(1)}, Diagonal({"w": -jnp.ones(1)})), "precision of w has -1"),
        (lambda: Gaussian(jnp.zeros(2), Scalar(0.0)), "precision 0 is not positive"),
        (lambda: Gaussian(jnp.zeros(2), Dense(INDEFINITE)), "least eigenvalue is -1"),
        (lambda: Gaussian(jnp.zeros(2), Dense(LOPSIDED)), "not symmetric"),
        (lambda: Categorical.from_probabilities([0.5, 0.4]), "sum to 0.9 and not to one"),
        (lambda: Categorical.from_probabilities([1.5, -0.5]), "probability -0.5 is not positive"),
        (lambda: Mixture(jnp.zeros(3), Gaussian(jnp.zeros((2, 1)), Diagonal(jnp.ones((2, 1))))), "stack as many"),
    ],
)
def test_what_is_no_belief_is_refused(make, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@for_each(
    "natural, words",
    [
        (lambda: NaturalParameters((jnp.array(0.5), jnp.array(0.2)), (), Gamma), "rate -0.2"),
        (lambda: natural_step(Exponential(1.0).natural(), Exponential(1.0).natural(), 1.0), "rate -1"),
        (lambda: Gaussian(jnp.zeros(2), Scalar(2.0)).natural(), None),
        (lambda: jax.tree.map(jnp.negative, Gaussian(jnp.zeros(2), Scalar(2.0)).natural()), "precision -2"),
    ],
)
def test_a_step_out_of_the_domain_names_the_retraction(natural, words: str | None) -> None:
    if words is None:
        assert isinstance(natural().family(), Gaussian)
        return
    with pytest.raises(ValueError, match=f"outside the domain .*{words}.* q.retract"):
        natural().family()


@for_each(
    "values, of",
    [
        (jnp.array(1.2), Bernoulli),
        ((jnp.array(0.1), jnp.array(1.0)), Gamma),  # E log θ above log E θ
        (jnp.array([0.7, 0.6]), Categorical),
        (jnp.array(-1.0), Poisson),
        ((jnp.array(0.9), jnp.array(0.9)), VonMises),  # a mean direction longer than one
    ],
)
def test_expectations_that_no_belief_has_are_refused(values, of: type) -> None:
    with pytest.raises(ValueError, match=f"no {of.__name__} has these expectation parameters"):
        ExpectationParameters(values, (), of).family()


def test_tracers_are_not_checked() -> None:
    assert float(jax.jit(lambda rate: Exponential(rate).rate)(-1.0)) == -1.0
    assert float(jax.vmap(lambda s: Gaussian(jnp.zeros(1), Scalar(s)).precision.value)(-jnp.ones(1))[0]) == -1.0


def test_kl_of_two_families_is_refused() -> None:
    with pytest.raises(TypeError, match="divergence of a Exponential from a Poisson"):
        Exponential(1.0).kl(Poisson(0.0))


def test_a_belief_is_written_and_read() -> None:
    arrays: dict[str, np.ndarray] = {}
    belief = Gamma({"w": jnp.array([1.0, 2.0])}, 3.0)
    again = decode(encode(belief, arrays), arrays)
    assert type(again) is Gamma
    np.testing.assert_array_equal(again.rate["w"], belief.rate["w"])


def test_numbers_are_repeated_beside_trees_and_in_one_precision() -> None:
    belief = Beta({"a": np.ones((2, 3), np.float32), "b": np.float32(2.0)}, 1)
    assert jax.tree.map(jnp.shape, belief.beta) == {"a": (2, 3), "b": ()}
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(belief))


@record
class Rayleigh(ExponentialFamily):
    """A distance with T = θ², λ = −1 / (2 σ²), and h(θ) = θ, whose expectation is left out."""

    variance: Any

    domains: ClassVar = {"variance": Positive()}

    def to_natural(self) -> Any:
        return -0.5 / self.variance

    @classmethod
    def from_natural(cls, values: Any, given: Any) -> Any:
        del given
        return cls(-0.5 / values)

    @classmethod
    def partition(cls, values: Any, given: Any) -> Any:
        del given
        return -jnp.log(-2 * values)

    def statistics(self, theta: Any) -> Any:
        return theta**2

    def log_base_measure(self, theta: Any) -> Any:
        return jnp.log(theta)

    @property
    def mean(self) -> Any:
        return jnp.sqrt(jnp.pi * self.variance / 2)

    def sample(self, key: Any) -> Any:
        return jnp.sqrt(2 * self.variance * jax.random.exponential(key))


@record
class WholeRayleigh(Rayleigh):
    """The same with the expectation of log h, which is right or wrong."""

    wrong: float = static(default=0.0)

    def expected_log_base_measure(self) -> Any:
        return (jnp.log(2 * self.variance) - jnp.euler_gamma) / 2 + self.wrong


def test_an_entropy_needs_the_expectation_of_the_base_measure() -> None:
    """It was 2.386 in silence where 1 + log(σ / √2) + γ / 2 = 1.635 is exact."""
    np.testing.assert_allclose(Rayleigh(4.0).log_prob(3.0), stats.rayleigh(scale=2.0).logpdf(3.0), rtol=1e-6)
    with pytest.raises(
        NotImplementedError, match=r"Rayleigh defines log_base_measure and no expected_log_base_measure"
    ):
        Rayleigh(4.0).entropy()
    np.testing.assert_allclose(WholeRayleigh(4.0).entropy(), stats.rayleigh(scale=2.0).entropy(), rtol=1e-6)


def test_the_check_of_a_family_sees_a_base_measure_left_out() -> None:
    check_family(WholeRayleigh(4.0))
    for belief in (Rayleigh(4.0), WholeRayleigh(4.0, 0.2)):
        with pytest.raises(AssertionError, match="breaks 1 law:\n  entropy_is_the_expected_surprise"):
            check_family(belief)


def test_entropy_of_poisson_on_both_sides_of_its_series() -> None:
    for rate in (1e-3, 0.5, 99.0, 101.0, 3000.0):
        expected = stats.poisson(rate).entropy()
        np.testing.assert_allclose(Poisson(jnp.log(rate)).entropy(), expected, rtol=1e-8)


def test_shape_of_gamma_over_twelve_orders_of_magnitude() -> None:
    belief = Gamma(10.0 ** jnp.arange(-6.0, 7.0), 2.0)
    np.testing.assert_allclose(belief.expectation().family().shape, belief.shape, rtol=1e-7)


def test_newton_from_far() -> None:
    """Peaked, spiked and lopsided beliefs come back, as far as rounding lets them."""
    belief = Beta(jnp.array([1e-2, 0.1, 300.0, 1e4]), jnp.array([1e-2, 50.0, 1.0, 2e4]))
    again = belief.expectation().family()
    np.testing.assert_allclose(again.alpha, belief.alpha, rtol=1e-5)
    np.testing.assert_allclose(again.beta, belief.beta, rtol=1e-5)


def test_matrix_normal_given_the_other_side() -> None:
    """KL where both precisions differ, and the transposed belief, beside the Kronecker product."""
    rng = np.random.default_rng(0)
    root = lambda n: (a := rng.normal(size=(n, n))) @ a.T + np.eye(n)
    made = [MatrixNormal(rng.normal(size=(2, 3)), root(2), root(3)) for _ in range(2)]
    dense = [
        Gaussian(jnp.ravel(q.mean), Dense(jnp.asarray(np.kron(q.row_precision, q.column_precision)))) for q in made
    ]
    np.testing.assert_allclose(made[0].kl(made[1]), dense[0].kl(dense[1]), rtol=1e-10)
    np.testing.assert_allclose(made[0].transposed.entropy(), dense[0].entropy(), rtol=1e-10)
    np.testing.assert_allclose(made[0].transposed.log_prob(made[1].mean.T), dense[0].log_prob(jnp.ravel(made[1].mean)))


@pytest.mark.parametrize(
    "structure", [Scalar(1.5), Diagonal(jnp.array([1.5, 0.4])), Dense(jnp.array([[1.5, 0.3], [0.3, 0.4]]))]
)
def test_gaussian_has_what_the_base_class_has(structure) -> None:
    """T(θ) pairs with λ in the density, and the retraction is the improved rule's step in (m, S)."""
    q, theta = Gaussian(jnp.array([0.3, -1.0]), structure), jnp.array([1.0, 0.5])
    natural, T = q.natural(), q.statistics(theta)
    pairs = zip(jax.tree.leaves(natural.values), jax.tree.leaves(T), strict=True)
    inner = sum(jnp.sum(a * b) for a, b in pairs)
    np.testing.assert_allclose(inner - q.log_partition() - jnp.log(2 * jnp.pi), q.log_prob(theta), rtol=1e-12)
    np.testing.assert_allclose(q.expectation().natural().values[0], natural.values[0], rtol=1e-12)

    g, H = jnp.array([2.0, -1.0]), jax.tree.map(lambda leaf: -3.0 * leaf, structure)
    in_mu = (g - H.matvec(q.mean), H.scale(0.5))
    direction = jax.tree.map(lambda a, b: -(a + b), in_mu, natural.values)

    found, expected = q.retract(direction, 0.7), gaussian_step(q, g, H, 0.7, Retraction())
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_multivariate_normal_is_the_dense_gaussian() -> None:
    """Density, entropy, divergence and the retracted step, also in float32 far from zero."""
    S, P = jnp.array([[1.5, 0.3], [0.3, 0.4]]), jnp.array([[0.9, -0.2], [-0.2, 2.0]])
    m, away = jnp.array([0.3, -1.0]), jnp.array([0.1, 0.4])
    q, p = MultivariateNormal(m, S), MultivariateNormal(away, P)
    dense, other = Gaussian(m, Dense(S)), Gaussian(away, Dense(P))
    np.testing.assert_allclose(q.log_prob(away), dense.log_prob(away), rtol=1e-12)
    np.testing.assert_allclose(q.entropy(), dense.entropy(), rtol=1e-12)
    np.testing.assert_allclose(q.kl(p), dense.kl(other), rtol=1e-12)
    d = jnp.array([2.0, -1.0]), jnp.array([[3.0, 0.5], [0.5, 1.0]])
    bent, expected = q.retract(d, 0.7), dense.retract((d[0], Dense(d[1])), 0.7)
    np.testing.assert_allclose(bent.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(bent.precision, expected.precision.matrix, rtol=1e-12)
    far = MultivariateNormal(jnp.full(2, 300.0, jnp.float32), 1e4 * jnp.eye(2, dtype=jnp.float32))
    np.testing.assert_allclose(far.log_prob(far.mean), -np.log(2 * np.pi) + np.log(1e4), rtol=1e-6)


def test_product_sums_over_its_factors() -> None:
    rate, weights = Gamma(2.0, 3.0), Gaussian(jnp.zeros(2), Scalar(4.0))
    product, other = (
        Product({"rate": rate, "w": weights}),
        Product({"rate": Gamma(1.0, 1.0), "w": Gaussian(jnp.ones(2), Scalar(1.0))}),
    )
    theta = {"rate": jnp.array(0.5), "w": jnp.ones(2)}
    np.testing.assert_allclose(product.log_prob(theta), rate.log_prob(theta["rate"]) + weights.log_prob(theta["w"]))
    np.testing.assert_allclose(product.entropy(), rate.entropy() + weights.entropy())
    np.testing.assert_allclose(product.kl(other), rate.kl(other.factors["rate"]) + weights.kl(other.factors["w"]))
    assert product.natural()["rate"].of is Gamma
    assert float(product.expectation()["w"].values[1].value) == float(weights.expectation().values[1].value)
    with pytest.raises(TypeError, match="'held' is a Point, which has no entropy"):
        Product({"held": Point(jnp.zeros(1))}).entropy()
    with pytest.raises(ValueError, match="factors"):
        product.kl(Product({"w": weights}))


# A mixture in one dimension, beside SciPy.

PI, MEANS, PRECISIONS = np.array([0.2, 0.5, 0.3]), np.array([-2.0, 0.3, 2.5]), np.array([4.0, 1.0, 0.7])
MIXTURE = Mixture(jnp.log(PI) + 1.0, Gaussian(jnp.asarray(MEANS[:, None]), Diagonal(jnp.asarray(PRECISIONS[:, None]))))


def density(x: float) -> float:
    return float(PI @ stats.norm(MEANS, 1 / np.sqrt(PRECISIONS)).pdf(x))


def test_mixture_has_the_density_of_its_parts() -> None:
    assert MIXTURE.count == 3
    np.testing.assert_allclose(MIXTURE.weights, PI, rtol=1e-12)
    for x in (-1.0, 0.4):
        parts = PI * stats.norm(MEANS, 1 / np.sqrt(PRECISIONS)).pdf(x)
        np.testing.assert_allclose(MIXTURE.log_prob(jnp.array([x])), np.log(parts.sum()), rtol=1e-10)
        np.testing.assert_allclose(MIXTURE.responsibilities(jnp.array([x])), parts / parts.sum(), rtol=1e-10)
    assert not hasattr(MIXTURE, "mean")


def test_draws_of_a_mixture() -> None:
    """2,000 draws: mean and second moment within five standard errors; the first ones do not depend on the count."""
    draws = np.asarray(MIXTURE.draws(jax.random.key(1), 2000))[:, 0]
    first, second = PI @ MEANS, PI @ (MEANS**2 + 1 / PRECISIONS)
    assert abs(draws.mean() - first) < 5 * draws.std() / np.sqrt(2000)
    assert abs((draws**2).mean() - second) < 5 * (draws**2).std() / np.sqrt(2000)
    np.testing.assert_allclose(MIXTURE.draws(jax.random.key(1), 3)[:, 0], draws[:3], rtol=1e-12)


def test_mixture_is_a_minimal_conditional_exponential_family() -> None:
    r"""λ and μ and back; ∇_λ f is F ∇_μ f block by block, with the block-diagonal Fisher matrix of q(z, θ)."""
    natural, mu = MIXTURE.natural(), MIXTURE.expectation()
    assert isinstance(natural, NaturalMixture)
    assert isinstance(mu, ExpectationMixture)
    for again in (natural.family(), mu.family()):
        np.testing.assert_allclose(again.weights, PI, rtol=1e-12)
        np.testing.assert_allclose(again.components.mean[:, 0], MEANS, rtol=1e-12)
        np.testing.assert_allclose(again.components.precision.values[:, 0], PRECISIONS, rtol=1e-10)

    def joint_kl(other: Any) -> Any:
        parts = jax.vmap(lambda one, two: one.kl(two))(MIXTURE.components, other.components)
        weights = Categorical(MIXTURE.weights_logits).kl(Categorical(other.weights_logits))
        return weights + jnp.sum(MIXTURE.weights * parts)

    fisher = jax.hessian(lambda other: joint_kl(other.family()))(natural)
    blocks = np.asarray(fisher.weights.weights)
    np.testing.assert_allclose(blocks, np.diag(PI[:2]) - np.outer(PI[:2], PI[:2]), atol=1e-10)
    np.testing.assert_allclose(jax.tree.leaves(fisher.weights.components)[0], 0.0, atol=1e-10)
    np.testing.assert_allclose(
        fisher.components.values[0].components.values[0][0, 0, 0, 0], PI[0] / PRECISIONS[0], rtol=1e-9
    )
    np.testing.assert_allclose(fisher.components.values[0].components.values[0][0, 0, 1, 0], 0.0, atol=1e-10)

    third = lambda q: jnp.sum(q.weights * jnp.ravel(q.components.mean) ** 3)  # any function of the belief
    in_mu = jax.grad(lambda m: third(m.family()))(mu)
    of_weights = jax.grad(lambda m: third(replace(m.family(), components=MIXTURE.components)))(mu).weights
    in_natural = jax.grad(lambda n: third(n.family()))(natural)
    np.testing.assert_allclose(in_natural.weights, blocks @ of_weights, rtol=1e-8)
    own = fisher.components
    first = own.values[0].components.values[0][0, 0, 0, 0] * in_mu.components.values[0][0, 0]
    first += own.values[0].components.values[1].values[0, 0, 0, 0] * in_mu.components.values[1].values[0, 0]
    np.testing.assert_allclose(in_natural.components.values[0][0, 0], first, rtol=1e-8)


@pytest.mark.stress
def test_matrices_of_few_degrees_of_freedom_are_positive_in_single_precision() -> None:
    """As many as the dimension, as a component that no row needs has: 60 of these means were NaN."""
    one, eye = jnp.ones(2, jnp.float32), jnp.tile(jnp.eye(4, dtype=jnp.float32), (2, 1, 1))
    draws = NormalWishart(jnp.zeros((2, 4), jnp.float32), one, 4.0 * one, eye).draws(jax.random.key(0), 25_000)
    assert draws["mean"].dtype == jnp.float32
    assert np.isfinite(draws["mean"]).all()
    assert np.linalg.eigvalsh(np.asarray(draws["precision"], np.float64))[..., 0].min() > 0.0
    np.testing.assert_allclose(
        np.mean(draws["precision"], axis=(0, 1)), 4.0 * np.eye(4), atol=0.1
    )  # sd .013 off, .025 on


def test_the_program_of_a_wishart_does_not_grow_with_its_dimension() -> None:
    """A gamma function for each of p terms was compiled by itself: eight seconds a mixture of nine columns."""

    def gammas(p: int) -> int:
        belief = Wishart(jnp.asarray(p + 2.0), jnp.eye(p))
        program = jax.make_jaxpr(lambda belief: (belief.log_partition(), belief.expectation()))(belief)
        return str(program).count("lgamma") + str(program).count("digamma")

    assert gammas(2) == gammas(7) > 0
