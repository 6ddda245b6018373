"""The sampled rule: average the likelihood over draws of the parameters."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lamu.model import Model
from lamu.predictives.interface import Predictive
from lamu.predictives.mixture import Mixture
from lamu.predictives.rows import in_chunks
from lamu.record import record
from lamu.typing import Array, Params, RandomKey, Rows

__all__ = ["Sampled"]


@record
class Sampled:
    r"""The average of the likelihood over draws of the parameters; a point needs one draw.

    \[ p(y^*) \approx \frac1S \sum_s p(y^* \mid f(\theta_s, x^*)), \qquad \theta_s \sim q \]


    Examples:
        >>> from lamu.predictives import Sampled
        >>> Sampled()
        Sampled()
    """

    def predict(
        self, model: Model, belief: Any, network_state: Any, x: Rows, samples: int, key: RandomKey
    ) -> Predictive:
        """Returns the mixture over the draws."""
        draws = _draws(belief, key, samples)
        f = in_chunks(lambda rows: _outputs(model, network_state, draws, rows), x, rows=4096, axis=1)
        return Mixture.equal(model.likelihood, draws["likelihood"], f)


@partial(jax.jit, static_argnums=2)
def _draws(belief: Any, key: RandomKey, samples: int) -> Params:
    return belief.draws(key, samples)


@jax.jit
def _outputs(model: Model, network_state: Any, draws: Params, x: Array) -> Array:
    # One draw after the other: memory stays that of one pass, and a matrix product fills the cores already.
    return jnp.asarray(jax.lax.map(lambda params: model.outputs(params, network_state, x)[0], draws))
