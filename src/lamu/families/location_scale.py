r"""A location–scale belief: \(\theta = m + s z\), coordinate by coordinate, for z of any base distribution."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.scipy.special import gammaln

from lamu import tree
from lamu.base import fast_random
from lamu.constraints import Constraints, TransformedBelief
from lamu.families.exponential import increasing_root, total
from lamu.families.gaussian import Gaussian
from lamu.families.interface import IndependentDraws
from lamu.families.points import Draws
from lamu.families.products import Product
from lamu.operators import Diagonal
from lamu.record import record, static
from lamu.typing import Array, Belief, DTypeLike, Params, RandomKey

__all__ = [
    "BaseDistribution",
    "LocationScale",
    "Quantile",
    "Radial",
    "StandardLaplace",
    "StandardLogistic",
    "StandardNormal",
    "transformed",
]


@runtime_checkable
class BaseDistribution(Protocol):
    """A base distribution: the distribution of z, with density p(z)."""

    symmetric: bool | Any = True  # whether the distribution is invariant to a change of sign of any coordinate

    @abstractmethod
    def draw(self, key: RandomKey, like: Params) -> Params:
        """Returns z in the space of `like`."""

    @abstractmethod
    def log_prob(self, z: Params) -> Array:
        """Returns log p(z) in nats, a scalar."""

    @abstractmethod
    def entropy(self, like: Params) -> Array:
        """Returns the entropy of z in the space of `like`, in nats."""

    def centre(self, like: Params) -> Params:
        """Returns E z; zero by default."""
        return tree.zeros_like(like)


@record
class StandardNormal(BaseDistribution):
    r"""\(z \sim N(0, 1)\): a diagonal Gaussian belief."""

    def draw(self, key: RandomKey, like: Params) -> Params:
        """Returns standard normal numbers."""
        return tree.normal(key, like)

    def log_prob(self, z: Params) -> Array:
        """Returns the normal log density."""
        return -(tree.dot(z, z) + tree.dimension(z) * math.log(2 * math.pi)) / 2

    def entropy(self, like: Params) -> Array:
        r"""Returns \(\tfrac D2 \log 2 \pi e\)."""
        return jnp.asarray(tree.dimension(like) * (1 + math.log(2 * math.pi)) / 2)


@record
class StandardLogistic(BaseDistribution):
    r"""\(z = \log u - \log(1 - u)\), the logistic distribution: tails like those of a Laplace, smooth at the centre."""

    def draw(self, key: RandomKey, like: Params) -> Params:
        """Returns logistic numbers, by the quantile function."""
        return _from_centred(key, like, lambda c: 2 * jnp.arctanh(c))

    def log_prob(self, z: Params) -> Array:
        """Returns the logistic log density."""
        return total(lambda a: -jnp.abs(a) - 2 * jnp.log1p(jnp.exp(-jnp.abs(a))), z)

    def entropy(self, like: Params) -> Array:
        """Returns two nats for each coordinate."""
        return jnp.asarray(2.0 * tree.dimension(like))


@record
class StandardLaplace(BaseDistribution):
    r"""\(p(z) = \tfrac12 e^{-|z|}\)."""

    def draw(self, key: RandomKey, like: Params) -> Params:
        """Returns Laplace numbers, by the quantile function."""
        return _from_centred(key, like, lambda c: -jnp.sign(c) * jnp.log1p(-jnp.abs(c)))

    def log_prob(self, z: Params) -> Array:
        """Returns the Laplace log density."""
        return total(lambda a: -jnp.abs(a) - math.log(2.0), z)

    def entropy(self, like: Params) -> Array:
        """Returns 1 + log 2 nats for each coordinate."""
        return jnp.asarray((1 + math.log(2.0)) * tree.dimension(like))


@record
class Quantile(BaseDistribution):
    r"""Any distribution of independent coordinates, by its quantile function: \(z = F^{-1}(u)\), u uniform."""

    # Density and entropy follow from it, with \(Q = F^{-1}\):
    #
    # \[ \log p(z) = -\log Q'(F(z)), \qquad H = \int_0^1 \log Q'(u)\, du \]
    #
    # the first with F by bisection, the second by quadrature.

    # Q, increasing, elementwise on arrays of numbers in (0, 1), in JAX. A belief that is to be saved needs a record
    # with `__call__` here, since functions cannot be saved.
    function: Callable[[Array], Array] = static()

    def __post_init__(self) -> None:
        with jax.ensure_compile_time_eval():
            seen = np.asarray(self.function(jnp.linspace(0.01, 0.99, 99)))
        if not (np.isfinite(seen).all() and (np.diff(seen) > 0).all()):
            raise ValueError(
                f"{self.function!r} does not increase on (0, 1), so it is not a quantile function; give an inverse "
                "distribution function, for instance lambda u: jnp.log(u) - jnp.log1p(-u)"
            )

    @property
    def symmetric(self) -> bool:
        """Whether Q(u) = −Q(1 − u), checked on a grid."""
        with jax.ensure_compile_time_eval():
            grid = jnp.linspace(0.01, 0.5, 50)
            gap = np.asarray(self.function(grid) + self.function(1 - grid))
        return bool(np.abs(gap).max() < 1e-4)

    def draw(self, key: RandomKey, like: Params) -> Params:
        """Returns Q of uniform numbers."""
        return _from_centred(key, like, lambda c: self.function((1 + c) / 2))

    def log_prob(self, z: Params) -> Array:
        """Returns −log Q′ at F(z)."""

        def leaf(a: Array) -> Array:
            wide = _reach(a.dtype)
            t = increasing_root(lambda t: self.function(jax.nn.sigmoid(t)), a, -wide, wide)
            return -jnp.log(self._slope(jax.nn.sigmoid(t)))

        return total(leaf, z)

    def entropy(self, like: Params) -> Array:
        """Returns the entropy by the trapezoidal rule in the logit of u, whose tails fall exponentially."""
        return tree.dimension(like) * self._integral(lambda u: jnp.log(self._slope(u)))

    def centre(self, like: Params) -> Params:
        """Returns the mean of z, by the same rule."""
        mean = self._integral(self.function)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(mean, leaf.shape).astype(leaf.dtype), like)

    def _slope(self, u: Array) -> Array:
        return jax.jvp(self.function, (u,), (jnp.ones_like(u),))[1]

    def _integral(self, of: Callable[[Array], Array]) -> Array:
        dtype = jnp.result_type(float)
        t = jnp.linspace(-_reach(dtype), _reach(dtype), 4001, dtype=dtype)
        weight = jax.nn.sigmoid(t) * jax.nn.sigmoid(-t)
        return jnp.sum(of(jax.nn.sigmoid(t)) * weight) / jnp.sum(weight)


@record
class Radial(BaseDistribution):
    r"""\(z = \frac{e}{\lVert e \rVert}\, r\) for each leaf, e standard normal, r a standard normal number."""

    # A Gaussian in D dimensions has its mass in a shell of radius \(\sqrt D\), away from its mean; here the distance
    # from the mean is of order one for any D, so that samples stay close to the mean. With n coordinates in a
    # leaf and \(R = \lVert z \rVert\):
    #
    # \[ \log p(z) = \log \Gamma(\tfrac n2) - \tfrac n2 \log \pi - \tfrac12 \log 2\pi - \tfrac12 R^2 - (n - 1) \log R \]
    #
    # Source: Farquhar, Osborne & Gal (2020).

    def draw(self, key: RandomKey, like: Params) -> Params:
        """Returns directions times distances."""
        first, second = jax.random.split(key)
        radius = tree.normal(second, jax.tree.map(lambda leaf: jnp.zeros((), leaf.dtype), like))
        return jax.tree.map(lambda e, r: e * (r / _norm(e)), tree.normal(first, like), radius)

    def log_prob(self, z: Params) -> Array:
        """Returns the log density."""

        def leaf(a: Array) -> Array:
            radius = _norm(a)
            return self._constant(a) - radius**2 / 2 - (a.size - 1) * jnp.log(radius)

        return total(leaf, z)

    def entropy(self, like: Params) -> Array:
        """Returns the entropy, with E log R = −(γ + log 2)/2."""
        mean_log = -(np.euler_gamma + math.log(2.0)) / 2
        return total(lambda a: (a.size - 1) * mean_log + 0.5 - self._constant(a), like)

    def _constant(self, a: Array) -> Array:
        n = jnp.asarray(a.size / 2, a.dtype)
        return gammaln(n) - n * math.log(math.pi) - math.log(2 * math.pi) / 2


def _from_centred(key: RandomKey, like: Params, function: Callable[[Array], Array]) -> Params:
    return jax.tree.map(
        lambda k, leaf: function(_centred(k, jnp.shape(leaf), jnp.result_type(leaf))), tree.keys_like(key, like), like
    )


def _centred(key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Returns uniform numbers in (−1, 1), symmetric and excluding the ends."""
    words = fast_random.bits(key, math.prod(shape)).view(jnp.int32)
    if jnp.dtype(dtype) == jnp.float64:
        return ((words.astype(jnp.float64) + 0.5) * 2.0**-31).reshape(shape)
    return (((words >> 8).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-23)).reshape(shape).astype(dtype)


