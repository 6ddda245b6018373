"""A prediction some rows at a time is the prediction of all rows at once, and holds no more than some rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.core import Tracer

import lamu
from lamu import memory
from lamu.families import Ensemble, Gaussian, Point, Product
from lamu.operators import Diagonal
from lamu.predictives import (
    Deferred,
    GaussianPredictive,
    Linearised,
    MixturePredictive,
    Pooling,
    Prepared,
    Sampled,
    Weighted,
    linearised,
    padding,
    sampled,
)
from lamu.predictives import lazy as chunking

rng = np.random.default_rng(0)
N, ROWS, DRAWS = 11, 4, 6
X, OFFSET = rng.normal(size=(N, 2)), rng.normal(size=N)
TARGETS = {"regression": rng.normal(size=N), "binary": np.arange(N) % 2, "classes": np.arange(N) % 3}
NOISE, BOTH = lamu.likelihoods.Gaussian(), lamu.likelihoods.Gaussian(0.5)
LOGIT, CLASSES = lamu.likelihoods.Bernoulli(), lamu.likelihoods.Categorical(3)


def posterior_of(likelihood: Any, rule: Any, outputs: int = 1, members: int = 0) -> lamu.Posterior:
    model = lamu.Model(lamu.networks.MLP((3,), "tanh"), likelihood)

    def belief(seed: int) -> Product:
        weights, _ = model.network.init(jax.random.key(seed), jnp.asarray(X), outputs)
        precision = Diagonal(jax.tree.map(lambda leaf: jnp.full_like(leaf, 4.0), weights))
        noise = {"log_scale": jnp.full(outputs, -0.5)} if likelihood is NOISE else {}
        return Product({"network": Gaussian(weights, precision), "likelihood": Point(noise)})

    whole: Any = belief(1)
    if members:
        whole = Ensemble(jax.tree.map(lambda *leaves: jnp.stack(leaves), *[belief(k) for k in range(members)]))
    return lamu.Posterior(model, whole, {}, rule, jax.random.key(3))


CASES = {
    "regression": (posterior_of(NOISE, Sampled()), MixturePredictive),
    "pooled classes": (posterior_of(CLASSES, Pooling(Sampled()), 3, members=2), Weighted),
    "linearised classes": (posterior_of(CLASSES, Linearised(), 3), MixturePredictive),
    "linearised outputs": (posterior_of(BOTH, Linearised(), 2), GaussianPredictive),
    "pooled binary": (posterior_of(LOGIT, Pooling(Linearised()), members=2), Weighted),
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the budget to nothing, and gives the numbers of rows that the network has seen."""
    seen: list[int] = []

    def counting(function: Any, place: int) -> Any:
        def counted(*arguments: Any) -> Any:
            if not isinstance(arguments[place], Tracer):  # a shape is no row
                seen.append(arguments[place].shape[0])
            return function(*arguments)

        return counted

    monkeypatch.setattr(memory, "budget", lambda: 0)
    monkeypatch.setattr(padding, "MOST", ROWS)
    monkeypatch.setattr(chunking, "room_for", lambda *_: ROWS)  # which a budget of nothing would make one
    monkeypatch.setattr(sampled, "_outputs", counting(sampled._outputs, 3))
    monkeypatch.setattr(linearised, "_tangent", counting(linearised._tangent, 4))
    return seen


def questions(pred: Any, y: Any) -> dict[str, Any]:
    """What everybody may ask of the cases that are new to a question: the others share its code."""
    asked = {"mean": pred.mean, "epistemic": pred.epistemic, "log_prob": pred.log_prob(y), "left_out": pred.left_out(y)}
    asked |= {"sample": pred.sample(jax.random.key(0), 3)}
    if pred.task != "regression":
        table = np.array([[1.0, 0.0], [0.2, 0.5]] if pred.task == "binary" else [[1.0, 0.0, 0.0], [0.2, 0.5, 0.9]])
        return asked | {"prediction_set": pred.prediction_set(0.8), "decide": pred.decide(table)}
    if pred.mean.ndim == 2:
        return asked
    away = lambda targets: jnp.stack([-((targets - 0.3) ** 2), -jnp.abs(targets)])
    asked |= {name: getattr(pred, name) for name in ("variance", "std", "aleatoric", "total")}
    asked |= {"decide": pred.decide(away, samples=20), "cdf": pred.cdf(y)}
    return asked | {"interval": pred.interval(0.8), "quantile": pred.quantile(0.3)}


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_deferred_is_direct(case: str, request: pytest.FixtureRequest) -> None:
    posterior, kind = CASES[case]
    options: Any = {"samples": DRAWS, "offset": OFFSET if case == "regression" else None}
    whole = posterior.predict(X, **options)
    y = TARGETS[whole.task] if whole.mean.shape != (N, 2) else rng.normal(size=(N, 2))
    assert type(whole) is kind
    expected = jax.jit(questions)(whole, jnp.asarray(y))
    error = whole.monte_carlo_error(y)
    seen = request.getfixturevalue("small")
    pred = posterior.predict(X, **options)
    assert type(pred) is Deferred
    assert isinstance(pred.prepared, Prepared)
    pred = Deferred(pred.prepared, pred.x, pred.offset, ROWS)  # a budget of nothing is one row, and eleven passes
    assert not seen, "nothing is computed before it is asked"
    found = questions(pred, y)
    assert max(seen) == ROWS, "no more rows at once than were asked for"
    assert pred.task == whole.task
    np.testing.assert_allclose(pred.monte_carlo_error(y), error, rtol=1e-9)
    for name, value in expected.items():
        for one, other in zip(jax.tree.leaves(found[name]), jax.tree.leaves(value), strict=True):
            assert np.asarray(one).dtype == np.asarray(other).dtype
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=name)


