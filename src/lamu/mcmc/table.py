"""The table of samplers."""

from __future__ import annotations

from lamu.mcmc.diffusions import mala, ula
from lamu.mcmc.hamiltonian import hmc
from lamu.mcmc.metropolis import random_walk
from lamu.mcmc.no_u_turn import nuts
from lamu.mcmc.stochastic_hamiltonian import sghmc, sgnht
from lamu.mcmc.stochastic_langevin import psgld, sgld
from lamu.mcmc.subsampling import minibatch_mh
from lamu.mcmc.tempering import parallel_tempering
from lamu.protocol import Recipe

__all__ = ["registry"]

_RECIPES = (
    Recipe("random_walk", random_walk, "Metropolis et al. 1953, Hastings 1970"),
    Recipe("mala", mala, "Roberts & Tweedie 1996"),
    Recipe("ula", ula, "Parisi 1981, Roberts & Tweedie 1996"),
    Recipe("hmc", hmc, "Duane et al. 1987, Neal 2011"),
    Recipe("nuts", nuts, "Hoffman & Gelman 2014; BlackJAX's kernel"),
    Recipe("parallel_tempering", parallel_tempering, "Swendsen & Wang 1986, Geyer 1991"),
    Recipe("minibatch_mh", minibatch_mh, "Korattikara, Chen & Welling 2014, algorithm 1"),
    Recipe("sgld", sgld, "Welling & Teh 2011, equation 4"),
    Recipe("psgld", psgld, "Li, Chen, Carlson & Carin 2016, algorithm 1"),
    Recipe("sghmc", sghmc, "Chen, Fox & Guestrin 2014, equation 15"),
    Recipe("sgnht", sgnht, "Ding et al. 2014, algorithm 2"),
)


def registry() -> dict[str, Recipe]:
    """Returns every sampler by its public name.

    Examples:
        >>> import lamu
        >>> "nuts" in lamu.mcmc.registry()
        True
    """
    return {recipe.name: recipe for recipe in _RECIPES}
