"""Elimination of a row's latents, one local after the other, before the row's loss is evaluated."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import require_whole_field, sized
from lamu.base.compile_once import lenient
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, own_natural
from lamu.graphs.network import applications
from lamu.graphs.statistics import Categories, Numbers, Series, Vectors
from lamu.record import record, static
from lamu.typing import Array, Belief, Params, RandomKey, State

__all__ = [
    "ACCEPTED",
    "FIRST_STEP",
    "MOST_COMBINATIONS",
    "Combinations",
    "Coordinate",
    "Eliminated",
    "ExactElimination",
    "Local",
    "ProductProposal",
    "Proposal",
    "Reshaped",
    "Rest",
    "averaged_over_combinations",
    "converged_locals",
    "first_local",
    "has_exact_sum",
    "marginalise",
    "real_latents",
    "require_key",
    "require_summed",
    "trajectory",
]


class Proposal(ABC):
    r"""A belief \(q(z \mid y)\) about one or more latents of a row, as a proposal of a chain over the row's latents."""

    # `names`: names of the latents.

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of its latents."""

    @abstractmethod
    def draw(self, key: RandomKey) -> tuple[dict[str, Any], Array]:
        """Returns values of the latents by name, and the log density of all of them in nats."""

    @abstractmethod
    def log_prob(self, values: Mapping[str, Any]) -> Array:
        """Returns the log density of given values in nats, a scalar."""


@record
class ProductProposal(Proposal):
    r"""\(\prod_k q_k(z_k \mid y)\), one belief for each latent by name."""

    beliefs: Any  # with `sample`, or `draw`, and `log_prob`

    @property
    def names(self) -> tuple[str, ...]:
        # The names of the beliefs.
        return tuple(self.beliefs)

    def draw(self, key: RandomKey) -> tuple[dict[str, Any], Array]:
        # Returns a sample of each, and the sum of the log densities.
        samples = {
            name: _draw(belief, jax.random.fold_in(key, number))
            for number, (name, belief) in enumerate(self.beliefs.items())
        }
        return {name: value for name, (value, _) in samples.items()}, _sum([log_q for _, log_q in samples.values()])

    def log_prob(self, values: Mapping[str, Any]) -> Array:
        # Returns the sum of the log densities.
        return _sum([belief.log_prob(values[name]) for name, belief in self.beliefs.items()])


@record
class Reshaped:
    """A belief about a vector as a belief about an array with the same entries."""

    belief: Any  # about the vector
    shape: tuple[int, ...] = static()  # of the array

    def draw(self, key: RandomKey) -> tuple[Array, Array]:
        """Returns an array and its log density in nats."""
        vector, log_q = _draw(self.belief, key)
        return jnp.reshape(vector, self.shape), log_q

    def log_prob(self, value: Array) -> Array:
        """Returns the log density of an array in nats."""
        return self.belief.log_prob(jnp.reshape(value, -1))


def _draw(belief: Belief, key: RandomKey) -> tuple[Any, Array]:
    """Returns a sample and its log density, which a flow computes together."""
    if hasattr(belief, "draw"):
        return belief.draw(key)
    value = belief.sample(key)
    return value, belief.log_prob(value)


def _sum(terms: list[Array]) -> Array:
    return sum(terms[1:], terms[0]) if terms else jnp.zeros(())


# For given statistics of the shared variables, the optimal belief about a latent z is conjugate,
#
# \[ \lambda_z = \tfrac1T\, \partial F / \partial \mu_z, \qquad
#    \max_q \big( \tfrac1T E_q[\log p] + H(q) \big) = \tfrac1T F|_{\mu_z = 0} + A(\lambda_z) \]
#
# with A the log of the integral of \(e^{\langle\lambda, T(z)\rangle}\): a log-sum-exp for a category, the log-partition
# for a Gaussian. At \(T(\theta)\) this expression is the exact log density of the row. Latents that meet in a factor
# have no such expression and use coordinate ascent. The temperature divides log p, not the entropy.


Eliminated = tuple[Array, dict[str, Any]]
Rest = Callable[[Row, Environment, Any], Eliminated]


class Local(ABC):
    r"""How a latent of a row is eliminated: in closed form, by coordinate ascent, or by samples of its own belief.

    A local eliminates its latent z from the row. Given a value of z, `rest` evaluates the rest, so that locals nest:

    \[ \max_q \tfrac1T E_q[\log p(x, z)] + H(q) \ge
       E_{q(z)}\big[ \mathrm{rest}(x, z) - \log q(z) \big] \]

    A custom local is a record with `marginalise`; one with a network also defines `init`.

    Attributes:
        random: whether a row's bound is a function of a key.
        given: the latents that must have values before this one is eliminated.
        counts: whether a row's bound depends on the training step.
        has_density: whether its belief has a density, so that a chain can correct its samples.
        supervised: whether it also learns from rows in which the latent, a category, is fully observed.
        per_unit_kl: whether it has divergences for each unit of its latent (`unit_divergences`).
    """

    random: ClassVar[bool] = False
    has_density: ClassVar[bool] = True
    supervised: ClassVar[bool] = False
    per_unit_kl: ClassVar[bool] = False
    counts: bool | Any = False
    given: tuple[str, ...] | Any = ()

    def init(self, key: RandomKey, name: str, row: Row, environment: Environment) -> Params:
        """Returns the local's own parameters, at `params["network"]["local"][name]`; none by default.

        They have no prior, and belong in a block of an optimiser.

        Args:
            key: a random key.
            name: the latent.
            row: a row, for shapes.
            environment: the statistics of shared variables.
        """
        del key, name, row, environment
        return {}

    def importance_weighted(self) -> Local:
        """Returns the local under which a row's value is the log of an unbiased estimate of its density.

        Importance sampling averages such estimates. Itself by default, for locals that are exact or do not sample.

        Raises:
            TypeError: if a row's value is not a density.
        """
        return self

    def proposal(self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest) -> Proposal:
        """Returns the local's belief about its latent, for sampling; from λ by default. Arguments of `marginalise`.

        It depends only on the row and the key, not on a value of the latent.
        """
        return ProductProposal({name: self.marginalise(name, own, row, environment, key, rest)[1][name].belief()})

    def unit_divergences(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Array | None:
        r"""Returns \(KL(q(z_j \mid y) \,\|\, p(z_j))\) of every unit of the latent in nats, `[units]`.

        None if it has no closed form by units, as by default. Arguments as of `marginalise`.
        """
        del name, own, row, environment, key, rest
        return None

    @abstractmethod
    def marginalise(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Eliminated:
        """Returns the row's log density, or a bound of it, in nats, and λ of every eliminated latent, by name.

        With `at.values_only` only the bound is needed, and λ may be left out.

        Args:
            name: the latent.
            own: the local's parameters.
            row: the row: `row.known` has the statistics of observed variables, `row.data` the raw values,
                `row.observed` which entries are observed, if some are missing; `row.given(name, value)` is the row with
                a value for the latent.
            environment: the statistics of shared variables.
            key: a random key of the row, to be split between the local's samples and `rest`; None without samples.
            rest: eliminates the other latents of a row, a function of row, statistics and key with the same result.
        """


@record
class ExactElimination(Local):
    r"""Eliminates latents that do not meet in closed form, \(F(0)/T + \sum_z A(\lambda_z)\), a smooth function.

    Examples:
        >>> from lamu import graphs
        >>> graphs.ExactElimination()
        ExactElimination()
    """

    def proposal(self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest) -> Proposal:
        """Returns the exact posterior of all latents."""
        natural = self.marginalise(name, own, row, environment, key, rest)[1]
        return ProductProposal({name: part.belief() for name, part in natural.items()})

    def marginalise(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Eliminated:
        """Returns the log density, exact at T(θ), and λ of every latent: all are eliminated at once."""
        value, slopes = jax.value_and_grad(lambda latent: row.log_joint(environment, latent))(row.zeros(environment))
        natural = _tied(tree.scale(slopes, 1.0 / row.temperature), row)
        with lenient():
            bound: Any = sum((part.log_partition() for part in natural.values()), value / row.temperature)
            return bound, natural


# \[ \log p(y) = \log \sum_c p(y, c), \qquad p(c \mid y) \propto p(y, c), \qquad
#    q(z \mid y) = \sum_c p(c \mid y)\, q(z \mid y, c) \]
#
# c are the combinations of some categories, given which the other latents z of the row do not meet.


MOST_COMBINATIONS = 256  # of which a row takes one density each


@record
class Combinations(Local):
    """Eliminates categories that meet by the sum over all of their combinations, and the latents below them exactly."""

    names: tuple[str, ...] = static()  # of the categories

    def proposal(self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest) -> Proposal:
        """Returns the joint posterior of the categories."""
        log_weights, values, _ = self._terms(row, environment, key, rest)
        return _OfCombinations(values, log_weights)

    def marginalise(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Eliminated:
        """Returns the log density, exact at T(θ), and λ of every latent given each of the combinations."""
        log_weights, values, others = self._terms(row, environment, key, rest)
        known = {n: Categories(jnp.where(v > 0, 0.0, -1e30).astype(v.dtype)) for n, v in values.items()}
        return jax.nn.logsumexp(log_weights), {
            n: _GivenCombination(p, log_weights) for n, p in {**known, **others}.items()
        }

    def _terms(self, row: Row, environment: Environment, key: Any, rest: Rest) -> tuple[Array, dict[str, Any], Any]:
        """Returns the log density of every combination, its one-hot vectors by name, and λ of the others given it."""
        shapes: dict[str, Any] = {site.name: site.shape for site in row.latent if site.name in self.names}
        entries = [shape[-1] for shape in shapes.values() for _ in range(math.prod(shape[:-1]))]
        every = jnp.stack(jnp.unravel_index(jnp.arange(math.prod(entries)), entries), axis=-1)
        values, dtype = {}, dtype_of(environment, row.known)
        for name, shape in shapes.items():
            own, every = jnp.split(every, [math.prod(shape[:-1])], axis=-1)
            values[name] = jax.nn.one_hot(own.reshape(-1, *shape[:-1]), shape[-1], dtype=dtype)

        def of_combination(values: dict[str, Array]) -> Eliminated:
            given = row
            for name, value in values.items():
                given = given.given(name, value)
            return rest(given, environment, key)

        bounds, others = jax.vmap(of_combination)(values)
        return bounds, values, others


@record
class _OfCombinations(Proposal):
    """The joint belief about categories whose combinations were enumerated."""

    values: Any  # one-hot vectors by name, `[combinations, ..., K]`
    log_weights: Any  # `[combinations]`

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.values)

    def draw(self, key: RandomKey) -> tuple[dict[str, Any], Array]:
        place = jax.random.categorical(key, self.log_weights)
        return {name: v[place] for name, v in self.values.items()}, jax.nn.log_softmax(self.log_weights)[place]

    def log_prob(self, values: Mapping[str, Any]) -> Array:
        same = [jnp.all(v == values[n], axis=tuple(range(1, v.ndim))) for n, v in self.values.items()]
        place = jnp.argmax(jnp.all(jnp.stack(same), axis=0))
        return jax.nn.log_softmax(self.log_weights)[place]


@record
class _GivenCombination:
    """Natural parameters of a latent given each combination of some categories."""

    parts: Any  # λ, `[combinations, ...]`
    log_weights: Any  # of the combinations

    def belief(self) -> Belief:
        """Returns the belief with the same expectations: those of the mixture over the combinations."""
        return _average(self.parts.belief().expectation(), self.log_weights).family()


def averaged_over_combinations(function: Callable[[dict[str, Any]], Any], natural: dict[str, Any]) -> Any:
    """Returns the average of a function's arrays over the combinations that latents' λ are given, if they are."""
    mixed = [part for part in natural.values() if isinstance(part, _GivenCombination)]
    if not mixed:
        return function(natural)
    return _average(jax.vmap(function)({name: part.parts for name, part in natural.items()}), mixed[0].log_weights)


def _average(values: Any, log_weights: Array) -> Any:
    """Returns averages over the last axis of log weights, whose axes are the first of the values."""
    axes = log_weights.ndim
    weights = jax.nn.softmax(log_weights)

    def average(leaf: Array) -> Array:
        own = weights.astype(leaf.dtype).reshape(*weights.shape, *[1] * (leaf.ndim - axes))
        return jnp.sum(own * leaf, axis=axes - 1)

    return jax.tree.map(average, values)


def _enumerable(row: Row) -> tuple[str, ...]:
    """Returns the categories with the fewest combinations given which the latents of a row do not meet."""
    sizes = {
        site.name: site.shape[-1] ** math.prod(site.shape[:-1])
        for site in row.latent
        if site.kind is Categories and site.shape is not None
    }
    few = {name: size for name, size in sizes.items() if size <= MOST_COMBINATIONS}
    product = lambda names: math.prod(few[name] for name in names)
    if product(few) > MOST_COMBINATIONS:
        return ()
    subsets = [names for count in range(1, len(few) + 1) for names in combinations(few, count)]
    return next((names for names in sorted(subsets, key=product) if not row.coupled_given(names)), ())


def has_exact_sum(local: Mapping[str, Local], row: Row) -> bool:
    """Returns whether the latents of a row are summed out exactly at a point."""
    return isinstance(first_local(local, row)[1], ExactElimination | Combinations)


@record
@sized
class Coordinate(Local):
    r"""Coordinate ascent for latents that meet: each is updated given the others, until they converge.

    \[ \lambda_z \leftarrow \tfrac1T\, \partial F / \partial \mu_z, \qquad \mu_z \leftarrow E_{q_z}[T(z)] \]

    They start at their priors in every step. The gradient of the bound in the shared variables treats them as fixed,
    which is exact at their optimum (the envelope theorem).

    Attributes:
        sweeps: the largest number of updates of each.
        tolerance: the largest change of λ, relative to one more than its size, at which the iteration stops.

    Source: Hoffman, Blei, Wang & Paisley (2013), section 2.2.

    Examples:
        >>> from lamu import graphs
        >>> graphs.Coordinate(sweeps=20).tolerance
        0.0001
    """

    sweeps: int = static(default=50)
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        require_whole_field(self, "sweeps")

    def proposal(self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest) -> Proposal:
        """Returns the converged beliefs about all latents."""
        return ProductProposal({name: part.belief() for name, part in self.settled(row, environment).items()})

    def marginalise(
        self, name: str, own: Params, row: Row, environment: Environment, key: Any, rest: Rest
    ) -> Eliminated:
        """Returns the bound, and λ of every latent, by coordinate ascent.

        Raises:
            TypeError: for a latent on which a network or a likelihood depends, whose best belief has no closed form.
        """
        natural = self.settled(row, environment)
        return bound_at(natural, row, environment), natural

    def settled(self, row: Row, environment: Environment) -> dict[str, Any]:
        """Returns the converged λ of every latent, without a gradient.

        Args:
            row: the row.
            environment: the statistics of shared variables.

        Raises:
            TypeError: for a latent on which a network or a likelihood depends, whose best belief has no closed form.
        """
        _require_closed(row)
        environment, row = jax.lax.stop_gradient((environment, row))
        row = row.evaluated(environment)

        def updated(natural: dict[str, Any], moments: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            for site in row.latent:
                others = dict(moments)
                slope = jax.grad(
                    lambda own, name=site.name, rest=others: row.log_joint(environment, {**rest, name: own})
                )(moments[site.name])
                tied = _tied({site.name: tree.scale(slope, 1.0 / row.temperature)}, row)[site.name]
                natural = {**natural, site.name: tied}
                moments = {**moments, site.name: site.kind.under(tied.belief())}
            return natural, moments

        def going(state: State) -> Array:
            count, _, _, change = state
            return (count < self.sweeps) & (change > self.tolerance)

        def once(state: State) -> Any:
            count, natural, moments, _ = state
            new, moments = updated(natural, moments)
            change = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b) / (1.0 + jnp.abs(b))), new, natural)
            return count + 1, new, moments, jnp.max(jnp.stack(jax.tree.leaves(change)))

        natural, moments = self._first(row, environment)
        change = jnp.full((), jnp.inf, jnp.result_type(jax.tree.leaves(natural)[0]))
        return jax.lax.while_loop(going, once, (jnp.zeros((), jnp.int32), natural, moments, change))[1]

    @staticmethod
    def _first(row: Row, environment: Environment) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns λ and moments of the latents at their own priors, one after the other."""
        natural, moments, zeros, dtype = {}, {}, row.zeros(environment), dtype_of(environment, row.known)
        for site in row.latent:
            natural_of_site = own_natural(
                site, row.environment(environment, {**zeros, **moments}), dtype, row.temperature
            )
            natural[site.name] = _tied({site.name: natural_of_site}, row)[site.name]
            moments[site.name] = site.kind.under(natural[site.name].belief())
        return natural, moments


