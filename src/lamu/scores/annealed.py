r"""Annealed importance sampling: the log density of a row by a path of Hamiltonian transitions."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.scores.estimate import Estimate
from lamu.typing import Array, RandomKey

__all__ = ["annealed_importance"]

_ACCEPTED = 0.65  # the share of accepted paths that step sizes are tuned to


def annealed_importance(
    joint: Any,
    start: Any,
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
    estimate of p(y) is unbiased, hence that of log p(y) low on average, by less the more temperatures there are. The
    step size of each temperature is tuned to 65 % of accepted paths in a first pass, whose chains are thrown away.

    Args:
        joint: p(y, z) of the row, a `lamu.latent.Joint`.
        start: q, a belief with `sample` and `log_prob`: the prior, or an encoder's belief, which is nearer.
        key: a random key.
        temperatures: T, with β spaced by a sigmoid between −4 and 4.
        chains: C.
        steps: leapfrog steps a transition.
        step_size: where the tuning starts.

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
    for name, value, least in (("temperatures", temperatures, 2), ("chains", chains, 2), ("steps", steps, 1)):
        if value < least:
            raise ValueError(f"{name}={value!r} cannot anneal; give at least {least}")
    ends = jax.nn.sigmoid(jnp.linspace(-4.0, 4.0, temperatures))
    betas = (ends - ends[0]) / (ends[-1] - ends[0])
    log_weights = np.asarray(_log_weights(joint, start, key, betas, jnp.asarray(step_size), chains, steps), float)
    most = log_weights.max()
    weights = np.exp(log_weights - most)
    error = weights.std(ddof=1) / weights.mean() / math.sqrt(chains)
    return Estimate(float(most + np.log(weights.mean())), float(error))


def _log_weights(
    joint: Any, start: Any, key: RandomKey, betas: Array, step_size: Array, chains: int, steps: int
) -> Array:
    """Returns log w of every chain, `[chains]`."""
    from lamu.mcmc.hamiltonian import Phase, leapfrog  # here: the other scores do not wait for samplers

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

        def one(carried: tuple[Array, Array, Array], at: Any) -> tuple[tuple[Array, Array, Array], Array]:
            z, log_weights, tuned = carried
            number, beta, before, fixed = at
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

    @jax.jit
    def both(key: RandomKey) -> Array:
        of_tuning, of_estimate = jax.random.split(key)
        return path(of_estimate, path(of_tuning, None)[1])[0]

    return both(key)
