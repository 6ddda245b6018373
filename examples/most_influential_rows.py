"""Which rows moved the belief most? One pass by `lamu.sensitivity`, beside a refit without each row.

Biochemists and Pima (Poisson and logistic regression, Newton's refits in NumPy, all 915 and 200 rows) and diabetes (a
network of five hidden units, refits by Laplace's method from the mode, every ninth row). A name of a picture draws the
rows of Pima.

    LAMU_DATA=data python examples/most_influential_rows.py influence.svg
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit
from scipy.stats import spearmanr

import lamu
from lamu import plots


def logistic(f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean of a Bernoulli at its logit, and the curvature."""
    return expit(f), expit(f) * expit(-f)


def poisson(f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean of a Poisson at its log rate, and the curvature."""
    return np.exp(f), np.exp(f)


def newton(law: Any, design: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mode and Hessian of a generalised linear model under standard normal weights."""
    w = np.zeros(design.shape[1])
    for _ in range(30):
        mean, curvature = law(design @ w)
        S = (design.T * (weight * curvature)) @ design + np.eye(len(w))
        w = w + np.linalg.solve(S, design.T @ (weight * (y - mean)) - w)
    return w, S


def refits(likelihood: Any, law: Any, x: np.ndarray, y: np.ndarray) -> tuple[lamu.Sensitivity, np.ndarray, np.ndarray]:
    """Returns the influence of every row, and what refits say: nats, and moves of the row's own linear predictor."""
    model = lamu.Model(lamu.networks.Linear(), likelihood, lamu.priors.Normal(1.0))
    found = lamu.sensitivity(lamu.fit(model, (x, y), lamu.algorithms.laplace()).posterior, (x, y))
    design = np.column_stack([np.ones(len(x)), x])
    m, S = newton(law, design, y, np.ones(len(y)))
    nats, moved = [], []
    for i in range(len(y)):
        w, P = newton(law, design, y, np.where(np.arange(len(y)) == i, 0.0, 1.0))
        spread = np.trace(S @ np.linalg.inv(P)) - len(w) + np.linalg.slogdet(P)[1] - np.linalg.slogdet(S)[1]
        nats.append((spread + (w - m) @ S @ (w - m)) / 2)
        moved.append(design[i] @ (w - m))
    return found, np.array(nats), np.array(moved)


def read(path: Path, target: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns standardised columns, words as whether they are the first of the column, and the target as it stands."""
    table = np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="utf8")
    columns = [table[name] for name in table.dtype.names if name != target]
    x = np.stack([c == c[0] if c.dtype.kind == "U" else c for c in columns], axis=1).astype(float)
    return (x - x.mean(0)) / x.std(0), table[target]


def diabetes() -> tuple[lamu.Sensitivity, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the same of a network, and the rows."""
    x, y = lamu.data.load("diabetes")
    network = lamu.networks.MLP((5,), "tanh")
    model = lamu.Model(network, lamu.likelihoods.Gaussian(0.7), lamu.priors.Normal(1.0)).standardised(x, y)
    posterior = lamu.fit(model, (x, y), lamu.algorithms.laplace()).posterior
    belief: Any = posterior.belief
    q, rows = belief.factors["network"], np.arange(0, len(y), 9)
    start, still = model.starting_at(posterior.mean), lamu.algorithms.laplace(lamu.algorithms.adam(1e-5))
    nats, moved = [], []
    for i in rows:
        data = {"x": x, "y": y, "weight": np.where(np.arange(len(y)) == i, 0.0, 1.0)}
        refit: Any = lamu.fit(start, data, still, epochs=1, batch_size=len(y)).posterior.belief
        p = refit.factors["network"]
        f, before = (
            model.outputs({"network": each.mean, "likelihood": {}}, {}, jnp.asarray(x[i : i + 1]))[0] for each in (p, q)
        )
        nats.append(float(p.kl(q)))
        moved.append(float((f - before)[0, 0]))
    return lamu.sensitivity(posterior, (x, y)), np.array(nats), np.array(moved), rows


def report(name: str, found: lamu.Sensitivity, nats: np.ndarray, moved: np.ndarray, rows: Any) -> tuple[float, float]:
    """Prints the rank correlations with the refits."""
    belief = float(spearmanr(found.belief[rows], nats).statistic)
    prediction = float(spearmanr(np.abs(found.prediction[rows, 0]), np.abs(moved)).statistic)
    print(f"{name:<24} {len(nats):4d} refits   rank correlation: belief {belief:.3f}, predictions {prediction:.3f}")
    return belief, prediction


def main(picture: str | None) -> None:
    """Compares, and draws."""
    folder = Path(os.environ.get("LAMU_DATA", "")) / "rdatasets"
    if folder.is_dir():
        x, y = read(folder / "biochemists.csv", "art")
        counts = refits(lamu.likelihoods.Poisson(), poisson, x, y)
        assert min(report("biochemists, Poisson", *counts, slice(None))) > 0.9
        x, y = read(folder / "pima_tr.csv", "type")
        found, nats, moved = refits(
            lamu.likelihoods.Bernoulli(), logistic, x, (np.char.strip(y, '"') == "Yes").astype(int)
        )
        assert min(report("Pima, logistic", found, nats, moved, slice(None))) > 0.9
        print("most influential rows of Pima:", *found.order[:5])
        if picture is not None:
            plots.influence(found)[0].figure.savefig(picture)
    else:
        print("LAMU_DATA names no folder with rdatasets; set it to where the data are")
    found, nats, moved, rows = diabetes()
    assert report("diabetes, MLP((5,))", found, nats, moved, rows)[1] > 0.9


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # a refit that ends 0.1 standard deviations from its mode is near enough
    with jax.enable_x64(True):
        main(sys.argv[1] if len(sys.argv) > 1 else None)
