r"""Hierarchical priors of weights with unknown scales, \(w_i = z_i \prod_l \tau_{l, g_l(i)}\)."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import require_positive
from lamu.likelihoods.bases import DispersionPrior, GammaPowerLaw
from lamu.networks.interface import Network, outputs
from lamu.networks.wrapper import NetworkWrapper
from lamu.priors.interface import IndependentLeaves, Prior
from lamu.priors.normal import Normal
from lamu.record import record, static
from lamu.typing import Array, DTypeLike, Number, Params, RandomKey, State

__all__ = [
    "ARD",
    "GammaVariance",
    "HalfCauchyScale",
    "Hierarchical",
    "Hierarchy",
    "Horseshoe",
    "InverseGammaVariance",
    "RegularisedHorseshoe",
    "Scale",
    "ScaleLaw",
    "ScaledNetwork",
]


# Each is a density of u = log τ, including the Jacobian, so that scales are real coordinates for any algorithm. Two of
# them are conjugate to normal weights: given the squared weights, 1/τ² is gamma again.


class ScaleLaw(DispersionPrior):
    """Base class of distributions of a positive scale, as densities of its logarithm.

    A custom law inherits from this class, is a `lamu.record.record`, and defines the three abstract methods.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import HalfCauchyScale
        >>> HalfCauchyScale(1.0).log_prob(jnp.zeros(1)).round(4).tolist()  # the density 2 / (π (1 + τ²)) at 1 is 1/π
        [-1.1447...]
    """

    @property
    @abstractmethod
    def typical(self) -> Number:
        """A typical scale, at which runs start."""

    def precision_prior(self, mean_precision: Array, temperature: Number = 1.0) -> tuple[Array, Array]:
        r"""Returns shape and rate of the gamma message to the precision 1/τ², given its current mean.

        \[ q(\tau^{-2}) = \mathrm{Gamma}\big((a - 1 + n/2)/T + 1,\;
            (b + \tfrac12 \textstyle\sum_i E[w_i^2])/T\big) \]

        for n weights of this scale, with a and b returned here, neither divided by T.

        Args:
            mean_precision: E[1/τ²] under the current belief, any shape.
            temperature: T, which also divides the log densities of an auxiliary variable.

        Raises:
            TypeError: for a law that is not conjugate.
        """
        del mean_precision, temperature
        raise TypeError(
            f"{type(self).__name__} is not conjugate to normal weights; take HalfCauchyScale or InverseGammaVariance, "
            "or the form that is not centred, Model(prior.around(network), likelihood, prior)"
        )


@record
class HalfCauchyScale(ScaleLaw):
    r"""A half-Cauchy scale, \(p(\tau) = \frac{2}{\pi s (1 + \tau^2/s^2)}\), \(\tau > 0\).

    Its density is positive at zero and its tail has no mean: a scale can vanish, or be as large as the data need. As a
    mixture, \(\tau^2 \mid \nu \sim \mathrm{InverseGamma}(\frac12, 1/\nu)\), \(\nu \sim \mathrm{InverseGamma}(\frac12,
    1/s^2)\).

    Attributes:
        scale: s, the median of τ.

    Raises:
        ValueError: if it is not positive and finite.

    Source: Gelman (2006); Wand et al. (2011), result 5, for the mixture.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import HalfCauchyScale
        >>> [float(value) for value in HalfCauchyScale(1.0).precision_prior(jnp.array(1.0))]
        [0.5, 0.5]
    """

    scale: Number = 1.0

    def __post_init__(self) -> None:
        require_positive("scale", self.scale, "give the median of the scales")

    @property
    def typical(self) -> Number:
        """The median s."""
        return self.scale

    def log_prob(self, log_scale: Array) -> Array:
        r"""Returns \(-\log \pi - \log\cosh(u - \log s)\)."""
        v = jnp.abs(log_scale - jnp.log(jnp.asarray(self.scale, log_scale.dtype)))
        return math.log(2 / math.pi) - v - jnp.log1p(jnp.exp(-2 * v))

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Returns the logarithms of absolute Cauchy draws."""
        return jnp.log(jnp.abs(jax.random.cauchy(key, shape, dtype))) + jnp.log(jnp.asarray(self.scale, dtype))

    def precision_prior(self, mean_precision: Array, temperature: Number = 1.0) -> tuple[Array, Array]:
        r"""Returns ½ and \(E[1/\nu] = T / (1/s^2 + E[1/\tau^2])\).

        In 1/ν the logarithms in the log densities of τ² given ν and of ν cancel, so that at temperature T \(q(1/\nu) =
        \mathrm{Gamma}(1, (1/s^2 + E[1/\tau^2])/T)\).
        """
        s = jnp.asarray(self.scale, mean_precision.dtype)
        return jnp.full_like(mean_precision, 0.5), temperature / (s**-2 + mean_precision)


