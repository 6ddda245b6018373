"""Black-box algorithms, which use values of the loss and no gradients."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import whole_number
from lamu.data.batch import Batch
from lamu.families import Gaussian, Point
from lamu.geometry import Geometry, Retraction
from lamu.objective import AllParameters, BatchLoss, Objective
from lamu.operators import Dense
from lamu.posterior import Posterior
from lamu.protocol import Choices, Info, Runnable, recipe
from lamu.rate import Rate, RateLike, rate
from lamu.record import record, static
from lamu.typing import Array, Data, Number, Numeric, OperatorTree, Params, RandomKey, State, Trace

__all__ = ["BlackBox", "BlackBoxState", "igo", "natural_search_gradient", "utilities"]


@record
class BlackBoxState:
    """State of a search between steps."""

    count: Numeric  # steps taken
    mean: Params  # m
    precision: OperatorTree  # S, dense
    network_state: State


@record
class BlackBox(Runnable):
    """Algorithm of `igo`."""

    learning_rate: Rate  # ρ of the mean
    precision_rate: Rate | None = None  # ρ of the precision; None for a default by the number of parameters
    # Number of points a step; None for the default, which depends on the number of parameters.
    samples: int | None = static(default=None)
    init_scale: Number = 1.0  # the standard deviation of the search at the start
    geometry: Geometry = Retraction()  # how the precision moves

    @property
    def choices(self) -> Choices:
        return Choices(
            family="Gaussian, dense precision",
            expectation="ScoreFunction",
            curvature="none",
            geometry=type(self.geometry).__name__.lower(),
            departures=("ranks in the place of losses", "entropy dropped", "two rates", "retraction"),
        )

    def init(self, key: RandomKey, objective: Objective, batch: Batch) -> BlackBoxState:
        # Returns an isotropic search distribution around the initial parameters.
        params, network_state = objective.model.init(key, batch)
        precision = 1.0 / self.init_scale**2
        return BlackBoxState(
            count=jnp.zeros((), jnp.int32),
            mean=params,
            precision=Dense.from_diagonal(jax.tree.map(lambda leaf: jnp.full_like(leaf, precision), params)),
            network_state=network_state,
        )

    def search(self, state: BlackBoxState) -> Gaussian:
        """Returns the search distribution, with its precision factored."""
        return Gaussian(state.mean, state.precision.factored())

    def step(
        self, key: RandomKey, state: BlackBoxState, batch: Batch, objective: Objective
    ) -> tuple[BlackBoxState, Info]:
        # Returns the state after one step on a sample of points.
        dimension = tree.dimension(state.mean)
        count = self.samples or 4 + math.floor(3 * math.log(dimension))
        loss = BatchLoss(objective, batch, state.network_state, AllParameters(), {})
        draw_key, layer_key = jax.random.split(key)
        root = self.search(state)
        draws = root.draws(draw_key, count)
        # All points share the noise of random layers, so that their losses can be ranked.
        losses = jax.lax.map(lambda theta: loss.value(theta, {}, jax.random.clone(layer_key))[0], draws)
        mean_change, covariance_change = natural_search_gradient(root, draws, utilities(losses))

        rate = self.learning_rate(state.count)
        default_rate = (9.0 + 3.0 * math.log(dimension)) / (5.0 * dimension * math.sqrt(dimension))
        precision_rate = default_rate if self.precision_rate is None else self.precision_rate(state.count)
        # The change of the precision that belongs to a change dΣ of the covariance is −S dΣ S.
        precision_change = Dense(
            state.precision.matrix - state.precision.matrix @ covariance_change @ state.precision.matrix
        )
        state = BlackBoxState(
            count=state.count + 1,
            mean=tree.add(state.mean, mean_change, rate),
            precision=self.geometry.move(state.precision, precision_change, precision_rate),
            network_state=state.network_state,
        )
        step_norm = tree.dot(mean_change, root.precision.matvec(mean_change))
        return state, Info(loss=jnp.mean(losses), residual=jnp.sqrt(jnp.maximum(step_norm, 0.0)))

    def posterior(
        self, key: RandomKey, state: BlackBoxState, objective: Objective, data: Data, trace: Trace
    ) -> Posterior:
        # Returns the point m: without the entropy term the search distribution is not a posterior.
        return Posterior.of(objective, Point(state.mean), state.network_state, key)


def utilities(losses: Array) -> Array:
    """Returns the utilities of points by the ranks of their losses, best first; they sum to zero."""
    # \[ u_i = \frac{\max(0,\, \log(n/2 + 1) - \log i)}{\sum_j \max(0,\, \log(n/2 + 1) - \log j)} - \frac1n \]
    #
    # Source: Glasmachers, Schaul, Sun, Wierstra & Schmidhuber (2010), "Exponential natural evolution strategies".
    n = losses.shape[0]
    rank = jnp.argsort(jnp.argsort(losses)) + 1
    raw = jnp.maximum(0.0, math.log(n / 2 + 1) - jnp.log(rank.astype(losses.dtype)))
    return raw / jnp.sum(raw) - 1.0 / n


def natural_search_gradient(belief: Gaussian, draws: Params, weights: Array) -> tuple[Params, Array]:
    r"""Returns the natural gradient of \(E_q[u]\) by the score function, as changes of mean and covariance."""
    # \[ dm = \sum_i u_i\, (\theta_i - m), \qquad d\Sigma = \sum_i u_i\, \big( (\theta_i - m)(\theta_i - m)^\top -
    # \Sigma
    #    \big) \]
    #
    # Source: Ollivier, Arnold, Auger & Hansen (2017), "Information-geometric optimization algorithms", section 5.1.
    _, unravel = tree.ravel(belief.mean)
    deviations = jax.vmap(lambda theta: tree.ravel(tree.add(theta, belief.mean, -1.0))[0])(draws)
    covariance = jnp.linalg.inv(belief.precision.dense(belief.mean))
    outer = jnp.einsum("n,ni,nj->ij", weights, deviations, deviations)
    return unravel(weights @ deviations), outer - jnp.sum(weights) * covariance


@recipe("Ollivier et al. 2017; Glasmachers et al. 2010")
def igo(
    learning_rate: RateLike = 1.0,
    precision_rate: RateLike | None = None,
    samples: int | None = None,
    init_scale: float = 1.0,
) -> BlackBox:
    r"""Information-geometric optimisation: minimises a loss without its gradient by a Gaussian search distribution.

    With n points \(\theta_i \sim N(m, S^{-1})\) and utilities \(u_i\) of the ranks of their losses (`utilities`),

    \[ m \leftarrow m + \rho_m \sum_i u_i (\theta_i - m), \qquad
       S \leftarrow S - \rho_S\, S \Big[ \sum_i u_i \big( (\theta_i - m)(\theta_i - m)^\top - S^{-1} \big) \Big] S \]

    the precision by the retraction. It is the rule with the score-function estimator, and its natural gradient is
    that of exponential natural evolution strategies (xNES). n values of the loss and no gradient a step, and a
    factorisation of cubic cost: for up to some hundred parameters. Ranks do not change when the loss is transformed.

    Departures from the rule: ranks instead of losses; the entropy is dropped, so that the search ends at a point;
    two rates; the retraction.

    Args:
        learning_rate: \(\rho_m\).
        precision_rate: \(\rho_S\); where None, \((9 + 3\log D)/(5 D \sqrt D)\) for D parameters.
        samples: n; where None, \(4 + \lfloor 3 \log D \rfloor\).
        init_scale: the standard deviation of the search at the start.

    Returns:
        The algorithm. Its posterior is the point m.

    Raises:
        ValueError: for a rate or deviation that is not positive, or fewer than two draws.

    Source: Ollivier, Arnold, Auger & Hansen (2017); Glasmachers et al. (2010); Khan & Rue (2021), section 1.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> from lamu.algorithms.black_box import igo
        >>> from lamu.density import LogDensity, nothing
        >>> bowl = LogDensity(lambda x: -jnp.sum(jnp.abs(x - 2.0)), jnp.zeros(2))
        >>> fit = lamu.fit(bowl, nothing(), igo(), steps=200)
        >>> bool(jnp.all(jnp.abs(fit.posterior.mean["network"] - 2.0) < 0.01))
        True
    """
    samples = None if samples is None else whole_number("samples", samples, 2, "cannot be ranked")
    if not init_scale > 0:
        raise ValueError(f"init_scale={init_scale!r} is not a standard deviation; give a positive number")
    return BlackBox(
        learning_rate=rate(learning_rate),
        precision_rate=None if precision_rate is None else rate(precision_rate, "precision_rate"),
        samples=samples,
        init_scale=init_scale,
    )
