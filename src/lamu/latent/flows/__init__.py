"""Flows: invertible maps of latents with known determinants, one file each."""

from lamu.latent.flows.coupling import Coupling
from lamu.latent.flows.flowed import Flowed
from lamu.latent.flows.interface import Flow
from lamu.latent.flows.inverse_autoregressive import InverseAutoregressive
from lamu.latent.flows.planar import Planar
from lamu.latent.flows.radial import Radial

__all__ = ["Coupling", "Flow", "Flowed", "InverseAutoregressive", "Planar", "Radial"]
