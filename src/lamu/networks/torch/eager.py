"""Checks of a PyTorch module by eager passes before its export: invalid inputs and hidden state."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import jax
import numpy as np

from lamu.typing import Array, PyTree, RandomKey

__all__ = [
    "Mode",
    "array",
    "asks_for_mode",
    "computes_evaluation",
    "copied",
    "first_names",
    "require_one_input",
    "require_pure",
    "snapshot",
    "unwrapped",
    "varied",
]


@dataclass(frozen=True)
class Mode:
    """The mode of a pass, for one operator."""

    train: bool  # whether batch statistics are computed instead of used
    key: RandomKey | None  # the operator's own key; None where nothing is drawn
    mask: Array | None  # one for a real row and zero for a padded one, `[batch]`; None where every row is real

    def at(self, index: int) -> Mode:
        """Returns the mode for the operator of this number, with its own key."""
        key = None if self.key is None else jax.random.fold_in(self.key, index)
        return Mode(self.train, key, self.mask)


# `torch.export` records one pass. An attribute that `forward` writes for the next pass (`self.h = ...`) would silently
# be exported with its initial value.


# PyTorch is imported where it is used: its types are for type checkers alone.
if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
else:
    Module = Tensor = Any

_PYTORCHS = ("_parameters", "_modules", "_buffers", "_non_persistent_buffers_set")


def copied(module: Module, share: bool = False) -> Module:
    """Returns a copy of a module, also where it stores results of an earlier pass, which PyTorch cannot copy."""
    import torch

    tensors = [value for each in module.modules() for value in vars(each).values() if isinstance(value, torch.Tensor)]
    known = {id(value): value.detach().clone() for value in tensors if not value.is_leaf}
    shared = {id(value): value for value in module.parameters() if share}
    return copy.deepcopy(module, {**known, **shared})


def snapshot(module: Module) -> Module:
    """Returns a copy that later changes of a module do not reach, the same one while its computation is the same."""
    # Weights are shared and not copied: a network takes their values when it is made.
    if module in _COPIES:
        return module
    computation = _computation(module)
    if _SNAPSHOTS.get(module, (None,))[0] != computation:
        made = copied(module, share=True)
        _COPIES.add(made)
        _SNAPSHOTS[module] = (computation, made)
    return _SNAPSHOTS[module][1]


_SNAPSHOTS: WeakKeyDictionary[Module, tuple[object, Module]] = WeakKeyDictionary()
_COPIES: WeakSet[Module] = WeakSet()


def _computation(module: Module) -> object:
    """Returns what a module computes beside the values of its weights and its batch statistics, to be compared."""
    from torch.nn.modules.batchnorm import _NormBase

    layers = dict(module.named_modules(remove_duplicate=False))
    attributes = {path: value for path, value in _attributes(module).items() if path.rpartition(".")[2] != "training"}
    hooks = {path: list(map(id, each._forward_hooks.values())) for path, each in layers.items()}
    first = first_names(module)
    shapes = {name: (first[name], each.shape, each.dtype) for name, each in module.named_parameters()}
    buffers = {
        f"{path}.{name}": hash(array(each).tobytes())
        for path, layer in layers.items()
        for name, each in layer.named_buffers(recurse=False)
        if not isinstance(layer, _NormBase)
    }
    return {path: type(each) for path, each in layers.items()}, attributes, hooks, first, shapes, buffers


def first_names(module: Module) -> dict[str, str]:
    """Returns the first name of every parameter and buffer, by each of its names: tied weights have several."""
    first: dict[int, str] = {}
    return {
        name: first.setdefault(id(each), name)
        for named in (module.named_parameters, module.named_buffers)
        for name, each in named(remove_duplicate=False)
    }


def array(tensor: Tensor) -> np.ndarray:
    """Returns the values of a tensor; 16-bit ones in 32 bits, since NumPy has no bfloat16."""
    cpu_tensor = tensor.detach().cpu()
    narrow = cpu_tensor.is_floating_point() and cpu_tensor.element_size() < 4
    return (cpu_tensor.float() if narrow else cpu_tensor).numpy().copy()


def unwrapped(module: Any) -> Any:
    """Returns the module inside of `torch.compile`, `DataParallel` and `DistributedDataParallel`."""
    import torch
    from torch import nn

    while isinstance(module, nn.Module):
        if isinstance(module, torch.jit.ScriptModule):
            raise TypeError(
                f"the module {type(module).__name__} is TorchScript, which torch.export cannot read; give the module "
                "that it was made from, with its weights: module.load_state_dict(scripted.state_dict())"
            )
        if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            module = module.module
        elif "_orig_mod" in module._modules:
            module = module._orig_mod
        else:
            break
    return module


def require_one_input(module: Module) -> None:
    """Raises a TypeError for a module whose forward needs several inputs."""
    taken = inspect.signature(module.forward).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [each.name for each in taken if each.default is inspect.Parameter.empty and each.kind not in variable]
    if len(needed) > 1:
        raise TypeError(
            f"{type(module).__name__}.forward takes {len(needed)} inputs ({', '.join(needed)}), and a network takes "
            "one array of rows; give a module that takes them side by side and splits them, with forward(self, x): "
            "return self.net(x[:, :k], x[:, k:])"
        )


def require_pure(module: Module, example: Tensor) -> None:
    """Raises an error for a module that cannot process an example, or whose outputs depend on earlier passes."""
    # Registered buffers are the network's state and may change. So may attributes without effect on the outputs: stored
    # attention weights, a table that is computed once.
    import torch

    expected = _outputs(copied(module), example)
    used = copied(module)
    buffers = {name: each.clone() for name, each in used.named_buffers()}
    before = _attributes(used)
    _outputs(used, varied(module, example))
    for name, value in buffers.items():
        with torch.no_grad():
            used.get_buffer(name).copy_(value)
    now = _attributes(used)
    changed = [path for path in {**before, **now} if before.get(path, ()) != now.get(path, ())]
    unset = before.keys() - now.keys()  # buffers that were registered without a value, and have one now
    if changed and (unset or not _same(_outputs(used, example), expected)):
        raise TypeError(
            f"{type(module).__name__} has hidden state: its forward writes {', '.join(changed)}, and the outputs of a "
            "row depend on earlier passes; compute it from the inputs in every pass, or register it as a buffer of a "
            "fixed shape (register_buffer), which is the network's state"
        )


def varied(module: Module, example: Tensor) -> Tensor:
    """Returns an example of varied numbers or codes; the given one, of zeros, where the module cannot process these."""
    import torch

    other = torch.arange(example.numel()).reshape(example.shape) % 2
    if example.is_floating_point():
        other = torch.randn(example.shape, generator=torch.Generator().manual_seed(1), dtype=example.dtype)
    try:
        _outputs(copied(module), other)
    except (TypeError, ValueError):  # for instance, a module that makes its rows codes of a table
        return example
    return other


def asks_for_mode(module: Module) -> bool:
    """Whether the classes of a module other than PyTorch's mention `training`, by the names in their code."""
    kinds = {kind for each in module.modules() for kind in type(each).__mro__}
    own = [kind for kind in kinds if kind.__module__.partition(".")[0] not in ("torch", "builtins")]
    codes = [value.__code__ for kind in own for value in vars(kind).values() if hasattr(value, "__code__")]
    while codes:
        code = codes.pop()
        if "training" in code.co_names or "training" in code.co_consts:
            return True
        codes += [each for each in code.co_consts if hasattr(each, "co_names")]
    return any("forward" in vars(each) or each._forward_hooks for each in module.modules())


