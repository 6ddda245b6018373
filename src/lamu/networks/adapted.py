"""Networks of one's own that do not inherit from `Network`: any object with `init` and `apply`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax

from lamu.networks.interface import Network, outputs
from lamu.record import given, record
from lamu.typing import Array, Params, RandomKey, State

__all__ = ["NetworkWrapper", "adapted", "apart", "require_make"]


T = TypeVar("T")


def require_make(make: object, module: type, adapter: str, argument: str) -> None:
    """Raises a TypeError for what cannot make modules."""
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


def apart(make: Callable[[], T]) -> T:
    """Returns what a function makes in a thread of its own, which shares no trace with who asks inside of one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()


def adapted(network: Any) -> Network:
    """Returns an object with `init` and `apply` as a network."""
    # A record (`lamu.record.record`) stays a part of the pytree, and is saved with a posterior. Any other object is a
    # constant of what is compiled; who loads a posterior of it gives it again, `lamu.load(path, network=...)`.
    opaque = jax.tree_util.all_leaves([network])
    if isinstance(network, Network) and not opaque:
        return network
    missing = [name for name in ("init", "apply") if not callable(getattr(network, name, None))]
    if missing or isinstance(network, type):
        what = (
            f"the class {network.__name__}; give an instance"
            if isinstance(network, type)
            else (
                f"{network!r}, which has no {' and no '.join(missing)}; give one of lamu.networks, a module by "
                f"lamu.networks.{_adapter(network)}, or an object with init and apply"
            )
        )
        raise TypeError(f"the network is {what}")
    return _OpaqueNetwork(network) if opaque else _Adapted(network)


def _adapter(module: object) -> str:
    """Returns the name of the adapter for a module, by the packages of its classes, none of which is imported."""
    packages = {".".join(each.__module__.split(".")[:2]) for each in type(module).__mro__}
    known = {"torch.nn": "Torch", "flax.linen": "Linen", "flax.nnx": "NNX.of", "equinox._module": "Equinox.of"}
    return next((f"{known[each]}(module)" for each in known if each in packages), "Linen, NNX, Equinox or Torch")


def _fact(name: str) -> property:
    """Returns a property that forwards a fact of the base, which an object of one's own need not declare."""
    return property(lambda self: getattr(self.base, name, getattr(Network, name)))


@record
class NetworkWrapper(Network):
    """A network that holds another one as its `base`: it forwards every fact and pass to it, with changed inputs."""

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
        """Returns the inputs that the base sees."""
        return x

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        return self.base.init(key, self.inputs(x), outputs)

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        return outputs(self.base, params, state, self.inputs(x), key, train, mask)


@record
class _Adapted(NetworkWrapper):
    """A record of one's own."""

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
    """An object that is no pytree."""

    base: Any = given()
