"""A baseline that is learned beside an encoder: what the learning signal of a row is expected to be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of
from lamu.latent.locals.encoder import encoded, first_encoder
from lamu.networks.adapted import adapted
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["Baseline"]


@record
class Baseline:
    r"""A control variate that a regression learns beside the encoder of an `AmortisedBernoulli` local.

    \[ b(y) = D_y\,\big(c + C(y)\big), \qquad
       \text{by minimising } \tfrac12 \Big( \frac{\ell}{D_y} - c - C(y) \Big)^2 \]

    of the learning signals \(\ell\) of rows with \(D_y\) observed entries. The number c follows the average signal as a
    moving average does whose rate is that of the optimiser; the network C, where there is one, makes the baseline
    depend on the row. A baseline does not see the draw that it serves, so that the gradient stays unbiased.

    Attributes:
        network: C, which reads what the encoder reads; None for c alone.

    Source: Mnih & Gregor (2014), section 2.3.

    Examples:
        >>> from lamu.expectations import ScoreFunction
        >>> from lamu.latent import AmortisedBernoulli, Baseline
        >>> from lamu.networks import MLP
        >>> AmortisedBernoulli(MLP((50,)), ScoreFunction(1, Baseline(MLP((50,))))).estimator.samples
        1
    """

    network: Any = None

    def __post_init__(self) -> None:
        if self.network is not None:
            object.__setattr__(self, "network", adapted(self.network))

    def require(self, count: int) -> None:
        """Accepts any number of draws."""

    def weights(self, losses: Array, kernel: Callable[[], Array]) -> Array:
        """Raises a TypeError: without a row there is nothing that a baseline could read."""
        raise TypeError(
            "a Baseline is learned beside the encoder of a row; give it to AmortisedBernoulli, or take LeaveOneOut()"
        )

    def init(self, key: RandomKey, name: str, given: tuple[str, ...], row: Row) -> Params:
        """Returns c = 0, and fresh weights of C.

        Args:
            key: a random key.
            name: the latent.
            given: the latents that the encoder reads beside the data.
            row: a row, for shapes.
        """
        offset = {"offset": jnp.zeros((), dtype_of(row.known))}
        return (
            offset
            if self.network is None
            else {
                **offset,
                "network": first_encoder(self.network, key, name, given, row, 1),
            }
        )

    def an_entry(self, name: str, own: Params, given: tuple[str, ...], row: Row, at: Environment) -> Array:
        """Returns c + C(y), nats an observed entry.

        Args:
            name: the latent.
            own: of `init`.
            given: the latents that the encoder reads beside the data.
            row: the row.
            at: the statistics of what all rows share.
        """
        if self.network is None:
            return own["offset"]
        return own["offset"] + encoded(self.network, own["network"], name, given, row, at)[0]

    def entries(self, row: Row) -> Any:
        """Returns D, the number of observed entries of a row.

        Args:
            row: the row.
        """
        sizes = [
            jnp.sum(row.observed[name]) if name in row.observed else math.prod(jnp.shape(value))
            for name, value in row.data.items()
            if name not in row.evidence
        ]
        return jnp.maximum(sum(sizes[1:], sizes[0]), 1)
