"""Distance in feature space: how far a row's features lie from those of every class that training has seen."""

# The features are what the last layer reads. The outputs are linear in its weights, so that the gradient of an output
# by them is the features themselves, for any network that says which weights its head has.

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu import memory, tree
from lamu.posterior import Posterior
from lamu.predictives.chunking import in_chunks
from lamu.typing import Array

__all__ = ["Mahalanobis", "mahalanobis"]


@dataclass(frozen=True)
class Mahalanobis:
    r"""Normal distributions of the features, one a class, with a covariance in common.

    Attributes:
        posterior: whose mean makes features of inputs.
        centres: \(\mu_c\), `[classes, D]`; one for a regression.
        root: a matrix R with \(R R^\top = \Sigma^{-1}\), `[D, D]`.
        columns: which numbers of the head's gradient vary, and are features, `[D]`.

    Examples:
        >>> import numpy as np
        >>> from lamu.scores import Mahalanobis
        >>> known = Mahalanobis(None, np.zeros((1, 2)), np.eye(2), np.arange(2))
        >>> known.distances(np.array([[3.0, 4.0]])).tolist()
        [[25.0]]
    """

    posterior: Any
    centres: np.ndarray
    root: np.ndarray
    columns: np.ndarray

    def score(self, x: Any) -> np.ndarray:
        r"""Returns \(\min_c (\phi - \mu_c)^\top \Sigma^{-1} (\phi - \mu_c)\), `[N]`; higher is stranger.

        Args:
            x: inputs `[N, ...]`. Rows like those of training have the mean D, the number of features, at most.
        """
        return self.distances(_features(self.posterior, x)[:, self.columns]).min(axis=1)

    def distances(self, features: np.ndarray) -> np.ndarray:
        """Returns the squared distance of features from every class, `[N, classes]`.

        Args:
            features: `[N, D]`.
        """
        white, centres = features @ self.root, self.centres @ self.root
        return np.stack([np.sum((white - centre) ** 2, axis=1) for centre in centres], axis=1)


def mahalanobis(posterior: Posterior, x: Any, y: Any) -> Mahalanobis:
    r"""Returns what scores inputs by the distance of their features from those of training rows.

    \[ \mu_c = \frac1{N_c} \sum_{y_i = c} \phi_i, \qquad \Sigma = \frac1N \sum_c \sum_{y_i = c}
       (\phi_i - \mu_c)(\phi_i - \mu_c)^\top \]

    with φ what the head reads at the posterior's mean, and Σ shrunk towards its mean variance (Ledoit & Wolf 2004), so
    that it can be inverted where there are more features than rows. One forward pass a row, and one gradient of the
    head; the cube of the number of features once.

    Args:
        posterior: of any task, with one mode. A regression has one centre.
        x: training rows, `[N, ...]`.
        y: their targets, `[N]`.

    Returns:
        What scores other inputs, with `.score(x)`.

    Raises:
        ValueError: for too few rows, or a head that reads nothing that varies.
        AttributeError: for a belief with several modes; score its members.

    Source: Lee, Lee, Lee & Shin (2018), of the last layer alone.

    Examples:
        >>> import lamu, numpy as np
        >>> x, y = lamu.data.load("wine")
        >>> model = lamu.Model(lamu.networks.MLP((8,)), lamu.likelihoods.Categorical(3)).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.adam(1e-2), epochs=10).posterior
        >>> known = lamu.scores.mahalanobis(posterior, x, y)
        >>> bool(known.score(10 * x).mean() > known.score(x).mean())
        True
    """
    from sklearn.covariance import ledoit_wolf

    y = np.asarray(y)
    if len(y) != len(x) or len(y) < 3:
        raise ValueError(f"there are {len(x)} rows and {len(y)} targets; give one for each of three rows at least")
    gradients = _features(posterior, x)
    spread = np.ptp(gradients, axis=0)
    columns = np.flatnonzero(spread > 1e-6 * np.maximum(np.abs(gradients).max(axis=0), 1e-12))
    if not len(columns):
        raise ValueError("the features of all rows are the same, and no distance can be told; train the network first")
    features = gradients[:, columns]
    if not posterior.model.likelihood.support.has_classes:
        label = np.zeros(len(y), int)
    else:
        label = np.unique(y, return_inverse=True)[1]
    centres = np.stack([features[label == c].mean(axis=0) for c in range(label.max() + 1)])
    away = features - centres[label]
    # Features differ in scale: shrunk are their correlations.
    scale = np.sqrt(np.mean(away**2, axis=0))
    scale = np.where(scale > 0, scale, np.ptp(features, axis=0))  # constant within every class
    correlation, _ = ledoit_wolf(away / scale, assume_centered=True)
    values, vectors = np.linalg.eigh(correlation)
    root = vectors / np.sqrt(np.maximum(values, 1e-8 * values.max()))
    return Mahalanobis(posterior, centres, root / scale[:, None], columns)


def _features(posterior: Posterior, x: Any) -> np.ndarray:
    """Returns the gradient of the first output by the head's weights, `[N, weights that it depends on]`."""
    model, params = posterior.model, posterior.mean
    weights = model.complete(params["network"])
    head = [name for name in tree.paths(weights) if tree.matches(name, model.network.head)]
    free = tree.map_with_path(lambda name, leaf: leaf if name in head else None, weights)
    held = tree.map_with_path(lambda name, leaf: None if name in head else leaf, weights)
    x = np.asarray(x)
    x = x if np.issubdtype(x.dtype, np.floating) else x.astype(jnp.result_type(float))
    state = posterior.network_state
    whole = replace(model, frozen=None)
    width = jax.eval_shape(lambda row: whole.outputs({"network": weights, "likelihood": {}}, state, row)[0], x[:1])
    numbers = tree.dimension(free) // max(width.shape[1], 1)
    memory.demand(
        3 * 8.0 * len(x) * numbers,
        f"the {numbers:,} features of {len(x):,} rows",
        f"give {memory.limit() // (24 * max(numbers, 1)):,} of the rows",
    )
    row_bytes = 8 * (tree.dimension(free) + x[0].size)
    rows = int(np.clip(memory.budget() // row_bytes, 1, 1024))
    return np.asarray(in_chunks(partial(_gradients, whole, state, free, held, width.shape[1]), x, rows=rows), float)


@partial(jax.jit, static_argnums=4)
def _gradients(model: Any, state: Any, free: Any, held: Any, outputs: int, x: Array) -> Array:
    def first(free: Any, row: Array) -> Array:
        whole = jax.tree.map(lambda a, b: b if a is None else a, free, held, is_leaf=lambda leaf: leaf is None)
        return model.outputs({"network": whole, "likelihood": {}}, state, row[None])[0][0, 0]

    def of_row(row: Array) -> Array:
        leaves = jax.tree.leaves(jax.grad(first)(free, row))
        # A dense head has a column of weights for each output: the others' are zero.
        return jnp.concatenate(
            [(leaf[..., 0] if leaf.shape[-1:] == (outputs,) else leaf).reshape(-1) for leaf in leaves]
        )

    return jax.vmap(of_row)(x)
