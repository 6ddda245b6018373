"""Runs over the devices of several processes: agreement outside of steps, and shared failure."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.stream import Stream
from lamu.running.sharding import Devices, layout
from lamu.typing import PyTree, State

__all__ = ["OtherProcessFailed", "Processes"]

_WORDS = 1024  # bytes of an error message


class OtherProcessFailed(RuntimeError):
    """Raised in every process when another one fails."""


# Every process runs the same script, so that all of them compile and run the same programs in the same order. All other
# work is either the same in all processes because its inputs are (reading, validation, posterior), or decided by
# process 0 (`agree`). Each decision is an exchange of one record of fixed size, in which a failed process reports its
# error, and the others raise it.
class Processes(Devices):
    """The devices of a mesh that spans processes."""

    spans_processes = True

    @property
    def writes(self) -> bool:
        """Whether this process writes files and warns: the first one does."""
        return jax.process_index() == 0

    def agree(self, value: float | int, error: BaseException | None = None) -> float | int:
        """Returns the value of process 0; raises the error that any process reports."""
        return self._exchanged(value, error)[0]

    def minimum(self, value: float | int) -> float | int:
        """Returns the minimum over the processes."""
        return min(self._exchanged(value))

    def _exchanged(self, value: float | int, error: BaseException | None = None) -> list[float]:
        words = b"" if error is None else f"{type(error).__name__}: {error}".encode()[:_WORDS]
        record = np.frombuffer(np.float64(value).tobytes() + words.ljust(_WORDS), np.uint8)
        records = np.asarray(multihost_utils.process_allgather(record)).reshape(jax.process_count(), -1)
        for number, other in enumerate(records):
            failure = other[8:].tobytes().decode(errors="replace").strip()
            if failure and number != jax.process_index() and error is None:
                raise OtherProcessFailed(f"process {number} failed: {failure}")
        return np.frombuffer(np.ascontiguousarray(records[:, :8]).tobytes(), np.float64).tolist()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Context manager in which an error of one process ends all of them, and process 0 alone warns."""
        with warnings.catch_warnings():
            if not self.writes:
                warnings.simplefilter("ignore")
            try:
                yield
                self.agree(0.0)
            except OtherProcessFailed:
                raise
            except BaseException as error:
                self.agree(0.0, error)
                raise

    def rows(self, rows: Any) -> Any:
        """Returns the rows of all processes: unchanged where all have the same, else all shares."""
        if not isinstance(rows, Arrays):
            if "data" not in self.mesh.axis_names:
                raise ValueError(
                    f"the axes of the mesh are {self.mesh.axis_names}, and each of several processes reads batches of "
                    'its own along the axis "data"; add that axis, or give arrays'
                )
            return rows
        leaves, structure = jax.tree.flatten(rows)
        arrays = [np.asarray(leaf) for leaf in leaves]
        seen = hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).digest()
        summary = np.frombuffer(np.int64(rows.count).tobytes() + seen, np.uint8)
        others = np.asarray(multihost_utils.process_allgather(summary)).reshape(jax.process_count(), -1)
        if (others == others[0]).all():
            return rows
        counts = [int(np.frombuffer(other[:8].tobytes(), np.int64)[0]) for other in others]

        def joined(array: np.ndarray) -> Any:
            padded = np.zeros((max(counts), *array.shape[1:]), array.dtype)
            padded[: len(array)] = array
            parts = np.asarray(multihost_utils.process_allgather(padded)).reshape(len(counts), *padded.shape)
            return jnp.asarray(np.concatenate([part[:count] for part, count in zip(parts, counts, strict=True)]))

        return jax.tree.unflatten(structure, [joined(array) for array in arrays])

    def example(self, example: Batch) -> Batch:
        """Returns process 0's example, so that all start from one state."""
        return jax.tree.map(jnp.asarray, multihost_utils.broadcast_one_to_all(example))

    def replicate(self, what: PyTree) -> PyTree:
        layout = NamedSharding(self.mesh, PartitionSpec())
        return jax.tree.map(lambda leaf: _global_array(leaf, layout) if isinstance(leaf, jax.Array) else leaf, what)

    def shard(self, value: PyTree) -> PyTree:
        return jax.tree.map(_global_array, value, layout(self.mesh, self.traits, value, self.specs))

    def place_batch(self, batch: Batch) -> Batch:
        """Returns a batch of the rows of all processes."""
        count, devices = len(batch.mask) * jax.process_count(), self.mesh.shape["data"]
        if count % devices:
            raise ValueError(
                f"batches of {len(batch.mask)} rows in each of {jax.process_count()} processes cannot be shared evenly "
                f'by the {devices} devices of the axis "data"; give batches of a multiple of {devices} rows'
            )
        sharding = NamedSharding(self.mesh, PartitionSpec("data"))
        deal = lambda leaf: jax.make_array_from_process_local_data(sharding, np.asarray(leaf))
        return jax.tree.map(deal, batch)

    def place_stream(self, rows: Stream) -> Stream:
        """Returns a stream of such batches; a pass ends with that of the shortest process."""
        return _GlobalStream(rows, self)

    def gather(self, state: State) -> State:
        def gathered(leaf: Any) -> Any:
            if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
                leaf = multihost_utils.process_allgather(leaf, tiled=True)
            return jnp.array(np.asarray(leaf))

        return jax.tree.map(gathered, state)


class _GlobalStream(Stream):
    """Stream of the batches of all processes, placed on the devices."""

    def __init__(self, base: Stream, devices: Processes) -> None:
        super().__init__(base)
        self._devices = devices

    def __iter__(self) -> Iterator[Batch]:
        batches = super().__iter__()
        while True:
            batch = next(batches, None)
            here = np.asarray(multihost_utils.process_allgather(np.array([batch is not None])))
            if batch is None or not here.all():
                return
            yield self._devices.place_batch(batch)


def _global_array(leaf: Any, sharding: NamedSharding) -> Any:
    """Returns an array that is complete in every process as one over all of them, without communication."""
    if not isinstance(leaf, jax.Array) or not leaf.is_fully_addressable:
        return leaf
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = _global_array(jax.random.key_data(jax.random.clone(leaf)), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    value = np.asarray(leaf)
    return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])
