"""Bounds of a network's outputs for any weights, from its last operations."""

# A likelihood applies the inverse link itself: `Bernoulli` takes log odds, `Categorical` logits, `Poisson` the
# logarithm of the mean. A network that ends in a sigmoid, a softmax or an exponential has applied it already. This is
# detected in the traced program, by interval arithmetic in which inputs, weights and matrix products may have any
# value; nothing is computed.

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import Literal

from lamu.typing import PyTree

__all__ = ["NARROWED", "OutputRange", "output_range", "require_scales"]

# Numbers that decide which networks are refused. Conventions, not tuned.
_SLACK = 1.0  # for log odds and log means: beyond it a probability can be below 0.27, and a mean below 0.37
_WIDTH = 2.0  # for logits: where they differ by no more, the odds of two classes stay within a factor of e²
_SAME = ("stop_gradient", "convert_element_type", "copy", "copy_p", "reduce_precision", "sharding_constraint")
_BLAND = ("clip", "where", "_where", "concatenate", "squeeze", "reshape")  # calls that say nothing of a range
# Bounds of functions with dependent parts, which interval arithmetic overestimates.
_CALLS = {
    "silu": (-0.279, math.inf),
    "swish": (-0.279, math.inf),
    "mish": (-0.309, math.inf),
    "hard_silu": (-0.375, math.inf),
    "hard_tanh": (-1.0, 1.0),
    "soft_sign": (-1.0, 1.0),
}
# Equal where their inputs are.
_SHARED = ("dot_general", "add", "exp", "neg", "sub", "logistic", "reduce_max", "broadcast_in_dim", "abs")

# Functions of a number that occur in gates, and the grid at which they are evaluated.
_POINTWISE: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "tanh": np.tanh,
    "logistic": lambda x: _special("expit")(x),
    "erf": lambda x: _special("erf")(x),
    "erfc": lambda x: _special("erfc")(x),
}
_GRID = np.concatenate([[-1e3], np.linspace(-12.0, 12.0, 4801), [1e3]])
_FAR = 100.0  # an extreme along the grid beyond it counts as unbounded


def _special(name: str) -> Callable[..., np.ndarray]:
    from scipy import special  # imported here, as few networks have a gate

    return getattr(special, name)


Ends: TypeAlias = tuple[Any, Any]  # the least and the largest value, numbers or arrays

_INFINITE: Ends = (np.float64(-math.inf), np.float64(math.inf))


@dataclass(eq=False)
class _Traced:
    """The result of a primitive; values of calls are those of the primitives inside."""

    primitive: str
    inputs: tuple[_Traced, ...] = ()
    params: dict[str, PyTree] = field(default_factory=dict)
    shape: tuple[int, ...] = ()
    constant: PyTree = None
    calls: tuple[str, ...] = ()
    scope: str = ""
    ends: Ends = _INFINITE

    @property
    def bounded(self) -> bool:
        return not (np.isneginf(self.ends[0]).all() and np.isposinf(self.ends[1]).all())

    @classmethod
    def held(cls, constant: PyTree) -> _Traced:
        """Returns a constant, bounded by its entries where these are not traced."""
        if isinstance(constant, Tracer) or not np.issubdtype(getattr(constant, "dtype", type(constant)), np.number):
            return cls("constant", constant=constant)
        array = np.asarray(constant, np.float64)
        ends = (array.min(), array.max()) if array.size > 1024 else (array, array)
        return cls("constant", constant=constant, ends=ends)


@dataclass(frozen=True)
class OutputRange:
    """The smallest and the largest value of each output, and the operation that bounds them."""

    lowest: np.ndarray  # `[outputs]`
    highest: np.ndarray  # `[outputs]`
    operation: str  # its name, for instance "sigmoid"
    scope: str  # its scope, by the names of `jax.named_scope`; empty where there are none


