r"""Counts in several categories: \(y \sim \mathrm{Multinomial}(n, \operatorname{softmax}(f))\)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_softmax

from lamu.likelihoods.binomial import Binomial
from lamu.likelihoods.categorical import Categorical
from lamu.likelihoods.factorials import stirling
from lamu.likelihoods.interface import Likelihood
from lamu.likelihoods.links import Logit
from lamu.record import record, static
from lamu.supports import Counts
from lamu.typing import Array, Params, RandomKey

__all__ = ["Multinomial"]


@record
class Multinomial(Likelihood):
    r"""Counts of several categories out of n: \(p(y \mid f) = n! \prod_k p_k^{y_k} / y_k!\), p the softmax.

    Log-concave. The targets are `[batch, classes]`. Each row's own sum is its n in the density. Mean, variance, draws
    and Fisher information are those of `trials`, or of one trial where it is None: then a row counts
    as often as it has counts (`counted`).

    Attributes:
        classes: how many categories there are, two or more.
        trials: n; None where it differs from row to row.

    Raises:
        ValueError: if there are fewer than two categories, or the number of trials is not a whole number from 1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Multinomial
        >>> Multinomial(4, trials=8).mean({}, jnp.zeros((1, 4))).tolist()
        [[2.0, 2.0, 2.0, 2.0]]
    """

    classes: int = static()
    trials: int | None = static(default=None)

    log_concave = True

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"Multinomial({self.classes}) has too few categories; give 2 or more")
        Binomial(self.trials)

    @property
    def support(self) -> Counts:
        """Whole numbers up to the number of trials."""
        return Counts(most=self.trials or 1)

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the targets are counts, `[batch, classes]`, and sum to the number of trials."""
        if np.ndim(y) != 2 or np.shape(y)[1] != self.classes:
            raise ValueError(
                f"the targets have shape {np.shape(y)}; Multinomial({self.classes}) takes [batch, {self.classes}]"
            )
        Counts().check(y, "Multinomial")
        sums = np.asarray(y).sum(axis=1)
        if self.trials is not None and (sums != self.trials).any():
            row = int(np.argmax(sums != self.trials))
            raise ValueError(
                f"the counts of row {row} sum to {sums[row]!s}, and there are {self.trials} trials; leave `trials` out "
                "where rows differ"
            )

    def output_scales(self, width: int) -> tuple[str, ...]:
        return ("logits",) * width

    def outputs(self, y: Any) -> int:
        """Returns the number of categories."""
        return self.classes

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\log n! + \sum_k (y_k \log p_k - \log y_k!)\) in nats, `[batch]`."""
        y = jnp.reshape(y, f.shape).astype(f.dtype)
        n = jnp.sum(y, axis=-1)
        # Factorials without their leading terms, which are put together as y log(np/y).
        log_share = jnp.log(jnp.maximum(n, 1.0))[:, None] - jnp.log(jnp.where(y > 0, y, 1.0))
        return stirling(n) + jnp.sum(y * (log_softmax(f, axis=-1) + log_share) - stirling(y), axis=-1)

    def counted(self, params: Params, f: Array, y: Any, weights: Array) -> Array:
        """Returns the weights times the sums of the rows, where they are not `trials`."""
        return weights if self.trials is not None else weights * jnp.sum(jnp.asarray(y).astype(weights.dtype), axis=-1)

    def information(self, params: Params, f: Array) -> Array:
        r"""Returns \(n (\operatorname{diag}(p) - p p^\top)\), `[batch, classes, classes]`."""
        return self._trials * self._one.information(params, f)

    def information_root(self, params: Params, f: Array) -> Array:
        """Returns that of a categorical target, times √n."""
        return self._trials**0.5 * self._one.information_root(params, f)

    def mean(self, params: Params, f: Array) -> Array:
        return self._trials * self._one.mean(params, f)

    def variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(n p_k (1 - p_k)\), `[batch, classes]`."""
        return self._trials * self._one.variance(params, f)

    def entropy(self, params: Params, f: Array) -> Array:
        """Returns that of a categorical target for one trial, else an average over draws, in nats, `[batch]`."""
        return self._one.entropy(params, f) if self._trials == 1 else super().entropy(params, f)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns counts of n draws, `[batch, classes]`: of each category, given those before."""
        log_p = log_softmax(f, axis=-1)
        # The share of each category among those that are left, by the sums of what comes after it.
        left = jnp.flip(jax.lax.cumlogsumexp(jnp.flip(log_p, axis=-1), axis=1), axis=-1)
        shares = jnp.clip(jnp.exp(log_p - left), 0.0, 1.0)
        rest, counts = jnp.full(f.shape[:1], float(self._trials), f.dtype), []
        for k, each in enumerate(jax.random.split(key, self.classes - 1)):
            counts.append(jax.random.binomial(each, rest, shares[:, k], f.shape[:1], f.dtype))
            rest = rest - counts[-1]
        return jnp.stack([*counts, rest], axis=-1)

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns P(Y_k ≤ y_k | f), category by category, each binomial, `[batch, classes]`."""
        others = f[:, None, :] + jnp.where(jnp.eye(self.classes, dtype=bool), -jnp.inf, 0.0).astype(f.dtype)[None]
        log_odds = f - jax.nn.logsumexp(others, axis=-1)
        marginal = Binomial(self.trials, Logit())
        return marginal.cdf(params, log_odds, y)

    @property
    def _one(self) -> Categorical:
        return Categorical(self.classes)

    @property
    def _trials(self) -> int:
        return 1 if self.trials is None else self.trials
