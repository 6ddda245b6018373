"""Out-of-distribution scores of rows, and tests of distribution shift."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory, tree
from lamu.data.arrays import refuse_other_order
from lamu.posterior import Posterior
from lamu.predictives.interface import Predictive
from lamu.predictives.lazy import in_chunks, in_memory_chunks
from lamu.predictives.sampled import require_room
from lamu.typing import Array, Inputs, Prediction, RandomKey, State, Targets

__all__ = [
    "Drift",
    "Mahalanobis",
    "drift",
    "energy",
    "entropy",
    "kernel_drift",
    "least_confidence",
    "mahalanobis",
    "mutual_information",
]


# The features are the inputs of the last layer. The outputs are linear in its weights, so that the gradient of an
# output with respect to them is the features, for any network that declares its head.


@dataclass(frozen=True)
class Mahalanobis:
    r"""Normal distributions of the features, one a class, with a common covariance.

    Attributes:
        posterior: the posterior, whose mean computes the features.
        centres: \(\mu_c\), `[classes, D]`; one for a regression.
        root: a matrix R with \(R R^\top = \Sigma^{-1}\), `[D, D]`.
        columns: the entries of the head's gradient that are features, `[D]`.

    Examples:
        >>> import numpy as np
        >>> from lamu.scores import Mahalanobis
        >>> known = Mahalanobis(None, np.zeros((1, 2)), np.eye(2), np.arange(2))
        >>> known.distances(np.array([[3.0, 4.0]])).tolist()
        [[25.0]]
    """

    posterior: Any
    centres: np.ndarray
    root: np.ndarray
    columns: np.ndarray

    def score(self, x: Inputs) -> np.ndarray:
        r"""Returns \(\min_c (\phi - \mu_c)^\top \Sigma^{-1} (\phi - \mu_c)\), `[N]`; higher is stranger.

        Args:
            x: inputs `[N, ...]`. For rows like those of training the mean is at most D, the number of features.
        """
        return self.distances(_features(self.posterior, x)[:, self.columns]).min(axis=1)

    def distances(self, features: np.ndarray) -> np.ndarray:
        """Returns the squared distance of features from every class, `[N, classes]`.

        Args:
            features: `[N, D]`.
        """
        white, centres = features @ self.root, self.centres @ self.root
        return np.stack([np.sum((white - centre) ** 2, axis=1) for centre in centres], axis=1)


def mahalanobis(posterior: Posterior, x: Inputs, y: Targets) -> Mahalanobis:
    r"""Fits a Mahalanobis score: the distance of the features of inputs from those of training rows.

    \[ \mu_c = \frac1{N_c} \sum_{y_i = c} \phi_i, \qquad \Sigma = \frac1N \sum_c \sum_{y_i = c}
       (\phi_i - \mu_c)(\phi_i - \mu_c)^\top \]

    with φ the inputs of the head at the posterior's mean, and Σ shrunk towards its mean variance (Ledoit & Wolf 2004),
    so that it can be inverted with more features than rows. It takes one forward pass and one gradient of the head a
    row, and the cube of the number of features once.

    Args:
        posterior: of any task, with one mode. A regression has one centre.
        x: training rows, `[N, ...]`.
        y: their targets, `[N]`.

    Returns:
        The score, with `.score(x)` for other inputs.

    Raises:
        ValueError: for too few rows, or a head with constant features.
        AttributeError: for a belief with several modes; score its members.

    Source: Lee, Lee, Lee & Shin (2018), for the last layer alone.

    Examples:
        >>> import lamu, numpy as np
        >>> x, y = lamu.data.load("wine")
        >>> model = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Categorical(3)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.adam(1e-2), epochs=10).posterior
        >>> known = lamu.scores.mahalanobis(posterior, x, y)
        >>> bool(known.score(10 * x).mean() > known.score(x).mean())
        True
    """
    from sklearn.covariance import ledoit_wolf

    refuse_other_order({"x": x, "y": y})
    y = np.asarray(y)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if len(y) != len(x) or len(y) < 3:
        raise ValueError(f"there are {len(x)} rows and {len(y)} targets; give one for each of three rows at least")
    gradients = _features(posterior, x)
    spread = np.ptp(gradients, axis=0)
    columns = np.flatnonzero(spread > 1e-6 * np.maximum(np.abs(gradients).max(axis=0), 1e-12))
    if not len(columns):
        raise ValueError("the features of all rows are the same, and no distance can be told; train the network first")
    features = gradients[:, columns]
    if not posterior.model.likelihood.support.has_classes:
        label = np.zeros(len(y), int)
    else:
        label = np.unique(y, return_inverse=True)[1]
    centres = np.stack([features[label == c].mean(axis=0) for c in range(label.max() + 1)])
    difference = features - centres[label]
    # Features differ in scale, so their correlations are shrunk.
    scale = np.sqrt(np.mean(difference**2, axis=0))
    scale = np.where(scale > 0, scale, np.ptp(features, axis=0))  # constant within every class
    correlation, _ = ledoit_wolf(difference / scale, assume_centered=True)
    values, vectors = np.linalg.eigh(correlation)
    root = vectors / np.sqrt(np.maximum(values, 1e-8 * values.max()))
    return Mahalanobis(posterior, centres, root / scale[:, None], columns)


def _features(posterior: Posterior, x: Inputs) -> np.ndarray:
    """Returns the gradient of the first output by the head's weights, `[N, weights that it depends on]`."""
    model, params = posterior.model, posterior.mean
    weights = model.complete(params["network"])
    head = [name for name in tree.paths(weights) if tree.matches(name, model.network.head)]
    free = tree.map_with_path(lambda name, leaf: leaf if name in head else None, weights)
    fixed = tree.map_with_path(lambda name, leaf: None if name in head else leaf, weights)
    x = np.asarray(model.inputs(x))
    state = posterior.network_state
    unfrozen = replace(model, frozen=None)
    width = jax.eval_shape(lambda row: unfrozen.outputs({"network": weights, "likelihood": {}}, state, row)[0], x[:1])
    numbers = tree.dimension(free) // max(width.shape[1], 1)
    memory.demand(
        3 * 8.0 * len(x) * numbers,
        f"the {numbers:,} features of {len(x):,} rows",
        f"give {memory.limit() // (24 * max(numbers, 1)):,} of the rows",
    )
    row_bytes = 8 * (tree.dimension(free) + x[0].size)
    rows = int(np.clip(memory.budget() // row_bytes, 1, 1024))
    return np.asarray(in_chunks(partial(_gradients, unfrozen, state, free, fixed, width.shape[1]), x, rows=rows), float)


@partial(jax.jit, static_argnums=4)
def _gradients(model: Any, state: State, free: object, fixed: object, outputs: int, x: Array) -> Array:
    def first(free: object, row: Array) -> Array:
        params = tree.merged(free, fixed)
        return model.outputs({"network": params, "likelihood": {}}, state, row[None])[0][0, 0]

    def of_row(row: Array) -> Array:
        leaves = jax.tree.leaves(jax.grad(first)(free, row))
        # A dense head has a column of weights for each output: the gradients of the others are zero.
        return jnp.concatenate(
            [(leaf[..., 0] if leaf.shape[-1:] == (outputs,) else leaf).reshape(-1) for leaf in leaves]
        )

    return jax.vmap(of_row)(x)


# All scores are higher for rows further from the training distribution, so that
# `auroc(score of known rows, score of unknown rows)` is above one half where a score separates the two.
#
# | score | of | high where |
# |---|---|---|
# | `entropy` | a prediction | the target is uncertain, for whatever reason |
# | `mutual_information` | a prediction | the members or draws of the belief disagree |
# | `least_confidence` | a prediction | even the most probable class is improbable |
# | `energy` | a posterior and inputs | all logits are small |
# | `mahalanobis` | a posterior, training rows and inputs | the features are far from those of every class |


def entropy(pred: Prediction) -> np.ndarray:
    r"""Returns the entropy of each predicted class, \(-\sum_k \bar p_{ik} \log \bar p_{ik}\).

    Args:
        pred: a prediction of classes, or of a binary target.

    Returns:
        Nats, `[N]`, from 0 to log K; higher is stranger.

    Raises:
        ValueError: for a regression; use `pred.variance`.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import entropy
        >>> entropy(SimpleNamespace(support=TwoClasses(), mean=np.array([0.5, 1.0]))).round(4).tolist()
        [0.6931, 0.0]
    """
    p = _probabilities("entropy", pred)
    return np.sum(p * -np.log(np.where(p > 0, p, 1.0)), axis=-1) + 0.0


def mutual_information(pred: Prediction) -> np.ndarray:
    r"""Returns the mutual information of target and parameters, \(H[\bar p_i] - E_q H[p_i(\theta)]\).

    It is zero for a point belief (Houlsby et al. 2011, "BALD").

    Args:
        pred: a prediction of classes, or of a binary target.

    Returns:
        Nats, `[N]`; higher is stranger.

    Raises:
        ValueError: for a regression; use `pred.epistemic`, a variance.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Bernoulli
        >>> from lamu.predictives import MixturePredictive
        >>> from lamu.scores import mutual_information
        >>> disagreeing = jnp.array([40.0, -40.0]).reshape(2, 1, 1)
        >>> mutual_information(MixturePredictive.equal(Bernoulli(), {}, disagreeing)).round(4).tolist()
        [0.6931]
    """
    if not pred.support.has_classes:
        raise ValueError("mutual_information is for classes; of a regression take pred.epistemic, a variance")
    return np.asarray(pred.epistemic, float)


def least_confidence(pred: Prediction) -> np.ndarray:
    r"""Returns the probability that the most probable class is wrong, \(1 - \max_k \bar p_{ik}\).

    Args:
        pred: a prediction of classes, or of a binary target.

    Returns:
        A probability, `[N]`, from 0 to 1 − 1/K; higher is stranger.

    Raises:
        ValueError: for a regression.

    Source: Hendrycks & Gimpel (2017), with the opposite sign.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import Classes
        >>> from lamu.scores import least_confidence
        >>> least_confidence(SimpleNamespace(support=Classes(2), mean=np.array([[0.75, 0.25]]))).tolist()
        [0.25]
    """
    return 1 - _probabilities("least_confidence", pred).max(axis=-1)


def energy(
    posterior: Posterior, x: Inputs, temperature: float = 1.0, samples: int = 32, key: RandomKey | None = None
) -> np.ndarray:
    r"""Returns the energy of each input, \(-T \log \sum_k e^{\bar f_k(x) / T}\) of the mean outputs.

    The outputs are averaged over draws of the belief; a point has one. The single output f of a binary target stands
    for the logits (−f/2, f/2), so that both labels have the same scale.

    Args:
        posterior: of a model of classes, or of a binary target.
        x: inputs `[N, ...]`.
        temperature: T.
        samples: draws of the parameters.
        key: for the draws; the posterior's own where None.

    Returns:
        Logits' units, `[N]`; higher is stranger.

    Raises:
        ValueError: for a regression.

    Source: Liu, Wang, Owens & Li (2020).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.adam(1e-2), epochs=5).posterior
        >>> lamu.scores.energy(posterior, x[:3]).shape
        (3,)
    """
    if not posterior.model.likelihood.logits:
        raise ValueError("energy is for classes, whose outputs are logits; of a regression take pred.epistemic")
    key = jax.random.clone(posterior.key) if key is None else key
    x = np.asarray(posterior.model.inputs(x))
    require_room(posterior.belief, key, samples)
    draws = posterior.belief.draws(key, samples)
    f = in_memory_chunks(_mean_outputs, (posterior, draws), (x,))
    logits = np.asarray(f, float) / temperature
    if logits.shape[1] == 1:
        logits = np.concatenate([-logits / 2, logits / 2], axis=1)
    return -temperature * np.logaddexp.reduce(logits, axis=1)


@jax.jit
def _mean_outputs(posterior: Posterior, draws: object, x: Array) -> Array:
    outputs = lambda params: posterior.model.outputs(params, posterior.network_state, x)[0]
    return jnp.mean(jnp.asarray(jax.lax.map(outputs, draws)), axis=0)


def _probabilities(score: str, pred: Prediction) -> np.ndarray:
    if not pred.support.has_classes:
        raise ValueError(f"{score} is for classes; of a regression take pred.variance or pred.epistemic")
    return np.asarray(pred.support.probabilities(np.asarray(pred.mean, float)))


# No targets are needed: the distributions of the predictions are compared.


@dataclass(frozen=True)
class Drift:
    """Result of a two-sample test.

    Attributes:
        names: the compared quantities.
        statistics: the distances of the two samples, one number a name.
        p_values: the probabilities of statistics as large or larger for samples of one distribution.
        level: the probability of a false alarm over all names together.

    Examples:
        >>> import numpy as np
        >>> from lamu.scores import Drift
        >>> found = Drift(("entropy", "epistemic"), np.array([0.4, 0.1]), np.array([0.001, 0.6]), 0.05)
        >>> found.found, found.p_value
        (True, 0.002)
    """

    names: tuple[str, ...]
    statistics: np.ndarray
    p_values: np.ndarray
    level: float

    @property
    def p_value(self) -> float:
        """The smallest p value times their number (Bonferroni), at most one."""
        return float(min(1.0, self.p_values.min() * len(self.p_values)))

    @property
    def found(self) -> bool:
        """Whether there is significant drift, at the level."""
        return self.p_value < self.level

    def __str__(self) -> str:
        """One line a quantity, and the verdict."""
        each = zip(self.names, self.statistics, self.p_values, strict=True)
        lines = [f"{name:16} {statistic:7.4f}   p = {p:.3g}" for name, statistic, p in each]
        verdict = "drift" if self.found else "no drift"
        tests = f"{len(self.names)} tests together" if len(self.names) > 1 else "one test"
        return "\n".join([*lines, f"{verdict} at the level {self.level:g}: p = {self.p_value:.3g} ({tests})"])


def drift(reference: object, new: object, level: float = 0.05) -> Drift:
    r"""Tests whether predictions of new rows differ in distribution from a reference, by Kolmogorov–Smirnov tests.

    \[ D = \sup_z |\hat F_{\mathrm{reference}}(z) - \hat F_{\mathrm{new}}(z)| \]

    for each quantity, and Bonferroni's correction for their number. The quantities are, for classes, each class's
    probability, the entropy and, where it is not zero, the mutual information; for regression mean, standard deviation
    and, where it is not zero, the variance of the mean.

    The reference rows must be held out: on training rows a model is more certain than on new ones of the same kind.

    Args:
        reference: a prediction of held-out rows of the known kind, or an array `[N]` or `[N, D]` of quantities.
        new: a prediction, or an array, of the new rows.
        level: the probability of a false alarm.

    Returns:
        Statistics, p values and the verdict.

    Raises:
        ValueError: for different quantities, ones that are not finite, or fewer than two rows.

    Source: Rabanser, Günnemann & Lipton (2019).

    Examples:
        >>> import numpy as np
        >>> from lamu.scores import drift
        >>> generator = np.random.default_rng(0)
        >>> drift(generator.normal(size=500), generator.normal(size=500)).found
        False
        >>> drift(generator.normal(size=500), generator.normal(size=500) + 0.5).found
        True
    """
    from scipy.stats import ks_2samp

    names, old, other = _samples(reference, new, level)
    method = "exact" if len(old) * len(other) <= 250_000 else "asymp"
    tests: list[Any] = [ks_2samp(old[:, j], other[:, j], method=method) for j in range(len(names))]
    statistics, p_values = (np.array([getattr(t, what) for t in tests], float) for what in ("statistic", "pvalue"))
    return Drift(names, statistics, p_values, level)


def kernel_drift(
    reference: object, new: object, level: float = 0.05, permutations: int = 500, seed: int = 0, most: int = 1000
) -> Drift:
    r"""Tests whether predictions of new rows differ in distribution, by one kernel test of all quantities.

    The statistic is the squared maximum mean discrepancy between the samples,

    \[ \widehat{\mathrm{MMD}}^2 = \frac{1}{n^2} \sum_{ij} k(u_i, u_j) + \frac{1}{m^2} \sum_{ij} k(v_i, v_j)
       - \frac{2}{n m} \sum_{ij} k(u_i, v_j), \qquad k(u, v) = e^{-\|u - v\|^2 / 2 h^2} \]

    of the quantities of `drift`, each divided by its standard deviation, with h the median distance. Its p value is
    that of a permutation test, exact for any sample size. Unlike `drift` it detects changes in the dependence between
    quantities. Time and memory grow with the square of the rows.

    Args:
        reference: as for `drift`.
        new: as for `drift`.
        level: the probability of a false alarm.
        permutations: the number of permutations; the smallest p value is one over their number plus one.
        seed: of the permutations.
        most: rows of each sample that are used, the first ones of a shuffle.

    Returns:
        The statistic, its p value and the verdict.

    Raises:
        ValueError: as for `drift`.

    Source: Gretton et al. (2012), section 3.

    Examples:
        >>> import numpy as np
        >>> from lamu.scores import kernel_drift
        >>> generator = np.random.default_rng(0)
        >>> pairs = generator.normal(size=(200, 2))
        >>> kernel_drift(pairs, np.stack([pairs[:, 0], pairs[:, 0]], axis=1) + 0.0).found  # each column is as it was
        True
    """
    names, old, other = _samples(reference, new, level)
    memory.demand(24.0 * (2 * min(most, max(len(old), len(other)))) ** 2, f"the kernel of {most:,} rows", "lower most")
    random = np.random.default_rng(seed)
    old, other = (part[random.permutation(len(part))[:most]] for part in (old, other))
    both = np.concatenate([old, other])
    scale = both.std(axis=0)
    both = (both - both.mean(axis=0)) / np.where(scale > 0, scale, 1.0)  # centred, as squares far from zero round
    squares = np.sum(both**2, axis=1)
    distance = np.maximum(squares[:, None] + squares[None] - 2 * both @ both.T, 0.0)
    middle = float(np.median(distance[np.triu_indices(len(both), 1)]))
    kernel = np.exp(-distance / (2 * middle if middle > 0 else 1.0))
    n, m = len(old), len(other)

    def signs(first: np.ndarray) -> np.ndarray:
        """1/n for rows of the first sample and −1/m for the others, whose quadratic form is the statistic."""
        return np.where(first, 1 / n, -1 / m)

    start = np.arange(n + m) < n
    orders = np.stack([start, *(random.permutation(start) for _ in range(permutations))])
    forms = signs(orders)
    values = np.einsum("pi,pi->p", forms @ kernel, forms)
    p = float(np.mean(values >= values[0] - 1e-12))
    return Drift((f"all of {', '.join(names)}",), values[:1], np.array([p]), level)


def _samples(reference: object, new: object, level: float) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    if not 0 < level < 1:
        raise ValueError(f"level={level!r} is not a probability strictly between 0 and 1; for 5 % write 0.05")
    old, other = _quantities(reference), _quantities(new)
    # An epistemic part that is zero in one sample and not in the other is a difference too.
    for name in [name for name in {*old, *other} if name.startswith("epistemic")]:
        for each in (old, other):
            each.setdefault(name, np.zeros(len(next(iter(each.values())))))
    if set(old) != set(other):
        raise ValueError(f"the reference tells {sorted(old)} and the new rows {sorted(other)}; compare the same things")
    names = tuple(old)
    samples = [np.stack([each[name] for name in names], axis=1) for each in (old, other)]
    for sample in samples:
        if len(sample) < 2 or not np.isfinite(sample).all():
            raise ValueError(
                f"a sample of {len(sample)} rows is too small or not finite; give at least two rows of numbers"
            )
    return names, samples[0], samples[1]


def _quantities(pred: object) -> dict[str, np.ndarray]:
    if not isinstance(pred, Predictive):
        table = np.asarray(pred, float)
        table = table[:, None] if table.ndim == 1 else table
        if table.ndim != 2:
            raise ValueError(f"quantities of shape {table.shape} are not rows; give [N] or [N, D]")
        return {f"column {j}": table[:, j] for j in range(table.shape[1])}
    mean = np.asarray(pred.mean, float)
    columns = mean[:, None] if mean.ndim == 1 else mean
    if not pred.support.has_classes:
        std = np.asarray(pred.std, float).reshape(columns.shape)
        epistemic = np.asarray(pred.epistemic, float).reshape(columns.shape)
        several = columns.shape[1] > 1
        parts = {"mean": columns, "std": std, "epistemic": epistemic}
        quantities = {
            f"{name} {j}" if several else name: part[:, j] for name, part in parts.items() for j in range(part.shape[1])
        }
    else:
        quantities = {"p" if mean.ndim == 1 else f"p(class {j})": columns[:, j] for j in range(columns.shape[1])}
        quantities |= {"entropy": np.asarray(pred.total, float), "epistemic": np.asarray(pred.epistemic, float)}
    return {name: part for name, part in quantities.items() if "epistemic" not in name or np.any(part != 0)}
