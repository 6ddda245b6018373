"""What a prior must offer, so that every algorithm works with it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Protocol, runtime_checkable

from lamu.families import Gaussian
from lamu.operators import Diagonal
from lamu.typing import Array, Params, RandomKey

__all__ = ["Prior"]


@runtime_checkable
class Prior(Protocol):
    r"""The distribution \(p(\theta)\) of a network's parameters, normalised.

    `params` are the network's parameters alone: dispersion parameters have the likelihood's own prior.

    A prior of one's own inherits from this class, is a `lamu.record.record`, and defines `log_prob`. The other methods
    have defaults.
    """

    @abstractmethod
    def log_prob(self, params: Params) -> Array:
        r"""Returns \(\log p(\theta)\), a scalar in nats."""
        ...

    def check(self, params: Params) -> None:
        """Raises a ValueError, in one sentence, if the prior cannot be one of all these parameters; none by default."""
        del params

    def gaussian(self, params: Params) -> Any:
        """Returns `(mean, precision)`, two trees like `params` with one value a weight; None where it has no such form.

        None by default: the prior then enters every algorithm through the loss.

        Args:
            params: any parameters of the right structure; only their paths, shapes and dtypes count.
        """
        del params

    def as_gaussian(self, params: Params) -> Gaussian | None:
        """Returns the prior with an operator for its precision; None where it is not Gaussian.

        That of `gaussian` by default: a prior of correlated weights, whose `gaussian` is None, defines it.

        Args:
            params: any parameters of the right structure; only their paths, shapes and dtypes count.
        """
        known = self.gaussian(params)
        return None if known is None else Gaussian(known[0], Diagonal(known[1]))

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Returns a draw, a tree like `params`: for simulations, which no fit needs."""
        del key, params
        raise NotImplementedError(f"{type(self).__name__} cannot be simulated from; define its `sample(key, params)`")
