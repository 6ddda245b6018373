r"""The Fisher information about the outputs, without a matrix a row where that can be helped.

For classes \(\Lambda = \operatorname{diag}(p) - p p^\top = R R^\top\) with
\(R = (I - p 1^\top) \operatorname{diag}(\sqrt p)\), so that roots, diagonals and sums need no decomposition, and
diagonals and sums no matrix a row. Any other likelihood is asked for `information`; one that knows better may offer
`information_root(params, f)`, `[batch, outputs, rank]`, and `information_diagonal(params, f)`, `[batch, outputs]`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.likelihoods import Categorical, Likelihood, Scaled
from lamu.typing import Array, Params, RandomKey

__all__ = ["information_diagonal", "information_root", "information_sum", "sampled_information"]


def information_root(likelihood: Likelihood, dispersion: Params, f: Array) -> Array:
    r"""Returns R with \(R R^\top = \Lambda\) for every row, `[batch, outputs, rank]`.

    Args:
        likelihood: p(y | f).
        dispersion: its parameters.
        f: the outputs `[batch, outputs]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Categorical
        >>> from lamu.objective.curvature.information import information_root
        >>> root = information_root(Categorical(2), {}, jnp.zeros((1, 2)))[0]
        >>> (root @ root.T).round(6).tolist()
        [[0.25, -0.25], [-0.25, 0.25]]
    """
    likelihood = _base(likelihood)
    if hasattr(likelihood, "information_root"):
        known: Any = likelihood
        return known.information_root(dispersion, f)
    if isinstance(likelihood, Categorical):
        p = likelihood.mean(dispersion, f)
        centred = jnp.eye(p.shape[1], dtype=p.dtype)[None] - p[:, :, None]
        return centred * jnp.sqrt(p)[:, None, :]
    information = likelihood.information(dispersion, f)
    if information.shape[-1] == 1:
        return jnp.sqrt(jnp.maximum(information, 0))
    values, basis = jnp.linalg.eigh(information)
    # Rounding may leave an eigenvalue of a singular information below zero.
    return basis * jnp.sqrt(jnp.maximum(values, 0))[:, None, :]


def information_diagonal(likelihood: Likelihood, dispersion: Params, f: Array) -> Array:
    r"""Returns the diagonal of \(\Lambda\) for every row, `[batch, outputs]`.

    Args:
        likelihood: p(y | f).
        dispersion: its parameters.
        f: the outputs `[batch, outputs]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Categorical
        >>> from lamu.objective.curvature.information import information_diagonal
        >>> information_diagonal(Categorical(2), {}, jnp.zeros((1, 2))).tolist()
        [[0.25, 0.25]]
    """
    likelihood = _base(likelihood)
    if hasattr(likelihood, "information_diagonal"):
        known: Any = likelihood
        return known.information_diagonal(dispersion, f)
    if isinstance(likelihood, Categorical):
        return likelihood.variance(dispersion, f)
    return jnp.diagonal(likelihood.information(dispersion, f), axis1=1, axis2=2)


def information_sum(likelihood: Likelihood, dispersion: Params, f: Array, weights: Array) -> Array:
    r"""Returns \(\sum_i r_i \Lambda_i\), `[outputs, outputs]`.

    Args:
        likelihood: p(y | f).
        dispersion: its parameters.
        f: the outputs `[batch, outputs]`.
        weights: r, `[batch]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Categorical
        >>> from lamu.objective.curvature.information import information_sum
        >>> information_sum(Categorical(2), {}, jnp.zeros((3, 2)), jnp.ones(3)).round(6).tolist()
        [[0.75, -0.75], [-0.75, 0.75]]
    """
    likelihood = _base(likelihood)
    weights = weights.astype(f.dtype)
    if isinstance(likelihood, Categorical):
        p = likelihood.mean(dispersion, f)
        return jnp.diag(weights @ p) - jnp.matmul(p.T * weights[None], p, precision=jax.lax.Precision.HIGHEST)
    return jnp.einsum("bkl,b->kl", likelihood.information(dispersion, f), weights)


def sampled_information(likelihood: Likelihood, dispersion: Params, f: Array, key: RandomKey, draws: int = 1) -> Array:
    r"""Returns an unbiased estimate of the information, with targets drawn from the model.

    \[ \Lambda_i \approx \frac1S \sum_s d_{is} d_{is}^\top, \qquad d_{is} = \nabla_f \log p(\tilde y_{is} \mid f_i),
       \quad \tilde y_{is} \sim p(y \mid f_i) \]

    For a likelihood of one's own whose expectation is not known: its `information` may return this.

    Args:
        likelihood: p(y | f), of which only `sample` and `log_prob` are asked.
        dispersion: its parameters.
        f: the outputs `[batch, outputs]`.
        key: for the targets.
        draws: S.

    Raises:
        ValueError: for fewer than one draw.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.likelihoods import Bernoulli
        >>> from lamu.objective.curvature.information import sampled_information
        >>> sampled_information(Bernoulli(), {}, jnp.zeros((1, 1)), jax.random.key(0)).tolist()
        [[[0.25]]]
    """
    if draws < 1:
        raise ValueError(f"draws={draws!r} targets show no information; give 1 or more")

    def one(total: Array, key: RandomKey) -> tuple[Array, None]:
        y = likelihood.sample(key, dispersion, f)
        slope = jax.grad(lambda f: jnp.sum(likelihood.log_prob(dispersion, f, y)))(f)
        return total + slope[:, :, None] * slope[:, None, :], None

    zero = jnp.zeros((*f.shape, f.shape[1]), f.dtype)
    return jax.lax.scan(one, zero, jax.random.split(key, draws))[0] / draws


def _base(likelihood: Any) -> Any:
    """A target in other units has the information of what stands inside: the Jacobian does not depend on f."""
    while isinstance(likelihood, Scaled):
        likelihood = likelihood.base
    return likelihood
