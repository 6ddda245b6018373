"""Data sets in memory, validated once on input."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu.base.compile_once import compiled_once, of_rows
from lamu.data.batch import Batch
from lamu.data.precision import blocks, is_mapped, refuse_lost, require_room
from lamu.data.splits import groups_of
from lamu.data.wording import listed, nearest
from lamu.data.written_numbers import is_number
from lamu.record import record
from lamu.typing import Array, Data, DTypeLike, Rows, Targets

__all__ = [
    "Arrays",
    "FewRows",
    "Incomplete",
    "UnfamiliarRows",
    "UnscaledRows",
    "UnscaledWeights",
    "array_of",
    "readable",
    "refuse_infinite",
    "refuse_other_order",
    "refuse_unread",
    "scale_told",
    "warn_of_scale",
]


@record
class Incomplete:
    """An array with missing entries.

    A target that can miss entries reads its data with `Arrays.named(data, names, missing=True)`, where NaN marks a
    missing entry, and gets an `Incomplete` for each name.

    Attributes:
        value: the entries, `[N, ...]`, zero if missing.
        observed: whether each entry is observed, of the same shape.

    Examples:
        >>> import numpy as np
        >>> from lamu.data import Incomplete
        >>> Incomplete.of(np.array([0.5, np.nan])).value.tolist()
        [0.5, 0.0]
    """

    value: Any
    observed: Any

    @classmethod
    def of(cls, array: Any) -> Incomplete:
        """Returns the array with its NaN entries as missing.

        Args:
            array: numbers.
        """
        observed = (
            ~np.isnan(array) if np.issubdtype(np.asarray(array).dtype, np.floating) else np.ones(array.shape, bool)
        )
        return cls(np.where(observed, array, np.zeros((), array.dtype)), observed)


_FEW, _MANY = 0.5, 2.0  # times the number of rows; sums outside are probably not counts of rows


class UnscaledWeights(UserWarning):
    """The sum of row weights is far from the number of rows, so that the posterior is that of fewer or more rows."""


class UnscaledRows(UserWarning):
    """Rows are far from zero mean and unit deviation, which a model's priors assume."""


class UnfamiliarRows(UserWarning):
    """Rows to predict are unlike training rows: in other units, or with new values in a column that was constant."""


class FewRows(UserWarning):
    """Too few rows or events for a default: the noise at its mode is too small, or rare events are too likely."""


def warn_of_scale(weight: Rows, name: str = "weight", stacklevel: int = 3) -> None:
    """Warns of weights whose sum is far from the number of rows."""
    sentence = scale_told(weight, name)
    if sentence is not None:
        warnings.warn(sentence, UnscaledWeights, stacklevel=stacklevel)


def scale_told(weight: Rows, name: str) -> str | None:
    """Returns a sentence on weights whose sum is far from the number of rows; None for others."""
    # Rows of weight zero do not count as rows. A sum above twice the number of rows is fine if all weights are whole
    # numbers, which count repeated rows.
    weight = np.asarray(weight, np.float64)
    rows, total = int(np.count_nonzero(weight)), float(weight.sum())
    if total < _FEW * rows:
        consequence = "the posterior stays closer to the prior than that of so many rows"
    elif total > _MANY * rows and (weight != np.rint(weight)).any():
        consequence = "the posterior is narrower than that of so many rows"
    else:
        return None
    return (
        f"{name} sums to {total:.4g} over {rows:,} rows, so that they count as {total:.4g} rows and {consequence}: a "
        f"weight of two is the row written twice. If only the ratios of the weights matter, give {name} * {rows} / "
        f"{total:.4g}"
    )


_ALIGNED = 64  # bytes
_KEYS = ("x", "y", "weight", "offset", "mask", "groups", "time")


