"""The predictive of an ensemble: the average of its members' predictives."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from lamu.families import Ensemble
from lamu.predictives.interface import Predictive, Prepared
from lamu.predictives.mixture import all_but_one
from lamu.predictives.rule import PredictiveRule
from lamu.record import record
from lamu.supports import Support
from lamu.target import Target
from lamu.typing import Array, RandomKey, Rows

__all__ = ["Pooled", "Pooling"]


@record
class Pooled(Predictive):
    r"""\(p(y^*) = \frac1M \sum_k p_k(y^*)\), over the predictives of the members.

    Attributes:
        parts: the members' predictives, of one kind and shape.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.predictives import GaussianPredictive, Pooled
        >>> one, two = (GaussianPredictive(jnp.full(1, c), jnp.ones((1, 1, 1)), jnp.ones(1)) for c in (-1.0, 1.0))
        >>> float(Pooled((one, two)).variance[0])  # their own, and the distance between them
        2.0
    """

    parts: tuple[Any, ...]

    @property
    def support(self) -> Support:
        """The members' support."""
        return self.parts[0].support

    @property
    def mean(self) -> Array:
        """The average of the members' means."""
        return self._average([part.mean for part in self.parts])

    @property
    def variance(self) -> Array:
        """The members' average variance, and the variance of their means."""
        return self._average([part.variance for part in self.parts]) + self._disagreement

    @property
    def aleatoric(self) -> Array:
        """The average of the members' own aleatoric parts."""
        return self._average([part.aleatoric for part in self.parts])

    @property
    def epistemic(self) -> Array:
        """What the members do not know each, and where they disagree."""
        if not self.support.has_classes:
            return self._average([part.epistemic for part in self.parts]) + self._disagreement
        probabilities = self.probabilities
        entropy = -jnp.sum(jax.scipy.special.xlogy(probabilities, probabilities), axis=-1)
        return jnp.maximum(entropy - self.aleatoric, 0.0)

    def log_prob(self, y: Any) -> Array:
        """Returns the log of the members' averaged density, in nats, shape `[N]`."""
        densities = jnp.stack([part.log_prob(y) for part in self.parts])
        return logsumexp(densities, axis=0) - math.log(len(self.parts))

    def cdf(self, y: Any) -> Array:
        """Returns P(Y ≤ y), the members' average."""
        return self._average([part.cdf(y) for part in self.parts])

    def left_out(self, y: Any) -> tuple[Array, ...]:
        """Returns the log of the averaged density without each of a member's draws, a group for each member."""
        groups = [part.left_out(y) for part in self.parts]
        if not any(groups):
            return ()
        others = all_but_one(jnp.stack([part.log_prob(y) for part in self.parts]))
        return tuple(
            jnp.logaddexp(jnp.broadcast_to(rest[None], group.shape), group) - math.log(len(self.parts))
            for rest, part in zip(others, groups, strict=True)
            for group in part
        )

    def sample(self, key: RandomKey, n: int, first: Any = 0) -> Array:
        """Returns n draws, each from a member that is drawn first."""
        member_key, draw_key = jax.random.split(key)
        members = jax.random.randint(member_key, (n,), 0, len(self.parts))
        keys = jax.random.split(draw_key, len(self.parts))
        # One member after the other: what is held is what is asked for, however many there are.
        found: Any = None
        for number, (part, k) in enumerate(zip(self.parts, keys, strict=True)):
            drawn = part.sample(k, n, first)
            mine = (members == number).reshape(n, *[1] * (drawn.ndim - 1))
            found = drawn if found is None else jnp.where(mine, drawn, found)
        return found

    @property
    def _disagreement(self) -> Array:
        centre = self.mean
        return self._average([(part.mean - centre) ** 2 for part in self.parts])

    def _average(self, values: list[Array]) -> Array:
        return jnp.mean(jnp.stack(values), axis=0)


@record
class Pooling(PredictiveRule):
    """The rule of an ensemble: every member predicts by itself, with its own network state, and these are averaged.

    Attributes:
        of: the members' rule.
        frozen: weights that every member holds at values of its own, stacked; None where they share the model's.

    Examples:
        >>> from lamu.predictives import Pooling, Sampled
        >>> Pooling(Sampled()).of
        Sampled()
    """

    of: PredictiveRule
    frozen: Any = None

    def prepare(self, model: Target, belief: Any, network_state: Any, samples: int, key: RandomKey) -> Prepared:
        """Returns every member's own preparation; `samples` is shared out among them."""
        if not isinstance(belief, Ensemble):
            raise TypeError(f"Pooling() averages an ensemble, not a {type(belief).__name__}; use its own rule")
        each = max(1, samples // belief.count)
        parts = []
        for k, member in enumerate(belief.members):
            own = model if self.frozen is None else replace(model, frozen=_member(self.frozen, k))
            state = _member(network_state, k)
            parts.append(self.of.prepare(own, member, state, each, jax.random.fold_in(key, k)))
        return _Members(tuple(parts))


@record
class _Members:
    """The members' preparations."""

    parts: tuple[Any, ...]

    @property
    def support(self) -> Support:
        return self.parts[0].support

    def at(self, x: Rows, offset: Rows | None) -> Pooled:
        return Pooled(tuple(part.at(x, offset) for part in self.parts))


def _member(stacked: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], stacked)
