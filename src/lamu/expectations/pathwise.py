"""Gradients through draws: Bonnet's and Price's theorems, reparameterised and relaxed draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lamu import tree
from lamu.base.arguments import require, require_whole_field
from lamu.expectations.interface import Expectation, ValueAndGradient
from lamu.expectations.samplers import IndependentSamples, Sampler, layer_key, own_key, require_gaussian
from lamu.families import (
    Bernoulli,
    Beta,
    Binary,
    Categorical,
    Dirichlet,
    Exponential,
    ExponentialFamily,
    Gamma,
    Gaussian,
    InverseGamma,
    MultivariateNormal,
    NaturalParameters,
)
from lamu.objective import BatchLoss
from lamu.objective.curvature import Curvature, Evaluation
from lamu.objective.curvature.interface import evaluated
from lamu.operators import AnyStructure
from lamu.record import record, static
from lamu.typing import Array, Belief, Number, Numeric, OperatorTree, Params, PyTree, RandomKey, Statistics

__all__ = [
    "MonteCarlo",
    "Relaxed",
    "Reparameterised",
    "at_point",
    "in_expectation",
    "inverse_fisher",
    "require_exponential",
    "with_factored_precision",
]


# \(d\mu = F\, d\lambda\) with \(F = \nabla^2 A(\lambda)\) the Fisher matrix, which is block diagonal over the members
# of a batch of beliefs: one small system each (two equations for a Gamma or a Beta), for any number of parameters.


def require_exponential(belief: Belief, name: str) -> None:
    """Raises a TypeError for a belief without natural parameters."""
    if not isinstance(belief, ExponentialFamily):
        raise TypeError(f"{name} needs a belief of an exponential family, not a {type(belief).__name__}")


def inverse_fisher(belief: ExponentialFamily) -> Callable[[Statistics], Statistics]:
    r"""Returns the function \(v \mapsto F^{-1} v\) on trees like the values of λ, with F factored once."""
    family, natural = type(belief), belief.natural()
    if family.events == (0,):  # one number per member: its Fisher information
        ones = jax.tree.map(jnp.ones_like, natural.values)
        information = belief.fisher_product(ones)
        return lambda values: jax.tree.map(jnp.divide, values, information)
    several = len(family.events) > 1
    components = natural.values if several else (natural.values,)
    structure = jax.tree.structure(components[0])
    groups = list(zip(*map(jax.tree.leaves, components), strict=True))

    def fisher(*leaves: Array) -> Array:
        vector, unravel = ravel_pytree(leaves)
        pack = lambda flat: unravel(flat) if several else unravel(flat)[0]
        return jax.hessian(lambda flat: family.partition(pack(flat), natural.given))(vector)

    inverses = [_inverse(jax.vmap(fisher)(*_members(group, family.events)), family.events) for group in groups]

    def product(values: Statistics) -> Statistics:
        parts = values if several else (values,)
        solved = [
            _apply(inverse, group, family.events)
            for inverse, group in zip(inverses, zip(*map(jax.tree.leaves, parts), strict=True), strict=True)
        ]
        trees = tuple(jax.tree.unflatten(structure, list(leaves)) for leaves in zip(*solved, strict=True))
        return trees if several else trees[0]

    return product


def _members(group: tuple[Array, ...], events: tuple[int, ...]) -> list[Array]:
    return [leaf.reshape(-1, *leaf.shape[leaf.ndim - event :]) for leaf, event in zip(group, events, strict=True)]


def _apply(inverse: Array, group: tuple[Array, ...], events: tuple[int, ...]) -> tuple[Array, ...]:
    def one(inverse: Array, *leaves: Array) -> tuple[Array, ...]:
        vector, unravel = ravel_pytree(leaves)
        return unravel(inverse @ vector)

    solved = jax.vmap(one)(inverse, *_members(group, events))
    return tuple(leaf.reshape(like.shape) for leaf, like in zip(solved, group, strict=True))


def _inverse(matrices: Array, events: tuple[int, ...]) -> Array:
    if max(events) < 2:
        return jnp.linalg.inv(matrices)
    # A symmetric matrix of parameters has fewer coordinates than entries, on which the pseudo-inverse is the inverse.
    return jnp.linalg.pinv(matrices, hermitian=True)


# For a `Gaussian` the Hessian is an operator with the structure of its precision; for a batch of vectors,
# `MultivariateNormal`, it is the block of each vector.


def at_point(belief: Belief, loss: Callable[[Params], Array], theta: Params) -> tuple[Array, Params, OperatorTree]:
    """Returns ℓ, ∇ℓ and ∇²ℓ at θ, the last in the structure of the belief's precision."""
    slope = jax.grad(loss)
    product = lambda v: jax.jvp(slope, (theta,), (v,))[1]
    value, gradient = jax.value_and_grad(loss)(theta)
    if isinstance(belief, MultivariateNormal):
        return value, gradient, _blocks(product, theta)
    return value, gradient, type(belief.precision).from_hessian(product, theta)  # pyright: ignore[reportAttributeAccessIssue]


