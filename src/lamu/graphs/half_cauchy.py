"""A scale with heavy tails, by an auxiliary variable that makes it conjugate."""

# \[ s \sim C^+(0, A) \quad\Leftrightarrow\quad s^2 \mid a \sim IG(\tfrac12, 1/a), \quad a \sim IG(\tfrac12, 1/A^2) \]

from __future__ import annotations

from typing import Any

import numpy as np

from lamu.graphs.expressions import Scale, Variable
from lamu.graphs.gamma import InverseGamma, InverseGammaFactor
from lamu.record import record, static

__all__ = ["HalfCauchy"]


@record
class HalfCauchy:
    r"""A positive scale s with density \(\propto 1/(1 + s^2/A^2)\), for `Normal(..., scale=s)`.

    The variable that carries its name is \(s^2\); the auxiliary one is called `NAME.auxiliary`. Scales are multiplied
    with each other and with numbers, as in the horseshoe.

    Attributes:
        scale: A, positive.

    Source: Wand, Ormerod, Padoan & Frühwirth (2011), result 5.

    Examples:
        >>> from lamu import graphs
        >>> graphs.HalfCauchy(0.1).auxiliary.shape
        ()
    """

    scale: Any = static()

    def __post_init__(self) -> None:
        if not np.all(np.asarray(self.scale) > 0):
            raise ValueError(f"the scale of HalfCauchy is {self.scale!r}; give a positive number")

    @property
    def auxiliary(self) -> InverseGammaFactor:
        """The factor of a."""
        return InverseGamma(0.5, 1.0 / np.asarray(self.scale) ** 2)

    def square(self, auxiliary: Variable) -> InverseGammaFactor:
        """Returns the factor of s² given a.

        Args:
            auxiliary: a.
        """
        return InverseGamma(0.5, Scale((auxiliary,)))
