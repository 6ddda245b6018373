"""Generalised linear models at their modes under a flat prior, beside textbook values: SciPy's, which equal R's.

The mode is found on the log density of the library's own model, in all parameters together, dispersions included.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from examples import glm_table
from examples.glm_table import treatment
from scipy.optimize import minimize

import lamu
from lamu.likelihoods import NegativeBinomial, Ordinal, Poisson, Tobit, links

FOLDER = Path(os.environ.get("LAMU_DATA", "no data")) / "rdatasets"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="LAMU_DATA names no folder of data sets")


def table(name: str) -> dict[str, np.ndarray]:
    return glm_table.table(FOLDER, name)


def mode(likelihood: Any, x: np.ndarray, y: np.ndarray, bias: bool = True) -> tuple[Any, float]:
    likelihood.check(y)
    return glm_table.mode(likelihood, x, y, bias)


def kernel(params: Any) -> np.ndarray:
    return np.asarray(params["network"]["layers"][0]["kernel"])[:, 0]


@pytest.mark.parametrize(
    ("link", "slopes", "cuts", "log_likelihood"),
    [
        (links.Logit(), [2.5031, 1.5278], [-1.3444, 1.2508, 3.4669, 5.0064], -86.4919),
        pytest.param(links.Probit(), [1.4994, 0.8677], None, -85.7611, marks=pytest.mark.stress),
    ],
)
def test_wine_ordinal(link: Any, slopes: list[float], cuts: list[float] | None, log_likelihood: float) -> None:
    wine = table("wine")
    x = np.stack([wine["temp"] == "warm", wine["contact"] == "yes"], axis=1).astype(float)
    y = wine["rating"].astype(int) - 1
    likelihood = Ordinal.of(y, link)
    params, value = mode(likelihood, x, y, bias=False)
    np.testing.assert_allclose(kernel(params), slopes, atol=1e-3)
    if cuts is not None:
        np.testing.assert_allclose(likelihood.cut_points(params["likelihood"]), cuts, atol=1e-3)
    np.testing.assert_allclose(value, log_likelihood, atol=1e-3)


def test_tobin_tobit() -> None:
    tobin = {name: column.astype(float) for name, column in table("tobin").items()}
    x = np.stack([tobin["age"], tobin["quant"]], axis=1)
    shift, scale = x.mean(axis=0), x.std(axis=0)
    params, value = mode(Tobit(), (x - shift) / scale, tobin["durable"])
    slopes = kernel(params) / scale
    intercept = float(params["network"]["layers"][0]["bias"][0]) - slopes @ shift
    np.testing.assert_allclose([intercept, *slopes], [15.14487, -0.12906, -0.04554], atol=1e-3)
    np.testing.assert_allclose(np.exp(params["likelihood"]["log_scale"]), [5.5725], atol=1e-3)
    np.testing.assert_allclose(value, -28.9401, atol=1e-3)


def test_quine_negative_binomial() -> None:
    quine = table("quine")
    x = np.concatenate([treatment(quine[name]) for name in ("Eth", "Sex", "Lrn", "Age")], axis=1)
    params, value = mode(NegativeBinomial(), x, quine["Days"].astype(int))
    np.testing.assert_allclose(np.exp(params["likelihood"]["log_concentration"]), [1.2749], atol=1e-3)
    np.testing.assert_allclose(value, -546.576, atol=1e-3)


def test_insect_sprays_poisson() -> None:
    sprays = table("insectsprays")
    x, y = treatment(sprays["spray"]), sprays["count"].astype(int)
    params, _ = mode(Poisson(), x, y)
    f = x @ kernel(params) + float(params["network"]["layers"][0]["bias"][0])
    require_group_means(np.exp(f), 1e-6)


@pytest.mark.parametrize("spray", ["A", "B", "C", "D", "E", "F"])
def test_insect_sprays_poisson_by_square_roots(spray: str) -> None:
    """Each group alone, from inside the domain of the link, which ends at zero."""
    sprays = table("insectsprays")
    y = jnp.asarray(sprays["count"].astype(float)[sprays["spray"] == spray])
    likelihood = Poisson(links.SquareRoot())
    loss = lambda f: -float(jnp.sum(likelihood.log_prob({}, jnp.full((len(y), 1), f[0]), y)))
    np.testing.assert_allclose(minimize(loss, [1.0], tol=1e-10).x ** 2, jnp.mean(y)[None], rtol=1e-5)


def test_fit_comes_to_the_flat_mode() -> None:
    """The same by `lamu.fit`, under a prior so wide that it is flat."""
    sprays = table("insectsprays")
    x, y = treatment(sprays["spray"]), sprays["count"].astype(int)
    model = lamu.Model(lamu.networks.Linear(), Poisson(), lamu.priors.Normal(1e3))
    mode = lamu.fit(model, (x, y), lamu.algorithms.newton(), steps=30).posterior.mean
    f = x @ kernel(mode) + float(mode["network"]["layers"][0]["bias"][0])
    require_group_means(np.exp(f), 1e-3)


def require_group_means(means: np.ndarray, rtol: float) -> None:
    sprays = table("insectsprays")
    for group in np.unique(sprays["spray"]):
        at = sprays["spray"] == group
        np.testing.assert_allclose(means[at], sprays["count"].astype(float)[at].mean(), rtol=rtol)
