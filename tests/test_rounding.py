"""A log density that single precision does not hold: seen where chains end, whatever the model, and said once."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import graphs
from lamu.mcmc import UnreliableChains
from lamu.mcmc.chains import rounding_complaints
from lamu.objective import Objective

MANY, FEW = 1000, 10


@pytest.fixture(autouse=True)
def single_precision() -> Any:
    with jax.enable_x64(False):
        yield


def targets(rows: int, centre: float, deviation: float) -> np.ndarray:
    return (centre + deviation * np.random.default_rng(0).normal(size=rows)).astype(np.float32)


def graph(y: np.ndarray, deviation: float) -> tuple[Any, Any]:
    def program(m: Any) -> None:
        mu = m.sample("mu", graphs.Normal(0.0, precision=1e-14))
        with m.rows():
            m.sample("y", graphs.Normal(mu, precision=1 / deviation**2))

    model = lamu.Graph(program)
    return model, model.read({"y": y})


def density(y: np.ndarray, deviation: float) -> tuple[Any, Any]:
    model = lamu.LogDensity(lambda mu: -0.5 * jnp.sum(((jnp.asarray(y) - mu) / deviation) ** 2), 0.0)
    return model, model.read(None)


def sums(y: np.ndarray, deviation: float) -> tuple[Any, Any]:
    """The same from two sums, which cancel: 10¹² less 10¹²."""
    first, second = (float(np.sum(y.astype(float) ** power)) for power in (1, 2))
    log_density = lambda mu: -0.5 * (second - 2 * mu * first + len(y) * mu * mu) / deviation**2
    model = lamu.LogDensity(log_density, 0.0)
    return model, model.read(None)


def network(y: np.ndarray, deviation: float) -> tuple[Any, Any]:
    """One weight of one input that is always one."""
    model = lamu.Model(
        lamu.networks.Linear(bias=False), lamu.likelihoods.Gaussian(scale=deviation), lamu.priors.Normal(1e7)
    )
    return model, lamu.data.Arrays.of((np.ones((len(y), 1), np.float32), y))


def said(make: Any, rows: int, centre: float, deviation: float) -> list[str]:
    y = targets(rows, centre, deviation)
    model, data = make(y, deviation)
    start = model.init(jax.random.key(0), data.example(rows))[0]
    exact = np.mean(y, dtype=np.float64) + deviation / rows**0.5 * np.array([-1.0, 0.5, 1.0])
    chains = lambda leaf: np.broadcast_to(exact.reshape(3, *([1] * jnp.ndim(leaf))), (3, *jnp.shape(leaf)))
    data_size = rows if model.has_rows else 1
    return rounding_complaints(jax.random.key(1), Objective(model, data_size), {}, jax.tree.map(chains, start), data)


@pytest.mark.parametrize("make", [graph, density, sums, network])
def test_rows_of_unit_noise_near_a_million_are_not_sampled_in_single_precision(make):
    """The posterior deviation is .03, and the numbers of float32 lie .06 apart there."""
    (one,) = said(make, MANY, 1e6, 1.0)
    assert "float32" in one
    assert "jax_enable_x64" in one
    assert "y - y.mean()" in one


@pytest.mark.parametrize(
    ("make", "rows", "centre", "deviation"),
    [
        (density, FEW, 1e6, 3.0),  # a deviation of fifteen units in the last place
        (density, MANY, 1e6, 30.0),
        (network, MANY, 1e6, 30.0),
        (graph, MANY, 0.5, 1.0),
        (sums, MANY, -3.0, 1.0),
        (network, MANY, 20.0, 0.5),
    ],
)
def test_what_single_precision_holds_is_sampled_without_a_word(make, rows, centre, deviation):
    assert said(make, rows, centre, deviation) == []


@pytest.mark.parametrize("make", [graph, sums])
def test_sums_that_cancel_are_seen_where_the_posterior_is_wide(make):
    """Thirty times as wide as the spacing of the numbers, but the log density is a difference of 10¹² / σ²."""
    assert len(said(make, MANY, 1e6, 30.0)) == 1


def test_double_precision_is_silent():
    with jax.enable_x64(True):
        y = targets(MANY, 1e6, 1.0).astype(np.float64)
        model, data = sums(y, 1.0)
        last = {"network": jnp.array([1e6, 1e6 + 0.01]), "likelihood": {}}
        assert rounding_complaints(jax.random.key(1), Objective(model, 1), {}, last, data) == []


def test_a_fit_says_it_once_and_nothing_that_follows_from_it():
    """Chains that refuse everything because of rounding are not told to take a smaller step."""
    model, _ = sums(targets(FEW, 1e6, 3.0), 3.0)
    walk = lamu.mcmc.random_walk(step_size=1.0, chains=2, warmup=0, draws=100, start={"network": 1e6, "likelihood": {}})
    with pytest.warns(UnreliableChains) as messages:
        lamu.fit(model, None, walk)
    assert len(messages) == 1
    assert "rounding decides what is accepted" in str(messages[0].message)
    assert "step size" not in str(messages[0].message)


def test_chains_that_do_not_agree_far_out_are_told_to_centre():
    model = lamu.LogDensity(lambda theta: -0.5 * (theta / 1e5) ** 2, 0.0)
    stuck = lambda place: lamu.mcmc.random_walk(
        step_size=1e-3, chains=2, warmup=0, draws=120, start={"network": place, "likelihood": {}}
    )
    for place, centred in ((3e5, True), (3.0, False)):
        with warnings.catch_warnings(record=True) as messages:
            warnings.simplefilter("always")
            lamu.fit(model, None, stuck(place))
        assert messages
        assert all(("y - y.mean()" in str(each.message)) == centred for each in messages)
