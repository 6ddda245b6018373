"""Densities with constraints: the Jacobian is ours, draws come back constrained, and mistakes say what to do."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lamu
from lamu.base.compile_once import lenient
from lamu.constraints import Constraints, TransformedBelief
from lamu.density import nothing, total
from lamu.families import Draws, Gaussian
from lamu.objective.curvature import Hessian
from lamu.operators import Scalar

POSITIVE = {"sigma": "positive"}
THETA = {
    "mu": jnp.array(0.3),
    "sigma": jnp.array([0.5, 2.0]),
    "rate": jnp.array(0.2),
    "weights": jnp.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]),
    "cuts": jnp.array([-1.0, 0.5, 0.7]),
    "low": jnp.array(-0.5),
    "above": jnp.array(4.0),
    "below": jnp.array(-7.0),
}
TABLE = {
    "sigma": "positive",
    "rate": "unit_interval",
    "weights": "simplex",
    "cuts": "ordered",
    "low": (-1.0, 3.0),
    "above": (2.0, np.inf),
    "below": (-np.inf, 1.0),
}


def gamma_and_normal(theta):
    """sigma ~ Gamma(4, 2): mean 2 and variance 1; mu ~ N(1, 1)."""
    return {"mu": -0.5 * (theta["mu"] - 1.0) ** 2, "sigma": 3.0 * jnp.log(theta["sigma"]) - 2.0 * theta["sigma"]}


DENSITY = lamu.LogDensity(gamma_and_normal, {"mu": 0.0, "sigma": 1.0}, POSITIVE)


def test_constraints_are_kept_and_undone() -> None:
    constraints = Constraints.of(TABLE, THETA)
    real = constraints.unconstrain(THETA)
    assert real["weights"].shape == (2, 2), "a simplex has one coordinate less"
    theta, _ = constraints.constrain(real)
    for name, leaf in THETA.items():
        np.testing.assert_allclose(theta[name], leaf, rtol=1e-9, err_msg=name)
    # Anywhere else they hold too.
    elsewhere, _ = constraints.constrain(jax.tree.map(lambda leaf: 1.7 * leaf - 0.4, real))
    Constraints.of(TABLE, elsewhere)


@pytest.mark.parametrize("name", TABLE)
def test_the_volume_is_the_determinant_of_the_map(name: str) -> None:
    """By automatic differentiation, in the coordinates that are free."""
    constraints = Constraints.of({name: TABLE[name]}, {name: THETA[name]})
    real = constraints.unconstrain({name: THETA[name]})[name]

    def free(u):
        theta = constraints.constrain({name: u.reshape(real.shape)})[0][name]
        return (theta[..., :-1] if name == "weights" else theta).reshape(-1)

    _, expected = jnp.linalg.slogdet(jax.jacobian(free)(real.reshape(-1)))
    np.testing.assert_allclose(constraints.constrain({name: real})[1], expected, rtol=1e-9)


def test_numpyros_constraints_are_taken() -> None:
    from numpyro.distributions import constraints as known

    start = {"cov": jnp.eye(2), "scale": jnp.array(2.0)}
    made = Constraints.of({"cov": known.positive_definite, "scale": known.softplus_positive}, start)
    assert made == Constraints.of({"cov": known.positive_definite, "scale": known.softplus_positive}, start)
    assert hash(made) == hash(made)
    real = made.unconstrain(start)
    assert real["cov"].shape == (3,)
    np.testing.assert_allclose(made.constrain(real)[0]["cov"], np.eye(2), atol=1e-9)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_draws_come_back_constrained_with_the_moments_of_the_density(temperature: float) -> None:
    """At T the density to the power 1/T, without its Jacobian: Gamma(3/T + 1, 2/T). Held to 4.5 standard errors.

    Four numbers and two temperatures: a false alarm with probability 6e-5; the seed is fixed.
    """
    import arviz

    sampler = lamu.mcmc.hmc(chains=4, warmup=320, draws=512)
    posterior = lamu.fit(DENSITY, None, sampler, seed=2, temperature=temperature).posterior
    sigma, mu = (np.asarray(posterior.samples["network"][name]) for name in ("sigma", "mu"))
    assert sigma.shape == (4, 512)
    shape, rate = 3.0 / temperature + 1.0, 2.0 / temperature
    for values, expected in (
        (sigma, shape / rate),
        ((sigma - shape / rate) ** 2, shape / rate**2),
        (mu, 1.0),
        ((mu - 1.0) ** 2, temperature),
    ):
        error = values.std() / float(arviz.ess(values)) ** 0.5
        assert abs(values.mean() - expected) < 4.5 * error
    drawn = posterior.sample(jax.random.key(0), 7)["network"]["sigma"]
    assert np.isin(np.asarray(drawn), sigma).all()
    # The model of the posterior is the density in the space of its draws.
    params = jax.tree.map(lambda leaf: leaf[0, 0], posterior.samples)
    value, _ = posterior.model.log_likelihood(params, {}, lamu.data.Batch.of(*nothing()))
    assert float(value[0]) == pytest.approx(float(total(gamma_and_normal(params["network"]))))
    assert posterior.model.constrained(posterior) is posterior


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (lamu.algorithms.laplace(lamu.algorithms.map_estimate(optax.lbfgs()), curvature=Hessian()), {"steps": 30}),
        pytest.param(
            lamu.algorithms.von(1.0, expectation=lamu.expectations.Delta()), {"steps": 30}, marks=pytest.mark.stress
        ),
        pytest.param(lamu.algorithms.newton(), {"steps": 30}, marks=pytest.mark.stress),
    ],
    ids=["laplace", "von", "newton"],
)
def test_gaussian_beliefs_are_about_the_real_numbers_and_come_back_as_images(algorithm, options) -> None:
    """In log sigma the mode is log 2 and the curvature 4, since the Jacobian counts: sigma is log-normal there."""
    posterior = lamu.fit(DENSITY, None, algorithm, **options).posterior
    belief = posterior.belief.factors["network"]
    assert isinstance(belief, TransformedBelief)
    np.testing.assert_allclose(belief.base.mean["sigma"], np.log(2.0), atol=1e-5)
    precision = belief.base.precision.dense(belief.base.mean)
    np.testing.assert_allclose(precision, np.diag([1.0, 4.0]), atol=1e-4)
    mean = posterior.mean["network"]
    assert float(mean["mu"]) == pytest.approx(1.0, abs=1e-5)  # exactly, and not by draws
    assert float(mean["sigma"]) == pytest.approx(2.0 * np.exp(0.125), rel=0.05)
    assert bool((posterior.sample(jax.random.key(1), 50)["network"]["sigma"] > 0).all())


def test_an_image_has_the_density_of_its_draws() -> None:
    """A log-normal, beside SciPy's."""
    from scipy import stats

    real = Gaussian({"sigma": jnp.array(0.3)}, Scalar(4.0))
    image = TransformedBelief(real, Constraints.of(POSITIVE, {"sigma": jnp.array(1.0)}))
    expected = stats.lognorm(s=0.5, scale=np.exp(0.3)).logpdf(1.7)
    assert float(image.log_prob({"sigma": jnp.array(1.7)})) == pytest.approx(expected)
    assert image.draws(jax.random.key(0), 5)["sigma"].shape == (5,)
    assert image.kind == real.kind


