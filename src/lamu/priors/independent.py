"""Priors of independent weights, with one scale for all, or one for each path pattern."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, logit

from lamu import tree
from lamu.base.arguments import checking_arguments, require_positive, require_share
from lamu.families import Binary
from lamu.families.special import log_prob_of_student
from lamu.priors.interface import IndependentLeaves, by_patterns, keep_patterns
from lamu.record import record, static
from lamu.typing import Array, DTypeLike, Number, Numeric, Params, RandomKey

__all__ = [
    "Cauchy",
    "Discrete",
    "FanIn",
    "GeneralisedNormal",
    "Independent",
    "Laplace",
    "ScaleMixture",
    "SpikeAndSlab",
    "StudentT",
]


@record
class FanIn:
    r"""A scale of kernels by the width of a layer, \(s = g / \sqrt{\text{inputs}}\).

    With it the outputs of a layer have the same variance for any width, so that the prior over functions has a limit.
    The neural tangent parametrisation, with standard normal weights and layers divided by \(\sqrt{\text{inputs}}\), is
    the same distribution over functions.

    Attributes:
        gain: g; \(\sqrt 2\) preserves the variance through rectifiers.
        bias: the scale of leaves of fewer than two axes, which have no inputs.

    Source: Neal (1996), section 2.1; He et al. (2015) for the gain.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import FanIn, Normal
        >>> Normal(FanIn(1.0)).gaussian({"kernel": jnp.zeros((4, 2))}).precision.values["kernel"].tolist()
        [[4.0, 4.0], [4.0, 4.0], [4.0, 4.0], [4.0, 4.0]]
    """

    gain: Number = 1.0
    bias: Number = 1.0

    def __post_init__(self) -> None:
        for name, value in (("gain", self.gain), ("bias", self.bias)):
            require_positive(name, value, "it is a factor of standard deviations")

    def of(self, leaf: Array) -> Number:
        """Returns the scale of a leaf.

        Args:
            leaf: a parameter, or its shape; the last axis of a kernel is that of its outputs.
        """
        return self.bias if leaf.ndim < 2 else self.gain / math.sqrt(max(math.prod(leaf.shape[:-1]), 1))


@record
class Independent(IndependentLeaves):
    r"""Base class of independent weights, \(p(\theta) = \prod_i \frac1{s_i}\, p_0\big((\theta_i - m)/s_i\big)\).

    A subclass defines p₀ by its `log_density` and a `draw`.

    Attributes:
        scale: s, a number, a `FanIn`, or a mapping from path patterns of the network's parameters to these, in which
            the first matching pattern applies. A mapping is stored as `patterns` with a tuple of its values.
        loc: the location m.
        patterns: the patterns of a mapping in order of precedence, set from it; None for one scale for all.

    Raises:
        ValueError: if a scale is not positive and finite, or there is none; and, at the first parameters, if a leaf
            matches no pattern or a pattern no leaf.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import Cauchy
        >>> from lamu.priors.independent import Independent
        >>> isinstance(Cauchy({"*bias": 10.0, "*": 0.5}), Independent)
        True
    """

    scale: Any = 1.0
    loc: Number = 0.0
    patterns: tuple[str, ...] | None = static(default=None)

    def __post_init__(self) -> None:
        keep_patterns(self, "scale")
        scales: Any = self.scale if isinstance(self.scale, tuple) else (self.scale,)
        if isinstance(self.scale, tuple) and len(scales) != len(self.patterns or ()):
            raise ValueError(
                f"the scales {self.scale} have no patterns; pass a mapping, for instance {{'*bias': 10.0, '*': 1.0}}"
            )
        if not scales:
            raise ValueError("the mapping of scales is empty; give one scale for all, for instance {'*': 1.0}")
        for name, scale in zip(self.patterns or ("",), scales, strict=True):
            if not isinstance(scale, FanIn):
                require_positive("prior scale", scale, f"give a positive number{f' for {name!r}' if name else ''}")

    @abstractmethod
    def log_density(self, z: Array) -> Array:
        """Returns log p₀ of standardised weights, an array like them."""

    @abstractmethod
    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Returns draws of p₀."""

    def check(self, params: Params) -> None:
        """Raises a ValueError if a pattern matches no leaf, or a leaf no pattern."""
        if self.patterns is not None:
            tree.require_matches(self.patterns, params)
            self.scales(params)

    def log_prob(self, params: Params) -> Array:
        r"""Returns \(\sum_i \log p_0((\theta_i - m)/s_i) - \log s_i\), a scalar in nats."""

        def leaf(x: Array, s: Number) -> Array:
            scale = jnp.asarray(s, x.dtype)
            z = (x - jnp.asarray(self.loc, x.dtype)) / scale
            return jnp.sum(self.log_density(z)) - x.size * jnp.log(scale)

        leaves = jax.tree.leaves(jax.tree.map(leaf, params, self.scales(params)))
        return jnp.sum(jnp.stack(leaves)) if leaves else jnp.asarray(0.0)

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Returns m + s z with z of p₀, a tree like `params`."""

        def leaf(k: RandomKey, x: Array, s: Number) -> Array:
            return jnp.asarray(self.loc, x.dtype) + jnp.asarray(s, x.dtype) * self.draw(k, x.shape, x.dtype)

        return jax.tree.map(leaf, tree.keys_like(key, params), params, self.scales(params))

    def _kinks(self, params: Params, slope: Numeric) -> tuple[Params, Params]:
        """Returns m of every weight, and the slope of −log p₀ right of zero, divided by s."""
        places = jax.tree.map(lambda x: jnp.full_like(x, self.loc), params)
        return places, jax.tree.map(lambda x, s: jnp.full_like(x, slope / s), params, self.scales(params))

    def scales(self, params: Params) -> Params:
        """Returns the scale of each leaf, a tree like `params`.

        Args:
            params: any parameters of the right structure; only their paths and shapes are used.
        """
        chosen = by_patterns(self.patterns, self.scale, params)
        return jax.tree.map(lambda x, s: s.of(x) if isinstance(s, FanIn) else s, params, chosen)


@record
class Discrete(IndependentLeaves):
    r"""Binary weights, \(p(\theta) = \prod_i \pi_i^{(1 + \theta_i)/2} (1 - \pi_i)^{(1 - \theta_i)/2}\) on ±1.

    It is a mass function without a gradient, for `bayesbinn` and `straight_through`, whose belief about binary weights
    takes it exactly, \(\lambda_0 = \tfrac12 \log \pi / (1 - \pi)\). Use `ByPath` for real weights among binary ones,
    and `Belief(Binary(...))` for an earlier belief.

    Attributes:
        probability: π of +1, or a mapping from path patterns to these, in which the first matching pattern applies;
            stored as `patterns` with a tuple of its values.
        patterns: set from a mapping; None for one probability for all.

    Raises:
        ValueError: for a probability outside (0, 1); and, at the first parameters, if a leaf matches no pattern or a
            pattern no leaf.

    Source: Soudry, Hubara & Meir (2014), section 3.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.priors import ByPath, Discrete, Normal
        >>> round(float(jnp.exp(Discrete(0.8).log_prob({"w": jnp.array([1.0, -1.0])}))), 4)
        0.16
        >>> prior = ByPath({"*kernel": Discrete(0.5), "*": Normal(1.0)})
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.MLP((4,)), lamu.likelihoods.Bernoulli(), prior).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.bayesbinn(), epochs=2).posterior
    """

    probability: Any = 0.5
    patterns: tuple[str, ...] | None = static(default=None)

    def __post_init__(self) -> None:
        keep_patterns(self, "probability")
        values: Any = self.probability if self.patterns is not None else (self.probability,)
        for name, value in zip(self.patterns or ("",), values, strict=True):
            require_share("probability of +1", value, f"give for instance 0.5{f' for {name!r}' if name else ''}")

    def check(self, params: Params) -> None:
        """Raises a ValueError if a pattern matches no leaf, or a leaf no pattern."""
        if self.patterns is not None:
            tree.require_matches(self.patterns, params)
            self.exponential(params)

    def exponential(self, params: Params) -> Binary:
        r"""Returns the belief \(\lambda = \tfrac12 \log \pi / (1 - \pi)\) of every weight."""
        chosen = by_patterns(self.patterns, self.probability, params)
        return Binary(jax.tree.map(lambda x, p: jnp.full_like(x, logit(jnp.asarray(p, x.dtype)) / 2), params, chosen))

    def log_prob(self, params: Params) -> Array:
        """Returns the log probability, a scalar in nats; −∞ where a weight is neither −1 nor +1."""
        mass = self.exponential(params).log_prob(params)
        binary = [jnp.all(jnp.abs(leaf) == 1) for leaf in jax.tree.leaves(params)]
        return jnp.where(jnp.all(jnp.stack(binary)), mass, -jnp.inf) if binary else mass

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Returns a draw of minus and plus ones, a tree like `params`."""
        return self.exponential(params).sample(key)


