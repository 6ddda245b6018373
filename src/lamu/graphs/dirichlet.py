"""Probabilities of a row that sum to one."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from lamu.graphs.expressions import Environment, Expression
from lamu.graphs.factor import Factor
from lamu.graphs.statistics import Simplex
from lamu.record import record
from lamu.typing import Array

__all__ = ["Dirichlet", "DirichletFactor"]


def Dirichlet(concentration: Any) -> DirichletFactor:
    r"""Returns the factor of probabilities that sum to one.

    \[ \log\Gamma\Big(\sum_k \alpha_k\Big) - \sum_k \log\Gamma(\alpha_k) + \sum_k (\alpha_k - 1) E\log\pi_k \]

    Args:
        concentration: α `[..., K]`, known positive numbers.

    Raises:
        TypeError: for a variable: its density is not affine in it.
        ValueError: for numbers that are not positive.

    Source: Blei, Ng & Jordan (2003), section 3.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu import graphs
        >>> graphs.Dirichlet(jnp.ones(3)).shape
        (3,)
    """
    if isinstance(concentration, Expression):
        raise TypeError(
            f"the concentration is {', '.join(sorted(concentration.names))}, in which a Dirichlet has no closed "
            "form; give numbers"
        )
    if not np.all(np.asarray(concentration) > 0):
        raise ValueError(f"the concentration is {np.min(np.asarray(concentration)):g}; give positive numbers")
    return DirichletFactor(jnp.asarray(concentration, jnp.result_type(float)))


@record
class DirichletFactor(Factor):
    """Probabilities that sum to one. Use `Dirichlet`."""

    concentration: Any

    kind = Simplex
    misses = False

    @property
    def arguments(self) -> dict[str, Expression]:
        # None.
        return {}

    @property
    def shape(self) -> tuple[int, ...]:
        # That of α.
        return jnp.shape(self.concentration)

    def log_density(self, x: Any, at: Environment, observed: Any = None) -> Array:
        alpha = self.concentration
        constant = gammaln(jnp.sum(alpha, axis=-1)) - jnp.sum(gammaln(alpha), axis=-1)
        return jnp.sum(constant) + jnp.sum((alpha - 1.0) * x.log)

    def check(self, name: str, value: np.ndarray, observed: np.ndarray) -> None:
        # Raises a ValueError for numbers that are not positive, or do not sum to one.
        bad = observed & ~(value > 0)
        if bad.any():
            raise ValueError(f"{name} is {value[bad][0]:g} in a row; give probabilities above zero")
        sums = np.sum(value, axis=-1)
        wrong = np.all(observed, axis=-1) & (np.abs(sums - 1.0) > 1e-5)
        if wrong.any():
            raise ValueError(f"{name} sums to {sums[wrong][0]:g} in a row; divide each row by its sum")
