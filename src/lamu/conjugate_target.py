"""A target with exact messages: the expectation of its log joint is known in the statistics of what rows share."""

# \[ F(s) = \sum_i F_i(s) + F_0(s), \qquad
#    F(T(\theta)) = \log p(\theta, D), \qquad F(\mu) = E_q[\log p(\theta, D)] \]
#
# A prior that enters the belief exactly is \(\lambda_0\) in the place of \(F_0\).

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from lamu.data.batch import Batch
from lamu.target import Target
from lamu.typing import Array, Belief, Params, RandomKey, Statistics

__all__ = ["ConjugateTarget", "MessageTarget", "conjugate_target", "message_target"]


class ConjugateTarget(Target):
    """What algorithms in λ ask of a target, `lamu.ConjugateModel` and `lamu.Graph` among them."""

    @abstractmethod
    def first_belief(self, key: RandomKey, batch: Batch, temperature: Any) -> Any:
        """Returns the belief that runs start from, an exponential family or a product of such families."""

    @abstractmethod
    def natural_prior(self, belief: Belief, temperature: Any) -> Statistics:
        """Returns λ₀/T, a tree like `belief.to_natural()`; zeros where the prior is a part of `shared_log_joint`."""

    def expected_log_prior(self, belief: Belief) -> Any:
        r"""Returns \(E_q[\log p(\theta)]\) in nats of a prior that enters the belief exactly; else zero.

        Args:
            belief: q.
        """
        del belief
        return 0.0

    @abstractmethod
    def statistics(self, mu: Any) -> Statistics:
        """Returns the expectation parameters of a belief as the statistics that the two functions below take."""

    def first_dispersions(self, batch: Batch) -> Params:
        """Returns the dispersions that are learned beside the belief, at a point, as they start; none by default.

        Args:
            batch: some rows.
        """
        del batch
        return {}

    @abstractmethod
    def row_bounds(
        self, statistics: Statistics, batch: Batch, temperature: Any = 1.0, key: RandomKey | None = None
    ) -> Array:
        r"""Returns \(\max_{q(z)} E_q[\log p(x_i, z \mid \theta)]/T + H(q(z))\) of every row, `[batch]` in nats."""

    @abstractmethod
    def shared_log_joint(self, statistics: Statistics) -> Array:
        """Returns the log density of what all rows share in nats; zero where the prior enters the belief exactly."""


class MessageTarget(ConjugateTarget):
    """What coordinate ascent asks of a target: variables by name, each with a family of its own."""

    expansion: Any = None  # moves along what the likelihood does not see after a sweep, or None

    @property
    @abstractmethod
    def kinds(self) -> Mapping[str, Any]:
        """The statistics of the variables by name, classes of `lamu.graphs.statistics`."""

    @property
    @abstractmethod
    def blocks(self) -> tuple[tuple[str, ...], ...]:
        """The variables in groups that no factor brings together, in the order of their updates."""

    @property
    def rows_add_up(self) -> bool:
        """Whether λ is a sum over rows whatever is believed: no factor brings two variables together."""
        return len(self.blocks) == 1

    @abstractmethod
    def require_messages(self, asked: str, exact: bool = True) -> None:
        """Raises a TypeError for a variable to which no message comes."""

    @abstractmethod
    def first_beliefs(self, key: RandomKey, batch: Batch, temperature: Any = 1.0) -> dict[str, Any]:
        """Returns beliefs to start from, by name."""

    @abstractmethod
    def moments(self, beliefs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns μ of beliefs, by name."""

    @abstractmethod
    def values(self, theta: Mapping[str, Any]) -> dict[str, Any]:
        """Returns T(θ) of values, by name."""

    @abstractmethod
    def product(self, beliefs: Mapping[str, Any]) -> Any:
        """Returns the belief about all variables."""

    @abstractmethod
    def of_theta(self) -> Any:
        """Returns the target whose coordinates are θ itself."""

    def fitted_to(self, rows: Any) -> Any:
        """Returns the target of a point that was fitted to so many rows; itself where that tells nothing.

        Args:
            rows: how many.
        """
        del rows
        return self

    def fewer_rows(self, batch: Batch) -> Batch | None:
        """Returns fewer rows that stand for all, or None where there are none such.

        Args:
            batch: the rows.
        """
        del batch


def conjugate_target(target: Any) -> ConjugateTarget:
    """Returns a target as one with exact messages, which it is."""
    if isinstance(target, ConjugateTarget):
        return target
    raise TypeError(
        f"exact messages need a lamu.Graph or a lamu.ConjugateModel, and not {target.name}; use ivon(), or conjugate() "
        "where a network is linear"
    )


def message_target(target: Any) -> MessageTarget:
    """Returns a target as one with messages between variables, which it is."""
    if isinstance(target, MessageTarget):
        return target
    raise TypeError(
        f"messages between variables need a lamu.Graph or lamu.from_numpyro, not {target.name}; use ivon(), nuts()"
    )
