"""Base class of predictives that hold another one: every member is the base's, unless the wrapper says otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lamu.predictives.interface import Predictive
from lamu.supports import Support
from lamu.typing import Array, RandomKey

__all__ = ["PredictiveWrapper"]


class PredictiveWrapper(Predictive):
    """A predictive that holds another one as its `base`, and forwards every member of `Predictive` to it."""

    # A wrapper overrides what it changes. What `Predictive` derives from other members (standard deviation, interval,
    # decision, ...) is derived from the wrapper's own. A wrapper whose distribution is another one overrides moments,
    # `log_prob`, `left_out`, `cdf`, `quantile` and `sample` together; one that holds numbers for each row overrides
    # `of_rows`, and one whose targets have another shape `target_rows`.

    base: Any

    @property
    def support(self) -> Support:
        return self.base.support

    @property
    def mean(self) -> Array:
        return self.base.mean

    @property
    def variance(self) -> Array:
        return self.base.variance

    @property
    def aleatoric(self) -> Array:
        return self.base.aleatoric

    @property
    def epistemic(self) -> Array:
        return self.base.epistemic

    def log_prob(self, y: Any) -> Array:
        return self.base.log_prob(self.target_rows(y))

    def left_out(self, y: Any) -> tuple[Array, ...]:
        return self.base.left_out(self.target_rows(y))

    def cdf(self, y: Any) -> Array:
        return self.base.cdf(self.target_rows(y))

    def quantile(self, probability: float) -> Array:
        return self.base.quantile(probability)

    def sample(self, key: RandomKey, n: int, first: Any = 0) -> Array:
        return self.base.sample(key, n, first)

    @property
    def deferred(self) -> bool:
        """Whether the base is computed some rows at a time."""
        return bool(self.base.deferred)

    @property
    def rows_at_once(self) -> int:
        """How many rows each chunk of the base has."""
        return self.base.rows_at_once

    def chunks(self) -> Iterator[tuple[slice, Predictive]]:
        """Yields the prediction of some rows after the other, cut as the base is."""
        for rows, part in self.base.chunks():
            yield rows, self.of_rows(rows, part)

    def of_rows(self, rows: slice, part: Predictive) -> Predictive:
        """Returns the same wrapper around the base's prediction of some rows.

        Args:
            rows: which.
            part: the base's prediction of them.
        """
        wrapper: Any = self  # a record, as every wrapper is
        return replace(wrapper, base=part)

    def target_rows(self, y: Any) -> Any:
        """Returns targets as the base takes them."""
        return y
