"""Weights through files of the safetensors format."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.networks import MLP, Trained, read_safetensors, write_safetensors

X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)

library = pytest.importorskip("safetensors.numpy")


def test_a_run_starts_from_the_weights_of_a_file(tmp_path):
    x, y = lamu.data.load("iris")
    model = lamu.Model(MLP((5,)), lamu.likelihoods.Categorical(3)).standardised(x, y)
    first = lamu.fit(model, (x, y), lamu.algorithms.adam(), epochs=3, seed=1).posterior
    write_safetensors(tmp_path / "weights.safetensors", first.mean["network"])
    names = sorted(library.load_file(tmp_path / "weights.safetensors"))
    assert names == ["layers.0.bias", "layers.0.kernel", "layers.1.bias", "layers.1.kernel"]
    weights = read_safetensors(tmp_path / "weights.safetensors")
    started = model.starting_at({"network": weights, "likelihood": {}})
    params, _ = started.init(jax.random.key(0), lamu.data.Batch.of(x, y))
    for path, leaf in lamu.tree.by_path(first.mean["network"]).items():
        np.testing.assert_array_equal(lamu.tree.by_path(params["network"])[path], leaf)
    with pytest.raises(FileExistsError, match="give another path"):
        write_safetensors(tmp_path / "weights.safetensors", first.mean["network"])


def test_a_file_of_another_library_feeds_an_adapter(tmp_path):
    library.save_file({"fc.weight": np.arange(6.0).reshape(2, 3)}, tmp_path / "fc.safetensors")
    weights = read_safetensors(tmp_path / "fc.safetensors")
    network = Trained(lambda theta, x: x @ theta["fc"]["weight"].T, weights)
    outputs, _ = network.apply(weights, {}, jnp.ones((1, 3)), None, False)
    np.testing.assert_array_equal(outputs, [[3.0, 12.0]])


def _torch() -> tuple[object, np.ndarray]:
    torch = pytest.importorskip("torch")
    return lamu.networks.Torch(torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))), X


def _nnx() -> tuple[object, np.ndarray]:
    from flax import nnx

    return lamu.networks.NNX(lambda rngs: nnx.Sequential(nnx.Linear(4, 5, rngs=rngs), nnx.Linear(5, 3, rngs=rngs))), X


def _equinox() -> tuple[object, np.ndarray]:
    import equinox as eqx

    return lamu.networks.Equinox(lambda key: eqx.nn.MLP(4, 3, 5, 1, key=key)), X


@pytest.mark.parametrize("make", [_torch, _nnx, _equinox], ids=["Torch", "NNX", "Equinox"])
def test_weights_of_every_adapter_come_back(make, tmp_path):
    network, x = make()
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        params, _ = network.init(jax.random.key(7), jnp.asarray(x), 3)
        moved = jax.tree.map(lambda leaf: leaf + 0.25, params)
        write_safetensors(tmp_path / "weights.safetensors", moved)
        weights = read_safetensors(tmp_path / "weights.safetensors")
        model = lamu.Model(network, lamu.likelihoods.Categorical(3)).starting_at({"network": weights, "likelihood": {}})
        started, _ = model.init(jax.random.key(0), lamu.data.Batch.of(x, np.arange(6) % 3))
    found, expected = (lamu.tree.by_path(each) for each in (started["network"], moved))
    assert found.keys() == expected.keys()
    for path, leaf in expected.items():
        np.testing.assert_array_equal(found[path], leaf, err_msg=path)


def test_a_file_that_pytorch_wrote_starts_a_run(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    module, other = (torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(4, 3)) for _ in range(2))
    save_file(module.state_dict(), tmp_path / "module.safetensors")
    weights = read_safetensors(tmp_path / "module.safetensors")
    model = lamu.Model(lamu.networks.Torch(other), lamu.likelihoods.Categorical(3))
    started = model.starting_at({"network": weights, "likelihood": {}})
    params, state = started.init(jax.random.key(0), lamu.data.Batch.of(X, np.arange(6) % 3))
    found = started.network.apply(params["network"], state, jnp.asarray(X), None, False)[0]
    np.testing.assert_allclose(found, module(torch.as_tensor(X)).detach().numpy(), atol=1e-6)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_safetensors(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("no header")
    with pytest.raises(ValueError, match=r"text.safetensors' is not a safetensors file"):
        read_safetensors(tmp_path / "text.safetensors")
