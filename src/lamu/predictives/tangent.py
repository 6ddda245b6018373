r"""The outputs of the network's tangent, \(f \sim N(f(m, x), J \Sigma J^\top)\), by the precision's structure.

| precision | the covariance of f |
|---|---|
| a last layer | \(\phi^\top \Sigma_{kl}\, \phi\): features, and no Jacobian |
| one operator an output | \(\phi^\top \Sigma_k\, \phi\) for each, and nothing between outputs |
| Kronecker factors, diagonal | layer by layer; inputs and output cotangents rotated apart, weighted, multiplied |
| a matrix a leaf | leaf by leaf, one leaf's Jacobian at a time |
| any other | the rows' Jacobians |

A layer's Jacobian is \(\sum_p a_p d_{kp}^\top\) over the positions p at which its kernel is used. With one position
nothing of its size is ever formed: \(\sum_{ij} a_i^2 d_{kj} d_{lj} / e_{ij}\).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from lamu import tree
from lamu.families import Gaussian
from lamu.objective.curvature.head import features_of
from lamu.objective.curvature.reader.factors import views
from lamu.objective.curvature.reader.layers import Layer, layers, places
from lamu.objective.curvature.reader.linearised import Linearised, linearise
from lamu.operators import BlockDiagonal, Cholesky, Diagonal, KroneckerEigen, OutputCholesky, OutputEigen
from lamu.operators.interface import Operator, is_operator
from lamu.shapes import once_a_shape
from lamu.target import Target
from lamu.typing import Array, Params, Rows

__all__ = ["bytes_of_a_row", "tangent"]

_EXACT = jax.lax.Precision.HIGHEST
_LAYERED = (KroneckerEigen, Diagonal)
_APART = (OutputEigen, OutputCholesky)


def tangent(
    model: Target, weights: Gaussian, dispersion: Params, network_state: Any, x: Array, marginal: bool
) -> tuple[Array, Array]:
    """Returns mean and covariance of the outputs.

    Args:
        model: network, likelihood and prior.
        weights: the belief about the weights, its precision factored.
        dispersion: the likelihood's parameters.
        network_state: the network's state.
        x: inputs `[N, ...]`.
        marginal: whether variances are enough.

    Returns:
        The mean `[N, K]`, and the covariance `[N, K, K]`, or, where only variances are asked for or no two outputs are
        correlated, those, `[N, K]`.
    """

    def outputs(theta: Params, row: Array) -> Array:
        return model.outputs({"network": theta, "likelihood": dispersion}, network_state, row[None])[0][0]

    precision, mean = weights.precision, weights.mean
    whole = _alone(precision)
    if isinstance(whole, _APART) or _is_layered(precision) or (isinstance(precision, Cholesky) and _small(mean)):
        read = linearise(outputs, mean, x)
        head = features_of(read, mean)
        if head is not None:
            found = _of_head(whole, head[1], read.outputs.shape[1], mean, marginal)
            if found is not None:
                return read.outputs, found
        if isinstance(precision, Diagonal | BlockDiagonal) and not isinstance(whole, _APART):
            return read.outputs, _of_layers(precision, read, outputs, mean, x, marginal)
    return _by_jacobian(outputs, precision, mean, x, marginal)


@once_a_shape
def bytes_of_a_row(model: Target, weights: Gaussian, dispersion: Params, network_state: Any, x: Rows) -> int:
    """Returns about how much memory one row takes in `tangent`.

    Args:
        model: network, likelihood and prior.
        weights: the belief about the weights.
        dispersion: the likelihood's parameters.
        network_state: the network's state.
        x: inputs `[N, ...]`.
    """
    params = {"network": weights.mean, "likelihood": dispersion}
    row = jax.ShapeDtypeStruct((1, *x.shape[1:]), jax.dtypes.canonicalize_dtype(x.dtype))
    traced = _outputs.trace(model, params, network_state, row)
    width, size = traced.jaxpr.out_avals[0].shape[1], jnp.dtype(jnp.result_type(float)).itemsize
    if isinstance(_alone(weights.precision), _APART):
        return size * 8 * width
    if not _is_layered(weights.precision):
        return size * width * tree.dimension(weights.mean)
    equations = traced.jaxpr.jaxpr.eqns
    passed = sum(int(np.prod(place.aval.shape)) for equation in equations for place in equation.outvars)
    largest = max(leaf.size for leaf in jax.tree.leaves(weights.mean))
    return size * (width + 2) * (passed + largest)


@jax.jit
def _outputs(model: Target, params: Params, network_state: Any, x: Array) -> Array:
    """Never run: its trace is kept, and tells sizes."""
    return model.outputs(params, network_state, x)[0]


def _alone(precision: Operator) -> Operator:
    """The one operator of a block-diagonal of one."""
    if isinstance(precision, BlockDiagonal):
        blocks = jax.tree.leaves(precision.blocks, is_leaf=is_operator)
        if len(blocks) == 1:
            return blocks[0]
    return precision


def _is_layered(precision: Operator) -> bool:
    if isinstance(precision, Diagonal):
        return True
    if not isinstance(precision, BlockDiagonal):
        return False
    blocks = jax.tree.leaves(precision.blocks, is_leaf=is_operator)
    return all(isinstance(block, (*_LAYERED, Cholesky)) for block in blocks)


def _small(mean: Params) -> bool:
    """Whether the leaves may be one layer: then it is worth while to look."""
    return len(jax.tree.leaves(mean)) <= 2


def _of_head(precision: Operator, phi: Array, outputs: int, mean: Params, marginal: bool) -> Array | None:
    """The covariance from the features of a last layer; None for a precision without a way round the Jacobian."""
    if isinstance(precision, OutputEigen):
        return jnp.matmul(jnp.matmul(phi, precision.basis, precision=_EXACT) ** 2, 1 / precision.eigenvalues)
    if isinstance(precision, OutputCholesky):
        one = lambda root: jnp.sum(solve_triangular(root, phi.T, lower=True) ** 2, axis=0)
        return jax.lax.map(one, precision.roots).T
    if isinstance(precision, Diagonal):
        variances = jnp.ravel(tree.ravel(precision.variance(mean))[0]).reshape(phi.shape[1], outputs)
        return jnp.matmul(phi**2, variances, precision=_EXACT)
    if isinstance(precision, KroneckerEigen):
        rotated = jnp.matmul(phi, precision.input_basis, precision=_EXACT) ** 2
        inner = jnp.matmul(rotated, 1 / precision.eigenvalues, precision=_EXACT)
        basis = precision.output_basis
        if marginal:
            return jnp.matmul(inner, (basis**2).T, precision=_EXACT)
        return jnp.einsum("nj,kj,lj->nkl", inner, basis, basis, precision=_EXACT)
    if isinstance(precision, Cholesky):
        # L⁻¹ (φ ⊗ I), all rows' columns in one solve.
        rows, width = phi.shape
        columns = (phi.T[:, None, :, None] * jnp.eye(outputs, dtype=phi.dtype)[None, :, None, :]).reshape(
            width * outputs, rows * outputs
        )
        white = solve_triangular(precision.root, columns, lower=True).reshape(-1, rows, outputs)
        return _squared(jnp.moveaxis(white, 0, 1), marginal)
    return None


def _of_layers(precision: Any, read: Linearised, outputs: Any, mean: Params, x: Array, marginal: bool) -> Array:
    """The sum over layers of their contributions; leaves that belong to none by their own Jacobian."""
    rows, width = read.outputs.shape
    eye = jnp.eye(width, dtype=read.outputs.dtype)
    cotangents = jax.vmap(lambda e: read.pull(jnp.broadcast_to(e[None], (rows, width)))[1])(eye)
    blocks = _by_leaf(precision, mean)
    total: Any = 0.0
    seen: set[int] = set()
    for layer in layers(read, mean):
        block, members = blocks[layer.kernel]
        mine = [layer.kernel] if layer.bias is None else [layer.bias, layer.kernel]
        if isinstance(block, KroneckerEigen) and members != mine:
            continue
        spread = _spread(block, blocks, layer, read)
        if spread is None:
            continue
        total = total + _of_layer(spread, *_seen(read, layer, cotangents[layer.site]), marginal)
        seen.update(mine)
    done: set[int] = set()
    for index in range(len(read.leaves)):
        if index in seen or index in done:
            continue
        block, members = blocks[index]
        done.update(members)
        total = total + _of_leaves(block, members, outputs, mean, x, marginal)
    return total


def _by_leaf(precision: Any, mean: Params) -> list[tuple[Operator, list[int]]]:
    """For each leaf its block, and the leaves that the block is about."""
    numbers = jax.tree.unflatten(jax.tree.structure(mean), list(range(len(jax.tree.leaves(mean)))))
    if isinstance(precision, Diagonal):
        return [(Diagonal(values), [index]) for index, values in enumerate(jax.tree.leaves(precision.values))]
    found: dict[int, tuple[Operator, list[int]]] = {}

    def note(block: Operator, below: Any) -> None:
        members = jax.tree.leaves(below)
        values = jax.tree.leaves(block.values) if isinstance(block, Diagonal) else []
        for place, index in enumerate(members):
            found[index] = (Diagonal(values[place]), [index]) if values else (block, members)

    jax.tree.map(note, precision.blocks, numbers, is_leaf=is_operator)
    return [found[index] for index in range(len(found))]


def _spread(block: Operator, blocks: list[Any], layer: Layer, read: Linearised) -> Any:
    """Bases (or None) and inverse eigenvalues `[in, out]` of a layer; None where its leaves have no such form."""
    if isinstance(block, KroneckerEigen):
        if layer.outputs_first:
            return block.output_basis, block.input_basis, 1 / block.eigenvalues.T
        return block.input_basis, block.output_basis, 1 / block.eigenvalues
    if not isinstance(block, Diagonal):
        return None
    size, values = read.leaves[layer.kernel].size, 1 / jnp.ravel(block.values)
    outputs = _width(read, layer)
    matrix = values.reshape(outputs, size // outputs).T if layer.outputs_first else values.reshape(-1, outputs)
    if layer.bias is not None:
        of_bias = blocks[layer.bias][0]
        if not isinstance(of_bias, Diagonal):
            return None
        matrix = jnp.concatenate([1 / jnp.ravel(of_bias.values)[None], matrix])
    return None, None, matrix


def _width(read: Linearised, layer: Layer) -> int:
    site = read.sites[layer.site]
    shape = read.program.avals[site.base].shape
    return int(np.prod([shape[axis] for axis in places(read.program, site)[1]]))


def _seen(read: Linearised, layer: Layer, cotangents: Array) -> tuple[Array, Array]:
    inputs, outputs = views(read, layer, cotangents)
    if layer.bias is not None:
        ones = jnp.ones((*inputs.shape[:2], 1), inputs.dtype)
        inputs = jnp.concatenate([ones, inputs], axis=2)
    return inputs, outputs


def _of_layer(spread: tuple[Any, Any, Array], inputs: Array, cotangents: Array, marginal: bool) -> Array:
    """One layer's part, from inputs `[N, P, in]` and cotangents `[K, N, P, out]`, both rotated first."""
    first, second, inverse = spread
    if first is not None:
        inputs = jnp.matmul(inputs, first, precision=_EXACT)
        cotangents = jnp.matmul(cotangents, second, precision=_EXACT)
    if inputs.shape[1] == 1:
        inner = jnp.matmul(inputs[:, 0] ** 2, inverse, precision=_EXACT)
        d = cotangents[:, :, 0]
        if marginal:
            return jnp.einsum("no,kno->nk", inner, d**2, precision=_EXACT)
        scaled = jnp.moveaxis(d, 0, 1) * jnp.sqrt(inner)[:, None, :]
        return jnp.einsum("nko,nlo->nkl", scaled, scaled, precision=_EXACT)
    root = jnp.sqrt(inverse)

    # Row after row: what is formed is one row's Jacobian of one layer.
    def of_row(row: tuple[Array, Array]) -> Array:
        a, d = row
        jacobian = jnp.einsum("pi,kpo->kio", a, d, precision=_EXACT) * root[None]
        flat = jacobian.reshape(jacobian.shape[0], -1)
        return jnp.sum(flat**2, axis=1) if marginal else jnp.matmul(flat, flat.T, precision=_EXACT)

    return jax.lax.map(of_row, (inputs, jnp.moveaxis(cotangents, 0, 1)))


