"""A linear-Gaussian series below a network."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.graphs.gaussian_chain import GaussianChain
from lamu.graphs.graph import Graph
from lamu.graphs.program import Program
from lamu.latent.each_step import EachStep
from lamu.latent.locals import Conjugate
from lamu.likelihoods import Likelihood
from lamu.networks import MLP
from lamu.sizes import sized

__all__ = ["DeepKalman"]

_NETWORK = MLP((50,))


@sized
def DeepKalman(
    steps: int,
    transition: Any,
    outputs: int,
    likelihood: Likelihood,
    emission: Any = _NETWORK,
    encoder: Any = _NETWORK,
    precision: Any = 1.0,
) -> Graph:
    r"""Returns a series whose states move linearly and are seen through a network.

    \[ x_1 \sim N(0, I/\max Q), \qquad x_{t+1} \mid x_t \sim N(A x_t, Q^{-1}), \qquad y_t \sim p(y \mid f(x_t)) \]

    The encoder sends every state a Gaussian message of \(y_t\), and a Kalman filter joins them: the belief keeps all
    times together. Where f is linear and the noise Gaussian, the exact messages give the Kalman filter's density. The
    paper's transitions are networks too; here they are linear and known, as in structured autoencoders.

    Data: `{"y": [N, steps, outputs]}`, one series a row.

    Args:
        steps: T.
        transition: A `[d, d]`.
        outputs: numbers that f returns at a time.
        likelihood: p(y | f), of one entry, without dispersions to learn, for instance `Gaussian(scale=0.1)`.
        emission: f.
        encoder: the network of the message of one time.
        precision: Q, positive numbers or a matrix.

    Source: Krishnan, Shalit & Sontag (2015); Johnson et al. (2016), section 3.2; Fraccaro et al. (2017).

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.DeepKalman(4, 0.9 * jnp.eye(2), 3, lamu.likelihoods.Gaussian(scale=0.1))
        >>> fit = lamu.fit(graph, {"y": jnp.ones((2, 4, 3))}, lamu.algorithms.adam(0.01), steps=3)
        >>> fit.posterior.local({"y": jnp.ones((2, 4, 3))})["x"].mean.shape
        (2, 4, 2)
    """
    first = jnp.max(jnp.asarray(precision))

    def program(m: Program) -> None:
        emit = m.network("decode", EachStep(emission), outputs=steps * outputs)
        with m.rows():
            x = m.sample("x", GaussianChain(steps, transition, precision, first_precision=first))
            m.sample("y", likelihood(emit(x)))

    return Graph(program, local={"x": Conjugate(EachStep(encoder))})
