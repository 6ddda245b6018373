"""Sharding of a run over the devices of a mesh and of several processes, and sharded arrays on disk."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from lamu import tree
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.stream import Stream
from lamu.model import Model
from lamu.objective import Objective
from lamu.protocol import Algorithm, Info, Traits
from lamu.record import record, static
from lamu.running.compiled_steps import OneDevice, algorithm_of
from lamu.store import reading
from lamu.target import Target
from lamu.typing import Array, Document, Params, PyTree, RandomKey, State

__all__ = [
    "Devices",
    "DistributedAlgorithm",
    "OtherProcessFailed",
    "Processes",
    "Shards",
    "is_sharded",
    "layout",
    "read",
    "require_library",
]


# Four mesh axes have a meaning. The axis "runs" shards the chains or members that an algorithm runs in parallel, which
# exchange the mean of their losses alone. The axis "data" shards the rows of a batch, over which gradients are summed.
# The axis "samples" shards the draws that a step averages (`lamu.tree.each`). The axis "model" shards the state itself,
# every leaf along its longest axis that the devices divide, or as the network's own `PartitionSpec`s say. The compiler
# partitions the work from the arrays' shardings, so that algorithms need no code for it.


_RUNS, _DATA, _SAMPLES, _MODEL = "runs", "data", "samples", "model"
_AXES = (_RUNS, _DATA, _SAMPLES, _MODEL)

Specs: TypeAlias = tuple[tuple[str, tuple[int, ...], PartitionSpec], ...]  # of parameters, by path and shape


@dataclass(frozen=True)
class Devices(OneDevice):
    """The devices of a mesh, and the placement of a run on them."""

    mesh: Mesh  # with axes of these names
    traits: Traits  # the algorithm's, which tell the leaves with an axis of runs
    specs: Specs = ()  # the network's own

    @classmethod
    def of(cls, mesh: object, algorithm: Algorithm) -> Devices:
        """Returns the devices of an algorithm's run, after checking the axes."""
        traits = algorithm.traits
        if not isinstance(mesh, Mesh):
            raise TypeError(f'mesh={mesh!r} is not a mesh of devices; give for instance jax.make_mesh((4,), ("runs",))')
        names = mesh.axis_names
        if not names or not set(names) <= set(_AXES):
            raise ValueError(
                f'the axes of the mesh are {names}; name them "runs", for chains or members side by side, "data", for '
                'the rows of a batch, "samples", for the draws of a step, or "model", for the state'
            )
        owners = {device.process_index for device in mesh.devices.flat}
        if len(owners) > 1 and len(owners) < jax.process_count():
            raise ValueError(
                f"the mesh has devices of {len(owners)} of {jax.process_count()} processes; give one with devices of "
                "all of them (jax.devices()), or of one (jax.local_devices())"
            )
        if explicit := jax.sharding.get_abstract_mesh().explicit_axes:
            raise ValueError(
                f"the run is inside of jax.set_mesh with the explicit axes {explicit}, where shardings are types; call "
                "fit outside of it, with mesh= alone"
            )
        share = mesh.shape.get(_RUNS, 1)
        if share > 1 and traits.runs == 1:
            raise ValueError(
                f'{type(algorithm).__name__} is one run, and the axis "runs" has {share} devices to spread runs over; '
                'name that axis "data", which spreads the rows of a batch, or fit a deep_ensemble'
            )
        if traits.runs % share:
            raise ValueError(
                f'{traits.runs} runs side by side cannot be shared evenly by the {share} devices of the axis "runs"; '
                f"ask for a multiple of {share} chains or members, or for fewer devices"
            )
        _require_axes(type(algorithm).__name__, mesh, traits)
        if len(owners) > 1:
            from lamu.running.sharding import Processes  # imported here, as most runs have one process

            return Processes(Mesh(mesh.devices, names), traits)
        return cls(Mesh(mesh.devices, names), traits)

    def for_network(self, target: Target, example: Batch) -> Devices:
        """Returns the same devices with a network's own partitioning, where there is a single run."""
        if not isinstance(target, Model) or self.traits.runs > 1:
            return self
        network, x, outputs = target.network, example.x, target.likelihood.outputs(example.y)
        specs = network.partition_specs(x, outputs)
        if not specs:
            return self
        weights = jax.eval_shape(lambda key: network.init(key, x, outputs)[0], jax.random.key(0))
        return replace(self, specs=_specs_of(self.mesh, specs, weights))

    def distribute(self, algorithm: PyTree) -> PyTree:
        """Returns an algorithm's handle that keeps states and batches spread over the devices."""
        return DistributedAlgorithm(algorithm, self.mesh, self.specs)

    def replicate(self, what: PyTree) -> PyTree:
        """Returns a pytree with every array replicated on each device."""
        layout = NamedSharding(self.mesh, PartitionSpec())
        return jax.tree.map(lambda leaf: jax.device_put(leaf, layout) if isinstance(leaf, jax.Array) else leaf, what)

    def place_stream(self, rows: Stream) -> Stream:
        """Returns a stream of the same batches, each placed on the devices."""
        return _PlacedStream(rows, self)

    def place_batch(self, batch: Batch) -> Batch:
        """Returns a batch sharded by rows; replicated where the rows do not divide evenly."""
        even = _DATA in self.mesh.axis_names and batch.mask.shape[0] % self.mesh.shape[_DATA] == 0
        return jax.device_put(batch, NamedSharding(self.mesh, PartitionSpec(_DATA) if even else PartitionSpec()))

    def shard(self, value: PyTree) -> PyTree:
        """Returns a state sharded by runs or by its own axes."""
        return jax.tree.map(jax.device_put, value, layout(self.mesh, self.traits, value, self.specs))

    def gather(self, state: State) -> State:
        """Returns a state on the default device, for the work after the steps."""
        return jax.tree.map(lambda leaf: jnp.array(np.asarray(leaf)), state)


