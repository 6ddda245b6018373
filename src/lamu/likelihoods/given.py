"""A likelihood with its outputs, before anybody says whose they are."""

from __future__ import annotations

from typing import Any

from lamu.record import record

__all__ = ["LikelihoodOf"]


@record
class LikelihoodOf:
    r"""\(p(y \mid f)\) of outputs f that something else computes; what calling a likelihood returns."""

    likelihood: Any  # p(y | f)
    outputs: Any  # f
