"""Laplace after training: fit, prediction and evidence, beside laplace-torch on the same networks and the same rows.

`python -m benchmarks.laplace` runs the digits part (an MLP 64-100-100-10, 1,500 rows); `--convnet` adds LeNet on 10,000
images of Fashion-MNIST, `--quick` takes fewer repetitions. The peer's own program runs first where it can
(`benchmarks.peers`); a ratio is its time by ours, beside its goal. Predictions are of 50 inputs, by the probit rule on
both sides. What compiles is told apart: the first fit less the others.

    PEERS_TORCH_PY=.../bin/python python -m benchmarks.laplace --convnet
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from benchmarks.peers import figures
from lamu.algorithms.post_hoc.evidence import Evidence
from lamu.algorithms.post_hoc.laplace_fit import fit_laplace
from lamu.algorithms.post_hoc.subnetwork import AllWeights, HeadWeights
from lamu.data.arrays import Arrays
from lamu.objective import Objective
from lamu.objective.curvature import GaussNewton, SampledGaussNewton
from lamu.operators import Dense, Diagonal, KroneckerFactored
from lamu.predictives import Probit
from lamu.record import record

# The peer's rows, and how many times faster fit, prediction and evidence are to be; None where nothing was set.
PEERS: dict[str, tuple[str, tuple[float | None, ...]]] = {
    "digits kron": ("digits_all_kron", (4, 5, None)),
    "digits diagonal": ("digits_all_diag", (4, 5, None)),
    "digits last layer": ("digits_last_layer_kron", (4, 5, None)),
    "convnet kron": ("cnn_all_kron", (1.2, 5, None)),
    "convnet kron, sampled labels": ("cnn_all_kron", (1.2, None, None)),
    "convnet diagonal": ("cnn_all_diag", (1.2, None, None)),
    "convnet diagonal, sampled labels": ("cnn_all_diag", (1.2, None, None)),
    "convnet last layer": ("cnn_last_layer_kron", (2, None, None)),
    "convnet last layer, dense": ("cnn_last_layer_full", (2, None, None)),
}
MEMORY = "MiB of a prediction beyond the fit's peak"
METRICS = (("fit_s", 1000.0), ("predict_50_s", 1000.0), ("marglik_ms", 1.0))
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
        (f"{name} kron", AllWeights(), KroneckerFactored(), GaussNewton()),
        (f"{name} kron, sampled labels", AllWeights(), KroneckerFactored(), SampledGaussNewton()),
        (f"{name} diagonal", AllWeights(), Diagonal, GaussNewton()),
        (f"{name} diagonal, sampled labels", AllWeights(), Diagonal, SampledGaussNewton()),
        (f"{name} last layer", HeadWeights(), KroneckerFactored(), GaussNewton()),
        (f"{name} last layer, dense", HeadWeights(), Dense, GaussNewton()),
    ]
    return rows


def compare(
    name: str, posterior: Any, x: np.ndarray, y: np.ndarray, new: np.ndarray, repeats: int, peers: dict[str, float]
) -> None:
    """Prints one line a case: milliseconds of fit, prediction, evidence and compilation, and the peer's ratios."""
    data = Arrays.of((x, y))
    print(f"{'milliseconds':34} {'fit':>9} {'predict':>9} {'evidence':>9} {'compile':>9}   theirs by ours (goal)")
    for label, weights, structure, curvature in cases(name):
        model, point = weights.select(posterior.model, posterior)
        objective = Objective(model, len(x))
        key = jax.random.key(0)

        def fitted(
            point: Any = point, objective: Any = objective, structure: Any = structure, c: Any = curvature
        ) -> Any:
            return fit_laplace(structure, point, objective, data, c).posterior(objective, jax.random.key(0))

        first, fit = timed(fitted, repeats)
        made = fitted().with_rule(Probit())
        predict = timed(lambda made=made: made.predict(new).mean, repeats)[1]
        log_evidence = Evidence.of(fit_laplace(structure, point, objective, data, curvature, key), objective)
        values = iter(np.tile(np.linspace(1.0, 20.0, 20), 50))
        again = timed(lambda e=log_evidence, v=values: e(jnp.asarray(next(v))), 10 * repeats)[1]
        row, goals = PEERS.get(label, ("", (None,) * 3))
        told = []
        for (metric, unit), ours, goal in zip(METRICS, (fit, predict, again), goals, strict=True):
            theirs = peers.get(f"{row}_{metric}")
            if theirs is not None:
                asked = "" if goal is None else f" ({goal:g}: {'met' if unit * theirs / ours >= goal else 'missed'})"
                told.append(f"{metric.split('_')[0]} {unit * theirs / ours:.1f}{asked}")
        print(f"{label:34} {fit:9.2f} {predict:9.2f} {again:9.3f} {first - fit:9.0f}   {', '.join(told)}", flush=True)


