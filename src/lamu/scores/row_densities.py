"""Log densities, bounds and evidence of rows under a model."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.base.arguments import whole_number
from lamu.convergence import RowLogProb, UnreliableWeights
from lamu.data.batch import Batch
from lamu.families.interface import finite_draws
from lamu.posterior import Posterior
from lamu.predictives.lazy import room_for
from lamu.predictives.sampled import require_room
from lamu.scores.calibration import Estimate
from lamu.target import weights_belief
from lamu.typing import Array, Belief, Data, Params, RandomKey

if TYPE_CHECKING:
    from lamu.graphs.graph import Graph

__all__ = [
    "RowLogProb",
    "UnreliableWeights",
    "amortisation_gap",
    "annealed_importance",
    "elbo",
    "evidence",
    "mean_bound",
    "mean_log_prob",
    "row_log_prob",
]


_ACCEPTED = 0.65  # the share of accepted paths to which step sizes are tuned


def annealed_importance(
    joint: object,
    start: Belief,
    key: RandomKey,
    temperatures: int = 500,
    chains: int = 16,
    steps: int = 10,
    step_size: float = 0.1,
) -> Estimate:
    r"""Returns an estimate of \(\log p(y) = \log \int p(y, z)\, dz\) of one row in nats, with its standard error.

    \[ \log w = \sum_{t=1}^T (\beta_t - \beta_{t-1}) \log \frac{p(y, z_{t-1})}{q(z_{t-1})}, \qquad
       z_t \sim K_t(\cdot \mid z_{t-1}), \qquad \hat p(y) = \frac1C \sum_c w_c \]

    where \(K_t\) is a Hamiltonian transition that leaves \(q^{1 - \beta_t} p(y, \cdot)^{\beta_t}\) invariant. The
    estimate of p(y) is unbiased, hence that of log p(y) is low on average, by less with more temperatures. The step
    size of each temperature is tuned to 65 % of accepted paths in a first pass, whose chains are discarded.

    Args:
        joint: p(y, z) of the row, a `lamu.latent.Joint`.
        start: q, a belief with `sample` and `log_prob`: the prior, or an encoder's belief, which is nearer.
        key: a random key.
        temperatures: T, with β spaced by a sigmoid between −4 and 4.
        chains: C.
        steps: leapfrog steps a transition.
        step_size: the initial step size for the tuning.

    Raises:
        ValueError: for fewer than two temperatures or chains, or no step.

    Source: Neal (2001), equations 9 to 11; Wu, Burda, Salakhutdinov & Grosse (2017), section 3.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> from lamu.families import Gaussian
        >>> from lamu.latent import RowJoint
        >>> from lamu.operators import Scalar
        >>> prior = Gaussian(jnp.zeros(2), Scalar(1.0))
        >>> joint = RowJoint(prior, lambda z: Gaussian(jnp.ones(2), Scalar(4.0)).log_prob(z))
        >>> found = lamu.scores.annealed_importance(joint, prior, jax.random.key(0), temperatures=200)
        >>> abs(found.value + 2.86) < 4 * found.error  # log N(1; 0, 1.25) twice
        True
    """
    temperatures, chains = whole_number("temperatures", temperatures, 2), whole_number("chains", chains, 2)
    steps = whole_number("steps", steps)
    ends = jax.nn.sigmoid(jnp.linspace(-4.0, 4.0, temperatures))
    betas = (ends - ends[0]) / (ends[-1] - ends[0])
    # One program for all rows where joint and belief are pytrees; else they are constants of the program.
    arrays = all(isinstance(leaf, jax.Array | np.ndarray | int | float) for leaf in jax.tree.leaves((joint, start)))
    log_weights_of = lambda key, betas, size: _log_weights(joint, start, key, betas, size, chains, steps)
    program = partial(_compiled, joint, start, chains=chains, steps=steps) if arrays else jax.jit(log_weights_of)
    log_weights = np.asarray(program(key, betas, jnp.asarray(step_size)), float)
    most = log_weights.max()
    weights = np.exp(log_weights - most)
    error = weights.std(ddof=1) / weights.mean() / math.sqrt(chains)
    return Estimate(float(most + np.log(weights.mean())), float(error))


def _log_weights(
    joint: Any, start: Belief, key: RandomKey, betas: Array, step_size: Array, chains: int, steps: int
) -> Array:
    """Returns log w of every chain, `[chains]`."""
    from lamu.mcmc.hamiltonian import Phase, leapfrog  # imported here, as the other scores need no samplers

    like = jax.eval_shape(start.sample, key)
    unravel = tree.ravel(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like))[1]

    def log_ratio(z: Array) -> Array:
        return log_joint(z) - start.log_prob(unravel(z))

    def log_joint(z: Array) -> Array:
        return joint.log_likelihood(unravel(z), None) + joint.log_prior(unravel(z))

    def moved(z: Array, key: RandomKey, beta: Array, size: Array) -> tuple[Array, Array]:
        """Returns one chain after a transition, and whether its path was accepted."""
        log_density = lambda z: (1 - beta) * start.log_prob(unravel(z)) + beta * log_joint(z)
        of_momentum, of_test = jax.random.split(key)
        momentum = jax.random.normal(of_momentum, z.shape, z.dtype)
        first = Phase(z, momentum, *jax.value_and_grad(log_density)(z))
        last, masses = leapfrog(log_density, first, size, jnp.ones_like(z), steps), jnp.ones_like(z)
        log_ratio = first.energy(masses) - last.energy(masses)
        accepted = jnp.log(jax.random.uniform(of_test, (), z.dtype)) < log_ratio
        return jnp.where(accepted, last.position, z), accepted

    def path(key: RandomKey, sizes: Array | None) -> tuple[Array, Array]:
        """Returns log w and the step sizes, which are tuned on the way where none are given."""
        of_start, of_moves = jax.random.split(key)
        z = jax.vmap(lambda k: tree.ravel(start.sample(k))[0])(jax.random.split(of_start, chains))

        def one(carried: tuple[Array, Array, Array], stage: Any) -> tuple[tuple[Array, Array, Array], Array]:
            z, log_weights, tuned = carried
            number, beta, before, fixed = stage
            log_weights = log_weights + (beta - before) * jax.vmap(log_ratio)(z)
            size = tuned if sizes is None else fixed
            keys = jax.random.split(jax.random.fold_in(of_moves, number), chains)
            z, accepted = jax.vmap(moved, in_axes=(0, 0, None, None))(z, keys, beta, size)
            share = jnp.mean(accepted.astype(size.dtype))
            return (z, log_weights, size * jnp.where(share > _ACCEPTED, 1.1, 1 / 1.1)), size

        count = len(betas) - 1
        given = jnp.zeros(count, z.dtype) if sizes is None else sizes
        steps_of = (jnp.arange(count), betas[1:].astype(z.dtype), betas[:-1].astype(z.dtype), given)
        start_of = (z, jnp.zeros(chains, z.dtype), step_size.astype(z.dtype))
        (_, log_weights, _), used = jax.lax.scan(one, start_of, steps_of)
        return log_weights, used

    of_tuning, of_estimate = jax.random.split(key)
    return path(of_estimate, path(of_tuning, None)[1])[0]


_compiled = partial(jax.jit, static_argnames=("chains", "steps"))(_log_weights)


def mean_log_prob(posterior: Posterior, rows: Data, samples: int = 128, key: RandomKey | None = None) -> Estimate:
    r"""Returns the average log density of rows, for model comparison on held-out rows, with its standard error.

    \[ \frac1N \sum_i \log \frac1S \sum_s w_{is} \]

    with the importance weights of `Posterior.log_prob` where latents are drawn. It is low by about half of the
    weights' relative variance over S, so that models with latents are compared at equal samples.

    Args:
        posterior: of a `lamu.Graph` or a `lamu.ConjugateModel`.
        rows: data, arrays by name.
        samples: S.
        key: for the draws; the posterior's own where None.

    Returns:
        Nats a row; the error includes the spread of the rows and the noise of the draws.

    Raises:
        TypeError: for a model whose rows have no density.
        ValueError: for fewer than two rows.

    Source: Burda, Grosse & Salakhutdinov (2016), section 5.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> lamu.scores.mean_log_prob(posterior, {"y": jnp.eye(5)}, samples=16).value < 0
        True
    """
    return _average(np.asarray(posterior.log_prob(rows, samples, key), float))


def row_log_prob(posterior: Posterior, rows: Data, samples: int = 128, key: RandomKey | None = None) -> RowLogProb:
    r"""Returns `posterior.log_prob(rows)` with the standard error and the Pareto k of each row's estimate.

    \[ \log \hat p = \log \frac1S \sum_s w_s, \qquad
       \mathrm{se}^2 = \frac{1}{S (S - 1)} \sum_s \Big(\frac{w_s}{\bar w} - 1\Big)^2 \]

    to first order in the spread of the weights, which is valid where the weights have a variance. Where they may not (a
    Pareto k above 0.5, of the row or in the median of all, or an error above a half), as for rows unlike those of
    training and for too narrow encoders, the row gets its own proposal: half the encoder's belief, and half a t
    distribution about the mode of \(\log p(y, z)\), with the curvature there. Where k is still above 0.7, the error is
    infinite, and a warning counts these rows.

    Args:
        posterior: of a `lamu.Graph`.
        rows: data, arrays by name.
        samples: S.
        key: for the draws; the posterior's own where None.

    Raises:
        TypeError: for a model that is not a graph, or whose rows have no density.
        ValueError: for fewer than two samples.

    Source: Owen (2013), Monte Carlo theory, methods and examples, section 9.2; Hesterberg (1995), Weighted average
    importance sampling and defensive mixture distributions, for the proposal; Burda et al. (2016), section 5; Vehtari,
    Simpson, Gelman, Yao & Gabry (2024), section 3, for k.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> lamu.scores.row_log_prob(posterior, {"y": jnp.eye(5)}, samples=16).error.shape
        (5,)
    """
    from lamu.latent.row_proposals import row_log_probs  # imported here, as the other scores need no graphs

    graph = _graph(posterior)
    samples = whole_number("samples", samples, 2, "have no standard error")
    key = jax.random.clone(posterior.key) if key is None else key
    return row_log_probs(graph, posterior.belief, graph.rows(rows).full(), samples, key)


def mean_bound(posterior: Posterior, rows: Data, samples: int = 16, key: RandomKey | None = None) -> Estimate:
    r"""Returns the average evidence lower bound of rows, by the model's local beliefs, with its standard error.

    \[ \frac1N \sum_i E_{q(\theta)}\big[\mathcal L(y_i; \theta)\big] \le \frac1N \sum_i \log p(y_i) \]

    with one draw of θ (for a point always the same) and of the bound's randomness a sample. It is the objective of
    training, not a likelihood: `mean_log_prob` estimates that.

    Args:
        posterior: of a `lamu.Graph`.
        rows: data, arrays by name.
        samples: the number of estimates of the bound that are averaged for each row.
        key: for the draws; the posterior's own where None.

    Returns:
        Nats a row; the error includes the spread of the rows and the noise of the draws.

    Raises:
        TypeError: for a model that is not a graph.
        ValueError: for fewer than two rows, or no sample.

    Source: Kingma & Welling (2014), equation 3.

    Examples:
        >>> import jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> lamu.scores.mean_bound(posterior, {"y": jnp.eye(5)}).value < 0
        True
    """
    graph = _graph(posterior).at_values()
    samples = whole_number("samples", samples, problem="cannot be averaged")
    batch = graph.rows(rows).full()
    of_theta, of_rows = jax.random.split(jax.random.clone(posterior.key) if key is None else key)
    theta = finite_draws(posterior.belief.draws(of_theta, samples))
    count = max((leaf.shape[0] for leaf in jax.tree.leaves(theta)), default=1)
    bounds = (_row_bounds(graph, theta, batch, of_rows, np.int32(i), count) for i in range(samples))
    return _average(np.mean([np.asarray(each, float) for each in bounds], axis=0))


@partial(jax.jit, static_argnames="count")
def _row_bounds(graph: Graph, theta: Params, batch: Batch, key: RandomKey, i: Array, count: int) -> Array:
    """Returns the bound of every row at one draw, `[N]`."""
    params = jax.tree.map(lambda leaf: leaf[i % count], theta)
    return graph.row_bounds(graph.values_of(params), batch, key=jax.random.fold_in(key, i))


def _average(values: np.ndarray) -> Estimate:
    """Returns the mean of rows, or of draws, and its standard error."""
    if len(values) < 2:
        raise ValueError(f"{len(values)} row has no standard error; give at least two")
    return Estimate(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))


def _graph(posterior: Posterior) -> Graph:
    from lamu.graphs.graph import Graph  # imported here, as the other scores need no graphs

    if not isinstance(posterior.model, Graph):
        raise TypeError(f"rows have latents in a lamu.Graph, and this is the posterior of {posterior.model.name}")
    return posterior.model


def amortisation_gap(
    posterior: Posterior, rows: Data, key: RandomKey, steps: int = 50, rate: float = 0.1, samples: int = 16
) -> Estimate:
    r"""Returns the amortisation gap: the gain of the bound by steps on every row's belief, with its standard error.

    \[ \frac1N \sum_i \mathcal L(y_i; q_i^*) - \mathcal L(y_i; q(\cdot \mid y_i)) \]

    Beliefs of all amortised latents are refined, with θ at the belief's mean. If the gap is large, a wider encoder or
    `lamu.latent.Refined` will raise the bound; the remaining difference to `mean_log_prob` is due to the family.

    Args:
        posterior: of a `lamu.Graph` with `Amortised` locals that are mean-field.
        rows: data, arrays by name.
        key: for the draws.
        steps: natural-gradient steps a row.
        rate: of the steps.
        samples: the number of draws of a bound a row.

    Returns:
        Nats a row.

    Raises:
        TypeError: for a model without an encoder.
        ValueError: for fewer than two rows.

    Source: Cremer, Li & Duvenaud (2018), section 3.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> graph = lamu.latent.models.VAE(2, 5)
        >>> posterior = lamu.fit(graph, {"y": jnp.eye(5)}, lamu.algorithms.adam(0.01), steps=20).posterior
        >>> lamu.scores.amortisation_gap(posterior, {"y": jnp.eye(5)}, jax.random.key(0), steps=20).value > 0
        True
    """
    from lamu.graphs.graph import Graph  # imported here, as the other scores need no graphs
    from lamu.graphs.queries import expected_statistics
    from lamu.latent import Amortised, Refined

    graph = posterior.model
    if not isinstance(graph, Graph) or not any(isinstance(part, Amortised) for part in (graph.local or {}).values()):
        raise TypeError("no latent of the model has an encoder; give the posterior of a lamu.Graph with Amortised")
    refine = lambda belief: Refined(belief, steps, rate) if isinstance(belief, Amortised) else belief
    refined = replace(graph, local={name: refine(part) for name, part in graph.local.items()})
    batch = graph.read(rows).full()
    of_theta, of_rows = jax.random.split(key)
    statistics = expected_statistics(graph, posterior.belief, 32, of_theta)

    return _average(np.asarray(_gaps(graph, refined, statistics, batch, of_rows, samples), float))


@partial(jax.jit, static_argnames="samples")
def _gaps(graph: Graph, refined: Graph, statistics: Any, batch: Batch, key: RandomKey, samples: int) -> Array:
    """Returns the gain of the bound of every row by refined beliefs, `[N]`."""

    def bounds(graph: Graph) -> Array:
        bound = lambda key: graph.at_values().row_bounds(statistics, batch, key=key)
        return jnp.mean(jax.lax.map(bound, jax.random.split(jax.random.clone(key), samples)), axis=0)

    return bounds(refined) - bounds(graph)


def elbo(posterior: Posterior, data: Data, samples: int = 64, key: RandomKey | None = None) -> Estimate:
    r"""Returns the evidence lower bound of a belief, with the standard error of its draws.

    \[ \mathcal L = E_q\big[\log p(D \mid \theta) + \log p(\theta) - \log q(\theta)\big] \le \log p(D) \]

    at temperature one. Learned dispersions are a point: their prior enters the bound, without an entropy.

    Args:
        posterior: a posterior whose belief has a density: that of any variational recipe, or Laplace's.
        data: the data that it was fitted to, `(x, y)` or a mapping, as `lamu.fit` takes it.
        samples: the number of draws.
        key: for the draws; the posterior's own where None.

    Returns:
        Nats, a sum over the rows.

    Raises:
        TypeError: for a belief without a density (a point, draws, an ensemble).
        ValueError: for fewer than two draws.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.7)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> found = lamu.scores.elbo(posterior, (x, y))  # of the exact posterior it is the evidence, whatever the draws
        >>> abs(found.value - float(posterior.evidence)) < 0.1
        True
    """
    samples = whole_number("samples", samples, 2, "have no standard error")
    belief = weights_belief(posterior)
    if not hasattr(belief, "log_prob") or getattr(belief, "kind", None) in ("degenerate", "draws"):
        raise TypeError(
            f"a {type(belief).__name__} belief has no density, hence no bound; ask this of a variational recipe or of "
            "Laplace's method, or mean_bound(posterior, rows) of a graph whose rows have one"
        )
    rows = posterior.model.rows(data)
    key = jax.random.clone(posterior.key) if key is None else key
    require_room(posterior.belief, key, samples)
    draws = posterior.belief.draws(key, samples)
    values = np.asarray(_own(posterior, belief, draws), float)
    at_once = room_for(_log_likelihoods, (posterior, draws, key), (jax.eval_shape(rows.full),))
    for number, batch in enumerate(rows.batches(at_once)):
        of_batch = jax.random.fold_in(key, number)
        values = values + np.asarray(_log_likelihoods(posterior, draws, of_batch, batch), float)
    return _average(values)


def evidence(posterior: Posterior, data: Data) -> Estimate:
    """Returns the log evidence in nats where the posterior has it, else its lower bound.

    Args:
        posterior: a posterior.
        data: the data that it was fitted to.

    Raises:
        TypeError: where there is neither.

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("diabetes")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.7)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior
        >>> lamu.scores.evidence(posterior, (x, y)).value == float(posterior.evidence)
        True
    """
    return Estimate(float(posterior.evidence), 0.0) if posterior.evidence is not None else elbo(posterior, data)


@jax.jit
def _own(posterior: Posterior, belief: Belief, draws: Params) -> Array:
    """Returns log p(θ) − log q(θ) of every draw."""
    return jax.lax.map(lambda theta: posterior.model.log_prior(theta) - belief.log_prob(theta["network"]), draws)


@jax.jit
def _log_likelihoods(posterior: Posterior, draws: Params, key: RandomKey, batch: Batch) -> Array:
    """Returns the batch's log likelihood under every draw; the key is for targets that estimate it."""
    count = jax.tree.leaves(draws)[0].shape[0]

    def of_draw(draw: tuple[Params, RandomKey]) -> Array:
        values, _ = posterior.model.log_likelihood(draw[0], posterior.network_state, batch, draw[1])
        return batch.total(values)

    return jnp.asarray(jax.lax.map(of_draw, (draws, jax.random.split(key, count))))
