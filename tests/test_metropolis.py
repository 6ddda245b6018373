"""Samplers on all the data: known identities between them, what is kept of a run, and what is said of a bad one."""

from __future__ import annotations

import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.base.compile_once import lenient
from lamu.data import Arrays, Batch
from lamu.density import nothing
from lamu.families import Draws
from lamu.mcmc import DelayedAcceptance, Diagnosis, SequentialTest, UnreliableChains, diagnose, inference_data
from lamu.mcmc.chains import LogTarget, TransitionInfo, posterior_from_draws
from lamu.mcmc.diagnostics import complaints, mixing, split_r_hat
from lamu.mcmc.hamiltonian import Hamiltonian
from lamu.mcmc.metropolis import Langevin
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives import Sampled


def log_density(theta):
    """Skewed in a, and b leans on it."""
    return 2.0 * theta["a"] - jnp.exp(theta["a"]) - 0.5 * jnp.sum((theta["b"] - 0.5 * theta["a"]) ** 2)


START = {"a": jnp.array(0.5), "b": jnp.array([0.1, -0.4])}
DENSITY = lamu.LogDensity(log_density, START)
NOTHING = Batch.of(*nothing())
OBJECTIVE = Objective(DENSITY, 1.0)
TARGET = LogTarget(OBJECTIVE, NOTHING, {})
PARAMS = {"network": START, "likelihood": {}}


def walked(kernel, step_size: float, inverse_mass, steps: int = 30):
    """Positions of a chain under keys of its own."""

    @jax.jit
    def run(keys):
        def one(chain, key):
            chain, statistics = kernel.move(key, chain, TARGET, step_size, inverse_mass, False)
            return chain, (chain.position["network"], statistics["acceptance"])

        return jax.lax.scan(one, kernel.begin(PARAMS, TARGET), keys)[1]

    return run(jax.random.split(jax.random.key(3), steps))


def test_hmc_with_one_step_is_mala() -> None:
    """With the same keys, masses that differ, and some refusals: to 1e-12."""
    inverse_mass = jnp.array([0.7, 1.0, 1.6])
    path, acceptance = walked(Hamiltonian(path_length=1e-9), jnp.array(1.3), inverse_mass)
    step, same = walked(Langevin(), jnp.array(1.3), inverse_mass)
    assert 0.3 < float(jnp.mean(acceptance)) < 0.98
    np.testing.assert_allclose(acceptance, same, atol=1e-12)
    for name in START:
        np.testing.assert_allclose(path[name], step[name], atol=1e-12)


@pytest.mark.stress
def test_hmc_is_blackjaxs() -> None:
    """With paths of one step, whose number is no matter of chance: to 1e-12."""
    from blackjax.mcmc import hmc

    inverse_mass, kernel = jnp.array([0.7, 1.0, 1.6]), hmc.build_kernel()
    mine, _ = walked(Hamiltonian(path_length=1e-9), jnp.array(0.9), inverse_mass)
    with lenient():
        state, found = hmc.init(PARAMS, TARGET), []
        move = jax.jit(lambda key, state: kernel(key, state, TARGET, 0.9, inverse_mass, 1)[0])
        for key in jax.random.split(jax.random.key(3), 30):
            state = move(jax.random.key_data(key), state)
            found.append(state.position["network"]["a"])
    np.testing.assert_allclose(mine["a"], jnp.stack(found), atol=1e-12)


