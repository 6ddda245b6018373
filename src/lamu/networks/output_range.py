"""The range that a network's last operations leave to its outputs, whatever the weights are."""

# A likelihood applies the inverse link itself: `Bernoulli` takes log odds, `Categorical` logits, `Poisson` the
# logarithm of the mean. A network that ends in a sigmoid, a softmax or an exponential has applied it already. That is
# read off the traced program, by interval arithmetic in which inputs, weights and matrix products may have any value;
# nothing is computed.

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import Literal

__all__ = ["OutputRange", "output_range", "require_scales"]

_SLACK = 1.0  # of log odds and log means: beyond it a probability can be below 0.27, and a mean below 0.37
_WIDTH = 2.0  # of logits: the odds of two classes stay within a factor of e² where they differ by no more
_SAME = ("stop_gradient", "convert_element_type", "copy", "copy_p", "reduce_precision", "sharding_constraint")
_BLAND = ("clip", "where", "_where", "concatenate", "squeeze", "reshape")  # calls that say nothing of a range
# Of functions whose parts depend on each other, which intervals do not see.
_CALLS = {
    "silu": (-0.279, math.inf),
    "swish": (-0.279, math.inf),
    "mish": (-0.309, math.inf),
    "hard_silu": (-0.375, math.inf),
    "hard_tanh": (-1.0, 1.0),
    "soft_sign": (-1.0, 1.0),
}
_SHARED = (
    "dot_general",
    "add",
    "exp",
    "neg",
    "sub",
    "logistic",
    "reduce_max",
    "broadcast_in_dim",
    "abs",
)  # equal where their inputs are

