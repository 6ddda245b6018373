r"""Link functions \(g(\mu) = f\) between the mean of a target and the network's output.

| link | \(g(\mu)\) | \(g^{-1}(f)\) | mean |
|---|---|---|---|
| `Identity` | \(\mu\) | \(f\) | any number |
| `Log` | \(\log \mu\) | \(e^f\) | above zero |
| `Reciprocal` | \(1/\mu\) | \(1/f\) | above zero |
| `SquareRoot` | \(\sqrt\mu\) | \(f^2\), f ≥ 0 | from zero |
| `Logit` | \(\log(\mu/(1 - \mu))\) | \(1/(1 + e^{-f})\) | between 0 and 1 |
| `Probit` | \(\Phi^{-1}(\mu)\) | \(\Phi(f)\) | between 0 and 1 |
| `LogLog` | \(-\log(-\log \mu)\) | \(e^{-e^{-f}}\) | between 0 and 1 |
| `ComplementaryLogLog` | \(\log(-\log(1 - \mu))\) | \(1 - e^{-e^f}\) | between 0 and 1 |
| `Tanh` | \(\operatorname{artanh} \mu\) | \(\tanh f\) | between −1 and 1 |

Densities need the logarithm and the reciprocal of a mean, for which each link has formulas that do not overflow:
`log_mean`, `reciprocal`; links of probabilities have `log_prob` of both outcomes.

Outside of the range of a link, functions continue along their tangent, so that every output of a network has a finite
density and a gradient towards the range: exponentials above \(e^{30}\), and f below 10⁻⁴ (square root) and 10⁻⁶
(reciprocal), where the mean ends.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid
from jax.scipy.special import ndtr, ndtri

from lamu.base.compile_once import compiled_once
from lamu.families.special import log1mexp, log_normal_cdf, log_normal_interval, log_normal_pdf
from lamu.record import record
from lamu.typing import Array, Targets

__all__ = [
    "ComplementaryLogLog",
    "Identity",
    "Link",
    "Log",
    "LogLog",
    "Logit",
    "PositiveLink",
    "ProbabilityLink",
    "Probit",
    "Reciprocal",
    "SquareRoot",
    "Tanh",
    "log_sigmoid",
    "require_link",
    "require_probability_link",
]

_FAR = 20.0  # e²⁰ = 5e8
_LARGEST = 30.0  # e³⁰ = 1e13: its square, times a tangent of length 1e4, is finite in float32


class Link(ABC):
    """A monotone function of the mean.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods.links import Log
        >>> Log().inverse(Log().forward(jnp.array([1.0, 8.0]))).round(4).tolist()
        [1.0, 8.0]
    """

    scale = "means"  # what f is called, as in `Likelihood.output_scales`
    least = -math.inf  # the f at and below which the mean ends, far from any target

    @abstractmethod
    def forward(self, mean: Array) -> Array:
        """Returns f = g(μ)."""

    @abstractmethod
    def inverse(self, f: Array) -> Array:
        """Returns μ = g⁻¹(f)."""

    def start(self, mean: Array, f: Array) -> Array:
        """Returns the output at which a search for the best constant one starts: f, where any will do."""
        del mean
        return f

    def unit(self, f: Array) -> Array:
        """Returns the step from f that priors take for one; one, except where that is not about one in log μ."""
        return jnp.ones_like(f)

    def displaced(self, f: Array, step: Array) -> Array:
        """Returns the output one step of a normal belief away from its mean f."""
        return f + step

    def check(self, y: Targets, name: str) -> None:
        """Raises a ValueError for training targets whose mean is not one of the link's; by default none is."""
        del y, name


@record
class Identity(Link):
    """The mean itself.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods.links import Identity
        >>> Identity().inverse(jnp.array([2.0])).tolist()
        [2.0]
    """

    def forward(self, mean: Array) -> Array:
        return mean

    def inverse(self, f: Array) -> Array:
        return f


