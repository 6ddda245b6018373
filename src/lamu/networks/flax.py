"""Modules of Flax (Linen and NNX) as networks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import jax
from jax.sharding import PartitionSpec

from lamu import tree
from lamu.networks.interface import Network, apart, require_make, specs_by_path
from lamu.record import given, record, static
from lamu.typing import Array, Params, PyTree, RandomKey, State

__all__ = ["NNX", "Linen"]


@record
class Linen(Network):
    r"""A Flax Linen module, \(f(\theta, x)\) = `module.apply({"params": θ, **state}, x)`.

    The collection `params` is what beliefs are about, under the names that Flax gives it; all others (`batch_stats`,
    ...) are the network's state, which training passes renew. Random layers draw in passes that are given a key, and
    in no others.

    The module is told the mode by the arguments that its call has: `use_running_average` and `train`, `training` or
    `is_training` say whether a pass trains, and `deterministic` whether it has no key. A `train` of a module without a
    state can only be about noise, and says whether there is a key; of one with a state it is about both, so that such a
    module cannot predict with noise (`mc_dropout`) by statistics that are held.

    A module is code: a saved posterior has its name, and who loads it gives the network again,
    `lamu.load(path, network=...)`. Over a mesh, parameters lie as `nn.with_partitioning` says.

    Attributes:
        module: the module, not its class; its call takes `[batch, ...]` and gives `[batch, outputs]`.
        head: the path pattern of the last layer's parameters, in which f is linear, for methods of the last layer.
        linear: whether f is affine in all parameters.
        variables: what it was trained to, as `module.init` has it; None for fresh weights from every run's own key.

    Raises:
        TypeError: for what is no Linen module, or variables without `params`.
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
            told = f"the class {self.module.__name__}" if isinstance(self.module, type) else repr(self.module)
            raise TypeError(f"module={told} is no Linen module; give an instance, for instance Linen(Net())")
        if self.variables is not None:
            if "params" not in self.variables:
                raise TypeError(
                    f"the variables have the collections {', '.join(self.variables) or 'none'}, and 'params' is not "
                    'among them; give what module.init returned, or {"params": ...}'
                )
            tree.require_matches((self.head,), _plain(self.variables)["params"])

    @property
    def trained(self) -> bool:
        """Whether the weights were brought along."""
        return self.variables is not None

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns the parameters and the other collections: the module's own draw, or what it was trained to."""
        if self.variables is None:
            modes = self._modes(stateful=False, noisy=False, train=False)
            variables = _plain(self.module.init({"params": key}, x, **modes))
            tree.require_matches((self.head,), variables.get("params", {}))
        else:
            variables = tree.copied(_plain(self.variables))
        return variables.pop("params", {}), variables

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the module's outputs, and its collections: new in training, else as they were."""
        modes = self._modes(stateful=bool(state), noisy=key is not None, train=train)
        # Streams of other names fall back to this one, each layer with a key of its own.
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

        modes = self._modes(stateful=False, noisy=False, train=False)
        make = lambda key: self.module.init({"params": key}, x, **modes)
        return _said(get_partition_spec(jax.eval_shape(make, jax.random.key(0))).get("params", {}))

    def _modes(self, stateful: bool, noisy: bool, train: bool) -> dict[str, bool]:
        known = {"use_running_average": not train, "deterministic": not noisy}
        known |= dict.fromkeys(("train", "training", "is_training"), train if stateful else noisy)
        asked = inspect.signature(type(self.module).__call__).parameters
        return {name: value for name, value in known.items() if name in asked}


def _said(specs: PyTree) -> dict[str, PartitionSpec]:
    """Returns the specs of parameters that have one: Flax gives an empty one to all others."""
    return {path: spec for path, spec in specs_by_path(specs).items() if len(spec)}


def _plain(variables: Params) -> dict[str, Params]:
    """Returns collections as dictionaries of arrays, without the boxes that say how arrays are sharded."""
    from flax.core import unfreeze
    from flax.core.meta import unbox

    return dict(unfreeze(unbox(variables)))


