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
from lamu.latent.class_sweep import analogies
from lamu.latent.coding import BitsBack, Stack
from lamu.latent.drawing import Attention, Drawing, Glimpse, Whole
from lamu.latent.each_step import EachStep
from lamu.latent.flows import Coupling, Flow, Flowed, InverseAutoregressive, Planar, Radial
from lamu.latent.generation import generate, impute, reconstruct
from lamu.latent.labelled_share import oversample_labelled
from lamu.latent.locals import (
    Amortised,
    AmortisedBernoulli,
    Baseline,
    BeliefFamily,
    Conjugate,
    Corruption,
    Delta,
    Denoising,
    Enumerated,
    Flows,
    GaussianNoise,
    Ladder,
    Masking,
    MeanField,
    Recurrent,
    Refined,
    Smoother,
    SummedOut,
)
from lamu.latent.posterior_rows import row_joint
from lamu.latent.priors import AutoregressiveBernoulli, FlowPrior, MixturePrior, TransitionPrior, VampPrior
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
    "Corruption",
    "Coupling",
    "Delta",
    "Denoising",
    "DoublyReparameterised",
    "Drawing",
    "EachStep",
    "Enumerated",
    "Flow",
    "FlowPrior",
    "Flowed",
    "Flows",
    "FreeBits",
    "GaussianNoise",
    "Glimpse",
    "Importance",
    "InverseAutoregressive",
    "Joint",
    "Ladder",
    "Masking",
    "MeanField",
    "MixturePrior",
    "Planar",
    "Radial",
    "Recurrent",
    "Refined",
    "Renyi",
    "RowJoint",
    "Smoother",
    "Stack",
    "StickingTheLanding",
    "SummedOut",
    "TransitionPrior",
    "UnitDivergences",
    "VampPrior",
    "WarmUp",
    "Whole",
    "analogies",
    "ancestral",
    "generate",
    "impute",
    "models",
    "oversample_labelled",
    "reconstruct",
    "row_joint",
    "unit_divergences",
]
