"""Weights in files of the safetensors format, as nested dictionaries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lamu import tree
from lamu.typing import Params

__all__ = ["read_safetensors", "write_safetensors"]


def read_safetensors(path: str | Path) -> Params:
    """Returns the arrays of a safetensors file as nested dictionaries, split at the dots of their names.

    Every network takes them, `model.starting_at({"network": weights, "likelihood": {}})`, where the names are its own:
    those of `lamu.tree.paths(posterior.mean["network"])`. The adapters take them too, for instance
    `Trained(function, weights)` and `Linen(module, variables={"params": weights})`; a PyTorch module loads them itself,
    `module.load_state_dict(safetensors.torch.load_file(path))`.

    Args:
        path: the file.

    Raises:
        ModuleNotFoundError: without the extra: `pip install "lamu[safetensors]"`.
        FileNotFoundError: where there is no such file.
        ValueError: for a file of another format.

    Examples:
        >>> import jax.numpy as jnp, os, tempfile
        >>> from lamu.networks import read_safetensors, write_safetensors
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "weights.safetensors")
        ...     write_safetensors(path, {"layers": {"0": {"kernel": jnp.ones((2, 3))}}})
        ...     read_safetensors(path)["layers"]["0"]["kernel"].shape
        (2, 3)
    """
    numpy = _library()
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    try:
        arrays = numpy.load_file(path)
    except Exception as error:  # the library raises a class of its own, by the place where reading stops
        raise ValueError(f"{str(path)!r} is no safetensors file: {error}") from error
    return tree.nested(arrays, ".")


def write_safetensors(path: str | Path, params: Any) -> None:
    """Writes weights to a safetensors file, under the names of their path joined by dots.

    Args:
        path: the file, which must not exist.
        params: a tree of arrays, for instance `posterior.mean["network"]` or a draw.

    Raises:
        ModuleNotFoundError: without the extra: `pip install "lamu[safetensors]"`.
        FileExistsError: where the file exists.

    Examples:
        >>> import jax.numpy as jnp, os, tempfile
        >>> from lamu.networks import write_safetensors
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_safetensors(os.path.join(folder, "weights.safetensors"), {"kernel": jnp.ones((2, 3))})
        ...     os.listdir(folder)
        ['weights.safetensors']
    """
    numpy = _library()
    if Path(path).exists():
        raise FileExistsError(f"{str(path)!r} exists; give another path, or remove it first")
    arrays = {name.replace("/", "."): np.ascontiguousarray(leaf) for name, leaf in tree.by_path(params).items()}
    numpy.save_file(arrays, path)


def _library() -> Any:
    try:
        from safetensors import numpy
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            'these files need safetensors, which is not installed; run pip install "lamu[safetensors]"'
        ) from None
    return numpy
