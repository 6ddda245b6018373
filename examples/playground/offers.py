"""The algorithms that the playground offers, each as a function of its step size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any

import optax
from examples.playground.targets import PlayTarget

from lamu.algorithms import (
    adam,
    bayes_by_backprop,
    gradient_descent,
    ivon,
    mixture_vi,
    newton,
    sgd,
    vogn,
    von,
)
from lamu.geometry import Retraction
from lamu.mcmc import hmc, mala, nuts, random_walk, sghmc, sgld, ula
from lamu.operators import Dense
from lamu.protocol import Algorithm

__all__ = ["Offer", "offers"]

_CHAINS = 4
_HELD: Any = {"chains": _CHAINS, "warmup": 0}
_SAMPLERS, _RULES = "Samplers", "Learning rules"
_LONGEST = 1.0  # of a direction: wider than the default, which is for the weights of large networks
_ADAM = optax.adam(1.0)  # one object, so that another step size is the same program


@dataclass(frozen=True)
class Offer:
    """An algorithm to play with."""

    title: str  # its name for people
    group: str  # "Samplers" or "Learning rules"
    make: Callable[[float], Algorithm]  # from a step size to the algorithm
    step_size: float  # where the slider starts
    # Whether that is a distance between parameters, to be multiplied by the target's scale; else a rate.
    scaled: bool = False
    needs_rows: bool = False  # whether it is about the gradients of single rows

    def suits(self, target: PlayTarget) -> bool:
        """Whether the algorithm can run on a target."""
        return target.model.has_rows or not self.needs_rows

    def first_step_size(self, target: PlayTarget) -> float:
        """Returns where the slider starts on a target."""
        return self.step_size * target.scale if self.scaled else self.step_size


@cache
def offers() -> dict[str, Offer]:
    """Returns the algorithms by name, in the order in which they are offered; NUTS only where BlackJAX is installed."""
    listed = {
        "random_walk": Offer(
            "Metropolis–Hastings", _SAMPLERS, lambda step: random_walk(**_HELD, step_size=step), 1.0, scaled=True
        ),
        "mala": Offer("Langevin, adjusted (MALA)", _SAMPLERS, lambda step: mala(**_HELD, step_size=step), 0.6, True),
        "ula": Offer("Langevin, unadjusted (ULA)", _SAMPLERS, lambda step: ula(**_HELD, step_size=step), 0.4, True),
        "hmc": Offer("Hamiltonian Monte Carlo", _SAMPLERS, _hmc, 0.25, True),
        # `nuts` learns its step size; here the slider holds it.
        "nuts": Offer("NUTS", _SAMPLERS, lambda step: replace(nuts(**_HELD), step_size=step), 0.25, True),
        "sgld": Offer("SGLD", _SAMPLERS, lambda step: sgld(step, **_HELD, thinning=1), 0.03),
        "sghmc": Offer("SGHMC", _SAMPLERS, lambda step: sghmc(step, **_HELD, thinning=1), 0.03),
        "gradient_descent": Offer("Gradient descent", _RULES, gradient_descent, 0.05),
        "sgd": Offer("SGD with momentum", _RULES, lambda step: sgd(step, momentum=0.9), 0.01),
        "adam": Offer("Adam", _RULES, adam, 0.05),
        "newton": Offer("Newton", _RULES, newton, 0.3),
        "ivon": Offer("IVON", _RULES, lambda step: ivon(step, max_step=_LONGEST), 0.1),
        "vogn": Offer("VOGN", _RULES, lambda step: vogn(step, max_step=_LONGEST), 0.1, needs_rows=True),
        "bayes_by_backprop": Offer(
            "Bayes by backprop", _RULES, lambda step: bayes_by_backprop(_ADAM, factor=step), 0.05
        ),
        "von": Offer("VON, diagonal Gaussian", _RULES, lambda step: von(step, geometry=Retraction()), 0.05),
        "von_dense": Offer(
            "VON, full Gaussian", _RULES, lambda step: von(step, structure=Dense, geometry=Retraction()), 0.05
        ),
        "mixture_vi": Offer("Mixture of 3 Gaussians", _RULES, lambda step: mixture_vi(step, components=3), 0.05),
    }  # fmt: skip
    return {name: offer for name, offer in listed.items() if name != "nuts" or find_spec("blackjax") is not None}


def _hmc(step_size: float) -> Algorithm:
    # A path of ten steps at most, whatever the slider says.
    return hmc(**_HELD, step_size=step_size, path_length=10 * step_size)
