"""Relaxed draws of binary and categorical beliefs: continuous points in place of the corners."""

# A draw of a Bernoulli is one where \(\lambda + \epsilon > 0\), for a logistic \(\epsilon\); a draw of a Categorical is
# the largest of \(\log\pi_k + \epsilon_k\), for Gumbel \(\epsilon_k\). The relaxed draw has a sigmoid or a softmax of
# width τ where these have a step:
#
# | belief | relaxed draw w | x |
# |---|---|---|
# | `Bernoulli`, {0, 1} | \(\sigma(x)\) | \((\lambda + \epsilon)/\tau\) |
# | `Binary`, {−1, +1} | \(2\sigma(x) - 1\) | \((2\lambda + \epsilon)/\tau\) |
# | `Categorical` | softmax of x | \((\log\pi + \epsilon)/\tau\) |
#
# and the gradient of \(\ell(w)\) goes back through it: for a coin with logit \(\lambda'\)
#
# \[ \nabla_\mu = \ell'(w)\, F^{-1} \frac{\partial w}{\partial\lambda}
#    = \ell'(w)\, \frac{\sigma'(x)}{\tau\, \sigma'(\lambda')} \]
#
# taken as one ratio, so that neither part vanishes alone; for a Categorical, with u the gradient in \(\log\pi\), by its
# known inverse Fisher matrix \(u_k/\pi_k - u_K/\pi_K\). In BayesBiNN's notation the second row is \(w = \tanh((\lambda
# + \delta)/\tau)\), and the ratio \((1 - w^2)/(\tau\,(1 - \tanh^2\lambda))\).

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamu.expectations.estimate import ValueAndGradient
from lamu.expectations.reparameterised import average, require_draws
from lamu.expectations.samplers import own_key
from lamu.families import Bernoulli, Binary, Categorical, NaturalParameters
from lamu.record import record, static
from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Relaxed"]