@record
class Arrays:
    r"""N rows in memory: inputs, targets, a weight per row and, optionally, an offset.

    Targets are one array, or arrays by name: a value with auxiliary columns (`{"value", "trials"}`), or all arrays that
    a target without inputs observes.

    `Arrays.of` is the entry point: it validates everything once, so that later code need not. Floating inputs keep
    their dtype (float64 only if JAX has 64 bits enabled, 16 bits become 32); integers and truth values become the
    default float. Integer targets stay integers (int32, or int64), floating targets take the dtype of x.

    Attributes:
        x: inputs `[N, ...]`, floating.
        y: targets `[N]` or `[N, outputs]`, or a dictionary of arrays `[N, ...]` by name, of which one that may have
            missing entries is an `Incomplete`.
        weight: the weights of the rows, `[N]`, of the dtype of x; ones by default.
        offset: a known part of the linear predictor, added to f and in its units, `[N]` or `[N, outputs]`, of the dtype
            of x; None if there is none. If a model has a log deviation, or the log odds of a zero, among its outputs,
            an offset of one number per row is added to the other outputs only.
        held_out: validation rows, an `Arrays`, for choices that the training rows cannot make; None
            if there are none. They do not count in N.
        groups: the group of each row, integers `[N]`, such as a patient or a day; None if rows are independent. Every
            split keeps the rows of a group together: folds, and rows that are set aside for validation. Or the times
            of the rows in their order: validation rows are then the latest, and folds are blocks of successive ones.

    Examples:
        >>> from lamu.data import Arrays
        >>> rows = Arrays.of(([[1.0], [2.0], [3.0]], [0, 1, 1]))
        >>> rows.count, [float(batch.count) for batch in rows.batches(2)]
        (3, [2.0, 1.0])
    """

    x: Any
    y: Any
    weight: Any
    offset: Any = None
    held_out: Any = None
    groups: Any = None

    @classmethod
    def of(cls, data: Data) -> Arrays:
        """Returns the data set that `data` describes.

        Args:
            data: `(x, y)`, a mapping with the keys `x`, `y` and, optionally, `weight`, `offset`, `mask` and `groups`
                (numbers or words) or `time` (numbers or dates), or an `Arrays`, returned as is. y is an array or a
                mapping of arrays by name. Targets alone, for a model without inputs, are one array or a mapping without
                `x`, and x is then `[N, 0]`. Rows of mask zero are dropped here, before their values are checked, and do
                not count in N.

        Returns:
            The rows, on the default device.

        Raises:
            TypeError: if `data` is none of these, or an array does not hold numbers.
            ValueError: for rows that do not match, no rows, NaN or infinity, an unknown key, a negative weight, or a
                mask with other values than zeros and ones.

        Examples:
            >>> from lamu.data import Arrays
            >>> Arrays.of({"x": [[1, 2]], "y": [0.5], "weight": [2.0]}).weight.tolist()
            [2.0]
            >>> Arrays.of({"x": [[1.0], [2.0]], "y": [0, 1], "offset": [0.5, 0.25], "mask": [0, 1]}).offset.tolist()
            [0.25]
        """
        return data if isinstance(data, Arrays) else cls._read(data)

    @classmethod
    def to_fit(cls, data: Data) -> Arrays:
        """Returns the data set that `data` describes, for training: like `of`, and its numbers must fit the dtype.

        Rows to predict or to validate on, and single batches, may be of any range: only the range of all training rows
        determines the precision that their numbers need.

        Args:
            data: as for `of`.

        Raises:
            TypeError: as for `of`.
            ValueError: as for `of`, and for numbers of 64 bits that JAX's dtype cannot distinguish or hold.

        Examples:
            >>> from lamu.data import Arrays
            >>> Arrays.to_fit(([[1.0], [2.0]], [0.5, 1.5])).count
            2
        """
        return data if isinstance(data, Arrays) else cls._read(data, refuse_lost)

    @classmethod
    def named(cls, data: Data, names: Sequence[str], missing: bool = False) -> Arrays:
        """Returns the data of a target without inputs that observes arrays by name.

        Args:
            data: a mapping of arrays `[N, ...]` with these names and, optionally, `weight`, `mask` and `groups` or
                `time`; for a single name the array alone is enough; or an `Arrays`, returned as is.
            names: the names that the target observes.
            missing: whether NaN marks a missing entry; then each array becomes an `Incomplete`.

        Raises:
            TypeError: if `data` is none of these, or an array does not hold numbers.
            ValueError: as for `of`, for a missing name, or one that is unknown to the target.

        Examples:
            >>> from lamu.data import Arrays
            >>> rows = Arrays.named({"height": [1.8, float("nan")], "weight": [1.0, 2.0]}, ["height"], missing=True)
            >>> rows.y["height"].observed.tolist(), rows.weight.tolist()
            ([True, False], [1.0, 2.0])
        """
        if isinstance(data, Arrays):
            return data
        if not isinstance(data, Mapping):
            if len(names) != 1:
                raise TypeError(f"data is a {type(data).__name__}; pass a mapping with the keys {listed(names)}")
            data = {names[0]: data}
        auxiliary = ("weight", "mask", *(name for name in ("groups", "time") if name not in names))
        for key in data:
            if key not in (*names, *auxiliary):
                raise ValueError(f"data has the unknown key {key!r}; {nearest(str(key), (*names, *auxiliary))}")
        lacking = [name for name in names if name not in data]
        if lacking:
            raise ValueError(f"data lacks {listed(lacking)}, which the target observes; pass {listed(names)}")
        observed = {name: data[name] for name in names}
        return cls._read({"y": observed, **{key: data[key] for key in auxiliary if key in data}}, missing=missing)

    @classmethod
    def _read(cls, data: Data, look: Callable[..., None] | None = None, missing: bool = False) -> Arrays:
        data_parts = _parts(data)
        refuse_other_order({**data_parts, "y": None, **_targets(data_parts["y"])})
        y = {name: array_of(name, part) for name, part in _targets(data_parts["y"]).items()}
        first = next(iter(y.values()))
        x = array_of("x", data_parts["x"]) if "x" in data_parts else _no_inputs(first)
        for part in (x, *y.values()):
            if part.ndim == 0:
                raise ValueError(
                    "x and y need a leading axis of rows, but one of them is a single number; pass arrays [N, ...]"
                )
        for name, part in y.items():
            if len(part) != len(x):
                raise ValueError(f"x has {len(x)} rows and {name} has {len(part)}; pass one target a row of x")
        if len(x) == 0:
            raise ValueError("x and y have no rows; pass at least one")
        auxiliary = {name: array_of(name, data_parts[name]) for name in _KEYS[2:5] if data_parts.get(name) is not None}
        weight, offset, mask = (auxiliary.get(name) for name in _KEYS[2:5])
        units = data_parts.get("groups"), data_parts.get("time")
        groups = None if all(unit is None for unit in units) else groups_of(*units, len(x))
        if weight is not None and weight.shape != (len(x),):
            raise ValueError(f"weight has the shape {weight.shape}; pass one weight a row, the shape ({len(x)},)")
        if offset is not None and (offset.ndim not in (1, 2) or len(offset) != len(x)):
            raise ValueError(
                f"offset has the shape {offset.shape}; pass one number a row, the shape ({len(x)},), or one an output"
            )
        if mask is not None:
            real = _real_rows(mask, len(x))
            x, y = x[real], {name: part[real] for name, part in y.items()}
            weight, offset, groups = (None if leaf is None else leaf[real] for leaf in (weight, offset, groups))
        empty = [name for name, part in y.items() if part.size == 0]
        if (x.size == 0 and "x" in data_parts) or empty:
            name = empty[0] if empty else "y"
            shape = y.get(name, first).shape
            raise ValueError(
                f"x has the shape {x.shape} and {name} {shape}; pass at least one input and one target a row"
            )
        require_room({"x": x, **y, **{name: part for name, part in auxiliary.items() if name != "mask"}})
        if look is not None:
            look("x", x)
            for name, part in y.items():
                look(name, part, target=True)
        x = _on_device("x", x, of_rows(x.dtype))
        arrays = {name: _target(name, part, x.dtype, missing) for name, part in y.items()}
        targets = (
            dict(zip(data_parts["y"], arrays.values(), strict=True))
            if isinstance(data_parts["y"], Mapping)
            else arrays["y"]
        )
        offset = None if offset is None else _on_device("offset", offset, x.dtype)
        groups = None if groups is None else jax.device_put(groups)
        if weight is None:
            weight = jax.device_put(np.ones(len(x), x.dtype))
            return cls(x=x, y=targets, weight=weight, offset=offset, groups=groups)
        weight = _on_device("weight", weight, x.dtype)
        if bool(jnp.any(weight < 0)) or not bool(jnp.any(weight > 0)):
            raise ValueError(f"weights must not be negative nor all zero; the smallest is {float(jnp.min(weight)):g}")
        return cls(x=x, y=targets, weight=weight, offset=offset, groups=groups)

    @property
    def count(self) -> int:
        """The number of rows N."""
        return self.weight.shape[0]

    def take(self, chosen: Rows) -> Arrays:
        """Returns some of the rows, by their indices `[n]`."""
        return _taken(replace(self, held_out=None), jnp.asarray(chosen))

    def full(self) -> Batch:
        """Returns all rows as one batch."""
        return self._rows(0, self.count)

    def batches(self, size: int) -> Iterator[Batch]:
        """Returns the rows in order, as batches of one shape: the last one is padded and masked.

        Args:
            size: the number of rows of a batch.

        Raises:
            ValueError: if `size` is below one.
        """
        _positive(size)
        return (self._rows(start, size) for start in range(0, self.count, size))

    def example(self, size: int) -> Batch:
        """Returns the first rows as one batch of `size` rows, with the shapes of `batches(size)`.

        Args:
            size: the number of rows of the batch.

        Raises:
            ValueError: if `size` is below one.
        """
        _positive(size)
        return self._rows(0, size)

    def _rows(self, start: int, size: int) -> Batch:
        rows, row_count = replace(self, held_out=None), min(size, self.count - start)
        if all(map(_is_in_memory, jax.tree.leaves(rows))):
            return _rows_in_memory(rows, start, row_count, size)
        return _rows(rows, start, row_count, size)


