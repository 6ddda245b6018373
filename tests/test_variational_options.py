"""The options of IVON and VOGN beside references written out in NumPy, in the manner of their authors' packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import tree
from lamu.algorithms import ivon, vogn
from lamu.data import Batch
from lamu.likelihoods import Bernoulli
from lamu.networks import Linear
from lamu.objective import Objective
from lamu.objective.curvature import SquaredGradient
from lamu.operators import Dense, DenseBlocks
from lamu.priors import Normal
from lamu.update_rules import PlainAverage
from tests.for_each import for_each

N, WIDTH, STEPS = 8, 2.0, 20
rng = np.random.default_rng(1)
X = rng.normal(size=(N, 3))
Y = (rng.random(N) < 0.5).astype(np.int32)
MODEL = lamu.Model(Linear(bias=False), Bernoulli(), Normal(WIDTH))
BATCH, OBJECTIVE = Batch.of(X, jnp.asarray(Y)), Objective(MODEL, float(N))
DELTA = 1 / (WIDTH**2 * N)


def rows(theta: np.ndarray) -> np.ndarray:
    """Each row's gradient of the negative log likelihood, `[N, 3]`."""
    return (1 / (1 + np.exp(-X @ theta)) - Y)[:, None] * X


def path(algorithm: Any, steps: int = STEPS, key_of: Callable[[int], int] = int) -> tuple[np.ndarray, Any]:
    """Returns the mean after some steps with keys 0, 1, ... or the ones given, and the last state."""
    state = algorithm.init(jax.random.key(9), OBJECTIVE, BATCH)
    step = jax.jit(algorithm.step)
    for t in range(steps):
        state, _ = step(jax.random.key(key_of(t)), state, BATCH, OBJECTIVE)
    return np.asarray(tree.ravel(state.mean)[0]), state


def draws_of(key: jax.Array, count: int) -> list[np.ndarray]:
    """The normals that a step with this key takes, drawn as the expectation draws them."""
    from lamu.families import Gaussian
    from lamu.operators import Scalar

    like = MODEL.init(jax.random.key(0), BATCH)[0]["network"]
    belief, sampler = Gaussian(tree.zeros_like(like), Scalar(1.0)), lamu.expectations.MonteCarlo(count).sampler
    return [np.asarray(tree.ravel(sampler.draw(jax.random.clone(key), belief, i, count))[0]) for i in range(count)]


def authors_ivon(
    lr: float, b1: float, b2: float, h0: float, draws: int, clip: float, rescale: bool, debias: bool, squared: bool
) -> np.ndarray:
    """The update of the authors' package (Shen et al. 2024, algorithm 1, and its options)."""
    mean = np.asarray(tree.ravel(MODEL.init(jax.random.key(9), BATCH)[0]["network"])[0])
    h, v = np.full(3, h0), np.zeros(3)
    rate = lr * (h0 + DELTA) if rescale else lr
    for t in range(STEPS):
        sd = 1 / np.sqrt(N * (h + DELTA))
        gradients, estimates = [], []
        for noise in draws_of(jax.random.key(t), draws):
            g = rows(mean + sd * noise).mean(axis=0)
            gradients.append(g)
            estimates.append(g * g if squared else g * noise / sd)
        estimate = np.mean(estimates, axis=0)
        v = b1 * v + (1 - b1) * np.mean(gradients, axis=0)
        h = b2 * h + (1 - b2) * estimate + 0.5 * (1 - b2) ** 2 * (h - estimate) ** 2 / (h + DELTA)
        followed = v / (1 - b1 ** (t + 1)) if debias else v
        mean = mean - rate * np.clip((followed + DELTA * mean) / (h + DELTA), -clip, clip)
    return mean


