r"""Acquisition functions: score candidate inputs under a posterior and choose the ones to label next.

Each function takes a posterior and the inputs of the candidates, and returns the indices of the chosen candidates, best
first, with the scores of all. Nothing is fitted here: label the chosen candidates, then fit again.

| to | take |
|---|---|
| learn the function from few labels | `bald`, `batch_bald` for several at once |
| find the candidate with the largest value | `thompson`, `expected_improvement` |
| choose an action with a reward for each row | `thompson_arms` |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import entr, ndtr

from lamu.base.arguments import whole_number
from lamu.base.compile_once import ladder
from lamu.families import Draws, Ensemble
from lamu.families.products import is_certain
from lamu.model import Model
from lamu.posterior import Posterior
from lamu.predictives import Pooling, Sampled
from lamu.typing import Array, Inputs, Numeric, Prediction, RandomKey

__all__ = [
    "Chosen",
    "bald",
    "batch_bald",
    "expected_improvement",
    "function_draws",
    "information",
    "thompson",
    "thompson_arms",
]

_AT_ONCE = 64  # rows of a bandit that share a block of draws, of which each takes its own
_POINT = "the posterior is one point, without uncertainty; use ivon(), laplace() or deep_ensemble(...)"


class Chosen(NamedTuple):
    """Candidates chosen by an acquisition function.

    Attributes:
        indices: the rows of the candidates, best first, `[n]`, without repetition.
        scores: the scores of all candidates, `[N]`; of Thompson sampling a row for each draw, `[n, N]`.

    Examples:
        >>> import numpy as np
        >>> from lamu.acquire import Chosen
        >>> indices, scores = Chosen(np.array([1]), np.array([0.1, 0.7]))
    """

    indices: np.ndarray
    scores: np.ndarray


def bald(posterior: Any, x: Inputs, n: int = 1, *, key: RandomKey, samples: int = 128) -> Chosen:
    r"""Chooses the candidates whose labels are most informative about the parameters (BALD).

    \[ I(y; \theta \mid x, D) = H\big[ E_q\, p(y \mid x, \theta) \big] - E_q\, H\big[ p(y \mid x, \theta) \big] \]

    Each candidate is scored alone, so that several best ones may be redundant; `batch_bald` scores them jointly.

    Args:
        posterior: a posterior, or any object with `predict(x, samples, key)`.
        x: the candidates' inputs `[N, ...]`.
        n: the number of candidates to choose.
        key: for draws of the parameters, where predictions need them.
        samples: the number of these draws.

    Returns:
        The n most informative candidates, and the `information` of all, in nats.

    Raises:
        ValueError: for more choices than candidates, or a posterior that is one point, which no label informs.

    Source: Houlsby, Huszár, Ghahramani & Lengyel (2011).

    Examples:
        >>> import jax, lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> posterior = lamu.regression(x[:20], y[:20])
        >>> lamu.acquire.bald(posterior, x[20:], n=3, key=jax.random.key(0)).indices.shape
        (3,)
    """
    _require_belief(posterior)
    rows, count = _few_sizes(posterior, x)
    pred = posterior.predict(rows, samples=samples, key=key)
    epistemic = np.asarray(pred.epistemic)
    # Members that are all alike differ by rounding. Of a posterior the belief was asked.
    rounding = 10 * np.finfo(epistemic.dtype).eps * np.abs(np.asarray(pred.total))
    if not isinstance(posterior, Posterior) and not (epistemic > rounding).any():
        raise ValueError(_POINT)
    return _best(information(pred)[:count], n)


def information(pred: Prediction) -> Array:
    r"""Returns the mutual information of each target and the parameters, in nats, `[N]`.

    For classes it is the mutual information. For numbers, with the variance of the mean \(v\) and of the noise
    \(s^2\) (`pred.epistemic` and `pred.aleatoric`), it is

    \[ \tfrac12 \sum_k \log\Big( 1 + \frac{v_k}{s_k^2} \Big), \]

    which is exact where output and noise are normal, and else, for noise that is normal, a bound from above.

    Args:
        pred: a prediction at the candidates.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> lamu.acquire.information(lamu.regression(x, y).predict(x[:5])).shape
        (5,)
    """
    epistemic = jnp.asarray(pred.epistemic)
    if not pred.support.has_classes:
        epistemic = jnp.log1p(epistemic / jnp.asarray(pred.aleatoric)) / 2
    return jnp.sum(epistemic.reshape(epistemic.shape[0], -1), axis=1)


def batch_bald(
    posterior: Posterior, x: Inputs, n: int, *, key: RandomKey, samples: int = 128, configurations: int = 1000
) -> Chosen:
    r"""Chooses, one after the other, the candidates whose labels are jointly most informative (BatchBALD).

    \[ i_{b+1} = \arg\max_i\; I(y_{i_1}, \ldots, y_{i_b}, y_i; \theta \mid D), \]

    over S draws of the function. It is at least \(1 - 1/e\) of the best batch. Of classes the labels' joint
    probabilities are summed exactly up to a number of configurations, and over as many drawn ones beyond. Of
    numbers, outputs have the draws' covariance and the noise is normal, so that what is left after some labels is that
    of a Gaussian process.

    Args:
        posterior: a posterior of a network.
        x: the candidates' inputs `[N, ...]`.
        n: the number of candidates to choose.
        key: for the draws.
        samples: S. The information of a batch about S draws is at most \(\log S\) nats.
        configurations: the number of joint labels of a batch that are summed exactly.

    Returns:
        The batch in the order of the choice, and the information of each candidate alone, in nats.

    Raises:
        ValueError: for more choices than candidates, or a posterior that is one point.

    Source: Kirsch, van Amersfoort & Gal (2019); for numbers Srinivas et al. (2010), lemma 5.3.

    Examples:
        >>> import jax, lamu
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x[:30], y[:30]), lamu.algorithms.laplace(), epochs=30).posterior
        >>> len(set(lamu.acquire.batch_bald(posterior, x[30:], 4, key=jax.random.key(0)).indices.tolist()))
        4
    """
    draw_key, label_key = jax.random.split(key)
    pred, means, weights = _draws(posterior, x, samples, draw_key)
    n = _require(n, means.shape[1])
    if pred.support.has_classes:
        p = np.moveaxis(np.asarray(pred.support.probabilities(means)), 0, 1)  # [N, S, classes]
        seed = np.asarray(jax.random.bits(label_key, (4,), jnp.uint32))
        return _joint_classes(p, weights, n, np.random.default_rng(seed), configurations)
    noise = np.asarray(pred.aleatoric)[: means.shape[1]].reshape(means.shape[1], -1)
    centred = means - np.average(means, axis=0, weights=weights)[None]
    return _joint_numbers(np.sqrt(weights)[:, None, None] * centred.reshape(len(centred), *noise.shape), noise, n)


def thompson(posterior: Posterior, x: Inputs, n: int = 1, *, key: RandomKey) -> Chosen:
    """Thompson sampling: draws a function from the posterior, and chooses the candidate at which it is largest.

    A candidate is chosen with the probability that it is the best. Each of n choices uses its own draw; a draw whose
    best candidate is already taken gives its next best. For the smallest value, fit the targets' negatives.

    Args:
        posterior: a posterior of a network with one output.
        x: the candidates' inputs `[N, ...]`.
        n: the number of candidates to choose.
        key: for the draws.

    Returns:
        The candidates in the order of the draws, and the draws.

    Raises:
        TypeError: for classes, or several outputs, which have no largest value.
        ValueError: for more choices than candidates, or a posterior that is one point, of which all draws are the same.

    Source: Thompson (1933); Kandasamy et al. (2018) for several at once.

    Examples:
        >>> import jax, lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> posterior = lamu.regression(x[:20], y[:20])
        >>> lamu.acquire.thompson(posterior, x[20:], n=2, key=jax.random.key(0)).scores.shape
        (2, 422)
    """
    values = _scalar(function_draws(posterior, x, n, key=key))
    n = _require(n, values.shape[1])
    taken: list[int] = []
    for row in values:
        taken.append(_largest(row, taken))
    return Chosen(np.asarray(taken), values)


def expected_improvement(
    posterior: Any, x: Inputs, best: Numeric, n: int = 1, *, key: RandomKey, samples: int = 128
) -> Chosen:
    r"""Chooses the candidates from which the largest improvement on the best value is expected.

    With the mean m and the standard deviation σ of the function at a candidate, its noise left out, and
    \(z = (m - \text{best}) / \sigma\),

    \[ E[\max(f - \text{best}, 0)] = \sigma\, \big( z\, \Phi(z) + \phi(z) \big), \]

    which is exact where f is normal. For the smallest value, fit the targets' negatives.

    Args:
        posterior: a posterior of the function, or any object with `predict(x, samples, key)`.
        x: the candidates' inputs `[N, ...]`.
        best: the best value so far; of noisy targets the largest predicted mean where they were seen.
        n: how many to choose; each is scored alone.
        key: for draws of the parameters, where predictions need them.
        samples: the number of these draws.

    Returns:
        The n candidates, and the expected improvement of all, in the units of the target.

    Raises:
        TypeError: for classes, or several outputs, which have no largest value.
        ValueError: for more choices than candidates, or a best value that is not a finite number.

    Source: Mockus (1975); Jones, Schonlau & Welch (1998).

    Examples:
        >>> import jax, lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> posterior = lamu.regression(x[:20], y[:20])
        >>> lamu.acquire.expected_improvement(posterior, x[20:], y[:20].max(), key=jax.random.key(0)).scores.shape
        (422,)
    """
    value = np.asarray(best)
    if value.ndim or value.dtype.kind not in "iuf" or not np.isfinite(value):
        raise ValueError(f"best={best!r} is not a finite number; give the best value so far, for instance y.max()")
    rows, count = _few_sizes(posterior, x)
    pred = posterior.predict(rows, samples=samples, key=key)
    if pred.support.has_classes:
        raise TypeError("classes have no largest value; use a likelihood of numbers")
    improvement = _scalar(np.asarray(pred.mean)[None, :count])[0] - float(value)
    deviation = np.sqrt(np.asarray(pred.epistemic)[:count])
    z = improvement / np.where(deviation > 0, deviation, 1.0)
    unsure = deviation * (z * ndtr(z) + np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi))
    return _best(np.where(deviation > 0, unsure, np.maximum(improvement, 0.0)), n)


def thompson_arms(arms: Sequence[Posterior], x: Inputs, *, key: RandomKey) -> np.ndarray:
    """Thompson sampling of a contextual bandit: for each row, the arm with the largest reward under its own draw.

    Arm a is chosen for a row with the probability that it is the best there. To act on the best guess instead
    (greedy), compare the predicted means.

    Args:
        arms: the posterior of each arm's reward, fitted to the rows in which that arm was tried; of an arm that was
            never tried, to any row with a weight of 1e-6, which leaves the prior.
        x: the contexts `[N, ...]`, for each of which an arm is to be chosen.
        key: for the draws, which are independent between rows and arms.

    Returns:
        The arms' numbers, `[N]`.

    Raises:
        TypeError: for rewards of several outputs.
        ValueError: for fewer than two arms, or a posterior that is one point.

    Source: Thompson (1933); Agrawal & Goyal (2013) for contexts.

    Examples:
        >>> import jax, lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> arms = [lamu.regression(x[:50], y[:50]), lamu.regression(x[50:80], y[50:80])]
        >>> lamu.acquire.thompson_arms(arms, x[:5], key=jax.random.key(0)).shape
        (5,)
    """
    if len(arms) < 2:
        raise ValueError(f"there is nothing to choose between {len(arms)} arms; give the posteriors of two or more")
    x, rewards = np.asarray(arms[0].model.inputs(x)), []
    for arm, arm_key in zip(arms, jax.random.split(key, len(arms)), strict=True):
        blocks = [x[first : first + _AT_ONCE] for first in range(0, len(x), _AT_ONCE)]
        keys = jax.random.split(arm_key, len(blocks))
        draws = [
            np.diagonal(_scalar(function_draws(arm, rows, len(rows), key=k)))
            for k, rows in zip(keys, blocks, strict=True)
        ]
        rewards.append(np.concatenate(draws))
    return np.argmax(np.stack(rewards), axis=0)


def function_draws(posterior: Posterior, x: Inputs, n: int, *, key: RandomKey) -> np.ndarray:
    r"""Returns \(E[y \mid x, \theta_s]\) for n posterior draws \(\theta_s\), `[n, N]` or `[n, N, K]`.

    Each draw is one function for all rows, and the same key gives the same function at any inputs; the noise of the
    target is left out. Of a linearised posterior (`laplace`, `conjugate`) it is a draw of the tangent, of a pooled
    ensemble the mean of a member, each with the same probability.

    Args:
        posterior: a posterior of a network.
        x: inputs `[N, ...]`.
        n: the number of draws.
        key: for these.

    Raises:
        TypeError: for a graph or another target without inputs.
        ValueError: for a posterior that is one point, of which all draws are the same.

    Examples:
        >>> import jax, lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> lamu.acquire.function_draws(lamu.regression(x, y), x[:5], 3, key=jax.random.key(0)).shape
        (3, 5)
    """
    draw_key, member_key = jax.random.split(key)
    n = whole_number("n", n)
    _, means, weights = _draws(posterior, x, n, draw_key)
    if isinstance(posterior.rule, Pooling):
        means = means[np.asarray(jax.random.choice(member_key, len(means), (n,), p=jnp.asarray(weights)))]
    return means


def _draws(posterior: Posterior, x: Inputs, n: int, key: RandomKey) -> tuple[Any, np.ndarray, np.ndarray]:
    """Returns the mixture over independent draws of the function, E[y] of each, `[S, N, ...]`, and their weights."""
    # Of `Pooling()` the draws are the members. The mixture has more rows than were asked for.
    if not isinstance(posterior.model, Model):
        raise TypeError(
            f"draws of a function need a model with inputs, and a {type(posterior.model).__name__} has none"
        )
    _require_belief(posterior)
    posterior = posterior.joint()
    if isinstance(posterior.rule, Sampled):
        # Not `belief.draws`, which of a chain or an ensemble is an even selection.
        sampled = jax.tree.map(lambda leaf: leaf[None], posterior.sample(jax.random.clone(key), n))
        posterior = replace(posterior, belief=Draws(sampled), rule=Sampled())
    rows, count = _few_sizes(posterior, x)
    pred: Any = posterior.predict(rows, samples=n, key=key)
    parts = [part for _, part in pred.chunks()]
    means = np.concatenate([part.each(lambda predictive, _: predictive.mean) for part in parts], axis=1)[:, :count]
    return pred, means, np.exp(np.asarray(parts[0].log_weights))


def _few_sizes(posterior: Any, x: Inputs) -> tuple[Inputs, int | None]:
    """Returns inputs padded with their last row to one of few sizes, and the number of rows before."""
    # The number of candidates falls with every label, and each number of rows would compile its own program.
    if not isinstance(posterior, Posterior) or not isinstance(posterior.model, Model):
        return x, None
    rows = np.asarray(posterior.model.inputs(x))
    return np.concatenate([rows, np.repeat(rows[-1:], ladder(len(rows)) - len(rows), axis=0)]), len(rows)


def _joint_classes(
    p: np.ndarray, weights: np.ndarray, n: int, numbers: np.random.Generator, configurations: int
) -> Chosen:
    """Chooses a batch by the joint mutual information of labels, given their probabilities `[N, S, classes]`."""
    noise = np.einsum("s,nsk->n", weights, entr(p))  # E_q of the entropy
    # P(labels | θ_s) of each configuration of the chosen rows' labels, and its share in a sum over all of them.
    joint, shares = np.ones((1, p.shape[1])), np.ones(1)
    gains, chosen = [], []
    for _ in range(n):
        both = joint * weights[None]
        gains.append(np.array([shares @ entr(both @ candidate).sum(axis=1) for candidate in p]) - noise)
        chosen.append(_largest(gains[-1], chosen))
        if len(joint) * p.shape[2] <= configurations:
            joint = (joint[:, None] * p[chosen[-1]].T[None]).reshape(-1, p.shape[1])
            shares = np.ones(len(joint))
        else:
            joint = _drawn_configurations(numbers, p[chosen], weights, configurations)
            shares = 1.0 / (configurations * (joint @ weights))
    return Chosen(np.asarray(chosen), gains[0])


def _drawn_configurations(numbers: np.random.Generator, p: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    """Returns the probabilities of sampled labels of some rows under each draw of θ, `[count, S]`."""
    members = numbers.choice(len(weights), count, p=weights / weights.sum())
    joint = np.ones((count, p.shape[1]))
    for own in p:
        below = np.cumsum(own[members], axis=1)
        labels = (numbers.random(count)[:, None] * below[:, -1:] > below).sum(axis=1)
        joint *= own[:, labels].T
    return joint


def _joint_numbers(root: np.ndarray, noise: np.ndarray, n: int) -> Chosen:
    """Chooses a batch by the information of normal outputs, whose covariance has the root `[S, N, K]`."""
    gains, chosen = [], []
    for _ in range(n):
        gains.append(np.log1p((root**2).sum(axis=0) / noise).sum(axis=1) / 2)
        chosen.append(_largest(gains[-1], chosen))
        for k in range(root.shape[2]):  # the covariance conditional on a noisy observation of this output
            chosen_root, chosen_noise = root[:, chosen[-1], k], noise[chosen[-1], k]
            variance = max(float(chosen_root @ chosen_root), np.finfo(chosen_root.dtype).tiny)
            share = (1.0 - np.sqrt(chosen_noise / (variance + chosen_noise))) / variance
            root = root - share * np.tensordot(chosen_root, np.tensordot(chosen_root, root, 1), 0)
    return Chosen(np.asarray(chosen), gains[0])


def _largest(scores: np.ndarray, taken: list[int]) -> int:
    """Returns the row with the largest score among those that are not taken."""
    free = np.array(scores, float)
    free[taken] = -np.inf
    return int(np.argmax(free))


def _best(scores: Any, n: int) -> Chosen:
    n = _require(n, len(scores))
    scores = np.asarray(scores)
    return Chosen(np.argsort(-scores, kind="stable")[:n], scores)


def _require_belief(posterior: Any) -> None:
    """Raises a ValueError for a posterior that is one point, of which scores are zero or their rounding."""
    if not isinstance(posterior, Posterior) or not is_certain(posterior.belief):
        return
    if not isinstance(posterior.belief, Ensemble) or posterior.belief.count == 1:
        raise ValueError(_POINT)


def _require(n: object, candidates: int) -> int:
    count = whole_number("n", n)
    if count > candidates:
        raise ValueError(f"n={n!r} of {candidates} candidates cannot be chosen; ask for 1 to {candidates}")
    return count


def _scalar(values: Any) -> Any:
    """Returns values `[n, N]`, or raises a TypeError."""
    if values.ndim != 2:
        raise TypeError(f"values of the shape {values.shape[1:]} have no largest one; use a likelihood of one output")
    return values
