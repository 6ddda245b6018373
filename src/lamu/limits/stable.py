"""The jump process that a network with heavy-tailed output weights tends to."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.special import gammaln

from lamu.networks.activations import ACTIVATIONS, require_activation
from lamu.record import record, static
from lamu.typing import Array, Number, RandomKey

__all__ = ["StableProcess"]


@record
class StableProcess:
    r"""The limit of a network of one hidden layer whose output weights have a symmetric stable law of index α < 2.

    \[ f(x) = C_\alpha^{1/\alpha} s \sum_{j=1}^{\infty} \varepsilon_j\, \Gamma_j^{-1/\alpha}\, a(w_j^\top x + b_j) \]

    with fair signs ε, arrival times Γ of a Poisson process of rate one, and hidden units (w, b) drawn from their prior.
    It is the limit of \(s H^{-1/\alpha} \sum_{j \le H} v_j\, a(w_j^\top x + b_j)\) with
    \(E\, e^{i t v} = e^{-|t|^\alpha}\): α = 1 is the Cauchy law, so that the prior is `Cauchy(s / H)` on the last
    kernel. Where normal weights make the share of any unit vanish, here the largest weights stay visible, as units that
    mean something; with steep units the functions jump. The outputs are stable too,

    \[ E\, e^{i t f(x)} = \exp\big(-|s t|^\alpha\, E|a(w^\top x + b)|^\alpha\big), \qquad
       C_\alpha = \frac{1 - \alpha}{\Gamma(2 - \alpha) \cos(\pi \alpha / 2)}, \; C_1 = \frac2\pi \]

    Attributes:
        index: α, above zero and below two.
        activation: that of the hidden units, one of those of `lamu.networks.MLP`.
        scale: s.
        weight: the standard deviation of the weights w.
        bias: that of the biases b.

    Raises:
        ValueError: for an index outside (0, 2), an unknown activation, or scales that are not positive.

    Source: Neal (1996), section 2.2; Der & Lee (2005); the series of LePage, in Samorodnitsky & Taqqu (1994), theorem
    1.4.2.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.limits import StableProcess
        >>> draws, shares = StableProcess(1.0, "tanh").sample(jax.random.key(0), 5, jnp.zeros((3, 1)), terms=100)
        >>> draws.shape, shares.shape
        ((5, 3), (5, 100))
    """

    index: float = static(default=1.0)
    activation: str = static(default="tanh")
    scale: Number = 1.0
    weight: Number = 1.0
    bias: Number = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.index < 2.0:
            raise ValueError(
                f"index={self.index!r} is not between 0 and 2; of index 2 are normal weights, whose limit is NNGP()"
            )
        require_activation(self.activation)
        for name, value in (("scale", self.scale), ("weight", self.weight), ("bias", self.bias)):
            if not isinstance(value, Tracer) and not 0.0 < value < float("inf"):
                raise ValueError(f"{name}={value!r} is not positive and finite; give a scale")

    def sample(self, key: RandomKey, n: int, x: Array, terms: int = 2000) -> tuple[Array, Array]:
        r"""Returns draws of the functions, and the share of every unit in the variance of the output.

        The series ends after some terms; what is left out has the share of about
        \(\text{terms}^{1 - 2/\alpha}\) in the sum of squares.

        Args:
            key: a random key.
            n: how many functions.
            x: inputs `[N, ...]`, the same for all.
            terms: how many units, the largest weights first.

        Returns:
            The functions `[n, N]`, and the shares \(\Gamma_j^{-2/\alpha} / \sum_i \Gamma_i^{-2/\alpha}\), `[n, terms]`.
        """
        x = jnp.asarray(x)
        floating = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.result_type(float))
        rows = floating.reshape(x.shape[0], -1)

        def draw(key: RandomKey) -> tuple[Array, Array]:
            times, signs, kernel, biases = jax.random.split(key, 4)
            arrivals = jnp.cumsum(jax.random.exponential(times, (terms,), rows.dtype))
            sizes = arrivals ** (-1.0 / self.index)
            weights = jnp.asarray(self.weight, rows.dtype) * jax.random.normal(
                kernel, (rows.shape[1], terms), rows.dtype
            )
            bias = jnp.asarray(self.bias, rows.dtype) * jax.random.normal(biases, (1, terms), rows.dtype)
            units = ACTIVATIONS[self.activation](rows @ weights + bias)
            factor = jnp.asarray(self.scale, rows.dtype) * jnp.asarray(self._constant, rows.dtype)
            f = factor * units @ (sizes * jax.random.rademacher(signs, (terms,), rows.dtype))
            return f, sizes**2 / jnp.sum(sizes**2)

        return jax.lax.map(jax.jit(draw), jax.random.split(key, n))

    @property
    def _constant(self) -> Any:
        r"""\(C_\alpha^{1/\alpha}\)."""
        if self.index == 1.0:
            return 2 / jnp.pi
        half_turns = jnp.cos(jnp.pi * self.index / 2)
        return ((1 - self.index) / (jnp.exp(gammaln(2 - self.index)) * half_turns)) ** (1 / self.index)