def _reach(dtype: DTypeLike) -> float:
    """Returns the largest logit whose probability differs from one in the dtype."""
    return 30.0 if jnp.dtype(dtype) == jnp.float64 else 12.0


def _norm(a: Array) -> Array:
    return jnp.sqrt(jnp.sum(a * a))


@record
class LocationScale(IndependentDraws):
    r"""The belief of \(\theta = m + s z\) for z from a given base distribution."""

    # \[ \log q(\theta) = \log p\Big(\frac{\theta - m}{s}\Big) - \sum_j \log s_j, \qquad H(q) = H(z) + \sum_j \log s_j
    # \]

    location: Params  # m, a point of parameter space
    scale: Params  # s, a positive vector of the space
    # The distribution of z, one of `lamu.families.location_scale`.
    base_distribution: BaseDistribution = StandardNormal()

    kind = "location-scale"

    def __post_init__(self) -> None:
        for path, leaf in zip(tree.paths(self.scale), jax.tree.leaves(self.scale), strict=True):
            if not isinstance(leaf, Tracer) and hasattr(leaf, "shape") and not np.all(np.asarray(leaf) > 0):
                raise ValueError(f"the scale of {path or 'the belief'} is not positive: {leaf!r}")

    @property
    def mean(self) -> Params:
        """E_q[θ]."""
        return self.at(self.base_distribution.centre(self.location))

    def at(self, z: Params) -> Params:
        """Returns m + s z."""
        return jax.tree.map(lambda m, s, e: m + s * e, self.location, self.scale, z)

    def sample(self, key: RandomKey) -> Params:
        """Returns one sample of θ, differentiable in m and s."""
        return self.at(self.base_distribution.draw(key, self.location))

    def log_prob(self, theta: Params) -> Array:
        """Returns log q(θ) in nats."""
        z = jax.tree.map(lambda t, m, s: (t - m) / s, theta, self.location, self.scale)
        return self.base_distribution.log_prob(z) - self._log_scale()

    def entropy(self) -> Array:
        """Returns H(q) in nats."""
        log_scale = self._log_scale()
        return jnp.asarray(self.base_distribution.entropy(self.location)).astype(log_scale.dtype) + log_scale

    def gaussian(self) -> Gaussian | None:
        """Returns the same belief as a Gaussian with a diagonal precision, or None for another base distribution."""
        if not isinstance(self.base_distribution, StandardNormal):
            return None
        return Gaussian(self.location, Diagonal(jax.tree.map(lambda s: s**-2, self.scale)))

    def _log_scale(self) -> Array:
        ones: Params = jax.tree.map(jnp.ones_like, self.scale)
        return tree.dot(jax.tree.map(jnp.log, self.scale), ones)


def transformed(belief: Belief, constraints: Constraints) -> Belief:
    """Returns the belief about θ = g(u) from one about u, at `network`; draws become draws."""
    if isinstance(belief, Draws):
        return replace(belief, samples=_constrained(constraints, belief.samples))
    if isinstance(belief, Product):
        return Product({**belief.factors, "network": TransformedBelief(belief.factors["network"], constraints)})
    return TransformedBelief(belief, constraints, part="network")


@jax.jit
def _constrained(constraints: Constraints, samples: Params) -> Params:
    return {**samples, "network": constraints.constrain(samples["network"])[0]}