def dense_evidence(repeats: int, peers: dict[str, float]) -> None:
    """A whole network of 1,510 weights: its evidence again for another precision, beside a factorisation."""
    x, y = digits()
    posterior = trained((20,), x[:ROWS], y[:ROWS])
    objective, data = Objective(posterior.model, ROWS), Arrays.of((x[:ROWS], y[:ROWS]))
    mode = fit_laplace(Dense, posterior, objective, data)
    first, _ = timed(lambda: Evidence.of(mode, objective).fit.spectrum, 1)
    log_evidence = Evidence.of(mode, objective)
    values = iter(np.tile(np.linspace(1.0, 20.0, 20), 50))
    again = timed(lambda: log_evidence(jnp.asarray(next(values))), 10 * repeats)[1]
    anew = timed(lambda: mode.posterior(objective, jax.random.key(0)).evidence, repeats)[1]
    print(f"dense evidence, {lamu.tree.dimension(posterior.mean['network']):,} weights: {again:.3f} ms again", end=", ")
    print(f"{anew:.1f} ms by a factorisation (ratio {anew / again:.0f}), {first:.0f} ms for the eigenvalues, once")
    theirs = peers.get("small_all_full_marglik_ms")
    if theirs is not None:
        print(f"theirs by ours: {theirs / again:.0f} (50: {'met' if theirs / again >= 50 else 'missed'})")


def digits() -> tuple[np.ndarray, np.ndarray]:
    x, y = lamu.data.load("digits")
    return np.asarray(x, np.float32), np.asarray(y)


def trained(widths: tuple[int, ...], x: np.ndarray, y: np.ndarray) -> Any:
    model = lamu.Model(lamu.networks.MLP(widths), lamu.likelihoods.Categorical(10), lamu.priors.Normal(1.0))
    options: dict[str, Any] = {"epochs": 20, "batch_size": 128, "progress": False}
    return lamu.fit(model, (x, y), lamu.algorithms.adam(1e-3), **options).posterior


