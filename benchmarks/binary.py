"""Binary weights: BayesBiNN beside the straight-through estimator, in a run of minutes.

The published setting is MNIST with 3 × 2048 binary units and 500 epochs, 98.88 % by the most probable network (Meng,
Bachmann & Khan 2020). Here two hidden layers of 256 units see the first 20,000 rows eight times. Both algorithms run on
the same network with batch normalisation, from the same starts and in the same orders; the rate of each, and the
temperature of BayesBiNN's target, are those of a small grid with the best likelihood of a held-out tenth of the
training rows, after runs of a quarter of the length. Without `LAMU_DATA` the data are the digits of scikit-learn.

    python -m benchmarks.binary [seeds]
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import lamu
from lamu.algorithms.discrete import PlugInMode, bayesbinn, straight_through
from lamu.rate import Annealed

PUBLISHED, ROWS = 0.9888, 20_000
RATES, BINARY_RATES, TEMPERATURES = (1.0, 3.0, 10.0, 30.0), (0.003, 0.01, 0.03), (0.001, 0.01, 0.1)


def data() -> tuple[str, Any, Any, Any, Any]:
    """Training and test rows, standardised by the mean and deviation of all pixels."""
    path = Path(os.environ.get("LAMU_DATA", "")) / "images" / "mnist.npz"
    if path.is_file():
        held = np.load(path)
        parts = [held[name] for name in ("X_train", "y_train", "X_test", "y_test")]
        parts[:2] = [part[:ROWS] for part in parts[:2]]
        name = "MNIST"
    else:
        x, y = (np.asarray(part) for part in lamu.data.load("digits"))
        train, test = lamu.data.split(y, test_size=0.3, seed=0, stratify=True)
        parts, name = [x[train], y[train], x[test], y[test]], "digits"
    mean, deviation = float(parts[0].mean()), float(parts[0].std())
    flat = [((part.reshape(len(part), -1) - mean) / deviation).astype(np.float32) for part in (parts[0], parts[2])]
    return name, flat[0], parts[1].astype(np.int32), flat[1], parts[3].astype(np.int32)


def main(seeds: int = 2) -> None:
    name, x, y, x_new, y_new = data()
    epochs = 8 if name == "MNIST" else 60
    network = lamu.networks.MLP((256, 256), normalise=lamu.networks.BatchNorm())
    model = lamu.Model(network, lamu.likelihoods.Categorical(10))
    rows: dict[str, list[tuple[float, float, float]]] = {}

    def score(label: str, posterior: Any) -> None:
        pred = posterior.predict(x_new, samples=32)
        values = (lamu.scores.accuracy(pred, y_new), lamu.scores.nll(pred, y_new), lamu.scores.ece(pred, y_new))
        rows.setdefault(label, []).append(tuple(float(value) for value in values))

    train, held = lamu.data.split(y, test_size=0.1, seed=0, stratify=True)

    def fit(algorithm: Any, seed: int, temperature: float = 1.0, rows: Any = slice(None), length: int = epochs) -> Any:
        begun = time.time()
        made = lamu.fit(
            model,
            (x[rows], y[rows]),
            algorithm,
            epochs=length,
            batch_size=100,
            seed=seed,
            temperature=temperature,
            progress=False,
        )
        print(f"  seed {seed}: {time.time() - begun:.0f} s", flush=True)
        return made.posterior

    def held_nll(algorithm: Any, temperature: float = 1.0) -> float:
        """Returns the score of held-out training rows after a short run."""
        posterior = fit(algorithm, 0, temperature, train, max(epochs // 4, 1))
        return float(lamu.scores.nll(posterior.predict(x[held], samples=32), y[held]))

    rate = min(RATES, key=lambda r: held_nll(straight_through(Annealed(r))))
    pairs = [(r, t) for r in BINARY_RATES for t in TEMPERATURES]
    binary_rate, temperature = min(pairs, key=lambda pair: held_nll(bayesbinn(Annealed(pair[0])), pair[1]))
    print(f"by held-out training rows: straight_through {rate}; bayesbinn {binary_rate}, T = {temperature}", flush=True)

    for seed in range(seeds):
        score("straight_through", fit(straight_through(Annealed(rate)), seed))
        posterior = fit(bayesbinn(Annealed(binary_rate)), seed, temperature)
        score("bayesbinn", posterior)
        score("bayesbinn, one network", posterior.with_rule(PlugInMode()))

    print(f"{name}, {len(x)} rows, 256-256 binary units, {epochs} epochs, means over {seeds} seeds")
    print(f"{'':24s}{'accuracy':>10s}{'NLL':>9s}{'ECE':>9s}")
    for label, values in rows.items():
        accuracy, nll, ece = np.mean(values, axis=0)
        print(f"{label:24s}{accuracy:10.4f}{nll:9.4f}{ece:9.4f}")
    print(f"published: {PUBLISHED:.4f} (MNIST, 3 x 2048 units, 500 epochs, one network)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
