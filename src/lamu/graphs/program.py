"""A program, run once, as a list of sites: a variable each, with its factor."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp

from lamu.families import ExponentialFamily, MultivariateNormal
from lamu.graphs.expressions import Environment, Expression, Input, ScaleProduct, Times, Variable
from lamu.graphs.factor import Factor, Known
from lamu.graphs.network import NetworkSite, applications
from lamu.graphs.normal_factors import MultivariateNormalFactor
from lamu.graphs.positive_factors import HalfCauchy
from lamu.graphs.potential import Potential
from lamu.graphs.statistics import Numbers, Statistics, Vectors
from lamu.likelihoods.interface import LikelihoodOf
from lamu.networks.interface import Network, adapted
from lamu.record import record, static
from lamu.sizes import sized
from lamu.typing import Array, DTypeLike, Inputs, Params, RandomKey, State

__all__ = ["GraphSite", "LearnedPrior", "PriorWeights", "Program", "written"]


P = TypeVar("P", bound="LearnedPrior")


@record
@sized
class LearnedPrior(Factor):
    """A density of a vector z of D numbers, which is affine in nothing: its latent leaves a row by draws.

    Its weights stand at `params["network"]["z.prior"]` for a variable z, with the prior of the graph's networks. One of
    one's own is a record with `first`, `log_prob` and `draw`.

    Attributes:
        latents: D.
        weights: what the program makes of the weights.
        name: of the variable; filled in by the program.
    """

    latents: int = static()
    weights: Any = field(default=None, kw_only=True)
    name: str = static(default="", kw_only=True)

    kind = Numbers
    affine: ClassVar[bool] = False
    conjugate: ClassVar[bool] = False
    misses: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.latents, int) or self.latents < 1:
            raise ValueError(f"latents={self.latents!r} is no number of latents; give a whole number from 1")

    @abstractmethod
    def first(self, key: RandomKey, dtype: DTypeLike) -> Params:
        """Returns first weights.

        Args:
            key: a random key.
            dtype: of the weights.
        """

    @abstractmethod
    def log_prob(self, weights: Params, z: Array, at: Environment) -> Array:
        """Returns log p(z) in nats, a scalar.

        Args:
            weights: the weights.
            z: `[D]`.
            at: the statistics of what all rows share.
        """

    @abstractmethod
    def draw(self, key: RandomKey, weights: Params, at: Environment) -> Array:
        """Returns a draw of z, `[D]`.

        Args:
            key: a random key.
            weights: the weights.
            at: the statistics of what all rows share.
        """

    def named(self: P, name: str, weights: NetworkSite) -> P:
        """Returns the prior of a variable, with its weights.

        Args:
            name: the variable.
            weights: where they stand.
        """
        return replace(self, name=name, weights=weights(jnp.zeros(self.latents)))

    def require(self, local: Any) -> None:
        """Raises a TypeError for a local of the latent with which the prior is no density; none by default.

        Args:
            local: a `lamu.graphs.Local`, or None.
        """
        del local

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.latents,)

    def log_density(self, x: Inputs, at: Environment, observed: Any = None) -> Array:
        """Returns log p(z) at a value of z."""
        return self.log_prob(at.statistics[self.weights.of.name], x.first, at)

    def sample(self, key: RandomKey, at: Environment) -> Array:
        """Returns a draw of z.

        Args:
            key: a random key.
            at: the statistics of what all rows share.
        """
        return self.draw(key, at.statistics[self.weights.of.name], at)


@record
class PriorWeights(Network):
    """The weights of a prior among those of networks; a function of nothing."""

    prior: Any

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        # Returns the first weights.
        return self.prior.first(key, x.dtype), {}

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        # Raises a TypeError: there is no output.
        raise TypeError("the weights of a prior are no network to be called; sample from the prior")


# At `params["network"]` and beside it: what encoders learn, and dispersions.
_RESERVED = ("local", "likelihood")
_OF_ROWS = ("weight", "mask")  # in the data, where they say how much each row counts
# The factor of a row's own variable, by the family of what all rows share.
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
    """A variable of a graph, and the factor that it is the child of."""

    name: str = static()
    factor: Factor  # \(p(x \mid \text{arguments})\)
    plate: tuple[int, ...] = static()  # the leading axes of independent members
    in_rows: bool = static()  # whether every row has one of its own
    joint: bool = static(default=False)  # whether its numbers meet in a product, so that a belief keeps them together
    # Whether a local learns from the values of this category that rows hold, so that it stays a latent that those tie
    # down.
    supervised: bool = static(default=False)

    @property
    def kind(self) -> type[Statistics]:
        """The statistics of the variable."""
        return Vectors if self.joint else self.factor.kind

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a value; None where the data decide."""
        own = self.factor.shape
        if own is None:
            return None
        if isinstance(self.factor, Known):
            return own
        split = len(own) - self.factor.kind.events
        batch, event = own[:split], own[split:]
        # An argument that has the axes of the plate already brings the members' own.
        return own if batch[: len(self.plate)] == self.plate else (*self.plate, *batch, *event)


