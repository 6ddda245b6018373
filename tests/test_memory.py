"""A limit of memory: what it is written as, what may be done under it, and that predictions keep to it."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import memory
from lamu.composition import Weighted
from lamu.data import Arrays
from lamu.families import Draws
from lamu.objective import Objective
from lamu.operators import Dense
from lamu.predictives import Deferred, GaussianPredictive, Mixture, Pooled, Sampled
from lamu.predictives.class_probabilities import ClassProbabilities
from lamu.predictives.independent import IndependentGaussian
from lamu.predictives.rows import in_room, room_for
from lamu.predictives.student import StudentPredictive
from lamu.running.forecast import Forecast, Run, foresee, size
from lamu.running.nearest import nearest


@pytest.mark.parametrize("size", ["2 bananas", "-1GB", "", "0", float("nan"), float("inf"), 0, -5])
def test_what_is_no_size_is_quoted(size: Any) -> None:
    with pytest.raises(ValueError, match="is no size; write a number and a unit"):
        memory.parse(size)


def test_sizes() -> None:
    assert memory.parse(" 1.5gb ") == 1_500_000_000
    assert memory.parse("1e3kB") == 1_000_000
    assert memory.parse("2MiB") == 2 * 2**20
    assert [memory.parse(memory.at_least(each)) >= each for each in (1, 999.5, 1234, 1e6 + 1, 9.99e9)] == [True] * 5
    assert memory.at_least(1_200_000) == "1.2 MB"
    assert [memory.shown(size) for size in (999, 1e3, 2.5e9, 7e12)] == ["999 B", "1.0 kB", "2.5 GB", "7.0 TB"]


def test_a_limit_holds_inside_and_is_given_back() -> None:
    with memory.within("100MB"):
        with memory.within(None):
            assert memory.limit() == 100_000_000
        with (
            pytest.raises(ValueError, match=r"takes 2\.0 MB and 1\.0 MB may be used; ask for less"),
            memory.within("1MB"),
        ):
            memory.demand(2e6, "a matrix", "ask for less")
        with memory.within("1MB"):
            assert memory.budget() == 250_000
        assert memory.limit() == 100_000_000
    assert memory.budget() <= 256 * 2**20
    assert 0 < memory.limit() <= memory.free()


def test_a_prediction_keeps_to_the_limit() -> None:
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=1.0))
    x, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60.0)
    posterior = lamu.fit(model, (x, y), lamu.algorithms.ivon(), epochs=1).posterior
    whole = posterior.predict(x, samples=8)
    with memory.within("8kB"):
        parts = posterior.predict(x, samples=8)
        assert isinstance(parts, Deferred)
        assert not isinstance(whole, Deferred)
        assert parts.rows < 60
        np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-12)
    assert jnp.all(whole.std > 0)


def test_a_precision_that_cannot_fit_is_refused_before_anything_runs(caplog: pytest.LogCaptureFixture) -> None:
    model = lamu.Model(lamu.networks.MLP((40,)), lamu.likelihoods.Gaussian(scale=1.0))
    x, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60.0)
    steps: list[Any] = []
    whole, last = lamu.algorithms.laplace(structure=Dense), lamu.algorithms.last_layer()
    refusal = r"the precision of 201 weights, Dense, takes 969\.6 kB and 200\.0 kB may be used; give structure="
    with pytest.raises(ValueError, match=refusal):
        lamu.fit(model, (x, y), whole, epochs=1, max_memory="200kB", callbacks=[lambda *seen: steps.append(seen)])
    assert not steps
    with pytest.raises(ValueError, match=r"nothing smaller fits; give max_memory='4\.9 kB' or more"):
        lamu.fit(model, (x, y), whole, epochs=1, max_memory="1kB")
    # Of few weights it is dense, though the network has many.
    large = {"network": {"layers": [{"kernel": np.zeros((90, 90))}, {"kernel": np.zeros(40)}]}}
    with caplog.at_level(logging.INFO, "lamu"):
        lamu.fit(model, (x, y), last, epochs=1, max_memory="200kB")
        lamu.algorithms.laplace(weights=lamu.algorithms.HeadWeights()).foresee(Objective(model, 60), large)
    assert "The precision of 41 weights, Dense, takes about 40.3 kB; 200.0 kB may be used." in caplog.text
    assert "The precision of 40 weights, Dense," in caplog.text


# A run is foreseen.

X, Y = np.random.default_rng(0).normal(size=(300, 6)), np.arange(300) % 3


def run_of(algorithm: Any, widths: tuple[int, ...] = (20,), batch_size: int = 64, **options: Any) -> Run:
    model = lamu.Model(lamu.networks.MLP(widths), lamu.likelihoods.Categorical(3))
    rows = Arrays.of((X, Y))
    return Run(algorithm, Objective(model, 300), rows, rows.example(300), batch_size, **options)


def weights_of(run: Run) -> int:
    """The bytes of the network's weights."""
    return size(jax.eval_shape(run.objective.model.init, jax.random.key(0), run.example)[0])


