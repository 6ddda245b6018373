"""Bayesian logistic regression by the deterministic path, beside clean anchors for the negative ELBO in nats.

The anchors are 60-point Gauss–Hermite values in float64 with the properly normalised prior: N(0, 1/δ) on weights,
precision 1e-5 on the intercept; a1a with its 1,605 training rows, australian with the first half of a seeded shuffle.
"""

from __future__ import annotations

import os
from pathlib import Path

import jax.numpy as jnp
import optax
import pytest
from benchmarks.anchors import a1a, australian, model_of, negative_elbo

from lamu.algorithms import laplace, map_estimate, von
from lamu.expectations import Quadrature
from lamu.loop import fit
from lamu.objective.curvature import Hessian
from lamu.operators import Dense, Diagonal
from lamu.rate import rate
from lamu.rule import Rule
from lamu.update_rules import HeavyBall

FOLDER = Path(os.environ.get("LAMU_DATA", "no data"))
pytestmark = pytest.mark.skipif(not (FOLDER / "tabular").is_dir(), reason="LAMU_DATA names no folder of data sets")


def mean_field(steps: int) -> tuple[Rule, int]:
    # Coordinates are strongly correlated, so the diagonal needs momentum to arrive: the fixed point is the same.
    return (
        Rule(
            structure=Diagonal,
            expectation=Quadrature(60),
            curvature=Hessian(),
            learning_rate=rate(0.1),
            momentum=HeavyBall(0.97 if steps < 3000 else 0.99),
            hess_init=0.25,
        ),
        steps,
    )


ROADS = {
    "dense": lambda quick: (von(0.5, Dense, Quadrature(60), hess_init=0.25), 150),
    "mean field": lambda quick: mean_field(1500 if quick else 6000),
    "laplace": lambda quick: (laplace(optimizer=map_estimate(optax.lbfgs()), structure=Dense), 100),
}


@pytest.mark.parametrize(
    ("data", "road", "anchor"),
    [
        pytest.param(a1a, "dense", 595.877, marks=pytest.mark.stress),
        pytest.param(a1a, "mean field", 619.954, marks=pytest.mark.stress),
        (a1a, "laplace", 596.530),
        (australian, "dense", 196.3288),
        pytest.param(australian, "mean field", 208.3305, marks=pytest.mark.stress),
        (australian, "laplace", 198.019),
    ],
)
def test_negative_elbo_is_the_anchor(data, road: str, anchor: float) -> None:
    x, y, delta = data()
    model = model_of(delta)
    algorithm, steps = ROADS[road](data is a1a)
    run = fit(model, (x, y), algorithm, steps=steps, batch_size=len(x))
    belief = run.posterior.belief.factors["network"]
    assert jnp.isfinite(run.history["loss"]).all()
    assert abs(negative_elbo(model, x, y, belief) - anchor) < 0.01
