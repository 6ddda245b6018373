"""Modules of Flax and Equinox as networks: their names, their statistics, their noise, and curvature read from them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import lamu
from lamu.algorithms import adam, deep_ensemble, dropout, ivon, kfac, laplace, last_layer, mc_dropout, noisy_kfac, vogn
from lamu.mcmc import hmc
from lamu.networks import NNX, ConvNet, Equinox, Evaluated, GroupNorm, Linen, Tokens, draws_noise
from lamu.objective.curvature.reader import squares_and_gradient
from tests.modules_of_others import (
    MIXED,
    NOISY,
    PLAIN,
    EquinoxConv,
    EquinoxMixed,
    LinenAttention,
    LinenConv,
    LinenMixed,
    LinenNoisy,
    LinenRecurrent,
    NNXConv,
    NNXMixed,
    NNXNoisy,
)

RNG = np.random.default_rng(0)
X = RNG.normal(1.0, 2.0, size=(10, 6)).astype(np.float32)
IMAGES = RNG.normal(size=(5, 6, 6, 2)).astype(np.float32)
Y = np.arange(10) % 3
CLASSES = lamu.likelihoods.Categorical(3)


@pytest.fixture(autouse=True)
def as_their_authors_run_them() -> Iterator[None]:
    """These libraries mix ranks, and Equinox splits keys that it has used for shapes alone."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


READ = {
    **{f"{name}, dense": (network, X[:5]) for name, network in PLAIN.items()},
    "Linen, convolutions": (Linen(LinenConv()), IMAGES),
    "Linen, attention": (Linen(LinenAttention()), X[:5]),
    "Linen, recurrent": (Linen(LinenRecurrent()), X[:5]),
    "NNX, convolutions": (NNX(NNXConv), IMAGES),
    "Equinox, convolutions": (Equinox(EquinoxConv), IMAGES),
    "ours, groups": (ConvNet((4,), widths=(3,), normalise=GroupNorm(2)), IMAGES),
}


def made(network: Any, x: Any = X, seed: int = 0) -> tuple[Any, Any]:
    return network.init(jax.random.key(seed), jnp.asarray(x), 3)


def model(network: Any) -> Any:
    return lamu.Model(network, CLASSES).standardised(X, Y)


def same(one: Any, other: Any) -> bool:
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, one, other)))


@pytest.mark.parametrize("name", PLAIN)
def test_the_function_is_the_modules_own(name: str) -> None:
    network = PLAIN[name]
    params, state = made(network)
    assert state == {}
    if name == "Linen":
        first, second = params["layers_0"], params["layers_2"]
    else:
        first, second = params["layers"][0], params["layers"][1 if name == "Equinox" else 2]
    weights = [layer["weight"].T if name == "Equinox" else layer["kernel"] for layer in (first, second)]
    first_bias, second_bias = first["bias"] + 0.5, second["bias"] - 0.25  # they begin at zero in Flax
    first["bias"], second["bias"] = first_bias, second_bias
    expected = np.tanh(X @ weights[0] + first_bias) @ weights[1] + second_bias
    found, state = jax.jit(network.apply, static_argnums=(3, 4))(params, state, jnp.asarray(X), None, False)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert state == {}


@pytest.mark.parametrize("name", PLAIN)
def test_every_run_has_weights_of_its_own(name: str) -> None:
    one, again, other = (made(PLAIN[name], seed=seed)[0] for seed in (1, 1, 2))
    assert same(one, again)
    assert not same(one, other)
    ensemble = lamu.fit(model(PLAIN[name]), (X, Y), deep_ensemble(adam(0.01), members=2), epochs=2).posterior
    assert not same(*(member.mean["network"] for member in ensemble.belief.members))


