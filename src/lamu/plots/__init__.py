"""Pictures of how far a prediction can be trusted, drawn without any global state: each function returns a figure.

A figure is matplotlib's own: `figure.savefig(path)` writes it, and its axes can be drawn on.
"""

from lamu.plots.classes import reliability
from lamu.plots.intervals import coverage
from lamu.plots.rows import influence

__all__ = ["coverage", "influence", "reliability"]
