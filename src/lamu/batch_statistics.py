"""Batch statistics of sampled weights: frozen, recomputed at the mean, or recomputed for every sample.

A network with batch normalisation trains with the statistics of each batch and predicts with their running averages.
Weights sampled from a posterior have other statistics than the trained weights. The choices are the same for every
algorithm; `lamu.fit(..., epochs=0)` takes one of them for a network that is already trained.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.data.arrays import Arrays
from lamu.model import supervised
from lamu.posterior import Posterior
from lamu.predictives.sampled import OwnStatistics, settled_state
from lamu.record import record
from lamu.typing import Array, Belief, Data, RandomKey, State

__all__ = ["BatchStatistics", "Frozen", "Recomputed", "RecomputedPerDraw", "require_choice"]

_ROWS = 1024


@record
class BatchStatistics:
    """Base class for the treatment of a network's batch statistics in a posterior; by default they are kept.

    Examples:
        >>> from lamu.batch_statistics import BatchStatistics, Recomputed
        >>> isinstance(Recomputed(), BatchStatistics)
        True
    """

    def of(self, posterior: Any, data: Data) -> Any:
        """Returns the posterior with the network state that this treatment gives.

        Args:
            posterior: a posterior.
            data: the data, or None where a state is only inspected: then nothing is recomputed.
        """
        return posterior


@record
class Frozen(BatchStatistics):
    """Keeps the statistics of training: fast, and accurate for narrow beliefs.

    Examples:
        >>> from lamu.batch_statistics import Frozen
        >>> Frozen().of("a posterior", data=None)
        'a posterior'
    """


@record
class Recomputed(BatchStatistics):
    """Recomputes the statistics at the belief's mean, from up to 1,024 rows of the data.

    Use it where the state is not that of the mean: averaged weights, or a network that was saved without its state.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("iris")
        >>> network = lamu.networks.MLP((8,), normalise=lamu.networks.BatchNorm())
        >>> model = lamu.Model(network, lamu.likelihoods.Categorical(3))
        >>> trained = lamu.fit(model, (x, y), lamu.algorithms.adam(1e-2), epochs=5).posterior
        >>> model = model.starting_at(trained.mean, trained.network_state)
        >>> choice = lamu.batch_statistics.Recomputed()
        >>> fit = lamu.fit(model, (x, y), lamu.algorithms.last_layer(), epochs=0, statistics=choice)
        >>> fit.posterior.predict(x).mean.shape
        (150, 3)
    """

    def of(self, posterior: Posterior, data: Data) -> Posterior:
        """Returns the posterior with the state of its mean."""
        if data is None or not jax.tree.leaves(posterior.network_state):
            return posterior
        x = _subsample(data)
        settle = jax.jit(lambda params, state: settled_state(supervised(posterior.model), params, state, x))
        return replace(posterior, network_state=settle(posterior.mean, posterior.network_state))


@record
class RecomputedPerDraw(BatchStatistics):
    """Recomputes the statistics for every draw of the weights, from up to 1,024 rows; 50 passes over those a draw.

    Predictions are then averages over draws, also where the algorithm has another rule (Laplace's linearised rule needs
    the mean alone). The posterior keeps the rows.

    Examples:
        >>> from lamu.batch_statistics import RecomputedPerDraw
        >>> RecomputedPerDraw()
        RecomputedPerDraw()
    """

    def of(self, posterior: Posterior, data: Data) -> Posterior:
        """Returns the posterior that predicts by draws, each with its own network state."""
        if data is None or not jax.tree.leaves(posterior.network_state):
            return posterior
        return posterior.with_rule(OwnStatistics(_subsample(data)))


def _subsample(data: Data) -> Array:
    """Returns up to 1,024 rows: evenly spaced ones of arrays, which may be sorted, and the first of a stream."""
    if isinstance(data, Arrays):
        spread = np.linspace(0, data.count - 1, min(data.count, _ROWS)).astype(int)
        return jnp.asarray(data.take(spread).x)
    blocks, count = [], 0
    for batch in data.batches(_ROWS):
        blocks.append(np.asarray(batch.x)[np.asarray(batch.mask) > 0])
        count += len(blocks[-1])
        if count >= _ROWS:
            break
    return jnp.asarray(np.concatenate(blocks)[:_ROWS])


def require_choice(algorithm: Any, objective: Any, batch: Any) -> None:
    """Raises an error where a trained network with a state needs a choice of statistics; uses shapes alone.

    Args:
        algorithm: an algorithm that makes a posterior of an already trained network, without a choice.
        objective: the loss.
        batch: example rows, for shapes.

    Raises:
        ValueError: where the network has a state and predictions draw weights: a linearised prediction needs the
            network at the mean alone, for which the statistics of training are right (`Frozen`).

    Examples:
        >>> import lamu
        >>> from lamu.batch_statistics import require_choice
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(55.0)).standardised(x, y)
        >>> objective, batch = lamu.objective.Objective(model, len(x)), lamu.data.Batch.of(x, y)
        >>> require_choice(lamu.algorithms.laplace(), objective, batch)  # no state, no question
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    if not jax.tree.leaves(jax.eval_shape(objective.model.init, key, batch)[1]):
        return
    state = jax.eval_shape(lambda key: algorithm.init(key, objective, batch), key)

    def belief(key: RandomKey, state: State) -> Belief:
        return algorithm.posterior(key, state, objective, None, None).belief

    if algorithm.traits.linearises:
        return
    # An algorithm with a pass over the data makes a belief of its state that is more than a point.
    if algorithm.traits.needs_data_pass or not _is_point(jax.eval_shape(belief, key, state)):
        raise ValueError(
            "the network keeps statistics of its batches, which weights drawn from the belief have never made; choose "
            "statistics=lamu.batch_statistics.Frozen(), Recomputed() (at the mean), or RecomputedPerDraw()"
        )


def _is_point(belief: Belief) -> bool:
    parts = getattr(belief, "factors", {"": belief}).values()
    return all(getattr(part, "kind", None) == "degenerate" for part in parts)
