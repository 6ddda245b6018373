"""Deep latent Gaussian models: several layers of latents."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu.graphs.graph import Graph
from lamu.graphs.network import exp
from lamu.graphs.normal import Normal
from lamu.graphs.program import Program
from lamu.latent.locals import Amortised
from lamu.likelihoods import Bernoulli, Likelihood
from lamu.networks import MLP

__all__ = ["DeepLatentGaussian"]

_PIXELS = Bernoulli()


def DeepLatentGaussian(
    latents: tuple[int, ...],
    outputs: int,
    hidden: tuple[int, ...] = (200,),
    likelihood: Likelihood = _PIXELS,
) -> Graph:
    r"""Returns a deep latent Gaussian model, \(z_L \sim N(0, I)\), \(z_l \mid z_{l+1} \sim N(m_l, 1/\tau_l)\), y | z₁.

    The means and log precisions of a layer are a network of the layer above. The encoders go from the top down: that
    of \(z_L\) reads y, and that of \(z_l\) reads y and \(z_{l+1}\). Latents are called z1, z2, … from the data up.

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
    if not latents:
        raise ValueError("latents=() has no layer; give the numbers of latents from the data up, for instance (20, 10)")
    depth = len(latents)

    def program(m: Program) -> None:
        ups = {n: m.network(f"up{n}", MLP(hidden), outputs=(latents[n - 1],) * 2) for n in range(depth - 1, 0, -1)}
        decode = m.network("decode", MLP(hidden), outputs=outputs)
        with m.rows():
            z: Any = m.sample(f"z{depth}", Normal(jnp.zeros(latents[-1]), 1.0))
            for n, up in ups.items():
                mean, log_precision = up(z)
                z = m.sample(f"z{n}", Normal(mean, precision=exp(log_precision)))
            m.sample("y", likelihood(decode(z)))

    above = {n: (f"z{n + 1}",) if n < depth else () for n in range(depth, 0, -1)}
    return Graph(program, local={f"z{n}": Amortised(MLP(hidden), given=given) for n, given in above.items()})
