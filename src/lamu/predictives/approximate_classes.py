"""Closed-form class probabilities under normal logits: MacKay's probit approximation and the Laplace bridge."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma

from lamu.base.arguments import require
from lamu.base.compile_once import row_keys
from lamu.likelihoods import Likelihood
from lamu.predictives.interface import Predictive, Prepared
from lamu.predictives.lazy import PredictiveRule, draw_in_chunks
from lamu.predictives.linearised import (
    Linearised,
    LinearisedMarginal,
    OfTangents,
    OutputsRule,
    TangentDraws,
    TangentOutputs,
    standard_normals,
)
from lamu.predictives.padding import compiled_answers
from lamu.predictives.wrapper import at_positions
from lamu.record import record, static
from lamu.supports import Classes, OrderedClasses, Support, TwoClasses
from lamu.target import Target
from lamu.typing import Array, Belief, Number, Params, RandomKey, Rows, State, Targets

__all__ = ["ClassProbabilities", "LaplaceBridge", "Probit"]


@compiled_answers(log_probabilities=0, expected_entropy=0)
@record
class ClassProbabilities(Predictive):
    r"""Class probabilities \(p(y^* = k)\) for every row, with the expected entropy given the parameters.

    Attributes:
        log_probabilities: logarithms of the averaged probabilities `[N, K]`, two columns for a binary target.
        expected_entropy: \(E_q\, H[y \mid \theta]\) in nats, `[N]`.
        binary: whether the target is 0 or 1, and the mean the probability of one.
        ordered: whether the classes have an order.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives import ClassProbabilities
        >>> pred = ClassProbabilities(jnp.log(jnp.array([[0.25, 0.75]])), jnp.array([0.5]), binary=True)
        >>> pred.mean.tolist()
        [0.75]
    """

    log_probabilities: Array
    expected_entropy: Array
    binary: bool = static(default=False)
    ordered: bool = static(default=False)

    @property
    def support(self) -> Support:
        """The classes, one a column."""
        if self.binary:
            return TwoClasses()
        number = self.log_probabilities.shape[1]
        return OrderedClasses(number) if self.ordered else Classes(number)

    @property
    def mean(self) -> Array:
        probabilities = jnp.exp(self.log_probabilities)
        return probabilities[:, 1] if self.binary else probabilities

    @property
    def variance(self) -> Array:
        """The variance p (1 − p) of every class."""
        return self.mean * (1 - self.mean)

    @property
    def aleatoric(self) -> Array:
        """The expected entropy in nats, at most the total entropy."""
        return jnp.minimum(self.expected_entropy, self._entropy)

    @property
    def epistemic(self) -> Array:
        return self._entropy - self.aleatoric

    def log_prob(self, y: Targets) -> Array:
        index = jnp.asarray(y).astype(jnp.int32).reshape(-1, 1)
        return jnp.take_along_axis(self.log_probabilities, index, axis=1)[:, 0]

    def cdf(self, y: Targets) -> Array:
        """Raises a TypeError: a class has a probability, not a distribution function."""
        raise TypeError("classes have no cdf, which is for regression; use mean, the probabilities of the classes")

    def sample(self, key: RandomKey, n: int, first: Number = 0) -> Array:
        """Returns n draws of all targets, independent between rows."""
        rows = self.log_probabilities.shape[0]

        def draw(key: RandomKey) -> Array:
            return jax.vmap(jax.random.categorical)(row_keys(key, rows, first), self.log_probabilities)

        return draw_in_chunks(draw, jax.random.split(key, n))

    @property
    def _entropy(self) -> Array:
        probabilities = jnp.exp(self.log_probabilities)
        return -jnp.sum(jnp.where(probabilities > 0, probabilities * self.log_probabilities, 0.0), axis=1)


# Both take \(f \sim N(\mu, C)\) from another rule (the linearised one) and approximate \(p(y = k) =
# E[\mathrm{softmax}(f)_k]\) without draws of the outputs.


_NODES = 32  # of the Gauss–Hermite rule; not measured
_DRAWS = 32  # of the outputs, for the expected entropy alone; not measured


@record
class Probit(PredictiveRule):
    r"""MacKay's probit approximation: logits are shrunk by their variance.

    \[ p(y = k) \approx \mathrm{softmax}\Big( \frac{\mu_k}{\sqrt{T^2 + \tfrac{\pi}{8} C_{kk}}} \Big)_k \]

    which is MacKay's at T = 1, and at another temperature that of the logits f/T. It needs variances alone, and is
    monotone in them: an uncertain class moves towards the others. The expected entropy given the parameters is an
    average over 32 draws of independent outputs (for a binary target by quadrature). With `PerPosition` every position
    is predicted separately, as a map.

    Attributes:
        base: the rule for the outputs; variances suffice.
        temperature: T, by which the logits are divided. `last_layer` and `laplace` choose it, with the scale of the
            prior, for a pretrained network (`epochs=0`) with held-out rows.

    Raises:
        TypeError: for a regression, or a rule without normal outputs.
        ValueError: for a temperature that is not positive.

    Source: MacKay (1992), "The evidence framework applied to classification networks"; Gibbs (1997), for classes;
        Lu, Ie & Sha (2020), "mean-field approximation".

    Examples:
        >>> from lamu.predictives import Probit
        >>> Probit()
        Probit(base=LinearisedMarginal(), temperature=1.0)
    """

    base: Any = LinearisedMarginal()
    temperature: Number = 1.0

    def __post_init__(self) -> None:
        _require_outputs(self.base)
        require(self.temperature > 0, f"temperature={self.temperature!r} divides the logits; give a positive number")

    def prepare(self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        """Returns the outputs' distribution, ready for inputs."""
        return _Shrunk(_outputs(self.base, model, belief, network_state, samples, key), self.temperature)

    def joint(self) -> PredictiveRule:
        return TangentDraws(self.temperature)


