"""Ready models with amortised latents: functions that return a `lamu.Graph`."""

from lamu.latent.models.autoencoders import VAE, AutoEncoder, DenoisingAutoEncoder
from lamu.latent.models.binary import DARN, SigmoidBelief
from lamu.latent.models.deep_kalman import DeepKalman
from lamu.latent.models.deep_markov import DeepMarkov
from lamu.latent.models.draw import DRAW
from lamu.latent.models.hierarchies import DeepLatentGaussian, LadderVAE
from lamu.latent.models.linear import ExponentialPCA, FactorAnalysis
from lamu.latent.models.semi_supervised import SemiSupervised, StackedSemiSupervised

__all__ = [
    "DARN",
    "DRAW",
    "VAE",
    "AutoEncoder",
    "DeepKalman",
    "DeepLatentGaussian",
    "DeepMarkov",
    "DenoisingAutoEncoder",
    "ExponentialPCA",
    "FactorAnalysis",
    "LadderVAE",
    "SemiSupervised",
    "SigmoidBelief",
    "StackedSemiSupervised",
]
