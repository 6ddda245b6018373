"""Laws of priors: normalised, a density by SciPy's account, and honest about their mean, precision and draws.

A row's extras: `scales` and `loc`, a tree and a number that say what standard deviations and means should be; where
it is no normal prior (its traits lack "gaussian"), `logpdf` and `kurtosis` of one weight.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from scipy.special import gamma

from lamu import tree
from lamu.families import Gaussian
from lamu.objective import NonGaussian
from lamu.operators import Dense, Diagonal
from lamu.priors import (
    Belief,
    ByPath,
    ConditionalPrior,
    Discrete,
    FanIn,
    GeneralisedNormal,
    IndependentLeaves,
    Laplace,
    LayerwiseNormal,
    LearnedNormal,
    Normal,
    ScaleMixture,
    SpikeAndSlab,
    StudentT,
    gaussian_belief,
    independent_normal,
)
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("priors", "any belief discrete gaussian mixed patterned")

PARAMS = {
    "layers": [
        {"bias": jnp.array([0.3, -1.2]), "kernel": jnp.array([[0.1, 2.0], [-0.7, 0.4]])},
        {"bias": jnp.array(0.5), "kernel": jnp.array([1.5])},
    ]
}


def scales(bias: float, kernel: float) -> Any:
    return tree.map_with_path(lambda path, _: bias if path.endswith("bias") else kernel, PARAMS)


standard = row("priors", "Normal", Normal(), "any gaussian", loc=0.0, scales=scales(1.0, 1.0))
learned = row("priors", "LearnedNormal", LearnedNormal(0.7), "any gaussian", loc=0.0, scales=scales(0.7, 0.7))
shifted = row("priors", "Normal shifted", Normal(2.5, loc=0.3), "any gaussian", loc=0.3, scales=scales(2.5, 2.5))
patterned = row(
    "priors",
    "Normal by pattern",
    Normal({"*bias": 3.0, "*": 0.5}),
    "any gaussian patterned",
    loc=0.0,
    scales=scales(3.0, 0.5),
)
uneven = {"layers": [0.5, {"bias": 3.0, "kernel": jnp.array([0.7])}]}  # a layer, a leaf, a weight
layerwise = row(
    "priors",
    "LayerwiseNormal",
    LayerwiseNormal(uneven, loc=0.3),
    "gaussian",
    loc=0.3,
    scales={"layers": [{"bias": 0.5, "kernel": 0.5}, {"bias": 3.0, "kernel": 0.7}]},
)
row("priors", "LayerwiseNormal of one width", LayerwiseNormal(0.7), "any gaussian", loc=0.0, scales=scales(0.7, 0.7))
there = jax.tree.map(lambda x: jnp.full_like(x, 0.3), PARAMS)
narrow = jax.tree.map(lambda x, s: jnp.full_like(x, s**-2.0), PARAMS, scales(3.0, 0.5))
diagonal = row(
    "priors", "Belief", Belief(Gaussian(there, Diagonal(narrow))), "belief gaussian", loc=0.3, scales=scales(3.0, 0.5)
)

by_path = row(
    "priors",
    "ByPath",
    ByPath({"*bias": Normal(3.0), "*": LayerwiseNormal(0.5)}),
    "any gaussian",
    loc=0.0,
    scales=scales(3.0, 0.5),
)

WIDE, NARROW = stats.norm(scale=2.0), stats.norm(scale=0.5)
mixture = row(
    "priors",
    "ScaleMixture",
    ScaleMixture(weight=0.3, wide=2.0, narrow=0.5),
    "any",
    loc=0.0,
    scales=scales((0.3 * 4.0 + 0.7 * 0.25) ** 0.5, (0.3 * 4.0 + 0.7 * 0.25) ** 0.5),
    logpdf=lambda x: np.log(0.3 * WIDE.pdf(x) + 0.7 * NARROW.pdf(x)),
    kurtosis=3 * (0.3 * 16.0 + 0.7 * 0.0625) / (0.3 * 4.0 + 0.7 * 0.25) ** 2,
)
slab = row(
    "priors",
    "SpikeAndSlab",
    SpikeAndSlab({"*bias": 2.0, "*": 0.5}, share=0.3, spike=0.25),
    "any patterned",
    loc=0.0,
    scales=scales(2.0 * (0.3 + 0.7 / 16) ** 0.5, 0.5 * (0.3 + 0.7 / 16) ** 0.5),
    widths=scales(2.0, 0.5),
    standardised=lambda z: np.log(0.3 * stats.norm.pdf(z) + 0.7 * stats.norm.pdf(z, scale=0.25)),
    kurtosis=3 * (0.3 + 0.7 / 256) / (0.3 + 0.7 / 16) ** 2,
)
discrete = row(
    "priors",
    "Discrete",
    Discrete(0.8),
    "discrete",
    loc=0.6,
    scales=scales(0.8, 0.8),
    logpdf=lambda x: np.full(np.shape(x), -np.inf),
    kurtosis=(1 - 3 * 0.16) / 0.16,
)

mixed = row(
    "priors",
    "ByPath of two kinds",
    ByPath({"*bias": Laplace(1.5), "*": Normal(0.5)}),
    "mixed",
    loc=0.0,
    scales=scales(1.5 * 2**0.5, 0.5),
    leaf_logpdf=lambda path, x: (stats.laplace(scale=1.5) if path.endswith("bias") else stats.norm(scale=0.5)).logpdf(
        x
    ),
    kurtosis=6.0,
)
laplace = row(
    "priors",
    "Laplace",
    Laplace(0.6),
    loc=0.0,
    scales=scales(0.6 * 2**0.5, 0.6 * 2**0.5),
    logpdf=stats.laplace(scale=0.6).logpdf,
    kurtosis=6.0,
)
student = row(
    "priors",
    "StudentT",
    StudentT({"*bias": 0.8, "*": 0.4}, df=9.0),
    "patterned",
    loc=0.0,
    scales=scales(0.8 * (9 / 7) ** 0.5, 0.4 * (9 / 7) ** 0.5),
    standardised=stats.t(9.0).logpdf,
    widths=scales(0.8, 0.4),
    kurtosis=4.2,
)
sharp = row(
    "priors",
    "GeneralisedNormal",
    GeneralisedNormal(0.7, power=1.5),
    loc=0.0,
    scales=scales(0.7 / gamma(2 / 3) ** 0.5, 0.7 / gamma(2 / 3) ** 0.5),
    logpdf=stats.gennorm(1.5, scale=0.7).logpdf,
    kurtosis=gamma(10 / 3) * gamma(2 / 3),
)
fan_in = row(
    "priors",
    "Normal by fan-in",
    Normal(FanIn(1.4, bias=0.5)),
    "gaussian",
    loc=0.0,
    scales={"layers": [{"bias": 0.5, "kernel": 1.4 / 2**0.5}, {"bias": 0.5, "kernel": 0.5}]},
)


def is_none(node: Any) -> bool:
    return node is None


def pairs(*trees: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(jax.tree.leaves(a) for a in trees), strict=True))


@law("priors")
def density_is_scipys(row: Row) -> None:
    density, standardised = row.extras.get("logpdf"), row.extras.get("standardised")
    if (of_leaf := row.extras.get("leaf_logpdf")) is not None:
        parts = jax.tree.leaves(tree.map_with_path(lambda path, x: of_leaf(path, np.asarray(x)), PARAMS))
    elif standardised is not None:
        parts = [standardised(x / s) - np.log(s) for x, s in pairs(PARAMS, row.extras["widths"])]
    elif density is not None:
        parts = [density(x) for x in jax.tree.leaves(PARAMS)]
    else:
        parts = [stats.norm.logpdf(x, row.extras["loc"], s) for x, s in pairs(PARAMS, row.extras["scales"])]
    expected = sum(part.sum() for part in parts)
    found = row.subject.log_prob(PARAMS)
    assert found.shape == ()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@law("priors", when="any")
def density_integrates_to_one(row: Row) -> None:
    """Over a plane of one bias and one kernel weight; the trapezoidal rule is exact to rounding for such densities.

    For priors of any parameters, also of such a small tree.
    """
    half, points = 10.0, 401
    grids = [
        s * np.linspace(-half, half, points) + row.extras["loc"]
        for s in (row.extras["scales"]["layers"][0][k] for k in ("bias", "kernel"))
    ]
    plane = np.stack(np.meshgrid(*grids, indexing="ij"), axis=-1).reshape(-1, 2)
    density = jax.vmap(lambda w: jnp.exp(row.subject.log_prob({"bias": w[0], "kernel": w[1]})))(jnp.asarray(plane))
    volume = np.prod([grid[1] - grid[0] for grid in grids])
    np.testing.assert_allclose(np.sum(density) * volume, 1.0, rtol=1e-8)


@law("priors", when="gaussian")
def gaussian_is_the_gradient_and_curvature(row: Row) -> None:
    """At the mean the gradient vanishes, and everywhere the Hessian of −log p is the diagonal of the precisions."""
    known = row.subject.gaussian(PARAMS)
    mean, precision = known.mean, known.precision.diagonal(PARAMS)
    assert jax.tree.map(jnp.shape, mean) == jax.tree.map(jnp.shape, precision) == jax.tree.map(jnp.shape, PARAMS)
    theta, unravel = tree.ravel(PARAMS)
    surprise = lambda vector: -row.subject.log_prob(unravel(vector))
    flat_mean, flat_precision = tree.ravel(mean)[0], tree.ravel(precision)[0]
    np.testing.assert_allclose(jax.grad(surprise)(theta), flat_precision * (theta - flat_mean), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(jax.hessian(surprise)(theta), jnp.diag(flat_precision), rtol=1e-10, atol=1e-12)


@law("priors", when="mixed")
def gaussian_leaves_and_the_rest_are_the_density(row: Row) -> None:
    """The pull of the Gaussian leaves and the gradient of what is left are together that of the density."""
    known, left = row.subject.gaussian(PARAMS), NonGaussian(row.subject)
    ours = jax.tree.map(lambda mean, x: None if mean is None else x, known.mean, PARAMS, is_leaf=is_none)
    pull = known.precision.matvec(tree.add(known.mean, ours, -1.0))
    rest = jax.grad(left.log_prob)(PARAMS)
    for path, found in zip(tree.paths(PARAMS), jax.tree.leaves(rest), strict=True):
        assert path.endswith("bias") or not np.any(found), "a Gaussian leaf has no gradient beside its pull"
    total = jax.tree.map(lambda g, p: g if p is None else g + p, rest, pull)
    for found, expected in pairs(total, jax.grad(row.subject.log_prob)(PARAMS)):
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    np.testing.assert_allclose(left.log_prob(PARAMS) + known.log_prob(ours), row.subject.log_prob(PARAMS), rtol=1e-12)


@law("priors", when="mixed")
def frozen_leaves_condition(row: Row) -> None:
    """Given a frozen leaf the gradient in the others is that of the complete tree; independent leaves forget it."""
    frozen = {"layers": [{"bias": PARAMS["layers"][0]["bias"], "kernel": None}, {"bias": None, "kernel": None}]}
    free = jax.tree.map(lambda x, held: x if held is None else None, PARAMS, frozen, is_leaf=is_none)
    given = row.subject.given(frozen)
    for prior in (given, ConditionalPrior(row.subject, frozen)):
        whole = jax.tree.map(
            lambda x, slope: None if x is None else slope, free, jax.grad(row.subject.log_prob)(PARAMS), is_leaf=is_none
        )
        for found, expected in pairs(jax.grad(prior.log_prob)(free), whole):
            np.testing.assert_allclose(found, expected, rtol=1e-12)
    independent = Normal(0.5)
    assert isinstance(independent, IndependentLeaves)
    assert independent.given(frozen) is independent


@law("priors", when="discrete")
def mass_is_scipys(row: Row) -> None:
    """At the signs of the parameters; the belief that it is has the same mass, and its probability of +1."""
    signs, pi = jax.tree.map(jnp.sign, PARAMS), 0.8
    expected = sum(stats.bernoulli.logpmf((np.asarray(x) > 0).astype(int), pi).sum() for x in jax.tree.leaves(signs))
    belief = row.subject.exponential(PARAMS)
    np.testing.assert_allclose(row.subject.log_prob(signs), expected, rtol=1e-12)
    np.testing.assert_allclose(belief.log_prob(signs), expected, rtol=1e-12)
    for mean in jax.tree.leaves(belief.mean):
        np.testing.assert_allclose(mean, 2 * pi - 1, rtol=1e-12)


@law("priors", when="belief")
def a_dense_belief_is_its_gaussian(row: Row) -> None:
    """With weights that are not independent: the density, and its Hessian, are the operator's."""
    vector, unravel = tree.ravel(PARAMS)
    root = np.tril(np.random.default_rng(1).normal(size=(vector.size, vector.size))) + 3 * np.eye(vector.size)
    gaussian = Gaussian(row.subject.belief.mean, Dense(jnp.asarray(root @ root.T)))
    prior = type(row.subject)(gaussian)
    assert independent_normal(prior, PARAMS) is None
    np.testing.assert_allclose(prior.log_prob(PARAMS), gaussian.log_prob(PARAMS), rtol=1e-12)
    known = gaussian_belief(prior, PARAMS)
    hessian = jax.hessian(lambda theta: -prior.log_prob(unravel(theta)))(vector)
    np.testing.assert_allclose(hessian, known.precision.matrix, rtol=1e-9, atol=1e-9)


