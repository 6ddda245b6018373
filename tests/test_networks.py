"""Networks, each beside its definition: convolutions, batch statistics, categories; and what they do with a mask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.base.compile_once import lenient
from lamu.data import Batch
from lamu.networks import (
    MLP,
    BatchNorm,
    ConvNet,
    Embedded,
    Evaluated,
    GroupNorm,
    Linear,
    Network,
    Normaliser,
    Standardised,
    Tokens,
    holds_convolutions,
    scan_friendly,
)
from lamu.networks.convolutional import convolve
from lamu.networks.wrapper import NetworkWrapper
from lamu.record import record
from tests.for_each import for_each

rng = np.random.default_rng(0)
IMAGES = jnp.asarray(rng.normal(size=(3, 5, 6, 2)))
TABLE = jnp.array([[0.5, 1.0, 2.0], [-0.5, 3.0, 0.0], [0.1, 0.0, 1.0], [2.0, 2.0, 2.0]])
LEVELS = (0, 3, 2)


def key() -> Any:
    return jax.random.key(0)


def plain_convolution(images: Any, kernel: Any) -> Any:
    return jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


@pytest.mark.parametrize("size", [(3, 3), (2, 4), (1, 5)], ids=str)
def test_a_product_of_patches_is_the_convolution(size) -> None:
    kernel, weight = jnp.asarray(rng.normal(size=(*size, 2, 4))), jnp.asarray(rng.normal(size=(3, 5, 6, 4)))
    np.testing.assert_allclose(convolve(IMAGES, kernel), plain_convolution(IMAGES, kernel), rtol=1e-10, atol=1e-10)
    gradients = [
        jax.grad(lambda images, kernel: jnp.sum(weight * f(images, kernel) ** 2), argnums=(0, 1))(IMAGES, kernel)  # noqa: B023  (at once)
        for f in (convolve, plain_convolution)
    ]
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def test_a_convolutional_network_is_its_layers() -> None:
    """An odd edge is dropped; max pooling is the compiler's; a grey image needs no channel."""
    network = ConvNet((4,), widths=(5,), activation="gelu")
    params, state = jax.jit(network.init, static_argnums=2)(key(), IMAGES, 3)
    assert lamu.tree.paths(params)[:2] == ["convolutions/0/bias", "convolutions/0/kernel"]
    params = jax.tree.map(lambda leaf: leaf + 0.1, params)
    part = params["convolutions"][0]
    hidden = jax.nn.gelu(plain_convolution(IMAGES, part["kernel"]) + part["bias"][None, None, None])
    hidden = jax.lax.reduce_window(hidden, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    dense, _ = MLP((5,), "gelu").apply({"layers": params["layers"]}, {}, hidden, None, False)
    np.testing.assert_allclose(network.apply(params, state, IMAGES, None, False)[0], dense, rtol=1e-10)
    grey, _ = network.init(key(), IMAGES[..., 0], 3)
    one, other = (network.apply(grey, {}, x, None, False)[0] for x in (IMAGES[..., 0], IMAGES[..., :1]))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shape", [(7, 3), (4, 3, 2, 3)], ids=str)
def test_batch_norm_is_flaxs(shape) -> None:
    """Two steps of training, one prediction."""
    from flax import nnx

    norm, ours = nnx.BatchNorm(3, momentum=0.9, epsilon=1e-5, use_fast_variance=False, rngs=nnx.Rngs(0)), BatchNorm()
    params, state = ours.init(3, jnp.float64)
    params = {"scale": jnp.array([0.5, 2.0, -1.0]), "bias": jnp.array([1.0, 0.0, 3.0])}
    for name, value in {**params, **state}.items():
        setattr(norm, name, type(getattr(norm, name))(value))
    for step in range(3):
        x = jnp.asarray(rng.normal(2.0, 3.0, size=shape))
        with lenient():
            expected = norm(x, use_running_average=step == 2)
        found, state = ours.apply(params, state, x, step < 2, None)
        np.testing.assert_allclose(found, expected, rtol=1e-10)
        for name in ("mean", "var"):
            np.testing.assert_allclose(state[name], getattr(norm, name)[...], rtol=1e-10)


@pytest.mark.parametrize(("shape", "groups"), [((5, 6), 3), ((2, 4, 3, 6), 2), ((3, 7, 6), 1), ((3, 6), 6)], ids=str)
def test_group_norm_is_flaxs(shape, groups) -> None:
    from flax import nnx

    theirs = nnx.GroupNorm(6, num_groups=groups, epsilon=1e-3, use_fast_variance=False, rngs=nnx.Rngs(0))
    ours = GroupNorm(groups, eps=1e-3)
    params = {"scale": jnp.arange(6.0) - 2.0, "bias": 0.5 * jnp.arange(6.0)}
    assert jax.tree.structure(ours.init(6, jnp.float64)[0]) == jax.tree.structure(params)
    theirs.scale, theirs.bias = nnx.Param(params["scale"]), nnx.Param(params["bias"])
    x = jnp.asarray(rng.normal(2.0, 3.0, size=shape))
    with lenient():
        expected = theirs(x)
    for train in (True, False):
        found, state = ours.apply(params, {}, x, train, None)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        assert state == {}


def test_a_normalised_layer_has_its_norm_before_the_activation() -> None:
    network, norm = MLP((4,), normalise=BatchNorm()), BatchNorm()
    x = IMAGES[:, 0, :, 0]
    params, state = network.init(key(), x, 2)
    assert lamu.tree.paths(params) == ["layers/0/kernel", "layers/1/bias", "layers/1/kernel", *paths("norms/0/")]
    assert lamu.tree.paths(state) == ["norms/0/mean", "norms/0/var"]
    for train in (True, False):
        first, last = params["layers"][0], params["layers"][1]
        hidden, after = norm.apply(params["norms"][0], state["norms"][0], x @ first["kernel"], train, None)
        expected = jax.nn.relu(hidden) @ last["kernel"] + last["bias"][None]
        found, new = network.apply(params, state, x, None, train)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        np.testing.assert_allclose(new["norms"][0]["var"], after["var"], rtol=1e-12)


def paths(prefix: str) -> list[str]:
    return [prefix + name for name in ("bias", "scale")]


@pytest.mark.parametrize("name", ["MLP", "ConvNet", "Embedded"])
def test_padded_rows_are_in_no_statistic(name) -> None:
    """Loss, state and gradient are those of the rows alone, through the scaling and the categories around it."""
    x, network = IMAGES, MLP((4,), normalise=BatchNorm())
    if name == "ConvNet":
        network = ConvNet((2,), (3,), normalise=BatchNorm())
    if name == "Embedded":
        x, network = TABLE, Embedded(network, LEVELS)
    model = lamu.Model(network, lamu.likelihoods.Categorical(3)).standardised(x, np.arange(len(x)) % 3)
    batch = Batch.of(x, jnp.arange(len(x)) % 3)
    padded = batch.padded(6)
    padded = replace(padded, x=padded.x.at[len(x) :].set(7.0))

    @jax.jit
    def trained(params: Any, state: Any, batch: Batch) -> Any:
        def loss(params: Any) -> Any:
            values, new = model.log_likelihood(params, state, batch, train=True)
            return batch.total(values), new

        return jax.value_and_grad(loss, has_aux=True)(params)

    params, state = jax.jit(model.init)(key(), batch)
    alone, beside = trained(params, state, batch), trained(params, state, padded)
    assert jax.tree.structure(alone) == jax.tree.structure(beside)
    for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(beside), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-12)
    new = alone[0][1]
    assert jax.tree.structure(new) == jax.tree.structure(state)
    assert not np.allclose(lamu.tree.ravel(new)[0], lamu.tree.ravel(state)[0])


