r"""Deep latent-variable models: bounds on the density of a row, flows, autoregressive networks, and coding."""

from lamu.latent.autoregressive import MADE, NADE, ancestral
from lamu.latent.bounds import (
    ELBO,
    Bound,
    DoublyReparameterised,
    FreeBits,
    Importance,
    Joint,
    Renyi,
    RowJoint,
    StickingTheLanding,
    WarmUp,
)
from lamu.latent.coding import BitsBack, Stack
from lamu.latent.flows import Coupling, Flow, Flowed, InverseAutoregressive, Planar, Radial

__all__ = [
    "ELBO",
    "MADE",
    "NADE",
    "BitsBack",
    "Bound",
    "Coupling",
    "DoublyReparameterised",
    "Flow",
    "Flowed",
    "FreeBits",
    "Importance",
    "InverseAutoregressive",
    "Joint",
    "Planar",
    "Radial",
    "Renyi",
    "RowJoint",
    "Stack",
    "StickingTheLanding",
    "WarmUp",
    "ancestral",
]
