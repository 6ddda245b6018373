"""Plots of Markov chains, by ArviZ."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lamu.mcmc import inference_data
from lamu.plots.style import ACCENT, GREY, LEGEND, Axes, canvas, finished

__all__ = ["energy", "trace"]


def trace(posterior: Any, name: str, axes: Axes = None) -> Axes:
    """Plots the values of a parameter along the chains, by ArviZ's `plot_trace`.

    Args:
        posterior: a posterior of draws.
        name: the parameter, as `lamu.mcmc.inference_data` names it; all its coordinates are drawn.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        TypeError: for a belief that does not consist of draws.
        ValueError: for an unknown name.
        ModuleNotFoundError: without the extra: `pip install "lamu[mcmc]"`.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> density = lamu.LogDensity(lambda theta: -0.5 * jnp.sum(theta["a"] ** 2), {"a": jnp.zeros(2)})
        >>> fit = lamu.fit(density, None, lamu.mcmc.hmc(warmup=0, draws=50, step_size=0.8))
        >>> len(lamu.plots.trace(fit.posterior, "a").lines)
        8
    """
    data = inference_data(posterior)
    if name not in data.posterior:
        raise ValueError(f"there is no parameter {name!r}; choose one of {', '.join(map(str, data.posterior))}")
    import arviz as az

    axes = canvas(6.4, 2.8).subplots() if axes is None else axes
    aside = canvas(1.0, 1.0).subplots()  # for the densities that ArviZ draws next to the chains
    with _quietly():
        az.plot_trace(data, var_names=[name], axes=np.array([[aside, axes]]), compact=True, legend=False)
    axes.set(xlabel="draw", ylabel="", title="")
    return finished(axes, name, f"{data.posterior.sizes['chain']} chains")


def energy(posterior: Any, axes: Axes = None) -> Axes:
    """Plots the distributions of the energy and of its changes, by ArviZ's `plot_energy`.

    If the second is much narrower, the chains change their energy too slowly and explore the tails slowly (Betancourt
    2016).

    Args:
        posterior: a posterior of draws by Hamiltonian dynamics, such as `lamu.mcmc.nuts()`.
        axes: matplotlib's axes to draw on; those of a new figure where None.

    Returns:
        The axes; `axes.figure.savefig(path)` writes the picture.

    Raises:
        TypeError: for a belief that does not consist of draws.
        ValueError: for a sampler without an energy.
        ModuleNotFoundError: without the extra: `pip install "lamu[mcmc]"`.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> density = lamu.LogDensity(lambda theta: -0.5 * jnp.sum(theta["a"] ** 2), {"a": jnp.zeros(2)})
        >>> fit = lamu.fit(density, None, lamu.mcmc.hmc(warmup=0, draws=50, step_size=0.8))
        >>> lamu.plots.energy(fit.posterior).get_title(loc="left")
        'Energy'
    """
    data = inference_data(posterior)
    if "sample_stats" not in data.groups() or "energy" not in data.sample_stats:
        raise ValueError("the sampler follows no energy; draw with lamu.mcmc.hmc() or lamu.mcmc.nuts()")
    import arviz as az

    axes = canvas(4.6, 3.2).subplots() if axes is None else axes
    with _quietly():
        az.plot_energy(data, ax=axes, textsize=8, fill_color=(GREY, ACCENT), bfmi=False)
    axes.legend(loc="best", **LEGEND)
    return finished(axes, "Energy", f"{data.posterior.sizes['chain']} chains")


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppresses ArviZ's warnings about matplotlib."""
    from matplotlib import MatplotlibDeprecationWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MatplotlibDeprecationWarning)
        yield
