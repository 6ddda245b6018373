"""Weights through files of the safetensors format."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.networks import MLP, Trained, read_safetensors, write_safetensors

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


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_safetensors(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("no header")
    with pytest.raises(ValueError, match=r"text.safetensors' is no safetensors file"):
        read_safetensors(tmp_path / "text.safetensors")
