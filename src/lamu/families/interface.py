"""Interface of beliefs."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from lamu.base.compile_once import compiled_lightly, compiled_once, is_traced
from lamu.convergence import UnreliableWeights
from lamu.typing import Array, Params, RandomKey

__all__ = ["Family", "IndependentDraws", "attribute_of", "finite_draws", "independent_draws"]


@runtime_checkable
class Family(Protocol):
    r"""A belief \(q(\theta)\) about parameters.

    Attributes:
        kind: "minimal exponential", "degenerate" (a point), "joint" (draws, mixtures) or "product".
        mean: E_q[θ]. A belief with several modes raises an AttributeError that names an alternative.
    """

    @property
    def kind(self) -> str:
        """The kind of belief, which determines its laws."""
        ...

    if TYPE_CHECKING:  # at run time isinstance would read the property, which raises for several modes

        @property
        def mean(self) -> Params:
            """E_q[θ]."""
            ...

    def sample(self, key: RandomKey) -> Params:
        """Returns one sample of θ."""
        ...

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns points that represent the belief, along a new leading axis of about `count`.

        Sample i depends only on the key and i. A point returns one sample, since more would repeat it; a belief that
        consists of samples returns an even selection of them.
        """
        ...


def attribute_of(belief: Any, name: str) -> Any:
    """Returns a belief's attribute for each number of θ; an AttributeError for beliefs with several modes."""
    if inspect.getattr_static(belief, name, None) is None:
        raise AttributeError(
            f"a {type(belief).__name__} may have several modes, and has no {name}; use predict, or take it over the "
            "numbers of posterior.samples or posterior.sample(key, n)"
        )
    return getattr(belief, name)


class _Derived:
    """A property that a custom family may shadow by a field."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function, self.__doc__ = function, function.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:  # a dataclass would take the returned value for the field's default
            raise AttributeError(self.function.__name__)
        return self.function(instance)


_DRAWS = 4096  # for moments and quantiles without a closed form


class IndependentDraws:
    """Base of beliefs that are represented by independent samples."""

    is_normal: ClassVar[bool] = False  # whether the marginals of θ are normal

    def marginal_variance(self: Any) -> Params:
        """Returns the variance of each number of θ; from 4,096 samples if it has no closed form."""
        return jax.tree.map(lambda leaf: jnp.var(leaf, axis=0), self.draws(jax.random.key(0), _DRAWS))

    @_Derived
    def std(self) -> Params:
        """The standard deviation of each number of θ."""
        return jax.tree.map(jnp.sqrt, self.marginal_variance())

    def interval(self: Any, level: float = 0.9) -> tuple[Params, Params]:
        """Returns the ends of the central interval of each number of θ; from 4,096 samples unless it is normal.

        Args:
            level: the probability inside, between 0 and 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"level={level!r} is not a probability strictly between 0 and 1; for 90 % write 0.9")
        if self.is_normal:
            z = ndtri((1.0 + level) / 2.0)
            ends = [jax.tree.map(lambda m, s, sign=sign: m + sign * z * s, self.mean, self.std) for sign in (-1, 1)]
            return ends[0], ends[1]
        drawn = self.draws(jax.random.key(0), _DRAWS)
        low, high = (
            jax.tree.map(lambda leaf, p=p: jnp.quantile(leaf, p, axis=0), drawn)
            for p in ((1.0 - level) / 2.0, (1.0 + level) / 2.0)
        )
        return low, high

    def draws(self: Any, key: RandomKey, count: int) -> Params:
        """Returns `count` independent samples along a leading axis; sample i depends only on the key and i."""
        return independent_draws(self, key, count)


# One program for all beliefs of a shape: outside jit, a loop is compiled again at every call.
@compiled_lightly(static_argnums=2)
def independent_draws(belief: Any, key: RandomKey, count: int) -> Params:
    """Returns samples of a belief along a leading axis; sample i depends only on the key and i."""
    return jax.lax.map(lambda i: belief.sample(jax.random.fold_in(key, i)), jnp.arange(count))


def finite_draws(draws: Params) -> Params:
    """Returns the finite samples, with a warning that counts the others; all if none is finite."""
    # Diverged samples do not represent q, and one of them makes every average NaN.
    numbers = [leaf for leaf in jax.tree.leaves(draws) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    if not numbers or is_traced():
        return draws
    finite = np.asarray(_are_finite(numbers))
    if finite.all() or not finite.any():
        return draws
    warnings.warn(
        f"{np.sum(~finite)} of {len(finite)} draws of the parameters are not finite and are left out of averages; look "
        "for them in posterior.sample(key, n); of a sampler, take a smaller step or compute in float64 "
        '(jax.config.update("jax_enable_x64", True) before the fit)',
        UnreliableWeights,
        stacklevel=6,
    )
    return jax.tree.map(lambda leaf: leaf[np.flatnonzero(finite)], draws)


@compiled_once()
def _are_finite(leaves: list[Array]) -> Array:
    return jnp.stack([jnp.all(jnp.isfinite(leaf), axis=tuple(range(1, leaf.ndim))) for leaf in leaves]).all(axis=0)
