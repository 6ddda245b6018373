"""Exact messages to conjugate sites, and Bonnet's and Price's theorems for the Gaussian of all others."""

# For a conjugate site k the loss is affine in \(T(\theta_k)\) for given others, and its λ is the message; a factor that
# has other latent sites is averaged over draws of those:
#
# \[ \nabla_{\mu_k} E_q[\ell] = E_{q(\theta_{-k})}[\lambda_k(\theta_{-k})] \]

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to

from lamu import tree
from lamu.dtype_policy import lenient
from lamu.expectations import ValueAndGradient
from lamu.expectations.bonnet_price import at_point, in_expectation
from lamu.programs.families import CANDIDATES, message
from lamu.record import record, static
from lamu.typing import RandomKey

__all__ = ["ProgramMessages"]

_SUPPORTS = {
    "Gamma": constraints.positive,
    "InverseGamma": constraints.positive,
    "Beta": constraints.unit_interval,
    "Dirichlet": constraints.simplex,
}


@record
class ProgramMessages:
    """The gradient in μ for the belief about a program's sites; the Gaussian's draws come in antithetic pairs."""

    pairs: int = static()  # how many pairs of draws

    departure = ""

    def gradient(self, key: RandomKey, belief: Any, loss: Callable[[Any], Any]) -> ValueAndGradient:
        """Returns the expected loss and its gradient in the expectation parameters."""
        normal = belief.factors.get("normal")
        root = None if normal is None else normal.precision.factored()

        def at(key: RandomKey) -> Any:
            noise_key, *keys = jax.random.split(key, 3)
            away = None if root is None or normal is None else root.sample(noise_key, normal.mean)
            found = [self._at(k, belief, away, sign, loss) for k, sign in zip(keys, (1.0, -1.0), strict=True)]
            return jax.tree.map(lambda a, b: (a + b) / 2.0, *found)

        found = jax.vmap(at)(jax.random.split(key, self.pairs))
        value, messages, slopes = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), found)
        gradient = {name: CANDIDATES[name_of(belief, name)].build(natural) for name, natural in messages.items()}
        parts: dict[str, Any] = {"conjugate": gradient} if gradient else {}
        if normal is not None:
            parts["normal"] = in_expectation(normal, value, *slopes).gradient
        return ValueAndGradient(value, parts)

    def _at(self, key: RandomKey, belief: Any, away: Any, sign: float, loss: Callable[[Any], Any]) -> Any:
        """Returns the loss, the message to each conjugate site, and slope and Hessian in the others, at one draw."""
        theta: dict[str, Any] = {}
        if "conjugate" in belief.factors:
            theta["conjugate"] = belief.factors["conjugate"].sample(key)
        normal = belief.factors.get("normal")
        if normal is not None:
            theta["normal"] = tree.add(normal.mean, away, sign)
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
        found, slope, hessian = at_point(normal, of_normal, theta["normal"])
        return found, messages, (slope, hessian)


def name_of(belief: Any, site: str) -> str:
    """Returns the name of the family of a conjugate site."""
    return type(belief.factors["conjugate"].factors[site]).__name__
