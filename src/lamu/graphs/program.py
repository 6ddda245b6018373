"""Programs: run once, they become a list of sites, each a variable with its factor."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp

from lamu.base.arguments import require_whole_field, sized, whole
from lamu.families import ExponentialFamily, MultivariateNormal
from lamu.graphs.expressions import Environment, Expression, Input, ScaleProduct, Times, Variable, without_value
from lamu.graphs.factor import Factor, Known
from lamu.graphs.network import NetworkSite, applications
from lamu.graphs.normal_factors import MultivariateNormalFactor
from lamu.graphs.positive_factors import HalfCauchy
from lamu.graphs.potential import Potential
from lamu.graphs.statistics import Numbers, Statistics, Vectors
from lamu.likelihoods.interface import LikelihoodOf
from lamu.networks.interface import Network, adapted
from lamu.record import record, static
from lamu.typing import Array, DTypeLike, Inputs, Params, RandomKey, State

__all__ = ["GraphSite", "LearnedPrior", "PriorWeights", "Program", "written"]


P = TypeVar("P", bound="LearnedPrior")


@record
@sized
class LearnedPrior(Factor):
    """A learned density of a vector z of D numbers, which is not affine: its latent is eliminated by sampling.

    Its weights are at `params["network"]["z.prior"]` for a variable z, with the prior of the graph's networks. A custom
    one is a record with `first`, `log_prob` and `draw`.

    Attributes:
        latents: D.
        weights: the weights as an expression of the program.
        name: name of the variable; the program sets it.
    """

    latents: int = static()
    weights: Any = field(default=None, kw_only=True)
    name: str = static(default="", kw_only=True)

    kind = Numbers
    affine: ClassVar[bool] = False
    conjugate: ClassVar[bool] = False
    misses: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_whole_field(self, "latents", problem="is not a number of latents")

    @abstractmethod
    def first(self, key: RandomKey, dtype: DTypeLike) -> Params:
        """Returns initial weights.

        Args:
            key: a random key.
            dtype: dtype of the weights.
        """

    @abstractmethod
    def log_prob(self, weights: Params, z: Array, environment: Environment) -> Array:
        """Returns log p(z) in nats, a scalar.

        Args:
            weights: the weights.
            z: `[D]`.
            environment: the statistics of shared variables.
        """

    @abstractmethod
    def draw(self, key: RandomKey, weights: Params, environment: Environment) -> Array:
        """Returns a sample of z, `[D]`.

        Args:
            key: a random key.
            weights: the weights.
            environment: the statistics of shared variables.
        """

    def named(self: P, name: str, weights: NetworkSite) -> P:
        """Returns the prior of a variable, with its weights.

        Args:
            name: the variable.
            weights: their site.
        """
        return replace(self, name=name, weights=weights(jnp.zeros(self.latents)))

    def require(self, local: Any) -> None:
        """Raises a TypeError for a local with which the prior is not a density; none by default.

        Args:
            local: a `lamu.graphs.Local`, or None.
        """
        del local

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.latents,)

    def log_density(self, x: Inputs, environment: Environment, observed: Any = None) -> Array:
        """Returns log p(z) at a value of z."""
        return self.log_prob(environment.statistics[self.weights.of.name], x.first, environment)

    def sample(self, key: RandomKey, environment: Environment) -> Array:
        """Returns a sample of z.

        Args:
            key: a random key.
            environment: the statistics of shared variables.
        """
        return self.draw(key, environment.statistics[self.weights.of.name], environment)


@record
class PriorWeights(Network):
    """The weights of a prior as a network without inputs."""

    prior: Any

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        # Returns the initial weights.
        return self.prior.first(key, x.dtype), {}

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        # Raises a TypeError: there is no output.
        raise TypeError("the weights of a prior are not a network to be called; sample from the prior")


# In `params["network"]` and next to it: parameters of encoders, and dispersions.
_RESERVED = ("local", "likelihood")
_OF_ROWS = ("weight", "mask")  # in the data, as the weights and the mask of rows
# The factor of a row's own variable, by the family for shared ones.
_FACTORS = {
    "Beta": "Beta",
    "Categorical": "Categorical",
    "Dirichlet": "Dirichlet",
    "Gamma": "Gamma",
    "Gaussian": "Normal",
    "GaussianChain": "GaussianChain",
    "InverseGamma": "InverseGamma",
    "MarkovChain": "Markov",
    "MultivariateNormal": "MultivariateNormal",
}


@record
class GraphSite:
    """A variable of a graph, with its factor."""

    name: str = static()
    factor: Factor  # \(p(x \mid \text{arguments})\)
    plate: tuple[int, ...] = static()  # the leading axes of independent members
    in_rows: bool = static()  # whether it is a variable of each row
    joint: bool = static(default=False)  # whether its numbers enter a product, so that a belief is joint
    # Whether a local learns from observed values of this category, so that it stays latent with these as
    # evidence.
    supervised: bool = static(default=False)

    @property
    def kind(self) -> type[Statistics]:
        """The statistics of the variable."""
        return Vectors if self.joint else self.factor.kind

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a value; None if the data determine it."""
        own = self.factor.shape
        if own is None:
            return None
        if isinstance(self.factor, Known):
            return own
        split = len(own) - self.factor.kind.events
        batch, event = own[:split], own[split:]
        # An argument with the axes of the plate already has the members' axes.
        return own if batch[: len(self.plate)] == self.plate else (*self.plate, *batch, *event)