def step_of(forecast: Forecast) -> int:
    assert forecast.step is not None, "a step was not looked at"
    return forecast.step


def test_a_forecast_knows_the_state_its_copies_and_its_members() -> None:
    """A state that is left out, a member that is not counted, and numbers for bytes would each be off by a factor."""
    one, adam = run_of(lamu.algorithms.sgd()), run_of(lamu.algorithms.adam())
    weights = weights_of(one)
    assert weights == (7 * 20 + 21 * 3) * jnp.dtype(jnp.result_type(float)).itemsize
    assert 2 * weights <= one.glance().state < 2 * weights + 100
    assert 6 * weights <= adam.glance().state < 6 * weights + 100
    assert 9 * weights <= replace(adam, keeps_best=True).glance().state < 9 * weights + 100
    many = run_of(lamu.algorithms.deep_ensemble(lamu.algorithms.adam(), members=7))
    assert many.glance().state >= 7 * 6 * weights
    assert step_of(many.forecast()) > 5 * step_of(adam.forecast())
    dense = run_of(lamu.algorithms.newton())
    assert dense.glance().state >= 2 * weights * (7 * 20 + 21 * 3)
    assert one.glance().data == size(one.rows)
    assert one.glance().step is None


def test_a_step_holds_what_its_batch_takes() -> None:
    few, many = (run_of(lamu.algorithms.adam(), (200,), rows).forecast() for rows in (10, 200))
    assert few.state == many.state
    assert step_of(many) - step_of(few) >= 190 * 200 * 4
    assert run_of(lamu.algorithms.adam(), steps=0).forecast().step == 0


@pytest.mark.parametrize("name", ["adam", "vogn", "newton", "deep_ensemble"])
def test_a_step_is_foreseen_within_a_factor_of_four_of_what_compilers_take(name: str) -> None:
    from lamu.running.pieces import handle, one_step

    run = run_of(getattr(lamu.algorithms, name)(), (40,))
    state = jax.eval_shape(lambda key: run.algorithm.init(key, run.objective, run.example), jax.random.key(0))
    compiled: Any = one_step.lower(handle(run.algorithm), state, run.objective, run.batch, jax.random.key(0)).compile()
    taken: int = compiled.memory_analysis().temp_size_in_bytes
    foreseen: Any = run.forecast().step
    assert taken / 4 < foreseen < 4 * taken


def test_draws_are_foreseen_and_those_on_disk_are_not_held() -> None:
    run = run_of(lamu.mcmc.sgld(chains=1, warmup=10, draws=500, thinning=1), batch_size=300)
    one = weights_of(run)
    held, stored = run.glance().draws, replace(run, on_disk=True).glance().draws
    assert held - stored >= 2 * 500 * one
    assert 64 * one <= stored < 80 * one


