"""Laws of the protocol: what every algorithm and every sampler keeps, whatever it computes.

A row is an algorithm on a problem. Its extras: `problem`, and `with_rate`, which makes the algorithm of a schedule. Its
traits choose further laws: "regression" (the problem has a closed form), "random" (steps draw), "deterministic" (the
path of the mean draws nothing), "gaussian" (a precision that the temperature scales exactly), "dispersions" (noise can
be learned), "descends" (its steps lower the loss), "schedule" (takes a schedule), "eager" (quick without compilation).
"""

from __future__ import annotations

import inspect
import io
import itertools
import json
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax

import lamu
from lamu import graphs, tree
from lamu.algorithms import (
    adagrad,
    adam,
    bayes_by_backprop,
    bayesbinn,
    blocks,
    bsam,
    conjugate,
    conjugate_scales,
    cvi,
    deep_ensemble,
    dropout,
    em,
    extended_kalman,
    gradient_descent,
    igo,
    invariant_map,
    ivon,
    kfac,
    laplace,
    last_layer,
    lie_group,
    map_estimate,
    mc_dropout,
    mixture,
    mixture_vi,
    multimodal,
    ncvmp,
    neural_linear,
    newton,
    noisy_kfac,
    ogn,
    online_laplace,
    pbp,
    rmsprop,
    sam,
    sgd,
    slang,
    straight_through,
    svi,
    swag,
    vmp,
    vogn,
    von,
)
from lamu.algorithms.descent import Flipout, LocalReparameterisation
from lamu.algorithms.ensembles.swag import EverySteps, LowRankDeviations
from lamu.data import Arrays, Batch
from lamu.expectations import Exact
from lamu.families import Dirichlet, Gamma, NormalGamma
from lamu.geometry import Affine
from lamu.likelihoods import HeteroscedasticGaussian
from lamu.mcmc import (
    ControlVariates,
    Cyclical,
    FrozenAfterWarmup,
    Polynomial,
    RootMeanSquare,
    RowNoise,
    hmc,
    mala,
    minibatch_mh,
    nuts,
    parallel_tempering,
    psgld,
    random_walk,
    sghmc,
    sgld,
    sgnht,
    ula,
)
from lamu.networks import BatchNorm, Dropout
from lamu.objective import Objective
from lamu.observations import Poisson
from lamu.operators import Dense
from lamu.posterior import Posterior
from lamu.priors import ARD, Normal
from lamu.protocol import Algorithm, Choices, Info, Traits, runnable
from lamu.record import decode, encode, record, static
from tests.laws.harness import Row, law, row, twin, vocabulary

vocabulary("protocol", "descends deterministic dispersions eager full gaussian mode random regression schedule")

N = 12
TRACES: Counter[str] = Counter()
rng = np.random.default_rng(0)


@dataclass(frozen=True)
class Problem:
    """A model with a few rows of data."""

    model: Any
    x: np.ndarray
    y: Any

    def batch(self, dtype: Any = None) -> Batch:
        cast = lambda leaf: leaf.astype(dtype) if dtype and leaf.dtype.kind == "f" else leaf
        y = jax.tree.map(lambda leaf: jnp.asarray(cast(leaf)), self.y)
        return Batch.of(jnp.asarray(self.x.astype(dtype or self.x.dtype)), y)

    def objective(self, **changes: Any) -> Objective:
        return Objective(**{"model": self.model, "data_size": float(len(self.x)), **changes})


class Program(Problem):
    """A problem whose model is read when a law first needs it: to read a program runs a hundred small ones."""

    def objective(self, **changes: Any) -> Objective:
        return super().objective(**{"model": self.model(), **changes})


def problem(network: Any, likelihood: Any, features: int, dtype: Any, classes: int = 0, prior: float = 1.0) -> Problem:
    x = rng.normal(size=(N, features)).astype(dtype)
    if classes:
        return Problem(lamu.Model(network, likelihood, Normal(prior)), x, rng.integers(0, classes, N).astype(np.int32))
    y = (0.7 + x @ np.linspace(1.5, -1.0, features) + 0.3 * rng.normal(size=N)).astype(dtype)
    return Problem(lamu.Model(network, likelihood, Normal(prior)), x, y)


regression = problem(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.5), 2, np.float64)
scalar = problem(lamu.networks.Linear(bias=False), lamu.likelihoods.Gaussian(0.5), 1, np.float32)
mlp = lamu.networks.MLP((3,), "tanh")
classes = problem(mlp, lamu.likelihoods.Categorical(3), 2, np.float32, classes=3)


def normalised(by: BatchNorm) -> Problem:
    """The same classes, by a network with batch statistics."""
    return replace(classes, model=replace(classes.model, network=replace(mlp, normalise=by)))


normed = normalised(BatchNorm())

