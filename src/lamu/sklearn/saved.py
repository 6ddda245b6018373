"""How an estimator is saved: what it has learned, and the parameters that its answers need, without pickle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from lamu import store
from lamu.record import encode

__all__ = ["Saved"]


class Saved:
    """A mixin with `save`, which `lamu.sklearn.load` reverses."""

    posterior_: Any

    @property
    def _saved_parameters(self) -> dict[str, Any]:
        """The constructor's parameters that a folder keeps: numbers, words and None."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes what was learned as a folder of JSON and plain arrays, without pickle.

        Args:
            path: the folder to make.

        Returns:
            Its path. `lamu.sklearn.load` reads it.

        Raises:
            FileExistsError: if there is something at `path`.
            sklearn.exceptions.NotFittedError: before `fit`.
        """
        check_is_fitted(self)
        arrays: dict[str, np.ndarray] = {}
        names = sorted(name for name in vars(self) if name.endswith("_") and not name.startswith("_"))
        learned = {name: _plain(getattr(self, name)) for name in names if name != "posterior_"}
        content = {
            "estimator": type(self).__name__,
            "parameters": self._saved_parameters,
            "learned": encode(learned, arrays, "learned"),
            "posterior": encode(self.posterior_, arrays, "posterior"),
        }
        return store.write(path, content, arrays)


def _plain(value: Any) -> Any:
    """Returns a learned attribute as what a file holds: lists of words in the place of arrays of objects."""
    if isinstance(value, np.dtype):
        return value.name
    return value.tolist() if isinstance(value, np.ndarray) and value.dtype == object else value
