"""The generalised Gauss–Newton matrix, its Kronecker factors, and curvatures from per-example gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.base.arguments import require_whole_field
from lamu.data.batch import Batch, with_offset
from lamu.families import Gaussian
from lamu.likelihoods import Likelihood
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import (
    Curvature,
    Evaluation,
    OutputHessian,
    dispersion_prior,
    fisher_information,
    gauss_newton_product,
    row_losses,
    slopes,
    without_padding,
)
from lamu.objective.curvature.reader import squares_and_gradient
from lamu.objective.curvature.reader.gradient_matrix import gradient_matrix
from lamu.objective.curvature.reader.layers import factors, halved, layers_by_name
from lamu.objective.curvature.reader.linearised import LinearisedNetwork, linearise, squares_of_outputs
from lamu.objective.objective import NetworkParameters, Objective, sum_over_row_chunks
from lamu.operators import AnyStructure, Diagonal, LowRank
from lamu.operators.interface import is_operator
from lamu.operators.kronecker import KroneckerBlocks, KroneckerFactored
from lamu.record import record, static
from lamu.typing import Array, Inputs, OperatorTree, Params, PyTree, RandomKey, Targets

__all__ = ["AtOutputs", "GaussNewton", "LowRankGradients", "OverData", "SampledGaussNewton", "SquaredGradients"]


@record
class GaussNewton(Curvature):
    """The generalised Gauss–Newton matrix: the Fisher information of the outputs, pulled back to the weights."""

    # \[ H = \sum_i r_i\, J_i^\top \Lambda_i J_i, \qquad J_i = \partial f(\theta, x_i)/\partial\theta \]
    #
    # with \(\Lambda_i\) the Fisher information of row i about f, and \(r_i\) the row's weight in the mean.
    #
    # It is the Hessian of the model linearised in θ and equals the expected Fisher information, so that it is always
    # positive semi-definite. A prior that is a part of the loss adds its own diagonal curvature. Where the network has
    # a state, the Jacobian is computed in evaluation mode. Cost: one pass over the batch per output for the diagonal
    # and for Kronecker factors, without a Jacobian (`lamu.objective.curvature.reader`). Other structures take one
    # backward pass per output and row, and store \(B K D\) numbers.
    #
    # Source: Schraudolph (2002); Martens (2020), section 8; Botev, Ritter & Barber (2017), for the Kronecker factors;
    #     Dangel, Kunstner & Hennig (2020), KFLR.

    def accumulates(self, structure: AnyStructure) -> str:
        return "rows"

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        # Returns value, gradient and Gauss–Newton matrix.
        if structure.by_factors:
            at_outputs = AtOutputs(loss, theta, structure, key)
            return at_outputs.evaluation(*at_outputs.pulled(at_outputs.information))
        return Evaluation.of(loss.gradient(theta, key), self.matrix(loss, theta, structure))

    def output_hessian(
        self, likelihood: Likelihood, dispersion: Params, f: Array, y: Targets, weights: Array, key: RandomKey
    ) -> OutputHessian:
        # Returns the Fisher information.
        return OutputHessian(likelihood, dispersion, f, likelihood.counted(dispersion, f, y, weights))

    def matrix(self, loss: BatchLoss, theta: Params, structure: AnyStructure) -> OperatorTree:
        """Returns the matrix alone, in the given structure."""
        if structure is not Diagonal:
            return self.by_jacobian(loss, theta, structure)
        loss = without_padding(loss)
        return _with_prior(Diagonal(_diagonal(loss, theta)), loss, theta)

    def by_jacobian(self, loss: BatchLoss, theta: Params, structure: AnyStructure) -> OperatorTree:
        """Returns the same matrix from the rows' Jacobians, which can be differentiated in the dispersions."""
        return self.outputs_and_matrix(loss, theta, structure)[2]

    def outputs_and_matrix(self, loss: BatchLoss, theta: Params, structure: Any) -> tuple[Array, Params, OperatorTree]:
        """Returns f `[batch, outputs]` without an offset, the rows' Jacobians and the matrix, from one forward pass."""
        loss = without_padding(loss)
        f, jacobian = loss.outputs_and_jacobian(theta)
        blocks = fisher_information(loss, theta, with_offset(f, loss.batch.offset)).blocks()
        apart = lambda leaf: leaf.reshape(blocks.shape[0], blocks.shape[1], *leaf.shape[2:])
        likelihood = structure.from_jacobian(jax.tree.map(apart, jacobian), blocks)
        return f, jacobian, _with_prior(likelihood, loss, theta)


def _with_prior(likelihood: OperatorTree, loss: BatchLoss, theta: Params) -> OperatorTree:
    prior = loss.prior_curvature(theta)
    return likelihood if prior is None else likelihood.add_diagonal(prior)


