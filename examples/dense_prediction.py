"""Where does a segmentation not know? Scenes made of digits, a U-Net, and the entropy of every pixel.

A scene is a dark field with two handwritten digits at random places, under noise; each pixel of ink has the digit as
its class, all others the background. Digits 0 to 7 are in the scenes for training. Four U-Nets are fitted from starts
of their own: each is a point estimate, and together they are an ensemble, a mixture of four points. Both are judged on
scenes made of digits that nothing has seen: does the entropy of a pixel tell the wrong pixels from the right ones,
among all and among those of ink, and the ink of a class that was never shown, 8 and 9, from the ink of known ones?

The settings were chosen on the development scenes, made of other digits (`--develop` judges those).

    python examples/dense_prediction.py [--develop] [--picture scenes.png]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np

import lamu
from lamu.algorithms import adam, deep_ensemble
from lamu.likelihoods import Categorical, PerPosition
from lamu.networks import GroupNorm, UNet
from lamu.predictives import Sampled
from lamu.rate import Annealed

SIDE, DIGITS, KNOWN = 16, 2, 8
BACKGROUND, NEW = KNOWN, KNOWN + 1  # classes of pixels beside the known digits; the network has no output for NEW
NOISE, INK = 0.15, 0.3  # of the pixels, from 0 to 1; ink is where a digit is lighter
STEPS, BATCH, MEMBERS = 1000, 16, 4


def scenes(images: np.ndarray, labels: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns scenes `[count, side, side]` and the class of every pixel; later digits lie above earlier ones."""
    random = np.random.default_rng(seed)
    size = images.shape[1]
    x, y = np.zeros((count, SIDE, SIDE)), np.full((count, SIDE, SIDE), BACKGROUND)
    for scene in range(count):
        for chosen in random.integers(len(images), size=DIGITS):
            row, column = random.integers(SIDE - size + 1, size=2)
            place = (scene, slice(row, row + size), slice(column, column + size))
            ink = images[chosen] > INK
            x[place] = np.where(ink, images[chosen], x[place])
            y[place] = np.where(ink, labels[chosen], y[place])
    return (x + NOISE * random.normal(size=x.shape)).astype(np.float32), y


def judged(pred: Any, y: np.ndarray, other: Any, z: np.ndarray) -> np.ndarray:
    """Returns the share of right pixels, and how well entropy finds wrong pixels, wrong ink, and ink of a new class."""
    doubt, wrong = lamu.scores.entropy(pred), pred.support.labels(np.asarray(pred.mean)) != y
    ink = y != BACKGROUND
    return np.array(
        [
            lamu.scores.accuracy(pred, y),
            lamu.scores.auroc(doubt[~wrong], doubt[wrong]),
            lamu.scores.auroc(doubt[ink & ~wrong], doubt[ink & wrong]),
            lamu.scores.auroc(doubt[ink], lamu.scores.entropy(other)[z != BACKGROUND]),
        ]
    )


def draw(path: str, columns: list[tuple[np.ndarray, np.ndarray, Any, Any]]) -> None:
    """Draws scenes: image, classes, and the entropy of one network and of the ensemble."""
    from lamu.plots.style import INK as DARK
    from lamu.plots.style import canvas

    figure = canvas(1.55 * len(columns), 6.2)
    axes = figure.subplots(4, len(columns))
    most = float(np.log(KNOWN + 1))
    for column, (image, classes, one, all_of_them) in zip(axes.T, columns, strict=True):
        column[0].imshow(image, cmap="gray")
        column[1].imshow(classes, cmap="tab10", vmin=0, vmax=9, interpolation="nearest")
        column[2].imshow(one, cmap="magma", vmin=0, vmax=most)
        column[3].imshow(all_of_them, cmap="magma", vmin=0, vmax=most)
        shown = sorted({"new" if k == NEW else str(k) for k in classes[classes != BACKGROUND].tolist()})
        column[0].set_title(", ".join(shown), fontsize=9, color=DARK)
    for place in axes.ravel():
        place.set(xticks=(), yticks=())
    for row, name in zip(axes[:, 0], ("scene", "classes", "entropy, a point", "entropy, four"), strict=True):
        row.set_ylabel(name, fontsize=9, color=DARK)
    figure.savefig(path)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--develop", action="store_true")
    options.add_argument("--picture")
    asked = options.parse_args()

    x, y = lamu.data.load("digits")
    images, known, order = x.reshape(-1, 8, 8), y < KNOWN, np.random.default_rng(0).permutation(len(x))
    train, rows = order[:900], order[900:1300] if asked.develop else order[1300:]
    parts = (train[known[train]], rows[known[rows]], rows[~known[rows]])
    counts, seeds = (1000, 200, 200), (1, 2, 3)
    (x, targets), seen, unseen = (
        scenes(images[part], np.where(known, y, NEW)[part], count, seed)
        for part, count, seed in zip(parts, counts, seeds, strict=True)
    )

    network = UNet((8, 16, 32), normalise=GroupNorm(4))
    model = lamu.Model(network, PerPosition(Categorical(KNOWN + 1), (SIDE, SIDE)))
    method = deep_ensemble(adam(Annealed(0.01)), MEMBERS)
    posterior = lamu.fit(model, (x, targets), method, steps=STEPS, batch_size=BATCH).posterior
    alone = [replace(posterior, belief=member, rule=Sampled()) for member in posterior.belief.members]
    predictions = [[each.predict(part) for part, _ in (seen, unseen)] for each in (*alone, posterior)]
    found = np.array([judged(pred, seen[1], other, unseen[1]) for pred, other in predictions])
    print(f"{'':24}{'accuracy':>10}{'wrong pixels':>14}{'wrong ink':>12}{'new class':>12}   (AUROC of entropy)")
    lines = {"a point, mean of four": found[:-1].mean(axis=0), "the ensemble": found[-1]}
    for name, (accuracy, *others) in lines.items():
        print(f"{name:24}{accuracy:10.4f}{others[0]:14.4f}{others[1]:12.4f}{others[2]:12.4f}")
    if asked.picture:
        maps = [[lamu.scores.entropy(pred) for pred in pair] for pair in (predictions[0], predictions[-1])]
        draw(
            asked.picture,
            [(seen[0][i], seen[1][i], maps[0][0][i], maps[1][0][i]) for i in range(3)]
            + [(unseen[0][i], unseen[1][i], maps[0][1][i], maps[1][1][i]) for i in range(3)],
        )


if __name__ == "__main__":
    main()
