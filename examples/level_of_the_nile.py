r"""The level of the Nile by EM: a random walk that is observed with noise, also where years are missing.

    x_1 ~ N(0, 10^7),    x_{t+1} = x_t + N(0, q),    y_t = x_t + N(0, r)

The chain of levels is one exponential family. An observation adds to its natural parameters, and a missing one adds
nothing. The E step is the gradient of the log-partition, which is Kalman's smoother; the M step sets both variances to
averages of its moments. Durbin & Koopman (2012), section 2.2.5, print r = 15,099 and q = 1,469.

    LAMU_DATA=data python examples/level_of_the_nile.py [picture.png]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from lamu.families import GaussianChain, NaturalParameters

WIDE = 1e7


def chain(steps: int, q: jax.Array) -> GaussianChain:
    """The random walk before any observation."""
    return GaussianChain.homogeneous(steps, jnp.zeros(1), jnp.full((1, 1), 1 / WIDE), jnp.eye(1), jnp.eye(1) / q)


def posterior(y: jax.Array, q: jax.Array, r: jax.Array) -> tuple[NaturalParameters, jax.Array]:
    """The chain given the observations, and their log likelihood in nats."""
    walk, seen = chain(len(y), q), ~jnp.isnan(y)
    linear, diagonal, coupling = walk.natural().values
    known = jnp.where(seen, y, 0.0)
    values = (linear + known[:, None] / r, diagonal - seen[:, None, None] / (2 * r), coupling)
    belief = NaturalParameters(values, None, GaussianChain)
    constant = -jnp.sum(jnp.where(seen, known**2 / r + jnp.log(2 * jnp.pi * r), 0.0)) / 2
    return belief, belief.log_partition() - walk.log_partition() + constant


@jax.jit
def em(y: jax.Array, q: jax.Array, r: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One step of EM, with the log likelihood before it."""
    belief, log_likelihood = posterior(y, q, r)
    mean, second, cross = (part.reshape(len(part)) for part in belief.expectation().values)
    steps = second[1:] - 2 * cross + second[:-1]  # E (x_{t+1} − x_t)²
    away = jnp.where(jnp.isnan(y), 0.0, y**2 - 2 * y * mean + second)  # E (y_t − x_t)²
    return jnp.mean(steps), jnp.sum(away) / jnp.sum(~jnp.isnan(y)), log_likelihood


def variances(y: jax.Array) -> tuple[float, float, float]:
    """Runs EM until the log likelihood stays, and requires that it never falls."""
    q, r, before = jnp.array(1_000.0), jnp.array(10_000.0), -np.inf
    for _ in range(5_000):
        q, r, log_likelihood = em(y, q, r)
        assert log_likelihood > before - 1e-8, "EM cannot lower the likelihood"
        if log_likelihood - before < 1e-9:
            break
        before = float(log_likelihood)
    return float(q), float(r), before


def main() -> None:
    """Prints both variances, and the level in years that were left out."""
    path = Path(os.environ.get("LAMU_DATA", "")) / "rdatasets" / "nile.csv"
    if not path.is_file():
        print("LAMU_DATA names no folder with rdatasets/nile.csv; set it to where the data are")
        return
    year, flow = np.loadtxt(path, delimiter=",", skiprows=1).T
    q, r, log_likelihood = variances(jnp.asarray(flow))
    print(f"noise    {r:8,.0f}   (15,099)")
    print(f"level    {q:8,.0f}   (1,469)")
    print(f"log likelihood {log_likelihood:.2f} nats")
    assert abs(r / 15_099 - 1) < 0.01
    assert abs(q / 1_469 - 1) < 0.01

    # Durbin & Koopman, section 2.7: twice twenty years are missing.
    missing = ((year >= 1891) & (year <= 1910)) | ((year >= 1931) & (year <= 1950))
    belief, _ = posterior(jnp.asarray(np.where(missing, np.nan, flow)), jnp.array(q), jnp.array(r))
    level = belief.family()
    mean, sd = np.asarray(level.mean)[:, 0], np.sqrt(np.asarray(level.covariance)[:, 0, 0])
    for when in (1885, 1900, 1920, 1940):
        t = int(when - year[0])
        print(f"{when}: level {mean[t]:5.0f} ± {sd[t]:3.0f}{'   missing' if missing[t] else ''}")

    if len(sys.argv) > 1:
        figure, axes = plt.subplots(figsize=(8, 3.5))
        axes.fill_between(year, mean - 2 * sd, mean + 2 * sd, alpha=0.25, label="two standard deviations of the level")
        axes.plot(year, mean, label="level")
        axes.plot(year[~missing], flow[~missing], "k.", markersize=4, label="observed")
        axes.plot(year[missing], flow[missing], ".", color="silver", markersize=4, label="left out")
        axes.set(xlabel="year", ylabel="flow at Aswan ($10^8$ m³ a year)")
        axes.legend(fontsize=8, loc="upper right")
        figure.tight_layout()
        figure.savefig(sys.argv[1], dpi=150)


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
