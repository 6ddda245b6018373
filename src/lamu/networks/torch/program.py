"""Exported graphs of PyTorch modules, computed by JAX."""

# `torch.export` reads the module once, in training mode, so that the graph contains dropout and batch normalisation;
# whether they are active is decided at every pass (`lamu.networks.torch.eager.Mode`). PyTorch is not needed again.

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.networks.torch.eager import Mode, copied, require_one_input, require_pure
from lamu.networks.torch.operators import OPERATORS, OPERATORS_WITH_MODE
from lamu.typing import Array, DTypeLike, PyTree

__all__ = ["TorchProgram", "first_names", "read"]

# PyTorch is imported where it is used: its types are for type checkers alone.
if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node
    from torch.nn import Module
else:
    Module = Tensor = Node = Any

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
    buffers: Mapping[str, str]  # the same for the buffers that training passes update
    constants: Mapping[str, np.ndarray]  # all other arrays, by their names in the graph
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
        values |= {name: buffers[path] for name, path in self.buffers.items()}
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
        return values[self.output.name], {path: values[name] for name, path in self.buffers.items()}


def read(module: Module, shape: tuple[int, ...], dtype: DTypeLike) -> TorchProgram:
    """Returns the program of a module."""
    import torch

    require_one_input(module)
    module = copied(module).train()
    if any(each.is_floating_point() and each.element_size() < 4 for each in module.parameters()):
        module = module.float()
    first = first_names(module)
    floating = jnp.issubdtype(dtype, jnp.floating)
    kind = next((each.dtype for each in module.parameters()), torch.float32) if floating else torch.int64
    example = torch.zeros((_ROWS, *shape), dtype=kind)
    require_pure(module, example)
    exported = _exported(module, example)
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
    state = {name: path for name, path in kept.items() if name in renewed}
    state = {name: path for name, path in state.items() if module.get_buffer(path).is_floating_point()}
    constants = {name: _array(module.get_buffer(path)) for name, path in kept.items() if name not in state}
    lifted = signature.inputs_to_lifted_tensor_constants
    constants |= {name: _array(exported.constants[path]) for name, path in lifted.items()}
    return TorchProgram(parameters, state, constants, signature.user_inputs[0], operations, _output(exported))


def first_names(module: Module) -> dict[str, str]:
    """Returns the first name of every parameter and buffer, by each of its names: tied weights have several."""
    first: dict[int, str] = {}
    return {
        name: first.setdefault(id(each), name)
        for named in (module.named_parameters, module.named_buffers)
        for name, each in named(remove_duplicate=False)
    }


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


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
