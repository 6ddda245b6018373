"""Circuits: deep mixtures in which every marginal is exact."""

from __future__ import annotations

import jax.numpy as jnp

from lamu.families import Beta, Dirichlet
from lamu.graphs.circuit import Circuit, levels
from lamu.graphs.graph import Graph
from lamu.graphs.program import Program
from lamu.sizes import sized

__all__ = ["SumProduct"]


@sized
def SumProduct(components: int, dimension: int) -> Graph:
    r"""Returns a small sum-product circuit of zeros and ones, K components in every region.

    \[ w \sim \mathrm{Dir}(1), \quad p_{dk} \sim \mathrm{Beta}(1, 1), \quad y \sim \mathrm{Circuit}(p, w) \]

    Neighbouring columns meet first: put together what belongs together.

    Data: `{"y": [N, dimension]}`, zeros and ones; an entry that is NaN is summed out exactly.

    Args:
        components: K.
        dimension: numbers of a row, at least two.

    Source: Poon & Domingos (2011); Peharz, Gens, Pernkopf & Domingos (2017).

    Examples:
        >>> from lamu.graphs import models
        >>> [site.name for site in models.SumProduct(2, 4).sites]
        ['weight0', 'weight1', 'chance', 'y']
    """

    def program(m: Program) -> None:
        weights = [
            m.sample(f"weight{level}", Dirichlet(jnp.ones(K)), plate=(pairs, sums))
            for level, (pairs, sums, K) in enumerate(levels(dimension, components))
        ]
        chance = m.sample("chance", Beta(1.0, 1.0), plate=(dimension, components))
        with m.rows():
            m.sample("y", Circuit(chance, *weights))

    return Graph(program)
