"""Algorithms: recipes of the Bayesian learning rule, one file each."""

from lamu.algorithms.black_box.igo import igo
from lamu.algorithms.blockwise.blocks import blocks
from lamu.algorithms.closed_form.conjugate import conjugate
from lamu.algorithms.closed_form.cvi import cvi
from lamu.algorithms.closed_form.em import em
from lamu.algorithms.closed_form.extended_kalman import extended_kalman, kalman_update
from lamu.algorithms.closed_form.ncvmp import ncvmp
from lamu.algorithms.closed_form.svi import svi
from lamu.algorithms.closed_form.vmp import vmp
from lamu.algorithms.discrete.bayesbinn import bayesbinn
from lamu.algorithms.discrete.dropout import dropout, mc_dropout
from lamu.algorithms.discrete.plug_in import PlugInMean, PlugInMode
from lamu.algorithms.discrete.straight_through import straight_through
from lamu.algorithms.ensembles.deep_ensemble import deep_ensemble
from lamu.algorithms.ensembles.diversity import Anchors, Bootstrap, Seeds
from lamu.algorithms.ensembles.iterates import DiagonalDeviations, EverySteps, LastPart, LowRankDeviations
from lamu.algorithms.ensembles.mixture import EqualWeights, EvidenceWeights, mixture
from lamu.algorithms.ensembles.swag import swag
from lamu.algorithms.mixtures.mixture_vi import mixture_vi
from lamu.algorithms.mixtures.multimodal import multimodal
from lamu.algorithms.moments.pbp import pbp
from lamu.algorithms.optimisers.adagrad import adagrad
from lamu.algorithms.optimisers.adam import adam
from lamu.algorithms.optimisers.gradient_descent import gradient_descent
from lamu.algorithms.optimisers.invariant_map import invariant_map
from lamu.algorithms.optimisers.kfac import kfac
from lamu.algorithms.optimisers.map_estimate import map_estimate
from lamu.algorithms.optimisers.newton import newton
from lamu.algorithms.optimisers.rmsprop import rmsprop
from lamu.algorithms.optimisers.sam import sam
from lamu.algorithms.optimisers.sgd import sgd
from lamu.algorithms.post_hoc.evidence import Evidence, evidence, tuned
from lamu.algorithms.post_hoc.laplace import laplace
from lamu.algorithms.post_hoc.last_layer import last_layer
from lamu.algorithms.post_hoc.neural_linear import neural_linear
from lamu.algorithms.post_hoc.online_laplace import online_laplace
from lamu.algorithms.post_hoc.prior_scales import OneScale, ScalePerLayer, ScalePerWeight
from lamu.algorithms.post_hoc.selection import AllWeights, HeadWeights, Matching
from lamu.algorithms.post_hoc.subnetwork import ByMask, LargestVariance
from lamu.algorithms.table import registry
from lamu.algorithms.variational.bayes_by_backprop import bayes_by_backprop
from lamu.algorithms.variational.bsam import bsam
from lamu.algorithms.variational.conjugate_scales import conjugate_scales
from lamu.algorithms.variational.head_covariance import DenseHead, DiagonalHead
from lamu.algorithms.variational.ivon import ivon
from lamu.algorithms.variational.lie_group import lie_group
from lamu.algorithms.variational.noisy_kfac import noisy_kfac
from lamu.algorithms.variational.ogn import ogn
from lamu.algorithms.variational.slang import slang
from lamu.algorithms.variational.variational_head import variational_head
from lamu.algorithms.variational.vogn import vogn
from lamu.algorithms.variational.von import von

__all__ = [
    "AllWeights",
    "Anchors",
    "Bootstrap",
    "ByMask",
    "DenseHead",
    "DiagonalDeviations",
    "DiagonalHead",
    "EqualWeights",
    "EverySteps",
    "Evidence",
    "EvidenceWeights",
    "HeadWeights",
    "LargestVariance",
    "LastPart",
    "LowRankDeviations",
    "Matching",
    "OneScale",
    "PlugInMean",
    "PlugInMode",
    "ScalePerLayer",
    "ScalePerWeight",
    "Seeds",
    "adagrad",
    "adam",
    "bayes_by_backprop",
    "bayesbinn",
    "blocks",
    "bsam",
    "conjugate",
    "conjugate_scales",
    "cvi",
    "deep_ensemble",
    "dropout",
    "em",
    "evidence",
    "extended_kalman",
    "gradient_descent",
    "igo",
    "invariant_map",
    "ivon",
    "kalman_update",
    "kfac",
    "laplace",
    "last_layer",
    "lie_group",
    "map_estimate",
    "mc_dropout",
    "mixture",
    "mixture_vi",
    "multimodal",
    "ncvmp",
    "neural_linear",
    "newton",
    "noisy_kfac",
    "ogn",
    "online_laplace",
    "pbp",
    "registry",
    "rmsprop",
    "sam",
    "sgd",
    "slang",
    "straight_through",
    "svi",
    "swag",
    "tuned",
    "variational_head",
    "vmp",
    "vogn",
    "von",
]
