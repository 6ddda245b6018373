"""Adapters of Flax modules (Linen and NNX)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import jax
from jax.sharding import PartitionSpec

from lamu import tree
from lamu.networks.interface import Network, in_new_thread, require_make, specs_by_path
from lamu.record import given, record, static
from lamu.typing import Array, Params, PyTree, RandomKey, State

__all__ = ["NNX", "Linen"]


@record
class Linen(Network):
    r"""Adapter of a Flax Linen module, \(f(\theta, x)\) = `module.apply({"params": θ, **state}, x)`.

    The collection `params` contains the parameters, under their Flax names; all others (`batch_stats`, ...) are the
    network's state, which training passes update. Random layers draw only in passes with a key.

    The mode is passed by the arguments that the module's call has: `use_running_average`, `deterministic` for a pass
    without a key, and for training `train`, `training`, `is_train` or `is_training`, or the contrary, `inference`,
    `eval` or `test`. For a module without a state `train` can only concern noise, and is whether there is a key; for
    one with a state it concerns both, so that such a module cannot predict with noise (`mc_dropout`) and fixed
    statistics.

    A module is code: a saved posterior contains its name, and loading it needs the network,
    `lamu.load(path, network=...)`. Over a mesh, parameters are partitioned by `nn.with_partitioning`.

    Attributes:
        module: the module, not its class; its call takes `[batch, ...]` and returns `[batch, outputs]`.
        head: the path pattern of the last layer's parameters, in which f is linear, for methods of the last layer.
        linear: whether f is affine in all parameters.
        variables: the trained variables, as `module.init` returns them; None for initial weights from every run's key.

    Raises:
        TypeError: for a value that is not a Linen module, or variables without `params`.
        ValueError: for a head that matches no parameter.

    Examples:
        >>> import flax.linen as nn, lamu
        >>> x, y = lamu.data.load("iris")
        >>> network = lamu.networks.Linen(nn.Sequential([nn.Dense(8), nn.tanh, nn.Dense(3)]), head="layers_2/*")
        >>> model = lamu.Model(network, lamu.likelihoods.Categorical(3)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.vogn(), epochs=100).posterior
        >>> lamu.tree.paths(posterior.mean["network"])[0], lamu.scores.accuracy(posterior.predict(x), y) > 0.9
        ('layers_0/bias', True)
    """

    module: Any = given()
    head: str = static(default="*")
    linear: bool = static(default=False)
    variables: Params | None = None

    def __post_init__(self) -> None:
        from flax.linen import Module

        if not isinstance(self.module, Module):
            description = f"the class {self.module.__name__}" if isinstance(self.module, type) else repr(self.module)
            raise TypeError(f"module={description} is not a Linen module; give an instance, for instance Linen(Net())")
        if self.variables is not None:
            if "params" not in self.variables:
                raise TypeError(
                    f"the variables have the collections {', '.join(self.variables) or 'none'}, and 'params' is not "
                    'among them; give what module.init returned, or {"params": ...}'
                )
            tree.require_matches((self.head,), _unboxed(self.variables)["params"])

    @property
    def trained(self) -> bool:
        """Whether the weights are pretrained."""
        return self.variables is not None

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns the parameters and the other collections: initial ones, or the trained ones."""
        if self.variables is None:
            modes = _modes(self.module, stateful=False, noisy=False, train=False)
            variables = _unboxed(self.module.init({"params": key}, x, **modes))
            tree.require_matches((self.head,), variables.get("params", {}))
        else:
            variables = tree.copied(_unboxed(self.variables))
        return variables.pop("params", {}), variables

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the module's outputs, and its collections: updated in training, else unchanged."""
        modes = _modes(self.module, stateful=bool(state), noisy=key is not None, train=train)
        # Streams of other names fall back to this one, with a separate key for each layer.
        rngs = None if key is None else {"params": key}
        variables = {"params": params, **state}
        from flax.errors import ScopeCollectionNotFound

        try:
            if train and state:
                return self.module.apply(variables, x, rngs=rngs, mutable=list(state), **modes)
            return self.module.apply(variables, x, rngs=rngs, **modes), state
        except ScopeCollectionNotFound as error:
            raise ValueError(
                f"the variables have the collections {', '.join(variables)}, and the module {self.name} reads another "
                f"one ({error}); give all that training returned, for instance "
                '{"params": state.params, "batch_stats": state.batch_stats}'
            ) from error

    def partition_specs(self, x: Array, outputs: int) -> Mapping[str, PartitionSpec]:
        from flax.linen import get_partition_spec

        modes = _modes(self.module, stateful=False, noisy=False, train=False)
        make = lambda key: self.module.init({"params": key}, x, **modes)
        return _given_specs(get_partition_spec(jax.eval_shape(make, jax.random.key(0))).get("params", {}))


def _modes(module: Any, stateful: bool, noisy: bool, train: bool) -> dict[str, bool]:
    """Returns the arguments of a module's call that name its mode."""
    trains = train if stateful else noisy
    modes = {"use_running_average": not train, "deterministic": not noisy}
    modes |= dict.fromkeys(("train", "training", "is_train", "is_training"), trains)
    modes |= dict.fromkeys(("inference", "eval", "test"), not trains)
    asked = inspect.signature(type(module).__call__).parameters
    return {name: value for name, value in modes.items() if name in asked}


def _given_specs(specs: PyTree) -> dict[str, PartitionSpec]:
    """Returns the specs of parameters that have one, without Flax's empty ones."""
    return {path: spec for path, spec in specs_by_path(specs).items() if len(spec)}


