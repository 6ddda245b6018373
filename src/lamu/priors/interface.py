"""Base classes of priors, functions on their Gaussian parts, and separate priors by path pattern."""

from __future__ import annotations

import itertools
import textwrap
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.families import ExponentialFamily, Gaussian
from lamu.operators import BlockDiagonal, Dense, Diagonal, Operator, Scalar
from lamu.operators.interface import is_operator
from lamu.record import record, static
from lamu.typing import Array, Params, PyTree, RandomKey

__all__ = [
    "ByPath",
    "ConditionalPrior",
    "IndependentLeaves",
    "Prior",
    "by_patterns",
    "gaussian_belief",
    "independent_normal",
    "independent_parts",
    "keep_patterns",
    "merged_parts",
    "restricted",
    "same_leaves",
]


_LARGEST = 4096  # coordinates of one matrix over several leaves; a convention of memory


def independent_parts(parts: Sequence[Gaussian | None]) -> Gaussian | None:
    """Returns the Gaussian of independent parts, over the leaves of the Gaussian parts; None where there are none."""
    # The precision is a tree of blocks where each covers one leaf. Where a part has one matrix over several leaves it
    # is one matrix over all, of at most 4,096 coordinates; beyond that such a part is left out, and enters through the
    # loss.
    some = [part for part in parts if part is not None and jax.tree.leaves(part.mean)]
    if len(some) <= 1:
        return some[0] if some else next((part for part in parts if part is not None), None)
    if all(isinstance(part.precision, Diagonal | Scalar) for part in some):
        means, values = [part.mean for part in some], [part.precision.diagonal(part.mean) for part in some]
        return Gaussian(merged_parts(means), Diagonal(merged_parts(values)))
    blocks = [(part.mean, _blocks(part.precision, part.mean)) for part in some]
    if any(block is None for _, block in blocks) and sum(tree.dimension(part.mean) for part in some) <= _LARGEST:
        return _one_matrix(some)
    blocks = [(mean, block) for mean, block in blocks if block is not None]
    if not blocks:
        return None
    return Gaussian(merged_parts([mean for mean, _ in blocks]), BlockDiagonal(merged_parts([b for _, b in blocks])))


def merged_parts(parts: Sequence[Params]) -> Params:
    """Merges several trees that have None where another one has a leaf or an operator."""
    stop = lambda node: node is None or is_operator(node)
    return jax.tree.map(lambda *each: next((leaf for leaf in each if leaf is not None), None), *parts, is_leaf=stop)


def restricted(gaussian: Gaussian, like: Params) -> Gaussian | None:
    """Restricts a Gaussian to the leaves of a tree, with None for the others; None where leaves are correlated."""
    stop = lambda node: node is None or is_operator(node)
    keep = lambda part: jax.tree.map(lambda x, value: None if x is None else value, like, part, is_leaf=stop)
    if isinstance(gaussian.precision, Scalar):
        return Gaussian(keep(gaussian.mean), gaussian.precision)
    if isinstance(gaussian.precision, Diagonal):
        return Gaussian(keep(gaussian.mean), Diagonal(keep(gaussian.precision.values)))
    if isinstance(gaussian.precision, BlockDiagonal):
        return Gaussian(keep(gaussian.mean), BlockDiagonal(keep(gaussian.precision.blocks)))
    return None


def keep_patterns(prior: Prior, field: str) -> None:
    """Stores a field that is a mapping from path patterns as the tuple `patterns` and the tuple of its values."""
    # JAX would sort the keys of a dictionary, and lose the order of precedence.
    given = getattr(prior, field)
    if isinstance(given, Mapping):
        object.__setattr__(prior, "patterns", tuple(given.keys()))
        object.__setattr__(prior, field, tuple(given.values()))


def by_patterns(patterns: tuple[str, ...] | None, values: PyTree, params: Params) -> Params:
    """Returns the value of each leaf, by the first matching pattern; the single value where there are no patterns."""
    if patterns is None:
        return jax.tree.map(lambda _: values, params)
    return tree.by_pattern(dict(zip(patterns, values, strict=True)), params)


def same_leaves(a: Params, b: Params) -> bool:
    """Whether two trees have leaves at the same paths."""
    return jax.tree.structure(a) == jax.tree.structure(b)