class PositiveLink(Link):
    """A link of a mean above zero.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods.links import SquareRoot
        >>> SquareRoot().log_mean(jnp.array([1.0, 2.0])).round(4).tolist()
        [0.0, 1.386...]
    """

    @abstractmethod
    def log_mean(self, f: Array) -> Array:
        """Returns log μ."""

    @abstractmethod
    def reciprocal(self, f: Array) -> Array:
        """Returns 1/μ."""

    @abstractmethod
    def log_slope(self, f: Array) -> Array:
        """Returns the slope of log μ, which is μ′/μ."""

    def weight(self, f: Array) -> Array:
        """Returns μ′²/μ, the Fisher information of a Poisson count about f."""
        return self.inverse(f) * self.log_slope(f) ** 2

    def check(self, y: Targets, name: str) -> None:
        """Raises a ValueError unless ten times the mean and a tenth of it are means of the link."""
        values = np.asarray(y, float)
        for mean in np.ravel(values.mean(axis=0)) if values.size else ():
            if mean > 0 and not np.allclose(_kept(self, mean), 1.0, rtol=0.01):
                raise ValueError(
                    f"the targets have the mean {mean:.3g}, about which {name} has no means under {self!r}; give them "
                    f"in other units, y / {10 ** math.floor(math.log10(mean)):g}, or take another link"
                )


@compiled_once()
def _kept(link: PositiveLink, mean: Array) -> Array:
    """Returns the shares that a link keeps of ten times a mean and of a tenth of it."""
    high, low = link.forward(jnp.stack([10 * mean, mean / 10]))
    return jnp.stack([link.inverse(high) / (10 * mean), link.reciprocal(low) * mean / 10])


@record
class Log(PositiveLink):
    """The logarithm of the mean.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods.links import Log
        >>> Log().inverse(jnp.array([0.0, -1e4])).tolist()
        [1.0, 0.0]
    """

    scale = "log means"

    def forward(self, mean: Array) -> Array:
        """Returns log μ."""
        return jnp.log(mean)

    def inverse(self, f: Array) -> Array:
        return _exponential(f)

    def log_mean(self, f: Array) -> Array:
        return f

    def reciprocal(self, f: Array) -> Array:
        """Returns the exponential of −f."""
        return _exponential(-f)

    def log_slope(self, f: Array) -> Array:
        return jnp.ones_like(f)

    def start(self, mean: Array, f: Array) -> Array:
        """Returns log μ where it is far from zero: from there a search overflows, or ends at the first step."""
        log_mean = jnp.log(mean)
        return jnp.where(jnp.isfinite(log_mean) & (jnp.abs(log_mean) > _FAR), log_mean, f)


@record
class Reciprocal(PositiveLink):
    """One over the mean, for f above zero; below 10⁻⁶ the mean stays at a million and densities continue by tangents.

    A network starts near f = 0, where the mean is largest: prefer `Log` unless rates should be additive.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods.links import Reciprocal
        >>> Reciprocal().inverse(jnp.array([0.5, 4.0])).tolist()
        [2.0, 0.25]
    """

    least = 1e-6

    def forward(self, mean: Array) -> Array:
        """Returns 1/μ."""
        return 1.0 / mean

    def inverse(self, f: Array) -> Array:
        """Returns 1/f."""
        return 1.0 / self.reciprocal(f)

    def log_mean(self, f: Array) -> Array:
        """Returns −log f."""
        return -_logarithm(f, self.least)

    def reciprocal(self, f: Array) -> Array:
        return jnp.maximum(f, self.least)

    def log_slope(self, f: Array) -> Array:
        """Returns −1/f."""
        return -1.0 / self.reciprocal(f)

    def start(self, mean: Array, f: Array) -> Array:
        return self.forward(mean)

    def unit(self, f: Array) -> Array:
        """Returns f, a step of one in log μ."""
        return self.reciprocal(f)

    def displaced(self, f: Array, step: Array) -> Array:
        """Returns f times the exponential of step / f, with the belief's deviation in log μ: below zero no μ exists."""
        inside = f > self.least
        some = jnp.where(inside, f, 1.0)
        return jnp.where(inside, some * jnp.exp(jnp.clip(step / some, -_LARGEST, _LARGEST)), f + step)


