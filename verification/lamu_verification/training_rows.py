"""The checks of descent, evidence, SWAG, moments, scales and filters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.algorithms.closed_form.extended_kalman import extended_kalman
from lamu.algorithms.descent.belief_descent import bayes_by_backprop
from lamu.algorithms.ensembles.swag import EverySteps, LowRankDeviations, swag
from lamu.algorithms.moments import pbp
from lamu.algorithms.optimisers import invariant_map, map_estimate, sgd
from lamu.algorithms.post_hoc.neural_linear import absorb, neural_linear
from lamu.algorithms.post_hoc.online_laplace import online_laplace
from lamu.algorithms.post_hoc.scale_search import OneScale
from lamu.algorithms.variational.conjugate_scales import conjugate_scales
from lamu.algorithms.variational.online_newton import von
from lamu.base.compile_once import lenient
from lamu.data import load
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.expectations import Exact
from lamu.families import Gamma
from lamu.likelihoods import Gaussian
from lamu.loop import fit
from lamu.model import Model
from lamu.networks import MLP, Linear
from lamu.objective import Objective
from lamu.operators import Dense, Diagonal
from lamu.priors import ARD, InverseGammaVariance, Normal
from lamu.typing import State
from lamu_verification import problems, references
from lamu_verification.problems import Check, distance, flat

__all__ = [
    "coordinate_ascent",
    "descent_rows",
    "evidence_rows",
    "filter_rows",
    "iterate_rows",
    "moment_rows",
    "regression_by_relevance",
    "scale_rows",
]


STEPS = 20


def descent_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of the algorithm; each is a function without arguments."""
    return {"bayes_by_backprop": _bayes_by_backprop, "invariant_map": _invariant_map}


def _bayes_by_backprop() -> Check:
    """Checks logistic regression by gradient descent with the algorithm's draws, by hand in NumPy."""
    import optax

    problem = problems.logistic()
    batches = (problem.batches(16) * 7)[:STEPS]
    algorithm = bayes_by_backprop(optax.sgd(0.3), init_scale=0.4, factor=1.0)
    state = algorithm.init(jax.random.key(4), problem.objective, batches[0])
    mean, raw = flat(state.params["mean"]), flat(state.params["raw"])
    step, n = jax.jit(algorithm.step), len(problem.y)
    for t, batch in enumerate(batches):
        key = jax.random.fold_in(jax.random.key(3), t)
        draw_key = jax.random.split(jax.random.clone(key))[0]
        z = flat(tree.normal(draw_key, state.params["mean"]))
        state, _ = step(key, state, batch, problem.objective)
        real = np.asarray(batch.mask) > 0
        x, y = np.column_stack([np.ones(real.sum()), np.asarray(batch.x)[real]]), np.asarray(batch.y)[real]
        scale, slope = np.log1p(np.exp(raw)), 1 / (1 + np.exp(-raw))
        gradient = x.T @ (1 / (1 + np.exp(-x @ (mean + scale * z))) - y) / len(y)
        mean_step = gradient + problem.precision * mean / n
        raw_step = (gradient * z + (problem.precision * scale - 1 / scale) / n) * slope
        mean, raw = mean - 0.3 * mean_step, raw - 0.3 * raw_step
    deviation = max(distance(flat(state.params["mean"]), mean), distance(flat(state.params["raw"]), raw))
    return Check("bayes_by_backprop", f"NumPy by hand on logistic regression, {STEPS} steps", deviation, 1e-12)


def _invariant_map() -> Check:
    """Checks logistic regression by Newton's method on the criterion, with its gradient by hand in NumPy."""
    problem = problems.logistic()
    batch = Batch.of(problem.x, problem.y)
    algorithm = invariant_map()
    state = algorithm.init(jax.random.key(4), problem.objective, batch)
    step = jax.jit(algorithm.step)
    for t in range(40):
        state, _ = step(jax.random.fold_in(jax.random.key(3), t), state, batch, problem.objective)
    # At the mode the gradient of log p(θ | D) − log det F / 2 is zero.
    x, w = problem.design, flat(state.params["network"])
    p = 1 / (1 + np.exp(-x @ w))
    information = x.T @ (x * (p * (1 - p))[:, None])
    leverage = np.einsum("ij,ij->i", x @ np.linalg.inv(information), x)
    gradient = x.T @ (np.asarray(problem.y) - p) - problem.precision * w
    volume = x.T @ (leverage * p * (1 - p) * (1 - 2 * p)) / 2
    hessian = information + problem.precision * np.eye(len(w))
    deviation = float(np.max(np.abs(np.linalg.solve(hessian, gradient - volume))))
    return Check("invariant_map", "NumPy by hand: its stationary point on logistic regression", deviation, 1e-7)