def _diagonal(loss: BatchLoss, theta: Params) -> Params:
    r"""Squares of \(\nabla_\theta\, u_{ik} \cdot f(\theta, x_i)\), \(\sum_k u_{ik} u_{ik}^\top = r_i\Lambda_i\)."""
    read = linearise(loss.of_row, theta, loss.batch.x)
    information = fisher_information(loss, theta, with_offset(read.outputs, loss.batch.offset))
    roots = jnp.moveaxis(information.root(), 2, 0)
    if not read.unread:
        return jax.tree.unflatten(jax.tree.structure(theta), squares_of_outputs(read, roots))

    def along(theta: Params, row: tuple[Array, Array]) -> Array:
        x, root = row
        return jnp.sum(loss.of_row(theta, x) * root)

    # One pass per output, which also supports parameters used inside loops.
    total, ones = tree.zeros_like(theta), jnp.ones(roots.shape[1], roots.dtype)
    for root in roots:
        total = tree.add(total, squares_and_gradient(along, theta, (loss.batch.x, root), ones)[2])
    return total


@record
class SampledGaussNewton(Curvature):
    """A Monte Carlo estimate of `GaussNewton`: squared gradients of rows with labels drawn from the model."""

    # \[ H \approx \frac1S \sum_s \sum_i r_i\, \tilde g_{is} \tilde g_{is}^\top, \qquad
    #    \tilde g_{is} = -\nabla_\theta \log p(\tilde y_{is} \mid f(\theta, x_i)), \quad
    #    \tilde y_{is} \sim p(y \mid f(\theta, x_i)) \]
    #
    # The estimate is unbiased and always positive semi-definite. With the observed labels instead of sampled ones it
    # would be `SquaredGradients`, the empirical Fisher matrix. A prior that is a part of the loss adds its own diagonal
    # curvature. Labels are sampled in evaluation mode. Cost: for the diagonal and for Kronecker factors one pass over
    # the batch per sample in addition to the gradient's, for any number of outputs. Other structures also take one
    # gradient per row, and store \(B D\) numbers.
    #
    # Source: Martens & Grosse (2015), section 5, for Kronecker factors; Martens (2020), section 8; Dangel, Kunstner &
    #     Hennig (2020), section 2.2 (DiagGGN-MC).

    samples: int = static(default=1)  # S, the number of sampled labels per row

    def __post_init__(self) -> None:
        if not self.samples >= 1:
            raise ValueError(f"samples={self.samples!r} sampled labels per row give no curvature; give 1 or more")

    def accumulates(self, structure: AnyStructure) -> str:
        return "rows"

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        # Returns value, gradient and the estimate of the Gauss–Newton matrix.
        if key is None:
            raise ValueError("SampledGaussNewton() samples labels and needs a key; pass key=jax.random.key(0)")
        of_layers, of_labels = jax.random.split(key)
        if structure.by_factors:
            at_outputs = AtOutputs(loss, theta, structure, of_layers)
            keys = of_labels[None] if self.samples == 1 else jax.random.split(of_labels, self.samples)
            return at_outputs.evaluation(*at_outputs.pulled(_of_labels(at_outputs.information, keys)))
        loss = without_padding(loss)
        return Evaluation.of(loss.gradient(theta, of_layers), self.matrix(loss, theta, structure, of_labels))

    def output_hessian(
        self, likelihood: Likelihood, dispersion: Params, f: Array, y: Targets, weights: Array, key: RandomKey
    ) -> OutputHessian:
        # Returns the mean outer product of gradients with sampled targets.
        information = GaussNewton().output_hessian(likelihood, dispersion, f, y, weights, key)
        return _of_labels(information, jax.random.split(key, self.samples))

    def matrix(self, loss: BatchLoss, theta: Params, structure: Any, key: RandomKey) -> OperatorTree:
        """Returns the matrix alone, in the given structure."""
        likelihood, batch = loss.objective.model.likelihood, without_padding(loss).batch
        dispersion, weights = loss.space.join(theta, loss.rest)["likelihood"], loss.objective.row_factor(batch)
        weights = likelihood.counted(dispersion, without_padding(loss).outputs(theta), batch.y, weights)

        def row(theta: Params, row: tuple[Array, Array | None, RandomKey]) -> Array:
            x, offset, key = row
            f = with_offset(loss.of_row(theta, x)[None], None if offset is None else offset[None])
            y = likelihood.sample(key, dispersion, jax.lax.stop_gradient(f))
            return -likelihood.log_prob(dispersion, f, y)[0]

        def of_draw(key: RandomKey) -> OperatorTree:
            rows = (batch.x, batch.offset, jax.random.split(key, weights.shape[0]))
            if structure is Diagonal:
                return Diagonal(squares_and_gradient(row, theta, rows, weights)[2])
            single = jax.vmap(jax.grad(row), in_axes=(None, 0))(theta, rows)
            return structure.from_jacobian(jax.tree.map(lambda leaf: leaf[:, None], single), weights[:, None, None])

        if self.samples == 1:
            return _with_prior(of_draw(key), loss, theta)
        draws = jax.lax.map(of_draw, jax.random.split(key, self.samples))
        return _with_prior(jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), draws), loss, theta)


