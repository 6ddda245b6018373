"""Parameter expansion of factor models: the bound never falls, at any scale, and few sweeps suffice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import graphs
from lamu.algorithms.closed_form.message_passing import bound
from lamu.families import Gamma, MultivariateNormal
from lamu.objective import Objective
from tests.for_each import for_each

RANDOM = np.random.default_rng(0)
ROWS, D, K = 100, 10, 10
WHOLE = (RANDOM.normal(size=(D, 2)) @ RANDOM.normal(size=(2, ROWS)) + 0.1 * RANDOM.normal(size=(D, ROWS))).T
HOLES = np.where(RANDOM.uniform(size=WHOLE.shape) < 0.2, np.nan, WHOLE)
ROTATION = graphs.Rotation("W", "z")


def unit(m: graphs.Program) -> None:
    noise = m.sample("noise", Gamma(1e-3, 1e-3), plate=D)
    W = m.sample("W", MultivariateNormal(jnp.zeros(3), 4.0 * jnp.eye(3)), plate=D)
    with m.rows():
        z = m.sample("z", graphs.MultivariateNormal(jnp.zeros(3), jnp.eye(3)))
        m.sample("y", graphs.Normal(W @ z, precision=noise))


UNIT = lamu.Graph(unit, expansion=ROTATION)
COLUMNS = graphs.models.FactorAnalysis(K, D, isotropic=True)


@pytest.mark.stress
def test_principal_components_with_holes_in_eighteen_sweeps() -> None:
    """BayesPy's figure for ten components of 100 rows of ten numbers, to a relative change of 1e-6."""
    fit = lamu.fit(COLUMNS, {"y": HOLES}, lamu.algorithms.vmp(tolerance=0.0), steps=40)
    bounds = -ROWS * np.asarray(fit.history["loss"], float)
    rises = np.diff(bounds) / np.abs(bounds[1:])
    assert rises.min() > -1e-12
    assert np.argmax(rises < 1e-6) + 2 <= 18
    kept = np.sort(1.0 / np.asarray(fit.posterior.mean["network"]["relevance"]))
    assert kept[-3] < 0.05 * kept[-2], "two factors are left"


SCALE = {"temperature": 2.0, "likelihood_power": 0.5, "data_size": 3.0 * ROWS}


@pytest.mark.parametrize(
    ("graph", "scale"),
    [
        pytest.param(UNIT, {}, marks=pytest.mark.stress),
        (UNIT, SCALE),
        (COLUMNS, {}),
        pytest.param(COLUMNS, SCALE, marks=pytest.mark.stress),
    ],
)
def test_a_rotation_raises_the_bound_to_its_best(graph: lamu.Graph, scale: dict[str, Any]) -> None:
    """With weights, a temperature, a power and rows that count thrice; and no stretch is better."""
    batch = graph.read({"y": HOLES, "weight": RANDOM.uniform(0.5, 2.0, ROWS)}).full()
    options = {"temperature": 1.0, "likelihood_power": 1.0, "data_size": float(ROWS), **scale}
    objective = Objective(graph, options["data_size"], options["temperature"], options["likelihood_power"])
    at = jax.jit(lambda beliefs: bound(objective, beliefs, batch))
    expanded = jax.jit(
        lambda beliefs: ROTATION.expanded(
            graph, beliefs, batch, options["temperature"], options["likelihood_power"], options["data_size"]
        )
    )
    swept = lamu.algorithms.vmp(tolerance=0.0)
    state = swept.init(jax.random.key(0), replace(objective, model=replace(graph, expansion=None)), batch)
    beliefs = jax.tree.map(lambda leaf: leaf[0], state.beliefs)
    before = float(at(beliefs))
    for _ in range(5):  # alternately with the latents of the rows, until both are still
        beliefs = expanded(beliefs)
        after = float(at(beliefs))
        assert after > before - 1e-9 * abs(before)
        before = after
    beliefs = jax.jit(lambda beliefs: jax.lax.fori_loop(0, 500, lambda _, b: expanded(b), beliefs))(beliefs)
    before = float(at(beliefs))
    # There a small stretch of the latent space, undone in the loadings, changes the bound in second order alone.
    W = beliefs["W"]

    def stretched(size: float) -> float:
        A = jnp.eye(W.mean.shape[-1]) + size * DIRECTION[: W.mean.shape[-1], : W.mean.shape[-1]]
        inverse = jnp.linalg.inv(A)
        moved = {**beliefs, "W": MultivariateNormal(W.mean @ inverse, A @ W.precision @ A.T)}
        return float(at(moved))

    slope = (stretched(1e-4) - stretched(-1e-4)) / 2e-4
    assert abs(slope) < 1e-2 * abs(stretched(0.1) - before) / 0.1 + 0.02


DIRECTION = jnp.asarray(RANDOM.normal(size=(K, K)))


def of(latent: Any, mean: Any, loadings: Any = None) -> Any:
    def program(m: graphs.Program) -> None:
        W = m.sample("W", loadings or MultivariateNormal(jnp.zeros(2), jnp.eye(2)), plate=3)
        with m.rows():
            z = m.sample("z", latent)
            m.sample("y", graphs.Normal(mean(W, z), precision=1.0))

    return program


STANDARD = graphs.MultivariateNormal(jnp.zeros(2), jnp.eye(2))


@for_each(
    "program, rotation, said",
    [
        (of(STANDARD, lambda W, z: W @ z), graphs.Rotation("V", "z"), "names 'V', which the program lacks"),
        (of(graphs.MultivariateNormal(jnp.ones(2), jnp.eye(2)), lambda W, z: W @ z), ROTATION, r"'z' is not N\(0, I\)"),
        (
            of(STANDARD, lambda W, z: W @ z, MultivariateNormal(jnp.zeros(2), jnp.diag(jnp.array([1.0, 2.0])))),
            ROTATION,
            "prior of 'W' is neither",
        ),
        (of(STANDARD, lambda W, z: W @ jnp.ones(2)), ROTATION, "'y' depends on W otherwise than by W @ z"),
    ],
)
def test_what_cannot_be_rotated_is_said(program: Any, rotation: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        lamu.Graph(program, expansion=rotation)
