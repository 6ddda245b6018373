r"""Kronecker factors of a network's curvature, beside value and gradient, from one forward pass.

Three choices of what stands in the middle of \(\sum_i r_i J_i^\top \Lambda_i J_i\), with \(J_i\) the Jacobian of the
outputs of row i: the outer product of the data's own gradient, that of a gradient with labels drawn from the model, and
the Fisher information itself. The second is the third on average.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamu.data.batch import with_offset
from lamu.families import Gaussian
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import Curvature, Evaluation
from lamu.objective.curvature.reader.factors import Expand, factors, halved, without_padding
from lamu.objective.curvature.reader.linearised import Linearised, linearise
from lamu.operators.interface import is_operator
from lamu.operators.kronecker_blocks import KroneckerBlocks, Layerwise
from lamu.record import record
from lamu.typing import Array, Params, RandomKey

__all__ = ["EmpiricalKronecker", "ExactKronecker", "SampledKronecker"]


@record
class EmpiricalKronecker(Curvature):
    r"""Kronecker factors of the empirical Fisher: \(\Lambda_i = d_i d_i^\top\), d the data's gradient in the outputs.

    One backward pass in all, and one product for each factor.

    Attributes:
        sharing: what becomes of the positions at which a kernel is used: `Expand()` or `Reduce()`.

    Raises:
        TypeError: (when it runs) for a network with a state, whose rows are not independent in training mode, a prior
            that is not Gaussian, which has no share in a row, or a structure other than `Layerwise`.

    Source: Martens & Grosse (2015); Zhang et al. (2018), section 3.3.

    Examples:
        >>> from lamu.objective.curvature.kronecker_factors import EmpiricalKronecker
        >>> EmpiricalKronecker()
        EmpiricalKronecker(sharing=Expand())
    """

    sharing: Any = Expand()

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        """Returns value, gradient and factors."""
        at = _Outputs(loss, theta, structure, key)
        roots, cotangents = halved(at.slope, at.weights)[None], [halved(c, at.weights)[None] for c in at.cotangents]
        return at.evaluation(roots, cotangents, self.sharing)


@record
class SampledKronecker(Curvature):
    r"""Kronecker factors of the Fisher information, by one label a row drawn from the model.

    \[ \Lambda_i = \tilde d_i \tilde d_i^\top, \qquad \tilde d_i = -\nabla_f \log p(\tilde y_i \mid f_i), \qquad
       \tilde y_i \sim p(y \mid f_i) \]

    Unbiased for \(\Lambda_i\); a second backward pass, without the gradient in the weights.

    Attributes:
        sharing: what becomes of the positions at which a kernel is used: `Expand()` or `Reduce()`.

    Raises:
        TypeError: (when it runs) as `EmpiricalKronecker`.
        ValueError: (when it runs) without a key.

    Source: Martens & Grosse (2015), section 5.

    Examples:
        >>> from lamu.objective.curvature.kronecker_factors import SampledKronecker
        >>> SampledKronecker()
        SampledKronecker(sharing=Expand())
    """

    sharing: Any = Expand()

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        """Returns value, gradient and factors."""
        if key is None:
            raise ValueError("SampledKronecker() draws labels, for which it needs a key; give one")
        of_layers, of_labels = jax.random.split(key)
        at = _Outputs(loss, theta, structure, of_layers)
        likelihood = loss.objective.model.likelihood
        y = likelihood.sample(of_labels, at.dispersion, at.f)
        slope = jax.grad(lambda f: -jnp.sum(likelihood.log_prob(at.dispersion, f, y)))(at.f)
        roots = (slope * jnp.sqrt(at.weights)[:, None].astype(slope.dtype))[None]
        return at.evaluation(roots, [c[None] for c in at.read.pull(roots[0])[1]], self.sharing)


@record
class ExactKronecker(Curvature):
    r"""Kronecker factors of the generalised Gauss–Newton matrix: \(\Lambda_i\) the Fisher information of row i.

    One backward pass an output more, without the gradient in the weights.

    Attributes:
        sharing: what becomes of the positions at which a kernel is used: `Expand()` or `Reduce()`.

    Raises:
        TypeError: (when it runs) as `EmpiricalKronecker`.

    Source: Botev, Ritter & Barber (2017), for the name of the factors; Dangel, Kunstner & Hennig (2020), KFLR.

    Examples:
        >>> from lamu.objective.curvature.kronecker_factors import ExactKronecker
        >>> ExactKronecker()
        ExactKronecker(sharing=Expand())
    """

    sharing: Any = Expand()

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        """Returns value, gradient and factors."""
        at = _Outputs(loss, theta, structure, key)
        information = loss.objective.model.likelihood.information(at.dispersion, at.f)
        values, basis = jnp.linalg.eigh(information)
        root = basis * jnp.sqrt(jnp.maximum(values, 0) * at.weights[:, None].astype(values.dtype))[:, None, :]
        roots = jnp.moveaxis(root, 2, 0)
        return at.evaluation(roots, jax.vmap(lambda v: at.read.pull(v)[1])(roots), self.sharing)


class _Outputs:
    """The loss of a batch at its outputs: what the three choices begin with."""

    def __init__(self, loss: BatchLoss, theta: Params, structure: Any, key: RandomKey | None) -> None:
        _require(loss, structure)
        self.loss, self.theta, self.structure = loss, theta, structure
        objective, batch = loss.objective, loss.batch
        likelihood = objective.model.likelihood
        self.weights: Array = objective.row_factor(batch)
        self.read: Linearised = linearise(*_rowwise(loss, theta, key, self.weights))
        filled = without_padding((batch.y, batch.offset), self.weights)
        self.dispersion = loss.space.join(theta, loss.rest)["likelihood"]
        self.f = with_offset(self.read.outputs, filled[1])

        def value(f: Array, rest: Params) -> Array:
            dispersion = loss.space.join(theta, rest)["likelihood"]
            log_prob = likelihood.log_prob(dispersion, f, filled[0])
            own = likelihood.log_prior(dispersion) / objective.data_size
            return -jnp.sum(log_prob * self.weights.astype(log_prob.dtype)) - own.astype(log_prob.dtype)

        self.value, (self.slope, self.rest) = jax.value_and_grad(value, argnums=(0, 1))(self.f, loss.rest)
        self.gradient, self.cotangents = self.read.pull(self.slope)

    def evaluation(self, roots: Array, cotangents: Any, sharing: Any) -> Evaluation:
        """Returns value and gradient beside the factors of roots pulled back to `cotangents`."""
        apart = self.structure.apart(self.theta)
        found = KroneckerBlocks(factors(self.read, self.theta, roots, cotangents, self.weights, sharing, apart).blocks)
        _require_layout(found, self.structure, self.theta, self.read)
        gradient = jax.tree.unflatten(jax.tree.structure(self.theta), self.gradient)
        return Evaluation(self.value, gradient, self.rest, found, self.loss.network_state)


def _rowwise(loss: BatchLoss, theta: Params, key: RandomKey | None, weights: Array) -> tuple[Any, Params, Any]:
    """Returns the network as a function of one row, its parameters, and the rows."""
    model = loss.objective.model
    keys = None
    if key is not None:  # a row's own key, whatever the size of the batch
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(weights.shape[0]))

    def outputs(theta: Params, row: Any) -> Array:
        x, key = row
        params = loss.space.join(theta, loss.rest)
        return model.outputs(params, loss.network_state, x[None], key, train=True)[0][0]

    return outputs, theta, (without_padding(loss.batch.x, weights), keys)


def _require(loss: BatchLoss, structure: Any) -> None:
    if jax.tree.leaves(loss.network_state):
        raise TypeError("Kronecker factors need a network without a state (batch statistics); use ivon()")
    if not loss.conjugate:
        raise TypeError("Kronecker factors need a Gaussian prior, which enters the belief exactly; use ivon()")
    if not isinstance(structure, Layerwise):
        name = structure.__name__ if isinstance(structure, type) else structure
        raise TypeError(f"Kronecker factors fit no {name} precision; give the rule the structure Layerwise()")


def _require_layout(found: KroneckerBlocks, structure: Layerwise, theta: Params, read: Linearised) -> None:
    """Raises a TypeError where the network does not use a leaf as the tree lets expect."""
    expected = jax.eval_shape(lambda: structure.from_diagonal(theta).fresh)
    paths = [_described(blocks.blocks) for blocks in (found, expected)]
    for path, block in paths[1].items():
        if paths[0].get(path) != block:
            leaves = jax.tree_util.tree_flatten_with_path(theta)[0]
            names = [jax.tree_util.keystr(where, simple=True, separator="/") for where, _ in leaves]
            inside = [i for i, name in enumerate(names) if name.startswith(path)]
            reasons = [read.unread[i] for i in inside if i in read.unread]
            why = reasons[0] if reasons else "is no matrix from inputs to outputs, or its bias is added elsewhere"
            raise TypeError(
                f"the weights {path!r} have no Kronecker factors: the leaf {why}; leave them out, "
                f"diagonal=({path + '*'!r},)"
            )


def _described(blocks: Any) -> dict[str, Any]:
    flat = jax.tree_util.tree_flatten_with_path(blocks, is_leaf=is_operator)[0]
    shapes = lambda block: (type(block), [jnp.shape(leaf) for leaf in jax.tree.leaves(block)])
    return {jax.tree_util.keystr(path, simple=True, separator="/"): shapes(block) for path, block in flat}
