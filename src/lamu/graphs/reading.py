"""The data of a graph, arrays by name, as rows; checked before any compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from lamu.data.arrays import Arrays
from lamu.data.incomplete import Incomplete
from lamu.data.spelling import nearest
from lamu.data.stream import Stream
from lamu.graphs.expressions import Environment, Indexed, Input, Variable
from lamu.graphs.program import Site
from lamu.graphs.statistics import Categories, States
from lamu.graphs.words import WordsFactor

__all__ = ["read", "require_observed"]


def read(data: Any, sites: tuple[Site, ...], columns: tuple[str, ...]) -> Arrays | Stream:
    """Returns data as rows."""
    if isinstance(data, Arrays | Stream):
        return data
    if not isinstance(data, Mapping):
        raise TypeError(
            f"data is a {type(data).__name__}; pass arrays by the names of the program's variables, for instance "
            f"{{{sites[-1].name!r}: ...}}"
        )
    flat = _flat(data, sites)
    known = [*columns, *(f for site in sites for f in _fields(site))]
    names = [name for name in known if name in flat]
    _refuse_unknown(flat, known)
    if not set(names) - set(columns):
        raise ValueError(f"the data observe no variable of a row; give some of {', '.join(known)}")
    lacking = [name for name in columns if name not in flat]
    if lacking:
        raise ValueError(f"the data lack the input {lacking[0]!r}, which the program asks for; add it")
    flat = {name: _labels(name, part, sites) for name, part in flat.items()}
    rows = Arrays.named(flat, names, missing=True)
    rows = replace(rows, y={name: _checked(name, part, sites) for name, part in rows.y.items()})
    _refuse_holes_above(rows.y, sites)
    for indexed in _by_inputs([site.factor for site in sites]):
        _require_members(indexed, {name: rows.y[name] for name in columns})
    return rows


def require_observed(rows: Arrays, sites: tuple[Site, ...]) -> None:
    """Raises a ValueError for a row of which every entry is missing: there is nothing that its latents explain."""
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


def _labels(name: str, part: Any, sites: tuple[Site, ...]) -> Any:
    """Returns whole numbers of a category with NaN where they are −1, as scikit-learn writes unknown labels."""
    site = next((site for site in sites if site.name == name), None)
    if site is None or site.kind is not Categories or isinstance(part, tuple | list):
        return part
    value = np.asarray(part)
    if not np.issubdtype(value.dtype, np.integer) or not (value == -1).any():
        return part
    return np.where(value == -1, np.nan, value.astype(float))


def _checked(name: str, part: Incomplete, sites: tuple[Site, ...]) -> Any:
    """Returns an array whose entries are all there as it is, after a check of its values."""
    value, observed = np.asarray(part.value), np.asarray(part.observed)
    site = next((site for site in sites if name in _fields(site)), None)
    if site is None:
        if not observed.all():
            raise ValueError(f"the input {name!r} is NaN in a row, and an input is not modelled; fill it in")
        return part.value
    site.factor.check(name, value, observed)
    if not observed.any():
        raise ValueError(f"{name} is NaN in every row; leave it out, and it is latent")
    own = site.shape
    rest = value.shape[1:]
    numbered = issubclass(site.kind, Categories | States)  # data are whole numbers in the place of one-hot vectors
    events = own[:-1] if own is not None and numbered else own
    if events is not None and rest != events and not isinstance(site.factor, WordsFactor):
        raise ValueError(f"{name} has the shape {value.shape}, and the program makes {events} of a row; give [N, ...]")
    if observed.all():
        return part.value
    if not site.factor.misses:
        row = int(np.argwhere(~observed)[0][0])
        raise ValueError(
            f"{name} is NaN in row {row}, and {type(site.factor).__name__.removesuffix('Factor')} misses no single "
            "entries; write independent ones with graphs.Normal (of a series, observations of it), or drop the row"
        )
    return part


def _refuse_holes_above(y: Mapping[str, Any], sites: tuple[Site, ...]) -> None:
    """Raises a ValueError for a variable that others depend on and some rows lack, unless it is a category."""
    # A category is then a latent of these rows, which has a sum; a number would enter the others' factors as zero.
    for site in sites:
        part = y.get(site.name)
        below = [other.name for other in sites if site.name in other.factor.names]
        if isinstance(part, Incomplete) and below and site.kind is not Categories:
            row = int(np.argwhere(~np.asarray(part.observed))[0][0])
            raise ValueError(
                f"{site.name} is NaN in row {row}, and {below[0]} depends on it; give {site.name} in every row, or "
                "leave it out, and it is latent in all of them"
            )


def _by_inputs(node: Any) -> Iterator[Indexed]:
    """Yields every member of a plate that an input picks, below a factor or an expression."""
    for part in jax.tree.leaves(node, is_leaf=lambda part: isinstance(part, Indexed)):
        if isinstance(part, Indexed):
            yield from _by_inputs(part.of)
            if not isinstance(part.by, Variable):
                yield part


def _require_members(indexed: Indexed, inputs: dict[str, Any]) -> None:
    """Raises a ValueError for numbers that are no member: JAX would take another one in their place."""
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


def _fields(site: Site) -> tuple[str, ...]:
    """The names of the arrays that observe a site."""
    if isinstance(site.factor, WordsFactor):
        return f"{site.name}.ids", f"{site.name}.counts"
    return (site.name,)


def _flat(data: Mapping[str, Any], sites: tuple[Site, ...]) -> dict[str, Any]:
    """Returns documents as two arrays of one name each."""
    flat = dict(data)
    for site in sites:
        if isinstance(site.factor, WordsFactor) and site.name in flat:
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