@pytest.mark.stress
def test_nuts_draws_what_blackjax_draws() -> None:
    """Its kernel and its windows, with the same keys, through the warm-up and beyond it, for two chains."""
    from blackjax.adaptation.window_adaptation import base, build_schedule
    from blackjax.mcmc import nuts as kernel
    from blackjax.mcmc.hmc import init

    warmup, chains = 30, 2
    sampler = lamu.mcmc.nuts(chains=chains, warmup=warmup, draws=5)
    state = sampler.init(jax.random.key(0), OBJECTIVE, NOTHING)
    with lenient(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        begin, update, final = base(is_mass_matrix_diagonal=True)
        at = [init(PARAMS, TARGET) for _ in range(chains)]
        learned = [begin(PARAMS, 1.0) for _ in range(chains)]
        transition, plan = kernel.build_kernel(), build_schedule(warmup)

    @jax.jit
    def theirs(key, at, adaptation, stage):
        at, info = transition(key, at, TARGET, adaptation.step_size, adaptation.inverse_mass_matrix)
        return at, update(adaptation, stage, at.position, info.acceptance_rate)

    step = jax.jit(sampler.step)
    for t in range(warmup + 5):
        key = jax.random.fold_in(jax.random.key(9), t)
        copies = jax.random.key_data(jax.random.split(jax.random.clone(key), chains))
        state, info = step(key, state, NOTHING, OBJECTIVE)
        stage, window_ends = plan[min(t, warmup - 1)]
        for c in range(chains):
            if t == warmup:
                size, masses = final(learned[c])
                learned[c] = learned[c]._replace(step_size=size, inverse_mass_matrix=masses)
            with lenient():
                at[c], new = theirs(copies[c], at[c], learned[c], (jnp.int32(stage), jnp.bool_(window_ends)))
            learned[c] = new if t < warmup else learned[c]
            for name in START:
                mine = info.draw.position["network"][name][c]
                np.testing.assert_allclose(mine, at[c].position["network"][name], rtol=1e-9, err_msg=f"{t}")


def test_energy_errors_are_kept_beside_the_draws() -> None:
    sampler = lamu.mcmc.hmc(chains=2, warmup=0, draws=64, step_size=0.5)
    statistics = lamu.fit(DENSITY, None, sampler).posterior.belief.statistics
    error, probability = (np.asarray(statistics[name]) for name in ("energy_error", "acceptance"))
    assert error.shape == (2, 64)
    np.testing.assert_allclose(probability, np.minimum(1.0, np.exp(-error)), rtol=1e-9)
    assert np.all(statistics["gradients"] >= 1)
    assert not np.any(statistics["divergent"])


def test_a_density_alone_has_no_tempered_jacobian() -> None:
    bounded = lamu.LogDensity(lambda sigma: -sigma, 1.0, {"*": "positive"})
    u = {"network": jnp.array(0.3), "likelihood": {}}
    target = LogTarget(Objective(bounded, 1.0, temperature=0.5), NOTHING, {})
    assert float(target(u)) == pytest.approx(-2.0 * np.exp(0.3) + 0.3)
    assert float(target.log_prior(u) + target.rows(u, jnp.arange(1))[0]) == pytest.approx(float(target(u)))


X = np.ones((40, 1))
Y = np.random.default_rng(0).normal(size=40) + 0.5
MEAN = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Gaussian(1.0), lamu.priors.Normal(2.0))


@pytest.mark.parametrize("padded", [False, True])
def test_rows_and_prior_are_the_whole(padded: bool) -> None:
    batch = Batch.of(X, Y).padded(43) if padded else Batch.of(X, Y)
    batch = replace(batch, weight=jnp.linspace(0.5, 2.0, batch.x.shape[0]))
    target = LogTarget(Objective(MEAN, 80.0, temperature=0.7, likelihood_power=0.9), batch, {})
    params, _ = MEAN.init(jax.random.key(0), batch)
    rows = target.rows(params, jnp.arange(batch.x.shape[0]))
    np.testing.assert_allclose(jnp.sum(rows) + target.log_prior(params), target(params), rtol=1e-9)


@pytest.mark.stress
def test_a_test_that_is_sure_sooner_sees_fewer_rows() -> None:
    seen = []
    for test in (SequentialTest(0.1), SequentialTest(0.0), DelayedAcceptance()):
        sampler = lamu.mcmc.minibatch_mh(chains=2, warmup=0, draws=64, rows=10, test=test, step_size=0.3)
        statistics = lamu.fit(MEAN, (X, Y), sampler).posterior.belief.statistics
        seen.append(float(np.mean(statistics["rows"])))
        assert set(np.unique(statistics["acceptance"])) <= {0.0, 1.0}
    assert seen[1] == 40.0
    assert seen[0] < 35.0
    assert seen[2] < 39.0


