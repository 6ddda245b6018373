"""Networks in a program: shared variables whose values are functions, and their outputs."""

# The weights are at `params["network"][name]`, and are their own statistics: a belief about them has no closed form,
# and is sampled.

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from lamu.graphs.expressions import Environment, Expression, Value, Variable, lifted
from lamu.graphs.statistics import (
    Bits,
    Categories,
    Chance,
    Numbers,
    PositiveNumbers,
    Probabilities,
    Series,
    Statistics,
    Vectors,
)
from lamu.networks.interface import outputs
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["Applied", "Exp", "NetworkSite", "applications", "arguments", "exp", "first_weights"]


@record
class NetworkSite:
    """A network of a program, which is called with expressions."""

    name: str = static()  # the name of its weights
    network: Any
    widths: tuple[int, ...] = static()  # numbers of outputs: one, or several for separate outputs

    def __call__(self, *inputs: Any) -> Any:
        """Returns the outputs for some inputs; a tuple of expressions if there are several widths."""
        if not inputs:
            raise TypeError(f"the network {self.name!r} is called without inputs; give what it is a function of")
        output = Applied(self, tuple(lifted(part) for part in inputs))
        if len(self.widths) == 1:
            return output
        ends = [sum(self.widths[: i + 1]) for i in range(len(self.widths))]
        return tuple(output[end - width : end] for end, width in zip(ends, self.widths, strict=True))


@record
class Applied(Value):
    r"""The output of a network, \(f(w, x)\), at values of its inputs."""

    # A network is not affine: for a belief about an input whose statistics are not those of a value, this is f at the
    # expected input. A latent of a row on which it depends needs a `Local` that samples it.

    of: NetworkSite
    inputs: tuple[Expression, ...]  # x

    @property
    def names(self) -> frozenset[str]:
        # The network's, and those of the inputs.
        return frozenset({self.of.name}).union(*(part.names for part in self.inputs))

    @property
    def shape(self) -> tuple[int, ...]:
        # The number of outputs.
        return (sum(self.of.widths),)

    def kinds(self) -> tuple[type[Statistics], ...]:
        # Returns none: it is the mean of a Normal, the outputs of a likelihood, or, by `exp`, a precision.
        return ()

    def first(self, environment: Environment) -> Array:
        weights = environment.statistics[self.of.name]
        return outputs(self.of.network, weights, {}, arguments(self.inputs, environment)[None], None, False, None)[0][0]


@record
class Exp(Expression):
    r"""\(e^f\) of a network's outputs: precisions with the network's outputs as logarithms."""

    of: Expression  # f

    def kinds(self) -> tuple[type[Statistics], ...]:
        # Returns those of precisions.
        return (PositiveNumbers,)

    def of_kind(self, kind: Any, environment: Environment) -> Any:
        # Returns (f, exp f).
        f = self.of.first(environment)
        return PositiveNumbers(f, jnp.exp(f))


def exp(f: Any) -> Exp:
    """Returns the exponential of a network's output, for a precision.

    Args:
        f: a network's outputs, or some of them.

    Raises:
        TypeError: for other expressions, whose exponential has no closed form.

    Examples:
        >>> import lamu
        >>> from lamu import graphs
        >>> m = graphs.Program()
        >>> up = m.network("up", lamu.networks.MLP((8,)), outputs=(2, 2))
        >>> with m.rows():
        ...     mean, log_precision = up(m.data("x"))
        ...     z = m.sample("z", graphs.Normal(mean, precision=graphs.exp(log_precision)))
        >>> z.shape
        (2,)
    """
    if next(applications(f), None) is None or f.kinds():
        given = ", ".join(sorted(f.names)) if isinstance(f, Expression) and f.names else repr(f)
        raise TypeError(
            f"exp takes what a network returns, and was given {given}; call a network of m.network, or write the "
            "program in NumPyro, for cvi() or nuts() (lamu.from_numpyro), as of a volatility that moves"
        )
    return Exp(f)


def applications(node: Any) -> Iterator[Applied]:
    """Yields every call of a network below a node, inner ones first."""
    for call in jax.tree.leaves(node, is_leaf=lambda part: isinstance(part, Applied)):
        if isinstance(call, Applied):
            yield from applications(call.inputs)
            yield call


def arguments(inputs: tuple[Expression, ...], environment: Environment) -> Array:
    """Returns a network's input: the value of one input unchanged, those of several as one vector."""
    parts = [_value(part, environment) for part in inputs]
    return parts[0] if len(parts) == 1 and parts[0].ndim else jnp.concatenate([jnp.ravel(part) for part in parts])


def first_weights(
    key: RandomKey, sites: Any, networks: tuple[NetworkSite, ...], environment: Environment
) -> dict[str, Params]:
    """Returns initial weights of every network by name, for the input size of its first call."""
    weights: dict[str, Params] = {}
    numbers = {network.name: number for number, network in enumerate(networks)}
    for call in applications(sites):
        name, site = call.of.name, call.of
        if name in weights:
            continue
        row_environment = Environment(
            {**environment.statistics, **weights}, environment.inputs, environment.temperature
        )
        x = jnp.zeros_like(arguments(call.inputs, row_environment))[None]
        if x.size < 1:
            raise ValueError(f"the network {name!r} is called with no numbers; give its input at least one entry")
        weights[name], state = site.network.init(jax.random.fold_in(key, numbers[name]), x, sum(site.widths))
        if jax.tree.leaves(state):
            raise ValueError(
                f"the network {name!r} has a state in addition to its weights, and a graph reads its rows one by one; "
                "use a normaliser without batch statistics, such as GroupNorm()"
            )
    for network in networks:
        if network.name not in weights:
            raise ValueError(f"nothing calls the network {network.name!r}; call it, or leave it out")
    return weights


def _value(of: Expression, environment: Environment) -> Array:
    """Returns the value of an expression, for a category the one-hot vector."""
    if isinstance(of, Variable):
        return _entries(environment.statistics[of.name])
    kind = next(iter(of.kinds()), Numbers)
    return (
        jnp.asarray(of.first(environment))
        if kind in (Numbers, Vectors, Series, Statistics)
        else _entries(of.of_kind(kind, environment))
    )


def _entries(statistics: Any) -> Array:
    entries = _ENTRIES.get(type(statistics))
    if entries is None:
        raise TypeError(
            f"a network takes {', '.join(kind.words for kind in _ENTRIES)}, and was given {type(statistics).words}"
        )
    return entries(statistics)


# The value x of T(x), for the kinds that are one array.
_ENTRIES: dict[Any, Any] = {
    Numbers: lambda T: T.first,
    Vectors: lambda T: T.first,
    Series: lambda T: T.first,
    Categories: lambda T: T.probabilities,
    Bits: lambda T: T.value,
    PositiveNumbers: lambda T: T.value,
    Probabilities: lambda T: jnp.exp(T.log),
    Chance: lambda T: jnp.exp(T.log),
}
