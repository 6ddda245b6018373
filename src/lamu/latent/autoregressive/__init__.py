"""Autoregressive networks, whose likelihood is the exact density of a row."""

from lamu.latent.autoregressive.ancestral import ancestral
from lamu.latent.autoregressive.made import MADE
from lamu.latent.autoregressive.nade import NADE

__all__ = ["MADE", "NADE", "ancestral"]
