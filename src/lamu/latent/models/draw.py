"""Images drawn step by step."""

from __future__ import annotations

import jax.numpy as jnp

from lamu.graphs.graph import Graph
from lamu.graphs.normal import Normal
from lamu.graphs.program import Program
from lamu.latent.drawing import Drawing, Glimpse, Whole
from lamu.latent.locals import Recurrent
from lamu.likelihoods import Bernoulli, Likelihood
from lamu.sizes import sized

__all__ = ["DRAW"]

_PIXELS, _WHOLE = Bernoulli(), Whole()


@sized
def DRAW(
    steps: int,
    latents: int,
    outputs: int,
    hidden: int = 100,
    read: Glimpse = _WHOLE,
    write: Glimpse = _WHOLE,
    likelihood: Likelihood = _PIXELS,
) -> Graph:
    r"""Returns a deep recurrent attentive writer: \(z_t \sim N(0, I)\) at T steps, y from a canvas that all write on.

    Data: `{"y": [N, outputs]}`, NaN where missing. `latent.Drawing.canvases` are the pictures on the way.

    Args:
        steps: T.
        latents: numbers of z at each step.
        outputs: the number of pixels.
        hidden: the widths of encoder and decoder.
        read: how a step looks at the image and at what is wrong with the canvas, `Whole()` or `Attention(2, (28, 28))`.
        write: how a step writes.
        likelihood: p(y | f), of one pixel.

    Raises:
        ValueError: for fewer than one step or latent.

    Source: Gregor, Danihelka, Graves, Rezende & Wierstra (2015).

    Examples:
        >>> import lamu
        >>> from lamu.latent import Attention
        >>> glimpse = Attention(3, (8, 8))
        >>> sorted(lamu.latent.models.DRAW(4, 2, 64, read=glimpse, write=glimpse).local)
        ['z']
    """

    def program(m: Program) -> None:
        draw = m.network("decode", Drawing(hidden, write, read), outputs=outputs)
        with m.rows():
            z = m.sample("z", Normal(jnp.zeros((steps, latents)), 1.0))
            m.sample("y", likelihood(draw(z)))

    return Graph(program, local={"z": Recurrent(hidden)})