def bound_at(natural: dict[str, Any], row: Row, environment: Environment) -> Array:
    r"""Returns the row's bound in nats at beliefs about all of its latents, \(\tfrac1T E_q[\log p] + H(q)\)."""
    moments = {site.name: site.kind.under(natural[site.name].belief()) for site in row.latent}
    with lenient():
        entropy = sum((part.log_partition() for part in natural.values()), -tree.dot(natural, moments))
        return row.log_joint(environment, moments) / row.temperature + entropy


def _require_closed(row: Row) -> None:
    """Raises a TypeError if a latent is an argument of a factor without messages."""
    latents = {site.name for site in row.latent}
    for site in row.latent:
        if not site.factor.conjugate:
            raise TypeError(
                f"the best belief about {site.name!r} has no closed form under a {type(site.factor).__name__}; name a "
                f"local that draws it, Graph(program, local={{{site.name!r}: ...}})"
            )
    for site in row.sites:
        called = frozenset().union(*(call.names for call in applications(site.factor)))
        open_to = latents & (called if site.factor.exact else site.factor.names - site.factor.mixed_over())
        if open_to:
            name = sorted(open_to)[0]
            raise TypeError(
                f"the best belief about {name!r} has no closed form, because {site.name!r} depends on it through a "
                f"network or a likelihood; name a local that draws it, Graph(program, local={{{name!r}: ...}}), or "
                f"write it outside of m.rows(), with plate=N for N rows, and index it by a column of row numbers, "
                f'{name}[m.data("row")]'
            )


