"""What a flow must offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from lamu.typing import Array, Params, RandomKey

__all__ = ["Flow"]


class Flow(ABC):
    r"""An invertible map of a vector, \(z' = g(z; h)\), that may depend on a context h, for instance an encoder's.

    \[ \log q(z') = \log q(z) - \log \Big| \det \frac{\partial g}{\partial z} \Big| \]

    Vectors are `[D]`, the context `[C]`, with C = 0 for none. The parameters are a plain dictionary.
    """

    @abstractmethod
    def init(self, key: RandomKey, size: int, context: int, dtype: Any) -> Params:
        """Returns fresh parameters, at which the map is near the identity.

        Args:
            key: a random key.
            size: D.
            context: C.
            dtype: of the parameters.
        """

    @abstractmethod
    def forward(self, params: Params, z: Array, context: Array) -> tuple[Array, Array]:
        r"""Returns g(z) and \(\log |\det \partial g / \partial z|\) in nats.

        Args:
            params: the parameters.
            z: `[D]`.
            context: h, `[C]`.
        """

    @abstractmethod
    def inverse(self, params: Params, image: Array, context: Array) -> Array:
        """Returns the z with g(z) equal to the image.

        Args:
            params: the parameters.
            image: `[D]`.
            context: h, `[C]`.
        """