def output_range(function: Callable[..., PyTree], *args: PyTree) -> tuple[OutputRange | None, PyTree]:
    """Returns the range of a function's outputs, `[rows, outputs]`, None where it is not bounded; and their shape."""
    program, shape = jax.make_jaxpr(function, return_shape=True)(*args)
    values: list[_Traced] = []
    inputs = [_Traced("input") for _ in program.jaxpr.invars]
    outputs = _flat(program.jaxpr, program.consts, inputs, values, (), "")
    if len(outputs) != 1 or len(shape.shape) != 2:
        return None, shape
    for value in values:
        value.ends = _ends(value)
    if outputs[0].constant is not None or not outputs[0].bounded:
        return None, shape
    lowest, highest = (np.broadcast_to(part, shape.shape) for part in outputs[0].ends)
    last = _bounding(outputs[0])
    return OutputRange(lowest.min(axis=0), highest.max(axis=0), _named(last), last.scope), shape


def require_scales(output_range: OutputRange | None, scales: tuple[str, ...], network: str, likelihood: str) -> None:
    """Raises a ValueError for a network whose outputs cannot be on the scales that a likelihood expects."""
    if output_range is None or len(scales) != len(output_range.lowest):
        return
    for scale in dict.fromkeys(scales):
        columns = np.asarray([each == scale for each in scales])
        lowest, highest = float(output_range.lowest[columns].min()), float(output_range.highest[columns].max())
        if not _empty_range(scale, lowest, highest):
            continue
        raise ValueError(
            f"the network {network} ends in {_last(output_range)}, so that its outputs stay "
            f"{_between(lowest, highest)}, and {likelihood} takes them as {scale}: "
            f"it applies {_INVERSES.get(scale, 'the inverse link')} itself; "
            f"{_remedy(output_range, scale)}"
        )


_INVERSES = {"logits": "the softmax", "log odds": "the sigmoid", "log means": "the exponential"}
_UNDONE = {"logits": "softmax", "log odds": "sigmoid", "log means": "exp"}


_NEEDED = {
    **dict.fromkeys(("logits", "ordinal scores"), "width"),
    **dict.fromkeys(("log odds", "scores"), "both signs"),
    **dict.fromkeys(("log means", "log deviations"), "negative numbers"),
}
NARROWED = frozenset(_NEEDED)
"""The scales of which an activation may leave hardly anything."""


def _empty_range(scale: str, lowest: float, highest: float) -> bool:
    needed = _NEEDED.get(scale)
    if lowest == highest:  # a constant, not an activation
        return False
    if needed == "width":
        return highest - lowest <= _WIDTH
    if needed == "both signs":
        return lowest >= -_SLACK or highest <= _SLACK
    return needed == "negative numbers" and lowest >= -_SLACK


def _between(lowest: float, highest: float) -> str:
    lowest, highest = lowest + 0.0, highest + 0.0  # no −0
    if math.isinf(highest):
        return f"at or above {lowest:.3g}"
    return f"at or below {highest:.3g}" if math.isinf(lowest) else f"between {lowest:.3g} and {highest:.3g}"


def _place(scope: str) -> tuple[str, str]:
    """Returns the path and the class of the innermost scope, which for PyTorch's operations is "path:class"."""
    inner = next((part for part in reversed(scope.split("/")) if part), "")
    path, colon, kind = inner.rpartition(":")
    return path, f"{kind}.forward" if colon and not path else kind


def _last(bounds: OutputRange) -> str:
    path, kind = _place(bounds.scope)
    if path:
        return f"its submodule {path!r}, {kind}"
    return f"{bounds.operation} (in {kind})" if kind else bounds.operation


def _remedy(bounds: OutputRange, scale: str) -> str:
    if _UNDONE.get(scale) == bounds.operation:
        path, _ = _place(bounds.scope)
        how = ", for instance as module[:-1] of a torch.nn.Sequential" if path else ", what stands before it"
        return f"leave that last operation out, so that the network returns the {scale}{how}"
    inverse = {
        "logits": ", log(p) of probabilities p",
        "log odds": ", log(p / (1 - p)) of a probability p",
        "log means": ", log(m) of a mean m",
        "log deviations": ", the logarithm of a deviation",
    }.get(scale, "")
    return f"let the network return {scale}, which may have any value{inverse}"


