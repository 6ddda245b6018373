"""Rows of a graph, with what is missing in them predicted."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.predictives.drawn_rows import drawn_rows
from lamu.predictives.interface import Predictive, Prepared
from lamu.predictives.rule import PredictiveRule
from lamu.record import record
from lamu.supports import Support
from lamu.typing import Array, RandomKey

__all__ = ["Completed", "GraphRule"]

_ASK = "ask for mean, variance and std, or for posterior.local(rows)"


@record
class Completed(Predictive):
    """Rows with their missing entries filled in."""

    # By name what is observed, and \(E[x \mid \text{row}]\) where NaN was; the array alone where there is one. Of a
    # category the probabilities.
    means: Any
    variances: Any  # likewise Var[x | row], zero where observed

    @property
    def mean(self) -> Any:
        # The rows, with expectations where NaN was.
        return self.means

    @property
    def variance(self) -> Any:
        # The variances, zero where observed.
        return self.variances

    @property
    def std(self) -> Any:
        return jax.tree.map(jnp.sqrt, self.variance)

    @property
    def support(self) -> Support:
        # Raises a TypeError: the variables of a row have supports of their own.
        raise TypeError(f"rows of a graph have no one support; {_ASK}")

    @property
    def aleatoric(self) -> Array:
        # Raises a TypeError: the parts of the uncertainty are not told apart.
        raise TypeError(f"the uncertainty of what is missing comes in one part, `variance`; {_ASK}")

    @property
    def epistemic(self) -> Array:
        # Raises a TypeError: the parts of the uncertainty are not told apart.
        raise TypeError(f"the uncertainty of what is missing comes in one part, `variance`; {_ASK}")

    def log_prob(self, y: Any) -> Array:
        # Raises a TypeError: the posterior knows the density of rows.
        raise TypeError(f"the density of rows is posterior.log_prob(rows); {_ASK}")

    def cdf(self, y: Any) -> Array:
        # Raises a TypeError: a row has several variables.
        raise TypeError(f"rows of a graph have no distribution function; {_ASK}")

    def sample(self, key: RandomKey, n: int, first: Any = 0) -> Array:
        # Raises a TypeError: moments alone are known.
        raise TypeError(f"what is missing is known by its moments alone; {_ASK}")


@record
class GraphRule(PredictiveRule):
    """The rule of targets that fill in rows (`completes`): missing entries are predicted from the rest of their row."""

    # The shared variables enter by their expected statistics, so that nothing is drawn for a belief with closed forms.
    # Where latents leave rows by draws, or networks or likelihoods stand below them, it is a mixture over draws of
    # latents and of the shared variables (`lamu.predictives.drawn_rows`).

    def prepare(self, model: Any, belief: Any, network_state: Any, samples: int, key: RandomKey) -> Prepared:
        # Raises a TypeError: a graph predicts what is missing in rows, by `predict`.
        raise TypeError("a graph predicts what is missing in rows; ask posterior.predict(rows) with NaN for it")

    def predict(
        self, model: Any, belief: Any, network_state: Any, x: Any, samples: int, key: RandomKey, offset: Any = None
    ) -> Any:
        # Returns the rows with what was missing in them.
        if offset is not None:
            raise ValueError("a graph has no linear predictor that an offset could be added to")
        drawn = model.completed_by_draws(belief, x, samples, key)
        return Completed(*model.completed(belief, x, samples, key)) if drawn is None else drawn_rows(drawn)