@record
class GammaVariance(GammaPowerLaw, ScaleLaw):
    r"""A gamma variance, \(\tau^2 \sim \mathrm{Gamma}(a, b)\).

    For a = 1 normal weights with this variance have a `Laplace` distribution of scale \(1/\sqrt{2b}\).

    Attributes:
        shape: a.
        rate: b; the mean of τ² is a / b.

    Raises:
        ValueError: if one is not positive and finite.

    Source: Griffin & Brown (2010).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import GammaVariance
        >>> GammaVariance(1.0, 0.5).log_prob(jnp.zeros(1)).round(4).tolist()  # ½ exp(−½) and the Jacobian 2
        [-0.5...]
    """

    shape: Number = 1.0
    rate: Number = 1.0

    power = 2


@record
class InverseGammaVariance(GammaPowerLaw, ScaleLaw):
    r"""An inverse-gamma variance, \(\tau^2 \sim \mathrm{InverseGamma}(a, b)\): the precision 1/τ² is Gamma(a, b).

    Normal weights with one such variance each are `StudentT` with 2a degrees of freedom and scale \(\sqrt{b/a}\).

    Attributes:
        shape: a.
        rate: b.

    Raises:
        ValueError: if one is not positive and finite.

    Source: Neal (1996), section 4.3.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import InverseGammaVariance
        >>> [float(value) for value in InverseGammaVariance(2.0, 3.0).precision_prior(jnp.array(1.0))]
        [2.0, 3.0]
    """

    shape: Number = 1.0
    rate: Number = 1.0

    power = -2

    def precision_prior(self, mean_precision: Array, temperature: Number = 1.0) -> tuple[Array, Array]:
        del temperature
        a, b = (jnp.asarray(value, mean_precision.dtype) for value in (self.shape, self.rate))
        return jnp.full_like(mean_precision, a), jnp.full_like(mean_precision, b)


_GROUPS = ("all", "layer", "unit", "input", "weight")


