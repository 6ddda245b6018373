"""Series: a hidden category or a hidden level behind every time."""

from __future__ import annotations

import jax.numpy as jnp

from lamu.families import Dirichlet, Gamma, NormalGamma
from lamu.graphs.gaussian_chain import GaussianChain
from lamu.graphs.graph import Graph
from lamu.graphs.markov import Markov
from lamu.graphs.normal import Normal
from lamu.graphs.program import Program
from lamu.sizes import sized

__all__ = ["HiddenMarkov", "StateSpace"]


@sized
def HiddenMarkov(states: int, steps: int) -> Graph:
    r"""Returns a hidden Markov model with Gaussian emissions, \(y_t \mid z_t \sim N(m_{z_t}, 1/\tau_{z_t})\).

    Data: `{"y": [N, steps]}`, one series a row, NaN where missing or past its end.

    Args:
        states: how many.
        steps: the length of the longest series.

    Source: Rabiner (1989); Beal (2003), chapter 3.

    Examples:
        >>> from lamu.graphs import models
        >>> [site.name for site in models.HiddenMarkov(2, 10).in_rows]
        ['z', 'y']
    """

    def program(m: Program) -> None:
        start = m.sample("start", Dirichlet(jnp.ones(states)))
        step = m.sample("step", Dirichlet(jnp.ones(states)), plate=states)
        part = m.sample("part", NormalGamma(0.0, 0.1, 1.0, 0.5), plate=states)
        with m.rows():
            z = m.sample("z", Markov(steps, start, step))
            m.sample("y", Normal(part[z]))

    return Graph(program)


@sized
def StateSpace(steps: int) -> Graph:
    r"""Returns the local level model, \(x_{t+1} \sim N(x_t, 1/q)\), \(y_t \sim N(x_t, 1/r)\).

    Data: `{"y": [N, steps]}`, one series a row, NaN where missing or past its end.

    Args:
        steps: the length of the longest series.

    Source: Durbin & Koopman (2012), chapter 2.

    Examples:
        >>> from lamu.graphs import models
        >>> [site.name for site in models.StateSpace(10).sites]
        ['step', 'noise', 'x', 'y']
    """

    def program(m: Program) -> None:
        step, noise = m.sample("step", Gamma(1.0, 0.1)), m.sample("noise", Gamma(1.0, 0.1))
        with m.rows():
            x = m.sample("x", GaussianChain(steps, jnp.eye(1), precision=step))
            m.sample("y", Normal(x @ jnp.ones(1), precision=noise))

    return Graph(program)