@record
class NNX(Network):
    r"""A Flax NNX module, made anew from every run's own key, or one that arrives trained.

    Its `nnx.Param` are what beliefs are about, under the module's own names; all other variables (`nnx.BatchStat`, ...)
    are the network's state, which training passes renew. Random layers draw in passes that are given a key, and in no
    others: the streams inside the module are not looked at. Passes that train compute batch statistics, all others use
    them. The module itself is never changed.

    It is code: a saved posterior has its name, and who loads it gives the network again,
    `lamu.load(path, network=...)`. Over a mesh, parameters lie as `nnx.with_partitioning` says.

    Attributes:
        make: what makes the module of `nnx.Rngs`; its call takes `[batch, ...]` and gives `[batch, outputs]`. One more
            is made at the beginning, for its structure.
        head: the path pattern of the last layer's parameters, in which f is linear, for methods of the last layer.
        linear: whether f is affine in all parameters.
        start: parameters and state that every run begins with; `NNX.of` sets them.

    Raises:
        TypeError: for a `make` that cannot be called, or that makes no module.
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
        """Returns a module that arrives trained as a network: runs begin with its weights and statistics.

        Args:
            module: the module; it is copied.
            head: as above.
            linear: as above.

        Raises:
            TypeError: for what is no module.

        Examples:
            >>> from flax import nnx
            >>> import lamu
            >>> network = lamu.networks.NNX.of(nnx.Linear(3, 1, rngs=nnx.Rngs(0)), linear=True)
            >>> network.trained
            True
        """
        from flax import nnx

        if not isinstance(module, nnx.Module):
            raise TypeError(f"{module!r} is no NNX module; give the trained module, for instance NNX.of(net)")
        own = nnx.clone(module)
        _, params, _, state, _ = _split(own)
        return cls(lambda rngs: nnx.clone(own), head, linear, (nnx.to_pure_dict(params), nnx.to_pure_dict(state)))

    @property
    def trained(self) -> bool:
        """Whether the weights were brought along."""
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
        """Returns the module's outputs, and its other variables: new in training, else as they were."""
        from flax import nnx

        like = _template(self.make)
        streams = _seeded(like.streams, key)
        module = nnx.merge(like.definition, nnx.State(params), streams, nnx.State(state), like.constants)
        module.set_attributes(deterministic=key is None, use_running_average=not train, raise_if_not_found=False)
        f = module(x)
        return f, nnx.to_pure_dict(_split(module)[3]) if train and state else state

    def partition_specs(self, x: Array, outputs: int) -> Mapping[str, PartitionSpec]:
        return _template(self.make).specs


class _NNXTemplate(NamedTuple):
    """What is the same in all modules that a function makes, and parameters for their names."""

    definition: PyTree
    params: Params
    streams: PyTree
    constants: PyTree
    specs: dict[str, PartitionSpec]


@lru_cache(maxsize=32)
def _template(make: Callable[[Any], Any]) -> _NNXTemplate:
    from flax import nnx

    module = apart(lambda: _made(make, 0))  # whoever asks first may be inside of a trace
    if not isinstance(module, nnx.Module):
        raise TypeError(f"make gave a {type(module).__name__}, no NNX module; return the module")
    definition, params, streams, _, constants = _split(module)
    shapes = jax.eval_shape(lambda: nnx.to_pure_dict(params))
    specs = _said(nnx.to_pure_dict(nnx.get_partition_spec(params)))
    return _NNXTemplate(definition, shapes, streams, constants, specs)


def _made(make: Callable[[Any], Any], seed: RandomKey | int) -> Any:
    """Returns a new module, whose parameters lie on one device until a run lays them over a mesh."""
    from flax import nnx

    eager = getattr(nnx, "use_eager_sharding", None)  # since flax 0.12
    with nullcontext() if eager is None else eager(False):
        return make(nnx.Rngs(seed))


def _split(module: PyTree) -> tuple[PyTree, ...]:
    from flax import nnx

    return nnx.split(module, nnx.Param, nnx.RngState, nnx.Variable, ...)


def _seeded(streams: PyTree, key: RandomKey | None) -> PyTree:
    """Returns the streams from their beginnings, variables of this trace; each with its own key where one is given."""
    leaves, structure = jax.tree.flatten(streams)
    if key is not None:
        keyed = lambda leaf: jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        leaves = [jax.random.fold_in(key, i) if keyed(leaf) else leaf for i, leaf in enumerate(leaves)]
    return jax.tree.unflatten(structure, leaves)
