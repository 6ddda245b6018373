"""What a choice of divergence between a belief and its target must offer."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from lamu.families import Gaussian
from lamu.typing import Array

__all__ = ["Divergence"]


@runtime_checkable
class Divergence(Protocol):
    r"""How far a belief q is from the target p, known up to a factor, and how descent sees it.

    From draws \(\theta_k \sim q\) with the log weights \(\log w_k = \log p(\theta_k) - \log q(\theta_k)\), p without
    its normaliser, an estimate of the gradient is \(\sum_k \omega_k \nabla f_k\), with \(\omega\) of `shares` and f of
    `surrogate`.

    Attributes:
        departure: what the choice changes about the evidence bound, in words; empty for the bound itself.
        through_draws: whether gradients go through the draws \(\theta = m + s z\), or hold them.
        least: the fewest draws that say anything.
    """

    departure: str
    through_draws: bool
    least: int

    def between(self, q: Gaussian, p: Gaussian) -> Array:
        """Returns the divergence of two Gaussians in nats, in closed form."""
        ...

    def mean_field(self, target: Gaussian) -> Gaussian:
        """Returns the Gaussian with a diagonal precision that is closest to a Gaussian target."""
        ...

    def value(self, log_weights: Array) -> Array:
        """Returns the estimate of the divergence less the log of the target's normaliser, in nats, a scalar.

        Args:
            log_weights: log w, one a draw, `[draws]`.
        """
        ...

    def shares(self, log_weights: Array) -> Array:
        r"""Returns \(\omega\), what each draw's gradient counts, `[draws]`, with sum one."""
        ...

    def surrogate(self, log_target: Array, log_belief: Array) -> Array:
        r"""Returns f of one draw, from \(\log p(\theta)\) and \(\log q(\theta)\)."""
        ...
