"""Rows some at a time: what a row draws depends on the key and its number, so that no block repeats another's."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import calibration, graphs, memory, predictives
from lamu.base.compile_once import row_keys
from lamu.cli import images
from lamu.data.imputation import Completions
from lamu.families import Beta
from lamu.graphs import queries
from lamu.graphs.queries import DrawnEntries
from lamu.likelihoods import Bernoulli, Binomial, Categorical, Gaussian, PerPosition, Poisson
from lamu.predictives import ClassProbabilities, Deferred, GaussianPredictive, MixturePredictive, Predictive, Weighted
from lamu.predictives.gaussian import ConjugatePredictive, StudentPredictive
from lamu.predictives.graph import Completed, DrawnRows, DrawnVariable, drawn_rows
from lamu.predictives.input_mixture import CompletedRows, InputMixture
from lamu.predictives.mixture import _WithDraws
from lamu.predictives.program import DrawnSite, ProgramPredictive
from lamu.predictives.wrapper import Moved, OfTrials, PredictiveWrapper, RescaledPredictive, at_positions
from lamu.priors import Hierarchical, Scale

N, FIRST, DRAWS = 9, 5, 4  # rows, the first of the second block, draws
F = jnp.linspace(-0.1, 0.1, 3)[:, None, None]  # three members, which all rows share


def of_rows(likelihood: Any, rows: int, outputs: int = 1) -> MixturePredictive:
    return MixturePredictive.equal(likelihood, {}, jnp.broadcast_to(F, (3, rows, outputs)))


def entries(rows: int) -> DrawnEntries:
    f = jnp.broadcast_to(F[..., None], (3, rows, 2, 1))
    return DrawnEntries(jnp.zeros((rows, 2)), jnp.zeros((rows, 2), bool), Gaussian(1.0), f, {})


def deferred(rows: int) -> Deferred:
    model = lamu.Model(lamu.networks.Linear(), Gaussian(scale=1.0))
    weights = {"layers": {0: {"kernel": jnp.ones((1, 1)), "bias": jnp.zeros(1)}}}
    point = lamu.families.Point({"network": weights, "likelihood": {}})
    prepared = predictives.Sampled().prepare(model, point, {}, samples=1, key=jax.random.key(1))
    return Deferred(prepared, jnp.ones((rows, 1)), None, rows=2)


# A prediction of so many rows that are all alike, by the class that draws them.
MADE: dict[type, Any] = {
    MixturePredictive: lambda rows: of_rows(Gaussian(1.0), rows),
    GaussianPredictive: lambda rows: GaussianPredictive(jnp.zeros(rows), jnp.ones((rows, 1, 1)), jnp.ones(rows)),
    ClassProbabilities: lambda rows: ClassProbabilities(jnp.log(jnp.full((rows, 50), 0.02)), jnp.ones(rows)),
    Weighted: lambda rows: Weighted.equal((of_rows(Gaussian(1.0), rows), of_rows(Gaussian(3.0), rows))),
    StudentPredictive: lambda rows: StudentPredictive(*[jnp.full(rows, each) for each in (0.0, 1.0, 5.0, 0.5)]),
    OfTrials: lambda rows: OfTrials(of_rows(Binomial(), rows), jnp.full(rows, 5000.0)),
    type(at_positions(of_rows(Gaussian(1.0), 6), PerPosition(Gaussian(1.0), (3,)))): lambda rows: at_positions(
        of_rows(Gaussian(1.0), 3 * rows), PerPosition(Gaussian(1.0), (3,))
    ),
    Deferred: deferred,
    DrawnVariable: lambda rows: drawn_rows({"y": entries(rows)}),
    DrawnRows: lambda rows: drawn_rows({"y": entries(rows), "z": entries(rows)}),
    calibration.TemperedClasses: lambda rows: calibration.TemperedClasses(of_rows(Categorical(9), rows, 9), 1.5),
    calibration.Widened: lambda rows: calibration.Widened(of_rows(Gaussian(1.0), rows), 1.5),
    Moved: lambda rows: Moved(of_rows(Gaussian(1.0), rows), jnp.ones(rows), jnp.full(rows, 2.0)),
    ConjugatePredictive: lambda rows: ConjugatePredictive(lamu.observations.Bernoulli(), Beta(50.0, 50.0), rows),
}
NONE = {Completed}  # which says that it cannot be drawn from
OF_COMPLETIONS = {InputMixture, CompletedRows}  # whose blocks have keys by where they start


def subclasses(kind: type) -> set[type]:
    return set().union({kind}, *map(subclasses, kind.__subclasses__()))


def test_every_prediction_that_draws_is_here() -> None:
    own = {each for each in subclasses(Predictive) if not inspect.isabstract(each)} - {
        PredictiveWrapper,
        RescaledPredictive,
        ProgramPredictive,  # a program's plates are drawn whole
        _WithDraws,  # a mixture's moments alone
        DrawnSite,
    }
    assert {each for each in own if each.__module__.startswith("lamu.")} == set(MADE) | NONE | OF_COMPLETIONS


@pytest.mark.sampled
@pytest.mark.parametrize("kind", MADE, ids=lambda kind: kind.__name__)
def test_a_block_draws_what_its_rows_draw_among_all(kind: type) -> None:
    draw = lambda rows, first: MADE[kind](rows).sample(jax.random.key(3), DRAWS, first)
    whole, block = draw(N, 0), draw(N - FIRST, FIRST)
    for every, part in zip(jax.tree.leaves(whole), jax.tree.leaves(block), strict=True):
        np.testing.assert_allclose(every[:, FIRST:], part, rtol=1e-6)
        each = np.asarray(every).reshape(DRAWS, N, -1)
        assert not np.array_equal(each[:, : N - FIRST], each[:, FIRST:])  # no block repeats the first one
        assert not np.array_equal(each[0], each[1])  # nor a draw another
        if each.shape[2] > 1:
            assert not np.array_equal(each[..., 0], each[..., 1])  # nor an entry of a row its neighbour


def test_blocks_of_completed_rows_are_drawn_apart() -> None:
    rows = Completions(np.zeros((2 * N, 1)), np.repeat(np.arange(N), 2), np.zeros(2 * N))
    predict = lambda x, row: of_rows(Gaussian(1.0), len(x))
    for pred in (InputMixture.of(predict, rows), CompletedRows(predict, rows, at_once=4)):
        drawn = np.asarray(pred.sample(jax.random.key(0), DRAWS))
        assert drawn.shape == (DRAWS, N)
        assert len(np.unique(drawn)) == drawn.size


def test_parts_of_a_prediction_are_drawn_apart() -> None:
    pred = Weighted.equal((of_rows(Gaussian(1.0), 200), of_rows(Gaussian(1.0), 200)))
    drawn = np.asarray(pred.sample(jax.random.key(0), 40))
    chosen = np.asarray(pred.parts[0].sample(jax.random.split(jax.random.split(jax.random.key(0))[1], 2)[0], 40))
    of_first = (drawn == chosen).all(axis=1)
    assert 8 < of_first.sum() < 32  # binomial(40, 1/2): three standard deviations about twenty
    assert len({row.tobytes() for row in drawn}) == 40


def test_keys_of_rows_are_their_own() -> None:
    keys = jax.random.key_data(row_keys(jax.random.key(0), 6))
    assert len(np.unique(keys, axis=0)) == 6
    np.testing.assert_array_equal(jax.random.key_data(row_keys(jax.random.key(0), 2, first=4)), keys[4:])
    assert not np.array_equal(jax.random.key_data(row_keys(jax.random.key(1), 6)), keys)


# ---------------------------------------------------------------------------------------------------------- latents

GRAPH = lamu.latent.models.VAE(2, 3)
ALIKE = np.tile([1.0, 0.0, np.nan], (12, 1))


@pytest.fixture(scope="module")
def vae() -> Any:
    rows = np.tile([1.0, 0.0, 1.0], (12, 1))
    return lamu.fit(GRAPH, {"y": rows}, lamu.algorithms.adam(0.01), steps=1, batch_size=12).posterior


def fixed(m: Any) -> None:
    with m.rows():
        m.sample("y", graphs.Normal(jnp.zeros(2), 1.0))


NOTHING = lamu.families.Point({"network": {}, "likelihood": {}})
SIMPLE = lamu.Posterior(lamu.Graph(fixed), NOTHING, {}, predictives.Sampled(), jax.random.key(0))


def chains(graph: Any, statistics: Any, data: Any, key: Any, kept: Any, draws: int, warmup: int, first: Any) -> Any:
    """Stands for the chains of rows: numbers that depend on the key and on the row's number."""
    numbers = jnp.asarray(first, jnp.int32) + jnp.arange(len(data["y"].value), dtype=jnp.int32)
    f = jax.vmap(lambda i: jax.random.normal(jax.random.fold_in(key, i), (draws, 3, 1)))(numbers)
    return {"y": (f, {})}


