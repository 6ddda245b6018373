r"""Conjugate models without inputs, \(y_i \sim p(y \mid \theta)\)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.conjugate_target import ConjugateTarget
from lamu.data.arrays import Arrays
from lamu.data.batch import Batch
from lamu.data.stream import Stream, read
from lamu.families.products import factor_of
from lamu.observations import Observation
from lamu.priors import Belief
from lamu.priors.belief import tempered
from lamu.record import record
from lamu.supports import Support
from lamu.target import Target, same, same_structure
from lamu.typing import Array, Data, Inputs, Numeric, Params, PyTree, RandomKey, Rows, State, Statistics

__all__ = ["ConjugateModel"]


@record
class ConjugateModel(ConjugateTarget):
    r"""A model of the parameters θ of an observation, with a conjugate prior.

    \[ p(\theta \mid y) \propto p(\theta) \prod_i p(y_i \mid \theta)^{w_i}, \qquad
       \lambda = \lambda_0 + \sum_i w_i\, t(y_i) \]

    θ is stored at `params["network"]`.

    Attributes:
        observation: \(p(y \mid \theta)\), one of `lamu.observations`.
        prior: the belief about θ before any data, of the observation's family; kept as a `lamu.priors.Belief`.
        frozen: leaves of θ held at given values, or None.
        start: parameters that every run starts from, or None for the mean of the prior.

    Raises:
        TypeError: for a prior of another family.

    Examples:
        >>> import lamu
        >>> model = lamu.ConjugateModel(lamu.observations.Poisson(), lamu.families.Gamma(2.0, 1.0))
        >>> posterior = lamu.fit(model, {"y": [3, 5, 4]}, lamu.algorithms.conjugate()).posterior
        >>> float(posterior.belief.factors["network"].rate)
        4.0
    """

    has_outputs = True  # θ itself

    observation: Observation
    prior: Any
    frozen: Params | None = None
    start: State = None

    def __post_init__(self) -> None:
        if isinstance(self.prior, Belief):
            return
        if not isinstance(self.prior, self.observation.family):
            raise TypeError(
                f"the prior is a {type(self.prior).__name__}, and {type(self.observation).__name__} is conjugate to "
                f"{self.observation.family.__name__}; give a belief of that family"
            )
        floating = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), self.prior)
        object.__setattr__(self, "prior", Belief(floating))

    @property
    def name(self) -> str:
        return type(self.observation).__name__

    @property
    def support(self) -> Support:
        return self.observation.support

    def init(self, key: RandomKey, batch: Batch) -> tuple[Params, State]:
        """Returns θ at the mean of the prior, in the dtype of the data, and the empty state."""
        dtype = batch.x.dtype if jnp.issubdtype(batch.x.dtype, jnp.floating) else jnp.result_type(float)
        theta = jax.tree.map(lambda leaf: jnp.array(leaf, dtype, copy=True), self.prior.belief.mean)
        return self.started({"network": theta, "likelihood": {}}, {})

    def log_likelihood(
        self, params: Params, state: State, batch: Batch, key: RandomKey | None = None, train: bool = False
    ) -> tuple[Array, State]:
        """Returns log p(y | θ) of every row, `[batch]` in nats, and the state unchanged."""
        theta, state = self.outputs(params, state, batch.x)
        return self.observation.log_prob({}, theta, batch.y), state

    def first_belief(self, key: RandomKey, batch: Batch, temperature: Numeric) -> PyTree:
        """Returns the prior to the power 1/T."""
        belief = jax.tree.map(lambda leaf: jnp.asarray(leaf, batch.weight.dtype), self.prior.belief)
        return tempered(belief, 1 / temperature)

    def natural_prior(self, belief: PyTree, temperature: Numeric) -> Statistics:
        cast = lambda value, leaf: value.astype(leaf.dtype)
        return tree.scale(jax.tree.map(cast, self.prior.belief.to_natural(), belief.to_natural()), 1 / temperature)

    def expected_log_prior(self, belief: PyTree) -> Array:
        r"""Returns \(-KL(q \,\|\, p) - H(q)\)."""
        return -belief.kl(self.prior.belief) - belief.entropy()

    def statistics(self, mu: Statistics) -> Statistics:
        return mu

    def row_bounds(
        self, statistics: Statistics, batch: Batch, temperature: Numeric = 1.0, key: RandomKey | None = None
    ) -> Array:
        """Returns the expected log likelihood of every row over T: a row has no latents."""
        return self.observation.log_likelihood(statistics, batch.y) / temperature

    def shared_log_joint(self, statistics: Statistics) -> Array:
        """Returns zero: the prior enters the belief exactly."""
        return jnp.zeros((), jnp.result_type(*jax.tree.leaves(statistics)))

    def row_log_prob(self, belief: PyTree, batch: Batch, samples: int, key: RandomKey) -> Array:
        r"""Returns \(\log E_q[p(y_i \mid \theta)]\): exact for a belief of the prior's family, else over draws."""
        network = factor_of(belief, "network")
        if isinstance(network, self.observation.family):
            return self.observation.log_prob_under(network, jnp.asarray(batch.y))
        return super().row_log_prob(belief, batch, samples, key)

    @property
    def likelihood(self) -> Observation:
        """The observation, whose outputs f are θ, for predictions from draws of θ."""
        return self.observation

    def outputs(
        self,
        params: Params,
        state: State,
        x: Array,
        key: RandomKey | None = None,
        train: bool = False,
        mask: Array | None = None,
    ) -> tuple[Array, State]:
        """Returns θ for every row, `[batch, numbers in θ]`, and the state unchanged."""
        flat = tree.ravel(self.complete(params["network"]))[0]
        return jnp.broadcast_to(flat[None], (x.shape[0], flat.size)), state

    def read(self, data: Data) -> Arrays | Stream:
        """Returns the targets as rows: an array, or a mapping with `y`."""
        rows = read({"y": data} if hasattr(data, "shape") else data)
        if isinstance(rows, Arrays):
            self.observation.check(np.asarray(rows.y))
        return rows

    def rows(self, data: Data) -> Arrays:
        rows = Arrays.of({"y": data} if hasattr(data, "shape") else data)
        self.observation.check(np.asarray(rows.y))
        return rows

    def inputs(self, x: Inputs) -> Rows:
        """Returns rows without inputs, as many as asked for.

        Args:
            x: the number of rows, or an array `[N, 0]`.
        """
        if isinstance(x, int):
            if x < 1:
                raise ValueError(f"x={x!r} has no rows; give at least one")
            return np.zeros((x, 0), jnp.result_type(float))
        x = np.asarray(x) if not isinstance(x, jax.Array) else x
        if x.ndim < 2 or x.shape[0] == 0:
            raise ValueError(
                f"x has the shape {x.shape}; a model without inputs predicts rows by their number, for "
                "instance predict(5)"
            )
        return x

    def require_same(self, other: Target) -> None:
        super().require_same(other)
        mine, theirs = self.observation, other.observation
        if not (same_structure(mine, theirs) and same(mine, theirs)):
            raise ValueError(f"the posterior is about {theirs!r}, and this model has {mine!r}; use posterior.model")
