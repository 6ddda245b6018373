"""Rows taken in parts, by samplers and by training steps: the same sums, less held, nothing computed twice."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu import memory
from lamu.data import Batch
from lamu.families import Gaussian
from lamu.mcmc.chains import LogTarget
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective import objective as loss_module
from lamu.objective.curvature import SquaredGradients
from lamu.objective.objective import num_chunks
from lamu.operators import Diagonal

ROWS = 23  # no multiple of the parts below


def problem(dtype=np.float64):
    """A perceptron with weights and an offset; one row is masked, and far out."""
    generator = np.random.default_rng(0)
    model = lamu.Model(lamu.networks.MLP((6,)), lamu.likelihoods.Gaussian(), lamu.priors.Normal(0.7))
    x = generator.normal(size=(ROWS, 3)).astype(dtype)
    y = generator.normal(size=ROWS).astype(dtype)
    batch = Batch.of(x, y, offset=generator.normal(size=ROWS).astype(dtype))
    weight = jnp.asarray(generator.uniform(0.5, 2.0, ROWS), dtype)
    batch = replace(batch, weight=weight, mask=batch.mask.at[4].set(0.0), y=batch.y.at[4].set(1e6))
    params, state = model.init(jax.random.key(0), batch)
    return model, batch, params, state


def targets(count: int, dtype=np.float64, **scale):
    model, batch, params, state = problem(dtype=dtype)
    objective = Objective(model, 40.0, **scale)
    return params, LogTarget(objective, batch, state), LogTarget(objective, batch, state, parts=count)


@pytest.mark.parametrize("count", [2, 5, ROWS])
def test_value_and_gradient_are_those_of_the_whole(count: int) -> None:
    """With weights, an offset, a masked row, a power, a temperature, and N that is not the number of rows."""
    with jax.enable_x64(True):
        params, whole, cut = targets(count, temperature=0.6, likelihood_power=0.8)
        (value, gradient), (same, slope) = (jax.jit(jax.value_and_grad(target))(params) for target in (whole, cut))
        np.testing.assert_allclose(same, value, rtol=1e-12)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), slope, gradient)
        assert float(jnp.abs(gradient["network"]["layers"][0]["kernel"]).max()) > 1.0  # there is something to compare


def test_curvature_and_many_chains_go_through() -> None:
    """A Hessian-vector product, forward over reverse, of three chains side by side."""
    with jax.enable_x64(True):
        params, whole, cut = targets(4)
        many = jax.tree.map(lambda leaf: jnp.stack([leaf, 1.3 * leaf, leaf - 0.1]), params)

        def product(target, params):
            return jax.jvp(jax.grad(target), (params,), (jax.tree.map(jnp.ones_like, params),))[1]

        found, same = (jax.jit(jax.vmap(lambda p, t=target: product(t, p)))(many) for target in (whole, cut))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), same, found)


@pytest.mark.stress
def test_single_precision_stays() -> None:
    params, whole, cut = targets(5, np.float32)
    gradient = jax.grad(cut)(params)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype(jnp.float32)}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), gradient, jax.grad(whole)(params))


def test_nothing_is_computed_twice() -> None:
    """As many products in the gradient as in that of the whole: parts that are recomputed later would have more."""
    params, _, cut = targets(5)
    text = str(jax.make_jaxpr(jax.value_and_grad(cut))(params))
    whole = str(jax.make_jaxpr(jax.value_and_grad(targets(1)[1]))(params))
    assert text.count("dot_general") == whole.count("dot_general") > 0


@pytest.mark.stress
def test_less_is_held() -> None:
    generator = np.random.default_rng(1)
    x = generator.normal(size=(4096, 8, 8, 1)).astype(np.float32)
    batch = Batch.of(x, generator.integers(0, 3, 4096))
    model = lamu.Model(lamu.networks.ConvNet((4,), (8,)), lamu.likelihoods.Categorical(3))
    params, state = model.init(jax.random.key(0), batch)
    count = num_chunks(model, batch, state, params, runs=4)
    assert 3 < count < 4096
    held = {
        parts: memory.held_by(jax.jit(jax.grad(LogTarget(Objective(model, 4096.0), batch, state, parts))), params)
        for parts in (1, count)
    }
    assert held[count] < 2 * held[1] / count + batch.x.nbytes  # the rows themselves are laid out once


def test_small_work_and_linear_networks_are_one_part() -> None:
    model, batch, params, state = problem(dtype=np.float32)
    assert num_chunks(model, batch, state, params, runs=4) == 1
    linear = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))
    many = Batch.of(np.zeros((300_000, 3), np.float32), np.zeros(300_000, np.float32))
    assert num_chunks(linear, many, {}, linear.init(jax.random.key(0), many)[0], runs=64) == 1


@pytest.mark.stress
def test_a_sampler_takes_parts_and_samples_the_same(monkeypatch) -> None:
    """Frozen leaves included; the same keys give the same draws but for rounding."""
    x, y = lamu.data.load("diabetes")
    x, y = np.asarray(x[:101], np.float64), np.asarray(y[:101], np.float64)
    model = lamu.Model(lamu.networks.MLP((4,)), lamu.likelihoods.Gaussian(), lamu.priors.Normal(1.0)).standardised(x, y)

    def drawn():
        sampler = lamu.mcmc.hmc(chains=2, warmup=0, draws=6, path_length=0.3, step_size=0.02)
        return lamu.fit(frozen, (x, y), sampler, seed=4).posterior.samples

    with jax.enable_x64(True):
        first, _ = model.init(jax.random.key(1), Batch.of(x, y))
        frozen = model.freeze(first, "layers/0/bias")
        whole = drawn()
        monkeypatch.setattr(loss_module, "_CACHE_BYTES", {})
        monkeypatch.setattr(loss_module, "_CACHE_BYTES_ELSEWHERE", 4000)
        params, state = frozen.init(jax.random.key(1), Batch.of(x, y))
        jax.clear_caches()
        assert LogTarget.of(Objective(frozen, 101.0), Batch.of(x, y), state, params, 2).parts > 3
        cut = drawn()
    assert float(np.ptp(np.asarray(whole["network"]["layers"][0]["kernel"])[:, :, 0, 0])) > 0
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10), cut, whole)


class Counted:
    """A network of the user's own, which is not linear, and draws noise where it trains."""

    linear = False
    head = "w"

    def __init__(self, noisy: bool) -> None:
        self.noisy = noisy

    def init(self, key, x, outputs):
        return {"w": 0.1 * jax.random.normal(key, (x.shape[1], outputs), x.dtype)}, {}

    def apply(self, params, state, x, key, train):
        f = jnp.tanh(x @ params["w"])
        if self.noisy and train:
            f = f + jax.random.normal(key, (1, f.shape[1]), f.dtype)  # the same for all rows
        return f, state


