"""What is left of a prior when its Gaussian leaves have entered a belief exactly."""

from __future__ import annotations

import jax

from lamu import tree
from lamu.priors import Prior
from lamu.priors.parts import same_leaves
from lamu.record import record
from lamu.typing import Array, Params

__all__ = ["NonGaussian"]


@record
class NonGaussian:
    r"""The log density of a prior less that of its Gaussian leaves.

    \[ \log p(\theta) - \log N(\theta_G \mid m, \delta^{-1}) \]

    Its gradient is that of \(\log p\) in the leaves that are not Gaussian, and zero in those that are: their pull
    \(\delta (m_q - m)\) is taken exactly. Where m and δ depend on the other leaves, as in a hierarchy that is centred,
    the gradient of \(\log p\) in these counts the Gaussian leaves' density.

    Attributes:
        prior: the prior.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.objective import NonGaussian
        >>> from lamu.priors import ByPath, Laplace, Normal
        >>> prior = NonGaussian(ByPath({"bias": Laplace(0.5), "*": Normal(2.0)}))
        >>> slope = jax.grad(prior.log_prob)({"bias": jnp.ones(()), "kernel": jnp.ones(())})
        >>> {path: float(leaf) for path, leaf in slope.items()}
        {'bias': -2.0, 'kernel': 0.0}
    """

    prior: Prior

    @classmethod
    def of(cls, prior: Prior, params: Params) -> NonGaussian | None:
        """Returns what is left of the prior, or None where all leaves are Gaussian.

        Args:
            prior: the prior.
            params: parameters of the right structure.
        """
        known = prior.gaussian(params)
        return None if known is not None and same_leaves(known.mean, params) else cls(prior)

    def log_prob(self, params: Params) -> Array:
        """Returns the difference of the log densities, a scalar in nats.

        Args:
            params: the weights.
        """
        known = self.prior.gaussian(params)
        if known is None:
            return self.prior.log_prob(params)
        hold = lambda mean, x: None if mean is None else jax.lax.stop_gradient(x)
        held = jax.tree.map(hold, known.mean, params, is_leaf=lambda leaf: leaf is None)
        whole = self.prior.log_prob(tree.merged(held, params))
        return whole - jax.lax.stop_gradient(known.log_prob(held)).astype(whole.dtype)