@pytest.mark.sampled
@pytest.mark.parametrize("name", READ)
def test_every_leaf_is_read_exactly(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Sums of squared gradients of single rows beside the rows' own; none by its own pass."""
    network, x = READ[name]
    params, state = made(network, x)
    params = jax.tree.map(lambda leaf: leaf + 0.1 * RNG.normal(size=leaf.shape).astype(leaf.dtype), params)
    x = x.astype(jnp.result_type(*jax.tree.leaves(params)))  # Equinox makes doubles where JAX may
    y, weights = jnp.arange(5) % 3, jnp.array([1.0, 0.5, 2.0, 0.25, 1.0], x.dtype)

    def loss(params: Any, row: Any) -> Any:
        f, _ = network.apply(params, state, row[0][None], None, True)
        return -jax.nn.log_softmax(f[0])[row[1]]

    with caplog.at_level(logging.INFO, "lamu"):
        found = jax.jit(squares_and_gradient, static_argnums=0)(loss, params, (jnp.asarray(x), y), weights)
    assert caplog.text == ""
    rows = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(params, (jnp.asarray(x), y))
    squares = jax.tree.map(lambda leaf: np.tensordot(weights, np.asarray(leaf) ** 2, 1), rows)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-5), found[2], squares)


@pytest.mark.parametrize("name", PLAIN)
def test_the_same_steps_as_of_the_built_in_network(name: str) -> None:
    """Whoever wrote the network: the same weights take the same path."""
    params, _ = made(PLAIN[name])
    layers = [params["layers_0"], params["layers_2"]] if name == "Linen" else list(params["layers"].values())
    turn = (lambda kernel: kernel.T) if name == "Equinox" else (lambda kernel: kernel)
    ours = {
        i: {"kernel": turn(layer["weight" if name == "Equinox" else "kernel"]), "bias": layer["bias"]}
        for i, layer in enumerate(layers)
    }
    theirs = lamu.fit(
        model(PLAIN[name]).starting_at({"network": params, "likelihood": {}}), (X, Y), adam(0.05), epochs=9
    )
    built_in = model(lamu.networks.MLP((8,), "tanh")).starting_at({"network": {"layers": ours}, "likelihood": {}})
    expected = lamu.fit(built_in, (X, Y), adam(0.05), epochs=9)
    np.testing.assert_allclose(theirs.history["loss"], expected.history["loss"], rtol=1e-4)
    np.testing.assert_allclose(theirs.posterior.predict(X).mean, expected.posterior.predict(X).mean, atol=1e-4)


@pytest.mark.sampled
@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("algorithm", [adam(0.01), ivon(0.1, samples=2)], ids=["adam", "ivon"])
def test_statistics_are_learned_and_predict(name: str, algorithm: Any) -> None:
    """They move in training, are those of the batch at a known rate, and a row predicts by itself."""
    posterior = lamu.fit(model(MIXED[name]), (X, Y), algorithm, epochs=4, batch_size=4).posterior
    first = made(MIXED[name])[1]
    assert jax.tree.structure(posterior.network_state) == jax.tree.structure(first)
    moved = [
        not np.allclose(a, b) for a, b in zip(*map(jax.tree.leaves, (posterior.network_state, first)), strict=True)
    ]
    assert all(moved)
    together, alone = (posterior.predict(x, samples=3).mean for x in (X, X[2:3]))
    np.testing.assert_allclose(together[2], alone[0], rtol=1e-5)


@pytest.mark.parametrize("name", MIXED)
def test_a_training_pass_renews_the_statistics_and_no_other_does(name: str) -> None:
    params, state = made(MIXED[name])
    layer = params["Dense_0"] if name == "Linen" else params["layers"][0]
    hidden = X[:, ::-1] @ layer["weight"].T + layer["bias"] if name == "Equinox" else X @ layer["kernel"]
    key = jax.random.key(1)
    _, new = MIXED[name].apply(params, state, jnp.asarray(X), key, True)
    means = {leaf.tobytes(): leaf for leaf in map(np.asarray, jax.tree.leaves(new)) if leaf.shape == (8,)}
    # Equinox divides by one less the momentum's power, from the first step on.
    wanted = hidden.mean(axis=0) * (1.0 if name == "Equinox" else 0.5)
    assert any(np.allclose(leaf, wanted, rtol=1e-3, atol=1e-5) or np.allclose(leaf, wanted / 2, rtol=1e-3, atol=1e-5)
               for leaf in means.values())  # fmt: skip
    for kept in (MIXED[name].apply(params, state, jnp.asarray(X), one, False)[1] for one in (None, jax.random.key(2))):
        assert same(kept, state)


