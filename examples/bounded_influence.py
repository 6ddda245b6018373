r"""How much may one observation say? The score of three likelihoods, and what one row that moves away does to a fit.

The score \(\psi(r) = \partial \log p(y \mid f) / \partial f\) of a residual r is the pull of a row on its prediction. A
Gaussian's grows without bound, that of a Laplace distribution (the likelihood of the median) keeps its size, and
Student's redescends: a row that is far away is taken for an outlier. The script moves one of forty targets away and
prints how far the predictions at its input follow, in units of the noise.

    python examples/bounded_influence.py [--picture influence.png]
"""

from __future__ import annotations

import argparse
import warnings

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from lamu.convergence import Unconverged
from lamu.likelihoods import Gaussian, Likelihood, Quantile, StudentT

ROWS, NOISE, MOVED = 40, 1.0, 30  # the row that is moved lies inside the data
SHIFTS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
random = np.random.default_rng(0)
X = np.sort(random.uniform(-2, 2, ROWS))[:, None]
Y = 1.5 * X[:, 0] + NOISE * random.normal(size=ROWS)
LIKELIHOODS: dict[str, Likelihood] = {
    "Gaussian": Gaussian(NOISE),
    "Laplace": Quantile(0.5),
    "Student-t, 4 degrees": StudentT(4.0),
}
RESIDUALS = jnp.linspace(-8.0, 8.0, 401)


def score(likelihood: Likelihood) -> jax.Array:
    """Returns the derivative of log p(y | f) in f at y = r, f = 0, with dispersions of scale one."""
    dispersions = jax.tree.map(jnp.zeros_like, likelihood.init(jnp.asarray(Y)))
    log_prob = lambda f: jnp.sum(likelihood.log_prob(dispersions, f[:, None], RESIDUALS))
    return jax.grad(log_prob)(jnp.zeros_like(RESIDUALS))


def followed(likelihood: Likelihood) -> list[float]:
    """Returns how far the prediction at the moved row follows it, for each shift."""
    found = []
    for shift in SHIFTS:
        y = Y + shift * NOISE * (np.arange(ROWS) == MOVED)
        with warnings.catch_warnings():
            # The mode under a density with a kink is at the kink, where no gradient vanishes.
            warnings.simplefilter("ignore", Unconverged)
            posterior = lamu.regression(X, y, likelihood=likelihood)
        found.append(float(posterior.predict(X[MOVED : MOVED + 1]).mean[0]))
    return [value - found[0] for value in found]


def draw(path: str, moves: dict[str, list[float]]) -> None:
    from lamu.plots.style import ACCENT, GREY, INK, canvas, head, tidy

    figure = canvas(8.4, 3.4)
    pulls, fits = figure.subplots(1, 2)
    for (name, likelihood), colour in zip(LIKELIHOODS.items(), (GREY, INK, ACCENT), strict=True):
        pulls.plot(RESIDUALS, score(likelihood), color=colour, linewidth=1.4, label=name)
        fits.plot(SHIFTS, moves[name], "o-", color=colour, markersize=4, linewidth=1.4, label=name)
    pulls.set(xlabel="residual, in scales", ylabel="score", ylim=(-3.2, 3.2))
    fits.set(xlabel="shift of one target, in deviations of the noise", ylabel="shift of its prediction")
    head(pulls, "The pull of a row", "unbounded, bounded, redescending")
    head(fits, "What one row does", f"a line through {ROWS} rows")
    fits.legend(loc="best", frameon=False, fontsize=8, labelcolor=INK)
    for axes in figure.axes:
        tidy(axes)
    figure.savefig(path)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--picture")
    picture = options.parse_args().picture
    print(f"{'shift of the target':22}" + "".join(f"{shift:7.0f}" for shift in SHIFTS))
    moves = {}
    for name, likelihood in LIKELIHOODS.items():
        moves[name] = followed(likelihood)
        print(f"{name:22}" + "".join(f"{move:7.3f}" for move in moves[name]), flush=True)
    if picture:
        draw(picture, moves)


if __name__ == "__main__":
    main()
