"""Predictives of missing entries in rows of a graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp, xlogy

from lamu.base.compile_once import is_traced, row_keys
from lamu.convergence import sound_average
from lamu.likelihoods import Likelihood
from lamu.predictives.interface import Predictive, Prepared
from lamu.predictives.lazy import PredictiveRule, draw_in_chunks
from lamu.predictives.padding import compiled_answers, drawn, with_padded_programs
from lamu.record import record, static
from lamu.supports import Support
from lamu.typing import Array, Belief, Inputs, Number, RandomKey, Rows, State, Targets

__all__ = ["Completed", "DrawnRows", "DrawnVariable", "GraphRule", "drawn_rows"]


@compiled_answers(value=0, observed=0, f=1, dispersions=1, covariance=1)
@record
class DrawnVariable(Predictive):
    r"""One variable of rows, \(p(y_\mathrm{mis} \mid y_\mathrm{obs}) = \frac1S \sum_s \prod_j p(y_j \mid f_{sj})\)."""

    # The entries of a row are independent, or jointly normal, only given a draw of its latents: `log_prob` and `sample`
    # are of all missing entries of a row together, mean, variance and intervals of each. Observed entries are fixed.

    value: Any  # `[N, ...]`, some value where an entry is missing
    observed: Any  # whether each entry is there
    law: Likelihood  # of one entry
    f: Any  # the outputs of the law, `[S, N, entries, outputs]`
    dispersions: Any  # its parameters, leaves `[S, N, entries, ...]`
    covariance: Any = None  # of normal entries given a draw, `[S, N, entries, entries]`; None where independent
    number: int = static(default=0)  # of the variable in its rows: given a draw of the latents, each has its own noise

    @property
    def support(self) -> Support:
        return self.law.support

    @property
    def mean(self) -> Array:
        # Observed entries, and the expectation of missing ones; for classes the probabilities.
        return self._shown(self._average(self._moments(self.law.mean)), self.value)

    @property
    def variance(self) -> Array:
        # The variance of each missing entry by the law of total variance, zero where observed.
        return self._shown(self._expected_variance + self._variance_of_means, 0.0)

    @property
    def aleatoric(self) -> Array:
        # The average over draws of the law's variance, or of its entropy in nats (classes); zero where observed.
        if not self.support.has_classes:
            return self._shown(self._expected_variance, 0.0)
        entropies = self._each(lambda own, f: self.law.entropy(own, f))
        return self._shown(self._average(entropies), 0.0)

    @property
    def epistemic(self) -> Array:
        # The variance of the mean over draws, or mutual information in nats (classes).
        if not self.support.has_classes:
            return self._shown(self._variance_of_means, 0.0)
        p = self._average(self._moments(self.law.mean))
        p = p if p.ndim > 2 else jnp.stack([p, 1.0 - p], axis=-1)
        entropy = self._shown(-jnp.sum(xlogy(p, p), axis=-1), 0.0)
        return jnp.maximum(entropy - self.aleatoric, 0.0)

    def log_prob(self, y: Targets) -> Array:
        # Returns the log density of the missing entries of each row together, given the others, `[N]` in nats.
        return sound_average(self.averaged(y), lambda: self.by_draw(y))

    def averaged(self, y: Targets) -> Array:
        """Returns the same in a compiled function: NaN where a draw has no density."""
        return logsumexp(self.by_draw(y), axis=0) - jnp.log(jnp.asarray(float(len(self.f)), self.f.dtype))

    def by_draw(self, y: Targets) -> Array:
        """Returns the log density of the missing entries of each row given each draw, `[S, N]` in nats."""
        missing = ~jnp.reshape(self.observed, (len(self.value), -1))
        if self.covariance is not None:
            return self._normal(jnp.where(missing[None], self._flat(y)[None] - self.f[..., 0], 0.0), missing)
        return jnp.sum(jnp.where(missing[None], self._each(self.law.log_prob, self._flat(y)), 0.0), axis=-1)

    def cdf(self, y: Targets) -> Array:
        # Returns P(Y ≤ y) of each entry; of one that is observed whether it is at most y.
        probability = self._average(self._each(self.law.cdf, self._flat(y)))
        return self._shown(probability, jnp.asarray(self.value <= jnp.asarray(y), probability.dtype))

    def quantile(self, probability: Number) -> Array:
        only = self._missing
        return super().quantile(probability) if only is None else self._placed(only.quantile(probability))

    def interval(self, level: Number = 0.9) -> tuple[Array, Array]:
        only = self._missing
        if only is None:
            return super().interval(level)
        lower, upper = only.interval(level)
        return self._placed(lower), self._placed(upper)

    @cached_property
    def _missing(self) -> DrawnVariable | None:
        """Returns the missing entries as rows of one entry; None where all or none are missing, or it is traced."""
        # Quantiles are searched entry by entry, each in dozens of passes over the draws; observed entries need none.
        if is_traced() or not self.support.ordered:
            return None
        row, entry = np.nonzero(~np.reshape(np.asarray(self.observed), (len(self.value), -1)))
        if len(row) in (0, np.size(self.value)):
            return None
        picked = lambda leaf: np.asarray(leaf)[:, row, entry][:, :, None]
        f, dispersions = picked(self.f), jax.tree.map(picked, self.dispersions)
        none = np.zeros((len(row), 1), f.dtype)
        return with_padded_programs(DrawnVariable(none, none > 0, self.law, f, dispersions))

    def _placed(self, entries: Array) -> Array:
        """Returns the observed values, with the given ones at the missing entries."""
        values = np.array(self.value, entries.dtype)
        values[~np.asarray(self.observed)] = np.ravel(entries)
        return jax.device_put(values)

    def sample(self, key: RandomKey, n: int, first: Number = 0) -> Array:
        # Returns n draws of the rows, `[n, N, ...]`: a draw of the latents, then the missing entries given it.
        by_program = drawn(self, key, n, first)
        if by_program is not None:
            return by_program
        of_number, of_variables = jax.random.split(key)
        of_entries = jax.random.fold_in(of_variables, self.number)
        numbers = jax.random.randint(of_number, (n,), 0, len(self.f))
        rows, entries = self.f.shape[1:3]
        missing = ~jnp.reshape(self.observed, (len(self.value), -1))

        def one(key: RandomKey, number: Array) -> Array:
            f, own = self.f[number], jax.tree.map(lambda leaf: leaf[number], self.dispersions)
            keys = jax.vmap(lambda k: jax.random.split(k, entries))(row_keys(key, rows, first))
            entry = lambda k, own, f: self.law.sample(k, own, f[None])[0]
            y = jax.vmap(jax.vmap(entry))(keys, own, f)
            if self.covariance is not None:
                noise = jax.vmap(lambda k: jax.random.normal(k, f.shape[1:2], f.dtype))(row_keys(key, rows, first))
                y = f[..., 0] + jnp.einsum("nij,nj->ni", self._roots(missing)[number], noise)
            y = jnp.reshape(y, jnp.shape(self.value))
            return jnp.where(self.observed, jnp.asarray(self.value, y.dtype), y)

        return draw_in_chunks(one, jax.random.split(of_entries, n), numbers)

    def _roots(self, missing: Array) -> Array:
        """Returns Cholesky factors of the covariances of missing entries, with ones at observed entries."""
        both, eye = missing[..., :, None] & missing[..., None, :], jnp.eye(missing.shape[-1], dtype=self.f.dtype)
        return jnp.linalg.cholesky(jnp.where(both[None], self.covariance, eye))

    def _normal(self, away: Array, missing: Array) -> Array:
        """Returns the log density of normal entries, `[S, N]` in nats."""
        roots = self._roots(missing)
        white = solve_triangular(roots, away[..., None], lower=True)[..., 0]
        logdet = jnp.sum(jnp.log(jnp.diagonal(roots, axis1=-2, axis2=-1)), axis=-1)
        count = jnp.sum(missing, axis=-1).astype(logdet.dtype)
        return -jnp.sum(white**2, axis=-1) / 2.0 - logdet - count[None] * math.log(2.0 * math.pi) / 2.0

    def _each(self, function: Callable[..., Array], *given: Array) -> Array:
        """Returns a function of dispersions, outputs and given values of every entry, `[S, N, entries, ...]`."""
        entry = lambda own, f, *given: function(own, f[None], *(part[None] for part in given))[0]
        rows = jax.vmap(jax.vmap(entry))
        return jax.vmap(lambda own, f: rows(own, f, *given))(self.dispersions, self.f)

    def _moments(self, moment: Callable[[Any, Array], Array]) -> Array:
        return self._each(lambda own, f: moment(own, f))

    def _flat(self, y: Targets) -> Array:
        return jnp.reshape(jnp.asarray(y, self.value.dtype), self.f.shape[1:3])

    def _average(self, values: Array) -> Array:
        return jnp.mean(values, axis=0)

    @property
    def _expected_variance(self) -> Array:
        return self._average(self._moments(self.law.variance))

    @property
    def _variance_of_means(self) -> Array:
        means = self._moments(self.law.mean)
        return self._average((means - self._average(means)[None]) ** 2)

    def _shown(self, predicted: Array, targets: Any) -> Array:
        """Returns the results in the shape of the data, with `known` at observed entries."""
        shape, observed = jnp.shape(self.value), jnp.asarray(self.observed)
        if predicted.ndim > 2:  # classes
            classes = predicted.shape[-1]
            predicted = jnp.reshape(predicted, (*shape, classes))
            if jnp.ndim(targets):
                targets = jax.nn.one_hot(jnp.asarray(targets, jnp.int32), classes, dtype=predicted.dtype)
            return jnp.where(observed[..., None], jnp.asarray(targets, predicted.dtype), predicted)
        return jnp.where(observed, jnp.asarray(targets, predicted.dtype), jnp.reshape(predicted, shape))


@record
class DrawnRows(Predictive):
    """Several variables of rows by name: results are mappings, and `log_prob` is of all missing entries of a row."""

    variables: Targets  # a `DrawnVariable` by the name of each variable with missing entries, others as their arrays

    @property
    def mean(self) -> Targets:
        # The rows by name, with expectations where NaN was; of a missing label the probabilities.
        return self._asked(lambda part: part.mean, jnp.asarray)

    @property
    def variance(self) -> Targets:
        # The variances by name, zero where observed.
        return self._asked(lambda part: part.variance, _zero)

    @property
    def std(self) -> Targets:
        return jax.tree.map(jnp.sqrt, self.variance)

    @property
    def aleatoric(self) -> Targets:
        # By name, as of one variable.
        return self._asked(lambda part: part.aleatoric, _zero)

    @property
    def epistemic(self) -> Targets:
        # By name, as of one variable.
        return self._asked(lambda part: part.epistemic, _zero)

    @property
    def support(self) -> Support:
        # Raises a TypeError: each variable has its own.
        raise TypeError(f"rows of {', '.join(self.variables)} have no one support; ask variables[name]")

    def quantile(self, probability: Number) -> Targets:
        # Returns the quantiles of every entry by name.
        return self._asked(lambda part: part.quantile(probability), jnp.asarray)

    def interval(self, level: Number = 0.9) -> tuple[Any, Any]:
        # Returns the ends by name, without those of classes, which have none.
        classes = [
            n for n, part in self.variables.items() if isinstance(part, DrawnVariable) and part.support.has_classes
        ]
        ends = DrawnRows({n: part for n, part in self.variables.items() if n not in classes})._asked(
            lambda part: part.interval(level), lambda value: (jnp.asarray(value), jnp.asarray(value))
        )
        return {name: low for name, (low, _) in ends.items()}, {name: high for name, (_, high) in ends.items()}

    def log_prob(self, y: Targets) -> Array:
        # Returns the log density of all that is missing in each row together, given the rest, `[N]` in nats.
        y, parts = self._named(y), {n: part for n, part in self.variables.items() if isinstance(part, DrawnVariable)}
        by_draw = jnp.asarray(sum(part.by_draw(y[name]) for name, part in parts.items()))
        average = logsumexp(by_draw, axis=0) - jnp.log(jnp.asarray(float(len(by_draw)), by_draw.dtype))
        return sound_average(average, lambda: by_draw)

    def cdf(self, y: Targets) -> Targets:
        # Returns P(Y ≤ y) of every missing entry by name; of variables that are observed whether it is at most y.
        y = {**self.variables, **self._named(y)}
        step = lambda name, value: jnp.asarray(jnp.asarray(value) <= jnp.asarray(y[name]), jnp.result_type(float))
        return {
            name: part.cdf(y[name]) if isinstance(part, DrawnVariable) else step(name, part)
            for name, part in self.variables.items()
        }

    def sample(self, key: RandomKey, n: int, first: Number = 0) -> Targets:
        # Returns n draws by name; variables of a row come of the same draw of its latents.
        repeated = lambda value: jnp.broadcast_to(jnp.asarray(value), (n, *jnp.shape(value)))
        return self._asked(lambda part: part.sample(jax.random.clone(key), n, first), repeated)

    def _named(self, y: Targets) -> Any:
        """Returns targets by name, where an array is the only variable with missing entries."""
        missing = [name for name, part in self.variables.items() if isinstance(part, DrawnVariable)]
        if not isinstance(y, Mapping) and len(missing) != 1:
            raise TypeError(f"{' and '.join(missing)} are missing; give them by name, as in {{{missing[0]!r}: ...}}")
        return y if isinstance(y, Mapping) else {missing[0]: y}

    def _asked(self, question: Callable[[DrawnVariable], object], given: Callable[[Any], object]) -> dict[str, Any]:
        return {
            name: question(part) if isinstance(part, DrawnVariable) else given(part)
            for name, part in self.variables.items()
        }


def drawn_rows(entries: Mapping[str, Any]) -> DrawnVariable | DrawnRows:
    """Returns the predictive of variables of rows; a single variable's predictive where there is one."""
    variables = {
        name: part.value
        if part.observed is None
        else with_padded_programs(
            DrawnVariable(part.value, part.observed, part.law, part.f, part.dispersions, part.covariance, number)
        )
        for number, (name, part) in enumerate(entries.items())
    }
    only = next(iter(variables.values())) if len(variables) == 1 else None
    return only if isinstance(only, DrawnVariable) else DrawnRows(variables)


