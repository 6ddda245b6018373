"""Does the worst case nearby help? SGD, SAM, bSAM on Fashion-MNIST: `python -m benchmarks.sharpness [seeds]`.

A small ConvNet, the first 10,000 training images, all 10,000 test images, eight epochs of batches of 128, rates that
fall along half a cosine. SAM and bSAM take two gradients a step, so SGD is shown at twice the epochs as well. Accuracy,
negative log likelihood in nats and calibration error (15 bins), mean and standard error over seeds.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import lamu
from benchmarks.splits import folder
from lamu.rate import Annealed

A = lamu.algorithms
ROWS, EPOCHS, BATCH = 10_000, 8, 128


def contestants() -> dict[str, tuple[Any, int]]:
    return {
        "sgd": (A.sgd(Annealed(0.05), momentum=0.9), EPOCHS),
        "sgd, equal gradients": (A.sgd(Annealed(0.05), momentum=0.9), 2 * EPOCHS),
        "sam": (A.sam(Annealed(0.05), radius=0.05, momentum=0.9), EPOCHS),
        "bsam": (A.bsam(), EPOCHS),
        "ivon, equal gradients": (A.ivon(), 2 * EPOCHS),
    }


def images() -> tuple[np.ndarray, ...]:
    """Returns training and test images in [0, 1], `[N, 28, 28]`, and their labels."""
    with np.load(folder() / "images" / "fashion_mnist.npz") as archive:
        x, y = archive["X_train"][:ROWS], archive["y_train"][:ROWS]
        to, at = archive["X_test"], archive["y_test"]
    scaled = (np.asarray(part, np.float32) / 255 for part in (x, to))
    labels = (np.asarray(part, np.int32) for part in (y, at))
    (x, to), (y, at) = scaled, labels
    return x, y, to, at


def main() -> None:
    """Prints a row an algorithm."""
    x, y, to, at = images()
    model = lamu.Model(lamu.networks.ConvNet(), lamu.likelihoods.Categorical(10), lamu.priors.Normal(1.0))
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
    print(f"{'':24}{'accuracy':>18}{'nll':>18}{'ece':>18}   seconds a fit")
    for name, (algorithm, epochs) in contestants().items():
        rows, start = [], time.perf_counter()
        for seed in seeds:
            fit = lamu.fit(model, (x, y), algorithm, epochs=epochs, batch_size=BATCH, seed=seed)
            pred = fit.posterior.predict(to, samples=16)
            rows.append([score(pred, at) for score in (lamu.scores.accuracy, lamu.scores.nll, lamu.scores.ece)])
        found = np.array(rows, float)
        error = found.std(axis=0, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else np.full(3, np.nan)
        cells = "".join(f"{mean:10.4f} ± {e:.4f}" for mean, e in zip(found.mean(axis=0), error, strict=True))
        print(f"{name:24}{cells}   {(time.perf_counter() - start) / len(rows):10.1f}", flush=True)


if __name__ == "__main__":
    main()
