"""Each algorithm against its classic, on this machine: reference, deviation, tolerance."""

from lamu.verification.checks import Check, checks

__all__ = ["Check", "checks"]
