r"""Which weights share a scale: all, a layer, the weights into a unit, those out of an input, or each its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.priors.scale_laws import HalfCauchyScale, ScaleLaw
from lamu.record import record, static
from lamu.typing import Array, Params

__all__ = ["Scale"]

_GROUPS = ("all", "layer", "unit", "input", "weight")


@record
class Scale:
    r"""Scales τ of a network's weights, one for each group, and their common distribution.

    Values of the groups are a dictionary of arrays. Its key is "all", the path of a layer, or the path of a leaf; the
    shape of a value broadcasts to the leaves of the group.

    Attributes:
        law: the distribution of τ, a `ScaleLaw`.
        by: which weights share a scale: "all"; "layer", the leaves beside each other; "unit", the last axis of a leaf;
            "input", the last but one, where a leaf without inputs has one scale; "weight", none.
        leaves: the path pattern of the leaves that have such scales, "*kernel" by default, which leaves biases out.

    Raises:
        ValueError: for another word than these; and, where parameters are first seen, for a pattern without a leaf.
        TypeError: for a law that is none.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import Scale
        >>> weights = {"layers": {0: {"bias": jnp.zeros(2), "kernel": jnp.ones((3, 2))}}}
        >>> Scale(by="input").constant(2.0, weights)["layers/0/kernel"].shape
        (3, 1)
        >>> Scale(by="input").sums(weights)["layers/0/kernel"].ravel().tolist()
        [2.0, 2.0, 2.0]
    """

    law: ScaleLaw | Any = HalfCauchyScale(1.0)
    by: str = static(default="weight")
    leaves: str = static(default="*kernel")

    def __post_init__(self) -> None:
        if self.by not in _GROUPS:
            raise ValueError(f"by={self.by!r} names no groups of weights; give one of {', '.join(_GROUPS)}")
        if not isinstance(self.law, ScaleLaw):
            raise TypeError(
                f"law={self.law!r} is no distribution of a scale; give HalfCauchyScale, GammaVariance, "
                "InverseGammaVariance, or a class that inherits from ScaleLaw"
            )

    def check(self, params: Params) -> None:
        """Raises a ValueError if no leaf has such a scale."""
        tree.require_matches([self.leaves], params)

    def constant(self, value: Any, params: Params) -> dict[str, Array]:
        """Returns the same value for every group.

        Args:
            value: a number.
            params: a network's parameters.
        """
        groups = {}
        for path, leaf in zip(tree.paths(params), jax.tree.leaves(params), strict=True):
            if self.covers(path):
                groups[self._group(path)] = jnp.full(self._shape(leaf), value, jnp.result_type(leaf))
        return groups

    def sums(self, amounts: Params) -> dict[str, Array]:
        """Returns the sum over every group of amounts that weights have.

        Args:
            amounts: a tree like the parameters.
        """
        groups: dict[str, Array] = {}
        for path, leaf in zip(tree.paths(amounts), jax.tree.leaves(amounts), strict=True):
            if self.covers(path):
                group, shape = self._group(path), self._shape(leaf)
                others = tuple(i for i, n in enumerate(shape) if n == 1) if shape else None
                total = jnp.sum(leaf, axis=others, keepdims=bool(shape))
                groups[group] = groups[group] + total if group in groups else total
        return groups

    def covers(self, path: str) -> bool:
        """Returns whether the leaf of a path has such scales."""
        return tree.matches(path, self.leaves)

    def of(self, groups: dict[str, Array], path: str) -> Array:
        """Returns the values of a leaf's weights, of a shape that broadcasts to it.

        Args:
            groups: a value for every group.
            path: the path of a leaf that has such scales.
        """
        return groups[self._group(path)]

    def _group(self, path: str) -> str:
        if self.by == "all":
            return "all"
        return path.rpartition("/")[0] or "all" if self.by == "layer" else path

    def _shape(self, leaf: Array) -> tuple[int, ...]:
        """The shape of a leaf's scales: one number, or one axis of the leaf, or all."""
        if self.by in ("all", "layer"):
            return ()
        if self.by == "weight":
            return leaf.shape
        axis = leaf.ndim - (1 if self.by == "unit" else 2)
        return tuple(n if i == axis else 1 for i, n in enumerate(leaf.shape))
