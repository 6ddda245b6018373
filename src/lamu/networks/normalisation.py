"""Normalisation layers, and noise on the units of a hidden layer."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval

from lamu.base.arguments import number, sized
from lamu.base.compile_once import once_a_shape, widened
from lamu.networks.interface import Network, Normaliser, outputs
from lamu.record import record, static
from lamu.typing import Array, DTypeLike, Inputs, Numeric, Params, RandomKey, State

__all__ = [
    "BatchNorm",
    "Dropout",
    "FilterResponse",
    "GaussianDropout",
    "GroupNorm",
    "NormaliserPass",
    "UnitNoise",
    "draws_noise",
    "require_noise",
]


@record
class BatchNorm(Normaliser):
    r"""Batch normalisation: normalises each feature by the mean and variance of its batch, then scales and shifts it.

    \[ y = \gamma\, \frac{x - \hat m}{\sqrt{\hat v + \epsilon}} + \beta, \qquad
       m \leftarrow \alpha m + (1 - \alpha) \hat m, \quad v \leftarrow \alpha v + (1 - \alpha) \hat v \]

    In training \(\hat m\) and \(\hat v\) (biased, a mean of squares) are those of the batch, over its real rows and all
    their positions: padded rows are ignored, and a batch without a real row does not change the state. Otherwise they
    are the running m and v, so that a prediction for a row does not depend on other rows. Weights of rows are ignored.
    Parameters are `scale` (γ, from one) and `bias` (β, from zero), the state `mean` (from zero) and `var` (from one).

    Rows of a batch are not independent, so methods that need the gradient of every row (`vogn`) refuse such a network.
    Samplers never use training mode: the running statistics stay at their initial values.

    Attributes:
        momentum: α.
        eps: ε.

    Raises:
        ValueError: for a momentum outside [0, 1), or an ε that is not positive.

    Source: Ioffe & Szegedy (2015), algorithms 1 and 2.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import MLP, BatchNorm
        >>> network = MLP((8,), normalise=BatchNorm())
        >>> x = jnp.array([[1.0], [3.0]])
        >>> params, state = BatchNorm(momentum=0.5).init(1, x.dtype)
        >>> y, state = BatchNorm(momentum=0.5).apply(params, state, x, train=True, mask=None)
        >>> y[:, 0].round(2).tolist(), state["mean"].tolist()
        ([-1.0, 1.0], [1.0])
    """

    momentum: float = static(default=0.9)
    eps: float = static(default=1e-5)

    def __post_init__(self) -> None:
        if not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"the momentum {self.momentum!r} keeps no running average; give a number in [0, 1)")
        _require_eps(self.eps)

    def init(self, features: int, dtype: DTypeLike) -> tuple[Params, State]:
        """Returns scale and bias, and the running mean and variance."""
        return super().init(features, dtype)[0], {"mean": jnp.zeros(features, dtype), "var": jnp.ones(features, dtype)}

    def apply(self, params: Params, state: State, x: Array, train: bool, mask: Array | None) -> tuple[Array, State]:
        """Returns the normalised features, the last axis of `x`, and the state, new in training."""
        now = state
        if train:
            rows = jnp.ones(x.shape[0], bool) if mask is None else mask > 0
            real = rows.reshape(-1, *[1] * (x.ndim - 1))
            # Padded rows are set to zero, so that their values cannot make gradients NaN.
            x = jnp.where(real, x, jnp.zeros_like(x))
            now, present = _moments(x, real)
            rate = (1.0 - self.momentum) * present
            state = jax.tree.map(lambda old, new: old + rate * (new - old), state, now)
        factor = params["scale"] * jax.lax.rsqrt(now["var"] + self.eps)
        return (x - _along(now["mean"], x)) * _along(factor, x) + _along(params["bias"], x), state


def _moments(x: Array, real: Array) -> tuple[dict[str, Array], Array]:
    """Returns the real rows' mean and variance, and one where there is a real row, else zero."""
    axes = tuple(range(x.ndim - 1))
    count = jnp.sum(real.astype(x.dtype))
    size = jnp.maximum(count, 1.0) * math.prod(x.shape[1:-1])
    mean = jnp.sum(x, axis=axes) / size
    deviation = jnp.where(real, x - _along(mean, x), jnp.zeros_like(x))
    return {"mean": mean, "var": jnp.sum(deviation**2, axis=axes) / size}, jnp.minimum(count, 1.0)


def _along(feature: Array, x: Array) -> Array:
    return feature.reshape(*[1] * (x.ndim - 1), -1)


@record
class FilterResponse(Normaliser):
    r"""Filter-response normalisation: divides each feature of a row by its root mean square, scales and shifts it.

    \[ y_{np} = \gamma\, \frac{x_{np}}{\sqrt{\tfrac1P \sum_{p'} x_{np'}^2 + \epsilon}} + \beta \]

    over the P positions of row n. Rows are independent and there is no state, so that every algorithm supports such a
    network: each row has its own gradient, and a chain samples one fixed density. Parameters are `scale` (γ, from one)
    and `bias` (β, from zero). The thresholded activation of the paper is not included.

    Attributes:
        eps: ε.

    Raises:
        ValueError: for an ε that is not positive, or (when called) features without positions, as of a dense layer.

    Source: Singh & Krishnan (2020), equation 1; with SiLU as in Izmailov et al. (2021).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import FilterResponse
        >>> params, state = FilterResponse().init(1, jnp.float32)
        >>> x = jnp.array([[[3.0], [-3.0]]], jnp.float32)
        >>> FilterResponse().apply(params, state, x, True, None)[0].round(3).ravel().tolist(), state
        ([1.0, -1.0], {})
    """

    eps: float = static(default=1e-6)

    masked = False  # rows are independent

    def __post_init__(self) -> None:
        _require_eps(self.eps)

    def apply(self, params: Params, state: State, x: Array, train: bool, mask: Array | None) -> tuple[Array, State]:
        """Returns the normalised features, the last axis of `x`."""
        if x.ndim < 3:
            raise ValueError(
                f"features of the shape {x.shape} have no positions to take a mean square over; normalise "
                "convolutions with FilterResponse(), and a dense layer with BatchNorm() or not at all"
            )
        positions = tuple(range(1, x.ndim - 1))
        size = jnp.mean(x * x, axis=positions, keepdims=True)
        return super().apply(params, state, x * jax.lax.rsqrt(size + self.eps), train, mask)


