"""The loop: what it feeds, when it stops, what it returns."""

from __future__ import annotations

import functools
import inspect
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import graphs
from lamu.base.arguments import whole
from lamu.data import Batch
from lamu.families import Gamma, Point
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.protocol import Algorithm, Choices, Info, Traits
from lamu.running import compiled_steps, schedule

rng = np.random.default_rng(0)
X = rng.normal(size=(10, 2))
Y = X @ np.array([1.0, -1.0]) + 0.1 * rng.normal(size=10)
MODEL = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5))
SGD = lamu.algorithms.sgd(0.05)


class Spy:
    """One's own algorithm, a plain class that nobody registered: it notes what it is shown."""

    traits = Traits()
    choices = Choices("point", "Delta", "none")

    def __init__(self, bad_from: int = 10**6) -> None:
        self.bad_from = bad_from

    def init(self, key: Any, objective: Any, batch: Any) -> Any:
        params, _ = objective.model.init(key, batch)
        return {"params": params, "count": jnp.zeros((), jnp.int32), "seen": jnp.zeros(10), "steps": jnp.zeros(10)}

    def step(self, key: Any, state: Any, batch: Any, objective: Any) -> Any:
        rows = batch.y.astype(jnp.int32)
        state = {
            **state,
            "count": state["count"] + 1,
            "seen": state["seen"].at[rows].add(batch.mask),
            "steps": state["steps"] + jnp.arange(10.0) * 0 + batch.count,
        }
        loss = jnp.where(state["count"] > self.bad_from, jnp.nan, batch.count)
        return state, Info(loss=loss, residual=batch.weight[0])

    def posterior(self, key: Any, state: Any, objective: Any, data: Any, trace: Any) -> Any:
        return Posterior(objective.model, Point(state["params"]), {}, Sampled(), key)


NUMBERED = (X, np.arange(10.0))


def weights(fit: Any) -> np.ndarray:
    return np.asarray(fit.posterior.mean["network"]["layers"][0]["kernel"])


def test_ones_own_algorithm_needs_no_registration() -> None:
    assert isinstance(Spy(), Algorithm)
    fit = lamu.fit(MODEL, NUMBERED, Spy(), epochs=1, batch_size=5)
    assert fit.posterior.predict(X).mean.shape == (10,)


@pytest.mark.parametrize("batch_size", [1, 3, 4, 5])
def test_every_epoch_sees_every_row_exactly_once(batch_size: int) -> None:
    for epochs in (1, 3):
        fit = lamu.fit(MODEL, NUMBERED, Spy(), epochs=epochs, batch_size=batch_size)
        np.testing.assert_array_equal(fit.state["seen"], np.full(10, epochs))
        assert len(fit.history["loss"]) == epochs * -(-10 // batch_size)


def test_the_last_batch_is_padded_and_masked() -> None:
    fit = lamu.fit(MODEL, NUMBERED, Spy(), epochs=2, batch_size=4)
    np.testing.assert_array_equal(fit.history["loss"], [4, 4, 2, 4, 4, 2])


def test_epochs_are_shuffled_anew_and_by_the_seed() -> None:
    orders = [
        np.asarray(lamu.fit(MODEL, NUMBERED, Spy(), steps=s, batch_size=5, seed=seed).state["seen"])
        for s, seed in ((1, 0), (1, 0), (1, 1), (3, 0))
    ]
    np.testing.assert_array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0], orders[2])
    assert not np.array_equal(orders[0], orders[3] - 1), "the second epoch has an order of its own"


