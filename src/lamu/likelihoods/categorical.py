r"""Several classes, one logit each: \(p(y = k \mid f) = \operatorname{softmax}(f)_k\)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jax.nn import log_softmax, softmax

from lamu.likelihoods.interface import Likelihood
from lamu.record import record, static
from lamu.supports import Classes
from lamu.typing import Array, Params, RandomKey

__all__ = ["Categorical"]


@record
class Categorical(Likelihood):
    r"""One of several classes, a logit for each: \(p(y \mid f) = e^{f_y} / \sum_k e^{f_k}\).

    The outputs are `[batch, classes]`, the targets integers 0 to classes − 1, `[batch]`. Log-concave; the information
    is singular along (1, …, 1), since a constant added to every logit changes nothing.

    Attributes:
        classes: how many classes there are, two or more.

    Raises:
        TypeError: for something else than a whole number.
        ValueError: if there are fewer than two classes.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Categorical
        >>> Categorical(4).mean({}, jnp.zeros((1, 4))).tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """

    classes: int = static()

    log_concave = True
    logits = True

    @property
    def support(self) -> Classes:
        """As many classes as there are."""
        return Classes(self.classes)

    def __post_init__(self) -> None:
        if not isinstance(self.classes, int | np.integer) or isinstance(self.classes, bool):
            raise TypeError(f"Categorical({self.classes!r}) is no number of classes; give a whole number, 2 or more")
        if self.classes < 2:
            raise ValueError(f"Categorical({self.classes}) has too few classes; give 2 or more")

    def check(self, y: Any) -> None:
        """Raises a ValueError unless the targets are whole numbers from 0 to classes − 1, `[batch]`."""
        y = np.asarray(y)
        if y.ndim == 2 and y.shape[1] == self.classes:
            raise ValueError(f"the targets have shape {y.shape}, as if one-hot; pass the classes, np.argmax(y, axis=1)")
        if y.ndim != 1:
            raise ValueError(f"the targets have shape {y.shape}; Categorical takes integers of shape [batch]")
        self.support.check(y, f"Categorical({self.classes})")

    def outputs(self, y: Any) -> int:
        """Returns the number of classes."""
        return self.classes

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        r"""Returns \(f_y - \log \sum_k e^{f_k}\) in nats, `[batch]`."""
        classes = jnp.reshape(y, f.shape[:1]).astype(jnp.int32)
        return jnp.take_along_axis(log_softmax(f, axis=-1), classes[:, None], axis=-1)[:, 0]

    def information(self, params: Params, f: Array) -> Array:
        r"""Returns \(\operatorname{diag}(p) - p p^\top\), `[batch, classes, classes]`.

        The diagonal is taken as \(p_k \sum_{j \ne k} p_j\), which does not cancel where \(p_k (1 - p_k)\) would: the
        matrix is diagonally dominant, hence positive, in every precision.
        """
        p = softmax(f, axis=-1)
        between = p[:, :, None] * p[:, None, :] * (1.0 - jnp.eye(f.shape[-1], dtype=f.dtype))[None]
        return jnp.sum(between, axis=-1)[:, :, None] * jnp.eye(f.shape[-1], dtype=f.dtype)[None] - between

    def mean(self, params: Params, f: Array) -> Array:
        return softmax(f, axis=-1)

    def variance(self, params: Params, f: Array) -> Array:
        r"""Returns \(p_k (1 - p_k)\), the variances of the one-hot target, `[batch, classes]`."""
        p = softmax(f, axis=-1)
        return p * (1.0 - p)

    def entropy(self, params: Params, f: Array) -> Array:
        r"""Returns \(-\sum_k p_k \log p_k\) in nats, `[batch]`."""
        return -jnp.sum(softmax(f, axis=-1) * log_softmax(f, axis=-1), axis=-1)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one class a row, integers `[batch]`."""
        return jax.random.categorical(key, f)

    # diag(p) − p pᵀ = R Rᵀ with R = (I − p 1ᵀ) diag(√p): no decomposition, and for diagonals and sums no matrix a row.

    def information_root(self, params: Params, f: Array) -> Array:
        r"""Returns \((I - p 1^\top) \operatorname{diag}(\sqrt p)\), `[batch, classes, classes]`."""
        p = softmax(f, axis=-1)
        centred = jnp.eye(p.shape[1], dtype=p.dtype)[None] - p[:, :, None]
        return centred * jnp.sqrt(p)[:, None, :]

    def information_diagonal(self, params: Params, f: Array) -> Array:
        r"""Returns \(p_k (1 - p_k)\), `[batch, classes]`."""
        return self.variance(params, f)

    def information_sum(self, params: Params, f: Array, weights: Array) -> Array:
        r"""Returns \(\sum_i r_i (\operatorname{diag}(p_i) - p_i p_i^\top)\), `[classes, classes]`."""
        p, weights = softmax(f, axis=-1), weights.astype(f.dtype)
        return jnp.diag(weights @ p) - jnp.matmul(p.T * weights[None], p, precision=Precision.HIGHEST)