# Functions of a number that gates are made of, and where they are looked at.
_POINTWISE: dict[str, Any] = {
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
_FAR = 100.0


def _special(name: str) -> Any:
    from scipy import special  # here: every model looks at its network's range, few have a gate

    return getattr(special, name)


_Interval = tuple[Any, Any] | None  # None where every number is possible


@dataclass(frozen=True, eq=False)
class _Value:
    """The result of a primitive; values of calls are those of the primitives inside."""

    primitive: str
    inputs: tuple[_Value, ...] = ()
    params: Any = field(default_factory=dict)
    shape: tuple[int, ...] = ()
    constant: Any = None
    calls: tuple[str, ...] = ()
    scope: str = ""


@dataclass(frozen=True)
class OutputRange:
    """The smallest and the largest value of each output, and the operation that bounds them."""

    lowest: Any  # `[outputs]`
    highest: Any  # `[outputs]`
    operation: str  # its name, for instance "sigmoid"
    scope: str  # where it stands, by the names of `jax.named_scope`; empty where there are none


def output_range(function: Callable[..., Any], *args: Any) -> tuple[OutputRange | None, Any]:
    """Returns the range of a function's outputs, `[rows, outputs]`, None where it is not bounded; and their shape."""
    program, shape = jax.make_jaxpr(function, return_shape=True)(*args)
    values: list[_Value] = []
    inputs = [_Value("input") for _ in program.jaxpr.invars]
    outputs = _flat(program.jaxpr, program.consts, inputs, values, (), "")
    if len(outputs) != 1 or len(shape.shape) != 2:
        return None, shape
    ranges: dict[_Value, _Interval] = {}
    for value in values:
        ranges[value] = _range(value, ranges)
    found = ranges.get(outputs[0])
    if found is None:
        return None, shape
    lowest, highest = (np.broadcast_to(part, shape.shape) for part in found)
    last = _bounding(outputs[0], ranges)
    return OutputRange(lowest.min(axis=0), highest.max(axis=0), _named(last), last.scope), shape


def require_scales(found: OutputRange | None, scales: tuple[str, ...], network: str, likelihood: str) -> None:
    """Raises a ValueError for a network whose outputs cannot be on the scales that a likelihood takes them on."""
    if found is None or len(scales) != len(found.lowest):
        return
    for scale in dict.fromkeys(scales):
        columns = np.asarray([each == scale for each in scales])
        lowest, highest = float(found.lowest[columns].min()), float(found.highest[columns].max())
        if not _impossible(scale, lowest, highest):
            continue
        raise ValueError(
            f"the network {network} ends in {_last(found)}, so that its outputs stay {_between(lowest, highest)}, and "
            f"{likelihood} takes them as {scale}: it applies {_INVERSES.get(scale, 'the inverse link')} itself; "
            f"{_remedy(found, scale)}"
        )


_INVERSES = {"logits": "the softmax", "log odds": "the sigmoid", "log means": "the exponential"}
_UNDONE = {"logits": "softmax", "log odds": "sigmoid", "log means": "exp"}


def _impossible(scale: str, lowest: float, highest: float) -> bool:
    if lowest == highest:  # a constant, which is no activation
        return False
    if scale in ("logits", "ordinal scores"):
        return highest - lowest <= _WIDTH
    if scale in ("log odds", "scores"):
        return lowest >= -_SLACK or highest <= _SLACK
    return scale in ("log means", "log deviations") and lowest >= -_SLACK


def _between(lowest: float, highest: float) -> str:
    lowest, highest = lowest + 0.0, highest + 0.0  # no −0
    if math.isinf(highest):
        return f"at or above {lowest:.3g}"
    return f"at or below {highest:.3g}" if math.isinf(lowest) else f"between {lowest:.3g} and {highest:.3g}"


def _place(scope: str) -> tuple[str, str]:
    """Returns the path and the class of the innermost scope: that of an operation of PyTorch is "path:class"."""
    inner = next((part for part in reversed(scope.split("/")) if part), "")
    path, colon, kind = inner.rpartition(":")
    return path, f"{kind}.forward" if colon and not path else kind


def _last(found: OutputRange) -> str:
    path, kind = _place(found.scope)
    if path:
        return f"its submodule {path!r}, {kind}"
    return f"{found.operation} (in {kind})" if kind else found.operation


def _remedy(found: OutputRange, scale: str) -> str:
    if _UNDONE.get(scale) == found.operation:
        path, _ = _place(found.scope)
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
    jaxpr: Any, constants: Any, inputs: Any, values: list[_Value], calls: tuple[str, ...], scope: str
) -> list[_Value]:
    """Returns the outputs of a program as values; appends all that lead to them in order."""
    known: dict[Any, _Value] = dict(zip(jaxpr.invars, inputs, strict=True))
    known |= {var: _Value("constant", constant=each) for var, each in zip(jaxpr.constvars, constants, strict=True)}

    shared: dict[Any, _Value] = {}

    def of(atom: Any) -> _Value:
        return _Value("constant", constant=atom.val) if isinstance(atom, Literal) else known[atom]

    for equation in jaxpr.eqns:
        args, params = tuple(map(of, equation.invars)), equation.params
        inside = "/".join(part for part in (scope, str(equation.source_info.name_stack)) if part)
        name = equation.primitive.name
        inner = next((params[key] for key in ("call_jaxpr", "jaxpr", "fun_jaxpr") if key in params), None)
        if inner is not None and name not in ("scan", "while", "cond", "pallas_call", "xla_pmap", "shard_map"):
            open_jaxpr, held = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
            if len(open_jaxpr.invars) == len(args):
                called = str(params.get("name", ""))
                results = _flat(open_jaxpr, held, args, values, (*calls, called), inside)
                if called in _CALLS:
                    shape = equation.outvars[0].aval.shape
                    results = [_Value(called, args, {}, shape, None, (*calls, called), inside)]
                    values.extend(results)
                known |= dict(zip(equation.outvars, results, strict=True))
                continue
        if name in _SAME and len(args) == 1:
            known[equation.outvars[0]] = args[0]
            continue
        same = (name, tuple(map(id, args)), str(params)) if name in _SHARED else None
        if same in shared:
            known[equation.outvars[0]] = shared[same]
            continue
        for var in equation.outvars:
            value = _Value(name, args, params, tuple(getattr(var.aval, "shape", ())), None, calls, inside)
            known[var] = value
            values.append(value)
            if same is not None:
                shared[same] = value
    return [of(atom) for atom in jaxpr.outvars]


def _range(value: _Value, ranges: dict[_Value, _Interval]) -> _Interval:
    """Returns the interval of a primitive's result, from those of its inputs."""
    rule = _RULES.get(value.primitive)
    if rule is None:
        return None
    try:
        with np.errstate(all="ignore"):
            found = rule(value, [_of(each, ranges) for each in value.inputs], ranges)
            if found is None or np.isnan(found[0]).any() or np.isnan(found[1]).any():
                return None
    except (TypeError, ValueError, IndexError):  # a key, say, or a shape that intervals do not follow
        return None
    return None if np.isneginf(found[0]).all() and np.isposinf(found[1]).all() else found


def _of(value: _Value, ranges: dict[_Value, _Interval]) -> _Interval:
    if value.constant is None:
        return ranges.get(value)
    held = value.constant
    if isinstance(held, Tracer) or not np.issubdtype(getattr(held, "dtype", type(held)), np.number):
        return None
    array = np.asarray(held, np.float64)
    return (array.min(), array.max()) if array.size > 1024 else (array, array)