@law("priors")
def sample_has_the_moments(row: Row) -> None:
    """Moments of n draws within five standard errors: 77 numbers, a false alarm with probability 5e-5."""
    n, tails = 20_000, row.extras.get("kurtosis", 3.0) - 1.0
    draws = jax.vmap(lambda key: row.subject.sample(key, PARAMS))(jax.random.split(jax.random.key(7), n))
    for draw, x, s in pairs(draws, PARAMS, row.extras["scales"]):
        assert draw.shape == (n, *x.shape)
        assert draw.dtype == x.dtype
        assert np.all(np.abs(np.mean(draw, axis=0) - row.extras["loc"]) < 5.0 * s / np.sqrt(n))
        assert np.all(np.abs(np.var(draw, axis=0) - s**2) < 5.0 * s**2 * np.sqrt(tails / n))
    flat = np.concatenate([np.reshape(draw, (n, -1)) for draw in jax.tree.leaves(draws)], axis=1)
    correlation = np.corrcoef(flat.T) - np.eye(flat.shape[1])
    assert np.all(np.abs(correlation) < 5.0 / np.sqrt(n)), "weights are drawn independently"


@law("priors", when="patterned")
def first_pattern_counts(row: Row) -> None:
    """Also after JAX has taken the prior apart and put it together."""
    rebuilt = jax.tree.map(lambda leaf: leaf, row.subject)
    for prior in (row.subject, rebuilt):
        for found, s in pairs(prior.scales(PARAMS), row.extras.get("widths", row.extras["scales"])):
            np.testing.assert_allclose(found, s, rtol=1e-12)


