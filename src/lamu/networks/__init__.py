"""Networks f(θ, x): built-in architectures on Flax NNX, seen by the rest of the library as pure dictionaries."""

from lamu.networks.batch_norm import BatchNorm
from lamu.networks.convolutional import ConvNet
from lamu.networks.convolutions import holds_convolutions, loops_well
from lamu.networks.dropout import Dropout, GaussianDropout, UnitNoise
from lamu.networks.embedded import Embedded
from lamu.networks.filter_response import FilterResponse
from lamu.networks.interface import Network, Normaliser
from lamu.networks.multilayer import MLP, Linear
from lamu.networks.residual import ResNet
from lamu.networks.standardised import Standardised
from lamu.networks.trained import Trained

__all__ = [
    "MLP",
    "BatchNorm",
    "ConvNet",
    "Dropout",
    "Embedded",
    "FilterResponse",
    "GaussianDropout",
    "Linear",
    "Network",
    "Normaliser",
    "ResNet",
    "Standardised",
    "Trained",
    "UnitNoise",
    "holds_convolutions",
    "loops_well",
]
