"""Encoder networks that read a row's data, step by step for series, and the joint of a row in one latent."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu.base.compile_once import lenient
from lamu.families import Bernoulli, Gaussian
from lamu.graphs.elimination import Local, Rest
from lamu.graphs.expressions import Environment, Expression, KnownValue, Variable
from lamu.graphs.joint import Row, dtype_of, log_joint, shape_of
from lamu.graphs.network import arguments
from lamu.graphs.positive_factors import PoissonFactor
from lamu.graphs.program import GraphSite, LearnedPrior
from lamu.graphs.statistics import Bits, Numbers, Series, Vectors
from lamu.latent.bounds import Joint
from lamu.networks.interface import Network, adapted, outputs
from lamu.operators import Diagonal
from lamu.record import record
from lamu.supports import Classes, Counts
from lamu.typing import Array, Belief, DTypeLike, Params, RandomKey, State, Statistics

__all__ = [
    "EachStep",
    "EncoderLocal",
    "RowOfGraph",
    "encoded",
    "first_encoder",
    "latent_site",
    "moments",
    "natural",
    "soft_clipped",
]

_LIMIT = 15.0  # exp(-15) is 3e-7, below the float32 resolution of a mean of one


def soft_clipped(log_scale: Array) -> Array:
    r"""Returns log s of a network's output o: o itself where \(|o| \le 15\), and a logarithm of it beyond."""
    # \[ \log s = \mathrm{sign}(o)\,\big(15 + \log(1 + |o| - 15)\big), \qquad |o| > 15 \]
    #
    # One step at a large rate moves all weights of a layer together, and so an output by tens; \(s^{-2}\) of \(o =
    # -45\) is infinite in float32. Value and slope are continuous, and the slope is positive everywhere, so that a
    # gradient brings the output back.
    beyond = jnp.log1p(jnp.maximum(jnp.abs(log_scale) - _LIMIT, 0))
    return jnp.where(jnp.abs(log_scale) <= _LIMIT, log_scale, jnp.sign(log_scale) * (_LIMIT + beyond))


