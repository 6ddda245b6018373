"""Prediction of digits by an MLP 64-100-100-10: a point, a last layer, Laplace and IVON, one row and 20,000.

Beside them stands the bare forward pass under `jax.jit` and, for the point, scikit-learn's `predict_proba` with these
weights. All take NumPy and return NumPy.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np

import lamu
from benchmarks.speed.race import Race, growth, row
from benchmarks.speed.rows.steps import multilayer
from benchmarks.speed.timing import here

ALGORITHMS = {
    "point": lambda: lamu.algorithms.adam(1e-3),
    "last_layer": lambda: lamu.algorithms.last_layer(),
    "laplace": lambda: lamu.algorithms.laplace(),
    "ivon": lambda: lamu.algorithms.ivon(),
}
MANY = 20_000


@cache
def rows_of() -> tuple[np.ndarray, np.ndarray]:
    x, y = lamu.data.load("digits")
    return np.asarray(x, np.float32) / 16, np.asarray(y)


@cache
def posterior(name: str) -> Any:
    x, y = rows_of()
    model = lamu.Model(lamu.networks.MLP((100, 100)), lamu.likelihoods.Categorical(10), lamu.priors.Normal(1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lamu.Unconverged)  # few epochs: times do not depend on them
        options: dict[str, Any] = {"epochs": 10, "batch_size": 128, "progress": False}
        return lamu.fit(model, (x[:1500], y[:1500]), ALGORITHMS[name](), **options).posterior


def layers_of(name: str) -> list[Any]:
    mean = posterior(name).mean
    return list(mean.get("network", mean)["layers"].values())


forward = jax.jit(lambda layers, x: jax.nn.softmax(multilayer(layers, x)))


def bare(layers: Any) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.asarray(forward(layers, x))


def scikit_learn(layers: Any) -> Callable[[np.ndarray], np.ndarray]:
    """scikit-learn's network, with these weights in the place of its own."""
    from sklearn.neural_network import MLPClassifier

    x, y = rows_of()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one iteration, which makes its parts
        model = MLPClassifier((100, 100), max_iter=1).fit(x[:200], y[:200])
    model.coefs_ = [np.asarray(layer["kernel"]) for layer in layers]
    model.intercepts_ = [np.asarray(layer["bias"]) for layer in layers]
    return model.predict_proba


def race(name: str, count: int, rounds: int, calls: int) -> Race:
    rows = rows_of()[0]
    x = np.tile(rows, (-(-count // len(rows)), 1))[:count]
    made, layers = posterior(name), layers_of("point")
    ours, peers = lambda: np.asarray(made.predict(x).mean), {"bare forward": bare(layers)}
    if name == "point":
        peers["scikit-learn"] = scikit_learn(layers)
    found, plain = ours(), peers["bare forward"](x)
    assert found.shape == plain.shape
    same = "shapes alone: the mean over a belief is not the prediction of a point"
    if name == "point":
        apart = float(np.max(np.abs(found - plain)))
        assert apart < 1e-4, f"probabilities are {apart:.1e} apart"
        same = f"probabilities, to {apart:.1e}"

    def repeated(call: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(calls):
                call()

        return run

    programs = {"bare forward": (forward, (layers, x))}
    theirs = tuple(here(peer, repeated(lambda f=f: f(x)), calls, programs.get(peer)) for peer, f in peers.items())
    return Race((here("lamu", repeated(ours), calls),), theirs, "prediction", same, rounds, first="ran before")


ONE = "The arithmetic of one row is microseconds; a call also checks the row and makes a predictive of the outputs."
WHOLE = {
    "point": "Rows are checked and taken in chunks.",
    "last_layer": "32 last layers are drawn, and the softmax of each is averaged.",
    "laplace": "Each row has a covariance of its ten outputs, which takes a Jacobian by all weights.",
    "ivon": "32 networks are drawn, and each predicts all rows.",
}


def register(name: str) -> None:
    one = lambda quick: race(name, 1, 20 if quick else 50, 20)
    many = lambda quick: race(name, MANY, 5 if quick else 20, 1)
    why = WHOLE[name] if name == "ivon" else ONE
    row(f"predict_{name}_1", f"prediction of one row, {name}", why=why)(one)
    row(f"predict_{name}_{MANY}", f"prediction of {MANY:,} rows, {name}", why=WHOLE[name])(many)


for _name in ALGORITHMS:
    register(_name)


def resident() -> float:
    """Bytes that this process holds now, NaN where /proc does not tell."""
    import os
    from pathlib import Path

    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return float("nan")


@row(
    "predict_new_size",
    "prediction of Laplace at a number of rows that is new each time",
    why="A program of covariances is traced and compiled where the bare forward pass compiles three products.",
)
def predict_new_size(quick: bool) -> Race:
    rows, made, rounds = rows_of()[0], posterior("laplace"), 12 if quick else 40
    other = bare(layers_of("point"))
    sizes = [int(size) for size in np.random.default_rng(0).permutation(np.arange(100, 1700))[: rounds + 1]]
    ours, theirs = itertools.cycle(sizes), itertools.cycle(sizes)
    np.asarray(made.predict(rows[:50]).mean)
    before = resident()
    sides = (
        here("lamu", lambda: np.asarray(made.predict(rows[: next(ours)]).mean)),
        here("bare forward", lambda: other(rows[: next(theirs)])),
    )
    figures = lambda: {"MB that the process grew by with each size, both sides": (resident() - before) / 1e6 / rounds}
    same = "as above"
    return Race(sides[:1], sides[1:], "prediction", same, rounds, figures=figures, first="ran before")


@growth("growth_predict_rows", "prediction of Laplace as rows grow", "rows", (10, 100, 1_000, 10_000, 100_000))
def growth_rows(size: int) -> Race:
    return race("laplace", size, 5, 1)
