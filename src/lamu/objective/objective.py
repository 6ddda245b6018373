"""The loss ℓ(θ) that every algorithm works on, with its scale fixed here and nowhere else."""

# \[ \ell(\theta) = -\,p \sum_{i=1}^N w_i \log p(y_i \mid x_i, \theta) - \log p(\theta), \qquad
#    \bar\ell = \ell / N, \qquad \kappa = N / T \]
#
# Recipes step on the mean scale \(\bar\ell\); a belief has the target \(q \propto \exp(-\kappa\,\bar\ell)\) and
# therefore the precision \(\kappa\,(h + \delta / N)\), with h the curvature of one row. The derivation is in
# `docs/scale.md`.

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.objective.microbatching import in_parts
from lamu.record import record
from lamu.target import Target
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Objective"]


@record
class Objective:
    r"""The loss of a model on N rows of data.

    Attributes:
        model: what is learned.
        data_size: N, the number of rows that the data set has (not the batch).
        temperature: T. The target is \(\exp(-\ell / T)\): likelihood and prior alike; T < 1 is colder.
        likelihood_power: p. It scales the data alone.

    Raises:
        ValueError: for a data size, temperature or power that is not positive.

    Examples:
        >>> import jax, lamu
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=1.0))
        >>> float(lamu.objective.Objective(model, data_size=100, temperature=0.5).concentration)
        200.0
    """

    model: Target
    data_size: Number
    temperature: Number = 1.0
    likelihood_power: Number = 1.0

    def __post_init__(self) -> None:
        for name in ("data_size", "temperature", "likelihood_power"):
            value = getattr(self, name)
            if isinstance(value, int | float):
                if not value > 0:
                    raise ValueError(f"{name} is {value!r}; it must be positive")
                # A float, not an int: integers would be a second dtype in every formula.
                object.__setattr__(self, name, float(value))

    @property
    def concentration(self) -> Number:
        r"""\(\kappa = N / T\), the factor between the mean loss and the log of the target."""
        return self.data_size / self.temperature

    def negative_log_likelihood(
        self,
        params: Params,
        batch: Batch,
        state: Any,
        key: RandomKey | None = None,
        train: bool = False,
        parts: int = 1,
    ) -> tuple[Array, Any]:
        """Returns the batch's estimate of −p Σ w log p(y | x, θ) / N in nats a row, and the network's new state.

        The estimate divides by the real rows of the batch, which is what N/B times the batch's sum, over N, comes to.

        Args:
            params: the free parameters.
            batch: the rows.
            state: the network's state.
            key: for random layers.
            train: training mode.
            parts: in how many parts the rows are taken, as `lamu.objective.microbatching.parts_of` says; with more
                than one the state stays as it is.
        """
        model = self.model.tempered(self.temperature)
        if parts == 1:
            values, state = model.log_likelihood(params, state, batch, key, train)
            total = batch.total(values)
        else:
            of = lambda params, some: some.total(model.log_likelihood(params, state, some, key, train)[0])
            total = in_parts(of, params, batch, parts)
        count = jnp.maximum(batch.count, 1).astype(total.dtype)
        return -self.likelihood_power * total / count, state

    def negative_log_prior(self, params: Params) -> Array:
        """Returns −log p(θ) / N in nats a row."""
        return -self.model.log_prior(params) / self.data_size

    def mean_loss(
        self,
        params: Params,
        batch: Batch,
        state: Any,
        key: RandomKey | None = None,
        train: bool = False,
        parts: int = 1,
    ) -> tuple[Array, Any]:
        """Returns the batch's estimate of ℓ(θ) / N in nats a row, and the network's new state; arguments as above."""
        value, state = self.negative_log_likelihood(params, batch, state, key, train, parts)
        return value + self.negative_log_prior(params), state

    def log_target(self, params: Params, batch: Batch, state: Any, parts: int = 1) -> Array:
        """Returns −ℓ(θ) / T in nats, the posterior's log density up to a constant, for a batch that is all the data."""
        return -self.concentration * self.mean_loss(params, batch, state, parts=parts)[0]

    def untempered_volume(self, params: Params) -> Array:
        r"""Returns what a sampler adds to the log target in nats, so that no temperature divides a Jacobian.

        \[ (1 - s) \log |\partial g / \partial u| \]

        with s = 1/T where the Jacobian is a part of the prior, and p/T where it is one of a density without rows.

        Args:
            params: the free parameters.
        """
        power = 1.0 if self.model.has_rows else self.likelihood_power
        volume = self.model.log_volume(params)
        return volume - volume * tree.cast(power / self.temperature, volume)

    def row_factor(self, batch: Batch) -> Array:
        """Returns what each row counts in the mean loss, mask · weight · power / rows, shape `[batch]`."""
        return batch.mask * batch.weight * self.likelihood_power / jnp.maximum(batch.count, 1)