@pytest.mark.parametrize("name", NOISY)
def test_units_drop_where_there_is_a_key_and_nowhere_else(name: str) -> None:
    network = NOISY[name]
    params, state = made(network)
    f = lambda key, train: np.asarray(network.apply(params, state, jnp.asarray(X), key, train)[0])
    np.testing.assert_array_equal(f(None, True), f(None, False))
    one, again, other = (f(jax.random.key(seed), train) for seed, train in ((1, True), (1, False), (2, True)))
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)
    repeated = np.asarray(
        network.apply(params, state, jnp.asarray(X[:1].repeat(4, axis=0)), jax.random.key(3), True)[0]
    )
    assert len(np.unique(repeated, axis=0)) > 1  # rows have noise of their own
    assert draws_noise(network, params, state, X)
    plain = PLAIN[name]
    assert not draws_noise(plain, *made(plain), X)


@pytest.mark.parametrize("name", NOISY)
def test_dropout_is_kept_in_prediction(name: str) -> None:
    posterior = lamu.fit(model(NOISY[name]), (X, Y), mc_dropout(adam(0.01)), epochs=2).posterior
    assert np.all(posterior.predict(X, samples=16).epistemic > 1e-4)
    with pytest.raises(ValueError, match="drops no units"):
        lamu.fit(model(PLAIN[name]), (X, Y), mc_dropout(adam(0.01)), epochs=1)


@pytest.mark.parametrize("name", MIXED)
def test_dropout_beside_statistics_is_kept_where_a_module_tells_the_two_apart(name: str) -> None:
    """One argument for both, the `train` of a Linen module, cannot; it is said before anything is trained."""
    if name == "Linen":
        with pytest.raises(ValueError, match=r"drops units in training alone.*deterministic and use_running_average"):
            lamu.fit(model(MIXED[name]), (X, Y), mc_dropout(adam(0.01)), epochs=1)
        assert lamu.fit(model(MIXED[name]), (X, Y), dropout(adam(0.01)), epochs=1).history["loss"].size
        return
    posterior = lamu.fit(model(MIXED[name]), (X, Y), mc_dropout(adam(0.01)), epochs=2).posterior
    assert np.all(posterior.predict(X, samples=16).epistemic > 1e-4)


@pytest.mark.parametrize("name", PLAIN)
def test_a_sampler_takes_them(name: str) -> None:
    sampler = hmc(chains=2, warmup=0, draws=4, path_length=0.1, step_size=0.02)
    posterior = lamu.fit(model(PLAIN[name]), (X, Y), sampler, progress=False).posterior
    assert all(leaf.shape[:2] == (2, 4) for leaf in jax.tree.leaves(posterior.samples["network"]))
    assert posterior.predict(X).mean.shape == (10, 3)


@pytest.mark.sampled
@pytest.mark.parametrize("name", MIXED)
def test_held_statistics_give_each_row_a_gradient_of_its_own(name: str) -> None:
    with pytest.raises(TypeError, match=r"lamu\.networks\.Evaluated"):
        lamu.fit(model(MIXED[name]), (X, Y), vogn(), steps=1)
    first = lamu.fit(model(MIXED[name]), (X, Y), adam(0.01), epochs=3).posterior
    held = model(Evaluated(MIXED[name], first.network_state)).starting_at(first.mean)
    posterior = lamu.fit(held, (X, Y), vogn(), epochs=3).posterior
    assert posterior.network_state == {}
    assert np.all(posterior.predict(X).epistemic > 0)


