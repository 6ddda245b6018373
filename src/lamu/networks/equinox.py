"""An Equinox module as a network."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.compile_once import floating
from lamu.networks.interface import Network, in_new_thread, require_make
from lamu.record import given, record, static
from lamu.typing import Array, Params, PyTree, RandomKey, State

__all__ = ["Equinox"]


@record
class Equinox(Network):
    r"""Adapter of an Equinox module of one row: initialised from every run's key, or already trained.

    Its floating arrays are the parameters, under the module's own names; other arrays are constants. The state of
    `eqx.nn.make_with_state` is the network's state, which training passes update. A module whose call takes a `key`
    gets one for every row in passes with a key; without a key `inference` is set, except for batch normalisation, which
    infers in passes that do not train. The module itself is never changed.

    It is code: a saved posterior contains its name, and loading it needs the network, `lamu.load(path, network=...)`.

    Attributes:
        make: a function of a key that makes the module, alone or in a pair with its `eqx.nn.State`; the module's call
            returns `[outputs]`. It is called once at the beginning, for the module's structure.
        head: the path pattern of the last layer's parameters, in which f is linear, for methods of the last layer.
        linear: whether f is affine in all parameters.
        start: parameters and state that every run starts from; `Equinox.of` sets them.

    Raises:
        TypeError: for a `make` that cannot be called, or that does not return a module.
        ValueError: for a head that matches no parameter, or batch normalisations that name different axes.

    Examples:
        >>> import equinox as eqx, lamu
        >>> x, y = lamu.data.load("iris")
        >>> network = lamu.networks.Equinox(lambda key: eqx.nn.MLP(4, 3, 16, 1, key=key), head="layers/1/*")
        >>> model = lamu.Model(network, lamu.likelihoods.Categorical(3)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.vogn(), epochs=200).posterior
        >>> lamu.tree.paths(posterior.mean["network"])[0], lamu.scores.accuracy(posterior.predict(x), y) > 0.9
        ('layers/0/bias', True)
    """

    make: Any = given()
    head: str = static(default="*")
    linear: bool = static(default=False)
    start: tuple[Params, State] | None = None

    outputs_first = True  # in the kernels of dense layers

    def __post_init__(self) -> None:
        import equinox as eqx

        require_make(self.make, eqx.Module, "Equinox", "key")
        tree.require_matches((self.head,), _template(self.make).names)

    @classmethod
    def of(cls, module: Any, state: State = None, head: str = "*", linear: bool = False) -> Equinox:
        """Returns the network of a trained module: runs start from its weights and statistics.

        Args:
            module: the module.
            state: its `eqx.nn.State`, where it has one.
            head: as above.
            linear: as above.

        Raises:
            TypeError: for a value that is not a module.

        Examples:
            >>> import equinox as eqx, jax, lamu
            >>> network = lamu.networks.Equinox.of(eqx.nn.Linear(3, 1, key=jax.random.key(0)), linear=True)
            >>> network.trained
            True
        """
        pair = module if state is None else (module, state)
        return cls(lambda key: pair, head, linear, _values(pair))

    @property
    def trained(self) -> bool:
        """Whether the weights are pretrained."""
        return self.start is not None

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns the parameters and the state: those of a new module, or of the trained one."""
        if self.start is not None:
            return tree.copied(self.start)
        params, state = _values(self.make(key))
        # Equinox makes float64 arrays where JAX allows them; here parameters have the dtype of the data, as elsewhere.
        double = lambda leaf: leaf.dtype == jnp.dtype("float64")
        return jax.tree.map(lambda leaf: leaf.astype(floating(x)) if double(leaf) else leaf, (params, state))

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the module's outputs for every row, and its state: updated in training, else unchanged."""
        like = _template(self.make)
        module = like.module(params, noisy=key is not None, train=train)
        keys = None
        if key is not None and like.keyed:
            keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(x.shape[0]))
        options = lambda key: {} if key is None else {"key": key}
        if like.state is None:
            return jax.vmap(lambda x, key: module(x, **options(key)), axis_name=like.axis)(x, keys), state
        before = jax.tree.unflatten(like.state, [state[index] for index in range(like.state.num_leaves)])
        row = lambda x, key: module(x, before, **options(key))
        f, after = jax.vmap(row, out_axes=(0, None), axis_name=like.axis)(x, keys)
        return f, dict(enumerate(jax.tree.leaves(after))) if train else state


