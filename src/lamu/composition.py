"""Combines several posteriors into one predictive, and makes posteriors of repeated fits.

`average` weighs posteriors by their evidence, `stack` by how well they predict held-out rows; both return a
`Composition` that predicts as a posterior does. `bootstrap` and `sandwich` are frequentist baselines: the variation of
the estimate over repetitions of the data.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory, store, tree
from lamu.algorithms.ensembles.deep_ensemble import pooled
from lamu.base.arguments import whole_number
from lamu.data.arrays import Arrays, array_of, refuse_other_order
from lamu.data.batch import Batch
from lamu.families import Gaussian, Point, Product
from lamu.loop import fit
from lamu.model import Model
from lamu.objective import Objective
from lamu.operators import Dense
from lamu.posterior import Posterior, require_whole
from lamu.predictives import Linearised, Predictive, Weighted
from lamu.protocol import Algorithm
from lamu.record import declared, decode, encode, record
from lamu.scores.proper_scores import row_counts
from lamu.target import training_rows
from lamu.typing import Array, Data, Inputs, Params, RandomKey, State, Targets

__all__ = ["Composition", "average", "bootstrap", "load_composition", "sandwich", "stack"]


# \[ p(y^* \mid x^*) = \sum_k w_k\, p_k(y^* \mid x^*) \]
#
# The posteriors may differ in model, algorithm and shapes; only the predicted quantity must be the same.


_SURE = 1e-9  # nats by which stacking weights may miss the best ones
_ROUNDS = 100_000  # of stacking at most
_NEGLIGIBLE = 1e-8  # a weight up to which a member is left out


@record
class Composition:
    """Weighted posteriors that predict as one.

    Attributes:
        posteriors: the members.
        log_weights: log w, `[members]`, normalised.

    Examples:
        >>> import lamu, jax.numpy as jnp
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.7)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> both = lamu.composition.Composition((posterior, posterior), jnp.log(jnp.array([0.5, 0.5])))
        >>> both.predict(x[:5]).mean.shape
        (5,)
    """

    posteriors: tuple[Any, ...]
    log_weights: Any

    @property
    def weights(self) -> np.ndarray:
        """The weights, `[members]`, which sum to one."""
        return np.exp(np.asarray(self.log_weights, float))

    def predict(self, x: Inputs, samples: int = 32, key: RandomKey | None = None, offset: object = None) -> Predictive:
        """Returns the weighted average of the members' predictions; members of negligible weight are left out.

        Args:
            x: inputs `[N, ...]` in the units of the data.
            samples: draws a member, where its rule needs draws.
            key: a random key for the draws, folded for each member; the members' own where none is given.
            offset: a known part of the linear predictor.

        Raises:
            ValueError: for members of different tasks or shapes, and for inputs that the members refuse.
        """
        members = np.flatnonzero(self.weights > _NEGLIGIBLE)
        keys = [None if key is None else jax.random.fold_in(jax.random.clone(key), int(k)) for k in members]
        # The predictions of all members are in memory together, so each gets its share of the memory limit.
        with memory.within(max(memory.limit() // len(members), 1)):
            parts = tuple(
                self.posteriors[k].predict(x, samples, subkey, offset) for k, subkey in zip(members, keys, strict=True)
            )
        logs = np.asarray(self.log_weights, float)[members]
        return Weighted(parts, jnp.asarray(logs - np.logaddexp.reduce(logs), parts[0].mean.dtype))

    def joint(self) -> Composition:
        """Returns the composition of the members' `Posterior.joint`."""
        return replace(self, posteriors=tuple(posterior.joint() for posterior in self.posteriors))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the composition as a folder, as `Posterior.save` does; `load_composition` reads it.

        Args:
            path: the folder to create.

        Returns:
            Its path.

        Raises:
            FileExistsError: if `path` exists.
        """
        arrays: dict[str, np.ndarray] = {}
        content = encode(self, arrays, "composition")
        return store.write(path, content, arrays)


def load_composition(path: str | os.PathLike[str], *, trust: Iterable[str] = ()) -> Composition:
    """Reads a composition that `Composition.save` wrote.

    Args:
        path: the folder.
        trust: names of modules that may be imported, as for `lamu.load`.

    Raises:
        lamu.store.StoreError: if the folder is missing, altered, or holds another kind of object.

    Examples:
        >>> import lamu, tempfile, pathlib, jax.numpy as jnp
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.7)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> one = lamu.composition.average([posterior])
        >>> folder = one.save(pathlib.Path(tempfile.mkdtemp()) / "composition")
        >>> bool((lamu.composition.load_composition(folder).predict(x).mean == one.predict(x).mean).all())
        True
    """
    content, arrays = store.read(path, lambda content: _declared(path, content))
    with store.reading(path):
        composition = decode(content, arrays, trust=trust)
        for posterior in composition.posteriors:
            require_whole(posterior)
    return composition


def _declared(path: object, content: object) -> Any:
    if not isinstance(content, dict) or content.get("record") != "composition.Composition":
        raise store.StoreError(f"{str(path)!r} holds no composition")
    return declared(content)


def average(posteriors: object, prior: object = None) -> Composition:
    r"""Returns the Bayesian model average, with each model weighted by its evidence.

    \[ w_k \propto \pi_k \exp(\text{evidence}_k) \]

    The evidences must be of the same rows and in the same units of the target, at temperature one; those of Laplace's
    method are approximations, and a difference of a few nats between them may be their error. The average settles on
    one model as rows are added, the right one where it is among them; where none is right, `stack` predicts better.

    Args:
        posteriors: a sequence, or a mapping by name, of one task, with evidences (`conjugate`, `laplace`,
            `last_layer`).
        prior: π, one probability a model, up to a factor; equal where none is given.

    Returns:
        The weighted posteriors.

    Raises:
        ValueError: for a posterior without evidence, with one that is not finite, or at another temperature than one;
            for another number of rows than another's; for tasks that differ; for a prior that does not fit.

    Source: Hoeting, Madigan, Raftery & Volinsky (1999).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> models = [lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(s)) for s in (0.7, 2.0)]
        >>> models = [model.standardised(x, y) for model in models]
        >>> found = [lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior for model in models]
        >>> bool(lamu.composition.average(found).weights[0] > 0.999)
        True
    """
    members = _members(posteriors)
    for k, member in enumerate(members):
        if member.evidence is None:
            raise ValueError(
                f"posterior {k} has no evidence, which its algorithm does not know; take conjugate() or laplace(), or "
                "weigh by held-out rows with stack(posteriors, x, y)"
            )
        if float(member.temperature) != 1.0:
            raise ValueError(
                f"posterior {k} was made at the temperature {float(member.temperature):g}, where its evidence is no "
                "log marginal likelihood; fit at temperature 1, or weigh by held-out rows with stack(posteriors, x, y)"
            )
    sizes = {k: float(member.data_size) for k, member in enumerate(members) if member.data_size is not None}
    if len(set(sizes.values())) > 1:
        few, many = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
        raise ValueError(
            f"the evidence of posterior {few} is of {sizes[few]:g} rows, that of posterior {many} of {sizes[many]:g}, "
            "and evidences compare models of the same rows: fit all to the same, or weigh by held-out rows with "
            "stack(posteriors, x, y)"
        )
    evidence = np.array([float(member.evidence) for member in members])
    if not np.isfinite(evidence).all():
        raise ValueError(f"the evidences {evidence.tolist()} are not all finite; leave those posteriors out")
    if prior is not None:
        odds = np.asarray(prior, float)
        if odds.shape != evidence.shape or not (np.isfinite(odds).all() and (odds >= 0).all() and odds.sum() > 0):
            raise ValueError(f"prior={prior!r} does not fit; give {len(members)} probabilities")
        with np.errstate(divide="ignore"):
            evidence = evidence + np.log(odds)
    return Composition(members, jnp.asarray(evidence - np.logaddexp.reduce(evidence)))


def stack(
    posteriors: object,
    x: Inputs,
    y: Targets,
    samples: int = 64,
    strength: float = 1.0,
    weight: object = None,
    offset: object = None,
) -> Composition:
    r"""Returns the mixture of posteriors under which held-out rows are most probable (stacking).

    \[ \max_{w \in \Delta} \; \sum_{i=1}^n n_i \log \sum_k w_k\, p_k(y_i \mid x_i) + s \sum_k \tfrac1K \log w_k \]

    with \(n_i\) the weight of row i, \(n = \sum_i n_i\), and s the strength of a penalty towards equal weights, worth s
    rows: it keeps few rows from choosing by chance, and loses influence with more rows. The problem is concave; it is
    solved by expectation maximisation, \(w_k \leftarrow (\sum_i n_i r_{ik} + s/K) / (n + s)\) with r the
    responsibilities, until the duality gap is below 1e-9 nats a row. Each member predicts once; then the cost is
    `[n, K]` operations an iteration.

    No member may have been fitted to these rows. Unlike `average` it does not assume that one of the models is right,
    and it needs no evidence, so that it takes any posterior.

    Args:
        posteriors: a sequence, or a mapping by name, of one task, of any models and algorithms.
        x: held-out inputs, `[n, ...]`.
        y: their targets, `[n]` or `[n, outputs]`.
        samples: draws a member, where its rule needs draws.
        strength: s; zero for no penalty.
        weight: the weight of each row, `[n]`; ones where None.
        offset: a known part of the rows' linear predictor, as for `Posterior.predict`.

    Returns:
        The weighted posteriors.

    Raises:
        ValueError: for tasks that differ, a row of zero density under every member, a negative strength, or weights
            that are negative, all zero, or not one a row.

    Source: Wolpert (1992); Yao, Vehtari, Simpson & Gelman (2018).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> models = [lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(s)) for s in (0.4, 1.2)]
        >>> models = [model.standardised(x[:300], y[:300]) for model in models]
        >>> found = [lamu.fit(model, (x[:300], y[:300]), lamu.algorithms.conjugate()).posterior for model in models]
        >>> both = lamu.composition.stack(found, x[300:370], y[300:370])
        >>> nll = [lamu.scores.nll(each.predict(x[370:]), y[370:]) for each in (*found, both)]
        >>> nll[2] < min(nll[:2])
        True
    """
    members = _members(posteriors)
    if not 0 <= strength < float("inf"):
        raise ValueError(f"strength={strength!r} is not a number of rows; give zero or more")
    refuse_other_order({"x": x, "y": y, "weight": weight, "offset": offset})
    values = {name: jnp.asarray(part) for name, part in y.items()} if isinstance(y, Mapping) else array_of("y", y)
    log_densities = [member.predict(x, samples=samples, offset=offset).log_prob(values) for member in members]
    densities = np.stack([np.asarray(each, float) for each in log_densities], axis=1)
    counts = row_counts(weight, len(densities))
    impossible = ~np.isfinite(densities.max(axis=1))
    if impossible.any() or np.isnan(densities).any():
        raise ValueError(
            f"row {int(np.argmax(impossible | np.isnan(densities).any(axis=1)))} has no finite density under "
            "any member, or one that is not a number; look at that row"
        )
    return Composition(members, jnp.asarray(np.log(np.maximum(stacking_weights(densities, strength, counts), 1e-300))))


def stacking_weights(densities: np.ndarray, strength: float = 0.0, counts: np.ndarray | None = None) -> np.ndarray:
    """Returns the weights of `stack`, `[K]`, from log densities `[n, K]`."""
    counts, K = np.ones(len(densities)) if counts is None else counts, densities.shape[1]
    n = counts.sum()
    by_member = np.ascontiguousarray(np.exp(densities - densities.max(axis=1, keepdims=True)).T)
    weights = np.full(K, 1 / K)
    for _ in range(_ROUNDS):
        slope = by_member @ (counts / (weights @ by_member))
        # The gradient of the whole objective; on the simplex its largest entry bounds the possible gain.
        gradient = slope + strength / K / np.maximum(weights, 1e-300)
        if gradient.max() - (n + strength) <= _SURE * n:
            break
        weights = (weights * slope + strength / K) / (n + strength)
    return weights / weights.sum()


def _members(posteriors: Any) -> tuple[Any, ...]:
    members = tuple(posteriors.values()) if isinstance(posteriors, Mapping) else tuple(posteriors)
    if not members:
        raise ValueError("there are no posteriors to put together; give at least one")
    tasks = sorted({member.model.likelihood.support.task for member in members})
    if len(tasks) > 1:
        raise ValueError(f"the posteriors are of the tasks {tasks}; only predictions of the same thing mix")
    return members


def bootstrap(
    model: Model, data: Data, algorithm: Algorithm, *, resamples: int = 20, seed: int = 0, **options: Any
) -> Posterior:
    r"""Fits an algorithm to several bootstrap resamples of the rows and pools the posteriors.

    \[ D^{(b)} = \{(x_{j_i}, y_{j_i})\}_{i=1}^N, \quad j_i \sim U\{1, \dots, N\}, \qquad
       q(\theta) = \frac1B \sum_b q^{(b)}(\theta) \]

    The spread of the members estimates the sampling variation of the estimate: a baseline for beliefs, which it
    approaches with many rows. The intervals of the pooled prediction include the noise. All fits start alike and see
    the rows in the same order, so that only the rows differ. It costs B fits.

    Args:
        model: network, likelihood and prior.
        data: `(x, y)`, or a mapping with `x`, `y` and, optionally, `weight`, `offset`, `mask` and `groups`; with
            groups, such as the patient of each row, groups are drawn, with all of their rows.
        algorithm: the algorithm of each member.
        resamples: B.
        seed: of the resampling, and of every fit.
        **options: further options of `lamu.fit`, for instance `epochs`.

    Returns:
        The ensemble's posterior.

    Raises:
        ValueError: for fewer than two resamples, or an option that does not apply here.

    Source: Efron (1979); for neural networks Tibshirani (1996).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.7)).standardised(x, y)
        >>> posterior = lamu.composition.bootstrap(model, (x, y), lamu.algorithms.conjugate(), resamples=3)
        >>> len(posterior.belief.members)
        3
    """
    for name in ("validation", "checkpoint", "resume"):
        if name in options:
            raise ValueError(f"{name}={options[name]!r} would be shared by all resamples; leave it out, or use fit")
    resamples = whole_number("resamples", resamples, 2)
    model = model.named(data)
    rows = training_rows(model, data)
    if not isinstance(rows, Arrays):
        raise TypeError("resamples are drawn from rows in memory; give (x, y)")
    random = np.random.default_rng(seed)

    def resample() -> Arrays:
        if rows.groups is None:
            return rows.take(random.integers(0, rows.count, rows.count))
        group = np.unique(np.asarray(rows.groups), return_inverse=True)[1]
        counts = np.bincount(random.integers(0, group.max() + 1, group.max() + 1), minlength=group.max() + 1)
        return replace(rows, weight=rows.weight * jnp.asarray(counts[group], rows.weight.dtype))

    members = [fit(model, resample(), algorithm, seed=seed, **options).posterior for _ in range(resamples)]
    return pooled(members, jax.random.fold_in(jax.random.key(seed), resamples))


# \[ \Sigma = H^{-1} G H^{-1}, \qquad H = \nabla^2 \ell(m), \qquad
#    G = \sum_i n_i\, g_i g_i^\top, \quad g_i = -\nabla \log p(y_i \mid x_i, m) \]
#
# with \(n_i\) the weight of row i.
#
# Where the model is right H and G agree and the covariance is the inverse of either; where rows are noisier than the
# model says, or unequally so, G is larger.


_ROWS = 1024


def sandwich(posterior: Posterior, data: Data) -> Posterior:
    r"""Returns a Gaussian about a fitted point with the Huber–White covariance, as a posterior.

    It describes repetitions of the data and is not a Bayesian belief: a baseline. The prior enters H, and with it the
    fitted point, but not G. Dispersions stay at their point. It costs N gradients, D Hessian–vector products over all
    rows, and operations of the order D³.

    Args:
        posterior: a posterior of any algorithm, whose mean is the fitted point.
        data: the rows that it was fitted to, `(x, y)` or a mapping with `x`, `y` and, optionally, `weight`, `offset`.

    Returns:
        A posterior that predicts by linearisation.

    Raises:
        ValueError: for an indefinite Hessian (the point is not a minimum), fewer rows than weights, or too many
            weights.
        AttributeError: for a belief with several modes, which has no fitted point.

    Source: Huber (1967); White (1980).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(0.7)).standardised(x, y)
        >>> point = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> lower, upper = lamu.composition.sandwich(point, (x, y)).predict(x[:3]).interval(0.9)
        >>> bool((lower < upper).all())
        True
    """
    rows = posterior.model.rows(data)
    params, state = posterior.mean, posterior.network_state
    weights, dispersion = params["network"], params["likelihood"]
    D = tree.dimension(weights)
    memory.demand(
        24.0 * D * D, f"the Hessian of {D:,} weights", "freeze some of them (model.freeze), or take laplace()"
    )
    if rows.count < D:
        raise ValueError(
            f"{rows.count} rows leave the covariance of {D} weights singular; freeze some of them (model.freeze), or "
            "take laplace()"
        )
    objective = Objective(posterior.model, float(rows.count))
    hessian, spread = np.zeros((D, D)), np.zeros((D, D))
    for batch in rows.batches(min(rows.count, _ROWS)):
        H, G = (np.asarray(part, float) for part in _sums(objective, state, dispersion, weights, batch))
        hessian, spread = hessian + H, spread + G
    hessian = hessian + np.asarray(_prior_curvature(objective, dispersion, weights), float)
    hessian = (hessian + hessian.T) / 2
    lowest = float(np.linalg.eigvalsh(hessian)[0])
    if lowest <= 0:
        raise ValueError(
            f"the Hessian at the point has the eigenvalue {lowest:.3g}, so that it is not a minimum; train longer, or "
            "take laplace(), whose Gauss–Newton matrix is positive"
        )
    values, vectors = np.linalg.eigh(spread)
    if values[0] <= 1e-10 * values[-1]:
        raise ValueError(
            f"the rows' gradients have rank {int(np.sum(values > 1e-10 * values[-1]))} of {D}, so that some directions "
            "would be held for certain; freeze redundant weights (model.freeze), or take laplace()"
        )
    half = (hessian @ vectors) / np.sqrt(values)
    like = jax.tree.leaves(weights)[0].dtype
    belief = Gaussian(weights, Dense(jnp.asarray(half @ half.T, like)))
    product = Product({"network": belief, "likelihood": Point(dispersion)})
    return Posterior(posterior.model, product, state, Linearised(), posterior.key)


@jax.jit
def _sums(objective: Objective, state: State, dispersion: Params, weights: Params, batch: Batch) -> tuple[Array, Array]:
    """Returns the Hessian of the batch's summed loss and the sum of its rows' squared gradients."""
    vector, unravel = tree.ravel(weights)

    def loss(vector: Array, batch: Batch, weights: Array) -> Array:
        params = {"network": unravel(vector), "likelihood": dispersion}
        return -jnp.sum(objective.model.log_likelihood(params, state, batch)[0] * batch.mask * weights)

    # A weight of two equals the row written twice: its squared gradient counts twice, not four times.
    gradient = lambda row: jax.grad(loss)(
        vector, jax.tree.map(lambda leaf: leaf[None], row), jnp.sqrt(row.weight)[None]
    )
    gradients = jax.vmap(gradient)(batch)
    return jax.hessian(loss)(vector, batch, batch.weight), gradients.T @ gradients


@jax.jit
def _prior_curvature(objective: Objective, dispersion: Params, weights: Params) -> Array:
    vector, unravel = tree.ravel(weights)

    def loss(vector: Array) -> Array:
        return -objective.model.log_prior({"network": unravel(vector), "likelihood": dispersion})

    return jax.hessian(loss)(vector)