MANY = ("adam", "ivon", "laplace")
POINT = "deterministic dispersions descends eager mode"
for name, algorithm, with_rate, traits in (
    ("gradient_descent", gradient_descent(0.1), gradient_descent, POINT),
    ("sgd", sgd(0.05, momentum=0.5), sgd, POINT),
    ("adam", adam(0.05), adam, POINT),
    ("map_estimate", map_estimate(optax.adam(0.05)), lambda rate: map_estimate(optax.sgd(rate)), POINT),
    ("von", von(0.5, Dense, Exact()), lambda rate: von(rate, Dense, Exact()), POINT + " gaussian"),
    ("ivon", ivon(0.1, b2=0.95), ivon, "random dispersions descends eager"),
    ("vogn", vogn(0.1, b2=0.95), vogn, "random dispersions descends eager"),
    ("slang", slang(0.1, rank=2, b2=0.95, curvature_update_period=2), slang, "random dispersions descends eager"),
    ("noisy_kfac", noisy_kfac(0.1, b2=0.95, factor_update_period=1), noisy_kfac, "random dispersions long"),
    ("kfac", kfac(0.1, b2=0.95, factor_update_period=1), kfac, "random dispersions long"),
    (
        "bayes_by_backprop",
        bayes_by_backprop(optax.adam(0.02), factor=1.0),
        lambda rate: bayes_by_backprop(optax.sgd(1.0), factor=rate),
        "random dispersions descends eager",
    ),
    ("laplace", laplace(adam(0.05)), None, POINT.replace("descends ", "") + " gaussian"),  # it ends at the mode itself
    ("last_layer", last_layer(adam(0.05)), None, "deterministic eager"),
    ("deep_ensemble", deep_ensemble(adam(0.05), members=2), None, "eager"),
    (
        "swag",
        swag(sgd(0.05, momentum=0.5), LowRankDeviations(2), EverySteps()),
        None,
        "deterministic dispersions eager long",
    ),
    ("newton", newton(), newton, "deterministic descends eager mode gaussian"),
    ("rmsprop", rmsprop(0.02), rmsprop, POINT + " long"),
    ("adagrad", adagrad(0.3), adagrad, POINT + " long"),
    ("sam", sam(0.05, momentum=0.5), sam, "deterministic dispersions descends eager long"),
    ("ogn", ogn(0.1, b2=0.95), ogn, "deterministic dispersions descends eager mode long"),
    ("bsam", bsam(0.1, b2=0.95), bsam, "random dispersions descends eager long"),
    (
        "lie_group",
        lie_group(learning_rate=0.1),
        partial(lie_group, Affine()),
        "random dispersions descends eager",
    ),
    ("conjugate", conjugate(), None, "deterministic gaussian eager mode"),
    ("nuts", nuts(chains=2, warmup=50, draws=2), None, "random"),
    ("extended_kalman", extended_kalman(), None, "deterministic gaussian eager mode"),
):
    more = traits + (" schedule" if with_rate else "")
    row("protocol", name, algorithm, f"full regression {more}", problem=regression, with_rate=with_rate)
    word = "random" if "random" in traits else ""
    # Every algorithm meets one scalar and classes; those that differ least from another one do so in the long run.
    one, many = ("" if name in kept else "long" for kept in (("adam", "ivon", "laplace", "nuts"), MANY))
    row("protocol", f"{name} of one scalar", algorithm, f"{word} {one}", problem=scalar)
    if name == "von":
        row("protocol", "von of classes", von(0.1), "full random", problem=classes)
    elif name not in ("conjugate", "newton"):
        full = "" if name == "nuts" else "full"
        row("protocol", f"{name} of classes", algorithm, f"{full} {word} {many}", problem=classes)
    if name == "extended_kalman":
        row("protocol", "extended_kalman of batch statistics", algorithm, "full long", problem=normed)
    elif name not in ("conjugate", "vogn", "nuts", "von", "newton", "ogn", "slang", "kfac", "noisy_kfac"):
        most = "" if name == "adam" else "long"
        row("protocol", f"{name} of batch statistics", algorithm, f"full {word} {most}", problem=normed)

in_parts = lambda rate: blocks({"*kernel": ivon(rate, b2=0.95), "*": adam(rate)})
traits = "random dispersions descends eager schedule"
row("protocol", "blocks", in_parts(0.05), f"full regression {traits}", problem=regression, with_rate=in_parts)
row("protocol", "blocks of classes", in_parts(0.05), "full random long", problem=classes)

counts = Problem(lamu.ConjugateModel(Poisson(), Gamma(2.0, 1.5)), np.zeros((N, 0)), rng.poisson(3.0, N))


def two_levels(m: graphs.Program) -> None:
    weight = m.sample("weight", Dirichlet(jnp.ones(2)))
    part = m.sample("part", NormalGamma(0.0, 0.5, 2.0, 1.0), plate=2)
    with m.rows():
        z = m.sample("z", graphs.Categorical(weight))
        m.sample("y", graphs.Normal(part[z]))


levels = Problem(
    lamu.Graph(two_levels),
    np.zeros((N, 0), np.float32),
    {"y": (np.arange(N) % 2 * 4.0 + np.random.default_rng(5).normal(size=N)).astype(np.float32)},
)

