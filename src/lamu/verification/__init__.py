"""Each algorithm against its classic step by step, and as it ships against the posterior, on this machine."""

from lamu.verification.checks import checks, latent_checks, likelihood_checks
from lamu.verification.problems import Check
from lamu.verification.shipped_rows import Limits, Shipped, shipped_rows

__all__ = ["Check", "Limits", "Shipped", "checks", "latent_checks", "likelihood_checks", "shipped_rows"]