class Program:
    """The argument of a program: samples variables, declares inputs, and marks the variables of rows.

    Examples:
        >>> from lamu import graphs
        >>> from lamu.families import Gamma
        >>> m = graphs.Program()
        >>> rate = m.sample("rate", Gamma(1.0, 1.0))
        >>> with m.rows():
        ...     y = m.sample("y", graphs.Poisson(rate))
        >>> [site.name for site in m.sites]
        ['rate', 'y']
    """

    def __init__(self) -> None:
        self._sites: list[GraphSite] = []
        self._inputs: list[str] = []
        self._networks: list[NetworkSite] = []
        self._in_rows = False

    def sample(self, name: str, distribution: Any, plate: int | tuple[int, ...] = ()) -> Any:
        """Returns a new variable.

        Args:
            name: its name; variables named in the data are observed.
            distribution: for a row, one of `lamu.graphs`; for shared variables also a belief of `lamu.families`.
            plate: number of independent members, which are its leading axes.

        Raises:
            ValueError: for a name that is taken, an empty plate, an argument that belongs to another row, or two
                arguments that depend on the same variable.
            TypeError: if `distribution` is not a distribution.
        """
        self._require_free(name)
        axes = (plate,) if isinstance(plate, int) else tuple(plate)
        if any(size < 1 for size in axes):
            raise ValueError(f"plate={plate!r} of {name!r} has no members; give at least one")
        if isinstance(distribution, HalfCauchy):
            auxiliary = self.sample(f"{name}.auxiliary", distribution.auxiliary, plate)
            return ScaleProduct((self.sample(name, distribution.square(auxiliary), ()),))
        if isinstance(distribution, ExponentialFamily):
            if self._in_rows:
                raise TypeError(
                    f"{name!r} is a variable of every row with a belief of lamu.families, which all rows share; "
                    f"{_instead(type(distribution).__name__)}"
                )
            distribution = Known(distribution).repeated(axes)
        elif isinstance(distribution, LikelihoodOf):
            distribution = Potential(distribution.likelihood, distribution.outputs)
        if isinstance(distribution, Potential):
            distribution = self._named(name, distribution, axes)
        elif isinstance(distribution, LearnedPrior):
            weights = self.network(f"{name}.prior", PriorWeights(distribution), distribution.latents)
            distribution = distribution.named(name, weights)
        if not isinstance(distribution, Factor):
            raise TypeError(
                f"{name!r} is sampled from {distribution!r}; give a belief of lamu.families, a factor of lamu.graphs, "
                "or a likelihood of outputs, for instance Bernoulli()(decode(z))"
            )
        self._require_sampled(name, distribution)
        _require_independent(name, distribution)
        site = GraphSite(name, distribution, axes, self._in_rows)
        self._require_in_order(site)
        _require_entries(site)
        variable = Variable(name, site.kind.__name__, site.shape)
        self._sites.append(site)
        return variable

    def network(self, name: str, network: Any, outputs: int | tuple[int, ...]) -> NetworkSite:
        """Returns a network to call with variables, inputs of rows, and other expressions.

        Its weights are at `params["network"][name]`, with the prior of the graph (`lamu.Graph(..., prior=)`).

        Args:
            name: its name.
            network: a network of `lamu.networks`, or an object with `init` and `apply`.
            outputs: number of outputs; a tuple of several numbers for separate outputs.

        Raises:
            ValueError: for a name that is taken, or outputs that are not positive numbers.

        Examples:
            >>> import jax.numpy as jnp, lamu
            >>> from lamu import graphs
            >>> m = graphs.Program()
            >>> decode = m.network("decode", lamu.networks.MLP((16,)), outputs=4)
            >>> with m.rows():
            ...     z = m.sample("z", graphs.Normal(jnp.zeros(2), 1.0))
            ...     y = m.sample("y", lamu.likelihoods.Bernoulli()(decode(z)))
            >>> [site.name for site in m.sites]
            ['z', 'y']
        """
        self._require_free(name)
        widths = (outputs,) if isinstance(outputs, int) else tuple(outputs)
        if not widths or any((whole(width) or 0) < 1 for width in widths):
            raise ValueError(f"outputs={outputs!r} of {name!r} are not positive numbers; give for instance 784")
        site = NetworkSite(name, adapted(network), widths)
        self._networks.append(site)
        return site

    def data(self, name: str) -> Input:
        """Returns an input: an array of the data that is not modelled.

        Args:
            name: its name in the data.

        Raises:
            ValueError: outside `rows`, or for a name that is taken.
        """
        if not self._in_rows:
            raise ValueError(f"the input {name!r} belongs to a row; ask for it inside `with m.rows():`")
        if name in {site.name for site in self._sites}:
            raise ValueError(f"the name {name!r} is taken by a variable; name inputs otherwise")
        _refuse_of_rows(name)
        if name not in self._inputs:
            self._inputs.append(name)
        return Input(name)

    @contextmanager
    def rows(self) -> Iterator[None]:
        """Context manager: variables sampled inside belong to every row of the data."""
        if self._in_rows:
            raise ValueError("rows() stands inside rows(); a row has plates, and no rows of its own")
        self._in_rows = True
        try:
            yield
        finally:
            self._in_rows = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(self._inputs)

    @property
    def networks(self) -> tuple[NetworkSite, ...]:
        """The networks."""
        return tuple(self._networks)

    @property
    def sites(self) -> tuple[GraphSite, ...]:
        """All sites in the order of the program."""
        meeting = frozenset().union(*(_in_products(site.factor) for site in self._sites))
        return tuple(_joined(s) if s.factor.kind is Numbers and s.name in meeting else s for s in self._sites)

    def _named(self, name: str, potential: Potential, axes: tuple[int, ...]) -> Potential:
        if axes:
            raise TypeError(f"{name!r} has plate={axes!r}; a likelihood has as many targets as it has outputs")
        if not self._in_rows:
            raise TypeError(f"{name!r} has a likelihood, whose targets are data; sample it inside `with m.rows():`")
        return replace(potential, name=name)

    def _require_free(self, name: str) -> None:
        taken = {site.name for site in self._sites} | set(self._inputs) | {site.name for site in self._networks}
        if name in taken:
            raise ValueError(f"the name {name!r} is taken; a program gives every variable a name of its own")
        if not name or "/" in name or "*" in name:
            raise ValueError(f"the name {name!r} cannot be part of a path; give one without / and *")
        if self._in_rows:
            _refuse_of_rows(name)
        if name in _RESERVED:
            raise ValueError(f"the name {name!r} has a meaning among the parameters of a graph; choose another one")

    def _require_sampled(self, name: str, factor: Factor) -> None:
        """Raises a ValueError for a variable or a network that this program has not declared before."""
        declared = {site.name: (site.kind.__name__, site.shape) for site in self._sites}
        for part in jax.tree.leaves(factor, is_leaf=lambda node: isinstance(node, Variable)):
            if isinstance(part, Variable) and declared.get(part.name) != (part.sort, part.size):
                raise ValueError(
                    f"{name!r} depends on {part.name!r}, which this program has not sampled before it; sample it "
                    "first, by the same m, so that no variable depends on itself"
                )
        networks = {site.name for site in self._networks}
        for call in applications(factor):
            if call.of.name not in networks:
                raise ValueError(
                    f"{name!r} depends on the network {call.of.name!r} of another program; make it by m.network"
                )

    def _require_in_order(self, site: GraphSite) -> None:
        rows = {other.name for other in self._sites if other.in_rows}
        outside = sorted(site.factor.names & rows)
        if outside and not site.in_rows:
            raise ValueError(
                f"{site.name!r} belongs to all rows and depends on {', '.join(outside)}, of which every row has one; "
                "sample it inside `with m.rows():`"
            )


