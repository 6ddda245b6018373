"""How likely rows are under a model of rows."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.pareto import LARGEST_SHAPE, pareto_shape
from lamu.posterior import Posterior
from lamu.record import record
from lamu.scores.estimate import Estimate
from lamu.subkeys import subkey
from lamu.typing import RandomKey

if TYPE_CHECKING:
    from lamu.graphs.graph import Graph

__all__ = ["RowLogProb", "UnreliableWeights", "mean_bound", "mean_log_prob", "row_log_prob"]


_LARGEST_ERROR = 0.5  # nats


@record
class RowLogProb:
    """The log density of every row, and how far importance sampling leaves it open.

    Attributes:
        value: nats, `[N]`.
        error: the standard error of each in nats, `[N]`, by the spread of its weights; zero where nothing is drawn, and
            infinite where the weights do not tell.
        shape: k of the generalised Pareto distribution of the largest weights, `[N]`: above 0.7 their mean has no error
            that samples of this size show. NaN where nothing is drawn.

    Examples:
        >>> import numpy as np
        >>> from lamu.scores import RowLogProb
        >>> RowLogProb(np.array([-1.0]), np.array([0.1])).error.tolist()
        [0.1]
    """

    value: Any
    error: Any
    shape: Any = None


class UnreliableWeights(UserWarning):
    """Rows whose importance weights leave their log density open: how many, and what to use."""


def mean_log_prob(posterior: Posterior, rows: Any, samples: int = 128, key: RandomKey | None = None) -> Estimate:
    r"""Returns the average log density of rows, held out ones to compare models, with its standard error over rows.

    \[ \frac1N \sum_i \log \frac1S \sum_s w_{is} \]

    with the importance weights of `Posterior.log_prob` where latents are drawn. It is low by about half of the
    weights' relative variance over S, so that models with latents are compared at equal samples.

    Args:
        posterior: of a `lamu.Graph` or a `lamu.ConjugateModel`.
        rows: data, arrays by name.
        samples: S.
        key: for the draws; the posterior's own where None.

    Returns:
        Nats a row; the error holds the spread of the rows and the noise of the draws.

    Raises:
        TypeError: for a model whose rows have no density.
        ValueError: for fewer than two rows.

    Source: Burda, Grosse & Salakhutdinov (2016), section 5.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> lamu.scores.mean_log_prob(posterior, {"y": jnp.eye(5)}, samples=16).value < 0
        True
    """
    values = np.asarray(posterior.log_prob(rows, samples, key), float)
    if len(values) < 2:
        raise ValueError(f"{len(values)} row has no standard error; use posterior.log_prob(rows)")
    return Estimate(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))


def row_log_prob(posterior: Posterior, rows: Any, samples: int = 128, key: RandomKey | None = None) -> RowLogProb:
    r"""Returns `posterior.log_prob(rows)` with the standard error of each row's estimate.

    \[ \log \hat p = \log \frac1S \sum_s w_s, \qquad
       \mathrm{se}^2 = \frac{1}{S (S - 1)} \sum_s \Big(\frac{w_s}{\bar w} - 1\Big)^2 \]

    to first order in the spread of the weights, which is honest where the weights have a variance. Where they have none
    that shows (a Pareto k above 0.7, or an error above a half), which is so of rows unlike those that the encoder has
    learned from, the row gets a proposal of its own: a t distribution about the mode of \(\log p(y, z)\), with the
    curvature there. Where that does not help either, the error is infinite, and a warning says of how many rows.

    Args:
        posterior: of a `lamu.Graph`.
        rows: data, arrays by name.
        samples: S.
        key: for the draws; the posterior's own where None.

    Raises:
        TypeError: for a model that is no graph, or whose rows have no density.
        ValueError: for fewer than two samples.

    Source: Owen (2013), Monte Carlo theory, methods and examples, section 9.2; Burda et al. (2016), section 5; Vehtari,
    Simpson, Gelman, Yao & Gabry (2024), section 3, for k.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> lamu.scores.row_log_prob(posterior, {"y": jnp.eye(5)}, samples=16).error.shape
        (5,)
    """
    from lamu.graphs.queries import row_log_weights
    from lamu.latent.row_proposals import can_propose, fitted_log_weights

    graph = _graph(posterior)
    if samples < 2:
        raise ValueError(f"samples={samples!r} have no standard error; ask for at least 2")
    key = jax.random.clone(posterior.key) if key is None else key
    read = graph.rows(rows).full()
    found = _summed(np.asarray(row_log_weights(graph, posterior.belief, read, samples, jax.random.clone(key)), float))
    open_rows = np.flatnonzero(_unreliable(found))
    if open_rows.size and can_propose(graph, posterior.belief, read):
        some = jax.tree.map(lambda leaf: jnp.asarray(leaf)[open_rows], read)
        again = _summed(fitted_log_weights(graph, posterior.belief, some, samples, subkey(jax.random.clone(key), 7)))
        # Both are unbiased for p(y), so that a row of which neither tells is more likely too low than too high.
        better = ~_unreliable(again) | (again.value > found.value[open_rows])
        for ours, theirs in ((found.value, again.value), (found.error, again.error), (found.shape, again.shape)):
            ours[open_rows[better]] = theirs[better]
    left = np.flatnonzero(_unreliable(found))
    if left.size:
        found.error[left] = np.inf
        warnings.warn(
            f"the importance weights of {left.size} of {len(found.value)} rows leave their log density open (a Pareto "
            f"k above {LARGEST_SHAPE}, or an error above {_LARGEST_ERROR} nats, of {samples} samples): their values "
            "are more likely too low, and their errors are given as infinite; ask for more samples, or use "
            "lamu.scores.annealed_importance(*lamu.latent.row_joint(posterior, row), key) for these rows",
            UnreliableWeights,
            stacklevel=2,
        )
    return found


def _summed(log_weights: np.ndarray) -> RowLogProb:
    """Returns the log of the mean weight of every row of `[S, N]`, its error, and the shape of the largest weights."""
    most = log_weights.max(axis=0)
    weights = np.exp(log_weights - most)
    count, mean = len(weights), weights.mean(axis=0)
    if count == 1:
        return RowLogProb(most, np.zeros(len(mean)), np.full(len(mean), np.nan))
    error = weights.std(axis=0, ddof=1) / mean / math.sqrt(count)
    return RowLogProb(most + np.log(mean), error, np.array([pareto_shape(each) for each in weights.T]))


def _unreliable(found: RowLogProb) -> np.ndarray:
    return (found.error > _LARGEST_ERROR) | (found.shape > LARGEST_SHAPE) | ~np.isfinite(found.value)


def mean_bound(posterior: Posterior, rows: Any, samples: int = 16, key: RandomKey | None = None) -> Estimate:
    r"""Returns the average bound of rows, as the model's locals have it, with its standard error over rows.

    \[ \frac1N \sum_i E_{q(\theta)}\big[\mathcal L(y_i; \theta)\big] \le \frac1N \sum_i \log p(y_i) \]

    with one draw of θ a sample (of a point always the same), and of what is random in the bound. It is what training
    maximises, no likelihood: `mean_log_prob` estimates that.

    Args:
        posterior: of a `lamu.Graph`.
        rows: data, arrays by name.
        samples: over how many estimates of the bound each row is averaged.
        key: for the draws; the posterior's own where None.

    Returns:
        Nats a row; the error holds the spread of the rows and the noise of the draws.

    Raises:
        TypeError: for a model that is no graph.
        ValueError: for fewer than two rows, or no sample.

    Source: Kingma & Welling (2014), equation 3.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> lamu.scores.mean_bound(posterior, {"y": jnp.eye(5)}).value < 0
        True
    """
    graph = _graph(posterior).at_values()
    if samples < 1:
        raise ValueError(f"samples={samples!r} cannot be averaged; ask for at least one")
    batch = graph.rows(rows).full()
    of_theta, of_rows = jax.random.split(jax.random.clone(posterior.key) if key is None else key)
    theta = posterior.belief.draws(of_theta, samples)
    count = max((leaf.shape[0] for leaf in jax.tree.leaves(theta)), default=1)

    @jax.jit
    def one(i: Any) -> Any:
        params = jax.tree.map(lambda leaf: leaf[i % count], theta)
        return graph.row_bounds(graph.values_of(params), batch, key=jax.random.fold_in(of_rows, i))

    values = np.mean([np.asarray(one(jnp.asarray(i)), float) for i in range(samples)], axis=0)
    if len(values) < 2:
        raise ValueError(f"{len(values)} row has no standard error; give at least two")
    return Estimate(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))


def _graph(posterior: Posterior) -> Graph:
    from lamu.graphs.graph import Graph  # here: the other scores do not wait for graphs

    if not isinstance(posterior.model, Graph):
        raise TypeError(f"rows have latents in a lamu.Graph, and this is the posterior of {posterior.model.name}")
    return posterior.model
