"""Semi-supervised classification by a generative model."""

from __future__ import annotations

import jax.numpy as jnp

from lamu.graphs.categorical import Categorical
from lamu.graphs.graph import Graph
from lamu.graphs.normal import Normal
from lamu.graphs.program import Program
from lamu.latent.locals import Amortised, Enumerated
from lamu.likelihoods import Bernoulli, Likelihood
from lamu.networks import MLP

__all__ = ["SemiSupervised"]

_PIXELS = Bernoulli()


def SemiSupervised(
    classes: int,
    latents: int,
    outputs: int,
    hidden: tuple[int, ...] = (500,),
    weight: float = 0.1,
    likelihood: Likelihood = _PIXELS,
) -> Graph:
    r"""Returns model M2: a class c and a style z, \(c \sim \mathrm{Cat}(1/K)\), \(z \sim N(0, I)\), y | c, z.

    Data: `{"y": [N, outputs], "c": [N]}`, c from zero, NaN where a row has no label. `posterior.local(rows)["c"].mean`
    are the probabilities of the classes.

    Args:
        classes: K.
        latents: numbers of z.
        outputs: numbers that the decoder returns.
        hidden: the widths of the hidden layers of every network.
        weight: α, what the classifier's log probability of a label counts beside the bound of the row.
        likelihood: p(y | f), of one entry.

    Source: Kingma, Rezende, Mohamed & Welling (2014), equations 6 to 9.

    Examples:
        >>> import lamu
        >>> list(lamu.latent.models.SemiSupervised(10, 20, 64).local)
        ['c', 'z']
    """

    def program(m: Program) -> None:
        decode = m.network("decode", MLP(hidden), outputs=outputs)
        with m.rows():
            c = m.sample("c", Categorical(jnp.full(classes, 1.0 / classes)))
            z = m.sample("z", Normal(jnp.zeros(latents), 1.0))
            m.sample("y", likelihood(decode(c, z)))

    local = {"c": Enumerated(MLP(hidden), weight), "z": Amortised(MLP(hidden), given=("c",))}
    return Graph(program, local=local)