@jax.jit
def _taken(rows: Arrays, chosen: Array) -> Arrays:
    return jax.tree.map(lambda leaf: leaf[chosen], rows)


def _is_in_memory(leaf: object) -> bool:
    """Returns whether NumPy can read an array without a copy: uncommitted, on the only device, a CPU."""
    if isinstance(leaf, Tracer) or not isinstance(leaf, jax.Array):
        return False
    return not leaf.committed and {device.platform for device in leaf.devices()} == {"cpu"}


def _rows_in_memory(rows: Arrays, start: int, row_count: int, size: int) -> Batch:
    """Returns the same batch as `_rows` without compilation, which takes longer than many fits."""

    def part(leaf: Array) -> np.ndarray:
        taken = np.asarray(leaf)[start : start + row_count]
        repeated = np.broadcast_to(taken[:1], (size - row_count, *taken.shape[1:]))
        return np.concatenate([taken, repeated]) if size > row_count else taken

    mask = np.zeros(size, rows.weight.dtype)
    mask[:row_count] = 1
    x, y, weight, offset, groups = jax.tree.map(part, (rows.x, rows.y, rows.weight, rows.offset, rows.groups))
    return jax.device_put(Batch(x=x, y=y, mask=mask, weight=weight, offset=offset, groups=groups))