def _all(value: _Interval) -> tuple[Any, Any]:
    return (np.float64(-math.inf), np.float64(math.inf)) if value is None else value


def _monotone(function: Callable[[Any], Any], lowest: float = -math.inf, highest: float = math.inf) -> Any:
    def rule(value: _Value, args: list[_Interval], ranges: Any) -> _Interval:
        low, high = _all(args[0])
        low, high = function(low), function(high)
        return np.maximum(np.where(np.isnan(low), lowest, low), lowest), np.minimum(high, highest)

    return rule


def _add(value: _Value, args: list[_Interval], ranges: Any) -> _Interval:
    (a, b), (c, d) = map(_all, args)
    return a + c, b + d


def _sub(value: _Value, args: list[_Interval], ranges: Any) -> _Interval:
    first, second = value.inputs
    if second.primitive in ("reduce_max", "broadcast_in_dim", "max", "reshape") and _is_largest_of(second, first):
        return np.float64(-math.inf), np.float64(0.0)
    if _is_log_sum_exp_of(second, first):  # log_softmax
        return np.float64(-math.inf), np.float64(0.0)
    (a, b), (c, d) = map(_all, args)
    return a - d, b - c


def _mul(value: _Value, args: list[_Interval], ranges: Any) -> _Interval:
    first, second = value.inputs
    if first is second:
        return np.float64(0.0), np.float64(math.inf)
    if second.primitive == "logistic" and second.inputs[0] is first:
        return np.float64(_CALLS["silu"][0]), np.float64(math.inf)
    if (gated := _gated(value)) is not None:
        return gated
    (a, b), (c, d) = map(_all, args)
    products = [np.where((x == 0) | (y == 0), 0.0, x * y) for x in (a, b) for y in (c, d)]
    return np.minimum.reduce(products), np.maximum.reduce(products)


def _gated(value: _Value) -> _Interval:
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


def _along(value: _Value, number: _Value, seen: dict[_Value, Any] | None = None) -> Any:
    """Returns the values along a grid of one number that the rest is computed from, None where it needs another."""
    if value is number:
        return _GRID
    if value.constant is not None:
        return np.float64(value.constant) if np.size(value.constant) == 1 else None
    # Each value once: the ways through sums of sums, as in a U-Net, are too many. And none through a layer.
    seen = {} if seen is None else seen
    if value not in seen:
        power = value.primitive == "integer_pow"
        function = (lambda x: x ** value.params["y"]) if power else _POINTWISE.get(value.primitive)
        parts = [] if function is None else [_along(each, number, seen) for each in value.inputs]
        lost = function is None or any(part is None for part in parts)
        seen[value] = None if lost or function is None else function(*parts)
    return seen[value]


def _div(value: _Value, args: list[_Interval], ranges: Any) -> _Interval:
    (a, b), (c, d) = map(_all, args)
    total = _through(value.inputs[1], _BROADCASTS)
    if total.primitive == "reduce_sum" and total.inputs[0] is value.inputs[0] and np.all(a >= 0):
        return np.float64(0.0), np.float64(1.0)
    denominator = value.inputs[1]
    if denominator.primitive == "add" and any(
        each.primitive == "abs" and each.inputs[0] is value.inputs[0] for each in denominator.inputs
    ):
        return np.float64(-1.0), np.float64(1.0)  # softsign
    if not np.all(c >= 0):
        return (np.float64(-math.inf), np.float64(math.inf)) if not np.all(d < 0) else (-b / d, -a / c)
    if np.all(a >= 0):
        return np.where(np.isinf(d), 0.0, a / np.where(d == 0, 1.0, d)), np.where(c == 0, math.inf, b / c)
    return np.where(a < 0, a / c, 0.0), np.where(b > 0, b / c, 0.0)


def _power(value: _Value, args: list[_Interval], ranges: Any) -> _Interval:
    a, b = _all(args[0])
    exponent = value.params["y"]
    if exponent == -1 and np.all(a >= 0):
        return np.where(np.isinf(b), 0.0, 1 / b), np.where(a == 0, math.inf, 1 / a)
    if exponent > 0 and exponent % 2 == 0:
        crosses = (a <= 0) & (b >= 0)
        least = np.where(crosses, 0.0, np.minimum(a**exponent, b**exponent))
        return least, np.maximum(a**exponent, b**exponent)
    return (a**exponent, b**exponent) if exponent > 0 else None


