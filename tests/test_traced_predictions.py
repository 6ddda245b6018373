"""A prediction as a function of its inputs, which JAX compiles, maps and differentiates."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamu
from lamu.families import Gaussian, Product
from lamu.operators import Scalar

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=30)
MODEL = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian())
ALGORITHMS = {
    "linearised": lamu.algorithms.laplace(),
    "sampled": lamu.algorithms.ivon(),
    "pooled": lamu.algorithms.deep_ensemble(lamu.algorithms.adam(), members=2),
}
ANSWERS = {
    "mean": lambda pred: pred.mean,
    "std": lambda pred: pred.std,
    "interval": lambda pred: jnp.stack(pred.interval(0.9)),
    "log_prob": lambda pred: pred.log_prob(jnp.asarray(Y[:3])),
}


@pytest.mark.parametrize("rule", ALGORITHMS)
def test_a_prediction_is_a_function_of_its_inputs(rule: str) -> None:
    """Compiled and mapped it is the same, its gradient that of differences; with an offset too."""
    posterior = lamu.fit(MODEL, (X, Y), ALGORITHMS[rule], steps=2, progress=False).posterior
    x = jnp.asarray(X[:3])

    def answers(x: Any) -> dict[str, Any]:
        pred = posterior.predict(x, offset=0.1 * x[:, 0])
        return {name: answer(pred) for name, answer in ANSWERS.items()}

    plain = answers(x)
    assert_equal(jax.jit(answers)(x), plain)
    assert_equal(jax.tree.map(lambda leaf: leaf[1], jax.vmap(answers)(jnp.stack([x + 1.0, x]))), plain)

    std = lambda x: posterior.predict(x).std.sum()
    step = 1e-4 * jnp.asarray([[1.0, -1.0], [0.5, 2.0], [0.0, 1.0]])
    change = jnp.sum(jax.grad(std)(x) * step)
    np.testing.assert_allclose(change, (std(x + step) - std(x - step)) / 2, rtol=1e-4)


def assert_equal(one: Any, other: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8), one, other)


def test_a_product_draws_the_same_numbers_in_a_compiled_function() -> None:
    """JAX sorts the names of a dictionary that it passes on; `network` was made first."""
    belief = Product(
        {"network": Gaussian(jnp.zeros(2), Scalar(1.0)), "likelihood": Gaussian(jnp.zeros(1), Scalar(4.0))}
    )
    for draw in (lambda belief: belief.sample(jax.random.key(0)), lambda belief: belief.draws(jax.random.key(0), 3)):
        assert_equal(jax.jit(draw)(belief), draw(belief))


def test_a_fit_is_no_function_that_jax_transforms() -> None:
    """It failed in JAX's words, a TracerArrayConversionError or a TracerBoolConversionError."""
    fitted = lambda x: lamu.fit(MODEL, (x, Y), lamu.algorithms.adam(), steps=1).posterior.predict(X[:1]).mean
    scaled = lambda x: MODEL.standardised(x, Y).network.shift
    for function in (fitted, scaled):
        with pytest.raises(TypeError, match=r"reads its data as numbers, .* transform posterior\.predict"):
            jax.jit(function)(jnp.asarray(X))
