"""What a belief must offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from lamu.typing import Params, RandomKey

__all__ = ["Family", "IndependentDraws"]


@runtime_checkable
class Family(Protocol):
    r"""A belief \(q(\theta)\) about parameters.

    Attributes:
        kind: "minimal exponential", "degenerate" (a point), "joint" (draws, mixtures) or "product".
        mean: E_q[θ]. A belief with several modes raises an AttributeError that says what to use instead.
    """

    @property
    def kind(self) -> str:
        """What sort of belief it is, which decides its laws."""
        ...

    if TYPE_CHECKING:  # at run time isinstance would read the property, which a belief with several modes refuses

        @property
        def mean(self) -> Params:
            """E_q[θ]."""
            ...

    def sample(self, key: RandomKey) -> Params:
        """Returns one draw of θ."""
        ...

    def draws(self, key: RandomKey, count: int) -> Params:
        """Returns points that represent the belief, along a new leading axis of about `count`.

        Draw i depends on the key and on i alone. A point returns one draw, since more would repeat it; a belief that is
        made of draws returns an even selection of them.
        """
        ...


class IndependentDraws:
    """Base of beliefs that are represented by independent draws."""

    def draws(self: Any, key: RandomKey, count: int) -> Params:
        """Returns `count` independent draws along a leading axis; draw i depends on the key and i alone."""
        return jax.lax.map(lambda i: self.sample(jax.random.fold_in(key, i)), jnp.arange(count))