def _zero(value: Any) -> Array:
    return jnp.zeros(jnp.shape(value), jnp.result_type(float))


@record
class Completed(Predictive):
    """Rows with imputed missing entries: moments in closed form, all else by draws on demand."""

    # Observed entries are unchanged. Several variables of rows are given by name.

    means: Any  # for a category the probabilities
    variances: Any  # zero where observed
    model: Any
    belief: Any
    rows: Any
    samples: int = static()
    key: Any

    @cached_property
    def drawn(self) -> DrawnVariable | DrawnRows:
        """The same rows as a mixture over draws of the shared variables and the latents."""
        entries = self.model.completed_by_draws(self.belief, self.rows, self.samples, jax.random.clone(self.key))
        return drawn_rows(entries)

    @property
    def mean(self) -> Targets:
        # The rows, with expectations where NaN was.
        return self.means

    @property
    def variance(self) -> Targets:
        # The variances, zero where observed.
        return self.variances

    @property
    def std(self) -> Targets:
        return jax.tree.map(jnp.sqrt, self.variance)

    @property
    def support(self) -> Support:
        return self.drawn.support

    @property
    def aleatoric(self) -> Any:
        return self.drawn.aleatoric

    @property
    def epistemic(self) -> Any:
        return self.drawn.epistemic

    def quantile(self, probability: Number) -> Any:
        return self.drawn.quantile(probability)

    def interval(self, level: Number = 0.9) -> tuple[Any, Any]:
        return self.drawn.interval(level)

    def log_prob(self, y: Targets) -> Array:
        return self.drawn.log_prob(y)

    def cdf(self, y: Targets) -> Any:
        return self.drawn.cdf(y)

    def sample(self, key: RandomKey, n: int, first: Any = 0) -> Any:
        return self.drawn.sample(key, n, first)


@record
class GraphRule(PredictiveRule):
    """The rule of targets with `predicts_missing`: predicts missing entries from the others of their row."""

    # The shared variables enter by their expected statistics, without draws where there are closed forms. Where latents
    # are drawn, depend on networks or likelihoods, or the belief consists of draws, it is a mixture over draws of
    # latents and of the shared variables.

    def prepare(self, model: object, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        # Raises a TypeError: a graph predicts what is missing in rows, by `predict`.
        raise TypeError("a graph predicts what is missing in rows; ask posterior.predict(rows) with NaN for it")

    def predict(
        self,
        model: Any,
        belief: Belief,
        network_state: State,
        x: Inputs,
        samples: int,
        key: RandomKey,
        offset: Rows | None = None,
    ) -> Any:
        # Returns the rows with what was missing in them.
        if offset is not None:
            raise ValueError("a graph has no linear predictor that an offset could be added to")
        moments = model.completed(belief, x, samples, jax.random.clone(key))
        if moments is None:
            return drawn_rows(model.completed_by_draws(belief, x, samples, key))
        means, variances = moments
        return Completed(means, variances, model, belief, x, samples, key)
