"""Linear regressions whose scales are learned with conjugate messages."""

from __future__ import annotations

import jax.numpy as jnp

from lamu.families import Gamma
from lamu.graphs.graph import Graph
from lamu.graphs.normal import Normal
from lamu.graphs.program import Program
from lamu.sizes import sized

__all__ = ["HierarchicalRegression", "LinearRegression"]


@sized
def LinearRegression(inputs: int) -> Graph:
    r"""Returns linear regression with automatic relevance determination, \(w_p \sim N(0, 1/\alpha_p)\).

    Data: `{"x": [N, inputs], "y": [N]}`, standardised; a y that is NaN is predicted.

    Args:
        inputs: how many.

    Source: Bishop (2006), section 10.3; MacKay (1994).

    Examples:
        >>> from lamu.graphs import models
        >>> models.LinearRegression(3).blocks
        (('relevance', 'noise'), ('w',))
    """

    def program(m: Program) -> None:
        relevance = m.sample("relevance", Gamma(1e-2, 1e-2), plate=inputs)
        w = m.sample("w", Normal(jnp.zeros(inputs), precision=relevance))
        noise = m.sample("noise", Gamma(1e-2, 1e-2))
        with m.rows():
            m.sample("y", Normal(m.data("x") @ w, precision=noise))

    return Graph(program)


@sized
def HierarchicalRegression(groups: int, inputs: int) -> Graph:
    r"""Returns a regression whose coefficients vary by group, \(y \sim N(x^\top (w + b_g), 1/\tau)\).

    Data: `{"x": [N, inputs], "group": [N], "y": [N]}`; groups are whole numbers from 0. Give x a column of ones for an
    intercept.

    Args:
        groups: how many.
        inputs: how many.

    Source: Gelman & Hill (2007), chapter 13.

    Examples:
        >>> from lamu.graphs import models
        >>> models.HierarchicalRegression(4, 2).sites[2].shape
        (4, 2)
    """

    def program(m: Program) -> None:
        w = m.sample("w", Normal(jnp.zeros(inputs), precision=1e-2))
        spread = m.sample("spread", Gamma(1.0, 0.1), plate=inputs)
        own = m.sample("own", Normal(jnp.zeros(inputs), precision=spread), plate=groups)
        noise = m.sample("noise", Gamma(1.0, 0.1))
        with m.rows():
            x = m.data("x")
            m.sample("y", Normal(x @ w + x @ own[m.data("group")], precision=noise))

    return Graph(program)