def _one_matrix(parts: Sequence[Gaussian]) -> Gaussian:
    """Returns the Gaussian of independent parts with one matrix over all of their leaves."""
    mean = merged_parts([part.mean for part in parts])
    flat, unravel = tree.ravel(mean)
    numbers = unravel(jnp.arange(flat.size, dtype=flat.dtype))
    matrix = jnp.zeros((flat.size, flat.size), flat.dtype)
    for part in parts:
        numbered = jax.tree.map(
            lambda leaf, number: None if leaf is None else number, part.mean, numbers, is_leaf=lambda leaf: leaf is None
        )
        order = tree.ravel(numbered)[0].astype(jnp.int32)
        matrix = matrix.at[order[:, None], order[None]].set(part.precision.dense(part.mean).astype(flat.dtype))
    return Gaussian(mean, Dense(matrix))


def _blocks(precision: Operator, like: Params) -> Params | None:
    """Returns an operator as a tree of operators by leaf, or None where it is not block-diagonal."""
    if isinstance(precision, Diagonal | Scalar):
        return jax.tree.map(Diagonal, precision.diagonal(like))
    if isinstance(precision, Dense) and len(jax.tree.leaves(like)) == 1:
        return jax.tree.map(lambda _: precision, like)
    return precision.blocks if isinstance(precision, BlockDiagonal) else None


def require_prior(prior: object) -> None:
    """Raises a TypeError, with a remedy, for a value that is not a prior of weights."""
    if isinstance(prior, Prior) and not isinstance(prior, type):
        return
    way = "give one of lamu.priors, for instance Normal(1.0)"
    if isinstance(prior, type) and issubclass(prior, Prior):
        way = f"give an object of the class, for instance {prior.__name__}(), in the place of the class"
    elif type(prior).__name__ == "FanIn":
        way = f"a scale alone has no shape; write Normal({prior!r})"
    elif isinstance(prior, int | float) and not isinstance(prior, bool):
        way = f"write Normal({prior!r}) for a normal of that standard deviation"
    elif type(prior).__module__.startswith("numpyro."):
        way = f"a distribution of NumPyro is of a site of lamu.from_numpyro; {way}"
    raise TypeError(f"the prior is {textwrap.shorten(repr(prior), 100, placeholder='…')}; {way}")


