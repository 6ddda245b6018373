"""Frames: columns are matched by name wherever data come in, and never read by position."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars
import pytest

import lamu

RANDOM = np.random.default_rng(0)
FRAME = pd.DataFrame(RANDOM.normal(size=(60, 3)) * [1.0, 10.0, 100.0] + [0.0, 5.0, 50.0], columns=["a", "b", "c"])
Y = (FRAME["a"] - 0.1 * FRAME["b"] + 0.5 * RANDOM.normal(size=60)).rename("y")
TURNED = FRAME[["c", "a", "b"]].assign(more=1.0)
MODEL = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.7))
EXACT = lamu.algorithms.conjugate()


def polars_of(frame):
    return polars.DataFrame({name: frame[name].to_numpy() for name in frame.columns})


def expected():
    x = FRAME.to_numpy()
    return lamu.fit(MODEL.standardised(x, Y.to_numpy()), (x, Y.to_numpy()), EXACT).posterior


@pytest.mark.parametrize("kind", [lambda frame: frame, polars_of])
@pytest.mark.parametrize("standardised", [FRAME, FRAME.to_numpy()])
def test_a_frame_in_another_order_is_predicted_by_name(kind, standardised, tmp_path):
    model = MODEL.standardised(standardised, Y)
    posterior = lamu.fit(model, (kind(FRAME), Y), EXACT).posterior
    mean = expected().predict(FRAME.to_numpy()).mean
    np.testing.assert_array_equal(posterior.predict(kind(FRAME)).mean, mean)
    np.testing.assert_array_equal(posterior.predict(kind(TURNED)).mean, mean)
    np.testing.assert_array_equal(posterior.predict(FRAME.to_numpy()).mean, mean)
    again = lamu.load(posterior.save(tmp_path / "posterior"))
    np.testing.assert_array_equal(again.predict(kind(TURNED)).mean, mean)
    with pytest.raises(ValueError, match="lacks the column 'b' that the model was fitted on, and has 'c', 'a'"):
        posterior.predict(kind(FRAME[["c", "a"]]))


def test_a_frame_in_another_order_is_learned_from_by_name():
    model = MODEL.standardised(FRAME, Y)
    mean = expected().predict(FRAME.to_numpy()).mean
    for data in ((TURNED, Y), {"x": TURNED, "y": Y}):
        np.testing.assert_array_equal(lamu.fit(model, data, EXACT).posterior.predict(TURNED).mean, mean)
    np.testing.assert_array_equal(lamu.fit_prior_scale(model, (TURNED, Y), EXACT).posterior.predict(TURNED).mean, mean)
    np.testing.assert_array_equal(model.standardised(TURNED, Y).network.base.scale, model.network.scale)


@pytest.mark.stress
def test_other_ways_in_match_by_name_too():
    plain, named = (MODEL.standardised(x, Y) for x in (FRAME.to_numpy(), FRAME))
    adam = lamu.algorithms.adam(1e-2)
    given = {"epochs": 3, "seed": 0}
    one = lamu.fit(plain, (FRAME.to_numpy()[:40], Y[:40]), adam, validation=(FRAME.to_numpy()[40:], Y[40:]), **given)
    other = lamu.fit(named, (FRAME[:40], Y[:40]), adam, validation=(TURNED[40:], Y[40:]), **given)
    np.testing.assert_array_equal(one.history["validation_nll"], other.history["validation_nll"])
    folds = {"folds": 2, **given}
    one, other = (
        lamu.fit_folds(plain, (FRAME.to_numpy(), Y), adam, **folds),
        lamu.fit_folds(named, (TURNED, Y), adam, **folds),
    )
    np.testing.assert_array_equal(one.nll, other.nll)
    np.testing.assert_array_equal(one.posterior.predict(FRAME.to_numpy()).mean, other.posterior.predict(TURNED).mean)
    whole = lamu.fit(named, (FRAME, Y), EXACT).posterior
    assert float(lamu.scores.elbo(whole, (TURNED, Y)).value) == float(lamu.scores.elbo(whole, (FRAME, Y)).value)
    left = lamu.remove(whole, (TURNED[:20], Y[:20])).predict(TURNED).mean
    np.testing.assert_allclose(left, lamu.remove(whole, (FRAME[:20], Y[:20])).predict(FRAME).mean)


def test_names_that_stand_twice_are_refused_and_numbers_are_positions():
    twice = FRAME.set_axis(["a", "b", "a"], axis=1)
    with pytest.raises(ValueError, match="more than one column 'a'"):
        MODEL.standardised(twice, Y)
    assert MODEL.standardised(FRAME.set_axis([0, 1, 2], axis=1), Y).columns is None


def test_batches_that_are_frames_are_matched_by_name():
    """The first batch names the columns; later ones come in another order."""
    parts = [(FRAME[:30], Y[:30]), (TURNED[30:], Y[30:])]
    named = lamu.fit(MODEL, parts, lamu.algorithms.adam(1e-2), epochs=2, data_size=60).posterior
    plain = [(part[["a", "b", "c"]].to_numpy(), y.to_numpy()) for part, y in parts]
    arrays = lamu.fit(MODEL, plain, lamu.algorithms.adam(1e-2), epochs=2, data_size=60).posterior
    assert named.model.columns == ("a", "b", "c")
    np.testing.assert_array_equal(named.predict(TURNED).mean, arrays.predict(FRAME.to_numpy()).mean)
