r"""Laws of algorithms that draw: where their runs end, beside closed forms, with every scale different from one.

A row's subject is an algorithm. Several runs of it, side by side and as `lamu.fit` makes them, are made on a
linear-Gaussian model: rows of unequal weight in minibatches that are padded, a temperature and a power other than one,
a prior about a point other than zero, and an input that is zero in every row. The extra `answer` says in NumPy where a
run should end: a function of the `Setting` that gives mean and precision, such as `mean_field` and `exact` below. An
algorithm of one's own has these laws by one line:

    row("stochastic", "mine", mine(), "closed belief prior dead common", answer=mean_field)

The average over runs is compared in standard errors, which the runs themselves give. With 12 runs, six standard errors
are exceeded by chance once in 11,000 numbers (Student's t, 11 degrees of freedom); a bias of `BIAS` is allowed on top,
in standard deviations of the answer for a mean and in logarithms for a precision. A standard error above `SHARP` fails:
such a law would not see a factor of 1.5. Keys are fixed, so what has passed passes.

Traits: "closed" (there is an `answer`), "belief" (the precision is claimed, not the mean alone), "dense" (so are its
correlations), "prior" (without data the belief is the prior), "dead" (so is that about a dead input's weight), "common"
(a row's share of everything is all that counts, so that a common factor of N, T and the prior changes nothing).

Extras beside `answer`: `steps`; `sharp` and `bias`, where they are others; `case`, where the model is another one;
`whole`, where a step sees all rows; `which` coordinates are looked at; `eager`, where a posterior cannot be traced;
`immune`, the faults of `FAULTS` that are none in this row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from scipy import optimize, stats

import lamu
from lamu import tree
from lamu.algorithms import (
    bayes_by_backprop,
    bayesbinn,
    blocks,
    bsam,
    conjugate_scales,
    cvi,
    dropout,
    igo,
    ivon,
    kfac,
    lie_group,
    mc_dropout,
    mixture,
    mixture_vi,
    noisy_kfac,
    online_laplace,
    sgd,
    slang,
    svi,
    swag,
    vogn,
    von,
)
from lamu.algorithms.descent import Flipout, LocalReparameterisation
from lamu.algorithms.ensembles.swag import DiagonalDeviations, LastPart
from lamu.data import Batch
from lamu.expectations import FenchelRelaxation, MonteCarlo, Relaxed
from lamu.families import Gamma, Mixture
from lamu.geometry import Affine, FullAffine, Straight
from lamu.mcmc import hmc, mala, minibatch_mh, nuts, parallel_tempering, psgld, random_walk, sghmc, sgld, sgnht, ula
from lamu.mcmc.subsampling import DelayedAcceptance
from lamu.networks import Dropout
from lamu.objective import Objective
from lamu.objective.curvature import RootScaledGradient
from lamu.observations import Poisson
from lamu.operators import Dense
from lamu.priors import ARD, HalfCauchyScale, InverseGammaVariance, Normal
from lamu.programs import NumpyroProgram
from lamu.rate import Annealed, Scheduled, over
from lamu.record import record, static
from lamu.update_rules import Clipped
from tests.laws.harness import ROWS, Row, law, row, twin, vocabulary

vocabulary("stochastic", "belief closed common dead dense prior")

RUNS, ERRORS, BIAS, SHARP, LANES, STEPS = 12, 6.0, 0.04, 0.06, 50, 800
DIMENSION, BATCHES, WIDEST = 4, 4, 6


@dataclass(frozen=True)
class Setting:
    """The scales of a problem: rows N and B, temperature, power, the prior's precision and mean."""

    rows: int
    batch: int
    temperature: float
    power: float
    delta: float
    loc: float
    weightless: bool = False
    common: float = 1.0  # multiplies N, T and the prior: a row's share of each is what it was

    @property
    def batches(self) -> int:
        return self.rows // self.batch


# A fault in any scale shows in either of the first two; the next two are the same, their rows of weight zero.
LIVE = (Setting(12, 4, 0.4, 0.5, 2.0, 0.7), Setting(20, 5, 1.8, 1.7, 0.8, -0.5))
SETTINGS = (*LIVE, *(replace(setting, weightless=True) for setting in LIVE), replace(LIVE[0], common=4.0))
WEIGHTLESS, COMMON = (2, 3), 4