def evidence_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of the algorithm; each is a function without arguments."""
    return {
        "online_laplace": _online_laplace,
        "neural_linear": _neural_linear,
    }


def _online_laplace() -> Check:
    """Checks the evidence-maximising prior scale of linear regression by MacKay's fixed point in NumPy."""
    import optax

    problem = problems.regression()
    algorithm = online_laplace(
        map_estimate(optax.lbfgs()), OneScale(), Dense, burn_in=0, evidence_update_period=1, rate=0.05
    )
    rows = (problem.x, problem.y)
    posterior: Any = fit(problem.objective.model, rows, algorithm, steps=60, batch_size=len(problem.y)).posterior
    precision = problem.precision
    for _ in range(500):
        mean, gram, _ = references.linear_regression(problem.design, problem.y, problem.scale, precision)
        effective = len(mean) - precision * np.trace(np.linalg.inv(gram))
        precision = effective / (mean @ mean)
    _, _, evidence = references.linear_regression(problem.design, problem.y, problem.scale, precision)
    log_precision = -2 * float(jnp.log(posterior.model.prior.scale))
    deviation = max(abs(log_precision - np.log(precision)), abs(float(posterior.evidence) - evidence))
    words = "linear regression: MacKay's fixed point of the prior's scale, and its evidence"
    return Check("online_laplace", words, float(deviation), 1e-6)


def _neural_linear() -> Check:
    """Checks Normal-Gamma regression by hand in NumPy, with the rows in two parts."""
    import optax

    problem = problems.regression()
    model = Model(Linear(), Gaussian(), Normal(problem.precision**-0.5))
    algorithm = neural_linear(map_estimate(optax.lbfgs()), prior_rows=4.0)
    objective = replace(problem.objective, model=model)
    batch = Batch.of(problem.x, problem.y)
    state = algorithm.init(jax.random.key(0), objective, batch)
    for t in range(5):
        state, _ = algorithm.step(jax.random.fold_in(jax.random.key(1), t), state, batch, objective)
    noise = float(np.exp(2 * state.params["likelihood"]["log_scale"][0]))
    first = Arrays.of((problem.x[:12], problem.y[:12]))
    half = replace(objective, data_size=12.0)
    posterior: Any = algorithm.posterior(jax.random.key(2), state, half, first, None)
    belief: Any = absorb(posterior, (problem.x[12:], problem.y[12:])).belief
    design, y = problem.design, problem.y
    precision = problem.precision * noise * np.eye(design.shape[1]) + design.T @ design
    mean = np.linalg.solve(precision, design.T @ y)
    shape, rate = 2.0 + len(y) / 2, 2.0 * noise + (y @ y - mean @ precision @ mean) / 2
    pairs = ((tree.ravel(belief.location)[0], mean), (belief.precision[0], precision))
    deviation = max(float(np.max(np.abs(np.asarray(a) - b))) for a, b in pairs)
    deviation = max(deviation, abs(float(belief.shape[0]) - shape), abs(float(belief.rate[0]) - rate))
    words = "Normal-Gamma regression by hand in NumPy, its rows absorbed in two parts"
    return Check("neural_linear", words, float(deviation), 1e-10)


ITERATES, RANK, PERIOD, FIRST = 60, 4, 5, 10


