"""Beliefs about the latent sites of a NumPyro program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to

from lamu import tree
from lamu.base.compile_once import lenient
from lamu.data.batch import Batch
from lamu.expectations import ValueAndGradient
from lamu.expectations.pathwise import at_point, in_expectation
from lamu.families import Beta, Dirichlet, Gamma, Gaussian, InverseGamma, Product
from lamu.natural_rule.subject import Subject
from lamu.objective import Objective
from lamu.operators import Dense
from lamu.programs import NumpyroProgram
from lamu.programs.conjugacy import CANDIDATES, message
from lamu.record import record, static
from lamu.typing import Array, Belief, Params, PyTree, RandomKey, State, Statistics

__all__ = ["ProgramLoss", "ProgramMessages", "ProgramParameters"]


# For a conjugate site k the loss is affine in \(T(\theta_k)\) given the others, and its λ is the message. A factor
# with other latent sites is averaged over samples of those:
#
# \[ \nabla_{\mu_k} E_q[\ell] = E_{q(\theta_{-k})}[\lambda_k(\theta_{-k})] \]


_SUPPORTS = {
    "Gamma": constraints.positive,
    "InverseGamma": constraints.positive,
    "Beta": constraints.unit_interval,
    "Dirichlet": constraints.simplex,
}


@record
class ProgramMessages:
    """The gradient in μ for the belief about a program's sites, from antithetic pairs of samples of the Gaussian."""

    pairs: int = static()  # the number of pairs of samples

    departure = ""

    def gradient(self, key: RandomKey, belief: Belief, loss: Callable[[Params], Array]) -> ValueAndGradient:
        """Returns the expected loss and its gradient in the expectation parameters."""
        normal = belief.factors.get("normal")
        root = None if normal is None else normal.precision.factored()

        def at(key: RandomKey) -> PyTree:
            noise_key, *keys = jax.random.split(key, 3)
            deviation = None if root is None or normal is None else root.sample(noise_key, normal.mean)
            pair = [self._at(k, belief, deviation, sign, loss) for k, sign in zip(keys, (1.0, -1.0), strict=True)]
            return jax.tree.map(lambda a, b: (a + b) / 2.0, *pair)

        estimates = jax.vmap(at)(jax.random.split(key, self.pairs))
        value, messages, slopes = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), estimates)
        gradient = {name: CANDIDATES[name_of(belief, name)].build(natural) for name, natural in messages.items()}
        parts: dict[str, Statistics] = {"conjugate": gradient} if gradient else {}
        if normal is not None:
            parts["normal"] = in_expectation(normal, value, *slopes).gradient
        return ValueAndGradient(value, parts)

    def _at(
        self, key: RandomKey, belief: Belief, deviation: Params, sign: float, loss: Callable[[Params], Array]
    ) -> PyTree:
        """Returns loss, message to each conjugate site, and gradient and Hessian in the others, at one sample."""
        theta: dict[str, Params] = {}
        if "conjugate" in belief.factors:
            theta["conjugate"] = belief.factors["conjugate"].sample(key)
        normal = belief.factors.get("normal")
        if normal is not None:
            theta["normal"] = tree.add(normal.mean, deviation, sign)
        messages = {}
        for site, value in theta.get("conjugate", {}).items():
            name = name_of(belief, site)
            transform = biject_to(_SUPPORTS[name])

            def of_site(u: Any, site: str = site, transform: Any = transform) -> Any:
                with lenient():
                    return loss({**theta, "conjugate": {**theta["conjugate"], site: transform(u)}})

            with lenient():
                messages[site] = message(CANDIDATES[name], value, jax.grad(of_site), transform)
        if normal is None:
            return loss(theta), messages, ()
        of_normal = lambda u: loss({**theta, "normal": u})
        loss_value, slope, hessian = at_point(normal, of_normal, theta["normal"])
        return loss_value, messages, (slope, hessian)


def name_of(belief: Belief, site: str) -> str:
    """Returns the name of the family of a conjugate site."""
    return type(belief.factors["conjugate"].factors[site]).__name__


_BROAD = {"Gamma": Gamma, "InverseGamma": InverseGamma, "Beta": Beta}
_PRECISION = 4.0  # of the initial Gaussian, in real coordinates; not tuned


@record
class ProgramLoss:
    """The mean loss of a program on a batch of values θ of the conjugate sites and real coordinates u of the others."""

    # The log Jacobian of the conjugate sites' coordinates is subtracted, since their belief is about θ.

    objective: Objective  # the objective
    batch: Batch  # the rows
    network_state: State  # empty
    rest: Params  # the remaining parameters, none

    def value(self, theta: Params, rest: Params, key: RandomKey | None) -> tuple[Array, State]:
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
    """The latent sites of a `lamu.from_numpyro` target: separate conjugate beliefs, and one Gaussian for the others."""

    family = "conjugate families × dense Gaussian"
    settles = True

    def start(self, key: RandomKey, objective: Objective, batch: Batch) -> tuple[Belief, Params, State]:
        # Returns broad beliefs with the mean one, one half or equal shares, and a Gaussian with mean zero.
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
        parts: dict[str, Belief] = {"conjugate": Product(conjugate)} if conjugate else {}
        if zeros:
            ones = jax.tree.map(lambda leaf: jnp.full_like(leaf, _PRECISION), zeros)
            parts["normal"] = Gaussian(zeros, Dense.from_diagonal(ones))
        return Product(parts), {"network": {}, "likelihood": {}}, {}

    def prior(self, objective: Objective, belief: Belief) -> Statistics:
        # Returns zero: the priors are factors of the program and part of the loss.
        return tree.zeros_like(belief.to_natural())

    def loss(self, objective: Objective, batch: Batch, network_state: State, rest: Params) -> ProgramLoss:
        return ProgramLoss(objective, batch, network_state, rest)


def _broad(family: str, theta: Array) -> Belief:
    if family == "Dirichlet":
        return Dirichlet(jnp.full_like(theta, 2.0))
    return _BROAD[family](jnp.full_like(theta, 2.0), jnp.full_like(theta, 2.0))