# Compiled, since leaf by leaf a batch costs several milliseconds; `there` takes at most two values in a pass.
@compiled_once(over_rows=True, static_argnums=(2, 3))
def _rows(rows: Arrays, start: Array | int, row_count: int, size: int) -> Batch:
    x, y, weight, offset, groups = jax.tree.map(
        lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, row_count),
        (rows.x, rows.y, rows.weight, rows.offset, rows.groups),
    )
    mask = jnp.ones_like(weight)
    return Batch(x=x, y=y, mask=mask, weight=weight, offset=offset, groups=groups).padded(size)


def _parts(data: Data) -> Mapping[str, Any]:
    if isinstance(data, Mapping):
        for key in data:
            if key not in _KEYS:
                raise ValueError(f"data has the unknown key {key!r}; {nearest(str(key), _KEYS)}")
        if "y" not in data:
            raise ValueError(f"data has the keys {sorted(data)} and lacks 'y'; pass x and y, or y alone without inputs")
        return data
    if isinstance(data, np.ndarray | jax.Array):
        return {"y": data}
    if isinstance(data, tuple | list):
        if len(data) != 2:
            raise ValueError(
                f"data is a {type(data).__name__} of {len(data)} parts; pass (x, y), or a mapping with {_named()}"
            )
        return {"x": data[0], "y": data[1]}
    raise TypeError(f"data is a {type(data).__name__}; pass (x, y), or a mapping with the keys {_named()}")


def refuse_other_order(parts: Mapping[str, Any]) -> None:
    """Raises a ValueError where two parts label their rows alike, as pandas and xarray do, in another order."""
    # Rows are matched by position: labels that differ otherwise are those of rows taken from different tables.
    named = [(name, labels) for name, part in parts.items() if (labels := _labels(part)) is not None]
    for name, labels in named[1:]:
        first, known = named[0]
        if len(labels) != len(known) or labels.equals(known):
            continue
        if labels.difference(known).empty and known.difference(labels).empty:
            pairs = enumerate(zip(known.tolist(), labels.tolist(), strict=True))
            row, (mine, other) = next((row, pair) for row, pair in pairs if pair[0] != pair[1])
            raise ValueError(
                f"row {row} of {first} has the label {mine!r} and that of {name} {other!r}: both have the same labels "
                f"in another order, and rows are matched by their position; give {name} in the order of {first}, "
                f"{name}.reindex({first}.index), or without labels, {name}.to_numpy()"
            )


