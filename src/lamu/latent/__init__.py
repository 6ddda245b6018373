r"""Deep latent-variable models: bounds on the density of a row, flows, autoregressive networks, and coding."""

from lamu.latent import models
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
from lamu.latent.drawing import Attention, Drawing, Glimpse, Whole
from lamu.latent.each_step import EachStep
from lamu.latent.flows import Coupling, Flow, Flowed, InverseAutoregressive, Planar, Radial
from lamu.latent.generation import generate, impute, reconstruct
from lamu.latent.locals import (
    Amortised,
    AmortisedBernoulli,
    Baseline,
    BeliefFamily,
    Conjugate,
    Delta,
    Enumerated,
    Flows,
    MeanField,
    Recurrent,
    Refined,
    SummedOut,
)
from lamu.latent.priors import AutoregressiveBernoulli, FlowPrior, MixturePrior, VampPrior
from lamu.latent.units import UnitDivergences, unit_divergences

__all__ = [
    "ELBO",
    "MADE",
    "NADE",
    "Amortised",
    "AmortisedBernoulli",
    "Attention",
    "AutoregressiveBernoulli",
    "Baseline",
    "BeliefFamily",
    "BitsBack",
    "Bound",
    "Conjugate",
    "Coupling",
    "Delta",
    "DoublyReparameterised",
    "Drawing",
    "EachStep",
    "Enumerated",
    "Flow",
    "FlowPrior",
    "Flowed",
    "Flows",
    "FreeBits",
    "Glimpse",
    "Importance",
    "InverseAutoregressive",
    "Joint",
    "MeanField",
    "MixturePrior",
    "Planar",
    "Radial",
    "Recurrent",
    "Refined",
    "Renyi",
    "RowJoint",
    "Stack",
    "StickingTheLanding",
    "SummedOut",
    "UnitDivergences",
    "VampPrior",
    "WarmUp",
    "Whole",
    "ancestral",
    "generate",
    "impute",
    "models",
    "reconstruct",
    "unit_divergences",
]
