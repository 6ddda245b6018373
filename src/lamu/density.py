r"""Targets from any log density over a pytree, \(\log p(\theta)\), without rows and without a prior.

The data are one empty row, so that N = 1, a mean over rows is a sum, and the concentration κ is 1/T. The pytree is
stored at `params["network"]`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.base.compile_once import lenient
from lamu.constraints import Constraints
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.priors import Prior
from lamu.record import record, static
from lamu.target import ConstrainedTarget
from lamu.typing import Array, Data, Inputs, Params, RandomKey, State

__all__ = ["Density", "LogDensity", "nothing"]


def LogDensity(log_density: object, init: object, constraints: object = None) -> Density:
    r"""Returns the target of a density \(\exp(\log p(\theta))\), which need not be normalised.

    Constrained leaves are mapped to real numbers by NumPyro's transforms, \(\theta = g(u)\), and algorithms work on
    \(\log p(g(u)) + \log |\det \partial g / \partial u|\); write the log density in θ, without Jacobians. Draws are
    returned constrained. At a temperature T samplers draw θ from \(p(\theta)^{1/T}\): they do not temper the Jacobian.
    Variational algorithms and modes temper the whole loss: they approximate \((p\, |\partial g|)^{1/T}\).

    Args:
        log_density: a function of θ that returns a number in nats, or a dictionary of named terms, which are summed.
        init: the start of runs: a pytree of floating arrays that satisfies the constraints, or a function of a key that
            makes one. To continue from an earlier posterior give its mean, or
            `lambda key: posterior.belief.sample(key)["network"]`.
        constraints: by path pattern (`lamu.tree.matches`) "positive", "unit_interval", "simplex" (last axis), "ordered"
            (last axis, increasing), "positive_definite" (last two axes), a pair `(lower, upper)`, of which one may be
            infinite, or a NumPyro constraint; the first pattern that matches a leaf applies, and a leaf without one is
            real.

    Returns:
        A target, for `lamu.fit(density, None, algorithm)`, or for `init`, `step` and `posterior` by hand with the batch
        `Batch.of(*nothing())`. Its posteriors have θ at `params["network"]`, and predict nothing.

    Raises:
        TypeError: if `log_density` is not a function or does not return a number, or a leaf of `init` is not floating.
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
        raise TypeError(f"log_density={log_density!r} is not a function; give one from θ to a number in nats")
    is_random = callable(init)
    start = init(jax.random.key(0)) if is_random else init
    for leaf in jax.tree.leaves(start):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise TypeError(f"init holds {leaf!r}, which is not a floating number; a density is about real numbers")
    checked = Constraints.of(constraints, start)
    _require_finite(log_density, start)
    return Density(log_density, init if is_random else None, None if is_random else start, checked)


@record
class FlatPrior(Prior):
    """An improper flat prior, because a `LogDensity` contains its prior already."""

    def check(self, params: Params) -> None:
        """Accepts any parameters."""

    def log_prob(self, params: Params) -> Array:
        # Returns zero.
        return jnp.zeros(())

    def sample(self, key: RandomKey, params: Params) -> Params:
        # Raises a TypeError: it is not a distribution.
        raise TypeError("a density has no prior to draw from; start chains from init")


