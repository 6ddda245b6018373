"""Components, states and topics that hold nothing are said, whatever makes their weights."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import graphs
from lamu.families import Beta, Dirichlet, Gamma, Point, Product
from lamu.graphs.models import GaussianMixture, HiddenMarkov, Topics
from lamu.graphs.start import empty_components


def of(**beliefs):
    return Product({"network": Product(beliefs)})


STICKS = GaussianMixture(4, 1, weights="sticks", concentration=2.0).sites
TOPICS = Topics(3, 5, word=0.1).sites


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_sticks_count_what_each_break_takes_and_the_last_what_is_left(temperature: float) -> None:
    """Rows 6, 0.4, 3 and 0.2 of ten: λ − λ₀ of the breaks are these, and what lies behind each."""
    rows = np.array([6.0, 0.4, 3.0, 0.2])
    behind = np.cumsum(rows[::-1])[::-1][1:]
    beta = Beta(jnp.asarray(1.0 + rows[:3] / temperature), jnp.asarray(1.0 + (1.0 + behind) / temperature))
    assert empty_components(STICKS, of(**{"break": beta}), temperature) == {"break": (1, 3)}
    v = jnp.asarray([0.6, 0.0, 1.0])
    assert empty_components(STICKS, Point({"network": {"break": v}, "likelihood": {}}), 1.0) == {"break": (1, 3)}


def test_a_topic_without_a_word_is_empty() -> None:
    words = np.array([[4.0, 2.0, 0.0, 0.0, 0.0], [0.1, 0.1, 0.1, 0.1, 0.1], [0.3] * 5])
    assert empty_components(TOPICS, of(topic=Dirichlet(jnp.asarray(0.1 + words))), 1.0) == {"topic": (1,)}


def series(m) -> None:
    start = m.sample("start", Dirichlet(jnp.ones(3)))
    table = m.sample("table", Dirichlet(jnp.ones(3)), plate=3)
    rate = m.sample("rate", Gamma(1.0, 1.0), plate=3)
    with m.rows():
        z = m.sample("z", graphs.Markov(4, start, table))
        m.sample("y", graphs.Poisson(rate[z]))


def test_a_state_that_no_series_is_in_is_empty() -> None:
    sites = lamu.Graph(series).sites
    moves = np.array([[3.0, 0.2, 0.0], [0.0, 0.1, 0.0], [1.0, 0.0, 0.0]])
    beliefs = {"start": Dirichlet(1.0 + jnp.array([0.0, 0.2, 2.0])), "table": Dirichlet(jnp.asarray(1.0 + moves))}
    assert empty_components(sites, of(**beliefs), 1.0) == {"table": (1,)}
    theta = {"start": jnp.array([0.5, 0.0, 0.5]), "table": jnp.array([[1.0, 0.0, 0.0]] * 3)}
    assert empty_components(sites, Point({"network": theta, "likelihood": {}}), 1.0) == {"table": (1,)}
    theta["start"] = jnp.array([0.0, 0.0, 1.0])
    assert empty_components(sites, Point({"network": theta, "likelihood": {}}), 1.0) == {"table": (1,)}


def test_a_point_is_told_how_many_rows_there_are() -> None:
    """At the mode of ten rows, 6, 0.4 and 3.6, under a prior of two: the weights are (n + 1) / 13."""
    sites = GaussianMixture(3, 1, concentration=2.0).sites
    point = Point({"network": {"weight": jnp.array([7.0, 1.4, 4.6]) / 13.0}, "likelihood": {}})
    assert empty_components(sites, point, 1.0) == {}
    assert empty_components(sites, point, 1.0, 10) == {"weight": (1,)}
    sticks = Point({"network": {"break": jnp.array([0.6, 0.1, 1.0])}, "likelihood": {}})
    assert empty_components(STICKS, sticks, 1.0, 10) == {"break": (1, 3)}


@pytest.mark.filterwarnings("ignore::lamu.data.UnscaledRows")  # four rows, of which two components have none
def test_em_says_which_component_fell_below_one_row() -> None:
    y = np.array([[-3.0], [-3.1], [-2.9], [-3.05]])
    fit = lamu.fit(GaussianMixture(3, 1, concentration=1.0), {"y": y}, lamu.algorithms.em(), steps=60)
    assert "of the components of weight empty" in repr(fit)


def test_what_holds_rows_is_not_said() -> None:
    assert empty_components(HiddenMarkov(2, 5).sites, of(), 1.0) == {}
    full = Beta(jnp.full(3, 9.0), jnp.full(3, 9.0))
    assert empty_components(STICKS, of(**{"break": full}), 1.0) == {}


def test_rows_without_shared_variables() -> None:
    """Of documents with a known prior of shares; vmp ended in `zip() argument 2 is longer than argument 1`."""

    def program(m) -> None:
        with m.rows():
            share = m.sample("share", graphs.Dirichlet(jnp.ones(3)))
            m.sample("y", graphs.Categorical(share), plate=4)

    rows = {"y": np.array([[0, 1, 2, 2], [1, 1, 1, 1]])}
    posterior = lamu.fit(lamu.Graph(program), rows, lamu.algorithms.vmp()).posterior
    np.testing.assert_allclose(posterior.log_prob(rows), np.log([2 * 2 / 720, 2 * 24 / 720]))
    np.testing.assert_allclose(posterior.local(rows)["share"].mean, np.array([[2, 2, 3], [1, 5, 1]]) / 7, rtol=1e-6)
    told = posterior.predict({"y": np.array([[2, 2, 2, -1]])})
    np.testing.assert_allclose(told.mean[0, 3], np.array([1, 1, 4]) / 6, rtol=1e-6)
    # Entries of a plate with the same arguments were "cannot reshape array of shape (2, 1, 3)".
    assert told.sample(jax.random.key(0), 2).shape == (2, 1, 4)
    assert posterior.predict(2, samples=4).mean.shape == (2, 4, 3)
    with pytest.raises(TypeError, match="no variables that all rows share, so that there is nothing to learn; take v"):
        lamu.fit(lamu.Graph(program), rows, lamu.mcmc.nuts())
    with pytest.raises(TypeError, match="nothing to learn"):
        lamu.fit(lamu.Graph(program), rows, lamu.algorithms.em())
