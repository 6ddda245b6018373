r"""Weights with scales that are unknown themselves, \(w_i = z_i \prod_l \tau_{l, g_l(i)}\): the priors' mechanism."""

# In the form that is not centred, `prior.around(network)` is a network whose parameters are the standardised weights z
# and the logarithms of the scales, side by side and independent under the prior:
#
# \[ \log p(z, u) = \log p_0(z) + \sum_l \sum_g \log p_l(u_{l,g}), \qquad u = \log \tau \]
#
# so that every algorithm moves both. In the conjugate form the network is as it is, and an algorithm holds a belief
# about the scales (`lamu.algorithms.conjugate_scales`).

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.networks.interface import Network, outputs
from lamu.networks.wrapper import NetworkWrapper
from lamu.priors.interface import IndependentLeaves, Prior
from lamu.priors.normal import Normal
from lamu.priors.scale_groups import Scale
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Hierarchical", "Hierarchy", "ScaledNetwork"]

# The key at which the scales' draws leave that of the weights.
_SCALES = 1


class Hierarchy(IndependentLeaves):
    r"""Base of priors with scales: a prior of standardised weights, and levels of scales that multiply them.

    Parameters of the network that `around` makes are `{"scales": {0: …, 1: …}, "weights": …}`, the scales level by
    level as logarithms.
    """

    @property
    @abstractmethod
    def standardised(self) -> Prior:
        """The prior of z."""

    @property
    @abstractmethod
    def levels(self) -> tuple[Scale, ...]:
        """The levels of scales."""

    @property
    def multiplies(self) -> bool:
        """Whether the factor of a weight is the product of its scales, as conjugate messages take it."""
        return True

    def log_factor(self, logs: list[Array]) -> Array:
        """Returns the logarithm of the factor of a leaf's weights: the sum of those of its scales.

        Args:
            logs: the logarithms of the scales level by level, of shapes that broadcast to the leaf.
        """
        return sum(logs[1:], start=logs[0])

    def around(self, network: Any) -> ScaledNetwork:
        """Returns the network whose parameters are standardised weights with the scales beside them.

        Args:
            network: a network of `lamu.networks`, or an object with `init` and `apply`.
        """
        return ScaledNetwork(network, self)

    def start(self, weights: Params) -> dict[int, dict[str, Array]]:
        """Returns the logarithms of typical scales for a network's weights."""
        return {i: level.constant(jnp.log(level.law.typical), weights) for i, level in enumerate(self.levels)}

    def factors(self, scales: dict[int, dict[str, Array]], weights: Params) -> Params:
        """Returns the factor of each weight, of a shape that broadcasts to its leaf."""

        def factor(path: str, leaf: Array) -> Array:
            logs = [level.of(scales[i], path) for i, level in enumerate(self.levels) if level.covers(path)]
            return jnp.exp(self.log_factor(logs)) if logs else jnp.ones((), leaf.dtype)

        return tree.map_with_path(factor, weights)

    def scaled(self, params: Params) -> Params:
        """Returns the weights that the network itself sees, z times their scales.

        Args:
            params: the parameters `{"scales", "weights"}`.

        Examples:
            >>> import jax.numpy as jnp
            >>> from lamu.priors import Hierarchical, Scale
            >>> prior = Hierarchical(scales=(Scale(by="all"),))
            >>> params = {"scales": {0: {"all": jnp.log(2.0)}}, "weights": {"bias": jnp.ones(1), "kernel": jnp.ones(1)}}
            >>> prior.scaled(params)["kernel"].tolist(), prior.scaled(params)["bias"].tolist()
            ([2.0], [1.0])
        """
        z = params["weights"]
        return jax.tree.map(jnp.multiply, z, self.factors(params["scales"], z))

    def check(self, params: Params) -> None:
        """Raises a ValueError if the weights cannot have this prior, with or without their scales beside them."""
        self.check_weights(params["weights"] if _holds_scales(params) else params)

    def check_weights(self, weights: Params) -> None:
        """Raises a ValueError if the standardised weights cannot have their prior, or a level has no leaf."""
        self.standardised.check(weights)
        for level in self.levels:
            level.check(weights)

    def log_prob(self, params: Params) -> Array:
        r"""Returns \(\log p_0(z) + \sum \log p(u)\), a scalar in nats.

        Raises:
            ValueError: for weights without their scales, whose density is an integral.
        """
        if not _holds_scales(params):
            raise ValueError(
                f"the prior {type(self).__name__} has no density of weights without their scales; give "
                "Model(prior.around(network), likelihood, prior), or fit with conjugate_scales(ivon())"
            )
        total = self.standardised.log_prob(params["weights"])
        for i, level in enumerate(self.levels):
            for log_scale in jax.tree.leaves(params["scales"][i]):
                total = total + jnp.sum(level.law.log_prob(log_scale)).astype(total.dtype)
        return total

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Returns a draw, a tree like `params`: of z and u, or of the weights themselves where no scales are beside."""
        if not _holds_scales(params):
            return self.scaled(self.sample(key, {"scales": self.start(params), "weights": params}))
        scales = {}
        for i, level in enumerate(self.levels):
            leaves, structure = jax.tree.flatten(params["scales"][i])
            keys = jax.random.split(jax.random.fold_in(key, _SCALES + i), max(len(leaves), 1))
            draws = [level.law.draw(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=False)]
            scales[i] = jax.tree.unflatten(structure, draws)
        return {"scales": scales, "weights": self.standardised.sample(jax.random.fold_in(key, 0), params["weights"])}


def _holds_scales(params: Params) -> bool:
    return isinstance(params, dict) and set(params) == {"scales", "weights"}


@record
class Hierarchical(Hierarchy):
    r"""Weights \(w_i = z_i \prod_l \tau_{l, g_l(i)}\) with levels of unknown scales, each shared by groups of weights.

    Normal z with one inverse-gamma variance a weight are `StudentT`, with one gamma variance of shape 1 `Laplace`.

    Attributes:
        weights: the prior of the standardised weights z, of scale 1 where scales are to mean standard deviations.
        scales: the levels, a tuple of `Scale`.

    Raises:
        ValueError: without a level; and, where parameters are first seen, for a level without a leaf.

    Source: Neal (1996), chapter 4; Papaspiliopoulos, Roberts & Sköld (2007) for the form that is not centred.

    Examples:
        >>> import lamu
        >>> from lamu.priors import HalfCauchyScale, Hierarchical, Normal, Scale
        >>> prior = Hierarchical(Normal(1.0), (Scale(HalfCauchyScale(0.1), by="layer"),))
        >>> model = lamu.Model(prior.around(lamu.networks.MLP((4,))), lamu.likelihoods.Gaussian(0.1), prior)
        >>> x, y = lamu.data.load("diabetes")
        >>> posterior = lamu.fit(model.standardised(x, y), (x, y), lamu.algorithms.ivon(), epochs=2).posterior
        >>> sorted(posterior.mean["network"]["scales"][0])
        ['layers/0', 'layers/1']
    """

    weights: Any = Normal(1.0)
    scales: tuple[Scale, ...] = (Scale(),)

    def __post_init__(self) -> None:
        if not isinstance(self.scales, tuple) or not self.scales:
            raise ValueError(f"scales={self.scales!r} are no levels; give a tuple of Scale, for instance (Scale(),)")

    @property
    def standardised(self) -> Prior:
        return self.weights

    @property
    def levels(self) -> tuple[Scale, ...]:
        return self.scales


@record
class ScaledNetwork(NetworkWrapper):
    r"""The network \(f(z \odot \tau, x)\), whose parameters are standardised weights z and scales τ beside them.

    Attributes:
        base: f.
        prior: the prior of z and τ, which says which weights share a scale.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.networks import Linear
        >>> from lamu.priors import ARD
        >>> params, _ = ARD().around(Linear()).init(jax.random.key(0), jnp.zeros((1, 3)), outputs=1)
        >>> params["scales"][0]["layers/0/kernel"].shape
        (3, 1)
    """

    base: Network | Any
    prior: Hierarchy | Any

    @property
    def linear(self) -> bool:
        """False: it is linear in weights and in scales, not in both."""
        return False

    @property
    def head(self) -> str:
        """The path pattern of the base's last layer, among the standardised weights."""
        return f"weights/{self.base.head}"

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, Any]:
        """Returns typical scales and the base's weights divided by them, so that f starts as the base does."""
        weights, state = self.base.init(key, x, outputs)
        self.prior.check_weights(weights)
        scales = self.prior.start(weights)
        z = jax.tree.map(jnp.divide, weights, self.prior.factors(scales, weights))
        return {"scales": scales, "weights": z}, state

    def apply(
        self, params: Params, state: Any, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, Any]:
        """Returns the base's outputs at the scaled weights, and its new state."""
        return outputs(self.base, self.prior.scaled(params), state, x, key, train, mask)
