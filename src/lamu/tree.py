r"""The vector space of parameters: pytrees of floating arrays, added, scaled and multiplied leaf by leaf.

Paths name leaves. A path is the leaf's keys joined by `/`, for instance `network/layers/0/kernel`, and a pattern is a
path with the shell's wildcards (`network/*/bias`), where `*` also crosses `/`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec

from lamu.base import fast_random
from lamu.typing import Array, Number, Numeric, Params, PyTree, RandomKey

__all__ = [
    "add",
    "average",
    "average_over",
    "broadcast",
    "by_path",
    "by_pattern",
    "cast",
    "dimension",
    "dot",
    "each",
    "has_tracers",
    "keys_like",
    "map_with_path",
    "matches",
    "merged",
    "nested",
    "normal",
    "paths",
    "ravel",
    "require_matches",
    "scale",
    "zeros_like",
]


def cast(factor: Number, like: object) -> Any:
    """Returns a scalar in the dtype of `like`; Python numbers are returned unchanged, since they take any dtype.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu import tree
        >>> tree.cast(jnp.float32(2.0), jnp.ones(3, jnp.float16)).dtype
        dtype('float16')
    """
    return factor if isinstance(factor, float | int) else factor.astype(jnp.result_type(like))


def add(a: Params, b: Params, factor: Number = 1.0) -> Params:
    """Returns a + factor · b.

    Examples:
        >>> from lamu import tree
        >>> tree.add({"w": 1.0}, {"w": 2.0}, -1.0)
        {'w': -1.0}
    """
    return jax.tree.map(lambda x, y: x + cast(factor, y) * y, a, b)


def scale(a: Params, factor: Number) -> Params:
    """Returns factor · a.

    Examples:
        >>> from lamu import tree
        >>> tree.scale({"w": 3.0}, 2.0)
        {'w': 6.0}
    """
    return jax.tree.map(lambda x: cast(factor, x) * x, a)


def broadcast(prefix: PyTree, like: Params) -> Params:
    """Broadcasts the leaves of a prefix tree over the leaves of a vector.

    Args:
        prefix: a number, or a tree of numbers and arrays that may stop anywhere.
        like: the vector.

    Raises:
        ValueError: for a tree that is no prefix of the vector.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu import tree
        >>> tree.broadcast({"w": 2.0}, {"w": {"bias": jnp.zeros(1), "kernel": jnp.zeros(2)}})["w"]["kernel"].tolist()
        [2.0, 2.0]
    """
    spread = lambda number, leaf: jnp.broadcast_to(jnp.asarray(number, jnp.result_type(leaf)), jnp.shape(leaf))
    return jax.tree.map(lambda number, below: jax.tree.map(lambda leaf: spread(number, leaf), below), prefix, like)


def dot(a: Params, b: Params) -> Array:
    """Returns the inner product ⟨a, b⟩ over all leaves, a scalar (zero for a tree without leaves).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu import tree
        >>> float(tree.dot({"w": jnp.ones(3)}, {"w": jnp.full(3, 2.0)}))
        6.0
    """
    products = jax.tree.leaves(jax.tree.map(lambda x, y: jnp.sum(x * y), a, b))
    return functools.reduce(jnp.add, products) if products else jnp.zeros(())


def average(stacked: PyTree) -> PyTree:
    """Returns the mean over the leading axis of every leaf; for integers, equal in all draws, the first.

    Args:
        stacked: a tree, leaves `[draws, ...]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.tree import average
        >>> found = average({"loss": jnp.array([1.0, 3.0]), "count": jnp.array([7, 7])})
        >>> float(found["loss"]), int(found["count"])
        (2.0, 7)
    """
    # A network's state may contain integers (counters).
    floating = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.floating)
    return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0) if floating(leaf) else leaf[0], stacked)


def average_over(function: Callable[[RandomKey], PyTree], key: RandomKey, samples: int) -> PyTree:
    """Returns the average of a function of a key over several keys, one after the other; for one, `function(key)`.

    Args:
        function: the function to average.
        key: the key, into which the number of the draw is folded.
        samples: the number of keys.

    Examples:
        >>> import jax
        >>> from lamu.tree import average_over
        >>> 0.0 < float(average_over(lambda key: jax.random.uniform(key), jax.random.key(0), 8)) < 1.0
        True
    """
    if samples == 1:
        return function(key)
    return average(each(lambda i: function(jax.random.fold_in(key, i)), samples))


def each(function: Callable[[Numeric], PyTree], count: int) -> PyTree:
    """Maps a function over the numbers below `count` and stacks the results; one at a time, to save memory.

    Inside of a mesh with the axis "samples" (`jax.set_mesh`, or `mesh` of `lamu.fit`) each device takes a part of the
    numbers.

    Args:
        function: a function of a traced integer.
        count: the number of values; a multiple of the devices of that axis.

    Examples:
        >>> from lamu.tree import each
        >>> each(lambda i: i * i, 4).tolist()
        [0, 1, 4, 9]
    """
    numbers = jnp.arange(count)
    devices = jax.sharding.get_abstract_mesh().shape.get("samples", 1)
    if devices == 1 or count % devices:
        return jax.lax.map(function, numbers)
    rounds = jax.lax.with_sharding_constraint(numbers.reshape(-1, devices), PartitionSpec(None, "samples"))
    side_by_side = jax.vmap(function, spmd_axis_name="samples")
    if count == devices:
        return side_by_side(rounds[0])
    return jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[2:]), jax.lax.map(side_by_side, rounds))


def zeros_like(a: Params) -> Params:
    """Returns the zero vector of the space of `a`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu import tree
        >>> float(tree.zeros_like({"b": jnp.ones(())})["b"])
        0.0
    """
    return jax.tree.map(jnp.zeros_like, a)


def copied(a: Params) -> Params:
    """Returns a tree with copied arrays, which a run may donate."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), a)


def dimension(a: Params) -> int:
    """Returns the number of real coordinates of the space of `a`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu import tree
        >>> tree.dimension({"w": jnp.ones((2, 3)), "b": jnp.ones(())})
        7
    """
    return sum(math.prod(np.shape(leaf)) for leaf in jax.tree.leaves(a))


def ravel(a: Params) -> tuple[Array, Callable[[Array], Params]]:
    """Returns `a` as one vector of its coordinates, and the inverse function.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu import tree
        >>> vector, unravel = tree.ravel({"w": jnp.arange(2.0)})
        >>> unravel(vector + 1.0)["w"].tolist()
        [1.0, 2.0]
    """
    return ravel_pytree(a)


def has_tracers(params: PyTree) -> bool:
    """Returns whether a leaf is traced, and so has no value to check.

    Examples:
        >>> import jax
        >>> from lamu import tree
        >>> tree.has_tracers({"w": 1.0}), bool(jax.jit(tree.has_tracers)({"w": 1.0}))
        (False, True)
    """
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(params))


def keys_like(key: RandomKey, a: PyTree) -> PyTree:
    """Returns one key a leaf, in a tree of the same structure.

    Examples:
        >>> import jax
        >>> from lamu import tree
        >>> sorted(tree.keys_like(jax.random.key(0), {"a": 0.0, "b": 0.0}))
        ['a', 'b']
    """
    leaves, structure = jax.tree.flatten(a)
    return jax.tree.unflatten(structure, list(jax.random.split(key, len(leaves))) if leaves else [])


def normal(key: RandomKey, like: Params) -> Params:
    """Returns a standard normal draw from the space of `like`.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu import tree
        >>> tree.normal(jax.random.key(0), {"w": jnp.zeros((2, 3))})["w"].shape
        (2, 3)
    """
    leaves, structure = jax.tree.flatten(like)
    if not leaves:
        return like
    shapes, dtypes = [jnp.shape(x) for x in leaves], [jnp.result_type(x) for x in leaves]
    return structure.unflatten(fast_random.normals(key, shapes, dtypes))


def map_with_path(function: Callable[..., object], a: PyTree, *rest: PyTree) -> PyTree:
    """Maps `function(path, leaf, *rest_leaves)` over the leaves.

    Examples:
        >>> from lamu import tree
        >>> tree.map_with_path(lambda path, leaf: path, {"layers": {0: 1.0}})
        {'layers': {0: 'layers/0'}}
    """
    return jax.tree_util.tree_map_with_path(lambda path, *leaves: function(_join(path), *leaves), a, *rest)


def merged(a: Params, b: Params) -> Params:
    """Merges two trees that have None where the other one has a leaf.

    Args:
        a: a tree.
        b: the other.

    Examples:
        >>> from lamu.tree import merged
        >>> merged({"a": 1.0, "b": None}, {"a": None, "b": 2.0})
        {'a': 1.0, 'b': 2.0}
    """
    return jax.tree.map(lambda x, y: y if x is None else x, a, b, is_leaf=lambda leaf: leaf is None)


def paths(a: PyTree) -> list[str]:
    """Returns the paths of the leaves, in the tree's order.

    Examples:
        >>> from lamu import tree
        >>> tree.paths({"b": 0.0, "a": [1.0, 2.0]})
        ['a/0', 'a/1', 'b']
    """
    return [_join(path) for path, _ in jax.tree_util.tree_flatten_with_path(a)[0]]


def by_path(a: PyTree) -> dict[str, Any]:
    """Returns the leaves by their paths, in the tree's order.

    Examples:
        >>> from lamu import tree
        >>> tree.by_path({"layer": {"kernel": 1.0, "bias": 0.0}})
        {'layer/bias': 0.0, 'layer/kernel': 1.0}
    """
    return dict(zip(paths(a), jax.tree.leaves(a), strict=True))


def nested(leaves: Mapping[str, object], separator: str = "/") -> dict[str, Any]:
    """Returns nested dictionaries of leaves given by path.

    Args:
        leaves: leaves by path.
        separator: the separator of names in a path; PyTorch uses a dot.

    Examples:
        >>> from lamu import tree
        >>> tree.nested({"fc.weight": 1.0, "fc.bias": 0.0}, ".")
        {'fc': {'weight': 1.0, 'bias': 0.0}}
    """
    root: dict[str, Any] = {}
    for path, leaf in leaves.items():
        *names, last = path.split(separator)
        inside = root
        for name in names:
            inside = inside.setdefault(name, {})
        inside[last] = leaf
    return root


def matches(path: str, pattern: str) -> bool:
    """Whether a leaf's path matches a pattern.

    Examples:
        >>> from lamu import tree
        >>> tree.matches("layers/0/bias", "layers/*/bias")
        True
    """
    return fnmatchcase(path, pattern)


def require_matches(patterns: Iterable[str], a: PyTree) -> None:
    """Checks that every pattern matches a leaf, to find misspelt ones.

    Raises:
        ValueError: if one does not; the message lists the leaves.

    Examples:
        >>> from lamu import tree
        >>> tree.require_matches(["*/bais"], {"layer": {"bias": 0.0}})
        Traceback (most recent call last):
            ...
        ValueError: the pattern '*/bais' matches no leaf; the leaves are layer/bias
    """
    names = paths(a)
    for pattern in patterns:
        if not any(matches(name, pattern) for name in names):
            leaves = f"the leaves are {', '.join(names)}" if names else "there are no leaves"
            raise ValueError(f"the pattern {pattern!r} matches no leaf; {leaves}")


def by_pattern(table: Mapping[str, object], a: PyTree) -> PyTree:
    """Returns the tree of the table's values for each leaf, by the first pattern that matches its path.

    Args:
        table: values by path pattern, in order of precedence.
        a: the tree.

    Raises:
        ValueError: if a leaf matches no pattern.

    Examples:
        >>> from lamu import tree
        >>> tree.by_pattern({"*/bias": 10.0, "*": 1.0}, {"layer": {"bias": 0.0, "kernel": 0.0}})
        {'layer': {'bias': 10.0, 'kernel': 1.0}}
    """

    def look_up(path: str, _: object) -> Any:
        for pattern, value in table.items():
            if fnmatchcase(path, pattern):
                return value
        raise ValueError(f"no pattern matches the leaf {path!r}; add one, for instance '*'")

    return map_with_path(look_up, a)


def _join(path: tuple[object, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
