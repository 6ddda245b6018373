"""The check of the extended Kalman filter, in float64: the textbook's gains by hand in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.algorithms.closed_form.extended_kalman import extended_kalman
from lamu.data.batch import Batch
from lamu.likelihoods import Gaussian
from lamu.loop import fit
from lamu.model import Model
from lamu.networks import MLP
from lamu.priors import Normal
from lamu.verification.check import Check
from lamu.verification.vectors import distance, flat

__all__ = ["filter_rows"]

SCALE, NOISE, DRIFT = 0.8, 0.3, 0.01


def filter_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of the algorithm; each is a function without arguments."""
    return {"extended_kalman": _extended_kalman}


def _extended_kalman() -> Check:
    generator = np.random.default_rng(8)
    x = generator.normal(size=(20, 2))
    y = np.tanh(x[:, 0]) - 0.5 * x[:, 1] + NOISE * generator.normal(size=20)
    network = MLP((3,), "tanh")
    params, _ = network.init(jax.random.key(3), jnp.asarray(x[:1]), 1)
    model = Model(network, Gaussian(NOISE), Normal(SCALE)).starting_at({"network": params, "likelihood": {}})
    belief: Any = fit(model, Batched(x, y), extended_kalman(DRIFT), data_size=len(y)).posterior.belief
    found = belief.factors["network"]

    m, P = flat(params), SCALE**2 * np.eye(flat(params).size)
    for row, target in zip(x, y, strict=True):
        P = P + DRIFT * np.eye(len(m))
        f, H = _outputs(m, row)
        S = H @ P @ H + NOISE**2
        K = P @ H / S
        m, P = m + K * (target - f), P - np.outer(K, K) * S
    covariance = np.linalg.inv(np.asarray(found.precision.dense(found.mean)))
    deviation = max(distance(flat(found.mean), m), distance(covariance, P))
    return Check("extended_kalman", "the textbook's filter in NumPy, twenty rows, MLP((3,)), drift", deviation, 1e-9)


class Batched:
    """The rows one by one, in their order."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y = x, y

    def __iter__(self) -> Any:
        return iter(Batch.of(x[None], y[None]) for x, y in zip(self.x, self.y, strict=True))


def _outputs(m: np.ndarray, x: np.ndarray) -> tuple[float, np.ndarray]:
    """Returns the output of the network and its gradient in the weights, in their order: biases before kernels."""
    b, W, c, v = m[:3], m[3:9].reshape(2, 3), m[9], m[10:]
    h = np.tanh(x @ W + b)
    back = v * (1 - h**2)
    return float(h @ v + c), np.concatenate([back, np.outer(x, back).ravel(), [1.0], h])