def _flat(
    jaxpr: Any,
    constants: Sequence[PyTree],
    inputs: Sequence[_Traced],
    values: list[_Traced],
    calls: tuple[str, ...],
    scope: str,
) -> list[_Traced]:
    """Returns the outputs of a program as values; appends all intermediate values in order."""
    environment: dict[object, _Traced] = dict(zip(jaxpr.invars, inputs, strict=True))
    environment |= {var: _Traced.held(each) for var, each in zip(jaxpr.constvars, constants, strict=True)}

    shared: dict[object, _Traced] = {}

    def of(atom: Any) -> _Traced:
        return _Traced.held(atom.val) if isinstance(atom, Literal) else environment[atom]

    for equation in jaxpr.eqns:
        args, params = tuple(map(of, equation.invars)), equation.params
        inside = "/".join(part for part in (scope, str(equation.source_info.name_stack)) if part)
        name = equation.primitive.name
        inner = next((params[key] for key in ("call_jaxpr", "jaxpr", "fun_jaxpr") if key in params), None)
        if inner is not None and name not in ("scan", "while", "cond", "pallas_call", "xla_pmap", "shard_map"):
            open_jaxpr, inner_constants = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
            if len(open_jaxpr.invars) == len(args):
                called = str(params.get("name", ""))
                results = _flat(open_jaxpr, inner_constants, args, values, (*calls, called), inside)
                if called in _CALLS:
                    shape = equation.outvars[0].aval.shape
                    results = [_Traced(called, args, {}, shape, None, (*calls, called), inside)]
                    values.extend(results)
                environment |= dict(zip(equation.outvars, results, strict=True))
                continue
        if name in _SAME and len(args) == 1:
            environment[equation.outvars[0]] = args[0]
            continue
        same = (name, tuple(map(id, args)), str(params)) if name in _SHARED else None
        if same in shared:
            environment[equation.outvars[0]] = shared[same]
            continue
        for var in equation.outvars:
            value = _Traced(name, args, params, tuple(getattr(var.aval, "shape", ())), None, calls, inside)
            environment[var] = value
            values.append(value)
            if same is not None:
                shared[same] = value
    return [of(atom) for atom in jaxpr.outvars]


def _ends(value: _Traced) -> Ends:
    """Returns the interval of a primitive's result, from those of its inputs; infinite where it is not known."""
    rule = _RULES.get(value.primitive)
    if rule is None:
        return _INFINITE
    try:
        with np.errstate(all="ignore"):
            low, high = rule(value, *(each.ends for each in value.inputs))
            return _INFINITE if np.isnan(low).any() or np.isnan(high).any() else (low, high)
    except (TypeError, ValueError, IndexError):  # for instance a key, or an unsupported shape
        return _INFINITE


# A rule takes a value and the ends of its inputs, and returns its own.


def _always(low: float, high: float) -> Callable[..., Ends]:
    return lambda value, *args: (np.float64(low), np.float64(high))


def _increasing(function: Callable[..., np.ndarray], lowest: float = -math.inf) -> Callable[..., Ends]:
    """Returns the rule of a function that increases in each of its arguments."""

    def rule(value: _Traced, *args: Ends) -> Ends:
        low, high = (function(*side) for side in zip(*args, strict=True))
        return np.maximum(np.where(np.isnan(low), lowest, low), lowest), high

    return rule


def _sub(value: _Traced, x: Ends, y: Ends) -> Ends:
    first, second = value.inputs
    if second.primitive in ("reduce_max", "broadcast_in_dim", "max", "reshape") and _is_largest_of(second, first):
        return np.float64(-math.inf), np.float64(0.0)
    if _is_log_sum_exp_of(second, first):  # log_softmax
        return np.float64(-math.inf), np.float64(0.0)
    return x[0] - y[1], x[1] - y[0]