@record
class DistributedAlgorithm:
    """Wraps an algorithm so that its states and batches are spread over a mesh."""

    # Without its word the compiler may gather what a step returns, and every device then does everybody's work.

    base: PyTree  # the algorithm's handle
    mesh: Mesh = static()  # the devices
    specs: Specs = static(default=())

    @property
    def traits(self) -> Traits:
        """The traits of the algorithm."""
        return algorithm_of(self.base).traits

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> State:
        """Returns the first state, which is never gathered on one device."""
        with jax.sharding.use_abstract_mesh(self.mesh.abstract_mesh):
            return self._sharded(algorithm_of(self.base).init(key, objective, batch))

    def step(self, key: RandomKey, state: State, batch: Batch, objective: Objective) -> tuple[State, Info]:
        """Returns the next state, and diagnostics of the step."""
        with jax.sharding.use_abstract_mesh(self.mesh.abstract_mesh):  # for `lamu.tree.each`
            state, info = algorithm_of(self.base).step(key, state, self._sharded_rows(batch), objective)
            return self._sharded(state), self._replicated_info(info)

    def _sharded(self, state: State) -> State:
        return jax.lax.with_sharding_constraint(state, layout(self.mesh, self.traits, state, self.specs))

    def _replicated_info(self, info: Info) -> Info:
        """Returns the diagnostics, replicated in every process."""
        if not self.mesh.is_multi_process:
            return info
        return jax.lax.with_sharding_constraint(info, NamedSharding(self.mesh, PartitionSpec()))

    def _sharded_rows(self, batch: Batch) -> Batch:
        """Shards a batch by rows; a batch for every run has the axis of runs before that of the rows."""
        axes = tuple(name if name in self.mesh.axis_names else None for name in (_RUNS, _DATA))
        spec = PartitionSpec(*axes if batch.mask.ndim == 2 else axes[1:])
        return jax.lax.with_sharding_constraint(batch, NamedSharding(self.mesh, spec))


class _PlacedStream(Stream):
    """Stream of batches placed on the devices."""

    def __init__(self, base: Stream, devices: Devices) -> None:
        super().__init__(base)
        self._devices = devices

    def __iter__(self) -> Iterator[Batch]:
        return (self._devices.place_batch(batch) for batch in super().__iter__())


