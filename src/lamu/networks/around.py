"""What a network that stands around another one says of itself."""

from __future__ import annotations

from typing import Any

__all__ = ["Around"]


class Around:
    """The facts of a network that holds another one as its `base`, and that changes none of them by itself.

    A class that does change one says so in its own body.

    Examples:
        >>> from lamu.networks import Linear, Tokens
        >>> from lamu.networks.around import Around
        >>> isinstance(Tokens(Linear()), Around), Tokens(Linear()).linear
        (True, True)
    """

    base: Any

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
        """Whether the base wants to know which rows are padding."""
        return getattr(self.base, "masked", False)

    @property
    def codes(self) -> Any:
        """The indices of the columns that the base reads as codes of categories; `...` for all."""
        return getattr(self.base, "codes", ())
