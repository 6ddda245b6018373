"""Networks f(θ, x): built-in architectures, and adapters of PyTorch, Flax, Equinox and custom networks."""

from typing import TYPE_CHECKING

from lamu.base.lazy_imports import lazy_names

if TYPE_CHECKING:
    from lamu.networks.computation import MixedPrecision, Partitioned, Rematerialised
    from lamu.networks.convolutional import ConvNet, DeconvNet, UNet, holds_convolutions, scan_friendly
    from lamu.networks.embedded import Embedded, OneHot, Tokens
    from lamu.networks.equinox import Equinox
    from lamu.networks.flax import NNX, Linen
    from lamu.networks.interface import Evaluated, Network, Normaliser
    from lamu.networks.kernel_features import KernelFeatures
    from lamu.networks.low_rank_adapter import LowRankAdapter, read_safetensors, write_safetensors
    from lamu.networks.multilayer import MLP, Linear
    from lamu.networks.normalisation import (
        BatchNorm,
        Dropout,
        FilterResponse,
        GaussianDropout,
        GroupNorm,
        UnitNoise,
        draws_noise,
    )
    from lamu.networks.recurrent import GRU, LSTM, EveryStep, LastStep, MeanOfSteps, Readout
    from lamu.networks.residual import ResNet, WideResNet
    from lamu.networks.tabular import Columns, EncodedColumns, TableNetwork
    from lamu.networks.torch import Torch
    from lamu.networks.transformer import Transformer
    from lamu.networks.wrapper import Augmented, InputNoise, Standardised, Trained
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

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
    "MixedPrecision",
    "Network",
    "Normaliser",
    "OneHot",
    "Partitioned",
    "Readout",
    "Rematerialised",
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
    "read_safetensors",
    "scan_friendly",
    "write_safetensors",
]
