"""Variational deep learning on images: `python -m benchmarks.variational --data fashion`, and `--data cifar`.

Fashion-MNIST, all of it, with a LeNet-like ConvNet; and a ResNet with filter-response normalisation on CIFAR-10: the
small set of LAMU_DATA, or the whole one where the file that `--file` names holds it under the same four names. Every
recipe takes the same number of gradients of a row, from the same first weights and in the same order; settings are the
shipped ones, the prior one for all. Unknown images, by which a predictive's entropy is judged, are MNIST's for the one
and Fashion-MNIST's, padded and in three equal colours, for the other; AUROC is the share of pairs, one known and one
unknown image, in which the unknown has the larger entropy.

CIFAR-10 is flipped and shifted at random, anew at every pass and for everybody, and a belief counts every image ten
times, ρ = 10, as Osawa et al. (2019) do for such data. With `--ablate`, VOGN with one choice changed at a time: every
image counted once; without momentum; started from Adam's weights after a fifth of the epochs (which count); and images
as they are, counted once, for Adam as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import lamu
from benchmarks.splits import folder
from lamu.priors import Normal

A = lamu.algorithms
BATCH, DRAWS = {"fashion": 128, "cifar": 50}, 32
RECIPES: dict[str, Callable[[], Any]] = {
    "adam": lambda: A.adam(lamu.rate.Annealed(2e-3)),
    "vogn": A.vogn,
    "ivon": A.ivon,
    "slang": A.slang,
}
CHOICES = {"fashion": ("adam", "vogn", "ivon", "slang"), "cifar": ("adam", "vogn", "ivon")}


@dataclass(frozen=True)
class Images:
    """Training and test images, unknown ones, and the network for them."""

    name: str
    x: np.ndarray
    y: np.ndarray
    to: np.ndarray
    at: np.ndarray
    unknown: np.ndarray
    network: Any

    @property
    def model(self) -> lamu.Model:
        return lamu.Model(self.network, lamu.likelihoods.Categorical(10), Normal(0.3))


class Augmented:
    """Batches of images, shifted by up to four pixels and flipped at random, anew at every pass."""

    def __init__(self, x: np.ndarray, y: np.ndarray, size: int, seed: int) -> None:
        self.x, self.y, self.size = x, y, size
        self.padded = np.pad(x, ((0, 0), (4, 4), (4, 4), (0, 0)), mode="reflect")
        self.generator = np.random.default_rng(seed)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        height, width = self.x.shape[1:3]
        order = self.generator.permutation(len(self.x))
        for rows in np.split(order, range(self.size, len(order), self.size)):
            down, right = self.generator.integers(0, 9, (2, len(rows)))
            images = np.stack(
                [self.padded[r, i : i + height, j : j + width] for r, i, j in zip(rows, down, right, strict=True)]
            )
            flip = self.generator.random(len(rows)) < 0.5
            images[flip] = images[flip, :, ::-1]
            yield images, self.y[rows]


def fashion() -> Images:
    """Returns Fashion-MNIST, with MNIST as the unknown."""
    images = folder() / "images"
    with np.load(images / "fashion_mnist.npz") as known, np.load(images / "mnist.npz") as other:
        network = lamu.networks.ConvNet((6, 16), (120, 84), kernel=5)
        return Images("fashion", *arrays(known), scaled(other["X_test"]), network)


def cifar(file: Path | None, depth: int) -> Images:
    """Returns CIFAR-10, with padded Fashion-MNIST as the unknown."""
    images = folder() / "images"
    with np.load(file or images / "cifar10_small.npz") as known, np.load(images / "fashion_mnist.npz") as other:
        grey = np.pad(other["X_test"][:2000], ((0, 0), (2, 2), (2, 2)))
        unknown = scaled(np.repeat(grey[..., None], 3, axis=-1))
        return Images("cifar", *arrays(known), unknown, lamu.networks.ResNet(depth))


def arrays(archive: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the four arrays of a set, pixels about zero."""
    return (
        scaled(archive["X_train"]),
        archive["y_train"].astype(np.int32),
        scaled(archive["X_test"]),
        archive["y_test"].astype(np.int32),
    )


