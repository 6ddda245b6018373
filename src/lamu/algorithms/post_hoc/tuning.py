r"""The prior's scales after training: the evidence climbed by its gradient, with the mode held.

\[ \delta^* = \arg\max_\delta \log Z(\delta, c), \qquad \log\delta \in [-\log w^2, \log w^2] \]

in the logarithms of the precisions, and of the noise's factor where that is learned, by a quasi-Newton method with
bounds. Precisions that no weight needs run to an end of the range; they stop there, and a warning names them.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.algorithms.post_hoc.at_mode import prior_precision
from lamu.algorithms.post_hoc.evidence import Evidence, evidence
from lamu.algorithms.post_hoc.prior_scales import PriorScales, ScalePerLayer
from lamu.operators import Dense
from lamu.posterior import Posterior
from lamu.priors import LayerwiseNormal

__all__ = ["scales_by_evidence", "tuned"]

_WIDEST = 1e3
_WIDEST_NOISE = 20.0


def tuned(
    posterior: Posterior, data: Any, scales: PriorScales | None = None, structure: Any = Dense, curvature: Any = None
) -> Posterior:
    """Returns the Laplace posterior at a posterior's mean under the scales of greatest evidence.

    Args:
        posterior: a posterior whose mean is a mode, of any algorithm; its prior is Gaussian about zero.
        data: `(x, y)`, a mapping, or the rows that `lamu.fit` took.
        scales: which weights share a scale; `ScalePerLayer()` where none is given.
        structure: that of the curvature, as in `laplace`.
        curvature: the choice of curvature, as in `laplace`.

    Returns:
        The posterior. Its model's prior is a `LayerwiseNormal`, and its `evidence` that of the scales found.

    Raises:
        ValueError: where the evidence is no finite number at the first scales.

    Source: MacKay (1992); Immer et al. (2021), section 3.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.post_hoc.tuning import tuned
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.7)).standardised(x, y)
        >>> first = lamu.fit(model, (x, y), lamu.algorithms.laplace(), epochs=20).posterior
        >>> bool(tuned(first, (x, y)).evidence > first.evidence)
        True
    """
    log_evidence = evidence(posterior, data, structure, curvature)
    prior, noise = scales_by_evidence(log_evidence, scales)
    return log_evidence.posterior(prior, jax.random.clone(posterior.key), noise)


def scales_by_evidence(
    log_evidence: Evidence, scales: PriorScales | None = None
) -> tuple[LayerwiseNormal, float | None]:
    """Returns the prior of greatest evidence, and the noise's factor, None where the noise is not learned.

    Args:
        log_evidence: the evidence.
        scales: which weights share a scale; `ScalePerLayer()` where none is given.

    Warns:
        UserWarning: for scales that ran to an end of the range, a thousand times one.

    Raises:
        ValueError: where the evidence is no finite number at the first scales.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.post_hoc.evidence import evidence
        >>> from lamu.algorithms.post_hoc.tuning import scales_by_evidence
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.7)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.laplace(), epochs=20).posterior
        >>> 0.05 < scales_by_evidence(evidence(posterior, (x, y)))[0].scale["layers"][0] < 0.5
        True
    """
    from scipy.optimize import minimize

    mean = log_evidence.mode.params["network"]
    held = prior_precision(log_evidence.objective, mean).diagonal(mean)
    logs, unravel = tree.ravel((ScalePerLayer() if scales is None else scales).start(held))
    noisy = log_evidence.learns_noise
    first = np.concatenate([np.asarray(logs, float), np.zeros(int(noisy))])

    @jax.jit
    @jax.value_and_grad
    def loss(point: Any) -> Any:
        precision = jax.tree.map(jnp.exp, unravel(point[: logs.size]))
        return -log_evidence(precision, jnp.exp(point[logs.size]) if noisy else None)

    def at(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = loss(jnp.asarray(point, logs.dtype))
        return float(value), np.asarray(slope, float)

    start, slope = at(first)
    if not (math.isfinite(start) and np.isfinite(slope).all()):
        raise ValueError(
            f"the evidence is {-start} at the scales to begin with, so that it cannot be climbed; train longer, or "
            "begin with a narrower prior, Normal(0.1)"
        )
    far = 2 * math.log(_WIDEST)
    bounds = [(-far, far)] * logs.size + [(-math.log(_WIDEST_NOISE), math.log(_WIDEST_NOISE))] * int(noisy)
    found: Any = minimize(at, first, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 200})
    best = jnp.asarray(found.x[: logs.size], logs.dtype)
    _warn(unravel(best), far)
    scale = jax.tree.map(lambda log: _number(jnp.exp(-log / 2)), unravel(best))
    return LayerwiseNormal(scale), math.exp(found.x[-1]) if noisy else None


def _number(scale: Any) -> Any:
    return float(scale) if jnp.ndim(scale) == 0 else scale


def _warn(logs: Any, far: float) -> None:
    """Says which precisions stopped at an end of the range."""
    told = []
    for path, log in zip(tree.paths(logs), jax.tree.leaves(logs), strict=True):
        ends = np.abs(np.asarray(log)) >= far - 1e-6
        if ends.any():
            count = f"{int(ends.sum())} scales of " if ends.size > 1 else ""
            end = "narrowest" if np.any(np.asarray(log)[ends] > 0) else "widest"
            told.append(f"{count}{path or 'all weights'} ({end})")
    if told:
        warnings.warn(
            f"the evidence asks for scales beyond 1/{_WIDEST:.0f} or {_WIDEST:.0f}, and they stop there: "
            f"{', '.join(told)}; no data speak for weights that are narrowest, and a widest prior is one too little "
            "trained or without need",
            UserWarning,
            stacklevel=3,
        )
