r"""Binary weights, \(\theta_i \in \{-1, +1\}\), with a probability of +1 for all, or one for each path pattern."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy.special import logit

from lamu import tree
from lamu.families import Binary
from lamu.priors.interface import IndependentLeaves
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["Discrete"]


@record
class Discrete(IndependentLeaves):
    r"""Binary weights, \(p(\theta) = \prod_i \pi_i^{(1 + \theta_i)/2} (1 - \pi_i)^{(1 - \theta_i)/2}\) on ±1.

    It is a mass function, zero elsewhere, and has no gradient: it is for `bayesbinn` and `straight_through`, whose
    belief about binary weights takes it in exactly, \(\lambda_0 = \tfrac12 \log \pi / (1 - \pi)\). Real weights beside
    binary ones get a prior of their own by `ByPath`. The prior of a belief that was learned is `Belief(Binary(...))`.

    Attributes:
        probability: π of +1, or a mapping from path patterns to these, the first pattern that matches a leaf counting;
            kept as `patterns` with a tuple of its values.
        patterns: filled in from a mapping; None where one probability is for all.

    Raises:
        ValueError: for a probability outside (0, 1); and, where parameters are first seen, if a leaf matches no pattern
            or a pattern no leaf.

    Source: Soudry, Hubara & Meir (2014), section 3.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.priors import ByPath, Discrete, Normal
        >>> round(float(jnp.exp(Discrete(0.8).log_prob({"w": jnp.array([1.0, -1.0])}))), 4)
        0.16
        >>> prior = ByPath({"*kernel": Discrete(0.5), "*": Normal(1.0)})
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.MLP((4,)), lamu.likelihoods.Bernoulli(), prior).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.bayesbinn(), epochs=2).posterior
    """

    probability: Any = 0.5
    patterns: tuple[str, ...] | None = static(default=None)

    def __post_init__(self) -> None:
        if isinstance(self.probability, Mapping):
            object.__setattr__(self, "patterns", tuple(self.probability.keys()))
            object.__setattr__(self, "probability", tuple(self.probability.values()))
        values: Any = self.probability if self.patterns is not None else (self.probability,)
        for name, value in zip(self.patterns or ("",), values, strict=True):
            if not isinstance(value, Tracer) and not 0.0 < value < 1.0:
                where = f" of {name!r}" if name else ""
                raise ValueError(
                    f"the probability {value!r}{where} of +1 is not between 0 and 1; give for instance 0.5"
                )

    def check(self, params: Params) -> None:
        """Raises a ValueError if a pattern matches no leaf, or a leaf no pattern."""
        if self.patterns is not None:
            tree.require_matches(self.patterns, params)
            self.exponential(params)

    def exponential(self, params: Params) -> Binary:
        r"""Returns the belief \(\lambda = \tfrac12 \log \pi / (1 - \pi)\) of every weight."""
        if self.patterns is None:
            chosen = jax.tree.map(lambda _: self.probability, params)
        else:
            chosen = tree.by_pattern(dict(zip(self.patterns, self.probability, strict=True)), params)
        return Binary(jax.tree.map(lambda x, p: jnp.full_like(x, logit(jnp.asarray(p, x.dtype)) / 2), params, chosen))

    def log_prob(self, params: Params) -> Array:
        """Returns the log of the mass, a scalar in nats; −∞ where a weight is neither −1 nor +1."""
        mass = self.exponential(params).log_prob(params)
        binary = [jnp.all(jnp.abs(leaf) == 1) for leaf in jax.tree.leaves(params)]
        return jnp.where(jnp.all(jnp.stack(binary)), mass, -jnp.inf) if binary else mass

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Returns a draw of minus and plus ones, a tree like `params`."""
        return self.exponential(params).sample(key)
