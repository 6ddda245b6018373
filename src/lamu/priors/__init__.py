"""Priors: the distribution of a network's parameters before any data, one file a distribution."""

from lamu.priors.interface import Prior
from lamu.priors.learned import LearnedNormal
from lamu.priors.normal import Normal

__all__ = ["LearnedNormal", "Normal", "Prior"]
