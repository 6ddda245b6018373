"""Adapter of a PyTorch module as a network."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.base.compile_once import floating
from lamu.networks.interface import Network, in_new_thread
from lamu.networks.torch.eager import (
    Mode,
    array,
    asks_for_mode,
    computes_evaluation,
    copied,
    first_names,
    require_one_input,
    require_pure,
    snapshot,
    unwrapped,
)
from lamu.networks.torch.operators import OPERATORS, OPERATORS_WITH_MODE
from lamu.record import given, record, static
from lamu.typing import Array, DTypeLike, Params, PyTree, RandomKey, Rows, State

__all__ = ["Torch", "TorchProgram", "first_names", "read"]

# PyTorch is imported where it is used: its types are for type checkers alone.
if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node
    from torch.nn import Module
else:
    Module = Tensor = Node = Any


@record
class Torch(Network):
    r"""Adapter of a PyTorch module, trained or not; passes, beliefs and predictions are computed by JAX.

    The module is exported (`torch.export`) as it is at construction, and never changed. Its parameters keep their names
    (`fc1.weight` is at the path `fc1/weight`); buffers that its training passes update, such as batch statistics, are
    the network's state. Where `forward` asks for `self.training`, passes that do not train are those of `eval()`.
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
        template = self.module if isinstance(self.module, nn.Module) else _template(self.module).made
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
        if isinstance(self.module, nn.Module):
            object.__setattr__(self, "module", snapshot(self.module))

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
        buffers, renewed = _flat(values["buffers"]), like.programs(x).evaluation.renewed
        state = tree.nested({path: buffers[path] for path in renewed}, ".")
        return jax.tree.map(lambda leaf: jnp.array(leaf, floating(x), copy=True), (values["params"], state))

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the module's outputs, and its state: updated in training, else unchanged."""
        program = _template(self.module).programs(x).of(train)
        free, frozen = _flat(params), _flat(self.frozen)
        dtype = next((leaf.dtype for leaf in free.values()), x.dtype)
        leaves = free | {path: jnp.asarray(leaf, dtype) for path, leaf in frozen.items()}
        if missing := [path for path in program.parameters.values() if path not in leaves]:
            raise ValueError(
                f"the parameters lack {', '.join(missing)}; where they took no gradient when the posterior was made, "
                "give the module as it was then, after requires_grad_(False) of these"
            )
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            kept = {} if self.start is None else _flat(jax.tree.map(jnp.asarray, self.start["buffers"]))
            f, after = program.run(leaves, kept | _flat(state), x, Mode(train, key, mask))
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

        start = {} if self.start is None else {**_flat(self.start["params"]), **_flat(self.start["buffers"])}
        new = {**start, **_flat(self.frozen), **_flat(params), **_flat(state or {})}
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
        self._programs: dict[tuple[tuple[int, ...], bool], TorchPrograms] = {}

    def programs(self, x: Rows) -> TorchPrograms:
        """Returns the programs for rows like those of x."""
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
        arrays = {name: array(each) for name, each in named if each.is_floating_point()}
        return tree.nested(arrays, ".")

    parameters = dict(module.named_parameters())
    free = {name: each for name, each in parameters.items() if each.requires_grad} or parameters
    frozen = {name: each for name, each in parameters.items() if name not in free}
    named = {"params": free, "frozen": frozen, "buffers": dict(module.named_buffers())}
    return {kind: values(each.items()) for kind, each in named.items()}


def _flat(nested: Params) -> dict[str, PyTree]:
    """Returns leaves by their PyTorch names."""
    return {path.replace("/", "."): leaf for path, leaf in tree.by_path(nested).items()}


# `torch.export` reads the module in training mode, so that the graph contains dropout and batch normalisation; whether
# they are active is decided at every pass (`lamu.networks.torch.eager.Mode`). A module whose outputs depend on
# `self.training` by more than these is read a second time, in evaluation mode. PyTorch is not needed again.


_ROWS = 2  # of the example for the export; the number of rows stays symbolic
_ELSEWHERE = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "copy", "inplace")
_CHECKS = ("_assert", "sym_constrain", "_assert_scalar", "_assert_async", "_assert_tensor_metadata")
_RENEWED = {"batch_norm": (3, 4)}  # its running mean and variance
_VIEWS = (
    "view",
    "slice",
    "select",
    "transpose",
    "permute",
    "unsqueeze",
    "squeeze",
    "expand",
    "narrow",
    "t",
    "diagonal",
)


@dataclass(frozen=True)
class _GraphValue:
    """The result of an earlier operator, by its name in the graph."""

    name: str


@dataclass(frozen=True)
class _DType:
    """A PyTorch dtype, by its name; `float32` stands for the precision of the parameters."""

    name: str


