"""Priors beside the laws: the arguments they refuse, precedence under JAX, saving, and odd trees."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lamu
from lamu.priors import Cauchy, FanIn, GeneralisedNormal, Independent, Laplace, Normal, Prior, StudentT
from lamu.record import decode, encode
from lamu.testing import check_prior
from tests.for_each import for_each

PARAMS = {"layer": {"bias": jnp.zeros(2), "kernel": jnp.ones((3, 2))}}


@pytest.mark.parametrize(
    "prior", [Normal(), Normal(2.0, 0.5), Normal({"*bias": 316.2, "*": 1.0}), Normal({"z*": 1.0, "a*": 2.0})]
)
def test_prior_is_one_and_survives_disk_and_jit(prior: Normal) -> None:
    assert isinstance(prior, Prior)
    arrays: dict[str, np.ndarray] = {}
    assert decode(encode(prior, arrays), arrays) == prior
    assert jax.jit(lambda whole: whole)(prior).patterns == prior.patterns


def test_scales_are_leaves_and_can_be_learned() -> None:
    evidence = jax.grad(lambda prior: prior.log_prob(PARAMS))(Normal({"*bias": 2.0, "*": 1.0}))
    np.testing.assert_allclose(evidence.scale[0], -2 / 2.0)
    np.testing.assert_allclose(evidence.scale[1], 0.0, atol=1e-12)
    assert jax.grad(lambda scale: Normal(scale).log_prob(PARAMS))(1.0) == -2.0


@for_each("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_scale_must_be_positive_and_finite(scale: float) -> None:
    with pytest.raises(ValueError, match=f"prior scale {scale} is not"):
        Normal(scale)
    with pytest.raises(ValueError, match=rf"prior scale {scale} is not .* for '\*bias'"):
        Normal({"*bias": scale, "*": 1.0})


def test_mappings_that_say_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        Normal({})
    with pytest.raises(ValueError, match=r"\(1.0, 2.0\) have no patterns"):
        Normal((1.0, 2.0))


def test_patterns_must_match_and_cover() -> None:
    with pytest.raises(ValueError, match=r"'\*baises' matches no leaf"):
        Normal({"*baises": 1.0, "*": 1.0}).check(PARAMS)
    with pytest.raises(ValueError, match="no pattern matches the leaf 'layer/kernel'"):
        Normal({"*bias": 1.0}).check(PARAMS)
    with pytest.raises(ValueError, match="no pattern matches the leaf 'layer/kernel'"):
        Normal({"*bias": 1.0}).gaussian(PARAMS)


def test_a_tree_without_leaves_has_density_one() -> None:
    assert Normal().log_prob({}) == 0.0
    assert Normal().sample(jax.random.key(0), {}) == {}
    assert Normal().gaussian({}).mean == {}


def test_float32_runs_without_x64() -> None:
    with jax.enable_x64(False):
        single = jax.tree.map(lambda x: x.astype(jnp.float32), PARAMS)
        assert Normal({"*bias": np.float64(3.0), "*": 1}).log_prob(single).dtype == jnp.float32


@pytest.mark.parametrize(
    "prior",
    [
        Cauchy({"*bias": FanIn(1.0), "*": 0.5}),
        GeneralisedNormal(FanIn(2.0), power=0.7),
        Laplace(0.3, loc=0.1),
        StudentT(0.5, df=1.5),
    ],
    ids=repr,
)
def test_heavy_tails_obey_the_laws_and_survive_disk(prior: Independent) -> None:
    """Also where moments do not exist: Stein's identities ask for none."""
    check_prior(prior)
    arrays: dict[str, np.ndarray] = {}
    assert decode(encode(prior, arrays), arrays) == prior
    assert prior.gaussian(PARAMS) is None


def test_cauchy_is_scipys_and_a_student_t_of_one_degree() -> None:
    weights = {"w": jnp.array([0.3, -2.0, 30.0])}
    expected = stats.cauchy(0.1, 0.5).logpdf(np.asarray(weights["w"])).sum()
    np.testing.assert_allclose(Cauchy(0.5, 0.1).log_prob(weights), expected, rtol=1e-12)
    np.testing.assert_allclose(StudentT(0.5, 0.1, df=1.0).log_prob(weights), expected, rtol=1e-12)


def test_a_student_t_is_a_scale_mixture_of_normals() -> None:
    r"""N(0, τ²) with τ² inverse-Gamma(ν/2, ν s²/2), by quadrature over τ²."""
    df, scale, theta = 4.0, 0.7, 1.3
    law = stats.invgamma(df / 2, scale=df * scale**2 / 2)
    u = (np.arange(200_000) + 0.5) / 200_000
    mixed = np.mean(stats.norm.pdf(theta, scale=np.sqrt(law.ppf(u))))
    np.testing.assert_allclose(StudentT(scale, df=df).log_prob({"w": jnp.array([theta])}), np.log(mixed), rtol=1e-5)


def test_fan_in_gives_outputs_of_one_variance_at_any_width() -> None:
    """400 draws of a layer: a variance of them has a standard error of 7 %, three of five errors."""
    x = jnp.ones((1, 50))
    found = []
    for width in (50, 400):
        params = {"kernel": jnp.zeros((50, width))}
        draws = jax.vmap(lambda key, p=params: x @ Normal(FanIn(1.5)).sample(key, p)["kernel"])(
            jax.random.split(jax.random.key(0), 400)
        )
        found.append(np.var(draws[:, 0, 0]))
    np.testing.assert_allclose(found, 1.5**2, rtol=0.36)


@for_each(
    "made, message",
    [
        (lambda: StudentT(df=0.0), "the degrees of freedom 0.0 is not positive and finite"),
        (lambda: GeneralisedNormal(power=-1.0), "the power -1.0 is not positive"),
        (lambda: FanIn(0.0), "the gain 0.0 is not positive"),
        (
            lambda: Laplace({"*bias": -1.0, "*": 1.0}),
            r"the prior scale -1.0 is not positive and finite; give a positive number for '\*bias'",
        ),
        (lambda: Cauchy({}), "the mapping of scales is empty"),
        (lambda: Laplace({"*nothing": 1.0, "*": 1.0}).check(PARAMS), "nothing"),
    ],
)
def test_what_cannot_be_a_prior_is_one_sentence(made, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made()


def test_a_network_under_heavy_tails_is_fitted() -> None:
    x, y = np.linspace(-1, 1, 20)[:, None], np.linspace(-1, 1, 20)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.3), StudentT({"*bias": 1.0, "*": FanIn()}))
    posterior = lamu.fit(model, (x, y), lamu.algorithms.laplace(), epochs=100).posterior
    np.testing.assert_allclose(posterior.predict(x).mean, y, atol=0.2)
    assert posterior.evidence is not None
