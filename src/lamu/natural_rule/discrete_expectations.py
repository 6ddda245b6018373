"""Expectations of a belief about discrete weights: averages over points with a way back to μ, and differences."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.expectations.reparameterised import require_draws
from lamu.families import Binary
from lamu.objective import BatchLoss
from lamu.objective.curvature import Evaluation
from lamu.record import record, static
from lamu.typing import Params, RandomKey

__all__ = ["Flips", "Points", "ZeroTemperature"]

_AT_ONCE = 32  # flipped copies of the weights


@runtime_checkable
class Points(Protocol):
    r"""An expectation that is an average over points, each with a way back from \(\nabla_\theta\) to \(\nabla_\mu\)."""

    # `lamu.expectations.Relaxed` is one, `ZeroTemperature` another.
    #
    # `samples`: how many points are averaged.

    @property
    def samples(self) -> int:
        """How many points are averaged."""
        ...

    def point(self, key: RandomKey, belief: Any) -> tuple[Params, Any]:
        r"""Returns a point θ, and the function from \(\nabla\bar\ell(\theta)\) to the gradient in μ."""
        ...


@record
class ZeroTemperature:
    """The delta method in the limit of zero temperature: the gradient at the signs, taken for the gradient in μ."""

    # \[ \mu = \tanh\lambda \to \mathrm{sign}\,\lambda, \qquad
    #    \nabla_\mu E_q[\bar\ell] \approx \nabla_\theta \bar\ell(\theta)\big|_{\theta = \mathrm{sign}\,\lambda} \]
    #
    # One gradient.
    #
    # Source: Meng, Bachmann & Khan (2020), section 3 and table 1.

    samples: int = static(default=1)

    departure = "delta at zero temperature"

    def point(self, key: RandomKey, belief: Any) -> tuple[Params, Any]:
        """Returns the signs, and nothing to do."""
        return belief.mode, lambda gradient: gradient


@record
class Flips:
    """The gradient in every μ as half the difference that the weight's flip makes: unbiased up to `most` weights."""

    # The expected loss is linear in each \(\mu_i = E[\theta_i]\); its slope is an expectation over the other weights,
    #
    # \[ \nabla_{\mu_i} E_q[\bar\ell] = \tfrac12\, E_q\big[ \bar\ell(\theta_{-i}, +1) - \bar\ell(\theta_{-i}, -1)
    #    \big] \]
    #
    # of which a draw of all weights and its D flips are an unbiased estimate. More weights than `most` would need as
    # many losses; for them the difference is taken to second order in the one weight,
    #
    # \[ \tfrac12\big(\bar\ell(\theta_{-i}, +1) - \bar\ell(\theta_{-i}, -1)\big) \approx
    #    \partial_i \bar\ell(\theta) - \theta_i\, v_i (\nabla^2 \bar\ell\, v)_i, \qquad v_j = \pm 1 \text{ at random,}
    #    \]
    #
    # which leaves the third derivative in a single weight, small where many weights share an output. One gradient and D
    # losses a draw, or one gradient and one product with the Hessian.
    #
    # Source: Titsias & Lázaro-Gredilla (2015), local expectation gradients.

    samples: int = static(default=1)  # how many draws are averaged
    most: int = static(default=256)  # the largest number of weights that are flipped one by one

    @property
    def departure(self) -> str:
        """What it changes about the rule, of more weights than are flipped one by one."""
        return f"differences to second order beyond {self.most} weights"

    def __post_init__(self) -> None:
        require_draws(self.samples)

    def evaluate(self, key: RandomKey, belief: Any, loss: BatchLoss) -> Evaluation:
        """Returns the mean loss, its gradient in μ and in the rest, and the network's state."""
        if not isinstance(belief, Binary):
            raise TypeError(f"Flips() is for Binary beliefs, not {type(belief).__name__}; use ScoreFunction()")

        def at_draw(key: RandomKey) -> Evaluation:
            draw_key, layer_key, sign_key = jax.random.split(key, 3)
            theta = belief.sample(draw_key)
            at = loss.gradient(theta, layer_key)
            if tree.dimension(theta) <= self.most:
                slopes = _differences(loss, theta, at.value, layer_key)
            else:
                slopes = _to_second_order(loss, theta, at.coordinates, layer_key, sign_key)
            return Evaluation(at.value, slopes, at.rest, None, at.network_state)

        return tree.average_over(at_draw, key, self.samples)


def _differences(loss: BatchLoss, theta: Params, value: Any, key: RandomKey) -> Params:
    vector, unravel = tree.ravel(theta)

    def flipped(index: Any) -> Any:
        other = unravel(vector.at[index].multiply(-1.0))
        return loss.value(other, loss.rest, jax.random.clone(key))[0]

    values = jax.lax.map(flipped, jnp.arange(vector.shape[0]), batch_size=_AT_ONCE)
    return unravel(0.5 * vector * (value - values).astype(vector.dtype))


def _to_second_order(loss: BatchLoss, theta: Params, slope: Params, key: RandomKey, sign_key: RandomKey) -> Params:
    keys = tree.keys_like(sign_key, theta)
    signs = jax.tree.map(lambda leaf, one: jax.random.rademacher(one, leaf.shape, leaf.dtype), theta, keys)
    product = jax.jvp(lambda at: loss.gradient(at, jax.random.clone(key)).coordinates, (theta,), (signs,))[1]
    return jax.tree.map(lambda g, s, v, h: g - s * v * h, slope, theta, signs, product)
