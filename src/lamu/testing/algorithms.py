"""Laws of an algorithm: pure steps of one shape and precision, rows that are padding unseen, results that repeat."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.convergence import Unconverged
from lamu.data import Arrays, Batch
from lamu.likelihoods import Gaussian
from lamu.loop import fit
from lamu.model import Model
from lamu.networks import MLP
from lamu.objective import Objective
from lamu.posterior import load
from lamu.testing.laws import check, close

__all__ = ["ALGORITHM_LAWS", "check_algorithm"]

_N = 24


def _rows(dtype: Any = None) -> Arrays:
    numbers = np.random.default_rng(0)
    x = numbers.normal(size=(_N, 2))
    y = x @ [1.0, -0.5] + 0.3 * numbers.normal(size=_N)
    dtype = jnp.result_type(float) if dtype is None else dtype
    return Arrays.of((jnp.asarray(x, dtype), jnp.asarray(y, dtype)))


def _model() -> Model:
    return Model(MLP((4,)), Gaussian(0.3))


def _set_up(algorithm: Any, dtype: Any = None) -> tuple[Any, Objective, Batch]:
    batch, objective = _rows(dtype).full(), Objective(_model(), _N)
    return algorithm.init(jax.random.key(0), objective, batch), objective, batch


def _has_a_length(algorithm: Any) -> bool:
    """Whether the number of steps is the algorithm's own, as a chain's is."""
    return algorithm.traits.length is not None or algorithm.traits.batching == "once"


def _same(found: Any, due: Any, what: str, rtol: float = 1e-4) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(due), f"{what}: the state has another structure"
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(due), strict=True):
        if not jnp.issubdtype(jnp.result_type(a), jax.dtypes.prng_key):
            close(a, b, rtol, what, 1e-5)


def a_step_keeps_the_state(algorithm: Any) -> None:
    """Structure, shapes and dtypes of the state are the same after a step: it can be scanned, and compiles once."""
    for dtype in (jnp.float32, jnp.result_type(float)):
        state, objective, batch = _set_up(algorithm, dtype)
        shapes = lambda state: jax.tree.map(lambda leaf: (jnp.shape(leaf), jnp.result_type(leaf)), state)
        after, _ = jax.eval_shape(algorithm.step, jax.random.key(1), state, batch, objective)
        found = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), after)
        assert jax.tree.structure(after) == jax.tree.structure(state), f"the state of {dtype} changes its structure"
        assert found == shapes(state), f"the state of {dtype} changes shapes or dtypes in a step"


def a_step_is_a_pure_function(algorithm: Any) -> None:
    """The same key gives the same step, eager, compiled and again."""
    state, objective, batch = _set_up(algorithm)
    step = jax.jit(algorithm.step)
    first, again = (step(jax.random.key(1), state, batch, objective)[0] for _ in range(2))
    _same(again, first, "a step taken again", 0.0)
    _same(algorithm.step(jax.random.key(1), state, batch, objective)[0], first, "a compiled step")


def padding_is_not_seen(algorithm: Any) -> None:
    """Rows whose mask is zero change nothing, whatever stands in them."""
    state, objective, batch = _set_up(algorithm)
    padded = batch.padded(_N + 8)
    strange = Batch(x=padded.x.at[_N:].set(1e3), y=padded.y.at[_N:].set(-1e3), mask=padded.mask, weight=padded.weight)
    due = algorithm.step(jax.random.key(1), state, padded, objective)[0]
    _same(algorithm.step(jax.random.key(1), state, strange, objective)[0], due, "a step with other padding")


def the_loss_goes_down(algorithm: Any) -> None:
    """Over 200 epochs the mean loss of the last quarter is below that of the first steps."""
    if _has_a_length(algorithm):
        return
    history = fit(_model(), _rows(), algorithm, epochs=200, batch_size=_N, seed=0, progress=False).history
    loss = np.asarray(history["loss"], float)
    assert loss[-50:].mean() < loss[:3].mean(), (
        f"the loss is {loss[:3].mean():.3g} at first and {loss[-50:].mean():.3g} last"
    )


def a_fit_repeats_predicts_and_is_saved(algorithm: Any) -> None:
    """The same seed gives the same predictions, which are finite, and are those of the posterior read from disk."""
    rows = _rows()
    epochs = None if _has_a_length(algorithm) else 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Unconverged)  # three epochs are few, on purpose
        fits = [fit(_model(), rows, algorithm, epochs=epochs, batch_size=8, seed=3, progress=False) for _ in range(2)]
    one, other = (each.posterior for each in fits)
    pred = one.predict(rows.x)
    assert np.isfinite(pred.mean).all(), "a prediction is not finite"
    assert (np.asarray(pred.variance) > 0).all(), "a predictive variance is not positive"
    close(other.predict(rows.x).mean, pred.mean, 1e-5, "a prediction by the same seed", 1e-6)
    with tempfile.TemporaryDirectory() as folder:
        one.save(Path(folder) / "posterior")
        close(load(Path(folder) / "posterior").predict(rows.x).mean, pred.mean, 1e-5, "a prediction after saving", 1e-6)


ALGORITHM_LAWS = (
    a_step_keeps_the_state,
    a_step_is_a_pure_function,
    padding_is_not_seen,
    the_loss_goes_down,
    a_fit_repeats_predicts_and_is_saved,
)


def check_algorithm(algorithm: Any) -> None:
    """Runs every law of algorithms, on a small regression with a network of four hidden units.

    Args:
        algorithm: the algorithm, with options that suit 24 rows.

    Raises:
        AssertionError: which names every broken law, and says what it found.

    Examples:
        >>> import lamu
        >>> from lamu.testing import check_algorithm
        >>> check_algorithm(lamu.algorithms.adam(1e-2))
    """
    check(type(algorithm).__name__, algorithm, ALGORITHM_LAWS)