def test_same_seed_same_bits() -> None:
    fits = [lamu.fit(MODEL, (X, Y), lamu.algorithms.ivon(), epochs=2, batch_size=4, seed=seed) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(weights(fits[0]), weights(fits[1]))
    np.testing.assert_array_equal(fits[0].posterior.predict(X).mean, fits[1].posterior.predict(X).mean)
    assert not np.array_equal(weights(fits[0]), weights(fits[2]))


def test_steps_are_epochs_times_batches() -> None:
    by_epochs = lamu.fit(MODEL, (X, Y), SGD, epochs=2, batch_size=4)
    by_steps = lamu.fit(MODEL, (X, Y), SGD, steps=6, batch_size=4)
    np.testing.assert_array_equal(weights(by_epochs), weights(by_steps))
    assert len(lamu.fit(MODEL, (X, Y), SGD, steps=5, batch_size=4).history["loss"]) == 5


def test_a_batch_of_n_or_more_is_the_whole_data_in_order() -> None:
    one, more = (lamu.fit(MODEL, (X, Y), SGD, steps=3, batch_size=size) for size in (10, 64))
    np.testing.assert_array_equal(weights(one), weights(more))
    objective = lamu.objective.Objective(MODEL, 10.0)
    batch = Batch.of(jnp.asarray(X), jnp.asarray(Y))
    state = SGD.init(jax.random.fold_in(jax.random.key(0), 0), objective, batch)
    for _ in range(3):
        state, _ = SGD.step(jax.random.key(1), state, batch, objective)
    np.testing.assert_allclose(weights(one), state.mean["network"]["layers"][0]["kernel"], rtol=1e-12)


def programs() -> dict[str, int]:
    """How many programs there are of each piece that a run over arrays is made of."""
    names = ("scan_batches", "scan_batches_lightly", "scan_whole", "scan_whole_lightly", "scan_whole_quickly")
    names = (*names, "scan_chains", "start", "start_quickly")
    return {name: getattr(compiled_steps, name)._cache_size() for name in names}


def compilations(caplog: pytest.LogCaptureFixture, name: str) -> int:
    """How often a function was compiled, as JAX logs it, whichever of its programs ran."""
    return sum(f"XLA compilation of jit({name}" in record.getMessage() for record in caplog.records)


def test_the_second_epoch_does_not_compile() -> None:
    for algorithm in (SGD, lamu.algorithms.ivon()):
        lamu.fit(MODEL, (X, Y), algorithm, epochs=2, batch_size=4)
        before = programs()
        lamu.fit(MODEL, (X, Y + 1), algorithm, epochs=2, batch_size=4, seed=3, temperature=0.5)
        after = programs()
        assert before == after


def test_the_second_block_does_not_compile(caplog: pytest.LogCaptureFixture) -> None:
    """The first state of Optax's line search holds weakly typed numbers, and that of a step does not."""
    with jax.log_compiles():
        lamu.regression(X, np.arange(len(X)) % 4, "poisson")
    assert compilations(caplog, "_scan_whole") == 1
    assert 0 < compilations(caplog, "") <= 25  # a check of the targets' mean was thirteen, of one operation each


def test_a_first_run_of_chains_compiles_few_programs(caplog: pytest.LogCaptureFixture) -> None:
    """Draws are cut, picked and checked in no programs of one operation each, which were thirty."""
    wide = np.tile(X, 9)  # no other test has compiled these shapes
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian())
    with jax.log_compiles():
        fit = lamu.fit(model, (wide, Y), lamu.mcmc.random_walk(chains=3, warmup=5, draws=21), progress=False)
        np.asarray(fit.posterior.predict(wide).mean)
    assert 0 < compilations(caplog, "") <= 14


def test_sweeps_of_few_messages_are_compiled_with_the_fewest_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """And end where those of more rows would."""

    def program(m: Any) -> None:
        level = m.sample("level", graphs.Normal(0.0, precision=0.01))
        noise = m.sample("noise", Gamma(1.0, 1.0))
        with m.rows():
            m.sample("y", graphs.Normal(level, precision=noise))

    graph, called, ends = lamu.Graph(program), [], []
    asked = schedule.Steps.are_few_messages
    note = lambda steps, state: called.append(asked(steps, state)) or called[-1]
    monkeypatch.setattr(schedule.Steps, "are_few_messages", note)
    for limit in (schedule._FEW, 0):
        monkeypatch.setattr(schedule, "_FEW", limit)
        ends.append(lamu.fit(graph, {"y": Y}, lamu.algorithms.vmp(), progress=False).posterior.mean)
    few = called.count(True)
    assert called == [True] * few + [False] * few
    jax.tree.map(lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-10), *ends)


