"""Adapter of a PyTorch module as a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.base.dtype_policy import floating
from lamu.networks.interface import Network, in_new_thread
from lamu.networks.torch.eager import Mode, Module, Tensor, unwrapped
from lamu.networks.torch.program import TorchProgram, first_names, read
from lamu.record import given, record, static
from lamu.typing import Array, Params, PyTree, RandomKey, Rows, State

__all__ = ["Torch"]


@record
class Torch(Network):
    r"""Adapter of a PyTorch module, trained or not; passes, beliefs and predictions are computed by JAX.

    The module is exported once (`torch.export`) and never changed. Its parameters keep their names (`fc1.weight` is at
    the path `fc1/weight`); buffers that its training passes update, such as batch statistics, are the network's state.
    Inputs have PyTorch's layout, images `[batch, channels, height, width]`. Random layers draw in passes with a key,
    and batch statistics are computed in passes that train, whatever mode the module was left in. Parameters without
    gradient (`requires_grad_(False)`) are frozen, unless all of them are. A parameter with several names (tied weights)
    is one parameter under the first of them, the name in `module.named_parameters()`; `state_dict` writes all. The
    wrappers of `torch.compile` and `DataParallel` are removed, and 16-bit weights are computed in 32 bits.

    It is code: a saved posterior contains its name, and loading it needs the network, `lamu.load(path, network=...)`.

    Attributes:
        module: a `torch.nn.Module`, whose weights every run starts from; or a function without arguments that makes one
            (a class, for instance), so that every run starts from its own weights.
        head: the path pattern of the last layer's parameters, in which f is linear, for methods of the last layer; a
            pattern of a tied weight's later name becomes its first. Where other layers use it too, methods of the last
            layer linearise f in it.
        linear: whether f is affine in all parameters.
        start: parameters and buffers that every run starts from: those of the given module at construction.
        frozen: parameters without gradient, at construction.

    Raises:
        TypeError: for a value that is not a module, and, at the first data, for a module that cannot be exported or has
            hidden state; the message names the operator or the attribute, and the submodule.
        ValueError: for a head that matches no parameter, or a tied weight among others, and for rows that the module
            cannot process.

    Examples:
        >>> import lamu, torch
        >>> x, y = lamu.data.load("iris")
        >>> module = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
        >>> network = lamu.networks.Torch(module, head="2/*")  # trained by PyTorch, as a rule
        >>> model = lamu.Model(network, lamu.likelihoods.Categorical(3)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.last_layer(), epochs=100).posterior
        >>> lamu.tree.paths(posterior.mean["network"])[0], posterior.predict(x).mean.shape
        ('2/bias', (150, 3))
    """

    module: Any = given()
    head: str = static(default="*")
    linear: bool = static(default=False)
    start: Params | None = None
    frozen: Params | None = None

    outputs_first = True  # in the kernels of dense layers

    def __post_init__(self) -> None:
        from torch import nn

        object.__setattr__(self, "module", unwrapped(self.module))
        if not isinstance(self.module, nn.Module) and not callable(self.module):
            raise TypeError(f"module={self.module!r} is not a PyTorch module; give an instance of torch.nn.Module")
        template = _template(self.module).made
        object.__setattr__(self, "head", _head_pattern(self.head, template))
        values = _values(template)
        if any(tree.matches(path, self.head) for path in tree.paths(values["frozen"])) and self.head != "*":
            raise ValueError(
                f"head={self.head!r} names parameters that take no gradient (requires_grad is False), about which no "
                "belief is; give the module after requires_grad_(True) of its last layer"
            )
        tree.require_matches((self.head,), values["params"])
        if self.frozen is None:
            object.__setattr__(self, "frozen", values.pop("frozen"))
        if self.start is None and isinstance(self.module, nn.Module):
            object.__setattr__(self, "start", {name: values[name] for name in ("params", "buffers")})

    @property
    def trained(self) -> bool:
        """Whether the weights are pretrained."""
        return self.start is not None

    @property
    def whole(self) -> Torch:
        """The network with frozen parameters among its parameters."""
        if self.start is None or not self.frozen:
            return self
        params = tree.nested({**_flat(self.start["params"]), **_flat(self.frozen)}, ".")
        return replace(self, start={**self.start, "params": params}, frozen={})

    @property
    def masked(self) -> bool:
        """Whether rows interact in training, by batch normalisation."""
        return _template(self.module).normalises

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns the parameters and the state: those of the module, or of a new one."""
        like = _template(self.module)
        values = _drawn(self.module, _values(like.made), key) if self.start is None else self.start
        buffers, renewed = _flat(values["buffers"]), like.program(x).buffers.values()
        state = tree.nested({path: buffers[path] for path in renewed}, ".")
        return jax.tree.map(lambda leaf: jnp.array(leaf, floating(x), copy=True), (values["params"], state))

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the module's outputs, and its state: updated in training, else unchanged."""
        program = _template(self.module).program(x)
        free, frozen = _flat(params), _flat(self.frozen)
        dtype = next((leaf.dtype for leaf in free.values()), x.dtype)
        leaves = free | {path: jnp.asarray(leaf, dtype) for path, leaf in frozen.items()}
        if missing := [path for path in program.parameters.values() if path not in leaves]:
            raise ValueError(
                f"the parameters lack {', '.join(missing)}; where they took no gradient when the posterior was made, "
                "give the module as it was then, after requires_grad_(False) of these"
            )
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            f, after = program.run(leaves, _flat(state), x, Mode(train, key, mask))
        return f[:, None] if f.ndim == 1 else f, tree.nested(after, ".") if train else state

    def state_dict(self, params: Params, state: State = None) -> dict[str, Tensor]:
        """Returns parameters and state for `torch.nn.Module.load_state_dict`.

        Args:
            params: parameters of this network, for instance `posterior.mean["network"]` or a draw; where a leaf is None
                (as for methods of the last layer), the module's own is used.
            state: the network's state, `posterior.network_state`; None for the module's own.

        Examples:
            >>> import lamu, torch
            >>> module = torch.nn.Linear(2, 1)
            >>> network = lamu.networks.Torch(module)
            >>> sorted(network.state_dict(network.start["params"]))
            ['bias', 'weight']
        """
        import torch

        new = {**_flat(self.frozen), **_flat(params), **_flat(state or {})}
        template = _template(self.module)
        first = first_names(template.made)

        def tensor(name: str, now: Tensor) -> Tensor:
            value = new.get(first.get(name, name))
            return now.clone() if value is None else torch.as_tensor(np.array(value)).to(now.dtype)

        return {name: tensor(name, now) for name, now in template.made.state_dict().items()}