# A row's loss draws a latent from what an encoder says of the row.
codes = Problem(
    lamu.latent.models.VAE(1, 2, lamu.networks.MLP((2,)), lamu.networks.MLP((2,))),
    np.zeros((N, 0), np.float32),
    {"y": np.random.default_rng(6).integers(0, 2, (N, 2)).astype(np.float32)},
)


def with_precision(x: Any, y: Any) -> None:
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    w = numpyro.sample("w", dist.Normal(0.0, 1 / jnp.sqrt(tau)))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=w * x), obs=y)


answers = {"x": np.random.default_rng(1).normal(size=N).astype(np.float32), "y": (np.arange(N) % 2).astype(np.float32)}
program = Program(
    cache(lambda: lamu.from_numpyro(with_precision, answers, rows="rows")),
    np.zeros((N, 0), np.float32),
    answers,
)
rectifiers = replace(regression, model=lamu.Model(lamu.networks.MLP((3,)), lamu.likelihoods.Gaussian(), Normal(1.0)))
relevance = replace(regression, model=lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.6), ARD()))
dropped = replace(classes, model=replace(classes.model, network=replace(mlp, dropout=Dropout(0.2))))
for name, algorithm, at, traits in (
    ("straight_through of classes", straight_through(0.1), classes, "full long"),
    ("bayesbinn of classes", bayesbinn(0.01, init_half_logit=0.3), classes, "full random"),
    ("bayesbinn of batch statistics", bayesbinn(0.01, init_half_logit=0.3), normed, "full random long"),
    ("dropout of classes", dropout(sgd(0.1)), dropped, "full random long"),
    ("mc_dropout of classes", mc_dropout(sgd(0.1)), dropped, "full random"),
    ("multimodal of classes", multimodal(components=2), classes, "full long"),
    ("mixture_vi of classes", mixture_vi(components=2, samples=1), classes, "full random"),
    ("mixture of classes", mixture(ivon(0.1), components=2), classes, "full random"),
    ("igo of classes", igo(), classes, "full random"),
    ("pbp of rectifiers", pbp(), rectifiers, "full deterministic eager"),
    ("svi of counts", svi(), counts, ""),
    ("svi of a graph", svi(), levels, ""),
    ("cvi of a program", cvi(pairs=2), program, "random"),
    ("adam of an autoencoder", adam(0.01), codes, "random"),
    ("conjugate_scales of relevance", conjugate_scales(ivon(0.1)), relevance, "full random"),
    ("vmp of a graph", vmp(tolerance=0.0), levels, "deterministic"),
    ("ncvmp of a graph", ncvmp(tolerance=0.0), levels, "deterministic"),
    ("em of a graph", em(tolerance=0.0), levels, "deterministic"),
    ("invariant_map", invariant_map(optax.adam(0.05)), regression, "dispersions descends eager long"),
    ("local of classes", bayes_by_backprop(estimator=LocalReparameterisation()), classes, "full random long"),
    ("random_walk of one scalar", random_walk(2, 4, 2), scalar, "random long"),
    ("mala of one scalar", mala(2, 0, 4, step_size=0.1), scalar, "random long"),
    ("ula of one scalar", ula(2, 0, 4, step_size=0.1), scalar, "random long"),
    ("hmc of classes", hmc(2, 4, 2), classes, "full random"),
    ("parallel_tempering of one scalar", parallel_tempering(2, 4, 2, (1.0, 2.0, 5.0)), scalar, "random"),
    ("parallel_tempering of classes", parallel_tempering(2, 4, 2, (1.0, 3.0)), classes, "full random long"),
    ("minibatch_mh of one scalar", minibatch_mh(2, 0, 4, rows=5, step_size=0.1), scalar, "random"),
    ("minibatch_mh of classes", minibatch_mh(2, 0, 4, rows=5, step_size=0.1), classes, "full random long"),
    ("flipout of classes", bayes_by_backprop(estimator=Flipout(), samples=2), classes, "full random long"),
):
    row("protocol", name, algorithm, traits, problem=at)

lengths: dict[str, Any] = {"chains": 2, "warmup": 20, "draws": 4, "thinning": 2}
for name, algorithm, long in (
    ("sgld", sgld(Polynomial(0.01), **lengths), ""),
    ("psgld", psgld(0.01, RootMeanSquare(), **lengths), "long"),
    (
        "sghmc",
        sghmc(Cyclical(0.01, cycles=2, exploration_temperature=1.0), preconditioner=FrozenAfterWarmup(), **lengths),
        "",
    ),
    ("sgnht", sgnht(0.01, gradient=ControlVariates(), **lengths), "long"),
):
    row("protocol", name, algorithm, f"full regression random {long}", problem=regression)
    row("protocol", f"{name} of classes", algorithm, "full random long", problem=classes)
row("protocol", "sgld of batch statistics", sgld(0.01, **lengths), "full random long", problem=normed)
# A chain waits for a quarter of its warm-up, and laws look at the first step.
soon = {**lengths, "warmup": 4}
for name, algorithm, at in (
    ("sgld", sgld(**soon), normed),
    ("psgld", psgld(**soon), classes),
    ("sghmc", sghmc(**soon), regression),
    ("sgnht", sgnht(**soon), classes),
):
    row("protocol", f"{name} with a step size of its own", algorithm, "full random long", problem=at)
