"""Oversampling of labelled rows, so that every batch contains some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

__all__ = ["oversample_labelled"]


def oversample_labelled(rows: Mapping[str, Any], category: str = "c", share: float = 0.25) -> dict[str, np.ndarray]:
    r"""Returns rows with labelled ones repeated, and weights that keep every sum over rows.

    A labelled row occurs k times with the weight 1/k, or its own over k, where k brings the copies nearest to the
    share. Of 60,000 rows with a hundred labels, a batch of 128 contains one label in five batches; after oversampling
    it contains 32, and the gradient of the same loss has less noise.

    Args:
        rows: data, arrays `[N, ...]` by name, including the category, NaN where a row has no label; optionally with
            `weight`.
        category: name of the category.
        share: share of the copies among all rows, above 0 and below 1.

    Returns:
        Arrays `[N + (k - 1) N_l, ...]` by name, with `weight`: first the rows without a label, then the copies. If the
        labelled share is already as large, k is one.

    Raises:
        ValueError: for a name that is not in the data, a share that is not between 0 and 1, or no label at all.

    Examples:
        >>> import numpy as np
        >>> from lamu.latent import oversample_labelled
        >>> data = oversample_labelled({"y": np.arange(4.0), "c": np.array([1.0, np.nan, np.nan, np.nan])}, share=0.4)
        >>> data["y"], data["weight"]
        (array([1., 2., 3., 0., 0.]), array([1. , 1. , 1. , 0.5, 0.5], dtype=float32))
    """
    if not 0 < share < 1:
        raise ValueError(f"share={share!r} is not a share of a batch; give one between 0 and 1, for instance 0.25")
    if category not in rows:
        raise ValueError(f"the rows have no category {category!r}; give one of {', '.join(map(repr, rows))}")
    is_labelled = ~np.isnan(np.asarray(rows[category], float))
    labelled, others = np.flatnonzero(is_labelled), np.flatnonzero(~is_labelled)
    if not len(labelled):
        raise ValueError(f"no row has a label in {category!r}; give some, NaN where a row has none")
    copies = max(1, round(share / (1 - share) * len(others) / len(labelled)))
    order = np.concatenate([others, np.repeat(labelled, copies)])
    weight = np.asarray(rows.get("weight", np.ones(len(is_labelled)))) / np.where(is_labelled, copies, 1)
    return jax.tree.map(lambda part: np.asarray(part)[order], {**rows, "weight": weight.astype(np.float32)})
