"""What infinitely wide networks are

Functions of networks with 4, 64 and 4,096 steep hidden units. Under normal weights (top) no unit stands out, and the
functions tend to a Gaussian process. Under Cauchy weights (bottom) some units do at every width, and the functions tend
to a process with jumps. Lectures on Bayesian deep learning, after Neal (1996).
"""

import jax
import jax.numpy as jnp
import numpy as np

from lamu.plots.style import ACCENT, GREY, INK, canvas, head, tidy

WIDTHS, STEEP, LINE = (4, 64, 4096), 30.0, jnp.linspace(-1, 1, 300)[:, None]


def functions(key, width, heavy, count=4):
    first, offset, last = jax.random.split(key, 3)
    slopes = STEEP * jax.random.normal(first, (count, 1, width))
    hidden = jax.lax.erf(LINE * slopes + STEEP * jax.random.normal(offset, (count, 1, width)))
    weights = jax.random.cauchy(last, (count, width)) if heavy else jax.random.normal(last, (count, width))
    return jnp.einsum("cnh,ch->cn", hidden, weights) / (width if heavy else width**0.5)


def draw():
    figure = canvas(8.4, 4.8)
    for row, heavy in zip(figure.subplots(2, 3, sharex=True), (False, True), strict=True):
        for axes, width in zip(row, WIDTHS, strict=True):
            drawn = np.asarray(functions(jax.random.key(width + 2), width, heavy))
            for function, colour in zip(drawn, (ACCENT, INK, GREY, "#d66e2d"), strict=True):
                axes.plot(LINE[:, 0], function, color=colour, linewidth=1.2)
            head(axes, f"{'Cauchy' if heavy else 'normal'}, {width:,} units")
            tidy(axes)
    return figure
