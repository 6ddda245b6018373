"""What is kept of a run: the numbers of every step, the validations, and a sampler's draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.protocol import Info

__all__ = ["History"]

_OF_STEPS = ("loss", "residual")
_OF_VALIDATIONS = ("validation_step", "validation_nll")


class History:
    """The record of a run's steps, in the order in which they were taken.

    Args:
        warmup: how many steps come before the first draw that counts.

    Examples:
        >>> import numpy as np
        >>> from lamu.running.history import History
        >>> from lamu.protocol import Info
        >>> history = History(warmup=0)
        >>> history.add(Info(loss=np.array([2.0, 1.0])))
        >>> history.steps, history.last["loss"]
        (2, 1.0)
    """

    def __init__(self, warmup: int) -> None:
        self._warmup = warmup
        self._columns: dict[str, list[np.ndarray]] = {name: [] for name in (*_OF_STEPS, *_OF_VALIDATIONS)}
        self._draws: list[list[np.ndarray]] = []
        self._structure: Any = None
        self.steps = 0

    def add(self, info: Info) -> None:
        """Adds a block of steps, or a single one."""
        loss = np.atleast_1d(np.asarray(info.loss))
        if info.draw is not None:
            dropped = max(0, min(self._warmup - self.steps, len(loss)))
            leaves, self._structure = jax.tree.flatten(info.draw)
            if dropped < len(loss):
                self._draws.append([np.asarray(leaf[dropped:]) for leaf in leaves])
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
        """The draws after the warm-up, leaves `[draws, ...]`; None where there is none."""
        if not self._draws:
            return None
        leaves = [jnp.asarray(np.concatenate(parts)) for parts in zip(*self._draws, strict=True)]
        return jax.tree.unflatten(self._structure, leaves)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns everything as named arrays, for a checkpoint."""
        draws = {f"draw {i}": np.concatenate(parts) for i, parts in enumerate(zip(*self._draws, strict=True))}
        return {**self.columns, **draws}

    def restore(self, arrays: Mapping[str, np.ndarray], structure: Any) -> None:
        """Takes over what `arrays` returned.

        Args:
            arrays: the named arrays.
            structure: the structure of a draw; None for an algorithm that yields none.
        """
        for name, parts in self._columns.items():
            parts[:] = [np.asarray(arrays[name])] if len(arrays.get(name, ())) else []
        draws = [np.asarray(arrays[f"draw {i}"]) for i in range(len(arrays)) if f"draw {i}" in arrays]
        self._draws = [draws] if draws else []
        self._structure = structure
        self.steps = sum(len(part) for part in self._columns["loss"])
