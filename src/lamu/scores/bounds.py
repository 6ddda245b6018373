"""What a posterior says of its model: the evidence, or the bound below it."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.families import Product
from lamu.posterior import Posterior
from lamu.predictives.chunking import room_for
from lamu.predictives.sampled import require_room
from lamu.scores.estimate import Estimate
from lamu.typing import Array, RandomKey

__all__ = ["elbo", "evidence"]


def elbo(posterior: Posterior, data: Any, samples: int = 64, key: RandomKey | None = None) -> Estimate:
    r"""Returns the evidence lower bound of a belief, with the standard error of its draws.

    \[ \mathcal L = E_q\big[\log p(D \mid \theta) + \log p(\theta) - \log q(\theta)\big] \le \log p(D) \]

    at temperature one. Learned dispersions are a point: their prior is in it, and no entropy.

    Args:
        posterior: one whose belief about the weights has a density: any variational recipe's, or Laplace's.
        data: what it was fitted to: `(x, y)` or a mapping, as `lamu.fit` takes it.
        samples: how many draws.
        key: for the draws; the posterior's own where none is given.

    Returns:
        Nats, a sum over the rows.

    Raises:
        TypeError: for a belief without a density (a point, draws, an ensemble).
        ValueError: for fewer than two draws.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.7)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> found = lamu.scores.elbo(posterior, (x, y))  # of the exact posterior it is the evidence, whatever the draws
        >>> abs(found.value - float(posterior.evidence)) < 0.1
        True
    """
    if samples < 2:
        raise ValueError(f"samples={samples!r} have no standard error; ask for at least 2")
    belief = posterior.belief.factors["network"] if isinstance(posterior.belief, Product) else posterior.belief
    if not hasattr(belief, "log_prob") or getattr(belief, "kind", None) in ("degenerate", "draws"):
        raise TypeError(
            f"a {type(belief).__name__} belief has no density, hence no bound; ask this of a variational recipe or of "
            "Laplace's method, or mean_bound(posterior, rows) of a graph whose rows have one"
        )
    rows = posterior.model.rows(data)
    key = jax.random.clone(posterior.key) if key is None else key
    require_room(posterior.belief, key, samples)
    draws = posterior.belief.draws(key, samples)
    values = np.asarray(_own(posterior, belief, draws), float)
    at_once = room_for(_log_likelihoods, (posterior, draws, key), (jax.eval_shape(rows.full),))
    for number, batch in enumerate(rows.batches(at_once)):
        of_batch = jax.random.fold_in(key, number)
        values = values + np.asarray(_log_likelihoods(posterior, draws, of_batch, batch), float)
    return Estimate(float(values.mean()), float(values.std(ddof=1) / math.sqrt(samples)))


def evidence(posterior: Posterior, data: Any) -> Estimate:
    """Returns the log evidence in nats where the posterior knows it, and else its lower bound.

    Args:
        posterior: a posterior.
        data: what it was fitted to.

    Raises:
        TypeError: where there is neither.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.7)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> lamu.scores.evidence(posterior, (x, y)).value == float(posterior.evidence)
        True
    """
    if posterior.evidence is not None:
        return Estimate(float(posterior.evidence), 0.0)
    return elbo(posterior, data)


@jax.jit
def _own(posterior: Posterior, belief: Any, draws: Any) -> Array:
    """Returns log p(θ) − log q(θ) of every draw."""
    return jax.lax.map(lambda theta: posterior.model.log_prior(theta) - belief.log_prob(theta["network"]), draws)


@jax.jit
def _log_likelihoods(posterior: Posterior, draws: Any, key: RandomKey, batch: Any) -> Array:
    """Returns the batch's log likelihood under every draw; the key is for targets that estimate it."""
    count = jax.tree.leaves(draws)[0].shape[0]

    def of_draw(draw: tuple[Any, RandomKey]) -> Array:
        values, _ = posterior.model.log_likelihood(draw[0], posterior.network_state, batch, draw[1])
        return batch.total(values)

    return jnp.asarray(jax.lax.map(of_draw, (draws, jax.random.split(key, count))))
