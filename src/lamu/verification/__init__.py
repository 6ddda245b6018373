"""Each algorithm against its classic step by step, and as it ships against the posterior, on this machine."""

from lamu.verification.check import Check
from lamu.verification.checks import checks, latent_checks, likelihood_checks
from lamu.verification.shipped import Limits, Shipped
from lamu.verification.shipped_rows import shipped_rows

__all__ = ["Check", "Limits", "Shipped", "checks", "latent_checks", "likelihood_checks", "shipped_rows"]