def scaled(pixels: np.ndarray) -> np.ndarray:
    """Returns pixels in units of a quarter of their range, about its middle."""
    return (pixels.astype(np.float32) / 255.0 - 0.5) / 0.25


def judged(title: str, images: Images, fit: Any, seconds: float, base: np.ndarray | None) -> np.ndarray:
    """Prints a line of scores, and returns the log densities of the test rows."""
    pred = fit.posterior.predict(images.to, samples=DRAWS)
    auroc = lamu.scores.auroc(pred.total, fit.posterior.predict(images.unknown, samples=DRAWS).total)
    density = np.asarray(pred.log_prob(images.at))
    away = density - (density if base is None else base)
    error = away.std(ddof=1) / np.sqrt(len(away))
    print(
        f"    {title:36} accuracy {float(lamu.scores.accuracy(pred, images.at)):.4f}   NLL {-density.mean():.4f} "
        f"(less the first {-away.mean():+.4f} ± {error:.4f})   ECE {float(lamu.scores.ece(pred, images.at)):.4f}   "
        f"AUROC {auroc:.4f}   {seconds:.0f} s",
        flush=True,
    )
    return density


def timed(fit: Callable[[], Any]) -> tuple[Any, float]:
    """Returns a fit, and the seconds that it took."""
    start = time.perf_counter()
    return fit(), time.perf_counter() - start


@dataclass(frozen=True)
class Run:
    """How a recipe meets the images.

    Attributes:
        images: the images, with their network.
        epochs: passes over them.
        seed: of weights, order and noise.
        augmented: whether they are flipped and shifted.
        factor: ρ, how many times each is counted.
    """

    images: Images
    epochs: int
    seed: int
    augmented: bool
    factor: float

    def fit(self, algorithm: Any, epochs: int | None = None, start: Any = None) -> Any:
        """Returns the fit of an algorithm, from the model's own start or another."""
        x, y, size, epochs = self.images.x, self.images.y, BATCH[self.images.name], epochs or self.epochs
        model = self.images.model if start is None else self.images.model.starting_at(start)
        options = {"seed": self.seed, "data_size": self.factor * len(x)}
        if not self.augmented:
            return lamu.fit(model, (x, y), algorithm, epochs=epochs, batch_size=size, **options)
        stream = Augmented(x, y, size, self.seed)
        return lamu.fit(model, stream, algorithm, steps=epochs * -(-len(x) // size), **options)


def compare(images: Images, names: list[str], epochs: int, seed: int) -> None:
    """Prints a line a recipe, its NLL beside that of the first."""
    augmented = images.name == "cifar"
    run = Run(images, epochs, seed, augmented, 10.0 if augmented else 1.0)
    print(f"{images.name}: {len(images.x)} images, {epochs} epochs, seed {seed}", flush=True)
    base = None
    for name in names:
        # A point counts its images once: there is no noise that they would bring down, only the prior.
        fit, seconds = timed(partial((replace(run, factor=1.0) if name == "adam" else run).fit, RECIPES[name]()))
        density = judged(name, images, fit, seconds, base)
        base = density if base is None else base


def ablate(images: Images, epochs: int, seed: int) -> None:
    """Prints a line for each choice of VOGN's that is changed."""
    print(f"{images.name}: VOGN with one choice changed, {epochs} epochs, seed {seed}", flush=True)
    run = Run(images, epochs, seed, augmented=True, factor=10.0)
    once, plain = replace(run, factor=1.0), replace(run, augmented=False, factor=1.0)

    def warm() -> Any:
        first = once.fit(RECIPES["adam"](), max(1, epochs // 5)).posterior.mean
        return run.fit(A.vogn(), epochs - epochs // 5, first)

    runs: dict[str, Callable[[], Any]] = {
        "vogn": lambda: run.fit(A.vogn()),
        "counted once": lambda: once.fit(A.vogn()),
        "no momentum": lambda: run.fit(A.vogn(b1=0.0)),
        "warm start": warm,
        "as they are, counted once": lambda: plain.fit(A.vogn()),
        "as they are, adam": lambda: plain.fit(RECIPES["adam"]()),
    }
    base = None
    for title, make in runs.items():
        fit, seconds = timed(make)
        density = judged(title, images, fit, seconds, base)
        base = density if base is None else base