@law("priors")
def float32_beside_float64(row: Row) -> None:
    single = jax.tree.map(lambda x: x.astype(jnp.float32), PARAMS)
    found = row.subject.log_prob(single)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, row.subject.log_prob(PARAMS), rtol=1e-5)
    for a in (row.subject.gaussian(single), row.subject.sample(jax.random.key(1), single)):
        assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(a))


@law("priors")
def jit_and_vmap_change_nothing(row: Row) -> None:
    np.testing.assert_allclose(jax.jit(row.subject.log_prob)(PARAMS), row.subject.log_prob(PARAMS), rtol=1e-12)
    factors = jnp.array([0.5, 1.0, -2.0])
    many = jax.tree.map(lambda x: jnp.multiply.outer(factors, x), PARAMS)
    each = jnp.stack([row.subject.log_prob(tree.scale(PARAMS, factor)) for factor in factors])
    np.testing.assert_allclose(jax.vmap(row.subject.log_prob)(many), each, rtol=1e-12)


def twin_of(of: Row, fault: str, laws: str, **methods: Any) -> None:
    whole = {name: getattr(of.subject, name) for name in ("log_prob", "gaussian", "given", "sample")}
    twin(of, fault, laws, SimpleNamespace(**{**whole, **methods}))


class Halved(Belief):
    """A belief whose distance from the mean counts half."""

    def log_prob(self, params: Any) -> Any:
        return (self.peak + super().log_prob(params)) / 2


