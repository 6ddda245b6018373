"""The checks of latent variables, each in float64, on models with known answers."""

# Bounds are of the row \(y = a z + \epsilon\) with \(z \sim N(0, 1)\) and \(\epsilon \sim N(0, s^2 I)\): the expected
# bound of one or two draws is an integral over their noise, taken in NumPy by Gauss–Hermite quadrature from the paper's
# formula. A deviation "in standard errors" is that of the mean of 4,000 draws with a fixed key.

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

from lamu.data import load
from lamu.data.batch import Batch
from lamu.expectations import ConstantBaseline, Control, LeaveOneOut, Regression, ScoreFunction
from lamu.families import Gaussian, Point
from lamu.graphs import Bernoulli as Bits
from lamu.graphs import Categorical, Graph, Normal, Program
from lamu.graphs.expressions import Environment
from lamu.latent import (
    ELBO,
    MADE,
    NADE,
    Amortised,
    AmortisedBernoulli,
    AutoregressiveBernoulli,
    Baseline,
    BitsBack,
    Bound,
    Coupling,
    DoublyReparameterised,
    Enumerated,
    Flow,
    FreeBits,
    Importance,
    InverseAutoregressive,
    Planar,
    Radial,
    Renyi,
    RowJoint,
    Stack,
    StickingTheLanding,
    SummedOut,
    WarmUp,
    impute,
)
from lamu.likelihoods import Bernoulli, PerPosition
from lamu.likelihoods import Gaussian as Noise
from lamu.model import Model
from lamu.networks import Linear, Network
from lamu.operators import Diagonal
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu_verification.problems import Check

__all__ = ["latent_rows"]

_Y, _LOADING, _NOISE = np.array([1.3, -0.4, 0.9]), np.array([0.9, -0.5, 0.3]), 0.8
_MEAN, _SCALE = 0.9, 0.8  # of a belief that differs from the posterior
_DRAWS = 4_000
Values = np.ndarray


def latent_rows() -> dict[str, Callable[[], Check]]:
    """Returns the checks by public name; each is a function without arguments."""
    averaged = lambda log_p, ratio: np.mean(log_p + ratio, axis=-1)
    weighed = lambda log_p, ratio: special.logsumexp(log_p + ratio, axis=-1) - np.log(2)
    halved = lambda log_p, ratio: 2 * (special.logsumexp((log_p + ratio) / 2, axis=-1) - np.log(2))
    divergence = (_SCALE**2 + _MEAN**2 - 1) / 2 - np.log(_SCALE)
    freed = lambda log_p, ratio: np.mean(log_p, axis=-1) - max(1.0, divergence)
    return {
        "ELBO": _bound("ELBO", ELBO(2), averaged),
        "StickingTheLanding": _landing,
        "Importance": _bound("Importance", Importance(2), weighed),
        "DoublyReparameterised": _bound("DoublyReparameterised", DoublyReparameterised(2), weighed, _slope(weighed)),
        "Renyi": _bound("Renyi", Renyi(0.5, 2), halved),
        "FreeBits": _bound("FreeBits", FreeBits(1.0, 2), freed),
        "WarmUp": _bound("WarmUp", WarmUp(ELBO(2), 10), averaged),
        "Planar": _flow("Planar", Planar()),
        "Radial": _flow("Radial", Radial()),
        "Coupling": _flow("Coupling", Coupling((8,))),
        "InverseAutoregressive": _flow("InverseAutoregressive", InverseAutoregressive((8,))),
        "MADE": _sums_to_one("MADE", MADE((12,))),
        "NADE": _sums_to_one("NADE", NADE(5)),
        "Amortised": _amortised,
        "AmortisedBernoulli": _all_states("AmortisedBernoulli", LeaveOneOut(), Regression(), ConstantBaseline(-6.0)),
        "Baseline": _all_states("Baseline", Baseline(Linear()), Baseline()),
        "AutoregressiveBernoulli": _autoregressive,
        "Enumerated": _enumerated,
        "SummedOut": _summed_out,
        "impute": _impute,
        "BitsBack": _bits_back,
    }


