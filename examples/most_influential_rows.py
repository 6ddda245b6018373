"""Which rows moved the belief most? One pass by `lamu.sensitivity`, beside a refit without each row.

Pima (logistic regression, Newton's refits in NumPy, all 200 rows) and diabetes (a network of five hidden units, refits
by Laplace's method from the mode, every ninth row). A name of a picture draws the rows of Pima.

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


def newton(design: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mode and Hessian of logistic regression under standard normal weights."""
    w = np.zeros(design.shape[1])
    for _ in range(30):
        p = expit(design @ w)
        S = (design.T * (weight * p * (1 - p))) @ design + np.eye(len(w))
        w = w + np.linalg.solve(S, design.T @ (weight * (y - p)) - w)
    return w, S


def pima(folder: Path) -> tuple[lamu.Sensitivity, np.ndarray, np.ndarray]:
    """Returns the influence of every row, and what refits say: nats, and moves of the row's own logit."""
    table = np.genfromtxt(folder / "pima_tr.csv", delimiter=",", names=True, dtype=None, encoding="utf8")
    names = [name for name in table.dtype.names if name != "type"]
    x = np.stack([table[name].astype(float) for name in names], axis=1)
    x, y = (x - x.mean(0)) / x.std(0), (np.char.strip(table["type"], '"') == "Yes").astype(int)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli(), lamu.priors.Normal(1.0))
    found = lamu.sensitivity(lamu.fit(model, (x, y), lamu.algorithms.laplace()).posterior, (x, y))
    design = np.column_stack([np.ones(len(x)), x])
    m, S = newton(design, y, np.ones(len(y)))
    nats, moved = [], []
    for i in range(len(y)):
        w, P = newton(design, y, np.where(np.arange(len(y)) == i, 0.0, 1.0))
        spread = np.trace(S @ np.linalg.inv(P)) - len(w) + np.linalg.slogdet(P)[1] - np.linalg.slogdet(S)[1]
        nats.append((spread + (w - m) @ S @ (w - m)) / 2)
        moved.append(design[i] @ (w - m))
    return found, np.array(nats), np.array(moved)


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
        found, nats, moved = pima(folder)
        assert min(report("Pima, logistic", found, nats, moved, slice(None))) > 0.9
        print("most influential rows of Pima:", *found.order[:5])
        if picture is not None:
            plots.influence(found)[0].figure.savefig(picture)
    else:
        print("LAMU_DATA names no folder with rdatasets/pima_tr.csv; set it to where the data are")
    found, nats, moved, rows = diabetes()
    assert report("diabetes, MLP((5,))", found, nats, moved, rows)[1] > 0.9


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # a refit that ends 0.1 standard deviations from its mode is near enough
    with jax.enable_x64(True):
        main(sys.argv[1] if len(sys.argv) > 1 else None)
