"""Sites: the contributions of rows to a belief, as natural parameters that can be computed, added and removed."""

# \[ \lambda_{\text{post}} = \lambda_{\text{prior}} / T + \sum_i \lambda_i, \qquad
#    \lambda_i = -\nabla_\mu E_q[\ell_i] / T \]
#
# with \(\ell_i = -\log p(y_i \mid x_i, \theta)\) at the fixed point of the rule (Khan & Rue 2021, section 5.1). For a
# conjugate model it is the statistic \(t(y_i)\) and exact, for a graph its message; for a Gaussian belief about a
# network, with the delta method and the Gauss–Newton matrix, \((H_i m - g_i,\; -\tfrac12 H_i)\).

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.conjugate_target import ConjugateTarget
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.expectations import Analytic
from lamu.families import ExponentialFamily, Gaussian, Product
from lamu.families.exponential import values_of
from lamu.families.matrix_normal import LinearNormalGamma
from lamu.families.points import DispersionMixture
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import GaussNewton
from lamu.operators import AnyStructure, Dense
from lamu.posterior import Posterior
from lamu.priors import gaussian_belief
from lamu.priors.belief import in_structure
from lamu.record import record
from lamu.target import weights_belief
from lamu.typing import Belief, Data, Number, Params

__all__ = ["Site", "additive", "belief_of", "dispersion", "prior_values", "row_statistics", "shifted", "site"]

_JACOBIAN_NUMBERS = 2**25


@record
class Site:
    r"""The contribution of some rows to a belief.

    Attributes:
        values: \(\lambda_{\text{site}}\), a tree like the natural parameters of the belief.
        count: the number of rows, or None where only their sum is known.

    Examples:
        >>> import lamu
        >>> model = lamu.ConjugateModel(lamu.observations.Poisson(), lamu.families.Gamma(2.0, 1.0))
        >>> posterior = lamu.fit(model, {"y": [3, 5]}, lamu.algorithms.conjugate()).posterior
        >>> site = lamu.site(posterior, {"y": [3]})
        >>> isinstance(site, lamu.Site), [float(value) for value in site.values], site.count
        (True, [3.0, -1.0], 1)
    """

    values: Any
    count: Any = None


def site(
    posterior: Posterior, data: Data = None, temperature: Number | None = None, likelihood_power: Number = 1.0
) -> Site:
    r"""Returns the site of rows of a posterior; that of all its rows where none are given.

    The site of all rows is \(\lambda_{\text{post}} - \lambda_{\text{prior}}/T\), for any algorithm: a shard's site.
    That of some rows is taken at the belief's mean, as in `lamu.remove`.

    Args:
        posterior: the fitted posterior.
        data: rows that it was fitted on, as `fit` takes them, or None for all.
        temperature: the temperature T at which it was fitted; its own where None.
        likelihood_power: the power of the likelihood with which it was fitted.

    Raises:
        TypeError: for a belief without natural parameters, or, for some rows, one that is not Gaussian.

    Source: Khan & Rue (2021), section 5.1; Adam, Chang, Khan & Solin (2021), "Dual parameterization", for the name.

    Examples:
        >>> import lamu
        >>> model = lamu.ConjugateModel(lamu.observations.Bernoulli(), lamu.families.Beta(1.0, 1.0))
        >>> posterior = lamu.fit(model, {"y": [1, 1, 0]}, lamu.algorithms.conjugate()).posterior
        >>> whole = lamu.site(posterior)
        >>> [float(value) for value in whole.values]  # two ones and a zero
        [2.0, 1.0]
        >>> float(lamu.add(posterior, whole).belief.factors["network"].alpha)  # the same rows once more
        5.0
    """
    belief, model = additive(posterior), posterior.model
    temperature = posterior.temperature if temperature is None else temperature
    if data is None:
        return Site(tree.add(belief.to_natural(), prior_values(model.free_prior, belief, temperature), -1.0))
    rows = model.rows(data)
    objective = Objective(model, float(rows.count), temperature, likelihood_power)
    if isinstance(model, ConjugateTarget):
        return Site(row_statistics(objective, belief, rows.full()), rows.count)
    if not isinstance(belief, Gaussian):
        raise TypeError(
            f"what rows added to a {type(belief).__name__} belief about a network is not known; fit again without them"
        )
    H, gradient = _added(objective, posterior, belief, rows)
    return Site((tree.add(H.matvec(belief.mean), gradient, -1.0), H.scale(-0.5)), rows.count)


def shifted(belief: Belief, of: Site, sign: float, words: str) -> Any:
    r"""Returns the belief with natural parameters \(\lambda \pm \lambda_{\text{site}}\)."""
    if isinstance(belief, Gaussian):
        first, second = of.values
        H = second.scale(-2.0)
        precision = tree.add(belief.precision, H, sign)
        _require_positive(precision, belief.mean, words)
        # In (m, S), since S m would lose precision for a mean far from zero.
        return belief.moved(precision, tree.add(H.matvec(belief.mean), first, -1.0), sign)
    return belief_of(belief, tree.add(belief.to_natural(), of.values, sign), words)


