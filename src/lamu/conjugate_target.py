"""Targets with exact messages: the expected log joint is a function of the statistics of the shared variables."""

# \[ F(s) = \sum_i F_i(s) + F_0(s), \qquad
#    F(T(\theta)) = \log p(\theta, D), \qquad F(\mu) = E_q[\log p(\theta, D)] \]
#
# A prior that enters the belief exactly is \(\lambda_0\) instead of \(F_0\).

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from lamu import tree
from lamu.convergence import sound_average
from lamu.data.batch import Batch
from lamu.families.interface import finite_draws
from lamu.target import ConstrainedTarget, Target
from lamu.typing import Array, Belief, Numeric, Params, PyTree, RandomKey, State, Statistics

__all__ = ["ConjugateTarget", "MessageTarget", "conjugate_target", "independent_groups", "message_target", "updated"]


class ConjugateTarget(Target):
    """Base class of targets for algorithms in natural parameters, such as `lamu.ConjugateModel` and `lamu.Graph`."""

    @abstractmethod
    def first_belief(self, key: RandomKey, batch: Batch, temperature: Numeric) -> Belief:
        """Returns the belief that runs start from, an exponential family or a product of such families."""

    @abstractmethod
    def natural_prior(self, belief: Belief, temperature: Numeric) -> Statistics:
        """Returns λ₀/T, a tree like `belief.to_natural()`; zeros where the prior is a part of `shared_log_joint`."""

    def expected_log_prior(self, belief: Belief) -> Numeric:
        r"""Returns \(E_q[\log p(\theta)]\) in nats of a prior that enters the belief exactly; else zero.

        Args:
            belief: q.
        """
        del belief
        return 0.0

    @abstractmethod
    def statistics(self, mu: Statistics) -> Statistics:
        """Returns the expectation parameters of a belief as the statistics that the two functions below take."""

    def first_dispersions(self, batch: Batch) -> Params:
        """Returns the initial values of the dispersions that are learned as a point; none by default.

        Args:
            batch: some rows.
        """
        del batch
        return {}

    @abstractmethod
    def row_bounds(
        self, statistics: Statistics, batch: Batch, temperature: Numeric = 1.0, key: RandomKey | None = None
    ) -> Array:
        r"""Returns \(\max_{q(z)} E_q[\log p(x_i, z \mid \theta)]/T + H(q(z))\) of every row, `[batch]` in nats."""

    def row_log_prob(self, belief: Belief, batch: Batch, samples: int, key: RandomKey) -> Array:
        """Returns the log density of every row, averaged over draws."""
        values = _log_likelihoods(self, finite_draws(belief.draws(key, samples)), batch)
        return sound_average(logsumexp(values, axis=0) - jnp.log(float(len(values))), lambda: values)

    @abstractmethod
    def shared_log_joint(self, statistics: Statistics) -> Array:
        """Returns the log density of the shared variables in nats; zero where the prior enters the belief exactly."""


@jax.jit
def _log_likelihoods(target: Target, draws: Params, batch: Batch) -> Array:
    """Returns the log density of every row given each draw, `[S, N]`."""
    return jnp.asarray(jax.lax.map(lambda params: target.log_likelihood(params, {}, batch)[0], draws))


