"""Several layers of Gaussian latents: independent ones that are added, or each around what the layer above makes."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.graphs.graph import Graph
from lamu.graphs.network import exp
from lamu.graphs.normal import Normal
from lamu.graphs.program import Program
from lamu.latent.locals import Amortised, Ladder
from lamu.likelihoods import Bernoulli, Likelihood
from lamu.networks import MLP
from lamu.sizes import sized

__all__ = ["DeepLatentGaussian", "LadderVAE"]

_PIXELS = Bernoulli()


@sized
def DeepLatentGaussian(
    latents: tuple[int, ...],
    outputs: int,
    hidden: tuple[int, ...] = (200,),
    likelihood: Likelihood = _PIXELS,
) -> Graph:
    r"""Returns a deep latent Gaussian model: layers of independent latents, each added to what the layer above makes.

    \[ z_l \sim N(0, I), \qquad h_L = z_L, \qquad h_l = \big(T_l(h_{l+1}),\, z_l\big), \qquad y \sim p(y \mid f(h_1)) \]

    The paper adds the two parts, \(h_l = T_l(h_{l+1}) + G_l z_l\); here the first kernel of the next network has both
    sums. Because the latents are independent, so are their beliefs, \(q(z \mid y) = \prod_l q(z_l \mid y)\), and every
    divergence has a closed form. Latents are called z1, z2, … from the data up.

    Data: `{"y": [N, outputs]}`, NaN where missing.

    Args:
        latents: the numbers of latents of each layer, from the data up.
        outputs: numbers that the decoder returns.
        hidden: the widths of the hidden layers of every network.
        likelihood: p(y | f), of one entry.

    Raises:
        ValueError: for no layer.

    Source: Rezende, Mohamed & Wierstra (2014), equations 1 to 3.

    Examples:
        >>> import lamu
        >>> list(lamu.latent.models.DeepLatentGaussian((10, 5), 64).local)
        ['z2', 'z1']
    """
    depth = _depth(latents)

    def program(m: Program) -> None:
        ups = {n: m.network(f"up{n}", MLP(hidden), outputs=latents[n - 1]) for n in range(depth - 1, 0, -1)}
        decode = m.network("decode", MLP(hidden), outputs=outputs)
        with m.rows():
            h: tuple[Any, ...] = (m.sample(f"z{depth}", Normal(jnp.zeros(latents[-1]), 1.0)),)
            for n, up in ups.items():
                h = (up(*h), m.sample(f"z{n}", Normal(jnp.zeros(latents[n - 1]), 1.0)))
            m.sample("y", likelihood(decode(*h)))

    return Graph(program, local={f"z{n}": Amortised(MLP(hidden)) for n in range(depth, 0, -1)})


@sized
def LadderVAE(
    latents: tuple[int, ...],
    outputs: int,
    hidden: tuple[int, ...] = (200,),
    likelihood: Likelihood = _PIXELS,
) -> Graph:
    r"""Returns a hierarchy of latents with beliefs that join the encoder with the prior from above, a ladder.

    \[ z_L \sim N(0, I), \qquad z_l \mid z_{l+1} \sim N\big(m_l(z_{l+1}), \mathrm{diag}(s_l(z_{l+1})^2)\big), \qquad
       y \sim p(y \mid f(z_1)) \]

    Beliefs go down from the top, \(q(z_L \mid y) \cdots q(z_1 \mid z_2, y)\) (`latent.Ladder`); in the paper the
    encoders of the layers share their first layers, here each has a network of its own. Latents are called z1, z2, …
    from the data up.

    Data: `{"y": [N, outputs]}`, NaN where missing.

    Args:
        latents: the numbers of latents of each layer, from the data up.
        outputs: numbers that the decoder returns.
        hidden: the widths of the hidden layers of every network.
        likelihood: p(y | f), of one entry.

    Raises:
        ValueError: for no layer.

    Source: Sønderby, Raiko, Maaløe, Sønderby & Winther (2016).

    Examples:
        >>> import lamu
        >>> graph = lamu.latent.models.LadderVAE((10, 5), 64)
        >>> graph.local["z1"].given
        ('z2',)
    """
    depth = _depth(latents)

    def program(m: Program) -> None:
        downs = {n: m.network(f"down{n}", MLP(hidden), outputs=(latents[n - 1],) * 2) for n in range(depth - 1, 0, -1)}
        decode = m.network("decode", MLP(hidden), outputs=outputs)
        with m.rows():
            z = m.sample(f"z{depth}", Normal(jnp.zeros(latents[-1]), 1.0))
            for n, down in downs.items():
                mean, log_precision = down(z)
                z = m.sample(f"z{n}", Normal(mean, precision=exp(log_precision)))
            m.sample("y", likelihood(decode(z)))

    above = lambda n: (f"z{n + 1}",) if n < depth else ()
    return Graph(program, local={f"z{n}": Ladder(MLP(hidden), given=above(n)) for n in range(depth, 0, -1)})


def _depth(latents: tuple[int, ...]) -> int:
    if not latents:
        raise ValueError("latents=() has no layer; give the numbers of latents from the data up, for instance (20, 10)")
    return len(latents)