def _added(objective: Objective, posterior: Posterior, belief: Gaussian, rows: Arrays) -> tuple[Any, Params]:
    """Returns the rows' Gauss–Newton matrix and the gradient of their negative log likelihood at the mean, over T."""
    numbers = tree.dimension(belief.mean) * posterior.model.likelihood.outputs(rows.y)
    total: Any = None
    for batch in rows.batches(max(1, min(rows.count, _JACOBIAN_NUMBERS // numbers))):
        part = _added_by(type(belief.precision), objective, posterior, belief.mean, batch)
        total = part if total is None else tree.add(total, part)
    return total


@partial(jax.jit, static_argnums=0)
def _added_by(structure: AnyStructure, objective: Objective, posterior: Posterior, mean: Params, batch: Batch) -> Any:
    point, state = dispersion(posterior), posterior.network_state
    count = batch.count / objective.temperature
    loss = BatchLoss(objective, batch, state, NetworkParameters(), point, conjugate=True)
    nll = lambda theta: objective.negative_log_likelihood({"network": theta, "likelihood": point}, batch, state)[0]
    return GaussNewton().matrix(loss, mean, structure).scale(count), tree.scale(jax.grad(nll)(mean), count)


def row_statistics(objective: Objective, belief: Belief, batch: Batch) -> Any:
    r"""Returns \(\sum_i w_i \nabla_\mu E_q[\log p(y_i \mid\theta)] / T\): \(\sum_i w_i t(y_i) / T\) without latents."""
    # Latents of a row are at their optimum under the belief.
    target: Any = objective.model
    T = objective.row_temperature
    total = lambda mu: batch.total(target.row_bounds(target.statistics(values_of(mu)), batch, T))
    return values_of(Analytic().gradient(jax.random.key(0), belief, total).gradient)


def additive(posterior: Posterior) -> Any:
    """Returns the belief about the weights; raises a TypeError unless its natural parameters can be added."""
    belief = weights_belief(posterior)
    if not isinstance(belief, ExponentialFamily) and not _is_product(belief):
        remedy = "fit with conjugate(), laplace() or ivon()"
        if isinstance(belief, DispersionMixture):
            remedy = f"give {posterior.model.likelihood.name} its dispersion, or fit with ivon()"
        if isinstance(belief, LinearNormalGamma):
            remedy = "add rows with lamu.absorb(posterior, data), or fit with laplace()"
        raise TypeError(f"{type(belief).__name__} beliefs cannot be added; {remedy}")
    return belief


def _is_product(belief: Belief) -> bool:
    """Whether a belief is a product of exponential families, as for a graph."""
    return isinstance(belief, Product) and all(isinstance(part, ExponentialFamily) for part in belief.factors.values())


def prior_values(prior: Any, belief: Belief, temperature: Number) -> Any:
    """Returns the natural parameters of the prior to the power 1/T, in the structure of the belief."""
    if isinstance(belief, Gaussian):
        gaussian = gaussian_belief(prior, belief.mean)
        if gaussian is None:
            raise TypeError(f"the prior {type(prior).__name__} is not Gaussian, and the belief is")
        precision = in_structure(type(belief.precision), gaussian)
        return Gaussian(gaussian.mean, precision.scale(1.0 / temperature)).to_natural()
    values: Any = prior.exponential(belief.to_natural())
    if type(values) is not type(belief):
        raise TypeError(
            f"the prior {type(prior).__name__} is not a {type(belief).__name__}; give "
            f"Belief({type(belief).__name__}(...))"
        )
    return tree.scale(values.to_natural(), 1.0 / temperature)


def belief_of(like: Any, values: Any, words: str) -> Any:
    """Returns the belief with these natural parameters, or raises a ValueError with the reason."""
    if isinstance(like, Gaussian):
        _require_positive(values[1].scale(-2.0), like.mean, words)
    try:
        return like.with_natural(values)
    except ValueError as error:
        raise ValueError(f"{words} is not a belief ({error}); subtract only what was added") from None


def _require_positive(precision: Any, mean: Params, words: str) -> None:
    """Raises a ValueError unless the precision is positive."""
    if isinstance(precision, Dense):
        least, where = float(np.linalg.eigvalsh(np.asarray(precision.matrix)).min()), "the precision's least eigenvalue"
    else:
        leaves = {path: float(jnp.min(leaf)) for path, leaf in tree.by_path(precision.diagonal(mean)).items()}
        path = min(leaves, key=lambda name: leaves[name])
        least, where = leaves[path], f"the precision of the leaf {path!r}"
    if not least > 0:
        raise ValueError(f"{words} is not a belief, {where} would be {least:.6g}; subtract only what was added")


def dispersion(posterior: Posterior) -> Params:
    """Returns the point of the learned dispersions; empty where there are none."""
    belief: Any = posterior.belief
    return belief.factors["likelihood"].mean if isinstance(belief, Product) else {}