def iterate_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of the algorithm; each is a function without arguments."""
    return {"swag": _swag}


def _swag() -> Check:
    import optax

    problem, key = problems.classes(), jax.random.key(0)
    batches = (problem.batches(16) * 15)[:ITERATES]
    algorithm = swag(sgd(0.1, momentum=0.9), LowRankDeviations(RANK), EverySteps(PERIOD, FIRST))
    state = algorithm.init(key, problem.objective, batches[0])
    params = {"network": state.inner.mean["network"], "likelihood": state.inner.mean["likelihood"]}
    optimiser = optax.sgd(0.1, momentum=0.9)
    memory = optimiser.init(params)
    step = jax.jit(algorithm.step)
    gradient = jax.jit(jax.grad(lambda params, batch: problem.objective.mean_loss(params, batch, {})[0]))
    mean, second, queue, count = 0.0, 0.0, [], 0
    for t, batch in enumerate(batches):
        state, _ = step(jax.random.fold_in(key, t), state, batch, problem.objective)
        with lenient():
            updates, memory = optimiser.update(gradient(params, batch), memory, params)
        params = optax.apply_updates(params, updates)
        if t >= FIRST and (t - FIRST) % PERIOD == 0:
            theta = flat(params)
            mean = (count * mean + theta) / (count + 1)
            second = (count * second + theta**2) / (count + 1)
            queue, count = [*queue[-(RANK - 1) :], theta - mean], count + 1
    columns = np.stack(queue, axis=1)
    covariance = (np.diag(second - mean**2) + columns @ columns.T / (RANK - 1)) / 2
    data = Arrays.of((problem.x, problem.y))
    posterior: Any = algorithm.posterior(key, state, problem.objective, data, None)
    belief = posterior.belief.factors["network"]
    dense = np.asarray(belief.precision.covariance.dense(belief.mean))
    deviation = max(np.max(np.abs(flat(belief.mean) - mean)), np.max(np.abs(dense - covariance)))
    words = f"NumPy by hand on optax's iterates, {count} of {ITERATES}, rank {RANK}"
    return Check("swag", words, float(deviation), 1e-10)


NOISE = (6.0, 6.0)  # under which every row is accepted
ROWS, EPOCHS = 20, 3  # from the second on, rows remove their factor of the previous pass


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
    """A hidden layer: means and variances as [kernel, bias] by layer, `[inputs + 1, outputs]`, the bias first."""

    def __init__(self, m: list[np.ndarray], v: list[np.ndarray], delta: float) -> None:
        self.m, self.v = m, v
        self.noise, self.prior = NOISE, (6.0, 6.0)
        # Natural parameters of the rows' factors in the last pass: of the weights, then of the noise.
        self.last: Any = None
        self.unit = [np.full_like(part, 1 / (delta * len(part))) for part in m]
        self.sites = [np.zeros((4, *part.shape)) for part in m]
        for site, part in zip(self.sites, v, strict=True):
            site[1] = 1 / part

    @classmethod
    def of(cls, state: State, delta: float) -> _Network:
        """Returns the same numbers from a state."""
        stack = lambda layer: np.concatenate([np.asarray(layer["bias"])[None], np.asarray(layer["kernel"])])
        m, v = ([stack(part["layers"][index]) for index in range(2)] for part in (state.mean, state.variance))
        return cls(m, v, delta)

    def absorb(self, x: np.ndarray, y: float) -> None:
        """Absorbs one row of twenty: removes its factor, then applies the chain rule by hand."""
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
        padded = np.concatenate([[0.0], t])
        mean = float(unit @ m2[:, 0])
        variance = float(padded @ (m2[:, 0] ** 2 + v2[:, 0]) + unit**2 @ v2[:, 0])
        shape, rate = self.noise
        total = variance + rate / (shape - 1)
        to_mean, to_variance = (y - mean) / total, ((y - mean) ** 2 / total - 1) / (2 * total)
        g2m = (to_mean * unit + to_variance * 2 * padded * m2[:, 0])[:, None]
        g2v = (to_variance * (padded + unit**2))[:, None]
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
        """Keeps the rows' factors; then refines the prior's factors, weight by weight, in the order of leaves."""
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
                precision, offset = 1 / v[place] - site[(1, *place)], m[place] / v[place] - site[(0, *place)]
                if not 0 < 1 / precision < 1e6 * unit:
                    continue
                variance, mean = 1 / precision, offset / precision
                total = variance + unit * rate / (shape - 1)
                m[place], v[place] = mean * (1 - variance / total), variance * (1 - variance / total)
                self.prior = _renewed(shape, rate, variance, mean**2, unit)
                site[(slice(None), *place)] = (
                    m[place] / v[place] - offset,
                    1 / v[place] - precision,
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
    """Returns bias, then kernel, layer by layer, as the leaves are ravelled."""
    return np.concatenate([np.ravel(part) for part in parts])


_NOISE, _SHAPE, _RATE = 0.7, 1.5, 0.2
_STEPS = 400


def scale_rows() -> dict[str, Callable[[], Check]]:
    """Returns the check by public name; it is a function without arguments."""
    return {"conjugate_scales": _conjugate_scales}


def regression_by_relevance() -> tuple[Model, np.ndarray, np.ndarray]:
    """Returns linear regression on four columns of diabetes, with a separate scale for every weight, and the rows."""
    x, y = (np.asarray(part, np.float64) for part in load("diabetes"))
    x = x[:, :4]  # the others are nearly collinear, which slows steps of a diagonal belief
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    prior = ARD(by="weight", law=InverseGammaVariance(_SHAPE, _RATE))
    return Model(Linear(bias=False), Gaussian(_NOISE), prior), x, y


def coordinate_ascent(x: np.ndarray, y: np.ndarray, sweeps: int = 5000) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and precision of every weight; from Bishop (2006), section 10.3."""
    gram, cross, D = x.T @ x / _NOISE**2, x.T @ y / _NOISE**2, x.shape[1]
    mean, relevance = np.zeros(D), np.ones(D)
    for _ in range(sweeps):
        precision = np.diagonal(gram) + relevance
        for j in range(D):
            mean[j] = (cross[j] - gram[j] @ mean + gram[j, j] * mean[j]) / precision[j]
        relevance = (_SHAPE + 0.5) / (_RATE + (mean**2 + 1.0 / precision) / 2.0)
    return mean, np.diagonal(gram) + relevance


