"""Separate priors by path pattern, such as normal biases and sparse kernels, or correlated filters in one layer."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.families import ExponentialFamily, Gaussian
from lamu.priors.interface import Prior, independent_parts, keep_patterns, merged_parts
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["ByPath"]


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
