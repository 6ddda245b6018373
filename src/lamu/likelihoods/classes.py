"""Likelihoods of binary, categorical and ordinal targets, and of rankings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jax.nn import log_softmax, softmax

from lamu.base.arguments import require_positive, whole
from lamu.likelihoods.interface import Likelihood
from lamu.likelihoods.links import Logit, ProbabilityLink, Tanh, require_probability_link
from lamu.record import record, static
from lamu.supports import Classes, OrderedClasses, Rankings, Signs, TwoClasses
from lamu.typing import Array, DTypeLike, Number, Params, RandomKey, Targets

__all__ = ["Bernoulli", "Categorical", "Ordinal", "PlackettLuce", "alphabetical"]


@record
class Bernoulli(Likelihood):
    r"""A binary target with one output: \(p(y \mid f) = p^y (1 - p)^{1-y}\), \(p = g^{-1}(f)\).

    The outputs are `[batch, 1]`, the targets `[batch]`, zero or one in any dtype (Booleans too); with the link `Tanh`
    they are −1 or 1. The mean of a prediction is the probability of one in every case. Log-concave, without
    dispersions.

    Attributes:
        link: g, one of `lamu.likelihoods.links`: `Logit`, `Probit`, `LogLog`, `ComplementaryLogLog` or `Tanh`.

    Raises:
        TypeError: for a link that is not a probability link.

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

    def check(self, y: Targets) -> None:
        """Raises a ValueError unless the targets are the two values, `[batch]`."""
        y = np.asarray(y)
        if y.ndim != 1:
            several = (
                f"; for {y.shape[1]} labels a row take PerPosition(Bernoulli(), ({y.shape[1]},))" if y.ndim == 2 else ""
            )
            raise ValueError(
                f"the targets have shape {y.shape}; Bernoulli takes zeros and ones of shape [batch]{several}"
            )
        self.support.check(y, "Bernoulli")

    def outputs(self, y: Targets) -> int:
        return 1

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(\log p\) or \(\log(1 - p)\) in nats, `[batch]`.

        NumPyro's density is not used: its derivative at f = 0, where many networks start, is one-sided.
        """
        return self.link.log_prob(f[:, 0], jnp.reshape(y, f.shape[:1]).astype(f.dtype) > 0)

    def information(self, params: Params, f: Array) -> Array:
        r"""Returns \(p'^2 / (p (1 - p))\), `[batch, 1, 1]`; of log odds \(\sigma(f) \sigma(-f)\)."""
        return self.link.weight(f[:, 0])[:, None, None]

    def mean(self, params: Params, f: Array) -> Array:
        return self.link.probability(f[:, 0])

    def variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(p (1 - p)\), `[batch]`, from both probabilities, without cancellation."""
        return self.link.probability(f[:, 0]) * self.link.complement(f[:, 0])

    def entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(-p \log p - (1 - p) \log(1 - p)\) in nats, `[batch]`."""
        return self.link.entropy(f[:, 0])

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one draw a row, integers `[batch]`."""
        ones = jax.random.bernoulli(key, self.mean(params, f)).astype(jnp.result_type(int))
        return 2 * ones - 1 if self.link.signs else ones


@record
class Categorical(Likelihood):
    r"""One of several classes with a softmax of logits: \(p(y \mid f) = e^{f_y} / \sum_k e^{f_k}\).

    The outputs are `[batch, classes]`, the targets integers 0 to classes − 1, `[batch]`. Log-concave; the information
    is singular along (1, …, 1), since a constant added to every logit has no effect.

    Attributes:
        classes: the number of classes, two or more.

    Raises:
        TypeError: for a number of classes that is not an integer.
        ValueError: if there are fewer than two classes.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Categorical
        >>> Categorical(4).mean({}, jnp.zeros((1, 4))).tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """

    classes: int = static()

    log_concave = True
    logits = True

    @property
    def support(self) -> Classes:
        """The classes."""
        return Classes(self.classes)

    def __post_init__(self) -> None:
        number = whole(self.classes)
        if number is None:
            raise TypeError(f"Categorical({self.classes!r}) is not a number of classes; give a whole number, 2 or more")
        object.__setattr__(self, "classes", number)
        if self.classes < 2:
            raise ValueError(f"Categorical({self.classes}) has too few classes; give 2 or more")

    def check(self, y: Targets) -> None:
        """Raises a ValueError unless the targets are whole numbers from 0 to classes − 1, `[batch]`."""
        y = np.asarray(y)
        if y.ndim == 2 and y.shape[1] == self.classes:
            if np.isin(y, (0, 1)).all():
                said = "as if one-hot; pass the classes, np.argmax(y, axis=1)"
            else:
                said = (
                    "as if probabilities; give each row once for every class, with its probability as its weight: "
                    f'{{"x": np.repeat(x, {self.classes}, 0), "y": np.tile(np.arange({self.classes}), len(x)), '
                    '"weight": y.ravel()}'
                )
            raise ValueError(f"the targets have shape {y.shape}, {said}")
        if y.ndim != 1:
            raise ValueError(f"the targets have shape {y.shape}; Categorical takes integers of shape [batch]")
        self.support.check(y, f"Categorical({self.classes})")

    def outputs(self, y: Targets) -> int:
        """Returns the number of classes."""
        return self.classes

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(f_y - \log \sum_k e^{f_k}\) in nats, `[batch]`."""
        classes = jnp.reshape(y, f.shape[:1]).astype(jnp.int32)
        return jnp.take_along_axis(log_softmax(f, axis=-1), classes[:, None], axis=-1)[:, 0]

    def information(self, params: Params, f: Array) -> Array:
        r"""Returns \(\operatorname{diag}(p) - p p^\top\), `[batch, classes, classes]`.

        The diagonal is computed as \(p_k \sum_{j \ne k} p_j\), without the cancellation of \(p_k (1 - p_k)\): the
        matrix is diagonally dominant, hence positive, in every precision.
        """
        p = softmax(f, axis=-1)
        between = p[:, :, None] * p[:, None, :] * (1.0 - jnp.eye(f.shape[-1], dtype=f.dtype))[None]
        return jnp.sum(between, axis=-1)[:, :, None] * jnp.eye(f.shape[-1], dtype=f.dtype)[None] - between

    def mean(self, params: Params, f: Array) -> Array:
        return softmax(f, axis=-1)

    def variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(p_k (1 - p_k)\), the variances of the one-hot target, `[batch, classes]`."""
        p = softmax(f, axis=-1)
        return p * (1.0 - p)

    def entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(-\sum_k p_k \log p_k\) in nats, `[batch]`."""
        return -jnp.sum(softmax(f, axis=-1) * log_softmax(f, axis=-1), axis=-1)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one class a row, integers `[batch]`."""
        return jax.random.categorical(key, f)

    # diag(p) − p pᵀ = R Rᵀ with R = (I − p 1ᵀ) diag(√p) needs no decomposition, and diagonals and sums no matrix a row.

    def information_root(self, params: Params, f: Array) -> Array:
        r"""Returns \((I - p 1^\top) \operatorname{diag}(\sqrt p)\), `[batch, classes, classes]`."""
        p = softmax(f, axis=-1)
        centred = jnp.eye(p.shape[1], dtype=p.dtype)[None] - p[:, :, None]
        return centred * jnp.sqrt(p)[:, None, :]

    def information_diagonal(self, params: Params, f: Array) -> Array:
        r"""Returns \(p_k (1 - p_k)\), `[batch, classes]`."""
        return self.variance(params, f)

    def information_sum(self, params: Params, f: Array, weights: Array) -> Array:
        r"""Returns \(\sum_i r_i (\operatorname{diag}(p_i) - p_i p_i^\top)\), `[classes, classes]`."""
        p, weights = softmax(f, axis=-1), weights.astype(f.dtype)
        return jnp.diag(weights @ p) - jnp.matmul(p.T * weights[None], p, precision=Precision.HIGHEST)


@record
class Ordinal(Likelihood):
    r"""A cumulative ordinal model with one output and a cut-point between neighbouring classes. Log-concave in f.

    \[ P(y = k \mid f) = g^{-1}(c_k - f) - g^{-1}(c_{k-1} - f), \qquad c_{-1} = -\infty, \; c_{K-1} = \infty \]

    The targets are whole numbers from 0 to classes − 1, `[batch]`; the mean is the class probabilities. With `Logit` it
    is the proportional-odds model, R's `polr`. A constant added to f and to every cut-point has no effect, so a network
    needs no bias: `Linear(bias=False)`.

    Learned cut-points are `params["first"]`, c₀, and `params["log_gaps"]`, the logarithms of the differences, so they
    are always in order. Their prior is \(N(0, s^2)\) on each cut-point, given the order; its density in the parameters
    includes the Jacobian of the gaps.

    Attributes:
        classes: K, two or more.
        link: g, `Logit` or `Probit`, or another link of probabilities.
        cuts: the cut-points, K − 1 numbers in order; None where they are learned.
        cut_scale: s.

    Raises:
        ValueError: for fewer than two classes, or cut-points that are not one fewer than the classes or not in order.
        TypeError: for another link.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Ordinal
        >>> [f"{p:.3f}" for p in Ordinal(3, cuts=(-1.0, 1.0)).mean({}, jnp.zeros((1, 1)))[0]]
        ['0.269', '0.462', '0.269']
        >>> Ordinal.of([0, 2, 1, 2]).classes
        3
    """

    classes: int = static()
    link: ProbabilityLink | Any = Logit()
    cuts: tuple[float, ...] | None = static(default=None)
    cut_scale: Number = 5.0

    log_concave = True

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"Ordinal({self.classes}) has too few classes; give 2 or more")
        require_positive("cut_scale", self.cut_scale, "give the standard deviation of the cut-points")
        require_probability_link(self.link, "Ordinal")
        if self.cuts is None:
            return
        object.__setattr__(self, "cuts", tuple(float(cut) for cut in self.cuts))
        if len(self.cuts) != self.classes - 1:
            raise ValueError(
                f"there are {len(self.cuts)} cut-points for {self.classes} classes; give {self.classes - 1}, one "
                "between each and the next"
            )
        for lower, upper in zip(self.cuts, self.cuts[1:], strict=False):
            if not lower < upper:
                raise ValueError(f"the cut-points {lower} and {upper} are out of order; sort them")

    @classmethod
    def of(cls, y: Targets, link: ProbabilityLink | None = None) -> Ordinal:
        """Returns the likelihood with the number of classes of the targets.

        Args:
            y: targets, whole numbers from 0, each of which must occur.
            link: g; `Logit()` where None.

        Raises:
            ValueError: if a number does not occur.

        Examples:
            >>> from lamu.likelihoods import Ordinal
            >>> from lamu.likelihoods.links import Probit
            >>> Ordinal.of([2, 0, 1], Probit()).classes
            3
        """
        classes_present = np.unique(np.asarray(y))
        if classes_present.dtype.kind in "OUS":
            raise TypeError(alphabetical(classes_present.tolist()))
        _require_all(classes_present, max(2, int(classes_present[-1]) + 1))
        return cls(classes_present.size, Logit() if link is None else link)

    @property
    def support(self) -> OrderedClasses:
        """The classes."""
        return OrderedClasses(self.classes)

    def check(self, y: Targets) -> None:
        """Raises a ValueError unless the targets are whole numbers from 0 to classes − 1, `[batch]`."""
        if np.ndim(y) != 1:
            raise ValueError(f"the targets have shape {np.shape(y)}; Ordinal takes integers of shape [batch]")
        self.support.check(y, f"Ordinal({self.classes})")

    def check_training(self, y: Targets) -> None:
        """Raises a ValueError also where a class has no row: its cut-points would depend on the prior alone."""
        self.check(y)
        if self.cuts is None:
            _require_all(np.unique(np.asarray(y)), self.classes)

    def output_scales(self, width: int) -> tuple[str, ...]:
        return ("ordinal scores",) * width

    def outputs(self, y: Targets) -> int:
        return 1

    def init(self, y: Targets) -> Params:
        """Returns the cut-points of the class frequencies at f = 0, with half a row added to each class."""
        if self.cuts is not None:
            return {}
        y = jnp.asarray(y)
        dtype = y.dtype if jnp.issubdtype(y.dtype, jnp.floating) else jnp.result_type(float)
        counts = jnp.sum(jax.nn.one_hot(y.astype(jnp.int32), self.classes, dtype=dtype), axis=0) + 0.5
        cuts = self.link.of_probability((jnp.cumsum(counts) / jnp.sum(counts))[:-1])
        return {"first": cuts[0], "log_gaps": jnp.log(jnp.diff(cuts))}

    def log_prior(self, params: Params) -> Array:
        r"""Returns \(\log (K-1)! + \sum_k \log N(c_k \mid 0, s^2) + \sum_k \log(c_k - c_{k-1})\) in nats."""
        if self.cuts is not None:
            return jnp.asarray(0.0)
        cuts = self.cut_points(params, params["first"].dtype)
        ordered = math.lgamma(self.classes)  # one of the (K − 1)! orders of independent numbers
        return ordered + jnp.sum(jax.scipy.stats.norm.logpdf(cuts, 0.0, self.cut_scale)) + jnp.sum(params["log_gaps"])

    def sample_prior(self, key: RandomKey, params: Params) -> Params:
        r"""Returns the parameters of sorted draws of \(N(0, s^2)\); empty where the cut-points are given."""
        if self.cuts is not None:
            return params
        dtype = params["first"].dtype
        cuts = jnp.sort(jnp.asarray(self.cut_scale, dtype) * jax.random.normal(key, (self.classes - 1,), dtype))
        gaps = jnp.maximum(jnp.diff(cuts), jnp.finfo(dtype).tiny)  # two draws may be equal
        return {"first": cuts[0], "log_gaps": jnp.log(gaps)}

    def dispersion_information(self, params: Params) -> Params:
        r"""Returns one for \(c_0\), and \((c_k - c_{k-1})^2\) for each logarithm of a gap.

        They bound the information at every f: that of a shift of all cut-points above one is at most one (a third with
        `Logit`), and a change of the logarithm shifts them in proportion to the gap.
        """
        if self.cuts is not None:
            return params
        gaps = jnp.exp(params["log_gaps"])
        return {"first": jnp.ones_like(params["first"]), "log_gaps": jnp.maximum(gaps**2, 1e-2)}

    def cut_points(self, params: Params, dtype: DTypeLike | None = None) -> Array:
        """Returns the cut-points, `[classes − 1]`.

        Args:
            params: the dispersion parameters, for instance `posterior.mean["likelihood"]`.
            dtype: the dtype; the parameters' own where None.

        Examples:
            >>> import jax.numpy as jnp
            >>> from lamu.likelihoods import Ordinal
            >>> params = {"first": jnp.array(-1.0), "log_gaps": jnp.log(jnp.array([0.5, 2.0]))}
            >>> Ordinal(4).cut_points(params).round(3).tolist()
            [-1.0, -0.5, 1.5]
        """
        if self.cuts is not None:
            return jnp.asarray(self.cuts, dtype)
        first = jnp.reshape(params["first"], (1,))
        cuts = jnp.concatenate([first, first + jnp.cumsum(jnp.exp(params["log_gaps"]))])
        return cuts if dtype is None else cuts.astype(dtype)

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the log probability of the class in nats, `[batch]`."""
        cuts, last = self.cut_points(params, f.dtype), self.classes - 2
        y = jnp.reshape(y, f.shape[:1]).astype(jnp.int32)
        upper, lower = cuts[jnp.minimum(y, last)] - f[:, 0], cuts[jnp.maximum(y - 1, 0)] - f[:, 0]
        inner = (y > 0) & (y <= last)
        # For the first and the last class the interval has an arbitrary width, and is not used.
        between = self.link.log_interval(jnp.where(inner, lower, 0.0), jnp.where(inner, upper, 1.0))
        outer = self.link.log_prob(jnp.where(y == 0, upper, lower), y == 0)
        return jnp.where(inner, between, outer)

    def information(self, params: Params, f: Array) -> Array:
        r"""Returns \(\sum_k p_k'^2 / p_k\), `[batch, 1, 1]`."""
        log_p, slope = jax.jvp(lambda f: self._log_classes(params, f), (f,), (jnp.ones_like(f),))
        return jnp.sum(jnp.exp(log_p) * slope**2, axis=-1)[:, None, None]

    def mean(self, params: Params, f: Array) -> Array:
        return jnp.exp(self._log_classes(params, f))

    def variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(p_k (1 - p_k)\), `[batch, classes]`."""
        p = self.mean(params, f)
        return p * jnp.maximum(1.0 - p, 0.0)

    def entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(-\sum_k p_k \log p_k\) in nats, `[batch]`."""
        log_p = self._log_classes(params, f)
        return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one class a row, integers `[batch]`."""
        return jax.random.categorical(key, self._log_classes(params, f), axis=-1)

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        y, distance = self._class_and_gap(params, f, y)
        return jnp.where(y < 0, 0.0, jnp.where(y >= self.classes - 1, 1.0, self.link.probability(distance)))

    def log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        y, distance = self._class_and_gap(params, f, y)
        below, above = self.link.log_probs(distance)
        first, last = y < 0, y >= self.classes - 1
        below = jnp.where(first, -jnp.inf, jnp.where(last, 0.0, below))
        return below, jnp.where(first, 0.0, jnp.where(last, -jnp.inf, above))

    def _class_and_gap(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """Returns the class of each target, and the distance of the cut-point above it from f."""
        y = jnp.floor(jnp.reshape(y, f.shape[:1]).astype(f.dtype))
        cuts = self.cut_points(params, f.dtype)
        return y, cuts[jnp.clip(y, 0, self.classes - 2).astype(jnp.int32)] - f[:, 0]

    def _log_classes(self, params: Params, f: Array) -> Array:
        """Returns the log probabilities of all classes, `[batch, classes]`."""
        of_class = lambda k: self.log_prob(params, f, jnp.broadcast_to(k, f.shape[:1]))
        return jax.vmap(of_class, out_axes=1)(jnp.arange(self.classes))


def alphabetical(words: Sequence[str]) -> str:
    """Returns a sentence about ordered classes that are words, of which only the alphabet is known."""
    return (
        f"the classes of Ordinal are words, and their order by the alphabet, {' < '.join(map(repr, words[:3]))}, may "
        "not be theirs; number them, for instance y = [['low', 'middle', 'high'].index(word) for word in y]"
    )


def _require_all(present: np.ndarray, classes: int) -> None:
    """Raises a ValueError unless the classes that occur are all numbers from 0 to classes − 1."""
    if not np.array_equal(present, np.arange(classes)):
        missing = np.setdiff1d(np.arange(classes), present)
        raise ValueError(
            f"no row has the category {missing[0] if missing.size else present[0]!s}, and those that occur are "
            f"{present.tolist()}; number them without a gap, names, y = np.unique(y, return_inverse=True), and take "
            f"Ordinal({max(2, present.size)}), or give the cut-points"
        )


_ENUMERATED = 6  # largest number of items for which all rankings, 720, are enumerated


@record
class PlackettLuce(Likelihood):
    r"""The Plackett–Luce model of rankings: \(p(y \mid f) = \prod_i e^{f_{y_i}} / \sum_{j \ge i} e^{f_{y_j}}\).

    The targets are `[batch, items]`, each row the items 0 to items − 1, best first. Log-concave; a constant added to
    every score has no effect. Moments, entropy and Fisher information are sums over all rankings for up to six items,
    averages over draws for more. The mean and variance are of the entries of y, item numbers; use draws and the density
    to predict rankings.

    Attributes:
        items: the number of items, two or more.

    Raises:
        ValueError: for fewer than two items.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import PlackettLuce
        >>> log_prob = PlackettLuce(3).log_prob({}, jnp.zeros((1, 3)), jnp.array([[2, 0, 1]]))
        >>> f"{jnp.exp(log_prob[0]):.4f}"
        '0.1667'
    """

    items: int = static()

    log_concave = True

    def __post_init__(self) -> None:
        if self.items < 2:
            raise ValueError(f"PlackettLuce({self.items}) has too few items; give 2 or more")

    @property
    def support(self) -> Rankings:
        """The orders of the items."""
        return Rankings(self.items)

    def check(self, y: Targets) -> None:
        """Raises a ValueError unless each row is an order of the items, `[batch, items]`."""
        if np.ndim(y) != 2 or np.shape(y)[1] != self.items:
            raise ValueError(
                f"the targets have shape {np.shape(y)}; PlackettLuce({self.items}) takes [batch, {self.items}]"
            )
        self.support.check(y, self.name)

    def output_scales(self, width: int) -> tuple[str, ...]:
        return ("logits",) * width

    def outputs(self, y: Targets) -> int:
        """Returns the number of items."""
        return self.items

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        """Returns the log probability of the ranking in nats, `[batch]`."""
        scores = jnp.take_along_axis(f, jnp.reshape(y, f.shape).astype(jnp.int32), axis=1)
        log_remaining = jax.lax.cumlogsumexp(scores, axis=1, reverse=True)
        return jnp.sum(scores - log_remaining, axis=1)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one ranking a row, `[batch, items]`: the order of the scores with Gumbel noise."""
        return jnp.argsort(-(f + jax.random.gumbel(key, f.shape, f.dtype)), axis=1)

    def mean(self, params: Params, f: Array) -> Array:
        """Returns the mean item number at each place, `[batch, items]`."""
        return self._average(params, f, lambda f, y: y.astype(f.dtype))

    def _average(self, params: Params, f: Array, function: Callable[[Array, Array], Array]) -> Array:
        if self.items > _ENUMERATED:
            return super()._average(params, f, function)

        def add(total: Array, order: Array) -> tuple[Array, None]:
            y = jnp.broadcast_to(order[None], f.shape)
            values = function(f, y)
            mass = jnp.exp(self.log_prob(params, f, y)).reshape(-1, *[1] * (values.ndim - 1))
            return total + mass * values, None

        orders = jnp.asarray(list(itertools.permutations(range(self.items))), jnp.int32)
        shape = jax.eval_shape(lambda order: function(f, jnp.broadcast_to(order[None], f.shape)), orders[0])
        return jax.lax.scan(add, jnp.zeros(shape.shape, shape.dtype), orders)[0]