def _labels(part: Any) -> Any:
    """Returns the index of the rows of pandas and xarray; None for other data."""
    dims = getattr(part, "dims", ())  # of xarray, where `index` may be a coordinate
    index = getattr(part, "indexes", {}).get(dims[0]) if dims else getattr(part, "index", None)
    return index if hasattr(index, "difference") else None


def _targets(y: Targets) -> dict[str, Any]:
    """Returns targets by their names in messages."""
    if not isinstance(y, Mapping):
        return {"y": y}
    if not y:
        raise ValueError("y is a mapping without arrays; pass at least one")
    return {f"y[{name!r}]": part for name, part in y.items()}


def _target(name: str, part: Any, dtype: DTypeLike, missing: bool) -> Any:
    """Returns targets on the device, as `Incomplete` if entries may be missing."""
    dtype = dtype if jnp.issubdtype(part.dtype, jnp.floating) else _integer_dtype(name, part)
    if not missing:
        return _on_device(name, part, dtype)
    incomplete = Incomplete.of(np.asarray(part))
    return Incomplete(_on_device(name, incomplete.value, dtype), jax.device_put(incomplete.observed))


def _no_inputs(y: Targets) -> np.ndarray:
    """Returns empty inputs, for data that are only targets."""
    dtype = y.dtype if jnp.issubdtype(y.dtype, jnp.floating) else jnp.result_type(float)
    return np.zeros((len(y) if y.ndim else 0, 0), dtype)


def _named() -> str:
    return f"x, y and, optionally, {', '.join(_KEYS[2:-1])} and {_KEYS[-1]}"


def _real_rows(mask: Rows, rows: int) -> np.ndarray:
    """Returns the indices of the rows that are not masked."""
    if mask.shape != (rows,):
        raise ValueError(f"mask has the shape {mask.shape}; pass one truth value a row, the shape ({rows},)")
    mask = np.asarray(mask)
    strange = (mask != 0) & (mask != 1)
    if strange.any():
        raise ValueError(
            f"mask is {mask[strange][0]} in row {strange.argmax()}; pass 1 for a row of data and 0 for none, and what "
            "a row counts as its weight"
        )
    if not mask.any():
        raise ValueError(f"mask is zero in all {rows} rows; pass at least one row of data")
    return np.flatnonzero(mask)


def refuse_unread(name: str, values: object) -> None:
    """Raises an error for masked entries, which NumPy reads as data, and sparse matrices, which it cannot read."""
    if np.ma.is_masked(values):
        count = int(np.ma.count_masked(values))
        raise ValueError(f"{name} has {count} masked values, which are not data; fill them in, or leave them out")
    if hasattr(values, "toarray"):
        raise TypeError(f"{name} is sparse, a {type(values).__name__}; give {name}.toarray()")


def readable(values: Any) -> Any:
    """Returns a tensor of PyTorch as a NumPy array, without its gradient and in 32 bits at least; others unchanged."""
    if not hasattr(values, "requires_grad"):
        return values
    values = values.detach().cpu()
    return (values.float() if values.is_floating_point() and values.element_size() < 4 else values).numpy()


def array_of(name: str, values: object) -> Any:
    """Returns an array of numbers: JAX arrays unchanged, anything else as NumPy, which keeps 64 bits for checks."""
    refuse_unread(name, values)
    if isinstance(values, Mapping):
        raise TypeError(
            f"{name} is a mapping of {listed(list(values))}, and a network reads one array; put its parts side by "
            "side, for instance np.concatenate([a, b], axis=1), and take them apart in the network"
        )
    if isinstance(values, jax.Array):
        array: Any = values
    else:
        try:
            array = np.asarray(readable(values))
        except ValueError as error:
            raise ValueError(f"{name} has rows of different lengths; pass an array with one shape") from error
        plain = array.dtype.kind in "iuf"
        if plain and not (array.dtype.isnative and array.dtype.itemsize <= 8):  # of a FITS or netCDF file: JAX has none
            array = array.astype(f"={array.dtype.kind}{min(array.dtype.itemsize, 8)}")
    real, odd = (jnp.floating, jnp.integer, jnp.bool_), None
    if array.dtype == object:  # a frame with Booleans or missing values among its numbers
        missing = np.array([value is None or type(value).__name__ == "NAType" for value in array.flat], bool)
        kinds = {type(value) for value in array.flat[~missing]}
        strange = tuple(kind for kind in kinds if not issubclass(kind, numbers.Real | np.bool_))
        odd = next((value for value in array.flat if isinstance(value, strange)), None)
        if not strange:
            array = np.where(missing.reshape(array.shape), math.nan, array).astype(float)
    if not any(jnp.issubdtype(array.dtype, kind) for kind in real):
        odd = array.flat[0] if odd is None and array.dtype.kind == "U" and array.size else odd
        fix = "convert it, for instance to float32" if odd is None else f"convert its values such as {odd!r} to numbers"
        if isinstance(odd, str):
            words = "names, y = np.unique(y, return_inverse=True)" if name == "y" else "pandas.get_dummies(x)"
            fix = f"encode its words, as {str(odd)!r}, for instance {words}"
            fix += ", in the order of the alphabet" if name == "y" else ""
            if is_number(odd):
                fix = f"convert its strings, such as {str(odd)!r}, to numbers: {name} = {name}.astype(float)"
        raise TypeError(f"{name} has the dtype {array.dtype}, which is not of real numbers; {fix}")
    return array


