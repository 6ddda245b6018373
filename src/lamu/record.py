r"""Records: frozen dataclasses that are pytrees and can be saved, the base of every object of the library.

A record is three things:

* a frozen dataclass, so that its values are immutable;
* a pytree, so that it passes through `jit`, `vmap` and `scan`. Fields are leaves unless declared with `static()`;
* a registered name, so that `encode` writes it as JSON and arrays and `decode` reads it back without pickle. A file
  can name only classes that are records: those of the library, and those of modules that the caller has imported or
  trusts by name.

Rebuilding a pytree does not call `__init__`: JAX unflattens with tracers, `None` and sentinels in the leaves, which a
validating `__post_init__` would refuse. Validation therefore runs exactly once, when the user constructs the object.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import math
import operator
import pkgutil
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np

from lamu.base.arguments import checking_arguments, hints_of, is_instance, written
from lamu.typing import Data, Document

__all__ = [
    "UnknownTypeError",
    "declared",
    "decode",
    "encode",
    "given",
    "is_trusted",
    "measured",
    "modules_of",
    "record",
    "restored",
    "static",
    "with_code_of",
]

T = TypeVar("T")


class UnknownTypeError(ValueError):
    """Raised for a saved type that is unknown, or of another version."""


_TYPES: dict[str, type] = {}
_MOVED = {  # names in files of earlier versions, and the current names of records and fields
    "algorithms.Conjugate": "algorithms.ConjugateBayes",
    "graphs.Constant": "graphs.KnownValue",
    "graphs.Positive": "graphs.PositiveNumbers",
    "graphs.Reciprocal": "graphs.Variances",
    "graphs.Scale": "graphs.ScaleProduct",
    "graphs.Scaled": "graphs.Multiple",
    "graphs.GraphSite.taught": "supervised",
    "graphs.Site": "graphs.GraphSite",
    "networks.Exponential": "networks.LaplaceKernel",
    "networks._Opaque": "networks._OpaqueNetwork",
}
_MOST_NUMBERS = 4  # largest array whose numbers are shown by `repr`
_DEEPEST = 100  # largest depth of nested values in a file
_PIECE = 2**24  # bytes
# The forms of values in a file.
_OF_ARRAY = {"dtype", "shape", "crc32"}
_NODES = (
    {"array", *_OF_ARRAY},
    {"key", "implementation", *_OF_ARRAY},
    {"record", "fields"},
    {"tuple"},
    {"list"},
    {"dict"},
    {"function"},
)


def static(*, added: bool = False, **kwargs: Any) -> Any:
    """Declares a static field of a record: part of the pytree structure (hashable, compared at trace time), not a leaf.

    Args:
        added: whether the field is absent from files of an earlier version, and then has its default.
        **kwargs: passed on to `dataclasses.field`, for instance `default`.

    Returns:
        The field specifier.

    Examples:
        >>> from lamu.record import record, static
        >>> @record
        ... class Layer:
        ...     weight: float
        ...     name: str = static(default="layer")
        >>> import jax
        >>> jax.tree.leaves(Layer(2.0))
        [2.0]
    """
    return dataclasses.field(metadata={"static": True, "added": added}, **kwargs)


def given() -> Any:
    """Declares a static field for a user's function, of which a file stores the name alone.

    Returns:
        The field specifier.

    Examples:
        >>> from lamu.record import encode, given, record
        >>> @record
        ... class Applied:
        ...     function: object = given()
        >>> encode(Applied(len), {})["fields"]
        {'function': {'function': 'builtins.len'}}
    """
    return dataclasses.field(metadata={"static": True, "given": True})


def measured(*, added: bool = False, **kwargs: Any) -> Any:
    """Declares a field for a measured quantity, which may be NaN or infinite.

    Args:
        added: whether the field is absent from files of an earlier version, and then has its default.
        **kwargs: passed on to `dataclasses.field`, for instance `default`.

    Returns:
        The field specifier.

    Examples:
        >>> from lamu.record import decode, encode, measured, record
        >>> @record
        ... class Seen:
        ...     share: float = measured()
        >>> encode(Seen(float("nan")), {})["fields"]
        {'share': nan}
    """
    return dataclasses.field(metadata={"measured": True, "added": added}, **kwargs)


def restored(self: object, state: Mapping[str, Any]) -> None:
    """Restores the state of pickle; raises an UnknownTypeError for one with other fields, of another version."""
    cls, names = type(self), [field.name for field in dataclasses.fields(self)]  # pyright: ignore[reportArgumentType]
    lacking = [name for name in names if name not in state and not hasattr(cls, name)]
    unknown = [name for name in state if name not in names and not hasattr(cls, name) and not name.startswith("_")]
    if lacking or unknown:
        what = f"lacks {', '.join(lacking)}" if lacking else f"has {', '.join(unknown)}"
        raise UnknownTypeError(
            f"this pickle of a {cls.__name__} {what}: another version of Lamu wrote it, and a pickle is read by its "
            "own alone; write the posterior there by posterior.save(path), which lamu.load(path) reads here"
        )
    vars(self).update(state)


@dataclass_transform(frozen_default=True, field_specifiers=(static, given, measured, dataclasses.field))
def record(cls: type[T]) -> type[T]:
    """Decorates a class as a record: a frozen dataclass, a pytree, and a registered name for saved files.

    Args:
        cls: the class, with annotated fields.

    Returns:
        The same class, registered.

    Raises:
        TypeError: if two different modules register the same name, since a saved file could not tell them apart.

    Examples:
        >>> from lamu.record import record
        >>> import jax
        >>> @record
        ... class Shift:
        ...     by: float
        >>> jax.tree.map(lambda leaf: leaf + 1.0, Shift(2.0))
        Shift(by=3.0)
    """
    # `dataclass` compiles six methods for every class. These three are the same for all classes, and defining them here
    # saves a third of the library's import time.
    members = vars(cls)
    shown, equal, hashed = (name in members for name in ("__repr__", "__eq__", "__hash__"))
    hashed = hashed and not (equal and members["__hash__"] is None)  # Python's, of a class with an `__eq__` alone
    cls = dataclasses.dataclass(frozen=True, repr=False, eq=False)(cls)
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
    data = tuple(field.name for field in fields if not field.metadata.get("static", False))
    meta = tuple(field.name for field in fields if field.metadata.get("static", False))
    compared, data_of, meta_of = _values(field.name for field in fields if field.compare), _values(data), _values(meta)

    def are_equal(self: object, other: object) -> object:  # NotImplemented is not a bool
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    if "__setstate__" not in members:
        cls.__setstate__ = restored  # pyright: ignore[reportAttributeAccessIssue]
    if not shown:
        cls.__repr__ = _shown  # pyright: ignore[reportAttributeAccessIssue]
    if not equal:
        cls.__eq__ = are_equal  # pyright: ignore[reportAttributeAccessIssue]
    if not hashed:
        cls.__hash__ = lambda self: hash(compared(self))  # pyright: ignore[reportAttributeAccessIssue]

    def flatten_with_keys(value: object) -> tuple[Any, Any]:
        return tuple(zip(map(jax.tree_util.GetAttrKey, data), data_of(value), strict=True)), meta_of(value)

    def flatten(value: object) -> tuple[Any, Any]:
        return data_of(value), meta_of(value)

    def unflatten(structure: Any, children: Any) -> Any:
        value = object.__new__(cls)
        vars(value).update(zip(data, children, strict=True))
        vars(value).update(zip(meta, structure, strict=True))
        return value

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    name = _name(cls)
    registered = _TYPES.get(name)
    if registered is not None and registered.__module__ != cls.__module__:
        raise TypeError(f"the record name {name!r} is taken by {registered.__module__}; choose another one")
    _TYPES[name] = cls
    if getattr(cls, "_checks_arguments", False) and cls.__module__.startswith("lamu."):  # others' may be anything
        cls.__init__ = checking_arguments(cls.__init__, cls)  # pyright: ignore[reportAttributeAccessIssue]
    return cls


def _values(names: Iterable[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Returns a function that maps a record to a tuple of the named fields."""
    names = tuple(names)
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _shown(self: Any) -> str:
    """Shows a record as a constructor call, with the dtype and shape of large arrays instead of their numbers."""
    parts = (f"{field.name}={_short(getattr(self, field.name))}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(parts)})"


def _quoted(value: object) -> str:
    """Returns the `repr` of a value for error messages, shortened to sixty characters."""
    text = " ".join(_short(value).split())
    return text if len(text) <= 60 else f"{text[:59]}…"


def _short(value: object) -> str:
    if isinstance(value, np.ndarray | jax.Array) and value.size > _MOST_NUMBERS:
        return f"{value.dtype}{list(value.shape)}"
    if type(value) is dict:
        return f"{{{', '.join(f'{key!r}: {_short(part)}' for key, part in value.items())}}}"
    if type(value) is list:
        return f"[{', '.join(map(_short, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(_short, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


def encode(value: Any, arrays: dict[str, np.ndarray], path: str = "value") -> Any:
    """Encodes a value as plain JSON data, with its arrays collected by path.

    Args:
        value: records, dictionaries with string keys, lists, tuples, numbers, strings, `None`, arrays and random keys.
            Of a function declared by `given()` only the name is written, and it cannot be read back.
        arrays: receives the arrays (mutated).
        path: the name of the value, the prefix of its arrays' names.

    Returns:
        Data that `json.dumps` accepts and `decode` reads back.

    Raises:
        TypeError: for a value of another type; the message names its path.

    Examples:
        >>> from lamu.record import decode, encode
        >>> arrays = {}
        >>> decode(encode({"widths": (64, 64)}, arrays), arrays)
        {'widths': (64, 64)}
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        arrays[path] = np.asarray(jax.random.key_data(value))
        return {"key": path, **_description(arrays[path]), "implementation": str(jax.random.key_impl(value))}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        arrays[path] = np.asarray(value)
        return {"array": path, **_description(arrays[path])}
    if isinstance(value, tuple | list):
        items = [encode(item, arrays, f"{path}.{index}") for index, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else {"list": items}
    if isinstance(value, Mapping):
        return {"dict": [[_key(key, path), encode(item, arrays, f"{path}.{key}")] for key, item in value.items()]}
    if _TYPES.get(_name(type(value))) is type(value):
        fields = {}
        for field in dataclasses.fields(value):
            inner = getattr(value, field.name)
            code = field.metadata.get("given")
            fields[field.name] = {"function": _code(inner)} if code else encode(inner, arrays, f"{path}.{field.name}")
        return {"record": _name(type(value)), "fields": fields}
    raise TypeError(
        f"{path} is a {type(value).__name__}, which cannot be written to disk; make it a record or an array"
    )


def _description(array: np.ndarray) -> Document:
    """Returns the dtype, shape and checksum of an array, which identify it in the JSON data."""
    return {"dtype": str(array.dtype), "shape": list(array.shape), "crc32": _crc32(array)}


def decode(
    data: Data,
    arrays: Mapping[str, np.ndarray],
    known: Mapping[str, Callable[..., object]] | None = None,
    trust: Iterable[str] = (),
) -> Any:
    """Decodes data written by `encode`.

    Args:
        data: the JSON data.
        arrays: the arrays by name.
        known: further types by name, for a user's own parts.
        trust: modules that may be imported, including their submodules.

    Returns:
        The value. Arrays come back as JAX arrays where the dtype is allowed, random keys as typed keys.

    A record of another package is written as `package.module:Name`. Its module is imported, which runs the module's top
    level, only where `trust` names it; otherwise it must have been imported before. Only a class that the module makes
    a record is taken from it.

    Raises:
        UnknownTypeError: for a type that is unknown and not defined by the named module, or a field that the type
            lacks.
        ValueError: for data not written by `encode`, or arrays that do not match their entries.

    Examples:
        >>> from lamu.record import decode
        >>> decode({"list": [1, 2.5, "three"]}, {})
        [1, 2.5, 'three']
    """
    declared(data)
    if isinstance(trust, str):
        raise TypeError(f"trust={trust!r} is one string; give a list of modules, for instance [{trust!r}]")
    return _Reader(arrays, known or {}, tuple(trust)).read(data, "the value")


def declared(data: Data) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Returns the dtypes and shapes of the arrays of encoded data; nothing is read, imported or constructed.

    Args:
        data: the JSON data.

    Returns:
        The dtype and the shape of every array, by name.

    Raises:
        ValueError: for data not written by `encode`, or that name an array twice.

    Examples:
        >>> import numpy as np
        >>> from lamu.record import declared, encode
        >>> declared(encode({"w": np.zeros((2, 3))}, {}))
        {'value.w': ('float64', (2, 3))}
    """
    arrays: dict[str, tuple[str, tuple[int, ...]]] = {}
    rest: list[tuple[Any, int]] = [(data, 0)]
    while rest:
        node, depth = rest.pop()
        if depth > _DEEPEST:
            raise ValueError(f"its values are nested more than {_DEEPEST} deep")
        if node is None or isinstance(node, bool | float | str):
            continue
        if isinstance(node, int):
            if abs(node) >= 2**64:
                raise ValueError(f"it holds a whole number of {node.bit_length()} bits, where 64 are the most")
            continue
        if not isinstance(node, dict) or set(node) not in _NODES:
            raise ValueError(f"{_quoted(node)} is not a value that Lamu writes")
        children, name = _parts(node)
        rest += [(child, depth + 1) for child in children]
        if name is not None:
            if name in arrays:
                raise ValueError(f"it names the array {_quoted(name)} twice")
            arrays[name] = node["dtype"], tuple(node["shape"])
    return arrays


def _parts(node: Document) -> tuple[list[Any], str | None]:
    """Returns the values inside of a value, and the name of its array."""
    if "array" in node or "key" in node:
        name, shape = node.get("array", node.get("key")), node["shape"]
        words = (name, node["dtype"], node.get("implementation", ""))
        sizes = isinstance(shape, list) and all(type(size) is int and 0 <= size < 2**63 for size in shape)
        if not all(isinstance(word, str) for word in words) or not sizes or type(node["crc32"]) is not int:
            raise ValueError(f"{_quoted(node)} describes no array")
        return [], name
    if "record" in node:
        fields = node["fields"]
        if not isinstance(node["record"], str) or not isinstance(fields, dict):
            raise ValueError(f"{_quoted(node)} describes no record")
        return list(fields.values()), None
    if "function" in node:
        return [node["function"]], None
    items = next(iter(node.values()))
    if not isinstance(items, list):
        raise ValueError(f"{_quoted(node)} holds no list of values")
    if "dict" not in node:
        return items, None
    if not all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str | int) for pair in items):
        raise ValueError(f"{_quoted(node)} holds no pairs of names and values")
    if len({pair[0] for pair in items}) < len(items):
        raise ValueError(f"{_quoted(node)} has a name twice")
    return [pair[1] for pair in items], None


