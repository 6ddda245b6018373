r"""Records: the frozen dataclasses that every object of the library is made of.

A record is three things at once, and nothing more:

* a frozen dataclass, so that a value never changes under somebody who holds it;
* a pytree, so that it goes through `jit`, `vmap` and `scan`. Fields are leaves unless declared with `static()`;
* a name in a table, so that `encode` writes it as JSON and arrays and `decode` reads it back without pickle. A file
  can name only classes that are records: those of the library, and those of a module that can be imported.

Rebuilding a pytree does not call `__init__`: JAX unflattens with tracers, `None` and sentinels in the leaves, which a
validating `__post_init__` would refuse. Validation therefore runs exactly once, where a person builds the object.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np

__all__ = ["decode", "encode", "given", "record", "static"]

T = TypeVar("T")

_TYPES: dict[str, type] = {}
_MOST_NUMBERS = 4  # of an array that is written with its numbers


def static(**kwargs: Any) -> Any:
    """Declares a record's field as part of its structure (hashable, compared at trace time), not as data.

    Args:
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
    return dataclasses.field(metadata={"static": True}, **kwargs)


def given() -> Any:
    """Declares a record's field as code that its user gives, a part of its structure of which a file keeps the name.

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


@dataclass_transform(frozen_default=True, field_specifiers=(static, given, dataclasses.field))
def record(cls: type[T]) -> type[T]:
    """Makes a class a record: a frozen dataclass, a pytree, and a name that a saved file may mention.

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
    own = "__repr__" in vars(cls)
    cls = dataclasses.dataclass(frozen=True)(cls)
    if not own:
        cls.__repr__ = _written  # pyright: ignore[reportAttributeAccessIssue]
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
    data = tuple(field.name for field in fields if not field.metadata.get("static", False))
    meta = tuple(field.name for field in fields if field.metadata.get("static", False))

    def flatten_with_keys(value: Any) -> tuple[Any, Any]:
        children = tuple((jax.tree_util.GetAttrKey(name), getattr(value, name)) for name in data)
        return children, tuple(getattr(value, name) for name in meta)

    def flatten(value: Any) -> tuple[Any, Any]:
        return tuple(getattr(value, name) for name in data), tuple(getattr(value, name) for name in meta)

    def unflatten(structure: Any, children: Any) -> Any:
        value = object.__new__(cls)
        for name, child in zip(data, children, strict=True):
            object.__setattr__(value, name, child)
        for name, child in zip(meta, structure, strict=True):
            object.__setattr__(value, name, child)
        return value

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    name = _name(cls)
    known = _TYPES.get(name)
    if known is not None and known.__module__ != cls.__module__:
        raise TypeError(f"the record name {name!r} is taken by {known.__module__}; choose another one")
    _TYPES[name] = cls
    return cls


