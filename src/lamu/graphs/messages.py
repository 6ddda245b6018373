"""A graph as a function F of statistics: the log joint at T(θ), its expectation at μ, and its messages as gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from lamu.base.compile_once import lenient, row_keys
from lamu.conjugate_target import MessageTarget, independent_groups
from lamu.data.arrays import Incomplete
from lamu.data.batch import Batch
from lamu.families import Product
from lamu.graphs.elimination import Eliminated, Local, converged_locals, marginalise, require_key
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, in_dtype, log_joint, prepared
from lamu.graphs.network import NetworkSite, applications
from lamu.graphs.normal_factors import MultivariateNormalFactor, NormalFactor
from lamu.graphs.potential import AtMean, Potential
from lamu.graphs.program import GraphSite
from lamu.graphs.reading import in_blocks, over_rows
from lamu.graphs.start import first_beliefs, first_dispersions, likelihoods_of
from lamu.graphs.statistics import Categories, States
from lamu.graphs.words import WordsFactor
from lamu.typing import Array, Data, Numeric, Params, RandomKey

__all__ = ["GraphMessages", "condensed"]


# \[ \sum_i w_i\, b(y_i) = \sum_j w'_j\, b(y'_j) \quad\text{for every quadratic } b, \qquad
#    \sum_j w'_j = \sum_i w_i,\; \sum_j w'_j y'_j = \sum_i w_i y_i,\;
#    \sum_j w'_j y'_j y_j'^\top = \sum_i w_i y_i y_i^\top \]
#
# 2 D rows suffice, at the mean plus and minus the scaled eigenvectors of the scatter. Gaussian latents with one
# observed vector are such rows: their covariance is that of every row, and their mean linear in y.


def condensed(sites: tuple[GraphSite, ...], local: Mapping[str, Local], batch: Batch) -> Batch | None:
    """Returns fewer rows that replace all of a batch, or None if the bound of a row is not quadratic."""
    samples_latents = any(local_choice.random for local_choice in local.values())
    if samples_latents or not _quadratic(sites, batch):
        return None
    ((name, y),) = batch.y.items()
    rows, D = y.shape
    if rows <= 2 * D:
        return None
    weight = jnp.asarray(batch.mask * batch.weight, y.dtype)
    total = jnp.sum(weight)
    mean = weight @ y / total
    away = (y - mean[None]) * jnp.sqrt(weight)[:, None]
    sizes, directions = jnp.linalg.eigh(away.T @ away)
    steps = directions.T * jnp.sqrt(jnp.maximum(sizes, 0.0) * D / total)[:, None]
    ones = jnp.ones(2 * D, y.dtype)
    repeat_first = lambda leaf: jnp.broadcast_to(leaf[:1], (2 * D, *leaf.shape[1:]))
    return Batch(
        x=repeat_first(batch.x),
        y={name: jnp.concatenate([mean[None] + steps, mean[None] - steps])},
        mask=ones * (batch.count / (2 * D)),
        weight=ones * (total / batch.count),
    )


def _quadratic(sites: tuple[GraphSite, ...], batch: Batch) -> bool:
    """Returns whether rows observe one vector without missing entries, and are Gaussian with shared precisions."""
    if len(batch.y) != 1 or batch.offset is not None:
        return False
    (name,) = batch.y
    latent = {site.name for site in sites} - {name}
    gaussian = all(isinstance(site.factor, NormalFactor | MultivariateNormalFactor) for site in sites)
    has_networks = any(True for _ in applications(sites))  # networks are not linear
    if name not in {site.name for site in sites} or not gaussian or has_networks:
        return False
    fixed = not any(site.factor.arguments["precision"].names & {name, *latent} for site in sites)
    separate = all(
        len({site.name, *site.factor.names} & latent) < 2 and name not in site.factor.names for site in sites
    )
    y: Any = batch.y[name]
    return (
        fixed and separate and not isinstance(y, Incomplete) and y.ndim == 2 and jnp.issubdtype(y.dtype, jnp.floating)
    )


# Sweeps, and the least number of documents. On 200 documents of five topics 35 % of single random starts ended at least
# 3.5 nats below the best, some by 2,000; the best of eight such starts did so by .1 for none of twelve seeds. Ten
# sweeps choose no better.
_OF_DOCUMENTS = (5, 250)
# Probabilities per document. Topics fitted to fewer documents stay at those few's random start: on 2,000 documents of
# 20 topics and 1,000 words the ends of five seeds had a perplexity of 353 to 368 by 250 documents, 325 by 1,000 and 324
# by all, where single starts had 324 to 336.
_A_DOCUMENT = 20

G = TypeVar("G", bound="GraphMessages")


class GraphMessages(MessageTarget):
    """Evaluation of a `lamu.Graph` at statistics of the shared variables."""

    sites: Any  # the sites of the program
    local: Any  # a local by the name of a latent, or None
    columns: tuple[str, ...]  # the names of the inputs
    networks: tuple[NetworkSite, ...]
    given: Any  # statistics under a belief, by name, of fixed variables

    @property
    def shared(self) -> tuple[GraphSite, ...]:
        """The sites of the shared variables."""
        return tuple(site for site in self.sites if not site.in_rows)

    @property
    def in_rows(self) -> tuple[GraphSite, ...]:
        """The sites of a row."""
        return tuple(site for site in self.sites if site.in_rows)

    @property
    def learned(self) -> tuple[GraphSite, ...]:
        """The sites of the shared variables that are not fixed."""
        fixed = set() if self.frozen is None else {name for name, part in self.frozen.items() if jax.tree.leaves(part)}
        return tuple(site for site in self.shared if site.name not in fixed)

    def row_bounds(
        self,
        statistics: Mapping[str, Any],
        batch: Batch,
        temperature: Any = 1.0,
        key: RandomKey | None = None,
        step: Any = None,
        first: Any = 0,
    ) -> Array:
        r"""Returns the log density of every row, with its latents eliminated, in nats, `[batch]`.

        At T(θ) it is \(\log p(x_i \mid \theta)\), or its bound if latents meet; at μ the best bound of the belief,
        \(\max_{q(z)} E_q[\log p(x_i, z \mid \theta)]/T + H(q(z))\).

        Args:
            statistics: T or μ of every shared variable, by name; for networks their weights.
            batch: the rows.
            temperature: T.
            key: for locals that sample; a fixed one where None.
            step: number of training steps so far, for locals that warm up; None outside of training.
            first: the number of the first row, if these are part of more: a row's samples depend on its number.
        """
        return self._eliminated(statistics, batch.y, temperature, key, step, first, values_only=True)[0]

    def row_latents(
        self,
        statistics: Mapping[str, Any],
        data: Mapping[str, Any],
        temperature: Any = 1.0,
        key: RandomKey | None = None,
        first: Any = 0,
    ) -> dict[str, Any]:
        """Returns the natural parameters of every row's latents by name, with a leading axis of rows.

        Args:
            statistics: T or μ of every shared variable, by name.
            data: arrays by name, `[rows, ...]`.
            temperature: T.
            key: for locals that sample; a fixed one where None.
            first: the number of the first row, as in `row_bounds`.
        """
        return self._eliminated(statistics, data, temperature, key, None, first)[1]

    def _eliminated(
        self,
        statistics: Mapping[str, Any],
        data: Data,
        temperature: Any,
        key: Any,
        step: Any = None,
        first: Any = 0,
        values_only: bool = False,
    ) -> Eliminated:
        environment = Environment(dict(statistics), temperature=temperature, step=step, values_only=values_only)
        dtype = dtype_of(statistics)
        sites, local = prepared(in_dtype(self.in_rows, dtype), environment), self.local or {}

        def row_of(data: Mapping[str, Any]) -> Row:
            return Row.of(sites, self.columns, data, temperature, dtype)

        def eliminate(data: Mapping[str, Any], natural: dict[str, Any], key: Any) -> Eliminated:
            return marginalise(local, row_of(data), environment, key, natural)

        natural = over_rows(lambda data: converged_locals(local, row_of(data), environment), data)
        key = require_key(local, key)
        if key is None:
            return in_blocks(lambda data, natural: eliminate(data, natural, None), data, natural)
        return in_blocks(eliminate, data, natural, row_keys(key, len(jax.tree.leaves(data)[0]), first))

    def shared_log_joint(self, statistics: Mapping[str, Any]) -> Array:
        """Returns the log density of the shared variables in nats, a scalar: at T(θ) the log prior."""
        return log_joint(in_dtype(self.shared, dtype_of(statistics)), Environment(dict(statistics)))

    @property
    def blocks(self) -> tuple[tuple[str, ...], ...]:
        fixed = {site.name for site in self.shared} - set(self.kinds)
        groups = independent_groups(
            (site.name for site in self.shared), ({site.name, *site.factor.names} for site in self.sites)
        )
        free = (tuple(name for name in group if name not in fixed) for group in groups)
        return tuple(group for group in free if group)

    @property
    def rows_add_up(self) -> bool:
        """Whether λ is a sum over rows for any belief: variables and latents of a row do not meet."""
        above = {name for site in self.in_rows for name in site.factor.names}
        met = any(site.name in above for site in self.in_rows) or bool(likelihoods_of(self.in_rows))
        return super().rows_add_up and not met

    @property
    def kinds(self) -> dict[str, Any]:
        """The statistics of the shared variables by name, without the fixed ones."""
        return {site.name: site.kind for site in self.learned}

    def require_messages(self, asked: str, exact: bool = True) -> None:
        """Raises a TypeError for a likelihood without exact messages, if all must be exact."""
        if asked in ("em()", "svi()"):
            self.require_shared()
        for name, likelihood in likelihoods_of(self.in_rows).items() if exact else ():
            above = next(site.factor.names for site in self.in_rows if site.name == name)
            raise TypeError(
                f"{asked} takes exact messages, and {name!r} has the likelihood {likelihood.name} of outputs that "
                f"{', '.join(sorted(above)) or 'inputs'} make; use ncvmp() or svi(), which take its expectation by "
                "quadrature, or ivon()"
            )
        for site in self.in_rows:
            factor, about = site.factor, sorted(site.factor.names & set(self.kinds))
            if about and isinstance(factor, Potential) and factor.width > 2 and isinstance(factor.expectation, AtMean):
                raise TypeError(
                    f"{asked} takes the expectation of a likelihood, and that of {factor.likelihood.name}, which has "
                    f"{factor.width} outputs for each target of {site.name!r}, is taken at their mean, so that "
                    f"{', '.join(about)} would keep the deviation of the prior; use ivon() or nuts()"
                )

    def require_shared(self) -> None:
        """Raises a TypeError if there is nothing to learn."""
        if not (self.shared or self.networks or self.local or likelihoods_of(self.in_rows)):
            raise TypeError(
                "the program has no variables that all rows share, so that there is nothing to learn; take vmp(), "
                "whose posterior answers local, predict and log_prob of rows"
            )

    def first_belief(self, key: RandomKey, batch: Batch, temperature: Any) -> Product:
        # Of svi, whose likelihoods have an expectation by quadrature.
        self.require_messages("svi()", exact=False)
        return super().first_belief(key, batch, temperature)

    def fewer_rows(self, batch: Batch) -> Batch | None:
        """Returns fewer rows with the same sums, if the bound of a row is quadratic in its observations."""
        return condensed(self.in_rows, self.local or {}, batch)

    def product(self, beliefs: Mapping[str, Any]) -> Product:
        return Product(dict(beliefs))

    def values(self, theta: Mapping[str, Any]) -> dict[str, Any]:
        """Returns T(θ) of values of the shared variables, by name; for networks and locals their weights."""
        with lenient():
            statistics = {site.name: site.kind.of(theta[site.name]) for site in self.shared if site.name in theta}
        return {**theta, **statistics, **(self.given or {})}

    def held(self) -> dict[str, Any]:
        """Returns the statistics of fixed variables, by name.

        Raises:
            TypeError: for a network that is not fixed: no belief about its weights has a closed form.
        """
        frozen = {name: part for name, part in (self.frozen or {}).items() if jax.tree.leaves(part)}
        free = [network.name for network in self.networks if network.name not in frozen]
        if free:
            raise TypeError(
                f"no belief about the weights of the network {free[0]!r} has a closed form; learn them by another "
                f'algorithm beside this one, blocks({{"{free[0]}/*": ivon(), "*": svi()}}), or all by adam() or ivon()'
            )
        return self.values(self.constraints.constrain(frozen)[0])

    def first_beliefs(
        self,
        key: RandomKey,
        batch: Batch,
        temperature: Any = 1.0,
        given: Mapping[str, Any] | None = None,
        *,
        number: Numeric | None = None,
    ) -> dict[str, Any]:
        """Returns initial beliefs about the shared variables, by name: after one update from random latents.

        Args:
            key: a random key.
            batch: some rows.
            temperature: T.
            given: the statistics of variables outside the belief; of the fixed ones where None.
            number: index of the restart in ascents over all rows; the first of a factor model is the same for every
                key. None for other runs.
        """
        given_statistics = self.held() if given is None else dict(given)
        shared, in_rows, given_statistics = in_dtype((self.shared, self.in_rows, given_statistics), batch.weight.dtype)
        return first_beliefs(
            key, shared, in_rows, self.columns, self.blocks, batch, temperature, given_statistics, number
        )

    @property
    def draws_latents(self) -> bool:
        return any(local.random for local in (self.local or {}).values())

    def has_categories(self, batch: Batch) -> bool:
        """Whether rows have latent categories or states, and nothing in them is sampled or needs quadrature."""
        observed = {name.split(".")[0] for name in batch.y}
        latent = any(issubclass(s.kind, Categories | States) and s.name not in observed for s in self.in_rows)
        closed = all(site.factor.exact for site in self.in_rows) and not self.networks
        return latent and closed and not self.draws_latents

    def has_alike_members(self, batch: Batch) -> bool:
        observed = {name.split(".")[0] for name in batch.y}
        return any(site.factor.exchangeable and site.name in observed for site in self.in_rows)

    @property
    def short_ascent(self) -> tuple[int, int]:
        shapes = [site.factor.topic.shape or (0,) for site in self.in_rows if isinstance(site.factor, WordsFactor)]
        if not shapes:
            return super().short_ascent
        sweeps, least = _OF_DOCUMENTS
        return sweeps, max(least, *(math.prod(shape) // _A_DOCUMENT for shape in shapes))

    @property
    def longest_series(self) -> int:
        return max([1, *(s.shape[0] for s in self.in_rows if issubclass(s.kind, States) and s.shape is not None)])

    def first_dispersions(self, batch: Batch) -> Params:
        """Returns the initial dispersions that likelihoods learn, by the names of their targets."""
        return first_dispersions(self.in_rows, batch)

    def at_values(self: G) -> G:
        """Returns the graph for known values of the shared variables: no likelihood's expectation is taken.

        The expectation over a variable with a `given` belief is still taken.
        """
        under = frozenset(self.given or {})
        at_known = lambda factor: factor if factor.names & under else factor.at_values()
        return replace(self, sites=tuple(replace(site, factor=at_known(site.factor)) for site in self.sites))

    def importance_weighted(self: G) -> G:
        """Returns the graph whose row values are logs of unbiased estimates of their densities, if locals sample."""
        return (
            self
            if not self.local
            else replace(self, local={n: local.importance_weighted() for n, local in self.local.items()})
        )