def _unboxed(variables: Params) -> dict[str, Params]:
    """Returns collections as dictionaries of arrays, without Flax's boxes of sharding metadata."""
    from flax.core import unfreeze
    from flax.core.meta import unbox

    return dict(unfreeze(unbox(variables)))


@record
class NNX(Network):
    r"""Adapter of a Flax NNX module: initialised from every run's key, or already trained.

    Its `nnx.Param` are the parameters, under the module's own names; all other variables (`nnx.BatchStat`, ...) are the
    network's state, which training passes update. Random layers draw only in passes with a key: the streams inside the
    module are ignored. Passes that train compute batch statistics, all others use them. Arguments of the module's call
    for the mode, as `train` or `deterministic`, are given as for `Linen`. The module itself is never changed.

    It is code: a saved posterior contains its name, and loading it needs the network, `lamu.load(path, network=...)`.
    Over a mesh, parameters are partitioned by `nnx.with_partitioning`.

    Attributes:
        make: a function of `nnx.Rngs` that makes the module, whose call takes `[batch, ...]` and returns
            `[batch, outputs]`. It is called once at the beginning, for the module's structure.
        head: the path pattern of the last layer's parameters, in which f is linear, for methods of the last layer.
        linear: whether f is affine in all parameters.
        start: parameters and state that every run starts from; `NNX.of` sets them.

    Raises:
        TypeError: for a `make` that cannot be called, or that does not return a module.
        ValueError: for a head that matches no parameter.

    Examples:
        >>> from flax import nnx
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> network = lamu.networks.NNX(lambda rngs: nnx.Linear(10, 1, rngs=rngs), linear=True)
        >>> model = lamu.Model(network, lamu.likelihoods.Gaussian(0.7)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> posterior.mean["network"]["kernel"].shape
        (10, 1)
    """

    make: Any = given()
    head: str = static(default="*")
    linear: bool = static(default=False)
    start: tuple[Params, State] | None = None

    def __post_init__(self) -> None:
        from flax import nnx

        require_make(self.make, nnx.Module, "NNX", "rngs")
        tree.require_matches((self.head,), _template(self.make).params)

    @classmethod
    def of(cls, module: Any, head: str = "*", linear: bool = False) -> NNX:
        """Returns the network of a trained module: runs start from its weights and statistics.

        Args:
            module: the module; it is copied.
            head: as above.
            linear: as above.

        Raises:
            TypeError: for a value that is not a module.

        Examples:
            >>> from flax import nnx
            >>> import lamu
            >>> network = lamu.networks.NNX.of(nnx.Linear(3, 1, rngs=nnx.Rngs(0)), linear=True)
            >>> network.trained
            True
        """
        from flax import nnx

        if not isinstance(module, nnx.Module):
            raise TypeError(f"{module!r} is not an NNX module; give the trained module, for instance NNX.of(net)")
        copy = nnx.clone(module)
        _, params, _, state, _ = _split(copy)
        return cls(lambda rngs: nnx.clone(copy), head, linear, (nnx.to_pure_dict(params), nnx.to_pure_dict(state)))

    @property
    def trained(self) -> bool:
        """Whether the weights are pretrained."""
        return self.start is not None

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns the parameters and the other variables: those of a new module, or of the trained one."""
        from flax import nnx

        if self.start is not None:
            return tree.copied(self.start)
        _, params, _, state, _ = _split(_made(self.make, key))
        return nnx.to_pure_dict(params), nnx.to_pure_dict(state)

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the module's outputs, and its other variables: updated in training, else unchanged."""
        from flax import nnx

        like = _template(self.make)
        leaves, structure = jax.tree.flatten(like.streams)
        if key is not None:
            keyed = lambda leaf: jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            leaves = [jax.random.fold_in(key, i) if keyed(leaf) else leaf for i, leaf in enumerate(leaves)]
        streams = jax.tree.unflatten(structure, leaves)
        module = nnx.merge(like.definition, nnx.State(params), streams, nnx.State(state), like.constants)
        module.set_attributes(deterministic=key is None, use_running_average=not train, raise_if_not_found=False)
        f = module(x, **_modes(module, stateful=bool(state), noisy=key is not None, train=train))
        return f, nnx.to_pure_dict(_split(module)[3]) if train and state else state

    def partition_specs(self, x: Array, outputs: int) -> Mapping[str, PartitionSpec]:
        return _template(self.make).specs


class _NNXTemplate(NamedTuple):
    """The structure shared by all modules that a function makes, with parameters for their names."""

    definition: PyTree
    params: Params
    streams: PyTree
    constants: PyTree
    specs: dict[str, PartitionSpec]


@lru_cache(maxsize=32)
def _template(make: Callable[[Any], Any]) -> _NNXTemplate:
    from flax import nnx

    module = in_new_thread(lambda: _made(make, 0))  # the first caller may be tracing
    if not isinstance(module, nnx.Module):
        raise TypeError(f"make gave a {type(module).__name__}, no NNX module; return the module")
    definition, params, streams, _, constants = _split(module)
    shapes = jax.eval_shape(lambda: nnx.to_pure_dict(params))
    specs = _given_specs(nnx.to_pure_dict(nnx.get_partition_spec(params)))
    return _NNXTemplate(definition, shapes, streams, constants, specs)


def _made(make: Callable[[Any], Any], seed: RandomKey | int) -> Any:
    """Returns a new module with its parameters on one device, until a run partitions them."""
    from flax import nnx

    eager = getattr(nnx, "use_eager_sharding", None)  # since flax 0.12
    with nullcontext() if eager is None else eager(False):
        return make(nnx.Rngs(seed))


def _split(module: PyTree) -> tuple[PyTree, ...]:
    from flax import nnx

    return nnx.split(module, nnx.Param, nnx.RngState, nnx.Variable, ...)
