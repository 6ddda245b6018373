"""The table of samplers."""

from __future__ import annotations

from collections.abc import Callable

from lamu.mcmc.chains import Chains, Kernel
from lamu.mcmc.hamiltonian import Hamiltonian, NoUTurn, hmc, nuts
from lamu.mcmc.metropolis import Langevin, RandomWalk, mala, random_walk, ula
from lamu.mcmc.stochastic_gradient import psgld, sghmc, sgld, sgnht
from lamu.mcmc.subsampling import SequentialTest, Subsampled, minibatch_mh
from lamu.mcmc.tempering import Replicas, parallel_tempering
from lamu.protocol import Recipe

__all__ = ["registry"]


def _adaptive(name: str, factory: Callable[..., Chains], kernel: Kernel, source: str) -> Recipe:
    """Returns the recipe of chains with a warm-up, whose row is there without the extra that the warm-up needs."""
    return Recipe(name, factory, source, Chains(kernel).choices)


_RECIPES = (
    _adaptive("random_walk", random_walk, RandomWalk(), "Metropolis et al. 1953, Hastings 1970"),
    _adaptive("mala", mala, Langevin(), "Roberts & Tweedie 1996"),
    _adaptive("ula", ula, Langevin(adjusted=False), "Parisi 1981, Roberts & Tweedie 1996"),
    _adaptive("hmc", hmc, Hamiltonian(), "Duane et al. 1987, Neal 2011"),
    _adaptive("nuts", nuts, NoUTurn(), "Hoffman & Gelman 2014; BlackJAX's kernel"),
    _adaptive(
        "parallel_tempering",
        parallel_tempering,
        Replicas(Hamiltonian(), (1.0, 2.0, 4.0, 8.0)),
        "Swendsen & Wang 1986, Geyer 1991",
    ),
    _adaptive(
        "minibatch_mh",
        minibatch_mh,
        Subsampled(SequentialTest(), rows=100),
        "Korattikara, Chen & Welling 2014, algorithm 1",
    ),
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