def _absolute(value: _Value, args: list[_Interval], ranges: Any) -> _Interval:
    a, b = _all(args[0])
    return np.where((a <= 0) & (b >= 0), 0.0, np.minimum(abs(a), abs(b))), np.maximum(abs(a), abs(b))


def _larger(value: _Value, args: list[_Interval], ranges: Any) -> _Interval:
    (a, b), (c, d) = map(_all, args)
    return np.maximum(a, c), np.maximum(b, d)


def _smaller(value: _Value, args: list[_Interval], ranges: Any) -> _Interval:
    (a, b), (c, d) = map(_all, args)
    return np.minimum(a, c), np.minimum(b, d)


def _clamp(value: _Value, args: list[_Interval], ranges: Any) -> _Interval:
    (a, _), (c, d), (_, f) = map(_all, args)
    return np.minimum(np.maximum(c, a), f), np.maximum(np.minimum(d, f), a)


def _select(value: _Value, args: list[_Interval], ranges: Any) -> _Interval:
    condition, _, *yes = value.inputs
    if condition.primitive == "ne" and condition.inputs[0] is condition.inputs[1]:  # of NaN alone
        return args[1]
    cases = [_all(each) for each in args[1:]]
    if len(yes) == 1 and condition.primitive in ("gt", "ge") and (bound := _of(condition.inputs[1], ranges)):
        compared, times = condition.inputs[0], np.float64(1.0)
        if compared is not yes[0] and compared.primitive == "mul" and compared.inputs[0] is yes[0]:
            times = _all(_of(compared.inputs[1], ranges))[0]
            compared = yes[0]
        if compared is yes[0] and np.all(times > 0) and np.all(np.isfinite(times)):
            cases[1] = (np.maximum(cases[1][0], bound[0] / times), cases[1][1])
    return np.minimum.reduce([low for low, _ in cases]), np.maximum.reduce([high for _, high in cases])


def _sum(value: _Value, args: list[_Interval], ranges: Any) -> _Interval:
    a, b = _all(args[0])
    if np.size(a) == 1 and np.size(b) == 1:
        count = math.prod(value.inputs[0].shape) / max(math.prod(value.shape), 1)
        return np.where(a == 0, 0.0, a * count).reshape(()), np.where(b == 0, 0.0, b * count).reshape(())
    return np.float64(np.min(a)) * (0.0 if np.min(a) == 0 else math.inf), np.float64(math.inf)


def _hull(value: _Value, args: list[_Interval], ranges: Any) -> _Interval:
    a, b = _all(args[0])
    return np.min(a), np.max(b)


def _shaped(of: Callable[[_Value, Any], Any]) -> Any:
    """The rule of what moves entries: of bounds that are one number nothing changes."""

    def rule(value: _Value, args: list[_Interval], ranges: Any) -> _Interval:
        if args[0] is None:
            return None
        a, b = args[0]
        if np.size(a) == 1 and np.size(b) == 1:
            return np.reshape(a, ()), np.reshape(b, ())
        shape = value.inputs[0].shape
        return of(value, np.broadcast_to(a, shape)), of(value, np.broadcast_to(b, shape))

    return rule


def _broadcast(value: _Value, array: Any) -> Any:
    shape = [1] * len(value.params["shape"])
    for axis, place in enumerate(value.params["broadcast_dimensions"]):
        shape[place] = array.shape[axis]
    return np.broadcast_to(array.reshape(shape), value.params["shape"])


def _slice(value: _Value, array: Any) -> Any:
    p = value.params
    strides = p["strides"] or (1,) * array.ndim
    return array[tuple(map(slice, p["start_indices"], p["limit_indices"], strides))]


def _joined(join: Callable[..., Any], axis: str) -> Any:
    """The rule of what puts arrays side by side."""

    def rule(value: _Value, args: list[_Interval], ranges: Any) -> _Interval:
        ends = [
            [np.broadcast_to(bound, each.shape) for bound in _all(interval)]
            for each, interval in zip(value.inputs, args, strict=True)
        ]
        low, high = (join(each, value.params[axis]) for each in zip(*ends, strict=True))
        return low, high

    return rule


