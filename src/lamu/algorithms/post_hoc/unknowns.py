r"""What nobody knew before the mode was found: the prior's width, and the noise that the mode itself underestimates.

A mode that follows the data closely leaves residuals smaller than the noise is, and says little about the width of the
prior. Both are chosen with the mode held, by the evidence

\[ \log Z(s, c) \approx -\ell_{s,c}(m)/T + \tfrac{D}{2}\log 2\pi - \tfrac12 \log\det S_{s,c} \]

(MacKay 1992), or, where rows were set aside, by the predictive density of those: for classes the mode of a network
saturates, its Gauss–Newton matrix all but vanishes, and the evidence asks for a belief far too wide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.algorithms.post_hoc.at_mode import Mode
from lamu.objective import Objective
from lamu.predictives import PredictiveRule
from lamu.predictives.deferred import Deferred
from lamu.priors import LearnedNormal
from lamu.typing import RandomKey

__all__ = ["settled"]

_NARROWEST, _WIDEST = 1e-3, 1e3
_DRAWS, _ROWS = 32, 4096
_WORST = 1e30


def settled(
    mode: Mode, objective: Objective, key: RandomKey, held_out: Any, rule: PredictiveRule | None = None
) -> tuple[Mode, Objective]:
    """Returns mode and objective with a prior of known width, and with the noise corrected where it is learned.

    Where the prior is no `LearnedNormal` both stay as they are.

    Args:
        mode: what was found at the mode.
        objective: the loss.
        key: for draws of the predictive density.
        held_out: rows that were set aside, or None; then the evidence decides.
        rule: how those rows are predicted; the linearised rule where None.
    """
    prior = objective.model.prior
    if not isinstance(prior, LearnedNormal):
        return mode, objective
    noisy = objective.model.likelihood.quadratic and bool(jax.tree.leaves(mode.params["likelihood"]))

    def at(log_scale: float, log_factor: float) -> tuple[Mode, Objective]:
        model = replace(objective.model, prior=prior.at(math.exp(log_scale)))
        other = replace(objective, model=model)
        return (mode.widened(other, math.exp(log_factor)) if noisy else mode), other

    def loss(log_scale: float, log_factor: float = 0.0) -> float:
        found, under = at(log_scale, log_factor)
        # A precision that a wide prior leaves singular to rounding is no candidate: no belief, or a NaN, which would
        # pass for the smallest.
        try:
            if held_out is None:
                value = -float(found.posterior(under, key).evidence)
            else:
                value = _held_out_nll(found, under, key, held_out, rule)
        except ValueError:
            return _WORST
        return value if math.isfinite(value) else _WORST

    start = math.log(float(prior.start))
    return at(*(_lowest_of_two(loss, start) if noisy else (_lowest(loss), 0.0)))


def _held_out_nll(
    mode: Mode, objective: Objective, key: RandomKey, held_out: Any, rule: PredictiveRule | None
) -> float:
    """Returns the mean negative log predictive density of the rows set aside (the first of very many)."""
    batch = held_out.example(min(held_out.count, _ROWS))
    posterior = mode.posterior(objective, key)
    posterior = posterior if rule is None else posterior.with_rule(rule)
    pred = posterior.predict(batch.x, samples=_DRAWS, key=jax.random.clone(key))
    # Asked for every width: as one program where it can be one, which chunks and one's own predictives are not.
    one = not isinstance(pred, Deferred) and not jax.tree_util.all_leaves([pred])
    density = _log_prob(pred, batch.y) if one else pred.log_prob(batch.y)
    return float(-batch.total(density) / jnp.sum(batch.weight * batch.mask))


@jax.jit
def _log_prob(pred: Any, y: Any) -> Any:
    return pred.log_prob(y)


def _lowest(loss: Callable[[float], float]) -> float:
    """Returns the minimiser on the logarithmic range of widths: the best of a coarse grid, then refined beside it."""
    from scipy.optimize import minimize_scalar

    grid = np.linspace(math.log(_NARROWEST), math.log(_WIDEST), 7)
    best = int(np.argmin([loss(value) for value in grid]))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found: Any = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.02})
    return float(found.x)


def _lowest_of_two(loss: Callable[[float, float], float], start: float) -> tuple[float, float]:
    """Returns the minimiser over the logarithms of the width and of the noise's factor."""
    from scipy.optimize import minimize

    simplex = np.array([[start, 0.0], [start - 1.0, 0.0], [start, 0.5]])
    bounds = [(math.log(_NARROWEST), math.log(_WIDEST)), (-3.0, 3.0)]
    options = {"initial_simplex": simplex, "xatol": 0.02, "fatol": 1e-4, "maxiter": 80}
    found: Any = minimize(
        lambda at: loss(*map(float, at)), simplex[0], method="Nelder-Mead", bounds=bounds, options=options
    )
    return float(found.x[0]), float(found.x[1])
