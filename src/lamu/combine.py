r"""Combines posteriors in natural parameters: merges shards, removes rows, adds sites.

\[ \lambda_{\text{post}} = \lambda_{\text{prior}} + \sum_k \lambda_{\text{lik},k} \]

A posterior of K shards is therefore one prior plus the likelihood terms of all shards; and a posterior without some
rows is the posterior minus their likelihood terms. Both are exact for conjugate models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from lamu import tree
from lamu.conjugacy import ConjugateModel
from lamu.conjugate_target import ConjugateTarget
from lamu.families import Gaussian, Point, Product
from lamu.objective import Objective
from lamu.posterior import Posterior
from lamu.priors import Prior
from lamu.sites import Site, additive, belief_of, dispersion, prior_values, shifted, site
from lamu.typing import Array, Belief, Data, Number, Params

__all__ = ["add", "merge", "remove"]


def merge(posteriors: Sequence[Posterior], prior: Prior | None = None, temperature: Number | None = None) -> Posterior:
    r"""Merges posteriors fitted to disjoint parts of the data into the posterior of all the data.

    \[ \lambda = \tfrac1T \lambda_{\text{prior}} + \sum_k (\lambda_k - \tfrac1T \lambda_{\text{prior},k}) \]

    Exact for conjugate models, and for graphs in which no factor joins two variables and rows have no latents: K merged
    shards equal one fit of all rows. For networks it multiplies Gaussian beliefs, which are local. Hidden units can be
    permuted without changing the function, so networks with hidden units must have started from the same weights, by
    `Model.starting_at` or by one seed. Weights that predict linearly (`Linear`, a head above frozen features) have one
    mode, and may start anywhere. Learned dispersions, a point in each shard, become the mean of the points,
    weighted by their rows.

    Args:
        posteriors: posteriors of one model, fitted to different rows.
        prior: the prior of the merged posterior; the shards' common prior where None.
        temperature: the temperature T of the posteriors; their own where None.

    Returns:
        The posterior, with the model of the first one and, where all have an evidence, its evidence.

    Raises:
        TypeError: for beliefs that are neither Gaussian nor of an exponential family, or not all alike.
        ValueError: for no posteriors, models that differ, priors or temperatures that differ where none is given,
            networks with hidden units that did not start from the same weights, or a sum that is not a valid belief.

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
    if isinstance(posteriors, Posterior):
        raise TypeError("posteriors is one Posterior; give a list, for instance lamu.merge([first, second])")
    if not posteriors:
        raise ValueError("there is no posterior to merge; give at least one")
    first, beliefs = posteriors[0], [additive(posterior) for posterior in posteriors]
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
    merged_prior: Any = first.model.free_prior if prior is None else prior
    values = prior_values(merged_prior, beliefs[0], temperature)
    for posterior in posteriors:
        values = tree.add(values, site(posterior, temperature=temperature).values)
    belief = belief_of(beliefs[0], values, "the sum of these posteriors without their priors")
    dispersions, sizes = [dispersion(posterior) for posterior in posteriors], [p.data_size for p in posteriors]
    known = [size for size in sizes if size is not None]
    total = sum(known) if len(known) == len(sizes) else None
    shares = [1 / len(sizes)] * len(sizes) if total is None else [size / total for size in known]
    weighted = [tree.scale(point, share) for point, share in zip(dispersions, shares, strict=True)]
    point = jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *weighted)
    evidence = None
    complete = all(posterior.evidence is not None for posterior in posteriors) and not isinstance(beliefs[0], Product)
    if complete and not jax.tree.leaves(point):
        mean = belief.mean
        evidence = _log_prior(merged_prior, mean) / temperature - belief.log_prob(mean)
        for posterior, part in zip(posteriors, beliefs, strict=True):
            added = part.log_prob(mean) - _log_prior(posterior.model.free_prior, mean) / temperature
            evidence = evidence + posterior.evidence + added
    model = first.model.under_prior(merged_prior)
    return replace(
        first,
        model=model,
        belief=_product(belief, point),
        evidence=evidence,
        convergence=None,
        temperature=temperature,
        data_size=total,
    )