def test_recipes_that_need_a_gaussian_prior_say_so() -> None:
    for algorithm in (lamu.algorithms.vogn(0.1), lamu.algorithms.slang(0.1)):
        with pytest.raises(TypeError, match="Gaussian prior"):
            lamu.fit(DENSITY, None, algorithm, steps=1)
    with pytest.raises(TypeError, match=r"Hessian"):
        lamu.fit(DENSITY, None, lamu.algorithms.laplace(), steps=1)


def test_a_start_may_be_drawn_and_continued() -> None:
    drawn = lamu.LogDensity(
        gamma_and_normal, lambda key: {"mu": 0.0, "sigma": jnp.exp(jax.random.normal(key, ()))}, POSITIVE
    )
    batch = lamu.data.Batch.of(*nothing())
    starts = [drawn.init(jax.random.key(i), batch)[0]["network"]["sigma"] for i in range(2)]
    assert starts[0] != starts[1]
    sampler = lamu.mcmc.random_walk(chains=3, warmup=0, draws=20, step_size=1e-6)
    samples = {"network": {"mu": jnp.zeros((1, 1)), "sigma": jnp.full((1, 1), 3.0)}, "likelihood": {}}
    first = lamu.fit(DENSITY, None, sampler).posterior
    earlier = type(first)(first.model, Draws(samples), {}, first.rule, first.key)
    later = lamu.fit(DENSITY, None, lamu.mcmc.random_walk(3, 0, 20, step_size=1e-6, start=earlier)).posterior
    np.testing.assert_allclose(later.samples["network"]["sigma"], 3.0, atol=1e-3)
    point = {"network": {"mu": jnp.array(0.0), "sigma": jnp.array(2.5)}, "likelihood": {}}
    later = lamu.fit(DENSITY, None, lamu.mcmc.random_walk(3, 0, 20, step_size=1e-6, start=point)).posterior
    np.testing.assert_allclose(later.samples["network"]["sigma"], 2.5, atol=1e-3)