def _bound(name: str, bound: Bound, formula: Any, slope: float | None = None) -> Callable[[], Check]:
    """Returns the check of the mean of a bound, and of its gradient in the belief's mean if a slope is known."""
    words = f"the paper's formula by quadrature{'' if slope is None else ', with its slope'}, standard errors"

    def check() -> Check:
        prior = Gaussian(jnp.zeros(1), Diagonal(jnp.ones(1)))
        density = lambda z: jnp.sum(jax.scipy.stats.norm.logpdf(jnp.asarray(_Y), jnp.asarray(_LOADING) * z[0], _NOISE))

        def value(mean: Any, key: Any) -> Any:
            belief = Gaussian(mean[None], Diagonal(jnp.full(1, _SCALE**-2)))
            return bound.of_row(key, RowJoint(prior, density), belief)

        keys = jax.random.split(jax.random.key(3), _DRAWS)
        values, slopes = jax.jit(jax.vmap(jax.value_and_grad(value), in_axes=(None, 0)))(jnp.asarray(_MEAN), keys)
        deviation = _standard_errors(values, _integral(formula, _MEAN))
        return Check(name, words, max(deviation, 0.0 if slope is None else _standard_errors(slopes, slope)), 4.0)

    return check


def _integral(formula: Any, mean: float) -> float:
    """Returns the expectation over the noise of two draws."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    noise = np.array(list(itertools.product(nodes, repeat=2)))
    mass = np.prod(np.array(list(itertools.product(weights / weights.sum(), repeat=2))), axis=1)
    z = mean + _SCALE * noise
    log_p = stats.norm.logpdf(_Y, _LOADING * z[..., None], _NOISE).sum(-1)
    return float(mass @ formula(log_p, stats.norm.logpdf(z) - stats.norm.logpdf(z, mean, _SCALE)))


def _slope(formula: Any) -> float:
    """Returns the derivative of the expectation in the belief's mean."""
    return (_integral(formula, _MEAN + 1e-4) - _integral(formula, _MEAN - 1e-4)) / 2e-4


def _standard_errors(values: Any, expected: float) -> float:
    values = np.asarray(values)
    return float(abs(values.mean() - expected) / (values.std(ddof=1) / len(values) ** 0.5))


def _log_p(y: Values, loading: Values = _LOADING) -> Values:
    covariance: Any = np.outer(loading, loading) + _NOISE**2 * np.eye(len(loading))
    return stats.multivariate_normal(np.zeros(len(loading)), covariance).logpdf(y)


def _landing() -> Check:
    """Checks that every draw has the log density itself if q is the posterior."""
    posterior, rows = _linear(StickingTheLanding()), _rows()
    deviation = np.max(np.abs(np.asarray(posterior.log_prob({"y": rows}, samples=1)) - _log_p(rows)))
    words = "SciPy's log density at the exact posterior, by one draw"
    return Check("StickingTheLanding", words, float(deviation), 1e-9)


def _amortised() -> Check:
    posterior, rows = _linear(ELBO()), _rows()
    belief = posterior.local({"y": rows})["z"]
    precision = 1 + _LOADING @ _LOADING / _NOISE**2
    mean = rows @ _LOADING / _NOISE**2 / precision
    deviation = max(
        np.max(np.abs(np.asarray(posterior.log_prob({"y": rows}, samples=3)) - _log_p(rows))),
        np.max(np.abs(np.asarray(belief.mean)[:, 0] - mean)),
        np.max(np.abs(np.asarray(belief.precision.values) - precision)),
    )
    return Check("Amortised", "Bayes' rule on linear-Gaussian rows: belief and density", float(deviation), 1e-9)


def _rows() -> Values:
    random = np.random.default_rng(4)
    return random.normal(size=(5, 1)) * _LOADING + _NOISE * random.normal(size=(5, 3))