@record
class SquareRoot(PositiveLink):
    """The square root of the mean, for f from zero; below 10⁻⁴ densities continue by tangents.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods.links import SquareRoot
        >>> SquareRoot().inverse(jnp.array([3.0, -1.0])).tolist()
        [9.0, 0.0]
    """

    def forward(self, mean: Array) -> Array:
        """Returns √μ."""
        return jnp.sqrt(mean)

    def inverse(self, f: Array) -> Array:
        """Returns f²."""
        return jnp.maximum(f, 0.0) ** 2

    def log_mean(self, f: Array) -> Array:
        """Returns 2 log f."""
        return 2.0 * _logarithm(f, 1e-4)

    def reciprocal(self, f: Array) -> Array:
        """Returns 1/f²."""
        return jnp.maximum(f, 1e-4) ** -2

    def log_slope(self, f: Array) -> Array:
        """Returns 2/f."""
        return 2.0 / jnp.maximum(f, 1e-4)

    def start(self, mean: Array, f: Array) -> Array:
        return self.forward(mean)

    def unit(self, f: Array) -> Array:
        """Returns f/2, a step of one in log μ, or for means below one ½, the deviation of the root of a count."""
        return jnp.maximum(f, 1.0) / 2.0

    def weight(self, f: Array) -> Array:
        """Returns 4, also where f is zero."""
        return jnp.full_like(f, 4.0)


class ProbabilityLink(Link):
    """A link of a probability: the quantile function of a distribution on the real line.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods.links import Probit
        >>> Probit().log_prob(jnp.array([0.0]), jnp.array([True])).round(4).tolist()
        [-0.6931...]
    """

    scale = "scores"
    signs = False  # whether targets are −1 and 1 instead of 0 and 1
    logits = False  # whether f is the log odds

    @abstractmethod
    def log_prob(self, f: Array, one: Array) -> Array:
        """Returns log p where `one` is true, else log(1 − p)."""

    @abstractmethod
    def log_density(self, f: Array) -> Array:
        """Returns the logarithm of the slope of p."""

    @abstractmethod
    def log_interval(self, a: Array, b: Array) -> Array:
        """Returns log(p(b) − p(a)) for a < b."""

    def probability(self, f: Array) -> Array:
        """Returns p, the probability of one."""
        return self.inverse(f)

    def of_probability(self, p: Array) -> Array:
        """Returns f of p."""
        return self.forward(p)

    def complement(self, f: Array) -> Array:
        """Returns 1 − p without cancellation."""
        return jnp.exp(self.log_prob(f, jnp.zeros(f.shape, bool)))

    def weight(self, f: Array) -> Array:
        """Returns p′²/(p(1 − p)), the Fisher information of one trial about f."""
        # By logarithms, as both numerator and denominator vanish on either side.
        return jnp.exp(2.0 * self.log_density(f) - sum(self.log_probs(f)))

    def entropy(self, f: Array) -> Array:
        """Returns −p log p − (1 − p) log(1 − p), the entropy of one trial in nats."""
        log_one, log_zero = self.log_probs(f)
        return -self.probability(f) * log_one - self.complement(f) * log_zero

    def log_probs(self, f: Array) -> tuple[Array, Array]:
        """Returns log p and log(1 − p)."""
        return self.log_prob(f, jnp.ones(f.shape, bool)), self.log_prob(f, jnp.zeros(f.shape, bool))


def require_link(link: object, allowed: tuple[type[Link], ...], name: str) -> None:
    """Raises a TypeError, which names the allowed links, unless a link is one of them.

    Args:
        link: g.
        allowed: their classes.
        name: the name of the likelihood, for the message.

    Examples:
        >>> from lamu.likelihoods.links import Log, SquareRoot, require_link
        >>> require_link(Log(), (Log, SquareRoot), "Poisson")
    """
    if not isinstance(link, allowed):
        *first, last = (f"{kind.__name__}()" for kind in allowed)
        raise TypeError(f"{name} cannot have link={link!r}; give {', '.join(first)} or {last}")


def require_probability_link(link: object, name: str, *others: type[Link]) -> None:
    """Raises a TypeError unless the mean of a link is a probability, from 0 to 1.

    Args:
        link: g.
        name: the name of the likelihood, for the message.
        *others: classes of links that are allowed too.

    Examples:
        >>> from lamu.likelihoods.links import Probit, require_probability_link
        >>> require_probability_link(Probit(), "Binomial")
    """
    if not isinstance(link, ProbabilityLink) or (link.signs and not isinstance(link, others)):
        require_link(link, (Logit, Probit, LogLog, ComplementaryLogLog, *others), name)