def _of_labels(information: OutputHessian, keys: Array) -> OutputHessian:
    """Returns the mean outer product of gradients with sampled targets."""
    of = information.likelihood, information.dispersion, information.f
    of_draw = lambda key: slopes(*of, of[0].sample(key, *of[1:]))
    return replace(information, slopes=jax.vmap(of_draw, out_axes=2)(keys) / math.sqrt(len(keys)))


@record
class OverData:
    r"""The operator \(H = \frac1N \sum_i w_i p\, J_i^\top \Lambda_i J_i\) at one point, over all data."""

    objective: Objective  # the loss of a network in evaluation mode, without a state
    params: Params  # the point, all parameters
    batches: Batch  # all rows in batches of equal shape, leaves `[batches, rows, ...]`

    def matvec(self, v: Params) -> Params:
        """Returns H v."""

        def of(loss: BatchLoss, share: Array, key: RandomKey) -> Params:
            theta = self.params["network"]
            return tree.scale(gauss_newton_product(loss, theta)(v), share)

        return self._summed(of, jax.random.key(0))

    def noise(self, key: RandomKey, like: Params) -> Params:
        r"""Returns a draw from N(0, H), \(\sum_i \sqrt{r_i} J_i^\top \Lambda_i^{1/2} \varepsilon_i\)."""

        def of(loss: BatchLoss, share: Array, key: RandomKey) -> Params:
            theta = self.params["network"]
            f, pull = jax.vjp(loss.outputs, theta)
            information = fisher_information(loss, theta, f)
            root = information.likelihood.information_root(information.dispersion, f)
            weights = jnp.sqrt(information.weights * share).astype(f.dtype)
            noise = jax.random.normal(key, (root.shape[0], root.shape[2]), f.dtype)
            return pull(jnp.einsum("bkr,br->bk", root, noise) * weights[:, None])[0]

        return self._summed(of, key)

    def _summed(self, of: Callable[..., Params], key: RandomKey) -> Params:
        """Returns the sum over the batches, weighted by their shares of the rows."""
        rows = jnp.sum(self.batches.mask)

        def add(carry: tuple[Params, Array], batch: Batch) -> tuple[tuple[Params, Array], None]:
            total, number = carry
            fixed = jax.lax.stop_gradient(self.params["likelihood"])
            loss = without_padding(BatchLoss(self.objective, batch, {}, NetworkParameters(), fixed, conjugate=True))
            part = of(loss, batch.count / rows, jax.random.fold_in(key, number))
            return (tree.add(total, part), number + 1), None

        first = (tree.zeros_like(self.params["network"]), jnp.zeros((), jnp.int32))
        return jax.lax.scan(add, first, self.batches)[0][0]


# \(\sum_i r_i J_i^\top \Lambda_i J_i\), with \(J_i\) the Jacobian of the outputs of row i, by backward passes of roots
# of \(r_i \Lambda_i\), for any curvature \(\Lambda_i\) in the outputs.


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
        expected = jax.eval_shape(lambda: self.structure.from_diagonal(self.theta).fresh)
        paths = [_described(blocks.blocks) for blocks in (curvature, expected)]
        for path, block in paths[1].items():
            if paths[0].get(path) != block:
                leaves = jax.tree_util.tree_flatten_with_path(self.theta)[0]
                names = [jax.tree_util.keystr(where, simple=True, separator="/") for where, _ in leaves]
                inside = [i for i, name in enumerate(names) if name.startswith(path)]
                reasons = [self.read.unread[i] for i in inside if i in self.read.unread]
                why = (
                    reasons[0] if reasons else "is not a matrix from inputs to outputs, or its bias is added elsewhere"
                )
                raise TypeError(
                    f"the weights {path!r} have no Kronecker factors: the leaf {why}; leave them out, "
                    f"diagonal=({path + '*'!r},)"
                )
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


def _described(blocks: PyTree) -> dict[str, object]:
    flat = jax.tree_util.tree_flatten_with_path(blocks, is_leaf=is_operator)[0]
    shapes = lambda block: (type(block), [jnp.shape(leaf) for leaf in jax.tree.leaves(block)])
    return {jax.tree_util.keystr(path, simple=True, separator="/"): shapes(block) for path, block in flat}


