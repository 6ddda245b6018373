r"""Matrix-free products of curvatures with vectors, such as \(v \mapsto \nabla^2\bar\ell\, v\)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.objective.batch_loss import BatchLoss
from lamu.objective.curvature.interface import fisher_information
from lamu.typing import Array, Inputs, Params, PyTree, RandomKey

__all__ = [
    "dispersion_prior",
    "gauss_newton_product",
    "hessian_product",
    "require_rows",
    "row_losses",
    "without_padding",
]


Row: TypeAlias = Callable[[tuple[Params, Params], PyTree], Array]


def row_losses(loss: BatchLoss, key: RandomKey | None) -> tuple[Row, Inputs, Array]:
    """Returns a row's negative log likelihood as a function, the rows, and their weights in the mean loss."""
    # \[ \bar\ell = \sum_i r_i\, \ell_i(\theta, \phi) - \tfrac1N \log p(\phi) - \dots, \qquad
    #    \ell_i = -\log p(y_i \mid x_i, \theta, \phi) \]
    #
    # with φ the dispersions. The likelihood's power is in \(r_i\): it multiplies the curvature once and is not squared,
    # as for any Fisher information. Random layers have separate noise in every row.
    require_rows(loss)
    plain = replace(loss.objective, likelihood_power=1.0)

    def at(params: tuple[Params, Params], row: PyTree, key: RandomKey | None) -> Array:
        x, y, offset, _ = row
        single = Batch.of(x[None], jax.tree.map(lambda leaf: leaf[None], y), None if offset is None else offset[None])
        return plain.negative_log_likelihood(loss.space.join(*params), single, loss.network_state, key, train=True)[0]

    def row(params: tuple[Params, Params], row: PyTree) -> Array:
        if key is not None:
            return at(params, row, jax.random.fold_in(key, row[3]))
        try:
            return at(params, row, None)
        except Exception as error:
            try:  # check whether the network only needs a key
                jax.eval_shape(lambda: at(params, row, jax.random.key(0)))
            except Exception:  # it does not: raise the first error
                raise error from None
            raise ValueError(
                "the network has random layers and no key was given for them; pass key=jax.random.key(0), or a network "
                "without random layers"
            ) from error

    weights = loss.objective.row_factor(loss.batch)
    batch = loss.batch.filled()
    return row, (batch.x, batch.y, batch.offset, jnp.arange(weights.shape[0], dtype=jnp.int32)), weights


def require_rows(loss: BatchLoss) -> None:
    """Raises a TypeError unless the rows of the batch are independent."""
    network = loss.objective.model.network
    if jax.tree.leaves(loss.network_state) or network.masked:
        raise TypeError(
            "gradients of single rows need a network without a state (batch statistics): where rows mix in training, "
            "a row has no gradient of its own; use ivon(), a network without BatchNorm, or fixed statistics, "
            "lamu.networks.Evaluated(network, network_state)"
        )
    batch = loss.batch
    named = {"x": batch.x, "y": batch.y, "mask": batch.mask, "weight": batch.weight, "offset": batch.offset}
    sizes = {name: jnp.shape(leaf)[0] for name, part in named.items() for leaf in jax.tree.leaves(part)}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise ValueError(f"the batch's parts have different numbers of rows ({told}); give each the same leading axis")


def without_padding(loss: BatchLoss) -> BatchLoss:
    """Returns the same loss with rows of weight zero `filled`."""
    return replace(loss, batch=loss.batch.filled())


def dispersion_prior(loss: BatchLoss, coordinates: Params) -> tuple[Array, Params]:
    r"""Returns \(-\log p(\phi) / N\) of the dispersions' prior, which is separate from rows, and its gradient."""

    def negative_log_prior(rest: Params) -> Array:
        dispersions = loss.space.join(coordinates, rest)["likelihood"]
        return -loss.objective.model.likelihood.log_prior(dispersions) / loss.objective.data_size

    return jax.value_and_grad(negative_log_prior)(loss.rest)


def hessian_product(loss: BatchLoss, theta: Params, key: RandomKey | None = None) -> Callable[[Params], Params]:
    r"""Returns \(v \mapsto \nabla^2\bar\ell(\theta)\, v\): one backward pass, differentiated along v."""
    # The prior is included where the loss includes it. The passes are linearised once: each product costs about two
    # gradients.
    #
    # Source: Pearlmutter (1994).
    loss = without_padding(loss)
    return jax.linearize(lambda point: loss.gradient(point, key).coordinates, theta)[1]


def gauss_newton_product(loss: BatchLoss, theta: Params) -> Callable[[Params], Params]:
    r"""Returns \(v \mapsto \sum_i r_i J_i^\top \Lambda_i J_i v\) by forward and backward passes, without a Jacobian."""
    # \(\Lambda_i\) is the Fisher information of row i about f, and \(r_i\) the row's weight in the mean. A prior that
    # is a part of the loss adds its own diagonal curvature, as in `GaussNewton`. The network is in evaluation mode.
    #
    # Source: Schraudolph (2002).
    loss = without_padding(loss)
    f, forwards = jax.linearize(loss.outputs, theta)
    backwards = jax.linear_transpose(forwards, theta)
    information, prior = fisher_information(loss, theta, f).matrix(), loss.prior_curvature(theta)

    def product(v: Params) -> Params:
        (likelihood,) = backwards(jnp.einsum("bkl,bl->bk", information, forwards(v)))
        return likelihood if prior is None else tree.add(likelihood, jax.tree.map(jnp.multiply, prior, v))

    return product
