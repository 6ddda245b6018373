"""Geometries of the rule: how a precision moves towards its target, and groups that act on a belief."""

from typing import TYPE_CHECKING

from lamu.base.lazy_imports import lazy_names

if TYPE_CHECKING:
    from lamu.geometry.arrows import (
        Accumulation,
        Bounded,
        Compressed,
        Factorwise,
        FamilyGeometry,
        Geometry,
        Guarded,
        Retraction,
        Shifted,
        Shortened,
        Straight,
    )
    from lamu.geometry.groups import (
        Additive,
        Affine,
        ClippedAffine,
        ExcitatoryInhibitory,
        FullAffine,
        Group,
        LogNormal,
        Multiplicative,
        Multiplied,
        Placement,
        Rayleigh,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

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