@record
class Density(ConstrainedTarget):
    r"""A log density over a pytree. Use `lamu.LogDensity`, which checks its arguments.

    Attributes:
        log_density: a function of θ that returns a number, or named terms.
        draw: a function of a key that returns the start of runs, or None.
        theta: the start of runs, or None where it is drawn.
        constraints: the transforms from the real coordinates of algorithms to θ.
        prior: of those coordinates; flat, unless `with_prior` sets one.
        frozen: leaves fixed at given values, as real numbers, or None.
        start: parameters that every run starts from, as `starting_at` sets them, or None.

    Examples:
        >>> import jax, lamu
        >>> density = lamu.LogDensity(lambda theta: -(theta**2), 1.0)
        >>> density.init(jax.random.key(0), None)[0]["network"].tolist(), density.has_rows
        (1.0, False)
    """

    log_density: Callable[[Any], Any] = static()
    draw: Callable[[Any], Any] | None = static()
    theta: Any
    constraints: Constraints = Constraints()
    prior: Prior = FlatPrior()
    frozen: Params | None = None
    start: Any = None

    @property
    def name(self) -> str:
        return "a density"

    @property
    def has_rows(self) -> bool:
        """False: the one row is empty."""
        return False

    def init(self, key: RandomKey, batch: Batch | None) -> tuple[Params, State]:
        """Returns the start of runs, as real numbers, and the empty state."""
        start = self.theta if self.draw is None else self.draw(key)
        copied = jax.tree.map(lambda leaf: jnp.array(leaf, jnp.result_type(leaf), copy=True), start)
        return self.started({"network": self.constraints.unconstrain(copied), "likelihood": {}}, {})

    def log_likelihood(
        self, params: Params, state: State, batch: Batch, key: RandomKey | None = None, train: bool = False
    ) -> tuple[Array, State]:
        """Returns log p(θ), with the Jacobian, for the one row of the batch."""
        value = self.log_target(params, 1.0)
        return jnp.broadcast_to(jnp.reshape(value, (1,)), batch.mask.shape), state

    def log_target(self, params: Params, power: object) -> Array:
        r"""Returns \(\kappa \log p(g(u)) + \log |\det \partial g / \partial u|\) in nats, a scalar.

        Args:
            params: the free parameters, u.
            power: κ.
        """
        theta, volume = self.constraints.constrain(self.complete(params["network"]))
        value = total(self.log_density(theta))
        value = value * jnp.asarray(power, value.dtype)
        return value + volume.astype(value.dtype) if self.transforms else value

    def read(self, data: Data) -> Arrays:
        """Returns one empty row."""
        rows = data if isinstance(data, Arrays) else Arrays.of(nothing() if data is None else data)
        if rows.count != 1:
            raise ValueError(f"a density has no data, and was given {rows.count} rows; give None")
        return rows

    def inputs(self, x: Inputs) -> NoReturn:
        """Raises a TypeError: a density predicts nothing."""
        raise TypeError("a density has no targets to predict; use posterior.sample(key, n) and posterior.belief")


def nothing() -> tuple[np.ndarray, np.ndarray]:
    """Returns the data of a density: one empty row.

    Examples:
        >>> from lamu.density import nothing
        >>> [part.shape for part in nothing()]
        [(1, 1), (1,)]
    """
    dtype = jnp.result_type(float)
    return np.zeros((1, 1), dtype), np.zeros(1, dtype)


def total(terms: object) -> Array:
    """Returns a log density as one number, summed over its terms."""
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(terms)]
    with lenient():
        wide = jnp.result_type(*[leaf.dtype for leaf in leaves])
    return sum((jnp.reshape(leaf, ()).astype(wide) for leaf in leaves[1:]), jnp.reshape(leaves[0], ()).astype(wide))


@partial(jax.jit, static_argnums=0)
def _terms(log_density: Any, start: Params) -> Any:
    """Evaluates the density in one program, since outside of one every operation is compiled separately."""
    return log_density(start)


def _require_finite(log_density: object, start: Params) -> None:
    """Raises an error where the density at the start is not a finite number."""
    terms = _terms(log_density, jax.tree.map(jnp.asarray, start))
    named = dict(zip(tree.paths(terms), jax.tree.leaves(terms), strict=True))
    if not named or any(jnp.size(value) != 1 for value in named.values()):
        shapes = {path: jnp.shape(value) for path, value in named.items()}
        raise TypeError(f"log_density returns {shapes or 'nothing'} at init; it must return one number, or named ones")
    if tree.has_tracers(named):
        return
    numbers = {path: float(np.asarray(value).reshape(())) for path, value in named.items()}
    bad = {path: value for path, value in numbers.items() if not math.isfinite(value)}
    if bad:
        where = ", ".join(f"{path or 'log_density'} is {value}" for path, value in bad.items())
        raise ValueError(
            f"the density is not finite at init: {where}; start where it is, or, if init satisfies what the density "
            "needs, look for a logarithm or a root of something negative there"
        )