def _linear(bound: Bound) -> Posterior:
    """Returns the linear model of a row, with its encoder at the exact posterior."""

    def program(m: Program) -> None:
        decode = m.network("decode", Linear(bias=False), outputs=3)
        with m.rows():
            z = m.sample("z", Normal(jnp.zeros(1), 1.0))
            m.sample("y", Noise(scale=_NOISE)(decode(z)))

    graph = Graph(program, local={"z": Amortised(Linear(), bound=bound)})
    precision = 1 + _LOADING @ _LOADING / _NOISE**2
    kernel = np.stack([_LOADING / _NOISE**2 / precision, np.zeros(3)], axis=1)
    encoder = {"layers": {0: {"kernel": jnp.asarray(kernel), "bias": jnp.array([0.0, -0.5 * np.log(precision)])}}}
    weights = {
        "decode": {"layers": {0: {"kernel": jnp.asarray(_LOADING)[None]}}},
        "local": {"z": {"network": encoder, "family": {}}},
    }
    return _posterior_at(graph, weights)


def _posterior_at(graph: Graph, weights: Any) -> Posterior:
    return Posterior(graph, Point({"network": weights, "likelihood": {"y": {}}}), {}, Sampled(), jax.random.key(0))


def _impute() -> Check:
    """Checks Gibbs sweeps over a missing entry, thinned to near independence, against the exact conditional."""
    row = _rows()[:1]
    holes = np.where(np.arange(3) == 0, np.nan, row)
    draws = np.asarray(impute(_linear(ELBO()), {"y": holes}, jax.random.key(5), draws=8 * _DRAWS)["y"])[::8, 0, 0]
    covariance = np.outer(_LOADING, _LOADING) + _NOISE**2 * np.eye(3)
    weights = np.linalg.solve(covariance[1:, 1:], covariance[1:, 0])
    mean, variance = row[0, 1:] @ weights, covariance[0, 0] - covariance[0, 1:] @ weights
    deviation = max(_standard_errors(draws, float(mean)), _standard_errors((draws - mean) ** 2, variance))
    return Check("impute", "the conditional Gaussian, mean and variance, standard errors", deviation, 4.0)


def _mixture(local: Any, weights: Any) -> Posterior:
    """Returns a mixture of three Gaussians whose means are a network of the category."""

    def program(m: Program) -> None:
        rate = m.network("rate", Linear(bias=False), outputs=3)
        with m.rows():
            c = m.sample("c", Categorical(jnp.asarray(_SHARES)))
            m.sample("y", Noise(scale=_NOISE)(rate(c)))

    return _posterior_at(
        Graph(program, local={"c": local}), {"rate": {"layers": {0: {"kernel": jnp.asarray(_MEANS)}}}, **weights}
    )


_SHARES = np.array([0.2, 0.3, 0.5])
_MEANS = np.array([[1.0, 0.0, -1.0], [0.5, 0.5, 0.5], [-1.0, 2.0, 0.0]])


def _joint(y: Values) -> Values:
    """Returns log p(y, c), `[rows, 3]`."""
    return np.log(_SHARES) + stats.norm.logpdf(y[:, None], _MEANS, _NOISE).sum(-1)


def _summed_out() -> Check:
    rows, posterior = _rows(), _mixture(SummedOut(), {"local": {"c": {}}})
    expected = special.logsumexp(_joint(rows), axis=1)
    beliefs = np.asarray(posterior.local({"y": rows})["c"].mean) - special.softmax(_joint(rows), axis=1)
    errors = np.asarray(posterior.log_prob({"y": rows}, samples=1)) - expected
    deviation = max(np.abs(errors).max(), np.abs(beliefs).max())
    return Check("SummedOut", "SciPy's mixture: density and belief", float(deviation), 1e-9)


