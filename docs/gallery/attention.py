"""What a glimpse sees of an image

A patch of Gaussian filters reads a digit at three places and strides (dots: the centres of the filters), and writes
what it has read onto an empty canvas. Its five controls are outputs of a network, with gradients. DRAW, figure 3.
"""

import jax.numpy as jnp
import numpy as np

import lamu
from lamu.latent import Attention
from lamu.plots.style import ACCENT, canvas, head

FILTERS, SIDE = 5, 8
CONTROLS = {  # centre across and down, logarithms of variance, stride and intensity
    "the whole image": (0.0, 0.0, 0.0, 0.0, 0.0),
    "the centre": (0.0, 0.0, -1.0, -0.7, 0.0),
    "the foot, sharply": (0.05, 0.6, -2.5, -1.2, 0.0),
}


def draw():
    image = jnp.asarray(lamu.data.load("digits")[0][12].reshape(-1))
    glimpse, figure = Attention(FILTERS, (SIDE, SIDE)), canvas(6.6, 6.4)
    for row, (name, controls) in zip(figure.subplots(3, 3), CONTROLS.items(), strict=True):
        controls = jnp.array(controls)
        seen = glimpse.read(controls, image)
        stride = (SIDE - 1) / (FILTERS - 1) * np.exp(controls[3])
        offsets = (np.arange(FILTERS) - (FILTERS - 1) / 2) * stride
        across, down = ((SIDE + 1) / 2 * (float(centre) + 1) - 1 + offsets for centre in controls[:2])
        pictures = {name: image, "read": seen, "written": glimpse.write(controls, seen)}
        for axes, (title, pixels) in zip(row, pictures.items(), strict=True):
            side = round(pixels.size**0.5)
            axes.imshow(np.reshape(pixels, (side, side)), cmap="Greys")
            axes.set_axis_off()
            head(axes, title)
        row[0].plot(*map(np.ravel, np.meshgrid(across, down)), ".", color=ACCENT, markersize=5)
        row[0].set(xlim=(-1.5, SIDE + 0.5), ylim=(SIDE + 0.5, -1.5))
    return figure
