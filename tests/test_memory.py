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
from lamu.algorithms.post_hoc import laplace_fit
from lamu.data import Arrays
from lamu.families import Draws
from lamu.objective import Objective
from lamu.operators import Dense
from lamu.predictives import Deferred, GaussianPredictive, MixturePredictive, Sampled, Weighted
from lamu.predictives.approximate_classes import ClassProbabilities
from lamu.predictives.gaussian import StudentPredictive
from lamu.predictives.lazy import in_memory_chunks, room_for
from lamu.running.schedule import Forecast, check_memory
from tests.for_each import for_each


@for_each("size", ["2 bananas", "-1GB", "", "0", float("nan"), float("inf"), 0, -5])
def test_what_is_no_size_is_quoted(size: Any) -> None:
    with pytest.raises(ValueError, match="is not a size; write a number and a unit"):
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
        lamu.algorithms.laplace(weights=lamu.algorithms.HeadWeights()).check_memory(Objective(model, 60), lambda: large)
    assert "The precision of 41 weights, Dense, takes about 40.3 kB; 200.0 kB may be used." in caplog.text
    assert "The precision of 40 weights, Dense," in caplog.text


# A run is foreseen.

X, Y = np.random.default_rng(0).normal(size=(300, 6)), np.arange(300) % 3


def network_of(*widths: int) -> lamu.Model:
    return lamu.Model(lamu.networks.MLP(widths), lamu.likelihoods.Categorical(3))


def foreseen(algorithm: Any, widths: tuple[int, ...] = (20,), batch_size: int = 64, **options: bool) -> Forecast:
    rows = Arrays.of((X, Y))
    return check_memory(algorithm, Objective(network_of(*widths), 300), rows, rows.example(300), batch_size, **options)


def weights_of(*widths: int) -> int:
    """The bytes of the network's weights."""
    example = Arrays.of((X, Y)).example(300)
    return memory.bytes_of(jax.eval_shape(network_of(*widths).init, jax.random.key(0), example)[0])


def test_a_forecast_knows_the_state_its_copies_and_its_members() -> None:
    """A state that is left out, a member that is not counted, and numbers for bytes would each be off by a factor."""
    one, adam = lamu.algorithms.sgd(), lamu.algorithms.adam()
    weights = weights_of(20)
    assert weights == (7 * 20 + 21 * 3) * jnp.dtype(jnp.result_type(float)).itemsize
    assert 2 * weights <= foreseen(one).state < 2 * weights + 100
    assert 6 * weights <= foreseen(adam).state < 6 * weights + 100
    assert 9 * weights <= foreseen(adam, keeps_best=True).state < 9 * weights + 100
    assert foreseen(lamu.algorithms.deep_ensemble(adam, members=7)).state >= 7 * 6 * weights
    assert foreseen(lamu.algorithms.newton()).state >= 2 * weights * (7 * 20 + 21 * 3)
    assert foreseen(one).data == memory.bytes_of(Arrays.of((X, Y)))
    assert foreseen(one).draws == foreseen(one).step == 0


def step_of(caplog: pytest.LogCaptureFixture, algorithm: Any, data: Any = (X, Y), **options: Any) -> float:
    """The bytes of a step, as a run tells them before it begins."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "lamu"):
        lamu.fit(network_of(200), data, algorithm, steps=1, **options)
    told = re.search(r"a step ([\d.]+ \w+)", caplog.text)
    assert told, caplog.text
    return memory.parse(told[1])


@pytest.mark.filterwarnings("ignore::lamu.convergence.Unconverged")
def test_a_step_holds_what_its_batch_takes(caplog: pytest.LogCaptureFixture) -> None:
    adam = lamu.algorithms.adam()
    few, many = (step_of(caplog, adam, batch_size=rows) for rows in (10, 200))
    assert many - few >= 190 * 200 * 4
    members = step_of(caplog, lamu.algorithms.deep_ensemble(adam, members=7), batch_size=200)
    assert members > 5 * many
    batches = [(X[:200], Y[:200]), (X[200:], Y[200:])]
    stream = step_of(caplog, adam, batches, data_size=300)
    assert many / 3 < stream < 3 * many


@pytest.mark.filterwarnings("ignore::lamu.convergence.Unconverged")
def test_the_program_that_is_looked_at_is_the_one_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second compilation would double the time to the first step."""
    compiled: list[str] = []
    monkeypatch.setattr(
        logging.getLogger("jax._src.dispatch"),
        "handle",
        lambda record: compiled.append(record.getMessage()),
    )
    with jax.log_compiles():
        lamu.fit(network_of(23), (X, Y), lamu.algorithms.adam(), steps=3, batch_size=50)
    assert sum("XLA compilation of jit(_scan_batches)" in message for message in compiled) == 1