def _mul(value: _Traced, x: Ends, y: Ends) -> Ends:
    first, second = value.inputs
    if first is second:
        return np.float64(0.0), np.float64(math.inf)
    if second.primitive == "logistic" and second.inputs[0] is first:
        return np.float64(_CALLS["silu"][0]), np.float64(math.inf)
    if (gated := _gated(value)) is not None:
        return gated
    products = [np.where((a == 0) | (b == 0), 0.0, a * b) for a in x for b in y]
    return np.minimum.reduce(products), np.maximum.reduce(products)


def _gated(value: _Traced) -> Ends | None:
    """Returns the range of a product of two functions of one number, such as GELU; None where it is not one."""
    factors = [each for each in value.inputs if each.constant is None]
    numbers = factors + [
        each
        for factor in factors
        if factor.primitive == "mul" and any(part.constant is not None for part in factor.inputs)
        for each in factor.inputs
        if each.constant is None
    ]
    for number in numbers if len(factors) == 2 else ():
        along = _along(value, number)
        if along is not None and (along.min() > -_FAR or along.max() < _FAR):
            return (
                np.float64(along.min() if along.min() > -_FAR else -math.inf),
                np.float64(along.max() if along.max() < _FAR else math.inf),
            )
    return None


def _along(value: _Traced, number: _Traced, cache: dict[_Traced, Any] | None = None) -> Any:
    """Returns the values of a function of one number on a grid, None where it depends on another number."""
    if value is number:
        return _GRID
    if value.constant is not None:
        return np.float64(value.constant) if np.size(value.constant) == 1 else None
    # Each value is evaluated once, as nested sums, as in a U-Net, have too many paths. Layers are not evaluated.
    cache = {} if cache is None else cache
    if value not in cache:
        power = value.primitive == "integer_pow"
        function = (lambda x: x ** value.params["y"]) if power else _POINTWISE.get(value.primitive)
        parts = [] if function is None else [_along(each, number, cache) for each in value.inputs]
        lost = function is None or any(part is None for part in parts)
        cache[value] = None if lost or function is None else function(*parts)
    return cache[value]


def _div(value: _Traced, x: Ends, y: Ends) -> Ends:
    (a, b), (c, d), (numerator, denominator) = x, y, value.inputs
    total = _through(denominator, _BROADCASTS)
    if total.primitive == "reduce_sum" and total.inputs[0] is numerator and np.all(a >= 0):
        return np.float64(0.0), np.float64(1.0)
    if denominator.primitive == "add" and any(
        each.primitive == "abs" and each.inputs[0] is numerator for each in denominator.inputs
    ):
        return np.float64(-1.0), np.float64(1.0)  # softsign
    if not np.all(c >= 0):
        return (-b / d, -a / c) if np.all(d < 0) else _INFINITE
    if np.all(a >= 0):
        return np.where(np.isinf(d), 0.0, a / np.where(d == 0, 1.0, d)), np.where(c == 0, math.inf, b / c)
    return np.where(a < 0, a / c, 0.0), np.where(b > 0, b / c, 0.0)


def _power(value: _Traced, x: Ends) -> Ends:
    return _raised(x, value.params["y"])


def _raised(x: Ends, exponent: int) -> Ends:
    a, b = x
    if exponent == -1 and np.all(a >= 0):
        return np.where(np.isinf(b), 0.0, 1 / b), np.where(a == 0, math.inf, 1 / a)
    if exponent <= 0:
        return _INFINITE
    if exponent % 2 == 1:
        return a**exponent, b**exponent
    ends = (a**exponent, b**exponent)
    return np.where((a <= 0) & (b >= 0), 0.0, np.minimum(*ends)), np.maximum(*ends)