def computes_evaluation(graph: Module, module: Module, example: Tensor) -> bool:
    """Whether an exported graph of training mode, without noise and batch statistics, has the outputs of `eval()`."""
    import torch
    from torch.utils import _pytree as pytree

    class Evaluation(torch.fx.Interpreter):
        def call_module(self, target: object, args: object, kwargs: object) -> None:
            """Leaves the checks of shapes out."""

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            args = list(args)
            schema = getattr(target, "_schema", None)
            positions = {each.name: place for place, each in enumerate(schema.arguments)} if schema else {}
            has_statistics = "running_mean" not in positions or args[positions["running_mean"]] is not None
            for name, value in _EVALUATION.items():
                if has_statistics and positions.get(name, len(args)) < len(args):
                    args[positions[name]] = value
            return super().call_function(target, tuple(args), kwargs)

    rows = varied(module, example)
    evaluated = copied(module).eval()
    with torch.no_grad():
        values = pytree.tree_leaves(Evaluation(graph).run(rows))
    expected = pytree.tree_leaves(_outputs(evaluated, rows))
    return len(values) == len(expected) and all(
        a.shape == b.shape and torch.allclose(a, b, 1e-3, 1e-4 * (1 + b.abs().max()), equal_nan=True)
        for a, b in zip(values, expected, strict=True)
    )