_RULES: dict[str, Any] = {
    "logistic": lambda value, args, ranges: (np.float64(0.0), np.float64(1.0)),
    "erf": lambda value, args, ranges: (np.float64(-1.0), np.float64(1.0)),
    "erfc": lambda value, args, ranges: (np.float64(0.0), np.float64(2.0)),
    "cos": lambda value, args, ranges: (np.float64(-1.0), np.float64(1.0)),
    "sin": lambda value, args, ranges: (np.float64(-1.0), np.float64(1.0)),
    "sign": lambda value, args, ranges: (np.float64(-1.0), np.float64(1.0)),
    "tanh": _monotone(np.tanh),
    "atan": _monotone(np.arctan),
    "exp": _monotone(np.exp, 0.0),
    "exp2": _monotone(np.exp2, 0.0),
    "expm1": _monotone(np.expm1, -1.0),
    "log": _monotone(np.log),
    "log1p": _monotone(np.log1p),
    "sqrt": _monotone(np.sqrt, 0.0),
    "neg": lambda value, args, ranges: (-_all(args[0])[1], -_all(args[0])[0]),
    "add": _add,
    "add_any": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "integer_pow": _power,
    "square": lambda value, args, ranges: _power(_Value("", params={"y": 2}), args, ranges),
    "abs": _absolute,
    "max": _larger,
    "min": _smaller,
    "clamp": _clamp,
    "select_n": _select,
    "reduce_sum": _sum,
    "reduce_max": _hull,
    "reduce_min": _hull,
    "reduce_window_max": _hull,
    "reduce_window_min": _hull,
    "gather": _hull,
    "dynamic_slice": _hull,
    "sort": _hull,
    "reshape": _shaped(lambda value, array: array.reshape(value.shape)),
    "squeeze": _shaped(lambda value, array: array.reshape(value.shape)),
    "expand_dims": _shaped(lambda value, array: array.reshape(value.shape)),
    "transpose": _shaped(lambda value, array: array.transpose(value.params["permutation"])),
    "rev": _shaped(lambda value, array: np.flip(array, value.params["dimensions"])),
    "broadcast_in_dim": _shaped(_broadcast),
    "slice": _shaped(_slice),
    "concatenate": _joined(np.concatenate, "dimension"),
    "stack": _joined(np.stack, "axis"),
    **{name: (lambda value, args, ranges, ends=ends: tuple(map(np.float64, ends))) for name, ends in _CALLS.items()},
}


def _through(value: _Value, primitives: tuple[str, ...]) -> _Value:
    """Returns the value behind some primitives, along their first inputs that are no constants."""
    while value.primitive in primitives:
        value = next((each for each in value.inputs if each.constant is None), value.inputs[0])
    return value


def _is_largest_of(value: _Value, of: _Value) -> bool:
    """Whether a value is the largest entry of another one, however it is broadcast."""
    largest = _through(value, ("broadcast_in_dim", "reshape", "max", "select_n"))
    return largest.primitive == "reduce_max" and largest.inputs[0] is of


def _is_log_sum_exp_of(value: _Value, of: _Value) -> bool:
    """Whether a value is log Σ exp of another one."""
    log = _through(value, ("broadcast_in_dim", "reshape", "squeeze"))
    if log.primitive != "log":
        return False
    total = _through(log.inputs[0], ("broadcast_in_dim", "reshape", "squeeze"))
    return total.primitive == "reduce_sum" and total.inputs[0].primitive == "exp" and total.inputs[0].inputs[0] is of


_BROADCASTS = ("broadcast_in_dim", "reshape", "expand_dims", "max", "add", "squeeze")
_PASSED = (
    "reshape",
    "squeeze",
    "expand_dims",
    "transpose",
    "broadcast_in_dim",
    "slice",
    "concatenate",
    "stack",
    "rev",
    "gather",
)
_NAMES = {"logistic": "sigmoid", "max": "clip", "min": "clip", "clamp": "clip", "div": "a quotient"}


def _bounding(value: _Value, ranges: dict[_Value, _Interval]) -> _Value:
    """Returns the last value that bounds the outputs, behind what only moves entries, or shifts and scales them."""
    while not _known_calls(value):
        inputs = [each for each in value.inputs if each.constant is None and ranges.get(each) is not None]
        moves = value.primitive in _PASSED
        affine = value.primitive in ("add", "sub", "mul", "div", "neg", "max", "min", "clamp", "select_n")
        if value.primitive == "div" and _named(value) == "softmax":
            return value
        if not inputs or not (moves or affine):
            return value
        value = inputs[0]
    return value


def _known_calls(value: _Value) -> list[str]:
    return [name for name in value.calls if name in jax.nn.__dict__ and name not in _BLAND]


def _named(value: _Value) -> str:
    """Returns what people call an operation."""
    calls = _known_calls(value)
    if calls:
        return calls[0]
    if value.primitive == "div":
        total = _through(value.inputs[1], _BROADCASTS).primitive
        if value.inputs[0].primitive == "exp" and total == "reduce_sum":
            return "softmax"
    return _NAMES.get(value.primitive, value.primitive)