def test_nonsense_in_padding_spoils_no_statistic() -> None:
    x, mask = jnp.array([[1.0, 2.0], [3.0, 5.0], [jnp.nan, jnp.inf]]), jnp.array([1.0, 1.0, 0.0])
    params, state = BatchNorm().init(2, x.dtype)
    alone, expected = BatchNorm().apply(params, state, x[:2], True, None)
    found, new = BatchNorm().apply(params, state, x, True, mask)
    np.testing.assert_allclose(found[:2], alone, rtol=1e-12)
    np.testing.assert_allclose(new["var"], expected["var"], rtol=1e-12)
    gradient = jax.grad(lambda x: jnp.sum(BatchNorm().apply(params, state, x, True, mask)[0][:2] ** 3))(x)
    assert np.all(np.isfinite(gradient[:2]))


def test_a_batch_of_padding_leaves_the_statistics() -> None:
    params, state = BatchNorm().init(2, jnp.float64)
    y, new = BatchNorm().apply(params, state, jnp.ones((3, 2)), True, jnp.zeros(3))
    assert np.all(np.isfinite(y))
    jax.tree.map(np.testing.assert_array_equal, state, new)


@record
class Counting(lamu.networks.Network):
    """A user's network of five arguments, with a state."""

    linear = False
    head = "*"

    def init(self, key: Any, x: Any, outputs: int) -> Any:
        return {"w": jnp.ones((x.shape[1], outputs), x.dtype)}, {"calls": jnp.zeros((), jnp.int32)}

    def apply(self, params: Any, state: Any, x: Any, key: Any, train: bool) -> Any:
        return x @ params["w"], {"calls": state["calls"] + int(train)}