@dataclass(frozen=True)
class _Operation:
    name: str
    function: Callable[..., PyTree]
    has_mode: bool
    in_place: bool
    args: tuple[PyTree, ...]
    options: Mapping[str, PyTree]
    renews: tuple[int, ...] = ()  # the positions of the arguments that it updates
    scope: str = ""  # the submodule's path and its class


@dataclass(frozen=True)
class TorchProgram:
    """The computation of a module."""

    parameters: Mapping[str, str]  # the name of each parameter in the graph, and its first name in the module
    buffers: Mapping[str, str]  # the same for floating buffers
    renewed: tuple[str, ...]  # names in the module of the buffers that training passes update
    constants: Mapping[str, np.ndarray]  # all other arrays and buffers not given, by their names in the graph
    inputs: str  # the name of the inputs in the graph
    operations: tuple[_Operation, ...]  # the operators, in order
    output: _GraphValue  # the result

    def run(
        self, params: Mapping[str, Array], buffers: Mapping[str, Array], x: Array, mode: Mode
    ) -> tuple[Array, dict[str, Array]]:
        """Returns the outputs and the buffers after the pass."""
        dtype = next((leaf.dtype for leaf in params.values()), x.dtype)
        values: dict[str, PyTree] = {name: jnp.asarray(each) for name, each in self.constants.items()}
        values |= {name: params[path] for name, path in self.parameters.items()}
        values |= {name: buffers[path] for name, path in self.buffers.items() if path in buffers}
        values[self.inputs] = x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x
        for index, operation in enumerate(self.operations):
            args, options = _filled((operation.args, operation.options), values, dtype)
            with jax.named_scope(operation.scope):
                if operation.has_mode:
                    result, renewed = operation.function(mode.at(index), *args, **options)
                    values |= {operation.args[place].name: new for place, new in renewed.items()}
                else:
                    result = operation.function(*args, **options)
            values[operation.name] = result
            if operation.in_place:
                values[operation.args[0].name] = result
        after = {path: values[name] for name, path in self.buffers.items() if path in self.renewed}
        return values[self.output.name], after


@dataclass(frozen=True)
class TorchPrograms:
    """The computations of a module in its two modes, with the same state; one program where no branch depends on it."""

    evaluation: TorchProgram
    training: TorchProgram | TypeError  # an error where that mode alone cannot be read

    def of(self, train: bool) -> TorchProgram:
        """Returns the program of a mode."""
        if not train:
            return self.evaluation
        if isinstance(self.training, TypeError):
            raise TypeError(
                f"in training mode (self.training is True) {self.training}; laplace and last_layer with epochs=0 need "
                "no pass in that mode"
            ) from self.training
        return self.training


def read(module: Module, shape: tuple[int, ...], dtype: DTypeLike) -> TorchPrograms:
    """Returns the programs of a module."""
    import torch

    require_one_input(module)
    module = copied(module)
    if any(each.is_floating_point() and each.element_size() < 4 for each in module.parameters()):
        module = module.float()
    floating = jnp.issubdtype(dtype, jnp.floating)
    kind = next((each.dtype for each in module.parameters()), torch.float32) if floating else torch.int64
    example = torch.zeros((_ROWS, *shape), dtype=kind)
    require_pure(module, example)
    training: TorchProgram | TypeError
    try:
        exported = _exported(copied(module).train(), example)  # whose buffers the check changes
        training = _program(module, exported)
    except TypeError as error:
        training = error
    else:
        # The check takes some tenths of a second.
        if not asks_for_mode(module) or computes_evaluation(exported.module(), module, example):
            return TorchPrograms(training, training)
    state = training.renewed if isinstance(training, TorchProgram) else ()
    return TorchPrograms(_program(module, _exported(module.eval(), example), state), training)


def _program(module: Module, exported: Any, also: Iterable[str] = ()) -> TorchProgram:
    """Returns an exported module as a program, whose state are the buffers that it updates and others by name."""
    first = first_names(module)
    signature = exported.graph_signature
    parameters, kept = (
        {name: first[path] for name, path in paths.items()}
        for paths in (signature.inputs_to_parameters, signature.inputs_to_buffers)
    )
    operations = tuple(filter(None, map(_operation, exported.graph.nodes)))
    renewed = {
        operation.args[place].name
        for operation in operations
        for place in operation.renews
        if isinstance(operation.args[place], _GraphValue)
    }
    buffers = {name: path for name, path in kept.items() if module.get_buffer(path).is_floating_point()}
    state = tuple(path for name, path in buffers.items() if name in renewed or path in also)
    constants = {name: array(module.get_buffer(path)) for name, path in kept.items()}
    lifted = signature.inputs_to_lifted_tensor_constants
    constants |= {name: array(exported.constants[path]) for name, path in lifted.items()}
    inputs, output = signature.user_inputs[0], _output(exported)
    return TorchProgram(parameters, buffers, state, constants, inputs, operations, output)


