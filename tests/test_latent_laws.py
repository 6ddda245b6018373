"""Laws of rows whose latents are drawn, each with the fault that it is there to find."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import graphs, latent
from lamu.families import Gaussian
from lamu.graphs.joint import Row
from lamu.latent import models
from lamu.networks import Linear
from lamu.objective import Objective
from lamu.operators import Diagonal
from lamu.record import record

RANDOM = np.random.default_rng(0)
D, NOISE, N = 3, 0.5, 6
Y = RANDOM.normal(size=(N, D))
SLOPES, CENTRE, LOG_SCALE = np.array([1.5, -0.5, 1.0]), np.array([0.4, -0.1, 0.2]), -0.7
DRAWS = 4000


def linear(local) -> lamu.Graph:
    def program(m) -> None:
        decode = m.network("decode", Linear(bias=False), outputs=D)
        with m.rows():
            z = m.sample("z", graphs.Normal(jnp.zeros(1), 1.0))
            m.sample("y", lamu.likelihoods.Gaussian(scale=NOISE)(decode(z)))

    return lamu.Graph(program, local={"z": local}, prior=lamu.priors.Normal(1e6))


def params_of(graph):
    params, state = graph.init(jax.random.key(0), graph.read({"y": Y}).full())
    kernel = np.stack([CENTRE, np.zeros(D)], axis=1)
    encoder = {"layers": {0: {"kernel": jnp.asarray(kernel), "bias": jnp.array([0.0, LOG_SCALE])}}}
    own = {**params["network"]["local"]["z"], "network": encoder}
    decode = {"layers": {0: {"kernel": jnp.asarray(SLOPES[None])}}}
    return {**params, "network": {"decode": decode, "local": {"z": own}}}, state


bounds_of = jax.jit(lambda graph, params, batch, key: graph.log_likelihood(params, {}, batch, key)[0])


def exact(T: float = 1.0, y=Y, seen=None) -> np.ndarray:
    """E_q[log p(y, z)]/T + H(q) of every row in closed form, for the entries that are there."""
    seen = np.ones_like(y) if seen is None else seen
    mean, variance = (y * seen) @ CENTRE, np.exp(2 * LOG_SCALE)
    square = (y - mean[:, None] * SLOPES) ** 2 + variance * SLOPES**2
    log_p = -0.5 * np.sum(seen * (square / NOISE**2 + np.log(2 * np.pi * NOISE**2)), axis=1)
    log_p = log_p - 0.5 * (np.log(2 * np.pi) + mean**2 + variance)
    return log_p / T + 0.5 * np.log(2 * np.pi * np.e * variance)


# Laws: each raises where a local breaks it.


def the_bound_is_its_expectation(local) -> None:
    """Of 4,000 draws a row, within 5 standard errors; log p has deviations of at most 8 nats here."""
    graph = linear(replace(local, bound=replace(local.bound, samples=DRAWS)))
    params, _ = params_of(graph)
    found = bounds_of(graph, params, graph.read({"y": Y}).full(), jax.random.key(1))
    np.testing.assert_allclose(found, exact(), atol=5 * 8 / np.sqrt(DRAWS))


def what_is_missing_does_not_count(local) -> None:
    """The exact bound of the entries that are there, the encoder reading zero for the others."""
    graph = linear(replace(local, bound=replace(local.bound, samples=DRAWS)))
    params, _ = params_of(graph)
    seen = np.arange(D) != 1
    holes = np.where(seen, Y, np.nan)
    found = bounds_of(graph, params, graph.read({"y": holes}).full(), jax.random.key(1))
    np.testing.assert_allclose(found, exact(seen=np.tile(seen, (N, 1))), atol=5 * 8 / np.sqrt(DRAWS))


def rows_draw_for_themselves(local) -> None:
    """Equal rows differ; what a row draws goes by its number, whatever stands beside it."""
    graph = linear(local)
    params, _ = params_of(graph)
    same = np.asarray(bounds_of(graph, params, graph.read({"y": np.tile(Y[:1], (4, 1))}).full(), jax.random.key(1)))
    assert len(np.unique(same)) == 4
    beside = np.concatenate([Y[:1], 9 * Y[1:4]])
    other = np.asarray(bounds_of(graph, params, graph.read({"y": beside}).full(), jax.random.key(1)))
    np.testing.assert_allclose(other[0], same[0], rtol=1e-12)


def losses_count_real_rows_alone(local) -> None:
    """Padding adds nothing, a weight multiplies its row, and the number of all rows divides no part of a row."""
    graph = linear(local)
    params, state = params_of(graph)
    key, rows = jax.random.key(1), graph.read({"y": Y}).full()
    own = np.asarray(bounds_of(graph, params, rows, key))
    loss = lambda batch, size: float(Objective(graph, size).negative_log_likelihood(params, batch, state, key)[0])
    np.testing.assert_allclose([loss(rows, size) for size in (N, 1000)], -own.mean(), rtol=1e-9)
    padded = graph.read({"y": np.concatenate([Y, np.full((2, D), 1e6)])}).full()
    padded = replace(padded, mask=jnp.asarray((np.arange(N + 2) < N).astype(float)))
    np.testing.assert_allclose(loss(padded, N), -own.mean(), rtol=1e-9)
    weights = 1.0 + np.arange(N)
    np.testing.assert_allclose(loss(replace(rows, weight=jnp.asarray(weights)), N), -np.mean(weights * own), rtol=1e-9)


def the_temperature_divides_no_entropy(local) -> None:
    """The loss of an objective over T is −E_q[log p]/T − H(q), by a difference of draws that are the same."""
    graph = linear(local)
    params, state = params_of(graph)
    rows, key = graph.read({"y": Y}).full(), jax.random.key(1)
    loss = lambda T: float(Objective(graph, N, T).negative_log_likelihood(params, rows, state, key)[0]) / T
    entropy = 0.5 * np.log(2 * np.pi * np.e) + LOG_SCALE
    np.testing.assert_allclose(-loss(2.0) - entropy, (-loss(1.0) - entropy) / 2, rtol=1e-9)


LAWS = (
    the_bound_is_its_expectation,
    what_is_missing_does_not_count,
    rows_draw_for_themselves,
    losses_count_real_rows_alone,
    the_temperature_divides_no_entropy,
)

# Twins: an encoder with one fault each.


@record
class VarianceForDeviation(latent.MeanField):
    def belief(self, params, outputs):
        mean, log_scale = jnp.split(outputs, 2)
        return Gaussian(mean, Diagonal(jnp.exp(-log_scale)))


@record
class OneDraw(latent.Amortised):
    def marginalise(self, name, own, row, at, key, rest):
        return super().marginalise(name, own, row, at, jax.random.key(7), rest)


@record
class MaskIgnored(latent.Amortised):
    def marginalise(self, name, own, row, at, key, rest):
        return super().marginalise(name, own, replace(row, observed={}), at, key, rest)


@record
class DivergenceOfAllRows(latent.ELBO):
    def of_row(self, key, joint, belief, weight=1.0):
        return super().of_row(key, joint, belief, weight * 3.0)


@record
class EntropyTempered(latent.Amortised):
    def marginalise(self, name, own, row, at, key, rest):
        cold = lambda row, at, key: rest(replace(row, temperature=1.0), at, key)
        value, others = super().marginalise(name, own, replace(row, temperature=1.0), at, key, cold)
        return value / row.temperature, others


TWINS = {
    "log variance for log deviation": (
        latent.Amortised(Linear(), VarianceForDeviation()),
        the_bound_is_its_expectation,
    ),
    "N/B on the divergence": (latent.Amortised(Linear(), bound=DivergenceOfAllRows()), the_bound_is_its_expectation),
    "mask ignored": (MaskIgnored(Linear()), what_is_missing_does_not_count),
    "one draw for all rows": (OneDraw(Linear()), rows_draw_for_themselves),
    "entropy tempered": (EntropyTempered(Linear()), the_temperature_divides_no_entropy),
}


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_an_encoder_obeys(law) -> None:
    law(latent.Amortised(Linear()))


@pytest.mark.parametrize("fault", TWINS)
def test_a_fault_is_found(fault) -> None:
    twin, law = TWINS[fault]
    with pytest.raises(AssertionError):
        law(twin)


@pytest.mark.parametrize(
    "graph",
    [
        models.SemiSupervised(2, 2, 6, (16,)),
        models.DeepLatentGaussian((2, 2), 6, (16,)),
        pytest.param(models.DRAW(2, 2, 6, hidden=3), marks=pytest.mark.stress),
    ],
    ids=["SemiSupervised", "DeepLatentGaussian", "DRAW"],
)
def test_rows_of_every_model_stand_alone(graph) -> None:
    """Padding and neighbours change nothing, and equal rows draw for themselves."""
    bits = (RANDOM.uniform(size=(4, 6)) > 0.5).astype(float)
    same = np.tile(bits[:1], (4, 1))
    params, _ = graph.init(jax.random.key(0), graph.read({"y": bits}).full())
    ask = lambda y: np.asarray(bounds_of(graph, params, graph.read({"y": y}).full(), jax.random.key(1)))
    alike = ask(same)
    assert len(np.unique(alike)) == 4
    np.testing.assert_allclose(ask(np.concatenate([same[:2], 1 - bits[2:]]))[:2], alike[:2], rtol=1e-9)


def test_a_row_holds_what_it_observes_alone() -> None:
    """The values beneath a mask are read by nothing."""
    graph = linear(latent.Amortised(Linear()))
    row = Row.of(graph.in_rows, (), {"y": graph.read({"y": np.where(np.arange(D) == 1, np.nan, Y)}).y["y"]}, 1.0, float)
    assert np.all(np.asarray(row.data["y"])[:, 1] == 0.0)
