"""Laplace after training: fit, prediction and evidence on the digits network, beside the times of laplace-torch.

`python -m benchmarks.laplace` runs the digits part; `--convnet` adds the Fashion-MNIST network (LeNet, 10,000 rows),
`--quick` takes fewer repetitions. Compile time is told apart, and counted once. Peers' times are those of
`../shared/bench/peers` on two cores, for where the library itself is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from lamu.algorithms.post_hoc.at_mode import look_at_mode
from lamu.algorithms.post_hoc.evidence import Evidence
from lamu.algorithms.post_hoc.selection import AllWeights, HeadWeights
from lamu.data.arrays import Arrays
from lamu.objective import Objective
from lamu.objective.curvature import GaussNewton, SampledGaussNewton
from lamu.operators import Dense, Diagonal, Layerwise
from lamu.predictives import Probit

# Milliseconds of laplace-torch on two cores of the same kind of machine: fit, prediction of 50, one evidence.
RECORDED = {
    "digits kron": (128.0, 133.0, 0.24),
    "convnet kron": (5500.0, 900.0, None),
    "convnet last layer": (1220.0, 4.0, None),
    "convnet diagonal": (4100.0, None, None),
}
ROWS, NEW = 1500, 50


def timed(call: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """The first run's milliseconds, compilation in it, and the median of the others'."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append(1000 * (time.perf_counter() - start))
    return times[0], statistics.median(times[1:])


def cases(name: str) -> list[tuple[str, Any, Any, Any]]:
    """The name, weights, structure and curvature of each row of the table."""
    rows: list[tuple[str, Any, Any, Any]] = [
        (f"{name} kron", AllWeights(), Layerwise(), GaussNewton()),
        (f"{name} kron, sampled labels", AllWeights(), Layerwise(), SampledGaussNewton()),
        (f"{name} diagonal", AllWeights(), Diagonal, GaussNewton()),
        (f"{name} diagonal, sampled labels", AllWeights(), Diagonal, SampledGaussNewton()),
        (f"{name} last layer", HeadWeights(), Layerwise(), GaussNewton()),
        (f"{name} last layer, dense", HeadWeights(), Dense, GaussNewton()),
    ]
    return rows


def compare(name: str, posterior: Any, x: np.ndarray, y: np.ndarray, new: np.ndarray, repeats: int) -> None:
    """Prints one line a case: compile and run milliseconds of fit, prediction and evidence, and the peer's."""
    data = Arrays.of((x, y))
    print(f"{'milliseconds':34} {'fit':>9} {'predict':>9} {'evidence':>9}   {'first fit':>9}   peer (ratio)")
    for label, weights, structure, curvature in cases(name):
        model, point = weights.select(posterior.model, posterior)
        objective = Objective(model, len(x))
        key = jax.random.key(0)

        def fitted(
            point: Any = point, objective: Any = objective, structure: Any = structure, c: Any = curvature
        ) -> Any:
            return look_at_mode(structure, point, objective, data, c).posterior(objective, jax.random.key(0))

        made = fitted().with_rule(Probit())
        first, fit = timed(fitted, repeats)
        predict = timed(lambda made=made: made.predict(new).mean, repeats)[1]
        log_evidence = Evidence.of(look_at_mode(structure, point, objective, data, curvature, key), objective)
        values = iter(np.tile(np.linspace(1.0, 20.0, 20), 50))
        again = timed(lambda e=log_evidence, v=values: e(jnp.asarray(next(v))), 10 * repeats)[1]
        peer = RECORDED.get(label, (None, None, None))
        told = [f"{p:.4g} ({p / ours:.1f})" for p, ours in zip(peer, (fit, predict, again), strict=True) if p]
        print(f"{label:34} {fit:9.2f} {predict:9.2f} {again:9.3f}   {first:9.0f}   {', '.join(told)}")


def dense_evidence(repeats: int) -> None:
    """A whole network of 1,510 weights: its evidence again for another precision, beside a factorisation."""
    x, y = digits()
    posterior = trained((20,), x[:ROWS], y[:ROWS])
    objective, data = Objective(posterior.model, ROWS), Arrays.of((x[:ROWS], y[:ROWS]))
    mode = look_at_mode(Dense, posterior, objective, data)
    first, _ = timed(lambda: Evidence.of(mode, objective).spectrum, 1)
    log_evidence = Evidence.of(mode, objective)
    values = iter(np.tile(np.linspace(1.0, 20.0, 20), 50))
    again = timed(lambda: log_evidence(jnp.asarray(next(values))), 10 * repeats)[1]
    anew = timed(lambda: mode.posterior(objective, jax.random.key(0)).evidence, repeats)[1]
    print(f"dense evidence, {lamu.tree.dimension(posterior.mean['network']):,} weights: {again:.3f} ms again", end=", ")
    print(f"{anew:.1f} ms by a factorisation (ratio {anew / again:.0f}), {first:.0f} ms for the eigenvalues, once")


def digits() -> tuple[np.ndarray, np.ndarray]:
    x, y = lamu.data.load("digits")
    return (np.asarray(x) / 16).astype(np.float32), np.asarray(y)


def trained(widths: tuple[int, ...], x: np.ndarray, y: np.ndarray) -> Any:
    model = lamu.Model(lamu.networks.MLP(widths), lamu.likelihoods.Categorical(10), lamu.priors.Normal(1.0))
    options: dict[str, Any] = {"epochs": 20, "batch_size": 128, "progress": False}
    return lamu.fit(model, (x, y), lamu.algorithms.adam(1e-3), **options).posterior


def convnet(repeats: int) -> None:
    """LeNet on the first 10,000 images of Fashion-MNIST."""
    from benchmarks.images import folder, scaled

    with np.load(folder() / "images" / "fashion_mnist.npz") as known:
        x, y = scaled(known["X_train"][:10_050]), np.asarray(known["y_train"][:10_050])
    x = x.reshape(-1, 28, 28, 1)
    network = lamu.networks.ConvNet((6, 16), (120, 84), kernel=5)
    model = lamu.Model(network, lamu.likelihoods.Categorical(10), lamu.priors.Normal(1.0))
    options: dict[str, Any] = {"epochs": 1, "batch_size": 128, "progress": False}
    posterior = lamu.fit(model, (x[:10_000], y[:10_000]), lamu.algorithms.adam(1e-3), **options).posterior
    print(f"ConvNet of {lamu.tree.dimension(posterior.mean['network']):,} weights")
    compare("convnet", posterior, x[:10_000], y[:10_000], x[10_000:], repeats)


def theirs() -> None:
    """The peer's own side, where it is installed: the script that measured what is recorded."""
    if importlib.util.find_spec("laplace") is None:
        print("laplace-torch is not installed here; the peer's times are recorded ones")
        return
    print("laplace-torch is installed: run ../shared/bench/peers/w5_laplace.py beside this")


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--convnet", action="store_true", help="the Fashion-MNIST network too (minutes)")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    arguments = parser.parse_args()
    repeats = 3 if arguments.quick else 15
    theirs()
    x, y = digits()
    posterior = trained((100, 100), x[:ROWS], y[:ROWS])
    compare("digits", posterior, x[:ROWS], y[:ROWS], x[ROWS : ROWS + NEW], repeats)
    dense_evidence(repeats)
    if arguments.convnet:
        convnet(3)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2:.2f} GiB")


if __name__ == "__main__":
    main()
