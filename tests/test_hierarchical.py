"""Priors with unknown scales: which weights share one, the network that carries them, and what is refused."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import lamu
from lamu.networks import MLP, Linear
from lamu.priors import (
    ARD,
    FanIn,
    GammaVariance,
    HalfCauchyScale,
    Hierarchical,
    Hierarchy,
    Horseshoe,
    InverseGammaVariance,
    Laplace,
    Normal,
    Prior,
    RegularisedHorseshoe,
    Scale,
    ScaledNetwork,
    ScaleLaw,
    StudentT,
)
from lamu.record import decode, encode
from lamu.testing import check_prior
from tests.for_each import for_each

LAYER = {"bias": jnp.array([1.0, 2.0]), "kernel": jnp.arange(6.0).reshape(3, 2)}
WEIGHTS = {"layers": {0: LAYER, 1: {"bias": jnp.ones(1), "kernel": jnp.array([[5.0], [6.0]])}}}
PRIORS: list[Hierarchy] = [
    ARD(by="unit", law=GammaVariance(2.0, 1.0), leaves="layers/0/*"),
    Horseshoe(0.1),
    RegularisedHorseshoe(0.3, slab=2.0),
    Hierarchical(
        Normal({"*bias": 2.0, "*": FanIn()}),
        (Scale(InverseGammaVariance(2.0, 1.0), "layer", "*"), Scale(by="input", leaves="layers/0/kernel")),
    ),
]


@pytest.mark.parametrize(
    ("by", "shapes", "sums"),
    [
        ("all", {"all": ()}, {"all": 26.0}),
        ("layer", {"layers/0": (), "layers/1": ()}, {"layers/0": 15.0, "layers/1": 11.0}),
        ("unit", {"layers/0/kernel": (1, 2), "layers/1/kernel": (1, 1)}, {"layers/0/kernel": [[6.0, 9.0]]}),
        ("input", {"layers/0/kernel": (3, 1), "layers/1/kernel": (2, 1)}, {"layers/0/kernel": [[1.0], [5.0], [9.0]]}),
        ("weight", {"layers/0/kernel": (3, 2), "layers/1/kernel": (2, 1)}, {"layers/0/kernel": LAYER["kernel"]}),
    ],
)
def test_groups_of_weights(by: str, shapes: Any, sums: Any) -> None:
    scale = Scale(by=by)
    assert {group: value.shape for group, value in scale.constant(2.0, WEIGHTS).items()} == shapes
    found = scale.sums(WEIGHTS)
    for group, expected in sums.items():
        np.testing.assert_array_equal(found[group], expected)
    np.testing.assert_array_equal(jnp.broadcast_to(scale.of(found, "layers/0/kernel"), (3, 2)).shape, (3, 2))
    assert not scale.covers("layers/0/bias")


def test_the_input_of_a_convolution_is_its_channel_and_a_bias_has_one_group() -> None:
    leaves = {"conv": {"bias": jnp.ones(4), "kernel": jnp.ones((3, 3, 2, 4))}}
    groups = Scale(by="input", leaves="*").constant(1.0, leaves)
    assert {name: value.shape for name, value in groups.items()} == {"conv/bias": (1,), "conv/kernel": (1, 1, 2, 1)}


@pytest.mark.sampled
@pytest.mark.parametrize("prior", PRIORS, ids=lambda prior: type(prior).__name__)
def test_the_form_that_is_not_centred(prior: Hierarchy) -> None:
    """It starts as the network itself, obeys the laws of priors, and is saved with its model."""
    network, x = MLP((2,)), jnp.ones((4, 3))
    around = prior.around(network)
    assert isinstance(prior, Prior)
    assert isinstance(around, ScaledNetwork)
    params, state = around.init(jax.random.key(0), x, 1)
    plain, _ = network.init(jax.random.key(0), x, 1)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), prior.scaled(params), plain)
    prior.check(params)
    check_prior(prior, params)
    drawn = prior.sample(jax.random.key(1), params)
    outputs = around.apply(drawn, state, x, None, False)[0]
    np.testing.assert_allclose(outputs, network.apply(prior.scaled(drawn), {}, x, None, False)[0], rtol=1e-10)
    arrays: dict[str, np.ndarray] = {}
    assert decode(encode(prior, arrays), arrays) == prior
    assert around.head == "weights/layers/1/*"
    assert not prior.around(Linear()).linear


def test_a_scale_multiplies_the_weights_that_share_it() -> None:
    """A standard deviation and not a variance, of the input's row and not the unit's column; biases stay."""
    scales = {0: {"layers/0/kernel": jnp.log(jnp.array([[2.0], [3.0], [5.0]])), "layers/1/kernel": jnp.zeros((2, 1))}}
    found = ARD().scaled({"scales": scales, "weights": WEIGHTS})["layers"][0]
    np.testing.assert_allclose(found["kernel"], LAYER["kernel"] * np.array([[2.0], [3.0], [5.0]]))
    np.testing.assert_array_equal(found["bias"], LAYER["bias"])


def test_the_slab_bounds_large_scales_and_leaves_small_ones() -> None:
    prior = RegularisedHorseshoe()
    leaf = {"kernel": jnp.ones(2)}
    local = jnp.log(jnp.array([1e-3, 1e4]))
    scales = {0: {"all": jnp.log(0.5)}, 1: {"kernel": local}, 2: {"all": jnp.log(2.0)}}
    np.testing.assert_allclose(prior.scaled({"scales": scales, "weights": leaf})["kernel"], [5e-4, 2.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("law", "named"),
    [
        (InverseGammaVariance(3.0, 1.47), StudentT(0.7, df=6.0)),
        (GammaVariance(1.0, 2.0), Laplace(0.5)),
    ],
    ids=["StudentT", "Laplace"],
)
def test_mixtures_of_normals_are_the_named_priors(law: ScaleLaw, named: Any) -> None:
    """Draws of z τ beside draws of the prior itself: Kolmogorov's test of two samples at level 1e-4, keys fixed."""
    prior, like = Hierarchical(scales=(Scale(law),)), {"kernel": jnp.zeros(4000)}
    params = {"scales": prior.start(like), "weights": like}
    mixed = prior.scaled(prior.sample(jax.random.key(0), params))["kernel"]
    direct = named.sample(jax.random.key(1), like)["kernel"]
    assert stats.ks_2samp(np.asarray(mixed), np.asarray(direct)).pvalue > 1e-4


