"""Likelihoods of successes in a number of trials, and of counts in several categories."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_softmax
from jax.scipy.special import betainc

from lamu.families.special import log_choose, log_tails_of_beta, stirling
from lamu.likelihoods.bases import IndependentTargets
from lamu.likelihoods.classes import Categorical
from lamu.likelihoods.interface import Likelihood
from lamu.likelihoods.links import Logit, ProbabilityLink, require_probability_link
from lamu.record import record, static
from lamu.supports import Counts
from lamu.typing import Array, Params, RandomKey, Targets

__all__ = ["Binomial", "Multinomial"]


_MOST = 1024  # largest number of trials for which the entropy is a sum over all counts


@record
class Binomial(IndependentTargets):
    r"""Binomial counts of successes: \(p(y \mid f) = \binom{n}{y} p^y (1 - p)^{n - y}\). Log-concave.

    The number of trials is the same for all rows (`trials`), or given with each row, as targets
    `{"value": successes, "trials": trials}`. In the second case mean, variance, draws and Fisher information are those
    of one trial, as the trials of a new row are not known, and the weight of a row is multiplied by its trials
    (`counted`). Predictions are of one trial too, unless trials are given: `posterior.predict({"x": x, "trials": n})`.

    Attributes:
        trials: n; None where it is given with each row.
        link: g, a link of probabilities with the range 0 to 1.

    Raises:
        ValueError: if the number of trials is not a positive integer.
        TypeError: for another link.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Binomial
        >>> Binomial(10).mean({}, jnp.zeros((1, 1))).tolist()
        [5.0]
        >>> rows = {"value": jnp.array([1, 2]), "trials": jnp.array([1, 4])}
        >>> jnp.exp(Binomial().log_prob({}, jnp.zeros((2, 1)), rows)).round(3).tolist()
        [0.5, 0.375]
    """

    trials: int | None = static(default=None)
    link: ProbabilityLink | Any = Logit()

    log_concave = True

    def __post_init__(self) -> None:
        if self.trials is not None and not (self.trials >= 1 and self.trials == int(self.trials)):
            raise ValueError(f"{self.trials} trials cannot be; give a whole number from 1, or one for each row")
        require_probability_link(self.link, "Binomial")

    @property
    def support(self) -> Counts:
        """Whole numbers up to the number of trials."""
        return Counts(most=self.trials or 1)

    def check(self, y: Targets) -> None:
        """Raises a ValueError unless successes and trials are whole numbers, with at most as many successes."""
        value, trials = self._split_targets(y, "trials")
        if trials is None:
            super().check(value)
            return
        if self.trials is not None:
            raise ValueError(f"the rows bring trials, and Binomial({self.trials}) has its own; take Binomial()")
        value, trials = np.asarray(value), np.asarray(trials)
        if value.ndim != 1:
            raise ValueError(f"the successes have shape {value.shape}; trials of each row go with one count, [batch]")
        Counts().check(value, "Binomial")
        Counts().check(trials, "the trials of Binomial")
        if value.shape != trials.shape:
            raise ValueError(f"there are successes of shape {value.shape}, and trials of {trials.shape}; give the same")
        if (value > trials).any():
            row = np.argwhere(value > trials)[0]
            index = tuple(row)
            raise ValueError(
                f"row {row[0]} has {value[index]!s} successes in {trials[index]!s} trials; give at least as many trials"
            )

    def outputs(self, y: Targets) -> int:
        return super().outputs(self._split_targets(y, "trials")[0])

    def init(self, y: Targets) -> Params:
        return {}

    def log_prob(self, params: Params, f: Array, y: Targets) -> Array:
        """Returns the log density of the counts in nats, `[batch]`.

        Args:
            params: empty.
            f: the outputs.
            y: successes, or `{"value": successes, "trials": trials}`.
        """
        value, trials = self._split_targets(y, "trials")
        if trials is None:
            return super().log_prob(params, f, value)
        value, trials = (jnp.reshape(part, f.shape).astype(f.dtype) for part in (value, trials))
        return jnp.sum(self._log_prob(f, value, trials), axis=-1)

    def cdf(self, params: Params, f: Array, y: Targets) -> Array:
        """Returns P(Y ≤ y | f), for successes alone, or with trials as for `log_prob`."""
        value, trials = self._split_targets(y, "trials")
        if trials is None:
            return super().cdf(params, f, value)
        y, n = (jnp.reshape(part, f.shape).astype(f.dtype) for part in (jnp.floor(value), trials))
        some = jnp.clip(y, 0.0, jnp.maximum(n - 1.0, 0.0))
        inside = betainc(jnp.maximum(n - some, 1.0), some + 1.0, self.link.complement(f))
        return jnp.where(y < 0, 0.0, jnp.where(y >= n, 1.0, inside))[:, 0]

    @property
    def takes_trials(self) -> bool:
        """Whether trials are given with each row."""
        return self.trials is None

    def counted(self, params: Params, f: Array, y: Targets, weights: Array) -> Array:
        trials = self._split_targets(y, "trials")[1]
        return weights if trials is None else weights * jnp.asarray(trials).astype(weights.dtype)

    def target_log_prob(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the log density of counts of `trials`."""
        return self._log_prob(f, y, jnp.full(f.shape, self._trials, f.dtype))

    def target_information(self, params: Params, f: Array) -> Array:
        r"""Returns \(n p'^2 / (p (1 - p))\)."""
        return self._trials * self.link.weight(f)

    def target_mean(self, params: Params, f: Array) -> Array:
        return self._trials * self.link.probability(f)

    def target_variance(self, params: Params, f: Array) -> Array:
        """Returns np(1 − p)."""
        return self._trials * self.link.probability(f) * self.link.complement(f)

    def target_entropy(self, params: Params, f: Array) -> Array | None:
        """Returns the sum over all counts, up to 1,024 trials."""
        if self._trials > _MOST:
            return None
        y = jnp.arange(self._trials + 1, dtype=f.dtype).reshape(-1, *[1] * f.ndim)
        log_prob = jax.vmap(lambda y: self.target_log_prob({}, f, jnp.broadcast_to(y, f.shape)))(y)
        return -jnp.sum(jnp.exp(log_prob) * log_prob, axis=0)

    def target_sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns binomial counts."""
        return jax.random.binomial(key, float(self._trials), self.link.probability(f), f.shape, f.dtype)

    def target_cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the regularised incomplete beta function of 1 − p."""
        some = jnp.clip(y, 0.0, self._trials - 1.0)
        return betainc(self._trials - some, some + 1.0, self.link.complement(f))

    def target_log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the logarithms of the regularised incomplete beta functions of 1 − p."""
        log_one, log_zero = self.link.log_probs(f)
        some = jnp.clip(y, 0.0, self._trials - 1.0)
        return log_tails_of_beta(self._trials - some, some + 1.0, log_zero - log_one)

    @property
    def _trials(self) -> int:
        return 1 if self.trials is None else self.trials

    def _log_prob(self, f: Array, y: Array, n: Array) -> Array:
        log_one, log_zero = self.link.log_probs(f)
        return log_choose(n, y) + y * log_one + (n - y) * log_zero


@record
class Multinomial(Likelihood):
    r"""Multinomial counts of several categories out of n: \(p(y \mid f) = n! \prod_k p_k^{y_k} / y_k!\), p the softmax.

    Log-concave. The targets are `[batch, classes]`. The sum of each row is its n in the density. Mean, variance, draws
    and Fisher information are those of `trials`, or of one trial where it is None: then the weight of a row is
    multiplied by its sum (`counted`).

    Attributes:
        classes: the number of categories, two or more.
        trials: n; None where it differs between rows.

    Raises:
        ValueError: for fewer than two categories, or a number of trials that is not a positive integer.

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
        """Whole numbers, up to the number of trials where it is given."""
        return Counts(most=self.trials)

    def check(self, y: Targets) -> None:
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

    def outputs(self, y: Targets) -> int:
        """Returns the number of categories."""
        return self.classes

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\log n! + \sum_k (y_k \log p_k - \log y_k!)\) in nats, `[batch]`."""
        y = jnp.reshape(y, f.shape).astype(f.dtype)
        n = jnp.sum(y, axis=-1)
        # Factorials without their leading terms, which are combined as y log(np/y).
        log_share = jnp.log(jnp.maximum(n, 1.0))[:, None] - jnp.log(jnp.where(y > 0, y, 1.0))
        return stirling(n) + jnp.sum(y * (log_softmax(f, axis=-1) + log_share) - stirling(y), axis=-1)

    def counted(self, params: Params, f: Array, y: Targets, weights: Array) -> Array:
        """Returns the weights times the sums of the rows, where they are not `trials`."""
        return weights if self.trials is not None else weights * jnp.sum(jnp.asarray(y).astype(weights.dtype), axis=-1)

    def information(self, params: Params, f: Array) -> Array:
        r"""Returns \(n (\operatorname{diag}(p) - p p^\top)\), `[batch, classes, classes]`."""
        return self._trials * self._one.information(params, f)

    def information_root(self, params: Params, f: Array) -> Array:
        """Returns the root of a categorical target, times √n."""
        return self._trials**0.5 * self._one.information_root(params, f)

    def mean(self, params: Params, f: Array) -> Array:
        return self._trials * self._one.mean(params, f)

    def variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(n p_k (1 - p_k)\), `[batch, classes]`."""
        return self._trials * self._one.variance(params, f)

    def entropy(self, params: Params, f: Array) -> Array:
        """Returns the entropy in nats, `[batch]`: for one trial the categorical one, else an average over draws."""
        return self._one.entropy(params, f) if self._trials == 1 else super().entropy(params, f)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns counts of n draws, `[batch, classes]`, sampled category by category."""
        log_p = log_softmax(f, axis=-1)
        # The share of each category among the remaining ones, by sums over the later ones.
        log_remaining = jnp.flip(jax.lax.cumlogsumexp(jnp.flip(log_p, axis=-1), axis=1), axis=-1)
        shares = jnp.clip(jnp.exp(log_p - log_remaining), 0.0, 1.0)
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