# None of these is Gaussian, so each enters every algorithm through the loss.


@record
class Laplace(Independent):
    r"""Laplace weights, \(p(\theta_i) = \frac1{2 s_i} e^{-|\theta_i - m| / s_i}\): L1 regularisation of rate 1/s.

    The mode has weights that are exactly m, and `map_estimate` finds them: with a linear model and a Gaussian
    likelihood it is the Lasso. Draws and means are not sparse: sparsity is a property of the point estimate.

    Attributes:
        scale: s, the mean distance from m; a number, a `FanIn`, or a mapping by path pattern.
        loc: m.
        patterns: set from a mapping.

    Source: Tibshirani (1996); Park & Casella (2008).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import Laplace
        >>> round(float(Laplace(0.5).log_prob({"w": jnp.array([1.0])})), 4)
        -2.0
    """

    def kinks(self, params: Params) -> tuple[Params, Params]:
        """Returns m and 1/s of every weight."""
        return self._kinks(params, 1.0)

    def log_density(self, z: Array) -> Array:
        """Returns −|z| − log 2."""
        return -z * jnp.sign(z) - math.log(2.0)  # its slope at zero is zero, while that of JAX's abs is one

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Returns draws of Laplace's distribution."""
        return jax.random.laplace(key, shape, dtype)