def remove(
    posterior: Posterior, data: Data, temperature: Number | None = None, likelihood_power: Number = 1.0
) -> Posterior:
    r"""Removes rows from a posterior that was fitted on them.

    \[ \lambda \leftarrow \lambda - \lambda_{\text{lik}}(\text{rows}) \]

    Exact for conjugate models, including linear regression. For a Gaussian belief about a network the contribution of
    the rows is their Gauss–Newton matrix and gradient at the mean, one step of the rule:

    \[ S \leftarrow S - \tfrac1T \sum_i J_i^\top \Lambda_i J_i, \qquad
       m \leftarrow m - S^{-1} \tfrac1T \sum_i \nabla \log p(y_i \mid x_i, m) \]

    with the new S in the second. It agrees with a refit as far as the loss is quadratic. Learned dispersions stay.

    Args:
        posterior: the fitted posterior.
        data: rows that it was fitted on, as `fit` takes them, or their `Site`.
        temperature: the temperature T at which it was fitted; its own where None.
        likelihood_power: the power of the likelihood with which it was fitted.

    Returns:
        The posterior without the rows; with its evidence where the model is conjugate and has one.

    Raises:
        TypeError: for a belief from which rows cannot be subtracted.
        ValueError: if the result is not a valid belief: the rows weigh more than the data that was fitted.

    Source: Khan & Rue (2021), section 5.1; Nickl et al. (2023), "The memory-perturbation equation".

    Examples:
        >>> import lamu
        >>> from lamu.combine import remove
        >>> model = lamu.ConjugateModel(lamu.observations.Bernoulli(), lamu.families.Beta(1.0, 1.0))
        >>> posterior = lamu.fit(model, {"y": [1, 1, 0, 1]}, lamu.algorithms.conjugate()).posterior
        >>> float(remove(posterior, {"y": [1, 1]}).belief.factors["network"].alpha)
        2.0
    """
    belief, model = additive(posterior), posterior.model
    temperature = posterior.temperature if temperature is None else temperature
    if isinstance(data, Site):
        left = shifted(belief, data, -1.0, "what is left without this site")
        return _with_belief(posterior, left, None, temperature, None if data.count is None else -data.count)
    rows = model.rows(data)
    removed = site(posterior, data, temperature, likelihood_power)
    new = shifted(belief, removed, -1.0, f"what is left without these {rows.count} rows")
    exact = _is_exact(model) and not jax.tree.leaves(dispersion(posterior))
    objective = Objective(model, float(rows.count), temperature, likelihood_power)
    evidence = None
    if exact and posterior.evidence is not None:
        params = {"network": new.mean, "likelihood": {}}
        value = objective.negative_log_likelihood(params, rows.full(), posterior.network_state)[0]
        lost = -objective.concentration * value + new.log_prob(new.mean) - belief.log_prob(new.mean)
        evidence = posterior.evidence - lost
    size = float(np.sum(np.asarray(rows.weight, float))) * float(likelihood_power)
    return _with_belief(posterior, new, evidence, temperature, -size)


