"""Importance weights from a proposal that is fitted to every row, where an encoder's belief is none."""

# A weight \(p(y, z) / q(z)\) says something of \(p(y)\) where q has mass wherever the posterior has. An encoder is not
# asked for that on rows unlike those it has learned from. Here q is a multivariate t about the mode of \(\log p(y,
# z)\), found by Newton's method, with the curvature there as its precision: exact in shape for linear Gaussian
# decoders, and with heavier tails than theirs.

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.graphs.chains import drawn_latents, with_values
from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, dtype_of, in_dtype, shape_of
from lamu.graphs.queries import expected_statistics
from lamu.graphs.statistics import Numbers, Vectors
from lamu.typing import Array, RandomKey

__all__ = ["can_propose", "fitted_log_weights"]

_FREEDOM = 5.0  # degrees of freedom of the t distribution
_STEPS, _AT_ONCE = 60, 128  # Newton steps, and rows at a time
_LARGEST = 256  # numbers of all latents of a row, up to which a Hessian of them is taken


def can_propose(graph: Any, belief: Any, rows: Any) -> bool:
    """Returns whether all latents of rows are real numbers, few enough for a Hessian."""
    row, _, _ = _first_row(graph, belief, rows.y, jax.random.key(0))
    kinds = {site.kind for site in row.latent}
    size = sum(math.prod(shape_of(site)) for site in row.latent)
    return bool(kinds) and kinds <= {Numbers, Vectors} and size <= _LARGEST


def fitted_log_weights(graph: Any, belief: Any, rows: Any, samples: int, key: RandomKey) -> np.ndarray:
    r"""Returns \(\log p(y, z_s \mid \theta_s) - \log q(z_s)\) of every row in nats, `[S, N]`, q fitted to the row."""
    of_theta, of_rows, of_moments = jax.random.split(key, 3)
    _, statistics, sites = _first_row(graph, belief, rows.y, of_moments)
    dtype, at = dtype_of(statistics, rows.weight), Environment(statistics)
    theta = belief.draws(of_theta, samples)
    count = max((leaf.shape[0] for leaf in jax.tree.leaves(theta)), default=1)
    values = graph.at_values()

    def log_joint(at: Environment, data: Any, z: Any) -> Array:
        row = Row.of(sites, graph.columns, data, 1.0, dtype)
        return with_values(row, z).log_joint(at, {})

    def of_row(data: Any, key: RandomKey) -> Array:
        row = Row.of(sites, graph.columns, data, 1.0, dtype)
        zeros = {site.name: jnp.zeros(shape_of(site), dtype) for site in row.latent}
        flat, unravel = tree.ravel(zeros)
        log_density = lambda z: log_joint(at, data, unravel(z))
        of_start, of_draws = jax.random.split(key)
        starts = [flat]
        if values.local:
            starts.append(tree.ravel(drawn_latents(values.local, row, at, of_start)[0])[0])
        best = jnp.stack(starts)[jnp.argmax(jnp.stack([_finite(log_density(z)) for z in starts]))]
        mode, vectors, precision = _mode(log_density, best)

        def draw(i: Array) -> Array:
            of_normal, of_scale = jax.random.split(jax.random.fold_in(of_draws, i))
            scale = _FREEDOM / (2 * jax.random.gamma(of_scale, _FREEDOM / 2, dtype=dtype))
            noise = jax.random.normal(of_normal, mode.shape, dtype)
            z = mode + vectors @ (noise * jnp.sqrt(scale / precision))
            here = Environment(values.values_of(jax.tree.map(lambda leaf: leaf[i % count], theta)))
            return log_joint(here, data, unravel(z)) - _log_t(scale * jnp.sum(noise**2), precision)

        return jax.lax.map(draw, jnp.arange(samples))

    of_block = jax.jit(jax.vmap(of_row))
    keys = jax.random.split(of_rows, len(jax.tree.leaves(rows.y)[0]))
    parts = []
    for begin in range(0, len(keys), _AT_ONCE):
        some = jax.tree.map(lambda leaf: jnp.asarray(leaf)[begin : begin + _AT_ONCE], rows.y)  # noqa: B023  (at once)
        parts.append(np.asarray(of_block(some, keys[begin : begin + _AT_ONCE]), float))
    return np.concatenate(parts).T


def _first_row(graph: Any, belief: Any, data: Any, key: RandomKey) -> tuple[Row, dict[str, Any], Any]:
    """Returns the first row, the statistics of what all rows share, and the sites of a row."""
    values = graph.at_values()
    statistics = dict(expected_statistics(values, belief, 32, key))
    dtype = dtype_of(statistics, *jax.tree.leaves(data))
    sites = in_dtype(values.in_rows, dtype)
    first = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], data)
    return Row.of(sites, graph.columns, first, 1.0, dtype), statistics, sites


def _mode(log_density: Any, start: Array) -> tuple[Array, Array, Array]:
    """Returns the mode, the eigenvectors of the precision there, and its eigenvalues, none of them near zero."""
    size = start.shape[0]

    def curvature(z: Array) -> tuple[Array, Array]:
        values, vectors = jnp.linalg.eigh(-jax.hessian(log_density)(z))
        return jnp.abs(values), vectors

    def step(state: Any, _: None) -> tuple[Any, None]:
        z, value, damping = state
        values, vectors = curvature(z)
        slope = vectors.T @ jax.grad(log_density)(z)
        new = z + vectors @ (slope / (values + damping))
        there = _finite(log_density(new))
        better = there > value
        damping = jnp.where(better, damping / 8, jnp.maximum(8 * damping, 1e-3))
        return (jnp.where(better, new, z), jnp.where(better, there, value), damping), None

    first = (start, _finite(log_density(start)), jnp.zeros((), start.dtype))
    z, _, _ = jax.lax.scan(step, first, None, length=_STEPS)[0]
    values, vectors = curvature(z)
    sound = jnp.isfinite(values)
    return (
        z,
        jnp.where(jnp.isfinite(vectors), vectors, jnp.eye(size, dtype=z.dtype)),
        jnp.where(sound, values, 1.0) + 1e-2,
    )


def _log_t(squared: Array, precision: Array) -> Array:
    """Returns the log density of a multivariate t, of which a draw has this squared distance."""
    v, d = _FREEDOM, precision.size
    constant = math.lgamma((v + d) / 2) - math.lgamma(v / 2) - d / 2 * math.log(v * math.pi)
    return constant + jnp.sum(jnp.log(precision)) / 2 - (v + d) / 2 * jnp.log1p(squared / v)


def _finite(value: Array) -> Array:
    return jnp.where(jnp.isfinite(value), value, jnp.full_like(value, -jnp.inf))
