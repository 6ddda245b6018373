"""How close a prediction comes to another one of the same rows, for instance to that of long chains."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["agreement", "agreement_of_rows", "total_variation", "total_variation_of_rows"]


def agreement(pred: Any, reference: Any) -> float:
    r"""Returns the fraction of rows for which both predictions have the same most probable class.

    \[ \frac1N \sum_i \mathbf 1\Big[\arg\max_k p_{ik} = \arg\max_k p^{\mathrm{ref}}_{ik}\Big] \]

    (Izmailov et al. 2021.) Of two equal probabilities the first class counts.

    Args:
        pred: a prediction of classes, or of a binary target.
        reference: a prediction of the same rows.

    Returns:
        A fraction, 0 to 1; higher is closer.

    Raises:
        ValueError: if either is a regression, or the shapes differ.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import agreement
        >>> one = SimpleNamespace(support=TwoClasses(), mean=np.array([0.9, 0.2]))
        >>> agreement(one, SimpleNamespace(support=TwoClasses(), mean=np.array([0.6, 0.7])))
        0.5
    """
    return float(np.mean(agreement_of_rows(pred, reference)))


def agreement_of_rows(pred: Any, reference: Any) -> np.ndarray:
    """Returns 1 where both have the same most probable class, else 0, `[N]`, whose mean is `agreement`."""
    p, q = _probabilities("agreement", pred, reference)
    return (np.argmax(p, axis=1) == np.argmax(q, axis=1)).astype(float)


def total_variation(pred: Any, reference: Any) -> float:
    r"""Returns the mean distance of two predictions' class probabilities in total variation.

    \[ \frac1N \sum_i \tfrac12 \sum_k \big| p_{ik} - p^{\mathrm{ref}}_{ik} \big| \]

    (Izmailov et al. 2021.)

    Args:
        pred: a prediction of classes, or of a binary target.
        reference: a prediction of the same rows.

    Returns:
        A difference of probabilities, 0 to 1; lower is closer.

    Raises:
        ValueError: if either is a regression, or the shapes differ.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import total_variation
        >>> one = SimpleNamespace(support=TwoClasses(), mean=np.array([0.9, 0.2]))
        >>> round(total_variation(one, SimpleNamespace(support=TwoClasses(), mean=np.array([0.6, 0.7]))), 3)
        0.4
    """
    return float(np.mean(total_variation_of_rows(pred, reference)))


def total_variation_of_rows(pred: Any, reference: Any) -> np.ndarray:
    """Returns each row's distance in total variation, `[N]`, whose mean is `total_variation`."""
    p, q = _probabilities("total_variation", pred, reference)
    return np.sum(np.abs(p - q), axis=1) / 2


def _probabilities(score: str, pred: Any, reference: Any) -> tuple[np.ndarray, np.ndarray]:
    shapes = np.shape(pred.mean), np.shape(reference.mean)
    for given in (pred, reference):
        if not given.support.has_classes:
            raise ValueError(f"{score} is for classes, and a prediction of numbers was given")
    if shapes[0] != shapes[1]:
        raise ValueError(f"{score} compares predictions of the same rows, and these have the shapes {shapes}")
    if not shapes[0][0]:
        raise ValueError(f"{score} is an average over rows, and there are none; give at least one")
    means = (np.asarray(given.mean, float) for given in (pred, reference))
    one, other = (np.stack([1 - p, p], axis=1) if p.ndim == 1 else p for p in means)
    return one, other
