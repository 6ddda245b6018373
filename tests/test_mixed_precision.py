"""Passes of a network in bfloat16 under a belief in full precision."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.extend.core as core
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.data import Batch
from lamu.families import Gaussian
from lamu.networks import (
    LSTM,
    MLP,
    BatchNorm,
    ConvNet,
    Embedded,
    GroupNorm,
    Linear,
    MixedPrecision,
    OneHot,
    Standardised,
    Transformer,
)
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import GaussNewton, LowRankGradients, SquaredGradients
from lamu.operators import Dense, Diagonal
from tests.for_each import for_each

X = jax.random.normal(jax.random.key(1), (40, 5))
Y = jnp.sin(X[:, 0]) + 0.3 * X[:, 1]
PLAIN = MLP((8,), activation="tanh")
CODED = jnp.concatenate([X[:, :2], jnp.arange(40.0)[:, None] + 270.0], axis=1)


def model_of(network: object, compute: bool = True) -> lamu.Model:
    return lamu.Model(MixedPrecision(network) if compute else network, lamu.likelihoods.Gaussian(scale=0.5))


@pytest.mark.stress
@for_each(
    "network, x",
    [
        (PLAIN, X),
        (MLP((8,), normalise=BatchNorm()), X),
        (MLP((8,), normalise=GroupNorm(2)), X),
        (ConvNet((4,), normalise=GroupNorm(2)), jax.random.normal(jax.random.key(0), (6, 8, 8))),
        (Transformer(depth=1, width=8, heads=2), jax.random.normal(jax.random.key(0), (6, 4, 3))),
        (LSTM((5,)), jax.random.normal(jax.random.key(0), (6, 4, 3))),
        (Embedded(MLP((8,)), levels=(0, 0, 310)), CODED),
    ],
)
def test_networks_in_bfloat16(network: object, x: jax.Array) -> None:
    """Outputs and states keep their dtypes, and are those of full precision to the digits that bfloat16 has."""
    params, state = network.init(jax.random.key(0), x, 2)
    for train in (True, False):
        args = (params, state, x, jax.random.key(0), train, *((None,) if network.masked else ()))
        exact, of_exact = network.apply(*args)
        found, new = MixedPrecision(network).apply(*args[:5])
        assert found.dtype == exact.dtype
        assert jax.tree.map(jnp.result_type, new) == jax.tree.map(jnp.result_type, of_exact)
        scale = float(jnp.std(exact))
        np.testing.assert_allclose(found, exact, atol=0.05 * scale)
        assert not np.array_equal(found, exact)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=0.05, rtol=0.05), new, of_exact)


def test_products_are_narrow() -> None:
    """Every product of a pass and of its gradient takes factors of 16 bits."""
    model = model_of(PLAIN)
    batch = Batch.of(X, Y)
    params, state = model.init(jax.random.key(0), batch)
    loss = BatchLoss(Objective(model, 40), batch, state, NetworkParameters(), {})
    program = jax.make_jaxpr(lambda theta: loss.gradient(theta, None).coordinates)(params["network"])
    factors = [atom.aval.dtype for eqn in _equations(program.jaxpr) if eqn.primitive.name == "dot_general"
               for atom in eqn.invars]  # fmt: skip
    assert len(factors) >= 8
    assert set(factors) == {jnp.dtype("bfloat16")}
    assert all(aval.dtype == X.dtype for aval in program.out_avals)


def _equations(jaxpr: object) -> list[object]:
    found = list(jaxpr.eqns)
    for eqn in jaxpr.eqns:
        for inner in core.jaxprs_in_params(eqn.params):
            found += _equations(inner)
    return found


@pytest.mark.stress
@for_each(
    "curvature, structure",
    [
        (SquaredGradients(), Diagonal),
        (SquaredGradients(), Dense),
        (GaussNewton(), Diagonal),
        (GaussNewton(), Dense),
        (LowRankGradients(3), Diagonal),
        (SquaredGradients(), lamu.operators.kronecker.KroneckerFactored()),
    ],
)
def test_curvatures_keep_their_digits(curvature: object, structure: object) -> None:
    """Curvatures are those of full precision but for the rounded passes, and are not rounded themselves."""
    batch = Batch.of(X, Y)
    found = {}
    for compute in (False, True):
        model = model_of(PLAIN, compute)
        params, state = model.init(jax.random.key(0), batch)
        theta = params["network"]
        loss = BatchLoss(Objective(model, 40), batch, state, NetworkParameters(), {}, conjugate=True)
        belief = Gaussian(theta, Diagonal(jax.tree.map(jnp.ones_like, theta)))
        at = jax.jit(lambda theta: curvature.evaluate(loss, theta, belief, structure, None))(theta)  # noqa: B023  (called at once)
        found[compute] = (at.gradient, at.curvature.diagonal(theta))
    for exact, narrow in zip(jax.tree.leaves(found[False]), jax.tree.leaves(found[True]), strict=True):
        assert narrow.dtype == exact.dtype
        np.testing.assert_allclose(narrow, exact, atol=0.05 * float(jnp.max(jnp.abs(exact))))
    squares = jax.tree.leaves(found[True][1])
    rounded = [leaf.astype(jnp.bfloat16).astype(leaf.dtype) for leaf in squares]
    kept = [float(jnp.mean(leaf != short)) for leaf, short in zip(squares, rounded, strict=True)]
    assert min(kept) > 0.4, kept  # a sum that was rounded to 8 digits would be one of bfloat16's numbers


@pytest.mark.stress
@for_each(
    "algorithm",
    [
        lamu.algorithms.ivon(),
        lamu.algorithms.noisy_kfac(),  # layers' products, as laplace
        lamu.algorithms.last_layer(),
        lamu.mcmc.sgld(draws=20),
    ],
)
def test_states_stay_wide(algorithm: object) -> None:
    """Every floating number of a run's state and posterior is in the data's precision."""
    length = {} if algorithm.traits.length is not None else {"epochs": 2}
    fit = lamu.fit(model_of(PLAIN), (X, Y), algorithm, batch_size=20, **length)
    leaves = jax.tree.leaves((fit.state, fit.posterior.belief))
    floats = {leaf.dtype for leaf in leaves if jnp.issubdtype(getattr(leaf, "dtype", int), jnp.floating)}
    assert floats == {X.dtype}
    assert bool(jnp.all(jnp.isfinite(fit.posterior.predict(X).mean)))


@pytest.mark.stress
@for_each("size, temperature", [(40.0, 1.0), (400.0, 1.0), (40.0, 0.25), (400.0, 0.25)])
def test_precision_has_size_and_temperature_once(size: float, temperature: float) -> None:
    """The precision of a belief is that of full precision at every N and T."""
    start = {}
    for compute in (False, True):
        fit = lamu.fit(
            model_of(PLAIN, compute), (X, Y), lamu.algorithms.vogn(), steps=30, batch_size=40, data_size=size,
            temperature=temperature, seed=1,
        )  # fmt: skip
        start[compute] = fit.posterior.belief.factors["network"].precision.diagonal(fit.posterior.mean["network"])
    total = {
        compute: float(sum(jnp.sum(leaf) for leaf in jax.tree.leaves(leaves))) for compute, leaves in start.items()
    }
    assert abs(total[True] / total[False] - 1) < 0.05, total


@pytest.mark.stress
def test_posterior_is_saved_with_it(tmp_path: object) -> None:
    """A saved posterior is printed, loaded and predicts in the same precision; the base predicts in full."""
    posterior = lamu.fit(model_of(PLAIN), (X, Y), lamu.algorithms.ivon(), epochs=2).posterior
    posterior.save(tmp_path / "saved")
    again = lamu.load(tmp_path / "saved")
    assert "bfloat16" in repr(again.model.network)
    np.testing.assert_array_equal(again.predict(X).mean, posterior.predict(X).mean)
    whole = replace(posterior, model=replace(posterior.model, network=PLAIN)).predict(X).mean
    assert 0.0 < float(jnp.max(jnp.abs(whole - posterior.predict(X).mean))) < 0.05


def test_standardising_stays_outside() -> None:
    """Inputs are standardised in full precision, of which 1,000,001 and 1,000,002 differ."""
    x = 1e6 + X
    model = model_of(PLAIN).standardised(x, Y)
    assert isinstance(model.network, Standardised)
    assert isinstance(model.network.base, MixedPrecision)
    params, state = model.init(jax.random.key(0), Batch.of(x, Y))
    exact = replace(model, network=replace(model.network, base=PLAIN)).outputs(params, state, x)[0]
    np.testing.assert_allclose(model.outputs(params, state, x)[0], exact, atol=0.05 * float(jnp.std(exact)))


@for_each(
    "make, sentence",
    [
        (lambda: MixedPrecision(PLAIN, "float16"), "give 'bfloat16'"),
        (lambda: MixedPrecision(PLAIN, "half-ish"), "give 'bfloat16'"),
        (lambda: MixedPrecision(Standardised(PLAIN, X[0], X[1])), r"put it outside, Standardised\(MixedPrecision"),
        (lambda: MixedPrecision(OneHot(LSTM((3,)), 5)), "put it outside"),
    ],
)
def test_refusals(make: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


def test_a_rounded_linear_map_is_not_linear() -> None:
    assert Linear().linear
    assert not MixedPrecision(Linear()).linear
