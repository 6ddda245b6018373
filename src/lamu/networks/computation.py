"""Network wrappers for mixed precision, rematerialisation and partitioning over a mesh."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.extend.core as core
import jax.numpy as jnp
from jax.core import eval_jaxpr
from jax.sharding import PartitionSpec

from lamu.base.arguments import require_whole_field
from lamu.memory import bytes_of
from lamu.networks.embedded import OneHot, Tokens
from lamu.networks.interface import NetworkWrapper, outputs, specs_by_path
from lamu.networks.wrapper import Standardised
from lamu.record import record, static
from lamu.typing import Array, DTypeLike, Params, PyTree, RandomKey, State

__all__ = ["MixedPrecision", "Partitioned", "Rematerialised"]

_READS_INPUTS = (Standardised, Tokens, OneHot)  # differences of inputs and codes need full precision
_WIDE_ENOUGH = ("bfloat16", "float32")


@record
class MixedPrecision(NetworkWrapper):
    r"""Mixed precision: computes the forward and backward passes of a network f in bfloat16.

    Parameters and floating inputs are rounded at the start of a pass, and outputs are cast to the dtype of the
    parameters at its end. All else keeps full precision: parameters, belief, optimiser, likelihood, prior, sums over
    rows, gradients of the parameters, their squares and Kronecker factors, and the means and variances of normalisation
    layers. bfloat16 has the range of float32, so that no loss scaling is needed, and 8 of its 24 binary digits.

    It is a part of the model: a posterior is saved and predicts with it. To predict in full precision, use the base
    with the same parameters: `lamu.load(path, network=base)`, or `replace(posterior, model=replace(posterior.model,
    network=base))`.

    Apply `Standardised`, `Tokens` and `OneHot` outside of it, as `Model.standardised` does. Modules of Flax, Equinox
    and PyTorch compute in the dtype of their arguments, unless they set their own `dtype`.

    Attributes:
        base: f.
        compute_dtype: "bfloat16", or "float32" for passes of parameters in float64.

    Raises:
        ValueError: for another dtype, such as float16, which loses small gradients; or for a base that reads its inputs
            in full precision.

    Source: Micikevicius et al. (2018), section 3.1; Kalamkar et al. (2019) for bfloat16.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("digits")
        >>> network = lamu.networks.MixedPrecision(lamu.networks.MLP((32,)), "bfloat16")
        >>> model = lamu.Model(network, lamu.likelihoods.Categorical(10)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.ivon(), epochs=5).posterior
        >>> lamu.scores.accuracy(posterior.predict(x), y) > 0.9
        True
    """

    compute_dtype: str | Any = static(default="bfloat16")
    # False: with rounded weights f is a step function, for which the closed forms do not hold.
    linear = False

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            name = jnp.dtype(self.compute_dtype).name
        except TypeError:
            name = None
        if name not in _WIDE_ENOUGH:
            raise ValueError(
                f"compute_dtype={self.compute_dtype!r} cannot hold a network's gradients without a scaled loss; give "
                "'bfloat16', or 'float32' for parameters in float64"
            )
        object.__setattr__(self, "compute_dtype", name)
        if isinstance(self.base, _READS_INPUTS):
            kind = type(self.base).__name__
            raise ValueError(
                f"{kind} reads its inputs in full precision; put it outside, {kind}(MixedPrecision(network), ...)"
            )

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the base's outputs, computed in the narrow dtype and cast to the parameters' dtype, and its state."""
        # Codes among the inputs are not rounded: bfloat16 cannot distinguish integers above 256.
        rounded = x if self.base.codes else self._rounded(x)
        f, new = outputs(self.base, self._rounded(params), state, rounded, key, train, mask)
        dtypes = [leaf.dtype for leaf in jax.tree.leaves(params) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        wide = jnp.result_type(*dtypes) if dtypes else f.dtype
        return f.astype(wide), jax.tree.map(lambda leaf, old: leaf.astype(jnp.result_type(old)), new, state)

    def _rounded(self, values: PyTree) -> PyTree:
        narrow: DTypeLike = jnp.dtype(self.compute_dtype)
        wider = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype.itemsize > narrow.itemsize
        return jax.tree.map(lambda leaf: leaf.astype(narrow) if wider(leaf) else leaf, values)


@record
class Rematerialised(NetworkWrapper):
    r"""Rematerialisation: recomputes the activations of a network f in the backward pass instead of storing them.

    A pass is split into segments at the points of the fewest live values. A gradient stores the values at these points
    and recomputes a segment's activations when it reaches it: for a network of L layers in \(\sqrt L\) segments it
    stores the activations of about \(2 \sqrt L\) layers, at the cost of at most one more forward pass. Results are the
    same up to rounding. Loops over steps (recurrent networks) are one layer each.

    It is for accelerators. On a CPU the compiler merges the recomputation with the first computation, without any
    effect.

    Methods that need the inputs and cotangents of all layers at once, such as squared gradients of rows and Kronecker
    factors, store them in any case; there a smaller `microbatch_size` helps.

    Attributes:
        base: f.
        segments: the number of segments; about the root of the number of products where None.

    Raises:
        ValueError: for a number of segments that is not a positive integer.

    Source: Chen et al. (2016), section 4.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import MLP, Rematerialised
        >>> network, x = Rematerialised(MLP((8,) * 9)), jnp.ones((2, 3))
        >>> params, state = network.init(jax.random.key(0), x, outputs=1)
        >>> value = lambda network: network.apply(params, state, x, None, True)[0]
        >>> bool(jnp.allclose(value(network), value(network.base)))
        True
    """

    segments: int | Any = static(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.segments is not None:
            require_whole_field(self, "segments", problem="is not possible, and None takes the square root")

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the base's outputs and its new state."""

        def run(params: Params, state: State, x: Array, key: RandomKey | None, mask: Array | None) -> PyTree:
            return outputs(self.base, params, state, x, key, train, mask)

        return _in_segments(run, (params, state, x, key, mask), self.segments)


@record
class Partitioned(NetworkWrapper):
    r"""Partitions the parameters of a network over a mesh of devices by `PartitionSpec`s.

    `lamu.fit(..., mesh=mesh)` partitions the belief, momenta and gradients like the parameters. Parameters without a
    spec are partitioned along their longest axis that the axis "model" divides. Without a mesh it has no effect.

    Attributes:
        base: the network.
        specs: a `PartitionSpec` by path pattern, or the parameters' tree with them; the first pattern that matches
            applies.

    Raises:
        TypeError: for a value that is not a `PartitionSpec`. A pattern without a parameter, and a spec that does not
            fit the mesh, are errors of `lamu.fit`.

    Examples:
        >>> from jax.sharding import PartitionSpec
        >>> from lamu.networks import MLP, Partitioned
        >>> columns = PartitionSpec(None, "model")
        >>> network = Partitioned(MLP((256, 256)), {"layers/*/kernel": columns})
        >>> network.specs
        (('layers/*/kernel', (None, 'model')),)
    """

    specs: Any = static(default=())

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.specs, tuple):  # as below
            return
        specs = specs_by_path(self.specs)
        for path, spec in specs.items():
            if not isinstance(spec, PartitionSpec):
                raise TypeError(f"{path!r} has {spec!r}; give a PartitionSpec, for instance PartitionSpec('model')")
        # Plain tuples can be saved, and compared where the network is a static argument of a compiled function.
        object.__setattr__(self, "specs", tuple((path, tuple(spec)) for path, spec in specs.items()))

    def partition_specs(self, x: Array, outputs: int) -> Mapping[str, PartitionSpec]:
        """Returns these specs, and those of the base for other parameters."""
        specs = {path: PartitionSpec(*spec) for path, spec in self.specs}
        return {**specs, **super().partition_specs(x, outputs)}


_PRODUCTS = ("dot_general", "conv_general_dilated", "scan", "while")


def _in_segments(function: Callable[..., PyTree], arguments: tuple[Any, ...], count: int | None) -> PyTree:
    """Returns a function's value, whose gradient recomputes all segments except the last."""
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    jaxpr = closed.jaxpr
    values = dict(zip(jaxpr.invars, jax.tree.leaves(arguments), strict=True))
    values.update(zip(jaxpr.constvars, closed.consts, strict=True))
    products = sum(equation.primitive.name in _PRODUCTS for equation in jaxpr.eqns)
    ends = _ends(jaxpr, math.ceil(math.sqrt(products)) if count is None else count)
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        equations = jaxpr.eqns[start:end]
        produced = [atom for equation in equations for atom in equation.outvars if not isinstance(atom, core.DropVar)]
        later = {*_read(jaxpr.eqns[end:]), *(atom for atom in jaxpr.outvars if isinstance(atom, core.Var))}
        inside = set(produced)
        needs = [atom for atom in _read(equations) if atom not in inside]
        gives = [atom for atom in produced if atom in later]
        info = core.DebugInfo("segment", "segment", None, None)
        effects = frozenset().union(*(equation.effects for equation in equations))
        part = core.Jaxpr((), needs, gives, equations, effects, info)
        run = lambda *given, part=part: eval_jaxpr(part, (), *given)
        run = run if end == len(jaxpr.eqns) else jax.checkpoint(run)
        values.update(zip(gives, run(*(values[atom] for atom in needs)), strict=True))
    results = [values[atom] if isinstance(atom, core.Var) else jnp.asarray(atom.val) for atom in jaxpr.outvars]
    return jax.tree.unflatten(jax.tree.structure(shape), results)


def _read(equations: Sequence[Any]) -> dict[Any, None]:
    """Returns the variables that equations read, in order."""
    atoms = (atom for equation in equations for atom in equation.invars if isinstance(atom, core.Var))
    return dict.fromkeys(atoms)


def _ends(jaxpr: Any, count: int) -> list[int]:
    """Returns the last equations of the segments, which have about equal sizes and few live bytes at their ends."""
    equations = jaxpr.eqns
    sizes = [sum(bytes_of(atom.aval) for atom in equation.outvars) for equation in equations]
    last: dict[Any, int] = {atom: len(equations) for atom in jaxpr.outvars if isinstance(atom, core.Var)}
    for number, equation in reversed(list(enumerate(equations))):
        for atom in equation.invars:
            if isinstance(atom, core.Var):
                last.setdefault(atom, number)
    alive, now = [], 0
    freed = [0] * (len(equations) + 1)
    done, total = [0], sum(sizes)
    for number, equation in enumerate(equations):
        now -= freed[number]
        for atom in equation.outvars:
            if last.get(atom, -1) > number:
                now += bytes_of(atom.aval)
                freed[last[atom]] += bytes_of(atom.aval)
        alive.append(now)
        done.append(done[-1] + sizes[number])
    ends = [0]
    for segment in range(1, count):
        low, high = ((segment + side) * total / count for side in (-0.5, 0.5))
        candidates = [i for i in range(ends[-1] + 1, len(equations)) if low < done[i] < high]
        if candidates:
            ends.append(min(candidates, key=lambda i: (alive[i - 1], abs(done[i] - segment * total / count))))
    return [*ends[1:], len(equations)]
