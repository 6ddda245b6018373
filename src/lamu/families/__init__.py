"""Beliefs: the families q(θ), one file each."""

from lamu.families.draws import Draws
from lamu.families.ensemble import Ensemble
from lamu.families.gaussian import ExpectationGaussian, Gaussian, NaturalGaussian
from lamu.families.interface import Family
from lamu.families.point import Point
from lamu.families.product import Product

__all__ = ["Draws", "Ensemble", "ExpectationGaussian", "Family", "Gaussian", "NaturalGaussian", "Point", "Product"]
