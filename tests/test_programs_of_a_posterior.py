"""A posterior of a network that arrives trained is a dozen programs, of which a second one compiles three."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.algorithms.post_hoc.ggn_blocks import batch_curvature
from lamu.algorithms.post_hoc.ggn_blocks import bytes_per_row as bytes_of_a_row_of_curvature
from lamu.data import Arrays
from lamu.data.arrays import _rows, _rows_in_memory
from lamu.families import Gaussian
from lamu.objective import Objective
from lamu.objective.curvature import GaussNewton
from lamu.objective.curvature.reader.flat_jaxpr import FlatJaxpr
from lamu.objective.curvature.reader.layers import _moved_by_numpy
from lamu.operators import Dense, DenseBlocks, Diagonal
from lamu.predictives.gaussian import ConjugatePredictive
from lamu.predictives.tangent import bytes_per_row as bytes_of_a_row_of_a_prediction
from lamu.running.compiled_steps import keys_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(70, 5))
W = RNG.normal(size=(5, 3))
Y = (X @ W).argmax(1)
INPUTS, WIDTH = 60, 300
MOST, MOST_AGAIN = 17, 3  # again: which weights arrived, and the scale's search, which are functions of their own

_compiled: list[Any] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, duration_secs, **_: _compiled.append(event) if event.endswith("backend_compile_duration") else None
)


@contextmanager
def counted() -> Iterator[list[int]]:
    """Yields a list that has the number of compiled programs at the end."""
    before, found = len(_compiled), []
    yield found
    found.append(len(_compiled) - before)


def model_of(theta: Any) -> lamu.Model:
    function = lambda theta, x: jnp.tanh(x @ theta["1"].T) @ theta["2"]["w"] + theta["2"]["b"][None]
    network = lamu.networks.Trained(function, theta, head="2/*")
    return lamu.Model(network, lamu.likelihoods.Categorical(3), lamu.priors.LearnedNormal())


def weights(inputs: int = 5, width: int = 8) -> Any:
    draw = lambda *shape: jnp.asarray(RNG.normal(size=shape))
    return {"1": draw(width, inputs), "2": {"w": draw(width, 3), "b": draw(3)}}


@pytest.mark.filterwarnings("ignore::lamu.Unconverged", "ignore:the prior's scale")
def test_a_posterior_is_a_dozen_programs() -> None:
    """Each costs 20 milliseconds or more, however small it is: operations that stand alone are none of them."""

    def posterior_of(inputs: int, width: int) -> Callable[[], Any]:
        x = np.tile(X, (1, 2))[:, :inputs]
        first, last = 0.1 * np.eye(width, inputs), 10.0 * np.eye(width, 5) @ W  # it knows more than a constant
        model = model_of({"1": jnp.asarray(first), "2": {"w": jnp.asarray(last), "b": jnp.zeros(3)}})
        rows, others = (x[:50], Y[:50]), (x[50:], Y[50:])
        return lambda: lamu.fit(model, rows, lamu.algorithms.last_layer(), epochs=0, validation=others)

    posterior_of(6, 12)()  # what is compiled once a process, for any shape
    posterior = posterior_of(7, 11)
    with counted() as first:
        posterior()
    with counted() as second:
        posterior()
    assert 5 < first[0] <= MOST
    assert second[0] <= MOST_AGAIN


def test_transposed_weights_are_no_part_of_a_row() -> None:
    """PyTorch's layers transpose theirs, which says nothing about how many rows there is room for."""
    theta = weights(inputs=INPUTS, width=WIDTH)
    model, row = model_of(theta), jnp.ones((1, INPUTS))
    params, belief = {"network": theta, "likelihood": {}}, Gaussian(theta, Diagonal(jax.tree.map(jnp.ones_like, theta)))
    size = 8  # bytes of a number
    transposed, largest = INPUTS * WIDTH, max(leaf.size for leaf in jax.tree.leaves(theta))
    predicted = bytes_of_a_row_of_a_prediction(model, belief, {}, {}, row, True)
    assert predicted < size * (3 + 2) * (largest + transposed / 4)
    assert bytes_of_a_row_of_curvature(Diagonal, Objective(model, 50), params, row) < size * (3 + 2) * transposed / 4


def test_numbers_written_are_those_that_depend_on_the_inputs() -> None:
    """An input that nothing reads writes nothing."""
    function = lambda w, x, unread: jnp.tanh(x @ jnp.transpose(2 * w)).sum()
    program = jax.make_jaxpr(function)(jnp.ones((5, 3)), jnp.ones((1, 3)), jnp.ones(7)).jaxpr
    assert lamu.memory.numbers_written(program, 1) == 0
    assert lamu.memory.numbers_written(program, 2) == 5 + 5 + 1
    assert lamu.memory.numbers_written(program, 3) == 15 + 15 + 5 + 5 + 1


