"""Weights, offsets and masks: what comes with the rows, and that everything which evaluates f counts the offset."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.data import Arrays, Batch, Stream
from lamu.data.batch import with_offset
from lamu.expectations import Quadrature
from lamu.families import Gaussian, Point, Product
from lamu.likelihoods.table import LIKELIHOODS
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import GaussNewton, Hessian, SquaredGradients
from lamu.operators import Dense
from tests.for_each import for_each

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 2))
OFFSET = rng.normal(size=30)
Y = X @ np.array([1.0, -2.0]) + OFFSET + 0.3 * rng.normal(size=30)
BINARY = (X @ np.array([1.0, -2.0]) + 2 * OFFSET + rng.logistic(size=30) > 0).astype(int)
KEY = jax.random.key(0)
NOISE = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.3))
LOGIT = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())


def layer(theta: Any) -> Any:
    return theta["layers"][0]


def weights(bias: Any, kernel: Any) -> Any:
    return {"layers": {0: {"bias": bias, "kernel": kernel}}}


def loss_of(model: Any, batch: Batch) -> tuple[BatchLoss, Any]:
    params, state = model.init(jax.random.key(1), batch)
    theta = jax.tree.map(lambda leaf: leaf + 0.3, params["network"])
    return BatchLoss(Objective(model, 30.0), batch, state, NetworkParameters(), {}, conjugate=True), theta


def newton(offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mode and Hessian of Bayesian logistic regression with an offset, in NumPy; prior N(0, 1)."""
    design = np.column_stack([np.ones(30), X])
    theta = np.zeros(3)
    for _ in range(50):
        p = 1 / (1 + np.exp(-(design @ theta + offset)))
        precision = design.T @ (design * (p * (1 - p))[:, None]) + np.eye(3)
        theta = theta - np.linalg.solve(precision, design.T @ (p - BINARY) + theta)
    return theta, precision


