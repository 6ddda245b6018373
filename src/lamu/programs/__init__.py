"""NumPyro programs as targets, with a numerical test for conjugate factors."""

from lamu.programs.conjugacy import AFFINE, AffineDecomposition, Verdict
from lamu.programs.density import LogJoint, SiteBeliefs
from lamu.programs.messages import SiteMessages, expectation
from lamu.programs.program import NumpyroProgram, ProgramPrior, Rows
from lamu.programs.reading import from_numpyro

__all__ = [
    "AFFINE",
    "AffineDecomposition",
    "LogJoint",
    "NumpyroProgram",
    "ProgramPrior",
    "Rows",
    "SiteBeliefs",
    "SiteMessages",
    "Verdict",
    "expectation",
    "from_numpyro",
]