@pytest.mark.stress
def test_the_bias_of_the_sequential_test_is_as_stated() -> None:
    """On the mean of 1,000 numbers; standard errors of the ratios are below 0.03, by ArviZ."""
    generator = np.random.default_rng(0)
    y, x = 2.0 * generator.normal(size=1000) + 0.3, np.ones((1000, 1))
    model = replace(MEAN, likelihood=lamu.likelihoods.Gaussian(2.0), prior=lamu.priors.Normal(10.0))
    precision = 1000 / 4 + 1 / 100
    for test, ratio, share in (
        (SequentialTest(0.3), 1.17, 0.43),
        (SequentialTest(0.05), 1.02, 0.54),
        (SequentialTest(0.01), 1.0, 0.62),
        (DelayedAcceptance(), 1.0, 0.46),
    ):
        sampler = lamu.mcmc.minibatch_mh(chains=4, warmup=512, draws=20_000, rows=50, test=test)
        posterior = lamu.fit(model, (x, y), sampler, seed=1).posterior
        weights = np.asarray(posterior.samples["network"]["layers"][0]["kernel"])
        assert abs(weights.std() * precision**0.5 - ratio) < 0.05
        assert abs(float(np.mean(posterior.belief.statistics["rows"])) / 1000 - share) < 0.1


def chains_of(values, **statistics) -> Draws:
    """A belief of one number a chain and draw."""
    return Draws({"network": jnp.asarray(values), "likelihood": {}}, statistics or None)


LINE = lamu.LogDensity(lambda theta: -0.5 * theta**2, 0.0)
NOISE = np.random.default_rng(1).normal(size=(4, 400))


def test_a_bad_run_is_said_to_be_one() -> None:
    full, none = np.ones((4, 400)), np.zeros((4, 400))
    assert complaints(chains_of(NOISE, acceptance=full), LINE) == []
    assert "refuse nearly every proposal" in complaints(chains_of(none, acceptance=none), LINE)[0]
    creeping = np.cumsum(NOISE, axis=1) * 1e-6
    assert "hardly move" in complaints(chains_of(creeping, acceptance=full), LINE)[0]
    parted = NOISE + 3.0 * np.arange(4)[:, None]
    assert "did not mix" in complaints(chains_of(parted), LINE)[0]
    assert "diverged" in complaints(chains_of(NOISE, divergent=NOISE > 2.7), LINE)[0]
    assert complaints(chains_of(NOISE, divergent=NOISE.max() == NOISE), LINE) == [], "one of 1,600"
    assert "BFMI 0.0" in complaints(chains_of(NOISE, energy=np.cumsum(NOISE, axis=1)), LINE)[0]
    assert complaints(chains_of(NOISE, energy=NOISE), LINE) == []
    assert complaints(chains_of(none[:, :20], acceptance=none[:, :20]), LINE) == [], "too few draws to say"
    unused = lamu.LogDensity(lambda t: -0.5 * t["a"] ** 2, {"a": 0.0, "b": 0.0})
    wandering = Draws({"network": {"a": NOISE, "b": parted}, "likelihood": {}})
    assert "does not depend on 'b' where a chain ends" in complaints(wandering, unused)[0]
    # Of a network with hidden units the weights may differ; its log densities may not.
    network = lamu.Model(lamu.networks.MLP((3,)), lamu.likelihoods.Gaussian(1.0))
    assert complaints(chains_of(parted, log_density=NOISE), network) == []
    assert "did not mix" in complaints(chains_of(NOISE, log_density=parted), network)[0]
    np.testing.assert_allclose(split_r_hat(NOISE), 1.0, atol=0.01)
    assert split_r_hat(none) == 1.0
    assert np.isinf(split_r_hat(none + np.arange(4)[:, None]))


def test_modes_of_a_network_that_are_alike_in_density_are_told_by_its_outputs() -> None:
    model = lamu.Model(lamu.networks.MLP((2,), "tanh"), lamu.likelihoods.Gaussian(1.0))
    rows = Arrays.of((NOISE.T[:20], NOISE[0, :20]))
    params, state = model.init(jax.random.key(0), rows.full())
    samples = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*NOISE.shape, *leaf.shape)), params)
    for apart in (0.0, 3.0):
        samples["network"]["layers"][1]["bias"] = jnp.asarray(NOISE + apart * (np.arange(4)[:, None] > 1))[..., None]
        belief = Draws(samples, {"log_density": NOISE})
        found = mixing(Posterior(model, belief, state, Sampled(), jax.random.key(0)), rows)
        assert (found.r_hat > 1.1) == (apart > 0)
        assert found.ess > 800  # of all draws' log densities


