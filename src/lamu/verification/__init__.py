"""Each algorithm against its classic, on this machine: reference, deviation, tolerance."""

from lamu.verification.check import Check
from lamu.verification.checks import checks

__all__ = ["Check", "checks"]
