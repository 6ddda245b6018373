"""What wraps an algorithm forwards all that the loop asks, and nothing that the loop asks is found by its name."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.algorithms import (
    adam,
    deep_ensemble,
    dropout,
    laplace,
    last_layer,
    mc_dropout,
    mixture,
    neural_linear,
    online_laplace,
    swag,
    von,
)
from lamu.data import Batch
from lamu.networks import MLP, Dropout, Linear
from lamu.objective import Objective
from lamu.operators import Dense
from lamu.protocol import Algorithm, Info, Runnable, Wrapper, runnable
from lamu.record import record

rng = np.random.default_rng(5)
X = rng.normal(size=(40, 3))
Y = X @ np.array([1.0, -0.5, 0.3]) + 0.3 * rng.normal(size=40)
CLASSES = (Y > 0).astype(np.int32)
MODEL = lamu.Model(MLP((4,), "tanh", dropout=Dropout(0.2)), lamu.likelihoods.Gaussian())
OBJECTIVE, BATCH = Objective(MODEL, 40.0), Batch.of(X, Y)


@record
class Noted(Wrapper):
    """An optimiser that says so when it is asked."""

    def check_memory(self, objective: Any, shapes: Any) -> None:
        raise ValueError(f"foreseen at N = {objective.data_size:g}")

    def explain_divergence(self, state: Any) -> str | None:
        assert hasattr(state, "precision"), "the optimiser's own state, of one run"
        assert jnp.ndim(state.count) == 0
        return "complained of"

    def preview(self, key: Any, state: Any, objective: Any) -> Any:
        PREVIEWED.append(key)
        return super().preview(key, state, objective)


PREVIEWED: list[Any] = []
NOTED = Noted(adam(0.01))
WRAPPERS = {
    "laplace": laplace(NOTED),
    "last_layer": last_layer(NOTED),
    "neural_linear": neural_linear(NOTED),
    "online_laplace": online_laplace(NOTED),
    "swag": lamu.rate.over(20, swag(NOTED)),
    "dropout": dropout(NOTED),
    "mc_dropout": mc_dropout(NOTED),
    "deep_ensemble": deep_ensemble(NOTED, members=2),
    "dropout of an ensemble": dropout(deep_ensemble(NOTED, members=2)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_forwards_what_the_loop_asks(name: str) -> None:
    algorithm: Any = WRAPPERS[name]
    assert isinstance(algorithm, Wrapper)
    shapes = jax.eval_shape(MODEL.init, jax.random.key(0), BATCH)[0]
    with pytest.raises(ValueError, match="foreseen at N = 40"):
        algorithm.check_memory(OBJECTIVE, lambda: shapes)
    state = algorithm.init(jax.random.key(0), OBJECTIVE, BATCH)
    assert algorithm.explain_divergence(state) == "complained of"
    if name != "online_laplace":  # which previews under the prior so far, by the point of what it wraps
        before = len(PREVIEWED)
        assert algorithm.preview(jax.random.key(1), state, OBJECTIVE).predict(X).mean.shape == (40,)
        assert len(PREVIEWED) > before


def test_every_recipe_is_runnable_and_what_wraps_is_a_wrapper() -> None:
    for name, recipe in {**lamu.algorithms.registry(), **lamu.mcmc.registry()}.items():
        algorithm = recipe.factory()
        assert isinstance(algorithm, Algorithm)
        assert isinstance(algorithm, Runnable), name
        assert isinstance(algorithm, Wrapper) == ("base" in vars(algorithm)), name


def test_a_class_that_declares_no_more_than_it_must_has_the_defaults() -> None:
    fitted = lamu.fit(MODEL, (X, Y), adam(), steps=1).posterior

    class Plain:
        traits, choices = adam().traits, adam().choices
        init = staticmethod(lambda key, objective, batch: jnp.zeros(()))
        step = staticmethod(lambda key, state, batch, objective: (state, Info(loss=state)))
        posterior = staticmethod(lambda key, state, objective, data, trace: replace(fitted, evidence=state))

    whole = runnable(Plain())
    assert whole.explain_divergence(None) is None
    assert whole.preview(jax.random.key(0), 1, OBJECTIVE).evidence == 1
    whole.check_memory(OBJECTIVE, dict)
    assert runnable(whole) is whole


def test_a_dense_matrix_in_an_ensemble_is_refused_before_any_step() -> None:
    model = lamu.Model(MLP((16, 16)), lamu.likelihoods.Gaussian())
    steps: list[int] = []
    with pytest.raises(ValueError, match="may be used; give structure=KroneckerFactored"):
        lamu.fit(
            model,
            (X, Y),
            deep_ensemble(laplace(structure=Dense), members=2),
            epochs=2,
            max_memory="300kB",
            callbacks=[lambda step, info: steps.append(step)],
        )
    assert steps == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: dropout(swag()),
        pytest.param(lambda: dropout(laplace()), marks=pytest.mark.stress),
        pytest.param(lambda: mc_dropout(swag()), marks=pytest.mark.stress),
    ],
)
def test_validation_asks_for_the_preview_of_what_is_wrapped(make: Any) -> None:
    model = lamu.Model(MLP((8,), dropout=Dropout(0.1)), lamu.likelihoods.Bernoulli())
    fit = lamu.fit(model, (X, CLASSES), make(), epochs=10, batch_size=8, validation=0.2)
    assert np.isfinite(fit.history["validation_nll"]).all()
    assert np.isfinite(lamu.scores.nll(fit.posterior.predict(X), CLASSES))


def test_an_ensemble_says_why_its_members_diverged() -> None:
    with pytest.raises((lamu.Diverged, ValueError), match="cone of positive matrices"):
        lamu.fit(
            lamu.Model(MLP((4,), "tanh"), lamu.likelihoods.Bernoulli()),
            (X, CLASSES),
            deep_ensemble(von(5.0), members=2),
            steps=60,
        )


def test_nothing_that_the_loop_asks_is_found_by_its_name() -> None:
    """`getattr` and `hasattr` for a member of the protocol: a name that a wrapper, or a slip of the pen, would lose."""
    members = {name for name in vars(Runnable) | vars(Algorithm) if not name.startswith("_")}
    assert {"preview", "check_memory", "explain_divergence", "init", "step", "posterior", "traits"} <= members
    found = []
    for path in sorted(Path(lamu.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) >= 2):
                continue
            name = node.args[1]
            if node.func.id in ("getattr", "hasattr") and isinstance(name, ast.Constant) and name.value in members:
                found.append(f"{path.name}:{node.lineno} {name.value}")
    assert found == [], found


def test_a_mixture_previews_with_equal_weights() -> None:
    model = lamu.Model(Linear(), lamu.likelihoods.Bernoulli())
    fit = lamu.fit(model, (X, CLASSES), mixture(components=2), epochs=3, validation=0.2)
    assert np.isfinite(fit.history["validation_nll"]).all()
