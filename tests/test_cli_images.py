"""`lamu fit --model vae` and `lamu predict` with its folder: images, their holes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lamu.cli import images, main
from lamu.data import load
from lamu.posterior import load as posterior_of
from tests.command_line import assert_refused

DIGITS = np.asarray(load("digits")[0]).reshape(-1, 8, 8)[:240]
BITS = (0.5 * DIGITS.max() < DIGITS).astype(np.float32)
QUICK = ("--model", "vae", "--set", "latents=3", "--set", "hidden=16", "--epochs", "20", "--batch-size", "16")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    np.savez(folder / "bits.npz", X=BITS)
    assert main(["fit", str(folder / "bits.npz"), *QUICK, "--out", str(folder / "run")]) == 0
    return folder


@pytest.mark.stress
def test_fit_writes_the_folder(fitted) -> None:
    run = fitted / "run"
    config, metrics = (json.loads((run / name).read_text()) for name in ("config.json", "metrics.json"))
    assert sorted(path.name for path in run.iterdir()) == ["config.json", "images.png", "metrics.json", "posterior"]
    assert (config["model"], config["shape"], config["likelihood"], config["unit"]) == ("vae", [8, 8], "bernoulli", 1.0)
    assert metrics["rows"] == {"train": 192, "test": 48}
    assert -64 * np.log(2) < metrics["log_prob"] < 0  # better than coins
    assert posterior_of(run / "posterior").local({"y": BITS[:2].reshape(2, 64)})["z"].mean.shape == (2, 3)


@pytest.mark.stress
def test_holes_are_filled_block_by_block(fitted, lamu, tmp_path, monkeypatch) -> None:
    holes = BITS[:7].copy()
    holes[1:, 4:] = np.nan
    np.savez("masked.npz", X=holes)
    monkeypatch.setattr(images, "BLOCK", 3)
    ran = lamu("predict", fitted / "run", "masked.npz", "--out", "filled.npz")
    assert ran.code == 0, ran.err
    assert "192 missing pixels of 6 images filled in" in ran.out
    filled = np.load("filled.npz")
    assert filled["X"].shape == filled["lower"].shape == (7, 8, 8)
    np.testing.assert_array_equal(filled["X"][:, :4], BITS[:7, :4])
    np.testing.assert_array_equal(filled["upper"][0], BITS[0])
    assert np.all((filled["lower"] <= filled["upper"]) & (filled["X"] >= 0) & (filled["X"] <= 1))
    assert np.std(filled["X"][1:, 4:]) > 0.01


@pytest.mark.stress
def test_grey_values_keep_their_units(lamu, tmp_path) -> None:
    grey = np.round(DIGITS / DIGITS.max() * 255).astype(np.uint8)
    np.savez("grey.npz", X=grey)
    assert lamu("fit", "grey.npz", *QUICK[:-4], "--epochs", "1", "--samples", "2", "--out", "run").code == 0
    config = json.loads(Path("run/config.json").read_text())
    assert (config["likelihood"], config["unit"]) == ("gaussian", 255.0)
    holes = grey[:2].astype(np.float32)
    holes[:, :, 0] = np.nan
    np.savez("masked.npz", X=holes)
    assert lamu("predict", "run", "masked.npz", "--out", "filled.npz").code == 0
    np.testing.assert_allclose(np.load("filled.npz")["X"][:, :, 1:], holes[:, :, 1:], atol=1e-3)


def test_what_cannot_be(fitted, lamu) -> None:
    run, whole = fitted / "run", fitted / "bits.npz"
    np.savez("negative.npz", X=BITS - 1)
    np.savez("empty.npz", X=np.where(np.arange(9)[:, None, None] == 3, np.nan, BITS[:9]))
    np.savez("narrow.npz", X=BITS[:, :4])
    np.savez("other.npz", images=BITS)
    np.savez("words.npz", X=np.array([["a", "b"]]))
    for data, words in {
        "negative.npz": "lie between -1 and 0; give values from 0 to 1 or from 0 to 255",
        "empty.npz": "image 3 in 'empty.npz' has no pixel that is observed",
        "other.npz": "has no array 'X'",
        "words.npz": "no numbers",
        "missing.npz": "there is no file 'missing.npz'",
    }.items():
        assert_refused(lamu("fit", data, "--model", "vae", "--out", "new"), words)
    for words, told in {
        ("--model", "vea"): "did you mean 'vae'?",
        ("--model", "vae", "--target", "y"): "--target is of tables",
        ("--model", "vae", "--set", "latent=3"): "did you mean 'latents'?",
        ("--model", "vae", "--set", "latents=0"): "give a whole number from 1",
    }.items():
        assert_refused(lamu("fit", whole, *words, "--out", "new"), told)
    assert_refused(lamu("predict", run, whole), "no pixel in")
    assert_refused(lamu("predict", run, "narrow.npz"), "has the shape (4, 8)")
    np.savez("masked.npz", X=np.where(np.arange(8) > 4, np.nan, BITS[:2]))
    assert_refused(lamu("predict", run, "masked.npz", "--out", "filled.csv"), "give FILE.npz")