@pytest.mark.parametrize(("batch_size", "steps"), [(4, 200), (5, 131)])
def test_the_rest_of_a_run_is_no_program_of_its_own(
    batch_size: int, steps: int, caplog: pytest.LogCaptureFixture
) -> None:
    """And its steps are those of a run that goes on: 20 after three blocks of 60, 1 after five of 26."""
    algorithm = lamu.algorithms.ivon(learning_rate=0.01)
    given = {"batch_size": batch_size, "progress": False}
    wide = np.tile(X, 7)  # no other test has compiled its steps
    with jax.log_compiles():
        some = lamu.fit(MODEL, (wide, Y), algorithm, steps=steps, **given)
    assert compilations(caplog, "_scan_batches") == 1
    assert len(some.history["loss"]) == steps
    more = lamu.fit(MODEL, (wide, Y), algorithm, steps=3 * steps, **given)
    np.testing.assert_allclose(some.history["loss"], more.history["loss"][:steps], rtol=1e-9)


def test_a_rate_is_no_reason_to_compile() -> None:
    lamu.fit(MODEL, (X, Y), lamu.algorithms.sgd(0.01), epochs=1, batch_size=4)
    before = programs()
    lamu.fit(MODEL, (X, Y), lamu.algorithms.sgd(0.02), epochs=1, batch_size=4)
    assert programs() == before


def test_steps_of_small_networks_are_compiled_lightly_and_not_of_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """And take the same steps as those of larger ones."""
    called: list[str] = []

    def counted(name: str) -> None:
        scan = getattr(compiled_steps, name)
        program = functools.wraps(scan)(lambda *arguments: called.append(name) or scan(*arguments))
        program.lower = scan.lower
        monkeypatch.setattr(schedule, name, program)

    for name in ("scan_batches", "scan_batches_lightly", "scan_whole", "scan_whole_lightly"):
        counted(name)
    fits = {}
    for limit in (schedule._SMALL, 0):
        monkeypatch.setattr(schedule, "_SMALL", limit)
        fits[limit] = [lamu.fit(MODEL, (X, Y), SGD, steps=7, batch_size=size) for size in (4, 10)]
    assert list(dict.fromkeys(called)) == ["scan_batches_lightly", "scan_whole_lightly", "scan_batches", "scan_whole"]
    for small, large in zip(*fits.values(), strict=True):
        np.testing.assert_allclose(weights(small), weights(large), rtol=1e-12)
    monkeypatch.undo()
    counted("scan_batches")
    called.clear()
    lamu.fit(MODEL, (X, Y), lamu.mcmc.sgld(chains=1, warmup=2, draws=3), batch_size=4)
    assert "scan_batches" in called
    called.clear()
    recurrent = lamu.Model(
        lamu.networks.LSTM((4,)), lamu.likelihoods.Gaussian(1.0)
    )  # whose weights a row uses many times
    lamu.fit(recurrent, (np.repeat(X[:, None], 3, axis=1), Y), SGD, steps=3, batch_size=4)
    assert "scan_batches" in called


