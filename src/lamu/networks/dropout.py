"""Noise on the units of a hidden layer: dropout, and Gaussian dropout with the same mean and variance."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval

from lamu.compile_once import once_a_shape
from lamu.networks.interface import Network, outputs
from lamu.record import record, static
from lamu.typing import Array, DTypeLike, Inputs, Numeric, Params, RandomKey, State

__all__ = ["Dropout", "GaussianDropout", "UnitNoise", "draws_noise", "require_noise"]


@once_a_shape
def draws_noise(network: Network, params: Params, state: State, x: Inputs, train: bool = False) -> bool:
    """Whether the outputs of a network depend on the key. Only shapes are traced.

    Args:
        network: the network.
        params: all parameters.
        state: its state.
        x: inputs `[batch, ...]`.
        train: in training mode.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import MLP, Dropout
        >>> from lamu.networks.dropout import draws_noise
        >>> def of(network, x=jnp.ones((1, 3))):
        ...     return draws_noise(network, *network.init(jax.random.key(0), x, 1), x)
        >>> of(MLP((8,))), of(MLP((8,), dropout=Dropout(0.1)))
        (False, True)
    """

    def f(key: RandomKey, params: Params, state: State, x: Array) -> Array:
        return outputs(network, params, state, x, key, train, None)[0]

    key = jax.eval_shape(lambda: jax.random.key(0))
    # A key may be used for draws without effect: that of every row, where a module takes one and ignores it.
    program = jax.make_jaxpr(f)(key, params, state, x).jaxpr
    return partial_eval.dce_jaxpr(program, [True] * len(program.outvars))[1][0]


# | on paper | in code |
# |---|---|
# | the share of dropped units, p | `rate` |
# | \(z / (1 - p)\), \(z \sim \mathrm{Bernoulli}(1 - p)\) | `Dropout(rate)` |
# | \(N(1, p / (1 - p))\) | `GaussianDropout(rate)` |
#
# Both have mean one and variance \(p / (1 - p)\), so that a pass without a key, which has no noise, uses the mean of
# the units. Every row of a batch has its own noise, which depends on the key and the row's number alone, so that
# padding has no effect.


class UnitNoise:
    """Base class of multiplicative noise with mean one on hidden units, for `MLP(dropout=...)`; here no noise.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import UnitNoise
        >>> class Uniform(UnitNoise):
        ...     def factor(self, key, shape, dtype):
        ...         return jax.random.uniform(key, shape, dtype, 0.5, 1.5)
        >>> units = Uniform().apply(jnp.ones((1, 1000)), jax.random.key(0))
        >>> 0.9 < float(units.mean()) < 1.1
        True
    """

    def factor(self, key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Returns one row's factors.

        Args:
            key: a random key.
            shape: the shape of one row's units.
            dtype: of the factors.
        """
        return jnp.ones(shape, dtype)

    def apply(self, units: Array, key: RandomKey | None) -> Array:
        """Returns the units `[batch, ...]` with independent noise for every row; without a key, unchanged.

        Args:
            units: the outputs of the activation.
            key: a random key, or None where the pass is deterministic.
        """
        if key is None:
            return units
        rows = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(units.shape[0]))
        return units * jax.vmap(lambda row: self.factor(row, units.shape[1:], units.dtype))(rows)


@record
class Dropout(UnitNoise):
    r"""Dropout: sets a unit to zero with probability p, and else divides it by 1 − p.

    \[ h \leftarrow h \odot z / (1 - p), \qquad z \sim \mathrm{Bernoulli}(1 - p) \]

    Attributes:
        rate: p, the probability that a unit is dropped (not kept).

    Raises:
        ValueError: for a rate outside [0, 1).

    Source: Srivastava, Hinton, Krizhevsky, Sutskever & Salakhutdinov (2014), section 4, with the scaling in training.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks.dropout import Dropout
        >>> units = Dropout(0.5).apply(jnp.ones((1, 1000)), jax.random.key(0))
        >>> sorted(set(units[0].tolist())), 0.4 < float(jnp.mean(units == 0.0)) < 0.6
        ([0.0, 2.0], True)
    """

    rate: Numeric = static(default=0.1)

    def __post_init__(self) -> None:
        if not isinstance(self.rate, int | float) or not 0.0 <= self.rate < 1.0:
            raise ValueError(f"the rate {self.rate!r} is not a share of units to drop; give a number in [0, 1)")

    def factor(self, key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Returns factors that are zero with probability p, and else 1/(1 − p)."""
        kept = jax.random.bernoulli(key, 1.0 - self.rate, shape)
        return jnp.where(kept, 1.0 / (1.0 - self.rate), 0.0).astype(dtype)


@record
class GaussianDropout(Dropout):
    r"""Gaussian dropout: normal factors with the mean and variance of dropout's.

    \[ h \leftarrow h \odot \xi, \qquad \xi \sim N\big(1,\; p / (1 - p)\big) \]

    Attributes:
        rate: p, that of the dropout with this variance.

    Raises:
        ValueError: for a rate outside [0, 1).

    Source: Srivastava et al. (2014), section 10.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks.dropout import GaussianDropout
        >>> units = GaussianDropout(0.5).apply(jnp.ones((1, 1000)), jax.random.key(0))
        >>> 0.9 < float(jnp.std(units)) < 1.1
        True
    """

    def factor(self, key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Returns normals of mean one and variance p/(1 − p)."""
        return 1.0 + (self.rate / (1.0 - self.rate)) ** 0.5 * jax.random.normal(key, shape, dtype)


def require_noise(dropout: object) -> None:
    """Raises a TypeError for a value that is neither None nor a `UnitNoise`."""
    if dropout is not None and not isinstance(dropout, UnitNoise):
        raise TypeError(f"dropout={dropout!r} is not a noise on units; give for instance Dropout(0.1)")