def _absolute(value: _Traced, x: Ends) -> Ends:
    ends = (abs(x[0]), abs(x[1]))
    return np.where((x[0] <= 0) & (x[1] >= 0), 0.0, np.minimum(*ends)), np.maximum(*ends)


def _select(value: _Traced, which: Ends, *cases: Ends) -> Ends:
    condition, _, *yes = value.inputs
    if condition.primitive == "ne" and condition.inputs[0] is condition.inputs[1]:  # of NaN alone
        return cases[0]
    if len(yes) == 1 and condition.primitive in ("gt", "ge") and condition.inputs[1].bounded:
        compared, times = condition.inputs[0], np.float64(1.0)
        if compared is not yes[0] and compared.primitive == "mul" and compared.inputs[0] is yes[0]:
            compared, times = yes[0], compared.inputs[1].ends[0]
        if compared is yes[0] and np.all(times > 0) and np.all(np.isfinite(times)):
            cases = (cases[0], (np.maximum(cases[1][0], condition.inputs[1].ends[0] / times), cases[1][1]))
    return np.minimum.reduce([low for low, _ in cases]), np.maximum.reduce([high for _, high in cases])


def _sum(value: _Traced, x: Ends) -> Ends:
    a, b = x
    if np.size(a) == 1 and np.size(b) == 1:
        count = math.prod(value.inputs[0].shape) / max(math.prod(value.shape), 1)
        return np.where(a == 0, 0.0, a * count).reshape(()), np.where(b == 0, 0.0, b * count).reshape(())
    return np.float64(np.min(a)) * (0.0 if np.min(a) == 0 else math.inf), np.float64(math.inf)


def _hull(value: _Traced, x: Ends, *others: Ends) -> Ends:
    return np.min(x[0]), np.max(x[1])


def _shaped(of: Callable[[_Traced, np.ndarray], np.ndarray]) -> Callable[..., Ends]:
    """Returns the rule of an operation that moves entries, without effect on bounds that are one number."""

    def rule(value: _Traced, x: Ends, *others: Ends) -> Ends:
        if all(np.size(end) == 1 for end in x):
            return np.reshape(x[0], ()), np.reshape(x[1], ())
        low, high = (of(value, np.broadcast_to(end, value.inputs[0].shape)) for end in x)
        return low, high

    return rule


def _broadcast(value: _Traced, array: np.ndarray) -> np.ndarray:
    shape = [1] * len(value.params["shape"])
    for axis, place in enumerate(value.params["broadcast_dimensions"]):
        shape[place] = array.shape[axis]
    return np.broadcast_to(array.reshape(shape), value.params["shape"])


def _slice(value: _Traced, array: np.ndarray) -> np.ndarray:
    p = value.params
    strides = p["strides"] or (1,) * array.ndim
    return array[tuple(map(slice, p["start_indices"], p["limit_indices"], strides))]


def _joined(join: Callable[..., np.ndarray], axis: str) -> Callable[..., Ends]:
    """Returns the rule of an operation that concatenates arrays."""

    def rule(value: _Traced, *args: Ends) -> Ends:
        ends = [[np.broadcast_to(end, each.shape) for end in x] for each, x in zip(value.inputs, args, strict=True)]
        low, high = (join(side, value.params[axis]) for side in zip(*ends, strict=True))
        return low, high

    return rule