@pytest.mark.parametrize(("start", "there", "size"), [(0, 4, 4), (4, 3, 4), (2, 1, 5)])
def test_rows_in_memory_are_those_of_the_program(start: int, there: int, size: int) -> None:
    rows = Arrays.of({"x": X[:7], "y": Y[:7], "weight": np.arange(1.0, 8.0), "offset": X[:7, 0]})
    ours, theirs = _rows_in_memory(rows, start, there, size), _rows(rows, start, there, size)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert a.dtype == b.dtype
        assert isinstance(a, jax.Array)
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("seed", [0, 7, 2**31, 2**32 - 1])
def test_the_keys_of_a_run_are_those_of_jax(seed: int) -> None:
    for number, key in enumerate(keys_of(seed)):
        assert bool(key == jax.random.fold_in(jax.random.key(seed), number))


@pytest.mark.parametrize(
    "move",
    [
        pytest.param(lambda w: jnp.reshape(w, (3, 2)), id="reshape"),
        pytest.param(lambda w: w.T, id="transpose"),
        pytest.param(lambda w: jnp.squeeze(w[None], 0), id="squeeze"),
        pytest.param(lambda w: jnp.broadcast_to(w[:, None], (2, 4, 3)), id="broadcast_in_dim"),
    ],
)
def test_numpy_moves_as_the_step_does(move: Any) -> None:
    values, known = np.arange(6).reshape(2, 3), 0
    for step in FlatJaxpr(lambda params, _: [move(params[0])], [jnp.zeros((2, 3))], []).steps:
        (place,) = {read for read in step.reads if read is not None}
        theirs, ours = np.asarray(step.run({place: jnp.asarray(values)})[0]), _moved_by_numpy(step, values)
        if ours is not None:
            np.testing.assert_array_equal(ours, theirs)
            known += 1
        values = theirs
    assert known


@pytest.mark.parametrize("structure", [Dense, DenseBlocks])
def test_outputs_and_gradient_come_from_the_jacobian(structure: Any) -> None:
    """One forward pass in the place of three, and no backward pass of its own for the gradient."""
    theta = weights()
    objective, batch = Objective(model_of(theta), 50), Arrays.of((X[:6], Y[:6])).example(6)
    network = lambda theta: objective.model.outputs({"network": theta, "likelihood": {}}, {}, batch.x)[0]
    params = {"network": theta, "likelihood": {}}
    _, f, pull = batch_curvature(structure, GaussNewton(), objective, params, batch, jax.random.key(0))
    np.testing.assert_allclose(f, network(theta), rtol=1e-5, atol=1e-5)
    slope = jnp.asarray(RNG.normal(size=f.shape), f.dtype)
    expected = jax.vjp(network, theta)[1](slope)[0]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), pull(slope), expected)


def symbols(seed: int, rows: int = 6) -> dict[str, np.ndarray]:
    return {"y": (np.random.default_rng(seed).random((rows, 5)) < 0.5).astype(float)}


@functools.cache
def posterior_of(kind: str) -> Any:
    if kind == "network":
        model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(1.0))
        return lamu.fit(model, (X, X[:, 0]), lamu.mcmc.nuts(chains=2, warmup=5, draws=5)).posterior
    models = lamu.latent.models
    graph = models.VAE(2, 5) if kind == "vae" else models.SemiSupervised(3, 2, 5, (4,))
    data = symbols(0) if kind == "vae" else {**symbols(0), "c": np.arange(6.0) % 3}
    return lamu.fit(graph, data, lamu.algorithms.adam(0.01), steps=2).posterior


VAE, KEYS = lambda: posterior_of("vae"), jax.random.key
ASKED = {
    "unit_divergences": lambda i: lamu.latent.unit_divergences(VAE(), symbols(i), KEYS(i)),
    "mean_bound": lambda i: lamu.scores.mean_bound(VAE(), symbols(i), samples=2),
    "amortisation_gap": lambda i: lamu.scores.amortisation_gap(VAE(), symbols(i), KEYS(i), steps=2, samples=2),
    "annealed_importance": lambda i: lamu.scores.annealed_importance(
        *lamu.latent.row_joint(VAE(), symbols(i, 1)), KEYS(i), temperatures=3, chains=2, steps=1
    ),
    "BitsBack": lambda i: lamu.latent.BitsBack.of(VAE()).encode(
        lamu.latent.Stack(list(range(1, 99))), symbols(i)["y"].astype(int)
    ),
    "analogies": lambda i: lamu.latent.analogies(
        posterior_of("labels"), {**symbols(i), "c": np.arange(6.0) % 3}, KEYS(i)
    ),
    "interval": lambda i: ConjugatePredictive(
        lamu.observations.Poisson(), lamu.families.Gamma(2.0 + i, 1.0), 4
    ).interval(),
    "diagnose": lambda i: lamu.mcmc.diagnose(posterior_of("network"), X[i : i + 5]),
}


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore::lamu.Unconverged", "ignore::lamu.scores.UnreliableWeights")
@pytest.mark.parametrize("question", ASKED)
def test_what_is_asked_twice_is_compiled_once(question: str) -> None:
    """Of rows and keys of their own, in equal shapes."""
    ASKED[question](1)
    with counted() as again:
        ASKED[question](2)
    assert again == [0]
