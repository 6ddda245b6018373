"""The check of probabilistic backpropagation, in float64: forward, backward and the prior by hand in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lamu.algorithms.moments.pbp import pbp
from lamu.data.batch import Batch
from lamu.families import Gamma
from lamu.likelihoods import Gaussian
from lamu.model import Model
from lamu.networks import MLP
from lamu.objective import Objective
from lamu.priors import Normal
from lamu.verification.check import Check
from lamu.verification.vectors import flat

__all__ = ["moment_rows"]

NOISE = (6.0, 6.0)  # under which no row has to be refused
ROWS, EPOCHS = 20, 3  # from the second on, rows take out their share of the pass before


def moment_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of the algorithm; each is a function without arguments."""
    return {"pbp": _pbp}


def _pbp() -> Check:
    generator = np.random.default_rng(4)
    x = generator.normal(size=(ROWS, 2))
    y = np.abs(x[:, 0]) - 0.5 * x[:, 1] + 0.2 * generator.normal(size=ROWS)
    objective = Objective(Model(MLP((3,)), Gaussian(), Normal(0.8)), float(ROWS))
    batches = [Batch.of(x[start : start + 8], y[start : start + 8]).padded(8) for start in (0, 8, 16)]
    algorithm = pbp(noise=Gamma(*NOISE))
    state = algorithm.init(jax.random.key(0), objective, batches[0])
    network = _Network.of(state, delta=0.8**-2)
    step, key = jax.jit(algorithm.step), jax.random.key(1)
    for _ in range(EPOCHS):
        for batch in batches:
            state, _ = step(jax.random.clone(key), state, batch, objective)  # it draws nothing
        for row, target in zip(x, y, strict=True):
            network.absorb(row, target)
        network.refine()
    pairs = (
        (flat(state.mean), _joined(network.m)),
        (flat(state.variance), _joined(network.v)),
        (np.ravel([state.noise.shape, state.noise.rate]), np.array(network.noise)),
        (np.ravel([state.factors.belief.shape, state.factors.belief.rate]), np.array(network.prior)),
    )
    deviation = max(float(np.max(np.abs(one - other) / np.abs(other))) for one, other in pairs)
    return Check("pbp", f"NumPy by hand, {ROWS} rows, {EPOCHS} epochs, relative", deviation, 1e-8)