def test_one_pass_answers_mean_variance_and_uncertainties(small: list[int]) -> None:
    pred = CASES["pooled binary"][0].predict(X, samples=DRAWS)
    pred = Deferred(pred.prepared, pred.x, pred.offset, ROWS)
    for name in ("mean", "variance", "aleatoric", "epistemic", "total", "std"):
        getattr(pred, name)
    pred.prediction_set(0.9)
    assert small == [ROWS] * 2 * 3  # two members


def test_the_budget_decides_how_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of six draws of three outputs takes 144 bytes, and for two members half as many draws each."""
    for case in ("pooled classes", "linearised classes"):
        posterior = CASES[case][0]
        monkeypatch.setattr(memory, "budget", lambda: N * 144)
        assert type(posterior.predict(X, samples=DRAWS)) is not Deferred
        monkeypatch.setattr(memory, "budget", lambda: N * 144 - 1)
        pred: Any = posterior.predict(X, samples=DRAWS)
        assert type(pred) is Deferred
        assert pred.rows == N - 1
    monkeypatch.setattr(memory, "budget", lambda: 1)
    assert posterior.predict(X, samples=DRAWS).rows == 1


def test_a_traced_prediction_is_never_deferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "budget", lambda: 0)
    posterior = CASES["pooled binary"][0]
    parts = posterior.model, posterior.belief, posterior.network_state
    predict = lambda x: posterior.rule.predict(*parts, x, DRAWS, jax.random.key(0)).mean
    mean = jax.jit(predict)(jnp.asarray(X))
    assert mean.shape == (N,)


def test_chunks_are_the_direct_predictive_of_their_rows(small: list[int]) -> None:
    pred: Any = CASES["regression"][0].predict(X, samples=DRAWS, offset=OFFSET)
    pred = Deferred(pred.prepared, pred.x, pred.offset, ROWS)
    parts = list(pred.chunks())
    assert [part.mean.shape[0] for _, part in parts] == [4, 4, 3]
    for here, part in parts:
        np.testing.assert_allclose(part.mean, pred.mean[here], rtol=1e-9)


def test_what_cannot_be_asked_is_one_sentence(small: list[int]) -> None:
    pred: Any = CASES["regression"][0].predict(X, samples=DRAWS)
    with pytest.raises(
        ValueError, match=r"the targets have the shape \(10,\); give one for each prediction, the shape \(11,\)"
    ):
        pred.log_prob(np.zeros(10))
    with pytest.raises(TypeError, match="ask its chunks"):
        jax.lax.map(pred.cdf, jnp.zeros((2, N)))
    with pytest.raises(TypeError, match="is a function of targets"):
        pred.decide(np.eye(2))
    classes: Any = CASES["pooled binary"][0].predict(X, samples=DRAWS)
    with pytest.raises(TypeError, match="use prediction_set"):
        classes.interval(0.9)


def test_what_is_random_in_a_row_is_its_own() -> None:
    """Noise depends on the row's number and on nothing beside it, and differs between rows."""
    for case in ("regression", "linearised outputs"):
        posterior = CASES[case][0]
        drawn = posterior.predict(X, samples=DRAWS).sample(jax.random.key(0), 3)
        tail = posterior.predict(X[7:], samples=DRAWS).sample(jax.random.key(0), 3, first=7)
        np.testing.assert_allclose(drawn[:, 7:], tail, rtol=1e-9)
        same = posterior.predict(np.broadcast_to(X[:1], (5, 2)), samples=DRAWS).sample(jax.random.key(0), 3)
        assert len(np.unique(np.asarray(same).reshape(3, 5, -1)[0], axis=0)) == 5