@pytest.fixture
def small(monkeypatch):
    """A cache of a few bytes, so that every network is in parts that can be."""
    monkeypatch.setattr(loss_module, "_CACHE_BYTES", {})
    monkeypatch.setattr(loss_module, "_CACHE_BYTES_ELSEWHERE", 20)


def loss_of(network, rows: int = 23):
    generator = np.random.default_rng(3)
    x, y = generator.normal(size=(rows, 3)), generator.normal(size=rows)
    model = lamu.Model(network, lamu.likelihoods.Gaussian(), lamu.priors.Normal(0.7))
    batch = Batch.of(x, y, offset=generator.normal(size=rows))
    batch = replace(batch, weight=jnp.asarray(generator.uniform(0.5, 2.0, rows)), mask=batch.mask.at[7].set(0.0))
    params, state = model.init(jax.random.key(0), batch)
    return BatchLoss(Objective(model, 50.0), batch, state, NetworkParameters(), params["likelihood"], True), params[
        "network"
    ]


@pytest.mark.stress
def test_a_training_step_is_the_same_in_parts(monkeypatch) -> None:
    """Value, gradient, the dispersion's, and the squares of single rows' gradients, at any number of parts."""
    with jax.enable_x64(True):
        loss, theta = loss_of(lamu.networks.MLP((5,)))
        belief = Gaussian(theta, Diagonal(jax.tree.map(jnp.ones_like, theta)))
        measure = lambda: (
            loss.gradient(theta, jax.random.key(2)),
            SquaredGradients().evaluate(loss, theta, belief, Diagonal, jax.random.key(2)),
        )
        whole = measure()
        monkeypatch.setattr(loss_module, "_CACHE_BYTES", {})
        for held in (1, 300):
            monkeypatch.setattr(loss_module, "_CACHE_BYTES_ELSEWHERE", held)
            assert loss.parts(theta, jax.random.key(2)) > 1
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), measure(), whole)