def _tied(natural: dict[str, Any], row: Row) -> dict[str, Any]:
    """Returns λ with a row's evidence about a category that other rows miss."""
    return {
        name: tree.add(part, row.evidence[name]) if name in row.evidence else part for name, part in natural.items()
    }


def marginalise(
    local: Mapping[str, Local], row: Row, environment: Environment, key: Any, natural: dict[str, Any] | None = None
) -> Eliminated:
    """Returns the row's log density or bound in nats, and λ of every latent by name."""
    # The locals named in the program come first, in the order of the program, each after those that it is
    # given, and leave the remaining latents to the next; the last is exact if those do not meet, or not given
    # categories of few combinations, and otherwise coordinate ascent.
    if natural:
        return bound_at(natural, row, environment), natural
    name, first, others = first_local(local, row)
    own = environment.statistics.get("local", {}).get(name, {})
    return first.marginalise(name, own, row, environment, key, partial(marginalise, others))


def converged_locals(local: Mapping[str, Local], row: Row, environment: Environment) -> dict[str, Any]:
    """Returns λ of a row's latents if coordinate ascent comes first; empty if another local comes first."""
    # No gradient passes this iteration, so that it can run over all rows before `marginalise`, and in other blocks.
    _, first, _ = first_local(local, row)
    return first.settled(row, environment) if isinstance(first, Coordinate) else {}


