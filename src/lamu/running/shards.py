"""Sharded arrays on disk: each process writes its shards, and any number of processes can read them."""

# One folder for each array, in the zarr format (version 3) of TensorStore: a file a shard, with its CRC-32C. A hundred
# arrays of two processes, half of them sharded, took 90 to 150 ms, and 290 to 380 ms with Orbax, which collects the
# files in a database afterwards.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from lamu.store import reading
from lamu.typing import Array, Document

__all__ = ["Shards", "is_sharded", "read", "require_library"]


def require_library() -> Any:
    """Imports TensorStore, or raises an error with the command to install it."""
    try:
        import tensorstore
    except ImportError as error:
        raise ModuleNotFoundError(
            "checkpoints of a state that lies over several processes are written by TensorStore; run "
            'pip install "lamu[processes]"'
        ) from error
    return tensorstore


def is_sharded(leaf: object) -> bool:
    """Whether an array is spread over processes."""
    return isinstance(leaf, jax.Array) and leaf.size > 0 and not (leaf.is_fully_addressable or leaf.is_fully_replicated)


@dataclass(frozen=True)
class Shards:
    """This process's shards of an array, copied before a step overwrites them."""

    shape: tuple[int, ...]  # of the whole array
    dtype: Any
    chunk: tuple[int, ...]  # the shape of a shard
    own: list[tuple[Any, np.ndarray]]  # each with its index in the array

    @classmethod
    def of(cls, leaf: Array) -> Shards:
        """Returns this process's shards of an array or of keys; replicated shards are written once."""
        data = _numbers(leaf)
        own = [(shard.index, np.array(shard.data)) for shard in data.addressable_shards if shard.replica_id == 0]
        return cls(data.shape, data.dtype, data.sharding.shard_shape(data.shape), own)

    @staticmethod
    def write(arrays: Mapping[Path, Shards]) -> None:
        """Writes shards into the folders of their arrays, and waits for the disk."""
        stores = [
            (require_library().open(part.spec(place), create=True, open=True), part) for place, part in arrays.items()
        ]
        writes = [store.result()[index].write(data) for store, part in stores for index, data in part.own]
        for write in writes:
            write.result()

    def spec(self, place: Path) -> Document:
        """Returns the array's description for TensorStore."""
        codecs = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
        return {
            **_location(place),
            # Zeros are written too, so that a missing file is an error.
            "store_data_equal_to_fill_value": True,
            "metadata": {
                "shape": list(self.shape),
                "data_type": np.dtype(self.dtype).name,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(self.chunk)}},
                "codecs": codecs,
            },
        }


def read(name: str, like: Any, implementation: str | None, folder: Path) -> Array:
    """Returns an array with the shape and the sharding of another; each process reads the shards of its devices."""
    library, place = require_library(), folder / name
    with reading(folder):
        wanted = jax.eval_shape(jax.random.key_data, like) if implementation else like
        sharding = _numbers(like).sharding if isinstance(like, jax.Array) else SingleDeviceSharding(jax.devices()[0])
        stored = library.open({**_location(place), "fill_missing_data_reads": False}, open=True).result()
        if (tuple(stored.shape), stored.dtype.name) != (wanted.shape, np.dtype(wanted.dtype).name):
            raise ValueError(f"{stored.dtype.name}{list(stored.shape)} was written where {wanted} is expected")
        data = jax.make_array_from_callback(wanted.shape, sharding, lambda index: stored[index].read().result())
    return jax.random.wrap_key_data(data, impl=implementation) if implementation else data


def _location(place: Path) -> Document:
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{place.resolve()}/"}}


def _numbers(leaf: Array) -> Array:
    """Returns an array of numbers, keys as their bits."""
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(jax.random.clone(leaf)) if is_key else leaf