twin(
    diagonal,
    "half the precision",
    "a_dense_belief_is_its_gaussian density_is_scipys gaussian_is_the_gradient_and_curvature",
    Halved(diagonal.subject.belief),
)
twin(
    by_path,
    "patterns exchanged",
    "density_is_scipys sample_has_the_moments",
    ByPath({"*bias": LayerwiseNormal(0.5), "*": Normal(3.0)}),
)
prior = shifted.subject
twin_of(
    shifted,
    "sign",
    "density_is_scipys density_integrates_to_one gaussian_is_the_gradient_and_curvature",
    log_prob=lambda p: -prior.log_prob(p),
)
twin_of(
    shifted,
    "unnormalised",
    "density_is_scipys density_integrates_to_one",
    log_prob=lambda p: prior.log_prob(p) + 0.5 * tree.dimension(p) * jnp.log(2.0 * jnp.pi),
)
twin_of(
    shifted,
    "variance for standard deviation",
    "density_is_scipys gaussian_is_the_gradient_and_curvature",
    log_prob=Normal(2.5**2, loc=0.3).log_prob,
)
twin_of(
    shifted,
    "precision without the square",
    "gaussian_is_the_gradient_and_curvature",
    gaussian=lambda p: Gaussian(prior.gaussian(p).mean, jax.tree.map(jnp.sqrt, prior.gaussian(p).precision)),
)
twin_of(
    shifted,
    "mean dropped",
    "gaussian_is_the_gradient_and_curvature",
    gaussian=lambda p: Gaussian(tree.zeros_like(p), prior.gaussian(p).precision),
)
twin_of(shifted, "draws with variance for scale", "sample_has_the_moments", sample=Normal(2.5**2, loc=0.3).sample)
twin_of(shifted, "draws without the mean", "sample_has_the_moments", sample=Normal(2.5).sample)
twin_of(
    shifted,
    "one key for every leaf",
    "sample_has_the_moments",
    sample=lambda key, p: jax.tree.map(
        lambda x: 0.3 + 2.5 * jax.random.normal(jax.random.clone(key), x.shape, x.dtype), p
    ),
)
twin(patterned, "patterns sorted", "first_pattern_counts density_is_scipys", Normal({"*": 0.5, "*bias": 3.0}))
twin(
    layerwise,
    "the first layer's width for all",
    "density_is_scipys sample_has_the_moments",
    LayerwiseNormal(0.5, loc=0.3),
)
twin_of(
    standard,
    "float64 always",
    "float32_beside_float64",
    log_prob=lambda p: standard.subject.log_prob(jax.tree.map(lambda x: x.astype(jnp.float64), p)),
)
twin_of(
    standard,
    "another value where traced",
    "jit_and_vmap_change_nothing",
    log_prob=lambda p: (
        standard.subject.log_prob(p) * (1.0 if isinstance(p["layers"][0]["bias"], jax.core.Tracer) else 1.001)
    ),
)
twin(
    mixture,
    "shares exchanged",
    "density_is_scipys sample_has_the_moments",
    ScaleMixture(weight=0.7, wide=2.0, narrow=0.5),
)
twin(
    slab,
    "the spike's deviation for its share of the slab's",
    "density_is_scipys sample_has_the_moments",
    SpikeAndSlab({"*bias": 2.0, "*": 0.5}, share=0.3, spike=0.5),
)
twin(
    slab,
    "shares exchanged",
    "density_is_scipys sample_has_the_moments",
    SpikeAndSlab({"*bias": 2.0, "*": 0.5}, share=0.7, spike=0.25),
)
twin(
    slab,
    "patterns sorted",
    "density_is_scipys first_pattern_counts sample_has_the_moments",
    SpikeAndSlab({"*": 0.5, "*bias": 2.0}, share=0.3, spike=0.25),
)