def test_draws_are_foreseen_and_those_on_disk_are_not_held() -> None:
    sampler = lamu.mcmc.sgld(chains=1, warmup=10, draws=500, thinning=1)
    one = weights_of(20)
    held, stored = (foreseen(sampler, batch_size=300, on_disk=on_disk).draws for on_disk in (False, True))
    assert held - stored >= 2 * 500 * one
    assert 64 * one <= stored < 80 * one


REFUSED = {
    "a large batch": (lamu.algorithms.adam(), "2MB", "lower batch_size, members or chains"),
    "many members": (lamu.algorithms.deep_ensemble(members=20), "500kB", "lower batch_size, members or chains"),
    "draws": (lamu.mcmc.hmc(chains=1, warmup=2, draws=5000, step_size=0.1), "5MB", "give checkpoint=folder, where"),
    "a dense precision": (lamu.algorithms.newton(), "1MB", "take a diagonal precision or a smaller network"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_run_that_cannot_fit_is_refused_before_a_step(case: str) -> None:
    algorithm, limit, helps = REFUSED[case]
    rows = np.tile(X, (20, 1)), np.tile(Y, 20)
    steps: list[Any] = []
    options: dict[str, Any] = {} if algorithm.traits.length else {"steps": 2, "batch_size": 6000}
    shown = memory.shown(memory.parse(limit))
    with pytest.raises(ValueError, match=rf"^this run \(.*takes .* and {shown} may be used; .*{helps}") as refused:
        lamu.fit(
            network_of(30), rows, algorithm, max_memory=limit, callbacks=[lambda *seen: steps.append(seen)], **options
        )
    assert not steps
    assert re.search(r"or give max_memory='.*' or more$", str(refused.value))


@pytest.mark.filterwarnings("ignore::lamu.convergence.Unconverged")
def test_the_limit_that_a_refusal_names_is_enough(caplog: pytest.LogCaptureFixture) -> None:
    fit = lambda limit: lamu.fit(network_of(20), (X, Y), lamu.algorithms.sgd(), steps=1, max_memory=limit)
    limit = "1kB"
    for _ in range(2):  # the state first, then the step
        with pytest.raises(ValueError, match="or give max_memory=") as refused:
            fit(limit)
        enough = re.search(r"max_memory='(.*)'", str(refused.value))
        assert enough
        limit = enough[1]
    with caplog.at_level(logging.INFO, "lamu"):
        fit(limit)
    assert "The run takes about " in caplog.text
    size = memory.shown(memory.bytes_of(Arrays.of((X, Y))))
    assert f"The data take {size} beside. {limit} may be used." in caplog.text


# A program is foreseen.


def test_a_program_holds_what_the_compiler_says() -> None:
    x = jnp.zeros((50, 50))
    one = x.nbytes
    assert memory.held_by(jax.jit(lambda x: x @ x), x) >= one
    assert memory.held_by(jax.jit(lambda x: (x @ x).sum()), x) >= one
    given_away = jax.jit(lambda x: x + 1, donate_argnums=0)
    assert memory.held_by(given_away, x) < one, "a result in the place of an argument is nothing new"
    assert memory.largest_array(lambda x: (x @ x).sum(), x) == one
    inside = jax.jit(lambda x: jnp.outer(x[0], x.ravel()).sum())
    looped = lambda x: jax.lax.scan(lambda c, _: (c @ x, inside(c)), x, None, length=10)[1]
    assert memory.largest_array(looped, x) == 50 * one
    assert memory.bytes_of({"x": x, "key": jax.random.key(0), "name": "x"}) == one + 8


# Prediction and scores keep to the limit.


def test_rows_come_as_many_at_a_time_as_there_is_room_for() -> None:
    seen: list[int] = []

    @jax.jit
    def wide(w: Any, x: Any) -> Any:
        seen.append(x.shape[0])
        return jnp.tanh(x @ w) @ w.T

    w, x = jnp.ones((2, 500)), jnp.asarray(X[:, :2])
    whole = in_memory_chunks(wide, (w,), (x,))
    assert max(seen) == 300
    row = 500 * w.dtype.itemsize  # what a row's units take
    seen.clear()
    with memory.within(4 * 20 * row):
        assert 10 <= room_for(wide, (w,), (x,)) <= 20
        parts = in_memory_chunks(wide, (w,), (x,))
    assert 10 <= max(seen) <= 20
    np.testing.assert_allclose(parts, whole, rtol=1e-5)


def predictions() -> dict[str, Any]:
    generator = np.random.default_rng(1)
    f = jnp.asarray(generator.normal(size=(5, 40, 3)))
    centre, width = f[0, :, 0], jnp.exp(f[1, :, 0])
    classes = lamu.likelihoods.Categorical(3)
    normal = GaussianPredictive(centre, (1 + width**2)[:, None, None], jnp.ones(40))
    mixture = MixturePredictive.equal(classes, {}, f, drawn=True)
    student = StudentPredictive(centre, width, jnp.full(40, 4.0, centre.dtype), jnp.full(40, 0.5, centre.dtype))
    return {
        "mixture": mixture,
        "normal": normal,
        "independent": GaussianPredictive(f[0], 1 + f[1] ** 2, jnp.ones((40, 3), f.dtype)),
        "student": student,
        "classes": ClassProbabilities(jax.nn.log_softmax(f[0]), jnp.zeros(40, f.dtype)),
        "pooled": Weighted.equal((normal, replace(normal, centre=centre + 5))),
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
    pooled = Weighted.equal((near, far)).sample(jax.random.key(0), 400)
    weighted = Weighted((near, far), jnp.log(jnp.array([0.2, 0.8]))).sample(jax.random.key(0), 400)
    for drawn, share in ((pooled, 0.5), (weighted, 0.2)):
        # The mean of 40 rows has a standard deviation below 0.6, and the members are 5 apart.
        away = np.asarray(drawn).mean(axis=1) - float(near.mean.mean())
        assert ((np.abs(away) < 2.5) ^ (np.abs(away - 5) < 2.5)).all()
        assert abs(np.mean(np.abs(away) < 2.5) - share) < 0.15  # six standard errors: fails once in 5e8


@pytest.mark.stress
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
    shape = (2, 40, 200_000, 1)  # 64 MB
    draws = np.lib.format.open_memmap(tmp_path / "w.npy", mode="w+", dtype=np.float32, shape=shape)
    draws[:, ::7] = 1.5
    model = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Gaussian(scale=1.0))
    belief = Draws({"network": {"layers": {0: {"kernel": draws.swapaxes(0, 1)}}}, "likelihood": {}})
    posterior = lamu.Posterior(model, belief, {}, Sampled(), jax.random.key(0))
    tracemalloc.start()
    try:
        posterior.save(tmp_path / "saved")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < draws.nbytes * 0.75
    read = lamu.load(tmp_path / "saved")
    np.testing.assert_array_equal(*(each["network"]["layers"][0]["kernel"] for each in (read.samples, belief.samples)))


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


def test_a_precision_is_counted_alike_before_the_steps_and_after_them() -> None:
    weights = {"kernel": jnp.zeros((10, 10))}
    size = laplace_fit.bytes_held(Dense, weights)
    for asked in (
        lambda: laplace_fit.check_memory(Dense, weights, weights),
        lambda: laplace_fit._require_room(Dense, weights),
    ):
        with memory.within(size):
            asked()
        with memory.within(size - 1), pytest.raises(ValueError, match="precision of 100 weights"):
            asked()
