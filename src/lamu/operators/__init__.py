"""Symmetric operators on the space of parameters: precisions, and curvatures that become precisions."""

from lamu.operators.dense import Cholesky, Dense
from lamu.operators.diagonal import Diagonal
from lamu.operators.interface import Operator, Structure
from lamu.operators.scalar import Scalar

__all__ = ["Cholesky", "Dense", "Diagonal", "Operator", "Scalar", "Structure"]
