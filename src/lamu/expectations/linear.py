"""Expectations that are exact because the model is linear in its weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import tree
from lamu.expectations.interface import Expectation
from lamu.families import Gaussian
from lamu.objective import BatchLoss, NetworkParameters
from lamu.objective.curvature import Curvature, Evaluation, GaussNewton, Hessian
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey

__all__ = ["Exact", "Quadrature"]

# Below this variance of a predictor its loss is as good as quadratic under q, and dividing by its root would cancel
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

    with H the Gauss–Newton matrix, here the Hessian itself. The curvature choice must be one of the two.

    Raises:
        TypeError: for a model that is not linear and Gaussian.

    Examples:
        >>> from lamu.expectations import Exact
        >>> Exact()
        Exact()
    """

    def evaluate(
        self, key: RandomKey, belief: Gaussian, loss: BatchLoss, curvature: Curvature, structure: Any
    ) -> Evaluation:
        """Returns the exact value, gradient and Hessian."""
        model = loss.objective.model
        _require_linear(loss, curvature, "Exact()")
        if not model.likelihood.quadratic:
            name = type(model.likelihood).__name__
            raise TypeError(
                f"Exact() needs a likelihood quadratic in the outputs, not {name}; use Quadrature() or MonteCarlo()"
            )
        at = loss.gradient(belief.mean, key)
        precision = belief.precision.factored()

        def spread(rest: Params) -> tuple[Array, Any]:
            matrix = GaussNewton().by_jacobian(replace(loss, rest=rest), belief.mean, structure)
            return precision.trace_solve(matrix, belief.mean) / 2, matrix

        # H depends on the dispersions, and so does what the spread of θ adds to the loss.
        (extra, matrix), extra_rest = jax.value_and_grad(spread, has_aux=True)(loss.rest)
        return Evaluation(at.value + extra, at.coordinates, tree.add(at.rest, extra_rest), matrix, at.network_state)


@record
class Quadrature(Expectation):
    r"""Gauss–Hermite quadrature over each row's one-dimensional linear predictor.

    For a network that is linear in θ with one output, \(f_i = J_i\theta\) is normal under q with mean \(a_i = J_i m\)
    and variance \(v_i = J_i \Sigma J_i^\top\), so every expectation of the loss is one-dimensional. With
    \(\ell_i(f) = -\log p(y_i \mid f)\) and what a row counts \(r_i\):

    \[ E_q[\bar\ell] = \sum_i r_i E[\ell_i], \quad E_q[\nabla\bar\ell] = \sum_i r_i J_i^\top E[\ell_i'], \quad
       E_q[\nabla^2\bar\ell] = \sum_i r_i J_i^\top E[\ell_i''] J_i \]

    with E over \(f_i \sim N(a_i, v_i)\). Deterministic, exact up to the order of the rule. The second derivative is
    taken by Stein's lemma, \(E[\ell''] = E[z\, \ell'(a + \sqrt v z)] / \sqrt v\), so that gradient and Hessian are the
    exact derivatives of the quadrature's own value and the rule minimises what it reports.

    Attributes:
        points: the number of nodes a row.

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
        # One node sits at the mean, where Stein's form of the second derivative sees nothing.
        if not isinstance(self.points, int) or self.points < 2:
            raise ValueError(f"a quadrature rule with {self.points!r} nodes sees no curvature; ask for at least two")

    def evaluate(
        self, key: RandomKey, belief: Gaussian, loss: BatchLoss, curvature: Curvature, structure: Any
    ) -> Evaluation:
        _require_linear(loss, curvature, "Quadrature()")
        # The prior, where it is not in the belief exactly, and the network's state come with one pass at the mean.
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

        def row_losses(f: Array, rest: Any) -> Array:
            return -loss.objective.model.likelihood.log_prob(rest, f[:, None], loss.batch.y)

        def at_node(node: Array) -> tuple[Array, Array, Array, Any]:
            f = centre + jnp.sqrt(variance) * node
            slope = lambda f: jax.grad(lambda f: jnp.sum(row_losses(f, loss.rest)))(f)
            first, bend = jax.jvp(slope, (f,), (jnp.ones_like(f),))
            # E[l''] as E[z l'] / sqrt(v), Stein's lemma: then gradient and Hessian are exactly the derivatives of the
            # rule's value in a and v, and a fixed point is a stationary point, also where 60 nodes are too few for l''.
            narrow = variance < _NARROW
            second = jnp.where(
                narrow, bend, node * first / jnp.sqrt(jnp.where(narrow, jnp.ones_like(variance), variance))
            )
            total = lambda rest: jnp.sum(_kept(row_losses(f, rest), counts))
            return row_losses(f, loss.rest), first, second, jax.grad(total)(loss.rest)

        values, first, second, rest = jax.tree.map(
            lambda leaf: jnp.tensordot(weights, leaf, axes=1), jax.lax.map(at_node, nodes)
        )
        prior_rest = jax.grad(lambda rest: -loss.objective.model.likelihood.log_prior(rest))(loss.rest)
        gradient = jax.tree.map(lambda row: jnp.tensordot(_kept(first, counts), row, axes=1), rows)
        return Evaluation(
            value=jnp.sum(_kept(values, counts)) - dispersion_prior,
            gradient=gradient,
            rest=tree.add(rest, prior_rest, 1.0 / loss.objective.data_size),
            curvature=structure.from_jacobian(jacobian, _kept(second, counts)[:, None, None]),
            network_state=loss.network_state,
        )


def _kept(values: Array, counts: Array) -> Array:
    return jnp.where(counts > 0, values, jnp.zeros_like(values)) * counts


def _require_linear(loss: BatchLoss, curvature: Curvature, name: str) -> None:
    if not loss.objective.model.network.linear:
        network = type(loss.objective.model.network).__name__
        raise TypeError(f"{name} needs a network that is linear in its weights, not {network}; use MonteCarlo()")
    if not isinstance(loss.space, NetworkParameters):
        raise TypeError(f"{name} is about weights alone; it makes no expectation for a point optimiser")
    if loss.has_prior:
        raise TypeError(f"{name} needs a Gaussian prior, which enters the belief exactly; use MonteCarlo()")
    if not isinstance(curvature, Hessian | GaussNewton):
        raise TypeError(f"{name} computes the exact Hessian; {type(curvature).__name__}() would not be used")
