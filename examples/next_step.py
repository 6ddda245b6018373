"""What comes next, and how sure is that? An LSTM on the lynx of Canada and on the letters of a text.

The lynx: the logarithm of the number trapped in a year, given the eight years before. The network is fitted on the
years up to 1900, as a point and by Laplace's method, and asked for each of the next thirty-four, one step ahead. The
script prints the error and the log score beside those of "as this year" and of a linear autoregression, and how many
years lie within the 90 % intervals.

The text: the next letter at every position of a line from film reviews, given those before it. The script prints the
nats a letter of the LSTM, as a point and as a belief, beside those of letter frequencies and of pairs of letters, and
where the belief is uncertain: at the first letter of a word, and within words.

The prior is a normal for all weights, or `Gates`: the biases of the forget gate have mean 1, so that a cell remembers
before it has learned. For the lynx prior and length were chosen on the years 1871 to 1890, by networks fitted on those
before (`--choose` prints these figures, and those of the text on lines that do not judge). For the text no prior was
chosen: both have a normal of scale 1.

The data are read from the folders `rdatasets` and `text` of the path in LAMU_DATA.

    LAMU_DATA=data python examples/next_step.py [--picture next.png] [--choose]
"""

from __future__ import annotations

import argparse
import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np

import lamu
from lamu.likelihoods import Categorical, Gaussian, PerPosition
from lamu.networks import LSTM, EveryStep, OneHot
from lamu.priors import ByPath, Gates, Normal, Prior
from lamu.rate import Annealed

YEARS, FIRST, TRAINED = 8, 50, 80  # in a window; of the series from 1821, those of the first fits, those of the last
LETTERS, LENGTH, TRAIN, TEST = " abcdefghijklmnopqrstuvwxyz'.,", 24, 3000, 500


def gates(scale: float) -> Prior:
    """Returns normal weights of a scale, and biases of cells whose forget gate is open."""
    return ByPath({"*input/bias": Gates((scale,) * 4, locs=(0.0, 1.0, 0.0, 0.0)), "*": Normal(scale)})


PRIORS = {
    "normal, scale 1": Normal(1.0),
    "normal, scale 0.3": Normal(0.3),
    "gates, scale 1": gates(1.0),
    "gates, scale 0.3": gates(0.3),
}
LYNX = {"LSTM, a point (adam)": ("normal, scale 0.3", 300), "LSTM (laplace)": ("gates, scale 1", 1000)}
TEXT = {"LSTM, a point (adam)": "normal, scale 1", "LSTM, a belief (ivon)": "normal, scale 1"}


def gaussian_score(y: np.ndarray, mean: np.ndarray, deviation: float) -> float:
    """Returns the negative log density in nats a row."""
    return float(np.mean(0.5 * ((y - mean) / deviation) ** 2 + np.log(deviation * np.sqrt(2 * np.pi))))


