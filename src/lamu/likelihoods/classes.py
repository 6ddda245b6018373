"""Classes: two, several, ordered ones, and rankings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jax.nn import log_softmax, softmax

from lamu.likelihoods.interface import Likelihood
from lamu.likelihoods.links import Logit, ProbabilityLink, Tanh, require_probability_link
from lamu.record import record, static
from lamu.supports import Classes, OrderedClasses, Rankings, Signs, TwoClasses, require_positive
from lamu.typing import Array, DTypeLike, Number, Params, RandomKey, Targets

__all__ = ["Bernoulli", "Categorical", "Ordinal", "PlackettLuce"]


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

    def check(self, y: Targets) -> None:
        """Raises a ValueError unless the targets are the two values, `[batch]`."""
        y = np.asarray(y)
        if y.ndim != 1:
            raise ValueError(f"the targets have shape {y.shape}; Bernoulli takes zeros and ones of shape [batch]")
        self.support.check(y, "Bernoulli")

    def outputs(self, y: Targets) -> int:
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


@record
class Categorical(Likelihood):
    r"""One of several classes, a logit for each: \(p(y \mid f) = e^{f_y} / \sum_k e^{f_k}\).

    The outputs are `[batch, classes]`, the targets integers 0 to classes − 1, `[batch]`. Log-concave; the information
    is singular along (1, …, 1), since a constant added to every logit changes nothing.

    Attributes:
        classes: how many classes there are, two or more.

    Raises:
        TypeError: for something else than a whole number.
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
        """As many classes as there are."""
        return Classes(self.classes)

    def __post_init__(self) -> None:
        if not isinstance(self.classes, int | np.integer) or isinstance(self.classes, bool):
            raise TypeError(f"Categorical({self.classes!r}) is no number of classes; give a whole number, 2 or more")
        if self.classes < 2:
            raise ValueError(f"Categorical({self.classes}) has too few classes; give 2 or more")

    def check(self, y: Targets) -> None:
        """Raises a ValueError unless the targets are whole numbers from 0 to classes − 1, `[batch]`."""
        y = np.asarray(y)
        if y.ndim == 2 and y.shape[1] == self.classes:
            raise ValueError(f"the targets have shape {y.shape}, as if one-hot; pass the classes, np.argmax(y, axis=1)")
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

        The diagonal is taken as \(p_k \sum_{j \ne k} p_j\), which does not cancel where \(p_k (1 - p_k)\) would: the
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

    # diag(p) − p pᵀ = R Rᵀ with R = (I − p 1ᵀ) diag(√p): no decomposition, and for diagonals and sums no matrix a row.

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
    r"""A cumulative model: one output, and a cut-point between each class and the next. Log-concave in f.

    \[ P(y = k \mid f) = g^{-1}(c_k - f) - g^{-1}(c_{k-1} - f), \qquad c_{-1} = -\infty, \; c_{K-1} = \infty \]

    The targets are whole numbers from 0 to classes − 1, `[batch]`; the mean is the probabilities of the classes. With
    `Logit` it is the proportional-odds model, R's `polr`. A constant added to f and to every cut-point changes nothing,
    so a network needs no bias: `Linear(bias=False)`.

    Learned cut-points are `params["first"]`, c₀, and `params["log_gaps"]`, the logarithms of the differences, so they
    are in order at every value. Their prior is \(N(0, s^2)\) on each cut-point, given the order; its density in the
    parameters has the Jacobian of the gaps.

    Attributes:
        classes: K, two or more.
        link: g, `Logit` or `Probit`, or another link of probabilities.
        cuts: the cut-points, K − 1 numbers in order; None where they are learned.
        cut_scale: s.

    Raises:
        ValueError: if there are fewer than two classes, or cut-points are not one fewer, or not in order.
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
        """Returns the likelihood with as many classes as targets have.

        Args:
            y: targets, whole numbers from 0, each of which occurs.
            link: g; `Logit()` where None.

        Raises:
            ValueError: for numbers that leave some out.

        Examples:
            >>> from lamu.likelihoods import Ordinal
            >>> from lamu.likelihoods.links import Probit
            >>> Ordinal.of([2, 0, 1], Probit()).classes
            3
        """
        found = np.unique(np.asarray(y))
        _require_all(found, max(2, int(found[-1]) + 1))
        return cls(found.size, Logit() if link is None else link)

    @property
    def support(self) -> OrderedClasses:
        """As many classes as there are."""
        return OrderedClasses(self.classes)

    def check(self, y: Targets) -> None:
        """Raises a ValueError unless the targets are whole numbers from 0 to classes − 1, `[batch]`."""
        if np.ndim(y) != 1:
            raise ValueError(f"the targets have shape {np.shape(y)}; Ordinal takes integers of shape [batch]")
        self.support.check(y, f"Ordinal({self.classes})")

    def check_training(self, y: Targets) -> None:
        """Raises a ValueError too where a class has no row: nothing but the prior would tell its cut-points."""
        self.check(y)
        if self.cuts is None:
            _require_all(np.unique(np.asarray(y)), self.classes)

    def output_scales(self, width: int) -> tuple[str, ...]:
        return ("ordinal scores",) * width

    def outputs(self, y: Targets) -> int:
        return 1

    def init(self, y: Targets) -> Params:
        """Returns the cut-points of the shares of the classes, as if f were zero; half a row is added to each."""
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
        ordered = math.lgamma(self.classes)  # of the (K − 1)! orders of as many independent numbers this is one
        return ordered + jnp.sum(jax.scipy.stats.norm.logpdf(cuts, 0.0, self.cut_scale)) + jnp.sum(params["log_gaps"])

    def sample_prior(self, key: RandomKey, params: Params) -> Params:
        r"""Returns the parameters of sorted draws of \(N(0, s^2)\); nothing where the cut-points are given."""
        if self.cuts is not None:
            return params
        dtype = params["first"].dtype
        cuts = jnp.sort(jnp.asarray(self.cut_scale, dtype) * jax.random.normal(key, (self.classes - 1,), dtype))
        gaps = jnp.maximum(jnp.diff(cuts), jnp.finfo(dtype).tiny)  # two draws may be the same number
        return {"first": cuts[0], "log_gaps": jnp.log(gaps)}

    def dispersion_information(self, params: Params) -> Params:
        r"""Returns one for \(c_0\), and \((c_k - c_{k-1})^2\) for each logarithm of a gap.

        They bound the information at every f: a shift of all that lies above a cut-point has one at most (a third with
        `Logit`), and the logarithm moves it by the gap.
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
        # Where a class is the first or the last, the interval is one of any width, and is not taken.
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
        y, at = self._above(params, f, y)
        return jnp.where(y < 0, 0.0, jnp.where(y >= self.classes - 1, 1.0, self.link.probability(at)))

    def log_tails(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        y, at = self._above(params, f, y)
        below, above = self.link.log_probs(at)
        first, last = y < 0, y >= self.classes - 1
        below = jnp.where(first, -jnp.inf, jnp.where(last, 0.0, below))
        return below, jnp.where(first, 0.0, jnp.where(last, -jnp.inf, above))

    def _above(self, params: Params, f: Array, y: Array) -> tuple[Array, Array]:
        """The class of each target, and how far the cut-point above it lies from f."""
        y = jnp.floor(jnp.reshape(y, f.shape[:1]).astype(f.dtype))
        cuts = self.cut_points(params, f.dtype)
        return y, cuts[jnp.clip(y, 0, self.classes - 2).astype(jnp.int32)] - f[:, 0]

    def _log_classes(self, params: Params, f: Array) -> Array:
        """The log probabilities of all classes, `[batch, classes]`."""
        of_class = lambda k: self.log_prob(params, f, jnp.broadcast_to(k, f.shape[:1]))
        return jax.vmap(of_class, out_axes=1)(jnp.arange(self.classes))


def _require_all(found: np.ndarray, classes: int) -> None:
    """Raises a ValueError unless those that occur are all numbers from 0 to classes − 1."""
    if not np.array_equal(found, np.arange(classes)):
        missing = np.setdiff1d(np.arange(classes), found)
        raise ValueError(
            f"no row has the category {missing[0] if missing.size else found[0]!s}, and those that occur are "
            f"{found.tolist()}; number them without a gap, names, y = np.unique(y, return_inverse=True), and take "
            f"Ordinal({max(2, found.size)}), or give the cut-points"
        )


_ENUMERATED = 6  # items up to which all rankings, 720, are gone through


@record
class PlackettLuce(Likelihood):
    r"""Rankings of several items by a score each: \(p(y \mid f) = \prod_i e^{f_{y_i}} / \sum_{j \ge i} e^{f_{y_j}}\).

    The targets are `[batch, items]`, each row the items 0 to items − 1, best first. Log-concave; a constant added to
    every score changes nothing. Moments, entropy and Fisher information are sums over all rankings for up to six items,
    averages over draws for more. The mean and variance are of the entries of y, item numbers; what is predicted of a
    ranking is in its draws and its density.

    Attributes:
        items: how many there are, two or more.

    Raises:
        ValueError: if there are fewer than two items.

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
        left = jax.lax.cumlogsumexp(scores, axis=1, reverse=True)
        return jnp.sum(scores - left, axis=1)

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