@record
class Scale:
    r"""A level of scales τ of a network's weights, one for each group, with a common distribution.

    Values of the groups are a dictionary of arrays with the key "all", the path of a layer, or the path of a leaf; the
    shape of a value broadcasts to the leaves of the group.

    Attributes:
        law: the distribution of τ, a `ScaleLaw`.
        by: the groups of weights that share a scale: "all"; "layer", the leaves of one dictionary; "unit", the last
            axis of a leaf; "input", the last but one, with one scale for a leaf without inputs; "weight", each weight.
        leaves: the path pattern of the leaves with such scales, by default "*kernel", which excludes biases.

    Raises:
        ValueError: for another `by`; and, at the first parameters, for a pattern without a leaf.
        TypeError: for a law that is not a `ScaleLaw`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import Scale
        >>> weights = {"layers": {0: {"bias": jnp.zeros(2), "kernel": jnp.ones((3, 2))}}}
        >>> Scale(by="input").constant(2.0, weights)["layers/0/kernel"].shape
        (3, 1)
        >>> Scale(by="input").sums(weights)["layers/0/kernel"].ravel().tolist()
        [2.0, 2.0, 2.0]
    """

    law: ScaleLaw | Any = HalfCauchyScale(1.0)
    by: str = static(default="weight")
    leaves: str = static(default="*kernel")

    def __post_init__(self) -> None:
        if self.by not in _GROUPS:
            raise ValueError(f"by={self.by!r} names no groups of weights; give one of {', '.join(_GROUPS)}")
        if not isinstance(self.law, ScaleLaw):
            raise TypeError(
                f"law={self.law!r} is not a distribution of a scale; give HalfCauchyScale, GammaVariance, "
                "InverseGammaVariance, or a class that inherits from ScaleLaw"
            )

    def check(self, params: Params) -> None:
        """Raises a ValueError if no leaf has such a scale."""
        tree.require_matches([self.leaves], params)

    def constant(self, value: Number, params: Params) -> dict[str, Array]:
        """Returns the same value for every group.

        Args:
            value: a number.
            params: a network's parameters.
        """
        groups = {}
        for path, leaf in zip(tree.paths(params), jax.tree.leaves(params), strict=True):
            if self.covers(path):
                groups[self._group(path)] = jnp.full(self._shape(leaf), value, jnp.result_type(leaf))
        return groups

    def sums(self, amounts: Params) -> dict[str, Array]:
        """Returns the sum of the weights' amounts over every group.

        Args:
            amounts: a tree like the parameters.
        """
        groups: dict[str, Array] = {}
        for path, leaf in zip(tree.paths(amounts), jax.tree.leaves(amounts), strict=True):
            if self.covers(path):
                group, shape = self._group(path), self._shape(leaf)
                others = tuple(i for i, n in enumerate(shape) if n == 1) if shape else None
                total = jnp.sum(leaf, axis=others, keepdims=bool(shape))
                groups[group] = groups[group] + total if group in groups else total
        return groups

    def covers(self, path: str) -> bool:
        """Whether the leaf of a path has such scales."""
        return tree.matches(path, self.leaves)

    def of(self, groups: dict[str, Array], path: str) -> Array:
        """Returns the values of a leaf's weights, of a shape that broadcasts to it.

        Args:
            groups: a value for every group.
            path: the path of a leaf with such scales.
        """
        return groups[self._group(path)]

    def _group(self, path: str) -> str:
        if self.by == "all":
            return "all"
        return path.rpartition("/")[0] or "all" if self.by == "layer" else path

    def _shape(self, leaf: Array) -> tuple[int, ...]:
        """Returns the shape of a leaf's scales: one number, one axis of the leaf, or all."""
        if self.by in ("all", "layer"):
            return ()
        if self.by == "weight":
            return leaf.shape
        axis = leaf.ndim - (1 if self.by == "unit" else 2)
        return tuple(n if i == axis else 1 for i, n in enumerate(leaf.shape))


# In the non-centred form, `prior.around(network)` is a network whose parameters are the standardised weights z and the
# logarithms of the scales, independent under the prior:
#
# \[ \log p(z, u) = \log p_0(z) + \sum_l \sum_g \log p_l(u_{l,g}), \qquad u = \log \tau \]
#
# so that every algorithm updates both. In the conjugate form the network is unchanged, and an algorithm has a belief
# about the scales (`lamu.algorithms.conjugate_scales`).


# The number folded into the key for the draws of the scales.
_SCALES = 1


