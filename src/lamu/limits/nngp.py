"""The Gaussian process that a network with normal weights tends to, and exact regression with it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.linalg import cho_solve, solve_triangular

from lamu.dtype_policy import full_products
from lamu.limits.expectations import EXPECTATIONS
from lamu.record import record, static
from lamu.typing import Array, Number

__all__ = ["NNGP", "GaussianRegression"]


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
        depth: L, how many hidden layers.
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
        if isinstance(self.depth, bool) or not isinstance(self.depth, int) or self.depth < 1:
            raise ValueError(f"a depth of {self.depth!r} is no number of hidden layers; give a positive integer")
        if self.activation not in EXPECTATIONS:
            raise ValueError(f"no kernel is known for the activation {self.activation!r}; choose {_choices()}")
        for name, value in (("gain", self.gain), ("bias", self.bias)):
            _require_positive(name, value)

    @full_products
    def kernel(self, x: Array, z: Array | None = None) -> Array:
        """Returns the covariance of the outputs at two sets of inputs, `[N, M]`.

        Args:
            x: inputs `[N, ...]`, flattened as an MLP does.
            z: inputs `[M, ...]`; those of x where None.

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

        One Cholesky factor: of the order of N³ products, and N² numbers are held.

        Args:
            x: inputs `[N, ...]`.
            y: targets `[N]`, or `[N, K]` for K outputs, which share the kernel and are independent.
            noise: σ, in the target's units.

        Raises:
            ValueError: for targets without a row for each input, a noise that is not positive, or a covariance that is
                not positive definite in its precision.
        """
        _require_positive("noise", noise)
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


def _rows(x: Any) -> Array:
    x = jnp.asarray(x)
    if x.ndim < 2:
        raise ValueError(f"x has the shape {x.shape}; give rows of features, for one row x[None]")
    floating = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.result_type(float))
    return floating.reshape(x.shape[0], -1)


def _require_positive(name: str, value: Any) -> None:
    if not isinstance(value, Tracer) and not 0.0 < value < float("inf"):
        raise ValueError(f"{name}={value!r} is not positive and finite; give a standard deviation")


def _choices() -> str:
    return " or ".join(repr(name) for name in EXPECTATIONS)