@record
@sized
class GroupNorm(Normaliser):
    r"""Group normalisation: normalises groups of a row's features, then scales and shifts each feature.

    \[ y_{npc} = \gamma_c\, \frac{x_{npc} - m_{ng}}{\sqrt{v_{ng} + \epsilon}} + \beta_c \]

    with m and v the mean and the variance over the positions p of row n and the features c of group g. Rows are
    independent and there is no state, so that it also works with algorithms that refuse batch normalisation. One group
    is layer normalisation. Parameters are `scale` (γ, from one) and `bias` (β, from zero).

    Attributes:
        groups: the number of groups, a divisor of the number of features.
        eps: ε.

    Raises:
        ValueError: for a number of groups that is not positive or (when it is initialised) does not divide the
            features, or an ε that is not positive.

    Source: Wu & He (2018), equations 1 and 7.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import GroupNorm
        >>> params, state = GroupNorm(2).init(4, jnp.float32)
        >>> x = jnp.array([[1.0, 3.0, 0.0, 8.0]], jnp.float32)
        >>> GroupNorm(2).apply(params, state, x, True, None)[0].round(2).ravel().tolist(), state
        ([-1.0, 1.0, -1.0, 1.0], {})
    """

    groups: int = static(default=8)
    eps: float = static(default=1e-6)

    masked = False  # rows are independent

    def __post_init__(self) -> None:
        _require_eps(self.eps)

    def init(self, features: int, dtype: DTypeLike) -> tuple[Params, State]:
        """Returns scale and bias, and no state."""
        if features % self.groups:
            raise ValueError(f"{features} features cannot be dealt to {self.groups} groups; give a divisor")
        return super().init(features, dtype)

    def apply(self, params: Params, state: State, x: Array, train: bool, mask: Array | None) -> tuple[Array, State]:
        """Returns the normalised features, the last axis of `x`."""
        grouped = x.reshape(x.shape[0], -1, self.groups, x.shape[-1] // self.groups)
        centred = grouped - jnp.mean(grouped, axis=(1, 3), keepdims=True)
        size = jnp.mean(centred * centred, axis=(1, 3), keepdims=True)
        normalised = (centred * jax.lax.rsqrt(size + self.eps)).reshape(x.shape)
        return super().apply(params, state, normalised, train, mask)


def _require_eps(eps: float) -> None:
    if not eps > 0.0:
        raise ValueError(f"eps={eps!r} must be a small positive number")


class NormaliserPass:
    """One pass through the normalisers of a network, which looks up the state of each by its path and updates it."""

    def __init__(self, normalise: Normaliser | Any, state: State, train: bool, mask: Array | None) -> None:
        self._normalise, self._state, self._train, self._mask = normalise, state, train, mask
        self._renewed: dict[str | int, State] = {name: {} for name in state}

    def __call__(self, params: Params, hidden: Array, *path: str | int) -> Array:
        """Returns the outputs of the normaliser at a path of the state."""
        *groups, place = path
        before, after = self._state, self._renewed
        for group in groups:
            before, after = before.get(group, {}), after.setdefault(group, {})
        # Means and variances are in the state's dtype, at least 32 bits, also where a pass is in 16 (`MixedPrecision`).
        old = before.get(place, {})
        sizes = [leaf.dtype for leaf in jax.tree.leaves(old)]
        dtype = max([jnp.dtype(jnp.float32), *sizes], key=lambda dtype: dtype.itemsize)
        params, wide = jax.tree.map(lambda leaf: widened(leaf, dtype), params), widened(hidden, dtype)
        wide, after[place] = self._normalise.apply(params, old, wide, self._train, self._mask)
        return wide.astype(hidden.dtype)

    @property
    def state(self) -> State:
        """The new state, empty where no normaliser has one."""
        return self._renewed if self._state else self._state


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
        >>> from lamu.networks.normalisation import draws_noise
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
        >>> from lamu.networks.normalisation import Dropout
        >>> units = Dropout(0.5).apply(jnp.ones((1, 1000)), jax.random.key(0))
        >>> sorted(set(units[0].tolist())), 0.4 < float(jnp.mean(units == 0.0)) < 0.6
        ([0.0, 2.0], True)
    """

    rate: Numeric = static(default=0.1)

    def __post_init__(self) -> None:
        share = number(self.rate)
        if share is None or not 0.0 <= share < 1.0:
            raise ValueError(f"the rate {self.rate!r} is not a share of units to drop; give a number in [0, 1)")
        object.__setattr__(self, "rate", share)

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
        >>> from lamu.networks.normalisation import GaussianDropout
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