by_rows = sghmc(0.01, noise_estimate=RowNoise(), **lengths)
row("protocol", "sghmc of rows' noise", by_rows, "full random long", problem=classes)

# Two outputs a target, and no dispersions: the curvature of a row is a matrix.
own_noise = replace(regression, model=replace(regression.model, likelihood=HeteroscedasticGaussian()))
row("protocol", "ivon of own noise", ivon(0.01, b2=0.95), "full random long", problem=own_noise)
row("protocol", "laplace of own noise", laplace(adam(0.05)), "full long", problem=own_noise)


def key(seed: int) -> Any:
    return jax.random.key(seed)


@jax.jit
def init(algorithm: Any, key: Any, objective: Objective, batch: Batch) -> Any:
    return algorithm.init(key, objective, batch)


def entry(algorithm: Any, batch: Batch, objective: Objective) -> str:
    """What a compiled step is kept under: the structure of everything, and the shape of the rows."""
    return f"{jax.tree.structure((algorithm, objective))} {batch.x.shape} {batch.x.dtype}"


@jax.jit
def step(algorithm: Any, key: Any, state: Any, batch: Batch, objective: Objective) -> Any:
    TRACES[entry(algorithm, batch, objective)] += 1
    return algorithm.step(key, state, batch, objective)


def start(row: Row, **changes: Any) -> tuple[Any, Batch, Objective]:
    batch, objective = row.extras["problem"].batch(), row.extras["problem"].objective(**changes)
    return init(row.subject, key(0), objective, batch), batch, objective


def walk(row: Row, state: Any, batch: Batch, objective: Objective, steps: Any, algorithm: Any = None) -> Any:
    """Takes steps under keys of their own."""
    for seed in steps:
        state, _ = step(algorithm or row.subject, key(100 + seed), state, batch, objective)
    return state


def posterior(row: Row, state: Any, objective: Objective, batch: Batch, seed: int = 5) -> Posterior:
    trace = None
    if row.subject.traits.length is not None:
        infos = [step(row.subject, key(100 + i), state, batch, objective)[1] for i in range(2)]
        trace = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[info.draw for info in infos])
    try:
        rows = Arrays.of((batch.x, batch.y) if batch.x.shape[1] else {"y": batch.y})
        return row.subject.posterior(key(seed), state, objective, rows, trace)
    except ValueError as error:
        if "precision" not in str(error):  # any other error is no judgement
            raise
        raise AssertionError(f"a state that is no belief: {error}") from None


def bits(state: Any) -> list[np.ndarray]:
    keys = lambda leaf: jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)
    return [np.asarray(jax.random.key_data(leaf) if keys(leaf) else leaf) for leaf in jax.tree.leaves(state)]


