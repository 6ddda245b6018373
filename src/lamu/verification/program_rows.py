"""The check of cvi: a program that is conjugate in every site, beside exact coordinate ascent on the same model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from lamu.algorithms.closed_form.cvi import cvi
from lamu.data import load
from lamu.objective import Objective
from lamu.programs import from_numpyro
from lamu.verification.check import Check

__all__ = ["program_rows", "tossed"]

_STEPS = 200


def tossed(y: Any) -> None:
    """A program of tosses: p is Beta(2, 1)."""
    p = numpyro.sample("p", dist.Beta(2.0, 1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(p), obs=y)


def program_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of what they check; each is a function without arguments."""
    return {"cvi": _cvi}


def _regression(X: Any, y: Any) -> None:
    w = numpyro.sample("w", dist.Normal(0.0, 2.0).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(X @ w, 0.5), obs=y)


def _cvi() -> Check:
    x, y = (np.asarray(part, float) for part in load("diabetes"))
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    target = from_numpyro(_regression, {"X": x, "y": y}, rows="rows")
    batch, objective = target.read(None).full(), Objective(target, len(y))
    algorithm = cvi(learning_rate=0.5, pairs=1)
    state = algorithm.init(jax.random.key(0), objective, batch)
    body = lambda state, key: (algorithm.step(key, state, batch, objective)[0], None)
    state, _ = jax.lax.scan(body, state, jax.random.split(jax.random.key(1), _STEPS))
    found = state.belief.factors["normal"]
    S = np.eye(x.shape[1]) / 4.0 + x.T @ x / 0.25
    mean = np.linalg.solve(S, x.T @ y / 0.25)
    off = jnp.max(jnp.abs(found.mean["w"] - mean)) + jnp.max(jnp.abs(found.precision.matrix / S.max() - S / S.max()))
    return Check("cvi", "linear regression by the normal equations", float(off), 1e-9)