@record
class EachStep(Network):
    r"""Concatenates \(f(x_1), \dots, f(x_T)\): the emission of a state-space model, or its recognition network.

    Inputs are `[batch, T, ...]`, and outputs `[batch, T * k]` with k outputs a step.

    Attributes:
        network: f.

    Raises:
        ValueError: for a number of outputs that is not a multiple of T, or a network with a state.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.latent import EachStep
        >>> from lamu.networks import MLP
        >>> network, x = EachStep(MLP((8,))), jnp.ones((2, 5, 3))
        >>> params, state = network.init(jax.random.key(0), x, outputs=5 * 2)
        >>> network.apply(params, state, x, None, False)[0].shape
        (2, 10)
    """

    network: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", adapted(self.network))

    def init(self, key: RandomKey, x: Array, outputs: int) -> tuple[Params, State]:
        """Returns the weights of f."""
        if x.ndim < 3 or outputs % x.shape[1]:
            raise ValueError(
                f"{outputs} outputs for inputs of the shape {x.shape[1:]} cannot be dealt to the steps; give series "
                "[T, features], and as many outputs for every step"
            )
        params, state = self.network.init(key, x[:, 0], outputs // x.shape[1])
        if state:
            raise ValueError("a network with a state (batch statistics) cannot be every step's; use GroupNorm()")
        return params, {}

    def apply(
        self, params: Params, state: State, x: Array, key: RandomKey | None, train: bool, mask: Array | None = None
    ) -> tuple[Array, State]:
        f = self.network.apply(params, {}, x.reshape(-1, *x.shape[2:]), key, train)[0]
        return f.reshape(len(x), -1), state


def latent_site(name: str, row: Row) -> GraphSite:
    """Returns the site of a latent of a row."""
    return next(site for site in row.latent if site.name == name)


class EncoderLocal(Local):
    """Base class of locals with a network that reads the row, and the latents that are sampled before theirs."""

    network: Network | Any
    marked = False  # whether the network reads which entries are observed

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", adapted(self.network))
        if self.given:
            object.__setattr__(self, "given", tuple(self.given))


def first_encoder(
    network: Any,
    key: RandomKey,
    name: str,
    given: tuple[str, ...],
    row: Row,
    outputs: int,
    marked: bool = False,
) -> Params:
    """Returns initial weights of an encoder."""
    latents = {site.name: site for site in row.latent}
    for other in given:
        if (other not in latents and other not in row.known) or other == name:
            others = ", ".join(n for n in latents if n != name) or "none"
            raise ValueError(f"the local of {name!r} is given {other!r}; the row's other latents are {others}")
    dtype = dtype_of(row.known)
    zeros = {n: site.kind.zeros(shape_of(site), dtype) for n, site in latents.items()}
    x = _side_by_side((*_data(given, row, dtype, marked), *_latents(given, row)), row, Environment(zeros), dtype)
    weights, state = network.init(key, jnp.zeros_like(x)[None], outputs)
    if state:
        raise ValueError(
            f"the encoder of {name!r} has a state beside its weights, and the rows of a graph are seen one by one; use "
            "a normaliser without batch statistics, such as GroupNorm()"
        )
    return weights


def encoded(
    network: Any,
    weights: Params,
    name: str,
    given: tuple[str, ...],
    row: Row,
    environment: Environment,
    marked: bool = False,
) -> Array:
    """Returns an encoder's outputs for a row, `[outputs]`. Missing entries count as zero, counts c as log(1 + c)."""
    # A marked encoder reads classes as one-hot vectors, and after every variable which of its entries are observed.
    # A network that can be applied to the data first (`Network.partially_applied`) is applied once a row: `jax.vmap`
    # over values or samples of the given latents then repeats only the part that reads those.
    dtype = dtype_of(weights)
    data, latents = _data(given, row, dtype, marked), _latents(given, row)
    if data and latents:
        of_latents = network.partially_applied(weights, jnp.ravel(_side_by_side(data, row, environment, dtype)))
        if of_latents is not None:
            weights, data = of_latents, ()
    inputs = _side_by_side((*data, *latents), row, environment, dtype)
    return outputs(network, weights, {}, inputs[None], None, False, None)[0][0]


def _data(given: tuple[str, ...], row: Row, dtype: DTypeLike, marked: bool) -> tuple[Expression, ...]:
    """Returns the row's data without the given variables, zero where missing."""
    data: list[Expression] = []
    for site in row.sites:
        # A label that is observed in some rows only is a latent, and given ones come below.
        if site.name in row.data and site.name not in row.evidence and site.name not in given:
            value = jnp.asarray(row.data[site.name], dtype)
            if _counts(site.factor):  # of any size, but a network needs inputs of order one
                value = jnp.log1p(jnp.maximum(value, 0))
            observed = row.observed.get(site.name)
            if marked:
                is_observed = jnp.ones(value.shape, bool) if observed is None else observed
                value, is_observed = _in_columns(site.factor, value), is_observed.astype(dtype)
                shown = is_observed if is_observed.shape == value.shape else is_observed[..., None]
                data += [KnownValue(jnp.where(shown > 0, value, jnp.zeros_like(value))), KnownValue(is_observed)]
                continue
            data.append(KnownValue(value if observed is None else jnp.where(observed, value, jnp.zeros_like(value))))
    return tuple(data)


def _counts(factor: Any) -> bool:
    """Returns whether the observations of a factor are counts."""
    if isinstance(factor, PoissonFactor):
        return True
    return factor.is_likelihood and isinstance(factor.likelihood.support, Counts)


def _in_columns(factor: Any, value: Array) -> Array:
    """Returns labels as one-hot vectors, and anything else unchanged."""
    support = factor.likelihood.support if factor.is_likelihood else None
    if not isinstance(support, Classes):
        return value
    return jax.nn.one_hot(value.astype(jnp.int32), support.number, dtype=value.dtype)


def _latents(given: tuple[str, ...], row: Row) -> tuple[Expression, ...]:
    """Returns the given variables."""
    sites = {site.name: site for site in row.sites}
    return tuple(Variable(other, sites[other].kind.__name__, sites[other].shape) for other in given)


def _side_by_side(inputs: tuple[Expression, ...], row: Row, environment: Environment, dtype: DTypeLike) -> Array:
    """Returns the values of expressions: one unchanged, several as one vector."""
    return arguments(inputs, row.environment(environment, {})).astype(dtype)


class RowOfGraph(Joint):
    r"""\(\log p(x, z)/T\) of a row and one of its latents, with the others eliminated by `rest`."""

    # The prior of the latent is its factor if that does not depend on a latent without a value; otherwise the factor
    # belongs to the rest, and the prior is flat.

    def __init__(self, name: str, row: Row, environment: Environment, rest: Rest) -> None:
        self.site: GraphSite = latent_site(name, row)
        self.row, self.at, self.rest = row, environment, rest
        self.known_prior = not self.site.factor.names & {site.name for site in row.latent}

    def log_likelihood(self, z: Array, key: RandomKey | None) -> Array:
        # Returns the rest of the row at z, without the prior, over T.
        conditioned = self.row.given(self.site.name, jnp.reshape(z, self.site.shape or ()))
        return self.rest(conditioned, replace(self.at, values_only=True), key)[0] - self.log_prior(z)

    def log_prior(self, z: Array) -> Array:
        # Returns log p(z)/T, or zero if the prior depends on other latents.
        with lenient():
            return self._expected(self.site.kind.of(jnp.reshape(z, self.site.shape or ())))

    def divergences(self, belief: Belief) -> Array | None:
        # Returns −H(q) − E_q[log p(z)]/T by the coordinates of a mean-field Gaussian.
        #
        # None for another belief, or under a prior that is not affine in the statistics of z.
        if not self._has_divergence(belief):
            return None
        if self.site.kind is not Numbers or not self.known_prior:
            return jnp.reshape(jnp.asarray(self.divergence(belief)), 1)
        mean, precision = belief.mean, belief.precision.values
        expected = moments(self.site, mean, precision)
        masks = jnp.eye(mean.size, dtype=bool).reshape(-1, *(self.site.shape or ()))
        return -(_entropies(precision) + jax.vmap(lambda mask: self._expected(expected, mask))(masks))

    def divergence(self, belief: Belief) -> Array | None:
        # Returns the sum of `divergences` by one evaluation of the prior, where those need one for each coordinate.
        if not self._has_divergence(belief):
            return None
        mean, precision = belief.mean, belief.precision.values
        return -(jnp.sum(_entropies(precision)) + self._expected(moments(self.site, mean, precision)))

    def _has_divergence(self, belief: Belief) -> bool:
        is_mean_field = isinstance(belief, Gaussian) and isinstance(belief.precision, Diagonal)
        return is_mean_field and self.site.factor.conjugate

    def unit_divergences(self, belief: Belief) -> Array | None:
        """Returns the divergences of the units, also for binary latents; None if the prior has no such form."""
        if not self.known_prior or isinstance(self.site.factor, LearnedPrior):
            return None
        return self._of_bits(belief) if isinstance(belief, Bernoulli) else self.divergences(belief)

    def _of_bits(self, belief: Bernoulli) -> Array:
        r"""Returns \(\sum_b q_j(b) \log(q_j(b) / p_j(b))\) of every unit j."""
        logits, shape = jnp.ravel(belief.logit), self.site.shape or ()
        chance, masks = jax.nn.sigmoid(logits), jnp.eye(logits.size, dtype=bool).reshape(-1, *shape)
        entropies = jax.nn.softplus(logits) - chance * logits
        expected = Bits(jnp.reshape(chance, shape))
        return -entropies - jax.vmap(lambda mask: self._expected(expected, mask))(masks)

    def _expected(self, statistics: Statistics, observed: Any = None) -> Array:
        """Returns the prior's F at statistics of z, over T."""
        if not self.known_prior:
            return jnp.zeros((), jax.tree.leaves(statistics)[0].dtype)
        environment = self.row.environment(self.at, {self.site.name: statistics})
        mask = {} if observed is None else {self.site.name: observed}
        return log_joint((self.site,), environment, mask) / self.row.temperature


def _entropies(precision: Array) -> Array:
    """Returns the entropy of every coordinate of a mean-field Gaussian."""
    return (1 + math.log(2 * math.pi) - jnp.log(precision)) / 2


def moments(site: GraphSite, mean: Array, precision: Array) -> Any:
    """Returns E_q[T(z)] of a mean-field Gaussian."""
    kind: Any = site.kind
    return kind.under_independent(mean.reshape(site.shape or ()), (1 / precision).reshape(site.shape or ()))


def natural(site: GraphSite, mean: Array, precision: Array) -> Any:
    """Returns λ of a mean-field Gaussian, as the statistics of z."""
    mean, precision = mean.reshape(site.shape or ()), precision.reshape(site.shape or ())
    second = -precision / 2
    if issubclass(site.kind, Series):
        outer = second[..., None] * jnp.eye(second.shape[-1], dtype=second.dtype)[None]
        return site.kind(precision * mean, outer, jnp.zeros_like(outer[1:]))
    return Numbers(precision * mean, second) if site.kind is Numbers else Vectors(precision * mean, jnp.diag(second))