@record
class StudentT(Independent):
    r"""Student-t weights, \(p_0(z) \propto (1 + z^2/\nu)^{-(\nu + 1)/2}\).

    It is a normal mixture over variances that are inverse-Gamma(ν/2, ν/2) for every weight: large weights are shrunk
    less.

    Attributes:
        scale: s; the standard deviation is \(s \sqrt{\nu / (\nu - 2)}\). A number, a `FanIn`, or a mapping.
        loc: m.
        patterns: set from a mapping.
        df: ν, the degrees of freedom.

    Raises:
        ValueError: for degrees of freedom that are not positive; and as every prior of independent weights.

    Source: Fortuin et al. (2022), with such tails in trained networks.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import StudentT
        >>> round(float(StudentT(df=4.0).log_prob({"w": jnp.zeros(1)})), 4)
        -0.9808
    """

    df: Number = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("degrees of freedom", self.df, "give for instance 3.0")

    def log_density(self, z: Array) -> Array:
        """Returns the log density of Student's t."""
        return log_prob_of_student(z, jnp.asarray(self.df, z.dtype))

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Returns draws of Student's t."""
        return jax.random.t(key, jnp.asarray(self.df, dtype), shape, dtype)


@record
class Cauchy(Independent):
    r"""Cauchy weights, \(p_0(z) = 1 / (\pi (1 + z^2))\): Student's t of one degree of freedom.

    It has neither mean nor variance. In a wide network a few weights dominate, and the limit is not a Gaussian process.

    Attributes:
        scale: s, half of the distance between the quartiles. A number, a `FanIn`, or a mapping.
        loc: m.
        patterns: set from a mapping.

    Source: Neal (1996), section 2.1, for the limit of wide networks.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import Cauchy
        >>> round(float(Cauchy().log_prob({"w": jnp.zeros(1)})), 4)
        -1.1447
    """

    def log_density(self, z: Array) -> Array:
        """Returns −log π − log(1 + z²)."""
        return -math.log(math.pi) - jnp.log1p(z * z)

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Returns draws of Cauchy's distribution."""
        return jax.random.cauchy(key, shape, dtype)