def _of_leaves(block: Operator, members: list[int], outputs: Any, mean: Params, x: Array, marginal: bool) -> Array:
    """The part of some leaves, by their own Jacobian."""
    leaves, structure = jax.tree.flatten(mean)

    def at(chosen: list[Array], row: Array) -> Array:
        whole = list(leaves)
        for index, leaf in zip(members, chosen, strict=True):
            whole[index] = leaf
        return outputs(structure.unflatten(whole), row)

    chosen = [leaves[index] for index in members]
    rooted = lambda jacobian: jax.vmap(lambda a: tree.ravel(_solved(block, a))[0])(jacobian)

    def of_row(row: Array) -> Array:
        jacobian = jax.jacrev(at)(chosen, row)
        flat = jax.vmap(lambda a: tree.ravel(a)[0])(jacobian)
        if marginal:
            return jnp.sum(flat * rooted(jacobian), axis=1)
        found = jnp.matmul(flat, rooted(jacobian).T, precision=_EXACT)
        return (found + found.T) / 2

    return jax.vmap(of_row)(x)


def _solved(block: Operator, a: list[Array]) -> Any:
    if isinstance(block, Diagonal) and len(a) == 1:
        return [a[0] / block.values]
    return block.solve(a)


def _by_jacobian(outputs: Any, precision: Operator, mean: Params, x: Array, marginal: bool) -> tuple[Array, Array]:
    """Mean and covariance by the rows' Jacobians: a dense matrix solves for those of all rows at once."""
    if not isinstance(precision, Cholesky):

        def at(row: Array) -> tuple[Array, Array]:
            jacobian = jax.jacrev(outputs)(mean, row)
            spread = jax.vmap(precision.solve)(jacobian)
            if marginal:
                return outputs(mean, row), jax.vmap(tree.dot)(jacobian, spread)
            covariance = jax.vmap(lambda a: jax.vmap(lambda b: tree.dot(a, b))(spread))(jacobian)
            return outputs(mean, row), (covariance + covariance.T) / 2

        return jax.vmap(at)(x)

    def flat(row: Array) -> tuple[Array, Array]:
        jacobian = jax.jacrev(outputs)(mean, row)
        return outputs(mean, row), jax.vmap(lambda a: tree.ravel(a)[0])(jacobian)

    f, jacobian = jax.vmap(flat)(x)
    rows, width, size = jacobian.shape
    white = solve_triangular(precision.root, jacobian.reshape(rows * width, size).T, lower=True)
    return f, _squared(jnp.moveaxis(white.reshape(size, rows, width), 0, 1), marginal)


def _squared(white: Array, marginal: bool) -> Array:
    """Vᵀ V of every row, for V `[N, D, K]`, or its diagonal."""
    if marginal:
        return jnp.sum(white**2, axis=1)
    return jnp.einsum("ndk,ndl->nkl", white, white, precision=_EXACT)