def _head_pattern(head: str, module: Module) -> str:
    """Returns the pattern of a head by the first names of its parameters."""
    names = {name.replace(".", "/"): first.replace(".", "/") for name, first in first_names(module).items()}
    matched = {name: first for name, first in names.items() if tree.matches(name, head)}
    later = {name: first for name, first in matched.items() if not tree.matches(first, head)}
    if not later:
        return head
    if len(set(matched.values())) == 1:
        return next(iter(matched.values()))
    name, first = next(iter(later.items()))
    raise ValueError(
        f"head={head!r} names {name!r}, a tied weight that is the parameter {first!r}, beside others; give "
        f"laplace(weights=Matching({sorted(set(matched.values()))!r})) in the place of a head"
    )


class _TorchTemplate:
    """The structure shared by all modules that a function makes, and their exported programs."""

    def __init__(self, module: Any) -> None:
        from torch import nn
        from torch.nn.modules.batchnorm import _BatchNorm

        instance = module if isinstance(module, nn.Module) else unwrapped(_made(module, 0))
        if not isinstance(instance, nn.Module):
            raise TypeError(f"{module!r} made a {type(instance).__name__}; give what makes a torch.nn.Module")
        self.made = instance
        self.normalises = any(isinstance(each, _BatchNorm) for each in instance.modules())
        self._programs: dict[tuple[tuple[int, ...], bool], TorchProgram] = {}

    def program(self, x: Rows) -> TorchProgram:
        """Returns the program for rows like those of x."""
        kind = (tuple(x.shape[1:]), bool(jnp.issubdtype(x.dtype, jnp.floating)))
        if kind not in self._programs:
            self._programs[kind] = in_new_thread(lambda: read(self.made, kind[0], x.dtype))
        return self._programs[kind]


@lru_cache(maxsize=32)
def _template(module: Any) -> _TorchTemplate:
    return _TorchTemplate(module)


def _made(make: Callable[[], Module], seed: int) -> Module:
    """Returns a new module with weights by the seed, without changing the state of PyTorch's random generator."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def _drawn(make: Callable[[], Module], like: Params, key: RandomKey) -> Params:
    """Returns the parameters and buffers of a new module, also where the key is traced."""

    def draw(bits: Any) -> Params:
        return _values(_made(make, int(np.asarray(bits).ravel()[-1])))

    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), like)  # all are floating
    return jax.pure_callback(draw, shapes, jax.random.key_data(key), vmap_method="sequential")


def _values(module: Module) -> Params:
    """Returns the parameters, those without gradient, and the floating buffers, by their names."""

    def values(named: Iterable[tuple[str, Tensor]]) -> Params:
        arrays = {name: _array(each) for name, each in named if each.is_floating_point()}
        return tree.nested(arrays, ".")

    parameters = dict(module.named_parameters())
    free = {name: each for name, each in parameters.items() if each.requires_grad} or parameters
    frozen = {name: each for name, each in parameters.items() if name not in free}
    named = {"params": free, "frozen": frozen, "buffers": dict(module.named_buffers())}
    return {kind: values(each.items()) for kind, each in named.items()}


def _array(tensor: Tensor) -> np.ndarray:
    """Returns the values of a tensor; 16-bit ones in 32 bits, since NumPy has no bfloat16."""
    cpu_tensor = tensor.detach().cpu()
    return (cpu_tensor.float() if cpu_tensor.element_size() < 4 else cpu_tensor).numpy().copy()


def _flat(nested: Params) -> dict[str, PyTree]:
    """Returns leaves by their PyTorch names."""
    return {path.replace("/", "."): leaf for path, leaf in tree.by_path(nested).items()}