def test_rows_that_meet_or_share_noise_stay_together(small) -> None:
    """Batch statistics, and noise that one draw makes for all rows; with nothing to draw the same network is cut."""
    key = jax.random.key(5)
    for network, cut in (
        (Counted(noisy=False), True),
        (Counted(noisy=True), False),
        (lamu.networks.MLP((5,)), True),
        (lamu.networks.MLP((5,), dropout=lamu.networks.Dropout(0.1)), False),
        (lamu.networks.MLP((5,), normalise=lamu.networks.BatchNorm()), False),
    ):
        loss, theta = loss_of(network)
        assert (loss.parts(theta, key) > 1) is cut, network
        assert np.isfinite(float(loss.gradient(theta, key).value))


def test_what_a_loop_makes_slow_is_not_put_into_one(small) -> None:
    """The compiler's own convolution, whose gradient a CPU's loop makes many times slower."""

    class Convolved(Counted):
        def apply(self, params, state, x, key, train):
            x = jax.lax.conv_general_dilated(x[:, None, :], jnp.ones((1, 1, 1), x.dtype), (1,), "SAME")
            return super().apply(params, state, x[:, 0, :], key, train)

    loss, theta = loss_of(Convolved(noisy=False))
    assert loss.parts(theta, None) == 1


def test_a_slope_in_the_rows_is_refused_not_forgotten(small) -> None:
    loss, theta = loss_of(lamu.networks.MLP((5,)))
    with pytest.raises(TypeError, match="no derivative in its rows"):
        jax.grad(lambda x: replace(loss, batch=replace(loss.batch, x=x)).value(theta, loss.rest, None)[0])(loss.batch.x)


def short():
    return lamu.mcmc.sghmc(1e-3, chains=2, warmup=0, draws=4)


@pytest.mark.stress
@pytest.mark.parametrize("algorithm", [lamu.algorithms.vogn, lamu.algorithms.ivon, lamu.algorithms.adam, short])
def test_recipes_step_the_same_in_parts(algorithm, monkeypatch) -> None:
    x, y = lamu.data.load("diabetes")
    x, y = np.asarray(x[:64], np.float64), np.asarray(y[:64], np.float64)
    model = lamu.Model(lamu.networks.MLP((6,)), lamu.likelihoods.Gaussian(), lamu.priors.Normal(1.0)).standardised(x, y)

    def last():
        jax.clear_caches()
        made = algorithm()
        length = {} if made.traits.length is not None else {"epochs": 3}
        return lamu.fit(model, (x, y), made, batch_size=24, seed=1, **length).state

    with jax.enable_x64(True):
        whole = last()
        monkeypatch.setattr(loss_module, "_CACHE_BYTES", {})
        monkeypatch.setattr(loss_module, "_CACHE_BYTES_ELSEWHERE", 300)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10), last(), whole)