@record
class Relaxed:
    r"""Averages over S relaxed draws: one gradient each, of a loss that can be asked between the corners.

    **Biased** for τ > 0: it is the unbiased gradient of \(E[\ell(w_\tau)]\), an expectation under the relaxed law,
    which is \(E_q[\ell]\) only in the limit τ → 0, where the variance grows without a bound. τ has nothing to do with
    the temperature of an objective.

    The slopes of a coin grow as \(\cosh^2\lambda\): rare draws throw over weights that are nearly certain. A floor ε,

    \[ \frac{1 - w^2 + \epsilon}{\tau\,(1 - \tanh^2\lambda + \epsilon)} \]

    bounds them by \((1 + \epsilon)/(\tau\epsilon)\), and is a bias more; towards τ = 0 it is all that is left, a
    straight-through gradient at draws of the corners.

    Attributes:
        temperature: τ, positive.
        samples: S.
        floor: ε, for coins; zero for none.

    Raises:
        TypeError: for a belief other than Bernoulli, Binary or Categorical, or a Categorical with a floor.
        ValueError: for a τ that is not positive, a negative floor, or fewer than one draw.

    Source: Maddison, Mnih & Teh (2017); Jang, Gu & Poole (2017); Meng, Bachmann & Khan (2020), equation (9), and the
    floor in their program.

    Examples:
        >>> import jax
        >>> from lamu.expectations import Relaxed
        >>> from lamu.families import Binary
        >>> theta, pull = Relaxed(temperature=0.5).point(jax.random.key(0), Binary({"w": 0.3}))
        >>> bool(abs(theta["w"]) < 1.0), type(pull({"w": 1.0})).__name__
        (True, 'NaturalParameters')
    """

    temperature: Number = 1.0
    samples: int = static(default=1)
    floor: Number = 0.0

    def __post_init__(self) -> None:
        require_draws(self.samples)
        if isinstance(self.floor, float | int) and self.floor < 0.0:
            raise ValueError(f"the floor {self.floor!r} would turn gradients around; give a small number, or 0")
        if isinstance(self.temperature, float | int) and not self.temperature > 0.0:
            raise ValueError(
                f"the temperature {self.temperature!r} of a relaxation is not positive; at zero nothing is relaxed"
            )

    @property
    def departure(self) -> str:
        """What it adds to the rule: the relaxation is the expectation's own name."""
        return "slopes floored" if self._floored else ""

    @property
    def _floored(self) -> bool:
        return not (isinstance(self.floor, float | int) and self.floor == 0.0)

    def point(self, key: RandomKey, belief: Any) -> tuple[Params, Callable[[Params], NaturalParameters]]:
        r"""Returns a relaxed draw w, and the function from \(\nabla\ell(w)\) to \(\nabla_\mu\).

        Args:
            key: of the noise.
            belief: a Bernoulli, Binary or Categorical.
        """
        natural = belief.natural() if isinstance(belief, Bernoulli | Binary | Categorical) else None
        if natural is None:
            raise TypeError(
                f"Relaxed() is for Bernoulli, Binary and Categorical beliefs, not {type(belief).__name__}; use "
                "Reparameterised() or ScoreFunction()"
            )
        if isinstance(belief, Categorical) and self._floored:
            raise TypeError(f"the floor {self.floor!r} is for coins; leave it out for a Categorical")
        logits, structure = jax.tree.flatten(belief.logits if isinstance(belief, Categorical) else natural.values)
        keys = jax.random.split(key, max(len(logits), 1))
        drawn = [self._relaxed(belief, keys[i], leaf) for i, leaf in enumerate(logits)]

        def pull(gradient: Params) -> NaturalParameters:
            slopes = zip(drawn, jax.tree.leaves(gradient), strict=True)
            values = jax.tree.unflatten(structure, [pull(jnp.asarray(slope)) for (_, pull), slope in slopes])
            return NaturalParameters(values, natural.given, natural.of)

        return jax.tree.unflatten(structure, [point for point, _ in drawn]), pull

    def gradient(self, key: RandomKey, belief: Any, loss: Callable[[Any], Any]) -> ValueAndGradient:
        """Returns averages over relaxed draws, the value too."""

        def at_draw(index: Any) -> tuple[Any, Any]:
            theta, pull = self.point(own_key(key, index, self.samples), belief)
            value, slope = jax.value_and_grad(loss)(theta)
            return value, pull(slope)

        return ValueAndGradient(*average(at_draw, self.samples))

    def _relaxed(self, belief: Any, key: RandomKey, logits: Array) -> tuple[Array, Callable[[Array], Array]]:
        tau = jnp.asarray(self.temperature, logits.dtype)
        if isinstance(belief, Categorical):
            return _choice(key, logits, tau)
        floor = jnp.asarray(self.floor, logits.dtype) if self._floored else None
        return (_sign if isinstance(belief, Binary) else _coin)(key, logits, tau, floor)


def _coin(key: RandomKey, logit: Array, tau: Array, floor: Array | None) -> tuple[Array, Callable[[Array], Array]]:
    x = (logit + jax.random.logistic(key, logit.shape, logit.dtype)) / tau
    log_slope = lambda x: -jax.nn.softplus(x) - jax.nn.softplus(-x)  # log σ', and 4σ' is 1 − tanh² of the half
    if floor is None:
        ratio = jnp.exp(log_slope(x) - log_slope(logit)) / tau  # where both may round to zero
    else:
        ratio = (4.0 * jnp.exp(log_slope(x)) + floor) / (tau * (4.0 * jnp.exp(log_slope(logit)) + floor))
    return jax.nn.sigmoid(x), lambda slope: slope * ratio


def _sign(key: RandomKey, half_logit: Array, tau: Array, floor: Array | None) -> tuple[Array, Callable[[Array], Array]]:
    w, pull = _coin(key, 2.0 * half_logit, tau, floor)
    return 2.0 * w - 1.0, pull


def _choice(key: RandomKey, logits: Array, tau: Array) -> tuple[Array, Callable[[Array], Array]]:
    x = (logits + jax.random.gumbel(key, logits.shape, logits.dtype)) / tau
    log_w, log_probability = jax.nn.log_softmax(x, axis=-1), jax.nn.log_softmax(logits, axis=-1)
    w, ratio = jnp.exp(log_w), jnp.exp(log_w - log_probability) / tau

    def pull(slope: Array) -> Array:
        share = (slope - jnp.sum(w * slope, axis=-1, keepdims=True)) * ratio  # u / π
        return share[..., :-1] - share[..., -1:]

    return w, pull
