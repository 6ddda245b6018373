"""What a likelihood must offer, so that every algorithm and every predictive works with it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from lamu.typing import Array, Params, RandomKey

__all__ = ["Likelihood"]


@runtime_checkable
class Likelihood(Protocol):
    r"""The distribution \(p(y \mid f)\) of a target given the network's outputs.

    Shapes: outputs `f` are `[batch, outputs]`, always with the outputs' axis. Targets `y` are `[batch]` where there is
    one value a row (classes, binary, one-output regression), `[batch, outputs]` for regression with several outputs.
    Log densities are in nats, one a row. `params` are the dispersion parameters, unconstrained (an empty dictionary
    where there are none). Methods accept any floating dtype and return that of `f`.

    Attributes:
        task: "regression", "binary" or "classes".
        log_concave: whether \(\log p(y \mid f)\) is concave in f for every y.
        quadratic: whether \(\log p(y \mid f)\) is quadratic in f for given dispersion (then Gaussian beliefs are
            exact).
    """

    @property
    def task(self) -> str:
        """The kind of target: "regression", "binary" or "classes"."""
        ...

    @property
    def log_concave(self) -> bool:
        """Whether log p(y | f) is concave in f for every y."""
        ...

    @property
    def quadratic(self) -> bool:
        """Whether log p(y | f) is quadratic in f for given dispersion."""
        ...

    def check(self, y: Any) -> None:
        """Raises a ValueError, in one sentence, if the targets cannot be of this likelihood; before any compute."""
        ...

    def outputs(self, y: Any) -> int:
        """Returns the width that the network's output must have."""
        ...

    def init(self, y: Any) -> Params:
        """Returns the initial dispersion parameters (an empty dictionary where nothing is learned)."""
        ...

    def log_prior(self, params: Params) -> Array:
        """Returns the log density of the dispersion parameters' own prior, a scalar in nats."""
        ...

    def dispersion_information(self, params: Params) -> Params:
        """Returns the expected Fisher information of one row about each dispersion leaf, in a tree like `params`."""
        ...

    def log_prob(self, params: Params, f: Array, y: Array) -> Array:
        """Returns log p(y | f), shape `[batch]`."""
        ...

    def information(self, params: Params, f: Array) -> Array:
        """Returns the Fisher information about f, E[−∇²_f log p(y | f)], shape `[batch, outputs, outputs]`."""
        ...

    def mean(self, params: Params, f: Array) -> Array:
        """Returns E[y | f] in the target's shape; for classes the probabilities `[batch, classes]`."""
        ...

    def variance(self, params: Params, f: Array) -> Array:
        """Returns Var[y | f] in the shape of `mean`."""
        ...

    def entropy(self, params: Params, f: Array) -> Array:
        """Returns H[y | f] in nats, shape `[batch]`."""
        ...

    def sample(self, key: RandomKey, params: Params, f: Array) -> Array:
        """Returns one draw of y a row, in the target's shape."""
        ...

    def cdf(self, params: Params, f: Array, y: Array) -> Array:
        """Returns P(Y ≤ y | f) in the shape of `mean` (regression); others raise a TypeError that says so."""
        ...

    def marginal(self, params: Params, mean: Array, covariance: Array) -> Any:
        r"""Returns \(\int p(y \mid f)\, N(f)\, df\) as `(mean, covariance)` where it is Gaussian, else None.

        Args:
            params: the dispersion parameters.
            mean: `[batch, outputs]`.
            covariance: `[batch, outputs, outputs]`.
        """
        ...
