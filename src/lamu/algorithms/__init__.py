"""Algorithms: recipes of the Bayesian learning rule, one file each."""

from lamu.algorithms.black_box.igo import igo
from lamu.algorithms.closed_form.conjugate import conjugate
from lamu.algorithms.closed_form.svi import svi
from lamu.algorithms.discrete.bayesbinn import bayesbinn
from lamu.algorithms.discrete.dropout import dropout, mc_dropout
from lamu.algorithms.discrete.plugged import AtMean, AtMode
from lamu.algorithms.discrete.straight_through import straight_through
from lamu.algorithms.ensembles.deep_ensemble import deep_ensemble
from lamu.algorithms.ensembles.mixture import EqualWeights, EvidenceWeights, mixture
from lamu.algorithms.mixtures.mixture_vi import mixture_vi
from lamu.algorithms.mixtures.multimodal import multimodal
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
from lamu.algorithms.post_hoc.laplace import laplace
from lamu.algorithms.post_hoc.last_layer import last_layer
from lamu.algorithms.table import registry
from lamu.algorithms.variational.bayes_by_backprop import bayes_by_backprop
from lamu.algorithms.variational.bsam import bsam
from lamu.algorithms.variational.ivon import ivon
from lamu.algorithms.variational.lie_group import lie_group
from lamu.algorithms.variational.noisy_kfac import noisy_kfac
from lamu.algorithms.variational.ogn import ogn
from lamu.algorithms.variational.slang import slang
from lamu.algorithms.variational.vogn import vogn
from lamu.algorithms.variational.von import von

__all__ = [
    "AtMean",
    "AtMode",
    "EqualWeights",
    "EvidenceWeights",
    "adagrad",
    "adam",
    "bayes_by_backprop",
    "bayesbinn",
    "bsam",
    "conjugate",
    "deep_ensemble",
    "dropout",
    "gradient_descent",
    "igo",
    "invariant_map",
    "ivon",
    "kfac",
    "laplace",
    "last_layer",
    "lie_group",
    "map_estimate",
    "mc_dropout",
    "mixture",
    "mixture_vi",
    "multimodal",
    "newton",
    "noisy_kfac",
    "ogn",
    "registry",
    "rmsprop",
    "sam",
    "sgd",
    "slang",
    "straight_through",
    "svi",
    "vogn",
    "von",
]
