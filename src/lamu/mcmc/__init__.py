"""Samplers, behind the same protocol as the rule's algorithms."""

from lamu.mcmc.connectivity import BezierCurve, Connectivity, StraightLine, barriers
from lamu.mcmc.convergence_warnings import UnreliableChains
from lamu.mcmc.curvature_steps import CurvatureStepSize
from lamu.mcmc.diagnostics import Diagnosis, diagnose, inference_data
from lamu.mcmc.diffusions import mala, ula
from lamu.mcmc.gradients import ControlVariates, RowNoise
from lamu.mcmc.hamiltonian import hmc
from lamu.mcmc.metropolis import random_walk
from lamu.mcmc.no_u_turn import nuts
from lamu.mcmc.preconditioners import FrozenAfterWarmup, RootMeanSquare
from lamu.mcmc.step_sizes import Cyclical, Polynomial
from lamu.mcmc.stochastic_hamiltonian import sghmc, sgnht
from lamu.mcmc.stochastic_langevin import psgld, sgld
from lamu.mcmc.subsampling import DelayedAcceptance, SequentialTest, minibatch_mh
from lamu.mcmc.table import registry
from lamu.mcmc.tempering import parallel_tempering

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
