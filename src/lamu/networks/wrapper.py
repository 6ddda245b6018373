"""Base class of networks that wrap another one: its facts are the wrapped network's, unless it says otherwise."""

from __future__ import annotations

from typing import Any

from lamu.networks.adapted import adapted
from lamu.networks.interface import Network

__all__ = ["NetworkWrapper"]


class NetworkWrapper(Network):
    """A network that holds another one as its `base`, and forwards every fact to it."""

    base: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", adapted(self.base))

    @property
    def name(self) -> str:
        return self.base.name

    @property
    def linear(self) -> bool:
        """Whether the base is linear (affine) in its parameters."""
        return self.base.linear

    @property
    def head(self) -> str:
        """The path pattern of the base's last layer."""
        return self.base.head

    @property
    def masked(self) -> bool:
        """Whether rows meet in the base."""
        return self.base.masked

    @property
    def codes(self) -> Any:
        """The columns that the base reads as codes of categories."""
        return self.base.codes

    @property
    def trained(self) -> bool:
        """Whether the base brings weights that somebody has trained."""
        return self.base.trained
