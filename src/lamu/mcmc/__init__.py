"""Markov chain Monte Carlo samplers, with the same protocol as the rule's algorithms."""

from typing import TYPE_CHECKING

from lamu.base.lazy_imports import lazy_names

if TYPE_CHECKING:
    from lamu.mcmc.chains import registry
    from lamu.mcmc.connectivity import BezierCurve, Connectivity, StraightLine, barriers
    from lamu.mcmc.diagnostics import Diagnosis, UnreliableChains, diagnose, inference_data
    from lamu.mcmc.gradients import ControlVariates, RowNoise
    from lamu.mcmc.hamiltonian import hmc, nuts
    from lamu.mcmc.metropolis import mala, random_walk, ula
    from lamu.mcmc.step_sizes import CurvatureStepSize, Cyclical, FrozenAfterWarmup, Polynomial, RootMeanSquare
    from lamu.mcmc.stochastic_gradient import psgld, sghmc, sgld, sgnht
    from lamu.mcmc.subsampling import DelayedAcceptance, SequentialTest, minibatch_mh
    from lamu.mcmc.tempering import parallel_tempering
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

__all__ = [
    "BezierCurve",
    "Connectivity",
    "ControlVariates",
    "CurvatureStepSize",
    "Cyclical",
    "DelayedAcceptance",
    "Diagnosis",
    "FrozenAfterWarmup",
    "Polynomial",
    "RootMeanSquare",
    "RowNoise",
    "SequentialTest",
    "StraightLine",
    "UnreliableChains",
    "barriers",
    "diagnose",
    "hmc",
    "inference_data",
    "mala",
    "minibatch_mh",
    "nuts",
    "parallel_tempering",
    "psgld",
    "random_walk",
    "registry",
    "sghmc",
    "sgld",
    "sgnht",
    "ula",
]
