"""Networks f(θ, x): built-in architectures, and those of PyTorch, Flax, Equinox or one's own, as pure dictionaries."""

from lamu.networks.batch_norm import BatchNorm
from lamu.networks.convolutional import ConvNet
from lamu.networks.convolutions import holds_convolutions, loops_well
from lamu.networks.dropout import Dropout, GaussianDropout, UnitNoise
from lamu.networks.embedded import Embedded
from lamu.networks.equinox import Equinox
from lamu.networks.evaluated import Evaluated
from lamu.networks.filter_response import FilterResponse
from lamu.networks.group_norm import GroupNorm
from lamu.networks.interface import Network, Normaliser
from lamu.networks.linen import Linen
from lamu.networks.multilayer import MLP, Linear
from lamu.networks.nnx import NNX
from lamu.networks.randomness import draws_noise
from lamu.networks.residual import ResNet
from lamu.networks.standardised import Standardised
from lamu.networks.tokens import Tokens
from lamu.networks.torch import Torch
from lamu.networks.trained import Trained

__all__ = [
    "MLP",
    "NNX",
    "BatchNorm",
    "ConvNet",
    "Dropout",
    "Embedded",
    "Equinox",
    "Evaluated",
    "FilterResponse",
    "GaussianDropout",
    "GroupNorm",
    "Linear",
    "Linen",
    "Network",
    "Normaliser",
    "ResNet",
    "Standardised",
    "Tokens",
    "Torch",
    "Trained",
    "UnitNoise",
    "draws_noise",
    "holds_convolutions",
    "loops_well",
]
