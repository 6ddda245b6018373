"""Expectations without sampling: the delta method, analytic losses, linear models, enumeration and quadrature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.base.arguments import require_whole_field
from lamu.expectations import pathwise
from lamu.expectations.interface import Expectation, ValueAndGradient
from lamu.expectations.pathwise import inverse_fisher, require_exponential
from lamu.expectations.samplers import from_noise
from lamu.families import Bernoulli, Binary, Categorical, Gaussian, MultivariateNormal, NaturalParameters, Product
from lamu.families.exponential import symmetric, values_of, with_values
from lamu.objective import BatchLoss, NetworkParameters
from lamu.objective import curvature as curvatures
from lamu.objective.curvature import Curvature, Evaluation, Hessian
from lamu.objective.curvature.interface import evaluated
from lamu.operators import AnyStructure, Dense
from lamu.record import record, static
from lamu.typing import Array, Belief, Params, PyTree, RandomKey, Statistics

__all__ = ["Analytic", "Delta", "Enumeration", "Exact", "GaussHermite", "Quadrature"]


@record
class Delta(Expectation):
    r"""\(E_q[h(\theta)] \approx h(m)\), the zeroth-order delta method: one gradient.

    Gradient and curvature are exact if the loss is quadratic; the value is then low by
    \(\tfrac12 \mathrm{tr}(H\Sigma)\).

    Without a network, `gradient` applies to any function of θ. Beliefs other than Gaussians have no Hessian in μ:
    for them it is the exact gradient of \(\ell(E_q\theta)\), for instance \(\ell'(\mu)\) for a Bernoulli, whose loss is
    evaluated between zero and one.

    Source: Khan & Rue (2021), section 1.3.1.

    Examples:
        >>> from lamu.expectations import Delta
        >>> Delta()
        Delta()
    """

    def evaluate(
        self, key: RandomKey, belief: Gaussian, loss: BatchLoss, curvature: Curvature, structure: AnyStructure
    ) -> Evaluation:
        return evaluated(curvature, loss, belief.mean, belief, structure, key)

    def gradient(self, key: RandomKey, belief: Belief, loss: Callable[[Params], Array]) -> ValueAndGradient:
        """Returns the loss at the mean and its gradient in μ; the key is not used."""
        if isinstance(belief, Gaussian | MultivariateNormal):
            return pathwise.in_expectation(belief, *pathwise.at_point(belief, loss, belief.mean))
        require_exponential(belief, "Delta()")
        natural = belief.natural()
        at_mean = lambda values: loss(natural.of.from_natural(values, natural.given).mean)
        value, in_natural = jax.value_and_grad(at_mean)(natural.values)
        return ValueAndGradient(value, NaturalParameters(inverse_fisher(belief)(in_natural), natural.given, natural.of))


@record
class Analytic:
    r"""\(\nabla_\mu\) of an expected loss that is known as a function of μ, by automatic differentiation: exact.

    The loss is here a function of the expectation parameters, \(\mu \mapsto E_q[\ell]\), instead of θ; with
    `mu.family()` it can be written in the textbook ones. If it is linear in μ, as in every conjugate model, the
    gradient is the data's natural parameter with a minus sign.

    Raises:
        TypeError: for a belief that is neither of an exponential family nor a product of such.

    Source: Khan & Lin (2017), section 3; Khan & Rue (2021), section 5.1.

    Examples:
        >>> import jax
        >>> from lamu.expectations import Analytic
        >>> from lamu.families import Exponential
        >>> estimate = Analytic().gradient(jax.random.key(0), Exponential(4.0), lambda mu: 3.0 * mu.values)
        >>> float(estimate.value), float(estimate.gradient.values)
        (0.75, 3.0)
    """

    departure = ""

    def gradient(self, key: RandomKey, belief: Belief, loss: Callable[[Params], Array]) -> ValueAndGradient:
        """Returns the expected loss and its gradient in μ; the key is not used.

        Args:
            key: not used.
            belief: q.
            loss: the expected loss, from `belief.expectation()` to a number.
        """
        if not isinstance(belief, Product):
            require_exponential(belief, "Analytic()")
        mu = belief.expectation()
        value, gradient = jax.value_and_grad(lambda values: loss(with_values(mu, values)))(values_of(mu))
        # An entry in one half of a symmetric matrix belongs to both halves.
        halves = lambda node: Dense(symmetric(node.matrix)) if isinstance(node, Dense) else node
        gradient = jax.tree.map(halves, gradient, is_leaf=lambda node: isinstance(node, Dense))
        return ValueAndGradient(value, with_values(belief.natural(), gradient))


# Below this variance of a predictor its loss is practically quadratic under q, and a division by its root would cancel
# digits.
_NARROW = 1e-6


@record
class Exact(Expectation):
    r"""The exact expectation for a linear network with a quadratic log likelihood (linear-Gaussian models).

    The loss is then
    \(\bar\ell(\theta) = \bar\ell(m) + g^\top(\theta - m) + \tfrac12 (\theta - m)^\top H (\theta - m)\), whence

    \[ E_q[\bar\ell] = \bar\ell(m) + \tfrac12 \mathrm{tr}(H \Sigma), \quad E_q[\nabla\bar\ell] = \nabla\bar\ell(m),
    \quad
       E_q[\nabla^2\bar\ell] = H \]

    with H the Gauss–Newton matrix, here equal to the Hessian. The curvature must be one of the two.

    Raises:
        TypeError: for a model that is not linear and Gaussian.

    Examples:
        >>> from lamu.expectations import Exact
        >>> Exact()
        Exact()
    """

    def evaluate(
        self, key: RandomKey, belief: Gaussian, loss: BatchLoss, curvature: Curvature, structure: AnyStructure
    ) -> Evaluation:
        """Returns the exact value, gradient and Hessian."""
        model = loss.objective.model
        _require_linear(loss, curvature, "Exact()")
        if not model.likelihood.quadratic:
            name = type(model.likelihood).__name__
            raise TypeError(
                f"Exact() needs a likelihood quadratic in the outputs, not {name}; use Quadrature() or MonteCarlo()"
            )
        point = loss.gradient(belief.mean, key)
        precision = belief.precision.factored()

        def spread(rest: Params) -> tuple[Array, PyTree]:
            matrix = curvatures.GaussNewton().by_jacobian(replace(loss, rest=rest), belief.mean, structure)
            return precision.trace_solve(matrix, belief.mean) / 2, matrix

        # H depends on the dispersions, and so does the contribution of the spread of θ to the loss.
        (extra, matrix), extra_rest = jax.value_and_grad(spread, has_aux=True)(loss.rest)
        return Evaluation(
            point.value + extra, point.coordinates, tree.add(point.rest, extra_rest), matrix, point.network_state
        )


@record
class Quadrature(Expectation):
    r"""Gauss–Hermite quadrature over each row's one-dimensional linear predictor.

    For a network that is linear in θ with one output, \(f_i = J_i\theta\) is normal under q with mean \(a_i = J_i m\)
    and variance \(v_i = J_i \Sigma J_i^\top\), so every expectation of the loss is one-dimensional. With
    \(\ell_i(f) = -\log p(y_i \mid f)\) and row weights \(r_i\):

    \[ E_q[\bar\ell] = \sum_i r_i E[\ell_i], \quad E_q[\nabla\bar\ell] = \sum_i r_i J_i^\top E[\ell_i'], \quad
       E_q[\nabla^2\bar\ell] = \sum_i r_i J_i^\top E[\ell_i''] J_i \]

    with E over \(f_i \sim N(a_i, v_i)\). Deterministic, exact up to the order of the rule. The second derivative is
    taken by Stein's lemma, \(E[\ell''] = E[z\, \ell'(a + \sqrt v z)] / \sqrt v\), so that gradient and Hessian are the
    exact derivatives of the quadrature's own value and the rule minimises what it reports.

    Attributes:
        points: the number of nodes per row.

    Raises:
        TypeError: for a network that is not linear in its weights, or a curvature other than the Hessian.
        ValueError: for more than one output, or fewer than two nodes.

    Examples:
        >>> from lamu.expectations import Quadrature
        >>> Quadrature(points=20).points
        20
    """

    points: int = static(default=32)

    def __post_init__(self) -> None:
        # One node sits at the mean, where Stein's form of the second derivative is zero.
        require_whole_field(self, "points", 2, "has no curvature")

    def evaluate(
        self, key: RandomKey, belief: Gaussian, loss: BatchLoss, curvature: Curvature, structure: Any
    ) -> Evaluation:
        _require_linear(loss, curvature, "Quadrature()")
        # The prior, unless the belief contains it exactly, and the network's state come from one pass at the mean.
        outputs = loss.outputs(belief.mean)
        if outputs.shape[1] != 1:
            raise ValueError(f"Quadrature() integrates over one output a row, the network has {outputs.shape[1]}")
        jacobian = loss.jacobian(belief.mean)
        rows = jax.tree.map(lambda leaf: leaf[:, 0], jacobian)
        factored = belief.precision.factored()
        variance = jax.vmap(lambda row: tree.dot(row, factored.solve(row)))(rows)
        centre = outputs[:, 0]

        nodes, weights = np.polynomial.hermite_e.hermegauss(self.points)
        nodes = jnp.asarray(nodes, centre.dtype)
        weights = jnp.asarray(weights / weights.sum(), centre.dtype)
        counts = loss.objective.row_factor(loss.batch).astype(centre.dtype)
        dispersion_prior = loss.objective.model.likelihood.log_prior(loss.rest) / loss.objective.data_size

        def row_losses(f: Array, rest: Params) -> Array:
            return -loss.objective.model.likelihood.log_prob(rest, f[:, None], loss.batch.y)

        def at_node(node: Array) -> tuple[Array, Array, Array, PyTree]:
            f = centre + jnp.sqrt(variance) * node
            slope = lambda f: jax.grad(lambda f: jnp.sum(row_losses(f, loss.rest)))(f)
            first, bend = jax.jvp(slope, (f,), (jnp.ones_like(f),))
            # E[l''] as E[z l'] / sqrt(v), Stein's lemma: then gradient and Hessian are exactly the derivatives of the
            # rule's value in a and v, and a fixed point is a stationary point, also where 60 nodes are too few for l''.
            narrow = variance < _NARROW
            second = jnp.where(
                narrow, bend, node * first / jnp.sqrt(jnp.where(narrow, jnp.ones_like(variance), variance))
            )
            total = lambda rest: jnp.sum(_weighted(row_losses(f, rest), counts))
            return row_losses(f, loss.rest), first, second, jax.grad(total)(loss.rest)

        values, first, second, rest = jax.tree.map(
            lambda leaf: jnp.tensordot(weights, leaf, axes=1), jax.lax.map(at_node, nodes)
        )
        prior_rest = jax.grad(lambda rest: -loss.objective.model.likelihood.log_prior(rest))(loss.rest)
        gradient = jax.tree.map(lambda row: jnp.tensordot(_weighted(first, counts), row, axes=1), rows)
        return Evaluation(
            value=jnp.sum(_weighted(values, counts)) - dispersion_prior,
            gradient=gradient,
            rest=tree.add(rest, prior_rest, 1.0 / loss.objective.data_size),
            curvature=structure.from_jacobian(jacobian, _weighted(second, counts)[:, None, None]),
            network_state=loss.network_state,
        )


def _weighted(values: Array, counts: Array) -> Array:
    return jnp.where(counts > 0, values, jnp.zeros_like(values)) * counts


def _require_linear(loss: BatchLoss, curvature: Curvature, name: str) -> None:
    if not loss.objective.model.network.linear:
        network = loss.objective.model.network.name
        raise TypeError(f"{name} needs a network that is linear in its weights, not {network}; use MonteCarlo()")
    if not isinstance(loss.space, NetworkParameters):
        raise TypeError(f"{name} is about weights alone; it makes no expectation for a point optimiser")
    if loss.has_prior:
        raise TypeError(f"{name} needs a Gaussian prior, which enters the belief exactly; use MonteCarlo()")
    if not isinstance(curvature, Hessian | curvatures.GaussNewton):
        raise TypeError(f"{name} computes the exact Hessian; {type(curvature).__name__}() would not be used")


@record
class Enumeration:
    r"""\(E_q[\ell] = \sum_\theta q(\theta)\, \ell(\theta)\) over every θ of a Bernoulli, Binary or Categorical: exact.

    The probability of a corner is multilinear in μ, and so is the expected loss: its derivative is a difference of two
    expectations, \(E[\ell \mid \theta_i = 1] - E[\ell \mid \theta_i = 0]\) for a Bernoulli. The cost is \(2^D\) losses,
    or the product of the numbers of categories.

    Attributes:
        most: the largest support that is allowed.

    Raises:
        TypeError: for another belief.
        ValueError: for a larger support.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.expectations import Enumeration
        >>> from lamu.families import Bernoulli
        >>> q = Bernoulli(jnp.zeros(2))
        >>> estimate = Enumeration().gradient(jax.random.key(0), q, lambda theta: 4.0 * jnp.prod(theta))
        >>> float(estimate.value), estimate.gradient.values.tolist()
        (1.0, [2.0, 2.0])
    """

    most: int = static(default=65_536)

    departure = ""

    def gradient(self, key: RandomKey, belief: Belief, loss: Callable[[Params], Array]) -> ValueAndGradient:
        """Returns the expected loss and its gradient in μ; the key is not used."""
        if not isinstance(belief, Bernoulli | Binary | Categorical):
            raise TypeError(
                f"Enumeration() is for Bernoulli, Binary and Categorical beliefs, not {type(belief).__name__}; use "
                "ScoreFunction()"
            )
        natural = belief.natural()
        mean, unravel = tree.ravel(belief.mean)
        corners = jnp.asarray(_corners(belief, self.most), mean.dtype)
        losses = jax.lax.map(lambda corner: jnp.asarray(loss(unravel(corner))), corners)

        def expected(values: Statistics) -> Array:
            # Through the whole vectors of probabilities, each of them linear in μ.
            return jnp.sum(_probabilities(belief, values, corners).astype(losses.dtype) * losses)

        value, gradient = jax.value_and_grad(expected)(belief.expectation().values)
        return ValueAndGradient(value, NaturalParameters(gradient, natural.given, natural.of))


def _corners(belief: Belief, most: int) -> np.ndarray:
    """Returns every θ as a row vector."""
    leaves = jax.tree.leaves(belief.mean)
    if isinstance(belief, Categorical):
        widths = [leaf.shape[-1] for leaf in leaves for _ in range(leaf.size // leaf.shape[-1])]
        choices = [list(np.eye(width)) for width in widths]
    else:
        low = -1.0 if isinstance(belief, Binary) else 0.0
        choices = [[np.array([low]), np.array([1.0])] for leaf in leaves for _ in range(leaf.size)]
    size = np.prod([float(len(choice)) for choice in choices])
    if size > most:
        raise ValueError(f"a support of {size:.6g} points is too large to enumerate; use ScoreFunction() or Relaxed()")
    return np.stack([np.concatenate(corner) for corner in product(*choices)])


def _probabilities(belief: Belief, values: Statistics, corners: Array) -> Array:
    """Returns the probability of every corner, as a function of μ."""
    if isinstance(belief, Categorical):
        full = lambda mu: jnp.concatenate([mu, 1.0 - jnp.sum(mu, axis=-1, keepdims=True)], axis=-1)
        chosen = tree.ravel(jax.tree.map(full, values))[0]
        # One factor per member: the entry that is one. The others are one to the power of zero.
        return jnp.prod(jnp.where(corners > 0.5, chosen[None, :], jnp.ones_like(corners)), axis=1)
    mu = tree.ravel(values)[0]
    probability = (1.0 + mu) / 2.0 if isinstance(belief, Binary) else mu
    return jnp.prod(jnp.where(corners > 0.5, probability[None, :], 1.0 - probability[None, :]), axis=1)


@record
class GaussHermite:
    r"""\(E_q[h(\theta)] \approx \sum_k w_k\, h(m + R z_k)\), a product rule for a Gaussian with \(R R^\top = \Sigma\).

    Exact if h is a polynomial of degree below twice the number of nodes; h is the loss, its gradient and its
    Hessian. `points` nodes in one dimension and their square in two, with one Hessian each, in sequence. For the
    loss of a linear model with more weights use `Quadrature`, which integrates over each row's predictor.

    Attributes:
        points: the number of nodes per dimension.

    Raises:
        TypeError: for a belief other than a Gaussian.
        ValueError: for more than two dimensions, or fewer than one node.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> from lamu.expectations import GaussHermite
        >>> from lamu.families import Gaussian
        >>> from lamu.operators import Scalar
        >>> q = Gaussian(jnp.array(2.0), Scalar(4.0))
        >>> round(float(GaussHermite(3).gradient(jax.random.key(0), q, lambda theta: theta**2).value), 4)  # m² + 1/s
        4.25
    """

    points: int = static(default=32)

    departure = ""

    def __post_init__(self) -> None:
        require_whole_field(self, "points")

    def gradient(self, key: RandomKey, belief: Belief, loss: Callable[[Params], Array]) -> ValueAndGradient:
        """Returns the expected loss and its gradient in μ; the key is not used."""
        if not isinstance(belief, Gaussian):
            raise TypeError(f"GaussHermite() integrates over a Gaussian, not over a {type(belief).__name__}")
        vector = tree.ravel(belief.mean)[0]
        if vector.size > 2:
            raise ValueError(
                f"GaussHermite() integrates over at most two dimensions, not {vector.size}; use MonteCarlo()"
            )
        nodes, weights = np.polynomial.hermite_e.hermegauss(self.points)
        grid = np.stack(np.meshgrid(*[nodes] * vector.size, indexing="ij"), axis=-1).reshape(-1, vector.size)
        weight = np.prod(np.meshgrid(*[weights / weights.sum()] * vector.size, indexing="ij"), axis=0).ravel()
        factored = Gaussian(belief.mean, belief.precision.factored())
        evaluate = lambda z: pathwise.at_point(belief, loss, from_noise(factored, z))
        evaluations = jax.lax.map(evaluate, jnp.asarray(grid, vector.dtype))
        weight = jnp.asarray(weight, vector.dtype)
        return pathwise.in_expectation(
            belief, *jax.tree.map(lambda leaf: jnp.tensordot(weight.astype(leaf.dtype), leaf, axes=1), evaluations)
        )
