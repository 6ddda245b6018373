r"""Any density over a pytree, as a model: what the algorithms of networks see of it.

A density is a network without inputs whose one output is \(f(\theta) = \log p(\theta)\), a likelihood that takes f as
it stands, \(\log p(y \mid f) = f\), and a prior that says nothing. One row of no content stands for the data, so that
N = 1, a mean over rows is a sum, and the concentration κ is 1/T. The pytree stands at `params["network"]`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from lamu import tree
from lamu.constraints import Constraints, Image
from lamu.families import Draws, Product
from lamu.model import Model
from lamu.promotion import lenient
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["LogDensity", "in_its_own_space", "nothing"]


def LogDensity(log_density: Any, init: Any, constraints: Any = None) -> Model:
    r"""Returns the model of a density \(\exp(\log p(\theta))\), which need not be normalised.

    Constrained leaves are made real by NumPyro's transforms, \(\theta = g(u)\), and algorithms work on
    \(\log p(g(u)) + \log |\det \partial g / \partial u|\); a log density is written in θ, without Jacobians. Draws
    come back constrained. At a temperature T samplers draw θ from \(p(\theta)^{1/T}\): they do not temper the Jacobian.
    Variational algorithms and modes do, since the loss is all they see: they are about \((p\, |\partial g|)^{1/T}\).

    Args:
        log_density: from θ to a number in nats, or to a dictionary of named terms, whose sum is meant.
        init: where runs start: a pytree of floating arrays that satisfies the constraints, or a function of a key that
            makes one. A posterior of an earlier run continues here by its mean, or by `lambda key:
            posterior.belief.sample(key)["network"]`.
        constraints: by path pattern (`lamu.tree.matches`) "positive", "unit_interval", "simplex" (last axis), "ordered"
            (last axis, increasing), a pair `(lower, upper)`, of which one may be infinite, or a NumPyro constraint; the
            first pattern that matches a leaf counts, and a leaf without one is real.

    Returns:
        A model, for `lamu.fit(density, None, algorithm)`, or for `init`, `step` and `posterior` by hand with the batch
        `Batch.of(*nothing())`. Its posteriors know θ at `params["network"]`, and predict nothing.

    Raises:
        TypeError: if `log_density` is no function or returns no number, or a leaf of `init` holds no floating numbers.
        ValueError: if the density is not finite at the start (the message names the term), a pattern matches no leaf,
            or the start violates a constraint.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> def log_density(theta):  # the mean and the scale of three numbers, with a flat prior on log sigma
        ...     y, sigma = jnp.array([1.0, 2.0, 4.0]), theta["sigma"]
        ...     return -4.0 * jnp.log(sigma) - 0.5 * jnp.sum(((y - theta["mu"]) / sigma) ** 2)
        >>> density = lamu.LogDensity(log_density, {"mu": 0.0, "sigma": 1.0}, constraints={"sigma": "positive"})
        >>> fit = lamu.fit(density, None, lamu.mcmc.hmc(chains=2, warmup=50, draws=20))
        >>> fit.posterior.samples["network"]["sigma"].shape
        (2, 20)
        >>> bool((fit.posterior.samples["network"]["sigma"] > 0).all())
        True
    """
    if not callable(log_density):
        raise TypeError(f"log_density={log_density!r} is no function; give one from θ to a number in nats")
    drawn = callable(init)
    start = init(jax.random.key(0)) if drawn else init
    for leaf in jax.tree.leaves(start):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise TypeError(f"init holds {leaf!r}, which is no floating number; a density is about real numbers")
    checked = Constraints.of(constraints, start)
    _require_finite(log_density, start)
    return Model(
        Given(log_density, init if drawn else None, None if drawn else start, checked),
        AsItIs(),
        Flat(),
    )


def in_its_own_space(posterior: Any) -> Any:
    """Returns the posterior of a density in the space in which the density was written.

    Algorithms see real numbers; here draws and beliefs become those of the constrained parameters, and the model the
    density without its transform, so that both speak of the same θ. Any other posterior comes back as it is, and so
    does one that was mapped before.

    Args:
        posterior: what an algorithm made.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.density import in_its_own_space
        >>> density = lamu.LogDensity(lambda sigma: -sigma, 1.0, constraints={"*": "positive"})
        >>> posterior = lamu.fit(density, None, lamu.algorithms.map_estimate(), steps=20).posterior
        >>> round(float(in_its_own_space(posterior).mean["network"]), 3)  # the mode of log sigma
        1.0
    """
    given = posterior.model.network
    if not isinstance(given, Given) or not given.constraints.table:
        return posterior
    belief, constraints = posterior.belief, given.constraints
    if isinstance(belief, Draws):
        mapped: Any = replace(belief, samples=_constrained(constraints, belief.samples))
    elif isinstance(belief, Product):
        mapped = Product({**belief.factors, "network": Image(belief.factors["network"], constraints)})
    else:
        mapped = Image(belief, constraints, part="network")
    model = replace(posterior.model, network=replace(given, constraints=Constraints()), start=None)
    return replace(posterior, model=model, belief=mapped)


@jax.jit
def _constrained(constraints: Constraints, samples: Params) -> Params:
    return {**samples, "network": constraints.constrain(samples["network"])[0]}


def nothing() -> tuple[np.ndarray, np.ndarray]:
    """Returns the data of a density: one row of no content.

    Examples:
        >>> from lamu.density import nothing
        >>> [part.shape for part in nothing()]
        [(1, 1), (1,)]
    """
    dtype = jnp.result_type(float)
    return np.zeros((1, 1), dtype), np.zeros(1, dtype)


@record
class Given:
    """A log density in the place of a network.

    Attributes:
        log_density: from θ to a number, or to named terms.
        draw: from a key to where runs start, or None.
        start: where runs start, or None where it is drawn; as θ.
        constraints: how θ comes of the real numbers that algorithms see.

    Examples:
        >>> from lamu.density import Given
        >>> Given(lambda theta: -(theta**2), None, 1.0).linear
        False
    """

    log_density: Callable[[Any], Any] = static()
    draw: Callable[[Any], Any] | None = static()
    start: Any
    constraints: Constraints = Constraints()

    linear = False
    head = "*"

    def init(self, key: RandomKey, x: Any, outputs: int) -> tuple[Params, Any]:
        """Returns where runs start, as real numbers, and the empty state."""
        start = self.start if self.draw is None else self.draw(key)
        copied = jax.tree.map(lambda leaf: jnp.array(leaf, jnp.result_type(leaf), copy=True), start)
        return self.constraints.unconstrain(copied), {}

    def apply(self, params: Params, state: Any, x: Any, key: RandomKey | None, train: bool) -> tuple[Array, Any]:
        """Returns log p(θ), with the Jacobian, as the output of every row, `[batch, 1]`."""
        theta, volume = self.constraints.constrain(params)
        value = total(self.log_density(theta))
        value = value + volume.astype(value.dtype) if self.constraints.table else value
        return jnp.broadcast_to(jnp.reshape(value, (1, 1)), (x.shape[0], 1)), state

    def log_target(self, params: Params, power: Any) -> Array:
        r"""Returns \(\kappa \log p(g(u)) + \log |\det \partial g / \partial u|\) in nats, a scalar.

        Args:
            params: u.
            power: κ.
        """
        theta, volume = self.constraints.constrain(params)
        value = total(self.log_density(theta))
        value = value * jnp.asarray(power, value.dtype)
        return value + volume.astype(value.dtype) if self.constraints.table else value

    def log_volume(self, params: Params) -> Array:
        r"""Returns \(\log |\det \partial g / \partial u|\) in nats, which no temperature divides.

        Args:
            params: u.
        """
        return self.constraints.constrain(params)[1]


def total(terms: Any) -> Array:
    """Returns a log density as one number: the sum of its terms, where it has several.

    Examples:
        >>> from lamu.density import total
        >>> float(total({"prior": -1.0, "likelihood": -2.5}))
        -3.5
    """
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(terms)]
    with lenient():
        wide = jnp.result_type(*[leaf.dtype for leaf in leaves])
    return sum((jnp.reshape(leaf, ()).astype(wide) for leaf in leaves[1:]), jnp.reshape(leaves[0], ()).astype(wide))


@partial(jax.jit, static_argnums=0)
def _terms(log_density: Any, start: Params) -> Any:
    """Returns what the density says, by one program: every operation by itself is one of its own to compile."""
    return log_density(start)


def _require_finite(log_density: Any, start: Params) -> None:
    """Raises where the density is no number, or none that is finite, at the start."""
    terms = _terms(log_density, jax.tree.map(jnp.asarray, start))
    named = dict(zip(tree.paths(terms), jax.tree.leaves(terms), strict=True))
    if not named or any(jnp.size(value) != 1 for value in named.values()):
        found = {path: jnp.shape(value) for path, value in named.items()}
        raise TypeError(f"log_density returns {found or 'nothing'} at init; it must return one number, or named ones")
    if any(isinstance(value, Tracer) for value in named.values()):
        return
    numbers = {path: float(np.asarray(value).reshape(())) for path, value in named.items()}
    bad = {path: value for path, value in numbers.items() if not math.isfinite(value)}
    if bad:
        where = ", ".join(f"{path or 'log_density'} is {value}" for path, value in bad.items())
        raise ValueError(
            f"the density is not finite at init: {where}; start where it is, or, if init satisfies what the density "
            "needs, look for a logarithm or a root of something negative there"
        )


@record
class AsItIs:
    """The likelihood that is the output itself: it knows no targets, and predicts none.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.density import AsItIs
        >>> AsItIs().log_prob({}, jnp.full((1, 1), -2.0), jnp.zeros(1)).tolist()
        [-2.0]
    """

    task = "density"
    log_concave = True  # log p = f, which is linear in f; what is not concave is f(θ)
    quadratic = False

    def check(self, y: Any) -> None:
        """Accepts the one row of no content."""
        if np.shape(y) != (1,):
            raise ValueError(f"a density has no data, and was given {np.shape(y)[0]} rows; give lamu.density.nothing()")

    def outputs(self, y: Any) -> int:
        """Returns one."""
        return 1

    def init(self, y: Any) -> Params:
        """Returns no dispersions."""
        return {}

    def log_prior(self, params: Params) -> Array:
        """Returns zero."""
        return jnp.zeros(())

    def dispersion_information(self, params: Params) -> Params:
        """Returns nothing."""
        return {}

    def log_prob(self, params: Params, f: Array, y: Any) -> Array:
        """Returns f."""
        return f[:, 0]

    def information(self, params: Params, f: Array) -> Array:
        """Raises a TypeError: there is no target to be informed by."""
        raise TypeError(
            "a density has no targets, and so no Gauss-Newton matrix; take its Hessian, as "
            "laplace(curvature=Hessian()) and von() do"
        )

    def mean(self, params: Params, f: Array) -> Array:
        """Raises a TypeError."""
        raise TypeError(_NO_TARGETS)

    def variance(self, params: Params, f: Array) -> Array:
        """Raises a TypeError."""
        raise TypeError(_NO_TARGETS)

    def entropy(self, params: Params, f: Array) -> Array:
        """Raises a TypeError."""
        raise TypeError(_NO_TARGETS)

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Raises a TypeError."""
        raise TypeError(_NO_TARGETS)

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Raises a TypeError."""
        raise TypeError(_NO_TARGETS)

    def marginal(self, params: Params, mean: Array, covariance: Array) -> Any:
        """Raises a TypeError."""
        raise TypeError(_NO_TARGETS)


_NO_TARGETS = "a density has no targets to predict; use posterior.sample(key, n) and posterior.belief"


@record
class Flat:
    """The prior that says nothing: the density is already all that is known.

    Examples:
        >>> from lamu.density import Flat
        >>> float(Flat().log_prob({"a": 3.0}))
        0.0
    """

    def check(self, params: Params) -> None:
        """Accepts anything."""

    def log_prob(self, params: Params) -> Array:
        """Returns zero."""
        return jnp.zeros(())

    def gaussian(self, params: Params) -> None:
        """Returns None."""
        return None

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Raises a TypeError: it is no distribution."""
        raise TypeError("a density has no prior to draw from; start chains from init")