@pytest.mark.parametrize(
    ("squared", "draws"),
    [(False, 1), (True, 3), *(pytest.param(*each, marks=pytest.mark.stress) for each in ((False, 3), (True, 1)))],
)
def test_ivon_is_the_authors(draws: int, squared: bool) -> None:
    """Draws, clipping, the rescaled rate, the debiased momentum and both estimates of the Hessian, 20 steps."""
    given = {"samples": draws, "hess_init": 0.7, "max_step": 0.3, "b1": 0.8, "b2": 0.95}
    curvature = SquaredGradient() if squared else None
    ours = path(ivon(0.2 * (0.7 + DELTA), curvature=curvature, **given))[0]
    theirs = authors_ivon(0.2, 0.8, 0.95, 0.7, draws, 0.3, rescale=True, debias=True, squared=squared)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    other = authors_ivon(0.2, 0.8, 0.95, 0.7, draws, 0.3, rescale=True, debias=True, squared=not squared)
    assert np.max(np.abs(ours - other)) > 1e-4, "the reference must see the difference"


def test_ivon_without_debiasing() -> None:
    """The prior's pull goes through a momentum whose weights do not sum to one, so that the fixed point stays."""
    given: dict[str, Any] = {"hess_init": 0.7, "max_step": None, "b2": 0.95}
    still = path(ivon(0.1, momentum=PlainAverage(0.0), **given))[0]
    np.testing.assert_allclose(still, path(ivon(0.1, b1=0.0, **given))[0], rtol=1e-12)
    slow = path(ivon(0.1, momentum=PlainAverage(0.9), **given), 1)[0]
    fast = path(ivon(0.1, b1=0.9, **given), 1)[0]
    start = np.asarray(tree.ravel(MODEL.init(jax.random.key(9), BATCH)[0]["network"])[0])
    np.testing.assert_allclose(slow - start, 0.1 * (fast - start), rtol=0.2)  # the first step, a tenth as long


def authors_vogn(lr: float, b1: float, b2: float, h0: float, damping: float) -> np.ndarray:
    """Osawa et al. (2019), equations 6 to 8, on the scale of a row."""
    mean = np.asarray(tree.ravel(MODEL.init(jax.random.key(9), BATCH)[0]["network"])[0])
    h, v = np.full(3, h0), np.zeros(3)
    for t in range(STEPS):
        (noise,) = draws_of(jax.random.key(t), 1)
        g = rows(mean + noise / np.sqrt(N * (h + DELTA)))
        v = b1 * v + (1 - b1) * g.mean(axis=0)
        h = b2 * h + (1 - b2) * (g**2).mean(axis=0)
        mean = mean - lr * (v / (1 - b1 ** (t + 1)) + DELTA * mean) / (h + DELTA + damping)
    return mean


@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_vogn_is_the_authors(damping: float) -> None:
    """External damping shortens steps and leaves the belief's precision: the draws are as wide as without."""
    ours = path(vogn(0.1, b1=0.8, b2=0.95, hess_init=0.7, max_step=None, damping=damping))[0]
    np.testing.assert_allclose(ours, authors_vogn(0.1, 0.8, 0.95, 0.7, damping), rtol=1e-9)
    assert np.max(np.abs(ours - authors_vogn(0.1, 0.8, 0.95, 0.7, damping + 0.1))) > 1e-3


def rest(**given: Any) -> np.ndarray:
    """Where VOGN comes to rest on the whole data with the same three draws at every step."""
    algorithm = vogn(**{"b1": 0.0, "b2": None, "hess_init": 1.0, "max_step": None, "samples": 3, **given})
    mean, state = path(algorithm, 1500, lambda t: 0)
    return np.concatenate([mean, np.asarray(tree.ravel(state.precision.diagonal(state.mean))[0])])


@pytest.mark.stress
def test_the_fixed_point_does_not_depend_on_the_two_rates() -> None:
    """Full batch, fixed draws: where mean and precision rest, rates, momentum and damping cancel."""
    rests = [
        rest(learning_rate=0.1),
        rest(learning_rate=0.05, b2=0.9),
        rest(learning_rate=0.2, b2=0.98),
        rest(learning_rate=0.6, b1=0.5, b2=0.9, damping=0.5),
    ]
    for other in rests[1:]:
        np.testing.assert_allclose(other, rests[0], rtol=1e-8)
    assert np.max(np.abs(rests[0][3:] - DELTA - 1.0)) > 0.1, "the precision must have moved from its start"