def test_mistakes_say_what_to_do() -> None:
    theta = {"mu": 0.0, "sigma": 1.0}
    for constraints, error, words in (
        ({"sgima": "positive"}, ValueError, "matches no leaf; the leaves are mu, sigma"),
        ({"sigma": "negative"}, ValueError, "'negative' of 'sigma' is not known; there are real, positive"),
        ({"sigma": (2.0, 1.0)}, ValueError, "is empty"),
        ({"sigma": 3}, TypeError, "neither a name"),
        ("positive", TypeError, "not a mapping"),
        ({"mu": "positive"}, ValueError, r"init has 0.0 at 'mu', which is not Positive"),
        ({"sigma": (2.0, 3.0)}, ValueError, r"init has 1.0 at 'sigma'.*lower_bound 2.0"),
    ):
        with pytest.raises(error, match=words):
            lamu.LogDensity(gamma_and_normal, theta, constraints)
    with pytest.raises(ValueError, match="not finite at init: sigma is nan"):
        lamu.LogDensity(gamma_and_normal, {"mu": 0.0, "sigma": -1.0})
    with pytest.raises(ValueError, match="not finite at init: log_density is -inf"):
        lamu.LogDensity(lambda theta: jnp.log(theta), 0.0)
    with pytest.raises(TypeError, match=r"returns .*\(2,\)"):
        lamu.LogDensity(lambda theta: theta, jnp.ones(2))


def test_terms_are_summed_in_the_widest_dtype() -> None:
    with lenient():
        assert total({"a": jnp.float32(1.0), "b": jnp.float64(2.0)}).dtype == jnp.float64
    assert float(total(jnp.ones((1, 1)))) == 1.0


def test_what_is_frozen_stays_in_a_samplers_density() -> None:
    """Of the density of σ and μ with σ held the draws of μ are normal about one, held to 4.5 standard errors."""
    import arviz

    held = DENSITY.freeze(DENSITY.init(jax.random.key(0), lamu.data.Batch.of(*nothing()))[0], "sigma")
    posterior = lamu.fit(held, None, lamu.mcmc.hmc(chains=4, warmup=320, draws=512), seed=2).posterior
    mu = np.asarray(posterior.samples["network"]["mu"])
    for values, expected in ((mu, 1.0), ((mu - 1.0) ** 2, 1.0)):
        assert abs(values.mean() - expected) < 4.5 * values.std() / float(arviz.ess(values)) ** 0.5
    stochastic = lamu.mcmc.sghmc(0.1, chains=2, warmup=10, draws=10, thinning=1)
    assert np.isfinite(lamu.fit(held, None, stochastic, temperature=0.5).posterior.samples["network"]["mu"]).all()
