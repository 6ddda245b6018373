"""PyTorch modules as networks: exported once as a graph of operators, and then computed by JAX."""

from lamu.networks.torch.module import Torch

__all__ = ["Torch"]