@pytest.mark.stress
def test_fit_warns_of_a_step_that_refuses_everything_and_names_a_bad_gradient() -> None:
    with pytest.warns(UnreliableChains, match=r"chains 0 and 1 refuse nearly every proposal.*smaller step_size"):
        lamu.fit(LINE, None, lamu.mcmc.hmc(chains=2, warmup=0, draws=128, step_size=1e4))
    cornered = lamu.LogDensity(lambda t: -jnp.sqrt(t["a"] ** 2) - t["b"] ** 2, {"a": 0.0, "b": 1.0})
    with pytest.warns(UnreliableChains, match="gradient of the log density is not finite there in 'a'"):
        lamu.fit(cornered, None, lamu.mcmc.hmc(chains=2, warmup=0, draws=128, step_size=0.1))
    held = cornered.freeze({"network": {"a": jnp.zeros(()), "b": jnp.ones(())}}, "b")
    with pytest.warns(UnreliableChains, match="gradient of the log density is not finite there in 'a'"):
        lamu.fit(held, None, lamu.mcmc.hmc(chains=2, warmup=0, draws=128, step_size=0.1))
    with pytest.warns(UnreliableChains, match="hardly move"):
        lamu.fit(LINE, None, lamu.mcmc.random_walk(chains=2, warmup=0, draws=128, step_size=1e-5))


def test_a_start_that_is_not_finite_is_named() -> None:
    edge = lamu.LogDensity(lambda t: jnp.log(t), lambda key: jnp.where(jax.random.key_data(key)[-1] == 0, 1.0, -1.0))
    with pytest.raises(lamu.Diverged, match="not finite where chains"):
        lamu.fit(edge, None, lamu.mcmc.random_walk(chains=2, warmup=0, draws=4, step_size=0.1))


def test_diagnosis_says_in_words_what_the_numbers_say() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        said = {"energy": jnp.asarray(NOISE.T), "divergent": jnp.zeros((400, 4), bool)}
        trace = TransitionInfo({"network": jnp.asarray(NOISE.T), "likelihood": {}}, said)
        posterior = posterior_from_draws(jax.random.key(0), Objective(LINE, 1.0), {}, trace)
        found = diagnose(posterior)
        assert isinstance(found, Diagnosis)
        assert found.trusted
        assert found.space == "weights"
        assert str(found).startswith("Trusted: R-hat at most 1.0")
        assert found.divergences == 0
        assert found.bfmi.shape == (4,)
        assert found.smallest_ess > 1000 > 1.01 > found.largest_r_hat
        apart = replace(posterior, belief=chains_of(NOISE + 0.3 * np.arange(4)[:, None]))
        assert not diagnose(apart).trusted
        assert "the chains do not agree" in diagnose(apart).verdict
        few = replace(posterior, belief=chains_of(NOISE[:, :50]))
        assert "worth fewer than 100 independent draws a chain" in diagnose(few).verdict
        data = inference_data(posterior)
        assert data.posterior["network"].shape == (4, 400)
        assert set(data.sample_stats) == {"energy", "diverging"}
        with pytest.raises(ValueError, match="too few"):
            diagnose(replace(posterior, belief=chains_of(NOISE[:, :3])))
    belief = lamu.families.Gaussian(jnp.zeros(2), lamu.operators.Scalar(1.0))
    with pytest.raises(TypeError, match="Gaussian belief has no chains"):
        diagnose(replace(posterior, belief=belief))


def test_hidden_units_are_compared_as_functions() -> None:
    """Chains that agree, with the hidden units of one in another order: refused as weights, trusted as functions."""
    model = lamu.Model(lamu.networks.MLP((2,), "tanh"), lamu.likelihoods.Gaussian(1.0))
    params, _ = model.init(jax.random.key(0), Batch.of(X, Y))
    noise = np.random.default_rng(2).normal(size=(4, 400))

    def leaf(value):
        grown = jnp.broadcast_to(value, (4, 400, *value.shape))
        return grown + 0.1 * jnp.asarray(noise).reshape(4, 400, *[1] * value.ndim)

    samples = jax.tree.map(leaf, params)
    layers = samples["network"]["layers"]
    flip = lambda a, axis: a.at[0].set(jnp.flip(a[0], axis=axis))
    layers[0]["bias"], layers[0]["kernel"] = flip(layers[0]["bias"], -1), flip(layers[0]["kernel"], -1)
    layers[1]["kernel"] = flip(layers[1]["kernel"], -2)
    posterior = posterior_from_draws(
        jax.random.key(0), Objective(model, 40.0), {}, jax.tree.map(lambda a: a.swapaxes(0, 1), samples)
    )
    with pytest.raises(ValueError, match=r"hidden units.*diagnose\(posterior, x\)"):
        diagnose(posterior)
    found = diagnose(posterior, np.array([[-1.0], [2.0]]))
    assert found.space == "functions"
    assert found.r_hat["f"].shape == (2, 1)
    assert found.trusted
    assert np.max(split_r_hat(np.asarray(layers[0]["kernel"]))) > 1.5


