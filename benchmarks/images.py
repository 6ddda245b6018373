"""Variational deep learning on images: `python -m benchmarks.variational --data fashion`, and `--data cifar`.

Fashion-MNIST, all of it, with a LeNet-like ConvNet; and a ResNet-20 with filter-response normalisation on CIFAR-10: the
small set of LAMU_DATA, or the whole one where the file that `--file` names holds it under the same four names. Every
recipe takes the same number of gradients of a row, from the same first weights and in the same order; settings are the
shipped ones, the prior one for all. Unknown images, by which a predictive's entropy is judged, are MNIST's for the one
and Fashion-MNIST's, padded and in three equal colours, for the other; AUROC is the share of pairs, one known and one
unknown image, in which the unknown has the larger entropy.

With `--ablate`, VOGN on CIFAR-10 with one choice changed at a time: without momentum; started from Adam's weights after
a fifth of the epochs (which count); and on images that are flipped and shifted at random, with the data counted once,
as often as there are such images (ρ = 10 in Osawa et al. 2019), and for Adam as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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


def compare(images: Images, names: list[str], epochs: int, seed: int) -> None:
    """Prints a line a recipe, its NLL beside that of the first."""
    print(f"{images.name}: {len(images.x)} images, {epochs} epochs, seed {seed}", flush=True)
    base, rows = None, (images.x, images.y)
    for name in names:
        options = {"epochs": epochs, "batch_size": BATCH[images.name], "seed": seed}
        fit, seconds = timed(partial(lamu.fit, images.model, rows, RECIPES[name](), **options))
        density = judged(name, images, fit, seconds, base)
        base = density if base is None else base


def ablate(images: Images, epochs: int, seed: int) -> None:
    """Prints a line for each choice of VOGN's that is changed."""
    print(f"{images.name}: VOGN with one choice changed, {epochs} epochs, seed {seed}", flush=True)
    size = BATCH[images.name]
    plain = {"batch_size": size, "seed": seed}
    rows = (images.x, images.y)

    def warm() -> Any:
        first = lamu.fit(images.model, rows, RECIPES["adam"](), epochs=max(1, epochs // 5), **plain).posterior
        return lamu.fit(images.model.starting_at(first.mean), rows, A.vogn(), epochs=epochs - epochs // 5, **plain)

    def augmented(algorithm: Any, rho: float) -> Callable[[], Any]:
        stream, steps = Augmented(*rows, size, seed), epochs * -(-len(images.x) // size)
        return lambda: lamu.fit(images.model, stream, algorithm, steps=steps, seed=seed, data_size=rho * len(images.x))

    runs: dict[str, Callable[[], Any]] = {
        "vogn": lambda: lamu.fit(images.model, rows, A.vogn(), epochs=epochs, **plain),
        "no momentum": lambda: lamu.fit(images.model, rows, A.vogn(b1=0.0), epochs=epochs, **plain),
        "warm start": warm,
        "augmented, adam": augmented(RECIPES["adam"](), 1.0),
        "augmented, counted once": augmented(A.vogn(), 1.0),
        "augmented, counted ten times": augmented(A.vogn(), 10.0),
    }
    base = None
    for title, run in runs.items():
        fit, seconds = timed(run)
        density = judged(title, images, fit, seconds, base)
        base = density if base is None else base
