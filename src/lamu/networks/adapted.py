"""Networks of one's own that do not inherit from `Network`: any object with `init` and `apply`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax

from lamu.networks.interface import Network
from lamu.record import given, record
from lamu.typing import Array, Params, RandomKey, State

__all__ = ["adapted", "apart", "require_make"]


T = TypeVar("T")


def require_make(make: Any, module: type, adapter: str, argument: str) -> None:
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
    return _Opaque(network) if opaque else _Adapted(network)


def _adapter(module: object) -> str:
    """Returns the name of the adapter for a module, by the packages of its classes, none of which is imported."""
    packages = {".".join(each.__module__.split(".")[:2]) for each in type(module).__mro__}
    known = {"torch.nn": "Torch", "flax.linen": "Linen", "flax.nnx": "NNX.of", "equinox._module": "Equinox.of"}
    return next((f"{known[each]}(module)" for each in known if each in packages), "Linen, NNX, Equinox or Torch")


class _Facts(Network):
    """The facts of a base that may not declare them: here, and nowhere else, is looked whether it does."""

    base: Any

    @property
    def name(self) -> str:
        return type(self.base).__name__

    @property
    def linear(self) -> bool:
        # Whether the base says that it is linear.
        return getattr(self.base, "linear", Network.linear)

    @property
    def head(self) -> str:
        # The base's last layer, or everything.
        return getattr(self.base, "head", Network.head)

    @property
    def masked(self) -> bool:
        # Whether the base says that its rows meet.
        return getattr(self.base, "masked", Network.masked)

    @property
    def codes(self) -> Any:
        # The base's columns of codes, or none.
        return getattr(self.base, "codes", Network.codes)

    @property
    def trained(self) -> bool:
        # Whether the base says that it is trained.
        return getattr(self.base, "trained", Network.trained)

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        return self.base.init(key, x, outputs)

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        masked = (mask,) if self.masked else ()
        return self.base.apply(params, state, x, key, train, *masked)


@record
class _Adapted(_Facts):
    """A record of one's own."""

    base: Any


@record
class _Opaque(_Facts):
    """An object that is no pytree."""

    base: Any = given()
