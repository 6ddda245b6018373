"""The posterior of a sampler's draws, with warnings where the chains have not converged."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from lamu.families import Draws
from lamu.mcmc.convergence_warnings import UnreliableChains, complaints
from lamu.mcmc.kernel import TransitionInfo
from lamu.mcmc.rounding import far_away
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.typing import RandomKey

__all__ = ["posterior_from_draws"]


def posterior_from_draws(
    key: RandomKey,
    objective: Objective,
    network_state: Any,
    trace: Any,
    known: list[str] | None = None,
    warns: bool = True,
) -> Posterior:
    """Returns collected draws as a belief, leaves `[chains, draws, ...]`."""
    # Draws of a density with constraints come back constrained.
    if trace is None:
        raise ValueError("a sampler's posterior is its draws, and none were collected; pass them as trace")
    chains_first = jax.tree.map(_swapped, trace)
    if isinstance(chains_first, TransitionInfo):
        belief = Draws(chains_first.position, chains_first.statistics)
    else:
        belief = Draws(chains_first)
    reasons = (known or complaints(belief, objective.model)) if warns else []
    if reasons:
        reasons += [] if known else far_away(belief.samples)
        # Five calls up is whoever called `fit`, whose line the warning is to name.
        warnings.warn("do not trust these draws: " + "; ".join(reasons), UnreliableChains, stacklevel=5)
    return objective.model.constrained(
        Posterior(objective.model, belief, network_state, Sampled(), key, temperature=objective.temperature)
    )


def _swapped(leaf: Any) -> Any:
    """Returns draws with the chains first: of files a view; of an array a copy by NumPy, as programs take a while."""
    if isinstance(leaf, np.ndarray):
        return leaf.swapaxes(0, 1)
    return leaf.swapaxes(0, 1) if isinstance(leaf, Tracer) else jax.device_put(np.asarray(leaf).swapaxes(0, 1))
