r"""Any density over a pytree, as a model: what the algorithms of networks see of it.

A density is a network without inputs whose one output is \(f(\theta) = \log p(\theta)\), a likelihood that takes f as
it stands, \(\log p(y \mid f) = f\), and a prior that says nothing. One row of no content stands for the data, so that
N = 1, a mean over rows is a sum, and the concentration κ is 1/T. The pytree stands at `params["network"]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.model import Model
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["LogDensity", "nothing"]


def LogDensity(log_density: Any, init: Any) -> Model:
    r"""Returns the model of a density \(\exp(\log p(\theta))\), which need not be normalised.

    Args:
        log_density: from θ to a number, in nats.
        init: where runs start: a pytree of floating arrays, or a function of a key that makes one.

    Returns:
        A model, for `lamu.fit(density, nothing(), algorithm)`, or for `init`, `step` and `posterior` by hand with the
        batch `Batch.of(*nothing())`. Its posteriors know θ at `params["network"]`, and predict nothing.

    Raises:
        TypeError: if `log_density` is no function, or a leaf of `init` holds no floating numbers.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.density import LogDensity, nothing
        >>> density = LogDensity(lambda theta: -2.0 * jnp.sum((theta["a"] - 1.0) ** 2), {"a": jnp.zeros(2)})
        >>> fit = lamu.fit(density, nothing(), lamu.algorithms.sgd(0.25), steps=2)
        >>> fit.posterior.mean["network"]["a"].tolist()
        [1.0, 1.0]
    """
    if not callable(log_density):
        raise TypeError(f"log_density={log_density!r} is no function; give one from θ to a number in nats")
    if not callable(init):
        for leaf in jax.tree.leaves(init):
            if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
                raise TypeError(f"init holds {leaf!r}, which is no floating number; a density is about real numbers")
    return Model(
        Given(log_density, init if callable(init) else None, None if callable(init) else init), AsItIs(), Flat()
    )


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
        log_density: from θ to a number.
        draw: from a key to where runs start, or None.
        start: where runs start, or None where it is drawn.

    Examples:
        >>> from lamu.density import Given
        >>> Given(lambda theta: -(theta**2), None, 1.0).linear
        False
    """

    log_density: Callable[[Any], Any] = static()
    draw: Callable[[Any], Any] | None = static()
    start: Any

    linear = False
    head = "*"

    def init(self, key: RandomKey, x: Any, outputs: int) -> tuple[Params, Any]:
        """Returns where runs start, and the empty state."""
        start = self.start if self.draw is None else self.draw(key)
        return jax.tree.map(lambda leaf: jnp.array(leaf, jnp.result_type(leaf), copy=True), start), {}

    def apply(self, params: Params, state: Any, x: Any, key: RandomKey | None, train: bool) -> tuple[Array, Any]:
        """Returns log p(θ) as the output of every row, `[batch, 1]`."""
        return jnp.broadcast_to(jnp.reshape(self.log_density(params), (1, 1)), (x.shape[0], 1)), state


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
    log_concave = False
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
        raise TypeError(_NO_TARGETS)

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