class MessageTarget(ConjugateTarget, ConstrainedTarget):
    """Base class of targets for coordinate ascent: variables by name, each with its own family."""

    expansion: Any = None  # moves along directions that the likelihood is constant in, after a sweep; or None

    @property
    @abstractmethod
    def kinds(self) -> Mapping[str, Any]:
        """The statistics of the variables by name, classes of `lamu.graphs.statistics`."""

    @property
    @abstractmethod
    def blocks(self) -> tuple[tuple[str, ...], ...]:
        """The variables in groups within which no factor joins two, in the order of their updates."""

    @property
    def rows_add_up(self) -> bool:
        """Whether λ is a sum over rows for any belief: no factor joins two variables."""
        return len(self.blocks) == 1

    @abstractmethod
    def require_messages(self, asked: str, exact: bool = True) -> None:
        """Raises a TypeError for a variable without messages."""

    @abstractmethod
    def first_beliefs(
        self, key: RandomKey, batch: Batch, temperature: Numeric = 1.0, *, number: Numeric | None = None
    ) -> dict[str, Belief]:
        """Returns initial beliefs, by name; `number` is the number of the start among several ascents."""

    def held(self) -> dict[str, Belief]:
        """Returns the statistics of variables that no belief is about, by name; none by default."""
        return {}

    @abstractmethod
    def has_categories(self, batch: Batch) -> bool:
        """Whether categories of rows are summed out, so that one of several starts may be much better than others."""

    def has_alike_members(self, batch: Batch) -> bool:
        """Whether members of a plate, such as topics, are exchangeable and need a random start; not by default.

        Args:
            batch: some rows.
        """
        del batch
        return False

    @property
    def longest_series(self) -> int:
        """The largest number of times of one row."""
        return 1

    @property
    def short_ascent(self) -> tuple[int, int]:
        """The number of sweeps of the ascent that judges a start, and its largest number of rows."""
        return _SWEEPS, max(1, _POINTS // self.longest_series)

    def first_belief(self, key: RandomKey, batch: Batch, temperature: Numeric) -> Belief:
        """Returns beliefs after one update from random latents; of a mixture the best of several after some sweeps."""
        if self.has_categories(batch):
            best = best_starts(self, key, batch, temperature, 1, _STARTS)
            return self.product(jax.tree.map(lambda leaf: leaf[0], best))
        return self.product(jax.jit(self.first_beliefs)(key, batch, jnp.asarray(temperature, batch.weight.dtype)))

    def starts(self, key: RandomKey, batch: Batch, temperature: Numeric, count: int) -> dict[str, Belief]:
        """Returns initial beliefs of several ascents over all rows, by name, along a leading axis."""
        # Judged by too few of a run's rows, topics would be fitted to the noise of those rows.
        enough = len(batch.mask) < _POINTS or self.short_ascent[1] <= 2 * len(batch.mask)
        if self.has_categories(batch) or (self.has_alike_members(batch) and enough):
            return best_starts(self, key, batch, temperature, count, max(_STARTS_OF_ASCENT, count))
        T = jnp.asarray(temperature, batch.weight.dtype)
        first = jax.jit(lambda key, number: self.first_beliefs(key, batch, T, number=number))
        return jax.vmap(first)(jax.random.split(key, count), jnp.arange(count))

    def natural_prior(self, belief: Belief, temperature: Numeric) -> Statistics:
        """Returns zeros: the priors are factors of the target."""
        return tree.zeros_like(belief.to_natural())

    def moments(self, beliefs: Mapping[str, Belief]) -> dict[str, Statistics]:
        """Returns μ of beliefs, by name, and the statistics of variables without a belief."""
        return {**self.held(), **{name: kind.under(beliefs[name]) for name, kind in self.kinds.items()}}

    def statistics(self, mu: Statistics) -> dict[str, Statistics]:
        """Returns μ by name, in records, and the statistics of variables without a belief."""
        return {**self.held(), **{name: kind(*jax.tree.leaves(mu[name])) for name, kind in self.kinds.items()}}

    @abstractmethod
    def values(self, theta: Mapping[str, Params]) -> dict[str, Params]:
        """Returns T(θ) of values, by name."""

    @abstractmethod
    def product(self, beliefs: Mapping[str, Belief]) -> Belief:
        """Returns the belief about all variables."""

    def fitted_to(self, rows: PyTree) -> PyTree:
        """Returns the target given the number of rows that a point was fitted to; itself by default.

        Args:
            rows: the number of rows.
        """
        del rows
        return self

    def fewer_rows(self, batch: Batch) -> Batch | None:
        """Returns fewer rows with the same likelihood, such as grouped ones, or None.

        Args:
            batch: the rows.
        """
        del batch


def independent_groups(names: Iterable[str], meetings: Iterable[Collection[str]]) -> tuple[tuple[str, ...], ...]:
    """Returns variables, in their order, in groups of which no two are in one of the `meetings`."""
    # Given the rows' latents, the variables of a group are independent: one step updates all of them.
    groups: list[list[str]] = []
    met = [set(meeting) for meeting in meetings]
    for name in names:
        beside = set().union(*(meeting for meeting in met if name in meeting))
        group = next((group for group in groups if not beside & set(group)), None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    return tuple(tuple(group) for group in groups)


def updated(
    log_joint: Callable[[Statistics], Array],
    statistics: Mapping[str, Statistics],
    blocks: Iterable[tuple[str, ...]],
    kinds: Mapping[str, Any],
) -> dict[str, Belief]:
    """Returns the beliefs after one update of all variables, group after group."""
    beliefs: dict[str, Belief] = {}
    for names in blocks:
        own = {name: statistics[name] for name in names}
        slopes = jax.grad(lambda own, rest=statistics: log_joint({**rest, **own}))(own)
        for name in names:
            beliefs[name] = slopes[name].belief()
            statistics = {**statistics, name: kinds[name].under(beliefs[name])}
    return beliefs


# Starts, sweeps of coordinate ascent from each, and points that judge them: rows, or times of series. On eight
# development seeds of 200,000 rows of a mixture, svi found all five centres in none from one start, and in eight from
# the best of these starts. Over 20 seeds of vmp on fourteen mixtures and hidden Markov models 31 % of single starts
# ended at least five nats below the best, and none of the best of these starts. A run starts from these points alone:
# with 2,000 of 20,000 rows, 24 columns and 20 components three seeds ended 12,800 to 15,900 nats lower.
_STARTS, _SWEEPS, _POINTS = 16, 40, 4_096
_STARTS_OF_ASCENT = 8  # for ascents over all rows; after 20 sweeps the bounds of some starts still do not differ


def best_starts(
    target: MessageTarget, key: RandomKey, batch: Batch, temperature: Numeric, count: int, starts: int
) -> dict[str, Belief]:
    """Returns the beliefs of the starts with the best bounds after ascent on some rows, by name, the best first."""
    # \[ \lambda_k \leftarrow \nabla_{\mu_k} E_q[\log p]/T, \qquad
    #    \mathcal L = E_q[\log p]/T + H(q) \]
    #
    # A step on a minibatch moves a component little once ρ has fallen, so a component that starts between two groups of
    # rows stays there.
    T = jnp.asarray(temperature, batch.weight.dtype)
    steps, rows = target.longest_series, batch
    sweeps, most = target.short_ascent
    if len(batch.mask) > most:  # at random, since rows of one component may be adjacent
        places = jax.random.permutation(jax.random.fold_in(key, 0), len(batch.mask))[:most]
        rows = jax.tree.map(lambda leaf: leaf[places], batch)

    def ascended(numbered: tuple[RandomKey, Numeric]) -> State:
        def energy(own: Statistics, statistics: Statistics) -> Array:
            all_statistics = {**statistics, **own}
            return rows.total(target.row_bounds(all_statistics, rows, T)) + target.shared_log_joint(all_statistics) / T

        def sweep(_: Numeric, state: State) -> State:
            beliefs, value = state
            statistics = target.moments(beliefs)
            for number, names in enumerate(target.blocks):
                own = {name: statistics[name] for name in names}
                bound, slopes = jax.value_and_grad(energy)(own, statistics)
                if number == 0:
                    entropy = [belief.entropy() for belief in beliefs.values()]
                    value = jnp.asarray(sum(entropy, bound), value.dtype)
                new = {name: slopes[name].belief() for name in names}
                beliefs = jax.tree.map(lambda new_leaf, old: new_leaf.astype(old.dtype), {**beliefs, **new}, beliefs)
                statistics = {**statistics, **{name: target.kinds[name].under(beliefs[name]) for name in names}}
            return beliefs, value

        first = target.first_beliefs(numbered[0], rows, T, number=numbered[1])
        return jax.lax.fori_loop(0, sweeps, sweep, (first, jnp.asarray(-jnp.inf, T.dtype)))

    # The steps of a series cost as much as for one start; the rows of all starts at once would fill the cache.
    side_by_side = jax.vmap if steps > 1 else lambda f: lambda numbered: jax.lax.map(f, numbered)
    beliefs, values = jax.jit(side_by_side(ascended))((jax.random.split(key, starts), jnp.arange(starts)))
    best = jax.lax.top_k(jnp.where(jnp.isfinite(values), values, -jnp.inf), count)[1]
    return jax.tree.map(lambda leaf: leaf[best], beliefs)


def conjugate_target(target: Any) -> ConjugateTarget:
    """Narrows the type of a target to one with exact messages."""
    if isinstance(target, ConjugateTarget):
        return target
    raise TypeError(
        f"exact messages need a lamu.Graph or a lamu.ConjugateModel, and not {target.name}; use ivon(), or conjugate() "
        "where a network is linear"
    )


def message_target(target: Any) -> MessageTarget:
    """Narrows the type of a target to one with messages between variables."""
    if isinstance(target, MessageTarget):
        return target
    raise TypeError(
        f"messages between variables need a lamu.Graph or lamu.from_numpyro, not {target.name}; use ivon(), nuts()"
    )