class Hierarchy(IndependentLeaves):
    r"""Base class of hierarchical priors: a prior of standardised weights, and levels of scales that multiply them.

    Parameters of the network that `around` returns are `{"scales": {0: …, 1: …}, "weights": …}`, the scales level by
    level as logarithms.
    """

    weights: Prior = Normal(1.0)
    # Whether the factor of a weight is the product of its scales, as conjugate messages need.
    multiplies: bool = True

    def __post_init__(self) -> None:
        _ = self.levels  # which checks them

    @property
    def standardised(self) -> Prior:
        """The prior of z; by default the field `weights`."""
        return self.weights

    @property
    @abstractmethod
    def levels(self) -> tuple[Scale, ...]:
        """The levels of scales."""

    def log_factor(self, logs: list[Array]) -> Array:
        """Returns the logarithm of the factor of a leaf's weights; by default the sum over its scales.

        Args:
            logs: the logarithms of the scales by level, of shapes that broadcast to the leaf.
        """
        return sum(logs[1:], start=logs[0])

    def around(self, network: Any) -> ScaledNetwork:
        """Returns the network whose parameters are standardised weights and scales.

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
        """Returns the weights of the network itself, z times their scales.

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
        """Raises a ValueError if the weights, with or without scales, cannot have this prior."""
        self.check_weights(params["weights"] if holds_scales(params) else params)

    def check_weights(self, weights: Params) -> None:
        """Raises a ValueError if the standardised weights cannot have their prior, or a level has no leaf."""
        self.standardised.check(weights)
        for level in self.levels:
            level.check(weights)

    def log_prob(self, params: Params) -> Array:
        r"""Returns \(\log p_0(z) + \sum \log p(u)\), a scalar in nats.

        Raises:
            ValueError: for weights without scales, whose density is an integral.
        """
        if not holds_scales(params):
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
        """Returns a draw, a tree like `params`: of z and u, or of the weights where `params` has no scales."""
        if not holds_scales(params):
            return self.scaled(self.sample(key, {"scales": self.start(params), "weights": params}))
        scales = {}
        for i, level in enumerate(self.levels):
            leaves, structure = jax.tree.flatten(params["scales"][i])
            keys = jax.random.split(jax.random.fold_in(key, _SCALES + i), max(len(leaves), 1))
            draws = [level.law.draw(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=False)]
            scales[i] = jax.tree.unflatten(structure, draws)
        return {"scales": scales, "weights": self.standardised.sample(jax.random.fold_in(key, 0), params["weights"])}


def holds_scales(params: Params) -> bool:
    return isinstance(params, dict) and set(params) == {"scales", "weights"}


@record
class Hierarchical(Hierarchy):
    r"""Weights \(w_i = z_i \prod_l \tau_{l, g_l(i)}\) with levels of unknown scales of groups of weights.

    Normal z with one inverse-gamma variance a weight are `StudentT`, with one gamma variance of shape 1 `Laplace`.

    Attributes:
        weights: the prior of the standardised weights z, with scale 1 if the scales are to be standard deviations.
        scales: the levels, a tuple of `Scale`.

    Raises:
        ValueError: without a level; and, at the first parameters, for a level without a leaf.

    Source: Neal (1996), chapter 4; Papaspiliopoulos, Roberts & Sköld (2007) for the non-centred form.

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

    weights: Prior = Normal(1.0)
    scales: tuple[Scale, ...] = (Scale(),)

    def __post_init__(self) -> None:
        if not isinstance(self.scales, tuple) or not self.scales:
            raise ValueError(f"scales={self.scales!r} are not levels; give a tuple of Scale, for instance (Scale(),)")

    @property
    def levels(self) -> tuple[Scale, ...]:
        return self.scales


@record
class ScaledNetwork(NetworkWrapper):
    r"""The network \(f(z \odot \tau, x)\), whose parameters are standardised weights z and scales τ.

    Attributes:
        base: f.
        prior: the prior of z and τ, which defines the groups.

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
    # False: it is linear in weights and in scales, not in both together.
    linear = False

    @property
    def head(self) -> str:
        """The path pattern of the base's last layer, among the standardised weights."""
        return f"weights/{self.base.head}"

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns typical scales and the base's initial weights divided by them."""
        weights, state = self.base.init(key, x, outputs)
        self.prior.check_weights(weights)
        scales = self.prior.start(weights)
        z = jax.tree.map(jnp.divide, weights, self.prior.factors(scales, weights))
        return {"scales": scales, "weights": z}, state

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        """Returns the base's outputs at the scaled weights, and its new state."""
        return outputs(self.base, self.prior.scaled(params), state, x, key, train, mask)


@record
class ARD(Hierarchy):
    r"""Automatic relevance determination: an unknown scale for the weights of every input, \(w_{jk} = \tau_j z_{jk}\).

    Attributes:
        by: the groups of weights that share a scale: "input", "unit", "layer" or "weight".
        law: the distribution of τ.
        leaves: the path pattern of the leaves with scales; `"layers/0/kernel"` for a network's inputs alone.
        weights: the prior of z, of all leaves.

    Raises:
        ValueError, TypeError: as `Hierarchical` and `Scale`.

    Source: MacKay (1994); Neal (1996), section 4.3.

    Examples:
        >>> import lamu
        >>> prior = lamu.priors.ARD(by="input")
        >>> network = prior.around(lamu.networks.MLP((8,)))
    """

    by: str = static(default="input")
    law: ScaleLaw | Any = HalfCauchyScale(1.0)
    leaves: str = static(default="*kernel")
    weights: Prior = Normal(1.0)

    @property
    def levels(self) -> tuple[Scale, ...]:
        return (Scale(self.law, self.by, self.leaves),)


