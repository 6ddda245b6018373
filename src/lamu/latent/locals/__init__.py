"""Locals with networks: how latents of a row leave by draws of a belief that an encoder makes."""

from lamu.latent.locals.amortised import Amortised
from lamu.latent.locals.amortised_bernoulli import AmortisedBernoulli
from lamu.latent.locals.baseline import Baseline
from lamu.latent.locals.conjugate import Conjugate
from lamu.latent.locals.delta import Delta
from lamu.latent.locals.denoising import Corruption, Denoising, GaussianNoise, Masking
from lamu.latent.locals.enumerated import Enumerated, SummedOut
from lamu.latent.locals.families import BeliefFamily, Flows, MeanField
from lamu.latent.locals.ladder import Ladder
from lamu.latent.locals.recurrent import Recurrent
from lamu.latent.locals.refined import Refined
from lamu.latent.locals.smoother import Smoother

__all__ = [
    "Amortised",
    "AmortisedBernoulli",
    "Baseline",
    "BeliefFamily",
    "Conjugate",
    "Corruption",
    "Delta",
    "Denoising",
    "Enumerated",
    "Flows",
    "GaussianNoise",
    "Ladder",
    "Masking",
    "MeanField",
    "Recurrent",
    "Refined",
    "Smoother",
    "SummedOut",
]
