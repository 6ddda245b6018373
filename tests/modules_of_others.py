"""Small networks written with Flax and Equinox, as their users write them: the same three in each library."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

from lamu.networks import NNX, Equinox, Linen


class LinenConv(nn.Module):
    """Convolutions, group normalisation and a position-wise layer."""

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(4, (3, 3), strides=2)(x)
        x = nn.tanh(nn.GroupNorm(num_groups=2)(x))
        x = nn.Conv(4, (2, 2), feature_group_count=2, padding="VALID")(x)
        x = nn.tanh(nn.Dense(3)(x)).reshape(x.shape[0], -1)
        return nn.Dense(3)(x)


class LinenAttention(nn.Module):
    """A block of a transformer, on rows of columns as a sequence."""

    @nn.compact
    def __call__(self, x):
        h = nn.Dense(4)(x[:, :, None])
        h = h + nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(h))
        return nn.Dense(3)(jnp.mean(nn.gelu(nn.Dense(5)(h)), axis=1))


class LinenRecurrent(nn.Module):
    """An LSTM."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.RNN(nn.LSTMCell(4))(x[:, :, None])[:, -1])


class LinenMixed(nn.Module):
    """Statistics and noise, both under one argument."""

    @nn.compact
    def __call__(self, x, train: bool = False):
        x = nn.BatchNorm(use_running_average=not train, momentum=0.5)(nn.Dense(8)(x))
        x = nn.Dropout(0.5, deterministic=not train)(nn.tanh(x))
        return nn.Dense(3, name="head")(x)


class LinenNoisy(nn.Module):
    """Noise alone."""

    @nn.compact
    def __call__(self, x, train: bool = False):
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=not train)(nn.tanh(nn.Dense(8)(x))))


class NNXMixed(nnx.Module):
    """The same as `LinenMixed`, with a list of layers and an array that is no variable."""

    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(6, 8, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)])
        self.norm = nnx.BatchNorm(8, momentum=0.5, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.layers[1](self.dropout(nnx.tanh(self.norm(self.layers[0](x)))))


class NNXConv(nnx.Module):
    """Convolutions and a group normalisation."""

    def __init__(self, rngs):
        self.conv = nnx.Conv(2, 4, (3, 3), strides=2, rngs=rngs)
        self.norm = nnx.GroupNorm(4, num_groups=2, rngs=rngs)
        self.head = nnx.Linear(36, 3, rngs=rngs)

    def __call__(self, x):
        x = nnx.tanh(self.norm(self.conv(x)))
        return self.head(x.reshape(x.shape[0], -1))


class EquinoxMixed(eqx.Module):
    """The same as `LinenMixed`, a row at a time, with an array of integers."""

    layers: list
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    order: jax.Array

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.layers = [eqx.nn.Linear(6, 8, key=first), eqx.nn.Linear(8, 3, key=second)]
        self.norm = eqx.nn.BatchNorm(8, axis_name="batch", mode="batch", momentum=0.5)
        self.dropout = eqx.nn.Dropout(0.5)
        self.order = jnp.arange(6)[::-1]

    def __call__(self, x, state, key=None):
        x, state = self.norm(self.layers[0](x[self.order]), state)
        return self.layers[1](self.dropout(jnp.tanh(x), key=key)), state


class EquinoxConv(eqx.Module):
    """Channels first, a group normalisation, a head."""

    conv: eqx.nn.Conv2d
    norm: eqx.nn.GroupNorm
    head: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.conv = eqx.nn.Conv2d(2, 4, 3, stride=2, padding=1, key=first)
        self.norm = eqx.nn.GroupNorm(2, 4)
        self.head = eqx.nn.Linear(36, 3, key=second)

    def __call__(self, x):
        return self.head(jnp.tanh(self.norm(self.conv(jnp.moveaxis(x, -1, 0)))).reshape(-1))


def equinox_noisy(key: Any) -> Any:
    first, second = jax.random.split(key)
    layers = [eqx.nn.Linear(6, 8, key=first), eqx.nn.Lambda(jnp.tanh), eqx.nn.Dropout(0.5)]
    return eqx.nn.Sequential([*layers, eqx.nn.Linear(8, 3, key=second)])


class NNXNoisy(nnx.Module):
    """Noise alone."""

    def __init__(self, rngs):
        self.first, self.second = nnx.Linear(6, 8, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.second(self.dropout(nnx.tanh(self.first(x))))


PLAIN = {
    "Linen": Linen(nn.Sequential([nn.Dense(8), nn.tanh, nn.Dense(3)]), head="layers_2/*"),
    "NNX": NNX(lambda rngs: nnx.Sequential(nnx.Linear(6, 8, rngs=rngs), nnx.tanh, nnx.Linear(8, 3, rngs=rngs))),
    "Equinox": Equinox(lambda key: eqx.nn.MLP(6, 3, 8, 1, activation=jnp.tanh, key=key), head="layers/1/*"),
}
MIXED = {
    "Linen": Linen(LinenMixed(), head="head/*"),
    "NNX": NNX(NNXMixed, head="layers/1/*"),
    "Equinox": Equinox(eqx.nn.make_with_state(EquinoxMixed), head="layers/1/*"),
}
NOISY = {"Linen": Linen(LinenNoisy()), "NNX": NNX(NNXNoisy), "Equinox": Equinox(equinox_noisy)}