_EVALUATION = {"train": False, "training": False, "use_input_stats": False, "dropout_p": 0.0}


def _outputs(module: Module, example: Tensor) -> PyTree:
    """Returns the outputs of a pass, without changing the state of PyTorch's random generator."""
    import torch

    entered: list[str] = []  # the stack of submodules in the pass, the innermost last
    hooks = []
    for path, each in module.named_modules():
        hooks += [each.register_forward_pre_hook(_enter(entered, path)), each.register_forward_hook(_leave(entered))]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        try:
            return module(example)
        except Exception as error:
            path = entered[-1] if entered else ""
            layer = str(module.get_submodule(path))
            layer = type(module.get_submodule(path)).__name__ if "\n" in layer else layer
            shape, reason = tuple(example.shape[1:]), (str(error).splitlines() or [""])[0]
            if _reads_names(error):
                raise TypeError(
                    f"{type(module).__name__}.forward takes a dictionary of tensors, and a network takes one array of "
                    "rows; give a module that takes them side by side and splits them, with forward(self, x): return "
                    'self.net({"a": x[:, :k], "b": x[:, k:]})'
                ) from error
            if _looks_up(error) and example.is_floating_point():
                raise TypeError(
                    f"the module {type(module).__name__} looks its inputs up in a table, and rows came as floating "
                    "numbers, as data do here; give lamu.networks.Tokens(lamu.networks.Torch(module)), which makes "
                    "them whole numbers again"
                ) from error
            raise ValueError(
                f"the module {type(module).__name__} cannot compute rows of the shape {shape}: "
                f"{f'its submodule {path!r}, {layer},' if path else layer} raised {type(error).__name__}: "
                f"{reason.rstrip('.')}; give rows of the shape and the dtype that it was written for"
            ) from error
        finally:
            for hook in hooks:
                hook.remove()


def _reads_names(error: Exception) -> bool:
    """Whether a forward pass used a tensor as a dictionary."""
    text = str(error)
    asks = isinstance(error, AttributeError) and any(f"'{name}'" in text for name in ("items", "keys", "values", "get"))
    by_name = isinstance(error, IndexError | TypeError | KeyError) and ("valid indices" in text or "new():" in text)
    return asks or by_name or "values expected sparse tensor" in text  # what a tensor has under the name of one


def _looks_up(error: Exception) -> bool:
    """Whether an embedding was given numbers that are not integers."""
    text = str(error)
    return "indices" in text and ("Long" in text or "Int" in text) and "scalar type" in text


def _enter(entered: list[str], path: str) -> Callable[..., None]:
    return lambda module, args: entered.append(path)


def _leave(entered: list[str]) -> Callable[..., None]:
    def leave(module: Module, args: PyTree, result: PyTree) -> None:
        entered.pop()

    return leave


def _attributes(module: Module) -> dict[str, object]:
    """Returns comparable stand-ins of the attributes of a module and its submodules, by path."""
    # A buffer that is registered without a value (None) has no fixed shape, and counts as an attribute.
    attributes = {}
    for path, each in module.named_modules():
        own = {name: value for name, value in vars(each).items() if name not in _PYTORCHS and "_hooks" not in name}
        own |= {name: None for name, value in each._buffers.items() if value is None}
        attributes |= {f"{path}.{name}" if path else name: _identity(value) for name, value in own.items()}
    return attributes


def _identity(value: object) -> object:
    """Returns immutable values themselves, for containers the identities of their contents, else the object's id."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return value
    if isinstance(value, dict):
        return {key: _identity(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_identity(each) for each in value]
    # PyTorch counts the changes of a tensor in place; those of weights are training.
    changes = 0 if getattr(value, "requires_grad", False) else getattr(value, "_version", 0)
    return (type(value), id(value), changes)


def _same(first: PyTree, other: PyTree) -> bool:
    """Whether two outputs are equal, as tensors or as containers of tensors."""
    import torch
    from torch.utils import _pytree as pytree

    leaves, others = (pytree.tree_leaves(each) for each in (first, other))
    return len(leaves) == len(others) and all(
        torch.allclose(a, b, equal_nan=True) if isinstance(a, torch.Tensor) else bool(a == b)
        for a, b in zip(leaves, others, strict=True)
    )
