"""Networks of other libraries, trained there, and their posterior in a few lines: `python -m benchmarks.third_party`.

Twelve networks (`benchmarks/third_party_networks.py`) as the tutorials of PyTorch, Flax, Equinox and scikit-learn write
them are trained by their own libraries, without weight decay or early stopping. A tenth of the rows is kept apart for
the scale of the prior. The gates of each network:

- at most ten lines of Lamu;
- outputs equal to the library's own: |f - g| at most 1e-5 (1 + |g|) for every output;
- the calibration error halved, or already below .01 as trained;
- accuracy within .3 points of the network's as trained, or better;
- at most 2 GB of memory in the process;
- the posterior takes at most a tenth of the training, in seconds of the processor, all compilation included (the
  table names the seconds of XLA's compiler within them).

    python -m benchmarks.third_party [NAME ...]            judged rows
    python -m benchmarks.third_party --develop [NAME ...]  development rows
"""

from __future__ import annotations

import argparse
import inspect
import json
import logging
import os
import resource
import subprocess
import sys
import time
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from benchmarks.splits import DEVELOPMENT, JUDGED, folder
from benchmarks.third_party_networks import NETWORKS, Network, Parts
from lamu.predictives.approximate_classes import ClassProbabilities

__all__ = ["main"]

_TEST = 10_000
_WORDS = 24


def parts(data: str, develop: bool) -> Parts:
    """Returns the rows of a set: judged are test images of Fashion-MNIST, judged splits of the others, new scenes."""
    if data in ("fashion", "small_fashion"):
        with np.load(folder() / "images" / "fashion_mnist.npz") as archive:
            x, y, to, at = (archive[name] for name in ("X_train", "y_train", "X_test", "y_test"))
        if develop:
            x, y, to, at = x[:-_TEST], y[:-_TEST], x[-_TEST:], y[-_TEST:]
        kept = len(x) // 10
        rows = [(x[:-kept], y[:-kept]), (x[-kept:], y[-kept:]), (to, at)]
        side = 14 if data == "small_fashion" else 28
        return Parts(*((_pixels(a, side), b.astype(np.int32)) for a, b in rows))
    if data == "scenes":
        return _scenes(develop)
    path = {"satellite": "tabular/satellite.npz", "sentences": "text/movie_polarity.npz"}[data]
    with np.load(folder() / path) as archive:
        if data == "satellite":
            x, y = archive["X"].astype(np.float32), archive["y"]
        else:
            tokens, ends, y = archive["tokens"], archive["offsets"], archive["y"]
            starts = np.minimum(np.arange(_WORDS)[None] + ends[:-1, None], len(tokens) - 1)
            x = np.where(starts < ends[1:, None], tokens[starts], 0).astype(np.float32)
    y = np.unique(y, return_inverse=True)[1].astype(np.int32)
    learned, test = lamu.data.split(y, 0.3, (DEVELOPMENT if develop else JUDGED)[0], stratify=True)
    train, kept = (learned[rows] for rows in lamu.data.split(y[learned], 0.1, 0, stratify=True))
    if data == "satellite":
        x = (x - x[train].mean(axis=0)) / x[train].std(axis=0)
    return Parts((x[train], y[train]), (x[kept], y[kept]), (x[test], y[test]))


def _pixels(images: np.ndarray, side: int) -> np.ndarray:
    size = images.shape[1] // side
    smaller = images.reshape(-1, side, size, side, size).mean(axis=(2, 4)) / 255
    return smaller[:, None].astype(np.float32)


def _scenes(develop: bool) -> Parts:
    from examples.dense_prediction import scenes

    x, y = lamu.data.load("digits")
    known = np.flatnonzero(np.asarray(y) < 8)
    images, labels = np.asarray(x, np.float32)[known].reshape(-1, 8, 8), np.asarray(y)[known]
    learned, test = lamu.data.split(labels, 0.4, (DEVELOPMENT if develop else JUDGED)[0], stratify=True)
    train, kept = (learned[rows] for rows in lamu.data.split(labels[learned], 0.2, 0, stratify=True))
    made = [
        scenes(images[rows], labels[rows], count, seed)
        for rows, count, seed in ((train, 5000, 1), (kept, 500, 2), (test, 1000, 3))
    ]
    return Parts(*((a[:, None], b.astype(np.int32)) for a, b in made))