def trained_modules() -> dict[str, tuple[Any, Any]]:
    """A network of a trained module, and what the module itself gives in evaluation."""
    x = jnp.asarray(X)
    variables = LinenMixed().init(jax.random.key(3), x)
    module = NNXMixed(nnx.Rngs(3))
    module(x)  # in training mode, so that its statistics are not those of the start
    evaluated = nnx.clone(module)
    evaluated.eval()
    made, state = eqx.nn.make_with_state(EquinoxMixed)(jax.random.key(3))
    still = eqx.nn.inference_mode(made)
    return {
        "Linen": (Linen(LinenMixed(), "head/*", variables=variables), LinenMixed().apply(variables, x)),
        "NNX": (NNX.of(module, "layers/1/*"), evaluated(x)),
        "Equinox": (Equinox.of(made, state, "layers/1/*"), jax.vmap(lambda row: still(row, state)[0])(x)),
    }


@pytest.mark.parametrize("name", MIXED)
def test_a_trained_module_keeps_its_weights_and_is_given_again(name: str, tmp_path) -> None:
    network, expected = trained_modules()[name]
    model = lamu.Model(network, CLASSES)
    for algorithm in (last_layer(), laplace()):
        fit = lamu.fit(model, (X, Y), algorithm, epochs=0, statistics=lamu.batch_statistics.Frozen())
        mean = fit.posterior.model.complete(fit.posterior.mean["network"])
        state = fit.posterior.network_state
        np.testing.assert_allclose(network.apply(mean, state, jnp.asarray(X), None, False)[0], expected, rtol=1e-5)
    folder = fit.posterior.save(tmp_path / "posterior")
    with pytest.raises(ValueError, match=r"was not saved, and is needed; .* lamu\.load\(path, network=\.\.\.\)"):
        lamu.load(folder)
    again = lamu.load(folder, network=network)
    np.testing.assert_array_equal(again.predict(X).mean, fit.posterior.predict(X).mean)


def test_a_module_is_left_as_it_was() -> None:
    module = NNXMixed(nnx.Rngs(3))
    before = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(module, nnx.Param, nnx.BatchStat)[1]))
    network = NNX.of(module, "layers/1/*")
    lamu.fit(lamu.Model(network, CLASSES), (X, Y), adam(0.1), epochs=2)
    assert same(before, nnx.to_pure_dict(nnx.state(module, nnx.Param, nnx.BatchStat)[1]))


@pytest.mark.parametrize("name", PLAIN)
def test_one_compilation(name: str) -> None:
    network, traces = PLAIN[name], []
    params, state = made(network)

    @jax.jit
    def f(params: Any, x: Any) -> Any:
        traces.append(None)
        return network.apply(params, state, x, None, True)[0]

    for scale in (1.0, 2.0):
        f(jax.tree.map(lambda leaf, scale=scale: leaf * scale, params), X)
    assert len(traces) == 1


def test_a_module_is_first_asked_for_inside_of_a_trace() -> None:
    """What is remembered of it holds nothing of that trace."""
    networks = [NNX(lambda rngs: nnx.Linear(6, 3, rngs=rngs)), Equinox(lambda key: eqx.nn.Linear(6, 3, key=key))]
    lamu.networks.flax._template.cache_clear()
    lamu.networks.equinox._template.cache_clear()
    for network in networks:
        params, state = made(network)
        forward = lambda params, network=network, state=state: network.apply(params, state, jnp.asarray(X), None, True)[
            0
        ]
        inside = jax.jit(forward)(params)
        np.testing.assert_allclose(inside, forward(params), rtol=1e-6)


