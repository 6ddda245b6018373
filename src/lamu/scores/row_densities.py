"""How likely rows are under a model of rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.posterior import Posterior
from lamu.record import record
from lamu.scores.estimate import Estimate
from lamu.typing import RandomKey

if TYPE_CHECKING:
    from lamu.graphs.graph import Graph

__all__ = ["RowLogProb", "mean_bound", "mean_log_prob", "row_log_prob"]


@record
class RowLogProb:
    """The log density of every row, and how far importance sampling leaves it open.

    Attributes:
        value: nats, `[N]`.
        error: the standard error of each in nats, `[N]`, by the spread of its weights; zero where nothing is drawn.

    Examples:
        >>> import numpy as np
        >>> from lamu.scores import RowLogProb
        >>> RowLogProb(np.array([-1.0]), np.array([0.1])).error.tolist()
        [0.1]
    """

    value: Any
    error: Any


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

    to first order in the spread of the weights: an error above a half says that few weights make the sum, and that the
    estimate is low. `annealed_importance` is for such rows.

    Args:
        posterior: of a `lamu.Graph`.
        rows: data, arrays by name.
        samples: S.
        key: for the draws; the posterior's own where None.

    Raises:
        TypeError: for a model that is no graph, or whose rows have no density.
        ValueError: for fewer than two samples.

    Source: Owen (2013), Monte Carlo theory, methods and examples, section 9.2; Burda et al. (2016), section 5.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> lamu.scores.row_log_prob(posterior, {"y": jnp.eye(5)}, samples=16).error.shape
        (5,)
    """
    from lamu.graphs.queries import row_log_weights

    graph = _graph(posterior)
    if samples < 2:
        raise ValueError(f"samples={samples!r} have no standard error; ask for at least 2")
    key = jax.random.clone(posterior.key) if key is None else key
    log_weights = np.asarray(row_log_weights(graph, posterior.belief, graph.rows(rows).full(), samples, key), float)
    most = log_weights.max(axis=0)
    weights = np.exp(log_weights - most)
    count, mean = len(weights), weights.mean(axis=0)
    error = weights.std(axis=0, ddof=1) / mean / math.sqrt(count) if count > 1 else np.zeros(len(mean))
    return RowLogProb(most + np.log(mean), error)


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