def test_long_runs_are_blocks_of_whole_epochs() -> None:
    seen: list[int] = []
    fit = lamu.fit(MODEL, NUMBERED, Spy(), epochs=40, batch_size=5, callbacks=[lambda done, _: seen.append(done)])
    np.testing.assert_array_equal(fit.state["seen"], np.full(10, 40))
    assert seen[-1] == 80
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("batch_size", "length", "ends"),
    [(10, {"steps": 101}, [51, 101]), (5, {"epochs": 37}, [38, 74]), (10, {"steps": 128}, [64, 128])],
)
def test_a_length_without_divisors_is_cut_evenly(batch_size: int, length: dict[str, int], ends: list[int]) -> None:
    seen: list[int] = []
    lamu.fit(MODEL, (X, Y), SGD, batch_size=batch_size, callbacks=[lambda done, _: seen.append(done)], **length)
    assert seen == ends


class Batches:
    """A re-iterable of batches of unequal size, in their own order."""

    def __iter__(self) -> Any:
        for start in (0, 4, 8):
            yield X[start : start + 4], NUMBERED[1][start : start + 4]


def test_streams_come_in_their_own_order() -> None:
    fit = lamu.fit(MODEL, Batches(), Spy(), epochs=2, data_size=10)
    np.testing.assert_array_equal(fit.history["loss"], [4, 4, 2, 4, 4, 2])
    np.testing.assert_array_equal(fit.state["seen"], np.full(10, 2))
    assert len(lamu.fit(MODEL, Batches(), Spy(), steps=4, data_size=10).history["loss"]) == 4


def test_a_list_of_batches_is_a_stream() -> None:
    batches = [Batch.of(jnp.asarray(X), jnp.asarray(Y))]
    streamed = lamu.fit(MODEL, batches, SGD, steps=3, data_size=10)
    again = lamu.fit(MODEL, lamu.data.Stream(batches), SGD, steps=3, data_size=10)
    np.testing.assert_array_equal(weights(streamed), weights(again))
    np.testing.assert_allclose(weights(streamed), weights(lamu.fit(MODEL, (X, Y), SGD, steps=3)), rtol=1e-12)


def test_weights_reach_the_step() -> None:
    fit = lamu.fit(MODEL, {"x": X, "y": NUMBERED[1], "weight": np.full(10, 2.0)}, Spy(), steps=1, batch_size=10)
    assert fit.history["residual"][0] == 2.0


def test_divergence_says_the_step_and_keeps_the_last_good_fit() -> None:
    with pytest.raises(lamu.Diverged, match="nan at step 131; lower the learning rate") as caught:
        lamu.fit(MODEL, NUMBERED, Spy(bad_from=130), steps=200, batch_size=10)
    kept = caught.value.fit
    assert kept is not None
    assert int(kept.state["count"]) <= 130
    assert kept.posterior.predict(X).mean.shape == (10,)


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (np.full(10, 3.0), "the learned noise has fallen to zero"),
        (np.arange(10.0), "lower the learning rate"),
    ],
    ids=["constant", "varying"],
)
def test_divergence_of_targets_that_do_not_vary_says_so(y: np.ndarray, said: str) -> None:
    """`laplace()` ended at step 18,182 with the advice to lower the learning rate."""
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian())
    with pytest.raises(lamu.Diverged, match=f"nan at step 31; {said}"):
        lamu.fit(model, (X, y), Spy(bad_from=30), steps=200, batch_size=10)
    given = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.1))
    with pytest.raises(lamu.Diverged, match="nan at step 31; lower the learning rate"):
        lamu.fit(given, (X, y), Spy(bad_from=30), steps=200, batch_size=10)


def test_a_real_divergence_is_one() -> None:
    with pytest.raises(lamu.Diverged) as caught:
        lamu.fit(MODEL, (X, Y), lamu.algorithms.gradient_descent(1e3), epochs=500)
    assert np.all(np.isfinite(weights(caught.value.fit)))


def test_an_interrupt_returns_what_there_is() -> None:
    def interrupt(done: int, last: Any) -> None:
        if done >= 64:
            raise KeyboardInterrupt

    fit = lamu.fit(MODEL, (X, Y), SGD, steps=640, batch_size=10, callbacks=[interrupt])
    assert fit.interrupted
    assert 0 < len(fit.history["loss"]) < 640
    assert fit.posterior.predict(X).mean.shape == (10,)
    assert not lamu.fit(MODEL, (X, Y), SGD, steps=1).interrupted


