"""The table of a graph: what is exact of each variable, and how the rest is learned."""

from __future__ import annotations

import jax.numpy as jnp

import lamu
from lamu import graphs
from lamu.families import Gamma, MultivariateNormal


def program(m) -> None:
    w = m.sample("w", MultivariateNormal(jnp.zeros(2), jnp.eye(2)))
    v = m.sample("v", graphs.Normal(jnp.zeros(2), precision=1.0))
    noise = m.sample("noise", Gamma(1.0, 1.0))
    up = m.network("up", lamu.networks.MLP((4,)), outputs=3)
    with m.rows():
        z = m.sample("z", graphs.Normal(jnp.zeros(2), 1.0))
        m.sample("y", lamu.likelihoods.Poisson()(m.data("x") @ w))
        m.sample("c", lamu.likelihoods.Categorical(3)(up(v)))
        m.sample("u", graphs.Normal(jnp.eye(2) @ z, precision=noise))


def cells(text: str) -> dict[str, list[str]]:
    lines = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]
    return {line[0]: line[1:] for line in lines}


def test_a_table_tells_what_is_exact_and_what_learns_the_rest() -> None:
    found = cells(lamu.Graph(program).table())
    assert found["w"] == ["all rows", "MultivariateNormal", "w, y", "not in y", "message by quadrature"]
    assert found["v"] == ["all rows", "Normal", "v, c", "not in c", "gradients"]
    assert found["noise"] == ["all rows", "Gamma", "noise, u", "conjugate", "exact message"]
    assert found["z"] == ["a row", "Normal", "z, u", "conjugate", "closed form"]
    assert found["y"][1:] == ["Poisson", "y", "observed"]
    assert found["up"] == ["all rows", "MLP", "c", "not in c", "gradients"]


def test_what_the_data_have_is_observed_and_what_meets_takes_turns() -> None:
    def pair(m) -> None:
        noise = m.sample("noise", Gamma(1.0, 1.0))
        with m.rows():
            a, b = (m.sample(name, graphs.Normal(0.0, precision=1.0)) for name in "ab")
            m.sample("y", graphs.Normal(a + b, precision=noise))

    graph = lamu.Graph(pair)
    assert cells(graph.table())["a"][-1] == "closed form, in turns"
    seen = cells(graph.table({"y": [1.0], "a": [0.5]}))
    assert (seen["a"][-1], seen["b"][-1]) == ("observed", "closed form")
    named = lamu.Graph(pair, local={"a": graphs.Coordinate(3)})
    assert cells(named.table())["a"][-1] == "Coordinate"
