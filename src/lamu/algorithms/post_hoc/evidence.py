"""The Laplace evidence as a function of the prior's precisions, the noise and the temperature, and its maximiser."""

# \[ \delta^* = \arg\max_\delta \log Z(\delta, c), \qquad \log\delta \in [-\log w^2, \log w^2] \]
#
# With all else fixed at the mode, and the curvature's eigenvalues stored, the function is cheap to evaluate
# (`LaplaceFit.log_evidence`). `tuned` maximises it in the logarithms of the precisions, and of the noise's factor if
# that is learned, by a quasi-Newton method with bounds. Precisions of irrelevant weights run to an end of the range;
# they stop there, and a warning names them.

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.algorithms.post_hoc.laplace_fit import LaplaceFit, fit_laplace, prior_precision
from lamu.algorithms.post_hoc.mode import LARGEST_RESIDUAL, residual_at
from lamu.algorithms.post_hoc.scale_search import PriorScales, ScalePerLayer
from lamu.base.arguments import number
from lamu.convergence import Unconverged
from lamu.data.arrays import Arrays
from lamu.data.stream import Stream
from lamu.objective import Objective
from lamu.objective.curvature import Curvature
from lamu.operators import Dense, StructureLike
from lamu.posterior import Posterior
from lamu.priors import LayerwiseNormal, gaussian_belief
from lamu.record import record
from lamu.typing import Array, Data, Number, Numeric, Params, PyTree, RandomKey

__all__ = ["Evidence", "evidence", "scales_by_evidence", "tuned"]

# The range of the search, a convention: factors of the scales of the prior (beyond it a warning says that they stop
# there) and of the noise, in either direction.
_WIDEST, _WIDEST_NOISE = 1e3, 20.0
_MOST_STEPS = 200  # of L-BFGS


@record
class Evidence:
    r"""The evidence at a mode as a function that is cheap to evaluate.

    Attributes:
        fit: the sums of one pass over the data, with eigenvalues stored.
        objective: the loss, whose prior, temperature and noise are the defaults.

    Examples:
        >>> import jax, lamu
        >>> from lamu.algorithms.post_hoc.evidence import evidence
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.7)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.laplace(), epochs=20).posterior
        >>> log_evidence = evidence(posterior, (x, y))
        >>> abs(float(log_evidence(precision=1.0) - posterior.evidence)) < 1e-2
        True
        >>> jax.grad(log_evidence)(1.0).shape
        ()
    """

    fit: LaplaceFit
    objective: Objective

    @classmethod
    def of(cls, fit: LaplaceFit, objective: Objective) -> Evidence:
        """Returns the evidence of a fit; its curvature is decomposed once, here.

        Args:
            fit: the fit at the mode.
            objective: the loss, of a Gaussian prior.

        Raises:
            TypeError: for a prior that is not Gaussian, or a structure of curvature without a determinant.
        """
        if gaussian_belief(objective.model.free_prior, fit.params["network"]) is None:
            raise TypeError(
                f"the evidence as a function is of a Gaussian prior, not of {type(objective.model.prior).__name__}; "
                "use Normal(...)"
            )
        return cls(fit.decomposed(), objective)

    def __call__(
        self, precision: PyTree = None, noise: Numeric | None = None, temperature: Numeric | None = None
    ) -> Array:
        """Returns the log evidence in nats."""
        for name, value in (("precision", precision), ("noise", noise), ("temperature", temperature)):
            if (given := number(value)) is not None and not 0 < given < math.inf:
                raise ValueError(f"{name}={value!r} is not positive and finite; give a positive number")
        if noise is not None and not self.learns_noise:
            raise TypeError("the noise of this likelihood is not learned; use Gaussian() without a scale")
        if precision is not None:
            _require_prefix(precision, self.fit.params["network"])
        return _log_evidence(self, precision, noise, temperature)

    @property
    def learns_noise(self) -> bool:
        """Whether the likelihood has a learned noise to scale."""
        model, dispersions = self.objective.model, self.fit.params["likelihood"]
        if not (model.quadratic and jax.tree.leaves(dispersions)):
            return False
        return model.likelihood.scale_noise(dispersions, 1.0) is not None

    def posterior(self, prior: PyTree, key: RandomKey, noise: Numeric | None = None) -> Posterior:
        """Returns the posterior at the same mode under another prior.

        Args:
            prior: the prior.
            key: the seed of its predictions.
            noise: c, as above.
        """
        objective = replace(self.objective, model=replace(self.objective.model, prior=prior))
        fit = self.fit if noise is None else self.fit.scale_noise(objective, noise)
        return fit.integrated(objective, key)


