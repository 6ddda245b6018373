"""Smooth filters against independent ones on 500 images: `python -m benchmarks.filters`.

A ConvNet learns 500 images of Fashion-MNIST under independent normal weights and under `FilterGroups` for
the convolutions, whose filters are smooth; everything else is the same. The belief is IVON's at a cold temperature: at
T = 1 the bound of a mean field about 13,000 weights and 500 rows is greatest near the prior, and the independent run
does not learn, under a scale of 1, of 0.3 or by fan-in, and with three times as many epochs. The temperature was chosen
on images 2,000 to 3,000 of the training set for the independent prior (`--choose` prints them); the first 2,000 test
images judge. `python -m benchmarks.filters 1` takes one seed.
"""

from __future__ import annotations

import sys

import numpy as np

import lamu
from benchmarks.splits import folder
from benchmarks.targets import paired_rows
from lamu.priors import ByPath, FilterGroups, Normal, Prior

ROWS, CHOOSING, JUDGED = slice(0, 500), slice(2000, 3000), slice(0, 2000)
NETWORK = lamu.networks.ConvNet((4, 8), widths=(32,), kernel=5)
EPOCHS, BATCH, SCALE, LENGTH, TEMPERATURE = 30, 50, 0.3, 2.0, 0.1
SEEDS = (1, 2, 3)  # of the initial weights and of the order of the images


def priors(scale: float, length: float) -> dict[str, Prior]:
    """Returns both priors, of one standard deviation for every weight."""
    smooth = ByPath({"convolutions/*": FilterGroups(scale, length), "*": Normal(scale)})
    return {"independent": Normal(scale), "filter groups": smooth}


def images(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the images of a part, scaled, with their classes."""
    with np.load(folder() / "images" / "fashion_mnist.npz") as archive:
        x, y = archive[f"X_{name}"], archive[f"y_{name}"].astype(np.int32)
    return ((x.astype(np.float32) / 255.0 - 0.5) / 0.25).reshape(-1, 28, 28, 1), y


def held_out(prior: Prior, temperature: float, seed: int, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Returns the log density of each image under the prior's belief about the 500, and the accuracy."""
    inputs, classes = images("train")
    model = lamu.Model(NETWORK, lamu.likelihoods.Categorical(10), prior)
    data = inputs[ROWS], classes[ROWS]
    options = {"epochs": EPOCHS, "batch_size": BATCH, "seed": seed, "temperature": temperature}
    pred = lamu.fit(model, data, lamu.algorithms.ivon(), **options).posterior.predict(x, samples=32)
    return np.asarray(pred.log_prob(y), float), float(lamu.scores.accuracy(pred, y))


def told(name: str, log_prob: np.ndarray, accuracy: float) -> str:
    """Returns a line with the negative log likelihood and its standard error."""
    error = log_prob.std(ddof=1) / len(log_prob) ** 0.5
    return f"{name:34} nll {-log_prob.mean():.4f} ± {error:.4f}   accuracy {accuracy:.4f}"


def choose(temperatures: tuple[float, ...], scales: tuple[float, ...], lengths: tuple[float, ...]) -> None:
    """Prints the figures of development images for every setting."""
    x, y = (part[CHOOSING] for part in images("train"))
    for temperature in temperatures:
        for scale in scales:
            for length in lengths:
                for name, prior in priors(scale, length).items():
                    if name == "filter groups" or length == lengths[0]:
                        words = f"{name}, T {temperature:g}, s {scale:g}, l {length:g}"
                        print(told(words, *held_out(prior, temperature, 0, x, y)), flush=True)


def main() -> None:
    """Prints both priors on the images that judge, and their paired difference."""
    if "--choose" in sys.argv:
        choose((1.0, 0.1, 0.01), (0.1, 0.3, 1.0), (1.0, 2.0, 4.0))
        return
    x, y = (part[JUDGED] for part in images("test"))
    gains = []
    for seed in SEEDS[: int(sys.argv[1]) if sys.argv[1:] else None]:
        found = {name: held_out(prior, TEMPERATURE, seed, x, y) for name, prior in priors(SCALE, LENGTH).items()}
        for name, scores in found.items():
            print(told(f"{name}, seed {seed}", *scores), flush=True)
        gains.append(found["filter groups"][0] - found["independent"][0])
    print(f"filter groups over independent {paired_rows(np.mean(gains, axis=0))} nats an image")


if __name__ == "__main__":
    main()