def with_code_of(node: Document, value: Any, known: dict[str, Callable[..., object]]) -> Document:
    """Returns a saved record whose functions, which a file does not contain, are those of a given one.

    Args:
        node: the saved record.
        value: the given one, which replaces all of it where their types differ, or where nothing is missing.
        known: receives the parts of `value` that are taken, as `decode` takes them (mutated).

    Examples:
        >>> from lamu.record import with_code_of
        >>> known = {}
        >>> with_code_of({"record": "networks.MLP", "fields": {}}, "another", known)
        {'record': 'given 0', 'fields': {}}
        >>> known["given 0"]()
        'another'
    """
    if node.get("record") != _name(type(value)) or not _lacks_code(node):
        name = f"given {len(known)}"
        known[name] = lambda: value
        return {"record": name, "fields": {}}
    lacking = {name: part for name, part in node["fields"].items() if _lacks_code(part)}
    taken = {name: with_code_of(part, getattr(value, name), known) for name, part in lacking.items()}
    return {**node, "fields": {**node["fields"], **taken}}


def _lacks_code(node: Data) -> bool:
    return isinstance(node, dict) and ("function" in node or any(map(_lacks_code, _parts(node)[0])))


def modules_of(data: Data) -> set[str]:
    """Returns the modules, other than the library's, of the types named in encoded data.

    Args:
        data: the JSON data.

    Examples:
        >>> from lamu.record import modules_of
        >>> modules_of({"list": [{"record": "mine.parts:Quiet", "fields": {}}]})
        {'mine.parts'}
    """
    rest, modules = [data], set()
    while rest:
        node = rest.pop()
        if isinstance(node, dict):
            if "record" in node and ":" in node["record"]:
                modules.add(node["record"].partition(":")[0])
            rest += _parts(node)[0]
    return modules


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Decodes values whose form `declared` has checked."""

    arrays: Mapping[str, Any]
    known: Mapping[str, Callable[..., Any]]
    trust: tuple[str, ...]

    def read(self, node: object, where: str, finite: bool = False) -> Any:
        """Returns a value; `where` is its path, `finite` whether its numbers must be finite."""
        if not isinstance(node, dict):
            if finite and isinstance(node, float) and not math.isfinite(node):
                raise ValueError(f"{where} is {node}")
            return node
        if "array" in node or "key" in node:
            return self._array(node, where, finite)
        if "tuple" in node or "list" in node:
            items = [self.read(item, f"{where}[{i}]", finite) for i, item in enumerate(next(iter(node.values())))]
            return tuple(items) if "tuple" in node else items
        if "dict" in node:
            return {key: self.read(item, f"{where}[{key!r}]", finite) for key, item in node["dict"]}
        if "function" in node:
            remedy = "it, lamu.load(path, program=...)" if where.endswith(".program") else None
            raise UnknownTypeError(
                f"the function {node['function']!r} was not saved, and is needed; give "
                f"{remedy or 'what holds it, for instance lamu.load(path, network=...)'}"
            )
        return self._record(node["record"], node["fields"])

    def _array(self, node: Document, where: str, finite: bool) -> Any:
        name: str = node["array"] if "array" in node else node["key"]
        if name not in self.arrays:
            raise ValueError(f"the array {name!r} is missing")
        array = _as_declared(name, np.asarray(self.arrays[name]), node)
        if "key" in node:
            return jax.random.wrap_key_data(jax.device_put(array), impl=node["implementation"])
        if array.dtype.kind in "US":  # which JAX does not hold
            return array
        if finite and array.dtype.kind == "c":
            raise ValueError(f"{where} holds complex numbers")
        restored = jax.device_put(array)  # without a program for each shape, which `asarray` compiles
        if finite and jax.numpy.issubdtype(restored.dtype, np.inexact) and not np.isfinite(array).all():
            raise ValueError(f"{where} holds NaN or infinity")
        return restored

    def _record(self, name: str, fields: dict[str, object]) -> Any:
        name = _MOVED.get(name, name)
        fields = {_MOVED.get(f"{name}.{field}", field): item for field, item in fields.items()}
        build = self.known.get(name) or _registered(name) or _imported(name, self.trust)
        if build is None:
            raise UnknownTypeError(f"the type {name!r} is not known here; {_hint(name)}")
        if not (isinstance(build, type) and dataclasses.is_dataclass(build)):
            return build(**{field: self.read(item, f"{name}.{field}") for field, item in fields.items()})
        init_fields = {field.name: field for field in dataclasses.fields(build) if field.init}
        _require_fields(name, init_fields, fields, all_of_them=name not in self.known)
        values = {
            field: self.read(item, f"{name}.{field}", _must_be_finite(name, init_fields[field]))
            for field, item in fields.items()
        }
        hints = hints_of(build)
        for field, value in values.items():
            if field in hints and not is_instance(value, hints[field]):
                raise ValueError(f"{name}.{field} is {_quoted(value)} and no {written(hints[field])}")
        return build(**values)


def _must_be_finite(name: str, field: Any) -> bool:
    """Whether a field must be finite: fields of the library's types that are not `measured()`."""
    unbounded = isinstance(field.default, float) and math.isinf(field.default)
    return not (":" in name or unbounded or "measured" in field.metadata or field.name.startswith("log_"))


