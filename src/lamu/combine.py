r"""Beliefs as sums: data add to natural parameters, and can be subtracted again.

\[ \lambda_{\text{post}} = \lambda_{\text{prior}} + \sum_k \lambda_{\text{lik},k} \]

A posterior of K shards is therefore the sum of what each shard adds to its prior, and one prior; and a posterior
without some rows is the posterior with what they added taken away. Both are exact for conjugate models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.conjugacy import ConjugateModel
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.families import ExponentialFamily, Gaussian, Point, Product
from lamu.objective import BatchLoss, Objective, Weights
from lamu.objective.curvature import GaussNewton
from lamu.operators import Dense
from lamu.posterior import Posterior
from lamu.priors import Belief, Prior, gaussian_belief
from lamu.priors.belief import in_structure
from lamu.target import weights_belief
from lamu.typing import Array, Number, Params

__all__ = ["merge", "remove"]

_JACOBIAN_NUMBERS = 2**25


def merge(posteriors: Sequence[Posterior], prior: Prior | None = None, temperature: Number | None = None) -> Posterior:
    r"""Returns the posterior of all the data that several posteriors saw, each a part of them.

    \[ \lambda = \tfrac1T \lambda_{\text{prior}} + \sum_k (\lambda_k - \tfrac1T \lambda_{\text{prior},k}) \]

    Exact for conjugate models: K shards merged equal one fit of all rows. Of networks it multiplies Gaussian beliefs,
    which are local. Hidden units have no order of their own, and two networks that began at other weights know the same
    in units of another order: the parts of a network with hidden units must have started from the same weights, by
    `Model.starting_at` or by one seed. Weights that predict linearly (`Linear`, a head above frozen features) have one
    mode, and may start anywhere. Learned dispersions, of which each shard knows a point, become the mean of the points.

    Args:
        posteriors: posteriors of one model, fitted to different rows.
        prior: the prior of the whole; the one that they share where None.
        temperature: the temperature T at which they were made; their own where None.

    Returns:
        The posterior, with the model of the first one and, where all know theirs, its evidence.

    Raises:
        TypeError: for beliefs that are neither Gaussian nor of an exponential family, or not all alike.
        ValueError: for none, models that differ, priors or temperatures that differ where none is given, networks with
            hidden units that did not start from the same weights, or a sum that is no belief.

    Source: Khan & Rue (2021), section 5.1; Neiswanger, Wang & Xing (2014).

    Examples:
        >>> import lamu
        >>> model = lamu.ConjugateModel(lamu.observations.Bernoulli(), lamu.families.Beta(1.0, 1.0))
        >>> shards = [lamu.fit(model, {"y": y}, lamu.algorithms.conjugate()).posterior for y in ([1, 1], [0, 1, 1])]
        >>> from lamu.combine import merge
        >>> whole = merge(shards).belief.factors["network"]
        >>> float(whole.alpha), float(whole.beta)
        (5.0, 2.0)
    """
    if not posteriors:
        raise ValueError("there is no posterior to merge; give at least one")
    first, beliefs = posteriors[0], [_additive(posterior) for posterior in posteriors]
    for other, belief in zip(posteriors[1:], beliefs[1:], strict=True):
        first.model.require_same(other.model)
        if jax.tree.structure(belief) != jax.tree.structure(beliefs[0]):
            raise TypeError(
                f"the beliefs are not alike, {_named(beliefs[0])} and {_named(belief)}; fit all parts in the same way"
            )
        if prior is None and not _equal(first.model.prior, other.model.prior):
            raise ValueError("the posteriors have different priors; say which one the whole has, merge(..., prior=...)")
        if not _equal(first.network_state, other.network_state):
            raise ValueError("the posteriors have batch statistics of their own, which have no sum")
    _require_one_start(posteriors)
    if temperature is None:
        temperature = _shared_temperature(posteriors)
    whole: Any = first.model.prior if prior is None else prior
    values = _prior_values(whole, beliefs[0], temperature)
    for posterior, belief in zip(posteriors, beliefs, strict=True):
        values = tree.add(values, belief.to_natural())
        values = tree.add(values, _prior_values(posterior.model.prior, belief, temperature), -1.0)
    belief = _belief(beliefs[0], values, "the sum of these posteriors without their priors")
    dispersions = [_dispersion(posterior) for posterior in posteriors]
    dispersion = jax.tree.map(lambda *points: sum(points[1:], points[0]) / len(points), *dispersions)
    evidence = None
    if all(posterior.evidence is not None for posterior in posteriors) and not jax.tree.leaves(dispersion):
        at = belief.mean
        evidence = _log_prior(whole, at) / temperature - belief.log_prob(at)
        for posterior, part in zip(posteriors, beliefs, strict=True):
            added = part.log_prob(at) - _log_prior(posterior.model.prior, at) / temperature
            evidence = evidence + posterior.evidence + added
    model = replace(first.model, prior=whole)
    return replace(
        first,
        model=model,
        belief=_product(belief, dispersion),
        evidence=evidence,
        convergence=None,
        temperature=temperature,
    )


def remove(
    posterior: Posterior, data: Any, temperature: Number | None = None, likelihood_power: Number = 1.0
) -> Posterior:
    r"""Returns the posterior as it would be without some of the rows that it was fitted on.

    \[ \lambda \leftarrow \lambda - \lambda_{\text{lik}}(\text{rows}) \]

    Exact for conjugate models, linear regression among them. For a Gaussian belief about a network what the rows added
    is their Gauss–Newton matrix and gradient at the mean, one step of the rule:

    \[ S \leftarrow S - \tfrac1T \sum_i J_i^\top \Lambda_i J_i, \qquad
       m \leftarrow m - S^{-1} \tfrac1T \sum_i \nabla \log p(y_i \mid x_i, m) \]

    with the new S in the second. It follows the refit as far as the loss is quadratic. Learned dispersions stay.

    Args:
        posterior: what was fitted.
        data: rows that it was fitted on, as `fit` takes them.
        temperature: the temperature T at which it was fitted; its own where None.
        likelihood_power: the power of the likelihood with which it was fitted.

    Returns:
        The posterior without the rows; with its evidence where the model is conjugate and it was known.

    Raises:
        TypeError: for a belief from which rows cannot be subtracted.
        ValueError: if nothing is left that is a belief: the rows weigh more than what was fitted.

    Source: Khan & Rue (2021), section 5.1; Nickl et al. (2023), "The memory-perturbation equation".

    Examples:
        >>> import lamu
        >>> from lamu.combine import remove
        >>> model = lamu.ConjugateModel(lamu.observations.Bernoulli(), lamu.families.Beta(1.0, 1.0))
        >>> posterior = lamu.fit(model, {"y": [1, 1, 0, 1]}, lamu.algorithms.conjugate()).posterior
        >>> float(remove(posterior, {"y": [1, 1]}).belief.factors["network"].alpha)
        2.0
    """
    belief, model = _additive(posterior), posterior.model
    rows = model.rows(data)
    temperature = posterior.temperature if temperature is None else temperature
    objective = Objective(model, float(rows.count), temperature, likelihood_power)
    words = f"what is left without these {rows.count} rows"
    if isinstance(model, ConjugateModel):
        new = _belief(belief, tree.add(belief.to_natural(), _statistics(objective, belief, rows.full()), -1.0), words)
        exact = True
    elif isinstance(belief, Gaussian):
        curvature, gradient = _added(objective, posterior, belief, rows)
        precision = tree.add(belief.precision, curvature, -1.0)
        _require_positive(precision, belief.mean, words)
        new = belief.moved(precision, gradient, -1.0)
        exact = model.network.linear and model.likelihood.quadratic and not jax.tree.leaves(_dispersion(posterior))
    else:
        raise TypeError(
            f"what rows added to a {type(belief).__name__} belief about a network is not known; fit again without them"
        )
    evidence = None
    if exact and posterior.evidence is not None:
        params = {"network": new.mean, "likelihood": {}}
        value = objective.negative_log_likelihood(params, rows.full(), posterior.network_state)[0]
        lost = -objective.concentration * value + new.log_prob(new.mean) - belief.log_prob(new.mean)
        evidence = posterior.evidence - lost
    return replace(
        posterior,
        belief=_product(new, _dispersion(posterior)),
        evidence=evidence,
        convergence=None,
        temperature=temperature,
    )


def _added(objective: Objective, posterior: Posterior, belief: Gaussian, rows: Arrays) -> tuple[Any, Params]:
    """Returns the rows' Gauss–Newton matrix and the gradient of their negative log likelihood at the mean, over T."""
    numbers = tree.dimension(belief.mean) * posterior.model.likelihood.outputs(rows.y)
    total: Any = None
    for batch in rows.batches(max(1, min(rows.count, _JACOBIAN_NUMBERS // numbers))):
        part = _added_by(type(belief.precision), objective, posterior, belief.mean, batch)
        total = part if total is None else tree.add(total, part)
    return total


@partial(jax.jit, static_argnums=0)
def _added_by(structure: Any, objective: Objective, posterior: Posterior, mean: Params, batch: Batch) -> Any:
    dispersion, state = _dispersion(posterior), posterior.network_state
    count = batch.count / objective.temperature
    loss = BatchLoss(objective, batch, state, Weights(), dispersion, conjugate=True)
    nll = lambda theta: objective.negative_log_likelihood({"network": theta, "likelihood": dispersion}, batch, state)[0]
    return GaussNewton().matrix(loss, mean, structure).scale(count), tree.scale(jax.grad(nll)(mean), count)


def _statistics(objective: Objective, belief: Any, batch: Batch) -> Any:
    r"""Returns \(\sum_i w_i t(y_i) / T\), the gradient in μ of what is linear in μ."""
    observation: Any = objective.model.observation
    nothing = jax.tree.map(jnp.zeros_like, belief.to_natural())
    factor = objective.likelihood_power / objective.temperature
    return jax.grad(lambda mu: factor * batch.total(observation.log_likelihood(mu, batch.y)))(nothing)


def _require_one_start(posteriors: Sequence[Posterior]) -> None:
    """Raises a ValueError where networks whose units have no order began at weights of their own."""
    first = posteriors[0]
    if _has_one_mode(first):
        return
    for index, other in enumerate(posteriors[1:], 1):
        if not _began_alike(first, other):
            raise ValueError(
                f"posteriors 0 and {index} began at different weights of {first.model.name}, whose "
                "hidden units have no order, so that the product of the beliefs is about neither; fit each part with "
                "model.starting_at(params), from the same weights"
            )


def _has_one_mode(posterior: Posterior) -> bool:
    """Whether the free weights predict linearly, or are no network's, so that no units can change places."""
    model: Any = posterior.model
    if model.identified:
        return True
    free = tree.paths(_additive(posterior).mean)
    return model.frozen is not None and all(tree.matches(path, model.network.head) for path in free)


def _began_alike(one: Posterior, other: Posterior) -> bool:
    """Whether two runs of one model started from the same weights: those that were given, or those of one seed."""
    if one.model.start is not None or other.model.start is not None:
        return _equal(one.model.start, other.model.start)
    # The key of predictions comes from the seed, as the random weights of the start do.
    mine, theirs = (np.asarray(jax.random.key_data(posterior.key)) for posterior in (one, other))
    return bool(np.array_equal(mine, theirs)) or one.model.trained


def _shared_temperature(posteriors: Sequence[Posterior]) -> Number:
    first = posteriors[0].temperature
    for other in posteriors[1:]:
        if float(other.temperature) != float(first):
            raise ValueError(
                f"the posteriors were made at the temperatures {float(first):g} and {float(other.temperature):g}, at "
                "which their data weigh differently; fit all parts at one temperature"
            )
    return first


def _additive(posterior: Posterior) -> Any:
    """Returns the belief about the weights, if its natural parameters can be added."""
    belief = weights_belief(posterior)
    if not isinstance(belief, ExponentialFamily):
        raise TypeError(f"{type(belief).__name__} beliefs cannot be added; fit with conjugate(), laplace() or ivon()")
    return belief


def _prior_values(prior: Any, belief: Any, temperature: Number) -> Any:
    """Returns the natural parameters of a prior to the power 1/T, in the structure of the belief."""
    if isinstance(belief, Gaussian):
        gaussian = gaussian_belief(prior, belief.mean)
        if gaussian is None:
            raise TypeError(f"the prior {type(prior).__name__} is not Gaussian, and the belief is")
        precision = in_structure(type(belief.precision), gaussian)
        return Gaussian(gaussian.mean, precision.scale(1.0 / temperature)).to_natural()
    known: Any = prior.belief if isinstance(prior, Belief) else None
    if type(known) is not type(belief):
        raise TypeError(
            f"the prior {type(prior).__name__} is no {type(belief).__name__}; give Belief({type(belief).__name__}(...))"
        )
    return tree.scale(known.to_natural(), 1.0 / temperature)


def _belief(like: Any, values: Any, words: str) -> Any:
    """Returns the belief with these natural parameters, or says why there is none."""
    if isinstance(like, Gaussian):
        _require_positive(values[1].scale(-2.0), like.mean, words)
    try:
        return like.with_natural(values)
    except ValueError as error:
        raise ValueError(f"{words} is no belief ({error}); subtract only what was added") from None


def _require_positive(precision: Any, mean: Params, words: str) -> None:
    """Raises a ValueError unless the precision is positive."""
    if isinstance(precision, Dense):
        least, where = float(np.linalg.eigvalsh(np.asarray(precision.matrix)).min()), "the precision's least eigenvalue"
    else:
        leaves = {path: float(jnp.min(leaf)) for path, leaf in _by_path(precision.diagonal(mean)).items()}
        path = min(leaves, key=lambda name: leaves[name])
        least, where = leaves[path], f"the precision of the leaf {path!r}"
    if not least > 0:
        raise ValueError(f"{words} is no belief, {where} would be {least:.6g}; subtract only what was added")


def _by_path(params: Params) -> dict[str, Array]:
    return dict(zip(tree.paths(params), jax.tree.leaves(params), strict=True))


def _dispersion(posterior: Posterior) -> Params:
    belief: Any = posterior.belief
    return belief.factors["likelihood"].mean if isinstance(belief, Product) else {}


def _product(belief: Any, dispersion: Params) -> Product:
    return Product({"network": belief, "likelihood": Point(dispersion)})


def _log_prior(prior: Any, theta: Params) -> Array:
    return prior.log_prob(theta)


def _named(belief: Any) -> str:
    structure = f" of {type(belief.precision).__name__.lower()} precision" if isinstance(belief, Gaussian) else ""
    return f"{type(belief).__name__}{structure}"


def _equal(a: Any, b: Any) -> bool:
    if jax.tree.structure(a) != jax.tree.structure(b):
        return False
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
