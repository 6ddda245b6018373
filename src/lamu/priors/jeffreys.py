r"""Jeffreys' prior: the root of the determinant of the Fisher information, invariant to reparametrisation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.networks.interface import adapted, outputs
from lamu.priors.interface import Prior
from lamu.record import record
from lamu.typing import Array, Inputs, Params, RandomKey

__all__ = ["Jeffreys"]


@record
class Jeffreys(Prior):
    r"""Jeffreys' prior of a network's weights, \(p(\theta) \propto \sqrt{\det F(\theta)}\), at given inputs.

    \[ F(\theta) = \sum_i J_i^\top \Lambda_i J_i, \qquad J_i = \partial f(\theta, x_i) / \partial\theta \]

    with Λ the Fisher information of the likelihood about f. Its density is unnormalised, and often improper: for a
    linear network with Gaussian targets it is flat. Logistic regression under it is Firth's, with a finite mode also
    for separated classes. One evaluation takes \(N K D\) numbers and \(D^3\) operations, so it is for small networks,
    or for a last layer with the others frozen (`Model.freeze`): the information is then that of the free weights.

    Attributes:
        network: f, without random layers and without a state.
        likelihood: p(y | f), without dispersions to learn.
        x: the inputs of the data, `[N, ...]`.
        frozen: values of frozen leaves, set by `given`; None where all are free.

    Raises:
        ValueError: where F is singular at the first parameters: some direction of the weights does not change outputs.

    Source: Jeffreys (1946); Firth (1993).

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.priors import Jeffreys
        >>> prior = Jeffreys(lamu.networks.Linear(bias=False), lamu.likelihoods.Bernoulli(), jnp.ones((4, 1)))
        >>> weights = {"layers": {0: {"kernel": jnp.zeros((1, 1))}}}
        >>> float(jnp.exp(prior.log_prob(weights)))  # the root of 4 · ¼
        1.0
    """

    network: Any
    likelihood: Any
    x: Inputs
    frozen: Params | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", adapted(self.network))

    def check(self, params: Params) -> None:
        """Raises a ValueError where the information is singular, unless the parameters are traced."""
        if self.frozen is not None or tree.has_tracers(params):
            return
        if np.linalg.matrix_rank(np.asarray(self.information(params))) < tree.dimension(params):
            raise ValueError(
                f"the Fisher information of {tree.dimension(params)} weights at {jnp.shape(self.x)[0]} inputs is "
                "singular: some direction changes no output; take a smaller network, or freeze all but a layer"
            )

    def given(self, frozen: Params) -> Prior:
        """Returns the prior of the free leaves, with their Fisher information given the frozen ones."""
        return replace(self, frozen=frozen)

    def log_prob(self, params: Params) -> Array:
        r"""Returns \(\frac12 \log\det F(\theta)\), a scalar; NaN or very low where F is singular."""
        root = jnp.linalg.cholesky(self.information(params))
        return jnp.sum(jnp.log(jnp.diagonal(root)))

    def sample(self, key: RandomKey, params: Params) -> Params:
        """Raises a NotImplementedError: the density is unnormalised, and has no draws in general."""
        raise NotImplementedError("Jeffreys' prior is unnormalised and cannot be drawn from; give a proper prior")

    def information(self, params: Params) -> Array:
        """Returns F(θ), `[weights, weights]`, in the order of `lamu.tree.ravel`."""
        vector, unravel = tree.ravel(params)

        def of_row(theta: Array, row: Array) -> Array:
            weights = unravel(theta)
            complete = weights if self.frozen is None else tree.merged(weights, self.frozen)
            return outputs(self.network, complete, {}, row[None], None, False, None)[0][0]

        x = jnp.asarray(self.x, vector.dtype)
        f = jax.vmap(of_row, (None, 0))(vector, x)
        jacobian = jax.vmap(jax.jacrev(of_row), (None, 0))(vector, x)
        return jnp.einsum("nkd,nkl,nle->de", jacobian, self.likelihood.information({}, f), jacobian)
