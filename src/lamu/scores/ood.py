"""Out-of-distribution scores of rows."""

# All of them are higher for rows that are further from the training distribution, so that `auroc(score of known rows,
# score of unknown rows)` is above one half where a score separates the two.
#
# | score | of | high where |
# |---|---|---|
# | `entropy` | a prediction | the target is uncertain, for whatever reason |
# | `mutual_information` | a prediction | the members or draws of the belief disagree |
# | `least_confidence` | a prediction | even the most probable class is improbable |
# | `energy` | a posterior and inputs | all logits are small |
# | `mahalanobis` | a posterior, training rows and inputs | the features are far from those of every class |

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamu.posterior import Posterior
from lamu.predictives.chunking import in_room
from lamu.predictives.sampled import require_room
from lamu.typing import Array, RandomKey

__all__ = ["energy", "entropy", "least_confidence", "mutual_information"]


def entropy(pred: Any) -> np.ndarray:
    r"""Returns the entropy of each predicted class, \(-\sum_k \bar p_{ik} \log \bar p_{ik}\).

    Args:
        pred: a prediction of classes, or of a binary target.

    Returns:
        Nats, `[N]`, from 0 to log K; higher is stranger.

    Raises:
        ValueError: for a regression, whose `pred.variance` tells the same.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import TwoClasses
        >>> from lamu.scores import entropy
        >>> entropy(SimpleNamespace(support=TwoClasses(), mean=np.array([0.5, 1.0]))).round(4).tolist()
        [0.6931, 0.0]
    """
    p = _probabilities("entropy", pred)
    return np.sum(p * -np.log(np.where(p > 0, p, 1.0)), axis=-1) + 0.0


def mutual_information(pred: Any) -> np.ndarray:
    r"""Returns what the target would tell about the parameters, \(H[\bar p_i] - E_q H[p_i(\theta)]\).

    Zero for a point, which has no doubt about its parameters (Houlsby et al. 2011, "BALD").

    Args:
        pred: a prediction of classes, or of a binary target.

    Returns:
        Nats, `[N]`; higher is stranger.

    Raises:
        ValueError: for a regression, whose `pred.epistemic` tells the same, as a variance.

    Examples:
        >>> import jax.numpy as jnp
        >>> from lamu.likelihoods import Bernoulli
        >>> from lamu.predictives import MixturePredictive
        >>> from lamu.scores import mutual_information
        >>> disagreeing = jnp.array([40.0, -40.0]).reshape(2, 1, 1)
        >>> mutual_information(MixturePredictive.equal(Bernoulli(), {}, disagreeing)).round(4).tolist()
        [0.6931]
    """
    if not pred.support.has_classes:
        raise ValueError("mutual_information is for classes; of a regression take pred.epistemic, a variance")
    return np.asarray(pred.epistemic, float)


def least_confidence(pred: Any) -> np.ndarray:
    r"""Returns the probability that the most probable class is wrong, \(1 - \max_k \bar p_{ik}\).

    Args:
        pred: a prediction of classes, or of a binary target.

    Returns:
        A probability, `[N]`, from 0 to 1 − 1/K; higher is stranger.

    Raises:
        ValueError: for a regression.

    Source: Hendrycks & Gimpel (2017), with the sign turned.

    Examples:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from lamu.supports import Classes
        >>> from lamu.scores import least_confidence
        >>> least_confidence(SimpleNamespace(support=Classes(2), mean=np.array([[0.75, 0.25]]))).tolist()
        [0.25]
    """
    return 1 - _probabilities("least_confidence", pred).max(axis=-1)


def energy(
    posterior: Posterior, x: Any, temperature: float = 1.0, samples: int = 32, key: RandomKey | None = None
) -> np.ndarray:
    r"""Returns the energy of each input, \(-T \log \sum_k e^{\bar f_k(x) / T}\) of the mean outputs.

    The outputs are averaged over draws of the belief; a point has one. The single output f of a binary target stands
    for the logits (−f/2, f/2), so that both labels have the same scale.

    Args:
        posterior: of a model of classes, or of a binary target.
        x: inputs `[N, ...]`.
        temperature: T.
        samples: draws of the parameters.
        key: for the draws; the posterior's own where none is given.

    Returns:
        Logits' units, `[N]`; higher is stranger.

    Raises:
        ValueError: for a regression.

    Source: Liu, Wang, Owens & Li (2020).

    Examples:
        >>> import lamu
        >>> x, y = lamu.data.load("breast_cancer")
        >>> model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli()).standardised(x, y)
        >>> posterior = lamu.fit(model, (x, y), lamu.algorithms.adam(1e-2), epochs=5).posterior
        >>> lamu.scores.energy(posterior, x[:3]).shape
        (3,)
    """
    if not posterior.model.likelihood.logits:
        raise ValueError("energy is for classes, whose outputs are logits; of a regression take pred.epistemic")
    key = jax.random.clone(posterior.key) if key is None else key
    x = np.asarray(x)
    x = x if np.issubdtype(x.dtype, np.floating) else x.astype(jnp.result_type(float))
    require_room(posterior.belief, key, samples)
    draws = posterior.belief.draws(key, samples)
    f = in_room(_mean_outputs, (posterior, draws), (x,))
    logits = np.asarray(f, float) / temperature
    if logits.shape[1] == 1:
        logits = np.concatenate([-logits / 2, logits / 2], axis=1)
    return -temperature * np.logaddexp.reduce(logits, axis=1)


@jax.jit
def _mean_outputs(posterior: Posterior, draws: Any, x: Array) -> Array:
    outputs = lambda params: posterior.model.outputs(params, posterior.network_state, x)[0]
    return jnp.mean(jnp.asarray(jax.lax.map(outputs, draws)), axis=0)


def _probabilities(score: str, pred: Any) -> np.ndarray:
    if not pred.support.has_classes:
        raise ValueError(f"{score} is for classes; of a regression take pred.variance or pred.epistemic")
    p = np.asarray(pred.mean, float)
    return np.stack([1 - p, p], axis=1) if p.ndim == 1 else p
