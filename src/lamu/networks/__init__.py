"""Networks f(θ, x): built-in architectures, and those of PyTorch, Flax, Equinox or one's own, as pure dictionaries."""

from lamu.networks.augmented import Augmented, InputNoise
from lamu.networks.batch_norm import BatchNorm
from lamu.networks.columns import Columns, EncodedColumns
from lamu.networks.convolutional import ConvNet
from lamu.networks.convolutions import holds_convolutions, loops_well
from lamu.networks.deconvolutional import DeconvNet
from lamu.networks.dropout import Dropout, GaussianDropout, UnitNoise
from lamu.networks.embedded import Embedded
from lamu.networks.equinox import Equinox
from lamu.networks.evaluated import Evaluated
from lamu.networks.filter_response import FilterResponse
from lamu.networks.group_norm import GroupNorm
from lamu.networks.gru import GRU
from lamu.networks.interface import Network, Normaliser
from lamu.networks.kernel_features import KernelFeatures
from lamu.networks.linen import Linen
from lamu.networks.low_rank_adapter import LowRankAdapter
from lamu.networks.lstm import LSTM
from lamu.networks.multilayer import MLP, Linear
from lamu.networks.nnx import NNX
from lamu.networks.one_hot import OneHot
from lamu.networks.randomness import draws_noise
from lamu.networks.readouts import EveryStep, LastStep, MeanOfSteps, Readout
from lamu.networks.residual import ResNet
from lamu.networks.safetensors import read_safetensors, write_safetensors
from lamu.networks.standardised import Standardised
from lamu.networks.tabular import TableNetwork
from lamu.networks.tokens import Tokens
from lamu.networks.torch import Torch
from lamu.networks.trained import Trained
from lamu.networks.transformer import Transformer
from lamu.networks.unet import UNet
from lamu.networks.wide_residual import WideResNet

__all__ = [
    "GRU",
    "LSTM",
    "MLP",
    "NNX",
    "Augmented",
    "BatchNorm",
    "Columns",
    "ConvNet",
    "DeconvNet",
    "Dropout",
    "Embedded",
    "EncodedColumns",
    "Equinox",
    "Evaluated",
    "EveryStep",
    "FilterResponse",
    "GaussianDropout",
    "GroupNorm",
    "InputNoise",
    "KernelFeatures",
    "LastStep",
    "Linear",
    "Linen",
    "LowRankAdapter",
    "MeanOfSteps",
    "Network",
    "Normaliser",
    "OneHot",
    "Readout",
    "ResNet",
    "Standardised",
    "TableNetwork",
    "Tokens",
    "Torch",
    "Trained",
    "Transformer",
    "UNet",
    "UnitNoise",
    "WideResNet",
    "draws_noise",
    "holds_convolutions",
    "loops_well",
    "read_safetensors",
    "write_safetensors",
]
