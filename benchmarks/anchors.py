"""Bayesian logistic regression beside clean anchors: `python -m benchmarks.anchors`.

The anchors are negative ELBOs in nats by 60-point Gauss–Hermite in float64, each converged to a gradient below 1e-7,
with a properly normalised prior: N(0, 1/δ) on weights, precision 1e-5 on the intercept; a1a with its 1,605 training
rows, australian with the first half of a seeded shuffle. The stochastic beliefs are scored on the exact bound of the
belief where they end; a mixture, whose entropy has no closed form, by 20,000 draws, with their standard error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import lamu
from benchmarks.splits import folder
from lamu.data import Batch
from lamu.expectations import MonteCarlo, Quadrature
from lamu.families import Gaussian
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import Hessian
from lamu.operators import Dense, Diagonal
from lamu.rate import Annealed

__all__ = ["ANCHORS", "a1a", "australian", "dense", "diagonal", "model_of", "negative_elbo", "sampled_negative_elbo"]

# Dense, mean field, Laplace.
ANCHORS = {"a1a": (595.877, 619.954, 596.530), "australian": (196.3288, 208.3305, 198.019)}


def a1a() -> tuple[np.ndarray, np.ndarray, float]:
    """Returns features, labels and δ."""
    with np.load(folder() / "tabular" / "a1a.npz") as data:
        return data["X_train"].astype(float), data["y_train"].astype(int), 2.8072


def australian() -> tuple[np.ndarray, np.ndarray, float]:
    """Returns features, labels and δ."""
    half = np.argsort(np.random.RandomState(1).random_sample(690))[:345]
    with np.load(folder() / "tabular" / "australian.npz") as data:
        return data["X"][half].astype(float), data["y"][half].astype(int), 1e-5


def model_of(delta: float) -> lamu.Model:
    prior = lamu.priors.Normal({"*bias": 1e-5**-0.5, "*": delta**-0.5})
    return lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli(), prior)


def negative_elbo(model: lamu.Model, x: np.ndarray, y: np.ndarray, belief: Gaussian) -> float:
    """Returns the exact bound of a Gaussian belief about the weights, in nats."""
    objective = Objective(model, float(len(x)))
    mean, precision = NetworkParameters().conjugate_prior(objective, belief.mean)
    prior = Gaussian(mean, precision.scale(objective.data_size))
    loss = BatchLoss(objective, Batch.of(x, y), {}, NetworkParameters(), {}, conjugate=True)
    expected = Quadrature(60).evaluate(jax.random.key(0), belief, loss, Hessian(), Diagonal).value
    return float(len(x) * expected + belief.kl(prior))


def sampled_negative_elbo(model: lamu.Model, x: np.ndarray, y: np.ndarray, belief: Any) -> tuple[float, float]:
    """Returns an estimate of the bound for any belief with a density, and its standard error, in nats."""
    objective, batch = Objective(model, float(len(x))), Batch.of(x, y)

    def one(key: Any) -> jax.Array:
        theta = belief.sample(key)
        loss = objective.mean_loss({"network": theta, "likelihood": {}}, batch, {})[0]
        return len(x) * loss + belief.log_prob(theta)

    values = np.asarray(jax.lax.map(one, jax.random.split(jax.random.key(5), 20_000), batch_size=500))
    return float(values.mean()), float(values.std() / np.sqrt(len(values)))


def dense() -> Any:
    return lamu.algorithms.von(Annealed(0.05), Dense, MonteCarlo(1), hess_init=0.25)


def diagonal() -> Any:
    # Coordinates are strongly correlated: a diagonal belief needs long steps, and many.
    return lamu.algorithms.ivon(Annealed(1.0, warmup=0.1), hess_init=0.25, max_step=None)


def main() -> None:
    """Prints the scores beside the anchors; the data need `LAMU_DATA`."""
    jax.config.update("jax_enable_x64", True)
    loaders: tuple[Callable[[], Any], ...] = (a1a, australian)
    for load in loaders:
        x, y, delta = load()
        model, (full, factored, at_mode) = model_of(delta), ANCHORS[load.__name__]
        print(f"{load.__name__}: dense {full}, mean field {factored}, Laplace {at_mode} nats")
        size = len(x)
        rows = [
            ("von, dense, one draw a step", dense(), 2_000, full),
            ("ivon", diagonal(), 20_000 if load is a1a else 40_000, factored),
        ]
        for name, algorithm, steps, anchor in rows:
            run = lamu.fit(model, (x, y), algorithm, steps=steps, batch_size=size)
            score = negative_elbo(model, x, y, run.posterior.belief.factors["network"])
            print(f"    {name:32} {score:9.3f}   above the anchor by {score - anchor:+.3f}", flush=True)
        two = lamu.algorithms.mixture_vi(Annealed(0.05), components=2, samples=1)
        run = lamu.fit(model, (x, y), two, steps=1_500, batch_size=size)
        score, error = sampled_negative_elbo(model, x, y, run.posterior.belief.factors["network"])
        print(f"    {'mixture_vi, two components':32} {score:9.3f} ± {error:.3f}   above dense by {score - full:+.3f}")


if __name__ == "__main__":
    main()
