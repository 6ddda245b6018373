"""Graphs, programs and latents, without a length: their closed forms, and the same answers once loaded."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
import lamu.store
from lamu.conjugacy import ConjugateModel
from lamu.families import Beta, Gamma
from lamu.graphs import MultivariateNormal, Poisson, Program
from lamu.networks import MLP
from lamu.observations import Bernoulli
from lamu.sklearn import FactorAnalysis, GaussianMixture, TopicModel, load
from tests.as_users_run.test_algorithms import inexact

COUNTS = np.random.default_rng(0).poisson(1.5, 60)
TOSSES = (COUNTS > 1).astype(np.float32)
SHARE = ((2 + TOSSES.sum()) / (3 + len(TOSSES)), (1 + len(TOSSES) - TOSSES.sum()) / (3 + len(TOSSES)))


def counted(m: Program) -> None:
    rate = m.sample("rate", Gamma(2.0, 1.0))
    with m.rows():
        m.sample("y", Poisson(rate))


def log_counted(m: Program) -> None:
    level = m.sample("level", MultivariateNormal(jnp.zeros(1), jnp.eye(1)))
    with m.rows():
        m.sample("y", lamu.likelihoods.Poisson()(level))


def tossed(y: Any) -> None:
    import numpyro
    import numpyro.distributions as dist

    p = numpyro.sample("p", dist.Beta(2.0, 1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(p), obs=y)


GRAPHS = {
    "em": lambda: (lamu.Graph(counted), {"y": COUNTS}),
    "vmp": lambda: (lamu.Graph(counted), {"y": COUNTS}),
    "ncvmp": lambda: (lamu.Graph(log_counted), {"y": COUNTS}),
    "svi": lambda: (ConjugateModel(Bernoulli(), Beta(2.0, 1.0)), {"y": TOSSES}),
    "cvi": lambda: (lamu.programs.from_numpyro(tossed, {"y": TOSSES}, rows="rows"), None),
}


@pytest.fixture(scope="module", params=GRAPHS)
def name(request) -> str:
    return request.param


@cache
def fitted(name: str) -> lamu.Posterior:
    return lamu.fit(*GRAPHS[name](), lamu.algorithms.registry()[name].factory()).posterior


def mean_of(name: str) -> float:
    if name == "em":
        return float(jax.tree.leaves(fitted(name).mean)[0])
    belief = fitted(name).belief.factors["network"]
    if name == "vmp":
        return float(belief.factors["rate"].shape / belief.factors["rate"].rate)
    if name == "ncvmp":
        return float(belief.factors["level"].mean[0])
    found = belief if name == "svi" else belief.parts.factors["conjugate"].factors["p"]
    return float(found.alpha / (found.alpha + found.beta))


def test_it_ends_at_the_closed_form(name: str) -> None:
    rate = (2 + COUNTS.sum()) / (1 + len(COUNTS))
    mode = (1 + COUNTS.sum()) / (1 + len(COUNTS))
    expected = {"em": mode, "vmp": rate, "ncvmp": np.log(COUNTS.mean()), "svi": SHARE[0], "cvi": SHARE[0]}
    assert mean_of(name) == pytest.approx(expected[name], abs=0.05 if name == "ncvmp" else 1e-2)


def test_it_stays_in_single_precision_and_loads(name: str, tmp_path) -> None:
    posterior = fitted(name)
    assert inexact(posterior.belief) == {"float32"}
    path = posterior.save(tmp_path / "posterior")
    if name == "cvi":  # the program is a function, whose code no folder holds
        with pytest.raises(lamu.store.StoreError, match="tossed' was not saved"):
            lamu.load(path)
        return
    again = lamu.load(path)
    for one, other in zip(jax.tree.leaves(posterior.belief), jax.tree.leaves(again.belief), strict=True):
        np.testing.assert_array_equal(one, other)


PIXELS = (np.random.default_rng(0).random((64, 6)) < np.linspace(0.2, 0.8, 6)).astype(np.float32)


@cache
def autoencoder() -> lamu.Posterior:
    graph = lamu.latent.models.VAE(2, 6, MLP((8,)), MLP((8,)))
    return lamu.fit(graph, {"y": PIXELS}, lamu.algorithms.adam(1e-2), epochs=40, batch_size=32).posterior


def test_an_autoencoder_is_ahead_of_coins_and_loads(tmp_path) -> None:
    posterior = autoencoder()
    log_prob = np.asarray(posterior.log_prob({"y": PIXELS}))
    assert log_prob.mean() > -6 * np.log(2)
    again = lamu.load(posterior.save(tmp_path / "posterior"))
    np.testing.assert_array_equal(again.log_prob({"y": PIXELS}), log_prob)


def test_holes_of_an_autoencoder_are_filled() -> None:
    holes = np.where(np.arange(6) > 3, np.nan, PIXELS[:8])
    mean = np.asarray(autoencoder().predict({"y": holes}).mean)
    assert mean.dtype == np.float32
    np.testing.assert_array_equal(mean[:, :4], PIXELS[:8, :4])
    assert np.all((mean[:, 4:] > 0) & (mean[:, 4:] < 1))


def test_a_key_is_no_number_of_rows() -> None:
    with pytest.raises(TypeError, match=r"is not a number of rows; call generate\(posterior, n, key\)"):
        lamu.latent.generate(autoencoder(), jax.random.key(0), 3)


FACES = {
    "mixture": (GaussianMixture(2, random_state=0), lambda x: x),
    "factors": (FactorAnalysis(1, random_state=0), lambda x: x),
    "topics": (TopicModel(2, max_iter=20, random_state=0), lambda x: np.floor(np.abs(x) * 3)),
}


@pytest.mark.parametrize("kind", FACES)
def test_a_face_learns_saves_and_loads(kind: str, tmp_path) -> None:
    face, rows_of = FACES[kind]
    rows = rows_of(np.random.default_rng(0).normal(size=(60, 3)) + np.repeat([[0.0], [4.0]], 30, axis=0))
    face.fit(rows)
    face.save(tmp_path / "face")
    again = load(tmp_path / "face")
    assert np.isfinite(face.score(rows))
    assert again.score(rows) == face.score(rows)
