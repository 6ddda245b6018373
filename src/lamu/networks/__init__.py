"""Networks f(θ, x): built-in architectures on Flax NNX, seen by the rest of the library as pure dictionaries."""

from lamu.networks.interface import Network
from lamu.networks.multilayer import MLP, Linear
from lamu.networks.standardised import Standardised

__all__ = ["MLP", "Linear", "Network", "Standardised"]