def test_mistakes_say_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"the class LinenNoisy is not a Linen module; give an instance"):
        Linen(LinenNoisy)
    with pytest.raises(TypeError, match=r"is a LinenNoisy with .* a module by lamu\.networks\.Linen\(module\)"):
        lamu.Model(
            LinenNoisy(), lamu.likelihoods.Gaussian()
        )  # it was an error of JAX about a str in a compiled function
    with pytest.raises(TypeError, match=r"collections batch_stats, and 'params' is not among them"):
        Linen(LinenMixed(), variables={"batch_stats": {}})
    with pytest.raises(TypeError, match=r"NNXNoisy is made already.*NNX\(lambda rngs: NNXNoisy\(.*NNX\.of\(module\)"):
        NNX(NNXNoisy(nnx.Rngs(0)))
    with pytest.raises(TypeError, match=r"make gave a int, no NNX module"):
        NNX(lambda rngs: 3)
    with pytest.raises(TypeError, match=r"make=3 cannot be called"):
        NNX(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"is not an NNX module; give the trained module"):
        NNX.of(LinenNoisy())
    linear = eqx.nn.Linear(3, 1, key=jax.random.key(0))
    with pytest.raises(TypeError, match=r"Linear is made already.*Equinox\.of\(module\)"):
        Equinox(linear)
    with pytest.raises(TypeError, match=r"make=3 cannot be called"):
        Equinox(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"3 is not an Equinox module"):
        Equinox.of(3)
    with pytest.raises(ValueError, match="'nowhere'"):
        Equinox(lambda key: eqx.nn.Linear(3, 1, key=key), head="nowhere")
    with pytest.raises(ValueError, match="'nowhere'"):
        NNX(NNXNoisy, head="nowhere")
    with pytest.raises(ValueError, match="'nowhere'"):
        made(Linen(LinenNoisy(), head="nowhere"))
    with pytest.raises(ValueError, match=r"returns outputs of shape \(3,\) a row, but .* reads 4 a row"):
        lamu.fit(lamu.Model(PLAIN["NNX"], lamu.likelihoods.Categorical(4)), (X, Y), adam(), epochs=1)


def test_batch_normalisations_along_two_axes_are_refused() -> None:
    class Two(eqx.Module):
        norms: list

        def __init__(self, key):
            self.norms = [eqx.nn.BatchNorm(3, axis_name=name, mode="ema") for name in ("batch", "rows")]

        def __call__(self, x, state):
            for norm in self.norms:
                x, state = norm(x, state)
            return x, state

    with pytest.raises(ValueError, match="rows lie along one"):
        Equinox(eqx.nn.make_with_state(Two))


