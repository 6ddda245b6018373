"""Limits of wide networks: the Gaussian process of normal weights, and the jump process of heavy-tailed ones."""

from lamu.limits.nngp import NNGP, GaussianRegression
from lamu.limits.stable import StableProcess

__all__ = ["NNGP", "GaussianRegression", "StableProcess"]