def _written(self: Any) -> str:
    """A record as its constructor is called, with the dtype and shape of an array in the place of many numbers."""
    parts = (f"{field.name}={_short(getattr(self, field.name))}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(parts)})"


def _short(value: Any) -> str:
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
    """Writes a value as plain JSON data, with its arrays put aside under the path at which they stand.

    Args:
        value: records, dictionaries with string keys, lists, tuples, numbers, strings, `None`, arrays and random keys.
            Of what `given()` declares the name is written, and it cannot be read back.
        arrays: receives the arrays (mutated).
        path: the name of the value, the prefix of its arrays' names.

    Returns:
        Data that `json.dumps` accepts and `decode` reads back.

    Raises:
        TypeError: for a value of another kind; the message names where it stands.

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
        return {"key": path, "implementation": str(jax.random.key_impl(value))}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        arrays[path] = np.asarray(value)
        return {"array": path}
    if isinstance(value, tuple | list):
        items = [encode(item, arrays, f"{path}.{index}") for index, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else {"list": items}
    if isinstance(value, Mapping):
        return {"dict": [[_key(key, path), encode(item, arrays, f"{path}.{key}")] for key, item in value.items()]}
    if _TYPES.get(_name(type(value))) is type(value):
        fields = {}
        for field in dataclasses.fields(value):
            held = getattr(value, field.name)
            code = field.metadata.get("given")
            fields[field.name] = {"function": _code(held)} if code else encode(held, arrays, f"{path}.{field.name}")
        return {"record": _name(type(value)), "fields": fields}
    raise TypeError(
        f"{path} is a {type(value).__name__}, which cannot be written to disk; make it a record or an array"
    )


def decode(data: Any, arrays: Mapping[str, np.ndarray], known: Mapping[str, Callable[..., Any]] | None = None) -> Any:
    """Reads back what `encode` wrote.

    Args:
        data: the JSON data.
        arrays: the arrays by name.
        known: further types by name, for a user's own parts.

    Returns:
        The value. Arrays come back as JAX arrays where the dtype is allowed, random keys as typed keys.

    A record of another package is written as `package.module:Name`, and reading it imports that module, which runs the
    module's top level. Only a class that the module makes a record is taken from it.

    Raises:
        ValueError: if a type is named that is not known here and that no module brings, or a field that the type lacks.

    Examples:
        >>> from lamu.record import decode
        >>> decode({"list": [1, 2.5, "three"]}, {})
        [1, 2.5, 'three']
    """
    known = known or {}
    if not isinstance(data, dict):
        return data
    if "array" in data:
        return jax.numpy.asarray(arrays[data["array"]])
    if "key" in data:
        return jax.random.wrap_key_data(jax.numpy.asarray(arrays[data["key"]]), impl=data["implementation"])
    if "tuple" in data:
        return tuple(decode(item, arrays, known) for item in data["tuple"])
    if "list" in data:
        return [decode(item, arrays, known) for item in data["list"]]
    if "dict" in data:
        return {key: decode(item, arrays, known) for key, item in data["dict"]}
    if "function" in data:
        raise ValueError(
            f"the function {data['function']!r} was not saved, and is needed; give what holds it, for instance "
            "lamu.load(path, network=...)"
        )
    name = data["record"]
    build = known.get(name) or _registered(name) or _imported(name)
    if build is None:
        raise ValueError(f"the type {name!r} is not known here; {_hint(name)}")
    _require_fields(name, build, data["fields"])
    return build(**{field: decode(item, arrays, known) for field, item in data["fields"].items()})


def _require_fields(name: str, build: Any, given: Mapping[str, Any]) -> None:
    if not (isinstance(build, type) and dataclasses.is_dataclass(build)):
        return
    own = [field.name for field in dataclasses.fields(build) if field.init]
    if unknown := [field for field in given if field not in own]:
        raise ValueError(
            f"the type {name!r} has the fields {', '.join(own)}, and not {unknown[0]!r}: the file is of another "
            "version; read it with that one"
        )


def _registered(name: str) -> Any:
    """Returns a type that is known by now; None otherwise.

    Before a module of one's own was written with a colon, it was written with a point, which is still read where the
    class has been imported.
    """
    module, _, short = name.rpartition(".")
    return _TYPES.get(name) or _TYPES.get(f"{module}:{short}")


def _imported(name: str) -> Any:
    """Returns a type that nobody has imported yet: of the library, or of the module that the name says; else None."""
    module, colon, _ = name.partition(":")
    if not colon:
        return _of_floor(name)
    parts = module.split(".")
    if "__main__" in parts or not all(part.isidentifier() for part in parts):  # the import would run a program
        return None
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):  # the module is there, and something that it needs is not
            raise
    return _TYPES.get(name)


def _hint(name: str) -> str:
    """Returns how a type that is not known here becomes known."""
    module, colon, short = name.partition(":")
    if not colon:
        return "pass it, for instance lamu.load(path, network=...)"
    if "__main__" in module.split("."):
        return f"{short} was saved by the script that defines it; define it in a module that can be imported"
    if module in sys.modules:
        return f"the module {module!r} has no record {short!r} at its top level; decorate it with lamu.record.record"
    return f"no module {module!r} can be imported; put its folder on the path, or pass a network to load"


def _of_floor(name: str) -> Any:
    """Returns a type of the library that nobody has imported yet; None for any other name.

    A name says the floor and not the module, which may change from version to version. Where the floor's package does
    not import the type, its modules are imported one after the other until one registers it.
    """
    floor = name.partition(".")[0]
    if floor.startswith("_") or not floor.isidentifier() or importlib.util.find_spec(f"lamu.{floor}") is None:
        return None
    package = importlib.import_module(f"lamu.{floor}")
    modules = pkgutil.walk_packages(getattr(package, "__path__", ()), f"lamu.{floor}.")
    while name not in _TYPES:
        module = next(modules, None)
        if module is None:
            return None
        if not module.name.endswith("__main__"):  # which would run
            with contextlib.suppress(ImportError):  # of an optional package that is not there
                importlib.import_module(module.name)
    return _TYPES[name]


def _code(function: Any) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__name__)}"


def _key(key: Any, path: str) -> str | int:
    if isinstance(key, str | int):
        return key
    raise TypeError(f"{path} has the dictionary key {key!r}; only strings and integers can be written to disk")


def _name(cls: type) -> str:
    """Returns the name of a class in a file.

    For the library's it is the floor and the class's name, so that a class may move within its floor without breaking
    what was saved. For all others it is the module and the class's name with a colon between them: a module of the name
    of a floor, `priors` for instance, takes none of the library's names.
    """
    package, *floors = cls.__module__.split(".")
    return f"{floors[0]}.{cls.__name__}" if package == "lamu" and floors else f"{cls.__module__}:{cls.__name__}"
