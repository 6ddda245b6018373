r"""How the latents of a row leave, before the row is a loss.

For given statistics of what all rows share, the best belief about a latent z is conjugate,

\[ \lambda_z = \tfrac1T\, \partial F / \partial \mu_z, \qquad
   \max_q \big( \tfrac1T E_q[\log p] + H(q) \big) = \tfrac1T F|_{\mu_z = 0} + A(\lambda_z) \]

with A the log of the integral of \(e^{\langle\lambda, T(z)\rangle}\): a log-sum-exp for a category, the log-partition
for a Gaussian. At \(T(\theta)\) the same line is the exact log density of the row. Latents that meet in a factor have
no such line and take turns. The temperature divides log p, never the entropy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.dtype_policy import lenient
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, log_joint
from lamu.record import record, static
from lamu.typing import Array

__all__ = ["Coordinate", "Exact", "Local"]


class Local(ABC):
    """How the latents of a row leave."""

    def settled(self, row: Row, at: Environment) -> dict[str, Any]:
        """Returns λ of the latents that an iteration finds first, which no gradient passes; nothing in closed form.

        Args:
            row: the row.
            at: the statistics of what all rows share.
        """
        del row, at
        return {}

    @abstractmethod
    def eliminated(
        self, row: Row, at: Environment, settled: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Returns the row's log density, or the best bound of it, in nats, and λ of every latent by name.

        Args:
            row: the row.
            at: the statistics of what all rows share.
            settled: what `settled` has returned; None to find it here.
        """


@record
class Exact(Local):
    r"""Latents that do not meet leave in closed form, \(F(0)/T + \sum_z A(\lambda_z)\), a smooth function of the rest.

    Examples:
        >>> from lamu import graphs
        >>> graphs.Exact()
        Exact()
    """

    def eliminated(
        self, row: Row, at: Environment, settled: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Returns the log density, exact at T(θ), and λ of every latent."""
        value, slopes = jax.value_and_grad(lambda latent: row.log_joint(at, latent))(row.zeros(at))
        natural = _tied(tree.scale(slopes, 1.0 / row.temperature), row)
        with lenient():
            bound: Any = sum((part.log_partition() for part in natural.values()), value / row.temperature)
            return bound, natural


@record
class Coordinate(Local):
    r"""Latents that meet take turns, each at its best for the others, until they no longer move.

    \[ \lambda_z \leftarrow \tfrac1T\, \partial F / \partial \mu_z, \qquad \mu_z \leftarrow E_{q_z}[T(z)] \]

    They start at their priors in every step. The gradient of the bound in what the rows share holds them fixed, which
    is exact at their optimum (the envelope theorem).

    Attributes:
        sweeps: how often each is updated, at most.
        tolerance: the largest change of λ, relative to one more than its size, at which the iteration stops.

    Source: Hoffman, Blei, Wang & Paisley (2013), section 2.2.

    Examples:
        >>> from lamu import graphs
        >>> graphs.Coordinate(sweeps=20).tolerance
        0.0001
    """

    sweeps: int = static(default=50)
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        if self.sweeps < 1:
            raise ValueError(f"sweeps={self.sweeps!r} update nothing; ask for at least one")

    def eliminated(
        self, row: Row, at: Environment, settled: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Returns the bound, and λ of every latent."""
        natural = self.settled(row, at) if settled is None else settled
        moments = {site.name: site.kind.under(natural[site.name].belief()) for site in row.latent}
        with lenient():
            entropy = sum((part.log_partition() for part in natural.values()), -tree.dot(natural, moments))
            return row.log_joint(at, moments) / row.temperature + entropy, natural

    def settled(self, row: Row, at: Environment) -> dict[str, Any]:
        """Returns λ of every latent where they no longer move."""
        at, row = jax.lax.stop_gradient((at, row))
        row = row.evaluated(at)

        def updated(natural: dict[str, Any], moments: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            for site in row.latent:
                others = dict(moments)
                slope = jax.grad(lambda own, name=site.name, rest=others: row.log_joint(at, {**rest, name: own}))(
                    moments[site.name]
                )
                one = _tied({site.name: tree.scale(slope, 1.0 / row.temperature)}, row)[site.name]
                natural = {**natural, site.name: one}
                moments = {**moments, site.name: site.kind.under(one.belief())}
            return natural, moments

        def going(state: Any) -> Array:
            count, _, _, change = state
            return (count < self.sweeps) & (change > self.tolerance)

        def once(state: Any) -> Any:
            count, natural, moments, _ = state
            new, moments = updated(natural, moments)
            moved = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b) / (1.0 + jnp.abs(b))), new, natural)
            return count + 1, new, moments, jnp.max(jnp.stack(jax.tree.leaves(moved)))

        natural, moments = self._first(row, at)
        change = jnp.full((), jnp.inf, jnp.result_type(jax.tree.leaves(natural)[0]))
        return jax.lax.while_loop(going, once, (jnp.zeros((), jnp.int32), natural, moments, change))[1]

    @staticmethod
    def _first(row: Row, at: Environment) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns λ and moments of the latents at their own priors, one after the other."""
        natural, moments, zeros = {}, {}, row.zeros(at)
        for site in row.latent:
            here = row.environment(at, {**zeros, **moments})

            def own(x: Any, site: Any = site, here: Environment = here) -> Array:
                return log_joint((site,), Environment({**here.statistics, site.name: x}, here.inputs, here.temperature))

            one = tree.scale(jax.grad(own)(zeros[site.name]), 1.0 / row.temperature)
            natural[site.name] = _tied({site.name: one}, row)[site.name]
            moments[site.name] = site.kind.under(natural[site.name].belief())
        return natural, moments


def _tied(natural: dict[str, Any], row: Row) -> dict[str, Any]:
    """Returns λ with what a row knows of a category that other rows miss."""
    return {
        name: tree.add(part, row.evidence[name]) if name in row.evidence else part for name, part in natural.items()
    }