@cache
def inputs(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, the last of them dead, and weights."""
    z = np.random.default_rng(setting.rows).normal(size=(setting.rows, 2))
    x = np.column_stack([z[:, 0], 0.6 * z[:, 0] + 0.8 * z[:, 1], np.zeros(setting.rows)])
    weights = np.where(np.arange(setting.rows) % 2, 0.25, 0.95)
    return x, np.zeros(setting.rows) if setting.weightless else weights


def design(setting: Setting) -> np.ndarray:
    return np.column_stack([np.ones(setting.rows), inputs(setting)[0]])


@record
class Scales:
    """What an objective and its batches are made of, as numbers that a fault may change."""

    data_size: Any
    temperature: Any
    power: Any
    delta: Any
    loc: Any
    weighing: Any  # 1 where rows have their weights, 0 where they count the same
    real: Any  # 1 where padded rows are masked, 0 where they are counted as rows
    fresh: Any  # 1 where every step has a key of its own

    @classmethod
    def of(cls, setting: Setting) -> Scales:
        size, T, delta = (setting.common * scale for scale in (setting.rows, setting.temperature, setting.delta))
        return cls(size, T, setting.power, delta, setting.loc, 1.0, 1.0, 1)


@dataclass(frozen=True, eq=False)
class LinearRegression:
    """A linear network with known noise, its targets, and the mean and precision of what it believes."""

    network: Any = field(default_factory=lamu.networks.Linear)
    noise: float = 0.6

    def objective(self, scales: Scales) -> Objective:
        prior = Normal(scales.delta**-0.5, scales.loc)
        model = lamu.Model(self.network, lamu.likelihoods.Gaussian(self.noise), prior)
        return Objective(model, scales.data_size, scales.temperature, scales.power)

    def inputs(self, setting: Setting) -> np.ndarray:
        return inputs(setting)[0]

    def targets(self, setting: Setting) -> np.ndarray:
        noise = np.random.default_rng(setting.rows + 1).normal(size=setting.rows)
        return design(setting) @ [0.5, 1.0, -1.5, 3.0] + self.noise * noise

    def prior(self, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
        """Mean and precision of the prior to the power 1/T."""
        return np.full(DIMENSION, setting.loc), setting.delta / setting.temperature * np.eye(DIMENSION)

    def read(self, belief: Any) -> tuple[Any, Any]:
        """Mean and precision of a belief."""
        gaussian = belief.factors["network"] if hasattr(belief, "factors") else belief
        if isinstance(gaussian, Mixture):
            weights, mean = gaussian.weights, jax.vmap(lambda m: tree.ravel(m)[0])(gaussian.components.mean)
            covariances = jax.vmap(lambda q: jnp.linalg.inv(q.precision.dense(q.mean)))(gaussian.components)
            centre = weights @ mean
            spread = jnp.einsum("k,ki,kj->ij", weights, mean - centre[None], mean - centre[None])
            return centre, jnp.linalg.inv(jnp.tensordot(weights, covariances, axes=1) + spread)
        if not hasattr(gaussian, "precision"):
            mean = gaussian.mean["network"] if isinstance(gaussian.mean, dict) else gaussian.mean
            return tree.ravel(mean)[0], jnp.eye(DIMENSION)
        return tree.ravel(gaussian.mean)[0], gaussian.precision.dense(gaussian.mean)


REGRESSION = LinearRegression()
NOISE = REGRESSION.noise


@cache
def batches(case: Any, setting: Setting) -> Batch:
    """The rows in batches `[BATCHES, WIDEST]`, most of them padded with nonsense."""

    def padded(rows: np.ndarray, fill: float) -> np.ndarray:
        whole = np.full((BATCHES, WIDEST, *rows.shape[1:]), fill, float)
        whole[: setting.batches, : setting.batch] = rows.reshape(setting.batches, setting.batch, *rows.shape[1:])
        return whole

    y, weights = case.targets(setting), inputs(setting)[1]
    mask = padded(np.ones(setting.rows), 0.0)
    return Batch(padded(case.inputs(setting), 5.0), padded(y, 3.0), mask, padded(weights, 2.0))


@dataclass(frozen=True)
class Fault:
    """One likely mistake: in what an algorithm is told at some of its stages, or in the belief that it gives."""

    told: Callable[[Scales, Setting], Scales] = lambda scales, setting: scales
    stages: tuple[str, ...] = ("init", "step", "posterior")
    belief: Callable[[np.ndarray, Setting], np.ndarray] = lambda precision, setting: precision

    @property
    def runs(self) -> Fault:
        """Whose runs it has: a fault in the belief alone has those of a sound algorithm."""
        return SOUND if self.told is SOUND.told else self

    def scales(self, setting: Setting) -> dict[str, Scales]:
        sound = Scales.of(setting)
        return {name: self.told(sound, setting) if name in self.stages else sound for name in STAGES}


STAGES = ("init", "step", "posterior")
SOUND = Fault()


@partial(jax.jit, static_argnums=(1, 2, 3, 4))
def run(
    algorithm: Any,
    case: Any,
    steps: int,
    eager: bool,
    whole: bool,
    told: Any,
    data: Batch,
    at: Any,
    counts: Any,
    seeds: Any,
):
    """Returns where every lane ends: mean and precision, or the state where the posterior cannot be traced."""
    samples = algorithm.traits.length is not None

    def lane(told: dict[str, Scales], at: Any, count: Any, seed: Any) -> Any:
        objectives = {name: case.objective(told[name]) for name in STAGES}
        key, scales = jax.random.key(seed), told["step"]
        rows = jax.tree.map(lambda leaf: leaf[at], data)
        rows = replace(
            rows,
            weight=1 + scales.weighing * (rows.weight - 1),
            # A batch of padding alone is none.
            mask=jnp.where((scales.real > 0) | ~jnp.any(rows.mask > 0, axis=1, keepdims=True), rows.mask, 1.0),
        )
        if whole:
            rows = jax.tree.map(lambda leaf: leaf.reshape(1, -1, *leaf.shape[2:]), rows)

        def step(carry: Any, t: Any) -> Any:
            state, moments = carry
            batch_key, step_key = jax.random.split(jax.random.fold_in(key, 1 + t * scales.fresh))
            which = 0 if whole else jax.random.randint(batch_key, (), 0, count)
            batch = jax.tree.map(lambda leaf: leaf[which], rows)
            state, info = algorithm.step(step_key, state, batch, objectives["step"])
            if samples:
                theta = tree.ravel(getattr(info.draw, "position", info.draw)["network"])[0]
                counts = (t >= algorithm.traits.warmup).astype(theta.dtype)
                moments = tree.add(moments, (jnp.ones(()), theta, jnp.outer(theta, theta)), counts)
            return (state, moments), None

        state = algorithm.init(jax.random.fold_in(key, 0), objectives["init"], jax.tree.map(lambda a: a[0], rows))
        moments = (jnp.zeros(()), jnp.zeros(DIMENSION), jnp.zeros((DIMENSION, DIMENSION)))
        (state, (total, first, second)), _ = jax.lax.scan(step, (state, moments), jnp.arange(steps))
        if samples:
            mean = first / total
            return mean, jnp.linalg.inv(second / total - jnp.outer(mean, mean))
        if eager:
            return state
        return case.read(algorithm.posterior(key, state, objectives["posterior"], None, None).belief)

    return jax.vmap(lane)(told, at, counts, seeds)


SEEN: dict[Any, Any] = {}


def prefetch(row: Row, wanted: list[tuple[int, Fault, int]]) -> None:
    """Makes runs (of a setting, a fault, a number) side by side, always as many at a time: compiled once a row."""
    wanted = list(dict.fromkeys((index, fault.runs, seed) for index, fault, seed in wanted))
    lanes = [lane for lane in wanted if (row.name, lane) not in SEEN]
    case, steps = row.extras.get("case", REGRESSION), row.extras.get("steps", STEPS)
    algorithm, eager = over(steps, row.subject), row.extras.get("eager", False)
    whole = row.extras.get("whole", algorithm.traits.batching == "full")
    data = jax.tree.map(lambda *leaves: np.stack(leaves), *[batches(case, setting) for setting in SETTINGS])
    for begin in range(0, len(lanes), LANES):
        some = lanes[begin : begin + LANES]
        filled = some + [some[-1]] * (LANES - len(some))
        scales = [fault.scales(SETTINGS[index]) for index, fault, _ in filled]
        told = jax.tree.map(lambda *leaves: np.asarray(leaves), *scales)
        at = np.asarray([index for index, _, _ in filled])
        counts = np.asarray([SETTINGS[index].batches for index, _, _ in filled])
        # A run has the same key whatever the fault, so that a fault that changes nothing is seen to change nothing.
        seeds = np.asarray([seed for _, _, seed in filled])
        with jax.debug_key_reuse(False):  # the checker takes any vmapped scan over keys for a second use of them
            ends = run(algorithm, case, steps, eager, whole, told, data, at, counts, seeds)
        if eager:
            states = [jax.tree.map(lambda leaf, i=i: leaf[i], ends) for i in range(len(some))]
            pairs = zip(states, scales, strict=False)
            ends = [read_of(algorithm, case, state, scale["posterior"]) for state, scale in pairs]
            ends = jax.tree.map(lambda *leaves: np.stack(leaves), *ends)
        mean, precision = (np.asarray(part) for part in ends)
        for i, lane in enumerate(some):
            SEEN[row.name, lane] = mean[i], precision[i]


def read_of(algorithm: Any, case: Any, state: Any, scales: Scales) -> Any:
    # Arrays, as inside a compiled step: a number would be looked at, and a fault be refused where it is none.
    objective = case.objective(jax.tree.map(jnp.asarray, scales))
    try:
        return case.read(algorithm.posterior(jax.random.key(0), state, objective, None, None).belief)
    except ValueError:  # what is no Gaussian is not finite either
        return np.full(DIMENSION, np.nan), np.full((DIMENSION, DIMENSION), np.nan)


def ends_of(row: Row, index: int, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Means `[runs, D]` and precisions `[runs, D, D]` of so many runs, which were made before."""
    fault, setting = row.extras.get("planted", SOUND), SETTINGS[index]
    ends = [SEEN[row.name, (index, fault.runs, seed)] for seed in range(seeds)]
    return np.stack([end[0] for end in ends]), np.stack([fault.belief(end[1], setting) for end in ends])


def ended(row: Row, index: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the row's runs end on a setting."""
    fault, runs = row.extras.get("planted", SOUND), row.extras.get("runs", RUNS)
    if not all((row.name, (index, fault.runs, seed)) in SEEN for seed in range(runs)):
        # All that the laws of a row ask for, at once.
        prefetch(row, [(i, fault, seed) for i in range(len(SETTINGS)) for seed in range(2 if i == COMMON else runs)])
    mean, precision = ends_of(row, index, runs)
    assert np.all(np.isfinite(mean)), "a mean is not finite"
    assert np.all(np.isfinite(precision)), "a precision is not finite"
    return mean, precision


def assert_close(row: Row, index: int, mean: np.ndarray, precision: np.ndarray, which: Any = None) -> None:
    """Asserts that the runs' average is where it should be, by the standard errors that the runs give."""
    which = row.extras.get("which", slice(None)) if which is None else which
    found, precisions = ended(row, index)
    scale = np.sqrt(np.diagonal(precision))
    away = [((found - mean) * scale)[:, which]]
    if "belief" in row.traits:
        diagonal = np.diagonal(precisions, axis1=1, axis2=2)
        assert np.all(diagonal > 0), "a precision is not positive"
        away.append(np.log(diagonal / scale**2)[:, which])
    if "dense" in row.traits and which == slice(None):
        upper = np.triu_indices(len(mean), 1)
        away.append(((precisions - precision) / np.outer(scale, scale))[:, *upper])
    away = np.concatenate(away, axis=1)
    error = away.std(axis=0, ddof=1) / np.sqrt(len(away))
    where = f"on {SETTINGS[index]}: {away.mean(axis=0).round(3)} with standard errors {error.round(3)}"
    assert np.all(np.abs(away.mean(axis=0)) < row.extras.get("bias", BIAS) + ERRORS * error), where
    assert np.all(error < row.extras.get("sharp", SHARP)), f"too wide to say anything {where}"


@law("stochastic", when="closed")
def runs_end_at_the_closed_form(row: Row) -> None:
    """Two numbers of rows, of rows a batch, two temperatures, powers and priors: each of them counts once."""
    for index in row.extras.get("settings", (0, 1)):
        assert_close(row, index, *row.extras["answer"](SETTINGS[index]))


@law("stochastic", when="prior")
def rows_of_weight_zero_lead_to_the_prior(row: Row) -> None:
    """To its mean and, at two temperatures, to its precision over T."""
    for index in row.extras.get("settings", (0, 1)):
        assert_close(row, WEIGHTLESS[index], *row.extras.get("case", REGRESSION).prior(SETTINGS[index]))


@law("stochastic", when="prior dead")
def a_dead_input_keeps_the_prior(row: Row) -> None:
    """Its weight has the prior's mean and width, beside weights that the data narrow."""
    for index in row.extras.get("settings", (0, 1)):
        mean, precision = row.extras.get("case", REGRESSION).prior(SETTINGS[index])
        assert_close(row, index, mean, precision, which=[-1])
        if "belief" in row.traits:
            diagonal = np.diagonal(ended(row, index)[1], axis1=1, axis2=2).mean(axis=0)
            assert np.all(diagonal[:-1] > 1.3 * diagonal[-1]), f"live inputs have {diagonal}"


@law("stochastic", when="common")
def a_common_factor_changes_nothing(row: Row) -> None:
    """N, T and the prior times four, which leaves the prior's share of a row and N / T: the same run under a key."""
    fault = row.extras.get("planted", SOUND)
    prefetch(row, [(index, fault, seed) for index in (0, COMMON) for seed in range(2)])
    for one, other in zip(ends_of(row, 0, 2), ends_of(row, COMMON, 2), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def exact(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """The posterior, by the normal equations."""
    X, weights, y = design(setting), inputs(setting)[1], REGRESSION.targets(setting)
    share = setting.power / NOISE**2
    precision = (share * X.T @ (weights[:, None] * X) + setting.delta * np.eye(DIMENSION)) / setting.temperature
    right = (share * X.T @ (weights * y) + setting.delta * setting.loc) / setting.temperature
    return np.linalg.solve(precision, right), precision


def mean_field(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """The diagonal Gaussian that is closest to it: its own diagonal of the precision."""
    mean, precision = exact(setting)
    return mean, np.diag(np.diagonal(precision))


def squared_gradients(setting: Setting, diagonal: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """With the rows' squared gradients for the Hessian: the belief in which they are taken is the one they make."""
    mean, precision = mean_field(setting) if diagonal else exact(setting)
    X, weights, y = design(setting), inputs(setting)[1], REGRESSION.targets(setting)
    for _ in range(500):
        spread = np.einsum("ni,ij,nj->n", X, np.linalg.inv(precision), X)
        squares = setting.power * weights * ((y - X @ mean) ** 2 + spread) / NOISE**4
        target = (X.T @ (squares[:, None] * X) + setting.delta * np.eye(DIMENSION)) / setting.temperature
        target = np.diag(np.diagonal(target)) if diagonal else target
        precision = (precision + target) / 2
    return mean, precision


def in_batches(setting: Setting, case: LinearRegression = REGRESSION) -> tuple[np.ndarray, np.ndarray]:
    """Curvature and right-hand side a row of every batch: its gradient is the one times θ less the other."""
    X, weights, y = design(setting), inputs(setting)[1], case.targets(setting)
    share = setting.power / case.noise**2 / setting.batch
    X, r, y = (a.reshape(setting.batches, setting.batch, *a.shape[1:]) for a in (X, share * weights, y))
    return np.einsum("bni,bn,bnj->bij", X, r, X), np.einsum("bni,bn,bn->bi", X, r, y)


def sharpened(setting: Setting, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """bSAM's: the mean field's precision, and gradients a scaled ascent away from the draw, batch by batch."""
    curvature, right = in_batches(setting)
    N, delta = setting.rows, setting.delta / setting.rows
    s = np.diagonal(curvature.mean(axis=0)) + delta
    lever = np.eye(DIMENSION) + radius * curvature / s[None, None, :]
    pulled = (lever @ curvature).mean(axis=0) + delta * np.eye(DIMENSION)
    mean = np.linalg.solve(pulled, (lever @ right[:, :, None])[:, :, 0].mean(axis=0) + delta * setting.loc)
    return mean, N / setting.temperature * np.diag(s)


def root_scaled(setting: Setting, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """bSAM's: the mean of √s |g| for normal g, batch by batch; gradients a scaled ascent away from the mean."""
    curvature, right = in_batches(setting)
    N, delta = setting.rows, setting.delta / setting.rows
    kappa = N / setting.temperature
    s = np.full(DIMENSION, delta + 1.0)
    for _ in range(2000):
        lever = np.eye(DIMENSION) + radius * curvature / s[None, None, :]
        pulled = (lever @ curvature).mean(axis=0) + delta * np.eye(DIMENSION)
        mean = np.linalg.solve(pulled, (lever @ right[:, :, None])[:, :, 0].mean(axis=0) + delta * setting.loc)
        centre = curvature @ mean - right
        deviation = np.sqrt((curvature**2 / (kappa * s)[None, None, :]).sum(axis=2)) + 1e-300
        folded = deviation * np.sqrt(2 / np.pi) * np.exp(-((centre / deviation) ** 2) / 2) + centre * (
            1 - 2 * stats.norm.cdf(-centre / deviation)
        )
        s = (s + np.sqrt(s) * folded.mean(axis=0) + delta) / 2
    return mean, kappa * np.diag(s)


def kronecker(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """K-FAC's: the factors averaged over the batches each by itself."""
    X, weights = design(setting), inputs(setting)[1]
    X, weights = (a.reshape(setting.batches, setting.batch, *a.shape[1:]) for a in (X, weights))
    inside = np.einsum("bni,bn,bnj->bij", X, weights, X) / weights.sum(axis=1)[:, None, None]
    outside = setting.power * weights.mean(axis=1) / NOISE**2
    data = setting.rows * inside.mean(axis=0) * outside.mean()
    return exact(setting)[0], (data + setting.delta * np.eye(DIMENSION)) / setting.temperature


def under_noise(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """The mode of the loss whose inputs are dropped at RATE: noise of mean one and variance RATE / (1 − RATE)."""
    mean, precision = exact(setting)
    right = precision @ mean
    data = np.diagonal(precision) - setting.delta / setting.temperature
    more = RATE / (1 - RATE) * np.diag(np.where(np.arange(DIMENSION) == 0, 0.0, data))
    return np.linalg.solve(precision + more, right), precision + more


def stationary(
    setting: Setting, rate: float, friction: float = 1.0, noisy: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Where SGD's iterates lie about the mode, a batch at random a step; with Langevin noise where `noisy`."""
    curvature, right = in_batches(setting)
    delta, eye, root = setting.delta / setting.rows, np.eye(DIMENSION), np.sqrt(rate)
    mean = exact(setting)[0]
    impulse = -root * (curvature + delta * eye)
    jumps = -root * (curvature @ mean - right + delta * (mean - setting.loc))
    # The position moves by the new momentum.
    A = [np.block([[eye + root * K, root * (1 - friction) * eye], [K, (1 - friction) * eye]]) for K in impulse]
    both = np.concatenate([root * jumps, jumps], axis=1)
    added = both.T @ both / len(both)
    noise = np.vstack([root * eye, eye])
    added = added + noisy * 2 * friction * setting.temperature / setting.rows * noise @ noise.T
    lifted = sum(np.kron(a, a) for a in A) / len(A)
    size = 2 * DIMENSION
    covariance = np.linalg.solve(np.eye(size**2) - lifted, added.ravel()).reshape(size, size)
    covariance = covariance[:DIMENSION, :DIMENSION]
    return mean, np.linalg.inv(covariance) if noisy else np.diag(1 / np.maximum(np.diagonal(covariance), 1e-30))


def under_learned_prior(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Laplace's Gaussian where the evidence has no slope in the prior's precision, with the weights held."""

    def slope(log_delta: float) -> float:
        at = replace(setting, delta=np.exp(log_delta))
        mean, precision = exact(at)
        fit = DIMENSION / at.delta - np.sum((mean - at.loc) ** 2)
        return fit / setting.temperature - np.trace(np.linalg.inv(precision)) / setting.temperature

    return exact(replace(setting, delta=np.exp(optimize.brentq(slope, -5, 2))))


RATE = 0.3


@record
class DroppedInputs:
    """A linear network that drops inputs wherever it has a key."""

    linear: bool = static(default=True)
    head: str = static(default="*")

    def init(self, key: Any, x: Any, outputs: int) -> Any:
        return lamu.networks.Linear().init(key, x, outputs)

    def apply(self, params: Any, state: Any, x: Any, key: Any, train: bool) -> Any:
        x = Dropout(RATE).apply(x, key)
        return lamu.networks.Linear().apply(params, state, x, None, train)


@dataclass(frozen=True, eq=False)
class Counts(LinearRegression):
    """Poisson counts under a Gamma prior, whose information is δ rows'."""

    def objective(self, scales: Scales) -> Objective:
        prior = Gamma(1.0 + SHAPE * scales.delta, scales.delta)
        return Objective(lamu.ConjugateModel(Poisson(), prior), scales.data_size, scales.temperature, scales.power)

    def inputs(self, setting: Setting) -> np.ndarray:
        return np.zeros((setting.rows, 0))

    def targets(self, setting: Setting) -> np.ndarray:
        return np.random.default_rng(setting.rows).poisson(3.0, setting.rows).astype(float)

    def answer(self, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
        weights = setting.power * inputs(setting)[1]
        shape = 1 + (SHAPE * setting.delta + weights @ self.targets(setting)) / setting.temperature
        rate = (setting.delta + weights.sum()) / setting.temperature
        return np.array([shape / rate]), np.array([[rate**2 / shape]])

    def prior(self, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
        return self.answer(replace(setting, weightless=True))

    def read(self, belief: Any) -> tuple[Any, Any]:
        gamma = belief.factors["network"]
        return jnp.stack([gamma.shape / gamma.rate]), jnp.stack([gamma.rate**2 / gamma.shape])[:, None]


SHAPE, COUNTS = 1.3, Counts()


@dataclass(frozen=True, eq=False)
class Relevance(LinearRegression):
    """The same regression, every weight with a scale whose precision is Gamma(a, δ)."""

    shape: float = 1.5

    def objective(self, scales: Scales) -> Objective:
        prior = ARD(by="weight", law=InverseGammaVariance(self.shape, scales.delta), leaves="*")
        model = lamu.Model(self.network, lamu.likelihoods.Gaussian(self.noise), prior)
        return Objective(model, scales.data_size, scales.temperature, scales.power)

    def answer(self, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
        """The best product of beliefs about weights and scales, by turns."""
        X, weights, T = design(setting), inputs(setting)[1], setting.temperature
        share, mean = setting.power / self.noise**2, np.zeros(DIMENSION)
        gram, right = share * X.T @ (weights[:, None] * X), share * X.T @ (weights * self.targets(setting))
        relevance = np.ones(DIMENSION)
        for _ in range(2000):
            mean = np.linalg.solve(gram + np.diag(relevance), right)
            precision = (np.diagonal(gram) + relevance) / T
            relevance = self.relevance(setting, relevance, mean**2 + 1.0 / precision)
        return mean, np.diag(precision)

    def relevance(self, setting: Setting, before: np.ndarray, squares: np.ndarray) -> np.ndarray:
        """The mean precisions of the weights, of their mean squares."""
        return (self.shape - 0.5 + setting.temperature) / (setting.delta + squares / 2.0)

    def prior(self, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
        return self.answer(replace(setting, weightless=True))


@dataclass(frozen=True, eq=False)
class HeavyRelevance(Relevance):
    """The same regression, every weight with a half-Cauchy scale of median δ^(−1/2)."""

    def objective(self, scales: Scales) -> Objective:
        prior = ARD(by="weight", law=HalfCauchyScale(scales.delta**-0.5), leaves="*")
        model = lamu.Model(self.network, lamu.likelihoods.Gaussian(self.noise), prior)
        return Objective(model, scales.data_size, scales.temperature, scales.power)

    def relevance(self, setting: Setting, before: np.ndarray, squares: np.ndarray) -> np.ndarray:
        """Those of the auxiliary variables' mean between, q(1/ν) = Gamma(1, (δ + E[1/τ²])/T)."""
        return setting.temperature / (setting.temperature / (setting.delta + before) + squares / 2.0)


RELEVANCE, HEAVY_RELEVANCE = Relevance(), HeavyRelevance()


@dataclass(frozen=True, eq=False)
class Program(LinearRegression):
    """The same regression as a NumPyro program, with the prior's scales as arguments."""

    def targets(self, setting: Setting) -> np.ndarray:
        written_program()  # read here, since runs ask for their objectives inside a trace
        return super().targets(setting)

    def objective(self, scales: Scales) -> Objective:
        model = replace(written_program(), constants={"delta": scales.delta, "loc": scales.loc})
        return Objective(model, scales.data_size, scales.temperature, scales.power)

    def read(self, belief: Any) -> tuple[Any, Any]:
        normal = belief.factors["network"].factors["normal"]
        return normal.mean["w"], normal.precision.matrix


@record
class ProgramOfArrays(NumpyroProgram):
    """The program's rows as the x and y of the batches here."""

    def log_likelihood(
        self, params: Any, state: Any, batch: Batch, key: Any = None, train: bool = False
    ) -> tuple[Any, Any]:
        return super().log_likelihood(params, state, replace(batch, y={"x": batch.x, "y": batch.y}), key, train)


@cache
def written_program() -> ProgramOfArrays:
    def program(x: Any, y: Any, delta: Any, loc: Any) -> None:
        w = numpyro.sample("w", dist.Normal(loc, delta**-0.5).expand([DIMENSION]).to_event(1))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(w[0] + x @ w[1:], NOISE), obs=y)

    data = {"x": np.ones((4, 3)), "y": np.zeros(4), "delta": np.asarray(1.0), "loc": np.asarray(0.0)}
    read = lamu.from_numpyro(program, data, rows="rows")
    return ProgramOfArrays(**{part.name: getattr(read, part.name) for part in fields(read)})


PROGRAM = Program()


@dataclass(frozen=True, eq=False)
class Signs(LinearRegression):
    """Weights of ±1, whose half log odds are what is believed."""

    def prior(self, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
        return np.full(DIMENSION, setting.delta * setting.loc / setting.temperature), np.eye(DIMENSION)

    def answer(self, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
        """The fixed point of the rule with relaxed draws, by quadrature over their logistic noise."""
        curvature, right = (part.mean(axis=0) for part in in_batches(setting, self))
        kappa, prior = setting.rows / setting.temperature, self.prior(setting)[0]
        u = (np.arange(4000) + 0.5) / 4000
        noise = np.log(u / (1 - u)) / 2
        natural = prior
        for _ in range(4000):
            theta = np.tanh((natural[:, None] + noise) / TAU)
            slope = (1 - theta**2 + FLOOR) / (TAU * (1 - np.tanh(natural) ** 2 + FLOOR))[:, None]
            others = curvature @ theta.mean(axis=1) - np.diagonal(curvature) * theta.mean(axis=1) - right
            gradient = slope.mean(axis=1) * others + np.diagonal(curvature) * (slope * theta).mean(axis=1)
            natural = natural + 0.02 * (prior - kappa * gradient - natural)
        return natural, np.eye(DIMENSION)

    def mean_field(self, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
        """The fixed point of the rule itself, of a loss that is a quadratic of the weights."""
        curvature, right = (part.mean(axis=0) for part in in_batches(setting, self))
        kappa, prior = setting.rows / setting.temperature, self.prior(setting)[0]
        natural = prior
        for _ in range(4000):
            mu = np.tanh(natural)
            gradient = curvature @ mu - np.diagonal(curvature) * mu - right
            natural = natural + 0.02 * (prior - kappa * gradient - natural)
        return natural, np.eye(DIMENSION)

    def read(self, belief: Any) -> tuple[Any, Any]:
        return tree.ravel(belief.factors["network"].half_logit)[0], jnp.eye(DIMENSION)


TAU, FLOOR, SIGNS = 0.5, 0.1, Signs(noise=2.0)


falling = Scheduled(lambda t: 3.0 / (t + 3.0))


def quick(rule: Any, **changes: Any) -> Any:
    """The rule with an average of all steps for its precision, and no clipping: short runs end where long ones do."""
    metric = rule.metric.base if isinstance(rule.metric, Clipped) else rule.metric
    short = {"precision_rate": falling, "metric": metric, "learning_rate": Annealed(0.2)}
    return replace(rule, **{**short, **changes})


def told(**changes: Callable[[Scales, Setting], Any]) -> Fault:
    """An algorithm that is told other scales, at all its stages."""
    return Fault(lambda scales, s: replace(scales, **{name: change(scales, s) for name, change in changes.items()}))


def times(factor: Callable[[Setting], Any]) -> Fault:
    """The data's share of the loss times a factor."""
    return told(power=lambda scales, s: scales.power * factor(s))


def rooted(precision: np.ndarray, exponent: float) -> np.ndarray:
    values, vectors = np.linalg.eigh((precision + precision.T) / 2)
    return (vectors * np.maximum(values, 0.0) ** exponent) @ vectors.T


def believed(change: Callable[[np.ndarray, Setting], np.ndarray]) -> Fault:
    """Another precision in the belief than the one that was found."""
    return Fault(belief=change)


TOLD = {
    "a batch's sum for its mean": times(lambda s: s.batch),
    "a batch's sum for the data's": times(lambda s: s.batch / s.rows),
    "the data's sum for its mean": times(lambda s: s.rows),
    "padded rows in the denominator": times(lambda s: s.batch / WIDEST),
    "mask ignored": told(real=lambda scales, s: 0.0),
    "weights ignored": told(weighing=lambda scales, s: 0.0),
    "power forgotten": told(power=lambda scales, s: 1.0),
    "power twice": told(power=lambda scales, s: scales.power**2),
    "sign of the likelihood": times(lambda s: -1.0),
    "N twice": told(data_size=lambda scales, s: scales.data_size**2),
    "N forgotten": told(data_size=lambda scales, s: 1.0),
    "the batch's rows for N": told(data_size=lambda scales, s: float(s.batch)),
    "the number of batches for N": told(data_size=lambda scales, s: float(s.batches)),
    "prior dropped": told(delta=lambda scales, s: 1e-6),
    "prior twice": told(delta=lambda scales, s: 2 * scales.delta),
    "prior once a batch": told(delta=lambda scales, s: s.batches * scales.delta),
    "prior once a row": told(delta=lambda scales, s: s.rows * scales.delta),
    "deviation for variance in the prior": told(delta=lambda scales, s: scales.delta**0.5),
    "variance for precision in the prior": told(delta=lambda scales, s: 1 / scales.delta),
    "the prior's mean forgotten": told(loc=lambda scales, s: 0.0),
    "T forgotten": told(temperature=lambda scales, s: 1.0),
    "T inverted": told(temperature=lambda scales, s: 1 / scales.temperature),
    "T twice": told(temperature=lambda scales, s: scales.temperature**2),
    "root of T": told(temperature=lambda scales, s: scales.temperature**0.5),
    "T on the data alone": told(power=lambda scales, s: scales.power / scales.temperature, temperature=lambda *_: 1.0),
    "T on the prior alone": told(power=lambda scales, s: scales.power * scales.temperature),
    "one key for all steps": told(fresh=lambda scales, s: 0),
}
BELIEVED = {
    "deviation for variance": believed(lambda P, s: rooted(P, 0.5)),
    "variance for deviation": believed(lambda P, s: P @ P),
    "covariance for precision": believed(lambda P, s: np.linalg.inv(P)),
    "N forgotten in the belief": believed(lambda P, s: P / s.rows),
    "N twice in the belief": believed(lambda P, s: P * s.rows),
    "T forgotten in the belief": believed(lambda P, s: P * s.temperature),
    "T twice in the belief": believed(lambda P, s: P / s.temperature),
    "prior forgotten in the belief": believed(lambda P, s: P - s.delta / s.temperature * np.eye(len(P))),
    "prior twice in the belief": believed(lambda P, s: P + s.delta / s.temperature * np.eye(len(P))),
    "a row's precision": believed(lambda P, s: P * s.temperature / s.rows),
    "half the precision": believed(lambda P, s: P / 2),
}
# In one stage alone: found where that stage reads the scale.
APART = {
    f"{name}, {stage} alone": replace(TOLD[name], stages=(stage,))
    for name in ("N twice", "N forgotten", "T forgotten", "T inverted", "prior dropped", "prior twice")
    for stage in ("step", "posterior")
}
FAULTS = {**TOLD, **BELIEVED, **APART}


ALL, POINT, SAMPLER = "closed belief prior dead common", "closed prior dead common", "closed belief dense"
EMPIRICAL = partial(squared_gradients, diagonal=False)
LONG = {"steps": 4000, "sharp": 0.1}
DROPPED = {"answer": under_noise, "case": LinearRegression(DroppedInputs()), "steps": 2500}
# A point does not know the temperature, and a covariance of iterates neither that nor the prior.
COLD = ("T forgotten", "T inverted", "T twice", "root of T")
NO_PRIOR = ("prior forgotten in the belief", "prior twice in the belief")
# Where the prior is learned, it is where a run starts.
LEARNED = tuple(name for name in TOLD if "prior" in name and name != "the prior's mean forgotten")
by_backprop = bayes_by_backprop(optax.adam(0.03))
noisy = sgd(Annealed(0.1), momentum=0.5)
chain: dict[str, Any] = {"chains": 1, "warmup": 400, "draws": 1, "thinning": 1}
adapted: dict[str, Any] = {"chains": 1, "warmup": 300, "draws": 1000}
# Two hundred compiled steps side by side take seconds a row: the long ones are for `make laws`.
for name, algorithm, traits, extras in (
    ("ivon", quick(ivon()), ALL, {"answer": mean_field}),
    ("blocks", blocks({"*": quick(ivon())}), f"{ALL} long", {"answer": mean_field}),
    ("vogn", quick(vogn()), ALL, {"answer": squared_gradients}),
    ("slang", quick(slang(rank=4, curvature_update_period=1)), f"{ALL} dense long", {"answer": EMPIRICAL}),
    ("bsam", quick(bsam(radius=0.05)), f"{ALL} long", {"answer": partial(sharpened, radius=0.05)}),
    (
        "bsam, root-scaled",
        quick(bsam(radius=0.01, curvature=RootScaledGradient(), geometry=Straight(), expectation=FenchelRelaxation)),
        f"{ALL} long",
        {"answer": partial(root_scaled, radius=0.01)},
    ),
    (
        "kfac",
        quick(kfac(factor_update_period=1, inverse_update_period=1, damping=0.0)),
        f"{ALL} dense long",
        {"answer": kronecker},
    ),
    (
        "noisy_kfac",
        quick(noisy_kfac(factor_update_period=1, inverse_update_period=1, damping=0.0)),
        f"{ALL} dense long",
        {"answer": kronecker},
    ),
    ("lie_group", lie_group(Affine(), Annealed(0.05)), f"{ALL} long", {"answer": mean_field, "steps": 1500}),
    ("bayes_by_backprop", by_backprop, ALL, {"answer": mean_field}),
    (
        "online_laplace",
        online_laplace(sgd(0.3), burn_in=1, evidence_update_period=2),
        "closed belief dense long",
        {
            "answer": under_learned_prior,
            "whole": True,
            "eager": True,
            "immune": (*LEARNED, "a batch's sum for the data's", "one key for all steps"),
        },
    ),
    (
        "swag",
        swag(sgd(0.05), DiagonalDeviations(), LastPart(0.7, 2000)),
        "closed belief common long",
        {
            "answer": partial(stationary, rate=0.05, noisy=False),
            "which": [0, 1, 2],
            "steps": 2000,
            "immune": (*COLD, *NO_PRIOR),
        },
    ),
    ("mixture_vi", mixture_vi(components=2, samples=2), f"{ALL} dense long", {"answer": exact}),
    (
        "conjugate_scales",
        conjugate_scales(quick(ivon())),
        "closed belief prior dead",
        {"answer": RELEVANCE.answer, "case": RELEVANCE, "immune": ("the prior's mean forgotten", *NO_PRIOR)},
    ),
    (
        "conjugate_scales, half-Cauchy",
        conjugate_scales(quick(ivon())),
        "closed belief prior dead long",
        {
            "answer": HEAVY_RELEVANCE.answer,
            "case": HEAVY_RELEVANCE,
            "immune": ("the prior's mean forgotten", *NO_PRIOR),
        },
    ),
    ("cvi", cvi(pairs=1), f"{ALL} dense", {"answer": exact, "case": PROGRAM}),
    (
        "svi",
        svi(),
        "closed belief prior",
        {"answer": COUNTS.answer, "case": COUNTS, "immune": ("the prior's mean forgotten", *NO_PRIOR)},
    ),
    (
        "bayesbinn",
        bayesbinn(Annealed(0.02), leaves=("*",)),
        "closed prior dead",
        {"answer": SIGNS.mean_field, "case": SIGNS, "sharp": 0.15},
    ),
    (
        "bayesbinn, relaxed",
        bayesbinn(Annealed(0.02), Relaxed(TAU, 4, FLOOR), leaves=("*",)),
        "closed prior dead long",
        {"answer": SIGNS.answer, "case": SIGNS, "sharp": 0.15},
    ),
    ("mc_dropout", mc_dropout(noisy), POINT, {**DROPPED, "immune": COLD}),
    ("sgld", sgld(0.3, **chain), f"{SAMPLER} common long", {"answer": partial(stationary, rate=0.3), **LONG}),
    (
        "igo",
        igo(),
        f"{POINT} long",
        {"answer": exact, "steps": 150, "whole": True, "immune": (*COLD, "one key for all steps")},
    ),
    ("lie_group, full", lie_group(FullAffine(), Annealed(0.03)), f"{ALL} dense long", {"answer": exact, "steps": 4000}),
    ("von, dense", von(Annealed(0.2), Dense, MonteCarlo(1)), f"{ALL} dense long", {"answer": exact}),
    (
        "local reparameterisation",
        replace(by_backprop, estimator=LocalReparameterisation()),
        f"{ALL} long",
        {"answer": mean_field},
    ),
    ("flipout", replace(by_backprop, estimator=Flipout()), f"{ALL} long", {"answer": mean_field}),
    ("mixture", mixture(quick(ivon()), components=2), f"{ALL} long", {"answer": mean_field}),
    ("dropout", dropout(noisy), f"{POINT} long", {**DROPPED, "immune": COLD}),
    (
        "sghmc",
        sghmc(0.1, 0.3, **chain),
        f"{SAMPLER} common long",
        {"answer": partial(stationary, rate=0.1, friction=0.3), **LONG},
    ),
    ("psgld", psgld(0.02, **chain), f"{SAMPLER} long", {"answer": exact, "whole": True, **LONG, "bias": 0.12}),
    ("sgnht", sgnht(0.05, 0.3, **chain), f"{SAMPLER} long", {"answer": exact, "whole": True, **LONG}),
    ("nuts", nuts(**adapted), f"{SAMPLER} prior dead long", {"answer": exact, "steps": 1300}),
    ("hmc", hmc(**adapted), f"{SAMPLER} prior dead long", {"answer": exact, "steps": 1300}),
    ("mala", mala(**adapted), f"{SAMPLER} prior dead long", {"answer": exact, **LONG}),
    (
        "ula",
        ula(**adapted, target_acceptance=0.9),
        f"{SAMPLER} prior dead long",
        {"answer": exact, **LONG, "bias": 0.15},
    ),
    ("random_walk", random_walk(**adapted, thinning=1), f"{SAMPLER} prior dead long", {"answer": exact, **LONG}),
    (
        "parallel_tempering",
        parallel_tempering(**adapted, temperatures=(1.0, 3.0)),
        f"{SAMPLER} prior dead long",
        {"answer": exact, "steps": 1300},
    ),
    (
        "minibatch_mh",
        minibatch_mh(1, 1000, 1000, rows=7, test=DelayedAcceptance()),
        f"{SAMPLER} prior dead long",
        {"answer": exact, "steps": 8000, "sharp": 0.1},
    ),
):
    row("stochastic", name, algorithm, traits, **extras)

KNOWN = {row.name: row for row in ROWS if row.kind == "stochastic"}
CLOSED, WITHOUT, DEAD = (
    "runs_end_at_the_closed_form",
    "rows_of_weight_zero_lead_to_the_prior",
    "a_dead_input_keeps_the_prior",
)
# All faults in all rows are in `test_scale_faults.py`; these show what each law sees.
for name, fault, laws in (
    ("ivon", "prior dropped", f"{CLOSED} {WITHOUT} {DEAD}"),
    ("ivon", "T forgotten", f"{CLOSED} {WITHOUT} {DEAD} a_common_factor_changes_nothing"),
    ("ivon", "N twice", f"{CLOSED} a_common_factor_changes_nothing"),
    ("bayes_by_backprop", "a batch's sum for its mean", CLOSED),
    ("bayes_by_backprop", "T inverted", f"{WITHOUT} {DEAD}"),
    ("bayes_by_backprop", "deviation for variance", f"{CLOSED} {WITHOUT} {DEAD}"),
):
    twin(KNOWN[name], fault, laws, KNOWN[name].subject, planted=FAULTS[fault])