def run(name: str, develop: bool) -> dict[str, Any]:
    """Returns what was measured of one network."""
    network = NETWORKS[name]()
    rows = parts(network.data, develop)
    x, y = rows.test
    start = time.process_time()
    network.train(*rows.train)
    training = time.process_time() - start
    own = _log_probabilities(network.outputs(x), y)
    compiled: list[float] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(seconds) if event.endswith("backend_compile_duration") else None
    )
    start = time.process_time()
    posterior = network.posterior(rows)
    taken = time.process_time() - start
    compiling = sum(compiled)
    few = x[:256]
    outputs = network.as_own(posterior.model.outputs(posterior.mean, posterior.network_state, network.given(few))[0])
    expected = _classes_last(network.outputs(few)).reshape(outputs.shape)
    return {
        "lines": _lines(network),
        "distance": float((np.abs(outputs - expected) / (1 + np.abs(expected))).max()),
        "trained": scores(own, y),
        "posterior": scores(np.log(np.maximum(np.asarray(posterior.predict(network.given(x)).mean), 1e-12)), y),
        "scale": float(posterior.model.prior.scale),
        "training": training,
        "seconds": taken,
        "compiling": compiling,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def scores(log_probabilities: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Returns accuracy, nats a target, and the calibration error in 15 bins of equal mass."""
    flat = jnp.asarray(log_probabilities.reshape(-1, log_probabilities.shape[-1]))
    pred, labels = ClassProbabilities(flat, jnp.zeros(len(flat)), False), y.reshape(-1)
    nll, ece = lamu.scores.nll(pred, labels), lamu.scores.ece(pred, labels, bins=15)
    return float(lamu.scores.accuracy(pred, labels)), float(nll), float(ece)


def gates(found: dict[str, Any]) -> dict[str, bool]:
    """Returns which gates are met."""
    (accuracy, _, error), (after, _, calibrated) = found["trained"], found["posterior"]
    return {
        "lines": found["lines"] <= 10,
        "outputs": found["distance"] <= 1e-5,
        "ece": calibrated <= error / 2 or max(error, calibrated) <= 0.01,
        "accuracy": after >= accuracy - 0.003,
        "memory": found["memory"] <= 2,
        "time": found["seconds"] <= 0.1 * found["training"],
    }


def _log_probabilities(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns log probabilities `[targets, classes]` of a library's outputs, whose classes may be channels."""
    return np.asarray(jax.nn.log_softmax(_classes_last(f).reshape(y.size, -1)))


def _classes_last(f: np.ndarray) -> np.ndarray:
    return np.moveaxis(f, 1, -1) if f.ndim > 2 else f


def _lines(network: Network) -> int:
    """Returns how many lines of code the posterior takes."""
    lines = inspect.getsource(network.posterior).splitlines()[1:]
    return sum(bool(line.strip()) for line in lines)


def main() -> None:
    """Runs each network in a process of its own, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ", ".join(NETWORKS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of {known}; all where none is named")
    parser.add_argument("--develop", action="store_true", help="development rows in the place of judged ones")
    parser.add_argument("--one", action="store_true", help="one network in this process, as JSON")
    options = parser.parse_args()
    develop, names = options.develop, options.names
    for name in names:
        if name not in NETWORKS:
            parser.error(f"no network has the name {name!r}; there are {known}")
    if options.one:
        warnings.simplefilter("ignore", lamu.Unconverged)  # trained without a prior: the weights are no mode under one
        logging.getLogger("lamu").setLevel(logging.ERROR)
        print(json.dumps(run(names[0], develop)))
        return
    head = "accuracy         nll              ece              "
    print(f"{'':20}{head}scale  lines  outputs  training  posterior (compiler)  memory  missed")
    passed = 0
    for name in names or NETWORKS:
        command = [sys.executable, "-m", "benchmarks.third_party", "--one", name, *["--develop"] * develop]
        # PyTorch's second thread spins where it waits, which would count as training.
        own = os.environ | {"JAX_ENABLE_X64": "0", "JAX_ENABLE_COMPILATION_CACHE": "0", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=own)
        if done.returncode:
            print(f"{name:20}failed: {done.stderr.strip().splitlines()[-1]}", flush=True)
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        missed = [gate for gate, met in gates(found).items() if not met]
        passed += not missed
        pairs = "".join(f"{a:.4f} {b:.4f}    " for a, b in zip(found["trained"], found["posterior"], strict=True))
        seconds = f"{found['training']:6.0f} s  {found['seconds']:7.1f} s ({found['compiling']:6.1f} s)"
        print(
            f"{name:20}{pairs}{found['scale']:5.3f}  {found['lines']:5}  {found['distance']:7.1e}"
            f"  {seconds}  {found['memory']:3.1f} GB  {', '.join(missed)}",
            flush=True,
        )
    print(f"{passed} of {len(names or NETWORKS)} pass every gate")


if __name__ == "__main__":
    main()