@record
class LeNet:
    """The network of the peers' side: 61,706 weights, of which the second convolution has no zeros around it.

    Its convolutions are the compiler's own, as in a network that somebody brings: what follows training takes each row
    once, for which they are faster than patches.
    """

    linear = False
    masked = False
    head = "layers/2/*"

    def init(self, key: Any, x: Any, outputs: int) -> Any:
        """Returns fresh weights, and no state."""
        keys, shapes = jax.random.split(key, 5), ((5, 5, 1, 6), (5, 5, 6, 16), (400, 120), (120, 84), (84, outputs))
        made = [
            {"kernel": jax.random.normal(k, s, x.dtype) * np.sqrt(2 / np.prod(s[:-1])).astype(x.dtype),
             "bias": jnp.zeros(s[-1:], x.dtype)}
            for k, s in zip(keys, shapes, strict=True)
        ]  # fmt: skip
        return {"convolutions": dict(enumerate(made[:2])), "layers": dict(enumerate(made[2:]))}, {}

    def apply(self, params: Any, state: Any, x: Any, key: Any, train: bool) -> Any:
        """Returns the outputs."""
        for index, padding in enumerate(("SAME", "VALID")):
            layer = params["convolutions"][index]
            x = jax.lax.conv_general_dilated(
                x, layer["kernel"], (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jax.nn.relu(x + layer["bias"][None, None, None])
            x = x.reshape(x.shape[0], x.shape[1] // 2, 2, x.shape[2] // 2, 2, -1)
            x = jnp.maximum(x[:, :, 0], x[:, :, 1])
            x = jnp.maximum(x[:, :, :, 0], x[:, :, :, 1])
        x = x.reshape(x.shape[0], -1)
        for index in range(3):
            layer = params["layers"][index]
            x = (jax.nn.relu(x) if index else x) @ layer["kernel"] + layer["bias"][None]
        return x, state


def trained_convnet() -> tuple[Any, Any, Any]:
    """Returns LeNet after one epoch on the first 10,000 images of Fashion-MNIST, and 50 images more."""
    from benchmarks.images import folder, scaled

    with np.load(folder() / "images" / "fashion_mnist.npz") as known:
        x, y = scaled(known["X_train"][:10_050]), np.asarray(known["y_train"][:10_050])
    x = x.reshape(-1, 28, 28, 1)
    model = lamu.Model(LeNet(), lamu.likelihoods.Categorical(10), lamu.priors.Normal(1.0))
    options: dict[str, Any] = {"epochs": 1, "batch_size": 128, "progress": False}
    posterior = lamu.fit(model, (x[:10_000], y[:10_000]), lamu.algorithms.adam(1e-3), **options).posterior
    return posterior, x, y


def convnet(repeats: int, peers: dict[str, float]) -> None:
    """LeNet: times, and the memory of its prediction, which a process of its own measures."""
    posterior, x, y = trained_convnet()
    print(f"ConvNet of {lamu.tree.dimension(posterior.mean['network']):,} weights")
    compare("convnet", posterior, x[:10_000], y[:10_000], x[10_000:], repeats, peers)
    alone = [sys.executable, "-m", "benchmarks.laplace", "--memory"]
    ours = float(subprocess.run(alone, check=True, capture_output=True, text=True).stdout.split()[-1])
    told = f"; theirs {peers[MEMORY]:.0f} (at most 0.3 of it)" if MEMORY in peers else ""
    print(f"prediction of 50 under Kronecker factors: {ours:.0f} MiB beyond the fit's peak{told}")


def beyond_the_fit() -> float:
    """Returns by how many MiB the process's peak rises from the fit's to the first prediction's, as theirs is taken."""
    posterior, x, y = trained_convnet()
    objective, data = Objective(posterior.model, 10_000), Arrays.of((x[:10_000], y[:10_000]))
    made = fit_laplace(KroneckerFactored(), posterior, objective, data).posterior(objective, jax.random.key(0))
    jax.block_until_ready(made.belief)
    after_fit = peak()
    jax.block_until_ready(made.with_rule(Probit()).predict(x[10_000:]).mean)
    return peak() - after_fit


def theirs(networks: tuple[str, ...]) -> dict[str, float]:
    """Returns the peer's figures, the better of its backends, by their names."""
    found: dict[str, float] = {}
    for network in networks:
        after_fit = 0.0
        for figure in figures("w5_laplace", network):
            found[figure.metric] = min(figure.value, found.get(figure.metric, np.inf))
            peak = figure.detail.get("peak_rss_mib", 0.0)
            after_fit = peak if figure.metric.endswith("_fit_s") else after_fit
            if figure.metric == "cnn_all_kron_predict_50_s":
                found[MEMORY] = min(peak - after_fit, found.get(MEMORY, np.inf))
    return found


def peak() -> float:
    """Returns the most that this process has held, in MiB."""
    return (lamu.memory.most_held() or np.nan) / 2**20


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--convnet", action="store_true", help="the Fashion-MNIST network too (minutes)")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--memory", action="store_true", help="only the memory of that network's prediction")
    arguments = parser.parse_args()
    if arguments.memory:
        print(beyond_the_fit())
        return
    repeats = 3 if arguments.quick else 15
    peers = theirs(("small", "digits", "cnn") if arguments.convnet else ("small", "digits"))
    x, y = digits()
    posterior = trained((100, 100), x[:ROWS], y[:ROWS])
    compare("digits", posterior, x[:ROWS], y[:ROWS], x[ROWS : ROWS + NEW], repeats, peers)
    dense_evidence(repeats, peers)
    if arguments.convnet:
        convnet(3, peers)
    print(f"peak memory {peak() / 1024:.2f} GiB")


if __name__ == "__main__":
    main()
