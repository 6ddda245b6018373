"""A likelihood with its outputs, before anybody says whose they are."""

from __future__ import annotations

from typing import Any

from lamu.record import record

__all__ = ["LikelihoodOf"]


@record
class LikelihoodOf:
    r"""\(p(y \mid f)\) of outputs f that something else computes; what calling a likelihood returns.

    Attributes:
        likelihood: p(y | f).
        outputs: f.

    Examples:
        >>> from lamu.likelihoods import Poisson
        >>> Poisson()(0.5).outputs
        0.5
    """

    likelihood: Any
    outputs: Any
