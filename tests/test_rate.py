"""Learning rates, and how a rate that falls to zero learns the length of its run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lamu
from lamu.algorithms import adam, deep_ensemble, ivon, laplace, sgd
from lamu.rate import Annealed, Constant, Rate, Scheduled, decay, over, rate
from tests.for_each import for_each

STEPS = 12
rng = np.random.default_rng(0)
X = rng.normal(size=(20, 2))
Y = X @ np.array([1.0, -0.5]) + 0.3 * rng.normal(size=20)
MODEL = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.3))


def half_cosine(start: float) -> Any:
    """That of optax, which counts in the precision of the step that it is given."""
    return lambda step: optax.cosine_decay_schedule(start, STEPS)(jnp.asarray(step, float))


def final(algorithm: Any, data: Any = (X, Y), batch_size: int = 8, **options: Any) -> np.ndarray:
    """The mean at the end of a run: four epochs of three batches, unless said otherwise."""
    options = options or {"epochs": 4}
    fit = lamu.fit(MODEL, data, algorithm, batch_size=batch_size, **options)
    return np.asarray(lamu.tree.ravel(fit.posterior.mean)[0])


def test_the_annealed_rate_is_optaxs_half_cosine() -> None:
    """Over the run, and past its end, where it stays at zero; also where everything is traced."""
    steps = np.arange(STEPS + 3)
    expected = [float(half_cosine(0.3)(step)) for step in steps]
    np.testing.assert_allclose([float(Annealed(0.3, STEPS)(step)) for step in steps], expected, atol=1e-6)
    traced = jax.jit(lambda rate, steps: jax.vmap(rate)(steps))(Annealed(0.3, float(STEPS)), jnp.asarray(steps))
    np.testing.assert_allclose(traced, expected, atol=1e-6)
    assert expected[0] == pytest.approx(0.3)
    assert expected[STEPS] == expected[-1] == 0


def test_over_fills_in_lengths_that_nobody_gave() -> None:
    """Wherever a rate stands: within an ensemble of what finds a mode too."""
    nested = over(STEPS, deep_ensemble(laplace(ivon(Annealed(0.1))), members=2))
    assert nested.base.base.learning_rate == Annealed(0.1, float(STEPS))
    assert nested.members == 2
    assert over(STEPS, adam(Annealed(0.1, steps=7))).learning_rate == Annealed(0.1, steps=7)
    for given in (0.1, half_cosine(0.1)):
        algorithm = adam(given)
        assert over(STEPS, algorithm) == algorithm
    unknown = adam(Annealed(0.1))
    assert over(None, unknown) is unknown


def test_an_algorithm_of_ones_own_stays_as_it_is() -> None:
    class Own:
        learning_rate = Annealed(0.1)

    own = Own()
    assert over(STEPS, own) is own
    assert own.learning_rate.steps is None


@pytest.mark.parametrize("make", [adam, ivon], ids=["adam", "ivon"])
def test_a_run_follows_the_schedule_of_its_own_length(make: Any) -> None:
    """To the last bits that of optax, given by hand; a run that took itself for one step longer ends elsewhere."""
    found = final(make(Annealed(0.1)))
    np.testing.assert_allclose(found, final(make(half_cosine(0.1))), rtol=1e-12)
    assert np.max(np.abs(found - final(make(Annealed(0.1, STEPS + 1.0))))) > 1e-4


def test_every_kind_of_run_knows_its_length() -> None:
    """In steps, in epochs, on all the data at once, and on a stream; a part of an algorithm as the whole."""
    found = final(sgd(Annealed(0.1)), epochs=4)
    np.testing.assert_array_equal(found, final(sgd(Annealed(0.1)), steps=STEPS))
    whole = final(sgd(Annealed(0.1)), batch_size=20, epochs=STEPS)
    np.testing.assert_allclose(whole, final(sgd(half_cosine(0.1)), batch_size=20, epochs=STEPS), rtol=1e-12)
    stream = final(sgd(Annealed(0.1)), [(X, Y)], steps=STEPS, data_size=20)
    np.testing.assert_allclose(stream, whole, rtol=1e-12)


class Counted:
    """A stream without a length, which counts how often it was begun."""

    begun = 0

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        self.begun += 1
        return iter([(X[:8], Y[:8]), (X[8:], Y[8:])])


def test_passes_over_a_stream_are_a_run_of_known_length() -> None:
    """By its length, else by counting; a rate that needs no length counts nothing."""
    assert Annealed(0.1)(5) == 0.1
    batches = [(X[:8], Y[:8]), (X[8:], Y[8:])]
    wanted = final(sgd(Annealed(0.1)), batches, steps=STEPS, data_size=20)
    np.testing.assert_array_equal(final(sgd(Annealed(0.1)), batches, epochs=STEPS // 2, data_size=20), wanted)
    unknown, constant = Counted(), Counted()
    np.testing.assert_array_equal(final(sgd(Annealed(0.1)), unknown, epochs=STEPS // 2, data_size=20), wanted)
    final(sgd(0.1), constant, epochs=STEPS // 2, data_size=20)
    assert unknown.begun == constant.begun + 1


def test_swag_collects_the_last_part_of_passes_over_a_stream() -> None:
    swag = lamu.algorithms.swag(sgd(0.1), collect=lamu.algorithms.LastPart(0.5, iterates=4))
    batches = [(X[:8], Y[:8]), (X[8:], Y[8:])]
    np.testing.assert_array_equal(
        final(swag, batches, epochs=STEPS // 2, data_size=20), final(swag, batches, steps=STEPS, data_size=20)
    )


def test_a_polynomial_decay_is_robbins_and_monros() -> None:
    rate = lamu.rate.PolynomialDecay(power=0.7, delay=3.0, scale=2.0, hold=4.0)
    np.testing.assert_allclose([rate(t) for t in (0, 4, 5, 100)], [2 * 3**-0.7, 2 * 3**-0.7, 2 * 4**-0.7, 2 * 99**-0.7])


def test_single_precision_stays() -> None:
    """The rate of a run with wider floats than its parameters does not widen them."""
    x, y = X.astype(np.float32), Y.astype(np.float32)
    assert final(adam(Annealed(0.1)), (x, y)).dtype == np.float32


def test_numbers_and_functions_are_rates() -> None:
    for value, kind in ((0.1, Constant), (jnp.asarray(0.1), Constant), (half_cosine(0.1), Scheduled)):
        assert type(rate(value)) is kind
        assert isinstance(rate(value), Rate)
        np.testing.assert_allclose(float(rate(value)(0)), 0.1)
    assert rate(Annealed(0.2)) == Annealed(0.2)
    assert decay(0.0, "b1") == 0.0


@for_each(
    "make, error, words",
    [
        (lambda: Annealed(-0.1), ValueError, r"start=-0\.1 would move uphill.*positive number"),
        (lambda: Annealed(0.0), ValueError, r"start=0\.0"),
        (lambda: rate(-0.1), ValueError, r"learning_rate=-0\.1 would move uphill"),
        (lambda: rate(0.0, "step"), ValueError, r"step=0\.0 "),
        (lambda: rate("fast"), TypeError, "learning_rate='fast' is neither a number nor a schedule"),
        (lambda: decay(1.0, "b2"), ValueError, r"b2=1\.0 would never forget"),
        (lambda: decay(-0.1, "b1"), ValueError, r"b1=-0\.1"),
    ],
)
def test_what_is_no_rate_is_refused(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()