def assert_same_bits(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for one, other in zip(bits(a), bits(b), strict=True):
        np.testing.assert_array_equal(one, other)


def assert_close(a: Any, b: Any, tolerance: float | None = None) -> None:
    for one, other in zip(bits(a), bits(b), strict=True):
        single = one.dtype == np.float32
        limit = tolerance or (1e-4 if single else 1e-9)
        np.testing.assert_allclose(one, other, rtol=limit, atol=limit)


@law("protocol")
def names_and_arity_are_the_protocols(row: Row) -> None:
    algorithm = row.subject
    assert isinstance(algorithm, Algorithm)
    assert isinstance(algorithm.traits, Traits)
    assert isinstance(algorithm.choices, Choices)
    for method in ("init", "step", "posterior"):
        mine = list(inspect.signature(getattr(algorithm, method)).parameters)
        assert mine == list(inspect.signature(getattr(Algorithm, method)).parameters)[1:], f"{method}({mine})"


@law("protocol")
def step_is_traced_once_and_tells(row: Row) -> None:
    """Three steps, one trace; the loss is a finite number, and the residual one that is not negative."""
    state, batch, objective = start(row)
    for seed in range(3):
        state, info = step(row.subject, key(seed), state, batch, objective)
        assert isinstance(info, Info)
        assert jnp.shape(info.loss) == jnp.shape(info.residual) == ()
        assert np.isfinite(info.loss)
        assert info.residual >= 0
    assert TRACES[entry(row.subject, batch, objective)] == 1


@law("protocol")
def structure_and_dtypes_are_kept(row: Row) -> None:
    """In float32 and float64; a sampler's adaptation may be wider than its parameters."""
    for dtype in (jnp.float32, jnp.float64):
        batch, objective = row.extras["problem"].batch(dtype), row.extras["problem"].objective()
        state = jax.eval_shape(row.subject.init, key(0), objective, batch)
        after, _ = jax.eval_shape(row.subject.step, key(1), state, batch, objective)
        assert jax.tree.structure(state) == jax.tree.structure(after)
        for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
            assert (one.shape, one.dtype, one.weak_type) == (other.shape, other.dtype, other.weak_type)
            if jnp.issubdtype(one.dtype, jnp.floating) and row.subject.traits.length is None:
                assert one.dtype == dtype, "a state has the dtype of the data"


@law("protocol", when="eager")
def input_state_is_untouched(row: Row) -> None:
    state, batch, objective = start(row)
    before = bits(state)
    row.subject.step(key(1), state, batch, objective)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    for leaf, copy in zip(bits(state), before, strict=True):
        np.testing.assert_array_equal(leaf, copy)


@law("protocol", when="regression")
def mapped_over_keys_is_one_by_one(row: Row) -> None:
    state, batch, objective = start(row)
    mapped = jax.jit(jax.vmap(row.subject.step, in_axes=(0, None, None, None)))
    many, _ = mapped(jax.random.split(key(7)), state, batch, objective)
    for index in range(2):
        alone, _ = step(row.subject, jax.random.split(key(7))[index], state, batch, objective)
        assert_close(jax.tree.map(lambda leaf: leaf[index], many), alone, 1e-8)  # noqa: B023  (used at once)


@law("protocol")
def same_key_same_bits(row: Row) -> None:
    state, batch, objective = start(row)
    assert_same_bits(state, init(row.subject, key(0), objective, batch))
    state = walk(row, state, batch, objective, range(3))  # a sampler's first proposals may all be rejected
    one, again, other = (step(row.subject, key(seed), state, batch, objective)[0] for seed in (3, 3, 4))
    assert_same_bits(one, again)
    differs = any(not np.array_equal(a, b) for a, b in zip(bits(one), bits(other), strict=True))
    assert differs == ("random" in row.traits), "another key is another result where steps draw, and only there"


@law("protocol", when="regression")
def frozen_leaves_stay(row: Row) -> None:
    """They are in no state and in no belief, and the model completes its weights with their very bits."""
    path, batch = "layers/0/bias", row.extras["problem"].batch()
    model = row.extras["problem"].model
    held, _ = model.init(key(9), batch)
    held["network"]["layers"][0]["bias"] = jnp.array([0.1234])
    objective = row.extras["problem"].objective(model=model.freeze(held, path))
    state = walk(row, init(row.subject, key(0), objective, batch), batch, objective, range(2))
    assert not any(leaf.endswith(path) for leaf in tree.paths(state))
    weights = posterior(row, state, objective, batch).sample(key(0), 1)["network"]
    assert tree.paths(weights) == ["layers/0/kernel"]
    assert_same_bits(objective.model.complete(weights)["layers"][0]["bias"], held["network"]["layers"][0]["bias"])
    assert tree.dimension(weights) == 2


@law("protocol", when="full")
def padding_changes_nothing(row: Row) -> None:
    """Padded rows are nonsense here, and masked."""
    state, batch, objective = start(row)
    padded = batch.padded(N + 3)
    padded = replace(padded, x=padded.x.at[N:].set(7.0), weight=padded.weight.at[N:].set(3.0))
    assert_close(*(walk(row, state, rows, objective, range(2)) for rows in (batch, padded)))


@law("protocol", when="regression deterministic")
def twice_the_data_and_the_prior_is_the_same_path(row: Row) -> None:
    """Every row twice, N twice, the prior's precision twice: the mean moves the same way; a precision doubles."""
    state, batch, objective = start(row)
    double = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), batch)
    narrow = replace(objective.model, prior=Normal(0.5**0.5))
    twice = Objective(narrow, 2 * objective.data_size)
    one = walk(row, state, batch, objective, range(3))
    other = walk(row, init(row.subject, key(0), twice, double), double, twice, range(3))
    one, other = posterior(row, one, objective, batch).belief, posterior(row, other, twice, double).belief
    assert_close(one.mean["network"], other.mean["network"])
    if "gaussian" in row.traits:
        assert_close(2.0 * dense(one), dense(other))


@law("protocol")
def resumes_to_the_bit(row: Row) -> None:
    """Two steps, through bytes, and two more, are four steps."""
    state, batch, objective = start(row)
    straight = walk(row, state, batch, objective, range(4))
    leaves, structure = jax.tree.flatten(walk(row, state, batch, objective, range(2)))
    arrays: dict[str, np.ndarray] = {}
    content, buffer = json.dumps(encode(leaves, arrays)), io.BytesIO()
    np.savez(buffer, **arrays)
    buffer.seek(0)
    restored = jax.tree.unflatten(structure, decode(json.loads(content), np.load(buffer)))
    assert_same_bits(straight, walk(row, restored, batch, objective, range(2, 4)))


@law("protocol", when="full")
def posterior_is_of_the_state(row: Row) -> None:
    """It has the model, the key and the temperature that it was given, and predicts."""
    state, batch, objective = start(row, temperature=0.75)
    state = walk(row, state, batch, objective, range(2))
    found = posterior(row, state, objective, batch, seed=5)
    assert isinstance(found, Posterior)
    # Not of the frozen weights: a last layer freezes its features, and an evidence may choose the prior.
    for part in ("network", "likelihood"):
        given = jax.tree.structure(getattr(objective.model, part))
        assert jax.tree.structure(getattr(found.model, part)) == given
    np.testing.assert_array_equal(jax.random.key_data(found.key), jax.random.key_data(key(5)))
    assert float(found.temperature) == 0.75, f"a belief at the temperature .75 says {found.temperature}"
    mean = found.predict(batch.x[:4], samples=2).mean
    assert mean.shape == ((4, 3) if found.model.likelihood.task == "classes" else (4,))
    assert np.all(np.isfinite(mean))