@pytest.mark.parametrize("asked", ["log_prob", "impute", "filled", "new"])
def test_latents_of_a_row_are_its_own_in_whatever_block(asked: str, vae: Any, monkeypatch: Any) -> None:
    if asked == "filled":
        monkeypatch.setattr(queries, "chains_of_rows", chains)
    key, complete = jax.random.key(7), {"y": np.nan_to_num(ALIKE)}
    questions = {
        "log_prob": lambda: vae.log_prob(complete, 4, jax.random.clone(key)),
        "impute": lambda: lamu.latent.impute(SIMPLE, {"y": ALIKE[:, 1:]}, jax.random.clone(key), 3, 0)["y"][..., 1].T,
        "filled": lambda: vae.predict({"y": ALIKE}, samples=6, key=jax.random.clone(key)).f[:, :, 2, 0].T,
        "new": lambda: vae.predict(12, samples=6, key=jax.random.clone(key)).f[:, :, 2, 0].T,
    }
    whole = np.asarray(questions[asked]())
    monkeypatch.setattr("lamu.graphs.reading._MOST", 5)
    np.testing.assert_allclose(questions[asked](), whole, rtol=1e-9)
    each = whole.reshape(12, -1)
    for start in (5, 7):  # the blocks of five, of which the last one begins at seven
        assert not np.allclose(each[:5], each[start : start + 5])
    assert len(np.unique(each, axis=0)) == 12
    assert len(np.unique(each.T, axis=0)) == each.shape[1]  # draws differ


