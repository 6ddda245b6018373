"""The loss of a single row, for per-example gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from lamu.data.batch import Batch
from lamu.objective.batch_loss import BatchLoss
from lamu.typing import Array, Params, RandomKey

__all__ = ["dispersion_prior", "filled", "require_rows", "row_losses", "without_padding"]

Row: TypeAlias = Callable[[tuple[Params, Params], Any], Array]


def row_losses(loss: BatchLoss, key: RandomKey | None) -> tuple[Row, Any, Array]:
    r"""Returns a row's negative log likelihood as a function, the rows, and what each counts in the mean loss.

    \[ \bar\ell = \sum_i r_i\, \ell_i(\theta, \phi) - \tfrac1N \log p(\phi) - \dots, \qquad
       \ell_i = -\log p(y_i \mid x_i, \theta, \phi) \]

    with φ the dispersions. The power of the likelihood is in \(r_i\): it multiplies curvature once, as it does any
    Fisher information, not squared. Rows that count nothing are padding, whatever stands in them: they come out as
    copies of a row that counts. Every row has random layers' noise of its own.

    Args:
        loss: the mean loss on a batch.
        key: for random layers; None where there are none.

    Returns:
        The function of `(coordinates, rest)` and a row without a batch axis, the rows, and r, shape `[batch]`.

    Raises:
        TypeError: for a network whose rows mix.
        ValueError: (when the function is called) for a network with random layers without a key.

    Examples:
        >>> import jax, lamu
        >>> from lamu.objective import BatchLoss, Objective, NetworkParameters
        >>> from lamu.objective.curvature.rows import row_losses
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())
        >>> batch = lamu.data.Batch.of(jax.numpy.ones((4, 3)), jax.numpy.zeros(4))
        >>> params, state = model.init(jax.random.key(0), batch)
        >>> loss = BatchLoss(Objective(model, 4), batch, state, NetworkParameters(), {}, conjugate=True)
        >>> row, rows, weights = row_losses(loss, None)
        >>> row((params["network"], {}), jax.tree.map(lambda leaf: leaf[0], rows)).shape, weights.tolist()
        ((), [0.25, 0.25, 0.25, 0.25])
    """
    require_rows(loss)
    plain = replace(loss.objective, likelihood_power=1.0)

    def at(params: tuple[Params, Params], row: Any, key: RandomKey | None) -> Array:
        x, y, offset, _ = row
        one = Batch.of(x[None], jax.tree.map(lambda leaf: leaf[None], y), None if offset is None else offset[None])
        return plain.negative_log_likelihood(loss.space.join(*params), one, loss.network_state, key, train=True)[0]

    def row(params: tuple[Params, Params], row: Any) -> Array:
        if key is not None:
            return at(params, row, jax.random.fold_in(key, row[3]))
        try:
            return at(params, row, None)
        except Exception as error:
            try:  # Does the network only want a key?
                jax.eval_shape(lambda: at(params, row, jax.random.key(0)))
            except Exception:  # no: then the first error is the one to tell
                raise error from None
            raise ValueError(
                "the network has random layers and no key was given for them; pass key=jax.random.key(0), or a network "
                "without random layers"
            ) from error

    weights = loss.objective.row_factor(loss.batch)
    rows = (loss.batch.x, loss.batch.y, loss.batch.offset, jnp.arange(weights.shape[0], dtype=jnp.int32))
    return row, filled(rows, weights), weights


def require_rows(loss: BatchLoss) -> None:
    """Raises unless each row of the batch has a loss of its own.

    Args:
        loss: the mean loss on a batch.

    Raises:
        TypeError: for a network whose rows mix in training.
        ValueError: for inputs, targets, mask, weights or offsets of different lengths.

    Examples:
        >>> import jax, lamu
        >>> from lamu.objective import BatchLoss, Objective, NetworkParameters
        >>> from lamu.objective.curvature.rows import require_rows
        >>> network = lamu.networks.MLP((4,), normalise=lamu.networks.BatchNorm())
        >>> model = lamu.Model(network, lamu.likelihoods.Bernoulli())
        >>> batch = lamu.data.Batch.of(jax.numpy.ones((4, 3)), jax.numpy.zeros(4))
        >>> params, state = model.init(jax.random.key(0), batch)
        >>> try:
        ...     require_rows(BatchLoss(Objective(model, 4), batch, state, NetworkParameters(), {}, conjugate=True))
        ... except TypeError as error:
        ...     print(str(error).split(":")[0])
        gradients of single rows need a network without a state (batch statistics)
    """
    network = loss.objective.model.network
    if jax.tree.leaves(loss.network_state) or network.masked:
        raise TypeError(
            "gradients of single rows need a network without a state (batch statistics): where rows mix in training, "
            "none has a gradient of its own; use ivon(), a network without BatchNorm, or one whose statistics are "
            "held, lamu.networks.Evaluated(network, network_state)"
        )
    batch = loss.batch
    named = {"x": batch.x, "y": batch.y, "mask": batch.mask, "weight": batch.weight, "offset": batch.offset}
    sizes = {name: jnp.shape(leaf)[0] for name, part in named.items() for leaf in jax.tree.leaves(part)}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise ValueError(f"the batch's parts have different numbers of rows ({told}); give each the same leading axis")


def filled(rows: Any, weights: Array) -> Any:
    """Returns the rows, those of weight zero replaced by one that counts: NaN times zero would still be NaN.

    Args:
        rows: a pytree of arrays `[batch, ...]`.
        weights: what each row counts, `[batch]`.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.objective.curvature.rows import filled
        >>> filled(jnp.array([jnp.nan, 2.0]), jnp.array([0.0, 1.0])).tolist()
        [2.0, 2.0]
    """
    counts = weights != 0
    one = jnp.argmax(counts)

    def fill(leaf: Array) -> Array:
        leaf = jnp.asarray(leaf)
        there = counts.reshape(-1, *[1] * (leaf.ndim - 1))
        # Where no row counts, zeros: those of a batch of padding alone.
        other = jnp.where(counts[one], leaf[one], jnp.zeros_like(leaf[one]))
        return jnp.where(there, leaf, jnp.broadcast_to(other[None], leaf.shape))

    return jax.tree.map(fill, rows)


def without_padding(loss: BatchLoss) -> BatchLoss:
    """Returns the same loss with rows of weight zero `filled`.

    Args:
        loss: the mean loss on a batch.

    Examples:
        >>> import jax, jax.numpy as jnp, lamu
        >>> from lamu.objective import BatchLoss, Objective, NetworkParameters
        >>> from lamu.objective.curvature.rows import without_padding
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())
        >>> batch = lamu.data.Batch(jnp.array([[1.0], [jnp.nan]]), jnp.zeros(2), jnp.array([1.0, 0.0]), jnp.ones(2))
        >>> loss = BatchLoss(Objective(model, 4), batch, {}, NetworkParameters(), {}, conjugate=True)
        >>> without_padding(loss).batch.x.ravel().tolist()
        [1.0, 1.0]
    """
    batch = loss.batch
    x, y, offset = filled((batch.x, batch.y, batch.offset), loss.objective.row_factor(batch))
    return replace(loss, batch=replace(batch, x=x, y=y, offset=offset))


def dispersion_prior(loss: BatchLoss, coordinates: Params) -> tuple[Array, Params]:
    r"""Returns \(-\log p(\phi) / N\) of the dispersions' own prior, which no row has a share in, and its gradient.

    Args:
        loss: the mean loss on a batch.
        coordinates: θ.

    Examples:
        >>> import jax, lamu
        >>> from lamu.objective import BatchLoss, Objective, NetworkParameters
        >>> from lamu.objective.curvature.rows import dispersion_prior
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli())
        >>> batch = lamu.data.Batch.of(jax.numpy.ones((4, 3)), jax.numpy.zeros(4))
        >>> loss = BatchLoss(Objective(model, 4), batch, {}, NetworkParameters(), {}, conjugate=True)
        >>> float(dispersion_prior(loss, {})[0]) == 0.0, dispersion_prior(loss, {})[1]
        (True, {})
    """

    def negative_log_prior(rest: Params) -> Array:
        dispersions = loss.space.join(coordinates, rest)["likelihood"]
        return -loss.objective.model.likelihood.log_prior(dispersions) / loss.objective.data_size

    return jax.value_and_grad(negative_log_prior)(loss.rest)
