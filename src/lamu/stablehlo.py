"""Exports predictions as programs of `jax.export`, which run without Lamu, for `Posterior.export`."""

# A folder contains one file a program (StableHLO, with a symbolic number of rows), `arrays.npz` with the draws and the
# rest of the posterior's preparation with its own key, and `schema.json`. The arrays are arguments of the programs, not
# constants in them: they are stored once for all programs, and XLA does not try to fold them.

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from lamu.base.drafts import draft
from lamu.predictives.interface import Predictive, Prepared
from lamu.supports import Support
from lamu.typing import Document

__all__ = ["FORMAT", "write"]

FORMAT = "lamu-export-1"
PLATFORMS = ("cpu", "cuda", "tpu")
_ROWS = "rows"

_Answers: TypeAlias = dict[str, Any]
_Question: TypeAlias = Callable[..., _Answers]  # of a predictive, and a number where the program takes one


def _moments(pred: Predictive) -> _Answers:
    names = ("mean", "variance", "std", "aleatoric", "epistemic", "total")
    return {name: getattr(pred, name) for name in (*names, *(("probabilities",) if pred.support.has_classes else ()))}


def _interval(pred: Predictive, level: Any) -> _Answers:
    return dict(zip(("lower", "upper"), pred.interval(level), strict=True))


def _questions(support: Support) -> dict[str, tuple[_Question, str | None]]:
    """Returns the exported functions for a support, each with the name of its number argument, if any."""
    if support.has_classes:
        of_level = {"prediction_set": (lambda pred, level: {"members": pred.prediction_set(level)}, "level")}
    elif support.ordered:
        quantile = lambda pred, probability: {"quantile": pred.quantile(probability)}
        of_level = {"interval": (_interval, "level"), "quantile": (quantile, "probability")}
    else:
        of_level = {}
    return {"moments": (_moments, None), **of_level}


def write(
    path: str | os.PathLike[str],
    prepared: Prepared,
    row_shape: tuple[int, ...],
    dtype: Any,
    name: str,
    platforms: Sequence[str] = PLATFORMS,
    about: Document | None = None,
) -> Path:
    """Writes the programs of a preparation as one folder, atomically."""
    # `name` is the network's name in messages, `about` further entries of the schema.
    path = Path(path)
    if path.exists() or path.is_symlink():
        raise FileExistsError(
            f"{str(path)!r} exists already and is not overwritten; choose another folder or remove it"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(path.parent)!r} does not exist; make it first")
    leaves, structure = jax.tree.flatten(prepared)
    places = [index for index, leaf in enumerate(leaves) if hasattr(leaf, "dtype")]
    arrays = [_raw(leaves[index]) for index in places]

    def at(arrays: list[Any], x: Any) -> Predictive:
        restored: list[Any] = list(leaves)
        for index, array in zip(places, arrays, strict=True):
            of_key = jnp.issubdtype(leaves[index].dtype, jax.dtypes.prng_key)
            impl = jax.random.key_impl(leaves[index]) if of_key else None
            restored[index] = jax.random.wrap_key_data(array, impl=impl) if of_key else array
        return structure.unflatten(restored).at(x, None)

    kinds = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    rows = export.symbolic_shape(_ROWS)[0]
    x = jax.ShapeDtypeStruct((rows, *row_shape), dtype)
    number = jax.ShapeDtypeStruct((), dtype)
    schema: Document = {
        "format": FORMAT,
        "versions": {"lamu": metadata.version("lamu"), "jax": jax.__version__},
        "platforms": list(platforms),
        "task": prepared.support.task,
        "target": prepared.support.values,
        "scale": "targets in the units of the data; entropies of classes in nats, else variances",
        "x64": bool(jax.config.jax_enable_x64),  # pyright: ignore[reportAttributeAccessIssue]
        "row_bytes": int(math.prod(row_shape)) * np.dtype(dtype).itemsize,
        "arrays": {"file": "arrays.npz", "bytes": sum(array.nbytes for array in arrays)},
        "programs": {},
        **(about or {}),
    }
    programs: dict[str, bytes] = {}
    for program, (question, argument) in _questions(prepared.support).items():
        given = () if argument is None else (number,)

        def asked(arrays: list[Any], x: Any, *given: Any, ask: _Question = question) -> _Answers:
            pred = at(arrays, x)
            return ask(pred, *(jnp.asarray(value, pred.mean.dtype) for value in given))

        exported, programs[program] = _exported(asked, platforms, (kinds, x, *given), name)
        answers = jax.tree.unflatten(exported.out_tree, exported.out_avals)
        inputs = {"x": _described(x), **({} if argument is None else {argument: _described(number)})}
        outputs = {name: _described(answer) for name, answer in answers.items()}
        schema["programs"][program] = {"file": f"{program}.stablehlo", "inputs": inputs, "outputs": outputs}
    with draft(path) as folder:
        folder.mkdir(mode=0o755)
        np.savez(folder / "arrays.npz", **{f"a{index}": array for index, array in enumerate(arrays)})  # pyright: ignore[reportArgumentType]
        for program, content in programs.items():
            (folder / f"{program}.stablehlo").write_bytes(content)
        (folder / "schema.json").write_text(json.dumps(schema, indent=1), encoding="utf-8")
    return path


def _exported(
    asked: Callable[..., _Answers], platforms: Sequence[str], arguments: tuple[Any, ...], name: str
) -> tuple[Any, bytes]:
    """Returns a program for all rows at once; where that needs a fixed number, one mapped over single rows."""

    def row_by_row(arrays: list[Any], x: Any, *given: Any) -> _Answers:
        return jax.vmap(lambda row: jax.tree.map(lambda leaf: leaf[0], asked(arrays, row[None], *given)))(x)

    reasons = []
    for function in (asked, row_by_row):
        try:
            exported = export.export(jax.jit(function), platforms=tuple(platforms))(*arguments)
            return exported, bytes(exported.serialize())
        except ImportError as error:
            raise ImportError(
                "an export is written with flatbuffers, which is not installed; install it with: "
                "pip install 'lamu[export]'"
            ) from error
        except Exception as error:  # a network may fail to export in any way
            reasons.append(error)
    reason = " ".join(str(reasons[-1]).split())
    raise TypeError(
        f"the predictions of {name} cannot be exported, since they are not a program of JAX alone (a network that "
        f"calls back into Python is none); save(path) keeps the posterior for Lamu. JAX says: {reason[:200]}"
    ) from reasons[-1]


def _raw(leaf: Any) -> np.ndarray:
    """Returns an array as a NumPy array, a random key as its bits."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def _described(value: Any) -> Document:
    shape = [size if isinstance(size, int) else str(size) for size in value.shape]
    return {"shape": shape, "dtype": str(np.dtype(value.dtype))}
