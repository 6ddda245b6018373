"""Choices of expectation: how the gradient of E_q[ℓ] in the expectation parameters is taken."""

from lamu.expectations.delta import Delta
from lamu.expectations.interface import Expectation
from lamu.expectations.linear import Exact, Quadrature
from lamu.expectations.monte_carlo import MonteCarlo

__all__ = ["Delta", "Exact", "Expectation", "MonteCarlo", "Quadrature"]
