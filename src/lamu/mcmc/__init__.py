"""Samplers, behind the same protocol as the rule's algorithms."""

from lamu.mcmc.no_u_turn import nuts
from lamu.mcmc.table import registry

__all__ = ["nuts", "registry"]