def _conjugate_scales() -> Check:
    model, x, y = regression_by_relevance()
    batch, objective = Batch.of(x, y), Objective(model, len(y))
    algorithm = conjugate_scales(von(0.3, Diagonal, Exact()))
    state = algorithm.init(jax.random.key(0), objective, batch)
    body = lambda state, key: (algorithm.step(key, state, batch, objective)[0], None)
    state, _ = jax.lax.scan(body, state, jax.random.split(jax.random.key(1), _STEPS))
    belief: Any = algorithm.preview(jax.random.key(2), state, objective).belief
    factor = belief.factors["network"]
    mean, precision = coordinate_ascent(x, y)
    sd = 1.0 / np.sqrt(precision)
    off = np.max(np.abs(flat(factor.mean) - mean) / sd)
    ratio = np.max(np.abs(flat(factor.precision.diagonal(factor.mean)) / precision - 1.0))
    return Check("conjugate_scales", "coordinate ascent in NumPy, a scale a weight", float(off + ratio), 1e-5)


SCALE, FILTER_NOISE, DRIFT = 0.8, 0.3, 0.01


def filter_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by the public name of the algorithm; each is a function without arguments."""
    return {"extended_kalman": _extended_kalman}


def _extended_kalman() -> Check:
    generator = np.random.default_rng(8)
    x = generator.normal(size=(20, 2))
    y = np.tanh(x[:, 0]) - 0.5 * x[:, 1] + FILTER_NOISE * generator.normal(size=20)
    network = MLP((3,), "tanh")
    params, _ = network.init(jax.random.key(3), jnp.asarray(x[:1]), 1)
    model = Model(network, Gaussian(FILTER_NOISE), Normal(SCALE)).starting_at({"network": params, "likelihood": {}})
    belief: Any = fit(model, Batched(x, y), extended_kalman(DRIFT), data_size=len(y)).posterior.belief
    factor = belief.factors["network"]

    m, P = flat(params), SCALE**2 * np.eye(flat(params).size)
    for row, target in zip(x, y, strict=True):
        P = P + DRIFT * np.eye(len(m))
        f, H = _outputs(m, row)
        S = H @ P @ H + FILTER_NOISE**2
        K = P @ H / S
        m, P = m + K * (target - f), P - np.outer(K, K) * S
    covariance = np.linalg.inv(np.asarray(factor.precision.dense(factor.mean)))
    deviation = max(distance(flat(factor.mean), m), distance(covariance, P))
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
