"""What a chain samples: the log of the target over all free parameters, and its rows for who takes some of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.data.batch import Batch
from lamu.density import Density
from lamu.objective import Objective
from lamu.objective.microbatching import parts_of
from lamu.record import record, static
from lamu.typing import Array, Params

__all__ = ["LogTarget"]


@record
class LogTarget:
    r"""The function \(-\ell(\theta)/T\) of the parameters, in nats, and in JAX's default float."""

    # Of a density with constraints it is \(\log p(g(u))/T + \log |\partial g/\partial u|\): no temperature divides a
    # Jacobian.

    objective: Objective  # the loss
    batch: Batch  # all the data
    network_state: Any  # the network's state, which no draw changes
    parts: int = static(default=1)  # in how many parts the rows are summed

    @classmethod
    def of(cls, objective: Objective, batch: Batch, network_state: Any, params: Params, runs: int) -> LogTarget:
        """Returns the target, its rows summed in parts where a gradient of all of them would hold too much."""
        parts = parts_of(objective.model, batch, network_state, params, runs, looped=True)
        return cls(objective, batch, network_state, parts)

    def __call__(self, params: Params) -> Array:
        """Returns the log of the target."""
        model, likely = self.objective.model, self.objective.likelihood_power * self.objective.concentration
        if isinstance(model, Density):
            # There are no rows to sum over, and in a small density what sums them takes a tenth of the time.
            value = model.log_target(params, likely)
            return value.astype(jnp.result_type(float))
        value = self.objective.log_target(params, self.batch, self.network_state, self.parts)
        value = value.astype(jnp.result_type(float))
        return value + self.objective.untempered_volume(params).astype(value.dtype) if model.transforms else value

    def rows(self, params: Params, chosen: Array) -> Array:
        r"""Returns what rows add to the log of the target, \(m_i w_i\, p \log p(y_i \mid \theta) / T\), one each."""
        some = jax.tree.map(lambda leaf: leaf[chosen], self.batch)
        model = self.objective.model.tempered(self.objective.temperature)
        values, _ = model.log_likelihood(params, self.network_state, some)
        factor = (some.mask * some.weight).astype(values.dtype)
        # A padded row counts nothing, even where it is infinite.
        counted = jnp.where(factor > 0, values, jnp.zeros_like(values)) * factor
        return counted.astype(jnp.result_type(float)) * self._per_row

    def log_prior(self, params: Params) -> Array:
        r"""Returns the prior's share of the log of the target, \(\log p(\theta) / T\), with a density's Jacobian."""
        prior = self.objective.model.log_prior(params).astype(jnp.result_type(float)) / self.objective.temperature
        if not self.objective.model.transforms:
            return prior
        return prior + self.objective.untempered_volume(params).astype(prior.dtype)

    @property
    def _per_row(self) -> Any:
        """Rows stand for N, where N is said to be another number than that of the rows."""
        count = jnp.maximum(self.batch.count, 1).astype(jnp.result_type(float))
        power = self.objective.likelihood_power / self.objective.temperature
        return self.objective.data_size / count * power
