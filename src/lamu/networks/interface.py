"""Base classes of networks, network wrappers and normalisers, and adapters of other objects."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from lamu.base.compile_once import network_products
from lamu.record import given, record
from lamu.typing import Array, DTypeLike, Params, PyTree, RandomKey, State

__all__ = [
    "Evaluated",
    "Network",
    "NetworkWrapper",
    "Normaliser",
    "adapted",
    "in_new_thread",
    "inputs_named",
    "outputs",
    "require_make",
    "specs_by_path",
    "wide",
]


class Network(ABC):
    r"""Base class of networks: functions \(f(\theta, x)\), optionally with a state (batch statistics).

    Parameters and state are plain nested dictionaries with stable names, because priors, frozen leaves and saved files
    address leaves by path.

    Outside of training the outputs of a row must not depend on other rows or their number: predictions and sums over
    many rows process chunks of rows.

    A custom network needs only `init` and `apply`, and need not inherit from this class: `lamu.Model` takes any object
    with both methods, and reads the attributes below where it has them.

    Attributes:
        linear: whether f is linear (affine) in its parameters, for every x.
        head: the path pattern of the last layer's weights, in which f is linear, for methods of the last layer.
        masked: whether rows interact in training (batch statistics). `apply` then takes a last argument `mask`, one for
            a real row and zero for a padded one, shape `[batch]`, or None where every row is real.
        codes: the indices of the columns of x that are codes of categories, or `...` for all of them;
            `Model.standardised` does not change those.
        trained: whether `init` returns pretrained weights.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> class Line(lamu.networks.Network):
        ...     def init(self, key, x, outputs):
        ...         return {"slope": jnp.zeros((x.shape[1], outputs), x.dtype)}, {}
        ...
        ...     def apply(self, params, state, x, key, train):
        ...         return x @ params["slope"], state
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(Line(), lamu.likelihoods.Gaussian()).standardised(x, y)
        >>> lamu.fit(model, (x, y), lamu.algorithms.adam(), epochs=2).posterior.predict(x).mean.shape
        (442,)
    """

    linear: bool | Any = False
    head: str | Any = "*"
    masked: bool | Any = False
    codes: Any = ()
    trained: bool | Any = False

    _checks_arguments = True  # of constructors, by `record`

    @property
    def name(self) -> str:
        """The name of the network in messages."""
        return type(self).__name__

    @abstractmethod
    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns initial parameters and state for inputs like `x` (`[batch, ...]`) and the given output width."""

    @abstractmethod
    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the outputs `[batch, outputs]` and the new state.

        Args:
            params: the parameters.
            state: the state, `{}` where there is none.
            x: inputs `[batch, ...]`.
            key: for random layers; None where the pass is deterministic.
            train: training mode, in which batch statistics are computed.
            mask: which rows are real, for `masked` networks alone.
        """

    def partially_applied(self, params: Params, first: Array) -> Params | None:
        r"""Returns parameters at which this network is \(b \mapsto f(\theta, (a, b))\), for fixed first inputs a.

        None, the default, where there are none. Callers that evaluate f for many b at one a use it to compute the part
        that depends on a alone once.

        Args:
            params: θ.
            first: a, a vector.
        """
        del params, first

    def partition_specs(self, x: Array, outputs: int) -> Mapping[str, PartitionSpec]:
        """Returns the partitioning of the parameters over a mesh, a `PartitionSpec` by path pattern.

        The belief, momenta and gradients are partitioned like the parameters. Parameters without a spec, by default
        all, are partitioned as described in `lamu.fit`.

        Args:
            x: inputs `[batch, ...]`, as for `init`.
            outputs: the width of the outputs.
        """
        del x, outputs
        return {}


class Normaliser:
    """Base class of normalisers between a layer and its activation, for `MLP(normalise=...)` and other networks.

    The base class scales and shifts each feature, without normalisation.

    Attributes:
        masked: whether rows interact in training; False for a normaliser of single rows.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import Normaliser
        >>> class Centred(Normaliser):
        ...     masked = False
        ...
        ...     def apply(self, params, state, x, train, mask):
        ...         return super().apply(params, state, x - x.mean(axis=-1, keepdims=True), train, mask)
        >>> params, state = Centred().init(2, jnp.float32)
        >>> Centred().apply(params, state, jnp.array([[1.0, 3.0]], jnp.float32), False, None)[0].tolist()
        [[-1.0, 1.0]]
    """

    _checks_arguments = True  # of constructors, by `record`

    masked: bool = True

    def init(self, features: int, dtype: DTypeLike) -> tuple[Params, State]:
        """Returns parameters (scale and bias) and state (none) for a number of features, as plain dictionaries."""
        return {"scale": jnp.ones(features, dtype), "bias": jnp.zeros(features, dtype)}, {}

    def apply(self, params: Params, state: State, x: Array, train: bool, mask: Array | None) -> tuple[Array, State]:
        """Returns `x`, `[batch, ..., features]`, normalised, and the new state.

        Args:
            params: the parameters.
            state: the state.
            x: the outputs of the layer.
            train: training mode.
            mask: one for a real row and zero for a padded one, `[batch]`; None where every row is real.
        """
        along = lambda feature: feature.reshape(*[1] * (x.ndim - 1), -1)
        return x * along(params["scale"]) + along(params["bias"]), state


def outputs(
    network: Network, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None
) -> tuple[Array, State]:
    """Returns a network's outputs and new state; passes the mask to networks that declare `masked`."""
    # A network's products have the device's default precision, a linear map's full precision.
    mask_argument = (mask,) if network.masked else ()
    with inputs_named(network.name, x), nullcontext() if network.linear else network_products():
        f, after = network.apply(params, state, x, key, train, *mask_argument)
    if not hasattr(f, "dtype"):
        raise TypeError(
            f"the network {network.name} returns a {type(f).__name__}, and outputs are one array, [rows, outputs]; "
            "give a network that returns that array alone"
        )
    return wide(f), after


