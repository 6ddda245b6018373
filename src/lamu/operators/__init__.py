"""Symmetric operators on the space of parameters: precisions, and curvatures that become precisions."""

from typing import TYPE_CHECKING, Any, TypeAlias

from lamu.operators.block_diagonal import BlockDiagonal, DenseBlocks
from lamu.operators.dense import Cholesky, Dense
from lamu.operators.diagonal import Diagonal, Scalar, Scaled
from lamu.operators.interface import Operator, Structure
from lamu.operators.kronecker import (
    Kronecker,
    KroneckerBlocks,
    KroneckerEigen,
    KroneckerFactored,
    KroneckerLeading,
    StaleFactors,
    leading,
)
from lamu.operators.low_rank import LowRank, LowRankCovariance, LowRankEigen, LowRankStructure
from lamu.operators.matrix_free import MatrixFree, MatrixFreeStructure
from lamu.operators.per_output import OutputBlocks, OutputCholesky, OutputEigen

__all__ = [
    "BlockDiagonal",
    "Cholesky",
    "Dense",
    "DenseBlocks",
    "Diagonal",
    "Kronecker",
    "KroneckerBlocks",
    "KroneckerEigen",
    "KroneckerFactored",
    "KroneckerLeading",
    "LowRank",
    "LowRankCovariance",
    "LowRankEigen",
    "LowRankStructure",
    "MatrixFree",
    "MatrixFreeStructure",
    "Operator",
    "OutputBlocks",
    "OutputCholesky",
    "OutputEigen",
    "Scalar",
    "Scaled",
    "StaleFactors",
    "Structure",
    "leading",
]

AnyStructure: TypeAlias = type[Any] | KroneckerFactored | LowRankStructure | MatrixFreeStructure
"""A class of operators (`Dense`, `OutputEigen`), or a record that stands for one."""

# An argument that is checked with an error message: declared for type checkers, not enforced at run time.
if TYPE_CHECKING:
    StructureLike: TypeAlias = AnyStructure
else:
    StructureLike = Any