def test_an_offset_of_a_gaussian_is_a_shift_of_its_targets() -> None:
    """Loss, gradient and every curvature, in a batch with padding."""
    with_it = Batch.of(X, Y, OFFSET).padded(40)
    without = Batch.of(X, Y - OFFSET).padded(40)
    for curvature in (GaussNewton(), SquaredGradients()):

        @jax.jit
        def evaluate(loss: BatchLoss, theta: Any, curvature: Any = curvature) -> Any:
            return curvature.evaluate(loss, theta, Gaussian(theta, Dense(jnp.eye(3))), Dense, None)

        one, other = (evaluate(*loss_of(NOISE, batch)) for batch in (with_it, without))
        np.testing.assert_allclose(one.value, other.value, rtol=1e-10)
        for a, b in zip(jax.tree.leaves(one.gradient), jax.tree.leaves(other.gradient), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(one.curvature.matrix, other.curvature.matrix, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("curvature", [GaussNewton(), SquaredGradients(), "quadrature"])
def test_an_offset_of_a_logit_is_a_bias_of_each_row(curvature: Any) -> None:
    """Beside a column of x that holds the offset, with a weight of one: f is the same, and so is what comes of it."""
    plain, theta = loss_of(LOGIT, Batch.of(X, BINARY, OFFSET))
    wide = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())
    known, _ = loss_of(wide, Batch.of(np.column_stack([X, OFFSET]), BINARY))
    longer = weights(layer(theta)["bias"], jnp.concatenate([layer(theta)["kernel"], jnp.ones((1, 1))]))
    np.testing.assert_allclose(plain.outputs(theta), known.outputs(longer), rtol=1e-12)

    def at(loss: BatchLoss, mean: Any, size: int) -> Any:
        # The added weight is certain, so that both beliefs are about the same.
        precision = Dense(jnp.diag(jnp.concatenate([4 * jnp.ones(3), jnp.full(size - 3, 1e12)])))
        belief = Gaussian(mean, precision)
        if curvature == "quadrature":
            return jax.jit(lambda loss: Quadrature(16).evaluate(KEY, belief, loss, Hessian(), Dense))(loss)
        return jax.jit(lambda loss: curvature.evaluate(loss, mean, belief, Dense, None))(loss)

    one, other = at(plain, theta, 3), at(known, longer, 4)
    np.testing.assert_allclose(one.value, other.value, rtol=1e-7)
    np.testing.assert_allclose(layer(one.gradient)["kernel"], layer(other.gradient)["kernel"][:2], rtol=1e-6)
    np.testing.assert_allclose(one.curvature.matrix, other.curvature.matrix[:3, :3], rtol=1e-6)


def test_conjugate_with_an_offset_is_conjugate_without_it() -> None:
    algorithm = lamu.algorithms.conjugate()
    one = lamu.fit(NOISE, {"x": X, "y": Y, "offset": OFFSET}, algorithm, batch_size=8).posterior
    other = lamu.fit(NOISE, (X, Y - OFFSET), algorithm, batch_size=8).posterior
    for a, b in zip(jax.tree.leaves(one.belief), jax.tree.leaves(other.belief), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.evidence, other.evidence, rtol=1e-10)
    shifted, plain = one.predict(X[:5], offset=OFFSET[:5]), other.predict(X[:5])
    np.testing.assert_allclose(shifted.mean, plain.mean + OFFSET[:5], rtol=1e-9)
    np.testing.assert_allclose(shifted.variance, plain.variance, rtol=1e-9)


def test_laplace_with_an_offset_is_newtons_method_by_hand() -> None:
    """The mode and the precision; an offset that is forgotten in either is far off."""
    rows = Arrays.of({"x": X, "y": BINARY, "offset": OFFSET})
    mode, precision = newton(OFFSET)
    model = replace(LOGIT, prior=lamu.priors.Normal(1.0))
    posterior = lamu.fit(
        model, rows, lamu.algorithms.laplace(lamu.algorithms.gradient_descent(3.0)), steps=2000
    ).posterior
    belief = posterior.belief.factors["network"]
    np.testing.assert_allclose(lamu.tree.ravel(belief.mean)[0], mode, rtol=1e-6)
    np.testing.assert_allclose(belief.precision.matrix, precision, rtol=1e-6)


def drawn(likelihood: Any, outputs: int) -> lamu.Posterior:
    model = lamu.Model(lamu.networks.Linear(), likelihood)
    start, state = model.network.init(KEY, jnp.asarray(X), outputs)
    precision = Dense(4.0 * jnp.eye(lamu.tree.dimension(start)))
    belief = Product({"network": Gaussian(start, precision), "likelihood": Point({})})
    return lamu.Posterior(model, belief, state, lamu.predictives.Linearised(), jax.random.key(2))


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("rule", [lamu.predictives.Linearised(), lamu.predictives.Sampled()])
def test_predictions_count_the_offset(outputs: int, rule: Any) -> None:
    """Of each output, whatever the rule: the prediction with offset o is that of a bias which is o larger."""
    likelihood = lamu.likelihoods.Bernoulli() if outputs == 1 else lamu.likelihoods.Categorical(3)
    posterior = drawn(likelihood, outputs).with_rule(rule)
    offset = np.array([0.7]) if outputs == 1 else np.array([0.7, -0.4, 0.0])
    given = posterior.predict(X, offset=np.broadcast_to(offset, (30, outputs)))
    about = posterior.belief.factors["network"]
    moved = weights(layer(about.mean)["bias"] + offset, layer(about.mean)["kernel"])
    belief = Product({"network": replace(about, mean=moved), "likelihood": Point({})})
    expected = replace(posterior, belief=belief).predict(X)
    np.testing.assert_allclose(given.mean, expected.mean, rtol=1e-9)
    np.testing.assert_allclose(given.epistemic, expected.epistemic, rtol=1e-7, atol=1e-12)
    if outputs == 1:
        np.testing.assert_allclose(posterior.predict(X, offset=np.full(30, 0.7)).mean, given.mean, rtol=1e-12)


def test_an_offset_that_does_not_fit_is_one_sentence() -> None:
    posterior = drawn(lamu.likelihoods.Categorical(3), 3)
    for offset, said in (
        (np.zeros(29), r"offset has the shape \(29,\) and x 30 rows"),
        (1.0, r"offset has the shape \(\)"),
        (np.zeros((30, 2)), "offset has 2 numbers a row and f has 3 outputs"),
        (np.full(30, -np.inf), "the offset holds NaN or infinity"),
    ):
        with pytest.raises(ValueError, match=said) as caught:
            posterior.predict(X, offset=offset)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="one number a row"):
        with_offset(jnp.zeros((3, 2)), jnp.zeros((3, 1)))