class Program:
    """What a program is given: it samples variables, asks for inputs, and says what every row has.

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
            name: its name; one that is in the data is observed.
            distribution: of a row, one of `lamu.graphs`; of all rows also a belief of `lamu.families`.
            plate: how many independent members it has, which are its leading axes.

        Raises:
            ValueError: for a name that is taken, an empty plate, an argument that belongs to another row, or two
                arguments that depend on one variable.
            TypeError: for something that is no distribution.
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

        Its weights stand at `params["network"][name]`, with the prior of the graph (`lamu.Graph(..., prior=)`).

        Args:
            name: its name.
            network: a network of `lamu.networks`, or an object with `init` and `apply`.
            outputs: how many numbers it returns; several numbers for outputs that come apart, in a tuple.

        Raises:
            ValueError: for a name that is taken, or outputs that are no positive numbers.

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
        if not widths or any(not isinstance(width, int) or width < 1 for width in widths):
            raise ValueError(f"outputs={outputs!r} of {name!r} are no positive numbers; give for instance 784")
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
        """What is sampled inside belongs to every row of the data."""
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
        """Raises a ValueError for a variable or a network of which this program knows nothing yet."""
        known = {site.name: (site.kind.__name__, site.shape) for site in self._sites}
        for part in jax.tree.leaves(factor, is_leaf=lambda node: isinstance(node, Variable)):
            if isinstance(part, Variable) and known.get(part.name) != (part.sort, part.size):
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
        rows = {known.name for known in self._sites if known.in_rows}
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
    """Raises a ValueError for a series or a plate of categories in several arguments that entries do not follow."""
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
    """Raises a ValueError for two arguments with one variable, in whose statistics their product is not affine."""
    # What a network reads has a value, so that nothing has to be affine in it.
    statistics = {
        key: argument.names - frozenset().union(*(call.names for call in applications(argument)))
        for key, argument in factor.arguments.items()
    }
    # Given a category that picks on both sides they are apart, and the density is an average over it.
    picks = {key: frozenset(argument.picks) for key, argument in factor.arguments.items()}
    for (left, a), (right, b) in itertools.combinations(statistics.items(), 2):
        both = a & b - (picks[left] & picks[right])
        if both:
            raise ValueError(
                f"the {left} and the {right} of {name!r} both depend on {', '.join(sorted(both))}, and a closed form "
                "needs independent ones; give a variable that is both, for instance one with a NormalGamma belief"
            )


def _joined(site: GraphSite) -> GraphSite:
    """Returns a site of numbers as one whose belief keeps the last axis together."""
    factor: Any = site.factor
    if isinstance(factor, Known):
        values = factor.belief.precision.values
        matrix = values[..., :, None] * jnp.eye(values.shape[-1], dtype=values.dtype)
        factor = Known(MultivariateNormal(factor.belief.mean, matrix))
    return GraphSite(site.name, factor, site.plate, site.in_rows, joint=True)


def _in_products(node: Any) -> frozenset[str]:
    """The names of the variables that meet in some product, or in a vector's mean, below a factor or an expression."""
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
    program(m)
    if not any(site.in_rows for site in m.sites):
        raise ValueError("the program has no rows; sample what the data hold inside `with m.rows():`")
    return m