def test_one_rate_is_the_rule() -> None:
    """b2=None, b1=0 and no clipping leave no departure but the squares."""
    algorithm = vogn(0.3, b1=0.0, b2=None, max_step=None)
    assert "two rates" not in algorithm.choices.departures
    given = vogn(0.3, b1=0.0, b2=0.7, max_step=None)
    np.testing.assert_allclose(path(algorithm)[0], path(given)[0], rtol=1e-12)


def test_a_period_moves_the_precision_as_far_in_one_step() -> None:
    """At steps 0, 3, 6, ... and by 1 − (1 − ρ)³; between them the gradient moves the mean alone."""
    given = replace(vogn(0.1, b1=0.0, b2=0.9, max_step=None, hess_init=1.0), curvature_update_period=3)
    assert given.choices.departures[-1] == "curvature every 3 steps"
    precisions = [tree.ravel(path(given, n)[1].precision.diagonal(MODEL_LIKE))[0] for n in (1, 2, 3, 4)]
    np.testing.assert_array_equal(precisions[0], precisions[1])
    np.testing.assert_array_equal(precisions[0], precisions[2])
    assert np.max(np.abs(precisions[3] - precisions[2])) > 1e-3
    (noise,) = draws_of(jax.random.key(0), 1)
    start = np.asarray(tree.ravel(MODEL.init(jax.random.key(9), BATCH)[0]["network"])[0])
    target = (rows(start + noise / np.sqrt(N * (1.0 + DELTA))) ** 2).mean(axis=0) + DELTA
    np.testing.assert_allclose(precisions[0], 0.9**3 * (1.0 + DELTA) + (1 - 0.9**3) * target, rtol=1e-10)


def test_full_matrices_contain_the_mean_field() -> None:
    """On one layer a block a leaf is the whole matrix, whose first target has the diagonal's diagonal."""
    given: dict[str, Any] = {"hess_init": 1.0, "max_step": None}
    whole, blocks = (path(vogn(0.1, structure=kind, **given))[1] for kind in (Dense, DenseBlocks))
    like = whole.mean
    np.testing.assert_allclose(whole.precision.dense(like), blocks.precision.dense(like), rtol=1e-12)
    one = [path(vogn(0.1, structure=kind, **given), 1)[1] for kind in (Dense, lamu.operators.Diagonal)]
    diagonals = [np.asarray(tree.ravel(state.precision.diagonal(like))[0]) for state in one]
    np.testing.assert_allclose(*diagonals, rtol=1e-12)
    matrix = np.asarray(whole.precision.dense(like))
    assert np.max(np.abs(matrix - np.diag(np.diagonal(matrix)))) > 1e-3


def test_the_data_augmentation_factor_is_the_data_size() -> None:
    """Osawa's ρ: the data counts ρ times its rows, so the belief is narrower by √ρ where the prior is weak."""
    model = replace(MODEL, prior=Normal(100.0))
    fits = [lamu.fit(model, (X, Y), vogn(0.1, max_step=None), epochs=40, data_size=size) for size in (N, 9 * N)]
    beliefs: list[Any] = [fit.posterior.belief for fit in fits]
    widths = [tree.ravel(belief.factors["network"].precision.variance(MODEL_LIKE))[0] for belief in beliefs]
    np.testing.assert_allclose(widths[0] / widths[1], 9.0, rtol=0.3)


MODEL_LIKE = MODEL.init(jax.random.key(0), BATCH)[0]["network"]


@for_each(
    "make, words",
    [
        (lambda: vogn(damping=-0.1), "damping=-0.1 would lengthen"),
        (lambda: vogn(b2=1.5), "b2"),
        (lambda: ivon(max_step=-1.0), "-1.0"),
        (lambda: replace(vogn(), curvature_update_period=0), "curvature_update_period=0"),
    ],
)
def test_bad_options(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