def test_a_linear_module_has_its_exact_posterior() -> None:
    y = X @ np.arange(1.0, 7.0, dtype=np.float32)
    gaussian = lamu.likelihoods.Gaussian(scale=0.5)
    makes = {
        "Linen": Linen(nn.Dense(1), linear=True),
        "NNX": NNX(lambda rngs: nnx.Linear(6, 1, rngs=rngs), linear=True),
        "Equinox": Equinox(lambda key: eqx.nn.Linear(6, 1, key=key), linear=True),
    }
    exact = lamu.fit(lamu.Model(lamu.networks.Linear(), gaussian), (X, y), lamu.algorithms.conjugate()).posterior
    for network in makes.values():
        found = lamu.fit(lamu.Model(network, gaussian), (X, y), lamu.algorithms.conjugate()).posterior
        np.testing.assert_allclose(found.predict(X).mean, exact.predict(X).mean, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(found.predict(X).std, exact.predict(X).std, rtol=1e-3)


class Words(nn.Module):
    """A table that is looked up in and multiplied with."""

    @nn.compact
    def __call__(self, words):
        assert words.dtype == jnp.int32
        table = nn.Embed(12, 4)
        return nn.Dense(3)(nn.tanh(table.attend(table(words).mean(axis=1))))


@pytest.mark.stress
class _OfModes(nnx.Module):
    """A module of NNX whose call is given its mode, and trains where it is given none."""

    def __init__(self, rngs: nnx.Rngs, name: str) -> None:
        self.dense, self.norm = nnx.Linear(6, 4, rngs=rngs), nnx.BatchNorm(4, rngs=rngs)
        self.drop, self.head = nnx.Dropout(0.5, rngs=rngs), nnx.Linear(4, 3, rngs=rngs)
        self.name = name

    def _outputs(self, x: Any, train: bool) -> Any:
        h = self.dense(x) if self.name == "deterministic" else self.norm(self.dense(x), use_running_average=not train)
        return self.head(self.drop(h, deterministic=not train))


class _Trains(_OfModes):
    def __call__(self, x: Any, train: bool = True) -> Any:
        return self._outputs(x, train)


class _Determined(_OfModes):
    def __call__(self, x: Any, deterministic: bool = False) -> Any:
        return self._outputs(x, not deterministic)


@pytest.mark.parametrize(("kind", "name", "value"), [(_Trains, "train", False), (_Determined, "deterministic", True)])
def test_the_call_of_an_nnx_module_is_given_its_mode(kind: Any, name: str, value: bool) -> None:
    # Predictions dropped units and normalised by the rows' own statistics, in silence.
    module = kind(nnx.Rngs(0), name)
    expected = module(X, **{name: value})
    network = NNX.of(module)
    params, state = made(network)
    found, after = network.apply(params, state, jnp.asarray(X), None, False)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    noisy, after = network.apply(params, state, jnp.asarray(X), jax.random.key(1), True)
    assert not np.allclose(noisy, expected)
    assert name == "deterministic" or not same(state["norm"], after["norm"])


class _Inferring(nn.Module):
    @nn.compact
    def __call__(self, x: Any, inference: bool = False) -> Any:
        f = nn.Dense(3)(x)
        return f if inference else 2 * f


def test_linen_modules_that_are_told_to_infer_do() -> None:
    variables = _Inferring().init(jax.random.key(0), X)
    network = Linen(_Inferring(), variables=variables)
    found, _ = network.apply(*made(network), jnp.asarray(X), None, False)
    np.testing.assert_allclose(found, _Inferring().apply(variables, X, inference=True), atol=1e-6)


@pytest.mark.parametrize("narrow", ["weights", "passes"])
def test_beliefs_about_weights_of_sixteen_bits_have_thirty_two(narrow: str) -> None:
    # Curvature of 16-bit outputs gave .56 of the epistemic uncertainty, and laplace() ended in errors of dtypes.
    kind = jnp.float32 if narrow == "weights" else jnp.bfloat16
    net = nn.Sequential([nn.Dense(8, dtype=kind), nn.tanh, nn.Dense(3, dtype=kind)])
    variables = net.init(jax.random.key(0), X)
    whole = Linen(nn.Sequential([nn.Dense(8), nn.tanh, nn.Dense(3)]), variables=variables)
    given = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), variables) if narrow == "weights" else variables
    for algorithm in (laplace(), ivon()):
        found, expected = (
            lamu.fit(lamu.Model(network, CLASSES), (X, Y), algorithm, epochs=0).posterior
            for network in (Linen(net, variables=given), whole)
        )
        assert {leaf.dtype.name for leaf in jax.tree.leaves(found.mean)} == {"float32"}
        np.testing.assert_allclose(found.predict(X).epistemic, expected.predict(X).epistemic, rtol=0.1, atol=2e-3)


@pytest.mark.parametrize("epochs", [0, 1])
def test_members_that_start_at_the_same_trained_weights_are_told(epochs: int) -> None:
    variables = PLAIN["Linen"].module.init(jax.random.key(0), X)
    trained = lamu.Model(Linen(PLAIN["Linen"].module, variables=variables), CLASSES)
    with pytest.warns(UserWarning, match="the 2 members all start at the trained weights of Linen"):
        lamu.fit(trained, (X, Y), deep_ensemble(adam(0.01), members=2), epochs=epochs)


