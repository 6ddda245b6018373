"""Draws from an autoregressive model, one position after the other."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from lamu.likelihoods import PerPosition
from lamu.model import Model
from lamu.networks.interface import outputs
from lamu.typing import Array, Params, RandomKey

__all__ = ["ancestral"]


def ancestral(model: Model, params: Params, key: RandomKey, n: int) -> Array:
    r"""Returns draws of a model whose network is autoregressive, `[n, *positions]`.

    \[ y_d \sim p(y_d \mid f_d(y_{<d})), \qquad d = 1, \dots, D \]

    by D passes of the network.

    Args:
        model: a model with the data as inputs and targets, a network `MADE` or `NADE` and a likelihood
            `PerPosition`.
        params: its parameters, for instance a posterior's mean or one of its samples.
        key: a random key.
        n: how many draws.

    Raises:
        TypeError: for a likelihood that is no `PerPosition`.
        ValueError: for fewer than one draw.

    Source: Germain, Gregor, Murray & Larochelle (2015), section 2.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> y = (jnp.arange(40).reshape(20, 2) % 3 == 0).astype(float)
        >>> likelihood = lamu.likelihoods.PerPosition(lamu.likelihoods.Bernoulli(), (2,))
        >>> model = lamu.Model(lamu.latent.MADE((8,)), likelihood)
        >>> posterior = lamu.fit(model, (y, y), lamu.algorithms.adam(0.01), epochs=5).posterior
        >>> lamu.latent.ancestral(model, posterior.mean, jax.random.key(0), 3).shape
        (3, 2)
    """
    if not isinstance(model.likelihood, PerPosition):
        raise TypeError(
            f"the likelihood is {model.likelihood.name}; an autoregressive model has one at every position, for "
            "instance PerPosition(Bernoulli(), (784,))"
        )
    if n < 1:
        raise ValueError(f"n={n!r} draws nothing; ask for at least one")
    positions = model.likelihood.positions
    count = math.prod(positions)
    weights = model.complete(params["network"])
    dtype = jnp.result_type(jax.tree.leaves(weights)[0])

    def one(y: Array, at: tuple[Array, RandomKey]) -> tuple[Array, None]:
        d, of_position = at
        f, _ = outputs(model.network, weights, {}, y, None, False, None)
        draws: Any = model.likelihood.sample(of_position, params["likelihood"], f).reshape(n, count)
        return jnp.where(jnp.arange(count)[None, :] == d, draws.astype(dtype), y), None

    first = jnp.zeros((n, count), dtype)
    y, _ = jax.lax.scan(one, first, (jnp.arange(count), jax.random.split(key, count)))
    return y.reshape(n, *positions)
