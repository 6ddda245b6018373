"""Divergences between a belief and its target, one choice an object."""

from lamu.divergences.interface import Divergence
from lamu.divergences.kullback_leibler import InclusiveKL, ReverseKL
from lamu.divergences.renyi import Renyi, renyi_divergence

__all__ = ["Divergence", "InclusiveKL", "Renyi", "ReverseKL", "renyi_divergence"]
