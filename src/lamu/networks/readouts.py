"""What a network of sequences gives of its steps: the last one, every one, or their mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import jax.numpy as jnp

from lamu.record import record
from lamu.typing import Array, Params

__all__ = ["EveryStep", "LastStep", "MeanOfSteps", "Readout", "read_out", "require_readout", "steps_of"]


class Readout(ABC):
    """What reaches the last layer of a network of sequences, as `LSTM(readout=...)` takes it."""

    def at_each(self, outputs: int, steps: int) -> int:
        """Returns how many outputs the last layer has, of those that the likelihood reads.

        Args:
            outputs: what the likelihood reads a row.
            steps: the length of the sequences.
        """
        del steps
        return outputs

    @abstractmethod
    def read(self, hidden: Array) -> Array:
        """Returns the features that the last layer sees, of `[batch, steps, features]`."""


@record
class LastStep(Readout):
    """The features of the last step alone, `[batch, features]`: one prediction a sequence.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import LastStep
        >>> LastStep().read(jnp.arange(6.0).reshape(1, 3, 2)).tolist()
        [[4.0, 5.0]]
    """

    def read(self, hidden: Array) -> Array:
        return hidden[:, -1]


@record
class MeanOfSteps(Readout):
    """The mean of the features over the steps, `[batch, features]`: one prediction a sequence.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.networks import MeanOfSteps
        >>> MeanOfSteps().read(jnp.arange(6.0).reshape(1, 3, 2)).tolist()
        [[2.0, 3.0]]
    """

    def read(self, hidden: Array) -> Array:
        return jnp.mean(hidden, axis=1)


@record
class EveryStep(Readout):
    """The features of every step, `[batch, steps, features]`: a prediction at each, by the same last layer.

    The outputs of a row lie side by side, step after step, as `likelihoods.PerPosition` reads them.

    Raises:
        ValueError: where the likelihood reads a number of outputs that cannot be dealt to the steps.

    Examples:
        >>> from lamu.networks import EveryStep
        >>> EveryStep().at_each(outputs=12, steps=4)
        3
    """

    def at_each(self, outputs: int, steps: int) -> int:
        if outputs % steps:
            raise ValueError(
                f"{outputs} outputs cannot be dealt to {steps} steps; give targets of every step, for instance with "
                f"likelihoods.PerPosition(Categorical(classes), ({steps},)), or readout=LastStep()"
            )
        return outputs // steps

    def read(self, hidden: Array) -> Array:
        return hidden


def steps_of(x: Array) -> Array:
    """Returns sequences with an axis of features."""
    if x.ndim not in (2, 3):
        raise ValueError(
            f"inputs of the shape {x.shape} are no sequences; give [batch, steps] or [batch, steps, features]"
        )
    return x if x.ndim == 3 else x[..., None]


def require_readout(readout: Any) -> None:
    """Raises a TypeError for what is no readout."""
    if not isinstance(readout, Readout):
        raise TypeError(f"readout={readout!r} is no readout; give LastStep(), EveryStep() or MeanOfSteps()")


def read_out(readout: Readout, layer: Params, hidden: Array) -> Array:
    """Returns the outputs of a dense layer at what a readout gives, `[batch, outputs]`."""
    features = readout.read(hidden)
    bias = layer["bias"].reshape(*[1] * (features.ndim - 1), -1)
    return (features @ layer["kernel"] + bias).reshape(hidden.shape[0], -1)
