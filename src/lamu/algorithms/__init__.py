"""Algorithms of the Bayesian learning rule: recipes grouped in files and folders by the kind of posterior."""

from typing import TYPE_CHECKING

from lamu.base.lazy_imports import lazy_names

if TYPE_CHECKING:
    from lamu.algorithms.black_box import igo
    from lamu.algorithms.blockwise import blocks
    from lamu.algorithms.closed_form.conjugate import conjugate
    from lamu.algorithms.closed_form.extended_kalman import extended_kalman, kalman_update
    from lamu.algorithms.closed_form.message_passing import cvi, em, ncvmp, svi, vmp
    from lamu.algorithms.descent.belief_descent import bayes_by_backprop
    from lamu.algorithms.discrete import PlugInMean, PlugInMode, bayesbinn, dropout, mc_dropout, straight_through
    from lamu.algorithms.ensembles.deep_ensemble import Anchors, Bootstrap, Seeds, deep_ensemble
    from lamu.algorithms.ensembles.mixture import EqualWeights, EvidenceWeights, mixture
    from lamu.algorithms.ensembles.swag import DiagonalDeviations, EverySteps, LastPart, LowRankDeviations, swag
    from lamu.algorithms.mirror import Entropy, Hypentropy, Simplex, mirror_descent
    from lamu.algorithms.mixtures import mixture_vi, multimodal
    from lamu.algorithms.moments import pbp
    from lamu.algorithms.optimisers import (
        adagrad,
        adam,
        gradient_descent,
        invariant_map,
        kfac,
        map_estimate,
        newton,
        rmsprop,
        sam,
        sgd,
    )
    from lamu.algorithms.post_hoc.evidence import Evidence, evidence, tuned
    from lamu.algorithms.post_hoc.laplace import laplace, last_layer
    from lamu.algorithms.post_hoc.neural_linear import neural_linear
    from lamu.algorithms.post_hoc.online_laplace import online_laplace
    from lamu.algorithms.post_hoc.scale_search import OneScale, ScalePerLayer, ScalePerWeight
    from lamu.algorithms.post_hoc.subnetwork import AllWeights, ByMask, HeadWeights, LargestVariance, Matching
    from lamu.algorithms.table import registry
    from lamu.algorithms.variational.conjugate_scales import conjugate_scales
    from lamu.algorithms.variational.lie_group import lie_group
    from lamu.algorithms.variational.online_newton import bsam, ivon, noisy_kfac, ogn, slang, vogn, von
    from lamu.algorithms.variational.variational_head import DenseHead, DiagonalHead, variational_head
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

__all__ = [
    "AllWeights",
    "Anchors",
    "Bootstrap",
    "ByMask",
    "DenseHead",
    "DiagonalDeviations",
    "DiagonalHead",
    "Entropy",
    "EqualWeights",
    "EverySteps",
    "Evidence",
    "EvidenceWeights",
    "HeadWeights",
    "Hypentropy",
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
    "Simplex",
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
    "mirror_descent",
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
