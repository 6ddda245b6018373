"""Step-by-step checks of algorithms against classic implementations, and of default fits against posteriors."""

from lamu_verification.checks import checks, latent_checks, likelihood_checks
from lamu_verification.command import verify
from lamu_verification.problems import Check
from lamu_verification.shipped_rows import Limits, Shipped, shipped_rows

__all__ = ["Check", "Limits", "Shipped", "checks", "latent_checks", "likelihood_checks", "shipped_rows", "verify"]