def evidence(
    posterior: Posterior,
    data: Data,
    structure: StructureLike = Dense,
    curvature: Curvature | None = None,
    temperature: Number = 1.0,
    likelihood_power: Number = 1.0,
) -> Evidence:
    """Returns the Laplace evidence at a posterior's mean as a function, after one pass over the data.

    Args:
        posterior: a posterior whose mean is a mode, of any algorithm.
        data: `(x, y)`, a mapping, or the rows that `lamu.fit` took.
        structure: that of the curvature, as in `laplace`.
        curvature: the choice of curvature, as in `laplace`.
        temperature: T, at which the mode was found.
        likelihood_power: the power of the likelihood.

    Warns:
        Unconverged: if the mean is not a mode, by one gradient over all rows.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.post_hoc.evidence import evidence
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> mode = lamu.fit(model, (x, y), lamu.algorithms.laplace(), epochs=20).posterior
        >>> log_evidence = evidence(mode, (x, y))
        >>> bool(log_evidence(precision=1.0) > log_evidence(precision=100.0))
        True
    """
    rows: Data = data if isinstance(data, Arrays | Stream) else posterior.model.rows(data)
    objective = Objective(posterior.model, rows.count, temperature, likelihood_power)
    fit = fit_laplace(structure, posterior, objective, rows, curvature)
    polished = residual_at(fit, objective, rows)
    if not polished.found:
        warnings.warn(
            f"the residual at the posterior's mean is {polished.residual:.2g} nats under its own prior, where an "
            f"evidence needs {LARGEST_RESIDUAL}; take the posterior of laplace(), which finds the mode to its end",
            Unconverged,
            stacklevel=2,
        )
    return Evidence.of(fit, objective)


def tuned(
    posterior: Posterior,
    data: Data,
    scales: PriorScales | None = None,
    structure: StructureLike = Dense,
    curvature: Curvature | None = None,
) -> Posterior:
    """Returns the Laplace posterior at a posterior's mean with the prior scales of greatest evidence.

    Args:
        posterior: a posterior whose mean is a mode, of any algorithm; its prior is Gaussian about zero.
        data: `(x, y)`, a mapping, or the rows that `lamu.fit` took.
        scales: which weights share a scale; `ScalePerLayer()` where None.
        structure: that of the curvature, as in `laplace`.
        curvature: the choice of curvature, as in `laplace`.

    Returns:
        The posterior. Its model's prior is a `LayerwiseNormal`, and its `evidence` that of the chosen scales.

    Raises:
        ValueError: if the evidence is not finite at the initial scales.

    Source: MacKay (1992); Immer et al. (2021), section 3.

    Examples:
        >>> import lamu
        >>> from lamu.algorithms.post_hoc.evidence import tuned
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
    """Returns the prior of greatest evidence, and the noise's factor, None if the noise is not learned."""
    from scipy.optimize import minimize

    mean = log_evidence.fit.params["network"]
    precision_of_prior = prior_precision(log_evidence.objective, mean).diagonal(mean)
    logs, unravel = tree.ravel((ScalePerLayer() if scales is None else scales).start(precision_of_prior))
    noisy = log_evidence.learns_noise
    first = np.concatenate([np.asarray(logs, float), np.zeros(int(noisy))])

    @jax.jit
    @jax.value_and_grad
    def loss(point: PyTree) -> Array:
        precision = jax.tree.map(jnp.exp, unravel(point[: logs.size]))
        return -log_evidence(precision, jnp.exp(point[logs.size]) if noisy else None)

    def value_and_slope(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = loss(jnp.asarray(point, logs.dtype))
        return float(value), np.asarray(slope, float)

    start, slope = value_and_slope(first)
    if not (math.isfinite(start) and np.isfinite(slope).all()):
        raise ValueError(
            f"the evidence is {-start} at the scales to begin with, so that it cannot be climbed; train longer, or "
            "begin with a narrower prior, Normal(0.1)"
        )
    limit = 2 * math.log(_WIDEST)
    bounds = [(-limit, limit)] * logs.size + [(-math.log(_WIDEST_NOISE), math.log(_WIDEST_NOISE))] * int(noisy)
    result: Any = minimize(
        value_and_slope, first, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _MOST_STEPS}
    )
    best = jnp.asarray(result.x[: logs.size], logs.dtype)
    _warn(unravel(best), limit)
    scale = jax.tree.map(lambda log: _number(jnp.exp(-log / 2)), unravel(best))
    return LayerwiseNormal(scale), math.exp(result.x[-1]) if noisy else None


def _number(scale: Array) -> float | Array:
    return float(scale) if jnp.ndim(scale) == 0 else scale


def _warn(logs: Params, limit: float) -> None:
    """Warns of precisions at an end of the range."""
    names = []
    for path, log in zip(tree.paths(logs), jax.tree.leaves(logs), strict=True):
        ends = np.abs(np.asarray(log)) >= limit - 1e-6
        if ends.any():
            count = f"{int(ends.sum())} scales of " if ends.size > 1 else ""
            end = "narrowest" if np.any(np.asarray(log)[ends] > 0) else "widest"
            names.append(f"{count}{path or 'all weights'} ({end})")
    if names:
        warnings.warn(
            f"the evidence drives scales of the prior to the ends of their range, 1/{_WIDEST:.0f} to {_WIDEST:.0f}: "
            f"{', '.join(names)}; the data do not need the weights of a narrowest prior, and a widest prior is not "
            "needed, or needs longer training",
            UserWarning,
            stacklevel=3,
        )


@jax.jit
def _log_evidence(self: Evidence, precision: PyTree, noise: Numeric | None, temperature: Numeric | None) -> Array:
    value = self.fit.log_evidence(self.objective, precision, noise, temperature)
    if noise is not None:
        return value
    return value + self.fit.dispersion_volume(self.objective, temperature).astype(value.dtype)


def _require_prefix(precision: PyTree, mean: Params) -> None:
    try:
        jax.eval_shape(tree.broadcast, precision, mean)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"the precisions ({', '.join(tree.paths(precision)) or 'one'}) are not a prefix of the weights, whose "
            f"leaves are {', '.join(tree.paths(mean))}; give one number, or a tree that begins like them"
        ) from error