def _refuse_of_rows(name: str) -> None:
    if name in _OF_ROWS:
        raise ValueError(
            f"the name {name!r} in the data says how much each row counts; give what every row has another name, for "
            f"instance {name + '_of_row'!r}"
        )


def _require_entries(site: GraphSite) -> None:
    """Raises a ValueError for a plate or series of categories in several arguments without matching entries."""
    repeated = site.factor.mixed_over()
    picks = {name: axes for part in site.factor.arguments.values() for name, axes in part.picks.items()}
    for name in sorted(repeated):
        axes = picks[name]
        if axes and (not site.factor.by_entry or (site.shape is not None and site.shape[: len(axes)] != axes)):
            raise ValueError(
                f"several arguments of {site.name!r} pick by {name!r}, which has {axes} categories in a row, and "
                f"{site.name!r} has no entries for each of them; give it the same leading axes, or a variable that is "
                "all of its arguments, for instance one with a NormalGamma belief"
            )


def _instead(family: str) -> str:
    if family in _FACTORS:
        return f"give it a factor, for instance graphs.{_FACTORS[family]}"
    return f"no factor of a row is a {family}, so sample it before `with m.rows():`, with a plate if there are several"


def _require_independent(name: str, factor: Factor) -> None:
    """Raises a ValueError for two arguments with the same variable, in which their product is not affine."""
    # A network's inputs have values, so that nothing has to be affine in them.
    statistics = {
        key: argument.names - frozenset().union(*(call.names for call in applications(argument)))
        for key, argument in factor.arguments.items()
    }
    # Given a category that indexes both, the arguments are independent, and the density is an average over it.
    picks = {key: frozenset(argument.picks) for key, argument in factor.arguments.items()}
    for (left, a), (right, b) in itertools.combinations(statistics.items(), 2):
        both = a & b - (picks[left] & picks[right])
        if both:
            raise ValueError(
                f"the {left} and the {right} of {name!r} both depend on {', '.join(sorted(both))}, and a closed form "
                "needs independent ones; give a variable that is both, for instance one with a NormalGamma belief"
            )


