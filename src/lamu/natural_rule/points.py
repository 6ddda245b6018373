"""Expectations of a belief about discrete weights: averages over points, each with a way back to μ."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.families import NaturalParameters
from lamu.objective import BatchLoss
from lamu.objective.curvature import Evaluation
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["Points", "ZeroTemperature", "natural_gradient", "signs"]


@runtime_checkable
class Points(Protocol):
    r"""An expectation that is an average over points, each with a way back from \(\nabla_\theta\) to \(\nabla_\mu\).

    `lamu.expectations.Relaxed` is one, `ZeroTemperature` another.

    Attributes:
        draws: how many points are averaged.
    """

    @property
    def draws(self) -> int:
        """How many points are averaged."""
        ...

    def point(self, key: RandomKey, belief: Any) -> tuple[Params, Any]:
        r"""Returns a point θ, and the function from \(\nabla\bar\ell(\theta)\) to the gradient in μ.

        Args:
            key: for a draw.
            belief: q, an exponential family.
        """
        ...


@record
class ZeroTemperature:
    r"""The delta method in the limit of zero temperature: the gradient at the signs, taken for the gradient in μ.

    \[ \mu = \tanh\lambda \to \mathrm{sign}\,\lambda, \qquad
       \nabla_\mu E_q[\bar\ell] \approx \nabla_\theta \bar\ell(\theta)\big|_{\theta = \mathrm{sign}\,\lambda} \]

    One gradient.

    Source: Meng, Bachmann & Khan (2020), section 3 and table 1.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.families import Binary
        >>> from lamu.natural_rule import ZeroTemperature
        >>> ZeroTemperature().point(jax.random.key(0), Binary(jnp.array([0.3, -2.0])))[0].tolist()
        [1.0, -1.0]
    """

    draws: int = static(default=1)

    departure = "delta at zero temperature"

    def point(self, key: RandomKey, belief: Any) -> tuple[Params, Any]:
        """Returns the signs, and nothing to do."""
        return signs(belief.natural().values), lambda gradient: gradient


def natural_gradient(expectation: Any, key: RandomKey, belief: Any, loss: BatchLoss) -> Evaluation:
    r"""Returns \(E_q[\bar\ell]\), its gradient in μ and in the rest, and the network's state; no curvature.

    Args:
        expectation: `Points`, which takes one gradient a point; or any estimator for functions of θ
            (`lamu.expectations.Estimator`), to which the network's state is what it was before.
        key: for draws and random layers.
        belief: q, an exponential family on the loss's coordinates.
        loss: the mean loss on a batch.

    Examples:
        >>> import jax, lamu
        >>> from lamu.families import Binary
        >>> from lamu.natural_rule import Selected, SelectedLoss, ZeroTemperature, natural_gradient
        >>> model = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Gaussian(scale=1.0))
        >>> batch = lamu.data.Batch.of(jax.numpy.ones((4, 3)), jax.numpy.ones(4))
        >>> params, state = model.init(jax.random.key(0), batch)
        >>> ours, rest = Selected(("*",)).split(params)
        >>> loss = SelectedLoss(lamu.objective.Objective(model, 4), batch, state, Selected(("*",)), rest)
        >>> at = natural_gradient(ZeroTemperature(), jax.random.key(1), Binary(ours), loss)
        >>> at.gradient["layers"][0]["kernel"].shape
        (3, 1)
    """
    if not isinstance(expectation, Points):
        return _estimated(expectation, key, belief, loss)

    def at_draw(key: RandomKey) -> Evaluation:
        draw_key, layer_key = jax.random.split(key)
        theta, pull = expectation.point(draw_key, belief)
        at = loss.gradient(theta, layer_key)
        return Evaluation(at.value, _values(pull(at.coordinates)), at.rest, None, at.network_state)

    if expectation.draws == 1:
        return at_draw(key)
    found = jax.lax.map(lambda i: at_draw(jax.random.fold_in(key, i)), jnp.arange(expectation.draws))
    return tree.average(found)


def _estimated(estimator: Any, key: RandomKey, belief: Any, loss: BatchLoss) -> Evaluation:
    draw_key, layer_key = jax.random.split(key)

    def value(rest: Params) -> tuple[Array, Any]:
        estimate = estimator.gradient(draw_key, belief, lambda theta: loss.value(theta, rest, layer_key)[0])
        return estimate.value, estimate.gradient

    # The rest follows the gradient of the estimated value.
    (found, gradient), rest = jax.value_and_grad(value, has_aux=True)(loss.rest)
    return Evaluation(found, _values(gradient), rest, None, loss.network_state)


def _values(gradient: Any) -> Params:
    return gradient.values if isinstance(gradient, NaturalParameters) else gradient


def signs(natural: Params) -> Params:
    """Returns the more probable value of every weight, +1 or −1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.natural_rule import signs
        >>> signs(jnp.array([0.3, -2.0])).tolist()
        [1.0, -1.0]
    """
    return jax.tree.map(lambda leaf: jnp.where(leaf >= 0, jnp.ones_like(leaf), -jnp.ones_like(leaf)), natural)
