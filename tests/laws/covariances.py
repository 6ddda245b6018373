"""The laws of operators on one that holds a covariance in the place of a precision: a row of `operators`."""

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.operators import LowRank, LowRankCovariance
from tests.laws.harness import row, twin
from tests.laws.operators import build_low_rank, dense, keep_low_rank


def build(cls: Any, matrix: np.ndarray, like: Any) -> Any:
    return cls(build_low_rank(LowRank, matrix, like))


covariance = row(
    "operators",
    "LowRankCovariance",
    LowRankCovariance,
    build=build,
    keep=lambda matrix: np.linalg.inv(keep_low_rank(matrix)),
    delta=dense,
)


class Precision(LowRankCovariance):
    """Takes the covariance for the precision."""

    def matvec(self, v: Any) -> Any:
        return self.covariance.matvec(v)


class Inverted(LowRankCovariance):
    """Draws with the root of the precision."""

    def inverse_root(self, z: Any) -> Any:
        return self.covariance.inverse_root(z)


class Flat(LowRankCovariance):
    """The determinant with the sign of the covariance's."""

    def logdet(self, like: Any) -> Any:
        return -super().logdet(like)


twin(covariance, "covariance for precision", "matvec_is_the_product", Precision)
twin(covariance, "the root of the inverse", "sample_has_the_covariance inverse_root_squares_to_the_inverse", Inverted)
twin(covariance, "sign of the determinant", "logdet_is_slogdet", Flat)