def test_what_is_returned_after_an_interrupt_fits_its_history() -> None:
    def interrupt(done: int, last: Any) -> None:
        raise KeyboardInterrupt

    fit = lamu.fit(MODEL, (X, Y), SGD, steps=640, batch_size=10, callbacks=[interrupt])
    assert int(fit.state.count) == len(fit.history["loss"])


def test_an_interrupted_sampler_keeps_its_draws() -> None:
    def interrupt(done: int, last: Any) -> None:
        if done >= 100:
            raise KeyboardInterrupt

    fit = lamu.fit(MODEL, (X, Y), lamu.mcmc.nuts(chains=2, warmup=20, draws=180), callbacks=[interrupt])
    assert fit.interrupted
    drawn = fit.posterior.samples["network"]["layers"][0]["kernel"].shape[1]
    assert 0 < drawn < 180


def test_callbacks_see_steps_and_loss() -> None:
    seen: list[Any] = []
    fit = lamu.fit(MODEL, (X, Y), SGD, steps=3, callbacks=[lambda done, last: seen.append((done, dict(last)))])
    assert seen[-1] == (3, {"loss": fit.history["loss"][-1], "residual": fit.history["residual"][-1]})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 1, "steps": 1}, "epochs=1 and steps=1 contradict"),
        ({"batch_size": 0}, "batch_size=0 must be at least one row"),
        ({"epochs": -1}, "epochs=-1 must be at least 1"),
        ({"epochs": 0}, "epochs=0 would make a posterior of the random weights of Linear"),
        ({"steps": -1}, "steps=-1 must be at least 1"),
        ({"temperature": 0.0}, "temperature is 0.0; it must be positive"),
        ({"likelihood_power": -1.0}, "likelihood_power is -1.0"),
        ({"data_size": 0}, "data_size is 0"),
    ],
    ids=str,
)
def test_what_cannot_be_is_said_in_a_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        lamu.fit(MODEL, (X, Y), SGD, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": None}, "batch_size=None is not a whole number"),
        ({"epochs": 1.5}, r"epochs=1\.5 is not a whole number"),
        ({"steps": 2.0}, r"steps=2\.0 is not a whole number"),
        ({"callbacks": print}, r"is not a sequence of functions; give callbacks=\[\.\.\.\]"),
    ],
    ids=str,
)
def test_what_is_of_another_kind_is_said_in_a_sentence(options: dict[str, Any], words: str) -> None:
    of_users = inspect.unwrap(lamu.fit)  # without the tests' own check of types
    with pytest.raises(TypeError, match=words):
        of_users(MODEL, (X, Y), SGD, **options)


def test_whole_numbers_of_numpy_and_jax_are_taken_as_others() -> None:
    of_users = inspect.unwrap(lamu.fit)  # without the tests' own check of types
    options = {"batch_size": np.array(4), "microbatch_size": jnp.int32(2)}
    for steps in (jnp.int32(3), np.int64(3), np.array(3)):
        assert len(of_users(MODEL, (X, Y), SGD, steps=steps, **options).history["loss"]) == 3
    numbers = [whole(value) for value in (jnp.int8(3), True, np.True_, jnp.array(True), 3.0, np.array([3]), "3", None)]
    assert numbers == [3, *[None] * 7]


def test_numbers_of_numpy_are_checked_as_others() -> None:
    check = Objective.__post_init__
    for name, value, error in (
        ("temperature", np.float32(-0.5), ValueError),
        ("likelihood_power", np.float32(0), ValueError),
        ("temperature", "1", TypeError),
    ):
        given = {"microbatch_size": None, "data_size": 1.0, "temperature": 1.0, "likelihood_power": 1.0, name: value}
        with pytest.raises(error, match=f"{name} is .*; it must be"):
            check(SimpleNamespace(**given))


