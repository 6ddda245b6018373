"""Rows of which few have a label, so that every batch holds some that do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

__all__ = ["oversample_labelled"]


def oversample_labelled(rows: Mapping[str, Any], category: str = "c", share: float = 0.25) -> dict[str, np.ndarray]:
    r"""Returns rows with those that have a label repeated, and weights that leave every sum over rows as it was.

    A row with a label comes k times with the weight 1/k, or its own over k, and k is the number by which copies are
    nearest to the share. A batch of 128 of 60,000 rows with a hundred labels holds one in five batches; of the result
    it holds 32, and the gradient of the same loss has less noise.

    Args:
        rows: data, arrays `[N, ...]` by name, with the category, NaN where a row has no label; `weight` may stand
            beside them.
        category: its name.
        share: of the copies among all rows, above 0 and below 1.

    Returns:
        Arrays `[N + (k - 1) N_l, ...]` by name, with `weight`: first the rows without a label, then the copies. Where
        labels are as many as the share already, k is one.

    Raises:
        ValueError: for a name that the data lack, a share that is not between 0 and 1, or no label at all.

    Examples:
        >>> import numpy as np
        >>> from lamu.latent import oversample_labelled
        >>> data = oversample_labelled({"y": np.arange(4.0), "c": np.array([1.0, np.nan, np.nan, np.nan])}, share=0.4)
        >>> data["y"], data["weight"]
        (array([1., 2., 3., 0., 0.]), array([1. , 1. , 1. , 0.5, 0.5], dtype=float32))
    """
    if not 0 < share < 1:
        raise ValueError(f"share={share!r} is no share of a batch; give one between 0 and 1, for instance 0.25")
    if category not in rows:
        raise ValueError(f"the rows have no category {category!r}; give one of {', '.join(map(repr, rows))}")
    there = ~np.isnan(np.asarray(rows[category], float))
    known, others = np.flatnonzero(there), np.flatnonzero(~there)
    if not len(known):
        raise ValueError(f"no row has a label in {category!r}; give some, NaN where a row has none")
    copies = max(1, round(share / (1 - share) * len(others) / len(known)))
    order = np.concatenate([others, np.repeat(known, copies)])
    weight = np.asarray(rows.get("weight", np.ones(len(there)))) / np.where(there, copies, 1)
    return jax.tree.map(lambda part: np.asarray(part)[order], {**rows, "weight": weight.astype(np.float32)})