def _require_fields(name: str, fields: Mapping[str, Any], names: Mapping[str, Any], all_of_them: bool) -> None:
    if unknown := [field for field in names if field not in fields]:
        raise UnknownTypeError(
            f"the type {name!r} has the fields {', '.join(fields)}, and not {unknown[0]!r}: the file is of another "
            "version; read it with that one"
        )
    lacking = [each for each, field in fields.items() if each not in names and not field.metadata.get("added")]
    if lacking and all_of_them:  # encode writes every field, so a missing one was lost and has no default
        raise ValueError(f"the type {name!r} lacks its field {lacking[0]!r}")


def _as_declared(name: str, array: np.ndarray, node: Mapping[str, Any]) -> np.ndarray:
    """Checks that an array is the one written, and returns it in its original dtype."""
    dtype, shape = node["dtype"], tuple(node["shape"])
    if array.dtype.kind == "V" and dtype != str(array.dtype):  # NumPy's files do not know the dtypes of other libraries
        with contextlib.suppress(TypeError, ValueError):
            array = array.view(jax.numpy.dtype(dtype))
    if (str(array.dtype), array.shape) != (dtype, shape):
        raise ValueError(
            f"the array {name!r} is {array.dtype}{list(array.shape)}, and {dtype}{list(shape)} was written"
        )
    if _crc32(array) != node["crc32"]:
        raise ValueError(f"the array {name!r} has other numbers than those that were written")
    return array


