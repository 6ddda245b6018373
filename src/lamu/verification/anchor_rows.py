"""The checks of generalised linear models at their maximum likelihood, each in float64, beside R's values."""

# The data are small enough to stand here: the ratings of `ordinal::wine` as a table of frequencies, and the twenty rows
# of `survival::tobin`.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.data.batch import Batch
from lamu.likelihoods import Likelihood, Ordinal, Tobit, links
from lamu.model import Model
from lamu.networks import Linear
from lamu.verification.check import Check

__all__ = ["anchor_rows"]

# How often each rating was given, by temperature (cold, warm) and contact (no, yes).
_WINE = np.array([[4, 9, 5, 0, 0], [1, 7, 8, 2, 0], [0, 5, 8, 3, 2], [0, 1, 5, 7, 5]])
# Durable goods bought, age, and liquidity, of each household.
_TOBIN = np.array(
    [
        *((0.0, 57.7, 236), (0.7, 50.9, 283), (0.0, 48.5, 207), (0.0, 41.7, 220), (0.0, 47.7, 238)),
        *((0.0, 59.8, 216), (0.0, 44.3, 284), (3.7, 45.1, 221), (0.0, 51.7, 275), (3.0, 50.0, 269)),
        *((10.4, 46.8, 207), (0.0, 58.0, 249), (0.0, 58.9, 246), (0.0, 40.0, 277), (1.5, 34.1, 231)),
        *((0.0, 39.9, 219), (0.0, 33.4, 240), (3.5, 48.1, 266), (6.1, 46.6, 214), (0.0, 53.1, 251)),
    ]
)
_TOLERANCE = 1e-3  # that of the values as they are printed


def anchor_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by what they fit; each is a function without arguments."""
    return {
        "Ordinal on wine": lambda: _wine(links.Logit(), (2.5031, 1.5278, -86.4919), (-1.3444, 1.2508, 3.4669, 5.0064)),
        "Ordinal Probit on wine": lambda: _wine(links.Probit(), (1.4994, 0.8677, -85.7611), ()),
        "Tobit on tobin": _tobin,
    }


def _wine(link: Any, values: tuple[float, ...], cuts: tuple[float, ...]) -> Check:
    cells = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    x, y = np.repeat(cells, _WINE.sum(axis=1), axis=0), np.concatenate([np.repeat(np.arange(5), row) for row in _WINE])
    likelihood = Ordinal(5, link)
    params, value = _mode(likelihood, x, y, bias=False)
    found = [*np.asarray(params["network"]["layers"][0]["kernel"])[:, 0], value]
    if cuts:
        found += list(np.asarray(likelihood.cut_points(params["likelihood"])))
    name = "Ordinal on wine" if cuts else "Ordinal Probit on wine"
    return Check(name, "R's polr: slopes, cut-points, log likelihood", _distance(found, (*values, *cuts)), _TOLERANCE)


def _tobin() -> Check:
    y, x = _TOBIN[:, 0], _TOBIN[:, 1:]
    shift, scale = x.mean(axis=0), x.std(axis=0)
    params, value = _mode(Tobit(), (x - shift) / scale, y)
    layer = params["network"]["layers"][0]
    slopes = np.asarray(layer["kernel"])[:, 0] / scale
    intercept = float(layer["bias"][0]) - float(slopes @ shift)
    found = (intercept, *slopes, float(jnp.exp(params["likelihood"]["log_scale"][0])), value)
    expected = (15.14487, -0.12906, -0.04554, 5.5725, -28.9401)
    words = "R's survreg: slopes, deviation, log likelihood"
    return Check("Tobit on tobin", words, _distance(found, expected), _TOLERANCE)


def _mode(likelihood: Likelihood, x: np.ndarray, y: np.ndarray, bias: bool = True) -> tuple[Any, float]:
    """Returns the parameters at the largest log likelihood, weights and dispersions together, and its value."""
    from scipy.optimize import minimize

    model = Model(Linear(bias=bias), likelihood)
    batch = Batch.of(jnp.asarray(x), jnp.asarray(y))
    params, state = model.init(jax.random.key(0), batch)
    start, unravel = tree.ravel({**params, "network": tree.zeros_like(params["network"])})
    loss = lambda flat: -jnp.sum(model.log_likelihood(unravel(flat), state, batch)[0])
    found: Any = minimize(
        jax.jit(jax.value_and_grad(loss)), start, jac=True, hess=jax.jit(jax.hessian(loss)), method="trust-exact"
    )
    return unravel(jnp.asarray(found.x)), -float(found.fun)


def _distance(found: Any, expected: Any) -> float:
    return float(np.max(np.abs(np.asarray(found, float) - np.asarray(expected))))