def wide(values: PyTree) -> PyTree:
    """Returns floating-point arrays of 16 bits in 32: likelihoods, curvature and beliefs need the digits."""

    def narrow(leaf: Any) -> bool:
        dtype = getattr(leaf, "dtype", None)
        return dtype is not None and jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize < 4

    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if narrow(leaf) else leaf, values)


# The words of JAX, NumPy and Flax for arrays that do not fit each other, in which no input is named.
_MISFIT = re.compile("dot_general|conv_general_dilated|reshape array|broadcast|ncompatible shapes|generate shape")
_IMAGES = {  # what to do about images, by the axes of the inputs
    3: "; of images without channels give x[..., None]",
    4: "; images are [rows, height, width, channels], of PyTorch alone [rows, channels, height, width]: "
    "np.moveaxis(x, 1, -1) puts the channels last, np.moveaxis(x, -1, 1) first",
}
_UNREADABLE = "cannot read inputs of the shape"


@contextmanager
def inputs_named(network: str, x: Array) -> Iterator[None]:
    """Context manager that names the inputs of a network where others report shapes that do not fit."""
    try:
        yield
    except Exception as error:
        reason = str(error)
        if not _MISFIT.search(reason) or _UNREADABLE in reason:  # of a network inside of this one
            raise
        raise ValueError(
            f"the network {network} {_UNREADABLE} {x.shape[1:]} a row ({reason.splitlines()[0].rstrip('.')}); give "
            f"rows of the shape that it was made for{_IMAGES.get(x.ndim, '')}"
        ) from error


T = TypeVar("T")


def require_make(make: object, module: type, adapter: str, argument: str) -> None:
    """Raises a TypeError for a value that cannot make modules."""
    if isinstance(make, module):
        name = type(make).__name__
        raise TypeError(
            f"the module {name} is made already, and every run wants weights of its own; give what makes it, for "
            f"instance {adapter}(lambda {argument}: {name}(..., {argument}={argument})), or {adapter}.of(module) for "
            "one that is trained"
        )
    if not callable(make):
        raise TypeError(
            f"make={make!r} cannot be called; give for instance {adapter}(lambda {argument}: "
            f"Net({argument}={argument}))"
        )


def specs_by_path(specs: Mapping[str, PyTree]) -> dict[str, PartitionSpec]:
    """Returns the `PartitionSpec`s of a tree by path, in the order of the mapping (`jax.tree` would sort them)."""
    by_path = {}
    for name, part in specs.items():
        flat = jax.tree_util.tree_flatten_with_path(part, is_leaf=lambda node: isinstance(node, PartitionSpec))[0]
        for path, spec in flat:
            by_path["/".join((name, *filter(None, [jax.tree_util.keystr(path, simple=True, separator="/")])))] = spec
    return by_path


