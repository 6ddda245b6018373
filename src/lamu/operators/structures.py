"""What may stand for the structure of a precision."""

from __future__ import annotations

from typing import Any, TypeAlias

from lamu.operators.kronecker import KroneckerFactored
from lamu.operators.low_rank import LowRankStructure
from lamu.operators.matrix_free import MatrixFreeStructure

__all__ = ["AnyStructure"]

AnyStructure: TypeAlias = type[Any] | KroneckerFactored | LowRankStructure | MatrixFreeStructure
"""A class of operators (`Dense`, `OutputEigen`), or a record that stands for one."""
