"""The two functions of a bits-back code, from a posterior."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit, softmax

from lamu.graphs.expressions import Environment
from lamu.graphs.graph import Graph
from lamu.graphs.joint import Row, dtype_of, in_dtype, log_joint, shape_of
from lamu.graphs.potential import Potential
from lamu.graphs.queries import expected_statistics
from lamu.graphs.statistics import Numbers
from lamu.latent.locals import Amortised, MeanField
from lamu.likelihoods import Bernoulli, Categorical

__all__ = ["functions_of"]


def functions_of(posterior: Any) -> tuple[Callable[[np.ndarray], Any], Callable[[np.ndarray], Any], int]:
    """Returns mean and deviation of q(z | y) of a row, the probabilities of symbols at latents, and their number."""
    graph = posterior.model
    if not isinstance(graph, Graph):
        raise TypeError(f"rows are coded by a lamu.Graph, and this is the posterior of {graph.name}")
    statistics = expected_statistics(graph, posterior.belief, 32, jax.random.clone(posterior.key))
    dtype = dtype_of(statistics)
    sites, at = in_dtype(graph.at_values().in_rows, dtype), Environment(dict(statistics))
    latents = [site for site in sites if site.factor.exact]
    symbols = [site for site in sites if isinstance(site.factor, Potential)]
    encoder = (graph.local or {}).get(latents[0].name) if len(latents) == 1 else None
    if len(symbols) != 1 or not isinstance(encoder, Amortised) or not isinstance(encoder.family, MeanField):
        raise TypeError(
            "a bits-back code is of rows with one latent, an Amortised local with a MeanField() belief, and one "
            f"variable of a likelihood; this graph has the latents {', '.join(site.name for site in latents) or 'none'}"
        )
    (z,), (y,) = latents, symbols
    if not isinstance(y.factor.likelihood, Bernoulli | Categorical):
        raise TypeError(
            f"{y.name!r} has the likelihood {y.factor.likelihood.name}, and a code is of symbols; use Bernoulli() or "
            "Categorical(K)"
        )
    if not _standard(z, at, dtype):
        raise TypeError(f"the prior of {z.name!r} is no standard normal, whose bins the code cuts; use Normal(0, 1)")
    own, shape = statistics["local"][z.name], shape_of(z)

    @jax.jit
    def encoded(y_of_row: Any) -> Any:
        belief = encoder.belief(z.name, own, Row.of(sites, (), {y.name: y_of_row}, 1.0, dtype), at)
        return belief.mean, jax.lax.rsqrt(belief.precision.values)

    @jax.jit
    def outputs(value: Any) -> Any:
        known = z.kind.of(jnp.reshape(value, shape))
        return y.factor.entries(Environment({**statistics, z.name: known}))[0]

    def probabilities(value: np.ndarray) -> np.ndarray:
        f = np.asarray(outputs(np.asarray(value, dtype)), float)
        two = isinstance(y.factor.likelihood, Bernoulli)
        return expit(np.concatenate([-f, f], axis=-1)) if two else softmax(f, axis=-1)

    return lambda row: encoded(np.asarray(row, dtype)), probabilities, math.prod(shape)


def _standard(site: Any, at: Environment, dtype: Any) -> bool:
    """Whether a latent is N(0, I) before the data: λ = (0, −1/2)."""
    if site.kind is not Numbers or not site.factor.conjugate or site.factor.names & set(at.statistics):
        return False
    zeros = site.kind.zeros(shape_of(site), dtype)
    found = jax.grad(lambda x: log_joint((site,), Environment({site.name: x})))(zeros)
    return bool(np.allclose(found.first, 0.0) and np.allclose(found.second, -0.5))
