"""Gauss–Hermite quadrature over θ itself, in one and two dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.expectations import bonnet_price
from lamu.expectations.estimate import ValueAndGradient
from lamu.expectations.samplers import from_noise
from lamu.families import Gaussian
from lamu.record import record, static
from lamu.typing import RandomKey

__all__ = ["GaussHermite"]


@record
class GaussHermite:
    r"""\(E_q[h(\theta)] \approx \sum_k w_k\, h(m + R z_k)\), a product rule for a Gaussian with \(R R^\top = \Sigma\).

    Exact where h is a polynomial of degree below twice the number of nodes; h is the loss, its gradient and its
    Hessian. `points` nodes in one dimension and their square in two, one Hessian each, one after the other. For the
    loss of a linear model with more weights there is `Quadrature`, which integrates over each row's predictor.

    Attributes:
        points: the number of nodes a dimension.

    Raises:
        TypeError: for a belief other than a Gaussian.
        ValueError: for more than two dimensions, or fewer than one node.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.expectations import GaussHermite
        >>> from lamu.families import Gaussian
        >>> from lamu.operators import Scalar
        >>> q = Gaussian(jnp.array(2.0), Scalar(4.0))
        >>> round(float(GaussHermite(3).gradient(jax.random.key(0), q, lambda theta: theta**2).value), 4)  # m² + 1/s
        4.25
    """

    points: int = static(default=32)

    departure = ""

    def __post_init__(self) -> None:
        if not isinstance(self.points, int) or self.points < 1:
            raise ValueError(f"a quadrature rule needs at least one node a dimension, not {self.points!r}")

    def gradient(self, key: RandomKey, belief: Any, loss: Callable[[Any], Any]) -> ValueAndGradient:
        """Returns the expected loss and its gradient in μ; the key is not used."""
        if not isinstance(belief, Gaussian):
            raise TypeError(f"GaussHermite() integrates over a Gaussian, not over a {type(belief).__name__}")
        vector = tree.ravel(belief.mean)[0]
        if vector.size > 2:
            raise ValueError(
                f"GaussHermite() integrates over at most two dimensions, not {vector.size}; use MonteCarlo()"
            )
        nodes, weights = np.polynomial.hermite_e.hermegauss(self.points)
        grid = np.stack(np.meshgrid(*[nodes] * vector.size, indexing="ij"), axis=-1).reshape(-1, vector.size)
        weight = np.prod(np.meshgrid(*[weights / weights.sum()] * vector.size, indexing="ij"), axis=0).ravel()
        factored = Gaussian(belief.mean, belief.precision.factored())
        at = lambda z: bonnet_price.at_point(belief, loss, from_noise(factored, z))
        found = jax.lax.map(at, jnp.asarray(grid, vector.dtype))
        weight = jnp.asarray(weight, vector.dtype)
        return bonnet_price.in_expectation(
            belief, *jax.tree.map(lambda leaf: jnp.tensordot(weight.astype(leaf.dtype), leaf, axes=1), found)
        )
