"""Networks computed in another way: in a narrower precision, with activations recomputed, laid out over a mesh."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.extend.core as core
import jax.numpy as jnp
from jax.core import eval_jaxpr
from jax.sharding import PartitionSpec

from lamu.memory import bytes_of
from lamu.networks.embedded import OneHot, Tokens
from lamu.networks.interface import NetworkWrapper, outputs, specs_by_path
from lamu.networks.wrapper import Standardised
from lamu.record import record, static
from lamu.typing import Array, DTypeLike, Params, PyTree, RandomKey, State

__all__ = ["MixedPrecision", "Partitioned", "Rematerialised"]

_READS_INPUTS = (Standardised, Tokens, OneHot)  # differences of inputs and codes need all digits
_WIDE_ENOUGH = ("bfloat16", "float32")


@record
class MixedPrecision(NetworkWrapper):
    r"""The network \(x \mapsto f(\theta, x)\) with its passes, forwards and backwards, in bfloat16.

    Parameters and floating inputs are rounded where a pass begins, and outputs are float32 again (or what the
    parameters are) where it ends. All else stays as it is: parameters, belief, optimiser, likelihood, prior, sums over
    rows, gradients as they reach the parameters, their squares and Kronecker factors, and the means and variances of
    normalisation layers. bfloat16 has the range of float32, so that no loss is scaled, and 8 of its 24 binary digits.

    It is a part of the model: a posterior is saved and predicts with it. To predict in full precision, give the base
    with the same parameters: `lamu.load(path, network=base)`, or
    `replace(posterior, model=replace(posterior.model, network=base))`.

    `Model.standardised` and codes of categories work around it; put `Standardised`, `Tokens` and `OneHot` outside of
    it. Modules of Flax, Equinox and PyTorch compute in what they are given, unless their own `dtype` says otherwise.

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

    @property
    def linear(self) -> bool:
        """No: of rounded weights f is a staircase, whose closed forms are another function's."""
        return False

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the base's outputs, computed in the narrow dtype and in the parameters' own again, and its state."""
        # Codes among the inputs are read as they are: past 256 bfloat16 does not tell them apart.
        seen = x if self.base.codes else self._rounded(x)
        f, new = outputs(self.base, self._rounded(params), state, seen, key, train, mask)
        dtypes = [leaf.dtype for leaf in jax.tree.leaves(params) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        wide = jnp.result_type(*dtypes) if dtypes else f.dtype
        return f.astype(wide), jax.tree.map(lambda leaf, old: leaf.astype(jnp.result_type(old)), new, state)

    def _rounded(self, values: PyTree) -> PyTree:
        narrow: DTypeLike = jnp.dtype(self.compute_dtype)
        wider = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype.itemsize > narrow.itemsize
        return jax.tree.map(lambda leaf: leaf.astype(narrow) if wider(leaf) else leaf, values)


@record
class Rematerialised(NetworkWrapper):
    r"""The network \(x \mapsto f(\theta, x)\), whose activations are computed again in the backward pass, not kept.

    A pass is cut into segments, where the least is alive between two of them. A gradient keeps what is alive there,
    and computes a segment's activations again when it comes to it: of a network of L layers in \(\sqrt L\) segments
    it holds about \(2 \sqrt L\) layers' activations, for at most one more forward pass. Numbers are the same but for
    rounding. Loops over steps (recurrent networks) are one layer each.

    It is for accelerators. On a CPU the compiler joins what is computed again with what was, and nothing is saved or
    lost.

    What reads inputs and cotangents of all layers side by side, squares of single rows and Kronecker factors, holds
    them in any case; there a smaller `microbatch_size` helps.

    Attributes:
        base: f.
        segments: how many; about the root of the number of products where None.

    Raises:
        ValueError: for segments that are no positive integer.

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
        count = self.segments
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise ValueError(f"segments={count!r} cuts no pass; give a positive integer, or None for the root")

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the base's outputs and its new state."""

        def run(params: Params, state: State, x: Array, key: RandomKey | None, mask: Array | None) -> PyTree:
            return outputs(self.base, params, state, x, key, train, mask)

        return _in_segments(run, (params, state, x, key, mask), self.segments)


@record
class Partitioned(NetworkWrapper):
    r"""The same network, whose parameters lie over a mesh of devices as their `PartitionSpec`s say.

    `lamu.fit(..., mesh=mesh)` lays the belief, momenta and gradients out as the parameters. Parameters without a spec
    lie along their longest axis that the axis "model" divides. Without a mesh nothing changes.

    Attributes:
        base: the network.
        specs: a `PartitionSpec` by path pattern, or the parameters' tree with them; the first pattern that matches
            counts.

    Raises:
        TypeError: for what is no `PartitionSpec`. A pattern without a parameter, and a spec that the mesh cannot have,
            are errors of `lamu.fit`.

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
        found = specs_by_path(self.specs)
        for path, spec in found.items():
            if not isinstance(spec, PartitionSpec):
                raise TypeError(f"{path!r} has {spec!r}; give a PartitionSpec, for instance PartitionSpec('model')")
        # Plain tuples can be saved, and are compared where the network is a constant of what is compiled.
        object.__setattr__(self, "specs", tuple((path, tuple(spec)) for path, spec in found.items()))

    def partition_specs(self, x: Array, outputs: int) -> Mapping[str, PartitionSpec]:
        """Returns these specs, and for other parameters those of the base."""
        own = {path: PartitionSpec(*spec) for path, spec in self.specs}
        return {**own, **super().partition_specs(x, outputs)}


_PRODUCTS = ("dot_general", "conv_general_dilated", "scan", "while")


def _in_segments(function: Callable[..., PyTree], arguments: tuple[Any, ...], count: int | None) -> PyTree:
    """Returns a function's value, whose gradient computes all segments of it but the last one again."""
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    jaxpr = closed.jaxpr
    values = dict(zip(jaxpr.invars, jax.tree.leaves(arguments), strict=True))
    values.update(zip(jaxpr.constvars, closed.consts, strict=True))
    products = sum(equation.primitive.name in _PRODUCTS for equation in jaxpr.eqns)
    ends = _ends(jaxpr, math.ceil(math.sqrt(products)) if count is None else count)
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        equations = jaxpr.eqns[start:end]
        made = [atom for equation in equations for atom in equation.outvars if not isinstance(atom, core.DropVar)]
        later = {*_read(jaxpr.eqns[end:]), *(atom for atom in jaxpr.outvars if isinstance(atom, core.Var))}
        inside = set(made)
        needs = [atom for atom in _read(equations) if atom not in inside]
        gives = [atom for atom in made if atom in later]
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
    """Returns after which equations segments end: of about as many bytes each, where the least is alive."""
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
        near = [i for i in range(ends[-1] + 1, len(equations)) if low < done[i] < high]
        if near:
            ends.append(min(near, key=lambda i: (alive[i - 1], abs(done[i] - segment * total / count))))
    return [*ends[1:], len(equations)]
