"""SGD and Adam come out of the rule: equal to optax on the mean loss, at two values of N, and without its help."""

from __future__ import annotations

import inspect
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

from lamu import tree
from lamu.algorithms import adam, gradient_descent, sgd
from lamu.data import Batch
from lamu.likelihoods import Categorical
from lamu.model import Model
from lamu.networks import MLP
from lamu.objective import Objective
from lamu.priors import Normal
from lamu.promotion import lenient

PAIRS = {
    "gradient_descent": (gradient_descent(0.1), optax.sgd(0.1)),
    "sgd": (sgd(0.05), optax.sgd(0.05)),
    "sgd with momentum": (sgd(0.05, momentum=0.9), optax.sgd(0.05, momentum=0.9)),
    "sgd on a schedule": (
        sgd(optax.cosine_decay_schedule(0.1, 100)),
        optax.sgd(optax.cosine_decay_schedule(0.1, 100)),
    ),
    "adam": (adam(1e-2), optax.adam(1e-2)),
    "adam, other decays": (adam(1e-2, b1=0.8, b2=0.95, eps=1e-4), optax.adam(1e-2, b1=0.8, b2=0.95, eps=1e-4)),
}


@pytest.mark.parametrize("rows", [24, 60])
@pytest.mark.parametrize("name", PAIRS)
def test_hundred_steps_are_optaxs(name: str, rows: int) -> None:
    """The mean loss by hand: the average of the batch's real rows, and the prior over N, which differs with N."""
    ours, theirs = PAIRS[name]
    generator = np.random.default_rng(rows)
    x, y = generator.normal(size=(rows, 3)), generator.integers(0, 3, rows).astype(np.int32)
    model = Model(MLP((4,), "tanh"), Categorical(3), Normal(0.7))
    objective = Objective(model, rows)
    # Sixteen rows at a time: the last batch is short, and padded for us.
    parts = [(x[i : i + 16], y[i : i + 16]) for i in range(0, rows, 16)]
    batches = [Batch.of(*part).padded(16) for part in parts]

    state = ours.init(jax.random.key(0), objective, batches[0])
    params = state.mean
    memory = theirs.init(params)

    def mean_loss(params, x, y):
        f = model.network.apply(params["network"], {}, x, None, True)[0]
        nll = optax.softmax_cross_entropy_with_integer_labels(f, y).mean()
        weights = tree.ravel(params["network"])[0]
        prior = 0.5 * (weights**2).sum() / 0.7**2
        return nll + prior / rows

    gradient, step = jax.jit(jax.grad(mean_loss)), jax.jit(ours.step)
    for t in range(100):
        state, _ = step(jax.random.key(t), state, batches[t % len(batches)], objective)
        plain_x, plain_y = map(jax.numpy.asarray, parts[t % len(parts)])
        with lenient():  # optax is not written for strict promotion
            updates, memory = theirs.update(gradient(params, plain_x, plain_y), memory, params)
        params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(tree.ravel(state.mean)[0], tree.ravel(params)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("recipe", [gradient_descent, sgd, adam])
def test_the_recipes_do_not_import_optax(recipe) -> None:
    assert "import optax" not in Path(inspect.getfile(recipe)).read_text()
