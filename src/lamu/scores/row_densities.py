"""How likely rows are under a model of rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lamu.posterior import Posterior
from lamu.scores.estimate import Estimate
from lamu.typing import RandomKey

__all__ = ["mean_log_prob"]


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