def test_streams_need_their_size_and_arrays_their_shape() -> None:
    with pytest.raises(ValueError, match="data_size=N"):
        lamu.fit(MODEL, Batches(), SGD, epochs=1)
    with pytest.raises(ValueError, match="x has 10 rows and y has 9"):
        lamu.fit(MODEL, (X, Y[:9]), SGD)
    with pytest.raises(TypeError, match="cannot be read"):
        lamu.fit(MODEL, X, SGD)
    with pytest.raises(TypeError, match="read once only"):
        lamu.fit(MODEL, iter([(X, Y)]), SGD, data_size=10)


def test_a_single_feature_is_a_column() -> None:
    """It was fitted, and no prediction then took what was fitted."""
    for learn in (lambda x: lamu.fit(MODEL, (x, Y), SGD, steps=1), lambda x: MODEL.standardised(x, Y), MODEL.inputs):
        with pytest.raises(ValueError, match=r"x has the shape \(10,\); give rows .* for one feature x\[:, None\]"):
            learn(X[:, 0])


@pytest.mark.parametrize("algorithm", [lamu.mcmc.nuts(), lamu.algorithms.conjugate()], ids=["nuts", "conjugate"])
def test_algorithms_of_their_own_length_take_no_epochs(algorithm: Any) -> None:
    for options in ({"epochs": 1}, {"steps": 1}):
        with pytest.raises(ValueError, match="length of its own"):
            lamu.fit(MODEL, (X, Y), algorithm, **options)


def test_streams_refuse_algorithms_that_cannot_read_them() -> None:
    with pytest.raises(ValueError, match="needs all the data at every step"):
        lamu.fit(MODEL, Batches(), lamu.mcmc.nuts(), data_size=10)
    with pytest.raises(ValueError, match="length of its own"):
        lamu.fit(MODEL, Batches(), lamu.algorithms.conjugate(), data_size=10, epochs=2)


def test_a_stream_is_read_once_by_an_algorithm_that_sees_every_row_once() -> None:
    batches = [(X[:4], Y[:4]), (X[4:8], Y[4:8]), (X[8:], Y[8:])]
    streamed = lamu.fit(MODEL, batches, lamu.algorithms.conjugate(), data_size=10)
    whole = lamu.fit(MODEL, (X, Y), lamu.algorithms.conjugate())
    np.testing.assert_allclose(weights(streamed), weights(whole), rtol=1e-9)
    np.testing.assert_allclose(streamed.posterior.evidence, whole.posterior.evidence, rtol=1e-9)


def test_streams_refuse_what_does_nothing() -> None:
    for options in ({"epochs": 0}, {"epochs": -1}, {"steps": 0}):
        with pytest.raises(ValueError, match=r"must be at least 1|would make a posterior of the random weights"):
            lamu.fit(MODEL, Batches(), SGD, data_size=10, **options)


def test_an_empty_stream_is_said() -> None:
    with pytest.raises(ValueError, match="no batch"):
        lamu.fit(MODEL, [], SGD, data_size=10, epochs=1)


def test_the_last_state_is_handed_out() -> None:
    fit = lamu.fit(MODEL, (X, Y), lamu.algorithms.sgd(0.01), steps=7, batch_size=4)
    assert isinstance(fit.state, lamu.rule.RuleState)
    assert int(fit.state.count) == len(fit.history["loss"]) == 7


def test_a_recipe_made_anew_is_the_same_program() -> None:
    """What differs from call to call in a static part (an optimiser of its own) would compile every run anew."""
    rows = {**lamu.algorithms.registry(), **lamu.mcmc.registry()}
    apart = [
        name for name, row in rows.items() if jax.tree.structure(row.factory()) != jax.tree.structure(row.factory())
    ]
    assert not apart