def test_generated_rows_are_apart(vae: Any) -> None:
    rows = lamu.latent.generate(vae, 12, jax.random.key(0))
    assert len(np.unique(np.asarray(rows["z"]), axis=0)) == 12
    assert not np.array_equal(rows["z"], lamu.latent.generate(vae, 12, jax.random.key(1))["z"])


def test_blocks_of_images_are_filled_with_keys_of_their_own(monkeypatch: Any) -> None:
    given: list[Any] = []

    def filled(posterior: Any, rows: Any, key: Any, draws: int) -> dict[str, np.ndarray]:
        given.append((rows["y"], jax.random.key_data(key), draws))
        return {"y": np.repeat(np.nan_to_num(rows["y"])[None], draws, axis=0)}

    monkeypatch.setattr(images, "impute", filled)
    monkeypatch.setattr(images, "BLOCK", 5)
    pixels = np.arange(36.0).reshape(12, 3)
    pixels[:, 2] = np.nan
    found = images._filled(SIMPLE, pixels, 3)
    assert len(np.unique([each[1] for each in given], axis=0)) == len(given) == 3
    np.testing.assert_array_equal(np.concatenate([each[0] for each in given]), pixels)
    assert {each[2] for each in given} == {3}
    np.testing.assert_array_equal(found["X"], np.nan_to_num(pixels))


# ----------------------------------------------------------------------------------------------------------- priors


def test_levels_of_a_hierarchy_are_drawn_apart() -> None:
    """Three levels of one group a weight each, and two leaves: of 2,000 draws no two are alike or go together."""
    prior = Hierarchical(scales=(Scale(by="weight"), Scale(by="weight"), Scale(by="weight")))
    like = {"a": {"kernel": jnp.zeros(2000)}, "b": {"kernel": jnp.zeros(2000)}}
    drawn = prior.sample(jax.random.key(0), {"scales": prior.start(like), "weights": like})
    rows = [leaf for level in drawn["scales"].values() for leaf in level.values()]
    rows += [part["kernel"] for part in drawn["weights"].values()]
    assert len(rows) == 8
    off = np.corrcoef(np.stack(rows)) - np.eye(8)
    assert np.abs(off).max() < 5 / 2000**0.5  # five standard errors of 28 correlations: fails once in 60,000


def test_members_of_one_call_have_no_common_key() -> None:
    """Counts, classes and numbers of one key and other draws: what is drawn of the parts of a tree differs."""
    prior = lamu.priors.ByPath({"a": lamu.priors.Normal(1.0), "*": lamu.priors.Normal(1.0)})
    drawn = prior.sample(jax.random.key(0), {"a": jnp.zeros(100), "b": jnp.zeros(100), "c": jnp.zeros(100)})
    assert np.abs(np.corrcoef(np.stack(list(drawn.values()))) - np.eye(3)).max() < 0.5


@pytest.mark.parametrize("likelihood", [Gaussian(1.0), Bernoulli(), Poisson()], ids=lambda each: each.name)
def test_draws_of_the_prior_predictive_have_noise_of_their_own(likelihood: Any) -> None:
    """Rows that are alike share θ and not their noise, and draws share neither."""
    model = lamu.Model(lamu.networks.Linear(), likelihood, lamu.priors.Normal(0.01))
    drawn = np.asarray(model.prior_predictive(jax.random.key(0), 6, np.ones((30, 1))))
    assert len(np.unique(drawn, axis=0)) == 6
    assert len(np.unique(drawn.T, axis=0)) > 5


def test_memory_does_not_change_the_draws() -> None:
    pred = MADE[MixturePredictive](N)
    whole = pred.sample(jax.random.key(0), 50)
    with memory.within("8kB"):  # programs of fewer draws, whose sums and products may be fused in another way
        np.testing.assert_allclose(pred.sample(jax.random.key(0), 50), whole, rtol=1e-13, atol=1e-14)
