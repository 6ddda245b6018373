"""What the playground's algorithms move on: densities of two numbers, and two small data sets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.data.arrays import Arrays
from lamu.data.sources import load
from lamu.density import LogDensity, nothing
from lamu.likelihoods import Bernoulli, Gaussian
from lamu.model import Model
from lamu.networks import MLP, Linear
from lamu.priors import Normal
from lamu.target import Target
from lamu.typing import Array

__all__ = ["PlayTarget", "play_targets"]

Window = tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)  # one of a kind: it is the key of its pictures
class PlayTarget:
    """A target with what a picture of it needs."""

    title: str  # its name for people
    about: str  # what it shows, one sentence
    model: Target  # the target
    rows: Arrays  # its data; of a density, the one row of no content
    # Left, right, lower and upper end of the plane of its two parameters, or None where there are more.
    window: Window | None = None
    axes: tuple[str, str] = ("first", "second")  # what the two parameters are
    scale: float = 1.0  # the size of a step that suits a sampler, where 1 suits a standard normal
    inputs: Window | None = None  # the ends of the data's plane, where there is one: of x and y, or of the two inputs


def _gaussian(z: Array) -> Array:
    return -0.5 * (z[0] ** 2 - 1.8 * z[0] * z[1] + z[1] ** 2) / (1 - 0.9**2)


def _banana(z: Array) -> Array:
    return -0.5 * (z[0] / 2.0) ** 2 - 0.5 * ((z[1] - 0.5 * z[0] ** 2 + 2.0) / 0.6) ** 2


def _two_modes(z: Array) -> Array:
    centres = jnp.array([[-2.0, -1.0], [2.0, 1.0]])
    return jax.nn.logsumexp(-0.5 * jnp.sum((z[None] - centres) ** 2, axis=1) / 0.5)


def _ring(z: Array) -> Array:
    return -0.5 * ((jnp.sqrt(jnp.sum(z**2) + 1e-6) - 2.5) / 0.35) ** 2


def _funnel(z: Array) -> Array:
    return -0.5 * (z[0] / 1.5) ** 2 - 0.5 * z[1] ** 2 * jnp.exp(-2.0 * z[0]) - z[0]


def _density(title: str, about: str, log_density: Any, start: tuple[float, float], window: Window) -> PlayTarget:
    return PlayTarget(title, about, LogDensity(log_density, jnp.array(start)), Arrays.of(nothing()), window)


def _line() -> PlayTarget:
    x, y = load("diabetes")
    x, y = np.asarray(x)[:40, 2], np.asarray(y)[:40]
    x, y = ((each - each.mean()) / each.std() for each in (x, y))
    return PlayTarget(
        "A line through 40 patients",
        "Two weights of a regression: progression of diabetes on the body-mass index, both standardised.",
        Model(Linear(), Gaussian(scale=0.8), Normal(1.0)),
        Arrays.of((x[:, None], y)),
        window=(-0.8, 0.8, -0.3, 1.3),
        axes=("intercept", "slope"),
        scale=0.15,
        inputs=(-2.5, 3.0, -2.5, 3.0),
    )


def _moons() -> PlayTarget:
    from sklearn.datasets import make_moons

    x, y = make_moons(100, noise=0.2, random_state=0)
    return PlayTarget(
        "Two moons",
        "A network of 8 hidden units on two classes; the picture is the probability of the second class.",
        Model(MLP((8,)), Bernoulli(), Normal(1.0)),
        Arrays.of((x, y)),
        scale=0.15,
        inputs=(-2.0, 3.0, -1.5, 2.0),
    )


@cache
def play_targets() -> dict[str, PlayTarget]:
    """Returns the targets by name, in the order in which they are offered."""
    return {
        "gaussian": _density(
            "Correlated Gaussian", "Correlation 0.9.", _gaussian, (-2.5, 2.0), (-4.0, 4.0, -4.0, 4.0)
        ),
        "banana": _density(
            "Banana", "Curved: no Gaussian fits, and the best direction changes.", _banana, (0.0, -1.0),
            (-6.0, 6.0, -4.0, 10.0),
        ),
        "two_modes": _density(
            "Two modes", "A valley between two modes, which few chains cross.", _two_modes, (-2.0, 1.0),
            (-5.0, 5.0, -4.0, 4.0),
        ),
        "ring": _density("Ring", "The mean is a place of no probability.", _ring, (2.0, 0.0), (-4.5, 4.5, -4.0, 4.0)),
        "funnel": _density(
            "Funnel", "The first number is the log of the second one's scale.", _funnel, (0.0, 0.5),
            (-5.0, 4.0, -8.0, 8.0),
        ),
        "line": _line(),
        "moons": _moons(),
    }  # fmt: skip
