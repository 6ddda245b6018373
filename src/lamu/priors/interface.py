"""What a prior must offer, so that every algorithm works with it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from lamu.typing import Array, Params, RandomKey

__all__ = ["Prior"]


@runtime_checkable
class Prior(Protocol):
    r"""The distribution \(p(\theta)\) of a network's parameters, normalised.

    `params` are the network's parameters alone: dispersion parameters have the likelihood's own prior.
    """

    def check(self, params: Params) -> None:
        """Raises a ValueError, in one sentence, if the prior cannot be one of all these parameters."""
        ...

    def log_prob(self, params: Params) -> Array:
        r"""Returns \(\log p(\theta)\), a scalar in nats."""
        ...

    def gaussian(self, params: Params) -> Any:
        """Returns `(mean, precision)`, two trees like `params` with one value a weight; None where it is not Gaussian.

        Args:
            params: any parameters of the right structure; only their paths, shapes and dtypes count.
        """
        ...

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Returns a draw, a tree like `params`."""
        ...