def first_local(local: Mapping[str, Local], row: Row) -> tuple[str, Local, dict[str, Local]]:
    """Returns the first local to eliminate its latents, after their name, and the remaining locals."""
    # A latent that meets no other has a closed form, whatever its local.
    names = [site.name for site in row.latent if site.name in local]
    names = [name for name in names if row.coupled or local[name].random]
    if not names:
        few = _enumerable(row) if row.coupled else ()
        return "", Combinations(few) if few else Coordinate() if row.coupled else ExactElimination(), {}
    name = next((name for name in names if set(local[name].given) <= set(row.known)), None)
    if name is None:
        raise ValueError(
            f"the local of {names[0]!r} is given {', '.join(local[names[0]].given)}, which has no value before it; "
            "give it what is observed or what another local draws"
        )
    return name, local[name], {other: local_choice for other, local_choice in local.items() if other != name}


def require_key(local: Mapping[str, Local], key: Any) -> Any:
    """Returns the key, or a fixed one where it is None and locals sample: then the bound is deterministic."""
    if not any(local_choice.random for local_choice in local.values()):
        return None
    return jax.random.key(0) if key is None else key


def require_summed(local: Mapping[str, Local], row: Row) -> None:
    """Raises a TypeError if latents of a row need coordinate ascent, so that at a point only a bound is known."""
    for name, local_choice in local.items():
        site = next((site for site in row.latent if site.name == name), None)
        if site is not None and not isinstance(local_choice, Coordinate):
            row = row.given(name, jnp.ones(site.shape or (1,)))
    if not has_exact_sum({name: each for name, each in local.items() if isinstance(each, Coordinate)}, row):
        names = ", ".join(site.name for site in row.latent)
        networks = {call.of.name for call in applications([site.factor for site in row.sites])}
        if networks:
            raise TypeError(
                f"networks ({', '.join(sorted(networks))}) depend on the latents {names} of a row, whose sum has no "
                "closed form; say how each leaves, Graph(program, local={...}), by one of lamu.latent: "
                "Amortised(network) or Delta(network), or for a category SummedOut() or Enumerated(network)"
            )
        raise TypeError(
            f"the latents {names} of a row meet, and their sum has no closed form at a point; use vmp(), svi() or "
            "em(), observe one of them, name a local that draws one, Graph(program, local={...}), or write one outside "
            'of m.rows(), with plate=N for N rows, and index it by a column of row numbers, e[m.data("row")]'
        )