def _joined(site: GraphSite) -> GraphSite:
    """Returns a site of numbers as one whose belief is joint along the last axis."""
    factor: Any = site.factor
    if isinstance(factor, Known):
        values = factor.belief.precision.values
        matrix = values[..., :, None] * jnp.eye(values.shape[-1], dtype=values.dtype)
        factor = Known(MultivariateNormal(factor.belief.mean, matrix))
    return GraphSite(site.name, factor, site.plate, site.in_rows, joint=True)


def _in_products(node: Any) -> frozenset[str]:
    """Returns the names of variables that enter a product, or a vector's mean, below a factor or an expression."""
    if isinstance(node, Times | MultivariateNormalFactor):
        return node.names
    if isinstance(node, Factor):
        below = tuple(node.arguments.values())
    else:
        below = tuple(part for part in vars(node).values() if isinstance(part, Expression))
    return frozenset().union(*(_in_products(part) for part in below))


def written(program: Callable[[Program], Any]) -> Program:
    """Runs a program once, and returns it with its sites, inputs and networks."""
    m = Program()
    try:
        program(m)
    except IndexError as error:  # an array of JAX refuses an index before it asks for its value
        indices = [site.name for site in m.sites if f"Variable(name={site.name!r}" in str(error)]
        if not indices and "Input(name=" not in str(error):
            raise
        raise TypeError(without_value(indices)) from None
    if not any(site.in_rows for site in m.sites):
        raise ValueError("the program has no rows; sample what the data hold inside `with m.rows():`")
    return m