def _integer_dtype(name: str, y: Targets) -> Any:
    """Returns the dtype of integer targets: 32 bits, or 64 if they have so many and JAX allows it."""
    wide = jnp.iinfo(y.dtype).bits == 64 if y.dtype != bool else False
    dtype = jax.dtypes.canonicalize_dtype(np.int64) if wide or y.dtype == np.uint32 else np.dtype(np.int32)
    largest = jnp.iinfo(dtype).max
    if y.dtype != bool and (int(y.max()) > largest or int(y.min()) < -largest):
        raise ValueError(
            f"{name} has whole numbers beyond {dtype}, up to {int(y.max())}; number classes from 0, and give others "
            "as floats"
        )
    return dtype


def _read_in_blocks(name: str, values: np.ndarray, dtype: DTypeLike) -> Array:
    """Returns a memory-mapped array as a JAX array, reading one block at a time."""
    size = values.size * np.dtype(dtype).itemsize
    room = np.empty(size + _ALIGNED, np.uint8)
    begin = -room.ctypes.data % _ALIGNED  # at this alignment JAX takes the buffer without a copy
    read = room[begin : begin + size].view(dtype).reshape(values.shape)
    for start, block in blocks(values):
        part = read[start : start + len(block)]
        with np.errstate(over="ignore"):
            part[...] = block
        if jnp.issubdtype(dtype, jnp.floating) and not np.isfinite(part).all():
            refuse_infinite(name, part, block, start)
    return jax.device_put(read)


def _on_device(name: str, values: Any, dtype: DTypeLike) -> Array:
    """Returns the array in the dtype; raises if anything is NaN, infinite, or too large for the dtype."""
    # Host arrays are checked on the host: JAX would compile a program for every shape.
    on_device = isinstance(values, jax.Array)
    if is_mapped(values):
        return _read_in_blocks(name, values, jax.dtypes.canonicalize_dtype(dtype))
    with np.errstate(over="ignore"):
        array: Any = values.astype(dtype) if on_device else values.astype(jax.dtypes.canonicalize_dtype(dtype))
    if jnp.issubdtype(array.dtype, jnp.floating):
        finite = jnp.isfinite(array) if on_device else np.isfinite(array)
        if not bool(finite.all()):
            refuse_infinite(name, array, values)
    return array if on_device else jax.device_put(array)


def refuse_infinite(name: str, array: Rows, values: Rows, start: int = 0) -> None:
    """Raises a ValueError if there are NaN or infinite numbers; `start`: the number of the first row."""
    bad = np.argwhere(~np.isfinite(np.asarray(array)))
    if not len(bad):
        return
    first = tuple(bad[0].tolist())
    place = (start + first[0], *first[1:])
    count = f"{len(bad)} places" if len(bad) > 1 else "1 place"
    raise ValueError(
        f"{name} is NaN or infinite in {array.dtype} in {count}, "
        f"first {np.asarray(values)[first]} in row {place[0]}{_within(place)}; replace it or drop the row"
    )


def _within(index: tuple[int, ...]) -> str:
    if len(index) == 1:
        return ""
    return f", column {index[1]}" if len(index) == 2 else f" at {index[1:]}"


def _positive(size: int) -> None:
    if size < 1:
        raise ValueError(f"a batch has {size!r} rows; ask for at least one")