@jax.custom_jvp
def log_sigmoid(f: Array) -> Array:
    r"""Returns \(\log \sigma(f) = \min(f, 0) - \log(1 + e^{-|f|})\).

    Value and slope, \(\sigma(-f)\), share one exponential, which is most of the work for a linear predictor: with
    `jax.nn.log_sigmoid`, whose derivative computes two more, a gradient of a logistic regression takes 1.4 times as
    long.

    Args:
        f: logits, of any shape.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods.links import log_sigmoid
        >>> log_sigmoid(jnp.array([0.0, -1e4, 1e4])).round(4).tolist()
        [-0.6931..., -10000.0, 0.0]
    """
    return jnp.minimum(f, 0.0) - jnp.log1p(jnp.exp(-jnp.abs(f)))


@jax.custom_jvp
def _sigmoid_of_minus(f: Array) -> Array:
    shared = jnp.exp(-jnp.abs(f))
    return jnp.where(f > 0, shared, 1.0) / (1.0 + shared)


@log_sigmoid.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return log_sigmoid(*primals), _sigmoid_of_minus(*primals) * tangents[0]


@_sigmoid_of_minus.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # A custom derivative, as that of |f| is zero at f = 0, where many networks start.
    (f,) = primals
    return _sigmoid_of_minus(f), -_sigmoid_of_minus(f) * _sigmoid_of_minus(-f) * tangents[0]


@record
class Logit(ProbabilityLink):
    """The log odds.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods.links import Logit
        >>> Logit().inverse(jnp.array([0.0, 1e4])).tolist()
        [0.5, 1.0]
    """

    logits = True
    scale = "log odds"

    def forward(self, mean: Array) -> Array:
        """Returns the log odds."""
        return jnp.log(mean) - jnp.log1p(-mean)

    def inverse(self, f: Array) -> Array:
        """Returns the logistic function."""
        return sigmoid(f)

    def log_prob(self, f: Array, one: Array) -> Array:
        """Returns log σ(±f)."""
        return log_sigmoid(jnp.where(one, f, -f))

    def log_density(self, f: Array) -> Array:
        """Returns log σ(f)σ(−f)."""
        return log_sigmoid(f) + log_sigmoid(-f)

    def log_interval(self, a: Array, b: Array) -> Array:
        """Returns log σ(b)σ(−a)(1 − e^{a − b})."""
        return log_sigmoid(b) + log_sigmoid(-a) + log1mexp(a - b)

    def complement(self, f: Array) -> Array:
        """Returns σ(−f)."""
        return sigmoid(-f)

    def weight(self, f: Array) -> Array:
        """Returns p(1 − p), since the slope of p is the same."""
        return self.probability(f) * self.complement(f)


@record
class Tanh(ProbabilityLink):
    """Targets of −1 and 1, whose mean is tanh f: twice f are the log odds.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods.links import Tanh
        >>> Tanh().inverse(jnp.array([0.0, 1e4])).tolist()
        [0.0, 1.0]
    """

    signs = True

    def forward(self, mean: Array) -> Array:
        """Returns artanh μ."""
        return jnp.arctanh(mean)

    def inverse(self, f: Array) -> Array:
        """Returns tanh f."""
        return jnp.tanh(f)

    def log_prob(self, f: Array, one: Array) -> Array:
        """Returns log σ(±2f)."""
        return Logit().log_prob(2.0 * f, one)

    def log_density(self, f: Array) -> Array:
        """Returns log 2σ(2f)σ(−2f)."""
        return Logit().log_density(2.0 * f) + jnp.log(2.0).astype(f.dtype)

    def log_interval(self, a: Array, b: Array) -> Array:
        """Returns the log interval of the log odds."""
        return Logit().log_interval(2.0 * a, 2.0 * b)

    def probability(self, f: Array) -> Array:
        """Returns σ(2f), the probability of 1."""
        return sigmoid(2.0 * f)

    def of_probability(self, p: Array) -> Array:
        """Returns half the log odds."""
        return 0.5 * Logit().forward(p)

    def complement(self, f: Array) -> Array:
        """Returns σ(−2f)."""
        return sigmoid(-2.0 * f)

    def weight(self, f: Array) -> Array:
        """Returns 4p(1 − p)."""
        return 4.0 * self.probability(f) * self.complement(f)


