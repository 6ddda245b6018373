"""Lossless coding by models with latents."""

from lamu.latent.coding.bits_back import BitsBack
from lamu.latent.coding.rans import Stack

__all__ = ["BitsBack", "Stack"]
