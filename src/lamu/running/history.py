"""What is kept of a run: the numbers of every step, the validations, and a sampler's draws."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from lamu.protocol import Info, Traits
from lamu.running.draws import DrawsInMemory, DrawsOnDisk
from lamu.running.thinning import count

__all__ = ["History"]

_OF_STEPS = ("loss", "residual")
_OF_VALIDATIONS = ("validation_step", "validation_nll")


class History:
    """The record of a run's steps, in the order in which they were taken."""

    # `like`: the shapes of one draw (`jax.ShapeDtypeStruct`), for a sampler; None otherwise.

    def __init__(self, traits: Traits, like: Any = None, folder: str | os.PathLike[str] | None = None) -> None:
        self._columns: dict[str, list[np.ndarray]] = {name: [] for name in (*_OF_STEPS, *_OF_VALIDATIONS)}
        self._draws: Any = None
        if like is not None and traits.length is not None:
            total = count(traits, traits.length)
            self._draws = DrawsInMemory(like) if folder is None else DrawsOnDisk(like, total, folder)
        self.steps = 0

    def reserve(self) -> None:
        """Makes the files of draws that are written to a folder, before the first of them."""
        if isinstance(self._draws, DrawsOnDisk):
            self._draws.reserve()

    def add(self, info: Info) -> None:
        """Adds a block of steps, or a single one; of a sampler's draws those that are kept, `[kept, ...]`."""
        loss = np.atleast_1d(np.asarray(info.loss))
        if info.draw is not None:
            draws = jax.tree.map(np.asarray, info.draw)
            if self._draws is None:  # of an algorithm whose length the caller says
                self._draws = DrawsInMemory(jax.tree.map(lambda leaf: leaf[0], draws))
            self._draws.add(draws)
        self._columns["loss"].append(loss)
        self._columns["residual"].append(np.broadcast_to(np.asarray(info.residual), loss.shape))
        self.steps += len(loss)

    def validated(self, nll: float) -> None:
        """Adds a validation after the steps so far: the negative log predictive density, in nats a row."""
        self._columns["validation_step"].append(np.array([self.steps]))
        self._columns["validation_nll"].append(np.array([nll]))

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """Loss and residual, one entry a step; the steps and results of validations, where there were any."""
        joined = {name: np.concatenate([np.empty(0), *parts]) for name, parts in self._columns.items()}
        joined["validation_step"] = joined["validation_step"].astype(int)
        return {name: values for name, values in joined.items() if name in _OF_STEPS or len(values)}

    @property
    def last(self) -> dict[str, float]:
        """The last entry of each column."""
        return {name: float(parts[-1][-1]) for name, parts in self._columns.items() if parts}

    @property
    def finite(self) -> bool:
        """Whether the last losses are finite."""
        return not self._columns["loss"] or bool(np.isfinite(self._columns["loss"][-1]).all())

    @property
    def first_bad(self) -> int:
        """The number of the first step whose loss is not finite."""
        return int(np.flatnonzero(~np.isfinite(self.columns["loss"]))[0])

    @property
    def trace(self) -> Any:
        """The kept draws, leaves `[draws, ...]`; None where there is none."""
        return None if self._draws is None else self._draws.trace

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns everything as named arrays, for a checkpoint; of draws on disk how many there are."""
        return {**self.columns, **({} if self._draws is None else self._draws.arrays())}

    def restore(self, arrays: Mapping[str, np.ndarray], structure: Any = None) -> None:
        """Takes over what `arrays` returned."""
        for name, parts in self._columns.items():
            parts[:] = [np.asarray(arrays[name])] if len(arrays.get(name, ())) else []
        if self._draws is None and "draw 0" in arrays:
            leaves = [arrays[f"draw {i}"][0] for i in range(structure.num_leaves)]
            self._draws = DrawsInMemory(jax.tree.unflatten(structure, leaves))
        if self._draws is not None:
            self._draws.restore(arrays)
        self.steps = sum(len(part) for part in self._columns["loss"])
