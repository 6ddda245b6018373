r"""A target with exact messages: the expectation of its log joint is known in the statistics of what rows share.

\[ F(s) = \sum_i F_i(s) + F_0(s), \qquad
   F(T(\theta)) = \log p(\theta, D), \qquad F(\mu) = E_q[\log p(\theta, D)] \]

A prior that enters the belief exactly is \(\lambda_0\) in the place of \(F_0\).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from lamu.data.batch import Batch
from lamu.target import Target
from lamu.typing import Array, RandomKey

__all__ = ["ConjugateTarget", "conjugate_target"]


class ConjugateTarget(Target):
    """What algorithms in λ ask of a target, `lamu.ConjugateModel` and `lamu.Graph` among them."""

    @abstractmethod
    def first_belief(self, key: RandomKey, batch: Batch, temperature: Any) -> Any:
        """Returns the belief that runs start from, an exponential family or a product of such families.

        Args:
            key: a random key.
            batch: some rows.
            temperature: T.
        """

    @abstractmethod
    def natural_prior(self, belief: Any, temperature: Any) -> Any:
        """Returns λ₀/T, a tree like `belief.to_natural()`; zeros where the prior is a part of `shared_log_joint`.

        Args:
            belief: q, for structure and dtype.
            temperature: T.
        """

    def expected_log_prior(self, belief: Any) -> Any:
        r"""Returns \(E_q[\log p(\theta)]\) in nats of a prior that enters the belief exactly; else zero.

        Args:
            belief: q.
        """
        del belief
        return 0.0

    @abstractmethod
    def statistics(self, mu: Any) -> Any:
        """Returns the expectation parameters of a belief as the statistics that the two functions below take.

        Args:
            mu: the values of μ.
        """

    @abstractmethod
    def row_bounds(self, statistics: Any, batch: Batch, temperature: Any = 1.0, key: RandomKey | None = None) -> Array:
        r"""Returns \(\max_{q(z)} E_q[\log p(x_i, z \mid \theta)]/T + H(q(z))\) of every row, `[batch]` in nats.

        Args:
            statistics: T(θ) or μ.
            batch: the rows.
            temperature: T.
            key: for rows whose latents are drawn.
        """

    @abstractmethod
    def shared_log_joint(self, statistics: Any) -> Array:
        """Returns the log density of what all rows share in nats; zero where the prior enters the belief exactly.

        Args:
            statistics: T(θ) or μ.
        """


def conjugate_target(target: Any) -> ConjugateTarget:
    """Returns a target as one with exact messages, which it is.

    Args:
        target: what is learned.

    Raises:
        TypeError: where there are none.

    Examples:
        >>> import lamu
        >>> from lamu.conjugate_target import conjugate_target
        >>> conjugate_target(lamu.ConjugateModel(lamu.observations.Poisson(), lamu.families.Gamma(2.0, 1.0))).name
        'Poisson'
    """
    if isinstance(target, ConjugateTarget):
        return target
    raise TypeError(
        f"exact messages need a lamu.Graph or a lamu.ConjugateModel, and not {target.name}; use ivon(), or conjugate() "
        "where a network is linear"
    )