@law("protocol", when="regression gaussian")
def half_the_temperature_is_twice_the_precision(row: Row) -> None:
    beliefs = []
    for temperature in (1.0, 0.5):
        state, batch, objective = start(row, temperature=temperature)
        state = walk(row, state, batch, objective, range(2))
        beliefs.append(posterior(row, state, objective, batch).belief)
    assert_close(beliefs[0].mean["network"], beliefs[1].mean["network"])
    assert_close(2.0 * dense(beliefs[0]), dense(beliefs[1]))


@record
class Started:
    """A linear network that starts where it is told."""

    weights: Any
    linear: bool = static(default=True)
    head: str = static(default="*")

    def init(self, key: Any, x: Any, outputs: int) -> Any:
        return self.weights, {}

    def apply(self, params: Any, state: Any, x: Any, key: Any, train: bool) -> Any:
        layer = params["layers"][0]
        return x @ layer["kernel"] + layer["bias"][None], state


@law("protocol", when="regression mode")
def mode_is_a_fixed_point(row: Row) -> None:
    """On the ridge regression's closed form, by NumPy."""
    batch, problem = row.extras["problem"].batch(), row.extras["problem"]
    design = np.column_stack([np.ones(N), problem.x])
    mode = np.linalg.solve(design.T @ design / 0.25 + np.eye(3), design.T @ problem.y / 0.25)
    weights = {"layers": {0: {"bias": jnp.asarray(mode[:1]), "kernel": jnp.asarray(mode[1:, None])}}}
    objective = problem.objective(model=replace(problem.model, network=Started(weights)))
    state = init(row.subject, key(0), objective, batch)
    # One step: at the mode Adam divides round-off by round-off, and a second step would be anywhere.
    state = walk(row, state, batch, objective, range(1))
    assert_close(posterior(row, state, objective, batch).belief.mean["network"], weights, 1e-6)


def run(algorithm: Any, objective: Objective, batch: Batch, steps: int) -> tuple[Any, Any]:
    """All steps as one scan."""
    return scan(algorithm, init(algorithm, key(0), objective, batch), batch, objective, steps)


@lambda function: jax.jit(function, static_argnums=4)
def scan(algorithm: Any, state: Any, batch: Batch, objective: Objective, steps: int) -> Any:
    body = lambda state, t: algorithm.step(jax.random.fold_in(key(1), t), state, batch, objective)
    return jax.lax.scan(body, state, jnp.arange(steps))


@law("protocol", when="regression descends")
def steps_descend(row: Row) -> None:
    """The mean loss at the mean of the belief, before any pass over the data, in nats a row, by more than a half."""
    begun, batch, objective = start(row)
    ended, _ = run(row.subject, objective, batch, 200)
    means = [runnable(row.subject).preview(key(0), s, objective).mean for s in (begun, ended)]
    first, last = (float(objective.mean_loss(mean, batch, {})[0]) for mean in means)
    assert last < first - 0.5


noisy = problem(lamu.networks.Linear(), lamu.likelihoods.Gaussian(), 2, np.float64)

evident = online_laplace(adam(0.05), burn_in=1, evidence_update_period=1, updates=3)
row("protocol", "online_laplace", evident, "full regression dispersions descends", problem=regression)
row("protocol", "online_laplace of one scalar", evident, "long", problem=scalar)
row("protocol", "online_laplace of classes", evident, "full", problem=classes)
row("protocol", "online_laplace of batch statistics", evident, "full long", problem=normed)
row("protocol", "neural_linear", neural_linear(adam(0.05)), "full deterministic eager", problem=noisy)


@law("protocol", when="regression dispersions")
def learned_noise_is_the_residuals(row: Row) -> None:
    """From the spread of the targets to that of the residuals about the least squares, to a fifth."""
    batch, objective = noisy.batch(), noisy.objective(model=replace(noisy.model, prior=Normal(10.0)))
    state, _ = run(row.subject, objective, batch, 2000)
    design = np.column_stack([np.ones(N), noisy.x])
    expected = np.std(noisy.y - design @ np.linalg.lstsq(design, noisy.y)[0])
    found = float(posterior(row, state, objective, batch).belief.mean["likelihood"]["log_scale"][0])
    assert np.std(noisy.y) > 3 * expected
    assert abs(found - np.log(expected)) < 0.25, f"exp({found}) for {expected}"


