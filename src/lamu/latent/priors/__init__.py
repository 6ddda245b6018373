"""Priors of latents with weights of their own."""

from lamu.latent.priors.autoregressive import AutoregressiveBernoulli
from lamu.latent.priors.flow import FlowPrior
from lamu.latent.priors.mixture import MixturePrior
from lamu.latent.priors.transition import TransitionPrior
from lamu.latent.priors.vamp import VampPrior

__all__ = ["AutoregressiveBernoulli", "FlowPrior", "MixturePrior", "TransitionPrior", "VampPrior"]