@record
class GeneralisedNormal(Independent):
    r"""Weights with \(p_0(z) = \frac{\beta}{2 \Gamma(1/\beta)} e^{-|z|^\beta}\).

    β = 2 is a normal with standard deviation \(s/\sqrt2\), β = 1 is `Laplace`; below one the mode at m is sharper.

    Attributes:
        scale: s. A number, a `FanIn`, or a mapping.
        loc: m.
        patterns: set from a mapping.
        power: β.

    Raises:
        ValueError: for a power that is not positive; and as every prior of independent weights.

    Source: Nadarajah (2005).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import GeneralisedNormal, Laplace
        >>> weights = {"w": jnp.array([0.3, -2.0])}
        >>> float(GeneralisedNormal(0.5, power=1.0).log_prob(weights)) == float(Laplace(0.5).log_prob(weights))
        True
    """

    power: Number = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("power", self.power, "give for instance 1.5")

    def kinks(self, params: Params) -> tuple[Params, Params]:
        """Returns m, and the slope next to it: infinite for β < 1, 1/s for β = 1, else zero."""
        return self._kinks(params, jnp.where(self.power < 1, jnp.inf, jnp.where(self.power == 1, 1.0, 0.0)))

    def log_density(self, z: Array) -> Array:
        power = jnp.asarray(self.power, z.dtype)
        # For β < 1 |z|^β has no finite slope at zero, and automatic differentiation gives NaN.
        away = jnp.where(z == 0, 1.0, jnp.abs(z))
        return jnp.log(power / 2) - gammaln(1 / power) - jnp.where(z == 0, 0.0, away**power)

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Returns draws: a sign, and the root of a Gamma variable."""
        sign_key, size_key = jax.random.split(key)
        power = jnp.asarray(self.power, dtype)
        size = jax.random.gamma(size_key, 1 / power, shape, dtype) ** (1 / power)
        return size * jax.random.rademacher(sign_key, shape, dtype)


_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


@record
class SpikeAndSlab(Independent):
    r"""A mixture of a wide normal, the slab, and a narrow one, the spike, independently for each weight.

    \[ p(\theta) = \prod_i \big( \pi\, N(\theta_i \mid m, s_i^2) + (1 - \pi)\, N(\theta_i \mid m, (\epsilon s_i)^2)
       \big) \]

    Irrelevant weights are shrunk to m more than by a normal prior, and large weights less. The spike is not a point
    mass, so that the density has a gradient; draws have no exact zeros. It is not Gaussian, and enters every algorithm
    through the loss.

    Attributes:
        scale: s, the standard deviation of the slab; a number, a `FanIn`, or a mapping by path pattern.
        loc: m.
        patterns: set from a mapping.
        share: π, the share of the slab.
        spike: ε, the standard deviation of the spike as a share of the slab's.

    Raises:
        ValueError: for a share or a spike outside (0, 1); and as every prior of independent weights.

    Source: George & McCulloch (1993), section 2.1, the mixture of two normals; Blundell et al. (2015), equation 7.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.priors import SpikeAndSlab
        >>> prior = SpikeAndSlab({"*bias": 10.0, "*": 1.0}, share=0.5, spike=0.1)
        >>> round(float(prior.log_prob({"kernel": jnp.zeros(1)})), 3)
        0.786
    """

    share: Number = 0.5
    spike: Number = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        require_share("share", self.share, "give that of the slab")
        require_share("spike", self.spike, "give its part of the slab's standard deviation")

    def log_density(self, z: Array) -> Array:
        """Returns the log density of the mixture of N(0, 1) and N(0, ε²)."""
        share, spike = jnp.asarray(self.share, z.dtype), jnp.asarray(self.spike, z.dtype)
        slab = jnp.log(share) - z * z / 2
        narrow = jnp.log1p(-share) - jnp.log(spike) - (z / spike) ** 2 / 2
        return jnp.logaddexp(slab, narrow) - _HALF_LOG_2_PI

    def shares_of_deviation(self, mode: Params, precision: Params) -> Params:
        """Returns the deviation of Laplace's method at a mode as a share of that of the mixture, weight by weight.

        Args:
            mode: the weights.
            precision: of each weight given the others, the curvature of this prior included.
        """
        log_density = lambda z: jnp.sum(self.log_density(z))

        def leaf(w: Array, P: Array, s: Number) -> Array:
            # In units of the slab: the rows say N(c, 1/h), since their slope at the mode is minus that of the prior.
            z, unit = (w - self.loc) / s, jnp.asarray(s, w.dtype) ** 2
            slope = jax.grad(log_density)(z)
            curvature = jax.jvp(jax.grad(log_density), (z,), (jnp.ones_like(z),))[1]
            h = jnp.maximum(P * unit + curvature, 1e-6)
            c = z - slope / h
            slab, spike = jnp.ones_like(z), jnp.full_like(z, self.spike**2)  # variances
            height = lambda v: -(c**2 / (1 / h + v) + jnp.log(1 / h + v)) / 2
            odds = jnp.log(jnp.asarray(self.share / (1 - self.share), z.dtype))
            weight = jax.nn.sigmoid(odds + height(slab) - height(spike))
            average = lambda of: weight * of(slab) + (1 - weight) * of(spike)
            mean = average(lambda v: c * h / (h + 1 / v))
            second = average(lambda v: 1 / (h + 1 / v) + (c * h / (h + 1 / v)) ** 2)
            return jnp.sqrt(1 / (P * unit) / (second - mean**2))

        return jax.tree.map(leaf, mode, precision, self.scales(mode))

    def draw(self, key: RandomKey, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        which, noise = jax.random.split(key)
        in_slab = jax.random.bernoulli(which, self.share, shape)
        scale = jnp.where(in_slab, jnp.ones((), dtype), jnp.asarray(self.spike, dtype))
        return scale * jax.random.normal(noise, shape, dtype)


@checking_arguments
def ScaleMixture(weight: Number = 0.5, wide: Number = 1.0, narrow: Number = 0.05) -> SpikeAndSlab:
    r"""Returns the spike and slab prior by its two standard deviations, as in Bayes by Backprop.

    \[ p(\theta) = \prod_j \big( \pi\, N(\theta_j \mid 0, \sigma_1^2) + (1 - \pi)\, N(\theta_j \mid 0, \sigma_2^2) \big)
    \]

    Args:
        weight: π, the share of the wide component.
        wide: σ₁, its standard deviation.
        narrow: σ₂, the standard deviation of the spike.

    Raises:
        ValueError: for a share outside (0, 1), a standard deviation that is not positive and finite, or a narrow one
            that is not below the wide one.

    Source: Blundell et al. (2015), equation 7.

    Examples:
        >>> from lamu.priors import ScaleMixture
        >>> ScaleMixture(weight=0.5, wide=2.0, narrow=0.5)
        SpikeAndSlab(scale=2.0, loc=0.0, patterns=None, share=0.5, spike=0.25)
    """
    if not tree.has_tracers((weight, wide, narrow)):
        if not 0.0 < weight < 1.0:
            raise ValueError(f"weight={weight!r} leaves one component alone; give a share between 0 and 1")
        if not 0.0 < narrow < wide < math.inf:
            raise ValueError(
                f"narrow={narrow!r} and wide={wide!r} are not standard deviations of a spike and of what is around it; "
                "give 0 < narrow < wide"
            )
    return SpikeAndSlab(wide, share=weight, spike=narrow / wide)
