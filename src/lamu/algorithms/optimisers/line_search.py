"""The rule with its step shortened until the objective decreases, for expectations that are deterministic."""

# The rule's step goes from \(\lambda\) to \(\lambda'\). Where the objective \(F(\lambda) = E_q[\bar\ell] -
# H(q)/\kappa\) would not decrease enough there, the step is halved,
#
# \[ \lambda_t = \lambda + t\,(\lambda' - \lambda), \qquad t = 1, \tfrac12, \tfrac14, \dots \quad\text{until}\quad
#    F(\lambda_t) \le F(\lambda) - 10^{-4}\, t\, \rho\, \bar g^\top P^{-1} \bar g \]
#
# (Armijo 1966). The chord goes downhill wherever the new precision is positive, so that a t is found unless the step is
# one of rounding. Near a minimum the whole step is taken, which is the rule itself.

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.expectations import Delta
from lamu.objective import BatchLoss, Objective
from lamu.protocol import Choices, Info, Traits
from lamu.record import record, static
from lamu.rule import Rule, RuleState
from lamu.typing import Array, Params, RandomKey

__all__ = ["MadePositive", "Searched"]

_HALVINGS, _ARMIJO, _ROUNDING = 30, 1e-4, 16


@record
class MadePositive:
    r"""The rule's metric where S is positive, else that of \(|S|\): the same eigenvectors, absolute eigenvalues."""

    # Newton's step for an indefinite Hessian goes towards saddle points; with absolute eigenvalues it goes downhill. S
    # itself is untouched, and near a minimum the metric is the rule's own.
    #
    # Source: Gill, Murray & Wright (1981), section 4.4.2; Dauphin et al. (2014).

    departure = "absolute eigenvalues where indefinite"
    is_precision = True

    def direction(self, precision: Any, gradient: Params, count: Any, rate: Any) -> Params:
        """Returns S⁻¹ g, or |S|⁻¹ g."""
        matrix = precision.dense(gradient)
        flat, unravel = tree.ravel(gradient)

        def absolute() -> Array:
            values, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
            size = jnp.abs(values)
            floor = matrix.shape[0] * jnp.finfo(matrix.dtype).eps * jnp.max(size)
            return vectors @ ((vectors.T @ flat) / jnp.maximum(size, floor))

        plain = lambda: tree.ravel(precision.solve(gradient))[0]
        return unravel(jax.lax.cond(precision.is_positive(gradient), plain, absolute))


@record
class Searched(Rule):
    """The rule with a line search, for an expectation that is deterministic."""

    batching: str = static(default="mini")  # "full" where every step needs all the data, else "mini"

    @property
    def traits(self) -> Traits:
        # The rule's, with these batches.
        return replace(super().traits, batching=self.batching)

    @property
    def choices(self) -> Choices:
        choices = super().choices
        return replace(choices, departures=(*choices.departures, "line search"))

    def step(self, key: RandomKey, state: RuleState, batch: Batch, objective: Objective) -> tuple[RuleState, Info]:
        # Returns the state after one step of the rule, as much of it as decreases the objective.
        again = jax.random.clone(key)
        new, info = super().step(key, state, batch, objective)
        rate = self.learning_rate(state.count)
        before = self._free_energy(again, state, batch, objective)
        slope = rate * jnp.square(info.residual) / objective.concentration
        slack = _ROUNDING * jnp.finfo(before.dtype).eps * jnp.abs(before)

        def part(t: Array) -> RuleState:
            blend = lambda old, to: jax.tree.map(lambda a, b: a + t.astype(a.dtype) * (b - a), old, to)
            precision = new.precision if self._at_the_mean else blend(state.precision, new.precision)
            rest = blend(state.rest, new.rest)
            return replace(new, mean=blend(state.mean, new.mean), rest=rest, precision=precision)

        def fails(t: Array) -> Array:
            after = self._free_energy(jax.random.clone(again), part(t), batch, objective)
            return ~(after <= before - (_ARMIJO * t * slope).astype(before.dtype) + slack)  # NaN fails

        def shorter(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            t, tries, _ = carry
            t = t / 2
            return t, tries + 1, fails(t)

        one = jnp.ones((), before.dtype)
        start = (one, jnp.zeros((), jnp.int32), fails(one))
        t, _, failed = jax.lax.while_loop(lambda carry: carry[2] & (carry[1] < _HALVINGS), shorter, start)
        stay = lambda old, to: jax.tree.map(lambda a, b: jnp.where(failed, a, b), old, to)
        taken = part(t)
        return replace(taken, mean=stay(state.mean, taken.mean), rest=stay(state.rest, taken.rest)), info

    def complaint(self, state: RuleState) -> str | None:
        # Returns what is wrong with a precision that is not positive, in one sentence with the remedy.
        if super().complaint(state) is None:
            return None
        return (
            "the Hessian where the run ended is indefinite, so that it is no minimum; take more steps, or laplace(), "
            "whose Gauss-Newton matrix is positive everywhere"
        )

    @property
    def _at_the_mean(self) -> bool:
        """Whether the objective is the loss at the mean, of which the precision is no part."""
        return isinstance(self.expectation, Delta)

    def _free_energy(self, key: RandomKey, state: RuleState, batch: Batch, objective: Objective) -> Array:
        """Returns E_q[ℓ]/N − H(q)/κ without constants; for the delta method ℓ(m)/N."""
        prior = self.space.conjugate_prior(objective, state.mean)
        loss = BatchLoss.beside(prior, objective, batch, state.network_state, self.space, state.rest, state.mean)
        belief = self.belief(state, objective)
        if self._at_the_mean:
            value = loss.value(state.mean, state.rest, key)[0]
        else:
            value = self.expectation.evaluate(key, belief, loss, self.curvature, self.structure).value
            value = value + belief.precision.logdet(state.mean) / (2 * objective.concentration)
        if prior is None:
            return value
        mean, delta = prior
        away = tree.add(state.mean, mean, -1.0)
        squares = tree.dot(away, delta.matvec(away))
        if not self._at_the_mean:
            squares = squares + belief.precision.factored().trace_solve(delta, state.mean)
        return value + squares / 2
