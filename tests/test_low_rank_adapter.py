"""Low-rank adapters against dense corrections written by hand, and what stays frozen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import LowRankAdapter, tree
from lamu.networks import MLP, ConvNet, Trained


def _trained(network, x, outputs, seed=3):
    params, state = network.init(jax.random.key(seed), x, outputs)
    return params, state


@pytest.fixture
def rows():
    return jax.random.normal(jax.random.key(1), (7, 5))


def test_outputs_are_first_the_bases_and_then_those_of_the_corrected_weights(rows):
    base = MLP((12,))
    weights, _ = _trained(base, rows, 3)
    network = LowRankAdapter(base, rank=2, scale=0.7, weights=weights)
    params, state = network.init(jax.random.key(0), rows, 3)
    np.testing.assert_array_equal(
        network.apply(params, state, rows, None, False)[0], base.apply(weights, {}, rows, None, False)[0]
    )
    params = jax.tree.map(lambda leaf: leaf + 0.3, params)
    by_hand = jax.tree.map(np.array, weights)
    # 5 x 12 is larger than its correction of rank 2 (34 numbers), and so is 12 x 3 (30).
    for layer in (0, 1):
        factors = params["low_rank"]["layers"][str(layer)]["kernel"]
        rank, rows_of = 2, factors["down"].shape[0]
        by_hand["layers"][layer]["kernel"] += 0.7 / np.sqrt(rank * rows_of) * factors["down"] @ factors["up"]
    np.testing.assert_allclose(
        network.apply(params, state, rows, None, False)[0], base.apply(by_hand, {}, rows, None, False)[0], rtol=1e-6
    )
    np.testing.assert_allclose(network.merged(params, rows)["layers"][1]["kernel"], by_hand["layers"][1]["kernel"])


@pytest.mark.stress
@pytest.mark.filterwarnings("ignore::lamu.Unconverged")
def test_adapters_of_a_trained_network_are_looked_at_where_they_are(rows):
    """No step was taken: half of the factors are random, and were taken for weights that had moved, and polished."""
    base = Trained(
        lambda theta, x: jnp.tanh(x @ theta["a"]) @ theta["b"], {"a": jnp.ones((5, 9)), "b": jnp.ones((9, 3))}
    )
    network = LowRankAdapter(base, rank=1, at="a", full="b")
    model, data = (
        lamu.Model(network, lamu.likelihoods.Categorical(3), lamu.priors.Normal(0.3)),
        (rows, np.arange(7) % 3),
    )
    posterior = lamu.fit(model, data, lamu.algorithms.laplace(), epochs=0).posterior
    np.testing.assert_array_equal(posterior.mean["network"]["low_rank"]["a"]["up"], 0.0)
    np.testing.assert_array_equal(posterior.mean["network"]["full"]["b"], 1.0)
    moved = lamu.fit(model, data, lamu.algorithms.laplace(lamu.algorithms.sgd(0.1)), epochs=2).posterior
    assert np.abs(moved.mean["network"]["low_rank"]["a"]["up"]).max() > 0


def test_a_correction_has_the_stated_spread_whatever_the_rank():
    weights = {"kernel": jnp.zeros((50, 400))}
    base = Trained(lambda theta, x: x @ theta["kernel"], weights)
    for rank in (1, 16):
        network = LowRankAdapter(base, rank=rank, scale=3.0)
        params, _ = network.init(jax.random.key(0), jnp.ones((1, 50)), 400)
        drawn = lamu.priors.Normal(1.0).sample(jax.random.key(2), params)
        spread = float(jnp.std(network.merged(drawn, jnp.ones((1, 50)))["kernel"]))
        # 20,000 products of 450 numbers: the standard deviation of the estimate is below 8 % at rank 1.
        assert spread == pytest.approx(3.0 / np.sqrt(50), rel=0.3 if rank == 1 else 0.1)


def test_kernels_of_convolutions_are_split_between_inputs_and_outputs():
    x = jnp.ones((2, 8, 8, 3))
    base = ConvNet((16,))
    weights, state = base.init(jax.random.key(0), x, 4)
    network = LowRankAdapter(base, rank=2, weights=weights, state=state)
    params, _ = network.init(jax.random.key(1), x, 4)
    shapes = {path: leaf.shape for path, leaf in tree.by_path(params["low_rank"]).items()}
    kernels = {path: leaf.shape for path, leaf in tree.by_path(weights).items() if leaf.ndim == 4}
    assert kernels
    for path, (height, width, inputs, outputs) in kernels.items():
        assert shapes[f"{path}/down"] == (height * width * inputs, 2)
        assert shapes[f"{path}/up"] == (2, outputs)


def test_patterns_choose_what_is_adapted_and_what_is_trained_whole(rows):
    weights, _ = _trained(MLP((12, 12)), rows, 3)
    network = LowRankAdapter(MLP((12, 12)), rank=1, at="layers/1/*", full="layers/2/*", weights=weights)
    params, _ = network.init(jax.random.key(0), rows, 3)
    assert tree.paths(params) == [
        "full/layers/2/bias",
        "full/layers/2/kernel",
        "low_rank/layers/1/kernel/down",
        "low_rank/layers/1/kernel/up",
    ]


@pytest.mark.parametrize("algorithm", ["laplace", "ivon"])
def test_a_posterior_over_adapters_leaves_the_base_alone_and_is_saved(rows, tmp_path, algorithm):
    x, y = lamu.data.load("iris")
    likelihood = lamu.likelihoods.Categorical(3)
    base = lamu.Model(MLP((8,)), likelihood).standardised(x, y)
    first = lamu.fit(base, (x, y), lamu.algorithms.adam(), epochs=10, seed=1).posterior
    network = LowRankAdapter(first.model.network, rank=1, weights=first.mean["network"])
    # A network that is standardised is not standardised once more.
    posterior = lamu.fit(
        lamu.Model(network, likelihood), (x, y), getattr(lamu.algorithms, algorithm)(), epochs=20
    ).posterior
    prediction = posterior.predict(x)
    assert lamu.scores.nll(prediction, y) < lamu.scores.nll(first.predict(x), y)
    posterior.save(tmp_path / "adapters")
    again = lamu.load(tmp_path / "adapters")
    np.testing.assert_array_equal(again.predict(x).mean, prediction.mean)
    merged = network.merged(posterior.mean["network"], x)
    np.testing.assert_array_equal(merged["layers"][0]["bias"], first.mean["network"]["layers"][0]["bias"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank=0 leaves nothing to learn"),
        ({"scale": 0.0}, "scale=0.0 is not positive"),
        ({"weights": None}, "the base MLP has no trained weights to adapt"),
    ],
)
def test_bad_options_are_named(rows, options, message):
    weights, _ = _trained(MLP((12,)), rows, 3)
    with pytest.raises(ValueError, match=message):
        LowRankAdapter(MLP((12,)), **{"weights": weights, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"at": "*attention*"}, r"at='\*attention\*' matches no weight"),
        ({"full": ("layers/9/*",)}, "the pattern 'layers/9/\\*' matches no leaf"),
        ({"rank": 40}, "larger than its correction of rank 40"),
    ],
)
def test_patterns_without_a_weight_are_named(rows, options, message):
    weights, _ = _trained(MLP((12,)), rows, 3)
    network = LowRankAdapter(MLP((12,)), weights=weights, **options)
    with pytest.raises(ValueError, match=message):
        network.init(jax.random.key(0), rows, 3)


def test_a_pytorch_module_gets_its_corrected_weights_back():
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(6, 20), torch.nn.Tanh(), torch.nn.Linear(20, 4)).eval()
    network = LowRankAdapter(lamu.networks.Torch(module), rank=2)
    x = np.random.default_rng(0).normal(size=(5, 6)).astype("float32")
    params, state = network.init(jax.random.key(0), jnp.asarray(x), 4)
    params = jax.tree.map(lambda leaf: leaf + 0.2, params)
    outputs, _ = network.apply(params, state, jnp.asarray(x), None, False)
    module.load_state_dict(network.base.state_dict(network.merged(params, x)))
    np.testing.assert_allclose(outputs, module(torch.as_tensor(x)).detach().numpy(), atol=1e-5)