def test_arrays_carry_the_offset_and_leave_out_masked_rows() -> None:
    mask = np.ones(30, bool)
    mask[[3, 7]] = False
    x = X.copy()
    x[3] = np.nan  # never looked at
    rows = Arrays.of({"x": x, "y": Y, "offset": OFFSET, "weight": np.arange(30.0), "mask": mask})
    assert rows.count == 28
    np.testing.assert_array_equal(rows.offset, OFFSET[mask])
    np.testing.assert_array_equal(rows.weight, np.arange(30.0)[mask])
    np.testing.assert_array_equal(rows.x, X[mask])
    batches = list(rows.batches(8))
    np.testing.assert_array_equal(np.concatenate([batch.offset for batch in batches])[:28], OFFSET[mask])
    assert {batch.offset.shape for batch in batches} == {(8,)}
    assert rows.full().offset.shape == (28,)
    assert rows.example(2).offset.tolist() == OFFSET[:2].tolist()
    assert Arrays.of((X, Y)).full().offset is None
    wide = Arrays.of({"x": jnp.asarray(X), "y": jnp.asarray(Y), "offset": np.ones((30, 3), int), "mask": mask * 1.0})
    assert wide.example(4).offset.shape == (4, 3)
    assert wide.offset.dtype == wide.x.dtype


@for_each(
    "extra, said",
    [
        ({"offset": OFFSET[:4]}, r"offset has the shape \(4,\)"),
        ({"offset": np.full(30, np.inf)}, "offset is NaN or infinite"),
        ({"mask": np.ones(4)}, r"mask has the shape \(4,\)"),
        ({"mask": np.full(30, 0.5)}, "mask is 0.5 in row 0"),
        ({"mask": np.full(30, np.nan)}, "mask is nan in row 0"),
        ({"mask": np.zeros(30)}, "mask is zero in all 30 rows"),
        ({"offsets": OFFSET}, r"'offsets'; did you mean 'offset'\?"),
    ],
)
def test_extras_that_do_not_fit_are_one_sentence(extra: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        Arrays.of({"x": X, "y": Y, **extra})
    assert "\n" not in str(caught.value)


def test_streams_carry_extras_of_mappings_and_batches() -> None:
    mask = np.array([1, 0, 1, 1])
    first = {"x": X[:4], "y": Y[:4], "offset": OFFSET[:4], "weight": np.arange(4.0), "mask": mask}
    second = Batch.of(X[4:10], Y[4:10], OFFSET[4:10])
    stream = Stream([first, second])
    one, other = stream
    assert (one.count, other.count) == (3.0, 6.0)
    np.testing.assert_array_equal(one.offset[:3], OFFSET[[0, 2, 3]])
    np.testing.assert_array_equal(one.weight[:3], [0.0, 2.0, 3.0])
    pieces = list(stream.batches(4))
    real = np.concatenate([np.asarray(piece.offset)[np.asarray(piece.mask) > 0] for piece in pieces])
    np.testing.assert_array_equal(real, OFFSET[[0, 2, 3, 4, 5, 6, 7, 8, 9]])
    assert stream.example(8).offset.shape == (8,)


@pytest.mark.parametrize("name", ["zero_inflated_poisson", "heteroscedastic"])
def test_one_number_a_row_is_added_where_the_target_lies(name: str) -> None:
    """An exposure is no log odds of a zero, and a shift of the mean no log deviation; both were shifted by it."""
    likelihood, second = LIKELIHOODS[name][1](0), 0.4
    model = lamu.Model(lamu.networks.Linear(), likelihood)
    offset = np.array([0.0, 1.0, 2.0])
    x, y = np.zeros((3, 1)), np.array([0.0, 2.0, 5.0])
    theta = {"network": weights(jnp.array([0.3, second]), jnp.zeros((1, 2))), "likelihood": {}}
    both = np.column_stack([offset, np.zeros(3)])
    of = lambda given: model.read({"x": x, "y": y, "offset": given}).full()
    by_row, by_output = (model.log_likelihood(theta, {}, of(given))[0] for given in (offset, both))
    np.testing.assert_allclose(by_row, by_output)
    f = np.column_stack([0.3 + offset, np.full(3, second)])
    np.testing.assert_allclose(by_row, likelihood.log_prob({}, jnp.asarray(f), jnp.asarray(y)), rtol=1e-6)
    posterior = replace(lamu.fit(model, (x, y), lamu.algorithms.adam(1e-2), steps=1).posterior, belief=Point(theta))
    pred, other = (posterior.predict(x, offset=given) for given in (offset, both))
    np.testing.assert_allclose(pred.mean, other.mean)
    np.testing.assert_allclose(pred.variance, other.variance)
