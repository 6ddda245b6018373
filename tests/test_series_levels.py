"""`models.StateSpace` at any level and scale: in single precision what the same program says in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import graphs
from lamu.families import Gamma
from lamu.graphs import models

RNG = np.random.default_rng(2)
WALK = np.cumsum(RNG.normal(size=(2, 20)) * 0.5, axis=1) + RNG.normal(size=(2, 20)) * np.array([[1.0], [0.7]])
WALK[0, 4:7], WALK[1, -3:] = np.nan, np.nan


def as_written(m):
    unit = m.sample("unit", Gamma(1e-3, 1e-9))
    step, noise = m.sample("step", graphs.Gamma(0.5, unit)), m.sample("noise", graphs.Gamma(0.5, unit))
    with m.rows():
        x = m.sample("x", graphs.GaussianChain(20, jnp.eye(1), precision=step, first_precision=1e-12))
        m.sample("y", graphs.Normal(x @ jnp.ones(1), precision=noise))


def learned(graph, y, wide, steps=100):
    with jax.enable_x64(wide):
        posterior = lamu.fit(graph(), {"y": y}, lamu.algorithms.vmp(tolerance=0.0), steps=steps).posterior
        mean = np.asarray(posterior.local({"y": y})["x"].mean)[..., 0]
        predicted = posterior.predict({"y": y})
        low, high = (np.asarray(part) for part in predicted.interval(0.9))
        shares = {name: float(part) for name, part in posterior.mean["network"].items()}
        return mean, np.asarray(predicted.mean), np.asarray(predicted.std), low, high, shares, float(posterior.evidence)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("level", "scale"), [(0.0, 1.0), (300.0, 1.0), (3000.0, 1.0), (1e5, 1.0), (-7.0, 1e-3), (40.0, 1e3)]
)
def test_a_level_and_a_scale_leave_the_posterior_what_it_is(level, scale):
    y = level + scale * WALK
    y[1] -= level / 3
    exact = learned(lambda: lamu.Graph(as_written), y, True)
    found = learned(lambda: models.StateSpace(20), y, False)
    for mine, theirs in zip(found[:3], exact[:3], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=0.02 * scale, rtol=2e-7)
    # A quarter of a deviation: at the fixed point single precision has .947 of the steps' precision in thousands.
    for name, value in exact[5].items():
        assert found[5][name] == pytest.approx(value, rel=0.06)
    assert found[6] == pytest.approx(exact[6], rel=2e-3, abs=0.05)
    holes = np.isnan(y)
    assert np.all((found[3] < found[1])[holes] & (found[1] < found[4])[holes])


@pytest.mark.parametrize(("level", "unit"), [(50.0, 1e-3), (5e4, 1e3)])
def test_the_unit_of_a_series_is_learned(level, unit):
    """Priors of steps and noise near one made intervals of a walk in thousandths 56 to 90 times too wide."""
    plain, other = (learned(lambda: models.StateSpace(20), y, False, 1000) for y in (WALK, level + unit * WALK))
    holes = np.isnan(WALK)
    np.testing.assert_allclose(other[2][holes], unit * plain[2][holes], rtol=0.05)
    np.testing.assert_allclose(other[1][holes], level + unit * plain[1][holes], atol=0.05 * unit)


def test_steps_far_below_the_noise_stay_finite_in_single_precision():
    """After 400 sweeps the steps are a ten-millionth of the noise, and their squares differences of equal numbers."""
    found = learned(lambda: models.StateSpace(20), 40.0 + 1e3 * WALK, False, 400)
    assert all(np.all(np.isfinite(part)) for part in jax.tree.leaves(found))


def test_series_that_do_not_move_are_refused():
    """Steps and noise went to zero until the loss was NaN, for which a learning rate was blamed."""
    still = np.array([[5.0, np.nan, 5.0, 5.0]])
    with pytest.raises(
        ValueError, match=r"y does not move in any row \(5 in row 0\), which tells nothing of its steps"
    ):
        lamu.fit(models.StateSpace(4), {"y": still}, lamu.algorithms.vmp(), steps=1)
    both = np.concatenate([still, [[1.0, 2.0, np.nan, 4.0]]])
    posterior = lamu.fit(models.StateSpace(4), {"y": both}, lamu.algorithms.vmp(), steps=1).posterior
    assert np.isfinite(posterior.predict({"y": still}).std).all()


@pytest.mark.stress
def test_new_series_start_where_the_prior_does():
    posterior = lamu.fit(models.StateSpace(20), {"y": 300.0 + WALK}, lamu.algorithms.vmp(), steps=3).posterior
    drawn = posterior.predict(4).sample(jax.random.key(0), 50)
    assert np.shape(drawn) == (50, 4, 20)
    assert 3e5 < np.std(np.asarray(drawn)[..., 0]) < 3e6  # a start of deviation a million