def windows_of(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the years, and windows of the series with the year that follows each."""
    table = np.genfromtxt(folder / "rdatasets" / "lynx.csv", delimiter=",", names=True)
    series = np.log10(table["value"]).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(series, YEARS + 1)
    return table["time"], windows[:, :-1], windows[:, -1]


def ahead(name: str, prior: Prior, steps: int, x: np.ndarray, y: np.ndarray, train: slice, test: slice) -> Any:
    """Returns the predictions of an LSTM, a year ahead."""
    model = lamu.Model(LSTM((8,)), Gaussian(), prior).standardised(x[train], y[train])
    finder = lamu.algorithms.adam(Annealed(0.03))
    method = finder if "adam" in name else lamu.algorithms.laplace(finder)
    fit = lamu.fit(model, (x[train], y[train]), method, steps=steps, batch_size=len(y[train]))
    return fit.posterior.predict(x[test])


def lynx(folder: Path, picture: str | None) -> None:
    time, x, y = windows_of(folder)
    train, test = slice(0, TRAINED - YEARS), slice(TRAINED - YEARS, None)
    print(f"{'lynx':34}{'error':>8}{'nats':>8}{'within 90 %':>13}")

    for name, lags in (("as this year", 0), ("linear autoregression, 2 years", 2)):
        past = x[:, YEARS - lags :]
        design = np.column_stack([np.ones(len(x)), past])
        weights = np.linalg.lstsq(design[train], y[train])[0] if lags else None
        mean = design @ weights if weights is not None else x[:, -1]
        deviation = float(np.std((y - mean)[train]))
        inside = float(np.mean(np.abs(y - mean)[test] <= 1.645 * deviation))
        error = float(np.sqrt(np.mean((y - mean)[test] ** 2)))
        print(f"{name:34}{error:8.3f}{gaussian_score(y[test], mean[test], deviation):8.3f}{inside:13.2f}")

    for name, (prior, steps) in LYNX.items():
        pred = ahead(name, PRIORS[prior], steps, x, y, train, test)
        low, high = pred.interval(0.9)
        inside = float(np.mean((y[test] >= low) & (y[test] <= high)))
        error, nats = lamu.scores.rmse(pred, y[test]), lamu.scores.nll(pred, y[test])
        print(f"{name:34}{error:8.3f}{nats:8.3g}{inside:13.2f}", flush=True)
    print()
    if picture:
        draw(picture, time, np.concatenate([x[0], y]), pred)


def draw(path: str, time: np.ndarray, series: np.ndarray, pred: Any) -> None:
    from lamu.plots.style import ACCENT, GREY, INK, PALE, canvas, head, tidy

    figure = canvas(7.6, 3.2)
    axes = figure.subplots()
    asked = time[-len(pred.mean) :]
    axes.fill_between(asked, *pred.interval(0.9), color=PALE, linewidth=0, label="90 % interval")
    axes.plot(time, series, "o-", color=INK, markersize=2.5, linewidth=0.8, label="trapped")
    axes.plot(asked, pred.mean, color=ACCENT, linewidth=1.4, label="predicted a year ahead")
    axes.axvline(asked[0] - 0.5, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set(xlabel="year", ylabel="lynx", xlim=(time[0], time[-1]))
    axes.set_yticks((2, 3), ("100", "1,000"))
    axes.legend(loc="lower left", frameon=False, fontsize=7.5, labelcolor=INK, ncols=2)
    head(axes, "Lynx trapped in Canada", "the LSTM has seen the years left of the line")
    tidy(axes)
    figure.savefig(path)


def lines_of(folder: Path) -> np.ndarray:
    """Returns lines of codes of letters, `[lines, length + 1]`, in the order of the text."""
    with np.load(folder / "text" / "movie_polarity.npz") as data:
        words = data["vocab"][data["tokens"]]
    text = " ".join(word for word in words if word != "<unk>")
    codes = np.array([LETTERS.index(letter) for letter in text if letter in LETTERS])
    count = TRAIN + 2 * TEST  # to learn from, to choose by, and to judge by
    return codes[: count * (LENGTH + 1)].reshape(count, LENGTH + 1)


def letters(name: str, prior: Prior, x: np.ndarray, y: np.ndarray, train: slice, test: slice) -> Any:
    """Returns the predictions of an LSTM for every letter of other lines."""
    network = OneHot(LSTM((64,), readout=EveryStep()), len(LETTERS))
    model = lamu.Model(network, PerPosition(Categorical(len(LETTERS)), (LENGTH,)), prior)
    method = lamu.algorithms.adam(Annealed(0.01)) if "adam" in name else lamu.algorithms.ivon()
    posterior = lamu.fit(model, (x[train], y[train]), method, steps=1200, batch_size=64).posterior
    return posterior.predict(x[test], samples=32)


def nats(pred: Any, y: np.ndarray) -> float:
    """Returns the negative log probability of a letter."""
    return float(-np.mean(np.log(np.take_along_axis(np.asarray(pred.mean), y[..., None], axis=-1))))


def text(folder: Path) -> None:
    lines = lines_of(folder)
    x, y, size = lines[:, :-1].astype(np.float32), lines[:, 1:], len(LETTERS)
    train, test = slice(0, TRAIN), slice(TRAIN + TEST, None)
    pairs = np.full((size, size), 0.5)
    np.add.at(pairs, (lines[train, :-1], y[train]), 1.0)
    alone = np.broadcast_to(pairs.sum(axis=0), pairs.shape)
    print(f"{'text':34}{'nats a letter':>14}{'accuracy':>10}")
    for name, counts in (("frequencies", alone), ("pairs of letters", pairs)):
        p = (counts / counts.sum(axis=1, keepdims=True))[lines[test, :-1]]
        loss = -np.mean(np.log(np.take_along_axis(p, y[test][..., None], axis=-1)))
        print(f"{name:34}{loss:14.4f}{np.mean(p.argmax(axis=-1) == y[test]):10.4f}")

    for name, prior in TEXT.items():
        pred = letters(name, PRIORS[prior], x, y, train, test)
        print(f"{name:34}{nats(pred, y[test]):14.4f}{lamu.scores.accuracy(pred, y[test]):10.4f}", flush=True)
    first = x[test] == LETTERS.index(" ")
    for where, chosen in (("first letters of words", first), ("letters within words", ~first)):
        total, epistemic = (np.asarray(part)[chosen].mean() for part in (pred.total, pred.epistemic))
        print(f"  {where}: entropy {total:.3f} nats, of which about the weights {epistemic:.3f}")


def choose(folder: Path) -> None:
    """Prints the log scores that the settings were chosen by: years up to 1890, and lines that judge nothing."""
    _, x, y = windows_of(folder)
    train, kept = slice(0, FIRST - YEARS), slice(FIRST - YEARS, FIRST - YEARS + 20)
    for name in LYNX:
        for prior, steps in itertools.product(PRIORS, (300, 1000)):
            pred = ahead(name, PRIORS[prior], steps, x, y, train, kept)
            print(f"{name}, {prior}, {steps} steps: {lamu.scores.nll(pred, y[kept]):.3f}", flush=True)
    lines = lines_of(folder)
    x, y = lines[:, :-1].astype(np.float32), lines[:, 1:]
    train, kept = slice(0, TRAIN), slice(TRAIN, TRAIN + TEST)
    for name, prior in itertools.product(TEXT, PRIORS):
        print(f"{name}, {prior}: {nats(letters(name, PRIORS[prior], x, y, train, kept), y[kept]):.4f}", flush=True)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--picture")
    options.add_argument("--choose", action="store_true")
    arguments = options.parse_args()
    folder = Path(os.environ.get("LAMU_DATA", ""))
    if not ("LAMU_DATA" in os.environ and (folder / "text").is_dir()):
        print("LAMU_DATA names no folder with rdatasets/lynx.csv and text/; set it to where the data are")
        return
    if arguments.choose:
        choose(folder)
        return
    lynx(folder, arguments.picture)
    text(folder)


if __name__ == "__main__":
    main()
