"""The rows that the figures are of: settings are chosen on development rows, test rows judge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import lamu
from benchmarks.splits import folder

__all__ = ["Rows", "digits", "fitted", "images", "log_prob", "told"]


@dataclass(frozen=True)
class Rows:
    """Images as rows of pixels.

    Attributes:
        train: rows to learn from, `[N, pixels]`.
        test: rows that judge.
        train_labels: their classes, `[N]`.
        test_labels: of the rows that judge.
    """

    train: np.ndarray
    test: np.ndarray
    train_labels: np.ndarray
    test_labels: np.ndarray


def digits(development: bool = False) -> Rows:
    """Returns scikit-learn's digits, cut to black and white at half of the ink: 1,200 rows to learn from.

    Args:
        development: whether the 300 development rows stand in the place of the 297 that judge.
    """
    x, y = (np.asarray(part) for part in lamu.data.load("digits"))
    pixels = (x.reshape(len(x), -1) > 0.5 * x.max()).astype(np.float32)
    order = np.random.default_rng(7).permutation(len(pixels))
    train, test = order[:1200], order[1200:1500] if development else order[1500:]
    return Rows(pixels[train], pixels[test], y[train], y[test])


def images(name: str, binary: bool, development: bool = False) -> Rows:
    """Returns "mnist" or "fashion_mnist" with pixels in [0, 1].

    Args:
        name: of the set.
        binary: whether a pixel is one draw of ink, 0 or 1, the same in every run; else a grey value with uniform noise
            of its step, so that no pixel is constant.
        development: whether the last 10,000 training images stand in the place of the test images, and are not
            learned from.
    """
    with np.load(folder() / "images" / f"{name}.npz") as archive:
        parts = {part: archive[part] for part in ("X_train", "X_test", "y_train", "y_test")}
    random = np.random.default_rng(0)

    def pixels(x: np.ndarray) -> np.ndarray:
        noise, flat = random.uniform(size=(len(x), 784)), x.reshape(-1, 784)
        return (noise < flat / 255 if binary else (flat + noise) / 256).astype(np.float32)

    train, test = pixels(parts["X_train"]), pixels(parts["X_test"])
    if development:
        return Rows(train[:-10_000], train[-10_000:], parts["y_train"][:-10_000], parts["y_train"][-10_000:])
    return Rows(train, test, parts["y_train"], parts["y_test"])


def fitted(graph: lamu.Graph, y: np.ndarray, rate: float, steps: int, seed: int = 0) -> lamu.Posterior:
    """Returns the posterior of steps of Adam on batches of 128, its rate falling to zero."""
    adam = lamu.algorithms.adam(lamu.rate.Annealed(rate))
    return lamu.fit(graph, {"y": y}, adam, steps=steps, batch_size=128, seed=seed).posterior


def log_prob(posterior: lamu.Posterior, y: np.ndarray, samples: int = 128) -> np.ndarray:
    """Returns importance-sampled log densities in nats, one a row."""
    return np.asarray(posterior.log_prob({"y": y}, samples=samples), float)


def told(values: np.ndarray) -> str:
    """Returns a mean over rows with its standard error, as text."""
    return f"{values.mean():8.2f} ± {values.std(ddof=1) / len(values) ** 0.5:.2f}"