def in_new_thread(make: Callable[[], T]) -> T:
    """Calls a function in a separate thread, outside of any JAX trace of the caller."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()


def adapted(network: Any) -> Network:
    """Adapts an object with `init` and `apply` as a network."""
    # A record (`lamu.record.record`) is a part of the pytree, and is saved with a posterior. Any other object is a
    # static argument of compiled functions; loading a posterior needs it again, `lamu.load(path, network=...)`.
    opaque = jax.tree_util.all_leaves([network])
    if isinstance(network, Network) and not opaque:
        return network
    missing = [name for name in ("init", "apply") if not callable(getattr(network, name, None))]
    packages = {".".join(each.__module__.split(".")[:2]) for each in type(network).__mro__}
    adapters = {"torch.nn": "Torch", "flax.linen": "Linen", "flax.nnx": "NNX.of", "equinox._module": "Equinox.of"}
    by = next((f"{adapters[each]}(module)" for each in adapters if each in packages), "Linen, NNX, Equinox or Torch")
    if missing or isinstance(network, type) or by == _LINEN:
        what = (
            f"the class {network.__name__}; give an instance"
            if isinstance(network, type)
            else (
                f"a {type(network).__name__} with no {' and no '.join(missing or ['init of a network'])}; give one "
                f"of lamu.networks, a module by lamu.networks.{by}, or an object with init and apply"
            )
        )
        raise TypeError(f"the network is {what}")
    return _OpaqueNetwork(network) if opaque else _Adapted(network)


_LINEN = "Linen(module)"  # whose modules have an init and an apply of their own


def _fact(name: str) -> property:
    """Returns a property that forwards an attribute of the base, with a default for custom objects without it."""
    return property(lambda self: getattr(self.base, name, getattr(Network, name)))


@record
class NetworkWrapper(Network):
    """Base class of network wrappers: forwards attributes and passes to `base`, with changed inputs."""

    base: Network | Any

    linear = _fact("linear")
    head = _fact("head")
    masked = _fact("masked")
    codes = _fact("codes")
    trained = _fact("trained")

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", adapted(self.base))

    @property
    def name(self) -> str:
        return self.base.name

    def inputs(self, x: Array) -> Array:
        """Returns the inputs of the base."""
        return x

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        return self.base.init(key, self.inputs(x), outputs)

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        return outputs(self.base, params, state, self.inputs(x), key, train, mask)

    def partition_specs(self, x: Array, outputs: int) -> Mapping[str, PartitionSpec]:
        method = getattr(self.base, "partition_specs", None)
        return {} if method is None else method(self.inputs(x), outputs)


@record
class Evaluated(NetworkWrapper):
    r"""The network \(x \mapsto f(\theta, x)\) in evaluation mode, with fixed batch statistics and independent rows.

    Its weights are still learned, under the given statistics, and each row has its own gradient, as `vogn`, `ogn`,
    `slang` and empirical Fisher matrices need of a network with batch normalisation. Dropout is never active.

    Attributes:
        base: the network.
        state: its state, for instance `fit.posterior.network_state` of an earlier run.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("iris")
        >>> base = lamu.networks.MLP((8,), normalise=lamu.networks.BatchNorm())
        >>> model = lamu.Model(base, lamu.likelihoods.Categorical(3))
        >>> first = lamu.fit(model, (x, y), lamu.algorithms.adam(1e-2), epochs=20).posterior
        >>> held = lamu.networks.Evaluated(base, first.network_state)
        >>> model = lamu.Model(held, lamu.likelihoods.Categorical(3)).starting_at(first.mean)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.vogn(), epochs=40).posterior
        >>> lamu.scores.accuracy(posterior.predict(x), y) > 0.9
        True
    """

    state: State
    # False: rows are independent.
    masked = False

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        return self.base.init(key, x, outputs)[0], {}

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the base's outputs, always in evaluation mode."""
        return outputs(self.base, params, self.state, x, None, False, None)[0], {}


@record
class _Adapted(NetworkWrapper):
    """Adapter of a custom record."""

    def __post_init__(self) -> None:
        pass

    @property
    def name(self) -> str:
        return type(self.base).__name__

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        masked = (mask,) if self.masked else ()
        return self.base.apply(params, state, x, key, train, *masked)


@record
class _OpaqueNetwork(_Adapted):
    """Adapter of a custom object that is not a pytree."""

    base: Any = given()