def _all_states(name: str, *controls: Control) -> Callable[[], Check]:
    """Returns the check of the score function's gradient in an encoder's logits, with several controls."""

    def check() -> Check:
        random, chance, y = np.random.default_rng(8), np.array([0.3, 0.5, 0.8]), _rows()[0]
        decode, bias = random.normal(size=(3, 3)), random.normal(size=3)
        b: Values = np.array(list(itertools.product((0.0, 1.0), repeat=3)))
        log_joint = stats.norm.logpdf(y, b @ decode, _NOISE).sum(-1) + stats.bernoulli.logpmf(b, chance).sum(-1)
        log_q = stats.bernoulli.logpmf(b, special.expit(bias)).sum(-1)
        signal = np.exp(log_q) * (log_joint - log_q)
        bound, slopes = signal.sum(), signal @ (b - special.expit(bias))
        deviations = []
        for control in controls:
            values, gradients = _scored(control, y, decode, bias, chance)
            deviations += [_standard_errors(values, bound)]
            deviations += [_standard_errors(gradients[:, j], slopes[j]) for j in range(3)]
        words = "NumPy's sum over eight states, value and slopes, standard errors"
        return Check(name, words, max(deviations), 4.0)

    return check


def _scored(control: Control, y: Values, decode: Values, bias: Values, chance: Values) -> tuple[Values, Values]:
    """Returns bounds of a row with binary latents, and their gradients in the encoder's biases, one per key."""

    def program(m: Program) -> None:
        rate = m.network("rate", Linear(bias=False), outputs=3)
        with m.rows():
            code = m.sample("b", Bits(chance))
            m.sample("y", Noise(scale=_NOISE)(rate(code)))

    graph = Graph(program, local={"b": AmortisedBernoulli(Linear(), ScoreFunction(4, control))})
    batch = graph.rows({"y": y[None]}).full()
    params: Any = graph.init(jax.random.key(0), batch)[0]
    biases = params["network"]["local"]["b"]

    def value(bias: Any, key: Any) -> Any:
        encoder = {"layers": {0: {"kernel": jnp.zeros((3, 3)), "bias": bias}}}
        network = {
            "rate": {"layers": {0: {"kernel": jnp.asarray(decode)}}},
            "local": {"b": {**biases, "encoder": encoder}},
        }
        return graph.log_likelihood({**params, "network": network}, {}, batch, key)[0][0]

    keys = jax.random.split(jax.random.key(9), _DRAWS)
    values, gradients = jax.jit(jax.vmap(jax.value_and_grad(value), in_axes=(None, 0)))(jnp.asarray(bias), keys)
    return np.asarray(values), np.asarray(gradients)


def _autoregressive() -> Check:
    random, factor = np.random.default_rng(10), AutoregressiveBernoulli(6)
    weights = {"kernel": jnp.asarray(random.normal(size=(6, 6))), "bias": jnp.asarray(random.normal(size=6))}
    b = jnp.asarray(list(itertools.product((0.0, 1.0), repeat=6)))
    p = np.exp(np.asarray(jax.vmap(lambda b: factor.log_prob(weights, b, Environment({})))(b)))
    words = "the sum over all rows of six bits, which is one"
    return Check("AutoregressiveBernoulli", words, abs(float(p.sum()) - 1), 1e-9)


def _enumerated() -> Check:
    random, rows = np.random.default_rng(6), _rows()
    kernel, bias = random.normal(size=(3, 3)), random.normal(size=3)
    own = {"c": {"layers": {0: {"kernel": jnp.asarray(kernel), "bias": jnp.asarray(bias)}}}}
    posterior = _mixture(Enumerated(Linear(), weight=2.0), {"local": own})
    labels = np.array([1.0, np.nan, np.nan, 0.0, np.nan])
    batch = posterior.model.rows({"y": rows, "c": labels}).full()
    log_likelihoods = np.asarray(posterior.model.log_likelihood(posterior.mean, {}, batch, jax.random.key(0))[0])
    log_q = special.log_softmax(rows @ kernel + bias, axis=1)
    without = np.sum(np.exp(log_q) * (_joint(rows) - log_q), axis=1)
    categories = np.nan_to_num(labels).astype(int)
    labelled = (_joint(rows) + 2.0 * log_q)[np.arange(5), categories]
    deviation = np.max(np.abs(log_likelihoods - np.where(np.isnan(labels), without, labelled)))
    words = "the paper's equations 6 to 9 in NumPy, some rows with labels"
    return Check("Enumerated", words, float(deviation), 1e-9)


