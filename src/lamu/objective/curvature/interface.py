"""Base classes of curvatures and of curvatures in the outputs, and products of curvatures with vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp

from lamu import tree
from lamu.data.batch import Batch
from lamu.families import Gaussian
from lamu.likelihoods import Likelihood
from lamu.objective.batch_loss import BatchLoss, Gradient
from lamu.objective.objective import in_chunks
from lamu.operators import AnyStructure
from lamu.record import record
from lamu.typing import Array, Inputs, OperatorTree, Params, PyTree, RandomKey, State, Targets

__all__ = [
    "Curvature",
    "Evaluation",
    "OutputHessian",
    "dispersion_prior",
    "evaluated",
    "fisher_information",
    "gauss_newton_product",
    "hessian_product",
    "require_rows",
    "row_losses",
    "slopes",
    "without_padding",
]


# The Fisher information itself (`GaussNewton`), outer products of gradients with sampled targets
# (`SampledGaussNewton`), or of the data's own gradients (`SquaredGradients`); a structure takes it through the network
# to the weights.


@dataclass(frozen=True)
class OutputHessian:
    r"""The curvature \(r_i \Lambda_i\) in the outputs of a batch, in several forms."""

    likelihood: Likelihood  # p(y | f)
    dispersion: Params  # its parameters
    f: Array  # the outputs `[batch, outputs]`
    weights: Array  # r, `[batch]`
    # D with \(\Lambda_i = \sum_s d_{is} d_{is}^\top\), `[batch, outputs, draws]`; None for the information.
    slopes: Array | None = None

    def by_position(self) -> OutputHessian:
        """Returns the information with positions as rows; the slopes of rows are unchanged."""
        positions = self.likelihood.n_positions
        if positions == 1 or self.slopes is not None:
            return self
        f = self.f.reshape(self.f.shape[0] * positions, -1)
        return replace(self, likelihood=self.likelihood.of_position, f=f, weights=jnp.repeat(self.weights, positions))

    def root(self) -> Array:
        """Returns R with R Rᵀ = r Λ for every row, `[batch, outputs, rank]`."""
        root = self.likelihood.information_root(self.dispersion, self.f) if self.slopes is None else self.slopes
        return root * jnp.sqrt(self.weights).astype(root.dtype)[:, None, None]

    def matrix(self) -> Array:
        """Returns r Λ for every row, `[batch, outputs, outputs]`."""
        weights = self.weights.astype(self.f.dtype)[:, None, None]
        if self.slopes is None:
            return self.likelihood.information(self.dispersion, self.f) * weights
        return jnp.einsum("bks,bls->bkl", self.slopes, self.slopes) * weights

    def diagonal(self) -> Array:
        """Returns the diagonal of r Λ for every row, `[batch, outputs]`."""
        weights = self.weights.astype(self.f.dtype)[:, None]
        if self.slopes is None:
            return self.likelihood.information_diagonal(self.dispersion, self.f) * weights
        return jnp.sum(self.slopes**2, axis=2) * weights

    def blocks(self) -> Array:
        """Returns the information in its diagonal blocks of outputs, `[batch * blocks, size, size]`."""
        blocks = self.likelihood.information_blocks(self.dispersion, self.f)
        weights = self.weights.astype(self.f.dtype)
        return blocks * jnp.repeat(weights, blocks.shape[0] // weights.shape[0])[:, None, None]

    def sum(self) -> Array:
        """Returns the sum of r Λ over the rows, `[outputs, outputs]`."""
        if self.slopes is None:
            return self.likelihood.information_sum(self.dispersion, self.f, self.weights)
        root = jnp.moveaxis(self.root(), 1, 0).reshape(self.f.shape[1], -1)
        return jnp.matmul(root, root.T, precision=jax.lax.Precision.HIGHEST)


def fisher_information(loss: BatchLoss, theta: Params, f: Array) -> OutputHessian:
    """Returns every row's Fisher information about f, times the row's weight in the mean loss."""
    dispersion = loss.space.join(theta, loss.rest)["likelihood"]
    likelihood = loss.objective.model.likelihood
    weights = likelihood.counted(dispersion, f, loss.batch.y, loss.objective.row_factor(loss.batch))
    return OutputHessian(likelihood, dispersion, f, weights)


def slopes(likelihood: Likelihood, dispersion: Params, f: Array, y: Array) -> Array:
    """Returns the gradient of every row's log likelihood in its outputs, `[batch, outputs]`."""
    return jax.grad(lambda f: jnp.sum(likelihood.log_prob(dispersion, f, y)))(f)