@runtime_checkable
class Prior(Protocol):
    r"""Base class of priors: normalised distributions \(p(\theta)\) of a network's parameters.

    `params` are the network's parameters alone: dispersion parameters have the likelihood's own prior. They contain
    frozen and free leaves, except where `given` returns a prior of the free leaves alone.

    A custom prior inherits from this class, is a `lamu.record.record`, and defines `log_prob`. The other methods have
    defaults.
    """

    @abstractmethod
    def log_prob(self, params: Params) -> Array:
        r"""Returns \(\log p(\theta)\), a scalar in nats."""
        ...

    def check(self, params: Params) -> None:
        """Raises a ValueError if the prior does not fit these parameters; by default no check."""
        del params

    def gaussian(self, params: Params) -> Gaussian | None:
        """Returns the Gaussian of the leaves that are jointly Gaussian given the others, with None for the others.

        None by default, where no leaf is: the prior then enters every algorithm through the loss. An algorithm with a
        Gaussian belief uses the mean and the precision of the Gaussian leaves, and the gradient of the log density in
        the others.

        Args:
            params: the parameters. Where the Gaussian leaves do not depend on the others, only paths, shapes and dtypes
                are used; else mean and precision are those at the values of the others.
        """
        del params

    def exponential(self, params: Params) -> ExponentialFamily | None:
        """Returns the prior of all these leaves as a belief of an exponential family, or None.

        By default that of `gaussian`. A belief of the same family adds its natural parameters exactly.

        Args:
            params: the leaves of the belief, with None for others.
        """
        gaussian = self.gaussian(params)
        return gaussian if gaussian is not None and same_leaves(gaussian.mean, params) else None

    def kinks(self, params: Params) -> tuple[Params, Params] | None:
        r"""Returns the locations and slopes of the kinks of the log density; None by default, where it is smooth.

        \(-\log p\) has the slopes \(\pm a_i\) on the two sides of \(\theta_i = m_i\), plus those of a smooth part, so
        that \(\theta_i = m_i\) is a mode where the slope of all other terms is smaller than \(a_i\). `map_estimate`
        then finds it exactly. The gradient of `log_prob` at m must be that of the smooth part alone (JAX's `abs` has
        slope 1 at zero; `x * sign(x)` has slope 0).

        Args:
            params: the parameters, for their structure.

        Returns:
            m and a, trees like `params`; a is zero where there is no kink.
        """
        del params

    def given(self, frozen: Params) -> Prior:
        """Returns the prior of the free leaves given the values of frozen ones, up to a constant.

        A prior of independent leaves (`IndependentLeaves`) returns itself, and is evaluated on the free ones alone. By
        default the prior is evaluated on the complete tree, so that frozen weights matter where scales or other leaves
        depend on them.

        Args:
            frozen: the frozen leaves, a tree with None where a leaf is free.
        """
        return ConditionalPrior(self, frozen)

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Returns a draw, a tree like `params`, for simulations."""
        del key, params
        raise NotImplementedError(f"{type(self).__name__} cannot be simulated from; define its `sample(key, params)`")


class IndependentLeaves(Prior):
    """Base class of priors with independent leaves, in which frozen leaves have no effect on free ones."""

    _checks_arguments = True  # of constructors, by `record`

    def given(self, frozen: Params) -> Prior:
        return self


@record
class ConditionalPrior(Prior):
    r"""The prior of the free leaves given frozen ones, \(p(\theta_{\text{free}} \mid \theta_{\text{frozen}})\).

    The density is the joint one of the complete tree, so that it is not normalised in the free leaves alone.

    Attributes:
        prior: the prior of the complete tree.
        frozen: the frozen leaves, with None where a leaf is free.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import ConditionalPrior, Normal
        >>> prior = ConditionalPrior(Normal(0.5), {"bias": jnp.zeros(1), "kernel": None})
        >>> prior.gaussian({"bias": None, "kernel": jnp.ones(1)}).precision.values
        {'bias': None, 'kernel': Array([4.], dtype=float64)}
    """

    prior: Prior
    frozen: Params

    def log_prob(self, params: Params) -> Array:
        """Returns the log density of free and frozen leaves together, a scalar in nats."""
        return self.prior.log_prob(tree.merged(params, self.frozen))

    def check(self, params: Params) -> None:
        """Raises the errors of the prior for the complete tree."""
        self.prior.check(tree.merged(params, self.frozen))

    def gaussian(self, params: Params) -> Gaussian | None:
        """Returns the free leaves that are Gaussian; None where they are correlated with frozen ones."""
        gaussian = self.prior.gaussian(tree.merged(params, self.frozen))
        return None if gaussian is None else restricted(gaussian, params)

    def kinks(self, params: Params) -> tuple[Params, Params] | None:
        kinks = self.prior.kinks(tree.merged(params, self.frozen))
        free = lambda part: jax.tree.map(
            lambda x, k: None if x is None else k, params, part, is_leaf=lambda x: x is None
        )
        return None if kinks is None else (free(kinks[0]), free(kinks[1]))

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Raises a NotImplementedError: a conditional distribution has no sampler in general."""
        raise NotImplementedError(f"{type(self.prior).__name__} has no draws given frozen leaves; free them for a draw")


