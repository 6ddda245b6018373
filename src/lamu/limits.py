"""Limits of wide networks: a Gaussian process for normal weights, a stable process for heavy-tailed weights."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.special import gammaln

from lamu.base.arguments import require_positive, require_whole_field
from lamu.base.compile_once import full_products
from lamu.networks.multilayer import ACTIVATIONS, require_activation
from lamu.record import record, static
from lamu.typing import Array, Inputs, Number, RandomKey

__all__ = ["NNGP", "GaussianRegression", "StableProcess"]


def relu_expectation(covariance: Array, one: Array, other: Array) -> Array:
    """Returns E[a(u) a(v)] of the ReLU activation."""
    # \[ \tfrac{1}{2\pi} \sqrt{k k'}\, \big(\sin\theta + (\pi - \theta) \cos\theta\big), \quad
    #    \cos\theta = c / \sqrt{k k'} \]
    #
    # Source: Cho & Saul (2009), equation 6, of order one.
    scale = jnp.sqrt(one * other)
    positive = scale > 0
    cosine = jnp.where(positive, covariance, 0.0) / jnp.where(positive, scale, 1.0)
    return scale * _arc_cosine(jnp.clip(cosine, -1.0, 1.0)) / (2 * jnp.pi)


@jax.custom_jvp
def _arc_cosine(cosine: Array) -> Array:
    angle = jnp.arccos(cosine)
    return jnp.sin(angle) + (jnp.pi - angle) * cosine


@_arc_cosine.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # A custom derivative, since the chain rule gives infinity times zero where the two inputs are equal.
    return _arc_cosine(*primals), (jnp.pi - jnp.arccos(primals[0])) * tangents[0]


def erf_expectation(covariance: Array, one: Array, other: Array) -> Array:
    """Returns E[a(u) a(v)] of the error function as activation."""
    # \[ \tfrac{2}{\pi} \arcsin \frac{2c}{\sqrt{(1 + 2k)(1 + 2k')}} \]
    #
    # Source: Williams (1997), equation 11.
    return 2 / jnp.pi * jnp.arcsin(2 * covariance / jnp.sqrt((1 + 2 * one) * (1 + 2 * other)))


EXPECTATIONS = {"relu": relu_expectation, "erf": erf_expectation}


@record
class NNGP:
    r"""The neural-network Gaussian process: the law of an MLP's outputs under a normal prior, for infinite width.

    With L hidden layers, d inputs, the gain g and the bias scale b,

    \[ k_0(x, x') = b^2 + g^2\, x^\top x' / d, \qquad
       k_{l}(x, x') = b^2 + g^2\, E\big[a(u)\, a(v)\big], \quad
       (u, v) \sim N\Big(0, \begin{pmatrix} k_{l-1}(x, x) & k_{l-1}(x, x') \\ \cdot & k_{l-1}(x', x') \end{pmatrix}\Big)
    \]

    Each output of `MLP((width,) * depth, activation)` under the prior `Normal(FanIn(gain, bias))` tends to the process
    with mean zero and the kernel \(k_L\) as the width grows, independent of the others.

    Attributes:
        depth: L, the number of hidden layers.
        activation: "relu" or "erf".
        gain: g, the standard deviation of a weight times the root of its layer's inputs.
        bias: b, the standard deviation of a bias.

    Raises:
        ValueError: for a depth that is not a positive integer, another activation, or scales that are not positive.

    Source: Neal (1996), section 2.1; Lee et al. (2018), equations 4 and 5; Matthews et al. (2018).

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.limits import NNGP
        >>> x = jnp.array([[0.0, 1.0], [1.0, 0.0]])
        >>> NNGP(depth=1, gain=2.0**0.5, bias=0.1).kernel(x).round(3).tolist()
        [[1.02, 0.337], [0.337, 1.02]]
    """

    depth: int = static(default=1)
    activation: str = static(default="relu")
    gain: Number = 2.0**0.5
    bias: Number = 1.0

    def __post_init__(self) -> None:
        require_whole_field(self, "depth", problem="is not a number of hidden layers")
        if self.activation not in EXPECTATIONS:
            raise ValueError(f"no kernel is known for the activation {self.activation!r}; choose {_choices()}")
        for name, value in (("gain", self.gain), ("bias", self.bias)):
            require_positive(name, value, "give a standard deviation")

    @full_products
    def kernel(self, x: Array, z: Array | None = None) -> Array:
        """Returns the covariance of the outputs at two sets of inputs, `[N, M]`.

        Args:
            x: inputs `[N, ...]`, flattened as an MLP does.
            z: inputs `[M, ...]`; x where None.

        Raises:
            ValueError: for inputs of different shapes.
        """
        x, z = _rows(x), _rows(x if z is None else z)
        if x.shape[1] != z.shape[1]:
            raise ValueError(f"inputs have {x.shape[1]} and {z.shape[1]} features; give both the same")
        expectation = EXPECTATIONS[self.activation]
        of_x, of_z = (self._affine(jnp.mean(rows * rows, axis=1)) for rows in (x, z))
        between = self._affine(x @ z.T / x.shape[1])
        for _ in range(self.depth):
            between = self._affine(expectation(between, of_x[:, None], of_z[None]))
            of_x, of_z = (self._affine(expectation(each, each, each)) for each in (of_x, of_z))
        return between

    @full_products
    def variance(self, x: Array) -> Array:
        """Returns the variance of the outputs, the diagonal of `kernel(x)`, `[N]`.

        Args:
            x: inputs `[N, ...]`.
        """
        return jax.vmap(lambda row: self.kernel(row[None])[0, 0])(_rows(x))

    @full_products
    def regression(self, x: Array, y: Array, noise: Number) -> GaussianRegression:
        r"""Returns the posterior of f given \(y = f(x) + \sigma\epsilon\), in closed form.

        It computes one Cholesky factor: of the order of N³ operations and N² numbers in memory.

        Args:
            x: inputs `[N, ...]`.
            y: targets `[N]`, or `[N, K]` for K outputs, which share the kernel and are independent.
            noise: σ, in the target's units.

        Raises:
            ValueError: for targets without a row for each input, a noise that is not positive, or a covariance that is
                not numerically positive definite.
        """
        require_positive("noise", noise, "give a standard deviation")
        rows, targets = _rows(x), jnp.asarray(y)
        if targets.ndim not in (1, 2) or targets.shape[0] != rows.shape[0]:
            raise ValueError(
                f"the targets have shape {targets.shape} for {rows.shape[0]} inputs; give [N], or [N, K] for K outputs"
            )
        covariance = self.kernel(rows)
        noise = jnp.asarray(noise, covariance.dtype)
        root = jnp.linalg.cholesky(covariance + noise**2 * jnp.eye(rows.shape[0], dtype=covariance.dtype))
        if not isinstance(root, Tracer) and not bool(jnp.all(jnp.isfinite(root))):
            raise ValueError(
                f"the covariance with noise {float(noise):g} is not positive definite in {covariance.dtype}; give more "
                "noise, or inputs in float64"
            )
        return GaussianRegression(self, rows, targets.astype(covariance.dtype), root)

    def _affine(self, expected: Array) -> Array:
        bias, gain = (jnp.asarray(value, expected.dtype) for value in (self.bias, self.gain))
        return bias**2 + gain**2 * expected


@record
class GaussianRegression:
    r"""The posterior of a function under a Gaussian process and normal noise.

    \[ E f(z) = k_z^\top (K + \sigma^2 I)^{-1} y, \qquad
       \operatorname{Var} f(z) = k(z, z) - k_z^\top (K + \sigma^2 I)^{-1} k_z \]

    Attributes:
        process: the prior.
        x: inputs `[N, d]`.
        y: targets `[N]` or `[N, K]`.
        root: the Cholesky factor of \(K + \sigma^2 I\).

    Source: Rasmussen & Williams (2006), algorithm 2.1.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.limits import NNGP
        >>> x = jnp.array([[-1.0], [0.0], [1.0]])
        >>> posterior = NNGP().regression(x, jnp.array([1.0, 0.0, 1.0]), noise=0.01)
        >>> mean, variance = posterior.predict(x)
        >>> mean.round(2).tolist(), bool(jnp.all(variance < 1e-3))
        ([1.0, 0.0, 1.0], True)
    """

    process: NNGP
    x: Array
    y: Array
    root: Array

    @full_products
    def predict(self, z: Array) -> tuple[Array, Array]:
        """Returns mean and variance of f, without the noise.

        Args:
            z: inputs `[M, ...]`.

        Returns:
            The mean, `[M]` or `[M, K]`, and the variance, `[M]`, the same for all outputs.
        """
        between = self.process.kernel(self.x, z)
        mean = between.T @ cho_solve((self.root, True), self.y)
        explained = solve_triangular(self.root, between, lower=True)
        return mean, jnp.maximum(self.process.variance(z) - jnp.sum(explained**2, axis=0), 0.0)

    @property
    def evidence(self) -> Array:
        r"""The log evidence \(\log N(y \mid 0, K + \sigma^2 I)\) in nats, summed over outputs; a scalar."""
        targets = self.y.reshape(self.y.shape[0], -1)
        white = solve_triangular(self.root, targets, lower=True)
        logdet = 2 * jnp.sum(jnp.log(jnp.diagonal(self.root)))
        rows, outputs = targets.shape
        return -0.5 * (jnp.sum(white**2) + outputs * (logdet + rows * jnp.log(2 * jnp.pi)))


def _rows(x: Inputs) -> Array:
    x = jnp.asarray(x)
    if x.ndim < 2:
        raise ValueError(f"x has the shape {x.shape}; give rows of features, for one row x[None]")
    floating = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.result_type(float))
    return floating.reshape(x.shape[0], -1)


def _choices() -> str:
    return " or ".join(repr(name) for name in EXPECTATIONS)


@record
class StableProcess:
    r"""The limit of a network of one hidden layer whose output weights have a symmetric stable law of index α < 2.

    \[ f(x) = C_\alpha^{1/\alpha} s \sum_{j=1}^{\infty} \varepsilon_j\, \Gamma_j^{-1/\alpha}\, a(w_j^\top x + b_j) \]

    with fair signs ε, arrival times Γ of a Poisson process of rate one, and hidden units (w, b) drawn from their prior.
    It is the limit of \(s H^{-1/\alpha} \sum_{j \le H} v_j\, a(w_j^\top x + b_j)\) with \(E\, e^{i t v} =
    e^{-|t|^\alpha}\): α = 1 is the Cauchy law, so that the prior is `Cauchy(s / H)` on the last kernel. Under normal
    weights the share of any unit vanishes; here the units of the largest weights keep theirs, and with steep units the
    functions jump. The outputs are stable too,

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
            require_positive(name, value, "give a scale")

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
        rows = _rows(x)

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