@law("protocol", when="schedule")
def first_step_is_number_zero(row: Row) -> None:
    """A rate that vanishes from step one on: the first step moves, the second does not."""
    algorithm = row.extras["with_rate"](lambda t: jnp.where(t == 0, 0.1, 0.0))
    batch, objective = row.extras["problem"].batch(), row.extras["problem"].objective()
    states = [init(algorithm, key(0), objective, batch)]
    for seed in range(2):
        states.append(walk(row, states[-1], batch, objective, [seed], algorithm))
    weights = [bits(algorithm.posterior(key(0), s, objective, None, None).belief.mean["network"]) for s in states]
    assert not all(np.array_equal(a, b) for a, b in zip(weights[0], weights[1], strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(weights[1], weights[2], strict=True))


def dense(belief: Any) -> Any:
    gaussian = belief.factors["network"]
    return gaussian.precision.dense(gaussian.mean)


@record
class Broken:
    """An algorithm with some of its methods exchanged, each for a function of the algorithm and the arguments."""

    of: Any
    faults: tuple[tuple[str, Any], ...] = static()

    @property
    def traits(self) -> Traits:
        return self.of.traits

    @property
    def choices(self) -> Choices:
        return self.of.choices

    def _call(self, method: str, *arguments: Any) -> Any:
        fault = dict(self.faults).get(method)
        return fault(self.of, *arguments) if fault else getattr(self.of, method)(*arguments)

    def init(self, key: Any, objective: Any, batch: Any) -> Any:
        return self._call("init", key, objective, batch)

    def step(self, key: Any, state: Any, batch: Any, objective: Any) -> Any:
        return self._call("step", key, state, batch, objective)

    def posterior(self, key: Any, state: Any, objective: Any, data: Any, trace: Any) -> Any:
        return self._call("posterior", key, state, objective, data, trace)


@record
class Renamed(Broken):
    def step(self, rng_key: Any, state: Any, minibatch: Any, objective: Any) -> Any:
        return self.of.step(rng_key, state, minibatch, objective)


@record
class Keyless(Broken):
    def init(self, objective: Any, batch: Any) -> Any:
        return self.of.init(key(0), objective, batch)


def of(name: str) -> Row:
    from tests.laws.harness import ROWS

    return next(row for row in ROWS if (row.kind, row.name) == ("protocol", name))


def twin_of(name: str, fault: str, laws: str, **faults: Any) -> None:
    twin(of(name), fault, laws, Broken(of(name).subject, tuple(faults.items())))


def after(change: Any) -> Any:
    """A step whose new state is changed: `change(old, new)`."""

    def fault(of: Any, key: Any, state: Any, batch: Any, objective: Any) -> Any:
        new, info = of.step(key, state, batch, objective)
        return change(state, new), info

    return fault


def told(change: Any) -> dict[str, Any]:
    """All three methods with another objective."""
    return {
        "init": lambda of, key, objective, batch: of.init(key, change(objective), batch),
        "step": lambda of, key, state, batch, objective: of.step(key, state, batch, change(objective)),
        "posterior": lambda of, key, state, objective, *rest: of.posterior(key, state, change(objective), *rest),
    }


def seen(change: Any) -> dict[str, Any]:
    """A step that sees another batch."""
    return {"step": lambda of, key, state, batch, objective: of.step(key, state, change(batch), objective)}


def moved(state: Any, by: Any) -> Any:
    return replace(state, mean=jax.tree.map(lambda leaf: leaf + jnp.asarray(by, leaf.dtype), state.mean))


def flat(objective: Any) -> Any:
    return replace(objective, model=replace(objective.model, prior=Normal(1e6)))


def unfrozen(objective: Any) -> Any:
    return replace(objective, model=replace(objective.model, frozen=None))


def reflected(old: Any, new: Any) -> Any:
    return jax.tree.map(lambda a, b: 2 * a - b, old, new)


clock = itertools.count()


def ticks(old: Any, new: Any) -> Any:
    """A memory outside the state."""
    time = jax.pure_callback(lambda _: np.float64(next(clock)), jax.ShapeDtypeStruct((), np.float64), new.count)
    return moved(new, 1e-3 * time)


def deleted(old: Any, new: Any) -> Any:
    jax.tree.map(lambda leaf: leaf.delete(), old)
    return new


def where_mapped(of: Any, key: Any, state: Any, batch: Any, objective: Any) -> Any:
    new, info = of.step(key, state, batch, objective)
    return (moved(new, 0.1) if "Batch" in type(key).__name__ else new), info


def constant_key(of: Any, _: Any, *arguments: Any) -> Any:
    return of.step(key(0), *arguments)


def noisy_step(of: Any, key: Any, state: Any, batch: Any, objective: Any) -> Any:
    new, info = of.step(key, state, batch, objective)
    return moved(new, 1e-3 * jax.random.normal(key, (), jnp.float64)), info


twin(of("sgd"), "argument names of its own", "names_and_arity_are_the_protocols", Renamed(sgd(), ()))
twin(of("sgd"), "a key of its own", "names_and_arity_are_the_protocols", Keyless(sgd(), ()))
twin_of(
    "sgd",
    "counts in another dtype",
    "step_is_traced_once_and_tells structure_and_dtypes_are_kept",
    step=after(lambda old, new: replace(new, count=new.count.astype(jnp.float32))),
)
twin_of(
    "adam",
    "a loss a row",
    "step_is_traced_once_and_tells",
    step=lambda of, key, state, batch, objective: (state, Info(loss=jnp.ones(N))),
)
twin_of(
    "gradient_descent of one scalar",
    "parameters in float64",
    "structure_and_dtypes_are_kept step_is_traced_once_and_tells",
    step=after(lambda old, new: replace(new, mean=jax.tree.map(lambda leaf: leaf.astype(jnp.float64), new.mean))),
)
twin_of(
    "adam",
    "starts in float64",
    "structure_and_dtypes_are_kept",
    init=lambda of, *a: jax.tree.map(
        lambda leaf: leaf.astype(jnp.float64) if leaf.dtype == jnp.float32 else leaf, of.init(*a)
    ),
)
twin_of("sgd", "eats its input", "input_state_is_untouched", step=after(deleted))
twin_of("sgd", "another value where mapped", "mapped_over_keys_is_one_by_one", step=where_mapped)
twin_of("ivon", "one key for all steps", "same_key_same_bits", step=constant_key)
twin_of("sgd", "draws and does not say so", "same_key_same_bits", step=noisy_step)
twin_of("sgd", "memory outside the state", "same_key_same_bits resumes_to_the_bit", step=after(ticks))
twin_of("sgd", "moves what is frozen", "frozen_leaves_stay", **told(unfrozen))
twin_of("von", "moves what is frozen", "frozen_leaves_stay", **told(unfrozen))
for name in ("sgd", "ivon", "conjugate"):
    twin_of(name, "mask ignored", "padding_changes_nothing", **seen(lambda b: replace(b, mask=jnp.ones_like(b.mask))))
twin_of(
    "adam of classes",
    "padded rows counted",
    "padding_changes_nothing",
    **seen(lambda b: replace(b, weight=b.weight * b.count / b.mask.size)),
)


@record
class Maskless(BatchNorm):
    def apply(self, params: Any, state: Any, x: Any, train: bool, mask: Any) -> Any:
        return super().apply(params, state, x, train, None)


twin(
    of("adam of batch statistics"),
    "statistics of padded rows",
    "padding_changes_nothing",
    adam(0.05),
    problem=normalised(Maskless()),
)
double = "twice_the_data_and_the_prior_is_the_same_path"
summed = told(lambda o: replace(o, likelihood_power=o.data_size))
for name in ("sgd", "von", "conjugate"):
    twin_of(name, "a sum for a mean", f"{double} mode_is_a_fixed_point", **summed)
    if name != "conjugate":  # its prior is κ (δ / N): N counts once there, or not at all
        twin_of(
            name, "N counted twice", "mode_is_a_fixed_point", **told(lambda o: replace(o, data_size=o.data_size**2))
        )
for name in ("sgd", "von", "map_estimate", "conjugate"):
    twin_of(name, "prior dropped", "mode_is_a_fixed_point", **told(flat))
half = "half_the_temperature_is_twice_the_precision"
for name in ("von", "laplace", "conjugate"):
    twin_of(name, "inverted temperature", half, **told(lambda o: replace(o, temperature=1 / o.temperature)))
    twin_of(name, "standard deviation for variance", half, **told(lambda o: replace(o, temperature=o.temperature**0.5)))
    twin_of(name, "temperature forgotten", half, **told(lambda o: replace(o, temperature=1.0)))
twin_of("laplace", "key of its own", "posterior_is_of_the_state", posterior=lambda of, _, *a: of.posterior(key(0), *a))
twin_of(
    "adam",
    "model of its own",
    "posterior_is_of_the_state",
    posterior=lambda of, key, state, o, *a: of.posterior(key, state, replace(o, model=classes.model), *a),
)
twin_of(
    "ivon",
    "a temperature that is not said",
    "posterior_is_of_the_state",
    posterior=lambda of, *a: replace(of.posterior(*a), temperature=1.0),
)
uphill = after(lambda old, new: replace(new, mean=reflected(old.mean, new.mean)))
for name in ("gradient_descent", "adam", "von", "ivon"):
    twin_of(name, "sign", "steps_descend", step=uphill)
twin_of(
    "von",
    "sign of the noise",
    "learned_noise_is_the_residuals",
    step=after(lambda a, b: replace(b, rest=reflected(a.rest, b.rest))),
)
twin_of(
    "ivon",
    "noise summed for averaged",
    "learned_noise_is_the_residuals",
    step=after(lambda a, b: replace(b, rest=jax.tree.map(lambda old, new: old + 400 * (new - old), a.rest, b.rest))),
)
twin_of(
    "adam",
    "noise held",
    "learned_noise_is_the_residuals",
    step=after(lambda a, b: replace(b, mean={**b.mean, "likelihood": a.mean["likelihood"]})),
)


def counted_from_one(rate: Any) -> Any:
    one = lambda of, *a: (lambda state: replace(state, count=state.count + 1))(of.init(*a))
    return Broken(sgd(rate), (("init", one),))


twin(of("sgd"), "counted from one", "first_step_is_number_zero", sgd(0.1), with_rate=counted_from_one)
twin(
    of("adam"),
    "a schedule read once",
    "first_step_is_number_zero",
    adam(0.1),
    with_rate=lambda rate: adam(float(rate(0))),
)