def _crc32(array: np.ndarray) -> int:
    """Returns the checksum of an array's numbers in C order; in pieces, since it may be stored on disk."""
    checksum, rows = 0, max(1, _PIECE // max(array[:1].nbytes, 1)) if array.ndim else 1
    for start in range(0, len(array) if array.ndim else 1, rows):
        piece = array[start : start + rows] if array.ndim else array
        checksum = zlib.crc32(np.ascontiguousarray(piece).view(np.uint8).data if piece.size else b"", checksum)
    return checksum


def _registered(name: str) -> Any:
    """Returns a registered type, or None."""
    # Earlier versions wrote a user's class with a point instead of a colon, which is still read where the class has
    # been imported.
    module, _, short = name.rpartition(".")
    return _TYPES.get(name) or _TYPES.get(f"{module}:{short}")


def _imported(name: str, trust: Sequence[str] = ()) -> Any:
    """Imports and returns a type of the library, or of a trusted module; else None."""
    module, colon, _ = name.partition(":")
    if not colon:
        return _of_floor(name)
    parts = module.split(".")
    if "__main__" in parts or not all(part.isidentifier() for part in parts):  # the import would run a program
        return None
    if module not in sys.modules and not is_trusted(module, trust):
        raise UnknownTypeError(
            f"the type {name!r} is not known here, and its module {module!r} is not imported, since a file may name "
            f"any; if you trust its code, import it first, or give trust=[{module!r}]"
        )
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):  # the module is there, and something that it needs is not
            raise
    return _TYPES.get(name)


