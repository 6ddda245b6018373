"""An algorithm of one's own, written here by hand, has the stochastic laws by one line; its likely faults break them.

The algorithm is IVON without momentum. Each fault is one slip in one line of it, as a researcher would make it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from lamu import tree
from lamu.families import Gaussian, Point, Product
from lamu.operators import Diagonal
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.priors import independent_normal
from lamu.protocol import Choices, Info, Traits
from lamu.record import record
from tests.laws.harness import LAWS, Law, Row
from tests.laws.stochastic import mean_field

SLIPS = (
    "a batch's sum for its mean",
    "the data's sum for its mean",
    "prior dropped",
    "prior dropped from the precision",
    "prior once a batch",
    "prior once a row",
    "the prior's mean forgotten",
    "the prior pushes away",
    "T forgotten",
    "T inverted",
    "T forgotten in the draws",
    "N twice in the belief",
    "N forgotten in the belief",
    "deviation for variance in the draws",
    "deviation for variance in the belief",
    "one normal number for all weights",
)
SOUND = len(SLIPS)


@record
class Handwritten:
    """A diagonal Gaussian by Price's identity, with one slip or none."""

    slip: Any

    def _or(self, name: str, wrong: Any, right: Any) -> Any:
        """The wrong expression where this is the slip."""
        return jnp.where(self.slip == SLIPS.index(name), wrong, right)

    @property
    def traits(self) -> Traits:
        return Traits()

    @property
    def choices(self) -> Choices:
        return Choices("Gaussian, diagonal precision", "MonteCarlo", "Price")

    def concentration(self, objective: Any) -> Any:
        T = objective.temperature
        T = self._or("T forgotten", 1.0, self._or("T inverted", 1 / T, T))
        return objective.data_size / T

    def init(self, key: Any, objective: Any, batch: Any) -> Any:
        weights = objective.model.init(key, batch)[0]["network"]
        return jnp.zeros(()), weights, jax.tree.map(jnp.ones_like, weights)

    def step(self, key: Any, state: Any, batch: Any, objective: Any) -> Any:
        count, (mean, unravel), precision = state[0], tree.ravel(state[1]), tree.ravel(state[2])[0]
        N, kappa = objective.data_size, self.concentration(objective)
        normal = jax.random.normal(key, mean.shape)
        normal = self._or("one normal number for all weights", jnp.broadcast_to(normal[:1], mean.shape), normal)
        wide = self._or("T forgotten in the draws", N * precision, kappa * precision)
        theta = mean + normal / self._or("deviation for variance in the draws", wide, jnp.sqrt(wide))

        def loss(theta: Any) -> Any:
            params = {"network": unravel(theta), "likelihood": {}}
            return objective.negative_log_likelihood(params, batch, {})[0]

        value, gradient = jax.value_and_grad(loss)(theta)
        gradient = gradient * self._or("a batch's sum for its mean", batch.count, 1.0)
        gradient = gradient * self._or("the data's sum for its mean", N, 1.0)
        centre, delta = (tree.ravel(part)[0] for part in independent_normal(objective.model.prior, unravel(mean)))
        share = delta / self._or("prior once a batch", batch.count, self._or("prior once a row", 1.0, N))
        share = self._or("prior dropped", 0.0, share)
        rate = 3.0 / (count + 3.0)
        hessian = gradient * (theta - mean) * kappa * precision
        away = hessian + self._or("prior dropped from the precision", 0.0, share) - precision
        precision = precision + rate * away + (rate * away) ** 2 / (2 * precision)
        pull = share * (mean - self._or("the prior's mean forgotten", 0.0, centre))
        pull = self._or("the prior pushes away", -pull, pull)
        mean = mean - 0.3 * rate**0.5 * (gradient + pull) / precision
        return (count + 1, unravel(mean), unravel(precision)), Info(loss=value)

    def posterior(self, key: Any, state: Any, objective: Any, data: Any, trace: Any) -> Posterior:
        scale = self.concentration(objective)
        scale = scale * self._or("N twice in the belief", objective.data_size, 1.0)
        scale = scale / self._or("N forgotten in the belief", objective.data_size, 1.0)
        slip = "deviation for variance in the belief"
        whole = jax.tree.map(lambda leaf: self._or(slip, jnp.sqrt(scale * leaf), scale * leaf), state[2])
        belief = Product({"network": Gaussian(state[1], Diagonal(whole)), "likelihood": Point({})})
        return Posterior(objective.model, belief, {}, Sampled(), key)


def mine(slip: int) -> Row:
    """The row that such an algorithm is registered as, of few runs on one setting."""
    traits = frozenset({"closed", "belief", "prior", "dead", "common"})
    few = {"runs": 6, "settings": (0,), "sharp": 0.12}
    return Row("stochastic", f"handwritten {slip}", Handwritten(slip), traits, {"answer": mean_field, **few})


def laws() -> list[Law]:
    return [law for law in LAWS if law.kind == "stochastic" and law.applies(mine(SOUND))]


def test_a_sound_recipe_has_all_laws() -> None:
    assert len(laws()) == 4
    for law in laws():
        law.check(mine(SOUND))


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_rejected(slip: str) -> None:
    rejected = []
    for law in laws():
        try:
            law.check(mine(SLIPS.index(slip)))
        except AssertionError:
            rejected.append(law.name)
    print(f"{slip}: {', '.join(rejected)}")
    assert rejected, f"{slip!r} passes all laws"