def test_a_network_that_asks_for_no_mask_gets_none() -> None:
    x = np.asarray(IMAGES[:, 0, :, 0])
    for network in (Counting(), Embedded(Counting(), (0, 1, 0, 0, 0, 0))):
        assert isinstance(network, Network)
        model = lamu.Model(network, lamu.likelihoods.Gaussian(1.0)).standardised(x, x[:, 0])
        fit = lamu.fit(model, (x, x[:, 0]), lamu.algorithms.adam(), steps=2, batch_size=2)
        assert fit.posterior.network_state == {"calls": 2}
        assert fit.posterior.predict(x).mean.shape == (3,)


def embedded() -> tuple[Embedded, Any]:
    network = Embedded(MLP((5,)), LEVELS)
    return network, network.init(key(), TABLE, 1)[0]


def test_categories_are_rows_of_their_table() -> None:
    network, params = embedded()
    assert network.codes == (1, 2)
    assert network.head == "base/layers/1/*"
    assert not Embedded(Linear(), (0, 2)).linear
    one, two = (params["embeddings"][column]["table"] for column in network.codes)
    assert (one.shape, two.shape) == ((4, 2), (3, 2))
    codes = np.asarray(TABLE[:, 1:], int)
    inputs = jnp.concatenate([TABLE[:, :1], one[codes[:, 0]], two[codes[:, 1]]], axis=1)
    expected, _ = network.base.apply(params["base"], {}, inputs, None, False)
    np.testing.assert_allclose(network.apply(params, {}, TABLE, None, False)[0], expected, rtol=1e-12)
    single = network.apply(params, {}, TABLE.astype(jnp.float32), None, False)[0]
    np.testing.assert_allclose(single, expected, rtol=1e-6)
    widths = {
        Embedded(Linear(), (k,)).init(key(), TABLE[:, :1], 1)[0]["base"]["layers"][0]["kernel"].shape[0]: k
        for k in (1, 10, 500)
    }
    assert widths == {1: 1, 6: 10, 16: 500}


def test_what_is_no_code_is_the_unknown_category() -> None:
    network, params = embedded()
    np.testing.assert_array_equal(params["embeddings"][1]["table"][0], 0.0)
    params["embeddings"][1]["table"] = params["embeddings"][1]["table"].at[0].set(0.7)
    strange = jnp.array([[1.0, code, 1.0] for code in (0.0, -1.0, 4.0, 1.5, 1e12, np.inf, np.nan)])
    f = network.apply(params, {}, strange, None, False)[0]
    np.testing.assert_array_equal(f, jnp.broadcast_to(f[:1], f.shape))
    inputs = jnp.concatenate([jnp.array([1.0, 0.7, 0.7]), params["embeddings"][2]["table"][1]])
    np.testing.assert_allclose(f[:1], network.base.apply(params["base"], {}, inputs[None], None, False)[0], rtol=1e-12)