def test_tokens_are_looked_up_by_their_numbers() -> None:
    words = RNG.integers(0, 12, size=(10, 5))
    network = Tokens(Linen(Words(), head="Dense_0/*"))
    standardised = lamu.Model(network, CLASSES).standardised(words, Y)
    posterior = lamu.fit(standardised, (words, Y), vogn(), epochs=3).posterior
    params = posterior.mean["network"]
    expected = jax.nn.softmax(Words().apply({"params": params}, jnp.asarray(words, jnp.int32)))
    point = lamu.fit(standardised.starting_at(posterior.mean), (words, Y), adam(1e-9), epochs=1).posterior
    np.testing.assert_allclose(point.predict(words).mean, expected, rtol=1e-4)
    kept = lamu.fit(standardised.starting_at(posterior.mean), (words, Y), last_layer(), epochs=0).posterior
    np.testing.assert_allclose(kept.predict(words[:2]).mean, kept.predict(words).mean[:2], rtol=1e-5)


@pytest.mark.parametrize("algorithm", [noisy_kfac(), kfac()], ids=["noisy_kfac", "kfac"])
def test_a_state_that_was_made_outside_of_a_program_can_be_given_away(algorithm: Any) -> None:
    """Biases apart from their kernels, which Kronecker factors hold by their diagonal, once in use and once afresh."""
    batch, objective = lamu.data.Batch.of(X, jnp.asarray(Y)), lamu.objective.Objective(model(PLAIN["Equinox"]), 10.0)
    state = algorithm.init(jax.random.key(0), objective, batch)
    step = jax.jit(lambda key, state: algorithm.step(key, state, batch, objective)[0], donate_argnums=1)
    assert int(step(jax.random.key(1), step(jax.random.key(2), state)).count) == 2


def test_a_linen_module_without_its_batch_statistics_is_told_what_is_missing():
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(nn.BatchNorm(use_running_average=True)(x))

    x = jnp.ones((20, 3))
    params = Net().init(jax.random.key(0), x)["params"]
    model = lamu.Model(lamu.networks.Linen(Net(), variables={"params": params}), lamu.likelihoods.Categorical(2))
    with pytest.raises(ValueError, match=r"collections params, .*batch_stats"):
        lamu.fit(model, (x, np.arange(20) % 2), lamu.algorithms.laplace(), epochs=0)


@pytest.mark.parametrize("network", [Linen(LinenConv()), NNX(lambda rngs: NNXConv(rngs))], ids=["linen", "nnx"])
def test_images_of_another_layout_are_named(network):
    """They were an error of XLA or Flax about the shapes of a kernel."""
    model = lamu.Model(network, lamu.likelihoods.Categorical(3))
    images = jnp.asarray(IMAGES)
    params, state = model.init(jax.random.key(0), lamu.data.Batch.of(images, jnp.zeros(5)))
    said = r"cannot read inputs of the shape \({} a row .*np.moveaxis\(x, 1, -1\)"
    with pytest.raises(ValueError, match=said.format(r"2, 6, 6\)")):
        model.outputs(params, state, jnp.moveaxis(images, -1, 1))
    with pytest.raises(ValueError, match=r"a row .*x\[..., None\]"):
        model.outputs(params, state, images[..., 0])
    if isinstance(network, NNX):
        with pytest.raises(ValueError, match=said.format(r"2, 6, 6\)")):
            model.init(jax.random.key(0), lamu.data.Batch.of(jnp.moveaxis(images, -1, 1), jnp.zeros(5)))


def test_images_with_the_channels_first_are_refused_by_the_built_in_networks():
    """`ResNet` took them for images of three pixels by eight, in silence."""
    with pytest.raises(ValueError, match="look like images with the channels first"):
        lamu.networks.ResNet().init(jax.random.key(0), jnp.zeros((4, 3, 8, 8)), 2)
