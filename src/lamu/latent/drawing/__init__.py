"""Images drawn step by step: a decoder that remembers, and how it looks at an image and writes on it."""

from lamu.latent.drawing.canvas import Drawing
from lamu.latent.drawing.glimpses import Attention, Glimpse, Whole

__all__ = ["Attention", "Drawing", "Glimpse", "Whole"]
