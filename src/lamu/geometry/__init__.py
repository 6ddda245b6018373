"""The arrow of the rule: how a precision moves towards its target, and groups that act on a belief."""

from lamu.geometry.arrows import Accumulation, FamilyGeometry, Geometry, Guarded, Retraction, Straight
from lamu.geometry.bounded import Bounded, Shortened
from lamu.geometry.compressed import Compressed
from lamu.geometry.factorwise import Factorwise, Shifted
from lamu.geometry.groups import (
    Additive,
    Affine,
    ClippedAffine,
    ExcitatoryInhibitory,
    FullAffine,
    Group,
    Multiplicative,
    Placement,
)
from lamu.geometry.noise import LogNormal, Multiplied, Rayleigh

__all__ = [
    "Accumulation",
    "Additive",
    "Affine",
    "Bounded",
    "ClippedAffine",
    "Compressed",
    "ExcitatoryInhibitory",
    "Factorwise",
    "FamilyGeometry",
    "FullAffine",
    "Geometry",
    "Group",
    "Guarded",
    "LogNormal",
    "Multiplicative",
    "Multiplied",
    "Placement",
    "Rayleigh",
    "Retraction",
    "Shifted",
    "Shortened",
    "Straight",
]