@record
class Horseshoe(Hierarchy):
    r"""The horseshoe: \(w_i = \tau \lambda_i z_i\), \(\tau \sim C^+(0, s)\), \(\lambda_i \sim C^+(0, 1)\), normal z.

    The global scale τ shrinks all weights; the heavy-tailed local scales let single weights be large. With \(p_0\)
    relevant ones of D weights, \(s = \frac{p_0}{D - p_0} \sigma / \sqrt N\) is a guess of the global scale.

    Attributes:
        scale: s, the median of the global scale.
        by: the groups of weights that share a λ: "weight", "input" or "unit".
        leaves: the path pattern of the leaves with this prior.
        weights: the prior of z, of all leaves.

    Raises:
        ValueError: for a scale that is not positive and finite; and as `Hierarchical` and `Scale`.

    Source: Carvalho, Polson & Scott (2010); Piironen & Vehtari (2017), section 3.3, for s.

    Examples:
        >>> import lamu
        >>> prior = lamu.priors.Horseshoe(scale=0.1)
        >>> [level.by for level in prior.levels]
        ['all', 'weight']
    """

    scale: Number = 1.0
    by: str = static(default="weight")
    leaves: str = static(default="*kernel")
    weights: Prior = Normal(1.0)

    @property
    def levels(self) -> tuple[Scale, ...]:
        """The global scale, and the local ones."""
        return (
            Scale(HalfCauchyScale(self.scale), "all", self.leaves),
            Scale(HalfCauchyScale(1.0), self.by, self.leaves),
        )


@record
class RegularisedHorseshoe(Hierarchy):
    r"""The horseshoe with a slab, which bounds the scale of the largest weights by c.

    \[ w_i = z_i \frac{c\, \tau \lambda_i}{\sqrt{c^2 + \tau^2 \lambda_i^2}}, \qquad
       c^2 \sim \mathrm{InverseGamma}\big(\tfrac{\nu}{2}, \tfrac{\nu}{2} s_c^2\big) \]

    Attributes:
        scale: s, the median of the global scale τ.
        slab: \(s_c\), the scale of the slab.
        df: ν, the degrees of freedom of the slab, which is Student-t.
        by: the groups of weights that share a λ: "weight", "input" or "unit".
        leaves: the path pattern of the leaves with this prior.
        weights: the prior of z, of all leaves.

    Raises:
        ValueError: for a number that is not positive and finite; and as `Hierarchical` and `Scale`.

    Source: Piironen & Vehtari (2017), equations 2.8 to 2.10.

    Examples:
        >>> import lamu
        >>> [level.by for level in lamu.priors.RegularisedHorseshoe(scale=0.1, slab=2.0).levels]
        ['all', 'weight', 'all']
    """

    scale: Number = 1.0
    slab: Number = 1.0
    df: Number = 4.0
    by: str = static(default="weight")
    leaves: str = static(default="*kernel")
    weights: Prior = Normal(1.0)
    # False: the slab bounds the product of the others.
    multiplies = False

    @property
    def levels(self) -> tuple[Scale, ...]:
        """The global scale, the local ones, and the slab's."""
        return (
            Scale(HalfCauchyScale(self.scale), "all", self.leaves),
            Scale(HalfCauchyScale(1.0), self.by, self.leaves),
            Scale(InverseGammaVariance(self.df / 2, self.df / 2 * self.slab**2), "all", self.leaves),
        )

    def log_factor(self, logs: list[Array]) -> Array:
        r"""Returns \(-\frac12 \log\big((\tau\lambda_i)^{-2} + c^{-2}\big)\)."""
        *shrinking, slab = logs
        return -jnp.logaddexp(-2 * super().log_factor(shrinking), -2 * slab) / 2
