"""What a likelihood must offer, so that every algorithm and every predictive works with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import jax.numpy as jnp

from lamu.typing import Array, Number, Params, RandomKey

__all__ = ["Likelihood"]


class Likelihood(ABC):
    r"""The distribution \(p(y \mid f)\) of a target given the network's outputs.

    Shapes: outputs `f` are `[batch, outputs]`, always with the outputs' axis. Targets `y` are `[batch]` where there is
    one value a row (classes, binary, one-output regression), `[batch, outputs]` for regression with several outputs.
    Log densities are in nats, one a row. `params` are the dispersion parameters, unconstrained (an empty dictionary
    where there are none). Methods accept any floating dtype and return that of `f`.

    A likelihood of one's own inherits from this class, is a `lamu.record.record`, says its `task`, and defines the
    abstract methods. What is not abstract has a default, which holds where nothing is known to be better.

    Attributes:
        task: "regression", "binary" or "classes".
        log_concave: whether \(\log p(y \mid f)\) is concave in f for every y.
        quadratic: whether \(\log p(y \mid f)\) is quadratic in f for given dispersion (then Gaussian beliefs are
            exact).
    """

    task: Any
    log_concave: bool | Any = False
    quadratic: bool | Any = False

    # What a likelihood must define.

    @abstractmethod
    def outputs(self, y: Any) -> int:
        """Returns the width that the network's output must have."""

    @abstractmethod
    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        """Returns log p(y | f), shape `[batch]`."""

    @abstractmethod
    def information(self, params: Params, f: Array) -> Array:
        """Returns the Fisher information about f, E[−∇²_f log p(y | f)], shape `[batch, outputs, outputs]`."""

    @abstractmethod
    def mean(self, params: Params, f: Array) -> Array:
        """Returns E[y | f] in the target's shape; for classes the probabilities `[batch, classes]`."""

    @abstractmethod
    def variance(self, params: Params, f: Array) -> Array:
        """Returns Var[y | f] in the shape of `mean`."""

    @abstractmethod
    def entropy(self, params: Params, f: Array) -> Array:
        """Returns H[y | f] in nats, shape `[batch]`."""

    @abstractmethod
    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one draw of y a row, in the target's shape."""

    # What follows, unless a likelihood says otherwise.

    @property
    def name(self) -> str:
        """What the likelihood is called in messages."""
        return type(self).__name__

    def check(self, y: Any) -> None:
        """Raises a ValueError, in one sentence, if the targets cannot be of this likelihood; before any compute."""
        del y

    def init(self, y: Any) -> Params:
        """Returns the initial dispersion parameters; none, unless overridden."""
        del y
        return {}

    def log_prior(self, params: Params) -> Array:
        """Returns the log density of the dispersion parameters' own prior, a scalar in nats; zero by default."""
        del params
        return jnp.asarray(0.0)

    def dispersion_information(self, params: Params) -> Params:
        """Returns the expected Fisher information of one row about each dispersion leaf, in a tree like `params`."""
        if not params:
            return {}
        raise NotImplementedError(f"{self.name} learns dispersions, and must define dispersion_information")

    def widened(self, params: Params, factor: Number) -> Params | None:
        """Returns the parameters with every noise deviation times a factor; None where noise has no such scale."""
        del params, factor
        return None

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns P(Y ≤ y | f) in the shape of `mean` (regression); others raise a TypeError that says so."""
        raise TypeError(f"{self.name} has no cdf, which is for regression; use mean, the probabilities of the classes")

    def marginal(self, params: Params, mean: Array, covariance: Array) -> Any:
        r"""Returns \(\int p(y \mid f)\, N(f)\, df\) as `(mean, covariance)` where it is Gaussian, else None.

        Args:
            params: the dispersion parameters.
            mean: `[batch, outputs]`.
            covariance: `[batch, outputs, outputs]`.
        """
        del params, mean, covariance

    def information_root(self, params: Params, f: Array) -> Array:
        r"""Returns R with \(R R^\top = \Lambda\), the information of every row, `[batch, outputs, rank]`.

        By an eigendecomposition a row, unless overridden.
        """
        information = self.information(params, f)
        if information.shape[-1] == 1:
            return jnp.sqrt(jnp.maximum(information, 0))
        values, basis = jnp.linalg.eigh(information)
        # Rounding may leave an eigenvalue of a singular information below zero.
        return basis * jnp.sqrt(jnp.maximum(values, 0))[:, None, :]

    def information_diagonal(self, params: Params, f: Array) -> Array:
        """Returns the diagonal of the information of every row, `[batch, outputs]`."""
        return jnp.diagonal(self.information(params, f), axis1=1, axis2=2)

    def information_sum(self, params: Params, f: Array, weights: Array) -> Array:
        r"""Returns \(\sum_i r_i \Lambda_i\), `[outputs, outputs]`.

        Args:
            params: the dispersion parameters.
            f: the outputs.
            weights: r, `[batch]`.
        """
        return jnp.einsum("bkl,b->kl", self.information(params, f), weights.astype(f.dtype))
