"""Laplace's method for a network that arrives trained, beside laplace-torch with the same weights.

From the import to the first prediction both sides are commands of their own: ours without a cache of compiled programs
and with a filled one. Warm, each side is a process that fits, predicts or computes the evidence again and again.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from benchmarks.speed.environments import peers
from benchmarks.speed.programs.laplace import algorithm, load, model_of
from benchmarks.speed.race import Race, row
from benchmarks.speed.timing import Worker, command, here

ROWS, NEW, NEAR = 1500, 50, 0.02


@cache
def start(images: bool = False) -> Path:
    """The weights of a network after 20 epochs on digits, its rows, and 50 others, in a file.

    The network is an MLP 64-100-100-10, of images a ConvNet of two convolutions and a dense layer.
    """
    x, y = lamu.data.load("digits")
    x = np.asarray(x, np.float32)
    network = lamu.networks.ConvNet((16, 32), widths=(64,)) if images else lamu.networks.MLP((100, 100))
    x = x.reshape(-1, 8, 8, 1) if images else x
    model = lamu.Model(network, lamu.likelihoods.Categorical(10), lamu.priors.Normal(1.0))
    fit = lamu.fit(model, (x[:ROWS], y[:ROWS]), lamu.algorithms.adam(1e-3), epochs=20, batch_size=128, progress=False)
    weights = fit.posterior.mean["network"]
    layers = [*weights.get("convolutions", {}).values(), *weights["layers"].values()]
    arrays = {f"{name}{index}": leaf for index, layer in enumerate(layers) for name, leaf in layer.items()}
    folder = Path(tempfile.mkdtemp(prefix="lamu-bench-"))
    np.savez(folder / "start.npz", x=x[:ROWS], y=y[:ROWS], new=x[ROWS : ROWS + NEW], **arrays)
    return folder / "start.npz"


def agree(ours: np.ndarray, theirs: np.ndarray) -> str:
    apart = float(np.max(np.abs(ours - theirs)))
    assert apart < NEAR, f"probabilities are {apart:.3f} apart"
    return f"{NEW} rows of predicted probabilities from the same weights, to {apart:.4f}"


def first_prediction(weights: str, rounds: int, images: bool = False) -> Race:
    import shutil
    import sys

    path, python = start(images), peers("laplace")
    folder = path.parent
    outputs = {name: folder / f"{weights}-{name}.npy" for name in ("ours", "theirs")}
    ours = [sys.executable, "-m", "benchmarks.speed.programs.laplace", str(path), weights, str(outputs["ours"])]
    theirs = [str(python), "-m", "benchmarks.speed.peers.laplace", str(path), weights, str(outputs["theirs"])]
    eager = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}

    def cold() -> list[str]:
        shutil.rmtree(folder / "cold", ignore_errors=True)
        return ours

    sides = (
        command("lamu, empty cache", cold, {**eager, "JAX_COMPILATION_CACHE_DIR": str(folder / "cold")}),
        command("lamu, filled cache", ours, {**eager, "JAX_COMPILATION_CACHE_DIR": str(folder / "warm")}),
        command("laplace-torch", theirs),
    )
    sides[0].turn()
    sides[2].turn()
    same = agree(np.load(outputs["ours"]), np.load(outputs["theirs"]))
    return Race(sides[:2], sides[2:], "run", same, rounds, first="fills the cache", spins=True)


@row("laplace_first", "Laplace of all weights, MLP 64-100-100-10, import to first prediction")
def laplace_first(quick: bool) -> Race:
    return first_prediction("all", 2 if quick else 8)


@row(
    "last_layer_first",
    "Laplace of the last layer, import to first prediction",
    why="Imports and the tracing of programs are all of it, of which a cache spares the compilation alone.",
)
def last_layer_first(quick: bool) -> Race:
    return first_prediction("last_layer", 2 if quick else 8)


def warm(weights: str, what: str, rounds: int, images: bool = False) -> Race:
    path = start(images)
    worker = Worker(peers("laplace"), "benchmarks.speed.peers.laplace", str(path), weights, "-")
    held = load(path)
    model = model_of(held)
    data, new = (jnp.asarray(held["x"]), jnp.asarray(held["y"])), held["new"]

    def fitted() -> Any:
        posterior = lamu.fit(model, data, algorithm(weights), epochs=0, progress=False).posterior
        jax.block_until_ready(jax.tree.leaves(posterior.belief))
        return posterior

    posterior = fitted()
    same = agree(np.asarray(posterior.predict(new).mean), np.array(worker.ask("probabilities")["probabilities"]))
    call = {"fit": fitted, "predict": lambda: np.asarray(posterior.predict(new).mean)}[what]
    unit = {"fit": "fit", "predict": "prediction of 50 rows"}[what]
    return Race(
        (here("lamu", call),),
        (worker.side("laplace-torch", what),),
        unit,
        same,
        rounds,
        (worker,),
        first="ran before",
        spins=True,
    )


@row("laplace_fit", "Laplace of all weights, the fit again")
def laplace_fit(quick: bool) -> Race:
    return warm("all", "fit", 5 if quick else 20)


@row("laplace_predict", "Laplace of all weights, prediction of 50 rows again")
def laplace_predict(quick: bool) -> Race:
    return warm("all", "predict", 10 if quick else 50)


@row("last_layer_fit", "Laplace of the last layer, the fit again", quick=False)
def last_layer_fit(quick: bool) -> Race:
    return warm("last_layer", "fit", 20)


@row("last_layer_predict", "Laplace of the last layer, prediction of 50 rows again", quick=False)
def last_layer_predict(quick: bool) -> Race:
    return warm("last_layer", "predict", 50)


@row("laplace_convnet_first", "Laplace of all weights of a ConvNet, import to first prediction", quick=False)
def laplace_convnet_first(quick: bool) -> Race:
    return first_prediction("all", 8, images=True)


@row("laplace_convnet_fit", "Laplace of all weights of a ConvNet, the fit again", quick=False)
def laplace_convnet_fit(quick: bool) -> Race:
    return warm("all", "fit", 10, images=True)


@row("laplace_convnet_predict", "Laplace of all weights of a ConvNet, prediction of 50 rows again", quick=False)
def laplace_convnet_predict(quick: bool) -> Race:
    return warm("all", "predict", 20, images=True)
