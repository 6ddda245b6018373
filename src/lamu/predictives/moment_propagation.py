"""The moment-propagation rule: mean and variance of the outputs in closed form, layer by layer."""

# With independent weights of means M and variances V, and units of means a and variances s,
#
# \[ E[W a] = M^\top a + b, \qquad
#    \mathrm{Var}[W a] = (M^2 + V)^\top s + V^\top a^2 + v_b \]
#
# exactly for independent units, and the rectifier of a normal number has the moments of `rectified`. The only
# approximation is a normal distribution of the sum at a unit, which is good for many inputs.

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtr

from lamu.data.batch import with_offset
from lamu.families import Gaussian
from lamu.families.matrix_normal import NoiseScale  # noqa: F401  (a saved belief that predicts by this rule names it)
from lamu.families.products import factor_of
from lamu.likelihoods import Gaussian as GaussianNoise
from lamu.likelihoods import Scaled
from lamu.networks import MLP, Standardised
from lamu.operators import Diagonal
from lamu.predictives.gaussian import GaussianPredictive
from lamu.predictives.interface import Prepared
from lamu.predictives.lazy import PredictiveRule, in_memory_chunks, room_for
from lamu.predictives.padding import RowWise
from lamu.predictives.sampled import Sampled
from lamu.record import record
from lamu.supports import Support
from lamu.target import Target
from lamu.typing import Array, Belief, Params, PyTree, RandomKey, Rows, State

__all__ = ["Propagated", "moments", "rectified", "require_rectifiers"]


def rectified(mean: Array, variance: Array) -> tuple[Array, Array]:
    r"""Returns mean and variance of \(\max(z, 0)\) for a normal z."""
    # \[ m' = \Phi(\alpha)\, u, \qquad
    #    v' = m' u\, \Phi(-\alpha) + \Phi(\alpha)\, v\, \big(1 - \gamma (\gamma + \alpha)\big) \]
    #
    # with \(\alpha = m / \sqrt v\), \(\gamma = \phi(\alpha) / \Phi(\alpha)\) and \(u = m + \sqrt v\, \gamma\): no
    # difference of large numbers where z is far from zero.
    #
    # Source: Hernández-Lobato & Adams (2015), equations 12 to 14.
    deviation = jnp.sqrt(variance)
    alpha = mean / deviation
    above, below = ndtr(alpha), ndtr(-alpha)
    ratio = jnp.exp(jax.scipy.stats.norm.logpdf(alpha) - log_ndtr(alpha))
    tail = mean + deviation * ratio
    centre = above * tail
    spread = centre * tail * below + above * variance * (1 - ratio * (ratio + alpha))
    # Where almost no mass is above zero, rounding could make the variance negative.
    return centre, jnp.maximum(spread, jnp.zeros_like(spread))


def moments(mean: Params, variance: Params, x: Array) -> tuple[Array, Array]:
    """Returns mean and variance of the outputs of a perceptron with rectifiers, each `[outputs]`."""
    centre, spread = x, jnp.zeros_like(x)
    last = len(mean["layers"]) - 1
    for index in range(last + 1):
        m, v = mean["layers"][index], variance["layers"][index]
        spread = _product(spread, m["kernel"] ** 2 + v["kernel"]) + _product(centre**2, v["kernel"]) + v["bias"]
        centre = _product(centre, m["kernel"]) + m["bias"]
        if index < last:
            centre, spread = rectified(centre, spread)
    return centre, spread


def require_rectifiers(model: Target) -> None:
    """Raises a TypeError unless the network is a perceptron with rectifiers and Gaussian noise."""
    network, likelihood = _base(model.network), model.likelihood
    plain = isinstance(network, MLP) and network.widths and network.normalise is None and network.dropout is None
    if not (plain and network.activation == "relu"):
        raise TypeError(
            f"moments are propagated through hidden layers of rectifiers and nothing else, not {network!r}; give for "
            "instance MLP((50,))"
        )
    if not isinstance(likelihood.base if isinstance(likelihood, Scaled) else likelihood, GaussianNoise):
        raise TypeError(
            f"propagated moments are those of a target with Gaussian noise, not of {type(likelihood).__name__}; give "
            "likelihoods.Gaussian(), or another algorithm for other targets"
        )
    if isinstance(model.network, Standardised) and not (model.network.level is model.network.unit is None):
        raise ValueError("moments are propagated without a level or unit of the outputs; take model.standardised(x, y)")
    if model.frozen is not None:
        raise ValueError("moments are propagated with every weight free; use the model without frozen weights")


@record
class Propagated(PredictiveRule):
    r"""\(y^* \sim N\big(m(x^*),\, v(x^*) + \sigma^2\big)\), with the moments of the outputs propagated in closed form.

    It takes one forward pass and no draws. The outputs of a row are approximated as independent, and f as normal; σ² is
    the expected noise variance under the belief.

    Raises:
        TypeError: for a network that is not a perceptron with rectifiers, a likelihood that is not Gaussian, or a
            belief that is not of independent normal weights.

    Source: Hernández-Lobato & Adams (2015), section 3.1 and equation 15.

    Examples:
        >>> from lamu.predictives.moment_propagation import Propagated
        >>> Propagated()
        Propagated()
    """

    def prepare(self, model: Target, belief: Belief, network_state: State, samples: int, key: RandomKey) -> Prepared:
        require_rectifiers(model)
        weights = factor_of(belief, "network")
        if not (isinstance(weights, Gaussian) and isinstance(weights.precision, Diagonal)):
            raise TypeError("the propagated rule needs a belief of independent normal weights; use Sampled()")
        return _Moments(model, weights, belief.factors["likelihood"].mean)

    def joint(self) -> PredictiveRule:
        return Sampled()


@record
class _Moments(RowWise):
    """Independent normal weights and dispersions."""

    model: Target
    weights: Gaussian
    dispersion: Params

    @property
    def support(self) -> Support:
        return self.model.likelihood.support

    def room(self, x: PyTree, offset: PyTree, rows: int) -> int:
        return room_for(_outputs, (self.model, self.weights), (x,))

    def at(self, x: Rows, offset: Rows | None) -> GaussianPredictive:
        mean, variance = in_memory_chunks(_outputs, (self.model, self.weights), (x,))
        mean = with_offset(mean, None if offset is None else jnp.asarray(offset))
        likelihood: Any = self.model.likelihood
        covariance = jax.vmap(jnp.diag)(variance)
        centre, total = likelihood.marginal(self.dispersion, mean, covariance)
        noise = likelihood.variance(self.dispersion, mean)
        return GaussianPredictive(centre.reshape(noise.shape), total, noise)


@jax.jit
def _outputs(model: Target, weights: Gaussian, x: Array) -> tuple[Array, Array]:
    variance = weights.precision.variance(weights.mean)
    return jax.vmap(lambda row: moments(weights.mean, variance, row))(rows_of(model, weights.mean, x))


def rows_of(model: Target, like: Params, x: Array) -> Array:
    """Returns the inputs of the perceptron, standardised and flattened, `[batch, inputs]`."""
    network: Any = model.network
    while isinstance(network, Standardised):
        x, network = network.inputs(x), network.base
    return x.reshape(x.shape[0], -1).astype(like["layers"][0]["kernel"].dtype)


def _base(network: object) -> Any:
    while isinstance(network, Standardised):
        network = network.base
    return network


def _product(units: Array, weights: Array) -> Array:
    # At full precision, as accelerators round the factors of a float32 product by default.
    return jnp.matmul(units, weights, precision=jax.lax.Precision.HIGHEST)
