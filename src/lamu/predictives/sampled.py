"""The sampled rule: average the likelihood over draws of the parameters."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lamu.data.batch import with_offset
from lamu.families import Draws, Ensemble, Product
from lamu.model import Model
from lamu.predictives.interface import Prepared
from lamu.predictives.mixture import Mixture
from lamu.predictives.rows import in_chunks
from lamu.predictives.rule import PredictiveRule
from lamu.record import record, static
from lamu.typing import Array, Params, RandomKey, Rows

__all__ = ["Sampled"]


@record
class Sampled(PredictiveRule):
    r"""The average of the likelihood over draws of the parameters; a point needs one draw.

    \[ p(y^*) \approx \frac1S \sum_s p(y^* \mid f(\theta_s, x^*)), \qquad \theta_s \sim q \]


    Examples:
        >>> from lamu.predictives import Sampled
        >>> Sampled()
        Sampled()
    """

    def prepare(self, model: Model, belief: Any, network_state: Any, samples: int, key: RandomKey) -> Prepared:
        """Returns the draws."""
        # Draws may be on disk: as an argument of a compiled function all of them would be read.
        draws = belief.draws(key, samples) if isinstance(belief, Draws) else _draws(belief, key, samples)
        return _Drawn(model, network_state, draws, random=not _is_certain(belief))


@record
class _Drawn:
    """Draws of the parameters; `random` unless they are a point, or points that stand for themselves."""

    model: Model
    network_state: Any
    draws: Params
    random: bool = static()

    @property
    def task(self) -> str:
        return self.model.likelihood.task

    def at(self, x: Rows, offset: Rows | None) -> Mixture:
        outputs = lambda rows: _outputs(self.model, self.network_state, self.draws, *rows)
        f = in_chunks(outputs, (x, offset), rows=4096, axis=1)
        return Mixture.equal(self.model.likelihood, self.draws["likelihood"], f, self.random)


def _is_certain(belief: Any) -> bool:
    """Whether there is nothing random in what represents the belief."""
    if isinstance(belief, Product):
        return all(_is_certain(factor) for factor in belief.factors.values())
    return _is_certain(belief.stacked) if isinstance(belief, Ensemble) else belief.kind == "degenerate"


@partial(jax.jit, static_argnums=2)
def _draws(belief: Any, key: RandomKey, samples: int) -> Params:
    return belief.draws(key, samples)


@jax.jit
def _outputs(model: Model, network_state: Any, draws: Params, x: Array, offset: Array | None) -> Array:
    # One draw after the other: memory stays that of one pass, and a matrix product fills the cores already.
    f = lambda params: with_offset(model.outputs(params, network_state, x)[0], offset)
    return jnp.asarray(jax.lax.map(f, draws))