@pytest.mark.stress
def test_the_unknown_category_keeps_its_prior() -> None:
    """A point stays at zero; Laplace's precision there is the prior's, and the prediction is wider."""
    x = np.column_stack([rng.normal(size=40), 1 + np.arange(40) % 3])
    y = x[:, 0] + 3 * x[:, 1] + 0.1 * rng.normal(size=40)
    model = lamu.Model(Embedded(MLP((4,)), (0, 3)), lamu.likelihoods.Gaussian(0.1), lamu.priors.Normal(0.5))
    laplace = lamu.algorithms.laplace(lamu.algorithms.adam(0.02))
    fit = lamu.fit(model.standardised(x, y), (x, y), laplace, steps=200, batch_size=40)
    np.testing.assert_array_equal(fit.posterior.mean["network"]["embeddings"][1]["table"][0], 0.0)
    gaussian = fit.posterior.belief.factors["network"]
    precision = gaussian.precision.diagonal(gaussian.mean)
    np.testing.assert_allclose(precision["embeddings"][1]["table"][0], 4.0, rtol=1e-6)
    known, unknown = (fit.posterior.predict(np.array([[0.0, code]])).epistemic[0] for code in (2.0, 0.0))
    assert unknown > 10 * known


def test_scaling_leaves_codes_alone() -> None:
    model = lamu.Model(Embedded(MLP((5,)), LEVELS), lamu.likelihoods.Gaussian()).standardised(TABLE, np.arange(4.0))
    assert isinstance(model.network, Standardised)
    assert model.network.codes == (1, 2)
    np.testing.assert_allclose(model.network.shift, [TABLE[:, 0].mean(), 0.0, 0.0])
    np.testing.assert_allclose(model.network.scale, [TABLE[:, 0].std(), 1.0, 1.0])
    np.testing.assert_array_equal(model.standardised(TABLE, np.arange(4.0)).network.shift[1:], 0.0)


@record
class Convolving(lamu.networks.Network):
    """A user's network, with a convolution under some transformation."""

    transformed: Any
    linear = False
    head = "*"

    def init(self, key: Any, x: Any, outputs: int) -> Any:
        return {"kernel": jnp.ones((3, 3, 2, outputs), x.dtype)}, {}

    def apply(self, params: Any, state: Any, x: Any, key: Any, train: bool) -> Any:
        return jnp.mean(self.transformed(lambda x: plain_convolution(x, params["kernel"]))(x), axis=(1, 2)), state


def in_custom(f: Any) -> Any:
    g = jax.custom_vjp(f)
    g.defvjp(lambda x: (f(x), x), lambda x, t: (x,))
    return g


WRAPPED = {
    "plain": lambda f: f,
    "jit": jax.jit,
    "remat": jax.checkpoint,
    "vmap": lambda f: lambda x: jax.vmap(lambda row: f(row[None])[0])(x),
    "scan": lambda f: lambda x: jax.lax.map(lambda row: f(row[None])[0], x),
    "cond": lambda f: lambda x: jax.lax.cond(x[0, 0, 0, 0] > 0, f, lambda x: 2 * f(x), x),
    "while": lambda f: lambda x: jax.lax.while_loop(lambda y: y[0, 0, 0, 0] > 0, lambda y: f(x), f(x)),
    "custom derivative": in_custom,
}


@pytest.mark.parametrize("name", WRAPPED)
def test_convolutions_are_found_wherever_they_are(name) -> None:
    network = Convolving(WRAPPED[name])
    assert holds_convolutions(network, IMAGES, 2)
    assert holds_convolutions(Standardised(network, 0.0 * IMAGES[0], 1.0 + 0.0 * IMAGES[0]), IMAGES, 2)


def test_built_in_networks_hold_no_convolution() -> None:
    shape = jax.ShapeDtypeStruct((3, 5, 6, 2), jnp.float32)
    for network in (MLP(), Linear(), ConvNet((2,), normalise=BatchNorm())):
        assert not holds_convolutions(network, shape, 2)


