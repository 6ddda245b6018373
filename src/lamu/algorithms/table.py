"""The table of algorithms, in the order of the paper's: optimisation, deep learning, inference."""

from __future__ import annotations

from lamu.algorithms.black_box import igo
from lamu.algorithms.blockwise import blocks
from lamu.algorithms.closed_form.conjugate import conjugate
from lamu.algorithms.closed_form.extended_kalman import extended_kalman
from lamu.algorithms.closed_form.message_passing import cvi, em, ncvmp, svi, vmp
from lamu.algorithms.descent.belief_descent import bayes_by_backprop
from lamu.algorithms.discrete import bayesbinn, dropout, mc_dropout, straight_through
from lamu.algorithms.ensembles.deep_ensemble import deep_ensemble
from lamu.algorithms.ensembles.mixture import mixture
from lamu.algorithms.ensembles.swag import swag
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
from lamu.algorithms.post_hoc.laplace import laplace, last_layer
from lamu.algorithms.post_hoc.neural_linear import neural_linear
from lamu.algorithms.post_hoc.online_laplace import online_laplace
from lamu.algorithms.variational.conjugate_scales import conjugate_scales
from lamu.algorithms.variational.lie_group import lie_group
from lamu.algorithms.variational.online_newton import bsam, ivon, ogn, vogn, von
from lamu.algorithms.variational.structured import noisy_kfac, slang
from lamu.algorithms.variational.variational_head import variational_head
from lamu.protocol import Recipe

__all__ = ["registry"]

_RECIPES = (
    Recipe("gradient_descent", gradient_descent, "Khan & Rue 2021, section 1.3.1"),
    Recipe("newton", newton, "Khan & Rue 2021, section 1.3.2"),
    Recipe("multimodal", multimodal, "Khan & Rue 2021, section 3; Lin et al. 2019"),
    Recipe("sgd", sgd, "Khan & Rue 2021, section 4.1"),
    Recipe("adagrad", adagrad, "Duchi, Hazan & Singer 2011"),
    Recipe("rmsprop", rmsprop, "Tieleman & Hinton 2012; Khan & Rue 2021, section 4.2"),
    Recipe("adam", adam, "Kingma & Ba 2015; Khan & Rue 2021, section 4.2"),
    Recipe("map_estimate", map_estimate, "any optax optimiser"),
    Recipe("invariant_map", invariant_map, "Druilhet & Marin 2007"),
    Recipe("kfac", kfac, "Martens & Grosse 2015; Zhang et al. 2018, section 3.3"),
    Recipe("sam", sam, "Foret et al. 2021, algorithm 1"),
    Recipe("dropout", dropout, "Khan & Rue 2021, section 4.3; Srivastava et al. 2014"),
    Recipe("mc_dropout", mc_dropout, "Gal & Ghahramani 2016"),
    Recipe("straight_through", straight_through, "Meng et al. 2020, table 1"),
    Recipe("bayesbinn", bayesbinn, "Meng et al. 2020, section 3"),
    Recipe("von", von, "Khan et al. 2018, section 3"),
    Recipe("ogn", ogn, "Khan & Rue 2021, section 4.4"),
    Recipe("vogn", vogn, "Khan et al. 2018, equations 11 and 12"),
    Recipe("ivon", ivon, "Shen et al. 2024, algorithm 1"),
    Recipe("conjugate_scales", conjugate_scales, "MacKay 1994; Louizos, Ullrich & Welling 2017"),
    Recipe("slang", slang, "Mishkin et al. 2018, algorithm 1"),
    Recipe("noisy_kfac", noisy_kfac, "Zhang et al. 2018, algorithm 2"),
    Recipe("bayes_by_backprop", bayes_by_backprop, "Blundell et al. 2015, section 3.2"),
    Recipe("variational_head", variational_head, "Harrison, Willes & Snoek 2024"),
    Recipe("bsam", bsam, "Möllenhoff & Khan 2023, algorithm 1"),
    Recipe("lie_group", lie_group, "Kıral, Möllenhoff & Khan 2023"),
    Recipe("mixture_vi", mixture_vi, "Lin, Khan & Schmidt 2019"),
    Recipe("igo", igo, "Ollivier et al. 2017; Glasmachers et al. 2010"),
    Recipe("pbp", pbp, "Hernández-Lobato & Adams 2015, section 3; Li et al. 2015, algorithm 1"),
    Recipe("laplace", laplace, "MacKay 1992; Khan & Rue 2021, section 4.4"),
    Recipe("online_laplace", online_laplace, "Immer et al. 2021, algorithm 1"),
    Recipe("last_layer", last_layer, "Snoek et al. 2015; Kristiadi et al. 2020"),
    Recipe("swag", swag, "Maddox et al. 2019, equation 1 and algorithm 1"),
    Recipe("neural_linear", neural_linear, "Snoek et al. 2015; Riquelme et al. 2018"),
    Recipe("deep_ensemble", deep_ensemble, "Lakshminarayanan et al. 2017"),
    Recipe("mixture", mixture, "Wilson & Izmailov 2020; Shen et al. 2024"),
    Recipe("em", em, "Dempster, Laird & Rubin 1977; Neal & Hinton 1998"),
    Recipe("vmp", vmp, "Winn & Bishop 2005; Khan & Rue 2021, section 5.2"),
    Recipe("ncvmp", ncvmp, "Knowles & Minka 2011, algorithm 1; Khan & Rue 2021, section 5.4"),
    Recipe("svi", svi, "Hoffman et al. 2013, equation 26"),
    Recipe("cvi", cvi, "Khan & Lin 2017, algorithm 1; Khan & Rue 2021, section 5.4"),
    Recipe("blocks", blocks, "Khan & Lin 2017, algorithm 1; Khan & Rue 2021, section 5.4"),
    Recipe("extended_kalman", extended_kalman, "Singhal & Wu 1989; Ollivier 2018"),
    Recipe("conjugate", conjugate, "Khan & Rue 2021, section 5.1"),
)


def registry() -> dict[str, Recipe]:
    """Returns every algorithm by its public name.

    Examples:
        >>> import lamu
        >>> lamu.algorithms.registry()["ivon"].choices.curvature
        'Price'
    """
    return {recipe.name: recipe for recipe in _RECIPES}
