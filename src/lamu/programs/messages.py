"""The expected log density of a conjugate program, as a function F of the statistics of its sites."""

# \[ F(\mu) = E_q[\log p(\theta, D)], \qquad \nabla_{\mu_k} F = \lambda_k \]
#
# The log density is affine in the statistics of each site given the others. Its expectation under independent sites
# therefore follows from a few values, slopes and curvatures of the program (`lamu.programs.conjugacy`).

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from numpyro.distributions import constraints as supports

from lamu.base.compile_once import lenient
from lamu.conjugate_target import MessageTarget, independent_groups, updated
from lamu.constraints import Constraints
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.families import Categorical, Product
from lamu.families.interface import finite_draws
from lamu.families.products import factor_of
from lamu.graphs.statistics import (
    OF_FAMILY,
    Chance,
    Numbers,
    PositiveNumbers,
    Precisions,
    Probabilities,
    Variances,
    Vectors,
)
from lamu.programs.conjugacy import AFFINE, Verdict
from lamu.programs.density import LogJoint, SiteBeliefs, is_imputed
from lamu.typing import Array, Belief, Numeric, Params, RandomKey, Statistics

__all__ = ["SiteMessages", "expectation"]

P = TypeVar("P", bound="SiteMessages")
_KINDS = {family.__name__: kind for family, kind in OF_FAMILY.items()}


def expectation(f: Callable[[Any, Any], Array], kinds: Mapping[str, type]) -> Callable[[Any, Any], Array]:
    r"""Returns the function \(\mu \mapsto E_q[f]\), whose gradient is the λ of every site.

    Args:
        f: a function of values by site and of given arguments, affine in the statistics of each site.
        kinds: the statistics by site.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.graphs.statistics import Numbers, PositiveNumbers
        >>> from lamu.programs.messages import expectation
        >>> f = lambda at, y: -at["tau"] * (y - at["mu"]) ** 2 / 2.0
        >>> F = expectation(f, {"mu": Numbers, "tau": PositiveNumbers})
        >>> mu = {"mu": Numbers(jnp.array(1.0), jnp.array(2.0)), "tau": PositiveNumbers(jnp.array(0.0), jnp.array(3.0))}
        >>> float(F(mu, 2.0))  # the variance of mu is one
        -3.0
        >>> slopes = jax.grad(F)(mu, 2.0)
        >>> float(slopes["mu"].first), float(slopes["mu"].second), float(slopes["tau"].value)
        (6.0, -1.5, -1.0)
    """

    @jax.custom_vjp
    def F(statistics: Statistics, given: Any) -> Array:
        return _over_sites(lambda theta: f(theta, given), kinds, statistics)

    def forward(statistics: Statistics, given: Any) -> tuple[Array, Any]:
        asked = {name: None for name, part in statistics.items() if any(leaf.perturbed for leaf in _leaves(part))}
        statistics, given = (
            jax.tree.map(lambda leaf: leaf.value, part, is_leaf=_is_leaf) for part in (statistics, given)
        )
        return F(statistics, given), (statistics, given, asked)

    def backward(kept: Any, slopes: Any) -> tuple[Any, None]:
        statistics, given, asked = kept
        natural = {}
        for name, own in statistics.items():
            if name not in asked:
                natural[name] = jax.tree.map(jnp.zeros_like, own)
                continue
            others = {other: part for other, part in statistics.items() if other != name}

            def of_site(x: Array, name: str = name, others: Any = others) -> Array:
                total = lambda theta: jnp.sum(slopes * f({**theta, name: x}, given))
                return _over_sites(total, kinds, others)

            natural[name] = AFFINE[kinds[name]].natural(of_site, own)
        return natural, None

    F.defvjp(forward, backward, symbolic_zeros=True)
    return F


def _is_leaf(node: Any) -> bool:
    return hasattr(node, "perturbed")


def _leaves(tree: Any) -> list[Any]:
    return jax.tree.leaves(tree, is_leaf=_is_leaf)


