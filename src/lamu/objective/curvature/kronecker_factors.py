"""Kronecker factors of a curvature in the outputs, with value and gradient, from one forward pass."""

# \(\sum_i r_i J_i^\top \Lambda_i J_i\), with \(J_i\) the Jacobian of the outputs of row i, by backward passes of roots
# of \(r_i \Lambda_i\), for any curvature \(\Lambda_i\) in the outputs.

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from lamu.data.batch import with_offset
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import Evaluation, OutputHessian
from lamu.objective.curvature.products import without_padding
from lamu.objective.curvature.reader.factors import factors, halved
from lamu.objective.curvature.reader.layers import layers_by_name
from lamu.objective.curvature.reader.linearised import LinearisedNetwork, linearise
from lamu.operators.interface import is_operator
from lamu.operators.kronecker import KroneckerBlocks, KroneckerFactored
from lamu.typing import Array, Inputs, Params, PyTree, RandomKey

__all__ = ["AtOutputs"]


class AtOutputs:
    """The loss of a batch as a function of its outputs, for curvatures in the outputs."""

    def __init__(self, loss: BatchLoss, theta: Params, structure: KroneckerFactored, key: RandomKey | None) -> None:
        _require(loss)
        loss = without_padding(loss)
        self.loss, self.theta, self.structure = loss, theta, structure
        objective, batch = loss.objective, loss.batch
        likelihood, dispersion = objective.model.likelihood, loss.space.join(theta, loss.rest)["likelihood"]
        self.weights: Array = objective.row_factor(batch)
        self.read: LinearisedNetwork = linearise(*_rowwise(loss, theta, key, self.weights))
        f, y = with_offset(self.read.outputs, batch.offset), batch.y
        self.information = OutputHessian(likelihood, dispersion, f, likelihood.counted(dispersion, f, y, self.weights))

        def value(f: Array, rest: Params) -> Array:
            dispersion = loss.space.join(theta, rest)["likelihood"]
            log_prob = likelihood.log_prob(dispersion, f, y)
            own = likelihood.log_prior(dispersion) / objective.data_size
            return -jnp.sum(log_prob * self.weights.astype(log_prob.dtype)) - own.astype(log_prob.dtype)

        self.value, (self.slope, self.rest) = jax.value_and_grad(value, argnums=(0, 1))(f, loss.rest)
        self.gradient, self.cotangents = self.read.pull(self.slope)

    def pulled(self, hessian: OutputHessian) -> tuple[Array, Sequence[Array]]:
        """Returns the roots of a curvature in the outputs, and their pull-backs, one backward pass a root."""
        roots = jnp.moveaxis(hessian.root(), 2, 0)
        if len(roots) == 1:
            return roots, [cotangents[None] for cotangents in self.read.pull(roots[0])[1]]
        return roots, jax.vmap(lambda root: self.read.pull(root)[1])(roots)

    def of_the_gradient(self) -> tuple[Array, Sequence[Array]]:
        """Returns the same for the gradients of the data, from the gradient's backward pass."""
        return halved(self.slope, self.weights)[None], [halved(c, self.weights)[None] for c in self.cotangents]

    def evaluation(self, roots: Array, cotangents: Sequence[Array]) -> Evaluation:
        """Returns value and gradient with the factors of roots pulled back to `cotangents`."""
        apart, sharing = self.structure.apart(self.theta), self.structure.sharing
        layers = layers_by_name(self.read, self.theta, apart)
        curvature = KroneckerBlocks(
            factors(self.read, self.theta, roots, cotangents, self.weights, layers, sharing).blocks
        )
        _require_layout(curvature, self.structure, self.theta, self.read)
        gradient = jax.tree.unflatten(jax.tree.structure(self.theta), self.gradient)
        return Evaluation(self.value, gradient, self.rest, curvature, self.loss.network_state)


def _rowwise(
    loss: BatchLoss, theta: Params, key: RandomKey | None, weights: Array
) -> tuple[Callable[..., Array], Params, Inputs]:
    """Returns the network as a function of one row, its parameters, and the rows."""
    model = loss.objective.model
    keys = None
    if key is not None:  # one key per row, so that noise does not depend on the batch size
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(weights.shape[0]))

    def outputs(theta: Params, row: PyTree) -> Array:
        x, key = row
        params = loss.space.join(theta, loss.rest)
        return model.outputs(params, loss.network_state, x[None], key, train=True)[0][0]

    return outputs, theta, (loss.batch.x, keys)


def _require(loss: BatchLoss) -> None:
    if jax.tree.leaves(loss.network_state):
        raise TypeError("Kronecker factors need a network without a state (batch statistics); use ivon()")
    if loss.has_prior:
        raise TypeError("Kronecker factors need a Gaussian prior, which enters the belief exactly; use ivon()")


def _require_layout(
    curvature: KroneckerBlocks, structure: KroneckerFactored, theta: Params, read: LinearisedNetwork
) -> None:
    """Raises a TypeError where the network does not use a leaf as its name implies."""
    expected = jax.eval_shape(lambda: structure.from_diagonal(theta).fresh)
    paths = [_described(blocks.blocks) for blocks in (curvature, expected)]
    for path, block in paths[1].items():
        if paths[0].get(path) != block:
            leaves = jax.tree_util.tree_flatten_with_path(theta)[0]
            names = [jax.tree_util.keystr(where, simple=True, separator="/") for where, _ in leaves]
            inside = [i for i, name in enumerate(names) if name.startswith(path)]
            reasons = [read.unread[i] for i in inside if i in read.unread]
            why = reasons[0] if reasons else "is not a matrix from inputs to outputs, or its bias is added elsewhere"
            raise TypeError(
                f"the weights {path!r} have no Kronecker factors: the leaf {why}; leave them out, "
                f"diagonal=({path + '*'!r},)"
            )


def _described(blocks: PyTree) -> dict[str, object]:
    flat = jax.tree_util.tree_flatten_with_path(blocks, is_leaf=is_operator)[0]
    shapes = lambda block: (type(block), [jnp.shape(leaf) for leaf in jax.tree.leaves(block)])
    return {jax.tree_util.keystr(path, simple=True, separator="/"): shapes(block) for path, block in flat}