_RESHAPED = _shaped(lambda value, array: array.reshape(value.shape))
_RULES: dict[str, Callable[..., Ends]] = {
    **{name: _always(*ends) for name, ends in _CALLS.items()},
    **{name: _always(-1.0, 1.0) for name in ("erf", "cos", "sin", "sign")},
    **dict.fromkeys(("reduce_max", "reduce_min", "reduce_window_max", "reduce_window_min", "sort"), _hull),
    **dict.fromkeys(("gather", "dynamic_slice"), _hull),
    **dict.fromkeys(("reshape", "squeeze", "expand_dims"), _RESHAPED),
    "logistic": _always(0.0, 1.0),
    "erfc": _always(0.0, 2.0),
    "tanh": _increasing(np.tanh),
    "atan": _increasing(np.arctan),
    "exp": _increasing(np.exp, 0.0),
    "exp2": _increasing(np.exp2, 0.0),
    "expm1": _increasing(np.expm1, -1.0),
    "log": _increasing(np.log),
    "log1p": _increasing(np.log1p),
    "sqrt": _increasing(np.sqrt, 0.0),
    "add": _increasing(np.add),
    "add_any": _increasing(np.add),
    "max": _increasing(np.maximum),
    "min": _increasing(np.minimum),
    "clamp": _increasing(lambda least, x, most: np.minimum(np.maximum(x, least), most)),
    "neg": lambda value, x: (-x[1], -x[0]),
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "integer_pow": _power,
    "square": lambda value, x: _raised(x, 2),
    "abs": _absolute,
    "select_n": _select,
    "reduce_sum": _sum,
    "transpose": _shaped(lambda value, array: array.transpose(value.params["permutation"])),
    "rev": _shaped(lambda value, array: np.flip(array, value.params["dimensions"])),
    "broadcast_in_dim": _shaped(_broadcast),
    "slice": _shaped(_slice),
    "concatenate": _joined(np.concatenate, "dimension"),
    "stack": _joined(np.stack, "axis"),
}


def _through(value: _Traced, primitives: tuple[str, ...]) -> _Traced:
    """Returns the value before some primitives, along their first inputs that are not constants."""
    while value.primitive in primitives:
        value = next((each for each in value.inputs if each.constant is None), value.inputs[0])
    return value


def _is_largest_of(value: _Traced, of: _Traced) -> bool:
    """Whether a value is the largest entry of another one, up to broadcasting."""
    largest = _through(value, ("broadcast_in_dim", "reshape", "max", "select_n"))
    return largest.primitive == "reduce_max" and largest.inputs[0] is of


def _is_log_sum_exp_of(value: _Traced, of: _Traced) -> bool:
    """Whether a value is log Σ exp of another one."""
    log = _through(value, ("broadcast_in_dim", "reshape", "squeeze"))
    if log.primitive != "log":
        return False
    total = _through(log.inputs[0], ("broadcast_in_dim", "reshape", "squeeze"))
    return total.primitive == "reduce_sum" and total.inputs[0].primitive == "exp" and total.inputs[0].inputs[0] is of


_BROADCASTS = ("broadcast_in_dim", "reshape", "expand_dims", "max", "add", "squeeze")
_PASSED = (
    "reshape", "squeeze", "expand_dims", "transpose", "broadcast_in_dim", "slice", "concatenate", "stack", "rev",
    "gather",
)  # fmt: skip
_AFFINE = ("add", "sub", "mul", "div", "neg", "max", "min", "clamp", "select_n")
_NAMES = {"logistic": "sigmoid", "max": "clip", "min": "clip", "clamp": "clip", "div": "a quotient"}


def _bounding(value: _Traced) -> _Traced:
    """Returns the last value that bounds the outputs, before operations that move, shift or scale entries."""
    while not _known_calls(value):
        inputs = [each for each in value.inputs if each.constant is None and each.bounded]
        passed = value.primitive in _PASSED or value.primitive in _AFFINE
        if not inputs or not passed or (value.primitive == "div" and _named(value) == "softmax"):
            return value
        value = inputs[0]
    return value


def _known_calls(value: _Traced) -> list[str]:
    return [name for name in value.calls if name in jax.nn.__dict__ and name not in _BLAND]


def _named(value: _Traced) -> str:
    """Returns the common name of an operation."""
    calls = _known_calls(value)
    if calls:
        return calls[0]
    if value.primitive == "div":
        total = _through(value.inputs[1], _BROADCASTS).primitive
        if value.inputs[0].primitive == "exp" and total == "reduce_sum":
            return "softmax"
    return _NAMES.get(value.primitive, value.primitive)
