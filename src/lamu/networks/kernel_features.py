"""Kernel features (Nyström approximation), with which a linear model approximates a Gaussian process."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from lamu.record import record
from lamu.typing import Array, Targets

__all__ = ["KernelFeatures", "LaplaceKernel", "Matern"]

# On splits 0 and 1 of the development tables the features took the nll of glass from .710 to .670 and from .733 to
# .716, german_credit (0) from .494 to .491, wine_red (0) from .8745 to .8736; of four others it moved by less than
# .001. The numbers were not varied one by one.
_FEATURES, _LANDMARKS = 256, 800
_JUDGES = 500  # rows whose leave-one-out errors choose the length-scale
_LENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # multiples of the median distance
_RIDGES = (0.001, 0.01, 0.1, 1.0)  # not measured: decades around the noise of standardised targets
_NOTHING = 1e-6  # eigenvalues below it are rounding errors


@record
class Matern:
    """The isotropic Matérn kernel of smoothness 3/2, for differentiable functions."""

    # \[ k = (1 + \sqrt3 r)\, e^{-\sqrt3 r}, \quad r = \lVert z - z' \rVert_2 / \ell \]

    metric: ClassVar[str] = "euclidean"

    def value(self, r: np.ndarray) -> np.ndarray:
        """Returns the kernel at distances in units of its length."""
        return (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r)

    def between(self, z: Array, landmarks: Array, length: Array) -> Array:
        """Returns the kernel of inputs and landmarks, `[batch, landmarks]`."""
        squared = jnp.sum(z**2, axis=1)[:, None] + jnp.sum(landmarks**2, axis=1)[None] - 2 * z @ landmarks.T
        r = 3**0.5 * jnp.sqrt(jnp.maximum(squared, 1e-12)) / length  # the root at zero has no derivative
        return (1 + r) * jnp.exp(-r)


@record
class LaplaceKernel:
    """The product of exponential kernels of each input, for rough axis-aligned functions, like those of trees."""

    # \[ k = e^{-r}, \quad r = \lVert z - z' \rVert_1 / \ell \]
    #
    # It is the kernel of random partitions into axis-aligned cells (Balog et al. 2016).

    metric: ClassVar[str] = "cityblock"

    def value(self, r: np.ndarray) -> np.ndarray:
        """Returns the kernel at distances in units of its length."""
        return np.exp(-r)

    def between(self, z: Array, landmarks: Array, length: Array) -> Array:
        """Returns the kernel of inputs and landmarks, `[batch, landmarks]`."""

        # One input at a time: all differences at once would take the kernel's size times the number of inputs.
        def further(total: Array, columns: tuple[Array, Array]) -> tuple[Array, None]:
            mine, theirs = columns
            return total + jnp.abs(mine[:, None] - theirs[None]), None

        start = jnp.zeros((len(z), len(landmarks)), z.dtype)
        return jnp.exp(-jax.lax.scan(further, start, (z.T, landmarks.T))[0] / length)


_KERNELS = (Matern(), LaplaceKernel())


@record
class KernelFeatures:
    r"""The leading eigenfunctions of a kernel on landmarks, scaled by the roots of their eigenvalues.

    \[ \phi(z) = \Lambda^{-1/2} U^\top k(Z, z) - m, \quad k(Z, Z) = U \Lambda U^\top \]

    Z are rows of the training inputs, and m the mean of the features over them. With all eigenvalues,
    \((\phi(z) + m)^\top (\phi(z') + m) = k(z, z')\) at the landmarks, so that a linear model on the features under the
    prior N(0, s²) is a Gaussian process with the kernel s² k, up to the constant.

    Attributes:
        landmarks: Z, `[landmarks, inputs]`.
        projection: \(U \Lambda^{-1/2}\), `[landmarks, features]`.
        centre: m, `[features]`.
        length: \(\ell\).
        kernel: a `Matern` or a `LaplaceKernel`.

    Source: Williams & Seeger (2001), for the approximation.

    Examples:
        >>> import numpy as np
        >>> from lamu.networks import KernelFeatures
        >>> z = np.random.default_rng(0).normal(size=(50, 2))
        >>> kernel = KernelFeatures.of(z, z[:, :1])
        >>> kernel.read(z[:3]).shape == (3, kernel.count), kernel.count <= 50
        (True, True)
    """

    landmarks: Array | np.ndarray
    projection: Array | np.ndarray
    centre: Array | np.ndarray
    length: Array | np.ndarray
    kernel: Matern | LaplaceKernel = Matern()

    @classmethod
    def of(
        cls, z: Any, y: Targets, features: int = _FEATURES, landmarks: int = _LANDMARKS, seed: int = 0
    ) -> KernelFeatures:
        r"""Returns the features of training rows.

        The kernel, and \(\ell\) as a multiple of the median distance, are those under which kernel ridge regression has
        the smallest squared error of rows left out one at a time, 500 rows at most.

        Args:
            z: scaled training inputs, `[N, inputs]`.
            y: targets, by which kernel and length are chosen, `[N, targets]`.
            features: the largest number of features.
            landmarks: the largest number of landmarks.
            seed: of the choice of landmarks.

        Raises:
            ValueError: for y with another number of rows.
        """
        from threadpoolctl import threadpool_limits  # a dependency of scikit-learn

        z, y = np.asarray(z, np.float64), np.asarray(y, np.float64)
        if y.ndim != 2 or len(y) != len(z):
            raise ValueError(f"y has the shape {y.shape} for {len(z)} rows of z; give one row of targets for each")
        order = np.random.default_rng(seed).permutation(len(z))[:landmarks]
        z, y = z[order], y[order]
        judged, tried = slice(_JUDGES), []
        # For matrices of this size several threads take longer than one, and many times as long under other load.
        with threadpool_limits(1, "blas"):
            for kernel in _KERNELS:
                distance = _distances(z, z, kernel.metric)
                apart = distance[distance > 0]
                median = float(np.median(apart)) if apart.size else 1.0
                for length in (median * each for each in _LENGTHS):
                    error = _left_out(kernel.value(distance[judged, judged] / length), y[judged])
                    tried.append((error, kernel, length))
            _, kernel, length = min(tried, key=lambda each: each[0])
            values, vectors = np.linalg.eigh(kernel.value(_distances(z, z, kernel.metric) / length))
        keep = np.flatnonzero(values > _NOTHING * len(z))[::-1][:features]
        projection = vectors[:, keep] / np.sqrt(values[keep])
        centre = (vectors[:, keep] * np.sqrt(values[keep])).mean(axis=0)
        dtype = jax.dtypes.canonicalize_dtype(np.float64)
        return cls(*(np.asarray(part).astype(dtype) for part in (z, projection, centre, length)), kernel=kernel)

    @property
    def count(self) -> int:
        """The number of features."""
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
        return self.kernel.between(z, landmarks, length) @ projection - centre[None]


def _distances(a: np.ndarray, b: np.ndarray, metric: Any) -> np.ndarray:
    from scipy.spatial.distance import cdist

    return cdist(a, b, metric)


def _left_out(kernel: np.ndarray, y: np.ndarray) -> float:
    """Returns the smallest leave-one-out mean squared error over the ridges."""
    y = (y - y.mean(axis=0)) / np.maximum(y.std(axis=0), 1e-12)
    values, vectors = np.linalg.eigh(kernel)
    rotated = vectors.T @ y

    def error(ridge: float) -> float:
        inverse = 1 / (np.maximum(values, 0.0) + ridge)
        residual = (vectors @ (inverse[:, None] * rotated)) / (vectors**2 @ inverse)[:, None]
        return float(np.mean(residual**2))

    return min(map(error, _RIDGES))
