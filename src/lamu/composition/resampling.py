"""The bootstrap: an algorithm run again and again on rows drawn from the rows, as a posterior."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lamu.algorithms.ensembles.deep_ensemble import pooled
from lamu.data.arrays import Arrays
from lamu.loop import fit
from lamu.model import Model
from lamu.posterior import Posterior
from lamu.protocol import Algorithm
from lamu.running.training_rows import training_rows

__all__ = ["bootstrap"]


def bootstrap(
    model: Model, data: Any, algorithm: Algorithm, *, resamples: int = 20, seed: int = 0, **options: Any
) -> Posterior:
    r"""Fits an algorithm to rows drawn with replacement from the rows, several times, and pools what they learn.

    \[ D^{(b)} = \{(x_{j_i}, y_{j_i})\}_{i=1}^N, \quad j_i \sim U\{1, \dots, N\}, \qquad
       q(\theta) = \frac1B \sum_b q^{(b)}(\theta) \]

    The spread of the members is that of the estimate over repetitions of the data: a baseline for beliefs, which it
    approaches where there are many rows. The pooled prediction's intervals hold the noise too. All fits start alike
    and see the rows in the same order, so that only the rows differ. B fits.

    Args:
        model: network, likelihood and prior.
        data: `(x, y)`, or a mapping with `x`, `y` and, optionally, `weight`, `offset`, `mask`.
        algorithm: what each member runs.
        resamples: B.
        seed: of the rows that are drawn, and of every fit.
        **options: further options of `lamu.fit`, for instance `epochs`.

    Returns:
        The ensemble's posterior.

    Raises:
        ValueError: for fewer than two resamples, or an option that makes no sense here.

    Source: Efron (1979); for neural networks Tibshirani (1996).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.7)).standardised(x, y)
        >>> posterior = lamu.composition.bootstrap(model, (x, y), lamu.algorithms.conjugate(), resamples=3)
        >>> len(posterior.belief.members)
        3
    """
    for name in ("validation", "checkpoint", "resume"):
        if name in options:
            raise ValueError(f"{name}={options[name]!r} would be shared by all resamples; leave it out, or use fit")
    if resamples < 2:
        raise ValueError(f"resamples={resamples!r} shows no spread; give at least two")
    model = model.named(data)
    rows = training_rows(model, data)
    if not isinstance(rows, Arrays):
        raise TypeError("resamples are drawn from rows in memory; give (x, y)")
    random = np.random.default_rng(seed)
    members = [
        fit(model, rows.take(random.integers(0, rows.count, rows.count)), algorithm, seed=seed, **options).posterior
        for _ in range(resamples)
    ]
    return pooled(members, jax.random.fold_in(jax.random.key(seed), resamples))