def test_convolutions_loop_badly_on_a_cpu_alone(monkeypatch) -> None:
    network = Convolving(WRAPPED["plain"])
    for platform, well in (("cpu", False), ("gpu", True)):
        monkeypatch.setattr(jax, "default_backend", lambda platform=platform: platform)
        assert scan_friendly(network, IMAGES, 2) == well
        assert scan_friendly(ConvNet((2,)), IMAGES, 2)


@for_each(
    "make, error, says",
    [
        (lambda: BatchNorm(momentum=1.0), ValueError, "momentum 1.0 keeps no running average"),
        (lambda: BatchNorm(eps=0.0), ValueError, "eps=0.0"),
        (lambda: MLP((4,), normalise=BatchNorm), TypeError, "give for instance BatchNorm()"),
        (lambda: ConvNet(normalise=BatchNorm), TypeError, "is not a normaliser"),
        (lambda: ConvNet((16, 0)), ValueError, r"channels=\(16, 0\); give whole numbers from 1"),
        (lambda: ConvNet(kernel=0), ValueError, "kernel=0; give a whole number from 1"),
        (lambda: ConvNet(activation="rely"), ValueError, "unknown activation 'rely'"),
        (lambda: ConvNet().init(key(), TABLE, 2), ValueError, r"\(4, 3\) are not images"),
        (lambda: ConvNet((2, 2, 2)).init(key(), IMAGES, 2), ValueError, "5 by 6 pixels are too small for 3 poolings"),
        (lambda: apply_to_grey(ConvNet((2,))), ValueError, "images have 1 channels, the network was made for 2"),
        (lambda: Embedded(Linear(), (0, 0)), ValueError, "no column of categories"),
        (lambda: Embedded(Linear(), (0, -2)), ValueError, "holds -2"),
        (lambda: Embedded(Linear(), (0, 2)).init(key(), TABLE, 1), ValueError, r"shape \(3,\) a row"),
    ],
)
def test_mistakes_are_said_in_a_sentence(make, error, says) -> None:
    with pytest.raises(error, match=says):
        make()


def apply_to_grey(network: ConvNet) -> None:
    params, state = network.init(key(), IMAGES, 2)
    network.apply(params, state, IMAGES[..., 0], None, False)


def test_normalisers_keep_their_protocol() -> None:
    assert isinstance(BatchNorm(), Normaliser)


def test_what_stands_around_a_network_says_what_it_says() -> None:
    inner = MLP((4,), normalise=BatchNorm())
    for network in (Tokens(inner), Standardised(inner, jnp.zeros(3), jnp.ones(3)), Evaluated(inner, {})):
        assert isinstance(network, NetworkWrapper)
        assert (network.linear, network.head) == (False, "layers/1/*")
        assert network.masked is not isinstance(network, Evaluated)
        assert network.codes == (... if isinstance(network, Tokens) else ())
    assert Standardised(Tokens(Linear()), jnp.zeros(3), jnp.ones(3)).codes is ...
    assert Tokens(Linear()).linear


@pytest.mark.parametrize(
    "network",
    [MLP((4,)), MLP((4,), normalise=GroupNorm(2)), Linear(), Linear(bias=False)],
    ids=["layers", "normalised", "linear", "without bias"],
)
def test_a_network_applied_to_its_first_inputs_is_the_network(network) -> None:
    params, state = network.init(key(), TABLE, 2)
    of_last = network.partially_applied(params, TABLE[1, :2])
    assert of_last["layers"][0]["kernel"].shape[0] == 1
    expected = network.apply(params, state, TABLE[1:2], None, False)[0]
    np.testing.assert_allclose(network.apply(of_last, state, TABLE[1:2, 2:], None, False)[0], expected, rtol=1e-12)


@record
class Squaring(MLP):
    """Layers of squared inputs."""

    def apply(self, params, state, x, key, train, mask=None):
        return super().apply(params, state, x**2, key, train)


def test_a_network_with_a_pass_of_its_own_is_not_taken_apart() -> None:
    for network in (Squaring((4,)), ConvNet(), Tokens(Linear())):
        assert network.partially_applied(MLP((4,)).init(key(), TABLE, 2)[0], TABLE[1, :2]) is None
