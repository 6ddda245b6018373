r"""Single-sample estimators of \(E_q[-\log p(D|\theta)]\), with one sample of the weights per batch or per example."""

# All three have the same expectation. With a sample per example, the examples' gradients are independent and the
# variance of their average falls as 1/B; with one sample per batch it does not fall with B.

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from lamu.algorithms.descent.local_reparameterisation import Plan, anew, flipped, local
from lamu.algorithms.descent.per_example_forward import outputs_by_rows
from lamu.data.batch import with_offset
from lamu.families.base_distributions import BaseDistribution, StandardNormal
from lamu.families.location_scale import LocationScale
from lamu.objective import BatchLoss
from lamu.objective.curvature.reader.flat_jaxpr import Program
from lamu.objective.curvature.reader.parameter_uses import Site
from lamu.record import record
from lamu.typing import Array, RandomKey

__all__ = ["Estimator", "Flipout", "Global", "LocalReparameterisation"]


@runtime_checkable
class Estimator(Protocol):
    """One draw's estimate of the expected loss."""

    joint: bool  # whether all rows see one and the same θ, which divergences that weigh draws need

    def require(self, base_distribution: BaseDistribution) -> None:
        """Raises a TypeError where the estimator cannot sample from the base distribution."""
        ...

    def value(self, key: RandomKey, belief: LocationScale, loss: BatchLoss) -> tuple[Array, Any]:
        """Returns an estimate of the mean loss in nats a row, and the network's new state."""
        ...


@record
class Global:
    r"""One draw \(\theta = m + s z\) for all rows of the batch."""

    joint = True

    def require(self, base_distribution: BaseDistribution) -> None:
        """Accepts every base distribution."""

    def value(self, key: RandomKey, belief: LocationScale, loss: BatchLoss) -> tuple[Array, Any]:
        """Returns the mean loss at one draw, and the network's new state."""
        draw_key, layer_key = jax.random.split(key)
        return loss.value(belief.sample(draw_key), loss.rest, layer_key)


@record
class LocalReparameterisation:
    """What comes out of a layer is drawn, in the place of its weights: a draw a row, at the price of two products."""

    # For a dense layer with inputs a and independent normal weights, \(w_{jk} \sim N(m_{jk}, s_{jk}^2)\),
    #
    # \[ y_k \sim N\Big( \sum_j a_j m_{jk},\; \sum_j a_j^2 s_{jk}^2 \Big) \]
    #
    # exactly and independently. Where a row uses a weight at several places (a convolution, a layer over positions) the
    # outputs are correlated, and drawn apart they would be those of another model: such layers are drawn as `Flipout`
    # draws them, which keeps the expectation. What cannot be read has one draw for all rows, and a line in the log.
    #
    # Source: Kingma, Salimans & Welling (2015), section 2.3.

    joint = False

    def require(self, base_distribution: BaseDistribution) -> None:
        """Accepts the standard normal."""
        if not isinstance(base_distribution, StandardNormal):
            raise TypeError(
                f"LocalReparameterisation() adds up normal weights, not those of {type(base_distribution).__name__}(); "
                "use Flipout() or Global()"
            )

    def value(self, key: RandomKey, belief: LocationScale, loss: BatchLoss) -> tuple[Array, Any]:
        """Returns the mean loss with a draw of the outputs of every layer, and the network's (empty) state."""

        def choose(program: Program, site: Site) -> Plan | None:
            return local(program, site) or flipped(program, site) or anew(program, site, gaussian=True)

        return _mean_loss(loss, outputs_by_rows(key, belief, loss, choose, type(self).__name__))


@record
class Flipout:
    r"""One draw of the weights for all rows, with signs of each row's own: \((x_i \circ u_i)\,\Delta \circ v_i\)."""

    # With \(\Delta = s z\) and u, v of independent signs, \(\Delta \circ u_i v_i^\top\) is distributed as Δ, and for
    # different rows uncorrelated. A convolution's signs are one a channel. At the price of two products; the belief
    # need be symmetric only. What cannot be read has one draw for all rows, and a line in the log.
    #
    # Source: Wen et al. (2018), section 3.

    joint = False

    def require(self, base_distribution: BaseDistribution) -> None:
        """Accepts symmetric base distributions."""
        if not base_distribution.symmetric:
            raise TypeError(
                f"Flipout() changes signs, and {type(base_distribution).__name__}() is not symmetric; use Global()"
            )

    def value(self, key: RandomKey, belief: LocationScale, loss: BatchLoss) -> tuple[Array, Any]:
        """Returns the mean loss with signs of every row's own, and the network's (empty) state."""

        def choose(program: Program, site: Site) -> Plan | None:
            return flipped(program, site) or anew(program, site, gaussian=False)

        return _mean_loss(loss, outputs_by_rows(key, belief, loss, choose, type(self).__name__))


def _mean_loss(loss: BatchLoss, f: Array) -> tuple[Array, Any]:
    objective, likelihood = loss.objective, loss.objective.model.likelihood
    values = likelihood.log_prob(loss.rest, with_offset(f, loss.batch.offset), loss.batch.y)
    counts = objective.row_factor(loss.batch).astype(values.dtype)
    total = -jnp.sum(jnp.where(counts > 0, values, jnp.zeros_like(values)) * counts)
    prior = -likelihood.log_prior(loss.rest) / objective.data_size
    return total + prior.astype(total.dtype), loss.network_state
