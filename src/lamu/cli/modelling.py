"""What the command line takes where it is not told: the algorithm, the model, and how long it learns."""

from __future__ import annotations

from typing import Any

from lamu.data import Encoding
from lamu.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from lamu.model import Model
from lamu.networks import MLP, Network
from lamu.priors import Normal
from lamu.protocol import Algorithm

__all__ = ["budget", "default_algorithm", "model_for"]


def default_algorithm() -> str:
    """Returns the name of the algorithm that `lamu fit` takes.

    Examples:
        >>> from lamu.cli.modelling import default_algorithm
        >>> default_algorithm()
        'ivon'
    """
    return "ivon"


def budget(algorithm: Algorithm) -> dict[str, Any]:
    """Returns how long an algorithm learns, as options of `lamu.fit`; those with a length of their own keep it.

    Examples:
        >>> import lamu
        >>> from lamu.cli.modelling import budget
        >>> budget(lamu.algorithms.ivon())
        {'epochs': 50, 'batch_size': 64}
    """
    own = algorithm.traits.length is not None or algorithm.traits.batching == "once"
    return {"batch_size": 64} if own else {"epochs": 50, "batch_size": 64}


def model_for(encoding: Encoding, x: Any, y: Any) -> Model:
    """Returns the model for a table.

    Args:
        encoding: what the columns and the target are.
        x: the training features, `[rows, columns]`.
        y: the training targets, `[rows]`.
    """
    return Model(_network(encoding), _likelihood(encoding), Normal(1.0)).standardised(x, y)


def _network(encoding: Encoding) -> Network:
    base = MLP((64, 64))
    levels = tuple(getattr(encoding, "cardinalities", ()))
    if not any(levels):
        return base
    from lamu.networks import Embedded

    return Embedded(base, levels)


def _likelihood(encoding: Encoding) -> Likelihood:
    if encoding.task == "regression":
        return Gaussian()
    return Bernoulli() if encoding.task == "binary" else Categorical(len(encoding.labels))