def add(posterior: Posterior, of: Site) -> Posterior:
    r"""Adds a site to a posterior, \(\lambda + \lambda_{\text{site}}\).

    Exact for conjugate models. For rows that are not yet a site see `Model.with_prior`, and `extended_kalman`, which
    adds the sites of rows one after the other, each taken at the current mean.

    Args:
        posterior: the fitted posterior.
        of: a site (`lamu.site`) of other rows, from a posterior of the same model, prior and temperature.

    Returns:
        The posterior; without evidence, which a site does not have.

    Raises:
        TypeError: for a belief without natural parameters, or a site of another structure.
        ValueError: if the sum is not a valid belief.

    Examples:
        >>> import lamu
        >>> model = lamu.ConjugateModel(lamu.observations.Bernoulli(), lamu.families.Beta(1.0, 1.0))
        >>> one, other = (lamu.fit(model, {"y": y}, lamu.algorithms.conjugate()).posterior for y in ([1, 1], [0, 1]))
        >>> belief = lamu.add(one, lamu.site(other)).belief.factors["network"]
        >>> float(belief.alpha), float(belief.beta)
        (4.0, 2.0)
    """
    belief = additive(posterior)
    if jax.tree.structure(of.values) != jax.tree.structure(belief.to_natural()):
        raise TypeError(f"the site is of another structure than the {_named(belief)} belief; take it from one like it")
    return _with_belief(posterior, shifted(belief, of, 1.0, "the sum"), None, posterior.temperature, of.count)


def _with_belief(
    posterior: Posterior, belief: Belief, evidence: object, temperature: Number, rows: Number | None
) -> Posterior:
    before = posterior.data_size
    return replace(
        posterior,
        belief=_product(belief, dispersion(posterior)),
        evidence=evidence,
        convergence=None,
        temperature=temperature,
        data_size=None if rows is None or before is None else max(before + rows, 0.0),
    )


def _is_exact(model: Any) -> bool:
    if isinstance(model, ConjugateTarget):
        return isinstance(model, ConjugateModel)
    return model.network.linear and model.likelihood.quadratic


def _require_one_start(posteriors: Sequence[Posterior]) -> None:
    """Raises a ValueError where networks with hidden units did not start from the same weights."""
    first = posteriors[0]
    if _has_one_mode(first):
        return
    if isinstance(first.model, ConjugateTarget):
        raise ValueError(
            "the variables of a graph meet in a factor, or its rows have latents, so that each part has an order of "
            "its own; fit the parts one after the other, graph.with_prior(posterior), or all rows by svi() in batches"
        )
    for index, other in enumerate(posteriors[1:], 1):
        if not _began_alike(first, other):
            raise ValueError(
                f"posteriors 0 and {index} began at different weights of {first.model.name}, whose "
                "hidden units have no order, so that the product of the beliefs is about neither; fit each part with "
                "model.starting_at(params), from the same weights"
            )


def _has_one_mode(posterior: Posterior) -> bool:
    """Whether the free weights predict linearly, or belong to no network, so that no units can be permuted."""
    model: Any = posterior.model
    if model.identified:
        return True
    free = tree.paths(additive(posterior).mean)
    return model.frozen is not None and all(tree.matches(path, model.network.head) for path in free)


def _began_alike(first: Posterior, other: Posterior) -> bool:
    """Whether two runs of one model started from the same weights: given ones, or those of one seed."""
    if first.model.start is not None or other.model.start is not None:
        return _equal(first.model.start, other.model.start)
    # The key of predictions comes from the seed, as the random weights of the start do.
    start, other_start = (np.asarray(jax.random.key_data(posterior.key)) for posterior in (first, other))
    return bool(np.array_equal(start, other_start)) or first.model.trained


def _shared_temperature(posteriors: Sequence[Posterior]) -> Number:
    first = posteriors[0].temperature
    for other in posteriors[1:]:
        if float(other.temperature) != float(first):
            raise ValueError(
                f"the posteriors were made at the temperatures {float(first):g} and {float(other.temperature):g}, at "
                "which their data weigh differently; fit all parts at one temperature"
            )
    return first


def _product(belief: Belief, dispersion: Params) -> Product:
    return Product({"network": belief, "likelihood": Point(dispersion)})


def _log_prior(prior: Any, theta: Params) -> Array:
    return prior.log_prob(theta)


def _named(belief: Belief) -> str:
    structure = f" of {type(belief.precision).__name__.lower()} precision" if isinstance(belief, Gaussian) else ""
    return f"{type(belief).__name__}{structure}"


def _equal(a: object, b: object) -> bool:
    if jax.tree.structure(a) != jax.tree.structure(b):
        return False
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