def test_chains_of_a_graph_with_a_plate_are_not_compared_member_by_member() -> None:
    graph, key = lamu.graphs.models.GaussianMixture(2, 1), jax.random.key(0)
    params, _ = graph.init(key, graph.read({"y": np.array([[-1.0], [1.0]])}).full())
    draws = Draws(jax.tree.map(lambda leaf: jnp.ones((2, 5, *jnp.shape(leaf))), params))
    with pytest.raises(ValueError, match="the members of a plate or the columns of factors can be exchanged"):
        diagnose(Posterior(graph, draws, {}, Sampled(), key))


def test_draws_with_their_hidden_units_reordered_and_rescaled_predict_the_same() -> None:
    """Every draw in an order and with factors of its own; a factor below zero is none of a rectified unit's."""
    model = lamu.Model(lamu.networks.MLP((4,), "relu"), lamu.likelihoods.Gaussian(1.0))
    shapes, _ = model.init(jax.random.key(0), Batch.of(X, Y))
    generator = np.random.default_rng(5)
    fresh = jax.tree.map(lambda leaf: generator.normal(size=(2, 5, *leaf.shape)), shapes)
    order = np.argsort(generator.normal(size=(2, 5, 4)), axis=-1)
    factor = np.exp(generator.normal(size=(2, 5, 4)))

    def posterior(factor):
        first, last = (fresh["network"]["layers"][k] for k in (0, 1))
        take = np.take_along_axis
        hidden = {
            "bias": take(first["bias"], order, -1) * factor,
            "kernel": take(first["kernel"], order[..., None, :], -1) * factor[..., None, :],
        }
        above = {"bias": last["bias"], "kernel": take(last["kernel"], order[..., None], -2) / factor[..., None]}
        trace = {"network": {"layers": {0: hidden, 1: above}}, "likelihood": {}}
        return posterior_from_draws(
            jax.random.key(0), Objective(model, 40.0), {}, jax.tree.map(lambda a: a.swapaxes(0, 1), trace)
        )

    plain = posterior_from_draws(
        jax.random.key(0), Objective(model, 40.0), {}, jax.tree.map(lambda a: a.swapaxes(0, 1), fresh)
    )
    x, y = np.array([[-1.0], [0.3], [2.0]]), np.array([0.1, -0.4, 1.0])
    same = posterior(factor)
    np.testing.assert_allclose(same.predict(x).mean, plain.predict(x).mean, rtol=1e-10)
    np.testing.assert_allclose(same.predict(x).log_prob(y), plain.predict(x).log_prob(y), rtol=1e-10)
    assert not np.allclose(posterior(-factor).predict(x).mean, plain.predict(x).mean, rtol=0.01)


def test_mistakes_say_what_to_do() -> None:
    for make, words in (
        (lambda: lamu.mcmc.hmc(chains=0), "chains=0"),
        (lambda: lamu.mcmc.mala(warmup=-1), "warmup=-1"),
        (lambda: lamu.mcmc.random_walk(draws=0), "draws=0"),
        (lambda: lamu.mcmc.random_walk(thinning=0), "thinning=0"),
        (lambda: lamu.mcmc.ula(step_size=0.0), r"step_size=0.0 must be positive, or None"),
        (lambda: lamu.mcmc.nuts(target_acceptance=1.5), "not a rate"),
        (lambda: lamu.mcmc.hmc(path_length=-1.0), "must be positive, for instance 3.14"),
        (lambda: lamu.mcmc.hmc(most=0), "give a whole number of at least 1"),
        (lambda: lamu.mcmc.minibatch_mh(rows=0), "rows=0"),
        (lambda: SequentialTest(0.7), "not a probability"),
    ):
        with pytest.raises(ValueError, match=words):
            make()
    with pytest.raises(TypeError, match="is not a test"):
        lamu.mcmc.minibatch_mh(test=3)
