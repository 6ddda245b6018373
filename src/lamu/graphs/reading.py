"""Reads the data of a graph, arrays by name, as rows, and validates them before any computation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory, tree
from lamu.base.compile_once import block, is_spread, joined_blocks, lenient, padded_blocks
from lamu.data.arrays import Arrays, Incomplete
from lamu.data.stream import Stream
from lamu.data.wording import nearest
from lamu.graphs.expressions import Environment, Indexed, Input, Variable
from lamu.graphs.joint import shape_of, value_of
from lamu.graphs.network import applications
from lamu.graphs.program import GraphSite
from lamu.graphs.statistics import Categories, States
from lamu.typing import Array, Data

__all__ = ["associative", "in_blocks", "over_blocks", "over_rows", "read", "require_observed", "require_shapes"]


def associative(scan: str) -> bool:
    """Returns whether a series uses associative scans."""
    if scan not in ("sequential", "associative"):
        raise ValueError(f'scan={scan!r} is not known; give "sequential" or "associative"')
    return scan == "associative"


# Documents are padded to the longest. Sorted by length and in blocks, a block needs only the padding of its own
# longest row, and the arrays that an iteration reads repeatedly are small enough for a CPU cache.


ROWS = 64
WIDTHS = 8
_ROWS_AT_ONCE = 256  # rows whose gradients are computed together: enough for two threads, and few enough for a cache


def over_rows(function: Callable[[Mapping[str, Any]], Any], data: Mapping[str, Any]) -> Any:
    """Applies a function to every row, along a leading axis: `jax.vmap`, in blocks if lengths differ."""
    documents = _documents(data)
    rows = jax.tree.leaves(data)[0].shape[0]
    if not documents or rows <= ROWS:
        return jax.vmap(function)(data)
    longest = max(data[f"{name}.counts"].shape[1] for name in documents)
    widths = sorted({-(-longest * part // WIDTHS) for part in range(1, WIDTHS + 1)})
    length = jnp.max(jnp.stack([_length(data[f"{name}.counts"]) for name in documents]), axis=0)
    order = jnp.argsort(length)
    padded = jnp.concatenate([order, jnp.broadcast_to(order[-1:], (-rows % ROWS,))]).reshape(-1, ROWS)

    def at_width(width: int) -> Callable[[Mapping[str, Any]], Any]:
        document_arrays = {f"{name}.{part}" for name in documents for part in ("ids", "counts")}

        def cut(block: Mapping[str, Any]) -> Any:
            return jax.vmap(function)(
                {name: leaf[:, :width] if name in document_arrays else leaf for name, leaf in block.items()}
            )

        return cut

    def of_block(places: Array) -> Any:
        block = jax.tree.map(lambda leaf: leaf[places], dict(data))
        place = jnp.searchsorted(jnp.asarray(widths), jnp.max(length[places]))
        return jax.lax.switch(place, [at_width(width) for width in widths], block)

    back = jnp.argsort(order)
    results = jax.lax.map(of_block, padded)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[back], results)


def in_blocks(function: Callable[..., Any], data: Mapping[str, Any], *beside: Any) -> Any:
    """Applies a function to every row, along a leading axis: `jax.vmap`, with documents in blocks of some rows."""
    # With gradients, so that all blocks have one width: the table that a document's words look up fills a cache, and
    # not the memory.
    if not _documents(data) or len(jax.tree.leaves(data)[0]) <= _ROWS_AT_ONCE:
        return jax.vmap(function)(data, *beside)
    return jax.lax.map(lambda row: function(*row), (dict(data), *beside), batch_size=_ROWS_AT_ONCE)


def _documents(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of the documents of a row."""
    return tuple(name.removesuffix(".counts") for name in data if name.endswith(".counts"))


def _length(counts: Array) -> Array:
    """Returns the number of columns up to the last word of every row."""
    return jnp.max(jnp.where(counts > 0, jnp.arange(1, counts.shape[1] + 1), 0), axis=1)


_MOST = 4096  # rows at a time: more are not faster
_ARRAYS_AT_ONCE = 2  # arrays of the largest size: the input and output of an operation