def _flow(name: str, flow: Flow) -> Callable[[], Check]:
    words = "NumPy's determinant of central differences, and the inverse"

    def check() -> Check:
        z, context, step = jnp.array([0.4, -1.1, 0.7]), jnp.array([0.3, -0.8]), 1e-5
        params = flow.init(jax.random.key(2), len(z), len(context), float)
        # Initial flows are near the identity, and ignore their context.
        noise = lambda leaf: 0.3 * jax.random.normal(jax.random.key(leaf.size), leaf.shape)
        params = jax.tree.map(lambda leaf: leaf + noise(leaf), params)
        image, log_det = flow.forward(params, z, context)
        outputs = [flow.forward(params, z + s * step * e, context)[0] for e in jnp.eye(len(z)) for s in (1, -1)]
        jacobian = (np.asarray(outputs[::2]) - np.asarray(outputs[1::2])) / (2 * step)
        back = np.max(np.abs(np.asarray(flow.inverse(params, image, context) - z)))
        deviation = max(abs(log_det - np.linalg.slogdet(jacobian)[1]), back)
        return Check(name, words, float(deviation), 1e-7)

    return check


def _sums_to_one(name: str, network: Network) -> Callable[[], Check]:
    def check() -> Check:
        y = jnp.asarray(list(itertools.product((0.0, 1.0), repeat=6)))
        model = Model(network, PerPosition(Bernoulli(), (6,)))
        batch = Batch.of(y, y)
        params, state = model.init(jax.random.key(1), batch)
        log_p = np.asarray(model.log_likelihood(params, state, batch, None)[0])
        return Check(name, "the sum over all rows of six bits, which is one", abs(float(np.exp(log_p).sum()) - 1), 1e-9)

    return check


def _bits_back() -> Check:
    """Checks that digits are decoded exactly, at the length of the bound of a linear model, averaged over draws."""
    x = np.asarray(load("digits")[0]).reshape(-1, 64)[:400]
    rows = (x > 0.5 * x.max()).astype(int)
    centred = rows - rows.mean(0)
    _, spectrum, axes = np.linalg.svd(centred, full_matrices=False)
    weights, scale = (axes[:4].T * spectrum[:4] / len(rows) ** 0.5), 0.25
    log_odds = lambda z: 6.0 * (rows.mean(0) - 0.5 + z @ weights.T)
    encode = weights @ np.linalg.inv(weights.T @ weights + 0.05 * np.eye(4))
    mean = centred @ encode
    code = BitsBack(
        lambda y: ((y - rows.mean(0)) @ encode, np.full(4, scale)),
        lambda z: np.stack([special.expit(-log_odds(z)), special.expit(log_odds(z))], axis=-1),
        latents=4,
    )
    stack = Stack(np.random.default_rng(5).integers(0, 1 << 32, 100).tolist())
    words, before = list(stack.words), stack.bits
    code.encode(stack, rows)
    length = (stack.bits - before) * np.log(2) / len(rows)
    lossless = np.array_equal(code.decode(stack, len(rows)), rows) and stack.words == words
    z = mean + scale * np.random.default_rng(6).normal(size=(500, *mean.shape))
    fit = np.sum(special.log_expit(np.where(rows > 0, 1, -1) * log_odds(z)), axis=-1).mean()
    divergence = np.sum((scale**2 + mean**2 - 1) / 2 - np.log(scale), axis=-1).mean()
    bound = divergence - fit
    deviation = abs(length / bound - 1) if lossless else float("inf")
    return Check("BitsBack", "the rows that were coded; NumPy's bound, relative", float(deviation), 0.01)