def _exported(module: Module, example: Tensor) -> Any:
    import torch

    def export(rows: PyTree) -> Any:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # of attributes that PyTorch's own layers assign
            return torch.export.export(module, (example,), dynamic_shapes=({0: rows},))

    try:
        return export(torch.export.Dim.AUTO)
    except Exception as error:
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise TypeError(
            f"torch.export cannot read {type(module).__name__} on one input of the shape "
            f"{('rows', *example.shape[1:])}: {first.strip()}. A network must be a fixed graph of operators of one "
            "tensor; move what depends on the data out of forward"
        ) from error


def _operation(node: Any) -> _Operation | None:
    if node.op in ("placeholder", "output"):
        return None
    if node.op != "call_function":
        raise TypeError(f"{_where(node)} is a {node.op}, and only calls of operators are read")
    path = str(node.target)
    if not path.startswith("aten."):
        name = getattr(node.target, "__name__", path)
        if name.startswith(_CHECKS) or "_assert" in path:
            return None
        if path.startswith(("higher_order", "torch.ops")) or "." in path.split(" ")[0]:
            raise TypeError(
                f"PyTorch's {path!r} in {_where(node)} is not read; a network must be a fixed graph of operators"
            )
        return _Operation(node.name, node.target, False, False, _plain(node.args), {})
    _, name, overload = path.split(".")
    if name.startswith(_CHECKS):
        return None
    in_place = name.endswith("_") and not name.endswith("__")
    base = name.rstrip("_") if in_place else name
    function = OPERATORS.get(f"{base}.{overload}", OPERATORS.get(base))
    with_mode = OPERATORS_WITH_MODE.get(base)
    if (function is None and with_mode is None) or overload == "out":
        spectral = (  # whose power iterations write into their buffers
            "of spectral_norm keep the weights, by torch.nn.utils.parametrize.remove_parametrizations(layer, 'weight') "
            "or torch.nn.utils.remove_spectral_norm(layer); else "
        )
        remedy = spectral if overload == "out" else ""
        raise TypeError(
            f"PyTorch's operator {path} in {_where(node)} is not known here; {remedy}write that part of the module "
            "with others, or give the network to JAX as a function (lamu.networks.Trained)"
        )
    if in_place:
        _refuse_views(node, path)
    options = {key: _plain(each) for key, each in node.kwargs.items() if key not in _ELSEWHERE}
    operation: Any = with_mode or function
    renews = (0,) if in_place else _RENEWED.get(base, ())
    return _Operation(
        node.name, operation, with_mode is not None, in_place, _plain(node.args), options, renews, _scope(node)
    )


def _refuse_views(node: Any, path: str) -> None:
    """Refuses an in-place update of a view of a tensor that is read again, since arrays here are values."""
    base = node.args[0]
    if base.op == "call_function" and str(base.target).removeprefix("aten.").split(".")[0] in _VIEWS:
        nodes = list(node.graph.nodes)
        after = set(nodes[nodes.index(node) + 1 :])
        if any(user in after for user in base.args[0].users):
            raise TypeError(
                f"{path} in {_where(node)} changes a part of a tensor in place, which is not read; make a new tensor, "
                "for instance by torch.cat or torch.where"
            )


def _where(node: Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    path = next((str(each[0]) for each in reversed(list(stack.values()))), "")
    return f"the submodule {path!r}" if path else "the module's own forward"


def _scope(node: Node) -> str:
    """Returns the path and the class of the submodule of an operator, for `lamu.networks.output_range`."""
    path, kind = next(reversed(list((node.meta.get("nn_module_stack") or {}).values())), ("", ""))
    kind = kind if isinstance(kind, str) else kind.__qualname__
    return f"{path}:{kind.rpartition('.')[2]}"


def _output(exported: Any) -> _GraphValue:
    outputs = exported.graph_signature.user_outputs
    if len(outputs) != 1:
        raise TypeError(
            f"the module returns {len(outputs)} tensors; wrap it in one whose forward returns the outputs alone, "
            "[batch, outputs]"
        )
    return _GraphValue(outputs[0])


def _plain(value: PyTree) -> PyTree:
    """Returns arguments with names instead of nodes."""
    import torch

    if isinstance(value, torch.fx.Node):
        return _GraphValue(value.name)
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value)) if type(value) in (tuple, list) else [_plain(each) for each in value]
    if isinstance(value, torch.dtype):
        return _DType(str(value).removeprefix("torch."))
    return value


def _filled(value: PyTree, values: Mapping[str, PyTree], dtype: DTypeLike) -> PyTree:
    """Returns arguments with arrays instead of names."""
    if isinstance(value, _GraphValue):
        return values[value.name]
    if isinstance(value, _DType):
        return dtype if value.name == "float32" else jax.dtypes.canonicalize_dtype(value.name)
    if isinstance(value, tuple | list):
        return type(value)(_filled(each, values, dtype) for each in value)
    if isinstance(value, Mapping):
        return {key: _filled(each, values, dtype) for key, each in value.items()}
    return value
