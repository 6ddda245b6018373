"""The textbook's Bayesian network on a line: what it believes before any data, and after forty rows.

The model is `lamu.presets.textbook_regression()`: weights are N(0, 5), the noise has the prior Gamma(1/2, 1), and two
hidden layers of ten units stand between x and y. The no-U-turn sampler draws from its posterior. The rows leave a gap;
the script prints how far the 90 % bands of the function and of a new target reach at a row, in the gap, and beyond all
rows, and what is believed of the noise.

    python examples/textbook_regression.py [--picture bands.png]
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import numpy as np

import lamu
from lamu.presets import textbook_regression

NOISE = 0.15
LINE = np.linspace(-1.6, 1.6, 200, dtype=np.float32)[:, None]


def truth(x: np.ndarray) -> np.ndarray:
    return np.sin(3 * x) + 0.5 * x


def rows() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = np.concatenate([random.uniform(-1.1, -0.3, 20), random.uniform(0.4, 1.1, 20)])[:, None]
    return x.astype(np.float32), (truth(x[:, 0]) + NOISE * random.normal(size=40)).astype(np.float32)


def band(pred: Any) -> np.ndarray:
    """Returns the ends between which 90 % of the functions lie, `[2, points]`."""
    return np.quantile(np.asarray(pred.f)[:, :, 0], (0.05, 0.95), axis=0)


def draw(path: str, before: np.ndarray, pred: Any, x: np.ndarray, y: np.ndarray) -> None:
    from lamu.plots.style import ACCENT, GREY, INK, PALE, canvas, head, tidy

    figure = canvas(8.4, 3.4)
    prior, posterior = figure.subplots(1, 2)
    for function, colour in zip(before, (ACCENT, INK, GREY, "#d66e2d", "#3e8c5c", "#785eaa"), strict=True):
        prior.plot(LINE[:, 0], function, color=colour, linewidth=1.1)
    head(prior, "Before the data", "functions under w ~ N(0, 5)")
    posterior.fill_between(LINE[:, 0], *pred.interval(0.9), color=PALE, linewidth=0, label="90 % of targets")
    posterior.fill_between(LINE[:, 0], *band(pred), color=ACCENT, alpha=0.3, linewidth=0, label="90 % of functions")
    posterior.plot(LINE[:, 0], pred.mean, color=ACCENT, linewidth=1.4, label="mean")
    posterior.plot(LINE[:, 0], truth(LINE[:, 0]), color=INK, linewidth=0.9, linestyle=(0, (4, 3)), label="truth")
    posterior.scatter(x[:, 0], y, s=9, color=INK, zorder=3, linewidths=0)
    posterior.set(ylim=(-5, 5))
    posterior.legend(loc="upper left", frameon=False, fontsize=7.5, labelcolor=INK)
    head(posterior, "After 40 rows", "no-U-turn sampler")
    for axes in (prior, posterior):
        axes.set(xlabel="x", xlim=(LINE[0, 0], LINE[-1, 0]))
        tidy(axes)
    figure.savefig(path)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--picture")
    picture = options.parse_args().picture
    (x, y), model = rows(), textbook_regression()
    fit = lamu.fit(model, (x, y), lamu.mcmc.nuts(chains=2, warmup=300, draws=300), seed=0)
    sigma = np.exp(np.asarray(fit.posterior.samples["likelihood"]["log_scale"]))
    print(f"noise: {sigma.mean():.3f} ± {sigma.std():.3f} (true: {NOISE})")
    pred = fit.posterior.predict(LINE, samples=600)
    (low, high), (below, above) = pred.interval(0.9), band(pred)
    print(f"{'':14}{'function':>10}{'target':>10}   (half a 90 % band)")
    for name, at in (("at a row", -0.6), ("in the gap", 0.05), ("beyond", 1.5)):
        i = int(np.argmin(np.abs(LINE[:, 0] - at)))
        print(f"{name:14}{(above[i] - below[i]) / 2:10.3f}{(high[i] - low[i]) / 2:10.3f}")
    if picture:
        draw(picture, np.asarray(model.prior_mean(jax.random.key(1), 6, LINE)), pred, x, y)


if __name__ == "__main__":
    main()