@record
class Probit(ProbabilityLink):
    """The quantile function of the standard normal distribution.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods.links import Probit
        >>> Probit().inverse(jnp.array([0.0, 1.645])).round(3).tolist()
        [0.5, 0.9...]
    """

    def forward(self, mean: Array) -> Array:
        """Returns Φ⁻¹(μ)."""
        return ndtri(mean)

    def inverse(self, f: Array) -> Array:
        """Returns Φ(f)."""
        return ndtr(f)

    def log_prob(self, f: Array, one: Array) -> Array:
        """Returns log Φ(±f)."""
        return log_normal_cdf(jnp.where(one, f, -f))

    def log_density(self, f: Array) -> Array:
        """Returns log φ(f)."""
        return log_normal_pdf(f)

    def log_interval(self, a: Array, b: Array) -> Array:
        """Returns log(Φ(b) − Φ(a))."""
        return log_normal_interval(a, b)

    def complement(self, f: Array) -> Array:
        """Returns Φ(−f)."""
        return ndtr(-f)


@record
class LogLog(ProbabilityLink):
    """The quantile function of the Gumbel distribution, for rare zeros.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods.links import LogLog
        >>> [f"{p:.4f}" for p in LogLog().inverse(jnp.array([0.0, 1e4]))]
        ['0.3679', '1.0000']
    """

    def forward(self, mean: Array) -> Array:
        """Returns −log(−log μ)."""
        return -jnp.log(-jnp.log(mean))

    def inverse(self, f: Array) -> Array:
        """Returns exp(−e^{−f})."""
        return jnp.exp(-_exponential(-f))

    def log_prob(self, f: Array, one: Array) -> Array:
        """Returns −e^{−f}, or log(1 − exp(−e^{−f}))."""
        return jnp.where(one, -_exponential(-f), _log_rare(-f))

    def log_density(self, f: Array) -> Array:
        """Returns −f − e^{−f}."""
        return -f - _exponential(-f)

    def log_interval(self, a: Array, b: Array) -> Array:
        """Returns the log interval of the complementary link, with negated ends."""
        return ComplementaryLogLog().log_interval(-b, -a)


@record
class ComplementaryLogLog(ProbabilityLink):
    """The complementary log-log link, for rare ones: the logarithm of a hazard over one period.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods.links import ComplementaryLogLog
        >>> ComplementaryLogLog().inverse(jnp.array([0.0, 1e4])).round(4).tolist()
        [0.632..., 1.0]
    """

    def forward(self, mean: Array) -> Array:
        """Returns log(−log(1 − μ))."""
        return jnp.log(-jnp.log1p(-mean))

    def inverse(self, f: Array) -> Array:
        """Returns 1 − exp(−e^f)."""
        return -jnp.expm1(-_exponential(f))

    def log_prob(self, f: Array, one: Array) -> Array:
        """Returns log(1 − exp(−e^f)), or −e^f."""
        return jnp.where(one, _log_rare(f), -_exponential(f))

    def log_density(self, f: Array) -> Array:
        """Returns f − e^f."""
        return f - _exponential(f)

    def log_interval(self, a: Array, b: Array) -> Array:
        """Returns log(exp(−e^a) − exp(−e^b)), as −e^a + log(1 − exp(−(e^b − e^a)))."""
        # e^b − e^a = e^a (e^{b − a} − 1), as its logarithm, the argument of the rare probability.
        return -_exponential(a) + _log_rare(b + log1mexp(a - b))


def _exponential(f: Array) -> Array:
    """Returns e^f, along its tangent above f = 30."""
    return jnp.exp(jnp.minimum(f, _LARGEST)) * (1.0 + jnp.maximum(f - _LARGEST, 0.0))


def _logarithm(f: Array, least: float) -> Array:
    """Returns log f, along its tangent below `least`."""
    return jnp.log(jnp.maximum(f, least)) + jnp.minimum(f - least, 0.0) / least


def _log_rare(g: Array) -> Array:
    """Returns log(1 − exp(−e^g)): g itself far below zero, and zero far above."""
    # Selections instead of minima and maxima, which halve the derivative where both are equal, as at g = 0.
    below = g < 0
    rate = jnp.exp(jnp.where(below, g, -1.0))
    small = rate < 1e-5
    series = 1.0 - rate / 2 + rate**2 / 6
    share = jnp.where(small, series, -jnp.expm1(-rate) / jnp.where(small, 1.0, rate))
    return jnp.where(below, g + jnp.log(share), jnp.log1p(-jnp.exp(-_exponential(jnp.where(below, 1.0, g)))))