def _require_axes(name: str, mesh: Mesh, traits: Traits) -> None:
    """Raises a ValueError for an axis over which the algorithm cannot be spread."""
    share = mesh.shape.get(_SAMPLES, 1)
    if share > 1 and traits.samples is None:
        raise ValueError(
            f'{name} averages no draws in a step, and the axis "samples" has {share} devices to spread draws over; '
            'name that axis "data", which spreads the rows of a batch'
        )
    if traits.samples is not None and traits.samples % share:
        raise ValueError(
            f"samples={traits.samples} draws a step cannot be shared evenly by the {share} devices of the axis "
            f'"samples"; give {share} or a multiple, fewer devices, or, where the algorithm has no such option, the '
            'axis "data"'
        )
    if mesh.shape.get(_MODEL, 1) > 1 and _MODEL not in traits.axes:
        raise ValueError(
            f'the state of {name} is that of several runs, which the axis "model" does not spread; name that axis '
            '"runs", for chains or members side by side'
        )


def _specs_of(mesh: Mesh, specs: Mapping[str, PartitionSpec], weights: Params) -> Specs:
    """Returns a network's specs by parameter, after checking them against the mesh."""
    tree.require_matches(specs, weights)
    of_leaves = []
    for path, leaf in tree.by_path(weights).items():
        spec = next((spec for pattern, spec in specs.items() if tree.matches(path, pattern)), None)
        if spec is None:
            continue
        if len(spec) > len(leaf.shape):
            raise ValueError(f"{path!r} has the shape {leaf.shape}, and {spec} is of {len(spec)} axes; leave some out")
        for size, names in zip(leaf.shape, spec, strict=False):
            names = () if names is None else (names,) if isinstance(names, str) else names
            if missing := [name for name in names if name not in mesh.shape]:
                raise ValueError(
                    f"{path!r} lies as {spec}, and the mesh has the axes {mesh.axis_names}; give a mesh with the axis "
                    f"{missing[0]!r}, or a PartitionSpec of these"
                )
            if size % (share := math.prod(mesh.shape[name] for name in names)):
                raise ValueError(
                    f"{path!r} of the shape {leaf.shape} lies as {spec}, and {size} is not divided by {share} devices; "
                    "give another axis, or fewer devices"
                )
        of_leaves.append((path, leaf.shape, spec))
    return tuple(sorted(of_leaves, key=lambda entry: -len(entry[0])))


def layout(mesh: Mesh, traits: Traits, state: State, specs: Specs = ()) -> PyTree:
    """Returns the sharding of every leaf of a state: by the network's specs, by runs, or along its longest axis."""
    apart, share = _RUNS in mesh.axis_names and traits.runs > 1, mesh.shape.get(_MODEL, 1)

    def sharding(path: Any, leaf: Any) -> NamedSharding:
        own = _own_spec(jax.tree_util.keystr(path, simple=True, separator="/"), jnp.shape(leaf), specs)
        if own is not None:
            return NamedSharding(mesh, own)
        if share > 1:
            return NamedSharding(mesh, _longest(jnp.shape(leaf), share))
        own = apart and jax.tree_util.keystr(path[:1], simple=True) not in traits.shared
        return NamedSharding(mesh, PartitionSpec(_RUNS) if own else PartitionSpec())

    return jax.tree_util.tree_map_with_path(sharding, state)


def _own_spec(path: str, shape: tuple[int, ...], specs: Specs) -> PartitionSpec | None:
    """Returns the spec of a state's leaf: that of the parameter whose path and shape are suffixes of the leaf's."""
    for parameter, own, spec in specs:  # the longest path first
        before = len(shape) - len(own)
        if f"/{path}".endswith(f"/{parameter}") and before >= 0 and shape[before:] == own:
            return PartitionSpec(*(None,) * before, *spec)
    return None


def _longest(shape: tuple[int, ...], share: int) -> PartitionSpec:
    """Returns the sharding along the longest axis that the devices divide; replicated where there is none."""
    axes = [axis for axis, size in enumerate(shape) if size and size % share == 0]
    if not axes:
        return PartitionSpec()
    return PartitionSpec(*(None,) * max(axes, key=lambda axis: shape[axis]), _MODEL)


# One folder for each array, in the zarr format (version 3) of TensorStore: a file a shard, with its CRC-32C. A hundred
# arrays of two processes, half of them sharded, took 90 to 150 ms, and 290 to 380 ms with Orbax, which collects the
# files in a database afterwards.


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