@record
class SquaredGradients(Curvature):
    """The mean over rows of squared gradients, in the belief's structure."""

    # \[ H \approx \sum_i r_i\, g_i g_i^\top, \qquad g_i = -\nabla \log p(y_i \mid x_i, \theta) \]
    #
    # with \(r_i\) the row's weight in the mean. Unlike the squared minibatch gradient it is linear in the rows, so that
    # it does not depend on the batch size. It is always positive semi-definite, and near a good fit it is close to the
    # Fisher information. It is of the likelihood alone, and linear in the likelihood's power. Cost: for the diagonal
    # and for Kronecker factors one backward pass, which also gives value and gradient, and one or two more products per
    # layer, without per-example gradients (`lamu.objective.curvature.reader`). Other structures take a second pass and
    # one gradient per row, and store \(B D\) numbers. Random layers have separate noise in every row.
    #
    # Source: Khan et al. (2018), section 4 (VOGN); Khan & Rue (2021), section 4.4 (OGN); Zhang et al. (2018), section
    #     3.3, for Kronecker factors.

    def accumulates(self, structure: AnyStructure) -> str:
        return "gradient" if structure is Diagonal else "rows"

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: Any, key: RandomKey | None
    ) -> Evaluation:
        if structure.by_factors:
            point = AtOutputs(loss, theta, structure, key)
            return point.evaluation(*point.of_the_gradient())
        if loss.has_prior:
            raise TypeError("squares of single rows need a Gaussian prior, which enters the belief exactly; use ivon()")
        row, rows, weights = row_losses(loss, key)
        if structure is Diagonal:
            params = (theta, loss.rest)
            read = lambda rows, weights: squares_and_gradient(row, params, rows, weights, (True, False))
            # Inputs and cotangents are in memory together: about as much as two gradients.
            parts = loss.parts(theta, key, runs=2)
            value, (gradient, rest), (squares, _) = sum_over_row_chunks(read, rows, weights, parts)
            prior, of_prior = dispersion_prior(loss, theta)
            rest = tree.add(rest, of_prior)
            return Evaluation(value + prior.astype(value.dtype), gradient, rest, Diagonal(squares), loss.network_state)
        point = loss.gradient(theta, key)
        single = jax.vmap(jax.grad(lambda theta, example: row((theta, loss.rest), example)), in_axes=(None, 0))
        gradients = jax.tree.map(lambda leaf: leaf[:, None], single(theta, rows))
        return Evaluation.of(point, structure.from_jacobian(gradients, weights[:, None, None]))

    def output_hessian(
        self, likelihood: Likelihood, dispersion: Params, f: Array, y: Targets, weights: Array, key: RandomKey
    ) -> OutputHessian:
        # Returns the outer product of the gradient of every row.
        return OutputHessian(likelihood, dispersion, f, weights, slopes(likelihood, dispersion, f, y)[:, :, None])


@record
class LowRankGradients(Curvature):
    r"""The mean over rows of \(g_i g_i^\top\), approximated by k leading directions and an exact diagonal."""

    # \[ H \approx W W^\top + \mathrm{diag}(d), \qquad W W^\top \text{ the best rank-}k\text{ part of }
    #    \sum_i r_i\, g_i g_i^\top, \qquad d = \sum_i r_i\, g_i^2 - \mathrm{diag}(W W^\top) \]
    #
    # with \(r_i\) the row's weight in the mean. Value, gradient and the gradient in the dispersions come from the same
    # backward pass. In addition a dense layer costs a product for the diagonal, the rows' inner products and k products
    # of the backward pass, without per-example gradients. Random layers have separate noise in every row.
    #
    # Source: Mishkin et al. (2018), section 3.

    rank: int = static()  # k; at most the number of rows is used

    def __post_init__(self) -> None:
        require_whole_field(self, "rank")

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: AnyStructure, key: RandomKey | None
    ) -> Evaluation:
        if loss.has_prior:
            raise TypeError(
                "directions of per-example gradients need a Gaussian prior, which enters the belief exactly; use ivon()"
            )
        row, rows, weights = row_losses(loss, key)
        met = gradient_matrix(row, (theta, loss.rest), rows, weights, read=(True, False))
        gradient, rest = met.gradient
        prior, of_prior = dispersion_prior(loss, theta)
        root = met.leading(self.rank)[0]
        explained = LowRank(root, tree.zeros_like(theta)).diagonal(theta)
        # Negative values are rounding errors.
        left = jax.tree.map(lambda square, h: jnp.maximum(square - h, jnp.zeros_like(h)), met.squares()[0], explained)
        curvature = LowRank(root, left)
        value = met.value + prior.astype(met.value.dtype)
        return Evaluation(value, gradient, tree.add(rest, of_prior), curvature, loss.network_state)
