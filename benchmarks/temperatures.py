"""How much of a cold posterior is the posterior's, and how much is the mean field's.

`ivon()` predicts images better at a temperature below one. Here the same network, prior and images have their
posterior at each temperature by Hamiltonian Monte Carlo too, from which every method's error is told: where HMC at
T = 1 predicts well and IVON at T = 1 does not, the fault is the mean field's; where HMC is better at T < 1, it is the
model's (its prior or its likelihood). Test images of Fashion-MNIST at half of the resolution; the prior's scales are
fixed beforehand. R-hat is that of the outputs at 64 test images, the 90 % quantile over images and classes.

    python -m benchmarks.temperatures                     a perceptron of 6,634 weights, 2,000 images: half an hour
    python -m benchmarks.temperatures --network conv      a ConvNet of 3,002 weights: some hours on a CPU
    python -m benchmarks.temperatures --scales 1 --temperatures 1 0.1 --draws 100
    python -m benchmarks.temperatures --scales 0.3 --temperatures 1 --methods sghmc slang noisy_kfac laplace ensemble
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import lamu
from benchmarks.splits import folder
from lamu.rate import Annealed

A = lamu.algorithms
NETWORKS = {
    "mlp": lamu.networks.MLP((32,)),
    "conv": lamu.networks.ConvNet((4, 8), widths=(32,), kernel=3),
}
DRAWS, TEST = 200, 4000  # of a prediction; images
BATCH, EPOCHS = 128, 100


def methods(rows: int, draws: int) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Returns each method with the options of its fit; points and SGHMC take as many gradients of a row each chain."""
    steps = EPOCHS * -(-rows // BATCH)
    adam, long = A.adam(Annealed(2e-3)), {"epochs": EPOCHS, "batch_size": BATCH}
    chains = {"chains": 2, "warmup": draws, "draws": draws, "most": 128}
    paths = {"chains": 2, "warmup": steps // 2, "draws": 100, "thinning": max(steps // 200, 1)}
    return {
        "adam": (adam, long),
        "hmc": (lamu.mcmc.hmc(**chains), {}),
        "ivon": (A.ivon(), {"batch_size": BATCH}),
        "sghmc": (lamu.mcmc.sghmc(**paths), {"batch_size": BATCH}),
        "slang": (A.slang(), {"batch_size": BATCH}),
        "noisy_kfac": (A.noisy_kfac(), {"batch_size": BATCH}),
        "laplace": (A.laplace(adam), long),
        "last_layer": (A.last_layer(adam), long),
        "ensemble": (A.deep_ensemble(adam, 5), long),
    }


POINTS = ("adam", "ensemble")  # whose temperature is nothing


@dataclass(frozen=True)
class Problem:
    """Images to learn from, images to be judged by, and the digits that are unknown to both."""

    network: Any
    x: np.ndarray
    y: np.ndarray
    to: np.ndarray
    at: np.ndarray
    unknown: np.ndarray

    @classmethod
    def of(cls, name: str, rows: int) -> Problem:
        """Returns the problem of a network and the first so many training images."""

        def halved(images: np.ndarray) -> np.ndarray:
            small = images.astype(np.float32).reshape(-1, 14, 2, 14, 2).mean((2, 4)) / 255.0
            small = (small - 0.5) / 0.25
            return small[..., None] if name == "conv" else small.reshape(len(small), -1)

        images = folder() / "images"
        with np.load(images / "fashion_mnist.npz") as known, np.load(images / "mnist.npz") as other:
            x, to, unknown = (
                halved(part) for part in (known["X_train"][:rows], known["X_test"][:TEST], other["X_test"][:TEST])
            )
            y, at = known["y_train"][:rows].astype(np.int32), known["y_test"][:TEST].astype(np.int32)
        return cls(NETWORKS[name], x, y, to, at, unknown)

    def fit(self, algorithm: Any, scale: float, temperature: float, seed: int, **options: Any) -> Any:
        """Returns the posterior of an algorithm under the prior N(0, scale²) at a temperature."""
        model = lamu.Model(self.network, lamu.likelihoods.Categorical(10), lamu.priors.Normal(scale))
        data = (self.x, self.y)
        return lamu.fit(model, data, algorithm, temperature=temperature, seed=seed, progress=False, **options).posterior

    def line(self, name: str, posterior: Any, pred: Any, first: Any, seconds: float) -> str:
        """Returns a line of the table: scores of the test images, and the detection of digits."""
        away = lamu.scores.difference(lamu.scores.nll, pred, first, self.at)
        strange = np.asarray(posterior.predict(self.unknown, samples=DRAWS).total)
        nll = lamu.scores.with_error(lamu.scores.nll, pred, self.at)
        return (
            f"{name:26} accuracy {float(lamu.scores.accuracy(pred, self.at)):.3f}  "
            f"NLL {nll.value:.3f} ± {nll.error:.3f}  "
            f"ECE {float(lamu.scores.ece(pred, self.at)):.3f}  "
            f"AUROC {float(lamu.scores.auroc(np.asarray(pred.total), strange)):.3f}  "
            f"NLL less the first {away.value:+.3f} ± {away.error:.3f}  {seconds:6.0f} s"
        )


def main() -> None:
    """Reads the command line, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=tuple(NETWORKS), default="mlp")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--scales", type=float, nargs="+", default=[0.3, 1.0])
    parser.add_argument("--temperatures", type=float, nargs="+", default=[1.0, 0.3, 0.1, 0.03])
    parser.add_argument("--draws", type=int, default=300, help="of each of two chains, after as many of warm-up")
    parser.add_argument("--methods", nargs="+", choices=tuple(methods(1, 1)), default=["adam", "hmc", "ivon"])
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    problem = Problem.of(given.network, given.rows)
    warnings.simplefilter("ignore", lamu.Unconverged)
    warnings.simplefilter("ignore", lamu.mcmc.UnreliableChains)  # the table prints R-hat
    print(f"{problem.network}, {given.rows} images, {len(problem.at)} test images", flush=True)
    runs = methods(given.rows, given.draws)
    points = [(name, 1.0) for name in given.methods if name in POINTS]
    beliefs = [(name, T) for T in given.temperatures for name in given.methods if name not in POINTS]
    for scale in given.scales:
        print(f"\nprior N(0, {scale:g}²)", flush=True)
        first = None
        for name, temperature in points + beliefs:
            algorithm, options = runs[name]
            begin = time.perf_counter()
            posterior = problem.fit(algorithm, scale, temperature, given.seed, **options)
            jax.block_until_ready(posterior.belief)
            seconds = time.perf_counter() - begin
            pred = posterior.predict(problem.to, samples=DRAWS)
            first = pred if first is None else first
            label = name if name in POINTS else f"{name}, T = {temperature:g}"
            told = problem.line(label, posterior, pred, first, seconds)
            if "hmc" in name:
                r_hat = lamu.mcmc.diagnose(posterior, problem.to[:64]).r_hat["f"]
                told += f"  R-hat {np.quantile(np.asarray(r_hat), 0.9):.2f}"
            print(told, flush=True)


if __name__ == "__main__":
    main()
