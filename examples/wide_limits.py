"""Wide networks: a Gaussian process without visible units under normal weights, a jump process under Cauchy weights.

The script draws networks of one hidden layer from two priors, for widths from 16 to 4,096. It prints how far the
kernel of one network is from that of the limit, `lamu.limits.NNGP`, and the share of the largest unit in the variance
of the output: it vanishes for normal weights and stays for Cauchy weights (Neal 1996). With `--picture` both are drawn,
beside functions from the two limits.

    python examples/wide_limits.py [--picture limits.png]
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from lamu.limits import NNGP, StableProcess
from lamu.networks.multilayer import ACTIVATIONS
from lamu.priors import Cauchy, FanIn, Normal

WIDTHS, NETWORKS, GAIN, BIAS = (16, 64, 256, 1024, 4096), 40, 1.4, 0.5
X = jnp.asarray(np.random.default_rng(0).normal(size=(8, 5)), jnp.float32)
LINE = jnp.linspace(-1.0, 1.0, 400)[:, None]
STEEP = 40.0  # of the hidden units in the drawn functions, so that a unit is almost a step


def units(width: int, activation: str, prior: Any, seed: int) -> tuple[jax.Array, jax.Array]:
    """Returns the hidden units of a network drawn from its prior at X, and its output weights."""
    network = lamu.networks.MLP((width,), activation)
    params, _ = network.init(jax.random.key(0), X, 1)
    first, last = (prior.sample(jax.random.key(seed), params)["layers"][layer] for layer in (0, 1))
    return ACTIVATIONS[activation](X @ first["kernel"] + first["bias"]), last["kernel"][:, 0]


def kernel_error(width: int, activation: str) -> float:
    """Returns the median over networks of the largest error of an entry, as a fraction of the largest entry."""
    limit = NNGP(1, activation, GAIN, BIAS).kernel(X)
    errors = []
    for seed in range(NETWORKS):
        hidden, _ = units(width, activation, Normal(FanIn(GAIN, BIAS)), seed)
        found = BIAS**2 + GAIN**2 * hidden @ hidden.T / width
        errors.append(float(jnp.max(jnp.abs(found - limit)) / jnp.max(limit)))
    return float(np.median(errors))


def largest_share(width: int, prior: Any) -> float:
    """Returns the median over networks of the largest unit's share in the variance of the output."""
    shares = []
    for seed in range(NETWORKS):
        hidden, weights = units(width, "erf", prior, seed)
        parts = weights**2 * jnp.sum(hidden**2, axis=0)
        shares.append(float(jnp.max(parts) / jnp.sum(parts)))
    return float(np.median(shares))


def normal_functions(n: int) -> np.ndarray:
    """Returns functions of the Gaussian process on the line, `[n, points]`."""
    kernel = np.asarray(NNGP(1, "erf", STEEP, STEEP).kernel(LINE), float) / STEEP**2 - 1.0  # without the output bias
    return np.random.default_rng(2).multivariate_normal(np.zeros(len(kernel)), kernel, n, check_valid="ignore")


def draw(path: str, errors: dict[str, list[float]], shares: dict[str, list[float]]) -> None:
    from lamu.plots.style import ACCENT, GREY, INK, canvas, head, tidy

    figure = canvas(8.4, 6.0)
    (kernels, largest), (smooth, jumps) = figure.subplots(2, 2)
    for axes, curves in ((kernels, errors), (largest, shares)):
        for (name, values), colour in zip(curves.items(), (ACCENT, INK), strict=True):
            axes.plot(WIDTHS, values, "o-", color=colour, markersize=4, linewidth=1.4, label=name)
        axes.set(xscale="log", yscale="log", xlabel="width")
        axes.minorticks_off()
        axes.set_xticks(WIDTHS, [f"{width:,}" for width in WIDTHS])
        axes.legend(loc="best", frameon=False, fontsize=8, labelcolor=INK)
    kernels.set_yticks((0.02, 0.05, 0.1, 0.2, 0.4), ("2 %", "5 %", "10 %", "20 %", "40 %"))
    largest.set_yticks((0.01, 0.1, 0.5), ("1 %", "10 %", "50 %"))
    kernels.axhline(0.03, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
    kernels.set_ylabel("largest error of a kernel, of its maximum")
    largest.set_ylabel("share of the largest unit")
    head(kernels, "One network against the limit", "dashed: 3 %")
    head(largest, "Does a unit stand out?", f"medians of {NETWORKS} networks")
    cauchy, _ = StableProcess(1.0, "erf", 1.0, STEEP, STEEP).sample(jax.random.key(4), 4, LINE)
    for axes, functions, name in ((smooth, normal_functions(4), "Normal weights"), (jumps, cauchy, "Cauchy weights")):
        for function, colour in zip(np.asarray(functions), (ACCENT, INK, GREY, "#d66e2d"), strict=True):
            axes.plot(LINE[:, 0], function, color=colour, linewidth=1.2)
        axes.set(xlabel="x", ylabel="f(x)")
        head(axes, name, "infinite width, steep units")
    for axes in figure.axes:
        tidy(axes)
    figure.savefig(path)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--picture")
    picture = options.parse_args().picture
    errors: dict[str, list[float]] = {"rectifiers": [], "error functions": []}
    shares: dict[str, list[float]] = {"normal": [], "Cauchy": []}
    print(f"{'width':>6}{'kernel, relu':>15}{'kernel, erf':>14}{'share, normal':>16}{'share, Cauchy':>16}")
    for width in WIDTHS:
        errors["rectifiers"].append(kernel_error(width, "relu"))
        errors["error functions"].append(kernel_error(width, "erf"))
        shares["normal"].append(largest_share(width, Normal(FanIn(GAIN, BIAS))))
        shares["Cauchy"].append(largest_share(width, Cauchy({"layers/1/kernel": 1.0 / width, "*": 1.0})))
        line = [values[-1] for values in (*errors.values(), *shares.values())]
        print(f"{width:6}{line[0]:15.4f}{line[1]:14.4f}{line[2]:16.4f}{line[3]:16.4f}", flush=True)
    if picture:
        draw(picture, errors, shares)


if __name__ == "__main__":
    main()
