"""Features whose inner products are a kernel's values, for a linear model that behaves as a Gaussian process."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.record import record
from lamu.typing import Array

__all__ = ["KernelFeatures"]

_FEATURES, _LANDMARKS = 256, 800
_JUDGES = 500  # rows whose errors of leaving one out choose the length-scale
_LENGTHS = (0.25, 0.5, 1.0, 2.0)  # of the median distance
_RIDGES = (0.001, 0.01, 0.1, 1.0)
_NOTHING = 1e-6  # eigenvalues below it are rounding


@record
class KernelFeatures:
    r"""The leading eigenfunctions of a Matérn kernel on landmarks, scaled by the roots of their eigenvalues.

    \[ \phi(z) = \Lambda^{-1/2} U^\top k(Z, z) - m, \quad k(Z, Z) = U \Lambda U^\top, \quad
       k(z, z') = (1 + \sqrt3 r)\, e^{-\sqrt3 r}, \quad r = \frac{\lVert z - z' \rVert}{\ell} \]

    Z are rows of the training inputs, and m the mean of the features over them. With all eigenvalues,
    \((\phi(z) + m)^\top (\phi(z') + m) = k(z, z')\) at the landmarks, so that a linear model on the features under the
    prior N(0, s²) is a Gaussian process with the kernel s² k, up to the constant.

    Attributes:
        landmarks: Z, `[landmarks, inputs]`.
        projection: \(U \Lambda^{-1/2}\), `[landmarks, features]`.
        centre: m, `[features]`.
        length: \(\ell\).

    Source: Williams & Seeger (2001), for the approximation.

    Examples:
        >>> import numpy as np
        >>> from lamu.networks import KernelFeatures
        >>> z = np.random.default_rng(0).normal(size=(50, 2))
        >>> kernel = KernelFeatures.of(z, z[:, :1])
        >>> kernel.read(z[:3]).shape == (3, kernel.count), kernel.count <= 50
        (True, True)
    """

    landmarks: Any
    projection: Any
    centre: Any
    length: Any

    @classmethod
    def of(
        cls, z: Any, y: Any, features: int = _FEATURES, landmarks: int = _LANDMARKS, seed: int = 0
    ) -> KernelFeatures:
        r"""Returns the features of training rows.

        \(\ell\) is the multiple of the median distance under which kernel ridge regression has the smallest squared
        error of rows left out one at a time, 500 rows at most.

        Args:
            z: scaled training inputs, `[N, inputs]`.
            y: what is predicted, by which the length-scale is chosen, `[N, targets]`.
            features: how many, at most.
            landmarks: how many rows are landmarks, at most.
            seed: of which.

        Raises:
            ValueError: for y with another number of rows.
        """
        from threadpoolctl import threadpool_limits  # which scikit-learn needs, too

        z, y = np.asarray(z, np.float64), np.asarray(y, np.float64)
        if y.ndim != 2 or len(y) != len(z):
            raise ValueError(f"y has the shape {y.shape} for {len(z)} rows of z; give one row of targets for each")
        order = np.random.default_rng(seed).permutation(len(z))[:landmarks]
        z, y = z[order], y[order]
        distance = _distances(z, z)
        apart = distance[distance > 0]
        median = float(np.median(apart)) if apart.size else 1.0
        judged = slice(_JUDGES)
        # Several threads take longer over matrices of this size than one, and many times as long beside other work.
        with threadpool_limits(1, "blas"):
            errors = [_left_out(_matern(distance[judged, judged] / (median * each)), y[judged]) for each in _LENGTHS]
            length = median * _LENGTHS[int(np.argmin(errors))]
            values, vectors = np.linalg.eigh(_matern(distance / length))
        keep = np.flatnonzero(values > _NOTHING * len(z))[::-1][:features]
        projection = vectors[:, keep] / np.sqrt(values[keep])
        centre = (vectors[:, keep] * np.sqrt(values[keep])).mean(axis=0)
        dtype = jax.dtypes.canonicalize_dtype(np.float64)
        return cls(*(np.asarray(part).astype(dtype) for part in (z, projection, centre, length)))

    @property
    def count(self) -> int:
        """How many features there are."""
        return self.projection.shape[1]

    def read(self, z: Any) -> Array:
        """Returns the features, `[batch, features]`.

        Args:
            z: scaled inputs, `[batch, inputs]`.
        """
        z = jnp.asarray(z)
        landmarks, projection, centre, length = (
            jax.lax.stop_gradient(jnp.asarray(part, z.dtype))
            for part in (self.landmarks, self.projection, self.centre, self.length)
        )
        squared = jnp.sum(z**2, axis=1)[:, None] + jnp.sum(landmarks**2, axis=1)[None] - 2 * z @ landmarks.T
        r = 3**0.5 * jnp.sqrt(jnp.maximum(squared, 1e-12)) / length  # a root at zero has no derivative
        return ((1 + r) * jnp.exp(-r)) @ projection - centre[None]


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    from scipy.spatial.distance import cdist

    return cdist(a, b)


def _matern(r: np.ndarray) -> np.ndarray:
    r = np.sqrt(3) * r
    return (1 + r) * np.exp(-r)


def _left_out(kernel: np.ndarray, y: np.ndarray) -> float:
    """Returns the smallest mean squared error, over ridges, of rows left out one at a time."""
    y = (y - y.mean(axis=0)) / np.maximum(y.std(axis=0), 1e-12)
    values, vectors = np.linalg.eigh(kernel)
    rotated = vectors.T @ y

    def error(ridge: float) -> float:
        inverse = 1 / (np.maximum(values, 0.0) + ridge)
        residual = (vectors @ (inverse[:, None] * rotated)) / (vectors**2 @ inverse)[:, None]
        return float(np.mean(residual**2))

    return min(map(error, _RIDGES))