def test_levels_and_leaves_are_drawn_with_keys_of_their_own() -> None:
    """Of 3,000 draws of four numbers the correlations stay below five standard errors."""
    prior = Hierarchical(scales=(Scale(by="all"), Scale(by="weight")))
    like = {"a": {"kernel": jnp.zeros(3000)}, "b": {"kernel": jnp.zeros(3000)}}
    drawn = prior.sample(jax.random.key(0), {"scales": prior.start(like), "weights": like})
    rows = [*drawn["scales"][1].values(), *(part["kernel"] for part in drawn["weights"].values())]
    assert np.all(np.abs(np.corrcoef(np.stack(rows)) - np.eye(4)) < 5 / 3000**0.5)


def test_a_frozen_weight_is_left_out_of_the_prior() -> None:
    prior = Horseshoe(0.1)
    model = lamu.Model(prior.around(MLP((2,))), lamu.likelihoods.Gaussian(0.5), prior)
    batch = lamu.data.Batch.of(jnp.ones((4, 3)), jnp.zeros(4))
    params, _ = model.init(jax.random.key(0), batch)
    frozen = model.freeze(params, "scales/*", "weights/layers/0/*")
    free, state = frozen.init(jax.random.key(0), batch)
    expected = Normal(1.0).log_prob(params["network"]["weights"]["layers"][1])
    np.testing.assert_allclose(frozen.log_prior(free), expected, rtol=1e-10)
    np.testing.assert_allclose(
        frozen.log_likelihood(free, state, batch)[0], model.log_likelihood(params, state, batch)[0], rtol=1e-10
    )


@for_each(
    "made, message",
    [
        (lambda: Scale(by="row"), "by='row' names no groups"),
        (lambda: ARD(by="outputs"), "by='outputs' names no groups"),
        (lambda: Hierarchical(scales=()), r"scales=\(\) are not levels"),
        (lambda: HalfCauchyScale(0.0), "the scale 0.0 is not positive"),
        (lambda: Horseshoe(-1.0), "the scale -1.0 is not positive"),
        (lambda: RegularisedHorseshoe(df=0.0), "the shape 0.0 is not positive"),
        (lambda: GammaVariance(1.0, float("nan")), "the rate nan is not positive"),
        (lambda: InverseGammaVariance(-2.0), "the shape -2.0 is not positive"),
        (lambda: Horseshoe().log_prob(WEIGHTS), r"give Model\(prior.around\(network\), likelihood, prior\)"),
        (
            lambda: ARD(leaves="*weight").around(MLP((2,))).init(jax.random.key(0), jnp.ones((1, 3)), 1),
            r"'\*weight' matc",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence(made: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made()


def test_a_law_must_be_one() -> None:
    with pytest.raises(TypeError, match=r"law=0.3 is not a distribution of a scale"):
        Scale(0.3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="GammaVariance is not conjugate"):
        GammaVariance().precision_prior(jnp.ones(1))


def test_a_mean_field_of_weights_and_scales_is_told_to_take_another_way() -> None:
    prior, rows = Horseshoe(), (np.ones((30, 2)), np.arange(30.0))
    network = lamu.networks.Linear()
    around = lamu.Model(prior.around(network), lamu.likelihoods.Gaussian(1.0), prior).standardised(*rows)
    plain = lamu.Model(network, lamu.likelihoods.Gaussian(1.0), prior).standardised(*rows)
    ivon, conjugate = lamu.algorithms.ivon(), lamu.algorithms.conjugate_scales(lamu.algorithms.ivon())
    for model, algorithm, told in ((around, ivon, 1), (plain, conjugate, 0), (around, lamu.algorithms.laplace(), 0)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", lamu.Unconverged)
            lamu.fit(model, rows, algorithm, steps=3)
        assert sum("weights and their scales" in str(each.message) for each in caught) == told
