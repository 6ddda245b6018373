"""The prior of the weights as factors of a belief: one a weight, refined by expectation propagation."""

# The weight j has the prior \(N(w_j \mid m_{0j},\; u_j / \lambda)\), one precision λ for all with a Gamma belief. The
# belief about \(w_j\) has the approximation of that factor in it, \(N\)-shaped with natural parameters \((r_j, p_j)\),
# times the Gamma-shaped \((\alpha_j, \beta_j)\) that it tells of λ. Refining one takes it out, and puts in what makes
# the moments those of belief times prior.

from __future__ import annotations

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.algorithms.moments.precisions import renewed
from lamu.families import Gamma
from lamu.record import record
from lamu.typing import Array, Params

__all__ = ["PriorFactors"]

_WIDEST = 1e6


@record
class PriorFactors:
    """The approximate factors of the prior, and the belief about its precision."""

    centre: Params  # \(m_0\), a tree of the weights
    unit: Params  # \(u_j\), the prior's variance where λ is one
    precision_mean: Params  # \(r_j\), precision times mean (from \(m_0\))
    precision: Params  # \(p_j\)
    shape: Params  # \(\alpha_j\), what a weight adds to the shape of the belief about λ
    rate: Params  # \(\beta_j\), what it adds to its rate
    belief: Gamma  # the Gamma of λ

    @classmethod
    def first(cls, centre: Params, unit: Params, belief: Gamma) -> PriorFactors:
        """Returns the factors before any data: of the variance that λ is expected to give."""
        zeros = [tree.zeros_like(centre) for _ in range(3)]
        expected = (belief.shape - 1.0) / belief.rate
        return cls(centre, unit, zeros[0], jax.tree.map(lambda u: expected / u, unit), zeros[1], zeros[2], belief)

    @property
    def variance(self) -> Params:
        """The variances of the factors by themselves."""
        return jax.tree.map(jnp.reciprocal, self.precision)

    def refined(self, mean: Params, variance: Params) -> tuple[Params, Params, PriorFactors]:
        """Returns the belief's means and variances, and the factors, after one pass over them."""
        # One weight after the other, because each moves the belief about λ that the next one meets. A weight about
        # which the data say nothing is left alone.
        vector = lambda part: tree.ravel(part)[0]
        unravel = tree.ravel(mean)[1]
        parts = (mean, variance, self.centre, self.unit, self.precision_mean, self.precision, self.shape, self.rate)
        now = tuple(map(vector, parts))
        start = (self.belief.shape, self.belief.rate)
        (shape, rate), found = jax.lax.scan(_one, start, now)
        m, v, precision_mean, precision, more, faster = map(unravel, found)
        after = PriorFactors(self.centre, self.unit, precision_mean, precision, more, faster, Gamma(shape, rate))
        return m, v, after


def _one(belief: tuple[Array, Array], weight: tuple[Array, ...]) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
    a, b = belief
    m, v, m0, u, precision_mean, precision, shape, rate = weight
    away = m - m0
    # The belief without this factor.
    left = 1.0 / v - precision
    wide = 1.0 / left
    lean = (away / v - precision_mean) * wide
    c, d = a - shape, b - rate
    total = wide + u * d / (c - 1.0)
    slope = -lean / total
    new_away = lean + wide * slope
    # v − v² (g² − 2 ∂ log Z / ∂v), for this Z a ratio of variances.
    new_v = wide * (total - wide) / total
    new_a, new_b = renewed(c, d, wide, lean**2, u)
    good = (left > 0) & (wide < _WIDEST * u) & (c > 1.0) & (d > 0) & (new_v > 0) & (new_a > 1.0) & (new_b > 0)
    good &= jnp.isfinite(new_away) & jnp.isfinite(new_a) & jnp.isfinite(new_b)
    keep = lambda new, old: jnp.where(good, new, old)
    found = (
        keep(m0 + new_away, m),
        keep(new_v, v),
        keep(new_away / new_v - lean * left, precision_mean),
        keep(1.0 / new_v - left, precision),
        keep(new_a - c, shape),
        keep(new_b - d, rate),
    )
    return (keep(new_a, a), keep(new_b, b)), found
