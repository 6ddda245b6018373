"""Barriers between chains: heights that are known in closed form, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.families import Draws, Ensemble, Point
from lamu.mcmc import BezierCurve, Connectivity, StraightLine, barriers, connectivity
from lamu.posterior import Posterior
from lamu.predictives import Sampled

rng = np.random.default_rng(0)
AWAY, RADIUS, WIDTH = 3.0, 2.0, 0.2
NORMAL = lamu.LogDensity(lambda theta: -0.5 * jnp.sum(theta["w"] ** 2), {"w": jnp.zeros(2)})
MODES = lamu.LogDensity(
    lambda x: jnp.logaddexp(-0.5 * (x - AWAY) ** 2, -0.5 * (x + AWAY) ** 2) - jnp.log(2.0), jnp.asarray(1.0)
)
RING = lamu.LogDensity(
    lambda x: -0.5 * (jnp.sqrt(jnp.sum(x**2)) - RADIUS) ** 2 / WIDTH**2, jnp.asarray(np.array([2.0, 0.0]))
)
SADDLE = AWAY**2 / 2 + np.log((1 + np.exp(-2 * AWAY**2)) / 2)  # above the loss at the points ±AWAY


def drawn(model: Any, network: Any) -> Posterior:
    """A posterior of given draws, leaves `[chains, draws, ...]`."""
    samples = {"network": jax.tree.map(jnp.asarray, network), "likelihood": {}}
    return Posterior(model, Draws(samples), {}, Sampled(), jax.random.key(0))


def parted(chains: int = 2) -> Posterior:
    """Chains by turns at one mode and at the other."""
    return drawn(MODES, np.broadcast_to(AWAY * (-1.0) ** np.arange(chains)[:, None], (chains, 6)))


def the_saddle_has_its_height() -> None:
    found = barriers(parted(3))
    np.testing.assert_allclose(found.between[found.apart], SADDLE, rtol=1e-12)
    assert found.apart.tolist() == [True, False, True]
    np.testing.assert_array_equal(found.within, 0.0)


def a_normal_has_none() -> None:
    """The path is the straight line, and a convex loss rises above no chord."""
    w = rng.normal(size=(3, 8, 2))
    found = barriers(drawn(NORMAL, {"w": w}), points=5, draws=8)
    np.testing.assert_array_equal(found.between, 0.0)
    np.testing.assert_array_equal(found.within, 0.0)
    t = np.linspace(0, 1, 5)[:, None]
    for (a, b), profiles in zip(found.pairs, found.profiles, strict=True):
        for k in range(8):
            np.testing.assert_allclose(profiles[k], 0.5 * np.sum(((1 - t) * w[a, k] + t * w[b, k]) ** 2, axis=1))
    assert found.profiles_within.shape == (3, 28, 5)
    assert found.connected


CLOSED_FORMS = [the_saddle_has_its_height, a_normal_has_none]


@pytest.mark.parametrize("check", CLOSED_FORMS)
def test_heights_are_the_closed_forms(check: Callable[[], None]) -> None:
    check()


def at_a_middle_forgotten(a: Any, b: Any, c: Any, t: Any) -> Any:
    return jax.tree.map(lambda x, y: (1 - t) ** 2 * x + t**2 * y, a, b)


def at_an_end(a: Any, b: Any, c: Any, t: Any) -> Any:
    return a


def at_the_wrong_scale(a: Any, b: Any, c: Any, t: Any) -> Any:
    return jax.tree.map(lambda x, y: (1 - t / 2) * x + t / 2 * y, a, b)


@pytest.mark.parametrize("fault", [at_a_middle_forgotten, at_an_end, at_the_wrong_scale])
def test_the_closed_forms_reject_a_path_that_is_wrong(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connectivity, "_at", fault)
    for check in CLOSED_FORMS:
        if (check, fault) == (the_saddle_has_its_height, at_a_middle_forgotten):
            continue  # of two points about zero the middle is zero
        with pytest.raises(AssertionError):
            check()


def test_a_chain_that_crosses_is_the_floor() -> None:
    """Both chains visit both modes: the way between them is as high as it is within one, and no more."""
    found = barriers(drawn(MODES, AWAY * np.array([[-1.0, 1.0, -1.0, 1.0], [1.0, 1.0, -1.0, -1.0]])))
    np.testing.assert_allclose(found.between.max(), SADDLE)
    assert found.connected
    assert str(found).startswith("Connected: on the lowest of the straight lines between two chains")
    low = lamu.LogDensity(lambda x: jnp.logaddexp(-0.5 * (x - 1.2) ** 2, -0.5 * (x + 1.2) ** 2), jnp.asarray(0.0))
    shallow = barriers(drawn(low, np.array([[1.2, 1.2], [-1.2, -1.2]])))
    assert 0 < shallow.between.min() < 1, "below a nat"
    assert shallow.connected


def test_the_verdict_names_chains_and_height() -> None:
    found = barriers(parted(2))
    assert isinstance(found, Connectivity)
    assert not found.connected
    assert "Apart: 1 of 1 pairs of chains (0 and 1); on the lowest of the straight lines" in str(found)
    assert f"rises by {SADDLE:.3g} nats or more above its ends" in found.verdict
    np.testing.assert_allclose(found.matrix, [[0.0, SADDLE], [SADDLE, 0.0]])


def test_a_curve_goes_round() -> None:
    """On a ring the chord's middle lies r cos(φ/2) from the centre; a curve can follow the ring closely."""
    angle = 2.0
    ends = RADIUS * np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])
    posterior = drawn(RING, np.broadcast_to(ends[:, None], (2, 2, 2)))
    straight, curved = barriers(posterior, path=StraightLine()), barriers(posterior, path=BezierCurve(steps=300))
    height = 0.5 * (RADIUS * (1 - np.cos(angle / 2)) / WIDTH) ** 2
    np.testing.assert_allclose(straight.between, height, rtol=1e-9)
    assert not straight.connected
    assert "path=BezierCurve()" in straight.verdict
    assert curved.between.max() < 0.15 * height
    np.testing.assert_allclose(curved.profiles[..., [0, -1]], 0.0, atol=1e-12)
    again = barriers(posterior, path=BezierCurve(steps=300))
    np.testing.assert_array_equal(curved.profiles, again.profiles)


