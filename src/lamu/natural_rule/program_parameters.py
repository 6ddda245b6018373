"""The latent sites of a NumPyro program as what a belief is about."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.families import Beta, Dirichlet, Gamma, Gaussian, InverseGamma, Product
from lamu.natural_rule.subject import Subject
from lamu.objective import Objective
from lamu.operators import Dense
from lamu.predictives import PredictiveRule, Sampled
from lamu.programs import NumpyroProgram
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["ProgramLoss", "ProgramParameters"]

_BROAD = {"Gamma": Gamma, "InverseGamma": InverseGamma, "Beta": Beta}
_PRECISION = 4.0  # of the first Gaussian, in real coordinates


@record
class ProgramLoss:
    """The mean loss of a program on a batch of values θ of the conjugate sites and real coordinates u of the others."""

    # A belief about θ knows nothing of the Jacobian of its coordinates, which is taken out.

    objective: Objective  # what fixes the scale
    batch: Batch  # the rows
    network_state: Any  # empty
    rest: Params  # the rest of the parameters, none

    def value(self, theta: Any, rest: Params, key: RandomKey | None) -> tuple[Array, Any]:
        """Returns the mean loss in nats a row, and the state."""
        model: Any = self.objective.model
        real = model.constraints.unconstrain(theta.get("conjugate", {}))
        volume = model.constraints.constrain(real)[1]
        params = {"network": {**real, **theta.get("normal", {})}, "likelihood": {}}
        loss, state = self.objective.mean_loss(params, self.batch, self.network_state)
        share = 1 / self.objective.data_size if model.has_rows else self.objective.likelihood_power
        return loss + (share * volume).astype(loss.dtype), state


@record
class ProgramParameters(Subject):
    """The latent sites of a `lamu.from_numpyro` target: conjugate ones apart, the others under one Gaussian."""

    family = "conjugate families × dense Gaussian"
    settles = True

    @property
    def predictive(self) -> PredictiveRule:
        return Sampled()

    def start(self, key: RandomKey, objective: Objective, batch: Batch) -> tuple[Any, Params, Any]:
        # Returns broad beliefs about one, one half, or equal shares, and a Gaussian about zero.
        model = objective.model
        if not isinstance(model, NumpyroProgram):
            raise TypeError(f"cvi() needs a target of lamu.from_numpyro, and not {model.name}; use von() or vmp()")
        if model.frozen is not None:
            raise ValueError(
                "cvi() takes all sites of a program; condition the program with numpyro.handlers.condition"
            )
        families, dtype = model.families(), batch.weight.dtype
        conjugate = {
            name: _broad(family, jnp.asarray(model.theta[name], dtype))
            for name, family in families.items()
            if family != "Normal"
        }
        real = model.constraints.unconstrain({n: model.theta[n] for n, f in families.items() if f == "Normal"})
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, dtype), real)
        parts: dict[str, Any] = {"conjugate": Product(conjugate)} if conjugate else {}
        if zeros:
            ones = jax.tree.map(lambda leaf: jnp.full_like(leaf, _PRECISION), zeros)
            parts["normal"] = Gaussian(zeros, Dense.from_diagonal(ones))
        return Product(parts), {"network": {}, "likelihood": {}}, {}

    def prior(self, objective: Objective, belief: Any) -> Any:
        # Returns zero: the priors are factors of the program, and in the loss.
        return tree.zeros_like(belief.to_natural())

    def loss(self, objective: Objective, batch: Batch, network_state: Any, rest: Params) -> ProgramLoss:
        return ProgramLoss(objective, batch, network_state, rest)

    def residual(self, belief: Any, direction: Any) -> Array:
        # Returns the natural norm of the step, \(\sqrt{d^\top F d}\) in nats.
        return jnp.sqrt(jnp.maximum(tree.dot(direction, belief.fisher_product(direction)), 0.0))


def _broad(family: str, theta: Array) -> Any:
    if family == "Dirichlet":
        return Dirichlet(jnp.full_like(theta, 2.0))
    return _BROAD[family](jnp.full_like(theta, 2.0), jnp.full_like(theta, 2.0))