# \[ H(z, r) = -\log p(y_\mathrm{obs}, z) + \tfrac12 \lVert r \rVert^2, \qquad r \sim N(0, I) \]
#
# A few leapfrog steps and Metropolis' rule: \(p(z \mid y_\mathrm{obs})\) is invariant. Missing entries are not part
# of it, so that their samples do not slow down z.
#
# Source: Neal (2011), "MCMC using Hamiltonian dynamics", section 5.3.2.1.


FIRST_STEP = 0.1  # of the leapfrog, at the start of a warm-up; latents have priors of about unit scale
ACCEPTED = 0.8  # the acceptance rate that a warm-up aims at
_LEAPS = 5
_JITTER = 0.2  # of the step, so that no trajectory is a full period


def real_latents(local: Mapping[str, Local], row: Row) -> tuple[str, ...]:
    """Returns the names of the real-valued latents with a local of their own that has a density."""
    real = (Numbers, Vectors, Series)
    own = [site for site in row.latent if site.name in local and local[site.name].has_density]
    return tuple(site.name for site in own if issubclass(site.kind, real))


def trajectory(log_density: Callable[[Any], Array], z: Any, log_step: Array, key: RandomKey) -> tuple[Any, Array]:
    """Returns the end of a trajectory from z, or z if it is rejected, and the acceptance probability."""
    of_momentum, of_step, of_choice = jax.random.split(key, 3)
    slope = jax.value_and_grad(log_density)
    momentum = jax.tree.map(
        lambda k, leaf: jax.random.normal(k, leaf.shape, leaf.dtype), tree.keys_like(of_momentum, z), z
    )
    jitter = jax.random.uniform(of_step, (), log_step.dtype, 1.0 - _JITTER, 1.0 + _JITTER)
    step = jnp.exp(log_step) * jitter

    def leap(state: State, _: None) -> tuple[Any, None]:
        z, r, _, gradient = state
        r = tree.add(r, gradient, step / 2)
        z = tree.add(z, r, step)
        value, gradient = slope(z)
        return (z, tree.add(r, gradient, step / 2), value, gradient), None

    before, gradient = slope(z)
    end, r, after, _ = jax.lax.scan(leap, (z, momentum, before, gradient), None, length=_LEAPS)[0]
    ratio = after - before + (tree.dot(momentum, momentum) - tree.dot(r, r)) / 2
    undefined = jnp.isnan(before) | (before == -jnp.inf)  # always leave a state without a density
    ratio = jnp.where(undefined, jnp.where(jnp.isfinite(after), 0.0, -jnp.inf), ratio)
    chance = jnp.where(jnp.isfinite(after) & ~jnp.isnan(ratio), jnp.exp(jnp.minimum(ratio, 0.0)), 0.0)
    accepted = jax.random.uniform(of_choice, (), chance.dtype) < chance
    return jax.tree.map(lambda a, b: jnp.where(accepted, a, b), end, z), chance