def test_a_density_with_constraints_has_its_paths_where_the_chains_move() -> None:
    r"""With \(\log\sigma\) standard normal there is no barrier, though along \(\sigma\) itself there is."""
    density = lamu.LogDensity(lambda s: -jnp.log(s) - 0.5 * jnp.log(s) ** 2, 1.0, {"*": "positive"})
    sigma = np.array([[2.0, 3.0, 2.5], [30.0, 40.0, 35.0]])
    posterior = drawn(lamu.LogDensity(lambda s: -jnp.log(s) - 0.5 * jnp.log(s) ** 2, 1.0), sigma)
    along_sigma, along_log = barriers(posterior), barriers(posterior, model=density, points=3)
    assert np.all(along_sigma.between > 0.1)
    np.testing.assert_array_equal(along_log.between, 0.0)
    np.testing.assert_allclose(along_log.profiles[0, -1], 0.5 * np.log([2.5, np.sqrt(2.5 * 35), 35]) ** 2)
    with pytest.raises(TypeError, match="is not a density"):
        barriers(posterior, model=lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0)))


X = rng.normal(size=(30, 1))
Y = np.tanh(2 * X[:, 0]) + 0.1 * rng.normal(size=30)


@pytest.mark.parametrize("rows", [1024, 7])
def test_the_loss_is_a_rows_share_of_the_log_posterior(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """N rows, whatever the batches, and the prior once."""
    monkeypatch.setattr(connectivity, "_ROWS", rows)
    model = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Gaussian(0.5), lamu.priors.Normal(0.7))
    w = rng.normal(size=(2, 2))
    found = barriers(drawn(model, {"layers": {0: {"kernel": w[..., None, None]}}}), (X, Y), draws=2)
    squares = ((Y - X[:, 0] * w[0, 0]) ** 2).sum() / 0.5**2 + w[0, 0] ** 2 / 0.7**2
    constants = 15 * np.log(2 * np.pi * 0.25) + 0.5 * np.log(2 * np.pi * 0.49)
    np.testing.assert_allclose(30 * found.profiles[0, 0, 0], squares / 2 + constants, rtol=1e-9)
    assert found.rows == 30
    np.testing.assert_array_equal(found.between, 0.0)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_hidden_units_in_another_order_are_apart_along_a_line_and_predict_the_same(dtype: Any) -> None:
    model = lamu.Model(lamu.networks.MLP((3,), "tanh"), lamu.likelihoods.Gaussian(0.1))
    x, y = X.astype(dtype), Y.astype(dtype)
    params: Any = lamu.fit(model, (x, y), lamu.algorithms.map_estimate(), steps=200).posterior.mean["network"]
    first, last = params["layers"][0], params["layers"][1]
    turned = {
        0: {"bias": jnp.roll(first["bias"], 1), "kernel": jnp.roll(first["kernel"], 1, axis=1)},
        1: {"bias": last["bias"], "kernel": jnp.roll(last["kernel"], 1, axis=0)},
    }
    jittered = lambda leaf: leaf[None] + 1e-3 * jnp.asarray(rng.normal(size=(4, *leaf.shape)), leaf.dtype)
    both = jax.tree.map(lambda a, b: jnp.stack([jittered(a), jittered(b)]), params, {"layers": turned})
    posterior = drawn(model, both)
    one, other = (drawn(model, jax.tree.map(lambda leaf, k=k: leaf[k : k + 1], both)) for k in (0, 1))
    np.testing.assert_allclose(one.predict(x).mean, other.predict(x).mean, atol=0.02)
    found = barriers(posterior, (x, y))
    assert not found.connected
    assert "units in another order look like this too" in str(found)
    assert 30 * found.within.max() < 1 < 30 * found.between.min()