class Claiming(ByPath):
    """A prior that says of every leaf that it is Gaussian."""

    def gaussian(self, params: Any) -> Any:
        return Normal(0.5).gaussian(params)


class Forgetful(ByPath):
    """A prior that is another one where leaves are frozen."""

    def given(self, frozen: Any) -> Any:
        return Normal(0.4)


twin(
    mixed,
    "a Gaussian claimed where there is none",
    "gaussian_leaves_and_the_rest_are_the_density",
    Claiming(mixed.subject.priors, mixed.subject.patterns),
)
twin(
    mixed,
    "frozen leaves change the others",
    "frozen_leaves_condition",
    Forgetful(mixed.subject.priors, mixed.subject.patterns),
)
twin(discrete, "the probability of -1", "mass_is_scipys sample_has_the_moments", Discrete(0.2))
twin(
    discrete,
    "half of the logit for the logit",
    "mass_is_scipys sample_has_the_moments",
    Discrete(float(1 / (1 + (0.2 / 0.8) ** 0.5))),
)
twin(student, "patterns sorted", "density_is_scipys first_pattern_counts", StudentT({"*": 0.4, "*bias": 0.8}, df=9.0))
twin(
    student,
    "the standard deviation for the scale",
    "density_is_scipys",
    StudentT({"*bias": 0.907, "*": 0.4536}, df=9.0),
)
twin_of(
    laplace,
    "missing Jacobian of the scale",
    "density_is_scipys",
    log_prob=lambda p: Laplace(1.0).log_prob(tree.scale(p, 1 / 0.6)),
)
twin_of(laplace, "draws of the standard deviation", "sample_has_the_moments", sample=Laplace(0.6 / 2**0.5).sample)
twin_of(sharp, "draws without the root", "sample_has_the_moments", sample=GeneralisedNormal(0.7, power=1.0).sample)
twin(fan_in, "fan-out for fan-in", "density_is_scipys", Normal({"layers/0/kernel": 1.4, "*": 0.5}))
twin_of(
    mixture,
    "the two components' densities multiplied",
    "density_is_scipys density_integrates_to_one",
    log_prob=lambda p: 0.3 * Normal(2.0).log_prob(p) + 0.7 * Normal(0.5).log_prob(p),
)