def is_trusted(module: str, trust: Iterable[str]) -> bool:
    """Whether a module, or a package that contains it, is trusted.

    Examples:
        >>> from lamu.record import is_trusted
        >>> is_trusted("mine.parts", ["mine"]), is_trusted("miner", ["mine"])
        (True, False)
    """
    return any(f"{module}.".startswith(f"{each}.") for each in trust)


def _hint(name: str) -> str:
    """Returns the advice for an unknown type."""
    module, colon, short = name.partition(":")
    if not colon:
        return "pass it, for instance lamu.load(path, network=...)"
    if "__main__" in module.split("."):
        return f"{short} was saved by the script that defines it; define it in a module that can be imported"
    if module in sys.modules:
        return f"the module {module!r} has no record {short!r} at its top level; decorate it with lamu.record.record"
    return f"no module {module!r} can be imported; put its folder on the path, or pass a network to load"


def _of_floor(name: str) -> Any:
    """Imports and returns a type of the library; None for any other name."""
    # A name contains the package and not the module, which may change from version to version. Where it is not a public
    # name of the package, its modules are imported one after the other until one registers it.
    floor = name.partition(".")[0]
    if floor.startswith("_") or not floor.isidentifier() or importlib.util.find_spec(f"lamu.{floor}") is None:
        return None
    package = importlib.import_module(f"lamu.{floor}")
    getattr(package, name.rpartition(".")[2], None)  # a name of the face imports its module
    modules = pkgutil.walk_packages(getattr(package, "__path__", ()), f"lamu.{floor}.")
    while name not in _TYPES:
        module = next(modules, None)
        if module is None:
            return None
        if not module.name.endswith("__main__"):  # which would run
            with contextlib.suppress(ImportError):  # an optional package that is not installed
                importlib.import_module(module.name)
    return _TYPES[name]


def _code(function: object) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__name__)}"


def _key(key: object, path: str) -> str | int:
    if isinstance(key, str | int):
        return key
    raise TypeError(f"{path} has the dictionary key {key!r}; only strings and integers can be written to disk")


def _name(cls: type) -> str:
    """Returns the name of a class in a file."""
    # For the library's classes it is the package and the class name, so that a class may move within its package
    # without breaking saved files. For all others it is the module and the class name separated by a colon, so that a
    # user's module `priors`, for instance, does not clash with the library's names.
    package, *floors = cls.__module__.split(".")
    return f"{floors[0]}.{cls.__name__}" if package == "lamu" and floors else f"{cls.__module__}:{cls.__name__}"
