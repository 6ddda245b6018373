"""PyTorch modules as networks: read once, as a graph of operators, and computed by JAX from then on."""

from lamu.networks.torch.module import Torch

__all__ = ["Torch"]
