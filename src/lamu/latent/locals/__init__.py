"""Amortised locals: eliminate latents of a row by samples of an encoder's belief."""

from lamu.latent.locals.amortised import (
    Amortised,
    BeliefFamily,
    Corruption,
    Delta,
    Denoising,
    Flows,
    GaussianNoise,
    Masking,
    MeanField,
    Refined,
)
from lamu.latent.locals.conjugate import Conjugate, Ladder
from lamu.latent.locals.discrete import AmortisedBernoulli, Baseline, Enumerated, SummedOut
from lamu.latent.locals.series import Recurrent, Smoother

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
