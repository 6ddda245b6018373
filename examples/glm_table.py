"""Generalised linear models beside textbook values: link, anchor, and ours.

Each model is fitted to a data set of R by maximum likelihood, in all parameters together, and compared with what
`polr`, `survreg`, `glm.nb` and `glm` return. The data are read from the folder `rdatasets` of the path in LAMU_DATA.

    LAMU_DATA=data python examples/glm_table.py
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

import lamu
from lamu.likelihoods import NegativeBinomial, Ordinal, Poisson, Tobit, links


def table(folder: Path, name: str) -> dict[str, np.ndarray]:
    with (folder / f"{name}.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {column: np.array([row[column] for row in rows]) for column in rows[0]}


def treatment(column: np.ndarray) -> np.ndarray:
    """Zeros and ones for all values but the first in order, as R codes a factor."""
    return (column[:, None] == np.unique(column)[1:]).astype(float)


def mode(likelihood: Any, x: np.ndarray, y: np.ndarray, bias: bool = True) -> tuple[Any, float]:
    """Returns the parameters at the largest log likelihood, weights and dispersions together, and its value."""
    model = lamu.Model(lamu.networks.Linear(bias=bias), likelihood)
    batch = lamu.data.Batch.of(jnp.asarray(x), jnp.asarray(y))
    params, state = model.init(jax.random.key(0), batch)
    start = {**params, "network": jax.tree.map(jnp.zeros_like, params["network"])}
    flat, unravel = ravel_pytree(start)
    loss = lambda flat: -jnp.sum(model.log_likelihood(unravel(flat), state, batch)[0])
    found = minimize(
        jax.jit(jax.value_and_grad(loss)), flat, jac=True, hess=jax.jit(jax.hessian(loss)), method="trust-exact"
    )
    return unravel(jnp.asarray(found.x)), -float(found.fun)


def models(folder: Path) -> list[tuple[str, str, float, float]]:
    """Returns model, what is compared, the textbook's value, and ours."""
    lines = []
    wine = table(folder, "wine")
    x = np.stack([wine["temp"] == "warm", wine["contact"] == "yes"], axis=1).astype(float)
    for link, temp, contact, value in (
        (links.Logit(), 2.5031, 1.5278, -86.4919),
        (links.Probit(), 1.4994, 0.8677, -85.7611),
    ):
        y = wine["rating"].astype(int) - 1
        params, found = mode(Ordinal.of(y, link), x, y, bias=False)
        slopes = params["network"]["layers"][0]["kernel"][:, 0]
        name = f"wine, Ordinal({type(link).__name__})"
        lines += [(name, "temp", temp, slopes[0]), (name, "contact", contact, slopes[1])]
        lines += [(name, "log likelihood", value, found)]
    tobin = {name: column.astype(float) for name, column in table(folder, "tobin").items()}
    x = np.stack([tobin["age"], tobin["quant"]], axis=1)
    shift, scale = x.mean(axis=0), x.std(axis=0)
    params, found = mode(Tobit(), (x - shift) / scale, tobin["durable"])
    slopes = params["network"]["layers"][0]["kernel"][:, 0] / scale
    sigma = jnp.exp(params["likelihood"]["log_scale"][0])
    lines += [("tobin, Tobit", "age", -0.12906, slopes[0]), ("tobin, Tobit", "quant", -0.04554, slopes[1])]
    lines += [("tobin, Tobit", "sigma", 5.5725, sigma), ("tobin, Tobit", "log likelihood", -28.9401, found)]
    quine = table(folder, "quine")
    x = np.concatenate([treatment(quine[name]) for name in ("Eth", "Sex", "Lrn", "Age")], axis=1)
    params, found = mode(NegativeBinomial(), x, quine["Days"].astype(int))
    theta = jnp.exp(params["likelihood"]["log_concentration"][0])
    name = "quine, NegativeBinomial(Log)"
    lines += [(name, "theta", 1.2749, theta), (name, "log likelihood", -546.576, found)]
    sprays = table(folder, "insectsprays")
    y = sprays["count"].astype(float)
    params, _ = mode(Poisson(), treatment(sprays["spray"]), y.astype(int))
    layer = params["network"]["layers"][0]
    for k, spray in enumerate(np.unique(sprays["spray"])):
        f = layer["bias"][0] + (layer["kernel"][k - 1, 0] if k else 0.0)
        mean = float(y[sprays["spray"] == spray].mean())
        lines.append(("insectsprays, Poisson(Log)", f"mean of {spray}", mean, jnp.exp(f)))
    return [(name, what, anchor, float(ours)) for name, what, anchor, ours in lines]


def main() -> None:
    folder = Path(os.environ.get("LAMU_DATA", "")) / "rdatasets"
    if not ("LAMU_DATA" in os.environ and folder.is_dir()):
        print("LAMU_DATA names no folder with rdatasets/wine.csv; set it to where the data are")
        return
    jax.config.update("jax_enable_x64", True)
    print(f"{'model':30} {'value':16} {'textbook':>10} {'ours':>12}")
    for name, what, anchor, ours in models(folder):
        print(f"{name:30} {what:16} {anchor:10.4f} {ours:12.5f}")


if __name__ == "__main__":
    main()