@record
class Evaluation:
    """Value, gradient and curvature of the mean loss: at a point, or averaged over a belief."""

    value: Array  # \(\bar\ell\) in nats a row
    gradient: Params  # \(\nabla\bar\ell\) in the belief's coordinates
    rest: Params  # the gradient in the rest (dispersions)
    curvature: OperatorTree  # an approximation of \(\nabla^2\bar\ell\); None where the covariance is fixed
    network_state: State  # the network's new state

    @classmethod
    def of(cls, gradient: Gradient, curvature: OperatorTree) -> Evaluation:
        """Returns value and gradient at a point with a curvature."""
        return cls(gradient.value, gradient.coordinates, gradient.rest, curvature, gradient.network_state)


@runtime_checkable
class Curvature(Protocol):
    r"""Base class of approximations of \(\nabla^2\bar\ell\) in the structure of the belief's precision."""

    departure: str | Any = ""  # the departure from the rule, in words; empty where there is none

    @property
    def name(self) -> str:
        """The name in tables."""
        return type(self).__name__

    def evaluate(
        self, loss: BatchLoss, theta: Params, belief: Gaussian, structure: AnyStructure, key: RandomKey | None
    ) -> Evaluation:
        """Returns value, gradient and curvature of the mean loss at θ."""
        ...

    # Defaults.

    def accumulates(self, structure: AnyStructure) -> str:
        """Returns how it accumulates over microbatches: "rows", "gradient", or "" where it needs all rows at once."""
        # "rows": the curvature is linear in the rows and is summed. "gradient": the loss or the curvature itself
        # accumulates.
        return ""

    def output_hessian(
        self, likelihood: Likelihood, dispersion: Params, f: Array, y: Targets, weights: Array, key: RandomKey
    ) -> OutputHessian | None:
        r"""Returns the curvature in the outputs if this one is \(\sum_i r_i J_i^\top \Lambda_i J_i\); else None."""
        return None


def evaluated(
    curvature: Curvature,
    loss: BatchLoss,
    theta: Params,
    belief: Gaussian,
    structure: AnyStructure,
    key: RandomKey | None,
) -> Evaluation:
    """Returns the evaluation on a batch, accumulated over microbatches where the objective has them."""
    parts = loss.objective.microbatches(loss.batch)
    way = getattr(curvature, "accumulates", lambda _: "")(structure) if parts > 1 else "gradient"
    if way == "gradient":
        return curvature.evaluate(loss, theta, belief, structure, key)
    if way != "rows":
        name = structure.__name__ if isinstance(structure, type) else type(structure).__name__
        raise ValueError(
            f"{curvature.name} in the structure {name} needs all rows of a batch at once; leave microbatch_size out "
            "and lower batch_size, or take an algorithm with a diagonal precision or Kronecker factors"
        )
    # The means over a batch are those of its microbatches, weighted by their shares of the real rows; this also holds
    # for a prior that is in each. A Kronecker product is not linear in the rows, but its factors are: the output factor
    # carries the scale, and the input factor is a weighted mean.
    rows, objective = jnp.maximum(loss.batch.count, 1), loss.objective
    weight = jnp.maximum(jnp.sum(objective.row_factor(loss.batch)), jnp.finfo(loss.batch.weight.dtype).tiny)

    def of(state: State, piece: Batch, number: Array) -> tuple[Evaluation, State]:
        own = None if key is None else jax.random.fold_in(key, number)
        evaluation = curvature.evaluate(replace(loss, batch=piece, network_state=state), theta, belief, structure, own)
        share = piece.count / rows
        by_weight = share * jnp.sum(objective.row_factor(piece)) / weight

        def shared(path: Any, leaf: Array) -> Array:
            is_mean = jax.tree_util.keystr(path[-1:], simple=True) == "input_factor"
            return leaf * (by_weight if is_mean else share).astype(leaf.dtype)

        value, gradient, rest = tree.scale((evaluation.value, evaluation.gradient, evaluation.rest), share)
        matrix = jax.tree_util.tree_map_with_path(shared, evaluation.curvature)
        return Evaluation(value, gradient, rest, matrix, {}), evaluation.network_state

    def add(carry: tuple[Evaluation, State], now: tuple[Batch, Array]) -> tuple[tuple[Evaluation, State], None]:
        part, state = of(carry[1], *now)
        return (jax.tree.map(jnp.add, carry[0], part), state), None

    pieces = (in_chunks(loss.batch, parts), jnp.arange(parts, dtype=jnp.int32))
    first = jax.eval_shape(lambda now: of(loss.network_state, *now)[0], jax.tree.map(lambda leaf: leaf[0], pieces))
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), first)
    total, state = jax.lax.scan(add, (nothing, loss.network_state), pieces)[0]
    return replace(total, network_state=state)


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