class _Network:
    """A hidden layer: means and variances as [kernel, bias] a layer, `[inputs + 1, outputs]`, the bias first."""

    def __init__(self, m: list[np.ndarray], v: list[np.ndarray], delta: float) -> None:
        self.m, self.v = m, v
        self.noise, self.prior = NOISE, (6.0, 6.0)
        # Natural parameters of what the rows said in the last pass: of the weights, then of the noise.
        self.last: Any = None
        self.unit = [np.full_like(part, 1 / (delta * len(part))) for part in m]
        self.sites = [np.zeros((4, *part.shape)) for part in m]
        for site, part in zip(self.sites, v, strict=True):
            site[1] = 1 / part

    @classmethod
    def of(cls, state: Any, delta: float) -> _Network:
        """The same numbers as a state's."""
        stack = lambda layer: np.concatenate([np.asarray(layer["bias"])[None], np.asarray(layer["kernel"])])
        m, v = ([stack(part["layers"][index]) for index in range(2)] for part in (state.mean, state.variance))
        return cls(m, v, delta)

    def absorb(self, x: np.ndarray, y: float) -> None:
        """One row of twenty: its share taken out, then the chain rule by hand."""
        if self.last is not None:
            for index, (p, r) in enumerate(self.last[0]):
                precision = 1 / self.v[index] - p / ROWS
                self.m[index] = (self.m[index] / self.v[index] - r / ROWS) / precision
                self.v[index] = 1 / precision
            shape, rate = (now - added / ROWS for now, added in zip(self.noise, self.last[1], strict=True))
            self.noise = (shape, rate)
        (m1, m2), (v1, v2) = self.m, self.v
        u = np.concatenate([[1.0], x])
        a, s = u @ m1, u**2 @ v1
        above, density = _cdf(a / np.sqrt(s)), _pdf(a / np.sqrt(s))
        h = a * above + np.sqrt(s) * density
        t = (a**2 + s) * above + a * np.sqrt(s) * density - h**2
        unit = np.concatenate([[1.0], h])
        wide = np.concatenate([[0.0], t])
        mean = float(unit @ m2[:, 0])
        variance = float(wide @ (m2[:, 0] ** 2 + v2[:, 0]) + unit**2 @ v2[:, 0])
        shape, rate = self.noise
        total = variance + rate / (shape - 1)
        to_mean, to_variance = (y - mean) / total, ((y - mean) ** 2 / total - 1) / (2 * total)
        g2m = (to_mean * unit + to_variance * 2 * wide * m2[:, 0])[:, None]
        g2v = (to_variance * (wide + unit**2))[:, None]
        to_h = (to_mean * m2[:, 0] + to_variance * 2 * unit * v2[:, 0])[1:]
        to_t = (to_variance * (m2[:, 0] ** 2 + v2[:, 0]))[1:]
        # d h = Φ da + φ/(2√s) ds, and d E[h²] = 2 h da + Φ ds.
        to_a = to_h * above + to_t * (2 * h - 2 * h * above)
        to_s = to_h * density / (2 * np.sqrt(s)) + to_t * (above - h * density / np.sqrt(s))
        g1m, g1v = u[:, None] * to_a[None], u[:, None] ** 2 * to_s[None]
        for index, (gm, gv) in enumerate(((g1m, g1v), (g2m, g2v))):
            v = self.v[index]
            self.m[index] = self.m[index] + v * gm
            self.v[index] = v - v**2 * (gm**2 - 2 * gv)
        self.noise = _renewed(shape, rate, variance, (y - mean) ** 2, 1.0)

    def refine(self) -> None:
        """What the rows said is kept; then the prior's factors, one weight after the other, in the order of leaves."""
        pairs = zip(self.m, self.v, self.sites, strict=True)
        self.last = (
            [(1 / v - site[1], m / v - site[0]) for m, v, site in pairs],
            [now - before for now, before in zip(self.noise, NOISE, strict=True)],
        )
        for index in range(2):
            m, v, site = self.m[index], self.v[index], self.sites[index]
            for place in np.ndindex(m.shape):
                shape, rate = self.prior[0] - site[(2, *place)], self.prior[1] - site[(3, *place)]
                unit = float(self.unit[index][place])
                left, pull = 1 / v[place] - site[(1, *place)], m[place] / v[place] - site[(0, *place)]
                if not 0 < 1 / left < 1e6 * unit:
                    continue
                wide, lean = 1 / left, pull / left
                total = wide + unit * rate / (shape - 1)
                m[place], v[place] = lean * (1 - wide / total), wide * (1 - wide / total)
                self.prior = _renewed(shape, rate, wide, lean**2, unit)
                site[(slice(None), *place)] = (
                    m[place] / v[place] - pull,
                    1 / v[place] - left,
                    self.prior[0] - shape,
                    self.prior[1] - rate,
                )


def _renewed(shape: float, rate: float, variance: float, square: float, unit: float) -> tuple[float, float]:
    v = [variance + unit * rate / (shape + away) for away in (-1.0, 0.0, 1.0)]
    z = [np.exp(-square / (2 * each)) / np.sqrt(each) for each in v]
    new_shape = 1 / (z[2] * z[0] / z[1] ** 2 * (shape + 1) / shape - 1)
    return new_shape, 1 / (z[2] / z[1] * (shape + 1) / rate - z[1] / z[0] * shape / rate)


def _cdf(z: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    return ndtr(z)


def _pdf(z: np.ndarray) -> np.ndarray:
    return np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Bias, then kernel, layer by layer, as the leaves are ravelled."""
    return np.concatenate([np.ravel(part) for part in parts])