def _over_sites(f: Callable[[Any], Array], kinds: Mapping[str, type], statistics: Mapping[str, Any]) -> Array:
    """Returns the expectation of a function of values by site, one site after the other."""
    if not statistics:
        return f({})
    name, *rest = statistics
    others = {other: statistics[other] for other in rest}
    of_site = lambda x: _over_sites(lambda theta: f({**theta, name: x}), kinds, others)
    return AFFINE[kinds[name]].expected(of_site, statistics[name])


class SiteMessages(MessageTarget):
    """The log joint of a NumPyro program as a function of statistics of its latent sites.

    Attributes:
        joint: log p(θ, D) as terms.
        constants: array arguments that are not rows, by name.
        fixed: arguments that are not arrays, by name.
        given_rows: the arguments that are rows.
        theta: values of the latent sites, for their shapes.
        distributions: the NumPyro distribution of every site, by name.
        of_choices: the verdicts of the identity test for every factor and latent site, given the categories.
        constraints: the transformations from real coordinates to θ.
    """

    joint: LogJoint
    constants: Any
    fixed: tuple[tuple[str, Any], ...]
    given_rows: Any
    theta: Any
    distributions: tuple[tuple[str, str], ...]
    of_choices: tuple[Verdict, ...]
    constraints: Constraints

    def first_rows(self, count: int) -> dict[str, Any]:
        """Returns the arguments of at most so many of the program's rows; none without rows."""
        data = self.given_rows.data
        return {} if data is None else self.given_rows.of({name: value[:count] for name, value in data.y.items()})

    @property
    def kinds(self) -> dict[str, type]:
        """The statistics by name of the latent sites that are conjugate in all their factors."""
        kinds = {name: self._kind(name) for name, _ in self.distributions if name in self.theta}
        return {name: kind for name, kind in kinds.items() if kind is not None}

    def _kind(self, name: str) -> type | None:
        own = [verdict for verdict in self.of_choices if verdict.site == name]
        for family in own[0].families if own else ():
            if not all(family in verdict.families for verdict in own):
                continue
            if family != "Normal":
                return _KINDS[family]
            coupling = max(verdict.coupling for verdict in own)
            if self.constraints.support(name) is supports.real and coupling < 2:
                return Vectors if coupling else Numbers
        return None

    @property
    def blocks(self) -> tuple[tuple[str, ...], ...]:
        """The latent sites in groups of sites without a common factor, in the order of the program."""
        return independent_groups(self.kinds, self._needs().values())

    def _needs(self) -> dict[str, tuple[str, ...]]:
        """Returns the latent sites that each factor depends on."""
        return {
            factor: tuple(verdict.site for verdict in self.of_choices if verdict.factor == factor)
            for factor, _ in self.distributions
        }

    @property
    def rows_add_up(self) -> bool:
        """Whether λ is a sum over rows for any belief: no factor has two sites, and no category is summed out."""
        return super().rows_add_up and not self.joint.categories

    def require_messages(self, asked: str, exact: bool = True) -> None:
        """Raises a TypeError for a site whose messages have no closed form, and for fixed sites."""
        del exact
        if self.frozen is not None:
            raise TypeError(
                f"{asked} takes all sites of a program; condition the program with numpyro.handlers.condition"
            )
        for name in self.theta:
            if name in self.kinds:
                continue
            own = [verdict for verdict in self.of_choices if verdict.site == name]
            families = dict.fromkeys(family for verdict in own for family in verdict.families)
            least = {family: [v.factor for v in own if family not in v.families] for family in families or ("Normal",)}
            closest = min(least, key=lambda family: len(least[family]))
            if least[closest]:
                why = f"{name!r} is not conjugate in {', '.join(repr(factor) for factor in least[closest])}"
            elif self.constraints.support(name) is not supports.real:
                log = str(self.constraints.support(name)) == str(supports.positive)
                why = (
                    f"{name!r} is Normal in its logarithm alone; sample the logarithm"
                    if log
                    else f"{name!r} is Normal in the real coordinates of its support alone"
                )
            else:
                why = f"the numbers of {name!r} meet across its leading axes; sample it as one vector"
            raise TypeError(
                f"{asked} takes exact messages, and {why}; else use cvi(), which takes gradients at draws, or nuts()"
            )

    def values(self, theta: Mapping[str, Any]) -> dict[str, Any]:
        """Returns T(θ) by name."""
        with lenient():
            return {name: kind.of(theta[name]) for name, kind in self.kinds.items()}

    def product(self, beliefs: Mapping[str, Any]) -> Product:
        """Returns the product belief about all sites."""
        return Product({"conjugate": Product(dict(beliefs))})

    def statistics(self, mu: Any) -> dict[str, Any]:
        """Returns μ by name, as records."""
        return super().statistics(mu["conjugate"])

    def row_bounds(
        self, statistics: Mapping[str, Any], batch: Batch, temperature: Any = 1.0, key: RandomKey | None = None
    ) -> Array:
        """Returns the expected log density of every row over T in nats, at optimal category beliefs, `[batch]`."""
        del key
        return logsumexp(self.choice_bounds(statistics, batch) / temperature, axis=0)

    def choice_bounds(self, statistics: Mapping[str, Any], batch: Batch) -> Array:
        """Returns the expected log density of every row for each value of its categories, `[choices, batch]` in nats.

        Args:
            statistics: T or μ of every latent site, by name.
            batch: the rows.
        """
        rows = batch.mask.shape[0]
        arguments = {**self.constants, **(self.given_rows.of(batch.y) if self.has_rows else {})}
        return self._sum(statistics, arguments, rows, 1, (len(self.joint.choices), rows))

    def shared_log_joint(self, statistics: Mapping[str, Any]) -> Array:
        """Returns the expected log density of the sites outside of the rows in nats, a scalar."""
        one_row = self.first_rows(1)
        return self._sum(statistics, {**self.constants, **one_row}, 1, 0, ())

    def _sum(
        self, statistics: Mapping[str, Any], arguments: Any, rows: int, where: int, shape: tuple[int, ...]
    ) -> Array:
        """Returns the sum of the expected terms of the rows, or of those outside; terms of the same sites together."""
        dtype = jnp.result_type(*jax.tree.leaves(dict(statistics)))
        terms = lambda theta, given: self.joint.complete({**given, **dict(self.fixed)}, theta, rows)[where]
        present = jax.eval_shape(terms, jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), self.theta), arguments)
        groups: dict[tuple[str, ...], list[str]] = {}
        for factor, needed in self._needs().items():
            if factor in present:
                groups.setdefault(needed, []).append(factor)
        total = jnp.zeros(shape, dtype)
        centre = {name: AFFINE[kind].centre(statistics[name]) for name, kind in self.kinds.items()}
        for needed, factors in groups.items():

            def f(theta: Params, given: Any, factors: Any = factors) -> Array:
                arguments, others = given
                values = terms({**others, **theta}, arguments)
                with lenient():
                    return jnp.asarray(sum(values[factor] for factor in factors), dtype)

            kinds = {name: self.kinds[name] for name in needed}
            others = {name: value for name, value in centre.items() if name not in needed}
            own = {name: statistics[name] for name in needed}
            total = total + expectation(f, kinds)(own, (arguments, jax.lax.stop_gradient(others)))
        return total

    def first_belief(self, key: RandomKey, batch: Batch, temperature: Any) -> Product:
        """Returns beliefs after one update from a random start; for a mixture the best of several after some sweeps.

        Raises:
            TypeError: for a site whose messages have no closed form.
        """
        self.require_messages("svi()")
        return super().first_belief(key, batch, temperature)

    @property
    def shares_categories(self) -> bool:
        """Whether latent categories are shared by all data instead of belonging to rows."""
        return bool(self.joint.categories) and not self.has_rows

    def tempered(self, temperature: Any) -> SiteMessages:
        names = dict(self.distributions)
        if not self.shares_categories and not any(is_imputed(name, names) for name in names):
            return self
        return replace(self, joint=replace(self.joint, temperature=temperature))

    def has_categories(self, batch: Batch) -> bool:
        """Whether the program has latent categories and rows."""
        del batch
        return bool(self.joint.categories) and self.has_rows

    def first_beliefs(
        self, key: RandomKey, batch: Batch, temperature: Any = 1.0, *, number: Numeric | None = None
    ) -> dict[str, Any]:
        """Returns initial beliefs about the latent sites, by name: after one update of each.

        Numbers start at a random draw. Of the categories, as many rows as there are values start with one value each.
        """
        del number
        draw_key, choice_key = jax.random.split(key)
        rows, dtype, count = batch.mask.shape[0], batch.weight.dtype, len(self.joint.choices)
        statistics = {
            name: _first(kind, jax.random.fold_in(draw_key, number), jnp.asarray(self.theta[name], dtype))
            for number, (name, kind) in enumerate(self.kinds.items())
        }
        places = jax.random.permutation(choice_key, max(rows, count))[:rows]
        chosen = jax.nn.one_hot(places, count, axis=0, dtype=dtype) if count > 1 else jnp.ones((1, rows), dtype)

        def F(statistics: Statistics) -> Array:
            in_rows = jnp.sum(chosen * self.choice_bounds(statistics, batch), axis=0)
            return (batch.total(in_rows) + self.shared_log_joint(statistics)) / temperature

        return updated(F, statistics, self.blocks, self.kinds)

    # Methods of the posterior.

    def row_log_prob(self, belief: Belief, batch: Batch, samples: int, key: RandomKey) -> Array:
        if not self.has_rows:
            raise self._without_rows("log_prob")
        return super().row_log_prob(belief, batch, samples, key)

    def local_beliefs(self, belief: Belief, rows: Arrays, samples: int, key: RandomKey) -> dict[str, Any]:
        """Returns the beliefs about the categories of rows by name; without rows about the program's categories."""
        if not self.joint.categories:
            return super().local_beliefs(belief, rows, samples, key)
        network, batch = factor_of(belief, "network"), rows.full()
        if isinstance(network, SiteBeliefs) and set(network.parts.factors) == {"conjugate"}:
            conjugate: Any = network.parts.factors["conjugate"]
            bounds = self.choice_bounds(self.moments(conjugate.factors), batch)
            shares = jax.nn.softmax(bounds / self.joint.choice_temperature, axis=0)
        else:
            shares = _mean_shares(self, finite_draws(belief.draws(key, samples)), batch)
        beliefs = {}
        for number, (name, values) in enumerate(self.joint.categories):
            own = jnp.asarray(self.joint.choices[:, number][None] == jnp.asarray(values)[:, None], shares.dtype)
            p = (own @ shares).T if self.has_rows else own @ shares[:, 0]
            beliefs[name] = Categorical(jnp.log(jnp.maximum(p, jnp.finfo(p.dtype).tiny)))  # p may round to zero
        return beliefs

    def _shares(self, theta: Params, batch: Batch) -> Array:
        """Returns the probability of each value of the categories given the sites, `[choices, batch]`."""
        arguments = {**self.constants, **dict(self.fixed)}
        arguments |= self.given_rows.of(batch.y) if self.has_rows else {}
        values = self.constraints.constrain(theta)[0]
        in_rows = self.joint.complete(arguments, values, batch.mask.shape[0])[1]
        with lenient():
            return jax.nn.softmax(sum(in_rows.values()) / self.joint.choice_temperature, axis=0)


@jax.jit
def _mean_shares(target: Any, draws: Params, batch: Batch) -> Array:
    return jnp.mean(jax.lax.map(lambda params: target._shares(params["network"], batch), draws), axis=0)


# λ of a broad belief, with shapes and rates of two.
_BROAD = {PositiveNumbers: (1.0, -2.0), Variances: (-3.0, -2.0), Chance: (1.0, 1.0), Probabilities: (1.0,)}


def _first(kind: Any, key: RandomKey, like: Array) -> Any:
    """Returns initial statistics of a site from a broad belief; for numbers at a random draw."""
    if kind in (Numbers, Vectors):
        return kind.of(jax.random.normal(key, like.shape, like.dtype) / 2.0)
    zeros = kind.zeros(like.shape, like.dtype)
    if kind is Precisions:
        broad = Precisions(zeros.logdet + 1.0, zeros.matrix - jnp.eye(like.shape[-1], dtype=like.dtype))
    else:
        broad = kind(*(leaf + value for leaf, value in zip(jax.tree.leaves(zeros), _BROAD[kind], strict=True)))
    return kind.under(broad.belief())