REFUSED = {
    "a large batch": (run_of(lamu.algorithms.adam(), (100,), batch_size=300), "batch_size"),
    "many members": (run_of(lamu.algorithms.deep_ensemble(members=20), batch_size=2), "members"),
    "many chains": (run_of(lamu.mcmc.hmc(chains=6, warmup=2, draws=2, step_size=0.1)), "chains"),
    "many deviations": (run_of(lamu.rate.over(10, lamu.algorithms.swag()), (100,), batch_size=1), "rank"),
    "draws": (run_of(lamu.mcmc.hmc(chains=1, warmup=2, draws=5000, step_size=0.1)), "checkpoint"),
    "a dense precision": (run_of(lamu.algorithms.newton(), (30,), batch_size=1), "von"),
    "another belief": (run_of(lamu.algorithms.bayes_by_backprop(), (100,), batch_size=1), "ivon"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_refusal_names_fits(case: str) -> None:
    run, named = REFUSED[case]
    found = run.forecast()
    limit = int(found.total * (0.7 if case == "another belief" else 0.6))
    with memory.within(limit), pytest.raises(ValueError, match=rf"^this run \(.*may be used; .*\b{named}\b") as refused:
        foresee(run)
    words = str(refused.value)
    number = re.search(rf"{named}=(\d+)", words)
    if named == "checkpoint":
        other = replace(run, on_disk=True)
    elif named == "batch_size":
        assert number
        other = replace(run, batch_size=int(number[1]))
    elif named == "rank":
        assert number
        covariance = lamu.algorithms.LowRankDeviations(rank=int(number[1]))
        other = replace(run, algorithm=lamu.rate.over(10, lamu.algorithms.swag(covariance=covariance)))
    elif number:
        algorithm: Any = run.algorithm
        other = replace(run, algorithm=replace(algorithm, **{named: int(number[1])}))
    else:
        other = replace(run, algorithm=getattr(lamu.algorithms, named)())
    with memory.within(limit):
        taken = foresee(other).total
    assert f"which takes {memory.shown(taken)}" in words


def test_where_nothing_fits_the_limit_that_would_is_named(caplog: pytest.LogCaptureFixture) -> None:
    run = run_of(lamu.algorithms.sgd(), batch_size=1)
    with memory.within("1kB"), pytest.raises(ValueError, match="nothing smaller fits; give max_memory=") as refused:
        foresee(run)
    enough = re.search(r"max_memory='(.*)'", str(refused.value))
    assert enough
    assert nearest(run, run.forecast(), 1000) in str(refused.value)
    with memory.within(enough[1]), caplog.at_level(logging.INFO, "lamu"):
        found = foresee(run)
    assert isinstance(found, Forecast)
    assert f"The run takes about {memory.shown(found.total)}: the state and its copies" in caplog.text
    assert f"The data take {memory.shown(size(run.rows))} beside. {enough[1]} may be used." in caplog.text


def test_a_small_run_under_no_limit_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(lamu.algorithms.adam())
    monkeypatch.setattr(Run, "forecast", lambda run: pytest.fail("a trace costs time"))
    assert foresee(run).step is None


# A program is foreseen.


def test_a_program_holds_what_lives_at_once() -> None:
    x = jnp.zeros((50, 50))
    one = x.nbytes
    chain = lambda x: ((((x @ x) @ x) @ x) @ x).sum()
    apart = lambda x: sum((part @ x).sum() for part in [x @ x, x.T @ x, x @ x.T, 2 * (x @ x)])
    assert 2 * one <= memory.peak(jax.make_jaxpr(chain)(x)) < 2.1 * one
    assert memory.peak(jax.make_jaxpr(apart)(x)) >= 4 * one
    inside = jax.jit(lambda x: x @ x)
    twice = lambda x: inside(x) @ inside(x.T)  # one program, two sets of values
    assert memory.peak(jax.make_jaxpr(twice)(x)) >= 3 * one
    looped = lambda x: jax.lax.scan(lambda c, _: (c @ x, c[0]), x, None, length=10)[0]
    assert 2 * one <= memory.peak(jax.make_jaxpr(looped)(x)) < 4 * one
    assert memory.peak(jax.make_jaxpr(lambda x: jnp.sum(jnp.exp(2 * x + 1)))(x)) < 100, "element by element"


# Prediction and scores keep to the limit.


def test_rows_come_as_many_at_a_time_as_there_is_room_for() -> None:
    seen: list[int] = []

    @jax.jit
    def wide(w: Any, x: Any) -> Any:
        seen.append(x.shape[0])
        return jnp.tanh(x @ w) @ w.T

    w, x = jnp.ones((2, 500)), jnp.asarray(X[:, :2])
    whole = in_room(wide, (w,), (x,))
    assert max(seen) == 300
    row = 500 * w.dtype.itemsize  # what a row's units take
    seen.clear()
    with memory.within(4 * 20 * row):
        assert 10 <= room_for(wide, (w,), (x,)) <= 20
        parts = in_room(wide, (w,), (x,))
    assert 10 <= max(seen) <= 20
    np.testing.assert_allclose(parts, whole, rtol=1e-5)


def predictions() -> dict[str, Any]:
    generator = np.random.default_rng(1)
    f = jnp.asarray(generator.normal(size=(5, 40, 3)))
    centre, width = f[0, :, 0], jnp.exp(f[1, :, 0])
    classes = lamu.likelihoods.Categorical(3)
    normal = GaussianPredictive(centre, (1 + width**2)[:, None, None], jnp.ones(40))
    mixture = Mixture.equal(classes, {}, f, drawn=True)
    student = StudentPredictive(centre, width, jnp.full(40, 4.0, centre.dtype), jnp.full(40, 0.5, centre.dtype))
    return {
        "mixture": mixture,
        "normal": normal,
        "independent": IndependentGaussian(f[0], 1 + f[1] ** 2, jnp.ones((40, 3), f.dtype)),
        "student": student,
        "classes": ClassProbabilities(jax.nn.log_softmax(f[0]), jnp.zeros(40, f.dtype)),
        "pooled": Pooled((normal, replace(normal, centre=centre + 5))),
        "weighted": Weighted((normal, student), jnp.log(jnp.array([0.3, 0.7]))),
        "tempered": lamu.calibration.TemperedClasses(mixture, 2.0),
    }


@pytest.mark.parametrize("kind", predictions())
def test_draws_come_some_at_a_time_and_are_the_same(kind: str) -> None:
    pred = predictions()[kind]
    whole = pred.sample(jax.random.key(3), 30)
    with memory.within(2 * whole.nbytes):
        np.testing.assert_allclose(pred.sample(jax.random.key(3), 30), whole, rtol=1e-6)
    with (
        memory.within(whole.nbytes // 3),
        pytest.raises(ValueError, match=r"a sample of 30 draws takes.*ask for (9|10) at"),
    ):
        pred.sample(jax.random.key(3), 30)


def test_of_a_pool_every_draw_is_of_the_member_that_was_drawn() -> None:
    near = predictions()["normal"]
    far = replace(near, centre=near.centre + 5)
    pooled = Pooled((near, far)).sample(jax.random.key(0), 400)
    weighted = Weighted((near, far), jnp.log(jnp.array([0.2, 0.8]))).sample(jax.random.key(0), 400)
    for drawn, share in ((pooled, 0.5), (weighted, 0.2)):
        # The mean of 40 rows has a standard deviation below 0.6, and the members are 5 apart.
        away = np.asarray(drawn).mean(axis=1) - float(near.mean.mean())
        assert ((np.abs(away) < 2.5) ^ (np.abs(away - 5) < 2.5)).all()
        assert abs(np.mean(np.abs(away) < 2.5) - share) < 0.15  # six standard errors: fails once in 5e8
    members = jax.random.randint(jax.random.split(jax.random.key(0))[0], (400,), 0, 2)
    np.testing.assert_array_equal(np.asarray(pooled).mean(axis=1) > float(near.mean.mean()) + 2.5, members == 1)


def test_scores_and_decisions_keep_to_the_limit() -> None:
    pred, y = predictions()["normal"], jnp.asarray(np.random.default_rng(2).normal(size=40))
    away = lambda targets: jnp.stack([-((targets - 0.3) ** 2), -jnp.abs(targets), targets])
    whole = lamu.scores.crps(pred, y), pred.decide(away), lamu.scores.expected_utility(pred, away)
    sizes: list[int] = []

    def watched(targets: Any) -> Any:
        sizes.append(targets.shape[0])
        return away(targets)

    with memory.within("200kB"):
        assert lamu.scores.crps(pred, y) == pytest.approx(whole[0], rel=1e-6)
        np.testing.assert_array_equal(pred.decide(watched), whole[1])
        np.testing.assert_allclose(lamu.scores.expected_utility(pred, watched), whole[2], rtol=1e-5)
    assert max(sizes) < 256
    tempered = predictions()["tempered"]
    labels = jnp.asarray(np.arange(40) % 3)
    assert tempered.monte_carlo_error(labels) > 0


def test_draws_that_cannot_be_held_are_refused_with_a_number_that_can() -> None:
    model = lamu.Model(lamu.networks.MLP((40,)), lamu.likelihoods.Gaussian(scale=1.0))
    posterior = lamu.fit(model, (X, X[:, 0]), lamu.algorithms.ivon(), steps=2).posterior
    with memory.within("50kB"):
        with pytest.raises(
            ValueError, match=r"a prediction from 64 draws of 321 numbers takes .* ask for samples="
        ) as no:
            posterior.predict(X, samples=64)
        number = re.search(r"samples=(\d+)", str(no.value))
        assert number
        assert posterior.predict(X, samples=int(number[1])).mean.shape == (300,)
        with pytest.raises(ValueError, match=r"a sample of 200 draws of 321 numbers takes .*; ask for \d+ at a time"):
            posterior.sample(jax.random.key(0), 200)
    members = lamu.composition.Composition((posterior,) * 4, jnp.log(jnp.full(4, 0.25)))
    with memory.within("200kB"):
        pred: Any = members.predict(X, samples=8)
        alone: Any = posterior.predict(X, samples=8)
    assert not isinstance(alone, Deferred)
    assert all(isinstance(part, Deferred) for part in pred.parts), "each has a quarter of the limit"
    np.testing.assert_allclose(pred.mean, alone.mean, rtol=1e-5)


def test_draws_on_disk_are_saved_piece_by_piece(tmp_path: Path) -> None:
    """NumPy tells tracemalloc of all memory that it takes, but for what is mapped from files."""
    shape = (2, 40, 200_000)  # 64 MB
    draws = np.lib.format.open_memmap(tmp_path / "w.npy", mode="w+", dtype=np.float32, shape=shape)
    draws[:, ::7] = 1.5
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=1.0))
    belief = Draws({"network": {"kernel": draws.swapaxes(0, 1)}, "likelihood": {}})
    posterior = lamu.Posterior(model, belief, {}, Sampled(), jax.random.key(0))
    tracemalloc.start()
    try:
        posterior.save(tmp_path / "saved")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < draws.nbytes * 0.75
    read = lamu.load(tmp_path / "saved")
    np.testing.assert_array_equal(read.samples["network"]["kernel"], belief.samples["network"]["kernel"])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere nothing tells the two apart")
def test_what_a_process_held_is_not_what_its_parent_did() -> None:
    held = np.ones(25_000_000)  # 200 MB, of which a child that only asks would take a tenth
    told = subprocess.run(
        [sys.executable, "-c", "from lamu.memory import most_held; print(most_held())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 2**20 < int(told.stdout) < held.nbytes < (memory.most_held() or 0)