@record
class LaplaceBridge(PredictiveRule):
    r"""A Dirichlet distribution whose density in the logits has the same mode and curvature.

    \[ \alpha_k = \frac{1}{C_{kk}} \Big( 1 - \frac2K + \frac{e^{\mu_k}}{K^2} \sum_l e^{-\mu_l} \Big), \qquad
       p(y = k) = \alpha_k / \sum_l \alpha_l \]

    after projecting mean and covariance to \(\sum_k f_k = 0\), where the map is one to one. Expected entropies have
    closed forms with the digamma function. A binary target is two classes of logits ±f/2.

    Attributes:
        base: the rule for the outputs; their covariance is used where available.

    Raises:
        TypeError: for a regression, or a rule without normal outputs.

    Source: Hobbhahn, Kristiadi & Hennig (2022), equations 6 to 8.

    Examples:
        >>> from lamu.predictives import LaplaceBridge
        >>> LaplaceBridge()
        LaplaceBridge(base=Linearised())
    """

    base: Any = Linearised()

    def __post_init__(self) -> None:
        _require_outputs(self.base)

    def prepare(self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        """Returns the outputs' distribution, ready for inputs."""
        return _Bridged(_outputs(self.base, model, belief, network_state, samples, key))

    def joint(self) -> PredictiveRule:
        return TangentDraws()


@record
class _Shrunk(OfTangents):
    temperature: Number

    def at(self, x: Rows, offset: Rows | None) -> Predictive:
        likelihood: Any = self.of.model.likelihood
        mean, spread = _by_position(likelihood, *self.of.normal(x, offset))
        logits, variance = mean / self.temperature, _variances(spread) / self.temperature**2
        pred = _shrunk(likelihood.of_position, self.of.dispersion, self.of.key, logits, variance)
        return at_positions(pred, likelihood)


@record
class _Bridged(OfTangents):
    def at(self, x: Rows, offset: Rows | None) -> Predictive:
        likelihood: Any = self.of.model.likelihood
        return at_positions(_bridged(*_by_position(likelihood, *self.of.normal(x, offset))), likelihood)


@jax.jit
def _shrunk(likelihood: Likelihood, dispersion: Params, key: RandomKey, mean: Array, variance: Array) -> Any:
    shrunk = mean * jax.lax.rsqrt(1 + math.pi / 8 * variance)
    if mean.shape[1] == 1:
        log_probabilities = jax.nn.log_softmax(jnp.concatenate([jnp.zeros_like(shrunk), shrunk], axis=1), axis=1)
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        noise, weights = jnp.asarray(nodes, mean.dtype)[:, None], weights / weights.sum()
    else:
        log_probabilities = jax.nn.log_softmax(shrunk, axis=1)
        noise = standard_normals(key, _DRAWS, mean.shape[1], mean.dtype)
        weights = np.full(_DRAWS, 1 / _DRAWS)

    def add(total: Array, draw: tuple[Array, Array]) -> tuple[Array, None]:
        f = mean + jnp.sqrt(variance) * draw[0][None]
        return total + draw[1] * likelihood.entropy(dispersion, f), None

    zero = jnp.zeros(mean.shape[0], mean.dtype)
    entropy = jax.lax.scan(add, zero, (noise, jnp.asarray(weights, mean.dtype)))[0]
    return ClassProbabilities(log_probabilities, entropy, mean.shape[1] == 1)


@jax.jit
def _bridged(mean: Array, spread: Array) -> Any:
    binary = mean.shape[1] == 1
    if binary:  # two classes of logits -f/2 and f/2, certain of their sum
        mean = jnp.concatenate([-mean, mean], axis=1) / 2
        variance = jnp.broadcast_to(_variances(spread) / 4, mean.shape)
    else:
        mean, variance = _centred(mean, spread)
    classes = mean.shape[1]
    cross = jax.scipy.special.logsumexp(-mean, axis=1)[:, None] + mean - 2 * math.log(classes)
    flat = -math.inf if classes == 2 else math.log(1 - 2 / classes)
    logs = jnp.logaddexp(jnp.full_like(cross, flat), cross) - jnp.log(jnp.maximum(variance, jnp.finfo(mean.dtype).tiny))
    # The digamma function of e^60 is its logarithm to rounding.
    alpha = jnp.exp(jnp.clip(logs, -60.0, 60.0))
    total = jnp.sum(alpha, axis=1)
    log_probabilities = jax.nn.log_softmax(logs, axis=1)
    inner = jnp.sum(alpha * digamma(alpha + 1), axis=1) / total
    return ClassProbabilities(log_probabilities, digamma(total + 1) - inner, binary)


def _centred(mean: Array, spread: Array) -> tuple[Array, Array]:
    """Returns mean and variances of the logits, given that they sum to zero."""
    if spread.ndim == 2:
        total, across = jnp.sum(spread, axis=1), spread
        own = spread
    else:
        across, own = jnp.sum(spread, axis=2), _variances(spread)
        total = jnp.sum(across, axis=1)
    safe = jnp.where(total > 0, total, 1)
    shift = jnp.where(total[:, None] > 0, across / safe[:, None], 1 / mean.shape[1])
    centred = mean - shift * jnp.sum(mean, axis=1)[:, None]
    # A softmax makes one direction redundant, so the projection may remove all of a variance up to rounding.
    return centred, jnp.maximum(own - across**2 / safe[:, None], jnp.finfo(mean.dtype).eps * own)


def _by_position(likelihood: Likelihood, mean: Array, spread: Array) -> tuple[Array, Array]:
    """Returns mean and covariance, or variances, of the outputs of every position; those of two are not needed."""
    rows, positions = mean.shape[0], likelihood.n_positions
    if positions == 1:
        return mean, spread
    mean = mean.reshape(rows * positions, -1)
    if spread.ndim == 2:
        return mean, spread.reshape(mean.shape)
    width = mean.shape[1]
    blocks = jnp.diagonal(spread.reshape(rows, positions, width, positions, width), axis1=1, axis2=3)
    return mean, jnp.moveaxis(blocks, 3, 1).reshape(rows * positions, width, width)


def _variances(spread: Array) -> Array:
    return spread if spread.ndim == 2 else jnp.diagonal(spread, axis1=1, axis2=2)


def _outputs(
    of: Any, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey
) -> TangentOutputs:
    if not model.likelihood.support.has_classes:
        raise TypeError("probabilities of classes are asked of a regression; use Linearised(), a closed form there")
    if not model.likelihood.of_position.logits:
        raise TypeError(
            f"the closed forms are for logits, and the outputs of {model.likelihood.name} are none; use Sampled() or "
            "Linearised(), or declare `logits = True` where a class of your own takes the softmax of f"
        )
    return of.outputs(model, belief, network_state, samples, key)


def _require_outputs(of: object) -> None:
    if isinstance(of, type) or not isinstance(of, OutputsRule):
        raise TypeError(f"base={of!r} knows no normal outputs; give Linearised() or LinearisedMarginal()")