@record
class ByPath(Prior):
    r"""Independent priors of parts of the parameters by path pattern, \(p(\theta) = \prod_k p_k(\theta_k)\).

    Attributes:
        priors: a mapping from path patterns to priors; stored as `patterns` with a tuple of its values. Each leaf has
            the prior of the first pattern that matches it, so that a later pattern may include all leaves of an earlier
            one, as "*" does. Patterns that overlap otherwise are refused.
        patterns: set from the mapping.

    Raises:
        ValueError: for an empty mapping; and, at the first parameters, for a leaf without a matching pattern, a pattern
            without a remaining leaf, or two patterns that overlap without one including the other.
        TypeError: for a value that is not a prior.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import ByPath, Laplace, Normal
        >>> prior = ByPath({"*bias": Normal(10.0), "*": Laplace(0.1)})
        >>> weights = {"bias": jnp.ones(1), "kernel": jnp.ones(1)}
        >>> parts = Normal(10.0).log_prob({"w": jnp.ones(1)}) + Laplace(0.1).log_prob({"w": jnp.ones(1)})
        >>> float(prior.log_prob(weights)) == float(parts)
        True
    """

    priors: Any
    patterns: tuple[str, ...] = static(default=())

    def __post_init__(self) -> None:
        keep_patterns(self, "priors")
        if not self.patterns or len(self.patterns) != len(self.priors):
            raise ValueError(
                f"the priors {self.priors!r} have no patterns; give a mapping, for instance {{'*bias': Normal(10.0), "
                "'*': Laplace(0.1)}"
            )
        for pattern, prior in zip(self.patterns, self.priors, strict=True):
            if not isinstance(prior, Prior):
                raise TypeError(f"{pattern!r} has {prior!r}, which is not a prior; give for instance Normal(1.0)")

    def check(self, params: Params) -> None:
        """Raises a ValueError if a leaf has no prior, a pattern has no leaf, or a part's prior raises one."""
        tree.require_matches(self.patterns, params)
        self._require_order(params)
        for pattern, (prior, part) in zip(self.patterns, self._parts(params), strict=True):
            if not jax.tree.leaves(part):
                raise ValueError(
                    f"every leaf of the pattern {pattern!r} has the prior of a pattern before it; put {pattern!r} first"
                )
            prior.check(part)

    def log_prob(self, params: Params) -> Array:
        """Returns the sum over the parts, a scalar in nats."""
        parts = [prior.log_prob(part) for prior, part in self._parts(params) if jax.tree.leaves(part)]
        return jnp.sum(jnp.stack(parts)) if parts else jnp.asarray(0.0)

    def gaussian(self, params: Params) -> Gaussian | None:
        """Returns the Gaussian of the parts that are Gaussian, with None for the other leaves."""
        return independent_parts([prior.gaussian(part) for prior, part in self._parts(params)])

    def exponential(self, params: Params) -> ExponentialFamily | None:
        """Returns the belief of the part that contains all the leaves, or the Gaussian of several parts."""
        parts = [(prior, part) for prior, part in self._parts(params) if jax.tree.leaves(part)]
        return parts[0][0].exponential(params) if len(parts) == 1 else super().exponential(params)

    def kinks(self, params: Params) -> tuple[Params, Params] | None:
        """Returns the kinks of the parts, with zeros for parts without kinks."""
        parts = [(prior.kinks(part), part) for prior, part in self._parts(params)]
        if all(kinks is None for kinks, _ in parts):
            return None
        kinks = [(tree.zeros_like(part),) * 2 if part_kinks is None else part_kinks for part_kinks, part in parts]
        return merged_parts([places for places, _ in kinks]), merged_parts([slopes for _, slopes in kinks])

    def given(self, frozen: Params) -> ByPath:
        """Returns the parts, each given its frozen leaves."""
        return ByPath(tuple(prior.given(part) for prior, part in self._parts(frozen)), self.patterns)

    def sample(self, key: RandomKey, params: Params) -> Params:
        parts = enumerate(self._parts(params))
        return merged_parts([prior.sample(jax.random.fold_in(key, i), part) for i, (prior, part) in parts])

    def _require_order(self, params: Params) -> None:
        """Raises a ValueError where two patterns overlap, and neither includes the other."""
        own = {
            pattern: {path for path in tree.paths(params) if tree.matches(path, pattern)} for pattern in self.patterns
        }
        for first, second in itertools.combinations(self.patterns, 2):
            both = own[first] & own[second]
            if both and not own[first] <= own[second] and not own[second] <= own[first]:
                raise ValueError(
                    f"the leaf {min(both)!r} has two priors, of the patterns {first!r} and {second!r}; give it a "
                    "pattern of its own, and narrow one of the two"
                )

    def _parts(self, params: Params) -> list[tuple[Prior, Params]]:
        """Returns each prior with its leaves, and None for the others."""
        chosen = tree.by_pattern({pattern: i for i, pattern in enumerate(self.patterns)}, params)
        own: Callable[[int], Params] = lambda i: jax.tree.map(lambda leaf, k: leaf if k == i else None, params, chosen)
        return [(prior, own(i)) for i, prior in enumerate(self.priors)]


def gaussian_belief(prior: Prior, params: Params) -> Gaussian | None:
    """Returns a prior as a Gaussian with an operator as precision, or None where a leaf is not Gaussian.

    Args:
        prior: any prior.
        params: parameters of the right structure.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import Normal, gaussian_belief
        >>> gaussian_belief(Normal(0.5), {"w": jnp.zeros(2)}).precision.values["w"].tolist()
        [4.0, 4.0]
    """
    gaussian = prior.gaussian(params)
    return gaussian if gaussian is not None and same_leaves(gaussian.mean, params) else None


def independent_normal(prior: Prior, params: Params) -> tuple[Params, Params] | None:
    """Returns mean and precision of every weight; None where weights are correlated, or a leaf is not Gaussian.

    Args:
        prior: any prior.
        params: parameters of the right structure.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import Normal
        >>> from lamu.priors import independent_normal
        >>> independent_normal(Normal(0.5), {"w": jnp.zeros(2)})[1]["w"].tolist()
        [4.0, 4.0]
    """
    gaussian = gaussian_belief(prior, params)
    if gaussian is None or not isinstance(gaussian.precision, Diagonal | Scalar):
        return None
    return gaussian.mean, gaussian.precision.diagonal(gaussian.mean)