class _EquinoxTemplate:
    """The structure shared by all modules that a function makes."""

    def __init__(self, made: PyTree) -> None:
        import equinox as eqx

        module, state = made if isinstance(made, tuple) else (made, None)
        params, self._rest = eqx.partition(module, eqx.is_inexact_array)
        leaves, self._structure = jax.tree.flatten_with_path(params)
        self._paths = [path for path, _ in leaves]
        self.names = _nested(self._paths, [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for _, leaf in leaves])
        self.state = None if state is None else jax.tree.structure(state)
        self.keyed = "key" in inspect.signature(type(module).__call__).parameters
        axes = {norm.axis_name for norm in _norms(module)}
        if len(axes) > 1:
            raise ValueError(
                f"the batch normalisations name the axes {axes}, and rows lie along one; give all the same"
            )
        self.axis = axes.pop() if axes else None

    def module(self, params: Params, noisy: bool, train: bool) -> PyTree:
        """Returns the module with given parameters, in a mode."""
        import equinox as eqx

        leaves = [_at(params, path) for path in self._paths]
        module = eqx.combine(jax.tree.unflatten(self._structure, leaves), self._rest)
        module = eqx.nn.inference_mode(module, not noisy)
        count = len(_norms(module))
        if not count:
            return module
        return eqx.tree_at(lambda tree: [norm.inference for norm in _norms(tree)], module, [not train] * count)


@lru_cache(maxsize=32)
def _template(make: Callable[[RandomKey], PyTree]) -> _EquinoxTemplate:
    template = in_new_thread(lambda: make(jax.random.key(0)))  # the first caller may be tracing
    _require_module(template)
    return _EquinoxTemplate(template)


def _require_module(template: object) -> None:
    import equinox as eqx

    module = template[0] if isinstance(template, tuple) else template
    if not isinstance(module, eqx.Module) or not callable(module):
        raise TypeError(f"{module!r} is not an Equinox module that can be called; give for instance eqx.nn.MLP(...)")


def _values(template: PyTree) -> tuple[Params, State]:
    """Returns the parameters by their names, and the state's arrays by their order."""
    import equinox as eqx

    _require_module(template)
    module, state = template if isinstance(template, tuple) else (template, None)
    leaves = jax.tree.leaves_with_path(eqx.filter(module, eqx.is_inexact_array))
    params = _nested([path for path, _ in leaves], [leaf for _, leaf in leaves])
    # Arrays of a state may have a weak type, which the first step would change, causing a recompilation.
    return params, {index: jnp.asarray(leaf, leaf.dtype) for index, leaf in enumerate(jax.tree.leaves(state))}


def _norms(module: PyTree) -> list[PyTree]:
    import equinox as eqx

    is_norm = lambda node: isinstance(node, eqx.nn.BatchNorm)
    return [node for node in jax.tree.leaves(module, is_leaf=is_norm) if is_norm(node)]


def _nested(paths: list[tuple[object, ...]], leaves: list[PyTree]) -> Params:
    """Returns leaves in nested dictionaries, by the names along their paths."""
    root: Params = {}
    for path, leaf in zip(paths, leaves, strict=True):
        inside = root
        for part in path[:-1]:
            inside = inside.setdefault(_name(part), {})
        inside[_name(path[-1])] = leaf
    return root


def _at(params: Params, path: tuple[object, ...]) -> Params:
    for part in path:
        params = params[_name(part)]
    return params


def _name(part: object) -> str | int:
    """Returns an entry of a path as a dictionary key: an attribute's name, an index, or a key."""
    return next(getattr(part, name) for name in ("name", "idx", "key") if hasattr(part, name))
