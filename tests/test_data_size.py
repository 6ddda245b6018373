"""`data_size` N other than the number of rows n: the data weigh as N rows, whatever the algorithm (docs/scale.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
import pytest

import lamu
from lamu.algorithms import (
    conjugate,
    laplace,
    last_layer,
    map_estimate,
    neural_linear,
    online_laplace,
    variational_head,
)
from lamu.algorithms.closed_form.message_passing import svi
from lamu.families import Gamma, NormalGamma
from lamu.model import Model
from lamu.objective import Objective
from lamu.observations import Normal, Poisson
from lamu.priors import Normal as NormalPrior

rng = np.random.default_rng(8)
TIMES, ROWS = 4, 12
X = rng.normal(size=(ROWS, 2))
Y = X @ np.array([1.0, -2.0]) + 0.4 * rng.normal(size=ROWS)
COUNTS = rng.poisson(3.0, ROWS)
LINEAR = Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.4), NormalPrior(1.3))
LEARNED = Model(lamu.networks.MLP((3,), "tanh"), lamu.likelihoods.Gaussian())
KNOWN = Model(lamu.networks.MLP((3,), "tanh"), lamu.likelihoods.Gaussian(0.4))
GAMMA = lamu.ConjugateModel(Poisson(), Gamma(2.0, 1.5))
NUMBERS = lamu.ConjugateModel(Normal(), NormalGamma(0.3, 0.8, 1.7, 1.2))


def point() -> Any:
    return map_estimate(optax.sgd(0.05))


CASES: dict[str, tuple[Model, Any, Callable[[], Any]]] = {
    "conjugate regression": (LINEAR, (X, Y), conjugate),
    "conjugate counts": (GAMMA, {"y": COUNTS}, conjugate),
    "conjugate numbers": (NUMBERS, {"y": Y}, conjugate),
    "svi": (GAMMA, {"y": COUNTS}, svi),
    "laplace": (KNOWN, (X, Y), lambda: laplace(point())),
    "last_layer": (KNOWN, (X, Y), lambda: last_layer(point())),
    "online_laplace": (KNOWN, (X, Y), lambda: online_laplace(point())),
    "neural_linear": (LEARNED, (X, Y), lambda: neural_linear(point())),
    "variational_head": (KNOWN, (X, Y), lambda: variational_head(optax.sgd(0.01))),
}


def repeated(data: Any) -> Any:
    if isinstance(data, dict):
        return {"y": np.concatenate([data["y"]] * TIMES)}
    return tuple(np.concatenate([part] * TIMES) for part in data)


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_data_size_is_rows_repeated(name: str) -> None:
    """Belief and evidence: N = 4 n is every row four times, at any temperature."""
    model, data, algorithm = CASES[name]
    length: dict[str, Any] = {} if name.startswith("conjugate") else {"steps": 5}
    run: Callable[..., Any] = lambda data, size, **more: (
        lamu.fit(model, data, algorithm(), batch_size=size, temperature=0.5, **length, **more).posterior
    )
    # The closed forms in parts, whose last one is padded; what takes steps sees all rows at each.
    size = 5 if name.startswith("conjugate") else ROWS
    told = run(data, size, data_size=TIMES * ROWS)
    shown = run(repeated(data), size if size < ROWS else TIMES * ROWS)
    assert jax.tree.structure(told.belief) == jax.tree.structure(shown.belief)
    for one, other in zip(jax.tree.leaves(told.belief), jax.tree.leaves(shown.belief), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)
    assert (told.evidence is None) == (shown.evidence is None)
    if told.evidence is not None:
        np.testing.assert_allclose(told.evidence, shown.evidence, rtol=1e-8)


def test_data_size_holds_for_streams_and_in_a_loop_of_ones_own() -> None:
    from lamu.data import Batch

    told = lamu.fit(LINEAR, (X, Y), conjugate(), data_size=TIMES * ROWS).posterior
    batches = [Batch.of(X[:5], Y[:5]), Batch.of(X[5:], Y[5:])]
    stream = lamu.fit(LINEAR, batches, conjugate(), data_size=TIMES * ROWS).posterior
    objective, algorithm = Objective(LINEAR, TIMES * ROWS), conjugate()
    state = algorithm.init(jax.random.key(0), objective, batches[0])
    for batch in batches:
        state, _ = algorithm.step(jax.random.key(1), state, batch, objective)
    by_hand = algorithm.posterior(jax.random.key(2), state, objective, None, None)
    for other in (stream, by_hand):
        np.testing.assert_allclose(told.evidence, other.evidence, rtol=1e-10)
        for a, b in zip(jax.tree.leaves(told.belief), jax.tree.leaves(other.belief), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10)
