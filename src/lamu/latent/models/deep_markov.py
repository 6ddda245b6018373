"""A series that networks move and show."""

from __future__ import annotations

from typing import Any

from lamu.graphs.graph import Graph
from lamu.graphs.program import Program
from lamu.latent.each_step import EachStep
from lamu.latent.locals import Smoother
from lamu.latent.priors import TransitionPrior
from lamu.likelihoods import Likelihood
from lamu.networks import MLP
from lamu.sizes import sized

__all__ = ["DeepMarkov"]

_NETWORK, _SMOOTHER = MLP((50,)), Smoother()


@sized
def DeepMarkov(
    steps: int,
    latents: int,
    outputs: int,
    likelihood: Likelihood,
    transition: Any = _NETWORK,
    emission: Any = _NETWORK,
    encoder: Smoother = _SMOOTHER,
) -> Graph:
    r"""Returns a deep Kalman filter whose transitions are a network, too: a deep Markov model.

    \[ z_1 \sim N(0, I), \qquad z_{t+1} \mid z_t \sim N\big(m(z_t), \mathrm{diag}(s(z_t)^2)\big), \qquad
       y_t \sim p(y \mid f(z_t)) \]

    The encoder is a recurrent network that reads the series backwards (`latent.Smoother`). Where the transitions are
    linear and known, `DeepKalman` keeps the belief's times together exactly.

    Data: `{"y": [N, steps, outputs]}`, one series a row, NaN where missing.

    Args:
        steps: T.
        latents: numbers of z at one time.
        outputs: numbers that f returns at a time.
        likelihood: p(y | f), of one entry, without dispersions to learn, for instance `Gaussian(scale=0.1)`.
        transition: the network of m and log s.
        emission: f.
        encoder: the local of z.

    Source: Krishnan, Shalit & Sontag (2015, 2017).

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.DeepMarkov(4, 2, 3, lamu.likelihoods.Gaussian(scale=0.1))
        >>> fit = lamu.fit(graph, {"y": jnp.ones((2, 4, 3))}, lamu.algorithms.adam(0.01), steps=3)
        >>> fit.posterior.local({"y": jnp.ones((2, 4, 3))})["z"].mean.shape
        (2, 4, 2)
    """

    def program(m: Program) -> None:
        emit = m.network("decode", EachStep(emission), outputs=steps * outputs)
        with m.rows():
            z = m.sample("z", TransitionPrior(latents, steps, transition))
            m.sample("y", likelihood(emit(z)))

    return Graph(program, local={"z": encoder})