def in_expectation(belief: Belief, value: Numeric | None, gradient: Params, hessian: OperatorTree) -> ValueAndGradient:
    r"""Returns \(\nabla_{\mu_1} = E[\nabla\ell] - E[\nabla^2\ell]m\), \(\nabla_{\mu_2} = \tfrac12 E[\nabla^2\ell]\)."""
    # Source: Khan & Rue (2021), equations 10 and 11. For every structure: the scalar statistic's is half the mean of
    # the Hessian's diagonal, which is the value of its operator.
    if isinstance(belief, MultivariateNormal):
        first = jax.tree.map(lambda g, H, m: g - (H @ m[..., None])[..., 0], gradient, hessian, belief.mean)
        values = (first, tree.scale(hessian, 0.5))
    else:
        values = (tree.add(gradient, hessian.matvec(belief.mean), -1.0), hessian.scale(0.5))
    return ValueAndGradient(value, NaturalParameters(values, belief.given, type(belief)))


def with_factored_precision(belief: Belief) -> Belief:
    """Returns the belief with its precision factored, for several draws."""
    return Gaussian(belief.mean, belief.precision.factored()) if isinstance(belief, Gaussian) else belief


def _blocks(product: Callable[[Params], Params], theta: Params) -> Params:
    """Returns the Hessian's block of every vector `[..., d, d]`, by one product for every number of θ."""
    vector, unravel = tree.ravel(theta)
    hessian = jax.vmap(lambda e: tree.ravel(product(unravel(e)))[0])(jnp.eye(vector.size, dtype=vector.dtype))
    leaves, structure = jax.tree.flatten(theta)
    ends = np.cumsum([leaf.size for leaf in leaves])

    def of_leaf(leaf: Array, end: int) -> Array:
        own, d = slice(end - leaf.size, end), leaf.shape[-1]
        block = jnp.einsum("iaib->iab", hessian[own, own].reshape(leaf.size // d, d, leaf.size // d, d))
        return (block + jnp.swapaxes(block, -1, -2)).reshape(*leaf.shape, d) / 2.0

    return structure.unflatten([of_leaf(leaf, int(end)) for leaf, end in zip(leaves, ends, strict=True)])


# The families whose draws are differentiable in their parameters.
_SMOOTH = (Beta, Dirichlet, Exponential, Gamma, InverseGamma)


@record
class Reparameterised:
    r"""Averages over S draws of gradients through the draws: S gradients, unbiased.

    For a Gaussian, Bonnet's theorem for the first and Price's identity for the second parameter:
    \(\nabla\ell(\theta)\) and \(S(\theta - m)\nabla\ell(\theta)^\top\) at the draws. That matrix is indefinite where
    there are few draws, even for a convex loss: use `lamu.geometry.Retraction`, or Hessians (`MonteCarlo`). For a
    Gamma, Beta, Dirichlet or another belief with continuous draws, implicit reparameterisation and then the small
    Fisher blocks:

    \[ \nabla_\lambda E_q[\ell] = E_q\Big[ \frac{\partial\theta}{\partial\lambda}^{\!\top} \nabla\ell(\theta) \Big],
       \quad \frac{\partial\theta}{\partial\lambda} = - \frac{\partial_\lambda Q(\theta)}{q(\theta)}, \qquad
       \nabla_\mu = F^{-1} \nabla_\lambda \]

    with Q the distribution function: JAX differentiates Gamma draws like this, and the others are functions of them.
    The implicit derivative of a Gamma draw costs far more than the draw, so that an expectation known in μ (`Analytic`)
    is preferable if there is one.

    Attributes:
        samples: S.
        sampler: the scheme for draws of a Gaussian; other beliefs' draws are independent.

    Raises:
        TypeError: for a belief whose draws jump, such as a Bernoulli.
        ValueError: for fewer than one draw, or a number that the sampler does not support.

    Source: Figurnov, Mohamed & Mnih (2018); Lin, Khan & Schmidt (2019) for Price's identity.

    Examples:
        >>> import jax
        >>> from lamu.expectations import Reparameterised
        >>> from lamu.families import Gamma
        >>> estimate = Reparameterised(1024).gradient(jax.random.key(0), Gamma(3.0, 2.0), lambda theta: theta)
        >>> abs(float(estimate.gradient.values[1]) - 1.0) < 0.2  # of E θ, the second expectation parameter
        True
    """

    samples: int = static(default=1)
    sampler: Sampler = IndependentSamples()

    departure = ""

    def __post_init__(self) -> None:
        require_whole_field(self, "samples", problem="cannot be averaged")
        self.sampler.require(self.samples)

    def gradient(self, key: RandomKey, belief: Belief, loss: Callable[[Params], Array]) -> ValueAndGradient:
        """Returns averages over the draws."""
        slope = jax.value_and_grad(loss)
        if isinstance(belief, Gaussian):
            factored = Gaussian(belief.mean, belief.precision.factored())

            def at_draw(index: Numeric) -> PyTree:
                theta = self.sampler.draw(key, factored, index, self.samples)
                value, gradient = slope(theta)
                precision_offset = belief.precision.matvec(tree.add(theta, belief.mean, -1.0))
                return value, gradient, type(belief.precision).from_outer(precision_offset, gradient)  # pyright: ignore[reportAttributeAccessIssue]

            return in_expectation(belief, *average(at_draw, self.samples))
        require_exponential(belief, "Reparameterised()")
        if not isinstance(belief, _SMOOTH):
            raise TypeError(
                f"Reparameterised() needs draws that move smoothly with λ, which those of a {type(belief).__name__} do "
                "not; use ScoreFunction(), or Relaxed() for binary and categorical beliefs"
            )
        natural = belief.natural()

        def at_implicit(index: Numeric) -> PyTree:
            def draw(values: Statistics) -> Params:
                moved = natural.of.from_natural(values, natural.given)
                return self.sampler.draw(key, moved, index, self.samples)

            theta, pull = jax.vjp(draw, natural.values)
            value, gradient = slope(theta)
            return value, pull(gradient)[0]

        value, in_natural = average(at_implicit, self.samples)
        return ValueAndGradient(value, NaturalParameters(inverse_fisher(belief)(in_natural), natural.given, natural.of))


def average(at_draw: Callable[[Numeric], PyTree], samples: int) -> PyTree:
    """Returns the average of a function of the draw's index, evaluated in sequence."""
    return at_draw(0) if samples == 1 else tree.average(tree.each(at_draw, samples))


@record
class MonteCarlo(Expectation):
    r"""Averages over S draws, \(E_q[h(\theta)] \approx \frac1S \sum_s h(\theta_s)\): S gradients, unbiased.

    The draws are reparameterised, \(\theta = m + S^{-1/2} \epsilon\), and evaluated in sequence, so that memory
    does not grow with S. A network's state is averaged over the draws.

    Without a network, `gradient` applies to any function of a Gaussian θ, with its Hessian at the draws, so that
    no step of the rule leaves the cone of precisions if the loss is convex, for any number of draws. It also applies
    to batches of vectors (`lamu.families.MultivariateNormal`, independent draws). `Reparameterised` is its counterpart
    without Hessians and for other beliefs.

    Attributes:
        samples: S.
        sampler: the scheme for the draws: independent, antithetic, quasi-Monte Carlo or a Latin hypercube.

    Raises:
        ValueError: for fewer than one draw, or a number that the sampler does not support.

    Examples:
        >>> from lamu.expectations import Antithetic, MonteCarlo
        >>> MonteCarlo(samples=2, sampler=Antithetic()).samples
        2
    """

    samples: int = static(default=1)
    sampler: Sampler = IndependentSamples()

    def __post_init__(self) -> None:
        require_whole_field(self, "samples", problem="cannot be averaged")
        self.sampler.require(self.samples)

    def evaluate(
        self, key: RandomKey, belief: Gaussian, loss: BatchLoss, curvature: Curvature, structure: AnyStructure
    ) -> Evaluation:
        factored = Gaussian(belief.mean, belief.precision.factored())

        def at_draw(index: Numeric) -> Evaluation:
            theta = self.sampler.draw(key, factored, index, self.samples)
            return evaluated(curvature, loss, theta, belief, structure, layer_key(key, index, self.samples))

        if self.samples == 1:
            return at_draw(0)
        evaluations = tree.each(at_draw, self.samples)
        others, stacked = tree.average(replace(evaluations, curvature=None)), evaluations.curvature
        return others if stacked is None else replace(others, curvature=stacked.averaged())

    def gradient(self, key: RandomKey, belief: Belief, loss: Callable[[Params], Array]) -> ValueAndGradient:
        """Returns averages over the draws, by Bonnet's theorem and Price's with Hessians."""
        if not isinstance(belief, MultivariateNormal):
            require_gaussian(belief, "MonteCarlo()")
        factored = with_factored_precision(belief)
        at_draw = lambda i: at_point(belief, loss, self.sampler.draw(key, factored, i, self.samples))
        return in_expectation(belief, *average(at_draw, self.samples))


# A draw of a Bernoulli is one where \(\lambda + \epsilon > 0\), for a logistic \(\epsilon\); a draw of a Categorical is
# the largest of \(\log\pi_k + \epsilon_k\), for Gumbel \(\epsilon_k\). The relaxed draw has a sigmoid or a softmax of
# width τ in place of the step:
#
# | belief | relaxed draw w | x |
# |---|---|---|
# | `Bernoulli`, {0, 1} | \(\sigma(x)\) | \((\lambda + \epsilon)/\tau\) |
# | `Binary`, {−1, +1} | \(2\sigma(x) - 1\) | \((2\lambda + \epsilon)/\tau\) |
# | `Categorical` | softmax of x | \((\log\pi + \epsilon)/\tau\) |
#
# and the gradient of \(\ell(w)\) is propagated back through it: for a Bernoulli with logit \(\lambda'\)
#
# \[ \nabla_\mu = \ell'(w)\, F^{-1} \frac{\partial w}{\partial\lambda}
#    = \ell'(w)\, \frac{\sigma'(x)}{\tau\, \sigma'(\lambda')} \]
#
# computed as one ratio, so that neither part vanishes alone; for a Categorical, with u the gradient in \(\log\pi\), by
# its known inverse Fisher matrix \(u_k/\pi_k - u_K/\pi_K\). In BayesBiNN's notation the second row is \(w =
# \tanh((\lambda + \delta)/\tau)\), and the ratio \((1 - w^2)/(\tau\,(1 - \tanh^2\lambda))\).


@record
class Relaxed:
    r"""Averages over S relaxed draws: one gradient each, of a loss that is defined between the corners.

    **Biased** for τ > 0: it is the unbiased gradient of \(E[\ell(w_\tau)]\), an expectation under the relaxed law,
    which equals \(E_q[\ell]\) only in the limit τ → 0, where the variance is unbounded. τ is unrelated to
    the temperature of an objective.

    The slopes of a Bernoulli grow as \(\cosh^2\lambda\): rare draws overturn nearly certain weights. A floor ε,

    \[ \frac{1 - w^2 + \epsilon}{\tau\,(1 - \tanh^2\lambda + \epsilon)} \]

    bounds them by \((1 + \epsilon)/(\tau\epsilon)\), and adds a bias; towards τ = 0 only the floor remains, a
    straight-through gradient at draws of the corners.

    Attributes:
        temperature: τ, positive.
        samples: S.
        floor: ε, for binary variables; zero for none.

    Raises:
        TypeError: for a belief other than Bernoulli, Binary or Categorical, or a Categorical with a floor.
        ValueError: for a τ that is not positive, a negative floor, or fewer than one draw.

    Source: Maddison, Mnih & Teh (2017); Jang, Gu & Poole (2017); Meng, Bachmann & Khan (2020), equation (9), and the
    floor in their program.

    Examples:
        >>> import jax
        >>> from lamu.expectations import Relaxed
        >>> from lamu.families import Binary
        >>> theta, pull = Relaxed(temperature=0.5).point(jax.random.key(0), Binary({"w": 0.3}))
        >>> bool(abs(theta["w"]) < 1.0), type(pull({"w": 1.0})).__name__
        (True, 'NaturalParameters')
    """

    temperature: Number = 1.0
    samples: int = static(default=1)
    floor: Number = 0.0

    def __post_init__(self) -> None:
        require_whole_field(self, "samples", problem="cannot be averaged")
        require(self.floor >= 0.0, f"the floor {self.floor!r} would reverse gradients; give a small number, or 0")
        require(
            self.temperature > 0.0,
            f"the temperature {self.temperature!r} of a relaxation is not positive; at zero nothing is relaxed",
        )

    @property
    def departure(self) -> str:
        """Empty: the name of the expectation already says that it is relaxed."""
        return "slopes floored" if self._floored else ""

    @property
    def _floored(self) -> bool:
        return not (isinstance(self.floor, float | int) and self.floor == 0.0)

    def point(self, key: RandomKey, belief: Belief) -> tuple[Params, Callable[[Params], NaturalParameters]]:
        r"""Returns a relaxed draw w, and the function from \(\nabla\ell(w)\) to \(\nabla_\mu\).

        Args:
            key: of the noise.
            belief: a Bernoulli, Binary or Categorical.
        """
        natural = belief.natural() if isinstance(belief, Bernoulli | Binary | Categorical) else None
        if natural is None:
            raise TypeError(
                f"Relaxed() is for Bernoulli, Binary and Categorical beliefs, not {type(belief).__name__}; use "
                "Reparameterised() or ScoreFunction()"
            )
        if isinstance(belief, Categorical) and self._floored:
            raise TypeError(f"the floor {self.floor!r} is for coins; leave it out for a Categorical")
        logits, structure = jax.tree.flatten(belief.logits if isinstance(belief, Categorical) else natural.values)
        keys = jax.random.split(key, max(len(logits), 1))
        drawn = [self._relaxed(belief, keys[i], leaf) for i, leaf in enumerate(logits)]

        def pull(gradient: Params) -> NaturalParameters:
            slopes = zip(drawn, jax.tree.leaves(gradient), strict=True)
            values = jax.tree.unflatten(structure, [pull(jnp.asarray(slope)) for (_, pull), slope in slopes])
            return NaturalParameters(values, natural.given, natural.of)

        return jax.tree.unflatten(structure, [point for point, _ in drawn]), pull

    def gradient(self, key: RandomKey, belief: Belief, loss: Callable[[Params], Array]) -> ValueAndGradient:
        """Returns averages over relaxed draws, the value too."""

        def at_draw(index: Numeric) -> tuple[Array, Statistics]:
            theta, pull = self.point(own_key(key, index, self.samples), belief)
            value, slope = jax.value_and_grad(loss)(theta)
            return value, pull(slope)

        return ValueAndGradient(*average(at_draw, self.samples))

    def _relaxed(self, belief: Belief, key: RandomKey, logits: Array) -> tuple[Array, Callable[[Array], Array]]:
        tau = jnp.asarray(self.temperature, logits.dtype)
        if isinstance(belief, Categorical):
            return _choice(key, logits, tau)
        floor = jnp.asarray(self.floor, logits.dtype) if self._floored else None
        return (_sign if isinstance(belief, Binary) else _coin)(key, logits, tau, floor)


def _coin(key: RandomKey, logit: Array, tau: Array, floor: Array | None) -> tuple[Array, Callable[[Array], Array]]:
    x = (logit + jax.random.logistic(key, logit.shape, logit.dtype)) / tau
    log_slope = lambda x: -jax.nn.softplus(x) - jax.nn.softplus(-x)  # log σ', and 4σ' is 1 − tanh² of the half
    if floor is None:
        ratio = jnp.exp(log_slope(x) - log_slope(logit)) / tau  # where both may round to zero
    else:
        ratio = (4.0 * jnp.exp(log_slope(x)) + floor) / (tau * (4.0 * jnp.exp(log_slope(logit)) + floor))
    return jax.nn.sigmoid(x), lambda slope: slope * ratio


def _sign(key: RandomKey, half_logit: Array, tau: Array, floor: Array | None) -> tuple[Array, Callable[[Array], Array]]:
    w, pull = _coin(key, 2.0 * half_logit, tau, floor)
    return 2.0 * w - 1.0, pull


def _choice(key: RandomKey, logits: Array, tau: Array) -> tuple[Array, Callable[[Array], Array]]:
    x = (logits + jax.random.gumbel(key, logits.shape, logits.dtype)) / tau
    log_w, log_probability = jax.nn.log_softmax(x, axis=-1), jax.nn.log_softmax(logits, axis=-1)
    w, ratio = jnp.exp(log_w), jnp.exp(log_w - log_probability) / tau

    def pull(slope: Array) -> Array:
        share = (slope - jnp.sum(w * slope, axis=-1, keepdims=True)) * ratio  # u / π
        return share[..., :-1] - share[..., -1:]

    return w, pull