def test_members_are_chains_of_one_draw() -> None:
    weights = {"network": jnp.asarray([-AWAY, AWAY, AWAY]), "likelihood": {}}
    found = barriers(Posterior(MODES, Ensemble(Point(weights)), {}, Sampled(), jax.random.key(0)))
    assert found.within.shape == (3, 0)
    np.testing.assert_allclose(found.between[:, 0], [SADDLE, SADDLE, 0.0])
    assert found.apart.tolist() == [True, True, False]


def test_a_path_out_of_the_support_is_infinitely_high() -> None:
    holed = lamu.LogDensity(lambda x: jnp.where(jnp.abs(x) < 1, -jnp.inf, -jnp.abs(x)), jnp.asarray(2.0))
    found = barriers(drawn(holed, np.array([[-2.0, -2.5], [2.0, 2.5]])))
    assert np.all(np.isinf(found.between))
    assert not found.connected


def test_mistakes_say_what_to_do() -> None:
    posterior = parted(2)
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))
    stated = Posterior(MODES, Ensemble(Point({"network": jnp.zeros(2)})), {"mean": jnp.zeros(2)}, Sampled(), None)
    for words, call in (
        ("points=2 is not possible; give a whole number of at least 3", lambda: barriers(posterior, points=2)),
        ("draws=1 is not possible", lambda: barriers(posterior, draws=1)),
        ("there is only one chain", lambda: barriers(parted(1))),
        ("one draw a chain", lambda: barriers(drawn(MODES, np.zeros((2, 1))))),
        ("give them: barriers", lambda: barriers(replace(posterior, model=model))),
        ("batch statistics belong", lambda: barriers(stated)),
        ("steps=0 is not possible", lambda: BezierCurve(steps=0)),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match="'curve' is not a path"):
        barriers(posterior, path="curve")
    point = replace(posterior, belief=Point({"network": jnp.zeros(()), "likelihood": {}}))
    with pytest.raises(TypeError, match="Point belief has no chains"):
        barriers(point)
