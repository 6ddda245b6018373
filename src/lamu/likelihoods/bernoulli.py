r"""Two classes, one output: \(p(y = 1 \mid f) = g^{-1}(f)\), by default the logistic function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.likelihoods.interface import Likelihood
from lamu.likelihoods.links import Logit, ProbabilityLink, Tanh, require_probability_link
from lamu.record import record
from lamu.supports import Signs, TwoClasses
from lamu.typing import Array, Params, RandomKey

__all__ = ["Bernoulli"]


@record
class Bernoulli(Likelihood):
    r"""A binary target with one output: \(p(y \mid f) = p^y (1 - p)^{1-y}\), \(p = g^{-1}(f)\).

    The outputs are `[batch, 1]`, the targets `[batch]`, zero or one in any dtype (Booleans too); with the link `Tanh`
    they are −1 or 1. The mean of a prediction is the probability of one in every case. Log-concave, with nothing to
    learn beside f.

    Attributes:
        link: g, one of `lamu.likelihoods.links`: `Logit`, `Probit`, `LogLog`, `ComplementaryLogLog` or `Tanh`.

    Raises:
        TypeError: for a link that is not of probabilities.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Bernoulli
        >>> from lamu.likelihoods.links import ComplementaryLogLog
        >>> Bernoulli().mean({}, jnp.array([[0.0], [1e4], [-1e4]])).tolist()
        [0.5, 1.0, 0.0]
        >>> Bernoulli(link=ComplementaryLogLog()).mean({}, jnp.array([[0.0]])).round(3).tolist()
        [0.632...]
    """

    link: ProbabilityLink | Any = Logit()

    log_concave = True

    def __post_init__(self) -> None:
        require_probability_link(self.link, "Bernoulli", Tanh)

    @property
    def logits(self) -> bool:
        """Whether the link is the log odds."""
        return self.link.logits

    @property
    def support(self) -> TwoClasses:
        """Zero and one, or −1 and 1."""
        return Signs() if self.link.signs else TwoClasses()

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the targets are the two values, `[batch]`."""
        y = np.asarray(y)
        if y.ndim != 1:
            raise ValueError(f"the targets have shape {y.shape}; Bernoulli takes zeros and ones of shape [batch]")
        self.support.check(y, "Bernoulli")

    def outputs(self, y: Any) -> int:
        return 1

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\log p\) or \(\log(1 - p)\) in nats, `[batch]`.

        NumPyro's density is not used here: its derivative at f = 0, where many networks start, is the one-sided one.
        """
        return self.link.log_prob(f[:, 0], jnp.reshape(y, f.shape[:1]).astype(f.dtype) > 0)

    def information(self, params: Params, f: Array) -> Array:
        r"""Returns \(p'^2 / (p (1 - p))\), `[batch, 1, 1]`; of log odds \(\sigma(f) \sigma(-f)\)."""
        return self.link.weight(f[:, 0])[:, None, None]

    def mean(self, params: Params, f: Array) -> Array:
        return self.link.probability(f[:, 0])

    def variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(p (1 - p)\), `[batch]`, from the probabilities of both, which does not cancel."""
        return self.link.probability(f[:, 0]) * self.link.complement(f[:, 0])

    def entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(-p \log p - (1 - p) \log(1 - p)\) in nats, `[batch]`."""
        return self.link.entropy(f[:, 0])

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one draw a row, integers `[batch]`."""
        ones = jax.random.bernoulli(key, self.mean(params, f)).astype(jnp.result_type(int))
        return 2 * ones - 1 if self.link.signs else ones