def over_blocks(function: Callable[[Any, Array], Any], data: Data, axis: int = 0, most: int | None = None) -> Any:
    """Applies a function to all rows, padded to blocks of one size that fit in `lamu.memory.budget()`."""
    # `most`: rows at a time; 4,096 where None.
    leaves = jax.tree.leaves(data)
    count, number_of = leaves[0].shape[0], lambda first: jax.device_put(np.int32(first))
    if tree.has_tracers(leaves):
        return function(data, number_of(0))
    most = block(count, most or _MOST)
    kind = lambda leaf: jax.dtypes.canonicalize_dtype(leaf.dtype)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((most, *leaf.shape[1:]), kind(leaf)), data)
    bytes_needed = _ARRAYS_AT_ONCE * memory.largest_array(function, shapes, number_of(0))
    size = most if bytes_needed <= memory.budget() else block(count, max(1, most * memory.budget() // bytes_needed))
    if size == count or (size > count and any(map(is_spread, leaves))):
        return function(data, number_of(0))
    blocks = enumerate(padded_blocks(data, count, size))
    parts = [function(rows, number_of(number * size)) for number, rows in blocks]
    return jax.tree.map(lambda *leaves: joined_blocks(leaves, count, axis), *parts)


def read(data: Data, sites: tuple[GraphSite, ...], columns: tuple[str, ...], learned: bool = True) -> Arrays | Stream:
    """Returns data as rows, in which something must be observed if they are learned from."""
    if isinstance(data, Arrays | Stream):
        return data
    if not isinstance(data, Mapping):
        raise TypeError(
            f"data is a {type(data).__name__}; pass arrays by the names of the program's variables, for instance "
            f"{{{sites[-1].name!r}: ...}}"
        )
    flat = _flat(data, sites)
    columns_and_fields = [*columns, *(f for site in sites for f in _fields(site))]
    names = [name for name in columns_and_fields if name in flat]
    _refuse_unknown(flat, columns_and_fields)
    if not set(names) - (set(columns) if learned else set()):
        raise ValueError(f"the data observe no variable of a row; give some of {', '.join(columns_and_fields)}")
    lacking = [name for name in columns if name not in flat]
    if lacking:
        raise ValueError(f"the data lack the input {lacking[0]!r}, which the program asks for; add it")
    for name, part in flat.items():
        if isinstance(part, Mapping):
            raise TypeError(
                f"{name} is a mapping of {', '.join(part)}, and a variable of a graph is one array; take lamu.Model "
                "for censored targets and numbers of trials, or a NumPyro program by lamu.from_numpyro"
            )
    flat = {name: _labels(name, part, sites) for name, part in flat.items()}
    rows = Arrays.named(flat, names, missing=True)
    rows = replace(rows, y={name: _checked(name, part, sites) for name, part in rows.y.items()})
    _refuse_holes_above(rows.y, sites)
    seen = [name for name in names if name not in columns]
    if learned and all(isinstance(rows.y[name], Incomplete) and not rows.y[name].observed.any() for name in seen):
        verb = "is" if len(seen) == 1 else "are"
        raise ValueError(f"{' and '.join(seen)} {verb} NaN in every row, so that the data observe nothing; give some")
    for indexed in _by_inputs([site.factor for site in sites]):
        _require_members(indexed, {name: rows.y[name] for name in columns})
    return rows


def require_observed(rows: Arrays, sites: tuple[GraphSite, ...]) -> None:
    """Raises a ValueError for a row whose entries are all missing: it has nothing that its latents could explain."""
    fields = {field for site in sites for field in _fields(site)}
    parts = [part for name, part in rows.y.items() if name in fields]
    if not all(isinstance(part, Incomplete) for part in parts):
        return
    seen = [np.asarray(part.observed).reshape(len(part.observed), -1).any(axis=1) for part in parts]
    empty = np.flatnonzero(~np.any(seen, axis=0))
    if len(empty):
        raise ValueError(
            f"row {empty[0]} has no entry that is observed; drop it, or draw new rows by "
            "lamu.latent.generate(posterior, n)"
        )


def _labels(name: str, part: Any, sites: tuple[GraphSite, ...]) -> Any:
    """Returns integers of a category with NaN instead of −1, scikit-learn's code for unknown labels."""
    site = next((site for site in sites if site.name == name), None)
    if site is None or site.kind is not Categories or isinstance(part, tuple | list):
        return part
    value = np.asarray(part)
    if not np.issubdtype(value.dtype, np.integer) or not (value == -1).any():
        return part
    return np.where(value == -1, np.nan, value.astype(float))


def _checked(name: str, part: Incomplete, sites: tuple[GraphSite, ...]) -> Any:
    """Returns an array, validated; without its mask if all entries are observed."""
    value, observed = np.asarray(part.value), np.asarray(part.observed)
    site = next((site for site in sites if name in _fields(site)), None)
    if site is None:
        if not observed.all():
            raise ValueError(f"the input {name!r} is NaN in a row, and an input is not modelled; fill it in")
        return part.value
    site.factor.check(name, value, observed)
    own = site.shape
    numbered = issubclass(site.kind, Categories | States)  # data are integers instead of one-hot vectors
    events = own[:-1] if own is not None and numbered else own
    if events is not None and not site.factor.is_of_words:
        _require_shape(name, value.shape, events)
    if observed.all():
        return part.value
    if not site.factor.misses and observed.any():
        row = int(np.argwhere(~observed)[0][0])
        raise ValueError(
            f"{name} is NaN in row {row}, and {type(site.factor).__name__.removesuffix('Factor')} misses no single "
            "entries; write independent ones with graphs.Normal (of a series, observations of it), or drop the row"
        )
    return part


def _require_shape(name: str, shape: tuple[int, ...], events: tuple[int, ...]) -> None:
    """Raises a ValueError for data `[N, ...]` whose rows have another shape than the program gives them."""
    if shape[1:] == events:
        return
    remedy = f"give [{', '.join(['N', *map(str, events)])}]"
    if events[:1] == shape[:1]:  # as of an index that is an array with an entry for each row
        remedy = 'an index of all rows is data: mean[m.data("group")] with the data {"group": index, ...}'
    raise ValueError(f"{name} has the shape {shape}, and the program makes {events} of a row; {remedy}")


def require_shapes(rows: Arrays, shared: tuple[GraphSite, ...], sites: tuple[GraphSite, ...]) -> None:
    """Raises a ValueError for data of another shape than inputs of a row give their variable."""
    open_to = {
        site.name: site
        for site in sites
        if site.shape is None and site.factor.exact and not site.factor.is_of_words
        if value_of(rows.y, site.name)[0] is not None
    }
    if not open_to:
        return

    def shapes(first: Data) -> dict[str, Array]:
        environment, known = Environment({}, first), {}
        for site in (*shared, *sites):
            if any(applications(site.factor)):
                continue
            value = value_of(first, site.name)[0] if site.in_rows else None
            if value is not None:
                if site.name in open_to and site.factor.names <= environment.statistics.keys():
                    with suppress(ValueError):  # of a factor without a mean
                        known[site.name] = jnp.zeros(shape_of(site, environment))
                with lenient():
                    environment = environment.having({site.name: site.factor.statistics(value)})
            elif site.shape is not None or site.factor.names <= environment.statistics.keys():
                environment = environment.having({site.name: site.kind.zeros(shape_of(site, environment), float)})
        return known

    for name, like in jax.eval_shape(shapes, jax.tree.map(lambda leaf: leaf[0], rows.y)).items():
        events = like.shape[:-1] if open_to[name].kind is Categories else like.shape
        _require_shape(name, value_of(rows.y, name)[0].shape, events)


def _refuse_holes_above(y: Mapping[str, Any], sites: tuple[GraphSite, ...]) -> None:
    """Raises a ValueError for a variable with dependents that some rows lack, unless it is a category."""
    # A category is then a latent of these rows and summed out; a number would enter the others' factors as zero.
    for site in sites:
        part = y.get(site.name)
        below = [other.name for other in sites if site.name in other.factor.names]
        if isinstance(part, Incomplete) and below and site.kind is not Categories and part.observed.any():
            row = int(np.argwhere(~np.asarray(part.observed))[0][0])
            raise ValueError(
                f"{site.name} is NaN in row {row}, and {below[0]} depends on it; give {site.name} in every row, or "
                f"leave it out, and it is latent in all of them; to impute it, sample it with {below[0]} as one vector "
                "with a NormalWishart belief, or write the program in NumPyro, for nuts()"
            )


def _by_inputs(node: Any) -> Iterator[Indexed]:
    """Yields every member of a plate that an input indexes, below a factor or an expression."""
    for part in jax.tree.leaves(node, is_leaf=lambda part: isinstance(part, Indexed)):
        if isinstance(part, Indexed):
            yield from _by_inputs(part.of)
            if not isinstance(part.by, Variable):
                yield part


def _require_members(indexed: Indexed, inputs: dict[str, Any]) -> None:
    """Raises a ValueError for numbers that are not members: JAX would silently use another one."""
    if not indexed.of.shape:
        return
    count, by = indexed.of.shape[0], indexed.by
    if isinstance(by, Input):
        value, name = np.asarray(inputs[by.name]), by.name
    else:
        value = np.asarray(jax.vmap(lambda row: by.first(Environment({}, row)))(inputs))
        name = "an index"
    bad = (value < 0) | (value >= count) | (value != np.floor(value))
    if bad.any():
        plate = ", ".join(sorted(indexed.of.names)) or "a constant"
        raise ValueError(
            f"{name} is {value[bad][0]:g} in row {np.argwhere(bad)[0][0]}, and {plate} has {count} members; give whole "
            f"numbers from 0 to {count - 1}"
        )


def _fields(site: GraphSite) -> tuple[str, ...]:
    """Returns the names of the arrays that observe a site."""
    return (f"{site.name}.ids", f"{site.name}.counts") if site.factor.is_of_words else (site.name,)


def _flat(data: Mapping[str, Any], sites: tuple[GraphSite, ...]) -> dict[str, Any]:
    """Returns the data with each document as two named arrays."""
    flat = dict(data)
    for site in sites:
        if site.factor.is_of_words and site.name in flat:
            pair = flat.pop(site.name)
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise TypeError(f"{site.name} is a {type(pair).__name__}; give a pair of arrays, (ids, counts)")
            flat |= dict(zip(_fields(site), pair, strict=True))
    return flat


def _refuse_unknown(flat: Mapping[str, Any], known: list[str]) -> None:
    """Raises a ValueError for a name that the program does not have."""
    for name in flat:
        if name not in (*known, "weight", "mask"):
            raise ValueError(f"data has the unknown key {name!r}; {nearest(str(name), (*known, 'weight', 'mask'))}")
