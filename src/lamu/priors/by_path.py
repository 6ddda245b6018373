"""Another prior for each path pattern: normal biases beside sparse kernels, correlated filters in one layer alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.families import Gaussian
from lamu.operators import BlockDiagonal, Diagonal, Operator
from lamu.operators.interface import is_operator
from lamu.priors.interface import Prior
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["ByPath"]


@record
class ByPath(Prior):
    r"""Independent parts with priors of their own, \(p(\theta) = \prod_k p_k(\theta_k)\), told apart by path.

    Attributes:
        priors: a mapping from path patterns to priors, the first pattern that matches a leaf counting; kept as
            `patterns` with a tuple of its values. Each prior sees the leaves that are its own.
        patterns: filled in from the mapping.

    Raises:
        ValueError: for an empty mapping; and, where parameters are first seen, if a leaf matches no pattern, or a
            pattern no leaf that is left for it.
        TypeError: for a value that is no prior.

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
        if isinstance(self.priors, Mapping):
            object.__setattr__(self, "patterns", tuple(self.priors.keys()))
            object.__setattr__(self, "priors", tuple(self.priors.values()))
        if not self.patterns or len(self.patterns) != len(self.priors):
            raise ValueError(
                f"the priors {self.priors!r} have no patterns; give a mapping, for instance {{'*bias': Normal(10.0), "
                "'*': Laplace(0.1)}"
            )
        for pattern, prior in zip(self.patterns, self.priors, strict=True):
            if not isinstance(prior, Prior):
                raise TypeError(f"{pattern!r} has {prior!r}, which is no prior; give for instance Normal(1.0)")

    def check(self, params: Params) -> None:
        """Raises a ValueError if a leaf has no prior, a pattern no leaf, or what a prior of a part says."""
        tree.require_matches(self.patterns, params)
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

    def gaussian(self, params: Params) -> tuple[Params, Params] | None:
        """Returns means and precisions where every part is Gaussian of independent weights; else None."""
        found = [prior.gaussian(part) for prior, part in self._parts(params)]
        if any(each is None for each in found):
            return None
        means, precisions = zip(*found, strict=True)
        return _merged(means), _merged(precisions)

    def as_gaussian(self, params: Params) -> Gaussian | None:
        """Returns the Gaussian of an operator a leaf, where every part has one; else None."""
        if (known := self.gaussian(params)) is not None:
            return Gaussian(known[0], Diagonal(known[1]))
        found = [prior.as_gaussian(part) for prior, part in self._parts(params)]
        if any(each is None for each in found):
            return None
        blocks = [_blocks(each.precision) for each in found]  # pyright: ignore[reportOptionalMemberAccess]
        if any(each is None for each in blocks):
            return None
        return Gaussian(_merged([each.mean for each in found]), BlockDiagonal(_merged(blocks)))  # pyright: ignore[reportOptionalMemberAccess]

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Returns a draw, a tree like `params`."""
        parts = enumerate(self._parts(params))
        return _merged([prior.sample(jax.random.fold_in(key, i), part) for i, (prior, part) in parts])

    def _parts(self, params: Params) -> list[tuple[Prior, Params]]:
        """Each prior with the leaves that are its own, None in the place of the others."""
        chosen = tree.by_pattern({pattern: i for i, pattern in enumerate(self.patterns)}, params)
        own: Callable[[int], Params] = lambda i: jax.tree.map(lambda leaf, k: leaf if k == i else None, params, chosen)
        return [(prior, own(i)) for i, prior in enumerate(self.priors)]


def _merged(parts: Any) -> Params:
    """One tree of several that have None where another one has a leaf or an operator."""
    stop = lambda node: node is None or is_operator(node)
    return jax.tree.map(lambda *each: next((leaf for leaf in each if leaf is not None), None), *parts, is_leaf=stop)


def _blocks(precision: Operator) -> Params | None:
    """An operator as a tree of operators leaf by leaf, where it is one."""
    if isinstance(precision, Diagonal):
        return jax.tree.map(Diagonal, precision.values)
    return precision.blocks if isinstance(precision, BlockDiagonal) else None
